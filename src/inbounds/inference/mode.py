r"""A verified centre: where the density of the proxy is highest, found on parts of the data and checked on all of them.

The search is Newton's method with a trust region, in double precision whatever precision a run has. A point is a centre only
where the gradient over all the data is zero in posterior units: the length of the Newton step there,
$\sqrt{g^T H^{-1} g}$, is the distance to the mode in posterior standard deviations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from inbounds.contents import in_words
from inbounds.deadline import OutOfTimeError, go_on
from inbounds.engine.keys import words_of
from inbounds.exact import FEWEST_ROWS, MOST_ROWS, Likelihood, Part, flat, flattener, in_doubles
from inbounds.posterior import Posterior
from inbounds.precision import in_double
from inbounds.space import Space
from inbounds.trees import PyTree, variable_name

__all__ = ["MOST_DENSE", "NO_TIME", "Look", "Mode", "Surface", "find_mode", "newton"]

MOST_DENSE = 2_000  # dimensions up to which Hessians are made
NEAR = 0.1  # posterior sds from the mode at which a point is a centre
NEARBY = (
    1e3  # posterior sds from the mode within which the search goes from one number of the run's precision to another
)
FIRST_ROWS = 8_192  # of a part of the data, at least: those of a slice, so that one program does for both;
ROWS_PER_NUMBER = 50  # and for each dimension
GROWTH = 100  # rows of one part over those of the part before
NO_TIME = "there was no time to search for it to the end"
NOT_FINITE = "the log density of the posterior or a derivative of it is not finite where the search begins"
SADDLE = 1e-8  # of the largest curvature, below minus which a direction goes downhill
MOST_STEPS = 300  # on one part of the data, or on all of them
POINTS_AT_ONCE = 16  # whose values are made side by side,
POINTS = 48  # and by one call
STARTS = 8  # that are tried until the density is finite at one


@dataclass(frozen=True, eq=False)
class Mode:
    """The point of highest density of the proxy, or the best that was found.

    Attributes:
        theta: the point, in the precision of a run: a tree.
        phi: the proxy of exactly that point, in double precision.
        log_density: of the proxy there, up to a constant.
        gradient: of the log density of the proxy, over all the data, flat.
        hessian: of minus that log density, over all the data; None above 2,000 dimensions.
        decrement: the distance to the mode in posterior sds; infinite where the Hessian is not positive definite.
        found: whether this is a centre.
        reason: a sentence that says why it is none; "" where it is one.
        passes: how often all the data were read.
        seconds_per_pass: of a gradient over all the data inside of a program, about.
        slope_of_data: gradient of the log likelihood of all the data in theta, flat.
    """

    theta: PyTree
    phi: PyTree
    log_density: float
    gradient: np.ndarray
    hessian: np.ndarray | None
    decrement: float
    found: bool
    reason: str
    passes: int
    seconds_per_pass: float = 0.0
    slope_of_data: np.ndarray | None = None


class Look(NamedTuple):
    """Minus the log density of the proxy at a point, with its derivatives; and the gradient of the log likelihood in theta."""

    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    of_data: np.ndarray | None = None

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.value) and np.isfinite(self.gradient).all() and np.isfinite(self.hessian).all())


def find_mode(posterior: Posterior, space: Space, init: PyTree = None, *, seed: int = 0) -> Mode:
    """The mode of the proxy, from a part of the data first and from all of them in the end.

    Args:
        posterior: what is sampled; it has a `log_likelihood`, or no data.
        space: how it is kept in bounds.
        init: theta where the search begins; None: near the middle of the prior.
        seed: of the start and of the parts of the data.

    Returns:
        The mode, or the best point that was found: `found` says which. The start where there was no time (`deadline`).

    Raises:
        ValueError: the posterior says gradients alone, or its density is not finite at any start.
    """
    if posterior.gradient is not None:
        raise ValueError("A posterior that gives its `gradient` alone has no density whose mode could be found.")
    asked = ("mode", posterior.version, space, in_words(init), repr(seed), jnp.result_type(float))
    found = posterior.compiled.found
    if asked not in found:  # the doctor and `ib.infer` ask for the same
        start = _start(posterior, space, init, seed)
        surface = Surface(posterior, space, start)
        try:
            begin = _finite_start(surface, posterior, space, init, seed)
            large = surface.dimension > MOST_DENSE
            found[asked] = _large(surface, begin) if large else _dense(surface, begin, seed)
        except OutOfTimeError:
            return _unfinished(surface, start)
    mode: Mode = found[asked]
    return mode


def _unfinished(surface: Surface, theta: PyTree) -> Mode:
    """Where a search began whose time is over: no centre."""
    phi = surface.phi_of(theta)
    unknown = np.full(len(phi), np.nan)
    return Mode(theta, _shaped(surface, phi), math.nan, unknown, None, math.inf, False, NO_TIME, 0)


class Surface:
    """Minus the log density of the proxy as a function of a flat phi, in double precision.

    Args:
        posterior: what is sampled.
        space: how it is kept in bounds.
        theta: any point inside the support, for its shapes.
    """

    def __init__(self, posterior: Posterior, space: Space, theta: PyTree):
        self.posterior, self.space = posterior, space
        self.seconds = math.inf  # of the fastest expansion of all the data
        self.likelihood = Likelihood.of(posterior, theta)
        self.theta_like = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), theta)
        self._inverse = posterior.compiled.of_few_calls(_unconstrained, space)
        self.phi_like = jax.tree.map(lambda leaf: leaf[0], self._proxies(_alone(theta)))
        self.dimension, self.unravel = flattener(self.phi_like)
        self._map = posterior.compiled.of_few_calls(_constrained, space, _Shapes.of(self.phi_like))
        self._outer = posterior.compiled.of_few_calls(_outer, posterior, space, _Shapes.of(self.phi_like))
        self._slope = posterior.compiled.of_few_calls(_slope, posterior, space, _Shapes.of(self.phi_like))

    def phi_of(self, theta: PyTree) -> np.ndarray:
        """The flat proxy of theta."""
        found: np.ndarray = self.phis_of(_alone(theta))[0]
        return found

    def phis_of(self, thetas: PyTree) -> np.ndarray:
        """The flat proxies of several thetas, leading axis = point."""
        return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(self._proxies(thetas))], axis=1)

    def _proxies(self, thetas: PyTree) -> PyTree:
        """A tree of the proxies of several thetas, in blocks of one size, so that one program does for all."""
        thetas = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), thetas)
        count, found = len(jax.tree.leaves(thetas)[0]), []
        for first in range(0, count, POINTS):
            places = np.minimum(np.arange(first, first + POINTS), count - 1)
            with in_double():
                found.append(
                    jax.tree.map(np.asarray, self._inverse(jax.tree.map(lambda leaf, i=places: leaf[i], thetas)))
                )
        return jax.tree.map(lambda *blocks: np.concatenate(blocks)[:count], *found)

    def starts_of(self, phis: np.ndarray) -> PyTree:
        """Theta of flat proxies in the precision of a run, which keeps it strictly inside; leading axis = point."""
        inside = self.posterior.compiled.of_few_calls(_inside, self.space, _Shapes.of(self.phi_like))
        found = [jax.tree.map(np.asarray, inside(np.asarray(phi, jnp.result_type(float)))) for phi in phis]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *found)

    def theta_of(self, phi: np.ndarray) -> PyTree:
        """Theta of a flat proxy."""
        with in_double():
            return jax.tree.map(np.asarray, self._map(phi))

    def rounded_theta_of(self, phi: np.ndarray) -> PyTree:
        """The same in the precision of a run."""
        return _rounded(self.theta_of(phi))

    def values(self, phis: np.ndarray, part: Part | None = None) -> np.ndarray:
        """Values at many points, from a part of the data or, where that is None, from all of them; no point costs a call."""
        data = self.posterior.data
        if part is None and data is not None and self.posterior.log_likelihood is not None:
            part = self.likelihood.part(self.posterior.num_data or 0)
        rows, scale = (None, 1.0) if part is None else part
        values = self.posterior.compiled.of(_values, self.posterior, self.space, _Shapes.of(self.phi_like))
        phis = np.asarray(phis, np.float64)
        filled = np.concatenate([phis, np.repeat(phis[-1:], -len(phis) % POINTS, axis=0)])  # blocks of one size
        with in_double():
            found = []
            for block in np.split(filled, len(filled) // POINTS):
                go_on()
                found.append(np.asarray(values(rows, np.float64(scale), block)))
        return np.concatenate(found)[: len(phis)]

    def look(self, phi: np.ndarray, part: Part | None = None) -> Look:
        """Value, gradient and Hessian, from a part of the data or from all of them."""
        go_on()
        theta = flat(self.theta_of(phi))
        began = time.perf_counter()
        value, gradient, hessian = self.likelihood.expansion(theta, part)
        if part is None:
            self.seconds = min(self.seconds, time.perf_counter() - began)
        with in_double():
            rest, slope, curved = (np.asarray(x) for x in self._outer(phi, gradient, hessian, theta))
        return Look(float(rest) - value, slope, (curved + curved.T) / 2, gradient)

    def slope(self, phi: np.ndarray, part: Part | None = None) -> tuple[float, np.ndarray]:
        """Value and gradient alone, for many dimensions."""
        go_on()
        theta = flat(self.theta_of(phi))
        value, gradient = self.likelihood.slope(theta, part)
        with in_double():
            rest, slope = (np.asarray(x) for x in self._slope(phi, gradient, theta))
        return float(rest) - value, slope

    def product(self, phi: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """The Hessian over all the data times a vector, by a difference of gradients."""
        step = 1e-4 / max(float(np.abs(vector).max()), 1e-300)
        return np.asarray((self.slope(phi + step * vector)[1] - self.slope(phi - step * vector)[1]) / (2 * step))

    def names(self) -> list[str]:
        """The variable of each number of phi."""
        leaves = jax.tree_util.tree_leaves_with_path(self.phi_like)
        return [variable_name(path) for path, leaf in leaves for _ in range(np.size(leaf))]

    def parts(self, seed: int) -> list[Part]:
        """Parts of the data, each larger than the one before; none where all of them are few."""
        rows = self.posterior.num_data
        if rows is None or self.posterior.log_likelihood is None:
            return []
        first = max(FIRST_ROWS // self.posterior.data_per_row, FEWEST_ROWS, ROWS_PER_NUMBER * self.dimension)
        sizes = []
        while first < rows / 4:
            sizes.append(first)
            first *= GROWTH
        return [self.likelihood.part(size, seed) for size in sizes]


class _Shapes(NamedTuple):
    """Structure and shapes of phi, which can be hashed."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, phi: PyTree) -> _Shapes:
        leaves, treedef = jax.tree.flatten(phi)
        return cls(treedef, tuple(np.shape(leaf) for leaf in leaves))

    def unravel(self, phi: jax.Array) -> PyTree:
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = jnp.split(phi, np.cumsum(sizes)[:-1]) if len(sizes) > 1 else [phi]
        return jax.tree.unflatten(
            self.treedef, [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        )


def _constrained(space: Space, shapes: _Shapes, phi: jax.Array) -> PyTree:
    return space.constrain(shapes.unravel(phi))


def _inside(space: Space, shapes: _Shapes, phi: jax.Array) -> PyTree:
    return space.evaluation_point(shapes.unravel(phi))


def _unconstrained(space: Space, thetas: PyTree) -> PyTree:
    return jax.vmap(space.unconstrain)(thetas)


def _alone(theta: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], theta)


def _outer(
    posterior: Posterior, space: Space, shapes: _Shapes,
    phi: jax.Array, gradient: jax.Array, hessian: jax.Array, theta: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Prior and Jacobian at phi, and the derivatives of all three: the likelihood by its expansion in theta."""

    def negative(phi: jax.Array) -> tuple[jax.Array, jax.Array]:
        tree = shapes.unravel(phi)
        moved = space.constrain(tree)
        other = -(posterior.log_prior(moved) + space.log_abs_det_jacobian(tree))
        by = _ravel(moved) - theta
        return other - gradient @ by - by @ (hessian @ by) / 2, other

    def slope(phi: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:  # traced once for all three
        found, other = jax.grad(negative, has_aux=True)(phi)
        return found, (other, found)

    curved, (other, found) = jax.jacfwd(slope, has_aux=True)(phi)
    return other, found, curved


def _values(
    posterior: Posterior, space: Space, shapes: _Shapes, rows: PyTree, scale: jax.Array, phis: jax.Array
) -> jax.Array:
    rows = jax.tree.map(in_doubles, rows)

    def one(phi: jax.Array) -> jax.Array:
        tree = shapes.unravel(phi)
        theta = space.constrain(tree)
        total = posterior.log_prior(theta) + space.log_abs_det_jacobian(tree)
        if posterior.log_likelihood is not None:
            total = total + scale * jnp.sum(posterior.log_likelihood(theta, rows))
        return -total

    values: jax.Array = jax.lax.map(one, phis, batch_size=POINTS_AT_ONCE)
    return values


def _slope(
    posterior: Posterior, space: Space, shapes: _Shapes, phi: jax.Array, gradient: jax.Array, theta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def negative(phi: jax.Array) -> tuple[jax.Array, jax.Array]:
        tree = shapes.unravel(phi)
        moved = space.constrain(tree)
        other = -(posterior.log_prior(moved) + space.log_abs_det_jacobian(tree))
        return other - gradient @ (_ravel(moved) - theta), other

    slope, other = jax.grad(negative, has_aux=True)(phi)
    return other, slope


def _ravel(tree: PyTree) -> jax.Array:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


# -- where to begin -----------------------------------------------------------------------------------------------


def _start(posterior: Posterior, space: Space, init: PyTree, seed: int) -> PyTree:
    theta = _first_start(posterior, seed) if init is None else init
    theta = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(float)), theta)
    space.check(theta)
    return theta


def _first_start(posterior: Posterior, seed: int) -> PyTree:
    drawn = posterior.starts_on_host(words_of(seed)[None])
    return posterior.start(jax.random.key(seed)) if drawn is None else jax.tree.map(lambda leaf: leaf[0], drawn)


def _finite_start(surface: Surface, posterior: Posterior, space: Space, init: PyTree, seed: int) -> np.ndarray:
    """A flat phi at which the density and its derivatives are finite."""
    part = next(iter(surface.parts(seed)), None)
    for attempt in range(1 if init is not None else STARTS):
        phi = surface.phi_of(_start(posterior, space, init, seed + attempt))
        value, slope = surface.slope(phi, part) if surface.dimension > MOST_DENSE else surface.look(phi, part)[:2]
        if np.isfinite(value) and np.isfinite(slope).all():
            return phi
    raise ValueError(
        "The log density of the posterior or its gradient is not finite "
        + ("at `init`." if init is not None else f"at any of {STARTS} starts near the middle of the prior.")
        + " Look for log, sqrt or division of something that can be zero or negative, or give `init` where it is finite."
    )


# -- Newton's method with a trust region --------------------------------------------------------------------------


def _dense(surface: Surface, phi: np.ndarray, seed: int) -> Mode:
    """From small parts of the data to all of them."""
    parts = surface.parts(seed)
    for part in parts:
        phi, _, _ = _newton(partial(surface.look, part=part), phi, MOST_STEPS, NEAR)
    passes = 0

    def look(x: np.ndarray) -> Look:
        nonlocal passes
        passes += 1
        return surface.look(x)

    # The centre is a point of the run's precision, and so are the sums over the data there.
    phi, here, why = _newton(look, phi, MOST_STEPS, NEAR, lambda x: surface.phi_of(_rounded(surface.theta_of(x))))
    decrement = _decrement(here)
    found = decrement <= NEAR
    if passes == 1 and not parts:  # the only one compiled, too, which is no measure of a pass
        surface.look(phi)
    theta = _rounded(surface.theta_of(phi))  # which is phi's own, where it was found
    return Mode(
        theta, _shaped(surface, phi), -here.value, -here.gradient, here.hessian, decrement, found,
        "" if found else _why_not(surface, here, decrement, why), passes, _seconds_per_pass(surface, phi), here.of_data,
    )  # fmt: skip


def _seconds_per_pass(surface: Surface, phi: np.ndarray) -> float:
    """Of a gradient over all the data, from the expansions that the search asked for: each has one for the value and one per dimension."""
    if surface.posterior.log_likelihood is None:
        return 0.0
    call = math.inf
    for _ in range(3):
        began = time.perf_counter()
        surface.theta_of(phi)
        call = min(call, time.perf_counter() - began)
    calls = 2 * (1 + (surface.posterior.num_data or 0) // MOST_ROWS)  # one cuts the rows of a slice, one reads them
    return max(surface.seconds - calls * call, 0.0) / (1 + surface.dimension)


def newton(look: Callable[[np.ndarray], Look], phi: np.ndarray, most: int = MOST_STEPS) -> tuple[np.ndarray, Look, str]:
    """(the mode that a search from phi comes to, what was seen there, why it is none; "" where it is one)."""
    phi, there, why = _newton(look, phi, most, NEAR)
    return phi, there, "" if _decrement(there) <= NEAR else why or "the search did not come to an end"


def _newton(
    look: Callable[[np.ndarray], Look],
    phi: np.ndarray,
    most: int,
    tolerance: float,
    rounded: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> tuple[np.ndarray, Look, str]:
    """(the point, what was seen there, why it is no minimum): steps inside a ball that grows where the model of the surface is right."""
    phi = rounded(phi)
    here, radius = look(phi), math.inf
    if not here.finite:
        return phi, here, NOT_FINITE
    for _ in range(most):
        distance = _decrement(here)
        if distance <= tolerance:
            return phi, here, ""
        nearby = distance < NEARBY  # further out the search may need steps that single precision cannot tell
        scales = _scales(here.hessian)
        values, vectors = np.linalg.eigh(scales[:, None] * here.hessian * scales)
        slope = vectors.T @ (scales * here.gradient)
        if math.isinf(radius) and values[0] <= 0:
            radius = 10 * math.sqrt(len(phi))
        while True:
            step, predicted = _within(values, slope, radius)
            length = float(np.linalg.norm(step))
            if length < 1e-10 or predicted <= 1e-13 * max(1.0, abs(here.value)):
                return phi, here, "no step downhill is left that doubles can tell"
            there_phi = phi + scales * (vectors @ step)
            there_phi = rounded(there_phi) if nearby else there_phi
            there = look(there_phi)
            gained = here.value - there.value if there.finite else -math.inf
            if gained >= 1e-4 * predicted:
                break
            radius = length / 4
            most -= 1
            if most <= 0:
                return phi, here, "the search did not come to an end"
        if gained > 0.75 * predicted:
            radius = max(radius, 4 * length)
        elif gained < 0.25 * predicted:
            radius = length / 2
        phi, here = there_phi, there
    return phi, here, "" if _decrement(here) <= tolerance else "the search did not come to an end"


def _within(values: np.ndarray, slope: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    """The step in the principal axes that lowers the quadratic model most within the radius, and by how much."""
    floor = max(1e-12 * float(np.abs(values).max()), 1e-300)
    least = max(0.0, -float(values[0]))

    def step_of(shift: float) -> np.ndarray:
        return -slope / np.maximum(values + shift, floor)

    step = step_of(least)
    if np.linalg.norm(step) > radius:
        low, high = least, least + float(np.linalg.norm(slope)) / radius
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if np.linalg.norm(step_of(middle)) > radius else (low, middle)
        step = step_of(high)
    elif values[0] < -SADDLE * float(np.abs(values).max()):  # no slope leads away from a saddle, but its curvature does
        step[0] += math.copysign(math.sqrt(radius**2 - float(step @ step)), -slope[0])
    return step, float(-(slope @ step + values @ step**2 / 2))


def _scales(hessian: np.ndarray) -> np.ndarray:
    """One over the root of the size of the diagonal: no unit of the data sets the precision."""
    diagonal = np.abs(np.diag(hessian))
    return 1 / np.sqrt(np.maximum(diagonal, max(1e-12 * float(diagonal.max(initial=0.0)), 1e-300)))


def _decrement(look: Look) -> float:
    """Length of the Newton step in posterior sds; infinite where the Hessian is not positive definite."""
    if not look.finite:
        return math.inf
    scales = _scales(look.hessian)
    values, vectors = np.linalg.eigh(scales[:, None] * look.hessian * scales)
    if values[0] <= len(values) * np.finfo(float).eps * values[-1]:
        return math.inf
    return float(np.linalg.norm((vectors.T @ (scales * look.gradient)) / np.sqrt(values)))


def _why_not(surface: Surface, here: Look, decrement: float, why: str) -> str:
    names = surface.names()
    if math.isfinite(decrement):
        return (
            f"no point was found at which the gradient over all the data is zero: the best one is {decrement:.3g} posterior sds from where "
            f"it would be ({why})"
        )
    if not here.finite:
        return f"{NOT_FINITE}, over all the data"
    scales = _scales(here.hessian)
    values, vectors = np.linalg.eigh(scales[:, None] * here.hessian * scales)
    flattest = np.abs(vectors[:, 0])
    worst = [names[i] for i in np.argsort(-flattest)[:3] if flattest[i] > 0.3]
    along = ", ".join(dict.fromkeys(repr(name) for name in worst)) or repr(names[int(np.argmax(flattest))])
    kind = "rises without end, or has a saddle," if values[0] < 0 else "is flat"
    return f"the density of the posterior {kind} along {along}, so that it has no mode (smallest curvature {values[0]:.2g} of the largest)"


def _rounded(theta: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: np.asarray(leaf, jnp.result_type(float)), theta)


def _shaped(surface: Surface, phi: np.ndarray) -> PyTree:
    leaves, treedef = jax.tree.flatten(surface.phi_like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = [part.reshape(np.shape(leaf)) for part, leaf in zip(np.split(phi, ends), leaves, strict=True)]
    return jax.tree.unflatten(treedef, parts)


# -- many dimensions ----------------------------------------------------------------------------------------------


def _large(surface: Surface, phi: np.ndarray) -> Mode:
    """By gradients alone; the distance to the mode by conjugate gradients."""
    passes = 0

    def slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal passes
        passes += 1
        value, gradient = surface.slope(x)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return 1e300, np.zeros_like(x)
        return value, gradient

    found = minimize(slope, phi, jac=True, method="L-BFGS-B", options={"maxiter": 500, "maxcor": 20, "ftol": 1e-14})
    phi = surface.phi_of(_rounded(surface.theta_of(found.x)))
    value, gradient = surface.slope(phi)
    size = len(phi)
    curved = LinearOperator((size, size), matvec=lambda v: surface.product(phi, np.ravel(v)), dtype=np.float64)
    newton, _ = cg(curved, gradient, rtol=1e-2, maxiter=50)
    squared = float(gradient @ newton)
    decrement = math.sqrt(squared) if squared >= 0 else math.inf
    near = decrement <= NEAR * math.sqrt(size)  # no coordinate is far off where the whole vector is not
    reason = "" if near else f"no point was found at which the gradient over all the data is zero: {found.message}"
    return Mode(
        _rounded(surface.theta_of(phi)), _shaped(surface, phi), -value, -gradient, None, decrement, near, reason, passes
    )
