"""`ib.infer` as users meet it: what it takes, what it answers, and that it says so where the answer cannot be believed."""

import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.deadline import OutOfTimeError
from inbounds.inference import _infer, choose, stopping, windows
from inbounds.inference.clock import Clock
from inbounds.sampling import run
from inbounds.space import Space
from tests.inference.spending import ROWS, exact, of_spending, spending


def regression(x, y=None, error=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    numpyro.deterministic("sum", slope.sum())
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x @ slope, error), obs=y)


@pytest.fixture(scope="module")
def modelled():
    """A NumPyro model with an ordinary plate, called with its data, and with an argument that has a name of `infer`'s own."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(400, 2)).astype(np.float32)
    y = (x @ [1.0, -0.5] + 0.5 * generator.normal(size=400)).astype(np.float32)
    options = {"method": "minibatch", "error": 0.1, "num_chains": 2, "progress": False}
    return ib.infer(regression, x, y=y, model_kwargs={"error": 0.5}, **options), x, y


# What it answers.


def test_the_answer_is_within_its_stated_error_of_the_exact_one(certified):
    mean, sd = exact(spending())
    found = certified.certificate
    assert found.ok, found.reasons
    assert abs(found.mean["rate"] - mean) / sd < 3 * found.mean_error["rate"]
    assert abs(found.sd["rate"] - sd) / sd < 3 * found.sd_error["rate"]
    quantiles = mean + sd * np.array([-1.645, 0.0, 1.645])
    assert np.all(np.abs(found.quantiles["rate"] - quantiles) / sd < 3 * found.quantile_error["rate"] + 0.02)


def test_the_certificate_has_the_names_of_the_contract(certified):
    found = certified.certificate
    assert isinstance(found, ib.Certificate)
    assert (found.ok, found.reasons, found.error, found.method) == (True, [], 0.05, "minibatch")
    errors = [*found.mean_error.values(), *found.sd_error.values()]
    assert found.reached == pytest.approx(2 * max(map(np.max, errors)))
    assert found.reached <= found.error
    for by_name in (found.mean, found.sd, found.mean_error, found.sd_error, found.bias):
        assert {name: x.shape for name, x in by_name.items()} == {"rate": (), "spend": ()}
    for by_name in (found.quantiles, found.quantile_error):
        assert by_name["rate"].shape == (3,)
    assert found.bias["rate"] <= found.mean_error["rate"]
    assert {"start", "metric", "method", "gradient", "batch", "steps", "length"} <= set(found.choices)
    assert all(why.endswith(".") for why in found.choices.values())
    assert found.costs["gradients of rows"] > 0
    assert str(found).startswith("Certified: twice the largest total error is 0.0")
    assert found.paragraph() in str(found)


def test_the_summary_has_the_total_errors_and_the_verdict(certified):
    summary = certified.summary()
    assert summary["rate"]["error"] == pytest.approx(certified.certificate.mean_error["rate"])
    assert summary["spend"]["error"] == pytest.approx(certified.certificate.mean_error["spend"])
    assert summary["rate"]["mean"] == pytest.approx(certified.certificate.mean["rate"])
    assert summary["rate"]["95%"] == pytest.approx(certified.certificate.quantiles["rate"][2])
    assert summary.verdict.startswith("certified.")


def test_exact_gradients_have_no_bias(compilations, monkeypatch):
    run, before = _infer._run, []
    monkeypatch.setattr(_infer, "_run", lambda *a, **k: before.append(compilations.count) or run(*a, **k))
    draws = ib.infer(spending(), method="full", progress=False)
    assert compilations.count - before[0] <= 4
    assert compilations.count <= 20  # in all: what has the size of theta is no program of its own
    assert draws.certificate.ok, draws.certificate.reasons
    assert draws.certificate.method == "full"
    assert draws.certificate.bias["rate"] == 0
    mean, sd = exact(spending())
    assert abs(draws.certificate.mean["rate"] - mean) / sd < 3 * draws.certificate.mean_error["rate"]


@pytest.mark.parametrize(("full", "minibatch", "first"), [(1.0, 2.0, "full"), (2.0, 1.0, "minibatch")])
def test_auto_takes_what_is_expected_to_be_there_first_and_says_why(full, minibatch, first, monkeypatch, certified):
    posterior = spending()
    found = choose.look_around(posterior, Space.of(posterior.supports, None), None, 0, Clock(None))
    monkeypatch.setattr(choose, "_expected_seconds", lambda *_: (full, minibatch))
    plans = choose.plans(posterior, found, "auto", 4)
    assert plans[0].method == first
    assert "expected to take" in plans[0].why
    assert {plan.method for plan in plans} == {"full", "minibatch"}  # the other one tries after the first
    assert [plan.method for plan in choose.plans(posterior, found, "full", 4)] == ["full"]


@pytest.mark.parametrize(("seconds", "first"), [(1e-6, "full"), (1e-3, "minibatch")])
def test_auto_asks_what_a_pass_over_the_data_costs(seconds, first):
    few = spending()
    posterior = ib.Posterior(few.priors, few.log_likelihood, np.tile(few.data, 20))
    found = choose.look_around(posterior, Space.of(posterior.supports, None), None, 0, Clock(None))
    found = replace(found, mode=replace(found.mode, seconds_per_pass=seconds))
    plans = choose.plans(posterior, found, "auto", 4)
    assert plans[0].method == first
    if first == "minibatch":  # but not where these turn out to need many rows
        setup = choose.choose(posterior, Space.of(posterior.supports, None), found, plans[0], 4, 0, Clock(None))
        assert choose.trajectories_first(plans, setup, found) == plans
        crowded = choose.trajectories_first(plans, replace(setup, batch_size=posterior.num_data // 2), found)
        assert [plan.method for plan in crowded] == ["full", "minibatch"]


# What it takes.


def test_trajectories_come_first_where_minibatches_would_need_all_the_data(monkeypatch):
    monkeypatch.setattr(choose, "_expected_seconds", lambda *_: (2.0, 1.0))
    few = ib.Posterior(spending().priors, spending().log_likelihood, spending().data[:100])
    draws = ib.infer(few, error=0.15, progress=False)
    assert draws.certificate.ok
    assert draws.certificate.method == "full"
    assert "all the data in each step" in draws.certificate.choices["method"]


def test_a_numpyro_model_goes_in_as_it_is(modelled):
    draws, x, y = modelled
    covariance = np.linalg.inv(x.T.astype(float) @ x / 0.25 + np.eye(2) / 100)
    mean, sd = covariance @ (x.T.astype(float) @ y) / 0.25, np.sqrt(np.diag(covariance))
    found = draws.certificate
    assert found.ok, found.reasons
    assert draws.posterior.num_data == 400
    assert np.all(np.abs(found.mean["slope"] - mean) / sd < 3 * found.mean_error["slope"])
    assert np.all(np.abs(found.sd["slope"] / sd - 1) < 3 * found.sd_error["slope"])  # the noise is 0.5, not 1
    assert draws.num_chains == 2


def test_deterministics_have_their_total_error(modelled):
    draws, *_ = modelled
    found = draws.certificate
    assert found.mean["sum"] == pytest.approx(found.mean["slope"].sum(), abs=1e-4)
    assert 0 < found.mean_error["sum"] <= 0.05
    assert draws.summary()["sum"]["error"] == pytest.approx(found.mean_error["sum"])


def test_a_start_and_transforms_that_are_given_are_taken():
    def log_prior(theta):
        return jnp.where(theta["x"] > 3, -0.5 * (theta["x"] - 10) ** 2, -jnp.inf)

    posterior = ib.Posterior(supports={"x": constraints.positive}, log_prior=log_prior)
    with pytest.raises(ValueError, match="not finite at any of 8 starts"):
        ib.infer(posterior, progress=False)
    draws = ib.infer(
        posterior, init={"x": 9.0}, transforms={"x": "exp"}, num_chains=2, error=0.2, method="minibatch", progress=False
    )
    assert [transform.name for transform in draws.kernel.space.leaves()] == ["exp"]
    assert "transforms" not in draws.certificate.choices
    assert abs(draws.certificate.mean["x"] - 10) < 0.3
    with pytest.raises(ValueError, match="x"):
        ib.infer(posterior, init={"x": -1.0}, progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sed": 3}, r"ib.infer has no argument 'sed'. Did you mean 'seed'\?"),
        ({"model_kwarg": {}}, r"Did you mean 'model_kwargs'\?"),
    ],
)
def test_an_unknown_argument_is_named_with_the_nearest(arguments, message):
    with pytest.raises(TypeError, match=message):
        ib.infer(spending(), **arguments)


def test_an_unknown_argument_may_be_meant_for_the_model():
    with pytest.raises(TypeError, match=r"no argument 'yy' and neither has the model. Did you mean 'y'\?"):
        ib.infer(regression, np.ones((3, 2)), yy=np.ones(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"error": 0}, "`error` must be a positive number; got 0"),
        ({"error": "small"}, "`error` must be a positive number; got 'small'"),
        ({"seconds": -1}, "`seconds` must be a positive number; got -1"),
        ({"method": "nuts"}, "`method` must be one of 'auto', 'minibatch', 'full'; got 'nuts'"),
        ({"num_chains": 1}, "`num_chains` must be a whole number of at least 2; got 1"),
        ({"seed": 0.5}, "`seed` must be a whole number"),
        ({"resume": True}, "resume=True needs the `checkpoint` folder"),
        ({"checkpoint": "gs://bucket/run"}, "must be a local folder; got gs://bucket/run"),
        ({"quantities": {"rate": lambda theta: theta["rate"]}}, "'rate' has the name of a variable"),
        ({"quantities": {"two": lambda theta: (1, theta["rate"])}}, "'two' must return one array or number; got tuple"),
        ({"quantities": {"one": 1}}, "'one' must be a function of theta; got int"),
        ({"transforms": {"rate": "sigmoid"}}, "rate"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_any_work(arguments, message, monkeypatch):
    monkeypatch.setattr(_infer, "look_around", lambda *_: pytest.fail("it has begun to work"))
    with pytest.raises(ValueError, match=re.escape(message)):
        ib.infer(spending(), **arguments)


def test_more_dimensions_than_draws_have_room_for_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(_infer, "look_around", lambda *_: pytest.fail("it has begun to work"))
    with pytest.raises(ValueError, match=r"up to 50,000 dimensions; this posterior has 100,000.*low_rank"):
        ib.infer(ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([100_000]).to_event(1)}))


def test_a_posterior_takes_no_arguments_and_a_number_is_no_model():
    with pytest.raises(ValueError, match="has its data already"):
        ib.infer(spending(), np.ones(3))
    with pytest.raises(ValueError, match=r"`model` must be an ib\.Posterior, a NumPyro model"):
        ib.infer(3)


# Seeds, and what is compiled.


def test_the_same_seed_gives_the_same_draws_and_compiles_nothing_again(certified, compilations):
    again = of_spending()
    assert compilations.count == 0
    np.testing.assert_array_equal(again.theta["rate"], certified.theta["rate"])
    assert not np.array_equal(of_spending(seed=1).theta["rate"][:, :100], certified.theta["rate"][:, :100])
    assert compilations.count == 0


def test_however_often_the_draws_are_looked_at_quantities_are_compiled_once(certified, compilations):
    draws = of_spending(error=0.02, quantities={"twice": lambda theta: 2 * theta["rate"]})
    assert compilations.count == 1
    assert len(draws.certificate.course) > 3
    np.testing.assert_allclose(draws.variables()["twice"], 2 * draws.theta["rate"], rtol=1e-6)


def test_other_data_of_the_same_shapes_compile_nothing(certified, compilations):
    posterior = spending()
    before = posterior.data
    try:
        posterior.data = 3 * before
        draws = of_spending()
        mean, sd = exact(posterior)
    finally:
        posterior.data = before
    assert compilations.count == 0
    assert abs(draws.certificate.mean["rate"] - mean) / sd < 3 * draws.certificate.mean_error["rate"]


def test_doubles_where_jax_has_them(float64):
    posterior = ib.Posterior({"x": dist.Normal(0.0, 1.0)})
    draws = ib.infer(posterior, method="minibatch", error=0.3, num_chains=2, progress=False)
    assert draws.theta["x"].dtype == np.float64


# Where it cannot be believed.


def test_a_refusal_hands_over_draws_and_the_table_of_errors():
    def log_prior(theta):
        return jnp.logaddexp(-0.5 * (theta["x"] - 15) ** 2, -0.5 * (theta["x"] + 20) ** 2)

    posterior = ib.Posterior(supports={"x": constraints.real}, log_prior=log_prior)
    with pytest.warns(ib.UntrustworthyWarning, match="NOT certified") as said:
        draws = ib.infer(posterior, method="minibatch", progress=False)
    found = draws.certificate
    assert not found.ok
    assert any("several modes" in reason and "`init`" in reason for reason in found.reasons)
    assert all(reason in str(said[0].message) for reason in found.reasons)
    assert draws.num_draws >= 100
    assert np.isfinite(draws.summary()["x"]["error"])
    assert "NOT CERTIFIED" in str(draws.summary())
    assert str(found).startswith("NOT certified")


@pytest.fixture
def time_ends(monkeypatch):
    """Lets the time be over when something of a module has been called."""

    def after(module, name):
        whole = getattr(module, name)

        def wrapped(*arguments, **options):
            found = whole(*arguments, **options)
            (clock,) = [one for one in (getattr(arguments[0], "clock", None), *arguments) if isinstance(one, Clock)]
            clock.seconds = 1e-9
            return found

        monkeypatch.setattr(module, name, wrapped)

    return after


def refused(match, **options):
    with pytest.warns(ib.UntrustworthyWarning, match=match):
        draws = of_spending(**options)
    assert not draws.certificate.ok
    return draws


def test_time_that_is_over_is_said_with_a_cure(certified, time_ends):
    time_ends(stopping.Enough, "enough")
    draws = refused("give it more `seconds`", error=0.01, seconds=1e6)
    assert draws.certificate.choices["length"].endswith("then the time was over.")
    assert 0 < draws.num_draws <= certified.num_draws  # the second of two chunks had no more time
    assert draws.certificate.reached > draws.certificate.error
    assert any("far from the centre" in reason for reason in draws.certificate.reasons)  # nobody knows


def test_without_any_time_nothing_runs_and_it_says_where_it_stood(monkeypatch):
    monkeypatch.setattr(run.Run, "chunk", lambda *_: pytest.fail("it makes a step"))
    posterior = ib.Posterior(spending().priors, spending().log_likelihood, spending().data)  # whose mode nobody knows
    with pytest.warns(ib.UntrustworthyWarning, match="0 draws per chain only, after 0 steps"):
        draws = ib.infer(posterior, seconds=1e-9, progress=False)
    assert "The search for the mode had not ended. Give it more `seconds`." in draws.certificate.reasons[0]
    assert np.isinf(draws.certificate.mean_error["rate"])


def test_without_time_for_the_long_run_there_are_the_draws_of_the_short_one(time_ends):
    time_ends(windows, "_window")
    draws = refused("these draws are of a short look", seconds=1e6)
    assert draws.num_draws >= 50
    assert np.isfinite(draws.certificate.mean_error["rate"])


def out_of_time(*arguments, **options):
    raise OutOfTimeError


def test_what_there_was_no_time_to_look_at_is_said(monkeypatch):
    """Other modes, so that nothing is certified; and the noise, so that every step takes all the data."""
    monkeypatch.setattr(choose, "look_elsewhere", out_of_time)
    monkeypatch.setattr(choose, "noise_of_rows", out_of_time)
    draws = refused("no time to look for other modes", error=0.2)
    assert draws.certificate.choices["batch"].startswith("all the rows in each step: there was no time")


@pytest.mark.parametrize(("has_time", "reason"), [(True, "too noisy far from the centre"), (False, "no time to see")])
def test_noise_far_out_that_there_is_no_time_to_cure_is_refused(has_time, reason, monkeypatch, time_ends):
    """It is looked at in the short run before, and again when the long one has ended."""
    looks, look = [], _infer.calmer_far_out
    monkeypatch.setattr(choose, "TOLERATED_FAR_OUT", 0.0)
    monkeypatch.setattr(_infer, "calmer_far_out", lambda setup, draws: looks.append(draws) or look(setup, draws))
    if has_time:
        monkeypatch.setattr(_infer, "ROUNDS", 1)
    else:
        time_ends(stopping.Enough, "enough")
    draws = refused(reason, error=0.2)
    assert len(looks) == 2
    assert looks[1] is draws


def test_memory_is_kept_to_and_an_error_that_does_not_fit_is_refused(monkeypatch, certified):
    monkeypatch.setattr(_infer, "MOST_NUMBERS", 4_000)
    with pytest.warns(ib.UntrustworthyWarning, match="ask for a larger `error`"):
        draws = of_spending(error=0.01)
    assert draws.num_draws == 1_000
    assert draws.certificate.choices["length"].endswith("then there was room for no more.")


def test_rows_are_counted_as_the_data_have_them(certified):
    assert certified.posterior.num_data == ROWS
    assert "of 1,000 rows" in certified.certificate.choices["batch"]
