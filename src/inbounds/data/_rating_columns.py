"""The columns of a table of ratings: which they are, and numbers from 0 in the place of their labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from inbounds.data._rating_files import Table
from inbounds.data.catalog import DataError

__all__ = [
    "LONGEST_LABEL",
    "Column",
    "Columns",
    "compact",
    "fold",
    "from_columns",
    "from_frame",
    "labels_of",
    "positions",
    "read_parquet",
]

Column = str | int
LONGEST_LABEL = 250  # characters
USUAL = (
    ("user", "userid", "uid", "u", "reader", "reviewer", "reviewerid", "customer", "customerid"),
    ("item", "itemid", "iid", "i", "movie", "movieid", "film", "filmid", "book", "bookid", "isbn", "product", "productid", "asin"),
    ("rating", "ratings", "stars", "score", "value", "overall", "bookrating"),
)  # fmt: skip


class Columns(NamedTuple):
    """What was read, before anybody has looked at the values."""

    codes: tuple[np.ndarray, np.ndarray]  # of users and of items
    labels: tuple[np.ndarray, np.ndarray]  # that the codes stand for
    values: np.ndarray
    place: Callable[[int], str]  # where a row came from


def positions(
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
            folded = [fold(name) for name in names]
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


def fold(name: str) -> str:
    """userId, user_id, "User ID" and user_id:token (RecBole's way) are one name."""
    return re.sub(r"[\s_\-\"]", "", name.split(":")[0]).lower()


def from_frame(frame: Any, wanted: tuple[Column | None, ...]) -> Columns:
    """Of a data frame."""
    keys = list(getattr(frame, "column_names", frame.columns))
    names = [str(key) for key in keys]
    chosen = positions(names, len(names), wanted, "the data frame")
    columns = [np.asarray(frame[keys[position]]) for position in chosen]
    return from_columns(columns, "the data frame")


def read_parquet(table: Table, wanted: tuple[Column | None, ...]) -> Columns:
    """Of a Parquet file."""
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
            chosen = [names[position] for position in positions(names, len(names), wanted, str(table))]
            content = file.read(columns=chosen)
            nulls = {name: content[name].null_count for name in chosen}
            columns = [content[name].to_numpy() for name in chosen]
        except damage as error:
            raise DataError(f"{table} is not a readable Parquet file ({error}).") from error
    for kind, name in zip(("user", "item", "rating"), chosen, strict=True):
        if nulls[name]:
            raise DataError(f"{table}: {nulls[name]:,} rows have no {kind} (column {name!r}).")
    return from_columns(columns, str(table))


def from_columns(columns: Sequence[np.ndarray], where: str) -> Columns:
    """From three arrays of equal length."""
    user, item, rating = columns
    if not len(rating):
        raise DataError(f"{where} has no ratings.")
    try:
        values = rating.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: the ratings are not numbers ({error}).") from error
    (users, user_ids), (items, item_ids) = (
        compact([_as_labels(labels, kind, where)]) for kind, labels in (("user", user), ("item", item))
    )
    return Columns((users, items), (user_ids, item_ids), values, lambda row: f"{where}, row {row}")


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
    return labels_of([str(label) for label in texts])


def labels_of(texts: list[str]) -> np.ndarray:
    """int64 when every label is a whole number as `str` writes it, else text: 007 and 7 are two labels."""
    try:
        numbers = np.array([int(text) for text in texts], np.int64)
        if all(map(str.__eq__, map(str, numbers.tolist()), texts)):
            return numbers
    except (ValueError, OverflowError):
        pass
    return np.array(texts, object)


def compact(blocks: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
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
