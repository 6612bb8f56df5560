"""What the comparisons of samplers on models share: the methods, what is kept of their runs, and the cells of their pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.results import number
from inbounds.kernels import Kernel

SETS = ("validation", "test")


@dataclass(frozen=True)
class Method:
    """A sampler of the comparison.

    Args:
        name: on the command line and in the results.
        label: on the page.
        group: "paper" (CoRV with the paper's transforms), "baseline" or "ours".
        kernel: from what the experiment hands it: the posterior, or the `Bench` that has it.
        low, high: where its step size is searched: at least four decades.
    """

    name: str
    label: str
    group: str
    kernel: Callable[[Any], Kernel]
    low: float
    high: float


def chosen(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """The names, or all that are known; one that is not is an error that lists those that are."""
    known = list(known)
    for name in names or ():
        if name not in known:
            raise ValueError(f"Unknown {kind} {name!r}. Known: {', '.join(known)}.")
    return list(names or known)


# -- what is kept of runs -----------------------------------------------------------------------------------------


def metric(curve: np.ndarray, metrics: Sequence[str], name: str, which: str = "test") -> np.ndarray:
    """One metric on one set out of a curve (..., sets, metrics)."""
    return np.asarray(curve)[..., SETS.index(which), list(metrics).index(name)]


def rounded(curve: np.ndarray, metrics: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    """Every metric on both sets, (seeds, evaluations), rounded for the disk."""
    return {
        which: {name: np.round(metric(curve, metrics, name, which).astype(float), 5) for name in metrics}
        for which in SETS
    }


def seeds_of(final: Mapping[str, Any], name: str, which: str = "test") -> np.ndarray:
    """A metric of a final run as it was kept, (seeds, evaluations); NaN where a chain died."""
    return np.asarray(final[which][name], float)


def at_end(final: Mapping[str, Any], name: str, which: str = "test") -> tuple[float, float]:
    """(mean, standard error) over the seeds of a metric at the last evaluation."""
    values = seeds_of(final, name, which)[:, -1]
    values = values[np.isfinite(values)]
    if not len(values):
        return math.nan, math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def curve_of(final: Mapping[str, Any], name: str, which: str = "test") -> np.ndarray:
    """The mean over the seeds at every evaluation; NaN where no chain is left."""
    values = seeds_of(final, name, which)
    alive = np.isfinite(values).any(axis=0)
    return np.where(alive, np.nanmean(np.where(alive, values, 0.0), axis=0), np.nan)


# -- cells of the pages -------------------------------------------------------------------------------------------


def plus_minus(row: Mapping[str, Any], name: str) -> str:
    """A mean with its standard error, out of a row that has both."""
    error = row.get(f"{name}_se")
    shape = ".4f" if abs(row[name]) < 100 else ".2g"  # of a chain that went astray the size is enough
    tail = "" if error is None or not math.isfinite(error) else f" ± {error:{shape}}"
    return f"{row[name]:{shape}}{tail}" if math.isfinite(row[name]) else "–"


def search_cells(methods: Mapping[str, Method], searches: Mapping[str, Mapping[str, Any]]) -> list[list[Any]]:
    """Label, range, best step size, its loss, its place in the range and the number of trials, one row a search."""
    return [
        [
            methods[name].label,
            f"{methods[name].low:.0e} to {methods[name].high:.0e}",
            f"{part['best_step_size']:.3e}",
            f"{number(part['best_loss']):.4f}",
            "at an end" if part["at_edge"] else "inside",
            len(part["losses"]),
        ]
        for name, part in searches.items()
    ]
