"""The score of the scoreboard: what is off by how much, and from when on it is not."""

import numpy as np
import pytest

from benchmarks.infer.truth import Truth
from benchmarks.scoreboard.__main__ import merged
from benchmarks.scoreboard.contestants import CONTESTANTS
from benchmarks.scoreboard.models import MODELS
from benchmarks.scoreboard.score import errors, time_to
from benchmarks.scoreboard.tables import SOURCES

TRUTH = Truth({"x": np.array([[1.0, 2.0, -2.0, 1.0, 4.0], [0.0, 0.5, -1.0, 0.0, 1.0]])})


def test_errors_are_in_reference_sds():
    found = np.array([[1.2, 2.0, -2.0, 1.0, 4.0], [0.0, 0.5 * np.exp(0.3), -1.0, 0.0, 1.1]])
    stated = {"mean": {"x": np.array([0.04, 0.1])}, "sd": {"x": np.array([0.01, 0.2])}}
    score = errors({"x": found}, TRUTH, stated)
    assert score == pytest.approx(
        {"mean": 0.1, "sd": 0.3, "quantile": 0.2, "total": 0.3, "means within": 0.5, "sds within": 1.0}
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
    assert [look["seconds"] for look in merged(lines, helped=False)] == [3.0, 9.0]
    assert [look["seconds"] for look in merged(lines, helped=True)] == [9.0]


def test_every_table_has_a_model_and_a_licence_and_most_are_tall():
    assert set(SOURCES) == set(MODELS)
    assert all(source.licence for source in SOURCES.values())
    assert sum(source.rows > 50_000 for source in SOURCES.values()) == 11
    assert {contestant.module for contestant in CONTESTANTS.values()} == {"infer", "numpyros", "blackjaxes", "nutpies"}
