"""Posteriors of tables, and of more dimensions than a dense metric has: the metric follows the model's shape."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.exact import flat
from inbounds.inference import choose, doubts, structure
from inbounds.inference.structure import Structure, structure_of


def rows(students=120, teachers=60, count=1_500):
    rng = np.random.default_rng(0)
    student, teacher = (rng.integers(0, size, count).astype(np.int32) for size in (students, teachers))
    mean = rng.normal(size=students)[student] + rng.normal(size=teachers)[teacher]
    return student, teacher, (0.5 + mean + rng.normal(size=count)).astype(np.float32)


def crossed(student, teacher, y, students=120, teachers=60):
    """A normal model with known scales: its posterior is a Gaussian."""
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    with numpyro.plate("students", students):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    with numpyro.plate("teachers", teachers):
        b = numpyro.sample("b", dist.Normal(level, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(a[student] + b[teacher], 1.0), obs=y)


@functools.cache
def posterior_of_crossed():
    return ib.from_numpyro(crossed, *rows())


def found(posterior):
    return structure_of(posterior, ib.sgld(posterior).space, 0)


def test_of_crossed_tables_the_larger_one_has_blocks_and_the_other_is_global(monkeypatch):
    posterior = posterior_of_crossed()
    assert found(posterior) == Structure(181, 61, (("a",),), (), has_scales=False)
    monkeypatch.setattr(structure, "MOST_COUPLED", 30)
    assert found(posterior) == Structure(
        181, 1, (("a",), ("b",)), ("b",), has_scales=True
    )  # the prior couples b to the level


def test_variables_of_the_same_groups_are_one_table():
    group = np.arange(200) % 40
    x = np.random.default_rng(0).normal(size=200).astype(np.float32)

    def log_likelihood(t, batch):
        slope = jnp.sum(t["b"][batch["group"]], axis=1)
        return dist.Normal(t["a"][batch["group"]] + t["m"] * slope * batch["x"], 1.0).log_prob(batch["x"])

    priors = {"a": dist.Normal(0, 1).expand([40]), "b": dist.Normal(0, 1).expand([40, 3]), "m": dist.Normal(0, 1)}
    posterior = ib.Posterior(priors, log_likelihood, {"group": group, "x": x})
    assert found(posterior) == Structure(161, 1, (("a", "b"),), (), has_scales=False)


def test_coefficients_are_no_table_and_scales_of_effects_are_seen():
    x = np.random.default_rng(0).normal(size=(300, 120)).astype(np.float32)
    regression = ib.Posterior(
        {"w": dist.Normal(0.0, 1.0).expand([120])}, lambda t, batch: -0.5 * jnp.square(1 - batch @ t["w"]), x
    )
    assert found(regression) is None

    def model(group, y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 120):
            effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)

    groups = ib.from_numpyro(model, np.arange(300) % 120, x[:, 0])
    assert found(groups) == Structure(121, 1, (("effect",),), (), has_scales=True)


def test_more_dimensions_than_a_dense_metric_has_are_sampled_right(monkeypatch, tmp_path, optimised):
    """Against the exact law, with the limit put low; and gone on with."""
    for module in (structure, choose):
        monkeypatch.setattr(module, "MOST_DENSE", 100)
    posterior = posterior_of_crossed()
    run = dict(checkpoint=tmp_path / "run", progress=False)
    first = ib.infer(posterior, error=0.2, **run)
    draws = ib.infer(posterior, error=0.08, resume=True, **run)
    np.testing.assert_array_equal(draws.theta["a"][:, : first.num_draws], first.theta["a"])
    assert draws.num_draws >= first.num_draws  # trajectories in a round posterior may have had enough at the first look
    assert draws.certificate.ok
    assert draws.certificate.choices["metric"].startswith("an arrow")
    reference = ib.metrics.Reference(posterior, ib.sgld(posterior).space, posterior.start(jax.random.key(0)))
    covariance = np.linalg.inv(reference.hessian())
    slope = flat(jax.grad(posterior.log_density)(jax.tree.map(jnp.asarray, reference.theta)))
    mean, sd = flat(reference.phi) + covariance @ slope, np.sqrt(np.diag(covariance))
    errors = np.abs(flat(draws.certificate.mean) - mean) / sd
    assert np.max(errors) < 0.2  # of 181 numbers with an error of at most 0.04 each
    assert np.max(np.abs(flat(draws.certificate.sd) / sd - 1)) < 0.2
    assert np.sqrt(np.mean(np.square(errors))) < 0.06
    assert np.median(draws.stats["leapfrogs"]) <= 15  # round


def test_trajectories_that_do_not_reach_all_energies_are_a_doubt():
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(2, 1_000))

    assert doubts._energies(SimpleNamespace(stats={"energy": steps})) == []
    (text,) = doubts._energies(SimpleNamespace(stats={"energy": 3.0 * np.cumsum(steps, axis=1)}))
    assert "E-BFMI 0.0" in text


def test_gradients_alone_and_minibatches_are_refused_above_the_limit(monkeypatch):
    supports = {"x": dist.constraints.real}
    data = np.zeros((8, 2_001), np.float32)
    alone = ib.Posterior(supports=supports, gradient=lambda t, rows: {"x": jnp.mean(rows, axis=0) - t["x"]}, data=data)
    with pytest.raises(ValueError, match="where a posterior gives gradients alone"):
        ib.infer(alone, init={"x": np.zeros(2_001, np.float32)}, progress=False)
    wide = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([2_001])})
    with pytest.raises(ValueError, match='take method="full"'):
        ib.infer(wide, method="minibatch", progress=False)
