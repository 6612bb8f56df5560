"""A few thousand damaged files; `make fuzz` reads a hundred thousand."""

import pytest

pytest.importorskip("grain")
pytest.importorskip("pyarrow")

from tests.fuzz.check import fuzz
from tests.fuzz.readers import READERS


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if not reader.slow])
def test_a_damaged_file_is_refused_with_a_clear_error_or_read_right(name):
    counts = fuzz(name, inputs=150)
    assert counts["refused"] > 20
    assert sum(counts.values()) >= 100
