r"""What a kernel does to a Gaussian: a linear recursion, in NumPy and double precision.

Where $-\log \pi$ of the proxy is $\varphi^T H \varphi / 2$ and the minibatch gradient $-H \varphi + \xi$ with $\xi \sim N(0, V)$, one step of
every kernel that moves the proxy is linear in its state $s$:

$$s' = A s + \zeta, \quad \zeta \sim N(0, Q), \qquad \varphi = C s$$

Each kernel writes its own $A$, $Q$ and $C$ beside its update; `inbounds.kernels.prediction` says what follows from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

__all__ = ["OnGaussian", "Recursion", "UnstableError", "amplitude_left", "underdamped"]


class Recursion(NamedTuple):
    """One step of a kernel on a Gaussian.

    Args:
        transition: $A$, from state to state.
        noise: $Q$, the covariance of what a step adds.
        read_out: $C$, from the state to phi.
        temperature: of the law that is sampled: its covariance is `temperature` times the inverse of the Hessian.
    """

    transition: np.ndarray
    noise: np.ndarray
    read_out: np.ndarray
    temperature: float | jax.Array


# (step size, Hessian, covariance of the minibatch gradient, diagonal of the preconditioner) -> Recursion
OnGaussian = Callable[[float, np.ndarray, np.ndarray, np.ndarray], Recursion]


class UnstableError(ValueError):
    """The recursion has no stationary law."""


def amplitude_left(wanted: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Amplitude of the injected noise when the gradient's takes its share of the variance; 0 where that is too much."""
    left: np.ndarray = np.sqrt(np.maximum(wanted - taken, 0.0))
    return left


def underdamped(
    h: float,
    keep: float,
    amplitude: np.ndarray,
    hessian: np.ndarray,
    noise: np.ndarray,
    scale: np.ndarray,
    temperature: float | jax.Array,
) -> Recursion:
    r"""Half kick, half drift, $v = \text{keep}\, v + \text{amplitude}\, \eta$, half drift, half kick.

    The two half kicks between two drifts share one gradient, noise included: they are one kick. So the state is $(\varphi, v)$
    before the second of them, where the noise of that gradient is still fresh.
    """
    u, identity = np.sqrt(scale)[:, None], np.eye(len(hessian))
    of_velocity = h / 2 * (1 + keep) * u  # what a kicked velocity moves phi by, both half drifts together
    transition = np.block(
        [[identity - of_velocity * h * u * hessian, of_velocity * identity], [-keep * h * u * hessian, keep * identity]]
    )
    gradient = np.vstack([of_velocity * h * u * identity, keep * h * u * identity])
    injected = np.vstack([h / 2 * u * amplitude * identity, amplitude * identity])
    read_out = np.hstack([identity, np.zeros_like(identity)])
    return Recursion(transition, gradient @ noise @ gradient.T + injected @ injected.T, read_out, temperature)
