"""`ib.infer`, with nothing but the tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np

import inbounds as ib
from benchmarks.scoreboard.answers import Answer, Look

__all__ = ["infer"]


def infer(model: Any, data: Any, seed: int, *, error: float, method: str) -> Look:
    """One look, at its end."""
    certificate = ib.infer(model, **data, error=error, method=method, seed=seed, progress=False).certificate
    margins = {
        name: _stacked(certificate.mean[name], certificate.sd[name], certificate.quantiles[name])
        for name in certificate.mean
    }
    notes = {
        "reached": float(certificate.reached),
        "reasons": [str(reason) for reason in certificate.reasons],
        "method": certificate.method,
        "costs": str(certificate.costs),
        "choices": str(certificate.choices),
    }
    yield Answer(margins, {"mean": certificate.mean_error, "sd": certificate.sd_error}, certificate.ok, notes)


def _stacked(mean: Any, sd: Any, quantiles: Any) -> Any:
    return np.concatenate([np.stack([mean, sd], axis=-1), quantiles], axis=-1)
