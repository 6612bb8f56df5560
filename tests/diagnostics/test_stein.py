"""The Stein discrepancy is right to the digit, unbiased under gradient noise, small for the target and large for others."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from experiments.targets import TARGETS
from inbounds.diagnostics import imq_stein_matrix, stein_discrepancy
from tests.models_for_tests import noisy

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


def test_the_stein_kernel_is_that_of_automatic_differentiation():
    generator = np.random.default_rng(0)
    points, scores, slopes = generator.normal(size=(3, 6, 2))
    squares = np.square(points[:, None] - points).sum(axis=-1)
    scale = np.median(squares[np.triu_indices(6, 1)])

    with jax.enable_x64(True):

        def k(x, y):
            return (scale + jnp.sum((x - y) ** 2)) ** -0.5

        def pair(x, y, sx, sy, ax, ay):
            mixed = jnp.diag(jax.jacobian(jax.grad(k, 0), 1)(x, y))
            return (
                sx @ sy * k(x, y)
                + sx @ (ay * jax.grad(k, 1)(x, y))
                + sy @ (ax * jax.grad(k, 0)(x, y))
                + (ax * ay) @ mixed
            )

        both = jax.vmap(jax.vmap(pair, (None, 0, None, 0, None, 0)), (0, None, 0, None, 0, None))
        exact = both(*(jnp.asarray(x) for x in (points, points, scores, scores, slopes, slopes)))
    np.testing.assert_allclose(imq_stein_matrix(points, scores, slopes), exact, rtol=1e-9, atol=1e-10)


def test_noise_on_the_scores_does_not_bias_the_estimate():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(1_500, 1))
    values = []
    for noise in (0.0, 3.0):
        matrix = imq_stein_matrix(x, -x + noise * generator.normal(size=x.shape))
        np.fill_diagonal(matrix, 0.0)
        values.append(matrix.sum() / (len(x) * (len(x) - 1)))
    assert abs(values[0]) < 2e-3
    assert abs(values[1]) < 1e-2


@pytest.fixture(scope="module")
def runs():
    """Draws at a small and at a large step, of a target with gradient noise."""
    target = next(target for name, target in TARGETS.items() if name.startswith("half"))
    kernel = ib.sgld(noisy(target))
    options = {"num_chains": 8, "progress": False}
    small = ib.sample(kernel, 0.02, 40_000, burn_in=1_000, thin=200, **options)
    large = ib.sample(kernel, 0.8, 4_000, burn_in=500, thin=10, **options)
    return small, large


@pytest.mark.parametrize("space", ["proxy", "theta"])
def test_a_biased_chain_has_the_larger_discrepancy_in_both_spaces(runs, space):
    small, large = (stein_discrepancy(draws, space) for draws in runs)
    assert small.value < 0.5 * large.value
    assert small.p_value > 0.01
    assert large.p_value < 0.01
    assert space in str(large)


@pytest.mark.parametrize("space", ["proxy", "theta"])
@pytest.mark.parametrize(
    ("kernel", "step_size"),
    [
        (ib.baselines.mirror(ib.Posterior({"x": dist.HalfNormal(1.0)})), 0.02),
        (ib.leimkuhler_matthews(ib.Posterior({"x": dist.Gamma(3.0, 1.0)}), temperature=0.5), 0.1),
    ],
    ids=["mirror", "temperature"],
)
def test_the_law_is_that_of_the_kernel_at_its_temperature_and_seen_through_a_proxy(kernel, step_size, space):
    draws = ib.sample(kernel, step_size, 10_000, burn_in=500, thin=100, num_chains=8, progress=False)
    found = stein_discrepancy(draws, space)
    assert found.value < 0.1
    assert found.p_value > 0.01


def test_one_draw_is_refused():
    draws = ib.sample(ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1.0)})), 0.1, 1, progress=False)
    with pytest.raises(ValueError, match="pairs of draws"):
        stein_discrepancy(draws)


def test_a_simplex_has_the_proxy_only():
    draws = ib.sample(ib.sgld(ib.Posterior({"w": dist.Dirichlet(jnp.ones(3))})), 0.1, 50, progress=False)
    assert np.isfinite(stein_discrepancy(draws).squared)
    with pytest.raises(ValueError, match='use "proxy"'):
        stein_discrepancy(draws, "theta")
    with pytest.raises(ValueError, match="must be"):
        stein_discrepancy(draws, "phi")
