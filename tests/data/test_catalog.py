"""The catalog: nothing counts that is not the published bytes, and nothing is lost that has arrived."""

import gzip
import hashlib
import http.server
import io
import os
import threading
import urllib.error
import zipfile
from pathlib import Path

import numpy as np
import pytest

from inbounds.data import catalog
from inbounds.data.catalog import DataError, Dataset, File

CONTENT = bytes(range(256)) * 40
PACKED = gzip.compress(CONTENT, mtime=0)


def _entry(**changes):
    file = File(
        "numbers.gz",
        len(PACKED),
        hashlib.sha256(PACKED).hexdigest(),
        ("https://first.example/numbers.gz", "https://second.example/numbers.gz"),
        hashlib.sha256(CONTENT).hexdigest(),
    )
    values = {"name": "toy", "title": "Toy numbers", "homepage": "https://example", "licence": "none", "files": (file,)}
    return Dataset(**values, parse=_parse, **changes)


def _parse(place):
    with catalog.open_file(place, "numbers.gz") as stream:
        return stream.read()


@pytest.fixture
def toy(monkeypatch):
    entry = _entry()
    monkeypatch.setattr(catalog, "datasets", lambda: {"toy": entry})
    return entry


class _Answer(io.BytesIO):
    def __init__(self, content, status=200):
        super().__init__(content)
        self.status = status


class _Server:
    """Serves bytes and remembers what was asked."""

    def __init__(self, content=PACKED, ranges=True, cut=None, broken=()):
        self.content, self.ranges, self.cut, self.broken, self.asked = content, ranges, cut, broken, []

    def __call__(self, request):
        self.asked.append((request.full_url, request.get_header("Range")))
        if any(host in request.full_url for host in self.broken):
            raise urllib.error.URLError("no route to host")
        start = int(request.get_header("Range", "bytes=0-")[6:-1]) if self.ranges else 0
        return _Answer(self.content[start : self.cut], 206 if start else 200)


def test_a_fetched_data_set_is_checked_and_loads(toy, tmp_path):
    place = catalog.fetch("toy", tmp_path, opener=_Server())
    assert place == tmp_path / "toy"
    assert catalog.load("toy", tmp_path) == CONTENT
    assert not list(place.glob("*.part"))


def test_what_is_here_and_right_is_not_fetched_again(toy, tmp_path):
    catalog.fetch("toy", tmp_path, opener=_Server())
    server = _Server()
    catalog.fetch("toy", tmp_path, opener=server)
    assert server.asked == []


def test_an_interrupted_download_is_continued(toy, tmp_path):
    with pytest.raises(DataError, match=r"ended after 100 of .* Run the command again"):
        catalog.fetch("toy", tmp_path, opener=_Server(cut=100))
    assert not (tmp_path / "toy" / "numbers.gz").exists()
    server = _Server()
    catalog.fetch("toy", tmp_path, opener=server)
    assert server.asked == [("https://first.example/numbers.gz", "bytes=100-")]
    assert catalog.load("toy", tmp_path) == CONTENT


def test_a_server_that_ignores_ranges_starts_the_file_over(toy, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "numbers.gz.part").write_bytes(PACKED[:50])
    catalog.fetch("toy", tmp_path, opener=_Server(ranges=False))
    assert catalog.load("toy", tmp_path) == CONTENT


def test_a_mirror_that_is_down_is_passed_over(toy, tmp_path):
    server = _Server(broken=("first.example",))
    catalog.fetch("toy", tmp_path, opener=server)
    assert [url for url, _ in server.asked] == list(toy.files[0].urls)


@pytest.mark.parametrize("content", [b"x" * len(PACKED), PACKED + b"more"], ids=["other bytes", "too many"])
def test_wrong_bytes_are_refused_and_not_kept(toy, tmp_path, content):
    with pytest.raises(DataError, match="could not be downloaded"):
        catalog.fetch("toy", tmp_path, opener=_Server(content))
    assert list((tmp_path / "toy").iterdir()) == []


def test_a_missing_data_set_says_how_to_get_it(toy, tmp_path):
    with pytest.raises(DataError, match=r"numbers\.gz missing\. Run `inbounds data fetch toy`"):
        catalog.load("toy", tmp_path)


def test_an_unknown_name_lists_the_known_ones(toy):
    with pytest.raises(DataError, match="It has: toy"):
        catalog.load("cats")


def test_terms_that_a_person_must_accept_stop_the_download(monkeypatch, tmp_path):
    monkeypatch.setattr(catalog, "datasets", lambda: {"toy": _entry(may_fetch=False)})
    with pytest.raises(DataError, match="agree to the terms"):
        catalog.fetch("toy", tmp_path, opener=_Server())


@pytest.mark.parametrize("name", ["numbers.gz", "numbers"])
def test_files_that_are_already_here_are_imported_packed_or_not(toy, tmp_path, name):
    source = tmp_path / "mine"
    source.mkdir()
    # Packed by another tool the bytes differ; what they unpack to is what counts.
    (source / name).write_bytes(gzip.compress(CONTENT, 1, mtime=5) if name.endswith("gz") else CONTENT)
    catalog.add("toy", source, tmp_path / "data")
    assert catalog.load("toy", tmp_path / "data") == CONTENT


@pytest.mark.parametrize(
    ("content", "message"),
    [(PACKED[:-9], "cut off"), (gzip.compress(b"cats", mtime=0), "not the published numbers.gz"), (b"", "cut off")],
    ids=["cut", "foreign", "empty"],
)
def test_a_damaged_or_foreign_file_is_not_imported(toy, tmp_path, content, message):
    (tmp_path / "numbers.gz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        catalog.add("toy", tmp_path, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_an_import_from_nowhere_says_what_was_expected(toy, tmp_path):
    with pytest.raises(DataError, match=r"No file of Toy numbers in .* Expected .*numbers\.gz"):
        catalog.add("toy", tmp_path)
    with pytest.raises(DataError, match="nothing at"):
        catalog.add("toy", tmp_path / "absent")


def test_the_folder_is_the_one_given_then_the_variable_then_a_cache(monkeypatch, tmp_path):
    monkeypatch.delenv(catalog.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if os.name == "posix":
        assert catalog.folder() == tmp_path / "cache" / "inbounds" / "data"
    monkeypatch.setenv(catalog.ENVIRONMENT, str(tmp_path / "variable"))
    assert catalog.folder() == tmp_path / "variable"
    assert catalog.folder("~") == Path.home()


def test_an_archive_is_read_by_member_and_never_unpacked(tmp_path):
    archive = tmp_path / "set.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("../../outside.txt", "escape")
        out.writestr("set/ratings.dat", "1::2::3")
    with catalog.open_member(archive, "set/ratings.dat") as stream:
        assert stream.read() == b"1::2::3"
    with pytest.raises(DataError, match="no member"), catalog.open_member(archive, "set/cats.dat"):
        pass
    with pytest.raises(DataError, match="more than 3"), catalog.open_member(archive, "set/ratings.dat", most=3):
        pass
    archive.write_bytes(archive.read_bytes()[:40])
    with pytest.raises(DataError, match="not a readable zip"), catalog.open_member(archive, "set/ratings.dat"):
        pass
    assert not (tmp_path.parent.parent / "outside.txt").exists()


# -- archives, and files without a published checksum --------------------------------------------------------------

TABLE = b"1::2::3::4\n" * 50


def _archive(path, content=TABLE):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("set/readme", "hello")
        out.writestr("set/ratings.dat", content)
    return path.read_bytes()


@pytest.fixture
def archives(monkeypatch, tmp_path):
    """Two sets in one archive's form: of one the checksums are known, of the other they are not."""
    (tmp_path / "source").mkdir()
    packed = _archive(tmp_path / "source" / "known.zip")
    content = hashlib.sha256(TABLE).hexdigest()
    known = File(
        "known.zip",
        len(packed),
        hashlib.sha256(packed).hexdigest(),
        ("https://a.example/known.zip",),
        content,
        "set/ratings.dat",
    )
    loose = File("loose.zip", None, None, ("https://a.example/loose.zip",), None, "set/ratings.dat")
    entries = {
        name: Dataset(name, name, "https://example", "none", (file,), parse=list)
        for name, file in (("known", known), ("loose", loose))
    }
    monkeypatch.setattr(catalog, "datasets", lambda: entries)
    return tmp_path / "source", packed


@pytest.mark.parametrize("form", ["archive", "renamed", "packed by another tool", "folder", "unpacked", "inner folder"])
def test_a_copy_is_known_by_its_bytes_in_any_form(archives, tmp_path, form):
    source, _ = archives
    given = source / "known.zip"
    if form == "renamed":
        given = given.rename(source / "known (1).zip")
    elif form == "packed by another tool":
        with zipfile.ZipFile(given, "w", zipfile.ZIP_STORED) as out:
            out.writestr("set/ratings.dat", TABLE)
    elif form == "folder":
        given = source
    elif form == "unpacked":
        given = tmp_path / "mine.dat"
        given.write_bytes(TABLE)
    elif form == "inner folder":
        given = tmp_path / "inner"
        (given / "set").mkdir(parents=True)
        (given / "set" / "ratings.dat").write_bytes(TABLE)
    assert catalog.recognise(given) == "known"
    place = catalog.add("known", given, tmp_path / "data")
    assert not catalog.missing("known", tmp_path / "data")
    assert [path.name for path in place.iterdir()] == [
        "ratings.dat" if form in ("unpacked", "inner folder") else "known.zip"
    ]
    assert not catalog.unverified("known", tmp_path / "data")


def test_without_a_published_checksum_the_first_one_seen_counts(archives, tmp_path):
    _, packed = archives
    other = tmp_path / "loose.zip"
    other.write_bytes(_archive(tmp_path / "other.zip", TABLE + b"5::6::1::2\n"))
    assert catalog.recognise(other) == "loose"
    place = catalog.add("loose", other, tmp_path / "data")
    recorded = hashlib.sha256(other.read_bytes()).hexdigest()
    assert catalog.unverified("loose", tmp_path / "data") == {"loose.zip": recorded}
    catalog.fetch("loose", tmp_path / "data", opener=None)  # it is here and unchanged: nothing is asked
    (place / "loose.zip").write_bytes(packed)
    with pytest.raises(DataError, match="has changed"):
        catalog._check(place / "loose.zip", catalog.dataset("loose").files[0])


@pytest.mark.parametrize("damage", ["a byte", "cut", "not a zip"])
def test_without_a_published_checksum_an_archive_must_still_be_sound(archives, tmp_path, damage):
    _, packed = archives
    broken = bytearray(packed)
    if damage == "a byte":
        broken[packed.index(b"set/ratings.dat") + 20] ^= 0xFF
    elif damage == "cut":
        broken = broken[:-30]
    else:
        broken = bytearray(b"<html>not found</html>")
    (tmp_path / "loose.zip").write_bytes(broken)
    with pytest.raises(DataError, match="zip archive"):
        catalog.add("loose", tmp_path / "loose.zip", tmp_path / "data")
    with pytest.raises(DataError, match="say which"):
        catalog.recognise(tmp_path / "loose.zip")


# -- a real server, over a real socket -----------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers ranges, and drops the connection half way through what is left, as often as it is told."""

    def do_GET(self):
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        body = self.server.content[start:]
        self.server.asked.append(start)
        if not body:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.drops > 0:
            self.server.drops -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.HTTPServer(("127.0.0.1", 0), _Handler) as served:
        served.content, served.drops, served.asked = b"", 0, []
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


@pytest.mark.parametrize("size_is_known", [True, False])
def test_a_connection_that_drops_half_way_is_taken_up_again(server, monkeypatch, tmp_path, size_is_known):
    server.content, server.drops = _archive(tmp_path / "set.zip", os.urandom(200_000)), 3
    total = len(server.content)
    url = f"http://127.0.0.1:{server.server_port}/set.zip"
    known = (total, hashlib.sha256(server.content).hexdigest()) if size_is_known else (None, None)
    entry = Dataset("set", "Set", url, "none", (File("set.zip", *known, (url,), None, "set/ratings.dat"),), parse=list)
    monkeypatch.setattr(catalog, "datasets", lambda: {"set": entry})
    place = catalog.fetch("set", tmp_path / "data", progress=False)
    assert (place / "set.zip").read_bytes() == server.content
    assert len(server.asked) == 4
    assert server.asked[0] == 0
    assert np.all(np.diff(server.asked) > 0)  # nothing that has arrived is sent again
    assert bool(catalog.unverified("set", tmp_path / "data")) != size_is_known


def test_a_connection_that_keeps_dropping_is_an_error_and_what_came_is_kept(server, monkeypatch, tmp_path):
    server.content, server.drops = _archive(tmp_path / "set.zip", os.urandom(200_000)), 1000
    url = f"http://127.0.0.1:{server.server_port}/set.zip"
    known = (len(server.content), hashlib.sha256(server.content).hexdigest())
    entry = Dataset("set", "Set", url, "none", (File("set.zip", *known, (url,), None, "set/ratings.dat"),), parse=list)
    monkeypatch.setattr(catalog, "datasets", lambda: {"set": entry})
    with pytest.raises(DataError, match="again to continue"):
        catalog.fetch("set", tmp_path / "data", progress=False)
    arrived = (tmp_path / "data" / "set" / "set.zip.part").stat().st_size
    assert arrived > 0.9 * len(server.content)
    server.drops = 0
    catalog.fetch("set", tmp_path / "data", progress=False)
    assert server.asked[-1] == arrived


def test_every_entry_is_complete():
    for entry in catalog.datasets().values():
        for file in entry.files:
            assert (file.size is None) == (file.sha256 is None)  # both are published, or the file changes
            assert file.size is None or (file.size > 0 and len(file.sha256) == 64)
            assert entry.may_fetch is False or file.urls
            assert np.all([url.endswith(file.name) for url in file.urls])
