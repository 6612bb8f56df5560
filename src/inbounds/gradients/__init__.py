r"""From how much of the data: estimators of the gradient of $\log \pi$ in theta, which also show their noise.

An estimator factory takes a `Posterior`; its options come first, so that `gradient=ib.gradients.minibatch` and
`gradient=ib.gradients.minibatch(variance="per_example")` both work. The estimator has

- `init(theta, with_noise) -> state`,
- `estimate(state, theta, batch, with_noise) -> (Gradient, state)`,
- `refresh(state, theta) -> state` and `refresh_every`, for those that look at all the data now and then,
- `smoothing`, the weight of the past where a kernel smooths what one minibatch shows of the noise.

What is shown are differences, such as half the difference of two half batches, and no variances: their outer products have
the covariance of the estimate over the draw of the minibatch as their mean. A difference can be pulled back to the proxy
through any map; the variances of the coordinates of theta could not, because the noise of one coordinate goes with that of
another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbounds.gradients._base import Gradient as Gradient
from inbounds.gradients._base import GradientEstimator as GradientEstimator
from inbounds.gradients._control_variate import control_variate as control_variate
from inbounds.gradients._full import full_gradient as full_gradient
from inbounds.gradients._full import full_likelihood_gradient as full_likelihood_gradient
from inbounds.gradients._minibatch import minibatch as minibatch
from inbounds.gradients._svrg import svrg as svrg
from inbounds.gradients._taylor import taylor as taylor
from inbounds.namespaces import namespace

__all__ = [
    "Gradient",
    "GradientEstimator",
    "control_variate",
    "full_gradient",
    "full_likelihood_gradient",
    "minibatch",
    "svrg",
    "taylor",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
