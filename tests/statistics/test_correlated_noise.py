"""Correlated posteriors with minibatches: what a metric with noise correction leaves, by exact recursions and by draws."""

import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.diagnostics.weak_error import fitted_slope
from inbounds.kernels.prediction import stationary_covariance

TOY = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([2])}, lambda theta, batch: 0.0 * batch, np.zeros(4, np.float32))
# (dimensions, correlation, how the covariance of the gradient's noise is to the Hessian)
LAWS = [(size, r, skew) for size in (2, 10) for r in (0.0, 0.9, 0.99) for skew in ("proportional", "skewed")]
every_law = pytest.mark.parametrize(("size", "correlation", "skew"), [*LAWS, (100, 0.9, "skewed")])
both = pytest.mark.parametrize("make", [ib.leimkuhler_matthews, ib.baoab], ids=["leimkuhler_matthews", "baoab"])


def in_metric(make, noise_correction=True):
    """A kernel that knows that it moves in a metric; its recursion is asked for, and no draw."""
    metric = ib.metrics.Dense({"x": np.zeros(2)}, np.eye(2), np.eye(2))
    return make(TOY, metric=metric, noise_correction=noise_correction)


def hessian_of(size, correlation):
    return np.linalg.inv(correlation + (1 - correlation) * np.eye(size))


def original(size, correlation, skew, strength):
    """Hessian and noise before any metric, for noise of this mean strength along the axes of the joint map, and that map."""
    hessian, rng = hessian_of(size, correlation), np.random.default_rng(0)
    values, vectors = np.linalg.eigh(hessian)
    turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
    factor = vectors / np.sqrt(values) @ turn
    inverse = np.linalg.inv(factor)
    noise = strength * np.linspace(*((1.0, 1.0) if skew == "proportional" else (1.7, 0.3)), size)
    return hessian, inverse.T * noise @ inverse, factor


def law(kernel, step_size, hessian, noise, factor):
    """The covariance of phi that the kernel settles in, where it moves in the coordinates of `factor`."""
    inside, shown = factor.T @ hessian @ factor, factor.T @ noise @ factor
    recursion = kernel.recursion(step_size, inside, shown, np.ones(len(hessian)))
    read_out = factor @ recursion.read_out
    return read_out @ stationary_covariance(recursion) @ read_out.T


def errors(kernel, step_size, hessian, noise, factor):
    """The largest error of all sds and correlations of phi."""
    got, exact = law(kernel, step_size, hessian, noise, factor), np.linalg.inv(hessian)
    sd, exact_sd = np.sqrt(np.diag(got)), np.sqrt(np.diag(exact))
    apart = got / np.outer(sd, sd) - exact / np.outer(exact_sd, exact_sd)
    return max(np.max(np.abs(sd / exact_sd - 1)), np.max(np.abs(apart)))


@every_law
@both
def test_in_a_metric_noise_correction_leaves_nothing_on_gaussians(make, size, correlation, skew):
    for step_size in (0.05, 0.1, 0.5):
        # A third to a half of what can be made room for: with friction 1 that is less for `baoab`.
        room = 2 / step_size if make is ib.leimkuhler_matthews else np.sqrt(2 / step_size)
        assert errors(in_metric(make), step_size, *original(size, correlation, skew, 0.3 * room)) < 1e-7


@every_law
def test_in_a_metric_sgld_keeps_its_own_bias_and_none_of_the_noise(size, correlation, skew):
    for step_size in (0.05, 0.2):
        found = errors(in_metric(ib.sgld), step_size, *original(size, correlation, skew, 0.6 / step_size))
        assert found == pytest.approx((1 - step_size / 2) ** -0.5 - 1, rel=1e-5)


@every_law
def test_in_the_basis_of_a_metric_the_bias_has_order_two(size, correlation, skew):
    """Of a kernel that moves in it and does not know the curvature."""
    sizes = [0.05, 0.1, 0.2]
    kernel = ib.leimkuhler_matthews(TOY, noise_correction=True)
    inside = [errors(kernel, step, *original(size, correlation, skew, 2.0)) for step in sizes]
    assert 1.8 < fitted_slope(sizes, inside) < 2.2
    # Where the noise is 0.3 of what is injected, all sds and correlations are right to 1%, whatever the dimension and the correlation.
    for step in sizes[:2]:
        assert errors(kernel, step, *original(size, correlation, "proportional", 0.6 / step)) < 0.01


@every_law
@pytest.mark.parametrize("make", [ib.sgld, ib.leimkuhler_matthews], ids=["sgld", "leimkuhler_matthews"])
def test_without_correction_noise_is_an_error_of_first_order_in_every_basis(make, size, correlation, skew):
    sizes = [0.01, 0.02, 0.04]
    found = [errors(in_metric(make, False), step, *original(size, correlation, skew, 2.0)) for step in sizes]
    assert 0.9 < fitted_slope(sizes, found) < 1.15


@both
@pytest.mark.parametrize("size", [2, 10])
def test_without_noise_gaussians_are_sampled_exactly_in_every_metric(make, size):
    """In those of `low_rank`, here of one direction, and of `per_row`, here of rows of one number."""
    hessian, none = hessian_of(size, 0.9), np.zeros((size, size))
    values, vectors = np.linalg.eigh(hessian)
    flattest = vectors[:, :1] * (np.sqrt(values[-1] / values[0]) - 1) @ vectors[:, :1].T
    low_rank = (np.eye(size) + flattest) / np.sqrt(values[-1])
    for factor in (low_rank, np.diag(np.diag(hessian) ** -0.5), np.eye(size) / np.sqrt(values[-1])):
        assert errors(in_metric(make, False), 0.2, hessian, none, factor) < 1e-7


@pytest.mark.parametrize("size", [2, 10, 100])
def test_the_diagonal_correction_alone_fails_on_correlated_posteriors(size):
    """The negative control: of first order, and sds too small by a tenth and more where a third of the injected noise is the gradient's."""
    kernel = ib.leimkuhler_matthews(TOY, noise_correction=True)
    for correlation, least, most in ((0.0, -0.01, 0.02), (0.9, -0.18, -0.1), (0.99, -0.18, -0.14)):
        hessian = hessian_of(size, correlation)
        step_size = 0.12 / np.linalg.eigvalsh(hessian)[-1]
        got = law(kernel, step_size, hessian, 0.6 / step_size * hessian / hessian[0, 0], np.eye(size))
        assert least < np.sqrt(got[0, 0]) - 1 < most, correlation
    hessian, noise, _ = original(size, 0.9, "proportional", 2.0)
    sizes = np.array([0.001, 0.002, 0.004])
    assert 0.9 < fitted_slope(sizes, [errors(kernel, h, hessian, noise, np.eye(size)) for h in sizes]) < 1.1


def test_one_thermostat_fails_on_correlated_noise_in_both_directions():
    """The negative control of `sgnht`: its friction suits the mean of the coordinates."""
    hessian = hessian_of(2, 0.9)
    _, axes = np.linalg.eigh(hessian)

    def along_the_axes(noise):
        found = law(ib.sgnht(TOY), 0.001, hessian, noise, np.eye(2))
        return np.sqrt(np.diag(axes.T @ found @ axes) * np.linalg.eigvalsh(hessian))

    ratio = along_the_axes(100 * hessian)
    assert ratio.max() > 1.2
    assert ratio.min() < 0.8
    np.testing.assert_allclose(along_the_axes(100 * np.eye(2)), 1, atol=0.02)


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_the_amplitude_that_is_exact_on_gaussians_keeps_the_order_elsewhere(noise):
    """U = z^2/2 + z^4/20 - z^3/10 by quadrature: y is a Markov chain, eta and the gradient's noise are integrated out."""
    sizes = [0.1, 0.2, 0.3]
    grid = np.linspace(-6, 6, 601)
    exact = np.exp(-(grid**2 / 2 + grid**4 / 20 - grid**3 / 10))
    exact /= exact.sum()
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def moments(size):
        spread = np.sqrt(size / 2)
        amplitude = size * spread + np.sqrt(2 * size * (1 - size / 2) ** 2 - size**2 * noise)
        phi = grid[:, None] + spread * nodes
        mean = grid[:, None] - size * (phi + phi**3 / 5 - 3 * phi**2 / 10) + amplitude * nodes
        moved = np.exp(-np.square(grid - mean[..., None]) / (2 * size**2 * noise))
        moved = np.einsum("k,ikj->ij", weights, moved / np.maximum(moved.sum(axis=-1, keepdims=True), 1e-300))
        law = exact
        for _ in range(int(12 / size)):
            law = law @ moved
        return np.array([law @ (phi @ weights), law @ (phi**2 @ weights)])

    off = np.array([np.abs(moments(size) - [exact @ grid, exact @ grid**2]) for size in sizes])
    assert fitted_slope(sizes, off[:, 1]) > 1.8
    assert off[0, 1] < 0.02
