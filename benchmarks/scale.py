"""What a step costs as data, parameters, chains and devices grow, with exponents fitted.

    python -m benchmarks.scale [--out FOLDER] [--repeats 3] [--only data parameters chains devices]

The cost of a step is the slope between a run and one three times as long, so that what happens once a run cancels (shuffling the
data and the starts come before the clock); sizes are interleaved, and the table shows the median of the repeats and their spread. Exponents are
least-squares slopes of log cost on log size. Where a step is mostly overhead it says nothing about growth, so the second
exponent leaves out the sizes at which a step costs less than twice the cheapest; "-" where fewer than three are left.

Expected: 0 for data (a minibatch costs what it costs), 1 for parameters and for chains on one device.

Devices are simulated on the CPU where there is only one (in a process of its own: they must be there before JAX starts). They share
its cores, so this can show what dividing the work costs, and that nothing grows with the data on other devices; it cannot show a
speed-up beyond the number of cores, nor what a network between hosts costs. On a machine with several GPUs the same command
measures them.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

THIN = 64
SECONDS = 0.3  # of the shorter run


def regression(rows=100_000, columns=20, batch_size=1_000, num_chains=1, devices=None):
    """Logistic regression: a step reads a minibatch."""
    import jax.numpy as jnp
    import numpy as np
    import numpyro.distributions as dist

    import inbounds as ib

    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    y = (generator.uniform(size=rows) < 0.5).astype(np.float32)

    def log_likelihood(theta, batch):
        logits = batch["x"] @ theta["w"]
        return batch["y"] * logits - jnp.logaddexp(logits, 0.0)

    posterior = ib.Posterior({"w": dist.Normal(0.0, 1.0).expand([columns])}, log_likelihood, {"x": x, "y": y})
    return _runner(posterior, 1e-6, batch_size=batch_size, num_chains=num_chains, devices=devices)


def rates(size):
    """Positive rates, one per group, and counts in minibatches of 1,000: a step moves every rate."""
    import jax.numpy as jnp
    import numpy as np
    import numpyro.distributions as dist

    import inbounds as ib

    generator = np.random.default_rng(0)
    group = generator.integers(0, size, 100_000).astype(np.int32)
    data = {"group": group, "count": generator.poisson(1.0, group.size).astype(np.float32)}

    def log_likelihood(theta, batch):
        rate = theta["rate"][batch["group"]]
        return batch["count"] * jnp.log(rate) - rate

    posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0).expand([size])}, log_likelihood, data)
    return _runner(posterior, 1e-6, batch_size=1_000, init={"rate": np.ones(size, np.float32)})


def _runner(posterior, step_size, **settings):
    """(a function of a number of steps that returns seconds, what that number must be a multiple of)."""
    import inbounds as ib
    from inbounds.engine.program import SMALL

    kernel = ib.sgld(posterior)
    parameters = sum(math.prod(prior.shape()) for prior in posterior.priors.values())
    block = 1_024 if parameters <= SMALL else THIN  # whole blocks only: the driver runs no less

    def run(num_steps):
        return ib.sample(kernel, step_size, num_steps, thin=THIN, progress=False, **settings).seconds

    return run, block


def on_devices(number, kind):
    import inbounds as ib

    if kind == "chains":
        return regression(num_chains=8, devices=number)
    return regression(batch_size=8_000, devices=ib.Layout(data=number))


AXES = {
    "data": ("rows", lambda n: regression(rows=n), [3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]),
    "parameters": ("parameters", rates, [100, 1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]),
    "chains": ("chains", lambda n: regression(num_chains=n), [1, 2, 4, 8, 16, 32, 64]),
    "devices, 8 chains divided": ("devices", lambda n: on_devices(n, "chains"), [1, 2, 4, 8]),
    "devices, batch of 8,000 divided": ("devices", lambda n: on_devices(n, "data"), [1, 2, 4, 8]),
}


def measure(make, sizes, repeats):
    """Microseconds a step at each size: [least, median, most]."""
    runs, lengths = {}, {}
    for size in sizes:
        run, block = make(size)
        run(block)  # compiles
        steps = block
        while run(steps) < SECONDS:
            steps *= 4
        runs[size], lengths[size] = run, steps
    slopes = {size: [] for size in sizes}
    for _ in range(repeats):
        for size in sizes:
            short, long = runs[size](lengths[size]), runs[size](3 * lengths[size])
            slopes[size].append(1e6 * (long - short) / (2 * lengths[size]))
    return [[min(slopes[s]), statistics.median(slopes[s]), max(slopes[s])] for s in sizes]


def exponent(sizes, costs):
    """Slope of log cost on log size, with its standard error; None with fewer than three sizes."""
    if len(sizes) < 3 or min(costs) <= 0:  # a slope below zero: the machine was too busy to measure
        return None
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    residual = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return slope, math.sqrt(residual / (len(x) - 2) / spread)


def fitted(axis, sizes, costs):
    medians = [cost[1] for cost in costs]
    kept = [i for i, cost in enumerate(medians) if cost >= 2 * min(medians)]
    return {
        "axis": axis,
        "unit": AXES[axis][0],
        "sizes": sizes,
        "microseconds": costs,
        "exponent": exponent(sizes, medians),
        "exponent_without_overhead": exponent([sizes[i] for i in kept], [medians[i] for i in kept]),
    }


def measure_axis(axis, repeats):
    import jax

    _, make, sizes = AXES[axis]
    if axis.startswith("devices"):
        sizes = [size for size in sizes if size <= jax.device_count()]
    return fitted(axis, sizes, measure(make, sizes, repeats))


def in_a_process_with_devices(axis, repeats):
    """Measure an axis where eight devices are simulated; with several real ones, here."""
    import jax

    if jax.device_count() > 1:
        return measure_axis(axis, repeats)
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}
    command = [sys.executable, "-m", __spec__.name, "--axis", axis, "--repeats", str(repeats)]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def show(result):
    def text(fit):
        return "-" if fit is None else f"{fit[0]:.2f} ± {fit[1]:.2f}"

    print(f"\n{result['axis']}: exponent {text(result['exponent'])}, ", end="")
    print(f"without overhead {text(result['exponent_without_overhead'])}")
    print(f"{result['unit']:>14}{'microseconds per step':>22}{'spread':>24}")
    for size, (least, median, most) in zip(result["sizes"], result["microseconds"], strict=True):
        print(f"{size:14,}{median:22,.1f}{f'{least:,.1f} to {most:,.1f}':>24}", flush=True)


def draw(results, theme):
    from experiments.pictures import log_log
    from inbounds.display import new_figure

    figure, axes = new_figure(1, len(results), width=2.6 * len(results), height=2.8)
    colour = theme.colour("corv")
    for axis, result in zip(axes[0], results, strict=True):
        log_log(axis, theme, result["unit"])
        least, median, most = zip(*result["microseconds"], strict=True)
        axis.fill_between(result["sizes"], least, most, color=colour, alpha=0.25, lw=0)
        axis.plot(result["sizes"], median, "o-", ms=4, color=colour)
        if max(result["sizes"]) < 100:
            axis.set_xticks(result["sizes"], [str(size) for size in result["sizes"]])
        axis.set_ylim(max(min(median), 1e-2) / 8, max(median) * 8)
        fit = result["exponent_without_overhead"] or result["exponent"]
        power = "" if fit is None else f"exponent {fit[0]:.2f} ± {fit[1]:.2f}"
        axis.set_title(result["axis"].replace(", ", "\n") + f"\n{power}")
    axes[0][0].set_ylabel("microseconds per step")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=["data", "parameters", "chains", "devices"])
    parser.add_argument("--axis", help=argparse.SUPPRESS)  # the process with simulated devices: one axis, as JSON
    arguments = parser.parse_args()
    if arguments.axis:
        print(json.dumps(measure_axis(arguments.axis, arguments.repeats)))
        return

    import jax

    results = []
    for axis in AXES:
        if axis.split(",")[0] not in arguments.only:
            continue
        many = axis.startswith("devices")
        results.append((in_a_process_with_devices if many else measure_axis)(axis, arguments.repeats))
        show(results[-1])
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        machine = {
            "jax": jax.__version__,
            "platform": jax.default_backend(),
            "devices": jax.device_count(),
            "cores": os.cpu_count(),
        }
        text = json.dumps({"machine": machine, "results": results}, indent=1)
        (arguments.out / "scale.json").write_text(text + "\n")

        from inbounds.display import save_picture

        save_picture(arguments.out / "scale", partial(draw, results))


if __name__ == "__main__":
    main()
