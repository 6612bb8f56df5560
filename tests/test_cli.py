"""The command line: it teaches, refuses what does not fit, survives Ctrl-C, and makes pages of what is there."""

import platform
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

from inbounds import cli
from inbounds.paper import EXPERIMENTS, basic
from inbounds.paper.results import Results
from inbounds.paper.targets import TARGETS

GAMMA = TARGETS["gamma-0.5-0.5"]


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)))


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


def test_help_teaches_every_command():
    text = invoke("--help").output
    assert "inbounds demo" in text
    for command in ("demo", "paper", "report", "tune"):
        assert command in text
    for name in EXPERIMENTS:
        assert name in invoke("paper", "--help").output


def test_the_version_is_shown():
    assert invoke("--version").output.startswith("inbounds ")


ENDLESS = """
import signal, sys
from inbounds import cli

@cli.app.command()
def endless():
    while True:
        signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["inbounds", "endless"]
cli.main()
"""


def test_ctrl_c_ends_every_command_with_its_status():
    ended = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "inbounds: stopped\n")


def test_importing_the_library_loads_neither_plots_nor_command_line():
    code = "import sys, inbounds; print([m for m in ('typer', 'matplotlib', 'optuna', 'inbounds.paper') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_loads_an_experiment_only_when_it_runs():
    code = "import sys, inbounds.cli; print('matplotlib' in sys.modules, 'inbounds.paper.basic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "False False"


@pytest.fixture
def jax_told(monkeypatch, tmp_path):
    """JAX as a user has it who never set a cache; as it was afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path / "inbounds" / "compiled" / platform.node()
    for name, value in before.items():
        jax.config.update(name, value)


def test_what_a_command_compiles_is_kept_in_the_users_cache(jax_told):
    cli.keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(jax_told)
    assert jax_told.is_dir()


def test_a_user_who_told_jax_where_to_keep_it_is_heard(jax_told):
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    cli.keep_compiled()
    assert jax.config.jax_compilation_cache_dir == "elsewhere"


def test_a_user_without_a_home_gets_none(jax_told, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # as good as not set: never the folder that one is in
    monkeypatch.setenv("LOCALAPPDATA", "")

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    cli.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None


def test_a_user_who_wants_no_cache_gets_none(jax_told):
    jax.config.update("jax_enable_compilation_cache", False)
    cli.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None


def test_a_home_that_cannot_be_written_to_is_no_error(jax_told):
    jax_told.parent.parent.write_text("in the way")
    cli.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None


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
    table = cli.demo_table(Results.load(folder))
    assert "independent draws: 0.0080" in table
    assert "CoRV softplus" in table
    assert "1.0 M" in table


def test_ctrl_c_leaves_a_page_and_says_how_to_go_on(folder, monkeypatch):
    def stopped(results, say):
        raise KeyboardInterrupt

    monkeypatch.setattr(basic, "run", stopped)
    done = invoke("paper", "basic", "--scale", "smoke", "--target", GAMMA.name, "--out", folder)
    assert done.exit_code == 130
    assert "goes on from here" in done.output
    assert (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "/nowhere/at/all"], "There is no folder"),
        (["paper", "basic", "--target", "cauchy"], "Unknown target 'cauchy'"),
        (["tune", "loss"], "expected FILE:FUNCTION"),
        (["tune", "nowhere.py:loss"], "there is no file nowhere.py"),
    ],
)
def test_what_the_user_can_put_right_is_one_line(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["inbounds", *arguments])
    with pytest.raises(SystemExit) as error:
        cli.main()
    assert error.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_a_fit_that_could_not_be_written_is_not_begun(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    out.write_text("a file")
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("user,item,rating\n" + "".join(f"{k % 7},{k % 5},{k % 4 + 1}\n" for k in range(35)))
    monkeypatch.setattr(sys, "argv", ["inbounds", "nmf", "fit", str(ratings), "--out", str(out)])
    with pytest.raises(SystemExit) as error:
        cli.main()
    assert error.value.code == 2
    assert str(out) in capsys.readouterr().err


def test_an_unknown_scale_is_refused_with_the_known_ones():
    done = invoke("paper", "basic", "--scale", "huge")
    assert done.exit_code == 2
    assert "laptop" in done.output


def test_other_results_in_the_folder_are_not_overwritten(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["inbounds", "paper", "weak-error", "--scale", "smoke", "--out", str(folder)])
    with pytest.raises(SystemExit):
        cli.main()
    assert "--restart" in capsys.readouterr().err


def test_tune_searches_the_step_size_of_a_function_in_a_file(tmp_path):
    file = tmp_path / "loss.py"
    file.write_text("import math\ndef loss(step_size):\n    return (math.log10(step_size) + 2) ** 2\n")
    done = invoke("tune", f"{file}:loss", "--low", 1e-4, "--high", 1, "--trials", 15)
    assert done.exit_code == 0
    assert "step_size=" in done.output


def test_a_search_in_which_everything_diverged_is_one_line(tmp_path, monkeypatch, capsys):
    file = tmp_path / "model.py"
    file.write_text("def loss(step_size):\n    return float('nan')\n")
    monkeypatch.setattr(sys, "argv", ["inbounds", "tune", f"{file}:loss", "--trials", "2"])
    with pytest.raises(SystemExit) as error:
        cli.main()
    assert error.value.code == 2
    assert "none of the 2 trials" in capsys.readouterr().err
