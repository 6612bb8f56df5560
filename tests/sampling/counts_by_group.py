"""A posterior that is known exactly, for the tests on many devices: counts of groups, Gamma rates. Imports no JAX before its time."""

import numpy as np

GROUPS, ROWS = 64, 803  # a prime number of rows: no division over devices is even


def data():
    generator = np.random.default_rng(7)
    group = generator.integers(0, GROUPS, ROWS).astype(np.int32)
    count = generator.poisson(0.5 + group / 32).astype(np.float32)
    return {"group": group, "count": count}


def posterior(rows):
    import jax.numpy as jnp
    import numpyro.distributions as dist

    import inbounds as ib

    def log_likelihood(theta, batch):
        rate = theta["rate"][batch["group"]]
        return batch["count"] * jnp.log(rate) - rate

    return ib.Posterior({"rate": dist.Gamma(2.0, 1.0).expand([GROUPS])}, log_likelihood, rows)


def exact_moments():
    """Mean and standard deviation of every rate: its posterior is a Gamma."""
    rows = data()
    shape = 2.0 + np.bincount(rows["group"], rows["count"], GROUPS)
    rate = 1.0 + np.bincount(rows["group"], minlength=GROUPS)
    return shape / rate, np.sqrt(shape) / rate
