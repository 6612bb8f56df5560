"""Gamma frailty: times until relapse in clinics that differ, some of them censored, with a Weibull hazard."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Inferred, main

PATIENTS, END = 10, 3.0


def model(clinics, clinic, treated, time, relapsed):
    base = numpyro.sample("base", dist.Normal(0, 2))
    effect = numpyro.sample("treatment", dist.Normal(0, 1))
    shape = numpyro.sample("shape", dist.LogNormal(0, 0.5))
    # The prior keeps away from 0 variance, where the shape of the frailties is beyond what single precision can take.
    alike = numpyro.sample("alike", dist.LogNormal(1, 1))
    numpyro.deterministic("variance", 1 / alike)
    with numpyro.plate("clinics", clinics):
        frailty = numpyro.sample("frailty", dist.Gamma(alike, alike))
    with numpyro.plate("patients", len(time)):
        rate = frailty[clinic] * jnp.exp(base + effect * treated)
        log_hazard = jnp.log(rate * shape) + (shape - 1) * jnp.log(time)
        numpyro.factor("survival", relapsed * log_hazard - rate * time**shape)


def data(clinics: int) -> tuple:
    generator = np.random.default_rng(6)
    clinic = np.repeat(np.arange(clinics, dtype=np.int32), PATIENTS)
    treated = generator.integers(0, 2, len(clinic)).astype(np.float32)
    rate = generator.gamma(2.0, 0.5, clinics)[clinic] * np.exp(-0.3 - 0.7 * treated)
    time = (generator.exponential(size=len(clinic)) / rate) ** (1 / 1.3)
    return clinics, clinic, treated, np.minimum(time, END).astype(np.float32), (time < END).astype(np.float32)


EXAMPLE = Inferred(
    name="gamma_frailty",
    model=model,
    data=data,
    groups=80,
    small_groups=10,
    panels=[("variance of the frailties", "variance"), ("shape of the hazard", "shape"), ("treatment", "treatment")],
    effects=("frailty",),
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
