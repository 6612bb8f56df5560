"""The forms for CPUs: vector instructions wherever XLA would not find them.

On a CPU XLA makes one loop of all that is done to an array. Its own elementary functions are right for every argument, at the price of
branches and divisions; these are right where transforms and normals ask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from inbounds.engine.plain import Plain, PyTree

__all__ = ["CPU"]

# Near-minimax, in single precision: log(1 + m) / m for m in [sqrt(1/2) - 1, sqrt(2) - 1], in powers of m;
LOG = (
    0.9999998146, -0.5000066549, 0.3333617837, -0.2495940649, 0.1987312132, -0.1733292036, 0.1641944479, -0.1010314610,
)  # fmt: skip
# log(1 + d) / d for d in [0, 1], in powers of 2 d - 1, without the division that LOG_RATIO takes;
LOG1P = (
    0.8109302162, -0.1442633367, 0.03315237352, -8.463898327e-3, 2.289100373e-3, -6.321981429e-4, 1.818683649e-4,
    -6.695043839e-5, 2.002383649e-5,
)  # fmt: skip
# e^r for |r| < log(2) / 2 + 0.033 and (e^r - 1) / r for |r| <= log(2) / 2, in powers of r.
EXP = (1.0, 1.000000065, 0.5000000081, 0.1666630511, 0.04166621502, 8.383485073e-3, 1.395154721e-3)
EXPM1 = (1.000000011, 0.5000000013, 0.1666650507, 0.04166646477, 8.369169201e-3, 1.393366690e-3)
ROUNDER = np.float32(1.5 * 2**23)
SQRT_HALF = np.float32(math.sqrt(0.5)).view(np.int32)


class CPU(Plain):
    """What is faster on CPUs, in single precision; in double precision XLA's own functions stay."""

    def polynomial(self, coefficients: Sequence[float], x: Array) -> Array:
        """By Estrin's scheme, in which few products wait for one another."""
        parts: list[Any] = list(coefficients)
        power = x
        while len(parts) > 1:
            pairs = [low + power * high for low, high in zip(parts[::2], parts[1::2], strict=False)]
            parts, power = pairs + parts[2 * len(pairs) :], power * power
        return jnp.asarray(parts[0])

    def log(self, x: Array) -> Array:
        if not _is_single(x):
            return super().log(x)
        scaled = lax.bitcast_convert_type(x, np.int32) - SQRT_HALF  # x = 2^exponent (1 + mantissa)
        exponent = (scaled >> np.int32(23)).astype(np.float32)
        mantissa = lax.bitcast_convert_type((scaled & np.int32(0x7FFFFF)) + SQRT_HALF, np.float32) - 1
        return exponent * np.float32(math.log(2)) + mantissa * self.polynomial(LOG, mantissa)

    def _exponential(self, x: Array, rest: Any = 0.0) -> Array:
        if not _is_single(x):
            return super()._exponential(x, rest)
        bits, r = _powers_of_two(x)
        return lax.bitcast_convert_type(bits, np.float32) * self.polynomial(EXP, r + rest)

    def _one_minus_exp(self, x: Array) -> tuple[Array, Array]:
        if not _is_single(x):
            return super()._one_minus_exp(x)
        bits, r = _powers_of_two(-x)
        scale = lax.bitcast_convert_type(bits, np.float32)
        change = scale * (
            r * self.polynomial(EXPM1, r)
        )  # e^-x = scale + change; where x is small scale is 1: nothing cancels
        return (1 - scale) - change, scale + change

    def log1p_over(self, d: Array) -> Array:
        """A division costs as much as the terms that it saves."""
        return self.polynomial(LOG1P, 2 * d - 1) if _is_single(d) else super().log1p_over(d)

    def logistic(self, x: Array) -> Array:
        """To tell the sign of x is cheaper than another exponential."""
        if not _is_single(x):
            return super().logistic(x)
        decay = self.decaying(jnp.abs(x))
        return jnp.where(x >= 0, 1.0, decay) * self.reciprocal(1 + decay)

    def logistic_complement(self, x: Array) -> Array:
        if not _is_single(x):
            return super().logistic_complement(x)
        decay = self.decaying(jnp.abs(x))
        return jnp.where(x >= 0, decay, 1.0) * self.reciprocal(1 + decay)

    def elementwise(self, function: Callable[..., Array], *leaves: Array) -> Array:
        """As if each leaf were a vector.

        XLA goes through an array row by row, and of a row of twenty numbers it makes vector instructions for sixteen.
        """
        if leaves[0].ndim < 2:
            return function(*leaves)
        return function(*(leaf.reshape(-1) for leaf in leaves)).reshape(leaves[0].shape)

    def table(self, x: Array) -> Array:
        """Computed before the look-ups.

        XLA would put what makes it into their loop: no vector instructions any more, and as often as a row is wanted.
        """
        return _computed(x)

    def row_sums(self, x: Array) -> Array:
        """As a product with ones: XLA's own sums take two to three times as long."""
        return jnp.matmul(x, jnp.ones(x.shape[-1], x.dtype), precision="highest")

    def outer(self, rows: np.ndarray, columns: Array) -> Array:
        """As a product of matrices: in a loop over the flat table XLA would divide to find the place of every number, one at a time.

        Over two halves, since it turns a product of a column and a row back into that loop.
        """
        halves = jnp.broadcast_to(columns, (2, *columns.shape))
        return jnp.matmul(np.repeat(rows / 2, 2, axis=1), halves, precision="highest")

    reads_data_there = False
    reads_files = True

    def ring(self, key: Array, rows: int, more: int) -> np.ndarray:
        """NumPy shuffles ten times faster than a sort of random keys."""
        order = np.random.default_rng(np.asarray(jax.random.key_data(key))).permutation(rows).astype(np.int32)
        return np.concatenate([order, order[:more]])

    def looked_up(self, data: PyTree, rows: np.ndarray) -> PyTree:
        return jax.tree.map(lambda leaf: jax.device_put(leaf[rows]), data)

    # A third of the time of a compilation is that of LLVM's passes.
    few_calls: ClassVar = {"xla_backend_optimization_level": 0}
    in_vectors = True  # as in `elementwise`
    asks_for_reports = True

    def steps_a_turn(self, small: bool, block_steps: int) -> int:
        """There are no gaps between steps, and every step in a turn is compiled anew."""
        return 1


def _is_single(x: Array) -> bool:
    return bool(x.dtype == jnp.float32)


def _powers_of_two(x: Array) -> Any:
    """x = k log 2 + r with a whole k: 2^k as bits, and r, which is at most log(2) / 2 and rounding."""
    k = lax.round(x * np.float32(1 / math.log(2)), lax.RoundingMethod.TO_NEAREST_EVEN)
    # Next to 1.5 * 2^23 the floats are the whole numbers: the last bits of the sum count up with k.
    whole = lax.bitcast_convert_type(k + ROUNDER, np.int32) - ROUNDER.view(np.int32)
    r = (x - k * np.float32(0.693359375)) - k * np.float32(math.log(2) - 0.693359375)  # the first product is exact
    return (whole + 127) << 23, r


@jax.custom_jvp
def _computed(x: Array) -> Array:
    if x.ndim < 2 or x.size < 2:
        return x
    flat = x.reshape(-1)
    half = (flat.size + 1) // 2  # barriers are taken out before loops are joined; a loop of two turns stays
    halves: Array = lax.map(lambda start: lax.dynamic_slice_in_dim(flat, start, half), np.array([0, flat.size - half]))
    if 2 * half == flat.size:
        return halves.reshape(x.shape)
    return jnp.concatenate([halves[0], halves[1, 1:]]).reshape(x.shape)


_computed.defjvps(lambda tangent, value, x: tangent)
