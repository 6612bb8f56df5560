"""Pictures of draws: how the chains ran, whether they agree, what they say beside the bounds, and how the error fell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from inbounds.arguments import nearest
from inbounds.display.pictures import LIGHT, new_figure, plotting
from inbounds.sampling.summary import labels

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["picture"]

POINTS = 1_000  # of a trace
BINS = 40
RANK_BINS = 20
NEAR = 0.25  # of the width of the draws: a bound that is nearer is in the picture
HEADS = ("trace", "ranks within all the chains", "marginal")


def picture(draws: Draws, names: Sequence[str] | None, most: int) -> Any:
    """The figure of `Draws.plot`."""
    library = plotting()
    numbers = _numbers(draws, names)
    shown = numbers[:most]
    course = [] if draws.certificate is None else draws.certificate.course
    with library.rc_context(LIGHT.settings()):
        figure, axes = new_figure(len(shown) + bool(course), len(HEADS), width=10.0, height=1.9)
        if len(numbers) > most:
            figure.suptitle(f"{len(shown)} of {len(numbers):,} numbers", fontsize=9)
        colours = library.colormaps["viridis"](np.linspace(0.0, 0.85, draws.num_chains))
        for row, (label, x, ends, certified) in zip(axes, shown, strict=False):
            _trace(row[0], x, colours)
            _ranks(row[1], x, colours)
            _marginal(row[2], x, ends, certified)
            row[0].set_ylabel(label)
        for axis, head in zip(axes[0], HEADS, strict=True):
            axis.set_title(head)
        if course:
            for axis in axes[-1]:
                axis.remove()
            _course(figure.add_subplot(axes[-1, 0].get_gridspec()[-1, :]), course, draws.certificate.error)
    return figure


def _numbers(draws: Draws, names: Sequence[str] | None) -> list[tuple[str, np.ndarray, Any, Any]]:
    """(label, draws (chain, draw), ends of its support, (mean, sd, total error of the mean) or None), of every number."""
    if not draws.num_draws:
        raise ValueError(f"There is nothing to plot: {draws.warnings()[0]}")
    variables = draws.variables()
    wanted = list(variables) if names is None else [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in variables:
            raise ValueError(
                f"There is no variable {name!r}.{nearest(name, variables)} There are: {', '.join(variables)}."
            )
    ends, found = draws.ends(), []
    for name in wanted:
        x = np.asarray(variables[name])
        flat = x.reshape(*x.shape[:2], -1)
        lower, upper = (np.broadcast_to(end, x.shape[2:]).ravel() for end in ends.get(name, (-np.inf, np.inf)))
        known = _known(draws.certificate, name, flat.shape[2])
        for i, label in enumerate(labels(name, x.shape[2:])):
            found.append((label, flat[:, :, i], (lower[i], upper[i]), None if known is None else known[i]))
    return found


def _known(certificate: Any, name: str, size: int) -> np.ndarray | None:
    """Mean, sd and total error of the mean of every number of a variable, of which there are so many."""
    if certificate is None or name not in certificate.mean:
        return None
    parts = (certificate.mean[name], certificate.sd[name], certificate.mean_error[name])
    return np.stack([np.broadcast_to(np.ravel(part), (size,)) for part in parts], axis=1)


def _trace(axis: Any, x: np.ndarray, colours: Any) -> None:
    step = max(1, x.shape[1] // POINTS)
    for chain, colour in zip(x, colours, strict=True):
        axis.plot(np.arange(0, len(chain), step), chain[::step], color=colour, linewidth=0.5, alpha=0.8)
    axis.margins(x=0)


def _ranks(axis: Any, x: np.ndarray, colours: Any) -> None:
    """Chains that agree have ranks of every size alike: level lines."""
    finite = np.where(np.isfinite(x), x, -np.inf)
    ranks = rankdata(finite.ravel(), method="average").reshape(x.shape)
    expected = x.shape[1] / RANK_BINS
    for chain, colour in zip(ranks, colours, strict=True):
        counts, edges = np.histogram(chain, RANK_BINS, (0.5, x.size + 0.5))
        axis.stairs(counts / expected, edges / x.size, baseline=None, color=colour, linewidth=1)
    axis.axhline(1, color=LIGHT.soft, linewidth=0.8, linestyle=":")
    axis.set(xlim=(0, 1), ylim=(0, None))


def _marginal(axis: Any, x: np.ndarray, ends: tuple[float, float], certified: np.ndarray | None) -> None:
    finite = x[np.isfinite(x)]
    if not finite.size:
        axis.text(0.5, 0.5, "no draw is finite", ha="center", transform=axis.transAxes)
        return
    counts, edges = np.histogram(finite, BINS)
    axis.stairs(counts, edges, fill=True, color=LIGHT.colour("corv"), alpha=0.35)
    low, high = float(finite.min()), float(finite.max())
    room = NEAR * (high - low)
    for end in ends:
        if np.isfinite(end) and low - room <= end <= high + room:
            axis.axvline(end, color=LIGHT.colour("mirror"), linewidth=1.2, linestyle="--", label="bound")
    if certified is not None and np.isfinite(certified).all():
        mean, sd, error = certified
        axis.axvline(mean, color=LIGHT.ink, linewidth=1, label="mean")
        axis.axvspan(
            mean - 2 * error * sd,
            mean + 2 * error * sd,
            color=LIGHT.ink,
            alpha=0.25,
            linewidth=0,
            label="its error, twice",
        )
    axis.set(yticks=[], ylim=(0, None))
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="best", fontsize=7)


def _course(axis: Any, course: list[tuple[float, int, float]], wanted: float) -> None:
    seconds, _, reached = (np.asarray(part, float) for part in zip(*course, strict=True))
    axis.plot(seconds, reached, color=LIGHT.colour("lm-nc"), marker="o", markersize=3)
    axis.axhline(wanted, color=LIGHT.soft, linewidth=1, linestyle="--")
    axis.annotate("asked for", (0.005, wanted), xycoords=("axes fraction", "data"), va="bottom", fontsize=7.5)
    if np.nanmin(np.where(np.isfinite(reached), reached, np.nan), initial=np.inf) > 0:
        axis.set_yscale("log")
    axis.set(title="twice the largest total error, in posterior sds", xlabel="seconds", xlim=(0, None))
