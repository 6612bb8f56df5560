"""Leimkuhler-Matthews: second order in the step size for one gradient per step."""

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
    scaled,
)
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.recursion import Recursion, amplitude_left
from inbounds.posterior import Posterior
from inbounds.preconditioners import PreconditionerLike
from inbounds.space import Metric, Space
from inbounds.trees import PyTree


class State(NamedTuple):
    phi: PyTree
    kick: PyTree  # the noise eta that made phi of y, and moves y in the next step
    spread: PyTree  # what multiplied it in phi, with as many axes as phi
    estimator: Any
    preconditioner: Any

    @property
    def base(self) -> PyTree:
        """y. It is phi that is kept: rows of a table are looked up in one array then, and a step's noise is used where it is made."""
        return jax.tree.map(lambda p, s, z: p - s * z, self.phi, self.spread, self.kick)


@kernel_factory
def leimkuhler_matthews(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    noise_correction: NoiseCorrection = False,
    preconditioner: PreconditionerLike = None,
    metric: Metric | None = None,
    temperature: Temperature = 1.0,
    gradient: GradientFactory = gradients.minibatch,
) -> Kernel:
    r"""Langevin dynamics on the proxy, integrated by the scheme of Leimkuhler and Matthews (2013).

    $$y_{t+1} = y_t + \epsilon\, \hat G(\varphi_t) + \sqrt{2 \epsilon}\, \eta_t, \qquad
      \varphi_{t+1} = y_{t+1} + \sqrt{\epsilon / 2}\, \eta_{t+1}, \qquad \theta_{t+1} = f(\varphi_{t+1})$$

    with $\hat G(\varphi) = f'(\varphi)\, \hat g(\theta) + f''(\varphi)/f'(\varphi)$ and $\eta_t \sim N(0, I)$. The draw
    $\eta_{t+1}$ that makes $\varphi_{t+1}$ of $y_{t+1}$ is the one that then moves $y_{t+1}$: with a fresh draw there the bias
    would be larger than Euler's. Targets $p(\theta) \propto \exp(-U(\theta) / T)$; the bias is of second order in $\epsilon$
    with exact gradients. Noisy ones add a bias of first order. `noise_correction` takes it out where the noise of the
    coordinates is independent: the amplitude $\sqrt{2 \epsilon}$ becomes $\sqrt{2 \epsilon - \epsilon^2 V(y_t)}$, with $V$ the
    variance of each coordinate of $\hat G$, evaluated at $y_t$ because that is independent of $\eta_t$. Where the posterior is
    correlated, so is the noise. Its covariances, which $V$ leaves out, stay as a bias of first order: draws are too narrow along
    the long axes (in a regression on features with correlation 0.9 by 13% of an sd at $\epsilon V = 0.6$).

    Args:
        posterior: what is sampled.
        transforms: $f$: None (a Lipschitz default for each support), one name, or a tree of them.
        noise_correction: True estimates the variance of the noise of $\hat G$; a number, a tree or a function of theta gives
            the variance of the theta-gradient, whose coordinates are taken for independent; False leaves it uncorrected.
        preconditioner: $M$, with $\epsilon$ replaced by $\epsilon M$: None, a tree of positive scales, a function of theta that
            makes one (the scale of a variable may not depend on that variable itself), or `ib.preconditioners.rmsprop(adapt_steps)`.
        metric: $c$ and $L$ of $\varphi = c + L z$, such as `ib.metrics.laplace(posterior, center)` makes: the equations above are then
            those of $z$. It excludes a preconditioner.
        temperature: $T$; 1 samples the posterior. A number, an array of one number per chain, or a function of the step number such as
            those of `ib.schedules`. What is not a number is part of the state of each chain, where it may be traced and exchanged.
        gradient: from how much of the data: `ib.gradients.minibatch`, `control_variate(...)` or `svrg(...)`.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: an argument is out of its range, or does not suit the posterior.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.leimkuhler_matthews(posterior, "integrated_probit")
        >>> draws = ib.sample(kernel, 0.1, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    temperature = check_arguments(posterior, temperature)
    check_metric(metric, preconditioner, noise_correction)
    space = Space.of(posterior.supports, transforms).with_metric(metric)
    proxy_gradient = ProxyGradient(posterior, space, gradient, noise_correction, temperature)
    precondition = as_preconditioner(preconditioner)

    # In a metric the curvature is 1. So it is known how much of the kick the next step takes back, and Gaussians are sampled exactly, at any
    # step size and with any noise that is corrected for. Without noise to correct for the amplitude is the same.
    calms = metric is not None and proxy_gradient.corrects

    def calm(step_size: Any) -> Any:
        return (1 - step_size / 2) ** 2 if calms else 1.0

    def spread_of(step_size: jax.Array, scale: PyTree, phi: PyTree) -> PyTree:
        wanted = injected_noise(lambda m: step_size * m * temperature / 2, lambda m: 0.0, scale, None, like=phi)
        # With all axes, so that many chains at once broadcast like one.
        return jax.tree.map(lambda s, p: s.reshape((1,) * (p.ndim - s.ndim) + s.shape), wanted.amplitude, phi)

    def init(theta: PyTree) -> State:
        phi = space.unconstrain(theta)
        no_kick, preconditioner_state = jax.tree.map(jnp.zeros_like, phi), precondition.init(phi)
        no_step = jnp.zeros((), jax.tree.leaves(phi)[0].dtype)
        scale, _ = precondition.update(preconditioner_state, no_kick, theta, no_step)
        return State(phi, no_kick, spread_of(no_step, scale, phi), proxy_gradient.init(theta), preconditioner_state)

    def update(noise: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        make_drift, variance_at, estimator = proxy_gradient(state.estimator, state.phi, minibatch)
        drift, base = make_drift(), state.base
        scale, preconditioner_state = precondition.update(
            state.preconditioner, drift, space.evaluation_point(state.phi), step_size
        )
        spread = spread_of(step_size, scale, base)
        injected = injected_noise(
            lambda m: 2 * step_size * m * temperature * calm(step_size),
            lambda m: (step_size * m) ** 2,
            scale,
            variance_at(base),
            like=base,
        )
        if calms:
            moved = jax.tree.map(lambda a, s: a + step_size * s, injected.amplitude, spread)
            injected = injected._replace(amplitude=moved)
        # One addition to y: where a drift is less than the next float is away, the noise still carries it.
        phi = jax.tree.map(
            lambda y, g, a, k, s, z: y + (step_size * g + a * k + s * z),
            base, scaled(scale, drift), injected.amplitude, state.kick, spread, noise,
        )  # fmt: skip

        def make_info() -> Info:
            return Info(trees.norm(make_drift()), injected.noise_variance(), injected.clamped(), trees.all_finite(phi))

        return State(phi, noise, spread, estimator, preconditioner_state), make_info

    def recursion(step_size: float, hessian: np.ndarray, noise: np.ndarray, scale: np.ndarray) -> Recursion:
        pace, identity = step_size * scale, np.eye(len(hessian))
        taken = proxy_gradient.corrects * pace**2 * np.diag(noise)
        spread, none = np.sqrt(pace * temperature / 2), np.zeros_like(identity)
        amplitude = amplitude_left(2 * pace * temperature * calm(step_size), taken) + calms * step_size * spread
        pull = pace[:, None] * hessian
        # The state is (y, eta), and phi = y + spread eta.
        transition = np.block([[identity - pull, np.diag(amplitude) - pull * spread], [none, none]])
        added = np.block([[pace[:, None] * noise * pace, none], [none, identity]])
        return Recursion(transition, added, np.hstack([identity, np.diag(spread)]), temperature)

    return kernel_on_proxy(
        "leimkuhler_matthews",
        posterior,
        proxy_gradient,
        init,
        update,
        precondition=precondition,
        recursion=recursion,
        drift_averages_out=True,
    )
