"""Ahn et al.'s sparse update: rows without data in the minibatch stay where they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.data.ratings import Ratings
from inbounds.models.factors import FactorModel

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

USERS, ITEMS, RATINGS, BATCH = 30, 20, 300, 20


@pytest.fixture(scope="module")
def setting():
    random = np.random.default_rng(0)
    pairs = random.permutation(USERS * ITEMS)[:RATINGS]
    ratings = Ratings.from_columns(pairs // ITEMS, pairs % ITEMS, random.integers(1, 6, RATINGS).astype(float))
    model = FactorModel.of(ratings, 2)
    return model, model.posterior(ratings), ratings


def test_only_touched_rows_move_and_by_the_published_step(setting):
    model, posterior, ratings = setting
    kernel = ib.baselines.touched_rows(posterior, {"W": "user", "H": "item"}, BATCH)
    theta = model.start(jax.random.key(0))
    batch = jax.tree.map(lambda leaf: leaf[:BATCH], posterior.data)
    noise = {name: jax.random.normal(jax.random.key(1), leaf.shape) for name, leaf in theta.items()}
    step = 1e-4
    moved = kernel.position(kernel.update(noise, kernel.init(theta), batch, step)[0])
    touched = np.isin(np.arange(USERS), batch["user"])
    np.testing.assert_array_equal(moved["W"][~touched], theta["W"][~touched])
    user = int(batch["user"][0])
    count = np.sum(ratings.user == user)
    inclusion = 1 - (1 - count / RATINGS) ** BATCH
    mine = np.asarray(batch["user"]) == user
    h = np.asarray(theta["H"])[np.asarray(batch["item"])[mine]]
    x = h @ np.asarray(theta["W"])[user]
    slope = RATINGS / BATCH * (h * (np.asarray(batch["rating"])[mine] / x - 1)[:, None]).sum(0)
    expected = theta["W"][user] + step * (slope - model.prior_rate / inclusion) + np.sqrt(2 * step) * noise["W"][user]
    np.testing.assert_allclose(moved["W"][user], np.abs(expected), rtol=2e-4)


def test_the_published_noise_is_too_cold_and_the_corrected_one_is_not(setting):
    """With ratings that say nothing, the posterior is the prior: exponential, whose sd is its mean."""
    model, _, ratings = setting
    posterior = ib.Posterior(
        log_prior=model.log_prior,
        supports=model.supports,
        log_likelihood=lambda theta, batch: 0.0 * theta["W"][batch["user"], 0],
        data={"user": ratings.user, "item": ratings.item},
    )
    spread = {}
    for noise in ("ahn", "corrected"):
        kernel = ib.baselines.touched_rows(posterior, {"W": "user", "H": "item"}, BATCH, noise=noise)
        draws = ib.sample(
            kernel,
            0.01,
            6_000,
            burn_in=1_000,
            thin=10,
            batch_size=BATCH,
            num_chains=4,
            init=model.start,
            batching="replacement",
        )
        spread[noise] = draws.theta["W"].mean() * model.prior_rate
    assert spread["corrected"] == pytest.approx(1.0, abs=0.1)
    assert spread["ahn"] < 0.75


def test_wrong_options_are_named(setting):
    _, posterior, _ = setting
    with pytest.raises(ValueError, match="no column 'reader'"):
        ib.baselines.touched_rows(posterior, {"W": "reader"}, BATCH)
    with pytest.raises(ValueError, match='"ahn" or "corrected"'):
        ib.baselines.touched_rows(posterior, {"W": "user"}, BATCH, noise="none")
    with pytest.raises(ValueError, match="log likelihood and data"):
        ib.baselines.touched_rows(ib.Posterior(log_prior=jnp.sum, supports=posterior.supports), {}, BATCH)
