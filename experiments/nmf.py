"""Section 6.1 of the paper: Bayesian non-negative matrix factorisation of MovieLens ratings.

The Poisson model with exponential priors is sampled by each method from minibatches of ratings; predictions are averaged
over the iterations, and the root mean squared error on held-out ratings is followed. Step sizes come from a search that
minimises the validation error. Chains with different step sizes run side by side in compiled calls, evaluations included.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from experiments.comparison import Bench, Comparison, Method, at_end, chosen, curve_of, seeds_of, settings_for
from experiments.reports import Report
from experiments.results import Results, number
from inbounds.data import MOVIELENS_SHAPES, Ratings, RatingsSplit, catalog, generate_ratings
from inbounds.kernels import Kernel
from inbounds.models import FactorModel, UserItemBias
from inbounds.trees import PyTree

NAME = "nmf"
NEEDS_DATA = True
STAGES = ("main", "stability", "prior")
GENERATED = {f"generated-{name}": shape for name, shape in MOVIELENS_SHAPES.items()}
METRICS = (
    "rmse",  # of the average over all evaluations so far: the paper's moving average
    "late_rmse",  # the same without the first fifth of the iterations
    "clipped_rmse",  # of the first, cut to the range of the ratings
    "single_rmse",  # of the latest draw alone
)
STABLE = 1.1  # a step size counts as stable where its validation error is at most this many times the best one
BASELINES = ("mirror", "sgrld")


# -- what is compared ---------------------------------------------------------------------------------------------


def _preconditioned(kernel: Callable[..., Any], transform: str) -> Callable[[RatingsBench], Kernel]:
    return lambda bench: kernel(
        bench.posterior, transform, preconditioner=bench.model.preconditioner(bench.ratings, transform)
    )


def _corrected(kernel: Callable[..., Any], transform: str) -> Callable[[RatingsBench], Kernel]:
    return lambda bench: kernel(
        bench.posterior,
        transform,
        preconditioner=bench.model.preconditioner(bench.ratings, transform),
        noise_correction=bench.model.gradient_variance(bench.ratings, bench.batch_size),
    )


def _touched(noise: str) -> Callable[[RatingsBench], Kernel]:
    rows = {"W": "user", "H": "item"}
    return lambda bench: ib.baselines.touched_rows(bench.posterior, rows, bench.batch_size, noise=noise)


METHODS = {
    method.name: method
    for method in (
        Method("mirror", "SGLD, mirrored", "baseline", lambda b: ib.baselines.mirror(b.posterior), 1e-7, 1e-2),
        Method("sgrld", "SGRLD, mirrored", "baseline", lambda b: ib.baselines.sgrld(b.posterior), 1e-7, 1e-2),
        Method("ahn", "SGLD on touched rows (Ahn)", "baseline", _touched("ahn"), 1e-7, 1e-2),
        Method("ahn-corrected", "the same, its noise put right", "baseline", _touched("corrected"), 1e-7, 1e-2),
        Method("exp", "CoRV exp", "paper", lambda b: ib.sgld(b.posterior, "exp"), 1e-6, 1e-1),
        Method("softplus", "CoRV softplus", "paper", lambda b: ib.sgld(b.posterior, "softplus"), 1e-6, 1e-1),
        Method("icll", "CoRV ICLL", "paper", lambda b: ib.sgld(b.posterior, "icll"), 1e-6, 1e-1),
        Method(
            "integrated-probit",
            "CoRV integrated probit",
            "ours",
            lambda b: ib.sgld(b.posterior, "integrated_probit"),
            1e-6,
            1e-1,
        ),
        Method("lm", "CoRV-LM softplus", "ours", lambda b: ib.leimkuhler_matthews(b.posterior, "softplus"), 1e-6, 1e-1),
        Method("counts", "CoRV softplus, by counts", "ours", _preconditioned(ib.sgld, "softplus"), 1e-4, 1.0),
        Method(
            "counts-lm", "CoRV-LM softplus, by counts", "ours", _preconditioned(ib.leimkuhler_matthews, "softplus"), 1e-4, 1.0
        ),
        Method("counts-corrected", "CoRV-LM by counts, noise corrected", "ours", _corrected(ib.leimkuhler_matthews, "softplus"), 1e-4, 1.0),
        Method("counts-exp", "CoRV exp, by counts", "ours", _preconditioned(ib.sgld, "exp"), 1e-4, 1.0),
        Method("baoab", "underdamped, softplus", "ours", lambda b: ib.baoab(b.posterior, "softplus"), 1e-8, 1e-3),
    )
}  # fmt: skip
SWEPT = ("mirror", "sgrld", "softplus", "icll", "exp")  # methods of the stability curve


@dataclass(frozen=True)
class Settings:
    """Everything that the numbers depend on.

    Args:
        dataset: of the catalog ("movielens-1m", ...), or a key of `GENERATED`.
        ranks: numbers of factors.
        iterations: of the final runs, one a rank.
        tuning_iterations: of each trial of the search; 0 for those of the final runs.
        trials: of the search, for every method.
        chains: trials that run side by side, and seeds of the final runs.
        evaluations: of every run, evenly spaced: the draws that are averaged.
        batch_size: ratings per step.
        prior_rate: of the exponential priors.
        search: "tpe", or "grid": the same number of trials, evenly spaced on the log scale.
        sweep: step sizes of the stability curve.
        seed: of everything.
    """

    dataset: str
    ranks: tuple[int, ...] = (20, 50)
    iterations: tuple[int, ...] = (10_000, 20_000)
    tuning_iterations: int = 0
    trials: int = 100
    chains: int = 10
    evaluations: int = 400
    batch_size: int = 10_000
    prior_rate: float = 1.0
    search: str = "tpe"
    sweep: int = 20
    seed: int = 0


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "dataset": "generated-100k", "ranks": (4,), "iterations": (200,), "trials": 4, "chains": 2, "evaluations": 8,
        "batch_size": 1_000, "search": "grid", "sweep": 4,
    },
    "laptop": {"ranks": (20,), "iterations": (2_000,), "trials": 9, "chains": 3, "evaluations": 80, "search": "grid", "sweep": 9},
    "full": {},
}  # fmt: skip


def settings(scale: str, seed: int, dataset: str = "movielens-1m", **changes: Any) -> dict[str, Any]:
    """Everything that the numbers depend on: the scale's settings, with other values for the fields in `changes`.

    Args:
        scale: a key of `SCALES`; "smoke" always takes generated ratings.
        seed: of everything.
        dataset: as in `Settings`.
        changes: other values for fields of `Settings`; None leaves a field as it is.
    """
    known = (*(name for name in catalog.datasets() if name.startswith("movielens")), *GENERATED)
    if dataset not in known:
        raise ValueError(f"Unknown data set {dataset!r}. Known: {', '.join(known)}.")
    made = settings_for(Settings, SCALES, scale, changes, dataset=dataset, seed=seed)
    if len(made.ranks) != len(made.iterations):
        raise ValueError(f"{len(made.ranks)} ranks need as many numbers of iterations; got {len(made.iterations)}.")
    return {"scale": scale, **asdict(made)}


def settings_of(results: Results) -> Settings:
    """The settings that a results folder was made with."""
    return results.settings_as(Settings)


def load(settings: Settings, data: str | os.PathLike[str] | None) -> RatingsSplit:
    """The ratings, cut 75 : 12.5 : 12.5."""
    if settings.dataset in GENERATED:
        ratings = generate_ratings(seed=settings.seed, **GENERATED[settings.dataset])
    else:
        ratings = catalog.load(settings.dataset, data)
    return ratings.split(seed=settings.seed)


# -- one compiled run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Collector: every one of `METRICS` on every one of `SETS` at every draw, (evaluations, sets, metrics)."""

    model: FactorModel
    sets: tuple[tuple[jax.Array, jax.Array, jax.Array], ...]
    draws: int
    burn_in: int
    range: tuple[float, float]

    def init(self, theta: PyTree) -> Any:
        zeros = tuple(jnp.zeros_like(rating) for _, _, rating in self.sets)
        curve = jnp.full((self.draws, len(self.sets), len(METRICS)), jnp.nan)
        return jnp.zeros((), jnp.int32), zeros, zeros, curve

    def update(self, state: Any, theta: PyTree) -> Any:
        count, means, late, curve = state
        gain = 1 / (count + 1).astype(jnp.float32)
        late_gain = 1 / (jnp.where(count < self.burn_in, count, count - self.burn_in) + 1).astype(jnp.float32)
        new_means, new_late, rows = [], [], []
        for (user, item, rating), mean, late_mean in zip(self.sets, means, late, strict=True):
            single = self.model.predict(theta, user, item)
            mean = mean + gain * (single - mean)
            late_mean = late_mean + late_gain * (single - late_mean)
            clipped = jnp.clip(mean, *self.range)
            values = (mean, late_mean, clipped, single)
            rows.append(jnp.stack([jnp.sqrt(jnp.mean(jnp.square(x - rating))) for x in values]))
            new_means.append(mean)
            new_late.append(late_mean)
        return count + 1, tuple(new_means), tuple(new_late), curve.at[count].set(jnp.stack(rows))

    def result(self, state: Any) -> Any:
        return state[-1]


class RatingsBench(Bench):
    """A factorisation of the ratings of a split."""

    def __init__(self, settings: Settings, parts: RatingsSplit, rank: int, prior_rate: float | None):
        self.settings, self.ratings = settings, parts.train
        self.model = FactorModel.of(parts.train, rank, "poisson", prior_rate=prior_rate)
        super().__init__(
            self.model.posterior(parts.train), self.model.start, min(settings.batch_size, len(parts.train))
        )
        self.sets = tuple(_columns(part) for part in (parts.validation, parts.test))
        self.range = (float(parts.train.rating.min()), float(parts.train.rating.max()))
        self.evaluations: dict[int, Evaluation] = {}

    def run(
        self,
        method: Method,
        step_sizes: Sequence[float] | np.ndarray,
        length: int,
        seed: int,
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """As every bench's, with "steps" and "clock", the iteration and the second of every evaluation."""
        thin = max(1, length // self.settings.evaluations)
        draws = length // thin
        if draws not in self.evaluations:
            self.evaluations[draws] = Evaluation(self.model, self.sets, draws, draws // 5, self.range)
        run, clock, seconds = self.sample(method, step_sizes, draws * thin, thin, self.evaluations[draws], seed, check)
        steps = thin * np.arange(1, draws + 1)
        return {
            "curve": np.asarray(run.collected),
            "steps": steps,
            "clock": np.round(np.interp(steps, *clock.T), 3),
            "seconds": seconds,
        }


def _columns(ratings: Ratings) -> tuple[jax.Array, jax.Array, jax.Array]:
    return jnp.asarray(ratings.user), jnp.asarray(ratings.item), jnp.asarray(ratings.rating)


# -- the experiment -----------------------------------------------------------------------------------------------


class Experiment(Comparison):
    """The parts of the experiment; a bench is that of a rank and a prior's rate."""

    metrics, loss = METRICS, "rmse"

    def __init__(self, settings: Settings, results: Results, data: Any, say: Callable[[str], None]):
        super().__init__(settings, results, say)
        self.parts = load(settings, data)

    def make_bench(self, rank: int, prior_rate: float | None) -> RatingsBench:
        return RatingsBench(self.settings, self.parts, rank, prior_rate)

    def baselines(self) -> dict[str, float]:
        """What needs no factors."""

        def compute() -> dict[str, float]:
            train, _, test = self.parts
            return {
                "global mean": UserItemBias.global_mean(train).rmse(test),
                "user + item": UserItemBias.fit(train).rmse(test),
                "train": len(train),
                "validation": len(self.parts.validation),
                "test": len(test),
                "users": train.num_users,
                "items": train.num_items,
            }

        return self.part("baselines", compute)

    def final(self, method: Method, rank: int, iterations: int, prior_rate: float | None, under: str) -> dict[str, Any]:
        """The tuned method, once a seed, for all iterations."""
        key = (rank, prior_rate)
        step = self.tuned(method, key, self.settings.tuning_iterations or iterations, under)["best_step_size"]
        return self.part(
            f"{under}final/{method.name}", lambda: self.fresh(self.bench(*key), method, step, iterations, 2)
        )

    def stability(self, method: Method, rank: int, iterations: int) -> dict[str, Any]:
        """The error at the end of a run against the step size, over the whole range of a method."""
        settings = self.settings
        return self.part(
            f"rank-{rank}/stability/{method.name}",
            lambda: self.grid(self.bench(rank, settings.prior_rate), method, settings.sweep, iterations),
        )


def run(
    results: Results,
    say: Callable[[str], None] = print,
    data: str | os.PathLike[str] | None = None,
    methods: Sequence[str] | None = None,
    stages: Sequence[str] | None = None,
) -> None:
    """Compute the parts that are missing.

    Args:
        results: the folder, with its settings; an interrupted run goes on there, part by part and trial by trial.
        say: told about each finished part.
        data: the folder of data sets.
        methods: names out of `METHODS`; None for all. Processes that share a folder may divide them among themselves.
        stages: some of `STAGES`: "main" (search and final runs), "stability" (error against step size) and "prior" (the
            prior that matches the mean rating instead of rate 1); None for all.
    """
    picked = [METHODS[name] for name in chosen("method", methods, METHODS)]
    stages = chosen("stage", stages, STAGES)
    settings = settings_of(results)
    experiment = Experiment(settings, results, data, say)
    baselines = experiment.baselines()
    say(f"global mean {baselines['global mean']:.4f}, user + item {baselines['user + item']:.4f}")
    for rank, iterations in zip(settings.ranks, settings.iterations, strict=True):
        for method in picked:
            if "main" in stages:
                final = experiment.final(method, rank, iterations, settings.prior_rate, f"rank-{rank}/")
                say(f"rank {rank}, {method.label}: {_line(final)}")
            if "stability" in stages and method.name in SWEPT:
                experiment.stability(method, rank, iterations)
        if "prior" in stages:
            for method in picked:
                if method.name in ("mirror", "softplus", "counts"):
                    final = experiment.final(method, rank, iterations, None, f"rank-{rank}/matched/")
                    say(f"rank {rank}, matched prior, {method.label}: {_line(final)}")


def _line(final: dict[str, Any]) -> str:
    mean, error = at_end(final, "rmse")
    return f"step {final['step_size']:.2e}, test RMSE {mean:.4f} ({error:.4f})"


def iterations_to(final: dict[str, Any], target: float) -> int | None:
    """Iterations until the averaged test error is at most `target`; None where it never is."""
    reached = np.flatnonzero(curve_of(final, "rmse") <= target)
    return int(final["steps"][reached[0]]) if len(reached) else None


def least_error(parts: Iterable[dict[str, Any]]) -> float:
    """The lowest validation error of these stability curves."""
    return min(float(np.nanmin(losses_of(part))) for part in parts)


def widest_stable(part: dict[str, Any], best: float) -> float:
    """The largest step size whose validation error is at most `STABLE` times `best`; NaN where there is none."""
    good = losses_of(part) <= STABLE * best
    return float(np.asarray(part["step_sizes"])[good].max()) if good.any() else math.nan


def losses_of(part: dict[str, Any]) -> np.ndarray:
    """The validation errors of a stability curve, NaN where the chain was lost."""
    return np.asarray([number(loss) for loss in part["losses"]])


def summarise(results: Results) -> list[dict[str, Any]]:
    """One row per rank, prior and method: means and standard errors over the seeds at the last iteration, on the test part."""
    rows = []
    for part, value in results.parts().items():
        path = part.split("/")
        if "final" not in path:
            continue
        row: dict[str, Any] = {
            "rank": int(path[0].removeprefix("rank-")),
            "prior": "matched" if "matched" in path else f"{settings_of(results).prior_rate:g}",
            "method": path[-1],
            "step_size": value["step_size"],
        }
        for name in METRICS:
            row[name], row[f"{name}_se"] = at_end(value, name)
        ends = seeds_of(value, "rmse")[:, -1]
        row |= {
            "seeds": len(ends),
            "alive": int(np.isfinite(ends).sum()),
            "iterations": value["steps"][-1],
            "seconds": value["seconds"],
        }
        rows.append(row)
    order = list(METHODS)
    return sorted(rows, key=lambda row: (row["rank"], row["prior"] == "matched", order.index(row["method"])))


def report(results: Results) -> Report:
    """Tables, pictures and sentences from the parts that are there."""
    from experiments.nmf_page import page

    return page(results)
