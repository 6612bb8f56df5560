"""Inbounds through its public `ib.sample`, progress bar and health checks on."""

import numpyro.distributions as dist
from densities import LIKELIHOODS
from rows import LAYERS, RATE, RATES, SHAPE, WEIGHTS

import inbounds as ib


def priors(model):
    if model == "gamma":
        return {"x": dist.Gamma(0.5, 2.0)}
    if model == "beta":
        return {"x": dist.Beta(0.5, 0.5)}
    if model == "rates":
        return {"rate": dist.Gamma(SHAPE, RATE).expand([RATES])}
    normal, (inputs, hidden, outputs) = dist.Normal(0.0, 1.0), LAYERS
    shapes = {"w1": (inputs, hidden), "b1": (hidden,), "w2": (hidden, outputs), "b2": (outputs,)}
    return {name: normal.expand(shape) for name, shape in (shapes if model == "mlp" else {"w": (WEIGHTS,)}).items()}


def prepare(row, data, num_steps):
    posterior = ib.Posterior(priors(row.model), LIKELIHOODS.get(row.model), data or None)
    kernel = ib.sgld(posterior)
    start = row.make_start()

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
