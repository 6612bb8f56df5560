"""A NumPyro model, its potential energy in NumPyro's own unbounded space (exp, sigmoid), and BlackJAX's SGLD in a scan: by hand."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from contestants.blackjax import scan_loop
from numpyro.infer.util import potential_energy
from rows import COUNTS, RATE, RATES, SHAPE


def model(row):
    def rates(batch):
        rate = numpyro.sample("rate", dist.Gamma(SHAPE, RATE).expand([RATES]).to_event(1))
        with numpyro.handlers.scale(scale=COUNTS / len(batch["count"])):
            numpyro.sample("count", dist.Poisson(rate[batch["index"]]), obs=batch["count"])

    return {
        "gamma": lambda batch: numpyro.sample("x", dist.Gamma(0.5, 2.0)),
        "beta": lambda batch: numpyro.sample("x", dist.Beta(0.5, 0.5)),
        "rates": rates,
    }[row.model]


def prepare(row, data, num_steps):
    if not row.bounded:
        raise NotImplementedError("for bounded rows")
    data = jax.tree.map(jnp.asarray, data)
    log_density = model(row)
    name = "rate" if row.model == "rates" else "x"
    support = dist.constraints.unit_interval if row.model == "beta" else dist.constraints.positive
    bijection = dist.biject_to(support)
    gradient = jax.grad(lambda phi, batch: -potential_energy(log_density, (batch,), {}, phi))
    start = {name: bijection.inv(jnp.asarray(row.make_start()[name]))}
    run = scan_loop(row, gradient, start, lambda phi: {name: bijection(phi[name])}, num_steps)
    return lambda seed: run(jax.random.key(seed), data)
