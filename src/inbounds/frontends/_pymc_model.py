"""What a PyMC model says, as PyTensor graphs of its free variables on their own scale: log densities, deterministics, supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from inbounds.frontends._pymc_graphs import evaluated, folded, frozen, with_inputs
from inbounds.frontends._pymc_supports import support_of

__all__ = ["Factor", "PyMCModel"]


class Factor(NamedTuple):
    """A term of the log density that is no prior of a free variable.

    Attributes:
        name: of the observed variable or the potential.
        kind: the name of its distribution, or "Potential".
        graph: its log density, element by element; what depends on data alone is computed already.
    """

    name: str
    kind: str
    graph: Any


class PyMCModel:
    """A PyMC model as it is now. What is changed in it afterwards (`pm.set_data`) is not seen.

    Attributes:
        inputs: the free variables, nodes of the graphs, by name.
        supports: of the free variables, by name.
        priors: the log densities of the free variables, by name.
        factors: the other terms of the log density, by name.
        observed: the observations, graphs without inputs, by name.
        deterministics: graphs, by name.
        start: where PyMC's own samplers would start, on the variables' own scale, by name.
        batch_size: rows of the `pm.Minibatch` of the model; None without one.

    Args:
        model: a `pm.Model`.
        renamed: other names of free variables.
        derived: graphs of the model's variables that count as deterministics, by name.

    Raises:
        ValueError: it has variables that gradients cannot move.
    """

    def __init__(self, model: Any, renamed: dict[str, str] | None = None, derived: dict[str, Any] | None = None):
        from pymc.logprob import conditional_logp
        from pymc.logprob.utils import replace_rvs_by_values

        _check_variables(model)
        self.model, self._renamed = model, renamed or {}
        start = _start_of(model)
        values = {rv: rv.type.clone(shape=start[rv.name].shape)(name=rv.name) for rv in model.free_RVs}
        observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
        # What has a `total_size` is scaled by PyMC; without it, each row counts once.
        logps = conditional_logp(values | {_unscaled(rv): value for rv, value in observed.items()}, warn_rvs=False)
        functions = {rv.name: rv for rv in model.deterministics} | (derived or {})
        others = replace_rvs_by_values([*model.potentials, *functions.values()], rvs_to_values=values | observed)
        parts = [
            [logps[value] for value in values.values()],
            [logps[value] for value in observed.values()],
            others[: len(model.potentials)],
            others[len(model.potentials) :],
            list(observed.values()),
        ]
        self.batch_size = _batch_size(parts)
        priors, likelihoods, potentials, deterministics, data = _of_all_rows(parts)
        names = [self._name(rv) for rv in values]
        self.start = {self._name(rv): start[rv.name] for rv in values}
        self.supports = {name: support_of(model, rv) for name, rv in zip(names, values, strict=True)}
        self.inputs = dict(zip(names, values.values(), strict=True))
        self.priors = dict(zip(names, priors, strict=True))
        self.deterministics = dict(zip(functions, deterministics, strict=True))
        terms = zip([*model.observed_RVs, *model.potentials], [*likelihoods, *potentials], strict=True)
        self.factors = {rv.name: Factor(rv.name, _kind(rv), folded([graph])[0]) for rv, graph in terms}
        self.observed = dict(zip((rv.name for rv in observed), data, strict=True))
        _check_total_sizes(model, self.observed)

    def coordinates(self) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """The coordinates that have values, and the dimensions of the variables, by name."""
        coords = {name: list(values) for name, values in self.model.coords.items() if values is not None}
        dims = {name: list(dims) for name, dims in self.model.named_vars_to_dims.items()}
        return coords, dims | {new: dims[name] for name, new in self._renamed.items() if name in dims}

    def _name(self, rv: Any) -> str:
        own: str = rv.name
        return self._renamed.get(own, own)


def _check_variables(model: Any) -> None:
    from pytensor.tensor import TensorVariable

    for rv in model.free_RVs:
        kind = _kind(rv)
        if not isinstance(rv, TensorVariable):
            raise ValueError(
                f"The variable {rv.name!r} is of `pymc.dims`, whose arrays carry their dimensions. Write it with the distributions of `pm`."
            )
        if not rv.dtype.startswith("float"):
            raise ValueError(
                f"The variable {rv.name!r} is discrete ({kind}): gradients do not exist for it. Sum it out of the likelihood: pm.Mixture or "
                "pm.NormalMixture for the label of each row, pm.math.logsumexp in a pm.Potential for anything else. If it is data, pass "
                "`observed=`."
            )
    if not model.free_RVs:
        raise ValueError("The model has no free variable to sample: every variable has `observed`.")


def _start_of(model: Any) -> dict[str, np.ndarray]:
    from pymc.initial_point import make_initial_point_fn

    point = make_initial_point_fn(model=model, return_transformed=False)(0)
    return {name: np.asarray(value) for name, value in point.items()}


def _kind(rv: Any) -> str:
    op = getattr(_unscaled(rv).owner, "op", None)
    if not hasattr(op, "_print_name"):
        return "Potential"
    name: str = getattr(op, "_print_name", [None])[0] or type(op).__name__.removesuffix("RV")
    return name


def _unscaled(rv: Any) -> Any:
    """The variable below PyMC's scaling by `total_size`."""
    from pymc.variational.minibatch_rv import MinibatchRandomVariable

    return rv.owner.inputs[0] if isinstance(rv.owner.op, MinibatchRandomVariable) else rv


def _minibatches(graphs: Sequence[Any]) -> list[Any]:
    """The nodes that `pm.Minibatch` made."""
    from pymc.data import MinibatchOp
    from pytensor.graph.traversal import ancestors

    owners = {node.owner for node in ancestors(list(graphs)) if node.owner is not None}
    return [owner for owner in owners if isinstance(owner.op, MinibatchOp)]


def _batch_size(parts: list[list[Any]]) -> int | None:
    """How many rows a minibatch of the model has."""
    sizes = [owner.outputs[0].type.shape[0] for owner in _minibatches(_flat(parts))]
    return min(filter(None, sizes), default=None)


def _of_all_rows(parts: list[list[Any]]) -> list[list[Any]]:
    """Graphs with all the rows in the place of `pm.Minibatch`, and constants in the place of shared variables."""
    from pymc.variational.minibatch_rv import MinibatchRandomVariable
    from pytensor.graph.traversal import ancestors

    graphs = _flat(parts)
    whole: dict[Any, Any] = {}
    for made in _minibatches(graphs):
        *rows, generator = made.outputs
        whole |= dict(zip(rows, frozen(made.inputs[:-1]), strict=True)) | {generator: generator}
    graphs = frozen(graphs, whole)
    scaled = {
        node for node in ancestors(graphs) if isinstance(getattr(node.owner, "op", None), MinibatchRandomVariable)
    }
    graphs = with_inputs(graphs, {node: node.owner.inputs[0] for node in scaled})
    ends = np.cumsum([len(part) for part in parts])
    return [graphs[end - len(part) : end] for part, end in zip(parts, ends, strict=True)]


def _flat(parts: list[list[Any]]) -> list[Any]:
    return [graph for part in parts for graph in part]


def _check_total_sizes(model: Any, observed: dict[str, Any]) -> None:
    """The data given must be all the data: there is nobody to hand in others."""
    from pytensor.graph.basic import Constant

    for rv in model.observed_RVs:
        if _unscaled(rv) is rv:
            continue
        rows = evaluated([observed[rv.name]])[0].shape
        totals = [t.data if isinstance(t, Constant) else None for t in rv.owner.inputs[1:]]
        for total, count in zip(totals, rows, strict=False):
            if total is not None and int(total) != count:
                raise ValueError(
                    f"{rv.name!r} has total_size={int(total):,}, but its data have {count:,} rows. Give all the rows: "
                    "pm.Minibatch(x, y, batch_size=...) of whole arrays, or whole arrays and no `total_size`."
                )
