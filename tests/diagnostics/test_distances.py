"""Distances to a known law: closed cases, agreement with SciPy, and what happens to chains that broke."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.targets import TARGETS
from inbounds.diagnostics import distances as d

BETA = TARGETS["beta-0.5-0.5"]
GAMMA = TARGETS["gamma-0.5-0.5"]


def iid(target, shape, seed=0):
    return target.quantile(np.random.default_rng(seed).random(shape))


def test_total_variation_of_draws_in_one_half_of_the_bins_is_one_half():
    draws = np.repeat(0.5 * (np.arange(50) + 0.5) / 50, 3)
    assert d.total_variation(draws, lambda x: x, np.linspace(0, 1, 101)) == pytest.approx(0.5)


def test_total_variation_counts_draws_outside_the_edges_as_one_more_bin():
    draws = np.array([0.25, 0.75, 5.0, 6.0])
    assert d.total_variation(draws, lambda x: np.clip(x, 0, 1), [0, 0.5, 1]) == pytest.approx(0.5)


def test_a_draw_on_the_last_edge_is_inside():
    assert d.total_variation(np.array([0.0, 1.0]), lambda x: x, [0, 0.5, 1]) == pytest.approx(0)


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_kolmogorov_smirnov_is_scipys(target):
    draws = iid(target, (3, 501))
    expected = [stats.kstest(chain, target.cdf).statistic for chain in draws]
    np.testing.assert_allclose(d.kolmogorov_smirnov(draws, target), expected, rtol=1e-12)


def test_wasserstein_of_shifted_quantiles_is_the_shift():
    reference = d.quantiles(GAMMA, 1000)
    assert d.wasserstein1(reference[::-1] + 0.25, GAMMA) == pytest.approx(0.25)
    assert d.wasserstein1(reference + 0.25, reference) == pytest.approx(0.25)


def test_wasserstein_is_scipys_against_the_same_quantiles():
    draws = iid(BETA, 400, seed=1)
    assert d.wasserstein1(draws, BETA) == pytest.approx(stats.wasserstein_distance(draws, d.quantiles(BETA, 400)))


def test_each_chain_has_its_own_number_and_one_chain_has_a_scalar():
    draws = iid(GAMMA, (4, 300)).astype(np.float32)
    together = d.distances(draws, GAMMA)
    assert all(column.shape == (4,) for column in together)
    alone = d.distances(draws[2], GAMMA)
    assert [column[2] for column in together] == list(alone)
    np.testing.assert_array_equal(together.total_variation, d.total_variation(draws, GAMMA))
    np.testing.assert_array_equal(together.kolmogorov_smirnov, d.kolmogorov_smirnov(draws, GAMMA))
    np.testing.assert_array_equal(together.wasserstein1, d.wasserstein1(draws, GAMMA))


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_chain_with_a_non_finite_draw_is_at_distance_nan_and_leaves_the_others_alone(broken):
    draws = iid(GAMMA, (3, 200))
    whole = d.distances(draws, GAMMA)
    draws[1, 7] = broken
    for before, after in zip(whole, d.distances(draws, GAMMA), strict=True):
        assert np.isnan(after).tolist() == [False, True, False]
        assert after[0] == before[0]


def test_draws_from_another_law_are_further_than_the_floor():
    floor = d.iid_floor(BETA, 2000, repeats=8)
    wrong = d.distances(np.random.default_rng(0).random((8, 2000)), BETA)
    assert all(bad.min() > 2 * good.max() for bad, good in zip(wrong, floor, strict=True))


def test_the_floor_is_the_measured_one_at_a_hundred_thousand_draws():
    expected = {"beta-0.5-0.5": (0.0120, 0.0029, 0.00116), "gamma-0.5-0.5": (0.0078, 0.0027, 0.00137)}
    for name, values in expected.items():
        floor = d.iid_floor(TARGETS[name], 100_000, repeats=6, seed=3)
        assert floor.total_variation.mean() == pytest.approx(values[0], rel=0.08)
        assert floor.kolmogorov_smirnov.mean() == pytest.approx(values[1], rel=0.4)
        assert floor.wasserstein1.mean() == pytest.approx(values[2], rel=0.5)


def test_the_floor_repeats_itself_under_a_seed_and_not_under_another():
    first, again, other = (d.iid_floor(GAMMA, 100, 2, seed).wasserstein1 for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_the_version_on_the_device_agrees(target):
    draws = jnp.asarray(iid(target, (2, 3, 500)), jnp.float32)
    mass = d.bin_probabilities(target)
    on_device = jax.jit(d.total_variation_jax)(draws, mass, target.edges)
    assert on_device.shape == (2, 3)
    assert on_device.dtype == jnp.float32
    np.testing.assert_allclose(on_device[0], d.total_variation(np.asarray(draws[0]), target), atol=2e-3)


def test_the_version_on_the_device_gives_nan_to_a_broken_chain():
    draws = jnp.asarray(iid(GAMMA, (2, 50)), jnp.float32).at[1, 3].set(jnp.inf)
    distance = d.total_variation_jax(draws, d.bin_probabilities(GAMMA), GAMMA.edges)
    assert np.isnan(distance).tolist() == [False, True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: d.total_variation(np.zeros((2, 3, 4)), BETA), r"shape \(2, 3, 4\)"),
        (lambda: d.total_variation(np.zeros((2, 0)), BETA), "at least one draw"),
        (lambda: d.total_variation(np.zeros(3), lambda x: x), "give the edges"),
        (lambda: d.total_variation(np.zeros(3), BETA, [0, 1, 1]), "increasing"),
        (lambda: d.wasserstein1(np.zeros(3), np.zeros(4)), "4 quantiles for 3 draws"),
        (lambda: d.iid_floor(BETA, 0), "n=0"),
    ],
)
def test_wrong_input_is_refused_with_what_was_got(call, message):
    with pytest.raises(ValueError, match=message):
        call()
