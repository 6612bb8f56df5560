"""Ratings that the library draws, of MovieLens' shape: scale and speed are tested without the data.

    ratings = ib.data.generate_ratings()                                          # MovieLens 10M's shape
    ratings = ib.data.generate_ratings(**ib.data.MOVIELENS_SHAPES["1m"], seed=0)          # MovieLens 1M's: whole stars

How it is made, and why so:

- Ratings a user: 20 and a Weibull excess. Attraction of an item: log-normal, with a ceiling so that no film is seen by everyone;
  a user's items are drawn by it without replacement, which makes busy users reach further into the tail, as they do.
- A score: user offset + item offset + a low-rank term whose components get weaker like 1/r, + noise whose size differs by user.
  Popular items are liked a little more.
- Stars: the score cut at the quantiles that give the published histogram. Of MovieLens 10M's users some rated before half
  stars existed, so each user gives whole stars only or uses both.

MovieLens 1M beside what is drawn for its shape, and the published figures of 10M beside its: `docs/ratings.md`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inbounds.data.ratings import Ratings

FEWEST = 20  # ratings per user, in every MovieLens release
MOST = 0.65  # of the items, rated by one user
# Shares of 0.5, 1, ..., 5 stars: from users of whole stars, and from users of half stars. Mixed 59 : 41 they are MovieLens 10M's
# (counts as published for the 90% of it that a well-known course uses: 85,374 345,679 106,426 711,422 333,010 2,121,240
# 791,624 2,588,430 526,736 1,390,114).
HALF_STARS = np.array([0.023, 0.022, 0.029, 0.050, 0.090, 0.128, 0.215, 0.200, 0.143, 0.100])
TEN_MILLION = np.array([85374, 345679, 106426, 711422, 333010, 2121240, 791624, 2588430, 526736, 1390114]) / 9000055
HALF_STAR_SHARE = 0.41
WHOLE_STARS = np.where(np.arange(10) % 2, TEN_MILLION - HALF_STAR_SHARE * HALF_STARS, 0.0)
ONE_MILLION = np.array([0, 0.0562, 0, 0.1075, 0, 0.2611, 0, 0.3489, 0, 0.2263])

MOVIELENS_SHAPES: dict[str, dict[str, Any]] = {
    "10m": {"num_users": 71_567, "num_items": 10_681, "num_ratings": 10_000_054},
    "1m": {
        "num_users": 6_040, "num_items": 3_706, "num_ratings": 1_000_209,
        "half_stars": False, "user_tail": 0.77, "item_tail": 1.8,
    },
    "100k": {
        "num_users": 943, "num_items": 1_682, "num_ratings": 100_000,
        "half_stars": False, "user_tail": 0.77, "item_tail": 1.8,
    },
}  # fmt: skip


def generate_ratings(
    num_users: int = 71_567,
    num_items: int = 10_681,
    num_ratings: int = 10_000_054,
    *,
    rank: int = 30,
    half_stars: bool = True,
    user_tail: float = 0.64,
    item_tail: float = 2.1,
    noise: float = 0.6,
    seed: int = 0,
) -> Ratings:
    """Ratings with MovieLens' tails, histogram and structure, sorted by user and item; every user and item has some.

    Args:
        num_users, num_items, num_ratings: the shape; at least 20 ratings per user where there are as many.
        rank: of the part that is neither user nor item offset.
        half_stars: 0.5 to 5 with MovieLens 10M's histogram, or 1 to 5 with 1M's.
        user_tail: shape of the Weibull law of ratings per user; smaller is a heavier tail.
        item_tail: sd of the logarithm of an item's attraction; larger is a heavier tail.
        noise: sd of what no model can explain, where the score has sd 1.
        seed: the same seed gives the same ratings.

    Returns:
        The ratings.

    Raises:
        ValueError: the numbers do not fit one another.

    Example:
        >>> ratings = ib.data.generate_ratings(50, 20, 400)
        >>> len(ratings), ratings.num_users, ratings.num_items
        (400, 50, 20)
    """
    for name, value in (
        ("num_users", num_users),
        ("num_items", num_items),
        ("num_ratings", num_ratings),
        ("rank", rank),
    ):
        if int(value) != value or value < 1:
            raise ValueError(f"`{name}` must be a positive whole number; got {value!r}.")
    if not max(num_users, num_items) <= num_ratings <= num_users * num_items:
        raise ValueError(
            f"{num_ratings:,} ratings do not fit {num_users:,} users and {num_items:,} items: every user and item needs one, "
            "and no pair has two."
        )
    if not 0 <= noise < 1:
        raise ValueError(f"`noise` must be from 0 to below 1; got {noise}.")
    generator = np.random.default_rng(seed)
    degrees = _degrees(generator, num_users, num_items, num_ratings, user_tail)
    attraction = np.exp(item_tail * generator.standard_normal(num_items))
    # An item with more than a typical user's share of one is seen by nearly everyone; a ceiling keeps it to about half.
    attraction /= 1 + attraction * (num_ratings / num_users) / attraction.sum()
    user, item = _pairs(generator, degrees, attraction / attraction.sum())
    score = _scores(generator, user, item, np.log(attraction), num_users, rank, noise)
    rating = _stars(generator, score, user, num_users, half_stars)
    return Ratings(user, item, rating, np.arange(1, num_users + 1), np.arange(1, num_items + 1))


def _degrees(
    generator: np.random.Generator, num_users: int, num_items: int, num_ratings: int, tail: float
) -> np.ndarray:
    """Ratings a user: a floor, a Weibull excess, a ceiling, and the exact sum."""
    floor = min(FEWEST, num_ratings // num_users)
    ceiling = max(int(MOST * num_items), min(num_items, math.ceil(num_ratings / num_users)))
    excess = generator.weibull(tail, num_users)
    low, high = 0.0, 1.0
    while np.minimum(floor + high * excess, ceiling).sum() < num_ratings and high < 1e12:
        high *= 2
    for _ in range(60):  # the scale at which the sum is right, ceiling included
        middle = (low + high) / 2
        low, high = (
            (low, middle) if np.minimum(floor + middle * excess, ceiling).sum() > num_ratings else (middle, high)
        )
    degrees = np.minimum(floor + low * excess, ceiling).astype(np.int64)
    while short := num_ratings - degrees.sum():
        able = np.flatnonzero(degrees < ceiling)
        degrees[generator.choice(able, min(int(short), able.size), replace=False)] += 1
    return degrees


def _pairs(generator: np.random.Generator, degrees: np.ndarray, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each user as many different items as it rates, drawn by chance without replacement; every item at least once."""
    num_items, cumulative = chance.size, np.cumsum(chance)
    hosts = generator.permutation(np.repeat(np.arange(degrees.size), degrees))[
        :num_items
    ]  # who rates each item for sure
    users, items = [], []
    rows_at_once = max(1, (1 << 26) // num_items)  # a table of who has rated what, for some users at a time
    for first in range(0, degrees.size, rows_at_once):
        wanted = degrees[first : first + rows_at_once]
        rated = np.zeros((wanted.size, num_items), bool)
        sure = np.flatnonzero((hosts >= first) & (hosts < first + wanted.size))
        rated[hosts[sure] - first, sure] = True
        open_rows, missing = np.arange(wanted.size), wanted - np.bincount(hosts[sure] - first, minlength=wanted.size)
        for _ in range(12):  # draw, and draw again what was drawn twice
            rows = np.repeat(open_rows, missing)
            drawn = np.searchsorted(cumulative, generator.random(rows.size) * cumulative[-1], side="right")
            rated[rows, np.minimum(drawn, num_items - 1)] = True
            missing = wanted[open_rows] - np.count_nonzero(rated[open_rows], axis=1)
            open_rows, missing = open_rows[missing > 0], missing[missing > 0]
        # Busy users have the popular items already. Exponential clocks, the fastest first, draw the rest at once.
        for row, number in zip(open_rows, missing, strict=True):
            left = np.flatnonzero(~rated[row])
            arrival = generator.standard_exponential(left.size) / chance[left]
            rated[row, left[np.argpartition(arrival, number - 1)[:number]]] = True
        user, item = np.divmod(np.flatnonzero(rated), num_items)
        users.append((user + first).astype(np.int32))
        items.append(item.astype(np.int32))
    return np.concatenate(users), np.concatenate(items)


def _scores(
    generator: np.random.Generator,
    user: np.ndarray,
    item: np.ndarray,
    popularity: np.ndarray,
    num_users: int,
    rank: int,
    noise: float,
) -> np.ndarray:
    """Scores of variance about 1, offsets : low rank in MovieLens' proportion."""
    num_items = popularity.size
    structure = 1 - noise**2
    liked = 0.3 * (popularity - popularity.mean()) / max(popularity.std(), 1e-9) + 0.95 * generator.standard_normal(
        num_items
    )
    user_offset = math.sqrt(0.21 * structure) * generator.standard_normal(num_users)
    item_offset = math.sqrt(0.43 * structure) * liked
    weight = np.sqrt(1 / np.arange(1, rank + 1))
    weight *= math.sqrt(0.36 * structure) / np.linalg.norm(weight)
    left = (generator.standard_normal((num_users, rank)) * weight).astype(np.float32)
    right = generator.standard_normal((num_items, rank)).astype(np.float32)
    spread = noise * np.exp(0.28 * generator.standard_normal(num_users))  # some people are more capricious than others
    score = np.empty(user.size, np.float32)
    for start in range(0, user.size, 1 << 17):
        u, i = user[start : start + (1 << 17)], item[start : start + (1 << 17)]
        low_rank = np.einsum("nr,nr->n", left[u], right[i])
        score[start : start + (1 << 17)] = (
            user_offset[u] + item_offset[i] + low_rank + spread[u] * generator.standard_normal(u.size)
        )
    return score


def _stars(
    generator: np.random.Generator, score: np.ndarray, user: np.ndarray, num_users: int, half_stars: bool
) -> np.ndarray:
    """Scores cut where the histogram wants it."""
    sample = score[:: max(1, score.size // 1_000_000)]

    def cut(histogram: np.ndarray, values: np.ndarray) -> np.ndarray:
        shares = np.cumsum(histogram / histogram.sum())[:-1]
        return (np.searchsorted(np.quantile(sample, shares), values, side="right") + 1).astype(np.float32) / 2

    if not half_stars:
        return cut(ONE_MILLION, score)
    uses_halves = (generator.random(num_users) < HALF_STAR_SHARE)[user]
    rating = np.empty(score.size, np.float32)
    for histogram, rows in ((HALF_STARS, uses_halves), (WHOLE_STARS, ~uses_halves)):
        rating[rows] = cut(histogram, score[rows])
    return rating


__all__ = ["MOVIELENS_SHAPES", "generate_ratings"]
