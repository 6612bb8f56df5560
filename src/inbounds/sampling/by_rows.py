"""A function of theta and of rows, at every draw and every row.

The rows are cut into slices and the draws into tiles, so that memory grows with neither. All calls have one shape, and compile once.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.arguments import whole_number
from inbounds.data.arrays import check_data, is_source, is_stream, num_data
from inbounds.sampling.progress import ProgressBar
from inbounds.trees import PyTree

__all__ = ["ByRows", "rows_of", "takes_a_key"]

MEMORY = 2**28  # bytes in use at once, beside the draws, the data and the result
SHARE = 4  # of them, a slice of rows at all the draws takes one in so many: what is made of it needs room too
TILE_NUMBERS = 2**20  # made in one call
PROBED = 8  # rows at which a function is tried out


class ByRows:
    """`function(theta, batch)` for slices of the rows, at all the draws.

    Args:
        function: `function(theta, batch)`, which returns one value per row, of any shape, or a tree of them; or
            `function(theta, batch, key)`. It is given a key where it takes a third argument: each draw and row has one of its own.
        theta: the draws, a tree of arrays (chain, draw, ...), in memory or on disk.
        data: what `rows_of` returns.
        batch_rows: rows at once; None: as many as `MEMORY` has room for.
        seed: of the keys.
        name: what errors call the function.
        rows_option: what they call `batch_rows`.
    """

    def __init__(
        self, function: Callable[..., Any], theta: PyTree, data: PyTree, batch_rows: int | None, seed: int, name: str,
        rows_option: str = "batch_rows",
    ):  # fmt: skip
        if not callable(function):
            raise ValueError(
                f"`{name}` must be a function of theta and a batch of rows; got {type(function).__name__}."
            )
        self.function, self.name, self.keyed = function, name, takes_a_key(function)
        self.rows_option = rows_option
        self.data = data
        self.num_rows = num_data(data) or 0
        leaves, self._treedef = jax.tree.flatten(theta)
        self._draws = leaves
        self.num_draws = math.prod(leaves[0].shape[:2])
        if not self.num_draws:
            raise ValueError("There are no draws yet: the run was stopped before it kept one.")
        self._base = jax.random.key_data(jax.random.key(seed))
        self.shapes = self._shapes_of_rows()
        self.width = max(1, sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.shapes)))
        self.rows_at_once = self._rows_at_once(batch_rows)

    def slices(self, progress: bool, description: str) -> Iterator[tuple[slice, PyTree]]:
        """(which rows, the values there with the axes (row, ..., draw)); the draws of one chain after the other."""
        if not self.keyed and self.rows_at_once < self.num_rows:
            self._check_rows_are_apart()
        tile, call = self._compiled()
        leaves, treedef = jax.tree.flatten(self.shapes)
        total = self.num_rows * self.num_draws
        bar = ProgressBar(total, 0, progress, description, at_once=False, unit="value")
        with bar:
            for first, count, batch in self._batches():
                held = [np.empty((count, *leaf.shape, self.num_draws), leaf.dtype) for leaf in leaves]
                numbers = np.arange(first, first + self.rows_at_once, dtype=np.uint32)
                for start in range(0, self.num_draws, tile):
                    theta, end = self._tile(start, tile)
                    places = np.arange(start, start + tile, dtype=np.uint32)
                    made = jax.tree.leaves(call(self._base, theta, batch, places, numbers))
                    for whole, part in zip(held, made, strict=True):
                        whole[..., start:end] = np.moveaxis(np.asarray(part)[: end - start, :count], 0, -1)
                    bar.update(count * (end - start))
                yield slice(first, first + count), jax.tree.unflatten(treedef, held)

    def _shapes_of_rows(self) -> PyTree:
        """What the function returns for a row: a tree of `jax.ShapeDtypeStruct`."""
        theta = self._shape_of_draw()
        rows = [_first(self.data, count) for count in (2, 3)]
        made = [jax.eval_shape(partial(self._at, self._base), theta, batch, *_numbers(batch)) for batch in rows]
        for batch, values in zip(rows, made, strict=True):
            wanted = jax.tree.leaves(batch)[0].shape[0]
            for leaf in jax.tree.leaves(values):
                if leaf.ndim == 0 or leaf.shape[0] != wanted:
                    raise ValueError(
                        f"`{self.name}(theta, batch)` must return one value per row: an array whose leading axis is the row, or a tree of "
                        f"them. For a batch of {wanted} rows it returned the shape {leaf.shape}, expected ({wanted}, ...)."
                    )
        if not jax.tree.leaves(made[0]):
            raise ValueError(f"`{self.name}(theta, batch)` returned nothing. Return one value per row.")
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), made[0])

    def _rows_at_once(self, batch_rows: int | None) -> int:
        if batch_rows is not None:
            return int(min(whole_number(self.rows_option, batch_rows), self.num_rows))
        numbers = MEMORY // SHARE // self._bytes_per_row()
        return max(1, min(self.num_rows, numbers))

    def _bytes_per_row(self) -> int:
        per_draw = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.shapes))
        result: int = max(1, per_draw) * self.num_draws
        return result

    def _at(self, base: Any, theta: PyTree, batch: PyTree, draw: Any, rows: Any) -> PyTree:
        """The values of one draw at some rows."""
        if not self.keyed:
            return self.function(theta, batch)
        key = jax.random.fold_in(jax.random.wrap_key_data(base), draw)

        def one(row: PyTree, number: Any) -> PyTree:
            alone = jax.tree.map(lambda leaf: leaf[None], row)
            made = self.function(theta, alone, jax.random.fold_in(key, number))
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], made)

        return jax.vmap(one)(batch, rows)

    def _compiled(self) -> tuple[int, Callable[..., PyTree]]:
        """How many draws a call takes, and the call. The compiler says how much memory it needs: where that is too much, fewer."""
        tile = max(1, min(self.num_draws, TILE_NUMBERS // (self.rows_at_once * self.width)))
        batch = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.rows_at_once, *leaf.shape[1:]), leaf.dtype), _first(self.data, 1)
        )
        numbers = jax.ShapeDtypeStruct((self.rows_at_once,), np.uint32)
        program = jax.jit(jax.vmap(self._at, in_axes=(None, 0, None, 0, None)))
        while True:
            theta = self._shape_of_draw(tile)
            places = jax.ShapeDtypeStruct((tile,), np.uint32)
            compiled = program.lower(self._base, theta, batch, places, numbers).compile()
            needed = getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0)
            if needed <= MEMORY // SHARE or tile == 1:
                return tile, compiled
            tile = max(1, min(tile // 2, tile * MEMORY // (SHARE * needed)))

    def _shape_of_draw(self, tile: int | None = None) -> PyTree:
        axes = () if tile is None else (tile,)
        dtypes = [jax.dtypes.canonicalize_dtype(leaf.dtype) for leaf in self._draws]
        shapes = [
            jax.ShapeDtypeStruct((*axes, *leaf.shape[2:]), dtype)
            for leaf, dtype in zip(self._draws, dtypes, strict=True)
        ]
        return jax.tree.unflatten(self._treedef, shapes)

    def _tile(self, start: int, size: int) -> tuple[PyTree, int]:
        """So many draws from one on, the last of all repeated where there are fewer; and the end of those that count."""
        end = min(start + size, self.num_draws)
        parts = [_padded(_read(leaf, start, end), size) for leaf in self._draws]
        wanted = jax.tree.leaves(self._shape_of_draw())
        cast = [part.astype(shape.dtype, copy=False) for part, shape in zip(parts, wanted, strict=True)]
        return jax.tree.unflatten(self._treedef, cast), end

    def _batches(self) -> Iterator[tuple[int, int, PyTree]]:
        """(number of the first row, how many, the rows), the last one repeated where a slice is not full."""
        size, first = self.rows_at_once, 0
        for batch in _slices(self.data, size):
            count = jax.tree.leaves(batch)[0].shape[0]
            yield first, count, jax.device_put(jax.tree.map(partial(_padded, size=size), batch))
            first += count

    def _check_rows_are_apart(self) -> None:
        """Raise a ValueError where the value of a row depends on the other rows of its batch: slices would change it."""
        theta = jax.tree.map(lambda leaf: leaf[0], self._tile(0, 1)[0])
        rows = _first(self.data, min(PROBED, self.num_rows))
        half = jax.tree.leaves(rows)[0].shape[0] // 2
        if not half:
            return
        function = jax.jit(self.function)
        together = function(theta, rows)
        apart = function(theta, jax.tree.map(lambda leaf: leaf[half:], rows))
        for whole, part in zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True):
            one, other = np.asarray(whole, float)[half:], np.asarray(part, float)
            scale = np.max(np.abs(one[np.isfinite(one)]), initial=0.0)
            if not np.allclose(one, other, rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
                raise ValueError(
                    f"`{self.name}(theta, batch)` says something else of a row when other rows are in its batch, and the "
                    f"{self.num_rows:,} rows are looked at {self.rows_at_once:,} at a time. Let it use each row alone: what it takes from "
                    f"all of them (a mean, a maximum) is computed before. Or give `{self.rows_option}` all the rows."
                )


def takes_a_key(function: Callable[..., Any]) -> bool:
    """Whether a function has a third argument that must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(needed) > 2


def rows_of(data: PyTree) -> PyTree:
    """The data as arrays of NumPy, or a stream: of a tree of arrays, of a table, of rows on disk (`inbounds.data.stream`)."""
    if data is None:
        raise ValueError("There are no rows: give `data`, a tree of arrays whose leading axis is the row.")
    if is_stream(data):
        return data
    if is_source(data):
        raise ValueError(
            f"{type(data).__name__} makes minibatches and has no rows to go through: give arrays or a table."
        )
    return jax.tree.map(np.asarray, check_data(data))


def _slices(data: PyTree, size: int) -> Iterator[PyTree]:
    if is_stream(data):
        yield from data.slices(size)
        return
    for first in range(0, jax.tree.leaves(data)[0].shape[0], size):
        yield jax.tree.map(lambda leaf, i=first: leaf[i : i + size], data)


def _first(data: PyTree, count: int) -> PyTree:
    """So many of the first rows; the last one again where there are fewer."""
    return jax.tree.map(lambda leaf: _padded(leaf[:count], count), next(_slices(data, count)))


def _numbers(batch: PyTree) -> tuple[np.ndarray, np.ndarray]:
    """The number of a draw, and those of some rows."""
    return np.uint32(0), np.arange(jax.tree.leaves(batch)[0].shape[0], dtype=np.uint32)  # type: ignore[return-value]


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    missing = size - len(rows)
    return rows if missing <= 0 else np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])


def _read(leaf: Any, start: int, end: int) -> np.ndarray:
    """Draws by their number, chain after chain, of an array (chain, draw, ...)."""
    length = leaf.shape[1]
    parts = [
        np.asarray(leaf[chain, max(start - chain * length, 0) : min(end - chain * length, length)])
        for chain in range(start // length, (end - 1) // length + 1)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
