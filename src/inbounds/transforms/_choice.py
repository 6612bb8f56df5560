"""Which transform for which support: `onto` places the one asked for, `default` chooses, `available` lists."""

from __future__ import annotations

import inspect
from typing import Any

from numpyro.distributions import constraints
from numpyro.distributions import transforms as numpyro_transforms

from ._base import Transform, parameter, same
from ._interval import Arctan, Interval, Probit, Sigmoid, Softsign
from ._positive import ICLL, Exp, HalfLine, IntegratedProbit, Softplus
from ._real import Identity
from ._supports import bounds, ends, family_of, unwrap
from ._vector import OTHERS, LogRatios, Softmax, StickBreaking, bijection_of

# The transforms that fit each kind of support, the default first.
FAMILIES: dict[str, tuple[type[Transform], ...]] = {
    "the real line": (Identity,),
    "a half line": (Softplus, ICLL, IntegratedProbit, Exp),
    "an interval": (Sigmoid, Probit, Arctan, Softsign),
    "a simplex": (LogRatios, Softmax, StickBreaking),
}
# The kinds of support with ends, and the base class whose transforms go onto any of that kind.
PLACEABLE: dict[str, type[HalfLine] | type[Interval]] = {"a half line": HalfLine, "an interval": Interval}
BY_NAME: dict[str, type[Transform]] = {kind.name: kind for family in (*FAMILIES.values(), OTHERS) for kind in family}


def onto(
    constraint: constraints.Constraint, transform: str | type[Transform] | Transform, scale: Any = None
) -> Transform:
    """The transform asked for, placed onto the support that `constraint` describes.

    Any transform whose codomain is the support is taken as it is. Those that derive from `HalfLine` and `Interval` are moved: onto a
    support with other ends a copy with these ends goes, all else unchanged. Wrappers that only regroup axes
    (`constraints.independent`) are looked through.

    Args:
        constraint: the support, one of `numpyro.distributions.constraints`.
        transform: a name, a class or an instance.
        scale: the c in theta = a + c f(phi / c) on half lines, and in theta = a + (b - a) f(phi / c) on intervals. None keeps that of
            the instance, or 1.

    Returns:
        The transform; the same object where nothing has to change.

    Raises:
        ValueError: it does not fit. The message says which ones do.

    Example:
        >>> ib.transforms.onto(dist.constraints.greater_than(2.0), "icll").name
        'icll'
    """
    constraint = unwrap(constraint)
    chosen, base = _instance(constraint, transform), PLACEABLE.get(family_of(constraint) or "")
    if scale is None and _fits(chosen, constraint):
        return chosen
    if base is not None and isinstance(chosen, base):
        return chosen.placed(*ends(constraint), scale=scale)
    if not _fits(chosen, constraint):
        raise ValueError(_misfit(constraint, transform))
    return chosen


def default(constraint: constraints.Constraint) -> Transform:
    """The transform for a support when none is asked for: Lipschitz wherever one is known, hence never Exp.

    Args:
        constraint: the support, one of `numpyro.distributions.constraints`.

    Returns:
        A transform onto it.

    Raises:
        ValueError: it is not a support of continuous variables.

    Example:
        >>> ib.transforms.default(dist.constraints.unit_interval).name
        'sigmoid'
    """
    constraint = unwrap(constraint)
    family = family_of(constraint)
    return bijection_of(constraint) if family is None else onto(constraint, FAMILIES[family][0])


def available(constraint: constraints.Constraint) -> tuple[str, ...]:
    """The names of the library's transforms that fit a support, the default first.

    Args:
        constraint: the support, one of `numpyro.distributions.constraints`.

    Returns:
        Names, for `transforms=` of the kernels.

    Raises:
        ValueError: it is not a support of continuous variables.

    Example:
        >>> ib.transforms.available(dist.constraints.positive)
        ('softplus', 'icll', 'integrated_probit', 'exp')
    """
    constraint = unwrap(constraint)
    family = family_of(constraint)
    return (default(constraint).name,) if family is None else tuple(kind.name for kind in FAMILIES[family])


def _instance(constraint: constraints.Constraint, transform: Any) -> Transform:
    """What was meant by a name, a class or an instance; of a class the one with the parameters that it has by itself."""
    if isinstance(transform, Transform):
        return transform
    if inspect.isclass(transform) and issubclass(transform, Transform):
        try:
            inspect.signature(transform).bind()
        except TypeError as error:
            raise ValueError(f"{transform.name!r} has parameters ({error}): give an instance of it") from None
        return transform()
    if isinstance(transform, numpyro_transforms.Transform):
        raise ValueError(
            f"{transform!r} is a transform of NumPyro's, which lacks what a sampler needs: give transforms.from_numpyro({transform!r})"
        )
    if isinstance(transform, str) and transform.lower() in BY_NAME:
        return BY_NAME[transform.lower()]()
    if isinstance(transform, str) and family_of(constraint) is None:
        only = bijection_of(constraint)
        if only.name == transform:
            return only
    raise ValueError(f"there is no transform {transform!r}; the names are {', '.join(BY_NAME)}")


def _fits(transform: Transform, support: constraints.Constraint) -> bool:
    """Whether a transform maps onto the interior of a support; open ends and closed ones are the same."""
    codomain, family = unwrap(transform.codomain), family_of(support)
    if family_of(codomain) != family:
        return False
    if family in PLACEABLE:
        return all(same(parameter(a), parameter(b)) for a, b in zip(bounds(codomain), bounds(support), strict=True))
    return family is not None or bool(codomain == support) or bool(codomain == _usual_codomain(support))


def _usual_codomain(support: constraints.Constraint) -> constraints.Constraint | None:
    """What the transform for a support of vectors maps onto, where there is one: positive definite for positive semidefinite."""
    try:
        return bijection_of(support).codomain
    except ValueError:
        return None


def _misfit(constraint: constraints.Constraint, transform: Any) -> str:
    names, family = ", ".join(BY_NAME), family_of(constraint)
    got = transform if isinstance(transform, str) else getattr(transform, "name", transform)
    is_ours = isinstance(transform, str) or got in BY_NAME
    maps = "" if is_ours or isinstance(transform, type) else f" (it maps onto {transform.codomain})"
    kind = "" if family is None else f", which is {family}"
    return f"{got!r} does not map onto {constraint}{kind}{maps}; what fits: {', '.join(available(constraint))} (all names: {names})"
