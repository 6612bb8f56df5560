"""A hierarchical model with half-normal scales: group effects share a spread that is itself unknown."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Example, main

GROUPS = 20


def model(group, y, batch_size=200):
    center = numpyro.sample("center", dist.Normal(0.0, 2.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("groups", GROUPS):
        effect = numpyro.sample("effect", dist.Normal(center, spread))
    with numpyro.plate("data", len(y), subsample_size=batch_size) as rows:
        numpyro.sample("y", dist.Normal(effect[group[rows]], noise), obs=y[rows])


def data(rows: int):
    generator = np.random.default_rng(2)
    group = generator.integers(0, GROUPS, rows)
    effects = generator.normal(1.0, 0.4, GROUPS)
    return jnp.asarray(group), jnp.asarray(generator.normal(effects[group], 0.8), jnp.float32)


EXAMPLE = Example(
    name="hierarchical",
    model=model,
    data=data,
    rows=4_000,
    small_rows=400,
    steps=60_000,
    panels=[("spread of the groups", "spread"), ("noise", "noise"), ("effect of the first group", "effect", 0)],
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
