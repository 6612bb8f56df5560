"""Many devices and many hosts: chains side by side, data divided within a chain, or both.

A `Layout` is a mesh with the axes "chain" and "data". The compiled chunk is mapped over "chain" (each device runs its own chains
and talks to no other); within a chain only the gradient of the likelihood is mapped over "data" (`inbounds.data.spread`), and
everything else is written as on one device: XLA repeats it, or divides it where a variable is divided.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inbounds.data.arrays import check_batch, is_source, is_stream, source_for
from inbounds.data.source import Source
from inbounds.data.spread import AXIS as DATA
from inbounds.data.spread import SpreadRows, own_places
from inbounds.engine import Plain, normal_like, on
from inbounds.engine.compiled import Compiled
from inbounds.posterior import Posterior
from inbounds.trees import PyTree, variable_name

__all__ = [
    "Layout",
    "LostProcessError",
    "agreed",
    "as_layout",
    "is_first_process",
    "lost_process",
    "own_shards",
    "to_host",
]

CHAIN = "chain"
# How the transports and the coordination service of JAX name a peer that is gone, whatever Python class carries the words.
CONTACT = re.compile(
    "gloo|nccl|heartbeat|coordination service|connection (reset|closed|refused)|socket closed", re.IGNORECASE
)


class LostProcessError(RuntimeError):
    """Another process of this run is gone, or can no longer be reached.

    Example:
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
        >>> try:
        ...     draws = ib.sample(kernel, 0.05, 150, burn_in=100, progress=False)
        ... except ib.LostProcessError as error:
        ...     raise SystemExit("start all processes again, with resume=True") from error
        >>> draws.num_draws
        50
    """


class Layout:
    """How a run lies on devices: `chain * data` of them.

    Args:
        chain: devices (or groups of them) over which the chains are divided; `num_chains` must be a multiple.
        data: devices over which the data of each chain are divided; `batch_size` must be a multiple.
        shard: variables that are divided too, each with the key of the data that says which of its rows each row of data belongs to:
            `{"W": "user"}` keeps the same users' rows of W and ratings on one device. The likelihood then sees the device's
            own rows of W, and users counted from the first of them.
        devices: which ones; None takes the first of `jax.devices()`, those of all the processes.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> draws = ib.sample(ib.sgld(posterior), 0.05, 150, burn_in=100, devices=ib.Layout(chain=1), progress=False)
        >>> draws.num_draws
        50
    """

    def __init__(
        self,
        chain: int = 1,
        data: int = 1,
        *,
        shard: Mapping[str, str] | None = None,
        devices: Sequence[jax.Device] | None = None,
    ):
        for name, value in ((CHAIN, chain), (DATA, data)):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise ValueError(f"`{name}` must be a whole number of devices, at least 1; got {value!r}.")
        available = list(jax.devices() if devices is None else devices)
        if chain * data > len(available):
            raise ValueError(
                f"{chain * data} devices are asked for ({chain} for chains times {data} for data), but there are "
                f"{len(available)}: {', '.join(map(str, available[:8]))}. Ask for fewer; on a CPU, "
                "jax.config.update('jax_num_cpu_devices', n) before anything else simulates n devices."
            )
        self.mesh = jax.make_mesh(
            (int(chain), int(data)),
            (CHAIN, DATA),
            axis_types=(AxisType.Auto, AxisType.Auto),
            devices=available[: chain * data],
        )
        self.shard = tuple(sorted((shard or {}).items()))
        self._check_processes()

    @classmethod
    def of_mesh(cls, mesh: Mesh) -> Layout:
        """The layout of a mesh of yours, with the axes "chain", "data" or both.

        Args:
            mesh: devices in a grid.

        Returns:
            The layout, with as many devices along "chain" and "data" as the mesh has.

        Raises:
            ValueError: the mesh has other axes, or no device of some process.
        """
        if not set(mesh.axis_names) <= {CHAIN, DATA}:
            raise ValueError(
                f"The mesh has the axes {mesh.axis_names}; a run knows 'chain' (chains are divided over it) and 'data' (the data "
                "of each chain are). Name them so, or use ib.Layout(chain=..., data=...)."
            )
        order = [mesh.axis_names.index(name) for name in (CHAIN, DATA) if name in mesh.axis_names]
        shape = (mesh.shape.get(CHAIN, 1), mesh.shape.get(DATA, 1))
        layout = cls.__new__(cls)
        layout.mesh = Mesh(
            mesh.devices.transpose(order).reshape(shape), (CHAIN, DATA), axis_types=(AxisType.Auto, AxisType.Auto)
        )
        layout.shard = ()
        layout._check_processes()
        return layout

    def _check_processes(self) -> None:
        idle = set(range(jax.process_count())) - {device.process_index for device in self.mesh.devices.flat}
        if idle:
            raise ValueError(
                f"The layout uses {self.mesh.size} devices and none of process {min(idle)}: every process must take part. "
                f"There are {len(jax.devices())} devices in {jax.process_count()} processes; use all of them."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.mesh, self.shard) == (other.mesh, other.shard)

    def __hash__(self) -> int:
        return hash((self.mesh, self.shard))

    def __repr__(self) -> str:
        shard = f", shard={dict(self.shard)}" if self.shard else ""
        return f"Layout(chain={self.chain}, data={self.data}{shard})"

    @property
    def chain(self) -> int:
        """How many parts the chains are divided into."""
        result: int = self.mesh.shape[CHAIN]
        return result

    @property
    def data(self) -> int:
        """How many parts the data of each chain are divided into."""
        result: int = self.mesh.shape[DATA]
        return result

    @property
    def form(self) -> Plain:
        """In which its devices compute."""
        return on(self.mesh.devices.flat[0].platform)

    @property
    def spreads(self) -> bool:
        """Whether the data of a chain lie on several devices."""
        return self.data > 1 or bool(self.shard)

    # What the driver asks for before a run.

    def check(self, posterior: Posterior, estimator: Any, num_chains: int) -> None:
        """Raise a ValueError where chains, data or gradients cannot be laid out so."""
        if num_chains % self.chain:
            raise ValueError(
                f"num_chains={num_chains} cannot be divided evenly over {self.chain} devices. Use "
                f"{_nearest_multiples(num_chains, self.chain)} chains, or {_divisors(num_chains, self.chain)} devices for them "
                "(and the others for data: ib.Layout(chain=..., data=...))."
            )
        if not self.spreads:
            return
        if getattr(estimator, "reads_all_data", False):
            raise ValueError(
                "Control variates and SVRG read all the data on one device, which a layout with data on several does not "
                "have. Use gradient=ib.gradients.minibatch, or divide the chains only: ib.Layout(chain=...)."
            )
        reason = posterior.whole_data_because()
        if reason is not None and len(own_places(self.mesh)) < self.data:
            raise ValueError(
                f"{reason}, so they cannot be divided between processes. Divide the chains (ib.Layout(chain=...)), or write the "
                "likelihood as an ib.Posterior."
            )

    def source(self, posterior: Posterior, batch_size: int | None, batching: str, theta: PyTree) -> Source:
        """Where minibatches come from: every device's own rows, or the usual source where data are not divided.

        Args:
            posterior: what is sampled; where there are several processes, its data are those of this one.
            batch_size: rows per minibatch over all the devices; None takes all the data.
            batching: "epochs" or "replacement".
            theta: the start of one chain, for the sizes of the divided variables.
        """
        data = posterior.data
        if not self.spreads or data is None:
            self._check_shard(theta, {})
            return source_for(data, batch_size, batching, self.form)
        if is_source(data):
            what = "Data on disk" if is_stream(data) else f"Data from {type(data).__name__}"
            raise ValueError(
                f"{what} cannot be divided over devices: give each process its rows in memory, or divide the chains only."
            )
        if batching == "sweeps":
            raise ValueError(
                'batching="sweeps" is not made for data that are divided over devices. Divide the chains only: ib.Layout(chain=...).'
            )
        names = {variable_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(data)}
        spread = partial(SpreadRows, data, mesh=self.mesh, shard=self.shard, rows_of=self._check_shard(theta, names))
        everything = spread(None, "all")
        check_batch(batch_size, batching, everything.num_data)
        if batch_size is not None and batch_size < everything.num_data:
            if batch_size % self.data:
                raise ValueError(
                    f"batch_size={batch_size:,} cannot be divided evenly over the {self.data} devices of the data. Use "
                    f"{_nearest_multiples(batch_size, self.data)}."
                )
            return spread(batch_size, batching)
        if posterior.gradient is not None and len(set(everything.counts)) > 1:
            raise ValueError(
                f"The data, {everything.num_data:,} rows, cannot be divided evenly over {self.data} devices, and `gradient` takes "
                f"whole minibatches only. Give a batch_size below that, a multiple of {self.data}."
            )
        return everything

    def _check_shard(self, theta: PyTree, data: dict[str, Any]) -> dict[str, int]:
        """How many rows each divided variable has."""
        variables = {variable_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(theta)}
        sizes = {}
        for name, key in self.shard:
            if name not in variables:
                raise ValueError(f"shard={dict(self.shard)}: no variable {name!r}. There are {', '.join(variables)}.")
            if key not in data:
                raise ValueError(
                    f"shard={dict(self.shard)}: the data have no {key!r}. They have {', '.join(data) or 'none'}."
                )
            shape = variables[name].shape
            if not shape or shape[0] % self.data:
                raise ValueError(
                    f"{name!r} of shape {shape} cannot be divided evenly over {self.data} devices by its leading axis. "
                    f"ib.data.balanced_numbering(keys, multiple_of={self.data}) gives the number of rows that it needs, and "
                    "numbers that spread the data evenly."
                )
            keys = np.asarray(data[key])
            if not np.issubdtype(keys.dtype, np.integer) or keys.min(initial=0) < 0 or keys.max(initial=0) >= shape[0]:
                raise ValueError(f"Data {key!r} must be whole numbers from 0 to {shape[0] - 1:,}, rows of {name!r}.")
            sizes[name] = shape[0]
        return sizes

    # Placing things.

    def shardings(self, tree: PyTree) -> PyTree:
        """Where a tree whose leading axis is the chain lies: divided variables are known by their names within it."""

        def one(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
            parts = variable_name(path).split("/")
            divided = any(parts[-name.count("/") - 1 :] == name.split("/") for name, _ in self.shard)
            fits = divided and len(leaf.shape) > 1 and leaf.shape[1] % self.data == 0
            return NamedSharding(self.mesh, P(CHAIN, DATA) if fits else P(CHAIN))

        return jax.tree_util.tree_map_with_path(one, tree)

    def put_chains(self, tree: PyTree) -> PyTree:
        """A tree whose leading axis is the chain, on its devices."""
        return jax.tree.map(_put, tree, self.shardings(tree))

    def put_copies(self, tree: PyTree) -> PyTree:
        """The same on every device."""
        return jax.tree.map(lambda leaf: _put(leaf, NamedSharding(self.mesh, P())), tree)

    def make_chains(
        self, compiled: Compiled, function: Callable[..., Any], static: tuple[Any, ...], *arguments: PyTree
    ) -> PyTree:
        """`function(*static, *arguments)`, a tree whose leading axis is the chain, made where it is to lie."""
        return compiled.of(_make_chains, self, function, static)(*arguments)

    # Inside the compiled chunk.

    def over_chains(
        self, function: Callable[..., Any], divided: tuple[bool, ...], chain_axes: PyTree
    ) -> Callable[..., Any]:
        """`function` on every device with its own chains.

        Args:
            function: of arguments whose leading axis is the chain, or that all the chains share.
            divided: which of them has that axis.
            chain_axes: where each result has it, a tree like the results.
        """
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=tuple(P(CHAIN) if own else P() for own in divided),
            out_specs=jax.tree.map(lambda axis: P(*[None] * axis, CHAIN), chain_axes),
            axis_names={CHAIN},
            check_vma=False,
        )

    def everywhere(self, tree: PyTree) -> PyTree:
        """The tree, of which every device that shares a chain makes a copy: small things are not worth sending."""
        return jax.lax.with_sharding_constraint(tree, P()) if self.shard else tree

    def on_mesh(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, compiled, where code that is mapped over the mesh's axes finds them."""

        def call(*arguments: Any) -> Any:
            with jax.set_mesh(self.mesh):
                return jax.jit(function)(*arguments)

        return call

    def normal_like(self, key: jax.Array, like: PyTree, several: bool = False) -> PyTree:
        """Standard normals of these shapes, which begin with an axis of their own where they are several for each coordinate.

        Divided variables take a key of their own, so that each device draws its own part only.
        """
        names, divided = [name for name, _ in self.shard], P(None, DATA) if several else P(DATA)
        leaves, treedef = jax.tree_util.tree_flatten_with_path(like)
        own = [variable_name(path) in names for path, _ in leaves]
        shared = [leaf for (_, leaf), mine in zip(leaves, own, strict=True) if not mine]
        rest = iter(normal_like(key, shared) if shared else [])
        noise = []
        for index, ((_, leaf), mine) in enumerate(zip(leaves, own, strict=True)):
            if not mine:
                noise.append(next(rest))
                continue
            draw = jax.random.normal(jax.random.fold_in(key, index), leaf.shape, leaf.dtype)
            noise.append(jax.lax.with_sharding_constraint(draw, divided))
        return jax.tree.unflatten(treedef, noise)


def as_layout(devices: Any) -> Layout | None:
    """What `sample(devices=...)` takes: None, a number, a list of devices, a mesh, or a `Layout`."""
    if devices is None or isinstance(devices, Layout):
        return devices
    if isinstance(devices, Mesh):
        return Layout.of_mesh(devices)
    if isinstance(devices, int | np.integer) and not isinstance(devices, bool):
        return Layout(chain=int(devices))
    if isinstance(devices, Sequence) and devices and all(isinstance(device, jax.Device) for device in devices):
        return Layout(chain=len(devices), devices=devices)
    raise ValueError(
        "`devices` must be a number of devices for the chains, a list of them, a jax.sharding.Mesh with the axes 'chain' and "
        f"'data', or ib.Layout(chain=..., data=...); got {devices!r}."
    )


# Several processes: all of them run the same program on the same numbers, and decide alike.


def to_host(tree: PyTree) -> PyTree:
    """The tree with every leaf readable here: what lies on other processes' devices is fetched, by all of them together."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return leaf
        from jax.experimental import multihost_utils  # here, as elsewhere: most runs have one process

        return multihost_utils.process_allgather(leaf, tiled=True)

    return tree if jax.process_count() == 1 else jax.tree.map(one, tree)


def own_shards(tree: PyTree) -> list[PyTree]:
    """The parts of a tree that lie on this process's devices, one tree a device."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return [tree]
    count = len(jax.tree.leaves(tree)[0].addressable_shards)
    return [jax.tree.map(lambda leaf, i=i: leaf.addressable_shards[i].data, tree) for i in range(count)]


def agreed(number: int) -> int:
    """Process 0's number, in every process: clocks differ, and all must run the same chunks."""
    if jax.process_count() == 1:
        return number
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def is_first_process() -> bool:
    """Whether this process shows the bar and writes the files."""
    return jax.process_index() == 0


def lost_process(step: int, error: Exception) -> LostProcessError | None:
    """What to raise where an error means that another process of the run is gone; None where it means something else."""
    if jax.process_count() == 1:
        return None
    first: BaseException | None = error
    while first is not None and not CONTACT.search(str(first)):
        first = first.__cause__
    if first is None and not isinstance(error, jax.errors.JaxRuntimeError):
        return None
    reason = (str(first or error).strip().splitlines() or [""])[0][:200]
    message = (
        f"Process {jax.process_index()} of {jax.process_count()} lost contact with another process of this run after step "
        f"{step:,}: it has ended or cannot be reached. Start all of them again; with `checkpoint=` and `resume=True` the run goes "
        f"on from the last checkpoint, on fewer or more devices if need be. ({reason})"
    )
    # At once: JAX ends this process itself as soon as the coordinator has noticed, maybe before Python shows the error.
    print(f"inbounds: {message}", file=sys.stderr, flush=True)
    return LostProcessError(message)


def _make_chains(layout: Layout, function: Callable[..., Any], static: tuple[Any, ...], *arguments: PyTree) -> PyTree:
    made = function(*static, *arguments)
    return jax.lax.with_sharding_constraint(made, layout.shardings(made))


@partial(jax.jit, static_argnums=1)
def _wrap_key(data: jax.Array, implementation: str) -> jax.Array:
    result: jax.Array = jax.random.wrap_key_data(data, impl=implementation)
    return result


def _put(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if jax.process_count() == 1:
        placed: jax.Array = jax.device_put(leaf, sharding)
        return placed
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        placed = jax.device_put(leaf, sharding)  # lies on all the processes already
        return placed
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        key: jax.Array = _wrap_key(_put(jax.random.key_data(leaf), sharding), str(jax.random.key_impl(leaf)))
        return key
    value = np.asarray(leaf)
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def _nearest_multiples(number: int, of: int) -> str:
    below, above = number // of * of, -(-number // of) * of
    return f"{above:,}" if below == 0 else f"{below:,} or {above:,}"


def _divisors(number: int, most: int) -> str:
    found = [str(d) for d in range(1, most + 1) if number % d == 0]
    return " or ".join(found[-2:])
