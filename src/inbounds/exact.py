"""Sums over all the data in double precision, whatever precision the run has: gradients and Hessians of the log likelihood.

They are made where the data lie, a slice of rows at a time. Only what has the size of theta comes back to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.data.arrays import is_stream
from inbounds.posterior import Posterior
from inbounds.trees import PyTree

SLICE_NUMBERS = 2**22  # of what a Hessian holds at once: rows times columns
MOST_ROWS, FEWEST_ROWS = 8_192, 256  # of a slice
COLUMNS = 128  # of a Hessian that are made at once


class Curvature(NamedTuple):
    """Gradient and Hessian of the log likelihood of all the data at a point."""

    gradient: np.ndarray
    hessian: np.ndarray

    @classmethod
    def of(cls, posterior: Posterior, theta: PyTree) -> Curvature:
        """At theta. The last one is kept with the posterior: a metric and a control variate ask for the same."""
        here, kept = flat(theta), posterior.compiled.curvature
        if kept is None or kept[0] != posterior.version or not np.array_equal(kept[1], here):
            likelihood = Likelihood(posterior, theta)
            kept = (posterior.version, here, cls(likelihood.gradient(here), likelihood.hessian(here)))
            posterior.compiled.curvature = kept
        return kept[2]


class Likelihood:
    """The log likelihood of all the data as a function of a flat theta, and its derivatives; NumPy's doubles in and out.

    Args:
        posterior: has a `log_likelihood` and data, or neither: then everything is zero.
        theta: a point with the structure and shapes of theta.
    """

    def __init__(self, posterior: Posterior, theta: PyTree):
        self.posterior = posterior
        self.dimension, self.unravel = flattener(theta)
        self._compiled: dict[str, Callable] = {}

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """The gradient at a flat theta."""
        return self._sum("gradient", _gradient, theta, columns=1)

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """The Hessian at a flat theta, symmetric."""
        hessian = self._sum("hessian", _hessian, theta, columns=self.dimension)
        return (hessian + hessian.T) / 2

    def products(self, theta: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """The Hessian at a flat theta times each row of `vectors`: one pass over the data for all of them."""
        return self._sum("products", _products, theta, np.asarray(vectors, np.float64), columns=len(vectors))

    def value(self, theta: np.ndarray) -> float:
        """The log likelihood at a flat theta."""
        return float(self._sum("value", _value, theta, columns=1))

    def _sum(self, name: str, function: Callable, *arguments: np.ndarray, columns: int) -> np.ndarray:
        """`function(log likelihood of a slice, *arguments)`, summed over all slices."""
        likelihood = self.posterior.log_likelihood
        with jax.enable_x64(True):
            arguments = tuple(np.asarray(a, np.float64) for a in arguments)
            if likelihood is None:
                return np.asarray(function(lambda theta: jnp.zeros(()), *arguments))

            if name not in self._compiled:

                def of_slice(arguments, rows, weights):
                    rows = jax.tree.map(_in_double, rows)

                    def log_likelihood(theta):
                        terms = likelihood(self.unravel(theta), rows)
                        return jnp.sum(jnp.where(weights > 0, terms, 0.0), dtype=jnp.float64)

                    return function(log_likelihood, *arguments)

                self._compiled[name] = jax.jit(of_slice)
            size = max(FEWEST_ROWS, min(MOST_ROWS, SLICE_NUMBERS // max(1, columns)))
            total: Any = 0.0
            for rows, weights in slices(self.posterior, size):
                total = total + self._compiled[name](arguments, rows, weights)
            return np.asarray(total)


def slices(posterior: Posterior, size: int) -> Iterator[tuple[PyTree, np.ndarray]]:
    """All the rows once, in slices of one length: (rows, weights). Rows of weight 0 fill the last one."""
    total = posterior.num_data
    assert total is not None
    size = min(size, total)
    data = posterior.data
    if is_stream(data):
        for rows in data.slices(size):
            count = len(jax.tree.leaves(rows)[0])
            yield jax.tree.map(lambda leaf, n=size - count: _filled(leaf, n), rows), (np.arange(size) < count) * 1.0
        return
    data = posterior.placed_data
    for start in range(0, total, size):
        first = min(start, total - size)  # the last slice begins earlier, and does not count the rows of the one before
        rows = jax.tree.map(lambda leaf, i=first: jax.lax.dynamic_slice_in_dim(leaf, i, size), data)
        yield rows, (np.arange(first, first + size) >= start) * 1.0


def _filled(leaf: np.ndarray, more: int) -> np.ndarray:
    return leaf if not more else np.concatenate([leaf, np.repeat(leaf[-1:], more, axis=0)])


def _in_double(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def flattener(theta: PyTree) -> tuple[int, Callable[[jax.Array], PyTree]]:
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(theta)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    treedef = jax.tree.structure(theta)

    def unravel(flat: jax.Array) -> PyTree:
        parts = jnp.split(flat, np.cumsum(sizes)[:-1]) if len(sizes) > 1 else [flat]
        return jax.tree.unflatten(treedef, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])

    return sum(sizes), unravel


def flat(tree: PyTree) -> np.ndarray:
    """All the numbers of a tree as one vector of doubles."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def _value(f: Callable, theta: jax.Array) -> jax.Array:
    return f(theta)


def _gradient(f: Callable, theta: jax.Array) -> jax.Array:
    return jax.grad(f)(theta)


def _hessian(f: Callable, theta: jax.Array) -> jax.Array:
    return _products(f, theta, jnp.eye(theta.size))


def _products(f: Callable, theta: jax.Array, vectors: jax.Array) -> jax.Array:
    def product(vector):
        return jax.jvp(jax.grad(f), (theta,), (vector,))[1]

    if len(vectors) <= COLUMNS:
        return jax.vmap(product)(vectors)
    return jax.lax.map(product, vectors, batch_size=COLUMNS)
