"""Effective sample sizes and R-hat against ArviZ, number for number, and what they are of one chain."""

import numpy as np
import pytest
from scipy.signal import lfilter

from inbounds.sampling import convergence as module
from inbounds.sampling.convergence import convergence


def autoregression(generator, chains, length, numbers, correlation):
    """Stationary draws with standard normal margins."""
    noise = generator.normal(size=(chains, length, numbers))
    noise[:, 1:] *= np.sqrt(1 - correlation**2)
    return lfilter([1], [1, -correlation], noise, axis=1)


@pytest.mark.parametrize(
    ("chains", "length", "correlation", "rounded"),
    [(4, 500, 0.5, False), (3, 101, -0.6, False), (2, 50, 0.99, False), (2, 7, 0.3, False), (4, 400, 0.8, True)],
)
def test_they_are_those_of_arviz(chains, length, correlation, rounded):
    stats = pytest.importorskip("arviz_stats.base").array_stats
    draws = autoregression(np.random.default_rng(0), chains, length, 3, correlation)
    draws[0, :, 2] += 1.0  # one chain lies elsewhere
    draws = np.round(draws) if rounded else draws  # ties
    found = convergence(draws)
    for number in range(3):
        one, axes = draws[:, :, number], dict(chain_axis=0, draw_axis=1)
        assert found.ess[number] == pytest.approx(stats.ess(one, method="bulk", **axes), rel=1e-9)
        assert found.ess_tail[number] == pytest.approx(
            stats.ess(one, method="tail", prob=(0.05, 0.95), **axes), rel=1e-9
        )
        assert found.r_hat[number] == pytest.approx(stats.rhat(one, method="rank", **axes), rel=1e-9)


def test_one_chain_is_compared_with_itself():
    generator = np.random.default_rng(1)
    still = autoregression(generator, 1, 2_000, 1, 0.5)
    drifting = still + np.linspace(0, 3, 2_000)[:, None]
    settled, moved = convergence(still), convergence(drifting)
    assert settled.r_hat[0] < 1.01
    assert settled.ess[0] == pytest.approx(2_000 / 3, rel=0.3)
    assert moved.r_hat[0] > 1.2
    assert moved.drift[0] > 1


def test_chains_that_agree_have_the_ess_that_they_should_have_and_those_that_do_not_only_within():
    draws = autoregression(np.random.default_rng(2), 4, 4_000, 20, 0.6)
    exact = draws[..., 0].size * (1 - 0.6) / (1 + 0.6)
    found = convergence(draws)
    assert np.median(found.ess) == pytest.approx(exact, rel=0.1)
    assert np.median(found.ess_within) == pytest.approx(exact, rel=0.1)
    apart = convergence(draws + 4.0 * np.arange(4)[:, None, None])
    assert np.all(apart.ess < 20)
    assert np.all(apart.ess_within > 500)
    assert np.all(apart.r_hat > 2)


def test_numbers_are_looked_at_together_and_bad_ones_do_not_spoil_the_others(monkeypatch):
    calls = []
    real = module._effective
    monkeypatch.setattr(module, "_effective", lambda x: calls.append(len(x)) or real(x))
    draws = np.random.default_rng(3).normal(size=(2, 100, 5_000)).astype(np.float32)
    draws[0, 3, 7] = np.nan
    draws[:, :, 8] = 1.0  # stands still
    found = convergence(draws)
    assert len(calls) <= 3 * (1 + draws.size // module.BLOCK_NUMBERS)  # bulk, and both tails
    assert np.flatnonzero(np.isnan(found.ess)).tolist() == [7]
    assert np.isnan(found.r_hat[8])
    np.testing.assert_allclose(found.ess[9], convergence(draws[:, :, 9:10]).ess[0], rtol=1e-12)


def test_three_draws_say_nothing():
    assert np.isnan(convergence(np.zeros((2, 3, 4)))).all()
