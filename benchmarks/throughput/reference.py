"""NumPyro's NUTS, the exact reference, apart from the race: it reads all the data for every gradient, and has no bias.

    python reference.py ROW

prints JSON: microseconds per gradient, gradients per draw, and milliseconds per effective draw (the median over variables; never more of
them than draws) after warm-up and compilation; for Inbounds the last of these too. An effective draw of SGLD still has the bias of
its step size.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DRAWS = {"logistic-1": 100, "rates": 100, "gamma": 20_000, "beta": 20_000}
WARM_UP = 200


def measure(names: list[str]) -> dict[str, Any]:
    """Of the rows that NUTS can sample in reasonable time, each in a process of its own."""
    found = {}
    for name in names:
        if name in DRAWS:
            command = [sys.executable, __file__, name]
            done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
            found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def sample_row(name: str) -> dict[str, float]:
    import jax
    import numpy as np
    import numpyro
    from contestants.inbounds import prepare, priors
    from densities import LIKELIHOODS
    from numpyro.diagnostics import effective_sample_size
    from rows import ROWS

    row = ROWS[name]
    data = row.make_data()
    names = list(data)
    likelihood = LIKELIHOODS.get(row.model)

    def model(*arrays):  # one by one: NumPyro knows a program by its arguments, and a dict it does not know again
        data = dict(zip(names, arrays, strict=True))
        theta = {name: numpyro.sample(name, law.to_event()) for name, law in priors(row.model).items()}
        if likelihood is not None:
            numpyro.factor("likelihood", likelihood(theta, data).sum())

    def effective(draws):
        (leaf,) = draws.values()
        estimates = np.asarray(effective_sample_size(np.asarray(leaf)))
        # Of few draws that alternate around the mean the estimate is beyond all bounds, or negative.
        return float(np.median(np.where((estimates < 0) | (estimates > leaf.shape[1]), leaf.shape[1], estimates)))

    start = {name: jax.numpy.asarray(leaf) for name, leaf in row.make_start().items()}
    nuts = numpyro.infer.NUTS(model, init_strategy=numpyro.infer.init_to_value(values=start))
    mcmc = numpyro.infer.MCMC(nuts, num_warmup=WARM_UP, num_samples=DRAWS[name], progress_bar=False)
    arrays = [jax.numpy.asarray(leaf) for leaf in data.values()]
    mcmc.warmup(jax.random.key(0), *arrays)
    mcmc.run(jax.random.key(1), *arrays, extra_fields=("num_steps",))  # compiles
    began = time.perf_counter()
    mcmc.run(jax.random.key(2), *arrays, extra_fields=("num_steps",))
    draws = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - began
    gradients = int(mcmc.get_extra_fields()["num_steps"].sum())

    run = prepare(row, data, row.steps)
    run(0)
    began = time.perf_counter()
    ours = jax.block_until_ready(run(1))
    our_seconds = time.perf_counter() - began
    half = {name: leaf[:, leaf.shape[1] // 2 :] for name, leaf in ours.items()}  # the rest walks from the start
    return {
        "microseconds_a_gradient": 1e6 * seconds / gradients,
        "gradients_a_draw": gradients / DRAWS[name],
        "milliseconds_an_effective_draw": 1e3 * seconds / effective(draws),
        "inbounds_milliseconds_an_effective_draw": 1e3 * our_seconds / 2 / effective(half),
    }


if __name__ == "__main__":
    print(json.dumps(sample_row(sys.argv[1])))
