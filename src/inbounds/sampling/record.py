"""What gathers the draws of a run while it goes on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from inbounds.engine.program import Program, Rows
from inbounds.kernels import Kernel
from inbounds.sampling.conversions import phi_of
from inbounds.sampling.draws import Draws
from inbounds.sampling.kept import Counts, KeptSteps, as_array
from inbounds.sampling.step_sizes import StepSizes
from inbounds.trees import PyTree

__all__ = ["Record", "reported", "statistics"]

UNREPORTED = {"gradient_norm": np.nan, "noise_variance": np.nan, "clamped": 0.0}  # where a kernel does not report it


class Record:
    """Gathers the rows of each chunk, on the host; `store.StoredRecord` does so on disk.

    Args:
        program: what is run.
        kept: which draws are kept.
        step_sizes: of every step.
    """

    def __init__(self, program: Program, kept: KeptSteps, step_sizes: StepSizes):
        self.program = program
        self.kept_steps = kept
        self.step_sizes = step_sizes
        self.rows: Rows | None = None  # room for all of them, of which the first `num_draws` are there
        self.counts: list[Counts] = []  # steps done at each kept draw
        self.kept = 0

    on_disk = False
    place = "`error.draws`"

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def num_draws(self) -> int:
        """Kept so far, of each chain."""
        return self.kept

    def add(self, rows: Rows, start: int, end: int) -> None:
        """Keep what belongs to the steps from `start` to `end`, burn-in left out."""
        part, counts = self.kept_steps.between(start, end)
        if len(counts):
            self.keep(jax.tree.map(lambda leaf: np.asarray(leaf)[part], rows), counts)

    def keep(self, rows: Rows, counts: Counts) -> None:
        """Put kept rows, axes (row, chain), where they belong.

        That is into arrays of the size that they will have, so that there is never a second copy of all. The system gives memory to what
        is written to.
        """
        if self.rows is None:
            self.rows = self._room(rows)
        for whole, part in zip(jax.tree.leaves(self.rows), jax.tree.leaves(rows), strict=True):
            whole[self.kept : self.kept + len(counts)] = part
        self.counts.append(counts)
        self.kept += len(counts)

    def _room(self, like: Rows) -> Rows:
        """Arrays for all the draws that the run will keep."""
        draws = self.kept_steps.number()
        try:
            result: Rows = jax.tree.map(lambda leaf: np.empty((draws, *leaf.shape[1:]), leaf.dtype), like)
            return result
        except MemoryError as error:
            size = draws * sum(leaf[0].nbytes for leaf in jax.tree.leaves(like))
            raise MemoryError(
                f"The {draws:,} draws of this run take {size / 1e9:,.0f} GB of memory, more than there is. Keep fewer (`thin`), "
                "keep them on disk (`store`), or only what you need of them (`collect`)."
            ) from error

    def _kept_rows(self) -> Rows:
        result: Rows = jax.tree.map(lambda leaf: leaf[: self.kept], self.rows)
        return result

    def close(self) -> None:
        """The run is over, well or not: leave everything readable."""

    def snapshot(self) -> list[np.ndarray]:
        """What a checkpoint must hold to go on from here."""
        if not self.counts:
            return []
        counts = np.concatenate([as_array(counts) for counts in self.counts])
        self.counts = [counts]
        return [*jax.tree.leaves(self._kept_rows()), counts]

    def restore(self, snapshot: list[np.ndarray], moving: PyTree) -> None:
        """Go on from a snapshot; `moving` has the structure of what the kernel moves."""
        if snapshot:
            *rows, counts = snapshot
            nothing: Any = dict.fromkeys(self.program.kernel.reports, 0.0)
            like = Rows(moving if self.program.keeps_draws else None, nothing)
            self.keep(jax.tree.unflatten(jax.tree.structure(like), rows), counts)

    def draws(self, num_steps: int, state: Any, collected: Any, seconds: float) -> Draws:
        rows, phi = None, None
        if self.counts:
            rows = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), self._kept_rows())
            phi = None if rows.moving is None else phi_of(self.program.kernel, rows.moving)
        elif self.program.keeps_draws:
            phi = self._no_draws(state)
        return self.as_draws(phi, self._stats(rows), num_steps, state, collected, seconds)

    def _no_draws(self, state: Any) -> PyTree:
        """phi of a run that has not come to its first draw, axes (chain, 0, ...)."""
        last = jax.eval_shape(jax.vmap(self.program.kernel.proxy), state)
        return jax.tree.map(lambda leaf: np.zeros((leaf.shape[0], 0, *leaf.shape[1:]), leaf.dtype), last)

    def as_draws(
        self,
        phi: PyTree,
        stats: dict[str, Any],
        num_steps: int,
        state: Any,
        collected: Any,
        seconds: float,
        theta: PyTree = None,
    ) -> Draws:
        return Draws(
            phi=phi,
            stats=stats,
            collected=collected,
            kernel=self.program.kernel,
            state=state,
            num_steps=num_steps,
            burn_in=self.kept_steps.burn_in,
            thin=self.program.thin,
            seconds=seconds,
            stored_theta=theta,
            data_version=self.program.kernel.posterior.version,
        )

    def _stats(self, rows: Rows | None) -> dict[str, np.ndarray]:
        chains = self.program.num_chains
        if rows is None:
            kernel, none = self.program.kernel, np.zeros((chains, 0))
            vector = np.zeros((chains, 0, self.program.dimension))
            return {name: vector if name in kernel.vectors else none for name in reported(kernel)}
        sizes = self.step_sizes.of_draws(self.counts, chains)
        return statistics(rows, (chains, self.num_draws)) | {"step_size": sizes}


def reported(kernel: Kernel) -> tuple[str, ...]:
    """What is known of each draw, by name."""
    return tuple(dict.fromkeys((*UNREPORTED, "step_size", *kernel.reports)))


def statistics(rows: Rows, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """What is known of each draw by name, axes (chain, draw): what the kernel reports, and `UNREPORTED` for the rest."""
    missing = {name: np.broadcast_to(value, shape) for name, value in UNREPORTED.items()}
    return missing | {name: np.asarray(values) for name, values in rows.info.items()}
