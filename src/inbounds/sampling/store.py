"""Draws on disk: a Zarr store that grows with the run, and that xarray and ArviZ open at any moment.

The groups are those of ArviZ: `posterior` (theta, by name), `unconstrained_posterior` (phi, only where it is not theta
itself: theta alone does not give it back where it lies below the smallest float) and `sample_stats`. All arrays have the axes
(chain, draw, ...), and the same number of draws.

A reader must never see half an append. So the data of new draws are written first, beyond the length that readers know of,
and then the metadata, which hold the length: first each array's own, then one file a group and one for the whole store with
the metadata of everything below them ("consolidated"). Whichever of the three a reader opens is one file, replaced at once.

One run at a time writes. A local folder is locked (`lock.py`); object stores know no locks, so the root also names the run that
writes, and one that finds another name there stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from inbounds.engine.program import Program, Rows
from inbounds.sampling.conversions import phi_of, theta_of
from inbounds.sampling.draws import Draws
from inbounds.sampling.fingerprint import differences
from inbounds.sampling.kept import Counts, KeptSteps
from inbounds.sampling.lock import NAME as LOCK
from inbounds.sampling.lock import hold, local_folder
from inbounds.sampling.record import Record, reported, statistics
from inbounds.sampling.step_sizes import StepSizes
from inbounds.sampling.to_arviz import array_names
from inbounds.trees import PyTree, variable_name

__all__ = ["StoredArray", "StoredRecord", "refuse_what_is_there", "remove"]

try:
    import zarr
    from zarr.codecs import ZstdCodec
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync
    from zarr.storage import FsspecStore, LocalStore, WrapperStore
except ImportError as error:
    raise ImportError('Draws on disk need Zarr: pip install "inbounds[store]"') from error

CHUNK_BYTES = 2**23  # of all the arrays together, for the draws that one Zarr chunk holds
LARGEST_CHUNK = 2**28  # bytes of one chunk of one array: a single draw larger than that is cut
PUBLISH_SECONDS = 2.0  # readers see new draws at least this often,
PUBLISH_SHARE = 0.05  # unless writing would take more than this part of the run

METADATA = "zarr.json"
AWAITS_CHECKPOINT = "awaits_checkpoint"
WRITER = "writer"
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoredArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on disk, axes (chain, draw, ...). It is read when it is used; index it to read a part."""

    def __init__(self, array: Any):
        self._array = array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype = array.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        with _refusing_damage(self._array.store_path):
            return np.asarray(self._array[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("An array on disk is copied when it is read.")
        return np.asarray(self[...], dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        read = (np.asarray(x) if isinstance(x, StoredArray) else x for x in inputs)
        return getattr(ufunc, method)(*read, **options)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a NumPy array can do, such as `mean` and `reshape`: read it all, and do it."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __repr__(self) -> str:
        return f"StoredArray(shape={self.shape}, dtype={self.dtype}, in {self._array.store_path})"


@contextlib.contextmanager
def _refusing_damage(place: Any) -> Iterator[None]:
    """Say of a store that was changed behind our back that it is damaged: Zarr's codecs raise errors of many kinds."""
    try:
        yield
    except (OSError, IndexError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(place) in str(error):
            raise  # it has been explained
        raise ValueError(f"{place} is damaged and cannot be read: {error}.") from error


class StoredRecord(Record):
    """A record that keeps its rows in a store. Memory holds those of one Zarr chunk at most.

    Args:
        url: a path, or a URL that fsspec knows.
        fingerprint: what tells this run from others; it is kept in the store.
        phi: shapes of phi of one chain.
        resume: whether a store of this run may be there already.
        position: with how many of its draws to go on; None starts it anew.
        checkpoints: whether the run writes checkpoints.
        held: where to enter what is held until the end of the run.
    """

    on_disk = True

    def __init__(
        self,
        program: Program,
        kept: KeptSteps,
        step_sizes: StepSizes,
        url: str | os.PathLike[str],
        fingerprint: dict[str, Any],
        phi: PyTree,
        resume: bool,
        position: int | None,
        checkpoints: bool,
        held: contextlib.ExitStack,
    ):
        super().__init__(program, kept, step_sizes)
        self.store = _Store(os.fspath(url))
        self.place = f"the store {self.store.url}"
        self.waiting: list[tuple[Rows, Counts]] = []
        self.written = position or 0
        self.has_checkpoint = position is not None
        self.layout = _Layout(program, phi if program.keeps_draws else None)
        self.writes = jax.process_index() == 0  # of several processes, one
        self.published = time.perf_counter()
        self.pause = PUBLISH_SECONDS
        if self.writes:
            self.store.refuse_files()
        hold(held, url, "store")
        if self.writes:
            with self._explained(), _refusing_damage(self.store.url):
                self.store.begin(self.layout, fingerprint, resume, position, checkpoints)

    @property
    def num_draws(self) -> int:
        return self.written + sum(len(counts) for _, counts in self.waiting)

    def keep(self, rows: Rows, counts: Counts) -> None:
        done, length = 0, self.layout.chunk_draws
        while done < len(counts):
            room = length - self.num_draws % length
            part = slice(done, done + room)
            # A copy, so that what waits does not hold on to the rest.
            self.waiting.append((jax.tree.map(lambda leaf, part=part: leaf[part].copy(), rows), counts[part]))
            done += room
            if self.num_draws % length == 0:
                with self._explained():
                    self._write()
        if time.perf_counter() - self.published > self.pause:
            self.flush()

    def flush(self) -> None:
        """Write all that waits, and let readers see it."""
        clock = time.perf_counter()
        with self._explained():
            self._write()
            if self.writes:
                if self.has_checkpoint:
                    self.store.note_checkpoint()
                self.store.publish()
        self.published = time.perf_counter()
        self.pause = max(PUBLISH_SECONDS, (self.published - clock) / PUBLISH_SHARE)

    def _write(self) -> None:
        if not self.waiting:
            return
        counts = [counts for _, counts in self.waiting]
        if self.writes:
            rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(rows for rows, _ in self.waiting))
            sizes = self.step_sizes.of_draws(counts, self.program.num_chains, self.written)
            columns = self.layout.columns(rows, counts, self.written, sizes)
            with _refusing_damage(self.store.url):
                self.store.write(columns, self.written)
        self.waiting = []  # only now, so that an error loses nothing that waits
        self.written += sum(map(len, counts))

    def close(self) -> None:
        if not self.store.broken:
            self.flush()

    def snapshot(self) -> list[np.ndarray]:
        """Nothing: the draws are on disk, and a checkpoint needs their number only."""
        self.flush()
        self.has_checkpoint = True  # soon; the store says so from the next flush on, when it has been written
        return []

    def draws(self, num_steps: int, state: Any, collected: Any, seconds: float) -> Draws:
        self.close()
        self._wait_for_the_writer()
        arrays = {path: StoredArray(self.store.open(path)) for path in self.layout.arrays}
        names, treedef = self.layout.names, self.layout.treedef
        theta = phi = None
        if self.program.keeps_draws:
            leaves = [arrays[f"posterior/{name}"] for name in names]
            theta = jax.tree.unflatten(treedef, leaves)
            proxies = [arrays.get(f"unconstrained_posterior/{n}", x) for n, x in zip(names, leaves, strict=True)]
            phi = jax.tree.unflatten(treedef, proxies)
        stats = {path.partition("/")[2]: x for path, x in arrays.items() if path.startswith("sample_stats/")}
        stats = {name: stats[name] for name in reported(self.program.kernel)}
        return self.as_draws(phi, stats, num_steps, state, collected, seconds, theta)

    def _wait_for_the_writer(self) -> None:
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            multihost_utils.sync_global_devices("inbounds: the store is written")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of a full disk what it means, once."""
        try:
            yield
        except OSError as error:
            if error.errno not in FULL_DISK or self.store.broken:
                raise
            self.store.broken = True
            self.store.salvage(self.written)
            raise OSError(
                error.errno,
                f"The disk is full ({os.strerror(error.errno)}): the store {self.store.url} cannot grow. Its first "
                f"{self.store.length:,} draws per chain are whole and readable. Make room, and go on with resume=True "
                "where there is a checkpoint",
            ) from error


class _Layout:
    """Which arrays the store has, and how rows become their columns."""

    def __init__(self, program: Program, phi: PyTree):
        self.program = program
        chains = program.num_chains
        number = np.dtype(np.float32)
        self.arrays: dict[str, tuple[tuple[int, ...], np.dtype]] = {}  # shape of one chain's draw, dtype
        self.names: list[str] = []
        self.treedef = None
        if phi is not None:
            leaves, self.treedef = jax.tree.flatten(phi)
            self.names = array_names([variable_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(phi)])
            constrain = program.kernel.of_proxy
            theta = jax.tree.leaves(jax.eval_shape(constrain, phi))
            number = np.dtype(leaves[0].dtype)
            for name, leaf in zip(self.names, theta, strict=True):
                self.arrays[f"posterior/{name}"] = (leaf.shape, np.dtype(leaf.dtype))
            for name, leaf, changed in zip(self.names, leaves, _changed(constrain, phi), strict=True):
                if changed:
                    self.arrays[f"unconstrained_posterior/{name}"] = (leaf.shape, np.dtype(leaf.dtype))
        for name in reported(program.kernel):
            shape = (program.dimension,) if name in program.kernel.vectors else ()
            self.arrays[f"sample_stats/{name}"] = (shape, number)
        self.groups = sorted({path.partition("/")[0] for path in self.arrays})
        width = chains * sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.arrays.values())
        self.chunk_draws = max(1, min(2**16, CHUNK_BYTES // width))

    def chunk_shape(self, path: str) -> tuple[int, ...]:
        shape, dtype = self.arrays[path]
        chunk = [self.program.num_chains, self.chunk_draws, *shape]
        for axis in (0, *range(2, len(chunk))):  # a single draw may be too large for a chunk
            excess = math.prod(chunk) * dtype.itemsize / LARGEST_CHUNK
            if excess > 1:
                chunk[axis] = max(1, int(chunk[axis] / excess))
        return tuple(max(1, length) for length in chunk)

    def columns(self, rows: Rows, counts: list[Counts], first: int, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays (chain, draw, ...) by path, of rows that begin at draw number `first` and were made with these step sizes."""
        rows = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), rows)
        columns: dict[str, np.ndarray] = {}
        stats = statistics(rows, (self.program.num_chains, sum(map(len, counts))))
        if self.treedef is not None:
            phi = phi_of(self.program.kernel, rows.moving, first)
            theta = theta_of(self.program.kernel, phi, first)
            for name, leaf in zip(self.names, jax.tree.leaves(theta), strict=True):
                columns[f"posterior/{name}"] = leaf
            for name, leaf in zip(self.names, jax.tree.leaves(phi), strict=True):
                if f"unconstrained_posterior/{name}" in self.arrays:
                    columns[f"unconstrained_posterior/{name}"] = leaf
        stats["step_size"] = sizes
        return columns | {f"sample_stats/{name}": value for name, value in stats.items()}


def _changed(constrain: Any, phi: PyTree) -> list[bool]:
    """For every leaf, whether theta is another number than phi."""
    jaxpr = jax.make_jaxpr(constrain)(phi).jaxpr
    return [out is not into for out, into in zip(jaxpr.outvars, jaxpr.invars, strict=True)]


def refuse_what_is_there(url: str) -> None:
    """Raise a ValueError where a store cannot be made: for those who have long work to do before."""
    store = _Store(url)
    store.refuse_files()
    with _refusing_damage(url):
        store.refuse_what_is_there()


def remove(url: str) -> None:
    """Remove a store that a run of ours left, if there is one."""
    _Store(url).remove()


class _Store:
    """The Zarr store itself: made, cut to a length, appended to, published."""

    def __init__(self, url: str):
        self.url = url
        self.staged = _Staged(_open(url))
        self.arrays: dict[str, Any] = {}
        self.length = 0  # that readers see
        self.broken = False
        self.writer = uuid.uuid4().hex

    def begin(
        self, layout: _Layout, fingerprint: dict[str, Any], resume: bool, position: int | None, checkpoints: bool
    ) -> None:
        found = self._attributes()
        if found is None and position is not None:
            raise ValueError(f"The checkpoint counts {position:,} draws in the store {self.url}, which is not there.")
        if found is None or not resume:
            self.refuse_what_is_there()
        else:
            foreign = differences(found.get("run", {}), fingerprint)
            if foreign:
                raise ValueError(f"The store {self.url} is of another run: {'; '.join(foreign)}.")
            if position is None and not found.get(AWAITS_CHECKPOINT) and self._num_draws():
                raise ValueError(
                    f"The store {self.url} holds {self._num_draws():,} draws per chain, and no checkpoint of their run was found "
                    "in the folder given as `checkpoint`. Give the folder of that run's checkpoints to go on with it; to begin "
                    "anew, give another `store`, or delete this one."
                )
        self._drop_partial_files()
        if position is None:
            self._create(layout, fingerprint, checkpoints)
        else:
            self._cut(layout, position)
            self._note(WRITER, self.writer)
            sync(self.staged.publish())
        self.publish()

    def refuse_what_is_there(self) -> None:
        """Raise a ValueError where a store cannot be made anew."""
        if self._attributes() is not None:
            raise ValueError(
                f"The store {self.url} exists. Give another name; or go on with the run that made it, with resume=True "
                "and its checkpoint."
            )
        if not self._is_empty():
            raise ValueError(f"{self.url} holds something else. Give `store` a name that is not taken.")

    def remove(self) -> None:
        """Remove a store of ours, if there is one."""
        if self._attributes() is not None:
            sync(self.staged.clear())

    def refuse_files(self) -> None:
        inner = self.staged.inner
        if isinstance(inner, LocalStore):
            for path in (inner.root, *inner.root.parents):
                if path.is_file():
                    raise ValueError(
                        f"The store {self.url} cannot be made: {path} is a file. Give the name of a folder."
                    )

    def _num_draws(self) -> int:
        """Of each chain, that are in the store already."""
        document = sync(self.staged.get(f"sample_stats/draw/{METADATA}", default_buffer_prototype()))
        return 0 if document is None else json.loads(document.to_bytes())["shape"][0]

    def note_checkpoint(self) -> None:
        """From now on only that checkpoint says how to go on: without it, the draws are not to be replaced."""
        self._note(AWAITS_CHECKPOINT, False)

    def _note(self, name: str, value: Any) -> None:
        """An attribute of the root, from the next `publish` on."""
        root = json.loads(self.staged.metadata[METADATA])
        root["attributes"][name] = value
        self.staged.metadata[METADATA] = json.dumps(root).encode()

    def _refuse_to_share(self) -> None:
        """Raise a ValueError where another run has begun to write to the store."""
        document = sync(self.staged.inner.get(METADATA, default_buffer_prototype()))
        if document is None or json.loads(document.to_bytes())["attributes"].get(WRITER) != self.writer:
            raise ValueError(
                f"Another run has written to the store {self.url}, or it has been removed: this run stops, and its draws there "
                "are not to be relied on. Begin both anew, each with a `store` of its own."
            )

    def _attributes(self) -> dict[str, Any] | None:
        document = sync(self.staged.get(METADATA, default_buffer_prototype()))
        if document is None:
            return None
        try:
            return dict(json.loads(document.to_bytes())["attributes"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.url} holds something else: its {METADATA} is not one of ours.") from error

    def _is_empty(self) -> bool:
        async def names() -> list[str]:
            return [name async for name in self.staged.list_dir("")]

        # A process killed while it wrote the first file leaves a part of it.
        return all(name == LOCK or name.endswith(".partial") for name in sync(names()))

    def _drop_partial_files(self) -> None:
        """What a killed process was writing, under a name of its own until it would have been whole."""
        inner = self.staged.inner
        if isinstance(inner, LocalStore) and Path(inner.root).is_dir():
            for path in Path(inner.root).rglob("*.partial"):
                path.unlink(missing_ok=True)

    def _create(self, layout: _Layout, fingerprint: dict[str, Any], checkpoints: bool) -> None:
        if self._attributes() is not None:
            sync(self.staged.clear())
        program = layout.program
        attributes = {
            "inference_library": "inbounds",
            "kernel": program.kernel.name,
            "thin": program.thin,
            "run": fingerprint,
            # Until the first of them there is nothing to go on from but the beginning.
            AWAITS_CHECKPOINT: checkpoints,
            WRITER: self.writer,
        }
        zarr.create_group(self.staged, attributes=attributes)
        sync(self.staged.publish())  # the root first: it says whose the rest is
        options: dict[str, Any] = dict(compressors=ZstdCodec(level=1, checksum=True), fill_value=np.nan)
        for group in layout.groups:
            zarr.create_group(self.staged, path=group, attributes={"inference_library": "inbounds"})
            chains = np.arange(program.num_chains)
            zarr.create_array(self.staged, name=f"{group}/chain", data=chains, dimension_names=["chain"])
            self.arrays[f"{group}/draw"] = zarr.create_array(
                self.staged, name=f"{group}/draw", shape=(0,), chunks=(layout.chunk_draws,), dtype=np.int64,
                dimension_names=["draw"], fill_value=-1,
            )  # fmt: skip
        for path, (shape, dtype) in layout.arrays.items():
            name = path.partition("/")[2]
            self.arrays[path] = zarr.create_array(
                self.staged, name=path, shape=(program.num_chains, 0, *shape), chunks=layout.chunk_shape(path), dtype=dtype,
                dimension_names=["chain", "draw", *(f"{name}_dim_{axis}" for axis in range(len(shape)))], **options,
            )  # fmt: skip

    def _cut(self, layout: _Layout, position: int) -> None:
        paths = [*layout.arrays, *(f"{group}/draw" for group in layout.groups)]
        self.arrays = {path: zarr.open_array(self.staged, path=path, mode="r+", zarr_format=3) for path in paths}
        for group in layout.groups:
            # What is opened here is what `publish` tells readers of, so the numbers of the chains too.
            zarr.open_group(self.staged, path=group, mode="r+", zarr_format=3)
            zarr.open_array(self.staged, path=f"{group}/chain", mode="r+", zarr_format=3)
        shortest = min(array.shape[_draw_axis(array)] for array in self.arrays.values())
        if shortest < position:
            raise ValueError(
                f"The store {self.url} holds {shortest:,} draws per chain; the checkpoint counts {position:,}. It is not "
                "the store that the run wrote, or part of it is lost."
            )
        sync(_all(_resize(array, position) for array in self.arrays.values()))

    def write(self, columns: dict[str, np.ndarray], first: int) -> None:
        """Append, beyond the length that readers see until `publish`."""
        self._refuse_to_share()
        end = first + next(iter(columns.values())).shape[1]
        numbers = np.arange(first, end)[None]
        sync(_all(_append(array, columns.get(path, numbers), first, end) for path, array in self.arrays.items()))

    def publish(self) -> None:
        self._refuse_to_share()
        sync(self.staged.publish())
        self.length = min(array.shape[_draw_axis(array)] for array in self.arrays.values())

    def salvage(self, length: int) -> None:
        """Let readers see the first `length` draws, which are written, on a disk without room: what is beyond goes first."""
        with contextlib.suppress(Exception):  # then they see what they saw before
            sync(_all(_resize(array, length) for array in self.arrays.values()))
            sync(self.staged.delete_now())
            self.publish()

    def open(self, path: str) -> Any:
        """An array as readers see it."""
        # Format 3 by name: metadata of format 2 may ask for a codec that unpickles.
        return zarr.open_array(_open(self.url, read_only=True), path=path, mode="r", zarr_format=3)


def _draw_axis(array: Any) -> int:
    return 0 if array.ndim == 1 else 1


async def _append(array: Any, values: np.ndarray, first: int, end: int) -> None:
    """Write draws number `first` to `end` of one array; values have the axes (chain, draw, ...)."""
    await _resize(array, end)
    index = (slice(None), slice(first, end)) if array.ndim > 1 else slice(first, end)
    await array.async_array.setitem(index, values if array.ndim > 1 else values[0])


async def _resize(array: Any, length: int) -> None:
    axis = _draw_axis(array)
    await array.async_array.resize((*array.shape[:axis], length, *array.shape[axis + 1 :]))


async def _all(tasks: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Do all at once, wait for all, and then raise the first error."""
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _open(url: str, read_only: bool = False) -> Any:
    """A Zarr store. Local folders never go through fsspec, which does not write files in one piece."""
    folder = local_folder(url)
    if folder is None:
        return FsspecStore.from_url(url, read_only=read_only)
    return LocalStore(folder, read_only=read_only)


class _Staged(WrapperStore[Any]):
    """A store whose data are written at once, and whose metadata and deletions wait for `publish`."""

    def __init__(self, store: Any):
        super().__init__(store)
        self.metadata: dict[str, bytes] = {}
        self.unpublished: set[str] = set()
        self.deleted: set[str] = set()

    @property
    def inner(self) -> Any:
        return self._store

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if key in self.metadata:
            return prototype.buffer.from_bytes(self.metadata[key])
        if key in self.deleted:
            return None
        value = await self._store.get(key, prototype, byte_range)
        if value is not None and _is_metadata(key):
            self.metadata[key] = value.to_bytes()
        return value

    async def exists(self, key: str) -> bool:
        return key in self.metadata or (key not in self.deleted and await self._store.exists(key))

    async def set(self, key: str, value: Any) -> None:
        if _is_metadata(key):
            self.metadata[key] = value.to_bytes()
            self.unpublished.add(key)
        else:
            await self._store.set(key, value)
            self.deleted.discard(key)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self.deleted.add(key)

    async def clear(self) -> None:
        if isinstance(self._store, LocalStore):
            for path in self._store.root.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != LOCK:  # we hold it
                    path.unlink()
        else:
            await self._store.clear()
        self.metadata, self.unpublished, self.deleted = {}, set(), set()

    async def publish(self) -> None:
        """Show readers what has been written: arrays, then groups, then the root, and only then delete."""
        documents = {key: json.loads(text) for key, text in self.metadata.items()}
        groups = {key for key, document in documents.items() if document["node_type"] == "group"}
        await _all(self._put(key, documents[key]) for key in self.unpublished - groups)
        for key in sorted(groups, key=lambda key: -key.count("/")):
            await self._put(key, _consolidated(key, documents))
        self.unpublished = set()
        await self.delete_now()

    async def delete_now(self) -> None:
        await _all(self._store.delete(key) for key in self.deleted)
        self.deleted = set()

    async def _put(self, key: str, document: dict[str, Any]) -> None:
        text = json.dumps(document, indent=2).encode()
        await self._store.set(key, default_buffer_prototype().buffer.from_bytes(text))


def _is_metadata(key: str) -> bool:
    return key == METADATA or key.endswith("/" + METADATA)


def _consolidated(key: str, documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The document of a group with those of all that is below it, as zarr-python writes and reads them."""
    prefix = key.removesuffix(METADATA)
    below = {
        other.removeprefix(prefix).removesuffix("/" + METADATA): _with_members(document, {})
        for other, document in sorted(documents.items())  # siblings side by side, as readers expect them
        if other != key and other.startswith(prefix)
    }
    return _with_members(documents[key], below)


def _with_members(document: dict[str, Any], members: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if document["node_type"] == "array":
        return document
    return document | {"consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": members}}
