"""What tells one run from another, so that a run is never gone on with from the checkpoint of a different one."""

from __future__ import annotations

import zlib
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.sampling.program import Program
from inbounds.trees import PyTree, variable_name

PROBES = (0, 1, 10, 100, 1_000, 10_000, 100_000)  # steps at which schedules are compared
ROWS = 4_096  # of the data are looked at


def fingerprint(program: Program, *, phi: PyTree, step_size: Any, init: Any, **settings: Any) -> dict[str, Any]:
    """Names and texts, or numbers, of everything that decides the draws but the code of the model.

    `settings` are further numbers and texts: seed, burn-in.
    """
    kernel = program.kernel
    return {
        "kernel": kernel.name,
        **{f"kernel's {name}": _text(value) for name, value in kernel.config},
        "gradient": _text(kernel.estimator.config),
        "transforms": [str(getattr(t, "name", t)) for t in kernel.space.leaves()],
        "variables": {
            variable_name(path): f"{leaf.dtype}{list(leaf.shape)}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(phi)
        },
        "step_size": _step_size(step_size),
        "data": _data(program.source),
        "init": _text(init),
        "collect": _text(program.collector),
        "num_chains": program.num_chains,
        "thin": program.thin,
        "block_steps": program.block_steps,
        **settings,
    }


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """In words, what differs: "seed is 1 there and 0 here"."""
    return [
        f"{name} is {old.get(name)} there and {new.get(name)} here"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def environment() -> dict[str, str]:
    """What may change the last bits of the draws, and not the draws: versions, and the kind of device."""
    return {"inbounds": version("inbounds"), "JAX": jax.__version__, "device": jax.devices()[0].device_kind}


def _step_size(step_size: Any) -> Any:
    if not callable(step_size):
        return np.asarray(step_size, float).tolist()
    return [float(f"{float(step_size(jnp.asarray(step, jnp.int32))):.6g}") for step in PROBES]


def _text(value: Any) -> str:
    """The value in words that are the same in the next process: no addresses, arrays by their contents."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    if hasattr(value, "value") and type(value).__name__ == "_Unhashable":
        return _contents(value.value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return f"{type(value).__name__}({', '.join(f'{name}={_text(getattr(value, name))}' for name in fields)})"
    return _contents(value)


def _contents(tree: PyTree) -> str:
    parts = [
        f"{np.asarray(leaf).dtype}{list(np.shape(leaf))}#{zlib.crc32(np.ascontiguousarray(leaf).tobytes()):08x}"
        if hasattr(leaf, "dtype") or isinstance(leaf, float | int)
        else type(leaf).__name__
        for leaf in jax.tree.leaves(tree)
    ]
    return ", ".join(parts)


def _data(source: Any) -> str:
    """Shapes of the data and a checksum of some of their rows; a source may answer for itself."""
    own = getattr(source, "fingerprint", None)
    if own is not None:
        return str(own() if callable(own) else own)
    name, data = type(source).__name__, getattr(source, "data", None)
    if data is None:
        return name
    rows = jax.tree.leaves(data)[0].shape[0]
    some = _contents(jax.tree.map(_some_rows, data))
    return f"{name} of {getattr(source, 'batch_size', None)} of {rows} rows, among them {some}"


def _some_rows(leaf: Any) -> np.ndarray:
    rows = np.unique(np.linspace(0, leaf.shape[0] - 1, ROWS).astype(int))
    return np.asarray(leaf[rows])
