"""A thousand chains at every step size: how many leave, and how far the variances of the others are off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from benchmarks.glmm.models import GLOBALS, data, model

BATCH = 10  # groups; of the rows of as many, where effects are sampled
BEYOND = 100.0  # a mean or an sd of effects: the posterior has both within 2
STEP_SIZES = tuple(10 ** (-6 + 0.5 * i) for i in range(9))
IN_METRIC = tuple(10 ** (-4 + 0.5 * i) for i in range(9))  # the curvature is 1 there


class Move(NamedTuple):
    """How a chain moves; a part of what a kernel says."""

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Any, Any], Any]
    position: Callable[[Any], Any]


class Contestant(NamedTuple):
    """A way to sample a family.

    Args:
        name: as the page has it.
        integrated: whether it samples the density without effects.
        make: from the posterior to the move.
        step_sizes: that are tried.
    """

    name: str
    integrated: bool
    make: Callable[[Any], Move]
    step_sizes: tuple[float, ...] = STEP_SIZES


def contestants() -> Iterator[Contestant]:
    """Theirs as far as we know it, the same with maps that are Lipschitz, and what the library recommends."""
    maps = {"exp": "sigmoid", "softplus": "sigmoid", "icll": "sigmoid", "integrated_probit": "probit"}
    for positive, interval in maps.items():
        transforms = {"scale": positive, "correlation": interval}
        yield Contestant(f"SGLD, {positive}", True, partial(_sgld, transforms=transforms))
        yield Contestant(f"SGLD, {positive}", False, partial(_sgld, transforms=transforms))
    for positive, interval in (("exp", "sigmoid"), ("integrated_probit", "probit")):
        transforms = {"scale": positive, "correlation": interval}
        yield Contestant(
            f"SGLD, {positive}, noise corrected", True, partial(_sgld, transforms=transforms, noise_correction=True)
        )
    yield Contestant("mirror Langevin, entropy", True, _mirror)
    yield Contestant("recommended", True, _recommended, IN_METRIC)


def _sgld(posterior: Any, **options: Any) -> Move:
    return _of_kernel(ib.sgld(posterior, **options))


def _recommended(posterior: Any) -> Move:
    center = ib.check(posterior, batch_size=BATCH, show=False).center
    gradient = ib.gradients.taylor(center=center)
    metric = ib.metrics.laplace(posterior, center, gradient=gradient, batch_size=BATCH)
    return _of_kernel(ib.leimkuhler_matthews(posterior, metric=metric, gradient=gradient, noise_correction=True))


def _of_kernel(kernel: Any) -> Move:
    return Move(kernel.init, lambda *args: kernel.step(*args)[0], kernel.position)


def _mirror(posterior: Any) -> Move:
    """Euler's scheme for mirror Langevin dynamics whose mirror maps are entropies: of the half line and of the interval.

    With eta = h'(theta): d eta = grad log pi(theta) dt + sqrt(2 h''(theta)) dW. The stationary density is pi.
    """
    to = {"mean": lambda m: m, "scale": jnp.log, "correlation": lambda c: jnp.arctanh(c) / 2}
    back = {"mean": lambda m: m, "scale": jnp.exp, "correlation": lambda e: jnp.tanh(2 * e)}
    curvature = {"mean": jnp.ones_like, "scale": lambda s: 1 / s, "correlation": lambda c: 0.5 / ((1 - c) * (1 + c))}

    def log_density(theta: Any, batch: Any) -> jax.Array:
        size = len(jax.tree.leaves(batch)[0])
        return posterior.log_prior(theta) + posterior.num_data / size * jnp.sum(posterior.log_likelihood(theta, batch))

    def step(key: Any, eta: Any, batch: Any, step_size: Any) -> Any:
        theta = {name: back[name](eta[name]) for name in eta}
        drift = jax.grad(log_density)(theta, batch)
        keys = dict(zip(eta, jax.random.split(key, len(eta)), strict=True))
        noise = {name: jax.random.normal(keys[name], eta[name].shape) for name in eta}
        return {
            name: eta[name]
            + step_size * drift[name]
            + jnp.sqrt(2 * step_size * curvature[name](theta[name])) * noise[name]
            for name in eta
        }

    return Move(
        lambda theta: {name: to[name](theta[name]) for name in GLOBALS},
        step,
        lambda eta: {name: back[name](eta[name]) for name in eta},
    )


class Course(NamedTuple):
    """Of one chain."""

    state: Any
    finite: jax.Array
    farthest: jax.Array  # the largest mean or sd
    sums: Any
    squares: Any


def run(
    contestant: Contestant, family: str, reference: dict[str, np.ndarray], chains: int, steps: int
) -> list[dict[str, Any]]:
    """One row per step size."""
    joint = ib.from_numpyro(model(family), *data(family))
    posterior = joint.integrated() if contestant.integrated else joint
    move = contestant.make(posterior)
    starts = _starts(reference, chains, posterior)
    rows = jax.tree.map(jnp.asarray, posterior.data)
    per_step = BATCH if contestant.integrated else BATCH * posterior.num_data // 500

    def one(key: Any, start: Any, step_size: Any) -> tuple[jax.Array, jax.Array, Any, Any]:
        def step(course: Course, turn: Any) -> tuple[Course, None]:
            choose, push = jax.random.split(jax.random.fold_in(key, turn))
            places = jax.random.randint(choose, (per_step,), 0, posterior.num_data)
            state = move.step(push, course.state, jax.tree.map(lambda leaf: leaf[places], rows), step_size)
            theta = {name: move.position(state)[name] for name in GLOBALS}
            finite = course.finite & jnp.all(
                jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves((state, theta))])
            )
            size = jnp.maximum(jnp.abs(theta["mean"]).max(), theta["scale"].max())
            kept = jnp.where(turn >= steps // 2, 1.0, 0.0)
            sums = jax.tree.map(lambda s, x: s + kept * x, course.sums, theta)
            squares = jax.tree.map(lambda s, x: s + kept * x**2, course.squares, theta)
            return Course(state, finite, jnp.maximum(course.farthest, size), sums, squares), None

        nothing = jax.tree.map(jnp.zeros_like, {name: start[name] for name in GLOBALS})
        begin = Course(move.init(start), jnp.asarray(True), jnp.zeros(()), nothing, nothing)
        end, _ = jax.lax.scan(step, begin, jnp.arange(steps))
        return end.finite, end.farthest, end.sums, end.squares

    keys = jax.random.split(jax.random.key(1), chains)
    of_chains = jax.vmap(one, in_axes=(0, 0, None))
    found = jax.jit(jax.vmap(of_chains, in_axes=(None, None, 0)))(keys, starts, jnp.asarray(contestant.step_sizes))
    judged = partial(_judged, reference=reference, kept=steps - steps // 2)
    said = {"family": family, "contestant": contestant.name, "integrated": contestant.integrated}
    said |= {"chains": chains, "steps": steps, "batch": BATCH}
    return [
        said | {"step_size": step_size} | judged(jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), found))
        for i, step_size in enumerate(contestant.step_sizes)
    ]


def _starts(reference: dict[str, np.ndarray], chains: int, posterior: Any) -> dict[str, Any]:
    """Half of the chains start at standard normals in logs of sds and the like, half of them at draws of the posterior."""
    generator = np.random.default_rng(2)
    anywhere, half = chains // 2, chains - chains // 2
    some = generator.choice(len(reference["correlation"]), half)
    free = {name: generator.normal(size=(anywhere, *reference[name].shape[1:])) for name in GLOBALS}
    free = {"mean": free["mean"], "scale": np.exp(free["scale"]), "correlation": np.tanh(free["correlation"])}
    starts = {name: np.concatenate([free[name], reference[name][some]]).astype(np.float32) for name in GLOBALS}
    if "effect" in posterior.supports:
        units = generator.normal(size=(chains, 500, 2)).astype(np.float32)
        c = starts["correlation"][:, None]
        mixed = np.stack([units[..., 0], c * units[..., 0] + np.sqrt(1 - c**2) * units[..., 1]], axis=-1)
        starts["effect"] = starts["mean"][:, None] + starts["scale"][:, None] * mixed
    return starts


def _judged(found: tuple[Any, ...], reference: dict[str, np.ndarray], kept: int) -> dict[str, Any]:
    """How many chains left; of those that started in the posterior and stayed, how far means and sds of the sds are off."""
    finite, farthest, sums, squares = found
    stayed = finite & (farthest < BEYOND)
    half = len(finite) // 2
    inside = stayed & (np.arange(len(finite)) >= half)
    row: dict[str, Any] = {"non-finite": int(np.sum(~finite)), "beyond": int(np.sum(finite & ~stayed))}
    row["left of those that start anywhere"] = int(np.sum(~stayed[:half]))
    for name in ("scale", "correlation"):
        exact = reference[name].reshape(len(reference[name]), -1)
        s, q = (np.asarray(x[name], float).reshape(len(finite), -1)[inside] / kept for x in (sums, squares))
        if not len(s):
            continue
        mean, sd = s.mean(axis=0), np.sqrt(np.maximum(q.mean(axis=0) - s.mean(axis=0) ** 2, 0.0))
        row[f"{name}: mean off by, in sds"] = _rounded((mean - exact.mean(axis=0)) / exact.std(axis=0))
        row[f"{name}: sd over the exact one"] = _rounded(sd / exact.std(axis=0))
    return row


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.3g}") if math.isfinite(value) else math.inf for value in values]
