"""Double precision for a while, in a process whose runs are in single precision."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

__all__ = ["in_double"]


@contextmanager
def in_double() -> Iterator[None]:
    """What is computed inside is in double precision, whatever precision the process has."""
    _keep_precisions_apart()
    with jax.enable_x64(True):
        yield


@functools.cache
def _keep_precisions_apart() -> None:
    """Let a NumPy array of doubles, such as a constant of a model, be used in both precisions.

    JAX (0.10) converts such an array once for all programs that know it, to the precision of the first of them, so that a program of the
    other precision cannot be compiled. Where it does so it is given a conversion that looks at the precision.
    """
    try:
        from jax._src import dtypes, literals

        def convert(x: np.ndarray) -> Any:
            return literals.TypedNdArray(np.asarray(x, dtypes.canonicalize_dtype(x.dtype)))

        if _are_mixed(dtypes.canonicalize_value):
            dtypes.register_canonicalize_value_handler(np.ndarray, convert)
    except (ImportError, AttributeError):  # they are no public names
        return


def _are_mixed(canonical: Any) -> bool:
    array = np.ones(1)
    with jax.enable_x64(False):
        single = canonical(array)  # held: what nobody holds is converted anew
    with jax.enable_x64(True):
        return bool(canonical(array).dtype == single.dtype)
