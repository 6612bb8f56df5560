"""Stochastic gradient Riemannian Langevin dynamics, mirrored."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inbounds import gradients
from inbounds.gradients._base import GradientFactory
from inbounds.kernels._base import Kernel, check_arguments, kernel_factory
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.baselines._bounded import Bounds, bounded_kernel, bounds_of, is_finite_end
from inbounds.kernels.baselines._mirror import fold
from inbounds.posterior import Posterior


@kernel_factory
def sgrld(
    posterior: Posterior, *, temperature: Temperature = 1.0, gradient: GradientFactory = gradients.minibatch
) -> Kernel:
    r"""Riemannian Langevin dynamics with the metric $G = \mathrm{diag}(\theta)^{-1}$ (Patterson and Teh 2013), mirrored at 0.

    $$\theta_{t+1} = \left| \theta_t + \epsilon \left( \theta_t\, \hat g(\theta_t) + T \right) + \sqrt{2 \epsilon T \theta_t}\, \eta_t \right|$$

    The $+T$ is the derivative of the inverse metric. For half lines $(a, \infty)$, with $\theta - a$ for $\theta$.

    Args:
        posterior: what is sampled; every variable on a half line $(a, \infty)$ or the real line.
        temperature: 1 samples the posterior.
        gradient: from how much of the data.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: a variable has an upper end.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.baselines.sgrld(posterior)
        >>> draws = ib.sample(kernel, 0.02, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    temperature = check_arguments(posterior, temperature)
    for lower, upper in jax.tree.leaves(bounds_of(posterior, "sgrld"), is_leaf=lambda x: isinstance(x, Bounds)):
        if is_finite_end(upper):
            raise ValueError(
                f"sgrld works on half lines (a, inf); got ({lower}, {upper}). Use ib.baselines.mirror there."
            )

    def move(theta: jax.Array, drift: jax.Array, noise: jax.Array, bounds: Bounds, step_size: jax.Array) -> jax.Array:
        noise = jnp.sqrt(2 * step_size * temperature) * noise
        if not is_finite_end(bounds.lower):
            return theta + step_size * drift + noise
        gap = theta - jnp.asarray(bounds.lower, theta.dtype)
        return fold(theta + step_size * (gap * drift + temperature) + jnp.sqrt(gap) * noise, bounds)

    return bounded_kernel("sgrld", posterior, move, gradient, temperature)
