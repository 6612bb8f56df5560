"""From what a kernel moves to phi, from phi to theta, and from theta to functions of it: of all the draws of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from inbounds.kernels._base import Kernel
from inbounds.trees import PyTree

__all__ = ["each_draw", "in_tiles", "of_all_draws", "phi_of", "theta_of"]

TILE_NUMBERS = 2**16  # turned from phi to theta in one call,
TILE_DRAWS = 16  # or those of so many draws, since a call has a cost of its own,
MOST_TILE_NUMBERS = 2**22  # but no more than these
CALL_DRAWS, CALL_NUMBERS = (
    256,
    2**24,
)  # per chain, of which a function of theta is made in one call, and numbers of theta
AHEAD = 3  # calls that are under way at most, while others wait to be fetched


def phi_of(kernel: Kernel, moving: PyTree, first: int = 0) -> PyTree:
    """phi of draws of what a kernel moves, axes (chain, draw, ...), the first of which has the number `first`."""
    if kernel.space.of_proxy is kernel.space:
        return moving
    proxies = kernel.posterior.compiled.of(_proxies, kernel)
    return in_tiles(partial(proxies, kernel.arrays), moving, first)


def theta_of(kernel: Kernel, phi: PyTree, first: int = 0) -> PyTree:
    """theta of draws of phi, axes (chain, draw, ...), the first of which has the number `first`."""
    constrained = kernel.posterior.compiled.of(_constrained, kernel)
    return in_tiles(partial(constrained, kernel.arrays), phi, first)


def _constrained(kernel: Kernel, of_kernel: tuple[Any, ...], phi: PyTree) -> PyTree:
    return jax.vmap(jax.vmap(kernel.with_arrays(of_kernel).of_proxy))(phi)


def _proxies(kernel: Kernel, of_kernel: tuple[Any, ...], moving: PyTree) -> PyTree:
    return jax.vmap(jax.vmap(kernel.with_arrays(of_kernel).space.proxy))(moving)


def in_tiles(function: Callable[..., Any], draws: PyTree, first: int) -> PyTree:
    """`function(draws)` in calls of one shape, each draw at the place in its call that its number gives.

    The bits of a vectorised function depend on shape and place. So those of a draw do not depend on how many there are, nor on
    when they are written to disk; and one compilation does for all.
    """
    leaves = jax.tree.leaves(draws)
    total = leaves[0].shape[1]
    if not total:
        shapes = jax.eval_shape(function, draws)
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    width = sum(leaf.size // max(1, total) for leaf in leaves)
    draws_at_once = min(max(TILE_NUMBERS // max(1, width), TILE_DRAWS), MOST_TILE_NUMBERS // max(1, width))
    tile = 2 ** int(math.log2(max(1, draws_at_once)))
    made: list[_Tile] = []
    done = 0
    while done < total:
        place = (first + done) % tile
        count = min(tile - place, total - done)
        some = jax.tree.map(lambda leaf, i=done, n=count: np.asarray(leaf[:, i : i + n]), draws)
        if count < tile:
            some = jax.tree.map(lambda leaf, i=place: _padded(leaf, i, tile), some)
        made.append(_Tile(function(some), place, count))
        if len(made) > AHEAD:
            made[-1 - AHEAD].fetch()
        done += count
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *(one.fetch() for one in made))


class _Tile:
    """A result on its way from the device."""

    def __init__(self, result: PyTree, place: int, count: int):
        self.result = result
        self.part = slice(place, place + count)

    def fetch(self) -> PyTree:
        self.result = jax.tree.map(np.asarray, self.result)
        return jax.tree.map(lambda leaf: leaf[:, self.part], self.result)


def _padded(some: np.ndarray, place: int, tile: int) -> np.ndarray:
    whole = np.zeros((some.shape[0], tile, *some.shape[2:]), some.dtype)
    whole[:, place : place + some.shape[1]] = some
    return whole


def each_draw(function: Callable[[PyTree], Any]) -> Callable[[PyTree], Any]:
    """A function of theta, compiled for draws of it, axes (chain, draw, ...): what `of_all_draws` takes."""
    return jax.jit(jax.vmap(jax.vmap(function)))


def of_all_draws(each: Callable[[PyTree], Any], theta: PyTree) -> PyTree:
    """What `each` says of every draw, in calls of one shape: one compilation does for all, and the device never holds twice the store."""
    leaves = jax.tree.leaves(theta)
    total = leaves[0].shape[1]
    if not total:
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(each, theta))
    size = max(1, min(CALL_DRAWS, CALL_NUMBERS * total // max(1, sum(leaf.size for leaf in leaves))))
    parts = []
    for first in range(0, total, size):
        count = min(size, total - first)
        places = np.minimum(np.arange(first, first + size), total - 1)  # the last draw again, where there are no more
        made = each(jax.tree.map(lambda leaf, i=places: np.asarray(leaf[:, i[0] : i[-1] + 1])[:, i - i[0]], theta))
        parts.append(jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:, :n], made))
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)
