"""Groups of unequal size as one table: each record has as many groups of each size as any other.

Groups are sorted into buckets by size and padded within a bucket. A record has a fixed number of groups of every bucket, so that all
records have one shape and a minibatch of records, drawn uniformly, is a stratified sample of groups: unbiased, with no weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Bucket", "records_of"]

WASTE = 1.25  # rows with padding over rows
MOST_BUCKETS = 6  # each is compiled for itself
MOST_SIZES = 256  # that are told apart
ABSENT = -1  # rows of a place in a record that has no group


class Bucket(NamedTuple):
    """The groups of about one size; a tree of arrays whose first axes are (record, place).

    Attributes:
        group: which group it is.
        count: how many rows it has; -1 where the place is empty.
        groups: arguments of the model with one entry per group.
        rows: arguments of the model with one entry per row, padded: third axis.
    """

    group: Any
    count: Any
    groups: dict[str, Any]
    rows: dict[str, Any]


def records_of(
    index: np.ndarray | None, size: int, of_groups: dict[str, np.ndarray], of_rows: dict[str, np.ndarray], seed: int = 0
) -> tuple[Bucket, ...]:
    """The data by record.

    Args:
        index: the group of each row; None where there are no rows apart from the groups.
        size: number of groups.
        of_groups: arrays with one entry per group.
        of_rows: arrays with one entry per row.
        seed: of the order of the groups.

    Returns:
        Buckets with the same number of records.
    """
    counts = np.zeros(size, np.int64) if index is None else np.bincount(index, minlength=size)
    order = None if index is None else np.argsort(index, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    members, widths = _buckets(counts, np.random.default_rng(seed))
    records = _number_of_records([len(m) for m in members], widths)
    made = []
    for groups, width in zip(members, widths, strict=True):
        places = -(-len(groups) // records)
        chosen = np.concatenate([groups, np.full(records * places - len(groups), groups[0])])
        count = np.where(np.arange(len(chosen)) < len(groups), counts[chosen], ABSENT)
        # Empty places are spread over the records, and not all in the last ones.
        chosen, count = (x.reshape(places, records).T for x in (chosen, count))
        rows: dict[str, np.ndarray] = {}
        if order is not None and len(order):
            within = np.minimum(np.arange(width), np.maximum(counts[chosen] - 1, 0)[..., None])
            which = order[np.minimum(starts[chosen][..., None] + within, len(order) - 1)]
            rows = {name: np.asarray(array)[which] for name, array in of_rows.items()}
        held = {name: np.asarray(array)[chosen] for name, array in of_groups.items()}
        made.append(Bucket(chosen.astype(np.int32), count.astype(np.int32), held, rows))
    return tuple(made)


def _buckets(counts: np.ndarray, generator: np.random.Generator) -> tuple[list[np.ndarray], list[int]]:
    """(groups of each bucket in random order, rows that each has at most)."""
    edges = _edges(counts)
    bucket = np.searchsorted(edges, counts)
    members = [generator.permutation(np.flatnonzero(bucket == i)) for i in range(len(edges))]
    return members, [max(int(edge), 1) for edge in edges]


def _edges(counts: np.ndarray) -> np.ndarray:
    """The largest size of each bucket: as few buckets as keep padding small, and of those the ones that pad least."""
    sizes, groups = np.unique(counts, return_counts=True)
    if len(sizes) > MOST_SIZES:
        kept = np.unique(np.quantile(sizes, np.linspace(0, 1, MOST_SIZES), method="higher"))
        groups = np.bincount(np.searchsorted(kept, sizes), weights=groups)
        sizes = kept
    before = np.concatenate([[0], np.cumsum(groups)])
    # Rows with padding of all groups up to the j-th size, and where the last bucket of them begins, by the number of buckets.
    padded = np.where(np.arange(len(sizes) + 1) > 0, np.inf, 0.0)
    begins: list[np.ndarray] = []
    for _ in range(MOST_BUCKETS):
        costs = padded[:-1, None] + (before[1:] - before[:-1, None]) * sizes
        costs = np.where(np.arange(len(sizes))[:, None] <= np.arange(len(sizes)), costs, np.inf)
        begins.append(np.argmin(costs, axis=0))
        padded = np.concatenate([[0.0], np.min(costs, axis=0)])
        if padded[-1] <= WASTE * counts.sum():
            break
    edges, last = [], len(sizes)
    for begin in begins[::-1]:
        if last > 0:
            edges.append(sizes[last - 1])
            last = int(begin[last - 1])
    return np.array(edges[::-1])


def _number_of_records(sizes: list[int], widths: list[int]) -> int:
    """As many as there can be with little padding."""

    def work(records: int) -> int:
        return sum(-(-size // records) * records * width for size, width in zip(sizes, widths, strict=True))

    records = sum(sizes)
    while records > 1 and work(records) > WASTE * work(1):
        records = max(1, int(records / 1.1))
    return records
