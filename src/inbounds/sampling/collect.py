"""Running statistics instead of stored draws.

A collector is three pure functions: `init(theta) -> state`, `update(state, theta) -> state`, `result(state)`. The driver
calls `update` on every draw that it would otherwise store (after burn-in, every `thin`-th step). A dict of collectors is a
collector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from inbounds.namespaces import namespace
from inbounds.trees import PyTree

__all__ = ["Collector", "Moments", "mean_and_variance", "predictive_mean"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)


class Collector(Protocol):
    """What the driver asks of a collector.

    Example:
        >>> class Largest:
        ...     def init(self, theta):
        ...         return theta["x"]
        ...     def update(self, state, theta):
        ...         return jnp.maximum(state, theta["x"])
        ...     def result(self, state):
        ...         return state
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
        >>> draws = ib.sample(kernel, 0.05, 150, burn_in=100, collect=Largest(), progress=False)
        >>> bool(draws.collected[0] > 0)
        True
    """

    def init(self, theta: PyTree) -> Any:
        """What it holds before the first draw.

        Args:
            theta: the start of the chain, for shapes and dtypes.

        Returns:
            A tree of arrays.
        """

    def update(self, state: Any, theta: PyTree) -> Any:
        """What it holds after one more draw; traced, so written in JAX.

        Args:
            state: what it held.
            theta: the draw.

        Returns:
            A tree like `state`.
        """

    def result(self, state: Any) -> Any:
        """What `draws.collected` shows.

        Args:
            state: what it holds at the end of the run.

        Returns:
            Anything; of several chains, the state has a leading axis.
        """


class Moments(NamedTuple):
    """Mean and variance over the draws."""

    num_draws: jax.Array
    mean: PyTree
    variance: PyTree


class _Running(NamedTuple):
    num_draws: jax.Array
    mean: PyTree
    squares: PyTree


@dataclass(frozen=True)
class MeanAndVariance:
    """Welford's running mean and variance of `of(theta)`; truth values count as 0 and 1."""

    of: Callable[[PyTree], PyTree] | None = None

    def _value(self, theta: PyTree) -> PyTree:
        return jax.tree.map(_inexact, theta if self.of is None else self.of(theta))

    def init(self, theta: PyTree) -> _Running:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(self._value, theta))
        return _Running(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(self, state: _Running, theta: PyTree) -> _Running:
        num_draws = state.num_draws + 1
        value = self._value(theta)
        mean = jax.tree.map(lambda m, x: m + (x - m) / num_draws.astype(x.dtype), state.mean, value)
        squares = jax.tree.map(lambda s, x, old, new: s + (x - old) * (x - new), state.squares, value, state.mean, mean)
        return _Running(num_draws, mean, squares)

    def result(self, state: _Running) -> Moments:
        variance = jax.tree.map(lambda s: s / jnp.maximum(state.num_draws - 1, 1).astype(s.dtype), state.squares)
        return Moments(state.num_draws, state.mean, variance)


@dataclass(frozen=True)
class PredictiveMean:
    """Average over the draws of `predict(theta)`: the posterior predictive mean."""

    predict: Callable[[PyTree], PyTree]

    def init(self, theta: PyTree) -> Any:
        return MeanAndVariance(self.predict).init(theta)._replace(squares=None)

    def update(self, state: Any, theta: PyTree) -> Any:
        num_draws, value = state.num_draws + 1, MeanAndVariance(self.predict)._value(theta)
        mean = jax.tree.map(lambda m, x: m + (x - m) / num_draws.astype(x.dtype), state.mean, value)
        return _Running(num_draws, mean, None)

    def result(self, state: Any) -> PyTree:
        return state.mean


@dataclass(frozen=True)
class _Several:
    """A dict of collectors, as a hashable collector."""

    items: tuple[tuple[str, Any], ...]

    def init(self, theta: PyTree) -> Any:
        return {name: collector.init(theta) for name, collector in self.items}

    def update(self, state: Any, theta: PyTree) -> Any:
        return {name: collector.update(state[name], theta) for name, collector in self.items}

    def result(self, state: Any) -> Any:
        return {name: collector.result(state[name]) for name, collector in self.items}


def _inexact(x: Any) -> jax.Array:
    """x, which has a mean: truth values and whole numbers as floats."""
    x = jnp.asarray(x)
    result: jax.Array = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)
    return result


def mean_and_variance(of: Callable[[PyTree], PyTree] | None = None) -> MeanAndVariance:
    """Running mean and variance of theta, or of a function of it: of `lambda theta: theta["x"] > 1`, the probability.

    Args:
        of: a function of theta; None: theta itself.

    Returns:
        A collector, for `ib.sample(collect=...)`. Its result is `Moments`.

    Example:
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
        >>> collect = ib.collect.mean_and_variance(lambda theta: theta["x"] > 1)
        >>> draws = ib.sample(kernel, 0.05, 150, burn_in=100, collect=collect, progress=False)
        >>> 0 <= float(draws.collected.mean[0]) <= 1
        True
    """
    return MeanAndVariance(of)


def predictive_mean(predict: Callable[[PyTree], PyTree]) -> PredictiveMean:
    """Running mean of `predict(theta)` over the draws.

    Args:
        predict: a function of theta, such as the predicted probabilities of held-out rows.

    Returns:
        A collector, for `ib.sample(collect=...)`. Its result is shaped like what `predict` returns.

    Example:
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
        >>> collect = ib.collect.predictive_mean(lambda theta: jnp.exp(-theta["x"] * jnp.arange(3.0)))
        >>> draws = ib.sample(kernel, 0.05, 150, burn_in=100, collect=collect, progress=False)
        >>> draws.collected.shape, float(draws.collected[0, 0])
        ((1, 3), 1.0)
    """
    return PredictiveMean(predict)


def as_collector(collect: Any) -> Collector | None:
    """None, a collector, or a dict of collectors."""
    if collect is None:
        return None
    if isinstance(collect, dict):
        return _Several(tuple((name, as_collector(item)) for name, item in collect.items()))
    if all(hasattr(collect, name) for name in ("init", "update", "result")):
        own: Collector = collect
        return own
    raise ValueError(
        f"`collect` must be a collector such as ib.collect.mean_and_variance(), or a dict of them; got {collect!r}."
    )
