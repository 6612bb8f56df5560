"""Logistic regression on a million rows: a step looks at 500 of them, and a control variate takes the noise away."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Example, main

COLUMNS = 10


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


EXAMPLE = Example(
    name="logistic_regression",
    model=model,
    data=data,
    rows=1_000_000,
    small_rows=5_000,
    steps=100_000,
    panels=[(f"weight {i}", "weights", i) for i in (0, 4, 9)],
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
