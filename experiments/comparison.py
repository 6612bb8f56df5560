"""What the comparisons of samplers on models share: methods, runs side by side, searches, what is kept of them, and their pages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

import inbounds as ib
from experiments import search
from experiments.reports import Claim
from experiments.results import Results, number
from inbounds.display import Table, Theme
from inbounds.kernels import Kernel

SETS = ("validation", "test")
T = TypeVar("T")


@dataclass(frozen=True)
class Method:
    """A sampler of the comparison.

    Args:
        name: on the command line and in the results.
        label: on the page.
        group: "paper" (CoRV with the paper's transforms), "baseline" or "ours".
        kernel: from the experiment's `Bench`, which has the posterior.
        low, high: where its step size is searched: at least four decades.
    """

    name: str
    label: str
    group: str
    kernel: Callable[[Any], Kernel]
    low: float
    high: float


def chosen(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """The names, or all that are known; one that is not is an error that lists those that are."""
    known = list(known)
    for name in names or ():
        if name not in known:
            raise ValueError(f"Unknown {kind} {name!r}. Known: {', '.join(known)}.")
    return list(names or known)


def settings_for(
    kind: type[T], scales: Mapping[str, Mapping[str, Any]], scale: str, changes: Mapping[str, Any], **values: Any
) -> T:
    """Settings of an experiment: `values`, what the scale says, and what was asked for, where it is not None."""
    if scale not in scales:
        raise ValueError(f"Unknown scale {scale!r}. Known: {', '.join(scales)}.")
    return kind(**values | dict(scales[scale]) | {name: value for name, value in changes.items() if value is not None})


# -- runs ---------------------------------------------------------------------------------------------------------


class Bench:
    """A model on a split: runs methods with one chain a step size. Equal calls compile once.

    Args:
        posterior: of the model.
        start: of every chain.
        batch_size: rows per step.
    """

    def __init__(self, posterior: ib.Posterior, start: Any, batch_size: int):
        self.posterior, self.start, self.batch_size = posterior, start, batch_size
        self.kernels: dict[str, Kernel] = {}

    def run(
        self,
        method: Method,
        step_sizes: Sequence[float] | np.ndarray,
        length: int,
        seed: int,
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """A run of `length` (of iterations, of epochs), at least {"curve": (chains, evaluations, sets, metrics), "seconds"};
        NaN where a chain died."""
        raise NotImplementedError

    def sample(
        self,
        method: Method,
        step_sizes: Sequence[float] | np.ndarray,
        num_steps: int,
        thin: int,
        collect: Any,
        seed: int,
        check: Callable[[], None],
    ) -> tuple[ib.Draws, np.ndarray, float]:
        """The run, (step, seconds) at every look at it, and all the seconds it took."""
        if method.name not in self.kernels:
            self.kernels[method.name] = method.kernel(self)
        began, clock = time.perf_counter(), [(0.0, 0.0)]

        def monitor(done: int, collected: Any) -> None:
            clock.append((done, time.perf_counter() - began))
            check()

        draws = ib.sample(
            self.kernels[method.name],
            np.asarray(step_sizes, float),
            num_steps,
            thin=thin,
            batch_size=self.batch_size,
            num_chains=len(step_sizes),
            seed=seed,
            init=self.start,
            collect=collect,
            progress=False,
            monitor=monitor,
            on_failure="continue",
        )
        return draws, np.asarray(clock), time.perf_counter() - began


class Comparison:
    """The parts of a comparison, each computed once and kept in the results folder.

    A subclass says which `metrics` its benches measure, which of them is the `loss`, and how a bench is made.

    Args:
        settings: everything that the numbers depend on: `search`, `trials`, `chains`, `dataset` and `seed` among them.
        results: the folder.
        say: told about each finished part.
    """

    metrics: tuple[str, ...]
    loss: str

    def __init__(self, settings: Any, results: Results, say: Callable[[str], None]):
        self.settings, self.results, self.say = settings, results, say
        self._benches: dict[tuple[Any, ...], Bench] = {}

    def make_bench(self, *key: Any) -> Bench:
        """The bench of a combination of choices."""
        raise NotImplementedError

    def bench(self, *key: Any) -> Bench:
        """Made once for each combination; only the latest is kept, with what was compiled for it."""
        if key not in self._benches:
            self._benches = {key: self.make_bench(*key)}
        return self._benches[key]

    def part(self, name: str, compute: Callable[[], T]) -> T:
        return self.results.part(name, compute, self.say)

    def losses(self, bench: Bench, method: Method, length: int) -> search.Evaluate:
        """The averaged loss at the end of a run, of one chain a step size."""

        def evaluate(step_sizes: np.ndarray) -> dict[str, np.ndarray]:
            curve = bench.run(method, step_sizes, length, self.settings.seed + 1)["curve"]
            ends = {which: metric(curve, self.metrics, self.loss, which)[:, -1] for which in SETS}
            return {"losses": ends["validation"], "test": ends["test"]}

        return evaluate

    def grid(
        self,
        bench: Bench,
        method: Method,
        trials: int,
        length: int,
        range: tuple[float, float] | None = None,
    ) -> dict[str, Any]:
        """Step sizes over the whole range of a method, or over another one."""
        low, high = range or (method.low, method.high)
        return search.grid(self.losses(bench, method, length), low, high, trials, self.settings.chains)

    def tuned(self, method: Method, key: tuple[Any, ...], length: int, under: str = "") -> dict[str, Any]:
        """The search for a method's step size on the bench of `key`, resumable trial by trial."""
        settings = self.settings

        def compute() -> dict[str, Any]:
            bench = self.bench(*key)
            if settings.search == "grid":
                return self.grid(bench, method, settings.trials, length)
            name = f"{under.replace('/', '-')}{method.name}"
            journal = self.results.path / "studies" / f"{name}.journal"
            return search.tpe(
                self.losses(bench, method, length), method.low, method.high, settings.trials, settings.chains,
                settings.seed, journal, f"{settings.dataset}-{name}",
            )  # fmt: skip

        return self.part(f"{under}tune/{method.name}", compute)

    def fresh(self, bench: Bench, method: Method, step_size: float, length: int, offset: int) -> dict[str, Any]:
        """What is kept of a run at one step size, once a seed: every metric on both sets, (seeds, evaluations)."""
        run = bench.run(method, np.full(self.settings.chains, step_size), length, self.settings.seed + offset)
        times = {name: run[name] for name in ("steps", "clock", "seconds") if name in run}
        return {"step_size": step_size} | times | rounded(run["curve"], self.metrics)


# -- what is kept of runs -----------------------------------------------------------------------------------------


def metric(curve: np.ndarray, metrics: Sequence[str], name: str, which: str = "test") -> np.ndarray:
    """One metric on one set out of a curve (..., sets, metrics)."""
    return np.asarray(curve)[..., SETS.index(which), list(metrics).index(name)]


def rounded(curve: np.ndarray, metrics: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    """Every metric on both sets, (seeds, evaluations), rounded for the disk."""
    return {
        which: {name: np.round(metric(curve, metrics, name, which).astype(float), 5) for name in metrics}
        for which in SETS
    }


def seeds_of(final: Mapping[str, Any], name: str, which: str = "test") -> np.ndarray:
    """A metric of a final run as it was kept, (seeds, evaluations); NaN where a chain died."""
    return np.asarray(final[which][name], float)


def at_end(final: Mapping[str, Any], name: str, which: str = "test") -> tuple[float, float]:
    """(mean, standard error) over the seeds of a metric at the last evaluation."""
    values = seeds_of(final, name, which)[:, -1]
    values = values[np.isfinite(values)]
    if not len(values):
        return math.nan, math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def curve_of(final: Mapping[str, Any], name: str, which: str = "test") -> np.ndarray:
    """The mean over the seeds at every evaluation; NaN where no chain is left."""
    values = seeds_of(final, name, which)
    alive = np.isfinite(values).any(axis=0)
    return np.where(alive, np.nanmean(np.where(alive, values, 0.0), axis=0), np.nan)


# -- cells of the pages -------------------------------------------------------------------------------------------


def plus_minus(row: Mapping[str, Any], name: str) -> str:
    """A mean with its standard error, out of a row that has both."""
    error = row.get(f"{name}_se")
    shape = ".4f" if abs(row[name]) < 100 else ".2g"  # of a chain that went astray the size is enough
    tail = "" if error is None or not math.isfinite(error) else f" ± {error:{shape}}"
    return f"{row[name]:{shape}}{tail}" if math.isfinite(row[name]) else "–"


def write_tables(results: Results, rows: Any, curves: Any, claims: Sequence[Claim], **more: Any) -> None:
    """The tidy tables beside the page."""
    results.write_csv("summary", rows)
    results.write_csv("curves", curves)
    results.write_summary(rows, claims, **more)


def kept(results: Results, under: str, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The parts of these methods that are there, by method."""
    parts = {name: results.get(f"{under}{name}") for name in names}
    return {name: part for name, part in parts.items() if part is not None}


def draw_curves(
    axis: Any,
    theme: Theme,
    methods: Mapping[str, Method],
    looks: Mapping[str, tuple[str, str]],
    curves: Mapping[str, tuple[Any, np.ndarray]],
    parts: int,
) -> np.ndarray:
    """One line a method, places against values; returns the values that should be seen: all but the first of so many parts."""
    ends = []
    for name, (places, values) in curves.items():
        family, style = looks[name]
        axis.plot(places, values, style, color=theme.colour(family), lw=1.3, label=methods[name].label)
        ends.append(values[len(values) // parts :])
    axis.grid(True, lw=0.6)
    seen = np.concatenate(ends)
    finite: np.ndarray = seen[np.isfinite(seen)]
    return finite


def search_table(
    methods: Mapping[str, Method], searches: Mapping[str, Mapping[str, Any]], loss: str = "validation loss"
) -> Table:
    """Label, range, best step size, its loss, its place in the range and the number of trials, one row a search."""
    columns = ("method", "range", "best step size", loss, "place in the range", "trials")
    rows = [
        [
            methods[name].label,
            f"{methods[name].low:.0e} to {methods[name].high:.0e}",
            f"{part['best_step_size']:.3e}",
            f"{number(part['best_loss']):.4f}",
            "at an end" if part["at_edge"] else "inside",
            len(part["losses"]),
        ]
        for name, part in searches.items()
    ]
    return Table(columns, rows)
