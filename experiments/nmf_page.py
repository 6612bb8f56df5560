"""The page of the matrix factorisation experiment: tables, pictures, and the paper's claims beside what the numbers say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.comparison import at_end, curve_of, draw_curves, kept, plus_minus, search_table, write_tables
from experiments.nmf import (
    BASELINES,
    METHODS,
    STABLE,
    SWEPT,
    iterations_to,
    least_error,
    losses_of,
    settings_of,
    summarise,
    widest_stable,
)
from experiments.reports import Claim, Report
from experiments.results import Results, number
from inbounds.display import Section, Table, Theme, new_figure, save_picture

LOOKS = {
    "mirror": ("mirror", "-"),
    "sgrld": ("mirror", "--"),
    "ahn": ("mirror", ":"),
    "ahn-corrected": ("mirror", "-."),
    "exp": ("corv", ":"),
    "softplus": ("corv", "-"),
    "icll": ("corv", "--"),
    "integrated-probit": ("corv", "-."),
    "lm": ("lm", "-"),
    "counts": ("lm-nc", "-"),
    "counts-lm": ("lm-nc", "--"),
    "counts-corrected": ("lm-nc", "-."),
    "counts-exp": ("lm-nc", ":"),
    "baoab": ("lm-nc-estimated", "-"),
}  # family, whose colour is used, and line style


def page(results: Results) -> Report:
    """Everything that the parts which are there have to say."""
    rows = summarise(results)
    claims = claims_of(results, rows)
    write_tables(results, rows, curve_rows(results), claims, baselines=results.get("baselines"))
    own = settings_of(results)
    sections = []
    for rank in own.ranks:
        for make in (_curves, _table, _search, _stability):
            if (section := make(results, rows, rank)) is not None:
                sections.append(section)
    counts = results.get("baselines") or {}
    lead = (
        f"Poisson factors under exponential priors of rate {own.prior_rate:g}, sampled from minibatches of "
        f"{own.batch_size:,} of {counts.get('train', 0):,} training ratings ({counts.get('users', 0):,} users, "
        f"{counts.get('items', 0):,} items; 75 : 12.5 : 12.5). Predictions are averaged over {own.evaluations} evaluations from the "
        f"first on, as the paper's moving average. Step sizes minimise the validation error at the last iteration in "
        f"{own.trials} trials ({'TPE' if own.search == 'tpe' else 'a grid on the log scale'}), the same number for every method"
        f"{f', of {own.tuning_iterations:,} iterations each' if own.tuning_iterations else ''}; the "
        f"numbers are means over {own.chains} fresh seeds on the test part, with standard errors."
    )
    return Report(f"Bayesian matrix factorisation of {own.dataset}", lead, sections, claims, results.facts())


def _finals(results: Results, rank: int, prior: str = "") -> dict[str, dict[str, Any]]:
    return kept(results, f"rank-{rank}/{prior}final/", METHODS)


def curve_rows(results: Results) -> list[dict[str, Any]]:
    """The means over the seeds, one row a rank, method and evaluation."""
    rows = []
    for rank in settings_of(results).ranks:
        for name, final in _finals(results, rank).items():
            averaged, single = curve_of(final, "rmse"), curve_of(final, "single_rmse")
            for step, seconds, a, b in zip(final["steps"], final["clock"], averaged, single, strict=True):
                rows.append(
                    {"rank": rank, "method": name, "iteration": step, "seconds": seconds, "rmse": a, "single_rmse": b}
                )
    return rows


def _pick(rows: list[dict[str, Any]], rank: int, matched: bool = False) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in rows if row["rank"] == rank and (row["prior"] == "matched") == matched}


# -- claims -------------------------------------------------------------------------------------------------------


def claims_of(results: Results, rows: list[dict[str, Any]]) -> list[Claim]:
    """The paper's claims on this experiment, each judged from the numbers."""
    claims = []
    for rank in settings_of(results).ranks:
        finals, last = _finals(results, rank), _pick(rows, rank)
        corv = [name for name in ("softplus", "icll") if name in finals]
        if "mirror" in finals and corv:
            claims.append(_faster(f"rank {rank}", finals, corv))
        if "sgrld" in finals and corv:
            best = min(corv, key=lambda name: last[name]["rmse"])
            claims.append(
                Claim(
                    f"CoRV is better than SGRLD, the best of the baselines (rank {rank}).",
                    f"Test RMSE {plus_minus(last['sgrld'], 'rmse')} for SGRLD and {plus_minus(last[best], 'rmse')} for {METHODS[best].label}.",
                    last[best]["rmse"] < last["sgrld"]["rmse"],
                )
            )
        swept = kept(results, f"rank-{rank}/stability/", SWEPT)
        if "mirror" in swept and ("softplus" in swept or "icll" in swept):
            claims.append(_stable(rank, swept))
        matched = _finals(results, rank, "matched/")
        if "mirror" in matched and "softplus" in matched:
            claims.append(_faster(f"rank {rank}, prior matched to the ratings", matched, ["softplus"]))
    return claims


def _faster(where: str, finals: dict[str, Any], corv: Sequence[str]) -> Claim:
    """How many iterations CoRV needs for the error that mirrored SGLD ends with."""
    target, _ = at_end(finals["mirror"], "rmse")
    own = finals["mirror"]["steps"][-1]
    reached = {name: iterations_to(finals[name], target) for name in corv}
    said = ", ".join(
        f"{METHODS[name].label} after {count:,}" if count else f"{METHODS[name].label} never"
        for name, count in reached.items()
    )
    ratios = [own / count for count in reached.values() if count]
    return Claim(
        f"CoRV with softplus or ICLL needs about a third of SGLD's iterations ({where}).",
        f"Mirrored SGLD ends at a test RMSE of {target:.4f} after {own:,} iterations; that error is reached by {said}.",
        bool(ratios) and max(ratios) >= 2.5,
    )


def _stable(rank: int, swept: dict[str, Any]) -> Claim:
    """By one error for all, and, for comparison, by each method's own best, which counts a lower best against a method."""
    common, own = _widest(swept)
    said = ", ".join(f"{METHODS[name].label} {_step(value)}" for name, value in common.items())
    return Claim(
        f"The transformation enables stable computation with a large step size (rank {rank}).",
        f"The largest step size whose validation error is within {STABLE - 1:.0%} of the best of the mirrored methods': {said}. That is "
        f"{_times(common)} times the wider of theirs; within {STABLE - 1:.0%} of each method's own best, {_times(own)} times.",
        min(_ratios(common)) >= 5,
    )


def _widest(swept: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """The widest stable step size of each method: by the best error of a baseline, and by its own."""
    best = least_error(swept[name] for name in BASELINES if name in swept)
    common = {name: widest_stable(part, best) for name, part in swept.items()}
    return common, {name: widest_stable(part, least_error([part])) for name, part in swept.items()}


def _ratios(widest: dict[str, float]) -> list[float]:
    """Of CoRV with a Lipschitz transform to the wider of the baselines; a method without a stable step has none."""
    baseline = np.nanmax([widest[name] for name in BASELINES if name in widest])
    return [np.nan_to_num(widest[name]) / baseline for name in ("softplus", "icll") if name in widest]


def _times(widest: dict[str, float]) -> str:
    return " to ".join(dict.fromkeys(f"{ratio:.2g}" for ratio in sorted(_ratios(widest))))


def _step(size: float) -> str:
    return "none" if math.isnan(size) else f"{size:.2g}"


# -- sections -----------------------------------------------------------------------------------------------------


def _curves(results: Results, rows: list[dict[str, Any]], rank: int) -> Section | None:
    finals = _finals(results, rank)
    if not finals:
        return None
    baselines = results.get("baselines") or {}

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, 2, width=8.6, height=3.2, sharey=True)
        for axis, key, label in zip(axes.flat, ("steps", "clock"), ("iteration", "seconds"), strict=True):
            curves = {name: (final[key], curve_of(final, "rmse")) for name, final in finals.items()}
            values = draw_curves(axis, theme, METHODS, LOOKS, curves, 20)
            bias = baselines.get("user + item", math.nan)
            axis.axhline(bias, color=theme.soft, lw=0.8, ls=(0, (4, 3)))
            low, high = np.min(values), min(np.max(values), np.min(values) * 1.6)
            axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
            axis.set_xlabel(label)
            axis.locator_params(axis="x", nbins=5)
        axes.flat[0].set_ylabel("test RMSE, averaged")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure

    figure = save_picture(results.figure(f"{settings_of(results).dataset}-rank-{rank}-curves"), draw)
    last = _pick(rows, rank)
    best = min(last.values(), key=lambda row: row["rmse"] if math.isfinite(row["rmse"]) else math.inf)
    see = (
        f"RMSE of the averaged prediction against iterations and against seconds; dashed, one offset a user and an item "
        f"({baselines.get('user + item', math.nan):.4f}). {METHODS[best['method']].label} ends lowest, at {best['rmse']:.4f}."
    )
    notes = (
        "Seconds are of all seeds side by side, compilation included; they compare methods only where nothing else ran on the device.",
    )
    return Section(f"Rank {rank}: test error", see, figure, None, notes)


def _table(results: Results, rows: list[dict[str, Any]], rank: int) -> Section | None:
    last, matched = _pick(rows, rank), _pick(rows, rank, matched=True)
    if not last and not matched:
        return None
    metrics = ("rmse", "late_rmse", "clipped_rmse", "single_rmse")
    listed = [*last.values(), *matched.values()]
    cells = [
        [
            METHODS[row["method"]].label,
            row["prior"],
            f"{row['step_size']:.2e}",
            *(plus_minus(row, name) for name in metrics),
            f"{row['alive']} of {row['seeds']}",
        ]
        for row in listed
    ]
    baselines = results.get("baselines") or {}
    cells += [[name, "", "", number(baselines.get(name)), "", "", "", ""] for name in ("global mean", "user + item")]
    lowest = min(range(len(listed)), key=lambda i: listed[i]["rmse"] if math.isfinite(listed[i]["rmse"]) else math.inf)
    see = (
        "Test part at the last iteration: the average over all evaluations, the average without the first fifth, the first cut to "
        "the range of the ratings, and one draw alone. Means are over the chains that are still finite. The matched prior has the mean "
        "of the ratings."
    )
    columns = ("method", "prior rate", "step size", "RMSE", "late", "clipped", "one draw", "finite")
    return Section(f"Rank {rank}: all methods", see, None, Table(columns, cells, (lowest,)))


def _search(results: Results, rows: list[dict[str, Any]], rank: int) -> Section | None:
    searches = kept(results, f"rank-{rank}/tune/", METHODS)
    if not searches:
        return None
    table = search_table(METHODS, searches, "validation RMSE")
    return Section(f"Rank {rank}: the search for the step size", "", None, table)


def _stability(results: Results, rows: list[dict[str, Any]], rank: int) -> Section | None:
    swept = kept(results, f"rank-{rank}/stability/", SWEPT)
    if not swept:
        return None

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, 1, width=7.2, height=3.0)
        axis, least = axes[0, 0], math.inf
        for name, part in swept.items():
            family, style = LOOKS[name]
            losses = losses_of(part)
            least = min(least, np.nanmin(losses))
            axis.plot(
                part["step_sizes"], losses, style, marker=".", color=theme.colour(family), label=METHODS[name].label
            )
        axis.set(xscale="log", xlabel="step size", ylabel="validation RMSE", ylim=(least * 0.95, least * 2))
        axis.grid(True, lw=0.6)
        figure.legend(loc="outside right center")
        return figure

    figure = save_picture(results.figure(f"{settings_of(results).dataset}-rank-{rank}-stability"), draw)
    common, own = _widest(swept)
    cells = [[METHODS[name].label, _step(common[name]), _step(own[name])] for name in swept]
    within = f"widest step size within {STABLE - 1:.0%} of"
    columns = ("method", f"{within} the mirrored methods' best error", f"{within} its own")
    see = "Error at the last iteration against the step size: how far a step can be widened before the chain is of no use."
    return Section(f"Rank {rank}: stability", see, figure, Table(columns, cells))


__all__ = ["claims_of", "curve_rows", "page"]
