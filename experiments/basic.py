"""Figure 1: draws from known distributions, every method at the step size that TPE found best for it.

For each target and method, trials of the tree-structured Parzen estimator look for the step size with the smallest total
variation between histogram and density; the leading ones are compared once more on new seeds; the winner is then run again
on fresh seeds, and only those runs are reported, beside the same distance for independent draws. Two more pictures show the
theorems on stability.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from experiments.methods import (
    LABELS,
    PROBIT_FAMILY,
    Method,
    all_methods,
    headline_methods,
    label,
    run_chains,
    seed_for,
)
from experiments.pictures import dots_with_errors, histogram_against_density, log_log
from experiments.reports import Claim, Report
from experiments.results import Results, cores, number
from experiments.targets import TARGETS, Target
from inbounds.diagnostics import distances
from inbounds.display import Section, Table, Theme, new_figure, save_picture
from inbounds.tuning import TuningResult, tune

TITLE = "Sampling bounded variables: mirror, Ito and CoRV"

BETA, SKEWED, GAMMA, HALF_NORMAL, TRUNCATED = TARGETS


class Scale(NamedTuple):
    """How much is run.

    Args:
        targets: their names.
        methods: "all", "headline", or "headline+probit".
        draws: of each chain, after burn-in.
        burn_in: steps before them.
        trials: of TPE, a method and target.
        trial_chains: chains whose mean distance is a trial's loss.
        confirmations: how often the best trials are run again before one is chosen.
        width: chains run side by side; `width / trial_chains` trials are evaluated at once.
        chains: fresh ones at the chosen step size.
    """

    targets: tuple[str, ...]
    methods: str
    draws: int
    burn_in: int
    trials: int
    trial_chains: int
    confirmations: int
    width: int
    chains: int


SCALES = {
    "smoke": Scale((BETA, GAMMA), "headline", 4_000, 500, 8, 1, 1, 4, 8),
    "demo": Scale((BETA, GAMMA, HALF_NORMAL), "headline+probit", 100_000, 2_000, 24, 2, 1, 16, 16),
    "laptop": Scale(tuple(TARGETS), "headline+probit", 100_000, 2_000, 32, 2, 2, 16, 16),
    "full": Scale(tuple(TARGETS), "all", 100_000, 2_000, 100, 4, 3, 32, 64),
}


def settings(scale: str, seed: int, targets: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Everything that the numbers depend on.

    Args:
        scale: a key of `SCALES`.
        seed: of everything.
        targets: names of some of the scale's targets; None for all of them.
    """
    chosen = SCALES[scale]._asdict()
    unknown = sorted(set(targets or ()) - set(TARGETS))
    if unknown:
        raise ValueError(f"Unknown target {unknown[0]!r}. Known: {', '.join(TARGETS)}.")
    return {"scale": scale, "seed": seed, "noise_sd": 1.0, **chosen, **({"targets": targets} if targets else {})}


def methods_for(target: Target, which: str) -> list[Method]:
    return all_methods(target) if which == "all" else headline_methods(target, probit=which == "headline+probit")


def run(results: Results, say: Callable[[str], None] = print) -> None:
    """Compute every part that is missing."""
    scale = Scale(*(results.settings[field] for field in Scale._fields))
    seed = results.settings["seed"]
    tasks: dict[str, Callable[..., Any]] = {}
    for name in scale.targets:
        target = TARGETS[name]
        tasks[f"floor/{name}"] = lambda check, t=target: floor(t, scale, seed)
        for method in methods_for(target, scale.methods):
            tasks[f"{name}/{method.name}"] = lambda check, t=target, m=method: tune_and_rerun(t, m, scale, seed, check)
    every = scale.methods == "all"
    tasks["theorems/ito"] = lambda check: ito_jumps(seed, every)
    tasks["theorems/corv"] = lambda check: proxy_noise(seed, every)
    results.run(tasks, workers=min(8, cores()), say=say)


def floor(target: Target, scale: Scale, seed: int) -> dict[str, Any]:
    """The distances of independent draws: what no chain of the same length can be expected to beat."""
    found = distances.iid_floor(target, scale.draws, scale.chains, seed_for(seed, "floor", target.name))
    return {key: list(values) for key, values in found._asdict().items()}


def tune_and_rerun(
    target: Target, method: Method, scale: Scale, seed: int, check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The step size that TPE finds best, then that step size on fresh seeds."""
    kernel = method.kernel(target)
    batch = scale.width // scale.trial_chains
    batches = iter(range(10**6))

    def loss(step_sizes: np.ndarray) -> np.ndarray:
        """Minus the similarity: mean total variation of the chains of each trial. One dead chain makes it nan."""
        repeated = np.repeat(step_sizes, scale.trial_chains)
        run_seed = seed_for(seed, "tune", target.name, method.name, next(batches))
        theta = run_chains(kernel, target, repeated, scale.draws, scale.burn_in, run_seed, check).theta
        losses: np.ndarray = distances.total_variation(theta, target).reshape(batch, -1).mean(axis=1)
        return losses

    low, high = method.range
    tpe_seed = seed_for(seed, "tpe", target.name, method.name)
    name = f"{target.name}/{method.name}"
    found = tune(loss, low, high, scale.trials, tpe_seed, batch=batch, progress=False, name=name)
    chosen, confirmed = confirm(found, loss, batch, scale.confirmations)
    return {
        "target": target.name,
        "method": method.name,
        "family": method.family,
        "transform": method.transform,
        "step_size": chosen,
        "range": method.range,
        "edge": dataclasses.replace(found, best_params={"step_size": chosen}).edges.get("step_size", ""),
        "tuned_loss": found.best_value,
        "confirmed_loss": confirmed,
        "trials": [{"step_size": trial["step_size"], "loss": trial["value"]} for trial in found.trials],
        **rerun(kernel, target, method, scale, chosen, seed, check),
    }


def confirm(found: TuningResult, loss: Callable[..., Any], batch: int, times: int) -> tuple[float, float]:
    """The best of the leading trials on new seeds, and its mean loss there.

    The smallest of a hundred noisy losses is rarely that of the best step size: it is that of the luckiest.
    """
    finite = [trial for trial in found.trials if math.isfinite(trial["value"])]
    leading = sorted(finite, key=lambda trial: trial["value"])[:batch]
    sizes = np.array([trial["step_size"] for trial in leading] + [leading[0]["step_size"]] * (batch - len(leading)))
    losses = np.mean([loss(sizes) for _ in range(times)], axis=0)
    best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
    return float(sizes[best]), float(losses[best])


def rerun(
    kernel: ib.Kernel,
    target: Target,
    method: Method,
    scale: Scale,
    step_size: float,
    seed: int,
    check: Callable[[], None],
) -> dict[str, Any]:
    """Fresh chains at one step size: one row per chain, and the histogram of the first."""
    rows, shares, seconds = [], None, 0.0
    for first in range(0, scale.chains, scale.width):
        run_seed = seed_for(seed, "fresh", target.name, method.name, first)
        chains = run_chains(
            kernel, target, np.full(scale.width, step_size), scale.draws, scale.burn_in, run_seed, check
        )
        seconds += chains.seconds
        apart = distances.distances(chains.theta, target)
        theta = chains.theta.astype(float)
        for i in range(min(scale.width, scale.chains - first)):
            rows.append(
                {
                    "seed": run_seed,
                    "chain": i,
                    "total_variation": apart.total_variation[i],
                    "kolmogorov_smirnov": apart.kolmogorov_smirnov[i],
                    "wasserstein1": apart.wasserstein1[i],
                    "mean": theta[i].mean(),
                    "second_moment": np.square(theta[i]).mean(),
                    "restarts": chains.clamped[i] if method.family == "ito" else 0.0,
                }
            )
        if shares is None:
            finite = theta[0][np.isfinite(theta[0])]
            shares = np.histogram(finite, target.edges)[0] / max(1, len(theta[0]))
    runs = -(-scale.chains // scale.width)
    steps = runs * scale.width * (scale.draws + scale.burn_in)
    return {"chains": rows, "histogram": shares, "seconds": seconds, "steps_per_second": steps / seconds}


# -- the theorems -------------------------------------------------------------------------------------------------

GAPS = tuple(np.logspace(-9, -0.5, 35))
THEOREM_STEPS = (1e-4, 1e-2, 1.0)


def _transforms(target: Target, every: bool) -> tuple[str, ...]:
    """All that fit, or the default and, where it fits, exp."""
    names = ib.transforms.available(target.support)
    return names if every else tuple(name for name in names if name in (names[0], "exp"))


def ito_jumps(seed: int, every: bool = True) -> list[dict[str, Any]]:
    """Theorem 1: the size of one step of phi, from a distance to the bound at 0, by Ito and by CoRV."""
    # In double precision: arctan's phi is 3e8 at a distance of 1e-9, and a step of 0.1 from there must not be lost.
    with jax.enable_x64(True):
        return _ito_jumps(seed, every)


def _ito_jumps(seed: int, every: bool) -> list[dict[str, Any]]:
    rows = []
    for target in (TARGETS[BETA], TARGETS[GAMMA]):
        for transform in _transforms(target, every):
            for family in ("ito", "corv"):
                jumps = _jump_sizes(Method(family, transform), target, seed)
                for step_size, medians in zip(THEOREM_STEPS, jumps, strict=True):
                    rows.append(
                        {
                            "target": target.name,
                            "family": family,
                            "transform": transform,
                            "step_size": step_size,
                            "gap": GAPS,
                            "jump": medians,
                        }
                    )
    return rows


def _jump_sizes(method: Method, target: Target, seed: int, repeats: int = 401) -> np.ndarray:
    """Median |phi' - phi| over noises, for every step size and distance to the bound."""
    kernel = method.kernel(target)
    if method.family == "ito":
        kernel = ib.baselines.ito(kernel.posterior, method.transform, restart=False)
    noises, deltas = jax.random.normal(jax.random.key(seed_for(seed, "jumps")), (2, repeats))

    def medians(gap: jax.Array, step_size: jax.Array) -> jax.Array:
        state = kernel.init(gap)
        moved = jax.vmap(lambda noise, z: kernel.proxy(kernel.update(noise, state, z, step_size)[0]))(noises, deltas)
        return jnp.median(jnp.abs(moved - kernel.proxy(state)))

    everywhere = jax.jit(jax.vmap(jax.vmap(medians, in_axes=(0, None)), in_axes=(None, 0)))
    return np.asarray(everywhere(jnp.asarray(GAPS), jnp.asarray(THEOREM_STEPS)), float)


def proxy_noise(seed: int, every: bool = True) -> list[dict[str, Any]]:
    """Theorem 2: the standard deviation of the noise on the proxy gradient, when that on the theta-gradient is 1."""
    with jax.enable_x64(True):
        return _proxy_noise(seed, every)


def _proxy_noise(seed: int, every: bool, repeats: int = 401) -> list[dict[str, Any]]:
    rows = []
    far = np.logspace(-2, 3, 31)
    noises = jax.random.normal(jax.random.key(seed_for(seed, "noise")), (repeats,))
    for target, points in ((TARGETS[BETA], np.asarray(GAPS)), (TARGETS[GAMMA], np.append(np.asarray(GAPS[:26]), far))):
        points = np.unique(points)
        for transform in _transforms(target, every):
            kernel = Method("corv", transform).kernel(target)
            gradient = kernel.posterior.gradient
            assert gradient is not None

            def spread(theta: Any, space: Any = kernel.space, gradient: Any = gradient) -> jax.Array:
                phi = space.unconstrain(theta)
                point = space.evaluation_point(phi)
                pulled = jax.vmap(lambda z: space.pull_back(phi, point, gradient(point, z)))(noises)
                # The difference to the noiseless one first: the drift is much larger than its spread.
                return jnp.std(pulled - space.pull_back(phi, point, gradient(point, jnp.zeros(()))))

            sizes = np.asarray(jax.jit(jax.vmap(spread))(jnp.asarray(points)), float)
            rows.append({"target": target.name, "transform": transform, "theta": points, "sd": sizes})
    return rows


# -- what the numbers say -----------------------------------------------------------------------------------------


def summarise(results: Results) -> list[dict[str, Any]]:
    """One row a target and method: means over the fresh chains, with standard errors; targets in their usual order."""
    rows = []
    floors = {name: results.get(f"floor/{name}") for name in TARGETS}
    for name, target in TARGETS.items():
        found = results.parts(f"{name}/")
        best_first = sorted(found.values(), key=_rank)
        for part in best_first:
            row = {"target": name, "method": part["method"], "family": part["family"], "transform": part["transform"]}
            row |= {"step_size": part["step_size"], "edge": part["edge"], "chains": len(part["chains"])}
            row["died"] = sum(chain["total_variation"] is None for chain in part["chains"])
            for distance in ("total_variation", "kolmogorov_smirnov", "wasserstein1"):
                row[distance] = _mean(part, distance)
                row[f"{distance}_se"] = _standard_error(part, distance)
            for moment in ("mean", "second_moment"):
                truth = getattr(target, moment)
                # Where the mean is 0 by symmetry its error is relative to the root of the second moment.
                size = abs(truth) if abs(truth) > 1e-12 else math.sqrt(target.second_moment)
                values = np.array([number(chain[moment]) for chain in part["chains"]])
                row[f"{moment}_error"] = float(np.nanmean(np.abs(values - truth)) / size) if row["died"] == 0 else None
            row["restarts"] = _mean(part, "restarts")
            own = floors[name]
            row["floor"] = float(np.mean(own["total_variation"])) if own else None
            row |= {"seconds": part["seconds"], "steps_per_second": part["steps_per_second"]}
            rows.append(row)
    return rows


def _values(part: dict[str, Any], key: str) -> np.ndarray:
    values = np.array([number(chain[key]) for chain in part["chains"]])
    finite: np.ndarray = values[np.isfinite(values)]
    return finite


def _mean(part: dict[str, Any], key: str) -> float | None:
    values = _values(part, key)
    return float(values.mean()) if len(values) else None


def _rank(part: dict[str, Any]) -> float:
    """Best first; a method none of whose chains lived comes last."""
    value = _mean(part, "total_variation")
    return math.inf if value is None else value


def _standard_error(part: dict[str, Any], key: str) -> float | None:
    values = _values(part, key)
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def chain_rows(results: Results) -> list[dict[str, Any]]:
    """Every fresh chain, and every set of independent draws, as a row."""
    rows = []
    for name in TARGETS:
        for part in results.parts(f"{name}/").values():
            same = {key: part[key] for key in ("target", "method", "family", "transform", "step_size")}
            rows += [{**same, **chain} for chain in part["chains"]]
        own = results.get(f"floor/{name}")
        if own:
            columns = zip(*own.values(), strict=True)
            rows += [
                {"target": name, "method": "independent", "chain": i, **dict(zip(own, values, strict=True))}
                for i, values in enumerate(columns)
            ]
    return rows


def trial_rows(results: Results) -> list[dict[str, Any]]:
    """Every trial of every search as a row."""
    return [
        {"target": name, "method": part["method"], "trial": i, **trial}
        for name in TARGETS
        for part in results.parts(f"{name}/").values()
        for i, trial in enumerate(part["trials"])
    ]


def report(results: Results) -> Report:
    """Tables, pictures and sentences from the parts that are there."""
    summary = summarise(results)
    results.write_csv("chains", chain_rows(results))
    results.write_csv("trials", trial_rows(results))
    results.write_csv("summary", summary)
    claims = claims_of(summary)
    limits = limits_of(summary) if results.settings["scale"] == "full" else []
    results.write_summary(summary, claims, limits=limits)
    targets = [name for name in TARGETS if any(row["target"] == name for row in summary)]
    sections = []
    if targets:
        sections.append(_overview(results, summary, targets))
        sections += [_histograms(results, summary, name) for name in targets]
        sections.append(_searches(results, summary, targets))
        if results.settings["scale"] == "full" and limits_of(summary):
            sections.append(_limits(summary))
    sections += [
        make(results, rows)
        for part, make in (("theorems/ito", _ito_section), ("theorems/corv", _noise_section))
        if (rows := results.get(part)) is not None
    ]
    own = results.settings
    lead = (
        f"{own['draws']:,} draws per chain after {own['burn_in']:,} steps of burn-in, from gradients with Gaussian noise of "
        f"standard deviation {own['noise_sd']:g}. The step size of every method is the best of {own['trials']} trials of TPE, "
        f"confirmed on new seeds; the numbers are from {own['chains']} fresh chains at that step size. TV is the total variation between "
        "histogram and density over 100 bins; the floor is the TV of as many independent draws."
    )
    return Report(TITLE, lead, sections, claims, results.facts())


def _find(
    summary: list[dict[str, Any]], target: str, family: str, transforms: tuple[str, ...] | None = None
) -> dict[str, Any] | None:
    """The best row of a family on a target."""
    rows = [
        row
        for row in summary
        if row["target"] == target
        and row["family"] == family
        and row["total_variation"] is not None
        and (transforms is None or row["transform"] in transforms)
    ]
    return min(rows, key=lambda row: row["total_variation"]) if rows else None


def _default(target: str) -> tuple[str, ...]:
    return (ib.transforms.available(TARGETS[target].support)[0],)


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")


def label_of(row: dict[str, Any]) -> str:
    return label(row["family"], row["transform"])


def claims_of(summary: list[dict[str, Any]]) -> list[Claim]:
    """The paper's claims on Figure 1, each judged from the numbers."""
    targets = list(dict.fromkeys(row["target"] for row in summary))
    unbounded = [t for t in targets if min(TARGETS[t].powers) < 0]
    bounded = [t for t in targets if min(TARGETS[t].powers) >= 0]
    claims = []

    def versus(
        claim: str, names: list[str], left: Callable[..., Any], right: Callable[..., Any], verdict: Callable[..., Any]
    ) -> None:
        """Compare two rows on each target; `verdict(left TV, right TV, 2 standard errors)` is one target's vote."""
        found, votes = [], []
        for t in names:
            a, b = left(t), right(t)
            if a is None or b is None:
                continue
            spread = 2 * math.hypot(number(a["total_variation_se"]), number(b["total_variation_se"]))
            votes.append(verdict(a["total_variation"], b["total_variation"], spread))
            found.append(
                f"{TARGETS[t].label}: {label_of(a)} {a['total_variation']:.4f}, "
                f"{label_of(b)} {b['total_variation']:.4f}"
            )
        if found:
            claims.append(Claim(claim, "; ".join(found) + ".", all(votes)))

    def own(family: str, transforms: Callable[..., Any] | None = None) -> Callable[..., Any]:
        return lambda t: _find(summary, t, family, None if transforms is None else transforms(t))

    versus(
        "Mirror fails where the density is high at its bounds.",
        unbounded,
        own("mirror"),
        own("corv"),
        lambda mirror, corv, spread: mirror - corv > spread and mirror > 3 * corv,
    )
    versus(
        "The errors of mirror are significantly greater than those of CoRV (bounded densities).",
        bounded,
        own("mirror"),
        own("corv", _default),
        lambda mirror, corv, spread: mirror - corv > spread,
    )
    versus(
        "Ito is unstable near the bounds: its errors are greater than those of CoRV, at its best step size too.",
        targets,
        own("ito"),
        own("corv"),
        lambda ito, corv, spread: ito - corv > spread,
    )
    works = [(t, row) for t in targets if (row := _find(summary, t, "corv", _default(t)))]
    if works:
        text = "; ".join(
            f"{TARGETS[t].label}: {row['total_variation']:.4f}, {row['total_variation'] / row['floor']:.2f} times the floor"
            for t, row in works
            if row["floor"]
        )
        claims.append(Claim("CoRV works appropriately for these distributions.", text + ".", None if not text else all(
            row["total_variation"] < 3 * row["floor"] for _, row in works if row["floor"]
        )))  # fmt: skip
    heavy = [
        (t, row)
        for t in targets
        for name in ("arctan", "softsign")
        if (row := _find(summary, t, "corv", (name,))) and (t in unbounded)
    ]
    if heavy:
        text = "; ".join(f"{TARGETS[t].label}: {label_of(row)} {row['total_variation']:.4f}" for t, row in heavy)
        bad = any(row["total_variation"] > 3 * row["floor"] for _, row in heavy if row["floor"])
        why = " Their proxy has polynomial tails there, and mixes only polynomially." if bad else ""
        claims.append(Claim("Arctan and softsign are as good a transform as sigmoid.", text + "." + why, not bad))
    versus(
        "Ours, not the paper's: a second-order kernel at the same cost per step comes closer than Euler.",
        targets,
        own("lm-nc", _default),
        own("corv", _default),
        lambda lm, corv, spread: lm < corv,
    )
    versus(
        "Ours: the probit family comes closer than sigmoid and softplus, with the second-order kernel.",
        targets,
        own("lm-nc", lambda t: PROBIT_FAMILY),
        own("lm-nc", _default),
        lambda probit, plain, spread: probit < plain + spread / 2,
    )
    versus(
        "Ours: estimating the variance of the gradient noise costs at most 10%.",
        targets,
        own("lm-nc-estimated", _default),
        own("lm-nc", _default),
        lambda estimated, known, spread: estimated < 1.1 * known + spread / 2,
    )
    return claims


# -- sections -----------------------------------------------------------------------------------------------------


def _overview(results: Results, summary: list[dict[str, Any]], targets: list[str]) -> Section:
    def draw(theme: Theme) -> Any:
        columns = min(2, len(targets))
        most = max(sum(row["target"] == t for row in summary) for t in targets)
        figure, axes = new_figure(-(-len(targets) // columns), columns, height=0.9 + 0.185 * most, width=8.6)
        for place, axis in zip(targets + [None] * (axes.size - len(targets)), axes.flat, strict=True):
            if place is None:
                axis.set_axis_off()
                continue
            rows = [row for row in summary if row["target"] == place and row["total_variation"] is not None]
            dots_with_errors(
                axis,
                theme,
                [label_of(row) for row in rows],
                [row["total_variation"] for row in rows],
                [row["total_variation_se"] or 0.0 for row in rows],
                [row["family"] for row in rows],
                rows[0]["floor"] or math.nan,
            )
            axis.set_title(TARGETS[place].label)
            axis.set_xlabel("TV; dashed: i.i.d. draws", fontsize=8)
            axis.tick_params(axis="y", labelsize=7.5)
        return figure

    figure = save_picture(results.figure("overview"), draw)
    columns = {
        "mirror": "mirror", "ito": "Ito, best", "corv": "CoRV, best",
        "lm-nc": "CoRV-LM-nc, best", "lm-nc-estimated": "the same, estimated",
    }  # fmt: skip
    columns = {family: title for family, title in columns.items() if any(row["family"] == family for row in summary)}
    rows: list[list[Any]] = []
    best: list[Any] = []
    for t in targets:
        cells = [_find(summary, t, family) for family in columns]
        floor_value = next(row["floor"] for row in summary if row["target"] == t)
        rows.append([TARGETS[t].label, floor_value, *(row["total_variation"] if row else None for row in cells)])
    ours = sum(_wins(summary, t) for t in targets)
    see = (
        f"The second-order kernel with noise correction (green) is closest to the truth on {ours} of {len(targets)} "
        f"targets; {_far_off(summary, targets, 'ito')}; {_far_off(summary, targets, 'mirror')}."
    )
    return Section("All methods at a glance", see, figure, Table(("target", "floor", *columns.values()), rows, best))


def _far_off(summary: list[dict[str, Any]], targets: list[str], family: str) -> str:
    """Where a method at its best is more than three times as far from the truth as independent draws are."""
    colour = {"ito": "pink", "mirror": "orange"}[family]
    rows = [(t, row) for t in targets if (row := _find(summary, t, family)) and row["floor"]]
    far = [TARGETS[t].label for t, row in rows if row["total_variation"] > 3 * row["floor"]]
    where = "on none" if not far else "on all of them" if len(far) == len(targets) else "on " + ", ".join(far)
    return f"{LABELS[family]} ({colour}) is more than three times the floor away {where}"


def _wins(summary: list[dict[str, Any]], target: str) -> bool:
    rows = [row for row in summary if row["target"] == target and row["total_variation"] is not None]
    return bool(min(rows, key=lambda row: row["total_variation"])["family"].startswith("lm"))


LIMITS = {
    ("corv", "plain"): (0.027, 0.023, 0.024, 0.025),
    ("lm-nc", "plain"): (0.018, 0.014, 0.0155, 0.017),
    ("lm-nc", "probit"): (0.016, 0.012, 0.0142, 0.0163),
}
"""The TV that each must stay within on Beta(.5, .5), the gamma, the half-normal and the normal on (-1, 1), at 100,000 draws per
chain and noise of standard deviation 1; with the variance of the noise estimated, within 10% more."""


def limits_of(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was to be reached beside what was, for every row that has a limit."""
    rows = []
    for place, name in enumerate((BETA, GAMMA, HALF_NORMAL, TRUNCATED)):
        for (family, kind), limits in LIMITS.items():
            for estimated in (False, True) if family == "lm-nc" else (False,):
                transforms = _default(name) if kind == "plain" else PROBIT_FAMILY
                row = _find(summary, name, family + ("-estimated" if estimated else ""), transforms)
                if row is not None:
                    limit = limits[place] * (1.1 if estimated else 1.0)
                    rows.append({**row, "limit": limit, "reached": row["total_variation"] <= limit})
    return rows


def _limits(summary: list[dict[str, Any]]) -> Section:
    found = limits_of(summary)
    columns = ("target", "method", "TV", "limit", "reached")
    rows = [
        [
            TARGETS[row["target"]].label,
            label_of(row),
            _with_error(row["total_variation"], row["total_variation_se"]),
            f"{row['limit']:.4f}",
            row["reached"],
        ]
        for row in found
    ]
    see = f"{sum(row['reached'] for row in found)} of {len(found)} accuracies that we set out to reach are reached."
    return Section("What was to be reached", see, None, Table(columns, rows))


def _histograms(results: Results, summary: list[dict[str, Any]], name: str) -> Section:
    target = TARGETS[name]
    own = [row for row in summary if row["target"] == name]
    shown = [row for family in ("mirror", "ito", "corv", "lm-nc") if (row := _find(summary, name, family))]
    parts = [results.get(f"{name}/{row['method']}") for row in shown]

    def draw(theme: Theme) -> Any:
        columns = min(2, len(shown))
        figure, axes = new_figure(-(-len(shown) // columns), columns, height=2.2)
        edges = target.edges[:-1] if math.isinf(target.high) else target.edges
        true = np.diff(target.cdf(edges)) / np.diff(edges)
        for axis, row, part in zip(axes.flat, shown, parts, strict=False):
            histogram_against_density(
                axis, theme, target.edges, part["histogram"], target.pdf, row["family"], 1.25 * np.sort(true)[-2]
            )
            axis.set_title(f"{label_of(row)}: TV {row['total_variation']:.3f}")
        for axis in list(axes.flat)[len(shown) :]:
            axis.set_axis_off()
        return figure

    figure = save_picture(results.figure(f"histogram-{name}"), draw)
    columns = (
        "method", "step size", "TV", "over floor", "KS", "W1", "mean error", "E θ² error", "restarts per step",
        "million steps/s",
    )  # fmt: skip
    rows = [
        [
            label_of(row),
            f"{row['step_size']:.2g}" + (f" ({row['edge']} end)" if row["edge"] else ""),
            _with_error(row["total_variation"], row["total_variation_se"]),
            f"{row['total_variation'] / row['floor']:.2f}" if row["floor"] and row["total_variation"] else "–",
            row["kolmogorov_smirnov"],
            row["wasserstein1"],
            row["mean_error"],
            row["second_moment_error"],
            f"{row['restarts']:.2f}" if row["family"] == "ito" else "",
            f"{row['steps_per_second'] / 1e6:.1f}",
        ]
        for row in own
    ]
    notes = []
    edges = [f"{label_of(row)} ({row['edge']} end)" for row in own if row["edge"]]
    if edges:
        notes.append(
            "Best step size at the end of its range, so that a wider one may hold a better: " + ", ".join(edges) + "."
        )
    died = [f"{label_of(row)}: {row['died']} of {row['chains']}" for row in own if row["died"]]
    if died:
        notes.append("Chains that left the finite numbers, and are not in the means: " + ", ".join(died) + ".")
    first, last = shown[0] if shown else None, own[0]
    see = f"Closest is {label_of(last)} with a TV of {last['total_variation']:.4f}" if last["total_variation"] else ""
    if last["floor"] and last["total_variation"]:
        see += f", {last['total_variation'] / last['floor']:.2f} times that of independent draws"
    if first and first["family"] == "mirror":
        see += f"; mirror at its best has {first['total_variation']:.4f}"
    return Section(target.label, see + ".", figure, Table(columns, rows, [0]), notes)


def _searches(results: Results, summary: list[dict[str, Any]], targets: list[str]) -> Section:
    families = ("mirror", "ito", "corv", "lm-nc")
    chosen = {(t, f): row for t in targets for f in families if (row := _find(summary, t, f))}

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(-(-len(targets) // 2), 2, height=2.3, sharey=True)
        for axis, t in zip(axes.flat, targets, strict=False):
            for family in families:
                if (t, family) not in chosen:
                    continue
                row = chosen[t, family]
                trials = results.get(f"{t}/{row['method']}")["trials"]
                points = np.array([[trial["step_size"], number(trial["loss"])] for trial in trials])
                axis.scatter(*points.T, s=9, color=theme.colour(family), alpha=0.75, lw=0, label=LABELS[family])
                axis.scatter(
                    row["step_size"], row["total_variation"], s=46, marker="D", zorder=3,
                    color=theme.colour(family), edgecolor=theme.ink, lw=0.8,
                )  # fmt: skip
            log_log(axis, theme, "step size", "TV")
            axis.axhline(
                next(r["floor"] for r in summary if r["target"] == t) or math.nan, color=theme.soft, ls="--", lw=1.1
            )
            axis.set_title(TARGETS[t].label)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, handletextpad=0.1)
        for axis in list(axes.flat)[len(targets) :]:
            axis.set_axis_off()
        return figure

    figure = save_picture(results.figure("search"), draw)
    rows = [
        [
            TARGETS[t].label,
            label_of(row),
            f"{row['step_size']:.3g}",
            _tuned(results, t, row),
            _with_error(row["total_variation"], row["total_variation_se"]),
            row["edge"] or "inside",
        ]
        for (t, _), row in chosen.items()
    ]
    see = (
        "Every dot is a trial of the search, every diamond the chosen step size on fresh seeds: a trial's own number is "
        "optimistic, which is why only the diamonds are reported."
    )
    columns = ("target", "method", "step size", "TV in the search", "TV on fresh seeds", "place in its range")
    return Section("The search for the step size", see, figure, Table(columns, rows))


def _tuned(results: Results, target: str, row: dict[str, Any]) -> str:
    return f"{number(results.get(f'{target}/' + row['method'])['tuned_loss']):.4f}"


def _ito_section(results: Results, rows: list[dict[str, Any]]) -> Section:
    names = list(dict.fromkeys(row["target"] for row in rows))
    widest = max(THEOREM_STEPS)

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(2, len(names), height=2.5, sharey="row", sharex=True)
        for line, family in enumerate(("ito", "corv")):
            for axis, name in zip(axes[line], names, strict=True):
                transforms = list(dict.fromkeys(row["transform"] for row in rows if row["target"] == name))
                for row in rows:
                    if (row["target"], row["family"]) != (name, family):
                        continue
                    style = ("-", "--", "-.", ":")[transforms.index(row["transform"])]
                    shade = 0.35 + 0.65 * THEOREM_STEPS.index(row["step_size"]) / (len(THEOREM_STEPS) - 1)
                    label = row["transform"].replace("_", " ") if row["step_size"] == widest else None
                    jump = [number(value) for value in row["jump"]]
                    axis.plot(row["gap"], jump, style, color=theme.colour(family), alpha=shade, lw=1.3, label=label)
                log_log(axis, theme)
                axis.set_title(f"{LABELS[family]}, {TARGETS[name].label}")
                if line:
                    axis.set_xlabel("distance of θ to its bound at 0")
                if not line:
                    axis.legend(fontsize=7.5, handlelength=2.2)
            axes[line][0].set_ylabel("median |φ' − φ|")
        return figure

    figure = save_picture(results.figure("theorem-ito"), draw)

    def growth(row: dict[str, Any]) -> float:
        """Over the last decades before the bound, how the jump grows: a slope of -1 is 1/distance."""
        jump = np.array([number(value) for value in row["jump"]])
        gap = np.asarray(row["gap"])
        near = np.isfinite(jump) & (jump > 0) & (gap < 1e-4)
        return float(np.polyfit(np.log(gap[near]), np.log(jump[near]), 1)[0]) if near.sum() > 2 else math.nan

    table = []
    for name in names:
        for transform in dict.fromkeys(row["transform"] for row in rows if row["target"] == name):
            cells = {
                row["family"]: row
                for row in rows
                if (row["target"], row["transform"], row["step_size"]) == (name, transform, THEOREM_STEPS[1])
            }
            table.append(
                [
                    TARGETS[name].label,
                    transform.replace("_", " "),
                    f"{number(cells['ito']['jump'][0]):.2g}",
                    f"{growth(cells['ito']):.2f}",
                    f"{number(cells['corv']['jump'][0]):.2g}",
                    f"{growth(cells['corv']):.2f}",
                ]
            )
    smallest = min(number(row["jump"][0]) for row in rows if row["family"] == "ito")
    largest = max(number(row["jump"][0]) for row in rows if row["family"] == "corv")
    see = (
        f"At a distance of {GAPS[0]:.0e} from the bound one step of Ito moves φ by {smallest:.1g} or more at every step size "
        f"and with every transform, and CoRV by {largest:.2g} at most: Theorem 1 (instability of Ito), seen."
    )
    columns = ("target", "transform", "Ito: jump nearest 0", "its slope", "CoRV: jump nearest 0", "its slope")
    note = (
        f"Table at step size {THEOREM_STEPS[1]:g}; slope of log jump against log distance below 1e-4, so that -1 means that the "
        "jump grows like 1/distance. Darker lines: larger step sizes, "
        + ", ".join(f"{step:g}" for step in THEOREM_STEPS)
        + "."
    )
    return Section("Theorem 1: one step of Ito near the bound", see, figure, Table(columns, table), [note])


def _noise_section(results: Results, rows: list[dict[str, Any]]) -> Section:
    names = list(dict.fromkeys(row["target"] for row in rows))

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, len(names), height=3.0)
        for axis, name in zip(axes.flat, names, strict=True):
            own = [row for row in rows if row["target"] == name]
            for row, style in zip(own, ("-", "--", "-.", ":"), strict=False):
                colour = theme.colour("ito") if row["transform"] == "exp" else theme.colour("corv")
                sd = [number(value) for value in row["sd"]]
                axis.plot(row["theta"], sd, style, color=colour, label=row["transform"].replace("_", " "))
            log_log(axis, theme, "θ", "sd of the noise on the proxy gradient")
            axis.set_title(TARGETS[name].label)
            axis.legend(fontsize=8, handlelength=2.4)
        return figure

    figure = save_picture(results.figure("theorem-corv"), draw)
    table = []
    for row in rows:
        sd = np.array([number(value) for value in row["sd"]])
        table.append(
            [
                TARGETS[row["target"]].label,
                row["transform"].replace("_", " "),
                f"{sd[0]:.2g}",
                f"{sd.max():.3g}",
                f"{sd[-1]:.3g}",
                "no" if row["transform"] == "exp" else "yes",
            ]
        )
    nearest = max(number(row["sd"][0]) for row in rows)
    exp = [number(row["sd"][-1]) for row in rows if row["transform"] == "exp"]
    see = (
        f"Noise of standard deviation 1 on the gradient in θ is at most {nearest:.1g} on the gradient in φ when θ is "
        f"{GAPS[0]:.0e} from its bound: it vanishes there, as Theorem 2 says"
    )
    if exp:
        see += f"; away from the bound exp, which is not Lipschitz, blows it up to {exp[0]:.3g}"
    columns = ("target", "transform", "sd nearest the bound", "largest sd", "sd at the largest θ", "Lipschitz")
    return Section("Theorem 2: gradient noise of CoRV near the bound", see + ".", figure, Table(columns, table))
