"""Nose-Hoover thermostat: underdamped dynamics that find out how noisy the gradient is."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import gradients, trees
from inbounds.gradients._base import GradientFactory
from inbounds.kernels._base import (
    Info,
    Kernel,
    MakeInfo,
    ProxyGradient,
    as_preconditioner,
    check_arguments,
    kernel_factory,
    kernel_on_proxy,
)
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.recursion import Recursion, UnstableError, underdamped
from inbounds.posterior import Posterior
from inbounds.preconditioners import PreconditionerLike, one_step_late
from inbounds.space import Metric, Space
from inbounds.trees import PyTree


class State(NamedTuple):
    phi: PyTree
    velocity: PyTree
    friction: jax.Array  # xi, the thermostat
    drift: PyTree
    estimator: Any
    preconditioner: Any


@kernel_factory
def sgnht(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    friction: float = 1.0,
    thermal_mass: float = 1.0,
    preconditioner: PreconditionerLike = None,
    metric: Metric | None = None,
    temperature: Temperature = 1.0,
    gradient: GradientFactory = gradients.minibatch,
) -> Kernel:
    r"""Stochastic gradient Nose-Hoover thermostat (Ding et al. 2014) on the proxy, by a symmetric splitting.

    $$d\varphi = v\, dt, \quad dv = \hat G(\varphi)\, dt - \xi v\, dt + \sqrt{2 \gamma T}\, dW, \quad
      d\xi = \frac{1}{\mu} \left( \frac{v^T v}{n} - T \right) dt$$

    with $h = \sqrt{2 \epsilon}$, split as B A D O D A B (Leimkuhler and Shang 2016), one gradient per step. The friction $\xi$
    grows until the kinetic energy is right, and so absorbs gradient noise whose variance is constant, without knowing it.
    Targets $p(\theta) \propto \exp(-U(\theta) / T)$. The thermostat is the noise correction here, so there is no option for
    one: noise that varies with $\varphi$ (it does near a bound, as $f'^2$) is absorbed on average only.

    Args:
        posterior: what is sampled.
        transforms: $f$: None (a Lipschitz default for each support), one name, or a tree of them.
        friction: $\gamma$, where the thermostat starts, and the strength of the injected noise.
        thermal_mass: $\mu$: how slowly the thermostat answers.
        preconditioner: $M$, the inverse mass: None, a tree of positive scales, a function of theta that makes one (the scale
            of a variable may not depend on that variable itself), or `ib.preconditioners.rmsprop(adapt_steps)`.
        metric: refused: the one thermostat cools every coordinate alike, and in a metric their noise differs.
        temperature: $T$; 1 samples the posterior. A number, an array of one number per chain, or a function of the step number such as
            those of `ib.schedules`. What is not a number is part of the state of each chain, where it may be traced and exchanged.
        gradient: from how much of the data: `ib.gradients.minibatch`, `control_variate(...)` or `svrg(...)`.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: `friction` or `thermal_mass` is not positive, or there is a metric, which one thermostat does not suit.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.sgnht(posterior)
        >>> draws = ib.sample(kernel, 0.05, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    temperature = check_arguments(posterior, temperature)
    if not friction > 0 or not thermal_mass > 0:
        raise ValueError(f"`friction` and `thermal_mass` must be positive; got {friction} and {thermal_mass}.")
    if metric is not None:
        raise ValueError(
            "sgnht has one thermostat for all coordinates, and in a metric the gradient noise of each is another: the sds would be wrong in "
            "both directions. Take ib.leimkuhler_matthews or ib.baoab with `metric` and noise_correction=True, or leave `metric` out."
        )
    space = Space.of(posterior.supports, transforms)
    proxy_gradient = ProxyGradient(posterior, space, gradient, False, temperature)
    precondition = one_step_late(as_preconditioner(preconditioner))

    def init(theta: PyTree) -> State:
        phi = space.unconstrain(theta)
        still = jax.tree.map(jnp.zeros_like, phi)
        xi = jnp.full((), friction, jax.tree.leaves(phi)[0].dtype)
        return State(phi, still, xi, still, proxy_gradient.init(theta), precondition.init(phi))

    def update(noise: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        h = jnp.sqrt(2 * step_size)
        scale, preconditioner_state = precondition.update(
            state.preconditioner, state.drift, space.evaluation_point(state.phi), step_size
        )
        unit = jax.tree.map(jnp.ones_like, state.phi) if scale is None else jax.tree.map(jnp.sqrt, scale)

        def heat(xi: jax.Array, v: PyTree) -> jax.Array:
            excess = trees.mean(jax.tree.map(jnp.square, v)) - temperature
            return xi + h / 2 * excess / thermal_mass

        kicked = jax.tree.map(lambda v, u, g: v + h / 2 * u * g, state.velocity, unit, state.drift)
        xi = heat(state.friction, kicked)
        keep = jnp.exp(-xi * h)
        # (1 - e^{-2 xi h}) / (2 xi) is 2h (1 - ...) at xi = 0, where the quotient is 0/0; xi may be negative.
        safe = jnp.where(jnp.abs(xi) * h < 1e-4, jnp.ones_like(xi), xi)
        width = jnp.where(jnp.abs(xi) * h < 1e-4, h * (1 - xi * h), -jnp.expm1(-2 * safe * h) / (2 * safe))
        amplitude = jnp.sqrt(2 * friction * temperature * width)
        velocity = jax.tree.map(lambda v, z: keep * v + amplitude * z, kicked, noise)
        xi = heat(xi, velocity)
        # Both half drifts in one addition to phi: each rounds it, and what rounding adds stays for as long as friction is low.
        phi = jax.tree.map(lambda p, u, v, w: p + h / 2 * u * (v + w), state.phi, unit, kicked, velocity)
        make_drift, _, estimator = proxy_gradient(state.estimator, phi, minibatch)
        drift = make_drift()
        velocity = jax.tree.map(lambda v, u, g: v + h / 2 * u * g, velocity, unit, drift)

        def make_info() -> Info:
            return Info(trees.norm(drift), jnp.full((), jnp.nan), jnp.zeros(()), trees.all_finite(phi))

        return State(phi, velocity, xi, drift, estimator, preconditioner_state), make_info

    def recursion(step_size: float, hessian: np.ndarray, noise: np.ndarray, scale: np.ndarray) -> Recursion:
        # Around its mean the thermostat fluctuates; that is left out, as if its mass were large.
        h = np.sqrt(2 * step_size)
        xi = _settled(h, friction, temperature, hessian, noise, scale)
        amplitude = np.sqrt(friction * temperature * -np.expm1(-2 * xi * h) / xi)
        return underdamped(h, np.exp(-xi * h), np.full(len(hessian), amplitude), hessian, noise, scale, temperature)

    # The thermostat takes gradient noise for white.
    return kernel_on_proxy(
        "sgnht", posterior, proxy_gradient, init, update, precondition=precondition, independent_batches=True,
        recursion=recursion, underdamped=True,
    )  # fmt: skip


def _settled(
    h: float,
    friction: float,
    temperature: float | jax.Array,
    hessian: np.ndarray,
    noise: np.ndarray,
    scale: np.ndarray,
) -> float:
    """The friction at which the thermostat comes to rest on a Gaussian: there the mean kinetic energy is that of the temperature.

    The energy is a trace, so the principal axes (of unit mass) can be taken one by one, whatever noise they share.
    """
    u = np.sqrt(scale)
    curvatures, axes = np.linalg.eigh(u[:, None] * hessian * u)
    noises = np.sum(axes * ((u[:, None] * noise * u) @ axes), axis=0)
    heat = friction * float(temperature)
    low, high = 1e-6 * friction, 40 / h  # under the second nothing is left of a velocity
    if np.max(h**2 * curvatures) >= 4 or np.min(curvatures) <= 0:
        raise UnstableError("the step is too long for the largest curvature, or a curvature is not positive")
    if not _kinetic_energy(high, h, heat, curvatures, noises) < temperature:
        raise UnstableError(
            "the gradient noise heats the chain more than any friction can cool it: the thermostat runs away"
        )
    for _ in range(60):
        middle = np.sqrt(low * high)
        if _kinetic_energy(middle, h, heat, curvatures, noises) > temperature:
            low = middle
        else:
            high = middle
    return high


def _kinetic_energy(xi: float, h: float, heat: float, curvatures: np.ndarray, noises: np.ndarray) -> float:
    """Mean of v^2 where the thermostat looks at it, half before the O step and half after it, under constant friction."""
    keep = np.exp(-xi * h)
    added = -heat * np.expm1(-2 * xi * h) / xi
    one = np.ones_like(curvatures)
    reach = h / 2 * (1 + keep)
    stay, kick = 1 - reach * h * curvatures, -keep * h * curvatures  # phi' = stay phi + reach v, v' = kick phi + keep v
    # Of (var phi, cov, var v): what a step makes of them, and what it adds.
    moved = np.array(
        [
            [stay**2, 2 * stay * reach, reach**2 * one],
            [stay * kick, stay * keep + reach * kick, reach * keep * one],
            [kick**2, 2 * kick * keep, keep**2 * one],
        ]
    )
    gained = np.array(
        [
            (reach * h) ** 2 * noises + h**2 / 4 * added,
            reach * h * keep * h * noises + h / 2 * added,
            (keep * h) ** 2 * noises + added * one,
        ]
    )
    system = np.eye(3) - moved.transpose(2, 0, 1)
    place, both, after = np.linalg.solve(system, gained.T[..., None])[..., 0].T
    before = after - 2 * h * curvatures * both + (h * curvatures) ** 2 * place + h**2 * noises
    return float(np.mean(before + after) / 2)
