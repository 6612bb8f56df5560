"""The stationary laws: against reference numbers, exact identities, simulation, and a finer grid."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.targets import TARGETS, gamma
from inbounds import transforms
from inbounds.diagnostics import weak_error
from inbounds.diagnostics.weak_error import fitted_slope, stationary

GAMMA, BETA, SKEWED = TARGETS["gamma-0.5-0.5"], TARGETS["beta-0.5-0.5"], TARGETS["beta-0.5-1.5"]
HALF_NORMAL, TRUNCATED = TARGETS["half-normal"], TARGETS["truncated-normal--1-1"]
LM = "leimkuhler_matthews"
STEP_SIZES = (0.05, 0.1, 0.2, 0.4, 0.8)

# Relative bias of E[theta^2] at each step size, then W1 at .1 and at .4, by an independent implementation.
REFERENCE = """
gamma-0.5-0.5         softplus 0 euler    1.4e-02 2.9e-02 5.9e-02 1.3e-01 2.9e-01 3.3e-03 1.3e-02
gamma-0.5-0.5         softplus 0 lm       3.3e-06 1.4e-05 6.3e-05 3.3e-04 2.3e-03 9.4e-06 1.7e-04
gamma-0.5-0.5         softplus 1 euler    2.2e-02 4.5e-02 9.3e-02 2.0e-01 4.5e-01 4.4e-03 1.8e-02
gamma-0.5-0.5         softplus 1 euler-nc 1.4e-02 2.9e-02 5.9e-02 1.3e-01 2.9e-01 3.3e-03 1.3e-02
gamma-0.5-0.5         softplus 1 lm       8.0e-03 1.6e-02 3.4e-02 7.4e-02 1.7e-01 1.2e-03 5.3e-03
gamma-0.5-0.5         softplus 1 lm-nc    3.1e-04 1.2e-03 4.9e-03 1.9e-02 7.6e-02 9.9e-05 1.6e-03
gamma-0.5-0.5         icll     0 euler    1.7e-02 3.5e-02 7.4e-02 1.6e-01 3.8e-01 4.1e-03 1.7e-02
gamma-0.5-0.5         icll     0 lm       4.3e-06 2.1e-05 1.1e-04 8.1e-04 7.6e-03 2.0e-05 3.7e-04
gamma-0.5-0.5         icll     1 euler    2.8e-02 5.7e-02 1.2e-01 2.6e-01 6.0e-01 5.6e-03 2.4e-02
gamma-0.5-0.5         icll     1 euler-nc 1.7e-02 3.5e-02 7.4e-02 1.6e-01 3.8e-01 4.1e-03 1.7e-02
gamma-0.5-0.5         icll     1 lm       1.0e-02 2.1e-02 4.5e-02 1.0e-01 2.4e-01 1.6e-03 7.6e-03
gamma-0.5-0.5         icll     1 lm-nc    5.4e-04 2.2e-03 8.6e-03 3.4e-02 1.3e-01 1.9e-04 2.9e-03
half-normal           softplus 0 euler    6.8e-03 1.4e-02 2.9e-02 6.4e-02 1.6e-01 9.3e-03 4.0e-02
half-normal           softplus 0 lm       4.6e-06 1.9e-05 8.6e-05 4.3e-04 2.8e-03 2.5e-05 4.9e-04
half-normal           softplus 1 euler    1.0e-02 2.1e-02 4.4e-02 9.6e-02 2.3e-01 1.4e-02 5.8e-02
half-normal           softplus 1 euler-nc 6.8e-03 1.4e-02 2.9e-02 6.4e-02 1.6e-01 9.3e-03 4.0e-02
half-normal           softplus 1 lm       3.6e-03 7.4e-03 1.6e-02 3.5e-02 9.1e-02 4.6e-03 2.1e-02
half-normal           softplus 1 lm-nc    1.4e-04 5.6e-04 2.3e-03 1.0e-02 4.8e-02 3.9e-04 6.6e-03
half-normal           icll     0 euler    9.0e-03 1.9e-02 3.9e-02 8.9e-02 2.3e-01 1.4e-02 5.9e-02
half-normal           icll     0 lm       9.8e-06 4.3e-05 2.0e-04 1.2e-03 9.2e-03 8.6e-05 1.6e-03
half-normal           icll     1 euler    1.4e-02 2.9e-02 6.0e-02 1.3e-01 3.2e-01 2.0e-02 8.3e-02
half-normal           icll     1 euler-nc 9.0e-03 1.9e-02 3.9e-02 8.9e-02 2.3e-01 1.4e-02 5.9e-02
half-normal           icll     1 lm       5.0e-03 1.0e-02 2.2e-02 5.2e-02 1.4e-01 6.7e-03 3.3e-02
half-normal           icll     1 lm-nc    2.7e-04 1.1e-03 4.7e-03 2.1e-02 9.4e-02 7.9e-04 1.3e-02
beta-0.5-0.5          sigmoid  0 euler    7.8e-04 1.6e-03 3.1e-03 6.3e-03 1.3e-02 1.0e-03 4.0e-03
beta-0.5-0.5          sigmoid  0 lm       5.5e-07 2.2e-06 9.1e-06 3.8e-05 1.6e-04 2.4e-06 4.0e-05
beta-0.5-0.5          sigmoid  1 euler    9.4e-04 1.9e-03 3.8e-03 7.5e-03 1.5e-02 1.2e-03 4.8e-03
beta-0.5-0.5          sigmoid  1 euler-nc 7.8e-04 1.6e-03 3.1e-03 6.3e-03 1.3e-02 1.0e-03 4.0e-03
beta-0.5-0.5          sigmoid  1 lm       1.6e-04 3.3e-04 6.7e-04 1.4e-03 2.9e-03 2.2e-04 9.3e-04
beta-0.5-0.5          sigmoid  1 lm-nc    2.7e-06 1.1e-05 4.2e-05 1.6e-04 6.3e-04 1.2e-05 1.6e-04
truncated-normal--1-1 sigmoid  0 euler    1.0e-02 2.0e-02 4.1e-02 8.5e-02 1.8e-01 6.2e-03 2.5e-02
truncated-normal--1-1 sigmoid  0 lm       6.0e-06 2.5e-05 1.1e-04 5.4e-04 2.9e-03 2.9e-05 5.1e-04
truncated-normal--1-1 sigmoid  1 euler    1.3e-02 2.7e-02 5.5e-02 1.1e-01 2.2e-01 8.1e-03 3.2e-02
truncated-normal--1-1 sigmoid  1 euler-nc 1.0e-02 2.0e-02 4.1e-02 8.5e-02 1.8e-01 6.2e-03 2.5e-02
truncated-normal--1-1 sigmoid  1 lm       3.4e-03 6.9e-03 1.4e-02 3.0e-02 6.9e-02 2.1e-03 9.1e-03
truncated-normal--1-1 sigmoid  1 lm-nc    6.2e-05 2.5e-04 1.0e-03 4.5e-03 2.0e-02 1.5e-04 2.1e-03
"""
ROWS = [line.split() for line in REFERENCE.strip().splitlines()]


def law(name, transform, sd, scheme, step_size):
    return stationary(
        TARGETS[name],
        transform,
        step_size,
        scheme=LM if scheme.startswith("lm") else "euler",
        noise_sd=float(sd),
        noise_correction=scheme.endswith("-nc"),
    )


@pytest.mark.parametrize("row", ROWS, ids=["-".join(row[:4]) for row in ROWS])
def test_biases_are_those_of_the_reference_table(row):
    case, second_moments, w1 = row[:4], np.array(row[4:9], float), np.array(row[9:], float)
    biases = [law(*case, step_size).bias() for step_size in STEP_SIZES]
    np.testing.assert_allclose([bias.second_moment for bias in biases], second_moments, rtol=0.05)
    np.testing.assert_allclose([biases[1].wasserstein1, biases[3].wasserstein1], w1, rtol=0.08)
    assert max(abs(bias.drift) for bias in biases) < 1e-9
    assert all(0 < bias.kolmogorov_smirnov < 1 for bias in biases)


@pytest.mark.parametrize("target", [BETA, SKEWED], ids=lambda target: target.name)
@pytest.mark.parametrize("scheme", ["euler", LM])
@pytest.mark.parametrize("noise_sd", [0.0, 1.0])
def test_sigmoid_on_a_beta_has_no_bias_in_the_mean_and_has_one_elsewhere(target, scheme, noise_sd):
    for step_size in (0.05, 0.8):
        bias = stationary(target, "sigmoid", step_size, scheme=scheme, noise_sd=noise_sd).bias()
        assert abs(bias.mean) < 1e-9
        assert bias.second_moment > 1e-7


@pytest.mark.parametrize("scheme", ["euler", LM])
def test_exp_has_no_bias_in_the_moment_that_its_drift_holds(scheme):
    for step_size in (0.05, 0.2):
        bias = stationary(GAMMA, "exp", step_size, scheme=scheme).bias()
        assert abs(bias.mean) < 1e-9
        assert bias.second_moment > 1e-5
    bias = stationary(HALF_NORMAL, "exp", 0.05, scheme=scheme).bias()
    assert abs(bias.second_moment) < 1e-9
    assert abs(bias.mean) > 1e-6


def test_the_mean_of_softplus_on_a_gamma_has_the_known_slope_in_the_step_size():
    for noise_sd, slope in ((0.0, 5.7e-2), (1.0, 8.5e-2)):
        bias = stationary(GAMMA, "softplus", 0.1, noise_sd=noise_sd).bias()
        assert bias.mean == pytest.approx(slope * 0.1, rel=0.05)


@pytest.mark.parametrize(
    ("scheme", "noise_sd", "correct", "order"),
    [("euler", 0, False, 1), ("euler", 1, False, 1), (LM, 0, False, 2), (LM, 1, False, 1), (LM, 1, True, 2)],
)
def test_the_order_of_each_scheme_is_the_one_of_theory(scheme, noise_sd, correct, order):
    steps = (0.01, 0.02, 0.04)
    errors = [
        stationary(GAMMA, "softplus", e, scheme=scheme, noise_sd=noise_sd, noise_correction=correct).bias().wasserstein1
        for e in steps
    ]
    assert fitted_slope(steps, errors) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize("transform", ["probit", "arctan"])
def test_transforms_beyond_the_table_are_first_order_under_euler(transform):
    errors = [stationary(TRUNCATED, transform, e).bias().second_moment for e in (0.1, 0.2)]
    assert fitted_slope((0.1, 0.2), errors) == pytest.approx(1, abs=0.15)


def simulate(target, transform, step_size, scheme, noise_sd, correct, chains=20_000, steps=300, keep=200):
    """E[theta^2] of many short chains and its standard error, straight from the update equations."""
    rng = np.random.default_rng(0)
    proxy = weak_error._Proxy(target, transforms.onto(target.support, transform))
    state = proxy.inverse(target.quantile(rng.random(chains)))
    sums = np.zeros(chains)
    for step in range(steps):
        eta, delta = rng.standard_normal((2, chains))
        phi = state + np.sqrt(step_size / 2) * eta if scheme == LM else state
        theta, slope, drift = proxy(phi)
        variance = np.square(noise_sd * (proxy(state)[1])) if correct else 0.0
        amplitude = np.sqrt(2 * step_size - step_size**2 * variance)
        state = state + step_size * (drift + noise_sd * slope * delta) + amplitude * eta
        sums += (step >= steps - keep) * theta**2
    return sums.mean() / keep, sums.std() / keep / np.sqrt(chains)


@pytest.mark.parametrize(("scheme", "correct"), [("euler", False), (LM, False), (LM, True)])
def test_simulation_agrees(scheme, correct):
    estimate, error = simulate(GAMMA, "softplus", 0.4, scheme, 1.0, correct)
    exact = stationary(GAMMA, "softplus", 0.4, scheme=scheme, noise_sd=1.0, noise_correction=correct).mean(np.square)
    assert error < 0.01 * exact
    assert abs(estimate - exact) < 4 * error


@pytest.mark.parametrize("target", [HALF_NORMAL, TRUNCATED], ids=lambda target: target.name)
def test_mirror_agrees_with_simulation_and_is_first_order(target):
    rng, step_size = np.random.default_rng(1), 0.2
    theta = target.quantile(rng.random(50_000))
    for _ in range(60):
        theta = theta + step_size * (-theta + rng.standard_normal(theta.size))
        theta = theta + np.sqrt(2 * step_size) * rng.standard_normal(theta.size)
        period = 2 * (target.high - target.low)
        theta = np.abs(theta) if np.isinf(period) else target.low + (theta - target.low) % period
        theta = np.where(theta > target.high, 2 * target.high - theta, theta)
    exact = stationary(target, None, step_size, scheme="mirror", noise_sd=1.0)
    assert abs(np.square(theta).mean() - exact.mean(np.square)) < 4 * np.square(theta).std() / np.sqrt(theta.size)
    errors = [stationary(target, None, e, scheme="mirror").bias().wasserstein1 for e in (0.005, 0.01)]
    assert fitted_slope((0.005, 0.01), errors) == pytest.approx(1, abs=0.1)


def moved_and_scaled(target, low, scale):
    """The law of low + scale * theta."""
    return dataclasses.replace(
        target,
        low=low,
        smooth_score=lambda theta: target.smooth_score((theta - low) / scale) / scale,
        cdf=lambda theta: target.cdf((theta - low) / scale),
        mean=low + scale * target.mean,
        second_moment=low**2 + 2 * low * scale * target.mean + scale**2 * target.second_moment,
    )


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0, 1e5])
def test_the_bias_of_mirror_does_not_depend_on_the_unit_of_theta(scale):
    law = stationary(moved_and_scaled(HALF_NORMAL, 0.0, scale), None, scale**2 / 100, scheme="mirror")
    assert law.bias().mean == pytest.approx(0.002509, abs=1e-6)
    assert 0 < law.tail_mass < 1e-12


def test_mirror_knows_of_a_lower_end_far_from_zero():
    law = stationary(moved_and_scaled(HALF_NORMAL, -500.0, 10.0), None, 1.0, scheme="mirror")
    assert law.mean() + 500 == pytest.approx(10 * HALF_NORMAL.mean * 1.002509, abs=1e-4)


def test_the_grid_of_mirror_grows_with_the_law():
    law = stationary(HALF_NORMAL, None, 1.7, scheme="mirror")
    assert law.mean(np.square) == pytest.approx(1 / (1 - 1.7 / 2), rel=1e-6)


def test_a_target_of_tiny_values_has_its_grid_below_zero():
    law = stationary(gamma(50.0, 1e-10), "softplus", 0.01)
    assert law.bias().mean == pytest.approx(0, abs=1e-6)  # softplus is exp there, and the drift holds the mean


def test_noise_correction_makes_euler_blind_to_the_noise():
    noisy = stationary(GAMMA, "softplus", 0.2, noise_sd=1.0, noise_correction=True)
    exact = stationary(GAMMA, "softplus", 0.2)
    np.testing.assert_allclose(noisy.bias(), exact.bias(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("scheme", ["euler", LM])
def test_a_finer_quadrature_gives_the_same_law(scheme, monkeypatch):
    def distances():
        return stationary(SKEWED, "sigmoid", 0.1, scheme=scheme, noise_sd=1.0).bias()[1:4]

    coarse = distances()
    monkeypatch.setattr(weak_error, "_ORDER", 18)
    monkeypatch.setattr(weak_error, "_STENCIL", 10)
    np.testing.assert_allclose(distances(), coarse, rtol=2e-3)


def test_the_law_is_a_probability_whose_distribution_function_can_be_asked_anywhere():
    chain = stationary(GAMMA, "softplus", 0.01, scheme=LM)
    assert chain.weights.sum() == pytest.approx(1)
    assert chain.mean(np.ones_like) == pytest.approx(1)
    levels = np.array([0.001, 0.3, 0.5, 0.99])
    np.testing.assert_allclose(chain.cdf(GAMMA.quantile(levels)), levels, atol=1e-5)


def test_the_grid_follows_the_tails_of_the_proxy():
    heavy = stationary(gamma(0.2, 0.5), "softplus", 0.2)
    light = stationary(GAMMA, "integrated_probit", 0.2)
    assert heavy.phi[0] < -140
    assert light.phi[0] > -20
    assert max(heavy.tail_mass, light.tail_mass) < 1e-11


def test_the_default_precision_of_jax_is_left_as_it_was():
    before = jax.numpy.zeros(1).dtype
    stationary(GAMMA, "softplus", 0.4)
    assert jax.numpy.zeros(1).dtype == before


def test_the_fitted_slope_recovers_a_power_law():
    steps = np.array([0.1, 0.2, 0.4])
    assert fitted_slope(steps, -3 * steps**2) == pytest.approx(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stationary(GAMMA, "softplus", 0.1, scheme="milstein"), "one of euler"),
        (lambda: stationary(GAMMA, "softplus", 0.0), "step_size.*0.0"),
        (lambda: stationary(GAMMA, "softplus", 0.1, noise_sd=-1), "noise_sd.*-1"),
        (lambda: stationary(GAMMA, None, 0.1), "takes one, such as"),
        (lambda: stationary(HALF_NORMAL, "softplus", 0.1, scheme="mirror"), "moves theta itself"),
        (lambda: stationary(GAMMA, None, 0.1, scheme="mirror"), "score is unbounded"),
        (lambda: stationary(moved_and_scaled(HALF_NORMAL, 0.0, 1e3), None, 1e-3, scheme="mirror"), "Use a larger step"),
        (lambda: stationary(HALF_NORMAL, None, 2.5, scheme="mirror"), "where it explodes, a smaller one"),
        (lambda: stationary(dataclasses.replace(TRUNCATED, low=-np.inf), None, 0.1, scheme="mirror"), "no lower end"),
        (lambda: stationary(TRUNCATED, transforms.Sigmoid(), 0.1), r"lives on \(-1, 1\)"),
        (lambda: stationary(BETA, "arctan", 0.4), "tails are too heavy"),
        (lambda: fitted_slope([0.1], [0.1]), "at least two"),
        (lambda: fitted_slope([0.1, 0.2], [0.1, 0.0]), "not zero"),
    ],
)
def test_what_cannot_be_computed_is_refused_with_a_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call()
