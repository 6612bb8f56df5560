"""Which start, metric, gradient, batch and method a posterior gets, and why."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.deadline import OutOfTimeError
from inbounds.exact import flat
from inbounds.inference.clock import Clock
from inbounds.inference.coordinates import with_scales
from inbounds.inference.elsewhere import Elsewhere, look_elsewhere
from inbounds.inference.heights import Heights
from inbounds.inference.mode import MOST_DENSE, Mode, Surface, find_mode
from inbounds.inference.noise import RowNoise, noise_of_rows
from inbounds.inference.nuts import leapfrog_size
from inbounds.inference.setup import Setup
from inbounds.inference.structure import Structure, first_metric, in_words, structure_of
from inbounds.metrics import Dense
from inbounds.metrics._reference import whitening
from inbounds.posterior import Posterior
from inbounds.precision import in_double
from inbounds.sampling import Draws
from inbounds.space import Space
from inbounds.trees import PyTree

__all__ = ["Found", "Plan", "calmer_far_out", "choose", "choose_again", "look_around", "plans", "trajectories_first"]

COARSE_STEP = 0.5  # of chains in a round posterior
TOLERATED_NOISE = 0.05  # variance of a fine step's gradient noise over that of the injected noise
# The same far out: above the first the coarse step may inject no noise at all, and minibatches are made larger until it is the second.
TOLERATED_FAR_OUT, ENOUGH_FAR_OUT = 0.25, 0.1
FAR_OUT = (0.99, 0.998, 0.995, 0.999)  # quantiles of the distance from the centre
FEWEST_ROWS = 12
WHOLE_SHARE = 0.25  # of the data in a fine step, from which on it takes all of them
WHOLE_ROWS = 200  # data of which every step takes all,
PLAIN_ROWS = 4_000  # and where there is no centre
USUAL_ERROR = 0.05
TRAJECTORIES = (500, 900)  # per chain: before the draws, and draws for the usual error
LEAPFROGS = 3.4  # of a trajectory in one dimension; they grow like the fourth root of the dimension
LEAPFROG_SECONDS = 3e-5  # beside its gradients
CALLS = (500, 3_000)  # of two fine steps and a coarse one: as for trajectories
CALL_SECONDS = 1.5e-4
PICKED = 2.0  # what the gradient of a row costs that is picked, over that of one among all the data
NOISE_PASSES = 40  # over the data, to measure how noisy minibatches are
NOISE_COMPILING = 0.5  # seconds to compile that
DISPERSED = 2.0  # sds from the centre at which chains start
FARTHEST = 3.0
DRAWN_BACK = 0.6 ** np.arange(8)  # of that distance, where the density is not nearly as high as a Gaussian's
SLACK = 3.0  # in log density
SEARCHING, LOOKING, MEASURING = 0.3, 0.4, 0.8  # of the time, when the mode, other modes and the noise are to be known
AFFORDABLE = 600.0  # seconds of a second try
NAMES = {"full": "exact gradients and the no-U-turn sampler", "minibatch": "minibatches"}
GRADIENTS_PER_ROW = {"taylor": 3.0, "control_variate": 2.0, "minibatch": 1.0}
WHAT = {
    "taylor": "control variates of second order",
    "control_variate": "control variates of first order",
    "minibatch": "plain minibatches",
}
TRAJECTORIES_FAILED = "trajectories came first, and their answer could not be certified."
WHICH_FIRST = "trajectories over all the data are expected to take {:.2g} s, minibatches {:.2g} s."
MOST_LOOKED_ELSEWHERE = 100  # dimensions: in more, no points of Gaussians find anything


NOTHING, UNKNOWN = Elsewhere([], []), Elsewhere([], [], whole=False)


@dataclass(frozen=True)
class Found:
    """What a first look found.

    Attributes:
        mode: the mode, or the best point; None where the posterior has no density to search.
        elsewhere: other modes that have mass, and points with mass far from the mode.
        structure: what the metric is made of; None where it is dense.
    """

    mode: Mode | None
    elsewhere: Elsewhere = NOTHING
    structure: Structure | None = None


def look_around(posterior: Posterior, space: Space, init: PyTree, seed: int, clock: Clock) -> Found:
    """The mode, and what else there is."""
    if posterior.gradient is not None:
        return Found(None)
    with clock.part("structure"):
        structure = structure_of(posterior, space, seed)
    if structure is not None and structure.has_scales:
        return Found(None, structure=structure)
    with clock.part("mode"), clock.until(SEARCHING):
        mode = find_mode(posterior, space, init, seed=seed)
    if structure is not None and (structure.is_needed or not mode.found):
        return Found(mode, structure=structure)
    if mode.hessian is None or not mode.found or len(mode.gradient) > MOST_LOOKED_ELSEWHERE:
        return Found(mode)
    elsewhere = UNKNOWN
    with clock.part("elsewhere"), suppress(OutOfTimeError), clock.until(LOOKING):
        elsewhere = look_elsewhere(posterior, space, mode, seed=seed)
        if elsewhere.rivals and elsewhere.rivals[0].log_mass > 0:  # a better one: what was found first is its rival
            better = find_mode(posterior, space, elsewhere.rivals[0].theta, seed=seed)
            if better.found and better.log_density > mode.log_density:
                mode, elsewhere = better, UNKNOWN
                elsewhere = look_elsewhere(posterior, space, mode, seed=seed)
    return Found(mode, elsewhere)


class Plan(NamedTuple):
    """A method, and why it comes when it does."""

    method: str
    why: str


def plans(
    posterior: Posterior, found: Found, method: str, num_chains: int, error: float = USUAL_ERROR
) -> list[Plan]:  # fmt: skip
    """The methods to try, one after the other where an answer cannot be certified."""
    if method != "auto":
        return [Plan(method, "asked for.")]
    if not posterior.has_density:
        return [Plan("minibatch", "the posterior gives gradients alone.")]
    if found.structure is not None:
        return [Plan("full", "minibatches need a dense metric, and here it is made of blocks or of few directions.")]
    if posterior.data is None or posterior.log_likelihood is None:
        return [Plan("full", "there are no rows to take minibatches of.")]
    if found.mode is None or not found.mode.found:
        return [Plan("full", "there is no mode at which minibatches could be made precise.")]
    full, minibatch = _expected_seconds(posterior, found.mode, num_chains, error)
    words = WHICH_FIRST.format(full, minibatch)
    if full <= minibatch:
        return [Plan("full", words)] + [Plan("minibatch", TRAJECTORIES_FAILED)] * (minibatch <= AFFORDABLE)
    after = f"minibatches came first, and their answer could not be certified; trajectories are expected to take {full:.2g} s."
    return [Plan("minibatch", words)] + [Plan("full", after)] * (full <= AFFORDABLE)


def trajectories_first(plans: list[Plan], setup: Setup, found: Found, error: float = USUAL_ERROR) -> list[Plan]:
    """The same where minibatches turned out to need so many rows that trajectories are there before them."""
    first, *others = plans
    if first.method == "full" or not others or found.mode is None:
        return plans
    full, minibatch = _expected_seconds(setup.posterior, found.mode, setup.num_chains, error, setup)
    if full > minibatch and not setup.whole:
        return plans
    why = "minibatches would need all the data in each step." if setup.whole else WHICH_FIRST.format(full, minibatch)
    return [Plan("full", why), Plan("minibatch", TRAJECTORIES_FAILED)]


def _expected_seconds(
    posterior: Posterior, mode: Mode, num_chains: int, error: float, setup: Setup | None = None
) -> tuple[float, float]:
    """Of trajectories over all the data, and of minibatches: those of a setup, or the smallest."""
    rows, longer = posterior.num_data or 1, (USUAL_ERROR / error) ** 2
    before, draws = TRAJECTORIES
    leapfrogs = LEAPFROGS * len(mode.gradient) ** 0.25 * (before + draws * longer)
    full = leapfrogs * (LEAPFROG_SECONDS + num_chains * mode.seconds_per_pass)
    kind, batch = ("taylor", min(100, rows / 10)) if setup is None else (setup.gradient, setup.batch_size or rows)
    # Two fine steps, and a coarse one of half the rows.
    gradients = 2.5 * PICKED * GRADIENTS_PER_ROW.get(kind, 1.0) * batch / rows
    before, steps = CALLS
    minibatch = (before + steps * longer) * (CALL_SECONDS + num_chains * gradients * mode.seconds_per_pass)
    if setup is None:  # that has not been done
        minibatch += NOISE_COMPILING + NOISE_PASSES * mode.seconds_per_pass
    return full, minibatch


def choose(
    posterior: Posterior, space: Space, found: Found, plan: Plan, num_chains: int, seed: int, clock: Clock,
    init: PyTree = None,
) -> Setup:  # fmt: skip
    """A setup to begin with: the windows may still change its transforms, its metric and its steps."""
    if found.structure is not None and plan.method == "full":
        metric, starts, choices = _begin_structured(posterior, space, found, num_chains, seed, init)
    else:
        metric, starts, choices = _begin(posterior, space, found, num_chains, seed, init)
    transforms = with_scales(space, jax.tree.map(lambda leaf: leaf[0], starts))
    setup = Setup(
        posterior=posterior, transforms=transforms, method=plan.method, metric=metric, gradient="all", center=None,
        batch_size=None, corrects=False, step_size=COARSE_STEP, acceptance=0.8, starts=starts, num_chains=num_chains,
        choices=choices,
    ).noted(method=f"{NAMES[plan.method]}: {plan.why}")  # fmt: skip
    if plan.method == "full":
        return replace(setup, step_size=leapfrog_size(metric.dimension))
    center = found.mode.theta if found.mode is not None and found.mode.found else None
    return _measured(setup, center, seed, clock)


def choose_again(setup: Setup, found: Found, seed: int, clock: Clock) -> Setup:
    """With the gradient and the batch that suit the metric that windows have found, whose middle is a centre where there is no mode."""
    posterior = setup.posterior
    if setup.method == "full" or posterior.log_likelihood is None or posterior.gradient is not None:
        return setup
    if (posterior.num_data or 0) <= WHOLE_ROWS:
        return setup
    if found.mode is not None and found.mode.found:
        center = found.mode.theta
    else:
        space = Space(posterior.supports, setup.transforms)
        middle = Surface(posterior, space, jax.tree.map(lambda leaf: leaf[0], setup.starts))
        center = jax.tree.map(lambda leaf: leaf[0], middle.starts_of(flat(setup.metric.center)[None]))
    chosen = _measured(replace(setup, gradient="all", batch_size=None, corrects=False, noise=None), center, seed, clock)
    wanted = chosen.batch_size or 0
    if chosen.gradient == setup.gradient and wanted <= (setup.batch_size or 0) <= 2 * wanted:
        chosen = replace(chosen, batch_size=setup.batch_size)  # so that nothing is compiled anew
        return _corrected(chosen) if setup.corrects else chosen
    return chosen


def calmer_far_out(setup: Setup, draws: Draws) -> Setup | None:
    """With larger minibatches where they are too noisy at the draws that are farthest from the centre; None where they are not.

    What control variates leave grows with the distance from theirs. It drives chains back from where it is large, so that sds come out too
    small. The coarse chain shows that, and it is taken out, but only as long as the noise has a small share in both chains.
    """
    if setup.batch_size is None or setup.center is None or setup.gradient == "minibatch":
        return None
    posterior, rows = setup.posterior, setup.posterior.num_data
    z = setup.of_z(draws).reshape(-1, setup.metric.dimension)
    by_distance = z[np.argsort(np.sum(z**2, axis=1))]
    places = by_distance[[int(share * (len(z) - 1)) for share in FAR_OUT]]
    space = Space(posterior.supports, setup.transforms)
    found = noise_of_rows(posterior, space, setup.metric, setup.center, 0, places)[setup.gradient]
    fine_step = setup.step_size / 2
    share = fine_step * float(np.linalg.eigvalsh(found.covariance)[-1]) / setup.batch_size / 2
    if share <= TOLERATED_FAR_OUT:
        return None
    assert rows is not None
    wanted = _in_fours(min(setup.batch_size * share / ENOUGH_FAR_OUT, rows)) if math.isfinite(share) else rows
    why = f"far from the centre {setup.batch_size:,} left noise with {share:.2g} of the variance that a step injects."
    if wanted > WHOLE_SHARE * rows:
        return replace(setup, batch_size=None, corrects=False, gradient="all").noted(
            gradient="exact.", batch=f"all the {rows:,} rows in each step: {why}"
        )
    return replace(setup, batch_size=wanted).noted(batch=f"{wanted:,} of {rows:,} rows in a fine step: {why}")


def _begin(
    posterior: Posterior, space: Space, found: Found, num_chains: int, seed: int, init: PyTree
) -> tuple[Dense, PyTree, dict[str, str]]:
    """(metric, starts, choices)."""
    generator, mode = np.random.default_rng(seed), found.mode
    if mode is not None and mode.found and mode.hessian is not None:
        names = [str(i) for i in range(len(mode.gradient))]
        white = whitening(mode.hessian, names)
        metric = Dense(mode.phi, white, np.linalg.inv(white))
        choices = {
            "start": f"chains start {DISPERSED:g} sds around the mode, where the gradient over all the data is zero to "
            f"{mode.decrement:.1g} posterior sds.",
            "metric": f"dense, from the Hessian of all the data at the mode, in {metric.dimension} dimensions.",
        }
        surface, heights = Surface(posterior, space, mode.theta), Heights.at(posterior, space, mode, seed)
        assert heights is not None
        phis = _dispersed(surface, metric, heights, num_chains, generator)
        away = [*found.elsewhere.far, *(surface.phi_of(rival.theta) for rival in found.elsewhere.rivals[:1])]
        away = away[-(num_chains // 2) :]
        phis[num_chains - len(away) :] = away or phis[num_chains:]
        starts = surface.starts_of(phis)
        if away:
            choices["start"] += (
                f" {len(away)} of them {'starts' if len(away) == 1 else 'start'} where else there is mass."
            )
        return metric, starts, choices
    given = mode is None and init is not None  # where there is a density, the search began there
    theta = init if given else posterior.start(jax.random.key(seed)) if mode is None else mode.theta
    with in_double():
        phi = jax.tree.map(np.asarray, space.unconstrain(jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), theta)))
    size = flat(phi).size
    metric = Dense(phi, np.eye(size), np.eye(size))
    keys = jax.random.split(jax.random.key(seed), num_chains)
    starts = [jax.tree.map(np.asarray, posterior.start(key)) for key in keys]
    if given or posterior.prior_draws(keys[0], 1) is None:  # then all starts are one point
        surface = Surface(posterior, space, theta)
        placed = surface.starts_of(flat(phi) + DISPERSED * generator.normal(size=(num_chains, size)))
        starts = [jax.tree.map(lambda leaf, i=i: leaf[i], placed) for i in range(num_chains)]
    why = "there is no density to search for it" if mode is None else mode.reason
    choices = {
        "start": f"chains start {'around `init`' if given else 'near the middle of the prior'}. There is no mode to start at: {why}.",
        "metric": f"none to begin with, in {size} dimensions.",
    }
    return metric, jax.tree.map(lambda *leaves: np.stack(leaves), *starts), choices


def _begin_structured(
    posterior: Posterior, space: Space, found: Found, num_chains: int, seed: int, init: PyTree
) -> tuple[Any, PyTree, dict[str, str]]:
    """(metric, starts, choices) where the metric is made of what the structure of the posterior says."""
    structure, mode = found.structure, found.mode
    assert structure is not None
    keys = jax.random.split(jax.random.key(seed), num_chains)
    starts = [jax.tree.map(np.asarray, posterior.start(key)) for key in keys]
    where = "near the middle of the prior"
    if init is not None and (mode is None or not mode.found):
        starts, where = [jax.tree.map(np.asarray, init)] * num_chains, "at `init`"
    metric, at = first_metric(posterior, space, structure, mode, starts[0])
    if mode is not None and mode.found:
        where = "one sd around the mode"
        draws = np.random.default_rng(seed).normal(size=(num_chains, structure.size))
        with in_double():
            phis = np.stack([flat(metric.to_proxy(jnp.asarray(z))) for z in draws])
        stacked = Surface(posterior, space, mode.theta).starts_of(phis)
    else:
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *starts)
    return metric, stacked, {"start": f"chains start {where}.", "metric": in_words(metric, structure, at)}


def _dispersed(
    surface: Surface, metric: Dense, heights: Heights, num_chains: int, generator: np.random.Generator
) -> np.ndarray:
    """Flat proxies around the mode, each drawn back until it is about as high as it is in a Gaussian."""
    z = DISPERSED * generator.normal(size=(num_chains, metric.dimension))
    length = np.linalg.norm(z, axis=1, keepdims=True)
    z *= np.minimum(1, FARTHEST * math.sqrt(metric.dimension) / length)
    candidates = np.concatenate([np.zeros((1, metric.dimension)), *(share * z for share in DRAWN_BACK)])
    phis = flat(metric.center) + candidates @ np.asarray(metric.factor, np.float64).T
    found = heights.of(surface.starts_of(phis))
    fallen = (found[0] - found[1:]).reshape(len(DRAWN_BACK), num_chains)
    allowed = np.square(DRAWN_BACK)[:, None] * np.sum(z**2, axis=1) + SLACK
    first = np.where((fallen <= allowed).any(axis=0), np.argmax(fallen <= allowed, axis=0), len(DRAWN_BACK) - 1)
    return phis[1 + first * num_chains + np.arange(num_chains)]


def _measured(setup: Setup, center: PyTree, seed: int, clock: Clock) -> Setup:
    """Gradient and batch by the noise of all the rows, or all the data in each step where there is no time to measure it."""
    with clock.part("noise"), suppress(OutOfTimeError), clock.until(MEASURING):
        return _minibatches(setup, center, seed)
    why = "there was no time to measure how noisy minibatches are."
    return setup.noted(gradient="exact.", batch=f"all the rows in each step: {why}")


def _minibatches(setup: Setup, center: PyTree, seed: int) -> Setup:
    """Gradient, batch and correction, by the noise of all the rows; `center` is that of control variates, None where there is none."""
    posterior, rows = setup.posterior, setup.posterior.num_data
    if posterior.data is None:
        return setup.noted(gradient="exact: there are no data.", batch="none.")
    if posterior.log_likelihood is None:
        size = posterior.batch_size or (None if posterior.makes_minibatches else min(100, rows or 100))
        plain = replace(setup, gradient="minibatch", batch_size=size or 1, corrects=True)
        return plain.noted(gradient="plain minibatches: the posterior gives gradients alone.", batch=f"{size} rows.")
    assert rows is not None
    if rows <= WHOLE_ROWS:
        return setup.noted(gradient="exact.", batch=f"all the {rows:,} rows in each step: they are few.")
    if center is None:
        return _plain(setup, rows)
    by_kind = noise_of_rows(posterior, Space(posterior.supports, setup.transforms), setup.metric, center, seed)
    if setup.metric.dimension > MOST_DENSE:
        by_kind.pop("taylor")
    needs = {kind: _rows_needed(noise, setup.step_size / 2) for kind, noise in by_kind.items()}
    kind = min(needs, key=lambda kind: max(needs[kind], FEWEST_ROWS) * GRADIENTS_PER_ROW[kind])
    wanted = _in_fours(min(max(needs[kind], FEWEST_ROWS, min(100, rows / 10)), rows))
    if wanted > WHOLE_SHARE * rows:
        return setup.noted(
            gradient="exact.",
            batch=f"all the {rows:,} rows in each step: their gradients differ so much that minibatches would need {wanted:,} of them.",
        )
    noise = by_kind[kind]
    share = setup.step_size / 2 * max(float(np.linalg.eigvalsh(noise.covariance)[-1]), 0.0) / wanted / 2
    corrects = share > 1e-3
    setup = replace(setup, gradient=kind, center=center, batch_size=wanted, noise=noise)
    if corrects:
        setup = _corrected(setup)
    left = f"their noise has {share:.1g} of the variance that a step injects"
    return setup.noted(
        gradient=f"{WHAT[kind]}: {left}, and is {'corrected for' if corrects else 'too little to correct for'}.",
        batch=f"{wanted:,} of {rows:,} rows in a fine step.",
    )


def _corrected(setup: Setup) -> Setup:
    """With a correction for the noise, in axes in which that is diagonal."""
    size = setup.metric.dimension
    return replace(setup, corrects=True).moved(np.zeros(size), np.eye(size))


def _plain(setup: Setup, rows: int) -> Setup:
    if rows <= PLAIN_ROWS:
        return setup.noted(
            gradient="exact.", batch=f"all the {rows:,} rows in each step: there is no centre for control variates."
        )
    size = PLAIN_ROWS // 4
    return replace(setup, gradient="minibatch", batch_size=size, corrects=True).noted(
        gradient="plain minibatches: there is no centre for control variates.",
        batch=f"{size:,} of {rows:,} rows in a fine step.",
    )


def _in_fours(rows: float) -> int:
    """So many rows at least that the coarse step has half of them, and a half of these shows their noise."""
    return 4 * math.ceil(rows / 4)


def _rows_needed(noise: RowNoise, fine_step: float) -> float:
    """Rows of a fine step such that neither the noise nor any single row moves a chain by much of a posterior sd."""
    variance = float(np.linalg.eigvalsh(noise.covariance)[-1])
    if not (math.isfinite(variance) and math.isfinite(noise.largest)):
        return math.inf
    return max(fine_step * variance / (2 * TOLERATED_NOISE), 2 * fine_step * noise.largest)
