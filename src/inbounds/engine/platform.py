"""What JAX computes on: the forms that suit a CPU are not always those that suit an accelerator."""

from __future__ import annotations

from typing import Any

import jax


def default_platform() -> str:
    """ "cpu", "gpu" or "tpu": that of `jax.default_device` where it is set, or else of JAX's default backend."""
    chosen: Any = getattr(jax.config, "jax_default_device", None)  # a device, or the name of a platform
    return jax.default_backend() if chosen is None else getattr(chosen, "platform", chosen)
