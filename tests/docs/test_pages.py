"""The Python on the pages runs, and no page is too long."""

import re
from pathlib import Path

import numpy as np
import pytest

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

DOCS = Path(__file__).parents[2] / "docs"


def test_no_page_but_results_is_longer_than_1_200_words():
    pages = [page for page in DOCS.rglob("*.md") if not {"results", "reference"} & {*page.relative_to(DOCS).parts}]
    long = {page.name: words for page in pages if (words := len(page.read_text(encoding="utf-8").split())) > 1_200}
    assert len(pages) > 30
    assert long == {}


@pytest.mark.parametrize(
    ("page", "needs"),
    [
        ("data-from-disk.md", ("grain", "pyarrow")),
        ("extending.md", ()),
        ("geometry.md", ()),
        ("hierarchies.md", ()),
        ("infer.md", ("matplotlib", "orbax.checkpoint")),
        ("models-and-data.md", ("pandas",)),
        ("long-runs.md", ("orbax.checkpoint", "xarray", "zarr")),
        ("tuning-together.md", ("optuna",)),
    ],
)
def test_the_snippets_of_a_page_run_one_after_the_other(page, needs, tmp_path, monkeypatch):
    for module in needs:
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert snippets
    names: dict = {}
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)
    if page == "extending.md":
        assert (
            abs(names["draws"].theta["rate"].mean() - 402 / (spent := names["spent"].sum() + 2))
            < 0.1 * 402**0.5 / spent
        )
    if page == "geometry.md":
        assert names["draws"].warnings() == []
        assert min(row["ess"] for row in names["draws"].summary().rows) > 300
    if page == "long-runs.md":
        assert names["draws"].num_draws == 2_900
        assert names["posterior_so_far"].sizes["draw"] == 1_900
        assert names["last_hundred"].shape == (2, 100, 3)
    if page == "hierarchies.md":
        assert names["draws"].certificate.ok
        assert names["draws"].variables()["effect"].shape == (*names["draws"].theta["level"].shape, 40)
        assert np.all(np.abs(names["every"].mean["effect"][[3, 17]] - names["some"]["effect"].mean(axis=(0, 1))) < 0.05)
        assert names["again"].shape[2] == 3
    if page == "infer.md":
        assert names["draws"].certificate.ok
        assert names["draws"].certificate.reached <= 0.03
        assert names["by_hand"].theta["rate"].mean() == pytest.approx(names["draws"].certificate.mean["rate"], rel=0.01)
    if page == "models-and-data.md":
        assert names["posterior"].num_data == 1_000
        assert names["draws"].num_draws == 200
    if page == "data-from-disk.md":
        assert names["again"].num_data == names["rows"].num_data == 2_100
        assert abs(names["draws"].theta["weights"].mean() - 0.75) < 0.2
