"""The command line: it teaches, and refuses what does not fit."""

import platform
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

from inbounds import cli


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)))


def test_help_teaches_every_command():
    text = invoke("--help").output
    for command in ("check", "tune", "nmf", "data"):
        assert command in text
    for command in ("fit", "predict", "recommend"):
        assert command in invoke("nmf", "--help").output


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
    code = "import sys, inbounds; print([m for m in ('typer', 'matplotlib', 'optuna') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_loads_plots_only_when_it_draws():
    code = "import sys, inbounds.cli; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "False"


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nmf", "recommend", "/nowhere/at/all", "1"], "there is no model at"),
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
