"""Checkpoint and resume: what a run needs to go on as if it had never stopped, in a folder, through Orbax.

Everything that a chunk does depends on the carry, the keys and the step number alone, and random numbers are keyed by blocks of
steps that begin at multiples of the block length. So a checkpoint holds these, lies at such a multiple, and needs no other
cursor: minibatches, too, are a function of the key and the step number. Draws that are not in a store are saved along.

Orbax writes into a folder with a temporary name and renames it when it is whole. Nothing in it is pickled.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
import time
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.engine.program import Carry, Keys
from inbounds.metrics import is_same
from inbounds.sampling.fingerprint import NOISE, differences
from inbounds.sampling.lock import hold
from inbounds.sampling.record import Record
from inbounds.trees import PyTree

__all__ = ["Checkpoint", "Checkpointer", "Loaded", "RefusedError"]


@dataclass(frozen=True)
class Checkpoint:
    """Where checkpoints go, and how often.

    Args:
        path: a folder; or a URL that Orbax writes to, such as gs://bucket/run.
        every_seconds: of wall-clock time between two checkpoints; None leaves it to `every_steps`.
        every_steps: steps between two checkpoints, rounded up to whole blocks (at most 1,024 steps); None leaves it to
            `every_seconds`.
        keep: how many of the latest are kept, at least two: should the last one be damaged, there is another.

    Example:
        >>> ib.Checkpoint("run/checkpoints", every_seconds=None, every_steps=10_000).keep
        3
    """

    path: str | os.PathLike[str]
    every_seconds: float | None = 60.0
    every_steps: int | None = None
    keep: int = 3

    def __post_init__(self) -> None:
        for name in ("every_seconds", "every_steps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` of a checkpoint must be positive, or None; got {value!r}.")
        if self.every_seconds is None and self.every_steps is None:
            raise ValueError("A checkpoint needs `every_seconds` or `every_steps`: both are None.")
        if not isinstance(self.keep, int) or self.keep < 2:
            raise ValueError(f"`keep` of a checkpoint must be a whole number of at least 2; got {self.keep!r}.")


class Loaded(NamedTuple):
    """What a checkpoint holds."""

    step: int
    carry: Carry
    keys: Keys
    position: int  # draws kept until then, of each chain
    snapshot: list[np.ndarray]  # those draws, where they are not in a store
    seconds: float  # that the run had taken
    metric: Any  # that the kernel moves in; None without one


class Checkpointer:
    """Saves a run every now and then, and finds the latest checkpoint that is whole and its own.

    Args:
        checkpoint: where and how often.
        fingerprint: what tells this run from others.
        environment: versions and devices: a change is worth a warning, not a refusal.
        metric: that the kernel moves in, which is saved itself: made anew, its eigenvectors may come out with other signs or in another
            order, and z would mean something else.
        resume: whether checkpoints may be there already.
        held: where to enter what is held until the end of the run.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        fingerprint: dict[str, Any],
        environment: dict[str, Any],
        metric: Any,
        resume: bool,
        held: contextlib.ExitStack,
    ):
        self.checkpoint = checkpoint
        self.fingerprint = fingerprint
        self.environment = environment
        self.metric = metric
        self.orbax = _orbax()
        self.path = _absolute(checkpoint.path)
        hold(
            held, checkpoint.path, "checkpoint"
        )  # before Orbax looks at it, and removes what another run is writing there
        self.manager = self._manager()
        self.step = 0  # of the last checkpoint
        self.clock = time.perf_counter()
        if not resume and self.manager.all_steps():
            raise ValueError(
                f"{self.path} holds checkpoints, the latest of step {max(self.manager.all_steps()):,}. Go on from there "
                "with resume=True, or give another folder."
            )

    def _manager(self) -> Any:
        options = self.orbax.CheckpointManagerOptions(
            max_to_keep=self.checkpoint.keep, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        return self.orbax.CheckpointManager(self.path, options=options)

    def most_blocks(self, blocks: int, done: int, num_steps: int, length: int) -> int:
        """At most so many of `blocks` that the chunk ends where a checkpoint is due, or at the last place for one."""
        blocks = min(blocks, max(1, (num_steps - done) // length))
        if self.checkpoint.every_steps is not None:
            blocks = min(blocks, max(1, -(-(self.step + self.checkpoint.every_steps - done) // length)))
        return blocks

    def due(self, done: int) -> bool:
        """Whether it is time, `done` steps into the run."""
        every_steps, every_seconds = self.checkpoint.every_steps, self.checkpoint.every_seconds
        return (every_steps is not None and done - self.step >= every_steps) or (
            every_seconds is not None and time.perf_counter() - self.clock >= every_seconds
        )

    def save(self, done: int, carry: Carry, keys: Keys, record: Record, seconds: float) -> None:
        """A checkpoint after `done` steps. The record writes first what the checkpoint counts on."""
        if done == self.step:
            return
        snapshot = record.snapshot()
        state = _leaves((carry, keys))
        kept = _numbered(snapshot)
        metric = _numbered(np.asarray(leaf) for leaf in jax.tree.leaves(self.metric))
        run = {
            "step": done,
            "position": record.num_draws,
            "seconds": seconds,
            "fingerprint": self.fingerprint,
            "environment": self.environment,
            "draws": [[list(leaf.shape), str(leaf.dtype)] for leaf in snapshot],
            "metric": {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in metric.items()},
            "checksums": {"state": _checksums(state), "draws": _checksums(kept), "metric": _checksums(metric)},
        }
        args = self.orbax.args
        items = {"run": args.JsonSave(run), "state": args.StandardSave(state)}
        items |= {name: args.StandardSave(arrays) for name, arrays in (("draws", kept), ("metric", metric)) if arrays}
        try:
            self.manager.save(done, args=args.Composite(**items), force=True)
        except Exception as error:
            raise self._explained(error, done) from error
        self.step, self.clock = done, time.perf_counter()

    def _explained(self, error: Exception, done: int) -> Exception:
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in str(error)
        if not full:
            return RuntimeError(f"The checkpoint of step {done:,} could not be written to {self.path}: {error}")
        return OSError(
            errno.ENOSPC,
            f"The disk is full ({os.strerror(errno.ENOSPC)}): the checkpoint of step {done:,} could not be written to "
            f"{self.path}. That of step {self.step:,} is whole. Make room, and go on with resume=True",
        )

    def how_to_resume(self) -> str:
        return (
            f"The checkpoint of step {self.step:,} is in {self.path}. Go on with the same call and resume=True: "
            f'ib.sample(..., checkpoint="{self.checkpoint.path}", resume=True)'
        )

    def load(self, carry: Carry, keys: Keys, num_steps: int) -> Loaded | None:
        """The latest checkpoint that can be used, on the devices of `carry` and `keys`; None where there is none at all."""
        steps = sorted(self.manager.all_steps(), reverse=True)
        refused: list[tuple[int, str]] = []
        for step in steps:
            loaded, unread = None, False
            try:
                loaded = self._load(step, carry, keys)
            except RefusedError as error:
                refused.append((step, str(error)))
            except MemoryError:
                raise
            except Exception as error:
                refused.append((step, _first_line(error)))
                unread = True
            if unread:
                _clear_remains()
            if loaded is None:
                continue
            self._set_aside(refused)
            if loaded.step > num_steps:
                raise ValueError(
                    f"The checkpoint in {self.path} is of step {loaded.step:,}, past num_steps={num_steps:,}. A run may "
                    "grow when it is resumed, not shrink."
                )
            self.step, self.clock = step, time.perf_counter()
            return loaded
        if refused:
            reasons = {reason: [f"{step:,}" for step, why in refused if why == reason] for _, reason in refused}
            listing = "; ".join(f"of step {', '.join(steps)}, {reason}" for reason, steps in reasons.items())
            raise ValueError(f"No checkpoint in {self.path} can be used: {listing}. Give another folder to start anew.")
        return None

    def _load(self, step: int, carry: Carry, keys: Keys) -> Loaded:
        args = self.orbax.args
        run = self.manager.restore(step, args=args.Composite(run=args.JsonRestore()))["run"]
        foreign = differences(run["fingerprint"], self.fingerprint)
        if foreign:
            raise RefusedError(f"it is of another run ({'; '.join(foreign)})")
        like = _leaves((carry, keys))
        items = {"state": args.StandardRestore(jax.tree.map(_abstract, like))}
        kept = {f"{i:04d}": np.empty(shape, dtype) for i, (shape, dtype) in enumerate(run["draws"]) if np.prod(shape)}
        shapes = run.get("metric", {})
        metric = {name: np.empty(shape, dtype) for name, (shape, dtype) in shapes.items()}
        items |= {name: args.StandardRestore(like) for name, like in (("draws", kept), ("metric", metric)) if like}
        restored = self.manager.restore(step, args=args.Composite(**items))
        state, draws = restored["state"], restored["draws"] if kept else {}
        metric = restored["metric"] if metric else {}
        parts = {"state": state, "draws": draws, "metric": metric}
        if not all(check for name, part in parts.items() for check in _checks(run["checksums"].get(name, {}), part)):
            raise RefusedError("its contents do not have the checksums that were written with them")
        then = jax.tree.unflatten(jax.tree.structure(self.metric), [metric[name] for name in sorted(metric)])
        if self.metric is not None and not is_same(then, self.metric):
            raise RefusedError("it is of another run (its metric has another centre or other scales)")
        for name in sorted(run["environment"].keys() | self.environment.keys()):
            before, now = run["environment"].get(name), self.environment.get(name)
            if before != now and before is not None:
                differ = "may differ" if name == NOISE else "may differ in the last bits"
                warnings.warn(
                    f"The run began with {name} {before} and goes on with {now}: its draws are as good, but {differ} from those of a "
                    "run that was not interrupted.",
                    stacklevel=5,
                )
        carry, keys = _unflatten((carry, keys), state)
        snapshot = [
            draws[f"{i:04d}"] if np.prod(shape) else np.zeros(shape, dtype)
            for i, (shape, dtype) in enumerate(run["draws"])
        ]
        return Loaded(int(run["step"]), carry, keys, int(run["position"]), snapshot, float(run["seconds"]), then)

    def _set_aside(self, refused: list[tuple[int, str]]) -> None:
        """Rename what cannot be used, so that it neither misleads nor stands in the way of new checkpoints."""
        for step, reason in refused:
            folder = self.path / str(step)
            aside = self.path / f"refused-{step}"
            if jax.process_index() == 0:
                if aside.exists():
                    aside.rmtree()
                folder.rename(aside)
            self.orbax.multihost.sync_global_processes(f"inbounds: set aside {step}")
            warnings.warn(
                f"The checkpoint of step {step:,} cannot be used: {reason}. It is kept as {aside}; the run goes on from the "
                "one before.",
                stacklevel=4,
            )
        if refused:
            self.manager.reload()


class RefusedError(Exception):
    """Why a checkpoint is not used."""


def _numbered(arrays: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by number; Orbax has no place for empty ones."""
    return {f"{i:04d}": array for i, array in enumerate(arrays) if array.size}


def _leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves by number, typed keys as their bits; empty ones are left out, Orbax has no place for them."""
    return {f"{i:04d}": _bits(leaf) for i, leaf in enumerate(jax.tree.leaves(tree)) if leaf.size}


def _unflatten(like: PyTree, leaves: dict[str, Any]) -> PyTree:
    """A tree like `like` of leaves by number."""
    old, treedef = jax.tree.flatten(like)
    new = []
    for i, leaf in enumerate(old):
        value = leaves.get(f"{i:04d}", leaf)
        if not getattr(leaf, "committed", True):  # nor is the new one to be tied to its device: it would compile again
            value = jnp.asarray(np.asarray(value)) if f"{i:04d}" in leaves else leaf
        if leaf.size and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            value = _wrap_key(value, str(jax.random.key_impl(leaf)))
        new.append(value)
    return jax.tree.unflatten(treedef, new)


def _bits(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _abstract(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _checksums(leaves: dict[str, Any]) -> dict[str, int]:
    """Of all leaves that this process has all of."""
    return {
        name: zlib.crc32(np.ascontiguousarray(leaf).data)
        for name, leaf in leaves.items()
        if getattr(leaf, "is_fully_addressable", True)
    }


def _checks(written: dict[str, int], leaves: dict[str, Any]) -> list[bool]:
    """Whether each leaf is what was written; of those on several processes, then or now, Orbax knows best."""
    found = _checksums(leaves)
    return [written[name] == found[name] for name in written.keys() & found.keys()]


@partial(jax.jit, static_argnums=1)
def _wrap_key(bits: jax.Array, implementation: str) -> jax.Array:
    result: jax.Array = jax.random.wrap_key_data(bits, impl=implementation)
    return result


def _clear_remains() -> None:
    """Collect the coroutines that Orbax leaves of a read that failed, unheard: they would complain at some later time."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"it cannot be read ({type(error).__name__}: {text[0][:200] if text else ''})"


def _absolute(path: str | os.PathLike[str]) -> Any:
    from etils import epath

    text = os.fspath(path)
    return epath.Path(text) if "://" in text else epath.Path(Path(text).expanduser().absolute())


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise ImportError('Checkpoints need Orbax: pip install "inbounds[checkpoint]"') from error
    return orbax.checkpoint
