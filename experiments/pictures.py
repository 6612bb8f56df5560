"""What the pictures of the experiments and of the benchmarks share: logarithmic axes, histograms, dots with errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inbounds.display import Theme

__all__ = ["dots_with_errors", "histogram_against_density", "log_log", "plain_log"]


def histogram_against_density(
    axes: Any, theme: Theme, edges: np.ndarray, shares: np.ndarray, density: Callable[..., Any], family: str, top: float
) -> None:
    """The histogram of draws as steps, filled, and the density that it should follow as a line.

    Args:
        axes: where to draw.
        theme: the colours.
        edges: of the bins; a last one at infinity is left out.
        shares: of the draws, one a bin.
        density: of the target, vectorised.
        family: whose colour.
        top: upper end of the axis, so that panels compare.
    """
    edges, shares = np.asarray(edges, float), np.asarray(shares, float)
    if math.isinf(edges[-1]):
        edges, shares = edges[:-1], shares[:-1]
    heights = shares / np.diff(edges)
    axes.stairs(heights, edges, fill=True, color=theme.colour(family), alpha=0.45, lw=0)
    axes.stairs(heights, edges, color=theme.colour(family), lw=1.0)
    inner = np.linspace(edges[0], edges[-1], 1200)[1:-1]
    axes.plot(inner, density(inner), color=theme.ink, lw=1.2)
    axes.set_ylim(0, top)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def log_log(axes: Any, theme: Theme, xlabel: str = "", ylabel: str = "") -> None:
    """Logarithmic axes with a faint grid."""
    for axis in (axes.xaxis, axes.yaxis):
        plain_log(axis)
    axes.grid(True, which="major", lw=0.6)
    axes.set_axisbelow(True)
    if xlabel:
        axes.set_xlabel(xlabel)
    if ylabel:
        axes.set_ylabel(ylabel)


def plain_log(axis: Any, subs: Sequence[float] = (1.0,)) -> None:
    """A logarithmic axis with labels such as 0.01 and 1e-6: as readable as powers, and ten times faster to draw."""
    from matplotlib import ticker

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=7))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _power(value)))
    axis.set_minor_locator(ticker.NullLocator())


def _power(value: float) -> str:
    """1e-6 rather than 1e-06."""
    return re.sub(r"e([+-])0*", lambda match: "e" + match[1].strip("+"), f"{value:g}")


def dots_with_errors(
    axes: Any,
    theme: Theme,
    labels: Sequence[str],
    values: Sequence[float],
    errors: Sequence[float],
    families: Sequence[str],
    floor: float,
) -> None:
    """One dot a method on a logarithmic axis, best at the top, with the floor as a line."""
    order = np.argsort(np.nan_to_num(np.asarray(values, float), nan=np.inf))[::-1]
    for place, i in enumerate(map(int, order)):
        colour = theme.colour(families[i])
        axes.errorbar(values[i], place, xerr=errors[i], fmt="o", ms=4.5, color=colour, lw=1.2)
    axes.axvline(floor, color=theme.soft, lw=1.2, ls="--")
    plain_log(axes.xaxis, subs=(1, 2, 5))
    axes.set_yticks(range(len(order)), [labels[i] for i in order])
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_ylim(-0.7, len(order) - 0.3)
