"""One HTML file that needs nothing else: pictures embedded, light and dark, readable on a phone."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from inbounds.display.tables import escape

__all__ = ["Chapter", "Section", "Table", "Verdict", "cell", "write_page"]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --soft: #59636e; --line: #d8dee4; --band: #f5f7f9;
  --accent: #0b62a8; --good: #1a7f37; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --paper: #14171a; --soft: #9aa4af; --line: #343b43;
  --band: #1c2126; --accent: #6cb6ff; --good: #57c76c; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.25rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .5rem; }
h2 { font-size: 1.25rem; line-height: 1.25; margin: 2.5rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
.lead, .note { color: var(--soft); }
.note { font-size: .9rem; }
figure { margin: .8rem 0; }
img { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
@media (max-width: 34rem) { .scroll img { min-width: 34rem; } body { font-size: .97rem; } }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; min-width: 60%; }
caption, th { text-align: left; }
th, td { padding: .28rem .65rem .28rem 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; }
tr.best td { font-weight: 700; }
table.prose td, table.prose th { white-space: normal; text-align: left; vertical-align: top; min-width: 9rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
details { margin: 2.5rem 0; border-top: 1px solid var(--line); padding-top: .8rem; }
summary { cursor: pointer; color: var(--accent); }
nav a { color: var(--accent); margin-right: .9rem; display: inline-block; padding: .15rem 0; }
@media (max-width: 34rem) { table.prose thead { display: none; } table.prose tr, table.prose td { display: block; }
  table.prose tr { border-bottom: 1px solid var(--line); padding: .5rem 0; } table.prose td { border: 0; padding: .1rem 0; }
  table.prose td:first-child { font-weight: 600; } }
"""


class Verdict(NamedTuple):
    """A cell that says whether something is as it should be: `good` is None where that is open.

    Example:
        >>> ib.display.Verdict("within 0.05", True).good
        True
    """

    text: str
    good: bool | None


@dataclass
class Table:
    """Rows of cells under column names; a cell is text, a number or a `Verdict`.

    Args:
        columns: their names.
        rows: as many cells each.
        best: rows to set in bold, by number.
        prose: whether cells are sentences, which may take several lines, and not numbers.

    Example:
        >>> table = ib.display.Table(("name", "mean"), [("rate", 0.5)])
        >>> len(table.rows)
        1
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    best: Sequence[int] = ()
    prose: bool = False


@dataclass
class Section:
    """A figure with one sentence that says what to see, and a table under it.

    Args:
        title: the heading.
        see: one sentence: what the figure shows.
        figure: path of the picture without its ending; `.svg`, `-dark.svg` and `.png` lie there. None: no picture.
        table: under the figure.
        notes: short remarks under the table.

    Example:
        >>> ib.display.Section("Rates", "They lie above 0.").notes
        ()
    """

    title: str
    see: str
    figure: Path | None = None
    table: Table | None = None
    notes: Sequence[str] = ()


@dataclass
class Chapter:
    """A part of a page.

    Args:
        title: the heading.
        lead: a short paragraph on what was done.
        sections: the figures and tables.
        facts: how and on what the numbers were made, in pairs.

    Example:
        >>> ib.display.Chapter("Rates", "What was drawn.", [ib.display.Section("Rates", "They lie above 0.")]).title
        'Rates'
    """

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = field(default_factory=list)


def cell(value: Any) -> str:
    """A cell as text: four significant digits, a dash for what is missing.

    Args:
        value: a number, a truth value, a `Verdict`, text or None.

    Returns:
        Text.

    Example:
        >>> ib.display.cell(0.123456), ib.display.cell(12_345), ib.display.cell(None)
        ('0.1235', '12,345', '–')
    """
    if isinstance(value, Verdict):
        return value.text
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def write_page(path: Path, chapters: Sequence[Chapter], title: str = "") -> Path:
    """Write one page with all the chapters.

    Args:
        path: the file to write.
        chapters: in order.
        title: of the page; that of its chapter where there is only one.

    Returns:
        The file.

    Example:
        >>> from pathlib import Path
        >>> chapter = ib.display.Chapter("Rates", "What was drawn.", [ib.display.Section("Rates", "They lie above 0.")])
        >>> page = ib.display.write_page(Path("rates.html"), [chapter])
        >>> "They lie above 0." in page.read_text(encoding="utf-8")
        True
    """
    alone = len(chapters) == 1
    head = "" if alone else f"<h1>{escape(title)}</h1>"
    body = "".join(_chapter(chapter, prefix=f"r{i}") for i, chapter in enumerate(chapters))
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(chapters[0].title if alone else title)}</title>\n"
        f'<link rel="icon" href="data:,">\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n{head}{body}</main>\n</body>\n</html>\n"
    )
    path = Path(path)
    path.write_text(text, encoding="utf-8")
    return path


def _chapter(chapter: Chapter, prefix: str) -> str:
    anchors = [f"{prefix}s{i}" for i in range(len(chapter.sections))]
    links = "".join(
        f'<a href="#{anchor}">{escape(section.title)}</a>'
        for anchor, section in zip(anchors, chapter.sections, strict=True)
    )
    body = "".join(map(_section, chapter.sections, anchors))
    facts = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in chapter.facts)
    made = f'<details><summary>How this was made</summary><div class="scroll"><table>{facts}</table></div></details>'
    return (
        f'<h1>{escape(chapter.title)}</h1>\n<p class="lead">{escape(chapter.lead)}</p>\n<nav>{links}</nav>\n'
        f"{body}{made if facts else ''}\n"
    )


def _section(section: Section, anchor: str) -> str:
    parts = [f'<section>\n<h2 id="{anchor}">{escape(section.title)}</h2>\n']
    if section.see:
        parts.append(f"<p>{escape(section.see)}</p>\n")
    if section.figure is not None:
        parts.append(_picture(section, section.figure))
    if section.table is not None:
        parts.append(f'<div class="scroll">{_table(section.table)}</div>\n')
    parts += [f'<p class="note">{escape(note)}</p>\n' for note in section.notes]
    return "".join(parts) + "</section>\n"


def _picture(section: Section, stem: Path) -> str:
    light, dark = (_data_uri(stem.with_name(stem.name + end)) for end in (".svg", "-dark.svg"))
    return (
        '<figure class="scroll"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{escape(section.title)}: {escape(section.see)}">'
        "</picture></figure>\n"
    )


def _data_uri(file: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode("ascii")


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(
        ('<tr class="best">' if i in table.best else "<tr>") + "".join(map(_cell, row)) + "</tr>"
        for i, row in enumerate(table.rows)
    )
    kind = ' class="prose"' if table.prose else ""
    return f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: Any) -> str:
    good = value.good if isinstance(value, Verdict) else None
    kind = "" if good is None else ' class="good"' if good else ' class="bad"'
    return f"<td{kind}>{escape(cell(value))}</td>"
