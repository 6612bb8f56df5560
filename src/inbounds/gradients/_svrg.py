"""A control variate whose centre moves along."""

from __future__ import annotations

from typing import Any

from jax.tree_util import Partial

from inbounds.data.arrays import is_stream
from inbounds.gradients._base import check_options
from inbounds.gradients._control_variate import ControlVariate
from inbounds.posterior import Posterior


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
    check_options(variance, smoothing)
    if every < 1:
        raise ValueError(f"`every` must be at least 1 step; got {every}.")
    if posterior is None:
        return Partial(svrg, every=every, variance=variance, smoothing=smoothing)
    if is_stream(posterior.data):
        raise ValueError(
            "svrg looks at all the data again and again from compiled code, which data on disk do not allow. Take "
            "ib.gradients.control_variate(center=...): it reads them once."
        )
    return ControlVariate(posterior, None, every, variance, smoothing)
