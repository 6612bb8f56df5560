"""Which numbers of a large run look worst: all of them are glanced at, so that few need to be looked at closely.

A glance takes sums of each number over batches of its draws. Of a number that is well the means of batches differ as much as chance lets
them. How much is looked at is counted in numbers, and not in seconds, so that a run says the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from inbounds.sampling.convergence import Convergence, convergence
from inbounds.sampling.summary import label
from inbounds.sampling.verdict import LEAST_ESS
from inbounds.trees import some_draws

__all__ = ["Looked", "look"]

GLANCED, LOOKED = 2**20, 2**16  # numbers of all the draws together that are glanced at, and looked at closely,
GLANCED_STEPS, LOOKED_STEPS = 32, 4_096  # or in long runs one in so many of those that the steps moved
FEWEST_GLANCED = 32  # draws per chain
ENOUGH = 8_192  # draws of a number, all chains together: chance is below the limits of R-hat and of drift then
FEWEST, MOST = 12, 32  # that are looked at closely, where there are more than there is room for
SAMPLE = 16  # draws that tell where the middle of a number is, and how wide it is
REACH = 2.0  # widths from the middle, where a draw is cut off: without a variance batches have no means to compare
BATCHES, FEWEST_BATCHES = 16, 4  # of all chains together; per chain, two in each half
BATCH_DRAWS = 8  # that a batch has at least, where there are enough for four
FEW = 2  # the sign that few draws are effective
BY_CHANCE = 2.0  # times the fewest effective draws: more than that in the batches, and it was chance that made an estimate small
BLOCK_NUMBERS = 2**19  # that stay in the cache of the processor


class Looked(NamedTuple):
    """What is looked at closely.

    Attributes:
        names: of the numbers.
        draws: axes (chain, draw, number).
        numbers: how many there are in all.
        every: one in so many draws was taken.
    """

    names: list[str]
    draws: np.ndarray
    numbers: int
    every: int

    @property
    def is_all(self) -> bool:
        return len(self.names) == self.numbers and self.every == 1

    def convergence(self) -> Convergence:
        """Of these numbers.

        The smallest of thousands of estimated sample sizes is small by chance. It counts where what batches tell is small as well.
        """
        found = convergence(self.draws)
        if len(self.names) < self.numbers:
            of_batches = _ess_of_batches(self.draws)
            by_chance = (np.fmin(found.ess, found.ess_tail) < LEAST_ESS) & (of_batches > BY_CHANCE * LEAST_ESS)
            found.ess[by_chance] = found.ess_tail[by_chance] = of_batches[by_chance]
        return found

    def __str__(self) -> str:
        which = f"the {len(self.names):,} of {self.numbers:,} numbers that seemed worst at a glance"
        which = "all numbers" if len(self.names) == self.numbers else which
        often = "all draws" if self.every == 1 else f"one in {self.every:,} draws"
        return f"These notes come from a look at {which}, by {often}. `draws.summary()` looks at all."


def look(leaves: Sequence[tuple[str, np.ndarray]], num_steps: int, may_be_fixed: bool = False) -> Looked:
    """The numbers of a run that look worst, or all where they are few, by as many draws as it takes.

    Args:
        leaves: variables by name, axes (chain, draw, ...), in memory or on disk.
        num_steps: of the run.
        may_be_fixed: whether a number that is the same in all the draws of all chains is left out, as one that its support fixes.
    """
    chains, length = leaves[0][1].shape[:2]
    sizes = [int(np.prod(leaf.shape[2:])) for _, leaf in leaves]
    numbers = sum(sizes)
    room = max(LOOKED, num_steps * chains * numbers // LOOKED_STEPS)
    most = room // (chains * min(length, ENOUGH))
    thin = 1
    if numbers > most:
        most = min(max(most, FEWEST), MOST)
        wanted = max(FEWEST_GLANCED, GLANCED // (chains * numbers), num_steps // GLANCED_STEPS)
        thin = max(1, length // wanted)
    flat = [
        np.asarray(leaf[:, ::thin]).reshape(chains, -1, size) for (_, leaf), size in zip(leaves, sizes, strict=True)
    ]
    places = np.arange(numbers)
    if numbers > most:
        glanced = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=2)
        signs = _signs(glanced)
        if may_be_fixed:
            signs[:, (glanced == glanced[:1, :1]).all(axis=(0, 1))] = -np.inf
        places = _worst(signs, most)
    if all(isinstance(leaf, np.ndarray) for _, leaf in leaves):  # what is on disk is read once
        flat = [leaf.reshape(chains, length, size) for (_, leaf), size in zip(leaves, sizes, strict=True)]
        thin = 1
    each = min(ENOUGH, max(room // max(1, len(places)), FEWEST_GLANCED * chains))
    every = max(1, -(-chains * flat[0].shape[1] // each))
    ends = np.cumsum(sizes)
    own = [
        places[(places >= end - size) & (places < end)] - (end - size) for end, size in zip(ends, sizes, strict=True)
    ]
    names = [
        label(name, leaf.shape[2:], place) for (name, leaf), some in zip(leaves, own, strict=True) for place in some
    ]
    draws = [whole[:, ::every, some] for whole, some in zip(flat, own, strict=True)]
    return Looked(names, np.concatenate(draws, axis=2), numbers, thin * every)


def _worst(signs: np.ndarray, most: int) -> np.ndarray:
    """The places of the numbers of which a sign, axes (sign, number), is among the largest."""
    share = min(-(-most // len(signs)), signs.shape[1])
    largest: np.ndarray = np.unique(np.argpartition(signs, -share, axis=1)[:, -share:])
    return largest


def _signs(draws: np.ndarray) -> np.ndarray:
    """What says that something is wrong with a number, the larger the more; axes (sign, number)."""
    chains, length, numbers = draws.shape
    width = max(1, BLOCK_NUMBERS // (chains * length))
    with np.errstate(all="ignore"):  # of numbers that are not finite, or stand still
        found = np.concatenate([_of_block(draws[:, :, i : i + width]) for i in range(0, numbers, width)], axis=1)
    result: np.ndarray = np.nan_to_num(found, nan=-np.inf, posinf=np.inf)
    return result


def _ess_of_batches(draws: np.ndarray) -> np.ndarray:
    """Effective draws of each number, or of its distances to the middle where these are fewer."""
    chains, length, _ = draws.shape
    ess: np.ndarray = chains * _batches(chains, length) / _signs(draws)[FEW]
    return ess


def _batches(chains: int, length: int) -> int:
    """Of each chain: an even number."""
    return max(FEWEST_BATCHES, min(BATCHES // chains, length // BATCH_DRAWS // 2 * 2))


def _of_block(draws: np.ndarray) -> np.ndarray:
    chains, length, numbers = draws.shape
    batches = _batches(chains, length)
    size = length // batches
    middle, width = _middle_and_width(draws)
    place = draws[:, length - batches * size :].reshape(chains, batches, size, numbers) - middle
    place = np.clip(np.multiply(place, 1 / width, out=place), -REACH, REACH, out=place)
    mean = place.mean(axis=2)
    distance = np.abs(place, out=place)
    mean_distance = distance.mean(axis=2)
    square = np.square(distance, out=distance).mean(axis=2)
    of_place, of_distance = (
        _disagreement(means, square.mean(axis=(0, 1)) - means.mean(axis=(0, 1)) ** 2) for means in (mean, mean_distance)
    )
    own = square.mean(axis=1) - mean.mean(axis=1) ** 2
    still = np.where(own.min(axis=0) > 0, own.max(axis=0) / own.min(axis=0), np.inf)  # one chain, or all
    return np.concatenate([np.fmax(of_place, of_distance), still[None]])


def _middle_and_width(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """About the median of each number, and the distance between its quartiles; the range, or 1, where that is nothing."""
    ordered = np.sort(some_draws(draws, SAMPLE), axis=0)
    low, middle, high = (ordered[len(ordered) * quarter // 4] for quarter in (1, 2, 3))
    widest = ordered[-1] - ordered[0]
    return middle, np.where(high > low, high - low, np.where(widest > 0, widest, 1))


def _disagreement(means: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """How far the means of batches, axes (chain, batch, number), lie apart; axes (sign, number).

    The variance of the means of half chains, which is what R-hat looks at, and what the second halves have moved by, both over the variance
    of batches within a half: draws that are correlated are allowed more. And the variance of all batches over that of the draws: where it
    is large, few draws are effective.
    """
    chains, batches, numbers = means.shape
    halves = means.reshape(2 * chains, batches // 2, numbers)
    within, half = halves.var(axis=1).mean(axis=0), halves.mean(axis=1)
    apart, moved = half.var(axis=0), (half[1::2] - half[::2]).mean(axis=0) ** 2
    few = means.reshape(-1, numbers).var(axis=0) / variance
    return np.stack([apart / within, moved / within, few])
