"""The picture and the tables of docs/results/glmm/README.md, from results that were measured before."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from benchmarks.speed_pages import DOCS, table
from experiments.pictures import plain_log
from inbounds.display import new_figure, save_picture

PAGE = DOCS / "results" / "glmm"
COLOURS = {
    "SGLD, exp": "ito",
    "SGLD, softplus": "corv",
    "SGLD, icll": "lm",
    "SGLD, integrated_probit": "lm-nc",
    "mirror Langevin, entropy": "mirror",
}
NAMES = {"icll": "ICLL", "integrated_probit": "integrated probit"}
PANELS = [(family, integrated) for family in ("logistic", "Poisson") for integrated in (True, False)]
ACCURATE = (1e-5, 1e-4, 10**-3.5, 1e-3)  # step sizes whose accuracy is shown
Rows = list[dict[str, Any]]


def write(found: dict[str, Any]) -> None:
    """All of it."""
    made = {
        "left": left(found["chains"]),
        "sampled": left(found["chains"], integrated=False),
        "recommended": recommended(found["chains"]),
        "accuracy": accuracy(found["chains"]),
        "infer": infer(found["infer"]),
    }
    page = PAGE / "README.md"
    text = page.read_text(encoding="utf-8")
    for name, filling in made.items():
        filled = f"<!-- {name} -->\n{filling}\n<!-- /{name} -->"
        text = re.sub(f"<!-- {name} -->.*?<!-- /{name} -->", lambda _, filled=filled: filled, text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")
    save_picture(PAGE / "chains", partial(draw, found["chains"]))


def left(rows: Rows, integrated: bool = True) -> str:
    """How many chains left, by contestant and step size."""
    own = [row for row in rows if row["integrated"] == integrated and row["contestant"] != "recommended"]
    sizes = sorted({row["step_size"] for row in own})
    lines = [
        [f"{family}: {_named(name)}", *(str(_gone(row)) for row in cells)]
        for (family, name), cells in _by_contestant(own).items()
    ]
    return table(["step size", *(f"{size:.0e}".replace("e-0", "e-") for size in sizes)], lines)


def recommended(rows: Rows) -> str:
    """The recommended kernel: how many left of those that start in the posterior, and of those that start anywhere."""
    own = [row for row in rows if row["contestant"] == "recommended"]
    sizes = sorted({row["step_size"] for row in own})
    lines = []
    for (family, _), cells in _by_contestant(own).items():
        anywhere = [row["left of those that start anywhere"] for row in cells]
        near = [_gone(row) - far for row, far in zip(cells, anywhere, strict=True)]
        lines += [
            [f"{family}: {where}", *map(str, counts)]
            for where, counts in (("in the posterior", near), ("anywhere", anywhere))
        ]
    return table(["500 chains that start ...; step size", *(f"{size:.2g}" for size in sizes)], lines)


def accuracy(rows: Rows) -> str:
    """Mean and sd of the sds of intercepts and slopes, of the chains that stayed."""
    lines = []
    for (family, name), cells in _by_contestant([row for row in rows if row["integrated"]]).items():
        if name in ("SGLD, softplus", "SGLD, icll"):
            continue
        scale = 1e3 if name == "recommended" else 1.0  # in a metric the curvature is 1, and some 500 outside
        shown = [min(cells, key=lambda row, size=size: abs(row["step_size"] - scale * size)) for size in ACCURATE]
        lines.append([f"{family}: {_named(name)}", *map(_off, shown)])
    return table(["step size", "1e-5", "1e-4", "3e-4", "1e-3"], lines)


def infer(rows: Rows) -> str:
    """What `ib.infer` answers."""
    lines = []
    for row in rows:
        off = max(_largest(row[f"{name}: mean off by, in sds"]) for name in ("mean", "scale", "correlation"))
        sd = max(_largest(row[f"{name}: sd over the exact one"], 1.0) for name in ("mean", "scale", "correlation"))
        lines.append(
            [
                f"{row['family']}, {row['asked']}",
                f"{row['chains']:,}",
                str(row["chains with a draw that is not finite"]),
                "yes" if row["certified"] else "no",
                f"{off:.3f}",
                f"{sd:.1%}",
                f"{row['seconds']:.0f}",
            ]
        )
    return table(
        ["`ib.infer`", "chains", "not finite", "certified", "mean off by (sds)", "sd off by", "seconds"], lines
    )


def draw(rows: Rows, theme: Any) -> Any:
    """The share of chains that left against the step size."""
    figure, axes = new_figure(1, len(PANELS), width=10.0, height=2.9, sharey=True)
    for axis, (family, integrated) in zip(axes.flat, PANELS, strict=True):
        for name, colour in COLOURS.items():
            own = [r for r in rows if (r["family"], r["integrated"], r["contestant"]) == (family, integrated, name)]
            share = [_gone(row) / row["chains"] for row in own]
            axis.plot(
                [row["step_size"] for row in own], share, "-o", ms=3.5, color=theme.colour(colour), label=_named(name)
            )
        axis.set_title(f"{family}, effects {'integrated out' if integrated else 'sampled'}")
        axis.set_xlabel("step size")
        plain_log(axis.xaxis)
        axis.grid(True, lw=0.6)
    axes.flat[0].set_ylabel("share of chains that left")
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def _by_contestant(rows: Rows) -> dict[tuple[str, str], Rows]:
    found: dict[tuple[str, str], Rows] = {}
    for row in rows:
        found.setdefault((row["family"], row["contestant"]), []).append(row)
    return {key: sorted(cells, key=lambda row: row["step_size"]) for key, cells in found.items()}


def _gone(row: dict[str, Any]) -> int:
    gone: int = row["non-finite"] + row["beyond"]
    return gone


def _named(name: str) -> str:
    return ", ".join(NAMES.get(part, part) for part in name.split(", "))


def _off(row: dict[str, Any]) -> str:
    """Of the worse of both sds: how far its mean is off, and its sd over the exact one."""
    means, sds = row["scale: mean off by, in sds"], row["scale: sd over the exact one"]
    return f"{max(means, key=abs):+.2f}, {max(sds, key=lambda sd: abs(sd - 1)):.2f}"


def _largest(values: Any, around: float = 0.0) -> float:
    values = values if isinstance(values, list) else [values]
    return max(abs(value - around) for value in values)
