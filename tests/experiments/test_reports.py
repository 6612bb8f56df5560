"""What an experiment reports: claims beside findings, as a chapter of a page and as Markdown."""

import re

import pytest

from experiments.pictures import log_log
from experiments.reports import Claim, Report, write_markdown, write_page
from inbounds.display import Section, Table, new_figure, save_picture


@pytest.fixture
def report(tmp_path):
    def draw(theme):
        figure, axes = new_figure(1, 1)
        axes[0, 0].plot([1, 2, 3], [1e-3, 1e-2, 1e-1], color=theme.colour("corv"))
        log_log(axes[0, 0], theme, "step size", "TV")
        return figure

    table = Table(("method", "TV"), [["a|b", 0.123456], ["<script>", None]], best=[0])
    sections = [
        Section(f"Figure {i}", "The line goes up.", save_picture(tmp_path / f"figure-{i}", draw), table, ["A note."])
        for i in range(2)
    ]
    claims = [Claim("It works.", "It does: 0.02.", True), Claim("It is fast.", "Not so.", False)]
    return Report("A title", "A lead.", sections, claims, [("seed", "0")])


def test_claims_come_after_the_first_picture_of_the_page(report, tmp_path):
    text = write_page(tmp_path / "report.html", [report]).read_text(encoding="utf-8")
    headings = re.findall(r"<h2 [^>]*>(.*?)</h2>", text)
    assert headings == ["Figure 0", "What the paper says, and what we find", "Figure 1"]
    assert '<td class="bad">does not hold</td>' in text


def test_markdown_puts_claims_beside_findings_and_copies_the_pictures(report, tmp_path):
    file = write_markdown(tmp_path / "docs", [report], "python -m experiments basic --scale full")
    text = file.read_text(encoding="utf-8")
    assert "| It is fast. | Not so. | does not hold |" in text
    assert "| **a\\|b** | **0.1235** |" in text
    for picture in re.findall(r"\((figures/[^)]+)\)", text):
        assert (file.parent / picture).stat().st_size > 1000
    assert "python -m experiments basic --scale full" in text
