"""Were the steps too large? Curvature and gradient noise at the end of a run, and what follows for the sds.

A few draws, and a handful of minibatches at each, through the run's own estimator, give the Hessian $H$ of $-\\log \\pi$ of the proxy,
averaged, by differences of gradients, and the covariance $V$ of the minibatch gradient. What the kernel makes of a Gaussian with these two
is predicted (`kernels.prediction`) and compared with what it should be, whatever the correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from inbounds import trees
from inbounds.engine.program import Keys, Program
from inbounds.kernels._temperature import in_steps
from inbounds.precision import in_double
from inbounds.preconditioners import OneStepLate, RMSprop
from inbounds.sampling.summary import labels
from inbounds.sampling.verdict import Note, listed
from inbounds.space import Space
from inbounds.trees import PyTree, variable_name

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["Effort", "Local", "linear_part", "of_steps"]

DENSE = 128  # dimensions up to which all of H and V are measured
SHARE = 0.05  # of the gradients of a run that the probe may take,
CHEAP = 2**22  # unless all of its gradients together look at no more numbers
REACH = 0.3  # sds to both sides of a draw between which its curvature is measured
SPREAD_DRAWS = 256  # per chain, of which the sds are
TOLERATED = 0.06  # relative error of an sd: the doctor's range ends at 5%
OF_CORRELATION = 0.025  # the same, where the correction promises more
BY_CHANCE = 4.0  # times what chance makes of it: more than that is correlation
STALE = 3.0  # factor between the scales that an adaptation froze and those that it would find now


class Effort(NamedTuple):
    """How much is looked at."""

    points: int  # draws
    slopes: int  # minibatches at each, for the Hessian
    gradients: int  # and for the noise

    def evaluations(self, dimension: int) -> int:
        return self.points * (2 * self.slopes * dimension + self.gradients)


EFFORTS = (Effort(8, 4, 24), Effort(4, 1, 12))  # few, since each is compiled
SKETCH = Effort(8, 0, 24)  # in more dimensions, of the noise alone,
AXES = 8  # along so many axes of the draws,
WIDE = Effort(64, 0, 3)  # and of whether they lie too far out: as many gradients, so that one program serves both
MOST_SKETCHED, MOST_IN_A_METRIC = 20_000, 2_000  # dimensions up to which that is done

Linear = tuple[np.ndarray, np.ndarray]  # c and L of a metric

VIRIAL = Effort(64, 0, 4)
MOST_VIRIAL = 2.0  # of a law that is 1; draws and noise are few
FAR = 15


class Local(NamedTuple):
    """What was measured: arrays of d or d x d numbers.

    Attributes:
        hessian: of -log pi of the proxy.
        noise: covariance of the minibatch gradient.
        halves: the same by every other gradient, and by the rest.
        square: mean square of the minibatch gradient.
        scale: of the preconditioner; ones without one.
    """

    hessian: np.ndarray
    noise: np.ndarray
    halves: tuple[np.ndarray, np.ndarray]
    square: np.ndarray
    scale: np.ndarray


def of_steps(program: Program, feed: Any, keys: Keys, draws: Draws, step_size: float) -> list[Note]:
    """Notes on the steps of a run that has ended.

    Args:
        program: what was run.
        feed: what its minibatches are made of.
        keys: of its chains.
        draws: what it returned.
        step_size: of its last step.

    Returns:
        What is wrong with the steps; a quiet note where that cannot be said; nothing where all is well, or where the run is too short.
    """
    effort = _effort(program, feed, draws)
    if isinstance(effort, str):
        return [_unknown(effort)]
    try:
        if effort is SKETCH:
            if too_far := _too_far_out(program, feed, keys, draws):
                return too_far
            of_noise = _along_the_longest_axes(program, feed, keys, draws, step_size)
            return [*of_noise, _unknown(_too_wide(program.dimension))]
        leaves = jax.tree_util.tree_leaves_with_path(draws.phi)
        names = [label for path, leaf in leaves for label in labels(variable_name(path), leaf.shape[2:])]
        linear = linear_part(program.kernel.space, _moving_like(program, draws))
        found = _measure(program, feed, keys, draws, effort, linear)
        if not all(np.isfinite(x).all() for x in found):
            return [_unknown("curvature or gradients at its draws are not finite")]
        if np.linalg.eigvalsh(found.hessian)[0] <= 0:
            return _noisier_than_the_kernel(program, names, found, step_size) or _spread_too_far(
                program, feed, keys, draws, names, linear
            )
        return _frozen_too_early(program, names, found) + _judged(program, names, found, step_size, linear)
    except Exception as error:  # the draws must not be lost; but nobody expects this, so it is said aloud
        return [_unknown(f"their judgement failed, please report it: {type(error).__name__}: {error}"[:400], loud=True)]


def _unknown(why: str, loud: bool = False) -> Note:
    return Note("not-judged", f"whether the steps were too large is not known: {why}.", loud)


def _effort(program: Program, feed: Any, draws: Draws) -> Effort | str:
    """How much may be looked at, or why nothing is."""
    kernel, dimension = program.kernel, program.dimension
    if draws.phi is None:
        return "the run kept no draws"
    if program.layout is not None:
        return "the run was divided over devices"
    if kernel.one_temperature is None:
        return "the chains have temperatures of their own"
    if kernel.recursion is None:
        return f"nothing is known of what {kernel.name} does to a Gaussian"
    if not feed.whole:
        return "the data are read from disk as a stream"
    if not kernel.one_temperature > 0:
        return "at temperature 0 there is no law to compare with"
    rows = program.source.batch_size or 1
    most = max(SHARE * draws.num_steps * draws.num_chains, CHEAP / (rows * dimension))
    if dimension > DENSE:
        widest = MOST_SKETCHED if kernel.space.of_proxy is kernel.space else MOST_IN_A_METRIC
        return SKETCH if dimension <= widest and SKETCH.evaluations(dimension) <= most else _too_wide(dimension)
    for effort in EFFORTS:
        if "clamped" in kernel.reports:  # with fewer gradients than dimensions chance alone correlates them
            effort = effort._replace(gradients=max(effort.gradients, dimension))
        if effort.evaluations(dimension) <= most:
            return effort
    return "the run is too short for its dimension: that would take as long as many of its steps"


def _too_wide(dimension: int) -> str:
    return f"that takes a matrix of {dimension:,} x {dimension:,} numbers, and at most {DENSE} x {DENSE} are looked at"


def _measure(program: Program, feed: Any, keys: Keys, draws: Draws, effort: Effort, linear: Linear | None) -> Local:
    """Gradients at a few draws, and a little to both sides of them along every coordinate, on the same minibatches."""
    points, slopes, gradients = effort
    phi = _moving(linear, _some_draws(draws, points))
    spread = _sds(draws) if linear is None else np.ones(phi.shape[1])
    dimension = phi.shape[1]
    reach = np.maximum(REACH * spread, 1e-3 * np.maximum(np.abs(phi).max(axis=0), 1e-3)).astype(phi.dtype)
    # Jobs, axes (point, minibatch, coordinate, side); then those at the points themselves.
    aside = np.array([1, -1], phi.dtype)[:, None] * (np.eye(dimension, dtype=phi.dtype) * reach)[:, None]
    sides = np.broadcast_to(phi[:, None, None, None] + aside, (points, slopes, dimension, 2, dimension))
    which, number = (x.ravel() for x in np.indices((points, slopes, dimension, 2))[:2])
    at, on = (x.ravel() for x in np.indices((points, gradients)))
    where = np.concatenate([sides.reshape(-1, dimension), phi[at]])
    which, number = np.concatenate([which, at]), np.concatenate([number, on])
    drift, scale = _drifts(program, feed, keys, draws, where, which * gradients + number, which)
    drift = drift.astype(float)
    ends, here = drift[: -len(at)].reshape(sides.shape), drift[-len(at) :].reshape(points, gradients, dimension)
    width = (sides[..., 0, :] - sides[..., 1, :]).astype(float)
    apart = np.diagonal(width, axis1=2, axis2=3).mean(axis=(0, 1))
    hessian = -((ends[..., 0, :] - ends[..., 1, :]).mean(axis=(0, 1)) / apart[:, None])
    halves = _covariance(here[:, ::2]), _covariance(here[:, 1::2])
    square = np.mean(here**2, axis=(0, 1))
    return Local((hessian + hessian.T) / 2, _covariance(here), halves, square, scale.mean(axis=0, dtype=float))


def _covariance(gradients: np.ndarray) -> np.ndarray:
    """Of gradients (point, minibatch, coordinate) around their means at each point."""
    points, count, _ = gradients.shape
    centred = gradients - gradients.mean(axis=1, keepdims=True)
    found: np.ndarray = np.einsum("pgi,pgj->ij", centred, centred) / (points * (count - 1))
    return found


def _drifts(
    program: Program, feed: Any, keys: Keys, draws: Draws, where: np.ndarray, numbers: np.ndarray, which: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What `_look` finds, the state of each chain serving its own draws: those of the place `which` among `_some_draws`."""
    inner = (draws.state.estimator.own, draws.state.preconditioner)
    like = _moving_like(program, draws)
    step_size = np.asarray(draws.stats["step_size"][0, -1], where.dtype)
    words = np.asarray(jax.device_get(keys.batch))[0]
    look = program.kernel.posterior.compiled.of(_look, program)
    found = look(
        program.kernel.arrays, like, where, numbers, which % draws.num_chains, inner, feed.arrays(0), words, step_size
    )
    drift, scale = (np.asarray(x) for x in found)
    return drift, scale


def _some_draws(draws: Draws, points: int) -> np.ndarray:
    """Flat proxies of the second half of the run, in turns from all the chains."""
    chains = np.arange(points) % draws.num_chains
    places = np.linspace(draws.num_draws - 1, draws.num_draws // 2, points).astype(int)
    flat = [
        np.stack([np.ravel(leaf[c, i]) for c, i in zip(chains, places, strict=True)])
        for leaf in jax.tree.leaves(draws.phi)
    ]
    return np.concatenate(flat, axis=1)


def _sds(draws: Draws) -> np.ndarray:
    """Of every number of the proxy."""
    thin = max(1, draws.num_draws // SPREAD_DRAWS)
    some = (np.asarray(leaf[:, ::thin], float) for leaf in jax.tree.leaves(draws.phi))
    return np.concatenate([np.std(each, axis=(0, 1)).ravel() for each in some])


def _moving_like(program: Program, draws: Draws) -> PyTree:
    """Zeros with the shapes of what one chain moves."""
    state = jax.tree.map(lambda leaf: leaf[0], draws.state)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), program.kernel.moving(state))


def _moving(linear: Linear | None, phi: np.ndarray) -> np.ndarray:
    """The same places of what the kernel moves."""
    if linear is None:
        return phi
    center, factor = linear
    moved: np.ndarray = np.linalg.solve(factor, (phi - center).T).T.astype(phi.dtype)
    return moved


def linear_part(space: Space, z_like: PyTree) -> Linear | None:
    """c and L of the metric of a space, flat; None without one. `z_like` has the shapes of what is moved."""
    if space.of_proxy is space:
        return None
    dimension = trees.size(z_like)
    with in_double():
        to_proxy: Callable[[jax.Array], jax.Array] = jax.vmap(lambda z: _flat(space.proxy(trees.cut_like(z_like, z))))
        zero = jnp.zeros((1, dimension), jnp.float64)
        center = np.asarray(to_proxy(zero)[0])
        factor = np.asarray(to_proxy(jnp.eye(dimension, dtype=jnp.float64))) - center
    return center, factor.T


def _look(
    program: Program, of_kernel: tuple[Any, ...], like: PyTree, where: jax.Array, numbers: jax.Array, chains: jax.Array,
    inner: Any, arrays: PyTree, words: jax.Array, step_size: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """At each place of `where` the drift of what moves and the preconditioner's scales.

    On the minibatch of each of `numbers`, by what each of the `chains` knows. A gradient is all that is compiled.
    """
    kernel, source = program.kernel.with_arrays(of_kernel), program.source
    key = Keys(words[None], words[None]).typed(source).batch[0]

    def one(inputs: Any) -> Any:
        flat, number, chain = inputs
        phi = trees.cut_like(like, flat)
        theta = kernel.space.evaluation_point(phi)
        # Far from the run's own, and an epoch apart: minibatches of one epoch share no rows.
        plan = source.plan(key, (2**30 + source.batches * number)[None])
        batch = source.fetch(arrays, jax.tree.map(lambda leaf: leaf[0], plan))
        estimator, adapted = jax.tree.map(lambda leaf: leaf[chain], inner)
        gradient, _ = kernel.estimator.estimate(estimator, theta, batch, False)
        drift = kernel.space.pull_back(phi, theta, gradient.value, in_steps(kernel.temperature))
        scale, _ = kernel.preconditioner.update(adapted, drift, theta, step_size)
        return _flat(drift), jnp.ones_like(flat) if scale is None else _flat(scale)

    result: tuple[jax.Array, jax.Array] = lax.map(one, (where, numbers, chains))
    return result


def _flat(tree: PyTree) -> jax.Array:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


# -- what follows -------------------------------------------------------------------------------------------------


def _judged(program: Program, names: list[str], found: Local, step_size: float, linear: Linear | None) -> list[Note]:
    from inbounds.kernels.prediction import UnstableError, predict

    kernel = program.kernel
    hessian = found.hessian
    reasons: list[str] = []

    def errors(size: float, noise: np.ndarray) -> np.ndarray | None:
        """Of the sds; None without a stationary law."""
        noise = _left_by_epochs(program, size, hessian, noise, found.scale)
        try:
            predicted = predict(kernel, size, hessian, noise, found.scale)
            return (
                predicted.sd_ratio - 1
                if linear is None
                else _sd_errors(predicted.covariance, hessian, kernel, linear[1])
            )
        except UnstableError as unstable:
            reasons.append(str(unstable))
            return None

    error = errors(step_size, found.noise)
    if error is not None and np.max(np.abs(error)) <= OF_CORRELATION:
        return []
    better = _better_size(partial(errors, noise=found.noise), step_size)
    advice = f"Try a step size of {better:.2g}" if better else "Try a much smaller step size"
    if error is None:
        return [
            Note(
                "step-size",
                f"Steps of {step_size:.3g} let the chain settle in no law, by the curvature and the noise at its draws: {reasons[0]}. "
                f"{advice}, or a larger batch.",
            )
        ]
    if "clamped" in kernel.reports:
        alone = errors(step_size, np.diag(np.diag(found.noise)))
        ignored = np.abs(error if alone is None else error - alone)
        one, other = (errors(step_size, half) for half in found.halves)
        chance = 0.0 if one is None or other is None else math.sqrt(np.mean(np.square(one - other))) / 2
        wrong = (ignored > np.maximum(max(OF_CORRELATION, BY_CHANCE * chance), np.abs(error) / 2)) & (
            np.abs(error) > OF_CORRELATION
        )
        if wrong.any():
            metric = "" if linear is not None else "metric=ib.metrics.laplace(...), in which it is, "
            return [
                Note(
                    "correlated-noise",
                    "Noise correction takes the gradient noise of different coordinates for independent, and here it is not: the sds are "
                    f"predicted to be off by {listed(names, error, wrong, '+.1%')}. {advice}, {metric}a larger "
                    "batch, gradient=ib.gradients.control_variate(...), or leave `noise_correction` out.",
                )
            ]
    wrong = np.abs(error) > TOLERATED
    if not wrong.any():
        return []
    without = errors(step_size, np.zeros_like(found.noise))
    off = f"the sds are predicted to be off by {listed(names, error, wrong, '+.2g' if error.max() > 10 else '+.1%')}"
    if without is None or np.max(np.abs(without)) > np.max(np.abs(error)) / 2:
        return [Note("step-size", f"Steps of {step_size:.3g} are too large for the curvature: {off}. {advice}.")]
    return [
        Note(
            "gradient-noise",
            f"Steps of {step_size:.3g} are too large for the noise of the minibatch gradients: {off}. {advice}, a larger batch, or "
            "gradient=ib.gradients.control_variate(...).",
        )
    ]


def _along_the_longest_axes(program: Program, feed: Any, keys: Keys, draws: Draws, step_size: float) -> list[Note]:
    """In too many dimensions for matrices: the noise along the axes in which the draws lie furthest apart, where a correction by coordinates
    takes most away.

    Along an axis in which the posterior is flat there is little noise, if it is correlated as the posterior is.
    """
    from inbounds.kernels.prediction import UnstableError, as_corrected, beyond_chance, predict

    kernel = program.kernel
    if "clamped" not in kernel.reports or kernel.options.get("metric") is not None:
        return []  # in a metric that allows correction the noise is diagonal
    phi = _some_draws(draws, SKETCH.points)
    at, on = (x.ravel() for x in np.indices((SKETCH.points, SKETCH.gradients)))
    drift, scale = _drifts(program, feed, keys, draws, phi[at], at * SKETCH.gradients + on, at)
    gradients = drift.astype(float).reshape(SKETCH.points, SKETCH.gradients, -1)
    degrees = SKETCH.points * (SKETCH.gradients - 1)
    rows = (gradients - gradients.mean(axis=1, keepdims=True)).reshape(len(at), -1) / math.sqrt(degrees)
    root = np.sqrt(scale.mean(axis=0, dtype=float))
    spread = _some_draws(draws, min(draws.num_chains * draws.num_draws // 2, SPREAD_DRAWS))
    apart = (spread - spread.mean(axis=0, dtype=float)) / root
    _, lengths, axes = np.linalg.svd(apart / math.sqrt(len(apart) - 1), full_matrices=False)
    lengths, axes = lengths[:AXES], axes[:AXES]
    taken = np.square(axes * root) @ np.sum(np.square(rows), axis=0)
    noises = beyond_chance(np.sum(np.square(rows @ (axes * root).T), axis=0), taken, degrees)
    if not (np.isfinite(rows).all() and lengths.min() > 0):
        return []
    temperature = program.kernel.one_temperature or 1.0
    hessian, noise, ones = as_corrected(temperature / lengths**2, noises, taken)
    try:
        covariance = predict(program.kernel, step_size, hessian, noise, ones).covariance
    except UnstableError:
        return []
    copies = len(ones) // len(lengths)
    along = covariance.reshape(len(lengths), copies, len(lengths), copies).sum(axis=(1, 3)).diagonal() / copies
    error = np.sqrt(along) / lengths - 1
    error = error[np.argmax(np.abs(error))]
    if abs(error) <= OF_CORRELATION or np.array_equal(noises, taken):
        return []
    return [
        Note(
            "correlated-noise",
            "Noise correction takes the gradient noise of different coordinates for independent, and here it is not: along the axes in which "
            f"the draws lie furthest apart the sds are predicted to be off by up to {error:+.1%}. Take metric=ib.metrics.laplace(...), in "
            "which it is, a smaller step size, a larger batch, gradient=ib.gradients.control_variate(...), or leave `noise_correction` out.",
        )
    ]


def _sd_errors(covariance: np.ndarray, hessian: np.ndarray, kernel: Any, factor: np.ndarray) -> np.ndarray:
    """Of phi, where covariance and Hessian are those of z."""
    exact = (kernel.one_temperature or 1.0) * np.linalg.inv(hessian)
    variances = (np.einsum("ij,jk,ik->i", factor, part, factor) for part in (covariance, exact))
    result: np.ndarray = np.sqrt(next(variances) / next(variances)) - 1
    return result


def _noisier_than_the_kernel(program: Program, names: list[str], found: Local, step_size: float) -> list[Note]:
    """Where no Gaussian is like the posterior: noise of the gradients beyond what the kernel injects is too much for any law."""
    if program.source.batches > 1:
        return []
    ratio = step_size * found.scale * np.diag(found.noise) / (2 * (program.kernel.one_temperature or 1.0))
    wrong = ratio > 1
    if not wrong.any():
        return []
    return [
        Note(
            "gradient-noise",
            f"Steps of {step_size:.3g} are too large for the noise of the minibatch gradients: it has {listed(names, ratio, wrong, '.2g')} "
            f"times the variance of the noise that the kernel injects. Try a step size of {step_size / (10 * ratio.max()):.1g}, a larger "
            "batch, or gradient=ib.gradients.control_variate(...), and the start that `ib.check` finds.",
        )
    ]


def _spread_too_far(
    program: Program, feed: Any, keys: Keys, draws: Draws, names: list[str], linear: Linear | None
) -> list[Note]:
    """Where no Gaussian is like the posterior: E[-(phi - mean) G] is the temperature for every law, and more for draws that are too wide."""
    apart, drift = _virials(program, feed, keys, draws, VIRIAL, linear)
    product = apart * drift.mean(axis=1, dtype=float)
    virial, error = product.mean(axis=0), product.std(axis=0, ddof=1) / math.sqrt(VIRIAL.points)
    far = virial > FAR * MOST_VIRIAL  # there a few draws have most of the mean, and of its error
    wrong = (virial > MOST_VIRIAL) & (virial - 1 > np.where(far, 1.3, 3.0) * error)
    if not wrong.any():
        return [_unknown("the curvature at its draws is not positive, so that no Gaussian is like this posterior")]
    return [_far_out(names, virial, wrong)]


def _too_far_out(program: Program, feed: Any, keys: Keys, draws: Draws) -> list[Note]:
    """The same in many dimensions: of each variable as a whole, and of single numbers that lie very far out."""
    like = _moving_like(program, draws)
    apart, drift = _virials(program, feed, keys, draws, WIDE, linear_part(program.kernel.space, like))
    if not np.isfinite(drift).all():
        return [_unknown("gradients at its draws are not finite")]
    leaves = jax.tree_util.tree_leaves_with_path(like)
    ends = np.cumsum([leaf.size for _, leaf in leaves])[:-1]
    parts = zip(np.split(apart, ends, axis=1), np.split(drift, ends, axis=2), strict=True)
    # A variable has many numbers, so that its draws have little chance;
    product = np.stack([np.einsum("dn,dgn->d", x, g) / g[0].size for x, g in parts], axis=1)
    virial, error = product.mean(axis=0), product.std(axis=0, ddof=1) / math.sqrt(WIDE.points)
    wrong = (virial > MOST_VIRIAL) & (virial - 1 > 4 * error)
    if wrong.any():
        return [_far_out([variable_name(path) for path, _ in leaves], virial, wrong)]
    # of a single number chance makes no more than twice what it should be.
    virial = np.mean(apart * drift.mean(axis=1), axis=0)
    of_noise = np.sqrt(np.mean(apart**2 * drift.var(axis=1, ddof=1), axis=0) / (WIDE.points * WIDE.gradients))
    wrong = virial - 2 * MOST_VIRIAL > 6 * of_noise
    if not wrong.any():
        return []
    names = [label for path, leaf in leaves for label in labels(variable_name(path), leaf.shape)]
    return [_far_out(names, virial, wrong)]


def _virials(
    program: Program, feed: Any, keys: Keys, draws: Draws, effort: Effort, linear: Linear | None
) -> tuple[np.ndarray, np.ndarray]:
    """Two whose product is 1 on average: -(phi - mean) over the temperature, axes (draw, number), and G, axes (draw, minibatch, number)."""
    phi = _moving(linear, _some_draws(draws, effort.points))
    at, on = (x.ravel() for x in np.indices((effort.points, effort.gradients)))
    drift, _ = _drifts(program, feed, keys, draws, phi[at], at * effort.gradients + on, at)
    apart: np.ndarray = (phi.mean(axis=0, dtype=float) - phi) / (program.kernel.one_temperature or 1.0)
    return apart, drift.reshape(effort.points, effort.gradients, -1)


def _far_out(names: list[str], virial: np.ndarray, wrong: np.ndarray) -> Note:
    return Note(
        "step-size",
        "The steps are much too large, or the chains never came to the posterior: its slope at the draws says that they lie too far "
        f"out, the sds by factors of about {listed(names, np.sqrt(np.maximum(virial, 0)), wrong, '.2g')}. Try a step size a hundred times "
        "smaller, a larger batch, and the start that `ib.check` finds.",
    )


def _better_size(errors: Callable[[float], Any], step_size: float) -> float | None:
    """The largest step size, by factors of two, at which no sd is off by more than half of what is tolerated."""
    for halvings in range(1, 25):
        size: float = step_size / 2**halvings
        error = errors(size)
        if error is not None and np.max(np.abs(error)) <= OF_CORRELATION:
            return size
    return None


def _left_by_epochs(
    program: Program, step_size: float, hessian: np.ndarray, noise: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """The covariance of independent noise that does as much as that of shuffled epochs or of sweeps, whose sum over an epoch is zero.

    In the principal axes, where the chain forgets at a rate of its own along each.
    """
    epoch = program.source.batches
    if epoch == 1:
        return noise
    root = np.sqrt(scale)
    curvatures, axes = np.linalg.eigh(root[:, None] * hessian * root)
    rates = step_size * curvatures
    if program.kernel.underdamped:
        rates = np.sqrt(2 * rates)
    together = (rates[:, None] + rates) / 2
    share = _left_by_sweeps(together, epoch) if program.source.cycle > 1 else _share_left(together * epoch)
    inside = axes.T @ (root[:, None] * noise * root) @ axes * share
    result: np.ndarray = (axes @ inside @ axes.T) / root[:, None] / root
    return result


def _left_by_sweeps(rates: np.ndarray, epoch: int) -> np.ndarray:
    """The same as `_share_left`, at the ends of sweeps.

    Of x' = (1 - rate) x + noise: each minibatch's noise comes twice in a sweep, as long before the middle as after it.
    """
    keep = np.clip(1 - rates, 0.0, 1 - 1e-9)
    forwards, backwards = np.arange(epoch)[:, None, None], np.arange(epoch, 2 * epoch)[:, None, None]
    weights = keep ** (epoch - 1 - forwards) + keep**backwards
    at_ends = epoch * np.var(weights, axis=0) * epoch / max(1, epoch - 1) / (1 - keep ** (4 * epoch))
    result: np.ndarray = np.clip(at_ends * (1 - keep**2), 0.0, 1.0)
    return result


def _share_left(turns: np.ndarray) -> np.ndarray:
    """Variance that noise of zero sum over an epoch leaves, over that of independent noise.

    Of x' = -x + noise, averaged over the epoch; `turns` is the length of the epoch in units of the time of forgetting.
    """
    t = np.maximum(turns, 1e-6)
    start = np.where(t < 1e-2, t**2 / 12, 1 - 2 / t * np.tanh(t / 2))  # at the ends of epochs
    forgotten = -np.expm1(-2 * t) / (2 * t)  # the mean of exp(-2 s)
    bridge = 2 / t * (1 - 2 * -np.expm1(-t) / t + forgotten)  # the mean of (2 / t) (1 - exp(-s))^2
    exact = start * forgotten + (1 - forgotten) - bridge
    result: np.ndarray = np.clip(np.where(t < 1e-2, t / 3, exact), 0.0, 1.0)
    return result


def _frozen_too_early(program: Program, names: list[str], found: Local) -> list[Note]:
    adaptive: Any = program.kernel.preconditioner
    adaptive = adaptive.inner if isinstance(adaptive, OneStepLate) else adaptive
    if not isinstance(adaptive, RMSprop):
        return []
    ratio = found.scale * (adaptive.damping + np.sqrt(found.square))
    stale = np.abs(np.log(ratio)) > math.log(STALE)
    if not stale.any():
        return []
    return [
        Note(
            "frozen-adaptation",
            "The preconditioner was frozen while it still moved: its scales are "
            f"{listed(names, ratio, stale, '.3g')} times those that it would find now. Give it a longer `adapt_steps`, and start where the "
            "draws are, not at the mode.",
        )
    ]
