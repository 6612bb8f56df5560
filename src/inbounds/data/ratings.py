"""Ratings: who gave which thing how many stars, from MovieLens' files, from any table, or from a sparse matrix.

    ratings = ib.data.load_ratings("ml-10m.zip")                    # or a folder, .dat, .data, .csv, .csv.gz, .parquet
    ratings = ib.data.load_ratings("mine.csv", user="reader", item="isbn", rating="stars")
    train, validation, test = ratings.split(seed=0)

Text is read in blocks. A block of plain numbers, the rule, is parsed by NumPy as a whole; a block with anything else in it is
read again line by line, which understands quotes, blank lines and text labels, and names the line that is wrong. Both give the
same answer where both can (`tests/data/test_ratings.py`).
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import math
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse

from inbounds.data.catalog import DAMAGED_ZIP, DataError, open_file, open_member

Column = str | int
DUPLICATES = ("error", "last", "mean")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings as three columns, users and items numbered without gaps.

    Args:
        user, item: int32, which user and which item each rating is of.
        rating: float32, finite and not negative.
        user_ids, item_ids: the labels that the numbers stand for: `user_ids[user]` is the column as it was in the file.

    Example:
        >>> ratings = ib.data.generate_ratings(50, 20, 400)
        >>> [len(part) for part in ratings.split((0.8, 0.1, 0.1), seed=0)]
        [320, 40, 40]
    """

    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray
    user_ids: np.ndarray
    item_ids: np.ndarray

    @property
    def num_users(self) -> int:
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.rating)

    def __repr__(self) -> str:
        return f"Ratings({len(self):,} of {self.num_users:,} users on {self.num_items:,} items)"

    def select(self, rows: np.ndarray) -> Ratings:
        """Some of the ratings, over the same users and items."""
        return Ratings(self.user[rows], self.item[rows], self.rating[rows], self.user_ids, self.item_ids)

    def split(self, fractions: tuple[float, float, float] = (0.75, 0.125, 0.125), seed: int = 0) -> RatingsSplit:
        """Shuffle the ratings and cut them, 75 : 12.5 : 12.5 by default; every part keeps all users and items."""
        if len(fractions) != 3 or min(fractions) < 0 or not math.isclose(sum(fractions), 1.0):
            raise ValueError(f"`fractions` must be three shares that sum to 1; got {fractions}.")
        first = round(fractions[0] * len(self))
        second = first + round(fractions[1] * len(self))
        parts = np.split(np.random.default_rng(seed).permutation(len(self)), [first, second])
        for name, share, rows in zip(RatingsSplit._fields, fractions, parts, strict=True):
            if share > 0 and not len(rows):
                raise ValueError(f"{len(self)} ratings are too few for a {name} part of {share:g} of them.")
        return RatingsSplit(*(self.select(rows) for rows in parts))

    def to_sparse(self) -> scipy.sparse.coo_array:
        """A matrix of users by items. A rating of zero stays a stored entry."""
        return scipy.sparse.coo_array((self.rating, (self.user, self.item)), shape=(self.num_users, self.num_items))

    @classmethod
    def from_sparse(cls, matrix: Any, duplicates: str = "error") -> Ratings:
        """The stored entries of a `scipy.sparse` matrix, users by items; a stored zero is a rating of zero.

        Empty rows and columns are kept: user 7 is row 7.
        """
        if not scipy.sparse.issparse(matrix) or matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise DataError(f"Expected a scipy.sparse matrix of numbers, users by items; got {matrix!r}.")
        if max(matrix.shape) >= 2**31:
            raise DataError(
                f"A matrix of {matrix.shape} has more users or items than 32 bits can number. Drop empty ones."
            )
        entries = matrix.tocoo()
        labels = tuple(np.arange(size) for size in matrix.shape)
        codes = (entries.row.astype(np.int32), entries.col.astype(np.int32))
        return _checked(codes, labels, np.asarray(entries.data), duplicates, lambda row: f"the matrix, entry {row}")

    @classmethod
    def from_columns(cls, user: Any, item: Any, rating: Any, duplicates: str = "error") -> Ratings:
        """From three columns of equal length; labels may be whole numbers or text."""
        columns = [np.asarray(column) for column in (user, item, rating)]
        if any(column.ndim != 1 for column in columns) or len({len(column) for column in columns}) != 1:
            raise DataError(
                f"Expected three columns of equal length; got shapes {', '.join(str(c.shape) for c in columns)}."
            )
        return _from_tables(columns, duplicates, "the table")

    def describe(self) -> dict[str, Any]:
        """Counts, mean and sd, the histogram of ratings, and quantiles of ratings a user and an item."""
        values, counts = np.unique(self.rating, return_counts=True)
        quantiles = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
        activity = {
            f"ratings per {name}": dict(
                zip(quantiles, np.quantile(np.bincount(codes, minlength=size), quantiles).tolist(), strict=True)
            )
            for name, codes, size in (("user", self.user, self.num_users), ("item", self.item, self.num_items))
        }
        return {
            "ratings": len(self),
            "users": self.num_users,
            "items": self.num_items,
            "density": len(self) / (self.num_users * self.num_items),
            "mean": float(self.rating.mean(dtype=np.float64)),
            "sd": float(self.rating.std(dtype=np.float64)),
            "histogram": dict(zip(values.tolist(), (counts / len(self)).tolist(), strict=True)),
            **activity,
        }


class RatingsSplit(NamedTuple):
    """Ratings for fitting, for choosing, and for the final number."""

    train: Ratings
    validation: Ratings
    test: Ratings


def load_ratings(
    source: Any,
    *,
    user: Column | None = None,
    item: Column | None = None,
    rating: Column | None = None,
    format: str | None = None,
    duplicates: str = "error",
) -> Ratings:
    """Ratings from a file, a folder, a zip archive, a sparse matrix or a data frame.

    MovieLens 100K, 1M, 10M, 20M, 25M and latest are known as published, packed or not. Any other text table of at least three
    columns will do; its separator is found out, and a first line whose rating is not a number is a header. Labels may be
    text. Text must be UTF-8; lines may end in CRLF; blank lines are passed over. Ratings are kept as they are, half stars
    included.

    Args:
        source: a path, a `scipy.sparse` matrix of users by items, or a data frame (anything with `columns`).
        user, item, rating: columns, by name or by position from 0. When left out: the usual names
            (userId, movieId, item_id, stars, ...), or the first three columns where there is no header.
        format: csv, tsv, dat (`::` between the fields) or parquet, when guessing from the content is wrong.
        duplicates: what to do when a user has rated an item more than once: an "error", the "last" rating, or their "mean".

    Raises:
        DataError: what is wrong, in which file and line.

    Returns:
        The ratings.

    Example:
        >>> lines = ["user,film,stars", "ann,Brazil,5", "bob,Brazil,3", "ann,Alien,4"]
        >>> np.savetxt("stars.csv", lines, "%s")
        >>> ratings = ib.data.load_ratings("stars.csv")
        >>> len(ratings), ratings.user_ids.tolist()
        (3, ['ann', 'bob'])
    """
    if duplicates not in DUPLICATES:
        raise ValueError(f"Unknown duplicates={duplicates!r}. Known: {', '.join(DUPLICATES)}.")
    if format is not None and format not in (*SEPARATORS, "parquet"):
        raise ValueError(f"Unknown format {format!r}. Known: {', '.join(SEPARATORS)}, parquet.")
    wanted = (user, item, rating)
    if scipy.sparse.issparse(source):
        return Ratings.from_sparse(source, duplicates)
    if hasattr(source, "columns"):  # pandas, Polars, PyArrow
        return _from_frame(source, wanted, duplicates)
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            f"Expected a path, a scipy.sparse matrix or a data frame; got {type(source).__name__}. Three arrays go through "
            "`Ratings.from_columns`."
        )
    found = _locate(Path(source).expanduser())
    if format == "parquet" or (format is None and found.name.endswith(".parquet")):
        return _read_parquet(found, wanted, duplicates)
    with found.open() as stream:
        return _read_text(stream, found, wanted, format, duplicates)


def write_dat(ratings: Ratings, path: str | os.PathLike[str], timestamp: int = 978_300_760) -> None:
    """Write ratings as MovieLens' .dat does, `user::item::rating::timestamp` a line, all with one timestamp.

    Args:
        ratings: what to write.
        path: the file.
        timestamp: of every line, in seconds since 1970.

    Example:
        >>> ib.data.write_dat(ib.data.generate_ratings(50, 20, 400), "ratings.dat")
        >>> len(ib.data.load_ratings("ratings.dat"))
        400
    """
    with open(path, "w", encoding="ascii", newline="\n") as out:
        for start in range(0, len(ratings), 1 << 18):
            rows = slice(start, start + (1 << 18))
            columns = (ratings.user_ids[ratings.user[rows]], ratings.item_ids[ratings.item[rows]], ratings.rating[rows])
            lines = map(f"%s::%s::%g::{timestamp}\n".__mod__, zip(*(c.tolist() for c in columns), strict=True))
            out.write("".join(lines))


# -- where the table is -------------------------------------------------------------------------------------------

KNOWN = ("ratings.dat", "ratings.csv", "u.data")  # MovieLens' names, which win over whatever else lies beside them
TABLES = (".csv", ".tsv", ".dat", ".data", ".parquet", ".csv.gz", ".tsv.gz", ".dat.gz")


@dataclass(frozen=True)
class _Table:
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


def _locate(path: Path) -> _Table:
    """The table at a path: the file itself, or the one that a folder or an archive holds."""
    if not path.exists():
        raise DataError(f"There is nothing at {path}.")
    if path.is_dir():
        # MovieLens' archives unpack to one folder; the catalog keeps the archive itself.
        inside = sorted(entry for pattern in ("*", "*/*") for entry in path.glob(pattern) if entry.is_file())
        found = _choose([str(entry.relative_to(path)) for entry in inside], (*TABLES, ".zip"), path)
        return _locate(path / found)
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return _Table(path, _choose(archive.namelist(), TABLES, path))
        except DataError:
            raise
        except DAMAGED_ZIP as error:
            raise DataError(f"{path} is not a readable zip archive ({error}).") from error
    return _Table(path)


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


# -- text ---------------------------------------------------------------------------------------------------------

SEPARATORS = {"csv": b",", "tsv": b"\t", "dat": b"::"}
GUESSES = (b"::", b"\t", b",", b";", b"|", b" ")
BLOCK = 1 << 24  # bytes parsed at a time
LONGEST_LABEL = 250  # characters
LONGEST_LINE = 1 << 20  # without an end of line for so long, a file is not a table
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
MOVIELENS_HEADER = ("userid", "movieid", "rating", "timestamp")
USUAL = (
    ("user", "userid", "uid", "u", "reader", "reviewer", "reviewerid", "customer", "customerid"),
    ("item", "itemid", "iid", "i", "movie", "movieid", "film", "filmid", "book", "bookid", "isbn", "product", "productid", "asin"),
    ("rating", "ratings", "stars", "score", "value", "overall", "bookrating"),
)  # fmt: skip


class _Layout(NamedTuple):
    separator: bytes
    fields: int  # on every line
    columns: tuple[int, int, int]  # of user, item, rating
    quotes: bool  # CSV's rules: a field in double quotes may hold the separator
    whole: bool  # labels must be whole numbers, as MovieLens' are


class _Block(NamedTuple):
    user: np.ndarray  # int64, or text as objects
    item: np.ndarray
    rating: np.ndarray
    lines: range | np.ndarray  # of the file, from 1


def _read_text(
    stream: IO[bytes], table: _Table, wanted: tuple[Column | None, ...], format: str | None, duplicates: str
) -> Ratings:
    layout: _Layout | None = None
    blocks: list[_Block] = []
    line = 1
    for piece in _pieces(stream, table):
        if layout is None:
            body = piece.lstrip(b"\r\n")
            line += piece.count(b"\n") - body.count(b"\n")
            if not body:
                continue
            layout, header = _layout(body, table, wanted, format, line)
            piece = body[body.find(b"\n") + 1 :] if header else body
            line += header
        blocks.append(_fast_block(piece, layout, line) or _careful_block(piece, layout, line, table))
        line += piece.count(b"\n")
    if layout is None:
        raise DataError(f"{table} is empty.")
    if not sum(len(block.rating) for block in blocks):
        raise DataError(f"{table} holds a header and no ratings.")
    firsts = np.cumsum([0] + [len(block.rating) for block in blocks])

    def place(row: int) -> str:
        which = int(np.searchsorted(firsts, row, side="right")) - 1
        return f"{table}, line {blocks[which].lines[row - firsts[which]]}"

    users, user_ids = _compact([block.user for block in blocks])
    items, item_ids = _compact([block.item for block in blocks])
    values = np.concatenate([block.rating for block in blocks])
    return _checked((users, items), (user_ids, item_ids), values, duplicates, place)


def _pieces(stream: IO[bytes], table: _Table) -> Iterator[bytes]:
    """Blocks of whole lines, every line ending in a newline."""
    rest = b""
    first = True
    while chunk := stream.read(BLOCK):
        if first:
            if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{table} is UTF-16. Save it as UTF-8.")
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            first = False
        end = chunk.rfind(b"\n") + 1
        if not end and len(rest) + len(chunk) > LONGEST_LINE:
            raise DataError(f"{table} has a line of more than {LONGEST_LINE:,} bytes: it is not a table of ratings.")
        if end:
            yield rest + chunk[:end]
        rest = chunk[end:] if end else rest + chunk
    if rest:
        yield rest + b"\n"


def _layout(
    piece: bytes, table: _Table, wanted: tuple[Column | None, ...], format: str | None, line: int
) -> tuple[_Layout, bool]:
    """How the lines are built, from the first of them, and whether that is a header."""
    lines = [text for text in piece[:LONGEST_LINE].split(b"\n")[:20] if text.strip()]
    if not lines:
        raise DataError(f"{table}, line {line}: expected user, item and rating, and there are blanks only.")
    separator = SEPARATORS[format] if format else _guess_separator(lines)
    quotes = separator in (b",", b";", b"\t", b"|")
    names = _fields(lines[0], separator, quotes, table, line)
    if len(names) < 3:
        by = repr(separator.decode()) if format else "one of :: tab , ; | space"
        raise DataError(
            f"{table}, line {line}: expected at least three fields, user, item and rating, separated by {by}; got "
            f"{_shown(lines[0])}."
        )
    where = f"{table}, line {line}"
    by_name = any(isinstance(column, str) for column in wanted)
    rating = names[2] if by_name else names[_columns(None, len(names), wanted, where)[2]]
    header = by_name or not NUMBER.fullmatch(rating.strip())
    columns = _columns(names if header else None, len(names), wanted, where)
    whole = separator == b"::" or table.name == "u.data" or tuple(map(_fold, names)) == MOVIELENS_HEADER
    return _Layout(separator, len(names), columns, quotes, whole), header


def _guess_separator(lines: list[bytes]) -> bytes:
    """The first that cuts every line into equally many fields, three or more; or the first that cuts the first line so."""
    cuts = {separator: [text.count(separator) for text in lines] for separator in GUESSES}
    usable = [separator for separator in GUESSES if cuts[separator][0] >= 2]
    even = [separator for separator in usable if len(set(cuts[separator])) == 1]
    return (even or usable or [b","])[0]


def _columns(
    names: Sequence[str] | None, number: int, wanted: tuple[Column | None, ...], where: str
) -> tuple[int, int, int]:
    """Positions of user, item and rating."""
    found = []
    for kind, column, usual, position in zip(("user", "item", "rating"), wanted, USUAL, range(3), strict=True):
        if isinstance(column, int):
            if not 0 <= column < number:
                raise DataError(f"{where}: {kind}={column}, but there are {number} columns, 0 to {number - 1}.")
            found.append(column)
        elif names is None:
            found.append(position)
        else:
            folded = [_fold(name) for name in names]
            hits = [name.strip() == column for name in names] if column else [name in usual for name in folded]
            if sum(hits) != 1:
                listing = ", ".join(repr(name) for name in names[:20])
                what = f"no column {column!r}" if column else f"which column is the {kind} is not clear"
                raise DataError(
                    f"{where}: {what}. The columns are {listing}. Say it by `{kind}=`, a name or a position from 0. "
                    "(A first line whose rating is not a number is taken for a header.)"
                )
            found.append(hits.index(True))
    if len(set(found)) < 3:
        raise DataError(f"{where}: user, item and rating are columns {found}: three different ones are needed.")
    return (found[0], found[1], found[2])


def _fold(name: str) -> str:
    """userId, user_id, "User ID" and user_id:token (RecBole's way) are one name."""
    return re.sub(r"[\s_\-\"]", "", name.split(":")[0]).lower()


def _fast_block(piece: bytes, layout: _Layout, line: int) -> _Block | None:
    """A block of plain lines, parsed as a whole; None where anything is out of the ordinary."""
    if not piece.isascii() or b"\0" in piece or (layout.quotes and b'"' in piece):
        return None
    separator = layout.separator
    if b"\r" in piece:
        piece = piece.replace(b"\r\n", b"\n")
    if len(separator) > 1:
        if b"\t" in piece:
            return None
        piece, separator = piece.replace(separator, b"\t"), b"\t"
    piece = piece.rstrip(b"\n") + b"\n"
    characters = np.frombuffer(piece, np.uint8)
    flat = np.flatnonzero((characters == separator[0]) | (characters == ord("\n")))
    if flat.size % layout.fields:
        return None
    marks = flat.reshape(-1, layout.fields)
    ends_of_line = characters[marks] == ord("\n")
    if ends_of_line[:, :-1].any() or not ends_of_line[:, -1].all():
        return None
    starts = np.concatenate([[0], flat[:-1] + 1]).reshape(marks.shape)
    user, item, rating = (
        parse(characters, starts[:, column], marks[:, column])
        for parse, column in zip((_whole_numbers, _whole_numbers, _decimals), layout.columns, strict=True)
    )
    if user is None or item is None or rating is None:
        return None
    return _Block(user, item, rating, range(line, line + len(rating)))


def _whole_numbers(characters: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray | None:
    """Digits to int64; None where a field is not a whole number as `str` writes it."""
    width = stop - start
    if width.min() < 1 or width.max() > 18 or ((characters[start] == ord("0")) & (width > 1)).any():
        return None
    value = np.zeros(len(start), np.int64)
    for place in range(width.max()):
        digit = characters.take(start + place, mode="clip") - np.uint8(ord("0"))
        inside = place < width
        if (inside & (digit > 9)).any():
            return None
        value = np.where(inside, 10 * value + digit, value)
    return value


def _decimals(characters: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray | None:
    """Digits with at most one point to float32, rounded as `float` does; None where a field is anything else."""
    width = stop - start
    if width.min() < 1 or width.max() > 15:
        return None
    value = np.zeros(len(start), np.int64)
    after = np.zeros(len(start), np.int64)  # digits after the point
    pointed = np.zeros(len(start), bool)
    for place in range(width.max()):
        character = characters.take(start + place, mode="clip")
        digit = character - np.uint8(ord("0"))
        inside = place < width
        point = inside & (character == ord("."))
        moved = inside & (digit <= 9)
        if (inside & ~point & ~moved).any() or (point & pointed).any():
            return None
        pointed |= point
        value = np.where(moved, 10 * value + digit, value)
        after += moved & pointed
    if (width - pointed).min() < 1:
        return None
    return (value / 10.0**after).astype(np.float32)


def _careful_block(piece: bytes, layout: _Layout, line: int, table: _Table) -> _Block:
    """The same line by line; the first thing that is wrong is an error with its line."""
    users: list[str] = []
    items: list[str] = []
    ratings: list[float] = []
    lines: list[int] = []
    shared: dict[str, str] = {}  # one object a label, however often it is seen
    for number, raw in enumerate(piece.split(b"\n"), line):
        if not raw.strip():
            continue
        fields = _fields(raw, layout.separator, layout.quotes, table, number)
        if len(fields) != layout.fields:
            raise DataError(
                f"{table}, line {number}: {len(fields)} fields where {layout.fields} are expected, separated by "
                f"{layout.separator.decode()!r}: {_shown(raw)}."
            )
        user, item, rating = (fields[column].strip() for column in layout.columns)
        for kind, label in (("user", user), ("item", item)):
            if not label:
                raise DataError(f"{table}, line {number}: no {kind}: {_shown(raw)}.")
            if len(label) > LONGEST_LABEL:
                raise DataError(f"{table}, line {number}: a {kind} of {len(label):,} characters: {_shown(raw)}.")
            if layout.whole and not (label.isascii() and label.isdigit() and int(label) < 2**63):
                raise DataError(
                    f"{table}, line {number}: the {kind} {label[:40]!r} is not a whole number: {_shown(raw)}."
                )
        users.append(shared.setdefault(user, user))
        items.append(shared.setdefault(item, item))
        ratings.append(_rating(rating, raw, table, number))
        lines.append(number)
    with np.errstate(over="ignore"):  # beyond float32 is infinity, refused with the others
        values = np.array(ratings, np.float32)
    if layout.whole:
        return _Block(np.array(users, np.int64), np.array(items, np.int64), values, np.array(lines))
    return _Block(_labels(users), _labels(items), values, np.array(lines))


def _fields(raw: bytes, separator: bytes, quotes: bool, table: _Table, number: int) -> list[str]:
    try:
        text = raw.rstrip(b"\r").decode()
    except UnicodeDecodeError:
        raise DataError(f"{table}, line {number} is not UTF-8: {_shown(raw)}. Save the file as UTF-8.") from None
    if "\0" in text:
        raise DataError(f"{table}, line {number} holds a zero byte: this is not a text file.")
    if not (quotes and '"' in text):
        return text.split(separator.decode())
    try:
        return next(csv.reader([text], delimiter=separator.decode(), strict=True))
    except csv.Error as error:
        raise DataError(
            f"{table}, line {number}: {error}: {_shown(raw)}. A field in quotes must close on its own line."
        ) from None


def _rating(text: str, raw: bytes, table: _Table, number: int) -> float:
    if NUMBER.fullmatch(text):
        return float(text)
    missing = text.lower() in ("", "na", "n/a", "nan", "null", "none", "?")
    what = "no rating" if missing else f"the rating {text[:40]!r} is not a number"
    raise DataError(f"{table}, line {number}: {what}: {_shown(raw)}.")


def _shown(raw: bytes) -> str:
    return repr(raw[:80].decode(errors="replace").rstrip("\r"))


def _labels(texts: list[str]) -> np.ndarray:
    """int64 when every label is a whole number as `str` writes it, else text: 007 and 7 are two labels."""
    try:
        numbers = np.array([int(text) for text in texts], np.int64)
        if all(map(str.__eq__, map(str, numbers.tolist()), texts)):
            return numbers
    except (ValueError, OverflowError):
        pass
    return np.array(texts, object)


# -- tables in memory ---------------------------------------------------------------------------------------------


def _from_frame(frame: Any, wanted: tuple[Column | None, ...], duplicates: str) -> Ratings:
    keys = list(getattr(frame, "column_names", frame.columns))
    names = [str(key) for key in keys]
    positions = _columns(names, len(names), wanted, "the data frame")
    columns = [np.asarray(frame[keys[position]]) for position in positions]
    return _from_tables(columns, duplicates, "the data frame")


def _read_parquet(table: _Table, wanted: tuple[Column | None, ...], duplicates: str) -> Ratings:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet files need pyarrow: pip install "inbounds[parquet]"') from error
    damage = (pyarrow.ArrowException, OSError, UnicodeDecodeError, KeyError)
    with table.open() as stream:
        try:
            file = pyarrow.parquet.ParquetFile(pyarrow.py_buffer(stream.read()) if table.member else table.path)
            names = file.schema_arrow.names
            chosen = [names[position] for position in _columns(names, len(names), wanted, str(table))]
            content = file.read(columns=chosen)
            nulls = {name: content[name].null_count for name in chosen}
            columns = [content[name].to_numpy() for name in chosen]
        except damage as error:
            raise DataError(f"{table} is not a readable Parquet file ({error}).") from error
    for kind, name in zip(("user", "item", "rating"), chosen, strict=True):
        if nulls[name]:
            raise DataError(f"{table}: {nulls[name]:,} rows have no {kind} (column {name!r}).")
    return _from_tables(columns, duplicates, str(table))


def _from_tables(columns: Sequence[np.ndarray], duplicates: str, where: str) -> Ratings:
    """From three arrays of equal length."""
    user, item, rating = columns
    if not len(rating):
        raise DataError(f"{where} has no ratings.")
    try:
        values = rating.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: the ratings are not numbers ({error}).") from error
    (users, user_ids), (items, item_ids) = (
        _compact([_as_labels(labels, kind, where)]) for kind, labels in (("user", user), ("item", item))
    )
    return _checked((users, items), (user_ids, item_ids), values, duplicates, lambda row: f"{where}, row {row}")


def _as_labels(labels: np.ndarray, kind: str, where: str) -> np.ndarray:
    if labels.dtype.kind in "iu" and (labels.dtype != np.uint64 or labels.max() < 2**63):
        return labels.astype(np.int64)
    if labels.dtype.kind == "f":  # what pandas makes of whole numbers beside a missing one
        broken = np.flatnonzero(~np.isfinite(labels) | (labels != np.round(labels)) | (np.abs(labels) >= 2**53))
        if broken.size:
            raise DataError(
                f"{where}, row {broken[0]}: {labels[broken[0]]} is no {kind}; labels are whole numbers or text."
            )
        return labels.astype(np.int64)
    texts = labels.tolist()
    for row, label in enumerate(texts):
        if label is None or label != label or label == "":
            raise DataError(f"{where}, row {row}: no {kind}.")
        if len(str(label)) > LONGEST_LABEL:
            raise DataError(f"{where}, row {row}: a {kind} of {len(str(label)):,} characters.")
    return _labels([str(label) for label in texts])


# -- from labels to numbers ---------------------------------------------------------------------------------------


def _compact(blocks: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers from 0 in the order of the labels, and the labels. One label that is text makes them all text."""
    if all(block.dtype == np.int64 for block in blocks):
        labels = np.concatenate(blocks)
        low, high = int(labels.min()), int(labels.max())
        if high - low > 4 * labels.size + (1 << 20):  # too thinly spread for a table of all that lies between
            ids, codes = np.unique(labels, return_inverse=True)
            return codes.astype(np.int32), ids
        labels -= low
        seen = np.zeros(high - low + 1, bool)
        seen[labels] = True
        return (np.cumsum(seen, dtype=np.int32) - 1)[labels], np.flatnonzero(seen) + low
    texts = [text for block in blocks for text in (map(str, block.tolist()) if block.dtype == np.int64 else block)]
    ordered = sorted(set(texts))
    number = {text: code for code, text in enumerate(ordered)}
    return np.fromiter((number[text] for text in texts), np.int32, len(texts)), np.array(ordered)


def _checked(
    codes: tuple[np.ndarray, np.ndarray],
    labels: Sequence[np.ndarray],
    values: np.ndarray,
    duplicates: str,
    place: Callable[[int], str],
) -> Ratings:
    """The one gate to `Ratings`: values that can be ratings, and one rating a pair. `place` says where a row came from."""
    if duplicates not in DUPLICATES:
        raise ValueError(f"Unknown duplicates={duplicates!r}. Known: {', '.join(DUPLICATES)}.")
    if not values.size:
        raise DataError("There are no ratings.")
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    broken = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if broken.size:
        raise DataError(
            f"{place(int(broken[0]))}: a rating must be a finite number that is not negative; got {values[broken[0]]:g} "
            f"({broken.size:,} such in all)."
        )
    users, items = codes
    key = users.astype(np.int64) * len(labels[1]) + items
    ordered = np.sort(key)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        if duplicates == "error":
            order = np.argsort(key, kind="stable")
            again = order[1:][ordered[1:] == ordered[:-1]].min()
            before = int(np.flatnonzero(key == key[again])[0])
            raise DataError(
                f"{place(int(again))}: user {labels[0][users[again]]} has rated item {labels[1][items[again]]} before, in "
                f"{place(before).split(', ')[-1]} ({repeated.size:,} such in all). duplicates='last' keeps the last "
                "rating, 'mean' their mean."
            )
        rows, values = _settle(key, values, duplicates)
        users, items = users[rows], items[rows]
    for name, size, other in (("user", len(labels[0]), len(values)), ("item", len(labels[1]), len(values))):
        if size == 1 and other > 1:
            warnings.warn(f"All {other:,} ratings have one {name}: is `{name}=` the right column?", stacklevel=4)
    return Ratings(users, items, values, labels[0], labels[1])


def _settle(key: np.ndarray, values: np.ndarray, duplicates: str) -> tuple[np.ndarray, np.ndarray]:
    """One row a pair, in the order of the file: the last rating, or the mean of them all."""
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    counts = np.diff(starts, append=key.size)
    rows = order[starts + counts - 1]
    chosen = values[rows]
    if duplicates == "mean":
        chosen = (np.add.reduceat(values[order].astype(np.float64), starts) / counts).astype(np.float32)
    file_order = np.argsort(rows)
    return rows[file_order], chosen[file_order]


__all__ = ["DUPLICATES", "Ratings", "RatingsSplit", "load_ratings", "write_dat"]
