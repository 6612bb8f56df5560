"""The exact gradient, over all the data."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inbounds import trees
from inbounds.data.arrays import is_stream
from inbounds.data.source import Source
from inbounds.posterior import Posterior
from inbounds.trees import PyTree


def full_gradient(posterior: Posterior, theta: PyTree) -> PyTree:
    """The exact gradient of log pi at theta, over all the data.

    Args:
        posterior: prior and likelihood.
        theta: where.

    Returns:
        A tree like theta.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> float(ib.gradients.full_gradient(posterior, {"x": 1.0})["x"])  # the mode
        0.0
    """
    if posterior.gradient is not None:
        data = posterior.data
        return posterior.gradient(theta, data.all_rows() if isinstance(data, Source) else data)
    prior = jax.grad(posterior.log_prior)(theta)
    if posterior.log_likelihood is None:
        return prior
    return jax.tree.map(jnp.add, prior, full_likelihood_gradient(posterior, theta))


def full_likelihood_gradient(posterior: Posterior, theta: PyTree, rows: int = 8_192) -> PyTree:
    """Gradient of the log likelihood of all the data, in slices of `rows`.

    Args:
        posterior: with a likelihood and data.
        theta: where.
        rows: how many are looked at together.

    Returns:
        A tree like theta.

    Raises:
        ValueError: the data are on disk, and a program is being traced.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> gradient = ib.gradients.full_likelihood_gradient(posterior, {"rate": 1_000 / spent.sum()})
        >>> abs(float(gradient["rate"])) < 0.1
        True
    """
    total = posterior.num_data
    assert total is not None
    assert posterior.log_likelihood is not None
    likelihood = posterior.log_likelihood
    gradient = jax.grad(lambda x, batch: jnp.sum(likelihood(x, batch)))
    if is_stream(posterior.data):
        if trees.is_traced(theta):
            raise ValueError(
                "The gradient over all the data on disk cannot be part of a compiled function: call it outside."
            )
        compiled, total_gradient = jax.jit(gradient), jax.tree.map(jnp.zeros_like, theta)
        for batch in posterior.data.slices(rows):
            total_gradient = jax.tree.map(jnp.add, total_gradient, compiled(theta, batch))
        return total_gradient
    whole, rest = divmod(total, rows)
    data = posterior.placed_data
    sums = jax.tree.map(jnp.zeros_like, theta)

    def add(carry: PyTree, index: jax.Array) -> tuple[PyTree, None]:
        batch = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, index * rows, rows), data)
        return jax.tree.map(jnp.add, carry, gradient(theta, batch)), None

    if whole:
        sums, _ = jax.lax.scan(add, sums, jnp.arange(whole))
    if rest:
        sums = jax.tree.map(jnp.add, sums, gradient(theta, jax.tree.map(lambda x: x[whole * rows :], data)))
    return sums
