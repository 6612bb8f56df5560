r"""How far draws are from a law that is known: total variation over bins, Kolmogorov-Smirnov, Wasserstein-1.

With the empirical distribution function :math:`F_n` of n draws and the law's :math:`F`,

.. math::
    \mathrm{TV} = \tfrac12 \sum_b |\hat p_b - p_b|, \qquad
    \mathrm{KS} = \sup_x |F_n(x) - F(x)|, \qquad
    W_1 = \tfrac1n \sum_i |x_{(i)} - F^{-1}((i - \tfrac12)/n)|.

Draws have shape (chain, draw), or (draw,) for one chain; the answer has one number per chain. Work is done one chain at a
time in float64, so memory stays at a few times one chain. A chain that holds a non-finite draw is at distance nan.
None of these is zero for a perfect sampler: read them beside `iid_floor`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "Distances",
    "Target",
    "bin_probabilities",
    "distances",
    "iid_floor",
    "kolmogorov_smirnov",
    "quantiles",
    "total_variation",
    "total_variation_jax",
    "wasserstein1",
]


DistributionFunction = Callable[[np.ndarray], np.ndarray]
"""Of a law on the line, or its inverse."""


class Target(Protocol):
    """A one-dimensional law that is known: its distribution function, its inverse, and the bins of its histogram.

    Example:
        >>> from scipy import stats
        >>> class Normal:
        ...     cdf, quantile, edges = stats.norm.cdf, stats.norm.ppf, np.linspace(-3, 3, 13)
        >>> ib.diagnostics.distances.quantiles(Normal, 3).round(2).tolist()
        [-0.97, 0.0, 0.97]
    """

    @property
    def cdf(self) -> DistributionFunction:
        """The distribution function."""

    @property
    def quantile(self) -> DistributionFunction:
        """The inverse of `cdf`."""

    @property
    def edges(self) -> np.ndarray:
        """The ends of the bins, in increasing order."""


class Distances(NamedTuple):
    """The three distances, each of shape (chain,).

    Example:
        >>> from scipy import stats
        >>> class Normal:
        ...     cdf, quantile, edges = stats.norm.cdf, stats.norm.ppf, np.linspace(-3, 3, 13)
        >>> draws = np.random.default_rng(0).normal(size=(2, 5_000))
        >>> found = ib.diagnostics.distances.distances(draws, Normal)
        >>> bool((found.wasserstein1 < 0.1).all())
        True
    """

    total_variation: np.ndarray
    kolmogorov_smirnov: np.ndarray
    wasserstein1: np.ndarray


def total_variation(
    draws: ArrayLike, target: Target | DistributionFunction, edges: ArrayLike | None = None
) -> np.ndarray:
    """Half the L1 distance between the draws' histogram and the law's mass in the same bins.

    Args:
        draws: shape (chain, draw) or (draw,).
        target: a `Target`, or its distribution function alone.
        edges: increasing, may end in infinity; the target's own by default. What lies outside is one more bin.

    Returns:
        One distance per chain, from 0 to 1.

    Raises:
        ValueError: `edges` do not increase, or the draws have another shape.

    Example:
        >>> normal = dist.Normal(0.0, 1.0)
        >>> draws = np.random.default_rng(0).normal(size=(2, 5_000))
        >>> ib.diagnostics.total_variation(draws, normal.cdf, edges=np.linspace(-3, 3, 13)).shape
        (2,)
    """
    edges = _edges(target, edges)
    mass = bin_probabilities(target, edges)
    return _per_chain(lambda ordered: _total_variation(ordered, mass, edges), draws)


def kolmogorov_smirnov(draws: ArrayLike, target: Target | DistributionFunction) -> np.ndarray:
    """The largest gap between the empirical and the true distribution function.

    Args:
        draws: shape (chain, draw) or (draw,).
        target: a `Target`, or its distribution function alone.

    Returns:
        One distance per chain, from 0 to 1.

    Example:
        >>> draws = np.random.default_rng(0).normal(size=(2, 5_000))
        >>> bool((ib.diagnostics.kolmogorov_smirnov(draws, dist.Normal(0.0, 1.0).cdf) < 0.03).all())
        True
    """
    cdf = _cdf(target)
    return _per_chain(lambda ordered: _kolmogorov_smirnov(ordered, cdf), draws)


def wasserstein1(draws: ArrayLike, target: Target | DistributionFunction | np.ndarray) -> np.ndarray:
    """The mean distance that a draw has to travel, to the n mid-point quantiles of the law.

    Args:
        draws: shape (chain, draw) or (draw,).
        target: a `Target`, its quantile function, or `quantiles(target, n)` computed once and used for many runs.

    Returns:
        One distance per chain, in the unit of the draws.

    Raises:
        ValueError: the quantiles are not as many as the draws of a chain.

    Example:
        >>> draws = np.random.default_rng(0).normal(1.0, 1.0, size=5_000)
        >>> from scipy import stats
        >>> round(float(ib.diagnostics.wasserstein1(draws, stats.norm.ppf)), 1)
        1.0
    """
    reference = target if isinstance(target, np.ndarray) else quantiles(target, np.shape(draws)[-1])
    if len(reference) != np.shape(draws)[-1]:
        raise ValueError(
            f"wasserstein1 got {len(reference)} quantiles for {np.shape(draws)[-1]} draws per chain; "
            f"give quantiles(target, {np.shape(draws)[-1]}), or the target itself."
        )
    return _per_chain(lambda ordered: _wasserstein1(ordered, reference), draws)


def distances(draws: ArrayLike, target: Target) -> Distances:
    """All three distances from one sort of each chain.

    Args:
        draws: shape (..., draw).
        target: the law.

    Returns:
        `Distances` of arrays, one number per chain.

    Example:
        >>> from scipy import stats
        >>> class Normal:
        ...     cdf, quantile, edges = stats.norm.cdf, stats.norm.ppf, np.linspace(-3, 3, 13)
        >>> draws = np.random.default_rng(0).normal(size=(2, 5_000))
        >>> ib.diagnostics.distances.distances(draws, Normal).kolmogorov_smirnov.shape
        (2,)
    """
    mass, edges = bin_probabilities(target, target.edges), target.edges
    reference = quantiles(target, np.shape(draws)[-1])

    def of_chain(ordered: np.ndarray) -> tuple[float, float, float]:
        return (
            _total_variation(ordered, mass, edges),
            _kolmogorov_smirnov(ordered, target.cdf),
            _wasserstein1(ordered, reference),
        )

    return Distances(*np.moveaxis(_per_chain(of_chain, draws, width=3), -1, 0))


def iid_floor(target: Target, n: int, repeats: int = 32, seed: int = 0) -> Distances:
    """The same distances for `repeats` sets of n independent draws: what no sampler can be expected to beat.

    Args:
        target: the law, drawn from by inversion.
        n: draws in a set, as many as a chain has.
        repeats: how many sets.
        seed: of NumPy's generator.

    Returns:
        `Distances` of arrays, one number per set.

    Raises:
        ValueError: `n` or `repeats` is below 1.

    Example:
        >>> from scipy import stats
        >>> class Normal:
        ...     cdf, quantile, edges = stats.norm.cdf, stats.norm.ppf, np.linspace(-3, 3, 13)
        >>> bool((ib.diagnostics.iid_floor(Normal, 1_000).kolmogorov_smirnov < 0.1).all())
        True
    """
    if n < 1 or repeats < 1:
        raise ValueError(f"iid_floor got n={n} and repeats={repeats}; both must be at least 1.")
    generator = np.random.default_rng(seed)
    return distances(target.quantile(generator.random((repeats, n))), target)


def bin_probabilities(target: Target | DistributionFunction, edges: ArrayLike | None = None) -> np.ndarray:
    """The law's mass in each bin.

    Args:
        target: the law, or its distribution function.
        edges: of the bins, increasing; None: those of the law.

    Returns:
        One number per bin.

    Example:
        >>> from scipy import stats
        >>> ib.diagnostics.distances.bin_probabilities(stats.norm.cdf, [-np.inf, 0.0, np.inf]).tolist()
        [0.5, 0.5]
    """
    edges = _edges(target, edges)
    return np.diff(_cdf(target)(edges))


def quantiles(target: Target | DistributionFunction, n: int) -> np.ndarray:
    """The law's quantiles at (i - 1/2)/n: the n points that stand for it in `wasserstein1`.

    Args:
        target: the law, or its quantile function.
        n: how many.

    Returns:
        An increasing array of `n` numbers.

    Example:
        >>> from scipy import stats
        >>> ib.diagnostics.distances.quantiles(stats.norm.ppf, 3).round(2).tolist()
        [-0.97, 0.0, 0.97]
    """
    law: Any = target
    return np.asarray(getattr(law, "quantile", law)((np.arange(n) + 0.5) / n))


def total_variation_jax(draws: jax.Array, probabilities: ArrayLike, edges: ArrayLike) -> jax.Array:
    """`total_variation` as one jittable expression, for losses that stay on the device.

    Args:
        draws: shape (..., draw), any float dtype.
        probabilities: `bin_probabilities(target, edges)`.
        edges: increasing, may end in infinity.

    Returns:
        The distance, shape (...); NaN where a draw is not finite.

    Example:
        >>> draws = jnp.array([-1.0, 1.0, 2.0, 3.0])
        >>> float(ib.diagnostics.distances.total_variation_jax(draws, [0.5, 0.5], [-jnp.inf, 0.0, jnp.inf]))
        0.25
    """
    edges = jnp.asarray(edges, draws.dtype)
    probabilities = jnp.asarray(probabilities, draws.dtype)
    below = jnp.vectorize(jnp.searchsorted, signature="(n),(k)->(k)")(jnp.sort(draws, axis=-1), edges)
    below = below.at[..., -1].set((draws <= edges[-1]).sum(-1))
    share = jnp.diff(below, axis=-1).astype(draws.dtype) / draws.shape[-1]
    outside = jnp.abs(probabilities.sum() - share.sum(-1))
    distance = (jnp.abs(share - probabilities).sum(-1) + outside) / 2
    return jnp.where(jnp.isfinite(draws).all(-1), distance, jnp.nan)


def _cdf(target: Target | DistributionFunction) -> DistributionFunction:
    law: Any = target
    function: DistributionFunction = getattr(law, "cdf", law)
    return function


def _edges(target: Target | DistributionFunction, edges: ArrayLike | None) -> np.ndarray:
    if edges is None:
        if not hasattr(target, "edges"):
            raise ValueError("total_variation got a distribution function but no `edges`; give the edges of the bins.")
        edges = target.edges
    found = np.asarray(edges, float)
    if found.ndim != 1 or len(found) < 2 or not (np.diff(found) > 0).all():
        raise ValueError(f"`edges` must be at least two increasing numbers; got an array of shape {found.shape}.")
    return found


def _per_chain(distance: Callable[[np.ndarray], Any], draws: ArrayLike, width: int = 1) -> np.ndarray:
    """Apply `distance` to each chain, sorted and in float64; nan for a chain with a non-finite draw."""
    draws = np.asarray(draws)
    if draws.ndim not in (1, 2) or draws.shape[-1] == 0:
        raise ValueError(
            f"draws must have shape (chain, draw) or (draw,) with at least one draw; got shape {draws.shape}. "
            "For a vector, give one coordinate at a time."
        )
    answer = np.full((len(np.atleast_2d(draws)), width), np.nan)
    for row, chain in zip(answer, np.atleast_2d(draws), strict=True):
        ordered = np.sort(chain.astype(float))
        if np.isfinite(ordered[0]) and np.isfinite(ordered[-1]):
            row[:] = distance(ordered)
    answer = answer if width > 1 else answer[:, 0]
    return answer if draws.ndim == 2 else answer[0]


def _total_variation(ordered: np.ndarray, mass: np.ndarray, edges: np.ndarray) -> float:
    below = np.searchsorted(ordered, edges)
    below[-1] = np.searchsorted(ordered, edges[-1], side="right")
    share = np.diff(below) / len(ordered)
    outside = abs(mass.sum() - share.sum())
    return float(np.abs(share - mass).sum() + outside) / 2


def _kolmogorov_smirnov(ordered: np.ndarray, cdf: DistributionFunction) -> float:
    truth, n = cdf(ordered), len(ordered)
    above = (np.arange(1, n + 1) / n - truth).max()
    below = (truth - np.arange(n) / n).max()
    return float(max(above, below))


def _wasserstein1(ordered: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(ordered - reference).mean())
