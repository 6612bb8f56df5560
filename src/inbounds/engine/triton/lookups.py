"""Look-ups of rows, what is made of them, and the sums into which that goes, in one kernel of our own.

The gradient of a table of which a minibatch looks up few rows (factors of users and items, effects of groups) is short work in three or
more kernels of XLA's: one that looks up and sums each row, one for each table that looks up again and adds. What a datum does to the
tables is arithmetic on its own rows, and one kernel does all of it: it looks each row up once, computes theta there in the GPU's
instructions, and adds what is due to the sums. At MovieLens 10M's shape and rank 20 that takes 3 microseconds for 7 on an H200.

As in `moves`, nobody writes such a kernel for a model: of the equations of a traced step those are taken that act on each row of the
minibatch alone and lead to the sums. A function of a table's every number, of which rows are looked up, is that function of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from inbounds.engine.triton.arithmetic import (
    LARGEST_INDEX,
    PASSED,
    RESHAPES,
    Calculator,
    Equation,
    Plain,
    Var,
    is_elementwise,
    is_in,
    passed,
    settled,
    triton,
)

__all__ = ["Lookups"]

BLOCK = 512  # numbers of a block
WIDEST = 256  # numbers of a row
WARPS = 4  # of threads, for a block
IN_BOUNDS, CLIPPED = lax.GatherScatterMode.PROMISE_IN_BOUNDS, lax.GatherScatterMode.CLIP
FILLED = lax.GatherScatterMode.FILL_OR_DROP


@dataclass(frozen=True)
class Lookups:
    """The equations of a minibatch's rows, in order, with what goes in and what comes out."""

    count: int  # of rows
    equations: list[Equation]
    table_equations: dict[Var, Equation]  # of each number of a table, which are done at the rows that are looked up
    additions: list[Equation]
    tables: list[Var]
    sliced: list[Var]  # data, of which the rows are a slice
    rows: list[Var]  # one number for each row
    scalars: list[Var]
    outputs: list[Var]  # one number for each row, for XLA

    @property
    def inputs(self) -> list[Var]:
        """All that the kernel is given but the sums, in order."""
        return list(dict.fromkeys([*self.tables, *self.sliced, *self.rows, *self.scalars]))

    @property
    def sums(self) -> list[Var]:
        return [equation.outvars[0] for equation in self.additions]

    @property
    def looked_up(self) -> set[Var]:
        """What depends on a look-up."""
        found: set[Var] = set()
        for equation in self.equations:
            if _is_lookup(equation, self.count) or any(is_in(v, found) for v in equation.invars):
                found |= set(equation.outvars)
        return found

    @classmethod
    def of(
        cls,
        head: list[Equation],
        sums: Iterable[Var],
        is_written: Callable[[Var], bool],
        given: set[Var],
        chains: int = 1,
    ) -> Lookups | None:
        """The kernel that adds to `sums`, of equations that XLA would do before the large variables move; None where there is none.

        `is_written` says what lies in memory, `given` is what a step is left by the one before, and `chains` do it side by side.
        """
        wanted, made_by = set(sums), {v: equation for equation in head for v in equation.outvars}
        additions = [equation for equation in head if is_in(equation.outvars[0], wanted)]
        counts = {equation.invars[1].aval.shape[0] for equation in additions}
        if len(additions) != len(wanted) or len(counts) != 1:
            return None
        (count,) = counts
        # Of one row nothing would tell what belongs to it from what does not.
        if count == 1 or not all(_is_addition(equation, count) for equation in additions):
            return None
        # In order, as all that follows: the same step makes the same kernel in every process, which XLA's cache then knows.
        needed = dict.fromkeys(v for equation in additions for v in equation.invars[1:])
        taken, sliced = dict[int, Equation](), dict[Var, None]()
        tables, table_equations = dict[Var, None](), dict[Var, Equation]()

        def at_rows(v: Var) -> None:
            """Find what must lie in memory for a table to be known at any row, and the equations that make it of that."""
            equation = made_by.get(v)
            if v in given or equation is None or not _is_of_each_number(equation):
                tables[v] = None
            elif v not in table_equations:
                for source in _variables(equation):
                    if source.aval.size == 1:
                        needed[source] = None
                    else:
                        at_rows(source)
                table_equations[v] = equation

        for equation in reversed(head):
            if not is_in(equation.outvars[0], needed) or equation.outvars[0] in given or not _fits(equation, count):
                continue
            taken[id(equation)] = equation
            sources = _variables(equation)
            if _is_lookup(equation, count):
                at_rows(sources.pop(0))
            elif _is_slice_of_data(equation, count):
                sliced[sources.pop(0)] = None
            needed |= dict.fromkeys(sources)
        leaves = [v for v in needed if id(made_by.get(v)) not in taken]
        rows, scalars = ([v for v in leaves if (v.aval.size == 1) is one] for one in (False, True))
        arrays = [*tables, *sliced, *rows]
        if not all(_is_row(v, count) for v in rows) or not all(v in given or is_written(v) for v in arrays):
            return None
        if any(v.aval.dtype.name not in PASSED for v in (*arrays, *scalars)):
            return None
        if any((1 if v in sliced else chains) * v.aval.size > LARGEST_INDEX for v in arrays):
            return None
        equations = [equation for equation in head if id(equation) in taken]
        found = cls(count, equations, table_equations, additions, list(tables), list(sliced), rows, scalars, [])
        return found if found.looked_up else None

    def with_outputs(self, outputs: list[Var]) -> Lookups | None:
        """The same, that writes these too; None if it cannot."""
        possible = all(_is_row(v, self.count) and v.aval.dtype == np.float32 for v in outputs)
        return replace(self, outputs=outputs) if possible else None

    def add(self, env: dict[Any, Any], arithmetic: type[Plain], *, interpreted: bool) -> dict[Var, jax.Array]:
        """The sums and the outputs, given the inputs and what the sums were."""
        from jax.experimental import pallas as pl

        block = (max(1, BLOCK // self._lanes), self._lanes)
        operands = [passed(env[v]) for v in self.inputs]
        results = [*self.sums, *self.outputs]
        added = pl.pallas_call(
            partial(self._kernel, arithmetic, block),
            out_shape=[jax.ShapeDtypeStruct((v.aval.size,), np.float32) for v in results],
            grid=(pl.cdiv(self.count, block[0]),),
            input_output_aliases={len(operands) + at: at for at in range(len(self.sums))},
            name="add_rows",
            interpret=interpreted,
            compiler_params=None if interpreted else triton().CompilerParams(num_warps=WARPS, num_stages=1),
        )(*operands, *(env[v].reshape(-1) for v in self.sums))
        return {v: x.reshape(v.aval.shape) for v, x in zip(results, added, strict=True)}

    @property
    def _lanes(self) -> int:
        """Numbers of the widest row, as a power of two."""
        variables = [
            v for equation in (*self.equations, *self.additions) for v in equation.invars[1:] + equation.outvars
        ]
        widths = [v.aval.shape[1] for v in variables if v.aval.shape[:1] == (self.count,) and v.aval.ndim == 2]
        return 1 << (max(widths, default=1) - 1).bit_length()

    # -- the kernel ------------------------------------------------------------------------------------------------

    def _kernel(self, arithmetic: type[Plain], block: tuple[int, int], *refs: Any) -> None:
        """One block of rows. What is one number for each row has one column."""
        from jax.experimental import pallas as pl

        row = pl.program_id(0) * block[0] + lax.broadcasted_iota(np.int32, (block[0], 1), 0)
        lane = lax.broadcasted_iota(np.int32, block, 1)
        inside = row < self.count
        inputs, sums = len(self.inputs), len(self.additions)
        at = dict(zip(self.inputs, refs[:inputs], strict=True))
        results = refs[inputs + sums :]
        env: dict[Var, Any] = {v: _load(at[v], row, inside, v) for v in self.rows}
        env |= {v: at[v][0] != 0 if v.aval.dtype == bool else at[v][0] for v in self.scalars}
        calculate = Calculator(arithmetic)

        def value(v: Any) -> Any:
            return calculate.constant(v) if isinstance(v, Literal) else env[v]

        def places(index: jax.Array, table: Var) -> tuple[jax.Array, jax.Array]:
            """Where rows of a table lie, and which of their numbers there are."""
            width = 1 if table.aval.ndim == 1 else table.aval.shape[1]
            return (index, inside) if width == 1 else (index * width + lane, inside & (lane < width))

        def row_of(equation: Equation, table: Var) -> tuple[jax.Array, jax.Array]:
            """Which row of a table an equation looks up or adds to, and whether that is the row that it asks for."""
            index = jnp.broadcast_to(settled(value(equation.invars[1])), row.shape)
            if equation.params["mode"] == IN_BOUNDS:
                return index, inside
            held = jnp.minimum(jnp.maximum(index, 0), table.aval.shape[0] - 1)
            return held, held == index

        def looked_up(table: Var, index: jax.Array, known: dict[Var, Any]) -> Any:
            """The rows of a table at an index."""
            if table not in known:
                equation = self.table_equations.get(table)
                if equation is None:
                    known[table] = _load(at[table], *places(index, table), table)
                else:
                    sources = [value(v) if v.aval.size == 1 else looked_up(v, index, known) for v in equation.invars]
                    known[table] = calculate(equation, sources)
            return known[table]

        known: dict[tuple[Any, ...], dict[Var, Any]] = {}  # by index, and what becomes of those beyond the end
        for equation in self.equations:
            first, *rest = equation.invars
            if _is_lookup(equation, self.count):
                held, valid = row_of(equation, first)
                result = looked_up(first, held, known.setdefault((rest[0], equation.params["mode"]), {}))
                if equation.params["mode"] == FILLED:
                    result = jnp.where(valid, settled(result), jnp.nan)
            elif _is_slice_of_data(equation, self.count):
                start = jnp.minimum(jnp.maximum(value(rest[0]), 0), first.aval.shape[0] - self.count)
                result = _load(at[first], start + row, inside, first)
            elif _is_row_sum(equation):
                there = lane < first.aval.shape[1]
                result = jnp.sum(jnp.where(there, settled(value(first)), 0.0), axis=1)[:, None]
            elif equation.primitive.name == "pad":
                result = jnp.where(lane < first.aval.shape[1], settled(value(first)), 0.0)
            elif equation.primitive.name == "slice":
                result = value(first)
                if _is_row(equation.outvars[0], self.count):
                    result = jnp.sum(jnp.where(lane == 0, settled(result), 0.0), axis=1)[:, None]
            else:
                result = calculate(equation, [value(v) for v in equation.invars])
            env[equation.outvars[0]] = result
        for equation, ref in zip(self.additions, results[:sums], strict=True):
            held, valid = row_of(equation, equation.outvars[0])
            where, there = places(held, equation.outvars[0])
            there = there & valid if equation.params["mode"] == FILLED else there
            arithmetic.add_at(ref, where, jnp.broadcast_to(settled(value(equation.invars[2])), where.shape), there)
        for v, ref in zip(self.outputs, results[sums:], strict=True):
            triton().store(ref.at[row], jnp.broadcast_to(settled(env[v]), row.shape), mask=inside)


def _load(ref: Any, places: jax.Array, inside: jax.Array, like: Any) -> jax.Array:
    loaded: jax.Array = triton().load(ref.at[places], mask=inside, other=0)
    return loaded != 0 if like.aval.dtype == bool else loaded


def _is_of_each_number(equation: Equation) -> bool:
    """Whether it makes each number of a table of one number of each of others, and of constants."""
    shape, name = equation.outvars[0].aval.shape, equation.primitive.name
    if name in RESHAPES and name != "broadcast_in_dim":
        return bool(name == "copy")
    return (
        is_elementwise(equation)
        and name != "reduce_sum"
        and all(v.aval.dtype.name in PASSED for v in (*equation.invars, *equation.outvars))
        and all(v.aval.shape == shape or v.aval.size == 1 for v in _variables(equation))
    )


# -- which equations act on each row alone -------------------------------------------------------------------------


def _variables(equation: Equation) -> list[Var]:
    return [v for v in equation.invars if not isinstance(v, Literal)]


def _is_row(v: Any, count: int) -> bool:
    """Whether it is one number for each row."""
    return v.aval.shape in ((count,), (count, 1))


def _is_rows(v: Any, count: int) -> bool:
    """Whether it is one number for each row, or some."""
    return _is_row(v, count) or (v.aval.ndim == 2 and v.aval.shape[0] == count and v.aval.shape[1] <= WIDEST)


def _fits(equation: Equation, count: int) -> bool:
    """Whether it acts on each row alone, and a kernel can do it."""
    if len(equation.outvars) != 1 or any(v.aval.dtype.name not in PASSED for v in equation.outvars):
        return False
    if _is_lookup(equation, count) or _is_slice_of_data(equation, count):
        return True
    (result,), name = equation.outvars, equation.primitive.name
    inputs = _variables(equation)
    if any(v.aval.dtype.name not in PASSED for v in inputs):
        return False
    many = [v for v in inputs if v.aval.size > 1]
    if not all(_is_rows(v, count) for v in (*many, *([result] if many or result.aval.size > 1 else []))):
        return False
    if _is_row_sum(equation):
        return bool(result.aval.dtype == np.float32)
    if name in ("pad", "slice") and (not many or many[0].aval.ndim == 1):
        return False
    if name == "pad":  # or cut, at the end of every row
        of_rows, (low, _, between) = equation.params["padding_config"]
        filling = equation.invars[1]
        zeros = isinstance(filling, Literal) and filling.val == 0 and result.aval.dtype == np.float32
        return zeros and not any(of_rows) and low == between == 0 and not _is_row(result, count)
    if name == "slice":
        strides = equation.params["strides"]
        first = result.aval.dtype == np.float32 or not _is_row(result, count)
        return first and not any(equation.params["start_indices"]) and (strides is None or all(s == 1 for s in strides))
    if not is_elementwise(equation):
        return False
    if name == "broadcast_in_dim" and many:
        return tuple(equation.params["broadcast_dimensions"]) == tuple(range(many[0].aval.ndim))
    if name in RESHAPES | {"reduce_sum"} and many:
        return name == "copy" or (_is_row(many[0], count) and _is_row(result, count))
    return True


def _is_row_sum(equation: Equation) -> bool:
    if equation.primitive.name != "reduce_sum":
        return False
    like = equation.invars[0].aval
    return like.ndim == 2 and like.shape[1] > 1 and tuple(equation.params["axes"]) == (1,)


def _is_by_row(equation: Equation, count: int, whole: Any, collapsed: Any, mapped: Any) -> bool:
    """Whether an index, one for each row, says which row of a table is meant, or which number of a vector, and all of it is.

    `whole`, `collapsed` and `mapped` are what gathers and scatters call the axes of a row, of which one is left out, and that of the index.
    """
    table, index = equation.invars[:2]
    return (
        not isinstance(index, Literal)
        and index.aval.shape == (count, 1)
        and index.aval.dtype == np.int32
        and (table.aval.ndim == 1 or (table.aval.ndim == 2 and table.aval.shape[1] <= WIDEST))
        and tuple(whole) == tuple(range(1, table.aval.ndim))
        and tuple(collapsed) == tuple(mapped) == (0,)
        and not equation.params["dimension_numbers"].operand_batching_dims
        and equation.params["mode"] in (IN_BOUNDS, CLIPPED, FILLED)
    )


def _is_lookup(equation: Equation, count: int) -> bool:
    """Whether it looks rows of a table up, or numbers of a vector."""
    if equation.primitive.name != "gather":
        return False
    numbers, table = equation.params["dimension_numbers"], equation.invars[0].aval
    by_row = _is_by_row(equation, count, numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map)
    whole = tuple(equation.params["slice_sizes"]) == (1, *table.shape[1:])
    if equation.params["mode"] == FILLED and not (table.dtype == np.float32 and _is_nan(equation.params["fill_value"])):
        return False
    return by_row and whole


def _is_nan(filling: Any) -> bool:
    return filling is None or bool(np.isnan(filling))


def _is_slice_of_data(equation: Equation, count: int) -> bool:
    if equation.primitive.name != "dynamic_slice":
        return False
    data, *start = equation.invars
    return data.aval.ndim == 1 and tuple(equation.params["slice_sizes"]) == (count,) and len(start) == 1


def _is_addition(equation: Equation, count: int) -> bool:
    """Whether it adds rows to those of a table, or numbers to those of a vector."""
    if equation.primitive.name != "scatter-add":
        return False
    numbers, (table, _, values) = equation.params["dimension_numbers"], equation.invars
    mapped = numbers.scatter_dims_to_operand_dims
    by_row = _is_by_row(equation, count, numbers.update_window_dims, numbers.inserted_window_dims, mapped)
    return by_row and not isinstance(values, Literal) and values.aval.shape == (count, *table.aval.shape[1:])
