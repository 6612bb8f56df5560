"""What every transform has: a bijection theta = f(phi) into a support, and what a sampler needs of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from numpyro.distributions import constraints
from numpyro.distributions import transforms as numpyro_transforms

Parameter = float | ArrayLike | None
"""Of a transform: a number, an array or a tracer; None where the transform has no such end."""


class Transform(numpyro_transforms.Transform):
    """A bijection theta = f(phi) from unbounded phi into the interior of a support.

    It is a NumPyro transform (`t(phi)`, `t.inv(theta)`, `t.log_abs_det_jacobian(phi, theta)`) that also knows what
    Langevin dynamics on phi needs: f', f''/f' and the pull-back of a gradient. Instances compare by value, hash, and
    are pytrees whose leaves are the parameters given as arrays.
    """

    name = "transform"
    lipschitz = math.inf
    _parameters: tuple[str, ...] = ()

    def derivative(self, phi: Array) -> Array:
        """f'(phi), signed."""
        raise NotImplementedError(f"{self.name} has no coordinate-wise derivative: use pull_back")

    def log_derivative_slope(self, phi: Array) -> Array:
        """f''(phi) / f'(phi), the slope of log |f'|."""
        raise NotImplementedError(f"{self.name} has no coordinate-wise derivative: use pull_back")

    def log_gap(self, phi: Array) -> Array:
        """log(theta - a) for a support with the finite lower end a, right also where theta itself rounds to a."""
        raise ValueError(f"{self!r} has no finite lower end, so there is no log(theta - lower)")

    def log_upper_gap(self, phi: Array) -> Array:
        """log(b - theta) for a support with the finite upper end b, right also where theta itself rounds to b."""
        raise ValueError(f"{self!r} has no finite upper end, so there is no log(upper - theta)")

    def evaluation_point(self, phi: Array) -> Array:
        """The theta at which to evaluate gradients: f(phi), kept far enough inside for 1 / gap not to overflow."""
        return self(phi)

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        """The drift of phi, f'(phi) * gradient + f''/f', from the gradient of log pi at `evaluation_point(phi)`."""
        raise NotImplementedError

    def unconstrained_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of phi for a theta of this shape."""
        return self.inverse_shape(shape)

    # -- values, not identities: equality, hash, pytree, pickle ---------------------------------------------------

    def tree_flatten(self) -> tuple[Any, Any]:
        values = [getattr(self, name) for name in self._parameters]
        leaf = [not _is_static(value) for value in values]
        static = tuple(None if is_leaf else value for value, is_leaf in zip(values, leaf, strict=True))
        return tuple(v for v, is_leaf in zip(values, leaf, strict=True) if is_leaf), (tuple(leaf), static)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, params: Any) -> Any:
        self, params = cls.__new__(cls), iter(params)
        for name, is_leaf, value in zip(cls._parameters, *aux_data, strict=True):
            setattr(self, name, next(params) if is_leaf else value)
        return self

    def eq(self, other: object, static: bool = False) -> bool:
        return type(self) is type(other) and all(
            _same(getattr(self, name), getattr(other, name)) for name in self._parameters
        )

    def __eq__(self, other: object) -> bool:
        return self.eq(other, static=True)

    def __hash__(self) -> int:
        return hash((type(self), *(_hashable(getattr(self, name)) for name in self._parameters)))

    def __repr__(self) -> str:
        given = ((name, getattr(self, name)) for name in self._parameters)
        shown = ", ".join(f"{name}={value}" for name, value in given if value is not None)
        return f"{type(self).__name__}({shown})"


class Elementwise(Transform):
    """A transform that acts on each coordinate alone, through a fixed core map of p = phi / scale."""

    domain = constraints.real

    @property
    def uniform(self) -> bool:
        """Whether it does the same to every coordinate."""
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

    inverse_shape = forward_shape


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


def with_tangent(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Any:
    """`function` of one number, differentiated by its closed-form `slope` instead of by tracing it.

    The closed forms are finite wherever the function is; tracing a `where` leaks NaN from the branch not taken.
    """
    wrapped = jax.custom_jvp(function)
    wrapped.defjvps(lambda tangent, _, p: slope(p) * tangent)
    return staticmethod(wrapped)


def _is_static(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str)


def _is(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, jax.core.Tracer) or isinstance(b, jax.core.Tracer):
        return False
    if _is_static(a) or _is_static(b):
        return type(a) is type(b) and a == b
    if isinstance(a, np.ndarray | jax.Array):
        return isinstance(b, np.ndarray | jax.Array) and np.array_equal(a, b)
    return a == b


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray | jax.Array):
        value = np.asarray(value)
        return value.shape, value.tobytes()
    return value
