"""Effects after a run: their law given theta is that of Gaussian groups; predictions have it, too."""

from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import inbounds as ib

SIZES, NOISE, DRAWS = np.array([6, 0, 2, 4]), 0.7, 4_000
GENERATOR = np.random.default_rng(1)
GROUP = GENERATOR.permutation(np.repeat(np.arange(4), SIZES))
Y = GENERATOR.normal(size=len(GROUP)).astype(np.float32)


def model(group, y, rows):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("groups", 4):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
    effect = numpyro.deterministic("effect", mean + scale * unit)
    with numpyro.plate("rows", rows):
        numpyro.sample("y", dist.Normal(effect[group], NOISE), obs=y)


@pytest.fixture(scope="module")
def draws():
    """Theta varies by little, so that the law of the effects is nearly that at its middle."""
    theta = {
        "mean": GENERATOR.normal(0.2, 0.05, (2, DRAWS // 2)).astype(np.float32),
        "scale": np.full((2, DRAWS // 2), 0.9, np.float32),
    }
    return SimpleNamespace(posterior=ib.from_numpyro(model, GROUP, Y, len(Y)).integrated(), theta=theta)


def exact(theta):
    """Means and sds of the effects: averages over the law of the mean, added to the law given it."""
    counts = SIZES
    sums = np.array([Y[number == GROUP].sum() for number in range(4)])
    precision = 1 / 0.9**2 + counts / NOISE**2
    means = (theta["mean"].mean() / 0.9**2 + sums / NOISE**2) / precision
    return means, np.sqrt(1 / precision + (theta["mean"].std() / 0.9**2 / precision) ** 2)


def test_effects_of_groups_that_are_asked_for_have_their_conditional_law(draws):
    found = ib.hierarchies.effects(draws, [3, 0, 1])
    means, sds = exact(draws.theta)
    assert found["effect"].shape == (2, DRAWS // 2, 3)
    flat = found["effect"].reshape(-1, 3)
    np.testing.assert_allclose(flat.mean(axis=0), means[[3, 0, 1]], atol=5 * sds.max() / np.sqrt(DRAWS))
    np.testing.assert_allclose(flat.std(axis=0), sds[[3, 0, 1]], rtol=0.06)
    mean, scale = (draws.theta[name][..., None] for name in ("mean", "scale"))
    np.testing.assert_allclose(found["effect"], mean + scale * found["unit"], rtol=1e-4, atol=1e-4)
    assert ib.hierarchies.effects(draws, 2, thin=500)["effect"].shape == (2, 4, 1)


def test_moments_are_of_all_groups(draws):
    found = ib.hierarchies.moments(draws, most_draws=DRAWS)
    means, sds = exact(draws.theta)
    np.testing.assert_allclose(found.mean["effect"], means, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.sd["effect"], sds, rtol=1e-4)


def test_predictions_are_of_old_groups_and_of_new_ones(draws):
    found = ib.hierarchies.predict(draws, np.array([0, 9, 9, 4]), None, 4)["y"].reshape(-1, 4)
    means, sds = exact(draws.theta)
    old, new = means[0], draws.theta["mean"].mean()
    np.testing.assert_allclose(found.mean(axis=0), [old, new, new, new], atol=0.1)
    wanted = np.hypot([sds[0], 0.9, 0.9, 0.9], NOISE)
    np.testing.assert_allclose(found.std(axis=0), wanted, rtol=0.07)
    correlations = np.corrcoef(found.T)
    assert abs(correlations[1, 2] - 0.9**2 / (0.9**2 + NOISE**2)) < 0.06  # two rows of one new group
    assert abs(correlations[1, 3]) < 0.08  # of two new groups


def test_groups_that_are_not_there_are_refused(draws):
    with pytest.raises(ValueError, match="from 0 to 3"):
        ib.hierarchies.effects(draws, [4])
    joint = SimpleNamespace(posterior=ib.Posterior({"x": dist.Normal(0, 1)}), theta={})
    with pytest.raises(ValueError, match="not integrated out"):
        ib.hierarchies.moments(joint)
