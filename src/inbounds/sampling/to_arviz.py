"""Draws as ArviZ takes them, and what variables are called there and in a store."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["array_names", "data_tree"]

AXES = ("chain", "draw")


def data_tree(draws: Draws, log_likelihood: bool, coords: dict[str, Any] | None, dims: dict[str, Any] | None) -> Any:
    """The tree of `Draws.to_arviz`."""
    arviz_base = _arviz("arviz_base")
    groups = {"posterior": _for_arviz(draws.variables()), "sample_stats": _read(_numbers(draws.stats))}
    posterior = draws.kernel.posterior  # None where draws were loaded without
    data = posterior.observed() if posterior is not None and draws.has_its_data else {}
    observed = dict(zip(array_names(list(data), taken=()), data.values(), strict=True))
    if observed:
        groups["observed_data"] = observed
    if log_likelihood:
        groups["log_likelihood"] = _log_likelihood(draws, next(iter(observed)) if len(observed) == 1 else "data")
    own_coords, own_dims = ({}, {}) if posterior is None else posterior.coordinates()
    return arviz_base.from_dict(
        groups,
        coords=own_coords | (coords or {}),
        dims={_array_name(name): axes for name, axes in (own_dims | (dims or {})).items()},
        attrs={"/": {"kernel": draws.kernel.name, "inference_library": "inbounds", "burn_in": draws.burn_in}},
    )


def _log_likelihood(draws: Draws, name: str) -> dict[str, np.ndarray]:
    """log p(x_i | theta) of every row at every draw, a slice of the data at a time."""
    posterior = draws.posterior
    draws.check_data()
    if posterior.log_likelihood is None or not posterior.observed():
        raise ValueError(
            "The log likelihood of each row is not known: the posterior has no `log_likelihood` with `data` in arrays."
        )
    assert posterior.num_data is not None
    likelihood, rows = posterior.log_likelihood, max(1, 2**22 // max(1, draws.num_chains * draws.num_draws))
    theta = jax.tree.map(np.asarray, draws.theta)
    terms = jax.jit(jax.vmap(jax.vmap(likelihood, in_axes=(0, None)), in_axes=(0, None)))
    parts = [
        np.asarray(terms(theta, jax.tree.map(lambda leaf, i=i: leaf[i : i + rows], posterior.data)))
        for i in range(0, posterior.num_data, rows)
    ]
    return {name: np.concatenate(parts, axis=-1)}


def array_names(names: Sequence[str], taken: Sequence[str] = AXES) -> list[str]:
    """What variables are called in a store and in ArviZ. Raise a ValueError where a name would stand for two things."""
    found: dict[str, str] = {}
    for name in names:
        array = _array_name(name)
        if _is_no_name(array):
            raise ValueError(
                f"A variable cannot be called {name!r}: in a store every variable is a folder, and there that name means something else "
                "(names of periods alone, those that begin with two underscores, and zarr.json). Rename it in the posterior. "
                "(`draws.theta` holds the draws of a run that has ended.)"
            )
        if array in taken:
            raise ValueError(
                f"A variable cannot be called {name!r}: in a store and in ArviZ that is an axis of the draws. Rename it in the "
                "posterior. (`draws.theta` holds the draws of a run that has ended.)"
            )
        if array in found:
            raise ValueError(
                f"Two variables, {found[array]!r} and {name!r}, would both be called {array!r} in a store and in ArviZ, where "
                '"." stands for "/". Rename one of them in the posterior. (`draws.theta` holds the draws of a run that has ended.)'
            )
        found[array] = name
    return list(found)


def _is_no_name(array: str) -> bool:
    """Whether Zarr has another use for a name, or a file system does."""
    reserved = not array.strip(".") or array.startswith("__") or array.lower() == "zarr.json"
    return reserved or "\\" in array or not array.isprintable()


def _array_name(name: str) -> str:
    return name.replace("/", ".")  # which Zarr and xarray take for a path


def _arviz(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'{module} is not installed: pip install "inbounds[arviz]"') from error


def _numbers(stats: dict[str, Any]) -> dict[str, Any]:
    """Those that are one number per draw."""
    return {name: x for name, x in stats.items() if len(x.shape) == 2}


def _read(arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name, in memory."""
    return {name: np.asarray(x) for name, x in arrays.items()}


def _for_arviz(variables: dict[str, Any]) -> dict[str, np.ndarray]:
    return dict(zip(array_names(list(variables)), map(np.asarray, variables.values()), strict=True))
