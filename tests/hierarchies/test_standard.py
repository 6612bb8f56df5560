"""Coordinates of gamma effects: the law that they say, and single precision where the shape is large."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from inbounds.hierarchies.quadrature import center_of, log_integral
from inbounds.hierarchies.standard import effect_of
from inbounds.precision import in_double

Z = np.concatenate([np.linspace(-4.0, 4.0, 9), [-40.0, 30.0]])


def _looked_at(shape, rate, z):
    """(effects, log densities of their coordinates, slopes of the effects)."""

    def one(z):
        value, log_density = effect_of(dist.Gamma(jnp.asarray(shape, z.dtype), rate).expand([1]), z[None])
        return value[0], log_density[0]

    (value, log_density), slope = jax.vmap(lambda x: (one(x), jax.grad(lambda y: one(y)[0])(x)))(jnp.asarray(z))
    return np.asarray(value), np.asarray(log_density), np.asarray(slope)


@pytest.mark.parametrize("rate", [1.0, 1e-4])
@pytest.mark.parametrize("shape", [0.2, 3.0, 40.0, 1e4, 1e8])
def test_gamma_effects_have_the_density_of_their_law(shape, rate):
    with in_double():
        value, log_density, slope = _looked_at(shape, rate, Z)
    exact = stats.gamma.logpdf(value, shape, scale=1 / rate) + np.log(slope)
    np.testing.assert_allclose(log_density, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [0.2, 9.99, 10.01, 1e4, 1e8, 1e16])
def test_gamma_effects_say_the_same_in_single_precision(shape):
    near = Z[:9]
    with in_double():
        value, log_density, _ = _looked_at(shape, shape, near)
    single, in_single, _ = _looked_at(shape, shape, near.astype(np.float32))
    assert single.dtype == in_single.dtype == np.float32
    np.testing.assert_allclose(single, value, rtol=1e-6)
    np.testing.assert_allclose(in_single, log_density, atol=1e-4)  # as it is written, the density is off by hundreds


def test_the_coordinates_of_gamma_effects_are_about_standard_at_every_shape():
    for shape in (1.0, 100.0, 1e6):
        _, log_density, _ = _looked_at(shape, 7.0, np.linspace(-1, 1, 3).astype(np.float32))
        curvature = 2 * log_density[1] - log_density[0] - log_density[2]
        assert 0.3 < curvature < 1.5


@pytest.mark.parametrize("shape", [2.0, 50.0, 1e6])
def test_integrated_gamma_frailties_of_counts_are_negative_binomial(shape):
    """A Poisson count whose mean is 3 times a frailty with mean 1, for several counts at once."""
    counts = jnp.arange(0.0, 12.0, 2.0)

    def joint(z):
        frailty, log_density = effect_of(dist.Gamma(shape, shape).expand([1]), z)
        return log_density[:, 0] + dist.Poisson(3.0 * frailty[:, 0]).log_prob(counts)

    found = log_integral(joint, center_of(joint, jnp.zeros((len(counts), 1))), 11)
    exact = stats.nbinom.logpmf(np.asarray(counts), shape, shape / (shape + 3.0))
    np.testing.assert_allclose(found, exact, atol=2e-4)  # by softplus alone 0.025 at 1e6
