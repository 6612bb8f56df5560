"""How far off an answer is, as `rules.md` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.infer.truth import Truth

__all__ = ["TOLERANCES", "errors", "time_to"]

TOLERANCES = (0.1, 0.05, 0.02)


def errors(
    margins: Mapping[str, np.ndarray], truth: Truth, stated: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """The largest errors of a mean, a log sd and a quantile.

    Where errors are stated, also the shares of means and sds within twice of them, and the most times that one is beyond its own.

    Args:
        margins: of every variable of the truth: mean, sd and quantiles on the last axis.
        stated: by "mean" and "sd", the errors by variable, in posterior sds.
    """
    off: dict[str, list[np.ndarray]] = {"mean": [], "sd": [], "quantile": []}
    within: dict[str, list[np.ndarray]] = {"mean": [], "sd": []}
    for name, sd in truth.sd.items():
        free = sd > 0
        found = np.asarray(margins[name], float)
        if found.shape != truth.margins[name].shape:
            raise ValueError(f"{name!r} has shape {found.shape}, and its reference {truth.margins[name].shape}.")
        with np.errstate(all="ignore"):
            own = {
                "mean": np.abs(found[..., 0] - truth.mean[name]) / sd,
                "sd": np.abs(np.log(found[..., 1] / sd)),
                "quantile": np.abs(found[..., 2:] - truth.quantiles[name]) / sd[..., None],
            }
        for kind, values in own.items():
            off[kind].append(np.where(np.isfinite(values), values, np.inf)[free].ravel())
        for kind, errors_of in (stated or {}).items():
            within[kind].append((own[kind] / np.asarray(errors_of[name], float))[free].ravel())
    largest = {kind: float(np.concatenate(parts).max()) for kind, parts in off.items()}
    covered = {}
    for kind, parts in within.items():
        if parts:
            times = np.concatenate(parts)
            covered |= {f"{kind}s within": float((times <= 2).mean()), f"{kind} times stated": float(times.max())}
    return {**largest, "total": max(largest.values()), **covered}


def time_to(tolerance: float, looks: list[dict[str, float]]) -> float | None:
    """The seconds of the first look from which on the total error stays within a tolerance; None where it never does."""
    reached = None
    for look in looks:
        if look["total"] > tolerance:
            reached = None
        elif reached is None:
            reached = look["seconds"]
    return reached
