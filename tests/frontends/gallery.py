"""The fifty models of docs/results/pymc/README.md, with data of their shapes that are drawn here.

The statements are those of the pages; the code is ours. Each entry says what becomes of its model: "rows" (minibatches), "all" (every step
takes all the data, and the reason is in `why`) or "refused".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

ROWS = 48


@dataclass(frozen=True)
class Entry:
    """A model of the list: its number there, what builds it, what becomes of it, and words of the reason.

    `width` is how far from PyMC's start the densities are compared, on PyMC's transformed scale.
    """

    number: int
    build: Callable[[np.random.Generator], Any]
    outcome: str
    why: str
    width: float

    @property
    def name(self) -> str:
        return self.build.__name__

    def model(self) -> Any:
        """The model, a `pm.Model` or a `bmb.Model`, with the same data at every call."""
        return self.build(np.random.default_rng(self.number))


GALLERY: dict[int, Entry] = {}


def entry(number: int, outcome: str = "rows", why: str = "", width: float = 0.3) -> Callable:
    def note(build: Callable) -> Callable:
        GALLERY[number] = Entry(number, build, outcome, why, width)
        return build

    return note


# -- PyMC --------------------------------------------------------------------------------------------------------------


@entry(1)
def linear_regression(rng):
    x = np.linspace(0, 1, ROWS)
    with pm.Model() as model:
        sigma = pm.HalfCauchy("sigma", beta=10)
        intercept = pm.Normal("intercept", 0, sigma=20)
        slope = pm.Normal("slope", 0, sigma=20)
        pm.Normal("y", mu=intercept + slope * x, sigma=sigma, observed=rng.normal(1 + 2 * x, 0.5))
    return model


@entry(2)
def two_slopes(rng):
    x1, x2 = rng.normal(size=(2, ROWS))
    y = rng.normal(1 + x1 + 2.5 * 0.2 * x2, 1.0)
    with pm.Model() as model:
        alpha = pm.Normal("alpha", mu=0, sigma=10)
        beta = pm.Normal("beta", mu=0, sigma=10, shape=2)
        sigma = pm.HalfNormal("sigma", sigma=1)
        mu = pm.Deterministic("mu", alpha + beta[0] * x1 + beta[1] * x2)
        pm.Normal("y", mu=mu, sigma=sigma, observed=y)
    return model


@entry(3)
def robust_regression(rng):
    x = np.linspace(0, 1, ROWS)
    y = 1 + 2 * x + rng.normal(0, 0.3, ROWS)
    y[:3] += [4, 3, 5]
    with pm.Model(coords={"point": np.arange(ROWS)}) as model:
        at = pm.Data("x", x, dims="point")
        intercept = pm.Normal("intercept", 0, sigma=1)
        slope = pm.Normal("slope", 0, sigma=1)
        sigma = pm.HalfCauchy("sigma", beta=10)
        nu = pm.Exponential("nu", 1 / 29)
        pm.StudentT("y", nu=nu + 1, mu=intercept + slope * at, sigma=sigma, observed=y, dims="point")
    return model


@entry(4, "refused", "discrete")
def outlier_classification(rng):
    x = rng.normal(size=20)
    y, errors = rng.normal(30 + 2 * x, 1.0), rng.uniform(0.5, 1.5, 20)
    with pm.Model(coords={"point": np.arange(20)}) as model:
        beta = pm.Normal("beta", 0, 10, shape=2)
        outlying_mean = pm.Normal("outlying_mean", 0, 10)
        outlying_sd = pm.HalfNormal("outlying_sd", 10)
        share = pm.Uniform("share", 0, 0.5)
        outlier = pm.Bernoulli("outlier", share, dims="point")
        inside = pm.logp(pm.Normal.dist(beta[0] + beta[1] * x, errors), y)
        outside = pm.logp(pm.Normal.dist(outlying_mean, errors + outlying_sd), y)
        pm.Potential("inliers", ((1 - outlier) * inside).sum())
        pm.Potential("outliers", (outlier * outside).sum())
    return model


@entry(5)
def heteroscedastic_regression(rng):
    x = rng.uniform(0, 3, ROWS)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 5, shape=2)
        gamma = pm.Normal("gamma", 0, 1, shape=2)
        scale = pm.Deterministic("scale", pm.math.exp(gamma[0] + gamma[1] * x))
        pm.Normal("y", beta[0] + beta[1] * x, scale, observed=rng.normal(x, np.exp(x / 3)))
    return model


def _sneezes(rng):
    """(alcohol, no antihistamines, sneezes)"""
    alcohol, untreated = rng.integers(0, 2, (2, ROWS)).astype(float)
    return alcohol, untreated, rng.poisson(np.exp(0.3 + 1.1 * alcohol + 1.8 * untreated - 0.1 * alcohol * untreated))


@entry(6)
def poisson_regression(rng):
    alcohol, untreated, sneezes = _sneezes(rng)
    with pm.Model() as model:
        b = [pm.Normal(name, 0, 10) for name in ("b0", "b1", "b2", "b3")]
        theta = b[0] + b[1] * alcohol + b[2] * untreated + b[3] * alcohol * untreated
        pm.Poisson("y", mu=pm.math.exp(theta), observed=sneezes)
    return model


@entry(7)
def negative_binomial_regression(rng):
    alcohol, untreated, sneezes = _sneezes(rng)
    with pm.Model(coords={"person": np.arange(ROWS)}) as model:
        b = [pm.Normal(name, 0, 1) for name in ("b0", "b1", "b2", "b3")]
        alpha = pm.Exponential("alpha", 0.5)
        theta = b[0] + b[1] * alcohol + b[2] * untreated + b[3] * alcohol * untreated
        pm.NegativeBinomial("y", mu=pm.math.exp(theta), alpha=alpha, observed=sneezes, dims="person")
    return model


@entry(8)
def binomial_regression(rng):
    x, n = rng.uniform(-10, 20, ROWS), 20
    y = rng.binomial(n, 1 / (1 + np.exp(-(-2 + 0.5 * x))))
    with pm.Model(coords={"observation": np.arange(ROWS)}) as model:
        at = pm.Data("x", x, dims="observation")
        counts = pm.Data("y", y, dims="observation")
        beta0 = pm.Normal("beta0", 0, 1)
        beta1 = pm.Normal("beta1", 0, 1)
        p = pm.Deterministic("p", pm.math.invlogit(beta0 + beta1 * at), dims="observation")
        pm.Binomial("likelihood", n=n, p=p, observed=counts, dims="observation")
    return model


@entry(9)
def logistic_regression_with_interaction(rng):
    x = rng.normal(size=(2, ROWS))
    design = np.column_stack([np.ones(ROWS), *x, x[0] * x[1]])
    y = rng.binomial(1, 1 / (1 + np.exp(-design @ [-0.5, 1.0, -1.0, 2.0])))
    with pm.Model(coords={"coeffs": ["intercept", "x1", "x2", "x1:x2"], "row": np.arange(ROWS)}) as model:
        X = pm.Data("X", design, dims=("row", "coeffs"))
        labels = pm.Data("labels", y, dims="row")
        b = pm.Normal("b", mu=0, sigma=1, dims="coeffs")
        mu = pm.math.dot(X, b)
        p = pm.Deterministic("p", pm.math.invlogit(mu), dims="row")
        pm.Bernoulli("obs", p=p, observed=labels, dims="row")
    return model


@entry(10)
def ordinal_regression(rng):
    x = rng.normal(size=ROWS)
    y = np.digitize(0.8 * x + rng.logistic(size=ROWS), [-1.0, 0.5, 1.5])
    with pm.Model() as model:
        cutpoints = pm.Normal(
            "cutpoints", 0, 2, shape=3, initval=[-1.0, 0.0, 1.0], transform=pm.distributions.transforms.ordered
        )
        beta = pm.Normal("beta", 0, 1)
        pm.OrderedLogistic("y", eta=beta * x, cutpoints=cutpoints, observed=y, compute_p=False)
    return model


@entry(11)
def ordinal_features(rng):
    level = rng.integers(0, 5, ROWS)
    y = rng.normal(np.array([0, 0.1, 0.6, 0.9, 1.0])[level], 0.3)
    with pm.Model(coords={"step": np.arange(4), "row": np.arange(ROWS)}) as model:
        sigma = pm.Exponential("sigma", 2.0)
        intercept = pm.Normal("intercept", 0, 4)
        beta = pm.Normal("beta", 0, 4)
        steps = pm.Dirichlet("steps", a=np.ones(4), dims="step")
        reached = pt.concatenate([np.zeros(1), pm.math.cumsum(steps)])
        pm.Normal("y", intercept + beta * reached[level], sigma, observed=y, dims="row")
    return model


def _line(rng):
    x = rng.uniform(-10, 10, ROWS)
    return x, rng.normal(x, 2.0)


@entry(12)
def truncated_regression(rng):
    x, y = _line(rng)
    x, y = x[(y > -5) & (y < 5)], y[(y > -5) & (y < 5)]
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        intercept = pm.Normal("intercept", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Truncated("y", pm.Normal.dist(slope * x + intercept, sigma), lower=-5, upper=5, observed=y)
    return model


@entry(13)
def censored_regression(rng):
    x, y = _line(rng)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        intercept = pm.Normal("intercept", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        latent = pm.Normal.dist(slope * x + intercept, sigma)
        pm.Censored("y", latent, lower=-5, upper=5, observed=np.clip(y, -5, 5))
    return model


@entry(14)
def multinomial_logit(rng):
    cost, running = rng.uniform(0.5, 2, (2, ROWS, 3))
    utility = 0.3 * np.arange(3) - cost - running + rng.gumbel(size=(ROWS, 3))
    coords = {"alternative": ["ec", "er", "gc"], "household": np.arange(ROWS)}
    with pm.Model(coords=coords) as model:
        beta_cost = pm.Normal("beta_cost", 0, 1)
        beta_running = pm.Normal("beta_running", 0, 1)
        alpha = pm.Normal("alpha", 0, 1, dims="alternative")
        u = [(0 if j == 2 else alpha[j]) + beta_cost * cost[:, j] + beta_running * running[:, j] for j in range(3)]
        s = pm.math.stack(u).T
        p = pm.Deterministic("p", pm.math.softmax(s, axis=1), dims=("household", "alternative"))
        pm.Categorical("y", p=p, observed=utility.argmax(1), dims="household")
    return model


@entry(15)
def simpsons_paradox(rng):
    group = np.sort(rng.integers(0, 5, ROWS))
    x = rng.normal(group, 0.5)
    y = rng.normal(2 * group - (x - group), 0.3)
    with pm.Model(coords={"group": list("ABCDE"), "obs": np.arange(ROWS)}) as model:
        mean = pm.Normal("mean", 0, 1, shape=2)
        spread = pm.HalfNormal("spread", 1, shape=2)
        which = pm.Data("which", group, dims="obs")
        at = pm.Data("at", x, dims="obs")
        u0 = pm.Normal("u0", mean[0], spread[0], dims="group")
        u1 = pm.Normal("u1", mean[1], spread[1], dims="group")
        mu = pm.Deterministic("mu", u0[which] + u1[which] * at, dims="obs")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=y, dims="obs")
    return model


@entry(16, "all", "'x_unobserved'")
def missing_covariates(rng):
    x = rng.normal(size=ROWS)
    y = rng.normal(1 + x, 0.5)
    gaps = np.ma.masked_array(x, mask=rng.uniform(size=ROWS) < 0.2)
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1)
        spread = pm.HalfNormal("spread", 1)
        covariate = pm.Normal("x", mean, spread, observed=gaps)
        b = pm.Normal("b", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", b[0] + b[1] * covariate, sigma, observed=y)
    return model


@entry(17)
def zero_sum_groups(rng):
    group = rng.integers(0, 4, ROWS)
    y = rng.normal(np.array([-1, 0, 0.5, 0.5])[group], 1.0)
    with pm.Model(coords={"group": list("abcd")}) as model:
        intercept = pm.Normal("intercept", 0, 2)
        spread = pm.HalfNormal("spread", 1)
        effect = pm.ZeroSumNormal("effect", sigma=spread, dims="group")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", intercept + effect[group], sigma, observed=y)
    return model


def _radon(rng):
    """(county, floor, uranium of the counties, log radon)"""
    county, floor, uranium = rng.integers(0, 6, ROWS), rng.integers(0, 2, ROWS), rng.normal(size=6)
    return county, floor, uranium, rng.normal(1.4 + 0.5 * uranium[county] - 0.7 * floor, 0.7)


@entry(18)
def multilevel_radon(rng):
    county, floor, uranium, radon = _radon(rng)
    with pm.Model(coords={"county": np.arange(6), "obs_id": np.arange(ROWS)}) as model:
        which = pm.Data("which", county, dims="obs_id")
        on_floor = pm.Data("on_floor", floor, dims="obs_id")
        gamma = pm.Normal("gamma", 0, 5, shape=2)
        spread = pm.Exponential("spread", 1.0, shape=2)
        za = pm.Normal("za", 0, 1, dims="county")
        zb = pm.Normal("zb", 0, 1, dims="county")
        mu_b = pm.Normal("mu_b", 0, 5)
        alpha = pm.Deterministic("alpha", gamma[0] + gamma[1] * uranium + za * spread[0], dims="county")
        beta = pm.Deterministic("beta", mu_b + zb * spread[1], dims="county")
        sigma = pm.Exponential("sigma", 1)
        pm.Normal("y", alpha[which] + beta[which] * on_floor, sigma, observed=radon, dims="obs_id")
    return model


@entry(19)
def multilevel_radon_with_covariance(rng):
    county, floor, _, radon = _radon(rng)
    with pm.Model(coords={"county": np.arange(6), "obs_id": np.arange(ROWS), "param": ["alpha", "beta"]}) as model:
        sd = pm.Exponential.dist(0.5, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        mean = pm.Normal("mean", 0, 5, dims="param")
        z = pm.Normal("z", 0, 1, dims=("param", "county"))
        effect = pm.Deterministic("effect", pt.dot(chol, z).T, dims=("county", "param"))
        sigma = pm.Exponential("sigma", 1)
        theta = mean[0] + effect[county, 0] + (mean[1] + effect[county, 1]) * floor
        pm.Normal("y", theta, sigma, observed=radon, dims="obs_id")
    return model


@entry(20, "all", "'theta'")
def baseball(rng):
    at_bats = rng.integers(20, 60, 18)
    hits = rng.binomial(at_bats, rng.beta(20, 60, 18))
    with pm.Model(coords={"player": np.arange(18)}) as model:
        phi = pm.Uniform("phi", 0.0, 1.0)
        kappa_log = pm.Exponential("kappa_log", 1.5)
        kappa = pm.Deterministic("kappa", pt.exp(kappa_log))
        theta = pm.Beta("theta", alpha=phi * kappa, beta=(1 - phi) * kappa, dims="player")
        pm.Binomial("y", n=at_bats, p=theta, observed=hits, dims="player")
    return model


@entry(21)
def rugby(rng):
    home, away = np.array([(i, j) for i in range(6) for j in range(6) if i != j]).T
    strength = rng.normal(0, 0.3, 6)
    points = rng.poisson(np.exp(3 + strength[home] - strength[away])), rng.poisson(np.exp(3 + strength[away]))
    with pm.Model(coords={"team": list("ABCDEF"), "match": np.arange(30)}) as model:
        at_home = pm.Data("at_home", home, dims="match")
        visiting = pm.Data("visiting", away, dims="match")
        advantage = pm.Normal("advantage", mu=0, sigma=1)
        intercept = pm.Normal("intercept", mu=3, sigma=1)
        spread = pm.HalfNormal("spread", sigma=2, shape=2)
        attack_star = pm.Normal("attack_star", mu=0, sigma=spread[0], dims="team")
        defence_star = pm.Normal("defence_star", mu=0, sigma=spread[1], dims="team")
        attack = pm.Deterministic("attack", attack_star - pt.mean(attack_star), dims="team")
        defence = pm.Deterministic("defence", defence_star - pt.mean(defence_star), dims="team")
        home_rate = pt.exp(advantage + intercept + attack[at_home] + defence[visiting])
        away_rate = pt.exp(intercept + attack[visiting] + defence[at_home])
        pm.Poisson("home_points", mu=home_rate, observed=points[0], dims="match")
        pm.Poisson("away_points", mu=away_rate, observed=points[1], dims="match")
    return model


@entry(22)
def item_response(rng):
    committing, disadvantaged = rng.integers(0, 7, ROWS), rng.integers(0, 5, ROWS)
    called = rng.binomial(1, 0.4, ROWS)
    with pm.Model(coords={"disadvantaged": np.arange(5), "committing": np.arange(7)}) as model:
        mean = pm.Normal("mean", 0.0, 10.0)
        spread = pm.HalfCauchy("spread", 2.5, shape=2)
        raw_theta = pm.Normal("raw_theta", 0.0, 1.0, dims="disadvantaged")
        raw_b = pm.Normal("raw_b", 0.0, 1.0, dims="committing")
        theta = pm.Deterministic("theta", spread[0] * raw_theta + mean, dims="disadvantaged")
        b = pm.Deterministic("b", spread[1] * raw_b, dims="committing")
        eta = pm.Deterministic("eta", theta[disadvantaged] - b[committing])
        pm.Bernoulli("y", logit_p=eta, observed=called)
    return model


@entry(23)
def best(rng):
    treated, placebo = rng.normal(102, 3, ROWS), rng.normal(101, 2, ROWS - 5)
    pooled = np.concatenate([treated, placebo])
    with pm.Model() as model:
        means = [pm.Normal(f"mean_{i}", pooled.mean(), pooled.std() * 2) for i in (1, 2)]
        sds = [pm.Uniform(f"sd_{i}", 0.5, 10) for i in (1, 2)]
        nu_minus_one = pm.Exponential("nu_minus_one", 1 / 29.0)
        nu = pm.Deterministic("nu", nu_minus_one + 1)
        pm.Deterministic("difference of means", means[0] - means[1])
        for i, observed in enumerate((treated, placebo)):
            pm.StudentT(f"y_{i + 1}", nu=nu, mu=means[i], lam=sds[i] ** -2, observed=observed)
    return model


@entry(24)
def covariance_of_a_multivariate_normal(rng):
    x = rng.multivariate_normal([1.0, -2.0], [[1.0, -0.4], [-0.4, 0.5]], size=ROWS)
    with pm.Model(coords={"axis": ["y", "z"], "obs_id": np.arange(ROWS)}) as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2))
        pm.Deterministic("cov", chol.dot(chol.T), dims=("axis", None))
        mu = pm.Normal("mu", 0.0, sigma=1.5, dims="axis")
        pm.MvNormal("obs", mu, chol=chol, observed=x, dims=("obs_id", "axis"))
    return model


@entry(25)
def golf_putting(rng):
    distance, tries = np.arange(2, 21).astype(float), rng.integers(150, 1500, 19)
    successes = rng.binomial(tries, np.clip(1 / np.sqrt(distance), 0, 1))
    with pm.Model(coords={"distance": distance}) as model:
        at = pm.Data("at", distance, dims="distance")
        attempts = pm.Data("attempts", tries, dims="distance")
        spread = pm.HalfNormal("spread", 1.0)
        angle = pt.arcsin((4.25 / 2 - 1.68 / 2) / 12 / at)
        p = pm.Deterministic("p", 2 * (0.5 + 0.5 * pt.erf(angle / spread / pt.sqrt(2.0))) - 1, dims="distance")
        pm.Binomial("successes", n=attempts, p=p, observed=successes, dims="distance")
    return model


@entry(26, "refused", "discrete")
def coal_mining_disasters(rng):
    years = np.arange(1851, 1962)
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", lower=years.min(), upper=years.max())
        early = pm.Exponential("early", 1.0)
        late = pm.Exponential("late", 1.0)
        pm.Poisson("disasters", pm.math.switch(switch >= years, early, late), observed=rng.poisson(2, len(years)))
    return model


@entry(27)
def matrix_factorisation(rng):
    user, item = rng.integers(0, 6, ROWS), rng.integers(0, 8, ROWS)
    ratings = rng.normal(0, 1, ROWS)
    with pm.Model(coords={"user": np.arange(6), "item": np.arange(8), "factor": np.arange(3)}) as model:
        U = pm.MvNormal("U", mu=np.zeros(3), tau=0.5 * np.eye(3), dims=("user", "factor"))
        V = pm.MvNormal("V", mu=np.zeros(3), tau=0.7 * np.eye(3), dims=("item", "factor"))
        pm.Normal("R", mu=(U @ V.T)[user, item], tau=2.0, observed=ratings)
    return model


@entry(28, "all", "'F'")
def factor_analysis(rng):
    d, k, n = 5, 2, 30
    y = rng.normal(size=(n, k)) @ rng.normal(size=(k, d)) + 0.1 * rng.normal(size=(n, d))
    with pm.Model(coords={"column": np.arange(d), "latent": np.arange(k), "row": np.arange(n)}) as model:
        diagonal = pm.HalfNormal("diagonal", 1.0, dims="latent")
        below = pm.Normal("below", 0, 1, shape=d * k - k * (k + 1) // 2)
        W = pt.zeros((d, k))[np.arange(k), np.arange(k)].set(diagonal)
        W = pm.Deterministic("W", W[np.tril_indices(d, -1, k)].set(below), dims=("column", "latent"))
        F = pm.Normal("F", 0, 1, dims=("row", "latent"))
        psi = pm.HalfNormal("psi", 1.0)
        pm.Normal("Y", F @ W.T, psi, observed=y, dims=("row", "column"))
    return model


@entry(29)
def mediation(rng):
    x = rng.normal(size=ROWS)
    m = rng.normal(0.5 * x, 1.0)
    y = rng.normal(0.3 * m + 0.2 * x, 1.0)
    with pm.Model(coords={"obs_id": np.arange(ROWS)}) as model:
        x = pm.Data("x", x, dims="obs_id")
        y = pm.Data("y", y, dims="obs_id")
        m = pm.Data("m", m, dims="obs_id")
        i_m, i_y, a, b, c = (pm.Normal(name, 0, 1) for name in ("i_m", "i_y", "a", "b", "c"))
        sigma_m = pm.HalfCauchy("sigma_m", 1)
        sigma_y = pm.HalfCauchy("sigma_y", 1)
        pm.Normal("m_likelihood", i_m + a * x, sigma_m, observed=m, dims="obs_id")
        pm.Normal("y_likelihood", i_y + b * m + c * x, sigma_y, observed=y, dims="obs_id")
        indirect = pm.Deterministic("indirect", a * b)
        pm.Deterministic("total", c + indirect)
    return model


@entry(30)
def cherry_blossom_splines(rng):
    from scipy.interpolate import BSpline

    year = np.sort(rng.uniform(812, 2015, ROWS))
    knots = np.concatenate([[812] * 3, np.linspace(812, 2015, 6), [2015] * 3])
    basis = BSpline.design_matrix(year, knots, 3, extrapolate=True).toarray()
    with pm.Model(coords={"spline": np.arange(basis.shape[1]), "obs": np.arange(ROWS)}) as model:
        a = pm.Normal("a", 100, 5)
        w = pm.Normal("w", mu=0, sigma=3, dims="spline")
        mu = pm.Deterministic("mu", a + pm.math.dot(np.asarray(basis, order="F"), w.T), dims="obs")
        sigma = pm.Exponential("sigma", 1)
        pm.Normal("D", mu=mu, sigma=sigma, observed=rng.normal(104, 6, ROWS), dims="obs")
    return model


@entry(31, "refused", "discrete")
def gaussian_mixture_with_labels(rng):
    y = rng.normal(np.array([-5, 0, 5])[rng.integers(0, 3, ROWS)], 1.0)
    with pm.Model(coords={"cluster": range(3)}) as model:
        means = pm.Normal(
            "means", 0, 5, initval=[-4, 0, 4], dims="cluster", transform=pm.distributions.transforms.ordered
        )
        sds = pm.HalfNormal("sds", 1, dims="cluster")
        weights = pm.Dirichlet("weights", np.ones(3), dims="cluster")
        label = pm.Categorical("label", p=weights, shape=ROWS)
        pm.Normal("y", means[label], sds[label], observed=y)
    return model


@entry(32)
def marginalised_gaussian_mixture(rng):
    y = rng.normal(np.array([0, 2, 5])[rng.integers(0, 3, ROWS)], 0.7)
    with pm.Model(coords={"cluster": np.arange(3), "obs_id": np.arange(ROWS)}) as model:
        w = pm.Dirichlet("w", np.ones(3), dims="cluster")
        mu = pm.Normal(
            "mu", 0, 5, initval=[0.0, 1.0, 4.0], dims="cluster", transform=pm.distributions.transforms.ordered
        )
        tau = pm.Gamma("tau", 1.0, 1.0, dims="cluster")
        pm.NormalMixture("x_obs", w, mu, tau=tau, observed=y, dims="obs_id")
    return model


def _sticks(beta):
    before = pt.concatenate([[1], pt.extra_ops.cumprod(1 - beta)[:-1]])
    return beta * before


@entry(33)
def dirichlet_process_mixture(rng):
    y = rng.normal(np.array([-1.5, 0.5])[rng.integers(0, 2, ROWS)], 0.4)
    with pm.Model(coords={"component": np.arange(6), "obs_id": np.arange(ROWS)}) as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        beta = pm.Beta("beta", 1.0, alpha, dims="component")
        w = pm.Deterministic("w", _sticks(beta) / pt.sum(_sticks(beta)), dims="component")
        tau = pm.Gamma("tau", 1.0, 1.0, dims="component")
        lam = pm.Gamma("lam", 10.0, 1.0, dims="component")
        mu = pm.Normal("mu", 0, tau=lam * tau, dims="component")
        pm.NormalMixture("obs", w, mu, tau=lam * tau, observed=y, dims="obs_id")
    return model


@entry(34)
def dependent_density_regression(rng):
    x = rng.uniform(-1.5, 2, (ROWS, 1))
    y = rng.normal(x[:, 0] ** 2, 0.3)[:, None]
    k = 4
    with pm.Model(coords={"component": np.arange(k)}) as model:
        alpha = pm.Normal("alpha", 0, 5, dims="component")
        beta = pm.Normal("beta", 0, 5, dims="component")
        at = pm.Data("x", x, shape=(None, 1))
        v = 0.5 * (1 + pt.erf((alpha + beta * at) / np.sqrt(2)))
        left = pt.concatenate([pt.ones_like(v[:, :1]), pt.extra_ops.cumprod(1 - v, axis=1)[:, :-1]], axis=1)
        w = v * left
        w = w / w.sum(axis=1, keepdims=True)
        gamma = pm.Normal("gamma", 0, 3, dims="component")
        delta = pm.Normal("delta", 0, 3, dims="component")
        tau = pm.Gamma("tau", 1, 1, dims="component")
        pm.NormalMixture(
            "obs", w[:, None, :], (gamma + delta * at)[:, None, :], tau=tau, observed=pm.Data("y", y, shape=(None, 1))
        )
    return model


@entry(35)
def dirichlet_mixture_of_multinomials(rng):
    counts = rng.multinomial(50, rng.dirichlet([5, 3, 2, 1], ROWS))[:, None].reshape(ROWS, 4)
    with pm.Model(coords={"tree": list("abcd"), "forest": np.arange(ROWS)}) as model:
        frac = pm.Dirichlet("frac", a=np.ones(4), dims="tree")
        conc = pm.LogNormal("conc", mu=1, sigma=1)
        pm.DirichletMultinomial("counts", n=50, a=frac * conc, observed=counts, dims=("forest", "tree"))
    return model


@entry(36)
def censored_data_with_a_potential(rng):
    y = rng.normal(13, 5, ROWS)
    low, high = 3, 16
    left, right = (y <= low).sum(), (y >= high).sum()

    with pm.Model() as model:
        mu = pm.Normal("mu", 12.0, 10.0)
        sigma = pm.HalfNormal("sigma", 10.0)
        survival = pm.logcdf(pm.Normal.dist(-mu, sigma), -float(high))
        below = pm.logcdf(pm.Normal.dist(mu, sigma), float(low))
        pm.Potential("right", right * survival)
        pm.Potential("left", left * below)
        pm.Normal("observed", mu, sigma, observed=y[(y > low) & (y < high)])
    return model


@entry(37)
def weibull_accelerated_failure_time(rng):
    time = rng.weibull(1.5, ROWS) * 10
    censored = rng.uniform(size=ROWS) < 0.3
    log_time = np.log(time)
    with pm.Model() as model:
        s = pm.HalfNormal("s", 5.0)
        gamma = pm.Normal("gamma", 0, 5)
        pm.Gumbel("y_obs", mu=gamma, beta=s, observed=log_time[~censored])
        z = (log_time[censored] - gamma) / s
        pm.Potential("y_cens", pt.log1mexp(-pt.exp(-z)))
    return model


@entry(38)
def piecewise_exponential_survival(rng):
    patients, intervals = 24, 5
    metastasised = rng.integers(0, 2, patients)
    exposure = rng.uniform(0.1, 3.0, (patients, intervals))
    death = rng.binomial(1, 0.15, (patients, intervals))
    with pm.Model(coords={"interval": np.arange(intervals), "patient": np.arange(patients)}) as model:
        hazard = pm.Gamma("hazard", 0.01, 0.01, dims="interval")
        beta = pm.Normal("beta", 0, sigma=1000)
        rate = pm.Deterministic("rate", pt.outer(pt.exp(beta * metastasised), hazard), dims=("patient", "interval"))
        pm.Poisson("obs", exposure * rate, observed=death, dims=("patient", "interval"))
    return model


@entry(39, "all", "'theta_tilde'")
def eight_schools(rng):
    effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", mu=0, sigma=5)
        tau = pm.HalfCauchy("tau", beta=5)
        theta_tilde = pm.Normal("theta_tilde", mu=0, sigma=1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * theta_tilde, dims="school")
        pm.Normal("obs", mu=theta, sigma=errors, observed=effects, dims="school")
    return model


@entry(40, "all", "'D_true'")
def measurement_error(rng):
    age = rng.normal(size=ROWS)
    true = rng.normal(-0.6 * age, 0.7)
    error = rng.uniform(0.1, 0.5, ROWS)
    with pm.Model(coords={"state": np.arange(ROWS)}) as model:
        sigma = pm.Exponential("sigma", 1)
        b = pm.Normal("b", 0, 0.5)
        a = pm.Normal("a", 0, 0.2)
        D_true = pm.Normal("D_true", a + b * age, sigma, dims="state")
        pm.Normal("D_obs", D_true, error, observed=rng.normal(true, error), dims="state")
    return model


# -- bambi -------------------------------------------------------------------------------------------------------------


@entry(41)
def escs_multiple_regression(rng):
    data = pd.DataFrame(rng.normal(size=(ROWS, 5)), columns=list("oecan"))
    data["drugs"] = 2 + 0.3 * data.o - 0.2 * data.c + rng.normal(0, 0.6, ROWS)
    return bmb.Model("drugs ~ o + c + e + a + n", data)


@entry(42, width=0.02)
def vote(rng):
    party = rng.choice(["democrat", "independent", "republican"], ROWS)
    data = pd.DataFrame({"party_id": party, "age": rng.uniform(18, 90, ROWS)})
    data["vote"] = np.where(rng.uniform(size=ROWS) < np.where(party == "democrat", 0.9, 0.3), "clinton", "trump")
    return bmb.Model("vote['clinton'] ~ party_id + party_id:age", data, family="bernoulli")


@entry(43)
def sleep_study(rng):
    subject = np.repeat(np.arange(6), 8)
    days = np.tile(np.arange(8.0), 6)
    reaction = rng.normal(250 + 10 * days + rng.normal(0, 30, 6)[subject], 25)
    data = pd.DataFrame({"Reaction": reaction, "Days": days, "Subject": subject.astype(str)})
    return bmb.Model("Reaction ~ 1 + Days + (Days | Subject)", data, categorical="Subject")


@entry(44)
def roaches(rng):
    data = pd.DataFrame({"roach1": rng.exponential(1.0, ROWS), "exposure2": rng.uniform(0.2, 4.0, ROWS)})
    data[["treatment", "senior"]] = rng.integers(0, 2, (ROWS, 2))
    data["y"] = rng.negative_binomial(1, 1 / (1 + 5 * np.exp(0.5 * data.roach1)))
    return bmb.Model("y ~ roach1 + treatment + senior + offset(log(exposure2))", data, family="negativebinomial")


@entry(45, width=0.005)
def gasoline_yield(rng):
    data = pd.DataFrame({"temp": rng.uniform(200, 450, ROWS), "batch": rng.integers(1, 6, ROWS).astype(str)})
    data["yield"] = rng.beta(4, 12, ROWS)
    return bmb.Model("yield ~ temp + batch", data, family="beta", categorical="batch")


@entry(46)
def gamma_with_a_varying_shape(rng):
    x = rng.uniform(-1.5, 1.5, ROWS)
    shape = np.exp(0.5 + 1.1 * x)
    data = pd.DataFrame({"x": x, "y": rng.gamma(shape, np.exp(0.5 + x) / shape)})
    return bmb.Model(bmb.Formula("y ~ x", "alpha ~ x"), data, family="gamma", link={"mu": "log", "alpha": "log"})


@entry(47)
def alligators(rng):
    length = rng.uniform(1, 4, ROWS)
    data = pd.DataFrame({"length": length, "sex": rng.choice(["Male", "Female"], ROWS)})
    data["choice"] = rng.choice(["Fish", "Invertebrates", "Other"], ROWS)
    return bmb.Model("choice ~ length + sex", data, family="categorical")


@entry(48)
def fishing(rng):
    data = pd.DataFrame(rng.integers(0, 2, (ROWS, 2)), columns=["livebait", "camper"])
    data[["persons", "child"]] = np.column_stack([rng.integers(1, 5, ROWS), rng.integers(0, 3, ROWS)])
    data["count"] = rng.poisson(2, ROWS) * rng.integers(0, 2, ROWS)
    formula = bmb.Formula("count ~ livebait + camper + persons", "psi ~ child + camper")
    return bmb.Model(formula, data, family="zero_inflated_poisson")


@entry(49)
def trolley(rng):
    data = pd.DataFrame(rng.integers(0, 2, (ROWS, 3)), columns=["action", "intention", "contact"])
    data["response"] = pd.Categorical(rng.integers(1, 6, ROWS), ordered=True)
    return bmb.Model("response ~ 0 + action + intention + contact", data, family="cumulative")


@entry(50)
def shooter(rng):
    rows = [(s, t) for s in range(4) for t in range(12)]
    subject, target = np.array(rows).T
    data = pd.DataFrame({"subject": subject.astype(str), "target": target.astype(str)})
    data["race"] = np.where(target % 2, "white", "black")
    data["object"] = np.where(target % 4 < 2, "gun", "nogun")
    data["rate"] = rng.normal(0, 1, len(data))
    formula = "scale(rate) ~ race * object + (race * object | subject) + (object | target)"
    return bmb.Model(formula, data, categorical=["subject", "target"])
