"""Twenty kinds of problem whose truth is known: the table that `coverage` goes through, written down before its first run.

Each function makes data from a generator, and the parameters behind them too where the prior allows it; it returns the posterior
and its truth, exact or by quadrature. Data are in single precision, as they are in a run; the truth is that of those very numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform
from scipy import optimize, special, stats

import inbounds as ib
from benchmarks.infer.truth import PROBABILITIES, Truth, line, of_grid, of_law, of_normals, plane

__all__ = ["KINDS", "Kind", "Problem", "groups_of", "normal_of"]


class Problem(NamedTuple):
    """A posterior and its truth."""

    posterior: ib.Posterior
    truth: Truth


class Kind(NamedTuple):
    """A kind of problem.

    Attributes:
        name: in tables and on the command line.
        dimension: free numbers that are sampled.
        rows: of the data.
        truth: how it is known.
        make: the problem of a generator.
    """

    name: str
    dimension: int
    rows: int
    truth: str
    make: Callable[[np.random.Generator], Problem]

    def problem(self, seed: int) -> Problem:
        """The problem of a seed; the same in every process, whatever other kinds there are."""
        return self.make(np.random.default_rng([seed, *self.name.encode()]))


KINDS: dict[str, Kind] = {}


def kind(dimension: int, rows: int, truth: str = "exact") -> Callable[[Callable], Callable]:
    """Enter a function into the table; what it needs of the row count is passed to it."""

    def entered(make: Callable) -> Callable:
        KINDS[make.__name__] = Kind(make.__name__, dimension, rows, truth, lambda generator: make(generator, rows))
        return make

    return entered


def single(x: Any) -> np.ndarray:
    return np.asarray(x, np.float32)


def double(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


@kind(1, 100_000)
def gamma_poisson(generator, rows):
    """Counts of one rate."""
    y = single(generator.poisson(generator.gamma(2.0, 1.0), rows))
    posterior = ib.Posterior(
        {"rate": dist.Gamma(2.0, 1.0)}, lambda theta, y: dist.Poisson(theta["rate"]).log_prob(y), y
    )
    return Problem(posterior, Truth({"rate": of_law(stats.gamma(2 + double(y).sum(), scale=1 / (1 + rows)))}))


def bernoulli(theta, y):
    return jnp.sum(jnp.where(y, jnp.log(theta["chance"]), jnp.log1p(-theta["chance"])), axis=-1)


@kind(1, 100)
def few_trials(generator, rows):
    """A chance from the arcsine law and a hundred trials: often next to an end, where the density may be infinite."""
    y = generator.uniform(size=(rows, 1)) < generator.beta(0.5, 0.5, 1)
    posterior = ib.Posterior({"chance": dist.Beta(0.5, 0.5).expand([1]).to_event(1)}, bernoulli, y)
    return Problem(posterior, Truth({"chance": of_law(stats.beta(0.5 + y.sum(0), 0.5 + (~y).sum(0)))}))


@kind(3, 100_000)
def many_trials(generator, rows):
    """Three chances and many trials of each."""
    y = generator.uniform(size=(rows, 3)) < generator.uniform(size=3)
    posterior = ib.Posterior({"chance": dist.Beta(1.0, 1.0).expand([3]).to_event(1)}, bernoulli, y)
    return Problem(posterior, Truth({"chance": of_law(stats.beta(1.0 + y.sum(0), 1.0 + (~y).sum(0)))}))


@kind(2, 1_000)
def normal(generator, rows):
    """Mean and variance of a normal, both unknown, on a scale that nobody told: normal-inverse-gamma."""
    center, scale = 100 * generator.normal(), 10 ** generator.uniform(-1, 1)
    y = single(center + scale * generator.normal(size=rows))
    return normal_of(y)


def normal_of(y: np.ndarray) -> Problem:
    """The posterior of mean and variance of a normal: given the variance the mean is normal, and the variance is inverse gamma."""
    shape, rate, weight, rows = 2.0, 10.0, 1e-4, len(y)

    def log_prior(theta):
        variance = theta["variance"]
        of_mean = dist.Normal(0.0, jnp.sqrt(variance / weight)).log_prob(theta["mean"])
        return dist.InverseGamma(shape, rate).log_prob(variance) + of_mean

    posterior = ib.Posterior(
        supports={"mean": constraints.real, "variance": constraints.positive},
        log_prior=log_prior,
        log_likelihood=lambda theta, y: dist.Normal(theta["mean"], jnp.sqrt(theta["variance"])).log_prob(y),
        data=y,
    )
    mean, squares = double(y).mean(), ((double(y) - double(y).mean()) ** 2).sum()
    total = weight + rows
    a, b = shape + rows / 2, rate + squares / 2 + weight * rows * mean**2 / (2 * total)
    margins = {
        "mean": of_law(stats.t(2 * a, rows * mean / total, np.sqrt(b / (a * total)))),
        "variance": of_law(stats.invgamma(a, scale=b)),
    }
    return Problem(posterior, Truth(margins))


def autoregressive(generator, rows, columns, correlation):
    """Normal columns of variance one, each correlated with the one before."""
    x = generator.normal(size=(rows, columns))
    for j in range(1, columns):
        x[:, j] = correlation * x[:, j - 1] + np.sqrt(1 - correlation**2) * x[:, j]
    return x


@kind(20, 20_000)
def correlated_regression(generator, rows):
    """Linear regression on columns that are correlated and measured in units from a hundredth to a hundred."""
    units = 10 ** np.linspace(-2, 2, 20)
    x = single(autoregressive(generator, rows, 20, 0.9) * units)
    y = single(double(x) @ (generator.normal(size=20) / units) + generator.normal(size=rows))
    prior_sd = single(10 / units)
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, prior_sd).to_event(1)},
        lambda theta, batch: dist.Normal(batch["x"] @ theta["w"], 1.0).log_prob(batch["y"]),
        {"x": x, "y": y},
    )
    covariance = np.linalg.inv(double(x).T @ double(x) + np.diag(double(prior_sd) ** -2))
    law = stats.norm(covariance @ (double(x).T @ double(y)), np.sqrt(np.diag(covariance)))
    return Problem(posterior, Truth({"w": of_law(law)}))


def regression_model(x, y):
    variance = numpyro.sample("variance", dist.InverseGamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 10 * jnp.sqrt(variance)).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ w, jnp.sqrt(variance)), obs=y)


@kind(7, 500)
def regression_with_noise(generator, rows):
    """Linear regression with an intercept, columns that are not centred, and noise of unknown variance."""
    x = single(np.column_stack([np.ones(rows), 5 + generator.normal(size=(rows, 5))]))
    noise = np.sqrt(1 / generator.gamma(2.0))
    y = single(double(x) @ generator.normal(size=6) + noise * generator.normal(size=rows))
    precision = double(x).T @ double(x) + np.eye(6) / 100
    mean = np.linalg.solve(precision, double(x).T @ double(y))
    a, b = 2 + rows / 2, 1 + 0.5 * (double(y) @ double(y) - mean @ precision @ mean)
    margins = {
        "variance": of_law(stats.invgamma(a, scale=b)),
        "w": of_law(stats.t(2 * a, mean, np.sqrt(b / a * np.diag(np.linalg.inv(precision))))),
    }
    return Problem(ib.from_numpyro(regression_model, jnp.asarray(x), jnp.asarray(y)), Truth(margins))


@kind(5, 300, "quadrature")
def scales(generator, rows):
    """The sds of five normal columns, with half-normal priors."""
    y = single(np.abs(2 * generator.normal(size=5)) * generator.normal(size=(rows, 5)))
    posterior = ib.Posterior(
        {"scale": dist.HalfNormal(2.0).expand([5]).to_event(1)},
        lambda theta, y: dist.Normal(0.0, theta["scale"]).log_prob(y).sum(-1),
        y,
    )
    squares = (double(y) ** 2).sum(0)
    margins = [line(lambda s, q=q: -rows * np.log(s) - q / (2 * s**2) - s**2 / 8, 1e-6, 20.0) for q in squares]
    return Problem(posterior, Truth({"scale": np.stack(margins)}))


@kind(7, 10_000)
def categories(generator, rows):
    """Shares of eight categories on the simplex, some of them rare."""
    chosen = generator.choice(8, size=rows, p=generator.dirichlet(np.full(8, 0.7)))
    posterior = ib.Posterior(
        {"share": dist.Dirichlet(np.full(8, 0.7, np.float32))},
        lambda theta, chosen: jnp.log(theta["share"])[chosen],
        chosen.astype(np.int32),
    )
    counts = 0.7 + np.bincount(chosen, minlength=8)
    return Problem(posterior, Truth({"share": of_law(stats.beta(counts, counts.sum() - counts))}))


@kind(4, 100)
def rare_events(generator, rows):
    """Four rates with about one event each, or none: times until an event, cut off early. The mass is at the bound."""
    rate, cut = generator.gamma(1.0, 0.5, 4), 0.02
    times = generator.exponential(1 / rate, (rows, 4))
    data = {"time": single(np.minimum(times, cut)), "event": times < cut}
    posterior = ib.Posterior(
        {"rate": dist.Gamma(1.0, 2.0).expand([4]).to_event(1)},
        lambda theta, batch: jnp.sum(
            jnp.where(batch["event"], jnp.log(theta["rate"]), 0.0) - theta["rate"] * batch["time"], -1
        ),
        data,
    )
    law = stats.gamma(1 + data["event"].sum(0), scale=1 / (2 + double(data["time"]).sum(0)))
    return Problem(posterior, Truth({"rate": of_law(law)}))


@kind(3, 300, "quadrature")
def ordered(generator, rows):
    """Three means in order, closer to each other than the data can tell."""
    group = np.arange(rows) % 3
    y = single(np.cumsum([generator.normal(), 0.1, 0.1])[group] + generator.normal(size=rows))
    prior = dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([3]).to_event(1), OrderedTransform())
    posterior = ib.Posterior(
        {"mean": prior},
        lambda theta, batch: dist.Normal(theta["mean"][batch["group"]], 1.0).log_prob(batch["y"]),
        {"group": group.astype(np.int32), "y": y},
    )
    count = np.bincount(group)
    mean = np.bincount(group, double(y)) / count
    points = np.linspace(mean.min() - 0.9, mean.max() + 0.9, 2_001)
    alone = np.exp(-0.5 * count[:, None] * (points - mean[:, None]) ** 2)
    alone[0] *= stats.norm.pdf(points)
    gap = stats.lognorm(1.0).pdf(points[None, :] - points[:, None])  # of the step from one mean to the next
    before = [np.ones_like(points)]
    for k in (0, 1):
        before.append((before[-1] * alone[k]) @ gap)
    after = [np.ones_like(points)]
    for k in (2, 1):
        after.insert(0, gap @ (after[0] * alone[k]))
    margins = [of_grid(points, before[k] * alone[k] * after[k]) for k in range(3)]
    return Problem(posterior, Truth({"mean": np.stack(margins)}))


def inverse_wishart_margins(freedom: float, scale: np.ndarray) -> np.ndarray:
    """Margins of the entries of a matrix S with an inverse Wishart law.

    A diagonal entry is inverse gamma. Next to it, S_ij / S_ii is independent of S_ii and Student's t.
    """
    size = len(scale)
    margins = np.zeros((size, size, 5))
    for i in range(size):
        own = stats.invgamma((freedom - size + 1) / 2, scale=scale[i, i] / 2)
        margins[i, i] = of_law(own)
        for j in range(i):
            slope = scale[i, j] / scale[i, i]
            rest = scale[j, j] - scale[i, j] ** 2 / scale[i, i]
            degrees = freedom - size + 2
            ratio = stats.t(degrees, slope, np.sqrt(rest / (degrees * scale[i, i])))
            mean = own.mean() * ratio.mean()
            variance = (own.var() + own.mean() ** 2) * (ratio.var() + ratio.mean() ** 2) - mean**2
            margins[i, j] = margins[j, i] = [mean, np.sqrt(variance), *quantiles_of_product(own, ratio)]
    return margins


def quantiles_of_product(first: Any, second: Any) -> np.ndarray:
    """Quantiles of the product of two independent variables, the first of them positive."""
    at = first.ppf((np.arange(2_000) + 0.5) / 2_000)
    center, spread = first.mean() * second.mean(), np.hypot(first.std() * second.mean(), first.mean() * second.std())
    ends = center - 20 * spread, center + 20 * spread
    return np.array([optimize.brentq(lambda x, p=p: second.cdf(x / at).mean() - p, *ends) for p in PROBABILITIES])


@kind(6, 1_000)
def covariance(generator, rows):
    """A covariance matrix of columns in different units, two of them correlated."""
    units = np.array([1.0, 5.0, 0.2])
    prior_scale = np.diag(units**2)
    truth = units[:, None] * np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.3], [0.0, 0.3, 1.0]]) * units
    y = single(generator.multivariate_normal(np.zeros(3), truth, rows))
    posterior = ib.Posterior(
        {"covariance": dist.InverseWishart(5.0, scale_matrix=single(prior_scale))},
        lambda theta, y: dist.MultivariateNormal(0.0, theta["covariance"]).log_prob(y),
        y,
    )
    margins = inverse_wishart_margins(5 + rows, prior_scale + double(y).T @ double(y))
    return Problem(posterior, Truth({"covariance": margins}))


@kind(2, 2_000, "quadrature")
def positive_pair(generator, rows):
    """Two positive coefficients of correlated columns, one truly 0 and one near it."""
    x = single(autoregressive(generator, rows, 2, 0.8))
    y = single(double(x) @ [0.0, 0.2] + 5 * generator.normal(size=rows))
    posterior = ib.Posterior(
        {"w": dist.HalfNormal(1.0).expand([2]).to_event(1)},
        lambda theta, batch: dist.Normal(batch["x"] @ theta["w"], 5.0).log_prob(batch["y"]),
        {"x": x, "y": y},
    )
    gram, moment = double(x).T @ double(x) / 25 + np.eye(2), double(x).T @ double(y) / 25

    def log_density(a, b):
        linear = moment[0] * a + moment[1] * b
        return linear - 0.5 * (gram[0, 0] * a**2 + gram[1, 1] * b**2) - gram[0, 1] * a * b

    return Problem(posterior, Truth({"w": np.stack(plane(log_density, (0, 5), (0, 5)))}))


@kind(2, 500, "quadrature")
def logistic(generator, rows):
    """Logistic regression on a column that is not centred."""
    x = single(2 + generator.normal(size=rows))
    chance = special.expit(-2 + generator.normal() + generator.normal() * double(x))
    y = generator.uniform(size=rows) < chance

    def log_likelihood(theta, batch):
        logits = theta["w"][0] + theta["w"][1] * batch["x"]
        return jnp.where(batch["y"], logits, 0.0) - jax.nn.softplus(logits)

    posterior = ib.Posterior({"w": dist.Normal(0.0, 5.0).expand([2]).to_event(1)}, log_likelihood, {"x": x, "y": y})

    def log_density(a, b):
        heights = -(a**2 + b**2) / 50 + np.zeros(np.broadcast_shapes(a.shape, b.shape))
        for row, own in enumerate(a[:, 0]):
            logits = own + b[0][:, None] * double(x)
            heights[row] += np.where(y, logits, 0.0).sum(1) - np.logaddexp(0, logits).sum(1)
        return heights

    return Problem(posterior, Truth({"w": np.stack(plane(log_density, (-30, 30), (-30, 30), 181))}))


@kind(2, 300, "quadrature")
def weibull(generator, rows):
    """Shape and scale of Weibull times."""
    shape, scale = generator.lognormal(0, 0.5, 2)
    y = single(scale * generator.weibull(shape, rows))
    y = np.maximum(y, np.float32(1e-6))
    posterior = ib.Posterior(
        {"shape": dist.LogNormal(0.0, 1.0), "scale": dist.LogNormal(0.0, 1.0)},
        lambda theta, y: dist.Weibull(theta["scale"], theta["shape"]).log_prob(y),
        y,
    )
    logs = np.log(double(y))

    def log_density(k, s):
        power = logs[None, :] - logs.max()
        # sum of (y / s)^k, with the largest y in front
        total = np.exp(k * power).sum(1, keepdims=True) * np.exp(np.minimum(k * (logs.max() - np.log(s)), 600))
        likelihood = rows * (np.log(k) - k * np.log(s)) + (k - 1) * logs.sum() - total
        return likelihood - np.log(k) - np.log(s) - 0.5 * (np.log(k) ** 2 + np.log(s) ** 2)

    of_shape, of_scale = plane(log_density, (0.02, 20), (0.02, 20))
    return Problem(posterior, Truth({"shape": of_shape, "scale": of_scale}))


@kind(20, 50_000)
def positive_coefficients(generator, rows):
    """Twenty positive coefficients of orthogonal columns, a third of them truly 0: truncated normals."""
    x = single(np.linalg.qr(generator.normal(size=(rows, 20)))[0] * np.sqrt(rows))
    w = generator.uniform(0.0, 0.5, 20) * (np.arange(20) % 3 > 0)
    y = single(double(x) @ w + 10 * generator.normal(size=rows))
    posterior = ib.Posterior(
        {"w": dist.HalfNormal(1.0).expand([20]).to_event(1)},
        lambda theta, batch: dist.Normal(batch["x"] @ theta["w"], 10.0).log_prob(batch["y"]),
        {"x": x, "y": y},
    )
    precision = 1 + (double(x) ** 2).sum(0) / 100
    mean, sd = double(x).T @ double(y) / 100 / precision, precision**-0.5
    return Problem(posterior, Truth({"w": of_law(stats.truncnorm(-mean / sd, np.inf, mean, sd))}))


@kind(20, 5_000)
def rates_of_groups(generator, rows):
    """Rates of twenty groups, from a handful of counts in some to a thousand in others."""
    group = generator.choice(20, size=rows, p=generator.dirichlet(np.full(20, 0.7)))
    y = single(generator.poisson(generator.exponential(size=20)[group]))
    posterior = ib.Posterior(
        {"rate": dist.Exponential(1.0).expand([20]).to_event(1)},
        lambda theta, batch: dist.Poisson(theta["rate"][batch["group"]]).log_prob(batch["y"]),
        {"group": group.astype(np.int32), "y": y},
    )
    count, total = np.bincount(group, minlength=20), np.bincount(group, double(y), minlength=20)
    return Problem(posterior, Truth({"rate": of_law(stats.gamma(1 + total, scale=1 / (1 + count)))}))


@kind(2, 1_000, "quadrature")
def robust(generator, rows):
    """Location and scale of Student's t with four degrees of freedom."""
    y = single(10 * generator.normal() + np.abs(5 * generator.normal()) * generator.standard_t(4, rows))
    posterior = ib.Posterior(
        {"location": dist.Normal(0.0, 10.0), "scale": dist.HalfNormal(5.0)},
        lambda theta, y: dist.StudentT(4.0, theta["location"], theta["scale"]).log_prob(y),
        y,
    )

    def log_density(m, s):
        heights = np.zeros(np.broadcast_shapes(m.shape, s.shape))
        for row, own in enumerate(m[:, 0]):
            heights[row] = -2.5 * np.log1p((double(y) - own) ** 2 / (4 * s[0][:, None] ** 2)).sum(1)
        return heights - rows * np.log(s) - m**2 / 200 - s**2 / 50

    center, spread = np.median(y), np.subtract(*np.quantile(double(y), [0.75, 0.25]))
    box = (center - spread, center + spread), (0.1 * spread, 3 * spread)
    location, scale = plane(log_density, *box, 161)
    return Problem(posterior, Truth({"location": location, "scale": scale}))


def groups_model(group, y, count, noise):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    effect = numpyro.sample("effect", dist.Normal(mu, tau).expand([count]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], noise), obs=y)


def groups_of(group: np.ndarray, y: np.ndarray, noise: float) -> Problem:
    """The posterior of effects of groups, centred, with noise of known sd."""
    sizes = np.bincount(group)
    mean, variance = np.bincount(group, double(y)) / sizes, noise**2 / sizes
    posterior = ib.from_numpyro(groups_model, group.astype(np.int32), y, len(sizes), noise)
    return Problem(posterior, Truth(hierarchy(mean, variance, 5.0, lambda tau: -0.5 * tau**2, 10.0)))


@kind(12, 2_000, "quadrature")
def groups(generator, rows):
    """Effects of ten groups round a common mean, whose spread is unknown: a hierarchy, centred."""
    group = np.arange(rows) % 10
    effects = generator.normal(0.0, 2.0) + 0.5 * generator.normal(size=10)
    return groups_of(group, single(effects[group] + 2 * generator.normal(size=rows)), 2.0)


def hierarchy(
    mean: np.ndarray, variance: np.ndarray, prior_sd: float, log_prior: Callable[[np.ndarray], np.ndarray], most: float
) -> dict[str, np.ndarray]:
    """Margins of mu, tau and effects, where group means are normal round effects and effects normal round mu.

    Given tau all is normal; tau itself is on a line.
    """

    def given(tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The log density of tau, and mean and variance of mu given tau."""
        total = variance + tau[:, None] ** 2
        precision = (1 / total).sum(1) + 1 / prior_sd**2
        center = (mean / total).sum(1) / precision
        log_density = -0.5 * (np.log(total) + mean**2 / total).sum(1) + 0.5 * center**2 * precision
        return log_density - 0.5 * np.log(precision) + log_prior(tau), center, 1 / precision

    tau = np.linspace(1e-9, most, 8_001)
    heights, center, spread = given(tau)
    weights = np.exp(heights - heights.max())
    weights[[0, -1]] *= 0.5
    kept = weights > 1e-14
    tau, center, spread, weights = tau[kept], center[kept], spread[kept], weights[kept]
    shrink = tau[:, None] ** 2 / (tau[:, None] ** 2 + variance)
    effect = center[:, None] + shrink * (mean - center[:, None])
    sd = np.sqrt(shrink * variance + (1 - shrink) ** 2 * spread[:, None])
    return {
        "mu": of_normals(weights, center, np.sqrt(spread)),
        "tau": line(lambda t: given(t)[0], 1e-9, most),
        "effect": np.stack([of_normals(weights, effect[:, j], sd[:, j]) for j in range(len(mean))]),
    }


@kind(3, 1_000)
def bounded_means(generator, rows):
    """Three means in (0, 1) that the data hardly tell from each other: truncated normals with mass at both ends."""
    y = single(np.array([0.02, 0.5, 0.9]) + 10 * generator.normal(size=(rows, 3)))
    posterior = ib.Posterior(
        {"mean": dist.Uniform(0.0, 1.0).expand([3]).to_event(1)},
        lambda theta, y: dist.Normal(theta["mean"], 10.0).log_prob(y).sum(-1),
        y,
    )
    mean, sd = double(y).mean(0), 10 / np.sqrt(rows)
    return Problem(posterior, Truth({"mean": of_law(stats.truncnorm(-mean / sd, (1 - mean) / sd, mean, sd))}))


@kind(2, 10_000, "quadrature")
def zero_inflated(generator, rows):
    """Counts, many of which are 0 for a reason of their own."""
    chance, rate = generator.uniform(), generator.gamma(2.0, 1.0)
    y = single(generator.poisson(rate, rows) * (generator.uniform(size=rows) > chance))

    def log_likelihood(theta, y):
        chance, rate = theta["chance"], theta["rate"]
        other = jnp.log1p(-chance) + dist.Poisson(rate).log_prob(y)
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(chance), jnp.log1p(-chance) - rate), other)

    posterior = ib.Posterior({"chance": dist.Beta(1.0, 1.0), "rate": dist.Gamma(2.0, 1.0)}, log_likelihood, y)
    zeros, total = int((y == 0).sum()), double(y).sum()

    def log_density(c, r):
        others = (rows - zeros) * (np.log1p(-c) - r) + total * np.log(r)
        return zeros * np.log(c + (1 - c) * np.exp(-r)) + others + np.log(r) - r

    of_chance, of_rate = plane(log_density, (1e-9, 1 - 1e-9), (1e-9, 30), 401)
    return Problem(posterior, Truth({"chance": of_chance, "rate": of_rate}))
