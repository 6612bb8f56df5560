"""A moment at which work that goes over the data piece by piece gives up, whoever asked for it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["OutOfTimeError", "give_up_at", "go_on"]

_moment: ContextVar[float] = ContextVar("moment", default=math.inf)  # of `time.perf_counter`


class OutOfTimeError(Exception):
    """The moment has come, and the work is not done."""


@contextmanager
def give_up_at(moment: float) -> Iterator[None]:
    """Work inside raises `OutOfTimeError` at its first piece after this moment of `time.perf_counter`, or after an earlier one outside."""
    before = _moment.set(min(moment, _moment.get()))
    try:
        yield
    finally:
        _moment.reset(before)


def go_on() -> None:
    """Raise `OutOfTimeError` where the moment has come: to be asked before each piece."""
    if time.perf_counter() >= _moment.get():
        raise OutOfTimeError
