"""Transforms of whole vectors and matrices: simplex, ordered, triangular, positive definite, correlation."""

import math

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions import transforms as numpyro_transforms

from .base import Transform, as_float, edge_floor


class Softmax(Transform):
    r"""$\theta = \mathrm{softmax}(\varphi_1, \dots, \varphi_{K-1}, 0)$ on the simplex of K components.

    $\log |\det J| = \sum_i \log \theta_i$; the drift is $v_i - \theta_i \sum_j v_j + 1 - K \theta_i$ with
    $v = \theta \cdot \nabla_\theta \log \pi$. Lipschitz constant 1/2. Near a face $\theta_i \approx e^{\varphi_i}$.
    """

    name = "softmax"
    lipschitz = 0.5
    domain = constraints.real_vector
    codomain = constraints.simplex

    def forward_shape(self, shape):
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape):
        return (*shape[:-1], shape[-1] - 1)

    def _log_theta(self, phi):
        phi = as_float(phi)
        logits = jnp.concatenate([phi, jnp.zeros_like(phi[..., :1])], axis=-1)
        shifted = logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
        return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))

    def __call__(self, phi):
        log_theta = self._log_theta(phi)
        return jnp.maximum(jnp.exp(log_theta), float(jnp.finfo(log_theta.dtype).tiny))

    def _inverse(self, theta):
        theta = as_float(theta)
        return jnp.log(theta[..., :-1]) - jnp.log(theta[..., -1:])

    def log_gap(self, phi):
        """log theta, right also where theta underflows."""
        return self._log_theta(phi)

    def log_abs_det_jacobian(self, phi, theta, intermediates=None):
        return jnp.sum(self._log_theta(phi), axis=-1)

    def evaluation_point(self, phi):
        theta = self(phi)
        return jnp.maximum(theta, edge_floor(theta.dtype))

    def pull_back(self, phi, theta_eval, gradient):
        weighted = theta_eval * gradient
        total = jnp.sum(weighted, axis=-1, keepdims=True) + theta_eval.shape[-1]
        return weighted[..., :-1] - theta_eval[..., :-1] * total + 1


class Bijection(Transform):
    """A NumPyro bijection: pulled back by its vector-Jacobian product, plus the gradient of log |det J|.

    `lipschitz` is math.inf where there is no Lipschitz constant, or none is known.
    """

    name = "bijection"
    _parameters = ("bijection", "lipschitz", "name")

    def __init__(self, bijection, lipschitz=math.inf, name=None):
        self.bijection, self.lipschitz = bijection, lipschitz
        self.name = name or _snake(type(bijection).__name__.removesuffix("Transform"))

    domain = property(lambda self: self.bijection.domain)
    codomain = property(lambda self: self.bijection.codomain)

    def __call__(self, phi):
        return self.bijection(phi)

    def _inverse(self, theta):
        return self.bijection._inverse(theta)

    def log_abs_det_jacobian(self, phi, theta, intermediates=None):
        return self.bijection.log_abs_det_jacobian(phi, theta, intermediates)

    def forward_shape(self, shape):
        return self.bijection.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.bijection.inverse_shape(shape)

    def pull_back(self, phi, theta_eval, gradient):
        def theta_and_log_det(phi):
            theta = self.bijection(phi)
            return theta, self.bijection.log_abs_det_jacobian(phi, theta)

        (_, log_det), pull = jax.vjp(theta_and_log_det, phi)
        return pull((gradient, jnp.ones_like(log_det)))[0]

    def __hash__(self):
        # NumPyro's transforms compare, but do not hash.
        return hash((type(self), type(self.bijection), self.name))


class StickBreaking(Bijection):
    r"""$\theta_k = z_k \prod_{j < k} (1 - z_j)$, $z_k = \sigma(\varphi_k - \log(K - k))$, on the simplex."""

    name = "stick_breaking"

    def __init__(self):
        super().__init__(numpyro_transforms.StickBreakingTransform(), 1.0, "stick_breaking")


def bijection_of(constraint):
    """The bijection for a support without transforms of its own: softplus inside where NumPyro offers it."""
    softplus_inside = numpyro_transforms.SoftplusLowerCholeskyTransform()
    if isinstance(constraint, type(constraints.lower_cholesky)):
        return Bijection(softplus_inside, 1.0, "softplus_lower_cholesky")
    if isinstance(constraint, type(constraints.positive_definite)):
        product = numpyro_transforms.CholeskyTransform().inv
        both = numpyro_transforms.ComposeTransform([softplus_inside, product])
        return Bijection(both, math.inf, "softplus_cholesky_product")
    if getattr(constraint, "is_discrete", False):
        raise ValueError(f"{constraint} is discrete: Langevin dynamics needs a continuous variable; marginalise it out")
    try:
        return Bijection(numpyro_transforms.biject_to(constraint), name=_snake(type(constraint).__name__.strip("_")))
    except NotImplementedError as error:
        raise ValueError(
            f"there is no bijection onto {constraint}; register one with numpyro.distributions.transforms.biject_to"
        ) from error


def _snake(name):
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).strip("_")
