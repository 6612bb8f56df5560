"""What the comparisons of samplers share: the choice of methods, the curves that were kept, and the cells."""

import math

import numpy as np
import pytest

from experiments.comparison import at_end, chosen, curve_of, metric, plus_minus, rounded
from experiments.results import Results


def test_a_choice_is_all_or_the_names_given():
    assert chosen("method", None, {"a": 1, "b": 2}) == ["a", "b"]
    assert chosen("method", ["b"], ("a", "b")) == ["b"]
    with pytest.raises(ValueError, match=r"Unknown stage 'c'. Known: a, b."):
        chosen("stage", ["a", "c"], ("a", "b"))


def test_what_is_kept_of_a_run_comes_back_from_disk_with_its_dead_chains(tmp_path):
    curve = np.arange(24.0).reshape(2, 3, 2, 2)  # seeds, evaluations, sets, metrics
    curve[0, 2:] = np.nan  # the first chain dies
    final = Results.open(tmp_path, "any", {}).part("final", lambda: rounded(curve, ("loss", "other")))
    assert final["test"]["loss"][0][2] is None
    np.testing.assert_array_equal(
        curve_of(final, "other"), [metric(curve[:, k], ("loss", "other"), "other").mean() for k in (0, 1)] + [23.0]
    )
    assert at_end(final, "loss") == (22.0, pytest.approx(math.nan, nan_ok=True))


def test_a_standard_error_is_shown_where_there_is_one():
    assert plus_minus({"loss": 0.5, "loss_se": 0.01}, "loss") == "0.5000 ± 0.0100"
    assert plus_minus({"loss": 0.5, "loss_se": math.nan}, "loss") == "0.5000"
    assert plus_minus({"loss": math.nan, "loss_se": 0.01}, "loss") == "–"
