"""The forms for NVIDIA GPUs: the instructions that they have, and kernels of our own where there are some."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from inbounds.engine.plain import Plain

__all__ = ["AS_GRAPHS", "GPU", "ON_GPU"]

WARP = 32  # threads that go together
SHORT_KERNELS = 2**19  # numbers in all the chains' states up to which kernels are shorter than their launch
# Numbers below 1e-38 count as zero, as XLA has it on CPUs anyway: a reciprocal root is one instruction then, and not four.
ON_GPU: dict[str, Any] = {"xla_gpu_ftz": True}
# XLA makes a graph of the kernels in a row, which costs one launch, from five of them on; steps without data are two or three.
AS_GRAPHS: dict[str, Any] = ON_GPU | {"xla_gpu_graph_min_graph_size": 1}


class GPU(Plain):
    """What is faster on NVIDIA GPUs."""

    def reciprocal(self, x: Array) -> Array:
        """The square of a reciprocal root, one instruction where a division is several: at most three units in the last place off."""
        if x.dtype != jnp.float32:
            return super().reciprocal(x)
        root = lax.rsqrt(x)
        return root * root

    def row_sums(self, x: Array) -> Array:
        """In rows of a warp.

        XLA lets one thread sum a shorter row alone, unless it divides a warp, and computes beforehand, in a kernel more, what is summed.
        """
        width = x.shape[-1]
        if width >= WARP or WARP % width == 0:
            return super().row_sums(x)
        return jnp.sum(jnp.pad(x, ((0, 0), (0, WARP - width))), axis=-1)

    def compiler_options(self, numbers: int) -> dict[str, Any]:
        """However few kernels a turn has, they are launched at once where launches take longer than they do."""
        return AS_GRAPHS if numbers <= SHORT_KERNELS else ON_GPU

    def plug_in(self) -> Any:
        try:
            from inbounds.engine import triton
        except ImportError:  # deleted: XLA's loop does the same
            return None
        return triton if triton.works() else None
