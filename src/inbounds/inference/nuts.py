r"""The no-U-turn sampler with exact gradients, for posteriors of which a pass over the data costs little.

NumPyro's trees (Hoffman and Gelman 2014; Betancourt 2017) on the coordinates z of a metric, where the posterior is about round, so that the
mass matrix is the identity. It runs like every kernel: chunks, checkpoints, stores and bars are the driver's. Its draws have no bias.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.infer.hmc_util import (
    IntegratorState,
    build_tree,
    dual_averaging,
    euclidean_kinetic_energy,
    velocity_verlet,
)

from inbounds import trees
from inbounds.engine import normal_like
from inbounds.kernels import Kernel, kernel_factory
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree

__all__ = ["nuts"]

DEEPEST = 10  # doublings of a trajectory


class State(NamedTuple):
    position: PyTree  # z
    potential: jax.Array
    slope: PyTree  # of the potential
    adaptation: Any  # of the step size, by dual averaging
    number: jax.Array  # of steps made


class Info(NamedTuple):
    """What a transition says of itself.

    Attributes:
        gradient_norm, finite: as in `inbounds.kernels.Info`.
        acceptance: mean probability with which the states of the trajectory would be accepted.
        divergent: 1 where the trajectory left the level of its energy.
        leapfrogs: gradients that it took.
        energy: of the state that it came to.
    """

    gradient_norm: jax.Array
    finite: jax.Array
    acceptance: jax.Array
    divergent: jax.Array
    leapfrogs: jax.Array
    energy: jax.Array


class AllData:
    """What stands in the place of an estimator: exact gradients, for which the driver hands all the data to each start."""

    refresh_every: int | None = None
    smoothing = 0.0
    reads_all_data = True

    def init(self, theta: PyTree, with_noise: bool) -> None:
        return None

    def refresh(self, state: Any, theta: PyTree) -> Any:
        return state


@kernel_factory
def nuts(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    metric: Any = None,
    acceptance: Any = 0.8,
    adapt_steps: int = 75,
) -> Kernel:
    """Hamiltonian trajectories without a turn, by exact gradients of all the data.

    The driver's step size is that of the first leapfrog; it is adapted during the first `adapt_steps` transitions, for each chain.

    Args:
        posterior: has a log density: one that gives its gradient alone is refused.
        transforms, metric: as for `ib.leimkuhler_matthews`.
        acceptance: the mean acceptance probability that the step size is adapted to; an array, so that another one compiles nothing.
        adapt_steps: transitions that adapt, whose draws are not kept.
    """
    space = Space.of(posterior.supports, transforms).with_metric(metric)
    average_init, average_update = dual_averaging()

    def potential_of(rows: PyTree) -> Any:
        def energy(z: PyTree) -> tuple[jax.Array, PyTree]:
            """Minus the log density of z, and minus its slope, which is right at the bounds: a derivative would be zero times infinity."""
            theta, proxy = space.evaluation_point(z), space.proxy(z)
            log_density, gradient = jax.value_and_grad(lambda x: posterior.log_density(x, rows))(theta)
            log_density += space.of_proxy.log_density_beyond(proxy, theta, gradient)
            drift = space.pull_back(z, theta, gradient)
            return -(log_density + space.of_proxy.log_abs_det_jacobian(proxy)), jax.tree.map(jnp.negative, drift)

        potential = jax.custom_jvp(lambda z: energy(z)[0])

        @potential.defjvp
        def slope(primals: tuple[PyTree], tangents: tuple[PyTree]) -> tuple[jax.Array, jax.Array]:
            value, slopes = energy(*primals)
            terms = jax.tree.map(jnp.vdot, slopes, *tangents)
            return value, sum(jax.tree.leaves(terms), jnp.zeros(()))

        return potential

    def init(theta: PyTree) -> State:
        z = space.unconstrain(theta)
        rows = posterior.all_rows()
        energy, slope = jax.value_and_grad(potential_of(rows))(z)
        return State(z, energy, slope, average_init(), jnp.zeros((), jnp.int32))

    def update(key: jax.Array, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, Any]:
        own, momentum_key, tree_key = jax.random.split(key, 3)
        del own
        mass = jnp.ones(trees.size(state.position), step_size.dtype)
        momentum = jax.tree.map(
            lambda leaf, normal: normal.astype(leaf.dtype),
            state.position,
            normal_like(momentum_key, state.position),
        )
        moved, averaged = state.adaptation[0], state.adaptation[1]
        adapts = state.number < adapt_steps
        size = step_size * jnp.exp(jnp.where(adapts, moved, averaged))
        rows = posterior.all_rows() if posterior.makes_minibatches else minibatch
        _, leap = velocity_verlet(potential_of(rows), euclidean_kinetic_energy)
        begin = IntegratorState(state.position, momentum, state.potential, state.slope)
        tree = build_tree(leap, euclidean_kinetic_energy, begin, mass, size, tree_key, max_tree_depth=DEEPEST)
        accepted = tree.sum_accept_probs / tree.num_proposals
        adaptation = jax.tree.map(
            lambda new, old: jnp.where(adapts, new, old),
            average_update(acceptance - accepted, state.adaptation),
            state.adaptation,
        )
        new = State(tree.z_proposal, tree.z_proposal_pe, tree.z_proposal_grad, adaptation, state.number + 1)

        def report() -> Info:
            return Info(
                trees.norm(new.slope),
                trees.all_finite(new.position),
                accepted,
                tree.diverging.astype(step_size.dtype),
                jnp.asarray(tree.num_proposals, step_size.dtype),
                tree.z_proposal_energy,
            )

        return new, report

    return Kernel(
        name="nuts",
        posterior=posterior,
        space=space,
        estimator=AllData(),  # type: ignore[arg-type]
        _init=init,
        _update=update,
        _moving=lambda state: state.position,
        constrain=space.constrain,
        noise="key",
        reports=("gradient_norm", "acceptance", "divergent", "leapfrogs", "energy"),
        adapt_steps=adapt_steps,
    )


def leapfrog_size(dimension: int) -> float:
    """A first guess of the leapfrog step in coordinates in which the posterior is round."""
    return 1.2 / math.sqrt(math.sqrt(dimension))
