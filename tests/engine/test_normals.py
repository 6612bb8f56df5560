"""The generator against its published answers, and the law of what it makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from inbounds.engine import keys
from inbounds.engine.generator import in_a_word, threefry
from inbounds.engine.normals import normal, of_word

# Known answers of Threefry-2x32 from the Random123 library: rounds, counter, key, result.
KNOWN = [
    (20, (0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    (20, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    (20, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    (13, (0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x9D1C5EC6, 0x8BD50731)),
    (13, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0xFD36D048, 0x2D17272C)),
    (13, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xBA3E4725, 0xF27D669E)),
]


@pytest.mark.parametrize(("rounds", "counter", "key", "result"), KNOWN)
def test_threefry_gives_the_known_answers(rounds, counter, key, result):
    for number, options in (
        (jnp.uint32, {}),
        (lambda word: np.array([word], np.uint32), {}),
        (int, {"held": in_a_word}),
    ):
        words = threefry(*map(number, (*key, *counter)), rounds=rounds, **options)
        assert tuple(int(np.ravel(word)[0]) for word in words) == result


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5])
def test_keys_are_those_of_jax_random(seed):
    words = keys.derived(keys.words_of(seed), 4)
    split = jax.random.split(jax.random.key(seed), 4)
    assert np.array_equal(words, jax.random.key_data(split))
    folded = [jax.random.key_data(jax.random.fold_in(split[1], chain)) for chain in range(8)]
    for few_or_many in (3, 8):
        assert np.array_equal(keys.derived(words, few_or_many)[1], folded[:few_or_many])
    assert words.size * 3 <= keys.FEW_WORDS < words.size * 8


def test_numbers_are_standard_normal_and_independent():
    draws = np.asarray(normal(jax.random.key(1), (200_001,)))
    assert draws.shape == (200_001,)
    assert draws.dtype == np.float32
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-3
    assert np.mean(draws**4) == pytest.approx(3.0, abs=0.05)
    assert np.unique(draws).size > 190_000
    halves = draws[:100_000], draws[100_001:]
    neighbours = draws[:-1], draws[1:]
    streams = draws, np.asarray(normal(jax.random.key(1), (200_001,), stream=1))
    for one, other in (halves, neighbours, streams):
        bound = 4 / np.sqrt(one.size)
        assert abs(np.corrcoef(one, other)[0, 1]) < bound
        assert abs(np.corrcoef(one**2, other**2)[0, 1]) < bound


def test_keys_and_precision():
    one, other = normal(jax.random.key(0), (3, 5)), normal(jax.random.key(1), (3, 5))
    assert one.shape == (3, 5)
    assert not np.any(np.asarray(one) == np.asarray(other))
    batched = jax.vmap(lambda key: normal(key, (3, 5)))(jax.random.split(jax.random.key(2), 4))
    alone = normal(jax.random.split(jax.random.key(2), 4)[3], (3, 5))
    assert np.array_equal(batched[3], alone)
    with jax.enable_x64():
        assert normal(jax.random.key(0), (2,), jnp.float64).dtype == np.float64


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_words_become_the_quantiles_of_the_normal(platform, monkeypatch):
    monkeypatch.setattr("inbounds.engine.platform.default_platform", lambda: platform)
    ends = np.arange(2**10)
    places = np.unique(np.concatenate([ends, 2**23 - 1 - ends, np.arange(0, 2**23, 61)]))  # in the upper half of 2^24
    quantile = jax.jit(lambda bits: of_word(bits))  # anew: a function once compiled would not see the change
    draws = np.asarray(quantile((places << 8).astype(np.uint32)), float)
    exact = -scipy.special.ndtri((2**23 - places - 0.5) / 2**24)
    np.testing.assert_allclose(draws, exact, rtol=6e-7)
    mirrored = np.asarray(quantile((~places << 8).astype(np.uint32)), float)
    assert np.array_equal(mirrored, -draws)


def test_rows_that_are_no_vectors_hold_the_same_numbers():
    def draw(key):
        return (normal(key, shape, stream=2) for shape in ((1_359,), (151, 9), (151, 3, 3)))

    flat, *others = jax.jit(lambda key: tuple(draw(key)))(jax.random.key(5))
    for draws in others:
        np.testing.assert_allclose(np.ravel(draws), flat, rtol=2e-6)
