"""Threefry-2x32, the counter-based generator behind everything random here and behind `jax.random` (Salmon, Moraes, Dror and Shaw 2011)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["in_a_word", "threefry"]

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA  # so that no key makes all three words of the key schedule zero
WORD = 0xFFFFFFFF


def threefry(
    key0: Any, key1: Any, x0: Any, x1: Any, rounds: int = 13, held: Callable[[Any], Any] = lambda word: word
) -> tuple[Any, Any]:
    """The two words of a counter under a key.

    Args:
        key0, key1, x0, x1: key and counter: arrays of uint32, of JAX or NumPy, or whole numbers of Python.
        rounds: 20 make the words of `jax.random`.
        held: what keeps a sum in 32 bits. Those of arrays stay there by themselves, whole numbers of Python need `in_a_word`.

    Returns:
        Two words, or arrays of them.
    """
    keys = (key0, key1, key0 ^ key1 ^ PARITY)
    x0, x1 = held(x0 + keys[0]), held(x1 + keys[1])
    for number in range(1, rounds + 1):
        rotation = ROTATIONS[(number - 1) % 8]
        x0 = held(x0 + x1)
        x1 = x0 ^ (held(x1 << rotation) | (x1 >> (32 - rotation)))
        if number % 4 == 0:
            turn = number // 4
            x0, x1 = held(x0 + keys[turn % 3]), held(x1 + keys[(turn + 1) % 3] + turn)
    return x0, x1


def in_a_word(number: int) -> int:
    """The last 32 bits of a whole number."""
    return number & WORD
