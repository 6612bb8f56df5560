"""References of the twelve problems: NUTS of NumPyro in double precision, four chains, until R-hat is below 1.005.

    python -m benchmarks.scoreboard references [--only customers] [--seconds 3600]

Kept in benchmarks/results/scoreboard_references.json: means, sds and quantiles of every number, and the effective draws of the worst.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC, NUTS, init_to_median

from benchmarks.infer.reference import truth_of_draws
from benchmarks.infer.references import largest_r_hat, rounded
from benchmarks.infer.truth import Truth
from benchmarks.scoreboard.models import MODELS
from benchmarks.scoreboard.tables import table

__all__ = ["FILE", "LARGEST_R_HAT", "make", "references"]

FILE = Path(__file__).parents[1] / "results" / "scoreboard_references.json"
WARMUP, FIRST, CHAINS, LARGEST_R_HAT = 1_000, 1_000, 4, 1.005


def references(file: Path = FILE) -> dict[str, Truth]:
    """The truths that have converged, by problem."""
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        name: Truth({variable: np.asarray(margin) for variable, margin in entry["margins"].items()}, entry["error"])
        for name, entry in stored.items()
        if entry["r_hat"] < LARGEST_R_HAT
    }


def make(name: str, tables: Path, seconds: float) -> dict[str, Any]:
    """The entry of a problem: draws are added until R-hat is small enough, or the time is over."""
    began = time.perf_counter()
    data = {key: np.asarray(x, float) if x.dtype.kind == "f" else x for key, x in table(name, tables).items()}
    kept: dict[str, list[np.ndarray]] = {}
    with jax.enable_x64(True):
        kernel = NUTS(MODELS[name], init_strategy=init_to_median)
        mcmc = MCMC(
            kernel,
            num_warmup=WARMUP,
            num_samples=FIRST,
            num_chains=CHAINS,
            chain_method="sequential",
            progress_bar=False,
        )
        mcmc.warmup(jax.random.key(0), **data)
        while True:
            mcmc.run(mcmc.post_warmup_state.rng_key, **data)
            mcmc.post_warmup_state = mcmc.last_state
            for variable, x in mcmc.get_samples(group_by_chain=True).items():
                kept.setdefault(variable, []).append(np.asarray(x))
            draws = {variable: np.concatenate(parts, axis=1) for variable, parts in kept.items()}
            r_hat = largest_r_hat(draws)
            if r_hat < LARGEST_R_HAT or time.perf_counter() - began > seconds:
                break
    truth = truth_of_draws(draws)
    return {
        "error": truth.error,
        "ess": truth.error**-2,
        "r_hat": r_hat,
        "draws": CHAINS * next(iter(draws.values())).shape[1],
        "seconds": time.perf_counter() - began,
        "margins": {variable: rounded(margin) for variable, margin in truth.margins.items()},
    }
