"""What is predicted of a kernel on a Gaussian is what the kernel does."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.kernels.prediction import UnstableError, predict

# Two problems side by side: three correlated coordinates whose noise is as correlated, and two whose noise is skewed against them.
FIRST = np.array([[4.0, -2.4, 1.0], [-2.4, 3.0, -1.5], [1.0, -1.5, 2.0]])
SECOND = np.array([[3.0, 1.8], [1.8, 2.0]])
HESSIAN, NOISE = np.zeros((5, 5)), np.zeros((5, 5))
HESSIAN[:3, :3], HESSIAN[3:, 3:] = FIRST, SECOND
NOISE[:3, :3], NOISE[3:, 3:] = 2 * FIRST, [[4.0, -3.0], [-3.0, 6.0]]
SCALE = np.array([0.5, 1.0, 0.7, 1.0, 0.4], np.float32)
ROOT = np.linalg.cholesky(NOISE).T.astype(np.float32)

POSTERIOR = ib.Posterior(
    supports={"x": constraints.real_vector},
    gradient=lambda theta, z: {"x": z[0] - jnp.asarray(HESSIAN, z.dtype) @ theta["x"]},
    data=ib.data.Generated(lambda key: jax.random.normal(key, (5,)) @ ROOT),
)
CORRECTED = {"noise_correction": {"x": np.diag(NOISE).astype(np.float32)}}
# Heavy thermostats hardly fluctuate, as the prediction assumes.
KERNELS = {
    "sgld": (ib.sgld, {}),
    "sgld, corrected": (ib.sgld, CORRECTED),
    "leimkuhler_matthews": (ib.leimkuhler_matthews, {"temperature": 0.6}),
    "leimkuhler_matthews, corrected": (ib.leimkuhler_matthews, CORRECTED),
    "baoab": (ib.baoab, {"friction": 2.0}),
    "baoab, corrected": (ib.baoab, CORRECTED | {"friction": 3.0, "temperature": 1.5}),
    "sgnht": (ib.sgnht, {"friction": 2.0, "temperature": 1.5, "thermal_mass": 5.0}),
}
STEP = 0.06


def covariance_of(kernel, chains=2_000, burn_in=200, steps=300):
    """Second moments of phi under the kernel itself, over many chains and steps (its mean is 0)."""

    def step(carry, number):
        states, total = carry
        eta, z = jax.random.normal(jax.random.fold_in(jax.random.key(3), number), (2, chains, 5))

        def update(state, eta, z):
            return kernel.update({"x": eta}, state, (z @ ROOT)[None], STEP, report=False)[0]

        states = jax.vmap(update)(states, eta, z)
        x = kernel.proxy(states)["x"]
        return (states, total + (number >= burn_in) * x.T @ x / (chains * steps)), None

    @jax.jit
    def run():
        start = jax.vmap(kernel.init)({"x": jnp.zeros((chains, 5))})
        return jax.lax.scan(step, (start, jnp.zeros((5, 5))), jnp.arange(burn_in + steps))[0][1]

    return np.asarray(run(), float)


@pytest.mark.parametrize(
    ("name", "scale"),
    [(name, SCALE) for name in KERNELS] + [(name, None) for name in KERNELS if "corrected" in name],
    ids=lambda value: {str: value}.get(type(value), "plain" if value is None else "preconditioned"),
)
def test_the_prediction_is_what_the_kernel_does(name, scale):
    factory, options = KERNELS[name]
    kernel = factory(POSTERIOR, preconditioner=None if scale is None else {"x": scale}, **options)
    predicted = predict(kernel, STEP, HESSIAN, NOISE, scale)
    got = covariance_of(kernel)
    sd = np.sqrt(np.diag(predicted.covariance))
    np.testing.assert_allclose(got / np.outer(sd, sd), predicted.covariance / np.outer(sd, sd), atol=0.025)
    exact = options.get("temperature", 1.0) * np.linalg.inv(HESSIAN)
    np.testing.assert_allclose(predicted.sd_ratio, sd / np.sqrt(np.diag(exact)))


def test_without_noise_and_with_short_steps_every_kernel_is_right():
    for factory in (ib.sgld, ib.leimkuhler_matthews, ib.baoab, ib.sgnht):
        predicted = predict(factory(POSTERIOR), 1e-5, HESSIAN, 0 * NOISE)
        assert predicted.worst < 1e-4, factory.__name__
        loud = predict(factory(POSTERIOR), 1e-5, HESSIAN, 1_000 * NOISE)
        assert loud.worst > 20 * predicted.worst, factory.__name__


def test_the_errors_have_their_signs_and_the_slowest_direction_its_time():
    """One dimension, where Euler's law and its autocorrelations are known in closed form."""
    curvature, noise, step = 4.0, 30.0, 0.02
    predicted = predict(ib.sgld(POSTERIOR), step, [[curvature]], [[noise]])
    variance = (2 * step + step**2 * noise) / (1 - (1 - step * curvature) ** 2)
    assert predicted.worst_sd_error == pytest.approx(np.sqrt(variance * curvature) - 1)
    assert predicted.autocorrelation_time == pytest.approx(2 / (step * curvature) - 1)
    narrow = predict(ib.sgld(POSTERIOR, **CORRECTED), step, HESSIAN, 10 * NOISE)
    assert narrow.worst_sd_error < -0.02  # what is subtracted knows nothing of correlations
    flat = predict(ib.sgld(POSTERIOR), step, HESSIAN[:3, :3], 10 * np.eye(3))
    exact = np.linalg.inv(HESSIAN[:3, :3])
    pairs = np.argwhere(np.abs(exact) > 0)
    assert flat.worst_correlation_error * exact[tuple(pairs[1])] < 0  # white noise makes rounder


def test_two_coordinates_of_one_time_are_slowest_along_their_ridge():
    hessian = np.linalg.inv([[1.0, 0.99], [0.99, 1.0]])
    predicted = predict(ib.sgld(POSTERIOR), 1e-3, hessian, 0 * hessian)
    assert predicted.autocorrelation_time == pytest.approx(2 * 1.99 / 1e-3 - 1)


def test_what_has_no_stationary_law_is_refused():
    for factory, step in ((ib.sgld, 0.6), (ib.leimkuhler_matthews, 0.6), (ib.baoab, 1.0), (ib.sgnht, 1.0)):
        with pytest.raises(UnstableError, match="too long"):
            predict(factory(POSTERIOR), step, HESSIAN, NOISE)
    with pytest.raises(UnstableError, match="runs away"):
        predict(ib.sgnht(POSTERIOR), 0.1, HESSIAN, 100 * NOISE)
    with pytest.raises(ValueError, match="not positive definite"):
        predict(ib.sgld(POSTERIOR), 0.1, -HESSIAN, NOISE)
    with pytest.raises(ValueError, match="temperature 0"):
        predict(ib.sgld(POSTERIOR, temperature=0.0), 0.1, HESSIAN, NOISE)
    with pytest.raises(ValueError, match="sgrld"):
        predict(ib.baselines.sgrld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)})), 0.1, HESSIAN, NOISE)
