"""Data in memory: what users give as arrays, and the minibatches that are made of them on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.arguments import whole_number
from inbounds.data.columns import check_order, columns_of, is_column, is_lazy, is_listing, is_table, numbers_of
from inbounds.data.source import RowsOnDisk, Source
from inbounds.engine import Plain, here
from inbounds.engine.generator import threefry
from inbounds.engine.plain import rows_of
from inbounds.trees import PyTree, size, variable_name

__all__ = [
    "Epochs",
    "Generated",
    "NoData",
    "Sweeps",
    "WithReplacement",
    "at_hand",
    "check_batch",
    "check_data",
    "is_source",
    "is_stream",
    "num_data",
    "source_for",
]

WIDE = 512  # bytes of a datum from which on minibatches are gathered
FEW_ROWS = 2**20  # of which one random word picks one fairly enough: to one part in 4,000


@dataclass(frozen=True)
class Generated(Source):
    """Data that a function draws: `draw(key)` is one minibatch. Emulates gradient noise and simulators.

    The paper's toy experiments add Gaussian noise to exact gradients: `Generated(lambda key: jax.random.normal(key))`
    with `gradient=lambda theta, z: score(theta) + sd * z`.

    Args:
        draw: from a random key to one minibatch.

    Example:
        >>> def gradient(theta, noise):
        ...     return {"x": 1 / theta["x"] - 1 + 0.5 * noise}
        >>> data = ib.data.Generated(jax.random.normal)
        >>> posterior = ib.Posterior(supports={"x": dist.constraints.positive}, gradient=gradient, data=data)
        >>> ib.sample(ib.sgld(posterior), 0.02, 150, burn_in=100, progress=False).num_draws
        50
    """

    draw: Callable[[jax.Array], PyTree]

    @property
    def plan_numbers(self) -> int:
        return _numbers_drawn(self.draw)

    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        return jax.vmap(lambda step: self.draw(jax.random.fold_in(key, step)))(steps)

    def fetch(self, arrays: PyTree, plan: PyTree) -> PyTree:
        return plan


@lru_cache
def _numbers_drawn(draw: Callable[[jax.Array], PyTree]) -> int:
    return size(jax.eval_shape(lambda: draw(jax.random.key(0))))


@dataclass(frozen=True)
class NoData(Source):
    """A target without data: every minibatch is None."""

    plan_numbers = 0

    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        return None

    def fetch(self, arrays: PyTree, plan: PyTree) -> PyTree:
        return None


@dataclass(frozen=True, eq=False)
class _FromArrays(Source):
    """Shared by the sources over arrays: the data, how many rows a minibatch has, and the form that suits the run's devices."""

    data: PyTree
    batch_size: int = field()
    form: Plain = field(default_factory=here)

    @property
    def _reads_device(self) -> bool:
        """Whether `prepare` wants the data as they are, on the device."""
        return True

    def placed(self, data: Callable[[], PyTree]) -> Source:
        return replace(self, data=data()) if self._reads_device else self

    @property
    def _rows(self) -> int:
        result: int = jax.tree.leaves(self.data)[0].shape[0]
        return result

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        """Programs depend on the shapes of the data, never on their values: those are arguments."""
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(self.data))
        return (self.batch_size, shapes, jax.tree.structure(self.data))


@dataclass(frozen=True, eq=False)
class Epochs(_FromArrays):
    """Shuffled epochs, read as contiguous slices.

    The rows are put in random order once and closed to a ring. Each epoch starts at a random place of the ring and walks
    round it, so that every batch is a uniformly placed window. Each row is equally likely in each step, the estimate is
    unbiased, and every batch is full. Where the batch size does not divide the number of rows, the last window of an
    epoch overlaps the first: no ragged batch, no row favoured.

    Wide rows stay where they are, and the ring is one of their numbers: to gather them costs no more than to copy the slice,
    and a shuffled copy would cost memory and the time of many steps.
    """

    plan_numbers = 1

    @property
    def _reads_device(self) -> bool:
        return self._wide or self.form.reads_data_there

    @property
    def _wide(self) -> bool:
        result: bool = sum(leaf.nbytes for leaf in jax.tree.leaves(self.data)) >= WIDE * self._rows
        return result

    def prepare(self, key: jax.Array) -> PyTree:
        ring = self.form.ring(key, self._rows, self.batch_size)
        return jax.device_put((self.data, ring)) if self._wide else self.form.looked_up(self.data, ring)

    @property
    def batches(self) -> int:
        return -(-self._rows // self.batch_size)

    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        offsets = _random_rows(key, steps // self.batches, 1, self._rows)[:, 0]
        return (offsets + (steps % self.batches) * self.batch_size) % self._rows

    def fetch(self, arrays: PyTree, plan: PyTree) -> PyTree:
        def window(leaf: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(leaf, plan, self.batch_size)

        if self._wide:
            data, ring = arrays
            return rows_of(data, window(ring))
        return jax.tree.map(window, arrays)


@dataclass(frozen=True, eq=False)
class Sweeps(Epochs):
    """Epochs that are read forwards and then backwards, each pair from a random place of the ring.

    At the end of a sweep what the order of the minibatches did to the chain has been undone but for a remnant of second order in the
    length of the sweep, whatever their noise and its correlations are. So only draws at the ends of sweeps are good.
    """

    @property
    def cycle(self) -> int:
        return 2 * self.batches

    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        offsets = _random_rows(key, steps // self.cycle, 1, self._rows)[:, 0]
        place = steps % self.cycle
        place = jnp.minimum(place, self.cycle - 1 - place)
        return (offsets + place * self.batch_size) % self._rows


@dataclass(frozen=True, eq=False)
class WithReplacement(_FromArrays):
    """Rows drawn uniformly with replacement: minibatches independent of each other, as noise correction assumes."""

    @property
    def plan_numbers(self) -> int:
        return self.batch_size

    def prepare(self, key: jax.Array) -> PyTree:
        return jax.device_put(self.data)

    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        return _random_rows(key, steps, self.batch_size, self._rows)

    def fetch(self, arrays: PyTree, plan: PyTree) -> PyTree:
        return rows_of(arrays, plan)


def _random_rows(key: jax.Array, numbers: jax.Array, count: int, rows: int) -> jax.Array:
    """`count` row numbers for each of `numbers`, which all keys and numbers have their own of; axes (number, count).

    Cheaper to run and to compile than a key and a `jax.random.randint` for each.
    """
    words = jax.random.key_data(key)
    which = jax.lax.broadcasted_iota(np.uint32, (*numbers.shape, count), 1)
    bits, more = threefry(words[0], words[1], jnp.broadcast_to(numbers.astype(np.uint32)[:, None], which.shape), which)
    picked = bits % np.uint32(rows)
    if rows > FEW_ROWS:  # one remainder favours the first rows by up to rows / 2**32, the sum of two hardly any
        picked = (picked + more % np.uint32(rows)) % np.uint32(rows)
    result: jax.Array = picked.astype(np.int32)
    return result


BATCHING: dict[str, Callable[..., Source]] = {
    "epochs": Epochs,
    "sweeps": Sweeps,
    "replacement": WithReplacement,
}


def source_for(data: PyTree, batch_size: int | None, batching: str, form: Plain | None = None) -> Source:
    """The source that `sample` uses for these data on devices that compute in this form, by default JAX's own choice."""
    if data is None:
        if batch_size is not None:
            raise ValueError(f"batch_size={batch_size}, but the posterior has no data. Leave `batch_size` out.")
        return NoData()
    if is_stream(data):
        return data.source(batch_size, batching)
    if isinstance(data, Source):
        return data
    rows = num_data(data)
    assert rows is not None
    check_batch(batch_size, batching, rows)
    size = rows if batch_size is None else int(batch_size)
    return BATCHING[batching](data, size, form or here())


def check_batch(batch_size: int | None, batching: str, rows: int) -> None:
    """Raise a ValueError where minibatches cannot be made so of `rows` rows."""
    size = rows if batch_size is None else whole_number("batch_size", batch_size)
    if size > rows:
        raise ValueError(f"batch_size={size:,} is larger than the data, {rows:,} rows. Use at most {rows:,}.")
    if batching not in BATCHING:
        raise ValueError(f"Unknown batching {batching!r}. Known: {', '.join(BATCHING)}.")


def is_source(data: Any) -> bool:
    """Whether minibatches come from something else than arrays."""
    return isinstance(data, Source | RowsOnDisk)


def is_stream(data: Any) -> TypeGuard[RowsOnDisk]:
    """Whether the rows are on disk (`inbounds.data.stream`)."""
    return isinstance(data, RowsOnDisk)


def at_hand(data: PyTree, rows: int) -> PyTree:
    """Data for a look at the model: of a stream so many rows from random places, anything else as it is."""
    return data.look(rows) if is_stream(data) else data


def num_data(data: PyTree) -> int | None:
    """Number of rows; None without data or where a source does not say (its gradient is taken as it is)."""
    if data is None:
        return None
    if isinstance(data, Source | RowsOnDisk):
        return data.num_data
    return int(jax.tree.leaves(data)[0].shape[0])


def check_data(data: PyTree) -> PyTree:
    """The data as arrays, after a look for what goes wrong silently later: unequal lengths, NaN, no rows."""
    if data is None or is_source(data):
        return data
    arrays = _as_arrays(data)
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    if not leaves:
        raise ValueError("`data` holds no array. Give a tree of arrays, or None for a target without data.")
    lengths = {}
    for path, leaf in leaves:
        name = variable_name(path) if path else "data"
        if leaf.ndim == 0:
            raise ValueError(f"Data {name!r} is a scalar: the leading axis of every array must be that of the rows.")
        lengths[name] = leaf.shape[0]
        if leaf.size and np.issubdtype(leaf.dtype, np.inexact):
            finite = np.isfinite(np.asarray(leaf)).reshape(leaf.shape[0], -1).all(axis=1)
            if not finite.all():
                bad = np.flatnonzero(~finite)
                raise ValueError(
                    f"Data {name!r} hold NaN or infinity in {bad.size:,} of {finite.size:,} rows, the first of them row "
                    f"{bad[0]:,}. Remove or impute those rows: one of them makes every gradient NaN."
                )
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name!r} {length:,}" for name, length in lengths.items())
        raise ValueError(
            f"Data of unequal length: {listing}. The leading axis of every array must be that of the rows."
        )
    if next(iter(lengths.values())) == 0:
        raise ValueError("`data` has no rows. Give at least one row, or None for a target without data.")
    return arrays


def _as_arrays(data: PyTree) -> PyTree:
    """The data as arrays: of a table every column by its name, of a list of numbers one array."""
    leaves = jax.tree_util.tree_leaves_with_path(data, is_leaf=_is_foreign)
    check_order([(variable_name(path) if path else "data", leaf) for path, leaf in leaves])
    return jax.tree_util.tree_map_with_path(_from_foreign, data, is_leaf=_is_foreign)


def _is_foreign(data: Any) -> bool:
    return is_table(data) or is_column(data) or is_listing(data) or _is_nested(data)


def _is_nested(data: Any) -> bool:
    return type(data) is list and bool(data) and all(type(row) is list and is_listing(row) for row in data)


def _from_foreign(path: tuple[Any, ...], leaf: Any) -> Any:
    name = f"Data {variable_name(path)!r}" if path else "`data`"
    if is_table(leaf):
        return jax.tree.map(_as_array, columns_of(leaf))
    if is_column(leaf) or is_listing(leaf):
        return _as_array(numbers_of(leaf, name))
    if _is_nested(leaf):
        raise ValueError(
            f"{name} is a list of lists: rows, or columns? Make an array of it (np.asarray(rows)), or a dict or a tuple of columns."
        )
    if is_lazy(leaf):
        raise ValueError(
            f"{name} is a {type(leaf).__name__}, which has not been read. Read it first: `.collect()` or `.compute()`."
        )
    return _as_array(leaf)


def _as_array(leaf: Any) -> Any:
    """Keep JAX arrays where they are; everything else becomes NumPy in the precision that JAX computes in."""
    if isinstance(leaf, jax.Array):
        return leaf
    if np.ma.is_masked(leaf):
        raise ValueError("Data hold masked values, which arrays of JAX cannot. Remove or impute those rows.")
    array = np.asarray(leaf)
    if array.dtype == object or array.dtype.kind in "USVMm":
        if array.ndim == 0:
            raise ValueError(f"Data must be numeric arrays; got {type(leaf).__name__}. Make an array of it.")
        raise ValueError(f"Data must be numeric arrays; got dtype {array.dtype}. Encode categories as integers.")
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if array.dtype.kind in "iu" and array.size and dtype.itemsize < array.dtype.itemsize:
        for end in (array.min(), array.max()):
            if not np.iinfo(dtype).min <= end <= np.iinfo(dtype).max:
                raise ValueError(
                    f"Data hold {end}, which does not fit {dtype}: number labels from 0, or enable 64 bits in JAX."
                )
    return array.astype(dtype, copy=False)
