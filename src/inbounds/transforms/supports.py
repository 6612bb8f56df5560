"""What a support is, for those who need no transform: its ends, and whether it is a support of vectors."""

from __future__ import annotations

import math
from typing import Any

from numpyro.distributions import constraints

from .choice import _bounds, _family, _unwrap


def bounds(constraint: constraints.Constraint) -> tuple[Any, Any]:
    """(lower, upper) of a support of scalars, infinite where there is no end; (-inf, inf) for a support of vectors."""
    constraint = _unwrap(constraint)
    if _family(constraint) not in ("a half line", "an interval"):
        return -math.inf, math.inf
    lower, upper = _bounds(constraint)
    return (-math.inf if lower is None else lower), (math.inf if upper is None else upper)


def is_vector(constraint: constraints.Constraint) -> bool:
    """Whether the coordinates of a variable are bounded jointly (a simplex, a correlation matrix), not each alone."""
    return _family(_unwrap(constraint)) in (None, "a simplex")
