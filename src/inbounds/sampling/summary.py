"""The table of a run, and what is to be said of it."""

from __future__ import annotations

import importlib
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

QUANTILES = (0.05, 0.5, 0.95)
BLOCK_NUMBERS = 2**22  # of draws that are copied and sorted together
WIDTH = 110  # characters in a line of a note


@dataclass
class Summary:
    """A table: one row a number of theta. `str()` prints it; `rows` are dicts; notebooks show it as HTML."""

    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0]) if self.rows else ["variable"]

    def __getitem__(self, variable: str) -> dict[str, Any]:
        for row in self.rows:
            if row["variable"] == variable:
                return row
        raise KeyError(f"no {variable!r}; the variables are {', '.join(row['variable'] for row in self.rows[:10])}")

    def to_pandas(self) -> Any:
        """As a pandas DataFrame, indexed by variable."""
        return importlib.import_module("pandas").DataFrame(self.rows, columns=self.columns).set_index("variable")

    def __str__(self) -> str:
        cells = [self.columns] + [[_cell(value) for value in row.values()] for row in self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in cells
        ]
        return "\n".join(lines + [_wrapped(note) for note in self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{c}</th>" for c in self.columns)
        body = "".join("<tr>" + "".join(f"<td>{_cell(v)}</td>" for v in row.values()) + "</tr>" for row in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><tr>{head}</tr>{body}</table>{notes}"


def summarise(draws: Draws) -> Summary:
    """The table of `Draws.summary`."""
    if not draws.num_draws:
        return Summary([], draws.warnings())
    variables = {name: np.asarray(x) for name, x in draws.variables().items()}
    notes = draws.warnings()
    rows = [row for name, x in variables.items() for row in _rows(draws, name, x)]
    return Summary(rows, notes)


def _rows(draws: Draws, name: str, x: np.ndarray) -> list[dict[str, Any]]:
    """One row per number of a variable; every column is computed for all of them at once."""
    flat = x.reshape(x.shape[0] * x.shape[1], -1)
    found = draws.convergence_of(name, x)
    at_once = max(1, BLOCK_NUMBERS // len(flat))
    parts = [_moments(flat[:, i : i + at_once]) for i in range(0, flat.shape[1], at_once)]
    columns = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]} if parts else {}
    columns |= {"ess": found.ess, "ess_tail": found.ess_tail, "r_hat": found.r_hat}
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [
        {"variable": label} | dict(zip(columns, row, strict=True))
        for label, row in zip(labels(name, x.shape[2:]), values, strict=True)
    ]


def _moments(draws: np.ndarray) -> dict[str, np.ndarray]:
    draws = np.asarray(draws, np.float64)
    sd = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(draws.shape[1], np.nan)
    quantiles = np.quantile(draws, QUANTILES, axis=0)
    return {"mean": draws.mean(axis=0), "sd": sd} | {f"{q:.0%}": x for q, x in zip(QUANTILES, quantiles, strict=True)}


def labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """What the numbers of a variable are called: `rate[0, 1]`."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]


def _wrapped(note: str) -> str:
    return textwrap.fill(
        f"note: {note}", WIDTH, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else ("nan" if np.isnan(value) else f"{value:.4g}")


def escape(text: str) -> str:
    """For HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
