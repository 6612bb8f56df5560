"""The plain stochastic gradient, and three ways to show its noise."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from inbounds import trees
from inbounds.data.spread import Spread
from inbounds.gradients._base import Gradient, GradientEstimator, check_options, register
from inbounds.posterior import Posterior
from inbounds.trees import PyTree


class Previous(NamedTuple):
    """The last gradient, for "successive"."""

    gradient: PyTree
    known: jax.Array  # 0.0 before the first, 1.0 from then on


class Minibatch(GradientEstimator):
    """Likelihood terms of the minibatch scaled by N/|S|, plus the prior's gradient exactly."""

    is_plain = True  # whether the estimate is the gradient of the prior and of the scaled likelihood, and no more

    def __init__(self, posterior: Posterior, variance: str, smoothing: float):
        self.posterior = posterior
        self.variance = variance
        self.smoothing = smoothing

    def init(self, theta: PyTree, with_noise: bool) -> Any:
        if not with_noise or self.variance != "successive":
            return None
        return Previous(jax.tree.map(jnp.zeros_like, theta), jnp.zeros((), jax.tree.leaves(theta)[0].dtype))

    def estimate(self, state: Any, theta: PyTree, batch: PyTree, with_noise: bool) -> tuple[Gradient, Any]:
        if not with_noise:
            return Gradient(self.gradient(state, theta, batch), None), state
        if self.variance == "successive":
            value, before = self.gradient(state, theta, batch), self._previous(state)
            differences = jax.tree.map(lambda g, old: (g - old)[None] / math.sqrt(2), value, before.gradient)
            now = Previous(value, jnp.ones_like(before.known))
            return Gradient(value, differences, before.known), self._with_previous(state, now)
        if isinstance(batch, Spread):
            return Gradient(*self._spread(theta, batch, self.variance)), state
        if self.variance == "per_example":
            return Gradient(*self._per_example(state, theta, batch)), state
        return Gradient(*self._halves(state, theta, batch)), state

    # What control variates change: the likelihood part, and where the last gradient is kept.

    def gradient(self, state: Any, theta: PyTree, batch: PyTree) -> PyTree:
        """The estimate from one batch."""
        if isinstance(batch, Spread):
            return self._spread(theta, batch, None)[0]
        if self.posterior.gradient is not None:
            return self.posterior.gradient(theta, batch)
        return jax.grad(lambda x: self.posterior.log_prior(x) + self._scaled_likelihood(x, batch))(theta)

    def _scaled_likelihood(self, theta: PyTree, batch: PyTree) -> jax.Array:
        if self.posterior.log_likelihood is None:
            return jnp.zeros(())
        terms = self.posterior.log_likelihood(theta, batch)
        return jnp.sum(terms) * _scale(self.posterior, terms.shape[0])

    def _previous(self, state: Any) -> Previous:
        previous: Previous = state
        return previous

    def _with_previous(self, state: Any, now: Previous) -> Any:
        return now

    def _halves(self, state: Any, theta: PyTree, batch: PyTree) -> tuple[PyTree, PyTree]:
        """Two half batches cost what one whole costs; half their difference has the covariance of their mean."""
        lengths = _lengths(batch)
        total, half = lengths[0], _half(min(lengths))
        if self.is_plain and self.posterior.gradient is None and trees.size(theta) <= total:
            return self._one_pass(theta, batch, total)
        first = self.gradient(state, theta, jax.tree.map(lambda x: x[: len(x) // 2], batch))
        second = self.gradient(state, theta, jax.tree.map(lambda x: x[len(x) // 2 :], batch))
        share = half / total if len(set(lengths)) == 1 else 0.5  # rows of several plates are no halves of one batch
        value = jax.tree.map(lambda a, b: share * a + (1 - share) * b, first, second)
        apart = math.sqrt(share * (1 - share))
        return value, jax.tree.map(lambda a, b: apart * (a - b)[None], first, second)

    def _one_pass(self, theta: PyTree, batch: PyTree, total: int) -> tuple[PyTree, PyTree]:
        """The same two numbers from one forward pass, for models with fewer parameters than rows.

        Their backward pass is bound by reading the batch, so a second cotangent (the difference of the halves) rides along.
        """
        likelihood = self.posterior.log_likelihood
        assert likelihood is not None
        terms, pull = jax.vjp(lambda x: likelihood(x, batch), theta)
        scale = _scale(self.posterior, total)
        (pair,) = jax.vmap(pull)(scale * jnp.stack([jnp.ones_like(terms), _half_signs(total, terms.dtype)]))
        prior = jax.grad(self.posterior.log_prior)(theta)
        value = jax.tree.map(lambda p, g: p + g[0], prior, pair)
        return value, jax.tree.map(lambda g: g[1:], pair)

    def _per_example(self, state: Any, theta: PyTree, batch: PyTree) -> tuple[PyTree, PyTree]:
        """Every row against their mean: for cheap per-example gradients."""
        lengths = _lengths(batch)
        total = lengths[0]
        if len(set(lengths)) > 1 or total < 2:
            raise ValueError(
                f'variance="per_example" needs a minibatch of at least 2 rows, as many of each array; got {lengths}. Use a larger batch, or '
                'gradient=ib.gradients.minibatch(variance="halves").'
            )
        one = partial(self.gradient, state, theta)
        each = jax.vmap(lambda row: one(jax.tree.map(lambda x: x[None], row)))(batch)
        value = jax.tree.map(lambda g: jnp.mean(g, axis=0), each)
        spare = math.sqrt(total * (total - 1))
        return value, jax.tree.map(lambda g, mean: (g - mean) / spare, each, value)

    def _spread(self, theta: PyTree, batch: Spread, variance: str | None) -> tuple[PyTree, ...]:
        """The estimate, and its differences if asked for, from rows on several devices.

        Their minibatches are independent, each of its own rows: the gradients add up, and so do their covariances. So do the
        differences: of independent ones with mean zero the outer product of the sum has the sum of the outer products as its
        mean. One difference travels, not one per device.
        """
        if self.posterior.gradient is not None:
            return batch.sum(partial(self._own_gradient, batch.num_data, variance), theta)
        likelihood = batch.sum(partial(self._own_likelihood, variance), theta)
        prior = jax.grad(self.posterior.log_prior)(theta)
        return jax.tree.map(jnp.add, prior, likelihood[0]), *likelihood[1:]

    def _own_likelihood(self, variance: str | None, theta: PyTree, rows: PyTree, weights: jax.Array) -> tuple[Any, ...]:
        """One device's part of the likelihood's gradient, and of its differences."""
        likelihood = self.posterior.log_likelihood
        assert likelihood is not None
        total = weights.shape[0]
        if variance == "per_example":
            one = jax.grad(lambda x, row: jnp.sum(likelihood(x, jax.tree.map(lambda leaf: leaf[None], row))))
            each = jax.vmap(one, in_axes=(None, 0))(theta, rows)
            each = jax.vmap(lambda g, w: jax.tree.map(lambda x: x * w.astype(x.dtype), g))(each, weights)
            value = jax.tree.map(lambda g: jnp.sum(g, axis=0), each)
            unbias = math.sqrt(total / (total - 1))
            return value, jax.tree.map(lambda g, total_of: unbias * (g - total_of / total), each, value)
        terms, pull = jax.vjp(lambda x: likelihood(x, rows), theta)
        weights = weights.astype(terms.dtype)
        if variance is None:
            (value,) = pull(weights)
            return (value,)
        (pair,) = jax.vmap(pull)(jnp.stack([weights, weights * _half_signs(total, terms.dtype)]))
        return jax.tree.map(lambda g: g[0], pair), jax.tree.map(lambda g: g[1:], pair)

    def _own_gradient(
        self, num_data: int, variance: str | None, theta: PyTree, rows: PyTree, weights: jax.Array
    ) -> tuple[Any, ...]:
        """One device's part of the user's own gradient: each estimate counts by the share of the data behind it."""
        share = (jnp.sum(weights) / num_data).astype(jax.tree.leaves(theta)[0].dtype)
        parts: tuple[Any, ...] = (self.gradient(None, theta, rows),)
        if variance is not None:
            parts = (self._halves if variance == "halves" else self._per_example)(None, theta, rows)
        return tuple(jax.tree.map(lambda g: share * g, part) for part in parts)


register(Minibatch)


def minibatch(posterior: Posterior | None = None, *, variance: str = "halves", smoothing: float = 0.995) -> Any:
    r"""The plain stochastic gradient.

    $$\hat g(\theta) = \nabla \log p(\theta) + \frac{N}{|S|} \sum_{i \in S} \nabla \log p(x_i \mid \theta)$$

    Args:
        posterior: what is sampled; left out, a factory with these options is returned.
        variance: what shows the noise where a kernel asks for it. "halves": the difference of two half batches, nearly
            free; "successive": the difference of successive gradients, for batches of one; "per_example": the gradients of
            every row, exact but expensive.
        smoothing: weight of the past in the running average of the variance, in [0, 1).

    Returns:
        An estimator, or a factory of estimators with these options.

    Raises:
        ValueError: an option is unknown or out of its range.

    Example:
        >>> gradient = ib.gradients.minibatch(variance="per_example")
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}), gradient=gradient)
    """
    check_options(variance, smoothing)
    if posterior is None:
        return Partial(minibatch, variance=variance, smoothing=smoothing)
    return Minibatch(posterior, variance, smoothing)


def _half(total: int) -> int:
    if total < 2:
        raise ValueError(
            "Noise correction by half batches needs a batch of at least 2, on each device. Use a larger batch, "
            'gradient=ib.gradients.minibatch(variance="successive"), or give the variance: noise_correction=value.'
        )
    return total // 2


def _half_signs(total: int, dtype: Any) -> jax.Array:
    """Weights of half the difference of two half batches of unequal size, such that its square has the variance of the sum."""
    half = _half(total)
    ratio = math.sqrt((total - half) / half)
    return jnp.where(jnp.arange(total) < half, ratio, -1 / ratio).astype(dtype)


def _scale(posterior: Posterior, batch_size: int) -> float:
    return 1.0 if posterior.num_data is None else posterior.num_data / batch_size


def _lengths(batch: PyTree) -> list[int]:
    """How many rows each array of a minibatch has."""
    leaves = jax.tree.leaves(batch)
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError(
            "The variance of the gradient cannot be estimated from a minibatch without a leading axis. Give the "
            'variance (noise_correction=value) or use gradient=ib.gradients.minibatch(variance="successive").'
        )
    return [leaf.shape[0] for leaf in leaves]
