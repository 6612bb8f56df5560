"""The doctor stands at the mode or says that it does not, and its step sizes are those of the kernel that it speaks for."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.kernels.prediction import predict

# Short on purpose: what these runs are worth is looked at elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

ROWS = 2_000


def statuses(report, topic):
    return [finding.status for finding in report.of(topic)]


@lru_cache
def regression(correlation):
    """(posterior, exact covariance, the gradient's covariance at a batch of one row)."""
    generator = np.random.default_rng(0)
    x = generator.multivariate_normal(np.zeros(2), [[1, correlation], [correlation, 1]], size=ROWS).astype(np.float32)
    y = (x @ [1.0, -0.5] + generator.normal(size=ROWS)).astype(np.float32)
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 10.0).expand([2])},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - batch["x"] @ theta["w"]),
        {"x": x, "y": y},
    )
    precision = x.astype(float).T @ x + np.eye(2) / 100
    mode = np.linalg.solve(precision, x.T @ y)
    return posterior, np.linalg.inv(precision), ROWS**2 * np.cov((x * (y - x @ mode)[:, None]).T)


def location_and_scale(unit=1.0, rows=50_000):
    """Data whose mean is 13 sds from zero, in any unit; the priors know the unit and no more."""
    y = (unit * np.random.default_rng(0).normal(200.0, 15.0, rows)).astype(np.float32)
    priors = {"mu": dist.Normal(0.0, 400.0 * unit), "s": dist.HalfNormal(30.0 * unit)}
    posterior = ib.Posterior(priors, lambda theta, y: dist.Normal(theta["mu"], theta["s"]).log_prob(y), y)
    return posterior, float(np.mean(y, dtype=float)), float(np.std(y, dtype=float))


# -- the centre ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", [ib.gradients.minibatch, ib.gradients.svrg()], ids=["minibatch", "svrg"])
def test_the_centre_is_the_mode_however_far_from_the_start(gradient):
    posterior, mean, sd = location_and_scale()
    report = ib.check(posterior, gradient=gradient, batch_size=500, show=False)
    assert report.ok
    assert statuses(report, "center") == ["ok"]
    assert abs(report.center["mu"] - mean) < 0.2 * sd / np.sqrt(50_000)
    assert abs(report.center["s"] - sd) < 0.2 * sd / np.sqrt(100_000)


@pytest.mark.parametrize(("unit", "start"), [(1e-6, (-600.0, 200.0)), (1e-6, (500.0, 0.5)), (1e6, (500.0, 0.5))])
def test_the_unit_of_the_data_and_the_start_do_not_matter(unit, start):
    posterior, mean, sd = location_and_scale(unit, rows=2_000)
    init = {"mu": unit * start[0], "s": unit * start[1]}
    report = ib.check(posterior, batch_size=100, init=init, show=False)
    assert report.ok, str(report)
    assert abs(report.center["mu"] - mean) < 0.3 * sd / np.sqrt(2_000)
    assert abs(report.center["s"] - sd) < 0.3 * sd / np.sqrt(4_000)


def test_groups_of_very_unequal_sizes_have_their_centre_also_from_the_mode_on():
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.full(30, 0.3))
    group = rng.choice(30, 6_000, p=share)
    y = (rng.normal(3.0, 0.5, 30)[group] + rng.normal(0.0, 1.5, 6_000)).astype(np.float32)
    priors = {
        "m": dist.Normal(0.0, 10.0),
        "effects": dist.Normal(0.0, 1.0).expand([30]).to_event(1),
        "s": dist.HalfNormal(5.0),
    }
    posterior = ib.Posterior(
        priors,
        lambda t, batch: dist.Normal(t["m"] + t["effects"][batch["group"]], t["s"]).log_prob(batch["y"]),
        {"group": group, "y": y},
    )
    first = ib.check(posterior, batch_size=200, gradient=ib.gradients.svrg(), show=False)
    again = ib.check(posterior, batch_size=200, gradient=ib.gradients.svrg(), init=first.center, show=False)
    for report in (first, again):
        assert statuses(report, "center") == ["ok"]
        residuals = y - report.center["m"] - np.asarray(report.center["effects"])[group]
        assert report.center["s"] == pytest.approx(float(residuals.std()), rel=2e-3)


@pytest.mark.parametrize(
    "posterior",
    [
        ib.Posterior(supports={"x": dist.constraints.real}, log_prior=lambda theta: 0.1 * theta["x"]),
        ib.Posterior({"x": dist.Normal(0.0, 1.0), "y": dist.Normal(0.0, 1.0)}, lambda t, z: z * t["x"] ** 2, np.ones(3)),
    ],
    ids=["flat", "unbounded"],
)  # fmt: skip
def test_without_a_mode_there_is_a_cross_and_no_step_size(posterior):
    report = ib.check(posterior, show=False)
    assert not report.ok
    assert str(report).startswith("✗ Not ready for leimkuhler_matthews")
    assert statuses(report, "center") == ["problem"]
    assert "No step sizes are suggested" in report.of("center")[0].message
    assert report.center is report.step_size is report.step_sizes is report.preconditioned_step_size is None
    assert report.preconditioner is None


def test_gradients_alone_have_a_centre_that_is_verified_too():
    posterior, covariance, _ = regression(0.9)
    by_hand = ib.Posterior(
        supports={"w": dist.constraints.real},
        gradient=lambda theta, batch: ib.gradients.minibatch(posterior).gradient(None, theta, batch),
        data=posterior.data,
    )
    report = ib.check(by_hand, batch_size=100, init={"w": np.float32([30.0, -30.0])}, show=False)
    exact = ib.check(posterior, batch_size=100, show=False)
    assert statuses(report, "center") == ["ok"]
    np.testing.assert_allclose(report.center["w"], exact.center["w"], atol=0.2 * np.sqrt(np.diag(covariance)).min())
    assert report.step_sizes[1] == pytest.approx(exact.step_sizes[1], rel=0.3)


# -- step sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ib.sgld, ib.leimkuhler_matthews, ib.baoab, ib.sgnht])
@pytest.mark.parametrize("corrects", [False, True])
def test_every_kernel_has_the_range_of_its_own_formula(make, corrects):
    posterior, covariance, noise = regression(0.9)
    if make is ib.sgnht and corrects:
        pytest.skip("its thermostat is its correction")
    kernel = make(posterior, noise_correction=True) if corrects else make(posterior)
    report = ib.check(kernel, batch_size=100, show=False)
    assert report.kernel == kernel.name

    def worst(size):
        predicted = predict(kernel, size, np.linalg.inv(covariance), noise / 100).covariance
        return np.abs(np.sqrt(np.linalg.eigvals(predicted @ np.linalg.inv(covariance)).real) - 1).max()

    tolerated = 0.025 if corrects else 0.05
    assert worst(report.step_sizes[1]) == pytest.approx(tolerated, rel=0.3)
    assert report.step_sizes[0] == pytest.approx(report.step_sizes[1] / 10)


def test_a_kernel_at_the_upper_end_of_its_own_range_has_sds_that_are_about_right():
    posterior, covariance, _ = regression(0.9)
    kernel = ib.baoab(posterior, friction=20.0)
    high = ib.check(kernel, batch_size=500, show=False).step_sizes[1]
    draws = ib.sample(
        kernel, high, 60_000, burn_in=2_000, batch_size=500, batching="replacement", num_chains=8, progress=False
    )
    # Along the short axis, which forgets fast, and where the error is.
    values, vectors = np.linalg.eigh(covariance)
    along = draws.theta["w"] @ vectors[:, 0]
    assert along.std() / np.sqrt(values[0]) == pytest.approx(1.05, abs=0.03)


def test_ranges_differ_where_kernels_do():
    posterior, _, _ = regression(0.9)
    highs = [ib.check(make(posterior), batch_size=20, show=False).step_sizes[1] for make in (ib.sgld, ib.baoab)]
    assert highs[0] > 100 * highs[1]  # friction takes up noise far more slowly than overdamped steps
    slow = ib.check(ib.baoab(posterior), batch_size=20, show=False)
    assert statuses(slow, "step size") == ["warning"]
    assert "do not suit" in slow.of("step size")[0].remedy


def test_one_look_says_what_a_control_variate_and_correction_would_allow():
    for correlation, helps in ((0.0, True), (0.99, False)):
        posterior, _, _ = regression(correlation)
        report = ib.check(posterior, batch_size=50, show=False)
        (noise,) = report.of("noise")
        assert noise.status == "warning"
        center = ib.gradients.control_variate(center=report.center)
        alone = ib.check(posterior, gradient=center, batch_size=50, show=False)
        assert noise.values["control_variate"][1] == pytest.approx(alone.step_sizes[1], rel=0.3)
        assert ("noise_correction=True" in noise.remedy) == helps  # where it hurts it is not recommended


def test_a_correction_that_does_not_see_correlated_noise_is_said_to_make_sds_too_small():
    for correlation, said in ((0.0, False), (0.9, True)):
        posterior, covariance, noise = regression(correlation)
        kernel = ib.leimkuhler_matthews(posterior, noise_correction=True)
        (found,) = ib.check(kernel, batch_size=50, show=False).of("noise")
        assert ("goes together" in found.message) == ("ib.metrics.laplace" in found.remedy) == said
        if said:
            size, off = found.values["correlated"]
            exact = predict(kernel, size, np.linalg.inv(covariance), noise / 50).worst_sd_error
            assert off == pytest.approx(exact, abs=0.2)  # next to where correction ends, from 64 minibatches
            assert off < -0.2


def test_a_kernel_with_a_metric_or_scales_is_looked_at_as_it_is():
    posterior, _, _ = regression(0.99)
    report = ib.check(posterior, show=False)
    metric = ib.metrics.laplace(posterior, report.center)
    whitened = ib.check(ib.sgld(posterior, metric=metric), show=False)
    # In whitened coordinates the curvature is 1: Euler's sd is off by 5% at about 0.2.
    assert whitened.step_sizes[1] == pytest.approx(0.19, rel=0.1)
    assert whitened.preconditioner is None
    plain = ib.check(ib.sgld(posterior), show=False)
    scaled = ib.check(ib.sgld(posterior, preconditioner=plain.preconditioner), show=False)
    assert scaled.step_size == pytest.approx(plain.preconditioned_step_size, rel=0.01)


def test_rows_are_those_that_a_run_takes():
    posterior, _, _ = regression(0.9)
    assert ib.check(posterior, show=False).batch_size == ROWS
    assert "2,000 rows per step" in str(ib.check(posterior, show=False))
    assert ib.check(posterior, batch_size=50, show=False).batch_size == 50
    with pytest.raises(ValueError, match="every step uses all the data"):
        ib.check(ib.sgld(posterior, noise_correction=True), show=False)


# -- what it says -------------------------------------------------------------------------------------------------


def test_ticks_are_folded_and_shown_on_demand(capsys):
    report = ib.check(ib.Posterior({"x": dist.Normal(0.0, 1.0)}))
    folded = capsys.readouterr().out.splitlines()
    assert folded[0].startswith("✓ Ready for leimkuhler_matthews: step sizes ")
    assert folded[1] == f'({len(report.findings)} ticks are not shown: show="all" shows them.)'
    assert len(folded) == 2
    ib.check(ib.Posterior({"x": dist.Normal(0.0, 1.0)}), show="all")
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(report.findings)
    assert "Ready for" in report._repr_html_()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda p: ib.check(ib.sgld(p), "exp", show=False), "leave `transforms` and `gradient` out"),
        (
            lambda p: ib.check(ib.sgld(p, temperature=lambda step: 1.0 + step), show=False),
            "Nothing is known of what sgld",
        ),
        (lambda p: ib.check(ib.baselines.mirror(p), show=False), "Nothing is known of what mirror"),
        (lambda p: ib.check(p, show="some"), '"all"'),
        (lambda p: ib.check(p, seed=jax.random.key(0), show=False), "got a JAX random key. Give the number"),
    ],
)
def test_what_it_cannot_look_at_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))


def test_a_count_model_of_numpyros_own_gets_no_cross():
    counts = np.random.default_rng(0).negative_binomial(2, 0.3, size=500).astype(np.float32)
    posterior = ib.Posterior(
        {"mean": dist.Gamma(2.0, 0.5), "concentration": dist.Gamma(2.0, 0.5)},
        lambda t, n: dist.NegativeBinomial2(t["mean"], t["concentration"]).log_prob(n),
        counts,
    )
    report = ib.check(posterior, batch_size=100, show=False)
    assert report.ok, str(report)


def test_powers_that_only_say_that_there_is_no_mass_are_not_quoted():
    counts = np.random.default_rng(0).poisson(3.0, size=5_000).astype(np.float32)
    posterior = ib.Posterior({"rate": dist.Gamma(2.0, 0.5)}, lambda t, n: dist.Poisson(t["rate"]).log_prob(n), counts)
    (finding,) = ib.check(posterior, show=False).of("boundary")
    assert finding.message == "the density vanishes at its lower end, faster than gap^19"


def test_a_datum_that_the_model_does_not_allow_is_named():
    sizes = np.random.default_rng(0).gamma(2.0, size=300).astype(np.float32)
    sizes[77] = -3.0
    posterior = ib.Posterior({"rate": dist.Gamma(2.0, 0.5)}, lambda t, x: jnp.log(x) - t["rate"] * x, sizes)
    report = ib.check(posterior, batch_size=100, show=False)
    (finding,) = report.of("data")
    assert finding.values["rows"] == [77]
    assert "data = -3.0" in finding.message
    assert "nan" not in str(report)


def test_a_variable_whose_prior_leaves_the_range_of_the_model_is_blamed_itself():
    lives = np.random.default_rng(0).weibull(0.4, size=12).astype(np.float32)

    def log_likelihood(t, x):
        return jnp.log(t["shape"]) + (t["shape"] - 1) * jnp.log(x) - x ** t["shape"] * t["rate"] + jnp.log(t["rate"])

    posterior = ib.Posterior({"shape": dist.Normal(0.0, 2.0), "rate": dist.Gamma(2.0, 1.0)}, log_likelihood, lives)
    report = ib.check(posterior, init={"shape": 0.5, "rate": 1.0}, show=False)
    (shape,) = report.of("edges", "shape")
    assert shape.status == "problem"
    assert "where the model is not defined" in shape.remedy
    assert statuses(report, "edges") == ["ok", "problem"]


def test_a_posterior_finer_than_floats_gets_a_cross():
    y = (1e6 + np.random.default_rng(0).normal(size=5_000)).astype(np.float32)
    posterior = ib.Posterior({"mu": dist.Normal(0.0, 1e7)}, lambda t, y: dist.Normal(t["mu"], 1.0).log_prob(y), y)
    report = ib.check(posterior, batch_size=100, show=False)
    assert statuses(report, "precision") == ["problem"]
    with jax.enable_x64(True):
        posterior = ib.Posterior({"mu": dist.Normal(0.0, 1e7)}, lambda t, y: dist.Normal(t["mu"], 1.0).log_prob(y), y)
        assert statuses(ib.check(posterior, batch_size=100, show=False), "precision") == ["ok"]
