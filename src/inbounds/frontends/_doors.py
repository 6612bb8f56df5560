"""Which library a model is of."""

from __future__ import annotations

from typing import Any

from inbounds.frontends.numpyro import from_numpyro
from inbounds.posterior import Posterior

__all__ = ["posterior_of"]


def posterior_of(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Posterior:
    """The posterior of whatever `ib.infer` was given.

    Args:
        model: a `Posterior`, or a model of NumPyro.
        args, kwargs: what a model of NumPyro is called with.

    Raises:
        ValueError: it is neither, or arguments were given that nobody takes.
    """
    if isinstance(model, Posterior):
        if args or kwargs:
            given = [repr(arg) for arg in args] + [f"{name}=..." for name in kwargs]
            raise ValueError(f"A posterior has its data already, and takes no arguments; got {', '.join(given)[:200]}.")
        return model
    if callable(model):
        return from_numpyro(model, *args, **kwargs)
    raise ValueError(
        f"`model` must be an ib.Posterior, or a NumPyro model (a function) with its arguments; got {type(model).__name__}."
    )
