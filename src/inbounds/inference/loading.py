"""Draws from a file, with their certificate."""

from __future__ import annotations

import os

from inbounds.inference.certificate import Certificate
from inbounds.posterior import Posterior
from inbounds.sampling import Draws
from inbounds.sampling.saved import opened

__all__ = ["load"]


def load(path: str | os.PathLike[str], posterior: Posterior | None = None) -> Draws:
    """Draws that `Draws.save` wrote: their tables, pictures and predictions, and their certificate, are those of before.

    Args:
        path: the file.
        posterior: that they were drawn from, for what needs it (`draws.loo()`); a file does not hold it.

    Returns:
        The draws. Trees of parameters come back as dicts, lists and tuples. The kernel and its state are not there.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is none of ours, or damaged.

    Example:
        >>> draws = ib.sample(ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1.0)})), 0.1, 99, num_chains=2, progress=False)
        >>> draws.save("draws.npz")
        >>> bool((ib.load("draws.npz").theta["x"] == draws.theta["x"]).all())
        True
    """
    return opened(path, posterior, Certificate)
