"""A run, or a search, in a process of its own, to be killed: at a given moment, or within a write.

The process is forked from one that has imported everything and computed nothing, so that twenty of them are cheap.
"""

import contextlib
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint
from tqdm import tqdm

import inbounds as ib
from inbounds.sampling import store as stores
from inbounds.sampling.lock import only_writer

tqdm.set_lock(threading.RLock())  # its default is shared by processes, and would outlive those that are killed

WRITES = {
    "checkpoint": (orbax.checkpoint.CheckpointManager, "save"),
    "append": (stores._Store, "write"),
    "publish": (stores._Store, "publish"),
}


ENDLESS = 2**31 - 2**21  # steps: hours, so that whoever is to be killed is there when it happens


def settings(num_steps: int) -> dict:
    from tests.models_for_tests import poisson_rates

    kernel = ib.baoab(poisson_rates())
    return dict(
        kernel=kernel, step_size=1e-3, num_steps=num_steps, burn_in=100, thin=31, batch_size=8, num_chains=2, seed=5,
        progress=False,
    )  # fmt: skip


def _compile_as_the_tests_do() -> None:
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in(owner: type, name: str, number: int, delay: float) -> None:
    """Die `delay` seconds into call number `number` of a method, or at its end where it is quicker."""
    original = getattr(owner, name)
    calls = []

    def deadly(*args, **kwargs):
        calls.append(1)
        if len(calls) < number:
            return original(*args, **kwargs)
        threading.Timer(delay, die).start()
        original(*args, **kwargs)
        die()

    setattr(owner, name, deadly)


def run(folder: str, how: str | None, seed: int, num_steps: int, every_steps: int) -> None:
    """Go on with the run in `folder`, and die on the way as `how` says; None: finish."""
    _compile_as_the_tests_do()
    stores.CHUNK_BYTES = 2**14
    if how is not None:
        stores.PUBLISH_SECONDS, stores.PUBLISH_SHARE = 0.0, 1e9
    chance = random.Random(seed)
    if how in WRITES:
        die_in(*WRITES[how], chance.randint(1, 6), chance.uniform(0.0, 0.1 if how == "checkpoint" else 0.01))
    elif how == "any moment":
        threading.Timer(chance.uniform(0.0, 2.5), die).start()
    ib.sample(
        **settings(num_steps), store=f"{folder}/run.zarr", resume=True, chunk_steps=1,
        checkpoint=ib.Checkpoint(f"{folder}/checkpoints", every_steps=every_steps),
    )  # fmt: skip


def write(folder: str, seed: int, argument: str, begin: Any, inside: Any, end: Any, answers: Any) -> None:
    """Run into `folder` once `begin` lets it, say when it has begun to write, wait for `end`, and tell what came of it."""

    def monitor(done: int, collected: Any) -> None:
        inside.set()
        end.wait()

    _compile_as_the_tests_do()
    begin.wait()
    try:
        draws = ib.sample(**settings(3_000) | dict(seed=seed), **{argument: folder}, chunk_steps=1, monitor=monitor)
        answers.put((seed, np.asarray(draws.theta["rate"])))
    except ValueError as error:
        answers.put((seed, str(error)))
    inside.set()  # in any case


def count_up(folder: str, counter: str, begin: Any, answers: Any) -> None:
    """Add one to the number in a file, as often as the lock of `folder` lets us, and say how often that was."""
    begin.wait()
    added = 0
    for _ in range(500):
        with contextlib.suppress(ValueError), only_writer(Path(folder), "store"):
            Path(counter).write_text(str(int(Path(counter).read_text()) + 1))
            added += 1
    answers.put(added)


def objective(step_size: float) -> float:
    return (step_size - 0.1) ** 2


def tune(folder: str, place: int, trials: int) -> None:
    """Search on until `trials` are finished, and then die: in the objective, or in the middle of a write to the study."""
    from optuna.storages.journal import JournalFileBackend

    finished = 0

    def deadly(step_size: float) -> float:
        nonlocal finished
        finished += 1
        if finished == trials:
            if place == 0:
                die()
            die_in(JournalFileBackend, "append_logs", place, 0.0)
        return objective(step_size)

    ib.tune(deadly, trials=100, storage=f"{folder}/study.log", progress=False)
