"""Posteriors of models that other libraries describe. Each answers by methods of `Posterior`: no other module asks which it is."""

from inbounds.frontends._doors import posterior_of as posterior_of
from inbounds.frontends.numpyro import from_numpyro as from_numpyro

__all__ = ["from_numpyro", "posterior_of"]
