"""Metrics of a diagonal and a few directions, for what has too many dimensions for a dense one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from inbounds import trees
from inbounds.arguments import whole_number
from inbounds.metrics._reference import Reference, distance, shifted
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree

PROBES = 10  # sums with random signs that the scales are measured with
TURNED = 2**12  # coordinates at once
CONVERGED = 1e-2  # relative error of a curvature at which its direction is as good as found


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class LowRank:
    r"""A metric with $L = \mathrm{diag}(s) (I + U \mathrm{diag}(a - 1) U^T)$, where U has few columns. The moving variable z is one vector.

    Attributes:
        center: c, a tree like phi.
        scales: s, one number per coordinate of phi.
        vectors: U, of shape (dimension, rank), with orthonormal columns.
        stretches: a, by how much L is longer along each of them than elsewhere.
    """

    center: PyTree
    scales: Any
    vectors: Any
    stretches: Any

    diagonal_noise: ClassVar[bool] = False

    def to_proxy(self, z: jax.Array) -> PyTree:
        """phi = c + L z.

        Args:
            z: a vector with one entry per coordinate.

        Returns:
            A tree like theta.
        """
        return shifted(self.center, self.scales.astype(z.dtype) * self._stretched(z, self.stretches))

    def from_proxy(self, phi: PyTree) -> jax.Array:
        """z of phi.

        Args:
            phi: a tree of unbounded arrays.

        Returns:
            A vector.
        """
        moved = distance(phi, self.center)
        return self._stretched(moved / self.scales.astype(moved.dtype), 1 / self.stretches)

    def pull_back(self, drift: PyTree) -> jax.Array:
        """L^T times a gradient with respect to phi.

        Args:
            drift: a tree like phi.

        Returns:
            A vector.
        """
        flat = trees.ravel(drift)
        return self._stretched(self.scales.astype(flat.dtype) * flat, self.stretches)

    def _stretched(self, x: jax.Array, stretches: Any) -> jax.Array:
        vectors = self.vectors.astype(x.dtype)
        result: jax.Array = x + vectors @ ((stretches - 1).astype(x.dtype) * (x @ vectors))
        return result

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return int(self.vectors.shape[0])

    def __repr__(self) -> str:
        return f"low-rank metric of {self.dimension} dimensions and rank {self.vectors.shape[1]}"


def low_rank(posterior: Posterior, center: PyTree, *, rank: int, transforms: PyTree = None, seed: int = 0) -> LowRank:
    r"""The metric of the posterior's Gaussian approximation at `center`, as a diagonal and `rank` directions.

    The directions are those in which the scaled Hessian differs most from the rest, flat ones and steep ones. Lanczos iterations find
    them, with products of the Hessian and a vector: at most 3 `rank` of these, and 10 for the scales. A product takes all the data, in slices,
    in double precision. Passes over the data: one for the gradient, one for the scales, and one for each iteration, so at most
    3 `rank` + 2. What it holds is 3 `rank` vectors of doubles (with NumPy 2.5 and newer 4 `rank` for a moment) and some 20 more, up to a
    million dimensions and beyond. In z the largest curvature is about 1.

    The gradient's noise is not diagonal in z, so kernels refuse to correct for it: take `ib.gradients.taylor` or `control_variate`,
    which leave little, or a larger batch.

    Args:
        posterior: what is sampled.
        center: theta near the mode of the proxy.
        rank: number of directions.
        transforms: as for the kernel.
        seed: of the random vectors.

    Returns:
        A `LowRank` metric.

    Raises:
        ValueError: the Hessian is not positive definite at `center`.

    Example:
        >>> posterior = ib.Posterior({"w": dist.Normal(0.0, jnp.array([1.0, 1.0, 9.0])).to_event(1)})
        >>> metric = ib.metrics.low_rank(posterior, {"w": jnp.zeros(3)}, rank=1)
        >>> kernel = ib.leimkuhler_matthews(posterior, metric=metric)
        >>> ib.sample(kernel, 0.25, 150, burn_in=100, progress=False).num_draws
        50
    """
    rank = whole_number("rank", rank)
    reference = Reference(posterior, Space.of(posterior.supports, transforms), center)
    size, scales = reference.dimension, _scales(reference, seed)

    def scaled(vector: np.ndarray) -> np.ndarray:
        result: np.ndarray = scales * reference.products((scales * vector)[None])[0]
        return result

    found = _extremes(scaled, size, np.random.default_rng(seed), rank, min(3 * rank, size))
    if min(found.curvatures.min(initial=found.rest), found.rest) <= 0:
        flattest = scales * found.vectors[:, np.argmin(found.curvatures)] if len(found.curvatures) else scales
        raise ValueError(
            "The posterior has no minimum of -log pi at the centre: its Hessian is not positive definite, mostly along "
            f"{reference.names()[int(np.argmax(np.abs(flattest)))]!r}. Give the mode (ib.check finds it), or a metric of draws: "
            "ib.metrics.from_draws(...)."
        )
    return LowRank(reference.phi, scales / np.sqrt(found.rest), found.vectors, np.sqrt(found.rest / found.curvatures))


class _Extremes(NamedTuple):
    """Directions in which a symmetric matrix differs most from the rest.

    Args:
        curvatures: along each of them.
        vectors: one per column.
        rest: the largest curvature elsewhere.
    """

    curvatures: np.ndarray
    vectors: np.ndarray
    rest: float


def _scales(reference: Reference, seed: int) -> np.ndarray:
    diagonal = reference.diagonal(PROBES, seed)
    if not np.all(np.isfinite(diagonal)):
        raise ValueError(
            "The Hessian of the posterior is not finite at the centre. Give a centre inside the bulk of the posterior."
        )
    if not np.all(diagonal > 0):
        worst = reference.names()[int(np.argmin(diagonal))]
        raise ValueError(f"Neither data nor prior say anything of {worst!r} at the centre. Give it a proper prior.")
    result: np.ndarray = 1 / np.sqrt(diagonal)
    return result


def _extremes(product: Any, size: int, generator: np.random.Generator, rank: int, most: int) -> _Extremes:
    """By Lanczos iterations with full orthogonalisation, until the directions are found or `most` products are made."""
    basis = np.empty((most, size))  # no page of it is used before a vector is written there
    basis[0] = generator.normal(size=size)
    basis[0] /= np.linalg.norm(basis[0])
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        count = len(diagonal) + 1
        moved = product(basis[count - 1])
        diagonal.append(float(moved @ basis[count - 1]))
        for _ in range(2):  # once leaves what rounding left
            moved -= (basis[:count] @ moved) @ basis[:count]
        left = float(np.linalg.norm(moved))
        tridiagonal = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        values, vectors = np.linalg.eigh(tridiagonal)
        ended = left <= 1e-10 * np.max(np.abs(values))  # the start lies in as many directions as there are curvatures
        chosen, rest = _apart(values, rank, complete=count == size)
        residuals = left * np.abs(vectors[-1])[chosen]
        found = count > rank + 1 and np.all(residuals <= CONVERGED * np.abs(values[chosen]))
        if ended or found or count >= most:
            return _Extremes(values[chosen], _turned(basis, vectors[:, chosen]), rest)
        beside.append(left)
        basis[count] = moved / left


def _turned(basis: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The first rows of `basis` times `vectors`, one column each, in the memory of `basis`: a second one may not fit."""
    used, kept = vectors.shape
    for start in range(0, basis.shape[1], TURNED):
        part = basis[:used, start : start + TURNED]
        basis[:kept, start : start + TURNED] = vectors.T @ part
    basis.resize((kept, basis.shape[1]), refcheck=False)
    return basis.T


def _apart(values: np.ndarray, rank: int, complete: bool) -> tuple[np.ndarray, float]:
    """Which of some ascending curvatures to take, from both ends, so that the others lie closest together; and the largest other."""
    count = min(rank, len(values) if complete else len(values) - 1)
    if count == len(values):
        return np.arange(count), float(values[-1])
    low = values[: count + 1]
    high = values[len(values) - count - 1 :]
    ratios = high / np.maximum(low, 1e-300)
    flat = int(np.argmin(ratios))  # so many from the lower end
    chosen = np.r_[:flat, len(values) - count + flat : len(values)]
    return chosen, float(high[flat])
