"""How a check says what it expected."""

from __future__ import annotations

from typing import Any

import numpy as np


def expect(holds: Any, message: str) -> None:
    """Raise an AssertionError with these words where something does not hold (for every number of an array)."""
    if not np.all(np.asarray(holds)):
        raise AssertionError(message)


def expect_close(found: Any, expected: Any, what: str, rtol: float, atol: float = 0.0) -> None:
    """`found` is within a tolerance of `expected`; where it is not, the worst of its numbers is shown."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    expect(found.shape == expected.shape, f"{what}: the shape is {found.shape}, not {expected.shape}")
    error = np.abs(found - expected) - (atol + rtol * np.abs(expected))
    error = np.where(np.isfinite(found), error, np.inf)
    if error.size and np.max(error) > 0:
        worst = np.unravel_index(np.argmax(error), error.shape)
        raise AssertionError(f"{what}: {found[worst]:.6g}, not {expected[worst]:.6g}")
