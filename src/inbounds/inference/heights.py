"""How high the density is where chains are, so that one that has left the posterior is seen, and taken back."""

from __future__ import annotations

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
        self.mode, self.center = mode, flat(mode.theta)
        self.surface = Surface(posterior, space, mode.theta)
        self.part, self.tilt = None, np.zeros_like(self.center)
        if posterior.num_data is None or posterior.log_likelihood is None:
            return
        self.part = next(iter(self.surface.parts(seed)), None)
        if self.part is not None and mode.slope_of_data is not None:
            _, slope, _ = self.surface.likelihood.expansion(self.center, self.part)
            self.tilt = mode.slope_of_data - slope

    @classmethod
    def at(cls, posterior: Posterior, space: Space, mode: Mode | None, seed: int) -> Heights | None:
        """Those of a posterior, which keeps them; None where it has no density, or no slope over all the data."""
        if mode is None:
            return None
        kept, asked = posterior.compiled.found, ("heights", posterior.version, space, seed, flat(mode.theta).tobytes())
        if asked not in kept:
            kept[asked] = cls(posterior, space, mode, seed)
        found: Heights = kept[asked]
        return None if found.part is not None and mode.slope_of_data is None else found

    def of(self, thetas: PyTree) -> np.ndarray:
        """One height per point of thetas, leading axis = point; minus infinity where it is not a number."""
        return self.of_phi(self.surface.phis_of(thetas))

    def of_phi(self, phis: np.ndarray) -> np.ndarray:
        """The same of flat proxies."""
        heights = -self.surface.values(phis, self.part)
        if self.part is not None:
            heights += [(flat(self.surface.theta_of(phi)) - self.center) @ self.tilt for phi in phis]
        return np.where(np.isfinite(heights), heights, -np.inf)
