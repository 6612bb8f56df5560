"""Logistic regression on a million rows: a step looks at 500 of them, and a control variate takes the noise away."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import arguments, compare, nuts, picture

import inbounds as ib

COLUMNS = 10
jax.config.update("jax_default_matmul_precision", "highest")  # a GPU's shortcuts are visible in a million rows


def model(x, y, batch_size=500):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", len(y), subsample_size=batch_size) as rows:
        numpyro.sample("y", dist.Bernoulli(logits=x[rows] @ weights), obs=y[rows])


def data(rows: int):
    generator = np.random.default_rng(3)
    x = generator.normal(size=(rows, COLUMNS)).astype(np.float32)
    x[:, 0] = 1.0
    weights = np.linspace(-1.0, 1.0, COLUMNS)
    return jnp.asarray(x), jnp.asarray(generator.uniform(size=rows) < 1 / (1 + np.exp(-x @ weights)), jnp.int32)


def main(small: bool, out) -> dict:
    x, y = data(5_000 if small else 1_000_000)
    posterior = ib.from_numpyro(model, x, y)
    report = ib.check(posterior, gradient=ib.gradients.svrg())
    gradient = ib.gradients.control_variate(center=report.center)
    kernel = ib.leimkuhler_matthews(posterior, gradient=gradient, preconditioner=report.preconditioner)
    step_size = report.preconditioned_step_size
    steps = 200 if small else 100_000
    draws = ib.sample(
        kernel,
        step_size,
        steps,
        burn_in=steps // 10,
        thin=10,
        num_chains=2 if small else 8,
        init=report.center,
        progress=False,
    )
    print(draws.summary())
    reference = nuts(model, x, y, batch_size=None, start=report.center, small=small)
    picture("logistic_regression", draws, reference, [(f"weight {i}", "weights", i) for i in (0, 4, 9)], out)
    return compare("logistic_regression", draws, reference, out, step_size)


if __name__ == "__main__":
    options = arguments(__doc__)
    main(options.small, options.out)
