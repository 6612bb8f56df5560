"""Models of PyMC and bambi as posteriors."""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import transforms as tf
from inbounds.arguments import whole_number
from inbounds.contents import arguments_in_words
from inbounds.frontends._pymc_edges import check_edges
from inbounds.frontends._pymc_graphs import JaxFunction, arrays_in, evaluated, folded
from inbounds.frontends._pymc_model import PyMCModel
from inbounds.frontends._pymc_rows import rows_of
from inbounds.posterior import Posterior
from inbounds.precision import in_double
from inbounds.trees import PyTree

__all__ = ["PyMCPosterior", "from_bambi", "from_pymc"]

JITTER = 1.0  # of starts, in phi: as PyMC's own samplers have it
EDGE = 3.0  # phi of a start on the edge of its support


def from_pymc(model: Any, batch_size: int | None = None) -> PyMCPosterior:
    """The posterior of a PyMC model with continuous free variables.

    The observed variables are the rows of data: `ib.sample` and `ib.infer` take minibatches of them. Several observed variables of the same
    rows are cut together. Which arrays of the model have the rows (constants, `pm.Data`, `pm.Minibatch`) is found out by changing their order.
    Where a model has no independent rows, every step takes all the data; `posterior.no_minibatches` says why.

    Draws have the names of the model's variables, on the variables' own scale. `draws.theta` holds the free variables,
    `draws.deterministics()` the deterministics that read no rows, and `draws.to_arviz()` has the model's coordinates and dimensions.
    `pm.sample_posterior_predictive(draws.to_arviz(), model=model)` predicts.

    Args:
        model: a `pm.Model`.
        batch_size: rows per step of `ib.sample`; None: those of the model's `pm.Minibatch`, and without one all of them.

    Returns:
        A `Posterior`, whose variables have the names of the model's.

    Raises:
        ValueError: the model cannot be sampled by gradients, or not from minibatches and they were asked for. The message says which
            variable, and what can be done.
        ImportError: PyMC is not installed.

    Example:
        >>> import pymc as pm  # doctest: +SKIP
        >>> with pm.Model() as model:  # doctest: +SKIP
        ...     rate = pm.Gamma("rate", 2.0, 1.0)
        ...     pm.Poisson("counts", rate, observed=[1, 0, 3, 2])
        >>> posterior = ib.from_pymc(model, batch_size=2)  # doctest: +SKIP
        >>> posterior.num_data, [name for name, _ in posterior.variables()]  # doctest: +SKIP
        (4, ['rate'])
    """
    pymc = _imported("pymc")
    if not isinstance(model, pymc.Model):
        raise ValueError(f"`model` must be a pm.Model; got {type(model).__name__}.")
    return _posterior_of(PyMCModel(model), batch_size)


def from_bambi(model: Any, batch_size: int | None = None) -> PyMCPosterior:
    """The posterior of a bambi model: that of the PyMC model which bambi makes of it, by `from_pymc`.

    bambi centres its predictors, and what its results call the intercept is that of predictors which are not centred. So it is here:
    `Intercept` is a deterministic, and the free variable is called `Intercept_centered`. `model.predict(draws.to_arviz())` predicts.

    Args:
        model: a `bambi.Model`. It is built where it has not been.
        batch_size: as for `from_pymc`.

    Returns:
        A `Posterior`, whose variables have the names that bambi gives them.

    Raises:
        ValueError: as for `from_pymc`.
        ImportError: bambi is not installed.

    Example:
        >>> import bambi, pandas as pd  # doctest: +SKIP
        >>> data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.2, 2.9]})  # doctest: +SKIP
        >>> posterior = ib.from_bambi(bambi.Model("y ~ x", data))  # doctest: +SKIP
        >>> [name for name, _ in posterior.variables()]  # doctest: +SKIP
        ['sigma', 'Intercept_centered', 'x']
    """
    bambi = _imported("bambi")
    if not isinstance(model, bambi.Model):
        raise ValueError(f"`model` must be a bambi.Model; got {type(model).__name__}.")
    if not model.built:
        model.build()
    graphs = _intercepts(model)
    renamed = {name: f"{name}_centered" for name in graphs}
    return _posterior_of(PyMCModel(model.backend.model, renamed, graphs), batch_size)


def _imported(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise ImportError(
            f'{library} is not installed: pip install "inbounds[pymc]", with Python 3.12 or later'
        ) from error


def _intercepts(model: Any) -> dict[str, Any]:
    """The intercepts of predictors that are not centred, graphs of the PyMC model by the names of the intercepts."""
    import pytensor.tensor as pt
    from bambi.utils import get_aliased_name

    graphs: dict[str, Any] = {}
    if not model.center_predictors:
        return graphs
    for part in model.backend.distributional_components.values():
        terms = part.component.common_terms
        if part.component.intercept_term is None or not terms:
            continue
        intercept = model.backend.model[get_aliased_name(part.component.intercept_term)]
        slopes = [model.backend.model[get_aliased_name(term)] for term in terms.values()]
        rows = [
            slope[None] if slope.ndim == intercept.ndim else slope for slope in slopes
        ]  # one column of the predictors each
        center = np.asarray(part.design_matrix_without_intercept).mean(axis=0)
        graphs[intercept.name] = intercept - pt.tensordot(center, pt.concatenate(rows), axes=1)
    return graphs


def _posterior_of(model: PyMCModel, batch_size: int | None) -> PyMCPosterior:
    posterior = PyMCPosterior(model)
    wanted = model.batch_size if batch_size is None else whole_number("batch_size", batch_size)
    if wanted is None:
        return posterior
    if posterior.num_data is None:
        reason = posterior.no_minibatches or "the model has no observed variable"
        raise ValueError(
            f"batch_size={wanted:,}, but the model has no minibatches: {reason}. Leave `batch_size` and pm.Minibatch out, and every step takes "
            "all the data."
        )
    posterior.batch_size = min(wanted, posterior.num_data)
    return posterior


class PyMCPosterior(Posterior):
    """A `Posterior` whose densities are a PyMC model's. Made by `from_pymc` and `from_bambi`.

    Attributes:
        of_rows: the deterministics that are left out because they have values of single rows.
    """

    def __init__(self, model: PyMCModel):
        self.model = model
        self._transforms = {name: tf.default(support) for name, support in model.supports.items()}
        self._factors = JaxFunction(model.inputs, {name: factor.graph for name, factor in model.factors.items()})
        self._center = self._center_of(model.start)
        self._check_start()
        check_edges(model, self._at, jax.tree.map(np.zeros_like, self._center))
        self.rows = rows_of(model, self._factors, self._points())
        whole = {f"factor {name}": model.factors[name].graph for name in self.rows.whole}
        self._outside = JaxFunction(model.inputs, model.priors | whole)
        if self.rows.cuts:
            super().__init__(
                supports=model.supports, log_prior=self._exact, log_likelihood=self._terms, data=self.rows.data
            )
        else:
            super().__init__(supports=model.supports, log_prior=self._exact)
            self.no_minibatches = self.rows.reason
        self.of_rows = self._reading_rows()
        kept = {name: graph for name, graph in model.deterministics.items() if name not in self.of_rows}
        self._deterministics = JaxFunction(model.inputs, kept)

    @cached_property
    def shapes(self) -> PyTree:
        return jax.eval_shape(self.start, jax.random.key(0))

    def start(self, key: jax.Array) -> PyTree:
        """Where PyMC's samplers start, moved at random by up to 1 in phi."""
        return self._start(key)

    def deterministics(self, theta: PyTree) -> dict[str, jax.Array]:
        """The model's deterministics at theta, but for those with values of single rows."""
        return self._deterministics(theta)

    def observed(self) -> dict[str, np.ndarray]:
        """The values of the observed variables."""
        return dict(zip(self.model.observed, evaluated(list(self.model.observed.values())), strict=True))

    def coordinates(self) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        return self.model.coordinates()

    def fingerprint(self) -> dict[str, str | None]:
        graphs = [*self.model.priors.values(), *(factor.graph for factor in self.model.factors.values())]
        arrays = {f"{place}": array.values for place, array in enumerate(arrays_in(graphs).values())}
        return super().fingerprint() | {"arguments of the model": arguments_in_words(((), arrays))}

    def whole_data_because(self) -> str | None:
        return "A PyMC model holds all its data in every process"

    def _check_data(self, data: PyTree) -> PyTree:
        """As they are: what the model makes of them has been looked at."""
        return data

    def _exact(self, theta: PyTree) -> jax.Array:
        """Log density of the free variables, and of what is looked at in whole."""
        return sum((jnp.sum(term) for term in self._outside(theta).values()), jnp.zeros(()))

    def _terms(self, theta: PyTree, batch: dict[str, Any]) -> jax.Array:
        """Log density of the observations, one term per row."""
        first, *others = (cut.terms(theta, batch) for cut in self.rows.cuts)
        return sum(others, first)

    def _reading_rows(self) -> frozenset[str]:
        """The deterministics that read arrays as long as the rows, when what follows from data alone (a mean) is computed."""
        shortest = min((cut.length for cut in self.rows.cuts), default=np.inf)

        def of_rows(graph: Any) -> bool:
            return any(max(shape) >= shortest for shape, *_ in arrays_in(folded([graph])))

        return frozenset(name for name, graph in self.model.deterministics.items() if of_rows(graph))

    @cached_property
    def _start(self) -> Callable[[jax.Array], PyTree]:
        def start(key: jax.Array) -> PyTree:
            keys = jax.random.split(key, len(self._center))
            return {
                name: self._transforms[name](phi + jax.random.uniform(k, phi.shape, minval=-JITTER, maxval=JITTER))
                for k, (name, phi) in zip(keys, self._center.items(), strict=True)
            }

        return jax.jit(start)

    def _center_of(self, theta: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """phi of a point, moved inside where it lies on the edge of its support."""
        with in_double():
            phi = {name: self._transforms[name].inv(jnp.asarray(value, float)) for name, value in theta.items()}
        return {name: np.nan_to_num(np.asarray(x), nan=0.0, posinf=EDGE, neginf=-EDGE) for name, x in phi.items()}

    def _at(self, moved: dict[str, Any]) -> dict[str, np.ndarray]:
        """theta in double precision, at phi of the centre and a move from there."""
        with in_double():
            return {name: np.asarray(self._transforms[name](phi + moved[name])) for name, phi in self._center.items()}

    def _points(self) -> list[dict[str, np.ndarray]]:
        """Two points without symmetries at which all terms are finite."""
        generator, found = np.random.default_rng(0), []
        for width in (0.5, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
            moved = {name: generator.uniform(-width, width, phi.shape) for name, phi in self._center.items()}
            point = self._at(moved)
            if all(np.isfinite(value).all() for value in self._values(point).values()):
                found.append(point)
        return found[:2]

    def _values(self, theta: PyTree) -> dict[str, np.ndarray]:
        """The factors at a point, in double precision."""
        with in_double():
            return {name: np.asarray(value) for name, value in jax.jit(self._factors.__call__)(theta).items()}

    def _check_start(self) -> None:
        theta = self._at(dict.fromkeys(self._center, 0.0))
        for name, values in self._values(theta).items():
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                start = ", ".join(f"{n} = {np.array2string(x, threshold=4, precision=4)}" for n, x in theta.items())
                raise ValueError(
                    f"The log density is not finite at the start: {name!r} ({self.model.factors[name].kind}) has {values[tuple(bad[0])]} in "
                    f"{len(bad):,} of {values.size:,} terms, first at {tuple(map(int, bad[0]))}, with {start}. Is each observation in the "
                    "support of its distribution? Give the variables an `initval` at which the density is finite."
                )

    def _repr_html_(self) -> str:
        name = html.escape(self.model.model.name or "PyMC model")
        return f"<p>{name}</p>{super()._repr_html_()}"
