"""A results folder: parts survive a stop, and other settings are refused."""

import json
import math

import pytest

from experiments.reports import Claim
from experiments.results import Results, StoppedError, find, number

SETTINGS = {"scale": "smoke", "seed": 0, "grid": (0.1, 0.2)}


@pytest.fixture
def results(tmp_path):
    return Results.open(tmp_path / "run", "basic", SETTINGS)


def never(check=None):
    raise AssertionError("computed again")


def test_a_finished_part_is_read_and_not_computed_again(results):
    assert results.part("gamma/mirror", lambda: {"x": 1.5}) == {"x": 1.5}
    again = Results.open(results.path, "basic", SETTINGS)
    assert again.part("gamma/mirror", never) == {"x": 1.5}
    assert list(again.parts("gamma/")) == ["gamma/mirror"]


def test_numbers_that_are_not_finite_are_null_and_come_back_as_nan(results):
    results.save("part", {"x": math.nan, "y": [math.inf, 1.0]})
    text = (results.path / "parts" / "part.json").read_text()
    assert json.loads(text, parse_constant=never) == {"x": None, "y": [None, 1.0]}
    assert math.isnan(number(results.get("part")["x"]))


def test_a_part_cut_off_by_a_full_disk_counts_as_not_done(results):
    results.save("part", {"x": 1})
    (results.path / "parts" / "part.json").write_text('{"x": ')
    assert results.part("part", lambda: {"x": 2}) == {"x": 2}


def test_other_settings_are_refused_unless_restarted(results):
    results.save("part", 1)
    other = {**SETTINGS, "seed": 1}
    with pytest.raises(ValueError, match=r"made with seed=0, not 1.*--out.*--restart"):
        Results.open(results.path, "basic", other)
    with pytest.raises(ValueError, match="of 'basic', not 'nmf'"):
        Results.open(results.path, "nmf", SETTINGS)
    assert not Results.open(results.path, "basic", other, restart=True).has("part")


def test_a_file_is_not_a_folder_and_a_folder_without_results_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        Results.open(tmp_path / "file", "basic", SETTINGS)
    with pytest.raises(ValueError, match="holds no results"):
        find(tmp_path)
    with pytest.raises(ValueError, match="no folder"):
        find(tmp_path / "nowhere")


def test_results_of_subfolders_are_found(tmp_path):
    for name in ("b", "a"):
        Results.open(tmp_path / name, name, SETTINGS)
    assert [results.experiment for results in find(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_run_keeps_what_is_finished_and_goes_on_from_there(results, workers):
    def stop(check):
        raise KeyboardInterrupt

    lines = []
    tasks = {"one": lambda check: 1, "two": stop, "three": lambda check: 3}
    with pytest.raises(KeyboardInterrupt):
        results.run(tasks, workers, lines.append)
    kept = results.parts()
    assert "two" not in kept
    results.run({**tasks, "two": lambda check: 2}, workers, lines.append)
    assert results.parts() == {"one": 1, "two": 2, "three": 3}
    assert f"{len(kept)} of 3 parts are there already" in lines


def test_a_part_that_runs_is_told_to_stop(results):
    import threading

    started, outcome = threading.Event(), []

    def long(check):
        started.set()
        try:
            while True:
                check()
        except StoppedError:
            outcome.append("stopped")
            raise

    def fail(check):
        started.wait()
        raise FloatingPointError("no")

    with pytest.raises(FloatingPointError):
        results.run({"long": long, "fail": fail}, workers=2)
    assert outcome == ["stopped"]


def test_tables_are_tidy_csv(results):
    file = results.write_csv("table", [{"a": 1, "b": math.nan}, {"a": 2, "c": "x"}])
    assert file.read_text().splitlines() == ["a,b,c", "1,,", "2,,x"]


def test_the_environment_names_versions_and_device(results):
    made_on = results.header["environment"]
    assert {"inbounds", "jax", "device", "cores", "precision"} <= set(made_on)


def test_a_part_that_is_computed_says_how_long_it_took(tmp_path):
    results, said = Results.open(tmp_path, "any", {}), []
    for _ in range(2):
        results.part("one", lambda: 1, said.append)
    assert len(said) == 1
    assert said[0].startswith("one: ")


def test_the_summary_says_where_its_numbers_come_from(tmp_path):
    results = Results.open(tmp_path, "any", {"scale": "smoke", "some_sizes": [1, 2]})
    results.write_summary([{"x": 1.0}], [Claim("holds water", "it does", True)], extra=[])
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["claims"] == [{"claim": "holds water", "found": "it does", "holds": True}]
    assert (written["experiment"], written["settings"]["scale"], written["extra"]) == ("any", "smoke", [])
    assert ("some sizes", "1, 2") in results.facts()
    assert "cores" in dict(results.facts())
