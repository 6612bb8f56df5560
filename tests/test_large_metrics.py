"""Metrics for what has too many dimensions for a dense one: a few directions, or a block for each row of a table."""

import gc
import tracemalloc
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds import exact
from inbounds.exact import flat

# Short on purpose: the law of these runs is looked at in other ways.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


@lru_cache  # with what is compiled for it
def regression(size=24, rows=3_000):
    """Correlated columns of unequal units, and a scale: (posterior, mode)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, size)) + 3 * rng.normal(size=(rows, 2)) @ rng.normal(size=(2, size))
    x = (x * np.exp(rng.normal(size=size))).astype(np.float32)
    y = (x @ rng.normal(size=size) / x.std() + rng.normal(size=rows)).astype(np.float32)
    priors = {"b": dist.Normal(0.0, 100.0).expand([size]).to_event(1), "s": dist.HalfNormal(3.0)}
    posterior = ib.Posterior(
        priors, lambda t, batch: dist.Normal(batch["x"] @ t["b"], t["s"]).log_prob(batch["y"]), {"x": x, "y": y}
    )
    b = np.linalg.lstsq(x.astype(float), y.astype(float), rcond=None)[0]
    return posterior, {"b": b, "s": np.std(y - x @ b)}


@lru_cache
def groups(count=16, rows=800):
    """Intercepts and two slopes per group, and a global coefficient and scale: (posterior, a point)."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, count, rows)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    true = {"a": 0.5 * rng.normal(size=count), "b": rng.normal(size=(count, 2)), "g": np.float64(0.7)}
    mean = true["a"][group] + np.sum(x * true["b"][group], axis=1) + true["g"] * x[:, 0] * x[:, 1]
    y = (mean + 0.8 * rng.normal(size=rows)).astype(np.float32)
    priors = {
        "a": dist.Normal(0.0, 1.0).expand([count]),
        "b": dist.Normal(0.0, 2.0).expand([count, 2]),
        "g": dist.Normal(0.0, 5.0),
        "s": dist.HalfNormal(2.0),
    }

    def log_likelihood(t, batch):
        mean = t["a"][batch["group"]] + jnp.sum(batch["x"] * t["b"][batch["group"]], axis=1)
        return dist.Normal(mean + t["g"] * batch["x"][:, 0] * batch["x"][:, 1], t["s"]).log_prob(batch["y"])

    return ib.Posterior(priors, log_likelihood, {"group": group, "x": x, "y": y}), true | {"s": np.float64(0.8)}


def matrix(metric):
    """L, by what the metric does."""
    with jax.enable_x64(True):
        zero = jax.tree.map(jnp.zeros_like, metric.from_proxy(jax.tree.map(jnp.asarray, metric.center)))
        start = flat(metric.to_proxy(zero))
        size, columns = len(start), []
        for unit in np.eye(size):
            z = ib.trees.cut_like(zero, jnp.asarray(unit)) if not isinstance(zero, jax.Array) else jnp.asarray(unit)
            columns.append(flat(metric.to_proxy(z)) - start)
    return np.stack(columns, axis=1)


def test_products_with_the_hessian_of_the_proxy_are_those_of_the_matrix():
    posterior, center = regression()
    reference = ib.metrics.Reference(posterior, ib.sgld(posterior).space, center)
    vectors = np.random.default_rng(0).normal(size=(3, 25))
    expected = vectors @ reference.hessian()
    np.testing.assert_allclose(reference.products(vectors), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_the_diagonal_of_random_signs_is_roughly_that_of_the_hessian():
    posterior, center = regression()
    reference = ib.metrics.Reference(posterior, ib.sgld(posterior).space, center)
    ratio = reference.diagonal(200) / np.diag(reference.hessian())
    np.testing.assert_allclose(ratio, 1, atol=0.4)  # 200 signs of one slice: 10% each, and the model's own fit


def test_a_few_directions_take_most_of_the_condition_number(monkeypatch):
    posterior, center = regression()
    reference = ib.metrics.Reference(posterior, ib.sgld(posterior).space, center)
    hessian, seen = reference.hessian(), {"products": 0, "passes": 0}
    products, slices = exact.Likelihood.products, exact.slices

    def counted(self, theta, vectors):
        seen["products"] += len(vectors)
        return products(self, theta, vectors)

    def passing(*arguments):
        seen["passes"] += 1
        return slices(*arguments)

    monkeypatch.setattr(exact.Likelihood, "products", counted)
    monkeypatch.setattr(exact, "slices", passing)
    scales = np.sqrt(np.diag(hessian))
    condition = {0: np.linalg.cond(hessian / np.outer(scales, scales))}
    for rank in (2, 4, 25):
        seen.update(products=0, passes=0)
        metric = ib.metrics.low_rank(posterior, center, rank=rank)
        assert seen["products"] <= 3 * rank
        assert seen["passes"] <= 3 * rank + 2
        factor = matrix(metric)
        values = np.linalg.eigvalsh(factor.T @ hessian @ factor)
        low, high = values[0], values[-1]
        condition[rank] = high / low
        assert high == pytest.approx(1, abs=0.1)  # so that steps of order one are stable
    assert condition[0] > 100
    assert condition[4] < condition[0] / 10
    assert condition[25] == pytest.approx(1, abs=1e-6)


def test_blocks_make_each_row_and_what_is_global_round():
    posterior, center = groups()
    reference = ib.metrics.Reference(posterior, ib.sgld(posterior).space, center)
    metric = ib.metrics.per_row(posterior, center, [("a", "b")])
    factor = matrix(metric)
    white = factor.T @ reference.hessian() @ factor
    names = np.array(reference.names())
    own = np.array([0] * len(names))
    own[names == "a"], own[names == "b"] = np.arange(1, 17), np.repeat(np.arange(1, 17), 2)
    np.testing.assert_allclose(np.where(own[:, None] == own, white, np.eye(len(own))), np.eye(len(own)), atol=1e-6)
    # A curvature beyond 1 is what rows and globals say of each other.
    assert np.linalg.eigvalsh(white)[-1] < 2
    assert [factor.shape for factor in metric.factors] == [(16, 3, 3), (1, 2, 2)]


def test_a_few_directions_hold_no_more_than_four_vectors_for_each_of_them():
    """What NumPy holds at most: the vectors that are kept are turned in the memory of the 3 rank that were made.

    From 2.5 on NumPy copies what is cut off an array, which is one more of each.

    Two ranks are compared: what programs and what else is there take, which differs between machines, is the same for both.
    """
    size, rows, ranks = 50_000, 4_000, (8, 24)
    rng = np.random.default_rng(0)
    data = {"i": rng.integers(0, size, (rows, 4)), "x": rng.normal(size=(rows, 4)).astype(np.float32)}
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 1.0).expand([size])},
        lambda t, batch: -0.5 * jnp.square(1 - jnp.sum(t["w"][batch["i"]] * batch["x"], axis=1)),
        data,
    )
    center = {"w": np.zeros(size, np.float32)}
    peaks = []
    for rank in ranks:
        ib.metrics.low_rank(posterior, center, rank=rank)  # compiles
        gc.collect()
        tracemalloc.start()
        metric = ib.metrics.low_rank(posterior, center, rank=rank)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (ranks[1] - ranks[0]) < 4.4 * 8 * size
    np.testing.assert_allclose(metric.vectors.T @ metric.vectors, np.eye(rank), atol=1e-8)


MAKERS = {
    "low rank": lambda posterior, center: ib.metrics.low_rank(posterior, center, rank=5),
    "per row": lambda posterior, center: ib.metrics.per_row(posterior, center, ["a", "b"]),
    "arrow": lambda posterior, center: ib.metrics.arrow(posterior, center, ["a", "b"]),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_metric_maps_there_and_back_and_its_pull_back_is_the_transpose(kind):
    posterior, center = groups()
    metric = MAKERS[kind](posterior, center)
    factor = matrix(metric)
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        phi = jax.tree.map(lambda leaf: jnp.asarray(leaf + rng.normal(size=np.shape(leaf))), metric.center)
        back = metric.to_proxy(metric.from_proxy(phi))
        np.testing.assert_allclose(flat(back), flat(phi), rtol=1e-9)
        np.testing.assert_allclose(flat(metric.pull_back(phi)), factor.T @ flat(phi), rtol=1e-8, atol=1e-8)


def test_kernels_move_in_blocks_and_sample_the_posterior(optimised):
    """Against the exact law, given the scale: that is known here, so that the rest is Gaussian."""
    posterior, center = groups()
    known = ib.Posterior(
        {name: prior for name, prior in posterior.priors.items() if name != "s"},
        lambda t, batch: posterior.log_likelihood(t | {"s": 0.8}, batch),
        posterior.data,
    )
    start = {name: np.float32(value) for name, value in center.items() if name != "s"}
    reference = ib.metrics.Reference(known, ib.sgld(known).space, start)
    covariance = np.linalg.inv(reference.hessian())
    mean = flat(start) - covariance @ flat(gradient_at(reference))
    metric = ib.metrics.per_row(known, start, [("a", "b")])
    kernel = ib.leimkuhler_matthews(known, metric=metric, gradient=ib.gradients.control_variate(center=start))
    draws = ib.sample(kernel, 0.2, 4_000, burn_in=500, batch_size=400, num_chains=4, thin=5, progress=False, init=start)
    x = np.concatenate([np.asarray(leaf, float).reshape(4 * 700, -1) for leaf in jax.tree.leaves(draws.phi)], axis=1)
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(x.mean(0) - mean) / sd) < 0.25
    np.testing.assert_allclose(x.std(0) / sd, 1, atol=0.12)
    correlation = np.corrcoef(x.T) - covariance / np.outer(sd, sd)
    assert np.max(np.abs(correlation)) < 0.15


def gradient_at(reference):
    """Of -log pi of the proxy, by a difference of what the Hessian's own function says."""
    with jax.enable_x64(True):
        likelihood = exact.Likelihood.of(reference.posterior, reference.theta).slope(flat(reference.theta))[1]
        prior = jax.grad(reference.posterior.log_prior)(jax.tree.map(jnp.asarray, reference.theta))
    return -(likelihood + flat(prior))


def two_at_once():
    """A likelihood that looks up two rows of one table."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 5, size=(300, 2))
    return ib.Posterior(
        {"w": dist.Normal(0.0, 1.0).expand([5])},
        lambda t, batch: -0.5 * jnp.square(t["w"][batch["i"]] - t["w"][batch["j"]]),
        {"i": pairs[:, 0], "j": pairs[:, 1]},
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, c: ib.metrics.per_row(p, c, ["nobody"]), "names 'nobody'"),
        (lambda p, c: ib.metrics.per_row(p, c, [("a", "s")]), "must have one leading axis"),
        (lambda p, c: ib.metrics.per_row(two_at_once(), {"w": np.zeros(5)}, ["w"]), "act on each other"),
        (lambda p, c: ib.metrics.per_row(p, c | {"s": np.float64(30.0)}, ["a", "b"]), "not positive definite"),
        (lambda p, c: ib.metrics.low_rank(p, c | {"s": np.float64(30.0)}, rank=5), "not positive definite"),
        (lambda p, c: ib.metrics.low_rank(p, c, rank=0), "rank"),
        (
            lambda p, c: ib.sgld(p, metric=ib.metrics.low_rank(p, c, rank=2), noise_correction=True),
            "in a low-rank metric of 50 dimensions and rank 2 it is not",
        ),
        (
            lambda p, c: ib.baoab(p, metric=ib.metrics.per_row(p, c, ["a", "b"]), noise_correction=True),
            "in a metric of blocks",
        ),
        (
            lambda p, c: ib.sgld(p, metric=ib.metrics.arrow(p, c, [("a", "b")]), noise_correction=True),
            "in a metric of an arrow: 16 blocks of 3 x 3",
        ),
        (lambda p, c: ib.metrics.arrow(p, c, [("a", "s")]), "must have one leading axis"),
        (lambda p, c: ib.metrics.arrow(two_at_once(), {"w": np.zeros(5)}, []), "one of the two is missing"),
    ],
    ids=["name", "axes", "two rows", "block", "curvature", "rank", "low rank", "per row", "arrow", "row", "global"],
)
def test_what_it_cannot_do_is_refused(call, message):
    posterior, center = groups()
    with pytest.raises(ValueError, match=message):
        call(posterior, center)


def hierarchy(count=16):
    """The model of `groups` with scales of the effects, and a second table that rows look up: (posterior, a point)."""
    plain, center = groups(count)
    rng = np.random.default_rng(2)
    priors = {name: prior for name, prior in plain.priors.items() if name not in ("a", "b")}
    priors |= {"t": dist.Normal(0.0, 1.0).expand([5]), "r": dist.HalfNormal(1.0)}
    priors |= {"a": dist.Normal(0.0, 1.0).expand([count]), "b": dist.Normal(0.0, 2.0).expand([count, 2])}

    def log_likelihood(t, batch):
        spread = t | {"a": t["r"] * t["a"] + t["g"]}  # so that groups and globals are coupled
        return (
            plain.log_likelihood(spread, batch)
            + 0.3 * t["t"][batch["other"]]
            - 0.2 * jnp.square(t["t"][batch["other"]] - t["a"][batch["group"]])
        )

    data = plain.data | {"other": rng.integers(0, 5, len(plain.data["x"]))}
    point = center | {"a": (center["a"] - center["g"]) / 0.6, "t": rng.normal(size=5), "r": np.float64(0.6)}
    return ib.Posterior(priors, log_likelihood, data), point


def test_an_arrow_makes_a_hierarchy_round():
    posterior, center = hierarchy()
    hessian = ib.metrics.Reference(posterior, ib.sgld(posterior).space, center).hessian()
    metric = ib.metrics.arrow(posterior, center, [("a", "b")])
    factor = matrix(metric)
    np.testing.assert_allclose(factor.T @ hessian @ factor, np.eye(len(hessian)), atol=1e-7)
    assert [x.shape for x in metric.factors] == [(16, 3, 3), (1, 8, 8)]
    assert [x.shape for x in metric.couplings] == [(48, 8)]
    # The blocks alone leave what groups and globals say of each other.
    blocks = matrix(ib.metrics.per_row(posterior, center, [("a", "b")]))
    assert np.linalg.cond(blocks.T @ hessian @ blocks) > 5


def test_of_two_tables_an_arrow_leaves_out_only_what_they_say_of_each_other():
    posterior, center = hierarchy()
    reference = ib.metrics.Reference(posterior, ib.sgld(posterior).space, center)
    names = np.array(reference.names())
    hessian = reference.hessian()
    crossed = np.isin(names, ["a", "b"])[:, None] & (names == "t")
    kept = np.where(crossed | crossed.T, 0.0, hessian)
    factor = matrix(ib.metrics.arrow(posterior, center, [("a", "b"), "t"]))
    np.testing.assert_allclose(factor.T @ kept @ factor, np.eye(len(hessian)), atol=1e-7)


def test_an_arrow_of_draws_is_that_of_the_average_hessian():
    posterior, center = hierarchy()
    kernel = ib.sgld(posterior)
    reference, rng = ib.metrics.Reference(posterior, kernel.space, center), np.random.default_rng(0)
    draws = jax.tree.map(lambda x: np.float32(x + 0.1 * rng.normal(size=(2, 3, *np.shape(x)))), reference.phi)
    points = [jax.tree.map(lambda x, i=i, j=j: x[i, j], draws) for i in range(2) for j in range(3)]
    hessian = np.mean([reference.at(point).hessian() for point in points], axis=0)
    metric = ib.metrics.arrow_from_draws(posterior, draws, [("a", "b")])
    factor = matrix(metric)
    np.testing.assert_allclose(factor.T @ hessian @ factor, np.eye(len(hessian)), atol=1e-5)
    np.testing.assert_allclose(metric.center["b"], draws["b"].mean(axis=(0, 1)), atol=1e-6)
