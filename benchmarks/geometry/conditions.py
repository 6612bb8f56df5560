"""Gradients per effective draw against the condition number: regressions, each in every metric with every gradient.

Of each cell the step size is the largest at which no linear function of the posterior has an sd that is off by more than 5%, by the exact
recursion of the kernel on the Hessian and on the noise that this gradient has, and at most 0.5 over the largest curvature. The recursion
also says how many steps make an effective draw of the slowest linear function. Where that many steps can be afforded the chain runs, and
what it does stands beside: the effective draws of the worst principal axis, and the sds over the exact ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.linalg import eigh

import inbounds as ib
from inbounds.kernels.prediction import UnstableError, predict
from inbounds.sampling.convergence import ess_of_means

METRICS = ("none", "diagonal", "low rank", "dense")
GRADIENTS = {
    "minibatch": 1,
    "control_variate": 2,
    "taylor": 3,
}  # how many plain gradients of the minibatch a step takes
CONDITIONS = (1e1, 1e3, 1e5, 1e7)
SHAPES = ((5, 10_000), (50, 100_000), (20, 1_000_000), (200, 100_000))  # dimensions, rows
FEWER = {20: (1e1, 1e7), 200: (1e1, 1e7)}  # condition numbers of shapes that take long
RANK = 10
TOLERATED, MOST_STEP = 0.05, 0.5
LOOKED_AT = 20_000  # rows of which the covariance of the gradient is measured
POINTS = 8  # draws of the posterior, at which it is
CHAINS, LEAST, EFFECTIVE = (
    4,
    2_000,
    150,
)  # a run has so many steps at least, or is for so many effective draws per chain,
AFFORDED = 20_000, 2e10  # if it takes no more steps and looks at no more numbers than these


class Problem(NamedTuple):
    """A regression on features with a given condition number, in axes that are turned against the coordinates.

    Args:
        family: "linear" or "logistic".
        posterior: with a prior that says next to nothing.
        mode: of the posterior.
        hessian: there.
        batch_size: of its runs.
    """

    family: str
    posterior: ib.Posterior
    mode: np.ndarray
    hessian: np.ndarray
    batch_size: int


def problem(family: str, size: int, rows: int, condition: float) -> Problem:
    """Linear predictors have sd 1, whatever the condition number."""
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.normal(size=(size, size)))
    spread = np.geomspace(1.0, condition**-0.5, size)
    x = ((rng.normal(size=(rows, size)) * spread) @ axes.T).astype(np.float32)
    true = axes @ (rng.normal(size=size) / spread) / np.sqrt(size)
    linear = x.astype(float) @ true
    noise, chance = rng.normal(size=rows), 1 / (1 + np.exp(-linear))
    y = (linear + noise if family == "linear" else rng.random(rows) < chance).astype(np.float32)

    def log_likelihood(theta: Any, batch: Any) -> jax.Array:
        found = batch["x"] @ theta["w"]
        if family == "linear":
            return -0.5 * jnp.square(batch["y"] - found)
        return batch["y"] * found - jnp.maximum(found, 0) - jnp.log1p(jnp.exp(-jnp.abs(found)))

    prior = dist.Normal(0.0, 1e6).expand([size]).to_event(1)
    posterior = ib.Posterior({"w": prior}, log_likelihood, {"x": x, "y": y})
    mode, hessian = _mode(family, x.astype(float), y.astype(float))
    # The point that control variates and metrics have is this one: it is rounded before anything is made of it.
    return Problem(family, posterior, mode.astype(np.float32), hessian, max(100, min(1_000, rows // 100)))


def _mode(family: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By Newton's method on all the rows, and the Hessian there."""
    w = np.zeros(x.shape[1])
    for _ in range(1 if family == "linear" else 12):
        score, weight = _score(family, x @ w, y)
        hessian = (x * weight[:, None]).T @ x + 1e-12 * np.eye(len(w))
        w += np.linalg.solve(hessian, x.T @ score)
    return w, hessian


def _score(family: str, found: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Derivative of a row's log likelihood with respect to its linear predictor, and minus the second one."""
    if family == "linear":
        return y - found, np.ones_like(found)
    chance = 1 / (1 + np.exp(-found))
    return y - chance, chance * (1 - chance)


def noise_of(given: Problem, gradient: str) -> np.ndarray:
    """Covariance of the gradient of a minibatch, averaged over the Gaussian at the mode."""
    rng, data = np.random.default_rng(1), given.posterior.data
    total = len(data["y"])
    some = rng.permutation(total)[:LOOKED_AT]
    x, y = data["x"][some].astype(float), data["y"][some].astype(float)
    root = np.linalg.inv(np.linalg.cholesky(given.hessian)).T
    covariance = np.zeros_like(given.hessian)
    for _ in range(POINTS):
        moved = root @ rng.normal(size=len(root))
        at_mode, weight = _score(given.family, x @ given.mode, y)
        here, _ = _score(given.family, x @ (given.mode + moved), y)
        of_rows = (
            here - {"minibatch": 0.0, "control_variate": at_mode, "taylor": at_mode - weight * (x @ moved)}[gradient]
        )
        covariance += np.cov((x * of_rows[:, None]).T) / POINTS
    return total**2 / given.batch_size * covariance


class Move(NamedTuple):
    """How a kernel moves.

    Args:
        kernel: the kernel.
        factor: L, from what moves to the coefficients.
        scale: of its preconditioner.
    """

    kernel: ib.Kernel
    factor: np.ndarray
    scale: np.ndarray


def move(given: Problem, metric: str, gradient: str) -> Move:
    """Corrected for noise where that is right, which is in the dense metric."""
    posterior, size, center = given.posterior, len(given.mode), {"w": given.mode}
    options = {} if gradient == "minibatch" else {"center": center}
    estimator = getattr(ib.gradients, gradient)(**options)
    identity, ones = np.eye(size), np.ones(size)
    if metric == "none":
        return Move(ib.leimkuhler_matthews(posterior, gradient=estimator), identity, ones)
    if metric == "diagonal":
        scale = 1 / np.diag(given.hessian)
        kernel = ib.leimkuhler_matthews(posterior, gradient=estimator, preconditioner={"w": scale.astype(np.float32)})
        return Move(kernel, identity, scale)
    if metric == "low rank":
        flat = ib.metrics.low_rank(posterior, center, rank=min(RANK, size - 1))
        kernel = ib.leimkuhler_matthews(posterior, gradient=estimator, metric=flat)
        turned = identity + (flat.vectors * (flat.stretches - 1)) @ flat.vectors.T
        return Move(kernel, flat.scales[:, None] * turned, ones)
    dense = ib.metrics.laplace(posterior, center, gradient=estimator, batch_size=given.batch_size)
    kernel = ib.leimkuhler_matthews(posterior, gradient=estimator, metric=dense, noise_correction=True)
    return Move(kernel, dense.factor, ones)


def measure(given: Problem, metric: str, gradient: str) -> dict[str, Any]:
    """One row of the table."""
    size, rows = len(given.mode), len(given.posterior.data["y"])
    moves = move(given, metric, gradient)
    hessian = moves.factor.T @ given.hessian @ moves.factor
    noise = moves.factor.T @ noise_of(given, gradient) @ moves.factor
    step_size, time = _largest_step(moves, hessian, noise)
    found = {
        "family": given.family, "dimensions": size, "rows": rows, "batch_size": given.batch_size, "metric": metric,
        "gradient": gradient, "step_size": step_size, "steps": time, "gradients": time * GRADIENTS[gradient],
    }  # fmt: skip
    return found | _run(given, moves, step_size, time, size * given.batch_size * GRADIENTS[gradient])


def _largest_step(moves: Move, hessian: np.ndarray, noise: np.ndarray) -> tuple[float, float]:
    """(step size, steps per effective draw)."""
    root = np.sqrt(moves.scale)
    most = step_size = float(MOST_STEP / np.linalg.eigvalsh(root[:, None] * hessian * root)[-1])
    exact = np.linalg.inv(hessian)

    def fine(step_size: float) -> float | None:
        try:
            found = predict(moves.kernel, step_size, hessian, noise, moves.scale)
        except UnstableError:
            return None
        ratios = eigh(found.covariance, exact, eigvals_only=True)
        if np.max(np.abs(np.sqrt(np.maximum(ratios, 0)) - 1)) > TOLERATED:
            return None
        return found.autocorrelation_time

    while (time := fine(step_size)) is None:
        step_size /= 4
    for factor in (2.0, 2**0.5, 2**0.25):
        if step_size * factor <= most and (better := fine(step_size * factor)) is not None:
            step_size, time = step_size * factor, better
    return step_size, float(time)


def _run(given: Problem, moves: Move, step_size: float, time: float, numbers: float) -> dict[str, Any]:
    """What a run shows along the principal axes, where it can be afforded."""
    steps = max(LEAST, int(EFFECTIVE * time))
    if steps > AFFORDED[0] or steps * CHAINS * numbers > AFFORDED[1]:
        return {}
    thin = max(1, int(time / 4))
    burn_in = max(50, int(5 * time))
    draws = ib.sample(
        moves.kernel, step_size, burn_in + steps, burn_in=burn_in, thin=thin, batch_size=given.batch_size, num_chains=CHAINS,
        init={"w": given.mode}, batching="replacement", progress=False,
    )  # fmt: skip
    values, axes = np.linalg.eigh(given.hessian)
    along = (np.asarray(draws.theta["w"], float) - given.mode) @ axes * np.sqrt(values)
    ratio = along.std(axis=(0, 1))
    ess = np.minimum(ess_of_means(along), CHAINS * steps)
    run = {
        "steps": CHAINS * steps / ess.min(), "middle": CHAINS * steps / np.median(ess), "ess": ess.min(),
        "sd": np.sqrt(np.mean(ratio**2)), "worst_sd": ratio[np.argmax(np.abs(np.log(ratio)))],
    }  # fmt: skip
    return {"run": {name: float(value) for name, value in run.items()}}


def table() -> Iterator[dict[str, Any]]:
    """All rows, thinned to what two cores can do."""
    for size, rows in SHAPES:
        for family in ("linear", "logistic"):
            for condition in FEWER.get(size, CONDITIONS):
                given = problem(family, size, rows, condition)
                for metric in METRICS:
                    for gradient in GRADIENTS:
                        yield {"condition": condition} | measure(given, metric, gradient)
