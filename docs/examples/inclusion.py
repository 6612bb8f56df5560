"""Which components are in the signal? Inclusions in (0, 1) with a Beta(.1, .1) prior, whose density is infinite at both ends.

Mirror and projected samplers fail on such a prior at every step size; the doctor says so, and proposes probit.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Example, main

PRESENT, NOISE = np.array([1.0, 1.0, 0.0, 0.0, 0.5, 0.0]), 2.0


def model(components, y, batch_size=50):
    inclusion = numpyro.sample("inclusion", dist.Beta(0.1, 0.1).expand([components.shape[1]]).to_event(1))
    with numpyro.plate("data", len(y), subsample_size=batch_size) as rows:
        numpyro.sample("y", dist.Normal(components[rows] @ inclusion, NOISE), obs=y[rows])


def data(rows: int):
    generator = np.random.default_rng(4)
    components = generator.normal(size=(rows, len(PRESENT))).astype(np.float32)
    noise = NOISE * generator.normal(size=rows)
    return jnp.asarray(components), jnp.asarray(components @ PRESENT + noise, jnp.float32)


EXAMPLE = Example(
    name="inclusion",
    model=model,
    data=data,
    rows=300,
    small_rows=300,
    steps=200_000,
    panels=[("in", "inclusion", 0), ("out", "inclusion", 2), ("half in", "inclusion", 4)],
    chains=32,
    thin=20,
    transforms={"inclusion": "probit"},
    preconditioned=False,  # the kernel is of second order: the upper end of a range made for first-order kernels will do
    double=True,  # in single precision NUTS cannot tell 1 - 1e-8 from 1, and would lose a fifth of the spike there
    reference_draws=10_000,
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
