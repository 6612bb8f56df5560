"""SGLD with the mirroring trick."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inbounds import gradients
from inbounds.gradients._base import GradientFactory
from inbounds.kernels._base import Kernel, check_arguments, kernel_factory
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.baselines._bounded import Bounds, bounded_kernel, is_finite_end
from inbounds.posterior import Posterior


@kernel_factory
def mirror(
    posterior: Posterior, *, temperature: Temperature = 1.0, gradient: GradientFactory = gradients.minibatch
) -> Kernel:
    r"""SGLD on theta itself, folded back into the support (Patterson and Teh 2013; Bubeck et al. 2018).

    $$\theta_{t+1} = \mathrm{fold}\left( \theta_t + \epsilon\, \hat g(\theta_t) + \sqrt{2 \epsilon}\, \eta_t \right)$$

    On a half line the fold is $a + |x - a|$; on an interval it is the triangle wave, exact for any overshoot. A valid first-order
    method where the density is bounded at its ends; where it behaves like $\theta^{k-1}$ with $k < 1$ no step size works, since
    a step from $\theta$ jumps by $\epsilon (1 - k) / \theta$.

    Args:
        posterior: what is sampled; scalar supports.
        temperature: 1 samples the posterior.
        gradient: from how much of the data.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: an argument is out of its range, or does not suit the posterior.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.baselines.mirror(posterior)
        >>> draws = ib.sample(kernel, 0.01, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    temperature = check_arguments(posterior, temperature)

    def move(theta: jax.Array, drift: jax.Array, noise: jax.Array, bounds: Bounds, step_size: jax.Array) -> jax.Array:
        return fold(theta + step_size * drift + jnp.sqrt(2 * step_size * temperature) * noise, bounds)

    return bounded_kernel("mirror", posterior, move, gradient, temperature)


def fold(x: jax.Array, bounds: Bounds) -> jax.Array:
    """Reflect x at the finite ends of its support."""
    lower, upper = bounds
    if is_finite_end(lower) and is_finite_end(upper):
        a = jnp.asarray(lower, x.dtype)
        width = jnp.asarray(upper, x.dtype) - a
        inside = jnp.mod(x - a, 2 * width)
        return a + jnp.minimum(inside, 2 * width - inside)
    if is_finite_end(lower):
        a = jnp.asarray(lower, x.dtype)
        return a + jnp.abs(x - a)
    if is_finite_end(upper):
        b = jnp.asarray(upper, x.dtype)
        return b - jnp.abs(b - x)
    return x
