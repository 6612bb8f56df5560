"""What `ib.infer` is judged by is judged itself: truths by quadrature are those of exact laws, and a liar is found out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from benchmarks.infer.coverage import judged as coverage_of
from benchmarks.infer.coverage import replicates, summary
from benchmarks.infer.hostile import HOSTILE
from benchmarks.infer.hostile import judged as verdict_of
from benchmarks.infer.judge import Lines, table
from benchmarks.infer.kinds import KINDS, inverse_wishart_margins
from benchmarks.infer.posteriordb import truth_of
from benchmarks.infer.truth import Truth, line, of_draws, of_law, of_normals, plane


def test_a_line_is_the_law_wherever_its_mass_is():
    np.testing.assert_allclose(line(lambda x: -0.5 * ((x - 700) / 0.02) ** 2, -1e3, 1e3), of_law(stats.norm(700, 0.02)))
    at_the_bound = line(lambda x: -50 * x, 0.0, 10.0)
    np.testing.assert_allclose(at_the_bound, of_law(stats.expon(scale=0.02)), rtol=2e-4)


def test_a_plane_has_the_margins_of_a_correlated_normal():
    def log_density(a, b):
        a, b = (a - 3) / 0.1, b / 5
        return -0.5 * (a**2 - 1.8 * a * b + b**2) / (1 - 0.9**2)

    first, second = plane(log_density, (-100, 100), (-100, 100))
    np.testing.assert_allclose(first, of_law(stats.norm(3, 0.1)), atol=3e-4)
    np.testing.assert_allclose(second, of_law(stats.norm(0, 5)), atol=5e-3)


def test_a_mixture_of_normals_has_the_quantiles_of_its_draws():
    weights, means, sds = np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.5, 1.0])
    generator = np.random.default_rng(0)
    which = generator.choice(2, 400_000, p=weights)
    drawn = of_draws(generator.normal(means[which], sds[which]))
    np.testing.assert_allclose(of_normals(10 * weights, means, sds), drawn, atol=0.02)


def test_margins_of_an_inverse_wishart_are_those_of_its_draws():
    scale = np.array([[4.0, 1.0, 0.0], [1.0, 2.0, 0.3], [0.0, 0.3, 1.0]])
    drawn = of_draws(stats.invwishart(40, scale).rvs(100_000, random_state=0))
    exact = inverse_wishart_margins(40, scale)
    np.testing.assert_allclose(exact / drawn[..., 1:2], drawn / drawn[..., 1:2], atol=0.03)


@pytest.mark.parametrize("name", ["rare_events", "positive_pair", "zero_inflated"])
def test_a_problem_of_the_table_is_the_same_from_the_same_seed(name):
    (first, truth), (again, same), (_, other) = (KINDS[name].problem(seed) for seed in (3, 3, 4))
    assert first.num_data == again.num_data == KINDS[name].rows
    for variable, margin in truth.margins.items():
        np.testing.assert_array_equal(margin, same.margins[variable])
        assert not np.array_equal(margin, other.margins[variable])


def stand_in(problem: str, error: float, stated: float):
    """What answers in the place of `ib.infer`: the truth and an error, seed by seed, and what it says of that error."""

    def infer(posterior, *, seed, progress):
        truth, generator = KINDS[problem].problem(seed).truth, np.random.default_rng(seed)
        margins = {
            name: margin + error * margin[..., 1:2] * generator.normal(size=margin.shape)
            for name, margin in truth.margins.items()
        }
        found = Truth(margins)
        says = {name: np.full(margin.shape, stated) for name, margin in margins.items()}
        errors = {"mean_error": says, "sd_error": says, "quantile_error": says}
        errors = {
            what: {name: x[..., 2:] if what[0] == "q" else x[..., 0] for name, x in says.items()} for what in errors
        }
        certificate = SimpleNamespace(
            ok=True, reasons=[], choices={}, mean=found.mean, sd=found.sd, quantiles=found.quantiles, **errors
        )
        return SimpleNamespace(certificate=certificate)

    return infer


@pytest.mark.parametrize(("stated", "covers"), [(0.02, True), (0.005, False), (0.1, True)])
def test_coverage_tells_an_honest_error_from_one_that_is_too_small_or_padded(stated, covers):
    lines = Lines()
    replicates(KINDS["rare_events"], range(60), lines, stand_in("rare_events", 0.02, stated))
    found = coverage_of(lines)
    for what in ("mean", "sd", "quantile"):
        assert (found[what] > 0.93) == covers
        assert found[f"{what}_ratio"] == pytest.approx(stated / 0.02, rel=0.15)
    assert [row["kind"] for row in summary(lines)] == ["rare_events", "all"]


def test_a_file_of_results_goes_on_where_it_was(tmp_path):
    path = tmp_path / "results" / "coverage.jsonl"
    replicates(KINDS["few_trials"], range(2), Lines(path), stand_in("few_trials", 0.02, 0.02))
    asked = []

    def infer(posterior, *, seed, progress):
        asked.append(seed)
        return stand_in("few_trials", 0.02, 0.02)(posterior, seed=seed, progress=progress)

    lines = Lines(path)
    replicates(KINDS["few_trials"], range(4), lines, infer)
    assert asked == [2, 3]
    assert len(Lines(path).lines) == len(list(lines)) == 4
    assert "few_trials" in table(("kind", "seed"), [(x["kind"], x["seed"]) for x in lines])


def test_certified_and_wrong_is_what_is_off_or_has_no_truth():
    truth = Truth({"x": of_law(stats.norm(0, 1))})
    off = {"mean": [0.1, -0.19], "sd": [-0.14], "quantile": [3.0]}
    assert not verdict_of({"ok": True, "off": off}, truth)["wrong"]
    assert verdict_of({"ok": True, "off": off | {"mean": [0.0, -0.21]}}, truth)["wrong"]
    assert verdict_of({"ok": True, "off": off | {"sd": [-0.16]}}, truth)["wrong"]
    assert verdict_of({"ok": True, "off": off | {"sd": [float("nan")]}}, truth)["wrong"]
    assert not verdict_of({"ok": False, "off": off | {"sd": [9.0]}}, truth)["wrong"]
    assert verdict_of({"ok": True}, None)["wrong"]
    assert not verdict_of({"ok": True, "off": off | {"mean": [0.21]}}, Truth(truth.margins, 0.01))["wrong"]
    assert len(HOSTILE) == len(KINDS) == 20


def test_names_of_stan_are_variables_of_a_posterior():
    one = {"mean": 1.0, "sd": 2.0, "q05": 0.0, "q50": 1.0, "q95": 4.0, "draws": 10_000}
    truth = truth_of({"beta[2]": one | {"mean": 5.0}, "beta[1]": one, "sigma": one}, {"beta", "sigma"})
    np.testing.assert_array_equal(truth.mean["beta"], [1.0, 5.0])
    assert truth.quantiles["sigma"].tolist() == [0.0, 1.0, 4.0]
    assert truth.error == pytest.approx(0.01)
    assert set(truth_of({"beta[1]": one, "sigma": one}, {"beta[1]", "sigma"}).margins) == {"beta[1]", "sigma"}
