"""Runs on correlated posteriors in 2, 10 and 100 dimensions: means, sds and correlations against the exact ones.

What each combination of kernel, gradient, correction and metric does to a Gaussian is known exactly: the update is its recursion
(`tests/kernels/test_recursions.py`), with the covariance that the gradient's noise has (`tests/test_gradients.py`), and the laws of the
recursions are in `test_correlated_noise.py`. The runs here go through everything at once, each through another combination.
"""

import numpy as np
import pytest

import inbounds as ib
from benchmarks.geometry import regressions
from benchmarks.geometry.regressions import SIZES, compare, flat, law_of

BATCH, CHAINS, DRAWS = 333, 16, 600
RUNS = [  # kernel, gradient, noise correction, metric, step size, whether the law is the posterior itself
    (ib.leimkuhler_matthews, "minibatch", True, "dense", 0.1, True),
    (ib.baoab, "minibatch", True, "dense", 0.1, True),
    (ib.sgld, "minibatch", True, "from draws", 0.1, False),
    (ib.leimkuhler_matthews, "control_variate", False, "low rank", 0.1, False),
    (ib.baoab, "taylor", False, "per row", 0.3, True),
    (ib.sgld, "svrg", False, "dense", 0.1, False),
]


# Some of these runs are slow along some of the 112 numbers. How slow is known, and is in the limits here.
@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")
@pytest.mark.parametrize(("make", "gradient", "corrects", "metric", "step_size", "exact"), RUNS)
def test_a_run_has_the_law_that_theory_says(make, gradient, corrects, metric, step_size, exact):
    """At a step at which the noise of plain minibatches is 0.3 of what is injected."""
    posterior, law = regressions.regressions()
    estimator = regressions.gradient(gradient)
    made = regressions.metric(metric, estimator, BATCH)
    options = {"friction": 3.0} if make is ib.baoab else {}
    kernel = make(posterior, metric=made, gradient=estimator, noise_correction=corrects, **options)
    draws = ib.sample(
        kernel,
        step_size,
        DRAWS + 200,
        burn_in=200,
        batch_size=BATCH,
        num_chains=CHAINS,
        init=regressions.center(),
        batching="replacement",
        progress=False,
    )
    covariance, time = law_of(kernel, made, step_size, law.noise[gradient] / BATCH)
    for size, found in compare(flat(draws), law.mean, covariance, time).items():
        assert found.mean < 4.5, size
        assert found.sd < 4.5, size
        assert found.correlation < 4.5, size
        assert abs(found.overall) < 4, size
    assert not [note for note in draws.of_steps if note.loud]
    if exact:
        sd, of_law = (np.sqrt(np.diag(c)) for c in (law.covariance, covariance))
        assert np.max(np.abs(of_law / sd - 1)) < 0.02
        assert compare(flat(draws), law.mean, law.covariance, time)[SIZES[-1]].sd_error == pytest.approx(0, abs=0.01)
