"""Figure 2 at the smallest scale: simulation agrees with quadrature, and exact zeros are said to be exact."""

import math

import numpy as np
import pytest

from experiments import weak_error
from experiments.methods import Method
from experiments.results import Results
from experiments.targets import TARGETS

GAMMA, SKEWED = TARGETS["gamma-0.5-0.5"], TARGETS["beta-0.5-1.5"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    results = Results.open(tmp_path_factory.mktemp("weak"), "weak-error", weak_error.settings("smoke", 0))
    weak_error.run(results, say=lambda line: None)
    return results


def test_simulation_agrees_with_quadrature(results):
    for curve in weak_error.curves_of(results):
        assert all(abs(z) < 4.5 for z in weak_error.disagreement(curve))


def test_orders_are_one_for_euler_and_two_for_the_corrected_second_order_kernel(results):
    orders = {curve.method.name: curve.slopes["wasserstein1"] for curve in weak_error.curves_of(results)}
    assert 0.9 < orders["corv-softplus"] < 1.15
    assert 1.8 < orders["lm-nc-softplus"] < 2.2


def test_the_report_says_what_has_no_exact_reference(results):
    report = weak_error.report(results)
    (section,) = report.sections
    assert any("No exact reference for mirror" in note for note in section.notes)
    assert section.table is not None
    assert (results.path / "summary.csv").read_text().count("\n") > 15
    assert (results.path / "seeds.csv").read_text().count("\n") == 1 + 4 * 3
    assert {claim.holds for claim in report.claims} <= {True, False}


def test_a_mean_that_is_exactly_right_is_said_to_be_so():
    found = weak_error.reference(SKEWED, Method("corv", "sigmoid"), (0.1, 0.4))
    slopes = {measure: weak_error._slope(found["rows"], [], measure) for measure in weak_error.MEASURES}
    curve = weak_error.Curve(SKEWED.name, Method("corv", "sigmoid"), found["rows"], [], "", slopes)
    assert weak_error.unbiased_in_the_mean(curve)
    assert math.isnan(slopes["mean"])
    assert 0.9 < slopes["wasserstein1"] < 1.1
    (claim,) = [claim for claim in weak_error.claims_of([curve]) if "E[θ]" in claim.claim]
    assert "exactly right" in claim.found


def test_where_there_is_no_reference_the_reason_is_kept():
    ito = weak_error.reference(GAMMA, Method("ito", "softplus"), (0.1,))
    mirror = weak_error.reference(GAMMA, Method("mirror"), (0.1,))
    assert ito["rows"] == mirror["rows"] == []
    assert "unbounded" in mirror["reason"]
    assert ito["reason"]


def test_independent_draws_have_no_error_beyond_their_noise():
    draws = GAMMA.quantile(np.random.default_rng(0).random((50, 2000)))
    edges = weak_error._edges(GAMMA)
    errors = weak_error._errors(weak_error._statistics(draws, edges), GAMMA, edges)
    assert abs(errors["mean"]) < 4 * errors["mean_se"]
    assert not errors["wasserstein1_resolved"]
    shifted = weak_error._errors(weak_error._statistics(draws + 0.05, edges), GAMMA, edges)
    assert shifted["wasserstein1_resolved"]
    assert shifted["wasserstein1"] == pytest.approx(0.05, rel=0.1)


def test_chains_that_died_are_counted_and_left_out():
    draws = GAMMA.quantile(np.random.default_rng(0).random((6, 500)))
    draws[0, 100:] = np.nan
    edges = weak_error._edges(GAMMA)
    errors = weak_error._errors(weak_error._statistics(draws, edges), GAMMA, edges)
    assert errors["died"] == 1
    assert np.isfinite(errors["wasserstein1"])
