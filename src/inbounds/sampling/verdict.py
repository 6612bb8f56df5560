"""What a run says at its end: whether its draws can be trusted, and if not, why, and what to do.

Every note has a section in `docs/warnings.md`. Thresholds hold for all the numbers of a run together: a run with the right law and a
thousand effective draws says something once in a hundred times, however many variables it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri, ndtri

from inbounds.sampling.convergence import Convergence

__all__ = [
    "Note",
    "UntrustworthyWarning",
    "announcement",
    "chains_agree",
    "drift_by_chance",
    "listed",
    "moves",
    "noise_is_absorbed",
    "of_several_temperatures",
    "off_the_bounds",
    "r_hat_by_chance",
    "restarted",
    "too_short",
]

PAGE = "docs/warnings.md"
FEWEST_DRAWS = 100  # per chain, from which on a run is judged
LEAST_ESS = 100
R_HAT, BAD_R_HAT = 1.01, 1.05
LEAST_DRIFT = 0.1  # sds
FALSE_ALARMS = 0.001  # of R-hat, and of drift, in runs with the right law, if their ESS were known; it is estimated
MOST_CLAMPED = 0.01  # share of coordinates and steps beyond which draws are too wide by more than a little
AT_A_BOUND = 0.01  # share of draws
SHOWN = 3  # variables that a note names


class UntrustworthyWarning(UserWarning):
    """The draws of a run are not to be trusted as they are; the message says why, and what to do.

    Filter it as any other: `warnings.filterwarnings("ignore", category=ib.UntrustworthyWarning)`. The notes stay in `Draws.warnings()`.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=ib.UntrustworthyWarning)
    """


class Note(NamedTuple):
    """One thing to know of a run.

    Attributes:
        section: of the page `docs/warnings.md`.
        text: what was found, the numbers, and what to do.
        loud: whether the run warns of it, and does not only mention it in its summary.
    """

    section: str
    text: str
    loud: bool = True

    def __str__(self) -> str:
        return f"{self.text} ({PAGE}#{self.section})"


def too_short(draws: int) -> list[Note]:
    """A run of few draws is not judged."""
    if draws >= FEWEST_DRAWS:
        return []
    what = (
        f"too short to be judged: {draws:,} draws per chain, and it takes {FEWEST_DRAWS}. Its numbers are a first look."
    )
    return [Note("too-short", what, loud=False)]


def of_several_temperatures() -> list[Note]:
    """Draws of several laws are not judged as if they had one."""
    what = (
        "the chains have temperatures of their own, or one that changes, so that their draws have no one law: R-hat, ESS and quantiles "
        "of all of them together say nothing. Look at one chain at a time, as in draws.theta[name][0]."
    )
    return [Note("not-judged", what, loud=False)]


def chains_agree(
    names: Sequence[str], found: Convergence, chains: int, draws: int, numbers: int | None = None
) -> list[Note]:
    """Notes on R-hat, on effective sample sizes and on drift, for all the numbers of a run together.

    Args:
        names: of the numbers that were looked at.
        found: for each of them.
        chains, draws: how many there are of each number, of draws per chain.
        numbers: of which they seemed worst; None: there are no others.
    """
    notes: list[Note] = []
    known = np.isfinite(found.ess)
    if not known.any():
        return notes
    numbers = int(known.sum()) if numbers is None else numbers
    ess = np.where(known, np.fmin(found.ess, found.ess_tail), np.inf)
    r_hat = np.where(known, np.nan_to_num(found.r_hat, nan=1.0, posinf=np.inf), 1.0)
    bad = r_hat > np.where(ess < LEAST_ESS, R_HAT, r_hat_by_chance(found.ess_within, chains, draws, numbers))
    if bad.any():
        who = "the chains do not agree" if chains > 1 else "the two halves of the chain do not agree"
        notes.append(
            Note(
                "r-hat",
                f"R-hat is {listed(names, r_hat, bad, '.3g')}: {who.upper() if r_hat.max() > BAD_R_HAT else who}. Run longer, with a longer "
                "`burn_in` or a better start (`init`). Chains in different modes never meet, however long they run: look at each.",
            )
        )
    few = ess < LEAST_ESS
    if few.any():
        notes.append(
            Note(
                "ess",
                f"The effective sample size is {listed(names, -ess, few, '.0f', sign=-1)} of {chains * draws:,} draws: means are rough, sds "
                f"and quantiles more so. It takes {LEAST_ESS} at least: run longer, or let the chain move faster (a larger step size if "
                "the doctor allows one, a preconditioner, a control variate).",
            )
        )
    far = np.where(known, np.abs(found.drift), 0.0) > drift_by_chance(found.ess_within, numbers)
    if far.any():
        notes.append(
            Note(
                "drift",
                f"The second half of the run lies off the first, in sds, by {listed(names, found.drift, far, '+.2g')}: the chains had "
                "not settled. Take a longer `burn_in` or a better start; if they drift on and on, the posterior may be improper (`ib.check`).",
            )
        )
    return notes


def moves(names: Sequence[str], still: np.ndarray) -> list[Note]:
    """A note on numbers that are the same in all the draws of a chain: to R-hat and ESS nothing is as settled as they."""
    if not still.any():
        return []
    shown = listed(names, np.ones(len(still)), still, ".0f").replace("1 for ", "")
    return [
        Note(
            "stands-still",
            f"All draws of a chain are the same number for {shown}: they say nothing of the posterior. Its steps are shorter than the way to "
            "the next float and are rounded off, or, with ib.lazy_rows, no data touched it. Take larger steps, centre and scale the data, or "
            "let JAX have doubles: jax.config.update('jax_enable_x64', True).",
        )
    ]


def r_hat_by_chance(ess: np.ndarray, chains: int, draws: int, numbers: int) -> np.ndarray:
    """The R-hat that chains of the right law exceed rarely, for any of so many numbers; at least 1.01.

    Means of half chains differ by chance: n times their variance over that of the draws is chi-square, in units of draws per effective draw.
    Two R-hats per number are looked at, of draws and of distances to the median. How many draws are effective is estimated, and in halves
    of a few effective draws overestimated, by about their share.
    """
    halves = 2 * chains
    share = np.minimum(halves / np.maximum(ess, 1.0), 0.5)
    spread = share / (1 - share) * (1 + 2 * share) * chdtri(halves - 1, FALSE_ALARMS / (2 * numbers)) / (halves - 1)
    result: np.ndarray = np.maximum(R_HAT, np.sqrt(1 - 1 / max(1, draws // 2) + spread))
    return result


def drift_by_chance(ess: np.ndarray, numbers: int) -> np.ndarray:
    """The distance between halves, in sds, that chains of the right law exceed rarely; at least a tenth."""
    error = 2 / np.sqrt(np.maximum(ess, 1.0))
    result: np.ndarray = np.maximum(LEAST_DRIFT, -ndtri(FALSE_ALARMS / (2 * numbers)) * error)
    return result


def noise_is_absorbed(clamped: float) -> list[Note]:
    """Notes on the share of coordinates and steps in which noise correction was at its end."""
    if not clamped > 0:
        return []
    share = f"{clamped:.1%}" if clamped >= 0.0005 else "less than 0.1%"
    return [
        Note(
            "clamped",
            f"Gradient noise exceeds what correction can absorb (step size times variance above 2) in {share} of "
            "coordinates and steps: the draws are too wide there. Use a smaller step size, a larger batch, or "
            "gradient=ib.gradients.control_variate(...).",
            clamped > MOST_CLAMPED,
        )
    ]


def restarted(share: float) -> list[Note]:
    """What the `ito` kernel does where others are clamped."""
    if not share > 0:
        return []
    return [Note("clamped", f"The chain left the range of floats and was restarted in {share:.1%} of the steps.")]


def off_the_bounds(names: Sequence[str], shares: np.ndarray) -> list[Note]:
    """A note on numbers of which a share of the draws is the float next to a bound."""
    at = shares > AT_A_BOUND
    if not at.any():
        return []
    return [
        Note(
            "bounds",
            f"Of the draws, {listed(names, shares, at, '.0%')} are the number next to a bound, as far as floats go: the mass lies nearer "
            "to it than they can tell. `draws.log_theta()` has what is lost at a lower end; means of theta are right, those of log theta not.",
        )
    ]


def listed(names: Sequence[str], values: np.ndarray, chosen: np.ndarray, form: str, sign: int = 1) -> str:
    """The values that are largest in size, each with its variable, and how many more there are."""
    places = np.flatnonzero(chosen)
    order = places[np.argsort(-(np.abs(values[places]) if sign > 0 else values[places]), kind="stable")]
    shown = [f"{sign * values[i]:{form}} for {names[i]!r}" for i in order[:SHOWN]]
    more = len(order) - len(shown)
    return ", ".join(shown) + (f" (and as bad for {more:,} more)" if more else "")


def announcement(kernel: str, notes: Sequence[Note]) -> str:
    """The text of the one warning at the end of a run; empty where there is nothing to warn of."""
    lines = "\n".join(f"- {note}" for note in notes if note.loud)
    return lines and f"The draws of this run of {kernel} cannot be trusted as they are:\n{lines}"
