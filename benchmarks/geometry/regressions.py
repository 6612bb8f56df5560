"""Three regressions in one posterior, on 2, 10 and 100 correlated features: its law is known, and one compilation serves them all."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import inbounds as ib
from inbounds.kernels.prediction import predict

SIZES = (2, 10, 100)
ROWS = 2_000


class Law(NamedTuple):
    """What is known of the coefficients of all three, one after the other.

    Args:
        mean, covariance: of the posterior.
        hessian: of minus its log.
        noise: what minibatches of one row have as the covariance of their gradient, on average over the posterior, by kind of gradient.
    """

    mean: np.ndarray
    covariance: np.ndarray
    hessian: np.ndarray
    noise: dict[str, np.ndarray]


@functools.cache
def regressions(correlation: float = 0.9) -> tuple[ib.Posterior, Law]:
    """(posterior, law) of responses with noise of sd 1, with nearly flat priors."""
    rng = np.random.default_rng(0)
    data, priors = {}, {}
    for size in SIZES:
        shared = rng.normal(size=(ROWS, 1))
        x = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.normal(size=(ROWS, size))
        data[f"x{size:03}"] = x.astype(np.float32)
        data[f"y{size:03}"] = (x @ rng.normal(size=size) + rng.normal(size=ROWS)).astype(np.float32)
        priors[f"w{size:03}"] = dist.Normal(0.0, 1e3).expand([size]).to_event(1)

    def log_likelihood(theta, batch):
        return sum(
            -0.5 * jnp.square(batch[f"y{size:03}"] - batch[f"x{size:03}"] @ theta[f"w{size:03}"]) for size in SIZES
        )

    return ib.Posterior(priors, log_likelihood, data), _law(data)


def _law(data: dict[str, np.ndarray]) -> Law:
    total = sum(SIZES)
    mean, hessian, residuals, spread = np.zeros(total), np.zeros((total, total)), [], []
    for size, start in zip(SIZES, np.cumsum((0, *SIZES)), strict=False):
        own = slice(start, start + size)
        x, y = (data[f"{name}{size:03}"].astype(float) for name in "xy")
        hessian[own, own] = x.T @ x + 1e-6 * np.eye(size)
        covariance = np.linalg.inv(hessian[own, own])
        mean[own] = covariance @ x.T @ y
        residuals.append(x * (y - x @ mean[own])[:, None])
        spread.append(np.sqrt(np.sum((x @ covariance) * x, axis=1))[:, None] * x)
    # Of a row's gradient: that at the mean, and what the draws' distance from it adds, where that is of the same regression.
    at_mean = np.concatenate(residuals, axis=1)
    around = np.zeros((total, total))
    for size, start, each in zip(SIZES, np.cumsum((0, *SIZES)), spread, strict=False):
        around[start : start + size, start : start + size] = each.T @ each
    of_differences = ROWS * around - hessian
    noise = {
        "minibatch": ROWS * at_mean.T @ at_mean + of_differences,
        "control_variate": of_differences,
        "svrg": 2 * of_differences,  # from another draw
        "taylor": np.zeros((total, total)),
    }
    return Law(mean, np.linalg.inv(hessian), hessian, noise)


def flat(draws: ib.Draws) -> np.ndarray:
    """(chain, draw, coefficient)."""
    return np.concatenate([np.asarray(draws.theta[f"w{size:03}"], float) for size in SIZES], axis=2)


class Found(NamedTuple):
    """The draws of one regression against a law, in units of their Monte Carlo errors.

    Args:
        mean, sd, correlation: the largest error of all the numbers.
        overall: of the mean variance along the principal axes.
        sd_error: the mean relative error of an sd along these axes, as a share.
    """

    mean: float
    sd: float
    correlation: float
    overall: float
    sd_error: float


def compare(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray, time: float) -> dict[int, Found]:
    """Each regression's draws against a Gaussian law, where `time` steps make one effective draw."""
    effective = draws.shape[0] * draws.shape[1] / time
    found = {}
    for size, start in zip(SIZES, np.cumsum((0, *SIZES)), strict=False):
        own = slice(start, start + size)
        x, exact = draws[..., own].reshape(-1, size) - mean[own], covariance[own, own]
        sd, got = np.sqrt(np.diag(exact)), np.cov(x.T)
        ratio = np.sqrt(np.diag(got)) / sd
        correlations = exact / np.outer(sd, sd)
        apart = (got / np.outer(sd * ratio, sd * ratio) - correlations)[np.triu_indices(size, 1)]
        error = ((1 - correlations**2) / np.sqrt(effective))[np.triu_indices(size, 1)]
        variance = np.trace(np.linalg.solve(exact, got)) / size
        found[size] = Found(
            mean=float(np.max(np.abs(x.mean(axis=0)) / sd) * np.sqrt(effective)),
            sd=float(np.max(np.abs(ratio - 1)) * np.sqrt(2 * effective)),
            correlation=float(np.max(np.abs(apart) / error)),
            overall=float((variance - 1) * np.sqrt(size * effective / 2)),
            sd_error=float(np.sqrt(variance) - 1),
        )
    return found


def factor_of(metric: Any) -> np.ndarray:
    """L, from what moves to the coefficients of all three; the identity without a metric."""
    if metric is None:
        return np.eye(sum(SIZES))
    with jax.enable_x64(True):
        like = metric.from_proxy(jax.tree.map(jnp.asarray, metric.center))

        def move(z: jax.Array) -> jax.Array:
            return ib.trees.ravel(metric.to_proxy(ib.trees.cut_like(like, z)))

        units = jnp.concatenate([jnp.eye(sum(SIZES)), jnp.zeros((1, sum(SIZES)))])
        moved = np.asarray(jax.vmap(move)(units))
    return (moved[:-1] - moved[-1]).T


def law_of(kernel: ib.Kernel, metric: Any, step_size: float, noise: np.ndarray) -> tuple[np.ndarray, float]:
    """The covariance that a kernel settles in on these regressions, and how many steps make an effective draw, by its recursion."""
    _, law = regressions()
    factor = factor_of(metric)
    predicted = predict(kernel, step_size, factor.T @ law.hessian @ factor, factor.T @ noise @ factor)
    return factor @ predicted.covariance @ factor.T, predicted.autocorrelation_time


def center() -> dict[str, np.ndarray]:
    """The mean, as a tree."""
    _, law = regressions()
    parts = np.split(law.mean, np.cumsum(SIZES)[:-1])
    return {f"w{size:03}": part.astype(np.float32) for size, part in zip(SIZES, parts, strict=True)}


def gradient(name: str) -> Any:
    """One of those that `Law.noise` names."""
    options = {"minibatch": {}, "svrg": {"every": 200}}.get(name, {"center": center()})
    return getattr(ib.gradients, name)(**options)


def metric(name: str, gradient: Any, batch_size: int) -> Any:
    """One of those that are compared; None for "none"."""
    posterior, law = regressions()
    point = center()
    if name == "dense":
        return ib.metrics.laplace(posterior, point, gradient=gradient, batch_size=batch_size)
    if name == "from draws":
        rng = np.random.default_rng(1)
        numbers = rng.multivariate_normal(law.mean, law.covariance, size=(4, 1_000)).astype(np.float32)
        parts = np.split(numbers, np.cumsum(SIZES)[:-1], axis=2)
        phi = {f"w{size:03}": part for size, part in zip(SIZES, parts, strict=True)}
        return ib.metrics.from_draws(posterior, phi, gradient=gradient, batch_size=batch_size)
    if name == "low rank":
        return ib.metrics.low_rank(posterior, point, rank=6)
    return ib.metrics.per_row(posterior, point, []) if name == "per row" else None
