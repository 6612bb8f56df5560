"""What users' parts are held to: the library's own parts pass, and parts with one fault each do not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.kernels import ProxyGradient, Space, kernel_factory, kernel_on_proxy
from inbounds.kernels._sgld import State
from inbounds.testing import check_gradient, check_kernel, check_transform
from tests.models_for_tests import poisson_rates

THETA = {"rate": np.float32([2.0, 1.5]), "mix": np.float32(0.3)}
CENTER = {"rate": np.float32([2.5, 1.2]), "mix": np.float32(0.4)}


# -- transforms: those of the library are held to this in tests/transforms ------------------------------------------


class WrongSlope(ib.transforms.Softplus):
    def log_derivative_slope(self, phi):
        return 0.9 * super().log_derivative_slope(phi)


class WrongPullBack(ib.transforms.Softplus):
    def pull_back(self, phi, theta_eval, gradient):
        return self.derivative(phi) * gradient


class WrongDeterminant(ib.transforms.LogRatios):
    def log_abs_det_jacobian(self, phi, theta, intermediates=None):
        return super().log_abs_det_jacobian(phi, theta) + jnp.sum(phi, axis=-1)


class WrongInverse(ib.transforms.Softplus):
    def _inverse(self, theta):
        return super()._inverse(theta) + 0.01


class RoundsOntoItsEnd(ib.transforms.Transform):
    codomain = constraints.positive

    def __call__(self, phi):
        return jnp.logaddexp(phi, 0.0)

    def _inverse(self, theta):
        return theta + jnp.log(-jnp.expm1(-theta))


class LosesItsEnd(RoundsOntoItsEnd):
    """Inside, but f' times the gradient is nothing where theta is below the least number at which a density is evaluated."""

    def __call__(self, phi):
        return jnp.maximum(super().__call__(phi), 1e-38)


class Cancels(ib.transforms.Transform):
    codomain = constraints.positive

    def __call__(self, phi):
        return (phi + jnp.hypot(phi, 2.0)) / 2

    def _inverse(self, theta):
        return theta - 1 / theta


class KeepsNoDtype(ib.transforms.Identity):
    def __call__(self, phi):
        return phi.astype(jnp.float16)


@pytest.mark.parametrize(
    ("transform", "reach", "message"),
    [
        (WrongSlope(), 60.0, "`log_derivative_slope` is not that of"),
        (WrongPullBack(), 60.0, "another law would be sampled"),
        (WrongDeterminant(), 60.0, "`log_abs_det_jacobian` is not"),
        (WrongInverse(), 60.0, "the inverse of theta is another phi"),
        (RoundsOntoItsEnd(), 110.0, "not strictly inside"),
        (LosesItsEnd(), 85.0, "loses the drift of a density that goes to infinity at 0"),
        (ib.transforms.from_numpyro(dist.transforms.SigmoidTransform()), 60.0, "loses the drift of a density"),
        (Cancels(), 60.0, "something cancels"),
        (KeepsNoDtype(), 60.0, "the inverse of theta"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ib.transforms.Transform) else "",
)
def test_a_transform_with_a_fault_is_told_of_it(transform, reach, message):
    with pytest.raises(AssertionError, match=message):
        check_transform(transform, reach=reach)


# -- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ib.sgld, ib.leimkuhler_matthews, ib.baoab, ib.sgnht])
def test_the_kernels_of_the_library_are_what_kernels_must_be(make):
    check_kernel(make)


def test_baselines_fail_where_theory_says_so():
    """Projection puts mass on the bound that the law does not have."""
    with pytest.raises(AssertionError, match="'x' has another law"):
        check_kernel(ib.baselines.projected, {"x": dist.Exponential(1.0)})


@kernel_factory
def faulty(posterior, fault="none"):
    """Langevin dynamics with one fault."""
    space = Space.of(posterior.supports)
    proxy_gradient = ProxyGradient(posterior, space)
    calls = []

    def init(theta):
        return State(space.unconstrain(theta), proxy_gradient.init(theta), None)

    def update(noise, state, minibatch, step_size):
        make_drift, _, estimator = proxy_gradient(state.estimator, state.phi, minibatch)
        calls.append(None)
        size = jnp.sqrt({"too little noise": 1.6}.get(fault, 2.0) * step_size)
        drift = make_drift()
        if fault == "no Jacobian":
            theta = space.evaluation_point(state.phi)
            nothing = jax.tree.map(jnp.zeros_like, theta)
            drift = jax.tree.map(jnp.subtract, drift, space.pull_back(state.phi, theta, nothing))
        phi = jax.tree.map(lambda p, g, z: p + step_size * g + size * z, state.phi, drift, noise)
        if fault == "another dtype":
            phi = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), phi)
        if fault == "not pure":
            phi = jax.tree.map(lambda leaf: leaf + 0.01 * len(calls), phi)

        def make_info():
            norm = jnp.zeros(3 if fault == "odd report" else ())
            return ib.Info(norm, jnp.nan, jnp.zeros(()), ib.trees.all_finite(phi))

        return State(phi, estimator, None), make_info

    def recursion(step_size, hessian, noise, scale):
        exact = ib.sgld(posterior).recursion(step_size, hessian, noise, scale)
        return exact._replace(noise=1.1 * exact.noise)

    known = recursion if fault == "wrong recursion" else None
    kernel = kernel_on_proxy("faulty", posterior, proxy_gradient, init, update, recursion=known)
    if fault == "outside":
        object.__setattr__(kernel, "constrain", lambda phi: jax.tree.map(lambda leaf: 3 * leaf, phi))
    return kernel


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("too little noise", "has another law"),
        ("no Jacobian", "has another law"),
        ("another dtype", "changes the structure, shapes or dtypes"),
        ("not pure", "moves otherwise"),
        ("odd report", "`Info.gradient_norm` has the shape"),
        ("outside", "theta leaves its support"),
        ("wrong recursion", "its `recursion` says"),
    ],
)
def test_a_kernel_with_a_fault_is_told_of_it(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_kernel(functools.partial(faulty, fault=fault))


def test_a_kernel_that_no_recorded_factory_made_is_told_what_that_costs():
    with pytest.raises(AssertionError, match="so that each run would be compiled anew"):
        check_kernel(faulty.__wrapped__)


# -- gradients: those of the library are held to this in tests/test_gradients.py --------------------------------------------


class Faulty(ib.gradients.GradientEstimator):
    def __init__(self, posterior, fault):
        self.inner, self.fault = ib.gradients.minibatch(posterior), fault
        self.kept = ib.gradients.full_gradient(posterior, CENTER)
        self.posterior = posterior

    def estimate(self, state, theta, batch, with_noise):
        found, _ = self.inner.estimate(None, theta, batch, with_noise)
        value, differences = found.value, found.differences
        if self.fault == "biased":
            value = jax.tree.map(lambda g: 0.98 * g, value)
        if self.fault == "keeps the data":
            there = ib.gradients.full_gradient(self.posterior, CENTER)
            value = jax.tree.map(lambda g, kept, now: g + kept - now, value, self.kept, there)
        if self.fault == "noise too large":
            differences = jax.tree.map(lambda d: 1.1 * d, differences)
        if self.fault == "noise not shown":
            differences = None
        return ib.gradients.Gradient(value, differences), state

    def refresh(self, state, theta):
        return jnp.zeros(2) if self.fault == "another state" else state


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("biased", "is not the gradient over all the data"),
        ("keeps the data", "when the data have been replaced .* is not the gradient over all the data"),
        ("noise too large", "do not have the covariance of the estimate"),
        ("noise not shown", "`noise_correction=True` cannot work"),
        ("another state", "`refresh` changes the structure"),
    ],
)
def test_a_gradient_with_a_fault_is_told_of_it(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_gradient(functools.partial(Faulty, fault=fault), poisson_rates(rows=60), THETA)
