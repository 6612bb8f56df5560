r"""From how much of the data: estimators of the gradient of $\log \pi$ in theta, which also show their noise.

An estimator factory takes a `Posterior`; its options come first, so that `gradient=ib.gradients.minibatch` and
`gradient=ib.gradients.minibatch(variance="per_example")` both work. The estimator has

- `init(theta, with_noise) -> state`,
- `estimate(state, theta, batch, with_noise) -> (Gradient, state)`,
- `refresh(state, theta) -> state` and `refresh_every`, for those that look at all the data now and then,
- `smoothing`, the weight of the past where a kernel smooths what one minibatch shows of the noise.

What is shown are differences, such as half the difference of two half batches, and no variances: their outer products have
the covariance of the estimate over the draw of the minibatch as their mean. A difference can be pulled back to the proxy
through any map; the variances of the coordinates of theta could not, because the noise of one coordinate goes with that of
another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from inbounds import trees
from inbounds.data.arrays import is_stream
from inbounds.data.source import Source
from inbounds.data.spread import Spread
from inbounds.exact import Curvature, flattener
from inbounds.namespaces import namespace
from inbounds.posterior import Posterior
from inbounds.trees import PyTree

__all__ = [
    "Gradient",
    "GradientEstimator",
    "control_variate",
    "full_gradient",
    "full_likelihood_gradient",
    "minibatch",
    "svrg",
    "taylor",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)


class Gradient(NamedTuple):
    """An estimate of the gradient of log pi at theta, and what one minibatch shows of its noise.

    Args:
        value: the estimate.
        differences: a tree like `value` with one more leading axis (of length 1 for "halves" and "successive", one entry per
            row for "per_example"): the sum over it of the outer products has the covariance of the estimate as its mean.
            None: not asked for.
        weight: how many observations of the noise that is: 1, or 0 where there is none yet (the first of successive gradients).
    """

    value: PyTree
    differences: PyTree | None
    weight: jax.Array | float = 1.0


class GradientEstimator(Protocol):
    """What a kernel asks of an estimator. One of your own derives from it, and says what differs from what stands here.

    Attributes:
        refresh_every: steps between two calls of `refresh`; None: it is never called.
        smoothing: weight of the past where a kernel averages what minibatches show of the noise, in [0, 1).
        reads_all_data: whether `init` or `refresh` looks at all the data.
        data_version: `posterior.version` where it keeps what it found in the data: once these are replaced, its kernel is refused. None: it
            keeps nothing of them.

    Example:
        >>> class Cautious(ib.gradients.GradientEstimator):
        ...     def __init__(self, posterior):
        ...         self.inner = ib.gradients.minibatch(posterior)
        ...     def estimate(self, state, theta, batch, with_noise):
        ...         return self.inner.estimate(state, theta, batch, with_noise)
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}), gradient=Cautious)
    """

    refresh_every: int | None = None
    smoothing: float = 0.995
    reads_all_data: bool = False
    data_version: int | None = None

    def init(self, theta: PyTree, with_noise: bool) -> Any:
        """Its state for a chain that starts at `theta`; arrays, or None."""
        return None

    def estimate(self, state: Any, theta: PyTree, batch: PyTree, with_noise: bool) -> tuple[Gradient, Any]:
        """The gradient of log pi at `theta` from a minibatch, with its differences where `with_noise`; and the new state."""
        ...

    def refresh(self, state: Any, theta: PyTree) -> Any:
        """The state after a look at all the data."""
        return state


GradientFactory = Callable[[Posterior], GradientEstimator]

ROUGH = (
    1e4  # condition number up to which products with a Hessian in single precision are right to 0.1% of a posterior sd
)
VARIANCES = ("halves", "successive", "per_example")


class Previous(NamedTuple):
    """The last gradient, for "successive"."""

    gradient: PyTree
    known: jax.Array  # 0.0 before the first, 1.0 from then on


class _Minibatch(GradientEstimator):
    """Likelihood terms of the minibatch scaled by N/|S|, plus the prior's gradient exactly."""

    is_plain = True  # whether the estimate is the gradient of the prior and of the scaled likelihood, and no more

    def __init__(self, posterior: Posterior, variance: str, smoothing: float):
        self.posterior = posterior
        self.variance = variance
        self.smoothing = smoothing

    def init(self, theta: PyTree, with_noise: bool) -> Any:
        if not with_noise or self.variance != "successive":
            return None
        return Previous(jax.tree.map(jnp.zeros_like, theta), jnp.zeros((), jax.tree.leaves(theta)[0].dtype))

    def estimate(self, state: Any, theta: PyTree, batch: PyTree, with_noise: bool) -> tuple[Gradient, Any]:
        if not with_noise:
            return Gradient(self.gradient(state, theta, batch), None), state
        if self.variance == "successive":
            value, before = self.gradient(state, theta, batch), self._previous(state)
            differences = jax.tree.map(lambda g, old: (g - old)[None] / math.sqrt(2), value, before.gradient)
            now = Previous(value, jnp.ones_like(before.known))
            return Gradient(value, differences, before.known), self._with_previous(state, now)
        if isinstance(batch, Spread):
            return Gradient(*self._spread(theta, batch, self.variance)), state
        if self.variance == "per_example":
            return Gradient(*self._per_example(state, theta, batch)), state
        return Gradient(*self._halves(state, theta, batch)), state

    # What control variates change: the likelihood part, and where the last gradient is kept.

    def gradient(self, state: Any, theta: PyTree, batch: PyTree) -> PyTree:
        """The estimate from one batch."""
        if isinstance(batch, Spread):
            return self._spread(theta, batch, None)[0]
        if self.posterior.gradient is not None:
            return self.posterior.gradient(theta, batch)
        return jax.grad(lambda x: self.posterior.log_prior(x) + self._scaled_likelihood(x, batch))(theta)

    def _scaled_likelihood(self, theta: PyTree, batch: PyTree) -> jax.Array:
        if self.posterior.log_likelihood is None:
            return jnp.zeros(())
        terms = self.posterior.log_likelihood(theta, batch)
        return jnp.sum(terms) * _scale(self.posterior, terms.shape[0])

    def _previous(self, state: Any) -> Previous:
        previous: Previous = state
        return previous

    def _with_previous(self, state: Any, now: Previous) -> Any:
        return now

    def _halves(self, state: Any, theta: PyTree, batch: PyTree) -> tuple[PyTree, PyTree]:
        """Two half batches cost what one whole costs; half their difference has the covariance of their mean."""
        lengths = _lengths(batch)
        total, half = lengths[0], _half(min(lengths))
        if self.is_plain and self.posterior.gradient is None and trees.size(theta) <= total:
            return self._one_pass(theta, batch, total)
        first = self.gradient(state, theta, jax.tree.map(lambda x: x[: len(x) // 2], batch))
        second = self.gradient(state, theta, jax.tree.map(lambda x: x[len(x) // 2 :], batch))
        share = half / total if len(set(lengths)) == 1 else 0.5  # rows of several plates are no halves of one batch
        value = jax.tree.map(lambda a, b: share * a + (1 - share) * b, first, second)
        apart = math.sqrt(share * (1 - share))
        return value, jax.tree.map(lambda a, b: apart * (a - b)[None], first, second)

    def _one_pass(self, theta: PyTree, batch: PyTree, total: int) -> tuple[PyTree, PyTree]:
        """The same two numbers from one forward pass, for models with fewer parameters than rows.

        Their backward pass is bound by reading the batch, so a second cotangent (the difference of the halves) rides along.
        """
        likelihood = self.posterior.log_likelihood
        assert likelihood is not None
        terms, pull = jax.vjp(lambda x: likelihood(x, batch), theta)
        scale = _scale(self.posterior, total)
        (pair,) = jax.vmap(pull)(scale * jnp.stack([jnp.ones_like(terms), _half_signs(total, terms.dtype)]))
        prior = jax.grad(self.posterior.log_prior)(theta)
        value = jax.tree.map(lambda p, g: p + g[0], prior, pair)
        return value, jax.tree.map(lambda g: g[1:], pair)

    def _per_example(self, state: Any, theta: PyTree, batch: PyTree) -> tuple[PyTree, PyTree]:
        """Every row against their mean: for cheap per-example gradients."""
        lengths = _lengths(batch)
        total = lengths[0]
        if len(set(lengths)) > 1 or total < 2:
            raise ValueError(
                f'variance="per_example" needs a minibatch of at least 2 rows, as many of each array; got {lengths}. Use a larger batch, or '
                'gradient=ib.gradients.minibatch(variance="halves").'
            )
        one = partial(self.gradient, state, theta)
        each = jax.vmap(lambda row: one(jax.tree.map(lambda x: x[None], row)))(batch)
        value = jax.tree.map(lambda g: jnp.mean(g, axis=0), each)
        spare = math.sqrt(total * (total - 1))
        return value, jax.tree.map(lambda g, mean: (g - mean) / spare, each, value)

    def _spread(self, theta: PyTree, batch: Spread, variance: str | None) -> tuple[PyTree, ...]:
        """The estimate, and its differences if asked for, from rows on several devices.

        Their minibatches are independent, each of its own rows: the gradients add up, and so do their covariances. So do the
        differences: of independent ones with mean zero the outer product of the sum has the sum of the outer products as its
        mean. One difference travels, not one per device.
        """
        if self.posterior.gradient is not None:
            return batch.sum(partial(self._own_gradient, batch.num_data, variance), theta)
        likelihood = batch.sum(partial(self._own_likelihood, variance), theta)
        prior = jax.grad(self.posterior.log_prior)(theta)
        return jax.tree.map(jnp.add, prior, likelihood[0]), *likelihood[1:]

    def _own_likelihood(self, variance: str | None, theta: PyTree, rows: PyTree, weights: jax.Array) -> tuple[Any, ...]:
        """One device's part of the likelihood's gradient, and of its differences."""
        likelihood = self.posterior.log_likelihood
        assert likelihood is not None
        total = weights.shape[0]
        if variance == "per_example":
            one = jax.grad(lambda x, row: jnp.sum(likelihood(x, jax.tree.map(lambda leaf: leaf[None], row))))
            each = jax.vmap(one, in_axes=(None, 0))(theta, rows)
            each = jax.vmap(lambda g, w: jax.tree.map(lambda x: x * w.astype(x.dtype), g))(each, weights)
            value = jax.tree.map(lambda g: jnp.sum(g, axis=0), each)
            unbias = math.sqrt(total / (total - 1))
            return value, jax.tree.map(lambda g, total_of: unbias * (g - total_of / total), each, value)
        terms, pull = jax.vjp(lambda x: likelihood(x, rows), theta)
        weights = weights.astype(terms.dtype)
        if variance is None:
            (value,) = pull(weights)
            return (value,)
        (pair,) = jax.vmap(pull)(jnp.stack([weights, weights * _half_signs(total, terms.dtype)]))
        return jax.tree.map(lambda g: g[0], pair), jax.tree.map(lambda g: g[1:], pair)

    def _own_gradient(
        self, num_data: int, variance: str | None, theta: PyTree, rows: PyTree, weights: jax.Array
    ) -> tuple[Any, ...]:
        """One device's part of the user's own gradient: each estimate counts by the share of the data behind it."""
        share = (jnp.sum(weights) / num_data).astype(jax.tree.leaves(theta)[0].dtype)
        parts: tuple[Any, ...] = (self.gradient(None, theta, rows),)
        if variance is not None:
            parts = (self._halves if variance == "halves" else self._per_example)(None, theta, rows)
        return tuple(jax.tree.map(lambda g: share * g, part) for part in parts)


class Centred(NamedTuple):
    """State of a control variate: where it is centred, the full-data gradient there, the last gradient if it is wanted."""

    center: PyTree
    full: PyTree
    previous: Previous | None


class _ControlVariate(_Minibatch):
    """The minibatch estimate of the difference to a centre, plus the exact gradient at the centre."""

    reads_all_data = True
    is_plain = False

    def __init__(self, posterior: Posterior, center: PyTree, every: int | None, variance: str, smoothing: float):
        if posterior.log_likelihood is None:
            raise ValueError("A control variate needs a posterior with `log_likelihood` and `data`.")
        super().__init__(posterior, variance, smoothing)
        self.center = center
        self.refresh_every = every
        self.at_center: PyTree = None  # the full-data gradient there, where it has to be known beforehand
        if is_stream(posterior.data):
            if center is None:
                raise ValueError(
                    "svrg looks at all the data again and again from compiled code, which data on disk do not allow. Take "
                    "ib.gradients.control_variate(center=...): it reads them once."
                )
            self.at_center = full_likelihood_gradient(posterior, jax.tree.map(lambda c: jnp.asarray(c, float), center))
            self.data_version = posterior.version

    def init(self, theta: PyTree, with_noise: bool) -> Centred:
        center = (
            theta if self.center is None else jax.tree.map(lambda c, x: jnp.asarray(c, x.dtype), self.center, theta)
        )
        full = self._full(center) if self.at_center is None else self.at_center
        full = jax.tree.map(lambda g, x: g.astype(x.dtype), full, theta)
        return Centred(center, full, super().init(theta, with_noise))

    def refresh(self, state: Centred, theta: PyTree) -> Centred:
        return Centred(theta, self._full(theta), state.previous)

    def gradient(self, state: Centred, theta: PyTree, batch: PyTree) -> PyTree:
        prior = jax.grad(self.posterior.log_prior)(theta)
        here = jax.grad(self._scaled_likelihood)(theta, batch)
        there = jax.grad(self._scaled_likelihood)(state.center, batch)
        return jax.tree.map(lambda p, h, t, f: p + f + (h - t), prior, here, there, state.full)

    def _full(self, theta: PyTree) -> PyTree:
        """Gradient of the whole log likelihood, in slices that fit in memory."""
        return full_likelihood_gradient(self.posterior, theta)

    def _previous(self, state: Centred) -> Previous:
        assert state.previous is not None
        return state.previous

    def _with_previous(self, state: Centred, now: Previous) -> Centred:
        return state._replace(previous=now)


class Expanded(NamedTuple):
    """State of a second-order control variate: its centre, the likelihood's full-data gradient and Hessian there, the last gradient."""

    center: PyTree
    full: PyTree
    vectors: jax.Array | None  # the Hessian is vectors diag(values) vectors^T,
    values: jax.Array  # or, where these are a matrix, they
    previous: Previous | None


class _Taylor(_Minibatch):
    """The likelihood's expansion of second order at a centre, exactly, and the minibatch estimate of what is left."""

    is_plain = False

    def __init__(self, posterior: Posterior, center: PyTree, variance: str, smoothing: float):
        if posterior.log_likelihood is None:
            raise ValueError("A control variate needs a posterior with `log_likelihood` and `data`.")
        super().__init__(posterior, variance, smoothing)
        # In the precision of the run, and so in the sums over all the data: a centre that is rounded later is another centre.
        self.center = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(float)), center)
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

    def _previous(self, state: Expanded) -> Previous:
        assert state.previous is not None
        return state.previous

    def _with_previous(self, state: Expanded, now: Previous) -> Expanded:
        return state._replace(previous=now)


def _factored(hessian: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """A symmetric matrix as eigenvectors and eigenvalues where single precision needs that, else as it is.

    Of H x with x along a flat direction, products with H keep no digit once the condition number is that of the precision.
    """
    values, vectors = np.linalg.eigh(hessian)
    smallest = np.min(np.abs(values))
    if np.max(np.abs(values)) <= ROUGH * smallest:
        return None, hessian
    return vectors, values


def _register(kind: type, arrays: tuple[str, ...]) -> None:
    """Let JAX take estimators apart: `arrays` are arguments of what is compiled for a kernel, the rest is part of it."""

    def flatten(estimator: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        rest = tuple((name, value) for name, value in sorted(vars(estimator).items()) if name not in arrays)
        return tuple(getattr(estimator, name) for name in arrays), rest

    def unflatten(rest: tuple[Any, ...], values: Any) -> Any:
        estimator: Any = object.__new__(kind)
        vars(estimator).update(dict(rest), **dict(zip(arrays, values, strict=True)))
        return estimator

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)


_register(_Minibatch, ())
_register(_ControlVariate, ("center", "at_center"))
_register(_Taylor, ("center", "full", "vectors", "values"))


def minibatch(posterior: Posterior | None = None, *, variance: str = "halves", smoothing: float = 0.995) -> Any:
    r"""The plain stochastic gradient.

    $$\hat g(\theta) = \nabla \log p(\theta) + \frac{N}{|S|} \sum_{i \in S} \nabla \log p(x_i \mid \theta)$$

    Args:
        posterior: what is sampled; left out, a factory with these options is returned.
        variance: what shows the noise where a kernel asks for it. "halves": the difference of two half batches, nearly
            free; "successive": the difference of successive gradients, for batches of one; "per_example": the gradients of
            every datum, exact and dear.
        smoothing: weight of the past in the running average of the variance, in [0, 1).

    Returns:
        An estimator, or a factory of estimators with these options.

    Raises:
        ValueError: an option is unknown or out of its range.

    Example:
        >>> gradient = ib.gradients.minibatch(variance="per_example")
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}), gradient=gradient)
    """
    _check_options(variance, smoothing)
    if posterior is None:
        return Partial(minibatch, variance=variance, smoothing=smoothing)
    return _Minibatch(posterior, variance, smoothing)


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
    _check_options(variance, smoothing)
    if posterior is None:
        return Partial(control_variate, center=center, variance=variance, smoothing=smoothing)
    return _ControlVariate(posterior, center, None, variance, smoothing)


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
    _check_options(variance, smoothing)
    if posterior is None:
        return Partial(taylor, center=center, variance=variance, smoothing=smoothing)
    return _Taylor(posterior, center, variance, smoothing)


def svrg(
    posterior: Posterior | None = None, *, every: int = 1_000, variance: str = "halves", smoothing: float = 0.995
) -> Any:
    """A control variate whose centre moves to the current theta every so many steps (Dubey et al. 2016).

    The driver looks at all the data between two steps, `every` steps apart; in a loop of your own call
    `kernel.refresh(state)`.

    Args:
        posterior: what is sampled; left out, a factory with these options is returned.
        every: steps between two looks at all the data.
        variance, smoothing: as for `minibatch`.

    Returns:
        An estimator, or a factory of estimators with these options.

    Raises:
        ValueError: an option is unknown or out of its range, or the data are on disk.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> kernel = ib.leimkuhler_matthews(posterior, gradient=ib.gradients.svrg(every=500))
    """
    _check_options(variance, smoothing)
    if every < 1:
        raise ValueError(f"`every` must be at least 1 step; got {every}.")
    if posterior is None:
        return Partial(svrg, every=every, variance=variance, smoothing=smoothing)
    return _ControlVariate(posterior, None, every, variance, smoothing)


def full_gradient(posterior: Posterior, theta: PyTree) -> PyTree:
    """The exact gradient of log pi at theta, over all the data.

    Args:
        posterior: prior and likelihood.
        theta: where.

    Returns:
        A tree like theta.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> float(ib.gradients.full_gradient(posterior, {"x": 1.0})["x"])  # the mode
        0.0
    """
    if posterior.gradient is not None:
        data = posterior.data
        return posterior.gradient(theta, data.all_rows() if isinstance(data, Source) else data)
    prior = jax.grad(posterior.log_prior)(theta)
    if posterior.log_likelihood is None:
        return prior
    return jax.tree.map(jnp.add, prior, full_likelihood_gradient(posterior, theta))


def full_likelihood_gradient(posterior: Posterior, theta: PyTree, rows: int = 8_192) -> PyTree:
    """Gradient of the log likelihood of all the data, in slices of `rows`.

    Args:
        posterior: with a likelihood and data.
        theta: where.
        rows: how many are looked at together.

    Returns:
        A tree like theta.

    Raises:
        ValueError: the data are on disk, and a program is being traced.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> gradient = ib.gradients.full_likelihood_gradient(posterior, {"rate": 1_000 / spent.sum()})
        >>> abs(float(gradient["rate"])) < 0.1
        True
    """
    total = posterior.num_data
    assert total is not None
    assert posterior.log_likelihood is not None
    likelihood = posterior.log_likelihood
    gradient = jax.grad(lambda x, batch: jnp.sum(likelihood(x, batch)))
    if is_stream(posterior.data):
        if trees.is_traced(theta):
            raise ValueError(
                "The gradient over all the data on disk cannot be part of a compiled function: call it outside."
            )
        compiled, total_gradient = jax.jit(gradient), jax.tree.map(jnp.zeros_like, theta)
        for batch in posterior.data.slices(rows):
            total_gradient = jax.tree.map(jnp.add, total_gradient, compiled(theta, batch))
        return total_gradient
    whole, rest = divmod(total, rows)
    data = posterior.placed_data
    sums = jax.tree.map(jnp.zeros_like, theta)

    def add(carry: PyTree, index: jax.Array) -> tuple[PyTree, None]:
        batch = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, index * rows, rows), data)
        return jax.tree.map(jnp.add, carry, gradient(theta, batch)), None

    if whole:
        sums, _ = jax.lax.scan(add, sums, jnp.arange(whole))
    if rest:
        sums = jax.tree.map(jnp.add, sums, gradient(theta, jax.tree.map(lambda x: x[whole * rows :], data)))
    return sums


def _half(total: int) -> int:
    if total < 2:
        raise ValueError(
            "Noise correction by half batches needs a batch of at least 2, on each device. Use a larger batch, "
            'gradient=ib.gradients.minibatch(variance="successive"), or give the variance: noise_correction=value.'
        )
    return total // 2


def _half_signs(total: int, dtype: Any) -> jax.Array:
    """Weights of half the difference of two half batches of unequal size, such that its square has the variance of the sum."""
    half = _half(total)
    ratio = math.sqrt((total - half) / half)
    return jnp.where(jnp.arange(total) < half, ratio, -1 / ratio).astype(dtype)


def _scale(posterior: Posterior, batch_size: int) -> float:
    return 1.0 if posterior.num_data is None else posterior.num_data / batch_size


def _lengths(batch: PyTree) -> list[int]:
    """How many rows each array of a minibatch has."""
    leaves = jax.tree.leaves(batch)
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError(
            "The variance of the gradient cannot be estimated from a minibatch without a leading axis. Give the "
            'variance (noise_correction=value) or use gradient=ib.gradients.minibatch(variance="successive").'
        )
    return [leaf.shape[0] for leaf in leaves]


def _check_options(variance: str, smoothing: float) -> None:
    if variance not in VARIANCES:
        raise ValueError(f"Unknown variance estimate {variance!r}. Known: {', '.join(VARIANCES)}.")
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"`smoothing` must be in [0, 1); got {smoothing}.")
