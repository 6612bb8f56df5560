"""The mixed models and their data: intercepts and slopes of groups, two sds and a correlation, as in Baek and Berchuck (2026)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

GROUPS, ROWS = 500, 10
MEAN, SCALE, CORRELATION = (-0.5, 0.5), (0.8, 0.3), 0.3
WARMUP, DRAWS, CHAINS = 1_000, 2_500, 4  # of NUTS
FAMILIES: dict[str, Callable[[jax.Array], dist.Distribution]] = {
    "logistic": lambda linear: dist.Bernoulli(logits=linear),
    "Poisson": lambda linear: dist.Poisson(jnp.exp(linear)),
}
GLOBALS = ("mean", "scale", "correlation")


def model(family: str, centred: bool = True) -> Callable[..., None]:
    """The NumPyro model of a family. NUTS moves in effects of unit scale; all else may take them as they are."""

    def mixed(groups: int, group: Any, x: Any, y: Any) -> None:
        mean, factor = _globals()
        with numpyro.plate("groups", groups):
            if centred:
                effect = numpyro.sample("effect", dist.MultivariateNormal(mean, scale_tril=factor))
            else:
                unit = numpyro.sample("unit", dist.Normal(0, 1).expand([2]).to_event(1))
                effect = numpyro.deterministic("effect", mean + unit @ factor.T)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", FAMILIES[family](effect[group, 0] + effect[group, 1] * x), obs=y)

    return mixed


def _globals() -> tuple[Any, Any]:
    """Means, and the Cholesky factor of the effects' covariance: half-t sds, and a uniform correlation (LKJ with shape 1)."""
    mean = numpyro.sample("mean", dist.Normal(0, 5).expand([2]).to_event(1))
    half_t = dist.FoldedDistribution(dist.StudentT(3.0))
    scale = numpyro.sample("scale", half_t.expand([2]).to_event(1))
    correlation = numpyro.sample("correlation", dist.Uniform(-1, 1))
    rest = jnp.sqrt((1 - correlation) * (1 + correlation))
    rows = [jnp.stack([scale[0], jnp.zeros(())]), scale[1] * jnp.stack([correlation, rest])]
    return mean, jnp.stack(rows)


def data(family: str, seed: int = 0) -> tuple[Any, ...]:
    """The arguments of a model, drawn from it."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(GROUPS, dtype=np.int32), ROWS)
    x = generator.uniform(-1, 1, len(group)).astype(np.float32)
    covariance = np.outer(SCALE, SCALE) * [[1, CORRELATION], [CORRELATION, 1]]
    effect = generator.multivariate_normal(MEAN, covariance, GROUPS)
    linear = effect[group, 0] + effect[group, 1] * x
    y = (
        generator.random(len(x)) < 1 / (1 + np.exp(-linear))
        if family == "logistic"
        else generator.poisson(np.exp(linear))
    )
    return GROUPS, group, x, y.astype(np.int32)


def by_nuts(family: str) -> dict[str, np.ndarray]:
    """Draws of the means, sds and correlation: the reference."""
    kernel = NUTS(model(family, centred=False), target_accept_prob=0.9)
    chains = MCMC(
        kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    chains.run(jax.random.key(0), *data(family))
    draws = chains.get_samples()
    return {name: np.asarray(draws[name], float) for name in GLOBALS}
