"""The four targets as four independent variables of one posterior: one compilation serves them all."""

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from experiments.targets import TARGETS

NAMES = ("beta-0.5-0.5", "gamma-0.5-0.5", "half-normal", "truncated-normal--1-1")
FOUR = {name: TARGETS[name] for name in NAMES}
CHAINS = 512


def posterior(noise_sd: float = 1.0) -> ib.Posterior:
    """With Gaussian noise on every gradient, or exact."""
    if noise_sd == 0:
        return ib.Posterior({name: target.prior for name, target in FOUR.items()})

    def gradient(theta, noise):
        return {
            name: target.score(theta[name]) + noise_sd * z
            for (name, target), z in zip(FOUR.items(), noise, strict=True)
        }

    return ib.Posterior(
        supports={name: target.support for name, target in FOUR.items()},
        gradient=gradient,
        data=ib.data.Generated(lambda key: jax.random.normal(key, (len(FOUR),))),
    )


def transforms(positive: str, interval: str) -> dict[str, str]:
    """One transform for the half lines, one for the intervals."""
    return {name: positive if np.isinf(target.high) else interval for name, target in FOUR.items()}


def chains(kernel: ib.Kernel, step_size: float, num_steps: int, burn_in: int = 400, thin: int = 5) -> ib.Draws:
    """Many short chains, started at random quantiles of the targets so that burn-in is short."""
    levels = np.random.default_rng(0).uniform(0.02, 0.98, (len(FOUR), CHAINS))
    table = {n: jnp.asarray(t.quantile(u), np.float32) for (n, t), u in zip(FOUR.items(), levels, strict=True)}

    def start(key):
        row = jax.random.randint(key, (), 0, CHAINS)
        return {name: values[row] for name, values in table.items()}

    return ib.sample(kernel, step_size, num_steps, burn_in=burn_in, thin=thin, num_chains=CHAINS, init=start)


def z_score(values: np.ndarray, truth: float) -> float:
    """(mean over chains - truth) in standard errors: chains are independent of each other."""
    per_chain = np.asarray(values, np.float64).mean(axis=1)
    return float((per_chain.mean() - truth) / (per_chain.std(ddof=1) / np.sqrt(len(per_chain))))
