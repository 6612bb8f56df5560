"""Pytrees of parameters: what their leaves are called, and arithmetic on whole trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


def variable_name(path: tuple) -> str:
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


def broadcast_prefix(prefix: PyTree, tree: PyTree, is_leaf: Callable | None = None) -> PyTree:
    """Repeat each leaf of `prefix` over the subtree of `tree` below it."""
    return jax.tree.map(lambda p, sub: jax.tree.map(lambda _: p, sub), prefix, tree, is_leaf=is_leaf)


def normal_like(key: jax.Array, tree: PyTree) -> PyTree:
    """Independent standard normals of the shapes and dtypes of `tree`."""
    leaves, treedef = jax.tree.flatten(tree)
    keys = [key] if len(leaves) == 1 else list(jax.random.split(key, len(leaves)))
    draws = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(treedef, draws)


def size(tree: PyTree) -> int:
    """How many numbers a tree holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def norm(tree: PyTree) -> jax.Array:
    """Euclidean norm over all leaves."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def mean(tree: PyTree) -> jax.Array:
    """Mean over all the numbers of a tree."""
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree)) / size(tree)


def all_finite(tree: PyTree) -> jax.Array:
    """Whether every number of a tree is finite."""
    flags = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack(flags))
