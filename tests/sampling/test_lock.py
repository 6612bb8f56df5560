"""Two runs that write to one place at once: one goes on undisturbed, the other is told so."""

import contextlib
import errno
import os
import signal

import jax
import numpy as np
import pytest

import inbounds as ib
from inbounds.sampling import lock
from tests.models_for_tests import poisson_rates

# What these runs do is looked at, not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

pytest.importorskip("zarr")
pytest.importorskip("orbax.checkpoint")
pytest.importorskip("fcntl")

RUN = dict(step_size=1e-3, num_steps=3_000, thin=31, batch_size=8, num_chains=2, seed=5, progress=False)
ARGUMENTS = ["store", "checkpoint"]


def run(**options):
    return ib.sample(ib.sgld(poisson_rates()), **(RUN | options))


@pytest.fixture(scope="module")
def alone():
    """What each of the writers finds when nobody is in its way, by its seed."""
    from tests.sampling import victim

    return {seed: ib.sample(**victim.settings(3_000) | dict(seed=seed)).theta["rate"] for seed in (1, 2)}


class Writer:
    """A run in a process of its own, that waits where it is told to."""

    def __init__(self, nursery, folder, seed, argument, begin=None):
        from tests.sampling import victim

        self.begin, self.inside, self.end = begin or nursery.Event(), nursery.Event(), nursery.Event()
        self.answers = nursery.SimpleQueue()
        events = (self.begin, self.inside, self.end, self.answers)
        self.process = nursery.Process(target=victim.write, args=(str(folder), seed, argument, *events))
        self.process.start()

    def answer(self):
        self.end.set()
        _, answer = self.answers.get()
        self.process.join()
        assert self.process.exitcode == 0
        return answer


@pytest.fixture
def writer(nursery):
    """Makes writers, which are gone in the end, also where a test fails."""
    made = []

    def make(*arguments):
        made.append(Writer(nursery, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.join()


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_run_is_told_who_writes_to_its_folder_and_goes_on_when_that_process_is_dead(
    argument, writer, alone, tmp_path
):
    folder = tmp_path / "run"
    for ends in (False, True):  # killed, and left in peace
        other = writer(folder, 1, argument)
        other.begin.set()
        other.inside.wait()
        for options in ({}, {"resume": True}):
            place = {"checkpoint": tmp_path / "other"} | {argument: folder}
            with pytest.raises(
                ValueError, match=rf"Another run is writing to the {argument} .*: process {other.process.pid} on"
            ):
                run(**place, **options)
        if ends:
            np.testing.assert_array_equal(other.answer(), alone[1])
        else:
            os.kill(other.process.pid, signal.SIGKILL)
            other.process.join()
            folder = tmp_path / "run again" if argument == "store" else folder  # it exists, and had no checkpoint
    assert not (folder / lock.NAME).exists()


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_of_two_processes_that_start_at_once_one_has_its_own_draws_and_the_other_an_error(
    argument, nursery, writer, alone, tmp_path
):
    begin = nursery.Event()
    writers = [writer(tmp_path / "run", seed, argument, begin) for seed in (1, 2)]
    begin.set()
    for one in writers:
        one.inside.wait()
    answers = {seed: one.answer() for seed, one in zip((1, 2), writers, strict=True)}
    refused = [answer for answer in answers.values() if isinstance(answer, str)]
    assert len(refused) == 1
    assert f"Another run is writing to the {argument}" in refused[0]
    for seed, answer in answers.items():
        if not isinstance(answer, str):
            np.testing.assert_array_equal(answer, alone[seed])


def test_the_lock_is_held_by_one_at_a_time_however_often_it_changes_hands(nursery, tmp_path):
    from tests.sampling import victim

    counter, begin, answers = tmp_path / "counter", nursery.Event(), nursery.SimpleQueue()
    counter.write_text("0")
    arguments = (str(tmp_path / "run"), str(counter), begin, answers)
    processes = [nursery.Process(target=victim.count_up, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    begin.set()
    assert sum(answers.get() for _ in processes) == int(counter.read_text()) > 4
    for process in processes:
        process.join()


def test_a_file_that_another_run_has_replaced_before_it_was_locked_is_no_lock(tmp_path, monkeypatch):
    flock, others = lock._lock, contextlib.ExitStack()

    def late(number, folder, what):
        monkeypatch.setattr(lock, "_lock", flock)
        (folder / lock.NAME).unlink()  # whoever held it ends here, and the next one begins
        others.enter_context(lock.only_writer(folder, what))
        flock(number, folder, what)

    monkeypatch.setattr(lock, "_lock", late)
    with others, pytest.raises(ValueError, match="Another run is writing"), lock.only_writer(tmp_path, "store"):
        pass
    with lock.only_writer(tmp_path, "store"):
        assert (tmp_path / lock.NAME).exists()
    assert not (tmp_path / lock.NAME).exists()


def test_two_threads_of_one_process_are_two_runs(tmp_path):
    found = []

    def monitor(done, collected):
        if not found:
            with pytest.raises(ValueError, match=f"process {os.getpid()} on") as caught:
                run(store=tmp_path / "run.zarr", seed=6)
            found.append(caught.value)

    draws = run(store=tmp_path / "run.zarr", monitor=monitor)
    assert found
    np.testing.assert_array_equal(draws.theta["rate"], run().theta["rate"])


def test_in_an_object_store_which_knows_no_locks_a_run_notices_another_and_stops():
    fsspec = pytest.importorskip("fsspec")
    found = []

    def monitor(done, collected):
        if not found:
            found.append(done)
            fsspec.filesystem("memory").rm("/shared.zarr", recursive=True)  # as if neither had seen the other begin
            found.append(run(store="memory://shared.zarr", seed=6).theta["rate"])

    with pytest.raises(ValueError, match=r"Another run has written to the store memory://shared.zarr"):
        run(store="memory://shared.zarr", chunk_steps=1, monitor=monitor)
    np.testing.assert_array_equal(found[1], run(seed=6).theta["rate"])


def test_where_a_folder_cannot_be_locked_the_run_says_what_to_see_to(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match=r"store .*run.zarr cannot be locked .*Make sure that no other run"):
        draws = run(store=tmp_path / "run.zarr")
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), draws.theta, run().theta))


def test_only_folders_of_this_machine_are_locked(tmp_path):
    assert lock.local_folder(f"file://{tmp_path}") == lock.local_folder(tmp_path) == tmp_path
    assert lock.local_folder("s3://bucket/run.zarr") is None
    assert lock.local_folder("simplecache::s3://bucket/run.zarr") is None
