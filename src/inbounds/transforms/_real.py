"""The real line, which needs no transform."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import constraints

from ._base import Elementwise, as_float


class Identity(Elementwise):
    r"""$f(\varphi) = \varphi$, $f' = 1$, $f''/f' = 0$, Lipschitz constant 1: no bounds, plain Langevin dynamics.

    Example:
        >>> f = ib.transforms.Identity()
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "identity"
    lipschitz = 1.0
    codomain = constraints.real

    def __call__(self, phi: Array) -> Array:
        return phi

    def _inverse(self, theta: Array) -> Array:
        return theta

    def derivative(self, phi: Array) -> Array:
        return jnp.ones_like(as_float(phi))

    def log_derivative_slope(self, phi: Array) -> Array:
        return jnp.zeros_like(as_float(phi))

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        return jnp.zeros_like(as_float(phi))

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        return gradient
