"""Figure 2: how far the law that a chain settles in is from the target, against the step size.

The paper looks at E[theta] alone, which some pairs of transform and target get exactly right at every step size, and
symmetric targets always; so E[theta^2], W1 and KS stand beside it. Lines are exact, by quadrature of the transition kernel;
points with error bars are simulated, from many chains, and must lie on the lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import inbounds as ib
from experiments.methods import PROBIT_FAMILY, Method, run_chains, seed_for
from experiments.pictures import log_log
from experiments.reports import Claim, Report
from experiments.results import Results, cores, number
from experiments.targets import TARGETS, Target
from inbounds.diagnostics import fitted_slope, stationary
from inbounds.display import Section, Table, Theme, new_figure, save_picture

NAME = "weak-error"
TITLE = "Weak error against the step size"
MEASURES = {
    "mean": "h(θ) = θ",
    "second_moment": "h(θ) = θ²",
    "wasserstein1": "W1",
    "kolmogorov_smirnov": "KS",
}
EXACTLY_ZERO = 1e-9
SCHEMES = {"mirror": "mirror", "corv": "euler", "lm": "leimkuhler_matthews", "lm-nc": "leimkuhler_matthews"}


class Scale(NamedTuple):
    """How much is run.

    Args:
        targets: their names.
        methods: "all", or "some": one of each family.
        step_sizes: for CoRV and Leimkuhler-Matthews.
        small_step_sizes: for mirror and Ito, which the paper says need smaller ones.
        chains: for each step size in one run.
        runs: as many times that many chains.
        draws: kept of each.
        thin: steps between two of them.
        burn_in: steps before the first.
    """

    targets: tuple[str, ...]
    methods: str
    step_sizes: tuple[float, ...]
    small_step_sizes: tuple[float, ...]
    chains: int
    runs: int
    draws: int
    thin: int
    burn_in: int


GRID = (0.05, 0.1, 0.2, 0.4, 0.8)
SMALL_GRID = (0.001, 0.01, 0.05, 0.1, 0.4)

SCALES = {
    "smoke": Scale(("gamma-0.5-0.5",), "some", (0.1, 0.2, 0.4), (0.01, 0.1, 0.4), 8, 1, 500, 4, 500),
    "laptop": Scale(
        ("gamma-0.5-0.5", "beta-0.5-1.5", "half-normal"), "some", GRID, SMALL_GRID, 32, 1, 10_000, 5, 5_000
    ),
    "full": Scale(tuple(TARGETS), "all", GRID, SMALL_GRID, 64, 8, 20_000, 10, 10_000),
}


def settings(scale: str, seed: int) -> dict[str, Any]:
    """Everything that the numbers depend on."""
    return {"scale": scale, "seed": seed, "noise_sd": 1.0, **SCALES[scale]._asdict()}


def methods_for(target: Target, which: str) -> list[Method]:
    """Mirror, Ito, CoRV, and Leimkuhler-Matthews without noise, with noise, and with noise corrected for."""
    names = ib.transforms.available(target.support)
    plain = names[0]
    corv = names if which == "all" else names[:1]
    probit = [name for name in names if name in PROBIT_FAMILY and which == "all"]
    return [
        Method("mirror"),
        Method("ito", plain),
        *(Method("corv", name) for name in corv),
        *([Method("lm", plain)] if which == "all" else []),
        *(Method("lm-nc", name) for name in (plain, *probit)),
        *([Method("lm", plain, noise_sd=0.0)] if which == "all" else []),
    ]


def label_of(method: Method) -> str:
    return method.label + ("" if method.noise_sd else ", exact gradient")


def step_sizes_for(method: Method, scale: Scale) -> tuple[float, ...]:
    return tuple(scale.small_step_sizes if method.family in ("mirror", "ito") else scale.step_sizes)


def run(results: Results, say: Callable[[str], None] = print) -> None:
    """Compute every part that is missing."""
    scale = Scale(*(results.settings[field] for field in Scale._fields))
    seed = results.settings["seed"]
    exact: dict[str, Callable[..., Any]] = {}
    simulated: dict[str, Callable[..., Any]] = {}
    for name in scale.targets:
        target = TARGETS[name]
        for method in methods_for(target, scale.methods):
            sizes = step_sizes_for(method, scale)
            exact[f"exact/{name}/{method.name}"] = lambda check, t=target, m=method, s=sizes: reference(t, m, s, check)
            simulated[f"simulated/{name}/{method.name}"] = lambda check, t=target, m=method, s=sizes: simulate(
                t, m, s, scale, seed, check
            )
    results.run({**exact, **simulated}, workers=min(8, cores()), say=say)


def reference(
    target: Any, method: Method, step_sizes: Sequence[float], check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The bias at each step size without Monte Carlo error, or why there is none."""
    if method.family not in SCHEMES:
        return {"rows": [], "reason": "no kernel to integrate: one step throws the proxy out of the range of floats"}
    rows, reason = [], ""
    for step_size in step_sizes:
        check()
        try:
            law = stationary(
                target,
                method.transform,
                step_size,
                scheme=SCHEMES[method.family],
                noise_sd=method.noise_sd,
                noise_correction=method.family == "lm-nc",
            )
        except ValueError as error:
            reason = str(error)
            continue
        rows.append({"step_size": step_size, **law.bias()._asdict(), "tail_mass": law.tail_mass})
    return {"rows": rows, "reason": reason}


def simulate(
    target: Target,
    method: Method,
    step_sizes: Sequence[float],
    scale: Scale,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """The same from chains: the estimate of each measure, its standard error, and whether it stands out of the noise."""
    kernel = method.kernel(target)
    edges = _edges(target)
    own: dict[float, list[Any]] = {step_size: [] for step_size in step_sizes}
    seeds = [seed_for(seed, NAME, target.name, method.name, run_number) for run_number in range(scale.runs)]
    for run_seed in seeds:
        sizes = np.repeat(step_sizes, scale.chains)
        chains = run_chains(kernel, target, sizes, scale.draws, scale.burn_in, run_seed, check, thin=scale.thin)
        for step_size, theta in zip(step_sizes, np.split(chains.theta, len(step_sizes)), strict=True):
            own[step_size].append(_statistics(theta, edges))
    return [
        {
            "step_size": step_size,
            **_errors(np.concatenate(parts), target, edges),
            "runs": [{"seed": s, **_errors(p, target, edges)} for s, p in zip(seeds, parts, strict=True)],
        }
        for step_size, parts in own.items()
    ]


def _edges(target: Target, count: int = 256) -> np.ndarray:
    """Where distribution functions are compared: quantiles of the target, and a few in its tails."""
    tails = np.array([1e-6, 1e-5, 1e-4, 1e-3])
    levels = np.concatenate([tails, np.arange(1, count) / count, 1 - tails[::-1]])
    return np.asarray(target.quantile(np.unique(levels)))


def _statistics(theta: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """One row per chain: mean, second moment, and the share of draws up to each edge; nan for a chain that died."""
    theta = theta.astype(float)
    rows = np.full((len(theta), 2 + len(edges)), np.nan)
    for row, chain in zip(rows, theta, strict=True):
        if np.isfinite(chain).all():
            row[0], row[1] = chain.mean(), np.square(chain).mean()
            row[2:] = np.searchsorted(np.sort(chain), edges, side="right") / len(chain)
    return rows


def _errors(rows: np.ndarray, target: Target, edges: np.ndarray) -> dict[str, Any]:
    """Errors relative as in `Bias`, with standard errors from the differences between chains."""
    alive = rows[np.isfinite(rows[:, 0])]
    answer: dict[str, Any] = {"chains": len(rows), "died": len(rows) - len(alive)}
    if len(alive) < 2:
        return answer
    root = math.sqrt(len(alive))
    mean_size = abs(target.mean) if abs(target.mean) > 1e-12 else math.sqrt(target.second_moment)
    for column, name, truth, size in (
        (0, "mean", target.mean, mean_size),
        (1, "second_moment", target.second_moment, target.second_moment),
    ):
        answer[name] = (alive[:, column].mean() - truth) / size
        answer[f"{name}_se"] = alive[:, column].std(ddof=1) / root / size
        answer[f"{name}_resolved"] = bool(abs(answer[name]) > 2 * answer[f"{name}_se"])
    shares = alive[:, 2:]
    gap = shares.mean(axis=0) - target.cdf(edges)
    noise = shares.std(axis=0, ddof=1) / root
    lengths = np.gradient(edges)
    # Linear in each chain's shares once the signs are fixed: its spread between chains is the standard error.
    travelled = (shares * np.sign(gap)) @ lengths
    worst = int(np.argmax(np.abs(gap)))
    answer["wasserstein1"] = np.abs(gap) @ lengths
    answer["wasserstein1_se"] = travelled.std(ddof=1) / root
    answer["wasserstein1_resolved"] = bool(answer["wasserstein1"] > 2 * math.sqrt(2 / math.pi) * (noise @ lengths))
    answer["kolmogorov_smirnov"] = abs(gap[worst])
    answer["kolmogorov_smirnov_se"] = noise[worst]
    answer["kolmogorov_smirnov_resolved"] = bool(abs(gap[worst]) > 4 * noise.max())
    return answer


# -- what the numbers say -----------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """One method on one target: what is exact, what is simulated, and the order of each measure."""

    target: str
    method: Method
    exact: list[dict[str, Any]]
    simulated: list[dict[str, Any]]
    reason: str
    slopes: dict[str, float]


def curves_of(results: Results) -> list[Curve]:
    """Every method on every target that has been run."""
    curves = []
    for name in results.settings["targets"]:
        for method in methods_for(TARGETS[name], results.settings["methods"]):
            exact = results.get(f"exact/{name}/{method.name}")
            simulated = results.get(f"simulated/{name}/{method.name}")
            if exact is None and simulated is None:
                continue
            exact, simulated = exact or {"rows": [], "reason": ""}, simulated or []
            slopes = {measure: _slope(exact["rows"], simulated, measure) for measure in MEASURES}
            curves.append(Curve(name, method, exact["rows"], simulated, exact["reason"], slopes))
    return curves


def _slope(exact: list[dict[str, Any]], simulated: list[dict[str, Any]], measure: str) -> float:
    """The order, from the exact values up to a step size of .4 where there are any, else from what is resolved; nan for 0."""
    points = [(row["step_size"], abs(number(row[measure]))) for row in exact if row["step_size"] <= 0.4]
    if not points:
        points = [(row["step_size"], abs(number(row[measure]))) for row in simulated if row.get(f"{measure}_resolved")]
    elif max(value for _, value in points) < EXACTLY_ZERO:
        return math.nan
    points = [(size, value) for size, value in points if value > 0 and math.isfinite(value)]
    return fitted_slope(*zip(*points, strict=True)) if len(points) > 1 else math.nan


def unbiased_in_the_mean(curve: Curve) -> bool:
    """Whether E[theta] is exactly right at every step size."""
    return bool(curve.exact) and all(abs(row["mean"]) < EXACTLY_ZERO for row in curve.exact)


def disagreement(curve: Curve) -> list[float]:
    """Simulated minus exact E[theta^2], in standard errors, at every step size that has both.

    Not for exp: gradient noise makes its chains explode now and then, and no number of chains then estimates a second moment.
    """
    if curve.method.transform == "exp":
        return []
    exact = {row["step_size"]: row for row in curve.exact}
    return [
        (row["second_moment"] - exact[row["step_size"]]["second_moment"]) / row["second_moment_se"]
        for row in curve.simulated
        if row["step_size"] in exact and row.get("second_moment_se") and row["died"] == 0
    ]


def tidy_rows(curves: list[Curve]) -> list[dict[str, Any]]:
    """One row a target, method, step size and kind."""
    rows = []
    for curve in curves:
        same: dict[str, Any] = {"target": curve.target, "method": curve.method.name, "family": curve.method.family}
        same |= {"transform": curve.method.transform, "noise_sd": curve.method.noise_sd}
        rows += [{**same, "kind": "exact", **row} for row in curve.exact]
        rows += [{**same, "kind": "simulated", **_without_runs(row)} for row in curve.simulated]
    return rows


def seed_rows(curves: list[Curve]) -> list[dict[str, Any]]:
    """One row a target, method, step size and seed: the runs that the simulated points are made of."""
    return [
        {"target": curve.target, "method": curve.method.name, "step_size": row["step_size"], **own}
        for curve in curves
        for row in curve.simulated
        for own in row["runs"]
    ]


def _without_runs(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "runs"}


def report(results: Results) -> Report:
    """Tables, pictures and sentences from the parts that are there."""
    curves = curves_of(results)
    claims = claims_of(curves)
    results.write_csv("seeds", seed_rows(curves))
    summary = [
        {
            "target": curve.target,
            "method": curve.method.name,
            "noise_sd": curve.method.noise_sd,
            "slope": curve.slopes,
            "unbiased_in_the_mean": unbiased_in_the_mean(curve),
            "no_reference_because": curve.reason,
            "largest_disagreement": max(map(abs, disagreement(curve)), default=None),
        }
        for curve in curves
    ]
    results.write_summary(summary, claims)
    results.write_csv("summary", tidy_rows(curves))
    names = list(dict.fromkeys(curve.target for curve in curves))
    sections = [_section(results, [curve for curve in curves if curve.target == name]) for name in names]
    own = results.settings
    lead = (
        "Bias of the law that each chain settles in, for gradients with Gaussian noise of standard deviation "
        f"{own['noise_sd']:g}. Lines: exact, by quadrature. Points: simulated, {own['chains'] * own['runs']} chains of "
        f"{own['draws'] * own['thin']:,} steps at each step size, with bars of two standard errors; hollow where the bias "
        "does not stand out of the Monte Carlo noise."
    )
    return Report(TITLE, lead, sections, claims, results.facts())


def _at(rows: list[dict[str, Any]], measure: str, step_size: float) -> float:
    return next((abs(number(row.get(measure))) for row in rows if row["step_size"] == step_size), math.nan)


def claims_of(curves: list[Curve]) -> list[Claim]:
    """The paper's claims on Figure 2, each judged from the numbers."""
    claims = []
    plain = {name: ib.transforms.available(TARGETS[name].support)[0] for name in {c.target for c in curves}}
    chosen = {
        (c.target, c.method.family): c
        for c in curves
        if c.method.noise_sd and c.method.transform in (None, plain[c.target])
    }
    targets = list(dict.fromkeys(c.target for c in curves))

    def of(family: str) -> list[Curve]:
        return [chosen[name, family] for name in targets if (name, family) in chosen]

    def listing(found: Sequence[Curve], text: Callable[[Curve], str]) -> str:
        return "; ".join(f"{TARGETS[c.target].label}: {text(c)}" for c in found) + "."

    corv = [c for c in of("corv") if c.exact]
    if corv:
        slopes = [c.slopes["wasserstein1"] for c in corv]
        claims.append(
            Claim(
                "The error of CoRV scales almost linearly with the step size.",
                "Order in W1, exact: " + listing(corv, lambda c: f"{c.slopes['wasserstein1']:.2f}"),
                all(0.85 <= slope <= 1.2 for slope in slopes),
            )
        )
    for family, label in (("mirror", "mirror"), ("ito", "Ito")):
        pairs = [(c, chosen[c.target, "corv"]) for c in of(family) if (c.target, "corv") in chosen and c.simulated]
        values = [
            (c, _at(c.simulated, "wasserstein1", 0.1), _at(other.exact or other.simulated, "wasserstein1", 0.1))
            for c, other in pairs
        ]
        values = [(c, a, b) for c, a, b in values if math.isfinite(a) and math.isfinite(b)]
        if values:
            text = "W1 at step size 0.1: " + "; ".join(
                f"{TARGETS[c.target].label}: {label} {a:.2g}, CoRV {b:.2g}" for c, a, b in values
            )
            claim = f"The errors of {label} are significantly greater than those of CoRV."
            claims.append(Claim(claim, text + ".", all(a > 1.5 * b for _, a, b in values)))
    ito = [c for c in of("ito") if c.simulated]
    if ito:
        paths = [[number(row.get("wasserstein1")) for row in c.simulated] for c in ito]
        text = "W1 from the smallest step size to the largest: " + "; ".join(
            f"{TARGETS[c.target].label}: " + ", ".join(f"{value:.2g}" for value in path)
            for c, path in zip(ito, paths, strict=True)
        )
        improves = [path[0] < 0.5 * min(path[1:]) for path in paths]
        claims.append(Claim("Smaller step sizes do not improve Ito.", text + ".", not any(improves)))
    free = [c for c in curves if unbiased_in_the_mean(c)]
    if free:
        text = "; ".join(
            f"{TARGETS[name].label}: " + ", ".join(label_of(c.method) for c in free if c.target == name)
            for name in dict.fromkeys(c.target for c in free)
        )
        claims.append(
            Claim(
                "E[θ] shows the weak error of every method.",
                f"It cannot: it is exactly right at every step size for {text}.",
                False,
            )
        )
    second = [c for c in of("lm-nc") if c.exact]
    if second:
        claims.append(
            Claim(
                "Ours, not the paper's: Leimkuhler-Matthews with noise correction is of second order.",
                "Order in W1, exact: " + listing(second, lambda c: f"{c.slopes['wasserstein1']:.2f}"),
                all(1.8 <= c.slopes["wasserstein1"] <= 2.3 for c in second),
            )
        )
    apart = [z for c in curves for z in disagreement(c)]
    if apart:
        inside = float(np.mean(np.abs(apart) < 3))
        claims.append(
            Claim(
                "Ours: quadrature and simulation agree.",
                f"In E[θ²], without exp, {inside:.0%} of {len(apart)} pairs lie within three standard errors; the root mean square of the "
                f"differences is {math.sqrt(np.mean(np.square(apart))):.2f} standard errors.",
                inside >= 0.95,
            )
        )
    return claims


def _section(results: Results, curves: list[Curve]) -> Section:
    target = TARGETS[curves[0].target]
    free = [label_of(curve.method) for curve in curves if unbiased_in_the_mean(curve)]
    symmetric = abs(target.mean) < 1e-12 or target.powers[0] == target.powers[1] != 0

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(2, 2, height=3.0, width=7.6)
        handles = {}
        for axis, (measure, title) in zip(axes.flat, MEASURES.items(), strict=True):
            for curve in curves:
                handles[label_of(curve.method)] = _draw_curve(axis, theme, curve, measure)
            log_log(axis, theme, "step size", "relative error" if measure in ("mean", "second_moment") else "")
            axis.set_title(title)
            _limit(axis, curves, measure)
        if free or symmetric:
            text = "exactly unbiased at every step size:\n" + "\n".join(_wrapped(free))
            text = "by symmetry no method has a bias here" if symmetric else text
            axes.flat[0].text(
                0.03, 0.97, text, transform=axes.flat[0].transAxes, va="top", fontsize=7.5, color=theme.ink, zorder=5,
                bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 1.5},
            )  # fmt: skip
        labels = [f"{label}: order {_order(curve)}" for label, curve in zip(handles, curves, strict=True)]
        figure.legend(handles.values(), labels, loc="outside lower center", ncols=2, fontsize=8)
        return figure

    figure = save_picture(results.figure(f"weak-error-{target.name}"), draw)
    columns = (
        "method",
        *(f"order in {name}" for name in ("E θ", "E θ²", "W1", "KS")),
        "W1 at 0.1",
        "simulated",
        "± 2 se",
    )
    rows = [
        [
            label_of(curve.method),
            "exact" if unbiased_in_the_mean(curve) else _two_digits(curve.slopes["mean"]),
            *(_two_digits(curve.slopes[measure]) for measure in list(MEASURES)[1:]),
            _short(_at(curve.exact, "wasserstein1", 0.1)),
            _short(_at(curve.simulated, "wasserstein1", 0.1)),
            _short(2 * _at(curve.simulated, "wasserstein1_se", 0.1)),
        ]
        for curve in curves
    ]
    first = next((c for c in curves if c.method.family == "corv" and c.exact), None)
    second = next((c for c in curves if c.method.family == "lm-nc" and c.exact), None)
    see = "Every line is a method"
    if first and second:
        see = (
            f"{label_of(first.method)} falls with order {first.slopes['wasserstein1']:.2f} in W1, "
            f"{label_of(second.method)} with order {second.slopes['wasserstein1']:.2f}: at a step size of 0.1 its bias is "
            f"{_at(first.exact, 'wasserstein1', 0.1) / _at(second.exact, 'wasserstein1', 0.1):.0f} times smaller"
        )
    notes = []
    if free:
        notes.append("Exactly unbiased in the mean at every step size: " + ", ".join(free) + ".")
    if symmetric:
        notes.append(
            "The target is symmetric: in exact arithmetic no method has a bias in the mean, so look at the other panels. "
            "On (0, 1) mirror and Ito may still show one, because floats are finer near 0 than near 1."
        )
    for reason in dict.fromkeys(curve.reason for curve in curves if curve.reason):
        who = ", ".join(label_of(curve.method) for curve in curves if curve.reason == reason)
        notes.append(f"No exact reference for {who}, or not at every step size: {reason}")
    died = [f"{label_of(c.method)} at {row['step_size']:g}" for c in curves for row in c.simulated if row.get("died")]
    if died:
        notes.append("Chains left the finite numbers: " + ", ".join(died) + ".")
    return Section(target.label, see + ".", figure, Table(columns, rows), notes)


def _draw_curve(axis: Any, theme: Theme, curve: Curve, measure: str) -> Any:
    colour = theme.colour(curve.method.family)
    names = ib.transforms.available(TARGETS[curve.target].support)
    style: Any = ("-", "--", "-.", ":")[names.index(curve.method.transform)] if curve.method.transform else "-"
    if not curve.method.noise_sd:
        style = (0, (1, 1))
    marker = {"mirror": "s", "ito": "^", "corv": "o"}.get(curve.method.family, "D")
    exact = [(row["step_size"], abs(number(row[measure]))) for row in curve.exact]
    exact = [(size, value) for size, value in exact if value > EXACTLY_ZERO]
    (line,) = axis.plot(*(zip(*exact, strict=True) if exact else ([], [])), ls=style, color=colour, lw=1.4)
    for row in curve.simulated:
        value = abs(number(row.get(measure)))
        if not math.isfinite(value):
            continue
        resolved = bool(row.get(f"{measure}_resolved"))
        bar = 2 * number(row[f"{measure}_se"])
        axis.errorbar(
            row["step_size"], value, yerr=[[min(bar, 0.999 * value)], [bar]], fmt=marker, ms=3.6, color=colour,
            mfc=colour if resolved else theme.paper, lw=0.8, alpha=1.0 if resolved else 0.55,
        )  # fmt: skip
    if not curve.exact:
        # What has no exact line is joined by a thin one, and shown with its marker in the legend.
        points = [(row["step_size"], abs(number(row.get(measure)))) for row in curve.simulated]
        (line,) = (
            axis.plot(*zip(*points, strict=True), ls=style, color=colour, lw=0.7, marker=marker, ms=0.1)
            if points
            else (line,)
        )
    return line


def _limit(axis: Any, curves: list[Curve], measure: str) -> None:
    """From the smallest exact or resolved error to the largest that is not an explosion."""
    values = [abs(number(row[measure])) for curve in curves for row in curve.exact]
    values += [
        abs(number(row[measure])) for curve in curves for row in curve.simulated if row.get(f"{measure}_resolved")
    ]
    values = [value for value in values if math.isfinite(value) and value > 1e-7]
    if values:
        axis.set_ylim(max(min(values) / 3, 1e-7), min(max(values) * 3, 1e2))


def _order(curve: Curve) -> str:
    slope = curve.slopes["wasserstein1"]
    return "–" if math.isnan(slope) else f"{slope:.2f} in W1"


def _wrapped(names: list[str], most: int = 6) -> list[str]:
    return names[:most] + ([f"and {len(names) - most} more"] if len(names) > most else [])


def _two_digits(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _short(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:.2g}"
