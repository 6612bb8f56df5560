"""What a support is: its kind, its ends, and whether it is a support of vectors."""

from __future__ import annotations

import math
from typing import Any

from numpyro.distributions import constraints

# The supports with a choice of transforms, and the constraints that describe them.
KINDS = {
    "the real line": (constraints.real, constraints.real_vector, constraints.real_matrix),
    "a half line": (constraints.positive, constraints.greater_than(0), constraints.less_than(0)),
    "an interval": (constraints.unit_interval, constraints.interval(0, 1), constraints.circular),
    "a simplex": (constraints.simplex,),
}


def bounds(constraint: constraints.Constraint) -> tuple[Any, Any]:
    """(lower, upper) of a support of scalars, infinite where there is no end; (-inf, inf) for a support of vectors.

    Args:
        constraint: the support, one of `numpyro.distributions.constraints`.

    Returns:
        Two numbers or arrays.

    Example:
        >>> ib.transforms.bounds(dist.constraints.positive)
        (0.0, inf)
    """
    constraint = unwrap(constraint)
    if family_of(constraint) not in ("a half line", "an interval"):
        return -math.inf, math.inf
    lower, upper = ends(constraint)
    return (-math.inf if lower is None else lower), (math.inf if upper is None else upper)


def is_vector(constraint: constraints.Constraint) -> bool:
    """Whether the coordinates of a variable are bounded jointly (a simplex, a correlation matrix), not each alone."""
    return family_of(unwrap(constraint)) in (None, "a simplex")


def unwrap(constraint: constraints.Constraint) -> constraints.Constraint:
    """The support of one coordinate: wrappers that only regroup axes are looked through."""
    if not isinstance(constraint, constraints.Constraint):
        raise ValueError(
            f"expected a constraint of numpyro.distributions.constraints, got {constraint!r}; "
            "for instance constraints.positive or constraints.interval(0, 1)"
        )
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    if constraints.is_dependent(constraint):
        raise ValueError("the support depends on other variables; give the constraint for the values at hand")
    if constraint.is_discrete:
        raise ValueError(f"{constraint} is discrete: Langevin dynamics needs a continuous variable; marginalise it out")
    return constraint


def family_of(constraint: constraints.Constraint) -> str | None:
    """The kind of support, a key of `KINDS`; None for supports without a choice of transforms."""
    for family, examples in KINDS.items():
        if isinstance(constraint, tuple(type(example) for example in examples)):
            return family
    return None


def ends(constraint: constraints.Constraint) -> tuple[Any, Any]:
    """(lower, upper), None where there is no end."""
    return getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)
