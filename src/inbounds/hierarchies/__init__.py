"""Hierarchies at scale: the effects of groups are integrated out, so that a row of a posterior is a record of groups.

`ib.infer` does so for models whose groups it finds; `ib.from_numpyro(model, ...).integrated()` is the posterior that it samples. What is here
looks at effects afterwards.
"""

from typing import TYPE_CHECKING

from inbounds.hierarchies.afterwards import Moments as Moments
from inbounds.hierarchies.afterwards import effects as effects
from inbounds.hierarchies.afterwards import moments as moments
from inbounds.hierarchies.afterwards import predict as predict
from inbounds.namespaces import namespace

__all__ = ["Moments", "effects", "moments", "predict"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
