"""The scoreboard: total error against time, on public tall data, beside what people would use instead.

    pip install -e . -r benchmarks/scoreboard/requirements.txt
    python -m benchmarks.scoreboard references [--only customers] [--seconds 600] [--at-once 2]
    python -m benchmarks.scoreboard race [--only customers] [--contestants infer nutpie] [--seeds 5] [--seconds 600]
    python -m benchmarks.scoreboard page

The rules are in `rules.md`, written before the first race. A race that was cut off goes on where it was: each run is a line of its file.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.infer.judge import Lines
from benchmarks.scoreboard import references as made
from benchmarks.scoreboard.contestants import CONTESTANTS
from benchmarks.scoreboard.models import MODELS
from benchmarks.scoreboard.page import page
from benchmarks.scoreboard.races import ROOT, ended, jobs, race_all

TABLES = ROOT / "out" / "scoreboard" / "tables"
RACES = ROOT / "out" / "scoreboard" / "races.jsonl"


def make_references(problems: list[str], file: Path, stored: dict[str, Any], arguments: argparse.Namespace) -> None:
    """A process each, so many side by side; the file is written as each of them ends."""
    seconds = arguments.seconds or 600

    def run(problem: str) -> tuple[str, str, str]:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scoreboard.references"]
        command += [problem, str(seconds), str(arguments.tables), str(arguments.every)]
        command += [str(arguments.drawn)] if arguments.drawn else []
        out, problems, _ = ended(command, np.inf)
        return problem, out, problems

    with ThreadPoolExecutor(arguments.at_once) as pool:
        for done in as_completed([pool.submit(run, problem) for problem in problems]):
            problem, out, problems_of = done.result()
            if not out:
                print(f"{problem}: {problems_of.strip()[-300:]}", flush=True)
                continue
            stored[problem] = json.loads(out.splitlines()[-1])
            file.write_text(json.dumps(stored) + "\n", encoding="utf-8")
            print(problem, {name: x for name, x in stored[problem].items() if name != "margins"}, flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("references", "race", "page"))
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--rungs", type=int, help="of each contestant, from its first; all where left out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="of a run, and of NUTS of a reference; 600 where left out")
    parser.add_argument("--drawn", type=Path, help="of references: what NUTS said elsewhere")
    parser.add_argument("--at-once", type=int, default=1, help="side by side; races on two cores each")
    parser.add_argument("--over", type=float, default=np.inf, help="seconds after which no race goes on")
    parser.add_argument("--warm", action="store_true", help="races with JAX's compilation cache filled")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="that seconds of races are of")
    parser.add_argument("--platform", default="cpu", help="of JAX, in races")
    parser.add_argument("--every", type=int, default=1, help="of references: every so manyth row alone, to try it")
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "references":
        file = arguments.out or made.FILE
        stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        missing = [problem for problem in arguments.only if not made.converged(stored.get(problem, {}))]
        make_references(missing, file, stored, arguments)
        return
    if arguments.what == "race":
        lines = Lines(arguments.out or RACES)
        todo = jobs(arguments.only, arguments.contestants, range(arguments.seeds), arguments.rungs, arguments.warm)
        for line in race_all(
            todo,
            lines,
            arguments.tables,
            arguments.seconds or 600,
            arguments.at_once,
            arguments.over,
            arguments.platform,
            arguments.clock,
        ):
            print(_said(line), flush=True)
    else:
        page(arguments.out or RACES)


def _said(line: dict[str, Any]) -> str:
    seconds = ", ".join(f"{look['seconds']:.1f}" for look in line["looks"][-3:])
    said = f"{line['problem']}, {line['contestant']} {line['options'] or ''}: {len(line['looks'])} looks, the last after {seconds} s"
    return said + (f" ({line['failed']})" if "failed" in line else "")


if __name__ == "__main__":
    main()
