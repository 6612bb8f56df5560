"""BAOAB: underdamped Langevin dynamics, one gradient per step."""

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
    NoiseCorrection,
    ProxyGradient,
    as_preconditioner,
    check_arguments,
    check_metric,
    injected_noise,
    kernel_factory,
    kernel_on_proxy,
)
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.recursion import Recursion, amplitude_left, underdamped
from inbounds.posterior import Posterior
from inbounds.preconditioners import PreconditionerLike, one_step_late
from inbounds.space import Metric, Space
from inbounds.trees import PyTree


class State(NamedTuple):
    phi: PyTree
    velocity: PyTree
    drift: PyTree  # the gradient at phi, already paid for
    variance: PyTree  # of that gradient's noise; None where it is not corrected for
    estimator: Any
    preconditioner: Any


@kernel_factory
def baoab(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    friction: float = 1.0,
    noise_correction: NoiseCorrection = False,
    preconditioner: PreconditionerLike = None,
    metric: Metric | None = None,
    temperature: Temperature = 1.0,
    gradient: GradientFactory = gradients.minibatch,
) -> Kernel:
    r"""Underdamped Langevin dynamics on the proxy by the BAOAB splitting (Leimkuhler and Matthews 2013).

    With $h = \sqrt{2 \epsilon}$ and $c = e^{-\gamma h}$:

    $$v \mathrel{+}= \tfrac h2 \hat G(\varphi), \quad \varphi \mathrel{+}= \tfrac h2 v, \quad
      v = c\, v + \sqrt{1 - c^2}\, \eta, \quad \varphi \mathrel{+}= \tfrac h2 v, \quad v \mathrel{+}= \tfrac h2 \hat G(\varphi)$$

    The second gradient is kept for the first of the next step. Targets $p(\theta) \propto \exp(-U(\theta) / T)$; the bias is
    of second order in $h$ with exact gradients. The step size $\epsilon = h^2 / 2$ is that of `sgld` in the limit of high
    friction, so that step sizes compare across kernels.

    Args:
        posterior: what is sampled.
        transforms: $f$: None (a Lipschitz default for each support), one name, or a tree of them.
        friction: $\gamma$.
        noise_correction: subtract $h^2 (1 + c)^2 V / 4$ from the variance $1 - c^2$ of the O step, coordinate by coordinate; as for
            `sgld`. It has room for it where $h V$ is below $2 \gamma$ or so. In a metric the curvature is known to be 1, and $h^2 (1 + c)^2 V
            / (4 - h^2)$ is subtracted: Gaussians are then sampled exactly.
        preconditioner: $M$, the inverse mass: None, a tree of positive scales, a function of theta that makes one (the scale
            of a variable may not depend on that variable itself), or `ib.preconditioners.rmsprop(adapt_steps)`.
        metric: $c$ and $L$ of $\varphi = c + L z$, such as `ib.metrics.laplace(posterior, center)` makes: the equations above are then
            those of $z$. It excludes a preconditioner.
        temperature: $T$; 1 samples the posterior. A number, an array of one number per chain, or a function of the step number such as
            those of `ib.schedules`. What is not a number is part of the state of each chain, where it may be traced and exchanged.
        gradient: from how much of the data: `ib.gradients.minibatch`, `control_variate(...)` or `svrg(...)`.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: `friction` is not positive, or another argument does not suit the posterior.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.baoab(posterior, friction=2.0)
        >>> draws = ib.sample(kernel, 0.2, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    temperature = check_arguments(posterior, temperature)
    if not friction > 0:
        raise ValueError(f"`friction` must be positive; got {friction}.")
    check_metric(metric, preconditioner, noise_correction)
    space = Space.of(posterior.supports, transforms).with_metric(metric)
    proxy_gradient = ProxyGradient(posterior, space, gradient, noise_correction, temperature)
    precondition = one_step_late(as_preconditioner(preconditioner))
    curvature = 0.0 if metric is None else 1.0

    def taken(h: Any, keep: Any) -> Any:
        """What the gradient's noise adds to the variance of phi, in terms of that of the O step: solved for on a Gaussian of this curvature.

        The noise kicks once, before and after it moves, and the O step moves only after: so it is not the noise's share of the velocity.
        """
        return (h * (1 + keep)) ** 2 / (4 - curvature * h**2)

    def init(theta: PyTree) -> State:
        phi = space.unconstrain(theta)
        still = jax.tree.map(jnp.zeros_like, phi)
        variance = still if proxy_gradient.corrects else None
        return State(phi, still, still, variance, proxy_gradient.init(theta), precondition.init(phi))

    def update(noise: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        h = jnp.sqrt(2 * step_size)
        keep = jnp.exp(-friction * h)
        scale, preconditioner_state = precondition.update(
            state.preconditioner, state.drift, space.evaluation_point(state.phi), step_size
        )
        # The mass enters as a change of units: everything below moves phi / sqrt(M) with unit mass.
        unit = jax.tree.map(jnp.ones_like, state.phi) if scale is None else jax.tree.map(jnp.sqrt, scale)
        injected = injected_noise(
            lambda m: (1 - keep**2) * temperature, lambda m: taken(h, keep) * m, scale, state.variance, like=state.phi
        )
        kicked = jax.tree.map(lambda v, u, g: v + h / 2 * u * g, state.velocity, unit, state.drift)
        velocity = jax.tree.map(lambda v, a, z: keep * v + a * z, kicked, injected.amplitude, noise)
        # Both half drifts in one addition to phi: each rounds it, and what rounding adds stays for as long as friction is low.
        phi = jax.tree.map(lambda p, u, v, w: p + h / 2 * u * (v + w), state.phi, unit, kicked, velocity)
        make_drift, variance_at, estimator = proxy_gradient(state.estimator, phi, minibatch)
        drift = make_drift()
        velocity = jax.tree.map(lambda v, u, g: v + h / 2 * u * g, velocity, unit, drift)

        def make_info() -> Info:
            return Info(trees.norm(drift), injected.noise_variance(), injected.clamped(), trees.all_finite(phi))

        return State(phi, velocity, drift, variance_at(phi), estimator, preconditioner_state), make_info

    def recursion(step_size: float, hessian: np.ndarray, noise: np.ndarray, scale: np.ndarray) -> Recursion:
        h = np.sqrt(2 * step_size)
        keep = np.exp(-friction * h)
        of_noise = proxy_gradient.corrects * taken(h, keep) * scale * np.diag(noise)
        amplitude = amplitude_left((1 - keep**2) * temperature, of_noise)
        return underdamped(h, keep, amplitude, hessian, noise, scale, temperature)

    return kernel_on_proxy(
        "baoab",
        posterior,
        proxy_gradient,
        init,
        update,
        precondition=precondition,
        recursion=recursion,
        drift_averages_out=True,
        underdamped=True,
    )
