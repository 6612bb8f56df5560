"""One contestant on one problem, in a process of its own: a line of JSON per look, with its answer and the seconds since the process began.

python -m benchmarks.scoreboard.worker PROBLEM CONTESTANT OPTIONS SEED SECONDS TABLES
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.throughput.peak import forget_peak, peak_megabytes  # noqa: E402

__all__: list[str] = []


def main() -> None:
    """Look after look, until the contestant or the time is at its end."""
    problem, name, options, seed, seconds, tables = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer

    from benchmarks.scoreboard.contestants import CONTESTANTS
    from benchmarks.scoreboard.models import MODELS

    contestant = CONTESTANTS[name]
    run = getattr(
        importlib.import_module(f"benchmarks.scoreboard.contestants.{contestant.module}"), contestant.function
    )
    paused = time.perf_counter()
    from benchmarks.scoreboard.tables import table

    data = table(problem, Path(tables))
    forget_peak()
    before, began = peak_megabytes(), BEGAN + time.perf_counter() - paused
    for answer in run(MODELS[problem], data, int(seed), **json.loads(options)):
        now = time.perf_counter()
        line = {
            "seconds": now - began,
            "peak_mb": peak_megabytes() - before,
            "margins": plain(answer.margins),
            "stated": {kind: plain(errors) for kind, errors in (answer.stated or {}).items()},
        }
        if answer.certified is not None:
            line |= {"certified": answer.certified, **(answer.notes or {})}
        print(json.dumps(line), file=answers, flush=True)
        began += time.perf_counter() - now  # writing it down is not the contestant's
        if time.perf_counter() - began > float(seconds):
            break


def plain(named: Any) -> dict[str, Any]:
    """Arrays as lists."""
    return {name: np.asarray(x, np.float64).tolist() for name, x in named.items()}


if __name__ == "__main__":
    main()
