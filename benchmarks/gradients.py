"""What the variance of the gradient costs: a step with its estimate against a step without, side by side.

    python -m benchmarks.gradients [--out results.json]

Both run through `ib.sample` with noise correction, once with the variance known and once estimated, interleaved; the table shows
medians of microseconds per step and of the ratios. Sizes are those of the throughput benchmarks.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import inbounds as ib
from benchmarks import side_by_side


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


def measure(steps: int, repeats: int) -> list[side_by_side.Row]:
    rows = []
    for name, model in MODELS.items():
        posterior, batch_size, step_size = model()
        corrections = {"estimated": True, "known": 1.0}

        def run(kernel: ib.Kernel, step_size: float = step_size, batch_size: int = batch_size) -> None:
            ib.sample(kernel, step_size, steps, thin=100, batch_size=batch_size, progress=False)

        runs = {
            kind: partial(run, ib.leimkuhler_matthews(posterior, noise_correction=correction))
            for kind, correction in corrections.items()
        }
        rows.append(side_by_side.row(name, runs, steps, repeats))
    return rows


if __name__ == "__main__":
    side_by_side.main(__doc__ or "", measure, steps=3_000, repeats=7)
