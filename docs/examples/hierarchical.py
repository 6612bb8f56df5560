"""A hierarchical model with half-normal scales: group effects share a spread that is itself unknown."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import arguments, compare, nuts, picture

import inbounds as ib

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


def main(small: bool, out) -> dict:
    group, y = data(400 if small else 4_000)
    posterior = ib.from_numpyro(model, group, y)
    report = ib.check(posterior, gradient=ib.gradients.svrg())
    gradient = ib.gradients.control_variate(center=report.center)
    kernel = ib.leimkuhler_matthews(posterior, gradient=gradient, preconditioner=report.preconditioner)
    step_size = report.preconditioned_step_size
    steps = 200 if small else 60_000
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
    reference = nuts(model, group, y, batch_size=None, start=report.center, small=small)
    panels = [("spread of the groups", "spread"), ("noise", "noise"), ("effect of the first group", "effect", 0)]
    picture("hierarchical", draws, reference, panels, out)
    return compare("hierarchical", draws, reference, out, step_size)


if __name__ == "__main__":
    options = arguments(__doc__)
    main(options.small, options.out)
