r"""The doctor's centre: a point is one only where the gradient over all the data is zero in posterior units.

The distance to the mode in posterior sds is $\sqrt{g^T H^{-1} g}$, with $g$ the gradient of the proxy's log density and $H$ minus its
Hessian. Where the posterior has a density and its data can be read, `inbounds.inference.mode` searches in double precision. Elsewhere
(gradients alone, minibatches that are generated) Adam climbs on minibatches and Newton's method on their mean ends the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import LinearOperator, cg

from inbounds import gradients
from inbounds.data.arrays import is_source, is_stream
from inbounds.diagnostics._check_patient import Patient
from inbounds.diagnostics._check_report import Finding
from inbounds.inference.mode import Mode, find_mode

__all__ = ["Center", "find_center"]

NEAR = 0.1  # posterior sds from the mode at which a point is a centre
CLIMB = 1_000  # steps of Adam
NEWTON = 20
PRODUCTS = 50  # of the Hessian with a vector, for one Newton step


class Center(NamedTuple):
    """Where the doctor stands.

    Args:
        flat: of what the kernel moves.
        mode: what was found in double precision; None where gradients alone are known.
        found: whether step sizes may stand on it.
        finding: what is said of it.
    """

    flat: jax.Array
    mode: Mode | None
    found: bool
    finding: Finding


def find_center(patient: Patient) -> Center:
    """The mode of the proxy, or the best point on the way there."""
    posterior = patient.posterior
    readable = posterior.data is None or is_stream(posterior.data) or not is_source(posterior.data)
    if posterior.gradient is None and readable:
        return _of_density(patient)
    return _of_gradients(patient)


def _of_density(patient: Patient) -> Center:
    try:
        with np.errstate(all="ignore"):
            mode = find_mode(patient.posterior, patient.space.of_proxy, patient.init, seed=patient.seed)
    except ValueError as error:
        remedy = "Without a finite density at a start nothing can be sampled."
        return Center(patient.flat, None, False, Finding("center", "", "problem", str(error), remedy))
    theta = jax.tree.map(jnp.asarray, mode.theta)
    flat = ravel_pytree(patient.moving_of(theta))[0]
    return Center(flat, mode, mode.found, _finding(mode.decrement, mode.found, mode.reason))


def _finding(distance: float, found: bool, reason: str) -> Finding:
    values = {"distance": distance}
    if found:
        where = f"within {max(distance, 1e-4):.1g} posterior sds"
        return Finding(
            "center", "", "ok", f"the gradient over all the data is zero at the centre ({where})", values=values
        )
    message = f"{reason[0].upper()}{reason[1:]}. No step sizes are suggested: they would stand on this point"
    remedy = (
        "Give `init` near the mode. Where the density has none, give that variable a proper prior, or write the model in other variables, such "
        "as the effects of groups as a scale times a standard normal. Small steps may still be tried: a run says what they are worth."
    )
    return Finding("center", "", "problem", message, remedy, values)


# -- of gradients alone -------------------------------------------------------------------------------------------


def _of_gradients(patient: Patient) -> Center:
    flat = _climb(patient, patient.flat)
    if patient.estimator.refresh_every is not None:  # quiet near its centre: look again from there
        patient.move_to(flat)
        flat = _climb(patient, flat)
        patient.move_to(flat)
    slope, exact = _slope(patient)
    product = jax.jit(lambda at, v: -jax.jvp(patient.mean_drift, (at,), (v,))[1])
    best, distance, noise = flat, math.inf, 0.0
    for _ in range(NEWTON):
        halves = slope(flat)
        total, apart = (halves[0] + halves[1]) / 2, (halves[0] - halves[1]) / 2
        step, length = _newton(product, flat, total)
        if not length < distance:
            break
        best, distance = flat, length
        noise = 0.0 if exact else _newton(product, flat, apart)[1]
        if distance <= NEAR:
            break
        flat = flat + jnp.asarray(step, flat.dtype)
    if math.isfinite(noise) and distance <= max(NEAR * math.sqrt(flat.size), 3 * noise):
        return Center(
            best, None, True, _finding(distance, True, "") if noise <= NEAR else _roughly(max(distance, noise))
        )
    reason = (
        f"no point was found at which the mean of the gradients is zero: the best is {distance:.3g} posterior sds off"
    )
    return Center(best, None, False, _finding(distance, False, reason))


def _roughly(distance: float) -> Finding:
    message = f"the centre is known to {distance:.2g} posterior sds: that is as much as the gradients that were looked at can tell"
    return Finding("center", "", "ok" if distance < 1 else "warning", message, values={"distance": distance})


def _slope(patient: Patient) -> tuple[Callable[[jax.Array], jax.Array], bool]:
    """(two estimates of the drift that share no minibatch, or twice the drift over all the data; whether it is the latter)."""
    posterior, space = patient.posterior, patient.space
    data = posterior.data
    if data is None or not patient.has_noise or patient.posterior.has_all_rows:

        def exactly(flat: jax.Array) -> jax.Array:
            tree = patient.unravel(flat)
            theta = space.evaluation_point(tree)
            gradient = gradients.full_gradient(posterior, theta)
            drift = ravel_pytree(space.pull_back(tree, theta, gradient, patient.temperature))[0]
            return jnp.stack([drift, drift])

        return jax.jit(exactly), True

    def halves(flat: jax.Array) -> jax.Array:
        drifts = jax.lax.map(lambda batch: patient.drift(flat, batch), patient.pool)
        half = len(drifts) // 2
        return jnp.stack([jnp.mean(drifts[:half], axis=0), jnp.mean(drifts[half:], axis=0)])

    return jax.jit(halves), False


def _newton(product: Callable[..., jax.Array], flat: jax.Array, slope: jax.Array) -> tuple[np.ndarray, float]:
    """The step, and its length in posterior sds; infinite where the Hessian is not positive along it."""
    gradient = np.asarray(slope, float)
    if not np.isfinite(gradient).all():
        return np.zeros_like(gradient), math.inf
    size = len(gradient)
    curved = LinearOperator(
        (size, size), matvec=lambda v: np.asarray(product(flat, jnp.asarray(np.ravel(v), flat.dtype)), float)
    )
    step, _ = cg(curved, gradient, rtol=1e-3, maxiter=PRODUCTS)
    squared = float(gradient @ step)
    if not np.isfinite(squared) or squared < 0:
        return np.zeros_like(gradient), math.inf
    return step, math.sqrt(squared)


def _climb(patient: Patient, start: jax.Array) -> jax.Array:
    """Towards the mode: Adam on minibatches, its steps falling to zero."""

    def step(carry: tuple[jax.Array, jax.Array, jax.Array], number: jax.Array) -> tuple[Any, None]:
        flat, first, second = carry
        drift = jnp.nan_to_num(patient.drift(flat, patient.batch(number)), posinf=0.0, neginf=0.0)
        first, second = 0.9 * first + 0.1 * drift, 0.99 * second + 0.01 * drift**2
        direction = first / (1 - 0.9 ** (number + 1)) / (jnp.sqrt(second / (1 - 0.99 ** (number + 1))) + 1e-8)
        rate = 0.05 * (1 + jnp.cos(jnp.pi * number / CLIMB))
        return (flat + rate * direction, first, second), None

    @jax.jit
    def run(flat: jax.Array) -> jax.Array:
        nothing = jnp.zeros_like(flat)
        (top, _, _), _ = jax.lax.scan(step, (flat, nothing, nothing), jnp.arange(CLIMB))
        return top

    top: jax.Array = run(start)
    return top
