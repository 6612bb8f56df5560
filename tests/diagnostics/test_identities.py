"""E[G] = 0 at every step size, E[-phi G] - 1 is the bias of the step size: against exact stationary laws."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.diagnostics import stationary
from inbounds.diagnostics.identities import standard_error
from inbounds.paper.targets import TARGETS
from tests.models_for_tests import linear_regression, noisy

STEP = 0.4


@pytest.fixture(scope="module")
def run():
    target = next(target for name, target in TARGETS.items() if name.startswith("gamma"))
    draws = ib.sample(ib.sgld(noisy(target)), STEP, 6_000, burn_in=500, num_chains=16, progress=False)
    return target, draws, ib.diagnostics.identities(draws)


def test_a_settled_chain_has_no_drift_even_at_a_large_step(run):
    _, _, found = run
    assert found.settled
    assert abs(found.drift_z[0]) < 4


def test_the_excess_of_the_second_identity_is_that_of_the_exact_stationary_law(run):
    target, _, found = run
    law = stationary(target, "softplus", STEP, noise_sd=1.0)
    exact = float(law.weights @ (-(law.phi - law.weights @ law.phi) * law.drift))
    assert exact > 1.05
    assert abs(found.virial[0] - exact) < 4 * found.virial_error[0] + 0.01
    assert found.bias[0] > 2 * found.virial_error[0]


def test_a_chain_that_has_not_settled_is_found_out():
    posterior = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([2])})
    draws = ib.sample(ib.sgld(posterior), 1e-3, 400, num_chains=4, init={"x": np.array([4.0, 0.0])}, progress=False)
    found = ib.diagnostics.identities(draws)
    assert not found.settled
    assert abs(found.drift_z[0]) > 10
    assert found.names == ["x[0]", "x[1]"]
    assert "NOT settled" in str(found)


def test_minibatch_gradients_serve_and_the_running_mean_can_be_plotted():
    posterior, mean, _ = linear_regression(rows=200)
    start = {"w": jnp.asarray(mean, jnp.float32)}
    draws = ib.sample(
        ib.sgld(posterior), 3e-4, 3_000, burn_in=300, batch_size=50, init=start, num_chains=4, progress=False
    )
    found = ib.diagnostics.identities(draws, batch_size=50)
    assert found.settled
    assert found.running.shape == (2_700, 5)
    np.testing.assert_allclose(found.running[-1], found.drift_z, rtol=1e-6)
    assert "<caption>chains settled" in found._repr_html_()


def test_kernels_on_the_bounded_space_are_looked_at_through_the_proxy():
    target = next(target for name, target in TARGETS.items() if name.startswith("half"))
    draws = ib.sample(ib.baselines.mirror(noisy(target, 0.0)), 0.01, 2_000, num_chains=4, progress=False)
    assert ib.diagnostics.identities(draws).virial.shape == (1,)


def test_batch_means_know_of_autocorrelation():
    generator = np.random.default_rng(0)
    x = np.zeros((50, 10_000))
    for t in range(1, x.shape[1]):
        x[:, t] = 0.9 * x[:, t - 1] + generator.normal(size=50)
    exact = np.sqrt(1 / (1 - 0.9) ** 2 / x.size)
    assert standard_error(x) == pytest.approx(exact, rel=0.15)


def test_running_statistics_alone_are_refused():
    posterior = ib.Posterior({"x": dist.Normal(0.0, 1.0)})
    draws = ib.sample(ib.sgld(posterior), 0.1, 10, collect=ib.collect.mean_and_variance(), progress=False)
    with pytest.raises(ValueError, match="stored no draws"):
        ib.diagnostics.identities(draws)
