"""Choosing and placing transforms: `onto`, `default`, `available`, and what they say when nothing fits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

from inbounds import transforms
from inbounds.transforms import available, default, onto


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (constraints.positive, transforms.Softplus()),
        (constraints.nonnegative, transforms.Softplus()),
        (constraints.softplus_positive, transforms.Softplus()),
        (constraints.greater_than(2.0), transforms.Softplus(lower=2.0)),
        (constraints.greater_than_eq(2), transforms.Softplus(lower=2.0)),
        (constraints.less_than(-1.0), transforms.Softplus(upper=-1.0)),
        (constraints.less_than_eq(-1.0), transforms.Softplus(upper=-1.0)),
        (constraints.unit_interval, transforms.Sigmoid()),
        (constraints.interval(0, 1), transforms.Sigmoid()),
        (constraints.open_interval(-1.0, 1.0), transforms.Sigmoid(-1, 1)),
        (constraints.circular, transforms.Sigmoid(-np.pi, np.pi)),
        (constraints.real, transforms.Identity()),
        (constraints.real_vector, transforms.Identity()),
        (constraints.real_matrix, transforms.Identity()),
        (constraints.independent(constraints.positive, 2), transforms.Softplus()),
        (constraints.simplex, transforms.LogRatios()),
        (constraints.ordered_vector, transforms.Ordered()),
        (constraints.positive_ordered_vector, transforms.PositiveOrdered()),
        (constraints.lower_cholesky, transforms.LowerCholesky()),
        (constraints.positive_definite, transforms.PositiveDefinite()),
    ],
)
def test_default_for_each_support(constraint, expected):
    assert default(constraint) == expected


@pytest.mark.parametrize("constraint", [constraints.corr_cholesky, constraints.corr_matrix, constraints.l1_ball])
def test_any_registered_bijection_is_wrapped(constraint):
    transform = default(constraint)
    assert isinstance(transform, transforms.Bijection)
    assert available(constraint) == (transform.name,)
    assert onto(constraint, transform) == onto(constraint, transform.name) == transform
    with pytest.raises(ValueError, match=f"what fits: {transform.name}"):
        onto(constraint, default(constraints.zero_sum(1)))


def test_transform_is_named_by_string_class_or_instance():
    support = constraints.interval(-2.0, 3.0)
    expected = transforms.Arctan(-2.0, 3.0)
    for given in ("arctan", "Arctan", transforms.Arctan, transforms.Arctan(), expected):
        assert onto(support, given) == expected
    assert onto(support, expected) is expected
    assert onto(constraints.simplex, "stick_breaking") == transforms.StickBreaking()
    assert onto(constraints.simplex, "softmax") == transforms.Softmax() != default(constraints.simplex)
    assert onto(constraints.real, "identity") == transforms.Identity()


def test_an_instance_keeps_its_scale_on_another_support():
    placed = onto(constraints.greater_than(1.0), transforms.Softplus(scale=0.1))
    assert (placed.lower, placed.scale) == (1.0, 0.1)
    assert onto(constraints.positive, transforms.Softplus(scale=0.1), scale=2.0).scale == 2.0


def test_available_names_can_all_be_placed():
    supports = (constraints.positive, constraints.interval(-1, 1), constraints.real, constraints.simplex)
    for support in supports:
        names = available(support)
        assert default(support).name == names[0]
        for name in names:
            assert onto(support, name).name == name
    assert set(available(constraints.positive)) == {"softplus", "icll", "integrated_probit", "exp"}
    assert set(available(constraints.unit_interval)) == {"sigmoid", "probit", "arctan", "softsign"}


def test_misfit_says_what_was_got_what_fits_and_all_names():
    with pytest.raises(ValueError, match=r"'sigmoid' does not map onto .*half line; what fits: softplus, icll.*arctan"):
        onto(constraints.positive, "sigmoid")
    with pytest.raises(ValueError, match=r"no transform 'sofplus'; the names are identity, softplus"):
        onto(constraints.positive, "sofplus")
    with pytest.raises(ValueError, match="does not map onto CorrCholesky"):
        onto(constraints.corr_cholesky, "softplus")


def test_unusable_constraints_are_refused_with_a_reason():
    for discrete in (constraints.nonnegative_integer, constraints.boolean, constraints.integer_interval(0, 3)):
        with pytest.raises(ValueError, match="discrete"):
            default(discrete)
    with pytest.raises(ValueError, match="no bijection onto Sphere"):
        default(constraints.sphere)
    with pytest.raises(ValueError, match="depends on other variables"):
        default(constraints.dependent(is_discrete=False, event_dim=0))
    with pytest.raises(ValueError, match="expected a constraint"):
        default("positive")
    with pytest.raises(ValueError, match="lower < upper"):
        onto(constraints.interval(1.0, 1.0), "sigmoid")


@pytest.mark.parametrize("name", ["sigmoid", "probit", "arctan", "softsign"])
def test_arrays_of_bounds_broadcast_and_every_theta_is_inside(name):
    lower = np.array([0.0, -1.0, 1e6, -1e-3, 5.0], np.float32)
    upper = np.array([1.0, 1.0, 1e6 + 8, 0.0, 1e9], np.float32)
    transform = onto(constraints.interval(lower, upper), name)
    phi = jnp.asarray([[-1e30], [-1e4], [-3.0], [0.0], [2.0], [1e4], [1e30]], jnp.float32)

    def everything(phi):
        point = transform.evaluation_point(phi)
        return transform(phi), point, transform.pull_back(phi, point, 1 / (point - lower) - 1 / (upper - point))

    theta, point, drift = (np.asarray(value) for value in jax.jit(everything)(phi))
    assert theta.shape == (7, 5)
    assert np.all((theta > lower) & (theta < upper))
    assert np.all((point > lower) & (point < upper))
    assert np.isfinite(drift).all()
    assert transform.unconstrained_shape((5,)) == (5,)
    assert transform == onto(constraints.interval(lower.copy(), upper.copy()), name)
    assert hash(transform) == hash(onto(constraints.interval(lower.copy(), upper.copy()), name))


@pytest.mark.parametrize("name", ["softplus", "icll", "integrated_probit", "exp"])
def test_arrays_of_ends_broadcast_on_half_lines(name):
    ends = np.array([0.0, -1.0, 1e6, -1e-3], np.float32)
    phi = jnp.asarray([[-1e30], [-1e4], [-3.0], [0.0], [2.0], [1e4], [1e30]], jnp.float32)
    for constraint, side in ((constraints.greater_than(ends), 1), (constraints.less_than(ends), -1)):
        transform = onto(constraint, name)
        for theta in jax.jit(lambda phi, t=transform: (t(phi), t.evaluation_point(phi)))(phi):
            assert np.all(side * np.asarray(theta) > side * ends)
            assert np.isfinite(theta).all()


def test_scale_stretches_the_boundary_layer_and_keeps_the_lipschitz_constant():
    phi = jnp.linspace(-2, 2, 9)
    stretched = onto(constraints.positive, "softplus", scale=0.1)
    np.testing.assert_allclose(stretched(phi), 0.1 * transforms.Softplus()(phi / 0.1), rtol=1e-6)
    assert stretched.lipschitz == 1.0
    np.testing.assert_allclose(
        onto(constraints.unit_interval, "sigmoid", scale=2.0)(phi), transforms.Sigmoid()(phi / 2), rtol=1e-6
    )


def test_log_gap_needs_the_end_to_be_finite():
    with pytest.raises(ValueError, match="no finite upper end"):
        transforms.Softplus().log_upper_gap(0.0)
    with pytest.raises(ValueError, match="no finite lower end"):
        transforms.Softplus(upper=1.0).log_gap(0.0)
    with pytest.raises(ValueError, match="half line"):
        transforms.Softplus(0.0, 1.0)
