"""The driver: reproducible, compiled once, and clear about what goes wrong."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.data.arrays import NoData
from inbounds.engine import on
from inbounds.engine.chunks import chunk_runner
from inbounds.engine.gpu import AS_GRAPHS, ON_GPU
from inbounds.engine.program import Carry, Keys, Program
from inbounds.sampling import resolve
from tests.models_for_tests import compilations, linear_regression, poisson_rates

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

GAMMA = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
WIDE = ib.Posterior({"x": dist.Gamma(2.0, 1.0).expand([5_000])})  # past the limit of the small loop


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True), a, b))


@pytest.mark.parametrize("posterior", [GAMMA, WIDE, poisson_rates()], ids=["small", "large", "data"])
def test_draws_do_not_depend_on_chunks(posterior):
    kernel = ib.leimkuhler_matthews(posterior)
    settings = dict(step_size=0.01, num_steps=2_500 if posterior is not WIDE else 37, thin=3, num_chains=2, seed=3)
    if posterior.num_data:
        settings["batch_size"] = 7
    whole = ib.sample(kernel, **settings)
    cut = ib.sample(kernel, chunk_steps=1, **settings)
    assert same(whole.theta, cut.theta)
    assert same(whole.state, cut.state)
    assert same(whole.stats, cut.stats)


@pytest.mark.parametrize("posterior", [GAMMA, WIDE], ids=["small", "large"])
def test_a_draw_comes_with_the_report_of_the_step_that_made_it(posterior):
    """Which depends on the position before that step alone, where gradient and variance are known."""
    kernel = ib.sgld(posterior, noise_correction=lambda theta: {"x": 300 * theta["x"]})
    settings = dict(step_size=0.01, num_steps=41, num_chains=2, seed=3)
    every = ib.sample(kernel, **settings)
    thinned = ib.sample(kernel, burn_in=3, thin=6, **settings)
    assert thinned.num_draws == 6

    def report(state, phi):
        return kernel.step(jax.random.key(0), state._replace(phi=phi), None, 0.01)[1]

    before = {"x": every.phi["x"][:, 4:-1:6]}
    by_hand = jax.vmap(jax.vmap(report, (None, 0)))(every.state, before)
    for name in ("gradient_norm", "noise_variance", "clamped"):
        np.testing.assert_allclose(thinned.stats[name], getattr(by_hand, name), rtol=1e-4, err_msg=name)
    assert 0 < np.mean(by_hand.clamped) < 1


@pytest.mark.parametrize("end", [8, 5])
def test_a_block_reports_its_last_step_also_where_the_run_ends_within(end):
    kernel = ib.sgld(WIDE)
    program = Program(kernel, NoData(), None, None, num_chains=2, thin=8, dimension=5_000)
    carry = Carry(jax.vmap(kernel.init)({"x": np.ones((2, 5_000), np.float32)}), None)
    keys = Keys(*2 * [np.arange(4, dtype=np.uint32).reshape(2, 2)])

    def rows_and_state(end):
        numbers = map(np.int32, (0, 1, end, 0))
        after, rows, _ = chunk_runner(program)(kernel.arrays, carry, None, keys, *numbers, np.float32(0.01))
        return rows, after.state

    _, before = rows_and_state(end - 1)
    _, info = jax.vmap(lambda state: kernel.step(jax.random.key(0), state, None, 0.01))(before)
    rows, _ = rows_and_state(end)
    np.testing.assert_allclose(rows.info["gradient_norm"][0], info.gradient_norm, rtol=1e-5)


@pytest.mark.parametrize("posterior", [GAMMA, WIDE], ids=["small", "large"])
def test_thinning_and_burn_in_pick_from_the_same_chain(posterior):
    steps = 1_500 if posterior is GAMMA else 30
    every = ib.sample(ib.sgld(posterior), 0.01, steps).theta["x"]
    assert every.shape[:2] == (1, steps)
    thinned = ib.sample(ib.sgld(posterior), 0.01, steps, burn_in=11, thin=6).theta["x"]
    # Another `thin` is another program, whose last bits may differ.
    np.testing.assert_allclose(thinned, every[:, 11:][:, (-11 - 1) % 6 :: 6], rtol=1e-5)


def test_the_length_of_a_run_only_appends():
    short = ib.sample(ib.sgld(GAMMA), 0.01, 1_030)
    long = ib.sample(ib.sgld(GAMMA), 0.01, 3_000)
    assert np.array_equal(short.theta["x"], long.theta["x"][:, :1_030])
    assert float(short.state.phi["x"][0]) == short.phi["x"][0, -1]


def test_seeds_and_chains_differ():
    a = ib.sample(ib.sgld(GAMMA), 0.1, 100, num_chains=2, seed=0).theta["x"]
    b = ib.sample(ib.sgld(GAMMA), 0.1, 100, num_chains=2, seed=1).theta["x"]
    again = ib.sample(ib.sgld(GAMMA), 0.1, 100, num_chains=2, seed=0).theta["x"]
    assert np.array_equal(a, again)
    assert not np.any(a == b)
    assert not np.any(a[0] == a[1])


def test_a_run_compiles_once_whatever_its_length():
    traces = []

    def log_prior(theta):
        traces.append(1)
        return -theta["x"]

    posterior = ib.Posterior(supports=GAMMA.supports, log_prior=log_prior)
    kernel = ib.sgld(posterior)
    ib.sample(kernel, 0.1, 100)
    first, entries = len(traces), compilations(posterior)
    ib.sample(kernel, 0.2, 3_333, burn_in=100, seed=5)
    ib.sample(ib.sgld(posterior), 0.2, 10)
    # One more look at the shapes of the likelihood a run (jax.eval_shape), and no compilation.
    assert len(traces) - first <= 2
    assert compilations(posterior) == entries


def test_no_value_leaves_the_device_inside_a_chunk():
    kernel = ib.sgld(GAMMA)
    ib.sample(kernel, 0.1, 10)
    program, *arguments = chunk_arguments(kernel)
    chunk = chunk_runner(program).lower(*arguments).as_text()
    assert "callback" not in chunk
    assert "outfeed" not in chunk


def chunk_arguments(kernel):
    program = Program(kernel, NoData(), None, None, 1, 1, 1)
    state = jax.vmap(kernel.init)({"x": jnp.ones(1)})
    key = np.zeros((1, 2), np.uint32)
    number = np.int32(1)
    return (
        program,
        kernel.arrays,
        Carry(state, None),
        None,
        Keys(key, key),
        *([number] * 4),
        jnp.float32(0.1),
    )


def test_one_step_size_a_chain():
    sizes = np.array([0.01, 0.1])
    both = ib.sample(ib.sgld(GAMMA), sizes, 500, num_chains=2, init={"x": 1.0})
    first = ib.sample(ib.sgld(GAMMA), 0.01, 500, num_chains=2, init={"x": 1.0})
    assert np.array_equal(both.theta["x"][0], first.theta["x"][0])
    assert not np.array_equal(both.theta["x"][1], first.theta["x"][1])
    assert np.array_equal(both.stats["step_size"][:, 0], sizes.astype(np.float32))


@pytest.mark.parametrize(
    "schedule",
    [
        ib.schedules.polynomial_decay(0.1, decay_steps=100),
        ib.schedules.cyclical(0.1, cycle_steps=200),
        optax.exponential_decay(0.1, 100, 0.5),
    ],
    ids=["polynomial", "cyclical", "optax"],
)
def test_schedules_set_the_step_size_of_each_step(schedule):
    draws = ib.sample(ib.sgld(GAMMA), schedule, 600, thin=50)
    expected = [float(schedule(jnp.asarray(step))) for step in range(49, 600, 50)]
    np.testing.assert_allclose(draws.stats["step_size"][0], expected, rtol=1e-5)


def test_collectors_see_what_would_be_stored():
    settings = dict(step_size=0.05, num_steps=3_000, burn_in=500, thin=4, num_chains=3, seed=1)
    stored = ib.sample(ib.sgld(GAMMA), **settings).theta["x"]
    collect = {
        "theta": ib.collect.mean_and_variance(),
        "log": ib.collect.predictive_mean(lambda theta: jnp.log(theta["x"])),
    }
    draws = ib.sample(ib.sgld(GAMMA), collect=collect, **settings)
    moments = draws.collected["theta"]
    assert np.array_equal(moments.num_draws, np.full(3, stored.shape[1]))
    np.testing.assert_allclose(moments.mean["x"], stored.mean(1), rtol=1e-4)
    np.testing.assert_allclose(moments.variance["x"], stored.var(1, ddof=1), rtol=1e-3)
    np.testing.assert_allclose(draws.collected["log"], np.log(stored).mean(1), rtol=1e-3)
    with pytest.raises(ValueError, match="stored no draws"):
        _ = draws.theta


def test_collectors_see_the_same_in_the_loop_for_large_models():
    # The burn-in ends with a step that would be kept; the run ends within a block.
    settings = dict(step_size=0.05, num_steps=42, burn_in=8, thin=4, num_chains=2, seed=1)
    stored = ib.sample(ib.sgld(WIDE), **settings).theta["x"]
    moments = ib.sample(ib.sgld(WIDE), collect=ib.collect.mean_and_variance(), **settings).collected
    assert moments.num_draws.tolist() == [8, 8]
    assert stored.shape[1] == 8
    np.testing.assert_allclose(moments.mean["x"], stored.mean(1), rtol=1e-5)
    np.testing.assert_allclose(moments.variance["x"], stored.var(1, ddof=1), rtol=1e-3, atol=1e-7)


def test_starts_of_every_kind():
    kernel = ib.sgld(GAMMA)

    def first(init):
        return ib.sample(kernel, 1e-12, 1, num_chains=3, init=init).theta["x"][:, 0]

    np.testing.assert_allclose(first({"x": 2.0}), [2, 2, 2], rtol=1e-4)
    np.testing.assert_allclose(first({"x": np.array([1.0, 2.0, 3.0])}), [1, 2, 3], rtol=1e-4)
    drawn = first(lambda key: {"x": 5.0 + jax.random.uniform(key)})
    assert len(set(drawn.round(3))) == 3  # apart by more than the noise of a step
    assert np.all((drawn >= 5) & (drawn < 6.001))
    assert len(set(first(None).round(3))) == 3


def test_svrg_looks_at_all_the_data_on_time():
    posterior, _, _ = linear_regression(rows=60)
    kernel, settings = ib.sgld(posterior, gradient=ib.gradients.svrg(every=32)), dict(batch_size=6, num_chains=2)
    draws = ib.sample(kernel, 1e-4, 100, chunk_steps=1, **settings)
    whole = ib.sample(kernel, 1e-4, 100, **settings)
    assert np.array_equal(draws.phi["w"], whole.phi["w"])
    # The centre is where each chain was at step 96, and before that at step 32.
    np.testing.assert_allclose(draws.state.estimator.own.center["w"], draws.phi["w"][:, 95], rtol=1e-6)
    early = ib.sample(kernel, 1e-4, 40, **settings)
    np.testing.assert_allclose(early.state.estimator.own.center["w"], draws.phi["w"][:, 31], rtol=1e-6)


def test_float64_when_jax_has_it(float64):
    draws = ib.sample(ib.leimkuhler_matthews(GAMMA), 0.1, 200, init={"x": 1.0})
    assert draws.theta["x"].dtype == np.float64
    assert draws.phi["x"].dtype == np.float64


def test_trees_of_any_kind():
    posterior = ib.Posterior(
        supports=[GAMMA.supports["x"], (GAMMA.supports["x"],)],
        log_prior=lambda theta: -jnp.sum(theta[0]) - theta[1][0],
    )
    draws = ib.sample(ib.sgld(posterior), 0.1, 50, init=[jnp.ones((2, 3)), (1.0,)])
    assert draws.theta[0].shape == (1, 50, 2, 3)
    assert list(draws.variables()) == ["0", "1/0"]


class TestHealth:
    def test_the_error_names_variable_chain_and_step_and_keeps_the_draws(self):
        """NaN gradients above a threshold, which one of the chains crosses first."""

        def gradient(theta, batch):
            return {"x": jnp.where(theta["x"] > 0.5, jnp.nan, 0.0), "y": jnp.zeros(())}

        supports = {"x": GAMMA.supports["x"], "y": GAMMA.supports["x"]}
        kernel = ib.sgld(ib.Posterior(supports=supports, gradient=gradient))
        init = {"x": 0.01, "y": 1.0}
        with pytest.raises(ib.NonFiniteError) as caught:
            ib.sample(kernel, 0.01, 60_000, init=init, num_chains=3)
        error = caught.value
        assert error.variable == "x"
        x = error.draws.theta["x"]
        alive = np.isfinite(x)
        assert not alive[error.chain, -1]
        # The draw of the step named is the first that is lost; the one before crossed the threshold.
        assert alive[error.chain, : error.step - 1].all()
        assert not alive[error.chain, error.step - 1]
        assert x[error.chain, error.step - 2] > 0.5
        others = [c for c in range(3) if c != error.chain]
        assert alive[others, : error.step].all()
        assert f"at step {error.step:,}, chain {error.chain}" in str(error)
        assert "gradient at the last finite position" in str(error)

    def test_exp_is_named_as_the_cause_where_it_is(self):
        posterior = ib.Posterior(
            supports=GAMMA.supports,
            gradient=lambda theta, z: {"x": -0.5 / theta["x"] - 2 + 10 * z},
            data=ib.data.Generated(lambda key: jax.random.normal(key)),
        )
        with pytest.raises(ib.NonFiniteError, match="'exp' is not Lipschitz"):
            ib.sample(ib.sgld(posterior, "exp"), 0.1, 100_000, num_chains=8, init={"x": 1.0})

    def test_exp_of_another_variable_is_named_after_the_step_size(self):
        posterior = ib.Posterior(
            supports={"x": constraints.real, "scale": constraints.positive},
            log_prior=lambda theta: -(theta["x"] ** 4) - theta["scale"],
        )
        kernel = ib.sgld(posterior, {"scale": "exp"})
        with pytest.raises(ib.NonFiniteError, match=r"^'x' became .* step size is too large.*began with 'scale'"):
            ib.sample(kernel, 0.3, 1_000, init={"x": 5.0, "scale": 1.0})

    def test_too_large_a_step_is_named_as_the_cause_where_it_is(self):
        posterior = ib.Posterior(supports={"x": constraints.real}, log_prior=lambda theta: -(theta["x"] ** 4))
        with pytest.raises(ib.NonFiniteError, match=r"step size is too large.*Try 0.1"):
            ib.sample(ib.sgld(posterior), 1.0, 1_000, init={"x": 5.0})

    def test_the_other_chains_go_on_where_they_are_told_to(self):
        posterior = ib.Posterior(supports={"x": constraints.real}, log_prior=lambda theta: -(theta["x"] ** 4))
        settings = dict(num_steps=1_000, init={"x": 5.0}, num_chains=2)
        draws = ib.sample(ib.sgld(posterior), np.array([1.0, 1e-3]), on_failure="continue", **settings)
        assert not np.isfinite(draws.theta["x"][0, -1])
        assert draws.theta["x"].shape == (2, 1_000)
        healthy = ib.sample(ib.sgld(posterior), np.array([1e-3, 1e-3]), **settings)
        assert np.array_equal(draws.theta["x"][1], healthy.theta["x"][1])


def test_a_failure_is_said_as_such_also_by_a_model_that_looks_at_its_arguments():
    posterior = ib.Posterior(
        supports=constraints.positive_definite,
        log_prior=lambda sigma: -jnp.trace(sigma),
        log_likelihood=lambda sigma, y: dist.MultivariateNormal(jnp.zeros(2), sigma, validate_args=True).log_prob(y),
        data=np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32),
    )
    with pytest.raises(ib.NonFiniteError) as caught:
        ib.sample(ib.sgld(posterior), 1.0, 2_000, init=np.eye(2, dtype=np.float32), progress=False)
    assert caught.value.draws.num_draws > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_failure": "ignore"}, "`on_failure` must be"),
        ({"step_size": 0.0}, "`step_size` must be positive and finite; got 0.0"),
        ({"step_size": -1.0}, "must be positive and finite"),
        ({"step_size": math.nan}, "must be positive and finite"),
        ({"step_size": [0.1, 0.2]}, "one number, or one per chain"),
        ({"step_size": lambda step: -0.1 * step}, "schedule must be finite and positive"),
        ({"num_chains": 0}, "`num_chains` must be a whole number of at least 1; got 0"),
        ({"step_size": "large"}, "`step_size` must be a number"),
        ({"num_steps": 0}, "`num_steps` must be a whole number of at least 1"),
        ({"num_steps": 10.5}, "`num_steps` must be a whole number"),
        ({"thin": 0}, "`thin` must be"),
        ({"thin": 11}, "leaves no draws"),
        ({"burn_in": 10}, "leaves no draws"),
        ({"seed": -1}, "`seed` must be"),
        ({"batch_size": 41}, "larger than the data, 40 rows"),
        ({"batch_size": True}, "`batch_size` must be a whole number of at least 1; got True"),
        ({"chunk_steps": True}, "`chunk_steps` must be a whole number of at least 1; got True"),
        (
            {"seed": jax.random.key(0)},
            "`seed` must be a whole number of at least 0; got a JAX random key. Give the number",
        ),
        (
            {"seed": jax.random.PRNGKey(0)},
            "`seed` must be a whole number of at least 0; got an array of shape (2,). Give one",
        ),
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1; got 0"),
        ({"batching": "shuffle"}, "Unknown batching 'shuffle'. Known: epochs, sweeps, replacement"),
        ({"collect": 3}, "must be a collector"),
        ({"init": {"rate": [1.0, 1.0], "mix": 2.0}}, "'mix' starts at 2.0"),
        ({"init": {"rate": 1.0, "mix": 0.5}}, "'rate' starts with shape (), but its prior has shape"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_anything_runs(arguments, message):
    settings = {"step_size": 0.1, "num_steps": 10} | arguments
    with pytest.raises(ValueError, match=re.escape(message)):
        ib.sample(ib.sgld(poisson_rates()), **settings)


def test_a_batch_size_without_data_is_refused():
    with pytest.raises(ValueError, match="has no data"):
        ib.sample(ib.sgld(GAMMA), 0.1, 10, batch_size=5)


def test_something_else_than_a_kernel_is_refused():
    with pytest.raises(ValueError, match="must be a kernel such as"):
        ib.sample(GAMMA, 0.1, 10)


@pytest.mark.parametrize("shape", [(10,), (500, 10)], ids=["small", "large"])
@pytest.mark.parametrize("steps_at_once", [1, 4, 5])
def test_the_loops_of_accelerators_give_the_draws_of_a_cpu(shape, steps_at_once, monkeypatch):
    """In turns of one step and of several; the last turn, and the last block, of the run are cut short."""

    def draws():
        # A new one: nothing compiled is used again.
        kernel = ib.sgld(ib.Posterior({"w": dist.HalfNormal(1.0).expand(shape)}))
        return ib.sample(kernel, 0.1, 29, thin=12, num_chains=2)

    on_cpu = draws()
    monkeypatch.setattr(Program, "form", on("gpu"))
    monkeypatch.setattr(Program, "unroll", steps_at_once)
    elsewhere = draws()
    np.testing.assert_allclose(elsewhere.phi["w"], on_cpu.phi["w"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(elsewhere.stats["gradient_norm"], on_cpu.stats["gradient_norm"], rtol=1e-5)
    np.testing.assert_allclose(elsewhere.state.phi["w"], on_cpu.state.phi["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("platform", "numbers", "steps_a_turn", "options"),
    [
        ("cpu", 10, 1, {}),
        ("gpu", 10, 8, AS_GRAPHS),
        ("gpu", 10_000, 4, AS_GRAPHS),
        ("gpu", 10**6, 4, ON_GPU),
        ("tpu", 10, 8, {}),
    ],
)
def test_short_kernels_are_launched_together(platform, numbers, steps_a_turn, options, monkeypatch):
    monkeypatch.setattr(Program, "form", on(platform))
    program = Program(ib.sgld(GAMMA), NoData(), None, None, num_chains=1, thin=100, dimension=numbers)
    assert program.unroll == steps_a_turn
    asked = []
    monkeypatch.setattr(program.kernel.posterior.compiled, "of", lambda *what, **options: asked.append(options))
    chunk_runner(program)
    assert asked == [options]


def counts():
    return ib.Posterior(
        {"m": dist.Normal(0.0, 10.0)},
        lambda theta, batch: dist.Normal(theta["m"], 1.0).log_prob(batch),
        np.arange(100, dtype=np.float32),
    )


def test_all_the_data_have_no_noise_to_correct_for():
    with pytest.raises(ValueError, match="every step uses all the data"):
        ib.sample(ib.sgld(counts(), noise_correction=True), 1e-3, 10, progress=False)
    ib.sample(ib.sgld(counts(), noise_correction=True), 1e-4, 10, batch_size=10, progress=False)
    ib.sample(ib.sgld(counts(), noise_correction=1.0), 1e-4, 10, progress=False)  # a variance of 1, given


@pytest.mark.parametrize("kernel", [ib.sgnht, lambda posterior: ib.sgld(posterior, noise_correction=1.0)])
def test_no_batch_size_means_all_the_data_for_every_kernel(kernel):
    size, batching = resolve.minibatches_of(kernel(counts()), None, None)
    assert (size, batching) == (None, "epochs")
    assert resolve.minibatches_of(kernel(counts()), 10, None) == (10, "replacement")


@pytest.mark.parametrize("given", [{"batch_size": 5}, {"batching": "epochs"}])
def test_data_that_make_their_own_minibatches_take_no_settings(given):
    posterior = ib.Posterior(
        supports={"x": dist.constraints.real},
        gradient=lambda theta, z: {"x": z - theta["x"]},
        data=ib.data.Generated(lambda key: jax.random.normal(key)),
    )
    with pytest.raises(ValueError, match="make their own minibatches"):
        ib.sample(ib.sgld(posterior), 1e-2, 10, progress=False, **given)


def test_numbers_of_numpy_are_numbers(tmp_path):
    whole = {"thin": np.int64(2), "burn_in": np.int64(4), "num_chains": np.int32(2), "seed": np.uint8(3)}
    arguments = dict(batch_size=np.int64(10), checkpoint=tmp_path, progress=False, **whole)
    first = ib.sample(ib.sgld(counts()), 1e-4, np.int64(20), **arguments)
    plain = {name: int(value) for name, value in whole.items()}
    again = ib.sample(
        ib.sgld(counts()), 1e-4, 20, batch_size=10, checkpoint=tmp_path, resume=True, progress=False, **plain
    )
    np.testing.assert_array_equal(first.theta["m"], again.theta["m"])
