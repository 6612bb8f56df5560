"""Hostile defaults: warnings are errors (pyproject.toml), dtypes never promote by accident in the core's own tests.

Most of what these tests do is compile. So XLA optimises only where a test asks for it (`optimised`: the laws, the accuracy of
the transforms), emits code in the way that is faster to compile, and the workers share what they have compiled. `make test` runs
the tests of the transforms, whose accuracy is that of the code, with XLA's own emitters (`XLA_FLAGS` is set there).
"""

import importlib.util
import os
import subprocess
import sys
import tempfile

import hypothesis
import jax
import pytest

CACHE = "JAX_COMPILATION_CACHE_DIR"
QUICK = "--xla_cpu_use_fusion_emitters=false"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # workers inherit the environment of the process that starts them
        config.compiled = tempfile.TemporaryDirectory(prefix="inbounds-tests-", ignore_cleanup_errors=True)
        os.environ[CACHE] = config.compiled.name
        if "XLA_FLAGS" not in os.environ and _xla_knows(QUICK):
            os.environ["XLA_FLAGS"] = QUICK
        if importlib.util.find_spec("numba"):
            # What earlier versions of ArviZ import compiles into a cache that two workers at once leave damaged.
            subprocess.run([sys.executable, "-c", "import arviz_stats"], capture_output=True)
    # The same examples in every run, however long the machine takes to make them.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("tests")
    jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_disable_most_optimizations", True)


def _xla_knows(flag):
    """XLA ends the process where it does not know a flag; flags come and go with its versions."""
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    return subprocess.run(command, env=os.environ | {"XLA_FLAGS": flag}, capture_output=True).returncode == 0


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
