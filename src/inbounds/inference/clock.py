"""How much of its time an inference has used, and on what."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from inbounds.deadline import give_up_at

__all__ = ["Clock"]


class Clock:
    """Seconds since the start, and those of each part.

    Args:
        seconds: that there are; None: as many as it takes.
    """

    def __init__(self, seconds: float | None):
        self.began = time.perf_counter()
        self.seconds = math.inf if seconds is None else float(seconds)
        self.parts: dict[str, float] = {}

    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def share(self) -> float:
        """The part of the time that is over; 0 without a limit."""
        return self.elapsed() / self.seconds

    @contextmanager
    def until(self, share: float) -> Iterator[None]:
        """What is done inside raises `OutOfTimeError` when this share of the time is over."""
        with give_up_at(self.began + share * self.seconds):
            yield

    def is_over(self, left: float = 0.0) -> bool:
        """Whether no more than these seconds are left."""
        return self.elapsed() + left >= self.seconds

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is done inside counts as `name`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - began
