r"""Two chains, one with half the step size of the other and twice the rows, driven by the same noise.

The fine chain takes two steps of $h / 2$ while the coarse one takes one of $h$, whose noise is $(e_1 + e_2) / \sqrt 2$. So both follow the
same path but for what the steps do, and the difference of their means has far less variance than either mean: it is how the bias of a run
is measured.

Two things make a step biased: its size, to second order, and what the correction for the noise of its minibatch leaves, in proportion to
the share that this noise has of the variance injected, $h V / (2 B)$. The coarse step has half the rows of a fine one, some of each of its
two minibatches. So its share is four times that of the fine step, just as its $h^2$ is, and one difference shows both kinds of bias and
takes both out. With the rows of both minibatches the shares would be equal, and that kind of bias could not be seen.

The two minibatches of the fine chain are independent. One minibatch used twice would have correlated noise, which no correction knows of.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from inbounds import gradients, trees
from inbounds.kernels import Kernel, kernel_factory, leimkuhler_matthews
from inbounds.posterior import Posterior
from inbounds.trees import PyTree

__all__ = ["halved"]

FEWEST_ROWS = 2  # whose difference shows their noise


class State(NamedTuple):
    fine: Any
    coarse: Any
    ahead: PyTree  # the noise of the fine chain's next step: half of what the coarse chain has been kicked with


class Info(NamedTuple):
    """What both chains report: of each number the larger, and where the coarse chain is."""

    gradient_norm: jax.Array
    noise_variance: jax.Array
    clamped: jax.Array
    finite: jax.Array
    coarse: jax.Array


@kernel_factory
def halved(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    noise_correction: bool = False,
    metric: Any = None,
    gradient: Any = gradients.minibatch,
    whole: bool = False,
) -> Kernel:
    r"""Leimkuhler and Matthews' scheme at two step sizes at once: draws are those of the fine chain.

    A step of size $h$ moves the coarse chain once and the fine chain twice, by $h / 2$. The coarse chain is in the report `coarse`.

    Args:
        posterior, transforms, noise_correction, metric, gradient: as for `ib.leimkuhler_matthews`.
        whole: whether every step takes all the data; otherwise a minibatch has the rows of both fine steps, of which the coarse one has some.
    """
    inner = leimkuhler_matthews(
        posterior, transforms, noise_correction=noise_correction, metric=metric, gradient=gradient
    )

    def init(theta: PyTree) -> State:
        state = inner._init(theta)
        return State(state, state, jax.tree.map(jnp.zeros_like, inner.moving(state)))

    def update(noise: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, Any]:
        first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], noise) for i in (0, 1))
        batches = (minibatch,) * 3 if whole else _parts(minibatch)
        # The kick that moves the fine chain is the noise that it was given a step before.
        middle, _ = inner._update(state.ahead, state.fine, batches[0], step_size / 2)
        fine, look = inner._update(first, middle, batches[1], step_size / 2)
        both = jax.tree.map(lambda a, b: (a + b) / math.sqrt(2), first, second)
        coarse, look_coarse = inner._update(both, state.coarse, batches[2], step_size)

        def report() -> Info:
            found, other = look(), look_coarse()
            return Info(
                found.gradient_norm,
                found.noise_variance,
                jnp.maximum(found.clamped, other.clamped),
                found.finite & other.finite,
                trees.ravel(inner.moving(coarse)),
            )

        return State(fine, coarse, second), report

    return Kernel(
        name="leimkuhler_matthews at two step sizes",
        posterior=posterior,
        space=inner.space,
        estimator=inner.estimator,
        _init=init,
        _update=update,
        _moving=lambda state: inner.moving(state.fine),
        constrain=inner.constrain,
        normals=2,
        independent_batches=True,
        reports=(*inner.reports, "coarse"),
        vectors=("coarse",),
        temperature=1.0,
        estimates_noise=inner.estimates_noise,
        data_version=inner.data_version,
    )


def _parts(minibatch: PyTree) -> tuple[PyTree, ...]:
    """The rows of the first fine step, of the second, and of the coarse one: a quarter of all, from the middle."""

    def rows(leaf: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        total, middle = leaf.shape[0], leaf.shape[0] // 2
        few = min(max(total // 4, FEWEST_ROWS), total)
        first = (total - few) // 2
        return leaf[:middle], leaf[middle:], leaf[first : first + few]

    leaves, treedef = jax.tree.flatten(minibatch)
    parts = zip(*map(rows, leaves), strict=True)
    return tuple(jax.tree.unflatten(treedef, part) for part in parts)
