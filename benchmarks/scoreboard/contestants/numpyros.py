"""NumPyro's own: NUTS, HMCECS, and the variational guides."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import HMCECS, MCMC, NUTS, SVI, Trace_ELBO, autoguide
from numpyro.optim import Adam
from numpyro.primitives import Messenger

from benchmarks.scoreboard.answers import Look, looks, of_chains

__all__ = ["hmcecs", "laplace", "nuts", "svi_flow", "svi_normal"]

WARMUP, CHAINS = 1_000, 4
STEPS, LOOKS, DRAWS, RATE = 20_000, 10, 10_000, 5e-3
BATCH = 1_000  # of HMCECS, whose proxy takes the square of it in work and memory
PLATE = "rows"


def nuts(model: Any, data: Any, seed: int) -> Look:
    """Draws as they come."""
    yield from _draws(NUTS(model), data, seed, "vectorized")


def hmcecs(model: Any, data: Any, seed: int) -> Look:
    """Energy-conserving subsampling, with a Taylor proxy around the mode."""
    rows = len(next(iter(data.values())))
    batch = min(BATCH, rows)

    def of_some_rows(**data: Any) -> None:
        with numpyro.plate(PLATE, rows, subsample_size=batch) as picked:
            some = {name: jnp.asarray(x)[picked] for name, x in data.items()}
        with _Picked(rows, picked):
            model(**some)

    guide = autoguide.AutoLaplaceApproximation(model)
    svi = SVI(model, guide, Adam(RATE), Trace_ELBO())
    mode = guide.median(svi.run(jax.random.key(seed), STEPS, **data, progress_bar=False).params)
    proxy = HMCECS.taylor_proxy(mode)
    yield from _draws(HMCECS(NUTS(of_some_rows), num_blocks=10, proxy=proxy), data, seed, "sequential")


class _Picked(Messenger):  # type: ignore[misc]  # NumPyro has no types
    """The plate of a model that was given some rows is that of all of them."""

    def __init__(self, size: int, picked: Any):
        self.size, self.picked = size, picked
        super().__init__()

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate" and msg["name"] == PLATE:
            msg["value"], msg["args"], msg["stop"] = self.picked, (self.size, len(self.picked)), True


def _draws(kernel: Any, data: Any, seed: int, chains: str) -> Look:
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=1, num_chains=CHAINS, chain_method=chains, progress_bar=False)
    mcmc.warmup(jax.random.key(seed), **data)
    kept: dict[str, list[np.ndarray]] = {}
    for more in looks():
        mcmc.num_samples = more
        mcmc.run(mcmc.post_warmup_state.rng_key, **data)
        mcmc.post_warmup_state = mcmc.last_state
        for name, x in mcmc.get_samples(group_by_chain=True).items():
            kept.setdefault(name, []).append(np.asarray(x))
        yield of_chains({name: np.concatenate(parts, axis=1) for name, parts in kept.items()})


def svi_normal(model: Any, data: Any, seed: int) -> Look:
    """A Gaussian with all its correlations."""
    yield from _of_guide(autoguide.AutoMultivariateNormal(model), model, data, seed)


def svi_flow(model: Any, data: Any, seed: int) -> Look:
    """A flow."""
    yield from _of_guide(autoguide.AutoBNAFNormal(model), model, data, seed)


def laplace(model: Any, data: Any, seed: int) -> Look:
    """A Gaussian at the mode."""
    yield from _of_guide(autoguide.AutoLaplaceApproximation(model), model, data, seed)


def _of_guide(guide: Any, model: Any, data: Any, seed: int) -> Look:
    svi = SVI(model, guide, Adam(RATE), Trace_ELBO())
    state = svi.init(jax.random.key(seed), **data)
    steps = jax.jit(
        lambda state, data: jax.lax.fori_loop(0, STEPS // LOOKS, lambda _, s: svi.update(s, **data)[0], state)
    )
    for look in range(LOOKS):
        state = steps(state, data)
        draws = guide.sample_posterior(
            jax.random.key(look), svi.get_params(state), sample_shape=(1, DRAWS), **_observed(guide, data)
        )
        yield of_chains({name: np.asarray(x) for name, x in draws.items()})


def _observed(guide: Any, data: Any) -> dict[str, Any]:
    """What guides ask for who look at the curvature when they are drawn from."""
    return dict(data) if isinstance(guide, autoguide.AutoLaplaceApproximation) else {}
