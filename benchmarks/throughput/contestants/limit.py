"""The limit: for each row the tightest JAX scan that we can write by hand, without checks, progress, or health.

Gradients are written out where that helps, minibatches are contiguous slices of data shuffled once a run, and noise is drawn in
blocks of many steps for small models, in the step for large ones. What is fastest differs between machines (the generator, whether chains are
batched or follow each other, unrolling), so each candidate runs once and the fastest is kept.
"""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
from densities import mlp, standard_normal
from jax import lax
from rows import RATE, SHAPE

from inbounds.engine.normals import normal

GENERATORS = ("thirteen rounds", "threefry2x32", "unsafe_rbg")  # the first is that of `inbounds.engine.normals`


def key_of(generator, seed):
    return jax.random.key(seed, impl="threefry2x32" if generator == "thirteen rounds" else generator)


def normals_of(generator, key, shape):
    return normal(key, shape) if generator == "thirteen rounds" else jax.random.normal(key, shape)


def choose(row, data, num_steps):
    """The options of the fastest candidate. Asked in a process of its own, so that the others leave no memory behind."""
    options = CANDIDATES[row.model][1]
    if row.num_chains == 1:
        options = {name: values[:1] if name == "chains" else values for name, values in options.items()}
    every = [dict(zip(options, chosen, strict=True)) for chosen in itertools.product(*options.values())]
    return min(every, key=lambda chosen: seconds_of(prepare(row, data, num_steps, **chosen)))


def prepare(row, data, num_steps, **chosen):
    return CANDIDATES[row.model][0](row, data, num_steps, **chosen)


def seconds_of(run):
    """The better of two, after compilation."""
    jax.block_until_ready(run(0))
    seconds = []
    for seed in (1, 2):
        began = time.perf_counter()
        jax.block_until_ready(run(seed))
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def shuffled(data, seed):
    order = np.random.default_rng(seed).permutation(len(next(iter(data.values()))))
    return {name: jnp.asarray(leaf[order]) for name, leaf in data.items()}


def slices(row, data, begin):
    return {name: lax.dynamic_slice_in_dim(leaf, begin, row.batch_size) for name, leaf in data.items()}


def logistic(row, data, num_steps, generator, chains, block):
    rows, width = data["x"].shape
    batches, scale = rows // row.batch_size, rows / row.batch_size

    def gradient(w, begin, data):
        batch = slices(row, data, begin)
        return (batch["y"] - jax.nn.sigmoid(batch["x"] @ w)) @ batch["x"] * scale - w

    def gradients(w, begins, data):
        if row.num_chains == 1:
            return gradient(w[0], begins[0], data)[None]
        if chains == "batched":
            return jax.vmap(gradient, in_axes=(0, 0, None))(w, begins, data)
        return lax.map(lambda one: gradient(*one, data), (w, begins))

    @jax.jit
    def loop(seed, data):
        key = key_of(generator, seed)
        offsets = jax.random.randint(key, (row.num_chains,), 0, batches)

        def step(w, inputs):
            noise, begins = inputs
            return w + row.step_size * gradients(w, begins, data) + noise, None

        def window(w, inputs):
            w = lax.scan(step, w, inputs)[0]
            return w, w

        def steps_of_block(w, number):
            normals = normals_of(generator, jax.random.fold_in(key, number), (block, row.num_chains, width))
            begins = (offsets + number * block + jnp.arange(block)[:, None]) % batches * row.batch_size
            inputs = jnp.sqrt(2 * row.step_size) * normals, begins
            inputs = jax.tree.map(lambda leaf: leaf.reshape(block // row.thin, row.thin, *leaf.shape[1:]), inputs)
            return lax.scan(window, w, inputs)

        kept = lax.scan(steps_of_block, jnp.zeros((row.num_chains, width)), jnp.arange(num_steps // block))[1]
        return {"w": jnp.moveaxis(kept.reshape(-1, row.num_chains, width), 0, 1)}

    return lambda seed: loop(seed, shuffled(data, seed))


def large(row, data, num_steps, generator, order, start, gradient, theta):
    """Noise in the step, for one chain of many parameters.

    Shuffling wide data pays after some epochs; in a short run it is cheaper to gather each minibatch in a random order.
    """
    rows = len(next(iter(data.values())))
    batches = rows // row.batch_size
    on_device = None if order == "shuffled" else jax.tree.map(jnp.asarray, data)

    def minibatch(data, ring, number):
        begin = number % batches * row.batch_size
        if order == "shuffled":
            return slices(row, data, begin)
        index = lax.dynamic_slice_in_dim(ring, begin, row.batch_size)
        return {name: jnp.take(leaf, index, axis=0, mode="clip") for name, leaf in data.items()}

    @jax.jit
    def loop(seed, data, ring):
        key = key_of(generator, seed)

        def step(phi, number):
            drift = gradient(phi, minibatch(data, ring, number))
            leaves, structure = jax.tree.flatten(phi)
            keys = jax.random.split(jax.random.fold_in(key, number), len(leaves))
            noise = [normals_of(generator, k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
            noise = jax.tree.unflatten(structure, noise)
            scale = jnp.sqrt(2 * row.step_size)
            return jax.tree.map(lambda p, g, z: p + row.step_size * g + scale * z, phi, drift, noise), None

        def window(phi, numbers):
            phi = lax.scan(step, phi, numbers)[0]
            return phi, theta(phi)

        kept = lax.scan(window, start, jnp.arange(num_steps).reshape(-1, row.thin))[1]
        return jax.tree.map(lambda leaf: leaf[None], kept)

    def run(seed):
        if order == "shuffled":
            return loop(seed, shuffled(data, seed), None)
        return loop(seed, on_device, np.random.default_rng(seed).permutation(rows))

    return run


def network(row, data, num_steps, generator, order):
    scale = len(data["y"]) / row.batch_size
    gradient = jax.grad(lambda theta, batch: scale * jnp.sum(mlp(theta, batch)) + standard_normal(theta))
    start = jax.tree.map(jnp.asarray, row.make_start())
    return large(row, data, num_steps, generator, order, start, gradient, lambda phi: phi)


def rates(row, data, num_steps, generator, order):
    scale = len(data["count"]) / row.batch_size

    def gradient(phi, batch):
        theta, slope = softplus_and_slope(phi["rate"])
        index = batch["index"]
        data_part = jnp.zeros_like(theta).at[index].add(scale * (batch["count"] / theta[index] - 1))
        return {"rate": slope * ((SHAPE - 1) / theta - RATE + data_part) + 1 - slope}

    start = jax.tree.map(lambda leaf: jnp.log(jnp.expm1(leaf)), row.make_start())
    return large(
        row, data, num_steps, generator, order, start, gradient, lambda phi: jax.tree.map(jax.nn.softplus, phi)
    )


def softplus_and_slope(phi):
    decay = jnp.exp(-jnp.abs(phi))
    return jnp.maximum(phi, 0) + jnp.log1p(decay), jnp.where(phi >= 0, 1.0, decay) / (1 + decay)


def one_dimension(row, data, num_steps, generator, block, unroll):
    def gamma(phi):
        theta, slope = softplus_and_slope(phi)
        return slope * (-0.5 / theta - 2.0) + 1 - slope

    def beta(phi):  # all that is left of the density and the Jacobian
        return 0.5 - jax.nn.sigmoid(phi)

    drift, theta = {"gamma": (gamma, jax.nn.softplus), "beta": (beta, jax.nn.sigmoid)}[row.model]
    first = row.make_start()["x"]
    start = np.log(np.expm1(first)) if row.model == "gamma" else np.log(first / (1 - first))

    @jax.jit
    def loop(seed):
        key = key_of(generator, seed)

        def step(phi, noise):
            phi = phi + row.step_size * drift(phi) + noise
            return phi, phi

        def steps_of_block(phi, number):
            noise = jnp.sqrt(2 * row.step_size) * normals_of(generator, jax.random.fold_in(key, number), (block,))
            return lax.scan(step, phi, noise, unroll=unroll)

        kept = lax.scan(steps_of_block, jnp.float32(start), jnp.arange(-(-num_steps // block)))[1]
        return {"x": theta(kept.reshape(1, -1)[:, :num_steps])}

    return loop


LINE = one_dimension, {"generator": GENERATORS, "block": (1_024, 8_192), "unroll": (1, 8)}
CANDIDATES = {
    "logistic": (logistic, {"generator": GENERATORS, "chains": ("batched", "in turn"), "block": (200, 1_000)}),
    "mlp": (network, {"generator": GENERATORS, "order": ("shuffled", "gathered")}),
    "rates": (rates, {"generator": GENERATORS, "order": ("shuffled", "gathered")}),
    "gamma": LINE,
    "beta": LINE,
}
