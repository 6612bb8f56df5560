"""What an estimator of the gradient is, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

from inbounds.posterior import Posterior
from inbounds.trees import PyTree


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
        """Its state for a chain that starts at `theta`; arrays, or None.

        Args:
            theta: the start of the chain.
            with_noise: whether the kernel will ask for differences.

        Returns:
            Arrays, or None.
        """
        return None

    def estimate(self, state: Any, theta: PyTree, batch: PyTree, with_noise: bool) -> tuple[Gradient, Any]:
        """The gradient of log pi at `theta` from a minibatch, with its differences where `with_noise`; and the new state.

        Args:
            state: what `init`, `refresh` or the last `estimate` returned.
            theta: where the chain stands.
            batch: a minibatch, whose terms are to be scaled up to all the rows.
            with_noise: whether differences are wanted.

        Returns:
            The estimate, and the state to go on with.
        """
        ...

    def refresh(self, state: Any, theta: PyTree) -> Any:
        """The state after a look at all the data.

        Args:
            state: what the last `estimate` returned.
            theta: where the chain stands.

        Returns:
            The state to go on with.
        """
        return state


GradientFactory = Callable[[Posterior], GradientEstimator]

VARIANCES = ("halves", "successive", "per_example")


def check_options(variance: str, smoothing: float) -> None:
    """What every factory is given beside the posterior."""
    if variance not in VARIANCES:
        raise ValueError(f"Unknown variance estimate {variance!r}. Known: {', '.join(VARIANCES)}.")
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"`smoothing` must be in [0, 1); got {smoothing}.")


def register(kind: type[GradientEstimator], arrays: tuple[str, ...] = ()) -> None:
    """Let JAX take estimators apart: `arrays` are arguments of what is compiled for a kernel, the rest is part of it."""

    def flatten(estimator: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        rest = tuple((name, value) for name, value in sorted(vars(estimator).items()) if name not in arrays)
        return tuple(getattr(estimator, name) for name in arrays), rest

    def unflatten(rest: tuple[Any, ...], values: Any) -> Any:
        estimator: Any = object.__new__(kind)
        vars(estimator).update(dict(rest), **dict(zip(arrays, values, strict=True)))
        return estimator

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)
