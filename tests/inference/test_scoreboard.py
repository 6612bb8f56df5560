"""The score of the scoreboard: what is off by how much, and from when on it is not."""

import json

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from benchmarks.infer.judge import Lines
from benchmarks.infer.truth import Truth, of_law
from benchmarks.scoreboard import page, races
from benchmarks.scoreboard.contestants import CONTESTANTS
from benchmarks.scoreboard.models import MODELS
from benchmarks.scoreboard.references import disagreement, references
from benchmarks.scoreboard.score import errors, time_to
from benchmarks.scoreboard.tables import SOURCES
from benchmarks.scoreboard.weighted import Around, counted, weighted_rows

TRUTH = Truth({"x": np.array([[1.0, 2.0, -2.0, 1.0, 4.0], [0.0, 0.5, -1.0, 0.0, 1.0]])})


def test_errors_are_in_reference_sds():
    found = np.array([[1.2, 2.0, -2.0, 1.0, 4.0], [0.0, 0.5 * np.exp(0.3), -1.0, 0.0, 1.1]])
    stated = {"mean": {"x": np.array([0.04, 0.1])}, "sd": {"x": np.array([0.01, 0.2])}}
    score = errors({"x": found}, TRUTH, stated)
    assert score == pytest.approx(
        {
            **{"mean": 0.1, "sd": 0.3, "quantile": 0.2, "total": 0.3},
            **{"means within": 0.5, "mean times stated": 2.5, "sds within": 1.0, "sd times stated": 1.5},
        }
    )


def test_what_is_not_finite_is_infinitely_wrong():
    assert errors({"x": np.full((2, 5), np.nan)}, TRUTH)["total"] == np.inf
    with pytest.raises(ValueError, match="'x' has shape"):
        errors({"x": np.zeros(5)}, TRUTH)


def test_a_tolerance_is_reached_where_the_error_stays_within_it():
    looks = [{"seconds": float(k), "total": total} for k, total in enumerate((0.3, 0.04, 0.08, 0.05, 0.01))]
    assert [time_to(tolerance, looks) for tolerance in (0.1, 0.05, 0.02, 0.001)] == [1.0, 3.0, 4.0, None]


def test_rungs_are_put_one_after_the_other_and_who_is_helped_has_the_best():
    lines = [{"looks": [{"seconds": 9.0, "total": 0.1}]}, {"looks": [{"seconds": 3.0, "total": 0.2}]}, {"looks": []}]
    assert [look["seconds"] for look in races.merged(lines, helped=False)] == [3.0, 9.0]
    assert [look["seconds"] for look in races.merged(lines, helped=True)] == [9.0]


def test_every_table_has_a_model_and_a_licence_and_most_are_tall():
    assert set(SOURCES) == set(MODELS)
    assert all(source.licence for source in SOURCES.values())
    assert sum(source.rows > 50_000 for source in SOURCES.values()) == 11
    assert {contestant.module for contestant in CONTESTANTS.values()} == {"infer", "numpyros", "blackjaxes", "nutpies"}


def test_jobs_are_made_in_turns_and_those_of_a_file_are_not_made_again(tmp_path, monkeypatch):
    todo = races.jobs(["a", "b"], ["infer", "laplace"], range(2), rungs=1)
    assert [(job["seed"], job["contestant"], job["problem"]) for job in todo] == [
        (seed, name, problem) for seed in range(2) for name in ("infer", "laplace") for problem in "ab"
    ]
    made = []

    def race(job, *_):
        made.append(job)
        return {**job, "looks": []}

    monkeypatch.setattr(races, "race", race)
    lines = Lines(tmp_path / "races.jsonl")
    lines.add({**todo[0], "looks": []})
    assert len(list(races.race_all(todo, lines, tmp_path, 1.0, 1, np.inf))) == len(made) == 7
    assert not list(races.race_all(todo, Lines(tmp_path / "races.jsonl"), tmp_path, 1.0, 1, np.inf))


def test_a_run_that_fails_ends_the_races_and_no_run_goes_on_after_the_time(tmp_path, monkeypatch):
    todo = races.jobs(["a"], ["laplace"], range(3))
    assert not list(races.race_all(todo, Lines(), tmp_path, 1.0, 1, 0.0))
    monkeypatch.setattr(races, "race", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(races.race_all(todo, Lines(), tmp_path, 1.0, 1, np.inf))


def test_a_process_that_goes_on_is_stopped():
    assert races.ended(["echo", "1"], np.inf) == ("1\n", "", 0)
    _, problems, status = races.ended(["sleep", "60"], 0.1)
    assert status == -9
    assert "stopped after" in problems


def test_what_has_not_converged_is_no_reference(tmp_path):
    margins = {"x": [1.0, 2.0, -2.0, 1.0, 4.0]}
    entry = {
        "error": 0.002, "quantile_error": 0.004, "r_hat": 1.001, "disagreement": 3.0, "margins": margins
    }  # fmt: skip
    bad = {name: {**entry, name: 20.0} for name in ("quantile_error", "r_hat", "disagreement")}
    (tmp_path / "file.json").write_text(json.dumps({"good": entry, **bad, "without": {"margins": margins}}))
    found = references(tmp_path / "file.json")
    assert set(found) == {"good"}
    assert found["good"].sd["x"] == 2.0


def test_weighted_points_have_the_margins_of_a_known_posterior():
    """Eleven rows are a law that is far from normal; of three hundred, most are the same."""

    def model(hit):
        rate = numpyro.sample("rate", dist.Beta(1.0, 1.0))
        numpyro.deterministic("odds", rate / (1 - rate))
        with numpyro.plate("rows", len(hit)):
            numpyro.sample("hit", dist.Bernoulli(rate), obs=hit)

    hits = np.repeat(np.array([1, 0], np.int32), [30, 270])
    some, counts = counted({"hit": hits})
    assert sorted(zip(some["hit"].tolist(), counts, strict=True)) == [(0, 270.0), (1, 30.0)]
    with jax.enable_x64(True):
        found = Around(weighted_rows(model), some | {"counts": counts}, starts=2).margins()
    truth = of_law(stats.beta(31, 271))
    assert np.abs(found["margins"]["rate"] - truth).max() < 0.003 * truth[1]
    assert found["quantile_error"] < 0.003
    assert found["largest weight"] < 100
    assert found["starts at the mode"] == 2
    assert found["margins"]["odds"][0] == pytest.approx(31 / 270, rel=1e-3)


def test_what_draws_say_is_beside_what_weights_say_in_standard_errors():
    drawn = {"margins": {"x": [1.03, 1.0, 0.0, 0.0, 0.0]}, "ess": 10_000, "tail_ess": 2_500}
    assert disagreement({"x": np.array([1.0, 1.04, 0.0, 0.0, 0.0])}, drawn) == 3.0
    assert disagreement({"x": np.array([1.0, 1.08, 0.0, 0.0, 0.0])}, drawn) == 4.0


def _line(name, total, seconds, seed=0, **more):
    looks = [{"seconds": t, "total": x, "mean": x / 2, "certified": False} for t, x in zip(seconds, total, strict=True)]
    rungs = CONTESTANTS[name].rungs
    return {"problem": "weeks", "contestant": name, "options": rungs[0], "seed": seed, "looks": looks, **more}


def test_the_matrix_has_medians_of_seeds_that_got_there_and_errors_of_those_that_did_not():
    lines = [
        _line("infer", [0.04], [9.0]),
        _line("infer", [0.03], [5.0], seed=1),
        _line("infer", [0.2], [6.0], seed=2),
        _line("infer", [0.01], [1.0], warm=True),
        _line("numpyro nuts", [0.3, 0.123], [20.0, 40.0]),
        _line("laplace", [], [], failed="stopped"),
    ]
    assert page.matrix(lines, 0.05).splitlines()[-1] == "| weeks | **7.0 s (2 of 3)** | - (12%) | - |"
    assert page.matrix(lines, 0.2).splitlines()[-1] == "| weeks | **6.0 s** | 40.0 s | - |"


def test_the_summary_counts_problems_and_who_was_first_on_them():
    lines = [_line("infer", [0.04], [9.0]), _line("laplace", [0.01], [3.0]), _line("nutpie", [0.3], [9.0])]
    lines += [
        {**_line("infer", [0.04], [5.0]), "problem": "gaps"},
        {**_line("laplace", [0.2], [3.0]), "problem": "gaps"},
    ]
    assert page.summary(lines).splitlines()[2:] == [
        "| `infer` | 2 of 2 | 7 s | 1 |",
        "| `nutpie` | 0 of 1 | - | 0 |",
        "| `laplace` | 1 of 2 | 3 s | 1 |",
    ]


def test_a_page_is_made_of_results_and_references(tmp_path, monkeypatch):
    entry = {"quantile_error": 0.004, "r_hat": 1.001, "disagreement": 3.0, "numbers": 8, "error": 0.001, "margins": {}}
    (tmp_path / "references.json").write_text(json.dumps({"weeks": entry}))
    kept = {"limit": 60.0, "clock": "wall", "warm": False}
    page.collect(
        [_line("infer", [0.04], [9.0], **kept), _line("laplace", [0.1], [3.0], **kept)], tmp_path / "races.json"
    )
    monkeypatch.setattr(page.made, "FILE", tmp_path / "references.json")
    monkeypatch.setattr(page, "RESULTS", tmp_path / "races.json")
    monkeypatch.setattr(page, "PAGE", tmp_path / "docs" / "README.md")
    page.page(tmp_path / "none.jsonl")
    text = page.PAGE.read_text()
    assert "| weeks | **9.0 s** | - (10%) |" in text
    assert "2 runs of at most 60 seconds, 1 of each at most, on two cores of their own, compilation included." in text
    assert "R-hat 1.0010" in text
    assert "none that may be used" in text
    assert {path.suffix for path in page.PAGE.parent.iterdir()} == {".md", ".png", ".svg"}


def test_claims_are_those_of_certified_answers():
    said = {"means within": 0.9, "sds within": 1.0, "mean times stated": 2.5, "sd times stated": 1.0}
    lines = [_line("infer", [0.1], [3.0]), _line("infer", [0.5], [3.0], seed=1), _line("infer", [], [], seed=2)]
    lines[0]["looks"][0] |= {**said, "certified": True}
    lines[1]["looks"][0] |= {**said, "certified": False}
    assert page.claims(lines).splitlines()[-1] == "| `infer` 0.05 | 3 | 2 | 1 | 90% | 100% | 0.050 | 2.5 |"


def test_results_are_collected_once_and_a_page_is_made_between_its_markers(tmp_path):
    for _ in range(2):
        page.collect([_line("infer", [0.0123456], [9.0]) | {"warm": False}], tmp_path / "results.json")
    (stored,) = json.loads((tmp_path / "results.json").read_text())
    assert stored["looks"][0]["total"] == 0.01235
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb"
    assert page.blocks(text, {"x": "new"}) == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"


def test_answers_are_scored_when_the_truth_is_known():
    look = {"seconds": 1.0, "margins": {"x": TRUTH.margins["x"].tolist()}, "stated": {}}
    (scored,) = races.scored({"problem": "weeks", "looks": [look]}, TRUTH)["looks"]
    assert scored == {"seconds": 1.0, "mean": 0.0, "sd": 0.0, "quantile": 0.0, "total": 0.0}
