"""The compiled part of a run: blocks of steps inside a chunk, with no callback and one compilation.

A *block* is a fixed number of steps, a *chunk* any number of blocks; the driver picks the second while it runs. Whatever
is random is keyed by the number of the step or of the block since the start of the run, so the draws do not depend on chunks.

Small models and large ones want different loops. For a small one, a random key a step would cost more than the step, so the
noise of the whole chunk is drawn at once, and one loop goes over all the steps: a second loop around it, over blocks, would double
what there is to compile. For a large one the noise of a step is the size of the state, and is drawn in the step.
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
from inbounds.data.arrays import MinibatchSource, is_source
from inbounds.engine.normals import normal
from inbounds.engine.triton import moves
from inbounds.kernels._base import Kernel
from inbounds.sampling.collect import Collector
from inbounds.sampling.devices import Layout, platform_of
from inbounds.trees import PyTree

SMALL = 4_096  # numbers in the state below which noise is drawn beforehand
BLOCK_NUMBERS = 8_192  # numbers of noise in a block of a small model
PLAN_NUMBERS = 2**18  # numbers in the plan of a block's minibatches
CHUNK_NUMBERS = 2**22  # numbers that a chunk may return
NOISE_NUMBERS = 2**18  # numbers that a chunk of a small model draws beforehand, also the last and shortest of a run,
WORTH_A_CALL = 256  # or as many as so many steps need,
MOST_NOISE_NUMBERS = 2**20  # but no more than these
WORTH_UNROLLING = 50  # steps of a large model's block from which on several of them share a turn of the loop
STEPS_A_TURN = 4  # so many of a large model,
SMALL_STEPS_A_TURN = 8  # and of a small one
SHORT_KERNELS = 2**19  # numbers in all the chains' states up to which kernels are shorter than their launch


class Carry(NamedTuple):
    """What goes from chunk to chunk."""

    state: Any  # of the kernel, leading axis = chain
    collected: Any  # of the collector, leading axis = chain; None without one


class Rows(NamedTuple):
    """Kept draws of a chunk and what their kernel reports of them by name, leading axes (row, chain)."""

    moving: PyTree  # phi, or its coordinates in a metric
    info: dict[str, jax.Array]


class Keys(NamedTuple):
    """The words of random keys, leading axis = chain."""

    noise: jax.Array
    batch: jax.Array

    def typed(self, source: MinibatchSource) -> Keys:
        """The keys as `jax.random` takes them; data from disk have the chains' numbers in the place of keys."""
        return Keys(as_key(self.noise), self.batch if hasattr(source, "chain_keys") else as_key(self.batch))


def as_key(words: Any) -> jax.Array:
    """The random key of these words, or the keys."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


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
            most = min(1_024, most, BLOCK_NUMBERS // self.noise_numbers, PLAN_NUMBERS // self.plan_numbers)
            steps = 2 ** int(math.log2(max(1, most)))
        else:
            steps = max(divisor for divisor in range(1, min(most, 512) + 1) if self.thin % divisor == 0)
        return steps if self.kernel.refresh_every is None else math.gcd(steps, self.kernel.refresh_every)

    @property
    def unroll(self) -> int:
        """Steps in one turn of the loop: on an accelerator, gaps between kernels and copies of the state cost as much as the
        arithmetic; on a CPU they are nothing, and every step in the turn is compiled anew. For a large model that does not pay
        either in a run that is looked at every few steps, which is a short one."""
        if platform_of(self.layout) == "cpu":
            return 1
        if self.small:
            return SMALL_STEPS_A_TURN
        return STEPS_A_TURN if self.block_steps >= WORTH_UNROLLING else 1

    @property
    def launched_as_graph(self) -> bool:
        """Whether a GPU had better be given the kernels of a turn at once, however few: where launches take longer than they do."""
        return platform_of(self.layout) == "gpu" and self.dimension * self.num_chains <= SHORT_KERNELS

    @property
    def fuses(self) -> bool:
        """Whether kernels of our own are to move the large variables, if there are any and that pays."""
        wanted = self.kernel.posterior.compiled.own_kernels and not self.small and self.layout is None
        return wanted and self.kernel.noise == "normal" and moves.available(platform_of(self.layout))

    @property
    def noise_numbers(self) -> int:
        """Numbers in the noise of one step of a chain."""
        return self.dimension * self.kernel.normals

    @property
    def plan_numbers(self) -> int:
        """Numbers in the plan of one minibatch; a guess where the source does not say."""
        return max(1, getattr(self.source, "plan_numbers", 1_024))

    @property
    def keeps_draws(self) -> bool:
        return self.collector is None

    @property
    def has_phases(self) -> bool:
        return hasattr(self.schedule, "keeps")

    def samples(self, steps_done: Any) -> Any:
        """Whether the draw after so many steps is in a sampling phase of the schedule; where it has none, all are."""
        return self.schedule.keeps(steps_done - 1) if self.has_phases else True  # type: ignore[union-attr]

    @property
    def chunk_blocks(self) -> int:
        """The most blocks that one chunk may have: what it returns and what it draws beforehand are bounded."""
        width = self.dimension * self.num_chains if self.keeps_draws else self.num_chains
        rows = max(1, min(65_536, CHUNK_NUMBERS // width))
        # A source of few steps at a time: more would only make room for rows that never come.
        most = min(rows * self.thin, getattr(self.source, "most_steps", rows * self.thin))
        if self.small:
            width = self.num_chains * max(self.noise_numbers, self.plan_numbers)
            most = min(most, max(NOISE_NUMBERS // width, WORTH_A_CALL), MOST_NOISE_NUMBERS // width)
        return max(1, most // self.block_steps)

    @property
    def of_one_device(self) -> Program:
        """The same for the chains that one device runs."""
        assert self.layout is not None
        return replace(self, num_chains=self.num_chains // self.layout.chain)

    @property
    def chunk_steps(self) -> int:
        """The most steps of one chunk."""
        return self.chunk_blocks * self.block_steps

    @property
    def chunk_rows(self) -> int:
        """Room for the draws of one chunk, and for one that the next chunk completes."""
        return self.chunk_steps // self.thin + 2


def _run_chunk(
    program: Program,
    fuses: bool,
    of_kernel: tuple,
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
    everything as it is, so that the length of a run does not enter its compilation. `fuses` tells programs apart that are equal otherwise.
    """
    of_device = program if program.layout is None else program.of_one_device

    def chunk(of_kernel, *arguments):
        bound = replace(of_device, kernel=program.kernel.with_arrays(of_kernel))
        return (_small_chunk if program.small else _large_chunk)(bound, *arguments)

    arguments = (of_kernel, carry, arrays, keys.typed(program.source), start, num_blocks, end, burn_in, step_size)
    if program.layout is None:
        return chunk(*arguments)
    own = (False, True, False, True, False, False, False, False, step_size.ndim > 0)
    return program.layout.over_chains(chunk, own, (0, 1, 0))(*arguments)


# Numbers below 1e-38 count as zero, as XLA has it on CPUs anyway: a reciprocal root is one instruction then, and not four.
ON_GPU: dict[str, Any] = {"xla_gpu_ftz": True}
# XLA makes a graph of the kernels in a row, which costs one launch, from five of them on; steps without data are two or three.
AS_GRAPHS: dict[str, Any] = ON_GPU | {"xla_gpu_graph_min_graph_size": 1}


def chunk_runner(program: Program) -> Callable[..., tuple[Carry, Rows, PyTree]]:
    """`_run_chunk` as a function of arrays, compiled in the way that suits the device and the size of the model."""
    compiled, options = program.kernel.posterior.compiled, {}
    if platform_of(program.layout) == "gpu":
        options = AS_GRAPHS if program.launched_as_graph else ON_GPU
    # `fuses` asks the device, the first time: here, since while the chunk is traced it cannot.
    fuses = program.fuses
    runner = compiled.of(_run_chunk, program, fuses, **options)
    return moves.quietly(runner) if fuses else runner


def refresh(program: Program, carry: Carry) -> Carry:
    """Let the gradient estimator of every chain look at all the data, one chain after the other."""
    kernel = program.kernel
    return kernel.posterior.compiled.of(_refresh, program)(kernel.arrays, whole_data(kernel, program.layout), carry)


def _refresh(program: Program, of_kernel: tuple, data: PyTree, carry: Carry) -> Carry:

    def own(of_kernel, data, state):
        kernel = program.kernel.with_arrays(of_kernel)
        with kernel.posterior.holding(data):
            return lax.map(kernel.refresh, state)

    refreshed = own if program.layout is None else program.layout.over_chains(own, (False, False, True), 0)
    return carry._replace(state=refreshed(of_kernel, data, carry.state))


def whole_data(kernel: Kernel, layout: Layout | None) -> PyTree:
    """The data for a gradient estimator that looks at all of them at once in a compiled program; None for the others."""
    posterior, looks = kernel.posterior, getattr(kernel.estimator, "reads_all_data", False)
    if not looks or posterior.data is None or is_source(posterior.data) or (layout is not None and layout.spreads):
        return None
    return posterior.placed_data if layout is None else layout.put_copies(posterior.placed_data)


def finite_variables(program: Program, carry: Carry) -> PyTree:
    """Tree like phi: is it finite, for each chain."""
    phi = jax.vmap(program.kernel.proxy)(carry.state)
    # Zero times what is not finite is NaN. On a CPU XLA sums large arrays of numbers by one call; for truth values it compiles a tree of loops.
    return jax.tree.map(lambda leaf: jnp.isfinite(jnp.sum(0 * leaf.reshape(leaf.shape[0], -1), axis=1)), phi)


def _row_of(program: Program, steps_done: jax.Array) -> jax.Array:
    """How many draws `steps_done` steps have kept: every `thin`-th step counted from the start of the run."""
    return lax.div(steps_done, jnp.full_like(steps_done, program.thin))


def _put_row(rows: PyTree, row: PyTree, slot: jax.Array) -> PyTree:
    return jax.tree.map(lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, slot, axis=0), rows, row)


def _no_rows(program: Program, carry: Carry, with_phi: bool) -> Rows:
    count, chains = program.chunk_rows, program.num_chains
    phi = jax.eval_shape(jax.vmap(program.kernel.moving), carry.state)
    dtype = jax.tree.leaves(phi)[0].dtype
    kept = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), phi) if with_phi else None
    info = {
        name: jnp.zeros((count, chains, *((program.dimension,) if name in program.kernel.vectors else ())), dtype)
        for name in program.kernel.reports
    }
    return Rows(kept, info)


def _for_every_chain(program: Program, function: Callable[[jax.Array], PyTree], keys: jax.Array) -> PyTree:
    """`function` of the key of each chain; the chain becomes the second axis of the result."""
    if program.num_chains == 1:  # as in `_step`
        return jax.tree.map(lambda leaf: leaf[:, None], function(keys[0]))
    return jax.vmap(function, out_axes=1)(keys)


def _step_of_one(
    program: Program, state: Any, noise: PyTree, plan: PyTree, arrays: PyTree, step_size: jax.Array,
    report: bool | jax.Array,
) -> tuple:  # fmt: skip
    """One step of one chain; nothing is reported where `report` turns out to be False."""
    kernel = program.kernel
    new, info = kernel.update(noise, state, program.source.fetch(arrays, plan), step_size, report)
    dtype = jax.tree.leaves(kernel.moving(state))[0].dtype
    return new, {name: getattr(info, name).astype(dtype) for name in kernel.reports}


def _step(
    program: Program, state: Any, noise: PyTree, plan: PyTree, arrays: PyTree, step_size: jax.Array,
    report: bool | jax.Array = True,
) -> tuple:  # fmt: skip
    """One step of every chain."""

    def one(noise, state, plan, step_size):
        return _step_of_one(program, state, noise, plan, arrays, step_size, report)

    if program.num_chains == 1:  # no batch axis of one: it would make every product of matrices a batched one
        first = [jax.tree.map(lambda leaf: leaf[0], tree) for tree in (noise, state, plan)]
        scalar = step_size if step_size.ndim == 0 else step_size[0]
        return jax.tree.map(lambda leaf: leaf[None], one(first[0], first[1], first[2], scalar))
    return jax.vmap(one, in_axes=(0, 0, 0, None if step_size.ndim == 0 else 0))(noise, state, plan, step_size)


def _step_sizes(program: Program, steps: jax.Array, step_size: jax.Array) -> jax.Array | None:
    """One a step, or None where `step_size` is that of every step."""
    return None if program.schedule is None else jax.vmap(program.schedule)(steps).astype(step_size.dtype)


def _small_chunk(program, carry, arrays, keys, start, num_blocks, end, burn_in, step_size) -> tuple:
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
    plan = _for_every_chain(program, lambda key: program.source.plan(key, steps), keys.batch)
    inputs = (plan, _step_sizes(program, steps, step_size))
    first = _row_of(program, start)

    def turn(index, loop):
        state, rows = loop
        noise = jax.vmap(partial(trees.cut_like, like))(lax.dynamic_slice_in_dim(normals, index * size, size, axis=1))
        plan, scheduled = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, index, keepdims=False), inputs)
        state, info = _step(program, state, noise, plan, arrays, step_size if scheduled is None else scheduled)
        row = Rows(jax.vmap(kernel.moving)(state), info)
        return state, _put_row(rows, row, _row_of(program, start + index) - first)

    count = jnp.clip(end - start, 0, num_blocks * program.block_steps)
    done, loop = jnp.zeros_like(count), (carry.state, _no_rows(program, carry, True))
    if program.unroll > 1:
        one = jax.jit(turn)  # traced once
        groups = lax.div(count, jnp.full_like(count, program.unroll))

        def group(number, loop):
            for place in range(program.unroll):
                loop = one(number * program.unroll + place, loop)
            return loop

        done, loop = groups * program.unroll, lax.fori_loop(0, groups, group, loop)
    state, rows = lax.fori_loop(done, count, turn, loop)
    collected = carry.collected
    if not program.keeps_draws:
        counts = (first + 1 + jnp.arange(program.chunk_rows)) * program.thin
        kept = (counts <= start + count) & (counts > burn_in) & program.samples(counts)
        collected, rows = _collect(program, collected, rows.moving, kept), Rows(None, rows.info)
    carry = Carry(state, collected)
    return carry, rows, finite_variables(program, carry)


def _normals_of_chains(program: Program, like: PyTree, start: jax.Array, keys: jax.Array) -> jax.Array:
    if program.num_chains == 1:  # as in `_step`
        return _normals(program, like, start, keys[0])[None]
    return jax.vmap(partial(_normals, program, like, start))(keys)


def _normals(program: Program, like: PyTree, start: jax.Array, key: jax.Array) -> jax.Array:
    """Standard normals for all the steps of a chunk: a vector, of which XLA makes vector instructions, whatever leaves phi has."""
    count, dtype = program.block_steps * trees.size(like), jax.tree.leaves(like)[0].dtype

    def of_block(block):
        if dtype == jnp.float32:  # the block's number is one of the generator's two counters: no key to make
            return normal(key, (count,), dtype, stream=block)
        return normal(jax.random.fold_in(key, block), (count,), dtype)

    first = lax.div(start, jnp.full_like(start, program.block_steps))
    return jax.vmap(of_block)(first + jnp.arange(program.chunk_blocks)).reshape(-1)


def _large_chunk(program, carry, arrays, keys, start, num_blocks, end, burn_in, step_size) -> tuple:
    def body(index, loop):
        carry, rows = loop
        first = start + index * program.block_steps
        carry, row = _large_block(program, carry, arrays, keys, first, end, burn_in, step_size)
        return carry, _put_row(rows, row, _row_of(program, first) - _row_of(program, start))

    carry, rows = lax.fori_loop(0, num_blocks, body, (carry, _no_rows(program, carry, program.keeps_draws)))
    return carry, rows, finite_variables(program, carry)


def _large_block(program, carry, arrays, keys, first, end, burn_in, step_size) -> tuple[Carry, Rows]:
    """Noise in the step; the block's length divides `thin`, so that only its last phi can be kept.

    One chain goes through the loop without its axis, which would cost a copy of the state in every step.
    """
    kernel, length, alone = program.kernel, program.block_steps, program.num_chains == 1
    steps = first + jnp.arange(length)
    plan = _for_every_chain(program, lambda key: program.source.plan(key, steps), keys.batch)

    def shed(tree):
        return jax.tree.map(lambda leaf: leaf[0], tree) if alone else tree

    def dress(tree):
        return jax.tree.map(lambda leaf: leaf[None], tree) if alone else tree

    def of_step(inputs):
        number, plan, size = inputs
        return number, plan, step_size if size is None else size

    state = shed(carry.state)
    flat, upright = _lying(program, state)
    nothing = shed(jax.tree.map(lambda leaf: leaf[0], _no_rows(program, carry, False).info))
    inputs = (steps, plan, _step_sizes(program, steps, step_size))
    _, *arguments = of_step(jax.tree.map(lambda leaf: leaf[0], inputs))
    steppers = _Steppers(program, arrays, keys.noise, state, *arguments)
    # Loops end in time: to choose between two states, at steps beyond the end, would be a pass over both.
    count = jnp.clip(end - first, 0, length)
    done = jnp.zeros_like(count)
    if program.unroll > 1:
        step, left = steppers.in_a_row(state, *arguments)

        @jax.jit  # traced once
        def one(loop, inputs):
            state, left = loop
            number, plan, size = of_step(inputs)
            (state, _), left = step(number, left, state, plan, size)
            return state, left

        def group(loop, inputs):
            for place in range(program.unroll):
                loop = one(loop, jax.tree.map(lambda leaf, place=place: leaf[place], inputs))
            return loop, None

        # A loop of known length, which a device goes through on its own, with the inputs of a turn cut out at once. The last steps, of
        # which one reports, and a block that is cut short are for the loop below.
        most = (length - 1) // program.unroll * program.unroll
        grouped = jax.tree.map(lambda leaf: leaf[:most].reshape(-1, program.unroll, *leaf.shape[1:]), inputs)
        state = lax.cond(
            count == length, lambda state: lax.scan(group, (state, left), grouped)[0][0], lambda state: state, state
        )
        done = jnp.where(count == length, most, 0)

    def turn(index, loop):
        # No other report leaves the loop, and each is a pass over the drift. That the condition pays was measured on CPUs alone.
        report = length == 1 or platform_of(program.layout) != "cpu" or index == count - 1
        state = upright(loop[0])
        number, plan, size = of_step(jax.tree.map(lambda leaf: leaf[index], inputs))
        step, left = steppers.alone(report, state, plan, size)
        (state, info), _ = step(number, left, state, plan, size)
        return flat(state), info

    state, info = lax.fori_loop(done, count, turn, (flat(state), nothing))
    state, info = dress((upright(state), info))
    phi = jax.vmap(kernel.moving)(state)
    if program.keeps_draws:
        return Carry(state, None), Rows(phi, info)
    done = first + length
    kept = (done % program.thin == 0) & (done <= end) & (done > burn_in) & program.samples(done)
    row = jax.tree.map(lambda leaf: leaf[None], phi)
    return Carry(state, _collect(program, carry.collected, row, kept[None])), Rows(None, info)


class _Steppers:
    """What makes the steps of a large model: kernels of our own where these pay, and XLA elsewhere.

    A step is a function (number, left, state, plan, step size) -> ((state, info), left), where `left` is what it leaves for the next one.
    The state of a single chain comes without an axis for chains.
    """

    def __init__(self, program: Program, arrays: PyTree, keys: jax.Array, state: Any, plan: PyTree, size: jax.Array):
        self.program, self.arrays, self.keys = program, arrays, keys
        self.like = jax.eval_shape(self._of_one_chain, state, plan, size)
        self.noise = jax.eval_shape(lambda state: program.kernel.noise_like(program.kernel.moving(state)), self.like[0])
        self.fastest = self._kernels(report=False, in_a_row=True) if program.fuses else None
        # For all steps or for none: the noise of a step must not depend on the loop that it is in.
        self.fuses = self.fastest is not None and self.fastest.pays

    def in_a_row(self, *arguments: Any) -> tuple[Callable, list]:
        """A step that is followed by others and reports nothing, and what the first of them is left."""
        return self._mapped(self.fastest, *arguments) if self.fuses else (partial(self._by_xla, False), [])

    def alone(self, report: bool | jax.Array, *arguments: Any) -> tuple[Callable, list]:
        """A step that nothing is left, nor leaves anything."""
        if not self.fuses:
            return partial(self._by_xla, report), []
        return self._mapped(self._kernels(report, in_a_row=False), *arguments)

    @property
    def _one_chain(self) -> bool:
        return self.program.num_chains == 1

    def _of_one_chain(self, state: Any, plan: PyTree, size: jax.Array) -> tuple:
        def first(tree):
            return jax.tree.map(lambda leaf: leaf[0], tree)

        return state if self._one_chain else first(state), first(plan), size if size.ndim == 0 else size[0]

    def _advance(self, report: bool | jax.Array, noise: PyTree, state: Any, plan: PyTree, size: jax.Array) -> tuple:
        return _step_of_one(self.program, state, noise, plan, self.arrays, size, report)

    def _kernels(self, report: bool | jax.Array, in_a_row: bool) -> moves.Fused:
        advance = partial(self._advance, report)
        return moves.Fused(advance, self.noise, self.like, chains=self.program.num_chains, in_a_row=in_a_row)

    def _mapped(self, kernels: Any, *arguments: Any) -> tuple[Callable, list]:
        words = jax.random.key_data(self.keys)
        if self._one_chain:

            def step(number, left, *arguments):
                return kernels(words[0], number, left, *self._of_one_chain(*arguments))

            return step, kernels.begin(*self._of_one_chain(*arguments))
        own = (0, 0, 0 if arguments[-1].ndim else None)
        every = jax.vmap(kernels, in_axes=(0, None, 0, *own))
        return partial(every, words), jax.vmap(kernels.begin, in_axes=own)(*arguments)

    def _by_xla(
        self, report: bool | jax.Array, number: jax.Array, left: list, state: Any, plan: PyTree, size: jax.Array
    ) -> tuple:
        if self._one_chain:
            noise = self._draw(self.keys[0], number)
            return self._advance(report, noise, *self._of_one_chain(state, plan, size)), left
        noise = jax.vmap(self._draw, in_axes=(0, None))(self.keys, number)
        return _step(self.program, state, noise, plan, self.arrays, size, report), left

    def _draw(self, key: jax.Array, number: jax.Array) -> PyTree:
        key, layout = jax.random.fold_in(key, number), self.program.layout
        if self.program.kernel.noise != "normal":
            return key
        if layout is None:
            return trees.normal_like(key, self.noise)
        return layout.normal_like(key, self.noise, several=self.program.kernel.normals > 1)


def _lying(program: Program, state: Any) -> tuple[Callable, Callable]:
    """What makes vectors of the leaves of a state, and what makes leaves of them again.

    Between two steps the numbers lie in vectors: short rows would make slow loops of the steps on a CPU (`trees.in_one_row`).
    """
    if program.layout is not None or platform_of(program.layout) != "cpu":
        return lambda state: state, lambda state: state
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    first = 0 if program.num_chains == 1 else 1  # axes that stay

    def flat(state):
        return jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:first], -1) if leaf.ndim > first else leaf, state)

    def upright(state):
        return jax.tree.map(lambda leaf, like: leaf.reshape(like.shape), state, shapes)

    return flat, upright


def _collect(program: Program, collected: Any, phi: PyTree, kept: jax.Array) -> Any:
    """Hand the kept rows to the collector, one after the other."""
    assert program.collector is not None
    update = program.collector.update

    def one(collected, row):
        phi, keep = row
        both = jax.vmap(lambda state, p: update(state, program.kernel.constrain(p)))
        return lax.cond(keep, lambda: both(collected, phi), lambda: collected), None

    return lax.scan(one, collected, (phi, kept))[0]
