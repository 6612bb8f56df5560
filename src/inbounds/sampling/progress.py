"""Progress of a long run: a bar on a terminal and in notebooks, silence elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from inbounds.display import tqdm

__all__ = ["ProgressBar"]

PATIENCE = 0.5  # seconds that a run takes before it has a bar


class ProgressBar:
    """A bar with steps per second and the time left.

    Args:
        total, done: steps, or what `unit` says; None where nobody knows the total.
        show: whether it is wanted; in a pipe or a file there is none all the same.
        description: in front of it.
        at_once: or only after half a second, since a run that is over by then needs none. Before the first run of a program
            there is its compilation to wait for.
        unit: what is counted.
    """

    def __init__(
        self, total: int | None, done: int, show: bool, description: str, at_once: bool = True, unit: str = "step"
    ):
        in_notebook = "ipykernel" in sys.modules
        self.visible = show and (in_notebook or sys.stderr.isatty())
        self.options = {"total": total, "desc": description, "unit": unit, "unit_scale": True, "leave": False}
        self.done = done
        self.began = time.perf_counter()
        self.bar: Any = tqdm(initial=done, **self.options) if self.visible and at_once else None

    def update(self, steps: int) -> None:
        self.done += steps
        if self.bar is not None:
            self.bar.update(steps)
        elif self.visible and time.perf_counter() - self.began > PATIENCE:
            self.bar = tqdm(initial=self.done, **self.options)

    def say(self, words: str) -> None:
        """Show some words behind the bar."""
        if self.bar is not None and words:
            self.bar.set_postfix_str(words)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()
