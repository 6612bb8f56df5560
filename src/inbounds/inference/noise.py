r"""How noisy the gradient of a minibatch is, from all the rows and not from a sample of minibatches.

Of a minibatch of $B$ rows, drawn with replacement, the gradient in z has the covariance $(N \sum_i r_i r_i^T - s s^T) / B$ with
$s = \sum_i r_i$, where $r_i$ is what an estimator leaves to row $i$: its gradient, the difference to that at a centre, or that less its
expansion. One row that counts for more than all the others together, which hardly any minibatch has, is seen so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.exact import flat, slices
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree

__all__ = ["KINDS", "RowNoise", "noise_of_rows"]

KINDS = ("taylor", "control_variate", "minibatch")
MOST_POINTS = 4
ROWS_AND_POINTS = 2_000_000
SLICE_NUMBERS = 2**20  # rows times numbers of theta


class RowNoise(NamedTuple):
    """Of one gradient estimator.

    Attributes:
        covariance: of the gradient in z by a minibatch of one row; by one of B rows it is a B-th of it. Averaged over some points.
        largest: how far the gradient is moved by the one row that moves it most, in a minibatch of one row.
    """

    covariance: np.ndarray
    largest: float

    def after(self, turned: np.ndarray) -> RowNoise:
        """The same in other coordinates, z = turned z'."""
        return RowNoise(turned.T @ self.covariance @ turned, self.largest * float(np.linalg.norm(turned, 2)))


def noise_of_rows(
    posterior: Posterior, space: Space, metric: Any, center: PyTree, seed: int, places: np.ndarray | None = None
) -> dict[str, RowNoise]:  # fmt: skip
    """The noise of each of `KINDS`, at a few points.

    Args:
        posterior: what is sampled; it has a log likelihood.
        space: how it is kept in bounds, without the metric.
        metric: c and L.
        center: of the control variates.
        seed: of the points.
        places: z from which the points are taken, the first that there is time for; None: those of the Gaussian that the metric belongs to.
    """
    total = posterior.num_data
    assert total is not None
    points = int(np.clip(ROWS_AND_POINTS // total, 1, MOST_POINTS))
    float_ = jnp.result_type(float)
    single, at = (jax.tree.map(lambda leaf: np.asarray(leaf, float_), tree) for tree in (metric, center))
    width = metric.dimension
    if places is None:
        places = np.random.default_rng(seed).normal(size=(points, width))
        places /= np.maximum(1, np.linalg.norm(places, axis=1, keepdims=True) / np.sqrt(width))
    thetas, pulls = posterior.compiled.of_few_calls(_points, space)(single, np.asarray(places[:points], float_))
    look = posterior.compiled.of(_sums, posterior)
    size = max(64, min(8_192, SLICE_NUMBERS // max(1, flat(center).size)))
    shapes = ((len(KINDS), points, width), (len(KINDS), points, width, width), (len(KINDS),))
    sums: Any = tuple(np.zeros(shape, float_) for shape in shapes)
    for rows, weights in slices(posterior, size):
        sums = look(sums, at, thetas, pulls, rows, weights)
    first, second, largest = (np.asarray(x, np.float64) for x in sums)  # axes (kind, point, number, ...)
    covariance = np.mean(total * second - first[..., :, None] * first[..., None, :], axis=1)
    return {kind: RowNoise(covariance[i], float(total * largest[i])) for i, kind in enumerate(KINDS)}


def _points(space: Space, metric: Any, places: jax.Array) -> tuple[PyTree, jax.Array]:
    """(thetas, what takes a gradient there to z), of some z."""

    def one(z: jax.Array) -> tuple[PyTree, jax.Array]:
        phi = metric.to_proxy(z)
        theta = space.evaluation_point(phi)
        zero = jax.tree.map(jnp.zeros_like, theta)
        constant = metric.pull_back(space.pull_back(phi, theta, zero))

        def pull(gradient: jax.Array) -> jax.Array:
            return jnp.asarray(
                metric.pull_back(space.pull_back(phi, theta, trees.cut_like(theta, gradient))) - constant
            )

        return theta, jax.vmap(pull)(jnp.eye(trees.size(theta), dtype=z.dtype))

    thetas, pulls = jax.lax.map(one, places)
    return thetas, pulls


def _sums(
    posterior: Posterior, before: tuple[jax.Array, jax.Array, jax.Array],
    center: PyTree, thetas: PyTree, pulls: jax.Array, rows: PyTree, weights: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Sums over rows of what each estimator leaves to them, and of the squares of that, and the longest; with those before.

    Axes (kind, point, ...).
    """
    likelihood = posterior.log_likelihood
    assert likelihood is not None

    def of_row(theta: PyTree, row: PyTree) -> jax.Array:
        return jnp.sum(likelihood(theta, jax.tree.map(lambda leaf: leaf[None], row)))

    gradient = jax.grad(of_row)

    def at_point(inputs: tuple[PyTree, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        theta, pull = inputs
        moved = jax.tree.map(jnp.subtract, theta, center)

        def left(row: PyTree) -> jax.Array:
            here = trees.ravel(gradient(theta, row))
            there, curved = jax.jvp(lambda x: gradient(x, row), (center,), (moved,))
            first = here - trees.ravel(there)
            return jnp.stack([first - trees.ravel(curved), first, here]) @ pull

        found = jax.vmap(left)(rows) * weights.astype(pull.dtype)[:, None, None]
        squares = jnp.einsum("rki,rkj->kij", found, found)
        return found.sum(axis=0), squares, jnp.sqrt(jnp.max(jnp.sum(found**2, axis=-1), axis=0))

    first, second, most = jax.lax.map(at_point, (thetas, pulls))
    found = jnp.moveaxis(first, 0, 1), jnp.moveaxis(second, 0, 1), most.max(axis=0)
    return before[0] + found[0], before[1] + found[1], jnp.maximum(before[2], found[2])
