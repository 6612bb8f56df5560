"""Minibatches from data larger than memory.

    posterior = ib.Posterior(priors, log_likelihood, data=ib.data.stream("ratings/*.parquet", columns=["user", "item", "rating"]))
    draws = ib.sample(ib.sgld(posterior), 1e-6, 10_000, batch_size=1_000)

The minibatch of a step is a pure function of the seed, the chain and the number of the step, so the number of the step is
the whole cursor: a run can go on from any step. Rows are read in *pieces* (`pieces.py`), contiguous on disk, because single rows of a
file are slow to reach. In each epoch

1. the pieces are put in random order, and the order is closed to a ring;
2. neighbours on the ring are joined to *windows* of many pieces, and the rows of a window are shuffled;
3. the epoch starts at a uniformly random row of the ring and walks round it once.

So every row comes exactly once in an epoch, batches run over the border of two epochs and are always full, and, because of the
random start, each row is equally likely in each step whatever the sizes of the pieces: the gradient is unbiased.

A background thread, run by Grain, fills a buffer with the minibatches of the next steps while the device computes on the
one before it. The driver asks for the buffer of a step through a `Feed`.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.data.arrays import Epochs
from inbounds.data.source import Feed, RowsOnDisk, Source
from inbounds.engine import here
from inbounds.trees import PyTree

if TYPE_CHECKING:  # what reads files is imported when there are some
    from inbounds.data.pieces import Leaves, Pieces

__all__ = ["Buffers", "MappedEpochs", "Stream", "StreamedBatches", "stream"]

WINDOW_BYTES = 1 << 25
BUFFERS = 3  # one in use, one ready, one being filled
MOST_STEPS = 4_096  # in a buffer
MOST_MAPPED = 1 << 29  # rows that 32 bits can do arithmetic on
GROUP = 64  # batches with replacement that are drawn at once
LOOKED_AT = 1_000  # rows of an array by which a cache knows it again


def stream(
    where: Any,
    columns: Any = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    shuffled: bool = False,
    window: int | None = None,
    memory: int = 3 << 26,
) -> Stream:
    """Data on disk, for `Posterior(data=...)`.

    Args:
        where: Parquet or Arrow files: one path, a list, a folder or a glob pattern. Or arrays: the path of a `.npy` file, or a
            tree (`{"x": "x.npy", "y": "y.npy"}`) of paths or of memory maps. Or a folder that `cache` has made.
        columns: of Parquet and Arrow files, a list of columns, or a dict: `{"x": ["x0", "x1"], "y": "label"}` puts columns
            side by side in one array. None takes all.
        cache: a folder that holds, or will hold, the rows decoded and in one random order. It is made once, in bounded
            memory, and read as fast as arrays in memory; it also permits batches drawn with replacement.
        shuffled: the rows are in random order on disk already, so pieces need no mixing.
        window: how many rows are mixed at a time; None: as many as make 32 MB, and at least one piece.
        memory: bytes for minibatches that are prepared ahead, for each chain.

    Raises:
        DataError: a file is missing, damaged, or does not fit the others. What is found later, while a run reads, names the
            file and the place.

    Returns:
        What `Posterior(data=...)` takes.

    Example:
        >>> np.save("spent.npy", np.ones(1_000, np.float32))
        >>> ib.data.stream("spent.npy").num_data
        1000
    """
    if window is not None and window < 1:
        raise ValueError(f"`window` must be at least 1 row; got {window}.")
    if memory < BUFFERS:
        raise ValueError(f"`memory` must be a number of bytes; got {memory}.")
    from inbounds.data.pieces import open_pieces, shuffled_copy

    pieces = open_pieces(where, columns, shuffled)
    if cache is not None:
        pieces = shuffled_copy(pieces, cache, _origin(where, columns))
    return Stream(pieces, window, memory)


class Stream(RowsOnDisk):
    """Rows on disk. `stream` makes one."""

    def __init__(self, pieces: Pieces, window: int | None, memory: int):
        self.pieces, self.memory = pieces, memory
        self.window = 1 if pieces.shuffled else window or max(1, WINDOW_BYTES // pieces.row_bytes)
        self.num_data = pieces.num_rows

    def source(self, batch_size: int | None, batching: str) -> StreamedBatches | MappedEpochs:
        if batch_size is None:
            raise ValueError(f"Say how many of the {self.num_data:,} rows on disk a minibatch has: batch_size=1_000.")
        if (
            isinstance(batch_size, bool)
            or not isinstance(batch_size, int | np.integer)
            or not 1 <= batch_size <= self.num_data
        ):
            raise ValueError(f"`batch_size` must be a whole number from 1 to {self.num_data:,}; got {batch_size!r}.")
        if batching not in ("epochs", "replacement"):
            raise ValueError(f"Unknown batching {batching!r}. Known: epochs, replacement.")
        if batching == "replacement" and self.pieces.whole is None:
            raise ValueError(
                "Batches drawn with replacement need rows at random places, which these files cannot give quickly. Keep the rows "
                'in a folder with ib.data.stream(..., cache="folder"); or take batching="epochs": its minibatches are '
                "not independent, so a kernel that corrects for gradient noise is then slightly off."
            )
        if batching == "epochs" and self._is_in_reach():
            return MappedEpochs(jax.tree.unflatten(self.pieces.treedef, self.pieces.whole or []), int(batch_size))
        return StreamedBatches(self, int(batch_size), batching)

    def _is_in_reach(self) -> bool:
        """Whether the device can read the files by itself: rows in random order, mapped into the memory of the only device."""
        whole, dtypes = self.pieces.whole, self.pieces.dtypes
        if not self.pieces.shuffled or whole is None or self.num_data >= MOST_MAPPED:
            return False
        alike = all(leaf.dtype == dtype for leaf, dtype in zip(whole, dtypes, strict=True))
        return alike and here().reads_files and jax.device_count() == 1

    def slices(self, rows: int) -> Iterator[PyTree]:
        from inbounds.data.pieces import slices

        for leaves in slices(self.pieces, rows):
            yield jax.tree.unflatten(self.pieces.treedef, leaves)

    def look(self, rows: int, seed: int = 0) -> PyTree:
        if rows >= self.num_data:
            return next(self.slices(self.num_data))
        order = _Epochs(self.pieces, self.window, (seed,))
        out = _memory(self.pieces, (rows,))
        _fill(order, 0, out)
        return jax.tree.unflatten(self.pieces.treedef, out)

    def __repr__(self) -> str:
        """In words what decides the minibatches, beside the seed: a checkpoint is refused for a stream with others."""
        pieces = self.pieces
        content = f"{self.num_data:,} rows of {', '.join(pieces.names)} in {len(pieces.sizes):,} pieces"
        return f"Stream({content}, windows of {self.window:,}, checksum {pieces.checksum:08x})"


class MappedEpochs(Epochs):
    """Epochs over memory maps of rows in random order, which the device reads by itself: nothing is copied on the way.

    The rows are a ring, closed by a seam: the last rows and the first ones, side by side. Where the batch size divides the rows, every
    epoch starts at a random place of it; where not, the batches go round without end from one random place, and the cuts
    between them shift by themselves. Either way each row comes once an epoch, and is equally likely in each step.
    """

    def prepare(self, key: jax.Array) -> PyTree:
        size = self.batch_size
        seam = jax.tree.map(lambda leaf: jnp.asarray(np.concatenate([leaf[-size:], leaf[:size]])), self.data)
        return {"rows": jax.tree.map(jax.device_put, self.data), "seam": seam}

    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        rows = self._rows
        if rows % self.batch_size == 0:
            return super().plan(key, steps)
        # steps * batch_size modulo rows, doubling and adding: the product itself would overflow.
        place = jnp.zeros_like(steps)
        for bit in f"{self.batch_size:b}":
            place = (2 * place + (steps % rows if bit == "1" else 0)) % rows
        return (place + jax.random.randint(key, (), 0, rows)) % rows

    def fetch(self, arrays: PyTree, plan: PyTree) -> PyTree:
        last = self._rows - self.batch_size

        def cut(tree: PyTree, start: jax.Array) -> PyTree:
            return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, self.batch_size), tree)

        return jax.lax.cond(plan > last, lambda: cut(arrays["seam"], plan - last), lambda: cut(arrays["rows"], plan))


@dataclass(frozen=True, eq=False)
class StreamedBatches(Source):
    """Minibatches of a stream, of one size. Its arrays come buffer by buffer."""

    stream: Stream
    batch_size: int = field()
    batching: str = "epochs"

    def prepare(self, key: jax.Array) -> PyTree:
        """Shapes only: the arrays come from the feed."""
        pieces, axes = self.stream.pieces, (1, 1, self.batch_size)
        both = zip(pieces.shapes, pieces.dtypes, strict=True)
        batches = [jax.ShapeDtypeStruct((*axes, *shape), dtype) for shape, dtype in both]
        return {"first": jax.ShapeDtypeStruct((), np.int32), "batches": jax.tree.unflatten(pieces.treedef, batches)}

    def words(self, num_chains: int, words: np.ndarray) -> Any:
        """The numbers of the chains: what is random is decided on the host."""
        return jnp.arange(num_chains)

    def key(self, words: jax.Array) -> jax.Array:
        return words

    plan_numbers = 2

    def plan(self, chain: jax.Array, steps: jax.Array) -> PyTree:
        return {"chain": jnp.broadcast_to(chain, steps.shape), "step": steps}

    def fetch(self, arrays: PyTree, plan: PyTree) -> PyTree:
        step = plan["step"] - arrays["first"]
        return jax.tree.map(lambda leaf: leaf[plan["chain"], step], arrays["batches"])

    @property
    def most_steps(self) -> int:
        return max(1, min(MOST_STEPS, self.stream.memory // (BUFFERS * self.batch_size * self.stream.pieces.row_bytes)))

    def feed(self, arrays: PyTree, words: np.ndarray, num_chains: int, block_steps: int, num_steps: int) -> Buffers:
        """Buffers for a run, each of whole blocks."""
        blocks = min(self.most_steps // block_steps, -(-num_steps // block_steps))
        steps = max(1, blocks) * block_steps
        key = tuple(map(int, words))
        return Buffers(_Buffers(self, key, num_chains, steps, -(-num_steps // steps)))

    @property
    def _treedef(self) -> Any:
        return self.stream.pieces.treedef

    def _identity(self) -> tuple[Any, ...]:
        """Programs depend on shapes only."""
        pieces = self.stream.pieces
        return (self.batch_size, self.most_steps, tuple(pieces.shapes), tuple(map(str, pieces.dtypes)), self._treedef)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamedBatches) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


class Buffers(Feed):
    """The buffers of a run, one after the other; any step can be asked for."""

    whole = False

    def __init__(self, buffers: _Buffers):
        grain = _grain()
        self._buffers = buffers
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=BUFFERS - 1)
        self._iterator = iter(grain.MapDataset.source(buffers).to_iter_dataset(options))
        self._number, self._next = -1, 0
        self._current: _Buffer | None = None
        self._place: Callable[[PyTree], PyTree] = lambda arrays: arrays

    def through(self, place: Callable[[PyTree], PyTree]) -> Feed:
        self._place = place
        return self

    def arrays(self, step: int, after: Any = None) -> PyTree:
        """The arrays that hold the minibatches of a step.

        `after` is what the computation on the last arrays returned: their memory is filled again once it is ready.
        """
        from inbounds.data.catalog import DataError

        number = step // self._buffers.steps
        if number != self._number:
            jax.block_until_ready(after)
            if self._current is not None:
                self._buffers.free.put(self._current.memory)
                self._current = None
            if number != self._next:
                self._iterator.set_state({"next_index": number})
            try:
                self._current = next(self._iterator)
            except DataError as error:
                raise DataError(str(error)) from None  # without the frames and notes of the thread that met it
            self._number, self._next = number, number + 1
        assert self._current is not None
        return self._place(self._current.arrays)

    def room(self, step: int) -> int:
        """How many steps from `step` on the same arrays serve."""
        return self._buffers.steps - step % self._buffers.steps

    def __exit__(self, *error: object) -> None:
        self._iterator.close()
        self._current = None


class _Buffer(NamedTuple):
    memory: Leaves
    arrays: PyTree


class _Buffers:
    """Buffer `i` holds the minibatches of steps `i * steps` to `(i + 1) * steps`: a random-access source for Grain."""

    def __init__(self, source: StreamedBatches, key: tuple[int, ...], num_chains: int, steps: int, count: int):
        self.source, self.steps, self.count = source, steps, count
        self.free: queue.SimpleQueue[Leaves] = queue.SimpleQueue()
        pieces, size = source.stream.pieces, source.batch_size
        self.shape = (num_chains, steps, size)
        self.orders: list[_Epochs | _Replacement]
        if source.batching == "replacement":
            self.orders = [_Replacement(pieces, GROUP * size, (*key, chain)) for chain in range(num_chains)]
        else:
            self.orders = [_Epochs(pieces, source.stream.window, (*key, chain)) for chain in range(num_chains)]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> _Buffer:
        pieces = self.source.stream.pieces
        try:
            memory = self.free.get_nowait()
        except queue.Empty:
            memory = _memory(pieces, self.shape)
        rows = self.shape[1] * self.shape[2]
        for chain, order in enumerate(self.orders):
            _fill(order, number * rows, [leaf[chain].reshape(rows, *leaf.shape[3:]) for leaf in memory])
        return _Buffer(memory, _on_device(memory, number * self.steps, pieces.treedef))


class _Window(NamedTuple):
    """Rows that are at hand: `leaves[chosen]`, or the leaves as they are where nothing is chosen."""

    leaves: Leaves
    chosen: np.ndarray | None


class _Epochs:
    """Where each position of the endless sequence of epochs lies (see the head of this file)."""

    def __init__(self, pieces: Pieces, window: int, key: tuple[int, ...]):
        self.pieces, self.window, self.key = pieces, window, key
        self.epoch, self.number = -1, -1

    def span(self, position: int) -> tuple[_Window, int, int]:
        """The window that holds a position, the place in it, and how many rows go on from there."""
        rows = self.pieces.num_rows
        epoch, done = divmod(position, rows)
        if epoch != self.epoch:
            self._begin(epoch)
        ring = (self.offset + done) % rows
        number = int(np.searchsorted(self.bounds, ring, side="right")) - 1
        if number != self.number:
            self.now, self.number = self._load(number), number
        return self.now, ring - int(self.bounds[number]), min(int(self.bounds[number + 1]) - ring, rows - done)

    def _begin(self, epoch: int) -> None:
        rng = np.random.default_rng((*self.key, epoch))
        self.offset = int(rng.integers(self.pieces.num_rows))
        self.order = rng.permutation(len(self.pieces.sizes))
        ends = np.cumsum(self.pieces.sizes[self.order])
        starts = ends - self.pieces.sizes[self.order]
        # A window is the pieces that start within one stretch of `window` rows; one piece, where nothing is to be mixed.
        stretches = np.arange(len(starts)) if self.pieces.shuffled else starts // self.window
        self.firsts = np.flatnonzero(np.diff(stretches, prepend=-1))
        self.firsts = np.append(self.firsts, len(self.order))
        self.bounds = np.append(starts[self.firsts[:-1]], ends[-1])
        self.epoch, self.number = epoch, -1
        self.mixes: dict[int, np.ndarray] = {}

    def _load(self, number: int) -> _Window:
        chosen = self.order[self.firsts[number] : self.firsts[number + 1]]
        whole = self.pieces.whole
        if self.pieces.shuffled:
            return _Window(self.pieces.read(chosen[0]), None)
        if whole is None:
            leaves = _join([self.pieces.read(piece) for piece in chosen])
            return _Window(leaves, self._mix(len(leaves[0])))
        for piece in chosen:
            self.pieces.see(piece)
        sizes = self.pieces.sizes[chosen]
        jumps = self.pieces.starts[chosen] - (np.cumsum(sizes) - sizes)
        rows = np.repeat(jumps, sizes) + np.arange(sizes.sum())
        return _Window(whole, rows[self._mix(len(rows))])

    def _mix(self, rows: int) -> np.ndarray:
        """A random order of so many rows. Windows of one size share it: their pieces are random already."""
        if rows not in self.mixes:
            self.mixes = {rows: np.random.default_rng((*self.key, self.epoch, rows)).permutation(rows)}
        return self.mixes[rows]


class _Replacement:
    """Independent rows, uniform over all; drawn for `group` positions at once."""

    def __init__(self, pieces: Pieces, group: int, key: tuple[int, ...]):
        assert pieces.whole is not None
        self.pieces, self.group, self.key, self.number = pieces, group, key, -1

    def span(self, position: int) -> tuple[_Window, int, int]:
        number, inside = divmod(position, self.group)
        if number != self.number:
            rows = np.random.default_rng((*self.key, number)).integers(self.pieces.num_rows, size=self.group)
            for piece in np.unique(np.searchsorted(self.pieces.starts, rows, side="right") - 1):
                self.pieces.see(piece)
            self.now, self.number = _Window(self.pieces.whole or [], rows), number
        return self.now, inside, self.group - inside


def _fill(order: _Epochs | _Replacement, position: int, out: Leaves) -> None:
    """Put the rows from a position on into `out`."""
    done, wanted = 0, len(out[0])
    while done < wanted:
        window, inside, count = order.span(position + done)
        count = min(count, wanted - done)
        for leaf, target in zip(window.leaves, out, strict=True):
            target = target[done : done + count]
            if window.chosen is None:
                target[...] = leaf[inside : inside + count]
            elif leaf.dtype == target.dtype:
                np.take(leaf, window.chosen[inside : inside + count], axis=0, out=target, mode="clip")
            else:
                target[...] = leaf[window.chosen[inside : inside + count]]
        done += count


def _join(parts: list[Leaves]) -> Leaves:
    return [np.concatenate(leaves) if len(leaves) > 1 else leaves[0] for leaves in zip(*parts, strict=True)]


def _memory(pieces: Pieces, shape: tuple[int, ...]) -> Leaves:
    """Room for rows, aligned so that a device that is the host takes it as it is."""
    leaves = []
    for tail, dtype in zip(pieces.shapes, pieces.dtypes, strict=True):
        size = int(np.prod((*shape, *tail))) * dtype.itemsize
        raw = np.empty(size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        leaves.append(raw[start : start + size].view(dtype).reshape(*shape, *tail))
    return leaves


def _on_device(memory: Leaves, first: int, treedef: Any) -> PyTree:
    return {
        "first": jnp.int32(first),
        "batches": jax.tree.unflatten(treedef, [jax.device_put(leaf) for leaf in memory]),
    }


def _origin(where: Any, columns: Any) -> str:
    """What a cache was made from: names, sizes and times of the files, or some rows of the arrays, and what they are called."""
    from inbounds.data.pieces import find_files

    files: list[tuple[Any, ...]] = []
    for leaf in jax.tree.leaves(where):
        if isinstance(leaf, str | os.PathLike):
            for path in find_files(leaf):
                status = path.stat()
                files.append((path.name, status.st_size, status.st_mtime_ns))
        else:
            some = leaf[np.linspace(0, max(0, len(leaf) - 1), min(len(leaf), LOOKED_AT)).astype(int)]
            files.append((str(leaf.dtype), leaf.shape, hashlib.sha256(some.tobytes()).hexdigest()))
    names = [] if isinstance(where, str | os.PathLike) else [str(jax.tree.structure(where))]
    return hashlib.sha256(json.dumps([files, columns, *names], default=str).encode()).hexdigest()


def _grain() -> Any:
    try:
        import grain
    except ImportError as error:
        raise ImportError('data from disk need Grain: pip install "inbounds[stream]"') from error
    return grain
