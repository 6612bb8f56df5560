"""The integral over a group's effects, against closed forms and against quadrature on a fine grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from inbounds.hierarchies.quadrature import center_of, expectations, log_integral
from inbounds.precision import in_double

GROUPS = 4


def gaussian(effects):
    """A joint density of standard effects and Gaussian rows, with the closed form of its integral."""
    generator = np.random.default_rng(effects)
    design = generator.normal(size=(GROUPS, 6, effects))
    y = generator.normal(size=(GROUPS, 6))

    def joint(scale, z):
        residuals = y - scale * jnp.einsum("gri,gi->gr", design, z)
        constant = -(6 + effects) / 2 * np.log(2 * np.pi)
        return constant - jnp.sum(residuals**2, axis=1) / 2 - jnp.sum(z**2, axis=1) / 2

    def exact(scale):
        covariances = np.eye(6) + scale**2 * np.einsum("gri,gsi->grs", design, design)
        return np.array(
            [stats.multivariate_normal(np.zeros(6), c).logpdf(v) for c, v in zip(covariances, y, strict=True)]
        )

    return joint, exact


def integral(joint, parameter, effects, nodes):
    center = center_of(lambda z: joint(jax.lax.stop_gradient(parameter), z), jnp.zeros((GROUPS, effects)))
    return log_integral(lambda z: joint(parameter, z), center, nodes)


@pytest.mark.parametrize(("effects", "nodes"), [(1, 11), (2, 7), (2, 1)])
def test_gaussian_groups_are_integrated_exactly_with_their_derivatives(effects, nodes):
    joint, exact = gaussian(effects)
    with in_double():
        slope_of = jax.value_and_grad(lambda s: jnp.sum(integral(joint, s, effects, nodes)))
        look = jax.jit(lambda s: (*slope_of(s), jax.jvp(slope_of, (s,), (1.0,))[1][1]))
        for scale in (0.0, 0.7, 3.0):
            value, slope, curved = look(scale)
            steps = [exact(scale + h).sum() for h in (-1e-4, 0.0, 1e-4)]
            np.testing.assert_allclose(value, steps[1], rtol=1e-9)
            np.testing.assert_allclose(slope, (steps[2] - steps[0]) / 2e-4, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(curved, (steps[2] - 2 * steps[1] + steps[0]) / 1e-8, rtol=1e-3, atol=1e-3)


def logistic(ones):
    """Groups of 10 Bernoulli rows, of which some are ones, with a random intercept."""

    def joint(parameters, z):
        mean, log_scale = parameters
        logits = mean + jnp.exp(log_scale) * z[:, 0]
        rows = ones * jax.nn.log_sigmoid(logits) + (10 - ones) * jax.nn.log_sigmoid(-logits)
        return rows - z[:, 0] ** 2 / 2 - np.log(2 * np.pi) / 2

    return joint


def on_a_grid(joint, parameters):
    z = np.linspace(-12, 12, 4_001)
    values = jax.vmap(lambda x: joint(parameters, jnp.full((GROUPS, 1), x)))(jnp.asarray(z))
    return jax.nn.logsumexp(values, axis=0) + np.log(z[1] - z[0])


def test_logistic_groups_agree_with_a_fine_grid():
    joint = logistic(jnp.array([0.0, 3.0, 9.0, 10.0]))
    with in_double():
        ours = jax.jit(jax.value_and_grad(lambda p: jnp.sum(integral(joint, p, 1, 11))))
        fine = jax.jit(jax.value_and_grad(lambda p: jnp.sum(on_a_grid(joint, p))))
        for log_scale, tolerance in ((-20.0, 1e-9), (-1.0, 1e-7), (0.0, 2e-4), (1.0, 6e-3)):
            for got, want in zip(ours((-0.3, log_scale)), fine((-0.3, log_scale)), strict=True):
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_a_scale_that_underflows_leaves_single_precision_finite():
    joint = logistic(jnp.array([0.0, 3.0, 9.0, 10.0]))
    slope = jax.jit(jax.grad(lambda p: jnp.sum(integral(joint, p, 1, 11))))((jnp.float32(-0.3), jnp.float32(-120.0)))
    assert np.isfinite(slope).all()
    assert slope[1] == 0


def test_moments_of_effects_are_those_of_a_fine_grid():
    joint, parameters = logistic(jnp.array([0.0, 3.0, 9.0, 10.0])), (jnp.asarray(-0.3), jnp.asarray(0.3))

    @jax.jit
    def moments():
        center = center_of(lambda z: joint(parameters, z), jnp.zeros((GROUPS, 1)))
        return expectations(lambda z: joint(parameters, z), lambda z: z[:, 0], center, 11)

    mean, variance = moments()
    z = np.linspace(-12, 12, 4_001)
    weights = np.exp(jax.vmap(lambda x: joint(parameters, jnp.full((GROUPS, 1), x)))(jnp.asarray(z)))
    weights /= weights.sum(axis=0)
    np.testing.assert_allclose(mean, z @ weights, atol=1e-3)
    np.testing.assert_allclose(variance, z**2 @ weights - (z @ weights) ** 2, rtol=3e-3)


def test_a_mode_is_found_where_the_density_is_not_log_concave():
    """Between two of Student's t: there Newton's method alone would leave for the far ends."""

    def joint(z):
        return -2 * jnp.log1p((z[:, 0] - 30) ** 2 / 3) - jnp.log1p(z[:, 0] ** 2 / 3)

    starts = jnp.array([[-40.0], [0.0], [9.0], [29.0], [90.0]])
    center = jax.jit(lambda: center_of(joint, starts))()
    slope = jax.grad(lambda z: jnp.sum(joint(z)))(center.mode)
    assert np.all(np.abs(slope * center.factor[:, :, 0]) < 0.02)
