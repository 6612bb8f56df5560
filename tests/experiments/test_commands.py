"""`python -m experiments`: it teaches, refuses what does not fit, survives Ctrl-C, and makes pages of what is there."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import EXPERIMENTS, basic
from experiments import __main__ as commands
from experiments.results import Results
from experiments.targets import TARGETS

GAMMA = TARGETS["gamma-0.5-0.5"]
ROOT = Path(__file__).parents[2]


def invoke(*arguments):
    return CliRunner().invoke(commands.app, list(map(str, arguments)))


def fake_part(method, family, transform, value):
    chains = [
        {
            "seed": 1, "chain": i, "total_variation": value + i * 1e-4, "kolmogorov_smirnov": 0.01, "wasserstein1": 0.01,
            "mean": 0.25, "second_moment": 0.19, "restarts": 0.0,
        }
        for i in range(4)
    ]  # fmt: skip
    return {
        "target": GAMMA.name, "method": method, "family": family, "transform": transform, "step_size": 0.1,
        "range": [1e-4, 1.0], "edge": "high" if family == "mirror" else "", "tuned_loss": value, "confirmed_loss": value,
        "trials": [{"step_size": 0.1, "loss": value}, {"step_size": 0.2, "loss": None}], "chains": chains,
        "histogram": [0.01] * 100, "seconds": 1.0, "steps_per_second": 1e6,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Results as a run leaves them, without the run."""
    results = Results.open(tmp_path / "run", "basic", basic.settings("smoke", 0, targets=(GAMMA.name,)))
    results.save(f"floor/{GAMMA.name}", {"total_variation": [0.008] * 4, "kolmogorov_smirnov": [0.003] * 4})
    for part in (fake_part("mirror", "mirror", None, 0.5), fake_part("corv-softplus", "corv", "softplus", 0.02)):
        results.save(f"{GAMMA.name}/{part['method']}", part)
    return results.path


def fresh(*arguments):
    """What Python prints in a process of its own, at the root of the repository."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True).stdout


def test_help_teaches_every_command():
    text = fresh("-m", "experiments", "--help")
    for command in ("demo", "report", "all", *EXPERIMENTS):
        assert f" {command} " in text
    assert "python -m experiments demo" in text


def test_the_commands_load_an_experiment_only_when_it_runs():
    code = "import sys, experiments.__main__; print('matplotlib' in sys.modules, 'experiments.basic' in sys.modules)"
    assert fresh("-c", code).strip() == "False False"


def test_a_page_is_made_of_results_that_are_not_finished(folder):
    done = invoke("report", folder)
    assert done.exit_code == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<img ") == 3
    assert "0.0201" in page
    assert str(folder / "report.html") in done.output


def test_docs_are_generated_with_summary_pictures_and_environment(folder, tmp_path):
    docs = tmp_path / "docs"
    assert invoke("report", folder, "--docs", docs).exit_code == 0
    text = (docs / "README.md").read_text(encoding="utf-8")
    assert "Mirror fails where the density is high at its bounds." in text
    assert "mirror 0.5001, CoRV softplus 0.0201" in text
    assert "at the end of its range" in text
    assert "| jax |" in text
    assert (docs / "basic-summary.json").exists()
    assert len(list((docs / "figures").glob("*.png"))) == 3


def test_one_page_holds_the_results_of_all_subfolders(folder):
    Results.open(folder.parent / "other", "basic", basic.settings("smoke", 1))
    assert invoke("report", folder.parent).exit_code == 0
    page = (folder.parent / "report.html").read_text(encoding="utf-8")
    assert page.count("<h1>") == 3
    assert page.count("<img ") == 3


def test_the_demo_table_shows_distance_time_and_speed(folder):
    table = commands.demo_table(Results.load(folder))
    assert "independent draws: 0.0080" in table
    assert "CoRV softplus" in table
    assert "1.0 M" in table


def test_ctrl_c_leaves_a_page_and_says_how_to_go_on(folder, monkeypatch):
    def stopped(results, say):
        raise KeyboardInterrupt

    monkeypatch.setattr(basic, "run", stopped)
    done = invoke("basic", "--scale", "smoke", "--target", GAMMA.name, "--out", folder)
    assert done.exit_code == 130
    assert "goes on from here" in done.output
    assert (folder / "report.html").exists()


def test_an_unknown_scale_is_refused_with_the_known_ones():
    done = invoke("basic", "--scale", "huge")
    assert done.exit_code == 2
    assert "laptop" in done.output


def test_other_results_in_the_folder_are_not_overwritten(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["experiments", "weak-error", "--scale", "smoke", "--out", str(folder)])
    with pytest.raises(SystemExit):
        commands.main()
    assert "--restart" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "/nowhere/at/all"], "There is no folder"),
        (["basic", "--target", "cauchy"], "Unknown target 'cauchy'"),
    ],
)
def test_what_the_user_can_put_right_is_one_line(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["experiments", *arguments])
    with pytest.raises(SystemExit) as error:
        commands.main()
    assert error.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
