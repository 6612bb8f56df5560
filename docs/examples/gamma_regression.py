"""Gamma regression with positive coefficients: the mean of y is a sum of positive effects, one of them hardly there.

Every coefficient lives on (0, inf), and the data push the last one against its bound.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Example, main

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


EXAMPLE = Example(
    name="gamma_regression",
    model=model,
    data=data,
    rows=20_000,
    small_rows=500,
    steps=50_000,
    panels=[("a clear effect", "effects", 0), ("one at its bound", "effects", 4), ("shape", "shape")],
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
