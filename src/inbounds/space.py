"""A tree of transforms: theta <-> phi for a whole pytree of parameters.

A `Space` holds one transform per leaf, or one for a whole subtree (a prefix, as JAX calls it): `"softplus"` over all the
weights of a network is one entry. It knows nothing of kernels; it maps points, and it pulls gradients back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform as NumPyroTransform

from inbounds import transforms as tf
from inbounds.engine import here
from inbounds.trees import PyTree, variable_name

__all__ = ["Metric", "MetricSpace", "Space", "is_constraint", "is_transform"]


def is_constraint(x: Any) -> bool:
    return isinstance(x, constraints.Constraint)


def is_transform(x: Any) -> bool:
    return isinstance(x, NumPyroTransform)


class Metric(Protocol):
    """A linear map phi = c + L z after the transforms (see `inbounds.metrics`): a pytree, whose arrays are saved with checkpoints."""

    @property
    def center(self) -> PyTree: ...

    def to_proxy(self, z: PyTree) -> PyTree: ...

    def from_proxy(self, phi: PyTree) -> PyTree: ...

    def pull_back(self, drift: PyTree) -> PyTree: ...


@dataclass(frozen=True, eq=False)
class Space:
    """The bounded space of theta, seen through an unbounded proxy phi.

    A kernel moves phi itself. `with_metric` makes a space of which it moves z, a linear map of phi; the methods that kernels call
    are the same.

    Args:
        supports: a tree of NumPyro constraints, a prefix of the tree of parameters.
        transforms: a tree of transforms with the structure of `supports`.

    Example:
        >>> space = ib.kernels.Space.of({"rate": dist.constraints.positive})
        >>> round(float(space.constrain(space.unconstrain({"rate": 0.5}))["rate"]), 3)
        0.5
    """

    supports: PyTree
    transforms: PyTree

    def __eq__(self, other: object) -> bool:
        """Spaces that do the same are equal, so that what is compiled for one serves the other."""
        return self is other or (type(other) is type(self) is Space and self._values() == other._values())

    def __hash__(self) -> int:
        return hash(self._values()) if type(self) is Space else id(self)

    def _values(self) -> tuple[Any, ...]:
        leaves, treedef = jax.tree.flatten(self.transforms, is_leaf=is_transform)
        return (treedef, *leaves)

    @classmethod
    def of(cls, supports: PyTree, transforms: PyTree = None) -> Space:
        """Pick a transform for every support.

        `transforms` may be None (the default of each support), one name, class or instance, or a tree of these. One alone
        is for every bounded scalar support: the real line and vector supports keep their default. Missing entries of a
        dict take the default.

        Args:
            supports: a tree of NumPyro's constraints.
            transforms: what is wanted, as above.

        Returns:
            The space of the tree.
        """
        chosen = _per_support(supports, transforms)
        picked = [
            tf.default(support) if choice is None else tf.onto(support, choice)
            for support, choice in zip(jax.tree.leaves(supports, is_leaf=is_constraint), chosen, strict=True)
        ]
        treedef = jax.tree.structure(supports, is_leaf=is_constraint)
        return cls(supports, jax.tree.unflatten(treedef, picked))

    def _map(self, function: Callable[..., Any], *trees: PyTree) -> PyTree:
        """Apply `function(transform, *leaves)` to every leaf below each transform."""
        return jax.tree.map(
            lambda t, *subtrees: jax.tree.map(lambda *leaves: function(t, *leaves), *subtrees),
            self.transforms,
            *trees,
            is_leaf=is_transform,
        )

    def with_metric(self, metric: Metric | None) -> Space:
        """The same space, moved in the coordinates of a metric.

        Args:
            metric: one of `ib.metrics`; None: none.

        Returns:
            The space, whose kernels move z.
        """
        return self if metric is None else MetricSpace(self.supports, self.transforms, metric)

    @property
    def of_proxy(self) -> Space:
        """The space of which phi itself is moved."""
        return self

    def proxy(self, moving: PyTree) -> PyTree:
        """phi of what a kernel moves.

        Args:
            moving: phi, or with a metric z.

        Returns:
            A tree like theta.
        """
        return moving

    def constrain(self, phi: PyTree) -> PyTree:
        """theta = f(phi), strictly inside the support for every finite phi.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A tree of theta.
        """
        return self._map(lambda t, p: t(p), phi)

    def unconstrain(self, theta: PyTree) -> PyTree:
        """phi = f^{-1}(theta).

        Args:
            theta: a tree of points inside the support.

        Returns:
            A tree of unbounded arrays.
        """
        return self._map(lambda t, x: t.inv(x), theta)

    def evaluation_point(self, phi: PyTree) -> PyTree:
        """Where the user's density is differentiated: theta, kept a little further from the ends (see `Transform`).

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A tree of theta.
        """
        return self._map(lambda t, p: _apply(t, t.evaluation_point, p), phi)

    def pull_back(self, phi: PyTree, theta: PyTree, gradient: PyTree, temperature: float | jax.Array = 1.0) -> PyTree:
        """The proxy drift f'(phi) * gradient + T f''(phi)/f'(phi), edge-safe.

        `gradient` is that of log pi at `theta = evaluation_point(phi)`. At another temperature than 1 it is only the density that is raised
        to the power 1 / T, not the Jacobian.

        Args:
            phi: a tree of unbounded arrays.
            theta: `evaluation_point(phi)`.
            gradient: of log pi at `theta`, a tree like it.
            temperature: of the law that is sampled.

        Returns:
            A tree like phi.
        """

        def one(t: Any, p: jax.Array, x: jax.Array, g: jax.Array) -> jax.Array:
            drift = _apply(t, t.pull_back, p, x, g)
            if isinstance(temperature, int | float) and temperature == 1:
                return drift
            return drift + (temperature - 1) * _apply(t, t.pull_back, p, x, jnp.zeros_like(g))

        return self._map(one, phi, theta, gradient)

    def log_density_beyond(self, phi: PyTree, theta: PyTree, gradient: PyTree) -> jax.Array:
        """What log pi has at phi over what it has at `theta = evaluation_point(phi)`, where floats keep the two apart.

        Next to an end the density goes like a power of the gap, and the gradient at `theta` says which. So a value of the density agrees
        with the drift of `pull_back`, which is right there.
        """

        def one(t: Any, p: jax.Array, x: jax.Array, g: jax.Array) -> jax.Array:
            total = jnp.zeros((), x.dtype)
            lower, upper = tf.bounds(t.codomain)
            for end, log_gap, sign in ((lower, t.log_gap, 1.0), (upper, t.log_upper_gap, -1.0)):
                if isinstance(end, float) and np.isinf(end):
                    continue
                gap = sign * (x - jnp.asarray(end, x.dtype))
                further = log_gap(p) - jnp.log(gap)
                total += jnp.sum(jnp.where(further < -1e-3, sign * g * gap * further, 0.0))
            return total

        return sum(jax.tree.leaves(self._map(one, phi, theta, gradient)), jnp.zeros(()))

    def pull_back_differences(self, phi: PyTree, theta: PyTree, differences: PyTree) -> PyTree:
        """J(phi)^T of differences of theta-gradients (one more leading axis), for vectors and matrices.

        Those of scalars stay as they are: their slope is one number, and `variance_at` takes it where a kernel wants it.

        Args:
            phi: a tree of unbounded arrays.
            theta: `evaluation_point(phi)`.
            differences: a tree like theta with one more axis in front.

        Returns:
            A tree like phi with one more axis in front.
        """

        def one(t: Any, p: jax.Array, x: jax.Array, d: jax.Array) -> jax.Array:
            if t.domain.event_dim == 0:
                return d
            # `pull_back` is J^T g and a term without g: of the two only the first is linear.
            _, jacobian_transposed = jax.linearize(lambda g: t.pull_back(p, x, g), jnp.zeros_like(x))
            pulled: jax.Array = jax.vmap(jacobian_transposed)(d)
            return pulled

        return self._map(one, phi, theta, differences)

    def variance_at(self, phi: PyTree, squares: PyTree) -> PyTree:
        """Variance of the proxy gradient at phi, from the mean squares of what `pull_back_differences` makes.

        Args:
            phi: a tree of unbounded arrays.
            squares: means of the squares, a tree like phi.

        Returns:
            A tree like phi.
        """

        def one(t: Any, p: jax.Array, v: jax.Array) -> jax.Array:
            return jnp.square(_apply(t, t.derivative, p)) * v if t.domain.event_dim == 0 else v

        return self._map(one, phi, squares)

    def pull_back_variance(self, phi: PyTree, variance: PyTree) -> PyTree:
        """Variance of the proxy gradient from a *known* variance of the theta-gradient: J^2 summed against it.

        It takes the noise of the coordinates of theta for independent (and an entry of a symmetric matrix and its mirror image
        for one). Noise that is estimated is not diagonal in theta; that goes through `pull_back_differences`.

        Args:
            phi: a tree of unbounded arrays.
            variance: of the gradient at theta, a tree like theta.

        Returns:
            A tree like phi.
        """

        def one(t: Any, p: jax.Array, v: jax.Array) -> jax.Array:
            if t.domain.event_dim == 0:
                return jnp.square(_apply(t, t.derivative, p)) * v
            return _vector_variance(t, p, v)

        return self._map(one, phi, variance)

    def log_abs_det_jacobian(self, phi: PyTree) -> jax.Array:
        """log |det J| of the whole map.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A scalar.
        """
        terms = self._map(lambda t, p: jnp.sum(t.log_abs_det_jacobian(p, t(p))), phi)
        return sum(jax.tree.leaves(terms), jnp.zeros(()))

    def leaves(self) -> list[Any]:
        """The transforms, one per support."""
        return jax.tree.leaves(self.transforms, is_leaf=is_transform)

    def moved_by(self, kind: type[Any], phi: PyTree) -> list[str]:
        """The names of the variables whose transform is of a class."""
        flags = jax.tree_util.tree_leaves_with_path(self._map(lambda t, _: isinstance(t, kind), phi))
        return [variable_name(path) for path, flag in flags if flag]

    def log_gap(self, phi: PyTree) -> PyTree:
        """log(theta - lower end) of every leaf, right also where theta itself underflows.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A tree like theta.
        """
        return self._map(lambda t, p: t.log_gap(p), phi)

    def check(self, theta: PyTree) -> None:
        """Raise a ValueError that names the variables of `theta` (leading axes allowed) not strictly inside their support.

        Args:
            theta: a tree of arrays.

        Raises:
            ValueError: some entries are outside, or at an end.
        """
        problems = []

        def one(path: tuple[Any, ...], support: Any, subtree: PyTree) -> None:
            for subpath, leaf in jax.tree_util.tree_leaves_with_path(subtree):
                value = np.asarray(leaf)
                name = variable_name((*path, *subpath))
                if not np.all(np.isfinite(value)):
                    problems.append(f"{name!r} starts at a value that is not finite")
                elif not np.all(np.asarray(support(value))) or _on_the_edge(support, value):
                    problems.append(f"{name!r} starts at {_short(value)}, which is not strictly inside {support}")

        try:
            jax.tree_util.tree_map_with_path(one, self.supports, theta, is_leaf=is_constraint)
        except ValueError as error:
            raise ValueError(
                f"The start has another structure than the supports: got {jax.tree.structure(theta)}, expected "
                f"{jax.tree.structure(self.supports, is_leaf=is_constraint)}. Give one value per variable."
            ) from error
        if problems:
            raise ValueError(
                "Cannot start there: " + "; ".join(problems) + ". Give `init` values strictly inside the support, or "
                "leave `init` out."
            )


@dataclass(frozen=True, eq=False)
class MetricSpace(Space):
    """A space of which kernels move z, where phi = c + L z.

    Args:
        metric: c and L.
    """

    metric: Any

    @property
    def of_proxy(self) -> Space:
        return Space(self.supports, self.transforms)

    def proxy(self, moving: PyTree) -> PyTree:
        return self.metric.to_proxy(moving)

    def constrain(self, z: PyTree) -> PyTree:
        return super().constrain(self.proxy(z))

    def unconstrain(self, theta: PyTree) -> PyTree:
        return self.metric.from_proxy(super().unconstrain(theta))

    def evaluation_point(self, z: PyTree) -> PyTree:
        return super().evaluation_point(self.proxy(z))

    def pull_back(self, z: PyTree, theta: PyTree, gradient: PyTree, temperature: float | jax.Array = 1.0) -> PyTree:
        return self.metric.pull_back(super().pull_back(self.proxy(z), theta, gradient, temperature))

    def pull_back_differences(self, z: PyTree, theta: PyTree, differences: PyTree) -> PyTree:
        """L^T J^T of differences: of scalars too, because L mixes them."""
        phi, space = self.proxy(z), self.of_proxy
        _, transposed = jax.linearize(lambda g: space.pull_back(phi, theta, g), jax.tree.map(jnp.zeros_like, theta))
        return jax.vmap(lambda d: self.metric.pull_back(transposed(d)))(differences)

    def variance_at(self, z: PyTree, squares: PyTree) -> PyTree:
        return squares

    def pull_back_variance(self, z: PyTree, variance: PyTree) -> PyTree:
        raise ValueError(
            "A known variance of the gradient says nothing of its correlations, which a metric mixes. Leave `metric` out, or let the "
            "noise be estimated: noise_correction=True."
        )


def _apply(transform: Any, method: Callable[..., Any], *leaves: jax.Array) -> jax.Array:
    return here().elementwise(method, *leaves) if getattr(transform, "uniform", False) else method(*leaves)


def _per_support(supports: PyTree, transforms: PyTree) -> list[Any]:
    """One choice (or None for the default) per support, in the order of the leaves."""
    leaves = jax.tree.leaves(supports, is_leaf=is_constraint)
    if transforms is None:
        return [None] * len(leaves)
    if isinstance(transforms, str | type) or is_transform(transforms):
        if isinstance(transforms, str) and transforms not in tf.BY_NAME:
            raise ValueError(f"Unknown transform {transforms!r}. Known names: {', '.join(tf.BY_NAME)}.")
        choices = [transforms if _fits(support, transforms) else None for support in leaves]
        if not any(choice is not None for choice in choices):
            tf.onto(leaves[0], transforms)  # raises: it says what fits
        return choices
    if isinstance(transforms, dict) and isinstance(supports, dict):
        unknown = sorted(set(transforms) - set(supports))
        if unknown:
            raise ValueError(f"`transforms` names {unknown}, but the variables are {sorted(supports)}.")
        chosen: list[Any] = []
        for key in sorted(supports):
            chosen += _per_support(supports[key], transforms.get(key))
        return chosen
    try:
        structure: Any = jax.tree.structure(supports, is_leaf=is_constraint)
        return list(structure.flatten_up_to(transforms))
    except ValueError as error:
        raise ValueError(
            "`transforms` must be None, one name, class or instance, or a tree with the structure of the supports; "
            f"got {transforms!r}."
        ) from error


def _fits(support: constraints.Constraint, transform: Any) -> bool:
    """Whether one transform given for everything applies to this support; the real line never needs one."""
    try:
        tf.onto(support, transform)
    except ValueError:
        return False
    return True


def _vector_variance(transform: Any, phi: jax.Array, variance: jax.Array) -> jax.Array:
    """diag(J^T diag(v) J) for a vector transform, through its Jacobian (these events are small)."""
    event_in = transform.domain.event_dim
    event_out = transform.codomain.event_dim

    def one(p: jax.Array, v: jax.Array) -> jax.Array:
        jacobian = jax.jacobian(transform)(p)
        weights = jacobian * jnp.sqrt(v).reshape(v.shape + (1,) * event_in)
        if transform.codomain is constraints.positive_definite:
            # An entry and its mirror image are one number, with one noise: it counts twice, not as two.
            once = jnp.tril(jnp.ones_like(v), -1) + 0.5 * jnp.eye(v.shape[-1], dtype=v.dtype)
            weights = (weights + jnp.swapaxes(weights, 0, 1)) * once[..., None]
        return jnp.sum(jnp.square(weights), axis=tuple(range(event_out)))

    batch = phi.ndim - event_in
    for _ in range(batch):
        one = jax.vmap(one)
    return one(phi, variance)


def _on_the_edge(support: constraints.Constraint, value: np.ndarray) -> bool:
    lower, upper = tf.bounds(support)
    return bool(np.any(value <= np.asarray(lower)) or np.any(value >= np.asarray(upper)))


def _short(value: np.ndarray) -> str:
    return f"{value}" if value.size <= 4 else f"an array of shape {value.shape} with minimum {value.min():.4g}"
