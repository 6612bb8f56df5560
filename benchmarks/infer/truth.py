"""What is true of a posterior: mean, sd and three quantiles of every number, exactly, by quadrature or from reference draws.

A margin is an array of five numbers on its last axis: mean, sd, and the 5, 50 and 95% quantiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq, minimize

__all__ = ["PROBABILITIES", "Truth", "line", "of_draws", "of_grid", "of_law", "of_normals", "plane"]

PROBABILITIES = np.array([0.05, 0.5, 0.95])
DEEP = 35.0  # log densities below the highest that hold nothing: exp(-35) is 6e-16
FINE_LINE, FINE_PLANE, COARSE = 4_001, 241, 121  # points per axis of the last grid, and of those before


@dataclass(frozen=True)
class Truth:
    """Margins of every variable.

    Attributes:
        margins: by name, shaped like the variable with a last axis of five.
        error: the standard error of the means, in posterior sds: 0 where the truth is exact, that of the reference elsewhere.
    """

    margins: Mapping[str, np.ndarray]
    error: float = 0.0

    @property
    def mean(self) -> dict[str, np.ndarray]:
        return {name: margin[..., 0] for name, margin in self.margins.items()}

    @property
    def sd(self) -> dict[str, np.ndarray]:
        return {name: margin[..., 1] for name, margin in self.margins.items()}

    @property
    def quantiles(self) -> dict[str, np.ndarray]:
        return {name: margin[..., 2:] for name, margin in self.margins.items()}


def of_law(law: Any) -> np.ndarray:
    """The margins of a frozen distribution of SciPy, whose parameters may be arrays."""
    quantiles = np.stack([np.asarray(law.ppf(p), float) for p in PROBABILITIES], axis=-1)
    first = np.stack(np.broadcast_arrays(law.mean(), law.std()), axis=-1)
    return np.concatenate(np.broadcast_arrays(first[..., :1], first[..., 1:], *np.split(quantiles, 3, -1)), axis=-1)


def of_draws(draws: np.ndarray) -> np.ndarray:
    """The margins of draws, whose first axis is the draw."""
    draws = np.asarray(draws, float)
    return np.stack([draws.mean(axis=0), draws.std(axis=0), *np.quantile(draws, PROBABILITIES, axis=0)], axis=-1)


def of_grid(points: np.ndarray, density: np.ndarray) -> np.ndarray:
    """The margin of a density on a grid; it need not integrate to one."""
    steps = np.diff(points)
    mass = np.concatenate([[0.0], np.cumsum(0.5 * steps * (density[1:] + density[:-1]))])
    weights = np.zeros_like(points)
    weights[:-1] += 0.5 * steps
    weights[1:] += 0.5 * steps
    weights *= density / mass[-1]
    mean = weights @ points
    levels, rising = np.unique(mass / mass[-1], return_index=True)
    quantiles = PchipInterpolator(levels, points[rising])(PROBABILITIES)
    return np.array([mean, np.sqrt(weights @ (points - mean) ** 2), *quantiles])


def of_normals(weights: np.ndarray, means: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """The margin of a mixture of normals."""
    weights = weights / weights.sum()
    mean = weights @ means
    variance = weights @ (sds**2 + (means - mean) ** 2)
    ends = (means - 10 * sds).min(), (means + 10 * sds).max()
    quantiles = [brentq(lambda x, p=p: weights @ stats.norm.cdf(x, means, sds) - p, *ends) for p in PROBABILITIES]
    return np.array([mean, np.sqrt(variance), *quantiles])


def line(log_density: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> np.ndarray:
    """The margin of a log density of one variable on (low, high), which hold the support or all of its mass."""
    points = np.linspace(low, high, FINE_LINE)
    for _ in range(30):
        heights = log_density(points)
        inside = np.flatnonzero(heights > np.nanmax(heights) - DEEP)
        first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, len(points) - 1)
        if last - first > 0.7 * len(points):
            break
        points = np.linspace(points[first], points[last], FINE_LINE)
    return of_grid(points, np.exp(heights - np.nanmax(heights)))


def plane(
    log_density: Callable[[np.ndarray, np.ndarray], np.ndarray],
    first: tuple[float, float],
    second: tuple[float, float],
    fine: int = FINE_PLANE,
    whole: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The two margins of a log density of two variables.

    Args:
        log_density: of columns of the first variable, shape (n, 1), and rows of the second, shape (1, m): shape (n, m).
        first, second: the ends of each, which hold the support or all of the mass.
        fine: points per axis of the grid.
        whole: the grid spans all of that, because there are several modes; else it spans what lies round the highest.
    """
    ends = np.array([first, second], float)
    box = ends if whole else _round_the_mode(log_density, ends)
    points = [np.linspace(*own, fine) for own in box]
    heights = log_density(points[0][:, None], points[1][None, :])
    density = np.exp(heights - np.nanmax(heights))
    return tuple(of_grid(points[k], np.trapezoid(density, points[1 - k], axis=1 - k)) for k in (0, 1))


def _round_the_mode(log_density: Callable[[np.ndarray, np.ndarray], np.ndarray], ends: np.ndarray) -> np.ndarray:
    """A box that holds the mass: it grows from the mode, side by side, until nothing is left on its edges or it ends."""
    grid = [np.linspace(*own, COARSE)[1:-1] for own in ends]
    highest = np.unravel_index(np.nanargmax(log_density(grid[0][:, None], grid[1][None, :])), (COARSE - 2,) * 2)
    mode = np.array([grid[0][highest[0]], grid[1][highest[1]]])
    for _ in range(4):  # a simplex may be stuck
        mode = minimize(
            lambda x: -float(log_density(x[:1, None], x[1:, None])[0, 0]),
            mode,
            method="Nelder-Mead",
            bounds=ends,
            options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 2_000},
        ).x
    width = 1e-5 * np.ptp(ends, axis=1, keepdims=True) * np.array([[-1.0, 1.0]])
    for _ in range(200):
        box = np.clip(mode[:, None] + width, ends[:, :1], ends[:, 1:])
        points = [np.linspace(*own, 61) for own in box]
        heights = log_density(points[0][:, None], points[1][None, :])
        floor = np.nanmax(heights) - DEEP
        edges = np.array([[heights[0], heights[-1]], [heights[:, 0], heights[:, -1]]]).max(-1)
        grows = (edges > floor) & (box != ends)
        if not grows.any():
            return box
        width = np.where(grows, 1.3 * width, width)
    raise ValueError("no box holds the mass: the density is improper, or the ends are too far for it")
