"""What a step is given, seen from outside: noise, minibatches and step sizes, each of its own number, chain and variable, each used once."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.data.arrays import Epochs
from inbounds.engine.keys import derived
from inbounds.kernels._base import Info, Kernel, kernel_factory
from inbounds.sampling import resolve
from inbounds.sampling import run as runs
from inbounds.space import Space

# What is run here has no law, or is at a standstill: a run that says so is right, and no error.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ROWS = 20
SILENT = 1e-14  # a temperature without noise to speak of
# Numbers in theta: noise is drawn beforehand for few, and in the step for many.
SMALL, LARGE = ROWS, 5_000


def run(model, size, step_size, num_steps, **options):
    """Draws of two chains that start at zero."""
    settings = {"num_chains": 2, "progress": False, "seed": 4} | options
    init = {name: np.zeros(size, np.float32) for name in model.supports}
    return ib.sample(ib.sgld(model, temperature=SILENT), step_size, num_steps, init=init, **settings)


def moves(draws, name="x"):
    """What the steps between two draws added, axes (chain, draw, number)."""
    return np.diff(draws.phi[name], axis=1, prepend=0)


# -- noise --------------------------------------------------------------------------------------------------------


def walk(rows=None):
    """Two variables that noise alone moves."""
    supports = {"a": constraints.real, "b": constraints.real}

    def none(theta, batch=None):
        return 0.0 * (jnp.sum(theta["a"]) + jnp.sum(theta["b"]))

    if rows is None:
        return ib.Posterior(supports=supports, log_prior=none)
    per_row = jax.vmap(none, (None, 0))
    return ib.Posterior(supports=supports, log_prior=none, log_likelihood=per_row, data={"row": rows})


@pytest.mark.parametrize(
    ("size", "steps", "layout", "double"),
    [
        (100, 150, None, False),
        (100, 150, None, True),
        (2**14, 8, None, False),
        (2**14, 8, None, True),
        (2**12, 12, {"a": "row", "b": "row"}, False),
    ],
    ids=["drawn beforehand", "in double precision", "drawn in the step", "in the step in double precision", "divided"],
)
def test_no_noise_is_used_twice(size, steps, layout, double):
    """The noise of a step, chain and variable has nothing to do with that of any other, nor shifted by any distance."""
    devices = None if layout is None else ib.Layout(shard=layout)
    init = {name: np.zeros(size, np.float64 if double else np.float32) for name in "ab"}
    with jax.enable_x64(double):
        kernel = ib.sgld(walk(None if layout is None else np.arange(size, dtype=np.int32)))
        draws = ib.sample(kernel, 0.5, steps, init=init, num_chains=2, progress=False, devices=devices)
    noise = np.stack([moves(draws, name) for name in "ab"])
    assert noise.shape == (2, 2, steps, size)
    check_unlike(noise)


@kernel_factory
def walker(posterior, which):
    """What moves by one of the two normals that each number has in a step."""
    space = Space.of(posterior.supports)

    def update(noise, state, minibatch, step_size):
        assert all(z.shape == (2, *x.shape) for z, x in zip(noise.values(), state.values(), strict=True))
        moved = {name: value + noise[name][which] for name, value in state.items()}
        return moved, lambda: Info(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()), jnp.ones((), bool))

    return Kernel(
        "walker", posterior, space, ib.gradients.minibatch(posterior), space.unconstrain, update, lambda state: state,
        space.constrain, normals=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("size", "steps", "layout", "double"),
    [
        (100, 150, None, False),
        (2**13, 8, None, False),
        (2**13, 8, None, True),
        (2**12, 12, {"a": "row", "b": "row"}, False),
    ],
    ids=["drawn beforehand", "drawn in the step", "in the step in double precision", "divided"],
)
def test_a_kernel_may_ask_for_two_normals_and_both_are_new(size, steps, layout, double):
    devices = None if layout is None else ib.Layout(shard=layout)
    init = {name: np.zeros(size, np.float64 if double else np.float32) for name in "ab"}
    noise = []
    with jax.enable_x64(double):
        model = walk(None if layout is None else np.arange(size, dtype=np.int32))
        for which in (0, 1):
            options = dict(init=init, num_chains=2, progress=False, devices=devices)
            draws = ib.sample(walker(model, which), 0.5, steps, **options)
            noise += [moves(draws, name) for name in "ab"]
    assert np.shape(noise) == (4, 2, steps, size)
    check_unlike(np.stack(noise))


def test_two_normals_of_a_step_do_not_depend_on_chunks_nor_on_who_draws_them():
    kernel = walker(walk(), 1)
    run = partial(ib.sample, kernel, 0.5, 700, num_chains=2, progress=False, init={"a": np.zeros(9), "b": np.zeros(3)})
    whole, cut = run(), run(chunk_steps=64)
    np.testing.assert_array_equal(whole.phi["a"], cut.phi["a"])
    state = kernel.init({"a": np.zeros(9), "b": np.zeros(3)})
    moved, _ = kernel.step(jax.random.key(0), state, None, 0.5)
    assert {name: leaf.shape for name, leaf in moved.items()} == {"a": (9,), "b": (3,)}
    assert np.unique(np.concatenate(list(moved.values()))).size == 12


def check_unlike(noise):
    """Numbers of variables, chains and steps: standard normal, and none of them seen again."""
    *_, steps, size = noise.shape
    if steps > 100:  # no number comes back, at another place or not
        places = np.moveaxis(noise, 2, 0).reshape(steps, -1)
        for lag in range(3):
            alike = places[lag:].T @ places[: steps - lag] / steps
            assert np.abs(alike - (lag == 0) * np.diag(np.diag(alike))).max() < 7 / np.sqrt(steps)
    noise = noise.reshape(-1, size)
    transformed = np.fft.rfft(noise)
    for number, one in enumerate(transformed):
        alike = np.fft.irfft(transformed * one.conj(), size) / size
        assert alike[number, 0] == pytest.approx(1, abs=7 * np.sqrt(2 / size)), "its variance"
        alike[number, 0] = 0
        assert np.abs(alike).max() < 7 / np.sqrt(size)


@pytest.mark.parametrize(("size", "steps"), [(200, 150), (2**14, 12)], ids=["small", "large"])
def test_minibatches_that_are_generated_are_new_in_every_step_and_chain(size, steps):
    posterior = ib.Posterior(
        supports={"x": constraints.real},
        gradient=lambda theta, z: {"x": z},
        data=ib.data.Generated(lambda key: jax.random.normal(key, (size,))),
    )
    check_unlike(moves(run(posterior, size, 1.0, steps))[None])


def test_noise_minibatches_starts_and_the_order_of_the_rows_have_keys_of_their_own(monkeypatch):
    seen = {}

    def recording(name, function, place):
        def call(*arguments):
            seen[name] = arguments[place]
            return function(*arguments)

        return call

    runner = runs.chunk_runner
    monkeypatch.setattr(runs, "chunk_runner", lambda program: recording("keys", runner(program), 3))
    monkeypatch.setattr(resolve, "starts_of", recording("starts", resolve.starts_of, 3))
    monkeypatch.setattr(Epochs, "prepare", recording("order", Epochs.prepare, 1))
    keys = []
    for seed in (0, 1):
        run(HISTOGRAM, SMALL, 1.0, 4, num_chains=3, batch_size=5, seed=seed)
        keys += [*seen["keys"].noise, *seen["keys"].batch, *derived(seen["starts"], 3)]
        keys += [seen["starts"], np.asarray(jax.random.key_data(seen["order"]))]
    assert np.unique(keys, axis=0).shape == (2 * (3 + 3 + 3 + 1 + 1), 2)


# -- minibatches --------------------------------------------------------------------------------------------------


# A step adds to the number of each row how often the minibatch has it, times the rows of the data for each of its own.
HISTOGRAM = ib.Posterior(
    supports={"x": constraints.real},
    log_prior=lambda theta: 0.0,
    log_likelihood=lambda theta, row: theta["x"][row],
    data=np.arange(ROWS, dtype=np.int32),
)


def read_rows(size, batch_size, num_steps, thin=1, **options):
    """How often each row was read between two draws, axes (chain, draw, row)."""
    draws = run(HISTOGRAM, size, 1.0, num_steps, thin=thin, batch_size=batch_size, **options)
    read = moves(draws)[..., :ROWS] * batch_size / ROWS
    counts = np.rint(read)
    np.testing.assert_allclose(read, counts, atol=1e-3)
    assert np.all(counts.sum(axis=-1) == thin * batch_size)
    return counts


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_run_reads_every_row_once_an_epoch_and_each_chain_in_its_own_order(size):
    counts = read_rows(size, 5, 40).reshape(2, 10, 4, ROWS)
    assert np.all(counts.sum(axis=2) == 1)
    assert not np.array_equal(counts[0], counts[1])
    assert len({epoch.tobytes() for epoch in counts.reshape(20, -1)}) > 10
    # Of several steps in a block, each reads its own rows.
    assert np.all(read_rows(size, 5, 40, thin=4) == 1)
    halves = read_rows(size, 5, 40, thin=2).reshape(2, 10, 2, ROWS)
    assert np.array_equal(halves, counts.reshape(2, 10, 2, 2, ROWS).sum(axis=3))


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_run_whose_last_batch_of_an_epoch_is_full_too_reads_few_rows_twice(size):
    counts = read_rows(size, 6, 40).reshape(2, 10, 4, ROWS).sum(axis=2)
    assert np.all((counts == 1) | (counts == 2))
    assert np.all((counts == 2).sum(axis=-1) == 4)
    assert len(np.unique(counts.reshape(20, ROWS), axis=0)) > 5


@pytest.mark.parametrize(("size", "steps"), [(SMALL, 4_000), (LARGE, 400)], ids=["small", "large"])
def test_minibatches_with_replacement_are_independent_of_each_other_and_of_those_of_other_chains(size, steps):
    counts = read_rows(size, 5, steps, batching="replacement")
    share = 1 / ROWS
    np.testing.assert_allclose(counts.mean((0, 1)), 5 * share, atol=6 * np.sqrt(5 * share / (2 * steps)))
    off = (counts - 5 * share) / np.sqrt(5 * share * (1 - share))
    assert np.mean(off**2) == pytest.approx(1, abs=0.05)
    bound = 6 / np.sqrt(steps * ROWS)
    for one, other in [(off[0], off[1]), *((off[:, :-lag], off[:, lag:]) for lag in (1, 2, 3, 8))]:
        assert abs(np.mean(one * other)) < bound


# -- step sizes ---------------------------------------------------------------------------------------------------


# A step adds its size.
SLOPE = ib.Posterior(supports={"x": constraints.real}, log_prior=lambda theta: jnp.sum(theta["x"]))


@pytest.mark.parametrize("thin", [1, 6])
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_step_has_the_size_that_the_schedule_gives_its_number(size, thin):
    schedule = ib.schedules.polynomial_decay(1.0, decay_steps=3.0, power=1.0)
    draws = run(SLOPE, size, schedule, 60, thin=thin)
    sizes = np.asarray(schedule(np.arange(60)))
    expected = np.cumsum(sizes)[thin - 1 :: thin, None]
    np.testing.assert_allclose(draws.phi["x"] - expected, 0, atol=1e-5)
    np.testing.assert_allclose(draws.stats["step_size"] - sizes[thin - 1 :: thin], 0, atol=1e-6)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_every_chain_has_its_own_step_size_throughout(size):
    draws = run(SLOPE, size, np.array([0.5, 2.0]), 12, thin=3)
    expected = np.array([0.5, 2.0])[:, None, None] * [[3], [6], [9], [12]]
    np.testing.assert_allclose(draws.phi["x"] - expected, 0, atol=1e-4)


# -- when it goes wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_the_minibatch_and_the_step_size_of_the_very_step_are_looked_at_after_a_failure(size):
    def log_likelihood(theta, row):
        return jnp.where(row == 7, jnp.nan, 0.0) * theta["x"][-1]

    prior = {"x": dist.Normal(0.0, 1.0).expand([size])}
    kernel = ib.sgld(ib.Posterior(prior, log_likelihood, np.arange(ROWS, dtype=np.float32)))
    schedule = ib.schedules.polynomial_decay(1e-3, decay_steps=2.0, power=1.0)
    with pytest.raises(ib.NonFiniteError, match="gradient at the last finite position") as caught:
        ib.sample(kernel, schedule, 2 * ROWS, batch_size=1, num_chains=2, seed=10, progress=False)
    step = caught.value.step
    assert 1 < step <= ROWS
    assert caught.value.chain == 1
    assert f"with step size {float(schedule(step - 1)):.3g}." in str(caught.value)
