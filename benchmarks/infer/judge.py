"""A run of `ib.infer` beside the truth, as one line of JSON, and what all benchmarks of this folder share: files that can be resumed.

The contract that is relied on: `certificate.ok`, `.reasons`, the estimates `.mean`, `.sd`, `.quantiles` and their total errors
`.mean_error`, `.sd_error`, `.quantile_error` in posterior sds, each by the name of the variable and shaped like it, quantiles with a
last axis of 5, 50 and 95%.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import inbounds as ib
from benchmarks.infer.truth import Truth

__all__ = ["KINDS_OF_ESTIMATE", "Lines", "errors", "run", "table"]

KINDS_OF_ESTIMATE = ("mean", "sd", "quantile")


def run(posterior: Any, truth: Truth | None, infer: Callable[..., Any] | None = None, **options: Any) -> dict[str, Any]:
    """Infer, and say how far off it is: what goes into a line.

    Args:
        posterior: what is given to `infer`; a callable without arguments is called for it, and its time counts.
        truth: what is true; None where nothing is (an improper posterior).
        infer: `ib.infer`, or what stands for it.
        options: of `infer`.
    """
    began = time.perf_counter()
    draws = (infer or ib.infer)(posterior() if callable(posterior) else posterior, progress=False, **options)
    seconds = time.perf_counter() - began
    certificate = draws.certificate
    line: dict[str, Any] = {
        "ok": bool(certificate.ok),
        "reasons": [str(reason) for reason in certificate.reasons],
        "seconds": seconds,
        "choices": str(certificate.choices),
    }
    if truth is not None:
        line |= errors(certificate, truth)
    return line


def errors(certificate: Any, truth: Truth) -> dict[str, dict[str, list[float]]]:
    """What each estimate is off by and what is stated, in true posterior sds, every number of every variable in a row."""
    off: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS_OF_ESTIMATE}
    stated: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS_OF_ESTIMATE}
    for name, sd in truth.sd.items():
        free = sd > 0  # a correlation matrix has a diagonal
        own_sd = np.asarray(certificate.sd[name], float)
        for kind, true, estimates, their_errors in (
            ("mean", truth.mean, certificate.mean, certificate.mean_error),
            ("sd", truth.sd, certificate.sd, certificate.sd_error),
            ("quantile", truth.quantiles, certificate.quantiles, certificate.quantile_error),
        ):
            estimate, error = np.asarray(estimates[name], float), np.asarray(their_errors[name], float)
            if estimate.shape != true[name].shape or error.shape != estimate.shape:
                raise ValueError(
                    f"The {kind} of {name!r} has shape {estimate.shape} and its error {error.shape}; the truth has "
                    f"{true[name].shape}."
                )
            unit, own = (sd[..., None], own_sd[..., None]) if kind == "quantile" else (sd, own_sd)
            with np.errstate(all="ignore"):
                off[kind].append(((estimate - true[name]) / unit)[free].ravel())
                stated[kind].append((error * own / unit)[free].ravel())
    return {
        what: {kind: np.concatenate(parts).tolist() for kind, parts in found.items()}
        for what, found in (("off", off), ("stated", stated))
    }


class Lines:
    """Results, one line of JSON each, appended as they are made: a run that was cut off goes on where it was.

    Args:
        path: of the file; None keeps nothing.
    """

    def __init__(self, path: Path | None = None):
        self.path = path
        self.lines: list[dict[str, Any]] = []
        if path is not None and path.exists():
            self.lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def has(self, **entries: Any) -> bool:
        """Whether there is a line with these entries."""
        return any(all(line.get(name) == value for name, value in entries.items()) for line in self.lines)

    def add(self, line: dict[str, Any]) -> dict[str, Any]:
        """Keep a line."""
        self.lines.append(line)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return line

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.lines)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns of text: the first to the left, the others to the right."""
    cells = [[_cell(value) for value in row] for row in (head, *rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(head))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if j == 0 else text.rjust(width)
            for j, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value)
