"""The compiled part of a run: blocks of steps inside a chunk, with no callback and one compilation.

A *block* is a fixed number of steps, a *chunk* any number of blocks; the driver picks the second while it runs. Whatever
is random is keyed by the number of the step or of the block since the start of the run, so the draws do not depend on chunks.

Small models and large ones want different loops. For a small one, a random key a step would cost more than the step, so the
noise of a whole block is drawn at once. For a large one the noise of a step is the size of the state, and is drawn in the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from inbounds import trees
from inbounds.data.arrays import MinibatchSource
from inbounds.kernels.base import Kernel
from inbounds.noise import normal
from inbounds.sampling.collect import Collector
from inbounds.sampling.devices import Layout
from inbounds.trees import PyTree

SMALL = 4_096  # numbers in the state below which noise is drawn in blocks
BLOCK_NUMBERS = 8_192  # numbers of noise in a block of a small model
CHUNK_NUMBERS = 2**22  # numbers that a chunk may return


class Carry(NamedTuple):
    """What goes from chunk to chunk."""

    state: Any  # of the kernel, leading axis = chain
    collected: Any  # of the collector, leading axis = chain; None without one


class Rows(NamedTuple):
    """Kept draws of a chunk and what their kernel reports of them by name, leading axes (row, chain)."""

    phi: PyTree
    info: dict[str, jax.Array]


class Keys(NamedTuple):
    """Leading axis = chain."""

    noise: jax.Array
    batch: jax.Array


@dataclass(frozen=True)
class Program:
    """Everything that the compiled chunk depends on but the values of arrays. Equal programs compile once."""

    kernel: Kernel
    source: MinibatchSource
    schedule: Callable[[jax.Array], jax.Array] | None
    collector: Collector | None
    num_chains: int
    thin: int
    dimension: int
    layout: Layout | None = None  # None: one device

    @property
    def small(self) -> bool:
        return self.dimension <= SMALL and self.kernel.noise == "normal"

    @property
    def block_steps(self) -> int:
        most = getattr(self.source, "most_steps", 1_024)  # data from disk: a block's minibatches must fit in memory
        if self.small:
            steps = 2 ** int(math.log2(max(1, min(1_024, most, BLOCK_NUMBERS // self.dimension))))
        else:
            steps = max(divisor for divisor in range(1, min(most, 512) + 1) if self.thin % divisor == 0)
        return steps if self.kernel.refresh_every is None else math.gcd(steps, self.kernel.refresh_every)

    @property
    def unroll(self) -> int:
        """Steps of a large model in one turn of its loop: on an accelerator, gaps between kernels and copies of the state
        cost as much as the arithmetic; on a CPU they are nothing, and every step in the turn is compiled anew."""
        if jax.default_backend() == "cpu":
            return 1
        return max(divisor for divisor in range(1, 6) if self.block_steps % divisor == 0)

    @property
    def block_rows(self) -> int:
        """The most kept draws that one block can hold."""
        return -(-self.block_steps // self.thin)

    @property
    def keeps_draws(self) -> bool:
        return self.collector is None

    def samples(self, steps_done: Any) -> Any:
        """Whether the draw after so many steps is in a sampling phase of the schedule; where it has none, all are."""
        keeps = getattr(self.schedule, "keeps", None)
        return True if keeps is None else keeps(steps_done - 1)

    @property
    def chunk_blocks(self) -> int:
        """The most blocks that one chunk may have: its draws stay within `CHUNK_NUMBERS`."""
        width = self.dimension * self.num_chains if self.keeps_draws else self.num_chains
        rows = max(1, min(65_536, CHUNK_NUMBERS // width))
        # A source of few steps at a time: more would only make room for rows that never come.
        most = getattr(self.source, "most_steps", rows * self.thin)
        return max(1, min(rows * self.thin, most) // self.block_steps)

    @property
    def of_one_device(self) -> Program:
        """The same for the chains that one device runs."""
        assert self.layout is not None
        return replace(self, num_chains=self.num_chains // self.layout.chain)

    @property
    def chunk_rows(self) -> int:
        return self.chunk_blocks * self.block_steps // self.thin + self.block_rows + 1


@partial(jax.jit, static_argnums=0)
def run_chunk(
    program: Program,
    carry: Carry,
    arrays: PyTree,
    keys: Keys,
    start: jax.Array,
    num_blocks: jax.Array,
    end: jax.Array,
    burn_in: jax.Array,
    step_size: jax.Array,
) -> tuple[Carry, Rows, PyTree]:
    """Run `num_blocks` blocks from step `start`, at most to step `end`.

    Returns the new carry, the kept draws, and whether each variable of each chain is finite. Steps from `end` on leave
    everything as it is, so that the length of a run does not enter its compilation.
    """
    arguments = (carry, arrays, keys, start, num_blocks, end, burn_in, step_size)
    if program.layout is None:
        return _chunk(program, *arguments)
    own = (True, False, True, False, False, False, False, step_size.ndim > 0)
    return program.layout.over_chains(partial(_chunk, program.of_one_device), own, (0, 1, 0))(*arguments)


def _chunk(program, carry, arrays, keys, start, num_blocks, end, burn_in, step_size) -> tuple[Carry, Rows, PyTree]:
    block = _small_block if program.small else _large_block

    def body(index, loop):
        carry, rows = loop
        first = start + index * program.block_steps
        carry, new = block(program, carry, arrays, keys, first, end, burn_in, step_size)
        slot = _row_of(program, first) - _row_of(program, start)
        rows = jax.tree.map(lambda all_, some: lax.dynamic_update_slice_in_dim(all_, some, slot, axis=0), rows, new)
        return carry, rows

    carry, rows = lax.fori_loop(0, num_blocks, body, (carry, _no_rows(program, carry)))
    return carry, rows, finite_variables(program, carry)


@partial(jax.jit, static_argnums=0)
def refresh(program: Program, carry: Carry) -> Carry:
    """Let the gradient estimator of every chain look at all the data, one chain after the other."""

    def own(state):
        return lax.map(program.kernel.refresh, state)

    refreshed = own if program.layout is None else program.layout.over_chains(own, (True,), 0)
    return carry._replace(state=refreshed(carry.state))


def finite_variables(program: Program, carry: Carry) -> PyTree:
    """Tree like phi: is it finite, for each chain."""
    phi = jax.vmap(program.kernel.proxy)(carry.state)
    return jax.tree.map(lambda leaf: jnp.all(jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1), phi)


def _row_of(program: Program, steps_done: jax.Array) -> jax.Array:
    """How many draws `steps_done` steps have kept: every `thin`-th step counted from the start of the run."""
    return steps_done // program.thin


def _no_rows(program: Program, carry: Carry) -> Rows:
    count, chains = program.chunk_rows, program.num_chains
    phi = jax.eval_shape(jax.vmap(program.kernel.proxy), carry.state)
    dtype = jax.tree.leaves(phi)[0].dtype
    kept = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), phi) if program.keeps_draws else None
    return Rows(kept, {name: jnp.zeros((count, chains), dtype) for name in program.kernel.reports})


def _step(
    program: Program, state: Any, noise: PyTree, plan: PyTree, arrays: PyTree, step_size: jax.Array, active
) -> tuple:
    """One step of every chain; nothing moves where `active` turns out to be False."""
    kernel = program.kernel

    def one(noise, state, plan, step_size):
        new, info = kernel.update(noise, state, program.source.fetch(arrays, plan), step_size)
        dtype = jax.tree.leaves(kernel.proxy(state))[0].dtype
        if active is not True:
            new = jax.tree.map(lambda after, before: jnp.where(active, after, before), new, state)
        return new, {name: getattr(info, name).astype(dtype) for name in kernel.reports}

    if program.num_chains == 1:  # no batch axis of one: it would make every product of matrices a batched one
        first = [jax.tree.map(lambda leaf: leaf[0], tree) for tree in (noise, state, plan)]
        scalar = step_size if step_size.ndim == 0 else step_size[0]
        return jax.tree.map(lambda leaf: leaf[None], one(first[0], first[1], first[2], scalar))
    return jax.vmap(one, in_axes=(0, 0, 0, None if step_size.ndim == 0 else 0))(noise, state, plan, step_size)


def _step_sizes(program: Program, steps: jax.Array, step_size: jax.Array) -> jax.Array | None:
    """One a step, or None where `step_size` is that of every step."""
    return None if program.schedule is None else jax.vmap(program.schedule)(steps).astype(step_size.dtype)


def _small_block(program, carry, arrays, keys, first, end, burn_in, step_size) -> tuple[Carry, Rows]:
    """Noise for all the steps at once; every step's phi is at hand afterwards, and the kept ones are picked."""
    length, thin = program.block_steps, program.thin
    steps = first + jnp.arange(length)
    phi = jax.eval_shape(program.kernel.proxy, jax.tree.map(lambda leaf: leaf[0], carry.state))
    noise = jax.vmap(partial(_block_noise, phi, length), in_axes=(0, None), out_axes=1)(keys.noise, first // length)
    if program.layout is not None:
        noise = program.layout.everywhere(noise)
    plan = jax.vmap(program.source.plan, in_axes=(0, None), out_axes=1)(keys.batch, steps)

    def step(state, inputs):
        number, noise, plan, size = inputs
        size = step_size if size is None else size
        state, info = _step(program, state, noise, plan, arrays, size, number < end)
        return state, Rows(jax.vmap(program.kernel.proxy)(state), info)

    state, every = lax.scan(step, carry.state, (steps, noise, plan, _step_sizes(program, steps, step_size)))
    if thin == 1:
        rows, counts = every, steps + 1
    else:
        counts = (first // thin + 1 + jnp.arange(program.block_rows)) * thin
        picked = jnp.minimum(counts - first - 1, length - 1)
        rows = jax.tree.map(lambda leaf: leaf[picked], every)
    if program.keeps_draws:
        return Carry(state, None), rows
    kept = (counts <= jnp.minimum(end, first + length)) & (counts > burn_in) & program.samples(counts)
    return Carry(state, _collect(program, carry.collected, rows.phi, kept)), Rows(None, rows.info)


def _block_noise(phi: PyTree, length: int, key: jax.Array, block: jax.Array) -> PyTree:
    """Standard normals for `length` steps, cut into leaves like phi."""
    dtype = jax.tree.leaves(phi)[0].dtype
    flat = normal(jax.random.fold_in(key, block), (length, trees.size(phi)), dtype)
    return jax.vmap(partial(trees.cut_like, phi))(flat)


def _large_block(program, carry, arrays, keys, first, end, burn_in, step_size) -> tuple[Carry, Rows]:
    """Noise in the step; the block's length divides `thin`, so that only its last phi can be kept."""
    kernel, length = program.kernel, program.block_steps
    steps = first + jnp.arange(length)
    plan = jax.vmap(program.source.plan, in_axes=(0, None), out_axes=1)(keys.batch, steps)
    phi = jax.eval_shape(kernel.proxy, jax.tree.map(lambda leaf: leaf[0], carry.state))

    def draw(key, number):
        key = jax.random.fold_in(key, number)
        if kernel.noise != "normal":
            return key
        return trees.normal_like(key, phi) if program.layout is None else program.layout.normal_like(key, phi)

    def step(state, inputs, active):
        number, plan, size = inputs
        noise = jax.vmap(draw, in_axes=(0, None))(keys.noise, number)
        return _step(program, state, noise, plan, arrays, step_size if size is None else size, active)

    def group(loop, inputs):
        state, info = loop
        for place in range(program.unroll):  # what the others than the last report is never computed
            one = jax.tree.map(lambda leaf, place=place: leaf[place], inputs)
            state, info = step(state, one, one[0] < end)
        return (state, info), None

    nothing = jax.tree.map(lambda leaf: leaf[0], _no_rows(program, carry).info)
    inputs = (steps, plan, _step_sizes(program, steps, step_size))
    if program.unroll == 1:  # the loop itself ends in time: to choose between two states would be a pass over both

        def turn(index, loop):
            return step(loop[0], jax.tree.map(lambda leaf: leaf[index], inputs), True)

        state, info = lax.fori_loop(0, jnp.clip(end - first, 0, length), turn, (carry.state, nothing))
    else:
        grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, program.unroll, *leaf.shape[1:]), inputs)
        (state, info), _ = lax.scan(group, (carry.state, nothing), grouped)
    phi = jax.vmap(kernel.proxy)(state)
    row = jax.tree.map(lambda leaf: leaf[None], Rows(phi, info))
    if program.keeps_draws:
        return Carry(state, None), row
    done = first + length
    kept = (done % program.thin == 0) & (done <= end) & (done > burn_in) & program.samples(done)
    return Carry(state, _collect(program, carry.collected, row.phi, kept[None])), Rows(None, row.info)


def _collect(program: Program, collected: Any, phi: PyTree, kept: jax.Array) -> Any:
    """Hand the kept rows to the collector, one after the other."""
    assert program.collector is not None
    update = program.collector.update

    def one(collected, row):
        phi, keep = row
        both = jax.vmap(lambda state, p: update(state, program.kernel.constrain(p)))
        return lax.cond(keep, lambda: both(collected, phi), lambda: collected), None

    return lax.scan(one, collected, (phi, kept))[0]
