"""Standard normals for the steps: what a large model spends most of its time on.

The generator is Threefry-2x32 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"), the one behind
`jax.random` too. A call of it makes two words of a counter. `jax.random.normal` calls it for every number and keeps one word.

Here too one word of every counter is used, so that XLA puts the generator into the loop that updates the state (two words would
mean a pass over memory of their own, and lose), but the rounds are written out, so that they become
vector instructions, and there are 13 of them instead of 20. Thirteen are the least for which the authors of Random123 know of no
statistical flaw of Threefry-2x32 (comments of its threefry.h, 2011); 20 are their margin of safety. Of 64-bit words, which are not used
here, 13 fail a WeightDistrib test longer than BigCrush's (same place), and one test of BigCrush (GROMACS, whose default generator
that is). Eleven tests of our own (bits alone and against their neighbours, Hamming weights, WeightDistrib, pairs, maxima, birthday
spacings) on 1.07e9 words, with counters, streams, keys or steps in order and with keys and counters interleaved, find nothing at 13
rounds, and fail at 9 on a tenth of the words. Keys are still derived by `jax.random`, with 20.

A word becomes a normal by one polynomial of the logarithm of the tail, without branches, and without the square root of
`lax.erf_inv`. On a CPU a normal inside an update costs 4 nanoseconds where that of `jax.random` costs 10 (38 in a loop over rows
that are shorter than a vector instruction: the driver keeps states in one row). In the kernels that move large variables on GPUs
(`engine/triton/moves.py`) both words of a counter make two normals.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from inbounds.transforms.special import by_hand, polynomial

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA  # so that no key makes all three words of the key schedule zero

# log(1 + m) / m for m in [sqrt(1/2) - 1, sqrt(2) - 1], and sqrt(2) erf_inv(x) / x in powers of w / 8 - 1 for w = -log(1 - x^2) in
# [0, 16], both near-minimax (Lawson's iteration in double precision). Together within 4.2e-7 of the normal quantile, for every word.
LOG = (
    0.9999998146, -0.5000066549, 0.3333617837, -0.2495940649, 0.1987312132, -0.1733292036, 0.1641944479, -0.1010314610,
)  # fmt: skip
QUANTILE = (
    3.763842596, 1.995251375, -0.4575642752, 0.1779464542, -0.05160413959, -0.02402732575, 0.05971301044, -0.05574240090,
    0.04556778353, -0.04353412957, 1.155081671e-3, 0.05113570914, -0.02949092401, -0.01254960712, 0.01017515488,
)  # fmt: skip
QUANTILE_END = 16.0
SQRT_HALF = np.float32(math.sqrt(0.5)).view(np.int32)


def normal(
    key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = jnp.float32, stream: int = 0
) -> jax.Array:
    """Independent standard normals from a key, and from each `stream` of it: `jax.random.normal`, faster in single precision."""
    words = jax.random.key_data(key)
    if dtype != jnp.float32 or words.shape != (2,):  # double precision, or a key of another generator
        return jax.random.normal(jax.random.fold_in(key, stream) if stream else key, shape, dtype)

    counter = lax.iota(np.uint32, math.prod(shape))
    return of_word(threefry(words[0], words[1], jnp.full_like(counter, stream), counter)[0]).reshape(shape)


def threefry(
    key0: jax.Array, key1: jax.Array, x0: jax.Array, x1: jax.Array, rounds: int = 13
) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 of counters (x0, x1), all of them uint32."""
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for number in range(1, rounds + 1):
        rotation = ROTATIONS[(number - 1) % 8]
        x0 = x0 + x1
        x1 = x0 ^ ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation)))
        if number % 4 == 0:
            turn = number // 4
            x0, x1 = x0 + keys[turn % 3], x1 + keys[(turn + 1) % 3] + np.uint32(turn)
    return x0, x1


def of_word(bits: jax.Array) -> jax.Array:
    """A normal of 24 random bits: the quantile of a number in (-1, 1), which lies as often on one side of 0 as on the other."""
    signed = lax.bitcast_convert_type(bits, np.int32) >> np.int32(8)
    uniform = (signed.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    log_tail = _log((1 - uniform) * (1 + uniform))  # the factors are exact
    return uniform * polynomial(QUANTILE, log_tail * np.float32(-2 / QUANTILE_END) - 1)


def of_two_words(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two normals of 64 random bits, by Box and Muller: cheap where sine and cosine are instructions, dear elsewhere."""
    uniform = (first.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = jnp.sqrt(jnp.abs(-2 * jnp.log(uniform)))
    angle = lax.bitcast_convert_type(second, np.int32).astype(np.float32) * np.float32(2.0**-31 * math.pi)
    return radius * jnp.cos(angle), radius * jnp.sin(angle)


def _log(tail: jax.Array) -> jax.Array:
    """The logarithm of a normal number."""
    if not by_hand(tail):
        return jnp.log(tail)
    scaled = lax.bitcast_convert_type(tail, np.int32) - SQRT_HALF  # tail = 2^exponent (1 + mantissa)
    exponent = (scaled >> np.int32(23)).astype(np.float32)
    mantissa = lax.bitcast_convert_type((scaled & np.int32(0x7FFFFF)) + SQRT_HALF, np.float32) - 1
    return exponent * np.float32(math.log(2)) + mantissa * polynomial(LOG, mantissa)
