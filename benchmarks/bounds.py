"""What staying in bounds costs: a step of CoRV, transform by transform, over a step of plain SGLD on the same model without bounds.

    python -m benchmarks.bounds [--sizes 10000 100000 1000000 10000000] [--rounds 7] [--out benchmarks/results/bounds.json]

Three models, at each number of parameters. In the *bare update* the gradient is that of a standard normal, one product a coordinate:
all that is left of a step is noise, transform and update. In the *regression* (as many outputs as inputs, one weight a pair, 1,024 rows
a minibatch) the gradient is two products of matrices. On an H200 that takes about as long as to go through the state a few times; there it is
also measured with 8,192 rows (*rows*), where the gradient dominates. "none" is the same density as if its support were the real line.

Every transform runs the same number of steps through `ib.sample`, one after the other in many rounds; what counts is the ratio to "none"
within a round. A collector of one number takes the place of stored draws, and the clock is the driver's own (`draws.seconds`). A step's time
is the difference between a run and one twice as long, because the start (phi of theta: for some transforms Newton's iteration) may still
be under way on the device when the clock starts. Needs the core of the library alone, and runs on whatever device JAX finds.

The *floor* of a step is the time in which its state can be read and written once, at the bandwidth that `y = x + 1` over a large array
reaches in the same run. It is a floor for states that do not fit the caches, and says nothing of products of matrices.
"""

import argparse
import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

import inbounds as ib
from experiments.timing import interleaved

HALF_LINE = ("softplus", "icll", "integrated_probit", "exp")
INTERVAL = ("sigmoid", "probit", "arctan", "softsign")
SIMPLEX = ("log_ratios", "softmax")
REFERENCE = "none"
KINDS = (
    {REFERENCE: constraints.real}
    | dict.fromkeys(HALF_LINE, constraints.positive)
    | dict.fromkeys(INTERVAL, constraints.unit_interval)
    | dict.fromkeys(SIMPLEX, constraints.simplex)
)
GROUP = 10  # coordinates of one simplex
BATCHES = {"regression": 1_024, "rows": 8_192}  # rows of a minibatch
STEP_SIZE = 1e-7  # the work is the same wherever the chain is: keep it where it starts
GOALS = {"bare": 1.25, "regression": 1.05, "rows": 1.05}
ICLL_OVER_SOFTPLUS = 1.15


def bare(size):
    """One product a coordinate, whatever the shape of theta."""
    return dict(gradient=lambda theta, batch: jax.tree.map(jnp.negative, theta)), {}, size


def regression(size, batch):
    """y = x w + noise with a matrix of weights; returns also how many weights there really are."""
    width = GROUP * round(size**0.5 / GROUP)
    generator = np.random.default_rng(0)
    data = {name: generator.normal(size=(2 * batch, width)).astype(np.float32) for name in ("x", "y")}

    def log_likelihood(theta, batch):
        misfit = batch["y"] - batch["x"] @ theta["w"].reshape(width, width)
        return -0.5 * jnp.sum(jnp.square(misfit), axis=1)

    model = dict(
        log_prior=lambda theta: -0.5 * jnp.sum(jnp.square(theta["w"])), log_likelihood=log_likelihood, data=data
    )
    return model, {"batch_size": batch}, width * width


MODELS = {"bare": bare} | {name: partial(regression, batch=batch) for name, batch in BATCHES.items()}


def steps_for(model, size):
    """Enough for some hundredths to tenths of a second."""
    if jax.default_backend() != "cpu":
        fast = 2_048 if size <= 1e5 else 1_024 if size <= 1e6 else 256
        longer = {"bare": 1, "regression": 2, "rows": 8}[model] * (2 if model != "bare" and size > 1e6 else 1)
        return fast // longer
    return int(np.clip(1e8 // size, 8, 512) if model == "bare" else np.clip(1e7 // size, 4, 128))


def contestants(model, size):
    """{name: a function that runs once and returns microseconds per step}, and the number of parameters."""
    parts, settings, size = MODELS[model](size)
    steps = steps_for(model, size)

    def runner(name, support):
        shape = (size // GROUP, GROUP) if name in SIMPLEX else (size,)
        start = np.full(shape, 1 / GROUP if name in SIMPLEX else 0.5, np.float32)
        kernel = ib.sgld(ib.Posterior(supports={"w": support}, **parts), None if name == REFERENCE else name)

        def seconds(turns):
            draws = ib.sample(
                kernel, STEP_SIZE, turns * steps, thin=steps, init={"w": start}, progress=False,
                collect=ib.collect.predictive_mean(_first), **settings,
            )  # fmt: skip
            return draws.seconds

        def run():
            return 1e6 * (seconds(2) - seconds(1)) / steps

        return run

    return {name: runner(name, support) for name, support in KINDS.items()}, size


def _first(theta):
    """A result of almost no size, so that nothing but steps is measured."""
    return theta["w"].ravel()[0]


def copy_bandwidth(repeats=7):
    """Bytes a second that y = x + 1 reads and writes, at its best."""
    on_host = jax.default_backend() == "cpu"
    x, calls = jnp.zeros(2**25 if on_host else 2**28, jnp.float32), 2 if on_host else 20
    add = jax.jit(lambda x: x + 1, donate_argnums=0)  # in place: the time of fresh memory is not that of a copy
    x = add(x).block_until_ready()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(calls):  # dispatched at once: the device never waits for Python
            x = add(x)
        x.block_until_ready()
        seconds.append((time.perf_counter() - began) / calls)
    return 2 * x.nbytes / min(seconds)


def floor_of(name, parameters, bandwidth):
    """Microseconds to read and to write phi once."""
    numbers = parameters * (GROUP - 1) // GROUP if name in SIMPLEX else parameters
    return 1e6 * 2 * 4 * numbers / bandwidth


def measure(model, size, rounds, bandwidth):
    """One row per transform: microseconds per step, its ratio to "none" (median and quartiles over the rounds), and to the floor."""
    runs, parameters = contestants(model, size)
    with ThreadPoolExecutor(min(len(runs), os.cpu_count() or 1)) as pool:  # compile: most of it is outside Python
        list(pool.map(lambda run: run(), runs.values()))
    times = interleaved(runs, rounds)
    rows = []
    for name, own in times.items():
        low, ratio, high = np.quantile(np.divide(own, times[REFERENCE]), (0.25, 0.5, 0.75))
        microseconds, floor = float(np.median(own)), floor_of(name, parameters, bandwidth)
        rows.append(
            {
                "model": model, "parameters": parameters, "transform": name, "microseconds": microseconds,
                "ratio": float(ratio), "ratio_low": float(low), "ratio_high": float(high),
                "floor_microseconds": floor, "of_the_floor": microseconds / floor,
            }
        )  # fmt: skip
    return rows


def icll_over_softplus(rows):
    """One ratio a model and size."""
    by_name = {(row["model"], row["parameters"], row["transform"]): row["microseconds"] for row in rows}
    return [
        {"model": model, "parameters": parameters, "ratio": value / by_name[model, parameters, "softplus"]}
        for (model, parameters, name), value in by_name.items()
        if name == "icll"
    ]


def show(rows):
    for model in dict.fromkeys(row["model"] for row in rows):
        print(f"\n{model}: time of a step over that without bounds (goal {GOALS[model]})")
        print(
            f"{'parameters':>12}  {'transform':18}{'ratio':>8}{'quartiles':>16}{'us per step':>12}{'floor, us':>12}{'of the floor':>14}"
        )
        for row in rows:
            if row["model"] == model:
                quartiles = f"{row['ratio_low']:.3f}-{row['ratio_high']:.3f}"
                print(
                    f"{row['parameters']:>12,}  {row['transform']:18}{row['ratio']:>8.3f}{quartiles:>16}{row['microseconds']:>12,.1f}"
                    f"{row['floor_microseconds']:>12,.2f}{row['of_the_floor']:>14,.2f}"
                )
    worst = max(icll_over_softplus(rows), key=lambda pair: pair["ratio"])
    print(f"\nicll over softplus: at most {worst['ratio']:.3f} (goal {ICLL_OVER_SOFTPLUS})")


def write(file, rows, rounds, bandwidth):
    device = jax.devices()[0]
    result = {
        "device": device.device_kind, "platform": device.platform, "machine": platform.machine(), "jax": jax.__version__,
        "rounds": rounds, "goals": GOALS, "copy_bytes_a_second": bandwidth, "rows": rows,
        "icll_over_softplus": icll_over_softplus(rows),
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--rounds", type=int, default=7)
    usual = [name for name in MODELS if name != "rows" or jax.default_backend() != "cpu"]
    parser.add_argument("--models", nargs="+", choices=MODELS, default=usual)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    began, rows, bandwidth = time.perf_counter(), [], copy_bandwidth()
    print(f"y = x + 1 moves {bandwidth / 1e9:,.0f} GB/s", flush=True)
    for model in arguments.models:
        for size in arguments.sizes:
            rows += measure(model, size, arguments.rounds, bandwidth)
            print(f"{model}, {size:,} parameters: done after {time.perf_counter() - began:.0f} s", flush=True)
            if arguments.out:  # after each, so that a run that is cut short leaves what it has
                write(arguments.out, rows, arguments.rounds, bandwidth)
    show(rows)


if __name__ == "__main__":
    main()
