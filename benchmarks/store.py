"""What a store costs: memory against the number of draws, time against draws kept in memory, and the price of a checkpoint.

    python -m benchmarks.store [--draws 1000000] [--numbers 100] [--out results.json]

Memory is the peak of the process above what it used once everything was imported, compiled and run for a moment; with the
store and without it, each in a process of its own. Times are taken in turns, and the table shows their ratio.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

import inbounds as ib
from experiments.timing import interleaved

MB = 1e6
CHECKPOINTS = 20  # of a run whose checkpoints are measured


def resident() -> int:
    """Bytes of memory that the process holds now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Peak:
    """The most memory that the process held, looked at every few milliseconds."""

    def __enter__(self):
        self.start = self.most = resident()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        while not self.over.wait(0.005):
            self.most = max(self.most, resident())

    def __exit__(self, *error):
        self.over.set()
        self.thread.join()

    @property
    def growth(self) -> int:
        return self.most - self.start


def kernel_of(numbers: int):
    return ib.sgld(ib.Posterior({"x": dist.HalfNormal(1.0).expand([numbers])}))


def measure_memory(draws: int, numbers: int, stored: bool) -> dict:
    kernel = kernel_of(numbers)
    with tempfile.TemporaryDirectory() as folder:
        ib.sample(kernel, 1e-3, 100_000, store=f"{folder}/first.zarr", progress=False)
        with Peak() as peak:
            began = time.perf_counter()
            result = ib.sample(kernel, 1e-3, draws, store=f"{folder}/run.zarr" if stored else None, progress=False)
            seconds = time.perf_counter() - began
        assert result.theta["x"].shape == (1, draws, numbers)
        size = sum(path.stat().st_size for path in Path(folder, "run.zarr").rglob("*") if path.is_file())
    return {
        "growth_mb": peak.growth / MB,
        "seconds": seconds,
        "on_disk_mb": size / MB,
        "draws_mb": 4 * draws * numbers / MB,
    }


def measure_time(draws: int, numbers: int, rounds: int) -> dict:
    """Seconds in memory (with theta made from phi, which the store holds), in a store, and of one checkpoint."""
    kernel = kernel_of(numbers)
    with tempfile.TemporaryDirectory() as folder:
        numbers_of_runs = itertools.count()

        def run(where: str) -> None:
            number = next(numbers_of_runs)
            options: dict[str, dict] = {
                "memory": {},
                "store": {"store": f"{folder}/{number}.zarr"},
                "checkpoint": {
                    "checkpoint": ib.Checkpoint(f"{folder}/c{number}", every_steps=draws // CHECKPOINTS),
                    "store": f"{folder}/c{number}.zarr",
                },
            }
            result = ib.sample(kernel, 1e-3, draws, progress=False, **options[where])
            assert result.theta is not None

        times = interleaved({where: partial(run, where) for where in ("memory", "store", "checkpoint")}, rounds)
    medians = {where: float(np.median(seconds)) for where, seconds in times.items()}
    return medians | {
        "store_over_memory": float(np.median(times["store"] / times["memory"])),
        "seconds_a_checkpoint": float(np.median((times["checkpoint"] - times["store"]) / CHECKPOINTS)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--numbers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    parser.add_argument("--memory", choices=["store", "memory"], help=argparse.SUPPRESS)  # what the child measures
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(measure_memory(options.draws, options.numbers, options.memory == "store")))
        return
    results = {}
    for draws in (options.draws // 4, options.draws):
        for where in ("store", "memory"):
            command = [
                sys.executable,
                "-m",
                __spec__.name,
                "--memory",
                where,
                "--draws",
                str(draws),
                "--numbers",
                str(options.numbers),
            ]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            results[f"{where}, {draws:,} draws"] = found
            print(
                f"{where:>7} {draws:>10,} draws of {options.numbers}: {found['draws_mb']:6.0f} MB of draws, "
                f"{found['growth_mb']:6.0f} MB of memory, {found['on_disk_mb']:6.0f} MB on disk, {found['seconds']:5.1f} s"
            )
    results["time"] = measure_time(options.draws // 4, options.numbers, options.rounds)
    print(", ".join(f"{name} {value:.3g}" for name, value in results["time"].items()))
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
