"""A thinned version of `benchmarks/infer/coverage.py`: does twice the stated error cover the truth, and is it not padded?"""

from benchmarks.infer.coverage import judged, replicates
from benchmarks.infer.judge import Lines
from benchmarks.infer.kinds import KINDS


def test_twice_the_stated_error_covers_the_truth_and_is_not_padded():
    lines = Lines()
    replicates(KINDS["normal"], range(100, 114), lines, method="minibatch")
    found = judged(lines)
    assert found["certified"] == found["runs"]
    # At full scale 97% and 95%: of 28 numbers fewer than 22 are covered once in 10,000 times.
    assert min(found["mean"], found["sd"]) >= 22 / 28
    assert max(found["mean_ratio"], found["sd_ratio"]) <= 2.0
