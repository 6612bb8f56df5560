"""Pictures for light pages and for dark ones. Needs matplotlib, `pip install "inbounds[cli]"`.

Everything here takes plain arrays; colours are told apart by people who do not see red and green, and every method keeps its
colour in every picture.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["DARK", "LIGHT", "Theme", "new_figure", "save"]

_MATH = {"mathtext.fontset": "dejavusans", "svg.fonttype": "path", "svg.hashsalt": "inbounds"}


@dataclass(frozen=True)
class Theme:
    """Colours of a page: of the text, the background, what is secondary, and the methods."""

    name: str
    ink: str
    paper: str
    soft: str
    faint: str
    families: Mapping[str, str]

    def colour(self, family: str) -> str:
        return self.families.get(family, self.ink)

    def settings(self) -> dict[str, Any]:
        return {
            **_MATH,
            "figure.facecolor": self.paper,
            "axes.facecolor": self.paper,
            "savefig.facecolor": self.paper,
            "text.color": self.ink,
            "axes.labelcolor": self.ink,
            "axes.edgecolor": self.soft,
            "xtick.color": self.soft,
            "ytick.color": self.soft,
            "xtick.labelcolor": self.ink,
            "ytick.labelcolor": self.ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.size": 9.5,
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
            "legend.frameon": False,
            "legend.fontsize": 8.5,
            "lines.linewidth": 1.6,
            "axes.grid": False,
            "grid.color": self.faint,
        }


LIGHT = Theme(
    "light",
    ink="#1b1f24",
    paper="#ffffff",
    soft="#8c959f",
    faint="#e4e8ec",
    families={
        "mirror": "#d97706",
        "ito": "#c0569b",
        "corv": "#0b62a8",
        "lm": "#5fb3a1",
        "lm-nc": "#00805e",
        "lm-nc-estimated": "#6b8e23",
        "floor": "#8c959f",
    },
)
DARK = Theme(
    "dark",
    ink="#e8eaed",
    paper="#14171a",
    soft="#7d8792",
    faint="#2a3037",
    families={
        "mirror": "#f6a94a",
        "ito": "#e58cc4",
        "corv": "#6cb6ff",
        "lm": "#9be3d2",
        "lm-nc": "#3ddc97",
        "lm-nc-estimated": "#c3e07a",
        "floor": "#7d8792",
    },
)


def save(stem: Path, draw: Callable[[Theme], Any]) -> Path:
    """Draw a picture and write `stem.png`, `stem.svg` and `stem-dark.svg`.

    Args:
        stem: the path without its ending.
        draw: `draw(theme)`, which returns a figure from `new_figure`; it uses the theme's colours and no others.
    """
    matplotlib = _matplotlib()
    stem = Path(stem)
    with matplotlib.rc_context(LIGHT.settings()):
        figure = draw(LIGHT)
        # No date in the files: the same results give the same bytes.
        figure.savefig(stem.with_name(stem.name + ".png"), dpi=150, metadata={"Software": None})
        figure.set_layout_engine("none")  # laid out once is enough
        light = stem.with_name(stem.name + ".svg")
        figure.savefig(light, metadata={"Date": None})
    recoloured = _in_dark(light.read_text(encoding="utf-8"))
    stem.with_name(stem.name + "-dark.svg").write_text(recoloured, encoding="utf-8")
    return stem


def _in_dark(svg: str) -> str:
    """The same picture in the colours of the dark theme: drawing it again would take twice the time."""
    pairs = [(getattr(LIGHT, part), getattr(DARK, part)) for part in ("ink", "paper", "soft", "faint")]
    pairs += [(LIGHT.families[family], DARK.families[family]) for family in LIGHT.families]
    swap = {light.lower(): dark for light, dark in pairs}
    return re.sub(r"#[0-9a-fA-F]{6}", lambda match: swap.get(match[0].lower(), match[0]), svg)


def new_figure(rows: int, columns: int, width: float = 7.2, height: float = 2.4, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes (rows, columns); `height` is that of one row, in inches."""
    _matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def histogram_against_density(
    axes: Any, theme: Theme, edges, shares, density: Callable, family: str, top: float
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
    axes: Any, theme: Theme, labels: Sequence[str], values, errors, families: Sequence[str], floor: float
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


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "inbounds[cli]"') from error
    return matplotlib
