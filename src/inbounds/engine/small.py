"""The loop over steps of a small model: the noise of the whole chunk is drawn at once.

One loop goes over all the steps: a second loop around it, over blocks, would double what there is to compile.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from inbounds import trees
from inbounds.engine.normals import normal
from inbounds.engine.program import Carry, Keys, Program, Rows
from inbounds.engine.steps import collect, finite_variables, for_every_chain, no_rows, put_row, row_of, step, step_sizes
from inbounds.trees import PyTree

__all__ = ["small_chunk"]


def small_chunk(
    program: Program, carry: Carry, arrays: PyTree, keys: Keys, start: jax.Array, num_blocks: jax.Array, end: jax.Array,
    burn_in: jax.Array, step_size: jax.Array,
) -> tuple[Carry, Rows, PyTree]:  # fmt: skip
    """Noise and minibatches of all the steps are decided beforehand. Each writes the row that it belongs to; that of the last one stays.

    Each reports too: of so few numbers that is no slower than to ask whether it must.
    """
    kernel, most = program.kernel, program.chunk_steps
    steps = start + jnp.arange(most)
    like = jax.eval_shape(
        lambda state: kernel.noise_like(kernel.moving(state)), jax.tree.map(lambda leaf: leaf[0], carry.state)
    )
    size = trees.size(like)
    normals = _normals_of_chains(program, like, start, keys.noise)
    if program.layout is not None:
        normals = program.layout.everywhere(normals)
    plan = for_every_chain(program, lambda key: program.source.plan(key, steps), keys.batch)
    inputs = (plan, step_sizes(program, steps, step_size))
    first = row_of(program, start)

    def turn(index: jax.Array, loop: tuple[Any, Rows]) -> tuple[Any, Rows]:
        state, rows = loop
        noise = jax.vmap(partial(trees.cut_like, like))(lax.dynamic_slice_in_dim(normals, index * size, size, axis=1))
        plan, scheduled = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, index, keepdims=False), inputs)
        state, info = step(program, state, noise, plan, arrays, step_size if scheduled is None else scheduled)
        row = Rows(jax.vmap(kernel.moving)(state), info)
        return state, put_row(rows, row, row_of(program, start + index) - first)

    count = jnp.clip(end - start, 0, num_blocks * program.block_steps)
    done, loop = jnp.zeros_like(count), (carry.state, no_rows(program, carry, True))
    if program.unroll > 1:
        one = jax.jit(turn)  # traced once
        groups = lax.div(count, jnp.full_like(count, program.unroll))

        def group(number: jax.Array, loop: tuple[Any, Rows]) -> tuple[Any, Rows]:
            for place in range(program.unroll):
                loop = one(number * program.unroll + place, loop)
            return loop

        done, loop = groups * program.unroll, lax.fori_loop(0, groups, group, loop)
    state, rows = lax.fori_loop(done, count, turn, loop)
    collected = carry.collected
    if not program.keeps_draws:
        counts = (first + 1 + jnp.arange(program.chunk_rows)) * program.thin
        kept = program.keeps(counts, burn_in, start + count)
        collected, rows = collect(program, collected, rows.moving, kept), Rows(None, rows.info)
    carry = Carry(state, collected)
    return carry, rows, finite_variables(program, carry)


def _normals_of_chains(program: Program, like: PyTree, start: jax.Array, keys: jax.Array) -> jax.Array:
    if program.num_chains == 1:  # as in `step`
        return _normals(program, like, start, keys[0])[None]
    return jax.vmap(partial(_normals, program, like, start))(keys)


def _normals(program: Program, like: PyTree, start: jax.Array, key: jax.Array) -> jax.Array:
    """Standard normals for all the steps of a chunk: a vector, of which XLA makes vector instructions, whatever leaves phi has."""
    count, dtype = program.block_steps * trees.size(like), jax.tree.leaves(like)[0].dtype

    def of_block(block: jax.Array) -> jax.Array:
        if dtype == jnp.float32:  # the block's number is one of the generator's two counters: no key to make
            return normal(key, (count,), dtype, stream=block)
        return normal(jax.random.fold_in(key, block), (count,), dtype)

    first = lax.div(start, jnp.full_like(start, program.block_steps))
    return jax.vmap(of_block)(first + jnp.arange(program.chunk_blocks)).reshape(-1)
