"""NUTS on all the data, in double precision: what truths are checked against, and what stands for a truth where none is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats import ess
from numpyro.distributions import biject_to
from numpyro.distributions.constraints import Constraint
from numpyro.infer import MCMC, NUTS

import inbounds as ib
from benchmarks.infer.truth import Truth, of_draws

__all__ = ["effective_draws", "nuts", "truth_of_draws"]

Named = dict[str, np.ndarray]


def nuts(
    posterior: ib.Posterior,
    *,
    warmup: int = 1_000,
    draws: int = 1_000,
    chains: int = 4,
    seed: int = 0,
    init: Any = None,
    **options: Any,
) -> Named:
    """Draws of theta by NumPyro's NUTS from the density of a posterior: name -> (chain, draw, ...).

    Args:
        posterior: with a `log_likelihood`, or without data.
        warmup, draws: of each chain.
        chains: side by side, from different starts.
        init: theta near which all chains start; None: starts of the posterior's own.
        seed: of starts and draws.
        options: for `numpyro.infer.NUTS`.
    """
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), chains + 1)
        starts = jax.vmap(posterior.start if init is None else lambda key: _arrays(init))(keys[1:])
        constrained, potential = _potential(posterior)
        phi = jax.vmap(lambda theta: jax.tree.map(lambda t, x: t.inv(x), constrained, _double(theta), is_leaf=_is_map))
        rough = phi(starts)
        rough = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(keys[0], x.shape), rough)
        mcmc = MCMC(
            NUTS(potential_fn=potential, **options),
            num_warmup=warmup,
            num_samples=draws,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        mcmc.run(jax.random.key(seed), init_params=rough)
        found = mcmc.get_samples(group_by_chain=True)
        theta = jax.tree.map(lambda t, x: np.asarray(jax.vmap(jax.vmap(t))(x)), constrained, found, is_leaf=_is_map)
    names = [name for name, _ in posterior.variables()]
    return dict(zip(names, jax.tree.leaves(theta), strict=True))


def _is_map(x: Any) -> bool:
    return hasattr(x, "log_abs_det_jacobian")


def _arrays(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _double(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def _potential(posterior: ib.Posterior) -> tuple[Any, Callable[[Any], jax.Array]]:
    """NumPyro's bijections onto the supports, and minus the log density of what they map."""
    maps = jax.tree.map(biject_to, posterior.supports, is_leaf=lambda x: isinstance(x, Constraint))
    data = None if posterior.data is None else _double(_arrays(posterior.data))

    def density(theta: Any) -> jax.Array:
        if hasattr(posterior, "log_density"):  # a NumPyro model says it itself
            return posterior.log_density(theta)
        total = posterior.log_prior(theta)
        if posterior.log_likelihood is not None:
            total = total + jnp.sum(posterior.log_likelihood(theta, data))
        return total

    def potential(phi: Any) -> jax.Array:
        theta = jax.tree.map(lambda t, x: t(x), maps, phi, is_leaf=_is_map)
        volumes = jax.tree.map(lambda t, x, y: jnp.sum(t.log_abs_det_jacobian(x, y)), maps, phi, theta, is_leaf=_is_map)
        return -density(theta) - sum(jax.tree.leaves(volumes))

    return maps, potential


def effective_draws(draws: Named, method: str) -> Named:
    """Effective sample sizes of each number, by ArviZ: draws are (chain, draw, ...); `method` is "bulk" or "tail"."""
    return {
        name: np.apply_along_axis(
            partial(_ess, shape=x.shape[:2], method=method), 0, np.asarray(x, float).reshape(-1, *x.shape[2:])
        )
        for name, x in draws.items()
    }


def _ess(flat: np.ndarray, shape: tuple[int, int], method: str) -> float:
    tails = {"prob": (0.05, 0.95)} if method == "tail" else {}
    return float(ess(flat.reshape(shape), method=method, **tails)) if np.ptp(flat) else np.nan


def truth_of_draws(draws: Named) -> Truth:
    """What reference draws say, with the standard error of their worst mean."""
    margins = {name: of_draws(x.reshape(-1, *x.shape[2:])) for name, x in draws.items()}
    fewest = min(float(np.nanmin(found)) for found in effective_draws(draws, "bulk").values())
    return Truth(margins, 1 / np.sqrt(fewest))
