"""Steps a second beside every alternative and beside the tightest loop that we can write by hand; start-up; memory. One run.

    python benchmarks/throughput [--set-up] [--rows gamma beta] [--contestants inbounds limit] [--repeats 7] [--out FILE] [--pages]

Every contestant samples the same statement (`rows.py`) by SGLD with the same step size and keeps the same draws, each in a process of its
own (`worker.py`), used as its documentation does (`contestants/`). Runs are interleaved; the table shows the median of the
repeats, compilation apart. Slow contestants run fewer steps. `--set-up` makes the environments of peers that cannot live in the
main one, `--pages` writes the tables of the stored results into README.md and docs/speed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import reference
import startup
from environments import pinned, set_up
from race import CONTESTANTS, race
from rows import ROWS
from tables import as_text, into_pages

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "throughput.json"


def machine() -> dict:
    packages = ("jax", "jaxlib", "numpy", "numpyro", "blackjax")
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages} | pinned(),
    }


def store(found: dict, path: Path | None) -> None:
    """After every row, so that an interrupted run can go on with the others."""
    if path is not None:
        found["rows"] = {name: found["rows"][name] for name in ROWS if name in found["rows"]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-up", action="store_true", help="make the environments of peers that need one")
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--race-only", action="store_true", help="leave out NUTS and start-up")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON; rows in it that are not run again stay")
    parser.add_argument(
        "--pages",
        action="store_true",
        help=f"write {RESULTS.name} into README.md and docs/speed.md, and measure nothing",
    )
    options = parser.parse_args()
    if options.pages:
        return into_pages(ROOT, json.loads(RESULTS.read_text()))
    if options.set_up:
        set_up(sorted({CONTESTANTS[name].environment for name in options.contestants} - {None}))
    found: dict = {"machine": machine(), "rows": {}}
    if options.out and options.out.exists():
        stored = json.loads(options.out.read_text())
        if stored["machine"] == found["machine"]:  # rows that are not run again stay
            found = stored
    for name in options.rows:
        found["rows"][name] = race(ROWS[name], options.contestants, options.repeats)
        store(found, options.out)
    if not options.race_only:
        found["nuts"] = found.get("nuts", {}) | reference.measure(options.rows)
        found["startup"] = startup.measure()
        store(found, options.out)
    print(as_text(found))


if __name__ == "__main__":
    sys.exit(main())
