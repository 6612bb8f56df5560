"""Transforms onto intervals. Each class gives a symmetric map onto (0, 1); `Interval` carries it to (a, b).

By symmetry a core map is known from its tail t(m) = f(-m) = 1 - f(m), m = |p| >= 0: the distance to the nearer end,
which is where precision matters. Each core gives t, f', -q = -f''/f' (at p > 0), log t, log f' and f'/t, all of m.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import constraints

from inbounds.engine import elementary

from . import special
from ._base import Elementwise, Parameter, _is, as_float, evaluation_end, like, next_inside, parameter, with_tangent


def _distance(p: Array) -> Array:
    """|p|, with the derivative 1 at 0, where the branch p >= 0 is taken."""
    return jnp.where(p < 0, -p, p)


class Interval(Elementwise):
    r"""$\theta = a + (b - a) f(\varphi / c)$ on $(a, b)$, with a core map f onto (0, 1).

    Args:
        lower, upper: the bounds.
        scale: unit of the proxy.

    Raises:
        ValueError: `lower` is not below `upper`.

    Example:
        >>> issubclass(ib.transforms.Sigmoid, ib.transforms.Interval)
        True
    """

    peak: float  # of the slope of the core map

    def __init__(self, lower: Parameter = 0.0, upper: Parameter = 1.0, scale: Parameter = 1.0) -> None:
        self._set_ends(lower, upper)
        self.scale = parameter(scale)

    def _set_ends(self, lower: Parameter, upper: Parameter) -> None:
        self.lower, self.upper = parameter(lower), parameter(upper)
        if isinstance(self.lower, float) and isinstance(self.upper, float) and not self.lower < self.upper:
            raise ValueError(f"{self.name} needs lower < upper, got the interval ({lower}, {upper})")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        tail, density, log_density = cls._tail, cls._density, cls._log_density
        log_tail, fall, rate = cls._log_tail, cls._fall, cls._rate
        cls._tail = with_tangent(tail, lambda m: -density(m))
        cls._log_tail = with_tangent(log_tail, lambda m: -rate(m))
        cls._log_density = with_tangent(log_density, lambda m: -fall(m))
        cls._density = with_tangent(density, lambda m: -fall(m) * density(m))
        cls._rate = with_tangent(rate, lambda m: rate(m) * (rate(m) - fall(m)))

    # The core map of each subclass, in the distance m = |p| from the centre.
    _tail = _density = _fall = _log_tail = _log_density = _rate = _inverse_tail = staticmethod(lambda m: m)

    @staticmethod
    def _towards_centre(p: Array) -> Array:
        """1 below it, -1 above, and at 0, where the fall is 0: with the branch of `_distance` it has the right slope there."""
        return jnp.where(p < 0, 1.0, -1.0)

    @property
    def codomain(self) -> constraints.Constraint:
        if _is(self.lower, 0.0) and _is(self.upper, 1.0):
            return constraints.unit_interval
        return constraints.open_interval(self.lower, self.upper)

    @property
    def lipschitz(self) -> float:  # type: ignore[override]  # a number of the class in other transforms
        peak = type(self).peak * (self.upper - self.lower) / self.scale
        return peak if isinstance(peak, float) else float(jnp.max(peak))

    def _ends(self, phi: Array) -> tuple[Any, Any]:
        return like(self.lower, phi), like(self.upper, phi)

    def _width(self, phi: Array) -> Any:
        lower, upper = self._ends(phi)
        return upper - lower

    def _theta(self, p: Array) -> Array:
        """Measured from the nearer end, so that no precision is lost at either."""
        lower, upper = self._ends(p)
        gap = self._width(p) * self._tail(_distance(p))
        return jnp.where(p < 0, lower + gap, upper - gap)

    def __call__(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        return jnp.clip(self._theta(p), next_inside(self.lower, phi, 1), next_inside(self.upper, phi, -1))

    def _inverse(self, theta: Array) -> Array:
        theta = as_float(theta)
        lower, upper = self._ends(theta)
        below, above = theta - lower, upper - theta
        inside = (below >= 0) & (above >= 0)
        tail = jnp.clip(jnp.minimum(below, above) / self._width(theta), float(jnp.finfo(theta.dtype).tiny), 0.5)
        m = jnp.where(inside, self._inverse_tail(tail), math.nan)
        p = jnp.where(below < above, -m, m)
        return p if _is(self.scale, 1.0) else p * like(self.scale, p)

    def derivative(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        return self._per_scale(self._width(p) * self._density(_distance(p)))

    def log_derivative_slope(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        return self._spread(self._per_scale(self._towards_centre(p) * self._fall(_distance(p))))

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        phi, p = self._core(phi)
        log_density: Array = self._log_density(_distance(p))
        if _is(self.lower, 0.0) and _is(self.upper, 1.0) and _is(self.scale, 1.0):
            return log_density
        return self._spread(log_density + jnp.log(self._per_scale(self._width(p) + 0 * p)))

    def _spread(self, value: Array) -> Array:
        return jnp.broadcast_to(value, self.forward_shape(value.shape))

    def _log_distance(self, phi: Array, side: Any) -> Array:
        phi, p = self._core(phi)
        m = _distance(p)
        fraction = jnp.where(side * p > 0, jnp.log1p(-self._tail(m)), self._log_tail(m))
        if _is(self._width(p), 1.0):
            return self._spread(fraction)
        return self._spread(fraction + jnp.log(self._width(p) + 0 * p))

    def log_gap(self, phi: Array) -> Array:
        return self._log_distance(phi, 1)

    def log_upper_gap(self, phi: Array) -> Array:
        return self._log_distance(phi, -1)

    def evaluation_point(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        return jnp.clip(self._theta(p), evaluation_end(self.lower, phi, 1), evaluation_end(self.upper, phi, -1))

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        phi, p = self._core(phi)
        lower, upper = self._ends(phi)
        # The gap as the float sees it: a gradient that goes like 1 / gap then cancels exactly.
        gap = jnp.where(p < 0, theta_eval - lower, upper - theta_eval)
        m = _distance(p)
        return self._per_scale(gap * self._rate(m) * gradient + self._towards_centre(p) * self._fall(m))


class Sigmoid(Interval):
    r"""$f(\varphi) = 1 / (1 + e^{-\varphi})$, the logistic distribution function.

    $f' = f (1 - f)$, $f''/f' = 1 - 2 f = -\tanh(\varphi / 2)$, Lipschitz constant 1/4.
    At either end the gap is $\approx e^{-|\varphi|}$.

    Args:
        lower, upper: the bounds.
        scale: unit of the proxy.

    Raises:
        ValueError: `lower` is not below `upper`.

    Example:
        >>> f = ib.transforms.Sigmoid(-1.0, 1.0)
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "sigmoid"
    peak = 0.25

    @staticmethod
    def _decay(m: Array) -> Array:
        return elementary.decaying(m)

    @staticmethod
    def _log_near(m: Array) -> Array:
        decay = Sigmoid._decay(m)
        return decay * elementary.log1p_over(decay)

    @staticmethod
    def _tail(m: Array) -> Array:
        return Sigmoid._decay(m) * Sigmoid._rate(m)

    @staticmethod
    def _density(m: Array) -> Array:
        near = Sigmoid._rate(m)
        return Sigmoid._decay(m) * near * near

    @staticmethod
    def _fall(m: Array) -> Array:
        return (1 - Sigmoid._decay(m)) * Sigmoid._rate(m)

    @staticmethod
    def _log_tail(m: Array) -> Array:
        return -m - Sigmoid._log_near(m)

    @staticmethod
    def _log_density(m: Array) -> Array:
        return -m - 2 * Sigmoid._log_near(m)

    @staticmethod
    def _rate(m: Array) -> Array:
        return elementary.reciprocal(1 + Sigmoid._decay(m))

    @staticmethod
    def _inverse_tail(tail: Array) -> Array:
        return jnp.log1p((1 - 2 * tail) / tail)


class Arctan(Interval):
    r"""$f(\varphi) = 1/2 + \arctan(\varphi) / \pi$, the Cauchy distribution function.

    $f' = 1 / (\pi (1 + \varphi^2))$, $f''/f' = -2 \varphi / (1 + \varphi^2)$, Lipschitz constant $1 / \pi$.
    At either end the gap is $\approx 1 / (\pi |\varphi|)$: a polynomial tail, on which chains mix slowly.

    Args:
        lower, upper: the bounds.
        scale: unit of the proxy.

    Raises:
        ValueError: `lower` is not below `upper`.

    Example:
        >>> f = ib.transforms.Arctan()
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "arctan"
    peak = 1 / math.pi

    @staticmethod
    def _parts(m: Array) -> tuple[Array, Array]:
        """z = min(m, 1/m) and arctan(z) / z: neither m^2 nor a difference of nearly equal angles is ever formed."""
        z = jnp.where(m > 1, elementary.reciprocal(jnp.maximum(m, 1.0)), m)
        return z, special.arctan_over(z)

    @staticmethod
    def _tail(m: Array) -> Array:
        z, ratio = Arctan._parts(m)
        angle = z * ratio
        return jnp.where(m > 1, angle, math.pi / 2 - angle) * (1 / math.pi)

    @staticmethod
    def _density(m: Array) -> Array:
        z, _ = Arctan._parts(m)
        return jnp.where(m > 1, z * z, 1.0) * (1 / math.pi) * elementary.reciprocal(1 + z * z)

    @staticmethod
    def _fall(m: Array) -> Array:
        z, _ = Arctan._parts(m)
        return 2 * z * elementary.reciprocal(1 + z * z)

    @staticmethod
    def _log_tail(m: Array) -> Array:
        return jnp.log(Arctan._tail(m))

    @staticmethod
    def _log_density(m: Array) -> Array:
        z, _ = Arctan._parts(m)
        return -math.log(math.pi) - 2 * jnp.log(jnp.maximum(m, 1.0)) - jnp.log1p(z * z)

    @staticmethod
    def _rate(m: Array) -> Array:
        z, ratio = Arctan._parts(m)
        return jnp.where(m > 1, z, 1.0) * elementary.reciprocal(
            jnp.where(m > 1, ratio, math.pi / 2 - z * ratio) * (1 + z * z)
        )

    @staticmethod
    def _inverse_tail(tail: Array) -> Array:
        near = jnp.tan(math.pi * jnp.minimum(tail, 0.25))
        centre = jnp.tan(math.pi * (0.5 - jnp.maximum(tail, 0.25)))
        return jnp.where(tail < 0.25, 1 / near, centre)


class Softsign(Interval):
    r"""$f(\varphi) = (1 + \varphi / (1 + |\varphi|)) / 2$.

    $f' = 1 / (2 (1 + |\varphi|)^2)$, $f''/f' = -2\, \mathrm{sign}(\varphi) / (1 + |\varphi|)$, Lipschitz constant 1/2.
    At either end the gap is $1 / (2 (1 + |\varphi|))$: a polynomial tail. $f''$ jumps at 0, where 0 is taken.

    Args:
        lower, upper: the bounds.
        scale: unit of the proxy.

    Raises:
        ValueError: `lower` is not below `upper`.

    Example:
        >>> f = ib.transforms.Softsign()
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "softsign"
    peak = 0.5

    @staticmethod
    def _towards_centre(p: Array) -> Array:
        return -jnp.sign(p)  # its fall is not 0 at the centre

    @staticmethod
    def _tail(m: Array) -> Array:
        return 0.5 * elementary.reciprocal(1 + m)

    @staticmethod
    def _density(m: Array) -> Array:
        near = elementary.reciprocal(1 + m)
        return 0.5 * near * near

    @staticmethod
    def _fall(m: Array) -> Array:
        return 2 * elementary.reciprocal(1 + m)

    @staticmethod
    def _log_tail(m: Array) -> Array:
        return -math.log(2) - jnp.log1p(m)

    @staticmethod
    def _log_density(m: Array) -> Array:
        return -math.log(2) - 2 * jnp.log1p(m)

    @staticmethod
    def _rate(m: Array) -> Array:
        return elementary.reciprocal(1 + m)

    @staticmethod
    def _inverse_tail(tail: Array) -> Array:
        return (0.5 - tail) / tail


class Probit(Interval):
    r"""$f(\varphi) = \Phi(\varphi)$, the normal distribution function, with density n.

    $f' = n(\varphi)$, $f''/f' = -\varphi$, Lipschitz constant $1 / \sqrt{2 \pi}$.
    At either end the gap is $\approx n(\varphi) / |\varphi|$: a Gaussian tail, on which chains mix fast.

    Args:
        lower, upper: the bounds.
        scale: unit of the proxy.

    Raises:
        ValueError: `lower` is not below `upper`.

    Example:
        >>> f = ib.transforms.Probit()
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "probit"
    peak = 1 / math.sqrt(2 * math.pi)

    @staticmethod
    def _tail(m: Array) -> Array:
        return special.normal_density(m) * special.mills(m)

    @staticmethod
    def _density(m: Array) -> Array:
        return special.normal_density(m)

    @staticmethod
    def _fall(m: Array) -> Array:
        return m

    @staticmethod
    def _log_tail(m: Array) -> Array:
        return special.log_normal_density(m) + jnp.log(special.mills(m))

    @staticmethod
    def _log_density(m: Array) -> Array:
        return special.log_normal_density(m)

    @staticmethod
    def _rate(m: Array) -> Array:
        return elementary.reciprocal(special.mills(m))

    @staticmethod
    def _inverse_tail(tail: Array) -> Array:
        """Newton on log t(m), which is concave; the start is right to first order in both limits."""
        log_tail = jnp.log(tail)
        twice_log = -2 * (log_tail + math.log(2))
        m = jnp.sqrt(jnp.maximum(twice_log - jnp.log1p(math.pi / 2 * twice_log), 0.0))

        def improve(_: Any, m: Array) -> Array:
            return jnp.maximum(m + (Probit._log_tail(m) - log_tail) / Probit._rate(m), 0.0)

        solution: Array = jax.lax.fori_loop(0, 5, improve, m)
        return solution
