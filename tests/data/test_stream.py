"""Minibatches from disk: exact epochs, no row favoured, the same from any step on, and errors that name the place."""

import sys
import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.data import pieces as pieces_module
from inbounds.data.catalog import DataError
from inbounds.data.stream import MappedEpochs, StreamedBatches
from inbounds.engine.keys import words_of

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("grain")

SHARDS = (1, 60, 0, 7, 300)  # rows of the files: unequal, one empty
ROWS = sum(SHARDS)


def table(first, rows):
    number = np.arange(first, first + rows)
    return pa.table({"x0": number / 2, "x1": -number / 2, "y": number.astype(np.int64)})


@pytest.fixture
def parquet(tmp_path):
    first = 0
    for shard, rows in enumerate(SHARDS):
        pq.write_table(table(first, rows), tmp_path / f"part-{shard}.parquet", row_group_size=25)
        first += rows
    return str(tmp_path / "part-*.parquet")


def kept(kind, tmp_path, parquet):
    """The same rows, kept in one of the ways."""
    columns = {"x": ["x0", "x1"], "y": "y"}
    if kind == "parquet":
        return ib.data.stream(parquet, columns, window=50)
    if kind == "cache":
        return ib.data.stream(parquet, columns, cache=tmp_path / "cache")
    number = np.arange(ROWS)
    x = np.stack([number / 2, -number / 2], axis=1).astype(np.float32)
    if kind == "npy":
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", number)
        return ib.data.stream({"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}, window=50)
    fixed = pa.FixedSizeListArray.from_arrays(x.ravel(), 2)
    both = pa.table({"x": fixed, "y": number})
    with pa.ipc.new_file(tmp_path / "rows.arrow", both.schema) as writer:
        writer.write_table(both, max_chunksize=30)
    return ib.data.stream(tmp_path / "rows.arrow", window=50)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 12 * 10)
    monkeypatch.setattr(pieces_module, "SHUFFLED_PIECE_BYTES", 12 * 25)
    monkeypatch.setattr(pieces_module, "BUCKET_BYTES", 12 * 100)


def read(stream, batch_size, steps, chains=1, seed=0, first=0, batching="epochs", block=4):
    """What the driver would see of a fed stream: leaves of shape (chain, steps * batch, ...)."""
    stream.source(batch_size, batching)  # refuses what cannot be
    source = StreamedBatches(stream, batch_size, batching)
    seen = []
    with source.feed(None, words_of(seed), chains, block, first + steps) as feed:
        step = first
        while step < first + steps:
            arrays, count = feed.arrays(step), min(feed.room(step), first + steps - step)
            begin = step - int(arrays["first"])
            # A copy: the feed fills the memory again.
            seen.append(jax.tree.map(lambda leaf, b=begin, c=count: np.array(leaf)[:, b : b + c], arrays["batches"]))
            step += count
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1).reshape(chains, -1, *parts[0].shape[3:]), *seen)


@pytest.mark.parametrize("kind", ["parquet", "npy", "arrow", "cache"])
def test_every_row_comes_once_an_epoch_whatever_the_files_and_the_batch(kind, tmp_path, parquet):
    stream = kept(kind, tmp_path, parquet)
    assert stream.num_data == ROWS
    seen = read(stream, batch_size=50, steps=3 * ROWS // 50, chains=2)
    assert np.array_equal(seen["x"], np.stack([seen["y"] / 2, -seen["y"] / 2], axis=-1)), "rows stay together"
    assert seen["x"].dtype == np.float32
    assert seen["y"].dtype == np.int32
    for chain in seen["y"]:
        first, second = chain[:ROWS], chain[ROWS : 2 * ROWS]
        assert np.array_equal(np.sort(first), np.arange(ROWS))
        assert np.array_equal(np.sort(second), np.arange(ROWS)), "the batch over the border belongs to both epochs"
        assert not np.array_equal(first, second)
    assert not np.array_equal(*seen["y"]), "chains go their own ways"
    assert not np.array_equal(seen["y"], read(stream, 50, 3 * ROWS // 50, 2, seed=1)["y"])


@pytest.mark.parametrize("batch_size", [46, 31])  # one divides the rows
def test_a_device_on_the_host_reads_a_shuffled_cache_by_itself(tmp_path, parquet, batch_size):
    """The same exact epochs without a copy; each row is equally likely in each step."""
    stream = kept("cache", tmp_path, parquet)
    source = stream.source(batch_size, "epochs")
    assert isinstance(source, MappedEpochs)
    arrays = source.prepare(jax.random.key(0))

    def epochs(key, steps):
        plan = source.plan(key, steps)
        return jax.vmap(lambda one: source.fetch(arrays, one))(plan)

    count = 2 * -(-ROWS // batch_size)
    seen = jax.jit(jax.vmap(epochs, in_axes=(0, None)))(jax.random.split(jax.random.key(1), 2_000), jnp.arange(count))
    y = np.asarray(seen["y"]).reshape(2_000, -1)
    assert np.array_equal(np.asarray(seen["x"][3]), np.stack([seen["y"][3] / 2, -seen["y"][3] / 2], axis=-1))
    for chain in y[:50]:
        assert np.array_equal(np.sort(chain[:ROWS]), np.arange(ROWS))
        assert np.array_equal(np.sort(chain[ROWS : 2 * ROWS]), np.arange(ROWS))
    for step in (0, count - 1):
        times = np.bincount(np.asarray(seen["y"])[:, step].ravel(), minlength=ROWS)
        mean = 2_000 * batch_size / ROWS
        assert np.abs(times - mean).max() < 6 * np.sqrt(mean)
    far = jnp.asarray([2**31 - 2**20, 2**31 - 2**20 + 1])  # the arithmetic does not overflow
    first, second = (int(place) for place in source.plan(jax.random.key(3), far))
    if ROWS % batch_size:
        start = int(source.plan(jax.random.key(3), jnp.arange(1))[0])
        assert first == (start + (2**31 - 2**20) * batch_size) % ROWS
        assert second == (first + batch_size) % ROWS


def test_the_step_is_the_whole_cursor(tmp_path, parquet):
    stream = kept("parquet", tmp_path, parquet)
    whole = read(stream, 30, 40, chains=2)["y"].reshape(2, 40, 30)
    for first in (0, 7, 13, 39):
        rest = read(stream, 30, 40 - first, chains=2, first=first)["y"].reshape(2, -1, 30)
        assert np.array_equal(rest, whole[:, first:])
    stream.memory = 3 * 30 * 12 * 4  # buffers of four steps
    assert np.array_equal(read(stream, 30, 40, chains=2)["y"].reshape(2, 40, 30), whole)


def test_no_row_is_favoured_in_any_step_though_files_are_unequal(tmp_path):
    for shard, rows in enumerate((1, 3, 6, 10)):
        np.save(tmp_path / f"{shard}.npy", np.full(rows, shard))
    stream = ib.data.stream(str(tmp_path / "*.npy"), window=1)
    seen = np.stack([read(stream, 2, 1, chains=64, seed=seed)[:, :2] for seed in range(60)]).reshape(-1, 2)
    for place in range(2):
        counts = np.bincount(seen[:, place], minlength=4)
        expected = len(seen) * np.array([1, 3, 6, 10]) / 20
        assert np.sum((counts - expected) ** 2 / expected) < 21  # chi-squared of 3: one in ten thousand


def test_independent_batches_come_from_rows_that_can_be_reached(tmp_path, parquet):
    with pytest.raises(ValueError, match=r'cache="folder"'):
        kept("parquet", tmp_path, parquet).source(10, "replacement")
    stream = kept("cache", tmp_path, parquet)
    seen = read(stream, 100, 400, batching="replacement")["y"][0]
    counts = np.bincount(seen, minlength=ROWS)
    assert len(counts) == ROWS
    assert abs(np.sum((counts - counts.mean()) ** 2 / counts.mean()) - ROWS) < 5 * np.sqrt(2 * ROWS)
    again = read(stream, 100, 70, first=330, batching="replacement")["y"][0]
    assert np.array_equal(again, seen[-7_000:])
    one, other = read(stream, 100, 4, chains=2, batching="replacement")["y"]
    assert np.mean(one == other) < 0.1, "chains go their own ways"


def test_the_rows_of_a_window_are_in_another_order_in_every_epoch(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(8))
    seen = read(ib.data.stream(tmp_path / "y.npy", window=8), 1, 8 * 20).reshape(20, 8)
    from_zero = [np.roll(epoch, -int(np.flatnonzero(epoch == 0)[0])) for epoch in seen]
    assert len(np.unique(from_zero, axis=0)) > 15
    assert len(np.unique(seen[:, 0])) > 5, "each begins somewhere else"


def test_the_order_of_a_cache_is_uniformly_random(tmp_path):
    pieces = pieces_module.open_pieces({"y": np.arange(ROWS)})
    orders = []
    for seed in range(60):
        rows = pieces_module.shuffled_copy(pieces, tmp_path / str(seed), "test", seed)
        orders.append(np.concatenate([rows.read(piece)[0] for piece in range(len(rows.sizes))]))
    assert np.array_equal(np.sort(orders), np.tile(np.arange(ROWS), (60, 1)))
    place = np.argsort(orders) / ROWS
    np.testing.assert_allclose(place.mean(0), 0.5, atol=6 * np.sqrt(1 / 12 / 60))
    for lag in (1, 2, 10):
        later = place[:, lag:] > place[:, :-lag]
        assert np.mean(later) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(later.size))
        near = np.abs(place[:, lag:] - place[:, :-lag]) < 0.1
        assert np.mean(near) == pytest.approx(0.19, abs=5 * 0.4 / np.sqrt(near.size))


def test_a_cache_is_made_once_in_random_order_and_refused_for_other_files(tmp_path, parquet):
    first = kept("cache", tmp_path, parquet)
    order = np.concatenate([batch["y"] for batch in first.slices(100)])
    assert np.array_equal(np.sort(order), np.arange(ROWS))
    assert abs(np.corrcoef(order, np.arange(ROWS))[0, 1]) < 0.2
    made = (tmp_path / "cache" / "0.npy").stat().st_mtime_ns
    assert not list(tmp_path.glob("*.part"))
    kept("cache", tmp_path, parquet)
    assert (tmp_path / "cache" / "0.npy").stat().st_mtime_ns == made
    assert ib.data.stream(tmp_path / "cache").num_data == ROWS
    pq.write_table(table(0, 5), tmp_path / "part-9.parquet")
    with pytest.raises(DataError, match="holds rows of other files"):
        kept("cache", tmp_path, parquet)


# -- in a run -----------------------------------------------------------------------------------------------------


def posterior(data):
    def log_likelihood(theta, batch):
        return -0.5 * jnp.square(batch["y"] / ROWS - theta["level"])

    return ib.Posterior({"level": dist.Normal(0.0, 1.0)}, log_likelihood, data)


def assert_the_reader_ends():
    readers = [thread for thread in threading.enumerate() if thread.name.startswith("grain")]
    for thread in readers:
        thread.join(600)
    assert not any(thread.is_alive() for thread in readers)


@pytest.fixture
def run(tmp_path, parquet):
    """A run on small buffers: of 64 steps."""
    stream = kept("parquet", tmp_path, parquet)
    stream.memory = 3 * 40 * 12 * 64
    kernel = ib.sgld(posterior(stream))
    return partial(ib.sample, kernel, 2e-4, batch_size=40, num_chains=2, progress=False)


def test_a_run_on_a_stream_samples_the_posterior_however_it_is_cut_and_resumed(run, tmp_path):
    pytest.importorskip("orbax.checkpoint")
    draws = run(num_steps=1_000).theta["level"]
    exact = np.sum(np.arange(ROWS) / ROWS) / (ROWS + 1)
    assert abs(draws[:, 200:].mean() - exact) < 0.03  # its sd is 0.05, with about a hundred independent draws
    assert np.array_equal(run(num_steps=300, chunk_steps=1).theta["level"], draws[:, :300])
    run(num_steps=300, checkpoint=tmp_path / "run")
    assert np.array_equal(run(num_steps=1_000, checkpoint=tmp_path / "run", resume=True).theta["level"], draws)
    assert_the_reader_ends()


def test_chains_on_a_stream_can_be_divided_over_devices_and_its_rows_cannot(run):
    assert np.array_equal(run(num_steps=10, devices=1).theta["level"], run(num_steps=10).theta["level"])
    with pytest.raises(ValueError, match="Data on disk cannot be divided over devices"):
        run(num_steps=10, devices=ib.Layout(shard={"level": "y"}))


def test_an_error_while_reading_ends_the_run_and_the_reader(tmp_path):
    values = np.arange(500, dtype=np.float32)
    values[321] = np.nan
    np.save(tmp_path / "y.npy", values)
    kernel = ib.sgld(posterior(ib.data.stream({"y": tmp_path / "y.npy"})))
    with pytest.raises(DataError, match=r"y\.npy: 'y' holds NaN.*row 321"):
        ib.sample(kernel, 1e-4, 200, batch_size=10, progress=False)
    assert_the_reader_ends()


def test_a_control_variate_reads_the_data_once_and_svrg_says_that_it_cannot(tmp_path, parquet):
    held = kept("parquet", tmp_path, parquet)
    in_memory = posterior({"y": np.arange(ROWS)})
    streamed = posterior(held)
    theta, batch = {"level": jnp.float32(0.3)}, {"y": jnp.arange(10)}
    factory = ib.gradients.control_variate(center={"level": 0.2})
    values = []
    for one in (in_memory, streamed):
        estimator = factory(one)
        state = jax.jit(lambda x, e=estimator: e.init(x, False))(theta)
        values.append(float(estimator.estimate(state, theta, batch, False)[0].value["level"]))
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert float(ib.gradients.full_gradient(streamed, theta)["level"]) == pytest.approx(
        float(ib.gradients.full_gradient(in_memory, theta)["level"]), rel=1e-5
    )
    with pytest.raises(ValueError, match=r"control_variate\(center="):
        ib.sgld(streamed, gradient=ib.gradients.svrg)


def test_the_doctor_looks_at_some_of_the_rows(tmp_path, parquet):
    report = ib.check(posterior(kept("parquet", tmp_path, parquet)), batch_size=20, show=False)
    assert report.ok


# -- what is refused ----------------------------------------------------------------------------------------------


def corrupt_row_group(path):
    meta = pq.ParquetFile(path).metadata
    start = meta.row_group(2).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)


PROBLEMS = {
    "a column is missing": (lambda p: write(p, {"z": [1.0]}), r"bad\.parquet has no column 'y'\. It has: 'z'"),
    "types differ": (lambda p: write(p, {"y": [1.5]}), r"'y' is double in .*bad\.parquet and int64 in"),
    "text": (lambda p: write(p, {"y": ["a"]}), "'y' is string in"),
    "nulls": (lambda p: write(p, {"y": pa.array([1, 2, None], pa.int64())}), r"bad\.parquet, row group 0.*null.*row 2"),
    "too large": (lambda p: write(p, {"y": [1, 2**40]}), r"bad\.parquet, row group 0.*too large for int32.*row 1"),
    "foreign": (lambda p: p.write_bytes(b"hello, this is not Parquet"), r"bad\.parquet is not a readable Parquet file"),
    "cut off": (lambda p: p.write_bytes(p.read_bytes()[:-100]), r"bad\.parquet is not a readable Parquet file"),
    "damaged": (corrupt_row_group, r"bad\.parquet, row group 2 \(rows 50 to 74 of the file\) cannot be read"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_wrong_with_a_file_is_said_with_its_name_and_place(problem, tmp_path, parquet):
    path = tmp_path / "part-bad.parquet"
    pq.write_table(table(0, 100), path, row_group_size=25, use_dictionary=False, compression="snappy")
    spoil, message = PROBLEMS[problem]
    spoil(path)
    with pytest.raises(DataError, match=message):
        list(ib.data.stream(parquet, ["y"] if problem != "damaged" else ["x0", "y"]).slices(100))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: ib.data.stream(p / "none-*.parquet"), "nothing matches"),
        (lambda p: ib.data.stream(p), "holds no file"),
        (lambda p: ib.data.stream({"x": np.zeros((0, 2))}), "no rows"),
        (lambda p: ib.data.stream({"x": np.zeros(3), "y": np.zeros(4)}), "unequal length.*'x' 3, 'y' 4"),
        (lambda p: ib.data.stream({"x": np.array(["a"])}), "holds numbers"),
        (lambda p: ib.data.stream({"x": [1, 2]}), "must be an array"),
        (lambda p: ib.data.stream({"x": np.zeros(3)}, ["x"]), "`columns` is for Parquet"),
        (lambda p: ib.data.stream({"x": np.zeros(3)}, window=0), "`window`"),
        (lambda p: ib.data.stream({"x": np.zeros(3)}).source(4, "epochs"), "from 1 to 3; got 4"),
        (lambda p: ib.data.stream({"x": np.zeros(3)}).source(None, "epochs"), "batch_size=1_000"),
    ],
)
def test_wrong_input_is_refused_with_what_was_got(call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(tmp_path)


def test_no_rows_in_any_file(tmp_path):
    pq.write_table(table(0, 0), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="There are no rows"):
        ib.data.stream(tmp_path)


def test_a_table_without_columns(tmp_path):
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([])):
        pass
    with pytest.raises(DataError, match=r"a\.arrow has no columns"):
        ib.data.stream(tmp_path)


def test_without_grain_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "grain", None)
    source = ib.data.stream({"x": np.zeros(3)}).source(1, "epochs")
    with pytest.raises(ImportError, match=r'pip install "inbounds\[stream\]"'):
        source.feed(None, words_of(0), 1, 1, 1)


def test_a_cache_of_arrays_is_refused_for_others_of_the_same_shape(tmp_path):
    for name, mean in (("one", 0.0), ("two", 50.0)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(mean, size=(500, 2)).astype(np.float32))
    one, two = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("one", "two"))
    ib.data.stream({"x": one}, cache=tmp_path / "cache")
    ib.data.stream({"x": one}, cache=tmp_path / "cache")
    for other in ({"x": two}, {"z": one}):
        with pytest.raises(DataError, match="holds rows of other files"):
            ib.data.stream(other, cache=tmp_path / "cache")


def test_a_cache_of_a_list_of_files_is_refused_for_other_columns(tmp_path):
    pq.write_table(pa.table({"a": np.zeros(50), "b": np.ones(50)}), tmp_path / "part.parquet")
    files = [tmp_path / "part.parquet"]
    ib.data.stream(files, {"y": "a"}, cache=tmp_path / "cache")
    with pytest.raises(DataError, match="or of other columns"):
        ib.data.stream(files, {"y": "b"}, cache=tmp_path / "cache")
