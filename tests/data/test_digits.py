"""Digits that the library draws."""

import numpy as np
import pytest

from inbounds.data import synthetic_digits


def test_digits_are_reproducible_and_in_range():
    part = synthetic_digits(300, seed=1)
    assert part.x.shape == (300, 784)
    assert part.x.dtype == np.float32
    assert part.x.min() >= 0
    assert part.x.max() <= 1
    assert set(part.y) == set(range(10))
    again = synthetic_digits(300, seed=1)
    np.testing.assert_array_equal(part.x, again.x)
    assert not np.array_equal(part.x, synthetic_digits(300, seed=2).x)


def test_digits_can_be_told_apart_but_not_by_a_trivial_rule():
    train, test = synthetic_digits(3_000, seed=0, size=14), synthetic_digits(1_000, seed=1, size=14)
    means = np.stack([train.x[train.y == digit].mean(axis=0) for digit in range(10)])
    nearest = np.argmin(((test.x[:, None] - means) ** 2).sum(axis=2), axis=1)
    accuracy = np.mean(nearest == test.y)
    assert 0.6 < accuracy < 0.95


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"rows": 5, "size": 4}, {"rows": 5, "noise": -1.0}])
def test_impossible_digits_are_refused(wrong):
    with pytest.raises(ValueError, match="synthetic_digits needs"):
        synthetic_digits(**wrong)
