"""The support of a PyMC variable: what its own transform maps onto, and then our transforms do it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from inbounds.frontends._pymc_graphs import evaluated
from inbounds.transforms import Softplus, Transform

__all__ = ["support_of"]

SOFTPLUS = Softplus()


def support_of(model: Any, variable: Any) -> constraints.Constraint:
    """The support of a free variable of a PyMC model, on the variable's own scale.

    Raises:
        ValueError: no support is known, or it changes with another variable.
    """
    from pymc.distributions.transforms import _default_transform

    transform = model.rvs_to_transforms[variable]
    if transform is None:  # also where `default_transform=None` was asked for: the support is the same
        transform = _default_transform(variable.owner.op, variable)
    return constraints.real if transform is None else _support(variable, transform)


def _support(variable: Any, transform: Any) -> constraints.Constraint:
    from pymc.distributions import transforms as pymc
    from pymc.logprob.transforms import CircularTransform, IntervalTransform, LogOddsTransform, LogTransform

    match transform:
        case LogTransform() | pymc.LogExpM1():
            return constraints.positive
        case LogOddsTransform():
            return constraints.unit_interval
        case IntervalTransform():
            return _between(variable, *transform.args_fn(*variable.owner.inputs))
        case CircularTransform():
            return constraints.circular
        case pymc.SimplexTransform():
            return constraints.simplex
        case pymc.Ordered(ascending=True):
            return constraints.positive_ordered_vector if transform.positive else constraints.ordered_vector
        case pymc.ChainedTransform(transform_list=[LogTransform(), pymc.Ordered(ascending=True)]):
            return constraints.positive_ordered_vector
        case pymc.ZeroSumTransform():
            if transform.zerosum_axes == tuple(range(-len(transform.zerosum_axes), 0)):
                return constraints.zero_sum(len(transform.zerosum_axes))
        case pymc.CholeskyCovPacked():
            return packed_cholesky
        case pymc.CholeskyCorrTransform(upper=False):
            return constraints.corr_cholesky
        case pymc.CholeskyCovTransform():
            return constraints.positive_definite
    raise ValueError(
        f"The support of {variable.name!r} is not known: PyMC moves it by {_name_of(transform)}. Known are positive numbers, intervals with "
        "fixed ends, the circle, simplexes, ascending vectors, vectors that sum to zero, and Cholesky factors. Draw it on one of these and "
        "move it by a pm.Deterministic."
    )


def _between(variable: Any, lower: Any, upper: Any) -> constraints.Constraint:
    """The interval between two ends of PyMC's, each None or a graph."""
    low, high = _end(variable, lower, -np.inf), _end(variable, upper, np.inf)
    below, above = np.isfinite(low), np.isfinite(high)
    for finite in (below, above):
        if finite.any() != finite.all():
            raise ValueError(
                f"{variable.name!r} has an end in some of its coordinates and none in others. Draw the two kinds as two variables, and "
                "put them together with pm.math.concatenate."
            )
    if below.all() and above.all():
        return constraints.interval(_number(low), _number(high))
    if below.all():
        return constraints.positive if np.all(low == 0) else constraints.greater_than(_number(low))
    return constraints.less_than(_number(high)) if above.all() else constraints.real


def _end(variable: Any, end: Any, missing: float) -> np.ndarray:
    import pytensor.tensor as pt
    from pymc.pytensorf import rvs_in_graph

    if end is None:
        return np.asarray(missing)
    graph = pt.as_tensor_variable(end)
    others = sorted(rv.name or "a variable without a name" for rv in rvs_in_graph([graph]))
    if others:
        name = variable.name
        raise ValueError(
            f"The support of {name!r} changes with another variable ({', '.join(others)}). Draw it on a fixed support and move it: for a "
            f"uniform on (0, b), u = pm.Uniform('{name}_unit', 0, 1) and {name} = pm.Deterministic({name!r}, b * u)."
        )
    return np.asarray(evaluated([graph])[0], float)


def _number(end: np.ndarray) -> Any:
    """One number where all are the same, as transforms like it."""
    return float(end.flat[0]) if np.all(end == end.flat[0]) else end


def _name_of(transform: Any) -> str:
    parts = getattr(transform, "transform_list", [transform])
    return " and ".join(type(part).__name__ for part in parts)


class PackedCholesky(constraints.ParameterFreeConstraint):  # type: ignore[misc]  # NumPyro has no types
    """Lower triangles with a positive diagonal, row after row in one vector: what LKJCholeskyCov draws."""

    @property
    def event_dim(self) -> int:
        return 1

    def __call__(self, x: Any) -> Any:
        return (x[..., _diagonal(x.shape[-1])] > 0).all(axis=-1)

    def feasible_like(self, prototype: Any) -> Any:
        return jnp.zeros_like(prototype).at[..., _diagonal(prototype.shape[-1])].set(1.0)


class PackedLowerCholesky(Transform):
    r"""$\theta_{ii} = s(\varphi_{ii})$ on the diagonal of a packed triangle, s the softplus; the rest as it is. Lipschitz constant 1."""

    lipschitz = 1.0
    domain = constraints.real_vector

    @property
    def codomain(self) -> constraints.Constraint:
        return packed_cholesky

    def __call__(self, phi: Array) -> Array:
        return _on_diagonal(phi, SOFTPLUS(phi), phi)

    def _inverse(self, theta: Array) -> Array:
        on = _diagonal(theta.shape[-1])
        return theta.at[..., on].set(SOFTPLUS.inv(theta[..., on]))

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        return jnp.sum(SOFTPLUS.log_abs_det_jacobian(phi[..., _diagonal(phi.shape[-1])], None), axis=-1)

    def evaluation_point(self, phi: Array) -> Array:
        return _on_diagonal(phi, SOFTPLUS.evaluation_point(phi), phi)

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        return _on_diagonal(phi, SOFTPLUS.pull_back(phi, theta_eval, gradient), gradient)


packed_cholesky = PackedCholesky()


@biject_to.register(PackedCholesky)  # type: ignore[untyped-decorator]
def _onto_packed_cholesky(constraint: PackedCholesky) -> PackedLowerCholesky:
    return PackedLowerCholesky()


def _diagonal(length: int) -> np.ndarray:
    """The places of the diagonal in a packed triangle of so many numbers."""
    places = np.cumsum(np.arange(1, length + 1)) - 1
    return places[places < length]


def _on_diagonal(phi: Array, there: Array, elsewhere: Array) -> Array:
    mask = np.zeros(phi.shape[-1], bool)
    mask[_diagonal(phi.shape[-1])] = True
    return jnp.where(mask, there, elsewhere)
