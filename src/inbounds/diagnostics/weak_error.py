r"""The stationary law of a one-dimensional chain by quadrature of its transition kernel: bias without Monte Carlo.

A chain with step size :math:`\epsilon` draws from a law :math:`\pi_\epsilon` that differs from the target. That law is
computed here to many digits, for three chains. With :math:`G = f'\,\partial_\theta\log\pi + f''/f'` the drift of the
proxy :math:`\phi`, :math:`\sigma` the standard deviation of the noise on the theta-gradient, :math:`V = \sigma^2 f'^2`
its variance as the proxy sees it, and independent standard normals :math:`\eta, \delta`, they are

.. math::
    \text{euler:}\quad & \phi' = \phi + \epsilon\,(G(\phi) + \sigma f'(\phi)\,\delta) + a(\phi)\,\eta \\
    \text{leimkuhler\_matthews:}\quad & \phi = y + \sqrt{\epsilon/2}\;\eta, \qquad
        y' = y + \epsilon\,(G(\phi) + \sigma f'(\phi)\,\delta) + a(y)\,\eta \\
    \text{mirror:}\quad & \theta' = \mathrm{fold}(\theta + \epsilon\,(\partial_\theta\log\pi + \sigma\delta) + a\,\eta)

with :math:`a = \sqrt{2\epsilon}`, or with the noise correction of Vollmer, Zygalakis & Teh (2016)
:math:`a = \sqrt{\max(0,\, 2\epsilon - \epsilon^2 V)}`. In the scheme of Leimkuhler & Matthews (2013) the *same*
:math:`\eta` makes :math:`\phi` and moves :math:`y`; the correction is evaluated at :math:`y`, independent of it.

One identity is free, for the first two chains at every step size and noise: taking expectations of the update,
:math:`E[G(\phi)] = 0` in stationarity. So Exp on a gamma and Sigmoid on a beta have no bias at all in the mean.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import hermite_e, legendre
from numpy.typing import ArrayLike
from scipy import integrate, interpolate, sparse
from scipy.sparse import linalg

from inbounds.precision import in_double
from inbounds.transforms import Transform, onto

__all__ = ["SCHEMES", "Bias", "StationaryLaw", "fitted_slope", "stationary"]

SCHEMES = ("euler", "leimkuhler_matthews", "mirror")

_ORDER = 12  # Gauss-Legendre nodes in a panel
_REACH = 9.0  # standard deviations after which a normal counts as zero
_STENCIL = 8  # nodes of the local Lagrange interpolation
_BLOCK = 4096  # transforms are evaluated in blocks of one shape, so that JAX compiles them once
_NEGLIGIBLE = 1e-13  # density, relative to its peak, at which the grid may end
_TOLERABLE = 1e-3  # mass beyond the grid at which the answer would be wrong
_MOST_PANELS = 3000


class Target(Protocol):
    """What is needed of a target: the ends of its support, its score in jax.numpy, its cdf and two moments."""

    low: float
    high: float
    mean: float
    second_moment: float

    def score(self, theta: jax.Array) -> jax.Array: ...
    @property
    def cdf(self) -> Callable[[np.ndarray], np.ndarray]: ...
    def __hash__(self) -> int: ...


class Bias(NamedTuple):
    """How a stationary law differs from its target.

    `mean` and `second_moment` are relative errors of E[theta] and E[theta^2] (where the target's mean is 0, that of the
    mean is relative to sqrt(E[theta^2])); then the two distances; `drift` is E[G(phi)], which is 0 but for mirror.
    """

    mean: float
    second_moment: float
    wasserstein1: float
    kolmogorov_smirnov: float
    drift: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StationaryLaw:
    """The law that a chain settles in, on the nodes of Gauss-Legendre panels.

    Args:
        target: what the chain aims at.
        phi: the nodes, increasing (of theta itself for mirror).
        theta: the same nodes in the constrained space.
        weights: the probability of each node: E[h] is their weighted sum.
        density: of phi, at the nodes.
        distribution: the distribution function, at the nodes.
        lengths: the length of theta that each node stands for.
        drift: G at the nodes (the score for mirror).
        tail_mass: a bound on the probability beyond the grid; biases below it are not resolved. It is about 1e-13 but
            for arctan and softsign, whose tails are polynomial, and for chains that explode.
        to_phi: theta -> phi.
    """

    target: Target
    phi: np.ndarray
    theta: np.ndarray
    weights: np.ndarray
    density: np.ndarray
    distribution: np.ndarray
    lengths: np.ndarray
    drift: np.ndarray
    tail_mass: float
    to_phi: Callable[[np.ndarray], np.ndarray]

    def mean(self, h: Callable[[np.ndarray], np.ndarray] = lambda theta: theta) -> float:
        """E[h(theta)] under the law, for h that takes an array.

        Args:
            h: of an array, elementwise; the default is theta itself.

        Returns:
            The expectation.
        """
        return float(self.weights @ h(self.theta))

    def cdf(self, theta: ArrayLike) -> np.ndarray:
        """The distribution function of theta under the law.

        Args:
            theta: a number or an array.

        Returns:
            Probabilities of the same shape.
        """
        phi = np.clip(self.to_phi(np.asarray(theta, float)), self.phi[0], self.phi[-1])
        result: np.ndarray = interpolate.CubicHermiteSpline(self.phi, self.distribution, self.density)(phi)
        return result

    def bias(self) -> Bias:
        """How the law differs from the target."""
        mean, second_moment = self.target.mean, self.target.second_moment
        gap = np.abs(self.distribution - self.target.cdf(self.theta))
        return Bias(
            mean=(self.mean() - mean) / (abs(mean) if abs(mean) > 1e-12 else math.sqrt(second_moment)),
            second_moment=self.mean(np.square) / second_moment - 1,
            wasserstein1=float(gap @ self.lengths),
            kolmogorov_smirnov=float(gap.max()),
            drift=float(self.weights @ self.drift),
        )

    def __repr__(self) -> str:
        return f"StationaryLaw({self.target!r}, {len(self.phi)} nodes in [{self.phi[0]:.3g}, {self.phi[-1]:.3g}])"


def stationary(
    target: Target,
    transform: Transform | str | None = None,
    step_size: float = 0.1,
    *,
    scheme: str = "euler",
    noise_sd: float = 0.0,
    noise_correction: bool = False,
) -> StationaryLaw:
    """The stationary law of a one-dimensional chain, without Monte Carlo error.

    Euler and mirror: the kernel has a normal density, and the fixed point of the integral operator is found by
    Nyström's method on Gauss-Legendre panels shorter than the kernel is wide. Leimkuhler-Matthews: the kernel of y has
    no density without gradient noise, so its action on functions is discretised instead (Gauss-Hermite in the noises,
    Lagrange interpolation in y). The left null vector of that is the law of y, and a normal convolution gives that of phi.
    The grid covers the proxy's tails and grows until nothing is left outside.

    Args:
        target: what the chain aims at.
        transform: an increasing map onto the target's support, or its name; None for mirror.
        step_size: the coefficient of the full gradient; the injected noise has variance `2 * step_size`.
        scheme: "euler", "leimkuhler_matthews" or "mirror".
        noise_sd: standard deviation of the Gaussian noise on the theta-gradient.
        noise_correction: take the variance of that noise, known, out of the injected noise.

    Returns:
        The law: its density on a grid, its moments and its distribution function.

    Raises:
        ValueError: for a wrong argument, for mirror on a density whose score is not bounded at the ends or on a half line
            too wide for its steps, for chains that explode, and for tails of the proxy too heavy for any grid (arctan and
            softsign on a density that is unbounded at an end).

    Example:
        >>> from scipy import stats
        >>> class Gamma:
        ...     low, high, mean, second_moment = 0.0, np.inf, 2.0, 6.0
        ...     support, cdf = dist.constraints.positive, stats.gamma(2).cdf
        ...     def score(self, theta):
        ...         return 1 / theta - 1
        >>> law = ib.diagnostics.stationary(Gamma(), "softplus", 0.1, scheme="leimkuhler_matthews")
        >>> abs(law.bias().mean) < 0.01
        True
    """
    _validate(target, transform, step_size, scheme, noise_sd)
    if scheme == "mirror":
        chain = functools.partial(_mirror, target)
        low, high = _range(_score(target), target.low, target.high)
        reach = _MOST_PANELS * 2 * float(_total_sd(step_size, noise_sd, noise_correction))
        farthest = low, target.high if math.isfinite(target.high) else low + reach
    else:
        proxy = _Proxy(target, _resolve(transform, target))
        chain = functools.partial(_euler if scheme == "euler" else _leimkuhler_matthews, proxy)
        low, high = _range(proxy.drift, -math.inf, math.inf)
        reach = _MOST_PANELS / 2 * _longest_panel(step_size)
        farthest = -reach, reach
    for _ in range(6):
        low, high = max(low, farthest[0]), min(high, farthest[1])
        law = chain(step_size, noise_sd, noise_correction, low, high)
        grow = (law.density[[0, -1]] > _NEGLIGIBLE * law.density.max()) & (low > farthest[0], high < farthest[1])
        if not grow.any():
            break
        low, high = np.array([low, high]) + 0.3 * (high - low) * grow * (-1, 1)
    return _checked(law, step_size, scheme)


def fitted_slope(step_sizes: ArrayLike, errors: ArrayLike) -> float:
    """The order of convergence: the least-squares slope of log|error| against log(step size).

    Args:
        step_sizes: positive numbers, at least two.
        errors: as many, none of them 0.

    Returns:
        The slope of log error against log step size, by least squares.

    Raises:
        ValueError: they are not as many, or a logarithm does not exist.

    Example:
        >>> round(ib.diagnostics.fitted_slope(np.array([0.1, 0.2, 0.4]), np.array([0.01, 0.04, 0.16])), 6)
        2.0
    """
    sizes, magnitudes = np.asarray(step_sizes, float), np.abs(np.asarray(errors, float))
    if sizes.shape != magnitudes.shape or sizes.size < 2:
        raise ValueError(
            f"fitted_slope needs as many errors as step sizes, at least two; got {sizes.shape} and {magnitudes.shape}."
        )
    if not ((sizes > 0).all() and (magnitudes > 0).all() and np.isfinite(magnitudes).all()):
        raise ValueError("fitted_slope takes logarithms: step sizes and errors must be finite and not zero.")
    return float(np.polyfit(np.log(sizes), np.log(magnitudes), 1)[0])


# -- the three chains ---------------------------------------------------------------------------------------------


def _euler(
    proxy: "_Proxy", step_size: float, noise_sd: float, noise_correction: bool, low: float, high: float
) -> StationaryLaw:
    """phi' is normal with mean phi + eps G and variance 2 eps + eps^2 V, or max(2 eps, eps^2 V) when corrected."""
    probe = np.linspace(low, high, _BLOCK)
    _, slope, drift = proxy(probe)
    steepness = np.abs(1 + step_size * np.gradient(drift, probe))
    width = 2.5 * _total_sd(step_size, noise_sd * slope, noise_correction) / np.maximum(1, steepness)
    length = np.clip(width, _longest_panel(step_size) / 50, _longest_panel(step_size))
    nodes, spacing = _panels(low, high, lambda x: np.interp(x, probe, length))
    theta, slope, drift = proxy(nodes)
    sd = _total_sd(step_size, noise_sd * slope, noise_correction)
    kernel = _normal_band(np.clip(nodes + step_size * drift, low, high), sd, nodes)
    weights = _left_null(kernel.multiply(spacing).tocsr())
    return _law(proxy.target, nodes, spacing, weights / spacing, theta, slope, drift, proxy.inverse)


def _leimkuhler_matthews(
    proxy: "_Proxy", step_size: float, noise_sd: float, noise_correction: bool, low: float, high: float
) -> StationaryLaw:
    """The law of y from the action of its kernel on functions, then phi = y + sqrt(eps/2) eta."""
    half = math.sqrt(step_size / 2)
    y = np.linspace(low, high, 1 + math.ceil((high - low) / min(0.7 * half, 0.1)))
    eta, eta_weights = _normal_nodes(y, half, proxy.kink)
    delta, delta_weights = _hermite(7 if noise_sd else 1)
    _, slope, drift = proxy(y[:, None] + half * eta)
    amplitude = np.full_like(y, 2 * half)
    if noise_correction:
        variance = np.square(noise_sd * proxy(y)[1])
        amplitude = np.sqrt(np.maximum(0, 2 * step_size - step_size**2 * variance))
    moved = y[:, None] + step_size * drift + amplitude[:, None] * eta
    moved = moved[..., None] + step_size * noise_sd * slope[..., None] * delta
    kernel = _interpolation_band(y, moved.reshape(len(y), -1), (eta_weights[..., None] * delta_weights))
    weights = _left_null(kernel)
    nodes, spacing = _panels(low, high, lambda x: np.clip(3 * half, 0.5, 1.5))
    density = weights @ _normal_band(y, np.full_like(y, half), nodes)
    theta, slope, drift = proxy(nodes)
    return _law(proxy.target, nodes, spacing, density, theta, slope, drift, proxy.inverse)


def _mirror(
    target: Target, step_size: float, noise_sd: float, noise_correction: bool, low: float, high: float
) -> StationaryLaw:
    """theta' is a normal folded at the ends of the support: the normal density summed over the images of its mean."""
    sd = float(_total_sd(step_size, noise_sd, noise_correction))
    nodes, spacing = _panels(low, high, lambda x: min(2 * sd, (high - low) / 4), centre=low)
    drift = _score(target)(nodes)
    mean, deviations = nodes + step_size * drift, np.full_like(nodes, sd)
    images = [mean, 2 * low - mean]
    if math.isinf(target.high):  # what overshoots the grid stays at its end, where `tail_mass` sees it
        images = [np.clip(image, 2 * low - high, high) for image in images]
    else:
        width = 2 * (target.high - target.low)
        turns = math.ceil((np.abs(mean - low).max() + _REACH * sd) / width) + 1
        images = [image + width * turn for image in images for turn in range(-turns, turns + 1)]
    kernel = functools.reduce(operator.add, (_normal_band(image, deviations, nodes) for image in images))
    weights = _left_null(kernel.multiply(spacing).tocsr())
    ones = np.ones_like(nodes)
    open_ends = np.isinf([target.low, target.high])
    return _law(target, nodes, spacing, weights / spacing, nodes, ones, drift, lambda theta: theta, open_ends)


def _longest_panel(step_size: float) -> float:
    """Short against the injected noise, which is the finest scale of the law, and against the features of the drift."""
    return min(1.5, 2.5 * math.sqrt(2 * step_size))


def _total_sd(step_size: float, gradient_sd: float | np.ndarray, noise_correction: bool) -> np.ndarray:
    """Of one step: injected and gradient noise together."""
    injected, gradient = 2 * step_size, np.square(step_size * gradient_sd)
    return np.asarray(np.sqrt(np.maximum(injected, gradient) if noise_correction else injected + gradient))


def _law(
    target: Target,
    nodes: np.ndarray,
    spacing: np.ndarray,
    density: np.ndarray,
    theta: np.ndarray,
    slope: np.ndarray,
    drift: np.ndarray,
    to_phi: Callable[[np.ndarray], np.ndarray],
    open_ends: ArrayLike = (True, True),
) -> StationaryLaw:
    """There is nothing beyond an end that is not open: the grid ends there because the support does."""
    density = density / (density @ spacing)
    centre = (density * spacing) @ nodes  # not the peak, which is at an end where a chain explodes
    return StationaryLaw(
        target=target,
        phi=nodes,
        theta=theta,
        weights=density * spacing,
        density=density,
        distribution=_integral(density, spacing),
        lengths=spacing * slope,
        drift=drift,
        tail_mass=float(np.abs(density[[0, -1]] * (nodes[[0, -1]] - centre)) @ np.asarray(open_ends, float)),
        to_phi=to_phi,
    )


# -- the proxy ----------------------------------------------------------------------------------------------------


class _Proxy:
    """phi -> (theta, f', G) in float64, whatever JAX's default precision is."""

    def __init__(self, target: Target, transform: Transform):
        self.target, self.transform = target, transform
        self._evaluate = _proxy_function(target, transform)
        ends = self(np.array([-1e6, 1e6]))[0]
        for end, expected in zip(ends, (target.low, target.high), strict=True):
            if abs(end - expected) > 1e-3 and not (math.isinf(expected) and abs(end) > 1e5):
                raise ValueError(
                    f"{transform!r} maps onto ({ends[0]:.4g}, {ends[1]:.4g}), but {target!r} lives on "
                    f"({target.low:g}, {target.high:g}); use inbounds.transforms.onto(target.support, name)."
                )

    def __call__(self, phi: np.ndarray) -> np.ndarray:
        return _in_blocks(self._evaluate, phi)

    def drift(self, phi: np.ndarray) -> np.ndarray:
        result: np.ndarray = self(phi)[2]
        return result

    def inverse(self, theta: ArrayLike) -> np.ndarray:
        with in_double():
            return np.asarray(self.transform.inv(jnp.asarray(theta, jnp.float64)))

    @functools.cached_property
    def kink(self) -> bool:
        """Whether G jumps at phi = 0, as softsign's does."""
        below, above = self.drift(np.array([-1e-9, 1e-9]))
        return bool(abs(above - below) > 1e-6)


@functools.lru_cache(maxsize=64)
def _proxy_function(target: Target, transform: Transform) -> Callable[[jax.Array], jax.Array]:
    def evaluate(phi: jax.Array) -> jax.Array:
        point = transform.evaluation_point(phi)
        drift = transform.pull_back(phi, point, target.score(point))
        return jnp.stack([transform(phi), transform.derivative(phi), drift])

    return jax.jit(evaluate)


def _score(target: Target) -> Callable[[np.ndarray], np.ndarray]:
    return functools.partial(_in_blocks, _score_function(target))


@functools.lru_cache(maxsize=64)
def _score_function(target: Target) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(target.score)


def _in_blocks(function: Callable[[jax.Array], jax.Array], x: np.ndarray) -> np.ndarray:
    """Apply a JAX function in float64, in blocks of one shape; the answer has leading axes of its own, then x's."""
    flat = np.ravel(np.asarray(x, float))
    padded = np.append(flat, np.zeros(-len(flat) % _BLOCK)).reshape(-1, _BLOCK)
    with in_double():
        blocks = [np.asarray(function(jnp.asarray(block, jnp.float64))) for block in padded]
    values = np.concatenate(blocks, axis=-1)[..., : len(flat)]
    return values.reshape(*values.shape[:-1], *np.shape(x))


def _range(drift: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> tuple[float, float]:
    """Where exp(integral of the drift), the exact density, exceeds what is negligible, with room for a wider law."""
    ladder = np.sinh(np.linspace(-12, 12, _BLOCK))
    if math.isfinite(low) and math.isfinite(high):
        ladder = np.linspace(low, high, _BLOCK)
    elif math.isfinite(low):
        ladder = low + np.sinh(np.linspace(0, 24, _BLOCK))  # up to 1e10, rungs 0.6% apart: theta has any unit
    steps = np.nan_to_num(drift(ladder), nan=-1e300, posinf=1e300, neginf=-1e300)
    log_density = integrate.cumulative_trapezoid(np.clip(steps, -1e8, 1e8), ladder, initial=0)
    inside = ladder[log_density > log_density.max() + 1.05 * math.log(_NEGLIGIBLE)]
    room = 1 + 0.2 * abs(inside[-1] - (low if math.isfinite(low) else 0.0))
    return (inside[0] - 1 if math.isinf(low) else low), (inside[-1] + room if math.isinf(high) else high)


# -- quadrature ---------------------------------------------------------------------------------------------------


def _panels(
    low: float, high: float, length: Callable[[float], Any], centre: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre panels of the given local length; `centre`, a possible kink, is an edge."""
    centre = min(max(centre, low), high)
    sides = []
    for end in (low, high):
        edges = [centre]
        while edges[-1] != end:
            step = math.copysign(float(length(edges[-1])), end - centre)
            left = end - edges[-1]
            edges.append(end if abs(left) < 1.5 * abs(step) else edges[-1] + step)
        sides.append(edges)
    ends = np.array(sides[0][:0:-1] + sides[1])
    unit, weights = legendre.leggauss(_ORDER)
    halves = np.diff(ends)[:, None] / 2
    return ((ends[:-1, None] + halves) + halves * unit).ravel(), (halves * weights).ravel()


def _integral(density: np.ndarray, spacing: np.ndarray) -> np.ndarray:
    """The integral of the density from the lower end of the grid up to each node, panel by panel."""
    unit, weights = legendre.leggauss(_ORDER)
    basis = np.linalg.inv(legendre.legvander(unit, _ORDER - 1))
    within = legendre.legval(unit, legendre.legint(basis, lbnd=-1)).T
    panels = density.reshape(-1, _ORDER)
    halves = spacing.reshape(-1, _ORDER)[:, :1] / weights[0]
    masses = halves[:, 0] * (panels @ weights)
    result: np.ndarray = ((np.cumsum(masses) - masses)[:, None] + halves * (panels @ within.T)).ravel()
    return result


def _hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the expectation under a standard normal."""
    nodes, weights = hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def _normal_nodes(y: np.ndarray, half: float, kink: bool) -> tuple[np.ndarray, np.ndarray]:
    """Nodes for eta, a row for each y; split where phi = y + half * eta crosses a kink at 0."""
    if not kink:
        nodes, weights = _hermite(20)
        return np.broadcast_to(nodes, (len(y), 20)), np.broadcast_to(weights, (len(y), 20))
    unit, weights = legendre.leggauss(24)
    cut = np.clip(-y / half, -_REACH, _REACH)[:, None]
    halves = np.stack([cut + _REACH, _REACH - cut], 1) / 2
    nodes = np.stack([(cut - _REACH) / 2, (cut + _REACH) / 2], 1) + halves * unit
    density = halves * weights * np.exp(-(nodes**2) / 2)
    nodes, density = nodes.reshape(len(y), -1), density.reshape(len(y), -1)
    return nodes, density / density.sum(1, keepdims=True)


def _normal_band(mean: np.ndarray, sd: np.ndarray, points: np.ndarray) -> sparse.csr_array:
    """The sparse matrix of normal densities at `points` (increasing), a row for each mean."""
    first = np.searchsorted(points, mean - _REACH * sd)
    last = np.searchsorted(points, mean + _REACH * sd)
    starts = np.concatenate([[0], np.cumsum(last - first)])
    column = np.arange(starts[-1]) + np.repeat(first - starts[:-1], last - first)
    wide = np.repeat(np.stack([mean, sd]), last - first, axis=1)
    value = np.exp(-np.square((points[column] - wide[0]) / wide[1]) / 2) / (wide[1] * math.sqrt(2 * math.pi))
    return sparse.csr_array((value, column, starts), shape=(len(mean), len(points)))


def _interpolation_band(grid: np.ndarray, moved: np.ndarray, weights: np.ndarray) -> sparse.csr_array:
    """The matrix that takes g on a uniform grid to the weighted sum of g at `moved`, a row for each grid point."""
    place = np.clip((moved - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1)
    first = np.clip(np.floor(place).astype(np.int64) - _STENCIL // 2 + 1, 0, len(grid) - _STENCIL)
    at = place - first
    weights = weights.reshape(moved.shape)
    lowest = first.min(1)
    width = int((first.max(1) - lowest).max()) + _STENCIL
    slot = (first - lowest[:, None]) + width * np.arange(len(grid))[:, None]
    rows = np.zeros(len(grid) * width)
    for k in range(_STENCIL):
        others = [j for j in range(_STENCIL) if j != k]
        basis = functools.reduce(np.multiply, [(at - j) / (k - j) for j in others])
        rows += np.bincount((slot + k).ravel(), (basis * weights).ravel(), minlength=len(rows))
    column = np.minimum(lowest[:, None] + np.arange(width), len(grid) - 1)
    kernel = sparse.csr_array((rows, column.ravel(), width * np.arange(len(grid) + 1)), shape=(len(grid),) * 2)
    kernel.eliminate_zeros()
    return kernel


def _left_null(kernel: sparse.csr_array) -> np.ndarray:
    """The probabilities pi with pi = pi P, for P the kernel with rows scaled to 1, by inverse iteration."""
    rows = np.asarray(kernel.sum(axis=1))
    stochastic = sparse.csc_array((kernel.multiply(1 / rows[:, None])).T)
    factors = linalg.splu(sparse.csc_array(stochastic - (1 + 1e-11) * sparse.eye_array(len(rows))))
    weights = np.ones(len(rows)) / len(rows)
    for _ in range(4):
        weights = factors.solve(weights)
        weights /= weights.sum()
    return weights


# -- what is refused ----------------------------------------------------------------------------------------------


def _validate(
    target: Target, transform: Transform | str | None, step_size: float, scheme: str, noise_sd: float
) -> None:
    if scheme not in SCHEMES:
        raise ValueError(f"`scheme` must be one of {', '.join(SCHEMES)}; got {scheme!r}.")
    if not (np.ndim(step_size) == 0 and 0 < step_size < math.inf):
        raise ValueError(f"`step_size` must be one positive number; got {step_size!r}.")
    if not (np.ndim(noise_sd) == 0 and 0 <= noise_sd < math.inf):
        raise ValueError(f"`noise_sd` must be one number, 0 or above; got {noise_sd!r}.")
    if (scheme == "mirror") != (transform is None):
        expected = "none: it moves theta itself" if scheme == "mirror" else "one, such as 'softplus'"
        raise ValueError(f"`transform` is {transform!r}, but {scheme!r} takes {expected}.")
    if scheme == "mirror":
        if not math.isfinite(target.low):
            raise ValueError(f"mirror on {target!r}: the support has no lower end to fold at; take -theta for theta.")
        inner = [end + side * 1e-9 for end, side in ((target.low, 1), (target.high, -1)) if math.isfinite(end)]
        if np.abs(_in_blocks(_score_function(target), np.array(inner))).max() > 1e6:
            raise ValueError(
                f"mirror on {target!r}: the score is unbounded at an end of the support, where one step jumps any "
                "distance; there is no kernel to integrate (and no step size at which the scheme is accurate)."
            )


def _resolve(transform: Transform | str | None, target: Any) -> Transform:
    if isinstance(transform, Transform):
        return transform
    assert transform is not None
    return onto(target.support, transform)


def _checked(law: StationaryLaw, step_size: float, scheme: str) -> StationaryLaw:
    if law.tail_mass < _TOLERABLE:
        return law
    reason = (
        "the proxy's tails are too heavy (arctan and softsign on a density unbounded at an end) or the chain explodes. "
        "Use a transform with lighter tails, or a smaller step."
    )
    if scheme == "mirror":
        reason = (
            f"{law.target!r} is too wide, or its tails too heavy, for a grid as fine as these steps, or the chain explodes. "
            "Use a larger step; where it explodes, a smaller one."
        )
    raise ValueError(
        f"about {law.tail_mass:.1g} of the law at step size {step_size:g} lies beyond the largest grid, "
        f"[{law.phi[0]:.3g}, {law.phi[-1]:.3g}]: {reason}"
    )
