"""Metrics with a small dense block for each row of a table, such as the factors of a user or the effects of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.metrics._reference import Reference, whitening
from inbounds.posterior import Posterior
from inbounds.space import Space
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class PerRow:
    """A metric whose L has a dense block for each row of each table, and one for all that is global. z is a tree like phi.

    Attributes:
        center: c, a tree like phi.
        factors: the blocks of L of each part, of shape (rows, width, width).
        inverses: theirs.
        parts: which variables each of these is of.
    """

    center: PyTree
    factors: tuple[Any, ...]
    inverses: tuple[Any, ...]
    parts: tuple[Part, ...] = field(metadata={"static": True})

    diagonal_noise: ClassVar[bool] = False

    def to_proxy(self, z: PyTree) -> PyTree:
        """phi = c + L z."""
        moved = self._times(self.factors, z, "nij,nj->ni")
        return jax.tree.map(lambda c, m: jnp.asarray(c).astype(m.dtype) + m, self.center, moved)

    def from_proxy(self, phi: PyTree) -> PyTree:
        """z of phi."""
        moved = jax.tree.map(lambda p, c: p - jnp.asarray(c, p.dtype), phi, self.center)
        return self._times(self.inverses, moved, "nij,nj->ni")

    def pull_back(self, drift: PyTree) -> PyTree:
        """L^T times a gradient with respect to phi."""
        return self._times(self.factors, drift, "nij,ni->nj")

    def _times(self, blocks: tuple[Any, ...], tree: PyTree, sums: str) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)
        for part, block in zip(self.parts, blocks, strict=True):
            rows = _side_by_side([leaves[i] for i in part.leaves], part.rows)
            # In full precision: accelerators would round the factors of a product.
            found = jnp.einsum(sums, block.astype(rows.dtype), rows, precision="highest")
            ends = np.cumsum([leaves[i].size // part.rows for i in part.leaves])
            for i, columns in zip(part.leaves, jnp.split(found, ends[:-1], axis=1), strict=True):
                leaves[i] = columns.reshape(leaves[i].shape)
        return jax.tree.unflatten(treedef, leaves)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{factor.shape[0]:,} of {factor.shape[1]} x {factor.shape[1]}" for factor in self.factors)
        return f"metric of blocks: {sizes}"


def per_row(
    posterior: Posterior, center: PyTree, tables: Sequence[str | tuple[str, ...]], *, transforms: PyTree = None
) -> PerRow:
    r"""The metric of the posterior's Gaussian approximation at `center`, row by row of tables, with one dense block for what is global.

    A block is the Hessian of one row alone. What rows of different tables, or a row and what is global, say of each other is left out.
    The blocks come from products of the Hessian and a vector: as many as a row is wide, each for all the rows at once, and one per global
    number. The data are passed over once for the gradient, and once per part (a table, or what is global).

    The gradient's noise is not diagonal in z, so kernels refuse to correct for it.

    Args:
        posterior: what is sampled.
        center: theta inside the bulk of the posterior.
        tables: names of variables whose leading axis is the row; a tuple of names for variables that share their rows (the intercepts and
            the slopes of groups). A row of the data may look up one row of each table, not more. All other variables are global.
        transforms: as for the kernel.

    Returns:
        A `PerRow` metric.

    Raises:
        ValueError: a name is unknown, rows of a table act on each other, or a block is not positive definite at `center`.

    Example:
        >>> posterior = ib.Posterior({"W": dist.Normal(0.0, 2.0).expand([4, 2]).to_event(2)})
        >>> metric = ib.metrics.per_row(posterior, {"W": jnp.zeros((4, 2))}, ["W"])
        >>> kernel = ib.leimkuhler_matthews(posterior, metric=metric)
        >>> ib.sample(kernel, 0.25, 150, burn_in=100, progress=False).num_draws
        50
    """
    reference = Reference(posterior, Space.of(posterior.supports, transforms), center)
    parts = _parts(reference.phi, tables)
    factors = [_factors(reference, part) for part in parts]
    return PerRow(reference.phi, tuple(factors), tuple(map(np.linalg.inv, factors)), parts)


def _parts(phi: PyTree, tables: Sequence[str | tuple[str, ...]]) -> tuple[Part, ...]:
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


def _factors(reference: Reference, part: Part) -> np.ndarray:
    """W with W^T H W = I for each block."""
    leaves = jax.tree.leaves(reference.phi)
    sizes = [leaves[i].size // part.rows for i in part.leaves]
    width = sum(sizes)

    def spread(rows: np.ndarray) -> np.ndarray:
        """A vector of phi that is zero but for these rows."""
        columns = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
        whole = [np.zeros(leaf.shape) for leaf in leaves]
        for i, column in zip(part.leaves, columns, strict=True):
            whole[i] = column.reshape(leaves[i].shape)
        return np.concatenate([leaf.ravel() for leaf in whole])

    def rows_of(vector: np.ndarray) -> np.ndarray:
        cut = np.split(vector, np.cumsum([leaf.size for leaf in leaves])[:-1])
        return np.concatenate([cut[i].reshape(part.rows, -1) for i in part.leaves], axis=1)

    # Of every row the same column at once, each row with a sign of its own; with other signs the sum of the columns must come out the same.
    rng = np.random.default_rng(0)
    signs, others = rng.choice([-1.0, 1.0], size=(2, part.rows, 1))
    probes = [spread(signs * unit) for unit in np.eye(width)] + [spread(others * np.ones(width))] * (part.rows > 1)
    found = [rows_of(product) for product in reference.products(np.stack(probes))]
    blocks = signs[..., None] * np.stack(found[:width], axis=-1)
    if part.rows > 1:
        apart = np.abs(others * found[width] - blocks.sum(axis=-1))
        if np.max(apart) > APART * np.max(np.abs(blocks)):
            raise ValueError(
                f"Rows of {_name(reference, part.leaves[0])!r} act on each other: a row of the data looks up several of them, or "
                "the prior couples them. Blocks of single rows leave that out; take ib.metrics.low_rank(...)."
            )
    columns = [name for i in part.leaves for name in [_name(reference, i)] * (leaves[i].size // part.rows)]
    return np.stack(
        [
            whitening((block + block.T) / 2, columns if part.rows == 1 else [f"{name}[{row}]" for name in columns])
            for row, block in enumerate(blocks)
        ]
    )


def _name(reference: Reference, leaf: int) -> str:
    return variable_name(jax.tree_util.tree_leaves_with_path(reference.phi)[leaf][0])


def _side_by_side(leaves: list[jax.Array], rows: int) -> jax.Array:
    """Arrays with the same number of rows as one matrix."""
    return jnp.concatenate([leaf.reshape(rows, -1) for leaf in leaves], axis=1)
