"""What is sampled, from a NumPyro model: its plates with `subsample_size` are where minibatches come from.

The model does its own indexing. Each evaluation runs it with the latents and the plate's indices put in, so whatever it does
with them (`x[rows]`, `numpyro.subsample`, a lookup in another array) is done as it is written. The log probability of a
site inside the plate is the likelihood, one term a row; every other site belongs to the prior. NumPyro's own scaling of
subsampled sites is divided out, because the library scales.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

from inbounds import transforms as tf
from inbounds.posterior import Posterior, middle_of_draws
from inbounds.trees import PyTree

__all__ = ["NumPyroPosterior", "from_numpyro"]

_PROBES = 3  # draws of the latents at which the model is looked at before it is trusted


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> NumPyroPosterior:
    """The posterior of a NumPyro model with continuous latents.

    A plate with `subsample_size` holds the data: `ib.sample` feeds it minibatches (of `subsample_size` rows, unless
    `batch_size` says otherwise), scaled without bias. Plates without it are left alone. Several data plates of one size
    that are not nested share their rows; nested ones, and those of different sizes, draw theirs independently.

    Draws carry the names of the model's sites. `draws.theta` holds the latents, `draws.deterministics()` the deterministic
    sites that do not depend on the rows of a data plate, `draws.variables()` both, and
    `numpyro.infer.Predictive(model, draws.flat())` predicts.

    Args:
        model: a function with NumPyro primitives.
        *args, **kwargs: what the model is called with, data included.

    Raises:
        ValueError: the model cannot be sampled by stochastic gradients; the message says which site, and what can be done.
    """
    look = _Look(model, jax.tree.map(_as_jax, args), jax.tree.map(_as_jax, kwargs))
    plates = look.plates()
    _check_lengths(look, plates)
    layout = _layout(look.sites(), plates)
    posterior = NumPyroPosterior(look, _supports(look), layout)
    _check_start(posterior)
    posterior.of_minibatches = _changing_with_rows(posterior)
    return posterior


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


class Layout(NamedTuple):
    """How minibatches enter: the data plates, and whether one vector of rows serves all of them."""

    plates: tuple[DataPlate, ...]
    shared: bool


@dataclass(frozen=True)
class SeveralPlates:
    """Independent rows, with replacement, for every data plate: a source of minibatches `{plate: rows}`."""

    plates: tuple[DataPlate, ...]

    def prepare(self, key: jax.Array) -> None:
        return None

    def plan(self, key: jax.Array, steps: jax.Array) -> dict[str, jax.Array]:
        def rows(step):
            keys = jax.random.split(jax.random.fold_in(key, step), len(self.plates))
            return {
                plate.name: jax.random.randint(k, (plate.batch_size,), 0, plate.size)
                for k, plate in zip(keys, self.plates, strict=True)
            }

        return jax.vmap(rows)(steps)

    def fetch(self, arrays: None, plan: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return plan

    def all_rows(self) -> dict[str, jax.Array]:
        """The minibatch that is all the data."""
        return {plate.name: jnp.arange(plate.size) for plate in self.plates}


class NumPyroPosterior(Posterior):
    """A `Posterior` whose densities are a NumPyro model's. Made by `from_numpyro`.

    With one data plate (or several of one size that are not nested) a datum is a row number, and every estimator applies. With
    nested ones, or several sizes, the gradient of the scaled log density is used as it is: no control variates.
    """

    def __init__(self, look: _Look, supports: dict[str, Any], layout: Layout):
        self.model, self._look, self.layout = look.model, look, layout
        self._names = {plate.name for plate in layout.plates}
        # Deterministic sites outside the data plates that depend on their rows.
        self.of_minibatches: frozenset[str] = frozenset()
        if not layout.plates:
            super().__init__(supports=supports, log_prior=self._outside)
        elif layout.shared:
            rows = jnp.arange(layout.plates[0].size)
            super().__init__(supports=supports, log_prior=self._outside, log_likelihood=self._terms, data=rows)
            self.batch_size = min(plate.batch_size for plate in layout.plates)
        else:
            super().__init__(supports=supports, gradient=self._gradient, data=SeveralPlates(layout.plates))

    @cached_property
    def shapes(self) -> PyTree:
        return jax.eval_shape(self._draw, jax.random.key(0))

    def log_density(self, theta: PyTree, rows: Any = None) -> jax.Array:
        """log p(theta, data), from all the data or, without bias, from the given rows of every data plate."""
        rows = self._all_rows() if rows is None else self._rows(rows)
        total = jnp.zeros(())
        for site in self._run(theta, rows).values():
            if site["type"] == "sample":
                scale = 1.0 if site["scale"] is None else site["scale"]
                total = total + jnp.sum(scale * site["fn"].log_prob(site["value"]))
        return total

    def start(self, key: jax.Array) -> PyTree:
        """A draw of the model's own prior, pulled towards its middle."""
        return self._start(key)

    @cached_property
    def _start(self) -> Callable[[jax.Array], PyTree]:
        def start(key):
            draws = jax.vmap(self._draw)(jax.random.split(key, 15))
            return {name: middle_of_draws(tf.default(self.supports[name]), value) for name, value in draws.items()}

        return jax.jit(start)

    def deterministics(self, theta: PyTree) -> dict[str, jax.Array]:
        """The model's deterministic sites at theta; those that belong to a minibatch are left out.

        Those are the ones inside a data plate, and the ones outside that depend on its rows.
        """
        sites = self._deterministic_sites(theta, self._no_rows())
        return {name: value for name, value in sites.items() if name not in self.of_minibatches}

    def _deterministic_sites(self, theta: PyTree, rows: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {
            name: jnp.asarray(site["value"])
            for name, site in self._run(theta, rows).items()
            if site["type"] == "deterministic" and not self._frames(site)
        }

    def observed(self) -> dict[str, np.ndarray]:
        """The data at the observed sites."""

        def values(theta):
            trace = self._run(theta, self._all_rows())
            return {name: site["value"] for name, site in trace.items() if _is_observed(site)}

        return jax.tree.map(np.asarray, jax.jit(values)(self.start(jax.random.key(0))))

    def _run(self, theta: PyTree, rows: dict[str, jax.Array]) -> dict[str, Any]:
        return self._look.trace(partial(handlers.substitute, data=theta), rows)

    def _frames(self, site: dict) -> list:
        return [frame for frame in site.get("cond_indep_stack", []) if frame.name in self._names]

    def _outside(self, theta: PyTree, rows: dict[str, jax.Array] | None = None) -> jax.Array:
        """Log density of the sites outside the data plates."""
        trace = self._run(theta, self._no_rows() if rows is None else rows)
        total = jnp.zeros(())
        for site in trace.values():
            if site["type"] == "sample" and not self._frames(site):
                scale = 1.0 if site["scale"] is None else site["scale"]
                total = total + jnp.sum(scale * site["fn"].log_prob(site["value"]))
        return total

    def _terms(self, theta: PyTree, rows: jax.Array) -> jax.Array:
        """Log density of the sites inside the data plates, one term a row."""
        return sum(self._terms_by_site(theta, rows).values(), jnp.zeros(()))

    def _terms_by_site(self, theta: PyTree, rows: jax.Array) -> dict[str, jax.Array]:
        trace, terms = self._run(theta, self._rows(rows)), {}
        for name, site in trace.items():
            frames = self._frames(site)
            if site["type"] == "sample" and frames:
                (frame,) = frames
                log_prob = site["fn"].log_prob(site["value"])
                if site["scale"] is not None:
                    log_prob = log_prob * (site["scale"] * (frame.size / self._size_of(frame.name)))
                others = tuple(axis for axis in range(-log_prob.ndim, 0) if axis != frame.dim)
                terms[name] = jnp.sum(log_prob, axis=others)
        return terms

    def _gradient(self, theta: PyTree, rows: dict[str, jax.Array]) -> PyTree:
        return jax.grad(self.log_density)(theta, rows)

    def _size_of(self, name: str) -> int:
        return next(plate.size for plate in self.layout.plates if plate.name == name)

    def _rows(self, rows: Any) -> dict[str, jax.Array]:
        return rows if isinstance(rows, dict) else {plate.name: rows for plate in self.layout.plates}

    def _no_rows(self) -> dict[str, jax.Array]:
        """A row of each plate, for what does not depend on rows."""
        return {plate.name: jnp.zeros((1,), int) for plate in self.layout.plates}

    def _all_rows(self) -> dict[str, jax.Array]:
        return {plate.name: jnp.arange(plate.size) for plate in self.layout.plates}

    def _draw(self, key: jax.Array) -> PyTree:
        trace = self._look.trace(partial(handlers.seed, rng_seed=key), self._no_rows())
        return {name: site["value"] for name, site in trace.items() if name in self.supports}

    def _repr_html_(self) -> str:
        plates = ", ".join(f"{p.name} ({p.size:,} rows, {p.batch_size:,} a step)" for p in self.layout.plates)
        name = html.escape(getattr(self.model, "__name__", type(self.model).__name__))
        return f"<p>NumPyro model {name}; data plates: {html.escape(plates) or 'none'}</p>{super()._repr_html_()}"


class _Rows(Messenger):
    """Puts row numbers into the data plates, whatever `subsample_size` the model asked for."""

    def __init__(self, fn: Callable, rows: dict[str, jax.Array]):
        self.rows = rows
        super().__init__(fn)

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "plate" and msg["name"] in self.rows:
            msg["value"] = self.rows[msg["name"]]
            msg["args"] = (msg["args"][0], len(msg["value"]))


class _FirstRows(Messenger):
    """Gives every data plate its first rows and notes its size: the first look at a model."""

    def __init__(self, fn: Callable):
        self.found: dict[str, DataPlate] = {}
        super().__init__(fn)

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "plate" and msg["args"][1] is not None:
            size, batch_size = msg["args"]
            self.found[msg["name"]] = DataPlate(msg["name"], size, batch_size)
            msg["value"] = jnp.arange(batch_size)


class _Guard(Messenger):
    """Stops at the first site that cannot be sampled by gradients, before NumPyro tries to draw it."""

    def __init__(self, fn: Callable, plates: set[str]):
        self.plates = plates
        super().__init__(fn)

    def process_message(self, msg: dict) -> None:
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
        fn, kind = msg["fn"], type(_base(msg["fn"])).__name__
        if fn.is_discrete:
            raise ValueError(
                f"The latent {name!r} is discrete ({kind}): gradients do not exist for it. Sum it out, for a mixture with "
                f"dist.MixtureSameFamily; if {name!r} is data, pass its values, for now it has obs=None."
            )
        if isinstance(_base(fn), dist.ImproperUniform):
            raise ValueError(
                f"The prior of {name!r} is improper (ImproperUniform): a chain cannot start from it, and the posterior may "
                "not exist. Give it a proper prior, such as a wide Normal or HalfCauchy."
            )
        if not isinstance(_base(fn), dist.Delta):
            self._check_local(msg)

    def _check_local(self, msg: dict) -> None:
        for frame in msg["cond_indep_stack"]:
            if frame.name in self.plates:
                name, plate = msg["name"], frame.name
                raise ValueError(
                    f"The latent {name!r} is inside the data plate {plate!r}: one value a datum, of which a minibatch "
                    "would move only its own, and the chain would have no stationary law. Either sum or integrate it out "
                    f"of the likelihood; or leave `subsample_size` out of {plate!r}, and all of {name!r} is sampled from "
                    f"all the data; or draw {name!r} in a plate of its own without `subsample_size` and look its values up "
                    f"with the rows of {plate!r}. If {name!r} is data, pass its values: for now it has obs=None."
                )


class _Look:
    """A model with what it is called with."""

    def __init__(self, model: Callable, args: tuple, kwargs: dict):
        if not callable(model):
            raise ValueError(f"`model` must be a function with NumPyro primitives; got {type(model).__name__}.")
        self.model, self.args, self.kwargs = model, args, kwargs
        self._plates: dict[str, DataPlate] | None = None

    def plates(self) -> dict[str, DataPlate]:
        """The plates with `subsample_size`, found by running the model once on their first rows."""
        if self._plates is None:
            first = _FirstRows(_Guard(self.model, set()))
            self._plates = first.found
            jax.eval_shape(lambda: self._call(handlers.trace(handlers.seed(first, rng_seed=0))) and None)
        return self._plates

    def trace(self, latents: Callable, rows: dict[str, jax.Array] | None = None) -> dict[str, Any]:
        """All the sites, with the latents that the handler `latents` puts in; rows None: the first of each plate."""
        plates = self.plates()
        if rows is None:
            rows = {plate.name: jnp.arange(plate.batch_size) for plate in plates.values()}
        guarded = _Guard(_Rows(self.model, rows), set(plates))
        # A key, so that a model that asks for one (dropout) gets it; the latents do not use it when they are given.
        return self._call(handlers.trace(handlers.seed(latents(guarded), rng_seed=0)))

    def sites(self, rows: dict[str, jax.Array] | None = None) -> dict[str, Site]:
        """What is known of the sample sites without running the model: nothing is computed."""
        found: dict[str, Site] = {}

        def note():
            for name, site in self.trace(_seed(0), rows).items():
                if site["type"] == "sample":
                    frames = frozenset(frame.name for frame in site["cond_indep_stack"])
                    found[name] = Site(_is_latent(site), frames, type(_base(site["fn"])).__name__)
                    self._check_shape(name, site)

        jax.eval_shape(note)
        return found

    def _check_shape(self, name: str, site: dict) -> None:
        got, want = np.shape(site["value"]), tuple(site["fn"].shape())
        try:
            np.broadcast_shapes(got, want)
        except ValueError:
            problem = f"the observations of {name!r} have shape {got}, and its distribution {want}"
            raise ValueError(self._shapes_message(problem)) from None

    def _call(self, traced: handlers.trace) -> dict[str, Any]:
        try:
            return traced.get_trace(*self.args, **self.kwargs)
        except jax.errors.TracerArrayConversionError as error:
            raise ValueError(
                "The model indexes a NumPy array with the rows of a plate, which JAX cannot trace. Pass the array as an "
                "argument of the model, or make it a JAX array with jnp.asarray."
            ) from error
        except (ValueError, TypeError) as error:
            if "broadcast" not in str(error).lower() and "incompatible shapes" not in str(error).lower():
                raise
            raise ValueError(self._shapes_message(str(error))) from error

    def _shapes_message(self, problem: str) -> str:
        plates = ", ".join(
            f"{p.name!r} ({p.size:,} rows, {p.batch_size:,} a step)" for p in (self._plates or {}).values()
        )
        arrays = [f"{name} {list(x.shape)}" for name, x in _arrays(self.args, self.kwargs)]
        return (
            f"The model fails with shapes that do not fit: {problem}. Data of another length than their plate, or not "
            "indexed by its rows, are the usual cause: write `with numpyro.plate(name, N, subsample_size=n) as rows:` and "
            f"use `x[rows]` for every array inside. Data plates: {plates or 'none found yet'}; arrays given: "
            f"{', '.join(arrays) or 'none'}."
        )


def _layout(sites: dict[str, Site], plates: dict[str, DataPlate]) -> Layout:
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
    return Layout(tuple(plates.values()), shared=not nested and len(sizes) <= 1)


def _supports(look: _Look) -> dict[str, Any]:
    """The supports of the latents, which must be the same wherever the latents are."""

    @jax.jit
    def supports(seed):
        trace = look.trace(_seed(seed))
        return {name: site["fn"].support for name, site in trace.items() if _is_latent(site)}

    first, *others = [jax.tree.map(np.asarray, supports(seed)) for seed in range(_PROBES)]
    if not first:
        raise ValueError("The model has no latent site to sample: every `numpyro.sample` has `obs`.")
    for name, support in first.items():
        if not all(_same_support(support, other[name]) for other in others):
            raise ValueError(
                f"The support of {name!r} changes with another latent: {support}, then {others[0][name]}. Draw it on a "
                f"fixed support and move it: for a uniform on (0, b), u = numpyro.sample('{name}_unit', dist.Uniform(0, 1)) "
                f"and {name} = numpyro.deterministic({name!r}, b * u)."
            )
    return first


def _same_support(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    return all(np.array_equal(x, y) for x, y in zip(tf.bounds(a), tf.bounds(b), strict=True))


def _check_lengths(look: _Look, plates: dict[str, DataPlate]) -> None:
    """Rows beyond the end of an array: JAX would silently repeat its last row, NumPy says so."""
    arrays = _arrays(look.args, look.kwargs)
    for plate in plates.values():
        lengths = {size for _, x in arrays for size in x.shape}
        longer = [f"{name} {list(x.shape)}" for name, x in arrays if x.ndim and x.shape[0] > plate.size]
        if plate.size not in lengths and longer:
            raise ValueError(
                f"The plate {plate.name!r} has {plate.size:,} rows, but no array given has that length, and longer ones "
                f"there are: {', '.join(longer)}. Let the plate's size be the length of the data."
            )
    to_numpy = partial(jax.tree.map, lambda x: np.asarray(x) if isinstance(x, jax.Array) else x)
    numpy_look = _Look(look.model, to_numpy(look.args), to_numpy(look.kwargs))
    numpy_look._plates = plates
    last_rows = {plate.name: jnp.asarray([plate.size - 1]) for plate in plates.values()}
    try:
        numpy_look.sites(last_rows)
    except IndexError as error:
        sizes = ", ".join(f"{plate.name!r} has {plate.size:,} rows" for plate in plates.values())
        given = ", ".join(f"{name} {list(x.shape)}" for name, x in arrays)
        raise ValueError(
            f"Data of another length than their plate: {sizes}, and {error}. Arrays given: {given}. Let the plate's size be "
            "the length of the data."
        ) from error
    except Exception:  # a model that does not run on NumPy arrays says nothing about lengths
        return


def _check_start(posterior: NumPyroPosterior) -> None:
    """What can only be seen in numbers: a density that is not finite, and one that hides data from the scaling."""
    plates = posterior.layout.plates
    theta = posterior.start(jax.random.key(0))
    widths = {plate.name: min(plate.size, plate.batch_size) for plate in plates}
    if posterior.layout.shared and plates:
        widths = dict.fromkeys(widths, min(widths.values()))
    first = {name: jnp.arange(width) for name, width in widths.items()}
    last = {plate.name: plate.size - widths[plate.name] + first[plate.name] for plate in plates}

    @jax.jit
    def look(theta, rows):
        sites = {name: site for name, site in posterior._run(theta, rows).items() if site["type"] == "sample"}
        log_probs = {name: site["fn"].log_prob(site["value"]) for name, site in sites.items()}
        return (
            log_probs,
            {name: site["value"] for name, site in sites.items()},
            jax.grad(posterior.log_density)(theta, rows),
        )

    sites = posterior._look.sites()
    looks = [jax.tree.map(np.asarray, look(theta, rows)) for rows in ((first, last) if plates else (first,))]
    for log_probs, values, gradient in looks:
        for name, log_prob in log_probs.items():
            if not np.all(np.isfinite(log_prob)):
                raise ValueError(_not_finite(name, sites[name].kind, log_prob, values[name], theta))
        for name, value in gradient.items():
            if not np.all(np.isfinite(value)):
                raise ValueError(
                    f"The log density is finite at the start, but its gradient in {name!r} is not ({_short(value)}), with "
                    f"{_values(theta)}. Look for a square root, a logarithm or a norm at 0 in the model."
                )
    for name, site in sites.items():
        if not site.plates & set(widths) and not np.array_equal(looks[0][0][name], looks[-1][0][name]):
            raise ValueError(
                f"The site {name!r} is outside the data plate {plates[0].name!r} but depends on its rows, so it would not be "
                f"scaled to all the data. Move it inside: `with numpyro.plate({plates[0].name!r}, ...)`, one term a row."
            )


def _changing_with_rows(posterior: NumPyroPosterior) -> frozenset[str]:
    """The deterministic sites outside the data plates whose values are others for other rows."""
    plates = posterior.layout.plates
    if not plates:
        return frozenset()
    theta, sites = posterior.start(jax.random.key(0)), jax.jit(posterior._deterministic_sites)
    last = {plate.name: jnp.array([plate.size - 1]) for plate in plates}
    some = {plate.name: jnp.arange(min(plate.size, plate.batch_size)) for plate in plates}
    first, *others = [jax.tree.map(np.asarray, sites(theta, rows)) for rows in (posterior._no_rows(), last, some)]
    return frozenset(
        name
        for name, value in first.items()
        if any(not np.array_equal(value, x[name], equal_nan=value.dtype.kind in "fc") for x in others)
    )


def _not_finite(name: str, kind: str, log_prob: np.ndarray, value: np.ndarray, theta: dict) -> str:
    bad = np.argwhere(~np.isfinite(log_prob))
    where = (
        "" if log_prob.ndim == 0 else f" in {len(bad):,} of {log_prob.size:,} terms, first at {tuple(map(int, bad[0]))}"
    )
    shown = _short(value[tuple(bad[0])] if log_prob.ndim and value.ndim >= log_prob.ndim else value)
    return (
        f"The log density is not finite at the start: site {name!r} ({kind}) has log probability {log_prob[tuple(bad[0])]}"
        f"{where}, where its value is {shown}. The start is {_values(theta)}. Is that value in the support of {kind}, and are "
        "the parameters that the model computes for it?"
    )


def _values(start: dict) -> str:
    return ", ".join(f"{name} = {_short(value)}" for name, value in start.items())


def _short(value: Any) -> str:
    value = np.asarray(value)
    if value.size <= 4:
        return np.array2string(value, precision=4, separator=", ")
    return f"an array of shape {value.shape} from {value.min():.4g} to {value.max():.4g}"


def _seed(seed: int) -> Callable:
    return partial(handlers.seed, rng_seed=seed)


def _base(fn: Any) -> Any:
    """The distribution below the wrappers that plates, masks and `to_event` put round it."""
    while isinstance(fn, dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution):
        fn = fn.base_dist
    return fn


def _is_latent(site: dict) -> bool:
    """Whether it is sampled: a Delta has its value already."""
    return site["type"] == "sample" and not site["is_observed"] and not isinstance(_base(site["fn"]), dist.Delta)


def _is_observed(site: dict) -> bool:
    return site["type"] == "sample" and site["is_observed"] and not isinstance(_base(site["fn"]), dist.Unit)


def _as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" else leaf


def _arrays(args: tuple, kwargs: dict) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path((args, kwargs))
    return [
        (jax.tree_util.keystr(path[1:]).strip("[]'\""), leaf) for path, leaf in leaves if isinstance(leaf, jax.Array)
    ]
