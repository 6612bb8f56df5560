"""The tutorial notebook runs from its first cell to its last."""

import json
from pathlib import Path

import pytest

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


def cells():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


SMALLER = {
    "num_steps=6_000": "num_steps=1_500",
    "burn_in=1_000": "burn_in=500",
    "num_chains=4": "num_chains=2",
    "most=800": "most=100",
}  # the numbers of the stored notebook take longer


def test_every_cell_of_the_tutorial_runs():
    names, used = {"__name__": "__main__"}, set()
    for number, cell in enumerate(cells()):
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            for here, there in SMALLER.items():
                if here in code:
                    code = code.replace(here, there)
                    used.add(here)
            exec(compile(code, f"cell {number} of {NOTEBOOK.name}", "exec"), names)
    assert used == set(SMALLER)
    assert names["report"].ok
    assert names["draws"].theta["effects"].min() > 0
    assert abs(float(names["predicted"]["total"].mean()) - 3.02) < 0.2


def test_the_tutorial_is_stored_with_its_results():
    outputs = [cell["outputs"] for cell in cells() if cell["cell_type"] == "code"]
    assert sum(bool(output) for output in outputs) >= 6
    assert not any(part["output_type"] == "error" for output in outputs for part in output)
