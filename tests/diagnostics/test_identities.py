"""E[G] = 0 at every step size, E[-phi G] - 1 is the bias of the step size: against exact stationary laws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from experiments.targets import TARGETS
from inbounds.diagnostics import stationary
from inbounds.diagnostics._identities import proxy_scores, standard_error
from inbounds.gradients import full_gradient
from tests.models_for_tests import linear_regression, noisy

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

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


def test_draws_of_a_kernel_in_a_metric_are_looked_at_in_the_proxy():
    """Euler in white coordinates has the variance 1 / (1 - step / 2) along all of them, hence this excess in phi."""
    posterior = ib.Posterior({"x": dist.MultivariateNormal(jnp.array([1.0, 2.0]), jnp.array([[1.0, 0.9], [0.9, 1.0]]))})
    kernel = ib.sgld(posterior, metric=ib.metrics.laplace(posterior, {"x": jnp.array([1.0, 2.0])}))
    draws = ib.sample(kernel, STEP, 4_000, burn_in=100, num_chains=8, progress=False)
    found = ib.diagnostics.identities(draws, most=8_000)
    assert np.abs(found.drift_z).max() < 4
    np.testing.assert_allclose(found.virial, 1 / (1 - STEP / 2), atol=0.08)
    assert ib.diagnostics.stein_discrepancy(draws, most=200, bootstraps=100).num_draws == 200


def test_a_chain_that_has_not_settled_is_found_out():
    posterior = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([2])})
    draws = ib.sample(ib.sgld(posterior), 1e-3, 400, num_chains=4, init={"x": np.array([4.0, 0.0])}, progress=False)
    found = ib.diagnostics.identities(draws)
    assert not found.settled
    assert abs(found.drift_z[0]) > 10
    assert found.names == ["x[0]", "x[1]"]
    assert "NOT settled" in str(found)


def test_chains_that_never_meet_have_not_settled_though_each_has_no_drift():
    law = ib.Posterior(
        log_prior=lambda t: jnp.logaddexp(-((t["x"] - 10) ** 2), -((t["x"] + 10) ** 2)),
        supports={"x": dist.constraints.real},
    )
    either = {"init": lambda key: {"x": 10 * jnp.sign(jax.random.normal(key, ()))}}
    found = ib.diagnostics.identities(ib.sample(ib.sgld(law), 0.1, 2_000, num_chains=4, progress=False, **either))
    assert found.has_no_drift
    assert not found.settled
    assert "NOT known to have settled" in str(found)
    assert "THE CHAINS DO NOT AGREE" in str(found)
    assert "not settled: R-hat" in found._repr_html_()


def test_few_effective_draws_settle_nothing():
    kernel = ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1.0)}))
    assert not ib.diagnostics.identities(ib.sample(kernel, 0.1, 50, progress=False)).settled
    found = ib.diagnostics.identities(ib.sample(kernel, 1e-3, 2_000, num_chains=2, progress=False))
    assert not found.settled
    assert any("effective sample size" in note for note in found.notes)


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


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_draws_at_another_temperature_are_held_against_the_law_at_it(temperature):
    kernel = ib.leimkuhler_matthews(ib.Posterior({"x": dist.Gamma(3.0, 1.0)}), temperature=temperature)
    draws = ib.sample(kernel, 0.1, 8_000, burn_in=500, thin=10, num_chains=16, progress=False)
    found = ib.diagnostics.identities(draws)
    assert found.settled
    assert abs(found.bias[0]) < 4 * found.virial_error[0] + 0.01


def test_without_temperature_there_is_no_law_to_hold_draws_against():
    kernel = ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1.0)}), temperature=0.0)
    draws = ib.sample(kernel, 0.1, 10, progress=False)
    with pytest.raises(ValueError, match="sgld ran at temperature=0"):
        ib.diagnostics.identities(draws)


@pytest.mark.parametrize("kernel", ["mirror", "sgrld"])
def test_kernels_on_the_bounded_space_are_looked_at_through_the_proxy(kernel):
    target = next(target for name, target in TARGETS.items() if name.startswith("half"))
    kernel = getattr(ib.baselines, kernel)(noisy(target, 0.0))
    found = ib.diagnostics.identities(
        ib.sample(kernel, 0.01, 20_000, burn_in=1_000, thin=50, num_chains=16, progress=False)
    )
    assert found.settled
    assert abs(found.bias[0]) < 4 * found.virial_error[0] + 0.02
    assert found.virial_error[0] < 0.05


def test_where_the_step_size_may_be_to_blame_the_verdict_says_so():
    target = next(target for name, target in TARGETS.items() if name.startswith("half"))
    kernel = ib.baselines.mirror(noisy(target, 0.0))
    found = ib.diagnostics.identities(ib.sample(kernel, 0.8, 4_000, burn_in=100, num_chains=16, progress=False))
    assert not found.exact
    assert not found.settled
    assert "halve the step size" in str(found)


def test_under_a_preconditioner_that_is_a_function_of_theta_the_drift_depends_on_the_step_size():
    # It is E[M G] that is 0 at every step size then.
    posterior = ib.Posterior(
        log_prior=lambda t: -(t["x"] ** 2) / 2 + 2 * jnp.log(t["y"]) - t["y"] * jnp.exp(t["x"] / 2),
        supports={"x": dist.constraints.real, "y": dist.constraints.positive},
    )
    options = {"init": {"x": 0.0, "y": 1.0}, "progress": False}
    for scale, exact in (
        (None, True),
        ({"x": 1.0, "y": 2.0}, True),
        (lambda t: {"x": 1.0, "y": jnp.exp(t["x"])}, False),
    ):
        draws = ib.sample(ib.sgld(posterior, preconditioner=scale), 0.1, 20, **options)
        assert ib.diagnostics.identities(draws).exact == exact


def test_without_a_batch_size_the_scores_are_those_of_all_the_data():
    posterior, mean, _ = linear_regression(rows=200)
    start = {"w": jnp.asarray(mean, jnp.float32)}
    kernel = ib.sgld(posterior, noise_correction=True)
    draws = ib.sample(kernel, 3e-4, 20, batch_size=50, init=start, progress=False)
    exact = jax.vmap(lambda w: full_gradient(posterior, {"w": w})["w"])(jnp.asarray(draws.theta["w"][0]))
    np.testing.assert_allclose(proxy_scores(draws).score[0], exact, atol=0.01)


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
