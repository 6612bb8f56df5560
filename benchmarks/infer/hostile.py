"""Twenty hostile posteriors: may `ib.infer` refuse them, but never certify a wrong answer.

    python -m benchmarks.infer.hostile --out hostile.jsonl [--only funnel banana] [--seeds 1] [--seconds 120]

The truth of each is exact or by quadrature, and of some there is none: they are improper, or have no moments. *Certified and wrong* is
`certificate.ok` where some mean is off by more than 0.2 posterior sds, or some sd by more than 15%, or where there is no truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from scipy import stats

import inbounds as ib
from benchmarks.infer.judge import Lines, run, table
from benchmarks.infer.kinds import groups_of, normal_of
from benchmarks.infer.truth import Truth, line, of_law, of_normals, plane

__all__ = ["HOSTILE", "Hostile", "judged", "wrong"]

MEAN_OFF, SD_OFF = 0.2, 0.15  # beyond which an answer is wrong


class Hostile(NamedTuple):
    """A posterior that is hard to be right about.

    Attributes:
        posterior: what is given to `infer`.
        truth: None where there is none, so that no answer is right.
    """

    posterior: ib.Posterior
    truth: Truth | None


HOSTILE: dict[str, Callable[[], Hostile]] = {}


def hostile(make: Callable[[], Hostile]) -> Callable[[], Hostile]:
    """Enter a function into the table."""
    HOSTILE[make.__name__] = make
    return make


def generator(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def grid_of_normal(sd: float, points: int = 40_001) -> tuple[np.ndarray, np.ndarray]:
    """Points of a normal of mean 0, and their weights."""
    x = np.linspace(-8 * sd, 8 * sd, points)
    return x, stats.norm.pdf(x, scale=sd)


# -- several modes -------------------------------------------------------------------------------------------------


def mixture_of_two(weight: float, centers: tuple[float, float], sds: tuple[float, float], size: int) -> Hostile:
    """Two spherical normals in several dimensions."""
    parts = dist.MultivariateNormal(
        jnp.asarray(centers)[:, None] * jnp.ones(size), jnp.asarray(sds)[:, None, None] ** 2 * jnp.eye(size)
    )
    prior = dist.MixtureSameFamily(dist.Categorical(jnp.asarray([1 - weight, weight])), parts)
    margin = of_normals(np.array([1 - weight, weight]), np.array(centers), np.array(sds))
    return Hostile(ib.Posterior({"x": prior}), Truth({"x": np.tile(margin, (size, 1))}))


@hostile
def far_modes() -> Hostile:
    """A fifth of the mass lies in a second mode, 27 sds away, in five dimensions."""
    return mixture_of_two(0.2, (0.0, 12.0), (1.0, 1.0), 5)


@hostile
def needle() -> Hostile:
    """Half of the mass lies within a thirtieth of an sd, at the centre of the other half, in four dimensions."""
    return mixture_of_two(0.5, (0.0, 0.0), (1.0, 0.03), 4)


@hostile
def labels() -> Hostile:
    """A mixture of two normals whose components may change places."""
    random = generator("labels")
    y = np.asarray(random.choice([-2.0, 2.0], 500, p=[0.5, 0.5]) + random.normal(size=500), np.float32)

    def log_likelihood(theta, y):
        heights = dist.Normal(theta["mean"], 1.0).log_prob(y[:, None])
        return jax.nn.logsumexp(heights, axis=-1) + jnp.log(0.5)

    def log_density(a, b):
        heights = -(a**2 + b**2) / 50
        first, second = (stats.norm.logpdf(np.asarray(y, float)[:, None], x.ravel()) for x in (a, b))
        for row in range(len(a)):
            heights[row] += np.logaddexp(first[:, row : row + 1], second).sum(0)
        return heights

    margins = np.stack(plane(log_density, (-4, 4), (-4, 4), 481, whole=True))
    prior = {"mean": dist.Normal(0.0, 5.0).expand([2]).to_event(1)}
    return Hostile(ib.Posterior(prior, log_likelihood, y), Truth({"mean": margins}))


@hostile
def frequency() -> Hostile:
    """The frequency of a sine in noise: a mode at every few hundredths, and one that has nearly all of the mass."""
    random = generator("frequency")
    time = np.linspace(0.0, 20.0, 200, dtype=np.float32)
    y = np.asarray(np.sin(3.7 * time) + random.normal(size=200), np.float32)
    posterior = ib.Posterior(
        {"frequency": dist.Uniform(0.0, 10.0)},
        lambda theta, batch: dist.Normal(jnp.sin(theta["frequency"] * batch["time"]), 1.0).log_prob(batch["y"]),
        {"time": time, "y": y},
    )

    def log_density(w):
        return -0.5 * ((np.asarray(y, float) - np.sin(w[:, None] * np.asarray(time, float))) ** 2).sum(1)

    return Hostile(posterior, Truth({"frequency": line(log_density, 0.0, 10.0)}))


@hostile
def ring() -> Hostile:
    """All of the mass lies on a thin circle."""
    posterior = ib.Posterior(
        supports={"x": constraints.real, "y": constraints.real},
        log_prior=lambda theta: -0.5 * jnp.square((jnp.hypot(theta["x"], theta["y"] + 1e-6) - 5.0) / 0.1),
    )
    x, y = plane(lambda x, y: -0.5 * ((np.hypot(x, y) - 5) / 0.1) ** 2, (-7, 7), (-7, 7), 701, whole=True)
    return Hostile(posterior, Truth({"x": x, "y": y}))


@hostile
def spikes_at_the_ends() -> Hostile:
    """Beta(0.02, 0.02): nearly all of the mass is closer to 0 or 1 than floats can tell."""
    return Hostile(ib.Posterior({"chance": dist.Beta(0.02, 0.02)}), Truth({"chance": of_law(stats.beta(0.02, 0.02))}))


# -- shapes that no single scale fits ------------------------------------------------------------------------------


def funnel_model():
    v = numpyro.sample("v", dist.Normal(0.0, 3.0))
    numpyro.sample("x", dist.Normal(0.0, jnp.exp(v / 2)).expand([9]).to_event(1))


@hostile
def funnel() -> Hostile:
    """Neal's funnel in ten dimensions."""
    v, weights = grid_of_normal(3.0)
    x = of_normals(weights, np.zeros_like(v), np.exp(v / 2))
    x[1] = np.exp(9 / 4)  # the sd; that of the grid is cut off
    return Hostile(ib.from_numpyro(funnel_model), Truth({"v": of_law(stats.norm(0, 3)), "x": np.tile(x, (9, 1))}))


@hostile
def narrow_groups() -> Hostile:
    """Effects of fifty groups of five rows, whose spread the data cannot tell from 0: a funnel with data."""
    random = generator("narrow groups")
    group = np.arange(250) % 50
    effects = 0.1 * random.normal(size=50)
    return Hostile(*groups_of(group, np.asarray(effects[group] + random.normal(size=250), np.float32), 1.0))


def banana_model():
    x = numpyro.sample("x", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Normal(x**2, 0.1))


@hostile
def banana() -> Hostile:
    """A parabola, forty times as long as it is wide."""
    x, weights = grid_of_normal(2.0)
    y = of_normals(weights, x**2, np.full_like(x, 0.1))
    return Hostile(ib.from_numpyro(banana_model), Truth({"x": of_law(stats.norm(0, 2)), "y": y}))


# -- tails ---------------------------------------------------------------------------------------------------------


@hostile
def cauchy() -> Hostile:
    """A law without a mean."""
    return Hostile(ib.Posterior({"x": dist.Cauchy(0.0, 1.0).expand([2]).to_event(1)}), None)


@hostile
def heavy_tails() -> Hostile:
    """Student's t with three degrees of freedom: an sd, but none of its estimate."""
    prior = dist.StudentT(3.0, 0.0, 1.0).expand([3]).to_event(1)
    return Hostile(ib.Posterior({"x": prior}), Truth({"x": np.tile(of_law(stats.t(3)), (3, 1))}))


@hostile
def lognormal() -> Hostile:
    """LogNormal(0, 2.5): an sd that a million independent draws do not show."""
    return Hostile(ib.Posterior({"x": dist.LogNormal(0.0, 2.5)}), Truth({"x": of_law(stats.lognorm(2.5))}))


# -- what the data do not say --------------------------------------------------------------------------------------


def sum_of_two(theta, y):
    return dist.Normal(theta["a"] + theta["b"], 1.0).log_prob(y)


@hostile
def unidentified_sum() -> Hostile:
    """The data say a + b to a hundredth; their difference has the prior's sd of 141."""
    y = np.asarray(generator("sum").normal(1.0, 1.0, 10_000), np.float32)
    posterior = ib.Posterior({"a": dist.Normal(0.0, 100.0), "b": dist.Normal(0.0, 100.0)}, sum_of_two, y)
    covariance = np.linalg.inv(len(y) * np.ones((2, 2)) + np.eye(2) / 1e4)
    mean = covariance @ np.full(2, np.asarray(y, float).sum())
    margin = of_law(stats.norm(mean, np.sqrt(np.diag(covariance))))
    return Hostile(posterior, Truth({"a": margin[0], "b": margin[1]}))


@hostile
def flat_direction() -> Hostile:
    """The same without a prior: improper."""
    y = np.asarray(generator("flat").normal(1.0, 1.0, 10_000), np.float32)
    posterior = ib.Posterior(
        supports={"a": constraints.real, "b": constraints.real},
        log_prior=lambda theta: jnp.zeros(()),
        log_likelihood=sum_of_two,
        data=y,
    )
    return Hostile(posterior, None)


@hostile
def separable() -> Hostile:
    """Logistic regression without a prior on classes that a line separates: improper, the slope drifts to infinity."""
    x = np.asarray(generator("separable").normal(size=1_000), np.float32)
    x += np.sign(x) * np.float32(0.5)

    def log_likelihood(theta, batch):
        logits = theta["intercept"] + theta["slope"] * batch["x"]
        return jnp.where(batch["y"], logits, 0.0) - jax.nn.softplus(logits)

    posterior = ib.Posterior(
        supports={"intercept": constraints.real, "slope": constraints.real},
        log_prior=lambda theta: jnp.zeros(()),
        log_likelihood=log_likelihood,
        data={"x": x, "y": x > 0},
    )
    return Hostile(posterior, None)


@hostile
def duplicated_column() -> Hostile:
    """A regression that has one of its columns twice."""
    random = generator("duplicate")
    x = np.asarray(random.normal(size=(2_000, 4)), np.float32)
    x[:, 3] = x[:, 2]
    y = np.asarray(x @ [1.0, -1.0, 0.5, 0.5] + random.normal(size=2_000), np.float32)
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 10.0).expand([4]).to_event(1)},
        lambda theta, batch: dist.Normal(batch["x"] @ theta["w"], 1.0).log_prob(batch["y"]),
        {"x": x, "y": y},
    )
    covariance = np.linalg.inv(x.T.astype(float) @ x + np.eye(4) / 100)
    law = stats.norm(covariance @ (x.T.astype(float) @ y), np.sqrt(np.diag(covariance)))
    return Hostile(posterior, Truth({"w": of_law(law)}))


# -- what minibatches and gradients do not see ---------------------------------------------------------------------


@hostile
def uniform_edge() -> Hostile:
    """Uniform data with an unknown end: the gradient drives theta into the largest datum, which no other row knows of."""
    y = np.asarray(3 * generator("edge").uniform(size=1_000), np.float32)
    posterior = ib.Posterior(
        {"end": dist.Uniform(0.0, 100.0)},
        lambda theta, y: jnp.where(y < theta["end"], -jnp.log(theta["end"]), -jnp.inf),
        y,
    )
    return Hostile(posterior, Truth({"end": line(lambda end: -1_000 * np.log(end), float(y.max()), 100.0)}))


@hostile
def change_point() -> Hostile:
    """The place of a step in the mean: the gradient is 0 wherever it is not infinite."""
    random = generator("change")
    time = random.uniform(size=400).astype(np.float32)
    y = np.asarray((time > 0.6) + random.normal(size=400), np.float32)
    posterior = ib.Posterior(
        {"place": dist.Uniform(0.0, 1.0)},
        lambda theta, batch: dist.Normal(jnp.where(batch["time"] > theta["place"], 1.0, 0.0), 1.0).log_prob(batch["y"]),
        {"time": time, "y": y},
    )

    def log_density(place):
        steps = np.asarray(time, float) > place[:, None]
        return -0.5 * ((np.asarray(y, float) - steps) ** 2).sum(1)

    return Hostile(posterior, Truth({"place": line(log_density, 0.0, 1.0)}))


@hostile
def outlier() -> Hostile:
    """A thousand normal numbers and one that is ten thousand sds away: which minibatch has it?"""
    y = np.asarray(generator("outlier").normal(size=1_000), np.float32)
    y[617] = 1e4
    return Hostile(*normal_of(y))


@hostile
def rare_rows() -> Hostile:
    """A hundred thousand trials with three successes: nearly all minibatches have none."""
    y = np.zeros(100_000, bool)
    y[[17, 40_404, 77_777]] = True
    posterior = ib.Posterior(
        {"chance": dist.Beta(1.0, 1.0)},
        lambda theta, y: jnp.where(y, jnp.log(theta["chance"]), jnp.log1p(-theta["chance"])),
        y,
    )
    return Hostile(posterior, Truth({"chance": of_law(stats.beta(4, 99_998))}))


# -- the verdict ---------------------------------------------------------------------------------------------------


def judged(result: dict[str, Any], truth: Truth | None) -> dict[str, Any]:
    """How far off the worst mean and sd are, and whether that was certified."""
    if truth is None:
        return {"mean_off": None, "sd_off": None, "wrong": result["ok"]}
    worst = {kind: float(np.max(np.abs(np.nan_to_num(result["off"][kind], nan=np.inf)))) for kind in ("mean", "sd")}
    slack = 2 * truth.error
    off = worst["mean"] > MEAN_OFF + slack or worst["sd"] > SD_OFF + slack
    return {"mean_off": worst["mean"], "sd_off": worst["sd"], "wrong": bool(result["ok"] and off)}


def trial(name: str, seed: int, infer: Callable[..., Any] | None = None, **options: Any) -> dict[str, Any]:
    """One posterior and one seed."""
    posterior, truth = HOSTILE[name]()
    try:
        result = run(posterior, truth, infer, seed=seed, **options)
    except Exception as error:  # to raise is no certificate, but a refusal should still hand over draws
        failed = {"ok": False, "reasons": [], "seconds": None, "mean_off": None, "sd_off": None, "wrong": False}
        return {"name": name, "seed": seed, "raised": f"{type(error).__name__}: {error}"} | failed
    return {"name": name, "seed": seed, "raised": None} | result | judged(result, truth)


def wrong(lines: Iterable[dict[str, Any]]) -> list[str]:
    """The names of what was certified and wrong."""
    return sorted({line["name"] for line in lines if line["wrong"]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="lines of JSON; those that it has are not run again")
    parser.add_argument("--only", nargs="+", choices=HOSTILE, default=list(HOSTILE))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each")
    parser.add_argument("--method", choices=("auto", "minibatch", "full"), default="auto")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    arguments = parser.parse_args()
    lines = Lines(arguments.out)
    for name in () if arguments.table else arguments.only:
        for seed in range(arguments.seeds):
            if not lines.has(name=name, seed=seed):
                line = lines.add(trial(name, seed, seconds=arguments.seconds, method=arguments.method))
                print(name, "WRONG" if line["wrong"] else "certified" if line["ok"] else "refused", flush=True)
    rows = [
        (x["name"], x["seed"], x["ok"], x["wrong"], x["mean_off"], x["sd_off"], x["seconds"], _why(x)) for x in lines
    ]
    print(table(("posterior", "seed", "certified", "wrong", "mean off", "sd off", "seconds", "why not"), rows))
    print(f"certified and wrong: {', '.join(wrong(lines)) or 'none'}")


def _why(line: dict[str, Any]) -> str:
    text = line["raised"] or next(iter(line["reasons"]), "")
    return text if len(text) <= 90 else text[:87] + "..."


if __name__ == "__main__":
    main()
