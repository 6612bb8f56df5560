"""Environments of their own for peers that do not run on current JAX, or bring another library: made once, under `.bench/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".bench"


class UnavailableError(Exception):
    """A contestant that cannot run here, and why."""


def python_of(environment: str | None) -> Path:
    """The interpreter of an environment; None is the one that runs the benchmark."""
    if environment is None:
        return Path(sys.executable)
    folder = FOLDER / environment
    if not (folder / "installed").exists():
        raise UnavailableError(f"{environment} is not installed: run with --set-up, or see what it said there")
    return folder / "bin" / "python"


def pinned() -> dict[str, str]:
    """Versions of the peers that have environments of their own, and what they run on."""
    found = {}
    for requirements in sorted((HERE / "requirements").glob("*.txt")):
        lines = [line.split("==") for line in requirements.read_text().splitlines() if "==" in line]
        (name, version), *others = lines
        on = next(f"{other} {number}" for other, number in others if other in ("jax", "torch"))
        found[name] = f"{version} (on {on})"
    return found


def set_up(environments: list[str]) -> None:
    """Make what is missing; an environment that cannot be made is told of, and its contestant stays out of the table."""
    for environment in environments:
        folder, requirements = FOLDER / environment, HERE / "requirements" / f"{environment}.txt"
        marker = folder / "installed"
        if marker.exists() and marker.read_text() == requirements.read_text():
            continue
        print(f"setting up {environment}", file=sys.stderr, flush=True)
        python = folder / "bin" / "python"
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", requirements], check=True)
        except subprocess.CalledProcessError as error:
            print(f"  {environment} cannot be installed: {error}", file=sys.stderr, flush=True)
            continue
        marker.write_text(requirements.read_text())  # last, so that an interrupted install is repeated
