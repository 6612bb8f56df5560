"""What a run returns, as its user reads it."""

import importlib
import sys

import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib

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
    assert text.splitlines()[0].split() == ["variable", "mean", "sd", "5%", "50%", "95%", "ess", "r_hat"]
    assert len(text.splitlines()) == 4


def test_arviz_takes_the_draws(draws):
    tree = draws.to_arviz()
    assert tree["posterior"]["rate"].dims[:2] == ("chain", "draw")
    assert set(tree["sample_stats"].data_vars) == {"gradient_norm", "noise_variance", "clamped", "step_size"}
    assert float(tree["posterior"]["mix"].mean()) == pytest.approx(0.5, abs=0.05)


def test_without_arviz_the_summary_says_what_is_missing(draws, monkeypatch):
    real = importlib.import_module

    def missing(name, *args):
        if name.startswith("arviz"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", missing)
    summary = draws.summary()
    assert "ess" not in summary.columns
    assert 'pip install "inbounds[arviz]"' in summary.notes[0]
    with pytest.raises(ImportError, match=r"inbounds\[arviz\]"):
        draws.to_arviz()


def test_reprs_are_short_and_html_is_a_table(draws):
    assert repr(draws).startswith("Draws(4 chains x 5,500 draws of mix, rate[2]; leimkuhler_matthews, 6,000 steps")
    assert draws._repr_html_().count("<tr>") == 4
    assert "sgld" in ib.sgld(POSTERIOR)._repr_html_()
    assert "(0, inf)" in POSTERIOR._repr_html_()


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


def test_progress_is_silent_without_a_terminal_and_counts_steps_with_one(capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # of an earlier test: this is no notebook
    ib.sample(ib.sgld(POSTERIOR), 0.1, 10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
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
