"""Section 6.2 of the paper: Bayesian binary networks on MNIST and Fashion-MNIST.

A 784-50-10 network with weights in (-1, 1) is sampled by each method, its weights are binarised at the end of every epoch,
and the softmax outputs of these binary networks are averaged. Step sizes come from a search that minimises the validation
loss. Everything happens inside compiled calls: one chain a step size, whole epochs at a time, evaluations included.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from experiments import search
from experiments.comparison import Method, at_end, chosen, metric, rounded
from experiments.results import Results, number
from inbounds.data import catalog, synthetic_digits
from inbounds.data.images import LabelledImages, Part, Split, split
from inbounds.kernels import Kernel
from inbounds.models import Network, binarise, loss_and_accuracy, network_posterior, steps_per_epoch
from inbounds.trees import PyTree

NAME = "binary-network"
NEEDS_DATA = True
STAGES = ("main", "prior", "ito", "standard")
SENSITIVE = ("sigmoid", "mirror", "probit-baoab")  # methods of the prior study
PUBLISHED = ("sigmoid", "mirror", "probit-lm-nc", "probit-baoab", "probit-baoab-nc")  # methods on the published split
DATASETS = ("mnist", "fashion-mnist", "synthetic")
METRICS = (
    "loss", "accuracy", "ece",  # of the average over all epochs so far: the paper's moving average
    "late_loss", "late_accuracy", "late_ece",  # the same without the first fifth of the epochs
    "single_loss", "single_accuracy",  # of the latest binary network alone
    "continuous_loss", "continuous_accuracy",  # of the latest network before binarisation
    "weights_loss", "weights_accuracy",  # of one network whose weights are the mean of the binary ones
)  # fmt: skip
BINS = 15  # of the calibration error


# -- what is compared ---------------------------------------------------------------------------------------------


METHODS = {
    method.name: method
    for method in (
        Method("sigmoid", "CoRV sigmoid", "paper", lambda p: ib.sgld(p, "sigmoid"), 1e-5, 1e-1),
        Method("arctan", "CoRV arctan", "paper", lambda p: ib.sgld(p, "arctan"), 1e-5, 1.0),
        Method("softsign", "CoRV softsign", "paper", lambda p: ib.sgld(p, "softsign"), 1e-5, 1.0),
        Method("mirror", "SGLD, mirrored", "baseline", lambda p: ib.baselines.mirror(p), 1e-7, 1e-3),
        Method("probit", "CoRV probit", "ours", lambda p: ib.sgld(p, "probit"), 1e-5, 1e-1),
        Method("probit-lm", "CoRV-LM probit", "ours", lambda p: ib.leimkuhler_matthews(p, "probit"), 1e-5, 1e-1),
        Method(
            "probit-lm-nc",
            "CoRV-LM-nc probit",
            "ours",
            lambda p: ib.leimkuhler_matthews(p, "probit", noise_correction=True),
            1e-5,
            1e-1,
        ),
        Method("sigmoid-baoab", "underdamped, sigmoid", "ours", lambda p: ib.baoab(p, "sigmoid"), 1e-7, 1e-3),
        Method("probit-baoab", "underdamped, probit", "ours", lambda p: ib.baoab(p, "probit"), 1e-7, 1e-3),
        Method(
            "probit-baoab-nc",
            "underdamped-nc, probit",
            "ours",
            lambda p: ib.baoab(p, "probit", noise_correction=True),
            1e-7,
            1e-3,
        ),
    )
}
ITO = Method("ito", "Ito sigmoid", "baseline", lambda p: ib.baselines.ito(p, "sigmoid"), 1e-9, 1e-3)


@dataclass(frozen=True)
class Settings:
    """Everything that the numbers depend on.

    Args:
        dataset: "mnist", "fashion-mnist" or "synthetic".
        epochs: of the final runs.
        tuning_epochs: of each trial of the search.
        trials: of the search, for every method.
        chains: trials that run side by side, and seeds of the final runs.
        search: "tpe", or "grid": the same number of trials, evenly spaced on the log scale.
        batch_size, hidden, prior: of the model.
        logit_scales: candidates; the one with the least validation loss, summed over sigmoid and mirror, is taken for all.
        scale_trials, scale_epochs: step sizes and epochs of that choice.
        priors: concentrations of the sensitivity study.
        rows: of the synthetic data.
        seed: of everything.
    """

    dataset: str
    epochs: int
    tuning_epochs: int
    trials: int
    chains: int
    search: str = "tpe"
    batch_size: int = 100
    hidden: tuple[int, ...] = (50,)
    prior: float = 0.5
    logit_scales: tuple[float, ...] = (10.0, 15.0, 20.0)
    scale_trials: int = 10
    scale_epochs: int = 10
    priors: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0)
    rows: int = 0
    seed: int = 0


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "dataset": "synthetic", "epochs": 3, "tuning_epochs": 2, "trials": 4, "chains": 2, "search": "grid",
        "batch_size": 50, "logit_scales": (10.0,), "scale_trials": 2, "scale_epochs": 2, "priors": (0.5, 2.0), "rows": 2_500,
    },
    "laptop": {
        "epochs": 20, "tuning_epochs": 8, "trials": 12, "chains": 3, "logit_scales": (15.0,), "scale_trials": 3,
        "scale_epochs": 5, "priors": (0.5, 2.0), "rows": 20_000,
    },
    "full": {"epochs": 100, "tuning_epochs": 25, "trials": 100, "chains": 20, "scale_trials": 20, "scale_epochs": 15, "rows": 70_000},
}  # fmt: skip
LONGER: dict[str, dict[str, dict[str, Any]]] = {
    "fashion-mnist": {"full": {"epochs": 300, "tuning_epochs": 40, "logit_scales": (5.0, 7.5, 10.0, 15.0)}}
}


def settings(scale: str, seed: int, dataset: str = "mnist", **changes: Any) -> dict[str, Any]:
    """Everything that the numbers depend on: the scale's settings, with other values for the fields in `changes`.

    Args:
        scale: a key of `SCALES`; "smoke" always takes synthetic digits.
        seed: of everything.
        dataset: one of `DATASETS`.
        changes: other values for fields of `Settings`; None leaves a field as it is.
    """
    if dataset not in DATASETS:
        raise ValueError(f"Unknown data set {dataset!r}. Known: {', '.join(DATASETS)}.")
    if scale not in SCALES:
        raise ValueError(f"Unknown scale {scale!r}. Known: {', '.join(SCALES)}.")
    values: dict[str, Any] = {
        "dataset": dataset,
        "seed": seed,
        **SCALES[scale],
        **LONGER.get(dataset, {}).get(scale, {}),
    }
    return {"scale": scale, **asdict(Settings(**values | {k: v for k, v in changes.items() if v is not None}))}


def settings_of(results: Results) -> Settings:
    """The settings that a results folder was made with."""
    return results.settings_as(Settings)


# -- data ---------------------------------------------------------------------------------------------------------


def load_images(settings: Settings, data: str | os.PathLike | None) -> LabelledImages | None:
    """The published data set; None for the synthetic one, which is drawn."""
    return None if settings.dataset == "synthetic" else catalog.load(settings.dataset, data)


def pooled_split(settings: Settings, images: LabelledImages | None) -> Split:
    """All rows, 8 : 1 : 1, grey values in [0, 1]."""
    if images is None:
        return split(synthetic_digits(settings.rows, settings.seed, size=14, noise=0.2), settings.seed)
    return _unit(split(images.pooled(), settings.seed))


def standard_split(settings: Settings, images: LabelledImages) -> Split:
    """The published training part, 9 : 1 for fitting and choosing, and the published test part."""
    order = np.random.default_rng(settings.seed).permutation(len(images.train))
    cut = round(0.9 * len(order))
    fit, choose = (Part(images.train.x[rows], images.train.y[rows]) for rows in (order[:cut], order[cut:]))
    return _unit(Split(fit, choose, images.test))


def _unit(parts: Split) -> Split:
    return Split(*(Part(p.x.reshape(len(p), -1).astype(np.float32) / 255, p.y) for p in parts))


# -- one compiled run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Collector: every one of `METRICS` on every one of `SETS` at the end of each epoch, (epochs, sets, metrics)."""

    network: Network
    sets: tuple[tuple[jax.Array, jax.Array], ...]
    epochs: int
    burn_in: int

    def init(self, theta: PyTree) -> Any:
        classes = self.network.layers[-1]
        zeros = tuple(jnp.zeros((len(y), classes)) for _, y in self.sets)
        weights = jax.tree.map(jnp.zeros_like, theta)
        curve = jnp.full((self.epochs, len(self.sets), len(METRICS)), jnp.nan)
        return jnp.zeros((), jnp.int32), zeros, zeros, weights, curve

    def update(self, state: Any, theta: PyTree) -> Any:
        count, means, late, weights, curve = state
        signs = binarise(theta)
        gain = 1 / (count + 1).astype(jnp.float32)
        late_gain = 1 / (jnp.where(count < self.burn_in, count, count - self.burn_in) + 1).astype(jnp.float32)
        weights = jax.tree.map(lambda w, s: w + gain * (s - w), weights, signs)
        new_means, new_late, rows = [], [], []
        for (x, y), mean, late_mean in zip(self.sets, means, late, strict=True):
            single = jax.nn.softmax(self.network.logits(signs, x))
            mean = mean + gain * (single - mean)
            late_mean = late_mean + late_gain * (single - late_mean)
            others = [jax.nn.softmax(self.network.logits(w, x)) for w in (theta, weights)]
            values = [*loss_and_accuracy(mean, y), calibration_error(mean, y)]
            values += [*loss_and_accuracy(late_mean, y), calibration_error(late_mean, y)]
            for probabilities in (single, *others):
                values += loss_and_accuracy(probabilities, y)
            new_means.append(mean)
            new_late.append(late_mean)
            rows.append(jnp.stack(values))
        curve = curve.at[count].set(jnp.stack(rows))
        return count + 1, tuple(new_means), tuple(new_late), weights, curve

    def result(self, state: Any) -> Any:
        return state[-1]


def calibration_error(probabilities: jax.Array, y: jax.Array) -> jax.Array:
    """Expected calibration error: mean distance of confidence and accuracy over bins of confidence (Guo et al. 2017)."""
    confidence = jnp.max(probabilities, axis=1)
    right = (jnp.argmax(probabilities, axis=1) == y).astype(confidence.dtype)
    bins = jnp.clip((confidence * BINS).astype(jnp.int32), 0, BINS - 1)
    member = jax.nn.one_hot(bins, BINS, dtype=confidence.dtype)
    return jnp.sum(jnp.abs(member.T @ (confidence - right))) / len(y)


class Bench:
    """A network on a split: runs methods with one chain a step size. Equal calls compile once."""

    def __init__(self, settings: Settings, parts: Split, logit_scale: float, prior: float):
        self.settings = settings
        layers = (parts.train.x.shape[1], *settings.hidden, int(parts.train.y.max()) + 1)
        self.network = Network(layers, logit_scale=logit_scale)
        self.posterior = network_posterior(self.network, *parts.train, prior)
        self.steps = steps_per_epoch(len(parts.train), settings.batch_size)
        sets = tuple((jnp.asarray(part.x), jnp.asarray(part.y)) for part in (parts.validation, parts.test))
        self.evaluation = Evaluation(self.network, sets, settings.epochs, settings.epochs // 5)
        self.kernels: dict[str, Kernel] = {}

    def run(
        self,
        method: Method,
        step_sizes: Sequence[float] | np.ndarray,
        epochs: int,
        seed: int,
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """{"curve": (chains, epochs, sets, metrics), "clamped": (chains, epochs), "seconds"}; NaN where a chain died."""
        if method.name not in self.kernels:
            self.kernels[method.name] = method.kernel(self.posterior)
        began = time.perf_counter()
        draws = ib.sample(
            self.kernels[method.name],
            np.asarray(step_sizes, float),
            epochs * self.steps,
            thin=self.steps,
            batch_size=self.settings.batch_size,
            num_chains=len(step_sizes),
            seed=seed,
            init=self.network.start,
            collect=self.evaluation,
            progress=False,
            monitor=lambda done, collected: check(),
            on_failure="continue",
        )
        return {
            "curve": np.asarray(draws.collected)[:, :epochs],
            "clamped": draws.stats["clamped"],
            "seconds": time.perf_counter() - began,
        }


# -- the experiment -----------------------------------------------------------------------------------------------


class Experiment:
    """The parts of the experiment, each computed once and kept in the results folder."""

    def __init__(self, settings: Settings, results: Results, data: Any, say: Callable[[str], None]):
        self.settings, self.results, self.say = settings, results, say
        self.images = load_images(settings, data)
        self.parts = pooled_split(settings, self.images)
        self._benches: dict[tuple, Bench] = {}

    def bench(self, logit_scale: float, prior: float, standard: bool = False) -> Bench:
        """Made once for each combination; only the latest is kept, with what was compiled for it."""
        key = (logit_scale, prior, standard)
        if key not in self._benches:
            parts = standard_split(self.settings, self.images) if standard and self.images else self.parts
            self._benches = {key: Bench(self.settings, parts, logit_scale, prior)}
        return self._benches[key]

    def part(self, name: str, compute: Callable[[], Any]) -> Any:
        return self.results.part(name, compute, self.say)

    def logit_scale(self) -> float:
        """The scale for all methods: least validation loss, summed over sigmoid and mirror, each at its best step."""
        settings = self.settings
        if len(settings.logit_scales) == 1:
            return settings.logit_scales[0]
        losses = {
            scale: sum(self._scale_loss(scale, METHODS[name]) for name in ("sigmoid", "mirror"))
            for scale in settings.logit_scales
        }
        return min(losses, key=losses.__getitem__)

    def _scale_loss(self, scale: float, method: Method) -> float:
        settings = self.settings

        def compute():
            # The outer quarters of the range are never best: spend the few trials inside.
            low, high = (method.low**a * method.high ** (1 - a) for a in (0.75, 0.1))
            return self._grid(
                self.bench(scale, settings.prior), method, low, high, settings.scale_trials, settings.scale_epochs
            )

        return number(self.part(f"scale/{scale:g}/{method.name}", compute)["best_loss"])

    def _grid(self, bench: Bench, method: Method, low: float, high: float, trials: int, epochs: int) -> dict[str, Any]:
        return search.grid(self._losses(bench, method, epochs), low, high, trials, self.settings.chains)

    def _losses(self, bench: Bench, method: Method, epochs: int) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """The averaged validation loss at the last epoch, of one chain a step size."""

        def evaluate(step_sizes):
            curve = bench.run(method, step_sizes, epochs, self.settings.seed + 1)["curve"]
            return {"losses": metric(curve, METRICS, "loss", "validation")[:, -1]}

        return evaluate

    def tuned(self, method: Method, scale: float) -> dict[str, Any]:
        """The search for a method's step size, resumable trial by trial."""
        settings = self.settings

        def compute():
            bench = self.bench(scale, settings.prior)
            if settings.search == "grid":
                return self._grid(bench, method, method.low, method.high, settings.trials, settings.tuning_epochs)
            return search.tpe(
                self._losses(bench, method, settings.tuning_epochs), method.low, method.high, settings.trials,
                settings.chains, settings.seed, self.results.path / "studies" / f"{method.name}.journal",
                f"{settings.dataset}-{method.name}",
            )  # fmt: skip

        return self.part(f"tune/{method.name}", compute)

    def final(self, method: Method, scale: float) -> dict[str, Any]:
        """The tuned method, once a seed, for all epochs."""
        settings = self.settings
        step = self.tuned(method, scale)["best_step_size"]

        def compute():
            bench = self.bench(scale, settings.prior)
            return _summary(bench.run(method, np.full(settings.chains, step), settings.epochs, settings.seed + 2), step)

        return self.part(f"final/{method.name}", compute)

    def standard(self, method: Method, scale: float) -> dict[str, Any] | None:
        """The same step size on the published split, for comparison with other work."""
        if self.images is None:
            return None
        settings = self.settings
        step = self.tuned(method, scale)["best_step_size"]

        def compute():
            bench = self.bench(scale, settings.prior, standard=True)
            return _summary(bench.run(method, np.full(settings.chains, step), settings.epochs, settings.seed + 3), step)

        return self.part(f"standard/{method.name}", compute)

    def prior(self, method: Method, scale: float, prior: float) -> dict[str, Any]:
        """The method under another prior, its step size searched again: one chain a step size, the best by validation."""
        settings = self.settings

        def compute():
            bench = self.bench(scale, prior)
            trials = settings.chains
            grid = self._grid(bench, method, method.low, method.high, trials, settings.tuning_epochs)
            step = grid["best_step_size"]
            run = bench.run(method, np.full(trials, step), settings.tuning_epochs, settings.seed + 4)
            return _summary(run, step) | {"at_edge": grid["at_edge"]}

        return self.part(f"prior/{prior:g}/{method.name}", compute)

    def ito(self, scale: float) -> dict[str, Any]:
        """Ito's formulation over its range of step sizes; lost coordinates are restarted, and counted."""
        settings = self.settings

        def compute():
            bench = self.bench(scale, settings.prior)
            steps = np.geomspace(ITO.low, ITO.high, settings.chains)
            epochs = min(settings.epochs, settings.scale_epochs)
            kept = bench.run(ITO, steps, epochs, settings.seed + 5)
            return {
                "step_sizes": steps,
                "epochs": epochs,
                "validation_loss": metric(kept["curve"], METRICS, "loss", "validation")[:, -1],
                "loss": metric(kept["curve"], METRICS, "loss")[:, -1],
                "accuracy": metric(kept["curve"], METRICS, "accuracy")[:, -1],
                "restarted": np.mean(kept["clamped"], axis=1),
            }

        return self.part("ito", compute)


def _summary(run: dict[str, Any], step_size: float) -> dict[str, Any]:
    """What is kept of a run of several seeds: every metric on both sets, (seeds, epochs), rounded for the disk."""
    return {"step_size": step_size, "seconds": run["seconds"], **rounded(run["curve"], METRICS)}


def run(
    results: Results,
    say: Callable[[str], None] = print,
    data: str | os.PathLike | None = None,
    methods: Sequence[str] | None = None,
    stages: Sequence[str] | None = None,
) -> None:
    """Compute the parts that are missing.

    Args:
        results: the folder, with its settings; an interrupted run goes on there, part by part and trial by trial.
        say: told about each finished part.
        data: the folder of data sets.
        methods: names out of `METHODS`; None for all. Processes that share a folder may divide them among themselves.
        stages: some of `STAGES`: "main" (search and final runs), "prior", "ito" and "standard"; None for all.
    """
    picked = [METHODS[name] for name in chosen("method", methods, METHODS)]
    stages = chosen("stage", stages, STAGES)
    settings = settings_of(results)
    experiment = Experiment(settings, results, data, say)
    logit_scale = experiment.logit_scale()
    say(f"logit scale {logit_scale:g}")
    if "main" in stages:
        for method in picked:
            say(f"{method.label}: {_line(experiment.final(method, logit_scale))}")
    if "ito" in stages:
        experiment.ito(logit_scale)
    if "prior" in stages:
        # The prior of the main runs first: what was compiled for them is still there.
        for prior in sorted(settings.priors, key=lambda value: value != settings.prior):
            for method in picked:
                if method.name in SENSITIVE:
                    experiment.prior(method, logit_scale, prior)
    if "standard" in stages:
        for method in picked:
            if method.name in PUBLISHED:
                experiment.standard(method, logit_scale)


def _line(final: dict[str, Any]) -> str:
    loss, accuracy = (at_end(final, name) for name in ("loss", "accuracy"))
    return f"step {final['step_size']:.2e}, test loss {loss[0]:.4f} ({loss[1]:.4f}), accuracy {accuracy[0]:.4f} ({accuracy[1]:.4f})"


def summarise(results: Results) -> list[dict[str, Any]]:
    """One row a stage and method: means and standard errors over the seeds at the last epoch, on the test part."""
    rows = []
    for part, value in results.parts().items():
        stage, _, rest = part.partition("/")
        if stage not in ("final", "standard", "prior"):
            continue
        prior, _, name = rest.rpartition("/")
        row: dict[str, Any] = {"stage": stage, "method": name, "step_size": value["step_size"]}
        row["prior"] = float(prior) if prior else settings_of(results).prior
        for metric_name in METRICS:
            row[metric_name], row[f"{metric_name}_se"] = at_end(value, metric_name)
        row["seeds"] = len(value["test"]["loss"])
        row["epochs"] = len(value["test"]["loss"][0])
        row["seconds"] = value["seconds"]
        rows.append(row)
    order = list(METHODS)
    return sorted(rows, key=lambda row: (row["stage"], row["prior"], order.index(row["method"])))


def report(results: Results) -> Any:
    """Tables, pictures and sentences from the parts that are there."""
    from experiments.binary_network_page import page

    return page(results)
