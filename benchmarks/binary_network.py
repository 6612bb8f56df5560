"""What the library costs on a binary network: epochs of MNIST's shape through `ib.sample`, against a JAX loop by hand.

    python -m benchmarks.binary_network --epochs 3 --repeats 7 --out binary_network.json

The loop by hand does the same arithmetic: a shuffle, contiguous minibatches of 100 rows of 56,000, the gradient of the log
posterior of a 784-50-10 network through the sigmoid, fresh normal noise for every weight, whole epochs in one compiled scan.
Repeats are interleaved, so that a slow moment of the machine hits both alike; medians are reported. Data are random: the cost
does not depend on their values.
"""

import argparse
import itertools
import json
import math
import platform
import statistics
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from experiments.timing import interleaved
from inbounds.models import Network, network_posterior

ROWS, LAYERS, BATCH, STEP, PRIOR, SCALE = 56_000, (784, 50, 10), 100, 1e-3, 0.5, 10.0


def make_data(rows):
    rng = np.random.default_rng(0)
    return rng.random((rows, LAYERS[0]), np.float32), rng.integers(0, LAYERS[-1], rows).astype(np.int32)


def through_the_library(x, y, epochs):
    network = Network(LAYERS, logit_scale=SCALE)
    kernel = ib.sgld(network_posterior(network, x, y, PRIOR), "sigmoid")
    steps = len(y) // BATCH

    def run(seed):
        return ib.sample(
            kernel, STEP, epochs * steps, thin=steps, batch_size=BATCH, seed=seed, init=network.start, progress=False
        ).state.phi

    return run


def by_hand(x, y, epochs):
    x, y, rows, steps = jnp.asarray(x), jnp.asarray(y), len(y), len(y) // BATCH
    first, second = (LAYERS[0], LAYERS[1]), (LAYERS[1], LAYERS[2])
    size = math.prod(first) + math.prod(second)

    def log_density(phi, rows_x, rows_y):
        weights = 2 * jax.nn.sigmoid(phi) - 1
        w1 = weights[: math.prod(first)].reshape(first)
        w2 = weights[math.prod(first) :].reshape(second)
        hidden = jax.nn.relu(rows_x @ w1 / math.sqrt(first[0]))
        log_p = jax.nn.log_softmax(hidden @ w2 * (SCALE / math.sqrt(second[0])))
        likelihood = rows / BATCH * jnp.sum(jnp.take_along_axis(log_p, rows_y[:, None], axis=1))
        # Prior and Jacobian together: log p(w) + log f' = PRIOR (log u + log(1 - u)) for beta(PRIOR, PRIOR).
        return likelihood + PRIOR * jnp.sum(jax.nn.log_sigmoid(phi) + jax.nn.log_sigmoid(-phi))

    gradient = jax.grad(log_density)

    @partial(jax.jit, static_argnums=3)
    def epochs_of_steps(key, shuffled_x, shuffled_y, count):
        def step(phi, number):
            start = number % steps * BATCH
            batch = (jax.lax.dynamic_slice_in_dim(a, start, BATCH) for a in (shuffled_x, shuffled_y))
            noise = jax.random.normal(jax.random.fold_in(key, number), (size,))
            return phi + STEP * gradient(phi, *batch) + math.sqrt(2 * STEP) * noise, None

        return jax.lax.scan(step, jnp.zeros(size), jnp.arange(count * steps))[0]

    def run(seed):
        order_key, key = jax.random.split(jax.random.key(seed))
        order = jax.random.permutation(order_key, rows)
        return epochs_of_steps(key, x[order], y[order], epochs)

    return run


def measure(rows, epochs, repeats):
    """Median seconds per epoch of each, and their ratio."""
    data = make_data(rows)
    runs = {"library": through_the_library(*data, epochs), "by hand": by_hand(*data, epochs)}

    def once(run, seeds):
        jax.block_until_ready(run(next(seeds)))

    found = interleaved({name: partial(once, run, itertools.count()) for name, run in runs.items()}, repeats)
    times = {name: list(seconds / epochs) for name, seconds in found.items()}
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = [a / b for a, b in zip(times["library"], times["by hand"], strict=True)]
    return {"seconds_per_epoch": medians, "ratio": statistics.median(ratios), "times": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--epochs", type=int, default=3, help="in one call")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", help="write the numbers as JSON")
    options = parser.parse_args()
    found = measure(options.rows, options.epochs, options.repeats)
    print(f"{'':<12}{'s/epoch':>10}{'steps/s':>12}")
    for name, seconds in found["seconds_per_epoch"].items():
        print(f"{name:<12}{seconds:>10.3f}{options.rows // BATCH / seconds:>12,.0f}")
    print(f"ratio       {found['ratio']:>10.3f}")
    if options.out:
        found |= {"rows": options.rows, "epochs": options.epochs, "batch_size": BATCH, "layers": LAYERS}
        found |= {"jax": jax.__version__, "device": jax.devices()[0].device_kind, "machine": platform.machine()}
        with open(options.out, "w", encoding="utf-8") as stream:
            json.dump(found, stream, indent=1)


if __name__ == "__main__":
    main()
