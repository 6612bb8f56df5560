"""Counts of categories, frequent, rare and never seen, in both orders: against the conjugate law, with nothing chosen but the step."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special

import inbounds as ib
from tests.statistics.four import z_score

# The law of these runs is looked at in other ways.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

CHAINS = 256
COUNTS = {
    "falling": [120, 60, 15, 3, 2],
    "rising": [2, 3, 15, 60, 120],
    "none in the last": [120, 60, 15, 3, 0],
}
SPARSE = {"falling, sparse": [12, 8, 3, 1, 0], "rising, sparse": [0, 1, 3, 8, 12]}
ALPHA = {name: 1.0 for name in COUNTS} | {name: 0.2 for name in SPARSE}


def posterior():
    """Every set of counts as a variable of its own: one compilation serves them all."""
    counts = {name: np.asarray([row], np.float32) for name, row in (COUNTS | SPARSE).items()}
    priors = {name: dist.Dirichlet(jnp.full(5, alpha)) for name, alpha in ALPHA.items()}

    def log_likelihood(theta, batch):
        return sum(jnp.sum(batch[name] * jnp.log(share), axis=-1) for name, share in theta.items())

    return ib.Posterior(priors, log_likelihood, counts)


def test_every_category_mixes_alike_wherever_it_stands_and_has_its_conjugate_law():
    start = {name: np.full(5, 0.2, np.float32) for name in ALPHA}
    kernel = ib.leimkuhler_matthews(posterior())
    draws = ib.sample(kernel, 0.01, 3_000, thin=20, num_chains=CHAINS, init=start, seed=1, progress=False)
    log_theta = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), draws.log_theta())
    # On the way from the start the chains are where those of the other order are.
    for one, other in (("falling", "rising"), ("falling, sparse", "rising, sparse")):
        for draw in (0, 2, 5):
            apart = log_theta[one][:, draw] - log_theta[other][:, draw, ::-1]
            assert np.abs(apart.mean(0) / (apart.std(0, ddof=1) / np.sqrt(CHAINS))).max() < 4.5, (one, draw)
    # In the end they are where the law says: by its moments in the log domain, where the rare weigh as much.
    for name, counts in COUNTS.items():
        total = np.asarray(counts) + ALPHA[name]
        mean = special.digamma(total) - special.digamma(total.sum())
        variance = special.polygamma(1, total) - special.polygamma(1, total.sum())
        for k in range(5):
            settled = log_theta[name][:, 50:, k]
            assert abs(z_score(settled, mean[k])) < 4.5, (name, k)
            assert abs(z_score(np.square(settled - mean[k]), variance[k])) < 4.5, (name, k)
    for name, counts in SPARSE.items():
        total = np.asarray(counts) + ALPHA[name]
        theta = np.asarray(draws.theta[name], np.float64)[:, 100:]
        for k in range(5):
            assert abs(z_score(theta[..., k], total[k] / total.sum())) < 4.5, (name, k)
