"""A NumPyro model becomes a posterior: its minibatch gradients are unbiased, its sites keep their names."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density

import inbounds as ib
from inbounds.sampling import devices

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

GENERATOR = np.random.default_rng(0)
N, GROUPS = 24, 3
X = GENERATOR.normal(size=(N, 2)).astype(np.float32)
Y = (X @ [0.5, -1.0] + GENERATOR.normal(size=N)).astype(np.float32)
GROUP = GENERATOR.integers(0, GROUPS, N)
MASK = GENERATOR.uniform(size=N) < 0.7
WIDE = GENERATOR.normal(size=(N, 4)).astype(np.float32)


def regression(x, y=None, size=6):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    numpyro.deterministic("precision", scale**-2)
    with numpyro.plate("data", len(x), subsample_size=size) as rows:
        numpyro.deterministic("fitted", x[rows] @ weights)
        numpyro.sample("y", dist.Normal(x[rows] @ weights, scale), obs=None if y is None else y[rows])


def with_subsample(x, y, size=6):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(x), subsample_size=size):
        x, y = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)


def with_groups(group, y, size=6):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("groups", GROUPS):
        level = numpyro.sample("level", dist.Normal(0.0, spread))
    with numpyro.plate("data", len(y), subsample_size=size) as rows:
        numpyro.sample("y", dist.Normal(level[group[rows]], 1.0), obs=y[rows])


def with_mask_scale_and_factors(x, y, mask, size=6):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.factor("ridge", -jnp.sum(weights**2))
    numpyro.sample("anchor", dist.Normal(weights[0], 1.0), obs=jnp.asarray(0.3))
    with numpyro.plate("data", len(y), subsample_size=size) as rows:
        with handlers.mask(mask=mask[rows]), handlers.scale(scale=0.5):
            numpyro.sample("y", dist.Normal(x[rows] @ weights, 1.0), obs=y[rows])
        numpyro.factor("penalty", -jnp.abs(x[rows] @ weights))


def with_a_plate_around(wide, size=6):
    with numpyro.plate("columns", wide.shape[1], dim=-1):
        center = numpyro.sample("center", dist.Normal(0, 1))
        with numpyro.plate("data", len(wide), subsample_size=size, dim=-2) as rows:
            numpyro.sample("y", dist.Normal(center, 1.0), obs=wide[rows])


def two_plates_of_one_size(x, y, size=6):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(y), subsample_size=size) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ weights, 1.0), obs=y[rows])
    with numpyro.plate("again", len(y), subsample_size=size) as rows:
        numpyro.sample("z", dist.Normal(x[rows] @ weights, 2.0), obs=2 * y[rows])


MODELS = {
    "indexing": (regression, (X, Y)),
    "numpyro.subsample": (with_subsample, (X, Y)),
    "a lookup of group levels": (with_groups, (GROUP, Y)),
    "masks, scales and factors": (with_mask_scale_and_factors, (X, Y, MASK)),
    "a plate around the data plate": (with_a_plate_around, (WIDE,)),
    "two plates of one size": (two_plates_of_one_size, (X, Y)),
}


@pytest.fixture(scope="module")
def posterior():
    return ib.from_numpyro(regression, X, y=Y)


def full_gradient_by_numpyro(model, args, theta):
    args = jax.tree.map(jnp.asarray, args)
    return jax.jit(jax.grad(lambda t: log_density(model, args, {"size": None}, t)[0]))(theta)


def assert_close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), dict(got), dict(want))


@pytest.mark.parametrize("case", MODELS)
def test_the_mean_of_the_minibatch_gradients_is_numpyros_full_gradient(case):
    model, args = MODELS[case]
    posterior = ib.from_numpyro(model, *args)
    theta = posterior.start(jax.random.key(3))
    estimate = jax.jit(ib.gradients.minibatch(posterior).gradient)
    batches = np.random.default_rng(1).permutation(N).reshape(-1, 6)
    gradients = [estimate(None, theta, jnp.asarray(batch)) for batch in batches]
    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *gradients)
    full = full_gradient_by_numpyro(model, args, theta)
    assert_close(mean, full)
    both = jax.jit(lambda t: (ib.gradients.full_gradient(posterior, t), jax.grad(posterior.log_density)(t)))
    for gradient in both(theta):
        assert_close(gradient, full)
    assert not np.allclose(jax.tree.leaves(gradients[0])[0], jax.tree.leaves(full)[0], rtol=1e-3)
    assert jax.eval_shape(posterior.log_likelihood, theta, jnp.arange(5)).shape == (5,)
    assert posterior.num_data == N
    assert posterior.batch_size == 6


def nested(wide, rows_size=6, columns_size=2):
    center = numpyro.sample("center", dist.Normal(0, 1))
    outer = numpyro.plate("columns", wide.shape[1], subsample_size=columns_size, dim=-1)
    inner = numpyro.plate("rows", len(wide), subsample_size=rows_size, dim=-2)
    with outer as columns, inner as rows:
        numpyro.sample("y", dist.StudentT(3.0, center, 1.0), obs=wide[rows[:, None], columns])


def two_sizes(x, y, extra, first_size=6, second_size=2):
    center = numpyro.sample("center", dist.Normal(0, 1))
    with numpyro.plate("first", len(y), subsample_size=first_size) as rows:
        numpyro.sample("y", dist.StudentT(3.0, center, 1.0), obs=y[rows])
    with numpyro.plate("second", len(extra), subsample_size=second_size) as rows:
        numpyro.sample("z", dist.StudentT(3.0, center, 2.0), obs=extra[rows])


@pytest.mark.parametrize(
    ("model", "args", "names"),
    [(nested, (WIDE,), ("rows", "columns")), (two_sizes, (X, Y, WIDE[0]), ("first", "second"))],
    ids=["nested", "two sizes"],
)
def test_plates_that_cannot_share_rows_draw_them_independently_and_without_bias(model, args, names):
    posterior = ib.from_numpyro(model, *args)
    theta = {"center": jnp.asarray(0.7)}
    gradient = jax.jit(posterior.gradient)
    mean = np.mean(
        [
            gradient(theta, {names[0]: jnp.asarray(a), names[1]: jnp.asarray(b)})["center"]
            for a in np.arange(N).reshape(-1, 6)
            for b in np.arange(4).reshape(-1, 2)
        ]
    )
    options = dict.fromkeys([f"{names[0]}_size", f"{names[1]}_size"])
    full = jax.jit(jax.grad(lambda t: log_density(model, jax.tree.map(jnp.asarray, args), options, t)[0]))(theta)
    np.testing.assert_allclose(mean, full["center"], rtol=1e-4)
    ours = jax.jit(lambda t: ib.gradients.full_gradient(posterior, t))(theta)
    np.testing.assert_allclose(ours["center"], full["center"], rtol=1e-4)
    rows = posterior.data.plan(jax.random.key(0), jnp.arange(200))
    assert rows[names[0]].shape == (200, 6)
    assert int(rows[names[1]].max()) == 3
    draws = ib.sample(ib.sgld(posterior), 1e-2, 50, num_chains=2, progress=False)
    assert draws.theta["center"].shape == (2, 50)


def test_draws_carry_the_sites_names_deterministics_included_and_predictive_takes_them(posterior):
    draws = ib.sample(ib.sgld(posterior), 1e-3, 30, burn_in=10, num_chains=2, progress=False)
    assert set(draws.theta) == {"weights", "scale"}
    assert set(draws.variables()) == {"weights", "scale", "precision"}
    np.testing.assert_allclose(draws.deterministics()["precision"], draws.theta["scale"] ** -2.0, rtol=1e-5)
    assert draws.flat()["weights"].shape == (40, 2)
    predicted = Predictive(regression, draws.flat())(jax.random.key(0), jnp.asarray(X), size=None)
    assert predicted["y"].shape == (40, N)
    np.testing.assert_array_equal(posterior.observed()["y"], Y)


def test_the_draws_agree_with_the_same_posterior_written_by_hand(posterior):
    by_hand = ib.Posterior(
        {"scale": dist.HalfNormal(2.0), "weights": dist.Normal(0.0, 1.0).expand([2])},
        lambda theta, batch: dist.Normal(batch["x"] @ theta["weights"], theta["scale"]).log_prob(batch["y"]),
        {"x": X, "y": Y},
    )
    options = {"step_size": 1e-3, "num_steps": 40, "batch_size": 6, "seed": 3, "progress": False}
    start = {"scale": 1.0, "weights": np.zeros(2, np.float32)}
    one = ib.sample(ib.leimkuhler_matthews(by_hand), init=start, **options)
    two = ib.sample(ib.leimkuhler_matthews(posterior), init=start, **options)
    assert_close(two.theta, one.theta)


def test_supports_choose_the_transforms_and_a_dict_overrides_them(posterior):
    assert dict(posterior.variables())["scale"].lower_bound == 0
    kernel = ib.sgld(posterior, transforms={"scale": "icll"})
    assert kernel.space.transforms["scale"].name == "icll"
    assert kernel.space.transforms["weights"].name == "identity"


def ordinary(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.factor("ridge", -jnp.sum(weights**2))
    with numpyro.plate("data", len(y)):
        fitted = numpyro.deterministic("fitted", x @ weights)
        numpyro.sample("y", dist.Normal(fitted, 1.0), obs=y)


def ordinary_of_a_number(x, y, size):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", size) as rows:
        numpyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y[rows])


def ordinary_with_everything(tables, group, level_of_group, mask):
    """A dict of data, levels in a plate of their own, a mask, a scale, a factor, a table that happens to be as long as the data."""
    with handlers.reparam(config={"level": LocScaleReparam(0.0)}):
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("groups", GROUPS):
            level = numpyro.sample("level", dist.Normal(0.0, spread))
    numpyro.sample("anchor", dist.Normal(level[0], 1.0), obs=0.3)
    with numpyro.plate("columns", 4, dim=-1), numpyro.plate("data", len(group), dim=-2):
        mean = (level[group] + level_of_group[group])[:, None]
        with handlers.mask(mask=mask[:, None]), handlers.scale(scale=0.5):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=jnp.where(mask[:, None], tables["wide"], 0.0))
        numpyro.factor("penalty", -jnp.abs(mean) * jnp.ones(4))


def a_factor_alone(x, y):
    """A density that no distribution has, row by row."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.factor("cost", -jnp.abs(y - x @ weights))


WITH_NAN = np.where(MASK[:, None], WIDE, np.nan)
ORDINARY = {
    "arguments as they are": (ordinary, (X, Y), ("x", "y")),
    "double precision, and a size of its own": (ordinary_of_a_number, (X.astype(float), Y, N), ("x", "y")),
    "a factor alone": (a_factor_alone, (X, Y), ("x", "y")),
    "everything": (
        ordinary_with_everything,
        ({"wide": WITH_NAN}, GROUP, np.linspace(-1.0, 1.0, N).astype(np.float32), MASK),
        ("tables/wide", "group", "mask"),
    ),
}


@pytest.mark.parametrize("case", ORDINARY)
def test_of_a_model_with_an_ordinary_plate_the_arguments_are_cut(case):
    model, args, cut = ORDINARY[case]
    posterior = ib.from_numpyro(model, *args)
    assert tuple(posterior.data) == cut
    assert (posterior.num_data, posterior.batch_size) == (N, None)
    theta = posterior.start(jax.random.key(3))
    args = jax.tree.map(lambda x: x if isinstance(x, int) else jnp.asarray(x), args)
    full = float(jax.jit(lambda t: log_density(model, args, {}, t)[0])(theta))
    terms = jax.jit(posterior.log_likelihood)
    order = np.random.default_rng(1).permutation(N).reshape(-1, 6)
    batches = [{name: leaf[rows] for name, leaf in posterior.data.items()} for rows in order]
    parts = sum(float(terms(theta, batch).sum()) for batch in batches)
    assert float(posterior.log_prior(theta)) + parts == pytest.approx(full, rel=1e-5)
    scaled = jax.jit(posterior.log_density)
    assert np.mean([scaled(theta, batch) for batch in batches]) == pytest.approx(full, rel=1e-5)
    assert float(scaled(theta)) == pytest.approx(full, rel=1e-5)


def test_draws_of_minibatches_of_an_ordinary_plate_agree_with_those_of_subsample_size():
    options = {"step_size": 1e-3, "num_steps": 40, "batch_size": N, "seed": 3, "progress": False}
    start = {"weights": np.zeros(2, np.float32)}
    whole = ib.from_numpyro(ordinary, X, Y)
    one = ib.sample(ib.sgld(whole), init=start, **options)

    def subsampled(x, y):
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.factor("ridge", -jnp.sum(weights**2))
        with numpyro.plate("data", len(y), subsample_size=6) as rows:
            numpyro.sample("y", dist.Normal(x[rows] @ weights, 1.0), obs=y[rows])

    two = ib.sample(ib.sgld(ib.from_numpyro(subsampled, X, Y)), init=start, **options)
    np.testing.assert_allclose(one.theta["weights"], two.theta["weights"], rtol=1e-3, atol=1e-5)
    few = ib.sample(ib.sgld(whole), 1e-3, 5, batch_size=5, progress=False)
    assert np.all(np.isfinite(few.theta["weights"]))
    assert few.variables()["fitted"].shape == (1, 5, N)
    np.testing.assert_array_equal(whole.observed()["y"], Y)


def normalised_inside(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal((x - x.mean(0)) @ weights, 1.0), obs=y)


def neighbours(y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(slope * jnp.roll(y, 1), 1.0), obs=y)


def numbered(y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(slope * jnp.arange(len(y)), 1.0), obs=y)


def of_a_fixed_length(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.Normal(slope * x.reshape(2, N)[0], 1.0), obs=y)


def one_latent_a_row(y):
    with numpyro.plate("data", len(y)):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(level, 1.0), obs=y)


def no_plate(y):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(center, 1.0), obs=y)


def closed_over():
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.Normal(center, 1.0), obs=jnp.asarray(Y))


@pytest.mark.parametrize(
    ("model", "args", "reason"),
    [
        (normalised_inside, (X, Y), "for a row changes when the other rows are left out"),
        (neighbours, (Y,), "for a row changes when the other rows are left out"),
        (numbered, (Y,), "for a row changes when the other rows are left out"),
        (of_a_fixed_length, (X, Y), "does not run on fewer rows"),
        (one_latent_a_row, (Y,), "'data' of the data holds a latent site too"),
        (no_plate, (Y,), "no observed site of the model is in a plate"),
        (closed_over, (), "no argument of the model has the length of a plate of the data .'data' of size 24."),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_model_that_cannot_be_cut_takes_all_its_data_and_says_why(model, args, reason):
    posterior = ib.from_numpyro(model, *args)
    assert posterior.data is None
    assert "all of them in every step" in repr(posterior)
    with pytest.raises(ValueError, match=f"every step takes all the data of the model: .*{reason}.*subsample_size=n"):
        ib.sample(ib.sgld(posterior), 1e-3, 5, batch_size=6, progress=False)
    theta = posterior.start(jax.random.key(0))
    full = jax.jit(jax.grad(lambda t: log_density(model, jax.tree.map(jnp.asarray, args), {}, t)[0]))(theta)
    assert_close(jax.jit(jax.grad(posterior.log_prior))(theta), full)


def test_another_batch_size_than_the_models_needs_no_change_to_the_model(posterior):
    draws = ib.sample(ib.sgld(posterior), 1e-3, 5, batch_size=11, progress=False)
    assert np.all(np.isfinite(draws.theta["weights"]))


def test_both_forms_for_people_name_the_variables(posterior):
    assert "scale in (0, inf)" in repr(posterior)
    assert "data (24 rows, 6 per step)" in posterior._repr_html_()


def discrete(y):
    kind = numpyro.sample("kind", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(kind, 1.0), obs=y)


def moving_support(y):
    top = numpyro.sample("top", dist.HalfNormal(1.0))
    part = numpyro.sample("part", dist.Uniform(0.0, top))
    numpyro.sample("y", dist.Normal(part, 1.0), obs=y)


def improper(y):
    flat = numpyro.sample("flat", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(flat, 1.0), obs=y)


def local_latents(y):
    with numpyro.plate("data", len(y), subsample_size=6) as rows:
        each = numpyro.sample("each", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(each, 1.0), obs=y[rows])


def outside(y):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y), subsample_size=6) as rows:
        numpyro.sample("y", dist.Normal(center, 1.0), obs=y[rows])
    numpyro.factor("sum", jnp.sum(y[rows] * center))


def fixed_length(y, size=N):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", size, subsample_size=6) as rows:
        numpyro.sample("y", dist.Normal(center, 1.0), obs=y[rows])


def not_indexed(y):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y), subsample_size=6):
        numpyro.sample("y", dist.Normal(center, 1.0), obs=y)


def counts(y):
    rate = numpyro.sample("rate", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(y), subsample_size=6) as rows:
        numpyro.sample("y", dist.Poisson(rate * jnp.log(y[rows])), obs=y[rows])


def square_root(y):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jnp.sqrt(0.0 * center), 1.0), obs=y)


def parameter(y):
    numpyro.sample("y", dist.Normal(numpyro.param("slope", 0.0) + numpyro.sample("a", dist.Normal()), 1.0), obs=y)


def nothing_latent(y):
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def empty_plate(y):
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y), subsample_size=6):
        pass
    numpyro.sample("y", dist.Normal(center, 1.0), obs=y)


def closed_over_numpy():
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", N, subsample_size=6) as rows:
        numpyro.sample("y", dist.Normal(center, 1.0), obs=Y[rows])


def centered(observed, size=6):
    """A model whose observations are `observed(y, rows)`."""

    def model(y):
        center = numpyro.sample("center", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", N, subsample_size=size) as rows:
            numpyro.sample("y", dist.Normal(center, 1.0), obs=observed(y, rows))

    return model


def fitted(of_x, of_y, size=6):
    """A model of x that reads it by `of_x(x, rows)`, and y by `of_y(y, rows)`."""

    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", N, subsample_size=size) as rows:
            numpyro.sample("y", dist.Bernoulli(logits=slope * of_x(x, rows)), obs=of_y(y, rows))

    return model


def by_rows(array, rows):
    return array[rows]


def first_ones(array, rows):
    return array[:6]


SORTED = (np.arange(N) >= N // 2).astype(np.float32)


@pytest.mark.parametrize(
    ("model", "args", "said"),
    [
        (centered(first_ones), (Y,), "rows of the plate 'data' are not used.*y.rows."),
        (centered(lambda y, rows: y[:1], size=1), (Y,), "rows of the plate 'data' are not used"),
        (centered(lambda y, rows: 1e5 + y[:6] + 0 * rows), (Y,), "'y' does not follow the rows.*its observations"),
        (fitted(by_rows, first_ones), (Y, SORTED), "'y' does not follow the rows.*its observations"),
        (fitted(first_ones, by_rows), (Y, SORTED), "'y' does not follow the rows.*its log probability"),
        (fitted(first_ones, by_rows), (SORTED, SORTED), "'y' does not follow the rows.*its 'logits'"),
        (fitted(lambda x, rows: x[rows] - x[rows].mean(), by_rows), (Y, SORTED), "normalise data before the model"),
    ],
    ids=[
        "none", "one row", "far from zero", "observations", "parameters", "parameters of data in order", "a mean over the minibatch",
    ],
)  # fmt: skip
def test_a_plate_whose_rows_are_not_used_is_refused(model, args, said):
    with pytest.raises(ValueError, match=said):
        ib.from_numpyro(model, *args)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (centered(by_rows), (np.ones(N, np.float32),)),
        (centered(by_rows, size=N), (Y,)),
        (centered(by_rows, size=1), (Y,)),
        (fitted(by_rows, lambda y, rows: jnp.ones(len(rows))), (Y, SORTED)),
        (fitted(lambda x, rows: x[rows] / x.std(), lambda y, rows: 1.0), (Y, SORTED)),
    ],
    ids=["constant data", "all rows", "one row", "constant observations", "one observation"],
)
def test_a_plate_whose_rows_are_used_is_not_refused(model, args):
    assert ib.from_numpyro(model, *args).num_data == N


FRAME = pd.DataFrame({"x": X[:, 0], "y": Y, "city": ["Oslo", "Bergen"] * (N // 2)})


def of_a_table(table):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(table)):
        numpyro.sample("y", dist.Normal(slope * table["x"], 1.0), obs=table.y)


def of_a_table_with_rows(table):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(table), subsample_size=6) as rows:
        numpyro.sample("y", dist.Normal(slope * table["x"][rows], 1.0), obs=table["y"][rows])


def of_a_table_of_pandas(table):
    slope = numpyro.sample("slope", dist.Normal(0.0, table["x"].std()))  # of a sample, as pandas has it
    with numpyro.plate("data", table.shape[0]):
        numpyro.sample("y", dist.Normal(slope * jnp.asarray(table["x"].to_numpy()), 1.0), obs=jnp.asarray(table["y"]))


@pytest.mark.parametrize(
    ("model", "batches"), [(of_a_table, True), (of_a_table_with_rows, True), (of_a_table_of_pandas, False)]
)
def test_a_table_is_an_argument_of_a_model(model, batches):
    posterior = ib.from_numpyro(model, FRAME)
    assert posterior.num_data == (N if batches else None)
    slope = jnp.asarray(0.7)
    prior = dist.Normal(0.0, 1.0 if batches else float(FRAME["x"].std())).log_prob(slope)
    expected = prior + dist.Normal(slope * X[:, 0], 1.0).log_prob(Y).sum()
    assert float(posterior.log_density({"slope": slope})) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("column", "said"),
    [("city", "Column 'city' is not numeric"), ("X", "no column 'X'. Did you mean 'x'. Its columns: 'x', 'y', 'city'")],
)
def test_a_column_that_a_model_cannot_have_is_refused_by_name(column, said):
    def model(table):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(table)):
            numpyro.sample("y", dist.Normal(slope * table[column], 1.0), obs=table["y"])

    with pytest.raises(ValueError, match=said):
        ib.from_numpyro(model, FRAME)


def shape_of_any_sign(y):
    location = numpyro.sample("location", dist.Normal(0.0, 1.0))
    shape = numpyro.sample("shape", dist.Normal(1.0, 1.0))
    with numpyro.plate("data", len(y), subsample_size=6) as rows:
        numpyro.sample("y", dist.Weibull(jnp.exp(location), shape), obs=y[rows])


def underflow(y):
    rate = numpyro.deterministic("rate", jnp.exp(-300 * numpyro.sample("slope", dist.HalfNormal(1.0))))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(0.0, rate + 1e-3), obs=y)
        numpyro.sample("z", dist.Bernoulli(1 - rate), obs=jnp.ones(len(y)))


def test_a_parameter_that_the_prior_puts_outside_its_range_is_named_with_what_it_is_computed_from():
    said = r"parameter 'concentration' of 'y' .Weibull. lies outside \(0, inf\) in \d+ of 32 draws.*computed from 'shape': give"
    with pytest.raises(ValueError, match=said):
        ib.from_numpyro(shape_of_any_sign, np.abs(Y))
    assert ib.from_numpyro(underflow, Y).num_data == N  # at a bound is no fault


@pytest.mark.parametrize(
    ("model", "args", "said"),
    [
        (discrete, (Y,), "latent 'kind' is discrete .Bernoulli.*MixtureSameFamily"),
        (moving_support, (Y,), "support of 'part' changes with another latent.*part_unit"),
        (local_latents, (Y,), "latent 'each' is inside the data plate 'data'.*integrate it out"),
        (regression, (X,), "latent 'y' is inside the data plate.*obs=None"),
        (outside, (Y,), "'sum' is outside the data plate 'data' but depends on its rows"),
        (fixed_length, (Y[:-1],), "Data of another length than their plate: 'data' has 24 rows"),
        (fixed_length, (Y, 20), "'data' has 20 rows, but no array given has that length"),
        (not_indexed, (Y,), "shapes that do not fit.*x.rows."),
        (ordinary, (X[:-1], Y), r"shapes that do not fit.*Arrays given: x \[23, 2\], y \[24\]"),
        (ordinary, (X, np.full(N, "much")), "observations of 'y' are no numbers, but <U4"),
        (
            counts,
            (np.array([2, 3, 0, 3, 2, 4, 2], np.float32),),
            "site 'y' .Poisson. has log probability.*first at .2,.",
        ),
        (square_root, (Y,), "gradient in 'center' is not"),
        (parameter, (Y,), "`numpyro.param`, 'slope'"),
        (nothing_latent, (Y,), "no latent site"),
        (empty_plate, (Y,), "'data' has `subsample_size` but holds no observed site"),
        (closed_over_numpy, (), "NumPy array.*jnp.asarray"),
        (3, (), "must be a function"),
    ],
)
def test_a_model_that_cannot_be_sampled_is_told_why_and_what_to_do(model, args, said):
    with pytest.raises(ValueError, match=said):
        ib.from_numpyro(model, *args)


@pytest.mark.parametrize(
    ("x", "said"),
    [(list(X), "^'x' is a list: pass an array"), (np.full(N, "much"), "^'x' is no array of numbers, but of <U4")],
)
def test_an_argument_that_is_no_array_of_numbers_is_named(x, said):
    with pytest.raises(TypeError, match=said):
        ib.from_numpyro(ordinary, x, Y)


def test_a_delta_has_its_value():
    y = np.linspace(-1.0, 1.0, 60).astype(np.float32)

    def model(y):
        shift = numpyro.sample("shift", dist.Delta(2.0))
        m = numpyro.sample("m", dist.Normal(0.0, 10.0))
        with numpyro.plate("N", 60, subsample_size=20) as rows:
            numpyro.sample("y", dist.Normal(m + shift, 1.0), obs=y[rows])

    posterior = ib.from_numpyro(model, y)
    assert list(posterior.supports) == ["m"]
    gradient = jax.grad(posterior.log_density)({"m": jnp.array(1.0)})
    assert float(gradient["m"]) == pytest.approx(float(np.sum(y - 3.0)) - 1.0 / 100, rel=1e-5)


def test_the_model_says_what_shape_a_start_has():
    def model():
        numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1))

    kernel = ib.sgld(ib.from_numpyro(model))
    own = np.arange(6.0).reshape(2, 3)
    draws = ib.sample(kernel, 1e-12, 2, num_chains=2, init={"x": own}, progress=False)
    np.testing.assert_allclose(draws.theta["x"][:, 0], own, atol=1e-4)
    with pytest.raises(ValueError, match=r"'x' starts with shape \(\), but its prior has shape \(3,\)"):
        ib.sample(kernel, 1e-2, 2, init={"x": 0.5}, progress=False)


@pytest.mark.parametrize("size", [4, 20])
def test_what_changes_with_the_rows_is_no_deterministic_of_the_posterior(size):
    x, y = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)

    def model(x, y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.deterministic("double", jnp.array([2 * m, jnp.nan]))
        with numpyro.plate("N", 20, subsample_size=size) as rows:
            mean = m * x[rows]
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[rows])
        numpyro.deterministic("average", mean.mean())

    assert list(ib.from_numpyro(model, x, y).deterministics({"m": 1.0})) == ["double"]


@pytest.mark.parametrize(("size", "per_row"), [(20, ["inside", "outside"]), (300, [])])
def test_deterministics_with_a_value_for_each_of_many_rows_are_left_out_where_arguments_are_cut(size, per_row):
    """Draws of them would be as large as the data, for each draw."""

    def model(x, y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        outside = numpyro.deterministic("outside", m * x)
        numpyro.deterministic("average", outside.mean())
        numpyro.deterministic("two", m * jnp.ones(2))
        with numpyro.plate("N", len(x)):
            inside = numpyro.deterministic("inside", outside + 1)
            numpyro.sample("y", dist.Normal(inside, 1.0), obs=y)

    x = np.arange(size, dtype=np.float32)
    posterior = ib.from_numpyro(model, x, np.zeros(size, np.float32))
    assert posterior.num_data == size
    found = posterior.deterministics({"m": 2.0})
    assert sorted(found) == sorted(["average", "two", *per_row])
    assert found["average"] == 2 * x.mean()


def test_the_data_of_a_model_are_not_divided_between_processes(monkeypatch):
    divided = SimpleNamespace(chain=1, data=2, mesh=None, spreads=True)
    monkeypatch.setattr(devices, "own_places", lambda mesh: [0])
    own = ib.Posterior({"m": dist.Normal(0.0, 1.0)}, lambda theta, y: dist.Normal(theta["m"], 1.0).log_prob(y), Y)
    devices.Layout.check(divided, own, None, 1)
    with pytest.raises(ValueError, match=r"A NumPyro model holds all its data in every process.*Divide the chains"):
        devices.Layout.check(divided, ib.from_numpyro(regression, X, Y), None, 1)


def test_a_flat_prior_counts_nothing_and_starts_in_the_middle_of_its_support():
    posterior = ib.from_numpyro(improper, Y)
    start = posterior.start(jax.random.key(0))
    np.testing.assert_allclose(start["flat"], 0.0)
    shifted = {"flat": jnp.asarray(3.0)}
    expected = np.sum(-0.5 * (Y - 3.0) ** 2 + 0.5 * Y**2)
    got = posterior.log_density(shifted) - posterior.log_density({"flat": jnp.asarray(0.0)})
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_data_that_a_prior_does_not_read_are_no_constants_of_a_run():
    """A loop keeps what it captures: of a million rows the compiler had minutes to spend on them."""

    def model(x, y):
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)

    many = 40
    x, y = np.tile(X, (many, 1)), np.tile(Y, many)
    posterior = ib.from_numpyro(model, x, y)
    before = jax.config.jax_captured_constants_warn_bytes
    jax.config.update("jax_captured_constants_warn_bytes", x.nbytes)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ib.sample(ib.sgld(posterior), 1e-4, 4, batch_size=5, seed=0, progress=False)
    finally:
        jax.config.update("jax_captured_constants_warn_bytes", before)
    assert not [str(warning.message) for warning in said if "constants" in str(warning.message)]


def _as_wide_as_the_data(x, y):
    weight = numpyro.sample("weight", dist.Normal(0.0, x.std()))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x[:, 0] * weight, 1.0), obs=y)


def _as_wide_as_they_are_many(x, y):
    weight = numpyro.sample("weight", dist.Normal(0.0, 1 / len(y)))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x[:, 0] * weight, 1.0), obs=y)


@pytest.mark.parametrize(("model", "scale"), [(_as_wide_as_the_data, X.std()), (_as_wide_as_they_are_many, 1 / N)])
def test_a_prior_that_reads_the_data_reads_all_of_them(model, scale):
    posterior = ib.from_numpyro(model, X, Y)
    want = jax.scipy.stats.norm.logpdf(0.7, 0.0, scale)
    np.testing.assert_allclose(jax.jit(posterior.log_prior)({"weight": jnp.asarray(0.7)}), want, rtol=1e-5)
