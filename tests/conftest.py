"""Hostile defaults: warnings are errors (pyproject.toml), dtypes never promote by accident in the core's own tests.

Most of what these tests do is compile. So XLA optimises only where a test asks for it (`optimised`: the laws, the accuracy of
the transforms), and the workers share what they have compiled.
"""

import os
import tempfile

import jax
import pytest

CACHE = "JAX_COMPILATION_CACHE_DIR"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # workers inherit the environment of the process that starts them
        config.compiled = tempfile.TemporaryDirectory(prefix="inbounds-tests-", ignore_cleanup_errors=True)
        os.environ[CACHE] = config.compiled.name
    jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    jax.config.update("jax_disable_most_optimizations", True)


def pytest_make_parametrize_id(config, val, argname):
    """Contents of files do not name tests: a packed one holds the time, and two workers must collect the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def optimised():
    """XLA as users run it."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


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
