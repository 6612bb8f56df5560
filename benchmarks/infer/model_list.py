"""Thirty models as people write them: of the README and the examples, the estimators, hierarchies, simplexes, orders, covariances.

`MODELS[name]()` makes the posterior, data included: small enough for a reference by NUTS in double precision.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

import inbounds as ib

__all__ = ["MODELS"]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MODELS: dict[str, Callable[[], ib.Posterior]] = {}


def entered(make: Callable[[], Any]) -> Callable[[], Any]:
    """Enter a function into the table: it returns a posterior, or a NumPyro model with its arguments."""

    def posterior() -> ib.Posterior:
        made = make()
        return made if isinstance(made, ib.Posterior) else ib.from_numpyro(*made)

    MODELS[make.__name__] = posterior
    return make


def example(name: str, rows: int) -> None:
    """Enter a worked example with so many rows."""

    def make() -> ib.Posterior:
        sys.path.insert(0, str(EXAMPLES))
        try:
            module = importlib.import_module(name)
        finally:
            sys.path.remove(str(EXAMPLES))
        return ib.from_numpyro(module.model, *module.data(rows))

    MODELS[name] = make


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng([2026, seed])


def single(x: Any) -> np.ndarray:
    return np.asarray(x, np.float32)


def vector(prior: dist.Distribution, *shape: int) -> dist.Distribution:
    return prior.expand(list(shape)).to_event(len(shape))


# -- the README ----------------------------------------------------------------------------------------------------


@entered
def spending():
    rng = random(0)
    bought = rng.uniform(size=10_000) < 0.3
    spent = single(np.where(bought, rng.exponential(2.0, size=10_000), 0))

    def log_likelihood(theta, batch):
        spend = jnp.log(theta["chance"]) + jnp.log(theta["rate"]) - theta["rate"] * batch["spent"]
        return jnp.where(batch["bought"], spend, jnp.log1p(-theta["chance"]))

    priors = {"chance": dist.Beta(0.5, 0.5), "rate": dist.Gamma(0.5, 0.5)}
    return ib.Posterior(priors, log_likelihood, data={"bought": bought, "spent": spent})


@entered
def additive_counts():
    def model(x, y):
        effects = numpyro.sample("effects", vector(dist.HalfNormal(1.0), 3))
        with numpyro.plate("data", len(y), subsample_size=500) as rows:
            numpyro.sample("y", dist.Poisson(x[rows] @ effects), obs=y[rows])

    x = single(random(1).exponential(size=(5_000, 3)))
    return model, jnp.asarray(x), jnp.asarray(random(2).poisson(x @ np.array([1.0, 0.5, 0.2])))


# -- the examples --------------------------------------------------------------------------------------------------

example("mixture", 2_000)
example("hierarchical", 2_000)
example("inclusion", 300)
example("gamma_regression", 5_000)
example("logistic_regression", 10_000)


# -- the likelihoods of the estimators -----------------------------------------------------------------------------


def ratings(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = random(seed)
    user, item = rng.integers(0, 10, 800).astype(np.int32), rng.integers(0, 8, 800).astype(np.int32)
    return user, item, rng.gamma(4.0, 0.5, 10)[user] * rng.gamma(4.0, 0.4, 8)[item]


@entered
def poisson_factors():
    def model(user, item, rating):
        w = numpyro.sample("W", vector(dist.Exponential(1.0), 10))
        h = numpyro.sample("H", vector(dist.Exponential(1.0), 8))
        with numpyro.plate("ratings", len(rating)):
            numpyro.sample("rating", dist.Poisson(w[user] * h[item]), obs=rating)

    user, item, mean = ratings(3)
    return model, user, item, single(random(4).poisson(mean))


@entered
def gaussian_factors():
    def model(user, item, rating):
        w = numpyro.sample("W", vector(dist.Exponential(1.0), 10))
        h = numpyro.sample("H", vector(dist.Exponential(1.0), 8))
        precision = numpyro.sample("precision", dist.Gamma(1.0, 1.0))
        with numpyro.plate("ratings", len(rating)):
            numpyro.sample("rating", dist.Normal(w[user] * h[item], precision**-0.5), obs=rating)

    user, item, mean = ratings(5)
    return model, user, item, single(mean + 0.7 * random(6).normal(size=len(mean)))


@entered
def bounded_weights():
    """One layer of the binary network: weights in (-1, 1), whose density is infinite at the ends."""

    def model(x, y):
        half = numpyro.sample("half", vector(dist.Beta(0.5, 0.5), 6))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ (2 * half - 1)), obs=y)

    x = single(random(7).normal(size=(500, 6)))
    chance = 1 / (1 + np.exp(-x @ np.array([1.0, -1.0, 0.5, 0.0, -0.3, 1.0])))
    return model, x, single(random(8).uniform(size=500) < chance)


@entered
def topics():
    """Two topics, with the documents' proportions given."""

    def model(share, counts):
        topic = numpyro.sample("topics", dist.Dirichlet(0.5 * jnp.ones((2, 6))).to_event(1))
        with numpyro.plate("documents", len(counts)):
            numpyro.sample("words", dist.Multinomial(20, share @ topic), obs=counts)

    rng = random(9)
    share = rng.dirichlet([0.5, 0.5], 200)
    word = share @ rng.dirichlet(np.full(6, 0.5), 2)
    return model, single(share), jnp.asarray(np.stack([rng.multinomial(20, row / row.sum()) for row in word]))


# -- hierarchies ---------------------------------------------------------------------------------------------------


@entered
def schools():
    def model(y, sigma):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        z = numpyro.sample("z", vector(dist.Normal(0.0, 1.0), 8))
        with numpyro.plate("schools", 8):
            numpyro.sample("y", dist.Normal(mu + tau * z, sigma), obs=y)

    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    return model, single(6 + random(10).normal(size=8) * np.hypot(sigma, 5)), single(sigma)


@entered
def random_intercepts():
    def model(group, x, y):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        z = numpyro.sample("z", vector(dist.Normal(0.0, 1.0), 25))
        with numpyro.plate("rows", len(y)):
            logits = intercept + slope * x + scale * z[group]
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    rng = random(11)
    group, x = (np.arange(1_000) % 25).astype(np.int32), single(rng.normal(size=1_000))
    logits = -0.3 + 0.5 * x + 0.8 * rng.normal(size=25)[group]
    return model, group, x, single(rng.uniform(size=1_000) < 1 / (1 + np.exp(-logits)))


@entered
def varying_slopes():
    """Intercepts and slopes of twenty groups, centred, each with its own spread."""

    def model(group, x, y):
        center = numpyro.sample("center", vector(dist.Normal(0.0, 2.0), 2))
        spread = numpyro.sample("spread", vector(dist.HalfNormal(1.0), 2))
        effect = numpyro.sample("effect", dist.Normal(center, spread).expand([20, 2]).to_event(2))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(effect[group, 0] + effect[group, 1] * x, noise), obs=y)

    rng = random(12)
    group, x = (np.arange(1_000) % 20).astype(np.int32), single(rng.normal(size=1_000))
    effects = np.array([1.0, -0.5]) + rng.normal(size=(20, 2)) * [0.5, 0.3]
    return model, group, x, single(effects[group, 0] + effects[group, 1] * x + 0.8 * rng.normal(size=1_000))


@entered
def crossed_effects():
    def model(person, question, y):
        center = numpyro.sample("center", dist.Normal(0.0, 2.0))
        of_person = numpyro.sample("of_person", dist.HalfNormal(1.0))
        of_question = numpyro.sample("of_question", dist.HalfNormal(1.0))
        p = numpyro.sample("p", vector(dist.Normal(0.0, 1.0), 15))
        q = numpyro.sample("q", vector(dist.Normal(0.0, 1.0), 10))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("answers", len(y)):
            mean = center + of_person * p[person] + of_question * q[question]
            numpyro.sample("y", dist.Normal(mean, noise), obs=y)

    rng = random(13)
    person, question = (np.arange(600) % 15).astype(np.int32), rng.integers(0, 10, 600).astype(np.int32)
    y = 0.6 * rng.normal(size=15)[person] + 0.9 * rng.normal(size=10)[question] + rng.normal(size=600)
    return model, person, question, single(y)


@entered
def gamma_rates():
    def model(group, y):
        shape = numpyro.sample("shape", dist.Gamma(2.0, 0.5))
        mean = numpyro.sample("mean", dist.Gamma(2.0, 0.5))
        rate = numpyro.sample("rate", vector(dist.Gamma(shape, shape / mean), 20))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Poisson(rate[group]), obs=y)

    rng = random(14)
    group = (np.arange(400) % 20).astype(np.int32)
    return model, group, single(rng.poisson(rng.gamma(3.0, 1.0, 20)[group]))


@entered
def correlated_slopes():
    """Intercepts and slopes of fifteen groups with a correlation between them, not centred."""

    def model(group, x, y):
        center = numpyro.sample("center", vector(dist.Normal(0.0, 2.0), 2))
        spread = numpyro.sample("spread", vector(dist.HalfNormal(1.0), 2))
        factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        z = numpyro.sample("z", vector(dist.Normal(0.0, 1.0), 15, 2))
        effect = center + z @ (spread[:, None] * factor).T
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(effect[group, 0] + effect[group, 1] * x, 0.5), obs=y)

    rng = random(15)
    group, x = (np.arange(600) % 15).astype(np.int32), single(rng.normal(size=600))
    effects = rng.multivariate_normal([1.0, 0.5], [[0.5, -0.2], [-0.2, 0.3]], 15)
    return model, group, x, single(effects[group, 0] + effects[group, 1] * x + 0.5 * rng.normal(size=600))


# -- simplexes, orders, covariances --------------------------------------------------------------------------------


@entered
def shares():
    def model(chosen):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(8)))
        with numpyro.plate("rows", len(chosen)):
            numpyro.sample("chosen", dist.Categorical(share), obs=chosen)

    rng = random(16)
    return model, rng.choice(8, 1_000, p=rng.dirichlet(np.ones(8))).astype(np.int32)


@entered
def mixing_weights():
    """Weights of four normals that are known."""

    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(4)))
        parts = dist.Normal(jnp.array([-2.0, 0.0, 1.0, 3.0]), 1.0)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)

    rng = random(17)
    return model, single(rng.choice([-2.0, 0.0, 1.0, 3.0], 1_000, p=[0.3, 0.05, 0.4, 0.25]) + rng.normal(size=1_000))


@entered
def ordinal():
    def model(x, y):
        slope = numpyro.sample("slope", vector(dist.Normal(0.0, 2.0), 2))
        base = dist.Normal(0.0, 2.0).expand([3]).to_event(1)
        cuts = numpyro.sample("cuts", dist.TransformedDistribution(base, OrderedTransform()))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.OrderedLogistic(x @ slope, cuts), obs=y)

    rng = random(18)
    x = single(rng.normal(size=(1_000, 2)))
    return model, x, np.digitize(x @ [1.0, -0.5] + rng.logistic(size=1_000), [-1.0, 0.0, 1.5]).astype(np.int32)


def triples(seed: int) -> np.ndarray:
    units = np.array([1.0, 3.0, 0.5])
    correlation = np.array([[1.0, 0.7, 0.2], [0.7, 1.0, -0.1], [0.2, -0.1, 1.0]])
    return single(random(seed).multivariate_normal(np.zeros(3), units[:, None] * correlation * units, 500))


@entered
def correlation():
    def model(y):
        scale = numpyro.sample("scale", vector(dist.HalfNormal(3.0), 3))
        factor = numpyro.sample("factor", dist.LKJCholesky(3, 1.0))
        with numpyro.plate("rows", len(y)):
            law = dist.MultivariateNormal(jnp.zeros(3), scale_tril=scale[:, None] * factor)
            numpyro.sample("y", law, obs=y)

    return model, triples(19)


@entered
def precision():
    def model(y):
        matrix = numpyro.sample("precision", dist.Wishart(5.0, jnp.eye(3)))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(3), precision_matrix=matrix), obs=y)

    return model, triples(20)


# -- regressions, times, a process ---------------------------------------------------------------------------------


@entered
def negative_binomial():
    def model(x, y):
        w = numpyro.sample("w", vector(dist.Normal(0.0, 2.0), 3))
        size = numpyro.sample("size", dist.Gamma(2.0, 0.5))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ w), size), obs=y)

    rng = random(21)
    x = single(np.column_stack([np.ones(1_000), rng.normal(size=(1_000, 2))]))
    mean = np.exp(x @ [0.5, 0.3, -0.4])
    return model, x, single(rng.negative_binomial(2.0, 2.0 / (2.0 + mean)))


@entered
def robust_regression():
    def model(x, y):
        w = numpyro.sample("w", vector(dist.Normal(0.0, 5.0), 4))
        scale = numpyro.sample("scale", dist.HalfNormal(2.0))
        freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.StudentT(freedom, x @ w, scale), obs=y)

    rng = random(22)
    x = single(np.column_stack([np.ones(1_000), 3 + rng.normal(size=(1_000, 3))]))
    return model, x, single(x @ [1.0, 0.5, -0.5, 0.0] + 0.7 * rng.standard_t(4, 1_000))


@entered
def survival():
    """Weibull times with covariates, a third of them cut off."""

    def model(x, time, event):
        shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.5))
        w = numpyro.sample("w", vector(dist.Normal(0.0, 2.0), 3))
        with numpyro.plate("rows", len(time)):
            log_ratio = shape * (jnp.log(time) - x @ w)
            hazard = jnp.where(event, jnp.log(shape) - jnp.log(time) + log_ratio, 0.0)
            numpyro.factor("y", hazard - jnp.exp(log_ratio))

    rng = random(23)
    x = single(np.column_stack([np.ones(1_000), rng.normal(size=(1_000, 2))]))
    time = np.exp(x @ [0.5, 0.3, -0.2]) * rng.weibull(1.5, 1_000)
    cut = rng.exponential(4.0, 1_000)
    return model, x, single(np.maximum(np.minimum(time, cut), 1e-4)), time < cut


@entered
def proportions():
    def model(x, y):
        w = numpyro.sample("w", vector(dist.Normal(0.0, 2.0), 3))
        total = numpyro.sample("total", dist.Gamma(2.0, 0.1))
        mean = jax.nn.sigmoid(x @ w)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Beta(mean * total, (1 - mean) * total), obs=y)

    rng = random(24)
    x = single(np.column_stack([np.ones(1_000), rng.normal(size=(1_000, 2))]))
    mean = 1 / (1 + np.exp(-x @ [-0.5, 0.8, 0.2]))
    return model, x, single(np.clip(rng.beta(8 * mean, 8 * (1 - mean)), 1e-4, 1 - 1e-4))


@entered
def zero_inflated():
    def model(x, y):
        chance = numpyro.sample("chance", dist.Beta(1.0, 1.0))
        w = numpyro.sample("w", vector(dist.Normal(0.0, 2.0), 3))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.ZeroInflatedPoisson(chance, jnp.exp(x @ w)), obs=y)

    rng = random(25)
    x = single(np.column_stack([np.ones(1_000), rng.normal(size=(1_000, 2))]))
    return model, x, single(rng.poisson(np.exp(x @ [0.7, 0.4, -0.3])) * (rng.uniform(size=1_000) > 0.25))


@entered
def uneven_noise():
    def model(x, y):
        w = numpyro.sample("w", vector(dist.Normal(0.0, 5.0), 3))
        v = numpyro.sample("v", vector(dist.Normal(0.0, 2.0), 3))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(x @ w, jnp.exp(x @ v)), obs=y)

    rng = random(26)
    x = single(np.column_stack([np.ones(1_000), rng.normal(size=(1_000, 2))]))
    return model, x, single(x @ [1.0, 2.0, -1.0] + np.exp(x @ [0.0, 0.5, -0.3]) * rng.normal(size=1_000))


@entered
def classes():
    """Three classes, the first of which has weights of 0."""

    def model(x, y):
        w = numpyro.sample("w", vector(dist.Normal(0.0, 2.0), 4, 2))
        with numpyro.plate("rows", len(y)):
            logits = jnp.concatenate([jnp.zeros((len(x), 1)), x @ w], axis=1)
            numpyro.sample("y", dist.Categorical(logits=logits), obs=y)

    rng = random(27)
    x = single(np.column_stack([np.ones(1_000), rng.normal(size=(1_000, 3))]))
    heights = np.column_stack([np.zeros(1_000), x @ rng.normal(size=(4, 2))]) + rng.gumbel(size=(1_000, 3))
    return model, x, heights.argmax(1).astype(np.int32)


@entered
def process():
    """A Gaussian process on thirty points: no rows that could be drawn."""

    def model(x, y):
        size = numpyro.sample("size", dist.HalfNormal(2.0))
        length = numpyro.sample("length", dist.LogNormal(0.0, 0.5))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        distance = (x[:, None] - x[None, :]) / length
        covariance = size**2 * jnp.exp(-0.5 * distance**2) + (noise**2 + 1e-4) * jnp.eye(len(x))
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)

    x = np.linspace(0, 6, 30)
    return model, single(x), single(np.sin(1.5 * x) + 0.3 * random(28).normal(size=30))
