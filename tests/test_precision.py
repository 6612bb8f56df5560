"""Sums in double precision beside runs in single precision."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib

SOURCES = Path(ib.__file__).parent
ROWS = np.random.default_rng(0).poisson(3.0, (200, 2)).astype(np.float32)


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")
@pytest.mark.parametrize("order", ["single first", "double first"])
def test_doubles_of_numpy_in_a_model_serve_both_precisions(order):
    """Constants of the likelihood, and parameters that NumPyro makes of a number beside an array."""
    exposure = np.array([0.5, 2.0])
    posterior = ib.Posterior(
        {"rate": dist.Gamma(jnp.full(2, 2.0), 1.0)},
        lambda theta, rows: jnp.sum(dist.Poisson(theta["rate"] * jnp.exp(jnp.log(exposure))).log_prob(rows), axis=-1),
        ROWS,
    )

    def run(kernel):
        return ib.sample(kernel, 1e-4, 200, batch_size=20, progress=False).theta["rate"]

    if order == "single first":
        run(ib.sgld(posterior))
    shape, rate = 2 + ROWS.sum(axis=0), 1 + 200 * exposure
    center = {"rate": (shape / rate).astype(np.float32)}
    metric = ib.metrics.laplace(posterior, center, batch_size=20)
    draws = run(ib.sgld(posterior, metric=metric, gradient=ib.gradients.taylor(center=center)))
    assert draws.dtype == np.float32
    assert run(ib.sgld(posterior)).dtype == np.float32


def test_double_precision_is_switched_on_in_one_way():
    users = [path.name for path in SOURCES.rglob("*.py") if re.search(r"enable_x64\(True\)", path.read_text())]
    assert users == ["precision.py"]
