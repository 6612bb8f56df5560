"""Margins of a posterior by importance sampling around its mode, at points of a scrambled Sobol sequence, in double precision.

Tall data make posteriors nearly normal, so weights are nearly even, and points that fill space evenly leave little error. What is left is
seen from several scramblings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import init_to_median
from numpyro.infer.util import initialize_model
from numpyro.primitives import Messenger
from scipy.optimize import minimize
from scipy.stats import norm, qmc

from benchmarks.infer.truth import PROBABILITIES

__all__ = ["Around", "counted", "weighted_rows"]

SCRAMBLINGS = 8
FEWEST, MOST, WORK = 1_024, 16_384, 2.5e8  # points of a scrambling; and rows that it may visit
GOOD = 0.006  # of the worst quantile, in sds: enough
WIDE = 0.5  # over the root of the numbers: how much wider than the posterior the points are, so that weights in the tails are bounded
PLATE = "rows"

Named = dict[str, np.ndarray]


def counted(data: Named) -> tuple[Named, np.ndarray]:
    """The rows that differ, in double precision where numbers are not whole, and how often each is there."""
    columns = np.concatenate([np.asarray(x, float).reshape(len(x), -1) for x in data.values()], axis=1)
    rows = np.ascontiguousarray(columns).view(np.dtype((np.void, columns.dtype.itemsize * columns.shape[1]))).ravel()
    _, first, counts = np.unique(rows, return_index=True, return_counts=True)
    double = {name: np.asarray(x, float) if x.dtype.kind == "f" else x for name, x in data.items()}
    return {name: x[first] for name, x in double.items()}, counts.astype(float)


def weighted_rows(model: Callable[..., None]) -> Callable[..., None]:
    """A model whose rows count as often as `counts` says."""

    def of_counts(counts: Any, **data: Any) -> None:
        with _Counts(counts):
            model(**data)

    return of_counts


class _Counts(Messenger):  # type: ignore[misc]  # NumPyro has no types
    def __init__(self, counts: Any):
        self.counts = counts
        super().__init__()

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and any(frame.name == PLATE for frame in msg["cond_indep_stack"]):
            msg["scale"] = self.counts


class Around:
    """A model around its mode, in unconstrained numbers; made and used with `jax.enable_x64`.

    Attributes:
        size: how many numbers.
        mode, covariance: of the Laplace approximation.
    """

    def __init__(self, model: Callable[..., None], data: dict[str, Any], starts: int = 3):
        self.model, self.data = model, {name: jnp.asarray(x) for name, x in data.items()}
        found = initialize_model(
            jax.random.split(jax.random.key(1), starts),
            model,
            init_strategy=init_to_median,
            dynamic_args=True,
            model_kwargs=self.data,
        )
        points = np.asarray(jax.vmap(lambda z: ravel_pytree(z)[0])(found.param_info.z))
        self.size = points.shape[1]
        self.tree = ravel_pytree(jax.tree.map(lambda x: x[0], found.param_info.z))[1]

        def potential(flat: Any, data: Any) -> Any:
            return found.potential_fn(**data)(self.tree(flat))

        def curved(flat: Any, data: Any) -> Any:
            slope = jax.grad(lambda flat: potential(flat, data))
            return jax.lax.map(lambda e: jax.jvp(slope, (flat,), (e,))[1], jnp.eye(self.size), batch_size=4)

        self._values = jax.jit(lambda flat, data: jax.lax.map(lambda x: potential(x, data), flat, batch_size=4))
        self._theta = jax.jit(jax.vmap(lambda flat, data: found.postprocess_fn(**data)(self.tree(flat)), (0, None)))
        both, hessian = jax.jit(jax.value_and_grad(potential)), jax.jit(curved)
        modes = [
            minimize(
                lambda x: tuple(np.asarray(y, float) for y in both(x, self.data)),
                point + 0.1 * np.random.default_rng(start).normal(size=self.size),
                jac=True,
                hess=lambda x: np.asarray(hessian(x, self.data)),
                method="trust-exact",
                options={"gtol": 1e-3, "maxiter": 100},
            )
            for start, point in enumerate(points)
        ]
        best = min(modes, key=lambda mode: float(mode.fun))
        self.mode = best.x
        self.covariance = np.linalg.inv(np.asarray(hessian(self.mode, self.data)))
        sds = np.sqrt(np.diag(self.covariance))
        self.found = sum(float(np.abs((mode.x - best.x) / sds).max()) < 0.1 for mode in modes)

    def starts(self, count: int, wide: float) -> Any:
        """Starts of chains, so many times as wide as the Laplace approximation."""
        normal = np.random.default_rng(0).normal(size=(count, self.size))
        return jax.vmap(self.tree)(jnp.asarray(self.mode + wide * normal @ np.linalg.cholesky(self.covariance).T))

    def margins(self) -> dict[str, Any]:
        """Mean, sd and quantiles of every variable on its own scale, with what weights and scramblings say of their errors."""
        center, covariance = self.mode, self.covariance
        for first in range(2):  # the posterior's own mean and covariance are nearer than the mode's
            flat, log_weights = self._points(center, covariance, 2 * FEWEST, seed=100 + first)
            weights = _normalised(log_weights)
            if 1 / (weights**2).sum() < 5 * self.size:
                break  # too few to tell
            center = weights @ flat
            covariance = (flat - center).T @ ((flat - center) * weights[:, None])
        most = max(FEWEST, min(MOST, WORK / len(next(iter(self.data.values())))))
        points = FEWEST
        while True:
            found = self._said(center, covariance, points)
            if found["quantile_error"] < GOOD or 2 * points > most:
                return {**found, "starts at the mode": self.found}
            points *= 2

    def _said(self, center: np.ndarray, covariance: np.ndarray, points: int) -> dict[str, Any]:
        found = [self._points(center, covariance, points, seed) for seed in range(SCRAMBLINGS)]
        flat, log_weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        weights = _normalised(log_weights)
        theta = {name: np.asarray(x, float) for name, x in self._theta(jnp.asarray(flat), self.data).items()}
        margins = {name: _margin(x, weights) for name, x in theta.items()}
        errors = []
        for name, x in theta.items():
            each = [slice(k * points, (k + 1) * points) for k in range(SCRAMBLINGS)]
            own = np.stack([_margin(x[part], _normalised(log_weights[part])) for part in each])
            with np.errstate(all="ignore"):
                spread = own.std(axis=0, ddof=1) / np.sqrt(SCRAMBLINGS) / margins[name][..., 1:2]
            errors.append(spread[margins[name][..., 1] > 0].reshape(-1, 5))
        worst = np.concatenate(errors).max(axis=0)
        return {
            "error": round(float(worst[0]), 6),
            "sd_error": round(float(worst[1]), 6),
            "quantile_error": round(float(worst[2:].max()), 6),
            "largest weight": round(float(weights.max() * len(weights)), 1),
            "efficiency": round(float(1 / (weights**2).sum() / len(weights)), 4),
            "points": len(weights),
            "margins": margins,
        }

    def _points(
        self, center: np.ndarray, covariance: np.ndarray, count: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        uniform = qmc.Sobol(self.size, scramble=True, rng=np.random.default_rng(seed)).random(count)
        wide = 1 + WIDE / np.sqrt(self.size)
        z = wide * norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-12))
        flat = center + z @ np.linalg.cholesky(0.5 * (covariance + covariance.T)).T
        density = -np.asarray(self._values(jnp.asarray(flat), self.data))
        return flat, density + 0.5 * (z**2).sum(axis=1) / wide**2


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _margin(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of points with weights, whose first axis is the point."""
    flat = x.reshape(len(x), -1)
    mean = weights @ flat
    sd = np.sqrt(np.maximum(weights @ (flat - mean) ** 2, 0.0))
    quantiles = []
    for column in flat.T:
        order = np.argsort(column)
        middle = np.cumsum(weights[order]) - 0.5 * weights[order]
        quantiles.append(np.interp(PROBABILITIES, middle, column[order]))
    return np.concatenate([mean[:, None], sd[:, None], np.array(quantiles)], axis=1).reshape(*x.shape[1:], 5)
