"""Which transform for which support: `onto` places the one asked for, `default` chooses, `available` lists."""

import inspect

from numpyro.distributions import constraints

from .base import Transform
from .interval import Arctan, Probit, Sigmoid, Softsign
from .positive import ICLL, Exp, IntegratedProbit, Softplus
from .real import Identity
from .vector import Bijection, Softmax, StickBreaking, bijection_of

FAMILIES = {
    "the real line": (Identity,),
    "a half line": (Softplus, ICLL, IntegratedProbit, Exp),
    "an interval": (Sigmoid, Probit, Arctan, Softsign),
    "a simplex": (Softmax, StickBreaking),
}
BY_NAME = {transform.name: transform for family in FAMILIES.values() for transform in family}


def onto(constraint, transform, scale=1.0):
    """The transform asked for, placed onto the support that `constraint` describes.

    `transform` is a name, a class or an instance; of an instance on another support, the class is used. `scale` is the
    c in theta = a + c f(phi / c) on half lines, and in theta = a + (b - a) f(phi / c) on intervals. Wrappers that only
    regroup axes (`constraints.independent`) are looked through: these transforms act on each coordinate.
    """
    constraint = _unwrap(constraint)
    kind = _named(transform)
    family = _family(constraint)
    if isinstance(transform, Bijection) and (family is None or transform.codomain == constraint):
        return transform
    if family is None or kind not in FAMILIES[family]:
        raise ValueError(_misfit(constraint, family, transform))
    fixed = family in ("the real line", "a simplex")
    placed = kind() if fixed else kind(*_bounds(constraint), scale=scale)
    return transform if placed == transform else placed


def default(constraint):
    """The transform for a support when none is asked for: Lipschitz wherever one is known, hence never Exp."""
    constraint = _unwrap(constraint)
    family = _family(constraint)
    return bijection_of(constraint) if family is None else onto(constraint, FAMILIES[family][0])


def available(constraint):
    """The names of the transforms that fit a support, the default first."""
    constraint = _unwrap(constraint)
    family = _family(constraint)
    return (default(constraint).name,) if family is None else tuple(kind.name for kind in FAMILIES[family])


def _unwrap(constraint):
    if not isinstance(constraint, constraints.Constraint):
        raise ValueError(
            f"expected a constraint of numpyro.distributions.constraints, got {constraint!r}; "
            "for instance constraints.positive or constraints.interval(0, 1)"
        )
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return constraint


def _family(constraint):
    if isinstance(constraint, type(constraints.real)) or _is_real_array(constraint):
        return "the real line"
    if isinstance(constraint, constraints.greater_than | constraints.less_than):
        return "a half line"
    if isinstance(constraint, constraints.interval):
        return "an interval"
    if isinstance(constraint, type(constraints.simplex)):
        return "a simplex"
    return None


def _is_real_array(constraint):
    return isinstance(constraint, type(constraints.real_vector) | type(constraints.real_matrix))


def _bounds(constraint):
    return getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)


def _named(transform):
    """The class behind a name, a class or an instance."""
    if isinstance(transform, Transform):
        return type(transform)
    if inspect.isclass(transform) and issubclass(transform, Transform):
        return transform
    if isinstance(transform, str) and transform.lower() in BY_NAME:
        return BY_NAME[transform.lower()]
    raise ValueError(f"there is no transform {transform!r}; the names are {', '.join(BY_NAME)}")


def _misfit(constraint, family, transform):
    got = transform if isinstance(transform, str) else getattr(transform, "name", transform)
    if family is None:
        return f"{got!r} does not map onto {constraint}; leave it out, and the default for that support is used"
    fits = ", ".join(kind.name for kind in FAMILIES[family])
    names = ", ".join(BY_NAME)
    return f"{got!r} does not map onto {constraint}, which is {family}; what fits: {fits} (all names: {names})"
