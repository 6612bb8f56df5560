"""Sums over all the data in double precision, whatever precision the run has: gradients and Hessians of the log likelihood.

They are made where the data lie, a slice of rows at a time. Only what has the size of theta comes back to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.data.arrays import is_stream
from inbounds.deadline import go_on
from inbounds.posterior import Posterior
from inbounds.precision import in_double
from inbounds.trees import PyTree

__all__ = ["FEWEST_ROWS", "MOST_ROWS", "Curvature", "Likelihood", "Part", "flat", "flattener", "in_doubles", "slices"]

SLICE_NUMBERS = 2**22  # of what a Hessian holds at once: rows times columns
MOST_ROWS, FEWEST_ROWS = 8_192, 256  # of a slice
NARROW = 16  # numbers in a row of data, up to which slices of large models have more rows
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
            _, gradient, hessian = Likelihood.of(posterior, theta).expansion(here)
            kept = (posterior.version, here, cls(gradient, hessian))
            posterior.compiled.curvature = kept
        found: Curvature = kept[2]
        return found


class Part(NamedTuple):
    """Some rows that stand for all of them.

    Args:
        rows: a tree like the data.
        scale: how many rows of the data each of them stands for.
    """

    rows: PyTree
    scale: float


class Likelihood:
    """The log likelihood of all the data as a function of a flat theta, and its derivatives; NumPy's doubles in and out.

    Every method reads all the data once, or those of a `Part` where one is given.

    Args:
        posterior: has a `log_likelihood` and data, or neither: then everything is zero.
        theta: a point with the structure and shapes of theta.
    """

    def __init__(self, posterior: Posterior, theta: PyTree):
        self.posterior = posterior
        self.dimension, self.unravel = flattener(theta)
        self._compiled: dict[str, Callable[..., Any]] = {}

    @classmethod
    def of(cls, posterior: Posterior, theta: PyTree) -> Likelihood:
        """The one of a posterior, which keeps what was compiled for it."""
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(theta))
        kept = posterior.compiled.likelihood
        if kept is None or kept[0] != shapes:
            kept = posterior.compiled.likelihood = (shapes, cls(posterior, theta))
        found: Likelihood = kept[1]
        return found

    def part(self, size: int, seed: int = 0) -> Part:
        """So many rows, picked at random."""
        total = self.posterior.num_data
        assert total is not None
        data = self.posterior.data
        if is_stream(data):
            return Part(data.look(size, seed), total / min(size, total))
        data = self.posterior.placed_data
        if size < total:
            data = trees.rows(data, np.sort(np.random.default_rng(seed).choice(total, size, replace=False)))
        return Part(data, total / size)

    def expansion(self, theta: np.ndarray, part: Part | None = None) -> tuple[float, np.ndarray, np.ndarray]:
        """Value, gradient and Hessian at a flat theta."""
        size = self.dimension
        shapes = ((), (size,), (size, size))
        value, gradient, hessian = self._sum("expansion", _expansion, shapes, theta, columns=size, part=part)
        return float(value), gradient, (hessian + hessian.T) / 2

    def slope(self, theta: np.ndarray, part: Part | None = None) -> tuple[float, np.ndarray]:
        """Value and gradient at a flat theta."""
        shapes = ((), (self.dimension,))
        value, gradient = self._sum("slope", _value_and_gradient, shapes, theta, columns=1, part=part)
        return float(value), gradient

    def products(self, theta: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """The Hessian at a flat theta times each row of `vectors`: one pass over the data for all of them."""
        vectors = np.asarray(vectors, np.float64)
        (found,) = self._sum("products", _products, (vectors.shape,), theta, vectors, columns=len(vectors))
        return found

    @property
    def _narrow(self) -> bool:
        """Whether rows have few numbers, as those of tables that are looked up."""
        data = self.posterior.data
        return not is_stream(data) and sum(leaf.size // len(leaf) for leaf in jax.tree.leaves(data)) <= NARROW

    def squares(self, theta: np.ndarray, probes: int, seed: int = 0) -> np.ndarray:
        """The sum of the squares of the gradients of single rows, coordinate by coordinate, in one pass.

        A slice shows it by so many sums of its rows with random signs: no gradient of a single row is made.
        """
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(probes, 8 * MOST_ROWS))
        (found,) = self._sum("squares", _squares, ((self.dimension,),), theta, signs, columns=probes)
        return found

    def _sum(
        self, name: str, function: Callable[..., tuple[jax.Array, ...]], shapes: tuple[tuple[int, ...], ...], *arguments: np.ndarray,
        columns: int, part: Part | None = None,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """`function(log likelihoods of the rows of a slice, *arguments)`, arrays of these shapes, summed over all slices."""
        likelihood = self.posterior.log_likelihood
        with in_double():
            arguments = tuple(np.asarray(a, np.float64) for a in arguments)
            total: tuple[Any, ...] = tuple(np.zeros(shape) for shape in shapes)
            if likelihood is None:
                return total

            if name not in self._compiled:

                def with_slice(
                    total: tuple[jax.Array, ...], arguments: tuple[jax.Array, ...], rows: PyTree, weights: jax.Array
                ) -> tuple[jax.Array, ...]:
                    rows = jax.tree.map(in_doubles, rows)

                    def terms(theta: jax.Array) -> jax.Array:
                        of_rows = likelihood(self.unravel(theta), rows)
                        return jnp.where(weights > 0, of_rows, 0.0).astype(jnp.float64)

                    return tuple(a + b for a, b in zip(total, function(terms, *arguments), strict=True))

                self._compiled[name] = jax.jit(with_slice)
            # What has the size of theta is made for every slice: a large one pays for more rows.
            most = MOST_ROWS * max(1, min(8, self.dimension // 2**16)) if self._narrow else MOST_ROWS
            size = max(FEWEST_ROWS, min(most // self.posterior.data_per_row, SLICE_NUMBERS // max(1, columns)))
            for rows, weights in slices(self.posterior, size, part):
                total = self._compiled[name](total, arguments, rows, weights)
            scale = 1.0 if part is None else part.scale
            return tuple(np.asarray(one) * scale for one in total)


def slices(posterior: Posterior, size: int, part: Part | None = None) -> Iterator[tuple[PyTree, np.ndarray]]:
    """All the rows once, in slices of one length: (rows, weights). Rows of weight 0 fill the last one."""
    total = posterior.num_data if part is None else len(jax.tree.leaves(part.rows)[0])
    assert total is not None
    size = min(size, total)
    data = posterior.data
    go_on()
    if is_stream(data) and part is None:
        for rows in data.slices(size):
            go_on()
            count = len(jax.tree.leaves(rows)[0])
            yield jax.tree.map(lambda leaf, n=size - count: _filled(leaf, n), rows), (np.arange(size) < count) * 1.0
        return
    data = posterior.placed_data if part is None else part.rows
    for start in range(0, total, size):
        go_on()
        first = min(start, total - size)  # the last slice begins earlier, and does not count the rows of the one before
        yield data if size == total else _cut(data, first, size), (np.arange(first, first + size) >= start) * 1.0


@partial(jax.jit, static_argnames="size")
def _cut(data: PyTree, first: jax.Array, size: int) -> PyTree:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), data)


def _filled(leaf: np.ndarray, more: int) -> np.ndarray:
    return leaf if not more else np.concatenate([leaf, np.repeat(leaf[-1:], more, axis=0)])


def in_doubles(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def flattener(theta: PyTree) -> tuple[int, Callable[[Any], PyTree]]:
    """(how many numbers a tree has, what makes such a tree of a vector of them); NumPy's arrays stay NumPy's."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(theta)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    treedef = jax.tree.structure(theta)

    def unravel(flat: Any) -> PyTree:
        # JAX would compile a program for each part.
        split = np.split if isinstance(flat, np.ndarray) else jnp.split
        parts = split(flat, np.cumsum(sizes)[:-1]) if len(sizes) > 1 else [flat]
        return jax.tree.unflatten(treedef, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])

    return sum(sizes), unravel


def flat(tree: PyTree) -> np.ndarray:
    """All the numbers of a tree as one vector of doubles."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


# Functions of the log likelihoods of some rows, themselves a function of a flat theta.

Terms = Callable[[jax.Array], jax.Array]


def _value_and_gradient(terms: Terms, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(_summed(terms))(theta)


def _expansion(terms: Terms, theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    (value, gradient), tangent = jax.linearize(jax.value_and_grad(_summed(terms)), theta)  # traced once for all three
    return value, gradient, _by_columns(lambda vector: tangent(vector)[1], jnp.eye(theta.size))


def _products(terms: Terms, theta: jax.Array, vectors: jax.Array) -> tuple[jax.Array]:
    def product(vector: jax.Array) -> jax.Array:
        _, turned = jax.jvp(jax.grad(_summed(terms)), (theta,), (vector,))
        return jnp.asarray(turned)

    return (_by_columns(product, vectors),)


def _by_columns(product: Callable[[jax.Array], jax.Array], vectors: jax.Array) -> jax.Array:
    if len(vectors) <= COLUMNS:
        return jax.vmap(product)(vectors)
    return jnp.asarray(jax.lax.map(product, vectors, batch_size=COLUMNS))


def _squares(terms: Terms, theta: jax.Array, signs: jax.Array) -> tuple[jax.Array]:
    found, pull = jax.vjp(terms, theta)

    def add(total: Any, of_rows: Any) -> Any:  # one after the other: each has the size of theta
        return total + jnp.square(pull(of_rows)[0]), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(theta), signs[:, : len(found)])
    return (total / len(signs),)


def _summed(terms: Terms) -> Terms:
    return lambda theta: jnp.sum(terms(theta))
