"""Which library a model is of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from inbounds.frontends.numpyro import from_numpyro
from inbounds.frontends.pymc import from_bambi, from_pymc
from inbounds.posterior import Posterior

__all__ = ["posterior_of"]

# Whose models are objects with their data: (library, the doors of its models).
OF_OBJECTS: dict[str, Callable[[Any], Posterior]] = {"pymc": from_pymc, "bambi": from_bambi}


def posterior_of(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Posterior:
    """The posterior of whatever `ib.infer` was given.

    Args:
        model: a `Posterior`, or a model of NumPyro, PyMC or bambi.
        args, kwargs: what a model of NumPyro is called with.

    Raises:
        ValueError: it is none of them, or arguments were given that nobody takes.
    """
    door = _door_of_object(model)
    if door is not None:
        if args or kwargs:
            given = [repr(arg) for arg in args] + [f"{name}=..." for name in kwargs]
            what = (
                "A posterior" if isinstance(model, Posterior) else f"A model of {type(model).__module__.split('.')[0]}"
            )
            raise ValueError(f"{what} has its data already, and takes no arguments; got {', '.join(given)[:200]}.")
        return door(model)
    if callable(model):
        return from_numpyro(model, *args, **kwargs)
    raise ValueError(
        "`model` must be an ib.Posterior, a NumPyro model (a function) with its arguments, a pm.Model or a bambi.Model; got "
        f"{type(model).__name__}."
    )


def _door_of_object(model: Any) -> Callable[[Any], Posterior] | None:
    """What makes a posterior of a model that is an object. Libraries are not imported to ask: who has a model of theirs has done so."""
    if isinstance(model, Posterior):
        return lambda posterior: posterior
    for library, door in OF_OBJECTS.items():
        imported = sys.modules.get(library)
        if imported is not None and isinstance(model, getattr(imported, "Model", ())):
            return door
    return None
