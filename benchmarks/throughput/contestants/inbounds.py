"""Inbounds through its public `ib.sample`, progress bar and health checks on."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from densities import LIKELIHOODS
from rows import LAYERS, RATE, RATES, SHAPE, WEIGHTS

import inbounds as ib


def priors(model):
    inputs, hidden, outputs = LAYERS
    normal, shapes = (
        dist.Normal(0.0, 1.0),
        {"w1": (inputs, hidden), "b1": (hidden,), "w2": (hidden, outputs), "b2": (outputs,)},
    )
    return {
        "logistic": {"w": normal.expand([WEIGHTS])},
        "mlp": {name: normal.expand(shape) for name, shape in shapes.items()},
        "rates": {"rate": dist.Gamma(SHAPE, RATE).expand([RATES])},
        "gamma": {"x": dist.Gamma(0.5, 2.0)},
        "beta": {"x": dist.Beta(0.5, 0.5)},
    }[model]


def prepare(row, data, num_steps):
    posterior = ib.Posterior(priors(row.model), LIKELIHOODS.get(row.model), data or None)
    kernel = ib.sgld(posterior)
    start = jax.tree.map(jnp.asarray, row.make_start())

    def run(seed):
        draws = ib.sample(
            kernel,
            row.step_size,
            num_steps,
            thin=row.thin,
            batch_size=row.batch_size,
            num_chains=row.num_chains,
            seed=seed,
            init=start,
            progress=True,
        )
        return draws.theta

    return run
