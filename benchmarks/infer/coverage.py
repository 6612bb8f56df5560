"""How often twice the stated total error of `ib.infer` covers the truth, and how much larger it is than it need be.

    python -m benchmarks.infer.coverage --out coverage.jsonl [--replicates 100] [--kinds normal weibull] [--method minibatch]

The twenty kinds of problem are in `kinds.py`, with fresh data for every replicate. `--table` prints what a file holds without running
anything. A run that was cut off goes on where it was. Replicates of a kind keep its compiled programs where its data can be replaced.
To reach: at least 93% of means and of sds, and a median stated error of at most 1.5 times the actual root mean square error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import inbounds as ib
from benchmarks.infer.judge import KINDS_OF_ESTIMATE, Lines, run, table
from benchmarks.infer.kinds import KINDS, Kind

__all__ = ["judged", "replicates", "summary"]

COVERED, PADDED = 0.93, 1.5  # to reach


def replicates(
    kind: Kind, seeds: Iterable[int], lines: Lines, infer: Callable[..., Any] | None = None, **options: Any
) -> None:
    """Run the seeds of a kind that the file does not have yet, on one posterior whose data are replaced where that is possible."""
    kept: ib.Posterior | None = None
    for seed in seeds:
        if lines.has(kind=kind.name, seed=seed):
            continue
        posterior, truth = kind.problem(seed)
        if kept is not None and type(posterior) is ib.Posterior:
            kept.data = posterior.data
        else:
            kept = posterior
        lines.add({"kind": kind.name, "seed": seed} | run(kept, truth, infer, seed=seed, **options))


def judged(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Coverage of twice the stated error, and the median stated error over the actual one, of means, sds and quantiles.

    The second is of certified runs: one that was refused may be off by any number, and says so.
    """
    lines = list(lines)
    certified = [line for line in lines if line["ok"]]
    found: dict[str, Any] = {"runs": len(lines), "certified": len(certified)}
    for kind in KINDS_OF_ESTIMATE:
        off, stated = _of(lines, kind)
        found[kind] = float(np.mean(np.abs(off) <= 2 * stated))  # not a number covers nothing
        off, stated = _of(certified, kind)
        found[f"{kind}_ratio"] = float(np.median(stated) / np.sqrt(np.mean(off**2))) if certified else None
    found["seconds"] = float(np.median([line["seconds"] for line in lines]))
    return found


def _of(lines: list[dict[str, Any]], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(off, stated) of all the numbers."""
    none: list[list[float]] = [[]]
    return tuple(np.concatenate([line[what][kind] for line in lines] or none) for what in ("off", "stated"))  # type: ignore[return-value]


def summary(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per kind, and one of all together."""
    lines = list(lines)
    by_kind = {name: [line for line in lines if line["kind"] == name] for name in KINDS}
    rows = [{"kind": name} | judged(own) for name, own in by_kind.items() if own]
    return [*rows, {"kind": "all"} | judged(lines)] if rows else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="lines of JSON; those that it has are not run again")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--method", choices=("auto", "minibatch", "full"), default="auto")
    parser.add_argument("--error", type=float, help="the tolerance; the default is that of `ib.infer`")
    parser.add_argument("--json", type=Path, help="where to write the table as JSON")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    arguments = parser.parse_args()
    lines = Lines(arguments.out)
    if not arguments.table:
        options = {"method": arguments.method} | ({} if arguments.error is None else {"error": arguments.error})
        for name in arguments.kinds:
            replicates(KINDS[name], range(arguments.replicates), lines, **options)
            print(name, judged(line for line in lines if line["kind"] == name), flush=True)
    rows = summary(lines)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    head = list(rows[0]) if rows else []
    print(table(head, [list(row.values()) for row in rows]))


if __name__ == "__main__":
    main()
