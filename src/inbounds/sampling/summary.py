"""The table of a run, and what is to be said of it."""

from __future__ import annotations

import importlib
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from inbounds.display import escape, html_table

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["Summary", "label", "labels", "summarise"]

QUANTILES = (0.05, 0.5, 0.95)
BLOCK_NUMBERS = 2**22  # of draws that are copied and sorted together
WIDTH = 110  # characters in a line of a note


@dataclass
class Summary:
    """A table: one row per number. `str()` prints it; `rows` are dicts; notebooks show it as HTML.

    Attributes:
        rows: one dict per number, with its name under "variable". Where the draws have a certificate, mean, sd and quantiles are its own:
            the bias of the step size has been taken from them. "error" is then the total error of the mean, Monte Carlo and bias together,
            in posterior sds.
        notes: what `Draws.warnings` says.
        verdict: what the certificate says, one sentence or more; empty without one.
    """

    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    verdict: str = ""

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
        verdict = [_wrapped(line) for line in self.verdict.splitlines()]
        return "\n".join(lines + verdict + [_wrapped(f"note: {note}") for note in self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = html_table(self.columns, ([_cell(value) for value in row.values()] for row in self.rows))
        return table + "".join(f"<p>{escape(line)}</p>" for line in [*self.verdict.splitlines(), *self.notes])


def summarise(draws: Draws) -> Summary:
    """The table of `Draws.summary`."""
    verdict = _verdict(draws.certificate)
    if not draws.num_draws:
        return Summary([], draws.warnings(), verdict)
    variables = {name: np.asarray(x) for name, x in draws.variables().items()}
    notes = draws.warnings()
    rows = [row for name, x in variables.items() for row in _rows(draws, name, x)]
    return Summary(rows, notes, verdict)


def _rows(draws: Draws, name: str, x: np.ndarray) -> list[dict[str, Any]]:
    """One row per number of a variable; every column is computed for all of them at once."""
    flat = x.reshape(x.shape[0] * x.shape[1], -1)
    found = draws.convergence_of(name, x)
    at_once = max(1, BLOCK_NUMBERS // len(flat))
    parts = [_moments(flat[:, i : i + at_once]) for i in range(0, flat.shape[1], at_once)]
    columns = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]} if parts else {}
    if draws.certificate is not None:
        columns |= _certified(draws.certificate, name, columns)
        columns["error"] = _errors(draws.certificate.mean_error, name, flat.shape[1])
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


def _certified(certificate: Any, name: str, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a certificate says in the place of those columns, where it is known: its errors are those of its own estimates."""
    if name not in certificate.mean:
        return {}
    quantiles = np.reshape(certificate.quantiles[name], (-1, len(QUANTILES)))
    found = {"mean": certificate.mean[name], "sd": certificate.sd[name]}
    found |= {f"{q:.0%}": quantiles[:, i] for i, q in enumerate(QUANTILES)}
    return {
        column: np.where(np.isfinite(np.ravel(values)), np.ravel(values), columns[column])
        for column, values in found.items()
    }


def _errors(by_name: Any, name: str, numbers: int) -> np.ndarray:
    """The errors of a variable's numbers, in the order of `labels`; NaN where the certificate does not have them."""
    errors = by_name.get(name)
    if errors is None:
        return np.full(numbers, np.nan)
    return np.broadcast_to(np.asarray(errors, np.float64).ravel(), (numbers,))


def _verdict(certificate: Any) -> str:
    """What a certificate says, line by line."""
    if certificate is None:
        return ""
    worst = [
        f"{error} of the {what} of {label}"
        for what, by_name in (("mean", certificate.mean_error), ("sd", certificate.sd_error))
        for label, error in _largest(by_name)
    ]
    largest = f" The largest errors are {' and '.join(worst)}." if worst else ""
    meaning = "`error` is the total error of the mean, Monte Carlo and bias together, in posterior sds."
    head = "certified." if certificate.ok else "NOT CERTIFIED."
    return "\n".join([f"{head} {meaning}{largest}", *(f"- {reason}" for reason in certificate.reasons)])


def _largest(by_name: Any) -> list[tuple[str, str]]:
    """The number with the largest error, and that error; one that is not known is larger than any. Nothing where there are none."""
    found = []
    for name, errors in by_name.items():
        known = np.nan_to_num(np.asarray(errors, np.float64), nan=np.inf)
        if known.size:
            place = np.unravel_index(np.argmax(known), known.shape)
            found.append((known[place], f"{name}[{', '.join(map(str, place))}]" if place else name))
    if not found:
        return []
    error, worst = max(found, key=lambda one: one[0])
    return [(worst, f"{error:.2g}" if np.isfinite(error) else "not known")]


def labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """What the numbers of a variable are called: `rate[0, 1]`."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]


def label(name: str, shape: tuple[int, ...], place: int) -> str:
    """What one of them is called, counted as in `labels`."""
    return f"{name}[{', '.join(map(str, np.unravel_index(place, shape)))}]" if shape else name


def _wrapped(line: str) -> str:
    indent = " " * (6 if line.startswith("note: ") else 2)
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else ("nan" if np.isnan(value) else f"{value:.4g}")
