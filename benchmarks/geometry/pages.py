"""The picture and the tables of docs/results/geometry/README.md, from results that were measured before."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.geometry.conditions import CONDITIONS, GRADIENTS, METRICS
from benchmarks.speed_pages import DOCS, table
from experiments.pictures import log_log
from inbounds.display import new_figure, save_picture

PICTURE = DOCS / "results" / "geometry" / "conditions"
SHOWN = 50  # dimensions of what is in the picture
TITLES = {"minibatch": "plain minibatches", "control_variate": "first-order", "taylor": "second-order"}
COLOURS = dict(zip(METRICS, ("mirror", "ito", "corv", "lm-nc"), strict=True))
Found = list[dict[str, Any]]


def write(found: dict[str, Any]) -> None:
    """All of it; a table without results stays as it is."""
    page = DOCS / "results" / "geometry" / "README.md"
    text = page.read_text(encoding="utf-8")
    for name, part, make in (
        ("metrics", "conditions", metrics),
        ("dense", "conditions", dense),
        ("steps", "steps", steps),
    ):
        if part in found:
            filled = f"<!-- {name} -->\n{make(found[part])}\n<!-- /{name} -->"
            text = re.sub(f"<!-- {name} -->.*?<!-- /{name} -->", lambda _, filled=filled: filled, text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")
    if "conditions" in found:
        Path(PICTURE).parent.mkdir(parents=True, exist_ok=True)
        save_picture(PICTURE, partial(draw, found["conditions"]))


def metrics(rows: Found) -> str:
    """Gradients per effective draw by metric, gradient and condition number."""
    own = [row for row in rows if row["dimensions"] == SHOWN and row["family"] == "logistic"]
    conditions = sorted({row["condition"] for row in own})
    lines = []
    for metric in METRICS:
        for gradient in GRADIENTS:
            cells = [row for row in own if (row["metric"], row["gradient"]) == (metric, gradient)]
            cells.sort(key=lambda row: row["condition"])
            lines.append([f"{metric}, {TITLES[gradient]}", *(_gradients(row) for row in cells)])
    return table(["condition number", *(_power(condition) for condition in conditions)], lines)


def dense(rows: Found) -> str:
    """What runs in the dense metric took at all condition numbers, the most of it, and what the recursion said."""
    own = [row for row in rows if row["metric"] == "dense" and row["gradient"] != "minibatch"]
    lines = []
    for kind in dict.fromkeys(_kind(row) for row in own):
        alike = [row for row in own if _kind(row) == kind]
        runs = [row["run"] for row in alike]
        sds = [run["sd"] for run in runs]
        lines.append(
            [
                f"{kind[0]}, d = {kind[1]}, N = {kind[2]:,}", TITLES[kind[3]], str(len(alike)),
                f"{max(row['steps'] for row in alike):.1f}", f"{max(run['steps'] for run in runs):.1f}",
                f"{max(run['middle'] for run in runs):.1f}", f"{min(sds):.3f} to {max(sds):.3f}",
                f"{max(row['gradients'] for row in alike):.0f}",
            ]
        )  # fmt: skip
    head = ["regression", "control variate", "runs", "steps, predicted", "worst axis", "middle axis", "sd", "gradients"]
    return table(head, lines)


def _kind(row: dict[str, Any]) -> tuple[str, int, int, str]:
    return row["family"], row["dimensions"], row["rows"], row["gradient"]


def steps(rows: Found) -> str:
    """Microseconds of a step without and with a dense metric, by processor time and by the clock."""
    lines = [
        [
            f"{row['kernel'].replace('_', '-')}, d = {row['dimensions']:,}",
            *(f"{row['of_processor'][name]:,.0f}" for name in ("without", "dense")), f"{row['ratio_of_processor']:.2f}",
            *(f"{row['microseconds'][name]:,.0f}" for name in ("without", "dense")), f"{row['ratio']:.2f}",
        ]
        for row in rows
    ]  # fmt: skip
    head = [
        "microseconds per step",
        "processor, without",
        "dense metric",
        "ratio",
        "clock, without",
        "dense metric",
        "ratio",
    ]
    return table(head, lines)


def draw(rows: Found, theme: Any) -> Any:
    """Gradients per effective draw against the condition number, one panel per gradient."""
    figure, axes = new_figure(1, len(GRADIENTS), width=9.0, height=2.9, sharey=True)
    for axis, gradient in zip(axes.flat, GRADIENTS, strict=True):
        for metric in METRICS:
            for family, dashes in (("linear", "-"), ("logistic", "--")):
                own = [r for r in rows if (r["metric"], r["gradient"], r["family"]) == (metric, gradient, family)]
                own = sorted((r for r in own if r["dimensions"] == SHOWN), key=lambda r: r["condition"])
                axis.plot(
                    [r["condition"] for r in own], [r["gradients"] for r in own], dashes, color=theme.colour(COLOURS[metric]),
                    label=metric if family == "linear" else None,
                )  # fmt: skip
                ran = [r for r in own if "run" in r]
                axis.plot(
                    [r["condition"] for r in ran], [r["run"]["steps"] * GRADIENTS[gradient] for r in ran], "o", ms=4,
                    color=theme.colour(COLOURS[metric]), mfc=theme.paper if family == "logistic" else None,
                )  # fmt: skip
        axis.set_title(TITLES[gradient])
        first = axis is axes.flat[0]
        log_log(axis, theme, "condition number", "gradients per effective draw" if first else "")
        axis.set_xticks(CONDITIONS)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def _gradients(row: dict[str, Any]) -> str:
    """With three digits at most; in brackets what the run took."""
    found = row["gradients"]
    said = f"{found:,.0f}" if found < 1e6 else _power(found)
    return said + (f" ({row['run']['steps'] * GRADIENTS[row['gradient']]:,.0f})" if "run" in row else "")


def _power(value: float) -> str:
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
