"""How much longer a step of logistic regression is in a dense metric: whole calls, in turns, by the clock and by processor time.

Processor time is what counts where others use the machine, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import inbounds as ib
from experiments.timing import interleaved

ROWS, BATCH_SIZE = 20_000, 1_000
SIZES = {50: 20_000, 1_000: 1_000}  # dimensions, steps of a call
ROUNDS = 25


def _posterior(size: int) -> ib.Posterior:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, size)).astype(np.float32)
    y = (rng.random(ROWS) < 0.5).astype(np.float32)

    def log_likelihood(theta: Any, batch: Any) -> jax.Array:
        logit = batch["x"] @ theta["w"]
        return batch["y"] * logit - jnp.maximum(logit, 0) - jnp.log1p(jnp.exp(-jnp.abs(logit)))

    prior = dist.Normal(0.0, 1.0).expand([size]).to_event(1)
    return ib.Posterior({"w": prior}, log_likelihood, {"x": x, "y": y})


def _call(kernel: ib.Kernel, step_size: float, num_steps: int, start: Any, spent: list[float]) -> None:
    began = time.process_time()
    ib.sample(
        kernel, step_size, num_steps, thin=100, batch_size=BATCH_SIZE, init=start, progress=False, on_failure="continue"
    )
    spent.append(time.process_time() - began)


def table() -> Iterator[dict[str, Any]]:
    """One row per kernel and dimension: microseconds of a step without and with a metric, and the medians of the ratios of the rounds."""
    for size, num_steps in SIZES.items():
        posterior, start = _posterior(size), {"w": np.zeros(size, np.float32)}
        # A factor with all its numbers, as a metric of data has: how it was found is not what is timed.
        rng = np.random.default_rng(1)
        factor = np.linalg.qr(rng.normal(size=(size, size)))[0] / np.sqrt(ROWS / 4)
        metric = ib.metrics.Dense(start, factor, np.linalg.inv(factor))
        for name, make in (("sgld", ib.sgld), ("leimkuhler_matthews", ib.leimkuhler_matthews)):
            kernels = {"without": (make(posterior), 0.1 / ROWS), "dense": (make(posterior, metric=metric), 0.01)}
            spent: dict[str, list[float]] = {which: [] for which in kernels}
            seconds = interleaved(
                {which: partial(_call, *given, num_steps, start, spent[which]) for which, given in kernels.items()},
                ROUNDS,
            )
            of_processor = {which: np.asarray(found[1:]) for which, found in spent.items()}
            yield {
                "kernel": name,
                "dimensions": size,
                "microseconds": _micro(seconds, num_steps),
                "ratio": float(np.median(seconds["dense"] / seconds["without"])),
                "of_processor": _micro(of_processor, num_steps),
                "ratio_of_processor": float(np.median(of_processor["dense"] / of_processor["without"])),
            }


def _micro(seconds: dict[str, np.ndarray], num_steps: int) -> dict[str, float]:
    return {which: float(np.median(found) / num_steps * 1e6) for which, found in seconds.items()}
