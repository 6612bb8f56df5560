"""Bijections from the real line into a support, with what Langevin dynamics needs of them."""

from .base import Transform as Transform
from .choice import BY_NAME as BY_NAME
from .choice import available as available
from .choice import default as default
from .choice import onto as onto
from .interval import Arctan as Arctan
from .interval import Interval as Interval
from .interval import Probit as Probit
from .interval import Sigmoid as Sigmoid
from .interval import Softsign as Softsign
from .positive import ICLL as ICLL
from .positive import Exp as Exp
from .positive import HalfLine as HalfLine
from .positive import IntegratedProbit as IntegratedProbit
from .positive import Softplus as Softplus
from .real import Identity as Identity
from .supports import bounds as bounds
from .supports import is_vector as is_vector
from .vector import Bijection as Bijection
from .vector import LogRatios as LogRatios
from .vector import LowerCholesky as LowerCholesky
from .vector import Ordered as Ordered
from .vector import PositiveDefinite as PositiveDefinite
from .vector import PositiveOrdered as PositiveOrdered
from .vector import Softmax as Softmax
from .vector import StickBreaking as StickBreaking
