"""Random keys as words, derived on the host as `jax.random` does: to compile that would take as long as to compile a small model."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from inbounds.engine.generator import in_a_word, threefry

__all__ = ["as_key", "derived", "words_of"]

FEW_WORDS = 32  # of keys to derive: up to here whole numbers of Python are faster than tiny arrays


def as_key(words: Any) -> jax.Array:
    """The random key of these words, or the keys."""
    key: jax.Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


def words_of(seed: int) -> np.ndarray:
    """The two words of `jax.random.key(seed)`."""
    return np.asarray([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def derived(words: np.ndarray, count: int) -> np.ndarray:
    """The words of `count` keys from one or from several, axes (..., key, word): `jax.random.split`, or `fold_in` of 0, 1, ..."""
    if words.size * count <= FEW_WORDS:
        keys = words.reshape(-1, 2).tolist()
        pairs = [threefry(a, b, 0, number, 20, in_a_word) for a, b in keys for number in range(count)]
        return np.array(pairs, np.uint32).reshape(*words.shape[:-1], count, 2)
    number = np.arange(count, dtype=np.uint32)
    key = words[..., None]
    return np.stack(threefry(key[..., 0, :], key[..., 1, :], np.zeros_like(number), number, rounds=20), axis=-1)
