"""The page of the binary network experiment: tables, pictures, and the paper's claims beside what the numbers say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from experiments.binary_network import METHODS, SENSITIVE, settings_of, summarise
from experiments.comparison import curve_of, draw_curves, kept, plus_minus, search_table, write_tables
from experiments.pictures import log_log
from experiments.reports import Claim, Report
from experiments.results import Results, number
from inbounds.display import Section, Table, Theme, new_figure, save_picture

TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "synthetic": "synthetic digits"}
LOOKS = {
    "sigmoid": ("corv", "-"),
    "arctan": ("corv", "--"),
    "softsign": ("corv", ":"),
    "mirror": ("mirror", "-"),
    "probit": ("lm", "-"),
    "probit-lm": ("lm", "--"),
    "probit-lm-nc": ("lm-nc-estimated", "-"),
    "sigmoid-baoab": ("lm-nc", "--"),
    "probit-baoab": ("lm-nc", "-"),
    "probit-baoab-nc": ("lm-nc", ":"),
}  # family, whose colour is used, and line style
GOALS = {"mnist": ((0.960, 0.155), (0.963, 0.140)), "fashion-mnist": ((0.860, 0.44), None)}
MARGIN = 0.15  # what "better than mirror" means, as a share of mirror's loss


def page(results: Results) -> Report:
    """Everything that the parts which are there have to say."""
    rows = summarise(results)
    claims = claims_of(results, rows)
    write_tables(results, rows, curve_rows(results), claims)
    makers = (_curves, _table, _search, _scale, _prior, _ito, _standard)
    sections = [section for make in makers if (section := make(results, rows)) is not None]
    own = settings_of(results)
    title = f"Bayesian binary networks on {TITLES[own.dataset]}"
    lead = (
        f"A network with {' and '.join(map(str, own.hidden))} hidden units, every weight in (-1, 1) under a translated "
        f"beta({own.prior:g}, {own.prior:g}) prior, sampled with minibatches of {own.batch_size}. At the end of each of "
        f"{own.epochs} epochs the weights are replaced by their signs, and the softmax outputs of these binary networks are "
        f"averaged over the epochs so far. Step sizes minimise the validation loss after {own.tuning_epochs} epochs in "
        f"{own.trials} trials ({'TPE' if own.search == 'tpe' else 'a grid on the log scale'}); the numbers are means over "
        f"{own.chains} seeds on the test part of an 8 : 1 : 1 split, with standard errors."
    )
    return Report(title, lead, sections, claims, results.facts())


def curve_rows(results: Results) -> list[dict[str, Any]]:
    """The means over the seeds, one row a method and epoch."""
    rows = []
    for name, final in kept(results, "final/", METHODS).items():
        means = {
            metric: curve_of(final, metric) for metric in ("loss", "accuracy", "single_loss", "single_accuracy", "ece")
        }
        for epoch in range(len(means["loss"])):
            rows.append({"method": name, "epoch": epoch + 1, **{key: values[epoch] for key, values in means.items()}})
    return rows


def _pick(rows: list[dict[str, Any]], stage: str = "final", **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in rows if row["stage"] == stage and all(row[key] == value for key, value in wanted.items())]


def _best(rows: list[dict[str, Any]], group: str) -> dict[str, Any] | None:
    """The final row with the least loss among the methods of a group."""
    found = [row for row in _pick(rows) if METHODS[row["method"]].group == group and math.isfinite(row["loss"])]
    return min(found, key=lambda row: row["loss"]) if found else None


# -- claims -------------------------------------------------------------------------------------------------------


def claims_of(results: Results, rows: list[dict[str, Any]]) -> list[Claim]:
    """The paper's claims on this experiment, and the project's goals, each judged from the numbers."""
    finals = {row["method"]: row for row in _pick(rows)}
    mirror, claims = finals.get("mirror"), []
    corv = [finals[name] for name in ("sigmoid", "arctan", "softsign") if name in finals]
    ours = _best(rows, "ours")
    if mirror and corv:
        gains = [1 - row["loss"] / mirror["loss"] for row in corv]
        better = all(row["loss"] < mirror["loss"] and row["accuracy"] > mirror["accuracy"] for row in corv)
        listing = "; ".join(
            f"{row['method']} {row['loss']:.4f} and {row['accuracy']:.4f} ({abs(gain):.0%} {'less' if gain > 0 else 'more'} loss)"
            for row, gain in zip(corv, gains, strict=True)
        )
        claims.append(
            Claim(
                "CoRV achieves better prediction than the mirroring heuristic.",
                f"Test loss and accuracy: mirror {mirror['loss']:.4f} and {mirror['accuracy']:.4f}; {listing}. "
                f"{_lead(results, corv, mirror)}",
                better,
            )
        )
        claims.append(_slower(results, corv, mirror))
        steps = [row["step_size"] / mirror["step_size"] for row in corv]
        claims.append(
            Claim(
                "The transformation enables stable computation with a large step size.",
                f"The best step size of mirror is {mirror['step_size']:.2g}; those of CoRV are {min(steps):.3g} to "
                f"{max(steps):.3g} times as large. They move different variables, so the ratio says less than the curves do.",
                min(steps) > 1,
            )
        )
    if (ito := results.get("ito")) is not None:
        claims.append(_ito_claim(results, ito, mirror))
    if ours and corv:
        best = min(corv, key=lambda row: row["loss"])
        claims.append(
            Claim(
                "Ours: the underdamped and second-order kernels and the probit improve on the paper's.",
                f"{METHODS[ours['method']].label} reaches a loss of {plus_minus(ours, 'loss')} and an accuracy of "
                f"{plus_minus(ours, 'accuracy')}; the best of the paper's, {best['method']}, {plus_minus(best, 'loss')} and "
                f"{plus_minus(best, 'accuracy')}.",
                ours["loss"] < best["loss"],
            )
        )
    goals = GOALS.get(settings_of(results).dataset)
    if goals is not None:
        for goal, row, whose in zip(
            goals, (_best(rows, "paper"), ours), ("the paper's transforms", "ours"), strict=True
        ):
            if goal and row:
                accuracy, loss = goal
                claims.append(
                    Claim(
                        f"Our goal with {whose}: accuracy at least {accuracy:.3f}, loss at most {loss:.3f}.",
                        f"{METHODS[row['method']].label}: accuracy {plus_minus(row, 'accuracy')}, loss {plus_minus(row, 'loss')}.",
                        row["accuracy"] >= accuracy and row["loss"] <= loss,
                    )
                )
    return claims


def _lead(results: Results, corv: list[dict[str, Any]], mirror: dict[str, Any]) -> str:
    """How far the best transform is ahead of mirror, early and in the end, against the margin that we look for."""
    best = min(corv, key=lambda row: row["loss"])
    ours, theirs = (curve_of(results.get(f"final/{row['method']}"), "loss") for row in (best, mirror))
    early = len(theirs) // 5
    gains = [1 - ours[i] / theirs[i] for i in (early - 1, -1)] if early else [1 - ours[-1] / theirs[-1]] * 2
    said = f"{best['method'].capitalize()} is {gains[0]:.0%} below mirror in loss after {early} epochs and {gains[1]:.0%} in the end"
    if gains[1] >= MARGIN:
        return f"{said}: more than the {MARGIN:.0%} that we look for."
    return f"{said}, less than the {MARGIN:.0%} that we look for: with step size and logit scale tuned for mirror too, no more is left."


def _slower(results: Results, corv: list[dict[str, Any]], mirror: dict[str, Any]) -> Claim:
    """How many epochs CoRV needs for the loss that mirror ends with."""
    parts = []
    epochs = mirror["epochs"]
    for row in corv:
        curve = curve_of(results.get(f"final/{row['method']}"), "loss")
        reached = np.flatnonzero(curve <= mirror["loss"])
        parts.append((row["method"], int(reached[0]) + 1 if len(reached) else None))
    said = ", ".join(f"{name} after {count}" if count else f"{name} never" for name, count in parts)
    return Claim(
        "The mirroring trick showed a slower learning curve.",
        f"The averaged loss that mirror has after {epochs} epochs is reached by {said} epochs.",
        all(count is not None and count < epochs for _, count in parts),
    )


def _ito_claim(results: Results, ito: dict[str, Any], mirror: dict[str, Any] | None) -> Claim:
    losses = np.array([number(v) for v in ito["validation_loss"]])
    restarted = np.array([number(v) for v in ito["restarted"]])
    best = int(np.nanargmin(losses)) if np.isfinite(losses).any() else 0
    found = (
        f"At its best step size, {ito['step_sizes'][best]:.1g}, {_lost(restarted[best]):.0%} of the weights leave the range of floats "
        f"within 1,000 steps, and {_lost(restarted.max()):.0%} at the largest; put back to where they began, the networks have a test "
        f"loss of {number(ito['loss'][best]):.3f} and an accuracy of {number(ito['accuracy'][best]):.3f} after {ito['epochs']} epochs"
    )
    final = results.get("final/mirror") if mirror else None
    found += (
        f" (mirror {curve_of(final, 'loss')[ito['epochs'] - 1]:.3f} in loss by then)." if final is not None else "."
    )
    return Claim("The Ito formulation has a significant numerical instability.", found, bool(restarted[best] > 0))


def _lost(share_a_step: float, steps: int = 1_000) -> float:
    """Share of the weights that leave the range of floats at least once in so many steps."""
    return 1 - (1 - share_a_step) ** steps


# -- sections -----------------------------------------------------------------------------------------------------


def _curves(results: Results, rows: list[dict[str, Any]]) -> Section | None:
    finals = kept(results, "final/", METHODS)
    if not finals:
        return None
    panels = (
        ("loss", "test loss, averaged"),
        ("accuracy", "test accuracy, averaged"),
        ("single_loss", "test loss, one network"),
        ("single_accuracy", "test accuracy, one network"),
    )

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(2, 2, width=8.6, height=2.7, sharex=True)
        for axis, (metric, label) in zip(axes.flat, panels, strict=True):
            means = {name: curve_of(final, metric) for name, final in finals.items()}
            curves = {name: (np.arange(1, len(mean) + 1), mean) for name, mean in means.items()}
            values = draw_curves(axis, theme, METHODS, LOOKS, curves, 10)
            low, high = np.min(values), np.max(values)
            axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
            axis.set_title(label)
            if metric.startswith("single"):
                axis.set_xlabel("epoch")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure

    figure = save_picture(results.figure(f"{settings_of(results).dataset}-curves"), draw)
    best = min(_pick(rows), key=lambda row: row["loss"])
    see = (
        f"The average of the binary networks of all epochs so far (top) against the latest one alone (bottom). "
        f"{METHODS[best['method']].label} ends lowest: {best['loss']:.4f} averaged, {best['single_loss']:.4f} alone."
    )
    return Section("Loss and accuracy against epochs", see, figure)


def _table(results: Results, rows: list[dict[str, Any]]) -> Section | None:
    finals = _pick(rows)
    if not finals:
        return None
    columns = ("method", "step size", "loss", "accuracy", "ECE", "late: loss", "accuracy", "ECE", "one network: loss", "accuracy",
               "before binarising: loss", "mean of signs: loss")  # fmt: skip
    metrics = ("loss", "accuracy", "ece", "late_loss", "late_accuracy", "late_ece", "single_loss", "single_accuracy", "continuous_loss",
               "weights_loss")  # fmt: skip
    cells = [
        [METHODS[row["method"]].label, f"{row['step_size']:.2e}", *(plus_minus(row, metric) for metric in metrics)]
        for row in finals
    ]
    lowest = min(range(len(finals)), key=lambda i: finals[i]["loss"])
    see = (
        "Test part, last epoch. ECE is the expected calibration error of the averaged prediction over 15 bins; 'late' leaves the "
        "networks of the first fifth of the epochs out of the average."
    )
    notes = (
        "'Before binarising' is the network of continuous weights of the last epoch; 'mean of signs' is one network "
        "whose weights are the mean of the binary ones, which is no longer binary.",
    )
    return Section("All methods", see, None, Table(columns, cells, (lowest,)), notes)


def _search(results: Results, rows: list[dict[str, Any]]) -> Section | None:
    searches = kept(results, "tune/", METHODS)
    if not searches:
        return None

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, 1, width=7.2, height=3.0)
        axis = axes[0, 0]
        for name, part in searches.items():
            family, style = LOOKS[name]
            points = sorted((step, number(loss)) for step, loss in zip(part["step_sizes"], part["losses"], strict=True))
            axis.plot(
                *zip(*points, strict=True),
                style,
                marker=".",
                ms=3,
                lw=0.7,
                color=theme.colour(family),
                label=METHODS[name].label,
            )
        log_log(axis, theme, "step size", "validation loss")
        figure.legend(loc="outside right center")
        return figure

    figure = save_picture(results.figure(f"{settings_of(results).dataset}-search"), draw)
    see = "Every dot is one chain with its own step size."
    return Section("The search for the step size", see, figure, search_table(METHODS, searches))


def _scale(results: Results, rows: list[dict[str, Any]]) -> Section | None:
    parts = results.parts("scale/")
    if not parts:
        return None
    scales = sorted({float(name.split("/")[1]) for name in parts})
    names = sorted({name.split("/")[2] for name in parts})
    losses = {
        (scale, name): number(parts[f"scale/{scale:g}/{name}"]["best_loss"])
        for scale in scales
        for name in names
        if f"scale/{scale:g}/{name}" in parts
    }
    cells = [
        [
            f"{scale:g}",
            *(losses.get((scale, name)) for name in names),
            sum(losses.get((scale, name), math.nan) for name in names),
        ]
        for scale in scales
    ]
    sums = [number(row[-1]) for row in cells]
    lowest = int(np.nanargmin(sums)) if np.isfinite(sums).any() else 0
    epochs = settings_of(results).scale_epochs
    see = f"Validation loss at the best of a grid of step sizes after {epochs} epochs; the scale with the least sum is used for all methods."
    return Section("The logit scale", see, None, Table(("scale", *names, "sum"), cells, (lowest,)))


def _prior(results: Results, rows: list[dict[str, Any]]) -> Section | None:
    found = [row for row in rows if row["stage"] == "prior"]
    if not found:
        return None
    priors = sorted({row["prior"] for row in found})
    names = [name for name in SENSITIVE if any(row["method"] == name for row in found)]

    def cells_of(metric: str) -> list[list[str]]:
        return [
            [
                f"beta({prior:g}, {prior:g})",
                metric,
                *(
                    plus_minus(row[0], metric) if (row := _pick(found, "prior", prior=prior, method=name)) else "–"
                    for name in names
                ),
            ]
            for prior in priors
        ]

    see = (
        f"Test part after {found[0]['epochs']} epochs, step size searched again for every prior. Below 1 the prior density is "
        "infinite at -1 and +1, at 2 it vanishes there."
    )
    labels = [METHODS[name].label for name in names]
    return Section(
        "The effect of the prior",
        see,
        None,
        Table(("prior", "metric", *labels), cells_of("loss") + cells_of("accuracy") + cells_of("ece")),
    )


def _ito(results: Results, rows: list[dict[str, Any]]) -> Section | None:
    part = results.get("ito")
    if part is None:
        return None
    keep = np.unique(np.linspace(0, len(part["step_sizes"]) - 1, 8).astype(int))
    cells = [
        [
            f"{part['step_sizes'][i]:.1e}",
            number(part["loss"][i]),
            number(part["accuracy"][i]),
            f"{number(part['restarted'][i]):.2%}",
            f"{_lost(number(part['restarted'][i])):.0%}",
        ]
        for i in keep
    ]
    see = (
        "Ito's formulation, run rather than left out: small steps do not move, large ones throw weights out of the range of "
        "floats, from where they are restarted."
    )
    columns = ("step size", "test loss", "test accuracy", "weights restarted a step", "lost within 1,000 steps")
    return Section("Ito", see, None, Table(columns, cells))


def _standard(results: Results, rows: list[dict[str, Any]]) -> Section | None:
    found = _pick(rows, "standard")
    if not found:
        return None
    cells = [
        [METHODS[row["method"]].label, *(plus_minus(row, metric) for metric in ("loss", "accuracy", "ece"))]
        for row in found
    ]
    see = "The published split (54,000 to fit, 6,000 to choose, 10,000 to test) with the step sizes found above, to compare with other work."
    lowest = min(range(len(found)), key=lambda i: found[i]["loss"])
    return Section("The standard test set", see, None, Table(("method", "loss", "accuracy", "ECE"), cells, (lowest,)))


__all__ = ["claims_of", "curve_rows", "page"]
