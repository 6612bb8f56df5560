"""What an experiment has to say: its sections, and the claims of the paper beside what the numbers say; as HTML and as Markdown."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inbounds import display
from inbounds.display import Chapter, Section, Table, Verdict, cell

__all__ = ["Claim", "Report", "write_markdown", "write_page"]

VERDICTS = {True: "holds", False: "does not hold", None: "open"}
BESIDE = "What the paper says, and what we find"


@dataclass
class Claim:
    """A claim of the paper beside what the numbers say.

    Args:
        claim: in the paper's words, or close to them.
        found: a sentence computed from the results.
        holds: whether the results bear it out; None where they do not say.
    """

    claim: str
    found: str
    holds: bool | None


@dataclass
class Report:
    """What is reported of one experiment.

    Args:
        title: the heading.
        lead: a short paragraph on what was done.
        sections: the figures.
        claims: the paper's, beside the findings.
        facts: how and on what the numbers were made, in pairs.
    """

    title: str
    lead: str
    sections: list[Section]
    claims: list[Claim] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)

    def judged(self) -> Table:
        """The claims as a table."""
        rows = [(claim.claim, claim.found, Verdict(VERDICTS[claim.holds], claim.holds)) for claim in self.claims]
        return Table(("claim", "found here", "verdict"), rows, prose=True)

    def chapter(self) -> Chapter:
        """The chapter of the page. The first picture says most; the claims come after it."""
        claims = [Section(BESIDE, "", table=self.judged())] if self.claims else []
        return Chapter(self.title, self.lead, [*self.sections[:1], *claims, *self.sections[1:]], self.facts)


def write_page(path: Path, reports: Sequence[Report]) -> Path:
    """Write one HTML file with all the reports, one an experiment."""
    return display.write_page(path, [report.chapter() for report in reports], "Inbounds: the paper's experiments")


def write_markdown(folder: Path, reports: Sequence[Report], command: str) -> Path:
    """Write the same as `README.md`, with its pictures beside it: what is committed under docs/results.

    Args:
        folder: where; made when it is not there.
        reports: one an experiment, in order.
        command: the command that makes these results again, shown on the page.
    """
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    parts = [f"<!-- Generated from results by `python -m experiments report`; made again by `{command}`. -->\n"]
    parts += [_report(report, folder) for report in reports]
    parts.append(f"---\nMade by `{command}`.\n")
    file = folder / "README.md"
    file.write_text("\n".join(parts), encoding="utf-8")
    return file


def _report(report: Report, folder: Path) -> str:
    lines = [f"# {report.title}", "", report.lead, ""]
    if report.claims:
        lines += [f"## {BESIDE}", "", _table(report.judged()), ""]
    for section in report.sections:
        lines += [_section(section, folder), ""]
    if report.facts:
        lines += ["## How this was made", "", _table(Table(("", ""), report.facts, prose=True)), ""]
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


def _table(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"

    align = ["---"] + ["---" if table.prose else "---:"] * (len(table.columns) - 1)
    rows = [
        line([f"**{text}**" if i in table.best and text else text for text in map(cell, row)])
        for i, row in enumerate(table.rows)
    ]
    return "\n".join([line(table.columns), line(align), *rows])
