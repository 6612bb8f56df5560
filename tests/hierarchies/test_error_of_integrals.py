"""The error of the integrals: seen by a finer rule, and part of what a run may claim."""

from types import SimpleNamespace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import inbounds as ib
from inbounds.inference.clock import Clock
from inbounds.inference.doubts import _error
from inbounds.inference.stopping import Enough

GROUPS = 300
GENERATOR = np.random.default_rng(2)
GROUP = np.repeat(np.arange(GROUPS), 2)
Y = GENERATOR.integers(0, 2, 2 * GROUPS)


def model(group, y):
    """Two Bernoulli rows per group, and a scale that is not small: what quadrature finds hardest."""
    scale = numpyro.sample("scale", dist.HalfNormal(3))
    with numpyro.plate("groups", GROUPS):
        effect = numpyro.sample("effect", dist.Normal(0, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=effect[group]), obs=y)


def test_the_error_is_that_of_the_density_and_a_run_with_too_much_of_it_is_not_certified():
    posterior = ib.from_numpyro(model, GROUP, Y).integrated()
    rough = posterior.integrated(nodes=3)
    exact = posterior.integrated(nodes=41)
    thetas = {"scale": GENERATOR.normal(2.0, 0.2, 16).astype(np.float32)}

    def true_error(other):
        each = jax.jit(jax.vmap(other.log_density))(thetas) - jax.jit(jax.vmap(exact.log_density))(thetas)
        return np.std(each, ddof=1)

    seen = rough.density_error(thetas)
    assert 0.5 * true_error(rough) < seen < 2 * true_error(rough)
    assert posterior.density_error(thetas) < seen / 10
    enough = Enough(0.05, 0, 1, Clock(None), False, {})
    enough.estimates = {"scale": SimpleNamespace(mean_error=np.array([0.01]), sd_error=np.array([0.01]))}
    enough.shapes = {"scale": ()}
    enough.off = 0.04
    assert enough.reached() > 0.08
    assert "not precise enough" in _error(enough)[0]
    assert "integrated(nodes=" in _error(enough)[0]
    assert enough.by_variable("mean_error", None)["scale"] > 0.04
