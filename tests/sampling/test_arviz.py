"""What `to_arviz` returns is what ArviZ takes: summaries, traces, leave-one-out."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import inbounds as ib
from tests.models_for_tests import poisson_rates

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

arviz_stats = pytest.importorskip("arviz_stats")


@pytest.fixture(scope="module")
def draws():
    return ib.sample(ib.sgld(poisson_rates()), 1e-3, 300, burn_in=100, num_chains=4, batch_size=10, progress=False)


def test_the_groups_hold_draws_statistics_and_data_under_the_given_coordinates(draws):
    tree = draws.to_arviz(coords={"kind": ["a", "b"]}, dims={"rate": ["kind"]})
    assert set(tree.children) == {"posterior", "sample_stats", "observed_data"}
    np.testing.assert_array_equal(tree["posterior"]["rate"].sel(kind="b"), draws.theta["rate"][..., 1])
    assert {"step_size", "gradient_norm", "noise_variance"} <= set(tree["sample_stats"].data_vars)
    np.testing.assert_array_equal(tree["observed_data"]["n"], draws.kernel.posterior.data["n"])
    assert list(arviz_stats.summary(tree).index) == ["mix", "rate[a]", "rate[b]"]


def test_the_pointwise_log_likelihood_comes_on_request_and_loo_takes_it(draws):
    tree = draws.to_arviz(log_likelihood=True)
    terms = np.asarray(tree["log_likelihood"]["n"])
    posterior = draws.kernel.posterior
    theta = {name: jnp.asarray(value[2, 7]) for name, value in draws.theta.items()}
    np.testing.assert_allclose(terms[2, 7], posterior.log_likelihood(theta, posterior.data), rtol=2e-5, atol=1e-5)
    assert np.isfinite(arviz_stats.loo(tree).elpd)


def test_a_target_without_data_has_neither_group():
    alone = ib.sample(ib.sgld(ib.Posterior({"x": dist.HalfNormal(1.0)})), 0.1, 20, progress=False)
    assert set(alone.to_arviz().children) == {"posterior", "sample_stats"}
    with pytest.raises(ValueError, match="log likelihood of each row is not known"):
        alone.to_arviz(log_likelihood=True)


def test_a_numpyro_model_brings_its_deterministics_and_the_name_of_its_data():
    y = np.linspace(-1, 2, 30).astype(np.float32)

    def model(y):
        center = numpyro.sample("center", dist.Normal(0, 1))
        numpyro.deterministic("double", 2 * center)
        with numpyro.plate("data", len(y), subsample_size=10) as rows:
            numpyro.sample("y", dist.Normal(center, 1.0), obs=y[rows])

    draws = ib.sample(ib.sgld(ib.from_numpyro(model, y)), 1e-2, 40, num_chains=2, progress=False)
    tree = draws.to_arviz(log_likelihood=True)
    np.testing.assert_allclose(tree["posterior"]["double"], 2 * tree["posterior"]["center"], rtol=1e-6)
    np.testing.assert_array_equal(tree["observed_data"]["y"], y)
    assert tree["log_likelihood"]["y"].shape == (2, 40, 30)


@pytest.mark.filterwarnings("ignore")  # what arviz_plots and matplotlib say to each other
def test_traces_are_plotted(draws, plots_of_arviz):
    for plot in plots_of_arviz:
        assert plot(draws.to_arviz()) is not None
