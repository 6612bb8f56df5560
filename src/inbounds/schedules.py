r"""Step sizes that change along a run: functions of the step number. Any Optax schedule is one too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.namespaces import namespace

__all__ = ["Phased", "Schedule", "StepSize", "constant", "cyclical", "polynomial_decay", "settling"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)


Schedule = Callable[[jax.Array], jax.Array]
"""A step size as a function of the step number."""

StepSize = float | np.ndarray | jax.Array | Schedule
"""A number, an array of one number per chain, or a schedule."""


class Phased(ABC):
    """A schedule some of whose steps explore, and keep no draws.

    Example:
        >>> cycles = ib.schedules.cyclical(0.1, cycle_steps=100, sampling=0.25)
        >>> isinstance(cycles, ib.schedules.Phased), bool(cycles.keeps(0)), bool(cycles.keeps(99))
        (True, False, True)
    """

    @abstractmethod
    def __call__(self, step: jax.Array) -> jax.Array:
        """The step size of this step, counted from 0."""

    @abstractmethod
    def keeps(self, step: Any) -> Any:
        """Whether the draw of this step, counted from 0, is kept.

        Args:
            step: a number or an array, which may be traced.

        Returns:
            Booleans of the same shape.
        """


@dataclass(frozen=True)
class Constant:
    """The same step size throughout."""

    size: float

    def __call__(self, step: jax.Array) -> jax.Array:
        return jnp.full(jnp.shape(step), self.size)


@dataclass(frozen=True)
class PolynomialDecay:
    r"""$\epsilon_t = a (1 + t / b)^{-\gamma}$ (Welling and Teh 2011)."""

    initial: float
    decay_steps: float
    power: float

    def __call__(self, step: jax.Array) -> jax.Array:
        return self.initial * (1 + step / self.decay_steps) ** -self.power


@dataclass(frozen=True)
class Settling:
    r"""$\epsilon_t = \epsilon_\infty (\epsilon_0 / \epsilon_\infty)^{\max(0, 1 - t / s)}$: geometric, then constant."""

    first: float
    last: float
    steps: int

    def __call__(self, step: jax.Array) -> jax.Array:
        return self.last * (self.first / self.last) ** jnp.maximum(0.0, 1 - step / self.steps)


@dataclass(frozen=True)
class Cyclical(Phased):
    r"""$\epsilon_t = \frac{\epsilon_0}{2} (\cos(\pi \tau) + 1)$ with $\tau$ the fraction of the cycle gone (Zhang et al. 2020)."""

    initial: float
    cycle_steps: int
    sampling: float = 1.0

    def keeps(self, step: Any) -> Any:
        """Whether the draw of this step, counted from 0, is in the sampling phase of its cycle."""
        return step % self.cycle_steps >= round((1 - self.sampling) * self.cycle_steps)

    def __call__(self, step: jax.Array) -> jax.Array:
        gone = jnp.asarray(step % self.cycle_steps, float) / self.cycle_steps
        return self.initial / 2 * (jnp.cos(jnp.pi * gone) + 1)


def constant(size: float) -> Constant:
    """One step size as a schedule, for code that takes schedules only; a plain number does the same.

    Args:
        size: the step size.

    Returns:
        A function of the step number.

    Raises:
        ValueError: it is not positive.

    Example:
        >>> round(float(ib.schedules.constant(0.01)(500)), 6)
        0.01
    """
    if not size > 0:
        raise ValueError(f"constant needs size > 0; got {size}.")
    return Constant(float(size))


def polynomial_decay(initial: float, decay_steps: float = 1_000.0, power: float = 1 / 3) -> PolynomialDecay:
    """Decay from `initial`, halved (for power 1) after `decay_steps`; a power in (0, 1] keeps the chain moving.

    Args:
        initial: the step size at step 0.
        decay_steps: after so many steps the base of the power is a half.
        power: of the decay, in (0, 1].

    Returns:
        A function of the step number.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> decay = ib.schedules.polynomial_decay(0.1, decay_steps=100, power=1.0)
        >>> round(float(decay(0)), 4), round(float(decay(100)), 4)
        (0.1, 0.05)
    """
    if not initial > 0 or not decay_steps > 0 or not 0 < power <= 1:
        raise ValueError(
            f"polynomial_decay needs initial > 0, decay_steps > 0 and power in (0, 1]; got {initial}, {decay_steps}, {power}."
        )
    return PolynomialDecay(float(initial), float(decay_steps), float(power))


def settling(first: float, last: float, steps: int) -> Settling:
    """From `first` to `last` in `steps` steps, and constant from there: large steps to arrive, during burn-in, small ones to sample.

    Args:
        first: the step size at step 0.
        last: the step size after `steps` steps.
        steps: how long it takes.

    Returns:
        A function of the step number.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> settle = ib.schedules.settling(0.1, 0.001, 100)
        >>> round(float(settle(0)), 4), round(float(settle(1_000)), 4)
        (0.1, 0.001)
    """
    if not first > 0 or not last > 0 or steps < 1:
        raise ValueError(f"settling needs first > 0, last > 0 and steps >= 1; got {first}, {last}, {steps}.")
    return Settling(float(first), float(last), int(steps))


def cyclical(initial: float, cycle_steps: int, sampling: float = 1.0) -> Cyclical:
    """Cosine restarts: large steps find modes, the small ones at the end of each cycle sample them.

    Args:
        initial: step size at the start of each cycle.
        cycle_steps: steps a cycle.
        sampling: last part of each cycle whose draws are kept, in (0, 1]; 1 keeps them all.

    Returns:
        A function of the step number.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> cycles = ib.schedules.cyclical(0.1, cycle_steps=100, sampling=0.25)
        >>> round(float(cycles(0)), 4), round(float(cycles(50)), 4), round(float(cycles(100)), 4)
        (0.1, 0.05, 0.1)
    """
    if not initial > 0 or cycle_steps < 1 or not 0 < sampling <= 1:
        raise ValueError(
            f"cyclical needs initial > 0, cycle_steps >= 1 and sampling in (0, 1]; got {initial}, {cycle_steps}, {sampling}."
        )
    return Cyclical(float(initial), int(cycle_steps), float(sampling))
