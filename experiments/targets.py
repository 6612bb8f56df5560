"""The one-dimensional targets of the paper's first two figures, with everything about them in closed form.

Every density has the shape

    pi(theta) ∝ (theta - a)^(p_a) (b - theta)^(p_b) exp(S(theta)),      S smooth up to the ends of the support,

and a target says `powers = (p_a, p_b)` and `smooth_score = S'`. That split is what keeps a drift finite where `theta`
rounds onto an end of its support: the two singular terms meet `f'` in the log domain, where their product is bounded.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from scipy import special

__all__ = ["TARGETS", "Target", "beta", "gamma", "half_normal", "truncated_normal"]

BINS = 100
OVERFLOW_LEVEL = 0.999
"""On a half line the last bin holds everything above this quantile."""


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """A density on an interval `(low, high)`, known exactly: what a chain's draws are compared with.

    `pdf`, `cdf` and `quantile` are NumPy in float64; `score` is jax.numpy and keeps the dtype of `theta`.

    Args:
        name: the key in `TARGETS`, also used in file names.
        label: how a figure calls it.
        make_prior: makes the same law as a NumPyro distribution.
        support: its NumPyro constraint.
        low, high: the ends of the support.
        powers: `(p_a, p_b)`, the powers of `theta - low` and of `high - theta` in the density.
        smooth_score: the derivative of the rest of the log density.
        pdf, cdf, quantile: of the law.
        mean, second_moment: E[theta] and E[theta^2].
    """

    name: str
    label: str
    make_prior: Callable[[], dist.Distribution]
    support: constraints.Constraint
    low: float
    high: float
    powers: tuple[float, float]
    smooth_score: Callable[..., Any]
    pdf: Callable[..., Any]
    cdf: Callable[..., Any]
    quantile: Callable[..., Any]
    mean: float
    second_moment: float

    @property
    def prior(self) -> dist.Distribution:
        """The law as a NumPyro distribution, a new one each time.

        NumPyro keeps what a distribution has computed, in the precision of the first use: one object shared between
        float64 and float32 would mix them.
        """
        return self.make_prior()

    def score(self, theta: ArrayLike) -> jax.Array:
        """d/dtheta log pi(theta), the theta-gradient that every kernel starts from."""
        theta = jnp.asarray(theta)
        score: jax.Array = self.smooth_score(theta)
        if self.powers[0]:
            score = score + self.powers[0] / (theta - self.low)
        if self.powers[1]:
            score = score - self.powers[1] / (self.high - theta)
        return score

    @property
    def edges(self) -> np.ndarray:
        """The 101 edges of the histogram behind the total variation.

        100 equal bins on a bounded support; on a half line 99 equal bins up to the .999 quantile and one for the rest.
        """
        if math.isfinite(self.high):
            return np.linspace(self.low, self.high, BINS + 1)
        return np.append(np.linspace(self.low, self.quantile(OVERFLOW_LEVEL), BINS), math.inf)

    def __repr__(self) -> str:
        return f"Target({self.label})"


def beta(a: float, b: float) -> Target:
    """Beta(a, b) on (0, 1): density theta^(a-1) (1-theta)^(b-1) / B(a, b)."""

    def pdf(theta: ArrayLike) -> np.ndarray:
        theta = np.asarray(theta, float)
        return np.asarray(np.exp(special.xlogy(a - 1, theta) + special.xlog1py(b - 1, -theta) - special.betaln(a, b)))

    mean = a / (a + b)
    return Target(
        name=f"beta-{a:g}-{b:g}",
        label=f"Beta({a:g}, {b:g})",
        make_prior=lambda: dist.Beta(a, b),
        support=constraints.unit_interval,
        low=0.0,
        high=1.0,
        powers=(a - 1, b - 1),
        smooth_score=jnp.zeros_like,
        pdf=pdf,
        cdf=lambda theta: special.betainc(a, b, np.clip(np.asarray(theta, float), 0, 1)),
        quantile=lambda u: special.betaincinv(a, b, np.asarray(u, float)),
        mean=mean,
        second_moment=mean * (a + 1) / (a + b + 1),
    )


def gamma(shape: float, scale: float) -> Target:
    """Gamma with shape k and scale s on (0, inf): density theta^(k-1) exp(-theta/s) / (Gamma(k) s^k)."""

    def pdf(theta: ArrayLike) -> np.ndarray:
        theta = np.asarray(theta, float)
        return np.asarray(
            np.exp(special.xlogy(shape - 1, theta / scale) - theta / scale - special.gammaln(shape)) / scale
        )

    return Target(
        name=f"gamma-{shape:g}-{scale:g}",
        label=f"Gamma({shape:g}, scale {scale:g})",
        make_prior=lambda: dist.Gamma(shape, 1 / scale),
        support=constraints.positive,
        low=0.0,
        high=math.inf,
        powers=(shape - 1, 0.0),
        smooth_score=lambda theta: jnp.full_like(theta, -1 / scale),
        pdf=pdf,
        cdf=lambda theta: special.gammainc(shape, np.maximum(np.asarray(theta, float), 0) / scale),
        quantile=lambda u: scale * special.gammaincinv(shape, np.asarray(u, float)),
        mean=shape * scale,
        second_moment=shape * (shape + 1) * scale**2,
    )


def half_normal() -> Target:
    """The standard normal truncated to (0, inf): density sqrt(2/pi) exp(-theta^2/2)."""
    return Target(
        name="half-normal",
        label="Normal on (0, ∞)",
        make_prior=lambda: dist.HalfNormal(1.0),
        support=constraints.positive,
        low=0.0,
        high=math.inf,
        powers=(0.0, 0.0),
        smooth_score=jnp.negative,
        pdf=lambda theta: math.sqrt(2 / math.pi) * np.exp(-np.square(np.asarray(theta, float)) / 2),
        cdf=lambda theta: special.erf(np.maximum(np.asarray(theta, float), 0) / math.sqrt(2)),
        quantile=lambda u: math.sqrt(2) * special.erfinv(np.asarray(u, float)),
        mean=math.sqrt(2 / math.pi),
        second_moment=1.0,
    )


def truncated_normal(low: float = -1.0, high: float = 1.0) -> Target:
    """The standard normal truncated to (low, high): density n(theta) / (Phi(high) - Phi(low))."""
    mass = float(special.ndtr(high) - special.ndtr(low))

    def density(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    return Target(
        name=f"truncated-normal-{low:g}-{high:g}",
        label=f"Normal on ({low:g}, {high:g})",
        make_prior=lambda: dist.TruncatedNormal(0.0, 1.0, low=low, high=high),
        support=constraints.interval(low, high),
        low=low,
        high=high,
        powers=(0.0, 0.0),
        smooth_score=jnp.negative,
        pdf=lambda theta: np.exp(-np.square(np.asarray(theta, float)) / 2) / (math.sqrt(2 * math.pi) * mass),
        cdf=lambda theta: (special.ndtr(np.clip(np.asarray(theta, float), low, high)) - special.ndtr(low)) / mass,
        quantile=lambda u: special.ndtri(special.ndtr(low) + mass * np.asarray(u, float)),
        mean=(density(low) - density(high)) / mass,
        second_moment=1 + (low * density(low) - high * density(high)) / mass,
    )


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        target.name: target
        for target in (beta(0.5, 0.5), beta(0.5, 1.5), gamma(0.5, 0.5), half_normal(), truncated_normal(-1, 1))
    }
)
"""The paper's targets by name. It gives neither the parameters of the beta nor the truncation interval, so two readings
of each are here: Beta(.5, .5) and the normal on (-1, 1) have, by symmetry, no error in the mean to show."""
