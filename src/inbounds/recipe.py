"""What made a thing: a factory and the arguments that it was called with.

Compiled programs are kept by this. Arrays among the arguments are arguments of the program: others of the same shapes compile nothing.
Everything else, such as numbers, names and functions, is part of what the program is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import Transform

from inbounds.arguments import nearest

__all__ = ["Recipe", "in_words", "is_default", "recorded"]


@dataclass(frozen=True, eq=False)
class Recipe:
    """A factory, its arguments, and of those the arrays apart from the rest.

    Recipes are equal where factory and arguments are, the values of arrays left out. Functions count by identity.

    Args:
        factory: what was called.
        arguments: all others by name, as they were given.
    """

    factory: Callable[..., Any]
    arguments: dict[str, Any]

    @cached_property
    def _parts(self) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
        leaves, treedef = jax.tree.flatten(self.arguments, is_leaf=_is_opaque)
        arrays = tuple(leaf for leaf in leaves if _is_array(leaf))
        rest = tuple(None if _is_array(leaf) else _Static(leaf) for leaf in leaves)
        return arrays, rest, treedef

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays among the arguments."""
        return self._parts[0]

    def with_arrays(self, arrays: Any) -> dict[str, Any]:
        """The arguments with other arrays in the place of theirs."""
        _, rest, treedef = self._parts
        given = iter(arrays)
        arguments: dict[str, Any] = jax.tree.unflatten(
            treedef, [next(given) if leaf is None else leaf.value for leaf in rest]
        )
        return arguments

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        arrays, rest, treedef = self._parts
        shapes = tuple((np.shape(a), str(jax.dtypes.canonicalize_dtype(a.dtype))) for a in arrays)
        return (self.factory, treedef, rest, shapes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._identity == other._identity

    @cached_property
    def _hash(self) -> int:  # asked for at every chunk of a run
        return hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        given = ", ".join(
            f"{name}={in_words(value)}" for name, value in self.arguments.items() if not is_default(self, name)
        )
        return f"{self.factory.__name__}({given})"


def is_default(recipe: Recipe, name: str) -> bool:
    """Whether an argument is what it is where nobody gives it."""
    parameter = inspect.signature(recipe.factory).parameters.get(name)
    return parameter is not None and recipe.arguments[name] is parameter.default


def recorded(bind: Callable[[Any, Recipe], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of factories whose first argument is the posterior: what they make is handed to `bind` with its recipe."""

    def decorate(factory: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(factory)
        known = list(signature.parameters)
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())

        @functools.wraps(factory)
        def make(*args: Any, **kwargs: Any) -> Any:
            for name in [] if takes_any else kwargs:
                if name not in known:
                    raise TypeError(f"{factory.__name__} has no argument {name!r}.{nearest(name, known)}")
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = dict(list(bound.arguments.items())[1:])
            for name, parameter in signature.parameters.items():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    arguments |= arguments.pop(name, {})
                elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                    raise TypeError(
                        f"{factory.__name__}: a factory that is recorded has a name for each of its arguments; got *{name}."
                    )
            return bind(factory(*args, **kwargs), Recipe(factory, arguments))

        return make

    return decorate


def in_words(value: Any) -> str:
    """An argument, short."""
    if _is_array(value):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, jax.tree_util.Partial):
        return f"{value.func.__name__}({', '.join(f'{k}={in_words(v)}' for k, v in value.keywords.items())})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {in_words(part)}" for name, part in value.items()) + "}"
    return getattr(value, "__name__", None) or str(value)


class _Static:
    """An argument that is no array, with its type: noise_correction=True and a variance of 1.0 are equal to Python."""

    def __init__(self, value: Any):
        self.value = value
        try:
            self._hash = hash((type(value), value))
            self._by_value = True
        except TypeError:
            self._hash, self._by_value = id(value), False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or (self._by_value and other._by_value and bool(self.value == other.value))

    def __hash__(self) -> int:
        return self._hash


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and (
        jnp.issubdtype(leaf.dtype, jnp.number) or jnp.issubdtype(leaf.dtype, jnp.bool_)
    )


def _is_opaque(leaf: Any) -> bool:
    """Transforms are compared with supports when they are chosen, so that their values are part of what a program is: all but a scale."""
    if not isinstance(leaf, Transform):
        return isinstance(leaf, Distribution)
    arrays = jax.tree.leaves(leaf)
    return not (len(arrays) == 1 and arrays[0] is getattr(leaf, "scale", None) and _is_array(arrays[0]))
