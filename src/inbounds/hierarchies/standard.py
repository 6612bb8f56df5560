"""Effects in coordinates that are unbounded and, where their law is known, standard: the funnel of a small scale is not there."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from inbounds import transforms as tf

__all__ = ["effect_of", "is_supported"]

AT_ONE = math.log(math.e - 1)  # where softplus is 1,
SLOPE_AT_ONE = 1 - 1 / math.e  # and its slope there
LARGE = 10.0  # shapes from which Stirling's series is right to the last digit of single precision
LOCATION_AND_SCALE = (dist.Normal, dist.StudentT, dist.Cauchy, dist.Laplace, dist.Logistic, dist.Gumbel)


def is_supported(law: Any) -> bool:
    """Whether effects of this law have such coordinates, as many as they have numbers."""
    base = _without_wrappers(law)
    if isinstance(base, dist.MaskedDistribution):
        return False
    return isinstance(base, dist.MultivariateNormal) or not tf.is_vector(base.support)


def effect_of(law: Any, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(the effect at coordinates of its shape, the log density of those coordinates without their event's axes).

    Args:
        law: its distribution given everything else.
        z: the coordinates.
    """
    base = _without_wrappers(law)
    value, log_density = _moved(base, z)
    more = law.event_dim - (z.ndim - log_density.ndim)
    return value, jnp.sum(log_density, axis=tuple(range(-more, 0))) if more else log_density


def _moved(law: Any, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    if isinstance(law, dist.MultivariateNormal):
        value = law.loc + jnp.einsum("...ij,...j->...i", law.scale_tril, z)
        return value, jnp.sum(_standard_normal(z), axis=-1)
    if type(law) is dist.Normal:
        return law.loc + law.scale * z, _standard_normal(z)
    if type(law) in LOCATION_AND_SCALE:
        value = law.loc + law.scale * z
        unit = {"loc": jnp.zeros_like(z), "scale": jnp.ones_like(z)}
        if type(law) is dist.StudentT:
            unit["df"] = jnp.broadcast_to(law.df, z.shape)
        return value, type(law)(**unit, validate_args=False).log_prob(z)
    if _is_elementwise(law):
        value, log_density = _moved(_without_wrappers(law.base_dist), z)
        for transform in law.transforms:
            value = transform(value)
        return value, log_density
    if isinstance(law, dist.Gamma):
        return _gamma(law, z)
    transform = tf.default(law.support)
    value = transform(z)
    return value, law.log_prob(value) + transform.log_abs_det_jacobian(z, value)


def _gamma(law: Any, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A gamma effect over its mean, in the width that its law has.

    So frailties whose variance goes to 0 make no funnel. And no large numbers are taken from each other: in single precision the density as it
    is written is off by hundreds from a shape of 1e8 on, upwards, where chains would go.
    """
    shape = law.concentration
    width = 1 / jnp.sqrt(1 + SLOPE_AT_ONE**2 * shape)
    moved = width * z
    near = jnp.abs(moved) < 0.5
    off = jnp.log1p(SLOPE_AT_ONE * jnp.expm1(jnp.where(near, moved, 0.0)))  # softplus less its 1, to the last digit
    softplus, place = tf.Softplus(), AT_ONE + moved
    share = jnp.where(near, 1 + off, softplus(place))
    bent = jnp.where(near, _bent(off), softplus.log_gap(place) - (softplus(place) - 1))
    slope = softplus.log_abs_det_jacobian(place, share)
    log_density = shape * bent - softplus.log_gap(place) + _log_scale_of_gamma(shape) + jnp.log(width) + slope
    return jnp.maximum(share * (shape / law.rate), jnp.finfo(z.dtype).tiny), log_density


def _bent(off: jax.Array) -> jax.Array:
    """log(1 + x) - x, which is far smaller than its parts where x is small."""
    small = jnp.abs(off) < 0.02
    few = jnp.where(small, off, 0.0)
    series = -(few**2) * (1 / 2 - few * (1 / 3 - few * (1 / 4 - few / 5)))
    return jnp.where(small, series, jnp.log1p(off) - off)


def _log_scale_of_gamma(shape: jax.Array) -> jax.Array:
    """a log a - a - log Gamma(a), of which each part is far larger where a is."""
    small, inverse = jnp.where(shape < LARGE, shape, 1.0), 1 / jnp.where(shape < LARGE, LARGE, shape)
    stirling = -jnp.log(2 * math.pi * inverse) / 2 - inverse / 12 + inverse**3 / 360
    return jnp.where(shape < LARGE, small * jnp.log(small) - small - gammaln(small), stirling)


def _is_elementwise(law: Any) -> bool:
    return isinstance(law, dist.TransformedDistribution) and all(
        transform.domain.event_dim == transform.codomain.event_dim == 0 for transform in law.transforms
    )


def _standard_normal(z: jax.Array) -> jax.Array:
    return -(z**2) / 2 - 0.9189385332046727


def _without_wrappers(law: Any) -> Any:
    while isinstance(law, dist.ExpandedDistribution | dist.Independent):
        law = law.base_dist
    return law
