"""The models of the rows in JAX, for every contestant that speaks it (down to JAX 0.4.13): log prior and log likelihood of theta.

`log_likelihood(theta, batch)` has one term per row, shape (batch,). `unbounded` gives the log density of phi by hand, the way users of
libraries without bounds do it: theta = softplus(phi) on the positive numbers, sigmoid(phi) on (0, 1), and the log Jacobian with the prior.
"""

import jax
import jax.numpy as jnp
from rows import RATE, SHAPE


def standard_normal(theta):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree_util.tree_leaves(theta))


def logistic(theta, batch):
    """As NumPyro's Bernoulli has it. JAX differentiates `logaddexp` through its value: a logarithm and an exponential more."""
    logits = batch["x"] @ theta["w"]
    return batch["y"] * logits - jnp.maximum(logits, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(logits)))


def mlp(theta, batch):
    hidden = jax.nn.relu(batch["x"] @ theta["w1"] + theta["b1"])
    log_chances = jax.nn.log_softmax(hidden @ theta["w2"] + theta["b2"])
    return jnp.take_along_axis(log_chances, batch["y"][..., None], axis=-1)[..., 0]


def poisson(theta, batch):
    rate = theta["rate"][batch["index"]]
    return batch["count"] * jnp.log(rate) - rate


def gamma_rates(theta):
    return jnp.sum((SHAPE - 1) * jnp.log(theta["rate"]) - RATE * theta["rate"])


def gamma(theta):
    return -0.5 * jnp.log(theta["x"]) - 2.0 * theta["x"]


def beta(theta):
    return -0.5 * (jnp.log(theta["x"]) + jnp.log1p(-theta["x"]))


PRIORS = {"logistic": standard_normal, "mlp": standard_normal, "rates": gamma_rates, "gamma": gamma, "beta": beta}
LIKELIHOODS = {"logistic": logistic, "mlp": mlp, "rates": poisson}


def to_theta(model):
    """From phi to theta, by hand."""
    if model in ("rates", "gamma"):
        return lambda phi: jax.tree_util.tree_map(jax.nn.softplus, phi)
    if model == "beta":
        return lambda phi: jax.tree_util.tree_map(jax.nn.sigmoid, phi)
    return lambda phi: phi


def to_phi(model):
    if model in ("rates", "gamma"):
        return lambda theta: jax.tree_util.tree_map(lambda leaf: leaf + jnp.log(-jnp.expm1(-leaf)), theta)
    if model == "beta":
        return lambda theta: jax.tree_util.tree_map(lambda leaf: jnp.log(leaf) - jnp.log1p(-leaf), theta)
    return lambda theta: theta


def unbounded(model):
    """`log_prior(phi)`, with the log Jacobian, and `log_likelihood(phi, batch)`; the second is None without data."""
    prior, likelihood, theta = PRIORS[model], LIKELIHOODS.get(model), to_theta(model)

    def log_jacobian(phi):
        if model in ("rates", "gamma"):
            return sum(jnp.sum(jax.nn.log_sigmoid(leaf)) for leaf in jax.tree_util.tree_leaves(phi))
        if model == "beta":
            return sum(jnp.sum(jax.nn.log_sigmoid(p) + jax.nn.log_sigmoid(-p)) for p in jax.tree_util.tree_leaves(phi))
        return 0.0

    def log_prior(phi):
        return prior(theta(phi)) + log_jacobian(phi)

    return log_prior, None if likelihood is None else lambda phi, batch: likelihood(theta(phi), batch)
