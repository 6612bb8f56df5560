"""What every contestant samples: data, start, step size, kept draws, and a cheap check that the draws are right.

NumPy alone: environments with other libraries, or other versions of JAX, read it too. `densities.py` has the models in JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: on the command line and in file names.
        title: in the table.
        model: the name of its statement in `densities.py`.
        make_data: arrays whose leading axis is that of the rows; empty for a target without data.
        make_start: theta at step 0, the same for all chains.
        step_size: multiplies the gradient of the log density of phi; the noise is sqrt(2 step_size).
        steps: in one run of a fast contestant.
        fewest_steps: of a slow one, enough for the check.
        thin: every so-manyth draw is kept.
        check: from theta's kept draws (leading axes chain, draw) and the data to what went wrong; "" if nothing did.
    """

    name: str
    title: str
    model: str
    make_data: Callable[[], Arrays]
    make_start: Callable[[], Arrays]
    step_size: float
    steps: int
    fewest_steps: int
    thin: int
    check: Callable[[Arrays, Arrays], str]
    batch_size: int | None = None
    num_chains: int = 1

    @property
    def bounded(self) -> bool:
        return self.model in ("gamma", "beta", "rates")


# Logistic regression: 100,000 rows, 50 standard normal weights.

REGRESSION_ROWS, WEIGHTS = 100_000, 50


def true_weights() -> np.ndarray:
    return (np.random.default_rng(1).standard_normal(WEIGHTS) / 4).astype(np.float32)


def regression_data() -> Arrays:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((REGRESSION_ROWS, WEIGHTS), np.float32)
    chance = 1 / (1 + np.exp(-x @ true_weights()))
    return {"x": x, "y": (generator.random(REGRESSION_ROWS, np.float32) < chance).astype(np.float32)}


def check_regression(theta: Arrays, data: Arrays) -> str:
    late = theta["w"][:, theta["w"].shape[1] // 2 :]
    error = np.sqrt(np.mean((late.mean((0, 1)) - true_weights()) ** 2))
    return "" if error < 0.03 else f"the mean of the weights is {error:.3f} from the truth; the posterior has sd 0.008"


# A network 784-50-10 on data of MNIST's shape, labelled by another network; standard normal priors.

IMAGES, LAYERS = 60_000, (784, 50, 10)


def network(seed: int) -> Arrays:
    generator = np.random.default_rng(seed)
    inputs, hidden, outputs = LAYERS
    return {
        "w1": generator.standard_normal((inputs, hidden), np.float32) / np.float32(np.sqrt(inputs)),
        "b1": np.zeros(hidden, np.float32),
        "w2": generator.standard_normal((hidden, outputs), np.float32) / np.float32(np.sqrt(hidden)),
        "b2": np.zeros(outputs, np.float32),
    }


def logits(w: Arrays, x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"]


def image_data() -> Arrays:
    x = np.random.default_rng(0).random((IMAGES, LAYERS[0]), np.float32)
    scores = logits(network(1), x - 0.5)
    return {"x": x, "y": np.argmax(scores - scores.mean(0), axis=1).astype(np.int32)}


def check_network(theta: Arrays, data: Arrays) -> str:
    x, y = data["x"][:2_000], data["y"][:2_000]

    def loss(w: Arrays) -> float:
        scores = logits(w, x)
        scores = scores - scores.max(1, keepdims=True)
        return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))

    first, last = loss(network(2)), loss({name: leaf[0, -1] for name, leaf in theta.items()})
    return "" if last < 0.95 * first else f"the loss went from {first:.3f} to {last:.3f}"


# 10,000 positive rates with Gamma(1/2, 1/10) priors, ten Poisson counts for each: conjugate, so that the answer is known.

RATES, COUNTS, SHAPE, RATE = 10_000, 100_000, 0.5, 0.1


def count_data() -> Arrays:
    generator = np.random.default_rng(0)
    truth = generator.exponential(3.0, RATES)
    index = generator.permutation(np.arange(COUNTS, dtype=np.int32) % RATES)
    return {"index": index, "count": generator.poisson(truth[index]).astype(np.float32)}


def check_rates(theta: Arrays, data: Arrays) -> str:
    rate = theta["rate"]
    if not (rate > 0).all():
        return "some rates are not positive"
    sums = np.bincount(data["index"], data["count"], RATES)
    exact = (SHAPE + sums) / (RATE + np.bincount(data["index"], minlength=RATES))
    late = rate[:, rate.shape[1] // 2 :].mean((0, 1))
    error, first = (np.sqrt(np.mean((guess - exact) ** 2)) for guess in (late, 3.0))
    return "" if error < 0.95 * first else f"the rates are {error:.2f} from the exact means; the start was {first:.2f}"


# The paper's one-dimensional targets, without data.


def check_mean(exact: float) -> Callable[[Arrays, Arrays], str]:
    def check(theta: Arrays, data: Arrays) -> str:
        mean = float(theta["x"].mean())
        return "" if abs(mean - exact) < 0.2 * exact else f"the mean of the draws is {mean:.3f}, not {exact}"

    return check


def regression(num_chains: int, steps: int) -> Row:
    chains = "1 chain" if num_chains == 1 else f"{num_chains} chains"
    return Row(
        f"logistic-{num_chains}",
        f"logistic regression, N = 100,000, d = 50, batch 1,000, {chains}",
        "logistic",
        regression_data,
        lambda: {"w": np.zeros(WEIGHTS, np.float32)},
        step_size=1e-6,
        steps=steps,
        fewest_steps=400,
        thin=10,
        check=check_regression,
        batch_size=1_000,
        num_chains=num_chains,
    )


def images(batch_size: int, steps: int) -> Row:
    return Row(
        f"mlp-{batch_size}",
        f"network 784-50-10, N = 60,000, batch {batch_size}",
        "mlp",
        image_data,
        lambda: network(2),
        step_size=1e-6,
        steps=steps,
        fewest_steps=200,
        thin=50,
        check=check_network,
        batch_size=batch_size,
    )


def target(name: str, title: str, start: float, mean: float) -> Row:
    return Row(
        name,
        f"{title}, 100,000 steps",
        name,
        dict,
        lambda: {"x": np.float32(start)},
        step_size=0.1,
        steps=100_000,
        fewest_steps=2_000,
        thin=1,
        check=check_mean(mean),
    )


ROWS = {
    row.name: row
    for row in (
        regression(num_chains=1, steps=20_000),
        regression(num_chains=8, steps=5_000),
        images(batch_size=100, steps=2_000),
        images(batch_size=500, steps=1_000),
        Row(
            "rates",
            "10,000 positive rates, N = 100,000 counts, batch 1,000",
            "rates",
            count_data,
            lambda: {"rate": np.full(RATES, 3.0, np.float32)},
            step_size=5e-4,
            steps=5_000,
            fewest_steps=500,
            thin=50,
            check=check_rates,
            batch_size=1_000,
        ),
        target("gamma", "Gamma(1/2, rate 2)", 0.3, 0.25),
        target("beta", "Beta(1/2, 1/2)", 0.5, 0.5),
    )
}
