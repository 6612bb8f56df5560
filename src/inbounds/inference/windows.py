"""Short runs that look where the posterior is: they find the steps, the metric and the transforms that the long run has."""

from __future__ import annotations

import warnings
from dataclasses import replace

import jax
import numpy as np

from inbounds.inference.choose import COARSE_STEP
from inbounds.inference.clock import Clock
from inbounds.inference.coordinates import rounder
from inbounds.inference.heights import Heights
from inbounds.inference.setup import Setup
from inbounds.inference.stopping import Late
from inbounds.metrics._dense import shrunk_covariance
from inbounds.sampling import Draws

__all__ = ["fallen", "settle"]

MOST_WINDOWS = 12
FALL, FALL_PER_NUMBER = 30.0, 5.0  # of log density below its start, from which on a chain has left the posterior
ROUND = 2.0  # the longest over the expected axis of the draws, and that over the shortest, up to which a metric stays
PARTED = 1.3  # sd of the coarse over that of the fine chains, in any direction
SMALLEST_STEP = 1e-3
WHY_OTHERS = ", because draws of a first window look more normal so."
WINDOW, LONGEST_WINDOW = 150, 1_500  # draws per chain
EFFECTIVE_PER_NUMBER = 4  # effective draws per dimension from which a covariance can be told


def settle(
    setup: Setup, clock: Clock, seed: int, *, heights: Heights | None = None, free: bool = True, apart: bool = False,
    devices: object = None,
) -> tuple[Setup, Draws]:  # fmt: skip
    """(the setup, draws of the last window): with steps, transforms and a metric that suit where the chains are.

    A window whose chains leave the posterior, or whose coarse and fine chains are spread differently, is run again with shorter steps. One
    whose draws are far from round in z makes a metric of them, and takes other transforms where these make its draws more like normal ones.

    Args:
        setup: to begin with.
        clock: no window begins when half of its time is over, and none goes on when all of it is.
        seed: of the windows.
        heights: that tell whether a chain has left the posterior; None: what is finite is in it.
        free: whether transforms may be chosen.
        apart: whether chains are known to sit in several modes, so that how far these lie apart is no width.
        devices: as for `ib.sample`.
    """
    refits = 0
    for number in range(MOST_WINDOWS):
        draws = _window(setup, seed + number, refits, clock, devices)
        if clock.is_over():
            break
        z = setup.of_z(draws)
        if apart:
            z = z - z.mean(axis=1, keepdims=True) + z.mean(axis=(0, 1))
        if np.isfinite(z).all() and _is_round(z):
            setup = setup.from_here(draws)
            break
        if fallen(setup, draws, heights) or _parted(z, draws):
            if setup.step_size < SMALLEST_STEP:
                return setup.noted(steps="the chains left the posterior at every step size that was tried."), draws
            setup = replace(setup, step_size=setup.step_size / 2)
            continue
        setup = setup.from_here(draws)
        if clock.share() > 0.5:
            break
        space = draws.kernel.space.of_proxy
        better = rounder(space, draws.theta, draws.phi) if free else None
        if better is None:
            setup = _refitted(setup, z)
        else:
            space, names = better
            setup = setup.in_space(space, draws.theta, seed)
            setup = setup.noted(transforms="; ".join(f"{name} by {how}" for name, how in names.items()) + WHY_OTHERS)
        if setup.method == "minibatch":
            setup = replace(setup, step_size=min(2 * setup.step_size, COARSE_STEP))
        refits += 1
    if refits:
        setup = setup.noted(
            metric=f"dense, from the draws of {refits} window{'s' * (refits > 1)}, because those were not round in the one before."
        )
    return setup, draws


def fallen(setup: Setup, draws: Draws, heights: Heights | None) -> bool:
    """Whether a chain has left the posterior: the numbers, or all height that it started from."""
    last = jax.tree.map(lambda leaf: np.asarray(leaf[:, -1]), draws.theta)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(last)):
        return True
    if heights is None or setup.method == "full":  # trajectories are refused where they fall
        return False
    down = heights.of(setup.starts) - heights.of(last)
    return bool(np.any(~(down <= FALL + FALL_PER_NUMBER * setup.metric.dimension)))


def _parted(z: np.ndarray, draws: Draws) -> bool:
    """Whether the coarse chains are spread otherwise than the fine ones: then it is the steps that draws show, and not the posterior."""
    if "coarse" not in draws.stats:
        return False
    coarse = np.asarray(draws.stats["coarse"], np.float64)
    if not np.isfinite(coarse).all():
        return True
    ratio = coarse.std(axis=(0, 1)) / z.std(axis=(0, 1))
    return bool(ratio.max() > PARTED or ratio.min() < 1 / PARTED)


def _window(setup: Setup, seed: int, refits: int, clock: Clock, devices: object) -> Draws:
    if setup.method == "full":
        draws, burn_in = WINDOW * min(1 + refits, 4), 75
    else:
        per_effective = 2 / setup.step_size  # draws of the fine chain, which are two steps apart
        wanted = EFFECTIVE_PER_NUMBER * setup.metric.dimension * per_effective / setup.num_chains
        draws, burn_in = int(np.clip(wanted, WINDOW, LONGEST_WINDOW)), 30 + int(8 / setup.step_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return setup.sample(draws + burn_in, burn_in=burn_in, seed=seed, devices=devices, until=Late(clock))


def _is_round(z: np.ndarray) -> bool:
    """Whether the covariance of z is about the identity, as far as so many draws can tell."""
    numbers = z.reshape(-1, z.shape[2])
    values = np.linalg.eigvalsh(shrunk_covariance(numbers)) if z.shape[2] > 1 else numbers.var(axis=0)
    center = np.abs(numbers.mean(axis=0)).max()
    return bool(values[-1] < ROUND**2 and values[0] > ROUND**-2 and center < 1 and values[-1] < 10 * values[0])


def _refitted(setup: Setup, z: np.ndarray) -> Setup:
    """With a metric in which these draws are round."""
    numbers = z.reshape(-1, z.shape[2])
    center = numbers.mean(axis=0)
    values, vectors = np.linalg.eigh(np.atleast_2d(shrunk_covariance(numbers)))
    turned = vectors * np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    return setup.moved(center, turned)
