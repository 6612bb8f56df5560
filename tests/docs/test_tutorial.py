"""The tutorial notebooks run from their first cell to their last. `python docs/tutorials/run.py --check` runs all of them in full."""

import json
from pathlib import Path

import pytest

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = [DOCS / "tutorial.ipynb", *sorted((DOCS / "tutorials").glob("*.ipynb"))]


def cells(file):
    return json.loads(file.read_text(encoding="utf-8"))["cells"]


def run(file, smaller):
    """The names that its cells leave, with other numbers in their code."""
    names, used = {"__name__": "__main__"}, set()
    for number, cell in enumerate(cells(file)):
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            for here, there in smaller.items():
                if here in code:
                    code = code.replace(here, there)
                    used.add(here)
            exec(compile(code, f"cell {number} of {file.name}", "exec"), names)
    assert used == set(smaller)
    return names


SMALLER = {
    "num_steps=6_000": "num_steps=1_500",
    "burn_in=1_000": "burn_in=500",
    "num_chains=4": "num_chains=2",
    "most=800": "most=100",
}  # the numbers of the stored notebook take longer


def test_every_cell_of_the_tutorial_runs():
    names = run(DOCS / "tutorial.ipynb", SMALLER)
    assert names["report"].ok
    assert names["draws"].theta["effects"].min() > 0
    assert abs(float(names["predicted"]["total"].mean()) - 3.02) < 0.2


def test_the_tutorial_of_ratings_runs_small():
    smaller = {'**ib.data.MOVIELENS_SHAPES["100k"]': "300, 400, 20_000", "rank=20": "rank=2, iterations=100"}
    names = run(DOCS / "tutorials" / "ratings.ipynb", smaller)
    assert (names["low"] < names["high"]).all()
    assert len(names["shown"]) == 5


def test_the_tutorial_of_topics_runs_small():
    names = run(
        DOCS / "tutorials" / "topics.ipynb",
        {
            "3_000": "300",
            "[:2_500]": "[:250]",
            "[2_500:]": "[250:]",
            "max_iter=100": "max_iter=20",
            "batch_size=500": "batch_size=125",
        },
    )
    assert names["model"].perplexity(names["test"]) < names["rival"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_tutorial_is_stored_with_its_results_and_small(file):
    outputs = [cell["outputs"] for cell in cells(file) if cell["cell_type"] == "code"]
    assert sum(bool(output) for output in outputs) >= 3
    assert not any(part["output_type"] == "error" for output in outputs for part in output)
    assert file.stat().st_size < 300_000
    listed = (DOCS / "tutorials.md").read_text(encoding="utf-8")
    assert str(file.relative_to(DOCS)) in listed
