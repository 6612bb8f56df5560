"""Steps a second beside BlackJAX and beside the tightest loop that we can write by hand, in one run.

    python benchmarks/throughput.py [--out results.json]

Every row runs the same number of steps of SGLD on the same model and data; contestants are interleaved, the table shows
the median of the repeats and their spread, compilation apart. "limit" is a hand-written JAX scan: noise in blocks, contiguous
slices of shuffled data, no checks. BlackJAX runs inside one compiled scan with a random key a step and gathers its minibatches,
as its documentation does; on bounded targets it gets the transformed log density by hand.
"""

import argparse
import json
import statistics
import time
from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax

import inbounds as ib


def bounded_target(num_steps):
    """Gamma(.5, rate 2) through softplus, exact gradients, every draw kept."""
    step_size = 0.1
    kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(0.5, 2.0)}))

    def ours():
        return ib.sample(kernel, step_size, num_steps, progress=True, init={"x": 0.3}).phi["x"]

    def log_density(phi):
        theta = jnp.logaddexp(phi, 0.0)
        return -0.5 * jnp.log(theta) - 2.0 * theta - jnp.logaddexp(-phi, 0.0)

    theirs = blackjax.sgld(lambda phi, batch: jax.grad(log_density)(phi))

    @jax.jit
    def scan(key):
        def step(phi, key):
            phi = theirs.step(key, phi, None, step_size)
            return phi, jnp.logaddexp(phi, 0.0)

        return lax.scan(step, jnp.float32(-1.0), jax.random.split(key, num_steps))[1]

    @jax.jit
    def limit(key):
        def block(phi, number):
            noise = jnp.sqrt(2 * step_size) * jax.random.normal(jax.random.fold_in(key, number), (1_024,))

            def step(phi, z):
                decay = jnp.exp(-jnp.abs(phi))
                theta = jnp.maximum(phi, 0) + jnp.log1p(decay)
                slope = jnp.where(phi >= 0, 1.0, decay) / (1 + decay)
                phi = phi + step_size * (slope * (-0.5 / theta - 2.0) + 1 - slope) + z
                return phi, phi

            return lax.scan(step, phi, noise)

        phi = lax.scan(block, jnp.float32(-1.0), jnp.arange(-(-num_steps // 1_024)))[1].reshape(-1)[:num_steps]
        return jnp.logaddexp(phi, 0.0)

    return {"inbounds": ours, "blackjax": lambda: scan(jax.random.key(0)), "limit": lambda: limit(jax.random.key(0))}


def logistic_regression(num_steps, num_chains, rows=100_000, columns=50, batch_size=1_000):
    """N = 100,000, d = 50, batch 1,000."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    y = (generator.uniform(size=rows) < 1 / (1 + np.exp(-x @ generator.normal(size=columns) / 4))).astype(np.float32)
    step_size, keep = 1e-6, 10
    start = jnp.zeros(columns)

    def terms(w, x, y):
        logits = x @ w
        return y * logits - jnp.logaddexp(logits, 0.0)

    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 1.0).expand([columns])},
        lambda theta, batch: terms(theta["w"], batch["x"], batch["y"]),
        {"x": x, "y": y},
    )
    kernel = ib.sgld(posterior)
    settings = dict(thin=keep, batch_size=batch_size, num_chains=num_chains, init={"w": start})

    def ours():
        return ib.sample(kernel, step_size, num_steps, progress=True, **settings).phi["w"]

    on_device = jnp.asarray(x), jnp.asarray(y)
    theirs = blackjax.sgld(
        blackjax.sgmcmc.gradients.grad_estimator(
            lambda w: -0.5 * jnp.sum(w**2), lambda w, row: terms(w, row[0][None], row[1][None])[0], rows
        )
    )

    @jax.jit
    def scan(key, x, y):
        def step(w, key):
            batch_key, step_key = jax.random.split(key)
            index = jax.random.randint(batch_key, (batch_size,), 0, rows)
            return theirs.step(step_key, w, (x[index], y[index]), step_size), None

        def window(w, keys):
            w = lax.scan(step, w, keys)[0]
            return w, w

        def chain(key):
            keys = jax.random.split(key, num_steps).reshape(num_steps // keep, keep)
            return lax.scan(window, start, keys)[1]

        return jax.vmap(chain)(jax.random.split(key, num_chains))

    @jax.jit
    def limit(key, x, y):
        def gradient(w, begin):
            xs = lax.dynamic_slice_in_dim(x, begin, batch_size)
            ys = lax.dynamic_slice_in_dim(y, begin, batch_size)
            return jax.grad(lambda w: jnp.sum(terms(w, xs, ys)) * (rows / batch_size) - 0.5 * jnp.sum(w**2))(w)

        def block(w, number):
            noise = jnp.sqrt(2 * step_size) * jax.random.normal(
                jax.random.fold_in(key, number), (keep * 10, num_chains, columns)
            )
            begins = jax.random.randint(jax.random.fold_in(key, -number), (keep * 10, num_chains), 0, rows - batch_size)

            def step(w, inputs):
                z, begin = inputs
                if num_chains == 1:
                    return w + step_size * gradient(w[0], begin[0])[None] + z, None
                return w + step_size * jax.vmap(gradient)(w, begin) + z, None

            def window(w, inputs):
                w = lax.scan(step, w, inputs)[0]
                return w, w

            split = jax.tree.map(lambda a: a.reshape(10, keep, *a.shape[1:]), (noise, begins))
            return lax.scan(window, w, split)

        return lax.scan(block, jnp.tile(start, (num_chains, 1)), jnp.arange(num_steps // (keep * 10)))[1]

    return {
        "inbounds": ours,
        "blackjax": lambda: scan(jax.random.key(0), *on_device),
        "limit": lambda: limit(jax.random.key(0), *on_device),
    }


ROWS = {
    "bounded 1-D target, 100,000 steps": (100_000, bounded_target),
    "logistic regression, 1 chain": (20_000, partial(logistic_regression, num_chains=1)),
    "logistic regression, 8 chains": (4_000, partial(logistic_regression, num_chains=8)),
}


def measure(repeats: int) -> list[dict]:
    table = []
    for name, (num_steps, make) in ROWS.items():
        contestants = make(num_steps)
        seconds: dict[str, list[float]] = {kind: [] for kind in contestants}
        for repeat in range(repeats + 1):
            for kind, run in contestants.items():
                began = time.perf_counter()
                jax.block_until_ready(run())
                if repeat:  # the first compiles
                    seconds[kind].append(time.perf_counter() - began)
        row: dict = {"row": name}
        for kind, values in seconds.items():
            micro = sorted(1e6 * value / num_steps for value in values)
            row[kind] = statistics.median(micro)
            row[f"{kind}_spread"] = [micro[0], micro[-1]]
        table.append(
            row | {"against_blackjax": row["blackjax"] / row["inbounds"], "of_limit": row["inbounds"] / row["limit"]}
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    table = measure(arguments.repeats)
    print(
        f"{'microseconds a step':36}{'inbounds':>10}{'blackjax':>10}{'limit':>10}{'times faster':>14}{'of limit':>10}"
    )
    for row in table:
        print(
            f"{row['row']:36}{row['inbounds']:10.2f}{row['blackjax']:10.2f}{row['limit']:10.2f}"
            f"{row['against_blackjax']:14.1f}{row['of_limit']:10.2f}"
        )
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"blackjax": blackjax.__version__, "jax": jax.__version__, "rows": table}, file, indent=1)


if __name__ == "__main__":
    main()
