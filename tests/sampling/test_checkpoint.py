"""Checkpoint and resume: bit for bit the run that was never interrupted, whatever ended it."""

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.contents import arguments_in_words, in_words, priors_in_words
from inbounds.sampling import fingerprint
from tests.models_for_tests import poisson_rates

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

pytest.importorskip("orbax.checkpoint")

RUN = dict(step_size=1e-3, num_steps=6_200, burn_in=50, thin=7, batch_size=8, num_chains=2, seed=3, progress=False)


def run(kernel=None, **options):
    return ib.sample(ib.sgld(poisson_rates()) if kernel is None else kernel, **(RUN | options))


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True), a, b))


def equal(a, b):
    """Draws, statistics, state and what was collected."""
    return all(same(getattr(a, name), getattr(b, name)) for name in ("phi", "stats", "state", "collected"))


class PowerCutError(Exception):
    pass


def power_cut_at(step):
    def monitor(done, collected):
        if done >= step:
            raise PowerCutError

    return monitor


@pytest.fixture(autouse=True)
def signals_count():
    """As in a terminal: a process that was started in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def uninterrupted():
    return run()


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """The folder of a run that lost its power, with checkpoints of three steps."""
    folder = tmp_path_factory.mktemp("run") / "checkpoints"
    with pytest.raises(PowerCutError):
        run(checkpoint=ib.Checkpoint(folder, every_steps=1_024), chunk_steps=1, monitor=power_cut_at(4_096))
    assert steps_in(folder) == [1_024, 2_048, 3_072]
    return folder


@pytest.fixture
def folder(checkpoints, tmp_path):
    """A copy of it."""
    return shutil.copytree(checkpoints, tmp_path / "checkpoints")


def steps_in(folder):
    return sorted(int(path.name) for path in Path(folder).iterdir() if path.name.isdigit())


CASES = {
    "svrg, which looks at all the data": (
        lambda: ib.baoab(poisson_rates(), gradient=ib.gradients.svrg(every=512)),
        dict(collect=ib.collect.mean_and_variance()),
    ),
    "adaptation, a variance and a schedule": (
        lambda: ib.leimkuhler_matthews(
            poisson_rates(), noise_correction=True, preconditioner=ib.preconditioners.rmsprop(50)
        ),
        dict(step_size=ib.schedules.cyclical(1e-3, 1_000, 0.5)),
    ),
    "a large model": (
        lambda: ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0).expand([4_100])})),
        dict(num_steps=25, burn_in=5, thin=2, batch_size=None),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(name, tmp_path):
    kernel, options = CASES[name][0](), CASES[name][1]
    steps = options.get("num_steps", RUN["num_steps"])
    saving = options | dict(checkpoint=ib.Checkpoint(tmp_path / "c", every_steps=steps // 4), chunk_steps=1)
    with pytest.raises(PowerCutError):
        run(kernel, **saving, monitor=power_cut_at(steps * 2 // 3))
    assert steps_in(tmp_path / "c")
    resumed = run(kernel, **saving, resume=True)
    assert equal(resumed, run(kernel, **options))


def test_a_run_grows_when_it_is_resumed_and_a_folder_without_checkpoints_starts_it(uninterrupted, tmp_path):
    short = run(checkpoint=tmp_path / "c", resume=True, num_steps=3_000)
    assert short.num_steps == 3_000
    assert steps_in(tmp_path / "c") == [2_048]  # the last that any longer run goes through
    for _ in range(2):  # the second time it has ended already
        assert equal(run(checkpoint=tmp_path / "c", resume=True), uninterrupted)
    with pytest.raises(ValueError, match=r"of step 6,144, past num_steps=3,000. A run may grow"):
        run(checkpoint=tmp_path / "c", resume=True, num_steps=3_000)


def test_a_damaged_checkpoint_is_passed_over(uninterrupted, folder, tmp_path):
    newest = folder / "3072"
    files = sorted(
        path.relative_to(newest) for path in newest.rglob("*") if path.is_file() and path.stat().st_size > 8
    )[::2]
    assert len(files) > 5
    told = 0
    for number, file in enumerate(files):
        copy = shutil.copytree(folder, tmp_path / str(number))
        content = (copy / "3072" / file).read_bytes()
        damaged = content[: len(content) // 2] if number % 2 else bytes(byte ^ 85 for byte in content)
        (copy / "3072" / file).write_bytes(damaged)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert equal(run(checkpoint=copy, resume=True), uninterrupted)
        told += any("step 3,072 cannot be used" in str(w.message) for w in caught)
    assert told >= 4  # some files (how it was sharded, how long it took) are not needed


def test_when_no_checkpoint_is_whole_it_says_so_and_starts_nothing(folder):
    for path in folder.rglob("metadata"):
        path.write_text("{")
    with pytest.raises(
        ValueError, match=r"No checkpoint in .* can be used: of step 3,072, 2,048, 1,024, it cannot be read"
    ):
        run(checkpoint=folder, resume=True)
    assert steps_in(folder) == [1_024, 2_048, 3_072]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (dict(seed=4), "seed is 3 there and 4 here"),
        (
            dict(step_size=2e-3, thin=14),
            r"step_size is 0.001\d* there and 0.002\d* here; .*thin is 7 there and 14 here",
        ),
        (dict(kernel=ib.sgld(poisson_rates(seed=1))), "data is .*checksum .* there and .*checksum .* here"),
        (dict(kernel=ib.sgld(poisson_rates(), transforms="icll")), "transforms is .* there and .*icll"),
        (dict(init={"rate": np.ones(2), "mix": 0.5}), "init is None there and mix: 0.5, rate: float64"),
        (dict(batching="replacement", batch_size=4), "batch_size is 8 there and 4 here; batching is epochs there"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused_with_what_differs(changes, difference, folder):
    with pytest.raises(ValueError, match=f"it is of another run .*{difference}"):
        run(checkpoint=folder, resume=True, **changes)
    assert steps_in(folder) == [1_024, 2_048, 3_072]


def test_the_checkpoint_of_a_kernel_that_kept_something_else_is_refused(folder):
    for path in folder.rglob("metadata"):
        path.write_text(path.read_text().replace("phi, estimator", "base, estimator"))
    with pytest.raises(ValueError, match=r"state of the kernel is base, .* there and phi, .* here"):
        run(checkpoint=folder, resume=True)


def model(y, scale):
    center = numpyro.sample("center", dist.Normal(0.0, scale))
    with numpyro.plate("rows", len(y), subsample_size=10) as rows:
        numpyro.sample("y", dist.Normal(center, 1.0), obs=y[rows])


Y = np.linspace(-1.0, 2.0, 30, dtype=np.float32)
OTHERS = {
    "data of a NumPyro model": (
        lambda: ib.from_numpyro(model, Y, scale=1.0),
        lambda: ib.from_numpyro(model, Y + 1, scale=1.0),
        r"arguments of the model is 0: float32\[30\] with checksum \w+, scale: 1.0 there and",
    ),
    "a number given to a NumPyro model": (
        lambda: ib.from_numpyro(model, Y, scale=1.0),
        lambda: ib.from_numpyro(model, Y, scale=2.0),
        r"arguments of the model is .* scale: 1.0 there and .* scale: 2.0 here",
    ),
    "priors": (
        lambda: ib.Posterior({"a": {"m": dist.Normal(0, 0.1)}, "s": dist.HalfNormal(1.0).expand([2])}),
        lambda: ib.Posterior({"a": {"m": dist.Normal(3, 0.1)}, "s": dist.HalfNormal(1.0).expand([2])}),
        r"priors is a/m: Normal\[\]\(loc=0, scale=0.1\), .* there and a/m: Normal\[\]\(loc=3, scale=0.1\), .* here",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_other_data_or_priors_is_refused_unless_it_is_too_old_to_tell(name, tmp_path):
    this, other, difference = OTHERS[name]
    settings = dict(step_size=1e-3, num_steps=1_024, checkpoint=tmp_path / "c", progress=False)
    ib.sample(ib.sgld(this()), **settings)
    with pytest.raises(ValueError, match=f"it is of another run .*{difference}"):
        ib.sample(ib.sgld(other()), **settings, resume=True)
    assert ib.sample(ib.sgld(this()), **settings, resume=True).num_draws == 1_024
    (written,) = (path for path in (tmp_path / "c").rglob("metadata") if "fingerprint" in path.read_text())
    content = json.loads(written.read_text())
    for entry in fingerprint.LATER:
        del content["fingerprint"][entry]
    written.write_text(json.dumps(content))
    assert ib.sample(ib.sgld(other()), **settings, resume=True).num_draws == 1_024


def test_priors_are_written_in_the_same_words_by_every_process_and_for_every_type_of_their_numbers():
    """NumPyro keeps the parameters of a distribution in a set."""
    priors = {
        "x": dist.InverseGamma(2, np.float32(0.1)),
        "y": dist.TruncatedNormal(np.zeros(3), 1.0, low=0.0),
        "z": dist.MixtureSameFamily(dist.Categorical(np.ones(2) / 2), dist.Normal(np.zeros(2), 1.0)),
    }
    text = priors_in_words(priors)
    assert text.startswith(
        "x: InverseGamma[](base_dist=Gamma[](concentration=2, rate=0.1), concentration=2, rate=0.1, "
    )
    assert text == priors_in_words(priors | {"x": dist.InverseGamma(jax.numpy.asarray(2.0), 0.1)})
    for name, other in {
        "y": dist.TruncatedNormal(np.zeros(3), 1.0, low=0.5),
        "z": dist.MixtureSameFamily(dist.Categorical(np.ones(2) / 2), dist.Normal(np.ones(2), 1.0)),
    }.items():
        assert text != priors_in_words(priors | {name: other})


def test_what_a_model_is_called_with_may_be_anything():
    names = np.array(["Oslo", "Bergen"], object)
    leaves = [names, np.float32(0.5), np.zeros((0, 3)), jax.random.key(1), np.arange(10_000), "text", None, np.int64(3)]
    texts = [arguments_in_words(((leaf,), {})) for leaf in leaves]
    assert texts == [arguments_in_words(((leaf,), {})) for leaf in [np.array(names.tolist(), object), *leaves[1:-1], 3]]
    assert texts[0] != arguments_in_words(((names[::-1],), {}))
    assert texts[3] != arguments_in_words(((jax.random.key(2),), {}))


def test_neither_nan_beyond_the_end_nor_the_type_of_a_whole_number_makes_it_another_run(tmp_path):
    def schedule(step):
        return 1e-3 * (1 - step / 5_000.0) ** 0.5

    kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
    settings = dict(step_size=schedule, checkpoint=tmp_path / "c", progress=False)
    ib.sample(kernel, num_steps=1_024, init={"x": np.int64(2)}, **settings)
    assert ib.sample(kernel, num_steps=2_000, init={"x": 2}, resume=True, **settings).num_draws == 2_000
    assert in_words(np.int32(7)) == in_words(jax.numpy.asarray(7)) == "7"


def test_a_folder_with_checkpoints_is_not_written_to_unless_resumed(folder):
    with pytest.raises(
        ValueError, match=r"holds checkpoints, the latest of step 3,072. Go on from there with resume=True"
    ):
        run(checkpoint=folder)
    for wrong in (dict(every_steps=0), dict(every_seconds=None), dict(keep=1)):
        with pytest.raises(ValueError, match="checkpoint"):
            ib.Checkpoint(folder, **wrong)


def test_other_versions_are_worth_a_warning(uninterrupted, folder, monkeypatch):
    monkeypatch.setattr(jax, "__version__", "99.0")
    with pytest.warns(UserWarning, match=r"began with JAX .* and goes on with 99.0: its draws are as good"):
        assert equal(run(checkpoint=folder, resume=True), uninterrupted)


# Signals. They come in the middle of a chunk; here, between two of them.


def send(number, step):
    def monitor(done, collected):
        if done >= step and not monitor.sent:
            monitor.sent = True
            signal.raise_signal(number)

    monitor.sent = False
    return monitor


def test_ctrl_c_saves_and_says_how_to_go_on(uninterrupted, tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(checkpoint=tmp_path / "c", chunk_steps=1, monitor=send(signal.SIGINT, 2_048))
    assert isinstance(caught.value, ib.Interrupted)
    assert "stopped after 2,048 of 6,200 steps" in str(caught.value)
    assert f'ib.sample(..., checkpoint="{tmp_path / "c"}", resume=True)' in str(caught.value)
    assert same(caught.value.draws.phi["mix"], uninterrupted.phi["mix"][:, : caught.value.draws.num_draws])
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert equal(run(checkpoint=tmp_path / "c", resume=True), uninterrupted)


def test_sigterm_saves_and_exits(uninterrupted, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        run(checkpoint=tmp_path / "c", chunk_steps=1, monitor=send(signal.SIGTERM, 2_048))
    assert caught.value.code == 143
    assert "stopped after 2,048 of 6,200 steps" in capsys.readouterr().err
    assert steps_in(tmp_path / "c") == [2_048]
    assert equal(run(checkpoint=tmp_path / "c", resume=True), uninterrupted)


def test_ctrl_c_without_a_checkpoint_loses_no_draws_and_a_second_one_does_not_wait(uninterrupted):
    with pytest.raises(ib.Interrupted, match=r"draws until then are in `error.draws`") as caught:
        run(chunk_steps=1, monitor=send(signal.SIGINT, 2_048))
    assert caught.value.draws.num_steps == 2_048
    assert same(caught.value.draws.theta["mix"], uninterrupted.theta["mix"][:, : caught.value.draws.num_draws])

    def impatient(done, collected):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        run(chunk_steps=1, monitor=impatient)
    assert not isinstance(caught.value, ib.Interrupted)


# The status that a shell sees of Ctrl-C, in processes that end by it: a script, and one that searches.
SCRIPT = """
import atexit, signal
import numpyro.distributions as dist
import inbounds as ib

signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(print, "ended in order")

def stop(*_):
    signal.raise_signal(signal.SIGINT)

"""
ENDS = {
    "sample": 'ib.sample(ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)})), 1e-2, 2**30, monitor=stop, progress=False)',
    "tune": "ib.tune(stop, trials=10, progress=False)",
}


@pytest.mark.parametrize("name", ENDS)
def test_ctrl_c_that_nobody_catches_ends_the_process_with_its_status(name):
    if name == "tune":
        pytest.importorskip("optuna")
    ended = subprocess.run([sys.executable, "-c", SCRIPT + ENDS[name]], capture_output=True, text=True)
    assert ended.returncode == 130, ended.stderr
    assert "Interrupted: " in ended.stderr
    assert ended.stdout == "ended in order\n"


def test_runs_in_other_threads_leave_signals_alone(uninterrupted, tmp_path):
    found = []

    def elsewhere():
        found.append(run(checkpoint=tmp_path / "c"))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(600)
    assert equal(found[0], uninterrupted)


# kill -9


def test_a_dozen_kills_lose_nothing(nursery, tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    from tests.sampling import victim

    def live(how, number, num_steps, every_steps):
        process = nursery.Process(target=victim.run, args=(str(tmp_path), how, number, num_steps, every_steps))
        process.start()
        process.join()
        assert process.exitcode == (-signal.SIGKILL if how else 0), how

    kinds = ["any moment", "checkpoint", "append", "publish"] * 3
    random.Random(0).shuffle(kinds)
    seen = []
    for number, how in enumerate(kinds):
        live(how, number, victim.ENDLESS, 2_048)
        with contextlib.suppress(FileNotFoundError, KeyError):  # until the store is made
            posterior = xarray.open_datatree(tmp_path / "run.zarr", engine="zarr")["posterior"]
            np.testing.assert_array_equal(posterior["draw"], np.arange(posterior.sizes["draw"]))
            seen.append({name: posterior[name].values for name in ("rate", "mix")})
    num_steps = steps_in(tmp_path / "checkpoints")[-1] + 3 * 1_024 + 77
    live(None, len(kinds), num_steps, 10**6)
    whole = ib.sample(**victim.settings(num_steps))
    for draws in seen:
        for name, values in draws.items():
            length = min(values.shape[1], whole.num_draws)  # the dead may have been further than their checkpoints
            np.testing.assert_array_equal(values[:, :length], whole.theta[name][:, :length])
    assert len({draws["mix"].shape[1] for draws in seen}) > 3  # it did get on between the kills
    tree = xarray.open_datatree(tmp_path / "run.zarr", engine="zarr")
    assert same({name: tree["posterior"][name].values for name in whole.theta}, whole.theta)
    assert same({name: tree["sample_stats"][name].values for name in whole.stats}, whole.stats)
    np.testing.assert_array_equal(tree["posterior"]["chain"], [0, 1])
    left = [path for path in tmp_path.rglob("*") if path.name.endswith((".partial", "-tmp", ".writer"))]
    assert not left


def test_a_killed_search_goes_on_with_every_trial_counted_once(nursery, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr("inbounds.tuning.GRACE_SECONDS", 1.0)  # before a trial of the dead is given up
    from tests.sampling import victim

    for number, trials in enumerate((4, 9, 13)):  # dies in the objective, while it is being told, and while it asks
        process = nursery.Process(target=victim.tune, args=(str(tmp_path), number, trials))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    result = ib.tune(victim.objective, trials=30, storage=tmp_path / "study.log", progress=False)
    numbers = [trial["number"] for trial in result.trials]
    assert len(numbers) == len(set(numbers)) == 30
    assert all(trial["value"] == victim.objective(trial["step_size"]) for trial in result.trials)
