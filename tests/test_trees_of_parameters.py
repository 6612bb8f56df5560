"""Parameters come as they are: nested dicts and lists, named tuples, Flax and Equinox modules."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3)).astype(np.float32)
Y = np.tanh(X @ [1.0, -1.0, 0.5]).astype(np.float32)


def sampled(predict, parameters, supports=constraints.real, transforms=None):
    """A short run over any tree: flat priors inside `supports`, one support for the whole tree."""
    posterior = ib.Posterior(
        supports=supports,
        log_prior=lambda theta: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta)),
        log_likelihood=lambda theta, batch: -jnp.square(batch["y"] - predict(theta, batch["x"])),
        data={"x": X, "y": Y},
    )
    draws = ib.sample(
        ib.sgld(posterior, transforms), 1e-3, 20, batch_size=10, num_chains=2, init=parameters, progress=False
    )
    for leaf, start in zip(jax.tree.leaves(draws.theta), jax.tree.leaves(parameters), strict=True):
        assert leaf.shape == (2, 20, *np.shape(start))
        assert np.all(np.isfinite(leaf))
    return draws


def test_nested_dicts_and_lists():
    parameters = {
        "layers": [{"w": np.full((3, 4), 0.1), "b": np.zeros(4)}, {"w": np.full((4, 1), 0.1), "b": np.zeros(1)}]
    }

    def predict(theta, x):
        first, second = theta["layers"]
        return (jnp.tanh(x @ first["w"] + first["b"]) @ second["w"] + second["b"])[:, 0]

    draws = sampled(predict, parameters)
    assert set(draws.variables()) == {"layers/0/b", "layers/0/w", "layers/1/b", "layers/1/w"}


class Line(NamedTuple):
    slope: jax.Array
    width: jax.Array


def test_named_tuples_with_a_support_a_field():
    start = Line(np.zeros(3), np.asarray(1.0))
    supports = Line(constraints.interval(-1, 1), constraints.positive)
    draws = sampled(lambda line, x: x @ line.slope * line.width, start, supports, Line("probit", "icll"))
    assert isinstance(draws.theta, Line)
    assert np.all(np.abs(draws.theta.slope) < 1)
    assert np.all(draws.theta.width > 0)


def test_one_support_bounds_a_whole_network():
    parameters = {"a": np.full((3, 2), 0.1), "b": np.full(2, 0.2)}
    draws = sampled(lambda t, x: jnp.tanh(x @ t["a"]) @ t["b"], parameters, constraints.interval(-1, 1), "sigmoid")
    assert all(np.all(np.abs(leaf) < 1) for leaf in jax.tree.leaves(draws.theta))


def one_of(draws):
    """The last draw of the first chain, in the structure of the parameters."""
    return jax.tree.map(lambda leaf: leaf[0, -1], draws.theta)


EXACT = jax.default_matmul_precision("highest")  # GPUs would round the products of matrices


def assert_moved(draws, parameters):
    assert jax.tree.structure(draws.theta) == jax.tree.structure(parameters)
    for leaf, start in zip(jax.tree.leaves(draws.theta), jax.tree.leaves(parameters), strict=True):
        assert np.all(leaf[:, -1] != np.asarray(start))


@EXACT
def test_flax_parameters():
    linen = pytest.importorskip("flax.linen", reason="Flax is not installed")
    network = linen.Sequential([linen.Dense(4), linen.tanh, linen.Dense(1)])
    parameters = network.init(jax.random.key(0), X)
    draws = sampled(lambda theta, x: network.apply(theta, x)[:, 0], parameters)
    assert_moved(draws, parameters)
    assert "params/layers_0/kernel" in draws.variables()
    first, second = (one_of(draws)["params"][name] for name in ("layers_0", "layers_2"))
    by_hand = np.tanh(X @ first["kernel"] + first["bias"]) @ second["kernel"] + second["bias"]
    np.testing.assert_allclose(network.apply(one_of(draws), X), by_hand, atol=1e-5)


@EXACT
def test_equinox_modules():
    equinox = pytest.importorskip("equinox", reason="Equinox is not installed")
    network = equinox.nn.MLP(3, "scalar", 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    parameters, static = equinox.partition(network, equinox.is_inexact_array)
    draws = sampled(lambda theta, x: jax.vmap(equinox.combine(theta, static))(x), parameters)
    assert_moved(draws, parameters)
    assert isinstance(draws.theta, equinox.nn.MLP)
    one = equinox.combine(one_of(draws), static)
    first, second = one.layers
    by_hand = np.tanh(X @ first.weight.T + first.bias) @ second.weight[0] + second.bias
    np.testing.assert_allclose(jax.vmap(one)(X), np.ravel(by_hand), atol=1e-5)


@EXACT
def test_the_state_of_flax_nnx_with_a_prior_a_parameter():
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    graph, state = nnx.split(nnx.Linear(3, 1, rngs=nnx.Rngs(0)))
    priors = jax.tree.map(lambda leaf: dist.Normal(0.0, 1.0).expand(leaf.shape), state)
    posterior = ib.Posterior(
        priors,
        lambda theta, batch: -jnp.square(batch["y"] - nnx.merge(graph, theta)(batch["x"])[:, 0]),
        {"x": X, "y": Y},
    )
    draws = ib.sample(ib.sgld(posterior), 1e-3, 20, batch_size=10, progress=False)
    assert {name: leaf.shape for name, leaf in draws.variables().items()} == {
        "bias/value": (1, 20, 1),
        "kernel/value": (1, 20, 3, 1),
    }
    one = one_of(draws)
    np.testing.assert_allclose(nnx.merge(graph, one)(X), X @ one["kernel"][...] + one["bias"][...], atol=1e-5)
