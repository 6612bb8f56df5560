"""Several workers and one study in PostgreSQL: a real server, a worker killed, every trial counted once, no password shown."""

import contextlib
import getpass
import glob
import logging
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import inbounds.tuning
from inbounds import cli
from inbounds.tuning import tune

optuna = pytest.importorskip("optuna")
psycopg = pytest.importorskip("psycopg")

PASSWORD = "s3cr3t:p@ss"
QUOTED = "s3cr3t%3Ap%40ss"
PATIENCE = 600  # seconds for what happens within one, on a machine that is busy with something else


def server_programs():
    found = shutil.which("initdb") and shutil.which("postgres")
    folders = [os.path.dirname(found)] if found else sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
    folders += glob.glob("/opt/homebrew/opt/postgresql*/bin") + glob.glob("/usr/pgsql-*/bin")
    return Path(folders[0]) if folders else None


def unprivileged():
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}, getpass.getuser()
    import pwd

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}, name
    pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres or nobody")


@pytest.fixture(scope="module")
def server():
    """Host and port of a server in a temporary folder, with the superuser `boss`."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine (Debian: apt-get install postgresql)")
    who, name = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="inbounds-postgres-"))
    try:
        (folder / "password").write_text(PASSWORD)
        for path in (folder, folder / "password"):
            if who:
                shutil.chown(path, name, who["group"])
        options = ["--auth=scram-sha-256", f"--pwfile={folder}/password", "--no-sync", "--locale=C", "--encoding=UTF8"]
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", "boss", *options],
            check=True, cwd=folder, stdout=subprocess.DEVNULL, **who,
        )  # fmt: skip
        process, port = started(programs / "postgres", folder, who)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)  # fast shutdown
            process.wait(PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def started(program, folder, who):
    """A server that answers, and its port. It cannot choose one itself: where another program is faster, it ends, and tries the next."""
    fast = ["-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", f"unix_socket_directories={folder}"]
    for _ in range(20):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            [program, "-D", folder / "data", "-p", str(port), "-c", "listen_addresses=127.0.0.1", *fast],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who,
        )  # fmt: skip
        wait_for(lambda process=process, port=port: process.poll() is not None or ready(port))
        if process.poll() is None:
            return process, port
    pytest.fail("the server ended at once, at twenty ports")


def ready(port):
    login = {"host": "127.0.0.1", "port": port, "user": "boss", "password": PASSWORD, "dbname": "postgres"}
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(**login, connect_timeout=5):
        return True
    return False


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


# The module is loaded alone, as a light worker without JAX would do it.
WORKER = """
import importlib.util, math, os, sys, time
spec = importlib.util.spec_from_file_location("tuning", sys.argv[1])
tuning = importlib.util.module_from_spec(spec)
sys.modules["tuning"] = tuning
spec.loader.exec_module(tuning)
tuning.SIGN_SECONDS, tuning.GRACE_SECONDS, tuning.POLL_SECONDS = 0.3, 2.0, 0.1
log, victim = sys.argv[2:]

def loss(step_size):
    if log == victim:
        open(log, "w").close()
        time.sleep(3600)
    while not os.path.exists(victim):  # it has a trial before the others can take them all
        time.sleep(0.01)
    with open(log, "a") as file:
        file.write(f"{step_size!r}\\n")
    return (math.log10(step_size) + 3) ** 2

result = tuning.tune(loss, trials=20, storage=os.environ["STUDY"], name="shared")
print(len(result.trials), result)
"""


def test_four_workers_of_whom_one_is_killed_complete_every_trial_once(server, tmp_path):
    url = f"postgresql://boss:{QUOTED}@{server}/postgres"
    environment = {**os.environ, "STUDY": url}
    command = [sys.executable, "-c", WORKER, inbounds.tuning.__file__]
    workers = []
    try:
        for number in range(4):
            workers.append(
                subprocess.Popen(
                    [*command, tmp_path / f"{number}.log", tmp_path / "0.log"],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
            )  # fmt: skip
        wait_for(lambda: (tmp_path / "0.log").exists() or any(worker.poll() is not None for worker in workers))
        workers[0].kill()
        shown = [worker.communicate(timeout=PATIENCE)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0, 0], shown
    assert all(output.startswith("20 TuningResult(") for output in shown[1:])
    assert not any(secret in output for output in shown for secret in (PASSWORD, QUOTED, "s3cr3t"))

    storage = inbounds.tuning._open(url)
    trials = optuna.load_study(study_name="shared", storage=storage).trials
    storage.engine.dispose()
    states = Counter(trial.state.name for trial in trials)
    assert states["COMPLETE"] == 20
    assert states["RUNNING"] == 0
    assert states["FAIL"] >= 1, "the one of the killed worker"
    counted, given_up = (
        Counter(trial.params["step_size"] for trial in trials if trial.state.name == state and trial.params)
        for state in ("COMPLETE", "FAIL")
    )
    evaluated = Counter(float(line) for log in tmp_path.glob("[123].log") for line in log.read_text().splitlines())
    assert counted <= evaluated, "none lost"
    # On a machine that is busy for long a living worker is taken for dead, and its trial is another's to repeat.
    assert evaluated - counted <= given_up, "none evaluated twice"


def test_no_password_is_shown_whatever_happens(server, capfd, caplog, monkeypatch, tmp_path):
    good = f"postgresql://boss:{QUOTED}@{server}/postgres"
    loss = tmp_path / "loss.py"
    loss.write_text("def loss(step_size):\n    return step_size\n")
    said = ""
    with caplog.at_level(logging.DEBUG):
        said += repr(tune(lambda step_size: step_size, trials=2, storage=good, name="quiet"))
        for wrong in (
            good.replace("boss", "nobody-here"),
            good.replace(QUOTED, QUOTED + "no"),
            good.replace(server, "127.0.0.1:1"),
            good.replace("/postgres", "/no-such-database"),
        ):
            with pytest.raises(RuntimeError, match="the study's database failed") as caught:
                tune(lambda step_size: step_size, trials=1, storage=wrong)
            said += str(caught.value) + repr(caught.value)
            assert caught.value.__suppress_context__
            monkeypatch.setattr(sys, "argv", ["inbounds", "tune", f"{loss}:loss", "--storage", wrong])
            with pytest.raises(SystemExit) as ended:
                cli.main()
            assert ended.value.code == 2
        monkeypatch.setattr(sys, "argv", ["inbounds", "tune", f"{loss}:loss", "--trials", "2", "--name", "cli"])
        monkeypatch.setenv("INBOUNDS_STORAGE", good)
        with pytest.raises(SystemExit):
            cli.main()
    shown = capfd.readouterr()
    assert "TuningResult" in shown.out
    assert "inbounds: the study's database failed" in shown.err
    for secret in (PASSWORD, QUOTED, "s3cr3t"):
        assert secret not in said + shown.out + shown.err + caplog.text


# Their workers ask the study themselves; `tune` is silent about what Optuna 4 calls experimental.
@pytest.mark.filterwarnings("ignore:Argument ``constant_liar``")
def test_a_trial_is_given_up_when_its_signs_of_life_end_and_not_before(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(inbounds.tuning, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(inbounds.tuning, "SIGN_SECONDS", 0.01)
    space = {"step_size": inbounds.tuning.LogUniform(1e-7, 1.0)}
    worker, watcher = (
        inbounds.tuning._Search(optuna, tmp_path / "study.log", "tune", "minimize", space, 0, shared=True)
        for _ in range(2)
    )
    trial, _ = worker._ask(trials=4)

    def sign():
        return watcher.study.get_trials(deepcopy=False)[trial.number].user_attrs.get(inbounds.tuning._SIGN)

    with worker._signs_of_life([trial]):
        for _ in range(3):
            assert watcher._running() == 1
            before = sign()
            wait_for(lambda before=before: sign() != before)
            now[0] += 2 * inbounds.tuning.GRACE_SECONDS
    assert watcher._running() == 1
    now[0] += 2 * inbounds.tuning.GRACE_SECONDS
    assert watcher._running() == 0


@pytest.mark.filterwarnings("ignore:Argument ``constant_liar``")
def test_a_trial_without_a_sign_of_life_is_given_up_and_one_that_comes_back_late_is_not_counted(tmp_path, monkeypatch):
    """The same in a journal file: no server, no clock but the watcher's."""
    monkeypatch.setattr(inbounds.tuning, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(inbounds.tuning, "POLL_SECONDS", 0.05)
    storage = tmp_path / "study.log"
    tune(lambda step_size: 1.0, trials=1, storage=storage)
    search = inbounds.tuning._Search(
        optuna, storage, "tune", "minimize", {"step_size": inbounds.tuning.LogUniform(1e-7, 1.0)}, 0, shared=True
    )
    late, _ = search._ask(trials=4)  # a worker that hangs
    result = tune(lambda step_size: 2.0, trials=4, storage=storage)
    assert [trial["value"] for trial in result.trials] == [1.0, 2.0, 2.0, 2.0]
    search._tell(late, -math.pi)
    again = tune(lambda step_size: math.nan, trials=4, storage=storage)
    assert again == result
