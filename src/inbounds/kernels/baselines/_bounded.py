"""What the baselines share: they move theta itself, in the bounded space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import transforms as tf
from inbounds import trees
from inbounds.gradients._base import GradientFactory
from inbounds.kernels._base import Info, Kernel, MakeInfo, ProxyGradient
from inbounds.kernels._temperature import Temperature
from inbounds.posterior import Posterior
from inbounds.space import Space, is_constraint
from inbounds.trees import PyTree


class State(NamedTuple):
    theta: PyTree
    estimator: Any


class Bounds(NamedTuple):
    """Ends of a scalar support, and the floats next to them inside: no chain may sit on an end."""

    lower: Any
    upper: Any

    def inside(self, theta: jax.Array) -> jax.Array:
        """Clip into the open interval; where the density is singular the end itself has no gradient."""
        tiny = float(jnp.finfo(theta.dtype).tiny)
        lower = jnp.asarray(self.lower, theta.dtype)
        upper = jnp.asarray(self.upper, theta.dtype)
        low = jnp.where(lower == 0, tiny, jnp.nextafter(lower, jnp.full_like(lower, jnp.inf)))
        high = jnp.where(upper == 0, -tiny, jnp.nextafter(upper, jnp.full_like(upper, -jnp.inf)))
        return jnp.clip(
            theta, jnp.where(jnp.isneginf(lower), -jnp.inf, low), jnp.where(jnp.isposinf(upper), jnp.inf, high)
        )


# (theta, gradient, noise, bounds, step size) -> theta, leaf by leaf; the float next to an end is no more its business.
Move = Callable[[jax.Array, jax.Array, jax.Array, Bounds, jax.Array], jax.Array]


def bounds_of(posterior: Posterior, kernel: str) -> PyTree:
    """`Bounds` of every variable; vector supports are refused with what to use instead."""

    def one(support: Any) -> Bounds:
        if tf.is_vector(support):
            raise ValueError(
                f"{kernel} works on scalar supports; {support} is a vector support. Use ib.sgld or "
                "ib.leimkuhler_matthews, which take any support."
            )
        return Bounds(*tf.bounds(support))

    return jax.tree.map(one, posterior.supports, is_leaf=is_constraint)


def bounded_kernel(
    name: str,
    posterior: Posterior,
    move: Move,
    gradient: GradientFactory,
    temperature: Temperature,
) -> Kernel:
    """A kernel that moves theta: `move(theta, gradient, noise, bounds, step_size)`, leaf by leaf, then clips inside."""
    bounds = bounds_of(posterior, name)
    identity = jax.tree.map(lambda _: tf.Identity(), posterior.supports, is_leaf=is_constraint)
    theta_gradient = ProxyGradient(posterior, Space(posterior.supports, identity), gradient, False)

    def init(theta: PyTree) -> State:
        return State(theta, theta_gradient.init(theta))

    def update(noise: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        make_drift, _, estimator = theta_gradient(state.estimator, state.theta, minibatch)
        drift = make_drift()

        def leaf(bound: Bounds, x: jax.Array, g: jax.Array, z: jax.Array) -> jax.Array:
            return bound.inside(move(x, g, z, bound, step_size))

        theta = jax.tree.map(
            lambda bound, *subtrees: jax.tree.map(lambda x, g, z: leaf(bound, x, g, z), *subtrees),
            bounds,
            state.theta,
            drift,
            noise,
            is_leaf=lambda x: isinstance(x, Bounds),
        )

        def make_info() -> Info:
            return Info(trees.norm(make_drift()), jnp.full((), jnp.nan), jnp.zeros(()), trees.all_finite(theta))

        return State(theta, estimator), make_info

    return Kernel(
        name=name,
        posterior=posterior,
        space=Space(posterior.supports, identity),
        estimator=theta_gradient.estimator,
        temperature=temperature,
        _init=init,
        _update=update,
        _moving=lambda state: state.theta,
        constrain=lambda theta: theta,
        _refresh=lambda state: state._replace(estimator=theta_gradient.refresh(state.estimator, state.theta)),
    )


def is_finite_end(end: Any) -> bool:
    return bool(np.all(np.isfinite(np.asarray(end))))
