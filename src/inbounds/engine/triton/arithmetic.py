"""Equations of a traced program, computed in the instructions of a GPU: what kernels of our own are made of."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal, Primitive

__all__ = [
    "LARGEST_INDEX",
    "PASSED",
    "RESHAPES",
    "Calculator",
    "Equation",
    "Fast",
    "Plain",
    "Product",
    "Var",
    "instruction",
    "is_elementwise",
    "is_in",
    "is_reshape",
    "of_two_words",
    "passed",
    "settled",
    "triton",
]

Var: TypeAlias = Any  # of a traced program
Equation: TypeAlias = Any

# Equations on each number alone that Triton can compute. What only changes the shape changes nothing in a vector.
RESHAPES = {"broadcast_in_dim", "reshape", "squeeze", "copy"}
ELEMENTWISE = RESHAPES | {
    "abs", "add", "add_any", "and", "ceil", "clamp", "convert_element_type", "div", "eq", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow", "round", "rsqrt",
    "select_n", "sign", "sqrt", "square", "sub", "tanh",
}  # fmt: skip
OF_HALF_PRECISION = RESHAPES | {"add", "convert_element_type", "eq", "ge", "gt", "le", "lt", "mul", "ne", "sub"}
LARGEST_INDEX = 2**31 - 1
PASSED = ("float32", "int32", "uint32", "bool")  # what a kernel is given, truth values as numbers


def is_in(variable: Any, group: Any) -> bool:
    return not isinstance(variable, Literal) and variable in group


def is_elementwise(equation: Equation) -> bool:
    name = equation.primitive.name
    if name == "reduce_sum":  # of one number each
        return bool(equation.invars[0].aval.size == equation.outvars[0].aval.size)
    if name == "reshape":
        return equation.params["dimensions"] is None  # it would transpose, too
    if name == "round":
        return bool(equation.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN)
    if name == "select_n" and len(equation.invars) > 3:
        return False
    kinds = {v.aval.dtype.name for v in (*equation.invars, *equation.outvars)}
    if name in ("max", "min") and "bool" in kinds:
        return False
    return name in (OF_HALF_PRECISION if kinds & {"float16", "bfloat16"} else ELEMENTWISE)


def is_reshape(equation: Equation) -> bool:
    return equation.primitive.name in RESHAPES | {"reduce_sum"}


def passed(x: jax.Array) -> jax.Array:
    """An array as kernels take it: flat, and without truth values."""
    return x.reshape(-1).astype(np.int32) if x.dtype == bool else x.reshape(-1)


def of_two_words(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two normals of 64 random bits, by Box and Muller: cheap where sine and cosine are instructions, dear elsewhere."""
    uniform = (first.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = jnp.sqrt(jnp.abs(-2 * jnp.log(uniform)))
    angle = lax.bitcast_convert_type(second, np.int32).astype(np.float32) * np.float32(2.0**-31 * math.pi)
    return radius * jnp.cos(angle), radius * jnp.sin(angle)


# -- instructions --------------------------------------------------------------------------------------------------


class Plain:
    """What kernels are made of, in XLA's operations."""

    @staticmethod
    def fma(x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    normals = staticmethod(of_two_words)

    @staticmethod
    def add_at(ref: Any, places: jax.Array, values: jax.Array, inside: jax.Array) -> None:
        """Add values at places of a flat array, as many, of which some may be the same."""
        places = jnp.where(inside, places, ref.shape[0]).reshape(-1)
        ref[...] = ref[...].at[places].add(values.reshape(-1), mode="drop")

    own: ClassVar[dict[str, Callable[..., Any]]] = {}
    any_kind: ClassVar[dict[str, Callable[..., Any]]] = {}


class Fast(Plain):
    """The same, in the GPU's instructions.

    Reciprocals and roots are within 2e-7, exponentials too, and as much more for every 3 that their argument is from 0.
    """

    @staticmethod
    def fma(x: Any, y: Any, z: Any) -> Any:
        return instruction("fma.rn.ftz.f32", x, y, z)

    @staticmethod
    def normals(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
        uniform = Fast.fma(first.astype(np.float32), 2.0**-32, 2.0**-33)
        log2 = instruction("lg2.approx.ftz.f32", uniform)  # next to 1 it may be a little more than 0
        radius = instruction("sqrt.approx.ftz.f32", jnp.abs(log2 * np.float32(-2 * math.log(2))))
        angle = lax.bitcast_convert_type(second, np.int32).astype(np.float32) * np.float32(2.0**-31 * math.pi)
        cosine, sine = (instruction(f"{name}.approx.ftz.f32", angle) for name in ("cos", "sin"))
        return radius * cosine, radius * sine

    @staticmethod
    def add_at(ref: Any, places: jax.Array, values: jax.Array, inside: jax.Array) -> None:
        add = _unordered_add() or triton().atomic_add
        add(ref, (places,), values, mask=inside)

    own: ClassVar[dict[str, Callable[..., Any]]] = {
        "exp": lambda x: instruction("ex2.approx.ftz.f32", x * np.float32(1 / math.log(2))),
        "exp2": lambda x: instruction("ex2.approx.ftz.f32", x),
        "rsqrt": lambda x: instruction("rsqrt.approx.ftz.f32", x),
        "sqrt": lambda x: instruction("sqrt.approx.ftz.f32", x),
        "round": lambda x, **_: instruction("cvt.rni.ftz.f32.f32", x),
        "div": lambda x, y: x * (instruction("rcp.approx.ftz.f32", y) if np.ndim(y) else 1 / y),
        # Triton's own would make numbers of what is none, and hide that a chain has left them.
        "max": lambda x, y: instruction("max.ftz.NaN.f32", x, y),
        "min": lambda x, y: instruction("min.ftz.NaN.f32", x, y),
        "clamp": lambda low, x, high: Fast.own["min"](Fast.own["max"](x, low), high),
    }
    any_kind: ClassVar[dict[str, Callable[..., Any]]] = {  # of one number, or in another precision
        "max": lambda x, y: jnp.where((x >= y) | (x != x), x, y),
        "min": lambda x, y: jnp.where((x <= y) | (x != x), x, y),
        "clamp": lambda low, x, high: Fast.any_kind["min"](Fast.any_kind["max"](x, low), high),
    }


def triton() -> Any:
    from jax.experimental.pallas import triton

    return triton


def instruction(name: str, *arguments: Any) -> jax.Array:
    """One instruction of the GPU on each number."""
    shape = np.broadcast_shapes(*map(np.shape, arguments))
    same = [jnp.broadcast_to(jnp.asarray(x, np.float32), shape) for x in arguments]
    places = ", ".join(f"${k}" for k in range(len(same) + 1))
    result: jax.Array
    (result,) = triton().elementwise_inline_asm(
        f"{name} {places};", args=same, constraints=",".join(["=f", *"f" * len(same)]), pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(shape, np.float32)],
    )  # fmt: skip
    return result


@cache
def _unordered_add() -> Callable[..., Any] | None:
    """Pallas's `atomic_add`, without the order that it keeps among all that a thread reads and writes; None where JAX is not as it was.

    Nothing reads the sums before the kernel's end, and that order costs 2 of its 5 microseconds. Pallas has no name for it: the
    operation is Pallas's own, of which one attribute is changed.
    """
    try:
        from jax._src.pallas.triton import lowering
        from jax._src.state.primitives import get_ref_and_transforms

        home = sys.modules[triton().atomic_add.__module__]
        ordered, kind = home.atomic_rmw_p, home.AtomicOpType.ADD
        rule: Callable[..., Any] = lowering.triton_lowering_rules[ordered]
        register: Callable[..., Any] = lowering.register_lowering
    except (ImportError, AttributeError, KeyError):
        return None
    primitive = Primitive("unordered_add")
    primitive.def_effectful_abstract_eval(ordered.abstract_eval)

    def relaxed(context: Any, *values: Any, **params: Any) -> Any:
        result = rule(context, *values, **params)
        attributes = result.owner.attributes
        if "sem" in attributes:
            attributes["sem"] = type(attributes["sem"]).get(attributes["sem"].type, 1)  # relaxed
        return result

    register(primitive)(relaxed)

    def add(ref: Any, places: jax.Array, values: jax.Array, *, mask: jax.Array) -> Any:
        ref, transforms = get_ref_and_transforms(ref, places, "unordered_add")
        leaves, tree = jax.tree.flatten((ref, transforms, values, mask))
        return primitive.bind(*leaves, args_tree=tree, atomic_type=kind)

    return add


# -- equations -----------------------------------------------------------------------------------------------------


class Product:
    """x y, computed where it is asked for: in a sum it costs nothing."""

    def __init__(self, x: Any, y: Any):
        self.x, self.y = x, y

    @cached_property
    def value(self) -> Any:
        return self.x * self.y


def settled(x: Any) -> Any:
    return x.value if isinstance(x, Product) else x


class Calculator:
    """The value of an equation, given those of its inputs; what is one number stays one. What was computed once is not computed again."""

    def __init__(self, arithmetic: type[Plain]):
        self.arithmetic = arithmetic
        self._made: dict[tuple[Any, ...], Any] = {}

    @staticmethod
    def constant(literal: Literal) -> Any:
        kind: Any = literal.aval
        return np.asarray(literal.val, kind.dtype)[()]

    def __call__(self, equation: Equation, values: list[Any]) -> Any:
        if is_reshape(equation):
            return values[0]
        named = tuple((x.dtype, x.tobytes()) if _is_number(x) else id(x) for x in values)
        key = (equation.primitive.name, named, str(equation.params))
        if key not in self._made:
            self._made[key] = self._compute(equation, values), values  # which must live, for their names to be theirs
        return self._made[key][0]

    def _compute(self, equation: Equation, raws: list[Any]) -> Any:
        arithmetic, name, values = self.arithmetic, equation.primitive.name, [settled(x) for x in raws]
        many = any(map(np.ndim, values))
        single = many and all(v.aval.dtype == np.float32 for v in (*equation.invars, *equation.outvars))
        if name in ("add", "add_any", "sub") and single:
            return self._plus(raws[0], raws[1], -1 if name == "sub" else 1)
        if name == "mul" and single:
            for x, other in (values, values[::-1]):
                if _is_number(x) and abs(x) == 1:
                    return other if x == 1 else -other
            return Product(*values)
        if name in arithmetic.own and single:
            return arithmetic.own[name](*values)
        if all(map(_is_number, values)):  # Triton has no names for constants
            with jax.ensure_compile_time_eval():
                return np.asarray(equation.primitive.bind(*map(jnp.asarray, values), **equation.params))[()]
        if many:
            values = jnp.broadcast_arrays(*values)
        if name in arithmetic.any_kind:
            return arithmetic.any_kind[name](*values)
        return equation.primitive.bind(*map(jnp.asarray, values), **equation.params)

    def _plus(self, x: Any, y: Any, sign: int) -> Any:
        """x + sign y, with one instruction where one of them is a product."""
        if isinstance(y, Product):
            return self.arithmetic.fma(y.x if sign > 0 else -y.x, y.y, settled(x))
        if isinstance(x, Product):
            return self.arithmetic.fma(x.x, x.y, y if sign > 0 else -y)
        if _is_number(x) and x == 0:
            return y if sign > 0 else -y
        if _is_number(y) and y == 0:
            return x
        return x + y if sign > 0 else x - y


def _is_number(x: Any) -> bool:
    return isinstance(x, np.generic)
