r"""Kernel Stein discrepancy: how far draws are from the target, from its gradients alone (Gorham and Mackey 2017).

For the inverse multiquadric kernel $k(x, y) = (c^2 + |x - y|^2)^{-1/2}$ and the score $s$ of the proxy's density (at the temperature
of the kernel),

$$\mathrm{KSD}^2 = E_{x, y} [ s_x^\top s_y k + s_x^\top \nabla_y k + s_y^\top \nabla_x k + \nabla_x \cdot \nabla_y k ]$$

is zero only for the target. Minibatch scores do: the sum leaves the diagonal out, so that independent noise averages away
(stochastic Stein discrepancies; Gorham, Raj and Mackey 2020).

In theta the kernel measures distances between bounded variables, $k(f(\varphi_x), f(\varphi_y))$, and the Stein operator stays that
of the proxy: derivatives get a factor $f'$. Nothing is asked of the density at the bounds, where the usual operator in
theta has boundary terms that do not vanish. For the same reason kernels that move theta itself are looked at through the default
proxy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from inbounds.diagnostics._identities import proxy_scores, proxy_space

__all__ = ["Stein", "imq_stein_matrix", "stein_discrepancy"]


@dataclass(frozen=True)
class Stein:
    """A kernel Stein discrepancy.

    Attributes:
        squared: the unbiased estimate of KSD^2; negative by chance where there is no discrepancy.
        p_value: of the hypothesis that the draws follow the target, by the wild bootstrap for correlated draws.
        space: "proxy" or "theta".
        num_draws: that went into it.
    """

    squared: float
    p_value: float
    space: str
    num_draws: int

    @property
    def value(self) -> float:
        """KSD, zero where its square came out negative."""
        return float(np.sqrt(max(self.squared, 0.0)))

    def __str__(self) -> str:
        return f"kernel Stein discrepancy in {self.space}: {self.value:.4g} (p = {self.p_value:.3g}, {self.num_draws:,} draws)"


def stein_discrepancy(
    draws: Any,
    space: str = "proxy",
    *,
    batch_size: int | None = None,
    most: int = 2_000,
    correlation: float = 0.9,
    bootstraps: int = 500,
    seed: int = 0,
) -> Stein:
    """The IMQ kernel Stein discrepancy between the draws of a run and its posterior.

    Args:
        draws: what `ib.sample` returned.
        space: "proxy", or "theta" for a kernel on the bounded variables (coordinate-wise transforms only).
        batch_size: rows of the minibatches behind the gradients; None takes what the posterior says, or all the data.
        most: draws looked at, evenly thinned; the cost grows with its square.
        correlation: of successive signs in the wild bootstrap; raise it for draws that are strongly autocorrelated.
        bootstraps: for the p-value.
        seed: of minibatches and bootstrap.

    Returns:
        The discrepancy, and the probability of one as large if the draws are right.

    Raises:
        ValueError: `space` is unknown, `correlation` is not in [0, 1), or the run has a single draw.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> draws = ib.sample(ib.sgld(posterior), 0.05, 5_000, burn_in=500, num_chains=4, progress=False)
        >>> ib.diagnostics.stein_discrepancy(draws, most=400).num_draws
        400
    """
    if space not in ("proxy", "theta"):
        raise ValueError(f'`space` must be "proxy" or "theta"; got {space!r}.')
    if not 0 <= correlation < 1:
        raise ValueError(f"`correlation` must be in [0, 1); got {correlation}.")
    found = proxy_scores(draws, batch_size=batch_size, most=most, seed=seed)
    chains, length, dimension = found.phi.shape
    if chains * length < 2:
        raise ValueError("A discrepancy compares pairs of draws, and this run has one. Run longer, or keep more draws.")
    points, slopes = found.phi, np.ones_like(found.phi)
    if space == "theta":
        points, slopes = _bounded(draws, found.phi)
    spread = np.maximum(points.std(axis=(0, 1)), 1e-30)
    weight = np.maximum(found.phi.std(axis=(0, 1)), 1e-30)  # of each coordinate: no unit of measurement counts more
    flat = (x.reshape(-1, dimension) for x in (points / spread, found.score * weight, slopes / spread * weight))
    matrix = imq_stein_matrix(*flat)
    np.fill_diagonal(matrix, 0.0)
    pairs = len(matrix) * (len(matrix) - 1)
    squared = float(matrix.sum() / pairs)
    signs = _signs(np.random.default_rng(seed), bootstraps, chains, length, correlation)
    null = np.einsum("bi,bi->b", signs @ matrix, signs) / pairs
    return Stein(squared, float((1 + np.sum(null >= squared)) / (1 + bootstraps)), space, len(matrix))


def imq_stein_matrix(points: np.ndarray, scores: np.ndarray, slopes: np.ndarray | None = None) -> np.ndarray:
    """The Stein kernel of every pair of points (n, d); its mean is KSD^2.

    Args:
        points: where the kernel measures distances.
        scores: gradient of the log density of the proxy.
        slopes: d points / d proxy, coordinate by coordinate; None: the points are the proxy.

    Returns:
        A matrix (n, n).

    Example:
        >>> points = np.random.default_rng(0).normal(size=(100, 2))
        >>> ib.diagnostics.imq_stein_matrix(points, -points).shape
        (100, 100)
    """
    x, s = np.asarray(points, float), np.asarray(scores, float)
    a = np.ones_like(x) if slopes is None else np.asarray(slopes, float)
    squares = np.sum(x**2, axis=1)
    distance = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0.0)
    upper = distance[np.triu_indices(len(x), 1)]
    scale = float(np.median(upper)) if upper.size else 1.0
    base = (scale or 1.0) + distance
    k, k1, k2 = base**-0.5, -0.5 * base**-1.5, 0.75 * base**-2.5  # k and its derivatives in the squared distance
    # s_x . (a_y grad_y k) = -2 k1 sum_i s_xi a_yi (x_i - y_i), and the same with x and y exchanged
    cross = (s * x) @ a.T - s @ (a * x).T
    mixed = (a * x**2) @ a.T + a @ (a * x**2).T - 2 * (a * x) @ (a * x).T
    result: np.ndarray = (s @ s.T) * k - 2 * k1 * (cross + cross.T) - 2 * k1 * (a @ a.T) - 4 * k2 * mixed
    return result


def _bounded(draws: Any, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """theta and f' at flat proxies (chain, draw, coordinate)."""
    space = proxy_space(draws.kernel)
    if any(transform.domain.event_dim for transform in space.leaves()):
        raise ValueError('space="theta" needs coordinate-wise transforms; a simplex or a matrix has none: use "proxy".')
    first = jax.tree.map(lambda leaf: leaf[0, 0], draws.theta)
    unravel = ravel_pytree(jax.tree.map(np.asarray, first))[1]

    def one(flat: jax.Array) -> tuple[jax.Array, jax.Array]:
        tree = unravel(flat)
        slope = space._map(lambda t, p: t.derivative(p), tree)
        return ravel_pytree(space.constrain(tree))[0], ravel_pytree(slope)[0]

    dtype = jax.tree.leaves(draws.theta)[0].dtype
    theta, slope = jax.jit(jax.vmap(jax.vmap(one)))(np.asarray(phi, dtype))
    return np.asarray(theta, float), np.asarray(slope, float)


def _signs(generator: Any, bootstraps: int, chains: int, length: int, correlation: float) -> np.ndarray:
    """Signs +-1 that flip now and then along each chain: (bootstrap, chain x draw)."""
    flips = generator.uniform(size=(bootstraps, chains, length)) < (1 - correlation) / 2
    flips[..., 0] = generator.uniform(size=(bootstraps, chains)) < 0.5
    return (1.0 - 2.0 * (np.cumsum(flips, axis=-1) % 2)).reshape(bootstraps, chains * length)
