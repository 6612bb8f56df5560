"""Temperatures that are no constants: one per chain, traced, or a function of the step.

A number is part of what a kernel is, and its program is compiled for it. Everything else is part of the state of a chain: arrays, which
may be traced, and functions of the step number. So chains at several temperatures run side by side in one program, a run may be
cooled, and chains may exchange their temperatures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.trees import PyTree

if TYPE_CHECKING:
    from inbounds.kernels._base import Kernel, MakeInfo

Temperature = float | np.ndarray | jax.Array | Callable[[jax.Array], jax.Array]
"""A number; an array of one, or of one per chain; or a function of the step number, such as those of `ib.schedules`."""


class Tempered(NamedTuple):
    """The state of a chain whose temperature is not a constant of its kernel."""

    inner: Any  # of the kernel
    temperature: jax.Array  # of the next step
    step: jax.Array  # how many have been made


def is_constant(temperature: Any) -> TypeGuard[float]:
    """Whether it is a number, and the same for all steps of all chains."""
    return isinstance(temperature, int | float | np.number)


def in_steps(temperature: Temperature) -> float | jax.Array:
    """The temperature as steps multiply by it. Where it is not one number `tempered` hands each step its own, and this one is never used."""
    if isinstance(temperature, jax.Array) and temperature.ndim == 0:
        return temperature
    return temperature if is_constant(temperature) else 1.0


def check_temperature(temperature: Any) -> None:
    """Raise a ValueError where it is neither a number of at least 0 nor one of the other kinds."""
    if callable(temperature) or trees.is_traced(temperature):
        return
    is_numbers = is_constant(temperature) or isinstance(temperature, np.ndarray | jax.Array)
    if not is_numbers or np.ndim(temperature) > 1 or not np.all(np.asarray(temperature) >= 0):
        raise ValueError(
            "`temperature` must be at least 0 (1 samples the posterior): a number, an array of one number per chain, or a function of "
            f"the step; got {temperature!r}."
        )


def tempered(at: Callable[[Any], Kernel], temperature: Any) -> Kernel:
    """The kernel whose chains carry their temperatures.

    Args:
        at: the kernel at a temperature, which may be traced.
        temperature: an array of one number, or of one per chain; or a function of the step number.
    """
    plain = at(1.0)
    scheduled = callable(temperature)

    def init(theta: PyTree) -> Tempered:
        inner = plain._init(theta)
        dtype = jax.tree.leaves(plain._moving(inner))[0].dtype
        step = jnp.zeros((), jnp.int32)
        # Of several, `Kernel.start` hands each chain its own.
        first = temperature(step) if scheduled else jnp.ravel(jnp.asarray(temperature))[0]
        return Tempered(inner, jnp.asarray(first).astype(dtype), step)

    def update(noise: PyTree, state: Tempered, minibatch: PyTree, step_size: jax.Array) -> tuple[Tempered, MakeInfo]:
        inner, make_info = at(state.temperature)._update(noise, state.inner, minibatch, step_size)
        step = state.step + 1
        following = jnp.asarray(temperature(step)).astype(state.temperature.dtype) if scheduled else state.temperature
        return Tempered(inner, following, step), make_info

    def refresh(state: Tempered) -> Tempered:
        return state if plain._refresh is None else state._replace(inner=plain._refresh(state.inner))

    return replace(
        plain,
        _init=init,
        _update=update,
        _moving=lambda state: plain._moving(state.inner),
        _refresh=refresh,
        temperature=temperature,
        recursion=None,
    )


def with_temperatures(states: Tempered, temperature: Any) -> Tempered:
    """The states of several chains, each with its own temperature."""
    chains = states.temperature.shape[0]
    if np.shape(temperature) != (chains,):
        raise ValueError(
            f"`temperature` must be one number, or one per chain: shape ({chains},) for {chains} chains; got {np.shape(temperature)}."
        )
    return states._replace(temperature=jnp.asarray(temperature).astype(states.temperature.dtype))
