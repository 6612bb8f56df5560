r"""Metrics: one linear map $\varphi = c + L z$ after the transforms, so that kernels move $z$, in which the posterior is round.

Let $H$ be the Hessian of $-\log \pi$ of the proxy at a reference point, over all the data, and $V$ the covariance of the minibatch gradient.
`laplace` chooses $L$ such that $L^T H L = I$ and $L^T V L$ is diagonal. In $z$ a step size is of order one whatever the scales and
correlations of the posterior are, and a diagonal correction for gradient noise is the right one. Where a dense $L$ is too large, `low_rank`
has a diagonal and a few directions, `per_row` a small block for each row of a table, and `arrow` these blocks, a dense one for all that is
global, and the coupling of both.
"""

from typing import TYPE_CHECKING

from inbounds.metrics._arrow import Arrow as Arrow
from inbounds.metrics._arrow import arrow as arrow
from inbounds.metrics._arrow import arrow_from_draws as arrow_from_draws
from inbounds.metrics._dense import Dense as Dense
from inbounds.metrics._dense import from_draws as from_draws
from inbounds.metrics._dense import laplace as laplace
from inbounds.metrics._low_rank import LowRank as LowRank
from inbounds.metrics._low_rank import low_rank as low_rank
from inbounds.metrics._per_row import PerRow as PerRow
from inbounds.metrics._per_row import per_row as per_row
from inbounds.metrics._reference import Reference as Reference
from inbounds.metrics._reference import is_same as is_same
from inbounds.namespaces import namespace

__all__ = [
    "Arrow",
    "Dense",
    "LowRank",
    "PerRow",
    "Reference",
    "arrow",
    "arrow_from_draws",
    "from_draws",
    "is_same",
    "laplace",
    "low_rank",
    "per_row",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
