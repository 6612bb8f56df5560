"""What is predicted of steps at the end of a run, against exact laws: of Gaussians, and of noise that an epoch takes back."""

import re

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.sampling import probe

SECTIONS = ("step-size", "gradient-noise", "correlated-noise", "frozen-adaptation", "not-judged")
ROWS = 2_000


def regression(correlation):
    generator = np.random.default_rng(0)
    x = generator.multivariate_normal(np.zeros(2), [[1, correlation], [correlation, 1]], size=ROWS).astype(np.float32)
    y = (x @ [1.0, -0.5] + generator.normal(size=ROWS)).astype(np.float32)
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 10.0).expand([2])},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - batch["x"] @ theta["w"]),
        {"x": x, "y": y},
    )
    precision = x.astype(float).T @ x + np.eye(2) / 100
    return posterior, np.linalg.solve(precision, x.T @ y).astype(np.float32), np.sqrt(np.diag(np.linalg.inv(precision)))


POSTERIOR, MODE, SD = regression(0.9)


def steps(kernel, step_size, num_steps=4_000, **options):
    """What a run says of its steps, by section, and the sds over the exact ones."""
    options = (
        dict(burn_in=num_steps // 10, num_chains=4, init={"w": MODE}, on_failure="raise", progress=False) | options
    )
    draws = ib.sample(kernel, step_size, num_steps, **options)
    return {note.section: note.text for note in draws.of_steps}, draws.theta["w"].std(axis=(0, 1)) / SD


def percent(text):
    """The errors that a note predicts."""
    return [float(word.rstrip("%")) / 100 for word in text.split() if word[0] in "+-" and word.endswith("%")]


# Some of these runs are too short for R-hat: what is looked at is what they say of their steps.
short = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


@short
def test_a_run_within_the_doctors_range_says_nothing_of_its_steps():
    assert steps(ib.sgld(POSTERIOR), 1e-4)[0] == {}
    assert steps(ib.leimkuhler_matthews(POSTERIOR), 1e-5, batch_size=200)[0] == {}


def test_steps_too_large_for_the_curvature_are_noted_with_the_error_that_they_make():
    with pytest.warns(ib.UntrustworthyWarning, match="too large for the curvature"):
        said, ratio = steps(ib.sgld(POSTERIOR), 4e-4, 20_000)
    # Stationary variance of Euler along a curvature: 1 / (1 - step curvature / 2).
    np.testing.assert_allclose(percent(said["step-size"]), ratio.max() - 1, atol=0.03)
    assert "Try a step size of 0.0001" in said["step-size"] or "Try a step size of 0.0002" in said["step-size"]


@short
@pytest.mark.parametrize(
    "gradient",
    [
        ib.gradients.minibatch(variance="successive"),
        ib.gradients.control_variate(center={"w": MODE}),
        ib.gradients.svrg(every=100),
        ib.gradients.taylor(center={"w": MODE}),
    ],
    ids=["successive", "control variate", "svrg", "taylor"],
)
def test_steps_are_judged_through_gradients_that_have_a_state(gradient):
    kernel = ib.sgld(POSTERIOR, gradient=gradient, noise_correction=True)
    assert steps(kernel, 1e-6, 1_000, batch_size=400)[0] == {}
    said, _ = steps(kernel, 5e-4, 1_000, batch_size=400)
    assert set(said) - {"not-judged"}


@short
@pytest.mark.parametrize("kernel", [ib.baoab, ib.sgnht])
def test_noise_that_a_kernel_cannot_absorb_is_noted(kernel):
    said, _ = steps(kernel(POSTERIOR), 2e-5, batch_size=20, batching="replacement")
    assert set(said) & {"gradient-noise", "step-size"}


@short
@pytest.mark.parametrize(("step_size", "least", "most"), [(1e-5, -0.08, -0.025), (4e-5, -0.25, -0.15)])
def test_correlated_noise_that_the_correction_ignores_is_noted_with_its_sign(step_size, least, most):
    kernel = ib.leimkuhler_matthews(POSTERIOR, noise_correction=True)
    said, ratio = steps(kernel, step_size, 20_000, batch_size=200)
    assert list(said) == ["correlated-noise"]
    for predicted in percent(said["correlated-noise"]):
        assert least < predicted < most
        assert predicted == pytest.approx(np.mean(ratio) - 1, abs=0.05)


@short
def test_correction_of_independent_noise_is_not_blamed():
    posterior, mode, _ = regression(0.0)
    kernel = ib.leimkuhler_matthews(posterior, noise_correction=True)
    assert steps(kernel, 2e-5, batch_size=200, init={"w": mode})[0] == {}


@short
def test_the_last_step_of_a_schedule_counts():
    assert steps(ib.sgld(POSTERIOR), lambda step: jnp.where(step < 3_999, 4e-4, 1e-5))[0] == {}
    assert "step-size" in steps(ib.sgld(POSTERIOR), lambda step: jnp.where(step < 3_999, 1e-5, 4e-4))[0]


@short
def test_a_preconditioner_counts():
    scale = {"w": np.float32([1e-3, 1e-3])}
    assert steps(ib.sgld(POSTERIOR, preconditioner=scale), 0.1)[0] == {}
    assert "step-size" in steps(ib.sgld(POSTERIOR, preconditioner=scale), 0.5)[0]


@short
def test_a_metric_of_a_block_per_row_counts():
    generator = np.random.default_rng(0)
    group = np.arange(600) % 6
    data = {"group": group, "y": (0.5 * group + generator.normal(size=600)).astype(np.float32)}
    posterior = ib.Posterior(
        {"a": dist.Normal(0.0, 10.0).expand([6])},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - theta["a"][batch["group"]]),
        data,
    )
    center = {"a": np.asarray([data["y"][group == i].mean() for i in range(6)])}
    kernel = ib.sgld(posterior, metric=ib.metrics.per_row(posterior, center, ["a"]))
    draws = [ib.sample(kernel, size, 2_000, burn_in=100, init=center, progress=False) for size in (0.1, 1.0)]
    assert [[note.section for note in run.of_steps] for run in draws] == [[], ["step-size"]]


@short
def test_scales_that_were_frozen_on_the_way_are_noted():
    adaptive = ib.preconditioners.rmsprop(20)
    far = {"w": MODE + np.float32(5.0)}
    said, _ = steps(ib.sgld(POSTERIOR, preconditioner=adaptive), 0.5, init=far)
    assert "frozen-adaptation" in said
    assert "longer `adapt_steps`" in said["frozen-adaptation"]


@short
def test_a_step_a_thousand_times_too_large_is_noted_where_no_gaussian_is_like_the_posterior():
    generator = np.random.default_rng(0)
    data = generator.gamma(3.0, 2.0, 1_000).astype(np.float32)
    priors = {"shape": dist.Gamma(2.0, 0.5), "rate": dist.Gamma(2.0, 0.5)}
    posterior = ib.Posterior(priors, lambda t, y: dist.Gamma(t["shape"], t["rate"]).log_prob(y), data)
    # Chains jump between the ends of what floats hold. Whether it is the slopes or the numbers at a bound that tell hangs on the last bits.
    with pytest.warns(
        ib.UntrustworthyWarning, match="steps are much too large|too large for the noise|next to a bound"
    ):
        ib.sample(ib.sgld(posterior), 1e-2, 4_000, batch_size=50, num_chains=4, batching="replacement", progress=False)
    # Without data, and so without noise, the slopes alone say it.
    prior = ib.Posterior({"x": dist.Gamma(2.0, 1.0), "y": dist.Beta(2.0, 2.0)})
    draws = ib.sample(ib.sgld(prior), 500.0, 4_000, num_chains=4, progress=False)
    assert [note.section for note in draws.of_steps if note.loud] == ["step-size"]


@short
@pytest.mark.parametrize("step_size", [0.3, 1.5, 1.9])
def test_in_many_dimensions_draws_that_lie_too_far_out_are_noted(step_size):
    # Euler's variance is 1 / (1 - step / 2).
    wide = ib.Posterior({"w": dist.Normal(0.0, 1.0).expand([200]), "x": dist.Normal(0.0, 10.0)})
    draws = ib.sample(ib.sgld(wide), step_size, 4_000, burn_in=200, num_chains=4, progress=False)
    (note,) = draws.of_steps
    assert note.section == ("not-judged" if step_size < 1 else "step-size")
    if step_size > 1:
        found = re.search("by factors of about ([0-9.]+) for 'w'[.] ", note.text)
        assert float(found[1]) == pytest.approx((1 - step_size / 2) ** -0.5, rel=0.15)


@short
def test_one_number_of_many_that_lies_far_out_is_named():
    scales = np.ones(200, np.float32)
    scales[7] = 0.1  # a step is 1.9 over its curvature
    wide = ib.Posterior({"w": dist.Normal(0.0, scales)})
    draws = ib.sample(ib.sgld(wide), 0.019, 8_000, burn_in=500, num_chains=4, progress=False)
    (note,) = draws.of_steps
    assert "for 'w[7]'." in note.text


@short
@pytest.mark.parametrize(
    ("kernel", "options", "why"),
    [
        (ib.baselines.mirror(ib.Posterior({"w": dist.HalfNormal(1.0)})), {"init": None}, "nothing is known of what mirror"),
        (ib.sgld(ib.Posterior({"w": dist.Normal(0.0, 1.0).expand([200])})), {"init": None}, "a matrix of 200 x 200"),
        (ib.sgld(POSTERIOR), {"collect": ib.collect.mean_and_variance()}, "kept no draws"),
        (ib.sgld(POSTERIOR, temperature=0.0), {}, "temperature 0"),
    ],
    ids=["mirror", "wide", "collect", "cold"],
)  # fmt: skip
def test_where_steps_are_not_judged_it_says_why_and_does_not_warn(kernel, options, why):
    draws = ib.sample(kernel, 1e-5, 200, **{"init": {"w": MODE}, "progress": False} | options)
    (note,) = draws.of_steps
    assert note.section == "not-judged"
    assert why in note.text
    assert not note.loud


@short
def test_a_model_that_fails_under_the_probe_loses_no_draws(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("of the model")

    monkeypatch.setattr(probe, "_look", fails)
    draws = ib.sample(ib.sgld(POSTERIOR), 1e-5, 200, init={"w": MODE}, progress=False)
    (note,) = draws.of_steps
    assert "ZeroDivisionError: of the model" in note.text
    assert note.loud  # nothing else would ever say that the steps of such runs are not judged
    assert draws.num_draws == 200


@pytest.mark.parametrize(("rate", "epoch"), [(0.002, 50), (0.05, 20), (0.2, 40)])
def test_noise_that_an_epoch_takes_back_counts_for_what_it_leaves(rate, epoch):
    # x' = (1 - rate) x + noise whose sum over an epoch is zero: the variance over that of independent noise.
    decay = (1 - rate) ** np.arange(epoch)
    centring = np.eye(epoch) - 1 / epoch
    within = np.array([np.r_[decay[: s + 1][::-1], np.zeros(epoch - s - 1)] for s in range(epoch)])
    own = np.einsum("si,ij,sj->s", within, centring, within)
    at_ends = own[-1] / (1 - (1 - rate) ** (2 * epoch))
    exact = np.mean(own + (1 - rate) ** (2 * np.arange(1, epoch + 1)) * at_ends) * (1 - (1 - rate) ** 2)
    assert probe._share_left(np.array([rate * epoch]))[0] == pytest.approx(exact, rel=0.15, abs=0.01)


@short
def test_a_second_run_compiles_no_probe():
    traced = []

    def log_likelihood(theta, batch):
        traced.append(1)
        return -0.5 * jnp.square(batch - theta["x"])

    kernel = ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1.0)}, log_likelihood, np.zeros(50, np.float32)))
    ib.sample(kernel, 1e-3, 300, batch_size=5, progress=False)
    first = len(traced)
    ib.sample(kernel, 2e-3, 900, batch_size=5, seed=1, progress=False)
    assert len(traced) == first
