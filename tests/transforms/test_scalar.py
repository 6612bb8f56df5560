"""Every coordinate-wise transform against 100-digit arithmetic, against autodiff, and at the edges of the floats."""

import functools
import math
import pickle

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.distributions import constraints

from inbounds import transforms
from inbounds.testing import check_transform
from tests.transforms import exact

NAMES = [*exact.POSITIVE, *exact.INTERVAL]
SUPPORTS = {
    "unit": lambda name: constraints.positive if name in exact.POSITIVE else constraints.unit_interval,
    "shifted": lambda name: constraints.greater_than(-3.0) if name in exact.POSITIVE else constraints.interval(-1, 1),
    "mirrored": lambda name: constraints.less_than(2.0) if name in exact.POSITIVE else constraints.interval(-7, -2),
}
PLACED = [(name, support) for name in exact.POSITIVE for support in SUPPORTS]
PLACED += [(name, support) for name in exact.INTERVAL for support in ("unit", "mirrored")]
EXTREME = np.array([s * m for m in (0, 1e-30, 1e-8, 1, 16, 40, 87, 89, 104, 1e4, 2e19, 1e30) for s in (-1, 1)])
SIZE = 512  # every array of points is padded to this, so that each transform is compiled once


def place(name, support="unit", scale=1.0):
    return transforms.onto(SUPPORTS[support](name), name, scale=scale)


def quantities(transform):
    """A function from phi to everything that a transform knows."""

    def evaluate(phi):
        theta, point = transform(phi), transform.evaluation_point(phi)
        ends = {"log_gap": transform.log_gap, "log_upper_gap": transform.log_upper_gap}
        if isinstance(transform, transforms.HalfLine):
            ends.pop("log_upper_gap" if transform.upper is None else "log_gap")
        return {
            "theta": theta,
            "derivative": transform.derivative(phi),
            "slope": transform.log_derivative_slope(phi),
            "log_derivative": transform.log_abs_det_jacobian(phi, theta),
            "evaluation_point": point,
            "drift": transform.pull_back(phi, point, jnp.ones_like(phi)),
            "round_trip": transform.inv(theta),
            **{name: gap(phi) for name, gap in ends.items()},
        }

    return evaluate


def gradients(transform):
    """Autodiff, and the drift of a density that goes like gap^-0.95 at every end."""

    def total(function):
        return jax.grad(lambda phi: jnp.sum(function(phi)))

    def log_prob(theta):
        gaps = [] if transform.lower is None else [theta - transform.lower]
        gaps += [] if transform.upper is None else [transform.upper - theta]
        return -0.95 * sum(jnp.log(gap) for gap in gaps)

    def evaluate(phi):
        return {
            "theta_gradient": total(transform)(phi),
            "log_det_gradient": total(lambda phi: transform.log_abs_det_jacobian(phi, transform(phi)))(phi),
            "second_derivative": total(transform.derivative)(phi),
            "singular_drift": pulled_back(transform, log_prob, phi),
        }

    return evaluate


@functools.cache
def compiled(name, support, x64=False):
    """All of it in one program."""
    transform = place(name, support)
    with jax.enable_x64(x64):
        return jax.jit(lambda phi: quantities(transform)(phi) | ({} if x64 else gradients(transform)(phi)))


def evaluate(name, support, phi):
    """Everything at phi, as NumPy arrays in the dtype of phi."""
    with jax.enable_x64(phi.dtype == np.float64):
        found = compiled(name, support, phi.dtype == np.float64)(jnp.asarray(np.resize(phi, SIZE)))
        return {key: np.asarray(value)[: phi.size] for key, value in found.items()}


def points(dtype):
    rng = np.random.default_rng(1)
    wide, middle = rng.uniform(-100, 100, 60), rng.uniform(-12, 12, 240)
    return np.concatenate([wide, middle, rng.normal(size=60), np.linspace(-5, 5, 41)]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_every_quantity_agrees_with_exact_arithmetic(name, dtype):
    tolerance = 1e-6 if dtype == np.float32 else 1e-13
    phi = points(dtype)
    found = evaluate(name, "unit", phi)
    references = zip(*(exact.quantities(name, p) for p in phi), strict=True)
    keys = ("theta", "derivative", "slope", "log_derivative", "log_gap", "log_upper_gap")
    for key, reference in zip(keys, references, strict=True):
        if key not in found:
            continue
        assert found[key].dtype == dtype
        compare(name, key, phi, found[key], reference, tolerance)


def compare(name, key, phi, found, reference, tolerance):
    """Relative agreement wherever the true value is a normal number of the dtype."""
    info = np.finfo(found.dtype)
    normal = np.array([float(info.tiny) < abs(value) < float(info.max) for value in reference])
    error = np.array([float(abs(mpmath.mpf(float(f)) - r)) for f, r in zip(found, reference, strict=True)])
    size = np.array([float(abs(value)) for value in reference])
    allowed = tolerance * size
    if key.startswith("log") or key == "slope":
        # A logarithm of a number with a relative error eps has the absolute error eps, also where it crosses 0. The
        # slope is added to terms of order 1, and crosses 0 at the centre of an interval.
        allowed += 2 * float(info.eps)
    if name == "icll" and key in ("slope", "log_derivative"):
        # exp(-x) of a rounded x = e^phi: no better than x ulps, while its size is below x e^-x.
        allowed += float(info.eps) * np.exp(np.clip(phi, 0, 6.5)) * size
    wrong = normal & ~(error <= allowed)
    worst = [(p, f, float(r)) for p, f, r, w in zip(phi, found, reference, wrong, strict=True) if w][:3]
    assert not wrong.any(), f"{name}: {key} at (phi, found, exact) {worst}"


@pytest.mark.parametrize("name", ["softplus", "icll", "integrated_probit", "sigmoid"])
def test_the_forms_that_accelerators_take_are_as_good(name, monkeypatch):
    phi = points(np.float32)
    found = evaluate(name, "unit", phi)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    transform = place(name)
    theta, slope = jax.jit(
        lambda p: (transform(p), transform.pull_back(p, transform.evaluation_point(p), jnp.ones_like(p)))
    )(phi)
    np.testing.assert_allclose(theta, found["theta"], rtol=2e-6, atol=1e-37)
    np.testing.assert_allclose(slope, found["drift"], rtol=4e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "support"), PLACED)
def test_every_quantity_is_finite_and_theta_inside_for_every_float(name, support):
    transform, found = place(name, support), evaluate(name, support, EXTREME.astype(np.float32))
    for key, value in found.items():
        assert value.dtype == np.float32, key
        if name == "exp" and key.endswith(
            "drift"
        ):  # e^phi times a gradient: where that overflows, hiding it would be wrong
            value = value[EXTREME < 60]
        assert np.isfinite(value).all(), key
    lower, upper = transform.lower, transform.upper
    for key in ("theta", "evaluation_point"):
        assert lower is None or np.all(found[key] > np.float32(lower)), key
        assert upper is None or np.all(found[key] < np.float32(upper)), key


@pytest.mark.parametrize(("name", "support"), PLACED)
def test_autodiff_equals_the_closed_forms(name, support):
    phi = np.append(np.linspace(-8, 8, 50), 0.0).astype(np.float32)
    found = evaluate(name, support, phi)
    slope, derivative = found["slope"], found["derivative"]
    # Where theta is clamped to its neighbour of the end, it is flat; f' is negligible there.
    np.testing.assert_allclose(found["theta_gradient"], derivative, rtol=1e-6, atol=1e-6)
    smooth = (phi != 0) | (name != "softsign")
    np.testing.assert_allclose(found["log_det_gradient"][smooth], slope[smooth], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found["second_derivative"][smooth], (slope * derivative)[smooth], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_transforms_are_what_transforms_must_be(name):
    check_transform(place(name, "mirrored"))


@pytest.mark.parametrize("name", NAMES)
def test_the_slope_can_be_differentiated_too(name):
    def curvature(phi):
        return jax.grad(lambda phi: jnp.sum(place(name).log_derivative_slope(phi)))(phi)

    phi = np.linspace(-6, 6, 48)  # not 0, where the slope of softsign jumps
    single = jax.jit(curvature)(phi.astype(np.float32))
    with jax.enable_x64(True):
        step = 1e-5
        slopes = [np.asarray(jax.jit(place(name).log_derivative_slope)(phi + d)) for d in (-step, step)]
    np.testing.assert_allclose(single, (slopes[1] - slopes[0]) / (2 * step), rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("name", NAMES)
def test_lipschitz_constant_is_the_supremum_of_the_derivative(name):
    for support in ("unit", "mirrored"):
        lipschitz = place(name, support).lipschitz
        steepest = np.max(np.abs(evaluate(name, support, np.linspace(-60, 60, 481, dtype=np.float32))["derivative"]))
        if math.isinf(lipschitz):
            assert steepest > 1e20
        else:
            np.testing.assert_allclose(steepest, lipschitz, rtol=1e-6)


@pytest.mark.parametrize(("name", "support"), PLACED)
def test_round_trip_loses_no_more_than_the_rounding_of_theta(name, support):
    check_round_trip(evaluate(name, support, PROXIES.astype(np.float32)), PROXIES.astype(np.float32), 2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_in_double_precision(name):
    check_round_trip(evaluate(name, "unit", PROXIES), PROXIES, 1e-14)


PROXIES = np.linspace(-12, 12, 400)


def check_round_trip(found, phi, tolerance):
    # One ulp of theta, as a step of phi: where it is large (the far end of an interval), nothing can be recovered.
    step = np.spacing(np.abs(found["theta"])) / np.maximum(np.abs(found["derivative"]), 1e-37)
    kept = step < 0.05
    error, allowed = np.abs(found["round_trip"] - phi), 4 * step + tolerance * (1 + np.abs(phi))
    assert np.all(error[kept] <= allowed[kept]), phi[kept][np.argmax((error / allowed)[kept])]
    assert np.mean(kept) > 0.2


@pytest.mark.parametrize("name", NAMES)
def test_inverse_is_nan_outside_the_support_and_finite_at_its_ends(name):
    transform = place(name, "shifted")
    values = np.array([-5.0, transform.lower, transform.lower if transform.upper is None else transform.upper])
    below, *ends = np.asarray(jax.jit(transform._inverse)(values.astype(np.float32)))
    assert np.isnan(below)
    assert np.isfinite(ends).all()


FLOATS = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=2, max_size=64)


@pytest.mark.parametrize(("name", "curvature"), [("sigmoid", -0.5), ("probit", -1.0), ("arctan", -2.0)])
def test_the_slope_has_a_slope_at_the_centre(name, curvature):
    transform = place(name)
    assert float(jax.grad(transform.log_derivative_slope)(0.0)) == pytest.approx(curvature, rel=1e-6)
    drift = jax.grad(lambda phi: transform.pull_back(phi, transform.evaluation_point(phi), jnp.zeros(())))
    assert float(drift(0.0)) == pytest.approx(curvature, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_of_a_transform_meet(name):
    joins = np.float32([-1, 0, 1, math.log(0.25), math.log(13.0)])  # where one form of a transform gives way to another
    below, above = np.nextafter(joins, np.float32(-np.inf)), np.nextafter(joins, np.float32(np.inf))
    phi = np.stack([below - np.float32(1e-22), below, joins, above, above + np.float32(1e-22)], axis=1).ravel()
    theta = evaluate(name, "unit", phi)["theta"].reshape(len(joins), -1)
    np.testing.assert_allclose(theta, np.repeat(theta[:, [2]], 5, axis=1), rtol=5e-7)


@settings(max_examples=40)
@given(phi=FLOATS, width=st.sampled_from([1.0, 1e-10, 1e-28]), case=st.sampled_from(PLACED))
def test_theta_is_monotone_and_strictly_inside(phi, width, case):
    transform = place(*case)
    phi = np.sort(np.array(phi, np.float32) * np.float32(width))
    theta = evaluate(*case, phi)["theta"].astype(float)
    # Neighbouring floats may swap by the rounding of one evaluation, never by more.
    slack = 4e-7 * np.abs(theta[1:])
    assert np.all(transform.sign * np.diff(theta) >= -slack)
    assert transform.lower is None or np.all(theta > transform.lower)
    assert transform.upper is None or np.all(theta < transform.upper)


@settings(max_examples=40)
@given(phi=st.floats(-6, 6, width=32), name=st.sampled_from(NAMES))
def test_round_trip_of_any_number(phi, name):
    found = evaluate(name, "unit", np.array([phi], np.float32))
    allowed = 1e-5 * (1 + abs(phi)) + 4e-7 * found["theta"] / found["derivative"]
    assert abs(found["round_trip"] - phi) <= allowed


# -- the pull-back ------------------------------------------------------------------------------------------------

EDGES = np.concatenate([np.linspace(-1e4, 100, 60), np.linspace(-110, 100, 150), np.linspace(-12, 12, 97)])


def exact_drift(name, p, a, b):
    """Of a gamma(a, scale b) on (0, inf), of a beta(a, b) on (0, 1)."""
    p = mpmath.mpf(float(p))
    if name in exact.POSITIVE:
        value, derivative, slope, _ = (f(p) for f in exact.POSITIVE[name])
        return (a - 1) * derivative / value - derivative / b + slope
    tail, derivative, slope = exact.INTERVAL[name]
    return (a - 1) * derivative(p) / tail(-p) - (b - 1) * derivative(p) / tail(p) + slope(p)


def check_drift(phi, found, reference):
    assert np.isfinite(found).all()
    error = np.abs(np.asarray(found, float) - reference) / np.maximum(1, np.abs(reference))
    worst = error.argmax()
    assert error[worst] < 1e-4, (phi[worst], found[worst], reference[worst])


def pulled_back(transform, log_prob, phi):
    """What a user writes: the density in theta, differentiated by JAX at the evaluation point."""
    point = transform.evaluation_point(phi)
    return transform.pull_back(phi, point, jax.vmap(jax.grad(log_prob))(point))


@pytest.mark.parametrize("name", exact.POSITIVE)
def test_naive_gamma_score_is_pulled_back_exactly_at_every_phi(name):
    shape, scale = 0.05, 2.0
    phi = EDGES.astype(np.float32)
    phi = phi[phi < 60] if name == "exp" else phi
    reference = np.array([float(exact_drift(name, p, shape, scale)) for p in phi])
    for log_prob in (dist.Gamma(shape, 1 / scale).log_prob, lambda x: (shape - 1) * jnp.log(x) - x / scale):
        found = jax.jit(lambda phi, f=log_prob: pulled_back(place(name), f, phi))(phi)
        check_drift(phi, found, reference)


@pytest.mark.parametrize("name", exact.INTERVAL)
def test_naive_beta_score_is_pulled_back_exactly_at_every_phi(name):
    a, b = 0.05, 0.3
    phi = EDGES.astype(np.float32)
    reference = np.array([float(exact_drift(name, p, a, b)) for p in phi])
    cases = {
        "unit": lambda x: (a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x),
        "shifted": lambda w: (a - 1) * jnp.log(w / 2 + 0.5) + (b - 1) * jnp.log(0.5 - w / 2),
    }
    for support, log_prob in cases.items():
        found = jax.jit(lambda phi, f=log_prob, s=support: pulled_back(place(name, s), f, phi))(phi)
        check_drift(phi, found, reference)


@pytest.mark.parametrize("name", NAMES)
def test_pull_back_is_the_gradient_of_the_proxy_density(name):
    with jax.enable_x64(True):
        transform = place(name, "mirrored", np.array([0.3, 1.0, 2.0]))

        def log_theta_density(theta):
            return jnp.sum(-0.3 * theta**2 + jnp.sin(theta))

        def log_phi_density(phi):
            return log_theta_density(transform(phi)) + jnp.sum(transform.log_abs_det_jacobian(phi, transform(phi)))

        def both(phi):
            point = transform.evaluation_point(phi)
            drift = transform.pull_back(phi, point, jax.grad(log_theta_density)(point))
            return drift, jax.grad(log_phi_density)(phi)

        drift, gradient = jax.jit(both)(jnp.asarray(np.linspace(-3, 3, 33).reshape(11, 3) + 0.01))
        np.testing.assert_allclose(drift, gradient, rtol=1e-10, atol=1e-10)


# -- being a NumPyro transform, a pytree, a static argument ---------------------------------------------------------


@pytest.mark.parametrize(("name", "support"), PLACED)
def test_transform_is_a_value(name, support):
    transform, twin = place(name, support), place(name, support)
    other = place(name, support, scale=2.0)
    assert transform == twin
    assert transform != other
    assert hash(transform) == hash(twin)
    assert pickle.loads(pickle.dumps(transform)) == transform
    leaves, structure = jax.tree.flatten(transform)
    assert jax.tree.unflatten(structure, leaves) == transform
    assert transform.inv.inv is transform
    assert transform.name == name


def test_transform_can_be_a_static_or_a_traced_argument_of_jit():
    bounds = np.array([0.0, 1.0], np.float32), np.array([2.0, 5.0], np.float32)
    for transform in (transforms.Softplus(), transforms.Sigmoid(*bounds), transforms.Probit(-1, 1)):
        phi = jnp.array([0.3, -0.7])
        static = jax.jit(lambda t, phi: t(phi), static_argnums=0)(transform, phi)
        traced = jax.jit(lambda t, phi: t(phi))(transform, phi)
        np.testing.assert_allclose(static, transform(phi), rtol=1e-6)
        np.testing.assert_allclose(traced, transform(phi), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_transformed_distribution_integrates_to_one(name):
    transform = place(name, "mirrored")
    law = dist.TransformedDistribution(dist.Normal(0.2, 0.7), transform)
    edges, log_density = jax.jit(lambda phi: (transform(phi), law.log_prob(transform(phi))))(jnp.linspace(-4, 4, 4001))
    density = np.exp(log_density)
    mass = np.sum(0.5 * (density[1:] + density[:-1]) * np.abs(np.diff(edges)))
    np.testing.assert_allclose(mass, 1.0, rtol=3e-3)
    assert law.support == transform.codomain


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_are_kept_under_strict_promotion(name):
    for x64 in (False, True):
        with jax.enable_x64(x64), jax.numpy_dtype_promotion("strict"):
            for dtype in (jnp.float32, jnp.float64) if x64 else (jnp.float32, jnp.bfloat16):
                transform = transforms.onto(SUPPORTS["mirrored"](name), name, scale=np.array([0.5, 2.0]))
                phi = jnp.array([-0.5, 0.5], dtype)
                shapes = jax.eval_shape(quantities(transform), phi)
                for key, shape in shapes.items():
                    assert shape.dtype == dtype, key
                    assert shape.shape == (2,), key


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_curvature_of_softplus_far_below_zero(platform, dtype, monkeypatch):
    """What is written without selects has to be differentiated without the square of its smallest number."""
    monkeypatch.setattr("inbounds.engine.platform.default_platform", lambda: platform)
    with jax.enable_x64():
        p = jnp.asarray([-80.0, -60.0, -44.0, -1.0, 0.0, 1.0, 60.0], dtype)
        softplus = transforms.Softplus()
        curvature = jax.vmap(jax.grad(jax.grad(lambda p: softplus.log_abs_det_jacobian(p, softplus(p)))))(p)
        exact = -1 / (2 + np.exp(np.asarray(p, float)) + np.exp(-np.asarray(p, float)))
        np.testing.assert_allclose(curvature, exact, rtol=2e-6, atol=1e-30)
