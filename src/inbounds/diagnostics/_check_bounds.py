"""The doctor's look at transforms, at gradients far out, and at the density near its bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import constraints

from inbounds import transforms as tf
from inbounds.diagnostics._check_patient import Patient
from inbounds.diagnostics._check_report import Finding
from inbounds.posterior import support_name
from inbounds.precision import in_double

__all__ = ["EDGES", "Far", "edge_finding", "look_at_bounds", "look_at_edges", "look_at_transforms"]

EDGES = (-100.0, -30.0, -20.0, -10.0, -3.0, 0.0, 3.0, 10.0, 20.0, 30.0, 100.0)
POLYNOMIAL = (tf.Arctan, tf.Softsign)
GAPS = (1e-3, 1e-4, 1e-5)  # distances to a bound at which the density's shape is measured
IMPROPER = 1e-5  # k up to which a density cannot be integrated: 0, as far as float32 can tell
VAGUE = 1e-2  # k up to which the mass at a bound is nearer to it than floats can be
STEEP = 20.0  # k from which on its size says nothing more: there is no mass near the bound
FACES = 16  # of a simplex that are looked at
FAR = 6.0  # posterior sds from the centre that are looked at beside the edges
OUT_OF_REACH = 15.0  # by how much the log density is lower where no chain comes


# -- transforms ---------------------------------------------------------------------------------------------------


def look_at_transforms(patient: Patient) -> Iterator[Finding]:
    variables = list(patient.variables())

    @jax.jit
    def look() -> list[jax.Array]:
        found = []
        for _, support, transform, theta in variables:
            shape = transform.unconstrained_shape(theta.shape)
            at_edges = transform(jnp.stack([jnp.full(shape, edge, jnp.float32) for edge in EDGES]))
            found.append(jax.vmap(lambda x, s=support: _is_inside(s, x))(at_edges))
        return found

    for (name, support, transform, theta), inside, error in zip(
        variables, look(), _round_trips(variables), strict=True
    ):
        label = f"{support_name(support)} by {transform.name}"
        yield Finding("transform", name, "ok", label, values={"shape": tuple(theta.shape)})
        yield _round_trip(name, error)
        yield _interior(name, support, transform, np.asarray(inside))
        yield _lipschitz(name, support, transform)


def _round_trips(variables: list[tuple[str, Any, Any, jax.Array]]) -> list[float]:
    """How far phi -> theta -> phi is off, for each variable.

    In double precision, and not too far out: near a bound theta itself has no digits left to tell one phi from another.
    """
    generator = np.random.default_rng(1)
    phis = []
    for _, support, transform, theta in variables:
        reach = 0.5 if tf.is_vector(support) else 4.0  # further out large matrices are singular
        scale = np.asarray(getattr(transform, "scale", 1.0))
        phis.append(scale * generator.uniform(-reach, reach, (16, *transform.unconstrained_shape(theta.shape))))

    @jax.jit
    def there_and_back(phis: list[np.ndarray]) -> list[jax.Array]:
        return [transform.inv(transform(phi)) for (_, _, transform, _), phi in zip(variables, phis, strict=True)]

    with in_double():
        backs = there_and_back(phis)
    return [float(np.max(np.abs(np.asarray(back) - phi), initial=0.0)) for back, phi in zip(backs, phis, strict=True)]


def _round_trip(name: str, error: float) -> Finding:
    values = {"error": error}
    if error < 1e-2:
        return Finding("round trip", name, "ok", f"phi -> theta -> phi within {error:.1g}", values=values)
    remedy = "Report it if the transform is the library's own; if it is yours, correct its inverse."
    return Finding("round trip", name, "problem", f"phi -> theta -> phi is off by {error:.2g}", remedy, values)


def _interior(name: str, support: Any, transform: Any, inside: np.ndarray) -> Finding:
    bad = [edge for edge, good in zip(EDGES, inside, strict=True) if not good]
    if not bad:
        return Finding("interior", name, "ok", "strictly inside its support for phi from -100 to 100 in float32")
    where = ", ".join(f"{edge:g}" for edge in bad)
    known = [other for other in tf.available(support) if other != transform.name]
    remedy = f"Use another transform: {', '.join(known)}." if known else "Keep the scale of this variable moderate."
    status = "warning" if tf.is_vector(support) else "problem"
    return Finding("interior", name, status, f"theta rounds onto its bounds at phi = {where}", remedy, {"phi": bad})


def _is_inside(support: Any, theta: jax.Array) -> jax.Array:
    lower, upper = tf.bounds(support)
    return jnp.all((theta > lower) & (theta < upper) & jnp.isfinite(theta)) & jnp.all(support(theta))


def _lipschitz(name: str, support: Any, transform: Any) -> Finding:
    constant = float(transform.lipschitz)
    values = {"constant": constant}
    if math.isfinite(constant):
        return Finding("lipschitz", name, "ok", f"Lipschitz constant of the transform: {constant:.3g}", values=values)
    if transform.name != "exp":
        return Finding("lipschitz", name, "warning", f"{transform.name} has no known Lipschitz constant",
                       "Watch for chains that leave the finite numbers; a smaller step size is the cure.", values)  # fmt: skip
    cures = ", ".join(other for other in tf.available(support) if other != "exp")
    return Finding(
        "lipschitz", name, "warning",
        "exp is not Lipschitz: gradient noise reaches phi multiplied by theta itself, one large step feeds the next, and "
        "the chain explodes",
        f"Use transforms={{{name!r}: {tf.default(support).name!r}}}; also possible: {cures}.", values,
    )  # fmt: skip


# -- gradients at the edges ---------------------------------------------------------------------------------------


class Far(NamedTuple):
    """What one variable shows when all its numbers are moved to some places, the others staying: one entry per place, in order."""

    places: np.ndarray  # of phi
    drift: np.ndarray  # the mean of its numbers
    defined: np.ndarray  # whether the density and all gradients are numbers
    density: np.ndarray  # log density less that at the centre; NaN where there is none
    reach: float = math.inf  # how far from the centre a step may lead

    def out_of_reach(self, place: float, home: float) -> bool:
        """Whether on the way from home the density falls so low that no chain comes there."""
        between = (self.places > min(place, home)) & (self.places < max(place, home))
        return bool(np.any(self.density[between] < -OUT_OF_REACH))


def look_at_edges(patient: Patient, sds: np.ndarray | None) -> Iterator[Finding]:
    """The drift with one variable at a time moved far out, the others staying; `sds` are those of phi, where they are known."""
    space, batch = patient.space.of_proxy, patient.batch()
    phi = patient.space.proxy(patient.unravel(patient.flat))
    center, unravel = ravel_pytree(phi)
    home = np.asarray(center)
    ends = np.cumsum([leaf.size for leaf in jax.tree.leaves(phi)])
    spans = [slice(end - leaf.size, end) for leaf, end in zip(jax.tree.leaves(phi), ends, strict=True)]
    known = sds is not None and np.isfinite(sds).all()
    points = [home]
    for span in spans:
        moved = [np.full(home[span].shape, edge, home.dtype) for edge in EDGES]
        moved += [home[span] + side * sds[span].astype(home.dtype) for side in (-FAR, FAR)] if known else []  # type: ignore[index]
        for there in moved:
            points.append(home.copy())
            points[-1][span] = there

    def look(point: jax.Array) -> tuple[jax.Array, jax.Array]:
        tree = unravel(point)
        theta = space.evaluation_point(tree)
        drift = ravel_pytree(space.pull_back(tree, theta, patient.gradient(theta, batch), patient.temperature))[0]
        if patient.posterior.gradient is not None:
            return drift, jnp.zeros(())
        return drift, patient.posterior.log_density(theta, batch) + space.log_abs_det_jacobian(tree)

    drifts, densities = (
        np.asarray(x, float) for x in jax.jit(lambda p: jax.lax.map(look, p))(jnp.asarray(np.stack(points)))
    )
    defined = np.isfinite(drifts).all(axis=1) & ~np.isnan(densities)
    density = densities - densities[0] if patient.posterior.gradient is None else np.full(len(densities), np.nan)
    of_each = (len(points) - 1) // len(spans)
    for i, (name, support, transform, _) in enumerate(patient.variables()):
        rows = 1 + i * of_each + np.arange(of_each)
        places = np.asarray([points[row][spans[i]].mean() for row in rows])
        order = np.argsort(places, kind="stable")
        own = drifts[rows][:, spans[i]].mean(axis=1)
        reach = 1.001 * FAR * float(sds[spans[i]].mean()) if known else math.inf  # type: ignore[index]
        far = Far(places[order], own[order], defined[rows][order], density[rows][order], reach)
        yield edge_finding(name, support, transform, far, float(home[spans[i]].mean()))


def edge_finding(name: str, support: Any, transform: Any, far: Far, home: float) -> Finding:
    """What is said of one variable whose phi is `home` at the centre."""
    bad = [float(edge) for edge in far.places[~far.defined]]
    if not bad:
        return Finding("edges", name, "ok", "finite gradient at phi from -100 to 100")
    where, values = ", ".join(f"{edge:.3g}" for edge in bad), {"phi": bad}
    # A step may lead over a place of density zero, such as that of a log, to where there is no density at all.
    undefined = ~far.defined & np.isnan(far.density) & np.isfinite(far.density[far.defined]).any()
    if isinstance(transform, tf.Identity) and np.any(np.abs(far.places[undefined] - home) <= far.reach):
        remedy = (
            f"The prior lets {name} go where the model is not defined, and draws may lie there without an error. Give it a prior on the range "
            "that the model allows, such as HalfNormal or Gamma for a scale, a rate or a shape."
        )
        return Finding("edges", name, "problem", f"the density is not a number at {where}", remedy, values)
    if all(far.out_of_reach(edge, home) for edge in bad):
        message = f"the gradient is not finite at phi = {where}, and the density is so low on the way there that no chain comes"
        return Finding("edges", name, "ok", message, "Harmless. Only a start out there would fail.", values)
    if isinstance(transform, tf.Exp):
        remedy = "Use a Lipschitz transform: exp itself leaves the floats there."
        return Finding("edges", name, "warning", f"the gradient overflows at phi = {where}", remedy, values)
    if isinstance(transform, tf.Identity):
        remedy = "Harmless if the chain never goes there; start near the data, and keep the step size moderate."
        return Finding("edges", name, "warning", f"the gradient overflows at {where}", remedy, values)
    if all(_is_a_wall(far, side) for side in (1, -1)):
        message = f"the density falls so steeply that its gradient overflows at phi = {where}, pointing inwards"
        remedy = "Harmless: the chain is driven away from there. Only a start out there would fail."
        return Finding("edges", name, "ok", message, remedy, values)
    if tf.is_vector(support) and 0.0 not in bad:  # with every entry out there, a matrix is singular in floats
        remedy = "Harmless if the chain never goes there; start near the data, and keep the step size moderate."
        return Finding("edges", name, "warning", f"the gradient is not finite at phi = {where}", remedy, values)
    remedy = (
        "Look for log, sqrt, division or exp of theta in the likelihood that overflows near the bounds of "
        f"{support_name(support)}; write it in the log domain."
    )
    return Finding("edges", name, "problem", f"the gradient is not finite at phi = {where}", remedy, values)


def _is_a_wall(far: Far, side: int) -> bool:
    """Whether what overflows on one side (1: upper) is a drift inwards that grows faster than any power of the gap."""
    outward = [i for i in np.argsort(side * far.places, kind="stable") if side * far.places[i] >= 0]
    inner = list(itertools.takewhile(lambda i: far.defined[i], outward))
    if len(inner) == len(outward):
        return True
    if len(inner) < 2:
        return False
    last, before = -side * far.drift[inner[-1]], -side * far.drift[inner[-2]]
    return bool(last > 10 * abs(before))


# -- the shape of the density at its bounds -----------------------------------------------------------------------


def look_at_bounds(patient: Patient) -> Iterator[Finding]:
    """k in the density ~ gap^(k - 1) at every finite end: k = 1 + gap * d log pi / d theta as the gap closes."""
    batch = patient.batch()
    gradient = jax.jit(patient.gradient)
    leaves, treedef = jax.tree.flatten(patient.theta)
    for i, (name, support, transform, theta) in enumerate(patient.variables()):
        if isinstance(support, type(constraints.simplex)):
            yield _boundary(name, "face", transform, _faces(patient, i, theta))
        if tf.is_vector(support):
            continue
        for side, sign, end in zip(("lower", "upper"), (1.0, -1.0), tf.bounds(support), strict=True):
            if not np.all(np.isfinite(end)):
                continue
            end = np.broadcast_to(np.asarray(end, theta.dtype), theta.shape).ravel()[0]
            room = min(
                1.0, abs(float(np.ravel(theta)[0]) - float(end))
            )  # what is near depends on the scale of the variable
            shapes = []
            for gap in GAPS:
                moved = np.array(theta).ravel()
                moved[0] = end + sign * gap * room
                point = jax.tree.unflatten(treedef, [*leaves[:i], moved.reshape(theta.shape), *leaves[i + 1 :]])
                slope = np.asarray(jax.tree.leaves(gradient(point, batch))[i]).ravel()[0]
                shapes.append(1 + float((moved[0] - end) * slope))  # the gap as the floats have it
            yield _boundary(name, side, transform, shapes)


def _faces(patient: Patient, i: int, theta: jax.Array) -> list[float]:
    """The shape at the sharpest face of a simplex, for each gap: one component closes, the others share what it leaves."""
    batch = patient.batch()
    leaves, treedef = jax.tree.flatten(patient.theta)
    size = theta.shape[-1]
    rows = theta.reshape(-1, size)
    others = rows[0]

    def shape(component: jax.Array, gap: jax.Array) -> jax.Array:
        is_it = jnp.arange(size) == component
        shares = jnp.where(is_it, 0.0, others) / jnp.sum(jnp.where(is_it, 0.0, others))
        moved = jnp.where(is_it, gap, (1 - gap) * shares)
        point = [*leaves[:i], rows.at[0].set(moved).reshape(theta.shape), *leaves[i + 1 :]]
        slope = jax.tree.leaves(patient.gradient(jax.tree.unflatten(treedef, point), batch))[i].reshape(-1, size)[0]
        return jnp.add(1, gap * (slope[component] - jnp.sum(shares * slope)))

    components = jnp.asarray(np.unique(np.linspace(0, size - 1, min(size, FACES)).astype(int)))
    gaps = jnp.asarray(GAPS, theta.dtype)
    shapes = jax.jit(lambda: jax.lax.map(lambda c: jax.vmap(lambda gap: shape(c, gap))(gaps), components))()
    sharpest: list[float] = np.asarray(shapes, float)[int(np.argmin(shapes[:, -1]))].tolist()
    return sharpest


def _boundary(name: str, side: str, transform: Any, shapes: list[float]) -> Finding:
    # At a gap of 0: near it the shape is linear in the gap, and its slope may hide that a density is improper.
    k = shapes[-1] + (shapes[-1] - shapes[-2]) * GAPS[-1] / (GAPS[-2] - GAPS[-1])
    values = {"side": side, "k": k}
    place = "at a face of the simplex" if side == "face" else f"at its {side} end"
    if not np.all(np.isfinite(shapes)) or abs(shapes[-1] - shapes[-2]) > 0.05 * max(1.0, abs(k)):
        return Finding(
            "boundary",
            name,
            "ok",
            f"shape of the density {place}: cannot tell",
            values={"side": side, "k": None},
        )
    if k > STEEP:
        return Finding(
            "boundary", name, "ok", f"the density vanishes {place}, faster than gap^{STEEP - 1:g}", values=values
        )
    at = f"the density goes like gap^{round(k - 1, 2) + 0.0:g} {place} (k = {k:.2g})"
    polynomial = isinstance(transform, POLYNOMIAL)
    if k <= IMPROPER:
        return Finding("boundary", name, "problem", f"{at}: it cannot be integrated there",
                       "The posterior does not exist; give the variable a proper prior.", values)  # fmt: skip
    if polynomial:
        return Finding("boundary", name, "problem" if k < 1 else "warning",
                       f"{at}, and {transform.name} mixes polynomially: errors fall like t^-{k / 2:.2g}",
                       "Use sigmoid or probit, whose tails are exponential.", values)  # fmt: skip
    if k <= VAGUE:
        return Finding("boundary", name, "warning", f"{at}: it can just be integrated, and what mass it has there is "
                       "nearer to the end than floats can be",
                       "Give the variable a prior of larger shape, unless the data leave no mass there.", values)  # fmt: skip
    if k < 1 - 0.02:
        slow = ""
        if k < 0.3 and isinstance(transform, tf.Sigmoid | tf.Softplus | tf.ICLL):
            better = "probit" if isinstance(transform, tf.Sigmoid) else "integrated_probit"
            slow = f" With k this small {better} mixes several times faster than {transform.name}."
        if k < 0.3 and side == "face":
            slow = (
                " With k this small chains wander far out on a proxy of exponential tails: sample positive variables with "
                "Gamma priors of that shape by integrated_probit, and divide by their sum."
            )
        remedy = f"Leave mirror and projected kernels out; the kernels on a proxy are right.{slow}"
        message = f"{at}: mirror steps cannot work, at any step size"
        return Finding("boundary", name, "warning" if slow else "ok", message, remedy, values)
    return Finding("boundary", name, "ok", at, values=values)
