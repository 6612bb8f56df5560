"""More dimensions than matrices are made for: noise that a correction by coordinates does not see is found all the same."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.linalg import eigh

import inbounds as ib
from inbounds.kernels.prediction import as_corrected, beyond_chance, predict

SIZE, ROWS, BATCH = 140, 4_000, 20


@functools.cache
def regression(correlation):
    """(posterior, Hessian, mode) of a regression with noise of sd 1."""
    rng = np.random.default_rng(0)
    x = np.sqrt(correlation) * rng.normal(size=(ROWS, 1)) + np.sqrt(1 - correlation) * rng.normal(size=(ROWS, SIZE))
    x = x.astype(np.float32)
    y = (x @ (0.1 * rng.normal(size=SIZE)) + rng.normal(size=ROWS)).astype(np.float32)
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 1e3).expand([SIZE]).to_event(1)},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - batch["x"] @ theta["w"]),
        {"x": x, "y": y},
    )
    hessian = x.T.astype(float) @ x.astype(float)
    return posterior, hessian, np.linalg.solve(hessian, x.T.astype(float) @ y).astype(np.float32)


def largest_error(kernel, step_size, hessian):
    """Of the sd of any linear function, where noise and curvature are proportional."""
    found = predict(kernel, step_size, hessian, ROWS / BATCH * hessian).covariance
    return np.max(np.abs(np.sqrt(eigh(found, np.linalg.inv(hessian), eigvals_only=True)) - 1))


@pytest.mark.parametrize("corrects", [True, False], ids=["corrected", "not corrected"])
def test_the_doctors_range_is_right_where_noise_is_correlated(corrects):
    """Taken for independent, the noise would allow steps a hundred times as long."""
    posterior, hessian, _ = regression(0.9)
    kernel = ib.leimkuhler_matthews(posterior, noise_correction=corrects)
    high = ib.check(kernel, batch_size=BATCH, show=False).step_sizes[1]
    promised = 0.025 if corrects else 0.05
    assert promised / 3 < largest_error(kernel, high, hessian) < 1.5 * promised


@pytest.mark.parametrize("noise", [0.0, 0.4, 1.0, 3.0])
def test_an_axis_alone_shows_what_the_whole_does(noise):
    """In two dimensions, whose coordinates have noise 1 and their sum another one; what is taken for independent is the exact answer."""
    kernel = ib.leimkuhler_matthews(ib.Posterior({"w": dist.Normal()}), noise_correction=1.0)
    curvature, together = np.array([0.5]), np.array([noise])
    whole = np.array([[1.0, noise - 1.0], [noise - 1.0, 1.0]])
    along = [
        predict(kernel, 0.3, *gaussian).covariance
        for gaussian in (as_corrected(curvature, together, np.ones(1)), (0.5 * np.eye(2), whole, np.ones(2)))
    ]
    found, expected = (covariance.sum() / len(covariance) for covariance in along)
    assert found == pytest.approx(expected, rel=1e-9)


def test_chance_is_not_taken_for_correlation():
    taken = np.full(5_000, 2.0)
    by_chance = taken * np.random.default_rng(0).chisquare(184, size=5_000) / 184
    np.testing.assert_array_equal(beyond_chance(by_chance, taken, 184), taken)
    np.testing.assert_array_equal(beyond_chance(np.array([0.5, 4.0]), np.array([2.0, 2.0]), 184), [0.5, 4.0])


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")
@pytest.mark.parametrize(("correlation", "said"), [(0.9, True), (0.0, False)])
def test_a_run_says_by_how_much_a_correction_by_coordinates_makes_its_sds_too_small(correlation, said):
    posterior, hessian, mode = regression(correlation)
    kernel = ib.leimkuhler_matthews(posterior, noise_correction=True)
    step_size = 0.6 / (ROWS / BATCH * hessian[0, 0])  # the noise of a coordinate is 0.3 of what is injected
    draws = ib.sample(
        kernel, step_size, 6_000, burn_in=1_000, thin=5, batch_size=BATCH, num_chains=2, init={"w": mode}, progress=False
    )  # fmt: skip
    notes = {note.section: note for note in draws.of_steps}
    assert ("correlated-noise" in notes) == said
    assert not notes["not-judged"].loud
    if said:  # exactly: a Gaussian whose injected noise is 0.3 too small, -16%
        assert "along the axes in which the draws lie furthest apart" in notes["correlated-noise"].text
        assert any(f"-1{digit}." in notes["correlated-noise"].text for digit in "3456789")
