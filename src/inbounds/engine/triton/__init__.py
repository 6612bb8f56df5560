"""Kernels of our own for NVIDIA GPUs: a plug-in, of which nothing knows but `engine.gpu`. Without this folder XLA does its work.

The engine asks whether they work here (`works`), and for a step that is made of them (`Fused`), to be called by a function that is compiled
`quietly`.
"""

from inbounds.engine.triton.moves import Fused as Fused
from inbounds.engine.triton.moves import quietly as quietly
from inbounds.engine.triton.moves import works as works

__all__ = ["Fused", "quietly", "works"]
