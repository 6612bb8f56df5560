"""Draws on disk: the same draws, whole at every moment, and readable by xarray and ArviZ."""

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from tests.models_for_tests import poisson_rates

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

from inbounds.sampling import store as stores  # noqa: E402

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

RUN = dict(step_size=1e-3, num_steps=3_000, burn_in=50, thin=7, batch_size=8, num_chains=2, seed=3, progress=False)


def run(**options):
    return ib.sample(ib.sgld(poisson_rates()), **(RUN | options))


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True), a, b))


@pytest.fixture(scope="module")
def in_memory():
    return run()


@pytest.fixture
def small_chunks(monkeypatch):
    """Many Zarr chunks, and readers that see every append."""
    monkeypatch.setattr(stores, "CHUNK_BYTES", 4_096)
    monkeypatch.setattr(stores, "PUBLISH_SECONDS", 0.0)
    monkeypatch.setattr(stores, "PUBLISH_SHARE", 1e9)


@pytest.mark.parametrize("where", ["folder", "file://", "memory://"])
def test_a_store_holds_the_draws_of_a_run_in_memory(where, in_memory, tmp_path, small_chunks):
    url = {"folder": tmp_path / "run.zarr", "file://": f"file://{tmp_path}/run.zarr", "memory://": "memory://run.zarr"}[
        where
    ]
    draws = run(store=url)
    assert same(draws.phi, in_memory.phi)
    assert same(draws.theta, in_memory.theta)
    assert same(draws.stats, in_memory.stats)
    tree = xarray.open_datatree(str(url), engine="zarr")
    assert set(tree.children) == {"posterior", "unconstrained_posterior", "sample_stats"}
    posterior = xarray.open_zarr(str(url), group="posterior")
    for group in (tree["posterior"], posterior):
        assert group["rate"].dims == ("chain", "draw", "rate_dim_0")
        np.testing.assert_array_equal(group["rate"], in_memory.theta["rate"])
        np.testing.assert_array_equal(group["draw"], np.arange(in_memory.num_draws))
        np.testing.assert_array_equal(group["chain"], [0, 1])


def test_draws_in_a_store_do_all_that_draws_in_memory_do(in_memory, tmp_path):
    arviz_stats = pytest.importorskip("arviz_stats")
    draws = run(store=tmp_path / "run.zarr")
    rate = draws.theta["rate"]
    assert isinstance(rate, stores.StoredArray)  # nothing has been read
    assert rate.shape == (2, in_memory.num_draws, 2)
    np.testing.assert_array_equal(rate[1, 5:9], in_memory.theta["rate"][1, 5:9])
    assert rate.mean() == in_memory.theta["rate"].mean()
    assert np.all((rate > 0) == (in_memory.theta["rate"] > 0))
    assert str(draws.summary()) == str(in_memory.summary())
    assert repr(draws).partition(" steps")[0] == repr(in_memory).partition(" steps")[0]
    assert same(draws.flat(), in_memory.flat())
    assert same(draws.log_theta(), in_memory.log_theta())
    written = arviz_stats.summary(xarray.open_datatree(tmp_path / "run.zarr", engine="zarr"))
    assert written.equals(arviz_stats.summary(draws.to_arviz()))


def test_a_reader_sees_whole_draws_after_every_single_write(in_memory, tmp_path, small_chunks, monkeypatch):
    path, write = tmp_path / "run.zarr", stores.LocalStore.set
    seen = {path: [0], path / "posterior": [0]}

    def look():
        for where, lengths in seen.items():
            if not (where / "zarr.json").exists():
                continue
            group = zarr.open_group(where, mode="r")
            posterior = group.get("posterior") if where is path else group
            if posterior is None:  # the root is written before anything below it
                continue
            assert posterior.metadata.consolidated_metadata is not None
            rate, mix = posterior["rate"][...], posterior["mix"][...]
            assert rate.shape[1] == mix.shape[1] == posterior["draw"].shape[0]
            assert rate.shape[1] >= lengths[-1]
            np.testing.assert_array_equal(rate, in_memory.theta["rate"][:, : rate.shape[1]])
            np.testing.assert_array_equal(mix, in_memory.theta["mix"][:, : mix.shape[1]])
            lengths.append(rate.shape[1])

    async def write_and_look(store, key, value, *rest):
        await write(store, key, value, *rest)
        await asyncio.get_running_loop().run_in_executor(reader, look)

    monkeypatch.setattr(stores.LocalStore, "set", write_and_look)
    with ThreadPoolExecutor(1) as reader:  # not Zarr's own threads: the reader waits for them
        run(store=path, chunk_steps=1)
    for lengths in seen.values():
        assert len(set(lengths)) == 4  # none, and after each of the three chunks
        assert lengths[-1] == in_memory.num_draws


def test_what_is_there_already_is_not_touched(in_memory, tmp_path):
    run(store=tmp_path / "run.zarr")
    with pytest.raises(ValueError, match=r"run.zarr exists. Give another name; or go on .* resume=True"):
        run(store=tmp_path / "run.zarr")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    for options in ({}, {"resume": True, "checkpoint": tmp_path / "none"}):
        with pytest.raises(ValueError, match="holds something else"):
            run(store=tmp_path / "thesis", **options)
    with pytest.raises(ValueError, match="of another run: seed is 3 there and 4 here"):
        run(store=tmp_path / "run.zarr", resume=True, checkpoint=tmp_path / "none", seed=4)
    np.testing.assert_array_equal(_posterior(tmp_path / "run.zarr")["mix"], in_memory.theta["mix"])
    with pytest.raises(ValueError, match="resume=True needs the `checkpoint` folder"):
        run(store=tmp_path / "run.zarr", resume=True)


class PowerCutError(Exception):
    pass


def power_cut(done, collected):
    raise PowerCutError


def test_a_store_whose_checkpoints_are_not_found_is_not_begun_anew(in_memory, tmp_path):
    pytest.importorskip("orbax.checkpoint")
    store = tmp_path / "run.zarr"
    run(store=store, checkpoint=tmp_path / "there", resume=True)  # as a script for a queue says it
    for num_steps in (1_030, 3_000):
        with pytest.raises(
            ValueError, match=rf"run.zarr holds {in_memory.num_draws:,} draws per chain, and no checkpoint"
        ):
            run(store=store, checkpoint=tmp_path / "elsewhere", resume=True, num_steps=num_steps)
    np.testing.assert_array_equal(_posterior(store)["mix"], in_memory.theta["mix"])
    assert same(run(store=store, checkpoint=tmp_path / "there", resume=True).theta, in_memory.theta)
    shutil.rmtree(tmp_path / "there")
    with pytest.raises(
        ValueError, match=r"Give the folder of that run's checkpoints .* give another `store`, or delete"
    ):
        run(store=store, checkpoint=tmp_path / "there", resume=True)


@pytest.mark.parametrize(("resume", "burn_in"), [(True, 50), (False, 50), (False, 2_000)])
def test_a_run_that_ended_before_its_first_checkpoint_is_begun_anew(resume, burn_in, tmp_path):
    pytest.importorskip("orbax.checkpoint")
    options = dict(store=tmp_path / "run.zarr", checkpoint=tmp_path / "checkpoints", burn_in=burn_in)
    with pytest.raises(PowerCutError):
        run(**options, resume=resume, chunk_steps=1, monitor=power_cut)
    assert (_posterior(tmp_path / "run.zarr").sizes["draw"] > 0) == (burn_in == 50)
    held = []  # the lock, also after what was there has been removed
    again = run(**options, resume=True, monitor=lambda *_: held.append((tmp_path / "run.zarr" / ".writer").exists()))
    assert same(again.theta, run(burn_in=burn_in).theta)
    assert held
    assert all(held)


def test_draws_of_a_run_that_never_had_a_checkpoint_are_not_written_over(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    with pytest.raises(PowerCutError):
        run(store=tmp_path / "run.zarr", chunk_steps=1, monitor=power_cut)
    with pytest.raises(ValueError, match=r"run.zarr holds \d+ draws per chain, and no checkpoint"):
        run(store=tmp_path / "run.zarr", checkpoint=tmp_path / "checkpoints", resume=True)


@pytest.mark.parametrize("name", ["notes", "notes/run.zarr"])
def test_a_file_is_not_a_store(name, tmp_path):
    (tmp_path / "notes").write_text("years of work")
    with pytest.raises(ValueError, match=f"{name} cannot be made: .*notes is a file. Give the name of a folder"):
        run(store=tmp_path / name)


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ({"draw": dist.Gamma(2.0, 1.0)}, "A variable cannot be called 'draw'"),
        ({"chain": dist.Normal(0.0, 1.0)}, "A variable cannot be called 'chain'"),
        (
            {"a": {"b": dist.Normal(0.0, 1.0)}, "a.b": dist.Normal(0.0, 1.0)},
            "'a/b' and 'a.b', would both be called 'a.b'",
        ),
        ({"..": dist.Normal(0.0, 1.0)}, "cannot be called '..'"),
        ({".": dist.Normal(0.0, 1.0)}, "cannot be called '.'"),
        ({"zarr.json": dist.Normal(0.0, 1.0)}, "cannot be called 'zarr.json'"),
    ],
)
def test_names_that_would_stand_for_two_things_are_refused_before_the_run(priors, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        ib.sample(ib.sgld(ib.Posterior(priors)), 1e-2, 20, store=tmp_path / "run.zarr", progress=False)
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.filterwarnings("ignore")  # what arviz_plots and matplotlib say to each other
def test_a_resumed_run_leaves_a_store_that_xarray_and_arviz_read_as_before(in_memory, tmp_path, plots_of_arviz):
    pytest.importorskip("orbax.checkpoint")
    places = dict(store=tmp_path / "run.zarr", checkpoint=tmp_path / "checkpoints")
    for num_steps, resume in ((1_500, False), (3_000, True)):
        draws = run(**places, num_steps=num_steps, resume=resume)
        tree = xarray.open_datatree(tmp_path / "run.zarr", engine="zarr")
        assert set(tree.children) == {"posterior", "unconstrained_posterior", "sample_stats"}
        for name, group in tree.children.items():
            assert group.sizes["draw"] == draws.num_draws
            for found in (group, xarray.open_zarr(tmp_path / "run.zarr", group=name)):
                np.testing.assert_array_equal(found["chain"], [0, 1])
                np.testing.assert_array_equal(found.coords["draw"], np.arange(draws.num_draws))
        for plot in plots_of_arviz:
            assert plot(tree) is not None
    np.testing.assert_array_equal(tree["posterior"]["rate"], in_memory.theta["rate"])


def test_with_collect_the_store_holds_statistics_only(in_memory, tmp_path):
    draws = run(store=tmp_path / "run.zarr", collect=ib.collect.mean_and_variance())
    tree = xarray.open_datatree(tmp_path / "run.zarr", engine="zarr")
    assert set(tree.children) == {"sample_stats"}
    np.testing.assert_array_equal(tree["sample_stats"]["gradient_norm"], in_memory.stats["gradient_norm"])
    np.testing.assert_allclose(draws.collected.mean["mix"], in_memory.theta["mix"].mean(axis=1), rtol=1e-5)


def test_nested_names_large_draws_and_numbers_below_the_smallest_float(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "LARGEST_CHUNK", 100)
    posterior = ib.Posterior({"layers": [{"w": dist.Gamma(0.01, 1.0).expand([8, 5])}]})
    draws = ib.sample(
        ib.sgld(posterior), 1.0, 40, num_chains=3, init={"layers": [{"w": np.full((8, 5), 1e-37)}]},
        store=tmp_path / "run.zarr", progress=False,
    )  # fmt: skip
    group = _posterior(tmp_path / "run.zarr")
    assert group["layers.0.w"].sizes == {"chain": 3, "draw": 40, "layers.0.w_dim_0": 8, "layers.0.w_dim_1": 5}
    np.testing.assert_array_equal(group["layers.0.w"], draws.theta["layers"][0]["w"])
    assert np.all(group["layers.0.w"] > 0)
    assert draws.log_theta()["layers"][0]["w"].min() < np.log(np.finfo(np.float32).smallest_subnormal)


def test_everything_until_a_chain_dies_is_readable(tmp_path):
    kernel = ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1e-2)}))
    with pytest.raises(ib.NonFiniteError) as caught:
        ib.sample(kernel, 0.1, 1_000, store=tmp_path / "run.zarr", progress=False)
    x = _posterior(tmp_path / "run.zarr")["x"].values
    assert caught.value.step > 2
    assert np.all(np.isfinite(x[0, : caught.value.step - 1]))
    assert same(caught.value.draws.theta["x"], x)


@pytest.mark.parametrize("writes", [1, 25, 60])
def test_a_full_disk_ends_the_run_with_an_error_that_says_so(writes, in_memory, tmp_path, small_chunks, monkeypatch):
    write, count = stores.LocalStore.set, []

    async def fill(store, key, value, *rest):
        count.append(key)
        if len(count) > writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        await write(store, key, value, *rest)

    monkeypatch.setattr(stores.LocalStore, "set", fill)
    with pytest.raises(
        OSError, match=r"The disk is full .* first [\d,]+ draws per chain are whole and readable"
    ) as caught:
        run(store=tmp_path / "run.zarr", chunk_steps=1)
    assert caught.value.errno == errno.ENOSPC
    if writes > 1:
        mix = _posterior(tmp_path / "run.zarr")["mix"]
        assert f"first {mix.sizes['draw']:,} draws" in str(caught.value)
        np.testing.assert_array_equal(mix, in_memory.theta["mix"][:, : mix.sizes["draw"]])


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB."""
    (tmp_path / "disk").mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "disk"], capture_output=True
    )
    if not made or made.returncode:
        pytest.skip("this user may not mount a small disk")
    yield tmp_path / "disk"
    subprocess.run(["umount", tmp_path / "disk"], check=True)


def test_a_disk_that_is_really_full(small_disk, monkeypatch):
    pytest.importorskip("orbax.checkpoint")
    monkeypatch.setattr(stores, "CHUNK_BYTES", 2**16)
    monkeypatch.setattr(stores, "PUBLISH_SECONDS", 1e6)  # what was written is shown at the end, or never
    with pytest.raises(OSError, match="The disk is full") as caught:
        run(store=small_disk / "run.zarr", num_steps=400_000)
    assert caught.value.errno == errno.ENOSPC
    mix = _posterior(small_disk / "run.zarr")["mix"]
    assert mix.sizes["draw"] > 100
    assert np.all(np.isfinite(mix))
    # Checkpoints, too, say it.
    with contextlib.suppress(OSError), open(small_disk / "filler", "wb") as filler:
        while True:
            filler.write(bytes(1_000))
            filler.flush()
    with pytest.raises(OSError, match=r"The disk is full .* the checkpoint of step") as caught:
        run(checkpoint=small_disk / "checkpoints")
    assert caught.value.errno == errno.ENOSPC


def test_memory_does_not_grow_with_the_number_of_draws(in_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "CHUNK_BYTES", 2**16)
    peaks = []
    tracemalloc.start()
    run(
        store=tmp_path / "run.zarr", num_steps=7 * 60 * 1_024, chunk_steps=7 * 1_024,
        monitor=lambda *_: peaks.append(tracemalloc.get_traced_memory()[1]),
    )  # fmt: skip
    tracemalloc.stop()
    size = sum(array.nbytes for array in _posterior(tmp_path / "run.zarr").data_vars.values())
    assert peaks[-1] - peaks[len(peaks) // 4] < 0.2 * size


def _posterior(path):
    return xarray.open_zarr(path, group="posterior")
