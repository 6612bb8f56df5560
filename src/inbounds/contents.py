"""What values hold, in words that are the same in the next process: no addresses, and arrays by their contents."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from numpyro.distributions import Distribution

from inbounds import trees
from inbounds.data.arrays import is_source, is_stream
from inbounds.trees import PyTree, variable_name

__all__ = ["arguments_in_words", "data_in_words", "in_words", "is_whole", "priors_in_words", "shapes_in_words"]

ROWS = 4_096  # of the data are looked at


def in_words(value: Any) -> str:
    """The value in words."""
    if value is None or isinstance(value, bool | int | float | str):
        return str(value)
    if is_whole(value):
        return str(int(value))
    if isinstance(value, tuple | list):
        return f"({', '.join(map(in_words, value))})"
    if hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)} with checksum {_checksum(value)}"
    if dataclasses.is_dataclass(value):
        fields = (f"{field.name}={in_words(getattr(value, field.name))}" for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, Partial):
        return in_words((value.func, value.args, value.keywords))
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    leaves = jax.tree_util.tree_leaves_with_path(value)
    if leaves and leaves[0][0]:  # a tree
        return ", ".join(f"{variable_name(path)}: {in_words(leaf)}" for path, leaf in leaves)
    return type(value).__name__


def shapes_in_words(tree: PyTree) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return ", ".join(f"{variable_name(path)} {leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves)


def data_in_words(data: Any) -> str | None:
    """Shapes of the data and a checksum of some of their rows; None where each process has rows of its own."""
    if data is None:
        return "none"
    if is_stream(data):
        return repr(data)
    if is_source(data):
        return in_words(data)
    if jax.process_count() > 1:
        return None
    checksums = " ".join(_checksum(_some_rows(leaf)) for leaf in jax.tree.leaves(data))
    return f"{shapes_in_words(data)}, checksum {checksums}"


def priors_in_words(priors: PyTree) -> str:
    """The distributions by name, each with its parameters."""
    leaves = jax.tree_util.tree_leaves_with_path(priors, is_leaf=_is_distribution)
    return ", ".join(f"{variable_name(path)}: {_law(prior)}" for path, prior in leaves) or "none"


def _law(part: Any) -> str:
    """A distribution, or a part of one, with its parameters by name: NumPyro's own order is another one in every process."""
    if isinstance(part, list | tuple):
        return f"({', '.join(map(_law, part))})"
    if not _is_distribution(part):
        is_number = isinstance(part, int | float) or hasattr(part, "dtype")
        return _numbers(np.asarray(part, np.float32)) if is_number else in_words(part)
    own = {name: vars(part).get(name) for name in sorted(type(part).gather_pytree_data_fields())}
    # What else is private follows from the rest.
    listed = [
        name
        for name, x in own.items()
        if x is not None and (not name.startswith("_") or _is_distribution(x) or isinstance(x, list) or name == "_mask")
    ]
    parameters = ", ".join(f"{name}={_law(own[name])}" for name in listed)
    return f"{type(part).__name__}{list(part.shape())}({parameters})"


def _numbers(array: np.ndarray) -> str:
    return f"{array:.6g}" if array.ndim == 0 else f"{list(array.shape)} with checksum {_checksum(array)}"


def arguments_in_words(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> str | None:
    """What a model is called with, data included; None where each process has its own.

    Args:
        arguments: those by place, and those by name.
    """
    if jax.process_count() > 1:
        return None
    leaves = jax.tree_util.tree_leaves_with_path(arguments)
    return ", ".join(f"{variable_name(path[1:])}: {_argument(leaf)}" for path, leaf in leaves) or "none"


def _argument(leaf: Any) -> str:
    if not hasattr(leaf, "shape") or is_whole(leaf):
        return in_words(leaf)
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return f"{array.dtype}{list(array.shape)} with checksum {_checksum(_some_rows(array))}"


def is_whole(value: Any) -> bool:
    """Whether it is one whole number, of Python, NumPy or JAX."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return value.shape == () and jnp.issubdtype(value.dtype, jnp.integer)
    return isinstance(value, int) and not isinstance(value, bool)


def _checksum(array: Any) -> str:
    array = np.ascontiguousarray(array)
    content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()  # objects are addresses
    return f"{zlib.crc32(content):08x}"


def _some_rows(leaf: Any) -> np.ndarray:
    if leaf.size == 0 or leaf.ndim == 0:
        return np.asarray(leaf)
    places = np.unique(np.linspace(0, leaf.shape[0] - 1, ROWS).astype(int))
    return np.asarray(trees.rows(leaf, places) if isinstance(leaf, jax.Array) else leaf[places])


def _is_distribution(x: Any) -> bool:
    return isinstance(x, Distribution)
