"""The page: one file, every picture inside, and a browser that has nothing to complain of."""

import re
import shutil
import subprocess

import pytest

from inbounds.display import DARK, LIGHT, Chapter, Section, Table, Verdict, new_figure, save_picture, write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
)  # fmt: skip


@pytest.fixture
def chapter(tmp_path):
    def draw(theme):
        figure, axes = new_figure(1, 1)
        axes[0, 0].plot([1, 2, 3], [1e-3, 1e-2, 1e-1], color=theme.colour("corv"))
        return figure

    sections = [
        Section(
            f"Figure {i} <b>",
            "The line goes up & up.",
            save_picture(tmp_path / f"figure-{i}", draw),
            Table(("method", "TV"), [["a|b", 0.123456], ["<script>", None]], best=[0]),
            ["A note."],
        )
        for i in range(2)
    ]
    judged = Table(
        ("claim", ""), [("It works.", Verdict("holds", True)), ("It is fast.", Verdict("no", False))], prose=True
    )
    return Chapter("A title", "A lead.", [*sections, Section("Judged", "", table=judged)], [("seed", "0")])


def test_the_page_needs_no_other_file(chapter, tmp_path):
    text = write_page(tmp_path / "report.html", [chapter]).read_text(encoding="utf-8")
    assert text.count("<img ") == 2
    assert not re.search(r'(src|href|srcset)="(?!data:|#)', text)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_dark_picture_is_the_light_one_in_other_colours(chapter):
    stem = chapter.sections[0].figure
    light, dark = (stem.with_name(stem.name + end).read_text() for end in (".svg", "-dark.svg"))
    assert LIGHT.colour("corv") in light
    assert LIGHT.colour("corv") not in dark
    assert DARK.colour("corv") in dark
    assert DARK.paper in dark
    assert len(light) == len(dark)


def test_the_same_results_give_the_same_bytes(chapter, tmp_path):
    first = write_page(tmp_path / "one.html", [chapter]).read_bytes()
    assert write_page(tmp_path / "two.html", [chapter]).read_bytes() == first
    assert b"<dc:date>" not in chapter.sections[0].figure.with_suffix(".svg").read_bytes()


def test_a_verdict_is_coloured_and_sentences_may_break(chapter, tmp_path):
    text = write_page(tmp_path / "report.html", [chapter]).read_text(encoding="utf-8")
    assert '<table class="prose">' in text
    assert '<td class="good">holds</td>' in text
    assert '<td class="bad">no</td>' in text
    assert "<p></p>" not in text


def test_a_page_of_several_chapters_has_a_title_of_its_own(chapter, tmp_path):
    text = write_page(tmp_path / "report.html", [chapter, chapter], "Both").read_text(encoding="utf-8")
    assert "<title>Both</title>" in text
    assert re.findall("<h1>(.*?)</h1>", text) == ["Both", "A title", "A title"]
    anchors = re.findall(r'<h2 id="([^"]+)"', text)
    assert len(set(anchors)) == len(anchors) == 6


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_every_picture_without_a_word_on_the_console(chapter, tmp_path, scheme):
    page = write_page(tmp_path / "report.html", [chapter])
    # The page itself has no script; the copy asks the browser what it made of every picture.
    probe = (
        "<script>addEventListener('load', () => document.body.setAttribute('data-widths', "
        "[...document.images].map(i => i.complete ? i.naturalWidth : 0).join(' ') + ' wide ' + "
        "(document.documentElement.scrollWidth > innerWidth)))</script>"
    )
    copy = tmp_path / "probed.html"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", probe + "</body>"), encoding="utf-8")
    dark = ["--force-dark-mode"] if scheme == "dark" else []
    done = subprocess.run(
        [
            CHROMIUM,
            *FLAGS,
            *dark,
            "--window-size=420,900",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    widths, _, too_wide = re.search(r'data-widths="([^"]*)"', done.stdout)[1].partition(" wide ")
    assert len(widths.split()) == 2
    assert all(int(width) > 100 for width in widths.split())
    assert too_wide == "false", "on a phone the page scrolls sideways"
    assert "CONSOLE" not in done.stderr
