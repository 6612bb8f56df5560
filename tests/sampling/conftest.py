"""What the tests of runs share."""

import contextlib
import importlib
import multiprocessing
import os

import numpy as np
import pytest


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
