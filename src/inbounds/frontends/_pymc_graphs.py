"""PyTensor graphs as JAX functions, with what is asked of a graph before: which data it reads, and which operations it has."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.precision import in_double

__all__ = ["Array", "JaxFunction", "Key", "arrays_in", "evaluated", "folded", "frozen", "has_scan", "with_inputs"]


Key = tuple[tuple[int, ...], str, bytes]
"""What an array holds: equal arrays have one."""
Adapt = Callable[[Any, list[Any]], list[Any]]


class Array(NamedTuple):
    """An array of data that graphs read: its name, its values, and the nodes that hold them."""

    name: str
    values: np.ndarray
    nodes: tuple[Any, ...]


class JaxFunction:
    """PyTensor graphs as one function of JAX arrays, in the precision of the moment: from inputs by name to outputs by name.

    Args:
        inputs: nodes of the graphs.
        outputs: the graphs.
        rows: the names of the inputs whose first axis has the rows. Of another number of rows than the graphs were written for, the function is
            that of graphs in which every shape of so many rows has the other number.

    Raises:
        ValueError: JAX has nothing for an operation of the graphs.
    """

    def __init__(self, inputs: Mapping[Any, Any], outputs: Mapping[str, Any], rows: Sequence[Any] = ()):
        from pytensor.graph.fg import FunctionGraph
        from pytensor.graph.utils import MissingInputError

        self.inputs, self.outputs, self.rows = tuple(inputs), tuple(outputs), tuple(rows)
        try:
            self._graph = FunctionGraph(list(inputs.values()), list(outputs.values()), clone=True)
        except MissingInputError as error:
            raise ValueError(
                f"The model reads what has no value ({str(error.args[0]).splitlines()[0][:200]}). A pm.Simulator has no density; anything else "
                "must be a constant, a pm.Data or a variable of the model."
            ) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _rewriter().rewrite(self._graph)
        self._graph = _without_slopes_of_maxima(self._graph)
        self._functions: dict[tuple[bool, int | None], Callable[..., Any]] = {}

    def __call__(self, values: Mapping[Any, Any]) -> dict[str, jax.Array]:
        if not self.outputs:
            return {}
        given = [_strong(jnp.asarray(values[name])) for name in self.inputs]
        count = given[self.inputs.index(self.rows[0])].shape[0] if self.rows else None
        # PyTensor says of each number that it is a double; in single precision JAX warns of each.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Explicitly requested dtype")
            found = self._function(count)(*given)
        return dict(zip(self.outputs, map(jnp.asarray, found), strict=True))

    def _function(self, count: int | None) -> Callable[..., Any]:
        """One function for each precision, which is that of its constants, and for each number of rows."""
        double = _is_double()
        kind = double, count
        if kind not in self._functions:
            graph = self._graph if count is None else self._of_rows(count)
            graph = graph if double else _in_single(graph)
            with jax.ensure_compile_time_eval(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Skipping")  # assertions, which JAX cannot make
                try:
                    self._functions[kind] = _jax_of_pytensor()(graph)
                except NotImplementedError as error:
                    what = str(error).strip().splitlines()[0]
                    raise ValueError(
                        f"PyTensor cannot write the model for JAX: {what}. Write that part of the model otherwise, or register a conversion "
                        "with pytensor.link.jax.dispatch.jax_funcify."
                    ) from error
        return self._functions[kind]

    def _of_rows(self, count: int) -> Any:
        """The graph for another number of rows."""
        from pytensor.graph.fg import FunctionGraph

        inputs = dict(zip(self.inputs, self._graph.inputs, strict=True))
        length = inputs[self.rows[0]].type.shape[0]
        if count == length:
            return self._graph
        others = {}
        for name in self.rows:
            kind = inputs[name].type
            others[inputs[name]] = kind.clone(shape=(count, *kind.shape[1:]))()
        outputs = with_inputs(self._graph.outputs, others, lambda node, given: _for_rows(node, given, length, count))
        return FunctionGraph([others.get(node, node) for node in self._graph.inputs], outputs, clone=True)


def has_scan(graph: Any) -> bool:
    """Whether a graph has a loop in it."""
    from pytensor.graph.traversal import ancestors
    from pytensor.scan.op import Scan

    return any(isinstance(getattr(node.owner, "op", None), Scan) for node in ancestors([graph]))


def arrays_in(graphs: Sequence[Any]) -> dict[Key, Array]:
    """The arrays of constants that graphs read, by what they hold: equal ones are one."""
    from pytensor.graph.basic import Constant
    from pytensor.graph.traversal import ancestors

    held: dict[Key, list[Any]] = {}
    for node in ancestors(list(graphs)):
        if isinstance(node, Constant) and getattr(node.type, "ndim", 0) > 0:
            values = np.asarray(node.data)
            held.setdefault((values.shape, values.dtype.str, values.tobytes()), []).append(node)
    return {
        key: Array(next((node.name for node in nodes if node.name), ""), np.asarray(nodes[0].data), tuple(nodes))
        for key, nodes in held.items()
    }


def evaluated(graphs: Sequence[Any]) -> list[np.ndarray]:
    """The values of graphs that have no inputs, in double precision."""
    from pytensor.graph.basic import Constant

    if all(isinstance(graph, Constant) for graph in graphs):
        return [np.asarray(graph.data) for graph in graphs]
    with in_double():
        outputs = {str(place): graph for place, graph in enumerate(frozen(graphs))}
        return [np.asarray(value) for value in JaxFunction({}, outputs)({}).values()]


def frozen(graphs: Sequence[Any], replacements: Mapping[Any, Any] | None = None) -> list[Any]:
    """Graphs with constants in the place of shared variables, and with other arrays in the place of some."""
    import pytensor.tensor as pt
    from pytensor.compile import SharedVariable
    from pytensor.graph.traversal import ancestors
    from pytensor.tensor import TensorVariable

    shared = {
        node
        for node in ancestors(list(graphs))
        if isinstance(node, SharedVariable) and isinstance(node, TensorVariable)
    }
    values = {node: pt.constant(node.get_value(), name=node.name) for node in shared}
    return with_inputs(graphs, values | dict(replacements or {}), _with_lengths)


def folded(graphs: Sequence[Any]) -> list[Any]:
    """Graphs in which what depends on constants alone is a constant: it is computed once, in double precision."""
    from pytensor.graph.basic import clone
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.traversal import graph_inputs
    from pytensor.tensor.rewriting.basic import topo_constant_folding

    # Rewriting changes operations in place, and others read them, too.
    _, copies = clone(list(graph_inputs(list(graphs))), list(graphs), copy_inputs=False, copy_orphans=False)
    graph = FunctionGraph(outputs=copies, clone=False)
    topo_constant_folding.rewrite(graph)
    return _with_less_to_read(list(graph.outputs))


def _with_less_to_read(graphs: list[Any]) -> list[Any]:
    """Graphs that compare an array of whole numbers with one of them, in the place of an array that holds the answers.

    A density asks where counts are zero. In the few rows of a step it is quicker to compare the counts, which are read anyway, than to read
    the answers too.
    """
    arrays = arrays_in(graphs).values()
    numbers = [array for array in arrays if array.values.dtype.kind in "iu"]
    compared: dict[Any, Any] = {}
    for array in arrays:
        found = [question for other in numbers if (question := _answered_by(other, array.values)) is not None]
        compared |= dict.fromkeys(array.nodes, found[0]) if found else {}
    return with_inputs(graphs, compared) if compared else graphs


def _answered_by(numbers: Array, answers: np.ndarray) -> Any:
    """Whether numbers are equal to one of them, or differ from it, as a graph whose values are these answers; None where there is none."""
    import pytensor.tensor as pt

    values = numbers.values
    # One row alone may be told by its number. Row numbers are no data.
    if answers.dtype.kind != "b" or answers.shape != values.shape or not 1 < answers.sum() < answers.size - 1:
        return None
    for compare, inside in ((pt.eq, answers), (pt.neq, ~answers)):
        one = values[inside][0]
        if np.array_equal(values == one, inside):
            return compare(numbers.nodes[0], one)
    return None


def with_inputs(graphs: Sequence[Any], replacements: Mapping[Any, Any], adapt: Adapt | None = None) -> list[Any]:
    """Graphs with other nodes in the place of some, whose shapes may be others.

    Args:
        graphs: the graphs.
        replacements: the other nodes, by those in whose place they go.
        adapt: from an operation's node and its new inputs to those that it gets.
    """
    from pytensor.graph.traversal import toposort

    new = dict(replacements)
    for node in toposort(list(graphs)):
        if all(out in new for out in node.outputs):
            continue
        given = [new.get(variable, variable) for variable in node.inputs]
        given = given if adapt is None else adapt(node, given)
        if any(one is not other for one, other in zip(given, node.inputs, strict=True)):
            for before, after in zip(node.outputs, _made_again(node.op, given, adapt), strict=True):
                after.name = before.name
                new.setdefault(before, after)
    return [new.get(graph, graph) for graph in graphs]


def _made_again(op: Any, given: list[Any], adapt: Adapt | None) -> list[Any]:
    """What an operation makes of other inputs, whose shapes may be others."""
    from pytensor.compile.builders import OpFromGraph, SymbolicOp

    if isinstance(op, SymbolicOp):
        return list(op(*given, return_list=True))
    if isinstance(op, OpFromGraph):  # made for one shape: its parts go in its place
        return with_inputs(op.fgraph.outputs, dict(zip(op.fgraph.inputs, given, strict=True)), adapt)
    return list(op.make_node(*given).outputs)


@cache
def _rewriter() -> Any:
    from pytensor.compile.mode import JAX

    # Checks of parameters look at all the rows, and JAX cannot raise.
    return JAX.including("local_remove_check_parameter").optimizer


@cache
def _jax_of_pytensor() -> Callable[..., Any]:
    """PyTensor's compiler for JAX. To import it sets the precision of the process, which is set back."""
    before: list[bool] = []
    reader = threading.Thread(target=lambda: before.append(_is_double()))
    reader.start()  # in a thread of its own: here the precision may be another one for a while
    reader.join()
    from pytensor.gradient import DisconnectedGrad
    from pytensor.link.jax.dispatch import jax_funcify

    jax.config.update("jax_enable_x64", before[0])
    # PyTensor's own conversion lets the gradient through.
    jax_funcify.register(DisconnectedGrad)(lambda op, **_: jax.lax.stop_gradient)
    compiler: Callable[..., Any] = jax_funcify
    return compiler


def _without_slopes_of_maxima(graph: Any) -> Any:
    """The graph without the gradient of what PyTensor takes away before it exponentiates: in log(sum(exp(x - m))) + m that of m cancels."""
    from pytensor.gradient import disconnected_grad
    from pytensor.graph.fg import FunctionGraph

    shifts = [node.outputs[0] for node in graph.apply_nodes if _kind(node) == "Switch"]
    held = {shift: disconnected_grad(shift) for shift in shifts if _cancels(graph, shift)}
    return FunctionGraph(graph.inputs, with_inputs(graph.outputs, held), clone=True) if held else graph


def _cancels(graph: Any, shift: Any) -> bool:
    """Whether log(sum(exp(x - m))) + m is all that reads m."""
    ways = [_way_to_a_sum(graph, node) for node, _ in graph.clients[shift]]
    kinds = sorted(kinds for kinds, _ in ways)
    taken_away = [node.inputs[1] is shift for node, _ in graph.clients[shift] if _kind(node) == "Sub"]
    return kinds == [(), ("Sub", "Exp", "Sum", "Log")] and taken_away == [True] and len({end for _, end in ways}) == 1


def _way_to_a_sum(graph: Any, node: Any) -> tuple[tuple[str, ...], Any]:
    """The operations from here to where something is added, as long as each is read by one other; axes that move do not count."""
    kinds: list[str] = []
    while _kind(node) != "Add":
        kinds += [_kind(node)] if _kind(node) != "DimShuffle" else []
        readers = [reader for out in node.outputs for reader, _ in graph.clients[out]]
        if len(readers) != 1:
            return ("no way",), node
        (node,) = readers
    return tuple(kinds), node


def _kind(node: Any) -> str:
    from pytensor.tensor.elemwise import Elemwise

    return type(node.op.scalar_op if isinstance(node.op, Elemwise) else node.op).__name__


def _with_lengths(node: Any, given: list[Any]) -> list[Any]:
    """The inputs of an operation, with the lengths that its array has where it was written for another array."""
    import pytensor.tensor as pt
    from pytensor.tensor.basic import Alloc

    if not isinstance(node.op, Alloc):
        return given
    array, *target = given
    offset = len(target) - array.ndim
    known = {offset + axis: size for axis, size in enumerate(array.type.shape) if size not in (None, 1)}
    return [array, *(pt.constant(known[place]) if place in known else size for place, size in enumerate(target))]


def _strong(array: jax.Array) -> jax.Array:
    """The array in a precision of its own. From a number of Python it would take that of the constants, some of which are single."""
    return jnp.asarray(array, array.dtype) if array.weak_type else array


def _is_double() -> bool:
    return bool(jnp.result_type(float) == jnp.float64)


def _in_single(graph: Any) -> Any:
    """The graph for single precision: a constant a little below 1, which keeps a logarithm finite, must not become 1."""
    import pytensor.tensor as pt
    from pytensor.graph.basic import Constant
    from pytensor.graph.fg import FunctionGraph

    held = {}
    for node in graph.variables:
        if isinstance(node, Constant) and getattr(node.type, "dtype", "") == "float64":
            rounded = (np.asarray(node.data, np.float32) == 1) & (node.data < 1)
            if rounded.any():
                held[node] = pt.constant(np.where(rounded, np.nextafter(np.float32(1), np.float32(0)), node.data))
    return FunctionGraph(graph.inputs, with_inputs(graph.outputs, held), clone=True) if held else graph


def _for_rows(node: Any, given: list[Any], length: int, count: int) -> list[Any]:
    """The inputs of an operation with `count` rows, where it was written for `length` of them."""
    import pytensor.tensor as pt
    from pytensor.graph.basic import Constant
    from pytensor.tensor.basic import Alloc, AllocEmpty, ARange
    from pytensor.tensor.shape import Reshape, SpecifyShape

    shapes: tuple[int, ...] = ()
    if isinstance(node.op, Alloc | Reshape | SpecifyShape | ARange):
        shapes = tuple(range(1, len(given)))
    elif isinstance(node.op, AllocEmpty):
        shapes = tuple(range(len(given)))
    made = list(given)
    for place, variable in enumerate(given):
        if isinstance(variable, Constant) and hasattr(variable.type, "ndim"):
            values = np.asarray(variable.data)
            if place in shapes:
                other = np.where(values == length, count, values).astype(values.dtype)
            else:
                other = _constant_for_rows(values, length, count)
            if other.shape != values.shape or not np.array_equal(other, values):
                made[place] = pt.constant(other, dtype=variable.dtype)
    return made


def _constant_for_rows(values: np.ndarray, length: int, count: int) -> np.ndarray:
    """A constant that has the same in all rows, or the numbers of the rows, with another number of rows; any other as it is."""
    for axis in np.flatnonzero(np.asarray(values.shape) == length):
        first = np.take(values, [0], axis)
        numbers = np.arange(max(length, count)).reshape([-1 if place == axis else 1 for place in range(values.ndim)])
        for step in (0, 1):
            rows = first + step * numbers.astype(values.dtype)
            if np.array_equal(
                np.take(rows, np.arange(length), axis) if step else np.repeat(rows, length, axis), values
            ):
                values = np.take(rows, np.arange(count), axis) if step else np.repeat(rows, count, axis)
                break
    return values
