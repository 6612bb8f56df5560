"""The binary network experiment: what is measured, how it resumes, and what its page says."""

import itertools
import json

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import binary_network as bn
from experiments.binary_network_page import LOOKS, claims_of, page
from experiments.comparison import SETS
from experiments.reports import write_markdown, write_page
from experiments.results import Results

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

NOTHING = lambda line: None  # noqa: E731
QUALITY = {name: 0.30 - 0.01 * place for place, name in enumerate(bn.METHODS)} | {
    "mirror": 0.45,
    "ito": 2.0,
    "ito-bare": 2.0,
}


def _pretend(self, method, step_sizes, epochs, seed, check=NOTHING):
    """Curves that fall from 2 to the method's quality, best where the log step is in the middle of its range."""
    steps = np.asarray(step_sizes, float)
    middle = np.sqrt(method.low * method.high)
    worse = 0.02 * np.abs(np.log(steps / middle))
    falling = 2 * np.exp(-np.arange(1, epochs + 1) / 2)
    noise = 0.001 * np.random.default_rng(seed).normal(size=(len(steps), 1))
    loss = QUALITY[method.name] + worse[:, None] + noise + falling[None]
    curve = np.zeros((len(steps), epochs, len(SETS), len(bn.METRICS)))
    for place, name in enumerate(bn.METRICS):
        value = 1 - loss / 4 if name.endswith("accuracy") else loss
        curve[..., place] = (value + (0.1 if name.startswith("single") else 0.0))[:, :, None]
    if method.name == "ito-bare":
        curve[len(steps) // 2 :] = np.nan
    _pretend.calls.append((method.name, len(steps), epochs))
    return {"curve": curve, "clamped": np.full((len(steps), epochs), 0.01), "seconds": 0.1}


def _run(folder, monkeypatch, **changes):
    _pretend.calls = []
    monkeypatch.setattr(bn.NetworkBench, "run", _pretend)
    small = {"epochs": 12, "rows": 500, "logit_scales": (5.0, 10.0)}
    results = Results.open(folder, bn.NAME, bn.settings("smoke", 0, **small | changes))
    bn.run(results, NOTHING)
    return results


def test_every_stage_is_run_and_kept(tmp_path, monkeypatch):
    results = _run(tmp_path, monkeypatch)
    parts = results.parts()
    assert {f"final/{name}" for name in bn.METHODS} <= set(parts)
    assert {f"prior/{prior}/{name}" for prior in ("0.5", "2") for name in bn.SENSITIVE} <= set(parts)
    assert {"ito", "scale/5/mirror", "scale/10/sigmoid"} <= set(parts)
    # Every call has as many chains as every other: the searches and the final runs share a compiled program.
    assert {chains for _, chains, _ in _pretend.calls} == {2}


def test_running_again_computes_nothing(tmp_path, monkeypatch):
    _run(tmp_path, monkeypatch)
    _run(tmp_path, monkeypatch)
    assert _pretend.calls == []


def test_the_search_by_tpe_finds_the_middle_and_resumes(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    _pretend.calls = []
    monkeypatch.setattr(bn.NetworkBench, "run", _pretend)
    settings = bn.settings("smoke", 0, search="tpe", trials=30, chains=5, rows=500)
    results = Results.open(tmp_path, bn.NAME, settings)
    bn.run(results, NOTHING, methods=["sigmoid"], stages=["main"])
    found = results.get("tune/sigmoid")
    assert len(found["losses"]) == 30
    assert 1e-4 < found["best_step_size"] < 1e-2
    assert not found["at_edge"]
    assert _pretend.calls.count(("sigmoid", 5, 2)) == 6  # six rounds of five, then the final run
    (tmp_path / "parts" / "tune" / "sigmoid.json").unlink()
    _pretend.calls.clear()
    bn.run(Results.open(tmp_path, bn.NAME, settings), NOTHING, methods=["sigmoid"], stages=["main"])
    assert _pretend.calls == []  # the trials were in the study's journal


def test_the_page_sets_the_claims_beside_the_numbers(tmp_path, monkeypatch):
    results = _run(tmp_path, monkeypatch)
    report = page(results)
    titles = [section.title for section in report.sections]
    assert titles[:3] == ["Loss and accuracy against epochs", "All methods", "The search for the step size"]
    assert {"The logit scale", "The effect of the prior", "Ito"} <= set(titles)
    verdicts = {claim.claim.split()[0]: claim.holds for claim in report.claims}
    assert verdicts["CoRV"] is True
    assert verdicts["Ours:"] is True
    assert (tmp_path / "figures" / "synthetic-curves.svg").exists()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {row["method"] for row in summary["rows"] if row["stage"] == "final"} == set(bn.METHODS)
    assert "binary networks" in write_page(tmp_path / "report.html", [report]).read_text()
    assert "What the paper says" in write_markdown(tmp_path / "docs", [report], "inbounds").read_text()


def test_claims_do_not_hold_when_the_numbers_say_otherwise(tmp_path, monkeypatch):
    monkeypatch.setitem(QUALITY, "mirror", 0.1)
    results = _run(tmp_path, monkeypatch)
    claims = {claim.claim.split()[0]: claim for claim in claims_of(results, bn.summarise(results))}
    assert claims["CoRV"].holds is False
    assert "never" in claims["The"].found or claims["The"].holds is not None


def test_a_page_of_nothing_and_of_some_parts_can_be_made(tmp_path, monkeypatch):
    results = Results.open(tmp_path, bn.NAME, bn.settings("smoke", 0, rows=500))
    assert page(results).sections == []
    _pretend.calls = []
    monkeypatch.setattr(bn.NetworkBench, "run", _pretend)
    bn.run(results, NOTHING, methods=["mirror"], stages=["main"])
    assert len(page(results).sections) == 3


def test_every_method_has_a_look_and_four_decades():
    assert set(LOOKS) == set(bn.METHODS)
    for method in (*bn.METHODS.values(), bn.ITO):
        assert method.high / method.low >= 0.99e4


def test_a_tuned_method_learns_in_compiled_epochs(tmp_path):
    settings = bn.settings("smoke", 0, rows=1_500, trials=2, epochs=6, tuning_epochs=6, priors=())
    results = Results.open(tmp_path, bn.NAME, settings)
    bn.run(results, NOTHING, methods=["probit-baoab"], stages=["main"])
    final = results.get("final/probit-baoab")
    loss = np.asarray(final["test"]["loss"])
    assert loss.shape == (2, 6)
    assert np.all(loss[:, -1] < 0.7 * loss[:, 0])
    assert bn.at_end(final, "accuracy")[0] > 0.6
    # Averaged over the epochs the binary networks are better than the latest one alone.
    assert bn.at_end(final, "loss")[0] < bn.at_end(final, "single_loss")[0]


def test_calibration_error_is_the_distance_of_confidence_and_accuracy():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 400)
    y = rng.integers(0, 4, 400)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.linspace(0, 1, bn.BINS + 1)
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert float(bn.calibration_error(jnp.asarray(p), jnp.asarray(y))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"), [({"dataset": "cats"}, "Unknown data set"), ({"scale": "huge"}, "Unknown scale")]
)
def test_unknown_names_list_the_known_ones(wrong, message):
    with pytest.raises(ValueError, match=message):
        bn.settings(**{"scale": "smoke", "seed": 0} | wrong)


def test_unknown_methods_and_stages_are_refused(tmp_path):
    results = Results.open(tmp_path, bn.NAME, bn.settings("smoke", 0))
    with pytest.raises(ValueError, match="Unknown method 'cats'"):
        bn.run(results, NOTHING, methods=["cats"])
    with pytest.raises(ValueError, match="Unknown stage 'cats'"):
        bn.run(results, NOTHING, stages=["cats"])
