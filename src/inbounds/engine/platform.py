"""What JAX computes on, and the form that suits it: the one place where a platform has a name."""

from __future__ import annotations

from typing import Any

import jax

from inbounds.engine.cpu import CPU
from inbounds.engine.gpu import GPU
from inbounds.engine.plain import Plain

__all__ = ["FORMS", "PLAIN", "default_platform", "here", "on"]

PLAIN = Plain()
FORMS: dict[str, Plain] = {"cpu": CPU(), "gpu": GPU()}


def default_platform() -> str:
    """ "cpu", "gpu" or "tpu": that of `jax.default_device` where it is set, or else of JAX's default backend."""
    chosen: Any = getattr(jax.config, "jax_default_device", None)  # a device, or the name of a platform
    return jax.default_backend() if chosen is None else getattr(chosen, "platform", chosen)


def on(platform: str) -> Plain:
    """The form for devices of a platform."""
    return FORMS.get(platform, PLAIN)


def here() -> Plain:
    """The form for what JAX computes on by default."""
    return on(default_platform())
