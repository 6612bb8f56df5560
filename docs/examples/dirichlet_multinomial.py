"""Dirichlet-multinomial: what customers of shops buy, of four kinds, when shops differ. The shops' shares are integrated out by hand."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Inferred, main

SHARES, CONCENTRATION, SOLD = np.array([0.1, 0.2, 0.3, 0.4]), 8.0, 30


def model(sold):
    shares = numpyro.sample("shares", dist.Dirichlet(np.ones(len(SHARES), np.float32)))
    concentration = numpyro.sample("concentration", dist.Gamma(2.0, 0.1))
    with numpyro.plate("shops", len(sold)):
        numpyro.sample("sold", dist.DirichletMultinomial(concentration * shares, sold.sum(axis=1)), obs=sold)


def data(shops: int) -> tuple:
    generator = np.random.default_rng(8)
    totals = 1 + generator.poisson(SOLD - 1, shops)
    shares = generator.dirichlet(CONCENTRATION * SHARES, shops)
    return (np.stack([generator.multinomial(n, p) for n, p in zip(totals, shares, strict=True)]).astype(np.int32),)


EXAMPLE = Inferred(
    name="dirichlet_multinomial",
    model=model,
    data=data,
    groups=400,
    small_groups=40,
    panels=[("concentration", "concentration"), ("first share", "shares", 0), ("last share", "shares", 3)],
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
