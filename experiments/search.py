"""The search for a method's step size that the experiments on models share: a grid, or TPE, with the same number of trials."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from inbounds.tuning import tune

Evaluate = Callable[[np.ndarray], dict[str, np.ndarray]]
"""Arrays with one value per step size: "losses", and whatever else is to be kept."""


def grid(evaluate: Evaluate, low: float, high: float, trials: int, chains: int) -> dict[str, Any]:
    """Step sizes evenly spaced on the log scale, `chains` of them side by side: equal calls compile once."""
    began, steps = time.perf_counter(), np.geomspace(low, high, trials)
    padded = np.append(steps, np.full(-trials % chains, steps[-1])).reshape(-1, chains)
    found = [evaluate(some) for some in padded]
    columns = {name: np.concatenate([part[name] for part in found])[:trials] for name in found[0]}
    losses = columns["losses"]
    best = int(np.nanargmin(losses)) if np.isfinite(losses).any() else 0
    return {
        "step_sizes": steps,
        **columns,
        "best_step_size": steps[best],
        "best_loss": losses[best],
        "at_edge": best in (0, trials - 1),
        "seconds": time.perf_counter() - began,
    }


def tpe(
    evaluate: Evaluate,
    low: float,
    high: float,
    trials: int,
    chains: int,
    seed: int,
    journal: Path,
    name: str,
) -> dict[str, Any]:
    """The same by TPE; the journal makes it resumable trial by trial."""
    began = time.perf_counter()
    found = tune(
        lambda step_sizes: evaluate(np.atleast_1d(step_sizes))["losses"], low, high, trials, seed, journal,
        name=name, batch=chains, progress=False,
    )  # fmt: skip
    return {
        "step_sizes": [trial["step_size"] for trial in found.trials],
        "losses": [trial["value"] for trial in found.trials],
        "best_step_size": found.step_size,
        "best_loss": found.best_value,
        "at_edge": found.at_edge,
        "seconds": time.perf_counter() - began,
    }
