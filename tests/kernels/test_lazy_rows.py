"""Rows that wait for their data: the published step where none waits, the same law where some do."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.data.ratings import Ratings
from inbounds.engine import normal_like
from inbounds.kernels._lazy_rows import _noise_shapes
from inbounds.models.factors import FactorModel
from tests.models_for_tests import on_cpus

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

USERS, ITEMS, RATINGS = 12, 8, 60
EPS = 1e-3
OF_RATINGS = {"W": "user", "H": "item", "user_offset": "user", "item_offset": "item"}


def ratings():
    random = np.random.default_rng(0)
    pairs = random.permutation(USERS * ITEMS)[:RATINGS]
    return Ratings.from_columns(pairs // ITEMS, pairs % ITEMS, random.integers(1, 6, RATINGS).astype(float))


def factors():
    data = ratings()
    model = FactorModel.of(data, 3, "gaussian", True)
    return model.posterior(data), OF_RATINGS, model.transforms(), model.preconditioner(data), model.start


def simplexes():
    """Rows on the simplex, whose priors know their number, under a positive scale."""
    random = np.random.default_rng(1)
    data = {"row": np.arange(40) % 7, "word": random.integers(0, 3, 40)}
    posterior = ib.Posterior(
        {"p": dist.Dirichlet(jnp.ones(3)).expand((7,)), "scale": dist.Gamma(2.0, 1.0)},
        lambda theta, batch: jnp.log(theta["p"][batch["row"], batch["word"]]) * theta["scale"] - theta["scale"],
        data,
    )
    start = {"p": np.tile([0.2, 0.3, 0.5], (7, 1)), "scale": 1.5}
    return posterior, {"p": "row"}, None, None, lambda key: start


def hierarchy(rows=5):
    """Rows whose prior has a sampled spread: its own gradient needs every row."""
    data = {"row": np.arange(20) % rows, "y": np.linspace(-1.0, 2.0, 20)}
    posterior = ib.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(jnp.square(t["x"] / t["sd"])) - rows * jnp.log(t["sd"]) - t["sd"],
        supports={"x": constraints.real, "sd": constraints.positive},
        log_likelihood=lambda t, batch: -0.5 * jnp.square(batch["y"] - t["x"][batch["row"]]),
        data=data,
    )
    return posterior, {"x": "row"}, None, {"x": 0.5, "sd": 0.1}, lambda key: {"x": jnp.linspace(-1, 1, rows), "sd": 1.3}


def moved_by_both(case, batch_size=None):
    """Proxies after a step without noise of lazy_rows and of sgld, and where they started."""
    posterior, rows, transforms, scales, start = case()
    lazy = ib.lazy_rows(posterior, rows, transforms, preconditioner=scales, temperature=0.0)
    dense = ib.sgld(posterior, transforms, preconditioner=scales, temperature=0.0)
    batch = jax.tree.map(lambda leaf: leaf[:batch_size], posterior.data)

    theta = start(jax.random.key(0))

    @jax.jit
    def moved(theta):
        begun = [(kernel, kernel.init(theta)) for kernel in (lazy, dense)]
        after = [kernel.step(jax.random.key(0), state, batch, EPS)[0].phi for kernel, state in begun]
        return *after, begun[0][1].phi

    return moved(theta)


@pytest.mark.parametrize("case", [factors, simplexes])
def test_where_every_row_is_touched_it_is_sgld(case):
    lazy, dense, began = moved_by_both(case)
    for name in began:
        np.testing.assert_allclose(lazy[name], dense[name], rtol=1e-4, atol=1e-6)
        assert np.abs(lazy[name] - began[name]).max() > 1e-5


def test_a_variable_that_is_no_table_sees_every_row():
    lazy, dense, began = moved_by_both(hierarchy, batch_size=1)
    np.testing.assert_allclose(lazy["sd"], dense["sd"], rtol=1e-5)
    assert abs(lazy["sd"] - began["sd"]) > 1e-4
    np.testing.assert_array_equal(lazy["x"][1:], began["x"][1:])


@pytest.mark.parametrize("size", [6, 20])  # fewer and more than there are rows
def test_a_row_that_waited_moves_by_all_of_its_time(size):
    data = ratings()
    model = FactorModel.of(data, 2)
    posterior, scales = model.posterior(data), model.preconditioner(data)
    kernel = ib.lazy_rows(posterior, {"W": "user", "H": "item"}, preconditioner=scales)
    state = jax.jit(kernel.init)(model.start(jax.random.key(0)))
    columns = {name: np.asarray(leaf) for name, leaf in posterior.data.items()}
    late = 3  # this user's ratings come in the last batch only
    others, own = np.flatnonzero(columns["user"] != late), np.flatnonzero(columns["user"] == late)
    step = jax.jit(kernel.step)
    for number in range(4):
        batch = {name: leaf[others[number : number + size]] for name, leaf in columns.items()}
        before, (state, _) = state, step(jax.random.key(number), state, batch, EPS)
        untouched = ~np.isin(np.arange(USERS), batch["user"])
        np.testing.assert_array_equal(state.phi["W"][untouched], before.phi["W"][untouched])
        assert np.all(state.phi["W"][~untouched] != before.phi["W"][~untouched])

    picked = np.concatenate([own[:2], others])[:size]
    batch, key = {name: leaf[picked] for name, leaf in columns.items()}, jax.random.key(9)
    after, _ = step(key, state, batch, EPS)
    noise = normal_like(key, _noise_shapes(state.phi, {"W": "user", "H": "item"}, size))["W"]
    phi = np.asarray(state.phi["W"][late], float)
    theta, slope = np.logaddexp(phi, 0.0), 1 / (1 + np.exp(-phi))
    h = np.logaddexp(np.asarray(state.phi["H"], float)[batch["item"][:2]], 0.0)
    data_term = RATINGS / size * (h * (batch["rating"][:2] / (h @ theta) - 1)[:, None]).sum(0)
    drift = 5 * (-slope * model.prior_rate + 1 - slope) + slope * data_term
    pace = EPS * scales["W"][late]
    owners = [noise[late]] if size > USERS else [noise[0], noise[1]]  # either rating of the row may bring the noise
    expected = [phi + pace * drift + np.sqrt(2 * 5 * pace) * z for z in owners]
    assert min(np.abs(after.phi["W"][late] - e).max() for e in expected) < 1e-5
    assert after.last["user"][late] == after.step == 5


def test_rows_that_wait_have_the_posterior_law():
    """Poisson counts with gamma rates: the posterior of a row is a gamma. A row waits for 20 or 40 steps."""
    counts = np.repeat([2, 4], 20)
    row = np.repeat(np.arange(40), counts)
    y = np.random.default_rng(0).poisson(3.0, row.size)
    posterior = ib.Posterior(
        {"rate": dist.Gamma(3.0, 1.0).expand((40,))},
        lambda theta, batch: batch["y"] * jnp.log(theta["rate"][batch["row"]]) - theta["rate"][batch["row"]],
        {"row": row, "y": y.astype(np.float32)},
    )
    shape, rate = 3 + np.bincount(row, y), 1 + counts
    kernel = ib.lazy_rows(posterior, {"rate": "row"}, preconditioner={"rate": 3.0 / rate})
    draws = ib.sample(
        kernel, 2e-3, 80_000, num_chains=4, burn_in=4_000, thin=50, batch_size=1, batching="replacement", progress=False,
        init={"rate": (shape / rate).astype(np.float32)},
    )  # fmt: skip
    flat = draws.theta["rate"].reshape(-1, 40)
    exact_sd = np.sqrt(shape) / rate
    assert np.mean((flat.mean(0) - shape / rate) / exact_sd) == pytest.approx(0.0, abs=0.04)
    assert np.abs((flat.mean(0) - shape / rate) / exact_sd).max() < 0.25
    assert np.mean(flat.std(0) / exact_sd) == pytest.approx(1.0, abs=0.08)


@on_cpus
def test_no_noise_is_made_for_rows_that_stay():
    data = ratings()
    posterior = FactorModel.of(data, 3).posterior(data)
    kernel = ib.lazy_rows(posterior, {"W": "user", "H": "item"})
    start = {"W": np.ones((5_000, 3)), "H": np.ones((4_000, 3))}
    batch = jax.tree.map(lambda leaf: leaf[:10], posterior.data)
    jaxpr = jax.make_jaxpr(kernel.step)(jax.random.key(0), kernel.init(start), batch, EPS)
    # The quantile of the normal takes a mantissa out of every number, and nothing else does that.
    sizes = [int(np.prod(var.aval.shape)) for eqn in equations(jaxpr.jaxpr) if eqn.primitive.name == "and"
             for var in eqn.outvars if var.aval.dtype == np.int32]  # fmt: skip
    assert sum(sizes) == 60  # ten rows of three factors, of both tables


def equations(jaxpr):
    """Of a jaxpr and of those inside it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_what_it_cannot_do_is_told():
    posterior, _, transforms, _, start = factors()
    with pytest.raises(ValueError, match="no column 'reader'"):
        ib.lazy_rows(posterior, {"W": "reader"})
    with pytest.raises(ValueError, match="no variable 'V'"):
        ib.lazy_rows(posterior, {"V": "user"})
    with pytest.raises(ValueError, match="names no table"):
        ib.lazy_rows(posterior, {})
    with pytest.raises(ValueError, match="whole numbers"):
        ib.lazy_rows(posterior, {"W": "rating"})
    with pytest.raises(ValueError, match="cannot adapt"):
        ib.lazy_rows(posterior, {"W": "user"}, preconditioner=ib.preconditioners.rmsprop(10))
    with pytest.raises(ValueError, match="log likelihood and data"):
        ib.lazy_rows(ib.Posterior({"W": dist.Gamma(2.0, 1.0)}), {"W": "user"})
    kernel = ib.lazy_rows(posterior, OF_RATINGS, transforms)
    theta = start(jax.random.key(0))
    with pytest.raises(ValueError, match="no column 'item'"):
        kernel.step(jax.random.key(0), kernel.init(theta), {"user": np.zeros(2, int), "rating": np.ones(2)}, EPS)
    with pytest.raises(ValueError, match="row number 11, but 'W' has 5 rows"):
        kernel.init(theta | {"W": theta["W"][:5]})
    with pytest.raises(ValueError, match="'user_offset' has 13 rows, another table of column 'user' 12"):
        kernel.init(theta | {"user_offset": jnp.zeros(13)})
    with pytest.raises(ValueError, match="'precision' is no table"):
        ib.lazy_rows(posterior, {"precision": "user"}, transforms).init(theta)
    own = ib.Posterior(
        {"x": dist.Normal(jnp.arange(5.0), 1.0)},
        lambda theta, batch: theta["x"][batch["row"]],
        {"row": np.arange(5)},
    )
    with pytest.raises(ValueError, match="the same for every row"):
        ib.lazy_rows(own, {"x": "row"}).init({"x": jnp.zeros(5)})
