"""A call of `sample`, decided in one place: on which minibatches it runs, from where, with which steps, and which draws it keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from inbounds import trees
from inbounds.arguments import whole_number
from inbounds.data.arrays import is_stream, source_for
from inbounds.data.source import Feed, Source
from inbounds.engine.chunks import whole_data
from inbounds.engine.keys import as_key, derived, words_of
from inbounds.engine.program import Carry, Keys, Program
from inbounds.kernels._base import Kernel
from inbounds.sampling.collect import Collector, as_collector
from inbounds.sampling.devices import Layout, as_layout
from inbounds.sampling.kept import KeptSteps
from inbounds.sampling.starts import Init, starts_of
from inbounds.sampling.step_sizes import StepSizes
from inbounds.schedules import StepSize
from inbounds.trees import PyTree

__all__ = ["Minibatches", "Resolved", "minibatches_of", "resolve"]

MOST_STEPS = 2**31 - 2**20  # that 32 bits can count, with room for a chunk


class Minibatches(NamedTuple):
    """Which rows a step reads.

    Args:
        size: rows per minibatch; None: all of them, or as many as the data themselves make.
        batching: how a minibatch comes by them: "epochs", "sweeps" or "replacement".
    """

    size: int | None
    batching: str


@dataclass(frozen=True)
class Resolved:
    """A run of which everything is decided, and nothing has begun.

    Attributes:
        kernel: how the chains move.
        num_chains: how many there are.
        kept: which of their draws are kept; also how long the run is.
        step_sizes: of every step.
        step_size: the numbers among them, where the run's devices have them.
        minibatches: what was decided of them; `source` makes them.
        arrays: what the source reads; None without data.
        collector: what gathers statistics in the place of draws.
        starts: of all chains, leading axis = chain.
        keys: of the noise and of the minibatches.
        batch_words: of the key of the minibatches, for data on disk.
        layout: of many devices; None on one.
        seed, init: as they were given, for the fingerprint of the run.
    """

    kernel: Kernel
    num_chains: int
    kept: KeptSteps
    step_sizes: StepSizes
    step_size: Any
    minibatches: Minibatches
    source: Source
    arrays: PyTree
    collector: Collector | None
    starts: PyTree
    keys: Keys
    batch_words: np.ndarray
    layout: Layout | None
    seed: int
    init: Init

    def begin(self) -> tuple[Program, Carry]:
        """What is compiled, and what it starts from."""
        compiled, kernel = self.kernel.posterior.compiled, self.kernel
        data = whole_data(kernel, self.layout)
        if self.layout is None:
            state = compiled.of_few_calls(_start_chains, kernel)(kernel.arrays, data, self.starts)
        else:
            make = self.layout.make_chains
            state = make(compiled, _start_chains, (kernel,), kernel.arrays, data, self.starts)
        dimension = trees.size(kernel.moving(state)) // self.num_chains
        program = Program(
            kernel,
            self.source,
            self.step_sizes.schedule,
            self.collector,
            self.num_chains,
            self.kept.thin,
            dimension,
            self.layout,
        )
        return program, Carry(state, self._collected())

    def _collected(self) -> Any:
        if self.collector is None:
            return None
        compiled = self.kernel.posterior.compiled
        if self.layout is None:
            return compiled.of(_start_collectors, self.collector)(self.starts)
        return self.layout.make_chains(compiled, _start_collectors, (self.collector,), self.starts)

    def feed(self, program: Program) -> Feed:
        """What hands the run its arrays."""
        feed = self.source.feed(
            self.arrays, self.batch_words, self.num_chains, program.block_steps, self.kept.num_steps
        )
        return feed if self.layout is None or self.layout.spreads else feed.through(self.layout.put_copies)

    @property
    def settings(self) -> dict[str, Any]:
        """What else tells it from other runs."""
        return {
            "seed": self.seed,
            "init": self.init,
            "batch_size": self.minibatches.size,
            "batching": self.minibatches.batching,
            "burn_in": self.kept.burn_in,
        }


def resolve(
    kernel: Kernel,
    step_size: StepSize,
    num_steps: int,
    *,
    burn_in: int,
    thin: int,
    batch_size: int | None,
    batching: str | None,
    num_chains: int,
    seed: int,
    init: Init,
    collect: Any,
    devices: Any,
) -> Resolved:
    """Decide all that `sample` was asked, and raise a ValueError where it cannot be."""
    _check(kernel, num_steps, burn_in, thin, num_chains, seed)
    # NumPy's whole numbers are Python's from here on: those can be written to checkpoints.
    num_steps, burn_in, thin, num_chains, seed = map(int, (num_steps, burn_in, thin, num_chains, seed))
    batch_size = None if batch_size is None else whole_number("batch_size", batch_size)
    layout = as_layout(devices)
    if layout is not None:
        layout.check(kernel.posterior, kernel.estimator, num_chains)
    noise_words, batch_words, start_words, shuffle_words = derived(words_of(seed), 4)
    sizes = StepSizes.of(step_size, num_steps, num_chains)
    kept = KeptSteps(num_steps, burn_in, thin, sizes.schedule)
    kept.check()
    collector = as_collector(collect)
    starts = starts_of(kernel, init, num_chains, start_words, layout)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), starts)
    minibatches = minibatches_of(kernel, batch_size, batching)
    source = _source(kernel, minibatches, one, layout)
    if source.cycle > 1:
        kept = replace(kept, thin=thin * source.cycle)
        kept.check(source.cycle, source.batches)
    arrays = None if kernel.posterior.data is None else source.prepare(as_key(shuffle_words))
    noise_keys: Any = derived(noise_words, num_chains)
    keys = Keys(noise_keys, source.words(num_chains, batch_words))
    _check_model(kernel, one, source, arrays, keys)
    sizes = sizes.in_precision(jax.tree.leaves(starts)[0].dtype)
    placed: Any = sizes.numbers
    if layout is not None:
        keys = layout.put_chains(keys)
        placed = layout.put_chains(placed) if placed.ndim else layout.put_copies(placed)
    return Resolved(
        kernel,
        num_chains,
        kept,
        sizes,
        placed,
        minibatches,
        source,
        arrays,
        collector,
        starts,
        keys,
        batch_words,
        layout,
        seed,
        init,
    )


def minibatches_of(kernel: Kernel, batch_size: int | None, batching: str | None) -> Minibatches:
    """How many rows a minibatch has, and how it comes by them."""
    data, rows = kernel.posterior.data, kernel.posterior.num_data
    if isinstance(data, Source) and not (batch_size is None and batching is None):
        given = f"batch_size={batch_size}" if batch_size is not None else f"batching={batching!r}"
        raise ValueError(f"{given}, but the data make their own minibatches ({data!r}). Leave it out.")
    if data is None and batch_size is not None and kernel.posterior.no_minibatches is not None:
        raise ValueError(
            f"batch_size={batch_size:,}, but every step takes all the data of the model: {kernel.posterior.no_minibatches}. Leave "
            f"`batch_size` out{kernel.posterior.or_else}."
        )
    size = kernel.posterior.batch_size if batch_size is None else batch_size
    # Of several processes, each knows its own rows only.
    all_rows = size is None or (size == rows and jax.process_count() == 1)
    everything = rows is not None and not is_stream(data) and all_rows and batching != "replacement"
    if everything and kernel.estimates_noise:
        raise ValueError(
            "noise_correction=True estimates the noise of minibatches, but every step uses all the data, and its gradient has none. "
            f"Give a `batch_size` below {rows:,}, or leave `noise_correction` out."
        )
    if batching == "sweeps" and kernel.independent_batches:
        raise ValueError(
            f'batching="sweeps" takes the noise of the gradients back by itself, and {kernel.name} as it is made here takes minibatches for '
            "independent, to make room for their noise. Make the kernel without `noise_correction`, or leave `batching` out."
        )
    if batching == "sweeps" and (data is None or is_stream(data)):
        where = "data on disk" if is_stream(data) else "a posterior without data"
        raise ValueError(f'batching="sweeps" needs data in memory; this is {where}. Leave `batching` out.')
    if batching is None:
        batching = "replacement" if kernel.independent_batches and not everything else "epochs"
    return Minibatches(size, batching)


def _source(kernel: Kernel, minibatches: Minibatches, theta: PyTree, layout: Layout | None) -> Source:
    posterior = kernel.posterior
    if layout is not None:
        return layout.source(posterior, *minibatches, theta)
    return source_for(posterior.data, *minibatches).placed(lambda: posterior.placed_data)


def _check(kernel: Any, num_steps: int, burn_in: int, thin: int, num_chains: int, seed: int) -> None:
    if not isinstance(kernel, Kernel):
        raise ValueError(f"`kernel` must be a kernel such as ib.sgld(posterior); got {type(kernel).__name__}.")
    for name, value, least in (
        ("num_steps", num_steps, 1),
        ("burn_in", burn_in, 0),
        ("thin", thin, 1),
        ("num_chains", num_chains, 1),
        ("seed", seed, 0),
    ):
        whole_number(name, value, least)
    if burn_in >= num_steps:
        raise ValueError(f"burn_in={burn_in:,} leaves no draws of num_steps={num_steps:,}, which counts burn-in too.")
    if num_steps > MOST_STEPS:
        raise ValueError(f"num_steps={num_steps:,} is too large for one run: at most {MOST_STEPS:,}.")
    if burn_in < kernel.adapt_steps:
        raise ValueError(
            f"The preconditioner adapts for {kernel.adapt_steps:,} steps, and draws made while it does are not from the "
            f"posterior: burn_in={burn_in:,} must be at least {kernel.adapt_steps:,}."
        )
    if kernel.data_version not in (None, kernel.posterior.version):
        raise ValueError(
            f"The data of the posterior were replaced after {kernel.name} had been made of them. Make the kernel again."
        )


def _check_model(kernel: Kernel, one: PyTree, source: Source, arrays: PyTree, keys: Keys) -> None:
    """Raise a ValueError where the model does not fit its data; once for these shapes, since it is traced for that."""
    posterior = kernel.posterior
    signature = (source, jax.tree.structure(one), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(one)))
    if signature not in posterior.compiled.checked:
        posterior.check_likelihood(one, source.example(arrays, keys.batch))
        posterior.compiled.checked.add(signature)


def _start_chains(kernel: Kernel, of_kernel: tuple[Any, ...], data: PyTree, starts: PyTree) -> Any:
    with kernel.posterior.holding(data):
        return kernel.with_arrays(of_kernel).start(starts)


def _start_collectors(collector: Collector, starts: PyTree) -> Any:
    return jax.vmap(collector.init)(starts)
