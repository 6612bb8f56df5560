"""Estimators are unbiased, and know how noisy they are."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.testing import check_gradient
from tests.models_for_tests import linear_regression, poisson_rates

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

THETA = {"rate": jnp.array([2.0, 1.5]), "mix": jnp.array(0.3)}
CENTER = {"rate": jnp.array([2.5, 1.2]), "mix": jnp.array(0.4)}
OPTIONS = {"minibatch": {}, "control_variate": {"center": CENTER}, "taylor": {"center": CENTER}, "svrg": {"every": 10}}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    ("variance", "size"), [("halves", 20), ("halves", 3), ("successive", 5), ("per_example", 3)], ids=str
)
def test_the_gradients_of_the_library_are_what_gradients_must_be(name, variance, size):
    """Three rows: one against two, and two degrees of freedom."""
    gradient = getattr(ib.gradients, name)(variance=variance, **OPTIONS[name])
    check_gradient(gradient, poisson_rates(rows=400), THETA, batch_size=size)


def test_the_first_of_successive_gradients_has_none_before_it():
    posterior = poisson_rates()
    estimator = ib.gradients.minibatch(posterior, variance="successive")
    state, batch, weights = estimator.init(THETA, True), {"n": jnp.ones((5, 2))}, []
    for _ in range(3):
        gradient, state = estimator.estimate(state, THETA, batch, True)
        weights.append(float(gradient.weight))
    assert weights == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("size", [2, 3, 7, 8])
@pytest.mark.parametrize("route", ["one pass", "two gradients"])
def test_the_halves_of_a_batch_make_the_estimate_of_the_whole(route, size):
    """Also of an odd one, whose halves count by their rows."""
    posterior, _, _ = linear_regression(rows=60, columns=2 if route == "one pass" else 9)
    estimator, theta = ib.gradients.minibatch(posterior), {"w": jnp.ones(posterior.data["x"].shape[1])}
    batch = {name: jnp.asarray(x[:size]) for name, x in posterior.data.items()}
    whole = estimator.estimate(None, theta, batch, False)[0].value["w"]
    found = estimator.estimate(None, theta, batch, True)[0]
    np.testing.assert_allclose(found.value["w"], whole, rtol=1e-4)
    half = size // 2
    parts = [{name: x[rows] for name, x in batch.items()} for rows in (slice(half), slice(half, None))]
    first, second = (estimator.gradient(None, theta, part)["w"] for part in parts)
    expected = np.sqrt(half * (size - half)) / size * (first - second)
    assert found.differences["w"].shape == (1, *whole.shape)
    np.testing.assert_allclose(found.differences["w"][0], expected, rtol=1e-4)


@pytest.mark.parametrize("variance", ["halves", "successive"])
def test_the_noise_is_the_smoothed_square_of_the_differences(variance):
    """With bias correction, from the first difference on: of successive gradients that is the second step's."""
    posterior, _, _ = linear_regression(rows=60, columns=2)
    kernel = ib.sgld(
        posterior, noise_correction=True, gradient=ib.gradients.minibatch(variance=variance, smoothing=0.7)
    )
    state, squares, before = kernel.init({"w": np.zeros(2)}), [], None
    for step in range(4):
        batch = {name: jnp.asarray(x[5 * step : 5 * step + 6]) for name, x in posterior.data.items()}
        theta = kernel.position(state)
        first, second, whole = (
            kernel.estimator.gradient(None, theta, {name: x[rows] for name, x in batch.items()})["w"]
            for rows in (slice(3), slice(3, None), slice(None))
        )
        if variance == "halves":
            squares.append((first - second) ** 2 / 4)
        elif before is not None:
            squares.append((whole - before) ** 2 / 2)
        before = whole
        state, info = kernel.step(jax.random.key(step), state, batch, 1e-4)
        weights = 0.7 ** np.arange(len(squares))[::-1]
        expected = np.average(squares, axis=0, weights=weights).mean() if squares else 0
        assert float(info.noise_variance) == pytest.approx(expected, rel=1e-3)


def test_a_control_variate_near_the_mode_is_less_noisy():
    posterior = poisson_rates(rows=400)
    rows = jax.random.randint(jax.random.key(1), (500, 20), 0, 400)
    data = jnp.asarray(posterior.data["n"])

    def noise(factory):
        estimator = factory(posterior)
        state = estimator.init(THETA, False)
        estimates = jax.vmap(lambda r: estimator.estimate(state, THETA, {"n": data[r]}, False)[0].value)(rows)
        return float(jnp.var(estimates["mix"]))

    near = jax.tree.map(lambda x: 1.01 * x, THETA)
    assert noise(ib.gradients.control_variate(center=near)) < 0.01 * noise(ib.gradients.minibatch)


def test_the_full_gradient_does_not_depend_on_its_slices():
    posterior = poisson_rates(rows=100)
    expected = ib.gradients.full_likelihood_gradient(posterior, THETA, rows=1_000)
    for rows in (7, 50, 100):
        sliced = ib.gradients.full_likelihood_gradient(posterior, THETA, rows=rows)
        for key in THETA:
            np.testing.assert_allclose(sliced[key], expected[key], rtol=1e-5)


@pytest.mark.parametrize("make", [ib.sgld, ib.baselines.ito], ids=["sgld", "ito"])
def test_svrg_centres_on_the_current_theta_when_refreshed(make):
    kernel = make(poisson_rates(), gradient=ib.gradients.svrg(every=10))
    state = kernel.init(CENTER)
    state, _ = kernel.step(jax.random.key(0), state, {"n": jnp.ones((4, 2))}, 0.01)
    assert np.allclose(state.estimator.own.center["rate"], CENTER["rate"])
    refreshed = kernel.refresh(state)
    np.testing.assert_allclose(refreshed.estimator.own.center["rate"], kernel.position(state)["rate"], rtol=1e-6)
    full = ib.gradients.full_likelihood_gradient(kernel.posterior, kernel.position(state))
    np.testing.assert_allclose(refreshed.estimator.own.full["mix"], full["mix"], rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ib.gradients.minibatch(variance="guess"), "Unknown variance estimate 'guess'. Known: halves"),
        (lambda: ib.gradients.minibatch(smoothing=1.0), r"in \[0, 1\)"),
        (lambda: ib.gradients.svrg(every=0), "at least 1 step"),
        (lambda: ib.gradients.control_variate(center={})(ib.Posterior({"x": dist.Normal()})), "needs a posterior with"),
    ],
    ids=["variance", "smoothing", "every", "no data"],
)
def test_bad_options_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_half_batches_need_two_rows():
    kernel = ib.sgld(poisson_rates(), noise_correction=True)
    with pytest.raises(ValueError, match="a batch of at least 2"):
        ib.sample(kernel, 0.001, 10, batch_size=1)


def test_halves_of_minibatches_of_unequal_lengths_count_all_of_them():
    """Such as the rows of several plates: each array is cut at its own middle."""

    def gradient(theta, batch):
        return {"m": 10 * (batch["a"] - theta["m"]).mean() + 4 * (batch["b"] - theta["m"]).mean()}

    posterior = ib.Posterior(supports={"m": dist.constraints.real}, gradient=gradient, data={"rows": np.zeros(3)})
    batch = {"a": jnp.arange(20.0), "b": jnp.array([5.0, 7.0, 9.0, 11.0])}
    estimator, theta = ib.gradients.minibatch(posterior), {"m": jnp.zeros(())}
    found, _ = estimator.estimate(estimator.init(theta, True), theta, batch, True)
    assert float(found.value["m"]) == pytest.approx(10 * 9.5 + 4 * 8)
    assert float(found.differences["m"][0]) == pytest.approx(((10 * 4.5 + 4 * 6) - (10 * 14.5 + 4 * 10)) / 2)
    per_example = ib.gradients.minibatch(variance="per_example")(posterior)
    with pytest.raises(ValueError, match="as many of each array; got"):
        per_example.estimate(per_example.init(theta, True), theta, batch, True)


def test_the_variance_of_single_examples_needs_two_of_them():
    kernel = ib.sgld(poisson_rates(), noise_correction=True, gradient=ib.gradients.minibatch(variance="per_example"))
    with pytest.raises(ValueError, match="at least 2 rows"):
        ib.sample(kernel, 1e-3, 10, batch_size=1, progress=False)
