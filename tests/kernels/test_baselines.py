"""What the paper compares with does what the literature says."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import inbounds as ib
from inbounds.kernels.baselines._bounded import Bounds
from inbounds.kernels.baselines._mirror import fold

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


@pytest.mark.parametrize(
    ("bounds", "x", "expected"),
    [
        (Bounds(0.0, np.inf), [-2.5, 1.0], [2.5, 1.0]),
        (Bounds(1.0, np.inf), [0.0, 1.5], [2.0, 1.5]),
        (Bounds(-np.inf, 2.0), [3.0, -1.0], [1.0, -1.0]),
        (Bounds(-1.0, 1.0), [1.5, -1.25, 7.25, -100.75, 0.3], [0.5, -0.75, -0.75, -0.75, 0.3]),
        (Bounds(-np.inf, np.inf), [-9.0], [-9.0]),
    ],
    ids=["half line", "shifted", "upper", "interval, any overshoot", "real line"],
)
def test_fold_reflects_at_finite_ends(bounds, x, expected):
    np.testing.assert_allclose(fold(jnp.array(x), bounds), expected, atol=2e-5)


def one_step(kernel, theta, noise, step_size=0.01):
    state, _ = kernel.update({"x": jnp.float32(noise)}, kernel.init({"x": theta}), None, step_size)
    return float(kernel.position(state)["x"])


GAMMA = ib.Posterior({"x": dist.Gamma(0.5, 2.0)})


def test_mirror_takes_the_absolute_value():
    moved = 0.05 + 0.01 * (-0.5 / 0.05 - 2) + np.sqrt(0.02) * -1.5
    assert moved < 0
    assert one_step(ib.baselines.mirror(GAMMA), 0.05, -1.5) == pytest.approx(-moved, rel=1e-5)


def test_projection_stays_just_inside():
    theta = one_step(ib.baselines.projected(GAMMA), 0.05, -1.5)
    assert 0 < theta < 1e-30


def test_sgrld_has_the_correction_of_its_metric():
    expected = abs(0.3 + 0.01 * (0.3 * (-0.5 / 0.3 - 2) + 1) + np.sqrt(2 * 0.01 * 0.3) * 0.7)
    assert one_step(ib.baselines.sgrld(GAMMA), 0.3, 0.7) == pytest.approx(expected, rel=1e-5)


def test_ito_is_the_transformed_process():
    phi = np.log(np.expm1(0.3))
    slope = 1 / (1 + np.exp(-phi))
    moved = phi + 0.01 * ((-0.5 / 0.3 - 2) / slope - (1 - slope) / slope**2) + np.sqrt(0.02) / slope * 0.7
    assert one_step(ib.baselines.ito(GAMMA), 0.3, 0.7) == pytest.approx(np.logaddexp(moved, 0), rel=1e-4)


def test_ito_restarts_and_says_so():
    kernel = ib.baselines.ito(GAMMA)
    draws = ib.sample(kernel, 0.02, 2_000, num_chains=4)
    assert np.all(draws.theta["x"] > 0)
    assert 0.01 < draws.stats["clamped"].mean() < 0.9
    assert "restarted" in draws.summary().notes[0]


def test_ito_without_restarts_leaves_the_floats():
    with pytest.raises(ib.NonFiniteError):
        ib.sample(ib.baselines.ito(GAMMA, restart=False), 0.02, 20_000)


def test_scir_is_exact_for_gamma_at_any_step():
    posterior = ib.Posterior({"x": dist.Gamma(0.5, 2.0).expand([64])})
    draws = ib.sample(ib.baselines.scir(posterior), 3.0, 600, burn_in=20, thin=2, num_chains=2)
    x = draws.theta["x"].reshape(-1, 64)
    means = np.stack([x.mean(0), np.square(x).mean(0)])
    truth = np.array([0.25, 0.1875])
    error = np.abs(means.mean(1) - truth) / (means.std(1, ddof=1) / 8)
    assert np.all(error < 4), error


def test_scir_looks_through_repetition_and_not_through_transformation():
    repeated = ib.Posterior({"x": dist.Gamma(3.0, 2.0).expand([3]).to_event(1)})
    assert ib.baselines.scir(repeated).init({"x": np.ones(3)}).theta["x"].shape == (3,)
    with pytest.raises(ValueError, match="InverseGamma"):
        ib.baselines.scir(ib.Posterior({"x": dist.InverseGamma(3.0, 2.0)}))


def test_scir_takes_a_conditional_from_data():
    counts = np.full((20, 1), 3.0, np.float32)
    posterior = ib.Posterior({"x": dist.Gamma(1.0, 1.0)}, lambda t, b: b[:, 0] * jnp.log(t["x"]) - t["x"], counts)

    def conditional(theta, batch):
        return {"x": 1.0 + 20 / batch.shape[0] * jnp.sum(batch)}, {"x": 21.0}

    draws = ib.sample(ib.baselines.scir(posterior, conditional), 1.0, 1_500, burn_in=10, batch_size=5, num_chains=8)
    assert draws.theta["x"].mean() == pytest.approx(61 / 21, rel=0.01)
    assert draws.theta["x"].std() == pytest.approx(np.sqrt(61) / 21, rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ib.baselines.mirror(ib.Posterior({"x": dist.Dirichlet(jnp.ones(3))})), "vector support"),
        (lambda: ib.baselines.sgrld(ib.Posterior({"x": dist.Beta(1.0, 1.0)})), r"half lines \(a, inf\)"),
        (lambda: ib.baselines.scir(ib.Posterior({"x": dist.Beta(1.0, 1.0)})), "positive variables"),
        (lambda: ib.baselines.scir(ib.Posterior({"x": dist.HalfNormal(1.0)})), "gamma or exponential priors"),
        (
            lambda: ib.baselines.scir(ib.Posterior(supports={"x": constraints.positive}, log_prior=lambda t: -t["x"])),
            "needs `conditional",
        ),
    ],
    ids=["mirror", "sgrld", "scir interval", "scir prior", "scir log prior"],
)
def test_supports_that_a_baseline_cannot_serve_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_positions_are_strictly_inside():
    posterior = ib.Posterior({"x": dist.Beta(0.5, 0.5).expand([100])})
    for kernel in (ib.baselines.mirror(posterior), ib.baselines.projected(posterior)):
        draws = ib.sample(kernel, 0.3, 200)
        x = draws.theta["x"]
        assert np.all((x > 0) & (x < 1))
        assert jax.tree.leaves(x)[0].dtype == np.float32
