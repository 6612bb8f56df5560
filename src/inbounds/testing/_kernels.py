"""Does a kernel keep the contract of kernels, and does it sample the law that it is given?"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import special

from inbounds import trees
from inbounds.kernels._base import NO_PRECONDITIONER, Kernel
from inbounds.kernels.prediction import predict
from inbounds.posterior import Posterior
from inbounds.sampling import sample
from inbounds.sampling.draws import Draws
from inbounds.sampling.verdict import UntrustworthyWarning
from inbounds.testing._expectations import expect
from inbounds.trees import PyTree

HESSIAN = np.array([[1.0, 0.6], [0.6, 1.0]])
FARTHEST = 6.0  # of a normal score, where a cdf rounds to 0 or 1
COARSE = 0.3  # a step size at which a kernel's bias on this Gaussian shows
SIGMAS = 4.5


def check_kernel(
    factory: Callable[[Posterior], Kernel],
    priors: PyTree = None,
    *,
    step_size: float = 0.05,
    num_steps: int = 2_500,
    num_chains: int = 128,
    error: float = 0.08,
    seed: int = 0,
) -> None:
    """Whether a kernel keeps the contract of kernels, and samples the law that it is given.

    A step is pure, keeps the shapes and dtypes of the state, and reports when asked without moving otherwise; theta stays inside its support
    at any step size; the draws do not depend on how a run is cut. Kernels that are made twice of the same arguments are equal, so that
    they are compiled once. The draws follow the priors, within their Monte Carlo error and a bias. On a Gaussian their covariance is that
    of the kernel's `recursion`, where it has one, for `ib.check` goes by it.

    Args:
        factory: makes the kernel of a posterior.
        priors: a tree of NumPyro distributions of single numbers with a `cdf`; None: a gamma, a beta and a normal law.
        step_size: one at which its bias is small.
        num_steps: of each chain; the first fifth is burn-in.
        num_chains: how many chains.
        error: how far off the mean and the mean square of the draws may be, in units of a standard normal law and apart from Monte Carlo
            error.
        seed: of the chains.

    Raises:
        AssertionError: something is not as it should be.

    Example:
        >>> ib.testing.check_kernel(ib.leimkuhler_matthews, {"x": dist.Gamma(3.0, 2.0)}, num_steps=1_000)
    """
    priors = priors or {"positive": dist.Gamma(3.0, 2.0), "share": dist.Beta(2.0, 3.0), "real": dist.Normal(1.0, 0.7)}
    posterior = Posterior(priors)
    kernel = factory(posterior)
    expect(isinstance(kernel, Kernel), f"the factory makes a {type(kernel).__name__}, not a Kernel")
    expect(
        factory(posterior) == kernel,
        f"two kernels {kernel.name!r} of the same arguments are not equal, so that each run would be compiled anew: decorate the factory "
        "with `ib.kernels.kernel_factory`",
    )
    _check_steps(kernel, seed)

    def run(num_steps: int, **options: Any) -> Draws:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UntrustworthyWarning)
            return sample(kernel, step_size, num_steps, seed=seed, progress=False, **options)

    short = 2_100 + kernel.adapt_steps
    whole, cut = (run(short, burn_in=kernel.adapt_steps, chunk_steps=most).theta for most in (None, 1))
    same = jax.tree.map(np.array_equal, whole, cut)
    expect(jax.tree.all(same), "the draws depend on how the run is cut: a step depends on something beside its state")
    _check_law(
        run(num_steps, burn_in=max(num_steps // 5, kernel.adapt_steps), num_chains=num_chains), priors, step_size, error
    )
    if kernel.recursion is not None and kernel.preconditioner is NO_PRECONDITIONER:
        _check_recursion(factory, num_steps, num_chains, seed)


def _check_steps(kernel: Kernel, seed: int) -> None:
    keys = jax.random.split(jax.random.key(seed), 3)
    state = kernel.init(kernel.posterior.start(keys[0]))

    def shapes(state: Any) -> list[Any]:
        return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(jax.eval_shape(lambda: state))]

    step = jax.jit(kernel.step)
    after, info = step(keys[1], state, None, 0.01)
    same = trees.alike(state, after) and shapes(state) == shapes(after)
    expect(
        same, f"a step changes the structure, shapes or dtypes of the state: {shapes(state)} becomes {shapes(after)}"
    )
    expect(
        jax.tree.all(jax.tree.map(np.array_equal, after, step(keys[1], state, None, 0.01)[0])),
        "two steps from the same state with the same key differ",
    )
    for name, value in info._asdict().items():
        shape = (trees.size(kernel.moving(state)),) if name in kernel.vectors else ()
        expect(jnp.shape(value) == shape, f"`Info.{name}` has the shape {jnp.shape(value)}, not {shape}")
    expect(info.finite, "`Info.finite` is False after a small step from the start")
    noise = kernel.noise_like(kernel.moving(state))
    noise = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), noise) if kernel.noise == "normal" else keys[2]
    told, silent = (
        jax.jit(lambda report=report: kernel.update(noise, state, None, 0.01, report)[0]) for report in (True, False)
    )
    close = jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-5), told(), silent())
    expect(jax.tree.all(close), "a step that reports nothing moves otherwise")
    for wild in (1.0, 1e3, 1e6):
        position, finite = state, jnp.asarray(True)
        for key in jax.random.split(keys[2], 4):
            position, info = step(key, position, None, wild)
            finite &= info.finite
        theta = kernel.position(position)
        inside = jax.tree.map(
            lambda support, leaf: np.all(support(leaf)), kernel.posterior.supports, theta, is_leaf=callable
        )
        expect(
            not finite or jax.tree.all(inside),
            f"theta leaves its support at a step size of {wild:g}: {jax.tree.map(float, theta)}",
        )


def _check_law(draws: Draws, priors: PyTree, step_size: float, error: float) -> None:
    theta = draws.theta
    for path, prior in jax.tree_util.tree_leaves_with_path(priors, is_leaf=lambda x: isinstance(x, dist.Distribution)):
        name = trees.variable_name(path)
        scores = np.clip(special.ndtri(np.asarray(prior.cdf(_leaf(theta, path)), float)), -FARTHEST, FARTHEST)
        for what, values, truth in (("mean", scores, 0.0), ("mean square", scores**2, 1.0)):
            of_chains = values.mean(axis=1)
            allowed = SIGMAS * of_chains.std(ddof=1) / np.sqrt(len(of_chains)) + error
            expect(
                abs(of_chains.mean() - truth) < allowed,
                f"{name!r} has another law at a step size of {step_size:g}: the normal scores of its draws have the {what} "
                f"{of_chains.mean():.3f}, which is more than {allowed:.3f} away from {truth:g}",
            )


def _leaf(tree: PyTree, path: Any) -> Any:
    return dict(jax.tree_util.tree_leaves_with_path(tree))[path]


def _check_recursion(factory: Callable[[Posterior], Kernel], num_steps: int, num_chains: int, seed: int) -> None:
    law = dist.MultivariateNormal(jnp.zeros(2), precision_matrix=jnp.asarray(HESSIAN))
    kernel = factory(Posterior({"x": law}))
    predicted = predict(kernel, COARSE, HESSIAN, np.zeros((2, 2))).covariance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyWarning)
        draws = sample(
            kernel, COARSE, num_steps, burn_in=num_steps // 5, num_chains=num_chains, seed=seed, progress=False
        )
    x = np.asarray(draws.theta["x"], float)
    of_chains = np.einsum("cni,cnj->cij", x, x) / x.shape[1]
    standard_error = of_chains.std(axis=0, ddof=1) / np.sqrt(len(x))
    found = of_chains.mean(axis=0)
    expect(
        np.abs(found - predicted) < SIGMAS * standard_error + 1e-3,
        f"on a Gaussian, at a step size of {COARSE:g}, the draws have the covariance {found.tolist()}; its `recursion` says "
        f"{predicted.tolist()}",
    )
