"""Figure 1 at the smallest scale: it runs, resumes, and says what the numbers say."""

import csv
import json
import math

import jax
import numpy as np
import pytest

import inbounds as ib
from experiments import basic
from experiments.methods import Method, all_methods, run_chains, seed_for
from experiments.results import Results
from experiments.targets import TARGETS
from inbounds.diagnostics import distances
from inbounds.tuning import LogUniform, TuningResult

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

GAMMA = TARGETS["gamma-0.5-0.5"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("basic")
    results = Results.open(folder, "basic", basic.settings("smoke", 0, targets=(GAMMA.name,)))
    basic.run(results, say=lambda line: None)
    return results


def test_every_method_is_tuned_and_run_again_on_fresh_seeds(results):
    scale = basic.SCALES["smoke"]
    parts = results.parts(GAMMA.name)
    assert {part["family"] for part in parts.values()} == {"mirror", "ito", "corv", "lm-nc"}
    for part in parts.values():
        assert len(part["trials"]) == scale.trials
        assert len(part["chains"]) == scale.chains
        assert part["range"][0] <= part["step_size"] <= part["range"][1]
        assert sum(part["histogram"]) <= 1 + 1e-9


def test_corv_is_closer_than_mirror_and_ito_on_a_density_without_bound(results):
    distance = {row["family"]: row["total_variation"] for row in basic.summarise(results)}
    assert distance["corv"] < 0.5 * min(distance["mirror"], distance["ito"])
    assert distance["lm-nc"] < 0.5 * min(distance["mirror"], distance["ito"])


def test_running_again_computes_nothing(results, monkeypatch):
    for name in ("tune_and_rerun", "floor", "ito_jumps", "proxy_noise"):
        monkeypatch.setattr(basic, name, lambda *args, **kwargs: pytest.fail("computed again"))
    before = {path: path.stat().st_mtime_ns for path in (results.path / "parts").rglob("*.json")}
    basic.run(Results.open(results.path, "basic", results.settings), say=lambda line: None)
    assert before
    assert before == {path: path.stat().st_mtime_ns for path in (results.path / "parts").rglob("*.json")}


def test_the_report_has_a_picture_a_sentence_and_a_table_in_every_section(results):
    report = basic.report(results)
    assert len(report.sections) == 5
    for section in report.sections:
        assert section.see.endswith(".")
        assert section.table is not None
        assert section.table.rows
        assert all(any(cell is not None for cell in column) for column in zip(*section.table.rows, strict=True))
        for ending in (".png", ".svg", "-dark.svg"):
            assert section.figure.with_name(section.figure.name + ending).stat().st_size > 1000
    with open(results.path / "chains.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    scale = basic.SCALES["smoke"]
    assert sum(row["method"] == "independent" for row in rows) == scale.chains
    assert len(rows) == 5 * scale.chains
    assert json.loads((results.path / "summary.json").read_text())["rows"][0]["target"] == GAMMA.name


def test_a_report_of_nothing_is_a_page_without_figures(tmp_path):
    report = basic.report(Results.open(tmp_path, "basic", basic.settings("smoke", 0)))
    assert report.sections == []
    assert report.claims == []


def test_claims_follow_the_numbers():
    def row(target, family, transform, value):
        return {
            "target": target, "method": family, "family": family, "transform": transform, "total_variation": value,
            "total_variation_se": 0.0005, "floor": 0.011,
        }  # fmt: skip

    worse = [row("half-normal", "mirror", None, 0.03), row("half-normal", "corv", "softplus", 0.02)]
    better = [row("half-normal", "mirror", None, 0.016), row("half-normal", "corv", "softplus", 0.02)]
    verdicts = [{claim.claim: claim.holds for claim in basic.claims_of(rows)} for rows in (worse, better)]
    mirror = next(claim for claim in verdicts[0] if claim.startswith("The errors of mirror"))
    assert [found[mirror] for found in verdicts] == [True, False]


def test_limits_are_looked_up_by_target_and_are_wider_for_an_estimated_variance():
    def row(family, transform, value):
        return {"target": "half-normal", "family": family, "transform": transform, "total_variation": value}

    rows = [row("lm-nc", "softplus", 0.0156), row("lm-nc-estimated", "softplus", 0.0156), row("lm-nc", "exp", 0.5)]
    found = [(row["family"], row["limit"], row["reached"]) for row in basic.limits_of(rows)]
    assert found == [("lm-nc", 0.0155, False), ("lm-nc-estimated", pytest.approx(0.01705), True)]


def test_ito_jumps_grow_without_bound_and_corv_noise_vanishes(results):
    for row in results.get("theorems/ito"):
        if row["family"] == "ito":
            assert row["jump"][0] > 1e10
        else:
            assert row["jump"][0] < 5 * math.sqrt(row["step_size"]) + 2 * row["step_size"]
    for row in results.get("theorems/corv"):
        assert row["sd"][0] < 1e-7
    spread = {row["transform"]: row["sd"][-1] for row in results.get("theorems/corv")}
    assert spread["softplus"] == pytest.approx(1, rel=0.1)
    assert spread["exp"] > 500


def test_all_methods_cover_every_transform_with_exp_as_the_control():
    names = {method.name for method in all_methods(GAMMA)}
    assert {f"corv-{t}" for t in ("softplus", "icll", "integrated_probit", "exp")} <= names
    assert {"mirror", "ito-exp", "lm-nc-integrated_probit", "lm-nc-estimated-softplus"} <= names
    for target in TARGETS.values():
        for method in all_methods(target):
            low, high = method.range
            assert high / low >= 1e4


def test_the_estimated_noise_variance_is_the_known_one():
    kernel = Method("lm-nc-estimated", "softplus").kernel(GAMMA)
    state = kernel.init(0.5)
    batches = jax.random.normal(jax.random.key(0), (4000, 2))

    def step(state, inputs):
        key, z = inputs
        state, _ = kernel.step(key, state, z, 1e-6)
        return state, None

    state, _ = jax.lax.scan(step, state, (jax.random.split(jax.random.key(1), 4000), batches))
    estimate = float(state.estimator.squares.value())
    assert estimate == pytest.approx(1.0, abs=0.4)  # over the last hundred steps
    known = ib.leimkuhler_matthews(kernel.posterior, "softplus", noise_correction=1.0)
    assert known != kernel


def test_a_chain_that_explodes_does_not_stop_the_others():
    target = TARGETS["half-normal"]
    chains = run_chains(Method("corv", "exp").kernel(target), target, np.array([0.01, 3.0]), 500, 50, 0)
    distance = distances.total_variation(chains.theta, target)
    assert np.isfinite(distance[0])
    assert not distance[1] < 0.9


def test_the_luckiest_trial_is_not_chosen_when_new_seeds_say_otherwise():
    trials = [
        {"number": i, "state": "complete", "value": value, "step_size": size}
        for i, (value, size) in enumerate([(0.1, 1e-3), (0.2, 1e-2), (0.9, 1e-1), (math.nan, 0.5)])
    ]
    found = TuningResult(0.1, {"step_size": 1e-3}, trials, {"step_size": LogUniform(1e-4, 1)}, "minimize", "x")
    truth = {1e-3: 0.5, 1e-2: 0.2, 1e-1: 0.9}
    chosen, loss = basic.confirm(found, lambda sizes: np.array([truth[s] for s in sizes]), batch=2, times=3)
    assert (chosen, loss) == (1e-2, pytest.approx(0.2))


def test_unknown_targets_are_refused_by_name():
    with pytest.raises(ValueError, match=r"Unknown target 'cauchy'.*half-normal"):
        basic.settings("smoke", 0, targets=("cauchy",))


def test_seeds_differ_by_use_and_not_by_run():
    assert seed_for(0, "tune", 1) == seed_for(0, "tune", 1)
    assert len({seed_for(s, use, i) for s in (0, 1) for use in ("tune", "fresh") for i in range(5)}) == 20
