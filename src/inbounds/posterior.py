"""What is sampled: priors (hence supports), likelihood and data.

A `Posterior` answers three questions for the rest of the library: which supports the variables have, what the gradient of
the log density in theta is (the prior's part exactly, the likelihood's part one minibatch at a time), and where a chain may
start. It knows nothing of transforms or kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from scipy.special import betaln

from inbounds import transforms as tf
from inbounds.arguments import nearest
from inbounds.contents import data_in_words, priors_in_words
from inbounds.data.arrays import check_data, is_source, is_stream, num_data
from inbounds.data.source import Source
from inbounds.data.spread import Spread
from inbounds.display import html_table
from inbounds.engine.compiled import Compiled
from inbounds.space import is_constraint
from inbounds.transforms._base import snake_case
from inbounds.trees import PyTree, variable_name

__all__ = ["Posterior", "base_of", "is_distribution", "middle_of_draws", "support_name"]


def is_distribution(x: Any) -> bool:
    return isinstance(x, dist.Distribution)


FIXED = ("priors", "supports", "log_likelihood", "gradient", "_log_prior")


class Posterior:
    r"""A posterior density over bounded variables.

    Targets $\pi(\theta \mid x) \propto p(\theta) \prod_{i=1}^N p(x_i \mid \theta)$, given in one of three ways:

    1. `priors` (a tree of NumPyro distributions; their supports are the bounds) and `log_likelihood`;
    2. `log_prior` (a function of theta) with `supports` (a tree of NumPyro constraints) and `log_likelihood`;
    3. `gradient` with `supports`: your own unbiased estimate of $\nabla_\theta \log \pi(\theta)$.

    Args:
        priors: a tree of NumPyro distributions, one per variable.
        log_likelihood: `log_likelihood(theta, batch)`, one log-likelihood value per row: shape `(batch,)`.
        data: a tree of arrays whose leading axis is that of the rows, a source of minibatches from `inbounds.data`, or None
            for a target without data.
        log_prior: `log_prior(theta)`, a scalar, up to a constant.
        supports: a tree of NumPyro constraints; a prefix of the tree of parameters will do.
        gradient: `gradient(theta, batch)`, with the structure of theta; unbiased over the draw of the batch, for any
            batch size. It stands for the whole posterior, prior included.

    Raises:
        ValueError: what is given does not make a posterior; the message says what to add or to leave out.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> posterior.num_data
        1000
    """

    data_per_row: int = 1  # that the likelihood of a row looks at, about
    or_else: str = ""  # what else can be done where there are no minibatches
    _held: PyTree = None  # the data while a program is traced whose arguments they are

    def __init__(
        self,
        priors: PyTree = None,
        log_likelihood: Callable[[PyTree, PyTree], jax.Array] | None = None,
        data: PyTree = None,
        *,
        log_prior: Callable[[PyTree], jax.Array] | None = None,
        supports: PyTree = None,
        gradient: Callable[[PyTree, PyTree], PyTree] | None = None,
    ):
        if (priors is None) == (supports is None):
            raise ValueError(
                "Give either `priors` (NumPyro distributions, which carry their supports) or `supports` (constraints) "
                "with `log_prior` or `gradient`; got " + ("neither." if priors is None else "both.")
            )
        if priors is not None and (log_prior is not None or gradient is not None):
            raise ValueError(
                "`priors` cannot be combined with `log_prior` or `gradient`: they say the same thing twice."
            )
        if gradient is not None and (log_prior is not None or log_likelihood is not None):
            raise ValueError("`gradient` stands for the whole posterior: leave out `log_prior` and `log_likelihood`.")
        if priors is None and log_prior is None and gradient is None:
            raise ValueError("`supports` alone do not say what to sample: add `log_prior` or `gradient`.")
        if log_likelihood is None and gradient is None and data is not None:
            raise ValueError(
                "There are data but no `log_likelihood`: say how they depend on theta, or leave `data` out."
            )
        if log_likelihood is not None and data is None:
            raise ValueError("There is a `log_likelihood` but no `data`; a target without data has a `log_prior` only.")
        self.priors = None if priors is None else _check_priors(priors)
        self.supports = _supports_of(self.priors) if priors is not None else _check_supports(supports)
        self._log_prior = log_prior
        self.log_likelihood = log_likelihood
        self.gradient = gradient
        self.compiled = Compiled()
        self.data = data
        self.batch_size: int | None = None  # rows per minibatch where `sample` is not told; None: all of them
        self.no_minibatches: str | None = None  # why there are none, where there might be

    @property
    def data(self) -> PyTree:
        """The data as arrays, or what makes minibatches of them. Others of the same shapes may take their place between two runs."""
        return self._data

    @data.setter
    def data(self, data: PyTree) -> None:
        self._data = self._check_data(data)
        self.num_data = num_data(self._data)
        self.__dict__.pop("_placed_data", None)
        self.version = self.__dict__.get("version", 0) + 1  # how often the data have been given
        if self.holds_rows:
            self.compiled.data_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self._data))

    def _check_data(self, data: PyTree) -> PyTree:
        return check_data(data)

    @property
    def placed_data(self) -> PyTree:
        """The data as JAX arrays: put on the device once, for all runs (`jnp.asarray` would hold a second copy for a while)."""
        return self._placed_data if self._held is None else self._held

    @cached_property
    def _placed_data(self) -> PyTree:
        with jax.ensure_compile_time_eval():  # also where a user's own program is being traced
            return jax.device_put(self.data)

    @contextmanager
    def holding(self, data: PyTree) -> Iterator[None]:
        """While a program is traced: the data are its arguments, not constants in it. None changes nothing."""
        before, self._held = self._held, data
        try:
            yield
        finally:
            self._held = before

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED and name in self.__dict__:
            raise AttributeError(
                f"`{name}` of a posterior cannot be replaced: programs have been compiled with it. Make a new posterior; the data alone may be "
                "replaced (`posterior.data = ...`)."
            )
        super().__setattr__(name, value)

    @cached_property
    def shapes(self) -> PyTree:
        """The shapes of theta, a tree of `jax.ShapeDtypeStruct`; None where there are supports alone, which do not say."""
        if self.priors is None:
            return None
        return jax.tree.map(
            lambda prior: jax.ShapeDtypeStruct(prior.shape(), float), self.priors, is_leaf=is_distribution
        )

    def deterministics(self, theta: PyTree) -> dict[str, jax.Array]:
        """Named functions of theta that the model declares (NumPyro's `deterministic`). Most models declare none.

        Args:
            theta: one draw.

        Returns:
            Arrays by name.
        """
        return {}

    def observed(self) -> dict[str, np.ndarray]:
        """The data by name, where they are arrays."""
        if not self.holds_rows:
            return {}
        leaves = jax.tree_util.tree_leaves_with_path(self.data)
        return {variable_name(path) if path else "data": np.asarray(leaf) for path, leaf in leaves}

    def coordinates(self) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """(coordinates, dimensions of the variables), each by name, for ArviZ. Both are empty, except for models that name some."""
        return {}, {}

    def without_effects(self) -> tuple[Posterior, str | None]:
        """The posterior with the effects of its groups integrated out, or itself where the model has none that could be.

        And what becomes of the effects, as a sentence; None in models without groups.
        """
        return self, None

    def crossed_effects(self) -> int:
        """How many effects of other groups are left, where those of some groups are integrated out."""
        return 0

    def draw_effects(self, thetas: PyTree) -> dict[str, np.ndarray] | None:
        """Draws of the effects of groups that were integrated out, one per theta, axes (chain, draw, ...); None where they are many."""
        return None

    def density_error(self, thetas: PyTree) -> float | None:
        """How far an approximation of the density moves means and sds at most, in posterior sds, seen at some draws; None where it is exact."""
        return None

    def fingerprint(self) -> dict[str, str | None]:
        """Texts that tell the posteriors of two runs apart, the same in every process: all but the code of the model.

        None stands for what each process has of its own.
        """
        data, priors = data_in_words(self.data), priors_in_words(self.priors)
        return {"data": data, "priors": priors, "arguments of the model": "none"}

    def whole_data_because(self) -> str | None:
        """Why every process must hold all the data, as the beginning of a sentence; None where each may have rows of its own."""
        return None

    def log_prior(self, theta: PyTree) -> jax.Array:
        """log p(theta), summed over the variables.

        Args:
            theta: one point inside the support.

        Returns:
            A scalar.
        """
        if self._log_prior is not None:
            return self._log_prior(theta)
        if self.priors is None:
            return jnp.zeros(())
        terms: list[jax.Array] = jax.tree.leaves(
            jax.tree.map(_log_density, self.priors, theta, is_leaf=is_distribution)
        )
        return sum(terms[1:], terms[0])

    def log_density(self, theta: PyTree, rows: PyTree = None) -> jax.Array:
        """log p(theta, data) up to a constant, from all the data or, without bias, from a minibatch of them.

        Args:
            theta: one point inside the support.
            rows: a minibatch as the likelihood takes it; None: all the data.

        Returns:
            A scalar. A minibatch's terms are scaled up to all the rows.

        Raises:
            ValueError: the posterior has a `gradient` alone.
        """
        if self.gradient is not None:
            raise ValueError("A posterior that gives its `gradient` alone has no density.")
        if self.log_likelihood is None:
            return self.log_prior(theta)
        terms = self.log_likelihood(theta, self.all_rows() if rows is None else rows)
        assert self.num_data is not None
        return self.log_prior(theta) + jnp.sum(terms) * (self.num_data / terms.shape[0])

    @property
    def has_density(self) -> bool:
        """Whether `log_density` says something: not where the posterior gives its gradient alone."""
        return self.gradient is None

    @property
    def makes_minibatches(self) -> bool:
        """Whether the data are a source that decides itself which rows a minibatch has; nobody else can ask for others."""
        return isinstance(self._data, Source)

    @property
    def holds_rows(self) -> bool:
        """Whether the data are arrays in memory."""
        return self._data is not None and not is_source(self._data)

    @property
    def has_all_rows(self) -> bool:
        """Whether `all_rows` gives all the data: not where they are on disk, or where their source draws them."""
        if self._data is None or is_stream(self._data):
            return False
        return not isinstance(self._data, Source) or self._data.all_rows() is not None

    def all_rows(self) -> PyTree:
        """All the data as one minibatch; None without data."""
        if self._data is None:
            return None
        return self._data.all_rows() if isinstance(self._data, Source) else self.placed_data

    def start(self, key: jax.Array) -> PyTree:
        """A start inside the support: a draw from the prior pulled towards its middle, or the image of phi = 0.

        Args:
            key: of the random numbers.

        Returns:
            A tree like theta.
        """
        if self.priors is None:
            return jax.tree.map(_middle, self.supports, is_leaf=is_constraint)
        leaves, treedef = jax.tree.flatten(self.priors, is_leaf=is_distribution)
        return self.compiled.of(_moderate_draws, treedef, tuple(leaves))(key)

    def starts_on_host(self, words: np.ndarray) -> PyTree:
        """Starts with the law of `start`, one for each row of `words`, where NumPy can draw from all the priors; None elsewhere.

        To compile a generator of gamma variables takes seconds. To draw a few of them on the host takes next to nothing.
        """
        if self.priors is None:
            return None
        leaves, treedef = jax.tree.flatten(self.priors, is_leaf=is_distribution)
        if any(type(base_of(prior)) not in ON_HOST for prior in leaves) or sum(map(_size, leaves)) > MOST_ON_HOST:
            return None
        chains = [
            [_moderate_draw_on_host(generator, prior) for prior in leaves]
            for generator in map(np.random.default_rng, words)
        ]
        return jax.tree.unflatten(treedef, [np.stack(leaf) for leaf in zip(*chains, strict=True)])

    def prior_draws(self, key: jax.Array, count: int) -> PyTree:
        """A few draws of the prior as it is, leading axis = draw; None where no prior is known that could be drawn from.

        Args:
            key: of the random numbers.
            count: how many.

        Returns:
            A tree like theta with one more axis in front, or None.
        """
        if self.priors is None:
            return None
        leaves, treedef = jax.tree.flatten(self.priors, is_leaf=is_distribution)
        if any(type(base_of(prior)) not in ON_HOST for prior in leaves) or sum(map(_size, leaves)) > MOST_ON_HOST:
            return self.compiled.of(_drawn, treedef, tuple(leaves), count)(key)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        with np.errstate(all="ignore"):
            drawn = [_on_host(generator, prior, count) for prior in leaves]
        return jax.tree.unflatten(treedef, drawn)

    def variables(self) -> list[tuple[str, constraints.Constraint]]:
        """(name, support) of every variable."""
        paths = jax.tree_util.tree_leaves_with_path(self.supports, is_leaf=is_constraint)
        return [(variable_name(path), support) for path, support in paths]

    def check_likelihood(self, theta: PyTree, batch: PyTree) -> None:
        """Raise a ValueError where the likelihood or the gradient has the wrong shape at `theta`."""
        try:
            self._check_shapes(theta, batch)
        except KeyError as error:
            wanted = error.args[0] if error.args else None
            if wanted in _names(theta) and wanted in _names(batch):  # it was looked up in something else
                raise
            raise ValueError(_unknown(repr(wanted), wanted, theta, batch)) from error
        except AttributeError as error:
            if not any(error.obj is part for part in (theta, batch)) and not isinstance(error.obj, dict):
                raise
            what = f"the attribute {error.name!r} of a {type(error.obj).__name__}"
            if isinstance(error.obj, dict) and error.name in error.obj:
                raise ValueError(
                    f"The model asks for {what}: write [{error.name!r}] in the place of .{error.name}."
                ) from error
            raise ValueError(_unknown(what, error.name, theta, batch)) from error
        except TypeError as error:
            if "string indexing" not in str(error):
                raise
            raise ValueError(_unknown("an array by a name", "", theta, batch)) from error

    def _check_shapes(self, theta: PyTree, batch: PyTree) -> None:
        whole = theta
        if isinstance(batch, Spread):  # the likelihood sees what one device has; the prior sees everything
            theta, batch = batch.own_part(theta), batch.own_rows()
        if self.gradient is not None:
            got = jax.eval_shape(self.gradient, theta, batch)
            want = jax.eval_shape(lambda x: x, theta)
            structure: Any = jax.tree.structure(got)
            if structure != jax.tree.structure(want) or not jax.tree.all(
                jax.tree.map(lambda g, w: g.shape == w.shape, got, want)
            ):
                raise ValueError(
                    f"`gradient(theta, batch)` must have the structure and shapes of theta. Got {_shapes(got)}, "
                    f"expected {_shapes(want)}."
                )
        elif self.priors is None:  # otherwise it is a sum
            prior = jax.eval_shape(self.log_prior, whole)
            if prior.shape != ():
                raise ValueError(f"`log_prior(theta)` must be a scalar; got shape {prior.shape}. Sum its terms.")
        if self.log_likelihood is None:
            return
        size = jax.tree.leaves(batch)[0].shape[0]
        got = jax.eval_shape(self.log_likelihood, theta, batch)
        if not hasattr(got, "shape") or got.shape != (size,):
            shape = getattr(got, "shape", type(got).__name__)
            raise ValueError(
                f"`log_likelihood(theta, batch)` must return one number per row, shape ({size},) for a batch of {size}; "
                f"got {shape}. Do not sum or average over the batch: the library scales and sums."
            )

    def __repr__(self) -> str:
        supports = ", ".join(f"{name} in {support_name(support)}" for name, support in self.variables())
        return f"Posterior({supports}; {self._size()})"

    def _size(self) -> str:
        if self.num_data is None:
            return "no data" if self.no_minibatches is None else "data of the model, all of them in every step"
        return f"{self.num_data:,} data"

    def _repr_html_(self) -> str:
        rows = [(str(name), support_name(support)) for name, support in self.variables()]
        return html_table(("variable", "support"), rows, f"Posterior, {self._size()}")


def support_name(support: constraints.Constraint) -> str:
    """'(0, inf)' for positive, the name as in `numpyro.distributions.constraints` for vector supports."""
    lower, upper = tf.bounds(support)
    if np.all(np.isneginf(lower)) and np.all(np.isposinf(upper)) and tf.is_vector(support):
        return snake_case(type(support).__name__)
    ends = [f"{np.asarray(end).item():g}" if np.size(end) == 1 else "array" for end in (lower, upper)]
    return f"({ends[0]}, {ends[1]})"


def _names(tree: PyTree) -> list[Any]:
    """What the parts of theta or of a batch are called, where they have names."""
    if isinstance(tree, Mapping):
        return list(tree)
    return list(getattr(tree, "_fields", getattr(tree, "__dataclass_fields__", ())))


def _unknown(what: str, wanted: Any, theta: PyTree, batch: PyTree) -> str:
    """An error about a name that neither theta nor the batch has, or has otherwise."""

    def described(tree: PyTree) -> str:
        names = _names(tree)
        if names:
            return ", ".join(map(repr, names))
        return "nothing" if tree is None else "no names: it is one array" if hasattr(tree, "shape") else "no names"

    hint = nearest(wanted, [*_names(theta), *_names(batch)])
    return f"The model asks for {what}, which is not there.{hint} theta has {described(theta)}; the batch has {described(batch)}."


def _check_priors(priors: PyTree) -> PyTree:
    for path, prior in jax.tree_util.tree_leaves_with_path(priors, is_leaf=is_distribution):
        name = variable_name(path)
        if not is_distribution(prior):
            raise ValueError(f"The prior of {name!r} must be a NumPyro distribution; got {type(prior).__name__}.")
        if prior.is_discrete:
            raise ValueError(
                f"The prior of {name!r}, {type(prior).__name__}, is discrete: gradients do not exist for it. Sum it out "
                "of the likelihood, or give it a continuous relaxation."
            )
        if isinstance(base_of(prior), dist.Delta | dist.ImproperUniform):
            raise ValueError(
                f"The prior of {name!r}, {type(base_of(prior)).__name__}, is no law to draw from. Put a value that is known (Delta) into "
                "the likelihood; for anything else give a proper prior, or `supports` and a `log_prior` in the place of priors."
            )
        _check_support(name, prior.support)
    return priors


def _check_supports(supports: PyTree) -> PyTree:
    for path, support in jax.tree_util.tree_leaves_with_path(supports, is_leaf=is_constraint):
        name = variable_name(path)
        if not is_constraint(support):
            raise ValueError(f"The support of {name!r} must be a NumPyro constraint; got {type(support).__name__}.")
        _check_support(name, support)
    return supports


def _check_support(name: str, support: Any) -> None:
    try:
        tf.default(support)
    except ValueError as error:
        raise ValueError(f"No transform is known for the support of {name!r}, {support}: {error}") from error


def _supports_of(priors: PyTree) -> PyTree:
    return jax.tree.map(lambda prior: prior.support, priors, is_leaf=is_distribution)


MOST_ON_HOST = (
    2**20
)  # numbers of a start that is drawn on the host: XLA's Gamma and its sort take minutes where NumPy takes seconds
# Priors that NumPy draws from: (generator, prior, shape) -> draws.
ON_HOST: dict[type, Callable[[np.random.Generator, Any, tuple[Any, ...]], np.ndarray]] = {
    dist.Beta: lambda g, p, shape: g.beta(p.concentration1, p.concentration0, shape),
    dist.Cauchy: lambda g, p, shape: p.loc + p.scale * g.standard_cauchy(shape),
    dist.Exponential: lambda g, p, shape: g.standard_exponential(shape) / p.rate,
    dist.Gamma: lambda g, p, shape: g.standard_gamma(p.concentration, shape) / p.rate,
    dist.HalfCauchy: lambda g, p, shape: p.scale * np.abs(g.standard_cauchy(shape)),
    dist.HalfNormal: lambda g, p, shape: p.scale * np.abs(g.standard_normal(shape)),
    dist.InverseGamma: lambda g, p, shape: p.rate / g.standard_gamma(p.concentration, shape),
    dist.LogNormal: lambda g, p, shape: g.lognormal(p.loc, p.scale, shape),
    dist.Normal: lambda g, p, shape: g.normal(p.loc, p.scale, shape),
    dist.StudentT: lambda g, p, shape: p.loc + p.scale * g.standard_t(p.df, shape),
    dist.Uniform: lambda g, p, shape: g.uniform(p.low, p.high, shape),
}


def base_of(prior: dist.Distribution) -> dist.Distribution:
    """The distribution of one coordinate, where a prior only repeats it."""
    while isinstance(prior, dist.ExpandedDistribution | dist.Independent):
        prior = prior.base_dist
    return prior


def _log_density(prior: dist.Distribution, value: jax.Array) -> jax.Array:
    """log p(value), summed. That of Beta does without NumPyro's detour through Dirichlet, which takes a third of a step."""
    base = base_of(prior)
    if type(base) is not dist.Beta or isinstance(base.concentration1, jax.core.Tracer):
        return jnp.sum(prior.log_prob(value))
    a, b = (np.asarray(shape, value.dtype) for shape in (base.concentration1, base.concentration0))
    return jnp.sum((a - 1) * jnp.log(value) + (b - 1) * jnp.log1p(-value) - betaln(a, b))


def _size(prior: dist.Distribution) -> int:
    return math.prod(prior.shape())


def _moderate_draw_on_host(generator: np.random.Generator, prior: dist.Distribution) -> np.ndarray:
    """`_moderate_draw` for coordinates that are bounded each alone: there the middle of the draws is their median."""
    base = base_of(prior)
    with np.errstate(all="ignore"):  # a draw may underflow, or overflow
        middle = np.median(_on_host(generator, prior, 15), axis=0)
    lower, upper = (np.asarray(end, float) for end in tf.bounds(base.support))
    width = np.where(np.isfinite(upper - lower), upper - lower, 1.0)
    # As far as a proxy of 30 reaches: exponentially near a bound, 30 units without one.
    least = np.where(np.isfinite(lower), lower + np.exp(-30.0) * width, np.where(np.isfinite(upper), upper, 0.0) - 30.0)
    most = np.where(np.isfinite(upper), upper - np.exp(-30.0) * width, np.where(np.isfinite(lower), lower, 0.0) + 30.0)
    dtype = jax.dtypes.canonicalize_dtype(float)
    lower, upper = lower.astype(dtype), upper.astype(dtype)
    inside = np.clip(np.nan_to_num(middle), least, most).astype(dtype)
    return np.asarray(np.clip(inside, np.nextafter(lower, upper), np.nextafter(upper, lower)))


def _on_host(generator: np.random.Generator, prior: dist.Distribution, count: int) -> np.ndarray:
    base = base_of(prior)
    return ON_HOST[type(base)](generator, jax.tree.map(np.asarray, base), (count, *prior.shape()))


def _drawn(treedef: Any, priors: tuple[dist.Distribution, ...], count: int, key: jax.Array) -> PyTree:
    keys = jax.random.split(key, len(priors))
    return jax.tree.unflatten(treedef, [prior.sample(k, (count,)) for k, prior in zip(keys, priors, strict=True)])


def _moderate_draws(treedef: Any, priors: tuple[dist.Distribution, ...], key: jax.Array) -> PyTree:
    keys = jax.random.split(key, len(priors))
    return jax.tree.unflatten(treedef, [_moderate_draw(k, prior) for k, prior in zip(keys, priors, strict=True)])


def _moderate_draw(key: jax.Array, prior: dist.Distribution) -> jax.Array:
    """The prior's draw nearest its middle among a few, coordinate by coordinate in proxy space.

    A single draw of Gamma(0.05, 1) may be 1e-60, and one of a Cauchy 1e6: a chain would spend its burn-in coming back.
    """
    return middle_of_draws(tf.default(prior.support), prior.sample(key, (15,)))


def middle_of_draws(transform: Any, draws: Any) -> jax.Array:
    """The middle of a few draws of theta (leading axis), coordinate by coordinate in proxy space."""
    proxies = transform.inv(draws)
    middle: jax.Array = transform(
        jnp.median(jnp.nan_to_num(proxies, posinf=30.0, neginf=-30.0).clip(-30.0, 30.0), axis=0)
    )
    return middle


def _middle(support: constraints.Constraint) -> jax.Array:
    if tf.is_vector(support):
        raise ValueError(f"The shape of a variable in {support} is not known from its support: give `init`.")
    return jnp.asarray(tf.default(support)(jnp.zeros(())))


def _shapes(tree: PyTree) -> str:
    return str(jax.tree.map(lambda leaf: leaf.shape, tree))
