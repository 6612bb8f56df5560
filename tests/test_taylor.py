"""Control variates of second order: what they cost, what they read, and how exact they are in single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib


def logistic(size, condition=1.0, rows=2_000):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(rows, size)) * np.geomspace(1, condition**-0.5, size)).astype(np.float32)
    y = (rng.random(rows) < 0.5).astype(np.float32)
    prior = dist.Normal(0.0, 1.0).expand([size]).to_event(1)

    def log_likelihood(theta, batch):
        logit = batch["x"] @ theta["b"]
        return batch["y"] * logit - jax.nn.softplus(logit)

    return ib.Posterior({"b": prior}, log_likelihood, {"x": x, "y": y})


@pytest.mark.parametrize(("size", "rows", "condition"), [(50, 1_000, 1.0), (50, 1_000, 1e6), (150, 100, 1.0)])
@pytest.mark.parametrize("with_noise", [False, True])
def test_it_costs_at_most_three_gradients_of_the_minibatch_and_products_with_one_matrix(
    size, rows, condition, with_noise, optimised
):
    """Operations that XLA counts. A Hessian of a large condition number is held as its factors: two products."""
    posterior, theta = logistic(size, condition), {"b": jnp.zeros(size)}
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[:rows]), posterior.data)

    def operations(estimator, with_noise):
        state = estimator.init(theta, with_noise)
        step = jax.jit(lambda state, x, rows: estimator.estimate(state, x, rows, with_noise)[0][:2])
        return step.lower(state, theta, batch).compile().cost_analysis()["flops"]

    taylor = ib.gradients.taylor(posterior, center=theta)
    products = 1 if taylor.vectors is None else 2
    assert products == (1 if condition == 1 else 2)
    plain = operations(ib.gradients.minibatch(posterior), False)
    assert operations(taylor, with_noise) <= 3 * plain + products * 2 * size**2


def test_one_pass_over_data_on_disk_is_enough_for_its_gradient_and_hessian_and_for_a_metric(tmp_path):
    pytest.importorskip("grain")
    held = logistic(3)
    for name, leaf in held.data.items():
        np.save(tmp_path / f"{name}.npy", leaf)
    stream = ib.data.stream({name: tmp_path / f"{name}.npy" for name in held.data})
    passes, slices = [], stream.slices
    object.__setattr__(stream, "slices", lambda *given: passes.append(1) or slices(*given))
    posterior = ib.Posterior(held.priors, held.log_likelihood, stream)
    theta = {"b": np.zeros(3, np.float32)}
    found, expected = (ib.gradients.taylor(p, center=theta) for p in (posterior, held))
    metric = ib.metrics.laplace(posterior, theta)
    assert len(passes) == 1
    np.testing.assert_allclose(found.full["b"], expected.full["b"], rtol=1e-6)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-6)
    np.testing.assert_allclose(metric.factor @ metric.factor.T, -np.linalg.inv(found.values - np.eye(3)), rtol=1e-5)
    # And a run goes through it: the noise is next to nothing, so that rows from the disk and rows at hand make the same chain.
    runs = [
        ib.sample(
            ib.leimkuhler_matthews(p, metric=metric, gradient=estimator),
            0.3,
            90,
            batch_size=500,
            init=theta,
            progress=False,
        )
        for p, estimator in ((posterior, found), (held, expected))
    ]
    apart = np.abs(np.asarray(runs[0].theta["b"]) - runs[1].theta["b"]) / runs[1].theta["b"].std(axis=(0, 1))
    assert apart.max() < 0.05


@pytest.mark.parametrize(("condition", "error"), [(1e2, 1e-3), (1e8, 1e-2)])
def test_the_drift_in_single_precision_is_off_by_a_hundredth_of_an_sd_at_most(condition, error, optimised):
    """In z the exact drift of a Gaussian is -z. The metric is made in double precision, the drift is not."""
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.normal(size=(3, 3)))  # no unit of a column makes it better
    x = (rng.normal(size=(20_000, 3)) * [1.0, condition**-0.25, condition**-0.5] @ axes.T).astype(np.float32)
    y = (x.sum(axis=1) + rng.normal(size=len(x))).astype(np.float32)
    posterior = ib.Posterior(
        {"b": dist.Normal(0.0, 1e6).expand([3]).to_event(1)},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - batch["x"] @ theta["b"]),
        {"x": x, "y": y},
    )
    mean = np.linalg.lstsq(x.astype(float), y.astype(float), rcond=None)[0]
    center = {"b": mean}
    kernel = ib.sgld(
        posterior, metric=ib.metrics.laplace(posterior, center), gradient=ib.gradients.taylor(center=center)
    )
    state = kernel.estimator.init(jax.tree.map(jnp.asarray, {"b": mean.astype(np.float32)}), False)
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[:100]), posterior.data)

    @jax.jit
    def drift(z):
        theta = kernel.space.evaluation_point(z)
        return kernel.space.pull_back(z, theta, kernel.estimator.estimate(state, theta, batch, False)[0].value)

    z = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    off = np.abs(np.asarray(jax.vmap(drift)(z)) + z)
    print(condition, off.max())
    assert off.max() < error
