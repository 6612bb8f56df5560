"""Runs that are timed beside each other: in turns, the first time not counted."""

import time

import numpy as np

from experiments.timing import interleaved


def test_runs_take_turns_and_the_first_of_each_is_not_counted():
    calls, said = [], []

    def run(name, seconds):
        calls.append(name)
        return seconds + len(calls)

    seconds = interleaved({"a": lambda: run("a", 10.0), "b": lambda: run("b", 20.0)}, 2, said.append)
    assert calls == ["a", "b"] * 3
    assert said == [0, 1]
    np.testing.assert_array_equal(seconds["a"], [13.0, 15.0])
    np.testing.assert_array_equal(seconds["b"], [24.0, 26.0])


def test_a_run_that_does_not_measure_itself_is_measured():
    seconds = interleaved({"sleep": lambda: time.sleep(0.01)}, 3)["sleep"]
    assert seconds.shape == (3,)
    assert np.all(seconds >= 0.01)  # a sleep is never shorter, however busy the machine
