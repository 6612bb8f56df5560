"""Rows moved only when touched beside the dense update: microseconds per step, and what they do to the posterior.

    python -m benchmarks.lazy_rows [--shape 10m|1m|100k] [--ranks 20 50] [--steps 2000] [--rounds 5] [--out results.json]

Generated ratings of MovieLens' shape, Gaussian likelihood with offsets and its count preconditioner, minibatches of 10,000.
Time: `ib.sgld` and `ib.lazy_rows` through `ib.sample`, in turns, each turn short; the ratio is that within a turn. Quality: one run
of `--steps` steps of each with the same step sizes; the second half, every 25th draw, predicts held-out ratings. Also the sd of
those predictions over the draws, and of the users' factors by number of ratings, lazy over dense.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import inbounds as ib
from experiments.timing import interleaved
from inbounds.data import MOVIELENS_SHAPES, RatingsSplit, generate_ratings
from inbounds.display import text_table
from inbounds.models import FactorModel

BATCH = 10_000
THIN = 25
HELD_OUT = 100_000  # ratings that are predicted
USERS = 2_000  # whose factors are looked at
ROWS = {"W": "user", "H": "item", "user_offset": "user", "item_offset": "item"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="10m", choices=tuple(MOVIELENS_SHAPES))
    parser.add_argument("--ranks", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    split = generate_ratings(**MOVIELENS_SHAPES[arguments.shape]).split()
    device = jax.devices()[0].device_kind
    results = {"shape": arguments.shape, "batch_size": BATCH, "steps": arguments.steps, "device": device, "rows": []}
    for rank in arguments.ranks:
        results["rows"].append(compare(split, rank, arguments.steps, arguments.rounds))
        if arguments.out:
            Path(arguments.out).write_text(json.dumps(results, indent=1) + "\n")
    print(f"{arguments.shape}, batch {BATCH:,}, {device}, {arguments.steps:,} steps\n")
    print(table(results["rows"]))


def compare(split: RatingsSplit, rank: int, steps: int, rounds: int) -> dict[str, Any]:
    train = split.train
    model = FactorModel.of(train, rank, "gaussian", True)
    posterior, transforms = model.posterior(train), model.transforms()
    of_few = model.preconditioner(train, few_rows=True)
    kernels = {
        "sgld": ib.sgld(posterior, transforms, preconditioner=model.preconditioner(train)),
        "lazy_rows": ib.lazy_rows(posterior, ROWS, transforms, preconditioner=of_few),
    }
    start = jax.jit(model.start)(jax.random.key(0))
    times = {name: seconds / timed_steps() * 1e6 for name, seconds in time(kernels, start, rounds).items()}
    ratio = times["sgld"] / times["lazy_rows"]
    row: dict[str, Any] = {
        "rank": rank,
        "microseconds": {name: float(np.median(each)) for name, each in times.items()},
        "speedup": [float(np.quantile(ratio, q)) for q in (0.25, 0.5, 0.75)],
    }
    return row | quality(model, split, kernels, start, steps)


def timed_steps() -> int:
    return 50 if jax.default_backend() == "cpu" else 5_000


def time(kernels: dict[str, ib.Kernel], start: Any, rounds: int) -> dict[str, np.ndarray]:
    """Seconds of a short run, one a round."""
    steps = timed_steps()

    def run(kernel: ib.Kernel) -> float:
        return ib.sample(
            kernel, 1e-5, steps, thin=steps, batch_size=BATCH, init=start, progress=False,
            collect=ib.collect.predictive_mean(first_factor),
        ).seconds  # fmt: skip

    return interleaved({name: partial(run, kernel) for name, kernel in kernels.items()}, rounds)


def first_factor(theta: Any) -> Any:
    """A result of almost no size, so that nothing but steps is measured."""
    return theta["W"][0, 0]


def quality(model: FactorModel, split: RatingsSplit, kernels: dict, start: Any, steps: int) -> dict[str, Any]:
    """RMSE of the average and of single draws, and the sds over the draws, lazy over dense."""
    random = np.random.default_rng(0)
    test = split.test.select(random.permutation(len(split.test))[:HELD_OUT])
    users = np.sort(random.permutation(model.num_users)[:USERS])
    counts = np.bincount(split.train.user, minlength=model.num_users)[users]

    def watched(theta):
        return {"rating": model.predict(theta, test.user, test.item), "W": theta["W"][users]}

    collector = ib.collect.mean_and_variance(watched)
    share = BATCH / len(split.train)
    step_size = ib.schedules.settling(min(4 * share, 0.15), min(1.5 * share, 0.07), steps // 2)
    rmse, single, sd = {}, {}, {}
    for name, kernel in kernels.items():
        draws = ib.sample(
            kernel, step_size, steps, thin=THIN, burn_in=steps // 2, batch_size=BATCH, init=start, collect=collector,
            progress=False,
        )  # fmt: skip
        mean, variance = (jax.tree.map(lambda x: np.asarray(x)[0], x) for x in draws.collected[1:])
        error = np.mean(np.square(test.rating - mean["rating"]))
        rmse[name] = float(np.sqrt(error))
        single[name] = float(np.sqrt(error + variance["rating"].mean()))  # on average over the draws
        sd[name] = jax.tree.map(np.sqrt, variance)
    busy = np.searchsorted(np.quantile(counts, (0.25, 0.5, 0.75)), counts)
    spread = sd["lazy_rows"]["W"].mean(1) / sd["sgld"]["W"].mean(1)
    return {
        "rmse": rmse,
        "rmse_of_single_draws": single,
        "sd_of_predictions": {name: float(each["rating"].mean()) for name, each in sd.items()},
        "sd_of_factors_ratio_by_quarter": [float(spread[busy == quarter].mean()) for quarter in range(4)],
    }


def table(rows: list[dict[str, Any]]) -> str:
    cells = [["rank", "kernel", "us per step", "speed-up", "RMSE", "of single draws", "sd of predictions"]]
    for row in rows:
        for name in ("sgld", "lazy_rows"):
            speedup = "{1:.2f} ({0:.2f} to {2:.2f})".format(*row["speedup"]) if name == "lazy_rows" else ""
            numbers = [row[key][name] for key in ("rmse", "rmse_of_single_draws", "sd_of_predictions")]
            cells.append(
                [str(row["rank"]), name, f"{row['microseconds'][name]:,.0f}", speedup, *map("{:.4f}".format, numbers)]
            )
    lines = [
        text_table(cells),
        "",
        "sd of users' factors, lazy over dense, by quarter of users, from fewest ratings to most:",
    ]
    for row in rows:
        lines.append(f"rank {row['rank']}: " + ", ".join(f"{x:.3f}" for x in row["sd_of_factors_ratio_by_quarter"]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
