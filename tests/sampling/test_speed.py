"""What keeps a run fast, where it does not hang on the clock: compilations, device memory, transfers, random numbers."""

import functools
import gc
import re
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.sampling import run as runs
from tests.models_for_tests import on_cpus

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

COMPILATION = "/jax/core/compile/backend_compile_duration"
LOWERING = "/jax/core/compile/jaxpr_to_mlir_module_duration"
LEAVING = ("infeed", "outfeed", "stablehlo.send", "stablehlo.recv", "callback")


def small():
    """Three variables, no data: noise is drawn beforehand."""
    priors = {"a": dist.Gamma(0.5, 2.0), "b": dist.Beta(2.0, 2.0), "c": dist.Normal(0.0, 1.0).expand([3])}
    return ib.sgld(ib.Posterior(priors)), {}


def with_data():
    rng = np.random.default_rng(0)
    data = {"x": rng.exponential(size=(64, 2)).astype(np.float32), "y": rng.poisson(2.0, 64).astype(np.float32)}

    def log_likelihood(theta, batch):
        rate = batch["x"] @ theta["w"]
        return batch["y"] * jnp.log(rate) - rate

    posterior = ib.Posterior({"w": dist.Gamma(2.0, 2.0).expand([2])}, log_likelihood, data)
    kernel = ib.leimkuhler_matthews(posterior, noise_correction=True)
    return kernel, {"batch_size": 16, "num_chains": 2, "thin": 4}


def large():
    """More numbers than a block has: noise is drawn in the step."""
    priors = {"w": dist.HalfNormal(1.0).expand([5_000])}
    return ib.sgld(ib.Posterior(priors)), {"thin": 4, "collect": ib.collect.mean_and_variance()}


MODELS = [small, with_data, large]


class FirstRun(NamedTuple):
    """A run of eight steps: how to repeat it, what was compiled for it, and the chunk that ran."""

    again: Callable
    compiled: Counter
    jaxpr: Any
    program: str


@functools.cache  # compiled once, for all the tests
def first_run(model):
    kernel, settings = model()

    def run(num_steps=8, step_size=1e-4, **more):
        return ib.sample(kernel, step_size, num_steps, progress=False, **settings, **more)

    with compilations() as compiled:
        traced = chunk_of(run)
    return FirstRun(run, compiled, traced.jaxpr.jaxpr, traced.lower().as_text())


def chunk_of(run):
    """The chunk that `run` runs, as it was traced."""
    chunk_runner, traced = runs.chunk_runner, []

    def spy(program):
        run_chunk = chunk_runner(program)

        def run(*arguments):
            traced.append(run_chunk.trace(*arguments))
            return run_chunk(*arguments)

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "chunk_runner", spy)
        run()
    return traced[0]


@contextmanager
def compilations():
    """How often XLA was asked for a program, and how often JAX wrote one for it."""
    counts: Counter = Counter()

    def listen(event, duration, **_):
        if event in (COMPILATION, LOWERING):
            counts[event] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counts
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("model", MODELS)
def test_a_second_run_compiles_nothing_whatever_its_length_seed_and_step_size(model):
    first = first_run(model)
    assert set(first.compiled) == {COMPILATION, LOWERING}  # the events still have these names
    first.again(600)  # the first that is long enough to be judged
    with compilations() as compiled:
        first.again()
        first.again(600, 2e-4, burn_in=20, seed=7)
    assert not compiled


def test_a_first_run_compiles_three_programs():
    """States from starts, the chunk, and theta from phi: anything else would be a computation that belongs on the host."""
    kernel = ib.sgld(ib.Posterior({"a": dist.Gamma(0.5, 2.0), "b": dist.Beta(2.0, 2.0).expand([2])}))
    with compilations() as compiled:
        ib.sample(kernel, 1e-4, 8, progress=False, num_chains=2).theta  # noqa: B018
    assert compiled[COMPILATION] <= 3


@on_cpus
def test_the_likelihood_is_traced_twice_for_its_shapes_and_for_the_chunk():
    traces = []

    def log_likelihood(theta, batch):
        traces.append(batch.shape)
        return -jnp.square(batch - theta["x"])

    kernel = ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1.0)}, log_likelihood, np.zeros(20, np.float32)))
    ib.sample(kernel, 1e-4, 8, batch_size=5, progress=False)
    ib.sample(kernel, 1e-4, 8, batch_size=5, progress=False, seed=1)
    assert traces == [(5,), (5,)]


@pytest.mark.parametrize("model", MODELS)
def test_runs_leave_nothing_on_the_device(model):
    run = first_run(model).again

    def left(runs):
        for seed in range(runs):
            run(seed=seed)
        gc.collect()
        return len(jax.live_arrays())

    assert left(3) == left(2)


@pytest.mark.parametrize("model", MODELS)
def test_nothing_goes_to_the_host_inside_a_chunk(model):
    program = first_run(model).program
    assert "stablehlo.while" in program
    assert [word for word in LEAVING if word in program] == []


def test_a_small_model_draws_its_noise_once_a_chunk():
    # One generator for all three variables (each of its rounds has one), outside the only loop over steps.
    assert 1 <= len(mixings(first_run(small).jaxpr)) <= 25
    assert set(mixings(first_run(small).jaxpr)) == set(mixings(first_run(with_data).jaxpr)) == {0}


def test_a_large_model_draws_its_noise_in_the_step():
    assert set(mixings(first_run(large).jaxpr)) == {2}


@on_cpus
def test_a_large_model_computes_a_report_only_where_it_is_kept():
    norms = around(first_run(large).jaxpr, "square", (5_000,))
    assert len(norms) == 1
    assert [name for name in norms[0] if name in ("while", "scan", "cond")] == ["while", "while", "cond"]


@on_cpus
def test_tables_of_short_rows_are_gone_through_in_one_row():
    """A loop has the shape of its result: row by row, few vector instructions would make the noise."""
    rng = np.random.default_rng(0)
    data = {"row": rng.integers(0, 300, 64), "y": rng.poisson(2.0, 64).astype(np.float32)}

    def log_likelihood(theta, batch):
        rate = jnp.sum(theta["w"][batch["row"]], axis=-1)
        return batch["y"] * jnp.log(rate) - rate

    kernel = ib.sgld(ib.Posterior({"w": dist.Exponential(2.0).expand([300, 20])}, log_likelihood, data))
    compiled = chunk_of(lambda: ib.sample(kernel, 1e-4, 4, thin=4, batch_size=16, progress=False)).lower().compile()
    loops = [
        loop for loop in compiled.as_text().split("\n\n") if re.search(r"u32\[(1,)?(6000|300,20)\]\S* xor\(", loop)
    ]
    assert len(loops) == 1
    assert re.search(r"ROOT \S+ = f32\[([\d,]*)\]", loops[0])[1] == "6000"


def mixings(jaxpr):
    """How many loops there are around each exclusive or, which generators of random numbers have and models have not."""
    return [sum(name in ("scan", "while") for name in names) for names in around(jaxpr, "xor")]


def around(jaxpr, wanted, shape=None, outside=()):
    """The names of the operations around each one of the name `wanted`, from the outermost on; of all shapes or of one."""
    found = []
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == wanted and shape in (None, equation.outvars[0].aval.shape):
            found.append(outside)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                found += around(inner, wanted, shape, (*outside, name))
    return found
