"""What staying in bounds costs: one step of CoRV against one of mirrored SGLD on the same factorisation.

The paper says that the transform adds at most 10% to the run time. Every method runs the same number of steps through
`ib.sample` on the same ratings, one after the other in many rounds, so that whatever else the machine does hits them all alike;
what counts is the ratio within a round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

import inbounds as ib
from experiments.reports import Claim, Report
from experiments.results import Results
from experiments.timing import interleaved
from inbounds.data import MOVIELENS_SHAPES, generate_ratings
from inbounds.display import Section, Table, Theme, new_figure, save_picture
from inbounds.kernels import Kernel
from inbounds.models import FactorModel

REFERENCE = "mirror"
CLAIM = 1.10
METHODS: dict[str, tuple[str, Callable[[ib.Posterior], Kernel]]] = {
    "mirror": ("SGLD, mirrored", ib.baselines.mirror),
    "sgrld": ("SGRLD, mirrored", ib.baselines.sgrld),
    "exp": ("CoRV exp", lambda posterior: ib.sgld(posterior, "exp")),
    "softplus": ("CoRV softplus", lambda posterior: ib.sgld(posterior, "softplus")),
    "icll": ("CoRV ICLL", lambda posterior: ib.sgld(posterior, "icll")),
    "integrated_probit": ("CoRV integrated probit", lambda posterior: ib.sgld(posterior, "integrated_probit")),
    "lm": ("CoRV-LM softplus", lambda posterior: ib.leimkuhler_matthews(posterior, "softplus")),
}
STEP_SIZE = 1e-7  # far below where any of them would move away: the work is the same whatever the position


@dataclass(frozen=True)
class Settings:
    """Everything that the numbers depend on.

    Args:
        shape: of the generated ratings: "10m", "1m" or "100k", as MovieLens.
        ranks: numbers of factors.
        batch_size: ratings per step.
        steps: in one call.
        rounds: calls of every method, interleaved.
        seed: of everything.
    """

    shape: str
    ranks: tuple[int, ...]
    batch_size: int
    steps: int
    rounds: int
    seed: int = 0


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"shape": "100k", "ranks": (4,), "batch_size": 1_000, "steps": 50, "rounds": 2},
    "laptop": {"shape": "1m", "ranks": (20,), "batch_size": 10_000, "steps": 300, "rounds": 7},
    "full": {"shape": "10m", "ranks": (20, 50), "batch_size": 10_000, "steps": 5_000, "rounds": 9},
}


def settings(scale: str, seed: int, **changes: Any) -> dict[str, Any]:
    """The scale's settings, with other values for the fields in `changes`; None leaves a field as it is."""
    if scale not in SCALES:
        raise ValueError(f"Unknown scale {scale!r}. Known: {', '.join(SCALES)}.")
    values = SCALES[scale] | {"seed": seed} | {k: v for k, v in changes.items() if v is not None}
    if values["shape"] not in MOVIELENS_SHAPES:
        raise ValueError(f"Unknown shape {values['shape']!r}. Known: {', '.join(MOVIELENS_SHAPES)}.")
    return {"scale": scale, **asdict(Settings(**values))}


def run(results: Results, say: Callable[[str], None] = print) -> None:
    """Measure the ranks that are missing."""
    own = results.settings
    for rank in own["ranks"]:
        results.part(f"rank-{rank}", lambda rank=rank: measure(own, rank, say))  # type: ignore[misc]


def measure(own: dict[str, Any], rank: int, say: Callable[[str], None]) -> dict[str, Any]:
    """{"seconds": {method: one a round}, "steps", "parameters"}."""
    ratings = generate_ratings(seed=own["seed"], **MOVIELENS_SHAPES[own["shape"]])
    model = FactorModel.of(ratings, rank)
    posterior = model.posterior(ratings)
    kernels = {name: make(posterior) for name, (_, make) in METHODS.items()}

    def once(kernel: Kernel) -> None:
        ib.sample(
            kernel, STEP_SIZE, own["steps"], thin=own["steps"], batch_size=min(own["batch_size"], len(ratings)),
            init=model.start, progress=False, collect=ib.collect.predictive_mean(_first_factor),
        )  # fmt: skip

    runs = {name: partial(once, kernel) for name, kernel in kernels.items()}
    rounds = own["rounds"]
    seconds = interleaved(runs, rounds, lambda index: say(f"rank {rank}, round {index + 1} of {rounds}"))
    parameters = sum(int(np.prod(shape)) for shape in model.shapes.values())
    return {"seconds": seconds, "steps": own["steps"], "parameters": parameters, "ratings": len(ratings)}


def _first_factor(theta: Any) -> Any:
    """A result of almost no size, so that nothing but steps is measured."""
    return theta["W"][0, 0]


def summarise(results: Results) -> list[dict[str, Any]]:
    """One row per rank and method: microseconds per step, and the ratio to mirrored SGLD, median and quartiles over the rounds."""
    rows = []
    for part, value in results.parts().items():
        reference = np.asarray(value["seconds"][REFERENCE])
        for name, seconds in value["seconds"].items():
            ratios = np.asarray(seconds) / reference
            low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75))
            rows.append(
                {
                    "rank": int(part.removeprefix("rank-")),
                    "method": name,
                    "microseconds": 1e6 * float(np.median(seconds)) / value["steps"],
                    "ratio": median,
                    "ratio_low": low,
                    "ratio_high": high,
                }
            )
    return sorted(rows, key=lambda row: row["rank"])


def report(results: Results) -> Report:
    """Table, picture and the paper's claim."""
    rows = summarise(results)
    results.write_csv("summary", rows)
    claims = _claims(rows)
    results.write_summary(rows, claims)
    own = results.settings
    lead = (
        f"Poisson factorisation of generated ratings of MovieLens {own['shape'].upper()}'s shape, minibatches of "
        f"{own['batch_size']:,}; {own['rounds']} rounds of {own['steps']:,} steps a method, interleaved."
    )
    return Report("The cost of staying in bounds", lead, _sections(results, rows), claims, results.facts())


def _claims(rows: list[dict[str, Any]]) -> list[Claim]:
    ours = [row for row in rows if row["method"] in ("softplus", "icll")]
    if not ours:
        return []
    listing = ", ".join(f"{METHODS[row['method']][0]} {row['ratio']:.3f} (rank {row['rank']})" for row in ours)
    return [
        Claim(
            "The transform adds at most 10% to the run time.",
            f"Time of a step over that of mirrored SGLD, median over the rounds: {listing}.",
            all(row["ratio"] <= CLAIM for row in ours),
        )
    ]


def _sections(results: Results, rows: list[dict[str, Any]]) -> list[Section]:
    if not rows:
        return []
    ranks = sorted({row["rank"] for row in rows})

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, len(ranks), width=4.0 * len(ranks) + 1.5, height=2.8, sharey=True)
        for axis, rank in zip(axes[0], ranks, strict=True):
            mine = [row for row in rows if row["rank"] == rank]
            for place, row in enumerate(reversed(mine)):
                spread = [[row["ratio"] - row["ratio_low"]], [row["ratio_high"] - row["ratio"]]]
                family = "mirror" if row["method"] in ("mirror", "sgrld") else "corv"
                axis.errorbar(row["ratio"], place, xerr=spread, fmt="o", ms=5, color=theme.colour(family))
            axis.axvline(1.0, color=theme.soft, lw=1.0)
            axis.axvline(CLAIM, color=theme.soft, lw=1.0, ls="--")
            axis.set_yticks(range(len(mine)), [METHODS[row["method"]][0] for row in reversed(mine)])
            axis.set_xlabel(f"time of a step over mirrored SGLD's, rank {rank}")
            axis.grid(True, axis="x", lw=0.6)
        return figure

    cells = [
        [METHODS[row["method"]][0], row["rank"], row["microseconds"], f"{row['ratio']:.3f}",
         f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}"]
        for row in rows
    ]  # fmt: skip
    columns = ("method", "rank", "microseconds per step", "ratio", "middle half of the rounds")
    see = "Median over the rounds, with the middle half; the dashed line is the 10% of the paper."
    figure = save_picture(results.figure("overhead"), draw)
    return [Section("Time of a step", see, figure, Table(columns, cells))]
