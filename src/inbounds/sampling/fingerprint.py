"""What tells one run from another, so that a run is never gone on with from the checkpoint of a different one."""

from __future__ import annotations

import dataclasses
import zlib
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from inbounds.data.arrays import is_source
from inbounds.from_numpyro import NumPyroPosterior
from inbounds.posterior import Posterior, is_distribution
from inbounds.sampling.program import Program
from inbounds.trees import PyTree, variable_name

PROBES = (0, 1, 10, 100, 1_000, 10_000, 100_000)  # steps at which schedules are compared
ROWS = 4_096  # of the data are looked at
NOISE = "noise made by"  # which is no matter of last bits
LATER = ("priors", "arguments of the model")  # that runs of earlier versions did not write


def fingerprint(
    program: Program, *, state: Any, phi: PyTree, step_size: Any, init: Any, **settings: Any
) -> dict[str, Any]:
    """Texts and numbers that say what decides the draws, by name: all but the code of the model.

    Nothing in it says how many devices there are: a run may go on with more or fewer of them. `block_steps` may be another one
    where the data are divided.

    Args:
        program: what is run.
        state: of the kernel; a kernel that keeps something else than it did cannot go on from what it kept then.
        phi: shapes of phi of one chain.
        step_size: numbers, or the schedule.
        init: where the chains start, as the user said it.
        settings: further numbers and texts, such as the seed.
    """
    kernel = program.kernel
    entries = {
        "kernel": kernel.name,
        **{
            f"{name} of the kernel": _text(value)
            for name, value in kernel.options.items()
            if name not in ("gradient", "transforms")
        },
        "state of the kernel": ", ".join(getattr(state, "_fields", ())),
        "gradient": _text(kernel.options.get("gradient", kernel.estimator)),
        "transforms": ", ".join(str(getattr(t, "name", t)) for t in kernel.space.leaves()),
        "variables": _shapes(phi),
        "step_size": _step_size(step_size),
        "data": _data(kernel.posterior.data),
        "priors": _priors(kernel.posterior.priors),
        "arguments of the model": _arguments(kernel.posterior),
        "init": _text(init),
        "collect": _text(program.collector),
        "num_chains": program.num_chains,
        "thin": program.thin,
        "block_steps": program.block_steps,
        **{name: value if _is_whole(value) else _text(value) for name, value in settings.items()},
    }
    return {name: int(value) if _is_whole(value) else value for name, value in entries.items()}


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """In words, what differs: "seed is 1 there and 0 here". What is None on one side is not known there."""
    old = dict.fromkeys(LATER) | old
    both = old | new
    return [
        f"{name} is {old.get(name, 'not set')} there and {new.get(name, 'not set')} here"
        for name in both
        if old.get(name, "") != new.get(name, "") and None not in (old.get(name, ""), new.get(name, ""))
    ]


def environment(program: Any) -> dict[str, str]:
    """What may change the last bits of the draws, and not the draws: versions, and the kind of device. And who draws the noise."""
    found = {"inbounds": version("inbounds"), "JAX": jax.__version__, "device": jax.devices()[0].device_kind}
    return found | {NOISE: "kernels of our own, where they pay" if program.fuses else "XLA"}


def _step_size(step_size: Any) -> Any:
    if not callable(step_size):
        return np.asarray(step_size, float).tolist()
    sizes = [float(f"{float(step_size(jnp.asarray(step, jnp.int32))):.6g}") for step in PROBES]
    # Beyond the end of the run it may be anything. As text, since NaN is not equal to itself, and JSON does not have it.
    return [size if np.isfinite(size) else str(size) for size in sizes]


def _is_whole(value: Any) -> bool:
    """Whether it is one whole number, of Python, NumPy or JAX."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return value.shape == () and jnp.issubdtype(value.dtype, jnp.integer)
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """The value in words that are the same in the next process: no addresses, and arrays by their contents."""
    if value is None or isinstance(value, bool | int | float | str):
        return str(value)
    if _is_whole(value):
        return str(int(value))
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    if hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)} with checksum {_checksum(value)}"
    if dataclasses.is_dataclass(value):
        fields = (f"{field.name}={_text(getattr(value, field.name))}" for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, Partial):
        return _text((value.func, value.args, value.keywords))
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    leaves = jax.tree_util.tree_leaves_with_path(value)
    if leaves and leaves[0][0]:  # a tree
        return ", ".join(f"{variable_name(path)}: {_text(leaf)}" for path, leaf in leaves)
    return type(value).__name__


def _data(data: Any) -> str | None:
    """Shapes of the data and a checksum of some of their rows; None where each process has rows of its own."""
    if data is None:
        return "none"
    if hasattr(data, "batches"):  # on disk
        return repr(data)
    if is_source(data):
        return _text(data)
    if jax.process_count() > 1:
        return None
    checksums = " ".join(_checksum(_some_rows(leaf)) for leaf in jax.tree.leaves(data))
    return f"{_shapes(data)}, checksum {checksums}"


def _priors(priors: PyTree) -> str:
    """The distributions by name, each with its parameters."""
    leaves = jax.tree_util.tree_leaves_with_path(priors, is_leaf=is_distribution)
    return ", ".join(f"{variable_name(path)}: {_law(prior)}" for path, prior in leaves) or "none"


def _law(part: Any) -> str:
    """A distribution, or a part of one, with its parameters by name: NumPyro's own order is another one in every process."""
    if isinstance(part, list | tuple):
        return f"({', '.join(map(_law, part))})"
    if not is_distribution(part):
        is_number = isinstance(part, int | float) or hasattr(part, "dtype")
        return _numbers(np.asarray(part, np.float32)) if is_number else _text(part)
    own = {name: vars(part).get(name) for name in sorted(type(part).gather_pytree_data_fields())}
    # What else is private follows from the rest.
    listed = [
        name
        for name, x in own.items()
        if x is not None and (not name.startswith("_") or is_distribution(x) or isinstance(x, list) or name == "_mask")
    ]
    parameters = ", ".join(f"{name}={_law(own[name])}" for name in listed)
    return f"{type(part).__name__}{list(part.shape())}({parameters})"


def _numbers(array: np.ndarray) -> str:
    return f"{array:.6g}" if array.ndim == 0 else f"{list(array.shape)} with checksum {_checksum(array)}"


def _arguments(posterior: Posterior) -> str | None:
    """What a NumPyro model is called with, data included; None where each process has its own."""
    if not isinstance(posterior, NumPyroPosterior):
        return "none"
    if jax.process_count() > 1:
        return None
    leaves = jax.tree_util.tree_leaves_with_path((posterior._look.args, posterior._look.kwargs))
    return ", ".join(f"{variable_name(path[1:])}: {_argument(leaf)}" for path, leaf in leaves) or "none"


def _argument(leaf: Any) -> str:
    if not hasattr(leaf, "shape") or _is_whole(leaf):
        return _text(leaf)
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return f"{array.dtype}{list(array.shape)} with checksum {_checksum(_some_rows(array))}"


def _shapes(tree: PyTree) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return ", ".join(f"{variable_name(path)} {leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves)


def _checksum(array: Any) -> str:
    array = np.ascontiguousarray(array)
    content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()  # objects are addresses
    return f"{zlib.crc32(content):08x}"


def _some_rows(leaf: Any) -> np.ndarray:
    if leaf.size == 0 or leaf.ndim == 0:
        return np.asarray(leaf)
    return np.asarray(leaf[np.unique(np.linspace(0, leaf.shape[0] - 1, ROWS).astype(int))])
