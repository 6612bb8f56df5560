"""Reference means, sds and quantiles of the thirty models by NumPyro's NUTS in double precision: what `models` compares with.

    python -m benchmarks.infer.references [--only ordinal] [--draws 1500] [--table]

Writes benchmarks/results/infer_references.json after each model and goes on where it was. Every entry has the smallest bulk ESS and the
largest R-hat of its numbers: references above 1.02 are not to be used.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from arviz_stats import rhat

from benchmarks.infer.judge import table
from benchmarks.infer.model_list import MODELS
from benchmarks.infer.reference import nuts, truth_of_draws
from benchmarks.infer.truth import Truth

__all__ = ["FILE", "references"]

FILE = Path(__file__).parents[1] / "results" / "infer_references.json"
DIGITS = 7
# Chains that start elsewhere stay in modes without mass, where two components are the same.
STARTS: dict[str, Any] = {
    "mixture": {"weights": np.ones(3) / 3, "means": np.array([-2.0, 0.0, 2.0]), "sds": np.ones(3)},
}
# Long ridges, and mass at both ends of an interval: more draws, or a dense matrix of masses.
MORE: dict[str, dict[str, Any]] = {
    "inclusion": {"draws": 15_000},
    "poisson_factors": {"dense_mass": True},
    "gaussian_factors": {"dense_mass": True},
}


def references(file: Path = FILE) -> dict[str, Truth]:
    """The truths that have been made, by model."""
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        name: Truth({variable: np.asarray(margin) for variable, margin in entry["margins"].items()}, entry["error"])
        for name, entry in stored.items()
    }


def rounded(x: np.ndarray) -> list:
    return np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"))(x).tolist()


def largest_r_hat(draws: dict[str, np.ndarray]) -> float:
    flat = np.concatenate([np.asarray(x, float).reshape(*x.shape[:2], -1) for x in draws.values()], axis=-1)
    return float(max(rhat(flat[..., j]) for j in range(flat.shape[-1]) if np.ptp(flat[..., j])))


def make(name: str, warmup: int, draws: int, chains: int) -> dict:
    """The entry of a model."""
    began = time.perf_counter()
    options = {"warmup": warmup, "draws": draws, "chains": chains, "init": STARTS.get(name)} | MORE.get(name, {})
    found = nuts(MODELS[name](), **options)
    truth = truth_of_draws(found)
    return {
        "error": truth.error,
        "ess": truth.error**-2,
        "r_hat": largest_r_hat(found),
        "draws": options["draws"] * chains,
        "seconds": time.perf_counter() - began,
        "margins": {variable: rounded(margin) for variable, margin in truth.margins.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1_500)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="make those that are there already, too")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    arguments = parser.parse_args()
    stored = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    for name in () if arguments.table else arguments.only:
        if name not in stored or arguments.again:
            stored[name] = make(name, arguments.warmup, arguments.draws, arguments.chains)
            arguments.out.write_text(json.dumps(stored) + "\n", encoding="utf-8")
            print(f"{name}: R-hat {stored[name]['r_hat']:.3f}, ESS {stored[name]['ess']:.0f}", flush=True)
    head = ("error", "ess", "r_hat", "draws", "seconds")
    print(table(("model", *head), [(name, *(entry[key] for key in head)) for name, entry in stored.items()]))


if __name__ == "__main__":
    main()
