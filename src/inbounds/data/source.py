"""What makes minibatches: the base class of all sources, and what a run reads of one.

A source answers in two parts, so that the loop over steps holds the second alone. `plan(key, steps)` says, for a vector of step numbers,
what each step will need: where its slice starts, or which rows it gathers. `fetch(arrays, plan_of_one_step)` makes the minibatch. Both are
pure, so a run does not depend on how it is cut into chunks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.engine.keys import as_key, derived
from inbounds.trees import PyTree

__all__ = ["Feed", "RowsOnDisk", "Source"]


class Source(ABC):
    """Makes minibatches. Write `plan` and `fetch`; all else has a default. Equal sources compile once.

    Attributes:
        batch_size: rows per minibatch; None where that has no meaning.
        num_data: rows of all the data; None where there is no such number. Then the gradient of a minibatch is not scaled.
        plan_numbers: about how many numbers the plan of one step holds. Many steps are planned at once.
        most_steps: for how many steps minibatches are at hand at once; None where they always are.
        batches: minibatches per epoch; 1 where there are no epochs.
        cycle: draws are good after whole cycles of so many steps alone.

    Example:
        >>> class Coins(ib.data.Source):
        ...     def plan(self, key, steps):
        ...         return jax.vmap(lambda step: jax.random.bernoulli(jax.random.fold_in(key, step), 0.3, (20,)))(steps)
        ...     def fetch(self, arrays, plan):
        ...         return plan
        >>> def gradient(theta, coins):
        ...     return {"p": coins.sum() / theta["p"] - (~coins).sum() / (1 - theta["p"])}
        >>> posterior = ib.Posterior(supports={"p": dist.constraints.unit_interval}, gradient=gradient, data=Coins())
        >>> ib.sample(ib.sgld(posterior), 0.001, 150, burn_in=100, progress=False).num_draws
        50
    """

    batch_size: int | None = None
    num_data: int | None = None

    @property
    def plan_numbers(self) -> int:
        """About how many numbers the plan of one step holds."""
        return 1_024

    @property
    def most_steps(self) -> int | None:
        """For how many steps minibatches are at hand at once; None: always."""
        return None

    @property
    def batches(self) -> int:
        """Minibatches per epoch; 1 where there are no epochs."""
        return 1

    @property
    def cycle(self) -> int:
        """Draws are good after whole cycles of so many steps alone."""
        return 1

    @abstractmethod
    def plan(self, key: jax.Array, steps: jax.Array) -> PyTree:
        """What the minibatch of each of `steps` (a vector) needs; leading axis = step.

        Args:
            key: of the chain.
            steps: numbers of the steps, from 0.

        Returns:
            Small arrays, for example the indices of rows.
        """

    @abstractmethod
    def fetch(self, arrays: PyTree, plan: PyTree) -> PyTree:
        """The minibatch of one step, of `prepare`'s arrays and that step's part of the plan.

        Args:
            arrays: what `prepare` returned.
            plan: one entry of what `plan` returned.

        Returns:
            What the likelihood takes as its batch.
        """

    def prepare(self, key: jax.Array) -> PyTree:
        """The arrays that `fetch` reads, on the device.

        Args:
            key: of the run.

        Returns:
            A tree of arrays.
        """
        return None

    def all_rows(self) -> PyTree:
        """All the data as one minibatch; None where they cannot be had as one."""
        return None

    def placed(self, data: Callable[[], PyTree]) -> Source:
        """The same source reading `data()`, the data as arrays on the device, where that serves it: one copy is then enough for all runs.

        Args:
            data: makes the arrays, when it is called.

        Returns:
            A source of the same minibatches.
        """
        return self

    def words(self, num_chains: int, words: np.ndarray) -> Any:
        """What tells the chains apart: the words of a key for each."""
        return derived(words, num_chains)

    def key(self, words: jax.Array) -> jax.Array:
        """`words` as `plan` takes them."""
        return as_key(words)

    def feed(self, arrays: PyTree, words: np.ndarray, num_chains: int, block_steps: int, num_steps: int) -> Feed:
        """What hands a run its arrays: by default what `prepare` made, which stays on the device."""
        return Feed(arrays)

    def example(self, arrays: PyTree, words: Any) -> PyTree:
        """The shapes of a minibatch."""

        def one(arrays: PyTree, words: Any) -> PyTree:
            plan = self.plan(self.key(words)[0], jnp.arange(1))
            return self.fetch(arrays, jax.tree.map(lambda leaf: leaf[0], plan))

        return jax.eval_shape(one, arrays, words)


class Feed:
    """The arrays of a run. These are at hand throughout; data from disk have a feed of their own.

    Attributes:
        whole: whether the same arrays hold the minibatches of all steps.
    """

    whole: bool = True

    def __init__(self, arrays: PyTree):
        self._arrays = arrays

    def through(self, place: Callable[[PyTree], PyTree]) -> Feed:
        """The same, with all arrays where `place` puts them."""
        return Feed(place(self._arrays))

    def arrays(self, step: int, after: Any = None) -> PyTree:
        """The arrays that hold the minibatch of a step; `after` is what the computation on the last ones returned."""
        return self._arrays

    def room(self, step: int) -> int:
        """How many steps from `step` on the same arrays serve."""
        return 2**31

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *error: object) -> None:
        """The run is over."""


class RowsOnDisk(ABC):
    """Data that do not fit in memory, as `Posterior(data=...)` takes them. `inbounds.data.stream` makes them.

    Attributes:
        num_data: how many rows there are.
    """

    num_data: int

    @abstractmethod
    def source(self, batch_size: int | None, batching: str) -> Source:
        """The source of a run.

        Args:
            batch_size: rows per minibatch.
            batching: "epochs" or "replacement".

        Returns:
            The source.

        Raises:
            ValueError: `batch_size` or `batching` cannot be had of these files.
        """

    @abstractmethod
    def slices(self, rows: int) -> Iterator[PyTree]:
        """All the rows once, in the order on disk, `rows` at a time.

        Args:
            rows: how many at a time; the last slice may have fewer.

        Returns:
            Trees of arrays, one after the other.
        """

    @abstractmethod
    def look(self, rows: int, seed: int = 0) -> PyTree:
        """Some rows in memory, from random places.

        Args:
            rows: how many; all of them where there are no more.
            seed: of the places.

        Returns:
            A tree of arrays.
        """
