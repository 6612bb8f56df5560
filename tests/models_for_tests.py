"""What several tests share: small models, made once (an equal kernel on the same posterior compiles once), and where to run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.engine import chunks

on_cpus = pytest.mark.skipif(jax.default_backend() != "cpu", reason="looks at what is made for CPUs alone")


@functools.cache
def linear_regression(rows: int = 1_000, columns: int = 5, seed: int = 0):
    """A posterior whose law is known: (posterior, mean, sd)."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    y = (x @ generator.normal(size=columns) + generator.normal(size=rows)).astype(np.float32)
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 10.0).expand([columns])},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - batch["x"] @ theta["w"]),
        {"x": x, "y": y},
    )
    covariance = np.linalg.inv(x.T.astype(float) @ x + np.eye(columns) / 100)
    return posterior, covariance @ (x.T.astype(float) @ y), np.sqrt(np.diag(covariance))


@functools.cache
def poisson_rates(rows: int = 40, seed: int = 0) -> ib.Posterior:
    """Positive rates and a mixing weight, with data: bounded variables of two kinds."""
    counts = np.random.default_rng(seed).poisson(3.0, size=(rows, 2)).astype(np.float32)

    def log_likelihood(theta, batch):
        rate = theta["rate"] * (0.5 + theta["mix"])
        return jnp.sum(batch["n"] * jnp.log(rate) - rate, axis=-1)

    priors = {"rate": dist.Gamma(2.0, 1.0).expand([2]), "mix": dist.Beta(0.5, 0.5)}
    return ib.Posterior(priors, log_likelihood, {"n": counts})


def noisy(target, noise_sd: float = 1.0) -> ib.Posterior:
    """A one-dimensional target whose gradient has Gaussian noise: the paper's emulation."""
    if noise_sd == 0:
        return ib.Posterior({"theta": target.prior})
    return ib.Posterior(
        supports={"theta": target.support},
        gradient=lambda theta, z: {"theta": target.score(theta["theta"]) + noise_sd * z.astype(theta["theta"].dtype)},
        data=ib.data.Generated(lambda key: jax.random.normal(key)),
    )


def compilations(posterior):
    """How many programs of the driver have been compiled for a posterior."""
    return sum(run._cache_size() for run in posterior.compiled.programs(chunks._run_chunk))
