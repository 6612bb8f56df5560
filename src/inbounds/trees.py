"""Pytrees of parameters: what their leaves are called, and arithmetic on whole trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "PyTree",
    "alike",
    "all_finite",
    "broadcast_prefix",
    "cut_like",
    "is_traced",
    "mean",
    "norm",
    "ravel",
    "rows",
    "size",
    "some_draws",
    "spread",
    "variable_name",
]

PyTree = Any


def variable_name(path: tuple[Any, ...]) -> str:
    """'layers/0/weight' for a JAX key path."""
    parts = []
    for key in path:
        for attribute in ("key", "name", "idx"):
            if hasattr(key, attribute):
                parts.append(str(getattr(key, attribute)))
                break
        else:
            parts.append(str(key))
    return "/".join(parts) or "theta"


def is_traced(tree: PyTree) -> bool:
    """Whether values of a tree are not known, because a program is being traced."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def alike(tree: PyTree, other: PyTree) -> bool:
    """Whether two trees have the same structure."""
    structure: Any = jax.tree.structure(tree)
    return bool(structure == jax.tree.structure(other))


def broadcast_prefix(prefix: PyTree, tree: PyTree, is_leaf: Callable[..., Any] | None = None) -> PyTree:
    """Repeat each leaf of `prefix` over the subtree of `tree` below it."""
    return jax.tree.map(lambda p, sub: jax.tree.map(lambda _: p, sub), prefix, tree, is_leaf=is_leaf)


def spread(prefix: PyTree, tree: PyTree, what: str) -> PyTree:
    """A number or an array for every leaf, of a prefix of the tree, as arrays with the shapes and dtypes of the whole.

    `what` names it where it does not fit.
    """

    def over(value: Any, subtree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(value, leaf.dtype), leaf.shape), subtree)

    try:
        return jax.tree.map(over, prefix, tree)
    except ValueError as error:
        shapes = ", ".join(
            f"{variable_name(path)} {leaf.shape}" for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        )
        raise ValueError(f"{what} must be one number or array for each of the variables: {shapes}. {error}") from error


def cut_like(tree: PyTree, flat: jax.Array) -> PyTree:
    """A vector of all the numbers of a tree, cut into leaves of its shapes."""
    leaves, treedef = jax.tree.flatten(tree)
    parts, start = [], 0
    for leaf in leaves:
        parts.append(flat[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(treedef, parts)


def size(tree: PyTree) -> int:
    """How many numbers a tree holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def ravel(tree: PyTree) -> jax.Array:
    """All the numbers of a tree, as `cut_like` takes them."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


@jax.jit
def rows(tree: PyTree, places: jax.Array) -> PyTree:
    """These rows of every leaf: one program for all of them, whatever the tree."""
    return jax.tree.map(lambda leaf: leaf[places], tree)


def norm(tree: PyTree) -> jax.Array:
    """Euclidean norm over all leaves."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def mean(tree: PyTree) -> jax.Array:
    """Mean over all the numbers of a tree."""
    return jnp.sum(jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(tree)])) / size(tree)


def all_finite(tree: PyTree) -> jax.Array:
    """Whether every number of a tree is finite."""
    flags = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack(flags))


def some_draws(tree: PyTree, most: int) -> PyTree:
    """So many draws at most of arrays with the axes (chain, draw, ...), from the first to the last, chains in turn; leading axis = draw."""

    def some(leaf: Any) -> np.ndarray:
        chains, draws = leaf.shape[:2]
        number = np.linspace(0, chains * draws - 1, min(most, chains * draws)).astype(int)
        picked: np.ndarray = np.asarray(leaf)[number % chains, number // chains]
        return picked

    return jax.tree.map(some, tree)
