"""Who runs it: `sample` validates, compiles once, runs chunk after chunk, and watches over their health."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.arguments import whole_number
from inbounds.data.arrays import Held, Sweeps, is_source, is_stream, source_for
from inbounds.data.spread import SpreadRows
from inbounds.engine.chunks import chunk_runner, refresh, whole_data
from inbounds.engine.keys import as_key, derived, words_of
from inbounds.engine.program import Carry, Keys, Program, Rows
from inbounds.kernels._base import Kernel, as_parameters
from inbounds.sampling import health, probe, verdict
from inbounds.sampling.collect import as_collector
from inbounds.sampling.devices import (
    Layout,
    agreed,
    as_layout,
    is_first_process,
    lost_process,
    own_shards,
    to_host,
)
from inbounds.sampling.draws import Draws
from inbounds.sampling.interrupts import Interrupts
from inbounds.sampling.progress import ProgressBar
from inbounds.sampling.record import Record, step_sizes
from inbounds.trees import PyTree

if TYPE_CHECKING:
    from inbounds.sampling.checkpoint import Checkpoint, Checkpointer

CHUNK_SECONDS = 0.3  # between two looks at the bar, the health of the chains, and Ctrl-C


def sample(
    kernel: Kernel,
    step_size: Any,
    num_steps: int,
    *,
    burn_in: int = 0,
    thin: int = 1,
    batch_size: int | None = None,
    num_chains: int = 1,
    seed: int = 0,
    init: Any = None,
    collect: Any = None,
    progress: bool = True,
    store: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    batching: str | None = None,
    chunk_steps: int | None = None,
    monitor: Callable[[int, Any], None] | None = None,
    on_failure: str = "raise",
    devices: Any = None,
    until: Stop | None = None,
) -> Draws:
    """Run chains of `kernel` and return their draws.

    Args:
        kernel: how the chains move, for example `ib.sgld(posterior)`.
        step_size: a number, one number a chain (an array of `num_chains`), or a function of the step number, such as those
            in `ib.schedules` and Optax's.
        num_steps: steps of each chain, burn-in included.
        burn_in: first steps whose draws are not kept.
        thin: keep every `thin`-th step; of sweeps, the end of every `thin`-th sweep.
        batch_size: rows a minibatch; None takes what the posterior says (a NumPyro model's `subsample_size`), or all the data.
        num_chains: independent chains, run side by side.
        seed: a whole number; the same seed gives the same draws, however the run is cut into chunks.
        init: a start for all the chains, a tree with a leading axis of `num_chains`, a function of a random key, or
            None: near the middle of the prior.
        collect: running statistics instead of stored draws, such as `ib.collect.mean_and_variance()`, or a dict of them.
        progress: show a bar on a terminal or in a notebook.
        store: a folder, or a URL that fsspec knows, for the draws: a Zarr store that xarray and ArviZ open, also while the
            run goes on. Memory then does not grow with the number of draws, and the result reads from the store.
        checkpoint: a folder for checkpoints, one a minute, or `ib.Checkpoint(folder, every_steps=...)`.
        resume: go on from the latest checkpoint, given the same arguments (`num_steps` may be larger). The draws are those of
            a run that was never interrupted. Starts from the beginning where there is no checkpoint yet.
        batching: "epochs" (shuffled, read as contiguous slices), "replacement" (independent minibatches), or None: the second
            for kernels that correct for gradient noise, which assume it, the first for all others and where a step uses all
            the data. "sweeps": an epoch forwards, then the same backwards, and draws at the ends of these sweeps alone, where gradient
            noise has hardly an effect however correlated it is, as long as step size times curvature times the steps of a sweep
            is below a half or so. Not for kernels that correct for noise, data on disk, or data on several devices.
        chunk_steps: most steps between two looks at the chains, or those of one block where a model of few numbers has longer
            ones (up to 1,024); None adapts to the speed of the run.
        monitor: called between two chunks with the number of steps done and what `collect` has gathered so far.
        on_failure: "raise", or "continue": where a chain becomes non-finite the others go on, and its own draws are NaN.
            For many step sizes tried side by side: such a run does not warn, its summary has the notes.
        devices: how many devices the chains are divided over, or `ib.Layout(chain=..., data=...)` to divide the data of each
            chain too; None runs on one. Where there are several processes (`jax.distributed`), each gives its own rows of
            the data, all call `sample` alike, and all return the same draws.
        until: a `Stop`, which looks at the draws now and then and may end the run before `num_steps`. Its run does not warn at the end.

    Warns:
        UntrustworthyWarning: once, at the end, where the draws cannot be trusted as they are: it says why, and what to do. The
            notes are in `Draws.warnings()` and in the summary too. A run with fewer than 100 draws per chain is not judged.

    Raises:
        ValueError: the arguments do not fit; nothing has run.
        NonFiniteError: a chain left the finite numbers; `error.draws` holds everything until then.
        Interrupted: Ctrl-C, at the end of a chunk; `error.draws` holds everything until then.
        OSError: the disk is full; what was written until then is readable.
        LostProcessError: another process of the run has ended.

    Returns:
        The draws, with the names of the posterior's variables.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> kernel = ib.leimkuhler_matthews(posterior, noise_correction=True)
        >>> draws = ib.sample(kernel, 1e-4, 150, burn_in=100, batch_size=100, num_chains=2, progress=False)
        >>> draws.theta["rate"].shape
        (2, 50)
    """
    _check_run(kernel, num_steps, burn_in, thin, num_chains, seed)
    # NumPy's whole numbers are Python's from here on: those can be written to checkpoints.
    num_steps, burn_in, thin, num_chains, seed = map(int, (num_steps, burn_in, thin, num_chains, seed))
    batch_size = None if batch_size is None else whole_number("batch_size", batch_size)
    chunk_steps = None if chunk_steps is None else whole_number("chunk_steps", chunk_steps)
    posterior = kernel.posterior
    if kernel.data_version not in (None, posterior.version):
        raise ValueError(
            f"The data of the posterior were replaced after {kernel.name} had been made of them. Make the kernel again."
        )
    layout = as_layout(devices)
    if layout is not None:
        layout.check(posterior, kernel.estimator, num_chains)
    words = derived(words_of(seed), 4)
    _, batch_words, start_words, shuffle_words = words
    keys = Keys(*derived(words[:2], num_chains))
    schedule, size = _check_step_size(step_size, num_steps, num_chains)
    collector = as_collector(collect)
    starts = _starts(kernel, init, num_chains, start_words, layout)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), starts)
    wanted = minibatches_of(kernel, batch_size, batching)
    if layout is not None:
        source = layout.source(posterior, *wanted, one)
    else:
        source = source_for(posterior.data, *wanted, None if layout is None else layout.form)
        if getattr(source, "reads_device", False):
            source = replace(source, data=posterior.placed_data)  # type: ignore[type-var]
    if isinstance(source, Sweeps):
        thin = _whole_sweeps(source, thin, num_steps, burn_in)
    _check_phases(schedule, num_steps, burn_in, thin)
    arrays = None if posterior.data is None else source.prepare(as_key(shuffle_words))
    if hasattr(source, "chain_keys"):  # data from disk number the chains
        keys = keys._replace(batch=source.chain_keys(num_chains, as_key(batch_words)))
    _check_model(posterior, one, source, arrays, keys)

    step_size = np.asarray(size, jax.tree.leaves(starts)[0].dtype)
    if layout is None:
        state = posterior.compiled.of(_start_chains, kernel)(kernel.arrays, whole_data(kernel, layout), starts)
        collected = None if collector is None else posterior.compiled.of(_start_collectors, collector)(starts)
    else:
        state = layout.make_chains(
            posterior.compiled, _start_chains, (kernel,), kernel.arrays, whole_data(kernel, layout), starts
        )
        collected = (
            None
            if collector is None
            else layout.make_chains(posterior.compiled, _start_collectors, (collector,), starts)
        )
        keys = layout.put_chains(keys)
        arrays = arrays if layout.spreads or hasattr(source, "feed") else layout.put_copies(arrays)
        step_size = layout.put_chains(step_size) if step_size.ndim else layout.put_copies(step_size)
    dimension = trees.size(kernel.moving(state)) // num_chains
    program = Program(kernel, source, schedule, collector, num_chains, thin, dimension, layout)
    run = _Run(program, arrays, keys, step_size, num_steps, burn_in, chunk_steps)
    run.monitor, run.throws, run.until = monitor, _throws(on_failure), until
    if hasattr(source, "feed"):  # data from disk: arrays come buffer by buffer
        run.feed = source.feed(as_key(batch_words), num_chains, program.block_steps, num_steps)
    with run.feed, run.held:
        settings = dict(seed=seed, init=init, batch_size=wanted[0], batching=wanted[1])
        carry = run.open(Carry(state, collected), store, checkpoint, resume, settings)
        draws = run.go(carry, progress)
    if until is None and (text := run.judge(draws)):
        warnings.warn(text, verdict.UntrustworthyWarning, stacklevel=2)
    return draws


class Starts(NamedTuple):
    """A start for each chain, where the posterior does not say of which shape one start is.

    Args:
        theta: leading axis = chain.
    """

    theta: PyTree


class Stop(Protocol):
    """When a run has enough draws.

    Attributes:
        words: what the bar shows of it.
    """

    words: str

    def next_look(self, done: int) -> int:
        """The number of steps at which it wants to see the draws, when `done` have been made. It does not depend on the clock."""
        ...

    def enough(self, draws: Draws) -> bool:
        """Whether these draws will do."""
        ...

    def is_late(self) -> bool:
        """Whether there is no time left; asked between any two chunks."""
        ...


class _Run:
    """One run: chunk after chunk, from the first step to the last."""

    def __init__(
        self,
        program: Program,
        arrays: PyTree,
        keys: Keys,
        step_size: Any,
        num_steps: int,
        burn_in: int,
        chunk_steps: int | None,
    ):
        self.program = program
        self.feed: Any = Held(arrays)
        self.keys = keys
        self.step_size = step_size
        self.num_steps = num_steps
        self.burn_in = burn_in
        self.chunk_blocks = program.chunk_blocks
        if chunk_steps is not None:
            self.chunk_blocks = max(1, min(self.chunk_blocks, chunk_steps // program.block_steps))
        self.adaptive = chunk_steps is None
        self.record = Record(program, burn_in, program.schedule or np.asarray(to_host(step_size)), num_steps)
        self.checkpointer: Checkpointer | None = None
        self.held = contextlib.ExitStack()  # locks
        self.seconds = 0.0  # of earlier parts of a run that is resumed
        self.monitor: Callable[[int, Any], None] | None = None
        self.throws = True
        self.until: Stop | None = None
        self.has_run = False
        self.done = 0

    def open(self, carry: Carry, store: Any, checkpoint: Any, resume: bool, settings: dict[str, Any]) -> Carry:
        """Open the store and the checkpoints; the carry of the latest of them where the run is resumed."""
        if resume and checkpoint is None:
            raise ValueError("resume=True needs the `checkpoint` folder that the interrupted run was given.")
        if store is None and checkpoint is None:
            return carry
        from inbounds.sampling.checkpoint import Checkpoint, Checkpointer
        from inbounds.sampling.fingerprint import environment, fingerprint

        program, loaded = self.program, None
        one = jax.tree.map(lambda leaf: leaf[0], carry.state)
        phi, moving = (jax.eval_shape(of, one) for of in (program.kernel.proxy, program.kernel.moving))
        sizes = self.record.step_size
        kept = "memory" if store is None else "a store"
        about = dict(state=carry.state, phi=phi, step_size=sizes, burn_in=self.burn_in, draws_in=kept)
        identity = fingerprint(program, **about, **settings)
        if checkpoint is not None:
            if program.layout is None:
                self.keys = jax.device_put(self.keys)  # Orbax asks where they are
            options = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
            metric = program.kernel.options.get("metric")
            self.checkpointer = Checkpointer(options, identity, environment(program), metric, resume, self.held)
            loaded = self.checkpointer.load(carry, self.keys, self.num_steps) if resume else None
            if loaded is not None and loaded.metric is not None:  # its z is that of the state
                program = replace(program, kernel=program.kernel.in_metric(loaded.metric))
                self.program = self.record.program = program
                self.checkpointer.metric = loaded.metric
        if store is not None:
            from inbounds.sampling.store import StoredRecord  # here: Zarr is an extra

            position = None if loaded is None else loaded.position
            self.record = StoredRecord(
                program, self.burn_in, sizes, self.num_steps, store, identity, phi, resume, position,
                checkpoints=checkpoint is not None, held=self.held,
            )  # fmt: skip
        if loaded is None:
            return carry
        self.record.restore(loaded.snapshot, moving)
        self.done, self.seconds, self.keys = loaded.step, loaded.seconds, loaded.keys
        return loaded.carry

    def go(self, carry: Carry, progress: bool) -> Draws:
        try:
            return self._go(carry, progress and is_first_process())
        except Exception as error:
            lost = lost_process(self.done, error)
            if lost is None:
                raise
            raise lost from error

    def _go(self, carry: Carry, progress: bool) -> Draws:
        program, length = self.program, self.program.block_steps
        done, began = self.done, time.perf_counter() - self.seconds
        pace = blocks = self._first_blocks()
        interrupts = Interrupts(terminate=self.checkpointer is not None or self.record.on_disk)
        bar = ProgressBar(self.num_steps, done, progress, program.kernel.name, at_once=blocks == 1)
        with interrupts, self.record, bar:
            while done < self.num_steps:
                every = program.kernel.refresh_every
                if every is not None and done > 0 and done % every == 0:
                    carry = refresh(program, carry)
                blocks = min(blocks, -(-(self.num_steps - done) // length), self.feed.room(done) // length)
                if every is not None:
                    blocks = min(blocks, (every - done % every) // length)
                look = self.num_steps if self.until is None else max(self.until.next_look(done), done + 1)
                blocks = min(blocks, -(-(look - done) // length))
                if self.checkpointer is not None:
                    blocks = self.checkpointer.most_blocks(blocks, done, self.num_steps, length)
                before, clock = carry, time.perf_counter()
                carry, rows, finite = self.chunk(carry, done, blocks, self.num_steps)
                after = min(self.num_steps, done + blocks * length)
                self.record.add(rows, done, after)
                del rows  # before the next chunk makes its own
                if self.throws and not _all_finite(finite):
                    raise self._diagnose(before, carry, done, began)
                bar.update(after - done)
                done = after
                if self.monitor is not None:
                    self.monitor(done, self._collected(carry))
                self._look_after(interrupts, carry, done, began)
                self.done = done
                if self.until is not None and self._has_enough(carry, done, began, done >= look):
                    break
                bar.say("" if self.until is None else self.until.words)
                blocks = agreed(self._next_blocks(blocks, time.perf_counter() - clock))
                if blocks != pace:
                    pace = program.kernel.posterior.compiled.paces[program] = blocks
        return self._draws(carry, done, began)

    def _has_enough(self, carry: Carry, done: int, began: float, is_time: bool) -> bool:
        """Whether the run may end here: all its processes say the same."""
        assert self.until is not None
        enough = self.until.is_late() or (is_time and self.until.enough(self._draws(carry, done, began)))
        return bool(agreed(int(enough)))

    def judge(self, draws: Draws) -> str:
        """What the run warns of at its end; empty where that is nothing. The draws are there, so Ctrl-C only ends the judgement."""
        if not self.throws:
            return ""
        try:
            if draws.num_draws >= verdict.FEWEST_DRAWS:
                largest = max(self._size_at(self.num_steps - 1, chain) for chain in range(self.program.num_chains))
                draws.of_steps = probe.of_steps(self.program, self.feed, self.keys, draws, largest)
            return verdict.announcement(self.program.kernel.name, draws.notes(quick=True))
        except KeyboardInterrupt:
            draws.of_steps = [
                verdict.Note("not-judged", "whether the draws can be trusted was not looked at: Ctrl-C.", False)
            ]
            return ""

    def chunk(self, carry: Carry, start: int, blocks: int, end: int) -> tuple[Carry, Rows, PyTree]:
        number, arrays = np.int32, self.feed.arrays(start, carry)
        if self.program.layout is not None and not isinstance(self.feed, Held):
            arrays = self.program.layout.put_copies(arrays)
        arguments = (
            self.program.kernel.arrays, carry, arrays, self.keys, number(start), number(blocks), number(end),
            number(self.burn_in), self.step_size,
        )  # fmt: skip
        try:
            carry, rows, finite = chunk_runner(self.program)(*arguments)
        except Exception as error:
            posterior = self.program.kernel.posterior
            if self.has_run or not self.program.fuses:
                raise
            posterior.compiled.own_kernels = False
            try:
                carry, rows, finite = chunk_runner(self.program)(*arguments)
            except Exception:
                posterior.compiled.own_kernels = True  # it was not them
                raise
            warnings.warn(
                f"A kernel for the GPU could not be made of this model, and XLA does its steps, more slowly. Please report it: {error!r:.500}",
                stacklevel=4,
            )
        self.has_run = True
        return carry, to_host(rows), to_host(finite)

    def _look_after(self, interrupts: Interrupts, carry: Carry, done: int, began: float) -> None:
        """Between two chunks: a checkpoint where it is time, and an end where a signal asks for it."""
        saver, whole = self.checkpointer, done % self.program.block_steps == 0
        last = self.num_steps - done < self.program.block_steps  # from here a longer run can go on
        stop, due = interrupts.agree(saver is not None and (last or saver.due(done)))
        if saver is not None and whole and (due or stop):
            saver.save(done, carry, self.keys, self.record, time.perf_counter() - began)
        if stop:
            draws = self._draws(carry, done, began)
            place = self.record.place
            message = f"stopped after {done:,} of {self.num_steps:,} steps. The draws until then are in {place}."
            raise interrupts.end(stop, message if saver is None else f"{message} {saver.how_to_resume()}", draws)

    def _first_blocks(self) -> int:
        """One, since nobody knows how long it takes, unless the same program ran before."""
        result: int = min(agreed(self.program.kernel.posterior.compiled.paces.get(self.program, 1)), self.chunk_blocks)
        return result

    def _next_blocks(self, blocks: int, seconds: float) -> int:
        """As many blocks as fit `CHUNK_SECONDS`, growing at most 64-fold (the first chunk compiles)."""
        if not self.adaptive:
            return self.chunk_blocks
        wanted = 64 * blocks if blocks == 1 else int(blocks * CHUNK_SECONDS / max(seconds, 1e-6))
        return max(1, min(self.chunk_blocks, wanted, 64 * blocks))

    def _collected(self, carry: Carry) -> Any:
        collector = self.program.collector
        compiled = self.program.kernel.posterior.compiled
        return None if collector is None else jax.device_get(to_host(compiled.of(_results, collector)(carry.collected)))

    def _draws(self, carry: Carry, done: int, began: float) -> Draws:
        return self.record.draws(
            num_steps=done,
            state=carry.state,
            collected=self._collected(carry),
            seconds=time.perf_counter() - began,
        )

    def _diagnose(self, before: Carry, after: Carry, start: int, began: float) -> health.NonFiniteError:
        """Run the chunk again from its start, block by block and then by bisection, to the step where it happened."""
        length = self.program.block_steps
        while True:
            carry, _, finite = self.chunk(before, start, 1, self.num_steps)
            if not _all_finite(finite):
                break
            before, start = carry, start + length
        low, high = 0, length  # finite after `low` steps, not after `high`
        while high - low > 1:
            middle = (low + high) // 2
            _, _, finite = self.chunk(before, start, 1, start + middle)
            low, high = (middle, high) if _all_finite(finite) else (low, middle)
        last_good, _, _ = self.chunk(before, start, 1, start + low)
        _, _, finite = self.chunk(before, start, 1, start + high)
        variable, chain = _first_bad(finite)
        kernel = self.program.kernel
        message = health.explain(
            variable,
            chain,
            start + high,
            self._size_at(start + low, chain),
            self._model_is_at_fault(last_good, chain, start + low),
            _moved_by_exp(kernel, finite),
        )
        draws = self._draws(after, start + high, began)
        return health.NonFiniteError(message, draws, variable, chain, start + high)

    def _size_at(self, step: int, chain: int) -> float:
        if self.program.schedule is not None:
            return float(self.program.schedule(jnp.asarray(step)))
        return float(np.broadcast_to(np.asarray(to_host(self.step_size)), (self.program.num_chains,))[chain])

    def _model_is_at_fault(self, carry: Carry, chain: int, step: int) -> bool:
        """Is the model's own gradient not finite at the last finite position, and that position not absurd already?"""
        program = self.program
        state = jax.tree.map(lambda leaf: leaf[chain], carry.state)
        phi = program.kernel.moving(state)
        if float(trees.norm(program.kernel.proxy(state))) > health.ABSURD:
            return False

        def finite(arrays: PyTree, key: jax.Array, phi: PyTree) -> jax.Array:
            plan = program.source.plan(key, jnp.asarray([step]))
            batch = program.source.fetch(arrays, jax.tree.map(lambda leaf: leaf[0], plan))
            theta = program.kernel.space.evaluation_point(phi)
            estimator = program.kernel.estimator
            gradient, _ = estimator.estimate(estimator.init(theta, False), theta, batch, False)
            return trees.all_finite(gradient.value)

        if program.layout is not None:
            finite = program.layout.on_mesh(finite)
        return not bool(finite(self.feed.arrays(step), self.keys.typed(program.source).batch[chain], phi))


def _all_finite(finite: PyTree) -> bool:
    return all(np.asarray(leaf).all() for leaf in jax.tree.leaves(finite))


def _first_bad(finite: PyTree) -> tuple[str, int]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(finite):
        bad = np.flatnonzero(~np.asarray(leaf))
        if bad.size:
            return trees.variable_name(path), int(bad[0])
    raise AssertionError("every variable is finite")


def _moved_by_exp(kernel: Kernel, phi: PyTree) -> list[str]:
    """The variables whose transform is exp."""
    names = jax.tree_util.tree_leaves_with_path(kernel.space.of_proxy.names(phi))
    return [trees.variable_name(path) for path, name in names if name == "exp"]


def _check_run(kernel: Any, num_steps: int, burn_in: int, thin: int, num_chains: int, seed: int) -> None:
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
    if num_steps // thin == burn_in // thin:
        raise ValueError(f"thin={thin:,} leaves no draws of {num_steps - burn_in:,} steps after burn-in. Lower `thin`.")
    if num_steps > 2**31 - 2**20:
        raise ValueError(f"num_steps={num_steps:,} is too large for one run: at most {2**31 - 2**20:,}.")
    if burn_in < kernel.adapt_steps:
        raise ValueError(
            f"The preconditioner adapts for {kernel.adapt_steps:,} steps, and draws made while it does are not from the "
            f"posterior: burn_in={burn_in:,} must be at least {kernel.adapt_steps:,}."
        )


def _throws(on_failure: str) -> bool:
    if on_failure not in ("raise", "continue"):
        raise ValueError(f'`on_failure` must be "raise" or "continue"; got {on_failure!r}.')
    return on_failure == "raise"


def minibatches_of(kernel: Kernel, batch_size: int | None, batching: str | None) -> tuple[int | None, str]:
    """How many rows a minibatch has (None: all of them), and how it comes by them."""
    data, rows = kernel.posterior.data, kernel.posterior.num_data
    if data is not None and is_source(data) and not is_stream(data) and not (batch_size is None and batching is None):
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
    return size, batching


def _check_step_size(step_size: Any, num_steps: int, num_chains: int) -> tuple[Callable[..., Any] | None, np.ndarray]:
    """(schedule, None) or (None, numbers), after a look at their values."""
    if callable(step_size):
        probes = np.unique(np.linspace(0, num_steps - 1, 64).astype(int))
        sizes = step_sizes(step_size, [probes + 1], 1)[0]  # of draws, made after the steps
        if not np.all(np.isfinite(sizes)) or np.any(sizes < 0) or not np.any(sizes > 0):
            bad = probes[~(np.isfinite(sizes) & (sizes >= 0))]
            where = f"at step {bad[0]:,} it is {sizes[probes == bad[0]][0]}" if bad.size else "it is zero throughout"
            raise ValueError(f"The step-size schedule must be finite and positive; {where}.")
        return step_size, np.zeros(())
    if isinstance(step_size, str) or step_size is None:
        raise ValueError(f"`step_size` must be a number, one a chain, or a schedule; got {step_size!r}.")
    sizes = np.asarray(step_size, float)
    if sizes.shape not in ((), (num_chains,)):
        raise ValueError(f"`step_size` must be one number, or one a chain: shape ({num_chains},); got {sizes.shape}.")
    if not np.all(np.isfinite(sizes) & (sizes > 0)):
        raise ValueError(f"`step_size` must be positive and finite; got {step_size}.")
    return None, sizes


def _whole_sweeps(source: Sweeps, thin: int, num_steps: int, burn_in: int) -> int:
    """Steps between two draws that are kept."""
    steps = thin * source.length
    if num_steps // steps <= burn_in // steps:
        raise ValueError(
            f"A sweep has {source.length:,} steps ({source.batches:,} minibatches forwards and backwards), and draws are kept at its end, of "
            f"every `thin`-th: with thin={thin:,}, num_steps={num_steps:,} and burn_in={burn_in:,} there is none. Take more steps, or larger "
            "minibatches."
        )
    return steps


def _check_phases(schedule: Any, num_steps: int, burn_in: int, thin: int) -> None:
    if not hasattr(schedule, "keeps"):
        return
    counts = thin * np.arange(burn_in // thin + 1, min(num_steps // thin, burn_in // thin + 1_000_000) + 1)
    if not np.any(schedule.keeps(counts - 1)):
        raise ValueError(
            f"No draw falls into a sampling phase of the schedule with burn_in={burn_in:,}, thin={thin:,} and "
            f"num_steps={num_steps:,}. Lower `thin`, or run for whole cycles."
        )


def _check_model(posterior: Any, one: PyTree, source: Any, arrays: PyTree, keys: Keys) -> None:
    """Raise a ValueError where the model does not fit its data; once for these shapes, since it is traced for that."""
    signature = (source, jax.tree.structure(one), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(one)))
    if signature not in posterior.compiled.checked:
        posterior.check_likelihood(one, _minibatch_shapes(source, arrays, keys))
        posterior.compiled.checked.add(signature)


def _minibatch_shapes(source: Any, arrays: PyTree, keys: Keys) -> PyTree:
    if isinstance(source, SpreadRows):
        return source.example()

    def one(arrays: PyTree, keys: Keys) -> PyTree:
        plan = source.plan(keys.typed(source).batch[0], jnp.arange(1))
        return source.fetch(arrays, jax.tree.map(lambda leaf: leaf[0], plan))

    return jax.eval_shape(one, arrays, keys)


def _starts(kernel: Kernel, init: Any, num_chains: int, words: np.ndarray, layout: Layout | None) -> PyTree:
    """Starts of all the chains, checked to lie inside; leading axis = chain."""
    drawn = kernel.posterior.starts_on_host(derived(words, num_chains)) if init is None else None
    if drawn is not None:
        starts = as_parameters(drawn)
        kernel.space.check(starts)
        return starts if layout is None else layout.put_chains(starts)
    draw = kernel.posterior.start if init is None else init
    if _is_function(draw) and layout is not None:
        starts = layout.make_chains(kernel.posterior.compiled, _draw_starts, (draw, num_chains), words)
        _check_shapes(kernel, starts, 1)
        for own in own_shards(starts):
            kernel.space.check(own)
        return starts
    starts = _given_starts(kernel, draw, num_chains, words)
    return starts if layout is None else layout.put_chains(starts)


def _given_starts(kernel: Kernel, init: Any, num_chains: int, words: np.ndarray) -> PyTree:
    if _is_function(init):
        starts = kernel.posterior.compiled.of(_draw_starts, init, num_chains)(words)
    elif isinstance(init, Starts) or _has_chain_axis(kernel, init, num_chains):
        starts = as_parameters(init.theta if isinstance(init, Starts) else init)
    else:
        one = as_parameters(init)
        _check_shapes(kernel, one, 0)
        kernel.space.check(one)
        return jax.tree.map(partial(_repeated, num_chains), one)
    _check_shapes(kernel, starts, 1)
    kernel.space.check(starts)
    return starts


def _check_shapes(kernel: Kernel, starts: PyTree, leading: int) -> None:
    """A start of another shape than its prior would be another model: one number where there are three has its prior counted three times."""
    shapes = kernel.posterior.shapes
    if shapes is None or not trees.alike(shapes, starts):  # of the latter speaks `Space.check`
        return
    for (path, like), leaf in zip(jax.tree_util.tree_leaves_with_path(shapes), jax.tree.leaves(starts), strict=True):
        if leaf.shape[leading:] != like.shape:
            raise ValueError(
                f"{trees.variable_name(path)!r} starts with shape {leaf.shape[leading:]}, but its prior has shape {like.shape}. Give "
                "`init` that shape, with a leading axis of `num_chains` if every chain has a start of its own."
            )


def _repeated(count: int, leaf: Any) -> Any:
    shape = (count, *leaf.shape)
    return jnp.broadcast_to(leaf, shape) if isinstance(leaf, jax.Array) else np.broadcast_to(leaf, shape)


def _is_function(init: Any) -> bool:
    """Whether it draws starts; an Equinox module can be called too, and is a tree of parameters."""
    return callable(init) and jax.tree_util.all_leaves([init])


def _draw_starts(draw: Callable[[jax.Array], PyTree], num_chains: int, words: jax.Array) -> PyTree:
    key = as_key(words)
    starts = jax.vmap(lambda chain: draw(jax.random.fold_in(key, chain)))(jnp.arange(num_chains))
    return as_parameters(starts)


def _has_chain_axis(kernel: Kernel, init: PyTree, num_chains: int) -> bool:
    """Whether `init` holds one start a chain: only where the priors say what shape one start has."""
    shapes = kernel.posterior.shapes
    if shapes is None or not trees.alike(shapes, init):
        return False
    leaves = zip(jax.tree.leaves(init), jax.tree.leaves(shapes), strict=True)
    return all(np.shape(x) == (num_chains, *like.shape) for x, like in leaves)


def _start_chains(kernel: Kernel, of_kernel: tuple[Any, ...], data: PyTree, starts: PyTree) -> Any:
    with kernel.posterior.holding(data):
        return kernel.with_arrays(of_kernel).start(starts)


def _start_collectors(collector: Any, starts: PyTree) -> Any:
    return jax.vmap(collector.init)(starts)


def _results(collector: Any, collected: Any) -> Any:
    return jax.vmap(collector.result)(collected)
