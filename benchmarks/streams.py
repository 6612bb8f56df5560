"""What data on disk cost: steps on minibatches from files against steps on the same data in memory, side by side.

    python -m benchmarks.streams [--rows 2000000] [--steps 4000] [--repeats 7] [--out results.json]

Two models: logistic regression on rows of 50 floats (minibatches of 1,000), and a factor model of ratings (user, item, rating;
minibatches of 10,000). The ways are interleaved, and the ratio is the median over the rounds of this way's time a step over that of
arrays in memory. Files are in the operating system's cache after the first round: what is measured is the decoding, mixing and
copying beside the computation, not the disk.
"""

import argparse
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pyarrow as pa
import pyarrow.parquet as pq

import inbounds as ib
from experiments.timing import interleaved


def logistic_regression(rows: int):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, 50)).astype(np.float32)
    y = (generator.uniform(size=rows) < 1 / (1 + np.exp(-x @ generator.normal(size=50) / 4))).astype(np.float32)

    def log_likelihood(theta, batch):
        logits = batch["x"] @ theta["w"]
        return batch["y"] * logits - jnp.logaddexp(logits, 0.0)

    table = pa.table({**{f"x{i:02}": x[:, i] for i in range(50)}, "y": y})
    columns = {"x": [f"x{i:02}" for i in range(50)], "y": "y"}
    return {"x": x, "y": y}, table, columns, {"w": dist.Normal(0.0, 1.0).expand([50])}, log_likelihood, 1_000, 1e-8


def ratings(rows: int, users: int = 20_000, items: int = 5_000, rank: int = 10):
    generator = np.random.default_rng(0)
    data = {
        "user": np.sort(generator.integers(0, users, rows)).astype(np.int32),  # files of ratings are sorted by user
        "item": (items * generator.uniform(size=rows) ** 2).astype(np.int32),
        "rating": generator.integers(1, 6, rows).astype(np.float32),
    }

    def log_likelihood(theta, batch):
        mean = jnp.sum(theta["user"][batch["user"]] * theta["item"][batch["item"]], axis=1)
        return -0.5 * jnp.square(batch["rating"] - mean)

    priors = {"user": dist.Exponential(1.0).expand([users, rank]), "item": dist.Exponential(1.0).expand([items, rank])}
    return data, pa.table(data), list(data), priors, log_likelihood, 10_000, 1e-10


MODELS = {"rows of 50 floats": logistic_regression, "ratings": ratings}


def write(folder: Path, data: dict, table: pa.Table, columns) -> dict:
    """The same rows in every way of keeping them."""
    for name, array in data.items():
        np.save(folder / f"{name}.npy", array)
    pq.write_table(table, folder / "rows.parquet", row_group_size=100_000)
    flat = pa.table({name: _fixed(array) for name, array in data.items()})
    with pa.ipc.new_file(folder / "rows.arrow", flat.schema) as writer:
        writer.write_table(flat, max_chunksize=1_000)
    return {
        "memory": data,
        "shuffled cache": ib.data.stream(folder / "rows.parquet", columns, cache=folder / "cache"),
        "npy, mixed": ib.data.stream({name: folder / f"{name}.npy" for name in data}),
        "arrow, mixed": ib.data.stream(folder / "rows.arrow"),
        "parquet, mixed": ib.data.stream(folder / "rows.parquet", columns),
    }


def _fixed(array: np.ndarray):
    return pa.array(array) if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(array.ravel(), array.shape[1])


def measure(name: str, rows: int, steps: int, repeats: int, ways: list[str]) -> list[dict]:
    data, table, columns, priors, log_likelihood, batch_size, step_size = MODELS[name](rows)
    with tempfile.TemporaryDirectory() as folder:
        kept = {way: held for way, held in write(Path(folder), data, table, columns).items() if way in ways}
        kernels = {way: ib.sgld(ib.Posterior(priors, log_likelihood, held)) for way, held in kept.items()}

        def run(kernel: ib.Kernel) -> float:
            draws = ib.sample(kernel, step_size, steps, thin=steps, batch_size=batch_size, progress=False)
            return draws.seconds / steps

        seconds = interleaved({way: partial(run, kernel) for way, kernel in kernels.items()}, repeats)
    return [
        {
            "data": name,
            "way": way,
            "rows": rows,
            "microseconds": 1e6 * statistics.median(times),
            "ratio": statistics.median(t / base for t, base in zip(times, seconds["memory"], strict=True)),
        }
        for way, times in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--ways", nargs="*", default=["shuffled cache", "npy, mixed", "arrow, mixed", "parquet, mixed"])
    parser.add_argument("--data", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    rows = []
    print(f"{'data':20}{'way':18}{'us/step':>10}{'ratio to memory':>18}")
    for name in arguments.data:
        steps = arguments.steps if name == "rows of 50 floats" else max(100, arguments.steps // 10)
        found = measure(name, arguments.rows, steps, arguments.repeats, ["memory", *arguments.ways])
        rows += found
        for row in found:
            print(f"{row['data']:20}{row['way']:18}{row['microseconds']:10.1f}{row['ratio']:18.2f}", flush=True)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
