"""Everything that the tests ask of eight simulated devices, in one process: prints one line of JSON."""

import json
import re
import shutil
import sys
import tempfile

import jax

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_disable_most_optimizations", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro.distributions as dist  # noqa: E402

import inbounds as ib  # noqa: E402
from inbounds.data.spread import SpreadRows  # noqa: E402
from inbounds.engine.chunks import chunk_runner  # noqa: E402
from inbounds.sampling import run as runs  # noqa: E402
from tests.sampling import counts_by_group  # noqa: E402

COUNTS = counts_by_group.posterior(counts_by_group.data())
SETTINGS = dict(step_size=1e-3, num_chains=8, seed=3, progress=False, thin=8)
seen = {}


def recording(program):
    """The chunk, compiled in a way that lets the program be read."""

    def run(*arguments):
        if seen.get("program") != program:
            seen.update(program=program, compiled=chunk_runner(program).lower(*arguments).compile())
        # Where XLA's choice for a result is not what the program wants (JAX 0.9), `jit` would compile once more.
        return seen["compiled"](*jax.device_put(arguments, seen["compiled"].input_shardings[0]))

    return run


runs.chunk_runner = recording


def distance(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.max(np.abs(x - y))), a.phi, b.phi)))


def traffic():
    """Shapes of what each kind of collective operation moves, in the program that ran last."""
    text = seen["compiled"].as_text()
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
    found = {}
    for shapes, kind in re.findall(rf" = (.*?) ({kinds})(?:-start)?\(", text):
        found.setdefault(kind, []).extend(re.findall(r"\w+\[[\d,]*\]", shapes))
    return found


def chains_and_data():
    """The same draws wherever the minibatches are the same rows, and an interrupted run that changes its devices."""
    kernel = ib.sgld(COUNTS)
    few = dict(SETTINGS, num_steps=1_024)
    whole = ib.sample(kernel, **dict(few, num_steps=2_048))
    chains = ib.sample(kernel, devices=8, **dict(few, num_steps=2_048))
    result = {"chains": distance(whole, chains), "traffic of chains": traffic()}
    both = ib.Layout(chain=2, data=4)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = ib.Checkpoint(f"{folder}/run", every_seconds=None, every_steps=1_024)
        divided = ib.sample(kernel, devices=both, checkpoint=checkpoint, **few)
        result["traffic of both"] = traffic()
        copy = shutil.copytree(f"{folder}/run", f"{folder}/copy")
        longer = dict(few, num_steps=2_048, resume=True)
        resumed = ib.sample(kernel, checkpoint=checkpoint, **longer)
        on_fewer = ib.sample(kernel, devices=ib.Layout(data=2), checkpoint=copy, **longer)
    result["all the data"] = max(
        float(np.max(np.abs(divided.phi["rate"] - whole.phi["rate"][:, :128]))),
        distance(whole, resumed),
        distance(whole, on_fewer),
    )
    result["draws"] = [divided.num_draws, resumed.num_draws, on_fewer.num_draws]
    return result


def posterior_of_minibatches():
    """Minibatches of four devices, with noise correction: distance from the exact moments in units of the exact sd."""
    kernel = ib.leimkuhler_matthews(COUNTS, noise_correction=True)
    settings = SETTINGS | dict(step_size=4e-3, num_steps=1_536, burn_in=256, batch_size=160)
    draws = ib.sample(kernel, devices=ib.Layout(data=4), **settings)
    mean, sd = counts_by_group.exact_moments()
    rate = draws.theta["rate"].reshape(-1, counts_by_group.GROUPS)
    return {"mean": float(np.max(np.abs(rate.mean(0) - mean) / sd)), "sd": float(np.mean(rate.std(0) / sd))}


def metrics():
    """The draws of one device, in metrics of each kind, on chains and data over eight."""
    mean, _ = counts_by_group.exact_moments()
    center = {"rate": mean.astype(np.float32)}
    found = {
        "dense": ib.metrics.laplace(COUNTS, center),
        "low rank": ib.metrics.low_rank(COUNTS, center, rank=3),
        "per row": ib.metrics.per_row(COUNTS, center, ["rate"]),
    }
    settings = SETTINGS | dict(step_size=0.2, num_steps=256, init=center)
    results = {}
    for name, metric in found.items():
        kernel = ib.leimkuhler_matthews(COUNTS, metric=metric)
        one, many = (ib.sample(kernel, devices=d, **settings) for d in (None, ib.Layout(chain=2, data=4)))
        results[name] = distance(one, many)
    return results


def estimates(batching, variance, shard):
    """Mean and shown variance of many spread estimates beside the exact gradient and their own variance."""
    layout = ib.Layout(data=8, shard=shard)
    source = SpreadRows(COUNTS.data, 80, batching, layout.mesh, layout.shard, {"rate": counts_by_group.GROUPS})
    arrays = source.prepare(jax.random.key(1))
    estimator = ib.gradients.minibatch(COUNTS, variance=variance)
    theta = {"rate": jnp.linspace(0.5, 2.0, counts_by_group.GROUPS)}

    def one(arrays, theta, plan):
        gradient, _ = estimator.estimate(estimator.init(theta, True), theta, source.fetch(arrays, plan), True)
        return gradient.value["rate"], jnp.sum(jnp.square(gradient.differences["rate"]), axis=0)

    def many(arrays, theta):
        plans = source.plan(jax.random.key(2), jnp.arange(4_000))
        return jax.lax.map(lambda plan: one(arrays, theta, plan), plans)

    values, variances = map(np.asarray, layout.on_mesh(many)(arrays, theta))
    exact = np.asarray(ib.gradients.full_gradient(COUNTS, theta)["rate"])
    error = values.std(0) / np.sqrt(len(values))
    return {
        "bias": float(np.max(np.abs(values.mean(0) - exact) / error)),
        "variance": float(np.mean(variances.mean(0) / values.var(0))),
        "counts": source.counts,
    }


def factors(users):
    """A Poisson factor model with ratings of very unequal users."""
    generator = np.random.default_rng(5)
    user = np.minimum(generator.geometric(8 / users, 2_000) - 1, users - 1)
    numbering = ib.data.balanced_numbering(user, multiple_of=8)
    rows = {
        "user": numbering.number[user].astype(np.int32),
        "item": generator.integers(0, 6, 2_000).astype(np.int32),
        "rating": generator.poisson(2.0, 2_000).astype(np.float32),
    }

    def log_likelihood(theta, batch):
        rate = jnp.sum(theta["W"][batch["user"]] * theta["H"][batch["item"]], axis=-1)
        return batch["rating"] * jnp.log(rate) - rate

    prior = dist.Gamma(2.0, 2.0)
    return ib.Posterior(
        {"W": prior.expand([numbering.size, 3]), "H": prior.expand([6, 3])}, log_likelihood, rows
    ), numbering.size


def divided_factors():
    """W divided by user: the draws of one device from all the data, the same law from minibatches, and what travels."""
    settings = dict(step_size=2e-4, progress=False, thin=16, num_chains=1)
    layout = ib.Layout(data=4, shard={"W": "user"})
    posterior, _ = factors(40)
    kernel = ib.sgld(posterior)
    one = ib.sample(kernel, num_steps=256, **settings)
    divided = ib.sample(kernel, num_steps=256, devices=layout, **settings)
    result = {"all the data": distance(one, divided)}

    large, users = factors(2_000)
    draws = ib.sample(ib.sgld(large), num_steps=64, batch_size=400, devices=layout, **settings)
    phi = draws.state.phi["W"]
    source = seen["program"].source
    return result | {
        "large": {
            "traffic": traffic(),
            "users": users,
            "shards": [list(shard.data.shape) for shard in phi.addressable_shards],
            "counts": source.counts,
            "finite": bool(np.all(np.isfinite(draws.phi["W"]))),
        }
    }


def errors():
    kernel = ib.sgld(COUNTS)
    run = dict(step_size=1e-3, num_steps=8, progress=False, init={"rate": np.ones(counts_by_group.GROUPS)})
    mesh = jax.make_mesh((8,), ("model",))
    cases = {
        "too many": lambda: ib.sample(kernel, **run, num_chains=16, devices=16),
        "chains": lambda: ib.sample(kernel, **run, num_chains=6, devices=4),
        "axes": lambda: ib.sample(kernel, **run, devices=mesh),
        "kind": lambda: ib.sample(kernel, **run, devices="gpu"),
        "batch": lambda: ib.sample(kernel, **run, batch_size=100, devices=ib.Layout(data=8)),
        "larger": lambda: ib.sample(kernel, **run, batch_size=808, devices=ib.Layout(data=8)),
        "variable": lambda: ib.sample(kernel, **run, devices=ib.Layout(data=8, shard={"W": "group"})),
        "key": lambda: ib.sample(kernel, **run, devices=ib.Layout(data=8, shard={"rate": "user"})),
        "rows": lambda: ib.sample(kernel, **run, devices=ib.Layout(data=3, shard={"rate": "group"})),
        "svrg": lambda: ib.sample(ib.sgld(COUNTS, gradient=ib.gradients.svrg), **run, devices=ib.Layout(data=2)),
    }
    messages = {}
    for name, case in cases.items():
        try:
            case()
        except ValueError as error:
            messages[name] = str(error)
    return messages


if __name__ == "__main__":
    parts = {
        "chains and data": chains_and_data,
        "minibatches": posterior_of_minibatches,
        "metrics": metrics,
        "epochs": lambda: estimates("epochs", "halves", {"rate": "group"}),
        "halves": lambda: estimates("replacement", "halves", None),
        "per example": lambda: estimates("replacement", "per_example", {"rate": "group"}),
        "factors": divided_factors,
        "errors": errors,
    }
    chosen = sys.argv[1:] or parts
    print(json.dumps({name: parts[name]() for name in chosen}))
