"""Bijections from the real line into a support, with what Langevin dynamics needs of them."""

from typing import TYPE_CHECKING

from inbounds.namespaces import namespace

from ._base import Transform as Transform
from ._choice import BY_NAME as BY_NAME
from ._choice import available as available
from ._choice import default as default
from ._choice import onto as onto
from ._interval import Arctan as Arctan
from ._interval import Interval as Interval
from ._interval import Probit as Probit
from ._interval import Sigmoid as Sigmoid
from ._interval import Softsign as Softsign
from ._positive import ICLL as ICLL
from ._positive import Exp as Exp
from ._positive import HalfLine as HalfLine
from ._positive import IntegratedProbit as IntegratedProbit
from ._positive import Softplus as Softplus
from ._real import Identity as Identity
from ._supports import bounds as bounds
from ._supports import is_vector as is_vector
from ._vector import Bijection as Bijection
from ._vector import LogRatios as LogRatios
from ._vector import LowerCholesky as LowerCholesky
from ._vector import Ordered as Ordered
from ._vector import PositiveDefinite as PositiveDefinite
from ._vector import PositiveOrdered as PositiveOrdered
from ._vector import Softmax as Softmax
from ._vector import StickBreaking as StickBreaking
from ._vector import from_numpyro as from_numpyro

__all__ = [
    "ICLL",
    "Arctan",
    "Bijection",
    "Exp",
    "HalfLine",
    "Identity",
    "IntegratedProbit",
    "Interval",
    "LogRatios",
    "LowerCholesky",
    "Ordered",
    "PositiveDefinite",
    "PositiveOrdered",
    "Probit",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "StickBreaking",
    "Transform",
    "available",
    "bounds",
    "default",
    "from_numpyro",
    "onto",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
