"""What is sampled, from a NumPyro model: minibatches come from its plates with `subsample_size`, or from slices of its arguments.

The model does its own indexing. Each evaluation runs it with the latents and the plate's indices put in, so whatever it does
with them (`x[rows]`, `numpyro.subsample`, a lookup in another array) is done as it is written. The log probability of a
site inside the plate is the likelihood, one term a row; every other site belongs to the prior. NumPyro's own scaling of
subsampled sites is divided out, because the library scales.
"""

from __future__ import annotations

import html
import inspect
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
from inbounds.data.columns import Columns, is_table
from inbounds.plate_rows import NoSlices, Slices, adds_up, base_of, candidates, check_rows_used
from inbounds.posterior import Posterior, middle_of_draws
from inbounds.trees import PyTree, variable_name

__all__ = ["NumPyroPosterior", "from_numpyro"]

_DRAWS = 32  # draws from the prior at which parameters of distributions are compared to their bounds
_PROBES = 3  # draws of the latents at which the model is looked at before it is trusted


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> NumPyroPosterior:
    """The posterior of a NumPyro model with continuous latents.

    A plate with `subsample_size` holds the data: `ib.sample` feeds it minibatches (of `subsample_size` rows, unless
    `batch_size` says otherwise), scaled without bias. Plates without it are left alone. Several data plates of one size
    that are not nested share their rows; nested ones, and those of different sizes, draw theirs independently.

    Without any `subsample_size`, an ordinary plate around observed sites holds the data where they are arguments of the model: for a
    minibatch the arguments of its length are cut, and what is inside it is scaled. `ib.sample` takes all the rows unless `batch_size`
    says otherwise. Whether the model allows it is tried out on parts of the data; where it does not, every step takes all the data.

    Draws carry the names of the model's sites. `draws.theta` holds the latents, `draws.deterministics()` the deterministic
    sites that do not depend on the rows of a data plate, `draws.variables()` both, and
    `numpyro.infer.Predictive(model, draws.flat())` predicts.

    Args:
        model: a function with NumPyro primitives.
        *args, **kwargs: what the model is called with, data included.

    Raises:
        ValueError: the model cannot be sampled by stochastic gradients; the message says which site, and what can be done.
    """
    if not any(map(is_table, jax.tree.leaves((args, kwargs)))):
        return _posterior_of(model, args, kwargs)
    return _of_tables(model, args, kwargs)


def _of_tables(model: Callable, args: tuple, kwargs: dict) -> NumPyroPosterior:
    """The posterior of a model that is given tables: as they are where the model can use them so, and as columns of JAX's elsewhere."""
    columns = jax.tree.map(lambda leaf: Columns.of(leaf) if is_table(leaf) else leaf, (args, kwargs))
    try:
        as_given = _posterior_of(model, args, kwargs)
    except Exception as error:
        try:
            return _posterior_of(model, *columns)
        except ValueError:
            raise
        except Exception:
            raise error from None
    if as_given.layout.plates:
        return as_given
    try:  # a table of another library cannot be cut while the model is traced
        cut = _posterior_of(model, *columns)
    except Exception:
        return as_given
    theta = as_given.start(jax.random.key(0))
    same = np.isclose(as_given.log_density(theta), cut.log_density(theta), rtol=1e-5)
    return cut if cut.slices is not None and same else as_given


def _posterior_of(model: Callable, args: tuple, kwargs: dict) -> NumPyroPosterior:
    look = _Look(model, jax.tree.map(_as_jax, args), jax.tree.map(_as_jax, kwargs))
    plates = look.plates()
    _check_lengths(look, plates)
    layout = _layout(look.sites(), plates)
    supports, beyond = _supports(look)
    posterior = NumPyroPosterior(look, supports, layout)
    _check_start(posterior)
    _check_parameters(look, beyond)
    if not plates:
        return _sliced(posterior)
    check_rows_used(posterior, posterior.start(jax.random.key(0)))
    posterior.of_minibatches = _changing_with_rows(posterior)
    return posterior


def _sliced(posterior: NumPyroPosterior) -> NumPyroPosterior:
    """The posterior of a model with ordinary plates, with minibatches where it can be cut into them."""
    found = candidates(posterior._look)
    if isinstance(found, NoSlices):
        posterior.no_minibatches = found.reason
        return posterior
    for slices in found:
        layout = Layout(tuple(DataPlate(name, slices.size, slices.size) for name in sorted(slices.plates)), shared=True)
        cut = NumPyroPosterior(posterior._look, posterior.supports, layout, slices)
        cut._start = posterior._start  # the same function, compiled once
        problem = adds_up(cut, slices)
        if problem is None:
            return cut
        posterior.no_minibatches = posterior.no_minibatches or (
            f"its arguments of length {slices.size:,} ({', '.join(slices.arguments)}) cannot be cut: {problem}"
        )
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

    def __init__(self, look: _Look, supports: dict[str, Any], layout: Layout, slices: Slices | None = None):
        self.model, self._look, self.layout, self.slices = look.model, look, layout, slices
        self._names = {plate.name for plate in layout.plates}
        # Deterministic sites outside the data plates that depend on their rows.
        self.of_minibatches: frozenset[str] = frozenset()
        if not layout.plates:
            super().__init__(supports=supports, log_prior=self._outside)
        elif slices is not None:
            arrays = look.arrays()
            data = {name: arrays[name] for name in slices.arguments}
            super().__init__(supports=supports, log_prior=self._outside, log_likelihood=self._terms, data=data)
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
        for site in self.trace(theta, rows).values():
            if site["type"] == "sample":
                scale = 1.0 if site["scale"] is None else site["scale"]
                for frame in self.frames(site):
                    scale = scale * (self._size_of(frame.name) / frame.size)
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
            for name, site in self.trace(theta, rows).items()
            if site["type"] == "deterministic" and (self.slices is not None or not self.frames(site))
        }

    def observed(self) -> dict[str, np.ndarray]:
        """The data at the observed sites."""

        def values(theta):
            trace = self.trace(theta, self._all_rows())
            return {name: site["value"] for name, site in trace.items() if _is_observed(site)}

        return jax.tree.map(np.asarray, jax.jit(values)(self.start(jax.random.key(0))))

    def trace(self, theta: PyTree, rows: Any) -> dict[str, Any]:
        """All the sites at theta on some rows, without NumPyro's scaling of data plates."""
        sites, seen = self._look.trace(partial(handlers.substitute, data=theta), rows, self.slices)
        for site in sites.values():
            for frame in self.frames(site):
                if site.get("scale") is not None:
                    site["scale"] = site["scale"] * (frame.size / seen.get(frame.name, frame.size))
        return sites

    def frames(self, site: dict) -> list:
        """The data plates that a site is in."""
        return [frame for frame in site.get("cond_indep_stack", []) if frame.name in self._names]

    def with_arguments(self, change: Callable[[Any], Any]) -> NumPyroPosterior:
        """The same with every argument of the model changed."""
        look = _Look(self.model, *jax.tree.map(change, (self._look.args, self._look.kwargs)))
        return NumPyroPosterior(look, self.supports, self.layout, self.slices)

    def _check_data(self, data: PyTree) -> PyTree:
        """As they are: what the model makes of them, NaN among them, has been looked at."""
        return data

    def _outside(self, theta: PyTree, rows: dict[str, jax.Array] | None = None) -> jax.Array:
        """Log density of the sites outside the data plates."""
        trace = self.trace(theta, self._no_rows() if rows is None else rows)
        total = jnp.zeros(())
        for site in trace.values():
            if site["type"] == "sample" and not self.frames(site):
                scale = 1.0 if site["scale"] is None else site["scale"]
                total = total + jnp.sum(scale * site["fn"].log_prob(site["value"]))
        return total

    def _terms(self, theta: PyTree, rows: jax.Array) -> jax.Array:
        """Log density of the sites inside the data plates, one term a row."""
        return sum(self._terms_by_site(theta, rows).values(), jnp.zeros(()))

    def _terms_by_site(self, theta: PyTree, rows: jax.Array) -> dict[str, jax.Array]:
        trace, terms = self.trace(theta, self._rows(rows)), {}
        for name, site in trace.items():
            frames = self.frames(site)
            if site["type"] == "sample" and frames:
                (frame,) = frames
                log_prob = site["fn"].log_prob(site["value"])
                if site["scale"] is not None:
                    log_prob = log_prob * site["scale"]
                others = tuple(axis for axis in range(-log_prob.ndim, 0) if axis != frame.dim)
                terms[name] = jnp.sum(log_prob, axis=others)
        return terms

    def _gradient(self, theta: PyTree, rows: dict[str, jax.Array]) -> PyTree:
        return jax.grad(self.log_density)(theta, rows)

    def _size_of(self, name: str) -> int:
        return next(plate.size for plate in self.layout.plates if plate.name == name)

    def _rows(self, rows: Any) -> Any:
        return rows if isinstance(rows, dict) or rows is None else {plate.name: rows for plate in self.layout.plates}

    def _no_rows(self) -> Any:
        """A row of each plate, for what does not depend on rows; all the arguments where they are cut."""
        if self.slices is not None:
            return None
        return {plate.name: jnp.zeros((1,), int) for plate in self.layout.plates}

    def _all_rows(self) -> Any:
        if self.slices is not None:
            return None
        return {plate.name: jnp.arange(plate.size) for plate in self.layout.plates}

    def _draw(self, key: jax.Array) -> PyTree:
        trace, _ = self._look.trace(partial(handlers.seed, rng_seed=key), self._no_rows(), self.slices)
        return {name: site["value"] for name, site in trace.items() if name in self.supports}

    def _repr_html_(self) -> str:
        plates = ", ".join(f"{p.name} ({p.size:,} rows, {p.batch_size:,} per step)" for p in self.layout.plates)
        name = html.escape(getattr(self.model, "__name__", type(self.model).__name__))
        return f"<p>NumPyro model {name}; data plates: {html.escape(plates) or 'none'}</p>{super()._repr_html_()}"


class _Rows(Messenger):
    """Puts row numbers into the data plates, whatever `subsample_size` the model asked for, and notes the sizes of plates.

    Where arguments are cut, a data plate whose size is not theirs (a number, and not the length of the data) is told how many rows there are.
    """

    def __init__(self, fn: Callable, rows: dict[str, jax.Array], slices: Slices | None = None, cut: dict | None = None):
        self.rows, self.cut = rows, None if cut is None else slices
        self.length = 0 if self.cut is None or cut is None else len(cut[self.cut.arguments[0]])
        self.sizes: dict[str, int] = {}
        super().__init__(fn)

    def process_message(self, msg: dict) -> None:
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
        fn, kind = msg["fn"], type(base_of(msg["fn"])).__name__
        if fn.is_discrete:
            raise ValueError(
                f"The latent {name!r} is discrete ({kind}): gradients do not exist for it. Sum it out, for a mixture with "
                f"dist.MixtureSameFamily; if {name!r} is data, pass its values, for now it has obs=None."
            )
        if isinstance(base_of(fn), dist.ImproperUniform):
            raise ValueError(
                f"The prior of {name!r} is improper (ImproperUniform): a chain cannot start from it, and the posterior may "
                "not exist. Give it a proper prior, such as a wide Normal or HalfCauchy."
            )
        if not isinstance(base_of(fn), dist.Delta):
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
        self.sizes: dict[str, int] = {}  # of all the plates that have been seen

    def plates(self) -> dict[str, DataPlate]:
        """The plates with `subsample_size`, found by running the model once on their first rows."""
        if self._plates is None:
            first = _FirstRows(_Guard(self.model, set()))
            self._plates = first.found
            jax.eval_shape(lambda: self._call(handlers.trace(handlers.seed(first, rng_seed=0))) and None)
        return self._plates

    def trace(
        self, latents: Callable, rows: Any = None, slices: Slices | None = None
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """All the sites, and what sizes the plates say that they have.

        Args:
            latents: a handler that puts the latents in.
            rows: row numbers of every data plate; None: the first of each. With `slices`, the arguments that are cut by their names;
                None: all of the data.
            slices: how arguments are cut, if they are.
        """
        plates, look, numbers = self.plates(), self, rows
        if slices is not None:
            look, numbers = self if rows is None else self._with(rows), {}
        elif rows is None:
            numbers = {plate.name: jnp.arange(plate.batch_size) for plate in plates.values()}
        fed = _Rows(self.model, numbers, slices, rows)
        # A key, so that a model that asks for one (dropout) gets it; the latents do not use it when they are given.
        sites = look._call(handlers.trace(handlers.seed(latents(_Guard(fed, set(plates))), rng_seed=0)))
        return sites, fed.sizes

    def arrays(self) -> dict[str, Any]:
        """The arrays among the arguments, by name."""
        leaves = jax.tree_util.tree_leaves_with_path((self.args, self.kwargs))
        return {self._name(path): leaf for path, leaf in leaves if isinstance(leaf, jax.Array)}

    def _name(self, path: tuple) -> str:
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

    def _with(self, arrays: dict[str, Any]) -> _Look:
        """The same with other arrays in the place of those that have these names."""

        def other(path, leaf):
            return arrays.get(self._name(path), leaf)

        look = _Look(self.model, *jax.tree_util.tree_map_with_path(other, (self.args, self.kwargs)))
        look._plates = self._plates
        return look

    def sites(self, rows: dict[str, jax.Array] | None = None) -> dict[str, Site]:
        """What is known of the sample sites without running the model: nothing is computed."""
        found: dict[str, Site] = {}

        def note():
            for name, site in self.trace(_seed(0), rows)[0].items():
                if site["type"] == "sample":
                    frames = frozenset(frame.name for frame in site["cond_indep_stack"])
                    self.sizes.update({frame.name: frame.size for frame in site["cond_indep_stack"]})
                    found[name] = Site(_is_latent(site), frames, type(base_of(site["fn"])).__name__)
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
        arrays = [f"{name} {list(x.shape)}" for name, x in self.arrays().items()]
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


def _supports(look: _Look) -> tuple[dict[str, Any], list[dict[str, dict[str, np.ndarray]]]]:
    """The supports of the latents, which must be the same wherever the latents are; and how far draws take parameters out of range."""

    @jax.jit
    def supports(seed):
        trace, _ = look.trace(_seed(seed))
        found = {name: site["fn"].support for name, site in trace.items() if _is_latent(site)}
        return found, {name: _worst_parameters(site["fn"]) for name, site in trace.items() if site["type"] == "sample"}

    looks = [jax.tree.map(np.asarray, supports(seed)) for seed in range(_DRAWS)]
    first, *others = [found for found, _ in looks[:_PROBES]]
    if not first:
        raise ValueError("The model has no latent site to sample: every `numpyro.sample` has `obs`.")
    for name, support in first.items():
        if not all(_same_support(support, other[name]) for other in others):
            raise ValueError(
                f"The support of {name!r} changes with another latent: {support}, then {others[0][name]}. Draw it on a "
                f"fixed support and move it: for a uniform on (0, b), u = numpyro.sample('{name}_unit', dist.Uniform(0, 1)) "
                f"and {name} = numpyro.deterministic({name!r}, b * u)."
            )
    return first, [beyond for _, beyond in looks]


def _worst_parameters(fn: Any) -> dict[str, jax.Array]:
    """How far each parameter of a distribution is beyond the bounds that NumPyro says it has; 0 within, and where it is NaN.

    At a bound is no fault: a positive number may underflow to zero.
    """
    base, beyond = base_of(fn), {}
    for name, constraint in base.arg_constraints.items():
        lower, upper = getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)
        value = getattr(base, name, None)
        if (lower is None and upper is None) or not hasattr(value, "dtype"):
            continue
        value = jnp.asarray(value, float)
        below = 0.0 if lower is None else jnp.max(jnp.nan_to_num(lower - value), initial=0.0)
        above = 0.0 if upper is None else jnp.max(jnp.nan_to_num(value - upper), initial=0.0)
        beyond[name] = jnp.maximum(below, above)
    return beyond


def _check_parameters(look: _Look, draws: list[dict[str, dict[str, np.ndarray]]]) -> None:
    """Refuse a model whose prior gives a distribution parameters that it cannot have: nothing keeps a chain from them."""
    for site in draws[0]:
        for parameter in draws[0][site]:
            seeds = [seed for seed, beyond in enumerate(draws) if beyond[site][parameter] > 1e-5]
            if not seeds:
                continue
            feeds, kind = _feeding(look, site, parameter, seeds[0]), look.sites()[site].kind
            raise ValueError(
                f"The parameter {parameter!r} of {site!r} ({kind}) lies outside {_wanted(look, site, parameter)} in {len(seeds)} of "
                f"{len(draws)} draws from the prior, and a chain would be free to go there. It is computed from "
                f"{', '.join(map(repr, feeds)) or 'the arguments'}: give that a prior with the right support (for a positive number "
                "LogNormal, Gamma, HalfNormal or dist.TruncatedNormal(mean, sd, low=0)), or compute the parameter so that it cannot "
                "leave its range (jnp.exp, jax.nn.softplus, jax.nn.sigmoid)."
            )


def _wanted(look: _Look, site: str, parameter: str) -> str:
    found: list = []
    jax.eval_shape(lambda: found.append(base_of(look.trace(_seed(0))[0][site]["fn"]).arg_constraints[parameter]))
    (constraint,) = found
    lower, upper = getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)
    ends = [
        ("-inf", "inf")[place] if end is None else f"{np.asarray(end).item():g}"
        for place, end in enumerate((lower, upper))
    ]
    return f"({ends[0]}, {ends[1]})"


def _feeding(look: _Look, site: str, parameter: str, seed: int) -> list[str]:
    """The latents that a parameter changes with."""

    def values(seed, fixed):
        def put(fn):
            return handlers.substitute(handlers.seed(fn, rng_seed=seed), data=fixed)

        trace, _ = look.trace(put)
        latents = {name: s["value"] for name, s in trace.items() if _is_latent(s)}
        return latents, getattr(base_of(trace[site]["fn"]), parameter)

    run = jax.jit(values, static_argnums=0)  # traced, NumPyro does not refuse the parameter itself
    one, before = run(seed, {})
    other, _ = run(seed + 1, {})
    return [
        name for name in one if name != site and not np.array_equal(before, run(seed, one | {name: other[name]})[1])
    ]


def _same_support(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    return all(np.array_equal(x, y) for x, y in zip(tf.bounds(a), tf.bounds(b), strict=True))


def _check_lengths(look: _Look, plates: dict[str, DataPlate]) -> None:
    """Rows beyond the end of an array: JAX would silently repeat its last row, NumPy says so."""
    arrays = list(look.arrays().items())
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
        sites = {name: site for name, site in posterior.trace(theta, rows).items() if site["type"] == "sample"}
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


def _is_latent(site: dict) -> bool:
    """Whether it is sampled: a Delta has its value already."""
    return site["type"] == "sample" and not site["is_observed"] and not isinstance(base_of(site["fn"]), dist.Delta)


def _is_observed(site: dict) -> bool:
    return site["type"] == "sample" and site["is_observed"] and not isinstance(base_of(site["fn"]), dist.Unit)


def _as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" else leaf
