r"""Diagonal preconditioners of the proxy: a step size of its own for every coordinate.

With a diagonal $M$ that is constant, $\varphi' = \varphi + \epsilon M G + \sqrt{2 \epsilon M} \eta$ samples the same law. So it does where the
scale of a variable depends on the other variables alone: given them it is constant. (The bias is then of first order in $\epsilon$, that of
kernels of second order too.) A scale that depends on what it scales would need another drift term. So `rmsprop` adapts during the first
steps and is frozen afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from inbounds.namespaces import namespace
from inbounds.trees import PyTree, is_traced, spread, variable_name

__all__ = [
    "Preconditioner",
    "RMSprop",
    "one_step_late",
    "rmsprop",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)


class Preconditioner(Protocol):
    """What a kernel asks of a preconditioner; `scale` is None for the identity."""

    @property
    def adapt_steps(self) -> int:
        """Steps after which the scales stay as they are; 0: they never change."""

    def init(self, phi: PyTree) -> Any:
        """Its state for a chain that starts at `phi`.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A tree of arrays, or None.
        """

    def update(self, state: Any, drift: PyTree, theta: PyTree, step_size: jax.Array) -> tuple[PyTree | None, Any]:
        """The scales of one step, and the state after it.

        Args:
            state: the state so far.
            drift: the gradient of the proxy's log density, a tree like phi.
            theta: where the chain stands.
            step_size: of this step.

        Returns:
            A tree of positive scales like phi, or None for ones; and the state.
        """


@dataclass(frozen=True)
class NoPreconditioner:
    """The identity."""

    adapt_steps: int = 0

    def init(self, phi: PyTree) -> None:
        return None

    def update(self, state: None, drift: PyTree, theta: PyTree, step_size: jax.Array) -> tuple[None, None]:
        return None, None

    def __repr__(self) -> str:
        return "none"


@dataclass(frozen=True, eq=False)
class Constant:
    """A fixed diagonal: a number or an array per leaf (a prefix of the tree of parameters)."""

    scale: PyTree
    adapt_steps: int = 0

    def init(self, phi: PyTree) -> PyTree:
        return spread(self.scale, phi, "A preconditioner")

    def update(self, state: PyTree, drift: PyTree, theta: PyTree, step_size: jax.Array) -> tuple[PyTree, PyTree]:
        return state, state

    # By identity, as other arrays among a kernel's options: the same scales given again compile nothing.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.scale is other.scale

    def __hash__(self) -> int:
        return id(self.scale)


@dataclass(frozen=True)
class Conditional:
    """A diagonal that is a function of theta. The scale of a variable may not depend on that variable itself."""

    scale: Callable[[PyTree], PyTree]
    adapt_steps: int = 0

    def init(self, phi: PyTree) -> None:
        return None

    def update(self, state: None, drift: PyTree, theta: PyTree, step_size: jax.Array) -> tuple[PyTree, None]:
        if own := scaled_by_itself(self.scale, theta):
            raise ValueError(
                f"The scale of {own[0]!r} depends on {own[0]!r}: the chain would need another drift term. Let it depend on the "
                "other variables alone."
            )
        return spread(self.scale(theta), drift, "What a preconditioner makes of theta"), None


PreconditionerLike = Preconditioner | PyTree | Callable[[PyTree], PyTree] | None
"""What kernels take: None, a tree of positive scales, a function of theta that makes one, or a preconditioner."""


class RMSpropState(NamedTuple):
    steps: jax.Array
    square: PyTree
    limit: jax.Array  # no scale is larger
    halfway: PyTree  # the scales at half of the adaptation


@dataclass(frozen=True)
class RMSprop:
    r"""$M = 1 / (\lambda + \sqrt{v})$ with $v$ the running mean of squared drifts (Li et al. 2016), frozen in the end.

    In the first steps $M$ is at most $\epsilon 2^t$ as well. At a mode the drift says nothing of the scale: it is zero. A noise of
    amplitude $\sqrt{2 \epsilon / \lambda}$ would throw the chain out of sight, and the drift, normalised, leads back by some $\epsilon$
    per step. With $M = \epsilon$ the noise moves no further than the drift can. Doubled step by step, $M$ comes to what it will
    be before long: a step size with which $\epsilon M$ is stable is between $M$ and some thousandth of it.
    """

    adapt_steps: int
    decay: float = 0.99
    damping: float = 1e-5

    def init(self, phi: PyTree) -> RMSpropState:
        """No squares yet."""
        zeros = jax.tree.map(jnp.zeros_like, phi)
        return RMSpropState(jnp.zeros((), jnp.int32), zeros, jnp.zeros((), jax.tree.leaves(phi)[0].dtype), zeros)

    def update(
        self, state: RMSpropState, drift: PyTree, theta: PyTree, step_size: jax.Array
    ) -> tuple[PyTree, RMSpropState]:
        """Scales by the smoothed squares of the drift, which are taken in while it adapts."""
        adapting = state.steps < self.adapt_steps
        square = jax.tree.map(
            lambda v, g: jnp.where(adapting, self.decay * v + (1 - self.decay) * jnp.square(g), v), state.square, drift
        )
        steps = jnp.minimum(state.steps + 1, self.adapt_steps)
        limit = jnp.where(adapting, jnp.maximum(2 * state.limit, step_size.astype(state.limit.dtype)), state.limit)
        scale = self._scale(square, steps, limit)
        at_half = adapting & (steps == (self.adapt_steps + 1) // 2)
        halfway = jax.tree.map(lambda m, old: jnp.where(at_half, m, old), scale, state.halfway)
        return scale, RMSpropState(steps, square, limit, halfway)

    def _scale(self, square: PyTree, steps: jax.Array, limit: jax.Array) -> PyTree:
        weight = 1 - jnp.power(jnp.asarray(self.decay, limit.dtype), steps.astype(limit.dtype))
        return jax.tree.map(lambda v: jnp.minimum(1 / (self.damping + jnp.sqrt(v / weight)), limit), square)

    def moved(self, state: RMSpropState) -> PyTree:
        """By what factor each scale grew over the second half of the adaptation: far from 1, it was frozen while it moved.

        Of one chain, or of many with a leading axis, once they have adapted: `moved(draws.state.preconditioner)`.

        Args:
            state: of one chain, or of many.

        Returns:
            Factors, a tree like phi.
        """

        def of_one(state: RMSpropState) -> PyTree:
            return jax.tree.map(jnp.divide, self._scale(state.square, state.steps, state.limit), state.halfway)

        for _ in range(state.steps.ndim):
            of_one = jax.vmap(of_one)
        return of_one(state)


def rmsprop(adapt_steps: int, decay: float = 0.99, damping: float = 1e-5) -> RMSprop:
    """RMSprop scales, learnt during the first `adapt_steps` steps and constant from then on.

    Draws from the adapting phase do not follow the target: let `burn_in` cover it (`sample` insists on that). The scales are
    those of the last `1 / (1 - decay)` steps or so: let `adapt_steps` be several times as many, and long enough for the chain
    to come from its start to where the mass is.

    Args:
        adapt_steps: the steps in which the scales are learnt.
        decay: weight of the past in the running mean of squared drifts, in (0, 1).
        damping: added to the root of that mean, so that no scale is infinite.

    Returns:
        A preconditioner, for the kernels.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.sgld(posterior, preconditioner=ib.preconditioners.rmsprop(100))
        >>> ib.sample(kernel, 0.05, 150, burn_in=100, progress=False).num_draws
        50
    """
    if adapt_steps < 1 or not 0 < decay < 1 or damping <= 0:
        raise ValueError(
            f"rmsprop needs adapt_steps >= 1, decay in (0, 1) and damping > 0; got {adapt_steps}, {decay}, {damping}."
        )
    return RMSprop(int(adapt_steps), decay, damping)


class LateState(NamedTuple):
    started: jax.Array
    inner: Any


@dataclass(frozen=True)
class OneStepLate:
    """An adaptive preconditioner for kernels that show it the drift of the step before: at the first there is none, and nothing moves."""

    inner: Preconditioner

    @property
    def adapt_steps(self) -> int:
        return self.inner.adapt_steps

    def init(self, phi: PyTree) -> LateState:
        return LateState(jnp.zeros((), bool), self.inner.init(phi))

    def update(self, state: LateState, drift: PyTree, theta: PyTree, step_size: jax.Array) -> tuple[PyTree, LateState]:
        scale, inner = self.inner.update(state.inner, drift, theta, step_size)
        scale = jax.tree.map(lambda m: jnp.where(state.started, m, 0), scale)
        inner = jax.tree.map(lambda new, old: jnp.where(state.started, new, old), inner, state.inner)
        return scale, LateState(jnp.ones((), bool), inner)

    def moved(self, state: LateState) -> PyTree:
        return self.inner.moved(state.inner)  # type: ignore[attr-defined]


def one_step_late(preconditioner: Preconditioner) -> Preconditioner:
    """Only what adapts looks at drifts.

    Args:
        preconditioner: any.

    Returns:
        The same preconditioner where it does not adapt; else one that keeps still in the first step.

    Example:
        >>> late = ib.preconditioners.one_step_late(ib.preconditioners.rmsprop(100))
        >>> late.adapt_steps
        100
    """
    return OneStepLate(preconditioner) if preconditioner.adapt_steps else preconditioner


def scaled_by_itself(scale: Callable[[PyTree], PyTree], theta: PyTree) -> list[str]:
    """The variables whose scale depends on themselves, by the operations that lead from the one to the other."""
    closed, scales = jax.make_jaxpr(scale, return_shape=True)(theta)
    names = [variable_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(theta)]
    named = jax.tree.unflatten(jax.tree.structure(theta), names)
    own = jax.tree.leaves(jax.tree.map(lambda _, subtree: frozenset(jax.tree.leaves(subtree)), scales, named))
    behind = _names_behind(closed.jaxpr, [{name} for name in names])
    return sorted(set().union(*(mine & found for mine, found in zip(own, behind, strict=True))))


def _names_behind(jaxpr: Any, inputs: list[set[str]]) -> list[set[str]]:
    """For every output of a program the names that it depends on, given those of the inputs; into functions that were jitted, too."""
    behind = dict(zip(jaxpr.invars, inputs, strict=True))

    def names(variables: Any) -> list[set[str]]:
        return [set() if isinstance(v, Literal) else behind.get(v, set()) for v in variables]

    for equation in jaxpr.eqns:
        inner = equation.params.get("jaxpr")
        inner = getattr(inner, "jaxpr", inner)
        if equation.primitive.name in ("jit", "pjit", "checkpoint", "remat2") and inner is not None:
            results = _names_behind(inner, names(equation.invars))
        else:  # taken to need all that it is given
            results = [set().union(*names(equation.invars))] * len(equation.outvars)
        behind.update(zip(equation.outvars, results, strict=True))
    return names(jaxpr.outvars)


def as_preconditioner(preconditioner: Any) -> Preconditioner:
    """None, a tree of positive scales or a function of theta that makes one, or a preconditioner object."""
    if preconditioner is None:
        return NoPreconditioner()
    if hasattr(preconditioner, "update") and hasattr(preconditioner, "adapt_steps"):
        made: Preconditioner = preconditioner
        return made
    if isinstance(preconditioner, str):
        raise ValueError(
            f"Unknown preconditioner {preconditioner!r}. Give a tree of positive scales or "
            "ib.preconditioners.rmsprop(adapt_steps=...)."
        )
    if callable(preconditioner):
        return Conditional(preconditioner)
    if is_traced(preconditioner):  # they have been looked at
        return Constant(preconditioner)
    for leaf in jax.tree.leaves(preconditioner):
        if not np.all((np.asarray(leaf) > 0) & np.isfinite(np.asarray(leaf))):
            raise ValueError("Every scale of a preconditioner must be positive and finite.")
    return Constant(preconditioner)
