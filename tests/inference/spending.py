"""A small posterior whose law is known: what customers spent."""

import functools

import numpy as np
import numpyro.distributions as dist

import inbounds as ib

ROWS = 1_000


@functools.cache
def spending() -> ib.Posterior:
    """The rate has a Gamma posterior."""
    spent = np.random.default_rng(0).exponential(2.0, ROWS).astype(np.float32)
    likelihood = lambda theta, batch: dist.Exponential(theta["rate"]).log_prob(batch)  # noqa: E731
    return ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, likelihood, spent)


def exact(posterior) -> tuple[float, float]:
    """(mean, sd) of the rate."""
    shape, rate = 2 + ROWS, 2 + float(np.sum(posterior.data, dtype=np.float64))
    return shape / rate, shape**0.5 / rate


def of_spending(**options) -> ib.Draws:
    """By minibatches, which compile fastest."""
    return ib.infer(spending(), **{"method": "minibatch", "progress": False} | options)
