"""Metrics with a small dense block for each row of a table, such as the factors of a user or the effects of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.metrics._reference import Reference
from inbounds.metrics._tables import Part, blocks_of, parts_of, probes_of, rows_of, side_by_side, whitened
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree


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
        """phi = c + L z.

        Args:
            z: a tree like phi.

        Returns:
            A tree like theta.
        """
        moved = self._times(self.factors, z, "nij,nj->ni")
        return jax.tree.map(lambda c, m: jnp.asarray(c).astype(m.dtype) + m, self.center, moved)

    def from_proxy(self, phi: PyTree) -> PyTree:
        """z of phi.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A tree like phi.
        """
        moved = jax.tree.map(lambda p, c: p - jnp.asarray(c, p.dtype), phi, self.center)
        return self._times(self.inverses, moved, "nij,nj->ni")

    def pull_back(self, drift: PyTree) -> PyTree:
        """L^T times a gradient with respect to phi.

        Args:
            drift: a tree like phi.

        Returns:
            A tree like phi.
        """
        return self._times(self.factors, drift, "nij,ni->nj")

    def _times(self, blocks: tuple[Any, ...], tree: PyTree, sums: str) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)
        for part, block in zip(self.parts, blocks, strict=True):
            rows = side_by_side([leaves[i] for i in part.leaves], part.rows)
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
    parts = parts_of(reference.phi, tables)
    factors = [_factors(reference, part) for part in parts]
    return PerRow(reference.phi, tuple(factors), tuple(map(np.linalg.inv, factors)), parts)


def _factors(reference: Reference, part: Part) -> np.ndarray:
    """W with W^T H W = I for each block."""
    found = rows_of(reference.phi, part, reference.products(probes_of(reference.phi, part)))
    return whitened(blocks_of(reference.phi, part, found), reference.phi, part)
