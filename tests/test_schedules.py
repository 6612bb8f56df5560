"""Step sizes that change along a run: what they are, that Optax's work too, and that cycles keep their small steps only."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

POSTERIOR = ib.Posterior({"x": dist.Normal(0.0, 1.0)})
WIDE = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([5_000])})  # past the limit of the small loop


def run(step_size, steps=60, posterior=POSTERIOR, **options):
    return ib.sample(ib.sgld(posterior), step_size, steps, num_chains=2, progress=False, **options)


def test_polynomial_decay_falls_as_its_formula_says():
    schedule = ib.schedules.polynomial_decay(0.1, decay_steps=10.0, power=0.5)
    steps = np.array([0, 10, 90])
    np.testing.assert_allclose(schedule(steps), [0.1, 0.1 / np.sqrt(2), 0.1 / np.sqrt(10)], rtol=1e-6)
    draws = run(schedule)
    np.testing.assert_allclose(draws.stats["step_size"][0], schedule(np.arange(60)), rtol=1e-5)


def test_cycles_restart_large_and_end_small():
    schedule = ib.schedules.cyclical(0.2, cycle_steps=20)
    sizes = np.asarray(schedule(jnp.arange(40)))
    np.testing.assert_allclose(sizes[[0, 20]], 0.2, rtol=1e-6)
    np.testing.assert_allclose(sizes[10], 0.1, rtol=1e-5)
    assert np.all(np.diff(sizes[:20]) < 0)


def test_a_constant_schedule_is_a_number():
    schedule = ib.schedules.constant(0.05)
    np.testing.assert_allclose(run(schedule).theta["x"], run(0.05).theta["x"], rtol=1e-6)


def test_only_the_sampling_phase_of_each_cycle_is_kept():
    schedule = ib.schedules.cyclical(0.2, cycle_steps=20, sampling=0.25)
    draws = run(schedule, steps=60)
    everything = run(ib.schedules.cyclical(0.2, cycle_steps=20), steps=60)
    kept = [step for step in range(60) if step % 20 >= 15]
    assert draws.num_draws == len(kept) == 15
    np.testing.assert_array_equal(draws.theta["x"], everything.theta["x"][:, kept])
    assert draws.stats["step_size"].max() < 0.2 * 0.15


def test_burn_in_and_thinning_apply_to_the_sampling_phase_too():
    schedule = ib.schedules.cyclical(0.2, cycle_steps=20, sampling=0.5)
    draws = run(schedule, steps=80, burn_in=20, thin=2)
    # steps counted from one: multiples of two after twenty, in the second half of each cycle
    assert draws.num_draws == sum(1 for step in range(22, 81, 2) if (step - 1) % 20 >= 10)


def test_thinning_may_pick_the_last_step_of_each_cycle():
    schedule = ib.schedules.cyclical(0.2, cycle_steps=20, sampling=0.05)
    assert run(schedule, steps=60, thin=20).num_draws == 3


@pytest.mark.parametrize("posterior", [POSTERIOR, WIDE], ids=["small", "large"])
def test_running_statistics_see_the_sampling_phase_only(posterior):
    schedule = ib.schedules.cyclical(0.2, cycle_steps=20, sampling=0.25)
    collected = run(schedule, posterior=posterior, collect=ib.collect.mean_and_variance()).collected
    stored = run(schedule, posterior=posterior).theta["x"]
    assert collected.num_draws.tolist() == [15, 15]
    np.testing.assert_allclose(collected.mean["x"], stored.mean(axis=1), rtol=1e-4, atol=1e-5)


def test_a_sampling_phase_that_thinning_misses_is_refused():
    schedule = ib.schedules.cyclical(0.2, cycle_steps=20, sampling=0.1)
    with pytest.raises(ValueError, match="sampling phase"):
        run(schedule, steps=60, thin=7, burn_in=50)


def test_any_optax_schedule_works():
    optax = pytest.importorskip("optax")
    schedule = optax.exponential_decay(0.1, transition_steps=10, decay_rate=0.5)
    draws = run(schedule)
    np.testing.assert_allclose(draws.stats["step_size"][1], [schedule(step) for step in range(60)], rtol=1e-5)
    assert np.all(np.isfinite(draws.theta["x"]))


def test_settling_is_geometric_and_then_constant():
    schedule = ib.schedules.settling(0.4, 0.1, steps=20)
    sizes = [float(schedule(np.int32(step))) for step in (0, 10, 20, 50)]
    np.testing.assert_allclose(sizes, [0.4, 0.2, 0.1, 0.1], rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ib.schedules.settling(0.1, 0.0, 10),
        lambda: ib.schedules.polynomial_decay(0.0),
        lambda: ib.schedules.polynomial_decay(0.1, power=2.0),
        lambda: ib.schedules.cyclical(0.1, 0),
        lambda: ib.schedules.cyclical(0.1, 10, sampling=0.0),
        lambda: ib.schedules.constant(-1.0),
    ],
)
def test_schedules_without_sense_are_refused(make):
    with pytest.raises(ValueError, match="needs"):
        make()
