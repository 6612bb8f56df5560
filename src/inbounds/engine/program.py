"""What the compiled part of a run is made of: everything that decides it but the values of arrays.

A *block* is a fixed number of steps, a *chunk* any number of blocks; the driver picks the second while it runs. Whatever
is random is keyed by the number of the step or of the block since the start of the run, so the draws do not depend on chunks.

Small models and large ones want different loops. For a small one, a random key a step would cost more than the step, so the
noise of the whole chunk is drawn at once (`engine.small`). For a large one the noise of a step is the size of the state, and is
drawn in the step (`engine.large`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from inbounds.engine.keys import as_key
from inbounds.engine.plain import Plain
from inbounds.engine.platform import here
from inbounds.schedules import Phased, Schedule
from inbounds.trees import PyTree

if TYPE_CHECKING:  # nothing that comes after the engine is imported by it
    from inbounds.data.source import Source
    from inbounds.kernels._base import Kernel
    from inbounds.sampling.collect import Collector
    from inbounds.sampling.devices import Layout

__all__ = ["SMALL", "Carry", "Keys", "Program", "Rows"]

SMALL = 4_096  # numbers in the state below which noise is drawn beforehand
BLOCK_NUMBERS = 8_192  # numbers of noise in a block of a small model
PLAN_NUMBERS = 2**18  # numbers in the plan of a block's minibatches
CHUNK_NUMBERS = 2**22  # numbers that a chunk may return
NOISE_NUMBERS = 2**18  # numbers that a chunk of a small model draws beforehand, also the last and shortest of a run,
WORTH_A_CALL = 256  # or as many as so many steps need,
MOST_NOISE_NUMBERS = 2**20  # but no more than these


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

    def typed(self, source: Source) -> Keys:
        """The keys as `jax.random` and the source take them."""
        return Keys(as_key(self.noise), source.key(self.batch))


@dataclass(frozen=True)
class Program:
    """Everything that the compiled chunk depends on but the values of arrays. Equal programs compile once."""

    kernel: Kernel
    source: Source
    schedule: Schedule | None
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
        most = self.source.most_steps or 1_024  # the minibatches of a block must be at hand
        if self.small:
            most = min(1_024, most, BLOCK_NUMBERS // self.noise_numbers, PLAN_NUMBERS // self.plan_numbers)
            steps = 2 ** int(math.log2(max(1, most)))
        else:
            steps = max(divisor for divisor in range(1, min(most, 512) + 1) if self.thin % divisor == 0)
        return steps if self.kernel.refresh_every is None else math.gcd(steps, self.kernel.refresh_every)

    @property
    def form(self) -> Plain:
        """In which the run's devices compute."""
        return here() if self.layout is None else self.layout.form

    @property
    def unroll(self) -> int:
        """Steps in one turn of the loop."""
        return self.form.steps_a_turn(self.small, self.block_steps)

    @property
    def compiler_options(self) -> dict[str, Any]:
        """XLA's, for the chunk."""
        return self.form.compiler_options(self.dimension * self.num_chains)

    @property
    def plug_in(self) -> Any:
        """What makes kernels of our own for the large variables, if there are any and that may pay; None where XLA does everything."""
        wanted = self.kernel.posterior.compiled.own_kernels and not self.small and self.layout is None
        return self.form.plug_in() if wanted and self.kernel.noise == "normal" else None

    @property
    def fuses(self) -> bool:
        """Whether kernels of our own move large variables where that pays."""
        return self.plug_in is not None

    @property
    def noise_numbers(self) -> int:
        """Numbers in the noise of one step of a chain."""
        return self.dimension * self.kernel.normals

    @property
    def plan_numbers(self) -> int:
        """Numbers in the plan of one minibatch."""
        return max(1, self.source.plan_numbers)

    @property
    def keeps_draws(self) -> bool:
        return self.collector is None

    def keeps(self, steps_done: jax.Array, burn_in: jax.Array, end: jax.Array) -> jax.Array:
        """Whether the draws after so many steps are kept, which `sampling.kept` decides likewise on the host."""
        kept = (steps_done % self.thin == 0) & (steps_done <= end) & (steps_done > burn_in)
        return kept & self.schedule.keeps(steps_done - 1) if isinstance(self.schedule, Phased) else kept

    @property
    def chunk_blocks(self) -> int:
        """The most blocks that one chunk may have: what it returns and what it draws beforehand are bounded."""
        width = self.dimension * self.num_chains if self.keeps_draws else self.num_chains
        rows = max(1, min(65_536, CHUNK_NUMBERS // width))
        # A source of few steps at a time: more would only make room for rows that never come.
        most = min(rows * self.thin, self.source.most_steps or rows * self.thin)
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
