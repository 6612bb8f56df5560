"""Groups of a hierarchical model: whether their effects are integrated out, and what that is off by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax

from inbounds.posterior import Posterior
from inbounds.sampling import Draws
from inbounds.trees import PyTree, some_draws

__all__ = ["error_of_density", "of_its_variables", "without_effects"]

LOOKED_AT = 32  # draws
MOST_CROSSED = 50  # effects of other plates, from which on those of all plates are sampled


def without_effects(
    posterior: Posterior, quantities: Mapping[str, Callable[[PyTree], Any]]
) -> tuple[Posterior, str | None]:
    """What is sampled in the place of a posterior: the one without the effects of its groups, unless a quantity is a function of those.

    And what becomes of the effects, as a sentence; None in models without groups.
    """
    marginal, about = posterior.without_effects()
    if marginal is posterior:
        return posterior, about
    crossed = marginal.crossed_effects()
    if crossed >= MOST_CROSSED:
        return posterior, (
            f"sampled like all variables: another plate of groups crosses theirs, and its {crossed:,} effects would have to be sampled "
            "without them."
        )
    theta = jax.eval_shape(marginal.start, jax.random.key(0))
    try:
        for function in quantities.values():
            if callable(function):
                jax.eval_shape(function, theta)
    except KeyError:
        return posterior, "sampled like all variables: one of the quantities is a function of them."
    return marginal, about


def of_its_variables(posterior: Posterior, tree: PyTree) -> PyTree:
    """Of a dictionary by variable, what is of those that are sampled; anything else as it is."""
    if not isinstance(tree, Mapping) or not isinstance(posterior.supports, Mapping):
        return tree
    sampled = {name for name, _ in posterior.variables()}
    return {name: part for name, part in tree.items() if name in sampled} if sampled < set(tree) else tree


def error_of_density(draws: Draws) -> float:
    """How far means and sds may be off in posterior sds because the density is not exact; 0 where it is."""
    if not draws.num_draws:
        return 0.0
    found = draws.posterior.density_error(some_draws(draws.theta, LOOKED_AT))
    return 0.0 if found is None else found if math.isfinite(found) else math.inf
