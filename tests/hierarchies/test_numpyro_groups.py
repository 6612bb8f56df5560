"""Groups of NumPyro models: found, integrated out, and left alone where the model cannot be cut into them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import inbounds as ib
from inbounds.frontends._numpyro_groups import NoGroups, cut_of
from inbounds.frontends._numpyro_model import CalledModel
from inbounds.inference.effects import without_effects

SIZES = np.array([3, 1, 7, 0, 2, 3])  # rows of each group
GENERATOR = np.random.default_rng(0)
GROUP = GENERATOR.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
X = GENERATOR.normal(size=len(GROUP)).astype(np.float32)
Y = GENERATOR.normal(size=len(GROUP)).astype(np.float32)
Z = GENERATOR.normal(size=len(SIZES)).astype(np.float32)  # a column of the groups
THETA = {"mean": 0.3, "scale": 0.8, "slope": -0.2}
NOISE = 0.5


def globals_():
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    return mean, scale, numpyro.sample("slope", dist.Normal(0, 1))


def centred(group, x, z, y):
    mean, scale, slope = globals_()
    with numpyro.plate("groups", len(z)):
        effect = numpyro.sample("effect", dist.Normal(mean + slope * z, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group] + slope * x, NOISE), obs=y)


def with_numbers(group, x, z, y):
    """Non-centred, and the sizes of the plates are numbers."""
    mean, scale, slope = globals_()
    with numpyro.plate("groups", len(SIZES)):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
    effect = numpyro.deterministic("effect", mean + slope * z + scale * unit)
    numpyro.deterministic("twice", 2 * scale)
    with numpyro.plate("rows", len(GROUP)):
        numpyro.sample("y", dist.Normal(effect[group] + slope * x, NOISE), obs=y)


def with_subsample_size(group, x, z, y):
    mean, scale, slope = globals_()
    with numpyro.plate("groups", len(SIZES)):
        effect = numpyro.sample(
            "effect", dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.AffineTransform(0, scale))
        )
    with numpyro.plate("rows", len(y), subsample_size=4) as rows:
        g = group[rows]
        numpyro.sample("y", dist.Normal(mean + slope * z[g] + effect[g] + slope * x[rows], NOISE), obs=y[rows])


def of_vectors(group, x, z, y):
    """Two effects by a multivariate normal, of which the second is multiplied by 0."""
    mean, scale, slope = globals_()
    with numpyro.plate("groups", len(z)):
        effect = numpyro.sample(
            "effect", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale * jnp.array([[1.0, 0], [0.4, 2]]))
        )
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean + slope * z[group] + effect[group, 0] + slope * x, NOISE), obs=y)


def of_two_plates(group, x, z, y):
    """Four effects by a plate within, of which all but the first are multiplied by 0: Laplace's method."""
    mean, scale, slope = globals_()
    with numpyro.plate("within", 4, dim=-2), numpyro.plate("groups", len(z), dim=-1):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean + slope * z[group] + scale * unit[0, group] + slope * x, NOISE), obs=y)


def exact(theta):
    """Log prior and likelihood of Gaussian groups: rows of a group have a common part."""
    total = stats.norm.logpdf(theta["mean"]) + stats.norm.logpdf(theta["slope"]) + stats.halfnorm.logpdf(theta["scale"])
    for number in range(len(SIZES)):
        rows = number == GROUP
        if rows.any():
            mean = theta["mean"] + theta["slope"] * (Z[number] + X[rows])
            covariance = theta["scale"] ** 2 + NOISE**2 * np.eye(rows.sum())
            total += stats.multivariate_normal(mean, covariance).logpdf(Y[rows])
    return total


@pytest.mark.parametrize("model", [centred, with_numbers, with_subsample_size, of_vectors, of_two_plates])
def test_the_density_without_effects_is_the_closed_form(model):
    posterior = ib.from_numpyro(model, GROUP, X, Z, Y).integrated()
    theta = {name: jnp.asarray(value) for name, value in THETA.items()}
    assert {name for name, _ in posterior.variables()} == set(THETA)
    np.testing.assert_allclose(jax.jit(posterior.log_density)(theta), exact(THETA), rtol=1e-5)
    if model is not centred:
        return
    slope = jax.jit(jax.grad(posterior.log_density))(theta)
    for name in THETA:
        moved = [exact(THETA | {name: THETA[name] + h}) for h in (-1e-4, 1e-4)]
        np.testing.assert_allclose(slope[name], (moved[1] - moved[0]) / 2e-4, rtol=1e-3, atol=1e-3)


def test_minibatches_of_records_are_unbiased():
    posterior = ib.from_numpyro(centred, GROUP, X, Z, Y).integrated()
    theta = {name: jnp.asarray(value) for name, value in THETA.items()}
    log_density = jax.jit(posterior.log_density)
    terms = [
        log_density(theta, jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], posterior.placed_data))
        for i in range(posterior.num_data)
    ]
    np.testing.assert_allclose(np.mean(terms), exact(THETA), rtol=1e-5)


def test_deterministics_of_the_globals_are_kept():
    posterior = ib.from_numpyro(with_numbers, GROUP, X, Z, Y).integrated()
    theta = {name: jnp.asarray(value) for name, value in THETA.items()}
    assert posterior.deterministics(theta) == {"twice": pytest.approx(1.6)}


def test_effects_that_a_quantity_needs_are_sampled():
    joint = ib.from_numpyro(centred, GROUP, X, Z, Y)
    sampled, about = without_effects(joint, {"first": lambda theta: theta["effect"][0]})
    assert sampled is joint
    assert "one of the quantities" in about
    marginal, about = without_effects(joint, {"twice": lambda theta: 2 * theta["scale"]})
    assert marginal is not joint
    assert about == marginal.about_effects()


def of_single_data(x, y, batch_size=None):
    """A latent per datum, in the plate of the data."""
    mean, scale, slope = globals_()
    with numpyro.plate("rows", len(y), subsample_size=batch_size) as rows:
        effect = numpyro.sample("effect", dist.Normal(mean + slope * x[rows], scale))
        numpyro.sample("y", dist.Normal(effect, NOISE), obs=y[rows])


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_latent_in_the_plate_of_the_data_is_integrated_out(batch_size):
    posterior, _ = ib.from_numpyro(of_single_data, X, Y, batch_size).without_effects()
    value = jax.jit(posterior.log_density)({name: jnp.asarray(value) for name, value in THETA.items()})
    means, sd = THETA["mean"] + THETA["slope"] * X, np.hypot(THETA["scale"], NOISE)
    prior = stats.norm.logpdf(THETA["mean"]) + stats.norm.logpdf(THETA["slope"]) + stats.halfnorm.logpdf(THETA["scale"])
    np.testing.assert_allclose(value, prior + stats.norm(means, sd).logpdf(Y).sum(), rtol=1e-5)
    assert posterior.num_data == len(Y)


def neighbours(group, x, z, y):
    """A row that looks up the effect of the next group, too."""
    mean, scale, _ = globals_()
    with numpyro.plate("groups", len(z)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group] + effect[(group + 1) % 6], NOISE), obs=y)


def sum_to_zero(group, x, z, y):
    centred(group, x, z, y)
    with numpyro.plate("more", 6):
        other = numpyro.sample("other", dist.Normal(0, 1))
    numpyro.factor("softly", -100 * jnp.sum(other) ** 2)


def of_two_groups(group, y):
    """Something outside of all plates depends on the effects: with both groups in order it would not be seen."""
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("groups", 2):
        effect = numpyro.sample("effect", dist.Normal(0, scale))
    numpyro.factor("outside", -(jnp.sum(effect) ** 2))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], NOISE), obs=y)


def without_a_column(x, z, y):
    """The groups of the rows are no argument."""
    centred(GROUP, x, z, y)


def test_a_model_that_cannot_be_cut_is_left_alone_and_says_why():
    def reason(model, *data):
        found = cut_of(CalledModel(model, tuple(map(jnp.asarray, data)), {}))
        assert isinstance(found, NoGroups), found
        return found.reason

    assert "changes when the" in reason(neighbours, GROUP, X, Z, Y)
    assert "'outside' depends on the groups" in reason(of_two_groups, GROUP % 2, Y)
    assert "no argument" in reason(without_a_column, X, Z, Y)

    def flat(x, y):
        numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal(0, 1)), 1).expand([len(y)]), obs=y)

    assert reason(flat, X, Y) is None
    posterior = ib.from_numpyro(neighbours, GROUP, X, Z, Y)
    with pytest.raises(ValueError, match="No effects can be integrated out"):
        posterior.integrated()
    same, about = posterior.without_effects()
    assert same is posterior
    assert "sampled like all variables" in about


def test_one_plate_of_two_is_integrated_and_the_other_sampled():
    found = cut_of(CalledModel(sum_to_zero, tuple(map(jnp.asarray, (GROUP, X, Z, Y))), {}))
    assert found.shape.plate == "groups"
    assert found.names == {"effect"}
