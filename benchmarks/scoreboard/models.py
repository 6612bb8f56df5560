"""The models of the twelve tables, in NumPyro, as their fields would write them: every contestant gets the same.

Arguments are the arrays of `tables.py`, one row per observation; nothing else of a model depends on who samples it. Numbers of groups are
constants of the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import betaln, gammaln

__all__ = ["MODELS"]

CARRIERS, STATES, BIRTHPLACES, STUDENTS, LECTURERS, REGIONS, COUNTRIES, BRANCHES = 16, 51, 52, 2_972, 1_128, 4, 97, 4


def _slopes(columns: int, scale: float = 1.0) -> jax.Array:
    return numpyro.sample("slopes", dist.Normal(0.0, scale).expand([columns]).to_event(1))


def _groups(name: str, count: int) -> jax.Array:
    """Effects of groups around 0 with a spread of their own."""
    spread = numpyro.sample(f"{name}_spread", dist.HalfNormal(1.0))
    with numpyro.plate(f"{name}s", count):
        return numpyro.sample(name, dist.Normal(0.0, spread))


def flights(delay: Any, carrier: Any, x: Any) -> None:
    """Delays of flights that left late: gamma, with effects of carriers."""
    shape = numpyro.sample("shape", dist.HalfNormal(2.0))
    base = numpyro.sample("base", dist.Normal(3.0, 1.0))
    slopes = _slopes(x.shape[1])
    effect = _groups("carrier", CARRIERS)
    with numpyro.plate("rows", len(delay)):
        mean = jnp.exp(base + effect[carrier] + x @ slopes)
        numpyro.sample("delay", dist.Gamma(shape, shape / mean), obs=delay)


def births(births: Any, state: Any, x: Any) -> None:
    """Births per state and day: negative binomial, with effects of states, weekdays, season and trend."""
    concentration = numpyro.sample("concentration", dist.HalfNormal(100.0))
    base = numpyro.sample("base", dist.Normal(5.0, 2.0))
    slopes = _slopes(x.shape[1])
    effect = _groups("state", STATES)
    with numpyro.plate("rows", len(births)):
        mean = jnp.exp(base + effect[state] + x @ slopes)
        numpyro.sample("births", dist.NegativeBinomial2(mean, concentration), obs=births)


def mortgages(owns: Any, birthplace: Any, x: Any) -> None:
    """Who owns a home: logistic, with effects of the place of birth."""
    base = numpyro.sample("base", dist.Normal(0.0, 2.0))
    slopes = _slopes(x.shape[1])
    effect = _groups("birthplace", BIRTHPLACES)
    with numpyro.plate("rows", len(owns)):
        numpyro.sample("owns", dist.Bernoulli(logits=base + effect[birthplace] + x @ slopes), obs=owns)


def lectures(mark: Any, student: Any, lecturer: Any, x: Any) -> None:
    """Marks that students give to lecturers: ordered, with crossed effects."""
    cuts = numpyro.sample(
        "cuts",
        dist.TransformedDistribution(dist.Normal(0.0, 2.0).expand([4]).to_event(1), dist.transforms.OrderedTransform()),
    )
    slopes = _slopes(x.shape[1])
    students, lecturers = _groups("student", STUDENTS), _groups("lecturer", LECTURERS)
    with numpyro.plate("rows", len(mark)):
        numpyro.sample(
            "mark", dist.OrderedLogistic(students[student] + lecturers[lecturer] + x @ slopes, cuts), obs=mark
        )


def weeks(weeks: Any, x: Any) -> None:
    """Weeks of work per year: beta-binomial, with more zeros."""
    idle = numpyro.sample("idle", dist.Beta(1.0, 1.0))
    precision = numpyro.sample("precision", dist.HalfNormal(5.0))
    base = numpyro.sample("base", dist.Normal(0.0, 2.0))
    slopes = _slopes(x.shape[1])
    with numpyro.plate("rows", len(weeks)):
        mean = jax.nn.sigmoid(base + x @ slopes)
        worked = dist.BetaBinomial(precision * mean, precision * (1 - mean), total_count=52)
        numpyro.sample("weeks", dist.ZeroInflatedDistribution(worked, gate=idle), obs=weeks)


def diamonds(log_price: Any, x: Any) -> None:
    """Prices of diamonds: robust regression on columns that are neither scaled nor apart from each other."""
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    base = numpyro.sample("base", dist.Normal(0.0, 10.0))
    slopes = _slopes(x.shape[1], 10.0)
    with numpyro.plate("rows", len(log_price)):
        numpyro.sample("log_price", dist.StudentT(freedom, base + x @ slopes, scale), obs=log_price)


def movies(rating: Any, x: Any) -> None:
    """Ratings of movies: beta regression."""
    precision = numpyro.sample("precision", dist.Gamma(2.0, 0.1))
    base = numpyro.sample("base", dist.Normal(0.0, 2.0))
    slopes = _slopes(x.shape[1])
    with numpyro.plate("rows", len(rating)):
        mean = jax.nn.sigmoid(base + x @ slopes)
        numpyro.sample("rating", dist.Beta(precision * mean, precision * (1 - mean)), obs=rating)


def earnings(earnings: Any, region: Any, x: Any) -> None:
    """Earnings per hour: log-normal, a spread per region, and age with its square as they come."""
    spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([REGIONS]).to_event(1))
    base = numpyro.sample("base", dist.Normal(0.0, 10.0).expand([REGIONS]).to_event(1))
    slopes = _slopes(x.shape[1])
    with numpyro.plate("rows", len(earnings)):
        numpyro.sample("earnings", dist.LogNormal(base[region] + x @ slopes, spread[region]), obs=earnings)


def bribes(answer: Any, country: Any, x: Any) -> None:
    """Whether bribes can be justified, from 1 to 10: ordered, with effects of countries."""
    cuts = numpyro.sample(
        "cuts",
        dist.TransformedDistribution(dist.Normal(0.0, 2.0).expand([9]).to_event(1), dist.transforms.OrderedTransform()),
    )
    slopes = _slopes(x.shape[1])
    effect = _groups("country", COUNTRIES)
    with numpyro.plate("rows", len(answer)):
        numpyro.sample("answer", dist.OrderedLogistic(effect[country] + x @ slopes, cuts), obs=answer)


def military(branch: Any, x: Any) -> None:
    """Branch of the forces: softmax, whose base rates are on a simplex."""
    rates = numpyro.sample("rates", dist.Dirichlet(jnp.ones(BRANCHES)))
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([x.shape[1], BRANCHES - 1]).to_event(2))
    with numpyro.plate("rows", len(branch)):
        rest = x @ slopes
        logits = jnp.log(rates) + jnp.concatenate([jnp.zeros_like(rest[:, :1]), rest], axis=1)
        numpyro.sample("branch", dist.Categorical(logits=logits), obs=branch)


def gaps(days: Any, bought: Any, x: Any) -> None:
    """Days until the next purchase: Weibull survival with censoring."""
    shape = numpyro.sample("shape", dist.HalfNormal(2.0))
    base = numpyro.sample("base", dist.Normal(5.0, 2.0))
    slopes = _slopes(x.shape[1])
    with numpyro.plate("rows", len(days)):
        reach = shape * (jnp.log(days) - base - x @ slopes)
        numpyro.factor("survival", bought * (jnp.log(shape) + reach - jnp.log(days)) - jnp.exp(reach))


def customers(repeats: Any, last: Any, watched: Any) -> None:
    """Customers who buy and then leave: beta-geometric/NBD (Fader, Hardie and Lee, 2005)."""
    r = numpyro.sample("r", dist.HalfNormal(2.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(20.0))
    a = numpyro.sample("a", dist.HalfNormal(5.0))
    b = numpyro.sample("b", dist.HalfNormal(10.0))
    with numpyro.plate("rows", len(repeats)):
        rate = gammaln(r + repeats) - gammaln(r) + r * jnp.log(alpha)
        alive = betaln(a, b + repeats) - (r + repeats) * jnp.log(alpha + watched)
        left = betaln(a + 1, b + jnp.maximum(repeats, 1) - 1) - (r + repeats) * jnp.log(alpha + last)
        both = jnp.logaddexp(alive, jnp.where(repeats > 0, left, -jnp.inf))
        numpyro.factor("purchases", rate + both - betaln(a, b))


MODELS: dict[str, Callable[..., None]] = {
    model.__name__: model
    for model in (
        flights, births, mortgages, lectures, weeks, diamonds, movies, earnings, bribes, military, gaps, customers
    )
}  # fmt: skip
