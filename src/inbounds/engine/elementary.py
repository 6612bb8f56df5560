"""Elementary functions, in the form that suits what JAX computes on. What each is says `engine.plain.Plain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from inbounds.engine.platform import here

__all__ = [
    "decaying",
    "exponential",
    "log",
    "log1p_over",
    "logistic",
    "logistic_complement",
    "one_minus_exp",
    "polynomial",
    "reciprocal",
]


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """The sum of powers of x with these coefficients, the lowest power first."""
    return here().polynomial(coefficients, x)


def reciprocal(x: Array) -> Array:
    """1 / x of a positive normal number."""
    return here().reciprocal(x)


def log(x: Array) -> Array:
    """log x of a positive normal number."""
    return here().log(x)


def exponential(x: Array, rest: Any = 0.0) -> Array:
    """e^(x + rest), a normal number, with a rest below 0.033 in size that need not be added to x in x's precision."""
    return here().exponential(x, rest)


def one_minus_exp(x: Array) -> tuple[Array, Array]:
    """1 - e^-x and e^-x, x >= 0."""
    share, decay = here().one_minus_exp(x)
    return share, decay


def log1p_over(d: Array) -> Array:
    """log(1 + d) / d for d in [0, 1]."""
    return here().log1p_over(d)


def decaying(m: Array) -> Array:
    """e^-m for m >= 0, never below the smallest normal number, so that it may stand in a denominator."""
    return here().decaying(m)


def logistic(x: Array) -> Array:
    """1 / (1 + e^-x), a normal number."""
    return here().logistic(x)


def logistic_complement(x: Array) -> Array:
    """1 / (1 + e^x), a normal number."""
    return here().logistic_complement(x)
