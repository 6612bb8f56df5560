"""Which components are in the signal? Inclusions in (0, 1) with a Beta(.1, .1) prior, whose density is infinite at both ends.

Mirror and projected samplers fail on such a prior at every step size; the doctor says so, and proposes probit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import arguments, compare, nuts, picture

import inbounds as ib

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


def main(small: bool, out) -> dict:
    components, y = data(300)
    posterior = ib.from_numpyro(model, components, y)
    transforms = {"inclusion": "probit"}
    report = ib.check(posterior, transforms, gradient=ib.gradients.svrg())
    gradient = ib.gradients.control_variate(center=report.center)
    kernel = ib.leimkuhler_matthews(posterior, transforms, gradient=gradient)
    # The kernel is of second order: the upper end of a range made for first-order kernels will do.
    step_size = report.step_sizes[1]
    steps = 200 if small else 200_000
    draws = ib.sample(
        kernel,
        step_size,
        steps,
        burn_in=steps // 10,
        thin=20,
        num_chains=2 if small else 32,
        init=report.center,
        progress=False,
    )
    print(draws.summary())
    # In single precision NUTS cannot tell 1 - 1e-8 from 1, and would lose a fifth of the spike there.
    with jax.enable_x64(True):
        reference = nuts(model, components, y, batch_size=None, start=report.center, small=small, draws=10_000)
    panels = [("in", "inclusion", 0), ("out", "inclusion", 2), ("half in", "inclusion", 4)]
    picture("inclusion", draws, reference, panels, out)
    return compare("inclusion", draws, reference, out, step_size)


if __name__ == "__main__":
    options = arguments(__doc__)
    main(options.small, options.out)
