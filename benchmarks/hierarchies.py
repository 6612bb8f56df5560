"""Hierarchical models by `ib.infer` beside long runs of NumPyro's NUTS on all variables, and how long many groups take.

    python -m benchmarks.hierarchies                       # the table against NUTS: an hour on two cores
    python -m benchmarks.hierarchies slopes                # one row of it
    python -m benchmarks.hierarchies --groups 1000000      # time and memory at ten rows per group
    python -m benchmarks.hierarchies --many 10000          # that many groups of ten rows beside NUTS: best on a GPU

Results go to `benchmarks/results/hierarchies.json`, row by row.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import inbounds as ib

RESULTS = Path(__file__).parent / "results" / "hierarchies.json"
WARMUP, DRAWS, CHAINS = 1_000, 2_500, 4  # of NUTS
MEAN, SLOPE = -0.3, 0.5
TEACHERS = 12
ASKED = 1_000  # groups whose effects are looked at in large runs


def globals_() -> tuple[Any, Any, Any]:
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    return mean, scale, numpyro.sample("slope", dist.Normal(0, 1))


def centred(groups, group, x, y):
    mean, scale, slope = globals_()
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=effect[group] + slope * x), obs=y)


def non_centred(groups, group, x, y):
    mean, scale, slope = globals_()
    with numpyro.plate("groups", groups):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
    effect = numpyro.deterministic("effect", mean + scale * unit)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=effect[group] + slope * x), obs=y)


def slopes(groups, group, x, y):
    """Intercepts and slopes with a correlation."""
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    numpyro.deterministic("correlation", factor[1, 0])
    with numpyro.plate("groups", groups):
        unit = numpyro.sample("unit", dist.Normal(0, 1).expand([2]).to_event(1))
    effect = numpyro.deterministic("effect", mean + unit @ (scale[:, None] * factor).T)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=effect[group, 0] + effect[group, 1] * x), obs=y)


def slopes_centred(groups, group, x, y):
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    numpyro.deterministic("correlation", factor[1, 0])
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.MultivariateNormal(mean, scale_tril=scale[:, None] * factor))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=effect[group, 0] + effect[group, 1] * x), obs=y)


def counts(groups, group, x, y):
    """Poisson counts of groups of unequal size with gamma frailties."""
    rate = numpyro.sample("mean", dist.Normal(0, 1))
    shape = numpyro.sample("scale", dist.LogNormal(1, 1))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("groups", groups):
        frailty = numpyro.sample("effect", dist.Gamma(shape, shape))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(frailty[group] * jnp.exp(rate + slope * x)), obs=y)


def crossed(groups, group, teacher, y):
    """Students and teachers: the students are integrated out, the teachers sampled."""
    mean, scale, _ = globals_()
    teachers_scale = numpyro.sample("teachers_scale", dist.HalfNormal(1))
    with numpyro.plate("groups", groups):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
    effect = numpyro.deterministic("effect", mean + scale * unit)
    with numpyro.plate("teachers", TEACHERS):
        of_teacher = numpyro.sample("of_teacher", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=effect[group] + teachers_scale * of_teacher[teacher]), obs=y)


def data(groups: int, rows: int, scale: float, seed: int = 0) -> tuple[Any, ...]:
    """Logistic random intercepts."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups, dtype=np.int32), rows)
    x = generator.normal(size=len(group)).astype(np.float32)
    effect = MEAN + scale * generator.normal(size=groups).astype(np.float32)
    y = generator.random(len(group)) < 1 / (1 + np.exp(-(effect[group] + SLOPE * x)))
    return groups, group, x, y.astype(np.int32)


def data_of_slopes(groups: int, rows: int, scale: float, seed: int = 0) -> tuple[Any, ...]:
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups, dtype=np.int32), rows)
    x = generator.normal(size=len(group)).astype(np.float32)
    root = np.linalg.cholesky([[1, 0.5], [0.5, 1]])
    effect = np.array([MEAN, SLOPE]) + scale * generator.normal(size=(groups, 2)) @ root.T
    y = generator.random(len(group)) < 1 / (1 + np.exp(-(effect[group, 0] + effect[group, 1] * x)))
    return groups, group, x, y.astype(np.int32)


def data_of_crossed(groups: int, rows: int, scale: float, seed: int = 0) -> tuple[Any, ...]:
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups, dtype=np.int32), rows)
    teacher = generator.integers(0, TEACHERS, len(group)).astype(np.int32)
    logits = MEAN + scale * generator.normal(size=groups)[group] + scale * generator.normal(size=TEACHERS)[teacher]
    return groups, group, teacher, (generator.random(len(group)) < 1 / (1 + np.exp(-logits))).astype(np.int32)


def data_of_counts(groups: int, rows: int, scale: float, seed: int = 0) -> tuple[Any, ...]:
    generator = np.random.default_rng(seed)
    sizes = 1 + generator.geometric(1 / rows, groups)
    group = np.repeat(np.arange(groups, dtype=np.int32), sizes)
    x = generator.normal(size=len(group)).astype(np.float32)
    frailty = generator.gamma(1 / scale, scale, groups)
    return groups, group, x, generator.poisson(frailty[group] * np.exp(MEAN + SLOPE * x)).astype(np.int32)


Case = tuple[Callable[..., None], list[Callable[..., None]], tuple[Any, ...]]  # of NUTS, of ours, data

CASES: dict[str, Callable[[], Case]] = {
    "50 x 5, 0.3": lambda: (non_centred, [centred, non_centred], data(50, 5, 0.3)),
    "50 x 20, 1": lambda: (non_centred, [centred, non_centred], data(50, 20, 1.0)),
    "slopes": lambda: (slopes, [slopes, slopes_centred], data_of_slopes(100, 20, 0.7)),
    "crossed": lambda: (crossed, [crossed], data_of_crossed(100, 15, 0.8)),
    "counts": lambda: (counts, [counts], data_of_counts(300, 8, 0.5)),
    "150 x 40, 0.5": lambda: (centred, [centred, non_centred], data(150, 40, 0.5)),
    "2,000 x 10, 0.5": lambda: (non_centred, [centred], data(2_000, 10, 0.5)),
    "200 x 50, 0.5": lambda: (centred, [centred, non_centred], data(200, 50, 0.5)),
}


def nuts(model: Callable[..., None], args: tuple[Any, ...]) -> tuple[dict[str, np.ndarray], float]:
    """(draws of all variables, seconds)."""
    began = time.perf_counter()
    kernel = NUTS(model, target_accept_prob=0.9)
    chains = MCMC(
        kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    chains.run(jax.random.key(0), *args)
    draws = {name: np.asarray(value, float) for name, value in chains.get_samples().items()}
    return draws, time.perf_counter() - began


def compared(draws: Any, reference: dict[str, np.ndarray]) -> dict[str, Any]:
    """How far the means are off in sds of the reference, and the sds in shares: the worst of the globals, and of the effects."""
    found: dict[str, list[np.ndarray]] = {"globals": [], "effects": []}
    variables = draws.variables()
    if "effect" not in variables:
        variables |= ib.hierarchies.effects(draws, np.arange(reference["effect"].shape[1]))
    for name in variables:
        if name not in reference or name == "factor":
            continue
        ours = np.asarray(variables[name], float).reshape(-1, *variables[name].shape[2:])
        spread = reference[name].std(axis=0)
        off = np.stack([(ours.mean(axis=0) - reference[name].mean(axis=0)) / spread, ours.std(axis=0) / spread - 1])
        found["effects" if name in ("effect", "unit") else "globals"].append(off.reshape(2, -1))
    worst = {kind: np.abs(np.concatenate(parts, axis=1)).max(axis=1).tolist() for kind, parts in found.items()}
    return {
        f"{number} of {kind}": round(worst[kind][i], 4) for kind in worst for i, number in enumerate(("mean", "sd"))
    }


def against_nuts(name: str) -> list[dict[str, Any]]:
    """The rows of one case: each way of writing the model."""
    reference_model, models, args = CASES[name]()
    reference, seconds = nuts(reference_model, args)
    rows = []
    for model in models:
        began = time.perf_counter()
        draws = ib.infer(model, *args, progress=False)
        took = time.perf_counter() - began
        row = {"case": name, "model": model.__name__, "rows": len(args[1]), "certified": draws.certificate.ok}
        row |= {"reasons": draws.certificate.reasons, "method": draws.certificate.method, "seconds": round(took, 1)}
        row |= {"seconds of NUTS": round(seconds, 1), "effects": draws.certificate.choices.get("effects", "")}
        rows.append(row | compared(draws, reference))
        print(json.dumps(rows[-1]), flush=True)
    return rows


def at_scale(groups: int) -> dict[str, Any]:
    """Time and memory of many groups of ten rows, and how many of their true effects lie in their 90% intervals."""
    generator = np.random.default_rng(0)
    args = data(groups, 10, 0.5)
    truth = MEAN + 0.5 * _effects_of(groups)
    began = time.perf_counter()
    draws = ib.infer(centred, *args, progress=False)
    took = time.perf_counter() - began
    asked = generator.choice(groups, ASKED, replace=False)
    began = time.perf_counter()
    effects = ib.hierarchies.effects(draws, asked, thin=max(1, draws.num_draws // 100))["effect"].reshape(-1, ASKED)
    low, high = np.quantile(effects, [0.05, 0.95], axis=0)
    row = {"groups": groups, "rows": 10 * groups, "seconds": round(took, 1), "certified": draws.certificate.ok}
    row |= {"seconds of effects": round(time.perf_counter() - began, 1), "costs": draws.certificate.costs}
    row |= {
        "covered": float(np.mean((low <= truth[asked]) & (truth[asked] <= high))),
        "reasons": draws.certificate.reasons,
    }
    row |= {
        name: [float(draws.certificate.mean[name]), float(draws.certificate.sd[name])]
        for name in ("mean", "scale", "slope")
    }
    row["gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
    print(json.dumps(row), flush=True)
    return row


def many_beside_nuts(groups: int) -> dict[str, Any]:
    """Means and sds of the globals, and of the effects of 1,000 groups, beside NUTS on all variables of the same groups of ten rows."""
    args = data(groups, 10, 0.5)
    began = time.perf_counter()
    draws = ib.infer(centred, *args, progress=False)
    took = time.perf_counter() - began
    asked = np.sort(np.random.default_rng(0).choice(groups, ASKED, replace=False))
    effects = ib.hierarchies.effects(draws, asked)["effect"].reshape(-1, ASKED)
    reference, seconds = nuts(non_centred, args)
    theirs = reference["effect"][:, asked]
    row: dict[str, Any] = {"groups": groups, "rows": 10 * groups, "certified": draws.certificate.ok}
    row |= {"reasons": draws.certificate.reasons, "seconds": round(took, 1), "seconds of NUTS": round(seconds, 1)}
    row |= {"draws": len(effects), "draws of NUTS": len(theirs), "device": jax.devices()[0].device_kind}
    for name in ("mean", "scale", "slope"):
        mean, sd = reference[name].mean(), reference[name].std()
        row[name] = {
            "mean off by, in sds": round(float((draws.certificate.mean[name] - mean) / sd), 4),
            "sd off by": round(float(draws.certificate.sd[name] / sd - 1), 4),
            "effective draws of NUTS": round(_effective(reference[name])),
        }
    off = (effects.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    wide = effects.std(axis=0) / theirs.std(axis=0) - 1
    row["effects"] = {
        "mean off by, in sds": {
            "root mean square": float(np.sqrt(np.mean(off**2))),
            "largest": float(np.abs(off).max()),
        },
        "sd off by": {
            "mean": float(wide.mean()),
            "root mean square": float(np.sqrt(np.mean(wide**2))),
            "largest": float(np.abs(wide).max()),
            "share within 5%": float(np.mean(np.abs(wide) < 0.05)),
        },
        "effective draws of NUTS, of the median effect": round(
            float(np.median([_effective(theirs[:, i]) for i in range(50)]))
        ),
    }
    print(json.dumps(row), flush=True)
    return row


def _effective(draws: np.ndarray) -> float:
    """Effective draws of one number, chain after chain."""
    return float(effective_sample_size(draws.reshape(CHAINS, -1)))


def _effects_of(groups: int) -> np.ndarray:
    """The standard effects that `data` drew."""
    generator = np.random.default_rng(0)
    generator.normal(size=10 * groups)
    return generator.normal(size=groups).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="rows of the table; all without any")
    parser.add_argument("--groups", type=int, help="so many groups of ten rows")
    parser.add_argument("--many", type=int, help="so many groups of ten rows beside NUTS")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ib.UntrustworthyWarning)
    if options.groups:
        record("at scale", "groups", options.groups, [at_scale(options.groups)])
        return
    if options.many:
        record("many beside NUTS", "groups", options.many, [many_beside_nuts(options.many)])
        return
    for name in options.cases or CASES:
        record("against NUTS", "case", name, against_nuts(name))


def record(part: str, key: str, value: Any, rows: list[dict[str, Any]]) -> None:
    """Put rows in the place of those of the same case."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found[part] = [row for row in found.get(part, []) if row[key] != value] + rows
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
