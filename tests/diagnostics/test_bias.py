"""Halving the step finds the bias that the exact stationary law has."""

import numpy as np
import pytest

import inbounds as ib
from experiments.targets import TARGETS
from inbounds.diagnostics import bias_of, stationary
from tests.models_for_tests import noisy

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

TARGET = next(target for name, target in TARGETS.items() if name.startswith("half"))


def test_step_halving_finds_the_bias_of_euler():
    found = bias_of(ib.sgld(noisy(TARGET)), 0.4, 8_000, num_chains=16)
    sd = np.sqrt(TARGET.second_moment - TARGET.mean**2)
    laws = [stationary(TARGET, "softplus", step, noise_sd=1.0) for step in (0.4, 0.2)]
    sds = [np.sqrt(law.mean(np.square) - law.mean() ** 2) for law in laws]
    extrapolated = 2 * (sds[0] - sds[1]) / sd
    assert extrapolated > 0.03
    assert abs(found.sd[0] - extrapolated) < 4 * found.sd_error[0] + 0.005
    assert abs(found.mean[0] - 2 * (laws[0].mean() - laws[1].mean()) / sd) < 4 * found.mean_error[0] + 0.005
    assert found.worst > 0.02
    assert found.names == ["theta"]
    assert "bias at step size 0.4" in str(found)
    assert "theta" in found._repr_html_()


def test_a_second_order_kernel_with_noise_correction_moves_little():
    kernel = ib.leimkuhler_matthews(noisy(TARGET), noise_correction=1.0)
    found = bias_of(kernel, 0.2, 8_000, num_chains=16, order=2)
    assert abs(found.sd[0]) < 4 * found.sd_error[0] + 0.005
    assert found.draws.num_steps == 16_000


def test_one_draw_says_nothing_of_the_bias():
    assert np.isnan(bias_of(ib.sgld(noisy(TARGET)), 0.1, 1, num_chains=1).worst)


def test_schedules_and_wrong_orders_are_refused():
    kernel = ib.sgld(noisy(TARGET))
    with pytest.raises(ValueError, match="one positive number"):
        bias_of(kernel, [0.1, 0.2], 10)
    with pytest.raises(ValueError, match="order"):
        bias_of(kernel, 0.1, 10, order=0)
