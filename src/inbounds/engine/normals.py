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

from inbounds import trees
from inbounds.engine.elementary import log, polynomial
from inbounds.engine.generator import threefry
from inbounds.trees import PyTree

__all__ = ["normal", "normal_like", "of_word"]

# sqrt(2) erf_inv(x) / x in powers of w / 8 - 1 for w = -log(1 - x^2) in [0, 16], near-minimax (Lawson's iteration in double precision).
# With the logarithm of CPUs within 4.2e-7 of the normal quantile, for every word.
QUANTILE = (
    3.763842596, 1.995251375, -0.4575642752, 0.1779464542, -0.05160413959, -0.02402732575, 0.05971301044, -0.05574240090,
    0.04556778353, -0.04353412957, 1.155081671e-3, 0.05113570914, -0.02949092401, -0.01254960712, 0.01017515488,
)  # fmt: skip
QUANTILE_END = 16.0
OWN_DRAW = 2**14  # numbers from which on a leaf's noise is drawn on its own


def normal(
    key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = jnp.float32, stream: int | jax.Array = 0
) -> jax.Array:
    """Independent standard normals from a key, and from each `stream` of it: `jax.random.normal`, faster in single precision."""
    words = jax.random.key_data(key)
    if dtype != jnp.float32 or words.shape != (2,):  # double precision, or a key of another generator
        return jax.random.normal(jax.random.fold_in(key, stream) if stream else key, shape, dtype)

    counter = lax.iota(np.uint32, math.prod(shape))
    return of_word(threefry(words[0], words[1], jnp.full_like(counter, stream), counter)[0]).reshape(shape)


def normal_like(key: jax.Array, tree: PyTree) -> PyTree:
    """Independent standard normals of the shapes of `tree`, in the dtype of its first leaf.

    Small leaves are cut from one draw, because every draw costs XLA time to compile; large ones have their own, because
    cutting costs a copy.
    """
    leaves, treedef = jax.tree.flatten(tree)
    dtype = leaves[0].dtype
    small = [leaf for leaf in leaves if leaf.size < OWN_DRAW]
    cut = iter(trees.cut_like(small, normal(key, (trees.size(small),), dtype)) if small else [])
    noise = [
        next(cut) if leaf.size < OWN_DRAW else normal(key, leaf.shape, dtype, stream=1 + place)
        for place, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(treedef, noise)


def of_word(bits: jax.Array) -> jax.Array:
    """A normal of 24 random bits: the quantile of a number in (-1, 1), which lies as often on one side of 0 as on the other."""
    signed = lax.bitcast_convert_type(bits, np.int32) >> np.int32(8)
    uniform = (signed.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    log_tail = log((1 - uniform) * (1 + uniform))  # the factors are exact
    return uniform * polynomial(QUANTILE, log_tail * np.float32(-2 / QUANTILE_END) - 1)
