"""What the variance of the gradient costs: a step with its estimate against a step without, side by side.

    python -m benchmarks.gradients [--out results.json]

Both run through `ib.sample` with noise correction, once with the variance known and once estimated, interleaved; the table shows
medians and the ratio. Sizes are those of the throughput benchmarks.
"""

import argparse
import json
import statistics
from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import inbounds as ib
from experiments.timing import interleaved


def logistic_regression(rows=100_000, columns=50):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    y = (generator.uniform(size=rows) < 1 / (1 + np.exp(-x @ generator.normal(size=columns) / 4))).astype(np.float32)

    def log_likelihood(theta, batch):
        logits = batch["x"] @ theta["w"]
        return batch["y"] * logits - jnp.logaddexp(logits, 0.0)

    return ib.Posterior({"w": dist.Normal(0.0, 1.0).expand([columns])}, log_likelihood, {"x": x, "y": y}), 1_000, 3e-6


def positive_rates(rows=100_000, columns=1_000):
    generator = np.random.default_rng(0)
    index = generator.integers(0, columns, rows).astype(np.int32)
    counts = generator.poisson(3.0, rows).astype(np.float32)

    def log_likelihood(theta, batch):
        rate = theta["rate"][batch["index"]]
        return batch["count"] * jnp.log(rate) - rate

    prior = {"rate": dist.Gamma(1.0, 1.0).expand([columns])}
    return ib.Posterior(prior, log_likelihood, {"index": index, "count": counts}), 1_000, 1e-5


MODELS = {"logistic regression, 50 weights": logistic_regression, "Poisson, 1,000 positive rates": positive_rates}


def measure(repeats: int, num_steps: int) -> list[dict]:
    rows = []
    for name, model in MODELS.items():
        posterior, batch_size, step_size = model()
        kernels = {
            "known": ib.leimkuhler_matthews(posterior, noise_correction=1.0),
            "halves": ib.leimkuhler_matthews(posterior, noise_correction=True),
        }

        def run(kernel: ib.Kernel, step_size: float = step_size, batch_size: int = batch_size) -> None:
            ib.sample(kernel, step_size, num_steps, thin=100, batch_size=batch_size, progress=False)

        seconds = interleaved({kind: partial(run, kernel) for kind, kernel in kernels.items()}, repeats)
        micro = {kind: 1e6 * statistics.median(values) / num_steps for kind, values in seconds.items()}
        rows.append({"model": name, **micro, "ratio": micro["halves"] / micro["known"]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3_000)
    arguments = parser.parse_args()
    rows = measure(arguments.repeats, arguments.steps)
    print(f"{'model':34}{'known, us/step':>16}{'estimated':>12}{'ratio':>8}")
    for row in rows:
        print(f"{row['model']:34}{row['known']:16.1f}{row['halves']:12.1f}{row['ratio']:8.2f}")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
