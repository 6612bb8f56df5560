"""What metrics are made of: the proxy's Hessian at a point, and trees of phi as vectors."""

from __future__ import annotations

from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import trees
from inbounds.exact import Curvature, Likelihood, flat, flattener
from inbounds.posterior import Posterior
from inbounds.precision import in_double
from inbounds.space import Space
from inbounds.trees import PyTree, variable_name

SAME = 1e-3  # of what differs between two computations of one metric, in its own units


class Reference:
    """The proxy's Hessian at a point, from the likelihood's in theta over all the data, in double precision.

    Args:
        posterior: what is sampled.
        space: how it is kept in bounds.
        theta: where; rounded to the precision of a run first, so that it has exactly this point.
    """

    def __init__(self, posterior: Posterior, space: Space, theta: PyTree):
        self.posterior, self.space = posterior, space
        self.theta = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(float)).astype(np.float64), theta)
        with in_double():
            self.phi = jax.tree.map(np.asarray, space.unconstrain(self.theta))
        self.dimension, self._unravel = flattener(self.phi)
        self._gradient: np.ndarray | None = None
        # Made here, so that what is compiled for one point serves others (`at`).
        self._constrained, self._moved, self._rest = (
            jax.jit(space.constrain),
            jax.jit(self._moves),
            jax.jit(self._bends),
        )

    def at(self, phi: PyTree) -> Reference:
        """The same at another point of the proxy, with what was compiled for this one.

        Args:
            phi: the point, a tree of unbounded arrays.

        Returns:
            A reference there.
        """
        other = copy(self)
        other.phi = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), phi)
        with in_double():
            other.theta = jax.tree.map(np.asarray, self._constrained(other.phi))
        other._gradient = None
        return other

    def names(self) -> list[str]:
        """The variable of each coordinate of phi."""
        leaves = jax.tree_util.tree_leaves_with_path(self.phi)
        return [variable_name(path) for path, leaf in leaves for _ in range(np.size(leaf))]

    def products(self, vectors: np.ndarray) -> np.ndarray:
        """The same Hessian times each row of `vectors`: one pass over the data for all of them, and one for the gradient before the first.

        Args:
            vectors: one per row, with an entry per coordinate of phi.

        Returns:
            One product per row.
        """
        with in_double():
            moved = np.asarray(self._moved(flat(self.phi), vectors))
        curved = self._likelihood.products(flat(self.theta), moved)
        return self._with_the_rest(vectors, curved)

    def products_of_prior(self, vectors: np.ndarray) -> np.ndarray:
        """The same of the Hessian without the data: that of the prior and the Jacobian.

        Args:
            vectors: rows of the size of phi.

        Returns:
            The products, a row each.
        """
        with in_double():
            nothing = np.zeros((len(vectors), flat(self.theta).size))
            return np.asarray(self._rest(flat(self.phi), nothing[0], vectors, nothing))

    def diagonal(self, probes: int, seed: int = 0) -> np.ndarray:
        """Roughly that of the Hessian, and positive: one pass over the data.

        The likelihood's is taken for the sum of squares of the gradients of single rows, which it is for a model that fits. Random signs
        show the rest, exactly where it is diagonal.

        Args:
            probes: how many vectors of random signs.
            seed: of the signs.

        Returns:
            One number per coordinate of phi.
        """
        squares = self._likelihood.squares(flat(self.theta), probes, seed)
        generator, rest = np.random.default_rng(seed), np.zeros(self.dimension)
        for _ in range(probes):  # one after the other: each has the size of theta
            signs = generator.choice([-1.0, 1.0], size=(1, self.dimension))
            rest += (signs * self._with_the_rest(signs, np.zeros((1, squares.size))))[0] / probes
        with in_double():
            pulled = self.space.pull_back_variance(self.phi, trees.cut_like(self.theta, jnp.asarray(squares)))
        result: np.ndarray = flat(pulled) + np.abs(rest)
        return result

    @property
    def _likelihood(self) -> Likelihood:
        return Likelihood.of(self.posterior, self.theta)

    def _with_the_rest(self, vectors: np.ndarray, curved: np.ndarray) -> np.ndarray:
        if self._gradient is None:
            self._gradient = self._likelihood.slope(flat(self.theta))[1]
        with in_double():
            return np.asarray(self._rest(flat(self.phi), self._gradient, vectors, curved))

    def _moves(self, point: jax.Array, vectors: jax.Array) -> jax.Array:
        """How theta moves with phi along each of some vectors."""
        moved: jax.Array = jax.vmap(lambda v: jax.jvp(self._theta, (point,), (v,))[1])(vectors)
        return moved

    def _bends(self, point: jax.Array, gradient: jax.Array, vectors: jax.Array, curved: jax.Array) -> jax.Array:
        """The products of all but the likelihood's own curvature, and that, already multiplied, back in phi."""

        def negative(phi: jax.Array) -> jax.Array:
            log_density = self.posterior.log_prior(self.space.constrain(self._unravel(phi)))
            return -(gradient @ self._theta(phi) + log_density + self.space.log_abs_det_jacobian(self._unravel(phi)))

        def one(vector: jax.Array, curved: jax.Array) -> jax.Array:
            _, pull = jax.vjp(self._theta, point)
            result: jax.Array = jax.jvp(jax.grad(negative), (point,), (vector,))[1] - pull(curved)[0]
            return result

        return jax.vmap(one)(vectors, curved)

    def _theta(self, phi: jax.Array) -> jax.Array:
        return trees.ravel(self.space.constrain(self._unravel(phi)))

    def hessian(self) -> np.ndarray:
        """Of -log pi of the proxy: that of prior, Jacobian and the likelihood's expansion of second order in theta."""
        gradient, hessian = Curvature.of(self.posterior, self.theta)
        here = flat(self.theta)

        def negative(phi: jax.Array) -> jax.Array:
            phi = self._unravel(phi)
            theta = self.space.constrain(phi)
            moved = trees.ravel(theta) - here
            log_likelihood = jnp.asarray(gradient @ moved + moved @ (hessian @ moved) / 2)
            return -(log_likelihood + self.posterior.log_prior(theta) + self.space.log_abs_det_jacobian(phi))

        with in_double():
            made = np.asarray(jax.jit(jax.hessian(negative))(flat(self.phi)))
        result: np.ndarray = (made + made.T) / 2
        return result


def whitening(hessian: np.ndarray, names: list[str]) -> np.ndarray:
    """W with W^T H W = I."""
    if not np.all(np.isfinite(hessian)):
        raise ValueError(
            "The Hessian of the posterior is not finite at the centre. Give a centre inside the bulk of the posterior."
        )
    scales = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))  # so that no unit of the data sets the precision
    values, vectors = np.linalg.eigh(scales[:, None] * hessian * scales)
    least = len(hessian) * np.finfo(float).eps * max(values[-1], 0)
    if values[0] <= least:
        worst = names[int(np.argmax(np.abs(vectors[:, 0])))]
        raise ValueError(
            f"The posterior has no minimum of -log pi at the centre: its Hessian is not positive definite (smallest eigenvalue "
            f"{values[0]:.3g} of the largest {values[-1]:.3g}, mostly along {worst!r}). Give the mode (ib.check finds it), or make a metric of "
            "draws: ib.metrics.from_draws(...)."
        )
    result: np.ndarray = scales[:, None] * vectors / np.sqrt(values)
    return result


def shifted(center: PyTree, moved: jax.Array) -> PyTree:
    """center + moved, with the shapes of the first and the precision of the second."""
    return jax.tree.map(lambda c, m: jnp.asarray(c).astype(m.dtype) + m, center, trees.cut_like(center, moved))


def distance(phi: PyTree, center: PyTree) -> jax.Array:
    """phi - center as one vector."""
    return trees.ravel(jax.tree.map(lambda p, c: p - jnp.asarray(c, p.dtype), phi, center))


def is_same(metric: Any, other: Any) -> bool:
    """Whether two metrics have the same centre and the same L L^T, up to rounding: by what they do to a few random vectors.

    Args:
        metric, other: of the same variables.

    Returns:
        Whether they are the same.

    Example:
        >>> posterior = ib.Posterior({"w": dist.Normal(0.0, 1.0)})
        >>> metric, other = (ib.metrics.laplace(posterior, {"w": 0.0}) for _ in range(2))
        >>> bool(ib.metrics.is_same(metric, other))
        True
    """
    rng = np.random.default_rng(0)
    with in_double():
        center = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), metric.center)
        apart = flat(metric.from_proxy(other.center)) - flat(metric.from_proxy(center))
        if not np.max(np.abs(apart)) <= SAME:
            return False
        for _ in range(4):
            drift = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), center)
            ours, theirs = (flat(m.to_proxy(m.pull_back(drift))) - flat(m.center) for m in (metric, other))
            if not np.all(np.abs(ours - theirs) <= SAME * np.abs(ours).max()):
                return False
    return True
