"""The tables, as text for a terminal and as Markdown for the README and the page about speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from race import CONTESTANTS

START, END = "<!-- throughput -->", "<!-- /throughput -->"


def micro(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def cell(result: dict[str, Any] | None, notes: list[str]) -> str:
    if result is None:
        return ""
    if "unavailable" not in result:
        return micro(result["microseconds"])
    if result["unavailable"] not in notes:
        notes.append(result["unavailable"])
    return f"- ({notes.index(result['unavailable']) + 1})"


def spread(result: dict[str, Any]) -> str:
    """Half the distance between the fastest and the slowest repeat, in percent of the median."""
    times = result["repeats"]
    return f"{50 * (max(times) - min(times)) / result['microseconds']:.0f}%"


def racers(found: dict[str, Any]) -> list[str]:
    return [name for name in CONTESTANTS if any(name in row["contestants"] for row in found["rows"].values())]


def ratios(row: dict[str, Any]) -> tuple[str, str]:
    """Ours against the limit, and the fastest peer against ours."""
    times = {name: result["microseconds"] for name, result in row["contestants"].items() if "microseconds" in result}
    ours = times.pop("inbounds", None)
    limit = times.pop("limit", None)
    return (
        "" if ours is None or limit is None else f"{ours / limit:.2f}",
        "" if ours is None or not times else f"{min(times.values()) / ours:.1f}",
    )


def as_text(found: dict[str, Any]) -> str:
    lines, notes = [], []
    for row in found["rows"].values():
        of_limit, ahead = ratios(row)
        lines += ["", row["title"], f"{'':26}{'us/step':>12}{'spread':>9}{'first call, s':>15}{'memory, MB':>12}"]
        for name, result in row["contestants"].items():
            line = f"  {CONTESTANTS[name].title:24}{cell(result, notes):>12}"
            if "microseconds" in result:
                line += f"{spread(result):>9}{result['first_call_seconds']:15.2f}{result['peak_megabytes']:12.0f}"
            lines.append(line)
        lines.append(f"  of the limit: {of_limit or '-'}; times the fastest peer: {ahead or '-'}")
    lines += [f"({number}) {note}" for number, note in enumerate(notes, 1)]
    if found.get("nuts"):
        lines += ["", "NumPyro's NUTS on all the data, apart from the race"]
        lines += [f"{'':26}{'us/gradient':>12}{'gradients/draw':>16}{'ms/effective draw':>19}{'of Inbounds':>13}"]
        for name, nuts in found["nuts"].items():
            values = list(nuts.values())
            lines.append(f"  {name:24}{values[0]:12,.0f}{values[1]:16.1f}{values[2]:19.3f}{values[3]:13.3f}")
    if "startup" in found:
        start = found["startup"]
        lines += [
            "",
            "start-up, seconds        Inbounds  reference    ratio",
            "  import (of NumPyro)    {inbounds:8.2f}{numpyro:11.2f}".format(**start["import_seconds"])
            + f"{start['import_ratio']:9.2f}",
            "  first draw (by hand)   {inbounds:8.2f}{limit:11.2f}".format(**start["first_draw_seconds"])
            + f"{start['first_draw_ratio']:9.2f}",
            f"  compilations of a second sample: {start['compilations_of_a_second_sample']}",
        ]
    return "\n".join(lines)


def as_markdown(found: dict[str, Any]) -> str:
    names, notes = racers(found), []
    titles = [CONTESTANTS[name].title for name in names]
    lines = ["| microseconds per step | " + " | ".join(titles) + " | of the limit | times the fastest peer |"]
    lines.append("|---|" + "---:|" * (len(names) + 2))
    for row in found["rows"].values():
        cells = [cell(row["contestants"].get(name), notes) for name in names]
        lines.append(f"| {row['title']} | " + " | ".join([*cells, *ratios(row)]) + " |")
    lines += ["", *[f"({number}) {note}." for number, note in enumerate(notes, 1)]]
    if found.get("nuts"):
        lines += nuts_table(found)
    machine = found["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines.append(f"{machine['cores']} cores ({machine['architecture']}), Python {machine['python']}, {versions}.")
    if "startup" in found:
        start = found["startup"]
        lines.append(
            f"Start-up: `import inbounds` takes {start['import_ratio']:.2f} times `import numpyro`; the first draw of a small model "
            f"{start['first_draw_ratio']:.2f} times the compilation and run of the scan by hand; a second `sample` of the same shapes "
            f"compiles {start['compilations_of_a_second_sample']} programs."
        )
    return "\n".join(lines)


def nuts_table(found: dict[str, Any]) -> list[str]:
    """NUTS is exact, and reads all the data: what it costs is counted in gradients and effective draws."""
    titles = "| NUTS, the exact reference | microseconds per gradient | gradients per draw | milliseconds per effective draw | of Inbounds |"
    lines = ["", titles, "|---|---:|---:|---:|---:|"]
    for name, nuts in found["nuts"].items():
        gradient, gradients, draw, ours = nuts.values()
        lines.append(
            f"| {found['rows'][name]['title']} | {micro(gradient)} | {gradients:.1f} | {draw:.3g} | {ours:.3g} |"
        )
    return [*lines, ""]


def scoreboard(found: dict[str, Any]) -> str:
    """The README's table: ours, the limit, and the fastest of the others."""
    lines = [
        "| microseconds per step | Inbounds | by hand (the limit) | fastest peer | which |",
        "|---|---:|---:|---:|---|",
    ]
    for row in found["rows"].values():
        times = {
            name: result["microseconds"] for name, result in row["contestants"].items() if "microseconds" in result
        }
        ours, limit = times.pop("inbounds"), times.pop("limit")
        peer = min(times, key=times.__getitem__)
        lines.append(
            f"| {row['title']} | {micro(ours)} | {micro(limit)} | {micro(times[peer])} | {CONTESTANTS[peer].title} |"
        )
    return "\n".join(lines)


def into_pages(root: Path, found: dict[str, Any]) -> None:
    """Write the table of the README, and the long ones of the page about speed."""
    for page, made in ((root / "README.md", scoreboard(found)), (root / "docs" / "speed.md", as_markdown(found))):
        before, rest = page.read_text().split(START)
        page.write_text(before + START + "\n" + made + "\n" + END + rest.split(END)[1])
