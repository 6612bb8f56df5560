"""Which draws of a run are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inbounds.schedules import Phased, Schedule

__all__ = ["Counts", "KeptSteps", "as_array"]

# Whole numbers, one per draw: written out, those of a long run of a small model would cost as much as its draws.
Counts = range | np.ndarray
AT_ONCE = 2**20  # counts that a schedule is asked about together


@dataclass(frozen=True)
class KeptSteps:
    """After burn-in every `thin`-th step counted from the start of the run; of a schedule with phases, those of its sampling phases.

    A draw is known by its count: how many steps had been done when it was made.

    Args:
        num_steps: of the run.
        burn_in: first steps whose draws are not kept.
        thin: steps between two draws.
        schedule: of the step sizes.
    """

    num_steps: int
    burn_in: int
    thin: int
    schedule: Schedule | None = None

    def counts(self, start: int, end: int) -> range:
        """Of the draws made between two steps, whatever the phase."""
        first = max(start, self.burn_in) // self.thin + 1
        return range(first * self.thin, end // self.thin * self.thin + 1, self.thin)

    def between(self, start: int, end: int) -> tuple[Any, Counts]:
        """(which of the rows made between two steps are kept, their counts); a row is every `thin`-th step."""
        counts = self.counts(start, end)
        skipped = max(0, self.burn_in // self.thin - start // self.thin)
        if not isinstance(self.schedule, Phased) or (sampled := self._sampled(counts)).all():
            return slice(skipped, skipped + len(counts)), counts
        return np.flatnonzero(sampled) + skipped, as_array(counts)[sampled]

    def number(self) -> int:
        """How many draws of each chain the whole run keeps."""
        counts = self.counts(0, self.num_steps)
        if not isinstance(self.schedule, Phased):
            return len(counts)
        parts = (self._sampled(counts[i : i + AT_ONCE]) for i in range(0, len(counts), AT_ONCE))
        return sum(int(np.count_nonzero(part)) for part in parts)

    def _sampled(self, counts: range) -> np.ndarray:
        """Whether each falls into a sampling phase."""
        if not isinstance(self.schedule, Phased):
            return np.ones(len(counts), bool)
        return np.asarray(self.schedule.keeps(as_array(counts) - 1))

    def check(self, cycle: int = 1, batches: int = 1) -> None:
        """Raise a ValueError where nothing is kept.

        Args:
            cycle: steps after which draws of the source are good, of which `thin` has whole ones.
            batches: of an epoch of the source.
        """
        if self.counts(0, self.num_steps):
            if isinstance(self.schedule, Phased) and not np.any(
                self._sampled(self.counts(0, self.num_steps)[:AT_ONCE])
            ):
                raise ValueError(
                    f"No draw falls into a sampling phase of the schedule with burn_in={self.burn_in:,}, thin={self.thin:,} and "
                    f"num_steps={self.num_steps:,}. Lower `thin`, or run for whole cycles."
                )
            return
        if cycle > 1:
            raise ValueError(
                f"A sweep has {cycle:,} steps ({batches:,} minibatches forwards and backwards), and draws are kept at its end, of "
                f"every `thin`-th: with thin={self.thin // cycle:,}, num_steps={self.num_steps:,} and burn_in={self.burn_in:,} there is none. "
                "Take more steps, or larger minibatches."
            )
        left = self.num_steps - self.burn_in
        raise ValueError(f"thin={self.thin:,} leaves no draws of {left:,} steps after burn-in. Lower `thin`.")


def as_array(counts: Counts) -> np.ndarray:
    """Written out after all, where a schedule is asked about them."""
    return np.arange(counts.start, counts.stop, counts.step) if isinstance(counts, range) else counts
