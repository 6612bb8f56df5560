"""Where the chains of a run start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.engine.keys import as_key, derived
from inbounds.kernels._base import Kernel, as_parameters
from inbounds.sampling.devices import own_shards
from inbounds.trees import PyTree

if TYPE_CHECKING:
    from inbounds.sampling.devices import Layout

__all__ = ["Init", "Starts", "starts_of"]


class Starts(NamedTuple):
    """A start for each chain, where the posterior does not say of which shape one start is.

    Args:
        theta: leading axis = chain.
    """

    theta: PyTree


Init = Starts | PyTree | Callable[[jax.Array], PyTree] | None
"""A start for all the chains; a tree with a leading axis of chains, or `Starts`; a function of a random key; or None: from the prior."""


def starts_of(kernel: Kernel, init: Init, num_chains: int, words: np.ndarray, layout: Layout | None) -> PyTree:
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
    """Whether `init` holds one start per chain: only where the priors say what shape one start has."""
    shapes = kernel.posterior.shapes
    if shapes is None or not trees.alike(shapes, init):
        return False
    leaves = zip(jax.tree.leaves(init), jax.tree.leaves(shapes), strict=True)
    return all(np.shape(x) == (num_chains, *like.shape) for x, like in leaves)
