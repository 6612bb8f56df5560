"""Correlated posteriors with minibatches: what a metric with noise correction leaves, by exact recursions and by draws."""

import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.diagnostics.prediction import predict
from inbounds.diagnostics.weak_error import fitted_slope

TOY = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([2])}, lambda theta, batch: 0.0 * batch, np.zeros(4, np.float32))
NOISES = {"proportional": (1.0, 1.0), "skewed": (1.7, 0.3)}  # of the gradient, along the axes of the metric


def in_metric(make):
    """A kernel that knows that it moves in a metric; its recursion is asked for, and no draw."""
    metric = ib.metrics.Dense({"x": np.zeros(2)}, np.eye(2), np.eye(2))
    return make(TOY, metric=metric, noise_correction=True)


def original(correlation, noise):
    """Hessian and noise before any metric, for noise given along the axes of the joint map, and that map."""
    hessian = np.linalg.inv([[1.0, correlation], [correlation, 1.0]])
    values, vectors = np.linalg.eigh(hessian)
    turn = np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
    factor = vectors / np.sqrt(values) @ turn
    inverse = np.linalg.inv(factor)
    return hessian, inverse.T @ np.diag(noise) @ inverse, factor


def errors(kernel, step_size, hessian, noise, factor):
    """Largest errors of the sds and of the correlation of phi."""
    moved = predict(kernel, step_size, factor.T @ hessian @ factor, factor.T @ noise @ factor).covariance
    got, exact = factor @ moved @ factor.T, np.linalg.inv(hessian)
    sd, exact_sd = np.sqrt(np.diag(got)), np.sqrt(np.diag(exact))
    return max(np.max(np.abs(sd / exact_sd - 1)), np.abs(got[0, 1] / sd.prod() - exact[0, 1] / exact_sd.prod()))


@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("skew", NOISES)
@pytest.mark.parametrize("make", [ib.leimkuhler_matthews, ib.baoab], ids=["leimkuhler_matthews", "baoab"])
def test_in_a_metric_noise_correction_leaves_nothing_on_gaussians(make, skew, correlation):
    for step_size in (0.05, 0.1, 0.5):
        # A third to a half of what can be made room for: with friction 1 that is less for `baoab`.
        room = 2 / step_size if make is ib.leimkuhler_matthews else np.sqrt(2 / step_size)
        noise = 0.3 * room * np.asarray(NOISES[skew])
        assert errors(in_metric(make), step_size, *original(correlation, noise)) < 1e-8


@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("skew", NOISES)
def test_in_the_basis_of_a_metric_the_bias_has_order_two(skew, correlation):
    """Of a kernel that moves in it and does not know the curvature."""
    sizes, noise = [0.05, 0.1, 0.2], 2.0 * np.asarray(NOISES[skew])
    hessian, covariance, factor = original(correlation, noise)
    kernel = ib.leimkuhler_matthews(TOY, noise_correction=True)
    inside = [errors(kernel, size, hessian, covariance, factor) for size in sizes]
    assert 1.8 < fitted_slope(sizes, inside) < 2.2


def test_the_diagonal_correction_alone_fails_on_correlated_posteriors():
    """The negative control: of first order, and sds too small by a tenth and more where a third of the injected noise is the gradient's."""
    kernel = ib.leimkuhler_matthews(TOY, noise_correction=True)
    for correlation, expected in ((0.0, 1.0), (0.9, 0.87), (0.99, 0.84)):
        hessian = np.linalg.inv([[1.0, correlation], [correlation, 1.0]])
        step_size = 0.012 if correlation < 0.99 else 0.0012
        noise = 0.6 / step_size * hessian / hessian[0, 0]
        assert predict(kernel, step_size, hessian, noise).sd_ratio == pytest.approx(expected, abs=0.015), correlation
    hessian, noise, _ = original(0.9, (2.0, 2.0))
    sizes = [0.005, 0.01, 0.02]
    assert 0.9 < fitted_slope(sizes, [errors(kernel, size, hessian, noise, np.eye(2)) for size in sizes]) < 1.1


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
