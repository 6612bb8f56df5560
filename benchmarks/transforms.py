"""What a transform costs: one evaluation, and the whole piece of the drift, relative to Softplus.

    python -m benchmarks.transforms --size 1000000 --repeats 60 --out transforms.json

Repeats are interleaved (every transform once, then all of them again), so that a slow moment of the machine hits all
alike; medians are reported.
"""

import argparse
import json
import platform
import statistics
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from experiments.timing import interleaved
from inbounds import transforms


def evaluation(transform):
    return jax.jit(lambda phi, gradient: transform(phi))


def drift_piece(transform):
    """What every step computes: theta to be recorded, the point of evaluation, and the pulled-back gradient."""

    def piece(phi, gradient):
        theta_eval = transform.evaluation_point(phi)
        return transform(phi), transform.pull_back(phi, theta_eval, gradient)

    return jax.jit(piece)


def measure(size, repeats):
    """Median seconds by transform name: {name: {"theta": s, "drift": s}}."""
    rng = np.random.default_rng(0)
    arguments = [jnp.asarray(rng.normal(scale=3.0, size=size), jnp.float32) for _ in range(2)]
    supports = (constraints.positive, constraints.unit_interval)
    chosen = [transforms.onto(support, name) for support in supports for name in transforms.available(support)]
    functions = {}
    for transform in chosen:
        functions[transform.name, "theta"] = evaluation(transform)
        functions[transform.name, "drift"] = drift_piece(transform)

    def run(function):
        jax.block_until_ready(function(*arguments))

    times = interleaved({key: partial(run, function) for key, function in functions.items()}, repeats)
    return {name: {part: statistics.median(times[name, part]) for part in ("theta", "drift")} for name, _ in functions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--out", help="write the numbers to this JSON file")
    options = parser.parse_args()
    medians = measure(options.size, options.repeats)
    device = jax.devices()[0]
    print(f"{options.size:,} float32 on {device.device_kind} ({platform.machine()}), medians of {options.repeats}")
    print(f"{'transform':<20}{'theta ms':>10}{'ratio':>8}{'drift ms':>10}{'ratio':>8}")
    base = medians["softplus"]
    for name, cost in medians.items():
        cells = (f"{1e3 * cost[part]:>10.3f}{cost[part] / base[part]:>8.2f}" for part in ("theta", "drift"))
        print(f"{name:<20}{''.join(cells)}")
    if options.out:
        ratios = {name: {part: cost[part] / base[part] for part in cost} for name, cost in medians.items()}
        record = {"size": options.size, "device": device.device_kind, "jax": jax.__version__}
        with open(options.out, "w") as file:
            json.dump(record | {"seconds": medians, "relative_to_softplus": ratios}, file, indent=2)


if __name__ == "__main__":
    main()
