"""The tutorial notebook runs from its first cell to its last."""

import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


def cells():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def test_every_cell_of_the_tutorial_runs():
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells()):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number} of {NOTEBOOK.name}", "exec"), names)
    assert names["report"].ok
    assert names["draws"].theta["effects"].min() > 0
    assert abs(float(names["predicted"]["total"].mean()) - 3.02) < 0.2


def test_the_tutorial_is_stored_with_its_results():
    outputs = [cell["outputs"] for cell in cells() if cell["cell_type"] == "code"]
    assert sum(bool(output) for output in outputs) >= 6
    assert not any(part["output_type"] == "error" for output in outputs for part in output)
