r"""Which transform each bounded variable moves through: the one in which its draws look most like a normal law.

Mass that lies at a bound is far from normal under a transform that goes like an exponential there, and so is mass in a layer thinner or
thicker than that of the transform. Draws of theta are the same whatever they were made with. So a first window of them shows how each
choice would look, with no run of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import transforms as tf
from inbounds.engine.plain import Plain
from inbounds.engine.platform import here
from inbounds.precision import in_double
from inbounds.space import Space, is_constraint
from inbounds.trees import PyTree, variable_name

__all__ = ["rounder", "with_scales"]

HALF_LINES = (tf.Softplus, tf.IntegratedProbit, tf.Exp)
INTERVALS = (tf.Sigmoid, tf.Probit)
LAYERS = (1.0, 3.0)  # scales of transforms onto half lines, in sds of theta
TOLERATED = (
    0.3  # squared skewness and a quarter of the squared excess kurtosis, up to which a variable keeps its transform
)
BETTER = 0.5  # of that, at which another takes its place
WORST = 25.0  # so that one number does not decide for all
EXPONENTIAL = 0.5  # what is gained by the exponential, which is not Lipschitz, over the best of the others


def rounder(space: Space, theta: PyTree, phi: PyTree) -> tuple[Space, dict[str, str]] | None:
    """The space with better transforms, and their names by variable; None where those that it has will do.

    Args:
        space: as it was.
        theta: draws, axes (chain, draw, ...).
        phi: their proxies in this space.
    """
    supports, treedef = jax.tree.flatten(space.supports, is_leaf=is_constraint)
    structure: Any = treedef
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(space.supports, is_leaf=is_constraint)]
    draws, proxies = (structure.flatten_up_to(tree) for tree in (theta, phi))
    chosen, names = [], {}
    for path, support, now, below, moved in zip(paths, supports, space.leaves(), draws, proxies, strict=True):
        better = _better(support, now, jax.tree.leaves(below), jax.tree.leaves(moved))
        chosen.append(now if better is None else better)
        if better is not None:
            names[variable_name(path)] = better.name
    if not names:
        return None
    return Space(space.supports, jax.tree.unflatten(treedef, chosen)), names


def with_scales(space: Space, theta: PyTree) -> PyTree:
    """The transforms of a space, with an array where `rounder` may put other scales: so that these compile nothing.

    Args:
        space: how the posterior is kept in bounds.
        theta: a point.
    """
    supports, treedef = jax.tree.flatten(space.supports, is_leaf=is_constraint)
    structure: Any = treedef
    placed = []
    for support, now, below in zip(supports, space.leaves(), structure.flatten_up_to(theta), strict=True):
        leaves, scaled = jax.tree.leaves(below), isinstance(now, tf.HalfLine) and not isinstance(now, tf.Exp)
        if scaled and len(leaves) == 1 and np.ndim(now.scale) == 0:
            now = tf.onto(support, type(now), scale=np.full(np.shape(leaves[0]), now.scale, jnp.result_type(float)))
        placed.append(now)
    return jax.tree.unflatten(treedef, placed)


def _better(support: Any, now: Any, leaves: list[Any], proxies: list[Any]) -> Any:
    """A transform in which these variables are much more like normal ones; None where there is no such."""
    kinds = HALF_LINES if isinstance(now, tf.HalfLine) else INTERVALS if isinstance(now, tf.Interval) else ()
    if not kinds or not leaves:
        return None
    score = _departure(proxies)
    if score <= TOLERATED:
        return None
    scales: list[Any] = [None]
    if len(leaves) == 1 and isinstance(now, tf.HalfLine):
        scales = [width * _spread(leaves[0]) for width in LAYERS]
    candidates = [tf.onto(support, kind, scale=c) for kind in kinds for c in ([None] if kind is tf.Exp else scales)]
    scores = [
        _departure(_proxies(one, leaves))
        / (EXPONENTIAL if isinstance(one, tf.Exp) and not isinstance(now, tf.Exp) else 1)
        for one in candidates
    ]
    best = int(np.argmin(scores))
    return candidates[best] if scores[best] < BETTER * score else None


def _spread(leaf: Any) -> np.ndarray:
    """The sd of each number, in the precision of a run."""
    found = np.std(np.asarray(leaf, np.float64), axis=(0, 1))
    return np.asarray(np.maximum(found, np.finfo(np.float32).tiny * 1e6), jnp.result_type(float))


def _proxies(transform: Any, leaves: list[Any]) -> list[np.ndarray]:
    with in_double():
        return [np.asarray(_compiled(here())(transform, np.asarray(leaf, np.float64))) for leaf in leaves]


def _inverse(transform: Any, theta: jax.Array) -> jax.Array:
    found: jax.Array = transform.inv(theta)
    return found


@cache
def _compiled(form: Plain) -> Callable[[Any, np.ndarray], jax.Array]:
    """One program for all the scales of a transform."""
    return jax.jit(_inverse, compiler_options=form.few_calls or None)


def _departure(proxies: list[Any]) -> float:
    """How far they are from normal, on average over the numbers."""
    found = []
    for leaf in proxies:
        phi = np.asarray(leaf, np.float64)
        phi = phi.reshape(phi.shape[0] * phi.shape[1], -1)
        with np.errstate(all="ignore"):
            z = (phi - phi.mean(axis=0)) / phi.std(axis=0)
            skewness, kurtosis = np.mean(z**3, axis=0), np.mean(z**4, axis=0) - 3
        found.append(np.minimum(np.nan_to_num(skewness**2 + kurtosis**2 / 4, nan=WORST), WORST))
    return float(np.mean(np.concatenate(found)))
