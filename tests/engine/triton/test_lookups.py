"""Look-ups of rows and their sums in one kernel do what the step does."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.experimental import pallas as pl

import inbounds as ib
from inbounds.engine.triton import arithmetic, lookups, moves

from .test_moves import assert_same, bare, both_ways, kernels_in, lowered_for_gpus, ratings, regression, run

pytestmark = [
    pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning"),  # short on purpose
]

ROWS, COUNT = 90, 50


def effects(log_likelihood, **more):
    """A table, and the rows of it that data look up, some of them more than once."""
    rng = np.random.default_rng(0)
    batch = {"row": rng.integers(0, ROWS, COUNT).astype(np.int32), "y": rng.poisson(2, COUNT).astype(np.float32)}
    posterior = ib.Posterior({"w": dist.Gamma(3.0, 2.0).expand([ROWS, 20])} | more, log_likelihood, batch)
    return posterior, {"w": rng.gamma(3, 0.5, size=(ROWS, 20)).astype(np.float32)}, batch


def poisson(theta, batch):
    rate = jnp.sum(theta["w"][batch["row"]], axis=1)
    return batch["y"] * jnp.log(rate) - rate


@pytest.mark.parametrize(
    ("likelihood", "make", "chains"),
    [
        ("poisson", ib.sgld, 1),
        ("poisson", ib.baselines.mirror, 3),
        ("poisson", ib.leimkuhler_matthews, 1),
        ("gaussian", ib.sgld, 3),
        ("gaussian", ib.leimkuhler_matthews, 1),
        ("binomial", ib.baselines.mirror, 1),
        ("binomial", ib.leimkuhler_matthews, 3),
    ],
)
def test_factorisations(likelihood, make, chains, gpu, interpreted):
    program, found, expected = both_ways(make(ratings(likelihood)[0]), *ratings(likelihood)[1:], chains=chains)
    assert len(program.lookups.sums) == 2
    assert not any(equation.primitive.name in ("gather", "scatter-add") for equation in program.head)
    assert_same(found, expected)


def test_two_sums_pay_for_few_numbers_too(gpu, interpreted, monkeypatch):
    monkeypatch.setattr(moves, "LARGE", 10**9)
    program, found, expected = both_ways(ib.sgld(ratings()[0]), *ratings()[1:])
    assert program.pays
    assert_same(found, expected)
    for posterior, theta, batch in (effects(poisson), bare("softplus"), regression()):
        program, _, _ = both_ways(ib.sgld(posterior), theta, batch)
        assert program.tails
        assert not program.pays


@pytest.mark.parametrize("transform", ["softplus", "icll", "integrated_probit", "exp"])
def test_every_transform(transform, gpu, interpreted):
    program, found, expected = both_ways(ib.sgld(ratings()[0], transform), *ratings()[1:])
    assert len(program.lookups.sums) == 2
    assert_same(found, expected)


@pytest.mark.parametrize(
    "look_up",
    [
        lambda w, row: w[row],
        lambda w, row: w.at[row].get(mode="clip"),
        lambda w, row: w.at[row].get(mode="promise_in_bounds"),
        lambda w, row: w.at[row - ROWS].get(mode="fill"),
        lambda w, row: jnp.take(w, row, axis=0),
    ],
)
def test_ways_of_looking_up(look_up, gpu, interpreted):
    def log_likelihood(theta, batch):
        return -jnp.sum(jnp.square(look_up(theta["w"], batch["row"]) - batch["y"][:, None]), axis=1)

    program, found, expected = both_ways(ib.sgld(effects(log_likelihood)[0]), *effects(log_likelihood)[1:])
    assert program.lookups is not None
    assert_same(found, expected)


def test_rows_beyond_the_end_are_those_of_the_step(gpu, interpreted):
    """Numbers that are none where `fill` says so, and sums that leave them out."""

    def log_likelihood(theta, batch):
        looked_up = theta["w"].at[batch["row"] + 20].get(mode="fill")
        return jnp.where(batch["row"] + 20 < ROWS, -jnp.sum(jnp.square(looked_up), axis=1), 0.0)

    posterior, theta, batch = effects(log_likelihood)
    program, found, expected = both_ways(ib.sgld(posterior), theta, batch)
    assert batch["row"].max() + 20 >= ROWS
    assert program.lookups is not None
    assert_same(found, expected)


def test_numbers_of_a_vector(gpu, interpreted):
    def log_likelihood(theta, batch):
        rate = theta["x"][batch["row"]]
        return batch["y"] * jnp.log(rate) - rate

    rng = np.random.default_rng(0)
    batch = {"row": rng.integers(0, 2_500, 700).astype(np.int32), "y": rng.poisson(2, 700).astype(np.float32)}
    posterior = ib.Posterior({"x": dist.Gamma(3.0, 2.0).expand([2_500])}, log_likelihood, batch)
    program, found, expected = both_ways(ib.sgld(posterior), {"x": rng.gamma(3, 0.5, 2_500).astype(np.float32)}, batch)
    assert program.lookups._lanes == 1
    assert_same(found, expected)


def test_a_table_whose_rows_are_one_number(gpu, interpreted):
    def log_likelihood(theta, batch):
        rate = theta["x"][batch["row"]].sum(axis=1)
        return batch["y"] * jnp.log(rate) - rate

    rng = np.random.default_rng(0)
    batch = {"row": rng.integers(0, 2_500, 70).astype(np.int32), "y": rng.poisson(2, 70).astype(np.float32)}
    posterior = ib.Posterior({"x": dist.Gamma(3.0, 2.0).expand([2_500, 1])}, log_likelihood, batch)
    theta = {"x": rng.gamma(3, 0.5, (2_500, 1)).astype(np.float32)}
    program, found, expected = both_ways(ib.sgld(posterior), theta, batch)
    assert program.lookups is not None
    assert_same(found, expected)


def test_one_table_looked_up_twice(gpu, interpreted):
    """Two sums into the same gradient are added by XLA: no kernel, or one that is right."""

    def log_likelihood(theta, batch):
        rate = jnp.sum(theta["w"][batch["row"]] * theta["w"][batch["row"][::-1]], axis=1)
        return batch["y"] * jnp.log(rate) - rate

    _, found, expected = both_ways(ib.sgld(effects(log_likelihood)[0]), *effects(log_likelihood)[1:])
    assert_same(found, expected)


@pytest.mark.parametrize("chains", [1, 2])
def test_what_xla_needs_of_the_rows_is_written(chains, gpu, interpreted):
    """A scale that all the data share: its gradient is a sum over what each row has made."""

    def log_likelihood(theta, batch):
        return dist.Normal(jnp.sum(theta["w"][batch["row"]], axis=1), theta["scale"]).log_prob(batch["y"])

    posterior, theta, batch = effects(log_likelihood, scale=dist.Gamma(2.0, 2.0))
    program, found, expected = both_ways(ib.sgld(posterior), theta | {"scale": np.float32(1.5)}, batch, chains=chains)
    assert len(program.lookups.outputs) >= 1
    assert_same(found, expected)


@pytest.mark.parametrize(
    "log_likelihood",
    [
        # what each row adds depends on all of them
        lambda theta, batch: (
            -jnp.square(jnp.sum(theta["w"][batch["row"]], axis=1) - jnp.mean(theta["w"][batch["row"]], axis=(0, 1)))
        ),
        # a sum over what comes before
        lambda theta, batch: -jnp.square(jnp.cumsum(jnp.sum(theta["w"][batch["row"]], axis=1)) - batch["y"]),
        # several rows a datum
        lambda theta, batch: -jnp.square(jnp.sum(theta["w"][jnp.stack([batch["row"]] * 2, 1)], axis=(1, 2)) - 3),
        # a number of each row for each column
        lambda theta, batch: -jnp.sum(jnp.square(theta["w"][batch["row"]] - jnp.arange(20.0)), axis=1),
        # columns apart
        lambda theta, batch: -jnp.square(theta["w"][batch["row"]][:, 3:7].sum(1) - batch["y"]),
        lambda theta, batch: -jnp.square(theta["w"][batch["row"], 3] - batch["y"]),
        lambda theta, batch: -jnp.sum(jnp.square(theta["w"][batch["row"]][:, ::-1] - batch["y"][:, None]), 1),
        lambda theta, batch: -jnp.sum(jnp.square(theta["w"][batch["row"]][::-1] - batch["y"][:, None]), 1),
        lambda theta, batch: -jnp.max(theta["w"][batch["row"]], axis=1),
        # rows of a product of matrices
        lambda theta, batch: -jnp.square(jnp.sum((theta["w"] @ jnp.eye(20))[batch["row"]], axis=1) - batch["y"]),
    ],
)
def test_what_is_no_work_of_each_row_alone(log_likelihood, gpu, interpreted):
    """Left to XLA, or done right."""
    _, found, expected = both_ways(ib.sgld(effects(log_likelihood)[0]), *effects(log_likelihood)[1:])
    assert_same(found, expected)


def rates(theta, batch):
    return jnp.sum(theta["w"][batch["row"]], axis=1)


@pytest.mark.parametrize(
    ("log_likelihood", "more"),
    [
        # one number of all the rows, or of a vector that is as long as there are rows
        (lambda theta, batch: -jnp.square(rates(theta, batch) - batch["y"][0]), {}),
        (lambda theta, batch: -jnp.square(rates(theta, batch) - batch["y"][:1]), {}),
        (lambda theta, batch: -jnp.square(rates(theta, batch) - rates(theta, batch)[0]), {}),
        (lambda theta, batch: -jnp.square(rates(theta, batch) * theta["beta"][0] - batch["y"]), {"beta": (COUNT,)}),
        (lambda theta, batch: -jnp.square(rates(theta, batch) * theta["beta"] - batch["y"]), {"beta": (COUNT,)}),
        (
            lambda theta, batch: -jnp.sum(jnp.square(theta["w"][batch["row"] - batch["row"][0]]), 1),
            {},
        ),
        # the first column
        (lambda theta, batch: -jnp.square(theta["w"][batch["row"]][:, 0] * rates(theta, batch) - batch["y"]), {}),
        (lambda theta, batch: -jnp.sum(theta["w"][batch["row"]][:, :1] * theta["w"][batch["row"]], axis=1), {}),
        (
            lambda theta, batch: (
                -jnp.square(jax.lax.pad(theta["w"][batch["row"]], 0.0, ((0, 0, 0), (0, -19, 0)))[:, 0])
            ),
            {},
        ),
        # arrays that are looked up and used as they are
        (
            lambda theta, batch: -rates(theta, batch) * batch["y"] * batch["y"].at[batch["row"]].get(mode="clip"),
            {},
        ),
        # rows padded
        (lambda theta, batch: -jnp.square(rates(theta, batch) - jax.lax.pad(batch["y"], 0.0, ((1, -1, 0),))), {}),
        # one and the same row
        (lambda theta, batch: -jnp.square(jnp.sum(theta["w"][jnp.zeros_like(batch["row"])], 1) - batch["y"]), {}),
        # a vector beside a table
        (lambda theta, batch: -jnp.square(rates(theta, batch) + theta["beta"][batch["row"]]), {"beta": (2_000,)}),
        (lambda theta, batch: -jnp.square(rates(theta, batch) + theta["beta"][batch["row"], 0]), {"beta": (2_000, 1)}),
        (
            lambda theta, batch: -jnp.square(rates(theta, batch) + theta["beta"][jnp.full_like(batch["row"], 3)]),
            {"beta": (2_000,)},
        ),
    ],
)
def test_what_a_row_is_and_what_it_is_not(log_likelihood, more, gpu, interpreted):
    rng = np.random.default_rng(1)
    priors = {name: dist.Gamma(3.0, 2.0).expand(list(shape)) for name, shape in more.items()}
    posterior, theta, batch = effects(lambda theta, batch: 10 * log_likelihood(theta, batch), **priors)
    theta |= {name: rng.gamma(3, 0.5, shape).astype(np.float32) for name, shape in more.items()}
    _, found, expected = both_ways(ib.sgld(posterior), theta, batch)
    assert_same(found, expected)


def test_as_many_rows_as_columns_or_as_the_table_has(gpu, interpreted):
    """Shapes that coincide do not make a row of a column."""
    for count in (20, ROWS):
        rng = np.random.default_rng(0)
        batch = {"row": rng.integers(0, ROWS, count).astype(np.int32), "y": rng.poisson(2, count).astype(np.float32)}

        def log_likelihood(theta, batch):
            rows = theta["w"][batch["row"]] * jnp.linspace(1, 2, 20)
            return -jnp.square(jnp.sum(rows, axis=1) - batch["y"])

        posterior, theta, _ = effects(log_likelihood)
        _, found, expected = both_ways(ib.sgld(posterior), theta, batch)
        assert_same(found, expected)


def test_a_step_that_has_left_the_numbers_says_so(gpu, interpreted):
    posterior, theta, batch = effects(poisson)
    batch = batch | {"y": np.where(np.arange(COUNT) == 7, np.nan, batch["y"]).astype(np.float32)}
    program, found, _ = both_ways(ib.sgld(posterior), theta, batch, steps=1)
    assert program.lookups is not None
    bad = np.isnan(found.phi["w"]).all(axis=1)
    assert bad[batch["row"][7]]
    assert bad.sum() == 1


@pytest.mark.parametrize("chains", [1, 2])
def test_data_are_cut_in_the_kernel(chains, gpu, interpreted, kernels):
    """A run's minibatches are slices of arrays, which nothing copies."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        kernel = lookups.Lookups._kernel
        patch.setattr(lookups.Lookups, "_kernel", lambda self, *a: seen.append(self) or kernel(self, *a))
        patch.setattr("inbounds.engine.plain.WORTH_UNROLLING", 1)
        run(40, num_chains=chains)
    assert seen
    assert all(len(lookups.sliced) == 3 and not lookups.rows for lookups in seen)


@pytest.mark.parametrize("chains", [1, 3])
def test_triton_takes_them(chains, gpu):
    def one_row(theta, batch):
        return -jnp.square(jnp.sum(theta["w"][jnp.zeros_like(batch["row"])], axis=1) - theta["w"][batch["row"]][:, 0])

    for posterior, theta, batch in (ratings(), ratings("gaussian"), effects(poisson), effects(one_row)):
        assert kernels_in(ib.sgld(posterior), theta, batch, chains, in_a_row=True) == 2


def test_the_order_of_additions_is_left_open(gpu, capfd):
    """JAX still has what the kernel changes of its own addition; otherwise sums take longer, and this says so."""
    triton = arithmetic.triton()

    def kernel(values, _, sums):
        places = jax.lax.iota(np.int32, 16)
        arithmetic.Fast.add_at(sums, places, triton.load(values.at[places]), places < 9)

    def added(values, sums):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((16,), np.float32),
            input_output_aliases={1: 0},
            compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
            debug=True,
        )(values, sums)

    lowered_for_gpus(jax.jit(added).trace(jnp.ones(16), jnp.ones(16)))
    (addition,) = [line for line in capfd.readouterr().out.splitlines() if "= tt.atomic_rmw" in line]
    assert " relaxed," in addition
