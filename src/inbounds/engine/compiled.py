"""What has been compiled for a posterior. It belongs to the posterior, and is gone when the posterior is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax

from inbounds.engine.platform import here

__all__ = ["Compiled"]

LARGE = 2**22  # bytes of data from which on it is worth a tenth of a second to look for posteriors that are gone

LOOKS = 2


class Compiled:
    """The programs of one posterior, and what their runs have found out.

    Attributes:
        paces: how many blocks a chunk had at the end of a run, by program.
        checked: shapes with which the model has been looked at.
        likelihood: its sums over all the data (`exact.Likelihood`).
        curvature: that of the likelihood at the last point where it was asked for (`exact.Curvature`).
        found: modes and reports that were made at one time, by all that they depend on.
        data_bytes: of the data of the posterior, which are held as long as the programs are.
        own_kernels: whether GPU kernels of our own are tried: until one cannot be compiled.
    """

    def __init__(self) -> None:
        self._programs: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self.paces: dict[Hashable, int] = {}
        self.checked: set[Hashable] = set()
        self.own_kernels = True
        self.likelihood: Any = None
        self.curvature: Any = None
        self.found: dict[Hashable, Any] = {}
        self.data_bytes = 0

    def of(self, function: Callable[..., Any], *what: Any, **options: Any) -> Callable[..., Any]:
        """`function(*what, ...)`, compiled as a function of its further arguments; the one of before where `what` is equal.

        Args:
            function: at the top level of a module.
            what: its first arguments, which are part of the program and can be hashed.
            options: of XLA's compiler.
        """
        key = (function, what, tuple(sorted(options.items())))
        if not self._programs:
            _drop_the_dead()
            _living.add(self)
        if key not in self._programs:
            self._programs[key] = jax.jit(partial(function, *what), compiler_options=options or None)
        return self._programs[key]

    def of_few_calls(self, function: Callable[..., Any], *what: Any) -> Callable[..., Any]:
        """The same for what has the size of theta and is called a few times: it takes longer to compile than to run."""
        return self.of(function, *what, **here().few_calls)

    def programs(self, function: Callable[..., Any]) -> list[Any]:
        """Those that were made of `function`."""
        return [program for key, program in self._programs.items() if key[0] is function]

    def __deepcopy__(self, memo: Any) -> Compiled:
        return Compiled()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Compiled, ())


_living: weakref.WeakSet[Compiled] = weakref.WeakSet()
_survived: weakref.WeakKeyDictionary[Compiled, int] = weakref.WeakKeyDictionary()  # how many looks


def _drop_the_dead() -> None:
    """Let go of posteriors that nobody can reach any more, before another one takes memory.

    A posterior and its programs know each other, so that only Python's collector finds that they are gone. That counts objects, and not
    bytes: without this it would let many large posteriors wait. What has survived two looks is not a reason for the next: one may
    have seen nothing, because another thread was collecting.
    """
    if any(other.data_bytes > LARGE and _survived.get(other, 0) < LOOKS for other in _living):
        gc.collect()
        for other in _living:
            _survived[other] = _survived.get(other, 0) + 1
