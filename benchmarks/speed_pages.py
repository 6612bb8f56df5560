"""Put what `bounds.py`, `accelerator.py`, `throughput` (its memory) and `accuracy.py` have measured into docs/speed.md and docs/results/speed.

    python -m benchmarks.speed_pages

Reads bounds.json, bounds-gpu.json, accelerator.json, throughput.json and accuracy.json in benchmarks/results, as many of them as there are; a
table without results stays as it is.
"""

import json
import re
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"


def table(head, rows):
    return "\n".join(
        [
            "| " + " | ".join(head) + " |",
            "|---|" + "---:|" * (len(head) - 1),
            *("| " + " | ".join(row) + " |" for row in rows),
        ]
    )


def bounds(found):
    """One table a model: ratio to no bounds by transform and number of parameters."""
    titles = {
        "bare": "The bare update",
        "regression": "Regression, 1,024 rows per minibatch",
        "rows": "Regression, 8,192 rows per minibatch",
    }
    parts = []
    for model, title in titles.items():
        own = [row for row in found["rows"] if row["model"] == model]
        if not own:
            continue
        sizes = list(dict.fromkeys(row["parameters"] for row in own))
        by_name = {}
        for row in own:
            by_name.setdefault(row["transform"], []).append(row)
        base = " (microseconds per step)"
        rows = [
            [name + (base if name == "none" else "")]
            + [f"{row['microseconds']:,.0f}" if name == "none" else f"{row['ratio']:.2f}" for row in line]
            for name, line in by_name.items()
        ]
        parts.append(
            f"{title}: time of a step over that without bounds.\n\n"
            + table(["parameters", *(f"{n:,}" for n in sizes)], rows)
        )
    if found["platform"] != "cpu":
        parts.append(floor(found))
    pairs = ", ".join(f"{pair['ratio']:.2f}" for pair in found["icll_over_softplus"])
    parts.append(
        f"ICLL over softplus, in the order of the tables: {pairs}. {found['device']}, JAX {found['jax']}, {found['rounds']} rounds."
    )
    return "\n\n".join(parts)


def floor(found):
    """The bare update, in microseconds and in times of the bytes-moved floor."""
    own = [row for row in found["rows"] if row["model"] == "bare"]
    sizes = list(dict.fromkeys(row["parameters"] for row in own))
    cells = {(row["transform"], row["parameters"]): row for row in own}
    rows = [["floor", *(f"{cells['none', size]['floor_microseconds']:,.1f}" for size in sizes)]] + [
        [name] + [f"{cells[name, n]['microseconds']:,.1f} ({_times(cells[name, n]['of_the_floor'])})" for n in sizes]
        for name in dict.fromkeys(row["transform"] for row in own)
    ]
    return (
        "The bare update: microseconds per step, and in brackets how many times the floor: the state read and written once, at the "
        f"{found['copy_bytes_a_second'] / 1e12:.2f} TB/s that `y = x + 1` over 2^28 numbers reached in the same run.\n\n"
        + table(["parameters", *(f"{n:,}" for n in sizes)], rows)
    )


def _times(ratio):
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def accelerator(found):
    """A step of each model against the floor, which says something of states that do not fit the caches."""
    rows = [
        [
            row["name"], f"{row['microseconds']:,.1f}", f"{row['floor_microseconds']:,.1f}",
            f"{row['of_the_floor']:,.1f}" if row["floor_microseconds"] > 0.05 else "-",
            f"{row['busy_microseconds']:,.1f}", f"{row['kernels_a_step']:.1f}",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    head = ["model", "microseconds per step", "floor", "times the floor", "busy, profiled", "kernels per step"]
    facts = f"{found['device']}, JAX {found['jax']}; `y = x + 1` moved {found['copy_bytes_a_second'] / 1e12:.2f} TB/s."
    return f"{table(head, rows)}\n\n{facts}"


def memory(found):
    """The most memory that a run holds beside its process as it was before, with the data."""
    rows = []
    for row in found["rows"].values():
        ours, limit = (row["contestants"][name]["peak_megabytes"] for name in ("inbounds", "limit"))
        rows.append([row["title"], f"{ours:.0f}", f"{limit:.0f}", f"{ours / limit:.2f}"])
    return table(["megabytes", "Inbounds", "by hand (the limit)", "ratio"], rows)


def accuracy(found):
    """Seconds to the least error of the one by hand, and to that of first order."""
    parts = []
    for reference, table_rows in found["times_to_error"].items():
        methods = list(table_rows[0]["seconds"])
        rows = []
        for row in table_rows:
            cells = []
            for name in methods:
                seconds, bound, faster = row["seconds"][name], row["bound"][name], row["times_faster"][name]
                less, more = ("< ", "> ") if bound == "less" else ("", "")
                cells.append("not reached" if seconds is None else f"{less}{seconds:.3g} s ({more}{faster:.1f})")
            rows.append([found["labels"][row["case"]], f"{row['error']:.2g}", *cells])
        head = [f"to the least error of {reference}", "error", *(name.replace("_", "-") for name in methods)]
        parts.append(table(head, rows))
    versions = f"JAX {found['jax']}, NumPyro {found['numpyro']}, BlackJAX {found['blackjax']}"
    return "\n\n".join([*parts, f"{found['device']}, {versions}, {found['rounds']} rounds."])


def main() -> None:
    sources = {
        "bounds": ("bounds", bounds),
        "bounds-gpu": ("bounds-gpu", bounds),
        "accelerator": ("accelerator", accelerator),
        "memory": ("throughput", memory),
        "accuracy": ("accuracy", accuracy),
    }
    for page in [DOCS / "speed.md", *sorted((DOCS / "results" / "speed").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for name, (file, make) in sources.items():
            results = RESULTS / f"{file}.json"
            if f"<!-- {name} -->" in text and results.exists():
                made = make(json.loads(results.read_text(encoding="utf-8")))
                filled = f"<!-- {name} -->\n{made}\n<!-- /{name} -->"
                text = re.sub(
                    f"<!-- {name} -->.*?<!-- /{name} -->", lambda _, filled=filled: filled, text, flags=re.DOTALL
                )
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
