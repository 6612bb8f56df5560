"""SGLD on tables with one row per label. Each row is moved when a minibatch touches it, by all the time since it last was."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import ExpandedDistribution

from inbounds import gradients, trees
from inbounds.data.arrays import is_source
from inbounds.engine import normal_like
from inbounds.kernels._base import Info, Kernel, MakeInfo, as_preconditioner, check_arguments, kernel_factory
from inbounds.kernels._temperature import Temperature
from inbounds.posterior import Posterior, is_distribution
from inbounds.preconditioners import PreconditionerLike
from inbounds.space import Space
from inbounds.trees import PyTree


class State(NamedTuple):
    phi: PyTree
    step: jax.Array  # steps done
    last: dict[str, jax.Array]  # for each column of row numbers: the step at which each row last moved
    preconditioner: Any


@kernel_factory
def lazy_rows(
    posterior: Posterior,
    rows: dict[str, str],
    transforms: PyTree = None,
    *,
    preconditioner: PreconditionerLike = None,
    temperature: Temperature = 1.0,
) -> Kernel:
    r"""`ib.sgld` for factor models that leaves a row of a table alone until a minibatch has data of it.

    $$\varphi_i' = \varphi_i + k \epsilon \left( f'(\varphi_i)\, \nabla \log p(\theta_i) + \frac{f''(\varphi_i)}{f'(\varphi_i)} \right)
      + \epsilon f'(\varphi_i) \frac{N}{|S|} \sum_{x \in S} \nabla_{\theta_i} \log p(x \mid \theta) + \sqrt{2 k \epsilon T}\, \eta
      \quad \text{where row } i \text{ is touched}$$

    with $k$ the number of steps since the row last moved, this one included. Over those steps `ib.sgld` would have moved the row $k$
    times by the prior and the noise, and only this once by the data; here it is one move of the same length. Where every row is
    touched at every step the two are the same. Otherwise the row moves as under a step size of $k \epsilon$, so that the bias is of
    first order in $k \epsilon$, for the mean $k$ of the row: $N / (|S| n_i)$ where it has $n_i$ data. Noise and arithmetic of a step
    are those of the minibatch, whatever the size of the tables.

    That takes a prior that is a sum over rows, the same for each of them; it may depend on variables that are no tables. And
    a term of the likelihood must read one row of a table, the one that its column names. A row without data stays where it
    started: leave such rows out, or draw them from the prior.

    Args:
        posterior: priors and a likelihood on data with named columns; a dict of variables.
        rows: which column of the data holds the row numbers of which variable, such as `{"W": "user", "H": "item"}`. The other
            variables move at every step, as under `ib.sgld`.
        transforms: $f$, as for `ib.sgld`.
        preconditioner: $M$, with $\epsilon$ replaced by $\epsilon M$: None, a tree of positive scales, or a function of theta that makes
            one (the scale of a variable may not depend on that variable itself).
        temperature: $T$; 1 samples the posterior. A number, an array of one number per chain, or a function of the step number such as
            those of `ib.schedules`. What is not a number is part of the state of each chain, where it may be traced and exchanged.

    The `gradient_norm` of its `Info` is over the drifts that the data of the minibatch cause one by one.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: `rows` names no variable or column that is there, the preconditioner adapts, or the prior is not a sum over rows.

    Example:
        >>> table = {"user": np.array([0, 0, 1, 2, 2, 2]), "count": np.array([1, 3, 2, 0, 1, 1])}
        >>> def log_likelihood(theta, batch):
        ...     return dist.Poisson(theta["x"][batch["user"]]).log_prob(batch["count"])
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0).expand([3])}, log_likelihood, table)
        >>> kernel = ib.lazy_rows(posterior, {"x": "user"})
        >>> draws = ib.sample(kernel, 0.02, 150, burn_in=100, batch_size=2, progress=False)
        >>> draws.theta["x"].shape
        (1, 50, 3)
    """
    temperature = check_arguments(posterior, temperature)
    _check(posterior, rows)
    space = Space.of(posterior.supports, transforms)
    precondition = as_preconditioner(preconditioner)
    if precondition.adapt_steps:
        raise ValueError(
            "lazy_rows cannot adapt a preconditioner: it sees few rows per step. Give a tree of scales, or a function of theta."
        )
    log_likelihood, total = posterior.log_likelihood, posterior.num_data
    assert log_likelihood is not None
    assert total is not None
    log_prior = _prior_of_any_rows(posterior, rows)
    columns = tuple(dict.fromkeys(rows.values()))
    largest = _largest(posterior, columns)

    def init(theta: PyTree) -> State:
        lengths = _lengths(space, theta, rows, largest)
        _check_prior(log_prior, theta, rows)
        phi = space.unconstrain(theta)
        last = {column: jnp.zeros(length, jnp.int32) for column, length in lengths.items()}
        return State(phi, jnp.zeros((), jnp.int32), last, precondition.init(phi))

    def of_one(theta: dict[str, jax.Array], datum: PyTree) -> jax.Array:
        """The term of a datum, in tables that have no row but its own: no gather, and so no scatter in the gradient."""
        tables = {name: value[None] if name in rows else value for name, value in theta.items()}
        batch = jax.tree.map(lambda value: value[None], datum) | dict.fromkeys(columns, jnp.zeros(1, jnp.int32))
        return log_likelihood(tables, batch)[0]

    def likelihood_gradient(theta: dict[str, Any], batch: PyTree) -> dict[str, Any]:
        axes = {name: 0 if name in rows else None for name in theta}
        terms = jax.vmap(of_one, in_axes=(axes, 0))
        return dict(jax.grad(lambda x: jnp.sum(terms(x, batch)))(theta))

    def prior_gradient(phi: PyTree, theta: dict[str, Any]) -> dict[str, Any]:
        """Of the gathered rows; and of the other variables, which may depend on every row."""
        of_rows: dict[str, Any] = jax.grad(lambda tables: log_prior({**theta, **tables}))(
            {name: theta[name] for name in rows}
        )
        others = {name: value for name, value in theta.items() if name not in rows}
        if not others:
            return of_rows
        # Computed only where the prior of another variable reads the tables: XLA drops it otherwise.
        whole = space.evaluation_point(phi)
        of_others: dict[str, Any] = jax.grad(lambda others: log_prior({**whole, **others}))(others)
        return of_rows | of_others

    def update(key: jax.Array, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        index = {column: _column(minibatch, column) for column in columns}
        size = index[columns[0]].shape[0]
        place, now = jnp.arange(size, dtype=jnp.int32), state.step + 1
        # Several data of the batch may share a row. All of them add their likelihood to it; one, the owner, adds the
        # prior and the noise of the time that has passed.
        last, time = {}, {}
        for column, at in index.items():
            before = state.last[column][at]
            marked = state.last[column].at[at].max(now + place)
            owner = marked[at] == now + place
            time[column] = jnp.where(owner, now - before, 0).astype(step_size.dtype)
            last[column] = marked.at[at].set(now)

        phi = {name: p[index[rows[name]]] if name in rows else p for name, p in state.phi.items()}
        theta = space.evaluation_point(phi)
        likelihood, prior = likelihood_gradient(theta, minibatch), prior_gradient(state.phi, theta)
        steps = {name: _against(time[rows[name]], x) if name in rows else 1 for name, x in theta.items()}
        gradient = {
            name: jax.tree.map(lambda g, h, k=steps[name]: total / size * g + k * h, likelihood[name], prior[name])
            for name in theta
        }
        # The pull-back has the transform's own term, f''/f', once; it is due k times.
        drift = space.pull_back(phi, theta, gradient, temperature)
        own_term = space.pull_back(phi, theta, jax.tree.map(jnp.zeros_like, gradient), temperature)

        noise = normal_like(key, _noise_shapes(state.phi, rows, size))
        whole = space.evaluation_point(state.phi)
        scale = _spread(precondition.update(state.preconditioner, state.phi, whole, step_size)[0], state.phi)
        moved = {}
        for name, p in state.phi.items():
            if name not in rows:
                moved[name] = jax.tree.map(
                    lambda x, d, m, z: x + step_size * m * d + jnp.sqrt(2 * step_size * temperature * m) * z,
                    p, drift[name], scale[name], noise[name],
                )  # fmt: skip
                continue
            at, k = index[rows[name]], _against(time[rows[name]], phi[name])
            pace = step_size * (scale[name][at] if jnp.ndim(scale[name]) else scale[name])
            z = noise[name][at] if p.shape[0] <= size else noise[name]
            drift[name] = drift[name] + (k - 1) * own_term[name]
            moved[name] = p.at[at].add(pace * drift[name] + jnp.sqrt(2 * temperature * pace * k) * z)
        norm = trees.norm(drift)  # over the rows of the minibatch: too little to put off

        def make_info() -> Info:
            return Info(norm, jnp.full((), jnp.nan), jnp.zeros(()), trees.all_finite(moved))

        return State(moved, now, last, state.preconditioner), make_info

    return Kernel(
        name="lazy_rows",
        posterior=posterior,
        space=space,
        estimator=gradients.minibatch(posterior),
        _init=init,
        _update=update,
        _moving=lambda state: state.phi,
        constrain=space.constrain,
        noise="key",
        drift_averages_out=True,
        temperature=temperature,
        data_version=posterior.version,
        preconditioner=precondition,
    )


def _against(of_rows: jax.Array, table: jax.Array) -> jax.Array:
    """One number per row, with the axes of a table."""
    return of_rows.reshape(-1, *(1,) * (table.ndim - 1))


def _noise_shapes(phi: PyTree, rows: dict[str, str], size: int) -> PyTree:
    """No more rows are touched than the batch has data, nor than the table has rows."""

    def shape(name: str, leaf: jax.Array) -> jax.ShapeDtypeStruct:
        length = (min(size, leaf.shape[0]), *leaf.shape[1:]) if name in rows else leaf.shape
        return jax.ShapeDtypeStruct(length, leaf.dtype)

    return {name: jax.tree.map(lambda leaf, name=name: shape(name, leaf), value) for name, value in phi.items()}


def _spread(scale: PyTree | None, phi: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.ones((), leaf.dtype), phi) if scale is None else scale


def _column(minibatch: Any, column: str) -> jax.Array:
    if isinstance(minibatch, dict) and column not in minibatch:
        raise ValueError(f"The minibatch has no column {column!r}; it has {', '.join(minibatch)}.")
    index: jax.Array = minibatch[column]
    if index.ndim != 1 or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(
            f"Column {column!r} must hold one row number per row of the data: whole numbers; got {index.dtype} of shape {index.shape}."
        )
    return index


# -- what is asked of the posterior ------------------------------------------------------------------------------------


def _check(posterior: Posterior, rows: dict[str, str]) -> None:
    if posterior.gradient is not None or posterior.num_data is None or posterior.log_likelihood is None:
        raise ValueError("lazy_rows needs a posterior with a log likelihood and data.")
    if not isinstance(posterior.supports, dict):
        raise ValueError("lazy_rows needs a dict of variables, to tell the tables among them by name.")
    if not rows:
        raise ValueError('`rows` names no table. Say which column numbers the rows of which, such as {"W": "user"}.')
    unknown = sorted(set(rows) - set(posterior.supports))
    if unknown:
        raise ValueError(f"There is no variable {unknown[0]!r}; there are {', '.join(posterior.supports)}.")
    if is_source(posterior.data):  # its columns are known from its first minibatch
        return
    if not isinstance(posterior.data, dict):
        raise ValueError("lazy_rows needs data with named columns: a dict of arrays.")
    for column in rows.values():
        if column not in posterior.data:
            raise ValueError(f"The data have no column {column!r}; they have {', '.join(posterior.data)}.")
        _column(posterior.data, column)


def _largest(posterior: Posterior, columns: tuple[str, ...]) -> dict[str, int]:
    """The largest row number of each column, where the data are at hand."""
    if is_source(posterior.data):
        return {}
    for column in columns:
        if np.min(posterior.data[column]) < 0:
            raise ValueError(f"Column {column!r} has negative row numbers. Number the rows from 0.")
    return {column: int(np.max(posterior.data[column])) for column in columns}


def _lengths(space: Space, theta: PyTree, rows: dict[str, str], largest: dict[str, int]) -> dict[str, int]:
    """How many rows the tables of each column have."""
    lengths: dict[str, int] = {}
    for name, column in rows.items():
        table = theta[name]
        if not hasattr(table, "ndim") or table.ndim <= space.transforms[name].codomain.event_dim:
            raise ValueError(f"{name!r} is no table: its leading axis must be the row that column {column!r} names.")
        length = lengths.setdefault(column, table.shape[0])
        if length != table.shape[0]:
            raise ValueError(f"{name!r} has {table.shape[0]:,} rows, another table of column {column!r} {length:,}.")
        if largest.get(column, -1) >= length:
            raise ValueError(f"Column {column!r} has row number {largest[column]:,}, but {name!r} has {length:,} rows.")
    return lengths


def _prior_of_any_rows(posterior: Posterior, rows: dict[str, str]) -> Any:
    """The log prior as a function that takes tables of any number of rows."""
    if posterior.priors is None:
        return posterior.log_prior
    # `expand` only says how many rows there are.
    priors = {
        name: prior.base_dist if name in rows and isinstance(prior, ExpandedDistribution) else prior
        for name, prior in posterior.priors.items()
    }

    def log_prior(theta: PyTree) -> jax.Array:
        terms = jax.tree.map(lambda prior, x: jnp.sum(prior.log_prob(x)), priors, theta, is_leaf=is_distribution)
        return sum(jax.tree.leaves(terms), jnp.zeros(()))

    return log_prior


def _check_prior(log_prior: Any, theta: PyTree, rows: dict[str, str]) -> None:
    """A prior with parameters of its own for every row would give them to the wrong rows."""

    def longer(name: str, leaf: jax.Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((leaf.shape[0] + 1, *leaf.shape[1:]) if name in rows else leaf.shape, leaf.dtype)

    shapes = {name: jax.tree.map(lambda leaf, name=name: longer(name, leaf), value) for name, value in theta.items()}
    try:
        jax.eval_shape(log_prior, shapes)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"lazy_rows needs a prior of {', '.join(rows)} that is the same for every row and takes any number of them: give "
            "`log_prior` as a sum over rows, or `priors` that are one distribution expanded."
        ) from error
