r"""What every kernel is made of: the `Kernel` object, its `Info`, and the proxy gradient with its noise.

A kernel's file reads like its paper: `State`, then one factory whose docstring shows the update, with `init` and `update`
inside. The parts that all of them share are here.
"""

from __future__ import annotations

import html
import importlib
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, ParamSpec, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from inbounds import trees
from inbounds.engine import normal_like
from inbounds.gradients import GradientEstimator, minibatch
from inbounds.gradients._base import GradientFactory
from inbounds.kernels._temperature import (
    Temperature,
    check_temperature,
    in_steps,
    is_constant,
    tempered,
    with_temperatures,
)
from inbounds.kernels.recursion import OnGaussian
from inbounds.posterior import Posterior
from inbounds.preconditioners import NoPreconditioner, Preconditioner, PreconditionerLike, as_preconditioner
from inbounds.recipe import Recipe, in_words, is_default, recorded
from inbounds.space import Metric, Space
from inbounds.trees import PyTree


class Info(NamedTuple):
    """What a person debugging a step wants to see.

    Args:
        gradient_norm: norm of the drift of the proxy.
        noise_variance: mean variance of the stochastic gradient of the proxy; NaN where it is neither given nor estimated.
        clamped: fraction of coordinates whose gradient noise is more than the injected noise can make room for
            (step size times variance above 2): there the draws are too wide, and noise correction is at its end.
        finite: whether every coordinate is still finite.

    Example:
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
        >>> _, info = kernel.step(jax.random.key(0), kernel.init({"x": 1.5}), None, 0.01)
        >>> info._fields
        ('gradient_norm', 'noise_variance', 'clamped', 'finite')
    """

    gradient_norm: jax.Array
    noise_variance: jax.Array
    clamped: jax.Array
    finite: jax.Array


MakeInfo = Callable[[], Info]
"""Called where somebody wants the `Info` of a step."""

Update = Callable[[PyTree, Any, PyTree, jax.Array], tuple[Any, MakeInfo]]
"""(noise, state, minibatch, step_size) -> (new state, what makes its `Info`)."""

NoiseCorrection = bool | float | PyTree | Callable[[PyTree], PyTree]
"""False; True, to estimate the variance of the gradient noise; or that variance: a number, a tree, or a function of theta."""


NO_PRECONDITIONER = NoPreconditioner()


@dataclass(frozen=True, eq=False)
class Kernel:
    """How a chain moves. Same calls for every algorithm; pure, so `jit`, `vmap` and `scan` apply.

    `init(theta) -> state`; `step(key, state, minibatch, step_size) -> (state, info)`; `position(state) -> theta`, always
    strictly inside the support. Kernels of one posterior compare equal when the same factory made them of equal arguments, the values of
    arrays left out: those are handed to compiled programs (`arrays`, `with_arrays`), so that the driver compiles once. A kernel that no
    recorded factory made (see `kernel_factory`) is equal to itself alone.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.sgld(posterior)
        >>> state = kernel.init({"x": 1.5})
        >>> state, info = kernel.step(jax.random.key(0), state, None, 0.01)
        >>> bool(kernel.position(state)["x"] > 0), bool(info.finite)
        (True, True)
    """

    name: str
    posterior: Posterior
    space: Space
    estimator: GradientEstimator
    _init: Callable[[PyTree], Any]
    _update: Update
    _moving: Callable[[Any], PyTree]
    constrain: Callable[[PyTree], PyTree]
    _refresh: Callable[[Any], Any] | None = None
    noise: str = "normal"  # "normal": update takes standard normals like what moves; "key": it takes a PRNG key
    normals: int = 1  # for every coordinate; of several, the leaves of the noise have a leading axis of so many
    independent_batches: bool = False  # noise correction assumes that minibatches are independent
    reports: tuple[str, ...] = ("gradient_norm",)  # what of `Info` says something, to be kept with the draws
    vectors: tuple[
        str, ...
    ] = ()  # those of `reports` that are vectors of the length of what moves; all others are numbers
    adapt_steps: int = 0  # steps during which the kernel still changes itself: draws before that are not kept
    underdamped: bool = False  # whether it has velocities: then it swings along a direction before it forgets it
    recursion: OnGaussian | None = None  # what a step does to a Gaussian; None: not known
    drift_averages_out: bool = (
        False  # whether the mean of its drift is 0 at every step size, as it is where noise is only added
    )
    restarts: bool = (
        False  # whether `clamped` counts coordinates that left the range of floats, and were put back to their start
    )
    temperature: Temperature = 1.0  # of the law that is sampled
    estimates_noise: bool = False  # whether it estimates the variance of minibatch gradients, to correct for it
    preconditioner: Preconditioner = NO_PRECONDITIONER
    data_version: int | None = None  # of the data that it was made of; None: it knows nothing of them
    given: Recipe | None = None  # the factory that made it, and its arguments as the user gave them
    recipe: Recipe | None = None  # the same with the transforms and the estimator that were made of the user's

    def init(self, theta: PyTree) -> Any:
        """The state of a chain that starts at `theta`, which must lie strictly inside the support.

        Args:
            theta: a point strictly inside the support, a tree of arrays.

        Returns:
            The state, a tree of arrays.
        """
        theta = jax.tree.map(jnp.asarray, as_parameters(theta))
        if not trees.is_traced(theta):
            self.space.check(theta)
        return self._init(theta)

    def start(self, theta: PyTree) -> Any:
        """The states of several chains, of starts with a leading axis; of temperatures with one number per chain, each has its own.

        Args:
            theta: the starts, a tree whose leading axis is the chain.

        Returns:
            The states, with the same leading axis.
        """
        states = jax.vmap(self.init)(theta)
        several = not callable(self.temperature) and np.ndim(self.temperature) == 1
        return with_temperatures(states, self.temperature) if several else states

    def step(self, key: jax.Array, state: Any, minibatch: PyTree, step_size: Any) -> tuple[Any, Info]:
        """One step: new state and `Info`. `step_size` multiplies the full gradient; the noise is sqrt(2 step_size).

        Args:
            key: a key of its own for every step.
            state: where the chain stands.
            minibatch: rows of the data as the likelihood takes them; None without data.
            step_size: a positive number.

        Returns:
            The next state, and what the step showed.
        """
        noise = normal_like(key, self.noise_like(self.moving(state))) if self.noise == "normal" else key
        return self.update(noise, state, minibatch, step_size)

    def update(
        self, noise: PyTree, state: Any, minibatch: PyTree, step_size: Any, report: bool | jax.Array = True
    ) -> tuple[Any, Info]:
        """`step` with the noise given: the driver draws it in blocks of many steps.

        Where `report` turns out to be False, `Info` is zeros: to reduce a large drift to a number is a good part of a step.

        Args:
            noise: standard normals of the shapes of `noise_like`.
            state: where the chain stands.
            minibatch: rows of the data as the likelihood takes them; None without data.
            step_size: a positive number.
            report: whether `Info` is wanted.

        Returns:
            The next state, and what the step showed.
        """
        dtype = jax.tree.leaves(self.moving(state))[0].dtype
        state, make_info = self._update(noise, state, minibatch, jnp.asarray(step_size, dtype))
        if report is True:
            return state, make_info()
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make_info))
        return state, nothing if report is False else lax.cond(report, make_info, lambda: nothing)

    def moving(self, state: Any) -> PyTree:
        """What moves: phi, with a metric its coordinates z (and theta itself for kernels that work in the bounded space).

        Args:
            state: where the chain stands.

        Returns:
            A tree of unbounded arrays.
        """
        return self._moving(state)

    def noise_like(self, moving: PyTree) -> PyTree:
        """The shapes of the normals of a step: those of what moves, after an axis of `normals` where these are several.

        Args:
            moving: what `moving` returns.

        Returns:
            A tree of shapes.
        """
        axis = () if self.normals == 1 else (self.normals,)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*axis, *leaf.shape), leaf.dtype), moving)

    def proxy(self, state: Any) -> PyTree:
        """phi, the unbounded variable behind theta (theta itself for kernels that work in the bounded space).

        Args:
            state: where the chain stands.

        Returns:
            A tree like theta.
        """
        return self.space.proxy(self.moving(state))

    def position(self, state: Any) -> PyTree:
        """theta, strictly inside the support.

        Args:
            state: where the chain stands.

        Returns:
            A tree of arrays.
        """
        return self.constrain(self.moving(state))

    def of_proxy(self, phi: PyTree) -> PyTree:
        """theta of phi.

        Args:
            phi: the unbounded variable.

        Returns:
            A tree like phi, strictly inside the support.
        """
        space = self.space.of_proxy
        return self.constrain(phi) if space is self.space else space.constrain(phi)

    @property
    def one_temperature(self) -> float | None:
        """The temperature of all steps of all chains; None where there is no such."""
        return float(self.temperature) if is_constant(self.temperature) else None

    @property
    def refresh_every(self) -> int | None:
        """Steps between two calls of `refresh`; None: it is never called."""
        return self.estimator.refresh_every

    def refresh(self, state: Any) -> Any:
        """Let the gradient estimator look at all the data (SVRG); the state unchanged for the others.

        Args:
            state: where the chain stands.

        Returns:
            The state to go on with.
        """
        return state if self._refresh is None else self._refresh(state)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays that it was made with, such as the centre of a control variate: arguments of what is compiled for it."""
        return () if self.recipe is None else self.recipe.arrays

    def with_arrays(self, arrays: tuple[Any, ...]) -> Kernel:
        """The same kernel made with other arrays in the place of its own, which may be traced."""
        if self.recipe is None:
            return self
        made = _made(self.recipe.factory, self.posterior, self.recipe.with_arrays(arrays))
        return replace(made, reports=self.reports, given=self.given, recipe=self.recipe)

    def in_metric(self, metric: Any) -> Kernel:
        """The same kernel with another metric of the same kind and shapes in the place of its own."""
        assert self.recipe is not None
        assert self.given is not None
        given, recipe = (replace(r, arguments=r.arguments | {"metric": metric}) for r in (self.given, self.recipe))
        made: Kernel = recipe.factory(self.posterior, **recipe.arguments)
        return replace(made, reports=self.reports, given=given, recipe=recipe)

    @property
    def options(self) -> dict[str, Any]:
        """What the factory was given beside the posterior, by name."""
        return {} if self.given is None else self.given.arguments

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Kernel) or self.recipe is None:
            return self is other
        return self.posterior is other.posterior and self.recipe == other.recipe and self.reports == other.reports

    def __hash__(self) -> int:
        return id(self) if self.recipe is None else hash(self.recipe)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.given is None:
            raise TypeError(
                f"{self.name} cannot be pickled: no recorded factory made it (see inbounds.kernels.kernel_factory)."
            )
        factory = self.given.factory
        return _made_again, (factory.__module__, factory.__qualname__, self.posterior, self.given.arguments)

    def __repr__(self) -> str:
        shown = [f"{name}={text}" for name, text in self._in_words().items()]
        return f"{self.name}({', '.join([repr(self.posterior), *shown])})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{html.escape(text)}</td></tr>" for name, text in self._in_words().items()
        )
        return f"<table><caption>{html.escape(self.name)}</caption>{rows}</table>{self.posterior._repr_html_()}"

    def _in_words(self) -> dict[str, str]:
        """The transforms, the gradient, and the options that are not what they are by themselves."""
        transforms = ", ".join(dict.fromkeys(transform.name for transform in self.space.leaves()))
        always = {"transforms": transforms, "gradient": in_words(self.options.get("gradient", self.estimator))}
        given = self.given
        if given is None:
            return always
        return always | {
            name: in_words(value)
            for name, value in given.arguments.items()
            if name not in always and not is_default(given, name)
        }


def _made_again(module: str, name: str, posterior: Posterior, arguments: dict[str, Any]) -> Kernel:
    """A kernel that was pickled. By its name a factory is found as it is recorded, and not as it was written."""
    factory: Callable[..., Kernel] = operator.attrgetter(name)(importlib.import_module(module))
    return factory(posterior, **arguments)


def _made(factory: Callable[..., Kernel], posterior: Posterior, arguments: dict[str, Any]) -> Kernel:
    """What a factory makes; where the temperature is not a constant, of the kernels at each temperature."""
    temperature = arguments.get("temperature", 1.0)
    if is_constant(temperature):
        return factory(posterior, **arguments)
    return tempered(lambda now: factory(posterior, **arguments | {"temperature": now}), temperature)


def _recorded(kernel: Kernel, given: Recipe) -> Kernel:
    """The kernel with what made it. An estimator that JAX can take apart stands for its factory: it may have looked at the data."""
    arguments = given.arguments
    if "transforms" in arguments:  # by name or by themselves, they are the same
        arguments = arguments | {"transforms": kernel.space.transforms}
    if "gradient" in arguments and not jax.tree_util.all_leaves([kernel.estimator]):
        arguments = arguments | {"gradient": kernel.estimator}
    if not is_constant(arguments.get("temperature", 1.0)):
        kernel = _made(given.factory, kernel.posterior, arguments)
    return replace(kernel, given=given, recipe=Recipe(given.factory, arguments))


Arguments = ParamSpec("Arguments")


def kernel_factory(factory: Callable[Arguments, Kernel]) -> Callable[Arguments, Kernel]:
    """A decorator for functions of a posterior that make a `Kernel`: kernels of equal arguments share what is compiled for them.

    Args:
        factory: takes the posterior first, then its options; each has a name.

    Returns:
        The same function. What it makes knows the factory and the arguments that made it.

    Raises:
        TypeError: when the factory is called and takes `*args`, whose members have no name.

    Example:
        >>> import inbounds as ib
        >>> @ib.kernels.kernel_factory
        ... def careful(posterior, caution=2.0):
        ...     return ib.sgld(posterior, temperature=1 / caution)
        >>> posterior = ib.Posterior({"x": numpyro.distributions.Gamma(2.0, 1.0)})
        >>> careful(posterior) == careful(posterior, caution=2.0), careful(posterior) == careful(posterior, caution=3.0)
        (True, False)
    """
    return recorded(_recorded)(factory)


class Smoothed(NamedTuple):
    """Exponential average with bias correction: `average / weight` is the estimate."""

    average: PyTree
    weight: jax.Array

    def value(self) -> PyTree:
        return jax.tree.map(lambda a: a / jnp.maximum(self.weight, 1e-30), self.average)


class EstimatorState(NamedTuple):
    own: Any  # of the gradient estimator
    squares: Smoothed | None  # of its differences, where they are asked for


class ProxyGradient:
    """The stochastic gradient of the proxy's log density, and the variance of its noise, coordinate by coordinate.

    The noise is estimated from differences of gradients (`gradients.Gradient`), pulled back to the proxy, squared and smoothed over
    the steps. Those of scalar variables are smoothed in theta and take the slope of their transform afterwards, because the noise of
    theta's gradient varies little over the posterior and the slope varies much.

    Args:
        posterior: what is sampled.
        space: how it is kept in bounds.
        gradient: a gradient factory.
        noise_correction: False; True (`gradient` shows its noise); or the known variance of the theta-gradient, whose
            coordinates are then taken for independent: a number, a tree, or a function of theta.
        temperature: of the law that is sampled.
    """

    def __init__(
        self,
        posterior: Posterior,
        space: Space,
        gradient: GradientFactory = minibatch,
        noise_correction: NoiseCorrection = False,
        temperature: float | jax.Array = 1.0,
    ):
        noise_correction = _as_correction(noise_correction)
        self.space = space
        self.temperature = temperature
        self.has_data = posterior.num_data is not None
        if not callable(gradient) and not hasattr(gradient, "estimate"):
            raise ValueError(
                f"`gradient` must be ib.gradients.minibatch, control_variate(...) or svrg(...); got {gradient!r}."
            )
        made = hasattr(gradient, "estimate")  # by an earlier call with the same arguments
        self.estimator: GradientEstimator = cast(Any, gradient) if made else cast(Any, gradient)(posterior)
        self.estimates_variance = noise_correction is True
        self.known_variance = None if noise_correction is True or noise_correction is False else noise_correction
        if self.estimates_variance and posterior.num_data is None and posterior.gradient is None:
            raise ValueError("noise_correction=True, but a target without data has no gradient noise. Leave it out.")
        self.corrects = noise_correction is not False and noise_correction is not None

    def init(self, theta: PyTree) -> EstimatorState:
        """The estimator's state for a chain that starts at `theta`.

        Args:
            theta: a point inside the support.

        Returns:
            The state, a tree of arrays.
        """
        own = self.estimator.init(theta, self.estimates_variance)
        if not self.estimates_variance:
            return EstimatorState(own, None)
        zeros = jax.tree.map(jnp.zeros_like, self.space.unconstrain(theta))
        return EstimatorState(own, Smoothed(zeros, jnp.zeros((), jax.tree.leaves(theta)[0].dtype)))

    def __call__(
        self, state: EstimatorState, phi: PyTree, batch: PyTree
    ) -> tuple[Callable[[], PyTree], Callable[[PyTree], PyTree | None], EstimatorState]:
        """(what makes the drift of phi, the variance of its noise as a function of where, new estimator state).

        A report makes its drift anew, inside its condition: one that it shared with the step would be written to memory in every
        step. Without data, what it is made of would be written instead, and they share it.
        """
        theta = self.space.evaluation_point(phi)
        gradient, own = self.estimator.estimate(state.own, theta, batch, self.estimates_variance)
        squares = state.squares
        if squares is not None:
            differences = self.space.pull_back_differences(phi, theta, gradient.differences)
            squares = self._smooth(squares, differences, gradient.weight)

        def make_drift() -> PyTree:
            return self.space.pull_back(phi, theta, gradient.value, self.temperature)

        def variance_at(point: PyTree) -> PyTree | None:
            if squares is not None:
                return self.space.variance_at(point, squares.value())
            if self.known_variance is None:
                return None
            known = self.known_variance(theta) if callable(self.known_variance) else self.known_variance
            return self.space.pull_back_variance(
                point, trees.spread(known, theta, "The variance in `noise_correction`")
            )

        if self.has_data:
            return make_drift, variance_at, EstimatorState(own, squares)
        drift = make_drift()
        return lambda: drift, variance_at, EstimatorState(own, squares)

    def _smooth(self, past: Smoothed, differences: PyTree, weight: jax.Array | float) -> Smoothed:
        keep = self.estimator.smoothing
        gain = ((1 - keep) * jnp.asarray(weight)).astype(past.weight.dtype)
        average = jax.tree.map(lambda a, d: keep * a + gain * jnp.sum(jnp.square(d), axis=0), past.average, differences)
        return Smoothed(average, keep * past.weight + gain)

    def refresh(self, state: EstimatorState, phi: PyTree) -> EstimatorState:
        """The state after the estimator looked at all the data.

        Args:
            state: the state so far.
            phi: where the chain stands, on the proxy.

        Returns:
            The state to go on with.
        """
        return state._replace(own=self.estimator.refresh(state.own, self.space.evaluation_point(phi)))


def _as_correction(noise_correction: Any) -> Any:
    """Truth values of NumPy and JAX are truth values, and no variance of 1."""
    if getattr(noise_correction, "shape", None) == () and np.asarray(noise_correction).dtype.kind == "b":
        return bool(noise_correction)
    if isinstance(noise_correction, str):
        raise ValueError(
            f"`noise_correction` must be True, False, or a variance: a number, a tree or a function of theta; got {noise_correction!r}."
        )
    if callable(noise_correction) or trees.is_traced(noise_correction):
        return noise_correction
    if any(np.any(np.asarray(v) < 0) for v in jax.tree.leaves(noise_correction)):
        raise ValueError("`noise_correction` is the variance of the gradient noise: it cannot be negative.")
    return noise_correction


def kernel_on_proxy(
    name: str,
    posterior: Posterior,
    proxy_gradient: ProxyGradient,
    init: Callable[[PyTree], Any],
    update: Update,
    *,
    precondition: Preconditioner = NO_PRECONDITIONER,
    independent_batches: bool | None = None,
    recursion: OnGaussian | None = None,
    drift_averages_out: bool = False,
    underdamped: bool = False,
) -> Kernel:
    """A kernel that moves the proxy, made of its `init` and `update`.

    Args:
        name: what it is called.
        posterior: what is sampled.
        proxy_gradient: the drift of the proxy, which knows the space too.
        init: from theta to a state, a named tuple with `phi`, with `estimator` (what `proxy_gradient.init(theta)` makes), and with
            whatever else it needs.
        update: `(noise, state, minibatch, step_size) -> (state, make_info)`; `noise` has the shapes of phi.
        precondition: scales, whose state is `preconditioner` of the state.
        independent_batches: whether it takes minibatches for independent; None: where it corrects for gradient noise.
        recursion: what a step does to a Gaussian (`inbounds.kernels.recursion`), for `ib.check`.
        drift_averages_out: whether the mean of its drift is 0 at every step size, so that another mean tells of something else.
        underdamped: whether it has velocities.

    Returns:
        The kernel.

    Example:
        >>> from collections import namedtuple
        >>> State = namedtuple("State", "phi estimator")
        >>> @ib.kernels.kernel_factory
        ... def euler(posterior):
        ...     space = ib.kernels.Space.of(posterior.supports)
        ...     proxy_gradient = ib.kernels.ProxyGradient(posterior, space, ib.gradients.minibatch)
        ...     def init(theta):
        ...         return State(space.unconstrain(theta), proxy_gradient.init(theta))
        ...     def update(noise, state, minibatch, step_size):
        ...         make_drift, _, estimator = proxy_gradient(state.estimator, state.phi, minibatch)
        ...         move = lambda p, g, z: p + step_size * g + jnp.sqrt(2 * step_size) * z
        ...         phi = jax.tree.map(move, state.phi, make_drift(), noise)
        ...         info = lambda: ib.Info(ib.trees.norm(make_drift()), jnp.nan, jnp.zeros(()), ib.trees.all_finite(phi))
        ...         return State(phi, estimator), info
        ...     return ib.kernels.kernel_on_proxy("euler", posterior, proxy_gradient, init, update)
        >>> kernel = euler(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
        >>> ib.sample(kernel, 0.05, 150, burn_in=100, progress=False).num_draws
        50
    """
    return Kernel(
        name=name,
        posterior=posterior,
        space=proxy_gradient.space,
        estimator=proxy_gradient.estimator,
        _init=init,
        _update=update,
        _moving=lambda state: state.phi,
        constrain=proxy_gradient.space.constrain,
        _refresh=lambda state: state._replace(estimator=proxy_gradient.refresh(state.estimator, state.phi)),
        independent_batches=proxy_gradient.corrects if independent_batches is None else independent_batches,
        reports=("gradient_norm", "noise_variance", "clamped") if proxy_gradient.corrects else ("gradient_norm",),
        adapt_steps=precondition.adapt_steps,
        temperature=proxy_gradient.temperature,
        estimates_noise=proxy_gradient.estimates_variance,
        preconditioner=precondition,
        data_version=getattr(proxy_gradient.estimator, "data_version", None),
        recursion=recursion,
        drift_averages_out=drift_averages_out,
        underdamped=underdamped,
    )


class Injected(NamedTuple):
    """Amplitude of the injected noise, coordinate by coordinate (or one number for all), and what `Info` reports of it."""

    amplitude: PyTree
    variance: PyTree = None  # of the gradient
    left: PyTree = None  # of the variance wanted, after that

    def noise_variance(self) -> jax.Array:
        return jnp.full((), jnp.nan) if self.variance is None else trees.mean(self.variance)

    def clamped(self) -> jax.Array:
        if self.left is None:
            return jnp.zeros(())
        return trees.mean(jax.tree.map(lambda x: (x < 0).astype(x.dtype), self.left))


def injected_noise(
    variance_wanted: Callable[[Any], Any],
    noise_in_step: Callable[[Any], Any],
    scale: PyTree,
    variance: PyTree,
    like: PyTree,
) -> Injected:
    """Injected noise such that gradient noise and injected noise together have the variance that the dynamics want.

    `variance_wanted(m)` is the noise variance of one step under preconditioner m, `noise_in_step(m)` what multiplies the
    gradient's variance in it. Without a variance to correct for, the amplitude is just the square root of the first.
    """
    if variance is None:
        if scale is None:
            return Injected(jax.tree.map(lambda _: jnp.sqrt(variance_wanted(1.0)), like))
        return Injected(jax.tree.map(lambda m: jnp.sqrt(variance_wanted(m)), scale))
    if scale is None:
        left = jax.tree.map(lambda v: variance_wanted(1.0) - noise_in_step(1.0) * v, variance)
    else:
        left = jax.tree.map(lambda m, v: variance_wanted(m) - noise_in_step(m) * v, scale, variance)
    return Injected(jax.tree.map(lambda x: jnp.sqrt(jnp.maximum(x, 0)), left), variance, left)


def scaled(scale: PyTree, tree: PyTree) -> PyTree:
    """scale * tree, where no preconditioner means the tree as it is."""
    return tree if scale is None else jax.tree.map(jnp.multiply, scale, tree)


def as_parameters(theta: PyTree) -> PyTree:
    """Leaves as floating-point arrays of one dtype; NumPy's stay on the host."""
    if not jax.tree.leaves(theta):
        raise ValueError("There is no variable to sample: the start is an empty tree.")
    leaves = [
        np.result_type(leaf) if isinstance(leaf, float | int) else leaf.dtype
        for leaf in map(_array, jax.tree.leaves(theta))
    ]
    floats = [d for d in leaves if jnp.issubdtype(d, jnp.floating)]
    dtype = jax.dtypes.canonicalize_dtype(max(floats, key=lambda d: jnp.finfo(d).bits) if floats else float)
    return jax.tree.map(lambda leaf: (leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)).astype(dtype), theta)


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf, jax.dtypes.canonicalize_dtype(float))


def check_metric(metric: Metric | None, preconditioner: PreconditionerLike, noise_correction: NoiseCorrection) -> None:
    """A metric has scales for all directions already, and not every one makes the gradient's noise diagonal."""
    if metric is None:
        return
    if preconditioner is not None:
        raise ValueError(
            "`metric` excludes `preconditioner`: it scales every direction already. Leave one of them out."
        )
    if not hasattr(metric, "to_proxy"):
        raise ValueError(
            f"`metric` must be one of ib.metrics, such as ib.metrics.laplace(posterior, center); got {metric!r}."
        )
    if _as_correction(noise_correction) is not False and not getattr(metric, "diagonal_noise", False):
        raise ValueError(
            f"Noise correction takes the noise of different coordinates for independent, and in a {metric} it is not: the sds would be too "
            "small. Leave `noise_correction` out and take a gradient with little noise, such as ib.gradients.taylor(center=...) or "
            "control_variate(center=...), or a dense metric (ib.metrics.laplace), which makes the noise independent."
        )


def check_arguments(posterior: Any, temperature: Temperature = 1.0) -> float | jax.Array:
    """Look at what every kernel is given; the temperature as its steps multiply by it."""
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"A kernel takes an ib.Posterior; got {posterior!r}. Of a NumPyro model ib.from_numpyro(model, ...) makes one."
        )
    check_temperature(temperature)
    return in_steps(temperature)


__all__ = [
    "Info",
    "Injected",
    "Kernel",
    "MakeInfo",
    "NoiseCorrection",
    "Preconditioner",
    "ProxyGradient",
    "as_parameters",
    "as_preconditioner",
    "check_arguments",
    "check_metric",
    "injected_noise",
    "kernel_factory",
    "kernel_on_proxy",
    "scaled",
]
