"""One run: chunk after chunk, from the first step to the last."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.engine.chunks import chunk_runner, refresh
from inbounds.engine.program import Carry, Rows
from inbounds.sampling import health, probe, verdict
from inbounds.sampling.collect import Collector
from inbounds.sampling.devices import agreed, is_first_process, lost_process, to_host
from inbounds.sampling.draws import Draws
from inbounds.sampling.interrupts import Interrupts
from inbounds.sampling.progress import ProgressBar
from inbounds.sampling.record import Record
from inbounds.sampling.resolve import Resolved
from inbounds.transforms import Exp
from inbounds.trees import PyTree

if TYPE_CHECKING:
    from inbounds.sampling.checkpoint import Checkpointer

__all__ = ["Run", "Stop"]

MOST_GROWTH = 64  # of a chunk over the one before
MOST_ADAPTING = 4  # blocks of a chunk while the kernel adapts, where time counts
CHUNK_SECONDS = 0.3  # between two looks at the bar, the health of the chains, and Ctrl-C


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


class Run:
    """A resolved run that goes on, or has ended.

    Args:
        resolved: what is run.
        chunk_steps: most steps of a chunk; None adapts them to the speed.
        monitor: called between two chunks.
        throws: whether the run ends where a chain leaves the finite numbers.
        until: what may end the run before its last step.
    """

    def __init__(
        self,
        resolved: Resolved,
        chunk_steps: int | None,
        monitor: Callable[[int, Any], None] | None,
        throws: bool,
        until: Stop | None,
    ):
        self.resolved, self.monitor, self.throws, self.until = resolved, monitor, throws, until
        self.num_steps, self.keys = resolved.kept.num_steps, resolved.keys
        self.program, self.carry = resolved.begin()
        self.feed = resolved.feed(self.program)
        self.chunk_blocks = self.program.chunk_blocks
        if chunk_steps is not None:
            self.chunk_blocks = max(1, min(self.chunk_blocks, chunk_steps // self.program.block_steps))
        self.adaptive = chunk_steps is None
        self.record = Record(self.program, resolved.kept, resolved.step_sizes)
        self.checkpointer: Checkpointer | None = None
        self.held = contextlib.ExitStack()  # locks
        self.seconds = 0.0  # of earlier parts of a run that is resumed
        self.has_run = False
        self.done = 0

    def open(self, store: Any, checkpoint: Any, resume: bool) -> None:
        """Open the store and the checkpoints, and go to the latest of them where the run is resumed."""
        if resume and checkpoint is None:
            raise ValueError("resume=True needs the `checkpoint` folder that the interrupted run was given.")
        if store is None and checkpoint is None:
            return
        from inbounds.sampling.checkpoint import Checkpoint, Checkpointer
        from inbounds.sampling.fingerprint import environment, fingerprint

        program, carry, loaded = self.program, self.carry, None
        one = jax.tree.map(lambda leaf: leaf[0], carry.state)
        phi, moving = (jax.eval_shape(of, one) for of in (program.kernel.proxy, program.kernel.moving))
        kept_in = "memory" if store is None else "a store"
        sizes = self.resolved.step_sizes
        identity = fingerprint(
            program, state=carry.state, phi=phi, step_sizes=sizes, draws_in=kept_in, **self.resolved.settings
        )
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
                program, self.resolved.kept, sizes, store, identity, phi, resume, position,
                checkpoints=checkpoint is not None, held=self.held,
            )  # fmt: skip
        if loaded is not None:
            self.record.restore(loaded.snapshot, moving)
            self.done, self.seconds, self.keys = loaded.step, loaded.seconds, loaded.keys
            self.carry = loaded.carry

    def go(self, progress: bool) -> Draws:
        """From where it stands to its end."""
        try:
            return self._go(progress and is_first_process())
        except Exception as error:
            lost = lost_process(self.done, error)
            if lost is None:
                raise
            raise lost from error

    def _go(self, progress: bool) -> Draws:
        program, length = self.program, self.program.block_steps
        carry, done, began = self.carry, self.done, time.perf_counter() - self.seconds
        pace = blocks = self._first_blocks()
        interrupts = Interrupts(terminate=self.checkpointer is not None or self.record.on_disk)
        total = self.num_steps if self.until is None else None  # nobody knows how many it takes
        bar = ProgressBar(total, done, progress, program.kernel.name, at_once=blocks == 1)
        with interrupts, self.record, bar:
            over = self._ended_here(carry, done, began) or self._is_late()
            while not over and done < self.num_steps:
                every = program.kernel.refresh_every
                if every is not None and done > 0 and done % every == 0:
                    carry = refresh(program, carry)
                look = self.num_steps if self.until is None else max(self.until.next_look(done), done + 1)
                blocks = self._at_most(blocks, done, look)
                before, clock = carry, time.perf_counter()
                carry, rows, finite = self.chunk(carry, done, blocks, self.num_steps)
                after = min(self.num_steps, done + blocks * length)
                self.record.add(rows, done, after)
                del rows  # before the next chunk makes its own
                if self.throws and not health.all_finite(finite):
                    raise self._diagnose(before, carry, done, began)
                bar.update(after - done)
                done = after
                if self.monitor is not None:
                    self.monitor(done, self._collected(carry))
                self._look_after(interrupts, carry, done, began)
                self.done = done
                over = self.until is not None and self._has_enough(carry, done, began, done >= look)
                if over and self.checkpointer is not None and done % length == 0:  # from here it can be gone on with
                    self.checkpointer.save(done, carry, self.keys, self.record, time.perf_counter() - began)
                bar.say("" if self.until is None else self.until.words)
                blocks = agreed(self._next_blocks(blocks, time.perf_counter() - clock))
                if blocks != pace:
                    pace = program.kernel.posterior.compiled.paces[program] = blocks
        return self._draws(carry, done, began)

    def _at_most(self, blocks: int, done: int, look: int) -> int:
        """So many blocks that the chunk ends where something else is due: the run, its data, a refresh, a look, a checkpoint."""
        length, every = self.program.block_steps, self.program.kernel.refresh_every
        blocks = min(blocks, -(-(self.num_steps - done) // length), self.feed.room(done) // length)
        if every is not None:
            blocks = min(blocks, (every - done % every) // length)
        blocks = min(blocks, -(-(look - done) // length))
        if self.until is not None and done < self.program.kernel.adapt_steps:  # the next step may take much longer
            blocks = min(blocks, MOST_ADAPTING)
        if self.checkpointer is not None:
            blocks = self.checkpointer.most_blocks(blocks, done, self.num_steps, length)
        return blocks

    def _ended_here(self, carry: Carry, done: int, began: float) -> bool:
        """Whether a run that is resumed has been enough already, where its draws were looked at last."""
        if self.until is None or not done or self.until.next_look(done - self.program.block_steps) > done:
            return False
        return self._has_enough(carry, done, began, True)

    def _is_late(self) -> bool:
        return self.until is not None and bool(agreed(int(self.until.is_late())))

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
                sizes = self.resolved.step_sizes
                largest = max(sizes.at(self.num_steps - 1, chain) for chain in range(self.program.num_chains))
                draws.of_steps = probe.of_steps(self.program, self.feed, self.keys, draws, largest)
            return verdict.announcement(self.program.kernel.name, draws.notes(quick=True))
        except KeyboardInterrupt:
            draws.of_steps = [
                verdict.Note("not-judged", "whether the draws can be trusted was not looked at: Ctrl-C.", False)
            ]
            return ""

    def chunk(self, carry: Carry, start: int, blocks: int, end: int) -> tuple[Carry, Rows, PyTree]:
        """So many blocks of steps, at most to the step `end`."""
        number = np.int32
        arguments = (
            self.program.kernel.arrays, carry, self.feed.arrays(start, carry), self.keys, number(start), number(blocks),
            number(end), number(self.resolved.kept.burn_in), self.resolved.step_size,
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
            if saver is not None:
                how = saver.how_to_resume() if self.until is None else "Go on with the same call and resume=True."
                message = f"{message} {how}"
            raise interrupts.end(stop, message, draws)

    def _first_blocks(self) -> int:
        """One, since nobody knows how long it takes, unless the same program ran before. Then they are few where time counts.

        Its steps need not take as long as before: those of trajectories do not.
        """
        known = agreed(self.program.kernel.posterior.compiled.paces.get(self.program, 1))
        return max(1, min(known if self.until is None else known // MOST_GROWTH, self.chunk_blocks))

    def _next_blocks(self, blocks: int, seconds: float) -> int:
        """As many blocks as fit `CHUNK_SECONDS`, growing at most so many fold."""
        if not self.adaptive:
            return self.chunk_blocks
        wanted = int(blocks * CHUNK_SECONDS / max(seconds, 1e-6))
        return max(1, min(self.chunk_blocks, wanted, MOST_GROWTH * blocks))

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
        """Run the chunk again from its start to the step where it happened, and say why it did."""
        found = health.locate(self.chunk, before, start, self.program.block_steps, self.num_steps)
        message = health.explain(
            found.variable,
            found.chain,
            found.step,
            self.resolved.step_sizes.at(found.step - 1, found.chain),
            self._model_is_at_fault(found.last_good, found.chain, found.step - 1),
            self.program.kernel.space.of_proxy.moved_by(Exp, found.finite),
        )
        return health.NonFiniteError(
            message, self._draws(after, found.step, began), found.variable, found.chain, found.step
        )

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

        # Compiled: a model that is run with numbers may look at its arguments itself, and raise.
        compiled = jax.jit(finite) if program.layout is None else program.layout.on_mesh(finite)
        return not bool(compiled(self.feed.arrays(step), self.keys.typed(program.source).batch[chain], phi))


def _results(collector: Collector, collected: Any) -> Any:
    return jax.vmap(collector.result)(collected)
