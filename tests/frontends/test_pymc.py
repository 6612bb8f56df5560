"""A PyMC model becomes a posterior: minibatches are unbiased, names, coordinates and dimensions are kept, and what cannot be is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pymc", reason="PyMC is not installed: it needs Python 3.12 or later")
pytest.importorskip("bambi", reason="bambi is not installed: it needs Python 3.12 or later")
pytest.importorskip("arviz_base")

import bambi as bmb
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions import transforms
from pytensor.graph.op import Op
from scipy import stats

import inbounds as ib
from inbounds.frontends import posterior_of
from inbounds.frontends._pymc_graphs import JaxFunction

pytestmark = [
    pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning"),  # short on purpose
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore:Data in counts contains missing values"),
    pytest.mark.filterwarnings("ignore:RandomVariable Ops will stop hiding:DeprecationWarning"),  # pm.Simulator
    pytest.mark.filterwarnings("ignore:Calling a RandomVariable without an explicit rng:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes:Warning"),  # bambi with pandas 3
]

GENERATOR = np.random.default_rng(0)
N, GROUPS = 24, 3
X = GENERATOR.normal(size=N)
Y = GENERATOR.normal(1 + 0.5 * X, 0.7)
COUNTS = GENERATOR.poisson(np.exp(0.3 * X))
GROUP = GENERATOR.integers(0, GROUPS, N)


@pytest.fixture(scope="module")
def model():
    """Two observed variables of the same rows, groups, and deterministics of each kind."""
    with pm.Model(coords={"group": list("abc"), "coefficient": ["base", "slope"], "row": np.arange(N)}) as model:
        x = pm.Data("x", X, dims="row")
        beta = pm.Normal("beta", 0, 1, dims="coefficient")
        spread = pm.HalfNormal("spread", 1)
        level = pm.Normal("level", 0, 1, dims="group")
        effect = pm.Deterministic("effect", spread * level, dims="group")
        pm.Deterministic("at zero", beta[0] - beta[1] * x.mean())
        mu = pm.Deterministic("mu", beta[0] + beta[1] * x + effect[GROUP], dims="row")
        pm.Normal("y", mu, 0.7, observed=Y, dims="row")
        pm.Poisson("counts", pm.math.exp(beta[1] * x), observed=COUNTS, dims="row")
    return model


@pytest.fixture(scope="module")
def posterior(model):
    return ib.from_pymc(model, batch_size=6)


@pytest.fixture(scope="module")
def draws(posterior):
    return ib.sample(ib.sgld(posterior), 1e-3, 30, num_chains=2, progress=False)


def test_the_mean_of_the_minibatch_gradients_is_the_gradient_of_all_the_rows(posterior, float64):
    assert posterior.num_data == N
    theta = posterior.start(jax.random.key(0))

    @jax.jit
    def gradient(rows):
        batch = jax.tree.map(lambda column: jnp.asarray(column)[rows], posterior.data)

        def log_density(theta):
            return posterior.log_prior(theta) + N / rows.size * posterior.log_likelihood(theta, batch).sum()

        return jax.grad(log_density)(theta)

    parts = [gradient(rows) for rows in GENERATOR.permutation(N).reshape(4, 6)]
    for name, expected in gradient(np.arange(N)).items():
        np.testing.assert_allclose(np.mean([part[name] for part in parts], axis=0), expected, rtol=1e-12, atol=1e-12)


def test_draws_have_the_models_names_and_what_reads_single_rows_is_left_out(posterior, draws):
    assert set(draws.theta) == {"beta", "spread", "level"}
    assert set(draws.deterministics()) == {"effect", "at zero"}
    assert posterior.of_rows == {"mu"}
    theta, found = draws.theta, draws.deterministics()
    np.testing.assert_allclose(found["effect"], theta["spread"][..., None] * theta["level"], rtol=1e-6)
    expected = theta["beta"][..., 0] - theta["beta"][..., 1] * X.mean()
    np.testing.assert_allclose(found["at zero"], expected, rtol=1e-5, atol=1e-6)
    assert posterior.batch_size == 6


def test_the_export_has_the_models_coordinates_and_dimensions(draws):
    tree = draws.to_arviz()
    assert tree.posterior["beta"].dims == ("chain", "draw", "coefficient")
    assert list(tree.posterior["effect"].coords["group"].values) == list("abc")
    assert tree.observed_data["y"].dims == tree.observed_data["counts"].dims == ("row",)
    np.testing.assert_array_equal(tree.observed_data["counts"], COUNTS)


def test_pymc_predicts_and_computes_what_reads_single_rows_from_the_draws(model, draws):
    tree = draws.to_arviz()
    with model:
        predicted = pm.sample_posterior_predictive(tree, random_seed=0, progressbar=False)
        mu = pm.compute_deterministics(tree.posterior.dataset, var_names=["mu"], progressbar=False)["mu"]
    assert predicted.posterior_predictive["y"].sizes == {"chain": 2, "draw": 30, "row": N}
    theta = draws.theta
    expected = (
        theta["beta"][..., :1] + theta["beta"][..., 1:] * X + (theta["spread"][..., None] * theta["level"])[..., GROUP]
    )
    np.testing.assert_allclose(mu, expected, rtol=1e-4, atol=1e-5)


def test_the_minibatch_of_a_model_gives_the_rows_of_a_step_and_all_rows_are_the_data(float64):
    def built(x, y, **total):
        with pm.Model() as model:
            slope, noise = pm.Normal("slope"), pm.HalfNormal("noise")
            pm.Normal("y", slope * x, noise, observed=y, **total)
        return ib.from_pymc(model)

    whole, cut = built(X, Y), built(*pm.Minibatch(X, Y, batch_size=5), total_size=N)
    assert (whole.batch_size, cut.batch_size, cut.num_data) == (None, 5, N)
    theta = cut.start(jax.random.key(0))
    np.testing.assert_allclose(cut.log_likelihood(theta, cut.data), whole.log_likelihood(theta, whole.data), rtol=1e-12)


def test_infer_takes_a_model_and_finds_its_law():
    counts = np.random.default_rng(1).poisson(3.0, 200)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0)
        pm.Poisson("counts", rate, observed=counts)
    draws = ib.infer(model, error=0.1, method="full", progress=False)
    shape, inverse_scale = 2.0 + counts.sum(), 1.0 + counts.size
    assert draws.certificate.ok
    assert abs(draws.theta["rate"].mean() - shape / inverse_scale) < 0.1 * np.sqrt(shape) / inverse_scale
    assert abs(draws.theta["rate"].std() * inverse_scale / np.sqrt(shape) - 1) < 0.1


def test_a_bambi_model_has_bambis_names_and_its_intercept_is_that_of_predictors_as_they_are():
    table = pd.DataFrame({"x": X + 3, "y": Y, "group": np.array(list("abc"))[GROUP]})
    model = bmb.Model("y ~ x + (x | group)", table)
    posterior = posterior_of(model, (), {})
    assert posterior.num_data == N
    theta = posterior.start(jax.random.key(0))
    found = posterior.deterministics(theta)
    np.testing.assert_allclose(
        found["Intercept"], theta["Intercept_centered"] - theta["x"] * table["x"].mean(), rtol=1e-5
    )
    draws = ib.sample(ib.sgld(posterior), 1e-4, 20, batch_size=6, num_chains=1, progress=False)
    tree = draws.to_arviz()
    assert tree.posterior["x|group"].dims[2:] == ("group__factor_dim",)
    assert posterior.of_rows == {"mu"}
    predicted = model.predict(tree, kind="response", inplace=False)
    assert predicted.posterior_predictive["y"].shape == (1, 20, N)


# -- which arrays have the rows ----------------------------------------------------------------------------------------


def cut_of(build):
    with pm.Model() as model:
        build()
    return ib.from_pymc(model)


def a_table_as_long_as_the_rows():
    table, place = pm.Data("table", X), pm.Data("place", GENERATOR.integers(0, N, N))
    level = pm.Normal("level", 0, 1, shape=N)
    pm.Normal("y", level[place] + table[place] * level[0], 1.0, observed=Y)


def a_square_design():
    design = GENERATOR.normal(size=(6, 6))
    pm.Normal("y", pm.Data("design", design).T @ pm.Normal("b", 0, 1, shape=6), 1.0, observed=GENERATOR.normal(size=6))


def standardised_by_the_data():
    x = pm.Data("x", X)
    pm.Normal("y", pm.Normal("b") * (x - x.mean()) / x.std(), 1.0, observed=Y)


@pytest.mark.parametrize("build", [a_table_as_long_as_the_rows, a_square_design, standardised_by_the_data])
def test_an_array_is_cut_where_its_rows_are_the_rows_whatever_its_length(build, float64):
    posterior = cut_of(build)
    theta, rows = posterior.start(jax.random.key(0)), jnp.array([4, 1])
    whole = posterior.log_likelihood(theta, posterior.data)
    some = posterior.log_likelihood(theta, jax.tree.map(lambda column: column[rows], posterior.data))
    np.testing.assert_allclose(some, whole[rows], rtol=1e-12)
    with posterior.model.model as model:
        np.testing.assert_allclose(
            posterior.log_density(theta), model.compile_logp(jacobian=False, mode="FAST_COMPILE")(theta), rtol=1e-12
        )


def normalised_over_the_rows():
    z = pm.math.exp(pm.Normal("b") * pm.Data("x", X))
    pm.Normal("y", z / z.sum(), 1.0, observed=Y)


def a_potential_that_is_one_number():
    pm.Potential("whole", pm.logp(pm.Normal.dist(pm.Normal("b"), 1.0), Y).sum())


def a_marginal_process():
    process = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Gamma("length", 2, 1)))
    process.marginal_likelihood("y", X=X[:, None], y=Y, sigma=0.5)


def a_latent_process():
    process = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Gamma("length", 2, 1)))
    pm.Normal("y", process.prior("f", X=X[:, None]), 1.0, observed=Y)


def an_autoregression():
    pm.AR("y", rho=[pm.Normal("rho", 0, 0.5)], sigma=1.0, init_dist=pm.Normal.dist(0, 1), observed=Y)


def a_scan_over_rows():
    def step(x, before, b):
        return b * before + x

    (xs, b), first = (pt.as_tensor(X), pm.Normal("b", 0, 0.1)), pt.zeros(())
    pm.Normal("y", pytensor.scan(step, [xs], [first], [b], return_updates=False), 1.0, observed=Y)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            normalised_over_the_rows,
            "'y' cannot be cut into rows: the terms of some rows change when other rows are left out",
        ),
        (a_potential_that_is_one_number, "the potential 'whole' is one number.* leave out the sum"),
        (a_marginal_process, "'y' .* not independent .* Gaussian process.*HSGP"),
        (a_latent_process, "the latent 'f_rotated_' has one value per row of 'y'"),
        (an_autoregression, r"'y' \(AR\) .* not independent"),
        (a_scan_over_rows, r"'y' \(Normal\) is a loop \(scan\) over its rows"),
    ],
)
def test_a_model_without_independent_rows_takes_all_its_data_and_says_why(build, reason):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=f"the model has no minibatches: .*{reason}"):
        ib.from_pymc(model, batch_size=4)


# -- what is refused ---------------------------------------------------------------------------------------------------


def a_discrete_latent():
    label = pm.Bernoulli("label", 0.5, shape=N)
    pm.Normal("y", pm.Normal("mean", 0, 1, shape=2)[label], 1.0, observed=Y)


def a_discrete_gap():
    gaps = np.ma.masked_array(COUNTS, mask=np.arange(N) < 2)
    pm.Poisson("counts", pm.Gamma("rate", 1, 1), observed=gaps)


def an_end_that_moves():
    pm.Normal("y", pm.Uniform("u", 0, pm.HalfNormal("b")), 1.0, observed=Y)


def a_scale_that_may_be_negative():
    pm.Normal("y", 0, pm.Normal("scale", 1, 1), observed=Y)


def data_past_an_end_that_moves():
    pm.Uniform("y", 0, pm.HalfNormal("end", 5, initval=4.0), observed=np.abs(Y))


def an_order_by_a_potential():
    means = pm.Normal("means", 0, 1, shape=2, initval=[0.0, 1.0])
    pm.Potential("order", pt.switch(means[1] < means[0], -np.inf, 0.0))
    pm.NormalMixture("y", [0.5, 0.5], means, 1.0, observed=Y)


def a_support_that_pymc_does_not_know():
    pm.Normal("y", pm.LogitNormal("share"), 1.0, observed=Y)


def a_censored_latent():
    pm.Normal("y", pm.Censored("z", pm.Normal.dist(0, 1), lower=0, upper=2), 1.0, observed=Y)


def a_simulator():
    pm.Simulator("y", lambda rng, a, size: rng.normal(a, 1, size=size), pm.Normal("a"), epsilon=1.0, observed=Y)


class Twice(Op):
    itypes = otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2 * inputs[0])


def a_function_in_python():
    pm.Normal("y", Twice()(pm.Normal("a")), 1.0, observed=Y)


def another_total_size():
    pm.Normal("y", pm.Normal("a"), 1.0, observed=Y, total_size=1_000)


def data_outside_of_a_support():
    pm.Gamma("y", pm.Gamma("a", 1, 1), 1.0, observed=Y)


def nothing_free():
    pm.Normal("y", 0.0, 1.0, observed=Y)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (a_discrete_latent, r"'label' is discrete \(Bernoulli\).* pm.Mixture"),
        (a_discrete_gap, "'counts_unobserved' is discrete"),
        (
            an_end_that_moves,
            r"support of 'u' changes with another variable \(b\).* u = pm.Deterministic\('u', b \* u\)",
        ),
        (a_scale_that_may_be_negative, "'y' has no density where sigma > 0 does not hold.* follows from 'scale'"),
        (data_past_an_end_that_moves, "'y' has no density where an inequality .* follows from 'end'"),
        (an_order_by_a_potential, "'order' has no density .* follows from 'means'.*transforms.ordered"),
        (a_support_that_pymc_does_not_know, "support of 'share' is not known.* logodds"),
        (a_censored_latent, "support of 'z' is not known.* mass on single points"),
        (a_simulator, "pm.Simulator has no density"),
        (a_function_in_python, "PyTensor cannot write the model for JAX"),
        (another_total_size, "'y' has total_size=1,000, but its data have 24 rows"),
        (data_outside_of_a_support, r"not finite at the start: 'y' \(Gamma\)"),
        (nothing_free, "no free variable"),
    ],
)
def test_a_model_that_cannot_be_sampled_is_refused_by_name_with_what_can_be_done(build, said):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=said):
        ib.from_pymc(model)


def test_an_order_and_a_known_support_by_a_transform_are_not_refused_and_the_gradient_is_that_of_the_density(float64):
    with pm.Model() as model:
        means = pm.Normal("means", 0, 1, shape=2, initval=[0.0, 1.0], transform=transforms.ordered)
        share = pm.LogitNormal("share", transform=transforms.logodds)
        pm.NormalMixture("y", [share, 1 - share], means, 1.0, observed=Y)
    posterior = ib.from_pymc(model)
    assert dict(posterior.variables()).keys() == {"means", "share"}
    assert posterior.num_data == N
    theta, width = posterior.start(jax.random.key(0)), 1e-5
    density = jax.jit(posterior.log_density)
    slope = jax.grad(density)(theta)
    for name, move in (("share", width), ("means", np.array([width, 0.0])), ("means", np.array([0.0, width]))):
        rise = density(theta | {name: theta[name] + move}) - density(theta | {name: theta[name] - move})
        np.testing.assert_allclose(np.sum(slope[name] * move) * 2, rise, rtol=1e-6)


def test_the_gradient_of_a_maximum_is_left_out_where_it_cancels_and_nowhere_else(float64):
    x = pt.vector("x", shape=(3,))
    shift = pt.switch(pt.isinf(pt.max(x)), 0.0, pt.max(x))
    outputs = {"cancels": pt.log(pt.sum(pt.exp(x))), "counts": pt.sum(pt.exp(x - shift)) + shift}
    given = jnp.array([0.3, 1.5, -0.2])
    for name, graph in outputs.items():
        function = JaxFunction({"x": x}, {name: graph})
        text = str(jax.make_jaxpr(lambda x, f=function, n=name: f({"x": x})[n])(given))
        assert ("stop_gradient" in text) == (name == "cancels")


def test_where_counts_are_zero_is_computed_from_the_counts_and_not_read(float64):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0)
        pm.Poisson("counts", rate * np.exp(X), observed=COUNTS)
        pm.Potential("others", pt.switch(pt.neq(pt.as_tensor(COUNTS), 1), rate * COUNTS, 0.0))
    posterior = ib.from_pymc(model)
    assert not [name for name, column in posterior.data.items() if column.dtype == bool]
    found = posterior.log_likelihood({"rate": jnp.asarray(1.3)}, posterior.data)
    expected = stats.poisson.logpmf(COUNTS, 1.3 * np.exp(X)) + 1.3 * COUNTS * (COUNTS != 1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(("door", "wanted"), [(ib.from_pymc, "pm.Model"), (ib.from_bambi, "bambi.Model")])
def test_anything_else_is_no_model(door, wanted):
    with pytest.raises(ValueError, match=f"must be a {wanted}; got int"):
        door(3)
