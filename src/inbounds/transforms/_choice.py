"""Which transform for which support: `onto` places the one asked for, `default` chooses, `available` lists."""

import inspect

from ._base import Transform
from ._interval import Arctan, Probit, Sigmoid, Softsign
from ._positive import ICLL, Exp, IntegratedProbit, Softplus
from ._real import Identity
from ._supports import ends, family_of, unwrap
from ._vector import OTHERS, LogRatios, Softmax, StickBreaking, bijection_of

# The transforms that fit each kind of support, the default first.
FAMILIES = {
    "the real line": (Identity,),
    "a half line": (Softplus, ICLL, IntegratedProbit, Exp),
    "an interval": (Sigmoid, Probit, Arctan, Softsign),
    "a simplex": (LogRatios, Softmax, StickBreaking),
}
PLACEABLE = ("a half line", "an interval")
BY_NAME = {kind.name: kind for family in (*FAMILIES.values(), OTHERS) for kind in family}


def onto(constraint, transform, scale=None):
    """The transform asked for, placed onto the support that `constraint` describes.

    `transform` is a name, a class or an instance; of an instance on another support, the class and the scale
    are used. `scale` (that of the instance, or 1) is the c in theta = a + c f(phi / c) on half lines, and in
    theta = a + (b - a) f(phi / c) on intervals. Wrappers that only regroup axes (`constraints.independent`) are looked through: these
    transforms act on each coordinate.
    """
    constraint = unwrap(constraint)
    family = family_of(constraint)
    if family is None:
        only = bijection_of(constraint)
        if transform in (only, only.name, type(only)):
            return only
    kind = _named(transform)
    if family is None or kind not in FAMILIES[family]:
        raise ValueError(_misfit(constraint, family, transform))
    if scale is None:
        scale = getattr(transform, "scale", 1.0) if isinstance(transform, Transform) else 1.0
    placed = kind(*ends(constraint), scale=scale) if family in PLACEABLE else kind()
    return transform if placed == transform else placed


def default(constraint):
    """The transform for a support when none is asked for: Lipschitz wherever one is known, hence never Exp."""
    constraint = unwrap(constraint)
    family = family_of(constraint)
    return bijection_of(constraint) if family is None else onto(constraint, FAMILIES[family][0])


def available(constraint):
    """The names of the transforms that fit a support, the default first."""
    constraint = unwrap(constraint)
    family = family_of(constraint)
    return (default(constraint).name,) if family is None else tuple(kind.name for kind in FAMILIES[family])


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
    names = ", ".join(BY_NAME)
    got = transform if isinstance(transform, str) else getattr(transform, "name", transform)
    if family is None:
        return f"{got!r} does not map onto {constraint}; what fits: {default(constraint).name} (all names: {names})"
    fits = ", ".join(kind.name for kind in FAMILIES[family])
    return f"{got!r} does not map onto {constraint}, which is {family}; what fits: {fits} (all names: {names})"
