"""Posteriors of models that other libraries describe. Each answers by methods of `Posterior`: no other module asks which it is."""

from inbounds.frontends._doors import posterior_of as posterior_of
from inbounds.frontends.numpyro import from_numpyro as from_numpyro
from inbounds.frontends.pymc import from_bambi as from_bambi
from inbounds.frontends.pymc import from_pymc as from_pymc

__all__ = ["from_bambi", "from_numpyro", "from_pymc", "posterior_of"]
