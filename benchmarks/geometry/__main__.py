"""What a metric is worth and what it costs: gradients per effective draw against the condition number, and the time of a step.

    python -m benchmarks.geometry --only conditions --out benchmarks/results/geometry.json
    python -m benchmarks.geometry --only steps --out benchmarks/results/geometry.json
    python -m benchmarks.geometry --pages

The first says how many gradients an effective draw takes in each metric with each gradient (`conditions.py`; half an hour on two cores), the
second how much longer a step is in a dense metric (`steps.py`; alone on the machine). `--pages` measures nothing: it draws the picture and
writes the tables of docs/results/geometry/README.md.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import jax

import inbounds as ib
from benchmarks.geometry import conditions, pages, steps

RESULTS = Path(__file__).parents[1] / "results" / "geometry.json"
PARTS = {"conditions": conditions.table, "steps": steps.table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="results; parts that are not measured now stay as they are"
    )
    parser.add_argument("--pages", action="store_true")
    arguments = parser.parse_args()
    if arguments.pages:
        pages.write(json.loads(arguments.out.read_text(encoding="utf-8")))
        return
    warnings.simplefilter("ignore", ib.UntrustworthyWarning)  # short runs
    for part in arguments.only:
        rows: list[dict[str, Any]] = []
        for row in PARTS[part]():
            print(row, flush=True)
            rows.append(row)
            found = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
            found |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__, part: rows}
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
