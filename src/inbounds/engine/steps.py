"""What the loops over steps of small and of large models share: one step of every chain, and the rows that are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from inbounds.engine.program import Carry, Program, Rows
from inbounds.trees import PyTree

__all__ = [
    "collect",
    "finite_variables",
    "for_every_chain",
    "no_rows",
    "put_row",
    "row_of",
    "step",
    "step_of_one",
    "step_sizes",
]


def finite_variables(program: Program, carry: Carry) -> PyTree:
    """Tree like phi: is it finite, for each chain."""
    phi = jax.vmap(program.kernel.proxy)(carry.state)
    # Zero times what is not finite is NaN. On a CPU XLA sums large arrays of numbers by one call; for truth values it compiles a tree of loops.
    return jax.tree.map(lambda leaf: jnp.isfinite(jnp.sum(0 * leaf.reshape(leaf.shape[0], -1), axis=1)), phi)


def row_of(program: Program, steps_done: jax.Array) -> jax.Array:
    """How many draws `steps_done` steps have kept: every `thin`-th step counted from the start of the run."""
    return lax.div(steps_done, jnp.full_like(steps_done, program.thin))


def put_row(rows: PyTree, row: PyTree, slot: jax.Array) -> PyTree:
    return jax.tree.map(lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, slot, axis=0), rows, row)


def no_rows(program: Program, carry: Carry, with_phi: bool) -> Rows:
    count, chains = program.chunk_rows, program.num_chains
    phi = jax.eval_shape(jax.vmap(program.kernel.moving), carry.state)
    dtype = jax.tree.leaves(phi)[0].dtype
    kept = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), phi) if with_phi else None
    info = {
        name: jnp.zeros((count, chains, *((program.dimension,) if name in program.kernel.vectors else ())), dtype)
        for name in program.kernel.reports
    }
    return Rows(kept, info)


def for_every_chain(program: Program, function: Callable[[jax.Array], PyTree], keys: jax.Array) -> PyTree:
    """`function` of the key of each chain; the chain becomes the second axis of the result."""
    if program.num_chains == 1:  # as in `step`
        return jax.tree.map(lambda leaf: leaf[:, None], function(keys[0]))
    return jax.vmap(function, out_axes=1)(keys)


def step_of_one(
    program: Program, state: Any, noise: PyTree, plan: PyTree, arrays: PyTree, step_size: jax.Array,
    report: bool | jax.Array,
) -> tuple[Any, dict[str, jax.Array]]:  # fmt: skip
    """One step of one chain; nothing is reported where `report` turns out to be False."""
    kernel = program.kernel
    new, info = kernel.update(noise, state, program.source.fetch(arrays, plan), step_size, report)
    dtype = jax.tree.leaves(kernel.moving(state))[0].dtype
    return new, {name: getattr(info, name).astype(dtype) for name in kernel.reports}


def step(
    program: Program, state: Any, noise: PyTree, plan: PyTree, arrays: PyTree, step_size: jax.Array,
    report: bool | jax.Array = True,
) -> tuple[Any, dict[str, jax.Array]]:  # fmt: skip
    """One step of every chain."""

    def one(noise: PyTree, state: Any, plan: PyTree, step_size: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        return step_of_one(program, state, noise, plan, arrays, step_size, report)

    if program.num_chains == 1:  # no batch axis of one: it would make every product of matrices a batched one
        first = [jax.tree.map(lambda leaf: leaf[0], tree) for tree in (noise, state, plan)]
        scalar = step_size if step_size.ndim == 0 else step_size[0]
        state, info = jax.tree.map(lambda leaf: leaf[None], one(first[0], first[1], first[2], scalar))
        return state, info
    return jax.vmap(one, in_axes=(0, 0, 0, None if step_size.ndim == 0 else 0))(noise, state, plan, step_size)


def step_sizes(program: Program, steps: jax.Array, step_size: jax.Array) -> jax.Array | None:
    """One a step, or None where `step_size` is that of every step."""
    return None if program.schedule is None else jax.vmap(program.schedule)(steps).astype(step_size.dtype)


def collect(program: Program, collected: Any, phi: PyTree, kept: jax.Array) -> Any:
    """Hand the kept rows to the collector, one after the other."""
    assert program.collector is not None
    update = program.collector.update

    def one(collected: Any, row: tuple[PyTree, jax.Array]) -> tuple[Any, None]:
        phi, keep = row
        both: Callable[..., Any] = jax.vmap(lambda state, p: update(state, program.kernel.constrain(p)))
        return lax.cond(keep, lambda: both(collected, phi), lambda: collected), None

    return lax.scan(one, collected, (phi, kept))[0]
