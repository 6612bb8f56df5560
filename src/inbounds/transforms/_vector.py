"""Transforms of whole vectors and matrices: simplex, ordered, triangular, positive definite; NumPyro's for the rest.

Positive parts go through `Softplus`, not exp, so that they stay Lipschitz. `log_abs_det_jacobian` sums over the event.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions import transforms as numpyro_transforms

from ._base import Transform, as_float, edge_floor, held_inside, slope_of, snake_case
from ._positive import Softplus
from ._supports import family_of, unwrap

SOFTPLUS = Softplus()


class LogRatios(Transform):
    r"""$\theta = \mathrm{softmax}(B \varphi)$ on the simplex of K components, with $B^T B = I$ and columns whose sums are 0.

    These are isometric log-ratios (Egozcue et al. 2003): distances between phi are those between the centred $\log \theta$, in
    which all components are alike. So a chain with one step size mixes in the same way whatever the order of the components.
    B is the first K - 1 columns of the reflection that takes the last axis to the diagonal: with $s = \sum_j \varphi_j$,
    $(B \varphi)_i = \varphi_i - s / (K + \sqrt K)$ for $i < K$, and $(B \varphi)_K = -s / \sqrt K$.

    $\log |\det J| = \sum_i \log \theta_i + \tfrac12 \log K$; the drift is $B^T (v - \theta (\sum_j v_j + K))$ with
    $v = \theta \cdot \nabla_\theta \log \pi$. Lipschitz constant 1/2.

    Example:
        >>> f = ib.transforms.LogRatios()
        >>> f(jnp.array([0.2, -0.5])).shape
        (3,)
    """

    name = "log_ratios"
    lipschitz = 0.5
    domain = constraints.real_vector
    codomain = constraints.simplex

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    def _logits(self, phi: Array) -> Array:
        """log theta, but for a constant: B phi."""
        size = phi.shape[-1] + 1
        total = jnp.sum(phi, axis=-1, keepdims=True)
        return jnp.concatenate([phi - total / (size + math.sqrt(size)), -total / math.sqrt(size)], axis=-1)

    def _coordinates(self, log_theta: Array) -> Array:
        """phi, from log theta: B^T log theta."""
        return self._transposed(log_theta)

    def _transposed(self, values: Array) -> Array:
        """B^T values: what the gradient of the logits is for phi."""
        size = values.shape[-1]
        first, last = values[..., :-1], values[..., -1:]
        total = jnp.sum(first, axis=-1, keepdims=True)
        return first - total / (size + math.sqrt(size)) - last / math.sqrt(size)

    def _log_volume(self, size: int) -> float:
        """log |det J| less the sum of log theta."""
        return 0.5 * math.log(size)

    def _shifted(self, phi: Array) -> Array:
        """The logits, less the largest of them."""
        logits = self._logits(as_float(phi))
        return logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))

    def _log_theta(self, phi: Array) -> Array:
        shifted = self._shifted(phi)
        return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))

    def __call__(self, phi: Array) -> Array:
        weight = jnp.exp(self._shifted(phi))
        return jnp.maximum(weight / jnp.sum(weight, axis=-1, keepdims=True), float(jnp.finfo(weight.dtype).tiny))

    def _inverse(self, theta: Array) -> Array:
        theta = as_float(theta)
        return self._coordinates(jnp.log(jnp.maximum(theta, float(jnp.finfo(theta.dtype).tiny))))

    def log_gap(self, phi: Array) -> Array:
        return self._log_theta(phi)

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        return jnp.sum(self._log_theta(phi), axis=-1) + self._log_volume(phi.shape[-1] + 1)

    def evaluation_point(self, phi: Array) -> Array:
        theta = self(phi)
        return jnp.maximum(theta, edge_floor(theta.dtype))

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        # theta * gradient is exact for a score that goes like 1 / theta, however small theta is.
        weighted = theta_eval * gradient
        total = jnp.sum(weighted, axis=-1, keepdims=True) + theta_eval.shape[-1]
        return self._transposed(weighted - theta_eval * total + 1)


class Softmax(LogRatios):
    r"""$\theta = \mathrm{softmax}(\varphi_1, \dots, \varphi_{K-1}, 0)$: log-ratios to the last component, which is unlike the others.

    $\log |\det J| = \sum_i \log \theta_i$; the drift is $v_i - \theta_i \sum_j v_j + 1 - K \theta_i$ with
    $v = \theta \cdot \nabla_\theta \log \pi$. Lipschitz constant 1/2. Near a face $\theta_i \approx e^{\varphi_i}$. Where the last component is
    rare, all of phi must move together for it to change, and it hardly mixes: put the most frequent one last.

    Example:
        >>> f = ib.transforms.Softmax()
        >>> f(jnp.array([0.2, -0.5])).shape
        (3,)
    """

    name = "softmax"

    def _logits(self, phi: Array) -> Array:
        return jnp.concatenate([phi, jnp.zeros_like(phi[..., :1])], axis=-1)

    def _coordinates(self, log_theta: Array) -> Array:
        return log_theta[..., :-1] - log_theta[..., -1:]

    def _transposed(self, values: Array) -> Array:
        return values[..., :-1]

    def _log_volume(self, size: int) -> float:
        return 0.0


class Ordered(Transform):
    r"""$\theta_1 = \varphi_1$, $\theta_k = \theta_{k-1} + s(\varphi_k)$ with the softplus s: increasing vectors.

    $\log |\det J| = \sum_{k \ge 2} \log s'(\varphi_k)$; the drift is $s'(\varphi_k) \sum_{j \ge k} g_j + s''/s'$.
    Lipschitz, with a constant that grows with the length K (about $2K/\pi$), hence none for all lengths.

    Example:
        >>> f = ib.transforms.Ordered()
        >>> f(jnp.array([0.2, -0.5])).shape
        (2,)
    """

    name = "ordered"
    domain = constraints.real_vector
    codomain = constraints.ordered_vector

    def _steps(self, phi: Array) -> Array:
        """The first component, and the positive steps up from it."""
        phi = as_float(phi)
        return jnp.concatenate([phi[..., :1], SOFTPLUS(phi[..., 1:])], axis=-1)

    def __call__(self, phi: Array) -> Array:
        return strictly_increasing(jnp.cumsum(self._steps(phi), axis=-1))

    def _inverse(self, theta: Array) -> Array:
        theta = as_float(theta)
        return jnp.concatenate([theta[..., :1], SOFTPLUS.inv(jnp.diff(theta, axis=-1))], axis=-1)

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        phi = phi[..., 1:]
        return jnp.sum(SOFTPLUS.log_abs_det_jacobian(phi, None), axis=-1)

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        total = jnp.flip(jnp.cumsum(jnp.flip(gradient, -1), axis=-1), -1)
        steps = jnp.diff(theta_eval, axis=-1)
        return jnp.concatenate([total[..., :1], pulled_step(phi[..., 1:], steps, total[..., 1:])], axis=-1)


class PositiveOrdered(Ordered):
    r"""`Ordered`, with $\theta_1 = s(\varphi_1) > 0$ as well.

    Example:
        >>> f = ib.transforms.PositiveOrdered()
        >>> f(jnp.array([0.2, -0.5])).shape
        (2,)
    """

    name = "positive_ordered"
    codomain = constraints.positive_ordered_vector

    def _steps(self, phi: Array) -> Array:
        return SOFTPLUS(phi)

    def _inverse(self, theta: Array) -> Array:
        theta = as_float(theta)
        return SOFTPLUS._inverse(jnp.diff(theta, axis=-1, prepend=jnp.zeros_like(theta[..., :1])))

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        return jnp.sum(SOFTPLUS.log_abs_det_jacobian(phi, None), axis=-1)

    def evaluation_point(self, phi: Array) -> Array:
        theta = self(phi)
        floor = edge_floor(theta.dtype)
        return strictly_increasing(jnp.maximum(theta, floor))

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        total = jnp.flip(jnp.cumsum(jnp.flip(gradient, -1), axis=-1), -1)
        return pulled_step(phi, jnp.diff(theta_eval, axis=-1, prepend=jnp.zeros_like(theta_eval[..., :1])), total)


class LowerCholesky(Transform):
    r"""Lower-triangular matrices with a positive diagonal $L_{ii} = s(\varphi_{ii})$, s the softplus.

    phi holds the strict lower triangle row by row, then the diagonal. $\log |\det J| = \sum_i \log s'(\varphi_{ii})$.
    Lipschitz constant 1.

    Example:
        >>> f = ib.transforms.LowerCholesky()
        >>> f(jnp.array([0.2, -0.5, 0.1])).shape
        (2, 2)
    """

    name = "lower_cholesky"
    lipschitz = 1.0
    domain = constraints.real_vector
    codomain = constraints.lower_cholesky

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        size = matrix_size(shape[-1])
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-2], shape[-1] * (shape[-1] + 1) // 2)

    def _split(self, phi: Array) -> tuple[Array, Array]:
        size = matrix_size(phi.shape[-1])
        return phi[..., :-size], phi[..., -size:]

    def _matrix(self, below: Array, diagonal: Array) -> Array:
        size = diagonal.shape[-1]
        rows, columns = np.tril_indices(size, -1)
        matrix = jnp.zeros((*diagonal.shape, size), diagonal.dtype).at[..., rows, columns].set(below)
        return matrix.at[..., np.arange(size), np.arange(size)].set(diagonal)

    def _vector(self, matrix: Array, diagonal: Array) -> Array:
        rows, columns = np.tril_indices(matrix.shape[-1], -1)
        return jnp.concatenate([matrix[..., rows, columns], diagonal], axis=-1)

    def __call__(self, phi: Array) -> Array:
        below, diagonal = self._split(as_float(phi))
        return self._matrix(below, SOFTPLUS(diagonal))

    def _inverse(self, theta: Array) -> Array:
        theta = as_float(theta)
        return self._vector(theta, SOFTPLUS.inv(jnp.diagonal(theta, axis1=-2, axis2=-1)))

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        return jnp.sum(SOFTPLUS.log_abs_det_jacobian(self._split(phi)[1], None), axis=-1)

    def evaluation_point(self, phi: Array) -> Array:
        below, diagonal = self._split(as_float(phi))
        return self._matrix(below, SOFTPLUS.evaluation_point(diagonal))

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        _, phi_diagonal = self._split(phi)
        diagonal, slope = (jnp.diagonal(m, axis1=-2, axis2=-1) for m in (theta_eval, gradient))
        return self._vector(gradient, SOFTPLUS.pull_back(phi_diagonal, diagonal, slope))


class PositiveDefinite(Transform):
    r"""$\Sigma = L L^T$ with `LowerCholesky` L. $\log |\det J| = n \log 2 + \sum_i (n + 1 - i) \log L_{ii} + \dots$

    Not Lipschitz: the product is quadratic in L.

    Example:
        >>> f = ib.transforms.PositiveDefinite()
        >>> f(jnp.array([0.2, -0.5, 0.1])).shape
        (2, 2)
    """

    name = "positive_definite"
    domain = constraints.real_vector
    codomain = constraints.positive_definite
    _factor = LowerCholesky()

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._factor.forward_shape(shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._factor.inverse_shape(shape)

    def __call__(self, phi: Array) -> Array:
        factor = self._factor.evaluation_point(phi)
        return factor @ jnp.swapaxes(factor, -1, -2)

    def _inverse(self, theta: Array) -> Array:
        return self._factor._inverse(jnp.linalg.cholesky(as_float(theta)))

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        _, diagonal = self._factor._split(as_float(phi))
        powers = np.arange(diagonal.shape[-1], 0, -1).astype(diagonal.dtype)
        log_diagonal = jnp.sum(powers * SOFTPLUS.log_gap(diagonal), axis=-1)
        return log_diagonal + diagonal.shape[-1] * math.log(2) + self._factor.log_abs_det_jacobian(phi, None)

    def pull_back(self, phi: Array, theta_eval: Array, gradient: Array) -> Array:
        factor = self._factor.evaluation_point(phi)
        size = factor.shape[-1]
        powers = np.arange(size, 0, -1).astype(factor.dtype)
        log_det = jnp.eye(size, dtype=factor.dtype) * (powers / jnp.diagonal(factor, axis1=-2, axis2=-1))[..., None, :]
        total = (gradient + jnp.swapaxes(gradient, -1, -2)) @ factor + log_det
        return self._factor.pull_back(phi, factor, total)


class Bijection(Transform):
    """A bijection of NumPyro's, with what a sampler needs of it found by autodiff. See `from_numpyro`.

    Example:
        >>> from numpyro.distributions import transforms as maps
        >>> isinstance(ib.transforms.from_numpyro(maps.ExpTransform()), ib.transforms.Bijection)
        True
    """

    name = "bijection"

    def __init__(self, bijection: Any, lipschitz: float = math.inf, name: str | None = None) -> None:
        self.bijection, self.lipschitz = bijection, lipschitz
        self.name = name or _name_of(bijection)

    @property
    def domain(self) -> constraints.Constraint:
        return self.bijection.domain

    @property
    def codomain(self) -> constraints.Constraint:
        return self.bijection.codomain

    def __call__(self, phi: Array) -> Array:
        theta = self.bijection(phi)
        return held_inside(theta, self.codomain) if self.domain.event_dim == 0 else theta

    def _inverse(self, theta: Array) -> Array:
        return jnp.asarray(self.bijection._inverse(theta))

    def derivative(self, phi: Array) -> Array:
        # Of the bijection itself: where theta is held inside its support it would be 0.
        return slope_of(self.bijection, phi)

    def log_abs_det_jacobian(self, phi: Array, theta: Array | None, intermediates: Any = None) -> Array:
        theta = self.bijection(phi) if theta is None else theta
        return jnp.asarray(self.bijection.log_abs_det_jacobian(phi, theta, intermediates))

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.bijection.forward_shape(shape))

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.bijection.inverse_shape(shape))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def from_numpyro(transform: Any, lipschitz: float = math.inf, name: str | None = None) -> Transform:
    """A transform of NumPyro's as one of ours: derivatives, pull-backs and evaluation points are found by autodiff.

    Scalars are kept strictly inside the support where the floats would round onto its ends. There, and only there, the drift of a density
    that goes to infinity at the end is lost: where that matters (Gamma(0.05, 1), Beta(0.05, 0.05)) take one of the library's own.

    Args:
        transform: a bijection from all numbers, or all vectors, onto a support. Chains of maps are one too
            (`numpyro.distributions.transforms.ComposeTransform`).
        lipschitz: its Lipschitz constant, where it is known; `ib.check` reports it.
        name: what it is called in reports.

    Returns:
        A transform that can be given to any kernel.

    Raises:
        ValueError: it is not a transform of NumPyro's, or not one of all numbers or vectors.

    Example:
        >>> from numpyro.distributions import transforms as maps
        >>> steps = maps.ComposeTransform([maps.AffineTransform(0.0, 2.0), maps.SoftplusTransform()])
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 1.0)})
        >>> kernel = ib.sgld(posterior, transforms={"rate": ib.transforms.from_numpyro(steps)})
    """
    if isinstance(transform, Transform):
        return transform
    if not isinstance(transform, numpyro_transforms.Transform):
        raise ValueError(f"from_numpyro takes a transform of numpyro.distributions.transforms; got {transform!r}.")
    domain = unwrap(transform.domain)
    if family_of(domain) != "the real line":
        raise ValueError(
            f"phi must be free to be any number or vector, but {transform!r} is defined on {domain} alone. Put a transform onto "
            f"{domain} before it: ComposeTransform([biject_to({domain}), ...])."
        )
    return Bijection(transform, lipschitz, name)


def _name_of(bijection: Any) -> str:
    """'affine_then_exp' for a chain of NumPyro's."""
    parts = getattr(bijection, "parts", [bijection])
    return "_then_".join(snake_case(type(part).__name__.removesuffix("Transform")) for part in parts)


class StickBreaking(Bijection):
    r"""$\theta_k = z_k \prod_{j < k} (1 - z_j)$, $z_k = \sigma(\varphi_k - \log(K - k))$, on the simplex.

    Example:
        >>> f = ib.transforms.StickBreaking()
        >>> f(jnp.array([0.2, -0.5])).shape
        (3,)
    """

    def __init__(self) -> None:
        super().__init__(numpyro_transforms.StickBreakingTransform(), name="stick_breaking")

    name = "stick_breaking"


def pulled_step(phi: Array, step: Array, gradient: Array) -> Array:
    """The pull-back of a softplus step, by the step as the floats see it: exact for scores that go like 1 / step."""
    drift: Array = step * SOFTPLUS._rate(phi) * gradient + SOFTPLUS._slope(phi)
    return drift


@jax.custom_jvp
def strictly_increasing(x: Array) -> Array:
    """x along the last axis, each entry at least one float above the one before: a sum may swallow a small step."""

    def climb(previous: Array, value: Array) -> tuple[Array, Array]:
        above = jnp.nextafter(previous, jnp.full_like(previous, jnp.inf))
        # Between 0 and the smallest normal number there is nothing: XLA flushes subnormals.
        tiny = float(jnp.finfo(value.dtype).tiny)
        above = jnp.where(jnp.abs(above) < tiny, jnp.where(previous < 0, 0.0, tiny), above)
        value = jnp.maximum(value, above)
        return value, value

    _, rest = jax.lax.scan(climb, x[..., 0], jnp.moveaxis(x[..., 1:], -1, 0))
    return jnp.concatenate([x[..., :1], jnp.moveaxis(rest, 0, -1)], axis=-1)


strictly_increasing.defjvps(lambda tangent, _, x: tangent)


def matrix_size(length: int) -> int:
    """n, from the n (n + 1) / 2 numbers of a triangle."""
    return round((math.sqrt(1 + 8 * length) - 1) / 2)


OTHERS = (PositiveOrdered, Ordered, LowerCholesky, PositiveDefinite)


def bijection_of(constraint: constraints.Constraint) -> Transform:
    """The one transform onto a support that leaves no choice: our own, or else NumPyro's bijection."""
    for kind in OTHERS:
        if isinstance(constraint, type(kind.codomain)):
            return kind()
    if isinstance(constraint, type(constraints.positive_semidefinite)):
        return PositiveDefinite()
    try:
        registered = numpyro_transforms.biject_to(constraint)
        return from_numpyro(registered, name=snake_case(type(constraint).__name__))
    except NotImplementedError as error:
        raise ValueError(
            f"there is no bijection onto {constraint}; register one with numpyro.distributions.transforms.biject_to"
        ) from error
