"""The minibatch gradient of the difference to a centre."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from inbounds.data.arrays import is_stream
from inbounds.gradients._base import check_options, register
from inbounds.gradients._full import full_likelihood_gradient
from inbounds.gradients._minibatch import Minibatch, Previous
from inbounds.posterior import Posterior
from inbounds.trees import PyTree


class AroundCenter(Minibatch):
    """What estimators with a centre share. Their states have the last gradient as `previous`."""

    is_plain = False

    def __init__(self, posterior: Posterior, center: PyTree, variance: str, smoothing: float):
        if posterior.log_likelihood is None:
            raise ValueError("A control variate needs a posterior with `log_likelihood` and `data`.")
        super().__init__(posterior, variance, smoothing)
        self.center = center

    def _previous(self, state: Any) -> Previous:
        previous: Previous = state.previous
        return previous

    def _with_previous(self, state: Any, now: Previous) -> Any:
        return state._replace(previous=now)


class Centred(NamedTuple):
    """State of a control variate: where it is centred, the full-data gradient there, the last gradient if it is wanted."""

    center: PyTree
    full: PyTree
    previous: Previous | None


class ControlVariate(AroundCenter):
    """The minibatch estimate of the difference to a centre, plus the exact gradient at the centre."""

    reads_all_data = True

    def __init__(self, posterior: Posterior, center: PyTree, every: int | None, variance: str, smoothing: float):
        super().__init__(posterior, center, variance, smoothing)
        self.refresh_every = every
        self.at_center: PyTree = None  # the full-data gradient there, where it has to be known beforehand
        if is_stream(posterior.data):
            self.at_center = full_likelihood_gradient(posterior, jax.tree.map(lambda c: jnp.asarray(c, float), center))
            self.data_version = posterior.version

    def init(self, theta: PyTree, with_noise: bool) -> Centred:
        center = (
            theta if self.center is None else jax.tree.map(lambda c, x: jnp.asarray(c, x.dtype), self.center, theta)
        )
        full = full_likelihood_gradient(self.posterior, center) if self.at_center is None else self.at_center
        full = jax.tree.map(lambda g, x: g.astype(x.dtype), full, theta)
        return Centred(center, full, super().init(theta, with_noise))

    def refresh(self, state: Centred, theta: PyTree) -> Centred:
        return Centred(theta, full_likelihood_gradient(self.posterior, theta), state.previous)

    def gradient(self, state: Centred, theta: PyTree, batch: PyTree) -> PyTree:
        prior = jax.grad(self.posterior.log_prior)(theta)
        here = jax.grad(self._scaled_likelihood)(theta, batch)
        there = jax.grad(self._scaled_likelihood)(state.center, batch)
        return jax.tree.map(lambda p, h, t, f: p + f + (h - t), prior, here, there, state.full)


register(ControlVariate, ("center", "at_center"))


def control_variate(
    posterior: Posterior | None = None, *, center: PyTree, variance: str = "halves", smoothing: float = 0.995
) -> Any:
    r"""Minibatch gradient of the difference to a fixed centre, usually the mode (Baker et al. 2019).

    $$\hat g(\theta) = \nabla \log p(\theta) + \nabla \ell(\theta^*)
      + \frac{N}{|S|} \sum_{i \in S} [\nabla \ell_i(\theta) - \nabla \ell_i(\theta^*)]$$

    Unbiased for every centre $\theta^*$; its variance falls with the distance to it. The prior and the Jacobian of the
    transform stay exact.

    Args:
        posterior: what is sampled; left out, a factory with these options is returned.
        center: $\theta^*$, a tree like theta.
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
        >>> gradient = ib.gradients.control_variate(center={"rate": 0.5})
        >>> kernel = ib.leimkuhler_matthews(posterior, gradient=gradient)
    """
    check_options(variance, smoothing)
    if posterior is None:
        return Partial(control_variate, center=center, variance=variance, smoothing=smoothing)
    return ControlVariate(posterior, center, None, variance, smoothing)
