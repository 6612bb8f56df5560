"""JaxSGMC through its alias for SGLD: data and kept draws on the device, a batched likelihood, no progress bar: its fast settings.

Its step sizes must fall, so they fall by a thousandth.
"""

import jax
import jax.numpy as jnp
import numpy as np
from densities import to_phi, to_theta, unbounded
from jax_sgmc import alias, potential
from jax_sgmc.data.numpy_loader import DeviceNumpyDataLoader


def prepare(row, data, num_steps):
    if not data:
        raise NotImplementedError("JaxSGMC samples from data alone")
    log_prior, log_likelihood = unbounded(row.model)
    energy = potential.minibatch_potential(prior=log_prior, likelihood=log_likelihood, is_batched=True)
    sampler = alias.sgld(
        energy,
        DeviceNumpyDataLoader(**data),
        cache_size=1,
        batch_size=row.batch_size,
        first_step_size=row.step_size * 1.0005,
        last_step_size=row.step_size * 0.9995,
        accepted_samples=num_steps // row.thin,
        save_to_numpy=False,
        progress_bar=False,
    )
    start = to_phi(row.model)(jax.tree_util.tree_map(jnp.asarray, row.make_start()))
    theta = to_theta(row.model)

    def run(seed):
        chains = sampler(*[start] * row.num_chains, iterations=num_steps)
        kept = [theta(chain["samples"]["variables"]) for chain in chains]
        return jax.tree_util.tree_map(lambda *leaves: np.stack(leaves), *kept)

    return run
