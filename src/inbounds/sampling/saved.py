"""Draws in a file: all that can be read off them without their model. Nothing in it is code, so anyone's may be opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from inbounds.files import explained, read, write
from inbounds.posterior import Posterior
from inbounds.sampling.draws import Draws
from inbounds.sampling.verdict import Note
from inbounds.trees import PyTree, variable_name

__all__ = ["opened", "save"]

FORMAT = 1
PLAIN = ("stats", "of_steps", "certificate", "num_steps", "burn_in", "thin", "seconds")  # fields of draws, as they are

# Parts of a certificate, by variable, and what their shapes have beyond those of the variables.
CERTIFIED = {part: () for part in ("mean", "sd", "mean_error", "sd_error", "bias")} | {
    "quantiles": (3,),
    "quantile_error": (3,),
}


@dataclass(frozen=True)
class SavedKernel:
    """What is known of the kernel of draws that were loaded."""

    name: str
    one_temperature: float | None
    restarts: bool
    posterior: Posterior | None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(
            f"These draws were loaded from a file, which does not hold the kernel that made them: there is no {name!r}. What needs the model "
            "is done before they are saved."
        )


def save(draws: Draws, path: str | os.PathLike[str]) -> None:
    """`Draws.save`."""
    if draws.phi is None:
        raise ValueError("This run collected running statistics and stored no draws: see `draws.collected`.")
    kernel, variables = draws.kernel, draws.variables()
    written = {
        "format": FORMAT,
        "version": version("inbounds"),
        "kernel": [kernel.name, kernel.one_temperature, kernel.restarts],
        "theta": _plain(draws.theta),
        "phi": _plain(draws.phi),
        "deterministics": draws.deterministics(),
        "quantities": {name: variables[name] for name in [*draws.quantities, *draws.known.get("quantities", {})]},
        "ends": draws.ends(),
        **{name: getattr(draws, name) for name in PLAIN},
    }
    write(Path(path), written)


def opened(path: str | os.PathLike[str], posterior: Posterior | None, certificate: type) -> Draws:
    """Draws that `Draws.save` wrote; a certificate among them is of this class."""
    file, what = Path(path), "draws that were saved"
    found = read(file, certificate, Note, what=what)
    with explained(file, what):
        if found["format"] != FORMAT:
            raise ValueError("it is of a later version of inbounds")
        name, temperature, restarts = found["kernel"]
        temperature = None if temperature is None else float(temperature)
        kernel: Any = SavedKernel(str(name), temperature, bool(restarts), posterior)
        parts = {part: found[part] for part in PLAIN}
        draws = Draws(phi=found["phi"], collected=None, kernel=kernel, state=None, stored_theta=found["theta"], **parts)
        draws.known = {part: found[part] for part in ("deterministics", "quantities", "ends")}
        _check(draws, certificate)
    return draws


def _check(draws: Draws, certified: type) -> None:
    """Raise an error where the parts of a file do not belong together."""
    chains, variables, ends = (draws.num_chains, draws.num_draws), draws.variables(), draws.ends()
    sound = [all(isinstance(number, int) for number in (draws.num_steps, draws.burn_in, draws.thin))]
    sound += [isinstance(draws.seconds, float), all(isinstance(note, Note) for note in draws.of_steps)]
    for x in (*jax.tree.leaves(draws.phi), *variables.values(), *draws.stats.values()):
        sound.append(x.shape[:2] == chains and x.dtype.kind in "fiu")
    for path, leaf in jax.tree_util.tree_leaves_with_path(draws.theta):
        for end in ends[variable_name(path)]:
            sound.append(end.dtype.kind in "fiu" and np.broadcast_shapes(end.shape, leaf.shape[2:]) == leaf.shape[2:])
    if draws.certificate is not None:
        sound.append(isinstance(draws.certificate, certified))
        for part, more in CERTIFIED.items():
            for name, x in getattr(draws.certificate, part).items():
                sound.append(x.shape == (*variables[name].shape[2:], *more) and x.dtype.kind == "f")
    if not all(sound):
        raise ValueError("its parts do not belong together")
    str(draws.summary()), str(draws.certificate)


def _plain(tree: PyTree) -> Any:
    """A tree of dicts, lists and tuples of arrays."""
    if isinstance(tree, dict):
        return {name if isinstance(name, str | int) else str(name): _plain(value) for name, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map(_plain, tree))
    below, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)
    if len(below) == 1 and not below[0][0]:
        return np.asarray(tree)
    return {variable_name(path): _plain(value) for path, value in below}
