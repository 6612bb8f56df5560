"""What is said where PyMC is not installed, as with Python 3.11."""

import sys

import pytest

import inbounds as ib


@pytest.mark.parametrize(("door", "library"), [(ib.from_pymc, "pymc"), (ib.from_bambi, "bambi")])
def test_a_door_says_what_to_install(door, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError, match=rf'{library} is not installed: pip install "inbounds\[pymc\]", with Python 3.12'
    ):
        door(object())
