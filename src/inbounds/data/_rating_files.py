"""Where a table of ratings is: a file, or the one that a folder or an archive holds."""

from __future__ import annotations

import contextlib
import gzip
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from inbounds.data.catalog import DAMAGED_ZIP, DataError, open_file, open_member

__all__ = ["Table", "locate"]

KNOWN = ("ratings.dat", "ratings.csv", "u.data")  # MovieLens' names, which win over whatever else lies beside them
TABLES = (".csv", ".tsv", ".dat", ".data", ".parquet", ".csv.gz", ".tsv.gz", ".dat.gz")


@dataclass(frozen=True)
class Table:
    """A file, or a member of a zip archive."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        return _base(self.member) if self.member else self.path.name

    def __str__(self) -> str:
        return f"{self.path} ({self.member})" if self.member else str(self.path)

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        opened = open_member(self.path, self.member) if self.member else open_file(self.path.parent, self.path.name)
        try:
            with opened as stream:
                yield stream
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{self} is damaged or cut off ({error}). Fetch or pack it again.") from error


def locate(path: Path) -> Table:
    """The table at a path: the file itself, or the one that a folder or an archive holds."""
    if not path.exists():
        raise DataError(f"There is nothing at {path}.")
    if path.is_dir():
        # MovieLens' archives unpack to one folder; the catalog keeps the archive itself.
        inside = sorted(entry for pattern in ("*", "*/*") for entry in path.glob(pattern) if entry.is_file())
        found = _choose([str(entry.relative_to(path)) for entry in inside], (*TABLES, ".zip"), path)
        return locate(path / found)
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return Table(path, _choose(archive.namelist(), TABLES, path))
        except DataError:
            raise
        except DAMAGED_ZIP as error:
            raise DataError(f"{path} is not a readable zip archive ({error}).") from error
    return Table(path)


def _choose(names: Sequence[str], endings: tuple[str, ...], place: Path) -> str:
    names = [name for name in names if not _base(name).startswith(".") and "__MACOSX" not in name]
    candidates = [name for name in names if _base(name) in KNOWN] or [name for name in names if name.endswith(endings)]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise DataError(
            f"No table of ratings in {place}. Expected {', '.join(KNOWN)}, or one file of {', '.join(TABLES)}."
        )
    raise DataError(
        f"{place} has {len(candidates)} files that may be the ratings: {', '.join(candidates[:5])}"
        f"{', ...' if len(candidates) > 5 else ''}. Give the path of the one that you want (unpack an archive first)."
    )


def _base(name: str) -> str:
    return re.split(r"[/\\]", name)[-1]
