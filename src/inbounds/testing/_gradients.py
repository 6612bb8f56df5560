"""Is a gradient estimator unbiased, and does it show the noise that it has?"""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.gradients import GradientEstimator, full_gradient
from inbounds.gradients._base import GradientFactory
from inbounds.posterior import Posterior
from inbounds.testing._expectations import expect, expect_close
from inbounds.trees import PyTree


def check_gradient(
    gradient: GradientFactory,
    posterior: Posterior,
    theta: PyTree,
    *,
    batch_size: int = 8,
    shows_noise: bool = True,
    steps: int = 20_000,
    seed: int = 0,
) -> None:
    """Whether a gradient estimator is unbiased, and shows the noise that it has.

    Its mean over all minibatches that an epoch may show is the gradient over all the data. That holds at first, in another state, after a
    refresh, and once the data have been replaced (unless it has `data_version`: its kernel is refused then). The outer products of its
    differences have the covariance of the estimate as their mean. Its state keeps its shapes and dtypes.

    Args:
        gradient: what a kernel takes as `gradient`.
        posterior: one with a few hundred rows of data in memory.
        theta: where; not where the estimator is centred.
        batch_size: rows per minibatch.
        shows_noise: whether it has differences, for kernels with `noise_correction=True`.
        steps: minibatches from which the covariance is estimated.
        seed: of these minibatches.

    Raises:
        AssertionError: something is not as it should be.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=200).astype(np.float32)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, lambda t, x: jnp.log(t["rate"]) - t["rate"] * x, spent)
        >>> ib.testing.check_gradient(ib.gradients.minibatch, posterior, {"rate": 0.7})
    """
    theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), theta)
    estimator = gradient(posterior)
    expect(0 <= estimator.smoothing < 1, f"`smoothing` must be in [0, 1); got {estimator.smoothing}")
    state = estimator.init(theta, shows_noise)
    _check_unbiased(estimator, posterior, state, theta, batch_size, shows_noise, "")
    elsewhere = jax.tree.map(lambda leaf: 1.1 * leaf, theta)
    refreshed = estimator.refresh(state, elsewhere)
    _check_same_shapes(state, refreshed, "`refresh`")
    _check_unbiased(estimator, posterior, refreshed, theta, batch_size, shows_noise, "after a refresh elsewhere, ")
    if shows_noise:
        _check_differences(estimator, posterior, state, theta, batch_size, steps, seed)
    _check_other_data(gradient, posterior, theta, batch_size)


def _check_unbiased(
    estimator: GradientEstimator,
    posterior: Posterior,
    state: Any,
    theta: PyTree,
    batch_size: int,
    with_noise: bool,
    when: str,
) -> None:
    """Over all windows of a ring of rows: every row is in as many of them as any other."""
    assert posterior.num_data is not None
    windows = (np.arange(posterior.num_data)[:, None] + np.arange(batch_size)) % posterior.num_data
    rows_of = _rows_of(posterior)

    def one(rows: jax.Array) -> Any:
        found, after = estimator.estimate(state, theta, rows_of(rows), with_noise)
        return found.value, estimator.estimate(after, theta, rows_of(rows), with_noise)[0].value

    def largest(tree: PyTree) -> float:
        return max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(tree))

    expected = full_gradient(posterior, theta)
    for values in jax.jit(jax.vmap(one))(windows):
        expect(
            trees.alike(values, expected),
            f"{when}the estimate has the structure {jax.tree.structure(values)}, theta {jax.tree.structure(expected)}",
        )
        for (path, found), exact in zip(
            jax.tree_util.tree_leaves_with_path(values), jax.tree.leaves(expected), strict=True
        ):
            name = trees.variable_name(path)
            expect(found.dtype == exact.dtype, f"{when}the gradient of {name!r} is in {found.dtype}")
            what = (
                f"{when}the mean over all minibatches of the gradient of {name!r} is not the gradient over all the data"
            )
            expect_close(jnp.mean(found, axis=0), exact, what, rtol=1e-3, atol=3e-4 * largest(found))


def _check_differences(
    estimator: GradientEstimator,
    posterior: Posterior,
    state: Any,
    theta: PyTree,
    batch_size: int,
    steps: int,
    seed: int,
) -> None:
    rows = np.random.default_rng(seed).integers(0, posterior.num_data, (steps, batch_size))
    rows_of = _rows_of(posterior)

    def step(state: Any, rows: jax.Array) -> Any:
        found, state = estimator.estimate(state, theta, rows_of(rows), True)
        return state, (found.value, found.differences, jnp.asarray(found.weight))

    after, (first, shown, _) = jax.eval_shape(step, state, rows[0])
    _check_same_shapes(state, after, "`estimate`")
    expect(
        trees.alike(first, shown),
        "asked for its noise, the estimator returns no `differences` like its value: `noise_correction=True` cannot work",
    )
    _, (values, differences, weight) = jax.jit(lambda rows: jax.lax.scan(step, state, rows))(rows)
    flat, weight = _flat(differences, 2), np.asarray(weight, float)
    covariance = np.einsum("s,ski,skj->ij", weight, flat, flat) / weight.sum()
    truth = np.atleast_2d(np.cov(_flat(values, 1).T))
    size = np.sqrt(np.diag(truth))
    floor = 1e-5 * np.max(np.abs(_flat(values, 1)))  # what rounding leaves of an estimate without noise
    scale = np.outer(np.maximum(size, floor), np.maximum(size, floor))
    expect_close(
        covariance / scale,
        truth / scale,
        "the outer products of `differences` do not have the covariance of the estimate as their mean (in units of its sds)",
        rtol=0.0,
        atol=0.06,
    )


def _check_other_data(gradient: GradientFactory, posterior: Posterior, theta: PyTree, batch_size: int) -> None:
    other = copy.copy(posterior)
    estimator = gradient(other)
    # Lasting parts of the estimator were made of the first data; a chain begins with the second.
    other.data = jax.tree.map(lambda leaf: np.resize(leaf[: max(1, len(leaf) // 3)], np.shape(leaf)), posterior.data)
    if getattr(estimator, "data_version", None) not in (None, other.version):
        return
    state = estimator.init(theta, False)
    when = (
        "when the data have been replaced after it was made (set `data_version`, if it keeps what it found in them), "
    )
    _check_unbiased(estimator, other, state, theta, batch_size, False, when)


def _rows_of(posterior: Posterior) -> Any:
    data = posterior.placed_data
    return lambda rows: jax.tree.map(lambda leaf: leaf[rows], data)


def _check_same_shapes(before: Any, after: Any, what: str) -> None:
    def shapes(tree: Any) -> Any:
        return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]

    before, after = (jax.eval_shape(lambda tree=tree: tree) for tree in (before, after))
    same = trees.alike(before, after) and shapes(before) == shapes(after)
    expect(same, f"{what} changes the structure, shapes or dtypes of the state: {before} becomes {after}")


def _flat(tree: PyTree, axes: int) -> np.ndarray:
    """The leaves of a tree with so many leading axes, end to end."""
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:axes], -1) for leaf in leaves], axis=-1)
