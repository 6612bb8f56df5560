"""What a minibatch gradient of a PyMC model costs beside the same one written by hand in JAX.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m benchmarks.pymc_gradients [--out results.json]

Both compute the gradient of prior and scaled likelihood on the variables' own scale, in one compiled loop over the same rows. The loops take
turns. The table shows medians of processor time, in microseconds per gradient, and the median of the ratios. PyMC needs Python 3.12 or later.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from jax.scipy.special import gammaln, logsumexp

import inbounds as ib
from benchmarks import side_by_side

ROWS, BATCH = 100_000, 1_000
GENERATOR = np.random.default_rng(0)

Theta = dict[str, Any]
Built = tuple[pm.Model, dict[str, np.ndarray], Callable[[Theta], jax.Array], Callable[[Theta, Any], jax.Array]]


def normal(x: jax.Array, mean: Any, sd: Any) -> jax.Array:
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def half_normal(x: jax.Array) -> jax.Array:
    return -0.5 * x**2


def logistic_regression() -> Built:
    x = GENERATOR.normal(size=(ROWS, 50))
    y = (GENERATOR.uniform(size=ROWS) < 1 / (1 + np.exp(-x @ GENERATOR.normal(size=50) / 4))).astype(int)
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=50)
        pm.Bernoulli("y", logit_p=pm.math.dot(pm.Data("x", x), w), observed=y)

    def log_likelihood(theta: Theta, batch: Any) -> jax.Array:
        logits = batch["x"] @ theta["w"]
        return batch["y"] * logits - jnp.logaddexp(logits, 0.0)

    return model, {"x": x, "y": y}, lambda theta: normal(theta["w"], 0, 1).sum(), log_likelihood


def poisson_with_groups() -> Built:
    group, x = GENERATOR.integers(0, 200, ROWS), GENERATOR.normal(size=ROWS)
    y = GENERATOR.poisson(np.exp(0.3 * x + GENERATOR.normal(0, 0.3, 200)[group]))
    with pm.Model() as model:
        slope, spread = pm.Normal("slope"), pm.HalfNormal("spread")
        level = pm.Normal("level", 0, spread, shape=200)
        pm.Poisson("y", pm.math.exp(slope * x + level[group]), observed=y)

    def log_prior(theta: Theta) -> jax.Array:
        levels = normal(theta["level"], 0, theta["spread"]).sum()
        return normal(theta["slope"], 0, 1) + half_normal(theta["spread"]) + levels

    def log_likelihood(theta: Theta, batch: Any) -> jax.Array:
        log_mean = theta["slope"] * batch["x"] + theta["level"][batch["group"]]
        return batch["y"] * log_mean - jnp.exp(log_mean)

    return model, {"group": group, "x": x, "y": y}, log_prior, log_likelihood


def robust_regression() -> Built:
    x = GENERATOR.normal(size=(ROWS, 5))
    y = x.sum(1) + GENERATOR.standard_t(4, ROWS)
    with pm.Model() as model:
        beta, sigma, nu = pm.Normal("beta", 0, 1, shape=5), pm.HalfNormal("sigma"), pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=pm.math.dot(x, beta), sigma=sigma, observed=y)

    def log_prior(theta: Theta) -> jax.Array:
        return (
            normal(theta["beta"], 0, 1).sum() + half_normal(theta["sigma"]) + jnp.log(theta["nu"]) - 0.1 * theta["nu"]
        )

    def log_likelihood(theta: Theta, batch: Any) -> jax.Array:
        nu, z = theta["nu"], (batch["y"] - batch["x"] @ theta["beta"]) / theta["sigma"]
        scale = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.pi) - jnp.log(theta["sigma"])
        return scale - (nu + 1) / 2 * jnp.log1p(z**2 / nu)

    return model, {"x": x, "y": y}, log_prior, log_likelihood


def mixture_of_normals() -> Built:
    y = GENERATOR.normal(np.array([-2.0, 0.0, 3.0])[GENERATOR.integers(0, 3, ROWS)], 0.7)
    with pm.Model() as model:
        w, means = pm.Dirichlet("w", np.ones(3)), pm.Normal("means", 0, 5, shape=3, initval=[-1.0, 0.0, 1.0])
        sds = pm.HalfNormal("sds", shape=3)
        pm.NormalMixture("y", w, means, sds, observed=y)

    def log_prior(theta: Theta) -> jax.Array:
        return normal(theta["means"], 0, 5).sum() + half_normal(theta["sds"]).sum()

    def log_likelihood(theta: Theta, batch: Any) -> jax.Array:
        return logsumexp(jnp.log(theta["w"]) + normal(batch["y"][:, None], theta["means"], theta["sds"]), axis=-1)

    return model, {"y": y}, log_prior, log_likelihood


MODELS = {
    "logistic regression, 50 weights": logistic_regression,
    "Poisson, 200 groups": poisson_with_groups,
    "Student's t, 5 weights": robust_regression,
    "mixture of three normals": mixture_of_normals,
}


def loop(log_prior: Callable[..., jax.Array], log_likelihood: Callable[..., jax.Array]) -> Callable[..., Theta]:
    """Gradients of minibatches one after the other, each at the point to which the one before has led."""

    def log_density(theta: Theta, batch: Any) -> jax.Array:
        return log_prior(theta) + ROWS / BATCH * log_likelihood(theta, batch).sum()

    @jax.jit
    def run(theta: Theta, data: Any, rows: jax.Array) -> Theta:
        def step(theta: Theta, some: jax.Array) -> tuple[Theta, None]:
            gradient = jax.grad(log_density)(theta, jax.tree.map(lambda column: column[some], data))
            return jax.tree.map(lambda x, g: x + 1e-9 * g, theta, gradient), None

        return jax.lax.scan(step, theta, rows)[0]

    return run


def processor_seconds(run: Callable[..., Theta], *given: Any) -> float:
    began = time.process_time()
    jax.block_until_ready(run(*given))
    return time.process_time() - began


def measure(steps: int, repeats: int) -> list[side_by_side.Row]:
    found = []
    for name, build in MODELS.items():
        model, data, *by_hand = build()
        posterior = ib.from_pymc(model)
        assert posterior.log_likelihood is not None
        rows = jnp.asarray(GENERATOR.integers(0, ROWS, (steps, BATCH)))
        theta = posterior.start(jax.random.key(0))
        ways = {
            "PyMC": (loop(posterior.log_prior, posterior.log_likelihood), posterior.data),
            "by hand": (loop(*by_hand), data),
        }
        ends = {way: run(theta, given, rows) for way, (run, given) in ways.items()}
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), *ends.values())
        runs = {
            way: partial(processor_seconds, run, theta, jax.tree.map(jnp.asarray, given), rows)
            for way, (run, given) in ways.items()
        }
        found.append(side_by_side.row(name, runs, steps, repeats))
    return found


if __name__ == "__main__":
    versions = {library: version(library) for library in ("jax", "pymc", "pytensor")}
    about = {"rows": ROWS, "batch_size": BATCH, "python": platform.python_version(), **versions}
    side_by_side.main(__doc__ or "", measure, steps=2_000, repeats=15, about=about)
