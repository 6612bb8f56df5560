"""Langevin dynamics transformed by Ito's formula: the paper's negative example."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from inbounds import gradients, trees
from inbounds import transforms as tf
from inbounds.gradients._base import GradientFactory
from inbounds.kernels._base import Info, Kernel, MakeInfo, ProxyGradient, check_arguments, kernel_factory
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.baselines._bounded import bounds_of
from inbounds.posterior import Posterior
from inbounds.space import Space, is_constraint
from inbounds.trees import PyTree


class State(NamedTuple):
    phi: PyTree
    home: PyTree  # where a coordinate that left the floats starts again
    estimator: Any


@kernel_factory
def ito(
    posterior: Posterior,
    transforms: PyTree = None,
    *,
    restart: bool = True,
    temperature: Temperature = 1.0,
    gradient: GradientFactory = gradients.minibatch,
) -> Kernel:
    r"""Euler steps of the process $\varphi = g(\theta)$, $g = f^{-1}$, that Ito's formula gives (Section 4 of the paper).

    $$\varphi_{t+1} = \varphi_t + \epsilon \left( g'(\theta_t)\, \hat g(\theta_t) + T g''(\theta_t) \right)
      + \sqrt{2 \epsilon T}\, g'(\theta_t)\, \eta_t$$

    with $g' = 1/f'$ and $g'' = -(f''/f') / f'^2$. Ill-posed wherever the density hits a bound: $g'$ grows without limit there, and
    one step throws $\varphi$ out of the range of floats. It is here to be compared with, not to be used.

    Args:
        posterior: what is sampled; scalar supports.
        transforms: $f$: None (a Lipschitz default for each support), one name, or a tree of them.
        restart: start a coordinate again at its initial value when it leaves the range of floats. The share of steps
            in which that happened is reported as `Info.clamped`. Without it the chain becomes non-finite.
        temperature: 1 samples the posterior.
        gradient: from how much of the data.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: an argument is out of its range, or does not suit the posterior.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.baselines.ito(posterior, "softplus")
        >>> draws = ib.sample(kernel, 0.01, 150, burn_in=100, progress=False)
        >>> draws.theta["x"].shape, bool((draws.theta["x"] > 0).all())
        ((1, 50), True)
    """
    temperature = check_arguments(posterior, temperature)
    bounds_of(posterior, "ito")
    space = Space.of(posterior.supports, transforms)
    identity = Space(
        posterior.supports, jax.tree.map(lambda _: tf.Identity(), posterior.supports, is_leaf=is_constraint)
    )
    theta_gradient = ProxyGradient(posterior, identity, gradient, False)

    def init(theta: PyTree) -> State:
        phi = space.unconstrain(theta)
        return State(phi, phi, theta_gradient.init(theta))

    def update(noise: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        theta = space.evaluation_point(state.phi)
        make_drift, _, estimator = theta_gradient(state.estimator, theta, minibatch)
        drift = make_drift()

        def move(transform: Any, p: jax.Array, g: jax.Array, z: jax.Array) -> jax.Array:
            slope = 1 / transform.derivative(p)
            curvature = -transform.log_derivative_slope(p) * slope**2
            amplitude = jnp.sqrt(2 * step_size * temperature) * slope
            moved: jax.Array = p + step_size * (slope * g + temperature * curvature) + amplitude * z
            return moved

        phi = space._map(move, state.phi, drift, noise)
        lost = space._map(lambda t, p: ~(jnp.abs(p) < range_of(t)), phi)
        if restart:
            phi = jax.tree.map(lambda gone, p, home: jnp.where(gone, home, p), lost, phi, state.home)

        def make_info() -> Info:
            share = trees.mean(jax.tree.map(lambda gone, p: gone.astype(p.dtype), lost, phi))
            return Info(trees.norm(drift), jnp.full((), jnp.nan), share, trees.all_finite(phi))

        return State(phi, state.home, estimator), make_info

    return Kernel(
        name="ito",
        posterior=posterior,
        space=space,
        estimator=theta_gradient.estimator,
        temperature=temperature,
        restarts=True,
        _init=init,
        _update=update,
        _moving=lambda state: state.phi,
        constrain=space.constrain,
        _refresh=lambda state: state._replace(
            estimator=theta_gradient.refresh(state.estimator, space.evaluation_point(state.phi))
        ),
        reports=("gradient_norm", "clamped"),
    )


def range_of(transform: Any) -> float:
    """|phi| beyond which the transform has reached its bound in double precision: 700 for exponential tails."""
    return 1e15 if isinstance(transform, tf.Arctan | tf.Softsign | tf.Identity) else 700.0
