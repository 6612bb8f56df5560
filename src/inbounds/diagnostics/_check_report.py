"""What the doctor hands back: findings, the numbers to sample with, and a verdict in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from inbounds.display import escape, html_table
from inbounds.trees import PyTree

__all__ = ["Finding", "Report"]

MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


@dataclass(frozen=True)
class Finding:
    """One line of the checklist.

    Args:
        topic: what was looked at: "transform", "round trip", "interior", "lipschitz", "data", "center", "edges", "boundary", "precision",
            "unbiased", "noise", "conditioning" or "step size".
        variable: the name of the variable, or "" for the whole posterior.
        status: "ok", "warning" or "problem".
        message: what was found.
        remedy: what to do about it; "" where nothing is to be done.
        values: the numbers behind it.
    """

    topic: str
    variable: str
    status: str
    message: str
    remedy: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        subject = f"{self.variable}: " if self.variable else ""
        return f"{MARKS[self.status]} {subject}{self.message}" + (f"\n    → {self.remedy}" if self.remedy else "")


@dataclass
class Report:
    """What `check` found. `str()` is the verdict and what is not a tick, notebooks show a table, `to_dict()` is plain data.

    Attributes:
        findings: the lines of the checklist.
        kernel: the name of the kernel for which the step sizes are.
        step_size: the middle of the suggested range; None where no step sizes can be suggested.
        step_sizes: the suggested range (low, high) for the kernel as it is, with its own preconditioner or metric; None as above.
        preconditioner: scales (a tree like phi) that even out the curvatures; None in more than 2,000 dimensions, or without step sizes.
        preconditioned_step_size: what to use with it.
        center: theta at the mode: a start, and a centre for `ib.gradients.control_variate`. None where no mode was found: a finding says
            why.
        batch_size: rows of the minibatches that were looked at, which are those that `ib.sample` takes; None without data.
        everything: whether `str()` and notebooks show the ticks too.
    """

    findings: list[Finding]
    kernel: str
    step_size: float | None
    step_sizes: tuple[float, float] | None
    preconditioner: PyTree
    preconditioned_step_size: float | None
    center: PyTree
    batch_size: int | None
    everything: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is a problem; warnings may be left."""
        return not self._count("problem")

    @property
    def verdict(self) -> str:
        """One line: whether to go on, and with which steps."""
        counts = [
            f"{number} {what}{'s' * (number > 1)}"
            for number, what in ((self._count("problem"), "problem"), (self._count("warning"), "warning"))
            if number
        ]
        mark = MARKS["problem" if not self.ok else "warning" if counts else "ok"]
        if not self.ok:
            return f"{mark} Not ready for {self.kernel}: {', '.join(counts)}."
        steps = "no step size is suggested" if self.step_sizes is None else f"step sizes {_range(self.step_sizes)}"
        rows = "" if self.batch_size is None else f", {self.batch_size:,} rows per step"
        return f"{mark} Ready for {self.kernel}: {steps}{rows}{''.join(f'; {count}' for count in counts)}."

    def of(self, topic: str, variable: str | None = None) -> list[Finding]:
        """The findings of a topic, or those of a topic for one variable.

        Args:
            topic: as in the `topic` of a finding.
            variable: a name as in the report; None: all variables.

        Returns:
            The findings in the order of the report.
        """
        return [f for f in self.findings if f.topic == topic and variable in (None, f.variable)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it: None for numbers that are not finite."""
        plain: dict[str, Any] = _plain(
            {
                "ok": self.ok,
                "verdict": self.verdict,
                "kernel": self.kernel,
                "step_size": self.step_size,
                "step_sizes": self.step_sizes,
                "preconditioned_step_size": self.preconditioned_step_size,
                "batch_size": self.batch_size,
                "findings": [vars(finding) for finding in self.findings],
            }
        )
        return plain

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(str(finding) for finding in self._shown()), *self._folded()])

    def __repr__(self) -> str:
        marks = " ".join(f"{self._count(status)}{mark}" for status, mark in MARKS.items())
        steps = "no step sizes" if self.step_sizes is None else f"step sizes {_range(self.step_sizes)}"
        return f"Report({marks}; {steps} for {self.kernel})"

    def _repr_html_(self) -> str:
        cells = (
            (MARKS[f.status], f.variable, f.topic, f.message + (f" → {f.remedy}" if f.remedy else ""))
            for f in self._shown()
        )
        table = html_table(("", "variable", "check", "finding"), cells)
        return f"<p>{escape(self.verdict)}</p>{table}" + "".join(f"<p>{escape(line)}</p>" for line in self._folded())

    def _count(self, status: str) -> int:
        return sum(finding.status == status for finding in self.findings)

    def _shown(self) -> list[Finding]:
        """All but the ticks."""
        return [finding for finding in self.findings if self.everything or finding.status != "ok"]

    def _folded(self) -> list[str]:
        left = len(self.findings) - len(self._shown())
        return [f'({left} ticks are not shown: show="all" shows them.)'] if left else []


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2g} to {ends[1]:.2g}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
