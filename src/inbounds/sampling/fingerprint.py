"""What tells one run from another, so that a run is never gone on with from the checkpoint of a different one."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.contents import in_words, is_whole, shapes_in_words
from inbounds.engine.program import Program
from inbounds.sampling.step_sizes import StepSizes
from inbounds.trees import PyTree

__all__ = ["NOISE", "differences", "environment", "fingerprint"]

PROBES = (0, 1, 10, 100, 1_000, 10_000, 100_000)  # steps at which schedules are compared
NOISE = "noise made by"  # which is no matter of last bits
LATER = ("priors", "arguments of the model")  # that runs of earlier versions did not write


def fingerprint(
    program: Program, *, state: Any, phi: PyTree, step_sizes: StepSizes, init: Any, **settings: Any
) -> dict[str, Any]:
    """Texts and numbers that say what decides the draws, by name: all but the code of the model.

    Nothing in it says how many devices there are: a run may go on with more or fewer of them. `block_steps` may be another one
    where the data are divided.

    Args:
        program: what is run.
        state: of the kernel; a kernel that keeps something else than it did cannot go on from what it kept then.
        phi: shapes of phi of one chain.
        step_sizes: of every step.
        init: where the chains start, as the user said it.
        settings: further numbers and texts, such as the seed.
    """
    kernel = program.kernel
    entries = {
        "kernel": kernel.name,
        **{
            f"{name} of the kernel": _metric(value) if name == "metric" else in_words(value)
            for name, value in kernel.options.items()
            if name not in ("gradient", "transforms")
        },
        "state of the kernel": ", ".join(getattr(state, "_fields", ())),
        "gradient": in_words(kernel.options.get("gradient", kernel.estimator)),
        "transforms": ", ".join(str(getattr(t, "name", t)) for t in kernel.space.leaves()),
        "variables": shapes_in_words(phi),
        "step_size": _in_numbers(step_sizes),
        **kernel.posterior.fingerprint(),
        "init": in_words(init),
        "collect": in_words(program.collector),
        "num_chains": program.num_chains,
        "thin": program.thin,
        "block_steps": program.block_steps,
        **{name: value if is_whole(value) else in_words(value) for name, value in settings.items()},
    }
    return {name: int(value) if is_whole(value) else value for name, value in entries.items()}


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


def _metric(metric: Any) -> str:
    """Its kind and its shapes. Eigenvectors come out otherwise on another machine: L is in the checkpoint, and compared there."""
    return "None" if metric is None else f"{type(metric).__name__}({shapes_in_words(metric)})"


def _in_numbers(step_sizes: StepSizes) -> Any:
    schedule = step_sizes.schedule
    if schedule is None:
        return np.asarray(step_sizes.numbers, float).tolist()
    sizes = [float(f"{float(schedule(jnp.asarray(step, jnp.int32))):.6g}") for step in PROBES]
    # Beyond the end of the run it may be anything. As text, since NaN is not equal to itself, and JSON does not have it.
    return [size if np.isfinite(size) else str(size) for size in sizes]
