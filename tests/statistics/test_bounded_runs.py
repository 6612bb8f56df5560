"""A simplex, ordered cut points, a covariance and a correlation matrix by minibatches: against conjugate laws and quadrature."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import inbounds as ib

ROWS, BATCH, CHAINS = 600, 60, 16
SUPPORTS = {
    "shares": dist.constraints.simplex,
    "cuts": dist.constraints.ordered_vector,
    "covariance": dist.constraints.positive_definite,
    "correlation": dist.constraints.corr_matrix,
}
SCALE, DEGREES = np.diag([1.0, 50.0]), 5.0  # of the inverse Wishart prior
CUT_SD = 5.0


def log_prior(theta):
    """Dirichlet(1), normal cut points, inverse Wishart, and a uniform law of correlation matrices."""
    sigma = theta["covariance"]
    wishart = (DEGREES + 3) * jnp.linalg.slogdet(sigma)[1] + jnp.trace(jnp.linalg.solve(sigma, SCALE))
    return -0.5 * (wishart + jnp.sum(jnp.square(theta["cuts"] / CUT_SD)))


def log_likelihood(theta, batch):
    levels = jnp.concatenate([jnp.zeros(1), jax.nn.sigmoid(theta["cuts"]), jnp.ones(1)])
    of_shares = jnp.log(theta["shares"])[batch["category"]]
    of_cuts = jnp.log(jnp.diff(levels))[batch["answer"]]
    pairs = dist.MultivariateNormal(jnp.zeros(2), theta["covariance"]).log_prob(batch["pair"])
    return (
        of_shares
        + of_cuts
        + pairs
        + dist.MultivariateNormal(jnp.zeros(3), theta["correlation"]).log_prob(batch["three"])
    )


@functools.cache
def problem():
    """(posterior, a start near the mode, the exact laws: points and weights by variable)."""
    rng = np.random.default_rng(0)
    sigma = np.array([[1.0, 9.0], [9.0, 100.0]])
    rho = np.array([[1.0, 0.8, -0.3], [0.8, 1.0, 0.1], [-0.3, 0.1, 1.0]])
    data = {
        "category": rng.choice(4, size=ROWS, p=[0.6, 0.25, 0.1, 0.05]),
        "answer": rng.choice(4, size=ROWS, p=[0.1, 0.2, 0.3, 0.4]),
        "pair": rng.multivariate_normal(np.zeros(2), sigma, size=ROWS).astype(np.float32),
        "three": rng.multivariate_normal(np.zeros(3), rho, size=ROWS).astype(np.float32),
    }
    posterior = ib.Posterior(log_prior=log_prior, supports=SUPPORTS, log_likelihood=log_likelihood, data=data)
    counts, answers = (np.bincount(data[name], minlength=4) for name in ("category", "answer"))
    pair, three = (data[name].astype(float) for name in ("pair", "three"))
    conjugate = stats.invwishart(DEGREES + ROWS, SCALE + pair.T @ pair)
    equal = np.full(100_000, 1e-5)
    laws = {
        "shares": (stats.dirichlet(1 + counts).rvs(100_000, random_state=1), equal),
        "cuts": by_quadrature(lambda c: of_cuts(c, answers), special.logit(np.cumsum(answers)[:3] / ROWS), 0.15),
        "covariance": (conjugate.rvs(100_000, random_state=1)[:, [0, 0, 1], [0, 1, 1]], equal),
        "correlation": by_quadrature(
            lambda r: of_correlations(r, three), np.corrcoef(three.T)[[0, 0, 1], [1, 2, 2]], 0.05
        ),
    }
    start = {name: np.average(points, axis=0, weights=weights) for name, (points, weights) in laws.items()}
    start["covariance"] = matrices(start["covariance"], (0, 2))
    start["correlation"] = matrices_of_correlations(start["correlation"])
    return posterior, jax.tree.map(np.float32, start), laws


def by_quadrature(log_density, middle, sd):
    """(points, weights) of a law in three dimensions, near `middle`, on a grid that its own mean and covariance turn and stretch."""
    unit = np.stack(np.meshgrid(*[np.linspace(-5.5, 5.5, 45)] * 3), axis=-1).reshape(-1, 3)
    mean, root = np.asarray(middle), sd * np.eye(3)
    for _ in range(3):
        points = mean + unit @ root.T
        logs = log_density(points)
        weights = np.exp(logs - np.max(logs))
        weights /= weights.sum()
        mean = weights @ points
        root = np.linalg.cholesky((points - mean).T * weights @ (points - mean))
    return points, weights


def of_cuts(cuts, answers):
    levels = np.concatenate([np.zeros((len(cuts), 1)), special.expit(cuts), np.ones((len(cuts), 1))], axis=1)
    inside = np.all(np.diff(levels) > 0, axis=1)
    shares = np.where(inside[:, None], np.diff(levels), 1.0)
    return np.where(inside, np.log(shares) @ answers - np.sum(np.square(cuts / CUT_SD), axis=1) / 2, -np.inf)


def of_correlations(numbers, rows):
    each = matrices_of_correlations(numbers)
    inside = np.linalg.eigvalsh(each)[:, 0] > 1e-6
    each[~inside] = np.eye(3)
    quadratic = np.einsum("nij,ij->n", np.linalg.inv(each), rows.T @ rows)
    return np.where(inside, -0.5 * (ROWS * np.linalg.slogdet(each)[1] + quadratic), -np.inf)


def matrices(numbers, diagonal):
    """[[a, b], [b, c]] of (a, b, c)."""
    return numbers[..., [0, 1, 1, 2]].reshape(*numbers.shape[:-1], 2, 2)


def matrices_of_correlations(numbers):
    whole = np.concatenate([np.ones((*numbers.shape[:-1], 1)), numbers], axis=-1)
    return whole[..., [0, 1, 2, 1, 0, 3, 2, 3, 0]].reshape(*numbers.shape[:-1], 3, 3)


def numbers_of(draws):
    """The free numbers of every variable, (chain, draw, number)."""
    theta = {name: np.asarray(leaf, float) for name, leaf in draws.theta.items()}
    theta["covariance"] = theta["covariance"][..., [0, 0, 1], [0, 1, 1]]
    theta["correlation"] = theta["correlation"][..., [0, 0, 1], [1, 2, 2]]
    return theta


@functools.cache
def metric():
    posterior, start, _ = problem()
    return ib.metrics.laplace(posterior, start, batch_size=BATCH)


@pytest.mark.parametrize("make", [ib.leimkuhler_matthews, ib.baoab], ids=["leimkuhler_matthews", "baoab"])
def test_bounded_vectors_and_matrices_have_their_exact_laws(make):
    """Plain minibatches, corrected, whose noise is 0.3 of what is injected, by one kernel; second-order control variates by the other."""
    posterior, start, laws = problem()
    corrects = make is ib.leimkuhler_matthews
    gradient = ib.gradients.minibatch if corrects else ib.gradients.taylor(center=start)
    kernel = make(posterior, metric=metric(), gradient=gradient, noise_correction=corrects)
    step_size = 0.06 if corrects else 0.2
    steps = int(60 / step_size)
    draws = ib.sample(
        kernel, step_size, 6 * steps, burn_in=steps, thin=2, batch_size=BATCH, num_chains=CHAINS, init=start,
        batching="replacement", progress=False,
    )  # fmt: skip
    for name, values in numbers_of(draws).items():
        points, weights = laws[name]
        mean = weights @ points
        covariance = (points - mean).T * weights @ (points - mean)
        sd = np.sqrt(np.diag(covariance))
        standard = (values - mean) / sd
        pairs = standard[..., :, None] * standard[..., None, :]
        for found, truth in ((standard, 0.0), (pairs, covariance / np.outer(sd, sd))):
            of_chains = found.mean(axis=1)
            error = of_chains.std(axis=0, ddof=1) / np.sqrt(CHAINS)
            assert np.all(np.abs(of_chains.mean(axis=0) - truth) < 4.5 * error + 0.04), name
