"""The step sizes of a run: numbers, or a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.sampling.conversions import in_tiles
from inbounds.sampling.kept import Counts, as_array
from inbounds.schedules import Schedule, StepSize

__all__ = ["StepSizes"]

PROBES = 64  # steps at which a schedule is looked at before a run


@dataclass(frozen=True)
class StepSizes:
    """The step size of every step of every chain.

    Args:
        numbers: one for all chains, or one per chain; zero beside a schedule.
        schedule: a function of the step number; None where the step size is constant.
    """

    numbers: np.ndarray
    schedule: Schedule | None = None

    @classmethod
    def of(cls, step_size: StepSize, num_steps: int, num_chains: int) -> StepSizes:
        """What `sample` was given, after a look at its values."""
        if callable(step_size):
            found = cls(np.zeros(()), step_size)
            found._check_schedule(num_steps)
            return found
        if isinstance(step_size, str) or step_size is None:
            raise ValueError(f"`step_size` must be a number, one per chain, or a schedule; got {step_size!r}.")
        sizes = np.asarray(step_size, float)
        if sizes.shape not in ((), (num_chains,)):
            raise ValueError(
                f"`step_size` must be one number, or one per chain: shape ({num_chains},); got {sizes.shape}."
            )
        if not np.all(np.isfinite(sizes) & (sizes > 0)):
            raise ValueError(f"`step_size` must be positive and finite; got {step_size}.")
        return cls(sizes)

    def _check_schedule(self, num_steps: int) -> None:
        steps = np.unique(np.linspace(0, num_steps - 1, PROBES).astype(int))
        sizes = self.of_draws([steps + 1], 1)[0]  # of draws, made after the steps
        if not np.all(np.isfinite(sizes)) or np.any(sizes < 0) or not np.any(sizes > 0):
            bad = steps[~(np.isfinite(sizes) & (sizes >= 0))]
            where = f"at step {bad[0]:,} it is {sizes[steps == bad[0]][0]}" if bad.size else "it is zero throughout"
            raise ValueError(f"The step-size schedule must be finite and positive; {where}.")

    def in_precision(self, dtype: Any) -> StepSizes:
        """The same in the precision of a run."""
        return replace(self, numbers=np.asarray(self.numbers, dtype))

    def at(self, step: int, chain: int) -> float:
        """The step size of one step of one chain."""
        if self.schedule is not None:
            return float(self.schedule(jnp.asarray(step)))
        return float(self.numbers if self.numbers.ndim == 0 else self.numbers[chain])

    def of_draws(self, counts: Sequence[Counts], chains: int, first: int = 0) -> np.ndarray:
        """Axes (chain, draw), of draws made after so many steps; `first` is the number of the first of them."""
        if self.schedule is None:
            sizes = np.reshape(self.numbers, (-1, 1))
        else:
            steps = np.concatenate([as_array(some) for some in counts]).astype(np.int32)
            sizes = in_tiles(partial(_scheduled, self.schedule), steps[None], first)
        return np.broadcast_to(sizes, (chains, sum(map(len, counts))))


@partial(jax.jit, static_argnums=0)
def _scheduled(schedule: Schedule, counts: jax.Array) -> jax.Array:
    return jax.vmap(jax.vmap(schedule))(counts - 1)
