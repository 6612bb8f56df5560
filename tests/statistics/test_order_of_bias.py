"""The order of the bias, by fitted slope. Exact laws by quadrature; the kernels are tied to them step by step and in law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.diagnostics.weak_error import fitted_slope, stationary
from inbounds.paper.targets import TARGETS
from tests.models_for_tests import noisy
from tests.statistics.test_law import FOUR, chains

SCHEMES = {
    "euler": (dict(scheme="euler", noise_sd=1.0), (0.9, 1.15)),
    "leimkuhler_matthews": (dict(scheme="leimkuhler_matthews"), (1.8, 2.5)),
    "noise-corrected": (dict(scheme="leimkuhler_matthews", noise_sd=1.0, noise_correction=True), (1.8, 2.2)),
}


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_bias_has_the_order_that_theory_says(name, scheme):
    settings, (low, high) = SCHEMES[scheme]
    target = TARGETS[name]
    sizes = [0.1, 0.2, 0.4]
    laws = [stationary(target, ib.transforms.default(target.support), size, **settings).bias() for size in sizes]
    assert low < fitted_slope(sizes, [law.wasserstein1 for law in laws]) < high
    assert low < fitted_slope(sizes, [law.second_moment for law in laws]) < high


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("corrected", [False, True], ids=["plain", "noise-corrected"])
def test_kernels_make_the_step_that_the_quadrature_integrates(name, corrected, float64):
    """On a grid of (y, eta, delta): the kernel's own update against the formula, in double precision."""
    target, eps, sd = TARGETS[name], 0.3, 1.0
    posterior = ib.Posterior(
        supports={"theta": target.support},
        gradient=lambda theta, z: {"theta": target.score(theta["theta"]) + sd * z},
        data=ib.data.Generated(lambda key: jax.random.normal(key)),
    )
    kernel = ib.leimkuhler_matthews(posterior, noise_correction=sd**2 if corrected else False)
    transform = kernel.space.transforms["theta"]
    y, eta, delta = (jnp.asarray(a.ravel()) for a in np.meshgrid(np.linspace(-9, 9, 19), [-2.0, 0.3, 1.7], [-1.0, 0.6]))
    phi = y + jnp.sqrt(eps / 2) * eta
    template = jax.vmap(kernel.init)({"theta": jnp.full(y.shape, 0.5)})
    state = template._replace(base={"theta": y}, kick={"theta": eta}, phi={"theta": phi})
    after, _ = jax.vmap(lambda s, z: kernel.update({"theta": jnp.zeros(())}, s, z, eps))(state, delta)
    theta = transform(phi)
    slope = transform.derivative(phi)
    drift = slope * target.score(theta) + transform.log_derivative_slope(phi)
    variance = jnp.square(sd * transform.derivative(y)) if corrected else 0.0
    expected = y + eps * (drift + slope * sd * delta) + jnp.sqrt(2 * eps - eps**2 * variance) * eta
    np.testing.assert_allclose(after.base["theta"], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["gamma-0.5-0.5", "half-normal"])
def test_the_simulated_bias_of_euler_has_order_one(name):
    """The same by simulation, where the bias is large enough to be seen through the Monte Carlo error."""
    target, sizes = TARGETS[name], [0.2, 0.4, 0.8]
    kernel = ib.sgld(noisy(target))
    errors = []
    for size in sizes:
        theta = chains(kernel, target, size, 20_000, thin=2).theta["theta"].astype(np.float64)
        errors.append(np.square(theta).mean() / target.second_moment - 1)
    assert 0.9 < fitted_slope(sizes, errors) < 1.25


def test_fresh_noise_would_be_worse_than_euler():
    """The trap of the scheme: with a fresh draw where eta belongs, the bias of E[theta^2] is +.33 against Euler's +.20."""
    target, eps = TARGETS["gamma-0.5-0.5"], 0.4
    kernel = ib.leimkuhler_matthews(noisy(target))
    theta = chains(kernel, target, eps, 20_000, thin=2).theta["theta"].astype(np.float64)
    assert np.square(theta).mean() / target.second_moment - 1 == pytest.approx(0.074, abs=0.02)
