"""What contestants hand over: what they say of every number so far, and how a model is seen by those who know no NumPyro."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import initialize_model

from benchmarks.infer.truth import of_draws

__all__ = ["Answer", "Density", "Look", "looks", "of_chains"]

Named = dict[str, np.ndarray]


class Answer(NamedTuple):
    """Margins of every variable (mean, sd, three quantiles on the last axis).

    Attributes:
        stated: errors of means and sds that a method states, if any.
        certified: whether it says that it is right.
        notes: what else it says, for the file of results.
    """

    margins: Named
    stated: dict[str, Named] | None = None
    certified: bool | None = None
    notes: dict[str, Any] | None = None


Look = Iterator[Answer]


class Density:
    """A model of NumPyro as a function of one flat vector of unconstrained numbers.

    Attributes:
        log_density: of the vector.
        starts: vectors, one per chain.
    """

    def __init__(self, model: Callable[..., None], data: Named, seed: int, chains: int):
        found = initialize_model(
            jax.random.split(jax.random.key(seed), chains), model, dynamic_args=True, model_kwargs=data
        )
        first = jax.tree.map(lambda x: x[0], found.param_info.z)
        _, self._tree = ravel_pytree(first)
        self.starts = jax.vmap(lambda z: ravel_pytree(z)[0])(found.param_info.z)
        self._potential, self._constrain = found.potential_fn, found.postprocess_fn
        self.data = data

    def log_density(self, flat: jax.Array, data: Any = None) -> jax.Array:
        """Up to a constant."""
        return -self._potential(**(data or self.data))(self._tree(flat))

    def theta(self, flat: jax.Array) -> Named:
        """Variables on their own scale, of vectors with any axes in front."""

        def constrain(flat: jax.Array) -> Any:
            return self._constrain(**self.data)(self._tree(flat))

        lead = flat.shape[:-1]
        found = jax.jit(jax.vmap(constrain))(flat.reshape(-1, flat.shape[-1]))
        return {name: np.asarray(x).reshape(*lead, *x.shape[1:]) for name, x in found.items()}


def of_chains(theta: Named) -> Answer:
    """An answer out of draws: name -> (chain, draw, ...)."""
    return Answer({name: of_draws(x.reshape(-1, *x.shape[2:])) for name, x in theta.items()})


def looks(first: int = 50) -> Iterator[int]:
    """How many more draws until the next look: 50, 50, 100, 200, ..."""
    yield first
    while True:
        yield first
        first *= 2
