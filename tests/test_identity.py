"""Compiled programs are kept by what a kernel is, and for as long as its posterior."""

import functools
import pickle
import weakref
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.kernels import kernel_factory
from inbounds.kernels._base import Info
from inbounds.space import Space
from tests.models_for_tests import compilations

ROWS = np.random.default_rng(0).exponential(size=400).astype(np.float32)


def log_likelihood(theta, batch):
    return jnp.log(theta["rate"]) - theta["rate"] * batch


def posterior(rows=ROWS):
    return ib.Posterior({"rate": dist.Gamma(2.0, 1.0)}, log_likelihood, rows)


def posterior_of_one_rate():
    return ib.Posterior({"rate": dist.Gamma(2.0, jnp.ones(1))}, log_likelihood, ROWS)


def draws_of(kernel, **options):
    return ib.sample(kernel, 1e-4, 64, batch_size=20, progress=False, **options).theta["rate"]


class State(NamedTuple):
    phi: dict


def push(posterior, strength=1.0, scales=None):
    """A user's own kernel: gradient steps of some strength, without noise."""
    space, estimator = Space.of(posterior.supports), ib.gradients.minibatch(posterior)
    scales = 1.0 if scales is None else scales

    def update(noise, state, minibatch, step_size):
        theta = space.evaluation_point(state.phi)
        drift = space.pull_back(state.phi, theta, estimator.gradient(None, theta, minibatch))
        phi = jax.tree.map(lambda p, g: p + strength * scales * step_size * g, state.phi, drift)
        return State(phi), lambda: Info(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()), jnp.ones((), bool))

    return ib.Kernel(
        name="push",
        posterior=posterior,
        space=space,
        estimator=estimator,
        _init=lambda theta: State(space.unconstrain(theta)),
        _update=update,
        _moving=lambda state: state.phi,
        constrain=space.constrain,
    )


recorded_push = kernel_factory(push)


@pytest.mark.parametrize("factory", [push, recorded_push], ids=["plain", "recorded"])
def test_two_kernels_of_a_users_factory_that_differ_in_one_argument_draw_differently(factory):
    model = posterior()
    one, two = factory(model, strength=1.0), factory(model, strength=2.0)
    assert one != two
    assert not np.array_equal(draws_of(one), draws_of(two))


def test_a_recorded_factory_compiles_once_for_equal_arguments_and_takes_new_arrays():
    model = posterior()
    first = draws_of(recorded_push(model, scales=np.array(1.0, np.float32)))
    before = compilations(model)
    again = draws_of(recorded_push(model, scales=np.array(1.0, np.float32)))
    other = draws_of(recorded_push(model, scales=np.array(2.0, np.float32)))
    assert compilations(model) == before
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_allclose(other, draws_of(push(model, strength=2.0)), rtol=1e-6)


class Halved:
    """A user's own estimator, with an option."""

    refresh_every, smoothing = None, 0.995

    def __init__(self, posterior, share):
        self.inner, self.share = ib.gradients.minibatch(posterior), share

    def init(self, theta, with_noise):
        return self.inner.init(theta, with_noise)

    def estimate(self, state, theta, batch, with_noise):
        gradient, state = self.inner.estimate(state, theta, batch, with_noise)
        return gradient._replace(value=jax.tree.map(lambda g: self.share * g, gradient.value)), state

    def refresh(self, state, theta):
        return state


def test_another_scale_of_a_transform_compiles_nothing_and_draws_what_it_would_alone():
    def scaled(model, scale):
        return draws_of(
            ib.sgld(model, {"rate": ib.transforms.Softplus(scale=np.array([scale], np.float32))}), init=start
        )

    start, alone = {"rate": np.ones(1, np.float32)}, posterior_of_one_rate()
    wide = scaled(alone, 3.0)
    model = posterior_of_one_rate()
    narrow = scaled(model, 0.3)
    before = compilations(model)
    assert np.array_equal(scaled(model, 3.0), wide)
    assert compilations(model) == before
    assert not np.array_equal(narrow, wide)


def test_two_estimators_of_a_users_own_that_differ_in_one_argument_draw_differently():
    model = posterior()
    one = ib.sgld(model, gradient=functools.partial(Halved, share=1.0))
    half = ib.sgld(model, gradient=functools.partial(Halved, share=0.5))
    assert not np.array_equal(draws_of(one), draws_of(half))
    np.testing.assert_array_equal(draws_of(one), draws_of(ib.sgld(model)))


def test_a_kernel_of_the_library_is_told_apart_by_each_of_its_options():
    model = posterior()
    center = {"rate": np.float32(1.0)}
    kernels = [
        ib.sgld(model),
        ib.sgld(model, "exp"),
        ib.sgld(model, temperature=0.5),
        ib.sgld(model, noise_correction=True),
        ib.sgld(model, noise_correction=1.0),
        ib.sgld(model, preconditioner={"rate": 2.0}),
        ib.sgld(model, gradient=ib.gradients.minibatch(smoothing=0.9)),
        ib.sgld(model, gradient=ib.gradients.control_variate(center=center)),
        ib.sgld(model, gradient=ib.gradients.svrg(every=8)),
        ib.leimkuhler_matthews(model),
        ib.sgld(posterior()),
    ]
    assert len(set(kernels)) == len(kernels)
    assert ib.sgld(model) == ib.sgld(model, None, temperature=1.0)


def test_what_a_posterior_is_made_of_cannot_be_replaced_but_for_its_data():
    model = posterior()
    for name in ("log_likelihood", "priors", "supports", "gradient"):
        with pytest.raises(AttributeError, match="Make a new posterior"):
            setattr(model, name, None)
    model.data = 2 * ROWS


@pytest.mark.parametrize("gradient", [ib.gradients.minibatch, ib.gradients.svrg(every=16)], ids=["minibatch", "svrg"])
def test_replaced_data_are_seen_by_what_was_compiled_before(gradient):
    model = posterior()
    kernel = ib.sgld(model, gradient=gradient)
    before = draws_of(kernel, init={"rate": 1.0})
    model.data = 3 * ROWS
    after = draws_of(kernel, init={"rate": 1.0})
    fresh = draws_of(ib.sgld(posterior(3 * ROWS), gradient=gradient), init={"rate": 1.0})
    np.testing.assert_allclose(after, fresh, rtol=1e-6)
    assert not np.array_equal(before, after)


def test_a_kernel_made_of_data_that_were_replaced_is_refused():
    groups = np.array([0, 1, 2, 1], np.int32)
    model = ib.Posterior(
        {"rate": dist.Gamma(2.0, 1.0).expand([3])},
        lambda theta, batch: dist.Poisson(theta["rate"][batch["group"]]).log_prob(batch["count"]),
        {"group": groups, "count": np.ones(4, np.float32)},
    )
    kernel = ib.lazy_rows(model, {"rate": "group"})
    model.data = {"group": groups[::-1].copy(), "count": np.ones(4, np.float32)}
    with pytest.raises(ValueError, match="Make the kernel again"):
        ib.sample(kernel, 1e-3, 10, batch_size=2)


@pytest.mark.parametrize(
    "gradient",
    [ib.gradients.minibatch, ib.gradients.svrg(every=16)],
    ids=["minibatch", "svrg"],
)
def test_nothing_of_a_posterior_outlives_it(gradient):
    """Neither the posterior, nor its data on the device: many fits need what one needs, and nobody has to call the collector."""
    alive, sizes = [], []
    for fit in range(4):
        model = posterior((1 + fit) * np.resize(ROWS, 2_000_000))  # 8 MB
        alive.append(weakref.ref(model))
        draws = ib.sample(ib.sgld(model, gradient=gradient), 1e-8, 16, batch_size=20, progress=False)
        assert np.all(np.isfinite(draws.theta["rate"]))
        del model, draws
        sizes.append(sum(array.nbytes for array in jax.live_arrays()))
        # A look does nothing while another thread is collecting, such as one that an earlier test has left.
        assert sum(model() is not None for model in alive) <= 2
    assert sum(model() is not None for model in alive) <= 1
    assert sizes[-1] - sizes[0] < 1_000_000


def test_kernels_and_draws_can_be_pickled():
    center = {"rate": np.float32(1.0)}
    kernel = ib.leimkuhler_matthews(posterior(), "icll", gradient=ib.gradients.control_variate(center=center))
    again = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(draws_of(again), draws_of(kernel))
    draws = ib.sample(kernel, 1e-4, 20, batch_size=20, progress=False)
    same = pickle.loads(pickle.dumps(draws))
    np.testing.assert_array_equal(same.theta["rate"], draws.theta["rate"])
    with pytest.raises(TypeError, match="no recorded factory"):
        pickle.dumps(push(posterior()))


def test_repr_shows_transforms_gradient_and_options():
    text = repr(ib.sgld(posterior(), "icll", temperature=0.5, gradient=ib.gradients.svrg(every=8)))
    for part in ("sgld(", "rate in (0, inf)", "transforms=icll", "gradient=svrg(every=8", "temperature=0.5"):
        assert part in text
    assert "noise_correction" not in text
    metric = ib.metrics.laplace(model := posterior(), {"rate": np.float32(1.0)})
    assert "metric=dense metric of 1 dimensions" in repr(ib.sgld(model, metric=metric))
