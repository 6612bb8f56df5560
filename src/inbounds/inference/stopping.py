"""When a run has enough draws: at fixed numbers of steps the total error of everything is worked out anew."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from inbounds.inference.certificate import QUANTILES, Estimates, estimate
from inbounds.inference.clock import Clock
from inbounds.inference.effects import error_of_density
from inbounds.inference.setup import coarse_theta
from inbounds.sampling import Draws
from inbounds.sampling.draws import each_quantity
from inbounds.sampling.verdict import r_hat_by_chance
from inbounds.trees import PyTree, variable_name

__all__ = ["Enough", "Late", "both"]

FIRST_LOOK = 400  # draws per chain
GROWTH = 1.5  # of the number of draws from one look to the next
LEAST_ESS = 400
ENDING = 3.0  # times the last look that the last one and the certificate take: there are more draws by then
BIAS_SHARE = 0.4  # of the tolerance that bias may take
MOST_CLAMPED = 0.01
FAR_APART = 1.1  # R-hat
SETTLED = 100  # effective draws of a chain around its own mean
MOST_STEPS = 2**31  # of a run: there is no look before them
LINE_SECONDS = 10.0  # between two lines of a run without a terminal

Pairs = dict[str, tuple[np.ndarray, np.ndarray | None]]


class Late:
    """Ends a run of a fixed length when the time is over."""

    words = ""

    def __init__(self, clock: Clock):
        self.clock = clock

    def next_look(self, done: int) -> int:
        return MOST_STEPS

    def enough(self, draws: Draws) -> bool:
        return False

    def is_late(self) -> bool:
        return self.clock.is_over()


class Enough:
    """Looks at a run now and then, and ends it when its error is small enough, or when longer is no cure.

    Args:
        error: twice the total error of every mean and sd is to be within it.
        burn_in: of the run.
        most: draws per chain, at which it ends anyway.
        clock: that says when the time is over.
        progress: whether to say how far it is.
        quantities: functions of theta that count, too.

    Attributes:
        names: of the variables, in the order of `estimates`.
        estimates: by variable, at the last look.
        off: what the density itself may move means and sds by, in posterior sds; None until it is asked for.
        why: "error", "chains", "bias", "noise", "density", "draws" or "time", when the run has ended.
        words: for the bar.
        course: of each look (seconds since the beginning, draws per chain, error reached).
    """

    def __init__(
        self, error: float, burn_in: int, most: int, clock: Clock, progress: bool,
        quantities: dict[str, Callable[[PyTree], Any]],
    ):  # fmt: skip
        self.quantities, self.each_quantity = quantities, each_quantity(quantities)
        self.error, self.burn_in, self.most, self.clock, self.progress = error, burn_in, most, clock, progress
        self.estimates: dict[str, Estimates] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.off: float | None = None
        self.effects: dict[int, Pairs] = {}  # that were drawn last, by the number of draws
        self.why = ""
        self.words = ""
        self.course: list[tuple[float, int, float]] = []
        self.said = time.perf_counter()
        self.took = 0.0  # seconds of the last look

    def next_look(self, done: int) -> int:
        draws = float(FIRST_LOOK)
        while self.burn_in + math.ceil(draws) <= done:
            draws *= GROWTH
        return self.burn_in + min(math.ceil(draws), self.most)

    def is_late(self) -> bool:
        if self.clock.is_over(ENDING * self.took):
            self.why = self.why or "time"
        return self.why == "time"

    def enough(self, draws: Draws) -> bool:
        began = time.perf_counter()
        self.look(draws)
        if self.reached() <= self.error:  # these take a while
            self.off = error_of_density(draws) if self.off is None else self.off
            self.look_at_effects(draws)
        reached = self.reached()
        self.took = time.perf_counter() - began
        self.course.append((self.clock.elapsed(), draws.num_draws, reached))
        self._say(draws, reached)
        with np.errstate(invalid="ignore"):  # both are infinite where a draw is not finite
            excess = [np.maximum(e.mean_bias, e.sd_bias) - 2 * e.noise_of_bias for e in self._all()]
        biased = max((float(np.max(one, initial=0)) for one in excess), default=0.0)
        if self.apart():
            self.why = "chains"
        elif not np.isfinite(reached):
            self.why = "bias"
        elif float(np.mean(draws.stats["clamped"])) > MOST_CLAMPED:
            self.why = "noise"
        elif biased > BIAS_SHARE * self.error:
            self.why = "bias"
        elif 2 * (self.off or 0.0) > self.error:
            self.why = "density"
        elif reached <= self.error and not self.disagreeing() and self.least_ess() >= LEAST_ESS:
            self.why = "error"
        elif draws.num_draws >= self.most:
            self.why = "draws"
        return bool(self.why)

    def look(self, draws: Draws) -> None:
        """Work out the errors of all the variables."""
        draws.quantities.update(self.quantities)
        draws.each_quantity = self.each_quantity
        self.estimates = {}
        self._estimate(both(draws))
        self.num_chains, self.num_draws = draws.num_chains, draws.num_draws

    def look_at_effects(self, draws: Draws) -> None:
        """The same for the effects of groups that were integrated out, where they are few: they are drawn now."""
        if draws.num_draws not in self.effects:
            fine = draws.posterior.draw_effects(draws.theta) or {}
            coarse = draws.posterior.draw_effects(coarse_theta(draws)) if fine and "coarse" in draws.stats else None
            self.effects = {draws.num_draws: {n: (x, None if coarse is None else coarse[n]) for n, x in fine.items()}}
        found = self.effects[draws.num_draws]
        draws.drawn.update({name: fine for name, (fine, _) in found.items()})
        self._estimate(found)

    def _estimate(self, pairs: Pairs) -> None:
        for name, (fine, coarse) in pairs.items():
            flat = [None if x is None else np.reshape(x, (*x.shape[:2], -1)) for x in (fine, coarse)]
            assert flat[0] is not None
            self.shapes[name] = fine.shape[2:]
            self.estimates[name] = estimate(flat[0], flat[1])

    def by_variable(self, part: str, starts: PyTree) -> dict[str, np.ndarray]:
        """A part of the estimates, shaped like the variables; NaN, or infinite errors, where nothing is known."""
        if self.estimates:
            found = {name: getattr(e, part) for name, e in self.estimates.items()}
            if self.off and ("error" in part or part == "mean_bias"):
                found = {name: np.hypot(x, self.off) for name, x in found.items()}
            return {name: x.reshape((*self.shapes[name], *x.shape[1:])) for name, x in found.items()}
        nothing = np.inf if "error" in part or "bias" in part else np.nan
        more = (len(QUANTILES),) if part.startswith("quantile") else ()
        return {
            variable_name(path): np.full((*leaf.shape[1:], *more), nothing)
            for path, leaf in jax.tree_util.tree_leaves_with_path(starts)
        }

    def reached(self) -> float:
        """Twice the largest total error of a mean or an sd."""
        largest = max(
            (float(np.max(np.maximum(e.mean_error, e.sd_error), initial=0)) for e in self._all()), default=math.inf
        )
        return 2 * math.hypot(largest, self.off or 0.0)

    def least_ess(self) -> float:
        return min((float(np.min(e.ess, initial=np.inf)) for e in self._all()), default=0.0)

    def disagreeing(self) -> list[tuple[str, float]]:
        """(variable, its R-hat) where the chains do not agree, the worst first."""
        numbers = sum(e.r_hat.size for e in self._all())
        found = []
        for name, e in self.estimates.items():
            most = r_hat_by_chance(np.minimum(e.ess, 1e9), self.num_chains, self.num_draws, max(1, numbers))
            if np.any(e.r_hat > most):
                found.append((name, float(np.max(e.r_hat))))
        return sorted(found, key=lambda one: -one[1])

    def apart(self) -> bool:
        """Whether chains that have each settled lie apart: longer is no cure."""
        settled = SETTLED * self.num_chains
        return any(np.any((e.r_hat > FAR_APART) & (e.ess_within > settled)) for e in self._all())

    def _all(self) -> list[Estimates]:
        return list(self.estimates.values())

    def _say(self, draws: Draws, reached: float) -> None:
        self.words = f"error {reached:.2g} of {self.error:g}"
        if np.isfinite(reached) and reached > self.error:
            rest = draws.seconds * ((reached / self.error) ** 2 - 1)
            self.words += f", about {_duration(rest)} left"
        now = time.perf_counter()
        if self.progress and not sys.stderr.isatty() and now - self.said > LINE_SECONDS:
            self.said = now
            logging.getLogger("inbounds").info("ib.infer: %s draws per chain, %s", f"{draws.num_draws:,}", self.words)


def both(draws: Draws) -> Pairs:
    """Of each variable the draws of the fine and of the coarse chains, axes (chain, draw, ...)."""
    fine = {name: x for name, x in draws.variables().items() if name not in draws.drawn}
    if "coarse" not in draws.stats:
        return {name: (np.asarray(x), None) for name, x in fine.items()}
    theta = coarse_theta(draws)
    coarse = {variable_name(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(theta)}
    coarse |= draws.functions_of(theta)
    return {name: (np.asarray(x), coarse[name]) for name, x in fine.items()}


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
