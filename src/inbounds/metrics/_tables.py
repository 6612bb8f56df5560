"""Tables: variables whose leading axis is the row, and the blocks of the Hessian that belong to each row alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.metrics._reference import whitening
from inbounds.trees import PyTree, variable_name

MOST_GLOBAL = 2_000  # dimensions of the dense part
APART = 1e-6  # relative size of what rows may do to each other, which is rounding


class Part(NamedTuple):
    """Variables that share blocks.

    Args:
        leaves: their numbers among the leaves of phi.
        rows: how many blocks; 1 for what is global.
    """

    leaves: tuple[int, ...]
    rows: int


def parts_of(phi: PyTree, tables: Sequence[str | tuple[str, ...]]) -> tuple[Part, ...]:
    """One part per table, and then one for what is global, where anything is."""
    leaves = [(variable_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(phi)]
    names = [name for name, _ in leaves]
    parts: list[Part] = []
    seen: set[str] = set()
    for table in [tables] if isinstance(tables, str) else tables:
        group = (table,) if isinstance(table, str) else tuple(table)
        for name in group:
            if name not in names or name in seen:
                raise ValueError(
                    f"`tables` names {name!r}{' twice' if name in seen else ''}; the variables are {', '.join(names)}."
                )
            seen.add(name)
        chosen = tuple(names.index(name) for name in group)
        rows = {leaves[i][1].shape[:1] for i in chosen}
        if len(rows) > 1 or rows == {()}:
            shapes = ", ".join(f"{names[i]!r} {leaves[i][1].shape}" for i in chosen)
            raise ValueError(f"Variables that share their rows must have one leading axis; got {shapes}.")
        parts.append(Part(chosen, rows.pop()[0]))
    rest = tuple(i for i, name in enumerate(names) if name not in seen)
    if sum(leaves[i][1].size for i in rest) > MOST_GLOBAL:
        large = ", ".join(f"{names[i]!r} {leaves[i][1].shape}" for i in rest)
        raise ValueError(f"What is global has at most {MOST_GLOBAL:,} numbers; got {large}. Name its tables, too.")
    return tuple(parts) + ((Part(rest, 1),) if rest else ())


def widths(phi: PyTree, part: Part) -> list[int]:
    """How many numbers each variable of a part has in a row."""
    leaves = jax.tree.leaves(phi)
    return [int(np.size(leaves[i])) // part.rows for i in part.leaves]


def side_by_side(leaves: Sequence[jax.Array], rows: int) -> jax.Array:
    """Arrays with the same number of rows as one matrix."""
    return jnp.concatenate([leaf.reshape(rows, -1) for leaf in leaves], axis=1)


def rows_of(phi: PyTree, part: Part, vectors: np.ndarray) -> np.ndarray:
    """The rows of a part, of flat vectors like phi: axes (vector, row, number)."""
    cut = np.split(vectors, np.cumsum([np.size(leaf) for leaf in jax.tree.leaves(phi)])[:-1], axis=1)
    return np.concatenate([cut[i].reshape(len(vectors), part.rows, -1) for i in part.leaves], axis=2)


def probes_of(phi: PyTree, part: Part) -> np.ndarray:
    """Vectors like phi that show the blocks of a part when the Hessian multiplies them: one per number of a row, and one to check.

    Of every row the same column at once, each row with a sign of its own; with other signs the sum of the columns must come out the same.
    """
    width = sum(widths(phi, part))
    signs, others = _signs(part)
    probes = [_spread(phi, part, signs * unit) for unit in np.eye(width)]
    return np.stack(probes + [_spread(phi, part, others * np.ones(width))] * (part.rows > 1))


def probe_of(phi: PyTree, part: Part, seed: int) -> np.ndarray:
    """A flat vector like phi that is zero but for a part: the same random numbers for each seed, with other signs of the rows."""
    numbers = np.random.default_rng(0).uniform(0.5, 1.5, size=(part.rows, sum(widths(phi, part))))
    return _spread(phi, part, np.random.default_rng(seed + 1).choice([-1.0, 1.0], size=(part.rows, 1)) * numbers)


def blocks_of(phi: PyTree, part: Part, found: np.ndarray) -> np.ndarray:
    """The blocks of a part from the rows of the Hessian's products with its probes.

    Raises:
        ValueError: rows act on each other.
    """
    width = sum(widths(phi, part))
    signs, others = _signs(part)
    blocks: np.ndarray = signs[..., None] * np.moveaxis(found[:width], 0, -1)
    if part.rows > 1:
        apart = np.abs(others * found[width] - blocks.sum(axis=-1))
        if np.max(apart) > APART * np.max(np.abs(blocks)):
            raise ValueError(
                f"Rows of {_names(phi, part)[0]!r} act on each other: a row of the data looks up several of them, or "
                "the prior couples them. Blocks of single rows leave that out; take ib.metrics.low_rank(...)."
            )
    symmetric: np.ndarray = (blocks + np.moveaxis(blocks, -1, -2)) / 2
    return symmetric


def whitened(blocks: np.ndarray, phi: PyTree, part: Part) -> np.ndarray:
    """W with W^T H W = I for each of the blocks of a part; what is said where one is not positive definite is said of its row."""
    scales = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(blocks, axis1=1, axis2=2)), 1e-300))
    scaled = scales[..., None] * blocks * scales[:, None, :]
    values, vectors = np.linalg.eigh(np.where(np.isfinite(scaled), scaled, np.nan_to_num(scaled)))
    least = blocks.shape[-1] * np.finfo(float).eps * np.maximum(values[:, -1], 0)
    wrong = (values[:, 0] <= least) | ~np.isfinite(blocks).all(axis=(1, 2))
    if wrong.any():
        row = int(np.argmax(wrong))
        names = _names(phi, part)
        whitening(blocks[row], names if part.rows == 1 else [f"{name}[{row}]" for name in names])  # raises
    result: np.ndarray = scales[..., None] * vectors / np.sqrt(values)[:, None, :]
    return result


def _signs(part: Part) -> np.ndarray:
    """Two signs for each row, axes (which, row, 1)."""
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(2, part.rows, 1))


def _spread(phi: PyTree, part: Part, rows: np.ndarray) -> np.ndarray:
    """A flat vector like phi that is zero but for these rows."""
    leaves = jax.tree.leaves(phi)
    whole = [np.zeros(np.shape(leaf)) for leaf in leaves]
    columns = np.split(rows, np.cumsum(widths(phi, part))[:-1], axis=1)
    for i, column in zip(part.leaves, columns, strict=True):
        whole[i] = column.reshape(np.shape(leaves[i]))
    return np.concatenate([leaf.ravel() for leaf in whole])


def _names(phi: PyTree, part: Part) -> list[str]:
    """The variable of each number of a row."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(phi)]
    return [
        variable_name(paths[i]) for i, width in zip(part.leaves, widths(phi, part), strict=True) for _ in range(width)
    ]
