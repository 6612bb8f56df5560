"""Plain XLA: what every other form of the same arithmetic is held to, and what devices take for which there is no other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

__all__ = ["Plain", "PyTree", "lowest_exponent", "precision", "rows_of"]

PyTree = Any

# (1 - e^-x) / x for x in [0, ONE_MINUS_EXP_END], in powers of x; to 2.5e-7 in single precision, about what 1 - e^-x loses there.
ONE_MINUS_EXP_END = {"single": 0.25, "double": 0.4}
ONE_MINUS_EXP = {
    "single": (0.9999997563, -0.4999693143, 0.1660550879, -0.03770999129),
    "double": (
        0.999999999999999532, -0.499999999999810261, 0.166666666654002775, -0.0416666663409086817,
        8.33332913000898731e-3, -1.38885836117883261e-3, 1.98282019071003217e-4, -2.44734071383750101e-5,
        2.30403879704700289e-6,
    ),
}  # fmt: skip

# log((2 + t) / (2 - t)) / t for t in [0, 2/3], in powers of t^2, to 1.6e-7 in single precision.
LOG_RATIO = {
    "single": (0.9999998355, 0.08334500317, 0.01237170755, 2.673910377e-3),
    "double": (
        1.00000000000000166, 0.0833333333327282191, 0.0125000000361920381, 2.23214202615273827e-3,
        4.34037299896858824e-4, 8.87174511322939794e-5, 1.90072109393083976e-5, 3.58428278184798414e-6,
        1.43112332161313527e-6,
    ),
}  # fmt: skip

WORTH_UNROLLING = 50  # steps of a large model's block from which on several of them share a turn of the loop
STEPS_A_TURN = 4  # so many of a large model,
SMALL_STEPS_A_TURN = 8  # and of a small one


def precision(dtype: DTypeLike) -> Any:
    """The name of the coefficient set that serves `dtype`."""
    return "double" if jnp.finfo(dtype).bits > 32 else "single"


def lowest_exponent(dtype: DTypeLike) -> Any:
    """From where on e^x is a normal number."""
    return math.log(float(jnp.finfo(dtype).tiny)) + 0.3


def _its_own_derivative(function: Callable[..., Array]) -> jax.custom_jvp[Array]:
    """`function(x, rest)`, which is e^(x + rest)."""
    made = jax.custom_jvp(function)
    made.defjvps(lambda tangent, value, x, rest: value * tangent, lambda tangent, value, x, rest: value * tangent)
    return made


def _with_second_as_derivative(function: Callable[[Array], Any]) -> jax.custom_jvp[Any]:
    """`function(x)`, which is 1 - e^-x and e^-x."""
    made = jax.custom_jvp(function)

    def tangents_too(primals: Any, tangents: Any) -> Any:
        share, decay = made(*primals)
        change = decay * tangents[0]
        return (share, decay), (change, -change)

    made.defjvp(tangents_too)
    return made


class Plain:
    """The form in which a device computes.

    Every method says what its result is; subclasses make the same in other instructions, where these are faster on a device. What they
    choose freely comes last: how the steps of a run follow one another.
    """

    def __init__(self) -> None:
        self.exponential = _its_own_derivative(self._exponential)
        self.one_minus_exp = _with_second_as_derivative(self._one_minus_exp)

    # -- numbers ---------------------------------------------------------------------------------------------------

    def polynomial(self, coefficients: Sequence[float], x: Array) -> Array:
        """Lowest power first. By Horner's rule: the fewest instructions."""
        parts: list[Any] = list(coefficients)
        total = parts.pop()
        while parts:
            total = total * x + parts.pop()
        return jnp.asarray(total)

    def reciprocal(self, x: Array) -> Array:
        """1 / x of a positive normal number."""
        return 1 / x

    def log(self, x: Array) -> Array:
        """log x of a positive normal number."""
        return jnp.log(x)

    def _exponential(self, x: Array, rest: Any = 0.0) -> Array:
        """e^(x + rest), a normal number, with a rest below 0.033 in size that need not be added to x in x's precision."""
        return jnp.exp(x) * self.polynomial([1 / math.factorial(k) for k in range(5)], rest + jnp.zeros_like(x))

    def _one_minus_exp(self, x: Array) -> tuple[Array, Array]:
        """1 - e^-x and e^-x, x >= 0. XLA's own expm1 costs an exponential and a hyperbolic tangent."""
        decay = jnp.exp(-x)
        kind = precision(x.dtype)
        near = x * self.polynomial(ONE_MINUS_EXP[kind], x)
        return jnp.where(x < ONE_MINUS_EXP_END[kind], near, 1 - decay), decay

    def log1p_over(self, d: Array) -> Array:
        """log(1 + d) / d for d in [0, 1]. XLA's own log1p computes both of its branches, one of them a logarithm."""
        middle = self.reciprocal(1 + 0.5 * d)
        t = d * middle
        return middle * self.polynomial(LOG_RATIO[precision(d.dtype)], t * t)

    def decaying(self, m: Array) -> Array:
        """e^-m for m >= 0, never below the smallest normal number, so that it may stand in a denominator."""
        return self.exponential(jnp.maximum(-m, lowest_exponent(m.dtype)))

    def growing(self, x: Array) -> Array:
        """e^x, held below where its reciprocal would no more be a normal number."""
        return jnp.exp(jnp.minimum(x, -lowest_exponent(x.dtype)))

    def logistic(self, x: Array) -> Array:
        """1 / (1 + e^-x), a normal number."""
        return self.reciprocal(1 + self.growing(-x))

    def logistic_complement(self, x: Array) -> Array:
        """1 / (1 + e^x), a normal number."""
        growth = self.growing(-x)
        return growth * self.reciprocal(1 + growth)

    # -- arrays ----------------------------------------------------------------------------------------------------

    def elementwise(self, function: Callable[..., Array], *leaves: Array) -> Array:
        """`function(*leaves)`, which does the same to every coordinate, of leaves of one shape."""
        return function(*leaves)

    def table(self, x: Array) -> Array:
        """x, of which rows will be looked up."""
        return x

    def row_sums(self, x: Array) -> Array:
        """The sum of every row of a table of short rows."""
        return jnp.sum(x, axis=-1)

    def outer(self, rows: np.ndarray, columns: Array) -> Array:
        """The outer product of two vectors: `rows` of the shape (n, 1), `columns` of the shape (k,)."""
        return jnp.multiply(rows, columns)

    # -- rows of data ----------------------------------------------------------------------------------------------

    reads_data_there = True  # whether data that are shuffled are read where the device has them
    reads_files = False  # whether it reads files that are mapped into the host's memory as its own

    def ring(self, key: Array, rows: int, more: int) -> Any:
        """The numbers of so many rows in random order, of which the first few come again at the end."""
        return _ring(rows, more, key)

    def looked_up(self, data: PyTree, rows: Any) -> PyTree:
        """The rows of these numbers, on the device."""
        return rows_of(jax.device_put(data), rows)

    # -- the loop over steps ---------------------------------------------------------------------------------------

    # XLA's options for programs of little work that are called a few times, so that they are soon compiled.
    few_calls: ClassVar[dict[str, Any]] = {}
    in_vectors = False  # whether the numbers of a state lie in vectors between two steps
    asks_for_reports = False  # whether a step is asked if it is to report: to make a report costs more than to ask

    def steps_a_turn(self, small: bool, block_steps: int) -> int:
        """Steps in one turn of the loop: gaps between kernels and copies of the state cost as much as the arithmetic.

        For a large model that does not pay in a run that is looked at every few steps, which is a short one.
        """
        if small:
            return SMALL_STEPS_A_TURN
        return STEPS_A_TURN if block_steps >= WORTH_UNROLLING else 1

    def compiler_options(self, numbers: int) -> dict[str, Any]:
        """XLA's, for the steps of chains whose states hold so many numbers."""
        return {}

    def plug_in(self) -> Any:
        """What makes kernels of our own for this device (`engine.triton`); None where there is none, or where it does not work."""
        return None


@jax.jit
def rows_of(data: PyTree, rows: Array) -> PyTree:
    """The rows of these numbers, of every array."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip"), data)


@partial(jax.jit, static_argnums=(0, 1))
def _ring(rows: int, more: int, key: Array) -> Array:
    order = jax.random.permutation(key, rows)
    return jnp.concatenate([order, order[:more]])
