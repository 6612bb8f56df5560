"""Leave-one-out against exact answers, and against ArviZ on the whole array."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import inbounds as ib
from inbounds.sampling import by_rows
from inbounds.sampling.leave_one_out import pareto_fit, smoothed
from tests.models_for_tests import poisson_rates

# Short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


@pytest.fixture(scope="module")
def draws():
    return ib.sample(ib.sgld(poisson_rates()), 1e-3, 300, burn_in=100, num_chains=4, batch_size=10, progress=False)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # ArviZ, of pandas
def test_it_is_arvizs_answer_without_its_array(draws):
    arviz_stats = pytest.importorskip("arviz_stats")
    found, whole = draws.loo(), arviz_stats.loo(draws.to_arviz(log_likelihood=True), pointwise=True)
    assert found.elpd == pytest.approx(whole.elpd, abs=1e-3)
    rows = len(found.elpd_i)
    either = [whole.se * np.sqrt(share) for share in (1, 1 - 1 / rows)]  # ArviZ 1.3 divides by one row less
    assert min(abs(found.se - se) for se in either) < 1e-3
    assert found.p_loo == pytest.approx(whole.p, abs=1e-3)
    assert found.good_k == pytest.approx(whole.good_k)
    np.testing.assert_allclose(found.elpd_i, whole.elpd_i, atol=1e-4)
    np.testing.assert_allclose(found.pareto_k, whole.pareto_k, atol=1e-2)
    table = arviz_stats.compare({"one": found.to_arviz(), "same": whole})
    assert table["elpd"].iloc[0] == pytest.approx(
        found.elpd, abs=2
    )  # ArviZ 1.3 rounds it to the digits that its error leaves


def test_slices_of_rows_and_tiles_of_draws_change_nothing(draws, monkeypatch):
    whole = draws.loo()
    calls = []
    monkeypatch.setattr(by_rows, "TILE_NUMBERS", 7 * 96)
    real = by_rows.ByRows._tile
    monkeypatch.setattr(by_rows.ByRows, "_tile", lambda self, *args: calls.append(args) or real(self, *args))
    cut = draws.loo(batch_rows=7)
    assert len(calls) > 6 * 800 // 96, "both were cut"
    np.testing.assert_allclose(cut.elpd_i, whole.elpd_i, rtol=1e-6)
    np.testing.assert_allclose(cut.pareto_k, whole.pareto_k, rtol=1e-4, atol=1e-5)


def test_the_density_of_a_left_out_row_is_the_exact_one():
    generator = np.random.default_rng(1)
    y = generator.normal(0.5, 1.0, size=30)
    # A normal mean with a flat prior and a known sd of 1.
    theta = generator.normal(y.mean(), 1 / np.sqrt(30), size=8_000)
    log_density = stats.norm.logpdf(y[:, None], theta)
    weights, k = smoothed(-log_density, 1.0)
    found = np.log(np.sum(np.exp(weights + log_density), axis=1))
    others = (y.sum() - y) / 29
    np.testing.assert_allclose(found, stats.norm.logpdf(y, others, np.sqrt(1 + 1 / 29)), atol=0.01)
    assert k.max() < 0.5
    np.testing.assert_allclose(np.exp(weights).sum(axis=1), 1.0)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.9])
def test_the_shape_of_a_pareto_tail_is_found(shape):
    values = np.sort(stats.genpareto(shape, scale=2.0).rvs((3, 5_000), random_state=0), axis=1)
    k, scale = pareto_fit(values)
    np.testing.assert_allclose(k, shape, atol=0.06)
    np.testing.assert_allclose(scale, 2.0, rtol=0.1)


def test_weights_that_are_equal_stay_so_and_a_tail_of_one_value_has_no_shape():
    equal = np.zeros((1, 200))
    stepped = np.where(np.arange(200) < 100, 0.0, 5.0)[None]
    weights, k = smoothed(np.concatenate([equal, stepped]), 1.0)
    np.testing.assert_allclose(weights[0], -np.log(200))
    np.testing.assert_allclose(weights[1, 100:] - weights[1, :100], 5.0)
    assert k[0] == -np.inf
    assert k[1] == np.inf


def with_an_outlier():
    y = np.random.default_rng(0).normal(size=20).astype(np.float32)
    y[13] = 12.0
    return y


def test_rows_that_cannot_be_left_out_are_counted_in_words():
    posterior = ib.Posterior(
        {"mean": dist.Normal(0.0, 10.0), "sd": dist.HalfNormal(5.0)},
        lambda theta, batch: dist.Normal(theta["mean"], theta["sd"]).log_prob(batch),
        with_an_outlier(),
    )
    draws = ib.sample(ib.sgld(posterior), 1e-2, 3_000, burn_in=500, num_chains=2, progress=False)
    with pytest.warns(ib.UntrustworthyWarning, match=r"Pareto k is above 0.70 in 1 of 20 rows.* row 13 .*#pareto-k"):
        found = draws.loo()
    assert found.bad.tolist() == [13]
    assert "p_loo" in str(found)
    assert "in 1 of 20 rows" in found._repr_html_()


def test_a_healthy_model_says_that_its_rows_can_be_trusted(draws):
    found = draws.loo()
    assert not found.bad.size
    assert "Pareto k is at most 0.66 in all the rows: their densities can be trusted." in str(found)


def test_models_of_numpyro_and_draws_on_disk_are_taken(tmp_path):
    pytest.importorskip("zarr")
    y = with_an_outlier()[:13]

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.StudentT(3.0, mean, 1.0), obs=y)

    kernel = ib.sgld(ib.from_numpyro(model, y))
    run = dict(step_size=1e-2, num_steps=300, num_chains=2, progress=False)
    in_memory, stored = ib.sample(kernel, **run), ib.sample(kernel, **run, store=tmp_path / "run.zarr")
    found = stored.loo(batch_rows=5)
    np.testing.assert_allclose(found.elpd_i, in_memory.loo().elpd_i, rtol=1e-5)
    terms = stats.t.logpdf(y[:, None], 3.0, in_memory.theta["mean"].ravel().astype(float))
    weights, _ = smoothed(-terms, 1.0)
    np.testing.assert_allclose(found.elpd_i, np.log(np.exp(weights + terms).sum(axis=1)), atol=2e-3)


def test_what_cannot_be_left_out_is_refused_with_the_reason(draws):
    alone = ib.sample(ib.sgld(ib.Posterior({"x": dist.HalfNormal(1.0)})), 0.1, 50, progress=False)
    with pytest.raises(ValueError, match="log likelihood of each row is not known"):
        alone.loo()
    few = ib.sample(ib.sgld(poisson_rates()), 1e-3, 20, batch_size=10, progress=False)
    with pytest.raises(ValueError, match="at least 25 draws; got 20"):
        few.loo()
    data = {"n": np.array([1.0, 2.0, 3.0], np.float32)}
    impossible = ib.Posterior(
        {"rate": dist.Gamma(2.0, 1.0)},
        lambda theta, batch: jnp.where(batch["n"] == 2, -jnp.inf, -theta["rate"] * batch["n"]),
        data,
    )
    run = ib.sample(ib.sgld(impossible), 1e-3, 40, on_failure="continue", progress=False)
    with pytest.raises(ValueError, match="not finite at 1 of the rows from 0 to 2, the first of them row 1"):
        run.loo()
