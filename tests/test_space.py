"""Trees of transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.engine import normal_like
from inbounds.space import Space

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

SUPPORTS = {
    "rate": constraints.positive,
    "mix": constraints.unit_interval,
    "weight": constraints.interval(-1.0, 1.0),
    "loc": constraints.real,
    "share": constraints.simplex,
    "order": constraints.ordered_vector,
    "cov": constraints.positive_definite,
}
PHI = {
    "rate": jnp.array([-3.0, 0.2, 5.0]),
    "mix": jnp.array(0.4),
    "weight": jnp.array([[-2.0, 1.0]]),
    "loc": jnp.array(-7.0),
    "share": jnp.array([0.3, -1.0]),
    "order": jnp.array([-0.5, 0.3, 0.1]),
    "cov": jnp.array([0.2, -0.3, 0.5]),
}


def log_density(theta):
    """Depends on everything, jointly."""
    parts = [jnp.sum(jnp.sin(1.0 + leaf) - 0.3 * jnp.square(leaf)) for leaf in jax.tree.leaves(theta)]
    return sum(parts) + 0.1 * parts[0] * parts[1]


@pytest.mark.parametrize("transforms", [None, "icll", {"mix": "probit", "rate": "integrated_probit"}], ids=str)
def test_pull_back_is_the_gradient_of_the_proxy_density(transforms):
    space = Space.of(SUPPORTS, transforms)

    def proxy_density(phi):
        return log_density(space.constrain(phi)) + space.log_abs_det_jacobian(phi)

    def pulled_back(phi):
        theta = space.evaluation_point(phi)
        return space.pull_back(phi, theta, jax.grad(log_density)(theta))

    drift, expected = jax.jit(lambda phi: (pulled_back(phi), jax.grad(proxy_density)(phi)))(PHI)
    for name in SUPPORTS:
        np.testing.assert_allclose(drift[name], expected[name], rtol=2e-4, atol=2e-4, err_msg=name)


def test_round_trip():
    space = Space.of(SUPPORTS)
    again = space.unconstrain(space.constrain(PHI))
    for name in SUPPORTS:
        np.testing.assert_allclose(again[name], PHI[name], rtol=1e-3, atol=1e-3, err_msg=name)


def test_variance_is_pulled_back_through_the_jacobian():
    space = Space.of(SUPPORTS)
    theta = space.constrain(PHI)
    variance = jax.tree.map(lambda x: 1.0 + jnp.arange(x.size, dtype=x.dtype).reshape(x.shape), theta)
    pulled = space.pull_back_variance(PHI, variance)
    keys = jax.random.split(jax.random.key(0), 20_000)
    point = space.evaluation_point(PHI)

    def one(key):
        noise = normal_like(key, theta)
        return space.pull_back(PHI, point, jax.tree.map(lambda z, v: z * jnp.sqrt(v), noise, variance))

    sampled = jax.tree.map(lambda x: jnp.var(x, axis=0), jax.jit(jax.vmap(one))(keys))
    for name in set(SUPPORTS) - {"cov"}:  # whose noise is symmetric: below
        np.testing.assert_allclose(pulled[name], sampled[name], rtol=0.06, atol=1e-6, err_msg=name)


def test_differences_are_pulled_back_by_the_jacobian():
    """Of vectors and matrices; those of scalars wait for their slope."""
    space = Space.of(SUPPORTS)
    point = space.evaluation_point(PHI)
    differences = jax.tree.map(lambda x: jnp.stack([jnp.sin(1.0 + jnp.cumsum(x).reshape(x.shape)), x]), point)
    pulled = jax.jit(space.pull_back_differences)(PHI, point, differences)
    for name, transform in space.transforms.items():
        if transform.domain.event_dim == 0:
            assert np.array_equal(pulled[name], differences[name])
            at = space.variance_at(PHI, {**PHI, name: jnp.square(pulled[name][0])})[name]
            expected = jnp.square(space.pull_back(PHI, point, {**point, name: differences[name][0]})[name]
                                  - space.pull_back(PHI, point, {**point, name: 0 * point[name]})[name])  # fmt: skip
            np.testing.assert_allclose(at, expected, rtol=1e-3, err_msg=name)
        else:
            jacobian = jax.jacobian(transform)(PHI[name])
            expected = [np.tensordot(d, jacobian, axes=d.ndim) for d in differences[name]]
            np.testing.assert_allclose(pulled[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_one_transform_serves_a_whole_subtree():
    space = Space.of(constraints.positive, "icll")
    network = {"layers": [jnp.ones((2, 3)), jnp.zeros(3)]}
    theta = space.constrain(network)
    assert jax.tree.structure(theta) == jax.tree.structure(network)
    assert all(bool(jnp.all(leaf > 0)) for leaf in jax.tree.leaves(theta))


def test_one_name_applies_where_it_fits():
    space = Space.of(SUPPORTS, "probit")
    assert space.transforms["mix"].name == "probit"
    assert space.transforms["weight"].name == "probit"
    assert space.transforms["rate"].name == "softplus"
    assert space.transforms["loc"].name == "identity"


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ("sofplus", "Unknown transform 'sofplus'. Known names: .*softplus.*icll"),
        ({"rat": "icll"}, r"names \['rat'\], but the variables are"),
        ({"mix": "icll"}, "what fits: sigmoid"),
        ({"mix": "nonsense"}, "Unknown transform 'nonsense'"),
    ],
    ids=["unknown", "variable", "family", "unknown in a dict"],
)
def test_transforms_that_do_not_exist_or_fit_are_refused(transforms, message):
    with pytest.raises(ValueError, match=message):
        Space.of(SUPPORTS, transforms)


def test_one_name_that_fits_nothing_is_refused():
    with pytest.raises(ValueError, match="what fits"):
        Space.of({"rate": constraints.positive}, "sigmoid")


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"rate": 0.0}, "'rate' starts at 0.0, which is not strictly inside"),
        ({"rate": -1.0}, "'rate' starts at -1.0"),
        ({"rate": np.nan}, "not finite"),
        ({"speed": 1.0}, "another structure"),
    ],
    ids=["edge", "outside", "nan", "structure"],
)
def test_a_start_outside_the_support_is_refused(start, message):
    kernel = ib.sgld(ib.Posterior({"rate": dist.Gamma(1.0, 1.0)}))
    with pytest.raises(ValueError, match=message):
        kernel.init(start)
    with pytest.raises(ValueError, match=message):
        ib.sample(kernel, 0.1, 10, init=start)


def test_noise_of_a_symmetric_matrix_is_one_for_both_halves():
    space = Space.of({"cov": constraints.positive_definite})
    phi = {"cov": jnp.array([0.3, -0.4, 0.8, 0.1, 0.5, -0.2])}
    variance = jnp.array([[1.0, 2.0, 0.5], [2.0, 3.0, 1.5], [0.5, 1.5, 0.7]])
    point = space.evaluation_point(phi)

    def drift(gradient):
        return space.pull_back(phi, point, {"cov": gradient})["cov"]

    expected = jnp.zeros(6)
    for row in range(3):
        for column in range(row + 1):
            unit = jnp.zeros((3, 3)).at[row, column].set(1.0).at[column, row].set(1.0)
            expected += jnp.square(drift(unit) - drift(jnp.zeros((3, 3)))) * variance[row, column]
    pulled = space.pull_back_variance(phi, {"cov": variance})["cov"]
    np.testing.assert_allclose(pulled, expected, rtol=1e-4)


def test_a_space_is_made_again_of_its_own_transforms():
    """As the driver makes kernels: supports without a transform of ours too."""
    others = {
        "r": constraints.corr_matrix, "chol": constraints.corr_cholesky, "ball": constraints.l1_ball,
        "angle": constraints.circular, "rows": constraints.independent(constraints.corr_cholesky, 1),
    }  # fmt: skip
    space = Space.of(SUPPORTS | others)
    again = Space.of(SUPPORTS | others, space.transforms)
    assert again.transforms == space.transforms
    for name, support in (SUPPORTS | others).items():
        assert Space.of(support, space.transforms[name]).transforms == space.transforms[name]


def test_a_correlation_matrix_is_sampled():
    kernel = ib.sgld(ib.Posterior({"r": dist.LKJ(3, 2.0)}))
    draws = ib.sample(kernel, 0.1, 50, init={"r": np.eye(3)}, progress=False).theta["r"]
    np.testing.assert_allclose(np.diagonal(draws, axis1=-2, axis2=-1), 1, rtol=1e-6)
    assert np.linalg.eigvalsh(draws).min() > 0
