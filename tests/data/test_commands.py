"""`inbounds data` on the command line."""

import gzip
import hashlib

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from inbounds.cli import app
from inbounds.data import catalog
from inbounds.data.catalog import Dataset, File

CONTENT = b"some numbers"


@pytest.fixture
def toy(monkeypatch):
    file = File("numbers", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), ("https://example/numbers",))
    entry = Dataset("toy", "Toy numbers", "https://example", "free", (file,), parse=lambda place: None)
    monkeypatch.setattr(catalog, "datasets", lambda: {"toy": entry})


def _invoke(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_list_shows_what_is_here(toy, tmp_path):
    assert "not here" in _invoke("list", "--data", tmp_path).output
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "numbers").write_bytes(CONTENT)
    output = _invoke("list", "--data", tmp_path).output
    assert "not here" not in output
    assert "Toy numbers; free" in output


def test_import_checks_and_copies(toy, tmp_path):
    (tmp_path / "numbers").write_bytes(CONTENT)
    result = _invoke("import", "toy", tmp_path, "--data", tmp_path / "data")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "data" / "toy" / "numbers").read_bytes() == CONTENT
    assert "toy is in" in _invoke("import", tmp_path, "--data", tmp_path / "unnamed").output
    (tmp_path / "numbers").write_bytes(gzip.compress(CONTENT))
    wrong = _invoke("import", "toy", tmp_path, "--data", tmp_path / "other")
    assert isinstance(wrong.exception, catalog.DataError)


def test_fetch_downloads_into_the_folder(toy, tmp_path, monkeypatch):
    import io

    monkeypatch.setattr(catalog, "_open_url", lambda request: io.BytesIO(CONTENT))
    result = _invoke("fetch", "toy", "--data", tmp_path)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "toy" / "numbers").read_bytes() == CONTENT
