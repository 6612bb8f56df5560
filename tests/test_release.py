"""What a release says of itself is true, and what is no part of one is found."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import inbounds as ib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_stands_in_one_place_and_others_agree_with_it():
    assert "version" in PROJECT["dynamic"]
    citation = (ROOT / "CITATION.cff").read_text()
    (cited,) = re.findall(r"^version: (\S+)$", citation, re.MULTILINE)
    assert cited == ib.__version__
    (date,) = re.findall(r'^date-released: "(.+)"$', citation, re.MULTILINE)
    assert f"## [{ib.__version__}] - {date}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert f'version: "{ib.__version__}"' in (ROOT / "release/conda/recipe.yaml").read_text()


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "release/conda/recipe.yaml").read_text())
    run = [line.replace(" ", "") for line in recipe["requirements"]["run"] if not line.startswith("python ")]
    assert sorted(run) == sorted(PROJECT["dependencies"])
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]


def test_the_workflows_and_templates_are_yaml_and_run_what_the_makefile_has():
    yaml = pytest.importorskip("yaml")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    files = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(files) >= 6
    for file in files:
        found = yaml.safe_load(file.read_text())
        for job in found.get("jobs", {}).values():
            for step in job["steps"]:
                for target in re.findall(r"^make ([\w-]+)$", step.get("run", ""), re.MULTILINE):
                    assert target in targets, f"{file.name} runs `make {target}`"


def test_the_pythons_that_are_tested_are_those_that_are_named():
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    tested = (ROOT / ".github/workflows/tests.yml").read_text()
    (matrix,) = re.findall(r"python: \[(.+)\]", tested)
    assert set(re.findall(r"[\d.]+", matrix)) == named


@pytest.mark.parametrize(
    ("member", "size", "complaint"),
    [
        ("inbounds/space.py", 10, None),
        ("docs/results/overview.png", 10, "no part of a release"),
        ("tests/test_release.py", 10, "no part of a release"),
        ("inbounds/table.bin", 1_200_000, "are allowed"),
    ],
)
def test_a_wheel_that_is_too_large_or_holds_a_picture_is_refused(member, size, complaint, tmp_path):
    needed = ("inbounds/py.typed", "inbounds/__init__.py", "LICENSE")
    with zipfile.ZipFile(tmp_path / "inbounds-0-py3-none-any.whl", "w") as wheel:
        for name in needed:
            wheel.writestr(name, "")
        wheel.writestr(member, bytes(size))  # stored as it is
    with tarfile.open(tmp_path / "inbounds-0.tar.gz", "w:gz") as sdist:
        for name in needed:
            sdist.addfile(tarfile.TarInfo(f"inbounds-0/src/{name}"))
    command = [sys.executable, ROOT / "release/check.py", tmp_path, "--contents"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == (complaint is None)
    assert complaint is None or complaint in done.stderr


SHIM = "echo 'pyenv: command not found' >&2; exit 127"


def pythons(folder, programs, *arguments):
    """What release/pythons says on a machine whose Pythons are these shell scripts: (status, lines, complaint)."""
    names = [*(f"python3.{minor}" for minor in range(11, 14)), "python3", "python"]
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\n{programs.get(name, SHIM)}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.defpath}", "PYENV_ROOT": str(folder), "HOME": str(folder)}
    command = ["sh", str(ROOT / "release/pythons"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def answering(version):
    """A Python of this version: it is asked with `-c PROGRAM VERSION ...`, and prints where it is."""
    return f'if [ "$3" = {version} ]; then echo /of/{version}; fi'


def test_a_shim_that_does_not_run_is_no_python(tmp_path):
    status, found, _ = pythons(tmp_path, {"python3": f'exec "{sys.executable}" "$@"'})
    assert (status, found) == (0, [sys.executable])


def test_the_oldest_and_the_newest_python_are_of_the_versions_that_are_supported(tmp_path):
    programs = {"python3.11": answering("3.11"), "python3.12": answering("3.12"), "python3": answering("newer")}
    assert pythons(tmp_path, programs)[1] == ["/of/3.11", "/of/3.12"]
    assert pythons(tmp_path, programs, "--oldest")[1] == ["/of/3.11"]
    assert pythons(tmp_path, programs, "--newest")[1] == ["/of/3.12"]
    assert pythons(tmp_path, {"python3": answering("newer")}, "--newest")[1] == ["/of/newer"]


def test_a_machine_without_a_python_is_told_so(tmp_path):
    status, found, complaint = pythons(tmp_path, {})
    assert status != 0
    assert found == []
    assert "3.11, 3.12, 3.13" in complaint
    assert "PYTHON=" in complaint
