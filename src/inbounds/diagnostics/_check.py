r"""The doctor: looks at a posterior before it is sampled, and says what will go wrong and what to do about it.

The step sizes that it suggests come from two numbers at a typical point of the proxy: the largest curvature $L$ of
$-\log \pi$ and the variance $V$ of the minibatch gradient. For a Gaussian with precision $\lambda$, Euler's stationary variance
is larger than the target's by the factor $(1 + \epsilon V / 2) / (1 - \epsilon \lambda / 2)$, so a standard deviation is wrong by
about $\epsilon (\lambda + V) / 4$: the range ends where that is 5%, $\epsilon = 0.2 / (L + V)$, and starts a factor of ten below.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import constraints

from inbounds import gradients, trees
from inbounds import transforms as tf
from inbounds.data.arrays import at_hand, is_source, source_for
from inbounds.display import html_table
from inbounds.posterior import Posterior, support_name
from inbounds.precision import in_double
from inbounds.space import Space, is_constraint, is_transform
from inbounds.trees import PyTree, variable_name

__all__ = ["Finding", "Report", "check"]

EDGES = (-100.0, -30.0, -10.0, -3.0, 0.0, 3.0, 10.0, 30.0, 100.0)
MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}
TOLERATED = 0.2  # step size times (curvature + noise): a bias of 5% in a standard deviation
DENSE = 256  # dimensions up to which all the curvatures are computed, not the largest alone
POLYNOMIAL = ("arctan", "softsign")
GAPS = (1e-3, 1e-4, 1e-5)  # distances to a bound at which the density's shape is measured
IMPROPER = 1e-5  # k up to which a density cannot be integrated: 0, as far as float32 can tell
VAGUE = 1e-2  # k up to which the mass at a bound is nearer to it than floats can be
FACES = 16  # of a simplex that are looked at


@dataclass(frozen=True)
class Finding:
    """One line of the checklist.

    Args:
        topic: what was looked at: "transform", "round trip", "interior", "lipschitz", "edges", "boundary", "unbiased",
            "noise", "conditioning" or "step size".
        variable: the name of the variable, or "" for the whole posterior.
        status: "ok", "warning" or "problem".
        message: what was found.
        remedy: what to do about it; "" where nothing is to be done.
        values: the numbers behind it.
    """

    topic: str
    variable: str
    status: str
    message: str
    remedy: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        subject = f"{self.variable}: " if self.variable else ""
        return f"{MARKS[self.status]} {subject}{self.message}" + (f"\n    → {self.remedy}" if self.remedy else "")


@dataclass
class Report:
    """What `check` found. `str()` is the checklist, notebooks show a table, `to_dict()` is plain data.

    Attributes:
        findings: the lines of the checklist.
        step_size: the middle of the suggested range.
        step_sizes: the suggested range (low, high) for a kernel without preconditioner.
        preconditioner: scales (a tree like phi) that even out the curvatures; None above 256 dimensions.
        preconditioned_step_size: what to use with it.
        center: theta at the reference point, near the mode: a start, and a centre for `ib.gradients.control_variate`.
        batch_size: rows of the minibatches that were looked at; None without data.
    """

    findings: list[Finding]
    step_size: float
    step_sizes: tuple[float, float]
    preconditioner: PyTree
    preconditioned_step_size: float | None
    center: PyTree
    batch_size: int | None

    @property
    def ok(self) -> bool:
        """Whether nothing is a problem; warnings may be left."""
        return all(finding.status != "problem" for finding in self.findings)

    def of(self, topic: str, variable: str | None = None) -> list[Finding]:
        """The findings of a topic, or those of a topic for one variable."""
        return [f for f in self.findings if f.topic == topic and variable in (None, f.variable)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it: None for numbers that are not finite."""
        return _plain(
            {
                "ok": self.ok,
                "step_size": self.step_size,
                "step_sizes": self.step_sizes,
                "preconditioned_step_size": self.preconditioned_step_size,
                "batch_size": self.batch_size,
                "findings": [vars(finding) for finding in self.findings],
            }
        )

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)

    def __repr__(self) -> str:
        counts = {status: sum(f.status == status for f in self.findings) for status in MARKS}
        marks = " ".join(f"{counts[status]}{mark}" for status, mark in MARKS.items())
        return f"Report({marks}; step sizes {self.step_sizes[0]:.2g} to {self.step_sizes[1]:.2g})"

    def _repr_html_(self) -> str:
        cells = (
            (MARKS[f.status], f.variable, f.topic, f.message + (f" → {f.remedy}" if f.remedy else ""))
            for f in self.findings
        )
        return html_table(("", "variable", "check", "finding"), cells)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    gradient: Any = gradients.minibatch,
    batch_size: int | None = None,
    init: PyTree = None,
    seed: int = 0,
    show: bool = True,
) -> Report:
    """Look a posterior over before it is sampled: a checklist with a tick or a cross, and a remedy, a line.

    Args:
        posterior: what is to be sampled.
        transforms: as for the kernels; None looks at the defaults.
        gradient: as for the kernels; the noise, and with it the suggested step size, is that of this estimator.
            `ib.gradients.svrg()` is centred near the mode, so it speaks for `control_variate(center=report.center)` too.
        batch_size: rows a minibatch; None takes what the posterior says, or 100.
        init: where to start looking; None: near the middle of the prior.
        seed: a whole number.
        show: print the checklist (a notebook shows the returned report instead).

    Returns:
        The report: its findings, a centre, and a range of step sizes.

    Raises:
        ValueError: `posterior` is not an `ib.Posterior`.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> report = ib.check(posterior, batch_size=100, show=False)
        >>> report.ok, report.step_sizes[0] < report.step_sizes[1]
        (True, True)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(
            f"`posterior` must be an ib.Posterior; got {type(posterior).__name__}. For a NumPyro model use ib.from_numpyro."
        )
    patient = _Patient(posterior, Space.of(posterior.supports, transforms), gradient, batch_size, init, seed)
    findings = [finding for look in (_transforms, _edges, _boundaries, _unbiased) for finding in look(patient)]
    report = _step_sizes(patient, findings)
    if show and not _in_a_notebook():
        print(report)
    return report


class _Patient:
    """The posterior in proxy space: its drift from a minibatch, and the minibatches."""

    def __init__(
        self, posterior: Posterior, space: Space, gradient: Any, batch_size: int | None, init: PyTree, seed: int
    ):
        self.posterior, self.space = posterior, space
        self.key = jax.random.key(seed)
        self.theta = jax.tree.map(jnp.asarray, posterior.start(self.key) if init is None else init)
        space.check(self.theta)
        rows = posterior.num_data
        if batch_size is None and rows is not None:
            batch_size = min(rows, posterior.batch_size or 100)
        self.batch_size = None if rows is None else batch_size
        self.pool = _pool(posterior, self.batch_size, self.key)
        self.estimator = gradient(posterior)
        posterior.check_likelihood(self.theta, self.batch())
        self.flat, self.unravel = ravel_pytree(space.unconstrain(self.theta))
        self.state = self.estimator.init(self.theta, False)

    def recenter(self, phi: jax.Array) -> None:
        """Let the estimator look at all the data from here, as SVRG does now and then."""
        self.state = jax.jit(lambda p: self.estimator.init(self.space.evaluation_point(self.unravel(p)), False))(phi)

    @property
    def has_noise(self) -> bool:
        """A batch of all the data has none."""
        rows = self.posterior.num_data
        return self.posterior.data is not None and (rows is None or self.batch_size is None or self.batch_size < rows)

    def batches(self, most: int) -> PyTree:
        """Up to so many minibatches, leading axis = minibatch: always the same ones. None without data."""
        return jax.tree.map(lambda leaf: leaf[:most], self.pool)

    def batch(self, number: Any = 0) -> PyTree:
        """One minibatch of the pool, round and round."""
        return jax.tree.map(lambda leaf: leaf[number % leaf.shape[0]], self.pool)

    def gradient(self, theta: PyTree, batch: PyTree) -> PyTree:
        return self.estimator.estimate(self.state, theta, batch, False)[0].value

    def drift(self, phi: jax.Array, batch: PyTree) -> jax.Array:
        """The drift of the flat proxy."""
        tree = self.unravel(phi)
        theta = self.space.evaluation_point(tree)
        return ravel_pytree(self.space.pull_back(tree, theta, self.gradient(theta, batch)))[0]

    @cached_property
    def hessian(self) -> Callable[[jax.Array], jax.Array]:
        """Of -log pi of the proxy, from many minibatches."""
        return jax.jit(lambda phi: -jax.jacfwd(self.mean_drift)(phi))

    @cached_property
    def noise(self) -> Callable[[jax.Array], jax.Array]:
        """Variance of every coordinate of the proxy's minibatch gradient."""
        if not self.has_noise:
            return jnp.zeros_like
        batches = self.batches(64)
        return jax.jit(lambda phi: jnp.var(jax.lax.map(lambda batch: self.drift(phi, batch), batches), axis=0, ddof=1))

    def mean_drift(self, phi: jax.Array) -> jax.Array:
        """The drift from enough minibatches to be nearly exact."""
        batches = self.batches(max(1, min(64, 4_096 // (self.batch_size or 64))))
        if batches is None:
            return self.drift(phi, None)
        return jnp.mean(jax.vmap(lambda batch: self.drift(phi, batch))(batches), axis=0)

    def variables(self) -> Iterator[tuple[str, Any, Any, jax.Array]]:
        """(name, support, transform, theta) of every leaf of theta."""
        supports = trees.broadcast_prefix(self.posterior.supports, self.theta, is_leaf=is_constraint)
        transforms = trees.broadcast_prefix(self.space.transforms, self.theta, is_leaf=is_transform)
        for (path, theta), support, transform in zip(
            jax.tree_util.tree_leaves_with_path(self.theta),
            jax.tree.leaves(supports, is_leaf=is_constraint),
            jax.tree.leaves(transforms, is_leaf=is_transform),
            strict=True,
        ):
            yield variable_name(path), support, transform, theta


def _pool(posterior: Posterior, batch_size: int | None, key: jax.Array) -> PyTree:
    """Independent minibatches, leading axis = minibatch, or all the data in each; None without data."""
    if posterior.data is None:
        return None
    count = max(16, min(128, 200_000 // (batch_size or 1)))
    batching = "epochs" if batch_size in (None, posterior.num_data) else "replacement"  # all the rows, once each
    source = source_for(at_hand(posterior.data, max(200_000, batch_size or 0)), batch_size, batching)
    arrays = source.prepare(key)
    return jax.jit(lambda: jax.vmap(source.fetch, in_axes=(None, 0))(arrays, source.plan(key, jnp.arange(count))))()


# -- transforms ---------------------------------------------------------------------------------------------------


def _transforms(patient: _Patient) -> Iterator[Finding]:
    variables = list(patient.variables())

    @jax.jit
    def look():
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
    def there_and_back(phis):
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


def _edges(patient: _Patient) -> Iterator[Finding]:
    """The drift with one variable at a time moved to the edges, the others at the start."""
    batch = patient.batch()
    phi = patient.unravel(patient.flat)
    leaves, treedef = jax.tree.flatten(phi)
    points = [
        jax.tree.unflatten(treedef, [*leaves[:i], np.full_like(leaves[i], edge), *leaves[i + 1 :]])
        for i in range(len(leaves))
        for edge in EDGES
    ]
    flat = jnp.asarray(np.stack([np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(p)]) for p in points]))
    drifts = np.asarray(jax.jit(lambda: jax.lax.map(lambda p: patient.drift(p, batch), flat))())
    finite = np.isfinite(drifts).all(axis=1).reshape(len(leaves), len(EDGES))
    ends = np.cumsum([leaf.size for leaf in leaves])
    for i, (name, support, transform, _) in enumerate(patient.variables()):
        own = drifts.reshape(len(leaves), len(EDGES), -1)[i, :, ends[i] - leaves[i].size : ends[i]].mean(axis=1)
        yield _edge(name, support, transform, finite[i], own)


def _edge(name: str, support: Any, transform: Any, finite: np.ndarray, drift: np.ndarray) -> Finding:
    bad = [edge for edge, good in zip(EDGES, finite, strict=True) if not good]
    if not bad:
        return Finding("edges", name, "ok", "finite gradient at phi from -100 to 100")
    where, values = ", ".join(f"{edge:g}" for edge in bad), {"phi": bad}
    if transform.name == "exp":
        remedy = "Use a Lipschitz transform: exp itself leaves the floats there."
        return Finding("edges", name, "warning", f"the gradient overflows at phi = {where}", remedy, values)
    if transform.name == "identity":
        remedy = "Harmless if the chain never goes there; start near the data, and keep the step size moderate."
        return Finding("edges", name, "warning", f"the gradient overflows at {where}", remedy, values)
    if all(_is_a_wall(finite, drift, side) for side in (1, -1)):
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


def _is_a_wall(finite: np.ndarray, drift: np.ndarray, side: int) -> bool:
    """Whether what overflows on one side (1: upper) is a drift inwards that grows faster than any power of the gap."""
    middle = len(EDGES) // 2
    outward = range(middle, -1, -1) if side < 0 else range(middle, len(EDGES))
    inner = list(itertools.takewhile(lambda i: finite[i], outward))
    if len(inner) == len(outward):
        return True
    if len(inner) < 2:
        return False
    last, before = -side * drift[inner[-1]], -side * drift[inner[-2]]
    return bool(last > 10 * abs(before))


# -- the shape of the density at its bounds -----------------------------------------------------------------------


def _boundaries(patient: _Patient) -> Iterator[Finding]:
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
            shapes = []
            for gap in GAPS:
                moved = theta.ravel().at[0].set(end + sign * gap)
                point = jax.tree.unflatten(treedef, [*leaves[:i], moved.reshape(theta.shape), *leaves[i + 1 :]])
                slope = jax.tree.leaves(gradient(point, batch))[i].ravel()[0]
                shapes.append(1 + float((moved[0] - end) * slope))  # the gap as the floats have it
            yield _boundary(name, side, transform, shapes)


def _faces(patient: _Patient, i: int, theta: jax.Array) -> list[float]:
    """The shape at the sharpest face of a simplex, for each gap: one component closes, the others share what it leaves."""
    batch = patient.batch()
    leaves, treedef = jax.tree.flatten(patient.theta)
    size = theta.shape[-1]
    rows = theta.reshape(-1, size)
    others = rows[0]

    def shape(component, gap):
        is_it = jnp.arange(size) == component
        shares = jnp.where(is_it, 0.0, others) / jnp.sum(jnp.where(is_it, 0.0, others))
        moved = jnp.where(is_it, gap, (1 - gap) * shares)
        point = [*leaves[:i], rows.at[0].set(moved).reshape(theta.shape), *leaves[i + 1 :]]
        slope = jax.tree.leaves(patient.gradient(jax.tree.unflatten(treedef, point), batch))[i].reshape(-1, size)[0]
        return 1 + gap * (slope[component] - jnp.sum(shares * slope))

    components = jnp.asarray(np.unique(np.linspace(0, size - 1, min(size, FACES)).astype(int)))
    gaps = jnp.asarray(GAPS, theta.dtype)
    shapes = jax.jit(lambda: jax.lax.map(lambda c: jax.vmap(lambda gap: shape(c, gap))(gaps), components))()
    return np.asarray(shapes, float)[int(np.argmin(shapes[:, -1]))].tolist()


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
    at = f"the density goes like gap^{round(k - 1, 2) + 0.0:g} {place} (k = {k:.2g})"
    polynomial = transform.name in POLYNOMIAL
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
        remedy = "Leave mirror and projected kernels out; the kernels on a proxy are right."
        if k < 0.3 and transform.name in ("sigmoid", "softplus", "icll"):
            better = "probit" if transform.name == "sigmoid" else "integrated_probit"
            remedy += f" With k this small {better} mixes several times faster than {transform.name}."
        if k < 0.3 and side == "face":
            remedy += (
                " With k this small chains wander far out on a proxy of exponential tails: sample positive variables with "
                "Gamma priors of that shape by integrated_probit, and divide by their sum."
            )
        return Finding("boundary", name, "ok", f"{at}: mirror steps cannot work, at any step size", remedy, values)
    return Finding("boundary", name, "ok", at, values=values)


# -- minibatches --------------------------------------------------------------------------------------------------


def _unbiased(patient: _Patient) -> Iterator[Finding]:
    """Mean of many minibatch gradients against the gradient of all the data, along random directions."""
    posterior = patient.posterior
    known = posterior.data is not None and (not is_source(posterior.data) or hasattr(posterior.data, "all_rows"))
    if not known:
        return
    full = ravel_pytree(jax.jit(lambda theta: gradients.full_gradient(posterior, theta))(patient.theta))[0]
    estimates = jax.jit(
        lambda: jax.lax.map(lambda batch: ravel_pytree(patient.gradient(patient.theta, batch))[0], patient.pool)
    )()
    count = len(estimates)
    directions = jax.random.normal(jax.random.key(12), (full.size, 16))
    errors = np.asarray((estimates - full) @ directions, float)
    spread = errors.std(axis=0, ddof=1) / math.sqrt(count)
    rounding = 1e-4 * np.abs(np.asarray(jnp.abs(full) @ jnp.abs(directions)))
    worst = float(np.max(np.abs(errors.mean(axis=0)) / np.maximum(spread + rounding, 1e-30)))
    values = {"z": worst, "minibatches": count}
    if worst < 5:
        yield Finding(
            "unbiased",
            "",
            "ok",
            f"minibatch gradients are unbiased (largest z {worst:.2g} of {count} batches)",
            values=values,
        )
        return
    yield Finding(
        "unbiased", "", "problem", f"the mean of the minibatch gradients is not the full gradient (z = {worst:.3g})",
        "`log_likelihood` must return one term a datum, neither averaged nor dependent on the rest of the batch (no batch "
        "normalisation); `gradient` must scale its likelihood by N / batch size.", values,
    )  # fmt: skip


# -- step sizes ---------------------------------------------------------------------------------------------------


def _step_sizes(patient: _Patient, findings: list[Finding]) -> Report:
    mode = _climb(patient, patient.flat)
    if (
        patient.estimator.refresh_every is not None
    ):  # an estimator that moves its centre is quiet near it: look again from there
        patient.recenter(mode)
        mode = _climb(patient, mode)
        patient.recenter(mode)
    curvature = _Curvature.at(patient, mode)
    noise = np.nan_to_num(np.asarray(patient.noise(mode), float))
    typical = _wander(patient, mode, 0.1 / (curvature.largest + float(noise.max())))
    curvature = curvature.merged(_Curvature.at(patient, typical))
    noise = np.maximum(noise, np.nan_to_num(np.asarray(patient.noise(typical), float)))
    loudest = float(noise.max())
    high = TOLERATED / (curvature.largest + loudest)
    if patient.has_noise:
        findings.append(_noise_finding(curvature.largest, loudest))
    if curvature.ratio is not None:
        findings.append(_conditioning(curvature, high))
    findings.append(
        Finding(
            "step size", "", "ok",
            f"suggested step sizes: {high / 10:.2g} to {high:.2g} (largest curvature {curvature.largest:.3g}, gradient noise "
            f"{loudest:.3g}; at the upper end a standard deviation is wrong by about 5%)",
            values={"low": high / 10, "high": high, "curvature": curvature.largest, "noise": loudest},
        )
    )  # fmt: skip
    return Report(
        findings=findings,
        step_size=high / math.sqrt(10),
        step_sizes=(high / 10, high),
        preconditioner=None if curvature.scales is None else patient.unravel(jnp.asarray(curvature.scales, mode.dtype)),
        preconditioned_step_size=curvature.preconditioned_step(noise),
        center=patient.space.constrain(patient.unravel(mode)),
        batch_size=patient.batch_size,
    )


@dataclass(frozen=True)
class _Curvature:
    """Curvatures of -log pi of the proxy; all but the largest are known in few dimensions only."""

    largest: float
    ratio: float | None = None
    hessians: tuple[np.ndarray, ...] = ()

    @classmethod
    def at(cls, patient: _Patient, phi: jax.Array) -> _Curvature:
        if phi.size > DENSE:
            return cls(_largest_by_power_iteration(patient.mean_drift, phi))
        hessian = np.asarray(patient.hessian(phi), float)
        hessian = np.nan_to_num((hessian + hessian.T) / 2, posinf=0.0, neginf=0.0)
        values = np.maximum(np.abs(np.linalg.eigvalsh(hessian)), 1e-12)
        return cls(float(values.max()), float(values.max() / values.min()), (hessian,))

    def merged(self, other: _Curvature) -> _Curvature:
        return _Curvature(max(self.largest, other.largest), self.ratio, self.hessians + other.hessians)

    @property
    def scales(self) -> np.ndarray | None:
        """One over the mean diagonal of the Hessians, no direction more than 1e6 times another."""
        if not self.hessians:
            return None
        diagonal = np.mean([np.abs(np.diag(hessian)) for hessian in self.hessians], axis=0)
        return 1 / np.maximum(diagonal, max(1e-6 * diagonal.max(), 1e-12))

    def preconditioned_step(self, noise: np.ndarray) -> float | None:
        scales = self.scales
        if scales is None:
            return None
        root = np.sqrt(scales)
        largest = max(np.abs(np.linalg.eigvalsh(root[:, None] * h * root)).max() for h in self.hessians)
        return float(TOLERATED / max(largest + (scales * noise).max(), 1e-12) / math.sqrt(10))


def _largest_by_power_iteration(drift: Callable, phi: jax.Array, iterations: int = 30) -> float:
    def turn(_, v):
        w = jax.jvp(drift, (phi,), (v / jnp.linalg.norm(v),))[1]
        return jnp.nan_to_num(w)

    start = jax.random.normal(jax.random.key(3), phi.shape, phi.dtype)
    return float(jnp.maximum(jnp.linalg.norm(jax.jit(lambda: jax.lax.fori_loop(0, iterations, turn, start))()), 1e-12))


def _climb(patient: _Patient, start: jax.Array, steps: int = 1_000) -> jax.Array:
    """Near the mode of the proxy: Adam on minibatches, its steps falling to zero."""

    def step(carry, number):
        phi, first, second = carry
        drift = jnp.nan_to_num(patient.drift(phi, patient.batch(number)), posinf=0.0, neginf=0.0)
        first, second = 0.9 * first + 0.1 * drift, 0.99 * second + 0.01 * drift**2
        direction = first / (1 - 0.9 ** (number + 1)) / (jnp.sqrt(second / (1 - 0.99 ** (number + 1))) + 1e-8)
        rate = 0.05 * (1 + jnp.cos(jnp.pi * number / steps))
        return (phi + rate * direction, first, second), None

    @jax.jit
    def run(phi):
        return jax.lax.scan(step, (phi, jnp.zeros_like(phi), jnp.zeros_like(phi)), jnp.arange(steps))[0][0]

    return run(start)


def _wander(patient: _Patient, phi: jax.Array, step_size: float, steps: int = 200) -> jax.Array:
    """A few Langevin steps away from the mode, where the mass is."""

    def step(phi, inputs):
        number, noise = inputs
        drift = jnp.nan_to_num(patient.drift(phi, patient.batch(number)), posinf=0.0, neginf=0.0)
        return phi + step_size * drift + math.sqrt(2 * step_size) * noise, None

    noise = jax.random.normal(jax.random.key(32), (steps, phi.size), phi.dtype)
    return jax.jit(lambda phi: jax.lax.scan(step, phi, (jnp.arange(steps), noise))[0])(phi)


def _noise_finding(curvature: float, noise: float) -> Finding:
    ratio = noise / curvature
    values = {"noise": noise, "curvature": curvature, "ratio": ratio}
    if ratio <= 1:
        message = f"gradient noise is small against the curvature ({ratio:.2g} of it)"
        return Finding("noise", "", "ok", message, values=values)
    return Finding(
        "noise", "", "warning", f"gradient noise dominates: {ratio:.3g} times the curvature, so noise sets the step size",
        "Use noise_correction=True, gradient=ib.gradients.control_variate(center=report.center) or svrg() "
        "(and check again with gradient=ib.gradients.svrg()), or a batch "
        f"{ratio:.3g} times as large.", values,
    )  # fmt: skip


def _conditioning(curvature: _Curvature, step_size: float) -> Finding:
    ratio = curvature.ratio
    assert ratio is not None
    steps = ratio / (step_size * curvature.largest)
    values = {"ratio": ratio, "steps": steps}
    message = f"the curvatures differ by a factor of {ratio:.2g}: about {steps:.2g} steps to forget a draw"
    if ratio < 100:
        return Finding("conditioning", "", "ok", message, values=values)
    remedy = "Use preconditioner=report.preconditioner with step_size=report.preconditioned_step_size."
    return Finding("conditioning", "", "warning", message, remedy, values)


def _in_a_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"
