"""Section 6.2 of the paper: Bayesian binary networks on MNIST and Fashion-MNIST.

A 784-50-10 network with weights in (-1, 1) is sampled by each method, its weights are binarised at the end of every epoch,
and the softmax outputs of these binary networks are averaged. Step sizes come from a search that minimises the validation
loss. Everything happens inside compiled calls: one chain a step size, whole epochs at a time, evaluations included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from experiments.comparison import Bench, Comparison, Method, at_end, chosen, metric, settings_for
from experiments.reports import Report
from experiments.results import Results, number
from inbounds.data import catalog, synthetic_digits
from inbounds.data.images import LabelledImages, Part, Split, split
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
        Method("sigmoid", "CoRV sigmoid", "paper", lambda b: ib.sgld(b.posterior, "sigmoid"), 1e-5, 1e-1),
        Method("arctan", "CoRV arctan", "paper", lambda b: ib.sgld(b.posterior, "arctan"), 1e-5, 1.0),
        Method("softsign", "CoRV softsign", "paper", lambda b: ib.sgld(b.posterior, "softsign"), 1e-5, 1.0),
        Method("mirror", "SGLD, mirrored", "baseline", lambda b: ib.baselines.mirror(b.posterior), 1e-7, 1e-3),
        Method("probit", "CoRV probit", "ours", lambda b: ib.sgld(b.posterior, "probit"), 1e-5, 1e-1),
        Method(
            "probit-lm", "CoRV-LM probit", "ours", lambda b: ib.leimkuhler_matthews(b.posterior, "probit"), 1e-5, 1e-1
        ),
        Method(
            "probit-lm-nc",
            "CoRV-LM-nc probit",
            "ours",
            lambda b: ib.leimkuhler_matthews(b.posterior, "probit", noise_correction=True),
            1e-5,
            1e-1,
        ),
        Method("sigmoid-baoab", "underdamped, sigmoid", "ours", lambda b: ib.baoab(b.posterior, "sigmoid"), 1e-7, 1e-3),
        Method("probit-baoab", "underdamped, probit", "ours", lambda b: ib.baoab(b.posterior, "probit"), 1e-7, 1e-3),
        Method(
            "probit-baoab-nc",
            "underdamped-nc, probit",
            "ours",
            lambda b: ib.baoab(b.posterior, "probit", noise_correction=True),
            1e-7,
            1e-3,
        ),
    )
}
ITO = Method("ito", "Ito sigmoid", "baseline", lambda b: ib.baselines.ito(b.posterior, "sigmoid"), 1e-9, 1e-3)


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
    asked = LONGER.get(dataset, {}).get(scale, {}) | {
        name: value for name, value in changes.items() if value is not None
    }
    return {"scale": scale, **asdict(settings_for(Settings, SCALES, scale, asked, dataset=dataset, seed=seed))}


def settings_of(results: Results) -> Settings:
    """The settings that a results folder was made with."""
    return results.settings_as(Settings)


# -- data ---------------------------------------------------------------------------------------------------------


def load_images(settings: Settings, data: str | os.PathLike[str] | None) -> LabelledImages | None:
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


class NetworkBench(Bench):
    """A network on a split."""

    def __init__(self, settings: Settings, parts: Split, logit_scale: float, prior: float):
        layers = (parts.train.x.shape[1], *settings.hidden, int(parts.train.y.max()) + 1)
        self.network = Network(layers, logit_scale=logit_scale)
        super().__init__(network_posterior(self.network, *parts.train, prior), self.network.start, settings.batch_size)
        self.steps = steps_per_epoch(len(parts.train), settings.batch_size)
        sets = tuple((jnp.asarray(part.x), jnp.asarray(part.y)) for part in (parts.validation, parts.test))
        self.evaluation = Evaluation(self.network, sets, settings.epochs, settings.epochs // 5)

    def run(
        self,
        method: Method,
        step_sizes: Sequence[float] | np.ndarray,
        length: int,
        seed: int,
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """As every bench's, with "clamped", (chains, epochs); one evaluation an epoch."""
        draws, _, seconds = self.sample(
            method, step_sizes, length * self.steps, self.steps, self.evaluation, seed, check
        )
        return {
            "curve": np.asarray(draws.collected)[:, :length],
            "clamped": draws.stats["clamped"],
            "seconds": seconds,
        }


# -- the experiment -----------------------------------------------------------------------------------------------


class Experiment(Comparison):
    """The parts of the experiment; a bench is that of a logit scale, a prior, and whether the split is the published one."""

    metrics, loss = METRICS, "loss"

    def __init__(self, settings: Settings, results: Results, data: Any, say: Callable[[str], None]):
        super().__init__(settings, results, say)
        self.images = load_images(settings, data)
        self.parts = pooled_split(settings, self.images)

    def make_bench(self, logit_scale: float, prior: float, standard: bool = False) -> NetworkBench:
        parts = standard_split(self.settings, self.images) if standard and self.images else self.parts
        return NetworkBench(self.settings, parts, logit_scale, prior)

    def logit_scale(self) -> float:
        """The scale for all methods: least validation loss, summed over sigmoid and mirror, each at its best step."""
        settings = self.settings
        if len(settings.logit_scales) == 1:
            return float(settings.logit_scales[0])
        losses = {
            scale: sum(self._scale_loss(scale, METHODS[name]) for name in ("sigmoid", "mirror"))
            for scale in settings.logit_scales
        }
        return float(min(losses, key=losses.__getitem__))

    def _scale_loss(self, scale: float, method: Method) -> float:
        settings = self.settings

        def compute() -> dict[str, Any]:
            # The outer quarters of the range are never best: spend the few trials inside.
            low, high = (method.low**a * method.high ** (1 - a) for a in (0.75, 0.1))
            bench = self.bench(scale, settings.prior)
            return self.grid(bench, method, settings.scale_trials, settings.scale_epochs, (low, high))

        return number(self.part(f"scale/{scale:g}/{method.name}", compute)["best_loss"])

    def best_step(self, method: Method, scale: float) -> float:
        """What the search finds."""
        found = self.tuned(method, (scale, self.settings.prior), self.settings.tuning_epochs)
        return float(found["best_step_size"])

    def final(self, method: Method, scale: float) -> dict[str, Any]:
        """The tuned method, once a seed, for all epochs."""
        settings, step = self.settings, self.best_step(method, scale)
        return self.part(
            f"final/{method.name}",
            lambda: self.fresh(self.bench(scale, settings.prior), method, step, settings.epochs, 2),
        )

    def standard(self, method: Method, scale: float) -> dict[str, Any] | None:
        """The same step size on the published split, for comparison with other work."""
        if self.images is None:
            return None
        settings, step = self.settings, self.best_step(method, scale)
        return self.part(
            f"standard/{method.name}",
            lambda: self.fresh(self.bench(scale, settings.prior, True), method, step, settings.epochs, 3),
        )

    def prior(self, method: Method, scale: float, prior: float) -> dict[str, Any]:
        """The method under another prior, its step size searched again: one chain a step size, the best by validation."""
        settings = self.settings

        def compute() -> dict[str, Any]:
            bench = self.bench(scale, prior)
            grid = self.grid(bench, method, settings.chains, settings.tuning_epochs)
            run = self.fresh(bench, method, grid["best_step_size"], settings.tuning_epochs, 4)
            return run | {"at_edge": grid["at_edge"]}

        return self.part(f"prior/{prior:g}/{method.name}", compute)

    def ito(self, scale: float) -> dict[str, Any]:
        """Ito's formulation over its range of step sizes; lost coordinates are restarted, and counted."""
        settings = self.settings

        def compute() -> dict[str, Any]:
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


def report(results: Results) -> Report:
    """Tables, pictures and sentences from the parts that are there."""
    from experiments.binary_network_page import page

    return page(results)
