"""What the doctor looks at: the drift of what a kernel moves, from minibatches such as those of a run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from inbounds import trees
from inbounds.arguments import whole_number
from inbounds.data.arrays import at_hand, is_stream, source_for
from inbounds.kernels import Kernel
from inbounds.sampling.driver import minibatches_of
from inbounds.sampling.probe import linear_part
from inbounds.space import Space, is_constraint, is_transform
from inbounds.trees import PyTree, variable_name

POOL_ROWS = 200_000  # of all the minibatches that are looked at together
MOST_BATCHES, FEWEST_BATCHES = 128, 16
HESSIAN_ROWS = 4_096  # of minibatches that a Hessian is made of


class Patient:
    """A kernel with its posterior at a point: drifts there, and minibatches.

    Flat vectors are of what the kernel moves: phi, or the coordinates of its metric.

    Args:
        kernel: what is to run.
        batch_size: rows of a minibatch, as for `ib.sample`.
        init: theta where to look; None: near the middle of the prior.
        seed: of start and minibatches.
    """

    def __init__(self, kernel: Kernel, batch_size: int | None, init: PyTree, seed: int):
        self.kernel, self.posterior, self.space = kernel, kernel.posterior, kernel.space
        self.estimator, self.seed = kernel.estimator, whole_number("seed", seed, 0)
        self.temperature = 1.0 if kernel.one_temperature is None else kernel.one_temperature
        key = jax.random.key(self.seed)
        start = self.posterior.start(key) if init is None else init
        self.init = init
        self.theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), start)
        self.space.check(self.theta)
        rows = self.posterior.num_data
        size, _ = minibatches_of(kernel, batch_size, None)
        self.batch_size = rows if size is None else size
        self.pool = self._draw_pool(key)
        self.posterior.check_likelihood(self.theta, self.batch())
        self.flat, self.unravel = ravel_pytree(self.moving_of(self.theta))
        self.state = self.estimator.init(self.theta, False)

    def moving_of(self, theta: PyTree) -> PyTree:
        """What the kernel moves, of theta: in one program, but for a metric, which may be large."""
        if self.space is not self.space.of_proxy:
            return self.space.unconstrain(theta)
        return self.posterior.compiled.of(_moving, self.space)(theta)

    def move_to(self, flat: jax.Array) -> None:
        """Look from here on. Estimators that look at all the data do so here, as SVRG does now and then."""
        self.flat = flat
        self.theta = jax.jit(lambda p: self.space.constrain(self.unravel(p)))(flat)
        if self.estimator.refresh_every is not None:
            self.state = jax.jit(lambda p: self.estimator.init(self.space.evaluation_point(self.unravel(p)), False))(
                flat
            )

    @property
    def has_noise(self) -> bool:
        """A batch of all the data has none."""
        rows = self.posterior.num_data
        return self.posterior.data is not None and (rows is None or self.batch_size is None or self.batch_size < rows)

    def _draw_pool(self, key: jax.Array) -> PyTree:
        """Independent minibatches, leading axis = minibatch; all the data once where a minibatch has them; None without data."""
        data = self.posterior.data
        if data is None:
            return None
        size = self.batch_size
        if is_stream(data):
            self.batch_size = size = 100 if size is None else size
        count = max(FEWEST_BATCHES, min(MOST_BATCHES, POOL_ROWS // (size or 1))) if self.has_noise else 1
        batching = "replacement" if self.has_noise else "epochs"
        source = source_for(at_hand(data, max(POOL_ROWS, size or 0)), size, batching)
        arrays = source.prepare(key)
        return jax.jit(lambda: jax.vmap(source.fetch, in_axes=(None, 0))(arrays, source.plan(key, jnp.arange(count))))()

    def batches(self, most: int) -> PyTree:
        """Up to so many minibatches, leading axis = minibatch: always the same ones. None without data."""
        return jax.tree.map(lambda leaf: leaf[:most], self.pool)

    def batch(self, number: Any = 0) -> PyTree:
        """One minibatch of the pool, round and round."""
        return jax.tree.map(lambda leaf: leaf[number % leaf.shape[0]], self.pool)

    def gradient(self, theta: PyTree, batch: PyTree) -> PyTree:
        """The kernel's estimate of the gradient in theta."""
        return self.estimator.estimate(self.state, theta, batch, False)[0].value

    def drift(self, flat: jax.Array, batch: PyTree) -> jax.Array:
        """The drift of what moves."""
        return self.drift_by(self.estimator, self.state, flat, batch)

    def drift_by(self, estimator: Any, state: Any, flat: jax.Array, batch: PyTree) -> jax.Array:
        """The same with another estimator."""
        tree = self.unravel(flat)
        theta = self.space.evaluation_point(tree)
        gradient = estimator.estimate(state, theta, batch, False)[0].value
        return ravel_pytree(self.space.pull_back(tree, theta, gradient, self.temperature))[0]

    def mean_drift(self, flat: jax.Array) -> jax.Array:
        """The drift from enough minibatches to be nearly exact."""
        batches = self.batches(max(1, min(64, HESSIAN_ROWS // (self.batch_size or 64))))
        if batches is None:
            return self.drift(flat, None)
        return jnp.mean(jax.vmap(lambda batch: self.drift(flat, batch))(batches), axis=0)

    def log_density(self, flat: jax.Array, batch: PyTree) -> jax.Array:
        """Of what moves, from one minibatch; the posterior has one."""
        tree = self.unravel(flat)
        theta = self.space.evaluation_point(tree)
        return self.posterior.log_density(theta, batch) + self.space.log_abs_det_jacobian(self.space.proxy(tree))

    @cached_property
    def linear(self) -> tuple[np.ndarray, np.ndarray] | None:
        """c and L of the kernel's metric, in double precision; None where phi itself is moved."""
        return linear_part(self.space, self.unravel(self.flat))

    def variables(self) -> Iterator[tuple[str, Any, Any, jax.Array]]:
        """(name, support, transform, theta) of every leaf of theta."""
        supports = trees.broadcast_prefix(self.posterior.supports, self.theta, is_leaf=is_constraint)
        transforms = trees.broadcast_prefix(self.space.transforms, self.theta, is_leaf=is_transform)
        for (path, theta), support, transform in zip(
            jax.tree_util.tree_leaves_with_path(self.theta),
            jax.tree.leaves(supports, is_leaf=is_constraint),
            jax.tree.leaves(transforms, is_leaf=is_transform),
            strict=True,
        ):
            yield variable_name(path), support, transform, theta


def _moving(space: Space, theta: PyTree) -> PyTree:
    return space.unconstrain(theta)
