"""Replica exchange: chains at several temperatures that swap them, so that the coldest visits modes that it would never leave.

Everything here is public: `temperature` may be one number per chain, and is then part of the state of each chain. A round is a
few steps of every chain, and a proposal to swap for every pair of neighbours. Chains i and j, at temperatures T_i and T_j, swap with
probability min(1, exp((1 / T_i - 1 / T_j) (log p(theta_j) - log p(theta_i)))), which leaves their joint law as it is.

The target is a mixture of two narrow modes in the unit cube, far from each other, with weights of 0.3 and 0.7.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

import inbounds as ib

WEIGHT, SIZE = 0.3, 3
LOW, HIGH = dist.Beta(12.0, 48.0), dist.Beta(48.0, 12.0)
TEMPERATURES = np.geomspace(1.0, 30.0, 8).astype(np.float32)
STEP_SIZE, STEPS_A_ROUND = 0.01, 20


def log_density(theta):
    """log p(theta) of both modes together, up to a constant."""
    modes = [jnp.sum(law.log_prob(theta["x"])) for law in (LOW, HIGH)]
    return jnp.logaddexp(np.log(WEIGHT) + modes[0], np.log(1 - WEIGHT) + modes[1])


def posterior() -> ib.Posterior:
    return ib.Posterior(supports={"x": constraints.unit_interval}, log_prior=log_density)


def swapped(states, log_p, key, first):
    """The states after a proposal to swap for each pair of neighbours in temperature: of places 0 and 1, 2 and 3, ..., or from 1 on."""
    by_heat = jnp.argsort(states.temperature)
    place = jnp.argsort(by_heat)
    other = place + jnp.where((place - first) % 2 == 0, 1, -1)
    other = jnp.where((other < 0) | (other >= len(place)), place, other)
    partner = by_heat[other]
    apart = 1 / states.temperature - 1 / states.temperature[partner]
    # Both of a pair look at the same number.
    draws = jax.random.uniform(key, place.shape)[jnp.minimum(place, other)]
    accepted = jnp.log(draws) < apart * (log_p[partner] - log_p)
    return states._replace(temperature=jnp.where(accepted, states.temperature[partner], states.temperature))


def exchange(kernel: ib.Kernel, start, rounds: int, seed: int = 0):
    """Draws of the chain at the lowest temperature, one per round, and the share of rounds in which it is another chain's turn."""
    count = len(kernel.temperature)

    def one(states, inputs):
        number, key = inputs
        of_steps, of_swap = jax.random.split(key)

        def step(states, key):
            each = jax.vmap(lambda k, state: kernel.step(k, state, None, STEP_SIZE)[0])
            return each(jax.random.split(key, count), states), None

        states, _ = jax.lax.scan(step, states, jax.random.split(of_steps, STEPS_A_ROUND))
        theta = jax.vmap(kernel.position)(states)
        states = swapped(states, jax.vmap(log_density)(theta), of_swap, number % 2)
        coldest = jnp.argmin(states.temperature)
        return states, (jax.tree.map(lambda leaf: leaf[coldest], theta), coldest)

    @partial(jax.jit, static_argnums=1)
    def run(states, rounds):
        inputs = (jnp.arange(rounds), jax.random.split(jax.random.key(seed), rounds))
        return jax.lax.scan(one, states, inputs)[1]

    states = kernel.start(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), start))
    draws, coldest = jax.device_get(run(states, rounds))
    return draws, float(np.mean(coldest[1:] != coldest[:-1]))


def main(rounds: int = 20_000) -> dict[str, float]:
    """The weight of the first mode: the truth, by replica exchange, and by a chain on its own."""
    target, start = posterior(), {"x": jnp.full(SIZE, 0.2)}
    kernel = ib.leimkuhler_matthews(target, temperature=TEMPERATURES)
    draws, turns = exchange(kernel, start, rounds)
    alone = ib.sample(
        ib.leimkuhler_matthews(target), STEP_SIZE, 20_000, burn_in=1_000, thin=20, init=start, progress=False
    )
    return {
        "truth": WEIGHT,
        "replica exchange": float(np.mean(draws["x"][rounds // 10 :].mean(axis=-1) < 0.5)),
        "one chain alone": float(np.mean(alone.theta["x"].mean(axis=-1) < 0.5)),
        "rounds in which the coldest chain is another": turns,
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.2f}")
