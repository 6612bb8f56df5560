"""Effects in coordinates that are unbounded and, where their law is known, standard: the funnel of a small scale is not there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from inbounds import transforms as tf

__all__ = ["effect_of", "is_supported"]

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
    transform = tf.default(law.support)
    value = transform(z)
    return value, law.log_prob(value) + transform.log_abs_det_jacobian(z, value)


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
