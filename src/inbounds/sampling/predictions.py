"""What draws predict for rows: a function of theta and a batch, at all the draws and rows, a slice of rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from inbounds.sampling.by_rows import ByRows, rows_of
from inbounds.trees import PyTree

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["predictions"]


def predictions(
    draws: Draws, f: Callable[..., Any], data: PyTree, batch_size: int | None, reduce: Callable[..., Any] | None,
    seed: int, progress: bool,
) -> PyTree:  # fmt: skip
    """`Draws.predict`."""
    table = ByRows(f, draws.theta, rows_of(data), batch_size, seed, "f", "batch_size")
    whole = None if reduce is not None else _room(table)
    reduced = []
    for rows, values in table.slices(progress, "predict"):
        by_draw = jax.tree.map(lambda x: np.moveaxis(x, -1, 0), values)
        if reduce is not None:
            reduced.append(_checked(jax.tree.map(np.asarray, reduce(by_draw)), rows.stop - rows.start))
        else:
            for held, part in zip(jax.tree.leaves(whole), jax.tree.leaves(by_draw), strict=True):
                held[:, rows] = part
    if reduce is not None:
        return jax.tree.map(lambda *parts: np.concatenate(parts), *reduced)
    chains = (draws.num_chains, draws.num_draws)
    return jax.tree.map(lambda x: x.reshape(*chains, *x.shape[1:]), whole)


def _room(table: ByRows) -> PyTree:
    """Arrays (draw, row, ...) for all the values."""
    shapes = jax.tree.map(lambda leaf: (table.num_draws, table.num_rows, *leaf.shape), table.shapes)
    try:
        return jax.tree.map(lambda leaf, shape: np.empty(shape, leaf.dtype), table.shapes, shapes)
    except MemoryError as error:
        size = (
            table.num_draws
            * table.num_rows
            * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(table.shapes))
        )
        raise MemoryError(
            f"The predictions of {table.num_rows:,} rows by {table.num_draws:,} draws take {size / 1e9:,.0f} GB of memory, more than there "
            "is. Keep of each row only what you need, as in reduce=lambda values: values.mean(axis=0)."
        ) from error


def _checked(values: PyTree, rows: int) -> PyTree:
    for leaf in jax.tree.leaves(values):
        if leaf.ndim == 0 or len(leaf) != rows:
            raise ValueError(
                f"`reduce(values)` is given values with the axes (draw, row, ...), and must return one per row. Of {rows} rows it returned "
                f"the shape {leaf.shape}: for quantiles write np.quantile(values, [0.05, 0.95], axis=0).T."
            )
    return values
