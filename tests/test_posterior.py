"""What is sampled, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform

import inbounds as ib
from tests.models_for_tests import poisson_rates

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

X = np.ones((10, 2), np.float32)


def terms(theta, batch):
    return -jnp.square(batch["x"][:, 0] - theta["w"])


def test_supports_come_from_the_priors():
    posterior = poisson_rates()
    assert dict(posterior.variables())["mix"] is constraints.unit_interval
    assert posterior.num_data == 40
    assert repr(posterior) == "Posterior(mix in (0, 1), rate in (0, inf); 40 data)"


def test_log_prior_is_the_sum_over_variables():
    posterior = poisson_rates()
    theta = {"rate": jnp.array([0.5, 2.0]), "mix": jnp.array(0.3)}
    expected = dist.Gamma(2.0, 1.0).log_prob(theta["rate"]).sum() + dist.Beta(0.5, 0.5).log_prob(0.3)
    assert float(posterior.log_prior(theta)) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(
    "prior",
    [dist.Gamma(0.05, 1.0), dist.Beta(0.05, 0.05), dist.HalfCauchy(1.0), dist.Normal(0.0, 1.0)],
    ids=lambda prior: type(prior).__name__,
)
def test_start_is_inside_and_moderate(prior):
    posterior = ib.Posterior({"x": prior})
    starts = np.array([posterior.start(jax.random.key(i))["x"] for i in range(50)])
    assert np.all(np.isfinite(starts))
    assert np.all(np.asarray(prior.support(starts)))
    assert np.ptp(np.log(np.abs(starts))) < 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "got neither"),
        ({"priors": {"w": dist.Normal()}, "supports": {"w": constraints.real}}, "got both"),
        ({"priors": {"w": dist.Normal()}, "log_prior": lambda t: 0.0}, "say the same thing twice"),
        ({"supports": {"w": constraints.real}}, "add `log_prior` or `gradient`"),
        ({"priors": {"w": dist.Normal()}, "data": {"x": X}}, "no `log_likelihood`"),
        ({"priors": {"w": dist.Normal()}, "log_likelihood": terms}, "no `data`"),
        ({"priors": {"w": dist.Poisson(1.0)}}, "is discrete"),
        ({"priors": {"w": 3.0}}, "must be a NumPyro distribution"),
        ({"supports": {"w": "positive"}, "log_prior": lambda t: 0.0}, "must be a NumPyro constraint"),
        (
            {"supports": {"w": constraints.boolean}, "log_prior": lambda t: 0.0},
            "No transform is known for the support of 'w'",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_contradictions_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ib.Posterior(**arguments)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": np.array([[1.0], [np.nan]], np.float32)}, "NaN or infinity in 1 of 2 rows, the first of them row 1"),
        ({"x": X, "y": np.ones(9)}, "unequal length: 'x' 10, 'y' 9"),
        ({"x": np.ones((0, 2))}, "no rows"),
        ({"x": np.float32(1.0)}, "is a scalar"),
        ({"x": np.array(["a", "b"])}, "must be numeric"),
        ({"x": np.array([5, 2**40 + 7])}, "hold 1099511627783, which does not fit int32"),
        ({}, "holds no array"),
    ],
    ids=["nan", "unequal", "empty", "scalar", "text", "large", "nothing"],
)
def test_bad_data_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        ib.Posterior({"w": dist.Normal()}, terms, data)


def test_a_likelihood_of_the_wrong_shape_is_refused():
    summed = ib.Posterior({"w": dist.Normal()}, lambda t, b: jnp.sum(terms(t, b)), {"x": X})
    with pytest.raises(ValueError, match=r"one number per row, shape \(5,\).*Do not sum"):
        ib.sample(ib.sgld(summed), 0.1, 10, batch_size=5)


def test_a_gradient_of_the_wrong_shape_is_refused():
    posterior = ib.Posterior(supports={"w": constraints.real}, gradient=lambda t, b: {"w": jnp.ones(3)}, data={"x": X})
    with pytest.raises(ValueError, match="structure and shapes of theta"):
        ib.sample(ib.sgld(posterior), 0.1, 10, batch_size=5)


def test_a_prior_without_a_sum_is_refused():
    posterior = ib.Posterior(supports={"w": constraints.real}, log_prior=lambda t: -jnp.square(t["w"]) * jnp.ones(2))
    with pytest.raises(ValueError, match="must be a scalar"):
        ib.sample(ib.sgld(posterior), 0.1, 10)


def test_starts_drawn_on_the_host_have_the_law_of_those_drawn_by_jax():
    priors = {
        "gamma": dist.Gamma(0.05, 1.0),
        "scale": dist.HalfNormal(2.0).expand([3]),
        "uniform": dist.Uniform(1e6, 1e6 + 1.0),
        "cauchy": dist.Cauchy(0.0, 1e3),
    }
    posterior = ib.Posterior(priors)
    words = np.random.default_rng(0).integers(2**32, size=(500, 2)).astype(np.uint32)
    here, there = posterior.starts_on_host(words), jax.vmap(posterior.start)(jax.random.wrap_key_data(words))
    ib.sgld(posterior).space.check(here)
    for name in priors:
        assert here[name].shape == there[name].shape
        assert here[name].dtype == there[name].dtype
        assert scipy.stats.ks_2samp(here[name].ravel(), np.asarray(there[name]).ravel()).pvalue > 1e-3


def test_starts_that_numpy_cannot_draw_are_left_to_jax():
    assert ib.Posterior({"x": dist.Dirichlet(np.ones(3))}).starts_on_host(np.zeros((1, 2), np.uint32)) is None
    assert ib.Posterior({"x": dist.Normal().expand([2**20 + 1])}).starts_on_host(np.zeros((1, 2), np.uint32)) is None


@pytest.mark.parametrize("prior", [dist.Delta(1.0), dist.ImproperUniform(dist.constraints.real, (), ())])
def test_a_prior_must_be_a_law_to_draw_from(prior):
    with pytest.raises(ValueError, match="is no law to draw from"):
        ib.Posterior({"m": prior})


def test_masked_data_are_refused():
    with pytest.raises(ValueError, match="masked values"):
        ib.Posterior({"m": dist.Normal()}, lambda theta, x: -x, np.ma.masked_less(np.arange(5.0), 2))


@pytest.mark.parametrize(
    ("likelihood", "data", "said"),
    [
        (
            lambda t, b: b["xx"][:, 0] * t["w"],
            {"x": X},
            "asks for 'xx', which is not there. Did you mean 'x'.*the batch has 'x'",
        ),
        (lambda t, b: b["x"][:, 0] * t["W"], {"x": X}, "asks for 'W', .*Did you mean 'w'. theta has 'w'"),
        (lambda t, b: b.x[:, 0] * t["w"], {"x": X}, r"attribute 'x' of a dict: write \['x'\]"),
        (lambda t, b: b["x"] * t["w"], X[:, 0], "asks for an array by a name.*the batch has no names: it is one array"),
    ],
    ids=["a column", "a variable", "an attribute", "one array"],
)
def test_a_name_that_is_not_there_is_answered_with_those_that_are(likelihood, data, said):
    with pytest.raises(ValueError, match=said):
        ib.sample(ib.sgld(ib.Posterior({"w": dist.Normal()}, likelihood, data)), 0.1, 10)


def test_an_error_of_the_models_own_is_not_taken_for_a_name():
    broken = ib.Posterior({"w": dist.Normal()}, lambda theta, batch: [].w * theta["w"], {"w": X})
    with pytest.raises(AttributeError, match="'list' object"):
        ib.sample(ib.sgld(broken), 0.1, 10)
    both = ib.Posterior({"w": dist.Normal()}, lambda theta, batch: {}["w"] * theta["w"], {"w": X})
    with pytest.raises(KeyError):
        ib.sample(ib.sgld(both), 0.1, 10)


def test_supports_of_vectors_are_called_as_numpyro_calls_them():
    priors = {"cuts": dist.TransformedDistribution(dist.Normal(0, 1).expand([3]).to_event(1), OrderedTransform())}
    assert repr(ib.Posterior(priors | {"share": dist.Dirichlet(np.ones(3))})) == (
        "Posterior(cuts in ordered_vector, share in simplex; no data)"
    )
