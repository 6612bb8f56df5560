"""The front door: `infer` takes a model, chooses how to sample it, and says how wrong the answer is."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from inbounds import trees
from inbounds.arguments import nearest, whole_number
from inbounds.deadline import OutOfTimeError
from inbounds.frontends import posterior_of
from inbounds.inference.certificate import Certificate
from inbounds.inference.choose import (
    Found,
    calmer_far_out,
    choose,
    choose_again,
    look_around,
    plans,
    trajectories_first,
)
from inbounds.inference.clock import Clock
from inbounds.inference.doubts import Doubt, doubts
from inbounds.inference.effects import of_its_variables, without_effects
from inbounds.inference.heights import Heights
from inbounds.inference.journal import Journal, Keeping
from inbounds.inference.mode import MOST_DENSE, NO_TIME
from inbounds.inference.setup import Setup
from inbounds.inference.stopping import Enough
from inbounds.inference.structure import settle_structured
from inbounds.inference.windows import fallen, settle
from inbounds.posterior import Posterior
from inbounds.sampling import Checkpoint, Draws, Interrupted, NonFiniteError, UntrustworthyWarning
from inbounds.space import Space
from inbounds.trees import PyTree, variable_name

__all__ = ["infer"]

METHODS = ("auto", "minibatch", "full")
MOST_DRAWS = 200_000  # per chain
MOST_NUMBERS = 2**28  # of draws in memory
MOST_DIMENSIONS = 50_000  # so that a thousand draws of each chain have room
ROUNDS = 8  # of runs that find their steps too long,
ROUNDS_BEFORE_OTHERS = 4  # and of those where another sampler can take over
FEWEST_DRAWS = 50  # per chain, of which anything is said
ADAPTATION = 75  # transitions
MOST_BURN_IN = 4_000  # steps: chains begin where windows have ended
MOST_DIVERGENT = 0.002  # of the trajectories
MOST_ACCEPTANCE = 0.98
INTERRUPTED = "it was interrupted (Ctrl-C): let it run to its end."
CHOOSING = (
    "it was interrupted (Ctrl-C) while it still looked for its metric and its steps: these draws are of a short look."
)
FAR_OUT = (
    "the minibatches are too noisy far from the centre, so that sds may come out too small: give it more `seconds`, or take "
    'method="full".'
)
FAR_OUT_UNKNOWN = "there was no time to see how noisy the minibatches are far from the centre: give it more `seconds`."
TOO_SHORT = "the time was over before the long run: these draws are of a short look. Give it more `seconds`."
MAY_BE_CERTIFIED = ("error", "time", "draws")  # of the reasons why a run has ended
ENDINGS = {
    "error": "the error was small enough",
    "chains": "the chains did not meet",
    "bias": "the steps were still too long",
    "noise": "the gradients were still too noisy",
    "density": "the integrals over effects were not precise enough",
    "draws": "there was room for no more",
    "time": "the time was over",
}


def infer(
    model: Any,
    *args: Any,
    error: float = 0.05,
    seconds: float | None = None,
    method: str = "auto",
    seed: int = 0,
    num_chains: int = 4,
    init: PyTree = None,
    transforms: PyTree = None,
    quantities: dict[str, Callable[[PyTree], Any]] | None = None,
    progress: bool = True,
    devices: Any = None,
    store: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    model_kwargs: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Draws:
    """Draws of a posterior, with a certificate of how far every mean, sd and quantile may be off.

    Nothing has to be chosen: a start, a metric, the gradient and its minibatches, the step sizes and the length of the run are found, and
    `draws.certificate.choices` says which and why. The run ends when twice the total error of every mean and sd, Monte Carlo error and bias
    together, is within `error` posterior sds, or when `seconds` are over.

    Args:
        model: an `ib.Posterior`, a model of PyMC, bambi or NumPyro.
        *args, **kwargs: what a model of NumPyro is called with, data included.
        error: tolerance, in posterior sds.
        seconds: most time, compilation included; None: as long as it takes.
        method: "minibatch", "full" (exact gradients and the no-U-turn sampler), or "auto": the one that is expected to be there first.
        seed: a whole number. The same seed gives the same draws, unless `seconds` end the run, or `auto` chooses otherwise.
        num_chains: independent chains, at least 2.
        init: theta where the search for the mode begins; where there is no density to search, around which chains start.
        transforms: as for the kernels; None takes the default of each support.
        quantities: functions of theta by name, whose errors are worked out, too.
        progress: show a bar on a terminal or in a notebook; elsewhere the logger "inbounds" has a line now and then.
        devices, store, checkpoint, resume: as for `ib.sample`. The checkpoints are a local folder; with `resume` a run may go on to a smaller
            `error`.
        model_kwargs: arguments of the model that have a name of the above.

    Returns:
        Draws with a `certificate`. Those of a run that cannot be believed come with one that says why.

    Warns:
        UntrustworthyWarning: the answer is not certified.

    Raises:
        ValueError: the arguments do not fit, or the model cannot be sampled.
        TypeError: neither `ib.infer` nor the model has an argument of that name.
        Interrupted: Ctrl-C; `error.draws` has what there is, with its certificate.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> draws = ib.infer(posterior, method="minibatch", progress=False)
        >>> draws.certificate.ok, bool(draws.certificate.mean_error["rate"] <= 0.025)
        (True, True)
    """
    clock = Clock(_positive("seconds", seconds) if seconds is not None else None)
    _check(error, method, num_chains, seed)
    _check_names(model, kwargs)
    keeping = Keeping(store, checkpoint, resume)
    joint = posterior_of(model, args, kwargs | (model_kwargs or {}))
    posterior, about_effects = without_effects(joint, quantities or {})
    init, transforms = (of_its_variables(posterior, tree) for tree in (init, transforms))
    space = Space.of(posterior.supports, transforms)
    theta = jax.eval_shape(posterior.start, jax.random.key(seed)) if init is None else init
    quantities = dict(quantities or {})
    _check_quantities(posterior, quantities, theta)
    _check_size(posterior, space, theta, method)
    identity = posterior.fingerprint() | {"method": method, "seed": str(seed), "num_chains": str(num_chains)}
    options = {"devices": devices, "progress": progress}
    journal = Journal.load(keeping, identity, posterior, space, theta)
    if journal is None:
        found = look_around(posterior, space, init, seed, clock)
        journal = Journal(identity, found, plans(posterior, found, method, num_chains, error))
    heights = Heights.at(posterior, space, journal.found.mode, seed)
    short: Draws | None = None  # of the last window
    while True:
        if journal.setup is None:
            setup = _first(journal, posterior, space, init, num_chains, error, seed, clock)
            setup = setup if about_effects is None else setup.noted(effects=about_effects)
            try:
                journal.setup, short = _settled(
                    setup, journal.found, heights, clock, seed, free=transforms is None, devices=devices
                )
            except Interrupted as stopped:
                enough = Enough(error, 0, 1, clock, False, quantities)
                _certify(stopped.draws, setup, journal.found, heights, enough, clock, [Doubt(CHOOSING)])
                raise
        draws, may_be_cured = _run(
            journal, heights, keeping, theta, short, error=error, seed=seed, clock=clock, quantities=quantities, options=options
        )  # fmt: skip
        if draws.certificate.ok or not may_be_cured or clock.is_over() or journal.is_last_plan:
            break
        journal.next_plan()
    if not draws.certificate.ok:
        text = "ib.infer: NOT certified.\n" + "\n".join(f"- {reason}" for reason in draws.certificate.reasons)
        warnings.warn(text, UntrustworthyWarning, stacklevel=2)
    return draws


def _first(
    journal: Journal, posterior: Posterior, space: Space, init: PyTree, num_chains: int, error: float, seed: int, clock: Clock
) -> Setup:  # fmt: skip
    """What the plan that is under way begins with, or the one that then comes before it."""
    setup = choose(posterior, space, journal.found, journal.plans[journal.plan], num_chains, seed, clock, init)
    if journal.plan > 0:
        return setup
    better = trajectories_first(journal.plans, setup, journal.found, error)
    if better == journal.plans:
        return setup
    journal.plans = better
    return choose(posterior, space, journal.found, better[0], num_chains, seed, clock, init)


def _settled(
    setup: Setup, found: Found, heights: Heights | None, clock: Clock, seed: int, *, free: bool, devices: Any
) -> tuple[Setup, Draws]:
    """(the same with all that windows of draws say, draws of the last of them).

    That is steps, metric and transforms, and the gradient and the batch that suit these.
    """
    if setup.method == "full" and found.structure is not None:
        with clock.part("windows"):
            return settle_structured(setup, found.structure, clock, seed + 1, devices=devices)
    with clock.part("windows"):
        apart = bool(found.elsewhere.rivals)
        settled, draws = settle(setup, clock, seed + 1, heights=heights, free=free, apart=apart, devices=devices)
    if settled.metric is not setup.metric:
        settled = choose_again(settled, found, seed, clock)
    if draws.num_draws and draws.kernel.options["transforms"] is settled.transforms:
        with clock.part("noise"), suppress(OutOfTimeError), clock.until(1.0):
            settled = calmer_far_out(settled, draws) or settled
    return settled, draws


def _run(
    journal: Journal, heights: Heights | None, keeping: Keeping, theta: PyTree, short: Draws | None, *, error: float,
    seed: int, clock: Clock, quantities: dict[str, Callable[[PyTree], Any]], options: dict[str, Any],
) -> tuple[Draws, bool]:  # fmt: skip
    """The long run, again with shorter steps where they turn out too long; and whether another sampler may do better.

    Where there was no time for it the answer has the draws of a `short` one.
    """
    rounds = ROUNDS if journal.is_last_plan else ROUNDS_BEFORE_OTHERS
    while True:
        setup, found = journal.setup, journal.found
        assert setup is not None
        width = setup.metric.dimension * setup.num_chains * (1 if setup.method == "full" else 2)
        burn_in = ADAPTATION if setup.method == "full" else 10 + min(int(10 / setup.step_size), MOST_BURN_IN)
        most = int(max(1_000, min(MOST_DRAWS, MOST_NUMBERS // width)))
        enough = Enough(error, burn_in, most, clock, options["progress"], quantities)
        journal.save(keeping, theta)
        last = journal.round == rounds - 1 or clock.is_over()
        try:
            with clock.part("sampling"):
                draws = setup.sample(
                    burn_in + most,
                    burn_in=burn_in,
                    seed=seed,
                    until=enough,
                    on_failure="raise",
                    **options,
                    **keeping.of_run(journal.run),
                )
        except Interrupted as stopped:
            _certify(stopped.draws, setup, found, heights, enough, clock, [Doubt(INTERRUPTED)])
            stopped.args = (f"stopped after {stopped.draws.num_steps:,} steps. {keeping.how_to_resume()}",)
            raise
        except NonFiniteError as failed:
            if last:
                left = Doubt(f"a chain left the finite numbers: {failed}", of_sampler=True)
                return _certify(failed.draws, setup, found, heights, enough, clock, [left])
            journal.next_round(_calmer(setup, "bias"))
            continue
        if draws.num_draws < FEWEST_DRAWS and short is not None and short.num_draws >= FEWEST_DRAWS:
            return _certify(short, setup, found, heights, enough, clock, [Doubt(TOO_SHORT)])
        try:
            with clock.part("noise"), clock.until(1.0):
                calmer = calmer_far_out(setup, draws) if enough.why in MAY_BE_CERTIFIED else None
        except OutOfTimeError:
            return _certify(draws, setup, found, heights, enough, clock, [Doubt(FAR_OUT_UNKNOWN, of_sampler=True)])
        if calmer is not None:
            if last or clock.is_over():
                return _certify(draws, setup, found, heights, enough, clock, [Doubt(FAR_OUT, of_sampler=True)])
            journal.next_round(calmer.from_here(draws))
            continue
        divergent = _divergent(draws)
        if last or clock.is_over() or not (enough.why in ("bias", "noise") or divergent > MOST_DIVERGENT):
            break
        if setup.method == "full" and setup.acceptance >= MOST_ACCEPTANCE:
            break
        journal.next_round(_calmer(setup if fallen(setup, draws, heights) else setup.from_here(draws), enough.why))
    return _certify(draws, setup, found, heights, enough, clock, [])


def _calmer(setup: Setup, why: str) -> Setup:
    """With shorter steps, or less noise."""
    if setup.method == "full":
        return replace(setup, acceptance=min(MOST_ACCEPTANCE, (1 + 3 * setup.acceptance) / 4))
    rows = setup.posterior.num_data
    if why == "noise" and not setup.whole and rows is not None:
        assert setup.batch_size is not None
        return replace(setup, batch_size=4 * setup.batch_size if 16 * setup.batch_size < rows else None)
    return replace(setup, step_size=setup.step_size / 2)


def _certify(
    draws: Draws, setup: Setup, found: Found, heights: Heights | None, enough: Enough, clock: Clock, against: list[Doubt]
) -> tuple[Draws, bool]:  # fmt: skip
    """The draws with what can be said of them, and whether all that speaks against them may be the sampler's fault."""
    draws.quantities.update(enough.quantities)
    if draws.num_draws >= FEWEST_DRAWS:
        enough.look(draws)
        enough.look_at_effects(draws)
        against = [*against, *doubts(draws, setup, found, heights, enough)]
    else:
        against = [*against, Doubt(_few(draws, found, clock), of_sampler=True)]
    known = enough.estimates
    steps = (
        f"leapfrogs adapted to an acceptance of {setup.acceptance:.2g}"
        if setup.method == "full"
        else f"{setup.step_size / 2:.2g} in the fine chain and {setup.step_size:.2g} in the coarse one, in posterior sds squared"
    )
    length = (
        f"{draws.num_draws:,} draws of {draws.num_chains} chains, then {ENDINGS.get(enough.why, 'it was stopped')}."
    )
    setup = setup.noted(steps=f"{steps}.", length=length)
    if enough.off:
        off = f" By a finer rule, that moves means and sds by {enough.off:.1g} posterior sds at most."
        setup = setup.noted(effects=setup.choices.get("effects", "") + off)
    parts = ("mean", "sd", "quantiles", "mean_error", "sd_error", "quantile_error")
    draws.certificate = Certificate(
        ok=not against,
        reasons=[doubt.text for doubt in against],
        error=enough.error,
        reached=enough.reached() if known else math.inf,
        **{part: enough.by_variable(part, setup.starts) for part in parts},
        bias=enough.by_variable("mean_bias", setup.starts),
        choices=setup.choices,
        costs=_costs(draws, setup, found, clock),
        method=setup.method,
        course=enough.course,
    )
    draws.seconds = clock.elapsed()
    return draws, all(doubt.of_sampler for doubt in against)


def _few(draws: Draws, found: Found, clock: Clock) -> str:
    """That there are too few draws to say anything, and where the time went."""
    parts = ", ".join(
        f"{name} {seconds:.2g} s" for name, seconds in clock.parts.items() if seconds > 0.05 * clock.elapsed()
    )
    searched = found.mode is not None and found.mode.reason == NO_TIME
    return (
        f"there are {draws.num_draws} draws per chain only, after {draws.num_steps:,} steps. Of the time went: {parts}. "
        f"{'The search for the mode had not ended. ' if searched else ''}Give it more `seconds`."
    )


def _divergent(draws: Draws) -> float:
    """Share of trajectories that left the level of their energy."""
    return float(np.mean(draws.stats["divergent"])) if "divergent" in draws.stats and draws.num_draws else 0.0


def _costs(draws: Draws, setup: Setup, found: Found | None, clock: Clock) -> dict[str, float]:
    """What it took: passes over all the data for the mode, gradients of single rows for the draws, and seconds."""
    rows = setup.posterior.num_data or 1
    if setup.method == "full":
        gradients = float(np.sum(draws.stats["leapfrogs"])) * rows
    else:
        of_steps = 3.0 * rows if setup.batch_size is None else 2.5 * setup.batch_size  # two fine ones and a coarse one
        gradients = of_steps * draws.num_steps * draws.num_chains
    passes = 0 if found is None or found.mode is None else found.mode.passes
    return {"gradients of rows": gradients, "passes for the mode": passes} | {
        f"seconds of {name}": seconds for name, seconds in clock.parts.items()
    }


def _check(error: float, method: str, num_chains: int, seed: int) -> None:
    _positive("error", error)
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    whole_number("num_chains", num_chains, 2)
    whole_number("seed", seed, 0)


def _check_names(model: Any, kwargs: dict[str, Any]) -> None:
    """Raise a TypeError where neither `infer` nor the model has an argument of that name."""
    own = [name for name, p in inspect.signature(infer).parameters.items() if p.kind is p.KEYWORD_ONLY]
    theirs: list[str] = []
    if callable(model):
        try:
            parameters = inspect.signature(model).parameters
        except (TypeError, ValueError):  # it does not say
            return
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        theirs = list(parameters)
    for name in kwargs:
        if name not in theirs:
            nor = " and neither has the model" if theirs else ""
            raise TypeError(f"ib.infer has no argument {name!r}{nor}.{nearest(name, [*own, *theirs])}")


def _check_quantities(posterior: Posterior, quantities: dict[str, Callable[[PyTree], Any]], theta: PyTree) -> None:
    """Raise a ValueError where a quantity cannot be made, or has the name of a variable."""
    taken = {variable_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(theta)}
    taken |= set(jax.eval_shape(posterior.deterministics, theta)) if quantities else set()
    for name, function in quantities.items():
        if not callable(function):
            raise ValueError(f"The quantity {name!r} must be a function of theta; got {type(function).__name__}.")
        if name in taken:
            raise ValueError(f"The quantity {name!r} has the name of a variable of the model. Give it another one.")
        made: Any = jax.eval_shape(function, theta)
        if not isinstance(made, jax.ShapeDtypeStruct):
            raise ValueError(
                f"The quantity {name!r} must return one array or number; got {type(made).__name__}. Give each part a name of its own."
            )


def _check_size(posterior: Posterior, space: Space, theta: PyTree, method: str) -> None:
    """Raise a ValueError where the posterior is too large for what it gives, or for the method."""
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), jax.numpy.result_type(float)), theta)
    size = trees.size(jax.eval_shape(space.unconstrain, like))
    has_density = posterior.gradient is None and posterior.has_density
    by_hand = "Choose by hand: a kernel in `ib.metrics.low_rank(...)`, `per_row(...)` or `arrow(...)`, sampled by `ib.sample`."
    if size > (MOST_DIMENSIONS if has_density else MOST_DENSE):
        more = "" if has_density else ", where a posterior gives gradients alone"
        most = MOST_DIMENSIONS if has_density else MOST_DENSE
        raise ValueError(f"ib.infer takes up to {most:,} dimensions{more}; this posterior has {size:,}. {by_hand}")
    if size > MOST_DENSE and method == "minibatch":
        raise ValueError(
            f"ib.infer takes minibatches in a dense metric, in up to {MOST_DENSE:,} dimensions; this posterior has {size:,}. Leave `method` "
            f'out, or take method="full". {by_hand}'
        )


def _positive(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"`{name}` must be a positive number; got {value!r}.")
    return number
