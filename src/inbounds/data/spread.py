"""Minibatches of which every device holds its own rows: data parallel within a chain.

The rows are divided over the devices of the mesh axis "data" once, before the run, and never move again. In each step a device
reads its own part of the minibatch from its own rows, and the gradients are summed over the devices: that sum is all that
travels. Each device's rows are weighted by how many it has over how many it reads, so that an unequal division stays unbiased.

A variable can be divided the same way (`Layout(shard={"W": "user"})`): each device then keeps a block of the rows of W, and
exactly the data that refer to them. Its gradient is complete where it is, and is not summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inbounds.data.source import Source
from inbounds.trees import PyTree, variable_name

__all__ = ["AXIS", "Numbering", "Spread", "SpreadRows", "balanced_numbering", "own_places"]

AXIS = "data"  # of the mesh


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spread:
    """One minibatch, spread over devices.

    Args:
        rows: the data, leading axes (device, row).
        weights: what each row stands for, axes (device, row): they sum to the number of all data.
        num_data: that number.
        divided: names of the variables of which each device keeps only its own rows.
    """

    rows: PyTree
    weights: jax.Array
    num_data: int = field(metadata=dict(static=True))
    divided: tuple[str, ...] = field(metadata=dict(static=True))

    def sum(
        self, function: Callable[[PyTree, PyTree, jax.Array], tuple[PyTree, ...]], theta: PyTree
    ) -> tuple[Any, ...]:
        """Sum over the devices of `function(theta, rows, weights)`, a tuple of trees like theta, with further axes before theirs or without.

        Each device calls it with its own rows and its own part of the divided variables, whose entries are not summed.
        """

        def total(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
            return leaf if variable_name(path) in self.divided else jax.lax.psum(leaf, AXIS)

        def own(theta: PyTree, rows: PyTree, weights: jax.Array) -> tuple[PyTree, ...]:
            # Plain local code: what it differentiates holds no collective, and may loop as it likes.
            parts = function(theta, jax.tree.map(lambda leaf: leaf[0], rows), weights[0])
            return tuple(jax.tree_util.tree_map_with_path(total, part) for part in parts)

        specs = self.specs(theta)
        results = jax.eval_shape(function, self.own_part(theta), *jax.tree.map(_first, (self.rows, self.weights)))
        return jax.shard_map(
            own,
            in_specs=(specs, P(AXIS), P(AXIS)),
            out_specs=tuple(jax.tree.map(_after_further_axes, specs, theta, part) for part in results),
            axis_names={AXIS},
            check_vma=False,
        )(theta, self.rows, self.weights)

    def __getitem__(self, key: Any) -> Any:
        raise ValueError(
            "This kernel reads minibatches itself, and cannot where their rows lie on several devices. Use one with a gradient "
            "estimator, such as ib.sgld, or divide the chains only: ib.Layout(chain=...)."
        )

    def specs(self, theta: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: P(AXIS) if variable_name(path) in self.divided else P(), theta
        )

    def own_part(self, theta: PyTree) -> PyTree:
        """Shapes of theta as one device sees it."""
        devices = self.weights.shape[0]

        def part(path: tuple[Any, ...], leaf: Any) -> jax.ShapeDtypeStruct:
            shape = leaf.shape
            if variable_name(path) in self.divided:
                shape = (shape[0] // devices, *shape[1:])
            return jax.ShapeDtypeStruct(shape, leaf.dtype)

        return jax.tree_util.tree_map_with_path(part, theta)

    def own_rows(self) -> PyTree:
        """Shapes of the rows that one device reads."""
        return jax.tree.map(_first, self.rows)


def _after_further_axes(spec: P, leaf: Any, result: Any) -> P:
    """Where a result lies that has the axes of a leaf, after further ones."""
    return P(*(None,) * (len(result.shape) - leaf.ndim), *spec)


def _first(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


class SpreadRows(Source):
    """The source of spread minibatches: Inbounds' three ways of batching, on every device over its own rows.

    "epochs" walks round a shuffled ring, "replacement" gathers independent rows, and "all" reads every row.

    Args:
        data: a tree of arrays, leading axis that of the rows; where there are several processes, each has its own rows.
        batch_size: rows per minibatch, over all the devices; None with "all".
        batching: "epochs", "replacement", or "all".
        mesh: with an axis "data".
        shard: pairs of (variable, key of the data): data whose key is k belong to row k of the variable.
        rows_of: how many rows each of those variables has.
    """

    batch_size: int
    num_data: int

    def __init__(
        self,
        data: PyTree,
        batch_size: int | None,
        batching: str,
        mesh: Mesh,
        shard: tuple[tuple[str, str], ...] = (),
        rows_of: dict[str, int] | None = None,
    ):
        self.mesh, self.batching, self.shard = mesh, batching, shard
        self.devices = mesh.shape[AXIS]
        self.blocks = {key: (rows_of or {})[name] // self.devices for name, key in shard}
        self._data = data
        self._places = own_places(mesh)
        self._owner = self._owners()
        own_counts = [self._count(place) for place in range(len(self._places))]
        self.counts = _agreed_counts(self._places, own_counts, self.devices)
        self.num_data = sum(self.counts)
        self.batch_size = max(self.counts) if batch_size is None else batch_size // self.devices  # of one device
        shapes = tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in jax.tree.leaves(data))
        self._identity = (batching, mesh, shard, self.batch_size, self.counts, shapes, jax.tree.structure(data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpreadRows) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _length(self) -> int:
        """Rows that each device stores: its own, repeated to the length of the longest and to close the ring."""
        return max(self.counts) + (self.batch_size if self.batching == "epochs" else 0)

    def _owners(self) -> np.ndarray | None:
        """The place of every row where a variable is divided; None where the rows can lie anywhere."""
        if not self.shard:
            return None
        (name, key), *more = self.shard
        keys = np.asarray(self._data[key])
        owner: np.ndarray = keys // self.blocks[key]
        for other, other_key in more:
            if not np.array_equal(np.asarray(self._data[other_key]) // self.blocks[other_key], owner):
                raise ValueError(
                    f"Rows that belong to one device by {key!r} belong to another by {other_key!r}: {name!r} and {other!r} "
                    "cannot both be divided. Leave one of them out of `shard`."
                )
        if not np.isin(owner, self._places).all():
            stray = int(np.flatnonzero(~np.isin(owner, self._places))[0])
            size, first, last = self.blocks[key], self._places[0], self._places[-1]
            raise ValueError(
                f"Row {stray:,} of the data has {key} {int(keys[stray]):,}, but this process keeps the rows {first * size:,} to "
                f"{(last + 1) * size - 1:,} of {name!r}. Give each process the data of its own rows of {name!r}."
            )
        return owner

    def _count(self, index: int) -> int:
        if self._owner is not None:
            return int(np.count_nonzero(self._owner == self._places[index]))
        rows = int(jax.tree.leaves(self._data)[0].shape[0])
        return len(range(index, rows, len(self._places)))

    def prepare(self, key: jax.Array) -> PyTree:
        """Every device's rows, on that device."""
        generator = np.random.default_rng([*np.asarray(jax.random.key_data(key)).ravel(), self._places[0]])
        rows = jax.tree.leaves(self._data)[0].shape[0]
        # Only the ring of "epochs" needs an order; dealing the rows round the devices needs none to be unbiased.
        order = generator.permutation(rows) if self.batching == "epochs" else np.arange(rows)
        if self._owner is None:
            parts = [order[index :: len(self._places)] for index in range(len(self._places))]
        else:
            parts = [order[self._owner[order] == place] for place in self._places]
        # A device without rows repeats the first one, with weight zero.
        index = np.stack([np.resize(part if part.size else [0], self._length) for part in parts])
        places = np.asarray(self._places)[:, None]

        def put(path: tuple[Any, ...], leaf: Any) -> jax.Array:
            own = np.asarray(leaf)[index]
            if (name := variable_name(path)) in self.blocks:
                own = np.clip(own - places * self.blocks[name], 0, self.blocks[name] - 1).astype(own.dtype)
            result: jax.Array = jax.make_array_from_process_local_data(
                NamedSharding(self.mesh, P(AXIS)), own, (self.devices, *own.shape[1:])
            )
            return result

        return jax.tree_util.tree_map_with_path(put, self._data)

    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        if self.batching == "all":
            return jnp.zeros((*steps.shape, self.devices), jnp.int32)

        def one_device(device: jax.Array, count: jax.Array) -> jax.Array:
            own_key = jax.random.fold_in(key, device)
            if self.batching == "replacement":
                return jax.vmap(
                    lambda step: jax.random.randint(jax.random.fold_in(own_key, step), (self.batch_size,), 0, count)
                )(steps)
            batches = -(-count // self.batch_size)
            starts = jax.vmap(lambda epoch: jax.random.randint(jax.random.fold_in(own_key, epoch), (), 0, count))(
                steps // batches
            )
            return (starts + (steps % batches) * self.batch_size) % count

        counts = jnp.maximum(jnp.asarray(self.counts, jnp.int32), 1)
        plan = jax.vmap(one_device, out_axes=1)(jnp.arange(self.devices), counts)
        return jax.lax.with_sharding_constraint(plan, P(None, AXIS))

    def fetch(self, arrays: PyTree, plan: PyTree) -> Spread:
        def own(arrays: PyTree, plan: jax.Array) -> PyTree:
            if self.batching == "all":
                return arrays
            if self.batching == "replacement":
                return jax.tree.map(lambda leaf: jnp.take(leaf[0], plan[0], axis=0, mode="clip")[None], arrays)
            return jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf[0], plan[0], self.batch_size)[None], arrays
            )

        rows = jax.shard_map(own, in_specs=(P(AXIS), P(AXIS)), out_specs=P(AXIS), axis_names={AXIS}, check_vma=False)(
            arrays, plan
        )
        return self._batch(rows)

    def example(self, arrays: PyTree, words: Any) -> Spread:
        shape = (self.devices, self.batch_size)
        rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*shape, *leaf.shape[1:]), leaf.dtype), self._data)
        return self._batch(rows)

    def _batch(self, rows: PyTree) -> Spread:
        counts = np.asarray(self.counts)[:, None]
        if self.batching == "all":
            weights = (np.arange(self.batch_size) < counts).astype(np.float32)
        else:
            weights = np.broadcast_to((counts / self.batch_size).astype(np.float32), (self.devices, self.batch_size))
        return Spread(rows, jnp.asarray(weights), self.num_data, tuple(name for name, _ in self.shard))


def own_places(mesh: Mesh) -> list[int]:
    """The places on the axis "data" of which this process has a device."""
    axis = mesh.axis_names.index(AXIS)
    mine = np.vectorize(lambda device: device.process_index == jax.process_index(), otypes=[bool])(mesh.devices)
    return [
        int(place) for place in np.flatnonzero(np.moveaxis(mine, axis, 0).reshape(mesh.shape[AXIS], -1).any(axis=1))
    ]


def _agreed_counts(places: list[int], own: list[int], devices: int) -> tuple[int, ...]:
    """How many rows lie at each place, of all the processes."""
    table = np.full(devices, -1, np.int64)
    table[places] = own
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        tables = np.asarray(multihost_utils.process_allgather(table.astype(np.int32)))
        table = tables.max(axis=0)
        if ((tables >= 0) & (tables != table)).any():
            raise ValueError(
                "Processes that share a place of the mesh axis 'data' hold different numbers of rows: they keep copies of "
                "the same rows, for different chains. Give them the same data, or put them at different places."
            )
    return tuple(int(count) for count in table)


class Numbering(NamedTuple):
    """New numbers for users, items or groups.

    Attributes:
        number: the new number of each old one: `user = numbering.number[user]` renumbers the data, and
            `theta["W"][..., numbering.number, :]` is in the old order.
        size: how many rows the variable needs, a multiple of what was asked for. Those without data follow their prior.
    """

    number: np.ndarray
    size: int


def balanced_numbering(keys: Any, multiple_of: int) -> Numbering:
    """Renumber the keys of data so that equal blocks of numbers hold nearly equal amounts of data.

    For variables that are divided over devices. The keys are dealt to `multiple_of` blocks in rounds, those with most data
    first, and in each round the one with most goes to the block that has least: every block gets equally many keys, and nearly
    equally many data. The numbering serves every number of devices that divides `multiple_of`.

    Args:
        keys: whole numbers from 0, one per row: the user of each rating.
        multiple_of: the most devices that the variable will be divided over.

    Returns:
        The new numbers, and how many rows the variable needs.

    Example:
        >>> numbering = ib.data.balanced_numbering(np.array([0, 0, 0, 1, 2, 2]), multiple_of=2)
        >>> numbering.size, sorted(numbering.number.tolist())
        (4, [0, 2, 3])
    """
    counts = np.bincount(np.asarray(keys))
    blocks = int(multiple_of)
    rounds = -(-counts.size // blocks)
    padded = np.concatenate([counts, np.zeros(rounds * blocks - counts.size, counts.dtype)])
    dealt = np.argsort(-padded, kind="stable").reshape(rounds, blocks)
    loads = np.zeros(blocks, padded.dtype)
    block = np.empty_like(dealt)
    for turn, heaviest_first in enumerate(dealt):
        lightest_first = np.argsort(loads, kind="stable")
        block[turn] = lightest_first
        loads[lightest_first] += padded[heaviest_first]
    # Steps of the golden ratio put heavy blocks beside light ones, for devices that keep several blocks.
    place = np.empty(blocks, np.int64)
    place[np.argsort(-loads, kind="stable")] = np.argsort(np.argsort(np.arange(blocks) * (5**0.5 - 1) / 2 % 1.0))
    number = np.empty(padded.size, np.int64)
    number[dealt] = place[block] * rounds + np.arange(rounds)[:, None]
    return Numbering(number[: counts.size], padded.size)
