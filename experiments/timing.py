"""How long things take beside each other: what the experiments and the benchmarks measure seconds with."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np

__all__ = ["interleaved"]

K = TypeVar("K", bound=Hashable)


def interleaved(
    runs: Mapping[K, Callable[[], float | None]], rounds: int, say: Callable[[int], None] = lambda index: None
) -> dict[K, np.ndarray]:
    """Seconds of every run, (rounds,). The runs take turns, so that whatever else the machine does hits them all alike.

    Args:
        runs: by name. A run that measures itself returns its seconds; of one that returns None, the call is measured, so
            that it must wait for its result. Each runs once more before the first round: that compiles.
        rounds: how often.
        say: called with the number of every finished round, from 0.
    """
    for run in runs.values():
        run()
    seconds: dict[K, list[float]] = {name: [] for name in runs}
    for index in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            own = run()
            seconds[name].append(time.perf_counter() - began if own is None else own)
        say(index)
    return {name: np.asarray(each) for name, each in seconds.items()}
