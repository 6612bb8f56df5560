"""A control variate of second order."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from inbounds import trees
from inbounds.exact import Curvature, flattener
from inbounds.gradients._base import check_options, register
from inbounds.gradients._control_variate import AroundCenter
from inbounds.gradients._minibatch import Previous
from inbounds.posterior import Posterior
from inbounds.trees import PyTree

ROUGH = (
    1e4  # condition number up to which products with a Hessian in single precision are right to 0.1% of a posterior sd
)


class Expanded(NamedTuple):
    """State of a second-order control variate: its centre, the likelihood's full-data gradient and Hessian there, the last gradient."""

    center: PyTree
    full: PyTree
    vectors: jax.Array | None  # the Hessian is vectors diag(values) vectors^T,
    values: jax.Array  # or, where these are a matrix, they
    previous: Previous | None


class Taylor(AroundCenter):
    """The likelihood's expansion of second order at a centre, exactly, and the minibatch estimate of what is left."""

    def __init__(self, posterior: Posterior, center: PyTree, variance: str, smoothing: float):
        # In the precision of the run, and so in the sums over all the data: a centre that is rounded later is another centre.
        center = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(float)), center)
        super().__init__(posterior, center, variance, smoothing)
        full, hessian = Curvature.of(posterior, self.center)
        _, unravel = flattener(self.center)
        self.full = jax.tree.map(np.asarray, unravel(cast(Any, full)))
        self.vectors, self.values = _factored(hessian)
        self.data_version = posterior.version

    def init(self, theta: PyTree, with_noise: bool) -> Expanded:
        dtype = jax.tree.leaves(theta)[0].dtype
        parts = (self.center, self.full, self.vectors, self.values)
        center, full, vectors, values = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), parts)
        return Expanded(center, full, vectors, values, super().init(theta, with_noise))

    def gradient(self, state: Expanded, theta: PyTree, batch: PyTree) -> PyTree:
        moved = jax.tree.map(jnp.subtract, theta, state.center)
        prior = jax.grad(self.posterior.log_prior)(theta)
        here = jax.grad(self._scaled_likelihood)(theta, batch)

        def expanded(x: PyTree) -> jax.Array:
            value, slope = jax.jvp(lambda x: self._scaled_likelihood(x, batch), (x,), (moved,))
            return jnp.add(value, slope)

        # Gradient and product with the Hessian in one: their backward pass is the same.
        there = jax.grad(expanded)(state.center)
        everywhere = trees.cut_like(theta, self._product(state, trees.ravel(moved)))
        return jax.tree.map(lambda p, f, e, h, t: p + f + e + (h - t), prior, state.full, everywhere, here, there)

    def _product(self, state: Expanded, vector: jax.Array) -> jax.Array:
        if state.vectors is None:
            return state.values @ vector
        return state.vectors @ (state.values * (state.vectors.T @ vector))


register(Taylor, ("center", "full", "vectors", "values"))


def taylor(
    posterior: Posterior | None = None, *, center: PyTree, variance: str = "halves", smoothing: float = 0.995
) -> Any:
    r"""A control variate of second order: the likelihood's expansion at a centre, and minibatches for what is left.

    $$\hat g(\theta) = \nabla \log p(\theta) + \nabla \ell(\theta^*) + H_\ell (\theta - \theta^*)
      + \frac{N}{|S|} \sum_{i \in S} [\nabla \ell_i(\theta) - \nabla \ell_i(\theta^*) - H_i (\theta - \theta^*)]$$

    Unbiased for every centre $\theta^*$; near the mode of a posterior with many data its noise is far below that of
    `control_variate`. A step costs some three plain gradients of the minibatch and a product with a matrix of theta's dimensions.
    The gradient and the Hessian of all the data are summed once, in double precision, when the kernel is made.

    Args:
        posterior: what is sampled; left out, a factory with these options is returned.
        center: $\theta^*$, a tree like theta, near the mode.
        variance, smoothing: as for `minibatch`.

    Returns:
        An estimator, or a factory of estimators with these options.

    Raises:
        ValueError: an option is unknown, or the posterior has no likelihood and data.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> gradient = ib.gradients.taylor(center={"rate": 0.5})
        >>> kernel = ib.leimkuhler_matthews(posterior, gradient=gradient)
    """
    check_options(variance, smoothing)
    if posterior is None:
        return Partial(taylor, center=center, variance=variance, smoothing=smoothing)
    return Taylor(posterior, center, variance, smoothing)


def _factored(hessian: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """A symmetric matrix as eigenvectors and eigenvalues where single precision needs that, else as it is.

    Of H x with x along a flat direction, products with H keep no digit once the condition number is that of the precision.
    """
    values, vectors = np.linalg.eigh(hessian)
    smallest = np.min(np.abs(values))
    if np.max(np.abs(values)) <= ROUGH * smallest:
        return None, hessian
    return vectors, values
