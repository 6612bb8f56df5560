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
from inbounds.testing import check_transform
from tests.transforms import exact

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

CASES = {
    "log_ratios": (transforms.LogRatios(), 3),
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


# How far out phi may be for theta to be inside as far as single precision tells: a matrix may be singular to it.
REACH = {"positive_definite": 5.0, "corr_matrix": 3.0, "corr_cholesky": 5.0}
# An isometry onto the vectors with sum zero: theta's coordinates in an orthonormal basis of these.
ZERO_SUM = np.linalg.svd(np.eye(4) - 0.25)[0][:, :3].T


@pytest.mark.parametrize("name", CASES)
def test_vector_transforms_are_what_transforms_must_be(name):
    transform, size = CASES[name]
    free = (lambda theta: ZERO_SUM @ theta) if name == "zero_sum" else None
    check_transform(transform, size=size, reach=REACH.get(name, 60.0), free=free)


@pytest.mark.parametrize("name", CASES)
def test_shapes_of_batches(name):
    transform, size = CASES[name]
    phi = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, size)), jnp.float32)

    def everything(phi):
        theta, point = transform(phi), transform.evaluation_point(phi)
        drift = transform.pull_back(phi, point, jnp.ones_like(point))
        return theta, drift, transform.log_abs_det_jacobian(phi, theta)

    theta, drift, log_det = jax.eval_shape(everything, phi)
    assert transform.unconstrained_shape(theta.shape) == phi.shape == drift.shape
    assert transform.forward_shape(phi.shape) == theta.shape
    assert log_det.shape == (2, 5)


@pytest.mark.parametrize("name", CASES)
def test_vector_transforms_can_be_pickled(name):
    transform, _ = CASES[name]
    assert pickle.loads(pickle.dumps(transform)) == transform != transforms.Softplus()


EXTREME = [1e4, -1e4, 1e30, -1e30, 100.0, -100.0, 30.0, -30.0]


@pytest.mark.parametrize("name", ["log_ratios", "softmax", "ordered", "positive_ordered", "lower_cholesky"])
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
    if name in ("log_ratios", "softmax"):
        assert np.all(theta > 0)
        np.testing.assert_allclose(theta.sum(-1), 1.0, rtol=1e-6)
    elif name == "lower_cholesky":
        assert np.all(np.diagonal(theta, axis1=-2, axis2=-1) > 0)
    else:
        assert np.all(np.asarray(theta)[:, 1:] > np.asarray(theta)[:, :-1])
        assert name == "ordered" or np.all(theta > 0)


SIMPLEX = {"log_ratios": transforms.LogRatios(), "softmax": transforms.Softmax()}


def gradient_of_logits(name, values):
    """What phi's gradient is, given that of the logits."""
    if name == "softmax":
        return values[..., :-1]
    return values @ np.array(exact.basis(values.shape[-1]).tolist(), float)


@pytest.mark.parametrize("name", SIMPLEX)
def test_naive_dirichlet_score_is_pulled_back_exactly(name):
    alpha = jnp.array([0.05, 0.5, 3.0, 0.1])
    transform = SIMPLEX[name]
    phi = jnp.asarray(np.random.default_rng(0).choice([*EXTREME[:2], 60, -60, 0, 1], size=(300, 3)), jnp.float32)
    point = transform.evaluation_point(phi)
    score = jax.vmap(jax.grad(lambda theta: jnp.sum((alpha - 1) * jnp.log(theta))))(point)
    drift = transform.pull_back(phi, point, score)
    expected = gradient_of_logits(name, np.asarray(alpha - alpha.sum() * transform(phi), np.float64))
    np.testing.assert_allclose(drift, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_log_ratios_are_those_of_exact_arithmetic(dtype, size):
    eps = float(jnp.finfo(dtype).eps)
    generator, transform = np.random.default_rng(size), transforms.LogRatios()
    phi = np.concatenate([generator.normal(size=(4, size - 1)) * scale for scale in (1e-3, 1.0, 10.0, 30.0)])
    with jax.enable_x64(dtype == jnp.float64):
        phi = jnp.asarray(phi, dtype)
        theta, log_theta = transform(phi), transform.log_gap(phi)
        log_det, back = transform.log_abs_det_jacobian(phi, theta), transform.inv(jnp.exp(log_theta))
        assert theta.dtype == log_theta.dtype == log_det.dtype == back.dtype == dtype
    for row, point in enumerate(np.asarray(phi)):
        error = 30 * eps * (1 + np.abs(point).max())  # that of phi itself
        expected, expected_log, expected_det = (np.array(x, float) for x in exact.log_ratios(point))
        np.testing.assert_allclose(theta[row], expected, rtol=error, atol=float(jnp.finfo(dtype).tiny))
        np.testing.assert_allclose(log_theta[row], expected_log, rtol=10 * eps, atol=error)
        np.testing.assert_allclose(log_det[row], expected_det, rtol=10 * eps, atol=size * error)
        if expected_log.min() > -80:
            np.testing.assert_allclose(back[row], point, atol=error)


def test_log_ratios_are_isometric_so_that_all_components_are_alike():
    transform = transforms.LogRatios()
    one, other = (jnp.asarray(np.random.default_rng(seed).normal(size=(50, 6)) * 3, jnp.float32) for seed in (0, 1))
    apart = transform.log_gap(one) - transform.log_gap(other)
    centred = apart - apart.mean(-1, keepdims=True)
    np.testing.assert_allclose(jnp.linalg.norm(centred, axis=-1), jnp.linalg.norm(one - other, axis=-1), rtol=1e-5)
    alone = transforms.LogRatios()(jnp.zeros((2, 0)))
    np.testing.assert_array_equal(alone, np.ones((2, 1)))


def test_lipschitz_constants_are_honest():
    assert transforms.LogRatios().lipschitz == transforms.Softmax().lipschitz == 0.5
    assert transforms.default(constraints.lower_cholesky).lipschitz == 1.0
    assert math.isinf(transforms.default(constraints.positive_definite).lipschitz)
    points = jnp.asarray(np.random.default_rng(0).normal(size=(100, 3)) * 3, jnp.float32)
    points = points.at[0].set(0.0).at[1].set(jnp.asarray([40.0, -40.0, 0.0]))  # all alike; one component alone
    for transform in SIMPLEX.values():
        norms = np.linalg.norm(jax.vmap(jax.jacobian(transform))(points), ord=2, axis=(1, 2))
        assert norms.max() <= 0.5
    two = jax.jacobian(transforms.LogRatios())(jnp.zeros(1))
    np.testing.assert_allclose(np.linalg.norm(two, ord=2), 0.5, rtol=1e-6)  # it is attained


@pytest.mark.parametrize(("name", "log_volume"), [("softmax", 0.0), ("log_ratios", 0.5 * math.log(3))])
def test_in_a_transformed_distribution_they_have_the_logistic_normal_density(name, log_volume):
    law = dist.TransformedDistribution(dist.Normal(0, 1).expand([2]).to_event(1), SIMPLEX[name])
    theta = law.sample(jax.random.key(0), (4,))
    phi = SIMPLEX[name].inv(theta)
    expected = dist.Normal(0, 1).log_prob(phi).sum(-1) - jnp.log(theta).sum(-1) - log_volume
    np.testing.assert_allclose(law.log_prob(theta), expected, rtol=1e-4)
    assert law.event_shape == (3,)
