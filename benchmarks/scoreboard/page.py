"""The page of the scoreboard: its tables and its picture, from the results in this repository.

python -m benchmarks.scoreboard page [--out out/scoreboard/races.jsonl]

Lines of races are put into benchmarks/results/scoreboard_races.json first, where there are any; the page is made from that file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import inbounds as ib
from benchmarks.infer.judge import Lines
from benchmarks.scoreboard import references as made
from benchmarks.scoreboard.contestants import CONTESTANTS
from benchmarks.scoreboard.models import MODELS
from benchmarks.scoreboard.races import ROOT, merged, scored
from benchmarks.scoreboard.score import TOLERANCES, time_to
from benchmarks.scoreboard.tables import SOURCES

__all__ = ["blocks", "collect", "matrix", "page", "picture", "runs", "seeds_of", "summary", "times"]

RESULTS = ROOT / "benchmarks" / "results" / "scoreboard_races.json"
TEXT = Path(__file__).with_name("page.md")  # what is between its markers is made
PAGE = ROOT / "docs" / "results" / "scoreboard" / "README.md"
COLOURS = {
    "infer": ("lm-nc", "o-"),
    "infer auto": ("lm", "s-"),
    "numpyro nuts": ("corv", "D-"),
    "blackjax nuts": ("corv", "x--"),
    "nutpie": ("ito", "P-"),
    "blackjax mclmc": ("ito", "x--"),
    "laplace": ("mirror", "^-"),
    "pathfinder": ("mirror", "x--"),
    "svi normal": ("lm-nc-estimated", "v-"),
    "svi flow": ("lm-nc-estimated", "x--"),
    "hmcecs": ("floor", "*-"),
    "sgld by hand": ("floor", "x--"),
}  # of the themes, and the line
KEPT = ("seconds", "mean", "sd", "quantile", "total", "means within", "sds within")
KEPT += ("mean times stated", "sd times stated", "peak_mb", "certified", "reached", "reasons", "method")

Line = dict[str, Any]


def collect(lines: Iterable[Line], file: Path = RESULTS) -> None:
    """Put lines of races into the file of results: what a method says of its choices stays out."""
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    keys = ("problem", "contestant", "options", "seed", "warm")
    known = {json.dumps([line.get(key) for key in keys]): line for line in stored}
    for line in lines:
        short = {name: value for name, value in line.items() if name != "looks"}
        short["looks"] = [{name: _short(look[name]) for name in KEPT if name in look} for look in line["looks"]]
        known[json.dumps([line.get(key) for key in keys])] = short
    file.write_text("[\n" + ",\n".join(json.dumps(line) for line in known.values()) + "\n]\n", encoding="utf-8")


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def seeds_of(lines: Iterable[Line], problem: str, name: str, warm: bool = False) -> list[list[Line]]:
    """The looks of a contestant on a problem, by seed."""
    own = [
        line
        for line in lines
        if (line["problem"], line["contestant"], line.get("warm", False)) == (problem, name, warm)
    ]
    seeds = sorted({line["seed"] for line in own})
    return [merged([line for line in own if line["seed"] == seed], CONTESTANTS[name].helped) for seed in seeds]


def times(looks: list[list[Line]], tolerance: float) -> list[float]:
    """The seconds of those seeds that got there."""
    found = (time_to(tolerance, of_seed) for of_seed in looks)
    return [seconds for seconds in found if seconds is not None]


def matrix(lines: list[Line], tolerance: float) -> str:
    """A row per problem, a column per contestant: the seconds until the total error stays within a tolerance, or the error at the end."""
    names = [name for name in CONTESTANTS if any(line["contestant"] == name for line in lines)]
    head = ["", *(f"`{name}`" for name in names)]
    rows = []
    for problem in (problem for problem in MODELS if any(line["problem"] == problem for line in lines)):
        found = {name: seeds_of(lines, problem, name) for name in names}
        there = {name: times(found[name], tolerance) for name in names}
        best = min((float(np.median(seconds)) for seconds in there.values() if seconds), default=None)
        rows.append([problem, *(_cell(found[name], there[name], best) for name in names)])
    return _markdown(head, rows)


def _cell(looks: list[list[Line]], there: list[float], best: float | None) -> str:
    if not looks:
        return ""
    if there:
        seconds = float(np.median(there))
        said = f"{seconds:.1f} s" + (f" ({len(there)} of {len(looks)})" if len(there) < len(looks) else "")
        return f"**{said}**" if seconds == best else said
    ends = [of_seed[-1]["total"] for of_seed in looks if of_seed]
    return f"- ({100 * float(np.median(ends)):.2g}%)" if ends else "-"


def summary(lines: list[Line], tolerance: float = 0.05) -> str:
    """A row per contestant, of the problems that it ran: how many it answered within a tolerance, how fast, and where it was first."""
    medians: dict[str, dict[str, float | None]] = {}
    for name in CONTESTANTS:
        for problem in dict.fromkeys(line["problem"] for line in lines):
            if looks := seeds_of(lines, problem, name):
                there = times(looks, tolerance)
                medians.setdefault(name, {})[problem] = float(np.median(there)) if there else None
    rows = []
    for name, own in medians.items():
        reached = {problem: seconds for problem, seconds in own.items() if seconds is not None}
        first = sum(
            seconds == min(t for other in medians.values() if (t := other.get(problem)) is not None)
            for problem, seconds in reached.items()
        )
        median = f"{np.median(list(reached.values())):.0f} s" if reached else "-"
        rows.append([f"`{name}`", f"{len(reached)} of {len(own)}", median, str(first)])
    return _markdown([f"total error within {100 * tolerance:.0f}%", "problems", "median time", "first on"], rows)


def claims(lines: list[Line]) -> str:
    """What `ib.infer` states of its errors, beside what they are: a row per tolerance asked for."""
    head = ["asked for", "runs", "answered", "certified", "means within", "sds within", "largest mean error", "beyond"]
    rows = []
    for name in ("infer", "infer auto"):
        for options in sorted(CONTESTANTS[name].rungs, key=lambda options: float(options["error"])):
            own = [line for line in lines if line["contestant"] == name and line["options"] == options]
            ends = [line["looks"][-1] for line in own if line["looks"]]
            sure = [end for end in ends if end.get("certified")]
            if not own:
                continue
            cells = [f"`{name}` {options['error']}", str(len(own)), str(len(ends)), str(len(sure))]
            cells += [f"{100 * np.mean([end[key] for end in sure]):.0f}%" for key in KEPT[5:7]] if sure else ["", ""]
            cells += [f"{max(end['mean'] for end in sure):.3f}", _beyond(sure)] if sure else ["", ""]
            rows.append(cells)
    return _markdown(head, rows)


def _beyond(ends: list[Line]) -> str:
    return f"{max(max(end['mean times stated'], end['sd times stated']) for end in ends):.1f}"


def runs(lines: list[Line]) -> str:
    """What was run, in a sentence per clock and limit."""
    kinds = sorted({(line["clock"], line["limit"], line.get("warm", False)) for line in lines})
    said = []
    for clock, limit, warm in kinds:
        own = [
            line for line in lines if (line["clock"], line["limit"], line.get("warm", False)) == (clock, limit, warm)
        ]
        where = (
            "on two cores of their own"
            if clock == "wall"
            else "on one core that others used: seconds are the processor's"
        )
        cache = ", with JAX's compilation cache filled" if warm else ", compilation included"
        seeds = len({line["seed"] for line in own})
        said.append(f"{len(own)} runs of at most {limit:.0f} seconds, {seeds} of each at most, {where}{cache}.")
    return "\n".join(said)


def problems(entries: dict[str, Line]) -> str:
    """A row per problem: its table, its model, its reference."""
    head = ["problem", "table", "rows", "model", "numbers", "reference"]
    rows = []
    for problem, model in MODELS.items():
        entry, source = entries.get(problem), SOURCES[problem]
        said = (model.__doc__ or "").strip()
        if entry and made.converged(entry):
            known = f"quantiles to {entry['quantile_error']:.4f}; NUTS: R-hat {entry['r_hat']:.4f}"
        else:
            known = "none that may be used"
        numbers = str(entry["numbers"]) if entry else ""
        rows.append([problem, f"{source.origin} ({source.licence})", f"{source.rows:,}", said, numbers, known])
    return _markdown(head, rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def picture(lines: list[Line], stem: Path) -> None:
    """Error against seconds, a panel per problem."""
    shown = [problem for problem in MODELS if any(line["problem"] == problem for line in lines)]
    columns = 3

    def draw(theme: Any) -> Any:
        height = -(-len(shown) // columns)
        figure, axes = ib.display.new_figure(height, columns, width=9.6, height=2.5)
        handles = {}
        for axis, problem in zip(axes.ravel(), shown, strict=False):
            for name, (family, line) in COLOURS.items():
                for looks in seeds_of(lines, problem, name):
                    points = [(look["seconds"], look["total"]) for look in looks if np.isfinite(look["total"])]
                    if points:
                        (handles[name],) = axis.plot(
                            *zip(*points, strict=True), line, color=theme.colour(family), markersize=4, linewidth=1.2
                        )
            axis.axhline(0.05, color=theme.soft, linewidth=0.8, linestyle=":")
            axis.set(xscale="log", yscale="log", title=problem, ylim=(0.005, 20), xlim=(2, 100))
        for axis in axes.ravel()[len(shown) :]:
            axis.set_visible(False)
        for axis in axes[-1]:
            axis.set_xlabel("seconds from the call")
        for axis in axes[:, 0]:
            axis.set_ylabel("total error, sds")
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=6)
        return figure

    stem.parent.mkdir(parents=True, exist_ok=True)
    ib.display.save_picture(stem, draw)


def blocks(text: str, made_of: dict[str, str]) -> str:
    """A page with what is between each pair of markers made again."""
    for name, block in made_of.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, rest = text.split(start)
        text = before + start + "\n" + block + "\n" + end + rest.split(end)[1]
    return text


def page(races: Path) -> None:
    """Make the file of results, the tables of the page, and its picture."""
    if races.exists():
        truths = made.references()
        collect(scored(line, truths[line["problem"]]) for line in Lines(races) if line["problem"] in truths)
    lines = json.loads(RESULTS.read_text(encoding="utf-8"))
    entries = json.loads(made.FILE.read_text(encoding="utf-8"))
    tables = {f"to {100 * tolerance:.0f}%": matrix(lines, tolerance) for tolerance in TOLERANCES}
    tables |= {"summary": summary(lines), "run": runs(lines), "claims": claims(lines), "problems": problems(entries)}
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(blocks(TEXT.read_text(encoding="utf-8"), tables), encoding="utf-8")
    picture(lines, PAGE.parent / "error-against-seconds")
