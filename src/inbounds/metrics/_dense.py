"""Metrics with a dense L, up to some two thousand dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import gradients, trees
from inbounds.data.arrays import at_hand, source_for
from inbounds.exact import flattener
from inbounds.metrics._reference import Reference, distance, shifted, whitening
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree

FEWEST_POINTS, MOST_POINTS = (
    32,
    256,
)  # of the reference Gaussian, one per dimension, at which the gradient's noise is measured,
BATCHES = 16  # with so many minibatches each
MOST_DENSE = 2_000  # dimensions
PARTS = 4  # of draws, of which each is left out once where the others choose axes


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Dense:
    """A metric with a dense L. The moving variable z is one vector.

    Attributes:
        center: c, a tree like phi.
        factor: L, of shape (dimension, dimension).
        inverse: the inverse of L.
        noise: the variance of each coordinate of the minibatch gradient in z, where it was measured; None elsewhere.
    """

    center: PyTree
    factor: Any
    inverse: Any
    noise: Any = None

    diagonal_noise: ClassVar[bool] = True  # so that a correction, coordinate by coordinate, is the right one

    def to_proxy(self, z: jax.Array) -> PyTree:
        """phi = c + L z.

        Args:
            z: a vector with one entry per coordinate.

        Returns:
            A tree like theta.
        """
        return shifted(self.center, self.factor.astype(z.dtype) @ z)

    def from_proxy(self, phi: PyTree) -> jax.Array:
        """z of phi.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A vector.
        """
        moved = distance(phi, self.center)
        result: jax.Array = self.inverse.astype(moved.dtype) @ moved
        return result

    def pull_back(self, drift: PyTree) -> jax.Array:
        """L^T times a gradient with respect to phi.

        Args:
            drift: a tree like phi.

        Returns:
            A vector.
        """
        flat = trees.ravel(drift)
        result: jax.Array = flat @ self.factor.astype(flat.dtype)
        return result

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return int(self.factor.shape[0])

    def __repr__(self) -> str:
        return f"dense metric of {self.dimension} dimensions"


def laplace(
    posterior: Posterior,
    center: PyTree,
    *,
    transforms: PyTree = None,
    gradient: Any = gradients.minibatch,
    batch_size: int | None = None,
    seed: int = 0,
) -> Dense:
    r"""The metric of the posterior's Gaussian approximation at `center`, which also makes the gradient's noise diagonal.

    With $H = U \mathrm{diag}(w) U^T$ and $W = U \mathrm{diag}(w)^{-1/2}$, and $W^T V W = R\, \mathrm{diag}(v) R^T$, it is $L = W R$.

    Args:
        posterior: what is sampled.
        center: theta near the mode of the proxy, for example `ib.check(posterior).center`.
        transforms: as for the kernel.
        gradient: the gradient that the kernel will have. Its noise is averaged over draws of the Gaussian, because that of a
            control variate is zero at its centre.
        batch_size: rows per minibatch; None takes what the posterior says, or all the data.
        seed: of the minibatches that the noise is measured with.

    Returns:
        A `Dense` metric.

    Raises:
        ValueError: the Hessian is not positive definite at `center`.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> metric = ib.metrics.laplace(posterior, {"rate": 0.5}, batch_size=100)
        >>> metric.factor.shape
        (1, 1)
        >>> kernel = ib.leimkuhler_matthews(posterior, metric=metric, noise_correction=True)
    """
    space = Space.of(posterior.supports, transforms)
    reference = Reference(posterior, space, center)
    if reference.dimension > MOST_DENSE:
        raise ValueError(
            f"A dense metric of {reference.dimension:,} dimensions does not fit (at most {MOST_DENSE:,}). "
            "Take ib.metrics.low_rank(...), or ib.metrics.per_row(...) for a model of tables."
        )
    white = whitening(reference.hessian(), reference.names())
    return _with_noise(posterior, space, reference.phi, white, gradient, batch_size, seed)


def from_draws(
    posterior: Posterior,
    draws: Any,
    *,
    transforms: PyTree = None,
    gradient: Any = gradients.minibatch,
    batch_size: int | None = None,
    seed: int = 0,
) -> Dense:
    r"""The metric of draws: their mean, and their covariance. The variance along each of its axes is that of draws that did not choose it.

    Args:
        posterior: what is sampled.
        draws: draws of phi, a tree with leading axes (chain, draw), such as `draws.phi`.
        transforms, gradient, batch_size, seed: as for `laplace`.

    Returns:
        A `Dense` metric.

    Raises:
        ValueError: there are too few draws, or a coordinate does not move.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0).expand([2])})
        >>> draws = ib.sample(ib.sgld(posterior), 0.2, 4_500, burn_in=500, num_chains=4, progress=False)
        >>> ib.metrics.from_draws(posterior, draws.phi).factor.shape
        (2, 2)
    """
    space = Space.of(posterior.supports, transforms)
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(draws)]
    count = leaves[0].shape[0] * leaves[0].shape[1]
    numbers = np.concatenate([leaf.reshape(count, -1) for leaf in leaves], axis=1)
    if count < 10:
        raise ValueError(f"A metric from draws needs at least 10 of them; got {count}.")
    if not np.all(np.isfinite(numbers)) or np.any(numbers.std(axis=0) == 0):
        raise ValueError("A metric from draws needs finite draws in which every coordinate moves.")
    covariance = shrunk_covariance(numbers)
    scales = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scales, scales))
    white = scales[:, None] * vectors * np.sqrt(values)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], draws)
    _, unravel = flattener(one)
    center = jax.tree.map(np.asarray, unravel(numbers.mean(axis=0)))
    return _with_noise(posterior, space, center, white, gradient, batch_size, seed)


def shrunk_covariance(numbers: np.ndarray) -> np.ndarray:
    """The covariance of rows, along each of its axes the variance of rows that had no say in the axis (Lam 2016).

    An axis that few rows choose is too long or too short for them, and not for others. Rows next to each other may be alike: each part
    of them is left out once.
    """
    scales = numbers.std(axis=0, ddof=1)
    standard = (numbers - numbers.mean(axis=0)) / scales
    total, found = standard.T @ standard, np.zeros((len(scales), len(scales)))
    for part in np.array_split(standard, PARTS):
        _, axes = np.linalg.eigh(total - part.T @ part)
        found += axes * np.mean(np.square(part @ axes), axis=0) @ axes.T / PARTS
    return found * np.outer(scales, scales)


def _with_noise(
    posterior: Posterior,
    space: Space,
    center: PyTree,
    white: np.ndarray,
    gradient: Any,
    batch_size: int | None,
    seed: int,
) -> Dense:
    """The metric with the basis in which the gradient's noise is diagonal, too."""
    noise = _noise(posterior, space, center, white, gradient, batch_size, seed)
    if noise is None:
        return Dense(center, white, np.linalg.inv(white))
    values, rotation = np.linalg.eigh(noise)
    factor = white @ rotation
    return Dense(center, factor, np.linalg.inv(factor), np.maximum(values, 0))


def _noise(
    posterior: Posterior,
    space: Space,
    center: PyTree,
    white: np.ndarray,
    gradient: Any,
    batch_size: int | None,
    seed: int,
) -> np.ndarray | None:
    """Covariance of the minibatch gradient in z, averaged over draws of the reference Gaussian; None where there is no noise."""
    rows = posterior.num_data
    batch_size = posterior.batch_size if batch_size is None else batch_size
    if posterior.data is None or batch_size is None or batch_size == rows:
        return None
    key = jax.random.key(seed)
    source = source_for(at_hand(posterior.data, max(200_000, batch_size)), batch_size, "replacement")
    arrays = source.prepare(key)
    estimator = gradient(posterior) if callable(gradient) else gradient
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), Dense(center, white, white))
    points = int(np.clip(len(white), FEWEST_POINTS, MOST_POINTS))

    @jax.jit
    def samples(metric: Any, arrays: PyTree) -> Any:
        state = estimator.init(space.evaluation_point(metric.center), False)
        plan = source.plan(key, jnp.arange(points * BATCHES))
        z = jax.random.normal(jax.random.fold_in(key, 1), (points, metric.dimension))

        def at_point(inputs: Any) -> Any:
            z, plans = inputs
            phi = metric.to_proxy(z)
            theta = space.evaluation_point(phi)

            def one(plan: PyTree) -> jax.Array:
                estimate, _ = estimator.estimate(state, theta, source.fetch(arrays, plan), False)
                result: jax.Array = metric.pull_back(space.pull_back(phi, theta, estimate.value))
                return result

            found = jax.vmap(one)(plans)
            return found - found.mean(axis=0)

        grouped = jax.tree.map(lambda leaf: leaf.reshape(points, BATCHES, *leaf.shape[1:]), plan)
        return jax.lax.map(at_point, (z, grouped)).reshape(points * BATCHES, -1)

    found = np.asarray(samples(single, arrays), np.float64)
    found = found[np.all(np.isfinite(found), axis=1)]
    return found.T @ found / max(1, len(found) * (BATCHES - 1) / BATCHES)
