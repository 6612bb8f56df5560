r"""The integral over a group's effects: adaptive Gauss-Hermite quadrature around the group's mode, or Laplace's method.

Of a group with the joint log density $\ell(z)$ of its effects and its rows let $\hat z$ be the mode and $S S^T$ the inverse of minus the
Hessian there. With the nodes $x_j$ and weights $w_j$ of Gauss and Hermite

$$\log \int e^{\ell(z)} dz \approx \log \det(\sqrt 2 S) + \log \sum_j w_j \exp(|x_j|^2 + \ell(\hat z + \sqrt 2 S x_j)).$$

The rule is exact for any centre as the nodes grow, so no gradient goes through $\hat z$ and $S$. Laplace's method, which is the rule of one
node, is as good as its centre: there gradients go through both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["MOST_INTEGRATED", "Center", "Joint", "center_of", "expectations", "log_integral", "most_nodes", "nodes_for"]

MOST_INTEGRATED = 3  # effects per group up to which a product rule is used; beyond it Laplace's method
NODES = {1: 11, 2: 7, 3: 5}  # per effect
MOST_STEPS = 40  # of Newton's method
NEAR = 1e-2  # sds from the mode, within which it is found
LEAST_CURVATURE = 1e-2  # of minus the log density in an effect, for a step: a standard effect has 1 of its prior
LONGEST = 4.0  # a step in a standardised effect

Joint = Callable[[jax.Array], jax.Array]
"""From effects, axes (group, effect), to the joint log density of each group."""


class Center(NamedTuple):
    """Where the density of each group is.

    Attributes:
        mode: axes (group, effect).
        factor: S, lower triangular, axes (group, effect, effect).
    """

    mode: jax.Array
    factor: jax.Array


class _Look(NamedTuple):
    value: jax.Array  # (group,)
    gradient: jax.Array  # (group, effect)
    curvature: jax.Array  # (group, effect, effect): minus the Hessian


class _Search(NamedTuple):
    step: jax.Array
    at: jax.Array
    here: _Look
    share: jax.Array  # of a Newton step that is tried next, by group


def nodes_for(effects: int) -> int:
    """Nodes per effect; 1 is Laplace's method."""
    return NODES.get(effects, 1)


def most_nodes(effects: int, nodes: int) -> int:
    """Nodes of a finer rule, by which the error of one with `nodes` is seen."""
    return 2 * nodes + 1 if effects <= MOST_INTEGRATED else nodes + 2


def center_of(joint: Joint, start: jax.Array) -> Center:
    """The modes of all groups, by Newton's method with steps that are halved until they go uphill; no gradient goes through it.

    Args:
        joint: of all the groups. What it closes over must have been through `jax.lax.stop_gradient`.
        start: where the search begins, axes (group, effect).
    """

    def wanted(search: _Search) -> jax.Array:
        decrement = jnp.sum(_newton_step(search.here) * search.here.gradient, axis=-1)
        far = (decrement > NEAR**2) & (search.share > 1e-6)
        return (search.step == 0) | (search.step < MOST_STEPS) & jnp.any(far)

    def step(search: _Search) -> _Search:
        towards = jnp.clip(_newton_step(search.here), -LONGEST, LONGEST)
        at = search.at + search.share[:, None] * towards
        there = _look(joint, at)
        uphill = there.value >= search.here.value - 1e-5 * (1 + jnp.abs(search.here.value))
        here = jax.tree.map(lambda new, old: jnp.where(_like(uphill, new), new, old), there, search.here)
        share = jnp.where(uphill, jnp.minimum(1.0, 2 * search.share), search.share / 4)
        return _Search(search.step + 1, jnp.where(uphill[:, None], at, search.at), here, share)

    # Nothing is known of the start, so that the first step stays there: the joint density is compiled once.
    unknown = _Look(
        jnp.full_like(start[:, 0], -jnp.inf), jnp.zeros_like(start), start[:, :, None] * 0 + jnp.eye(start.shape[1])
    )
    begin = _Search(jnp.zeros((), int), start, unknown, jnp.ones_like(start[:, 0]))
    found = jax.lax.while_loop(wanted, step, begin)
    return Center(found.at, _inverse_root(_cholesky(found.here.curvature)))


def log_integral(joint: Joint, center: Center, nodes: int) -> jax.Array:
    """The log of each group's integral over its effects.

    Args:
        joint: of all the groups, with the parameters of which gradients are wanted.
        center: of `center_of`.
        nodes: per effect; 1 is Laplace's method.
    """
    effects = center.mode.shape[1]
    if nodes == 1:
        mode, curvature = _differentiable(joint, center)
        return joint(mode) + effects / 2 * math.log(2 * math.pi) - _log_det(_cholesky(curvature))
    x, log_weights = _rule(effects, nodes)
    values = jax.vmap(joint)(_places(center, x)) + jnp.asarray(log_weights, center.mode.dtype)[:, None]
    return jax.nn.logsumexp(values, axis=0) + _log_det(center.factor) + effects / 2 * math.log(2)


def expectations(joint: Joint, function: Callable[[jax.Array], Any], center: Center, nodes: int) -> tuple[Any, Any]:
    """Mean and variance of a function of the effects of each group, by the law of the effects given everything else.

    Args:
        joint: of all the groups.
        function: of effects, axes (group, effect): a tree of arrays whose first axis is the group.
        center: of `center_of`.
        nodes: per effect.
    """
    x, log_weights = _rule(center.mode.shape[1], nodes)
    places = _places(center, x)
    weights = jax.nn.softmax(jax.vmap(joint)(places) + jnp.asarray(log_weights, places.dtype)[:, None], axis=0)

    def averaged(values: jax.Array) -> jax.Array:
        return jnp.sum(_like(weights, values) * values, axis=0)

    values = jax.vmap(function)(places)
    mean = jax.tree.map(averaged, values)
    return mean, jax.tree.map(lambda x, m: averaged((x - m) ** 2), values, mean)


def _rule(effects: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """(nodes, logs of their weights with what adaptive quadrature adds) of the product rule."""
    x, w = np.polynomial.hermite.hermgauss(nodes)
    grid = np.stack(np.meshgrid(*[x] * effects, indexing="ij"), axis=-1).reshape(-1, effects)
    logs = np.stack(np.meshgrid(*[np.log(w) + x**2] * effects, indexing="ij"), axis=-1).reshape(-1, effects)
    return grid, logs.sum(axis=1)


def _places(center: Center, x: np.ndarray) -> jax.Array:
    """Effects at the nodes, axes (node, group, effect)."""
    at = jnp.asarray(x, center.mode.dtype)
    return center.mode + math.sqrt(2) * jnp.einsum("gij,nj->ngi", center.factor, at)


def _look(joint: Joint, z: jax.Array) -> _Look:
    def gradient(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, pull = jax.vjp(joint, z)
        return pull(jnp.ones_like(values))[0], values

    found, turn, values = jax.linearize(gradient, z, has_aux=True)
    # Groups know nothing of each other: one direction for all of them shows a column of each Hessian.
    columns = jax.vmap(lambda e: turn(jnp.broadcast_to(e, z.shape)))(jnp.eye(z.shape[1], dtype=z.dtype))
    curvature = -jnp.moveaxis(columns, 0, -1)
    return _Look(values, found, (curvature + jnp.swapaxes(curvature, 1, 2)) / 2)


def _differentiable(joint: Joint, center: Center) -> tuple[jax.Array, jax.Array]:
    """Mode and curvature as functions of the parameters: of two Newton steps from the mode, first and second derivatives are right."""
    z = center.mode
    for _ in range(2):
        z = z + _newton_step(_look(joint, z))
    return z, _look(joint, z).curvature


def _newton_step(look: _Look) -> jax.Array:
    root = _inverse_root(_cholesky(look.curvature))
    return jnp.einsum("gij,gkj,gk->gi", root, root, look.gradient)


# Matrices of a few effects, entry by entry: for many small ones that is far faster than LAPACK, and it cannot fail.


def _cholesky(matrices: jax.Array) -> jax.Array:
    """Lower factors; pivots that are too small, or negative, are put at the least."""
    size = matrices.shape[-1]
    rows: list[list[jax.Array]] = []
    for i in range(size):
        row: list[jax.Array] = []
        for j in range(i):
            rest = sum((row[k] * rows[j][k] for k in range(j)), jnp.zeros_like(matrices[:, 0, 0]))
            row.append((matrices[:, i, j] - rest) / rows[j][j])
        pivot = matrices[:, i, i] - sum((x**2 for x in row), jnp.zeros_like(matrices[:, 0, 0]))
        row.append(jnp.sqrt(jnp.maximum(pivot, LEAST_CURVATURE)))
        rows.append(row)
    zero = jnp.zeros_like(matrices[:, 0, 0])
    return jnp.stack([jnp.stack([*row, *[zero] * (size - len(row))], axis=-1) for row in rows], axis=-2)


def _inverse_root(lower: jax.Array) -> jax.Array:
    """S with S S^T the inverse of C C^T: the transpose of the inverse of C."""
    size = lower.shape[-1]
    inverse: list[list[jax.Array]] = [[jnp.zeros_like(lower[:, 0, 0])] * size for _ in range(size)]
    for j in range(size):
        inverse[j][j] = 1 / lower[:, j, j]
        for i in range(j + 1, size):
            inverse[i][j] = -sum((lower[:, i, k] * inverse[k][j] for k in range(j, i)), 0.0) / lower[:, i, i]
    return jnp.swapaxes(jnp.stack([jnp.stack(row, axis=-1) for row in inverse], axis=-2), 1, 2)


def _log_det(triangular: jax.Array) -> jax.Array:
    return jnp.sum(jnp.log(jnp.diagonal(triangular, axis1=1, axis2=2)), axis=-1)


def _like(flags: jax.Array, array: jax.Array) -> jax.Array:
    """With as many axes as the array."""
    return flags.reshape(flags.shape + (1,) * (array.ndim - flags.ndim))
