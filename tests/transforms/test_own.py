"""Transforms of users: subclasses of ours, their own, and NumPyro's wrapped, everywhere where ours are taken."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.distributions import transforms as maps
from scipy import stats

import inbounds as ib
from inbounds.space import Space
from inbounds.testing import check_transform
from inbounds.transforms import Softplus, Transform, from_numpyro, onto

# Short on purpose: the law is looked at by quantiles, with errors of their own.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


class Gentle(Softplus):
    """Softplus, with a parameter of its own."""

    def __init__(self, lower=None, upper=None, scale=1.0, strength=1.0):
        super().__init__(lower, upper, scale)
        self.strength = strength


class Square(Transform):
    """(phi + sqrt(phi^2 + 4 c)) / 2 onto the positive numbers: the least that a transform has to say."""

    codomain = constraints.positive

    def __init__(self, width=1.0):
        self.width = width

    def __call__(self, phi):
        return jnp.where(phi > 0, phi + jnp.hypot(phi, 2 * self.width), self._small(phi)) / 2

    def _small(self, phi):
        return 4 * self.width**2 / (jnp.hypot(phi, 2 * self.width) - jnp.minimum(phi, 0.0))

    def _inverse(self, theta):
        return theta - self.width**2 / theta


DOUBLED = maps.ComposeTransform([maps.AffineTransform(0.0, 2.0), maps.SoftplusTransform()])
MINE = {"subclass": Gentle(strength=2.0), "own": Square(0.7), "NumPyro's": from_numpyro(DOUBLED)}


@pytest.mark.parametrize("name", MINE)
def test_any_transform_whose_codomain_fits_is_taken_as_it_is(name):
    transform = MINE[name]
    for support in (constraints.positive, constraints.nonnegative, constraints.independent(constraints.positive, 1)):
        assert onto(support, transform) is transform
    space = Space.of({"a": constraints.positive, "b": constraints.real, "c": constraints.interval(0, 1)}, transform)
    assert space.transforms["a"] is transform
    assert [space.transforms[key].name for key in "bc"] == ["identity", "sigmoid"]
    leaves, structure = jax.tree.flatten(transform)
    again = jax.tree.unflatten(structure, leaves)
    assert again == transform == pickle.loads(pickle.dumps(transform))
    assert hash(again) == hash(transform)


@pytest.mark.parametrize("name", MINE)
def test_they_are_what_transforms_must_be(name):
    """NumPyro's softplus, of twice phi, is below the least number at which a density is evaluated from -35 on."""
    check_transform(MINE[name], reach=30.0 if name == "NumPyro's" else 60.0)


def test_subclasses_of_ours_are_moved_onto_other_ends_with_all_that_they_have():
    placed = onto(constraints.greater_than(3.0), Gentle(strength=2.0, scale=0.5))
    assert isinstance(placed, Gentle)
    assert (placed.lower, placed.upper, placed.scale, placed.strength) == (3.0, None, 0.5, 2.0)
    assert onto(constraints.less_than(1.0), Gentle).upper == 1.0
    assert onto(constraints.positive, Gentle(), scale=2.0) == Gentle(scale=2.0)
    assert placed.name == "gentle"


def test_what_sets_two_transforms_of_a_class_apart_sets_their_kernels_apart():
    """No list of parameters has to be kept."""
    posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
    kernels = [ib.sgld(posterior, transforms=Square(width)) for width in (1.0, 2.0, 1.0)]
    assert kernels[0] == kernels[2] != kernels[1]
    runs = [ib.sample(kernel, 0.1, 20, init={"x": 1.0}, num_chains=2, progress=False).theta["x"] for kernel in kernels]
    np.testing.assert_array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0], runs[1])


@pytest.mark.parametrize(
    ("support", "transform", "message"),
    [
        (constraints.unit_interval, Square(), r"'square' does not map onto .* \(it maps onto .*; what fits: sigmoid"),
        (constraints.greater_than(1.0), Square(), "'square' does not map onto"),
        (constraints.simplex, Square, "'square' does not map onto"),
        (constraints.positive, maps.ExpTransform(), r"give transforms.from_numpyro\("),
        (constraints.positive, type("Bare", (Square,), {"__init__": lambda self, a: None}), "'bare' has parameters"),
    ],
    ids=["another kind", "other ends", "a simplex", "not wrapped", "a class with parameters"],
)
def test_what_does_not_fit_is_refused_in_words(support, transform, message):
    with pytest.raises(ValueError, match=message):
        onto(support, transform)


def test_from_numpyro_says_what_it_cannot_wrap():
    with pytest.raises(ValueError, match="phi must be free to be any number"):
        from_numpyro(maps.PowerTransform(2.0))
    with pytest.raises(ValueError, match="takes a transform of numpyro"):
        from_numpyro("exp")
    assert from_numpyro(Softplus()) == Softplus()


def test_a_wrapped_transform_stays_inside_and_agrees_with_our_closed_forms():
    phi = jnp.asarray([-1e4, -200.0, -30.0, -3.0, 0.0, 2.0, 50.0, 1e4], jnp.float32)
    pairs = [
        (from_numpyro(maps.SoftplusTransform()), Softplus()),
        (from_numpyro(maps.SigmoidTransform()), ib.transforms.Sigmoid()),
    ]
    for found, expected in pairs:
        inside = found.codomain
        assert np.all(np.asarray(inside(found(phi)))), found
        assert np.all(np.asarray(inside(found.evaluation_point(phi)))), found
        near = phi[3:6]
        np.testing.assert_allclose(found.derivative(near), expected.derivative(near), rtol=1e-5)
        np.testing.assert_allclose(found.log_derivative_slope(near), expected.log_derivative_slope(near), atol=1e-6)
        np.testing.assert_allclose(found.log_gap(near), expected.log_gap(near), rtol=1e-4, atol=1e-6)
        drift = found.pull_back(phi, found.evaluation_point(phi), jnp.ones_like(phi))
        assert np.isfinite(drift).all()


@pytest.mark.parametrize("name", MINE)
def test_a_numpyro_model_has_the_right_law_through_them(name):
    """Gamma(3, 2), with noise correction left out: a step size at which the bias is small against the errors."""

    def model():
        numpyro.sample("x", dist.Gamma(3.0, 2.0))

    kernel = ib.leimkuhler_matthews(ib.from_numpyro(model), transforms={"x": MINE[name]})
    x = ib.sample(kernel, 0.1, 1_500, burn_in=200, num_chains=64, progress=False).theta["x"].astype(np.float64)
    for level in (0.1, 0.5, 0.9):
        below = (x < stats.gamma(3.0, scale=0.5).ppf(level)).mean(axis=1)
        assert abs(below.mean() - level) < 4.5 * below.std(ddof=1) / 8 + 0.004, level


def test_noise_correction_takes_their_slopes():
    """Against the closed forms of the same map: the chain is the same."""
    rows = np.random.default_rng(0).exponential(size=200).astype(np.float32)
    posterior = ib.Posterior(
        {"rate": dist.Gamma(2.0, 1.0)},
        lambda theta, x: jnp.log(theta["rate"]) - theta["rate"] * x,
        rows,
    )
    runs = [
        ib.sample(
            ib.leimkuhler_matthews(posterior, transforms=transform, noise_correction=True),
            1e-3, 50, batch_size=20, init={"rate": 1.0}, progress=False,
        ).theta["rate"]
        for transform in (from_numpyro(maps.SoftplusTransform()), Softplus())
    ]  # fmt: skip
    np.testing.assert_allclose(*runs, rtol=1e-3)
