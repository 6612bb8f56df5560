"""What a page consists of, whatever it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Table:
    """Rows of cells under column names; a cell is text or a number.

    Args:
        columns: their names.
        rows: as many cells each.
        best: rows to set in bold, by number.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    best: Sequence[int] = ()


@dataclass
class Claim:
    """A claim of the paper beside what the numbers say.

    Args:
        claim: in the paper's words, or close to them.
        found: a sentence computed from the results.
        holds: whether the results bear it out; None where they do not say.
    """

    claim: str
    found: str
    holds: bool | None


@dataclass
class Section:
    """A figure with one sentence that says what to see, and a table under it.

    Args:
        title: the heading.
        see: one sentence: what the figure shows.
        figure: path of the picture without its ending; `.svg`, `-dark.svg` and `.png` lie there. None: no picture.
        table: under the figure.
        notes: short remarks under the table.
    """

    title: str
    see: str
    figure: Path | None = None
    table: Table | None = None
    notes: Sequence[str] = ()


@dataclass
class Report:
    """The pages of one experiment.

    Args:
        title: the heading.
        lead: a short paragraph on what was done.
        sections: the figures.
        claims: the paper's, beside the findings.
        facts: how and on what the numbers were made, in pairs.
    """

    title: str
    lead: str
    sections: list[Section]
    claims: list[Claim] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)


def cell(value: Any) -> str:
    """A cell as text: four significant digits, a dash for what is missing."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def verdict(holds: bool | None) -> str:
    return {True: "holds", False: "does not hold", None: "open"}[holds]
