"""A run of `ib.infer` is a run like others: stores, checkpoints, Ctrl-C, streams, devices, bars; and its certificate is honest in each."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import inbounds as ib
from inbounds.inference import _infer, stopping, windows
from inbounds.sampling import progress, run
from tests.inference.spending import exact, of_spending, spending

ROOT = Path(__file__).parents[2]
PATIENCE = 900  # seconds for what takes some, on a machine that is busy with something else


def same(draws, other):
    one, two = draws.certificate, other.certificate
    return np.array_equal(draws.theta["rate"], other.theta["rate"]) and (one.choices, one.reached) == (
        two.choices,
        two.reached,
    )


def often(folder):
    return ib.Checkpoint(folder, every_seconds=None, every_steps=1_024)


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """Whatever started the tests: a shell lets what it runs in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def at_look(monkeypatch):
    """Does something when the draws are looked at for the n-th time, in the place of deciding."""
    whole = stopping.Enough.enough

    def do(**by_number):
        seen = []

        def enough(self, draws):
            seen.append(1)
            decided = whole(self, draws)
            act = by_number.get(f"look_{len(seen)}")
            return decided if act is None else act(self)

        monkeypatch.setattr(stopping.Enough, "enough", enough)

    return do


def too_long(enough):
    enough.why = "bias"
    return True


def ctrl_c(enough):
    enough.why = ""
    signal.raise_signal(signal.SIGINT)
    return False


def test_a_store_and_checkpoints_change_no_draw(certified, tmp_path):
    pytest.importorskip("zarr")
    pytest.importorskip("orbax.checkpoint")
    draws = of_spending(store=tmp_path / "s", checkpoint=tmp_path / "c")
    assert same(draws, certified)
    assert (tmp_path / "s" / "zarr.json").exists()


def test_a_run_is_gone_on_with_to_a_smaller_error(certified, tmp_path, monkeypatch):
    pytest.importorskip("orbax.checkpoint")
    of_spending(checkpoint=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(run.Run, "chunk", lambda *_: pytest.fail("it makes a step"))
        again = of_spending(checkpoint=tmp_path, resume=True)
    assert same(again, certified)
    assert again.certificate.costs.get("seconds of mode") is None  # nothing was looked for anew
    longer = of_spending(checkpoint=tmp_path, resume=True, error=0.03)
    assert same(longer, of_spending(error=0.03))
    assert longer.num_draws > certified.num_draws
    assert longer.certificate.ok
    assert longer.certificate.reached <= 0.03


def test_shorter_steps_begin_a_run_anew_and_it_is_resumed_where_it_was_interrupted(at_look, tmp_path):
    """With a store and checkpoints: the first run finds its steps too long, the second is interrupted."""
    pytest.importorskip("zarr")
    pytest.importorskip("orbax.checkpoint")
    at_look(look_1=too_long)
    whole = of_spending()
    assert "0.12 in the fine chain" in whole.certificate.choices["steps"]
    places = {"store": tmp_path / "s", "checkpoint": often(tmp_path / "c")}
    at_look(look_1=too_long, look_2=ctrl_c)
    with pytest.raises(
        ib.Interrupted, match=r"in the store .*, with their certificate. Go on with the same call"
    ) as caught:
        of_spending(**places)
    assert caught.value.draws.num_draws < whole.num_draws
    at_look()
    assert same(of_spending(**places, resume=True), whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resume": False}, "holds checkpoints of an inference. Go on from there with resume=True"),
        ({"seed": 1}, "of another inference: seed is 0 there and 1 here"),
        ({"method": "full"}, "method is minibatch there and full here"),
    ],
)
def test_the_folder_of_another_inference_is_refused(changes, message, tmp_path, monkeypatch):
    pytest.importorskip("orbax.checkpoint")
    of_spending(checkpoint=tmp_path)
    monkeypatch.setattr(_infer, "look_around", lambda *_: pytest.fail("it has begun to work"))
    with pytest.raises(ValueError, match=message):
        of_spending(**{"checkpoint": tmp_path, "resume": True} | changes)


def test_a_damaged_journal_says_so(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    (tmp_path / "inference.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"inference.npz cannot be read as what ib.infer left there"):
        of_spending(checkpoint=tmp_path, resume=True)


def test_a_store_that_exists_is_refused_before_any_work(tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine").touch()
    monkeypatch.setattr(_infer, "look_around", lambda *_: pytest.fail("it has begun to work"))
    with pytest.raises(ValueError, match="holds something else"):
        of_spending(store=tmp_path / "s")


def test_ctrl_c_hands_over_the_draws_with_an_honest_certificate(at_look):
    at_look(look_1=ctrl_c)
    with pytest.raises(
        ib.Interrupted, match=r"draws until then are in `error.draws`, with their certificate.$"
    ) as caught:
        of_spending(error=0.01)
    found = caught.value.draws.certificate
    assert not found.ok
    assert any("interrupted" in reason for reason in found.reasons)
    assert 0 < found.mean_error["rate"] < 0.1
    assert "NOT CERTIFIED" in str(caught.value.draws.summary())


def test_ctrl_c_before_the_long_run_certifies_nothing(monkeypatch):
    sample = windows._window

    def interrupted(setup, *more):
        draws = sample(setup, *more)
        raise ib.Interrupted("stopped", draws)

    monkeypatch.setattr(windows, "_window", interrupted)
    with pytest.raises(ib.Interrupted) as caught:
        of_spending()
    found = caught.value.draws.certificate
    assert not found.ok
    assert "still looked for its metric" in found.reasons[0]


def test_without_a_terminal_there_is_a_line_now_and_then(caplog, monkeypatch):
    monkeypatch.setattr(stopping, "LINE_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="inbounds"):
        of_spending(progress=True, error=0.03)
        assert any("draws per chain, error 0." in line and "of 0.03, about" in line for line in caplog.messages)
        caplog.clear()
        of_spending()
        assert not caplog.messages


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_shows_the_error_it_has_reached_and_the_time_left(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    of_spending(progress=True, error=0.03)
    shown = sys.stderr.getvalue()
    assert "of 0.03, about" in shown
    assert " left" in shown
    assert "%|" not in shown  # nobody knows how many steps there will be


def test_rows_on_disk_are_read_as_those_in_memory_are(tmp_path):
    pytest.importorskip("grain")
    posterior = spending()
    np.save(tmp_path / "spent.npy", posterior.data)
    rows = ib.data.stream({"spent": tmp_path / "spent.npy"})
    on_disk = ib.Posterior(posterior.priors, lambda theta, batch: posterior.log_likelihood(theta, batch["spent"]), rows)
    draws = ib.infer(on_disk, method="minibatch", error=0.1, num_chains=2, progress=False)
    mean, sd = exact(posterior)
    assert draws.certificate.ok, draws.certificate.reasons
    assert abs(draws.certificate.mean["rate"] - mean) / sd < 3 * draws.certificate.mean_error["rate"]


def test_chains_over_devices_are_those_of_one():
    """The devices must be there before JAX starts, so another process has them."""
    command = [sys.executable, "-m", "tests.inference.on_two_devices"]
    environment = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    answer = json.loads(ended.stdout.splitlines()[-1])
    assert answer == {"devices": 2, "ok": True, "apart": pytest.approx(0, abs=1e-4)}
