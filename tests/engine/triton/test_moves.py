"""Kernels of our own for large variables do what the step does. Without a GPU they are interpreted, or lowered to what Triton takes."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.data.ratings import Ratings
from inbounds.engine import on
from inbounds.engine.program import Program
from inbounds.engine.triton import moves
from inbounds.engine.triton.moves import Fused, normals
from inbounds.models.factors import FactorModel
from inbounds.sampling import run as runs

pytest.importorskip("jax.experimental.pallas.triton", reason="this JAX has no Triton")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning"),  # short on purpose
]

SIZE = 2_500  # neither a whole number of blocks nor of halves
HALF_LINE = ("softplus", "icll", "integrated_probit", "exp")
INTERVAL = ("sigmoid", "probit", "arctan", "softsign")


def bare(transform):
    support = constraints.positive if transform in HALF_LINE else constraints.unit_interval
    posterior = ib.Posterior(supports={"x": support}, gradient=lambda theta, batch: jax.tree.map(jnp.negative, theta))
    return posterior, {"x": np.linspace(0.1, 0.9, SIZE).astype(np.float32)}, {}


def regression():
    """A product of matrices, and a vector that is too small for a kernel."""
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(20, 50)).astype(np.float32), "y": rng.normal(size=(20, 50)).astype(np.float32)}
    posterior = ib.Posterior(
        {"w": dist.Gamma(2.0, 3.0).expand([50, 50]), "b": dist.Normal().expand([50])},
        lambda theta, batch: dist.Normal(batch["x"] @ theta["w"] + theta["b"], 5.0).log_prob(batch["y"]).sum(1),
        data,
    )
    return posterior, {"w": np.full((50, 50), 0.4, np.float32), "b": np.zeros(50, np.float32)}, data


def ratings(likelihood="poisson", offsets=False):
    rng = np.random.default_rng(0)
    batch = {"user": rng.integers(0, 90, 60), "item": rng.integers(0, 70, 60), "rating": rng.integers(1, 6, 60) / 1.0}
    batch["rating"] = batch["rating"].astype(np.float32)
    model = FactorModel(90, 70, 20, likelihood, offsets, 3.0, 1.0, 5.0, 2.0)
    start = {name: np.full(shape, 0.5, np.float32) for name, shape in model.shapes.items()}
    return model.posterior(SimpleNamespace(**batch)), start, batch


def both_ways(kernel, theta, batch, step_size=1e-3, chains=1, steps=3, **options):
    """The program, and states after some steps: by it, and by the kernel of the library with the same normals."""
    state = kernel.init(theta)
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), kernel.proxy(state))
    treedef, batch = jax.tree.structure(like), jax.tree.map(jnp.asarray, batch)

    def advance(noise, state, size):
        return kernel.update(noise, state, batch, size, report=False)[0]

    program = Fused(advance, like, (state, jnp.asarray(step_size, np.float32)), chains=chains, in_a_row=True, **options)

    def by_hand(words, number, state, size):
        return advance(jax.tree.unflatten(treedef, normals(words, number, jax.tree.leaves(like))), state, size)

    words = jnp.arange(2 * chains, dtype=np.uint32).reshape(chains, 2) + 7
    spread = 1 + 0.03 * np.arange(chains, dtype=np.float32)  # starts and step sizes of their own
    states = jax.tree.map(lambda leaf: jnp.stack([leaf * factor for factor in spread]).astype(leaf.dtype), state)
    sizes = jnp.asarray(step_size * spread, np.float32)
    step, expect, begin = (
        jax.vmap(program, (0, None, 0, 0, 0)),
        jax.vmap(by_hand, (0, None, 0, 0)),
        jax.vmap(program.begin),
    )
    if chains == 1:  # which go without the axis
        words, sizes = words[0], sizes[0]
        states, step, expect, begin = state, program, by_hand, program.begin
    step, expect = jax.jit(step), jax.jit(expect)
    found, expected, left = states, states, begin(states, sizes)
    for number in map(jnp.asarray, range(steps)):
        found, left = step(words, number, left, found, sizes)
        expected = expect(words, number, expected, sizes)
    return program, found, expected


def assert_same(found, expected, rtol=2e-5):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("make", "transform"),
    [
        *((ib.sgld, transform) for transform in (*HALF_LINE, *INTERVAL)),
        *((make, one[0]) for make in (ib.leimkuhler_matthews, ib.baoab) for one in (HALF_LINE, INTERVAL)),
    ],
)
def test_a_kernel_moves_as_the_step_does(make, transform, gpu, interpreted):
    posterior, theta, batch = bare(transform)
    program, found, expected = both_ways(make(posterior, transform), theta, batch)
    assert len(program.tails) == 1
    assert not program.reads
    assert_same(found, expected)


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("make", [ib.sgld, ib.baselines.mirror, ib.leimkuhler_matthews])
def test_sums_of_looked_up_rows_leave_zeros(make, chains, gpu, interpreted):
    program, found, expected = both_ways(make(ratings()[0]), *ratings()[1:], chains=chains)
    assert [len(tail.sums) for tail in program.tails] == [1, 1]
    assert_same(found, expected)


@pytest.mark.parametrize("chains", [1, 2])
def test_theta_for_products_of_matrices_is_made_ahead(chains, gpu, interpreted):
    posterior, theta, batch = regression()
    program, found, expected = both_ways(ib.sgld(posterior), theta, batch, chains=chains)
    (tail,) = program.tails
    assert len(tail.ahead) == 1
    assert len(program.reads) == 1  # the noise of the small vector
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("likelihood", "options", "chains"),
    [
        ("poisson", {"noise_correction": True}, 1),
        ("gaussian", {"preconditioner": ib.preconditioners.rmsprop(10)}, 1),
        ("binomial", {"noise_correction": True}, 2),
        ("poisson", {"preconditioner": ib.preconditioners.rmsprop(10)}, 2),
    ],
)
def test_options_of_kernels(likelihood, options, chains, gpu, interpreted):
    posterior, theta, batch = ratings(likelihood, offsets=True)
    program, found, expected = both_ways(ib.sgld(posterior, **options), theta, batch, 1e-4, chains)
    assert len(program.tails) == 2
    assert_same(found, expected, rtol=1e-3)  # steps divided by the size of small gradients


def rows_and_columns():
    """Priors of their own for rows and for columns, the former sampled too."""

    def log_prior(theta):
        scale = jnp.linspace(1.0, 2.0, 30)
        return jnp.sum(dist.Gamma(2.0, theta["rate"][:, None] * scale).log_prob(theta["x"])) - jnp.sum(theta["rate"])

    supports = {"x": constraints.positive, "rate": constraints.positive}
    theta = {"x": np.full((90, 30), 0.5, np.float32), "rate": np.linspace(0.5, 1.5, 90).astype(np.float32)}
    return ib.Posterior(log_prior=log_prior, supports=supports), theta, {}


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("make", [ib.sgld, ib.leimkuhler_matthews])
def test_smaller_arrays_are_broadcast_in_the_kernel(make, chains, gpu, interpreted):
    posterior, theta, batch = rows_and_columns()
    program, found, expected = both_ways(make(posterior), theta, batch, chains=chains)
    (tail,) = program.tails
    assert len(tail.broadcasts) == 2
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("likelihood", "offsets", "chains"),
    [("poisson", False, 2), ("gaussian", True, 2), ("gaussian", False, 1), ("binomial", True, 1)],
)
def test_the_factorisation_as_people_use_it(likelihood, offsets, chains, gpu, interpreted):
    """Steps and noise that know how many ratings each row has."""
    rng = np.random.default_rng(0)
    user, item = np.divmod(rng.choice(90 * 70, 600, replace=False), 70)
    table = Ratings(user, item, rng.integers(1, 6, 600).astype(np.float32), np.arange(90), np.arange(70))
    model = FactorModel.of(table, 20, likelihood, offsets)
    kernel = ib.leimkuhler_matthews(
        model.posterior(table), model.transforms("softplus"), preconditioner=model.preconditioner(table, "softplus"),
        noise_correction=model.gradient_variance(table, 60),
    )  # fmt: skip
    batch = {"user": table.user[:60], "item": table.item[:60], "rating": table.rating[:60]}
    program, found, expected = both_ways(kernel, model.start(jax.random.key(0)), batch, 0.05, chains)
    assert [len(tail.sums) for tail in program.tails] == ([0, 1] if offsets else [1, 1])
    assert all(tail.broadcasts for tail in program.tails)
    assert_same(found, expected)


@pytest.mark.parametrize("chains", [1, 2])
def test_variables_that_read_each_other(chains, gpu, interpreted):
    """Each is moved by what the other was, and not by what it becomes."""

    def log_prior(theta):
        return -jnp.sum(jnp.square(theta["b"] / theta["scale"]) / 2 + jnp.log(theta["scale"]) + theta["scale"])

    supports = {"b": constraints.real, "scale": constraints.positive}
    theta = {"b": np.linspace(-1, 1, SIZE).astype(np.float32), "scale": np.linspace(0.5, 2, SIZE).astype(np.float32)}
    posterior = ib.Posterior(log_prior=log_prior, supports=supports)
    program, found, expected = both_ways(ib.sgld(posterior), theta, {}, chains=chains)
    assert len(program.tails) == 2
    assert_same(found, expected)


def test_kernels_for_few_of_the_numbers_do_not_pay(gpu, interpreted):
    priors = {"p": dist.Dirichlet(jnp.full(10, 2.0)).expand([400]), "x": dist.Gamma(2.0, 3.0).expand([SIZE])}
    theta = {"p": np.full((400, 10), 0.1, np.float32), "x": np.full(SIZE, 0.5, np.float32)}
    program, _, _ = both_ways(ib.sgld(ib.Posterior(priors)), theta, {})
    assert [tail.size for tail in program.tails] == [SIZE]
    assert not program.pays


def test_what_xla_would_join_to_the_move_is_left_to_it(gpu, interpreted):
    posterior = ib.Posterior({"p": dist.Dirichlet(jnp.full(10, 2.0)).expand([300])})
    program, found, expected = both_ways(ib.sgld(posterior), {"p": np.full((300, 10), 0.1, np.float32)}, {})
    assert program.tails == []
    assert_same(found, expected)


def test_sums_into_what_is_no_zero_are_read_only(gpu, interpreted):
    def gradient(theta, batch):
        return {"w": (-theta["w"]).at[batch["row"]].add(2 * theta["w"][batch["row"]])}

    posterior = ib.Posterior(supports={"w": constraints.positive}, gradient=gradient)
    theta, batch = {"w": np.full((90, 20), 0.5, np.float32)}, {"row": np.arange(30) * 7 % 90}
    program, found, expected = both_ways(ib.sgld(posterior), theta, batch, 1e-2)
    (tail,) = program.tails
    assert tail.sums == []
    assert_same(found, expected)


@pytest.mark.parametrize(
    "gradient",
    [
        lambda x: -jax.lax.round(x),  # halves away from zero
        lambda x: -jnp.tanh(x.astype(jnp.bfloat16)).astype(np.float32),
        lambda x: -jax.lax.select_n((x > 0.4).astype(np.int32) + (x > 0.6), x, 2 * x, 3 * x),
        lambda x: jnp.where(jnp.maximum(x > 0.5, x < 0.2), -x, x),
        lambda x: -jnp.square(jax.lax.rsqrt(x - 2)),  # of a negative number: none
    ],
)
def test_equations_that_triton_does_otherwise(gradient, gpu, interpreted):
    posterior = ib.Posterior(
        supports={"x": constraints.positive}, gradient=lambda theta, batch: jax.tree.map(gradient, theta)
    )
    theta = {"x": np.linspace(0.1, 0.9, SIZE).astype(np.float32)}
    program, found, expected = both_ways(ib.sgld(posterior), theta, {}, 1e-2)
    names = {equation.primitive.name for tail in program.tails for equation in tail.equations}
    assert not names & {"round", "tanh"}
    assert_same(found, expected)


def test_models_that_print_are_left_as_they_are(gpu, interpreted, kernels, capfd):
    def gradient(theta, batch):
        jax.debug.print("at {}", theta["x"][0])
        return jax.tree.map(jnp.negative, theta)

    posterior = ib.Posterior(supports={"x": constraints.positive}, gradient=gradient)
    ib.sample(ib.sgld(posterior), 1e-3, 4, init={"x": np.ones(SIZE, np.float32)}, progress=False)
    assert not kernels
    assert capfd.readouterr().out.count("at ") >= 4


def test_noise_that_goes_elsewhere_is_left_to_xla(gpu, interpreted):
    posterior, theta, batch = bare("softplus")
    program, found, expected = both_ways(ib.sgnht(posterior), theta, batch)
    assert program.tails == []
    assert_same(found, expected)


def run(steps, **settings):
    posterior, theta, _ = ratings()
    return ib.sample(
        ib.sgld(posterior), 1e-3, steps, batch_size=20, init=theta, seed=3, progress=False, thin=10, **settings
    )  # fmt: skip


def test_small_variables_beside_large_ones_have_a_part_of_the_kernel(gpu, interpreted, monkeypatch):
    priors = {name: dist.Gamma(2.0, 3.0).expand([size]) for name, size in {"x": SIZE, "y": 300, "z": 20}.items()}
    theta = {name: np.full(prior.shape(), 0.5, np.float32) for name, prior in priors.items()}
    monkeypatch.setattr(moves, "WORTH_A_PART", 100)
    program, found, expected = both_ways(ib.sgld(ib.Posterior(priors)), theta, {})
    assert [tail.size for tail in program.tails] == [SIZE, 300]
    assert_same(found, expected)


@pytest.mark.parametrize(("chains", "large"), [(1, 10**9), (2, 1_000)])
def test_draws_do_not_depend_on_how_a_run_is_cut(chains, large, gpu, interpreted, kernels, monkeypatch):
    monkeypatch.setattr(moves, "LARGE", large)
    monkeypatch.setattr(Program, "unroll", 4)
    whole = run(40, num_chains=chains).theta
    assert not any(np.array_equal(whole["W"][:, 0], whole["W"][:, k]) for k in (1, 2, 3))
    for steps, settings in ((30, {}), (40, {"chunk_steps": 10}), (35, {"chunk_steps": 20})):
        part = run(steps, num_chains=chains, **settings).theta
        for name, draws in part.items():
            assert draws.shape[:2] == (chains, steps // 10)
            np.testing.assert_allclose(draws, whole[name][:, : steps // 10], rtol=1e-5)
    monkeypatch.setattr(Program, "unroll", 1)
    for name, draws in run(40, num_chains=chains).theta.items():
        np.testing.assert_allclose(draws, whole[name], rtol=1e-5)
    assert len(kernels) >= 8  # in the first run's two loops, and again for every model


def test_the_law_is_that_of_the_model(gpu, interpreted, kernels):
    """Many coordinates, one chain: the mean and sd of a gamma distribution."""
    size = 20_000
    posterior = ib.Posterior({"x": dist.Gamma(3.0, 2.0).expand([size])})
    kernel = ib.leimkuhler_matthews(posterior)
    draws = ib.sample(kernel, 0.05, 400, thin=200, init={"x": np.ones(size, np.float32)}, seed=0, progress=False)
    last = np.asarray(draws.theta["x"])[0, -1]
    assert abs(last.mean() - 1.5) < 5 * 0.866 / size**0.5
    assert abs(last.std() - 0.866) < 5 * 0.9 / size**0.5
    assert kernels


def test_reports_are_those_of_the_step(gpu, interpreted, kernels):
    """That of `baoab` is taken after the move, and depends on its noise."""
    kernel = ib.baoab(ib.Posterior({"x": dist.Normal().expand([SIZE])}), friction=100.0)
    start = {"x": np.zeros(SIZE, np.float32)}
    draws = ib.sample(kernel, 0.5, 20, thin=10, init=start, seed=0, progress=False)
    norm = np.linalg.norm(np.asarray(draws.state.drift["x"]))
    np.testing.assert_allclose(draws.stats["gradient_norm"][0, -1], norm, rtol=1e-4)
    assert kernels


def test_a_model_that_cannot_be_compiled_is_left_to_xla(gpu, interpreted, monkeypatch):
    def fails(*arguments):
        raise NotImplementedError("no such instruction")

    monkeypatch.setattr(moves, "_kernel", fails)
    kernel, theta = ib.sgld(ratings()[0]), ratings()[1]
    settings = {"batch_size": 20, "init": theta, "progress": False}
    with pytest.warns(UserWarning, match="XLA does its steps.*no such instruction"):
        assert ib.sample(kernel, 1e-3, 10, **settings).theta["W"].shape == (1, 10, 90, 20)
    ib.sample(kernel, 1e-3, 10, **settings)  # and does not try again


def test_errors_later_in_a_run_are_errors(gpu, interpreted, monkeypatch):
    """And no reason to go on with other noise."""
    chunk_runner, chunks = runs.chunk_runner, []

    def fails_the_second_time(program):
        chunks.append(program)
        if len(chunks) == 2:
            raise RuntimeError("out of memory")
        return chunk_runner(program)

    monkeypatch.setattr(runs, "chunk_runner", fails_the_second_time)
    with pytest.raises(RuntimeError, match="out of memory"):
        run(30, chunk_steps=10)


def test_errors_of_the_model_stay_errors(gpu, interpreted):
    def gradient(theta, batch):
        raise ZeroDivisionError("mine")

    posterior = ib.Posterior(supports={"x": constraints.positive}, gradient=gradient)
    with pytest.raises(ZeroDivisionError, match="mine"):
        ib.sample(ib.sgld(posterior), 1e-3, 10, init={"x": np.ones(SIZE, np.float32)}, progress=False)


def test_cpus_have_none():
    assert on("cpu").plug_in() is None
    assert on("tpu").plug_in() is None


def test_they_can_be_turned_off(gpu, interpreted, kernels, monkeypatch):
    assert on("gpu").plug_in() is not None
    monkeypatch.setenv(moves.SWITCH, "0")
    moves.works.cache_clear()
    assert run(10).theta["W"].shape == (1, 1, 90, 20)
    assert kernels == []


def test_leaves_chains_and_steps_have_noise_of_their_own():
    like = [jax.ShapeDtypeStruct((size,), np.float32) for size in (5_000, 700, 3_000)]
    keys = [jnp.asarray(words, np.uint32) for words in ([1, 2], [1, 3])]
    draws = [normals(words, jnp.asarray(step), like) for words in keys for step in (0, 1)]
    everything = np.concatenate(jax.tree.leaves(draws))
    assert len(np.unique(everything)) > 0.999 * everything.size
    assert scipy.stats.kstest(everything, "norm").pvalue > 1e-3


DISTRIBUTIONS = {
    "gamma": dist.Gamma(3.0, 2.0), "exponential": dist.Exponential(2.0), "log normal": dist.LogNormal(0.0, 1.0),
    "half normal": dist.HalfNormal(2.0), "half Cauchy": dist.HalfCauchy(1.0), "inverse gamma": dist.InverseGamma(2.0, 1.0),
    "Weibull": dist.Weibull(1.0, 2.0), "beta": dist.Beta(2.0, 3.0), "uniform": dist.Uniform(-1.0, 2.0), "normal": dist.Normal(),
    "Student's t": dist.StudentT(3.0), "Laplace": dist.Laplace(), "truncated": dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=1.0),
    "many rates": dist.Exponential(np.linspace(1, 2, SIZE).astype(np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("make", [ib.sgld, ib.leimkuhler_matthews])
def test_triton_takes_what_priors_are_made_of(make, name, gpu):
    posterior = ib.Posterior({"x": DISTRIBUTIONS[name].expand([SIZE])})
    assert kernels_in(make(posterior), {"x": np.full(SIZE, 0.5, np.float32)}) == 1


@pytest.mark.parametrize("transform", [*HALF_LINE, *INTERVAL])
def test_triton_takes_every_transform(transform, gpu):
    posterior, theta, _ = bare(transform)
    assert kernels_in(ib.baoab(posterior, transform), theta) == 1


def test_triton_takes_broadcasts(gpu):
    posterior, theta, _ = rows_and_columns()
    assert kernels_in(ib.sgld(posterior), theta) == 1


def lowered_for_gpus(traced):
    try:
        return moves.quietly(lambda: traced.lower(lowering_platforms=("cuda",)).as_text())()
    except RuntimeError as error:
        if "No supported GPU devices" not in str(error):
            raise
        pytest.skip("this JAX lowers kernels for GPUs only where there is one")


def kernels_in(kernel, theta, batch=None, chains=1, **options):
    """How many kernels a step has, lowered for NVIDIA GPUs."""
    state, batch = kernel.init(theta), jax.tree.map(jnp.asarray, batch or {})
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), kernel.proxy(state))

    def advance(noise, state):
        return kernel.update(noise, state, batch, 1e-3, False)[0]

    program = Fused(advance, like, (state,), chains=chains, **options)

    def step(words, state):
        return program(words, jnp.asarray(0), program.begin(state), state)

    words = jnp.zeros(2, np.uint32)
    if chains > 1:
        step = jax.vmap(step)
        words, state = jax.tree.map(lambda leaf: jnp.stack([leaf] * chains), (words, state))
    text = lowered_for_gpus(jax.jit(step).trace(words, state))
    assert "maxnum" not in text  # which makes a number of what is none
    return text.count("xla.gpu.triton")
