"""Two ways to the same, side by side: microseconds of each and their ratio, model by model, as a table and in a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.timing import interleaved

Row = dict[str, Any]


def row(model: str, runs: Mapping[str, Callable[[], float | None]], steps: int, repeats: int) -> Row:
    """Medians of microseconds per step, and the median of the ratios of the first way to the second."""
    seconds = interleaved(runs, repeats)
    first, second = seconds.values()
    micro = {way: 1e6 * float(np.median(each)) / steps for way, each in seconds.items()}
    return {"model": model, **micro, "ratio": float(np.median(first / second))}


def main(
    description: str,
    measure: Callable[[int, int], list[Row]],
    steps: int,
    repeats: int,
    about: Mapping[str, Any] | None = None,
) -> None:
    """The command line.

    Args:
        description: what the help says.
        measure: from numbers of steps and of repeats to the rows.
        steps, repeats: the numbers where none are given.
        about: what else is written into the file.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", help="a JSON file")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--repeats", type=int, default=repeats)
    options = parser.parse_args()
    found = measure(options.steps, options.repeats)
    _, *columns, _ = found[0]
    print(f"{'microseconds':34}" + "".join(f"{column:>12}" for column in columns) + f"{'ratio':>8}")
    for each in found:
        numbers = "".join(f"{each[column]:12.1f}" for column in columns)
        print(f"{each['model']:34}{numbers}{each['ratio']:8.2f}")
    if options.out:
        with open(options.out, "w") as file:
            file.write(json.dumps({**(about or {}), "models": found}, indent=1) + "\n")
