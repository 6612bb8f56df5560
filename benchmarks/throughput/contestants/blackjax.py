"""BlackJAX's SGLD the two ways its users run it: a compiled scan, and a Python loop around a compiled step.

Minibatches are gathered at random indices and every step has a key of its own, as in BlackJAX's documentation. Bounded rows get the
log density of phi, written by hand (`densities.unbounded`).
"""

from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from densities import to_phi, to_theta, unbounded
from jax import lax


def gradient_estimator(row, data):
    log_prior, log_likelihood = unbounded(row.model)
    if log_likelihood is None:
        return lambda phi, batch: jax.grad(log_prior)(phi)

    def of_one(phi, datum):
        return log_likelihood(phi, jax.tree.map(lambda leaf: leaf[None], datum))[0]

    return blackjax.sgmcmc.gradients.grad_estimator(log_prior, of_one, len(next(iter(data.values()))))


def minibatch(row, data, key):
    if not data:
        return None
    index = jax.random.randint(key, (row.batch_size,), 0, len(next(iter(data.values()))))
    return {name: leaf[index] for name, leaf in data.items()}


def scan_loop(row, gradient, start, theta, num_steps):
    """A function of a key and the data that runs every chain in one compiled scan, and returns theta's kept draws."""
    sgld = blackjax.sgld(gradient)

    def chain(key, data):
        def step(phi, key):
            batch_key, step_key = jax.random.split(key) if data else (None, key)
            return sgld.step(step_key, phi, minibatch(row, data, batch_key), row.step_size), None

        def window(phi, keys):
            phi = step(phi, keys[0])[0] if row.thin == 1 else lax.scan(step, phi, keys)[0]
            return phi, theta(phi)

        keys = jax.random.split(key, num_steps).reshape(num_steps // row.thin, row.thin)
        return lax.scan(window, sgld.init(start), keys)[1]

    @jax.jit
    def run(key, data):
        if row.num_chains == 1:  # a batch axis of one would cost
            return jax.tree.map(lambda leaf: leaf[None], chain(key, data))
        return jax.vmap(chain, in_axes=(0, None))(jax.random.split(key, row.num_chains), data)

    return run


def prepare_scan(row, data, num_steps):
    data = jax.tree.map(jnp.asarray, data)
    start = to_phi(row.model)(jax.tree.map(jnp.asarray, row.make_start()))
    run = scan_loop(row, gradient_estimator(row, data), start, to_theta(row.model), num_steps)
    return lambda seed: run(jax.random.key(seed), data)


def prepare_loop(row, data, num_steps):
    data = jax.tree.map(jnp.asarray, data)
    phi = to_phi(row.model)(jax.tree.map(jnp.asarray, row.make_start()))
    sgld = blackjax.sgld(gradient_estimator(row, data))
    theta = jax.jit(to_theta(row.model))
    batches, step = partial(minibatch, row), partial(sgld.step, step_size=row.step_size)
    if row.num_chains > 1:
        batches, step = jax.vmap(batches, in_axes=(None, 0)), jax.vmap(step)
        phi = jax.tree.map(lambda leaf: jnp.tile(leaf, (row.num_chains, *[1] * leaf.ndim)), phi)
    batches, step = jax.jit(batches), jax.jit(step)

    def run(seed):
        state, kept, key = phi, [], jax.random.key(seed)
        for number in range(1, num_steps + 1):
            key, batch_key, step_key = jax.random.split(key, 3)
            if row.num_chains > 1:
                batch_key, step_key = (jax.random.split(k, row.num_chains) for k in (batch_key, step_key))
            state = step(step_key, state, batches(data, batch_key) if data else None)
            if number % row.thin == 0:
                kept.append(state)
        # Together on the host: a stack of thousands of arrays takes minutes to compile.
        kept = jax.tree.map(lambda *leaves: np.stack(leaves), *kept)
        kept = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1) if row.num_chains > 1 else leaf[None], kept)
        return theta(kept)

    return run
