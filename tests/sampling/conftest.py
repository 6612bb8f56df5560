"""What tests of kernels for GPUs share: the forms that GPUs compute, interpreted where there is none."""

import sys

import jax
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
