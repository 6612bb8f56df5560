"""The matrix factorisation experiment: what it measures, and the page it makes."""

import json

import numpy as np
import pytest

from experiments import nmf, overhead
from experiments.nmf_page import claims_of
from experiments.results import Results
from inbounds.data.generated_ratings import generate_ratings

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

SMALL = {"num_users": 60, "num_items": 50, "num_ratings": 1_500, "half_stars": False}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two methods on a small table, every stage."""
    patch = pytest.MonkeyPatch()
    patch.setitem(nmf.GENERATED, "generated-100k", SMALL)
    settings = nmf.settings("smoke", 0, "generated-100k", iterations=(60,), evaluations=6)
    results = Results.open(tmp_path_factory.mktemp("nmf"), "nmf", settings)
    nmf.run(results, say=lambda line: None, methods=["mirror", "softplus"])
    patch.undo()
    return results


def test_the_average_is_that_of_the_predictions(results):
    final = results.get("rank-4/final/softplus")
    rmse, single = (np.asarray(final["test"][name], float) for name in ("rmse", "single_rmse"))
    assert rmse.shape == (2, 6)
    np.testing.assert_allclose(rmse[:, 0], single[:, 0], atol=1e-5)  # one draw is its own average
    assert np.all(np.asarray(final["test"]["clipped_rmse"], float) <= rmse + 1e-5)
    assert not np.array_equal(rmse[0], rmse[1])  # a seed of its own for each
    assert final["steps"] == [10, 20, 30, 40, 50, 60]
    assert np.all(np.diff(final["clock"]) >= 0)


def test_the_first_error_is_the_starts(results):
    """The curve's first point can be computed by hand: the draw after ten steps is near the start."""
    parts = generate_ratings(seed=0, **SMALL).split(seed=0)
    baselines = results.get("baselines")
    assert baselines["train"] == len(parts.train)
    assert baselines["user + item"] < baselines["global mean"]
    first = np.asarray(results.get("rank-4/final/mirror")["test"]["single_rmse"], float)[:, 0]
    assert np.all(np.abs(first - baselines["global mean"]) < 0.6)


def test_the_best_step_of_the_search_is_the_one_that_runs(results):
    for under in ("rank-4", "rank-4/matched"):
        for method in ("mirror", "softplus"):
            search = results.get(f"{under}/tune/{method}")
            losses = np.array([np.inf if loss is None else loss for loss in search["losses"]])
            assert search["best_step_size"] == search["step_sizes"][int(losses.argmin())]
            assert results.get(f"{under}/final/{method}")["step_size"] == search["best_step_size"]


def test_widest_stable_step_and_iterations_to():
    part = {"step_sizes": [1e-4, 1e-3, 1e-2, 1e-1], "losses": [1.0, 0.9, 0.95, None]}
    assert nmf.least_error([part, {"losses": [None, 1.2]}]) == 0.9
    assert nmf.widest_stable(part, 0.9) == 1e-2
    assert nmf.widest_stable(part, 0.83) == 1e-3
    assert np.isnan(nmf.widest_stable(part, 0.5))
    final = {"steps": [10, 20, 30], "test": {"rmse": [[1.0, 0.8, 0.7], [1.0, 0.6, 0.5]]}}
    assert nmf.iterations_to(final, 0.7) == 20
    assert nmf.iterations_to(final, 0.1) is None
    assert nmf.at_end(final, "rmse") == pytest.approx((0.6, 0.1))


def test_the_page_says_which_claims_show(results):
    report = nmf.report(results)
    titles = [section.title for section in report.sections]
    assert titles == [
        "Rank 4: test error",
        "Rank 4: all methods",
        "Rank 4: the search for the step size",
        "Rank 4: stability",
    ]
    assert all(section.figure.with_suffix(".png").exists() for section in report.sections if section.figure)
    summary = json.loads((results.path / "summary.json").read_text())
    assert {row["method"] for row in summary["rows"]} == {"mirror", "softplus"}
    claims = {claim.claim.split(" (")[0]: claim for claim in claims_of(results, nmf.summarise(results))}
    curves = {method: results.get(f"rank-4/stability/{method}") for method in ("mirror", "softplus")}
    best = nmf.least_error([curves["mirror"]])
    widest = {method: nmf.widest_stable(part, best) for method, part in curves.items()}
    stable = claims["The transformation enables stable computation with a large step size"]
    assert stable.holds == (widest["softplus"] >= 5 * widest["mirror"])


def test_settings_are_checked():
    with pytest.raises(ValueError, match="Unknown data set 'netflix'"):
        nmf.settings("full", 0, "netflix")
    with pytest.raises(ValueError, match="2 ranks need as many"):
        nmf.settings("full", 0, ranks=(20, 50), iterations=(100,))
    assert nmf.settings("full", 0)["trials"] == 100


def test_the_overhead_is_a_ratio_within_rounds(tmp_path):
    """The page from measurements, without measuring."""
    results = Results.open(tmp_path, "overhead", overhead.settings("smoke", 0))
    seconds = {name: [1.0, 3.0, 2.0] for name in overhead.METHODS} | {
        "icll": [1.05, 3.3, 2.1],
        "softplus": [1.2, 3.6, 2.4],
    }
    results.save("rank-4", {"seconds": seconds, "steps": 100, "parameters": 10, "ratings": 20})
    rows = {row["method"]: row for row in overhead.summarise(results)}
    assert rows["icll"]["ratio"] == pytest.approx(1.05)
    assert rows["mirror"]["microseconds"] == pytest.approx(2e4)
    report = overhead.report(results)
    assert report.claims[0].holds is False
    assert "CoRV softplus 1.200" in report.claims[0].found
    assert (tmp_path / "figures" / "overhead.png").exists()
