"""Ratings: who gave which thing how many stars, from MovieLens' files, from any table, or from a sparse matrix.

ratings = ib.data.load_ratings("ml-10m.zip")                    # or a folder, .dat, .data, .csv, .csv.gz, .parquet
ratings = ib.data.load_ratings("mine.csv", user="reader", item="isbn", rating="stars")
train, validation, test = ratings.split(seed=0)
"""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from inbounds.data._rating_columns import Column, Columns, from_columns, from_frame, read_parquet
from inbounds.data._rating_files import locate
from inbounds.data._rating_text import SEPARATORS, read_text
from inbounds.data.catalog import DataError

__all__ = ["DUPLICATES", "Ratings", "RatingsSplit", "load_ratings", "write_dat"]

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
        """How many users there are, with ratings or without."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """How many items there are, with ratings or without."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.rating)

    def __repr__(self) -> str:
        return f"Ratings({len(self):,} of {self.num_users:,} users on {self.num_items:,} items)"

    def select(self, rows: np.ndarray) -> Ratings:
        """Some of the ratings, over the same users and items.

        Args:
            rows: indices or a mask.

        Returns:
            A table of these rows, with the labels of all.
        """
        return Ratings(self.user[rows], self.item[rows], self.rating[rows], self.user_ids, self.item_ids)

    def split(self, fractions: tuple[float, float, float] = (0.75, 0.125, 0.125), seed: int = 0) -> RatingsSplit:
        """Shuffle the ratings and cut them, 75 : 12.5 : 12.5 by default; every part keeps all users and items.

        Args:
            fractions: the shares of the training, validation and test part.
            seed: of the shuffle.

        Returns:
            The three parts by name: `train`, `validation`, `test`.

        Raises:
            ValueError: the shares do not sum to 1, or a part would be empty.
        """
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

        Args:
            matrix: numbers, users by items.
            duplicates: what to do with an entry that is stored twice: "error", "mean" or "last".

        Returns:
            The table of the stored entries.

        Raises:
            DataError: what is given is no such matrix, or its numbers are no ratings.
        """
        if not scipy.sparse.issparse(matrix) or matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise DataError(f"Expected a scipy.sparse matrix of numbers, users by items; got {matrix!r}.")
        if max(matrix.shape) >= 2**31:
            raise DataError(
                f"A matrix of {matrix.shape} has more users or items than 32 bits can number. Drop empty ones."
            )
        entries = matrix.tocoo()
        labels = (np.arange(matrix.shape[0]), np.arange(matrix.shape[1]))
        codes = (entries.row.astype(np.int32), entries.col.astype(np.int32))
        found = Columns(codes, labels, np.asarray(entries.data), lambda row: f"the matrix, entry {row}")
        return _checked(found, duplicates)

    @classmethod
    def from_columns(cls, user: Any, item: Any, rating: Any, duplicates: str = "error") -> Ratings:
        """From three columns of equal length; labels may be whole numbers or text.

        Args:
            user, item: labels.
            rating: numbers that are not negative.
            duplicates: what to do with a pair that is there twice: "error", "mean" or "last".

        Returns:
            The table, with the labels as `user_ids` and `item_ids`.

        Raises:
            DataError: the columns do not fit each other, or hold what is no rating.
        """
        columns = [np.asarray(column) for column in (user, item, rating)]
        if any(column.ndim != 1 for column in columns) or len({len(column) for column in columns}) != 1:
            raise DataError(
                f"Expected three columns of equal length; got shapes {', '.join(str(c.shape) for c in columns)}."
            )
        return _checked(from_columns(columns, "the table"), duplicates)

    def describe(self) -> dict[str, Any]:
        """Counts, mean and sd, the histogram of ratings, and quantiles of ratings per user and per item."""
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
        return _checked(from_frame(source, wanted), duplicates)
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            f"Expected a path, a scipy.sparse matrix or a data frame; got {type(source).__name__}. Three arrays go through "
            "`Ratings.from_columns`."
        )
    found = locate(Path(source).expanduser())
    if format == "parquet" or (format is None and found.name.endswith(".parquet")):
        return _checked(read_parquet(found, wanted), duplicates)
    with found.open() as stream:
        columns = read_text(stream, found, wanted, format)
    return _checked(columns, duplicates)


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


def _checked(columns: Columns, duplicates: str) -> Ratings:
    """The one gate to `Ratings`: values that can be ratings, and one rating per pair."""
    (users, items), labels, values, place = columns
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
            warnings.warn(f"All {other:,} ratings have one {name}: is `{name}=` the right column?", stacklevel=3)
    return Ratings(users, items, values, labels[0], labels[1])


def _settle(key: np.ndarray, values: np.ndarray, duplicates: str) -> tuple[np.ndarray, np.ndarray]:
    """One row per pair, in the order of the file: the last rating, or the mean of them all."""
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    counts = np.diff(starts, append=key.size)
    rows = order[starts + counts - 1]
    chosen = values[rows]
    if duplicates == "mean":
        chosen = (np.add.reduceat(values[order].astype(np.float64), starts) / counts).astype(np.float32)
    file_order = np.argsort(rows)
    return rows[file_order], chosen[file_order]
