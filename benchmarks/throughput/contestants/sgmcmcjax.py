"""SGMCMCJax through its compiled sampler, which keeps every draw; without its progress bar, which calls back to Python."""

import jax
import jax.numpy as jnp
from densities import to_phi, to_theta, unbounded
from sgmcmcjax.samplers import build_sgld_sampler


def prepare(row, data, num_steps):
    log_prior, log_likelihood = unbounded(row.model)
    names = sorted(data)
    if data:
        arrays = tuple(data[name] for name in names)

        def of_one(phi, *datum):
            return log_likelihood(phi, {name: leaf[None] for name, leaf in zip(names, datum)})[0]  # noqa: B905

    else:  # it samples nothing without data: one datum that says nothing

        def of_one(phi, nothing):
            return nothing

        arrays = (jnp.zeros(1),)
    sampler = build_sgld_sampler(row.step_size, of_one, log_prior, arrays, row.batch_size or 1, pbar=False)
    start = to_phi(row.model)(jax.tree_util.tree_map(jnp.asarray, row.make_start()))
    theta = to_theta(row.model)

    def chain(key):
        every = sampler(key, num_steps, start)
        return theta(jax.tree_util.tree_map(lambda leaf: leaf[row.thin - 1 :: row.thin], every))

    @jax.jit
    def run(seed):
        keys = jax.random.split(jax.random.PRNGKey(seed), row.num_chains)
        if row.num_chains > 1:
            return jax.vmap(chain)(keys)
        return jax.tree_util.tree_map(lambda leaf: leaf[None], chain(keys[0]))

    return run
