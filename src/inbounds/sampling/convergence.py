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
BLOCK_NUMBERS = (
    2**20
)  # of draws that are looked at together: their copies stay in the cache of the processor, or near it


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
    ranked, in_order = _normal_scores(halves)
    folded, _ = _normal_scores(np.abs(halves - _quantile(in_order, 0.5)))
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


def _normal_scores(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quantile of a standard normal that belongs to the rank of each draw among all those of its number; and those in order."""
    flat = draws.reshape(len(draws), -1)
    count = flat.shape[1]
    order = np.argsort(flat, axis=1)
    in_order = np.take_along_axis(flat, order, axis=1)
    scores = np.empty_like(flat)
    by_twice_the_rank = ndtri((np.arange(2, 2 * count + 1) / 2 - 0.375) / (count + 0.25))  # from rank 1 on
    np.put_along_axis(scores, order, by_twice_the_rank[_twice_the_rank(in_order) - 2], axis=1)
    return scores.reshape(draws.shape), in_order


def _twice_the_rank(in_order: np.ndarray) -> np.ndarray:
    """Twice the rank of values in ascending order, axes (number, place); equal ones share the mean of their ranks."""
    count = in_order.shape[1]
    place = np.arange(count)
    tied = in_order[:, 1:] == in_order[:, :-1]
    if not tied.any():
        return np.broadcast_to(2 * (place + 1), in_order.shape)
    edge = np.ones((len(in_order), 1), bool)
    first = np.maximum.accumulate(np.where(np.hstack([edge, ~tied]), place, 0), axis=1)
    last = np.minimum.accumulate(np.where(np.hstack([~tied, edge]), place, count)[:, ::-1], axis=1)[:, ::-1]
    return first + last + 2


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
    observed = _time(1 - (within * length / (length - 1) - covariances.T).T / _positive(within + between), total)
    # The mean of a short chain hides a part of its variance and of its correlation: as much as chance makes of such means.
    hidden, left = np.zeros_like(within), 1 - np.arange(length) / length
    for _ in range(HIDDEN):
        expected = _time((covariances + hidden[:, None] * left) / _positive(within + hidden), total)
        share = np.minimum(expected / length, 0.5)
        hidden = within * share / (1 - share)
    constant = np.ptp(x, axis=(1, 2)) < np.finfo(float).resolution
    return np.where(constant, total, total / observed), np.where(constant, total, np.minimum(total / expected, total))


def _positive(variances: np.ndarray) -> np.ndarray:
    """To divide by, axes (number, 1); 1 where a number stands still."""
    return np.where(variances > 0, variances, 1.0)[:, None]


def _autocovariances(x: np.ndarray) -> np.ndarray:
    """At every lag, averaged over chains: axes (number, lag)."""
    chains, length = x.shape[1:]
    spectrum = scipy.fft.rfft(x - x.mean(axis=-1, keepdims=True), n=scipy.fft.next_fast_len(2 * length, real=True))
    power = np.sum(spectrum.real**2 + spectrum.imag**2, axis=1)
    size = scipy.fft.next_fast_len(2 * length, real=True)
    result: np.ndarray = scipy.fft.irfft(power, n=size)[:, :length] / (chains * length)
    return result


def _time(correlations: np.ndarray, total: int) -> np.ndarray:
    """Autocorrelation time by Geyer's initial monotone sequence: sums of pairs until one is negative, each at most the one before."""
    pairs = max(1, (correlations.shape[1] - 1) // 2)
    correlations[:, 0] = 1.0
    even, odd = correlations[:, : 2 * pairs : 2], correlations[:, 1 : 2 * pairs : 2]
    sums = even + odd
    last = np.minimum(np.cumprod(sums > 0, axis=1).sum(axis=1), pairs - 1)[:, None]
    falling = np.minimum.accumulate(sums, axis=1)
    before = np.sum(np.where(np.arange(pairs) < last, falling, 0.0), axis=1)
    rest = np.maximum(np.take_along_axis(even, last, axis=1)[:, 0], 0.0)
    result: np.ndarray = np.maximum(2 * before + rest - 1, 1 / np.log10(total))
    return result
