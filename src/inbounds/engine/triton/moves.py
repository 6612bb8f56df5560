"""The move of large variables in one kernel of our own, on NVIDIA GPUs.

What a step does to a large variable once its gradient is known (the transform's derivatives, the noise, the move) is arithmetic on each
number alone. The loop that XLA makes of it is bound by instructions, not by memory: it calls the generator for every number and uses one
of its two words, has two instructions for a product and a sum, and functions that are right to the last place for every argument. A
kernel in Pallas (lowered to Triton) makes two normals of two words, by Box and Muller with the sine and cosine that GPUs have, and fuses
products and sums: on an H200 ten million numbers take 18 microseconds where XLA's loop takes 43, with softplus 27 for 55, with ICLL 31
for 63.

Nobody writes such a kernel for a model. A step is traced as it is, and of its equations those that act on each number of a variable
alone and lead to its next value are taken out, from the noise backwards to what is no such equation: a product of matrices, a sum of
looked-up rows. They are the kernel; the rest is left to XLA. Where the noise of a variable goes anywhere else (a thermostat), XLA keeps
that variable.

In a loop each step leaves something for the next. The gradient of a table of which a step looks up few rows is a sum into zeros: the
kernel, which reads it, writes zeros in its place, where XLA would fill them in once in a turn of the loop and copy them for every other
step of it. The sum itself is another kernel (`lookups`). And theta, which products of matrices want in memory, is written along
with phi.
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from inbounds.engine.generator import threefry
from inbounds.engine.triton.arithmetic import (
    LARGEST_INDEX,
    PASSED,
    RESHAPES,
    Calculator,
    Equation,
    Fast,
    Plain,
    Var,
    is_elementwise,
    is_in,
    is_reshape,
    of_two_words,
    passed,
    settled,
    triton,
)
from inbounds.engine.triton.lookups import Lookups
from inbounds.trees import PyTree

__all__ = ["Broadcast", "Fused", "Part", "Tail", "normals", "quietly", "works"]

# Numbers in all the chains: that kernels of our own must move to pay in any case, and of a variable that then has a part of them.
LARGE, WORTH_A_PART = 2**17, 2**10
HALF = 512  # numbers of half a block: one word of each counter is for the first half, one for the second
WARPS = 4  # of threads, for a block
SWITCH = "INBOUNDS_KERNELS"  # the environment variable that turns them off
INTERPRETED = False  # kernels run on any device, slowly: for tests

# What XLA writes to memory in any case. Anything else it would have joined to the move, and to write it for a kernel costs what that saves.
WRITTEN = {"conv_general_dilated", "cumsum", "dot_general", "pallas_call", "scan", "scatter-add", "sort", "while"}
PRODUCTS = {"conv_general_dilated", "dot_general"}  # which want what they multiply in memory
CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2"}


@cache
def works() -> bool:
    """Whether kernels can be made here: the device is asked, by a small one whose result is known. Not while something is traced."""
    if os.environ.get(SWITCH) == "0":
        return False
    if INTERPRETED:
        return True
    try:
        return bool(_works())
    except Exception:  # another JAX, another GPU: XLA's loop does the same
        logging.getLogger(__name__).info("No kernels of our own on this device.", exc_info=True)
        return False


def quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which may compile kernels, without the warning of JAX that its Triton backend will be gone some day.

    `works` then says no, until the kernels are written for what takes its place (Mosaic GPU).
    """

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated", DeprecationWarning)
            return function(*arguments)

    return call


@quietly
def _works() -> bool:
    like = jax.ShapeDtypeStruct((-(-LARGE // 32), 32), np.float32)
    words, number = np.asarray([3, 5], np.uint32), np.asarray(7)
    rows = np.arange(1_000, dtype=np.int32) % 20

    def step(noise: jax.Array, x: jax.Array) -> jax.Array:
        looked_up = jnp.exp(-x).at[rows].get(mode="clip")
        sums = jnp.zeros_like(x).at[rows].add(looked_up * jnp.sum(looked_up, axis=1, keepdims=True), mode="clip")
        return (
            jnp.exp(-jnp.abs(x)) * noise + 1 / (1 + jnp.exp(-jnp.clip(jnp.maximum(x, -3.0), -2.0, 2.0))) + 1e-3 * sums
        )

    def both(words: jax.Array, number: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        kernels = Fused(step, like, (x,), in_a_row=True)
        drawn = normals(words, number, [like])[0]
        return kernels(words, number, kernels.begin(x), x)[0], step(drawn, x)

    x = np.append(np.linspace(-4, 4, like.size - 1), np.nan).astype(np.float32).reshape(like.shape)
    found, wanted = (np.asarray(result).reshape(-1) for result in jax.jit(both)(words, number, x))
    return bool(np.isnan(found[-1]) and np.all(np.abs(found - wanted)[:-1] <= 1e-4 * (1 + np.abs(wanted[:-1]))))


# What a variable of a traced step is to the numbers of one that moves: as many, in the same order; the same one for all of them. Neither: None.
VECTOR, UNIFORM = "vector", "uniform"


class Broadcast(NamedTuple):
    """A smaller array in the place of one as large as the variable that moves: of its shape, with how far apart neighbours lie in the array."""

    array: Var
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # 0 along axes that the array does not have

    @classmethod
    def of(cls, equation: Equation, array: Var) -> Broadcast | None:
        """How an equation broadcasts one of its inputs, if it does."""
        shape, own = equation.outvars[0].aval.shape, array.aval.shape
        axes = (
            range(len(shape))
            if equation.primitive.name != "broadcast_in_dim"
            else equation.params["broadcast_dimensions"]
        )
        if (is_reshape(equation) and equation.primitive.name != "broadcast_in_dim") or len(axes) != len(own):
            return None
        strides = [0] * len(shape)
        for place, axis in enumerate(axes):
            if own[place] not in (1, shape[axis]):
                return None
            strides[axis] = 0 if own[place] == 1 else math.prod(own[place + 1 :])
        return cls(array, shape, tuple(strides))

    def places(self, flat: jax.Array) -> jax.Array:
        """Where in the array lies what belongs to these places of the variable."""
        found = jnp.zeros_like(flat)
        for axis, stride in enumerate(self.strides):
            if stride:
                within = lax.div(flat, jnp.full_like(flat, math.prod(self.shape[axis + 1 :])))
                found += lax.rem(within, jnp.full_like(flat, self.shape[axis])) * stride
        return found


class Tail(NamedTuple):
    """The equations that move one variable, in order, with what goes in and what comes out."""

    place: int  # of its noise among that of all
    noise: Var
    size: int
    equations: list[Equation]
    arrays: list[Var]
    broadcasts: list[Broadcast]
    scalars: list[Var]
    outputs: dict[int, Var]  # by their place in the state,
    olds: list[Var]  # and what was there before
    sums: Sequence[Var] = ()  # among the arrays: sums into zeros, in whose place zeros are left
    ahead: Sequence[Var] = ()  # made of the new state for the next step,
    ahead_equations: Sequence[Equation] = ()  # by these

    @property
    def inputs(self) -> list[Var]:
        """All that the kernel is given, in order."""
        return [*self.arrays, *(broadcast.array for broadcast in self.broadcasts), *self.scalars]


class Fused:
    """`function(noise, *arguments)`, with the noise of all but small leaves made and used up in kernels. For several chains, `jax.vmap` it.

    Args:
        function: of a tree of standard normals and of other trees, the first of them the state; returns the next state, and maybe more.
        noise: shapes of the normals.
        arguments: what it will be called with, or the like of it.
        chains: over which it will be mapped.
        in_a_row: calls follow one another, and each leaves for the next what that can use.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        noise: PyTree,
        arguments: tuple[Any, ...],
        *,
        chains: int = 1,
        in_a_row: bool = False,
    ):
        self.chains = chains
        self.noise = jax.tree.leaves(noise)
        self.closed, self.result = _inlined(function, noise, arguments)
        jaxpr = self.closed.jaxpr
        self.state = jaxpr.invars[len(self.noise) :][: len(jax.tree.leaves(arguments[0]))]
        self.made_by = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
        worth = [
            at for at, leaf in enumerate(self.noise)
            if leaf.size > 1 and chains * leaf.size >= WORTH_A_PART and leaf.dtype == np.float32
        ]  # fmt: skip
        # What prints, or calls back, is left as it is.
        self.tails = [] if self.closed.effects else [tail for at in worth if (tail := self._tail(at)) is not None]
        self.lookups: Lookups | None = None
        self._leave_to_xla()
        if in_a_row:
            self.tails = [tail._replace(sums=self._sums_into_zeros(tail)) for tail in self.tails]
            self.tails = [self._with_ahead(tail) for tail in self.tails]
            self._leave_to_xla()
            self.lookups = self._lookups()
            self._leave_to_xla()

    @property
    def pays(self) -> bool:
        """Whether the kernels are faster than XLA's. Those of few numbers are as short as a launch is: only one in the place of three is.

        XLA is slow at the kernels' noise, where it must draw it: most of the numbers must be theirs.
        """
        moved = sum(tail.size for tail in self.tails)
        in_place_of_three = self.lookups is not None and len(self.lookups.sums) > 1
        return 2 * moved >= sum(leaf.size for leaf in self.noise) and (
            self.chains * moved >= LARGE or in_place_of_three
        )

    def begin(self, *arguments: PyTree) -> list[jax.Array]:
        """What the first of calls in a row is left."""
        jaxpr, left = self.closed.jaxpr, []
        for tail in self.tails:
            left += [jnp.zeros(v.aval.shape, np.float32) for v in tail.sums]
            env = dict(zip(jaxpr.invars[len(self.noise) :], jax.tree.leaves(arguments), strict=True))
            for equation in tail.ahead_equations:
                env |= zip(equation.outvars, _bind(equation, [_read(env, v) for v in equation.invars]), strict=True)
            left += [env[v] for v in tail.ahead]
        return left

    def __call__(
        self, words: jax.Array, number: jax.Array, left: list[jax.Array], *arguments: PyTree
    ) -> tuple[Any, ...]:
        """(what `function` returns, what is left for the next call) of step `number`, under the two words of a key."""
        jaxpr, env = self.closed.jaxpr, dict(zip(self.closed.jaxpr.constvars, self.closed.consts, strict=True))
        env |= zip(jaxpr.invars[len(self.noise) :], jax.tree.leaves(arguments), strict=True)
        drawn = normals(words, number, self.noise) if self.reads else []
        env |= {jaxpr.invars[place]: drawn[place] for place in self.reads}
        env |= zip((v for tail in self.tails for v in (*tail.sums, *tail.ahead)), left, strict=True)
        self._evaluate(self.head[: self.before], env)
        if self.lookups is not None:
            env |= self.lookups.add(env, Plain if INTERPRETED else Fast, interpreted=INTERPRETED)
        self._evaluate(self.head[self.before :], env)
        outputs, left = self._moved(words, number, env) if self.tails else ({}, [])
        values = [outputs[place] if place in outputs else _read(env, v) for place, v in enumerate(jaxpr.outvars)]
        return jax.tree.unflatten(self.result, values), left

    @staticmethod
    def _evaluate(equations: list[Equation], env: dict[Any, Any]) -> None:
        for equation in equations:
            values = [_read(env, v) for v in equation.invars]
            if is_in(equation.outvars[0], env):
                values[0] = env[equation.outvars[0]]  # zeros that were left
            env |= zip(equation.outvars, _bind(equation, values), strict=True)

    # -- what goes where -------------------------------------------------------------------------------------------

    def _tail(self, place: int) -> Tail | None:
        """The equations between the noise of one leaf and the outputs that depend on it; None where they do more than move it."""
        jaxpr = self.closed.jaxpr
        own, size = jaxpr.invars[place], self.noise[place].size
        if self.chains * (size + 2 * HALF) > LARGEST_INDEX:
            return None
        noisy, elsewhere = {own}, set(jaxpr.invars[: len(self.noise)]) - {own}
        for equation in jaxpr.eqns:
            for group in (noisy, elsewhere):
                if any(is_in(v, group) for v in equation.invars):
                    group |= set(equation.outvars)
        kinds = self._kinds(size)
        outputs = {at: v for at, v in enumerate(jaxpr.outvars[: len(self.state)]) if is_in(v, noisy)}
        if not outputs or any(kinds[v] != VECTOR or v.aval.dtype != np.float32 for v in outputs.values()):
            return None
        taken: set[int] = set()
        needed, broadcasts = set(outputs.values()), dict[Broadcast, None]()
        for equation in reversed(jaxpr.eqns):
            if equation.outvars[0] in needed and _fits(equation, kinds):
                taken.add(id(equation))
                variables = [v for v in equation.invars if not isinstance(v, Literal)]
                needed |= {v for v in variables if kinds[v] is not None}
                small = [Broadcast.of(equation, v) for v in variables if kinds[v] is None]
                broadcasts |= dict.fromkeys(b for b in small if b is not None)
        inputs = [v for v in needed - {own} if id(self.made_by.get(v)) not in taken]
        given = [*inputs, *(broadcast.array for broadcast in broadcasts)]
        if any(v in noisy | elsewhere or v.aval.dtype.name not in PASSED for v in given):
            return None
        if any(kinds[v] == VECTOR and not self._is_written(v) for v in inputs):
            return None
        # What else of the state is made on the way is written by the kernel too.
        for at, v in enumerate(jaxpr.outvars[: len(self.state)]):
            equation = None if isinstance(v, Literal) else self.made_by.get(v)
            if id(equation) in taken and kinds[v] == VECTOR and v.aval.dtype == np.float32:
                outputs[at] = v
        equations = [equation for equation in jaxpr.eqns if id(equation) in taken]
        order = {v: place for place, v in enumerate((*jaxpr.constvars, *jaxpr.invars, *self.made_by))}
        inputs = sorted(inputs, key=order.__getitem__)
        arrays, scalars = ([v for v in inputs if (kinds[v] == VECTOR) is many] for many in (True, False))
        olds = [self.state[at] for at in outputs]
        return Tail(place, own, size, equations, arrays, list(broadcasts), scalars, outputs, olds)

    def _kinds(self, size: int) -> dict[Any, str | None]:
        """What every variable is to one of this size."""

        def by_shape(variable: Any) -> str | None:
            return {1: UNIFORM, size: VECTOR}.get(variable.aval.size)

        jaxpr = self.closed.jaxpr
        kinds: dict[Any, str | None] = {v: by_shape(v) for v in (*jaxpr.invars, *jaxpr.constvars)}
        for equation in jaxpr.eqns:
            kinds |= {v: by_shape(v) for v in equation.outvars}
            if is_elementwise(equation) and all(isinstance(v, Literal) or kinds[v] == UNIFORM for v in equation.invars):
                kinds[equation.outvars[0]] = UNIFORM  # also where it is broadcast
        return kinds

    def _leave_to_xla(self) -> None:
        """Say which equations it does, first those before the look-ups, and which noise they read."""
        wanted, given = self._wanted, self._ahead
        if self.lookups is not None:
            wanted, given = wanted + self.lookups.inputs, given | {*self.lookups.sums, *self.lookups.outputs}
        head = _makers(self.closed.jaxpr.eqns, wanted, given)
        first = [] if self.lookups is None else _makers(head, self.lookups.inputs, given)
        self.before, known = len(first), {id(equation) for equation in first}
        self.head = first + [equation for equation in head if id(equation) not in known]
        read = _read_by(self.head) | {v for v in wanted if not isinstance(v, Literal)}
        self.reads = [place for place, v in enumerate(self.closed.jaxpr.invars[: len(self.noise)]) if v in read]

    @property
    def _wanted(self) -> list[Var]:
        """What a step returns and its kernels do not make, and what they move the large variables by."""
        of_kernels = {place for tail in self.tails for place in tail.outputs}
        returned = [v for place, v in enumerate(self.closed.jaxpr.outvars) if place not in of_kernels]
        return returned + [v for tail in self.tails for v in tail.inputs]

    @property
    def _ahead(self) -> set[Var]:
        return {v for tail in self.tails for v in tail.ahead}

    def _lookups(self) -> Lookups | None:
        """The kernel that makes the sums of rows, unless XLA would have to look the same rows up for something else."""
        sums = {v for tail in self.tails for v in tail.sums}
        found = Lookups.of(self.head, sums, self._is_written, self._ahead, self.chains) if sums else None
        if found is None:
            return None
        made = found.looked_up
        before = _makers(self.head, found.inputs, self._ahead)
        if any(v in made | sums for equation in before for v in equation.outvars):
            return None  # what it is given depends on what it makes
        read = _read_by(_makers(self.head, self._wanted, self._ahead | sums | made)) | {
            v for v in self._wanted if not isinstance(v, Literal)
        }
        return found.with_outputs([v for equation in found.equations for v in equation.outvars if v in made & read])

    def _sums_into_zeros(self, tail: Tail) -> list[Var]:
        """Sums of rows that nothing but the kernel reads."""
        read = _read_by(self.head)
        read |= {v for other in self.tails if other is not tail for v in other.inputs}
        read |= {v for v in tail.inputs if v not in tail.arrays}

        def is_sum(v: Var) -> bool:
            equation = self.made_by.get(v)
            return (
                equation is not None
                and equation.primitive.name == "scatter-add"
                and self._is_zero(equation.invars[0])
                and v.aval.dtype == np.float32
            )

        return [v for v in tail.arrays if v not in read and is_sum(v)]

    def _with_ahead(self, tail: Tail) -> Tail:
        """What XLA would make of the new state alone, number by number, at the start of the next step: theta, for products of matrices.

        Sums, and look-ups of rows, make theta as they go: that takes less than to write it, even where the rows are as many as the table has.
        """
        kinds = self._kinds(tail.size)
        made: dict[Var, Equation] = {}
        for equation in self.head:
            known = all(isinstance(v, Literal) or v in tail.olds or v in made for v in equation.invars)
            if known and _fits(equation, kinds):
                made[equation.outvars[0]] = equation
        ahead: dict[Var, None] = {}
        for equation in self.head:
            if equation.primitive.name in PRODUCTS:
                mine = [v for v in equation.invars if is_in(v, made)]
                ahead |= dict.fromkeys(v for v in mine if kinds[v] == VECTOR and v.aval.dtype == np.float32)
        needed = set(ahead)
        for v in reversed(made):
            if v in needed:
                needed |= {x for x in made[v].invars if is_in(x, made)}
        return tail._replace(ahead=list(ahead), ahead_equations=[e for v, e in made.items() if v in needed])

    def _is_written(self, variable: Any) -> bool:
        """Whether it lies in memory whatever the kernel does."""
        equation = self.made_by.get(variable)
        if equation is None or equation.primitive.name in WRITTEN:
            return True
        return equation.primitive.name in RESHAPES | {"transpose"} and self._is_written(equation.invars[0])

    def _is_zero(self, variable: Any) -> bool:
        if isinstance(variable, Literal):
            return bool(np.all(variable.val == 0))
        equation = self.made_by.get(variable)
        return equation is not None and equation.primitive.name in RESHAPES and self._is_zero(equation.invars[0])

    # -- the kernel ------------------------------------------------------------------------------------------------

    def _moved(
        self, words: jax.Array, number: jax.Array, env: dict[Any, Any]
    ) -> tuple[dict[int, jax.Array], list[jax.Array]]:
        """The outputs of all the large variables, by their places, and what the next call is left."""
        from jax.experimental import pallas as pl

        offsets = _offsets(self.noise)
        operands, results = [words, number.reshape(1)], list[Var]()
        aliases, parts = dict[int, int](), list[Part]()
        readers = Counter(v for tail in self.tails for v in tail.inputs)
        for tail in self.tails:
            places = {v: len(operands) + at for at, v in enumerate(tail.arrays)}
            before = enumerate([*tail.olds, *tail.sums], start=len(results))
            # What another part reads too is not written over: XLA would copy it first.
            aliases |= {places[v]: at for at, v in before if v in places and readers[v] == 1}
            operands += [passed(env[v]) for v in tail.inputs]
            results += [*tail.outputs.values(), *tail.sums, *tail.ahead]
            first = parts[-1].end if parts else 0
            parts.append(Part(tail, offsets[tail.place], first, first + pl.cdiv(tail.size, 2 * HALF)))
        moved = pl.pallas_call(
            partial(_kernel, parts, Plain if INTERPRETED else Fast),
            out_shape=[jax.ShapeDtypeStruct((v.aval.size,), np.float32) for v in results],
            grid=(parts[-1].end,),
            input_output_aliases=aliases,
            name="move",
            interpret=INTERPRETED,
            compiler_params=None if INTERPRETED else triton().CompilerParams(num_warps=WARPS, num_stages=1),
        )(*operands)
        moved = dict(zip(results, (x.reshape(v.aval.shape) for v, x in zip(results, moved, strict=True)), strict=True))
        outputs = {at: moved[v] for tail in self.tails for at, v in tail.outputs.items()}
        return outputs, [moved[v] for tail in self.tails for v in (*tail.sums, *tail.ahead)]


class Part(NamedTuple):
    """The blocks of one variable."""

    tail: Tail
    offset: int  # of its counters
    first: int
    end: int


def _kernel(parts: list[Part], arithmetic: type[Plain], words: Any, number: Any, *refs: Any) -> None:
    """One block of numbers."""
    from jax.experimental import pallas as pl

    block = pl.program_id(0)
    left = iter(refs)
    inputs = [[next(left) for _ in part.tail.inputs] for part in parts]
    outputs = [[next(left) for _ in (*part.tail.outputs, *part.tail.sums, *part.tail.ahead)] for part in parts]
    for part, own_inputs, own_outputs in zip(parts, inputs, outputs, strict=True):
        move = partial(_move, part, arithmetic, words, number, block - part.first, own_inputs, own_outputs)
        if len(parts) == 1:
            move()
        else:
            pl.when((part.first <= block) & (block < part.end))(move)


def _move(
    part: Part, arithmetic: type[Plain], words: jax.Array, number: jax.Array, block: jax.Array, inputs: list[Any],
    outputs: list[Any],
) -> None:  # fmt: skip
    """Two halves, whose normals are made of the two words of as many counters."""
    from jax.experimental import pallas as pl

    tail, lane = part.tail, lax.iota(np.int32, HALF)
    counter = (part.offset + block * HALF + lane).astype(np.uint32)
    step = jnp.full_like(counter, number[0].astype(np.uint32))
    noise = arithmetic.normals(*threefry(words[0], words[1], step, counter))
    for half in (0, 1):
        start = block * (2 * HALF) + half * HALF
        inside = None if tail.size % (2 * HALF) == 0 else start + lane < tail.size
        place = pl.ds(start, HALF)
        refs = iter(inputs)
        env: dict[Any, Any] = {tail.noise: noise[half]}
        env |= {v: triton().load(next(refs).at[place], mask=inside) for v in tail.arrays}
        env |= {b: triton().load(next(refs).at[b.places(start + lane)], mask=inside) for b in tail.broadcasts}
        env |= {v: ref[0] for v, ref in zip(tail.scalars, refs, strict=True)}
        env |= {v: env[v] != 0 for v in (*tail.arrays, *tail.scalars) if v.aval.dtype == bool}
        values = _compute(tail.equations, list(tail.outputs.values()), env, arithmetic)
        news = dict(zip(tail.olds, values, strict=True))
        values += [jnp.zeros((HALF,), np.float32) for _ in tail.sums]
        values += _compute(tail.ahead_equations, tail.ahead, news, arithmetic)
        for ref, value in zip(outputs, values, strict=True):
            triton().store(ref.at[place], value, mask=inside)


def _compute(
    equations: Sequence[Equation], outputs: Sequence[Any], env: dict[Any, Any], arithmetic: type[Plain]
) -> list[jax.Array]:
    """The outputs of equations on vectors."""
    calculate = Calculator(arithmetic)

    def value(equation: Equation, v: Any) -> Any:
        if isinstance(v, Literal):
            return calculate.constant(v)
        return env[v] if v in env else env[Broadcast.of(equation, v)]

    for equation in equations:
        env[equation.outvars[0]] = calculate(equation, [value(equation, v) for v in equation.invars])
    return [jnp.broadcast_to(settled(env[v]), (HALF,)) for v in outputs]


def normals(words: jax.Array, number: jax.Array, like: Sequence[Any]) -> list[jax.Array]:
    """The normals of step `number`, as the kernels make them."""
    drawn = []
    for leaf, offset in zip(like, _offsets(like), strict=True):
        blocks = -(-leaf.size // (2 * HALF))
        counter = offset + lax.iota(np.uint32, blocks * HALF)
        step = jnp.full_like(counter, number.astype(np.uint32))
        pair = of_two_words(*threefry(words[0], words[1], step, counter))
        both = jnp.stack([normals.reshape(blocks, HALF) for normals in pair], axis=1)
        drawn.append(both.reshape(-1)[: leaf.size].reshape(leaf.shape))
    return drawn


def _offsets(like: Sequence[Any]) -> list[int]:
    """Where the counters of each leaf begin: no two leaves share one."""
    counters = [-(-leaf.size // (2 * HALF)) * HALF for leaf in like]
    return [sum(counters[:place]) for place in range(len(counters))]


# -- programs as data ----------------------------------------------------------------------------------------------


def _inlined(function: Callable[..., Any], noise: PyTree, arguments: tuple[Any, ...]) -> tuple[ClosedJaxpr, Any]:
    """The equations of `function`, with those of what it calls in their place; and the structure of its result."""
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(noise, *arguments)
    leaves = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in traced.jaxpr.invars]
    flat = jax.make_jaxpr(lambda *leaves: _evaluate(traced.jaxpr, traced.consts, leaves))(*leaves)
    return flat, jax.tree.structure(shapes)


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    env = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))
    for equation in jaxpr.eqns:
        values = [_read(env, v) for v in equation.invars]
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if equation.primitive.name in CALLS and inner is not None:
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            results = _evaluate(closed.jaxpr, closed.consts, values)
        else:
            results = _bind(equation, values)
        env |= zip(equation.outvars, results, strict=True)
    return [_read(env, v) for v in jaxpr.outvars]


def _makers(equations: Sequence[Equation], wanted: Iterable[Var], given: set[Var]) -> list[Equation]:
    """Those of the equations, in order, that it takes to make what is wanted of what is given."""
    needed = {v for v in wanted if not isinstance(v, Literal)} - given
    makers = []
    for equation in reversed(equations):
        if any(is_in(v, needed) for v in equation.outvars):
            makers.append(equation)
            needed |= _read_by([equation]) - given
    return makers[::-1]


def _read_by(equations: Sequence[Equation]) -> set[Var]:
    return {v for equation in equations for v in equation.invars if not isinstance(v, Literal)}


def _bind(equation: Equation, values: list[Any]) -> list[Any]:
    results = equation.primitive.bind(*values, **equation.params)
    return list(results) if equation.primitive.multiple_results else [results]


def _read(env: dict[Any, Any], variable: Any) -> Any:
    return variable.val if isinstance(variable, Literal) else env[variable]


def _fits(equation: Equation, kinds: dict[Any, Any]) -> bool:
    """Whether it acts on each number alone, and a kernel can do it."""
    if not is_elementwise(equation):
        return False
    kind = kinds[equation.outvars[0]]
    inputs = [UNIFORM if isinstance(v, Literal) else kinds[v] for v in equation.invars]
    if kind == VECTOR and any(k in (None, VECTOR) for k in inputs):
        small = [v for v, k in zip(equation.invars, inputs, strict=True) if k is None]
        return all(Broadcast.of(equation, v) is not None and v.aval.dtype == np.float32 for v in small)
    return None not in inputs and kind == (VECTOR if VECTOR in inputs else UNIFORM)
