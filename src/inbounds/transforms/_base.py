"""What every transform has: a bijection theta = f(phi) into a support, and what a sampler needs of it."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from numpyro.distributions import constraints
from numpyro.distributions import transforms as numpyro_transforms

from ._supports import bounds

Parameter = float | ArrayLike | None
"""Of a transform: a number, an array or a tracer; None where the transform has no such end."""


def snake_case(name: str) -> str:
    """'log_ratios' for LogRatios."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).strip("_").lower()


class Transform(numpyro_transforms.Transform):  # type: ignore[misc]  # NumPyro has no types
    """A bijection theta = f(phi) from unbounded phi into the interior of a support.

    It is a NumPyro transform (`t(phi)`, `t.inv(theta)`, `t.log_abs_det_jacobian(phi, theta)`) that also knows what
    Langevin dynamics on phi needs: f', f''/f' and the pull-back of a gradient.

    To write one, give `codomain`, `__call__` and `_inverse`. A transform of vectors or matrices gives `domain`, `forward_shape`,
    `inverse_shape` and `log_abs_det_jacobian` too. All else is derived by autodiff, and may be replaced by closed forms where those
    are faster or more precise. `inbounds.testing.check_transform` says whether it is right.

    The attributes that `__init__` sets are the parameters. Instances are equal where class and parameters are. They hash, and they
    are pytrees whose leaves are the parameters given as arrays.

    Example:
        >>> isinstance(ib.transforms.default(dist.constraints.positive), ib.transforms.Transform)
        True
    """

    name = "transform"
    lipschitz: float = math.inf

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = snake_case(cls.__name__)

    @property
    def uniform(self) -> bool:
        """Whether it does the same to every coordinate."""
        return False

    def derivative(self, phi: Array) -> Array:
        """f'(phi), signed.

        Args:
            phi: unbounded numbers.

        Returns:
            Slopes of the same shape; negative where f falls.
        """
        self._elementwise_only("derivative")
        return slope_of(self, phi)

    def log_derivative_slope(self, phi: Array) -> Array:
        """f''(phi) / f'(phi), the slope of log |f'|.

        Args:
            phi: unbounded numbers.

        Returns:
            Slopes of the same shape.
        """
        self._elementwise_only("derivative")
        return slope_of(lambda p: self.log_abs_det_jacobian(p, self(p)), phi)

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        """log |det J| of each event: log |f'| of each coordinate where there are no vectors.

        Args:
            phi: unbounded numbers.
            theta: f(phi), which most transforms do not need.
            intermediates: not looked at; NumPyro passes it.

        Returns:
            One number per event.
        """
        self._elementwise_only("log |det J| by itself")
        return jnp.log(jnp.abs(self.derivative(phi)))

    def log_gap(self, phi: Array) -> Array:
        """log(theta - a) for a support with the finite lower end a, right also where theta itself rounds to a.

        Args:
            phi: unbounded numbers.

        Returns:
            Logs of the distances, of the shape of theta.

        Raises:
            ValueError: the support has no finite lower end.
        """
        lower, _ = bounds(self.codomain)
        if _is(lower, -math.inf):
            raise ValueError(f"{self!r} has no finite lower end, so there is no log(theta - lower)")
        theta = self(phi)
        return jnp.log(theta - like(lower, theta))

    def log_upper_gap(self, phi: Array) -> Array:
        """log(b - theta) for a support with the finite upper end b, right also where theta itself rounds to b.

        Args:
            phi: unbounded numbers.

        Returns:
            Logs of the distances, of the shape of theta.

        Raises:
            ValueError: the support has no finite upper end.
        """
        _, upper = bounds(self.codomain)
        if _is(upper, math.inf):
            raise ValueError(f"{self!r} has no finite upper end, so there is no log(upper - theta)")
        theta = self(phi)
        return jnp.log(like(upper, theta) - theta)

    def evaluation_point(self, phi: Array) -> Array:
        """The theta at which to evaluate gradients: f(phi), kept far enough inside for 1 / gap not to overflow.

        Args:
            phi: unbounded numbers.

        Returns:
            Points strictly inside the support.
        """
        theta = as_float(self(phi))
        lower, upper = bounds(self.codomain)
        if not _is(lower, -math.inf):
            theta = jnp.maximum(theta, evaluation_end(lower, theta, 1))
        return theta if _is(upper, math.inf) else jnp.minimum(theta, evaluation_end(upper, theta, -1))

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        """The drift of phi, J^T gradient + the gradient of log |det J|, from the gradient of log pi at `evaluation_point(phi)`.

        Args:
            phi: unbounded numbers.
            theta_eval: `evaluation_point(phi)`.
            gradient: of log pi at `theta_eval`, of its shape.

        Returns:
            Numbers of the shape of phi.
        """
        if self.domain.event_dim == 0:
            return self.derivative(phi) * gradient + self.log_derivative_slope(phi)

        def theta_and_log_det(phi: Array) -> tuple[Array, Array]:
            theta = self(phi)
            return theta, self.log_abs_det_jacobian(phi, theta)

        (_, log_det), pull = jax.vjp(theta_and_log_det, phi)
        (drift,) = pull((gradient, jnp.ones_like(log_det)))
        return jnp.asarray(drift)

    def unconstrained_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of phi for a theta of this shape.

        Args:
            shape: of theta.

        Returns:
            A shape.
        """
        return tuple(self.inverse_shape(shape))

    def _elementwise_only(self, what: str) -> None:
        if self.domain.event_dim > 0:
            raise NotImplementedError(f"{self.name} is a transform of vectors or matrices: it has no {what}")

    # -- values, not identities: equality, hash, pytree, pickle ---------------------------------------------------

    @property
    def _parameters(self) -> tuple[str, ...]:
        """The names of what `__init__` has set. NumPyro keeps the inverse among the attributes."""
        return tuple(name for name in vars(self) if name != "_inv")

    def tree_flatten(self) -> tuple[Any, Any]:
        names = self._parameters
        values = [getattr(self, name) for name in names]
        leaf = [_is_leaf(value) for value in values]
        static = tuple(None if is_leaf else value for value, is_leaf in zip(values, leaf, strict=True))
        return tuple(v for v, is_leaf in zip(values, leaf, strict=True) if is_leaf), (names, tuple(leaf), static)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> Any:
        self, params = cls.__new__(cls), iter(params)
        for name, is_leaf, value in zip(*aux_data, strict=True):
            setattr(self, name, next(params) if is_leaf else value)
        return self

    def eq(self, other: object, static: bool = False) -> bool:
        return (
            isinstance(other, Transform)
            and type(self) is type(other)
            and set(self._parameters) == set(other._parameters)
            and all(same(getattr(self, name), getattr(other, name)) for name in self._parameters)
        )

    def __eq__(self, other: object) -> bool:
        return self.eq(other, static=True)

    def __hash__(self) -> int:
        return hash((type(self), *(_hashable(getattr(self, name)) for name in sorted(self._parameters))))

    def __repr__(self) -> str:
        given = ((name, getattr(self, name)) for name in self._parameters)
        shown = ", ".join(f"{name}={value}" for name, value in given if value is not None)
        return f"{type(self).__name__}({shown})"


class Elementwise(Transform):
    """A transform that acts on each coordinate alone, through a fixed core map of p = phi / scale."""

    domain = constraints.real
    scale: Any = 1.0

    def _set_ends(self, lower: Parameter, upper: Parameter) -> None:
        raise ValueError(f"{self.name} is not a transform onto supports with other ends")

    def placed(self, lower: Parameter, upper: Parameter, scale: Parameter = None) -> Self:
        """The same transform onto a support with other ends, and with another scale where one is given."""
        other = copy.copy(self)
        other._set_ends(lower, upper)
        if scale is not None:
            other.scale = parameter(scale)
        return other

    @property
    def uniform(self) -> bool:
        return all(np.ndim(getattr(self, name)) == 0 for name in self._parameters)

    @property
    def sign(self) -> float:
        return 1.0

    def _core(self, phi: Array) -> tuple[Array, Array]:
        """phi as floats, and p = phi / scale."""
        phi = as_float(phi)
        if _is(self.scale, 1.0):
            return phi, phi
        largest = float(jnp.finfo(phi.dtype).max)
        return phi, jnp.clip(phi / like(self.scale, phi), -largest, largest)

    def _per_scale(self, value: Array) -> Array:
        return value if _is(self.scale, 1.0) else value / like(self.scale, value)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        parameters = (getattr(self, name) for name in self._parameters)
        return np.broadcast_shapes(shape, *(np.shape(value) for value in parameters if value is not None))

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.forward_shape(shape)


# -- numbers that keep their dtype --------------------------------------------------------------------------------


def as_float(x: Array) -> Array:
    """x as a floating-point array; integers become the default float, floats keep their dtype."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def like(value: Any, phi: Array) -> Array | float:
    """A parameter in the dtype of phi. Python numbers stay as they are: they never promote."""
    return value if isinstance(value, int | float) else jnp.asarray(value).astype(phi.dtype)


def parameter(value: Any) -> Any:
    """Scalars become Python floats (static, hashable); arrays and tracers are kept."""
    if value is None or isinstance(value, jax.core.Tracer):
        return value
    return float(value) if np.ndim(value) == 0 else value


def edge_floor(dtype: DTypeLike) -> float:
    """The least distance to an end at 0 at which a user's density is evaluated: 1 / floor is far from overflow."""
    bits = jnp.finfo(dtype).bits
    return 1e-280 if bits > 32 else (1e-30 if float(jnp.finfo(dtype).tiny) < 1e-37 else 1e-3)


def next_inside(end: Any, phi: Array, direction: float) -> Any:
    """The float next to `end` on the inner side (+1 above it, -1 below it). Subnormals count as 0: XLA flushes them."""
    tiny = float(jnp.finfo(phi.dtype).tiny)
    if _is(end, 0.0):
        return direction * tiny
    end = jnp.asarray(end).astype(phi.dtype)
    neighbour = jnp.nextafter(end, jnp.full_like(end, direction * math.inf))
    return jnp.where(jnp.abs(neighbour) < tiny, jnp.where(jnp.abs(end) < tiny, direction * tiny, 0.0), neighbour)


def evaluation_end(end: Any, phi: Array, direction: float) -> Any:
    """`end` moved inwards by a few units in the last place, or by `edge_floor` when it is 0."""
    floor = edge_floor(phi.dtype)
    if _is(end, 0.0):
        return direction * floor
    end = jnp.asarray(end).astype(phi.dtype)
    ulps = 2 * float(jnp.finfo(phi.dtype).eps)
    return end + direction * jnp.maximum(ulps * jnp.abs(end), floor)


def held_inside(theta: Array, codomain: constraints.Constraint) -> Array:
    """theta, at least one float away from the ends of its support, and finite."""
    theta = as_float(theta)
    largest = float(jnp.finfo(theta.dtype).max)
    lower, upper = bounds(codomain)
    lowest = -largest if _is(lower, -math.inf) else next_inside(lower, theta, 1)
    highest = largest if _is(upper, math.inf) else next_inside(upper, theta, -1)
    return jnp.clip(theta, lowest, highest)


def slope_of(function: Callable[[Array], Array], phi: Array) -> Array:
    """The derivative of a function that acts on each coordinate alone."""
    phi = as_float(phi)
    _, slope = jax.jvp(function, (phi,), (jnp.ones_like(phi),))
    return jnp.asarray(slope)


def with_tangent(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Any:
    """`function` of one number, differentiated by its closed-form `slope` instead of by tracing it.

    The closed forms are finite wherever the function is; tracing a `where` leaks NaN from the branch not taken.
    """
    wrapped = jax.custom_jvp(function)
    wrapped.defjvps(lambda tangent, _, p: slope(p) * tangent)
    return staticmethod(wrapped)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, np.ndarray | jax.Array | numpyro_transforms.Transform)


def _is(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


def same(a: Any, b: Any) -> bool:
    """Whether two parameters are known to be equal; those that are being traced are equal to themselves alone."""
    if a is b:
        return True
    if isinstance(a, jax.core.Tracer) or isinstance(b, jax.core.Tracer):
        return False
    if isinstance(a, np.ndarray | jax.Array) or isinstance(b, np.ndarray | jax.Array):
        both = all(isinstance(x, np.ndarray | jax.Array) for x in (a, b))
        return both and bool(np.array_equal(a, b))
    return type(a) is type(b) and bool(a == b)


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray | jax.Array):
        value = np.asarray(value)
        return value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:  # NumPyro's transforms compare, but do not hash
        return type(value)
    return value
