"""Transforms of vectors and matrices: against the Jacobian that autodiff finds, and at the faces of the support."""

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from inbounds import transforms

CASES = {
    "softmax": (transforms.Softmax(), 3),
    "stick_breaking": (transforms.StickBreaking(), 3),
    "ordered": (transforms.default(constraints.ordered_vector), 4),
    "positive_ordered": (transforms.default(constraints.positive_ordered_vector), 4),
    "lower_cholesky": (transforms.default(constraints.lower_cholesky), 6),
    "positive_definite": (transforms.default(constraints.positive_definite), 6),
    "corr_cholesky": (transforms.default(constraints.corr_cholesky), 3),
    "corr_matrix": (transforms.default(constraints.corr_matrix), 3),
    "zero_sum": (transforms.default(constraints.zero_sum(1)), 3),
}


def free_coordinates(name, theta):
    """The coordinates with respect to which densities on the support are densities."""
    if name in ("softmax", "stick_breaking"):
        return theta[:-1]
    if theta.ndim == 2:
        rows, columns = np.tril_indices(theta.shape[-1], -1 if name.startswith("corr") else 0)
        return theta[rows, columns]
    return theta


def log_density(theta):
    weights = jnp.cos(jnp.arange(theta.size, dtype=theta.dtype)).reshape(theta.shape)
    return jnp.sum(weights * theta) - 0.2 * jnp.sum(theta**2)


@pytest.mark.parametrize("name", CASES)
def test_log_det_and_drift_agree_with_autodiff(name):
    with jax.enable_x64(True):
        transform, size = CASES[name]
        phi = jnp.asarray(np.random.default_rng(0).normal(size=size))

        def log_proxy(phi):
            return log_density(transform(phi)) + transform.log_abs_det_jacobian(phi, transform(phi))

        def everything(phi):
            jacobian = jax.jacobian(lambda p: free_coordinates(name, transform(p)))(phi)
            point = transform.evaluation_point(phi)
            drift = transform.pull_back(phi, point, jax.grad(log_density)(point))
            return jacobian, transform.log_abs_det_jacobian(phi, transform(phi)), drift, jax.grad(log_proxy)(phi)

        jacobian, log_det, drift, gradient = jax.jit(everything)(phi)
        np.testing.assert_allclose(drift, gradient, rtol=1e-9, atol=1e-9)
        if name != "zero_sum":  # isometric onto a subspace: its Jacobian is not square
            np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-9, atol=1e-9)
        assert drift.dtype == jnp.float64


@pytest.mark.parametrize("name", CASES)
def test_round_trip_shapes_batches_and_support(name):
    transform, size = CASES[name]
    phi = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, size)), jnp.float32)

    def everything(phi):
        theta, point = transform(phi), transform.evaluation_point(phi)
        drift = transform.pull_back(phi, point, jnp.ones_like(point))
        return theta, transform.codomain(theta), transform.inv(theta), drift, transform.log_abs_det_jacobian(phi, theta)

    theta, inside, back, drift, log_det = jax.jit(everything)(phi)
    assert theta.dtype == jnp.float32
    assert transform.unconstrained_shape(theta.shape) == phi.shape
    assert transform.forward_shape(phi.shape) == theta.shape
    assert np.all(inside)
    np.testing.assert_allclose(back, phi, rtol=1e-3, atol=1e-3)
    assert drift.shape == phi.shape
    assert log_det.shape == (2, 5)


@pytest.mark.parametrize("name", CASES)
def test_vector_transform_is_a_value(name):
    transform, _ = CASES[name]
    leaves, structure = jax.tree.flatten(transform)
    again = jax.tree.unflatten(structure, leaves)
    assert again == transform
    assert hash(again) == hash(transform)
    assert pickle.loads(pickle.dumps(transform)) == transform
    assert transform != transforms.Softplus()


EXTREME = [1e4, -1e4, 1e30, -1e30, 100.0, -100.0, 30.0, -30.0]


@pytest.mark.parametrize("name", ["softmax", "ordered", "positive_ordered", "lower_cholesky"])
def test_theta_is_strictly_inside_and_everything_finite_for_extreme_phi(name):
    transform, size = CASES[name]
    grid = np.random.default_rng(0).choice([*EXTREME, 0.0, 1.0], size=(200, size))
    phi = jnp.asarray(np.concatenate([grid, np.tile(EXTREME, (size, 1)).T]), jnp.float32)

    def evaluate(phi):
        theta, point = transform(phi), transform.evaluation_point(phi)
        drift = transform.pull_back(phi, point, jnp.zeros_like(point))
        gradient = jax.grad(lambda p: jnp.sum(transform(p)) * 1e-3 + jnp.sum(transform.log_abs_det_jacobian(p, None)))
        return theta, point, drift, transform.log_abs_det_jacobian(phi, theta), gradient(phi)

    theta, point, *rest = jax.jit(evaluate)(phi)
    for value in (theta, point, *rest):
        assert np.isfinite(value).all()
    if name == "softmax":
        assert np.all(theta > 0)
        np.testing.assert_allclose(theta.sum(-1), 1.0, rtol=1e-6)
    elif name == "lower_cholesky":
        assert np.all(np.diagonal(theta, axis1=-2, axis2=-1) > 0)
    else:
        assert np.all(np.asarray(theta)[:, 1:] > np.asarray(theta)[:, :-1])
        assert name == "ordered" or np.all(theta > 0)


def test_naive_dirichlet_score_is_pulled_back_exactly_through_softmax():
    alpha = jnp.array([0.05, 0.5, 3.0, 0.1])
    transform = transforms.Softmax()
    phi = jnp.asarray(np.random.default_rng(0).choice([*EXTREME[:2], 60, -60, 0, 1], size=(300, 3)), jnp.float32)
    point = transform.evaluation_point(phi)
    score = jax.vmap(jax.grad(lambda theta: jnp.sum((alpha - 1) * jnp.log(theta))))(point)
    drift = transform.pull_back(phi, point, score)
    expected = alpha[:-1] - alpha.sum() * np.asarray(transform(phi))[:, :-1]
    np.testing.assert_allclose(drift, expected, rtol=1e-4, atol=1e-4)


def test_lipschitz_constants_are_honest():
    assert transforms.Softmax().lipschitz == 0.5
    assert transforms.default(constraints.lower_cholesky).lipschitz == 1.0
    assert math.isinf(transforms.default(constraints.positive_definite).lipschitz)
    jacobian = jax.vmap(jax.jacobian(transforms.Softmax()))(jnp.linspace(-5, 5, 101)[:, None])
    assert np.linalg.norm(jacobian, ord=2, axis=(1, 2)).max() <= 0.5


def test_softmax_in_a_transformed_distribution_has_the_dirichlet_density_in_logits():
    law = dist.TransformedDistribution(dist.Normal(0, 1).expand([2]).to_event(1), transforms.Softmax())
    theta = law.sample(jax.random.key(0), (4,))
    phi = transforms.Softmax().inv(theta)
    expected = dist.Normal(0, 1).log_prob(phi).sum(-1) - jnp.log(theta).sum(-1)
    np.testing.assert_allclose(law.log_prob(theta), expected, rtol=1e-4)
    assert law.event_shape == (3,)
