r"""What a kernel will sample instead of the posterior, predicted without a trial run.

On a Gaussian a kernel is a linear recursion $s' = A s + \zeta$ (`inbounds.kernels.recursion`). Its stationary covariance solves
$\Sigma = A \Sigma A^T + Q$, and that of phi is $C \Sigma C^T$, to be compared with $T H^{-1}$. Minibatches are taken to be
independent; those of shuffled epochs have less noise over an epoch, so that their errors are smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from inbounds.kernels._base import Kernel
from inbounds.kernels.recursion import Recursion, UnstableError

__all__ = ["Prediction", "UnstableError", "as_corrected", "beyond_chance", "predict", "stationary_covariance"]

COPIES = 4  # coordinates for an axis whose noise a correction by coordinates does not see
BY_CHANCE = 4.0  # standard errors
DOUBLINGS = 60  # of the number of steps: a chain that has not forgotten its start after 2^60 of them never will


@dataclass(frozen=True)
class Prediction:
    """The law that a kernel settles in on a Gaussian.

    Args:
        covariance: of phi.
        sd_ratio: of every coordinate: its sd over the exact one.
        correlation_error: of every pair: its correlation less the exact one.
        autocorrelation_time: in steps, of the linear function of phi that is slowest: an effective draw of it takes so many.
    """

    covariance: np.ndarray
    sd_ratio: np.ndarray
    correlation_error: np.ndarray
    autocorrelation_time: float

    @property
    def worst_sd_error(self) -> float:
        """The sd that is furthest off, as a signed share of the exact one: 0.05 is 5% too wide."""
        errors = self.sd_ratio - 1
        return float(errors[np.argmax(np.abs(errors))])

    @property
    def worst_correlation_error(self) -> float:
        """The largest error of a correlation, signed."""
        return float(self.correlation_error.flat[np.argmax(np.abs(self.correlation_error))])

    @property
    def worst(self) -> float:
        """The larger of both, without its sign."""
        return max(abs(self.worst_sd_error), abs(self.worst_correlation_error))


def predict(
    kernel: Kernel, step_size: float, hessian: ArrayLike, noise: ArrayLike, scale: ArrayLike | None = None
) -> Prediction:
    """The stationary law of a kernel where the posterior of phi is Gaussian.

    Args:
        kernel: one whose `recursion` is known.
        step_size: as for `ib.sample`.
        hessian: of -log pi of the proxy over all the data, dense.
        noise: covariance of the minibatch gradient of the proxy, dense, for the gradient and the batch that run.
        scale: diagonal of the preconditioner, one number or one per coordinate; None: 1.

    Raises:
        UnstableError: There is no stationary law: the step is too long, or a thermostat runs away.
        ValueError: The kernel has no `recursion` or temperature 0, or the Hessian is not positive definite.
    """
    if kernel.recursion is None:
        raise ValueError(f"What {kernel.name} does to a Gaussian is not known: it has no `recursion`.")
    hessian, noise = np.asarray(hessian, float), np.asarray(noise, float)
    size = len(hessian)
    if hessian.shape != (size, size) or noise.shape != (size, size):
        raise ValueError(f"`hessian` and `noise` must be square, of one size; got {hessian.shape} and {noise.shape}.")
    curvature, covariance = (hessian + hessian.T) / 2, (noise + noise.T) / 2
    scales = np.broadcast_to(np.asarray(1.0 if scale is None else scale, float), (size,))
    try:
        exact = cho_solve(cho_factor(curvature), np.eye(size))
    except LinAlgError:
        raise ValueError(
            "The Hessian is not positive definite: no Gaussian has it. Take it at the mode, over all the data."
        ) from None
    recursion = kernel.recursion(float(step_size), curvature, covariance, scales)
    if not recursion.temperature > 0:
        raise ValueError("At temperature 0 a kernel climbs, and has no law to compare with.")
    return _compared(recursion, recursion.temperature * exact)


def _compared(recursion: Recursion, exact: np.ndarray) -> Prediction:
    transition, _, read_out, _ = recursion
    full = stationary_covariance(recursion)
    covariance = read_out @ full @ read_out.T
    sd, exact_sd = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(exact))
    correlations = covariance / np.outer(sd, sd) - exact / np.outer(exact_sd, exact_sd)
    # The sum of the autocovariances at all lags, before and after: n times the variance of a mean over n steps.
    ahead = read_out @ np.linalg.solve(np.eye(len(transition)) - transition, full @ read_out.T)
    summed = ahead + ahead.T - covariance
    slowest = eigh(summed, covariance, eigvals_only=True)[-1]
    return Prediction(covariance, sd / exact_sd, correlations, float(max(slowest, 1.0)))


def stationary_covariance(recursion: Recursion) -> np.ndarray:
    """The covariance of the state, by doubling: that after 2n steps is that after n, moved by n steps, plus itself."""
    power, total = recursion.transition, recursion.noise
    with np.errstate(all="ignore"):
        for _ in range(DOUBLINGS):
            total = total + power @ total @ power.T
            power = power @ power
            reach = np.linalg.norm(power)
            if not np.isfinite(reach):
                break
            if reach < 1e-10:
                result: np.ndarray = (total + total.T) / 2
                return result
    raise UnstableError("the step is too long: the chain has no stationary law")


def as_corrected(
    values: np.ndarray, noises: np.ndarray, taken: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A Gaussian that shows what a correction by coordinates does along some axes of one that is too large: (H, V, scales) for `predict`.

    Each axis has a few coordinates here: the sum of them has the noise of the axis, and each of them the one that the correction takes it
    for. (The remaining combinations of them are off the other way, by no more.)

    Args:
        values: curvatures along the axes.
        noises: variances of the gradient along them.
        taken: the same where the noise of coordinates were independent.
    """
    taken = np.maximum(taken, noises / COPIES)
    together = (noises - taken) / (COPIES - 1)
    noise = np.kron(np.diag(taken - together), np.eye(COPIES)) + np.kron(np.diag(together), np.ones((COPIES, COPIES)))
    return np.kron(np.diag(values), np.eye(COPIES)), noise, np.ones(COPIES * len(values))


def beyond_chance(noises: np.ndarray, taken: np.ndarray, count: int) -> np.ndarray:
    """Variances along some axes, from so many gradients: those of independent coordinates where chance alone may make the difference."""
    near = np.abs(noises - taken) <= BY_CHANCE * np.sqrt(2 / count) * taken
    return np.where(near, taken, noises)
