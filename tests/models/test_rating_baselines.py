"""The offsets are the regularised least-squares solution, and unseen users and items get the mean."""

import numpy as np
import pytest

from inbounds.data import Ratings
from inbounds.models.rating_baselines import UserItemBias


def _ratings():
    generator = np.random.default_rng(0)
    pairs = generator.permutation(25 * 18)[:250]
    return Ratings(
        (pairs // 18).astype(np.int32), (pairs % 18).astype(np.int32), generator.integers(1, 11, 250).astype(np.float32) / 2,
        np.arange(26), np.arange(19),
    )  # fmt: skip


def test_the_fit_is_the_least_squares_solution():
    ratings = _ratings()
    model = UserItemBias.fit(ratings, user_strength=4.0, item_strength=2.0, sweeps=200)
    design = np.zeros((len(ratings), 26 + 19))
    design[np.arange(len(ratings)), ratings.user] = 1
    design[np.arange(len(ratings)), 26 + ratings.item] = 1
    penalty = np.diag([4.0] * 26 + [2.0] * 19)
    exact = np.linalg.solve(design.T @ design + penalty, design.T @ (ratings.rating - model.mean))
    np.testing.assert_allclose(np.concatenate([model.user, model.item]), exact, atol=1e-6)


def test_an_unseen_user_or_item_has_no_offset():
    model = UserItemBias.fit(_ratings(), user_strength=0.0, item_strength=0.0)
    assert model.predict(np.array([25]), np.array([18])) == pytest.approx(model.mean)
    assert np.isfinite(model.user).all()
    with pytest.raises(ValueError, match="must not be negative"):
        UserItemBias.fit(_ratings(), user_strength=-1.0)


def test_the_rmse_is_of_the_prediction():
    ratings = _ratings()
    constant = UserItemBias.global_mean(ratings)
    assert constant.rmse(ratings) == pytest.approx(float(ratings.rating.std()), rel=1e-6)
