"""The compiled part of a run: blocks of steps inside a chunk, with no callback and one compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
from jax import lax

from inbounds.engine.large import large_chunk
from inbounds.engine.program import Carry, Keys, Program, Rows
from inbounds.engine.small import small_chunk
from inbounds.trees import PyTree

if TYPE_CHECKING:
    from inbounds.kernels._base import Kernel
    from inbounds.sampling.devices import Layout

__all__ = ["chunk_runner", "refresh", "whole_data"]


def _run_chunk(
    program: Program,
    fuses: bool,
    of_kernel: tuple[Any, ...],
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

    def chunk(of_kernel: tuple[Any, ...], *arguments: Any) -> tuple[Carry, Rows, PyTree]:
        bound = replace(of_device, kernel=program.kernel.with_arrays(of_kernel))
        return (small_chunk if program.small else large_chunk)(bound, *arguments)

    arguments = (of_kernel, carry, arrays, keys.typed(program.source), start, num_blocks, end, burn_in, step_size)
    if program.layout is None:
        return chunk(*arguments)
    own = (False, True, False, True, False, False, False, False, step_size.ndim > 0)
    carry, rows, finite = program.layout.over_chains(chunk, own, (0, 1, 0))(*arguments)
    return carry, rows, finite


def chunk_runner(program: Program) -> Callable[..., tuple[Carry, Rows, PyTree]]:
    """`_run_chunk` as a function of arrays, compiled in the way that suits the device and the size of the model."""
    # What is asked of the device is asked here: while the chunk is traced it cannot be.
    plug_in = program.plug_in
    runner = program.kernel.posterior.compiled.of(_run_chunk, program, plug_in is not None, **program.compiler_options)
    return runner if plug_in is None else plug_in.quietly(runner)


def refresh(program: Program, carry: Carry) -> Carry:
    """Let the gradient estimator of every chain look at all the data, one chain after the other."""
    kernel = program.kernel
    refreshed: Carry = kernel.posterior.compiled.of(_refresh, program)(
        kernel.arrays, whole_data(kernel, program.layout), carry
    )
    return refreshed


def _refresh(program: Program, of_kernel: tuple[Any, ...], data: PyTree, carry: Carry) -> Carry:

    def own(of_kernel: tuple[Any, ...], data: PyTree, state: Any) -> Any:
        kernel = program.kernel.with_arrays(of_kernel)
        with kernel.posterior.holding(data):
            return lax.map(kernel.refresh, state)

    refreshed = own if program.layout is None else program.layout.over_chains(own, (False, False, True), 0)
    return carry._replace(state=refreshed(of_kernel, data, carry.state))


def whole_data(kernel: Kernel, layout: Layout | None) -> PyTree:
    """The data for a gradient estimator that looks at all of them at once in a compiled program; None for the others."""
    posterior, looks = kernel.posterior, getattr(kernel.estimator, "reads_all_data", False)
    if not looks or not posterior.holds_rows or (layout is not None and layout.spreads):
        return None
    return posterior.placed_data if layout is None else layout.put_copies(posterior.placed_data)
