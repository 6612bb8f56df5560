"""The generator against its published answers, and the law of what it makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from inbounds.noise import normal, threefry

# Known answers of Threefry-2x32-20 from the Random123 library: counter, key, result.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_threefry_gives_the_known_answers(counter, key, result):
    words = threefry(*(jnp.uint32(word) for word in (*key, *counter)))
    assert tuple(map(int, words)) == result


def test_numbers_are_standard_normal():
    draws = np.asarray(normal(jax.random.key(1), (200_001,)))  # an odd number: the last pair is cut
    assert draws.shape == (200_001,)
    assert draws.dtype == np.float32
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-3
    assert np.mean(draws**4) == pytest.approx(3.0, abs=0.05)
    first, second = draws[:100_000], draws[100_001:]  # the two words of each pair
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.013  # four standard errors
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.013
    assert np.unique(draws).size > 190_000


def test_keys_and_precision():
    one, other = normal(jax.random.key(0), (3, 5)), normal(jax.random.key(1), (3, 5))
    assert one.shape == (3, 5)
    assert not np.any(np.asarray(one) == np.asarray(other))
    batched = jax.vmap(lambda key: normal(key, (3, 5)))(jax.random.split(jax.random.key(2), 4))
    alone = normal(jax.random.split(jax.random.key(2), 4)[3], (3, 5))
    assert np.array_equal(batched[3], alone)
    with jax.enable_x64():
        assert normal(jax.random.key(0), (2,), jnp.float64).dtype == np.float64
