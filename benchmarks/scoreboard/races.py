"""Runs of contestants, each in a fresh process on cores of its own, and a file of their lines that can be gone on with."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.infer.judge import Lines
from benchmarks.infer.truth import Truth
from benchmarks.scoreboard.contestants import CONTESTANTS
from benchmarks.scoreboard.score import errors

__all__ = ["ended", "jobs", "merged", "pairs", "race", "race_all", "scored"]

ROOT = Path(__file__).parents[2]
GRACE = 1.25  # a process that has not looked up by then is stopped
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")

Job = dict[str, Any]


def ended(command: list[str], seconds: float, **environment: str) -> tuple[str, str, int]:
    """What a process printed, what it complained of, and its status; it is stopped when the time is over."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        out, problems = process.communicate(timeout=None if np.isinf(seconds) else seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, problems = process.communicate()
        problems += f"\nstopped after {seconds:.0f} seconds"
    return out, problems, process.returncode


def pairs(at_once: int) -> list[str]:
    """Two cores per run, as `taskset` writes them; [""] where runs are not kept to cores of their own."""
    if at_once == 1 or not hasattr(os, "sched_getaffinity"):
        return [""]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 * at_once:
        raise ValueError(f"{at_once} runs at once need {2 * at_once} cores, and there are {len(cores)}.")
    return [f"{cores[2 * k]},{cores[2 * k + 1]}" for k in range(at_once)]


def jobs(
    problems: Sequence[str],
    contestants: Sequence[str],
    seeds: Sequence[int],
    rungs: int | None = None,
    warm: bool = False,
) -> list[Job]:
    """Runs in the order in which they are made: all contestants of a seed before the next, all problems of a contestant before the next.

    Args:
        rungs: how many of each contestant, from the first; None: all.
        warm: with JAX's compilation cache filled.
    """
    return [
        {"problem": problem, "contestant": name, "options": options, "seed": seed, "warm": warm}
        for seed in seeds
        for name in contestants
        for options in CONTESTANTS[name].rungs[:rungs]
        for problem in problems
    ]


def race_all(
    todo: Sequence[Job],
    lines: Lines,
    tables: Path,
    seconds: float,
    at_once: int,
    over: float,
    platform: str = "cpu",
    clock: str = "wall",
) -> Iterator[dict[str, Any]]:
    """The lines of those jobs that the file has not, as they end.

    Args:
        seconds: that a run may take.
        at_once: runs side by side, on two cores each.
        over: the seconds after which the file is left alone: what runs then is stopped and not kept.
        platform: of JAX.
        clock: that `seconds` are of, "wall" or "processor".
    """
    ends = time.perf_counter() + over
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    done: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    for job in todo:
        if not lines.has(**job):
            waiting.put(job)

    def work(cores: str) -> None:
        try:
            while (left := ends - time.perf_counter()) > 0:
                line = race(waiting.get_nowait(), tables, seconds, left, cores, platform, clock)
                if time.perf_counter() < ends:
                    done.put(line)
        except queue.Empty:
            pass
        finally:
            done.put(None)

    with ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(work, cores) for cores in pairs(at_once)]
        for _ in running:
            while (line := done.get()) is not None:
                yield lines.add(line)
        for thread in running:
            thread.result()


def race(job: Job, tables: Path, seconds: float, left: float, cores: str, platform: str, clock: str) -> dict[str, Any]:
    """One process: its looks, and why it ended if it failed. A warm run comes after one that filled JAX's cache."""
    limit = min(GRACE * seconds, left) if clock == "wall" else left
    command = ["taskset", "-c", cores] if cores else []
    command += [sys.executable, "-W", "ignore", "-m", "benchmarks.scoreboard.worker"]
    command += [job["problem"], job["contestant"], json.dumps(job["options"]), str(job["seed"]), str(seconds), clock]
    if clock == "processor":
        command = ["prlimit", f"--cpu={GRACE * seconds:.0f}", *command]
    environment = {"JAX_PLATFORMS": platform} | (dict.fromkeys(THREADS, "2") if cores else {})
    ends = time.perf_counter() + limit
    with _cache(job["warm"]) as cached:
        for _ in range(1 + job["warm"]):
            left = max(ends - time.perf_counter(), 1)
            out, problems, status = ended([*command, str(tables)], left, **environment, **cached)
    line = {
        **job,
        "limit": seconds,
        "clock": clock,
        "looks": [json.loads(look) for look in out.splitlines() if look.endswith("}")],
    }
    if status:
        line["failed"] = (problems.strip().splitlines() or [f"status {status}"])[-1][:300]
    return line


@contextmanager
def _cache(warm: bool) -> Iterator[dict[str, str]]:
    if not warm:
        yield {}
        return
    folder = tempfile.mkdtemp()
    try:
        yield {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scored(line: dict[str, Any], truth: Truth) -> dict[str, Any]:
    """A line whose looks have their errors in place of their answers."""
    looks = []
    for look in line["looks"]:
        rest = {name: value for name, value in look.items() if name not in ("margins", "stated")}
        looks.append({**rest, **errors(look["margins"], truth, look["stated"])})
    return {**line, "looks": looks}


def merged(lines: Sequence[dict[str, Any]], helped: bool) -> list[dict[str, Any]]:
    """The looks of a contestant with one seed: those of its rungs one after the other, or of the one that ended best."""
    if helped:
        return min((line["looks"] for line in lines), key=lambda looks: looks[-1]["total"] if looks else np.inf)
    return sorted((look for line in lines for look in line["looks"]), key=lambda look: look["seconds"])
