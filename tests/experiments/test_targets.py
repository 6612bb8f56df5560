"""Each target's closed forms agree with each other, with NumPyro and with quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from experiments.targets import TARGETS, beta, gamma

LEVELS = np.array([1e-6, 1e-3, 0.05, 0.3, 0.5, 0.77, 0.95, 0.999])
every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


def expectation(target, h):
    """E[h(theta)] over levels u = v^2 (3 - 2v), which flattens the integrable poles of the quantile function."""
    return integrate.quad(lambda v: h(target.quantile(v * v * (3 - 2 * v))) * 6 * v * (1 - v), 0, 1, epsabs=1e-12)[0]


def test_the_registry_holds_the_papers_targets_by_name():
    assert list(TARGETS) == ["beta-0.5-0.5", "beta-0.5-1.5", "gamma-0.5-0.5", "half-normal", "truncated-normal--1-1"]
    assert all(name == target.name for name, target in TARGETS.items())


@every_target
def test_the_quantile_inverts_the_distribution_function(target):
    np.testing.assert_allclose(target.cdf(target.quantile(LEVELS)), LEVELS, rtol=1e-9)


@every_target
def test_the_density_is_the_slope_of_the_distribution_function(target):
    theta = target.quantile(LEVELS[2:])
    h = 1e-5 * np.minimum(abs(theta - target.low), abs(target.high - theta))
    slope = (target.cdf(theta + h) - target.cdf(theta - h)) / (2 * h)
    np.testing.assert_allclose(target.pdf(theta), slope, rtol=1e-6)


@every_target
def test_the_density_is_the_one_of_the_numpyro_prior(target):
    theta = target.quantile(LEVELS)
    with jax.enable_x64(True):
        log_prob = target.prior.log_prob(jnp.asarray(theta))
        assert target.support(jnp.asarray(theta)).all()
    np.testing.assert_allclose(np.exp(log_prob), target.pdf(theta), rtol=2e-6)  # NumPyro keeps parameters in float32


@every_target
def test_the_moments_are_those_of_the_density(target):
    assert expectation(target, lambda x: x) == pytest.approx(target.mean, abs=1e-9)
    assert expectation(target, np.square) == pytest.approx(target.second_moment, rel=1e-9)


@every_target
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_score_is_the_gradient_of_the_log_density_and_keeps_its_dtype(target, dtype):
    with jax.enable_x64(dtype == jnp.float64):
        theta = jnp.asarray(target.quantile(LEVELS[1:]), dtype)
        score = target.score(theta)
        assert score.dtype == dtype
        step = 1e-4 * np.minimum(theta - target.low, target.high - theta)
        above, below = (np.log(target.pdf(np.asarray(theta, float) + sign * step)) for sign in (1, -1))
        np.testing.assert_allclose(score, (above - below) / (2 * np.asarray(step, float)), rtol=1e-3, atol=1e-5)


@every_target
def test_the_histogram_has_a_hundred_bins_that_cover_the_support(target):
    edges = target.edges
    assert len(edges) == 101
    assert (np.diff(edges) > 0).all()
    assert (edges[0], edges[-1]) == (target.low, target.high)
    assert np.diff(target.cdf(edges)).sum() == pytest.approx(1, abs=1e-12)


def test_on_a_half_line_the_last_bin_is_the_overflow_above_the_999th_permille():
    target = gamma(0.5, 0.5)
    mass = np.diff(target.cdf(target.edges))
    assert mass[-1] == pytest.approx(1e-3, rel=1e-9)
    assert np.ptp(np.diff(target.edges[:-1])) < 1e-12


def test_the_two_forms_of_a_score_agree_where_both_powers_are_there():
    target = beta(0.5, 1.5)
    theta = jnp.asarray([0.2, 0.6])
    np.testing.assert_allclose(target.score(theta), -0.5 / theta - 0.5 / (1 - theta), rtol=1e-6)
