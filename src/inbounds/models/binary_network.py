"""Bayesian binary neural networks: weights sampled in (-1, 1), signs used to predict.

The first half of this file states the model: a feed-forward network whose weights are bounded variables, as an ordinary
`Posterior`. The second half is a classifier with scikit-learn's conventions that samples it with an ordinary kernel and
predicts with the average of the binarised networks.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from inbounds.kernels import baoab, baselines, leimkuhler_matthews, sgld
from inbounds.kernels._base import Kernel
from inbounds.models.estimator import Estimator, is_interactive, is_whole, scikit_learns
from inbounds.models.packed import PackedNetworks
from inbounds.posterior import Posterior
from inbounds.sampling import sample
from inbounds.trees import PyTree, cut_like

__all__ = [
    "INTERCEPTS",
    "BinaryNetwork",
    "Curve",
    "Network",
    "PackedSigns",
    "auto_step_size",
    "binarise",
    "loss_and_accuracy",
    "network_posterior",
    "steps_per_epoch",
    "translated_beta",
]

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "hardtanh": lambda x: jnp.clip(x, -1, 1),
}
INTERCEPTS = (0.5, 0.25, 0.125)  # constant inputs in units of sqrt(fan-in): signs of three bits make eight thresholds
BLOCK = 512  # steps of one compiled block at most; an epoch is made of equal blocks
LEAST_STEPS = 50  # of an epoch of the classifier: small data are passed over several times


# -- the model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    r"""A feed-forward network whose only parameters are weights in (-1, 1).

    $$z_l = W_l^\top h_{l-1} / \sqrt{d_{l-1}}, \qquad h_l = \sigma(z_l), \qquad
      p(y \mid x) = \mathrm{softmax}(s\, z_L)$$

    Args:
        layers: widths $d_0, \dots, d_L$: inputs, hidden units, classes.
        activation: $\sigma$: "relu", "tanh" or "hardtanh".
        logit_scale: $s$, fixed. Weights cannot grow, so this says how sure the network may be.
        intercepts: values of constant inputs beside those of every layer, in units of $\sqrt{d_{l-1}}$; empty for none.

    Example:
        >>> ib.models.Network((784, 50, 10)).num_weights
        39700
    """

    layers: tuple[int, ...]
    activation: str = "relu"
    logit_scale: float = 10.0
    intercepts: tuple[float, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Shape of every layer's weights, constant inputs included, by name."""
        extra = len(self.intercepts)
        pairs = zip(self.layers[:-1], self.layers[1:], strict=True)
        return {f"layer_{i}": (fan_in + extra, out) for i, (fan_in, out) in enumerate(pairs, 1)}

    @property
    def num_weights(self) -> int:
        """How many weights a network has."""
        return sum(rows * columns for rows, columns in self.shapes.values())

    def logits(self, weights: PyTree, x: jax.Array) -> jax.Array:
        """(rows, classes).

        Args:
            weights: the network's, by name.
            x: one row per datum.

        Returns:
            One number per row and class.
        """
        activation = ACTIVATIONS[self.activation]
        for depth, name in enumerate(self.shapes):
            layer = weights[name]
            fan_in = x.shape[-1]
            if depth:
                x = activation(x)
            if self.intercepts:
                constants = jnp.asarray([value * math.sqrt(fan_in) for value in self.intercepts], x.dtype)
                x = x @ layer[:fan_in] + constants @ layer[fan_in:]
            else:
                x = x @ layer
            last = depth == len(self.layers) - 2
            x = x * ((self.logit_scale if last else 1.0) / math.sqrt(fan_in))
        return x

    def log_likelihood(self, weights: PyTree, batch: PyTree) -> jax.Array:
        """log p(y | x) of each row of {"x", "y"}.

        Args:
            weights: the network's, by name.
            batch: rows of the data.

        Returns:
            One number per row.
        """
        log_probabilities = jax.nn.log_softmax(self.logits(weights, batch["x"]))
        return jnp.take_along_axis(log_probabilities, batch["y"][:, None], axis=1)[:, 0]

    def start(self, key: jax.Array) -> PyTree:
        """Uniform weights in (-1/2, 1/2): their signs are those of a random network, and nothing is decided yet.

        Args:
            key: of the random numbers.

        Returns:
            Weights by name.
        """
        shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in self.shapes.items()}
        return cut_like(shapes, jax.random.uniform(key, (self.num_weights,), jnp.float32, -0.5, 0.5))


def binarise(weights: PyTree) -> PyTree:
    """Signs, with sign(0) = +1.

    Args:
        weights: a tree of arrays.

    Returns:
        A tree like it, of -1 and +1.

    Example:
        >>> ib.models.binarise({"layer_1": jnp.array([0.3, -0.2, 0.0])})["layer_1"].tolist()
        [1.0, -1.0, 1.0]
    """
    return jax.tree.map(lambda w: jnp.where(w >= 0, jnp.ones_like(w), -jnp.ones_like(w)), weights)


def translated_beta(concentration: float | tuple[float, float]) -> Callable[[PyTree], jax.Array]:
    r"""Log density, up to a constant, of independent weights with $(w + 1) / 2 \sim \mathrm{Beta}(a, b)$.

    Written in the distances $1 + w$ and $1 - w$ to the ends, which floats hold exactly near them.
    """
    a, b = concentration if isinstance(concentration, tuple | list) else (concentration, concentration)

    def log_prior(weights: PyTree) -> jax.Array:
        terms = [jnp.sum((a - 1) * jnp.log1p(leaf) + (b - 1) * jnp.log1p(-leaf)) for leaf in jax.tree.leaves(weights)]
        return sum(terms[1:], terms[0])

    return log_prior


def network_posterior(
    network: Network, x: np.ndarray, y: np.ndarray, prior: float | tuple[float, float] = 0.5
) -> Posterior:
    """The posterior of the weights, given rows `x` and class numbers `y`.

    Args:
        network: its shape.
        x: features, (rows, inputs).
        y: numbers of the classes, from 0.
        prior: concentration of the beta prior of (weight + 1) / 2; a pair for two different ends.

    Returns:
        A posterior whose variables are the layers.

    Example:
        >>> network = ib.models.Network((2, 3, 2))
        >>> posterior = ib.models.network_posterior(network, np.ones((5, 2)), np.array([0, 1, 0, 1, 0]))
        >>> posterior.num_data
        5
    """
    return Posterior(
        log_prior=translated_beta(prior),
        supports=dict.fromkeys(network.shapes, constraints.interval(-1.0, 1.0)),
        log_likelihood=network.log_likelihood,
        data={"x": np.asarray(x, np.float32), "y": np.asarray(y, np.int32)},
    )


def steps_per_epoch(rows: int, batch_size: int) -> int:
    """Steps of one pass over the rows, rounded up to equal blocks of at most `BLOCK` steps.

    Args:
        rows: of the data.
        batch_size: rows per minibatch.

    Returns:
        At least rows / batch_size.

    Example:
        >>> ib.models.steps_per_epoch(1_000, 100)
        10
    """
    steps = -(-rows // batch_size)
    blocks = -(-steps // BLOCK)
    return -(-steps // blocks) * blocks


# -- what is gathered while chains run ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PackedSigns:
    """Collector: the sign of every weight at every draw, packed into bits."""

    draws: int
    weights: int

    def init(self, theta: PyTree) -> Any:
        return jnp.zeros((), jnp.int32), jnp.zeros((self.draws, -(-self.weights // 8)), jnp.uint8)

    def update(self, state: Any, theta: PyTree) -> Any:
        count, bits = state
        signs = jnp.concatenate([theta[name].ravel() >= 0 for name in sorted(theta, key=_layer_number)])
        return count + 1, bits.at[count].set(jnp.packbits(signs))

    def result(self, state: Any) -> Any:
        return state[1]


@dataclass(frozen=True, eq=False)
class Curve:
    """Collector: loss and accuracy on held-out rows at every draw, of the binarised network and of the average so far.

    The result has shape (draws, 4): averaged loss and accuracy, single-network loss and accuracy. The average leaves out
    the first `burn_in` draws, once there are others.
    """

    network: Network
    x: jax.Array
    y: jax.Array
    draws: int
    burn_in: int = 0

    def init(self, theta: PyTree) -> Any:
        mean = jnp.zeros((self.x.shape[0], self.network.layers[-1]), self.x.dtype)
        return jnp.zeros((), jnp.int32), mean, jnp.full((self.draws, 4), jnp.nan, self.x.dtype)

    def update(self, state: Any, theta: PyTree) -> Any:
        count, mean, curve = state
        single = jax.nn.softmax(self.network.logits(binarise(theta), self.x))
        averaged = jnp.where(count < self.burn_in, count, count - self.burn_in) + 1
        mean = mean + (single - mean) / averaged.astype(mean.dtype)
        row = jnp.stack([*loss_and_accuracy(mean, self.y), *loss_and_accuracy(single, self.y)])
        return count + 1, mean, curve.at[count].set(row)

    def result(self, state: Any) -> Any:
        return state[2]


def loss_and_accuracy(probabilities: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean negative log probability of the true class, clipped at 1e-12, and share of rows where it is the largest.

    Args:
        probabilities: (rows, classes).
        y: the true class of each row.

    Returns:
        Loss and accuracy.

    Example:
        >>> loss, accuracy = ib.models.loss_and_accuracy(jnp.array([[0.5, 0.5], [0.9, 0.1]]), jnp.array([1, 0]))
        >>> round(float(loss), 3), float(accuracy)
        (0.399, 0.5)
    """
    of_truth = jnp.take_along_axis(probabilities, y[:, None], axis=1)[:, 0]
    right = jnp.argmax(probabilities, axis=1) == y
    return -jnp.mean(jnp.log(jnp.maximum(of_truth, 1e-12))), jnp.mean(right.astype(probabilities.dtype))


def _layer_number(name: str) -> int:
    return int(name.rpartition("_")[2])


# -- the classifier -----------------------------------------------------------------------------------------------

KERNELS: dict[str, Any] = {
    "sgld": sgld,
    "leimkuhler_matthews": leimkuhler_matthews,
    "baoab": baoab,
    "mirror": baselines.mirror,
}


class BinaryNetwork(Estimator):
    """A classifier that predicts with the average of sampled binary networks, in the manner of scikit-learn.

    The weights are sampled as bounded variables in (-1, 1); every so often their signs are taken as a network of one-bit
    weights, and predictions average the softmax outputs of these networks.

    Args:
        hidden: widths of the hidden layers.
        activation: "relu", "tanh" or "hardtanh".
        transforms: how the weights are kept in (-1, 1): "probit", "sigmoid", "arctan" or "softsign".
        kernel: "baoab", "leimkuhler_matthews", "sgld" or "mirror"; or a function of a posterior that returns a kernel, such as
            `lambda posterior: ib.sgld(posterior, "arctan", noise_correction=True)` (`transforms` is not used then).
        prior: concentration of the symmetric translated beta prior; below 1 it prefers the ends -1 and +1.
        step_size: a number, a function of the step number, or "auto": see `auto_step_size`.
        epochs: passes over the data; data of few rows are passed over several times in one, until it has 50 steps.
        burn_in: share of the epochs whose networks are not kept.
        networks_per_epoch: binary networks taken from each epoch.
        batch_size: rows per minibatch.
        num_chains: independent samplers side by side; their networks predict together.
        logit_scale: how sure a network may be; weights cannot grow, so it is fixed.
        intercept: give every layer three constant inputs, whose signs add up to one of eight thresholds.
        scaling: "feature" (each feature to mean 0 and sd 1), "global" (all by the same two numbers, for pixels and other
            features in one unit), or "none".
        validation: share of the rows held out for the curve in `history_`; 0 for none. Not used to fit.
        progress: print the validation loss once per epoch on a terminal; True, False, or a function that gets a dict.
        random_state: a whole number; the same one gives the same model.

    Attributes:
        classes_: the labels, sorted.
        n_features_in_: number of features.
        feature_names_in_: their names, where X was a table that has them.
        networks_: the binary networks, packed (`inbounds.models.packed.PackedNetworks`).
        history_: a dict of arrays, one value per epoch: "loss" and "accuracy" of the averaged networks so far on the rows
            held out, and "single_loss" and "single_accuracy" of the latest network alone; empty without such rows.

    Example:
        >>> digits = ib.data.synthetic_digits(200, size=8)
        >>> model = ib.models.BinaryNetwork(hidden=(8,), epochs=4, progress=False).fit(digits.x, digits.y)
        >>> model.predict_proba(digits.x[:3]).shape
        (3, 10)
    """

    _fitted = "networks_"
    _format = "inbounds binary network"
    _renamed: ClassVar[dict[str, str]] = {"transform": "transforms"}
    _estimator_type = "classifier"

    def __init__(
        self,
        hidden: Sequence[int] = (50,),
        *,
        activation: str = "relu",
        transforms: str = "probit",
        kernel: str | Callable[[Posterior], Kernel] = "baoab",
        prior: float = 0.5,
        step_size: Any = "auto",
        epochs: int = 50,
        burn_in: float = 0.2,
        networks_per_epoch: int = 1,
        batch_size: int = 100,
        num_chains: int = 1,
        logit_scale: float = 8.0,
        intercept: bool = True,
        scaling: str = "feature",
        validation: float = 0.1,
        progress: Any = True,
        random_state: int | None = 0,
    ):
        self.hidden = hidden
        self.activation = activation
        self.transforms = transforms
        self.kernel = kernel
        self.prior = prior
        self.step_size = step_size
        self.epochs = epochs
        self.burn_in = burn_in
        self.networks_per_epoch = networks_per_epoch
        self.batch_size = batch_size
        self.num_chains = num_chains
        self.logit_scale = logit_scale
        self.intercept = intercept
        self.scaling = scaling
        self.validation = validation
        self.progress = progress
        self.random_state = random_state

    # -- scikit-learn's conventions --------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        """Asked for by scikit-learn alone, so it is there when this runs."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(),
        )

    def fit(self, X: Any, y: Any) -> BinaryNetwork:
        """Sample binary networks for rows `X` (rows, features) and labels `y` (rows,); returns self.

        Args:
            X: one row per datum.
            y: labels, numbers or texts.

        Returns:
            The model itself.
        """
        self._check_parameters()
        self._learn_names(X)
        X = _check_rows(X)
        classes, labels = _encode(y, len(X))
        self.classes_, self.n_features_in_ = classes, X.shape[1]
        center, scale = _scaling(X, self.scaling)
        x = ((X - center) / scale).astype(np.float32)
        seed = self._seed()
        train, held_out = _hold_out(len(x), self.validation, seed)

        network = Network(
            (x.shape[1], *map(int, self.hidden), len(classes)),
            self.activation,
            float(self.logit_scale),
            INTERCEPTS if self.intercept else (),
        )
        posterior = network_posterior(network, x[train], labels[train], self.prior)
        batch_size = min(int(self.batch_size), len(train))
        epoch_steps = max(LEAST_STEPS, steps_per_epoch(len(train), batch_size))
        thin = -(-epoch_steps // self.networks_per_epoch)
        draws = self.epochs * self.networks_per_epoch
        burn_in = min(round(self.burn_in * draws), draws - 1)
        collect: dict[str, Any] = {"signs": PackedSigns(draws, network.num_weights)}
        if len(held_out):
            data = jnp.asarray(x[held_out]), jnp.asarray(labels[held_out])
            collect["curve"] = Curve(network, *data, draws, burn_in)
        reporter = _Reporter(self.progress, self.epochs, self.networks_per_epoch * thin, self.networks_per_epoch)
        run = sample(
            self._kernel(posterior),
            self._step_size(len(train)),
            draws * thin,
            thin=thin,
            batch_size=batch_size,
            num_chains=self.num_chains,
            seed=seed,
            init=network.start,
            collect=collect,
            progress=False,
            monitor=reporter if reporter.wanted else None,
        )
        bits = run.collected["signs"][:, burn_in:]
        self.networks_ = PackedNetworks(
            bits=np.concatenate(list(bits)),
            layers=network.layers,
            activation=network.activation,
            logit_scale=network.logit_scale,
            intercepts=network.intercepts,
            center=center,
            scale=scale,
            classes=classes,
        )
        self.history_ = _history(run.collected.get("curve"), self.networks_per_epoch)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, (rows, classes): the mean over the networks.

        Args:
            X: one row per datum.

        Returns:
            Probabilities, classes in the order of `classes_`.

        Raises:
            ValueError: X has another number of features than in `fit`.
        """
        self._check_fitted()
        self._check_names(X)
        X = _check_rows(X, least=1)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but BinaryNetwork is expecting {self.n_features_in_} features as input."
            )
        return self.networks_.predict_proba(X)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row.

        Args:
            X: one row per datum.

        Returns:
            Labels.
        """
        probabilities = self.predict_proba(X)
        result: np.ndarray = self.classes_[np.argmax(probabilities, axis=1)]
        return result

    def score(self, X: Any, y: Any) -> float:
        """Share of rows whose label is predicted.

        Args:
            X: one row per datum.
            y: the labels.

        Returns:
            A number from 0 to 1.
        """
        return float(np.mean(self.predict(X) == np.asarray(y).reshape(-1)))

    # -- what is sampled, and on disk ------------------------------------------------------------------------------

    def weights(self) -> np.ndarray:
        """The binary networks as packed bits, (networks, bytes); `networks_.weights(i)` unpacks one."""
        self._check_fitted()
        return self.networks_.bits

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the networks in the one-bit format of `docs/binary-networks.md`, which NumPy alone can read.

        Args:
            path: the file; one that is there is replaced.

        Returns:
            The file's path.
        """
        self._check_fitted()
        return self.networks_.write(path)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model, parameters and history included, as an npz file without pickle.

        Args:
            path: the file; one that is there is replaced.

        Returns:
            The file's path.
        """
        self._check_fitted()
        networks = self.networks_
        header = {
            "layers": networks.layers,
            "activation": networks.activation,
            "logit_scale": networks.logit_scale,
            "intercepts": networks.intercepts,
        }
        arrays = {
            "bits": networks.bits,
            "center": networks.center,
            "scale": networks.scale,
            "classes": networks.classes,
        }
        arrays |= {f"history_{name}": values for name, values in self.history_.items()}
        return self._write(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BinaryNetwork:
        """Read a model that `save` wrote. Nothing in the file is executed.

        Args:
            path: the file.

        Returns:
            The model, ready to be used.
        """
        with cls._read(path) as (model, header, arrays):
            networks = PackedNetworks(
                bits=arrays["bits"],
                layers=tuple(header["layers"]),
                activation=header["activation"],
                logit_scale=header["logit_scale"],
                intercepts=tuple(header["intercepts"]),
                center=arrays["center"],
                scale=arrays["scale"],
                classes=arrays["classes"],
            )
            networks.check()
        model.networks_ = networks
        model.classes_ = model.networks_.classes
        model.n_features_in_ = model.networks_.layers[0]
        model.history_ = {k.removeprefix("history_"): v for k, v in arrays.items() if k.startswith("history_")}
        return model

    # -- parts of fit ----------------------------------------------------------------------------------------------

    def _kernel(self, posterior: Posterior) -> Kernel:
        if callable(self.kernel):
            return self.kernel(posterior)
        factory = KERNELS[self.kernel]
        result: Kernel = factory(posterior) if self.kernel == "mirror" else factory(posterior, self.transforms)
        return result

    def _step_size(self, rows: int) -> Any:
        if self.step_size != "auto":
            return self.step_size
        if callable(self.kernel):
            raise ValueError(
                'step_size="auto" goes with the kernels by name; with a function of your own give a number.'
            )
        return auto_step_size(self.kernel, rows)

    def _check_parameters(self) -> None:
        if isinstance(self.hidden, int) or not all(is_whole(width) and width >= 1 for width in self.hidden):
            raise ValueError(
                f"`hidden` must hold positive whole numbers, such as (50,) or (100, 50); got {self.hidden!r}."
            )
        for name, known in (("activation", ACTIVATIONS), ("scaling", ("feature", "global", "none"))):
            if getattr(self, name) not in known:
                raise ValueError(f"Unknown {name} {getattr(self, name)!r}. Known: {', '.join(known)}.")
        if not callable(self.kernel) and self.kernel not in KERNELS:
            raise ValueError(
                f"Unknown kernel {self.kernel!r}. Known: {', '.join(KERNELS)}; or a function of a posterior."
            )
        for name in ("epochs", "networks_per_epoch", "batch_size", "num_chains"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise ValueError(f"`{name}` must be a positive whole number; got {value!r}.")
        for name in ("prior", "logit_scale"):
            value = getattr(self, name)
            if not (isinstance(value, int | float | np.number) and math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` must be a positive number; got {value!r}.")
        for name in ("burn_in", "validation"):
            value = getattr(self, name)
            if not (isinstance(value, int | float | np.number) and 0 <= value < 1):
                raise ValueError(f"`{name}` is a share, at least 0 and below 1; got {value!r}.")
        if isinstance(self.step_size, str) and self.step_size != "auto":
            raise ValueError(
                f'`step_size` must be a number, a function of the step, or "auto"; got {self.step_size!r}.'
            )


AUTO_STEP = {
    "baoab": (100.0, 1.5, 0.05),
    "leimkuhler_matthews": (0.5, 0.5, 0.1),
    "sgld": (0.5, 0.5, 0.1),
    "mirror": (0.1, 0.5, 0.01),
}  # factor, power, most


def auto_step_size(kernel: str, rows: int) -> float:
    """The step size that `step_size="auto"` takes: a power of the number of rows.

    Fitted to the best step sizes on data of 124 to 56,000 rows with minibatches of 100. The gradient's noise grows with the
    rows that a minibatch stands for; momentum adds it up, hence the larger power.
    """
    factor, power, most = AUTO_STEP[kernel]
    result: float = min(factor / rows**power, most)
    return result


class _Reporter:
    """Prints a line an epoch, or hands it on; called by the driver between chunks."""

    def __init__(self, progress: Any, epochs: int, epoch_steps: int, per_epoch: int):
        self.call = progress if callable(progress) else None
        self.epochs = epochs
        self.epoch_steps = epoch_steps
        self.per_epoch = per_epoch
        self.told = 0
        self.wanted = self.call is not None or (bool(progress) and is_interactive())

    def __call__(self, done: int, collected: Any) -> None:
        curve = collected.get("curve")
        for epoch in range(self.told + 1, done // self.epoch_steps + 1):
            row: dict[str, Any] = {"epoch": epoch, "epochs": self.epochs}
            if curve is not None:
                row |= {
                    name: float(values[-1]) for name, values in _history(curve[:, : epoch * self.per_epoch], 1).items()
                }
            self._tell(row)
            self.told = epoch

    def _tell(self, row: dict[str, Any]) -> None:
        if self.call is not None:
            self.call(row)
            return
        text = f"epoch {row['epoch']}/{row['epochs']}"
        if "loss" in row:
            text += f"  validation loss {row['loss']:.4f}, accuracy {row['accuracy']:.4f}"
        print(text, flush=True)


def _history(curve: np.ndarray | None, per_epoch: int) -> dict[str, np.ndarray]:
    """The curve at the end of each epoch, mean over the chains."""
    if curve is None:
        return {}
    values = np.mean(curve, axis=0)[per_epoch - 1 :: per_epoch]
    return dict(zip(("loss", "accuracy", "single_loss", "single_accuracy"), values.T, strict=True))


def _check_rows(X: Any, least: int = 2) -> np.ndarray:
    """X as a finite float32 matrix, or an error that says what is wrong with it."""
    if hasattr(X, "toarray"):
        raise TypeError("Sparse data was passed, but dense data is required. Use X.toarray() to convert it.")
    X = np.asarray(X)
    if X.dtype == object:
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"X must be numeric; argument must be a string or a number at each place ({error})."
            ) from error
    if X.dtype.kind not in "buif":
        raise ValueError(f"X must be real numbers; got dtype {X.dtype}. Complex data not supported; encode categories.")
    if X.ndim != 2:
        raise ValueError(
            f"X must have shape (rows, features); got {X.shape}. Reshape your data: X.reshape(len(X), -1) flattens images."
        )
    if X.shape[1] == 0:
        raise ValueError(f"0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if len(X) < least:
        raise ValueError(f"X has {len(X)} sample(s) (shape={X.shape}) while a minimum of {least} is required.")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
        raise ValueError(
            f"X contains NaN or infinity in {bad.size:,} rows, the first of them row {bad[0]:,}. Impute or drop them."
        )
    return np.asarray(X)


def _encode(y: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(sorted labels, their numbers)."""
    if y is None:
        raise ValueError("BinaryNetwork requires y to be passed, but the target y is None: give the label of each row.")
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected: {y.shape}. Change it to shape (rows,), by y.ravel() for one.",
            scikit_learns("DataConversionWarning", UserWarning),
            stacklevel=3,
        )
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y must have shape (rows,); got {y.shape}.")
    if len(y) != rows:
        raise ValueError(
            f"X has {rows:,} rows and y {len(y):,} labels: found input variables with inconsistent numbers of samples."
        )
    if y.dtype == object:
        if len({isinstance(label, str) for label in y}) > 1 or np.asarray(y.tolist()).dtype.kind not in "biufU":
            raise ValueError("Unknown label type: labels must be numbers or texts, all of one kind.")
        y = np.asarray(y.tolist())
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            raise ValueError("y contains NaN or infinity.")
        if np.any(y != np.round(y)):
            raise ValueError("Unknown label type: y is continuous. BinaryNetwork is a classifier; give class labels.")
    classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y holds 1 class, {classes[0]!r}: the number of classes has to be greater than one.")
    return classes, numbers.astype(np.int32)


def _scaling(X: np.ndarray, scaling: str) -> tuple[np.ndarray, np.ndarray]:
    """(center, scale) in float32; features that never change keep the scale 1."""
    if scaling == "none":
        return np.zeros(1, np.float32), np.ones(1, np.float32)
    axis = 0 if scaling == "feature" else None
    center = np.atleast_1d(X.mean(axis=axis, dtype=np.float64))
    sd = np.atleast_1d(X.std(axis=axis, dtype=np.float64))
    scale = np.where(sd > 1e-7 * np.maximum(np.abs(center), 1e-30), sd, 1.0)
    return center.astype(np.float32), scale.astype(np.float32)


def _hold_out(rows: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to fit on, at least one, and to watch; none are held out of fewer than 20 rows."""
    count = min(round(share * rows), rows - 1) if rows >= 20 else 0
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count])
