r"""How wrong an answer is: the Monte Carlo error and the bias of every mean, sd and quantile, in posterior standard deviations.

Let $A_f$ and $A_c$ be what a chain and one with twice its step size say of a number. The scheme is of second order, so that
$A_f - (A_c - A_f) / 3$ has lost the leading term of the bias (Richardson). Its Monte Carlo error is that of the series of which it is the
mean, the noise of the difference included. What may be left of the bias is taken to be as large as what was removed: were the scheme of
first order, what is left would be just twice that.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from inbounds.sampling.convergence import convergence, ess_of_means
from inbounds.sampling.leave_one_out import pareto_fit

__all__ = ["Certificate", "Estimates", "estimate", "heaviest_tail"]

QUANTILES = (0.05, 0.5, 0.95)
ORDER_FACTOR = 3  # 2^2 - 1: a scheme of second order
DENSITY_SHARE = 0.025  # of the draws on either side of a quantile, for the density there
FEWEST_IN_TAIL = 20  # draws, for its index
BLOCK_NUMBERS = 2**21  # of draws that are looked at together


@dataclass(frozen=True, repr=False)
class Certificate:
    """Whether an answer may be believed, and how far each of its numbers may be off.

    Errors are in posterior sds, shaped like the variable (quantiles with a last axis for 5, 50 and 95%): one standard error, Monte Carlo and
    bias together. An error bar shows twice that.

    Attributes:
        ok: whether all the means and sds are within the tolerance, and nothing speaks against them.
        reasons: why not, each a sentence with its cure. Empty where `ok`.
        error: the tolerance: twice the total error of every mean and sd is to be within it.
        reached: twice the largest total error of a mean or an sd.
        mean, sd, quantiles: the estimates, by variable, after the correction for step size.
        mean_error, sd_error, quantile_error: their total errors, by variable.
        bias: the part of `mean_error` that is bias.
        choices: what was chosen, by name, and why.
        costs: gradients of rows, passes over the data, and seconds of each part of the work, by name.
        method: "minibatch" or "full".
        course: how it got there: of each look at the draws (seconds since the beginning, draws per chain, `reached`).
    """

    ok: bool
    reasons: list[str]
    error: float
    reached: float
    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]
    quantiles: dict[str, np.ndarray]
    mean_error: dict[str, np.ndarray]
    sd_error: dict[str, np.ndarray]
    quantile_error: dict[str, np.ndarray]
    bias: dict[str, np.ndarray]
    choices: dict[str, str]
    costs: dict[str, float] = field(default_factory=dict)
    method: str = "minibatch"
    course: list[tuple[float, int, float]] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([self._head(), *(f"- {reason}" for reason in self.reasons), self.paragraph()])

    def __repr__(self) -> str:
        return f"<{self._head()}>"

    def _repr_html_(self) -> str:
        reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in self.reasons)
        choices = "".join(
            f'<tr><th>{html.escape(name)}</th><td style="text-align: left">{html.escape(why)}</td></tr>'
            for name, why in self.choices.items()
        )
        return f"<p>{html.escape(self._head())}</p>{reasons and f'<ul>{reasons}</ul>'}<table><tbody>{choices}</tbody></table>"

    def _head(self) -> str:
        head = "Certified" if self.ok else "NOT certified"
        reached = f"{self.reached:.2g}" if np.isfinite(self.reached) else "not known"
        return f"{head}: twice the largest total error is {reached} posterior sds, of {self.error:g} asked for."

    def paragraph(self) -> str:
        """What was chosen, and why, as text."""
        return " ".join(f"{name.capitalize()}: {why}" for name, why in self.choices.items())


class Estimates(NamedTuple):
    """What draws say of numbers, and how far that may be off; one entry per number, errors in posterior sds.

    Attributes:
        mean, sd, quantiles: after the correction for step size.
        mean_error, sd_error, quantile_error: total errors.
        mean_bias, sd_bias: their part that is bias.
        noise_of_bias: Monte Carlo error of the two parts, the larger of them.
        r_hat, ess, ess_within: rank-normalised, of the fine chains; the last one as if the chains agreed.
    """

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray
    quantile_error: np.ndarray
    mean_bias: np.ndarray
    sd_bias: np.ndarray
    noise_of_bias: np.ndarray
    r_hat: np.ndarray
    ess: np.ndarray
    ess_within: np.ndarray


def estimate(fine: np.ndarray, coarse: np.ndarray | None = None) -> Estimates:
    """Means, sds and quantiles with their total errors.

    Args:
        fine: draws, axes (chain, draw, number).
        coarse: those of the chains with twice the step size, of the same shape; None where the draws have no bias.

    Returns:
        One entry per number. Errors are infinite where a draw is not finite, and 0 where a number does not vary.
    """
    numbers = fine.shape[2]
    at_once = max(1, BLOCK_NUMBERS // (fine.shape[0] * fine.shape[1]))
    blocks = [
        _of_block(
            np.asarray(fine[:, :, i : i + at_once], np.float64),
            None if coarse is None else np.asarray(coarse[:, :, i : i + at_once], np.float64),
        )
        for i in range(0, numbers, at_once)
    ]
    return Estimates(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _of_block(fine: np.ndarray, coarse: np.ndarray | None) -> Estimates:
    finite = np.isfinite(fine).all(axis=(0, 1))
    if coarse is not None:
        finite &= np.isfinite(coarse).all(axis=(0, 1))
        coarse = np.where(finite, coarse, 0.0)
    fine = np.where(finite, fine, 0.0)
    sd = fine.std(axis=(0, 1))
    varies = sd > 1e-12 * np.maximum(np.abs(fine).max(axis=(0, 1)), 1e-300)
    unit = np.where(varies, sd, 1.0)
    # In posterior sds around the mean, so that no scale of the data sets the precision.
    center = fine.mean(axis=(0, 1))
    x = (fine - center) / unit
    y = None if coarse is None else (coarse - center) / unit
    mean, mean_noise, mean_bias, noise_1 = _richardson(x, y)
    spread, spread_noise, spread_bias, noise_2 = _richardson(_sd_series(x), None if y is None else _sd_series(y))
    quantiles, quantile_error = [], []
    for share in QUANTILES:
        of_coarse = None if y is None else _quantile_series(y, share)
        at, noise, bias, _ = _richardson(_quantile_series(x, share), of_coarse)
        within = fine.min(axis=(0, 1)), fine.max(axis=(0, 1))  # so that none is out of bounds
        quantiles.append(np.clip(center + unit * at, *within))
        quantile_error.append(np.hypot(noise, bias))
    found = convergence(fine)

    def whole(values: np.ndarray, still: float, lost: float) -> np.ndarray:
        """With what stands for a number that does not vary, and for one that is not finite."""
        shape = (-1,) + (1,) * (values.ndim - 1)
        return np.where(finite.reshape(shape), np.where(varies.reshape(shape), values, still), lost)

    return Estimates(
        mean=whole(center + unit * mean, 0.0, np.nan) + np.where(varies | ~finite, 0.0, center),
        sd=whole(unit * spread, 0.0, np.nan),
        quantiles=np.where(finite[:, None], np.stack(quantiles, axis=-1), np.nan),
        mean_error=whole(np.hypot(mean_noise, mean_bias), 0.0, np.inf),
        sd_error=whole(np.hypot(spread_noise, spread_bias), 0.0, np.inf),
        quantile_error=whole(np.stack(quantile_error, axis=-1), 0.0, np.inf),
        mean_bias=whole(np.abs(mean_bias), 0.0, np.inf),
        sd_bias=whole(np.abs(spread_bias), 0.0, np.inf),
        noise_of_bias=whole(np.maximum(noise_1, noise_2), 0.0, np.inf),
        r_hat=whole(found.r_hat, 1.0, np.inf),
        ess=whole(np.fmin(found.ess, found.ess_tail), np.inf, 0.0),
        ess_within=whole(found.ess_within, 0.0, 0.0),
    )


def _richardson(x: np.ndarray, y: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(estimate, its Monte Carlo error, bias removed, Monte Carlo error of that) of the mean of a series."""
    if y is None:
        return x.mean(axis=(0, 1)), _noise(x), np.zeros(x.shape[2]), np.zeros(x.shape[2])
    difference = (y - x) / ORDER_FACTOR
    bias = difference.mean(axis=(0, 1))
    return x.mean(axis=(0, 1)) - bias, _noise(x - difference), bias, _noise(difference)


def _noise(series: np.ndarray) -> np.ndarray:
    """Monte Carlo error of the mean of a series."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(series.std(axis=(0, 1)) / np.sqrt(np.maximum(ess_of_means(series), 1.0)))


def _sd_series(x: np.ndarray) -> np.ndarray:
    """A series whose mean is the sd, and whose noise is that of the sd: its influence function."""
    centred = x - x.mean(axis=(0, 1))
    sd = np.sqrt(np.mean(centred**2, axis=(0, 1)))
    safe = np.where(sd > 0, sd, 1.0)
    return np.asarray(sd + (centred**2 - sd**2) / (2 * safe))


def _quantile_series(x: np.ndarray, share: float) -> np.ndarray:
    """The same for a quantile."""
    low, at, high = np.quantile(
        x, (max(share - DENSITY_SHARE, 0.0), share, min(share + DENSITY_SHARE, 1.0)), axis=(0, 1)
    )
    density = 2 * DENSITY_SHARE / np.maximum(high - low, 1e-12)
    below = (x <= at).astype(np.float64)
    return np.asarray(at + (below.mean(axis=(0, 1)) - below) / density)


def heaviest_tail(draws: np.ndarray) -> np.ndarray:
    """Of each number the index k of the heavier tail, less its uncertainty: from 0.5 on the variance is infinite.

    Draws beyond a threshold have about a generalised Pareto law, whose k the estimator of Zhang and Stephens (2009) finds.

    Args:
        draws: axes (chain, draw, number).
    """
    count = draws.shape[0] * draws.shape[1]
    tail = int(min(0.1 * count, 3 * np.sqrt(count)))
    if tail < FEWEST_IN_TAIL:
        return np.zeros(draws.shape[2])
    flat = np.sort(np.asarray(draws, np.float64).reshape(count, -1), axis=0).T
    worst = np.full(len(flat), -np.inf)
    for values in (flat, -flat[:, ::-1]):
        beyond = values[:, -tail:] - values[:, -tail - 1 : -tail]
        usable = np.isfinite(beyond).all(axis=1) & (beyond[:, 0] > 0)  # not a bound at which draws are equal
        found = np.full(len(flat), -np.inf)
        if usable.any():
            k, _ = pareto_fit(beyond[usable])
            found[usable] = k - 2 * (1 + np.maximum(k, 0)) / np.sqrt(tail)
        worst = np.maximum(worst, found)
    return worst
