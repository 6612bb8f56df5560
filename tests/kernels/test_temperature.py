"""Temperatures that are no constants: traced, scheduled, one per chain."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from tests.models_for_tests import compilations

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

FACTORIES = {
    name: getattr(ib, name, None) or getattr(ib.baselines, name)
    for name in ("sgld", "leimkuhler_matthews", "baoab", "sgnht", "mirror", "ito", "projected", "sgrld")
}


@functools.cache
def gamma(shape=2.0, rate=2.0, size=1):
    return ib.Posterior({"x": dist.Gamma(shape, rate).expand([size])})


def run(kernel, steps=40, chains=2, **options):
    return ib.sample(kernel, 0.02, steps, num_chains=chains, init={"x": jnp.full(1, 0.7)}, progress=False, **options)


@pytest.mark.parametrize("name", FACTORIES)
def test_a_temperature_that_all_chains_share_is_the_same_however_it_is_given(name):
    make = functools.partial(FACTORIES[name], gamma())
    constant = run(make(temperature=0.5)).theta["x"]
    for temperature in (np.array([0.5, 0.5]), jnp.float32(0.5), lambda step: 0.5 + 0 * step):
        np.testing.assert_allclose(run(make(temperature=temperature)).theta["x"], constant, rtol=1e-4)


@pytest.mark.parametrize("name", ["sgld", "leimkuhler_matthews", "baoab", "sgnht"])
def test_tempered_chains_run_side_by_side_each_with_its_own_law(name):
    """Gamma(2, 2) to the power 1 / T is Gamma(1 / T + 1, 2 / T)."""
    levels = np.array([0.25, 1.0, 2.0])
    kernel = FACTORIES[name](gamma(), temperature=np.repeat(levels, 40))
    x = run(kernel, steps=5_000, chains=120, burn_in=1_000).theta["x"].reshape(3, 40, 4_000).astype(float)
    shape, rate = 1 / levels + 1, 2 / levels
    for row, mean, sd in zip(x, shape / rate, np.sqrt(shape) / rate, strict=True):
        error = row.mean(axis=1).std(ddof=1) / np.sqrt(40)
        assert abs(row.mean() - mean) < 4.5 * error + 0.02 * sd
        assert row.std() == pytest.approx(sd, rel=0.08)


def test_chains_of_other_temperatures_compile_nothing():
    posterior = gamma(3.0)
    first = run(ib.sgld(posterior, temperature=np.array([1.0, 2.0]))).theta["x"]
    before = compilations(posterior)
    second = run(ib.sgld(posterior, temperature=np.array([1.0, 3.0]))).theta["x"]
    assert compilations(posterior) == before
    np.testing.assert_array_equal(first[0], second[0])
    assert not np.array_equal(first[1], second[1])


def test_a_temperature_may_be_traced():
    """Of a program of a user's own, compiled once for all temperatures."""

    @jax.jit
    def step(temperature, key):
        kernel = ib.sgld(gamma(), temperature=temperature)
        state, _ = kernel.step(key, kernel.init({"x": jnp.full(1, 0.7)}), None, 0.02)
        return kernel.position(state)["x"]

    key = jax.random.key(0)
    for level in (0.5, 2.0):
        kernel = ib.sgld(gamma(), temperature=level)
        state, _ = kernel.step(key, kernel.init({"x": jnp.full(1, 0.7)}), None, 0.02)
        np.testing.assert_allclose(step(level, key), kernel.position(state)["x"], rtol=1e-5)
    assert step._cache_size() == 1


@pytest.mark.parametrize("size", [1, 6_000], ids=["small", "large"])
def test_a_schedule_is_followed_step_by_step(size):
    """Against a loop by hand over kernels of constant temperature, with the schedule's number of each step."""
    posterior, schedule = gamma(size=size), ib.schedules.settling(4.0, 0.5, 6)
    kernel = ib.sgld(posterior, temperature=schedule)
    state, key = kernel.init({"x": jnp.full(size, 0.7)}), jax.random.key(3)
    plain = ib.sgld(posterior).init({"x": jnp.full(size, 0.7)})
    for step in range(8):
        level = float(schedule(jnp.asarray(step)))
        plain, _ = ib.sgld(posterior, temperature=level).step(key, plain, None, 0.02)
        assert float(state.temperature) == pytest.approx(level)
        state, _ = kernel.step(key, state, None, 0.02)
        np.testing.assert_allclose(kernel.proxy(state)["x"], plain.phi["x"], rtol=2e-4, atol=1e-5)


def test_a_run_that_is_cooled_ends_at_the_mode():
    """Gamma(2, 2) has its mode at 0.5; not that of its proxy."""
    kernel = ib.sgld(gamma(), temperature=lambda step: jnp.maximum(0.0, 1 - step / 2_000))
    draws = run(kernel, steps=4_000, burn_in=3_990, chains=4)
    np.testing.assert_allclose(draws.theta["x"][:, -1], 0.5, atol=1e-3)


def test_a_run_with_temperatures_goes_on_from_its_checkpoint(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    kernel = ib.baoab(gamma(), temperature=np.array([0.5, 2.0]))
    whole = run(kernel, steps=4_096).theta["x"]
    run(kernel, steps=2_048, checkpoint=tmp_path / "run")
    resumed = run(kernel, steps=4_096, checkpoint=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.theta["x"], whole)
    other = ib.baoab(gamma(), temperature=np.array([0.5, 3.0]))
    with pytest.raises(ValueError, match="temperature of the kernel is"):
        run(other, steps=4_096, checkpoint=tmp_path / "run", resume=True)


def test_estimators_of_tempered_chains_look_at_all_the_data_again():
    """The state of the kernel is inside that of the tempered chain."""
    rows = np.random.default_rng(0).exponential(size=200).astype(np.float32)
    posterior = ib.Posterior(
        {"x": dist.Gamma(2.0, 1.0).expand([1])}, lambda theta, b: jnp.log(theta["x"]) - theta["x"] * b, rows
    )
    runs = [
        ib.sample(
            ib.sgld(posterior, gradient=ib.gradients.svrg(every=8), temperature=temperature),
            1e-3, 32, batch_size=20, num_chains=2, init={"x": jnp.ones(1)}, progress=False,
        ).theta["x"]
        for temperature in (2.0, np.array([2.0, 2.0]))
    ]  # fmt: skip
    np.testing.assert_allclose(*runs, rtol=1e-4)


@pytest.mark.parametrize(
    ("temperature", "message"),
    [
        (-1.0, "must be at least 0"),
        (np.array([1.0, -1.0]), "must be at least 0"),
        (np.ones((2, 2)), "one number per chain"),
        ("hot", "a function of the step; got 'hot'"),
        ([1.0, 2.0], "an array"),
    ],
    ids=str,
)
def test_what_is_no_temperature_is_refused(temperature, message):
    with pytest.raises(ValueError, match=message):
        ib.sgld(gamma(), temperature=temperature)


def test_as_many_temperatures_as_chains():
    with pytest.raises(ValueError, match=r"shape \(2,\) for 2 chains; got \(3,\)"):
        run(ib.sgld(gamma(), temperature=np.ones(3)))


def test_diagnostics_of_one_law_say_that_there_is_none():
    draws = run(ib.sgld(gamma(), temperature=np.array([1.0, 2.0])), steps=300)
    assert [note.section for note in draws.notes()] == ["not-judged"]
    with pytest.raises(ValueError, match="temperatures of their own"):
        ib.diagnostics.identities(draws)
