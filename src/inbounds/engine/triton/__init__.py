"""Kernels of our own for NVIDIA GPUs."""
