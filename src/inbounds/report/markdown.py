"""The same content as Markdown, with its pictures beside it: what is committed under docs/results."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from inbounds.report.content import Report, Section, Table, cell, verdict


def write_markdown(folder: Path, reports: Sequence[Report], command: str) -> Path:
    """Write `README.md` and copy the pictures.

    Args:
        folder: where; made when it is not there.
        reports: one an experiment, in order.
        command: the command that makes these results again, shown on the page.
    """
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    parts = [f"<!-- Generated from results by `inbounds report`; made again by `{command}`. -->\n"]
    parts += [_report(report, folder) for report in reports]
    parts.append(f"---\nMade by `{command}`.\n")
    file = folder / "README.md"
    file.write_text("\n".join(parts), encoding="utf-8")
    return file


def _report(report: Report, folder: Path) -> str:
    lines = [f"# {report.title}", "", report.lead, ""]
    if report.claims:
        lines += ["## What the paper says, and what we find", ""]
        rows = [(claim.claim, claim.found, verdict(claim.holds)) for claim in report.claims]
        lines += [_table(Table(("claim", "found here", "verdict"), rows), numeric=False), ""]
    for section in report.sections:
        lines += [_section(section, folder), ""]
    if report.facts:
        lines += ["## How this was made", "", _table(Table(("", ""), report.facts), numeric=False), ""]
    return "\n".join(lines)


def _section(section: Section, folder: Path) -> str:
    lines = [f"## {section.title}", "", section.see, ""]
    if section.figure is not None:
        picture = section.figure.with_name(section.figure.name + ".png")
        shutil.copyfile(picture, folder / "figures" / picture.name)
        lines += [f"![{section.title}](figures/{picture.name})", ""]
    if section.table is not None:
        lines += [_table(section.table), ""]
    for note in section.notes:
        lines += [note, ""]
    return "\n".join(lines)


def _table(table: Table, numeric: bool = True) -> str:
    def line(cells):
        return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"

    align = ["---"] + ["---:" if numeric else "---"] * (len(table.columns) - 1)
    rows = [
        line(f"**{cell(v)}**" if i in table.best and cell(v) else cell(v) for v in row)
        for i, row in enumerate(table.rows)
    ]
    return "\n".join([line(table.columns), line(align), *rows])
