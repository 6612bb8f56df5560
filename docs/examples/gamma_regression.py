"""Gamma regression with positive coefficients: the mean of y is a sum of positive effects, one of them hardly there.

Every coefficient lives on (0, inf), and the data push the last one against its bound.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import arguments, compare, nuts, picture

import inbounds as ib

EFFECTS = np.array([1.0, 0.5, 0.3, 0.2, 0.005])


def model(x, y, batch_size=200):
    effects = numpyro.sample("effects", dist.HalfNormal(1.0).expand([x.shape[1]]).to_event(1))
    shape = numpyro.sample("shape", dist.Gamma(2.0, 0.5))
    with numpyro.plate("data", len(y), subsample_size=batch_size) as rows:
        numpyro.sample("y", dist.Gamma(shape, shape / (x[rows] @ effects)), obs=y[rows])


def data(rows: int):
    generator = np.random.default_rng(0)
    x = generator.exponential(size=(rows, len(EFFECTS))).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(generator.gamma(3.0, x @ EFFECTS / 3.0), jnp.float32)


def main(small: bool, out) -> dict:
    x, y = data(500 if small else 20_000)
    posterior = ib.from_numpyro(model, x, y)
    report = ib.check(posterior, gradient=ib.gradients.svrg())
    gradient = ib.gradients.control_variate(center=report.center)
    kernel = ib.leimkuhler_matthews(posterior, gradient=gradient, preconditioner=report.preconditioner)
    step_size = report.preconditioned_step_size
    steps = 200 if small else 50_000
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
    picture(
        "gamma_regression", draws, reference,
        [("a clear effect", "effects", 0), ("one at its bound", "effects", 4), ("shape", "shape")], out,
    )  # fmt: skip
    return compare("gamma_regression", draws, reference, out, step_size)


if __name__ == "__main__":
    options = arguments(__doc__)
    main(options.small, options.out)
