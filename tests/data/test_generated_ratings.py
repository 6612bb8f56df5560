"""Generated ratings: the shape that was asked for, MovieLens' tails and histogram, and structure that a model can find."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from inbounds.data import catalog, generate_ratings
from inbounds.data.generated_ratings import MOVIELENS_SHAPES, TEN_MILLION
from inbounds.models.rating_baselines import UserItemBias

DATA = catalog.folder(os.environ.get(catalog.ENVIRONMENT, "absent"))
needs_data = pytest.mark.skipif(
    not (DATA / "movielens-1m").is_dir(), reason="INBOUNDS_DATA does not point to a folder with MovieLens 1M"
)


@pytest.fixture(scope="module")
def million():
    return generate_ratings(**MOVIELENS_SHAPES["1m"], seed=0)


@pytest.mark.parametrize(
    "shape", [(300, 200, 9_000), (50, 40, 1_999), (7, 500, 600), (500, 7, 600), (20, 30, 600), (1, 5, 5)]
)
def test_the_shape_is_exact_and_no_pair_is_rated_twice(shape):
    ratings = generate_ratings(*shape, seed=3)
    assert (ratings.num_users, ratings.num_items, len(ratings)) == shape
    key = ratings.user.astype(np.int64) * ratings.num_items + ratings.item
    assert np.all(np.diff(key) > 0)  # sorted by user and item, all different
    assert np.bincount(ratings.user, minlength=shape[0]).min() >= min(20, shape[2] // shape[0])
    assert np.bincount(ratings.item, minlength=shape[1]).min() >= 1
    assert set(np.unique(2 * ratings.rating)) <= set(range(1, 11))
    np.testing.assert_array_equal(ratings.rating, generate_ratings(*shape, seed=3).rating)


def test_half_stars_follow_the_histogram_of_ten_million():
    ratings = generate_ratings(6_000, 2_000, 400_000, seed=1)
    shares = np.bincount((2 * ratings.rating).astype(int), minlength=11)[1:] / len(ratings)
    assert np.abs(shares - TEN_MILLION).max() < 0.01
    assert abs(ratings.rating.mean() - 3.512) < 0.03
    assert abs(ratings.rating.std() - 1.060) < 0.02
    halves = np.bincount(ratings.user, 2 * ratings.rating % 2)
    assert 0.5 < np.mean(halves == 0) < 0.68  # users of whole stars only


def test_offsets_explain_as_much_as_in_movielens(million):
    train, _, test = million.split(seed=0)
    assert abs(UserItemBias.global_mean(train).rmse(test) - 1.113) < 0.02
    assert abs(UserItemBias.fit(train).rmse(test) - 0.907) < 0.025


def test_what_does_not_fit_is_refused():
    for shape in ((10, 10, 101), (10, 10, 9), (0, 10, 10)):
        with pytest.raises(ValueError, match=r"do not fit|positive whole number"):
            generate_ratings(*shape)
    with pytest.raises(ValueError, match="`noise` must be"):
        generate_ratings(10, 10, 50, noise=1.0)


def test_the_example_of_the_guide_runs():
    guide = (Path(__file__).parents[2] / "docs" / "ratings.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1], names)
    assert 0.8 < names["UserItemBias"].fit(names["train"]).rmse(names["test"]) < 0.95


@needs_data
def test_the_tails_are_those_of_movielens_1m(million):
    real = catalog.load("movielens-1m", DATA)
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
    for column, within in (("user", 1.1), ("item", 1.7)):
        ours, theirs = (np.quantile(np.bincount(getattr(r, column)), quantiles) for r in (million, real))
        assert np.abs(np.log(ours / theirs)).max() < np.log(within), (column, ours, theirs)
    offsets = [UserItemBias.fit(r) for r in (million, real)]
    for side in ("user", "item"):
        ours, theirs = (
            getattr(offset, side)[getattr(r, side)].std() for offset, r in zip(offsets, (million, real), strict=True)
        )
        assert abs(ours / theirs - 1) < 0.1, (side, ours, theirs)


@needs_data
def test_the_baselines_of_movielens_1m():
    train, _, test = catalog.load("movielens-1m", DATA).split(seed=0)
    assert UserItemBias.fit(train).rmse(test) == pytest.approx(0.907, abs=0.002)
    assert UserItemBias.global_mean(train).rmse(test) == pytest.approx(1.113, abs=0.002)
