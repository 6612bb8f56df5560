r"""The doctor's step sizes: what a kernel would make of the posterior, by its own formula.

At the centre, and at a few points around it where the posterior's mass is, the Hessian $H$ of $-\log \pi$ is measured, and the covariance
$V$ of the minibatch gradient, of which the largest counts. Each kernel says what it makes of a Gaussian with these two
(`inbounds.kernels.prediction`), friction, noise correction, metric and preconditioner included. The range ends where the sd of some
linear function of the proxy is wrong by 5%, or by 2.5% for a kernel that corrects for gradient noise, and starts a factor of ten below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.linalg import eigh

from inbounds import gradients
from inbounds.data.arrays import is_stream
from inbounds.diagnostics._check_center import Center
from inbounds.diagnostics._check_patient import Patient
from inbounds.diagnostics._check_report import Finding
from inbounds.inference.mode import Surface
from inbounds.kernels import Kernel
from inbounds.kernels.prediction import UnstableError, as_corrected, beyond_chance, predict
from inbounds.preconditioners import OneStepLate, RMSprop

__all__ = ["Steps", "look_at_steps"]

TOLERATED, TOLERATED_CORRECTED = 0.05, 0.025  # relative error of an sd at the upper end
DENSE = 128  # dimensions up to which all of H and V are looked at together; beyond, the worst principal axes
AXES = 16  # that are looked at there
MOST_STEP = 0.5  # of step size times the largest curvature, however exact a kernel may be
POINTS, BATCHES = 4, 64  # where the noise is measured, and from how many minibatches at each
WORTH = 1.5  # factor between step sizes from which on an alternative is named
ILL = 100.0  # condition number from which on scales are proposed
SLOW = 1e5  # steps for an effective draw from which on a kernel does not suit


@dataclass(frozen=True)
class Local:
    """What was measured of what the kernel moves: curvatures at the centre and around it, and the gradient's noise.

    Args:
        hessians: dense; empty where there are too many dimensions.
        largest: the largest curvature.
        noise: covariance of the minibatch gradient; in more than 128 dimensions a matrix whose rows have it as the sum of their outer
            products, one row per minibatch; where there is no Hessian the variances alone.
        square: mean squares of the minibatch gradient.
    """

    hessians: tuple[np.ndarray, ...]
    largest: float
    noise: np.ndarray
    square: np.ndarray

    @property
    def variances(self) -> np.ndarray:
        """Of the coordinates of the minibatch gradient."""
        if self.noise.ndim == 1:
            return self.noise
        found: np.ndarray = np.diag(self.noise) if self.square.size <= DENSE else np.sum(np.square(self.noise), axis=0)
        return found

    def ratio(self, scale: np.ndarray) -> float | None:
        """Of the largest curvature at the centre to the smallest, as a chain with such scales sees them."""
        if not self.hessians:
            return None
        root = np.sqrt(scale)
        values = np.linalg.eigvalsh(root[:, None] * self.hessians[0] * root)
        return float(values[-1] / values[0])

    @property
    def scales(self) -> np.ndarray | None:
        """One over the mean diagonal of the Hessians, no direction more than 1e6 times another in units of the largest."""
        if not self.hessians:
            return None
        diagonal = np.mean([np.abs(np.diag(hessian)) for hessian in self.hessians], axis=0)
        scales: np.ndarray = 1 / np.maximum(diagonal, 1e-12 * diagonal.max())
        return scales

    def without_noise(self) -> Local:
        """The same with exact gradients."""
        return replace(self, noise=np.zeros_like(self.noise))


@dataclass(frozen=True)
class Steps:
    """What follows for the report."""

    findings: list[Finding]
    sizes: tuple[float, float] | None
    scales: np.ndarray | None
    scaled_size: float | None


class Pace(NamedTuple):
    """How a kernel gets on with some scales: the largest step size, the one in the middle of the range, steps per effective draw there."""

    high: float
    middle: float
    time: float


def look_at_steps(patient: Patient, center: Center) -> Steps:
    """Findings on noise, conditioning and step sizes; the centre was found."""
    local, points = _measure(patient, center)
    kernel, scale = patient.kernel, _own_scale(patient, local)
    pace = _pace(kernel, local, scale)
    findings = [_noise_finding(patient, points, local, scale, pace)] if patient.has_noise else []
    if pace is None:
        message = f"at no step size is {kernel.name} right to {_tolerated(kernel):.1%} of an sd"
        remedy = "Take a larger batch, a control variate, or another kernel."
        return Steps([*findings, Finding("step size", "", "problem", message, remedy)], None, None, None)
    scales = local.scales if kernel.options.get("metric") is None else None
    scaled = None if scales is None else _pace(kernel, local, scales)
    findings += [_conditioning(kernel, local.ratio(scale), pace, scaled), _step_finding(kernel, local, pace)]
    return Steps(findings, (pace.high / 10, pace.high), scales, None if scaled is None else scaled.middle)


# -- what is measured ---------------------------------------------------------------------------------------------


def _measure(patient: Patient, center: Center) -> tuple[Local, jax.Array]:
    """What is known around the centre, and the points around it."""
    hessians = _hessians(patient, center)
    points = _around(patient, hessians[0]) if hessians else _wandered(patient)
    if hessians:
        hessians = hessians + _hessians_around(patient, center, points[:2])
        largest = max(float(np.linalg.eigvalsh(hessian)[-1]) for hessian in hessians)
    else:
        largest = max(_by_power_iteration(patient.mean_drift, point) for point in (patient.flat, points[0]))
    noise, square = _noise(patient, points, patient.estimator, patient.state, whole=bool(hessians))
    return Local(hessians, largest, noise, square), points


def _hessians(patient: Patient, center: Center) -> tuple[np.ndarray, ...]:
    """That at the centre, of what moves; none in too many dimensions."""
    if center.mode is not None and patient.temperature == 1:
        return () if center.mode.hessian is None else (_moved(patient, center.mode.hessian),)
    if patient.flat.size > DENSE:
        return ()
    hessian = np.asarray(jax.jit(lambda p: -jax.jacfwd(patient.mean_drift)(p))(patient.flat), float)
    hessian = (hessian + hessian.T) / 2
    return (hessian,) if np.isfinite(hessian).all() and np.linalg.eigvalsh(hessian)[0] > 0 else ()


def _moved(patient: Patient, hessian: np.ndarray) -> np.ndarray:
    """A Hessian of phi as that of what moves."""
    return hessian if patient.linear is None else patient.linear[1].T @ hessian @ patient.linear[1]


def _around(patient: Patient, hessian: np.ndarray) -> jax.Array:
    """Points in the bulk of the Gaussian at the centre, in pairs to both sides of it."""
    values, vectors = np.linalg.eigh(hessian)
    root = vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    normal = np.random.default_rng(32).normal(size=(POINTS // 2, len(hessian)))
    normal *= (math.sqrt(len(hessian)) + 0.5) / np.linalg.norm(normal, axis=1, keepdims=True)
    aside = math.sqrt(patient.temperature) * normal @ root.T
    pairs = np.stack([aside, -aside], axis=1).reshape(POINTS, -1)
    return patient.flat + jnp.asarray(pairs, patient.flat.dtype)


def _hessians_around(patient: Patient, center: Center, points: jax.Array) -> tuple[np.ndarray, ...]:
    """Those at some points that are those of a Gaussian."""
    if center.mode is None or patient.temperature != 1:
        return ()
    surface = Surface(patient.posterior, patient.space.of_proxy, center.mode.theta)
    looks = [surface.look(np.asarray(ravel_pytree(patient.space.proxy(patient.unravel(p)))[0], float)) for p in points]
    fine = [look.hessian for look in looks if look.finite and np.linalg.eigvalsh(look.hessian)[0] > 0]
    return tuple(_moved(patient, hessian) for hessian in fine)


def _noise(
    patient: Patient, points: jax.Array, estimator: Any, state: Any, whole: bool
) -> tuple[np.ndarray, np.ndarray]:
    """`Local.noise` at the point where it is largest, and the mean squares of the gradient; variances alone unless the `whole` is wanted."""
    size = patient.flat.size
    batches = patient.batches(BATCHES)

    def at(point: jax.Array) -> jax.Array:
        if batches is None:
            return patient.drift_by(estimator, state, point, None)[None]
        drifts: jax.Array = jax.lax.map(lambda batch: patient.drift_by(estimator, state, point, batch), batches)
        return drifts

    def moments(point: jax.Array) -> tuple[jax.Array, jax.Array]:
        drifts = at(point)
        square = jnp.mean(jnp.square(drifts), axis=0)
        return (drifts if whole else jnp.var(drifts, axis=0, ddof=1) if patient.has_noise else 0 * square), square

    of_points, squares = (np.asarray(x, float) for x in jax.jit(lambda p: jax.lax.map(moments, p))(points))
    fine = np.isfinite(squares).all(axis=1)
    if not patient.has_noise or not fine.any():
        none = np.zeros(size) if not whole else np.zeros((size if size <= DENSE else 1, size))
        return none, np.nan_to_num(squares).mean(axis=0)
    of_points, square = of_points[fine], squares[fine].mean(axis=0)
    if not whole:
        return of_points[np.argmax(of_points.sum(axis=1))], square
    rows = (of_points - of_points.mean(axis=1, keepdims=True)) / math.sqrt(of_points.shape[1] - 1)
    loudness = np.sum(np.square(rows), axis=(1, 2))
    if size <= DENSE:
        loudest = rows[np.argmax(loudness)]
        return loudest.T @ loudest, square
    # The size of the loudest point, the directions of all of them: so many rows tell correlation from chance.
    return np.concatenate(rows) * math.sqrt(loudness.max() / loudness.sum()), square


def _wandered(patient: Patient) -> jax.Array:
    """A point where the mass is, by a few Langevin steps away from the centre."""
    largest = _by_power_iteration(patient.mean_drift, patient.flat)
    variances, _ = _noise(patient, patient.flat[None], patient.estimator, patient.state, whole=False)
    noise = float(np.max(variances, initial=0.0))
    size = 0.1 / (largest + noise)

    def step(flat: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        number, normal = inputs
        drift = jnp.nan_to_num(patient.drift(flat, patient.batch(number)), posinf=0.0, neginf=0.0)
        return flat + size * drift + math.sqrt(2 * size * patient.temperature) * normal, None

    normals = jax.random.normal(jax.random.key(32), (200, patient.flat.size), patient.flat.dtype)
    there: jax.Array = jax.jit(lambda flat: jax.lax.scan(step, flat, (jnp.arange(200), normals))[0])(patient.flat)
    return there[None]


def _by_power_iteration(drift: Callable[[jax.Array], jax.Array], flat: jax.Array, iterations: int = 30) -> float:
    def turn(_: int, v: jax.Array) -> jax.Array:
        w = jax.jvp(drift, (flat,), (v / jnp.linalg.norm(v),))[1]
        return jnp.nan_to_num(w)

    start = jax.random.normal(jax.random.key(3), flat.shape, flat.dtype)
    return float(jnp.maximum(jnp.linalg.norm(jax.jit(lambda: jax.lax.fori_loop(0, iterations, turn, start))()), 1e-12))


def _own_scale(patient: Patient, local: Local) -> np.ndarray:
    """The scales of the kernel's preconditioner around the centre."""
    own: Any = patient.kernel.preconditioner
    own = own.inner if isinstance(own, OneStepLate) else own
    if isinstance(own, RMSprop):
        flat: np.ndarray = 1 / (own.damping + np.sqrt(local.square))
        return flat
    tree = patient.unravel(patient.flat)
    scale, _ = own.update(own.init(tree), tree, patient.space.evaluation_point(tree), jnp.ones(()))
    if scale is None:
        return np.ones(patient.flat.size)
    return np.asarray(ravel_pytree(scale)[0]).astype(float)


# -- what follows -------------------------------------------------------------------------------------------------


def _tolerated(kernel: Kernel) -> float:
    return TOLERATED_CORRECTED if "clamped" in kernel.reports else TOLERATED


def _gaussians(kernel: Kernel, local: Local, scale: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(H, V, scales) of what is looked at: everything, or the worst principal axes, or one worst direction."""
    if not local.hessians:
        worst = int(np.argmax(scale * local.variances))
        return [(np.diag([local.largest]), np.diag([local.variances[worst]]), scale[[worst]])]
    if len(scale) <= DENSE:
        return [(hessian, local.noise, scale) for hessian in local.hessians]
    root, found = np.sqrt(scale), []
    for hessian in local.hessians:
        values, vectors = np.linalg.eigh(root[:, None] * hessian * root)
        noises = np.sum(np.square(local.noise @ (root[:, None] * vectors)), axis=0)
        taken = np.square(vectors.T) @ (scale * local.variances)
        noises = beyond_chance(noises, taken, len(local.noise))
        if "clamped" in kernel.reports:
            chosen = np.unique([0, len(values) - 1, np.argmax(noises), np.argmax(np.abs(noises - taken))])
            found.append(as_corrected(values[chosen], noises[chosen], taken[chosen]))
        else:
            chosen = np.union1d(np.argsort(values + noises)[-AXES:], [0])
            found.append((np.diag(values[chosen]), np.diag(noises[chosen]), np.ones(len(chosen))))
    return found


def _error(kernel: Kernel, size: float, hessian: np.ndarray, noise: np.ndarray, scale: np.ndarray) -> float:
    """Of the sd of the linear function that is worst off; infinite without a stationary law."""
    try:
        predicted = predict(kernel, size, hessian, noise, scale)
    except UnstableError:
        return math.inf
    exact = (kernel.one_temperature or 1.0) * np.linalg.inv(hessian)
    ratios = eigh(predicted.covariance, exact, eigvals_only=True)
    return float(np.max(np.abs(np.sqrt(np.maximum(ratios, 0)) - 1)))


def _largest_step(kernel: Kernel, local: Local, scale: np.ndarray) -> float | None:
    """The largest step size at which nothing is off by more than is tolerated; None where there is none."""
    gaussians = _gaussians(kernel, local, scale)
    steepest = max(float(np.linalg.eigvalsh(np.sqrt(s)[:, None] * h * np.sqrt(s))[-1]) for h, _, s in gaussians)

    def is_fine(size: float) -> bool:
        return all(_error(kernel, size, *gaussian) <= _tolerated(kernel) for gaussian in gaussians)

    size = MOST_STEP / steepest
    if is_fine(size):
        return size
    for _ in range(60):
        size /= 4
        if is_fine(size):
            break
    else:
        return None
    factor = 2.0  # between a size that is fine and one that is not there is a factor of 4
    for _ in range(5):
        size, factor = (size * factor if is_fine(size * factor) else size), math.sqrt(factor)
    return size


def _pace(kernel: Kernel, local: Local, scale: np.ndarray) -> Pace | None:
    high = _largest_step(kernel, local, scale)
    middle = None if high is None else high / math.sqrt(10)
    return None if high is None or middle is None else Pace(high, middle, _time(kernel, local, scale, middle))


def _time(kernel: Kernel, local: Local, scale: np.ndarray, size: float) -> float:
    """Steps for an effective draw of the slowest linear function of the proxy, and of the square of one."""
    if not local.hessians:
        return math.nan
    gaussian = _gaussians(kernel, local, scale)[0]
    assert kernel.recursion is not None
    try:
        linear = predict(kernel, size, *gaussian).autocorrelation_time
    except UnstableError:
        return math.nan
    kept = np.max(np.abs(np.linalg.eigvals(kernel.recursion(size, *gaussian).transition))) ** 2
    return max(linear, float((1 + kept) / max(1 - kept, 1e-15)))


# -- what is said -------------------------------------------------------------------------------------------------


def _noise_finding(patient: Patient, points: jax.Array, local: Local, scale: np.ndarray, pace: Pace | None) -> Finding:
    kernel, high = patient.kernel, None if pace is None else pace.high
    loudest = float(np.max(scale * local.variances))
    values: dict[str, Any] = {"noise": loudest, "curvature": local.largest, "ratio": loudest / local.largest}
    quiet = _largest_step(kernel, local.without_noise(), scale)
    if high is not None and quiet is not None and quiet <= 2 * high:
        return Finding("noise", "", "ok", "gradient noise hardly limits the step size", values=values)
    gain = math.inf if high is None or quiet is None else quiet / high
    message = f"gradient noise limits the step size: with exact gradients steps could be {gain:.3g} times as long"
    ways = []
    if off := _off_by_correlation(kernel, local, scale, high):
        values["correlated"] = off
        message += (
            f"; the noise of different coordinates goes together, which the correction does not see: at {off[0]:.2g}, where independent "
            f"noise would do no harm, sds would be off by up to {off[1]:+.0%}"
        )
        ways.append(
            "metric=ib.metrics.laplace(posterior, report.center, batch_size=...), in which the noise is independent"
        )
    for name, words, other in _alternatives(patient, points, local, scale):
        if other is not None and (high is None or other > WORTH * high):
            values[name] = (other / 10, other)
            ways.append(f"{words} (step sizes up to {other:.2g})")
    ways.append("a larger batch")
    return Finding("noise", "", "warning", message, f"Use {', or '.join(ways)}.", values)


def _off_by_correlation(
    kernel: Kernel, local: Local, scale: np.ndarray, high: float | None
) -> tuple[float, float] | None:
    """(the largest step size if the noise of coordinates were independent, the sd that is most off there); None where that is no matter."""
    if "clamped" not in kernel.reports or kernel.options.get("metric") is not None:
        return None
    if not local.hessians or len(scale) > DENSE:
        return None
    alone = _largest_step(kernel, replace(local, noise=np.diag(local.variances)), scale)
    if alone is None or (high is not None and alone <= WORTH * high):
        return None
    try:
        found = [predict(kernel, alone, *gaussian).worst_sd_error for gaussian in _gaussians(kernel, local, scale)]
    except UnstableError:
        return alone, math.inf
    off = max(found, key=abs)
    return (alone, off) if abs(off) > TOLERATED else None  # by chance minibatches are a little correlated


def _alternatives(
    patient: Patient, points: jax.Array, local: Local, scale: np.ndarray
) -> Iterator[tuple[str, str, float | None]]:
    """(name, what to write, the largest step size with it) of what makes room for noise or takes it away."""
    kernel, posterior = patient.kernel, patient.posterior
    assert kernel.given is not None
    make, options = kernel.given.factory, kernel.given.arguments
    plain = getattr(patient.estimator, "is_plain", False)
    if (
        plain
        and posterior.log_likelihood is not None
        and posterior.num_data is not None
        and not is_stream(posterior.data)
    ):
        estimator = gradients.control_variate(center=patient.theta)(posterior)
        state = estimator.init(patient.theta, False)
        noise, _ = _noise(patient, points, estimator, state, whole=bool(local.hessians))
        words = "gradient=ib.gradients.control_variate(center=report.center)"
        yield "control_variate", words, _largest_step(kernel, replace(local, noise=noise), scale)
    if options.get("noise_correction", True) is False and options.get("metric") is None and len(scale) <= DENSE:
        corrected = make(posterior, **options | {"noise_correction": True})
        yield "noise_correction", "noise_correction=True", _largest_step(corrected, local, scale)


def _conditioning(kernel: Kernel, ratio: float | None, pace: Pace, scaled: Pace | None) -> Finding:
    values: dict[str, Any] = {"ratio": ratio, "steps": pace.time}
    if ratio is None:
        return Finding("conditioning", "", "ok", "in so many dimensions the curvatures are not compared", values=values)
    message = f"the curvatures differ by a factor of {ratio:.2g}: an effective draw takes about {pace.time:.2g} steps of {pace.middle:.2g}"
    if ratio < ILL or kernel.options.get("metric") is not None:
        return Finding("conditioning", "", "ok", message, values=values)
    remedy = "Use metric=ib.metrics.laplace(posterior, report.center), and check the kernel with it"
    if scaled is not None and scaled.time < pace.time / 2:
        remedy += "; or preconditioner=report.preconditioner with step_size=report.preconditioned_step_size"
        remedy += f", which takes about {scaled.time:.2g} steps"
    return Finding("conditioning", "", "warning", message, remedy + ".", values)


def _if_independent(kernel: Kernel, local: Local) -> str:
    """What a correction by coordinates rests on where nothing is known of other directions."""
    blind = "clamped" in kernel.reports and kernel.options.get("metric") is None and not local.hessians
    return (
        ", if the noise of different coordinates is independent, which is not looked at in so many dimensions" * blind
    )


def _step_finding(kernel: Kernel, local: Local, pace: Pace) -> Finding:
    loudest = float(np.max(local.variances))
    values = {"low": pace.high / 10, "high": pace.high, "curvature": local.largest, "noise": loudest}
    message = (
        f"step sizes for {kernel.name}: {pace.high / 10:.2g} to {pace.high:.2g} (largest curvature {local.largest:.3g}, gradient noise "
        f"{loudest:.3g}; at the upper end no sd is wrong by more than about {_tolerated(kernel):.1%}{_if_independent(kernel, local)})"
    )
    if pace.time > SLOW:
        remedy = (
            f"An effective draw takes about {pace.time:.1g} such steps: this kernel and this gradient do not suit the posterior. Take "
            "ib.leimkuhler_matthews, a control variate, a metric or a larger batch."
        )
        return Finding("step size", "", "warning", message, remedy, values)
    return Finding("step size", "", "ok", message, values=values)
