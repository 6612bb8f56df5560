"""A regression with positive weights by `ib.infer` from files on disk that need not fit in memory, beside its exact answer.

    python -m benchmarks.infer.from_disk [--rows 10000000] [--columns 10] [--folder /tmp] [--method minibatch] [--out from_disk.json]

Two files of NumPy are drawn block by block, their rows in random order, and removed in the end. The noise is known and all weights are many
posterior sds away from 0, so that the exact posterior is a normal, from sums that are made while the files are written. Memory is what the
process has for itself, looked at ten times a second; pages of the files that the system keeps for it are shown apart.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import inbounds as ib

BLOCK = 1_000_000
NOISE = 1.0


def drawn(folder: Path, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Write x.npy and y.npy; the exact means and sds."""
    generator = np.random.default_rng(0)
    weights = np.linspace(0.2, 1.0, columns)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, columns))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (rows,))
    squares, products = np.eye(columns), np.zeros(columns)  # of the prior
    for first in range(0, rows, BLOCK):
        block = generator.normal(size=(min(BLOCK, rows - first), columns)).astype(np.float32)
        seen = (block @ weights + NOISE * generator.normal(size=len(block))).astype(np.float32)
        x[first : first + len(block)], y[first : first + len(block)] = block, seen
        squares += block.T.astype(float) @ block / NOISE**2
        products += block.T.astype(float) @ seen / NOISE**2
    x.flush(), y.flush()
    covariance = np.linalg.inv(squares)
    return covariance @ products, np.sqrt(np.diag(covariance))


def log_likelihood(theta: Any, batch: Any) -> Any:
    return -0.5 * jnp.square((batch["y"] - batch["x"] @ theta["weights"]) / NOISE)


class Memory:
    """The most that this process had for itself, and with the pages of files that it has mapped, in bytes."""

    def __init__(self) -> None:
        self.own = self.whole = 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            own, files = (1024 * int(lines[name].split()[0]) for name in ("RssAnon", "RssFile"))
            self.own, self.whole = max(self.own, own), max(self.whole, own + files)
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--method", choices=("auto", "minibatch", "full"), default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        mean, sd = drawn(Path(folder), arguments.rows, arguments.columns)
        memory, began, before = Memory(), time.perf_counter(), time.process_time()
        data = ib.data.stream({name: os.path.join(folder, f"{name}.npy") for name in ("x", "y")}, shuffled=True)
        prior = dist.HalfNormal(1.0).expand([arguments.columns]).to_event(1)
        draws = ib.infer(
            ib.Posterior({"weights": prior}, log_likelihood, data), method=arguments.method, progress=False
        )
        seconds, of_processors = time.perf_counter() - began, time.process_time() - before
    found = draws.certificate
    off = (np.asarray(found.mean["weights"], float) - mean) / sd
    result = {
        "rows": arguments.rows, "columns": arguments.columns, "method": found.method, "certified": bool(found.ok),
        "reasons": list(map(str, found.reasons)), "seconds": seconds, "processor seconds": of_processors,
        "own memory in GB": memory.own / 1e9, "with pages of files in GB": memory.whole / 1e9,
        "largest error of a mean in sds": float(np.abs(off).max()), "stated": float(np.max(found.mean_error["weights"])),
        "largest relative error of an sd": float(np.abs(np.asarray(found.sd["weights"]) / sd - 1).max()),
        "costs": {name: float(value) for name, value in found.costs.items()}, "choices": str(found.choices),
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
