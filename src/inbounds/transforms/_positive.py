"""Transforms onto half lines. Each class gives the map onto (0, inf); `HalfLine` carries it to (a, inf) and (-inf, b).

Every core map below takes p and returns, in closed and float-safe form, f, f', q = f''/f', log f', log f and f'/f.
All of them behave like exp at the lower end or decay faster; all but `Exp` become the identity, plus a constant, above.
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
from ._base import (
    Elementwise,
    Parameter,
    _is,
    as_float,
    edge_floor,
    evaluation_end,
    like,
    next_inside,
    parameter,
    with_tangent,
)


class HalfLine(Elementwise):
    r"""$\theta = a + c f(\varphi / c)$ on $(a, \infty)$, or $\theta = b - c f(\varphi / c)$ on $(-\infty, b)$.

    The scale c keeps the Lipschitz constant and sets the width of the layer in which the boundary is felt.

    Args:
        lower: the lower bound; None and no `upper`: 0.
        upper: the upper bound, where there is no lower one.
        scale: width of the layer in which the bound is felt, in units of theta.

    Raises:
        ValueError: both bounds are given.

    Example:
        >>> issubclass(ib.transforms.Softplus, ib.transforms.HalfLine)
        True
    """

    def __init__(self, lower: Parameter = None, upper: Parameter = None, scale: Parameter = 1.0) -> None:
        self._set_ends(lower, upper)
        self.scale = parameter(scale)

    def _set_ends(self, lower: Parameter, upper: Parameter) -> None:
        if lower is not None and upper is not None:
            raise ValueError(f"{self.name} maps onto a half line: give lower={lower} or upper={upper}, not both")
        self.lower = parameter(0.0 if lower is None and upper is None else lower)
        self.upper = parameter(upper)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        value, derivative, log_derivative = cls._value, cls._derivative, cls._log_derivative
        log_value, slope, rate = cls._log_value, cls._slope, cls._rate
        cls._value = with_tangent(value, derivative)
        cls._log_value = with_tangent(log_value, rate)
        cls._log_derivative = with_tangent(log_derivative, slope)
        cls._derivative = with_tangent(derivative, lambda p: slope(p) * derivative(p))
        cls._rate = with_tangent(rate, lambda p: rate(p) * (slope(p) - rate(p)))

    # The core map of each subclass, on (0, inf).
    _value = _derivative = _slope = _log_derivative = _log_value = _rate = _inverse_value = staticmethod(lambda p: p)

    @classmethod
    def _factor(cls, p: Array, floor: Any) -> Array:
        """What multiplies a gradient taken at max(f, floor): that point times f'/f, which is 1 at an exp-type end."""
        return jnp.maximum(cls._derivative(p), floor)

    @property
    def sign(self) -> float:
        return 1.0 if self.upper is None else -1.0

    @property
    def codomain(self) -> constraints.Constraint:
        if self.upper is not None:
            return constraints.less_than(self.upper)
        return constraints.positive if _is(self.lower, 0.0) else constraints.greater_than(self.lower)

    def _end(self) -> Any:
        return self.lower if self.upper is None else self.upper

    def _gap(self, p: Array) -> Array:
        gap: Array = self._value(p)
        return gap if _is(self.scale, 1.0) else gap * like(self.scale, p)

    def _place(self, gap: Array, innermost: Any) -> Array:
        """end +- gap, no closer to the end than `innermost`."""
        if _is(self._end(), 0.0):
            return self.sign * jnp.maximum(gap, abs(innermost))
        theta = like(self._end(), gap) + self.sign * gap
        return jnp.maximum(theta, innermost) if self.upper is None else jnp.minimum(theta, innermost)

    def _held(self, theta: Array, largest: Any) -> Array:
        """No further from the end than `largest`; the end itself has been seen to."""
        largest = float(largest)
        return jnp.minimum(theta, largest) if self.upper is None else jnp.maximum(theta, -largest)

    def __call__(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        return self._held(self._place(self._gap(p), next_inside(self._end(), phi, self.sign)), jnp.finfo(phi.dtype).max)

    def _inverse(self, theta: Array) -> Array:
        theta = as_float(theta)
        gap = self.sign * (theta - like(self._end(), theta))
        inside = gap >= 0
        info = jnp.finfo(theta.dtype)
        gap = jnp.clip(self._per_scale(gap), float(info.tiny), float(info.max))
        p = jnp.where(inside, self._inverse_value(gap), math.nan)
        return p if _is(self.scale, 1.0) else p * like(self.scale, p)

    def derivative(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        return self._spread(self.sign * self._derivative(p))

    def log_derivative_slope(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        return self._spread(self._per_scale(self._slope(p)))

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        phi, p = self._core(phi)
        return self._spread(self._log_derivative(p))

    def _spread(self, value: Array) -> Array:
        return jnp.broadcast_to(value, self.forward_shape(value.shape))

    def _log_gap(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        log_gap = self._log_value(p)
        return self._spread(log_gap if _is(self.scale, 1.0) else log_gap + jnp.log(like(self.scale, p) + 0 * p))

    def log_gap(self, phi: Array) -> Array:
        return self._log_gap(phi) if self.upper is None else super().log_gap(phi)

    def log_upper_gap(self, phi: Array) -> Array:
        return super().log_upper_gap(phi) if self.upper is None else self._log_gap(phi)

    def evaluation_point(self, phi: Array) -> Array:
        phi, p = self._core(phi)
        theta = self._place(self._gap(p), evaluation_end(self._end(), phi, self.sign))
        return self._held(theta, 1 / edge_floor(phi.dtype))

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        phi, p = self._core(phi)
        if _is(self._end(), 0.0):
            factor = self._factor(p, self._per_scale(jnp.full_like(p, edge_floor(phi.dtype))))
        else:
            # The gap as the float sees it: a gradient that goes like 1 / gap then cancels exactly.
            gap = self.sign * (theta_eval - like(self._end(), phi))
            factor = self._per_scale(gap * self._rate(jnp.minimum(p, 1 / edge_floor(phi.dtype))))
        return self.sign * factor * gradient + self._per_scale(self._slope(p))


class Exp(HalfLine):
    r"""$f(\varphi) = e^\varphi$, kept as the control: it is not Lipschitz, and gradient noise makes its chain explode.

    $f' = e^\varphi$, $f''/f' = 1$, no Lipschitz constant. Near 0, $\theta = e^\varphi$; above, $\theta$ grows without
    any bound on $f'$.

    Args:
        lower: the lower bound; None and no `upper`: 0.
        upper: the upper bound, where there is no lower one.
        scale: width of the layer in which the bound is felt, in units of theta.

    Raises:
        ValueError: both bounds are given.

    Example:
        >>> f = ib.transforms.Exp()
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "exp"
    lipschitz = math.inf

    @staticmethod
    def _value(p: Array) -> Array:
        info = jnp.finfo(p.dtype)
        return jnp.clip(jnp.exp(p), float(info.tiny), float(info.max))

    _derivative = _value

    @staticmethod
    def _slope(p: Array) -> Array:
        return jnp.ones_like(p)

    _rate = _slope

    @staticmethod
    def _log_value(p: Array) -> Array:
        return p

    _log_derivative = _log_value

    @staticmethod
    def _inverse_value(theta: Array) -> Array:
        return jnp.log(theta)

    @classmethod
    def _factor(cls, p: Array, floor: Any) -> Array:
        # No ceiling: where e^p overflows the chain has exploded, and a finite drift would hide that.
        return jnp.maximum(jnp.exp(p), floor)


class Softplus(HalfLine):
    r"""$f(\varphi) = \log(1 + e^\varphi)$, the integral of the logistic distribution function.

    $f' = \sigma(\varphi) = 1 - e^{-\theta}$, $f''/f' = \sigma(-\varphi) = e^{-\theta}$, Lipschitz constant 1.
    Near 0, $\theta \approx e^\varphi$; above, $\theta \approx \varphi$.

    Args:
        lower: the lower bound; None and no `upper`: 0.
        upper: the upper bound, where there is no lower one.
        scale: width of the layer in which the bound is felt, in units of theta.

    Raises:
        ValueError: both bounds are given.

    Example:
        >>> f = ib.transforms.Softplus(lower=2.0)
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "softplus"
    lipschitz = 1.0

    # One exponential, one division and one polynomial behind everything: decay = e^-|p|, 1 / (1 + decay), log(1 + decay) / decay.

    @staticmethod
    def _decay(p: Array) -> Array:
        return elementary.decaying(jnp.abs(p))

    @staticmethod
    def _value(p: Array) -> Array:
        decay = Softplus._decay(p)
        return jnp.maximum(p, 0.0) + decay * elementary.log1p_over(decay)

    @staticmethod
    def _derivative(p: Array) -> Array:
        return elementary.logistic(p)

    @staticmethod
    def _complement(p: Array) -> Array:
        return elementary.logistic_complement(p)

    # Traced, the product of a large and a small number would lose the square of the small one.
    _slope = with_tangent(_complement, lambda p: -Softplus._derivative(p) * Softplus._complement(p))

    @staticmethod
    def _log_derivative(p: Array) -> Array:
        decay = Softplus._decay(p)
        return jnp.minimum(p, 0.0) - decay * elementary.log1p_over(decay)

    @staticmethod
    def _log_value(p: Array) -> Array:
        decay = Softplus._decay(p)
        ratio = elementary.log1p_over(decay)
        return jnp.minimum(p, 0.0) + jnp.log(jnp.where(p >= 0, p + decay * ratio, ratio))

    @staticmethod
    def _rate(p: Array) -> Array:
        decay = Softplus._decay(p)
        ratio = elementary.log1p_over(decay)
        return elementary.reciprocal(1 + decay) / jnp.where(p >= 0, jnp.maximum(p, 0.0) + decay * ratio, ratio)

    @staticmethod
    def _inverse_value(theta: Array) -> Array:
        return theta + jnp.log(-jnp.expm1(-theta))


class ICLL(HalfLine):
    r"""$f(\varphi) = \mathrm{Ein}(e^\varphi) = \varphi + \gamma + E_1(e^\varphi)$, the integral of the complementary
    log-log distribution function.

    $f' = 1 - e^{-x}$, $f''/f' = x / (e^x - 1)$ with $x = e^\varphi$, Lipschitz constant 1.
    Near 0, $\theta \approx e^\varphi$; above, $\theta \approx \varphi + \gamma$.

    Args:
        lower: the lower bound; None and no `upper`: 0.
        upper: the upper bound, where there is no lower one.
        scale: width of the layer in which the bound is felt, in units of theta.

    Raises:
        ValueError: both bounds are given.

    Example:
        >>> f = ib.transforms.ICLL()
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "icll"
    lipschitz = 1.0

    _value = staticmethod(special.ein_of_exp)

    @staticmethod
    def _derivative(p: Array) -> Array:
        _, x = special.doubly_exponential(p)
        return elementary.one_minus_exp(x)[0]

    @staticmethod
    def _slope(p: Array) -> Array:
        _, x = special.doubly_exponential(p)
        share, decay = elementary.one_minus_exp(x)
        return (
            x * elementary.reciprocal(share) * decay
        )  # in this order: of x * decay XLA would make one more exponential

    @staticmethod
    def _log_derivative(p: Array) -> Array:
        _, x = special.doubly_exponential(p)
        share, decay = elementary.one_minus_exp(x)
        small = jnp.minimum(p, 0.0) + jnp.log(share / jnp.minimum(x, 1.0))
        return jnp.where(p > 0, jnp.log1p(-decay), small)

    @staticmethod
    def _log_value(p: Array) -> Array:
        _, x = special.doubly_exponential(p)
        return jnp.minimum(p, 0.0) + jnp.log(special.ein_of_exp(p) / jnp.minimum(x, 1.0))

    @staticmethod
    def _rate(p: Array) -> Array:
        return ICLL._derivative(p) / special.ein_of_exp(p)

    @staticmethod
    def _inverse_value(theta: Array) -> Array:
        below = jnp.log(theta) + jnp.log1p(jnp.minimum(theta, 2.5) / 4)
        start = jnp.where(theta < 2.5, below, theta - special.EULER_GAMMA)
        return newton(ICLL, theta, start, 4)


class IntegratedProbit(HalfLine):
    r"""$f(\varphi) = \varphi \Phi(\varphi) + n(\varphi)$, the integral of the normal distribution function $\Phi$.

    $f' = \Phi(\varphi)$, $f''/f' = n / \Phi$ (the inverse Mills ratio), Lipschitz constant 1.
    Near 0, $\theta \approx n(\varphi) / \varphi^2$, a Gaussian tail; above, $\theta \approx \varphi$.

    Args:
        lower: the lower bound; None and no `upper`: 0.
        upper: the upper bound, where there is no lower one.
        scale: width of the layer in which the bound is felt, in units of theta.

    Raises:
        ValueError: both bounds are given.

    Example:
        >>> f = ib.transforms.IntegratedProbit()
        >>> round(float(f.inv(f(0.3))), 4), float(f.derivative(0.0)) > 0
        (0.3, True)
    """

    name = "integrated_probit"
    lipschitz = 1.0

    # With x = |p| and the Mills ratio m: f(-x) = n(x) (1 - x m(x)), f'(-x) = n(x) m(x), and f(x) = x + f(-x).

    @staticmethod
    def _value(p: Array) -> Array:
        x = jnp.abs(p)
        return jnp.maximum(p, 0.0) + special.normal_density(x) * special.mills_defect(x)

    @staticmethod
    def _derivative(p: Array) -> Array:
        x = jnp.abs(p)
        tail = special.normal_density(x) * special.mills(x)
        return jnp.where(p < 0, tail, 1 - tail)

    @staticmethod
    def _slope(p: Array) -> Array:
        x = jnp.abs(p)
        density, ratio = special.normal_density(x), special.mills(x)
        return jnp.where(p < 0, 1.0, density) * elementary.reciprocal(jnp.where(p < 0, ratio, 1 - density * ratio))

    @staticmethod
    def _log_derivative(p: Array) -> Array:
        x = jnp.abs(p)
        ratio = special.mills(x)
        tail = special.normal_density(x) * ratio
        return jnp.where(p < 0, special.log_normal_density(x) + jnp.log(ratio), jnp.log1p(-tail))

    @staticmethod
    def _log_value(p: Array) -> Array:
        x = jnp.abs(p)
        below = special.log_normal_density(x) + special.log_mills_defect(x)
        return jnp.where(p < 0, below, jnp.log(IntegratedProbit._value(jnp.maximum(p, 0.0))))

    @staticmethod
    def _rate(p: Array) -> Array:
        above = jnp.maximum(p, 0.0)
        tail = special.normal_density(above) * special.mills(above)
        rate_above = (1 - tail) / IntegratedProbit._value(above)
        return jnp.where(p < 0, special.mills_over_defect(jnp.abs(p)), rate_above)

    @staticmethod
    def _inverse_value(theta: Array) -> Array:
        twice_log = jnp.maximum(-2 * (jnp.log(theta) + special.LOG_SQRT_TWO_PI), 0.0)
        below = -jnp.sqrt(jnp.maximum(twice_log - 2 * jnp.log1p(twice_log), 0.25 * twice_log))
        return newton(IntegratedProbit, theta, jnp.where(theta < 0.4, below, theta), 5)

    @classmethod
    def _factor(cls, p: Array, floor: Any) -> Array:
        # The tail is Gaussian: f'/f is not 1 but grows like |p|.
        return jnp.maximum(cls._derivative(p), floor * special.mills_over_defect(jnp.abs(p)))


def newton(kind: Any, theta: Array, start: Array, steps: int) -> Array:
    """Solve f(p) = theta: in log theta below 1, where f is nearly exponential, in theta above, where it is straight."""
    log_theta = jnp.log(theta)

    def improve(_: Any, p: Array) -> Array:
        by_logarithm = (kind._log_value(p) - log_theta) / kind._rate(p)
        return p - jnp.where(theta < 1, by_logarithm, (kind._value(p) - theta) / kind._derivative(p))

    solution: Array = jax.lax.fori_loop(0, steps, improve, start)
    return solution
