"""The summary of draws with a certificate, and quantities that users name."""

from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib

pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


def certificate(ok=True, reasons=(), **mean_error):
    mean_error = {name: np.asarray(x) for name, x in mean_error.items()}
    return SimpleNamespace(
        ok=ok,
        reasons=list(reasons),
        mean={},
        sd={},
        quantiles={},
        mean_error=mean_error,
        sd_error={name: 2 * x for name, x in mean_error.items()},
        quantile_error={name: np.stack([x, x, x]) for name, x in mean_error.items()},
        choices={},
    )


@pytest.fixture
def draws():
    posterior = ib.Posterior({"rate": dist.Gamma(2.0, 1.0).expand([2]), "mix": dist.Beta(2.0, 2.0)})
    return ib.sample(ib.leimkuhler_matthews(posterior), 0.2, 200, num_chains=2, progress=False)


def test_without_a_certificate_there_is_no_column_and_no_verdict(draws):
    assert "error" not in draws.summary().columns
    assert draws.summary().verdict == ""


def test_the_error_of_each_mean_is_a_column_and_the_verdict_stands_under_the_table(draws):
    draws.certificate = certificate(rate=[0.01, 0.031], mix=0.02)
    summary = draws.summary()
    assert [row["error"] for row in summary.rows] == [0.02, 0.01, 0.031]
    assert str(summary).splitlines()[0].split()[6] == "error"
    assert str(summary).splitlines()[4].startswith("certified. `error` is the total error of the mean")
    assert "0.031 of the mean of rate[1] and 0.062 of the sd of rate[1]" in summary.verdict


def test_a_refusal_gives_its_reasons_escaped_in_html(draws):
    draws.certificate = certificate(False, ["<b>the chains</b> disagree: run & look"], rate=[0.1, np.nan], mix=0.02)
    summary = draws.summary()
    assert "NOT CERTIFIED." in str(summary)
    assert "- <b>the chains</b> disagree: run & look" in str(summary)
    assert "&lt;b&gt;the chains&lt;/b&gt; disagree: run &amp; look" in draws._repr_html_()
    assert "<b>" not in draws._repr_html_()
    assert "not known of the mean of rate[1]" in summary.verdict


def test_a_variable_that_the_certificate_does_not_have_has_an_error_that_is_not_known(draws):
    draws.certificate = certificate(mix=0.02)
    assert np.isnan(draws.summary()["rate[0]"]["error"])
    assert draws.summary()["mix"]["error"] == 0.02


def test_numbers_beside_an_error_are_those_that_it_is_of(draws):
    draws.certificate = certificate(rate=[0.01, 0.031], mix=0.02)
    draws.certificate.mean["rate"] = np.array([1.5, np.nan])
    draws.certificate.sd["rate"] = np.array([0.25, np.nan])
    draws.certificate.quantiles["rate"] = np.array([[0.5, 1.25, 2.0], [np.nan] * 3])
    first, second, mix = (draws.summary()[name] for name in ("rate[0]", "rate[1]", "mix"))
    assert [first[column] for column in ("mean", "sd", "5%", "50%", "95%")] == [1.5, 0.25, 0.5, 1.25, 2.0]
    assert second["mean"] == pytest.approx(draws.theta["rate"][..., 1].mean())
    assert mix["mean"] == pytest.approx(draws.theta["mix"].mean())


def test_quantities_are_variables_like_the_others(draws):
    draws.quantities = {
        "total": lambda theta: theta["rate"].sum(),
        "odds": lambda theta: theta["mix"] / (1 - theta["mix"]),
    }
    theta = draws.theta
    np.testing.assert_allclose(draws.variables()["total"], theta["rate"].sum(axis=-1), rtol=1e-6)
    np.testing.assert_allclose(draws.variables()["odds"], theta["mix"] / (1 - theta["mix"]), rtol=1e-5)
    assert [row["variable"] for row in draws.summary().rows] == ["mix", "rate[0]", "rate[1]", "odds", "total"]


def test_a_quantity_of_several_parts_is_refused_by_name(draws):
    draws.quantities = {"both": lambda theta: (theta["mix"], theta["rate"])}
    with pytest.raises(ValueError, match="quantity 'both' must return one array or number; got tuple"):
        draws.variables()


def test_a_quantity_with_the_name_of_a_variable_is_refused(draws):
    draws.quantities = {"mix": lambda theta: 2 * theta["mix"]}
    with pytest.raises(ValueError, match="Two variables, 'mix' and 'mix'"):
        draws.variables()
