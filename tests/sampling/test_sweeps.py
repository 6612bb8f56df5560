"""An epoch forwards and then backwards: at its end, gradient noise has hardly an effect, correlated or not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.data.arrays import Sweeps
from inbounds.sampling import probe

ROWS, BATCH = 1_000, 25
EPOCH = ROWS // BATCH


def regression(correlation, noise=1.0):
    """(posterior, Hessian, mode) of a model that takes the noise of the response for 1: beyond that the gradient's noise is larger."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(ROWS, 2)) @ np.linalg.cholesky([[1, correlation], [correlation, 1]]).T).astype(np.float32)
    y = (x @ [1.0, -0.5] + noise * rng.normal(size=ROWS)).astype(np.float32)
    posterior = ib.Posterior(
        {"w": dist.Normal(0.0, 1e3).expand([2])},
        lambda theta, batch: -0.5 * jnp.square(batch["y"] - batch["x"] @ theta["w"]),
        {"x": x, "y": y},
    )
    hessian = x.T.astype(float) @ x.astype(float)
    return posterior, hessian, np.linalg.solve(hessian, x.T.astype(float) @ y)


def variances(correlation, length, order, noise=1.0):
    """Of Leimkuhler-Matthews over the exact ones, less 1, by the linear recursion of every minibatch.

    Args:
        correlation: of the features.
        length: steps in a sweep times step size times the largest curvature.
        order: "sweeps, ends", "sweeps, all steps"; "independent", "corrected", or "corrected in a metric", where they are independent, too.
        noise: of the response.
    """
    posterior, hessian, mode = regression(correlation, noise)
    x, y = (leaf.astype(float).reshape(EPOCH, BATCH, *leaf.shape[1:]) for leaf in map(posterior.data.get, "xy"))
    pushes = EPOCH * np.einsum("bni,bn->bi", x, y - x @ mode)
    factor = joint_map(hessian, pushes) if order == "corrected in a metric" else np.eye(2)
    x, pushes, curvature = x @ factor, pushes @ factor, factor.T @ hessian @ factor
    eps = length / (2 * EPOCH) / np.linalg.eigvalsh(curvature)[-1]
    root, eye, none = np.sqrt(eps / 2), np.eye(2), np.zeros((2, 2))
    amplitude = 2 * root * eye
    if order.startswith("corrected"):
        metric = ib.metrics.Dense({"w": mode}, factor, np.linalg.inv(factor)) if order.endswith("metric") else None
        kernel = ib.leimkuhler_matthews(posterior, metric=metric, noise_correction=True)
        step = kernel.recursion(eps, curvature, pushes.T @ pushes / EPOCH, np.ones(2)).transition
        amplitude = step[:2, 2:] + eps * root * curvature
    added, read_out = np.diag([0.0, 0, 1, 1]), factor @ np.hstack([eye, root * eye])
    maps = []
    for rows, push in zip(x, pushes, strict=True):
        pull = eps * EPOCH * rows.T @ rows
        maps.append((np.block([[eye - pull, amplitude - root * pull], [none, none]]), np.r_[eps * push, 0, 0]))
    if not order.startswith("sweeps"):
        both = np.mean([np.kron(step, step) for step, _ in maps], axis=0)
        total = added + np.mean([np.outer(push, push) for _, push in maps], axis=0)
        found = [np.linalg.solve(np.eye(16) - both, total.ravel()).reshape(4, 4)]
    else:
        sweep = maps + maps[::-1]
        through, push, total = np.eye(4), np.zeros(4), np.zeros((4, 4))
        for step, moved in sweep:
            through, push, total = step @ through, step @ push + moved, step @ total @ step.T + added
        mean = np.linalg.solve(np.eye(4) - through, push)
        covariance = np.linalg.solve(np.eye(16) - np.kron(through, through), total.ravel()).reshape(4, 4)
        found = []
        for step, moved in sweep:
            mean, covariance = step @ mean + moved, step @ covariance @ step.T + added
            found.append(covariance + np.outer(mean, mean))  # around the mode
        found = found[-1:] if order == "sweeps, ends" else found
    got = np.mean([np.diag(read_out @ c @ read_out.T) for c in found], axis=0)
    return got / np.diag(np.linalg.inv(hessian)) - 1


def joint_map(hessian, gradients):
    """L, in which the Hessian is the identity and the covariance of these gradients diagonal."""
    values, vectors = np.linalg.eigh(hessian)
    white = vectors / np.sqrt(values)
    return white @ np.linalg.eigh(white.T @ gradients.T @ gradients @ white)[1]


@pytest.mark.parametrize(
    ("correlation", "expected"),
    [
        (0.0, {"sweeps, ends": 0.002, "sweeps, all steps": 0.079, "independent": 1.57, "corrected": 0.57}),
        (0.5, {"sweeps, ends": 0.001, "sweeps, all steps": 0.028, "independent": 0.80, "corrected": -0.22}),
        (0.9, {"sweeps, ends": -0.000, "sweeps, all steps": 0.004, "independent": 0.14, "corrected": -0.55}),
    ],
)
def test_where_noise_is_beyond_correction_draws_at_the_ends_of_sweeps_are_right(correlation, expected):
    """The largest error of a variance: the noise is 16 times what the model says, a sweep as long as half the time of forgetting."""
    for order, error in (expected | {"corrected in a metric": 0.70}).items():
        found = variances(correlation, 0.5, order, noise=4.0)
        assert found[np.argmax(np.abs(found))] == pytest.approx(error, abs=0.001 if abs(error) < 0.01 else 0.02), order


def test_where_noise_can_be_corrected_in_a_metric_that_is_better_than_long_sweeps():
    """From where a sweep is half as long as the time of forgetting."""
    for length, factor in ((0.5, 1.0), (1.0, 1.5), (2.0, 2.5), (3.0, 4.0)):
        ends, left = (
            np.max(np.abs(variances(0.0, length, order))) for order in ("sweeps, ends", "corrected in a metric")
        )
        assert ends > factor * left, length


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_draws_at_the_ends_of_sweeps_have_hardly_an_error(correlation):
    """Where step size times curvature times the steps of a sweep is 0.5."""
    ends, through, independent = (
        np.max(np.abs(variances(correlation, 0.5, order)))
        for order in ("sweeps, ends", "sweeps, all steps", "independent")
    )
    assert ends < 0.0025
    assert independent > 25 * ends
    assert independent > 10 * through


def test_the_remnant_is_of_second_order_in_the_length_of_a_sweep():
    lengths = np.array([0.5, 1.0, 2.0])
    off = [np.max(np.abs(variances(0.0, length, "sweeps, ends"))) for length in lengths]
    assert 1.5 < np.polyfit(np.log(lengths), np.log(off), 1)[0] < 3.5


def test_minibatches_go_forwards_and_back():
    source = Sweeps({"x": np.arange(10)}, 3)
    starts = np.asarray(source.plan(jax.random.key(0), jnp.arange(24)))
    assert source.cycle == 8
    for sweep in starts.reshape(3, 8):
        np.testing.assert_array_equal((sweep[:4] - sweep[0]) % 10, [0, 3, 6, 9])
        np.testing.assert_array_equal(sweep[4:], sweep[3::-1])
    assert len(set(starts[::8])) > 1  # from another place each time


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")  # minibatches on purpose too noisy for the others
def test_a_run_of_sweeps_keeps_their_ends_and_has_the_right_law(optimised):
    posterior, hessian, mode = regression(0.5)
    size = 2.0 / (2 * EPOCH) / np.linalg.eigvalsh(hessian)[-1]
    start = {"w": mode.astype(np.float32)}
    run = dict(num_steps=8_000, burn_in=400, batch_size=BATCH, num_chains=32, init=start, progress=False)
    kernel = ib.leimkuhler_matthews(posterior)
    draws = ib.sample(kernel, size, batching="sweeps", **run)
    assert (draws.thin, draws.num_draws) == (2 * EPOCH, 95)
    ratio = draws.theta["w"].std(axis=(0, 1)) / np.sqrt(np.diag(np.linalg.inv(hessian)))
    np.testing.assert_allclose(ratio, 1, atol=0.05)
    assert not [note for note in draws.of_steps if note.loud]
    noisy = ib.sample(kernel, size, batching="replacement", **run | {"thin": 80})
    assert np.max(noisy.theta["w"].std(axis=(0, 1)) / np.sqrt(np.diag(np.linalg.inv(hessian)))) > 1.06


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")  # minibatches on purpose too noisy for the others
def test_an_underdamped_run_of_sweeps_has_the_right_law(optimised):
    """Of second order with one gradient per step: its kicks and moves come in the order of OABAO."""
    posterior, hessian, mode = regression(0.5)
    largest = np.sqrt(np.linalg.eigvalsh(hessian)[-1])
    size = (3.0 / (2 * EPOCH) / largest) ** 2 / 2
    start = {"w": mode.astype(np.float32)}
    run = dict(num_steps=8_000, burn_in=400, batch_size=BATCH, num_chains=32, init=start, progress=False)
    kernel = ib.baoab(posterior, friction=0.8 * largest)
    for batching, thin in (("sweeps", 1), ("replacement", 80)):
        draws = ib.sample(kernel, size, batching=batching, thin=thin, **run)
        ratio = draws.theta["w"].std(axis=(0, 1)) / np.sqrt(np.diag(np.linalg.inv(hessian)))
        assert (np.max(np.abs(ratio - 1)) < 0.04) == (batching == "sweeps")
        assert draws.num_draws == 95
    assert np.min(ratio) > 1.2


@pytest.mark.parametrize(("rate", "epoch"), [(0.01, 40), (0.05, 20), (0.2, 10)])
def test_what_sweeps_leave_of_independent_noise_is_what_is_predicted(rate, epoch):
    rng = np.random.default_rng(0)
    decay = (1 - rate) ** np.arange(2 * epoch)[::-1]
    noise = rng.normal(size=(4_000, epoch))
    noise -= noise.mean(axis=1, keepdims=True)
    noise /= np.sqrt(1 - 1 / epoch)
    gained = np.var(np.concatenate([noise, noise[:, ::-1]], axis=1) @ decay) / (1 - (1 - rate) ** (4 * epoch))
    exact = gained * (1 - (1 - rate) ** 2)
    assert probe._left_by_sweeps(np.array([rate]), epoch)[..., 0].item() == pytest.approx(exact, rel=0.1, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda p: ib.sgld(p, noise_correction=True), {}, "without `noise_correction`"),
        (ib.sgnht, {}, "without `noise_correction`"),
        (ib.sgld, {"num_steps": 79}, "A sweep has 80 steps"),
        (ib.sgld, {"devices": ib.Layout(data=1, shard={"w": "x"})}, "divided over devices"),
        (lambda _: ib.sgld(ib.Posterior({"x": dist.Normal()})), {"batch_size": None}, "a posterior without data"),
    ],
    ids=["corrected", "thermostat", "short", "devices", "no data"],
)
def test_where_sweeps_do_not_fit_they_are_refused(make, options, message):
    run = {"num_steps": 160, "batch_size": BATCH, "progress": False, "batching": "sweeps"} | options
    with pytest.raises(ValueError, match=message):
        ib.sample(make(regression(0.5)[0]), 1e-5, **run)
