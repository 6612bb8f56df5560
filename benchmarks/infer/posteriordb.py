"""Twelve posteriors of posteriordb (github.com/stan-dev/posteriordb) by `ib.infer`, beside the reference draws of its authors.

    python -m benchmarks.infer.posteriordb --data FOLDER [--only sblrc-blr] [--out posteriordb.jsonl] [--method minibatch]

The folder has one JSON file per posterior, `NAME.json` with `data` as posteriordb has them, and `reference`: mean, sd and the 5, 50 and
95% quantiles ("mean", "sd", "q05", "q50", "q95") of each number by its name in Stan ("beta[1]"), from 10,000 draws. The data are not
ours to hand on. Seconds are those of everything, compilation included, on the machine as it is. To reach: certified, all means within 0.1 sds,
all sds within 5%, and 120 s for all of them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform

import inbounds as ib
from benchmarks.infer.judge import Lines, run, table
from benchmarks.infer.truth import Truth

__all__ = ["POSTERIORS", "truth_of"]

MEAN_OFF, SD_OFF, SECONDS = 0.1, 0.05, 120.0  # to reach
FLAT = 1e5  # the sd of a prior that stands for a flat one: it changes no mean of these posteriors by 1e-5 sds


def single(x: Any) -> np.ndarray:
    return np.asarray(x, np.float32)


def flat_regression(x: np.ndarray, y: np.ndarray) -> ib.Posterior:
    """Regression with flat coefficients, which have no distribution: one variable each, and sigma half-Cauchy."""
    names = [f"beta[{j + 1}]" for j in range(x.shape[1])]

    def log_likelihood(theta, batch):
        mean = batch["x"] @ jnp.stack([theta[name] for name in names])
        return dist.Normal(mean, theta["sigma"]).log_prob(batch["y"])

    return ib.Posterior(
        supports={name: constraints.real for name in names} | {"sigma": constraints.positive},
        log_prior=lambda theta: dist.HalfCauchy(2.5).log_prob(theta["sigma"]),
        log_likelihood=log_likelihood,
        data={"x": single(x), "y": single(y)},
    )


def kidscore(*columns: str) -> Callable[[dict[str, Any]], ib.Posterior]:
    """A regression of the children's scores on these columns; "product" is that of the others."""

    def posterior(data: dict[str, Any]) -> ib.Posterior:
        given = [np.asarray(data[name], float) for name in columns if name != "product"]
        x = [np.ones(len(given[0])), *given] + ([given[0] * given[1]] if "product" in columns else [])
        return flat_regression(np.column_stack(x), data["kid_score"])

    return posterior


def regression(x, y, prior_sd, noise_sd):
    beta = numpyro.sample("beta", dist.Normal(0.0, prior_sd).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(noise_sd))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def nes(data: dict[str, Any]) -> ib.Posterior:
    of = {name: np.asarray(data[name], float) for name in data if np.ndim(data[name]) == 1}
    ages = [of["age_discrete"] == k for k in (2, 3, 4)]
    x = [np.ones(len(ages[0])), of["real_ideo"], of["race_adj"], *ages, of["educ1"], of["gender"], of["income"]]
    return ib.from_numpyro(regression, single(np.column_stack(x)), single(of["partyid7"]), FLAT, FLAT)


def sblrc(data: dict[str, Any]) -> ib.Posterior:
    return ib.from_numpyro(regression, single(data["X"]), single(data["y"]), 10.0, 10.0)


def mixture(y):
    prior = dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    in_order = dist.TransformedDistribution(prior, OrderedTransform())
    mu = numpyro.sample("mu", in_order)
    # Stan's density is that of independent normals, cut to where they are in order.
    numpyro.factor("cut", dist.Normal(0.0, 2.0).log_prob(mu).sum() - in_order.log_prob(mu))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Beta(5.0, 5.0))
    parts = dist.MixtureSameFamily(dist.Categorical(jnp.stack([theta, 1 - theta])), dist.Normal(mu, sigma))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", parts, obs=y)


def schools(y, sigma):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    standard = numpyro.sample("theta_trans", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    theta = numpyro.deterministic("theta", mu + tau * standard)
    with numpyro.plate("schools", len(y)):
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def autoregression(lags, y):
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([lags.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    with numpyro.plate("times", len(y)):
        numpyro.sample("y", dist.Normal(alpha + lags @ beta, sigma), obs=y)


def ark(data: dict[str, Any]) -> ib.Posterior:
    y, order = np.asarray(data["y"], float), data["K"]
    lags = np.column_stack([y[order - k : len(y) - k] for k in range(1, order + 1)])
    return ib.from_numpyro(autoregression, single(lags), single(y[order:]))


POSTERIORS: dict[str, Callable[[dict[str, Any]], ib.Posterior]] = {
    "kidiq-kidscore_momiq": kidscore("mom_iq"),
    "kidiq-kidscore_momhs": kidscore("mom_hs"),
    "kidiq-kidscore_momhsiq": kidscore("mom_hs", "mom_iq"),
    "kidiq-kidscore_interaction": kidscore("mom_hs", "mom_iq", "product"),
    "nes1972-nes": nes,
    "nes1976-nes": nes,
    "nes1980-nes": nes,
    "nes1984-nes": nes,
    "low_dim_gauss_mix-low_dim_gauss_mix": lambda data: ib.from_numpyro(mixture, single(data["y"])),
    "sblrc-blr": sblrc,
    "eight_schools-eight_schools_noncentered": lambda data: ib.from_numpyro(
        schools, single(data["y"]), single(data["sigma"])
    ),
    "arK-arK": ark,
}


def truth_of(reference: dict[str, dict[str, float]], names: set[str]) -> Truth:
    """The margins of the reference, by the variables that the posterior has under these names."""
    margins: dict[str, Any] = {}
    for stan, found in reference.items():
        margin = np.array([found[key] for key in ("mean", "sd", "q05", "q50", "q95")])
        if stan in names or "[" not in stan:
            margins[stan] = margin
        else:
            name, index = re.fullmatch(r"(.+)\[(\d+)\]", stan).groups()
            margins.setdefault(name, {})[int(index)] = margin
    whole = {k: np.stack([v[j] for j in sorted(v)]) if isinstance(v, dict) else v for k, v in margins.items()}
    return Truth(whole, 1 / np.sqrt(min(found["draws"] for found in reference.values())))


def trial(folder: Path, name: str, **options: Any) -> dict[str, Any]:
    """One of them: how far off the worst mean and sd are, in reference sds."""
    file = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    names = {variable for variable, _ in POSTERIORS[name](file["data"]).variables()}
    truth = truth_of(file["reference"], names)
    result = run(lambda: POSTERIORS[name](file["data"]), truth, **options)
    off = {kind: float(np.abs(result["off"][kind]).max()) for kind in ("mean", "sd", "quantile")}
    stated = float(np.abs(result["stated"]["mean"]).max())
    good = result["ok"] and off["mean"] <= MEAN_OFF and off["sd"] <= SD_OFF
    worst = {"mean_off": off["mean"], "sd_off": off["sd"], "quantile_off": off["quantile"], "stated": stated}
    return {"name": name} | result | worst | {"good": bool(good)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the JSON files")
    parser.add_argument("--only", nargs="+", choices=POSTERIORS, default=list(POSTERIORS))
    parser.add_argument("--out", type=Path, help="lines of JSON, appended")
    parser.add_argument("--method", choices=("auto", "minibatch", "full"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kept, lines = Lines(arguments.out), []
    for name in arguments.only:
        line = kept.add(trial(arguments.data, name, method=arguments.method, seed=arguments.seed))
        lines.append(line)
        print(name, "certified" if line["ok"] else line["reasons"], f"{line['seconds']:.1f} s", flush=True)
    head = ("name", "ok", "mean_off", "sd_off", "quantile_off", "stated", "seconds", "good")
    print(table(head, [[line[key] for key in head] for line in lines]))
    total = sum(line["seconds"] for line in lines)
    print(
        f"{sum(line['good'] for line in lines)} of {len(lines)} good, {total:.0f} s together (to reach: {SECONDS:.0f})"
    )


if __name__ == "__main__":
    main()
