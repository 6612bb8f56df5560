"""`make lowest` tries the versions that pyproject.toml names, and no others."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PART_OF_JAX = "jaxlib"


def test_the_lowest_versions_are_those_that_are_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(line for name, lines in extras.items() if name not in ("dev", "docs") for line in lines),
    ]
    named = [line for line in lines if "python_version >" not in line]  # not installed with the oldest Python
    bounds = dict(re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line).groups() for line in named if ">=" in line)
    assert len(bounds) > 10
    pins = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "tests" / "lowest.txt").read_text(), re.MULTILINE))
    assert pins.pop(PART_OF_JAX) == pins["jax"]
    for name, bound in bounds.items():
        assert f"{pins[name]}.".startswith(f"{bound}."), (
            f"{name}: {bound} in pyproject.toml, {pins[name]} in lowest.txt"
        )
