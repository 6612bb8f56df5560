"""Change-of-random-variable SGLD: the paper's method."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
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
    estimator: Any
    preconditioner: Any


@kernel_factory
def sgld(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    noise_correction: NoiseCorrection = False,
    preconditioner: PreconditionerLike = None,
    metric: Metric | None = None,
    temperature: Temperature = 1.0,
    gradient: GradientFactory = gradients.minibatch,
) -> Kernel:
    r"""Stochastic gradient Langevin dynamics on the proxy $\varphi$ of $\theta = f(\varphi)$.

    $$\varphi_{t+1} = \varphi_t + \epsilon \left( f'(\varphi_t)\, \hat g(\theta_t) + \frac{f''(\varphi_t)}{f'(\varphi_t)} \right)
      + \sqrt{2 \epsilon}\, \eta_t, \qquad \theta_{t+1} = f(\varphi_{t+1}), \quad \eta_t \sim N(0, I)$$

    Targets $p(\theta) \propto \exp(-U(\theta) / T)$, where $-U = \log \pi$ and $\hat g$ is an unbiased estimate of
    $\nabla \log \pi$. Equation 14 of Yokoi, Otsuka and Sato, "On Transformations in Stochastic Gradient MCMC"; with $f$
    the identity it is SGLD (Welling and Teh 2011), whose step size is twice ours. The bias is of first order in $\epsilon$.

    Args:
        posterior: what is sampled.
        transforms: $f$: None (a Lipschitz default for each support), one name, or a tree of them.
        noise_correction: subtract the variance of the gradient noise from that of the injected noise:
            $2 \epsilon - \epsilon^2 V$ (Vollmer, Zygalakis and Teh 2016), coordinate by coordinate. Correlated noise leaves a
            bias of first order: draws are too narrow along the long axes of the posterior. True estimates the variance; a
            number, a tree or a function of theta gives that of the theta-gradient, whose coordinates are taken for independent.
        preconditioner: $M$, with $\epsilon$ replaced by $\epsilon M$: None, a tree of positive scales, a function of theta that
            makes one (the scale of a variable may not depend on that variable itself), or `ib.preconditioners.rmsprop(adapt_steps)`.
        metric: $c$ and $L$ of $\varphi = c + L z$, such as `ib.metrics.laplace(posterior, center)` makes: the equations above are then
            those of $z$. It excludes a preconditioner.
        temperature: $T$; 1 samples the posterior. A number, an array of one number per chain, or a function of the step number such as
            those of `ib.schedules`. What is not a number is part of the state of each chain, where it may be traced and exchanged.
            The noise is $\sqrt{2 \epsilon T}$, and $f''/f'$ counts $T$ times.
        gradient: from how much of the data: `ib.gradients.minibatch`, `control_variate(...)` or `svrg(...)`.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: an argument is out of its range, or does not suit the posterior.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.sgld(posterior, temperature=1.0)
        >>> draws = ib.sample(kernel, 0.05, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    temperature = check_arguments(posterior, temperature)
    check_metric(metric, preconditioner, noise_correction)
    space = Space.of(posterior.supports, transforms).with_metric(metric)
    proxy_gradient = ProxyGradient(posterior, space, gradient, noise_correction, temperature)
    precondition = as_preconditioner(preconditioner)

    def init(theta: PyTree) -> State:
        phi = space.unconstrain(theta)
        return State(phi, proxy_gradient.init(theta), precondition.init(phi))

    def update(noise: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        make_drift, variance_at, estimator = proxy_gradient(state.estimator, state.phi, minibatch)
        drift = make_drift()
        scale, preconditioner_state = precondition.update(
            state.preconditioner, drift, space.evaluation_point(state.phi), step_size
        )
        injected = injected_noise(
            lambda m: 2 * step_size * m * temperature,
            lambda m: (step_size * m) ** 2,
            scale,
            variance_at(state.phi),
            like=state.phi,
        )
        # One addition to phi: where a drift is less than the next float is away, the noise still carries it.
        phi = jax.tree.map(
            lambda p, g, a, z: p + (step_size * g + a * z), state.phi, scaled(scale, drift), injected.amplitude, noise
        )

        def make_info() -> Info:
            return Info(trees.norm(make_drift()), injected.noise_variance(), injected.clamped(), trees.all_finite(phi))

        return State(phi, estimator, preconditioner_state), make_info

    def recursion(step_size: float, hessian: np.ndarray, noise: np.ndarray, scale: np.ndarray) -> Recursion:
        pace, identity = step_size * scale, np.eye(len(hessian))
        amplitude = amplitude_left(2 * pace * temperature, proxy_gradient.corrects * pace**2 * np.diag(noise))
        added = pace[:, None] * noise * pace + np.diag(amplitude**2)
        return Recursion(identity - pace[:, None] * hessian, added, identity, temperature)

    return kernel_on_proxy(
        "sgld",
        posterior,
        proxy_gradient,
        init,
        update,
        precondition=precondition,
        recursion=recursion,
        drift_averages_out=True,
    )
