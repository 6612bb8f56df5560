"""What tests of kernels for GPUs share: the forms that GPUs compute, interpreted where there is none."""

import contextlib
import importlib
import multiprocessing
import os
import sys

import jax
import numpy as np
import pytest

from inbounds.sampling import fused


@pytest.fixture
def gpu(monkeypatch):
    """The forms that GPUs compute, of variables that count as large from a thousand numbers on."""
    for name, module in list(sys.modules.items()):
        if name.startswith("inbounds") and hasattr(module, "default_platform"):
            monkeypatch.setattr(module, "default_platform", lambda: "gpu")
    monkeypatch.setattr(fused, "LARGE", 1_000)
    monkeypatch.setattr(fused, "WORTH_A_PART", 1_000)


@pytest.fixture
def interpreted(monkeypatch):
    monkeypatch.setattr("inbounds.sampling.program.SMALL", 1_000)
    monkeypatch.setattr(fused, "LARGE", 1_000)
    monkeypatch.setattr(fused, "WORTH_A_PART", 1_000)
    monkeypatch.setattr(fused, "INTERPRETED", jax.default_backend() != "gpu")  # on a GPU, the real ones
    fused.available.cache_clear()
    fused.available(jax.default_backend())  # asks the device now, and not in a test that counts kernels or breaks them
    yield
    fused.available.cache_clear()


@pytest.fixture
def kernels(monkeypatch, interpreted):
    """A list with an entry for every kernel that is traced."""
    traced, kernel = [], fused._kernel
    monkeypatch.setattr(fused, "_kernel", lambda *arguments: traced.append(arguments[0]) or kernel(*arguments))
    return traced


@pytest.fixture
def plots_of_arviz(monkeypatch):
    """Those of `plot_dist` and `plot_trace` that draw ArviZ's own data, with the versions that are here."""
    style = pytest.importorskip("matplotlib.style")
    pytest.importorskip("matplotlib").use("Agg")
    if not hasattr(style, "core"):  # arviz_plots 0.8 looks for what matplotlib 3.11 has moved
        monkeypatch.setattr(style, "core", style, raising=False)
    try:
        arviz_plots = importlib.import_module("arviz_plots")
    except (ImportError, AttributeError) as error:
        pytest.skip(f"arviz_plots does not import here: {error}")
    numbers = np.random.default_rng(0).normal(size=(4, 50))
    plain = importlib.import_module("arviz_base").from_dict({"posterior": {"x": numbers}})
    sound = []
    for plot in (arviz_plots.plot_dist, arviz_plots.plot_trace):
        with contextlib.suppress(TypeError, ValueError):  # it is broken, with these versions of its dependencies
            plot(plain)
            sound.append(plot)
    yield sound
    importlib.import_module("matplotlib.pyplot").close("all")


@pytest.fixture(scope="session")
def nursery():
    """Processes forked from one that has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.sampling.victim"])
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    yield context
    os.environ.pop("OPENBLAS_NUM_THREADS") if threads is None else os.environ.update(OPENBLAS_NUM_THREADS=threads)
