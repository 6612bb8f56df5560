"""Minibatches visit every row equally often, and cost nothing in bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.data.arrays import Epochs, WithReplacement, _random_rows, source_for
from inbounds.engine import on

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


def batches(source, steps, seed=0):
    key = jax.random.key(seed)
    arrays = source.prepare(jax.random.key(99))
    plan = source.plan(key, jnp.arange(steps))
    return np.stack([np.asarray(source.fetch(arrays, plan[i])) for i in range(steps)])


def test_an_epoch_shows_every_row_once_where_the_batch_divides():
    rows = np.arange(24, dtype=np.float32)
    seen = batches(Epochs(rows, 6), 12)
    for epoch in seen.reshape(3, 24):
        assert np.array_equal(np.sort(epoch), rows)
    assert not np.array_equal(seen[:4], seen[4:8]), "epochs differ"
    assert not np.array_equal(np.sort(seen[0]), rows[:6]), "rows are shuffled"


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("width", [1, 200])
def test_every_way_of_shuffling_shows_every_row_once(backend, width):
    """Narrow rows are shuffled, wide ones gathered; an accelerator does both itself."""
    rows = np.repeat(np.arange(24, dtype=np.float32)[:, None], width, axis=1)
    seen = batches(Epochs(rows, 6, on(backend)), 8)
    assert seen.shape == (8, 6, width)
    assert np.all(seen == seen[..., :1])
    for epoch in seen[..., 0].reshape(2, 24):
        assert np.array_equal(np.sort(epoch), rows[:, 0])
    assert not np.array_equal(np.sort(seen[0, :, 0]), np.arange(6)), "rows are shuffled"


def test_a_ragged_epoch_shows_every_row_and_favours_none():
    rows = np.arange(10, dtype=np.float32)
    source = Epochs(rows, 4)  # three batches an epoch, two rows twice
    counts = np.zeros(10)
    for epoch in batches(source, 3 * 400).reshape(400, 12):
        values, times = np.unique(epoch, return_counts=True)
        assert len(values) == 10
        assert np.sort(times).tolist() == [1] * 8 + [2] * 2
        counts[values.astype(int)] += times
    expected = counts.mean()
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(400 * 0.2 * 0.8))


def test_batches_with_replacement_are_uniform_and_independent():
    rows = np.arange(10, dtype=np.float32)
    seen = batches(WithReplacement(rows, 5), 2_000)
    counts = np.bincount(seen.astype(int).ravel(), minlength=10)
    assert np.all(np.abs(counts - 1_000) < 5 * np.sqrt(900))
    means = seen.mean(1) - 4.5
    assert abs(np.mean(means[1:] * means[:-1])) < 4 * np.var(means) / np.sqrt(2_000)


@pytest.mark.parametrize("kind", [Epochs, WithReplacement])
def test_plans_depend_on_the_step_alone(kind):
    source = kind(np.arange(50, dtype=np.float32), 7)
    key = jax.random.key(3)
    whole = np.asarray(source.plan(key, jnp.arange(40)))
    part = np.asarray(source.plan(key, jnp.arange(20, 40)))
    assert np.array_equal(whole[20:], part)


def test_trees_of_data_stay_together():
    data = {"x": np.arange(20.0, dtype=np.float32)[:, None], "y": np.arange(20)}
    source = source_for(data, 4, "epochs")
    arrays = source.prepare(jax.random.key(0))
    batch = source.fetch(arrays, source.plan(jax.random.key(1), jnp.arange(3))[2])
    assert np.array_equal(np.asarray(batch["x"])[:, 0], np.asarray(batch["y"]))


def test_sources_of_equal_shape_compile_to_the_same_program():
    a, b = Epochs(np.zeros((5, 2)), 2), Epochs(np.ones((5, 2)), 2)
    assert a == b
    assert hash(a) == hash(b)
    assert a != Epochs(np.zeros((6, 2)), 2)
    assert a != WithReplacement(np.zeros((5, 2)), 2)


@pytest.mark.parametrize("rows", [3 * 2**18, 3 * 2**29])
def test_no_part_of_the_rows_is_favoured(rows):
    """The remainder of one word after division by 3 * 2**29 would be in the first two thirds three times out of four."""
    picked = np.asarray(_random_rows(jax.random.key(3), jnp.arange(2), 100_000, rows))
    assert picked.min() >= 0
    assert picked.max() < rows
    assert np.mean(picked < 2 * (rows // 3)) == pytest.approx(2 / 3, abs=0.006)
