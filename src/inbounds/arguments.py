"""What users pass, looked at before any work: whole numbers, and names that something may have been meant for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["nearest", "whole_number"]


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """The value as a whole number of Python.

    Args:
        name: the argument's name, for the error.
        value: what was given; NumPy's whole numbers are taken, True and False are not.
        least: the smallest that it may be.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    got = repr(value)
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        got = f"a JAX random key. Give the number that keys are made from, as in {name}=0"
    elif isinstance(value, jax.Array | np.ndarray):
        got = f"an array of shape {value.shape}. Give one number of Python, as in {name}={least}"
    raise ValueError(f"`{name}` must be a whole number of at least {least}; got {got}.")


def nearest(name: Any, known: Iterable[Any]) -> str:
    """' Did you mean ...?' where one of the known names is spelt nearly so; nothing elsewhere."""
    spelt = {str(one).lower(): one for one in known}
    found = difflib.get_close_matches(str(name).lower(), spelt, n=1)
    return f" Did you mean {spelt[found[0]]!r}?" if found else ""
