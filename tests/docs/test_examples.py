"""Every worked model is sampled at small scale; one of them runs as a script from the doctor to the table.

Compiling the doctor and the reference is most of what a small run does, and they are the same code for every model.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from numpyro.handlers import seed
from numpyro.infer.util import log_density

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NAMES = ["gamma_regression", "hierarchical", "inclusion", "logistic_regression", "mixture"]
HIERARCHIES = {  # by script: what is integrated out of each of its models
    "crossed_effects": "talent",
    "dirichlet_multinomial": None,
    "gamma_frailty": "frailty",
    "intercepts_and_slopes": "unit",
    "item_response": "ability",
    "zero_inflated_groups": "level",
}
OF_PYMC = sorted(file.stem for file in EXAMPLES.glob("pymc_*.json"))


def test_a_worked_model_runs_as_a_script_and_makes_its_picture(tmp_path):
    pytest.importorskip("matplotlib")
    script = str(EXAMPLES / "gamma_regression.py")
    # Other workers write to the compilation cache meanwhile: what is half written is no error (pyproject.toml).
    cache = "ignore:Error reading persistent compilation cache entry:UserWarning"
    short = "ignore:The draws of this run:UserWarning"
    command = [
        sys.executable,
        "-W",
        "error::UserWarning",
        "-W",
        cache,
        "-W",
        short,
        script,
        "--small",
        "--out",
        str(tmp_path),
    ]
    quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, env=quick)
    assert run.returncode == 0, run.stderr[-2_000:]
    assert "Ready for leimkuhler_matthews" in run.stdout
    assert (tmp_path / "gamma_regression.png").stat().st_size > 5_000
    result = json.loads((tmp_path / "gamma_regression.json").read_text())
    assert result["example"] == "gamma_regression"
    assert result["largest_error_of_a_mean_in_sds"] < 5  # a hundred draws: the right place, no more


@pytest.mark.parametrize("name", NAMES[1:])  # the first has just run in full
def test_every_worked_model_is_sampled_inside_its_bounds_and_makes_its_picture(name, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module(name).EXAMPLE
    assert example.name == name
    draws = example.quick_look(tmp_path)
    assert (tmp_path / f"{name}.png").stat().st_size > 5_000
    for chain in range(2):
        for draw in (0, -1):
            draws.kernel.space.check(jax.tree.map(lambda leaf, c=chain, d=draw: leaf[c, d], draws.theta))
    for title, variable, *index in example.panels:
        shown = draws.variables()[variable][(slice(None), slice(None), *index)]
        assert shown.ndim == 2, title
        assert np.ptp(shown) > 0, "the chain moved"


def test_replica_exchange_finds_the_weight_of_a_mode_that_a_chain_alone_never_leaves(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    found = importlib.import_module("replica_exchange").main(rounds=15_000)
    assert found["replica exchange"] == pytest.approx(found["truth"], abs=0.06)
    assert found["one chain alone"] == 1.0
    assert found["rounds in which the coldest chain is another"] > 0.2


def _inferred(script):
    module = importlib.import_module(script)
    return list(module.EXAMPLES.values()) if hasattr(module, "EXAMPLES") else [module.EXAMPLE]


@pytest.mark.parametrize("script", HIERARCHIES)
def test_hierarchical_examples_are_models_of_their_data_and_what_they_name_is_integrated_out(script, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    for example in _inferred(script):
        density, sites = log_density(seed(example.model, 0), example.data(example.small_groups), {}, {})
        assert np.isfinite(density), example.name
        found = json.loads((EXAMPLES / f"{example.name}.json").read_text())
        assert found["example"] == example.name
        integrated = HIERARCHIES[script]
        if integrated is None:
            assert found["effects"] == ""
        else:
            assert integrated in sites
            assert integrated in example.effects
            assert f"'{integrated}'" in found["effects"].split(" are integrated out")[0]


@pytest.mark.parametrize("script", HIERARCHIES)
def test_hierarchical_examples_are_certified_and_within_what_is_promised(script, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    for example in _inferred(script):
        found = json.loads((EXAMPLES / f"{example.name}.json").read_text())
        assert found["certified"]
        assert found["largest_error_of_a_mean_in_sds"] < 0.1
        assert found["largest_relative_error_of_an_sd"] < 0.1
        assert found.get("largest_error_of_a_mean_in_sds_of_effects", 0.0) < 0.15  # the largest of hundreds
        assert found.get("largest_relative_error_of_an_sd_of_effects", 0.0) < 0.1


@pytest.mark.parametrize("name", [*NAMES, *OF_PYMC])
def test_the_results_kept_with_the_examples_are_within_what_is_promised(name):
    result = json.loads((EXAMPLES / f"{name}.json").read_text())
    assert result.get("certified", True)
    mean, sd = (0.1, 0.07) if "certified" in result else (0.05, 0.1)
    assert result["largest_error_of_a_mean_in_sds"] < mean
    assert result["largest_relative_error_of_an_sd"] < sd
