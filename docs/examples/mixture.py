"""A mixture of normals: weights on the simplex, means in order (so that no two components can change places)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Example, main
from numpyro.distributions.transforms import OrderedTransform

WEIGHTS, MEANS, SDS = np.array([0.2, 0.5, 0.3]), np.array([-3.0, 0.0, 2.5]), np.array([0.6, 0.9, 0.5])


def model(y, components=3, batch_size=200):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
    spread = dist.Normal(0.0, 3.0).expand([components]).to_event(1)
    means = numpyro.sample("means", dist.TransformedDistribution(spread, OrderedTransform()))
    sds = numpyro.sample("sds", dist.HalfNormal(1.0).expand([components]).to_event(1))
    with numpyro.plate("data", len(y), subsample_size=batch_size) as rows:
        mixing, parts = dist.Categorical(weights), dist.Normal(means, sds)
        numpyro.sample("y", dist.MixtureSameFamily(mixing, parts), obs=y[rows])


def data(rows: int):
    generator = np.random.default_rng(1)
    which = generator.choice(3, size=rows, p=WEIGHTS)
    return (jnp.asarray(generator.normal(MEANS[which], SDS[which]), jnp.float32),)


EXAMPLE = Example(
    name="mixture",
    model=model,
    data=data,
    rows=10_000,
    small_rows=500,
    steps=80_000,
    panels=[("weight of the first", "weights", 0), ("mean of the second", "means", 1), ("sd of the third", "sds", 2)],
    start={"weights": jnp.ones(3) / 3, "means": jnp.asarray([-2.0, 0.0, 2.0]), "sds": jnp.ones(3)},
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
