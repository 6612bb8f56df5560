"""Pictures for light pages and for dark ones. Needs matplotlib, `pip install "inbounds[plot]"`.

Everything here takes plain arrays; colours are told apart by people who do not see red and green, and every method keeps its
colour in every picture.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["DARK", "LIGHT", "Theme", "new_figure", "save_picture"]

_MATH = {"mathtext.fontset": "dejavusans", "svg.fonttype": "path", "svg.hashsalt": "inbounds"}


@dataclass(frozen=True)
class Theme:
    """Colours of a page: of the text, the background, what is secondary, and the methods.

    Example:
        >>> ib.display.LIGHT.paper != ib.display.DARK.paper
        True
    """

    name: str
    ink: str
    paper: str
    soft: str
    faint: str
    families: Mapping[str, str]

    def colour(self, family: str) -> str:
        """The colour of a family of methods or transforms, so that it is the same in all pictures.

        Args:
            family: its name; that of no family has the colour of text.

        Returns:
            A colour as Matplotlib takes it.
        """
        return self.families.get(family, self.ink)

    def settings(self) -> dict[str, Any]:
        """What `matplotlib.rc_context` takes to draw in this theme."""
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


def save_picture(stem: Path, draw: Callable[[Theme], Any]) -> Path:
    """Draw a picture and write `stem.png`, `stem.svg` and `stem-dark.svg`.

    Args:
        stem: the path without its ending.
        draw: `draw(theme)`, which returns a figure from `new_figure`; it uses the theme's colours and no others.

    Returns:
        `stem`.

    Example:
        >>> from pathlib import Path
        >>> def draw(theme):
        ...     figure, axes = ib.display.new_figure(1, 1)
        ...     axes[0, 0].plot([0, 1], color=theme.ink)
        ...     return figure
        >>> place = ib.display.save_picture(Path("line"), draw)
        >>> Path("line-dark.svg").exists()
        True
    """
    library = plotting()
    stem = Path(stem)
    with library.rc_context(LIGHT.settings()):
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
    """A figure and its axes (rows, columns); `height` is that of one row, in inches.

    Args:
        rows, columns: of axes.
        width: of the figure.
        height: of a row.
        options: of matplotlib's `subplots`.

    Returns:
        The figure, and its axes as an array (rows, columns).

    Example:
        >>> figure, axes = ib.display.new_figure(1, 2)
        >>> axes.shape
        (1, 2)
    """
    plotting()
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height * rows), layout="constrained")
    figure._repr_png_ = partial(_png, figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _png(figure: Any) -> bytes:
    """The figure as notebooks show it. Those of pyplot they know by themselves; pyplot would keep every figure in memory."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def plotting() -> Any:
    """Matplotlib; where it is not installed an error says how to."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "inbounds[plot]"') from error
    return matplotlib
