"""What a run returns, as its user reads it."""

import importlib
import signal
import sys
import tracemalloc

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.sampling import summary

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

POSTERIOR = ib.Posterior({"rate": dist.Gamma(2.0, 1.0).expand([2]), "mix": dist.Beta(2.0, 2.0)})


@pytest.fixture(scope="module")
def draws():
    return ib.sample(ib.leimkuhler_matthews(POSTERIOR), 0.2, 6_000, burn_in=500, num_chains=4)


def test_shapes_are_chain_draw_event(draws):
    assert draws.theta["rate"].shape == (4, 5_500, 2)
    assert draws.theta["mix"].shape == (4, 5_500)
    assert draws.stats["gradient_norm"].shape == (4, 5_500)


def test_the_summary_has_moments_quantiles_ess_and_rhat(draws):
    row = draws.summary()["rate[1]"]
    assert row["mean"] == pytest.approx(2.0, abs=0.15)
    assert row["sd"] == pytest.approx(np.sqrt(2.0), abs=0.15)
    assert row["5%"] < row["50%"] < row["95%"]
    assert 300 < row["ess"] < 22_000
    assert row["r_hat"] < 1.05
    text = str(draws.summary())
    assert text.splitlines()[0].split() == ["variable", "mean", "sd", "5%", "50%", "95%", "ess", "ess_tail", "r_hat"]
    assert len(text.splitlines()) == 4


def test_arviz_takes_the_draws(draws):
    tree = draws.to_arviz()
    assert tree["posterior"]["rate"].dims[:2] == ("chain", "draw")
    assert set(tree["sample_stats"].data_vars) == {"gradient_norm", "noise_variance", "clamped", "step_size"}
    assert float(tree["posterior"]["mix"].mean()) == pytest.approx(0.5, abs=0.05)


def test_without_arviz_the_summary_is_the_same(draws, monkeypatch):
    whole = str(draws.summary())
    real = importlib.import_module

    def missing(name, *args):
        if name.startswith("arviz"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", missing)
    draws._convergence.clear()
    assert str(draws.summary()) == whole
    with pytest.raises(ImportError, match=r"inbounds\[arviz\]"):
        draws.to_arviz()


def test_the_summary_of_many_numbers_looks_at_them_together(monkeypatch):
    calls = []
    real = summary._moments
    monkeypatch.setattr(summary, "_moments", lambda x: calls.append(x.shape) or real(x))
    posterior = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([40, 50])})
    draws = ib.sample(ib.sgld(posterior), 0.1, 200, num_chains=2, progress=False)
    table = draws.summary()
    assert calls == [(400, 2_000)]
    x = draws.theta["x"][:, :, 39, 7].astype(np.float64)
    row = table["x[39, 7]"]
    assert row["mean"] == pytest.approx(x.mean(), rel=1e-12)
    assert row["sd"] == pytest.approx(x.std(ddof=1), rel=1e-12)
    assert row["95%"] == pytest.approx(np.quantile(x, 0.95), rel=1e-12)
    assert len(table.rows) == 2_000


def test_reprs_are_short_and_html_is_a_table(draws):
    assert repr(draws).startswith("Draws(4 chains x 5,500 draws of mix, rate[2]; leimkuhler_matthews, 6,000 steps")
    assert draws._repr_html_().count("<tr>") == 4
    assert "sgld" in ib.sgld(POSTERIOR)._repr_html_()
    assert "(0, inf)" in POSTERIOR._repr_html_()
    strange = ib.Posterior({"<b>": dist.Gamma(2.0, 1.0)})
    assert "<td>&lt;b&gt;</td>" in strange._repr_html_()
    assert "<b>" not in ib.sgld(strange)._repr_html_()


def test_the_summary_warns_where_noise_dominates():
    posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
    draws = ib.sample(ib.sgld(posterior, noise_correction=1e3), 0.1, 200)
    assert "exceeds what correction can absorb" in draws.summary().notes[0]


def test_log_theta_is_right_where_theta_underflows():
    posterior = ib.Posterior({"x": dist.Gamma(0.05, 1.0)})
    draws = ib.sample(ib.sgld(posterior), 1.0, 4_000, num_chains=8, init={"x": 1e-37})
    log_theta = np.asarray(draws.log_theta()["x"])
    theta = draws.theta["x"]
    assert log_theta.min() < -90, "the chain went below the smallest float"
    assert np.all(theta > 0)
    big = theta > 1e-30
    np.testing.assert_allclose(log_theta[big], np.log(theta[big]), rtol=1e-4, atol=1e-5)


def test_names_of_nested_variables_and_data_have_dots_in_arviz_and_slashes_in_the_summary():
    pytest.importorskip("arviz_base")
    data = {"counts": {"n": np.array([1.0, 2.0, 3.0], np.float32)}}
    posterior = ib.Posterior(
        {"a": {"b": dist.Gamma(2.0, 1.0)}, "layers": [{"w": dist.Normal(0.0, 1.0).expand([2])}]},
        lambda theta, batch: dist.Poisson(theta["a"]["b"]).log_prob(batch["counts"]["n"]),
        data,
    )
    draws = ib.sample(ib.sgld(posterior), 1e-2, 50, num_chains=2, progress=False)
    assert [row["variable"] for row in draws.summary().rows] == ["a/b", "layers/0/w[0]", "layers/0/w[1]"]
    assert np.isfinite(draws.summary()["a/b"]["ess"])
    assert "layers/0/w[1]" in draws._repr_html_()
    tree = draws.to_arviz(log_likelihood=True, dims={"layers/0/w": ["unit"]})
    np.testing.assert_array_equal(tree["posterior"]["a.b"], draws.theta["a"]["b"])
    assert tree["posterior"]["layers.0.w"].dims == ("chain", "draw", "unit")
    np.testing.assert_array_equal(tree["observed_data"]["counts.n"], data["counts"]["n"])
    assert tree["log_likelihood"]["counts.n"].shape == (2, 50, 3)


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ({"draw": dist.Gamma(2.0, 1.0)}, "cannot be called 'draw'"),
        ({"a": {"b": dist.Normal(0.0, 1.0)}, "a/b": dist.Normal(0.0, 1.0)}, "would both be called 'a.b'"),
        ({"a": {"b": dist.Normal(0.0, 1.0)}, "a.b": dist.Normal(0.0, 1.0)}, "would both be called 'a.b'"),
        ({"..": dist.Normal(0.0, 1.0)}, "cannot be called '..'"),
        ({".": dist.Normal(0.0, 1.0)}, "cannot be called '.'"),
        ({"zarr.json": dist.Normal(0.0, 1.0)}, "cannot be called 'zarr.json'"),
    ],
)
def test_names_that_would_stand_for_two_things_are_refused(priors, words):
    draws = ib.sample(ib.sgld(ib.Posterior(priors)), 1e-2, 20, progress=False)
    with pytest.raises(ValueError, match=words):
        draws.to_arviz()
    if "a/b" in priors:
        with pytest.raises(ValueError, match=words):
            draws.variables()
    else:
        assert set(draws.variables()) == set(priors) - {"a"} | ({"a/b"} if "a" in priors else set())


def with_a_double():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([2]))
    numpyro.deterministic("double", 2 * rate)


@pytest.mark.parametrize("place", ["memory", "store"])
@pytest.mark.parametrize("posterior", [POSTERIOR, ib.from_numpyro(with_a_double)], ids=["priors", "model"])
@pytest.mark.filterwarnings("ignore:Found chain dimension to be longer")  # ArviZ, of no draws
def test_a_run_that_is_stopped_in_its_burn_in_has_draws_of_length_zero_and_says_so(place, posterior, tmp_path):
    if place == "store":
        pytest.importorskip("zarr")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(ib.Interrupted) as caught:
            ib.sample(
                ib.sgld(posterior), 1e-2, 20_000, burn_in=10_000, num_chains=3, chunk_steps=1, progress=False,
                monitor=lambda *_: signal.raise_signal(signal.SIGINT),
                store=tmp_path / "run.zarr" if place == "store" else None,
            )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    draws = caught.value.draws
    for tree in (draws.phi, draws.theta, draws.log_theta(), draws.variables(), draws.to_arviz()["posterior"]):
        assert tree["rate"].shape == (3, 0, 2)
    if posterior is not POSTERIOR:
        assert draws.variables()["double"].shape == (3, 0, 2)
    assert draws.flat()["rate"].shape == (0, 2)
    assert "3 chains x 0 draws of" in repr(draws)
    for text in (str(draws.summary()), draws._repr_html_()):
        assert "no draws yet: the run was still in its burn-in (num_steps=1,024, burn_in=10,000" in text


def test_draws_are_in_memory_once_while_they_are_gathered_too():
    kernel = ib.sgld(ib.Posterior({"x": dist.Exponential(1.0).expand([100])}))
    ib.sample(kernel, 0.01, 1_024, progress=False)
    tracemalloc.start()
    quiet = {
        "on_failure": "continue",
        "progress": False,
    }  # not judged: that takes some megabytes, however many draws there are
    draws = ib.sample(kernel, 0.01, 20_000, chunk_steps=256, num_chains=2, **quiet)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * draws.phi["x"].nbytes


def test_draws_that_no_memory_holds_are_refused_with_what_helps():
    kernel = ib.sgld(ib.Posterior({"x": dist.Exponential(1.0).expand([50_000])}))
    with pytest.raises(MemoryError, match=r"2,000,000,000 draws .* GB .*`thin`.*`store`.*`collect`"):
        ib.sample(kernel, 0.01, 2_000_000_000, progress=False)


def test_room_is_made_for_the_draws_of_the_sampling_phases_alone():
    kernel = ib.sgld(ib.Posterior({"x": dist.Exponential(1.0).expand([50_000])}))
    schedule = ib.schedules.cyclical(1e-3, 100, sampling=0.01)
    with pytest.raises(MemoryError, match="The 20,000,000 draws of this run"):
        ib.sample(kernel, schedule, 2_000_000_000, progress=False)
    draws = ib.sample(kernel, schedule, 1_000, progress=False)
    assert draws.phi["x"].shape == (1, 10, 50_000)
    assert draws.phi["x"].base.shape[0] == 10


def test_truth_values_and_whole_numbers_are_collected_as_floats(float64):
    above = [lambda theta: theta["x"] > 1.0, lambda theta: (theta["x"] > 1.0).astype(jnp.int32)]
    kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
    collect = {f"moments {i}": ib.collect.mean_and_variance(of) for i, of in enumerate(above)}
    collect |= {f"mean {i}": ib.collect.predictive_mean(of) for i, of in enumerate(above)}
    run = dict(step_size=0.1, num_steps=500, num_chains=2, progress=False)
    share = (ib.sample(kernel, **run).theta["x"] > 1.0).mean(axis=1)
    collected = ib.sample(kernel, **run, collect=collect).collected
    for i in range(2):
        np.testing.assert_allclose(collected[f"moments {i}"].mean, share, rtol=1e-6)
        np.testing.assert_allclose(collected[f"moments {i}"].variance, share * (1 - share) * 500 / 499, rtol=1e-6)
        np.testing.assert_allclose(collected[f"mean {i}"], share, rtol=1e-6)
        assert collected[f"mean {i}"].dtype == np.float64


@pytest.mark.parametrize("value", [True, 3, np.float32(0.5)])
def test_what_is_collected_of_32_bits_stays_so(value):
    collector = ib.collect.mean_and_variance(lambda theta: jnp.asarray(value))
    assert collector.update(collector.init(0.0), 0.0).mean.dtype == np.float32


def test_progress_is_silent_without_a_terminal_and_counts_steps_with_one(capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # of an earlier test: this is no notebook
    ib.sample(ib.sgld(POSTERIOR), 0.1, 10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    # However slow the machine is, the second run is known to be quick.
    monkeypatch.setattr("inbounds.sampling.run.CHUNK_SECONDS", 1e6)
    monkeypatch.setattr("inbounds.sampling.progress.PATIENCE", 1e6)
    kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
    ib.sample(kernel, 0.1, 4_000)
    shown = capsys.readouterr().err
    assert "sgld" in shown
    assert "4.00k" in shown
    ib.sample(kernel, 0.1, 4_000)
    assert capsys.readouterr().err == "", "a run of milliseconds needs no bar"
    monkeypatch.setattr("inbounds.sampling.progress.PATIENCE", 0.0)
    ib.sample(kernel, 0.1, 4_000)
    assert "4.00k" in capsys.readouterr().err
