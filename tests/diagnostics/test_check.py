"""The doctor finds what is wrong, says what to do, and suggests step sizes whose bias is what it promises."""

import json
import math
from collections import namedtuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from experiments.targets import TARGETS
from inbounds.diagnostics import stationary
from inbounds.diagnostics._check_bounds import EDGES, Far, edge_finding, look_at_transforms
from tests.models_for_tests import linear_regression, noisy

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

COUNTS = np.random.default_rng(0).poisson(3.0, size=60).astype(np.float32)


def rates(log_likelihood=lambda theta, n: n * jnp.log(theta["rate"]) - theta["rate"], **kwargs):
    return ib.Posterior({"rate": dist.HalfNormal(2.0)}, log_likelihood, COUNTS, **kwargs)


def statuses(report, topic):
    return [finding.status for finding in report.of(topic)]


@pytest.fixture(scope="module")
def regression():
    posterior, _, sd = linear_regression()
    return posterior, sd, ib.check(ib.sgld(posterior), batch_size=100, show=False)


def test_a_sound_posterior_gets_ticks_in_text_html_and_data(capsys):
    report = ib.check(rates(), batch_size=20, show="all")
    assert report.ok
    printed = capsys.readouterr().out
    assert "✓ rate: (0, inf) by softplus" in printed
    assert printed.startswith("! Ready for leimkuhler_matthews: step sizes ")
    assert "20 rows per step; 1 warning." in printed.splitlines()[0]
    assert "✗" not in printed
    assert "<td>✓</td><td>rate</td>" in report._repr_html_()
    assert "step sizes" in repr(report)
    data = json.loads(json.dumps(report.to_dict()))
    assert data["ok"]
    assert data["batch_size"] == 20
    assert {
        "transform",
        "round trip",
        "interior",
        "lipschitz",
        "edges",
        "boundary",
        "unbiased",
        "noise",
        "step size",
    } <= {finding["topic"] for finding in data["findings"]}


def test_exp_is_warned_of_with_the_reason_and_the_cure():
    report = ib.check(ib.Posterior({"x": dist.HalfNormal(1.0)}), transforms="exp", show=False)
    (finding,) = report.of("lipschitz", "x")
    assert finding.status == "warning"
    assert "explodes" in finding.message
    assert "'softplus'" in finding.remedy
    assert "HalfNormal" not in str(report)


@pytest.mark.parametrize(
    ("transform", "status", "remedy"),
    [("arctan", "problem", "probit"), ("sigmoid", "warning", "probit mixes"), ("probit", "ok", "mirror")],
)
def test_the_shape_at_the_bounds_is_measured_and_its_consequences_said(transform, status, remedy):
    posterior = ib.Posterior(
        log_prior=lambda x: -0.9 * (jnp.log(x) + jnp.log1p(-x)), supports=constraints.unit_interval
    )
    report = ib.check(posterior, transforms=transform, show=False)
    ends = report.of("boundary")
    assert [finding.values["side"] for finding in ends] == ["lower", "upper"]
    for finding in ends:
        assert finding.status == status
        assert finding.values["k"] == pytest.approx(0.1, abs=0.02)
        assert remedy in finding.remedy


def test_the_faces_of_a_simplex_are_looked_at():
    priors = {"sparse": dist.Dirichlet(jnp.asarray([3.0, 0.2, 1.0, 2.0])), "filled": dist.Dirichlet(jnp.full(4, 0.2))}
    posterior = ib.Posterior(priors, lambda theta, i: jnp.log(theta["filled"][i]), np.arange(40) % 4)
    report = ib.check(posterior, batch_size=40, show=False)
    (sparse,), (filled,) = report.of("boundary", "sparse"), report.of("boundary", "filled")
    assert sparse.values["k"] == pytest.approx(0.2, abs=0.01)
    assert "at a face of the simplex" in sparse.message
    assert "integrated_probit" in sparse.remedy
    # Data in every component round the corners off: the posterior is about Dirichlet(10.2).
    assert filled.values["k"] > 3
    assert not filled.remedy


def test_a_density_that_cannot_be_integrated_at_its_bound_is_a_problem():
    posterior = ib.Posterior(log_prior=lambda x: -1.2 * jnp.log(x) - x, supports=constraints.positive)
    assert statuses(ib.check(posterior, show=False), "boundary") == ["problem"]


def test_a_density_is_improper_also_where_the_data_hide_it_at_small_gaps():
    posterior = ib.Posterior(log_prior=lambda x: -jnp.log(x) + 50 * x - x**2, supports=constraints.positive)
    assert statuses(ib.check(posterior, show=False), "boundary") == ["problem"]


def test_a_vague_but_proper_prior_is_warned_of():
    report = ib.check(ib.Posterior({"x": dist.Gamma(0.001, 0.001)}), show=False)
    (finding,) = report.of("boundary")
    assert finding.status == "warning"
    assert finding.values["k"] == pytest.approx(0.001, rel=0.01)
    assert report.ok


@pytest.mark.parametrize(
    ("prior", "transforms"),
    [
        (dist.Beta(2.0, 2.0).expand([20]), "probit"),
        (dist.Beta(2.0, 2.0), ib.transforms.Probit(scale=0.1)),
        (dist.Uniform(1000.0, 1001.0).expand([50]), None),
        (dist.Dirichlet(jnp.ones(50)), "stick_breaking"),
        (dist.Wishart(5.0, jnp.eye(3)), None),
    ],
    ids=["probit", "scaled probit", "far interval", "stick breaking", "wishart"],
)
def test_the_rounding_of_floats_is_no_fault_of_a_sound_posterior(prior, transforms):
    report = ib.check(ib.Posterior({"x": prior}), transforms=transforms, show=False)
    assert statuses(report, "round trip") == ["ok"]
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("prior", "kind"),
    [(dist.HalfNormal(1.0), ib.transforms.Softplus), (dist.Dirichlet(jnp.ones(3)), ib.transforms.LogRatios)],
)
@pytest.mark.parametrize("wrong", [lambda phi: 1.1 * phi, jnp.abs, lambda phi: phi + jnp.nan])
def test_a_transform_that_does_not_come_back_is_a_problem(prior, kind, wrong, monkeypatch):
    inverse = kind._inverse
    monkeypatch.setattr(kind, "_inverse", lambda self, theta: wrong(inverse(self, theta)))
    patient = namedtuple("Patient", "variables")(lambda: [("x", prior.support, kind(), jnp.ones(prior.event_shape))])
    (finding,) = [finding for finding in look_at_transforms(patient) if finding.topic == "round trip"]
    assert finding.status == "problem"
    assert "correct its inverse" in finding.remedy


def test_a_vector_whose_gradient_is_not_finite_far_out_is_warned_of_and_in_the_middle_a_problem():
    for bad, status in (((-100, -30, -10), "warning"), ((-3, 3), "warning"), ((-3, 0), "problem")):
        finite = ~np.isin(EDGES, bad)
        support = constraints.positive_definite
        far = Far(np.asarray(EDGES), np.zeros(len(finite)), finite, np.zeros(len(finite)))
        finding = edge_finding("x", support, ib.transforms.default(support), far, 0.0)
        assert finding.status == status
        assert finding.values["phi"] == list(bad)


def test_a_batch_of_all_the_data_is_all_the_data_once():
    posterior, _, _ = linear_regression(rows=200)
    (finding,) = ib.check(posterior, batch_size=200, show=False).of("unbiased")
    assert finding.values["z"] < 0.1


def test_numbers_that_are_not_finite_are_none_in_the_data():
    report = ib.check(ib.Posterior({"x": dist.HalfNormal(1.0)}), transforms="exp", show=False)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    (finding,) = [finding for finding in data["findings"] if finding["topic"] == "lipschitz"]
    assert finding["values"]["constant"] is None


def test_a_gradient_that_overflows_near_the_bounds_is_found():
    prior = {"rate": dist.Gamma(0.3, 1.0)}  # so sharp that chains come near zero
    posterior = ib.Posterior(prior, lambda theta, n: n * jnp.log(1 - jnp.exp(-theta["rate"])), np.zeros(5, np.float32))
    report = ib.check(posterior, show=False)
    (finding,) = report.of("edges")
    assert finding.status == "problem"
    assert -100.0 in finding.values["phi"]
    assert "log domain" in finding.remedy
    assert not report.ok


def test_a_wall_that_overflows_is_no_problem():
    posterior = rates(lambda theta, n: dist.Normal(3.0, theta["rate"]).log_prob(n))
    report = ib.check(posterior, show=False)
    (finding,) = report.of("edges")
    assert finding.status == "ok"
    assert "no chain comes" in finding.message


def test_terms_averaged_over_the_batch_are_found_to_be_biased():
    posterior = rates(lambda theta, n: (n * jnp.log(theta["rate"]) - theta["rate"]) / n.shape[0])
    (finding,) = ib.check(posterior, batch_size=10, show=False).of("unbiased")
    assert finding.status == "problem"
    assert "one term per row" in finding.remedy


def test_curvature_and_noise_are_those_of_a_gaussian_posterior(regression):
    posterior, _, report = regression
    x, y = (np.asarray(posterior.data[name], float) for name in "xy")
    hessian = x.T @ x + np.eye(5) / 100
    (step,) = report.of("step size")
    assert step.values["curvature"] == pytest.approx(np.linalg.eigvalsh(hessian).max(), rel=0.1)
    mode = np.linalg.solve(hessian, x.T @ y)
    terms = x * (y - x @ mode)[:, None]
    assert step.values["noise"] == pytest.approx((terms.var(axis=0) * len(x) ** 2 / 100).max(), rel=0.5)
    assert statuses(report, "noise") == ["warning"]
    np.testing.assert_allclose(report.center["w"], mode, atol=0.05)


def test_a_control_variate_quietens_the_noise_and_lengthens_the_step(regression):
    posterior, _, report = regression
    gradient = ib.gradients.control_variate(center=report.center)
    better = ib.check(ib.sgld(posterior, gradient=gradient), batch_size=100, show=False)
    assert statuses(better, "noise") == ["ok"]
    assert better.step_size > 3 * report.step_size


def test_the_upper_end_of_the_range_costs_about_five_percent_of_a_standard_deviation(regression):
    posterior, sd, report = regression
    draws = ib.sample(
        ib.sgld(posterior), report.step_sizes[1], 20_000, burn_in=500, batch_size=100, num_chains=8,
        batching="replacement", init=report.center, progress=False,
    )  # fmt: skip
    error = draws.theta["w"].std(axis=(0, 1)) / sd - 1
    assert 0.0 < error.mean() < 0.08


@pytest.mark.parametrize(
    ("name", "transform"), [("gamma", "softplus"), ("beta", "sigmoid"), ("half_normal", "softplus")]
)
def test_the_suggestion_holds_for_the_exact_stationary_law_of_bounded_targets(name, transform):
    target = next(target for key, target in TARGETS.items() if key.replace("-", "_").startswith(name))
    report = ib.check(ib.sgld(noisy(target), transform), show=False)
    law = stationary(target, transform, report.step_sizes[1], noise_sd=1.0)
    sd = math.sqrt(target.second_moment - target.mean**2)
    assert abs(math.sqrt(law.mean(np.square) - law.mean() ** 2) / sd - 1) < 0.1


def test_badly_scaled_variables_get_a_preconditioner():
    posterior = ib.Posterior({"wide": dist.Normal(0.0, 100.0), "narrow": dist.Normal(0.0, 0.01)})
    report = ib.check(posterior, show=False)
    assert statuses(report, "conditioning") == ["warning"]
    scales = report.preconditioner
    assert scales["wide"] / scales["narrow"] == pytest.approx(1e8, rel=0.1)
    assert 0.05 < report.preconditioned_step_size < 0.2


def test_many_dimensions_have_their_largest_curvature_by_power_iteration():
    scale = jnp.linspace(0.1, 1.0, 2_100)
    report = ib.check(ib.Posterior({"w": dist.Normal(0.0, scale)}), show=False)
    (step,) = report.of("step size")
    assert step.values["curvature"] == pytest.approx(100.0, rel=0.15)
    assert report.preconditioner is None


def test_what_is_no_posterior_is_refused():
    with pytest.raises(ValueError, match="from_numpyro"):
        ib.check(lambda: None)


def test_the_command_line_prints_the_checklist_and_fails_where_something_is_a_problem(tmp_path, monkeypatch):
    testing = pytest.importorskip("typer.testing")
    from inbounds.cli import app

    (tmp_path / "doctored.py").write_text(
        "import inbounds as ib, jax.numpy as jnp, numpyro.distributions as dist\n"
        "from numpyro.distributions import constraints\n"
        "posterior = ib.Posterior({'x': dist.HalfNormal(1.0)})\n"
        "def bad():\n"
        "    return ib.Posterior(log_prior=lambda x: -1.2 * jnp.log(x) - x, supports=constraints.positive)\n"
    )
    monkeypatch.chdir(tmp_path)
    runner = testing.CliRunner()
    good = runner.invoke(app, ["check", "doctored:posterior", "--all"])
    assert good.exit_code == 0, good.output
    assert good.output.startswith("✓ Ready for leimkuhler_matthews")
    assert "✓ x: (0, inf) by softplus" in good.output
    bad = runner.invoke(app, ["check", "doctored.py:bad", "--json"])
    assert bad.exit_code == 1
    assert not json.loads(bad.output)["ok"]
