"""One contestant on one problem, in a process of its own: a line of JSON per look, with its answer and the seconds so far.

python -m benchmarks.scoreboard.worker PROBLEM CONTESTANT OPTIONS SEED SECONDS CLOCK TABLES

CLOCK is "wall", or "processor": the seconds of all cores together, for machines that others use meanwhile.
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

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
CLOCKS_BEGAN = {"wall": BEGAN, "processor": 0.0}


def main() -> None:
    """Look after look, until the contestant or the time is at its end."""
    problem, name, options, seed, seconds, clock, tables = sys.argv[1:]
    now_is = CLOCKS[clock]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer

    from benchmarks.scoreboard.contestants import CONTESTANTS
    from benchmarks.scoreboard.models import MODELS

    contestant = CONTESTANTS[name]
    run = getattr(
        importlib.import_module(f"benchmarks.scoreboard.contestants.{contestant.module}"), contestant.function
    )
    paused = now_is()
    from benchmarks.scoreboard.tables import table

    data = table(problem, Path(tables))
    forget_peak()
    before, began = peak_megabytes(), CLOCKS_BEGAN[clock] + now_is() - paused
    for answer in run(MODELS[problem], data, int(seed), **json.loads(options)):
        now = now_is()
        line = {
            "seconds": now - began,
            "peak_mb": peak_megabytes() - before,
            "margins": plain(answer.margins),
            "stated": {kind: plain(errors) for kind, errors in (answer.stated or {}).items()},
        }
        if answer.certified is not None:
            line |= {"certified": answer.certified, **(answer.notes or {})}
        print(json.dumps(line), file=answers, flush=True)
        began += now_is() - now  # writing it down is not the contestant's
        if now_is() - began > float(seconds):
            break


def plain(named: Any) -> dict[str, Any]:
    """Arrays as lists."""
    return {name: np.asarray(x, np.float64).tolist() for name, x in named.items()}


if __name__ == "__main__":
    main()
