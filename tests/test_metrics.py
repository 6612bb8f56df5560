"""Metrics: kernels move z, in which the posterior is round, and sample the posterior of theta all the same."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.exact import Curvature
from inbounds.metrics._dense import shrunk_covariance
from tests.models_for_tests import compilations

ROWS = 20_000


def regression(correlation, scales=(1.0, 1.0), seed=0):
    """A linear regression with known noise: (posterior, mean, covariance), the last two exact."""
    rng = np.random.default_rng(seed)
    size = len(scales)
    covariance = correlation * np.ones((size, size)) + (1 - correlation) * np.eye(size)
    x = (rng.normal(size=(ROWS, size)) @ np.linalg.cholesky(covariance).T * scales).astype(np.float32)
    y = (x @ (1 / np.asarray(scales)) + rng.normal(size=ROWS)).astype(np.float32)
    posterior = ib.Posterior(
        {"b": dist.Normal(0.0, 1e6).expand([size]).to_event(1)},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - batch["x"] @ theta["b"]),
        {"x": x, "y": y},
    )
    precision = x.T.astype(float) @ x.astype(float) + 1e-12 * np.eye(size)
    exact = np.linalg.inv(precision)
    return posterior, exact @ (x.T.astype(float) @ y.astype(float)), exact


def positive_regression():
    """Three positive coefficients and a scale: no Gaussian, but near one."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_000, 3)).astype(np.float32)
    y = (x @ [0.5, 1.0, 2.0] + 0.7 * rng.normal(size=2_000)).astype(np.float32)
    priors = {"b": dist.HalfNormal(3.0).expand([3]).to_event(1), "s": dist.HalfNormal(2.0)}
    return ib.Posterior(
        priors, lambda t, batch: dist.Normal(batch["x"] @ t["b"], t["s"]).log_prob(batch["y"]), {"x": x, "y": y}
    ), {"b": np.array([0.5, 1.0, 2.0], np.float32), "s": np.float32(0.7)}


def law(draws, mean, covariance):
    """(largest error of a mean in sds, largest relative error of an sd, largest error of a correlation)."""
    x = np.asarray(draws.theta["b"], float).reshape(-1, len(mean))
    sd = np.sqrt(np.diag(covariance))
    correlations = np.corrcoef(x.T) - covariance / np.outer(sd, sd)
    return np.max(np.abs(x.mean(0) - mean) / sd), np.max(np.abs(x.std(0) / sd - 1)), np.max(np.abs(correlations))


def test_a_laplace_metric_makes_curvature_the_identity_and_noise_diagonal():
    posterior, mean, covariance = regression(0.99, scales=(1.0, 1_000.0, 1e-3))
    metric = ib.metrics.laplace(posterior, {"b": mean}, batch_size=200)
    hessian = np.linalg.inv(covariance)
    np.testing.assert_allclose(metric.factor.T @ hessian @ metric.factor, np.eye(3), atol=1e-6)
    # Noise of a well-specified model is N / batch times the curvature, up to what 512 samples show.
    np.testing.assert_allclose(metric.noise, ROWS / 200, rtol=0.35)
    np.testing.assert_allclose(metric.inverse @ metric.factor, np.eye(3), atol=1e-6)


def test_the_hessian_of_the_proxy_is_that_of_autodiff():
    posterior, theta = positive_regression()
    kernel = ib.sgld(posterior)
    reference = ib.metrics.Reference(posterior, kernel.space, theta)

    def negative(flat):
        phi = {"b": flat[:3], "s": flat[3]}
        constrained = kernel.space.constrain(phi)
        data = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), posterior.data)
        value = jnp.sum(posterior.log_likelihood(constrained, data)) + posterior.log_prior(constrained)
        return -(value + kernel.space.log_abs_det_jacobian(phi))

    with jax.enable_x64(True):
        expected = np.asarray(jax.hessian(negative)(jnp.concatenate([reference.phi["b"], reference.phi["s"][None]])))
    np.testing.assert_allclose(reference.hessian(), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_noise_correction_in_a_metric_holds_where_the_diagonal_one_fails(optimised):
    """At step size times noise / 2 of 0.3; the negative control is the same run without the metric."""
    posterior, mean, covariance = regression(0.9)
    center = {"b": mean.astype(np.float32)}
    metric = ib.metrics.laplace(posterior, center, batch_size=200)
    run = dict(num_steps=50_000, burn_in=1_000, batch_size=200, num_chains=8, thin=10, progress=False, init=center)
    kernel = ib.leimkuhler_matthews(posterior, metric=metric, noise_correction=True)
    off, sds, correlations = law(ib.sample(kernel, 0.6 / metric.noise.max(), **run), mean, covariance)
    assert off < 0.12  # some 2,000 effective draws
    assert sds < 0.05
    assert correlations < 0.02
    variance = float(np.max(np.diag(np.linalg.inv(covariance)))) * ROWS / 200  # of the gradient in theta
    diagonal = ib.leimkuhler_matthews(posterior, noise_correction=True)
    with pytest.warns(ib.UntrustworthyWarning, match="independent, and here it is not"):
        _, sds, _ = law(ib.sample(diagonal, 0.6 / variance, **run), mean, covariance)
    assert sds > 0.08


@pytest.mark.parametrize("make", [ib.leimkuhler_matthews, ib.baoab], ids=["leimkuhler_matthews", "baoab"])
def test_gaussians_are_sampled_exactly_at_a_large_step(make, optimised):
    """With noise that takes 0.3 of what is injected (of `baoab`, 0.6): the amplitude knows that the curvature is 1."""
    posterior, mean, covariance = regression(0.9)
    step_size, center = 0.5, {"b": mean.astype(np.float32)}
    batch = int(step_size / 0.6 * ROWS)  # so that step size times noise / 2 is 0.3
    metric = ib.metrics.laplace(posterior, center, batch_size=batch)
    kernel = make(posterior, metric=metric, noise_correction=True)
    run = dict(num_steps=4_000, burn_in=200, batch_size=batch, num_chains=4, progress=False, init=center)
    _, sds, correlations = law(ib.sample(kernel, step_size, **run), mean, covariance)
    assert sds < 0.05  # uncorrected: 14% too wide; without knowing the curvature 5%
    assert correlations < 0.02


def test_draws_of_phi_are_of_the_proxy_and_theta_follows_from_them():
    posterior, theta = positive_regression()
    metric = ib.metrics.laplace(posterior, theta, batch_size=100)
    kernel = ib.leimkuhler_matthews(posterior, metric=metric, gradient=ib.gradients.taylor(center=theta))
    draws = ib.sample(kernel, 0.5, 90, batch_size=100, num_chains=2, progress=False, init=theta)
    plain = kernel.space.of_proxy
    np.testing.assert_allclose(draws.theta["b"], np.asarray(plain.constrain(draws.phi)["b"]), rtol=1e-6)
    np.testing.assert_allclose(draws.phi["s"][:, -1], np.asarray(jax.vmap(kernel.proxy)(draws.state)["s"]), rtol=1e-5)
    assert np.all(draws.theta["b"] > 0)
    assert draws.log_theta()["s"].shape == (2, 90)
    back = kernel.space.proxy(kernel.space.unconstrain(theta))
    np.testing.assert_allclose(back["b"], plain.unconstrain(theta)["b"], rtol=1e-4)


def test_another_metric_of_the_same_shape_compiles_nothing():
    posterior, theta = positive_regression()
    run = dict(num_steps=20, batch_size=100, progress=False, init=theta)
    first = ib.metrics.laplace(posterior, theta, batch_size=100)
    ib.sample(ib.sgld(posterior, metric=first), 0.1, **run)
    before = compilations(posterior)
    other = ib.metrics.laplace(posterior, theta, batch_size=100, seed=1)
    ib.sample(ib.sgld(posterior, metric=other), 0.1, **run)
    assert compilations(posterior) == before


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")  # too short a run to have a law
@pytest.mark.parametrize("kind", ["per row", "low rank"])  # the next test has a dense one
def test_a_run_in_a_metric_is_resumed_and_stored(kind, tmp_path):
    posterior, theta = positive_regression()
    options = (posterior, theta)
    metric = ib.metrics.per_row(*options, []) if kind == "per row" else ib.metrics.low_rank(*options, rank=2)
    kernel = ib.leimkuhler_matthews(posterior, metric=metric)
    run = dict(batch_size=100, num_chains=2, progress=False, init=theta, store=tmp_path / "store")
    folder = ib.Checkpoint(tmp_path / "checkpoints", every_steps=64)
    ib.sample(kernel, 0.05, 2_048, checkpoint=folder, **run)
    resumed = ib.sample(kernel, 0.05, 4_096, checkpoint=folder, resume=True, **run)
    whole = ib.sample(kernel, 0.05, 4_096, **run | {"store": None})
    np.testing.assert_array_equal(np.asarray(resumed.theta["b"]), whole.theta["b"])
    np.testing.assert_array_equal(np.asarray(resumed.phi["s"]), whole.phi["s"])


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")  # too short a run to have a law
def test_a_checkpoint_brings_its_own_metric(tmp_path):
    """Another machine finds the axes with other signs and in another order; z would mean something else."""
    posterior, theta = positive_regression()
    metric = ib.metrics.laplace(posterior, theta, batch_size=100)
    turned = replace(metric, factor=-metric.factor[:, ::-1], inverse=-metric.inverse[::-1], noise=metric.noise[::-1])
    folder = ib.Checkpoint(tmp_path / "checkpoints", every_steps=64)
    run = dict(step_size=0.05, batch_size=100, num_chains=2, progress=False, init=theta)

    def go(metric, **options):
        return ib.sample(ib.leimkuhler_matthews(posterior, metric=metric, noise_correction=True), **run, **options)

    go(metric, num_steps=2_048, checkpoint=folder)
    resumed = go(turned, num_steps=4_096, checkpoint=folder, resume=True)
    whole = go(metric, num_steps=4_096)
    np.testing.assert_array_equal(resumed.theta["b"], whole.theta["b"])
    np.testing.assert_array_equal(resumed.kernel.options["metric"].factor, metric.factor)
    narrow = replace(metric, factor=metric.factor / 2, inverse=2 * metric.inverse)
    elsewhere = replace(metric, center=metric.center | {"s": metric.center["s"] + 1})
    for other in (narrow, elsewhere):
        with pytest.raises(ValueError, match="its metric has another centre or other scales"):
            go(other, num_steps=4_096, checkpoint=folder, resume=True)


def test_a_metric_of_draws_is_that_of_their_covariance():
    posterior, mean, covariance = regression(0.9)
    numbers = np.random.default_rng(0).multivariate_normal(mean, covariance, size=(4, 5_000)).astype(np.float32)
    metric = ib.metrics.from_draws(posterior, {"b": numbers}, batch_size=200)
    white = metric.inverse @ covariance @ metric.inverse.T
    np.testing.assert_allclose(white, np.eye(2), atol=0.05)
    with pytest.raises(ValueError, match="at least 10"):
        ib.metrics.from_draws(posterior, {"b": numbers[:1, :5]})


@pytest.mark.parametrize(("size", "count", "most"), [(2, 40, 2.0), (60, 400, 2.1)])
def test_a_few_draws_make_a_metric_that_is_round_also_along_the_steepest_direction(size, count, most):
    """Where all correlations are small and one direction of all coordinates together is 500 times as steep as the others."""
    strong = 0.99 if size == 2 else 0.9
    hessian = strong + (1 - strong) * np.eye(size)
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(np.zeros(size), np.linalg.inv(hessian), size=count)
    values = np.linalg.eigvals(shrunk_covariance(draws) @ hessian).real
    assert 1 / most < values.min()
    assert values.max() < most


@pytest.mark.parametrize("condition", [1e2, 1e8])
def test_a_regression_in_single_precision_is_right_at_any_condition_number(condition, optimised):
    posterior, mean, covariance = regression(0.5, scales=(1.0, condition**-0.5))
    center = {"b": mean}
    metric = ib.metrics.laplace(posterior, center, gradient=ib.gradients.taylor(center=center), batch_size=100)
    kernel = ib.leimkuhler_matthews(
        posterior, metric=metric, gradient=ib.gradients.taylor(center=center), noise_correction=True
    )
    draws = ib.sample(kernel, 0.5, 6_000, burn_in=200, batch_size=100, num_chains=4, progress=False, init=center)
    off, sds, correlations = law(draws, mean, covariance)
    assert off < 0.05
    assert sds < 0.05
    assert correlations < 0.03


def test_a_second_order_control_variate_has_next_to_no_noise_near_its_centre():
    posterior, theta = positive_regression()
    taylor, first = (make(posterior, center=theta) for make in (ib.gradients.taylor, ib.gradients.control_variate))
    near = jax.tree.map(lambda leaf: jnp.asarray(leaf) * 1.02, theta)

    def noise(estimator):
        state = estimator.init(near, False)
        rows = np.random.default_rng(0).integers(0, 2_000, size=(50, 40))
        batches = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], posterior.data)
        values = jax.vmap(lambda batch: estimator.estimate(state, near, batch, False)[0].value["s"])(batches)
        return float(jnp.std(values))

    assert noise(taylor) < 0.1 * noise(first)


def test_the_curvature_of_all_the_data_is_summed_once():
    posterior, theta = positive_regression()
    first = Curvature.of(posterior, theta)
    assert Curvature.of(posterior, theta) is first
    posterior.data = jax.tree.map(lambda leaf: 2 * leaf, posterior.data)
    assert Curvature.of(posterior, theta) is not first


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, m: ib.sgld(p, metric=m, preconditioner={"b": 1.0}), "excludes `preconditioner`"),
        (lambda p, m: ib.sgld(p, metric="dense"), "must be one of ib.metrics"),
        (lambda p, m: ib.sgnht(p, metric=m), "one thermostat for all coordinates"),
        (
            lambda p, m: ib.sample(ib.sgld(p, metric=m, noise_correction=1.0), 0.1, 10, batch_size=50),
            "let the noise be estimated",
        ),
        (lambda p, m: ib.metrics.laplace(p, {"b": jnp.full(3, 50.0), "s": 80.0}), "not positive definite"),
    ],
    ids=["preconditioner", "no metric", "thermostat", "known variance", "no mode"],
)
def test_what_a_metric_cannot_do_is_refused(call, message):
    posterior, theta = positive_regression()
    metric = ib.metrics.laplace(posterior, theta, batch_size=100)
    with pytest.raises(ValueError, match=message):
        call(posterior, metric)
