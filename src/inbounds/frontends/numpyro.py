"""What is sampled, from a NumPyro model: minibatches come from its plates with `subsample_size`, or from slices of its arguments.

The model does its own indexing. Each evaluation runs it with the latents and the plate's indices put in, so whatever it does
with them (`x[rows]`, `numpyro.subsample`, a lookup in another array) is done as it is written. The log probability of a
site inside the plate is the likelihood, one term per row; every other site belongs to the prior. NumPyro's own scaling of
subsampled sites is divided out, because the library scales.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from inbounds import transforms as tf
from inbounds.contents import arguments_in_words
from inbounds.data.columns import Columns, is_table
from inbounds.data.source import Source
from inbounds.engine.keys import as_key, derived
from inbounds.frontends._numpyro_checks import (
    changing_with_rows,
    check_lengths,
    check_parameters,
    check_start,
    supports_of,
)
from inbounds.frontends._numpyro_groups import NoGroups
from inbounds.frontends._numpyro_model import (
    CalledModel,
    DataPlate,
    LocalLatentError,
    PlateLayout,
    Slices,
    is_observed,
    layout_of,
)
from inbounds.frontends._numpyro_rows import (
    NoSlices,
    adds_up,
    candidates,
    check_rows_used,
    computed_from,
    of_single_rows,
)
from inbounds.posterior import Posterior, middle_of_draws
from inbounds.trees import PyTree

DRAWS_AT_ONCE = 15  # of the prior, from one call

__all__ = ["NumPyroPosterior", "from_numpyro"]


def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> NumPyroPosterior:
    """The posterior of a NumPyro model with continuous latents.

    A plate with `subsample_size` holds the data: `ib.sample` feeds it minibatches (of `subsample_size` rows, unless
    `batch_size` says otherwise), scaled without bias. Plates without it are left alone. Several data plates of one size
    that are not nested share their rows; nested ones, and those of different sizes, draw theirs independently.

    Without any `subsample_size`, an ordinary plate around observed sites holds the data where they are arguments of the model: for a
    minibatch the arguments of its length are cut, and what is inside it is scaled. `ib.sample` takes all the rows unless `batch_size`
    says otherwise. Whether the model allows it is tried out on parts of the data; where it does not, every step takes all the data.

    Draws carry the names of the model's sites. `draws.theta` holds the latents, `draws.deterministics()` the deterministic
    sites that do not depend on the rows of a data plate (where arguments are cut: that have no value for each of more than 256 rows, for
    which there is `draws.predict`), `draws.variables()` both, and
    `numpyro.infer.Predictive(model, draws.flat())` predicts.

    Args:
        model: a function with NumPyro primitives.
        *args, **kwargs: what the model is called with, data included.

    Raises:
        ValueError: the model cannot be sampled by stochastic gradients; the message says which site, and what can be done.

    Returns:
        A `Posterior`, whose variables have the names of the model's sites.

    Example:
        >>> def model(counts):
        ...     rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        ...     with numpyro.plate("rows", len(counts)):
        ...         numpyro.sample("counts", dist.Poisson(rate), obs=counts)
        >>> posterior = ib.from_numpyro(model, np.array([1, 0, 3, 2]))
        >>> posterior.num_data, [name for name, _ in posterior.variables()]
        (4, ['rate'])
    """
    if not any(map(is_table, jax.tree.leaves((args, kwargs)))):
        return _posterior_of(model, args, kwargs)
    return _of_tables(model, args, kwargs)


def _of_tables(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NumPyroPosterior:
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


def _posterior_of(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NumPyroPosterior:
    called = CalledModel(model, jax.tree.map(_as_jax, args), jax.tree.map(_as_jax, kwargs))
    plates = called.plates()
    check_lengths(called, plates)
    try:
        sites = called.sites()
    except LocalLatentError as error:  # no minibatch of the joint posterior is right, but one without that latent is
        from inbounds.frontends._numpyro_integrated import of_local_latents

        return of_local_latents(called, error)
    layout = layout_of(sites, plates)
    supports, beyond = supports_of(called)
    posterior = NumPyroPosterior(called, supports, layout)
    check_start(posterior)
    check_parameters(called, beyond)
    if not plates:
        return _sliced(posterior)
    check_rows_used(posterior, posterior.start(jax.random.key(0)))
    posterior.of_minibatches = changing_with_rows(posterior)
    return posterior


def _sliced(posterior: NumPyroPosterior) -> NumPyroPosterior:
    """The posterior of a model with ordinary plates, with minibatches where it can be cut into them."""
    found = candidates(posterior.called)
    if isinstance(found, NoSlices):
        posterior.no_minibatches = found.reason
        return posterior
    for slices in found:
        layout = PlateLayout(
            tuple(DataPlate(name, slices.size, slices.size) for name in sorted(slices.plates)), shared=True
        )
        cut = NumPyroPosterior(posterior.called, posterior.supports, layout, slices)
        cut._draws, cut._middle = posterior._draws, posterior._middle  # the same functions, compiled once
        problem = adds_up(cut, slices)
        if problem is None:
            cut.of_minibatches = of_single_rows(cut, slices)
            return cut
        posterior.no_minibatches = posterior.no_minibatches or (
            f"its arguments of length {slices.size:,} ({', '.join(slices.arguments)}) cannot be cut: {problem}"
        )
    return posterior


@dataclass(frozen=True)
class SeveralPlates(Source):
    """Independent rows, with replacement, for every data plate: a source of minibatches `{plate: rows}`."""

    plates: tuple[DataPlate, ...]

    def plan(self, key: jax.Array, steps: jax.Array) -> dict[str, jax.Array]:
        def rows(step: jax.Array) -> dict[str, jax.Array]:
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

    or_else = (
        ", or say in the model what a minibatch is: `with numpyro.plate(name, N, subsample_size=n) as rows:` and, inside, `y[rows]` for "
        "every array of the data"
    )

    def __init__(
        self, called: CalledModel, supports: dict[str, Any], layout: PlateLayout, slices: Slices | None = None
    ):
        self.model, self.called, self.layout, self.slices = called.model, called, layout, slices
        self._names = {plate.name for plate in layout.plates}
        # Deterministic sites outside the data plates that depend on their rows. Where arguments are cut: those with a value for each of many.
        self.of_minibatches: frozenset[str] = frozenset()
        if not layout.plates:
            super().__init__(supports=supports, log_prior=self._outside)
        elif slices is not None:
            arrays = called.arrays()
            data = {name: arrays[name] for name in slices.arguments}
            super().__init__(supports=supports, log_prior=self._outside, log_likelihood=self._terms, data=data)
        elif layout.shared:
            rows = jnp.arange(layout.plates[0].size)
            super().__init__(supports=supports, log_prior=self._outside, log_likelihood=self._terms, data=rows)
            self.batch_size = min(plate.batch_size for plate in layout.plates)
        else:
            super().__init__(supports=supports, gradient=self._gradient, data=SeveralPlates(layout.plates))

    @property
    def has_density(self) -> bool:
        return True

    def integrated(self, nodes: int | None = None) -> Posterior:
        """The same with the effects of its groups integrated out, by adaptive Gauss-Hermite quadrature: a row is then a record of groups.

        Args:
            nodes: of the quadrature, per effect; 1 is Laplace's method, None as many as suit.

        Raises:
            ValueError: the model has no such groups; the message says why.
        """
        from inbounds.frontends._numpyro_integrated import integrated  # which is made of this one

        found = integrated(self, nodes)
        if isinstance(found, NoGroups):
            raise ValueError(
                f"No effects can be integrated out: {found.reason or 'no latent of the model is in a plate'}."
            )
        return found

    def without_effects(self) -> tuple[Posterior, str | None]:
        from inbounds.frontends._numpyro_integrated import integrated

        found = integrated(self)
        if not isinstance(found, NoGroups):
            return found.without_effects()
        return self, None if found.reason is None else f"sampled like all variables: {found.reason}."

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
        return self._middle(self._draws(key))

    def prior_draws(self, key: jax.Array, count: int) -> PyTree:
        words = derived(np.asarray(jax.random.key_data(key)), -(-count // DRAWS_AT_ONCE))
        found = [jax.tree.map(np.asarray, self._draws(as_key(block))) for block in words]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *found)

    @cached_property
    def _draws(self) -> Callable[[jax.Array], PyTree]:
        return jax.jit(lambda key: jax.vmap(self._draw)(jax.random.split(key, DRAWS_AT_ONCE)))

    @cached_property
    def _middle(self) -> Callable[[PyTree], PyTree]:
        def middle(draws: PyTree) -> PyTree:
            return {name: middle_of_draws(tf.default(self.supports[name]), value) for name, value in draws.items()}

        return jax.jit(middle)

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

        def values(theta: Any) -> Any:
            trace = self.trace(theta, self._all_rows())
            return {name: site["value"] for name, site in trace.items() if is_observed(site)}

        result: dict[str, np.ndarray] = jax.tree.map(np.asarray, jax.jit(values)(self.start(jax.random.key(0))))
        return result

    def trace(self, theta: PyTree, rows: Any) -> dict[str, Any]:
        """All the sites at theta on some rows, without NumPyro's scaling of data plates."""
        sites, seen = self.called.trace(partial(handlers.substitute, data=theta), rows, self.slices)
        for site in sites.values():
            for frame in self.frames(site):
                if site.get("scale") is not None:
                    site["scale"] = site["scale"] * (frame.size / seen.get(frame.name, frame.size))
        return sites

    def frames(self, site: dict[str, Any]) -> list[Any]:
        """The data plates that a site is in."""
        return [frame for frame in site.get("cond_indep_stack", []) if frame.name in self._names]

    def with_arguments(self, change: Callable[[Any], Any]) -> NumPyroPosterior:
        """The same with every argument of the model changed."""
        called = CalledModel(self.model, *jax.tree.map(change, (self.called.args, self.called.kwargs)))
        return NumPyroPosterior(called, self.supports, self.layout, self.slices)

    def called_with(self, arrays: dict[str, jax.Array]) -> NumPyroPosterior:
        """The same, while a program is traced, with other arrays in the place of the arguments of these names."""
        other = copy(self)
        other.called = self.called.with_arrays(arrays)
        return other

    def fingerprint(self) -> dict[str, str | None]:
        arguments = (self.called.args, self.called.kwargs)
        return super().fingerprint() | {"arguments of the model": arguments_in_words(arguments)}

    def whole_data_because(self) -> str | None:
        return "A NumPyro model holds all its data in every process"

    def _check_data(self, data: PyTree) -> PyTree:
        """As they are: what the model makes of them, NaN among them, has been looked at."""
        return data

    def _outside(self, theta: PyTree, rows: dict[str, jax.Array] | None = None) -> jax.Array:
        """Log density of the sites outside the data plates."""
        if rows is None:
            return self._without_data("density")._outside_on(self._no_rows(), theta)
        return self._outside_on(rows, theta)

    def _outside_on(self, rows: Any, theta: PyTree) -> jax.Array:
        total = jnp.zeros(())
        for site in self.trace(theta, rows).values():
            if site["type"] == "sample" and not self.frames(site):
                scale = 1.0 if site["scale"] is None else site["scale"]
                total = total + jnp.sum(scale * site["fn"].log_prob(site["value"]))
        return total

    def _terms(self, theta: PyTree, rows: jax.Array) -> jax.Array:
        """Log density of the sites inside the data plates, one term per row."""
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

    def _without_data(self, part: str) -> NumPyroPosterior:
        """The same with zeros in the place of its arrays, while a program is traced, where only their shapes matter to a part.

        What a loop over steps captures is a constant of its program, also where nothing reads it, and compilers are slow with large ones.
        """
        if self._reads_arrays[part]:
            return self
        return self.called_with({name: jnp.zeros(x.shape, x.dtype) for name, x in self.called.arrays().items()})

    @cached_property
    def _reads_arrays(self) -> dict[str, bool]:
        """Whether densities outside the data plates, and draws of the prior, are computed from the values of the model's arrays."""

        def parts(arrays: dict[str, Any], theta: PyTree, key: jax.Array) -> dict[str, Any]:
            held = self.called_with(arrays)
            return {"density": held._outside_on(self._no_rows(), theta), "draw": held._drawn(key)}

        key = jax.random.key(0)
        try:
            reads = computed_from(parts, self.called.arrays(), jax.eval_shape(self._drawn, key), key)
        except Exception:  # such as a model that needs the numbers while it is traced
            return {"density": True, "draw": True}
        return {part: any(jax.tree.leaves(flags)) for part, flags in reads.items()}

    def _all_rows(self) -> Any:
        if self.slices is not None:
            return None
        return {plate.name: jnp.arange(plate.size) for plate in self.layout.plates}

    def _draw(self, key: jax.Array) -> PyTree:
        return self._without_data("draw")._drawn(key)

    def _drawn(self, key: jax.Array) -> PyTree:
        trace, _ = self.called.trace(partial(handlers.seed, rng_seed=key), self._no_rows(), self.slices)
        return {name: site["value"] for name, site in trace.items() if name in self.supports}

    def _repr_html_(self) -> str:
        plates = ", ".join(f"{p.name} ({p.size:,} rows, {p.batch_size:,} per step)" for p in self.layout.plates)
        name = html.escape(getattr(self.model, "__name__", type(self.model).__name__))
        return f"<p>NumPyro model {name}; data plates: {html.escape(plates) or 'none'}</p>{super()._repr_html_()}"


def _as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" else leaf
