"""One HTML file that needs nothing else: pictures embedded, light and dark, readable on a phone."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from inbounds.report.content import Claim, Report, Section, Table, cell, verdict

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
table.claims td, table.claims th { white-space: normal; text-align: left; vertical-align: top; min-width: 9rem; }
.holds { color: var(--good); } .fails { color: var(--bad); }
details { margin: 2.5rem 0; border-top: 1px solid var(--line); padding-top: .8rem; }
summary { cursor: pointer; color: var(--accent); }
nav a { color: var(--accent); margin-right: .9rem; display: inline-block; padding: .15rem 0; }
@media (max-width: 34rem) { table.claims thead { display: none; } table.claims tr, table.claims td { display: block; }
  table.claims tr { border-bottom: 1px solid var(--line); padding: .5rem 0; } table.claims td { border: 0; padding: .1rem 0; }
  table.claims td:first-child { font-weight: 600; } }
"""


def write_page(path: Path, reports: Sequence[Report]) -> Path:
    """Write one page with all the reports.

    Args:
        path: the file to write.
        reports: one an experiment, in order.
    """
    title = reports[0].title if len(reports) == 1 else "Inbounds: the paper's experiments"
    body = "".join(_report(report, prefix=f"r{i}") for i, report in enumerate(reports))
    head = "" if len(reports) == 1 else f"<h1>{html.escape(title)}</h1>"
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{html.escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n{head}{body}</main>\n</body>\n</html>\n"
    )
    path = Path(path)
    path.write_text(text, encoding="utf-8")
    return path


def _report(report: Report, prefix: str) -> str:
    links = "".join(
        f'<a href="#{prefix}s{i}">{html.escape(section.title)}</a>' for i, section in enumerate(report.sections)
    )
    # The first picture says most; the claims come after it.
    sections = [_section(section, f"{prefix}s{i}") for i, section in enumerate(report.sections)]
    body = "".join([*sections[:1], _claims(report.claims), *sections[1:]])
    facts = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(v)}</td></tr>" for k, v in report.facts)
    made = f'<details><summary>How this was made</summary><div class="scroll"><table>{facts}</table></div></details>'
    return (
        f'<h1>{html.escape(report.title)}</h1>\n<p class="lead">{html.escape(report.lead)}</p>\n<nav>{links}</nav>\n'
        f"{body}{made if facts else ''}\n"
    )


def _section(section: Section, anchor: str) -> str:
    parts = [f'<section>\n<h2 id="{anchor}">{html.escape(section.title)}</h2>\n<p>{html.escape(section.see)}</p>\n']
    if section.figure is not None:
        parts.append(_figure(section))
    if section.table is not None:
        parts.append(f'<div class="scroll">{_table(section.table)}</div>\n')
    parts += [f'<p class="note">{html.escape(note)}</p>\n' for note in section.notes]
    return "".join(parts) + "</section>\n"


def _figure(section: Section) -> str:
    assert section.figure is not None
    light, dark = (_data_uri(section.figure.with_name(section.figure.name + end)) for end in (".svg", "-dark.svg"))
    return (
        '<figure class="scroll"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{html.escape(section.title)}: {html.escape(section.see)}">'
        "</picture></figure>\n"
    )


def _data_uri(file: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode("ascii")


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "".join(
        ('<tr class="best">' if i in table.best else "<tr>")
        + "".join(f"<td>{html.escape(cell(value))}</td>" for value in row)
        + "</tr>"
        for i, row in enumerate(table.rows)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    kinds = {True: "holds", False: "fails", None: "open"}
    rows = "".join(
        f"<tr><td>{html.escape(claim.claim)}</td><td>{html.escape(claim.found)}</td>"
        f'<td class="{kinds[claim.holds]}">{verdict(claim.holds)}</td></tr>'
        for claim in claims
    )
    return (
        '<h2>What the paper says, and what we find</h2>\n<div class="scroll"><table class="claims"><thead><tr>'
        f"<th>claim</th><th>found here</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>\n"
    )
