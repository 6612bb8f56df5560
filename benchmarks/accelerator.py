"""A step on an accelerator against the least time in which its memory can be moved, and where the rest of it goes.

    python -m benchmarks.accelerator [--small] [--out benchmarks/results/accelerator.json]

Three models that fill it: the factorisation of ratings of MovieLens 10M's shape (generated; minibatches of 10,000), the binary network
784-50-10 (minibatches of 100 of 60,000 rows), and 10^7 bare parameters; and some that do not: ratings of MovieLens 1M's shape, logistic
regression with 50 coefficients (minibatches of 1,000 of 100,000 rows), one positive number, 10^4 and 10^5 of them. Time a step is the
slope between a short and a long run through `ib.sample`, so that starts and results do not count. The *floor* is the time in which the
state can be read and written once and the minibatch read once, at the bandwidth that `y = x + 1` over a large array reaches in the same
run. *Busy* is the time in which kernels ran, from JAX's profiler; what is missing to the time of a step are the gaps between them. Needs
the core of the library alone.
"""

import argparse
import collections
import gzip
import json
import platform
import re
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
from bounds import STEP_SIZE, bare, copy_bandwidth
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.data import MOVIELENS_SHAPES, generate_ratings
from inbounds.models import FactorModel, Network, network_posterior


def ratings_rows(shape, ranks):
    """(name, kernel, start, batch size, bytes of a minibatch, chains)."""
    ratings = generate_ratings(seed=0, **MOVIELENS_SHAPES[shape])
    for rank in ranks:
        model = FactorModel.of(ratings, rank)
        posterior = model.posterior(ratings)
        kernels = {
            "mirrored SGLD": (ib.baselines.mirror(posterior), 1),
            "softplus": (ib.sgld(posterior, "softplus"), 1),
            "ICLL": (ib.sgld(posterior, "icll"), 1),
            "Leimkuhler-Matthews": (ib.leimkuhler_matthews(posterior, "softplus"), 1),
            "softplus, 8 chains": (ib.sgld(posterior, "softplus"), 8),
        }
        for name, (kernel, chains) in kernels.items():
            yield f"ratings {shape.upper()}, rank {rank}: {name}", kernel, model.start, 10_000, 12 * 10_000, chains


def network_rows(rows, chain_counts):
    generator = np.random.default_rng(0)
    network = Network((784, 50, 10))
    x, y = generator.normal(size=(rows, 784)).astype(np.float32), generator.integers(0, 10, rows)
    kernel = ib.sgld(network_posterior(network, x, y), "probit")
    for chains in chain_counts:
        yield (
            f"binary network: probit, {chains} chain{'s' * (chains > 1)}",
            kernel,
            network.start,
            100,
            100 * 788,
            chains,
        )


def bare_rows(size):
    def posterior(support):
        return ib.Posterior(supports={"w": support}, **bare(size)[0])

    real, positive = posterior(constraints.real), posterior(constraints.positive)
    start = {"w": np.full(size, 0.5, np.float32)}
    kernels = {
        "no bounds": ib.sgld(real),
        "softplus": ib.sgld(positive, "softplus"),
        "ICLL": ib.sgld(positive, "icll"),
        "Leimkuhler-Matthews": ib.leimkuhler_matthews(positive, "softplus"),
    }
    for name, kernel in kernels.items():
        yield f"{size:,} bare parameters: {name}", kernel, start, None, 0, 1


def small_rows(rows):
    """Models whose step is a handful of short kernels."""
    generator = np.random.default_rng(0)
    data = {"x": generator.normal(size=(rows, 50)).astype(np.float32), "sign": generator.choice([-1.0, 1.0], rows)}

    def log_likelihood(theta, batch):
        return jax.nn.log_sigmoid(batch["sign"] * (batch["x"] @ theta["w"]))

    regression = ib.sgld(ib.Posterior({"w": dist.Normal(0.0, 1.0).expand([50])}, log_likelihood, data))
    for chains in (1, 8):
        name = f"logistic regression, 50 coefficients: {chains} chain{'s' * (chains > 1)}"
        yield name, regression, {"w": np.zeros(50, np.float32)}, 1_000, 4 * 51 * 1_000, chains
    gamma = ib.sgld(ib.Posterior({"x": dist.Gamma(0.5, 2.0)}), "softplus")
    for chains in (1, 1_000):
        name = f"Gamma(1/2, rate 2): softplus, {chains:,} chain{'s' * (chains > 1)}"
        yield name, gamma, {"x": np.float32(0.5)}, None, 0, chains
    for size in (10**4, 10**5):
        yield from (row for row in bare_rows(size) if row[0].endswith("softplus"))


def measure(name, kernel, start, batch_size, batch_bytes, chains, bandwidth, short, long, repeats=3):
    def run(steps):
        return ib.sample(
            kernel, STEP_SIZE, steps, thin=short, batch_size=batch_size, num_chains=chains, init=start, progress=False,
            collect=ib.collect.predictive_mean(_first),
        ).seconds  # fmt: skip

    run(long)  # compile
    times = {steps: min(run(steps) for _ in range(repeats)) for steps in (short, long)}
    microseconds = 1e6 * (times[long] - times[short]) / (long - short)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(_shapes(kernel, start)))
    floor = 1e6 * chains * (8 * numbers + batch_bytes) / bandwidth
    found = profile(lambda: run(short))
    busy = sum(found["microseconds"].values()) / short
    return {
        "name": name, "parameters": numbers, "chains": chains, "microseconds": microseconds, "floor_microseconds": floor,
        "of_the_floor": microseconds / floor, "busy_microseconds": busy, "kernels_a_step": found["count"] / short,
        "longest": {key: value / short for key, value in found["microseconds"].most_common(6)},
    }  # fmt: skip


def _shapes(kernel, start):
    if callable(start):
        start = jax.eval_shape(start, jax.random.key(0))
    return jax.eval_shape(lambda theta: kernel.proxy(kernel.init(theta)), start)


def _first(theta):
    return jax.tree.leaves(theta)[0].ravel()[0]


def profile(call):
    """Microseconds of each kernel on the device, and how many of them ran; nothing on a CPU, which has none."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call()
        files = list(Path(folder).rglob("*.trace.json.gz"))
        events = json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"] if files else []
    process = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    thread = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    times, count = collections.Counter(), 0
    for event in events:
        place = (event.get("pid"), event.get("tid"))
        if event.get("ph") == "X" and "GPU" in process.get(place[0], "") and "Stream" in thread.get(place, ""):
            times[event["name"]] += event["dur"]
            count += 1
    return {"microseconds": times, "count": count}


def show(row):
    print(
        f"{row['name']:52}{row['microseconds']:>9.1f} us{row['floor_microseconds']:>9.1f} us{row['of_the_floor']:>8.1f}"
        f"{row['busy_microseconds']:>9.1f} us{row['kernels_a_step']:>9.1f}   "
        + ", ".join(f"{name[:28]} {value:.1f}" for name, value in row["longest"].items()),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script out")
    parser.add_argument("--only", default="", help="rows whose name matches this pattern")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    bandwidth = copy_bandwidth()
    print(f"y = x + 1 moves {bandwidth / 1e9:,.0f} GB/s")
    print(f"{'':52}{'a step':>12}{'floor':>12}{'ratio':>8}{'busy':>12}{'kernels':>9}   the longest, us per step")
    if arguments.small:
        sources = (ratings_rows("100k", (4,)), network_rows(1_000, (1, 2)), bare_rows(10**5), small_rows(10_000))
    else:
        sources = (
            ratings_rows("10m", (20, 50)),
            ratings_rows("1m", (20,)),
            network_rows(60_000, (1, 10, 100)),
            bare_rows(10**7),
            small_rows(100_000),
        )
    short, long = (50, 250) if arguments.small else (1_000, 6_000)
    device, rows = jax.devices()[0], []
    for source in sources:
        for row in source:
            if not re.search(arguments.only, row[0]):
                continue
            rows.append(measure(*row, bandwidth, short, long))
            show(rows[-1])
            if arguments.out:  # after each, so that a run that is cut short leaves what it has
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                facts = {"device": device.device_kind, "machine": platform.machine(), "jax": jax.__version__}
                result = facts | {"copy_bytes_a_second": bandwidth, "date": time.strftime("%Y-%m-%d"), "rows": rows}
                arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
