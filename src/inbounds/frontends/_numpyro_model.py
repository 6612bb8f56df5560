"""A NumPyro model with what it is called with: run with some latents and some rows, and nothing said of whether it suits."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from inbounds.trees import variable_name

__all__ = [
    "CalledModel",
    "DataPlate",
    "LocalLatentError",
    "PlateLayout",
    "Site",
    "Slices",
    "base_of",
    "is_latent",
    "is_observed",
    "seeded",
]


class DataPlate(NamedTuple):
    """A plate with `subsample_size`."""

    name: str
    size: int
    batch_size: int


class Site(NamedTuple):
    """A sample site: whether it is latent, the plates that it is in, and the name of its distribution."""

    latent: bool
    plates: frozenset[str]
    kind: str


class PlateLayout(NamedTuple):
    """How minibatches enter: the data plates, and whether one vector of rows serves all of them."""

    plates: tuple[DataPlate, ...]
    shared: bool


class Slices(NamedTuple):
    """How a model with ordinary plates is cut: its data plates, their size, and its arguments of that length."""

    plates: frozenset[str]
    size: int
    arguments: tuple[str, ...]


class _Handler(Messenger):  # type: ignore[misc]  # NumPyro has no types
    """Sees the messages of a model that runs."""


class _Rows(_Handler):
    """Puts row numbers into the data plates, whatever `subsample_size` the model asked for, and notes the sizes of plates.

    Where arguments are cut, a data plate whose size is not theirs (a number, and not the length of the data) is told how many rows there are.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        rows: dict[str, jax.Array],
        slices: Slices | None = None,
        cut: dict[str, Any] | None = None,
    ):
        self.rows, self.cut = rows, None if cut is None else slices
        self.length = 0 if self.cut is None or cut is None else len(cut[self.cut.arguments[0]])
        self.sizes: dict[str, int] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "plate":
            return
        name, size = msg["name"], msg["args"][0]
        self.sizes[name] = size
        if name in self.rows:
            msg["value"] = self.rows[name]
            msg["args"] = (size, len(msg["value"]))
        elif self.cut is not None and name in self.cut.plates and size == self.cut.size != self.length:
            msg["value"] = jnp.arange(self.length)
            msg["args"] = (size, self.length)


class _FirstRows(_Handler):
    """Gives every data plate its first rows and notes its size: the first look at a model."""

    def __init__(self, fn: Callable[..., Any]):
        self.found: dict[str, DataPlate] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate" and msg["args"][1] is not None:
            size, batch_size = msg["args"]
            self.found[msg["name"]] = DataPlate(msg["name"], size, batch_size)
            msg["value"] = jnp.arange(batch_size)


class LocalLatentError(ValueError):
    """A latent has a value per datum, so that a minibatch would move only its own."""


class _Guard(_Handler):
    """Stops at the first site that cannot be sampled by gradients, before NumPyro tries to draw it."""

    def __init__(self, fn: Callable[..., Any], plates: set[str]):
        self.plates = plates
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        name = msg.get("name")
        if msg["type"] == "param" and not str(name).endswith("$params"):
            raise ValueError(
                f"The model has a `numpyro.param`, {name!r}, which is a point and has no posterior. Give it a prior with "
                "`numpyro.sample`, or fix it: numpyro.handlers.substitute(model, data={...})."
            )
        if msg["type"] == "mutable":
            raise ValueError(
                f"The model has a `numpyro.mutable`, {name!r}: a log density must not have a state. Remove it."
            )
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        fn, kind = msg["fn"], type(base_of(msg["fn"])).__name__
        if fn.is_discrete:
            raise ValueError(
                f"The latent {name!r} is discrete ({kind}): gradients do not exist for it. Sum it out, for a mixture with "
                f"dist.MixtureSameFamily; if {name!r} is data, pass its values, for now it has obs=None."
            )
        if isinstance(base_of(fn), dist.ImproperUniform) and msg["value"] is None:
            msg["value"] = _middle_of(fn)  # nobody can draw from it
        if not isinstance(base_of(fn), dist.Delta):
            self._check_local(msg)

    def _check_local(self, msg: dict[str, Any]) -> None:
        for frame in msg["cond_indep_stack"]:
            if frame.name in self.plates:
                name, plate = msg["name"], frame.name
                raise LocalLatentError(
                    f"The latent {name!r} is inside the data plate {plate!r}: one value per row, of which a minibatch "
                    "would move only its own, and the chain would have no stationary law. Either sum or integrate it out "
                    f"of the likelihood; or leave `subsample_size` out of {plate!r}, and all of {name!r} is sampled from "
                    f"all the data; or draw {name!r} in a plate of its own without `subsample_size` and look its values up "
                    f"with the rows of {plate!r}. If {name!r} is data, pass its values: for now it has obs=None."
                )


class CalledModel:
    """A model with what it is called with."""

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        if not callable(model):
            raise ValueError(f"`model` must be a function with NumPyro primitives; got {type(model).__name__}.")
        self.model, self.args, self.kwargs = model, args, kwargs
        self._plates: dict[str, DataPlate] | None = None
        self.sizes: dict[str, int] = {}  # of all the plates that have been seen

    def plates(self) -> dict[str, DataPlate]:
        """The plates with `subsample_size`, found by running the model once on their first rows."""
        if self._plates is None:
            first = _FirstRows(_Guard(self.model, set()))
            self._plates = first.found
            jax.eval_shape(lambda: self._call(handlers.trace(handlers.seed(first, rng_seed=0))) and None)
        return self._plates

    def trace(
        self, latents: Callable[..., Any], rows: Any = None, slices: Slices | None = None
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """All the sites, and what sizes the plates say that they have.

        Args:
            latents: a handler that puts the latents in.
            rows: row numbers of every data plate; None: the first of each. With `slices`, the arguments that are cut by their names;
                None: all of the data.
            slices: how arguments are cut, if they are.
        """
        plates, called, numbers = self.plates(), self, rows
        if slices is not None:
            called, numbers = self if rows is None else self.with_arrays(rows), {}
        elif rows is None:
            numbers = {plate.name: jnp.arange(plate.batch_size) for plate in plates.values()}
        fed = _Rows(self.model, numbers, slices, rows)
        # A key, so that a model that asks for one (dropout) gets it; the latents do not use it when they are given.
        sites = called._call(handlers.trace(handlers.seed(latents(_Guard(fed, set(plates))), rng_seed=0)))
        return sites, fed.sizes

    def arrays(self) -> dict[str, Any]:
        """The arrays among the arguments, by name."""
        leaves = jax.tree_util.tree_leaves_with_path((self.args, self.kwargs))
        return {self._name(path): leaf for path, leaf in leaves if isinstance(leaf, jax.Array)}

    def _name(self, path: tuple[Any, ...]) -> str:
        """What an argument is called: as the model calls it, and by its place where that is not known."""
        (kind, first), rest = (part.idx if hasattr(part, "idx") else part.key for part in path[:2]), path[2:]
        name = self._parameters[first] if kind == 0 and first < len(self._parameters) else str(first)
        return f"{name}/{variable_name(rest)}" if rest else name

    @cached_property
    def _parameters(self) -> list[str]:
        try:
            parameters = inspect.signature(self.model).parameters.values()
        except (TypeError, ValueError):
            return []
        return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

    def with_arrays(self, arrays: dict[str, Any]) -> CalledModel:
        """The same with other arrays in the place of those that have these names."""

        def other(path: tuple[Any, ...], leaf: Any) -> Any:
            return arrays.get(self._name(path), leaf) if isinstance(leaf, jax.Array) else leaf

        called = CalledModel(self.model, *jax.tree_util.tree_map_with_path(other, (self.args, self.kwargs)))
        called._plates = self._plates
        return called

    def sites(self, rows: dict[str, jax.Array] | None = None) -> dict[str, Site]:
        """What is known of the sample sites without running the model: nothing is computed."""
        found: dict[str, Site] = {}

        def note() -> None:
            for name, site in self.trace(seeded(0), rows)[0].items():
                if site["type"] == "sample":
                    frames = frozenset(frame.name for frame in site["cond_indep_stack"])
                    self.sizes.update({frame.name: frame.size for frame in site["cond_indep_stack"]})
                    found[name] = Site(is_latent(site), frames, type(base_of(site["fn"])).__name__)
                    self._check_shape(name, site)

        jax.eval_shape(note)
        return found

    def _check_shape(self, name: str, site: dict[str, Any]) -> None:
        if isinstance(site["value"], np.ndarray) and site["value"].dtype.kind not in "biufc":
            raise ValueError(f"The observations of {name!r} are no numbers, but {site['value'].dtype}.")
        got, want = np.shape(site["value"]), tuple(site["fn"].shape())
        try:
            np.broadcast_shapes(got, want)
        except ValueError:
            problem = f"the observations of {name!r} have shape {got}, and its distribution {want}"
            raise ValueError(self._shapes_message(problem)) from None

    def _call(self, traced: handlers.trace) -> dict[str, Any]:
        try:
            result: dict[str, Any] = traced.get_trace(*self.args, **self.kwargs)
            return result
        except jax.errors.TracerArrayConversionError as error:
            raise ValueError(
                "The model indexes a NumPy array with the rows of a plate, which JAX cannot trace. Pass the array as an "
                "argument of the model, or make it a JAX array with jnp.asarray."
            ) from error
        except (ValueError, TypeError) as error:
            if "broadcast" not in str(error).lower() and "incompatible shapes" not in str(error).lower():
                if isinstance(error, TypeError) and (odd := self._no_arrays_of_numbers()):
                    raise TypeError(f"{odd} The model fails with: {error}") from error
                raise
            raise ValueError(self._shapes_message(str(error))) from error

    def _no_arrays_of_numbers(self) -> str:
        """What is odd about the arguments, where a model may fail for it; nothing elsewhere."""
        given = dict(zip(self._parameters, self.args, strict=False)) | self.kwargs
        for name, value in given.items():
            if isinstance(value, list):
                return f"{name!r} is a list: pass an array, numpy.asarray({name})."
            if isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":
                return f"{name!r} is no array of numbers, but of {value.dtype}. For text, numpy.unique(..., return_inverse=True) has codes."
        return ""

    def _shapes_message(self, problem: str) -> str:
        plates = ", ".join(
            f"{p.name!r} ({p.size:,} rows, {p.batch_size:,} a step)" for p in (self._plates or {}).values()
        )
        arrays = [f"{name} {list(x.shape)}" for name, x in self.arrays().items()]
        return (
            f"The model fails with shapes that do not fit: {problem}. Arrays given: {', '.join(arrays) or 'none'}. Data of "
            "another length than their plate are the usual cause. A plate with `subsample_size` wants `with numpyro.plate("
            "name, N, subsample_size=n) as rows:`, and `x[rows]` for every array inside. Such plates: "
            f"{plates or 'none found yet'}."
        )


def layout_of(sites: dict[str, Site], plates: dict[str, DataPlate]) -> PlateLayout:
    """Which data plates there are, and whether they can share their rows."""
    used = frozenset().union(*(site.plates for site in sites.values()))
    unused = sorted(set(plates) - used)
    if unused:
        raise ValueError(
            f"The plate {unused[0]!r} has `subsample_size` but holds no observed site: put the likelihood inside it "
            "(`numpyro.sample(..., obs=...)` or `numpyro.factor`), or leave `subsample_size` out."
        )
    nested = any(len(site.plates & set(plates)) > 1 for site in sites.values())
    sizes = {plate.size for plate in plates.values()}
    return PlateLayout(tuple(plates.values()), shared=not nested and len(sizes) <= 1)


def base_of(fn: Any) -> Any:
    """The distribution below the wrappers that plates, masks and `to_event` put round it."""
    while isinstance(fn, dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn


def _middle_of(fn: Any) -> jax.Array:
    """A point well inside the support of a distribution."""
    transform = biject_to(fn.support)
    return jnp.broadcast_to(transform(jnp.zeros(transform.inverse_shape(fn.shape()))), fn.shape())


def seeded(seed: int) -> Callable[..., Any]:
    return partial(handlers.seed, rng_seed=seed)


def is_latent(site: dict[str, Any]) -> bool:
    """Whether it is sampled: a Delta has its value already."""
    return site["type"] == "sample" and not site["is_observed"] and not isinstance(base_of(site["fn"]), dist.Delta)


def is_observed(site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and site["is_observed"] and not isinstance(base_of(site["fn"]), dist.Unit)
