"""What tests of kernels for GPUs share: the forms that GPUs compute, interpreted where there is none."""

import jax
import pytest

moves = pytest.importorskip("inbounds.engine.triton.moves", reason="the plug-in is not here")


@pytest.fixture
def gpu(monkeypatch):
    """The forms that GPUs compute, of variables that count as large from a thousand numbers on."""
    monkeypatch.setattr("inbounds.engine.platform.default_platform", lambda: "gpu")
    monkeypatch.setattr(moves, "LARGE", 1_000)
    monkeypatch.setattr(moves, "WORTH_A_PART", 1_000)


@pytest.fixture
def interpreted(monkeypatch):
    monkeypatch.setattr("inbounds.engine.program.SMALL", 1_000)
    monkeypatch.setattr(moves, "LARGE", 1_000)
    monkeypatch.setattr(moves, "WORTH_A_PART", 1_000)
    monkeypatch.setattr(moves, "INTERPRETED", jax.default_backend() != "gpu")  # on a GPU, the real ones
    moves.works.cache_clear()
    moves.works()  # asks the device now, and not in a test that counts kernels or breaks them
    yield
    moves.works.cache_clear()


@pytest.fixture
def kernels(monkeypatch, interpreted):
    """A list with an entry for every kernel that is traced."""
    traced, kernel = [], moves._kernel
    monkeypatch.setattr(moves, "_kernel", lambda *arguments: traced.append(arguments[0]) or kernel(*arguments))
    return traced
