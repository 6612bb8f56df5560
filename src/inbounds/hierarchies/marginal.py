"""The log marginal likelihood of groups: what a posterior whose rows are groups says of each of its records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.exact import in_doubles
from inbounds.hierarchies.layout import Bucket
from inbounds.hierarchies.quadrature import Center, center_of, log_integral, most_nodes, nodes_for
from inbounds.precision import in_double
from inbounds.trees import PyTree

__all__ = ["GroupJoint", "Marginal", "as_groups", "groups_at", "rows_per_record"]

NUMBERS_AT_ONCE = 2**22  # rows with padding times nodes
LOOKED_AT_NUMBERS = 2**24  # draws times rows times nodes, for the error of the quadrature,
FEWEST_LOOKED_AT = 16  # groups

GroupJoint = Callable[[PyTree, jax.Array, Bucket], jax.Array]
"""From theta, effects (group, effect) and groups to the joint log density of each group's effects and rows."""


class Marginal:
    """The effects of groups, integrated out.

    Args:
        joint: `joint(theta, effects, groups)`: the log density of the effects of each group and of its rows, normalised in the effects.
            They are coordinates in which every effect is unbounded and about standard.
        effects: numbers per group.
        nodes: of the quadrature, per effect; None: as many as suit.
    """

    def __init__(self, joint: GroupJoint, effects: int, nodes: int | None = None):
        self.joint, self.effects = joint, effects
        self.nodes = nodes_for(effects) if nodes is None else nodes

    def terms(self, theta: PyTree, records: tuple[Bucket, ...]) -> jax.Array:
        """The log marginal likelihood of each record, the sum of those of its groups; shape (record,)."""
        numbers = rows_per_record(records) * self.nodes**self.effects
        at_once = max(1, int(NUMBERS_AT_ONCE // numbers))
        if len(records[0].count) <= at_once:
            return self._of_records(theta, records)

        # Made anew for the gradient: what it would keep of all records is as large as all of them.
        def one(record: tuple[Bucket, ...]) -> jax.Array:
            return self._of_records(theta, jax.tree.map(lambda leaf: leaf[None], record))[0]

        return jnp.asarray(jax.lax.map(jax.checkpoint(one), records, batch_size=at_once))

    def _of_records(self, theta: PyTree, records: tuple[Bucket, ...]) -> jax.Array:
        total: Any = 0.0
        for bucket in records:
            values = self.of_groups(theta, as_groups(bucket)).reshape(bucket.count.shape)
            total = total + jnp.sum(jnp.where(bucket.count >= 0, values, 0.0), axis=1)
        return jnp.asarray(total)

    def of_groups(self, theta: PyTree, groups: Bucket, nodes: int | None = None) -> jax.Array:
        """The log marginal likelihood of each group."""
        center = self.center(theta, groups)
        return log_integral(lambda z: self.joint(theta, z, groups), center, self.nodes if nodes is None else nodes)

    def error(self, thetas: PyTree, records: tuple[Bucket, ...], seed: int = 0) -> float:
        """How far the quadrature moves posterior means and sds at most, in posterior sds.

        Where a log density is off by d, a mean moves by the covariance with d, at most by the sd of d over draws. The sd is that of the
        difference to a finer rule, in double precision, on a sample of groups that stands for all of them.

        Args:
            thetas: some draws, leading axis = draw.
            records: all the data.
            seed: of the sample.
        """
        generator = np.random.default_rng(seed)
        finer = most_nodes(self.effects, self.nodes)
        draws = len(jax.tree.leaves(thetas)[0])

        def difference(thetas: PyTree, groups: Bucket) -> jax.Array:
            def one(theta: PyTree) -> jax.Array:
                return jnp.sum(self.of_groups(theta, groups, finer) - self.of_groups(theta, groups))

            return jnp.asarray(jax.lax.map(one, thetas))

        total = np.zeros(draws)
        for bucket in records:
            held = np.flatnonzero(np.asarray(bucket.count).ravel() >= 0)
            size = max(FEWEST_LOOKED_AT, LOOKED_AT_NUMBERS // (draws * _width(bucket) * finer**self.effects))
            some = generator.choice(held, min(size, len(held)), replace=False)
            with in_double():
                groups = jax.tree.map(in_doubles, groups_at(as_groups(jax.tree.map(np.asarray, bucket)), some))
                doubles = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), thetas)
                total += len(held) / len(some) * np.asarray(jax.jit(difference)(doubles, groups))
        return float(np.std(total, ddof=1)) if np.isfinite(total).all() else math.inf

    def center(self, theta: PyTree, groups: Bucket) -> Center:
        """Where the effects of each group are, given theta."""
        still, groups = jax.lax.stop_gradient((theta, groups))
        start = jnp.zeros((len(groups.count), self.effects), jnp.result_type(*jax.tree.leaves(theta)))
        return center_of(lambda z: self.joint(still, z, groups), start)


def as_groups(bucket: Bucket) -> Bucket:
    """A bucket with one axis for its groups."""
    groups: Bucket = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), bucket)
    return groups


def groups_at(bucket: Bucket, places: np.ndarray) -> Bucket:
    """Some groups of a bucket whose groups have one axis."""
    groups: Bucket = jax.tree.map(lambda leaf: leaf[places], bucket)
    return groups


def rows_per_record(records: tuple[Bucket, ...]) -> int:
    """How many rows a record has, with padding."""
    return sum(int(np.prod(bucket.count.shape[1:])) * _width(bucket) for bucket in records)


def _width(bucket: Bucket) -> int:
    """Rows of a group, with padding."""
    return max((leaf.shape[2] for leaf in bucket.rows.values()), default=1)
