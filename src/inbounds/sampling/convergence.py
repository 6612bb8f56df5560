"""Effective sample sizes and R-hat of many numbers at once.

The rank-normalised, split versions of Vehtari, Gelman, Simpson, Carpenter and Bürkner, "Rank-normalization, folding, and localization: an
improved R-hat for assessing convergence of MCMC" (2021), as ArviZ has them, but with every operation on an array of all the numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.fft
from scipy.special import ndtri

__all__ = ["Convergence", "convergence", "ess_of_means"]

TAILS = (0.05, 0.95)
FEWEST = 4  # draws per chain from which halves of chains have a variance
HIDDEN = 6  # times that what a mean hides is solved for
FIRST_LAGS = 32  # of an autocorrelation that are looked at first
BLOCK_NUMBERS = 2**16  # of draws that are looked at together: their copies stay in the cache of the processor


class Convergence(NamedTuple):
    """One value per number, shape (numbers,).

    Attributes:
        ess: effective sample size of the bulk (of rank-normalised draws).
        ess_tail: the smaller of those of the two 5% tails.
        r_hat: the larger of the rank-normalised split R-hats of the draws and of their distances to the median.
        ess_within: the smallest of the three if the chains agreed, from the half chains around their own means; at most the draws.
        drift: mean of the second halves of the chains minus that of the first ones, rank-normalised, in sds of the half chains.
    """

    ess: np.ndarray
    ess_tail: np.ndarray
    r_hat: np.ndarray
    ess_within: np.ndarray
    drift: np.ndarray


def convergence(draws: np.ndarray) -> Convergence:
    """How well chains have converged.

    Args:
        draws: axes (chain, draw, number). One chain is enough: it is compared with itself, half by half.

    Returns:
        One value of each kind per number; NaN where there are fewer than 4 draws per chain, or where a draw is not finite.
    """
    chains, length, numbers = draws.shape
    if length < FEWEST:
        return Convergence(*np.full((len(Convergence._fields), numbers), np.nan))
    at_once = max(1, BLOCK_NUMBERS // (chains * length))
    blocks = [_of_block(draws[:, :, i : i + at_once]) for i in range(0, numbers, at_once)]
    return Convergence(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def ess_of_means(draws: np.ndarray) -> np.ndarray:
    """Effective sample sizes for means: of the draws themselves, and not of their ranks; axes (chain, draw, number)."""
    if draws.shape[1] < FEWEST:
        return np.full(draws.shape[2], np.nan)
    return _effective(_halves(np.ascontiguousarray(np.moveaxis(draws, -1, 0), np.float64)))[0]


def _of_block(draws: np.ndarray) -> Convergence:
    draws = np.ascontiguousarray(np.moveaxis(draws, -1, 0), np.float64)
    bad = ~np.isfinite(draws).all(axis=(1, 2))
    draws[bad] = 0.0
    halves = _halves(draws)
    count = halves[0].size
    by_rank = _of_rank(np.arange(1, count + 1), count)
    ranked, in_order = _normal_scores(halves, by_rank)
    folded, _ = _normal_scores(np.abs(halves - _quantile(in_order, 0.5)), by_rank)
    if draws.shape[-1] % 2:  # the halves leave out a draw
        in_order = np.sort(draws.reshape(len(draws), -1), axis=1)
    bulk, *tails = (_effective(x) for x in (ranked, *(_reaches(halves, in_order, q) for q in TAILS)))
    values = Convergence(
        ess=bulk[0],
        ess_tail=np.minimum(tails[0][0], tails[1][0]),
        r_hat=np.fmax(_r_hat(ranked), _r_hat(folded)),
        ess_within=np.minimum.reduce([bulk[1], tails[0][1], tails[1][1]]),
        drift=_drift(ranked),
    )
    return Convergence(*(np.where(bad, np.nan, value) for value in values))


def _halves(draws: np.ndarray) -> np.ndarray:
    """Axes (number, chain, draw) to (number, half chain, draw): the first halves, then the second ones."""
    half = draws.shape[-1] // 2
    return np.concatenate([draws[..., :half], draws[..., -half:]], axis=1)


def _normal_scores(draws: np.ndarray, by_rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quantile of a standard normal that belongs to the rank of each draw among all those of its number; and those in order."""
    flat = draws.reshape(len(draws), -1)
    order = np.argsort(flat, axis=1)
    in_order = np.take_along_axis(flat, order, axis=1)
    scores = np.empty_like(flat)
    np.put_along_axis(scores, order, _with_ties(in_order, by_rank), axis=1)
    return scores.reshape(draws.shape), in_order


def _of_rank(rank: np.ndarray, count: int) -> np.ndarray:
    """Normal scores of ranks from 1 to `count`."""
    result: np.ndarray = ndtri((rank - 0.375) / (count + 0.25))
    return result


def _with_ties(in_order: np.ndarray, by_rank: np.ndarray) -> np.ndarray:
    """Scores of values in ascending order, axes (number, place); equal ones share that of the mean of their ranks."""
    numbers, count = in_order.shape
    scores = np.broadcast_to(by_rank, in_order.shape)
    tied = np.zeros((numbers, count + 1), bool)  # to the value before
    tied[:, 1:-1] = in_order[:, 1:] == in_order[:, :-1]
    if not tied.any():
        return scores
    first = np.flatnonzero(tied[:, 1:] & ~tied[:, :-1])
    last = np.flatnonzero(tied[:, :-1] & ~tied[:, 1:])
    lengths = last - first + 1
    places = np.arange(lengths.sum()) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    scores = scores.copy()
    scores.reshape(-1)[places] = np.repeat(_of_rank((first + last) / 2 % count + 1, count), lengths)
    return scores


def _quantile(in_order: np.ndarray, share: float) -> np.ndarray:
    """Of values in ascending order, axes (number, place): shape (number, 1, 1)."""
    place = share * (in_order.shape[1] - 1)
    below = int(place)
    above = min(below + 1, in_order.shape[1] - 1)
    low, high = in_order[:, below], in_order[:, above]
    result: np.ndarray = (low + (place - below) * (high - low))[:, None, None]
    return result


def _reaches(draws: np.ndarray, in_order: np.ndarray, share: float) -> np.ndarray:
    """1 where a draw is at most the quantile, else 0."""
    return (draws <= _quantile(in_order, share)).astype(np.float64)


def _r_hat(x: np.ndarray) -> np.ndarray:
    length = x.shape[-1]
    within = x.var(axis=-1, ddof=1).mean(axis=-1)
    between = x.mean(axis=-1).var(axis=-1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that stand still
        result: np.ndarray = np.sqrt(between / within + (length - 1) / length)
        return result


def _drift(halves: np.ndarray) -> np.ndarray:
    chains = halves.shape[1] // 2
    means = halves.mean(axis=-1)
    spread = np.sqrt(halves.var(axis=-1, ddof=1).mean(axis=-1))
    moved = means[:, chains:].mean(axis=1) - means[:, :chains].mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0, moved / spread, np.where(moved == 0, 0.0, np.inf * np.sign(moved)))


def _effective(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Effective sample sizes, axes (number, chain, draw): with the spread between the chains, and with the one that chance gives them."""
    chains, length = x.shape[1:]
    total = chains * length
    covariances = _autocovariances(x)
    within = covariances[:, 0]

    between = x.mean(axis=-1).var(axis=-1, ddof=1)
    above = between - within / (length - 1)
    observed = _time(covariances, above, np.ones(length), within + between, total)
    # The mean of a short chain hides a part of its variance and of its correlation: as much as chance makes of such means.
    hidden, left = np.zeros_like(within), 1 - np.arange(length) / length
    for _ in range(HIDDEN):
        expected = _time(covariances, hidden, left, within + hidden, total)
        share = np.minimum(expected / length, 0.5)
        hidden = within * share / (1 - share)
    constant = np.ptp(x, axis=(1, 2)) < np.finfo(float).resolution
    return np.where(constant, total, total / observed), np.where(constant, total, np.minimum(total / expected, total))


def _autocovariances(x: np.ndarray) -> np.ndarray:
    """At every lag, averaged over chains: axes (number, lag)."""
    chains, length = x.shape[1:]
    spectrum = scipy.fft.rfft(x - x.mean(axis=-1, keepdims=True), n=scipy.fft.next_fast_len(2 * length, real=True))
    power = np.sum(spectrum.real**2 + spectrum.imag**2, axis=1)
    size = scipy.fft.next_fast_len(2 * length, real=True)
    result: np.ndarray = scipy.fft.irfft(power, n=size)[:, :length] / (chains * length)
    return result


def _time(
    covariances: np.ndarray, hidden: np.ndarray, shape: np.ndarray, variances: np.ndarray, total: int
) -> np.ndarray:
    """Autocorrelation time by Geyer's initial monotone sequence: sums of pairs until one is negative, each at most the one before.

    Correlations are (covariances + hidden * shape) / variances, axes (number, lag). Most come to a negative pair after a few lags, and are
    not looked at any further.
    """
    length = covariances.shape[1]
    result = np.empty(len(covariances))
    goes_on, lags = np.arange(len(covariances)), FIRST_LAGS
    while len(goes_on):
        lags = min(lags, length)
        some = slice(None) if len(goes_on) == len(covariances) else goes_on
        correlations = covariances[some, :lags] + hidden[some, None] * shape[:lags]
        correlations /= np.where(variances > 0, variances, 1.0)[some, None]  # 1 where a number stands still
        correlations[:, 0] = 1.0
        pairs = max(1, (lags - 1) // 2)
        even = correlations[:, : 2 * pairs : 2]
        sums = even + correlations[:, 1 : 2 * pairs : 2]
        is_first = sums <= 0
        ends = is_first.any(axis=1)
        last = np.where(ends, is_first.argmax(axis=1), pairs - 1)[:, None]
        falling = np.minimum.accumulate(sums, axis=1)
        before = np.sum(np.where(np.arange(pairs) < last, falling, 0.0), axis=1)
        rest = np.maximum(np.take_along_axis(even, last, axis=1)[:, 0], 0.0)
        result[goes_on] = np.maximum(2 * before + rest - 1, 1 / np.log10(total))
        goes_on = goes_on[~ends] if lags < length else goes_on[:0]
        lags *= 4
    return result
