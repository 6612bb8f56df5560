"""The loop over steps of a large model: the noise of a step is the size of the state, and is drawn in the step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from inbounds.engine.normals import normal_like
from inbounds.engine.program import Carry, Keys, Program, Rows
from inbounds.engine.steps import (
    collect,
    finite_variables,
    for_every_chain,
    no_rows,
    put_row,
    row_of,
    step,
    step_of_one,
    step_sizes,
)
from inbounds.trees import PyTree

__all__ = ["Steppers", "large_chunk"]


def large_chunk(
    program: Program, carry: Carry, arrays: PyTree, keys: Keys, start: jax.Array, num_blocks: jax.Array, end: jax.Array,
    burn_in: jax.Array, step_size: jax.Array,
) -> tuple[Carry, Rows, PyTree]:  # fmt: skip
    """Block after block; of each the last draw may be kept."""

    def body(index: jax.Array, loop: tuple[Carry, Rows]) -> tuple[Carry, Rows]:
        carry, rows = loop
        first = start + index * program.block_steps
        carry, row = _large_block(program, carry, arrays, keys, first, end, burn_in, step_size)
        return carry, put_row(rows, row, row_of(program, first) - row_of(program, start))

    carry, rows = lax.fori_loop(0, num_blocks, body, (carry, no_rows(program, carry, program.keeps_draws)))
    return carry, rows, finite_variables(program, carry)


def _large_block(
    program: Program, carry: Carry, arrays: PyTree, keys: Keys, first: jax.Array, end: jax.Array, burn_in: jax.Array,
    step_size: jax.Array,
) -> tuple[Carry, Rows]:  # fmt: skip
    """Noise in the step; the block's length divides `thin`, so that only its last phi can be kept.

    One chain goes through the loop without its axis, which would cost a copy of the state in every step.
    """
    kernel, length, alone = program.kernel, program.block_steps, program.num_chains == 1
    steps = first + jnp.arange(length)
    plan = for_every_chain(program, lambda key: program.source.plan(key, steps), keys.batch)

    def shed(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[0], tree) if alone else tree

    def dress(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[None], tree) if alone else tree

    def of_step(inputs: tuple[jax.Array, PyTree, jax.Array | None]) -> tuple[jax.Array, PyTree, jax.Array]:
        number, plan, size = inputs
        return number, plan, step_size if size is None else size

    state = shed(carry.state)
    flat, upright = _lying(program, state)
    nothing = shed(jax.tree.map(lambda leaf: leaf[0], no_rows(program, carry, False).info))
    inputs = (steps, plan, step_sizes(program, steps, step_size))
    _, *arguments = of_step(jax.tree.map(lambda leaf: leaf[0], inputs))
    steppers = Steppers(program, arrays, keys.noise, state, *arguments)
    # Loops end in time: to choose between two states, at steps beyond the end, would be a pass over both.
    count = jnp.clip(end - first, 0, length)
    done = jnp.zeros_like(count)
    if program.unroll > 1:
        step, left = steppers.in_a_row(state, *arguments)

        @jax.jit  # traced once
        def one(loop: tuple[Any, list[Any]], inputs: Any) -> tuple[Any, list[Any]]:
            state, left = loop
            number, plan, size = of_step(inputs)
            (state, _), left = step(number, left, state, plan, size)
            return state, left

        def group(loop: tuple[Any, list[Any]], inputs: Any) -> tuple[tuple[Any, list[Any]], None]:
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

    def turn(index: jax.Array, loop: tuple[Any, Any]) -> tuple[Any, Any]:
        # No other report leaves the loop, and each is a pass over the drift. That the condition pays was measured on CPUs alone.
        report = length == 1 or not program.form.asks_for_reports or index == count - 1
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
    kept = program.keeps(done, burn_in, end)
    row = jax.tree.map(lambda leaf: leaf[None], phi)
    return Carry(state, collect(program, carry.collected, row, kept[None])), Rows(None, info)


class Steppers:
    """What makes the steps of a large model: kernels of our own where these pay, and XLA elsewhere.

    A step is a function (number, left, state, plan, step size) -> ((state, info), left). `left` is what one step has prepared for the next.
    The state of a single chain comes without an axis for chains.
    """

    def __init__(self, program: Program, arrays: PyTree, keys: jax.Array, state: Any, plan: PyTree, size: jax.Array):
        self.program, self.arrays, self.keys = program, arrays, keys
        self.like = jax.eval_shape(self._of_one_chain, state, plan, size)
        self.noise = jax.eval_shape(lambda state: program.kernel.noise_like(program.kernel.moving(state)), self.like[0])
        self.fastest = self._kernels(report=False, in_a_row=True) if program.plug_in is not None else None
        # For all steps or for none: the noise of a step must not depend on the loop that it is in.
        self.fuses = self.fastest is not None and self.fastest.pays

    def in_a_row(self, *arguments: Any) -> tuple[Callable[..., Any], list[Any]]:
        """A step that is followed by others and reports nothing, with what has to be prepared for the first of them."""
        return self._mapped(self.fastest, *arguments) if self.fuses else (partial(self._by_xla, False), [])

    def alone(self, report: bool | jax.Array, *arguments: Any) -> tuple[Callable[..., Any], list[Any]]:
        """A step by itself: it uses nothing of the step before it, and prepares nothing for the next one."""
        if not self.fuses:
            return partial(self._by_xla, report), []
        return self._mapped(self._kernels(report, in_a_row=False), *arguments)

    @property
    def _one_chain(self) -> bool:
        return self.program.num_chains == 1

    def _of_one_chain(self, state: Any, plan: PyTree, size: jax.Array) -> tuple[Any, ...]:
        def first(tree: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: leaf[0], tree)

        return state if self._one_chain else first(state), first(plan), size if size.ndim == 0 else size[0]

    def _advance(
        self, report: bool | jax.Array, noise: PyTree, state: Any, plan: PyTree, size: jax.Array
    ) -> tuple[Any, ...]:
        return step_of_one(self.program, state, noise, plan, self.arrays, size, report)

    def _kernels(self, report: bool | jax.Array, in_a_row: bool) -> Any:
        advance = partial(self._advance, report)
        return self.program.plug_in.Fused(
            advance, self.noise, self.like, chains=self.program.num_chains, in_a_row=in_a_row
        )

    def _mapped(self, kernels: Any, *arguments: Any) -> tuple[Callable[..., Any], list[Any]]:
        words = jax.random.key_data(self.keys)
        if self._one_chain:

            def step(number: jax.Array, left: list[jax.Array], *arguments: Any) -> Any:
                return kernels(words[0], number, left, *self._of_one_chain(*arguments))

            return step, kernels.begin(*self._of_one_chain(*arguments))
        own = (0, 0, 0 if arguments[-1].ndim else None)
        every = jax.vmap(kernels, in_axes=(0, None, 0, *own))
        return partial(every, words), jax.vmap(kernels.begin, in_axes=own)(*arguments)

    def _by_xla(
        self, report: bool | jax.Array, number: jax.Array, left: list[Any], state: Any, plan: PyTree, size: jax.Array
    ) -> tuple[Any, ...]:
        if self._one_chain:
            noise = self._draw(self.keys[0], number)
            return self._advance(report, noise, *self._of_one_chain(state, plan, size)), left
        noise = jax.vmap(self._draw, in_axes=(0, None))(self.keys, number)
        return step(self.program, state, noise, plan, self.arrays, size, report), left

    def _draw(self, key: jax.Array, number: jax.Array) -> PyTree:
        key, layout = jax.random.fold_in(key, number), self.program.layout
        if self.program.kernel.noise != "normal":
            return key
        if layout is None:
            return normal_like(key, self.noise)
        return layout.normal_like(key, self.noise, several=self.program.kernel.normals > 1)


def _lying(program: Program, state: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What makes vectors of the leaves of a state, and what makes leaves of them again.

    Between two steps the numbers lie in vectors where the form says so: there short rows would make slow loops of the steps.
    """
    if program.layout is not None or not program.form.in_vectors:
        return lambda state: state, lambda state: state
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    first = 0 if program.num_chains == 1 else 1  # axes that stay

    def flat(state: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:first], -1) if leaf.ndim > first else leaf, state)

    def upright(state: Any) -> Any:
        return jax.tree.map(lambda leaf, like: leaf.reshape(like.shape), state, shapes)

    return flat, upright
