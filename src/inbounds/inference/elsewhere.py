r"""Mass elsewhere: other modes, and mass far outside of the Gaussian at the mode that was found.

Chains that start around one mode never see what is far away, and agree with each other. So points at all distances from the mode, and draws
of the prior, are looked at before. Along a ray from the mode of a log-concave density its height only falls. Where it rises again behind a
valley, a search begins for another mode. And points of a wide Gaussian that have more mass than the Gaussian at the mode gives them are
starts of chains. A part of the data shows all this.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from inbounds.exact import flat
from inbounds.inference.mode import Look, Mode, Surface, newton
from inbounds.metrics._reference import whitening
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree

__all__ = ["Elsewhere", "Rival", "look_elsewhere"]

SCALES = 2.0 ** np.arange(1, 11)  # posterior sds of the Gaussians whose points are looked at,
POINTS = 8  # and how many of each
PRIOR_DRAWS = 32
RAY = 2.0 ** -np.arange(12)  # of the way to a point, where the height is looked at
VALLEY = 1.0  # log density by which it has to rise again
SEARCHES = 8  # for other modes, at most
SEARCH_STEPS = 60
APART = 4.0  # posterior sds between two modes that are two
OUTSIDE = 5.0  # sds beyond the square root of the dimension, where a Gaussian has nothing
HEAVY = -7.0  # log mass, over that of the mode, from which on it counts
FAR_STARTS = 2


class Rival(NamedTuple):
    """Another mode of the proxy.

    Attributes:
        theta: where it is.
        log_mass: of the Gaussian there, over that of the mode it was compared with.
        distance: between the two, in posterior sds of the latter.
    """

    theta: PyTree
    log_mass: float
    distance: float


class Elsewhere(NamedTuple):
    """What was found away from a mode.

    Attributes:
        rivals: other modes that have mass, the heaviest first.
        far: flat proxies of points with mass far outside of the Gaussian at the mode.
        whole: whether there was time to look.
    """

    rivals: list[Rival]
    far: list[np.ndarray]
    whole: bool = True


def look_elsewhere(posterior: Posterior, space: Space, mode: Mode, *, seed: int) -> Elsewhere:
    """Other modes and far mass.

    Args:
        posterior: what is sampled.
        space: how it is kept in bounds.
        mode: the one that was found, with its Hessian.
        seed: of the points.
    """
    surface = Surface(posterior, space, mode.theta)
    part = next(iter(surface.parts(seed)), None)
    look = partial(surface.look, part=part)
    center = flat(mode.phi)
    if part is not None:  # the mode of the same part of the data
        center, _, _ = newton(look, center, SEARCH_STEPS)
    here = look(center)
    try:
        white = whitening(here.hessian, surface.names())
    except ValueError:
        return Elsewhere([], [])
    generator = np.random.default_rng(seed)
    z = np.concatenate([s * generator.normal(size=(POINTS, surface.dimension)) for s in SCALES])
    points = np.concatenate([center + z @ white.T, _of_prior(posterior, surface, seed)])
    rays = center + RAY[:, None, None] * (points - center)
    heights = here.value - surface.values(rays.reshape(-1, surface.dimension), part).reshape(len(RAY), -1)
    heights = np.where(np.isfinite(heights), heights, -np.inf)  # log density over that of the mode
    far = _far(z, heights[0, : len(z)], generator)
    shifted = flat(mode.phi) - center
    return Elsewhere(
        _rivals(look, surface, center, here, _behind_valleys(rays, heights)),
        [points[i] + shifted for i in far],
    )


def _of_prior(posterior: Posterior, surface: Surface, seed: int) -> np.ndarray:
    """The proxies of draws of the prior, where it has any."""
    draws = posterior.prior_draws(jax.random.key(seed), PRIOR_DRAWS)
    if draws is None:
        return np.zeros((0, surface.dimension))
    phis = surface.phis_of(draws)
    return np.asarray(phis[np.isfinite(phis).all(axis=1)])


def _far(z: np.ndarray, heights: np.ndarray, generator: np.random.Generator) -> list[int]:
    """Some of the points z outside of the Gaussian at the mode, in proportion to the mass that they stand for."""
    size = z.shape[1]
    scales = np.repeat(SCALES, POINTS)
    squares = np.sum(z**2, axis=1)
    log_mass = heights + squares / (2 * scales**2) + size * np.log(scales)  # each stands for an eighth of its scale
    log_mass = np.where(np.sqrt(squares) > math.sqrt(size) + OUTSIDE, log_mass, -np.inf)
    by_scale = np.logaddexp.reduce(log_mass.reshape(len(SCALES), POINTS), axis=1) - math.log(POINTS)
    if not np.max(by_scale) > HEAVY:
        return []
    weights = np.exp(log_mass - np.max(log_mass))
    count = min(FAR_STARTS, int(np.count_nonzero(weights > 1e-3)))
    return [int(i) for i in generator.choice(len(z), size=count, replace=False, p=weights / weights.sum())]


def _behind_valleys(rays: np.ndarray, heights: np.ndarray) -> list[np.ndarray]:
    """Of each ray the highest point that a valley parts from the mode, the highest of all first."""
    outwards, up = rays[::-1], heights[::-1]
    lowest_before = np.minimum.accumulate(np.minimum(up, 0.0), axis=0)
    lowest_before = np.concatenate([np.zeros((1, up.shape[1])), lowest_before[:-1]])
    behind = np.where(up > lowest_before + VALLEY, up, -np.inf)
    best = np.argmax(behind, axis=0)
    ranked = sorted(range(up.shape[1]), key=lambda j: -behind[best[j], j])
    return [outwards[best[j], j] for j in ranked if np.isfinite(behind[best[j], j])]


def _rivals(
    look: partial[Look], surface: Surface, center: np.ndarray, here: Look, begins: list[np.ndarray]
) -> list[Rival]:
    """The modes that searches from some points come to, each once."""
    found: list[tuple[np.ndarray, Look]] = [(center, here)]
    searched = 0
    for begin in begins:
        if searched == SEARCHES:
            break
        if any(_distance(begin, phi, there) < APART for phi, there in found[1:]):
            continue
        searched += 1
        phi, there, why = newton(look, begin, SEARCH_STEPS)
        if why or any(min(_distance(phi, x, at) for at in (seen, there)) < APART for x, seen in found):
            continue
        found.append((phi, there))
    rivals = [
        Rival(surface.rounded_theta_of(phi), _log_mass(there) - _log_mass(here), _distance(phi, center, here))
        for phi, there in found[1:]
    ]
    return sorted((r for r in rivals if r.log_mass > HEAVY), key=lambda rival: -rival.log_mass)


def _distance(phi: np.ndarray, other: np.ndarray, there: Look) -> float:
    apart = phi - other
    return math.sqrt(max(float(apart @ there.hessian @ apart), 0.0))


def _log_mass(look: Look) -> float:
    """Of the Gaussian at a mode, up to a constant."""
    return float(-look.value - np.linalg.slogdet(look.hessian)[1] / 2)
