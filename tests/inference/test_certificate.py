"""Stated errors cover the actual ones and are no larger than they have to be; two chains at two step sizes are what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

import inbounds as ib
from inbounds.inference.certificate import estimate, heaviest_tail
from inbounds.inference.halving import halved
from inbounds.metrics import Dense

CHAINS, DRAWS, REPLICATES = 4, 600, 250
TRUTH = {"mean": 0.0, "sd": 1.0, "quantiles": norm.ppf([0.05, 0.5, 0.95])}


def autoregressive(generator, memory=0.7):
    """Standard normal draws (chain, draw, replicate), each like the one before."""
    noise = generator.normal(size=(CHAINS, DRAWS + 100, REPLICATES)) * np.sqrt(1 - memory**2)
    return lfilter([1.0], [1.0, -memory], noise, axis=1)[:, 100:]


def stated_and_actual(found, what):
    """(stated errors, actual ones) in posterior sds; one per replicate and quantile."""
    errors = getattr(found, {"quantiles": "quantile_error"}.get(what, f"{what}_error"))
    return np.ravel(errors), np.ravel(getattr(found, what) - TRUTH[what])


@pytest.mark.parametrize("what", ["mean", "sd", "quantiles"])
@pytest.mark.parametrize("bias", [0.0, 0.04])
def test_twice_the_stated_error_covers_the_actual_one_and_is_not_padded(what, bias):
    """Draws that are correlated, with a bias of second order: a fine chain has a quarter of that of a coarse one."""
    generator = np.random.default_rng(0)
    draws = autoregressive(generator)
    apart = 0.1 * autoregressive(generator)  # what the step size does beside the bias
    fine, coarse = (1 + bias) * draws + bias, (1 + 4 * bias) * (draws + apart) / np.sqrt(1.01) + 4 * bias
    stated, actual = stated_and_actual(estimate(fine, coarse), what)
    assert np.mean(np.abs(actual) <= 2 * stated) > 0.93
    if not bias:
        assert np.median(stated) <= 1.5 * np.sqrt(np.mean(actual**2))


@pytest.mark.parametrize("what", ["mean", "sd", "quantiles"])
def test_draws_without_bias_have_the_error_of_their_effective_sample_size(what):
    stated, actual = stated_and_actual(estimate(autoregressive(np.random.default_rng(1))), what)
    assert np.mean(np.abs(actual) <= 2 * stated) > 0.93
    assert np.median(stated) <= 1.3 * np.sqrt(np.mean(actual**2))


def test_what_is_left_of_a_bias_of_first_order_is_within_twice_the_stated_error():
    draws = autoregressive(np.random.default_rng(2))
    found = estimate(draws + 0.2, draws + 0.4)
    left = found.mean - draws.mean(axis=(0, 1)) / draws.std(axis=(0, 1)) * found.sd
    assert np.all(np.abs(left) <= 2 * found.mean_error)


def test_numbers_that_do_not_vary_and_those_that_are_not_finite():
    draws = np.random.default_rng(0).normal(size=(2, 100, 3))
    draws[..., 1] = 7.0
    draws[0, 5, 2] = np.nan
    found = estimate(draws, draws)
    assert (found.mean[1], found.mean_error[1], found.sd_error[1], found.r_hat[1]) == (7.0, 0.0, 0.0, 1.0)
    assert np.isnan(found.mean[2])
    assert np.isinf(found.mean_error[2])
    assert found.ess[2] == 0


def test_quantiles_stay_within_the_draws():
    """A correction for bias must not take them out of the bounds."""
    fine = np.abs(np.random.default_rng(0).normal(size=(2, 200, 1)))
    found = estimate(fine, fine + 3.0)
    assert np.all(found.quantiles >= fine.min())


def test_tails_of_infinite_variance_are_told_from_others():
    generator = np.random.default_rng(0)
    draws = np.stack(
        [generator.normal(size=4_000), generator.standard_cauchy(4_000), generator.exponential(size=4_000)]
    )
    normal, cauchy, exponential = heaviest_tail(draws.T.reshape(4, 1_000, 3))
    assert cauchy > 0.5
    assert max(normal, exponential) < 0.3


# Two chains.


@pytest.fixture(scope="module")
def regression():
    data = {"y": np.random.default_rng(0).normal(size=12).astype(np.float32)}
    return ib.Posterior(
        {"a": dist.Normal(0.0, 1.0)}, lambda theta, batch: -0.5 * jnp.square(batch["y"] - theta["a"]), data
    )


@pytest.mark.parametrize("whole", [False, True])
def test_the_fine_chain_takes_two_steps_of_its_own_rows_and_the_coarse_one_half_as_many_of_both(whole, regression):
    kernel, plain = halved(regression, whole=whole), ib.leimkuhler_matthews(regression)
    state = kernel._init({"a": jnp.float32(0.3)})
    ahead = {"a": jnp.float32(0.4)}
    state = state._replace(ahead=ahead)
    first, second = np.float32(0.7), np.float32(-1.1)
    rows = {"y": jnp.asarray([1.0, -2.0, 0.5, 3.0, 2.5, -1.0, 0.1, 0.2])}
    parts = [rows] * 3 if whole else [{"y": rows["y"][places]} for places in (slice(4), slice(4, None), slice(3, 5))]
    moved, report = kernel._update({"a": jnp.stack([first, second])}, state, rows, jnp.float32(0.02))
    middle, _ = plain._update(ahead, state.fine, parts[0], jnp.float32(0.01))
    fine, _ = plain._update({"a": first}, middle, parts[1], jnp.float32(0.01))
    coarse, _ = plain._update({"a": (first + second) / np.sqrt(2)}, state.coarse, parts[2], jnp.float32(0.02))
    for mine, other in ((moved.fine, fine), (moved.coarse, coarse)):
        np.testing.assert_allclose(kernel.moving(moved._replace(fine=mine))["a"], plain.moving(other)["a"], rtol=1e-6)
    assert moved.ahead["a"] == second
    np.testing.assert_allclose(report().coarse, [plain.moving(coarse)["a"]], rtol=1e-6)


def test_the_two_chains_go_the_same_way(regression):
    draws = ib.sample(
        halved(regression, whole=True), 0.02, 2_000, burn_in=500, num_chains=2, progress=False, on_failure="continue"
    )
    fine, coarse = draws.phi["a"], draws.stats["coarse"][..., 0]
    assert np.std(fine - coarse) < 0.4 * np.std(fine)  # of chains on their own it would be the square root of two
    assert jax.tree.leaves(draws.phi)[0].shape == coarse.shape


def test_what_noise_of_minibatches_does_is_seen_and_taken_out():
    """They are not corrected for here: the fine chain is a tenth too wide, the coarse one by four times that."""
    y = np.random.default_rng(0).normal(size=1_000).astype(np.float32)
    posterior = ib.Posterior({"a": dist.Normal(0.0, 100.0)}, lambda theta, y: -0.5 * jnp.square(y - theta["a"]), y)
    metric = Dense({"a": y.mean()}, np.eye(1) / np.sqrt(1_000), np.eye(1) * np.sqrt(1_000))
    kernel = halved(posterior, metric=metric)
    draws = ib.sample(
        kernel, 0.16, 30_000, burn_in=200, batch_size=400, num_chains=4, progress=False, on_failure="continue"
    )
    fine, coarse = np.asarray(draws.phi["a"])[..., None], metric.center["a"] + draws.stats["coarse"] / np.sqrt(1_000)
    found = estimate(fine, coarse)
    exact = 1 / np.sqrt(1_000)
    assert fine.std() > 1.06 * exact
    assert abs(found.sd[0] / exact - 1) < 0.03
    assert found.sd_bias[0] > 0.06


def test_a_certificate_is_shown_as_sentences_and_escaped_in_a_notebook():
    numbers = {"a<b": np.zeros(1)}
    shown = ib.Certificate(
        ok=False, reasons=["the <chains> disagree"], error=0.05, reached=0.2, choices={"start": "a<b"},
        mean=numbers, sd=numbers, quantiles=numbers, mean_error=numbers, sd_error=numbers, quantile_error=numbers, bias=numbers,
    )  # fmt: skip
    head = "NOT certified: twice the largest total error is 0.2 posterior sds, of 0.05 asked for."
    assert repr(shown) == f"<{head}>"
    assert str(shown).splitlines() == [head, "- the <chains> disagree", "Start: a<b"]
    page = shown._repr_html_()
    assert "the &lt;chains&gt; disagree" in page
    assert "a&lt;b" in page
    assert "<chains>" not in page
