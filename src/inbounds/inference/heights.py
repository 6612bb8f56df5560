"""How high the density is where chains are, so that one that has left the posterior is seen, and taken back."""

from __future__ import annotations

import jax
import numpy as np

from inbounds.exact import flat
from inbounds.inference.mode import Mode, Surface
from inbounds.posterior import Posterior
from inbounds.space import Space
from inbounds.trees import PyTree

__all__ = ["Heights"]


class Heights:
    """Log densities of the proxy, of a part of the data, with the slope of all of them at the mode.

    A part alone has its own mode, many posterior sds away. So what its slope at the mode of all the data is off by is taken from it.

    Args:
        posterior: what is sampled; it has a density.
        space: how it is kept in bounds.
        mode: the one that was found.
        seed: of the part.
    """

    def __init__(self, posterior: Posterior, space: Space, mode: Mode, seed: int):
        self.posterior, self.center = posterior, flat(mode.theta)
        self.part, self.tilt = None, np.zeros_like(self.center)
        if posterior.num_data is None or posterior.log_likelihood is None:
            return
        surface = Surface(posterior, space, mode.theta)
        self.part = next(iter(surface.parts(seed)), None)
        if self.part is not None and mode.slope_of_data is not None:
            _, slope, _ = surface.likelihood.expansion(self.center, self.part)
            self.tilt = mode.slope_of_data - slope

    @classmethod
    def at(cls, posterior: Posterior, space: Space, mode: Mode | None, seed: int) -> Heights | None:
        """Those of a posterior; None where it has no density, or no slope over all the data."""
        if mode is None:
            return None
        found = cls(posterior, space, mode, seed)
        return None if found.part is not None and mode.slope_of_data is None else found

    def of(self, space: Space, thetas: PyTree) -> np.ndarray:
        """One height per point of thetas, leading axis = point; minus infinity where it is not a number."""
        surface = Surface(self.posterior, space, jax.tree.map(lambda leaf: np.asarray(leaf)[0], thetas))
        return self.of_phi(surface, surface.phis_of(thetas))

    def of_phi(self, surface: Surface, phis: np.ndarray) -> np.ndarray:
        """The same of flat proxies."""
        heights = -surface.values(phis, self.part)
        if self.part is not None:
            heights += [(flat(surface.theta_of(phi)) - self.center) @ self.tilt for phi in phis]
        return np.where(np.isfinite(heights), heights, -np.inf)
