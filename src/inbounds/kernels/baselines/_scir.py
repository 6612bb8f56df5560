"""Stochastic Cox-Ingersoll-Ross: exact transitions for gamma-shaped conditionals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from inbounds import gradients, trees
from inbounds import transforms as tf
from inbounds.kernels._base import Info, Kernel, MakeInfo, check_arguments, kernel_factory
from inbounds.posterior import Posterior, base_of, is_distribution
from inbounds.space import Space, is_constraint
from inbounds.trees import PyTree


class State(NamedTuple):
    theta: PyTree


@kernel_factory
def scir(posterior: Posterior, conditional: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]] | None = None) -> Kernel:
    r"""The stochastic CIR process (Baker, Fearnhead, Fox and Nemeth 2018): no discretisation error for gamma targets.

    $$\theta_{t+1} \sim \frac{1 - e^{-h}}{2 b}\, \chi'^2\left( 2 \hat a,\ \frac{2 b\, \theta_t e^{-h}}{1 - e^{-h}} \right)$$

    Targets $\mathrm{Gamma}(a, b)$ exactly for every step size $h$ when shape and rate are known; with a stochastic estimate
    $\hat a$ the bias comes from its noise alone. The Dirichlet and topic models use it on the expanded mean. The step size is $h$.

    Args:
        posterior: what is sampled; every variable positive.
        conditional: `conditional(theta, batch) -> (shape, rate)`, trees like theta: the gamma law of each coordinate given
            the rest, estimated from a minibatch. Left out, the priors must be gamma, exponential or chi-squared and
            there must be no data.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: a variable is not positive, or `conditional` is left out where it is needed.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.baselines.scir(posterior)
        >>> draws = ib.sample(kernel, 0.5, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    check_arguments(posterior)
    for name, support in posterior.variables():
        if tf.is_vector(support) or tuple(map(float, tf.bounds(support))) != (0.0, float("inf")):
            raise ValueError(f"scir samples positive variables; {name!r} lives in {support}.")
    law = conditional if conditional is not None else _gamma_priors(posterior)
    identity = jax.tree.map(lambda _: tf.Identity(), posterior.supports, is_leaf=is_constraint)

    def update(key: jax.Array, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        shape, rate = law(state.theta, minibatch)
        treedef: Any
        leaves, treedef = jax.tree.flatten(state.theta)
        keys = jax.random.split(key, len(leaves))
        moved = [
            _transition(k, x, jnp.broadcast_to(a, x.shape), jnp.broadcast_to(b, x.shape), step_size)
            for k, x, a, b in zip(keys, leaves, treedef.flatten_up_to(shape), treedef.flatten_up_to(rate), strict=True)
        ]
        theta = jax.tree.unflatten(treedef, moved)

        def make_info() -> Info:
            nan = jnp.full((), jnp.nan)
            return Info(nan, nan, jnp.zeros(()), trees.all_finite(theta))

        return State(theta), make_info

    return Kernel(
        name="scir",
        posterior=posterior,
        space=Space(posterior.supports, identity),
        estimator=gradients.minibatch(posterior),
        _init=State,
        _update=update,
        _moving=lambda state: state.theta,
        constrain=lambda theta: theta,
        noise="key",
        reports=(),
    )


def _transition(key: jax.Array, theta: jax.Array, shape: jax.Array, rate: jax.Array, h: jax.Array) -> jax.Array:
    """A non-central chi-squared draw as a Poisson mixture of gammas, in the log domain: small shapes underflow."""
    poisson_key, gamma_key = jax.random.split(key)
    decay = jnp.exp(-h)
    mixed = jax.random.poisson(poisson_key, rate * theta * decay / -jnp.expm1(-h))
    log_draw = jax.random.loggamma(gamma_key, shape + mixed.astype(theta.dtype))
    draw = jnp.exp(log_draw) * -jnp.expm1(-h) / rate
    return jnp.maximum(draw, float(jnp.finfo(theta.dtype).tiny))


def _gamma_priors(posterior: Posterior) -> Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]:
    if posterior.priors is None or posterior.num_data is not None:
        raise ValueError(
            "scir needs `conditional(theta, batch) -> (shape, rate)` unless the target is its gamma priors."
        )

    def parameters(prior: Any) -> tuple[Any, Any]:
        prior = base_of(prior)
        if isinstance(prior, dist.Gamma):
            return prior.concentration, prior.rate
        if isinstance(prior, dist.Exponential):
            return jnp.ones_like(prior.rate), prior.rate
        raise ValueError(f"scir needs gamma or exponential priors, or a `conditional`; got {type(prior).__name__}.")

    pairs = jax.tree.map(parameters, posterior.priors, is_leaf=is_distribution)
    shape = jax.tree.map(lambda _, pair: pair[0], posterior.priors, pairs, is_leaf=is_distribution)
    rate = jax.tree.map(lambda _, pair: pair[1], posterior.priors, pairs, is_leaf=is_distribution)
    return lambda theta, batch: (shape, rate)
