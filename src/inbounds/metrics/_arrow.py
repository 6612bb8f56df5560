"""Metrics of a hierarchy: a small block for each group, a dense block for what is global, and the coupling of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.metrics._reference import Reference
from inbounds.metrics._tables import Part, blocks_of, parts_of, probes_of, rows_of, side_by_side, whitened, widths
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree

POINTS = 16  # draws over which a Hessian is averaged


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Arrow:
    r"""A metric whose $L$ is the inverse of a transposed Cholesky factor of an arrow. The moving variable z is one vector.

    With blocks $A_g$ of the groups, their coupling $B_g$ to what is global and the block $D$ of that,

    $$\varphi_0 = c_0 + W_0 z_0, \qquad \varphi_g = c_g + W_g (z_g - X_g (\varphi_0 - c_0)),$$

    where $W_g^T A_g W_g = I$, $X_g = W_g^T B_g$ and $W_0^T (D - \sum_g X_g^T X_g) W_0 = I$.

    Attributes:
        center: c, a tree like phi.
        factors: the blocks W of each table, of shape (rows, width, width), and that of what is global, of shape (1, size, size).
        inverses: theirs.
        couplings: X of each table, of shape (rows * width, size).
        parts: which variables each of the factors is of; the last one is global.
    """

    center: PyTree
    factors: tuple[Any, ...]
    inverses: tuple[Any, ...]
    couplings: tuple[Any, ...]
    parts: tuple[Part, ...] = field(metadata={"static": True})

    diagonal_noise: ClassVar[bool] = False

    def to_proxy(self, z: jax.Array) -> PyTree:
        """phi = c + L z.

        Args:
            z: a vector with one entry per coordinate.

        Returns:
            A tree like theta.
        """
        *tables, z_global = self._cut(z)
        found = _times(self.factors[-1], z_global)
        moved = [
            _times(factor, rows - self._coupled(coupling, found, rows))
            for factor, coupling, rows in zip(self.factors, self.couplings, tables, strict=False)
        ]
        return jax.tree.map(lambda c, m: jnp.asarray(c).astype(m.dtype) + m, self.center, self._tree([*moved, found]))

    def from_proxy(self, phi: PyTree) -> jax.Array:
        """z of phi.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A vector.
        """
        *tables, found = self._rows(jax.tree.map(lambda p, c: p - jnp.asarray(c, p.dtype), phi, self.center))
        moved = [
            _times(inverse, rows) + self._coupled(coupling, found, rows)
            for inverse, coupling, rows in zip(self.inverses, self.couplings, tables, strict=False)
        ]
        return jnp.concatenate([x.ravel() for x in (*moved, _times(self.inverses[-1], found))])

    def pull_back(self, drift: PyTree) -> jax.Array:
        """L^T times a gradient with respect to phi.

        Args:
            drift: a tree like phi.

        Returns:
            A vector.
        """
        *tables, found = self._rows(drift)
        pulled = [_times(jnp.swapaxes(w, 1, 2), rows) for w, rows in zip(self.factors, tables, strict=False)]
        for coupling, rows in zip(self.couplings, pulled, strict=True):
            found = found - jnp.matmul(rows.ravel(), coupling.astype(rows.dtype), precision="highest")
        last = _times(jnp.swapaxes(self.factors[-1], 1, 2), found)
        return jnp.concatenate([x.ravel() for x in (*pulled, last)])

    @staticmethod
    def _coupled(coupling: Any, found: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.matmul(coupling.astype(found.dtype), found[0], precision="highest").reshape(rows.shape)

    def _cut(self, z: jax.Array) -> list[jax.Array]:
        sizes = [factor.shape[0] * factor.shape[1] for factor in self.factors]
        cut = jnp.split(z, np.cumsum(sizes)[:-1])
        return [x.reshape(factor.shape[:2]) for x, factor in zip(cut, self.factors, strict=True)]

    def _rows(self, tree: PyTree) -> list[jax.Array]:
        leaves = jax.tree.leaves(tree)
        return [side_by_side([leaves[i] for i in part.leaves], part.rows) for part in self.parts]

    def _tree(self, rows: list[jax.Array]) -> PyTree:
        leaves, treedef = jax.tree.flatten(self.center)
        for part, found in zip(self.parts, rows, strict=True):
            columns = jnp.split(found, np.cumsum(widths(self.center, part))[:-1], axis=1)
            for i, column in zip(part.leaves, columns, strict=True):
                leaves[i] = column.reshape(np.shape(leaves[i]))
        return jax.tree.unflatten(treedef, leaves)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return int(sum(np.shape(factor)[0] * np.shape(factor)[1] for factor in self.factors))

    def __repr__(self) -> str:
        *tables, last = (np.shape(factor) for factor in self.factors)
        blocks = " and ".join(f"{rows:,} blocks of {width} x {width}" for rows, width, _ in tables)
        return f"metric of an arrow: {blocks}, coupled to {last[1]:,} numbers"


def arrow(
    posterior: Posterior, center: PyTree, tables: Sequence[str | tuple[str, ...]], *, transforms: PyTree = None
) -> Arrow:
    r"""The metric of the posterior's Gaussian approximation at `center` for a hierarchy: groups depend on each other through what is global.

    The Hessian of such a posterior is an arrow: a small block for each group, a dense block for what is global, and the coupling of both.
    Its Cholesky factor has the same shape, so that $L^T H L = I$ at the cost of `groups * width**2 * (width + global)`, and with the memory
    of the table times the number of globals. It comes from products of the Hessian and a vector: one per number of a row, for all the rows
    at once, and one per global number, all in one pass over the data.

    Of crossed effects (students and teachers) name one table; the other is then part of what is global and dense, up to some 2,000 numbers.
    Where both are named, what rows of one say of rows of the other is left out, and the rest is right.

    The gradient's noise is not diagonal in z, so kernels refuse to correct for it.

    Args:
        posterior: what is sampled.
        center: theta inside the bulk of the posterior. The joint mode of a hierarchy is not: see `arrow_from_draws`.
        tables: names of variables whose leading axis is the group; a tuple of names for variables that share their groups (intercepts and
            slopes). A row of the data may look up one group of each table, not more. All other variables are global.
        transforms: as for the kernel.

    Returns:
        An `Arrow` metric.

    Raises:
        ValueError: a name is unknown, groups of a table act on each other, there is no table or nothing global, or the Hessian is not
            positive definite at `center`.

    Example:
        >>> group = np.repeat(np.arange(20), 5)
        >>> y = np.random.default_rng(0).normal(size=100).astype(np.float32)
        >>> priors = {"mean": dist.Normal(0.0, 2.0), "effect": dist.Normal(0.0, 1.0).expand([20])}
        >>> def log_likelihood(theta, batch):
        ...     return dist.Normal(theta["mean"] + theta["effect"][batch["group"]], 1.0).log_prob(batch["y"])
        >>> posterior = ib.Posterior(priors, log_likelihood, {"group": group, "y": y})
        >>> metric = ib.metrics.arrow(posterior, {"mean": 0.0, "effect": np.zeros(20)}, ["effect"])
        >>> metric
        metric of an arrow: 20 blocks of 1 x 1, coupled to 1 numbers
        >>> kernel = ib.leimkuhler_matthews(posterior, metric=metric)
    """
    reference = Reference(posterior, Space.of(posterior.supports, transforms), center)
    return _of_points([reference], reference.phi, _parts(reference.phi, tables))


def arrow_from_draws(
    posterior: Posterior,
    draws: Any,
    tables: Sequence[str | tuple[str, ...]],
    *,
    transforms: PyTree = None,
    points: int = POINTS,
) -> Arrow:
    r"""The same, of a Hessian that is averaged over draws, around their mean.

    A hierarchy has no useful mode, and its Hessian at a single point may not be positive definite. Its average over the posterior is the
    covariance of the slopes of the log density, which is.

    Args:
        posterior, tables, transforms: as for `arrow`.
        draws: draws of phi, a tree with leading axes (chain, draw), such as `draws.phi`.
        points: how many of the draws the Hessian is averaged over; each takes two passes over the data.

    Returns:
        An `Arrow` metric.

    Raises:
        ValueError: as for `arrow`.

    Example:
        >>> posterior = ib.Posterior({"a": dist.Normal(0.0, 1.0).expand([6]), "b": dist.Gamma(2.0, 1.0)})
        >>> draws = ib.sample(ib.sgld(posterior), 0.2, 4_500, burn_in=500, num_chains=4, progress=False)
        >>> ib.metrics.arrow_from_draws(posterior, draws.phi, ["a"])
        metric of an arrow: 6 blocks of 1 x 1, coupled to 1 numbers
    """
    space = Space.of(posterior.supports, transforms)
    leaves, treedef = jax.tree.flatten(draws)
    flat = [np.asarray(leaf, np.float64).reshape(-1, *np.shape(leaf)[2:]) for leaf in leaves]
    chosen = np.linspace(0, len(flat[0]) - 1, min(points, len(flat[0]))).astype(int)
    first = Reference(
        posterior, space, space.constrain(jax.tree.unflatten(treedef, [leaf[chosen[0]] for leaf in flat]))
    )
    others = (first.at(jax.tree.unflatten(treedef, [leaf[i] for leaf in flat])) for i in chosen)
    center = jax.tree.unflatten(treedef, [np.asarray(leaf.mean(axis=0)) for leaf in flat])
    return _of_points(others, center, _parts(first.phi, tables))


def _times(blocks: Any, rows: jax.Array) -> jax.Array:
    # In full precision: accelerators would round the factors of a product.
    return jnp.einsum("nij,nj->ni", blocks.astype(rows.dtype), rows, precision="highest")


def _parts(phi: PyTree, tables: Sequence[str | tuple[str, ...]]) -> tuple[Part, ...]:
    parts = parts_of(phi, tables)
    if not tables or len(parts) == len([tables] if isinstance(tables, str) else tables):
        raise ValueError(
            "An arrow has tables and something global beside them; here one of the two is missing. Take ib.metrics.per_row(...)."
        )
    return parts


def _of_points(references: Iterable[Reference], center: PyTree, parts: tuple[Part, ...]) -> Arrow:
    """Of the average of the Hessians at some points."""
    *tables, rest = parts
    probes = [probes_of(center, part) for part in tables]
    ends = np.cumsum([0, *map(len, probes)])
    asked = np.concatenate([*probes, probes_of(center, rest)])
    count, found = 0, np.zeros_like(asked)
    for reference in references:
        found += reference.products(asked)
        count += 1
    found /= count
    columns = found[ends[-1] :]
    own = blocks_of(center, rest, rows_of(center, rest, columns))[0]
    factors, couplings = [], []
    for part, start, end in zip(tables, ends, ends[1:], strict=False):
        factor = whitened(blocks_of(center, part, rows_of(center, part, found[start:end])), center, part)
        beside = np.moveaxis(rows_of(center, part, columns), 0, -1)  # axes (row, number, global)
        coupling = (np.swapaxes(factor, 1, 2) @ beside).reshape(-1, len(columns))
        own = own - coupling.T @ coupling
        factors.append(factor)
        couplings.append(coupling)
    factors.append(whitened(own[None], center, rest))
    return Arrow(center, tuple(factors), tuple(map(np.linalg.inv, factors)), tuple(couplings), parts)
