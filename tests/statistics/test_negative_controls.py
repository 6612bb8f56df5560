"""What must fail, as theory says: a test suite in which everything passes shows nothing."""

import jax
import numpy as np
import pytest

import inbounds as ib
from experiments.targets import TARGETS
from inbounds.diagnostics.distances import total_variation
from tests.models_for_tests import noisy

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

GAMMA = TARGETS["gamma-0.5-0.5"]


def distance(kernel, target, step_size, num_steps=20_000):
    draws = ib.sample(
        kernel, step_size, num_steps, burn_in=1_000, num_chains=8, init={"theta": float(target.quantile(0.5))}
    )
    return total_variation(draws.theta["theta"], target).mean()


@pytest.mark.parametrize("step_size", [1e-5, 1e-3, 0.05])
def test_mirror_fails_on_a_density_unbounded_at_its_end(step_size):
    assert distance(ib.baselines.mirror(noisy(GAMMA)), GAMMA, step_size) > 0.4


@pytest.mark.parametrize("name", ["gamma-0.5-0.5", "half-normal", "truncated-normal--1-1", "beta-0.5-0.5"])
def test_ito_fails_at_every_step_size(name):
    target = TARGETS[name]
    kernel = ib.baselines.ito(noisy(target))
    assert min(distance(kernel, target, step_size) for step_size in (0.005, 0.02, 0.1)) > 0.14


def test_ours_succeeds_where_they_fail():
    """The same budget, so that the controls above do not fail for want of steps."""
    assert distance(ib.leimkuhler_matthews(noisy(GAMMA), noise_correction=1.0), GAMMA, 0.3) < 0.05


def test_mirror_works_where_the_density_is_bounded():
    target = TARGETS["half-normal"]
    assert distance(ib.baselines.mirror(noisy(target)), target, 0.02) < 0.06


def test_exp_explodes_under_gradient_noise_and_lipschitz_transforms_do_not():
    posterior = noisy(GAMMA, noise_sd=10.0)

    def run(transform, num_steps):
        return ib.sample(ib.sgld(posterior, transform), 0.01, num_steps, thin=100, num_chains=8, init={"theta": 0.1})

    with pytest.raises(ib.NonFiniteError, match="'exp' is not Lipschitz") as caught:
        run("exp", 400_000)
    for transform in ("softplus", "icll", "integrated_probit"):
        theta = run(transform, max(20_000, 2 * caught.value.step)).theta["theta"]
        assert np.all(np.isfinite(theta))
        assert np.all(theta > 0)


def test_single_reflections_would_leave_the_interval():
    """Beta(.5, .5) under mirror overshoots by more than the width of the interval: only the triangle wave is exact."""
    posterior = noisy(TARGETS["beta-0.5-0.5"], 0.0)
    kernel = ib.baselines.mirror(posterior)
    state = kernel.init({"theta": 1e-6})
    state, _ = jax.jit(kernel.step)(jax.random.key(0), state, None, 1e-3)
    assert 0 < float(kernel.position(state)["theta"]) < 1
