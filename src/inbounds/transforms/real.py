"""The real line, which needs no transform."""

import jax.numpy as jnp
from numpyro.distributions import constraints

from .base import Elementwise, as_float


class Identity(Elementwise):
    r"""$f(\varphi) = \varphi$, $f' = 1$, $f''/f' = 0$, Lipschitz constant 1: no bounds, plain Langevin dynamics."""

    name = "identity"
    lipschitz = 1.0
    codomain = constraints.real
    scale = 1.0

    def __call__(self, phi):
        return phi

    def _inverse(self, theta):
        return theta

    def derivative(self, phi):
        return jnp.ones_like(as_float(phi))

    def log_derivative_slope(self, phi):
        return jnp.zeros_like(as_float(phi))

    def log_abs_det_jacobian(self, phi, theta, intermediates=None):
        return jnp.zeros_like(as_float(phi))

    def pull_back(self, phi, theta_eval, gradient):
        return gradient
