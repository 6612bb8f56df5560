"""Public data sets: where they come from, how large they are, how they are checked, and how they are read.

    ib.data.catalog.fetch("mnist")                     # download, check, keep
    ib.data.catalog.add("mnist", "~/downloads/mnist")  # the same from files that are already here
    ib.data.catalog.load("mnist")                      # parsed

A data set lives in `<folder>/<name>/`; the folder is the one given, or the environment variable INBOUNDS_DATA, or a cache
folder of the user. A file counts only when its bytes are the published ones: an interrupted download is continued, a
wrong file is refused with what was got and what was expected. Where no checksum is known (a file that its publisher replaces
now and then), the file must be sound by its own measures, its SHA-256 is written beside it on arrival, and from then on that
one counts. Archives are read member by member by their known names and never unpacked, so no path inside an archive is ever
trusted.

Another data set is one more module with a tuple `DATASETS`, listed in `MODULES`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import importlib
import os
import shutil
import struct
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from inbounds.display import tqdm

MODULES = ("inbounds.data.images", "inbounds.data.movielens", "inbounds.data.bag_of_words")
ENVIRONMENT = "INBOUNDS_DATA"
PIECE = 1 << 18  # bytes read at a time
TIMEOUT = 30.0  # seconds without an answer
RETRIES = 5  # after a connection that broke but brought something

# What `zipfile` raises when a zip archive is damaged, beside its own BadZipFile.
DAMAGED_ZIP = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, OverflowError, RuntimeError, NotImplementedError,
)  # fmt: skip

Opener = Callable[[urllib.request.Request], Any]


class DataError(ValueError):
    """A data file is missing, damaged, or not the one it should be.

    Example:
        >>> try:
        ...     ib.data.catalog.load("mnist", "nowhere")
        ... except ib.data.catalog.DataError as error:
        ...     print("not here yet")
        not here yet
    """


@dataclass(frozen=True)
class File:
    """One published file.

    Args:
        name: its name on disk.
        size: in bytes; None where the publisher replaces it now and then.
        sha256: of the file as published; None where it is not known.
        urls: where to download it, tried in this order.
        content_sha256: of what a gz file unpacks to, or of `member`; a file with that content is as good, packed or not.
        member: of a zip archive, the one member that is read; that file alone is as good as the archive.

    Example:
        >>> ib.data.catalog.dataset("mnist").files[0].name
        'train-images-idx3-ubyte.gz'
    """

    name: str
    size: int | None
    sha256: str | None
    urls: tuple[str, ...]
    content_sha256: str | None = None
    member: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which it may lie on disk: packed, or unpacked."""
        if self.member is not None:
            return (self.name, self.member.rpartition("/")[2])
        bare = self.name.removesuffix(".gz")
        return (self.name,) if self.content_sha256 is None or bare == self.name else (self.name, bare)


@dataclass(frozen=True)
class Dataset:
    """A data set of the catalog.

    Args:
        name: what it is called here, and its folder's name.
        title: one line for people.
        homepage: who publishes it.
        licence: what may be done with it, in a few words.
        files: what it is made of.
        parse: from its folder to what `load` returns.
        may_fetch: False where the publisher wants a person to agree to terms first; `add` takes the files then.
        folders: other names that its folder may have, where somebody else has put it there.

    Example:
        >>> ib.data.catalog.dataset("mnist").title
        'MNIST, 70,000 handwritten digits'
    """

    name: str
    title: str
    homepage: str
    licence: str
    files: tuple[File, ...]
    parse: Callable[[Path], Any]
    may_fetch: bool = True
    folders: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """In bytes; None where it changes."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None


def datasets() -> dict[str, Dataset]:
    """Every data set of the catalog, by name.

    Returns:
        A dict of `Dataset`.

    Example:
        >>> sorted(ib.data.catalog.datasets())[:3]
        ['fashion-mnist', 'kos', 'mnist']
    """
    found: dict[str, Dataset] = {}
    for module in MODULES:
        for dataset in importlib.import_module(module).DATASETS:
            found[dataset.name] = dataset
    return found


def dataset(name: str) -> Dataset:
    """The entry of a data set.

    Args:
        name: of the data set, as `inbounds data list` has it.

    Returns:
        Its files, where they come from, and how they are read.

    Raises:
        DataError: no data set has that name.

    Example:
        >>> len(ib.data.catalog.dataset("mnist").files)
        4
    """
    known = datasets()
    if name not in known:
        raise DataError(f"There is no data set {name!r} in the catalog. It has: {', '.join(known)}.")
    return known[name]


def folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets are kept: the folder given, INBOUNDS_DATA, or the user's cache.

    Args:
        given: a folder; None: that of the environment, or the cache.

    Returns:
        A path, which need not exist.

    Example:
        >>> ib.data.catalog.folder("datasets").name
        'datasets'
    """
    if given is not None:
        return Path(given).expanduser()
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT]).expanduser()
    return user_cache() / "data"


def user_cache() -> Path:
    """Where this user keeps what can be had again: nothing is lost when it is deleted."""
    windows = sys.platform == "win32"
    told = Path(os.environ.get("LOCALAPPDATA" if windows else "XDG_CACHE_HOME", ""))
    if told.is_absolute():
        return told / "inbounds"
    return Path.home() / ("AppData/Local" if windows else ".cache") / "inbounds"


def missing(name: str, data: str | os.PathLike[str] | None = None) -> list[str]:
    """Names of the files of a data set that are not on disk.

    Args:
        name: of the data set, as `inbounds data list` has it.
        data: folder of the data sets; None: see `folder`.

    Returns:
        Names; an empty list where all are there.

    Example:
        >>> len(ib.data.catalog.missing("mnist", "nowhere"))
        4
    """
    place = _place(dataset(name), data)
    return [file.name for file in dataset(name).files if _on_disk(place, file) is None]


def load(name: str, data: str | os.PathLike[str] | None = None) -> Any:
    """A parsed data set from disk; an error says what is missing and how to get it.

    Args:
        name: of the data set, as `inbounds data list` has it.
        data: folder of the data sets; None: see `folder`.

    Returns:
        What the data set is read as: ratings, images or documents.

    Raises:
        DataError: a file is missing or damaged.

    Example:
        >>> ib.data.catalog.load("mnist", "nowhere")
        Traceback (most recent call last):
            ...
        inbounds.data.catalog.DataError: ...
    """
    entry = dataset(name)
    absent = missing(name, data)
    if absent:
        get = f"inbounds data fetch {name}" if entry.may_fetch else f"inbounds data import {name} FOLDER"
        raise DataError(
            f"{entry.title} is not complete in {folder(data) / name}: {', '.join(absent)} missing. Run `{get}`, or point "
            f"--data or {ENVIRONMENT} to a folder that has it."
        )
    return entry.parse(_place(entry, data))


def _place(entry: Dataset, data: str | os.PathLike[str] | None) -> Path:
    """The folder of a data set: the first of its names that exists."""
    places = [folder(data) / name for name in (entry.name, *entry.folders)]
    return next((place for place in places if place.is_dir()), places[0])


def fetch(
    name: str,
    data: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
    opener: Opener | None = None,
) -> Path:
    """Download a data set, check it, and return its folder. What is already here and right is left alone.

    A download goes to `<file>.part` and is moved into place when its checksum is right; a `.part` that is found is
    continued.

    Args:
        name: of the data set, as `inbounds data list` has it.
        data: folder of the data sets; None: see `folder`.
        progress: show a bar.
        opener: answers a request with a stream of bytes; None: over the network.

    Returns:
        The folder of the data set.

    Raises:
        DataError: its publisher asks to agree to terms first, or a file is not the published one.

    Example:
        >>> ib.data.catalog.fetch("mnist", "datasets")  # doctest: +SKIP
        PosixPath('datasets/mnist')
    """
    entry = dataset(name)
    if not entry.may_fetch:
        raise DataError(
            f"{entry.title} is not downloaded automatically: its publisher asks you to agree to the terms first "
            f"({entry.homepage}). Download it there and run `inbounds data import {name} FOLDER`."
        )
    place = folder(data) / name
    place.mkdir(parents=True, exist_ok=True)
    for file in entry.files:
        present = _on_disk(place, file)
        if present is not None and _is_right(present, file):
            continue
        _download(file, place, progress, opener or _open_url)
    return place


def add(name: str, source: str | os.PathLike[str], data: str | os.PathLike[str] | None = None) -> Path:
    """Copy the files of a data set from a folder, an archive or a single file, check each, and return the data set's folder.

    Files are found by name, at the top of `source` or one level below it in a folder called `name` or as the archive
    calls it. A single file may have any name: its bytes say what it is.

    Args:
        name: of the data set, as `inbounds data list` has it.
        source: a folder, an archive or a file.
        data: folder of the data sets; None: see `folder`.

    Returns:
        The folder of the data set.

    Raises:
        DataError: a file is not there, or is not the published one.

    Example:
        >>> ib.data.catalog.add("mnist", "nowhere")
        Traceback (most recent call last):
            ...
        inbounds.data.catalog.DataError: There is nothing at nowhere.
    """
    entry = dataset(name)
    source = Path(source).expanduser()
    if not source.exists():
        raise DataError(f"There is nothing at {source}.")
    chosen = {file: found for file in entry.files if (found := _find(source, entry, file)) is not None}
    if not chosen:
        expected = ", ".join(file.name for file in entry.files)
        raise DataError(f"No file of {entry.title} in {source}. Expected (unpacked will do as well): {expected}.")
    for file, path in chosen.items():
        _check(path, file)
    place = folder(data) / name
    place.mkdir(parents=True, exist_ok=True)
    for file, path in chosen.items():
        target = place / _name_for(path, file)
        if not (target.exists() and target.samefile(path)):
            part = target.with_name(target.name + ".part")
            shutil.copyfile(path, part)
            os.replace(part, target)
        _record(target, file)
    return place


def recognise(source: str | os.PathLike[str]) -> str:
    """The data set that a folder, an archive or a file is a copy of, by its bytes.

    Args:
        source: a folder, an archive or a file.

    Returns:
        The name of the data set.

    Raises:
        DataError: there is nothing, or the catalog does not know it.

    Example:
        >>> ib.data.catalog.recognise("nowhere")
        Traceback (most recent call last):
            ...
        inbounds.data.catalog.DataError: There is nothing at nowhere.
    """
    source = Path(source).expanduser()
    if not source.exists():
        raise DataError(f"There is nothing at {source}.")
    likely = []
    for entry in datasets().values():
        paths = {file: _find(source, entry, file) for file in entry.files}
        if all(path is not None and _is_right(path, file) for file, path in paths.items()):
            if all(path is not None and _expected(path, file) for file, path in paths.items()):
                return entry.name
            if any(path is not None and path.name == file.name for file, path in paths.items()):
                likely.append(entry.name)  # called so, with no checksum to tell
    if len(likely) == 1:
        return likely[0]
    raise DataError(
        f"{source} is not a data set that the catalog knows by its checksum. If it is one of {', '.join(datasets())}, say which: "
        f"`inbounds data import NAME {source}`."
    )


def unverified(name: str, data: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Files on disk for which no checksum is published, with the SHA-256 that was recorded when they came.

    Args:
        name: of the data set, as `inbounds data list` has it.
        data: folder of the data sets; None: see `folder`.

    Returns:
        SHA-256 by the name of the file.

    Example:
        >>> ib.data.catalog.unverified("mnist", "nowhere")
        {}
    """
    place, found = folder(data) / name, {}
    for file in dataset(name).files:
        present = _on_disk(place, file)
        if present is not None and not _expected(present, file):
            found[present.name] = _recorded(present) or "not recorded"
    return found


def open_file(place: Path, name: str) -> IO[bytes]:
    """A file of a data set, unpacked on the fly when its first bytes are gzip's, whatever it is called.

    Args:
        place: the folder.
        name: of the file, with or without `.gz`.

    Returns:
        A stream of bytes.

    Raises:
        DataError: there is no such file.

    Example:
        >>> import gzip
        >>> from pathlib import Path
        >>> size = Path("words.gz").write_bytes(gzip.compress(b"in bounds"))
        >>> with ib.data.catalog.open_file(Path(), "words.gz") as file:
        ...     file.read()
        b'in bounds'
    """
    for candidate in (name, name.removesuffix(".gz")):
        path = place / candidate
        if path.is_file():
            with path.open("rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
            return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]
    raise DataError(f"{place / name} does not exist.")


@contextlib.contextmanager
def open_member(archive: Path, member: str, most: int = 1 << 31) -> Iterator[IO[bytes]]:
    """One member of a zip archive, by its exact name, as a stream; nothing is written to disk.

    `most` bounds what it may unpack to: a damaged or hostile archive must not fill the memory.

    Args:
        archive: the zip file.
        member: its name in the archive.
        most: bytes that it may unpack to.

    Returns:
        A stream of bytes, closed at the end of the `with`.

    Raises:
        DataError: the archive is damaged, encrypted, too large, or has no such member.

    Example:
        >>> import zipfile
        >>> from pathlib import Path
        >>> with zipfile.ZipFile("words.zip", "w") as archive:
        ...     archive.writestr("words.txt", "in bounds")
        >>> with ib.data.catalog.open_member(Path("words.zip"), "words.txt") as member:
        ...     member.read()
        b'in bounds'
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            try:
                info = opened.getinfo(member)
            except KeyError:
                raise DataError(f"{archive} has no member {member!r}; it is not the published archive.") from None
            if info.file_size > most:
                raise DataError(f"{member!r} in {archive} unpacks to {info.file_size:,} bytes, more than {most:,}.")
            if info.flag_bits & 1:
                raise DataError(f"{member!r} in {archive} is encrypted. Unpack it, and give the file.")
            with opened.open(info) as stream:
                yield stream
    except DataError:
        raise
    except DAMAGED_ZIP as error:
        raise DataError(f"{archive} is not a readable zip archive ({error}). Fetch it again.") from error


def read_at_most(stream: IO[bytes], size: int) -> bytes:
    """Up to `size` bytes, in pieces: a header that promises more than there is must not fill the memory.

    Args:
        stream: what is read.
        size: the most bytes.

    Returns:
        The bytes, fewer where the stream ends.

    Example:
        >>> import io
        >>> ib.data.catalog.read_at_most(io.BytesIO(b"in bounds"), 2)
        b'in'
    """
    pieces: list[bytes] = []
    while size > 0 and (piece := stream.read(min(size, PIECE))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


# -- checks -------------------------------------------------------------------------------------------------------


def _on_disk(place: Path, file: File) -> Path | None:
    return next((place / name for name in file.names if (place / name).is_file()), None)


def _find(source: Path, entry: Dataset, file: File) -> Path | None:
    if source.is_file():
        # A lone file may have been renamed, unless the name says that it is another part of the set.
        return source if source.name in file.names or len(entry.files) == 1 else None
    inner = [] if file.member is None else [file.member.partition("/")[0]]
    for place in (source, *(source / name for name in (entry.name, *inner))):
        found = _on_disk(place, file)
        if found is not None:
            return found
    return None


def _name_for(path: Path, file: File) -> str:
    if path.name in file.names:
        return path.name
    return file.name if file.member is None or zipfile.is_zipfile(path) else file.names[1]


def _is_right(path: Path, file: File) -> bool:
    try:
        _check(path, file)
    except DataError:
        return False
    return True


def _expected(path: Path, file: File) -> set[str]:
    """Checksums that the bytes of a file, or what it unpacks to, may have; none where none is known."""
    packed = zipfile.is_zipfile(path) or file.member is None
    known = {file.sha256, file.content_sha256} if packed else {file.content_sha256}
    return {checksum for checksum in known if checksum is not None}


def _check(path: Path, file: File) -> None:
    """Raise a DataError unless the bytes, or the bytes they unpack to, are the published ones.

    Without a published checksum: the one recorded on arrival; on arrival, an archive that its own checksums say is whole.
    """
    got, expected = _checksum(path), _expected(path, file)
    if got in expected:
        return
    if expected:
        if file.content_sha256 is not None and _content(path, file) == file.content_sha256:
            return
        size = path.stat().st_size
        known = f"{file.size:,} bytes with " if file.size is not None and file.sha256 in expected else ""
        cut = (
            f" It is shorter than the published {file.size:,} bytes: cut off?"
            if known and size < (file.size or 0)
            else ""
        )
        raise DataError(
            f"{path} is not the published {file.name}: {size:,} bytes with SHA-256 {got}, expected {known}"
            f"{' or '.join(sorted(expected))}.{cut}"
        )
    recorded = _recorded(path)
    if recorded is not None and recorded != got:
        raise DataError(
            f"{path} has changed: SHA-256 {got}, but {recorded} when it came. Delete it and {_record_of(path).name}, and fetch "
            "or import it again."
        )
    if recorded is None and file.member is not None:
        if zipfile.is_zipfile(path):
            _content(path, file)
        elif path.name != file.names[1]:
            raise DataError(f"{path} is neither a zip archive nor called {file.names[1]}.")


def _content(path: Path, file: File) -> str:
    """SHA-256 of what a file unpacks to; unpacking checks an archive's own checksums on the way."""
    if file.member is not None:
        if not zipfile.is_zipfile(path):
            return _checksum(path)
        with open_member(path, file.member) as stream:
            return _sha256(iter(lambda: stream.read(PIECE), b""))
    try:
        with open_file(path.parent, path.name) as stream:
            return _sha256(iter(lambda: stream.read(PIECE), b""))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return "damaged"


def _record_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _recorded(path: Path) -> str | None:
    record = _record_of(path)
    return record.read_text().split()[0] if record.is_file() else None


def _record(path: Path, file: File) -> None:
    """Write down the checksum of a file that has no published one, as `sha256sum` does."""
    if not _expected(path, file) and _recorded(path) is None:
        _record_of(path).write_text(f"{_checksum(path)}  {path.name}\n")


def _checksum(path: Path) -> str:
    with path.open("rb") as raw:
        return _sha256(iter(lambda: raw.read(PIECE), b""))


def _sha256(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


# -- download -----------------------------------------------------------------------------------------------------


def _open_url(request: urllib.request.Request) -> Any:
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _download(file: File, place: Path, progress: bool, opener: Opener) -> None:
    """From the first address that gives the right bytes; a connection that breaks is taken up where it broke."""
    part, failures = place / (file.name + ".part"), []
    for url in file.urls:
        for attempt in range(RETRIES + 1):
            before = _size(part)
            try:
                _transfer(url, file, part, progress, opener)
                _check(part, file)
            except DataError as error:
                part.unlink(missing_ok=True)  # wrong bytes are not worth continuing
                failures.append(f"{url}: {error}")
                break
            except (OSError, http.client.HTTPException) as error:
                if attempt < RETRIES and _size(part) > before:
                    continue
                failures.append(f"{url}: {error}")
                break
            os.replace(part, place / file.name)
            _record(place / file.name, file)
            return
    raise DataError(
        f"{file.name} could not be downloaded. "
        + " ".join(failures)
        + f" Run the command again to continue, or put the file into {place} by hand."
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _transfer(url: str, file: File, part: Path, progress: bool, opener: Opener) -> None:
    done = _size(part)
    if file.size is not None:
        if done == file.size:
            return  # stopped between the last byte and the checksum
        if done > file.size:
            done = 0
    request = urllib.request.Request(url, headers={"User-Agent": "inbounds"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        answer = opener(request)
    except urllib.error.HTTPError as error:
        if error.code == 416 and done and file.size is None:  # nothing is left to send
            return
        raise
    with answer:
        if done and getattr(answer, "status", 200) != 206:
            done = 0  # the server sends the whole file
        size = file.size if file.size is not None else _announced(answer, done)
        bar = tqdm(
            total=size, initial=done, desc=file.name, unit="B", unit_scale=True,
            disable=not (progress and sys.stderr.isatty()), leave=False,
        )  # fmt: skip
        with part.open("ab" if done else "wb") as out, bar:
            while piece := answer.read(PIECE):
                done += len(piece)
                if size is not None and done > size:
                    raise DataError(f"more than the published {size:,} bytes arrived")
                out.write(piece)
                bar.update(len(piece))
    if size is not None and done < size:
        raise OSError(f"the connection ended after {done:,} of {size:,} bytes")


def _announced(answer: Any, done: int) -> int | None:
    """The size that the server tells for a file whose size is not published."""
    length = answer.headers.get("Content-Length") if hasattr(answer, "headers") else None
    return done + int(length) if length is not None else None


__all__ = [
    "DataError",
    "Dataset",
    "File",
    "add",
    "dataset",
    "datasets",
    "fetch",
    "folder",
    "load",
    "missing",
    "open_file",
    "open_member",
    "read_at_most",
    "recognise",
    "unverified",
]
