"""Nose-Hoover thermostat: underdamped dynamics that find out how noisy the gradient is."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from inbounds import gradients, trees
from inbounds.kernels.base import (
    Info,
    Kernel,
    ProxyGradient,
    as_preconditioner,
    check_arguments,
    describe,
    kernel_on_proxy,
)
from inbounds.posterior import Posterior
from inbounds.preconditioners import one_step_late
from inbounds.space import Space
from inbounds.trees import PyTree


class State(NamedTuple):
    phi: PyTree
    velocity: PyTree
    friction: jax.Array  # xi, the thermostat
    drift: PyTree
    estimator: Any
    preconditioner: Any


def sgnht(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    friction: float = 1.0,
    thermal_mass: float = 1.0,
    preconditioner: Any = None,
    temperature: float = 1.0,
    gradient: Any = gradients.minibatch,
) -> Kernel:
    r"""Stochastic gradient Nose-Hoover thermostat (Ding et al. 2014) on the proxy, by a symmetric splitting.

    $$d\varphi = v\, dt, \quad dv = \hat G(\varphi)\, dt - \xi v\, dt + \sqrt{2 \gamma T}\, dW, \quad
      d\xi = \frac{1}{\mu} \left( \frac{v^T v}{n} - T \right) dt$$

    with $h = \sqrt{2 \epsilon}$, split as B A D O D A B (Leimkuhler and Shang 2016), one gradient a step. The friction $\xi$
    grows until the kinetic energy is right, and so absorbs gradient noise whose variance is constant, without knowing it.
    Targets $p(\theta) \propto \exp(-U(\theta) / T)$. The thermostat is the noise correction here, so there is no option for
    one: noise that varies with $\varphi$ (it does near a bound, as $f'^2$) is absorbed on average only.

    Args:
        posterior: what is sampled.
        transforms: $f$: None (a Lipschitz default for each support), one name, or a tree of them.
        friction: $\gamma$, where the thermostat starts, and the strength of the injected noise.
        thermal_mass: $\mu$: how slowly the thermostat answers.
        preconditioner: $M$, the inverse mass: None, a tree of positive scales, a function of theta that makes one, in which no
            variable has a say in its own scale, or `ib.preconditioners.rmsprop(adapt_steps)`.
        temperature: $T$; 1 samples the posterior.
        gradient: from how much of the data: `ib.gradients.minibatch`, `control_variate(...)` or `svrg(...)`.
    """
    check_arguments(posterior, temperature)
    if not friction > 0 or not thermal_mass > 0:
        raise ValueError(f"`friction` and `thermal_mass` must be positive; got {friction} and {thermal_mass}.")
    space = Space.of(posterior.supports, transforms)
    proxy_gradient = ProxyGradient(posterior, space, gradient, False, temperature)
    precondition = one_step_late(as_preconditioner(preconditioner))

    def init(theta):
        phi = space.unconstrain(theta)
        still = jax.tree.map(jnp.zeros_like, phi)
        xi = jnp.full((), friction, jax.tree.leaves(phi)[0].dtype)
        return State(phi, still, xi, still, proxy_gradient.init(theta), precondition.init(phi))

    def update(noise, state, minibatch, step_size):
        h = jnp.sqrt(2 * step_size)
        scale, preconditioner_state = precondition.update(
            state.preconditioner, state.drift, space.evaluation_point(state.phi)
        )
        unit = jax.tree.map(jnp.ones_like, state.phi) if scale is None else jax.tree.map(jnp.sqrt, scale)

        def heat(xi, v):
            excess = trees.mean(jax.tree.map(jnp.square, v)) - temperature
            return xi + h / 2 * excess / thermal_mass

        velocity = jax.tree.map(lambda v, u, g: v + h / 2 * u * g, state.velocity, unit, state.drift)
        phi = jax.tree.map(lambda p, u, v: p + h / 2 * u * v, state.phi, unit, velocity)
        xi = heat(state.friction, velocity)
        keep = jnp.exp(-xi * h)
        # (1 - e^{-2 xi h}) / (2 xi) is 2h (1 - ...) at xi = 0, where the quotient is 0/0; xi may be negative.
        safe = jnp.where(jnp.abs(xi) * h < 1e-4, jnp.ones_like(xi), xi)
        width = jnp.where(jnp.abs(xi) * h < 1e-4, h * (1 - xi * h), -jnp.expm1(-2 * safe * h) / (2 * safe))
        amplitude = jnp.sqrt(2 * friction * temperature * width)
        velocity = jax.tree.map(lambda v, z: keep * v + amplitude * z, velocity, noise)
        xi = heat(xi, velocity)
        phi = jax.tree.map(lambda p, u, v: p + h / 2 * u * v, phi, unit, velocity)
        make_drift, _, estimator = proxy_gradient(state.estimator, phi, minibatch)
        drift = make_drift()
        velocity = jax.tree.map(lambda v, u, g: v + h / 2 * u * g, velocity, unit, drift)

        def look():
            return Info(trees.norm(drift), jnp.full((), jnp.nan), jnp.zeros(()), trees.all_finite(phi))

        return State(phi, velocity, xi, drift, estimator, preconditioner_state), look

    config = describe(
        friction=friction, thermal_mass=thermal_mass, preconditioner=precondition, temperature=temperature
    )
    # The thermostat takes gradient noise for white.
    return kernel_on_proxy(
        "sgnht", posterior, proxy_gradient, precondition, init, update, config, independent_batches=True
    )
