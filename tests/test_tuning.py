"""The step-size search: what it finds, what it keeps, how it goes on, and what it never shows."""

import logging
import math
import sys

import numpy as np
import pytest

pytest.importorskip("optuna")

from inbounds.tuning import Integer, LogUniform, TuningInterrupted, Uniform, tune


def valley(step_size):
    """A loss with its minimum at 1e-3."""
    return (math.log10(step_size) + 3) ** 2


def step_sizes(result):
    return result.to_arrays()["step_size"].tolist()


def test_it_finds_the_bottom_of_a_valley_and_reports_it():
    result = tune(valley, trials=40)
    assert abs(math.log10(result.step_size) + 3) < 0.3
    assert result.best_value == min(trial["value"] for trial in result.trials) == valley(result.step_size)
    assert not result.at_edge
    assert len(result.trials) == 40
    assert result.to_arrays()["value"].shape == (40,)


def test_it_learns_from_its_trials():
    tries = np.array(step_sizes(tune(valley, trials=60)))
    near = np.abs(np.log10(tries[30:]) + 3) < 0.5
    assert near.mean() > 0.3  # one in seven, if it searched at random


def test_the_seed_decides_the_trials():
    first, again, other = (step_sizes(tune(valley, trials=15, seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert not set(first) & set(other)


@pytest.mark.parametrize(("low", "high", "end"), [(1e-2, 1.0, "low"), (1e-7, 1e-4, "high")])
def test_an_optimum_at_an_end_of_the_range_is_said_to_be_there(low, high, end):
    result = tune(valley, low=low, high=high, trials=30)
    assert result.at_edge
    assert result.edges == {"step_size": end}
    assert f"step_size at the {end} end" in repr(result)
    assert f"at the {end} end" in result._repr_html_()


def test_maximising_takes_the_largest():
    result = tune(lambda step_size: -valley(step_size), trials=20, direction="maximize")
    assert result.best_value == max(trial["value"] for trial in result.trials)


def test_named_parameters_arrive_as_keyword_arguments_within_their_ranges():
    seen = []

    def loss(*, friction, step_size, leaps):
        seen.append((step_size, friction, leaps))
        return valley(step_size) + (friction - 2) ** 2 + abs(leaps - 3)

    space = {"step_size": LogUniform(1e-5, 1.0), "friction": Uniform(0.1, 5.0), "leaps": Integer(1, 5)}
    result = tune(loss, parameters=space, trials=30)
    assert all(1e-5 <= s <= 1 and 0.1 <= f <= 5 and leaps in {1, 2, 3, 4, 5} for s, f, leaps in seen)
    assert set(result.best_params) == set(space)
    assert result.best_value < np.median([trial["value"] for trial in result.trials])


def test_a_result_without_a_step_size_says_what_it_has():
    result = tune(lambda friction: friction, parameters={"friction": Uniform(0, 1)}, trials=3)
    with pytest.raises(AttributeError, match="friction"):
        _ = result.step_size


# -- divergence ---------------------------------------------------------------------------------------------------


class Diverges:
    """A loss that is not finite above 1e-2, each time in another way."""

    def __init__(self, *ways):
        self.ways, self.calls = ways, 0

    def __call__(self, step_size):
        if step_size < 1e-2:
            return valley(step_size)
        self.calls += 1
        way = self.ways[self.calls % len(self.ways)]
        if isinstance(way, Exception):
            raise way
        return way


def test_a_trial_that_goes_non_finite_is_pruned_and_the_search_goes_on():
    objective = Diverges(math.nan, math.inf, -math.inf, FloatingPointError("overflow"))
    result = tune(objective, trials=40)
    assert objective.calls >= 4
    pruned = [trial for trial in result.trials if trial["state"] == "pruned"]
    assert len(pruned) == objective.calls
    assert all(math.isnan(trial["value"]) and trial["step_size"] >= 1e-2 for trial in pruned)
    assert abs(math.log10(result.step_size) + 3) < 0.5
    assert f"{objective.calls} non-finite" in repr(result)


def test_the_drivers_own_error_prunes():
    health = pytest.importorskip("inbounds.sampling.health")
    error = health.NonFiniteError.__new__(health.NonFiniteError)
    objective = Diverges(error)
    assert len(tune(objective, trials=15).trials) == 15
    assert objective.calls > 0


def test_a_search_in_which_everything_diverged_says_so():
    with pytest.raises(RuntimeError, match=r"none of the 4 trials.*finite"):
        tune(lambda step_size: math.nan, trials=4)


def test_any_other_error_propagates_and_keeps_the_finished_trials(tmp_path):
    losses = iter([1.0, 2.0, ValueError("a bug")])

    def objective(step_size):
        loss = next(losses)
        if isinstance(loss, Exception):
            raise loss
        return loss

    with pytest.raises(ValueError, match="a bug"):
        tune(objective, trials=5, storage=tmp_path / "study.log")
    result = tune(lambda step_size: 3.0, trials=5, storage=tmp_path / "study.log")
    assert [trial["value"] for trial in result.trials] == [1.0, 2.0, 3.0, 3.0, 3.0]


# -- storage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["{}/deep/down/study.log", "sqlite:///{}/study.db"])
def test_a_study_goes_on_where_it_stopped_and_as_if_it_had_not(tmp_path, storage):
    storage = storage.format(tmp_path)
    calls = []

    def counted(step_size):
        calls.append(step_size)
        return valley(step_size)

    tune(counted, trials=12, storage=storage)
    resumed = tune(counted, trials=16, storage=storage)
    assert len(calls) == 16
    assert step_sizes(resumed) == step_sizes(tune(valley, trials=16, storage=tmp_path / "whole.log"))
    finished = tune(counted, trials=16, storage=storage)
    assert len(calls) == 16
    assert finished == resumed


def test_studies_of_different_names_share_a_storage_and_nothing_else(tmp_path):
    tune(lambda step_size: 1.0, trials=3, storage=tmp_path / "study.log", name="mirror")
    other = tune(lambda step_size: 2.0, trials=2, storage=tmp_path / "study.log", name="sgld")
    assert [trial["value"] for trial in other.trials] == [2.0, 2.0]


@pytest.mark.parametrize("change", [{"high": 0.5}, {"direction": "maximize"}])
def test_a_study_is_not_gone_on_with_under_another_question(tmp_path, change):
    tune(valley, trials=2, storage=tmp_path / "study.log")
    with pytest.raises(ValueError, match="Give another `name`"):
        tune(valley, trials=4, storage=tmp_path / "study.log", **change)


def test_interrupting_keeps_the_finished_trials_and_hands_over_the_best(tmp_path):
    calls = []

    def objective(step_size):
        calls.append(step_size)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return valley(step_size)

    with pytest.raises(TuningInterrupted, match="after 12 of 20") as caught:
        tune(objective, trials=20, storage=tmp_path / "study.log")
    assert len(caught.value.result.trials) == 12
    assert isinstance(caught.value, KeyboardInterrupt)
    resumed = tune(objective, trials=20, storage=tmp_path / "study.log")
    assert step_sizes(resumed) == step_sizes(tune(valley, trials=20, storage=tmp_path / "whole.log"))


def test_interrupting_before_the_first_trial_ended_has_no_result():
    def objective(step_size):
        raise KeyboardInterrupt

    with pytest.raises(TuningInterrupted) as caught:
        tune(objective, trials=2)
    assert caught.value.result is None


@pytest.mark.parametrize(
    "url",
    [
        "nosuchdatabase://bob:s3cr3t@host/db",
        "postgresql://bob:s3cr3t@127.0.0.1:1/db",
        "sqlite://bob:s3cr3t@/nowhere/at/all.db?key=s3cr3t",
        "://bob:s3cr3t@",
    ],
)
def test_the_credentials_of_a_database_are_never_shown(url, capfd, caplog):
    with caplog.at_level(logging.DEBUG), pytest.raises(RuntimeError, match="database") as caught:
        tune(valley, trials=1, storage=url)
    shown = capfd.readouterr()
    assert "s3cr3t" not in str(caught.value) + repr(caught.value) + caplog.text + shown.out + shown.err
    assert caught.value.__suppress_context__


# -- batches ------------------------------------------------------------------------------------------------------


def test_a_batch_is_asked_at_once_as_arrays_of_one_length():
    shapes = []

    def losses(step_size):
        shapes.append(step_size.shape)
        assert len(set(step_size.tolist())) > 1
        return (np.log10(step_size) + 3) ** 2

    result = tune(losses, trials=22, batch=4)
    assert shapes == [(4,)] * 6
    assert len(result.trials) == 22
    assert result.best_value == pytest.approx(valley(result.step_size))
    assert abs(math.log10(result.step_size) + 3) < 0.7


def test_a_batch_prunes_only_the_trials_that_diverged():
    def losses(step_size):
        return np.where(step_size > 1e-2, np.nan, (np.log10(step_size) + 3) ** 2)

    result = tune(losses, trials=16, batch=8)
    arrays = result.to_arrays()
    assert ((arrays["state"] == "pruned") == (arrays["step_size"] > 1e-2)).all()
    assert 0 < (arrays["state"] == "pruned").sum() < 16


def test_a_batch_of_several_parameters_has_an_array_for_each():
    def losses(step_size, leaps):
        assert step_size.shape == leaps.shape == (3,)
        return step_size * leaps

    space = {"step_size": LogUniform(1e-3, 1.0), "leaps": Integer(1, 4)}
    assert len(tune(losses, parameters=space, trials=6, batch=3).trials) == 6


def test_interrupting_a_batch_repeats_it_on_resuming(tmp_path):
    batches = []

    def losses(step_size):
        batches.append(step_size.tolist())
        if len(batches) == 2:
            raise KeyboardInterrupt
        return (np.log10(step_size) + 3) ** 2

    with pytest.raises(TuningInterrupted):
        tune(losses, trials=9, batch=3, storage=tmp_path / "study.log")
    result = tune(losses, trials=9, batch=3, storage=tmp_path / "study.log")
    assert batches[1] == batches[2]
    assert len(result.trials) == 9


# -- manners ------------------------------------------------------------------------------------------------------


def test_it_is_silent_away_from_a_terminal(capfd, caplog):
    with caplog.at_level(logging.DEBUG):
        tune(valley, trials=3)
    shown = capfd.readouterr()
    assert shown.out == shown.err == caplog.text == ""


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'pip install "inbounds\[tune\]"'):
        tune(valley, trials=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tune(1.0), "function of the step size; got float"),
        (lambda: tune(valley, low=0.0), "low must be above 0"),
        (lambda: tune(valley, low=1.0, high=0.1), "low < high"),
        (lambda: tune(valley, trials=0), "`trials`.*got 0"),
        (lambda: tune(valley, trials=2.5), "`trials`.*got 2.5"),
        (lambda: tune(valley, batch=0), "`batch`.*got 0"),
        (lambda: tune(valley, seed=-1), "`seed`.*got -1"),
        (lambda: tune(valley, direction="down"), "'minimize' or 'maximize'; got 'down'"),
        (lambda: tune(valley, name=""), "`name`"),
        (lambda: tune(valley, parameters={}), "`parameters` is empty"),
        (lambda: tune(valley, parameters={"step_size": (1, 2)}), r"must be LogUniform.*got \(1, 2\)"),
        (lambda: tune(valley, parameters={"n": Integer(1.5, 3)}), "whole ends"),
        (lambda: tune(lambda step_size: None, trials=1), "one number.*NoneType"),
        (lambda: tune(lambda step_size: np.ones(2), trials=2, batch=3), r"3 losses; got shape \(2,\)"),
    ],
)
def test_wrong_input_is_refused_with_what_was_got(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
