"""Predictions of rows by draws, in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.sampling import predictions

pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

X = np.linspace(-1, 1, 23).astype(np.float32)


@pytest.fixture(scope="module")
def draws():
    posterior = ib.Posterior({"w": dist.Normal(0.0, 1.0), "s": dist.HalfNormal(1.0)})
    return ib.sample(ib.sgld(posterior), 0.05, 60, num_chains=3, progress=False)


def line(theta, x):
    return theta["w"] * x


def outcome(theta, x, key):
    return theta["w"] * x + theta["s"] * jax.random.normal(key, x.shape)


@pytest.mark.parametrize("batch_size", [None, 1, 7, 100])
def test_every_row_at_every_draw_whatever_the_batches(draws, batch_size):
    found = draws.predict(line, X, batch_size=batch_size, progress=False)
    np.testing.assert_allclose(found, draws.theta["w"][..., None] * X, rtol=1e-6)


def test_what_is_random_does_not_depend_on_the_batches_and_has_its_law(draws):
    one, two = (draws.predict(outcome, X, batch_size=size, seed=4, progress=False) for size in (None, 5))
    np.testing.assert_allclose(one, two, rtol=1e-5)
    noise = (one - draws.theta["w"][..., None] * X) / draws.theta["s"][..., None]
    assert noise.mean() == pytest.approx(0, abs=0.06)
    assert noise.std() == pytest.approx(1, abs=0.06)
    assert abs(np.corrcoef(noise.reshape(-1, len(X)).T)[0, 1]) < 0.3  # rows have keys of their own


def test_of_each_row_only_what_is_asked_for_is_kept(draws, monkeypatch):
    monkeypatch.setattr(predictions, "_room", lambda table: pytest.fail("it made room for all"))
    whole = draws.theta["w"].reshape(-1, 1) * X
    mean = draws.predict(line, X, batch_size=4, reduce=lambda values: values.mean(axis=0), progress=False)
    np.testing.assert_allclose(mean, whole.mean(axis=0), atol=1e-6)
    bands = draws.predict(line, X, batch_size=4, reduce=lambda v: np.quantile(v, [0.1, 0.9], axis=0).T, progress=False)
    np.testing.assert_allclose(bands, np.quantile(whole, [0.1, 0.9], axis=0).T, atol=1e-6)


def test_trees_of_values_of_any_shape(draws):
    found = draws.predict(
        lambda theta, batch: {"two": theta["w"] * jnp.stack([batch["x"], -batch["x"]], axis=1)},
        {"x": X},
        progress=False,
    )
    assert found["two"].shape == (3, 60, 23, 2)
    np.testing.assert_array_equal(found["two"][..., 0], -found["two"][..., 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"f": lambda theta, x: theta["w"]}, r"`f\(theta, batch\)` must return one value per row"),
        ({"f": 3}, "`f` must be a function of theta and a batch of rows; got int"),
        ({"f": lambda theta, x: theta["w"] * (x - x.mean()), "batch_size": 5}, "Or give `batch_size` all the rows"),
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1; got 0"),
        ({"data": None}, "There are no rows"),
        ({"reduce": lambda values: values.mean()}, r"must return one per row. Of 23 rows it returned the shape \(\)"),
    ],
)
def test_what_cannot_be_predicted_is_refused(draws, arguments, message):
    with pytest.raises(ValueError, match=message):
        draws.predict(**{"f": line, "data": X, "progress": False} | arguments)
