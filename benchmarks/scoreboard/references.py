"""References of the twelve problems, in double precision on all the data, twice: by NUTS, and by weighted points around the mode.

    python -m benchmarks.scoreboard references [--only customers] [--seconds 600] [--at-once 2]

One problem by itself, which prints an entry of JSON:

    python -m benchmarks.scoreboard.references PROBLEM SECONDS TABLES [EVERY [DRAWN]]

What is kept are the margins of the weighted points (`weighted.py`), which are known far better than by draws: a 5% quantile of 10,000 draws
is off by 0.02 sds. NUTS is there to agree with them: 16 chains that begin twice as wide as the curvature at the mode says, which is their
matrix of masses. Rows that are the same are counted, not repeated. Where the mode has no curvature there is no reference.

Kept in benchmarks/results/scoreboard_references.json.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from numpyro.infer import MCMC, NUTS  # noqa: E402

from benchmarks.infer.reference import effective_draws  # noqa: E402
from benchmarks.infer.references import largest_r_hat, rounded  # noqa: E402
from benchmarks.infer.truth import Truth, of_draws  # noqa: E402
from benchmarks.scoreboard.models import MODELS  # noqa: E402
from benchmarks.scoreboard.tables import table  # noqa: E402
from benchmarks.scoreboard.weighted import Around, counted, weighted_rows  # noqa: E402

__all__ = ["FILE", "converged", "disagreement", "nuts", "references"]

FILE = Path(__file__).parents[1] / "results" / "scoreboard_references.json"
CHAINS, WARMUP, FIRST = 16, 300, 500
ENOUGH = 20_000  # effective draws of NUTS
LARGEST = {"r_hat": 1.01, "quantile_error": 0.01, "disagreement": 5.0}  # of what an entry says of itself

Named = dict[str, np.ndarray]


def references(file: Path = FILE) -> dict[str, Truth]:
    """The truths that have converged, by problem."""
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        name: Truth({variable: np.asarray(margin) for variable, margin in entry["margins"].items()}, entry["error"])
        for name, entry in stored.items()
        if converged(entry)
    }


def converged(entry: dict[str, Any]) -> bool:
    """Whether an entry may be used: chains agree with each other and with the weighted points, and scramblings of these with each other."""
    return all(entry.get(name, np.inf) < largest for name, largest in LARGEST.items())


def make(name: str, data: Named, seconds: float, drawn: dict[str, Any] | None = None) -> dict[str, Any]:
    """The entry of a problem.

    Args:
        name: of its model.
        data: of its table.
        seconds: of NUTS.
        drawn: what NUTS said where it ran before, as on a GPU.
    """
    with jax.enable_x64(True):
        some, counts = counted(data)
        around = Around(weighted_rows(MODELS[name]), some | {"counts": counts})
        entry = around.margins()
        drawn = dict(drawn or nuts(around, seconds))
        entry["disagreement"] = disagreement(entry["margins"], drawn)
    margins = {variable: rounded(margin) for variable, margin in entry.pop("margins").items()}
    said = {key: drawn[key] for key in ("r_hat", "ess", "tail_ess", "draws")}
    return {**entry, **said, "rows": len(counts), "numbers": around.size, "margins": margins}


def disagreement(margins: Named, drawn: dict[str, Any]) -> float:
    """How far means and sds of draws are from other ones, at most, in their standard errors."""
    worst = 0.0
    for variable, values in drawn["margins"].items():
        margin = np.asarray(values)
        sd = margin[..., 1]
        free = sd > 0
        off = np.abs(margins[variable][..., :2] - margin[..., :2])[free] / sd[free][..., None]
        worst = max(worst, float((off * np.sqrt([drawn["ess"], drawn["tail_ess"]])).max()))
    return round(worst, 2)


def nuts(around: Around, seconds: float) -> dict[str, Any]:
    """What NUTS says: draws are added until R-hat is small and they are enough, or the time is over."""
    began = time.perf_counter()
    kernel = NUTS(
        around.model, dense_mass=True, inverse_mass_matrix=jnp.asarray(around.covariance), adapt_mass_matrix=False
    )
    mcmc = MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=FIRST,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )
    mcmc.warmup(jax.random.key(0), init_params=around.starts(CHAINS, wide=2.0), **around.data)
    kept: dict[str, list[np.ndarray]] = {}
    while True:
        mcmc.run(mcmc.post_warmup_state.rng_key, **around.data)
        mcmc.post_warmup_state = mcmc.last_state
        for variable, x in mcmc.get_samples(group_by_chain=True).items():
            kept.setdefault(variable, []).append(np.asarray(x))
        entry = _said({variable: np.concatenate(parts, axis=1) for variable, parts in kept.items()})
        enough = entry["r_hat"] < LARGEST["r_hat"] and entry["ess"] > ENOUGH
        if enough or time.perf_counter() - began > seconds:
            return entry


def _said(draws: Named) -> dict[str, Any]:
    chains, count = next(iter(draws.values())).shape[:2]
    ess, tail = (
        min(float(np.nanmin(x)) for x in effective_draws(draws, method).values()) for method in ("bulk", "tail")
    )
    return {
        "ess": round(ess),
        "tail_ess": round(tail),
        "r_hat": round(largest_r_hat(draws), 5),
        "draws": chains * count,
        "margins": {variable: of_draws(x.reshape(-1, *x.shape[2:])) for variable, x in draws.items()},
    }


def main() -> None:
    """One problem."""
    problem, seconds, tables, *rest = sys.argv[1:]
    every = int(rest[0]) if rest else 1
    drawn = json.loads(Path(rest[1]).read_text(encoding="utf-8")).get(problem) if len(rest) > 1 else None
    data = {key: x[::every] for key, x in table(problem, Path(tables)).items()}
    entry = make(problem, data, float(seconds), drawn)
    print(json.dumps({**entry, "seconds": round(time.perf_counter() - BEGAN, 1)}), flush=True)


if __name__ == "__main__":
    main()
