"""Why an answer may not be believed: each doubt is a sentence with the numbers and a cure."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from scipy import stats

from inbounds.exact import Part, flat
from inbounds.inference.certificate import heaviest_tail
from inbounds.inference.choose import MOST_LOOKED_ELSEWHERE, Found
from inbounds.inference.heights import Heights
from inbounds.inference.mode import Look, Surface
from inbounds.inference.setup import Setup
from inbounds.inference.stopping import LEAST_ESS, Enough
from inbounds.sampling import Draws
from inbounds.sampling.summary import labels
from inbounds.trees import some_draws

__all__ = ["Doubt", "doubts"]

INFINITE_VARIANCE = 0.5  # index of a tail
MOST_DIVERGENT = 0.002  # of the trajectories
LEAST_OF_ENERGY = 0.2  # mean square of its steps over its variance
WIDER = 1.0  # log volume of the draws over that of the Gaussian at the mode, from which on that is a peak
LOOKED_AT = 192  # draws, for the mass where the chains are
MOST_SEEN = 10_000  # draws
LEAST_SEEN = 30  # effective draws that ought to be at the peak
FEWEST_CROSSINGS = 10  # of each chain between two modes, from which on their shares can be believed
SEGMENTS = 6  # between draws, along which the gradient has to be the slope of the density
NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)
SLOPE_TOLERANCE = 0.15


class Doubt(NamedTuple):
    """What speaks against an answer.

    Attributes:
        text: a sentence with the numbers and a cure.
        of_sampler: whether it may be the sampler's fault, so that another may do better.
    """

    text: str
    of_sampler: bool = False


def doubts(
    draws: Draws, setup: Setup, found: Found | None, heights: Heights | None, enough: Enough
) -> list[Doubt]:  # fmt: skip
    """All that speaks against these draws; empty where nothing does."""
    of_sampler = [*_error(enough), *_chains(enough), *_tails(draws, enough), *_trajectories(draws, setup)]
    of_sampler += _stepped_over(draws, heights, enough)
    of_posterior = [*_modes(draws, setup, found), *_bounds(draws), *_slopes(draws, setup, heights)]
    return [Doubt(text, True) for text in of_sampler] + [Doubt(text) for text in of_posterior]


def _error(enough: Enough) -> list[str]:
    reached = enough.reached()
    if reached <= enough.error:
        few = enough.least_ess()
        if few >= LEAST_ESS:
            return []
        return [f"there are {few:.0f} effective draws only, and it takes {LEAST_ESS}: give it more `seconds`."]
    if 2 * (enough.off or 0.0) > enough.error:
        return [
            "the integrals over the effects of groups are not precise enough: by a finer rule on a sample of groups, means and sds may be off "
            f"by {2 * (enough.off or 0.0):.2g} posterior sds (twice the error), more than {enough.error:g}. Give them more nodes: "
            "ib.infer(ib.from_numpyro(model, ...).integrated(nodes=...))."
        ]
    worst, size, bias = "", -math.inf, 0.0
    for name, e in enough.estimates.items():
        errors = np.maximum(e.mean_error, e.sd_error)
        if errors.size and np.max(errors) > size:
            place = int(np.argmax(errors))
            worst, size = labels(name, enough.shapes[name])[place], float(errors[place])
            bias = float(max(e.mean_bias[place], e.sd_bias[place]))
    if not math.isfinite(size):
        return [f"draws of {worst} are not finite: the model or its scale is at fault, or the steps are far too long."]
    cure = {
        "time": "give it more `seconds`, or ask for a larger `error`",
        "draws": "ask for a larger `error`, or reparameterise what moves slowly",
    }.get(enough.why, "reparameterise the model, or ask for a larger `error`")
    share = f", of which {2 * bias:.2g} is bias" if bias > size / 2 else ""
    return [
        f"twice the total error of {worst} is {2 * size:.2g} posterior sds{share}, more than {enough.error:g}: {cure}."
    ]


def _chains(enough: Enough) -> list[str]:
    found = enough.disagreeing()
    if not found:
        return []
    shown = ", ".join(f"{name} ({r_hat:.3g})" for name, r_hat in found[:3])
    return [
        f"the chains disagree: R-hat of {shown}. They sit in different modes, or drift: look at each (draws.theta[name][chain]). "
        "Order what may be exchanged, give proper priors, or give more `seconds`."
    ]


def _tails(draws: Draws, enough: Enough) -> list[str]:
    heavy = []
    for name, x in draws.variables().items():
        flat_draws = np.asarray(x).reshape(*x.shape[:2], -1)
        tails = heaviest_tail(flat_draws[:, :, :1_000])
        if tails.size and np.max(tails) >= INFINITE_VARIANCE:
            heavy.append(labels(name, x.shape[2:])[int(np.argmax(tails))])
    if not heavy:
        return []
    return [
        f"the tails of {', '.join(heavy[:3])} are so heavy that the variance may be infinite: means and sds of them say nothing, "
        "and quantiles are as good as `quantile_error` says. Take a prior with lighter tails, or look at quantiles alone."
    ]


def _modes(draws: Draws, setup: Setup, found: Found | None) -> list[str]:
    """Another mode that has mass, unless every chain has gone to and fro between the two."""
    if found is not None and not found.elsewhere.whole:
        return ["there was no time to look for other modes: give it more `seconds`."]
    rivals = [] if found is None else found.elsewhere.rivals
    for rival in rivals:
        assert found is not None
        assert found.mode is not None
        surface = Surface(setup.posterior, draws.kernel.space.of_proxy, rival.theta)
        here, there = (setup.z_of(surface.phi_of(theta)) for theta in (found.mode.theta, rival.theta))
        z = setup.of_z(draws)
        nearer = np.sum((z - there) ** 2, axis=-1) < np.sum((z - here) ** 2, axis=-1)
        if np.all(np.abs(np.diff(nearer.astype(int), axis=1)).sum(axis=1) >= FEWEST_CROSSINGS):
            continue
        return [
            f"the posterior has several modes: one that lies {rival.distance:.2g} sds from where chains started has "
            f"{math.exp(min(rival.log_mass, 50)):.2g} times the mass of theirs, by its height and width. "
            "Order what may be exchanged, or run each mode for itself (`init`)."
        ]
    return []


def _stepped_over(draws: Draws, heights: Heights | None, enough: Enough) -> list[str]:
    """Whether chains step over a mode that is much narrower than where they are: its Gaussian has mass that they do not see."""
    if heights is None or not heights.mode.found or heights.mode.hessian is None:
        return []
    center, hessian = flat(heights.mode.phi), heights.mode.hessian
    if not 0 < len(center) <= MOST_LOOKED_ELSEWHERE:
        return []
    values = np.linalg.eigvalsh(hessian)
    numbers = heights.surface.phis_of(some_draws(draws.theta, MOST_SEEN))
    mean, covariance = numbers.mean(axis=0), np.atleast_2d(np.cov(numbers.T))
    log_volume = np.linalg.slogdet(covariance)[1] / 2
    if values[0] <= 0 or log_volume + np.log(values).sum() / 2 < WIDER:
        return []
    picked = numbers[np.linspace(0, len(numbers) - 1, LOOKED_AT).astype(int)]
    squares = np.einsum("ij,ij->i", picked - mean, np.linalg.solve(covariance, (picked - mean).T).T)
    inner = squares <= stats.chi2.median(numbers.shape[1])
    if not inner.any():
        return []
    top, *of_draws = heights.of_phi(np.concatenate([center[None], picked[inner]]))
    # One over the mass where the chains are: the average of a Gaussian's share of it over the density (reciprocal importance sampling).
    log_ratios = -squares[inner] / 2 - log_volume - (np.array(of_draws) - top) + np.log(2)
    log_mass = -(np.logaddexp.reduce(log_ratios) - np.log(LOOKED_AT))
    share = 1 / (1 + np.exp(log_mass + np.log(values).sum() / 2))  # of the narrow Gaussian; powers of 2 pi cancel
    away = numbers - center
    seen = float(np.mean(np.einsum("ij,ij->i", away @ hessian, away) <= stats.chi2.ppf(0.9, numbers.shape[1])))
    if share * min(enough.least_ess(), len(numbers)) < LEAST_SEEN or seen > 0.9 * share / 3:
        return []
    return [
        f"the mode is a peak much narrower than the rest: by its height and width it has {share:.0%} of the mass, and {seen:.1%} of the draws "
        "are there. The chains step over it. Write the model so that no variable is nearly fixed in a part of the posterior, or give such "
        "parts a model of their own."
    ]


def _trajectories(draws: Draws, setup: Setup) -> list[str]:
    if setup.method != "full":
        return []
    share = float(np.mean(draws.stats["divergent"]))
    if share <= MOST_DIVERGENT:
        return _energies(draws)
    return [
        f"{share:.1%} of the trajectories diverged at an acceptance of {setup.acceptance:.2g}: the posterior has a funnel or a "
        "corner that steps of one length cannot cover. "
        "Write the model non-centred (effect = mean + scale * standard normal), or give the scale a prior away from 0."
    ]


def _energies(draws: Draws) -> list[str]:
    """Whether trajectories with fresh momenta reach all the energies of the posterior: in a funnel they do not (Betancourt 2016)."""
    energy = np.asarray(draws.stats["energy"], np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.mean(np.square(np.diff(energy, axis=1)), axis=1) / np.var(energy, axis=1)
    least = float(np.min(found))
    if not least < LEAST_OF_ENERGY:
        return []
    return [
        f"trajectories move between levels of energy too slowly (E-BFMI {least:.2g}, and it takes {LEAST_OF_ENERGY:g}): the posterior has a "
        "funnel, or tails that they hardly reach. Write the model non-centred (effect = mean + scale * standard normal), or give the scale a "
        "prior away from 0."
    ]


def _bounds(draws: Draws) -> list[str]:
    return [note.text for note in draws.at_bounds()]


def _slopes(draws: Draws, setup: Setup, heights: Heights | None) -> list[str]:
    """Whether the gradient is the slope of the density: not where the likelihood jumps, or hides a part from differentiation."""
    posterior = setup.posterior
    if setup.method == "full" or posterior.gradient is not None or posterior.log_likelihood is None:
        return []
    if heights is not None:
        surface, part = heights.surface, heights.part
    else:
        surface = Surface(
            posterior, draws.kernel.space.of_proxy, jax.tree.map(lambda leaf: np.asarray(leaf)[0, -1], draws.theta)
        )
        part = next(iter(surface.parts(0)), None)
    ends = surface.phis_of(some_draws(draws.theta, 2 * SEGMENTS))
    look = partial(surface.look if surface.dimension <= 50 else _without_hessian(surface), part=part)
    wrong = []
    for first, last in zip(ends[:SEGMENTS], ends[SEGMENTS:], strict=True):
        apart = last - first
        risen = look(last).value - look(first).value
        slope = sum(
            w / 2 * (look(first + (x + 1) / 2 * apart).gradient @ apart) for x, w in zip(NODES, WEIGHTS, strict=True)
        )
        wrong.append(abs(risen - slope) > SLOPE_TOLERANCE * (1 + abs(risen) + abs(slope)))
    if sum(wrong) < SEGMENTS / 2:
        return []
    return [
        "the gradient of the log density is not its slope: between draws it adds up to something else than the density does. "
        "The likelihood jumps (comparisons, rounding, jnp.where on a parameter), "
        "or a part of it is hidden from differentiation. Smooth it, or integrate it out."
    ]


def _without_hessian(surface: Surface) -> Callable[..., Look]:
    def look(phi: np.ndarray, part: Part | None = None) -> Look:
        value, gradient = surface.slope(phi, part)
        return Look(value, gradient, np.zeros((0, 0)))

    return look
