"""One contestant on one problem, in a process of its own: a line of JSON per look, with the seconds since the process began.

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

from benchmarks.throughput.worker import forget_peak, peak_megabytes  # noqa: E402

__all__: list[str] = []

SETTLED = 3  # looks in a row within the smallest tolerance, after which a run has nothing more to show


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
    from benchmarks.scoreboard.references import references
    from benchmarks.scoreboard.score import TOLERANCES, errors
    from benchmarks.scoreboard.tables import table

    data, truth = table(problem, Path(tables)), references()[problem]
    forget_peak()
    before, began = peak_megabytes(), BEGAN + time.perf_counter() - paused
    settled, looks = 0, run(MODELS[problem], data, int(seed), **json.loads(options))
    for answer in looks:
        now = time.perf_counter()
        line = {
            "seconds": now - began,
            **errors(answer.margins, truth, answer.stated),
            "peak_mb": peak_megabytes() - before,
        }
        if answer.certified is not None:
            line |= {"certified": answer.certified, **(answer.notes or {})}
        print(json.dumps(line), file=answers, flush=True)
        settled = settled + 1 if line["total"] <= min(TOLERANCES) else 0
        if settled == SETTLED or now - began > float(seconds):
            break
        began += time.perf_counter() - now  # scoring is not the contestant's


if __name__ == "__main__":
    main()
