"""Every worked model runs at small scale, makes its picture, and writes down what it found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NAMES = ["gamma_regression", "hierarchical", "inclusion", "logistic_regression", "mixture"]


@pytest.mark.parametrize("name", NAMES)
def test_a_worked_model_runs_and_makes_its_picture(name, tmp_path):
    pytest.importorskip("matplotlib")
    command = [
        sys.executable,
        "-W",
        "error::UserWarning",
        str(EXAMPLES / f"{name}.py"),
        "--small",
        "--out",
        str(tmp_path),
    ]
    quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiling is most of what a small run does
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=quick)
    assert run.returncode == 0, run.stderr[-2_000:]
    assert "suggested step sizes" in run.stdout
    assert (tmp_path / f"{name}.png").stat().st_size > 5_000
    assert json.loads((tmp_path / f"{name}.json").read_text())["example"] == name


@pytest.mark.parametrize("name", NAMES)
def test_the_results_kept_with_the_examples_are_within_what_is_promised(name):
    result = json.loads((EXAMPLES / f"{name}.json").read_text())
    assert result["largest_error_of_a_mean_in_sds"] < 0.05
    assert result["largest_relative_error_of_an_sd"] < 0.1
