"""Where a PyMC model has no density although its variables are on their supports: edges that a gradient does not see.

PyMC's own samplers reject a move past such an edge. A step along a gradient would go there, and what it finds there is nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpyro.distributions import constraints

from inbounds.frontends._pymc_graphs import with_inputs
from inbounds.frontends._pymc_model import PyMCModel

__all__ = ["check_edges"]

DRAWS = 128  # draws of the priors at which the conditions are looked at
BEYOND = 1e-5  # how far a number may be past its bound: a positive one may underflow to zero
MOVES = (0.1, 1.0, 10.0, 100.0)  # of a variable that may have any value, each way

Theta = dict[str, np.ndarray]


class Condition(NamedTuple):
    """What must hold where a model has a density: of which term it is, what PyMC calls it, a graph, and the variables that it depends on."""

    term: str
    words: str
    graph: Any
    variables: list[str]


def check_edges(model: PyMCModel, at: Callable[[Theta], Theta], still: Theta) -> None:
    """Refuse a model that a chain could leave: nothing would keep it in.

    Args:
        model: the model.
        at: theta at a move from its start, in phi.
        still: the move that is none.

    Raises:
        ValueError: some draws of the priors have no density, or a variable has not the support that PyMC takes it to have.
    """
    _check_lines(model, at, still)
    conditions = _conditions(model)
    if not conditions:
        return
    draws = _draws(model, at, still)
    holds = _function(model, [condition.graph for condition in conditions])
    failed = np.mean([[not np.all(value) for value in holds(**draw)] for draw in draws], axis=0)
    for condition, share in zip(conditions, failed, strict=True):
        if share:
            term, words, _, variables = condition
            raise ValueError(
                f"{term!r} has no density where {words} does not hold, which is so in {round(share * len(draws))} of {len(draws)} draws of "
                f"the priors, and a chain would be free to go there. It follows from {', '.join(map(repr, variables))}: give that a prior "
                "with the right support (for a positive number pm.LogNormal, pm.Gamma, pm.HalfNormal or pm.TruncatedNormal; for an order, "
                "transform=pm.distributions.transforms.ordered), or compute what depends on it so that it cannot leave its range "
                "(pm.math.exp, pm.math.softmax, pm.math.invlogit)."
            )


def _check_lines(model: PyMCModel, at: Callable[[Theta], Theta], still: Theta) -> None:
    """Where PyMC knows no support of a variable that is none of its own continuous ones, it must have a density everywhere."""
    from pymc.distributions.distribution import Continuous

    for name, rv in zip(model.inputs, model.model.free_RVs, strict=True):
        if model.supports[name] is not constraints.real or isinstance(rv.owner.op, Continuous):
            continue
        density = _function(model, [model.priors[name]])
        for move in (sign * size for size in MOVES for sign in (1, -1)):
            theta = at(still | {name: np.full_like(still[name], move)})
            if not np.isfinite(density(**theta)[0]).all():
                raise ValueError(
                    f"The support of {name!r} is not known: PyMC moves it as if it could be any number, but it has no density at "
                    f"{np.ravel(theta[name])[0]:.4g}. Give it a `transform` of pm.distributions.transforms (log, logodds, "
                    "Interval(lower, upper)). One with mass on single points, as a censored variable, cannot be sampled by gradients."
                )


def _conditions(model: PyMCModel) -> list[Condition]:
    """What the terms of a model ask of its variables."""
    from pytensor.graph.traversal import ancestors

    terms = model.priors | {name: factor.graph for name, factor in model.factors.items()}
    found = []
    for term, graph in terms.items():
        for node in {variable.owner for variable in ancestors([graph])} - {None}:
            for words, condition in _asked_by(node):
                read = set(ancestors([condition]))
                variables = [name for name, own in model.inputs.items() if own in read]
                if variables:
                    found.append(Condition(term, words, condition, variables))
    return found


def _asked_by(node: Any) -> list[tuple[str, Any]]:
    """The conditions of an operation, with words: checks of parameters, and inequalities without which a density is zero."""
    import pytensor.tensor as pt
    from pymc.logprob.utils import CheckParameterValue
    from pytensor.graph.traversal import ancestors
    from pytensor.scalar import Switch

    if isinstance(node.op, CheckParameterValue):
        return [(node.op.msg, _with_slack(condition, BEYOND)) for condition in node.inputs[1:]]
    if isinstance(getattr(node.op, "scalar_op", None), Switch):
        condition, *ways = node.inputs
        if any(_inequality(variable) for variable in ancestors([condition])):
            otherwise = pt.invert(_with_slack(condition, -BEYOND).astype(bool))
            asked = zip((otherwise, _with_slack(condition, BEYOND)), ways, strict=True)
            return [("an inequality of its variables", graph) for graph, way in asked if _is_no_density(way)]
    return []


def _inequality(variable: Any) -> int:
    """1 for "more than", -1 for "less than", 0 for anything else."""
    from pytensor.scalar import GE, GT, LE, LT

    op = getattr(getattr(variable.owner, "op", None), "scalar_op", None)
    return isinstance(op, GE | GT) - isinstance(op, LE | LT)


def _is_no_density(way: Any) -> bool:
    from pytensor.graph.basic import Constant

    return isinstance(way, Constant) and bool(np.all(np.isneginf(way.data)))


def _with_slack(condition: Any, slack: float) -> Any:
    """A condition whose inequalities hold so far beyond their bounds, too."""
    from pytensor.graph.traversal import ancestors

    wider = {}
    for variable in ancestors([condition]):
        if sign := _inequality(variable):
            one, other = variable.owner.inputs
            wider[variable] = variable.owner.op(one, other - sign * slack)
    return with_inputs([condition], wider)[0]


def _function(model: PyMCModel, graphs: Sequence[Any]) -> Callable[..., list[np.ndarray]]:
    """Graphs as a function of the variables by name, in NumPy: it is called a few times, and compiled in no time."""
    import pytensor
    from pytensor.compile.mode import Mode

    mode = Mode("py", "fast_compile").including("local_remove_check_parameter")
    compiled = pytensor.function(list(model.inputs.values()), list(graphs), mode=mode, on_unused_input="ignore")

    def function(**theta: np.ndarray) -> list[np.ndarray]:
        values: list[np.ndarray] = compiled(*(theta[name].astype(node.dtype) for name, node in model.inputs.items()))
        return values

    return function


def _draws(model: PyMCModel, at: Callable[[Theta], Theta], still: Theta) -> list[Theta]:
    """Draws of the priors. Points around the start where these cannot be drawn from (pm.Flat), or a draw is off its support (an order)."""
    import pymc as pm
    from pytensor.compile.mode import Mode

    generator = np.random.default_rng(0)
    sizes = np.resize(MOVES, DRAWS)
    around = [at({name: size * generator.standard_normal(x.shape) for name, x in still.items()}) for size in sizes]
    try:
        drawn = pm.draw(model.model.free_RVs, DRAWS, random_seed=0, mode=Mode("py", "fast_compile"))
    except Exception:  # of whichever kind: a distribution of the user's own may have no generator
        return around
    return [
        {
            name: value if np.all(support(value)) else point[name]
            for (name, support), value in zip(model.supports.items(), values, strict=True)
        }
        for point, values in zip(around, zip(*drawn, strict=True), strict=True)
    ]
