"""BlackJAX's: NUTS, unadjusted MCLMC, Pathfinder, and SGLD as one writes it by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.scoreboard.answers import Density, Look, looks, of_chains

__all__ = ["mclmc", "nuts", "pathfinder", "sgld"]

WARMUP, CHAINS, TUNING, DRAWS = 1_000, 4, 10_000, 10_000
BATCH, STEPS, KEPT = 1_000, 100_000, 10


def nuts(model: Any, data: Any, seed: int) -> Look:
    """Window adaptation, then draws as they come."""
    density = Density(model, data, seed, CHAINS)
    keys = jax.random.split(jax.random.key(seed), CHAINS)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    def warm_up(key: Any, start: Any, data: Any) -> Any:
        adaptation = blackjax.window_adaptation(blackjax.nuts, partial(density.log_density, data=data))
        return adaptation.run(key, start, num_steps=WARMUP)[0]

    found = warm_up(keys, density.starts, data)

    def step(data: Any, parameters: Any) -> Any:
        return blackjax.nuts(partial(density.log_density, data=data), **parameters).step

    yield from _draws(density, found.state, found.parameters, step, data, seed)


def mclmc(model: Any, data: Any, seed: int) -> Look:
    """Its own tuning, then draws as they come."""
    density = Density(model, data, seed, CHAINS)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    def tune(key: Any, start: Any, data: Any) -> Any:
        log_density = partial(density.log_density, data=data)
        first, second = jax.random.split(key)
        state = blackjax.mcmc.mclmc.init(position=start, logdensity_fn=log_density, rng_key=first)
        kernel = blackjax.mcmc.mclmc.build_kernel(integrator=blackjax.mcmc.integrators.isokinetic_mclachlan)
        state, parameters, _ = blackjax.mclmc_find_L_and_step_size(
            mclmc_kernel=kernel, num_steps=TUNING, state=state, rng_key=second, logdensity_fn=log_density
        )
        return state, parameters

    states, parameters = tune(jax.random.split(jax.random.key(seed), CHAINS), density.starts, data)
    options = {
        "L": parameters.L, "step_size": parameters.step_size, "inverse_mass_matrix": parameters.inverse_mass_matrix
    }  # fmt: skip

    def step(data: Any, parameters: Any) -> Any:
        return blackjax.mclmc(partial(density.log_density, data=data), **parameters).step

    yield from _draws(density, states, options, step, data, seed)


def _draws(density: Density, states: Any, parameters: Any, step: Any, data: Any, seed: int) -> Look:
    @partial(jax.jit, static_argnums=4)
    def run(states: Any, parameters: Any, data: Any, key: Any, count: int) -> Any:
        def chain(state: Any, parameters: Any, key: Any) -> Any:
            moves = step(data, parameters)

            def one(state: Any, key: Any) -> Any:
                state, _ = moves(key, state)
                return state, state.position

            return jax.lax.scan(one, state, jax.random.split(key, count))

        return jax.vmap(chain)(states, parameters, jax.random.split(key, CHAINS))

    kept = []
    for look, more in enumerate(looks()):
        states, positions = run(states, parameters, data, jax.random.key(1_000 * seed + look), more)
        kept.append(np.asarray(positions))
        yield of_chains(density.theta(jnp.asarray(np.concatenate(kept, axis=1))))


def pathfinder(model: Any, data: Any, seed: int) -> Look:
    """One path."""
    density = Density(model, data, seed, 1)
    first, second = jax.random.split(jax.random.key(seed))
    log_density = partial(density.log_density, data=data)
    state, _ = blackjax.vi.pathfinder.approximate(first, log_density, density.starts[0])
    draws, _ = blackjax.vi.pathfinder.sample(second, state, DRAWS)
    yield of_chains(density.theta(draws[None]))


def sgld(model: Any, data: Any, seed: int, *, step: float) -> Look:
    """Minibatches and one step size, `step` per thousand rows."""
    rows = len(next(iter(data.values())))
    batch = min(BATCH, rows)
    density = Density(model, data, seed, CHAINS)
    one = {name: x[:1] for name, x in data.items()}
    twice = {name: np.concatenate([x[:1], x[:1]]) for name, x in data.items()}

    def estimate(flat: Any, some: Any) -> Any:
        # log p(no rows) = 2 log p(one row) - log p(the same row twice)
        prior = 2 * density.log_density(flat, one) - density.log_density(flat, twice)
        return prior + (density.log_density(flat, some) - prior) * (rows / batch)

    kernel = blackjax.sgld(jax.grad(estimate))

    @partial(jax.jit, static_argnums=3)
    def run(flat: Any, data: Any, key: Any, count: int) -> Any:
        def one(flat: Any, key: Any) -> Any:
            pick, move = jax.random.split(key)
            some = jax.random.randint(pick, (batch,), 0, rows)
            flat = kernel.step(move, flat, {name: x[some] for name, x in data.items()}, step * 1_000 / rows)
            return flat, flat

        def few(flat: Any, key: Any) -> Any:
            flat, all_of_them = jax.lax.scan(one, flat, jax.random.split(key, KEPT))
            return flat, all_of_them[-1]

        return jax.vmap(lambda flat, key: jax.lax.scan(few, flat, jax.random.split(key, count // KEPT)))(
            flat, jax.random.split(key, CHAINS)
        )

    flat = density.starts
    data = {name: jnp.asarray(x) for name, x in data.items()}
    flat, _ = run(flat, data, jax.random.key(seed), STEPS // 10)
    kept = []
    for look in range(10):
        flat, positions = run(flat, data, jax.random.key(1_000 * seed + look + 1), STEPS // 10)
        kept.append(np.asarray(positions))
        yield of_chains(density.theta(jnp.asarray(np.concatenate(kept, axis=1))))
