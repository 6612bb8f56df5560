"""Many devices and many processes: the same draws, the same posterior, nothing but gradients on the way, and a clear end."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import inbounds as ib
from tests.sampling import counts_by_group, one_of_two_processes

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

ROOT = Path(__file__).parents[2]
PATIENCE = 900  # seconds for what takes some, on a machine that is busy with something else
ENVIRONMENT = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def eight():
    """What eight simulated devices answer; they must be there before JAX starts, so another process has them."""
    command = [sys.executable, "-m", "tests.sampling.on_eight_devices"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_chains_on_eight_devices_are_those_of_one_and_talk_to_nobody(eight):
    assert eight["chains and data"]["chains"] < 1e-5
    assert eight["chains and data"]["traffic of chains"] == {}


def test_all_the_data_on_several_devices_give_the_draws_of_one_also_after_resuming_on_fewer(eight):
    assert eight["chains and data"]["all the data"] < 1e-4
    assert eight["chains and data"]["draws"] == [128, 256, 256]


def test_only_the_sum_of_the_gradients_travels(eight):
    # Eight chains on two groups of four devices: four chains' gradients are summed, and the data stay where they are.
    assert eight["chains and data"]["traffic of both"] == {"all-reduce": [f"f32[4,{counts_by_group.GROUPS}]"]}


def test_chains_in_a_metric_on_eight_devices_are_those_of_one(eight):
    assert set(eight["metrics"]) == {"dense", "low rank", "per row"}
    assert max(eight["metrics"].values()) < 1e-3


def test_minibatches_on_several_devices_give_the_exact_posterior(eight):
    assert eight["minibatches"]["mean"] < 0.45
    assert eight["minibatches"]["sd"] == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("kind", ["epochs", "halves", "per example"])
def test_unequal_shares_of_the_data_are_weighted_without_bias(eight, kind):
    estimate = eight[kind]
    assert len(set(estimate["counts"])) > 1
    assert sum(estimate["counts"]) == counts_by_group.ROWS
    assert estimate["bias"] < 4.5  # standard errors, the largest of 64
    if kind != "epochs":  # whose windows are few, and known to cancel within an epoch
        assert estimate["variance"] == pytest.approx(1.0, abs=0.03)


def test_factors_divided_by_user_give_the_draws_of_one_device(eight):
    assert eight["factors"]["all the data"] < 1e-4


def test_of_divided_factors_only_the_gradient_of_the_items_travels(eight):
    large = eight["factors"]["large"]
    assert large["finite"]
    assert large["shards"] == [[1, large["users"] // 4, 3]] * 4
    assert max(large["counts"]) < 1.1 * min(large["counts"])  # though a few users have most of the ratings
    assert set(large["traffic"]) == {"all-reduce"}
    assert set(large["traffic"]["all-reduce"]) <= {"f32[6,3]", "f32[]", "f32[1]", "pred[]"}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("too many", "16 devices are asked for"),
        ("chains", "Use 4 or 8 chains, or 2 or 3 devices"),
        ("axes", r"has the axes ('model',)"),
        ("kind", "`devices` must be"),
        ("batch", "Use 96 or 104."),
        ("larger", "larger than the data, 803 rows"),
        ("variable", "no variable 'W'. There are rate."),
        ("key", "the data have no 'user'. They have count, group."),
        ("rows", "balanced_numbering(keys, multiple_of=3)"),
        ("svrg", "divide the chains only"),
    ],
)
def test_what_does_not_fit_is_answered_with_what_does(eight, case, words):
    assert words in eight["errors"][case]


def test_numbers_are_balanced_for_every_number_of_devices():
    generator = np.random.default_rng(0)
    activity = np.sort(generator.lognormal(sigma=1.0, size=5_000))[::-1]
    keys = generator.choice(5_000, 200_000, p=activity / activity.sum())
    numbering = ib.data.balanced_numbering(keys, multiple_of=64)
    assert numbering.size % 64 == 0
    assert np.unique(numbering.number).size == keys.max() + 1
    for devices in (2, 8, 64):
        shares = np.bincount(numbering.number[keys] // (numbering.size // devices), minlength=devices)
        assert shares.max() < (1.1 if devices == 64 else 1.02) * keys.size / devices


@contextlib.contextmanager
def _port():
    """A port that nobody else is given meanwhile: it stays taken here, and JAX's coordinator, which may, takes it too."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("", 0))
        yield one.getsockname()[1]


@contextlib.contextmanager
def _started(folder, num_steps):
    """Two processes, which are gone in the end."""
    module = "tests.sampling.one_of_two_processes"
    with _port() as port:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", module, str(port), str(number), str(folder), str(num_steps)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=ENVIRONMENT,
            )
            for number in (0, 1)
        ]  # fmt: skip
        try:
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.communicate()


def _checkpoints(folder):
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def test_two_processes_run_one_chain_and_survive_the_loss_of_one(tmp_path):
    folder = tmp_path / "run"
    with _started(folder, 20_000_000) as (first, second):  # too many to finish
        until = time.monotonic() + PATIENCE
        while len(_checkpoints(folder)) < 2:
            assert first.poll() is None, first.communicate()
            assert second.poll() is None, second.communicate()
            assert time.monotonic() < until, "no checkpoint"
            time.sleep(0.1)
        second.kill()
        out, err = first.communicate(timeout=PATIENCE)
    assert "lost contact with another process" in out + err or "another task died" in err

    # Both again, from the last checkpoint; and one process alone, from a copy of it.
    alone = shutil.copytree(folder, tmp_path / "alone")
    num_steps = _checkpoints(folder)[-1] + 2 * one_of_two_processes.EVERY
    with _started(folder, num_steps) as processes:
        answers = [json.loads(process.communicate(timeout=PATIENCE)[0].splitlines()[-1]) for process in processes]
    assert answers[0] == answers[1]

    kernel = ib.sgld(counts_by_group.posterior(counts_by_group.data()))
    settings = one_of_two_processes.SETTINGS | dict(num_steps=num_steps, thin=8)
    resumed = ib.sample(kernel, checkpoint=alone, resume=True, **settings)
    whole = ib.sample(kernel, **settings)
    assert answers[0]["draws"] == resumed.num_draws == whole.num_draws == num_steps // 8
    np.testing.assert_allclose(resumed.theta["rate"], whole.theta["rate"], rtol=1e-3)
    np.testing.assert_allclose(answers[0]["last"], whole.theta["rate"][:, -1], rtol=1e-3)
