"""Zero-inflated counts in groups: catches of visitors to lakes, some of whom did not fish at all."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Inferred, main

VISITORS = 15


def model(lakes, lake, hours, caught):
    did_not_fish = numpyro.sample("did not fish", dist.Beta(1, 1))
    base = numpyro.sample("base", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("lakes", lakes):
        level = numpyro.sample("level", dist.Normal(base, spread))
    with numpyro.plate("visitors", len(caught)):
        rate = jnp.exp(level[lake] + slope * hours)
        numpyro.sample("caught", dist.ZeroInflatedPoisson(did_not_fish, rate), obs=caught)


def data(lakes: int) -> tuple:
    generator = np.random.default_rng(7)
    lake = np.repeat(np.arange(lakes, dtype=np.int32), 1 + generator.poisson(VISITORS - 1, lakes))
    hours = generator.normal(size=len(lake)).astype(np.float32)
    rate = np.exp(generator.normal(0.4, 0.6, lakes)[lake] + 0.5 * hours)
    fished = generator.random(len(lake)) > 0.35
    return lakes, lake, hours, (fished * generator.poisson(rate)).astype(np.int32)


EXAMPLE = Inferred(
    name="zero_inflated_groups",
    model=model,
    data=data,
    groups=80,
    small_groups=10,
    panels=[("share that did not fish", "did not fish"), ("spread of the lakes", "spread"), ("first lake", "level", 0)],
    effects=("level",),
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
