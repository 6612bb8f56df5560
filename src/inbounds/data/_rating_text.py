"""Tables of ratings as text, read in blocks.

A block of plain numbers, the rule, is parsed by NumPy as a whole. A block with anything else in it is read again line by line, which
understands quotes, blank lines and text labels, and names the line that is wrong. Both give the same answer where both can
(`tests/data/test_ratings.py`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from inbounds.data._rating_columns import LONGEST_LABEL, Column, Columns, compact, fold, labels_of, positions
from inbounds.data._rating_files import Table
from inbounds.data.catalog import DataError

__all__ = ["SEPARATORS", "read_text"]

SEPARATORS = {"csv": b",", "tsv": b"\t", "dat": b"::"}
GUESSES = (b"::", b"\t", b",", b";", b"|", b" ")
BLOCK = 1 << 24  # bytes parsed at a time
LONGEST_LINE = 1 << 20  # without an end of line for so long, a file is not a table
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
MOVIELENS_HEADER = ("userid", "movieid", "rating", "timestamp")


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


def read_text(stream: IO[bytes], table: Table, wanted: tuple[Column | None, ...], format: str | None) -> Columns:
    """The columns of a text table."""
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

    users, user_ids = compact([block.user for block in blocks])
    items, item_ids = compact([block.item for block in blocks])
    values = np.concatenate([block.rating for block in blocks])
    return Columns((users, items), (user_ids, item_ids), values, place)


def _pieces(stream: IO[bytes], table: Table) -> Iterator[bytes]:
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
    piece: bytes, table: Table, wanted: tuple[Column | None, ...], format: str | None, line: int
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
    rating = names[2] if by_name else names[positions(None, len(names), wanted, where)[2]]
    header = by_name or not NUMBER.fullmatch(rating.strip())
    columns = positions(names if header else None, len(names), wanted, where)
    whole = separator == b"::" or table.name == "u.data" or tuple(map(fold, names)) == MOVIELENS_HEADER
    return _Layout(separator, len(names), columns, quotes, whole), header


def _guess_separator(lines: list[bytes]) -> bytes:
    """The first that cuts every line into equally many fields, three or more; or the first that cuts the first line so."""
    cuts = {separator: [text.count(separator) for text in lines] for separator in GUESSES}
    usable = [separator for separator in GUESSES if cuts[separator][0] >= 2]
    even = [separator for separator in usable if len(set(cuts[separator])) == 1]
    return (even or usable or [b","])[0]


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


def _careful_block(piece: bytes, layout: _Layout, line: int, table: Table) -> _Block:
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
    return _Block(labels_of(users), labels_of(items), values, np.array(lines))


def _fields(raw: bytes, separator: bytes, quotes: bool, table: Table, number: int) -> list[str]:
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


def _rating(text: str, raw: bytes, table: Table, number: int) -> float:
    if NUMBER.fullmatch(text):
        return float(text)
    missing = text.lower() in ("", "na", "n/a", "nan", "null", "none", "?")
    what = "no rating" if missing else f"the rating {text[:40]!r} is not a number"
    raise DataError(f"{table}, line {number}: {what}: {_shown(raw)}.")


def _shown(raw: bytes) -> str:
    return repr(raw[:80].decode(errors="replace").rstrip("\r"))
