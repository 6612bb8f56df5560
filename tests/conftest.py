"""Hostile defaults: warnings are errors (pyproject.toml), dtypes never promote by accident in the core's own tests."""

import jax
import pytest


@pytest.fixture
def strict_promotion():
    """Mixing dtypes raises instead of promoting."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def float64():
    """JAX in double precision."""
    with jax.enable_x64(True):
        yield
