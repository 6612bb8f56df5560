"""Factor models against densities that SciPy writes down, and a table whose posterior is known by quadrature."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import inbounds as ib
from inbounds.data.ratings import Ratings
from inbounds.models.factors import LIKELIHOODS, FactorModel

SMALL = Ratings.from_columns([0, 0, 1, 1, 2], [0, 1, 0, 2, 1], [2.0, 5.0, 1.0, 3.0, 4.0])


def scipys_log_prior(model, theta):
    """The priors of the class's docstring, each of its variables by name."""
    if model.offsets:
        total = sum(stats.norm.logpdf(theta[name], 3.0, 1.0).sum() for name in ("W", "H"))
        sd = {"gaussian": 0.1, "binomial": 0.1, "poisson": 0.5}[model.likelihood]
        total += sum(stats.norm.logpdf(theta[name], 0.0, sd).sum() for name in ("user_offset", "item_offset"))
        total += stats.norm.logpdf(theta["coupling"], model.prior_mean("coupling"), np.sqrt(0.15) / model.rank).sum()
    else:
        total = sum(stats.expon.logpdf(theta[name], scale=1 / model.prior_rate).sum() for name in ("W", "H"))
    if model.likelihood == "gaussian":
        total += stats.gamma.logpdf(theta["precision"], 2.0)
    return total


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_prior_is_that_of_the_docstring(likelihood, offsets):
    """Every variable is moved alone, so that none can hide behind another."""
    model = FactorModel.of(SMALL, 2, likelihood, offsets)
    random = np.random.default_rng(0)
    theta = {name: 1.0 + random.random(shape) for name, shape in model.shapes.items()}
    for name, shape in model.shapes.items():
        moved = theta | {name: theta[name] + 0.5 * random.random(shape)}
        ours = [float(model.log_prior({k: jnp.asarray(v, jnp.float32) for k, v in x.items()})) for x in (theta, moved)]
        exact = scipys_log_prior(model, moved) - scipys_log_prior(model, theta)
        assert ours[1] - ours[0] == pytest.approx(exact, rel=1e-3, abs=2e-3), name


def exact_moments(table, rate):
    """Means and sds of W_i H_j for Poisson counts, exponential priors and rank 1.

    Given H the W_i are gamma variables, and integrated out; the share of H_1 in t = H_1 + H_2 is a beta variable, independent of t.
    """
    of_row, of_column, total = table.sum(axis=1), table.sum(axis=0), table.sum()

    def log_density(t):
        return (total + 1) * np.log(t) - rate * t - (total + 2) * np.log(rate + t)

    def of_t(power):
        def weighted(log_t):
            t = np.exp(log_t)
            return (t / (rate + t)) ** power * np.exp(log_density(t) + log_t)

        return integrate.quad(weighted, -12, 8, epsabs=0, epsrel=1e-8, limit=200)[0]

    share = stats.beta(1 + of_column, 1 + total - of_column)
    first = of_t(1) / of_t(0) * np.outer(1 + of_row, share.mean())
    second = of_t(2) / of_t(0) * np.outer((1 + of_row) * (2 + of_row), share.var() + share.mean() ** 2)
    return first, np.sqrt(second - first**2)


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")  # each of the many chains is short
@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_products_of_factors_have_the_moments_of_quadrature(rate):
    """As the estimator samples it: its kernel, preconditioner and transforms, with all the ratings in a step."""
    table = np.array([[3.0, 1.0], [6.0, 4.0]])
    ratings = Ratings.from_columns([0, 0, 1, 1], [0, 1, 0, 1], table.ravel())
    estimator = ib.models.BayesianNMF(
        1, likelihood="poisson", offsets=False, prior_rate=rate, kernel="leimkuhler_matthews"
    )
    model = FactorModel.of(ratings, 1, "poisson", False, rate)
    run = ib.sample(
        estimator._kernel(model, ratings, 4), 0.05, 1_600, burn_in=400, thin=10, batch_size=4, num_chains=400, seed=0,
        init=model.start, progress=False,
    )  # fmt: skip
    w, h = (np.asarray(run.theta[name], float)[..., 0].reshape(-1, 2) for name in ("W", "H"))
    product = w[:, :, None] * h[:, None, :]
    mean, sd = exact_moments(table, rate)
    np.testing.assert_allclose(product.mean(axis=0), mean, rtol=0.03)
    np.testing.assert_allclose(product.std(axis=0), sd, rtol=0.04)
