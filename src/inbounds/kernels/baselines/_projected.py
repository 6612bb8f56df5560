"""SGLD projected onto the support."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inbounds import gradients
from inbounds.gradients._base import GradientFactory
from inbounds.kernels._base import Kernel, check_arguments, kernel_factory
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.baselines._bounded import Bounds, bounded_kernel
from inbounds.posterior import Posterior


@kernel_factory
def projected(
    posterior: Posterior, *, temperature: Temperature = 1.0, gradient: GradientFactory = gradients.minibatch
) -> Kernel:
    r"""SGLD on theta itself, projected into the support (Bubeck, Eldan and Lehec 2018).

    $$\theta_{t+1} = \mathrm{proj}\left( \theta_t + \epsilon\, \hat g(\theta_t) + \sqrt{2 \epsilon}\, \eta_t \right)$$

    The projection piles mass up at the ends: an atom whose weight falls like $\sqrt{\epsilon}$.

    Args:
        posterior: what is sampled; scalar supports.
        temperature: 1 samples the posterior.
        gradient: from how much of the data.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: a variable is bounded jointly with others, as a simplex is.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.baselines.projected(posterior)
        >>> draws = ib.sample(kernel, 0.01, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape
        (1, 50)
    """
    temperature = check_arguments(posterior, temperature)

    def move(theta: jax.Array, drift: jax.Array, noise: jax.Array, bounds: Bounds, step_size: jax.Array) -> jax.Array:
        return theta + step_size * drift + jnp.sqrt(2 * step_size * temperature) * noise

    return bounded_kernel("projected", posterior, move, gradient, temperature)
