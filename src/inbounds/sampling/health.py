"""When a run goes wrong: say where, why, and what to try, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from inbounds.engine.program import Carry, Rows
from inbounds.trees import PyTree, variable_name

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["NonFiniteError", "Place", "all_finite", "explain", "locate"]


ABSURD = 1e8  # norm of phi beyond which the chain had exploded before anything overflowed


class NonFiniteError(RuntimeError):
    """A chain left the finite numbers.

    Attributes:
        draws: every draw made until then, those of the healthy chains included; NaN after a chain's death.
        variable, chain, step: where and when it happened first.

    Example:
        >>> real = {"x": dist.constraints.real}
        >>> wild = ib.Posterior(supports=real, log_prior=lambda theta: theta["x"] ** 4)  # no density at all
        >>> try:
        ...     draws = ib.sample(ib.sgld(wild), 1.0, 150, progress=False)
        ... except ib.NonFiniteError as error:
        ...     print(error.variable, error.chain)
        x 0
    """

    def __init__(self, message: str, draws: Draws, variable: str, chain: int, step: int):
        super().__init__(message)
        self.draws = draws
        self.variable = variable
        self.chain = chain
        self.step = step


class Place(NamedTuple):
    """Where a chain left the finite numbers first."""

    variable: str
    chain: int
    step: int
    last_good: Carry  # after the step before
    finite: PyTree  # after the step: tree like phi, whether each chain is


def locate(
    chunk: Callable[[Carry, int, int, int], tuple[Carry, Rows, PyTree]],
    before: Carry,
    start: int,
    length: int,
    num_steps: int,
) -> Place:
    """Go block by block, then by bisection, to the step after which something is not finite.

    Args:
        chunk: what runs (carry, start, blocks, end).
        before: the last carry that is known to be finite, after `start` steps.
        start: how many steps those were.
        length: of a block.
        num_steps: of the run.
    """
    while True:
        carry, _, finite = chunk(before, start, 1, num_steps)
        if not all_finite(finite):
            break
        before, start = carry, start + length
    low, high = 0, length  # finite after `low` steps, not after `high`
    while high - low > 1:
        middle = (low + high) // 2
        _, _, finite = chunk(before, start, 1, start + middle)
        low, high = (middle, high) if all_finite(finite) else (low, middle)
    last_good, _, _ = chunk(before, start, 1, start + low)
    _, _, finite = chunk(before, start, 1, start + high)
    return Place(*_first_bad(finite), start + high, last_good, finite)


def all_finite(finite: PyTree) -> bool:
    """Whether all variables of all chains are."""
    return all(np.asarray(leaf).all() for leaf in jax.tree.leaves(finite))


def _first_bad(finite: PyTree) -> tuple[str, int]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(finite):
        bad = np.flatnonzero(~np.asarray(leaf))
        if bad.size:
            return variable_name(path), int(bad[0])
    raise AssertionError("every variable is finite")


def explain(
    variable: str, chain: int, step: int, step_size: float, model_at_fault: bool, by_exp: Collection[str]
) -> str:
    """One paragraph: what happened, the likely cause, what to try. `by_exp` names the variables whose transform is exp."""
    happened = f"{variable!r} became non-finite at step {step:,}, chain {chain}, with step size {step_size:.3g}."
    if model_at_fault:
        cause = (
            f"The model's gradient at the last finite position of chain {chain} is itself not finite: look for a log of "
            "zero, a division by zero or an overflow in the likelihood there, or for a NaN in the data (memory maps are not looked over)."
        )
    elif variable in by_exp:
        cause = (
            "The transform 'exp' is not Lipschitz: gradient noise is multiplied by exp(phi) and feeds back on itself. "
            "Use the default (softplus), 'icll' or 'integrated_probit', or a much smaller step size."
        )
    else:
        cause = (
            f"The step size is too large for the slope of the log density there. Try {step_size / 10:.1g}, a decaying "
            "schedule, or a larger batch; `ib.check(posterior)` suggests a range."
        )
        if by_exp:
            cause += f" Or it began with {' and '.join(map(repr, by_exp))}, whose transform 'exp' is not Lipschitz."
    return f"{happened} {cause} The draws made so far are in `error.draws`."
