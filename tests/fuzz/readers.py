"""Every reader of files, with valid files to damage, and what must hold of whatever it returns.

A reader may refuse a file, with the error that it documents and with the file's name in the message. What it does not refuse
must be right: equal to the original where the format carries a checksum, and consistent with the bytes where it does not.
"""

import contextlib
import gzip
import io
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist

import inbounds as ib
from inbounds.data.bag_of_words import read_bag_of_words
from inbounds.data.catalog import DataError
from inbounds.data.images import read_idx, write_idx
from inbounds.data.ratings import load_ratings
from inbounds.models import packed
from inbounds.models.packed import PackedNetworks

Files = dict[str, bytes]


@dataclass(frozen=True)
class Reader:
    """One reader.

    Args:
        name: for the command line.
        make: writes valid files into an empty folder; each is damaged in turn.
        read: reads the folder, and asserts what must hold of the result.
        error: what it documents to raise.
        share: how many of the inputs it gets, relative to the others; slow ones get few.
        inside: for packed formats, the content that is damaged before it is packed again, with right checksums.
        slow: left out of the tests, and run by the nightly command alone.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], None]
    error: type[Exception] | tuple[type[Exception], ...] = DataError
    share: float = 1.0
    inside: Callable[[bytes, Callable[[bytes], bytes]], bytes] | None = None
    slow: bool = False
    begin: Callable[[], None] = field(default=lambda: None)


# -- idx images ---------------------------------------------------------------------------------------------------

IMAGES = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)


def _make_idx(folder: Path) -> None:
    write_idx(folder / "images.idx", IMAGES)
    write_idx(folder / "floats.idx", np.linspace(0, 1, 7, dtype=np.float32).astype(">f4"))


def _read_idx(folder: Path) -> None:
    for path in folder.iterdir():
        array = read_idx(path)
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            continue
        shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
        assert array.shape == shape
        assert array.astype(array.dtype.newbyteorder(">")).tobytes() == content[4 + 4 * content[3] :]


def _make_idx_gz(folder: Path) -> None:
    write_idx(folder / "images.idx.gz", IMAGES)


def _read_idx_gz(folder: Path) -> None:
    assert np.array_equal(read_idx(folder / "images.idx.gz"), IMAGES), "gzip's checksum was not looked at"


def _inside_gzip(content: bytes, damage: Callable[[bytes], bytes]) -> bytes:
    return gzip.compress(damage(gzip.decompress(content)), 1, mtime=0)


def _read_idx_inside(folder: Path) -> None:
    array = read_idx(folder / "images.idx.gz")
    assert array.size <= 1 << 20


# -- text ---------------------------------------------------------------------------------------------------------

DOCWORD = "3\n5\n6\n1 1 2\n1 3 1\n2 2 4\n2 5 1\n3 1 1\n3 4 9\n"
VOCABULARY = "one\ntwo\nthree\nfour\nfive\n"


def _make_words(folder: Path) -> None:
    (folder / "docword.txt").write_text(DOCWORD)
    (folder / "vocab.txt").write_text(VOCABULARY)


def _read_words(folder: Path) -> None:
    bag = read_bag_of_words(folder / "docword.txt", folder / "vocab.txt")
    numbers = [line.split() for line in (folder / "docword.txt").read_bytes().split(b"\n") if line.strip()]
    assert bag.counts.shape == (int(numbers[0][0]), int(numbers[1][0]))
    assert bag.counts.nnz == int(numbers[2][0]) == len(numbers) - 3
    assert bag.counts.sum() == sum(int(entry[2]) for entry in numbers[3:])
    assert len(bag.vocabulary) == bag.counts.shape[1]


RATINGS = [(1, 10, 4.5), (1, 20, 3.0), (2, 10, 5.0), (3, 30, 0.5), (3, 20, 2.0)]


def _make_ratings(folder: Path) -> None:
    (folder / "ratings.dat").write_text("".join(f"{u}::{i}::{r:g}::978300760\n" for u, i, r in RATINGS))


def _make_csv(folder: Path) -> None:
    lines = "".join(f'reader {u},"book, {i}",{r}\n' for u, i, r in RATINGS)
    (folder / "ratings.csv").write_text("user,item,rating\n" + lines)


def _read_ratings(folder: Path) -> None:
    (path,) = folder.iterdir()
    ratings = load_ratings(path)
    lines = [line for line in path.read_bytes().replace(b"\r", b"\n").split(b"\n") if line.strip()]
    assert len(lines) - 1 <= len(ratings) <= len(lines), "lines were lost, or made up"
    assert np.isfinite(ratings.rating).all()
    assert ratings.user.max() < ratings.num_users
    assert ratings.item.max() < ratings.num_items


def _make_ratings_zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "ratings.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml/ratings.dat", "".join(f"{u}::{i}::{r:g}::978300760\n" for u, i, r in RATINGS))


def _read_ratings_zip(folder: Path) -> None:
    ratings = load_ratings(folder / "ratings.zip")
    assert sorted(ratings.rating) == sorted(r for _, _, r in RATINGS), "zip's checksum was not looked at"


def _make_ratings_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    user, item, rating = zip(*RATINGS, strict=True)
    table = pa.table({"user": user, "item": item, "rating": rating})
    pq.write_table(table, folder / "ratings.parquet", write_page_checksum=True)


def _read_ratings_parquet(folder: Path) -> None:
    assert len(load_ratings(folder / "ratings.parquet")) == len(RATINGS)


# -- models -------------------------------------------------------------------------------------------------------

NETWORKS = PackedNetworks(
    bits=np.array([[0b10110011, 0b01000000], [0b00001111, 0b10000000]], np.uint8),
    layers=(2, 3, 1),
    activation="tanh",
    logit_scale=0.5,
    intercepts=(0.25,),
    center=np.zeros(1, np.float32),
    scale=np.ones(1, np.float32),
    classes=np.arange(1),
)


def _make_packed(folder: Path) -> None:
    NETWORKS.write(folder / "networks.ibnet")


def _read_packed(folder: Path) -> None:
    found = packed.read(folder / "networks.ibnet")
    assert found.layers == NETWORKS.layers
    assert np.array_equal(found.bits, NETWORKS.bits), "the checksum was not looked at"


def _inside_packed(content: bytes, damage: Callable[[bytes], bytes]) -> bytes:
    changed = damage(content[:-4])
    return changed + struct.pack("<I", zlib.crc32(changed))


def _read_packed_inside(folder: Path) -> None:
    found = packed.read(folder / "networks.ibnet")
    assert found.bits.shape == (len(found), -(-found.num_weights // 8))
    assert found.predict(np.zeros((1, found.layers[0]))).shape == (1,)


def _make_network(folder: Path) -> None:
    model = ib.models.BinaryNetwork(hidden=(3,))
    model.networks_, model.classes_, model.history_ = NETWORKS, NETWORKS.classes, {"loss": np.ones(3)}
    model.save(folder / "network.npz")


def _read_network(folder: Path) -> None:
    model = ib.models.BinaryNetwork.load(folder / "network.npz")
    assert np.array_equal(model.networks_.bits, NETWORKS.bits)


def _inside_zip(content: bytes, damage: Callable[[bytes], bytes]) -> bytes:
    """Damage one member, the one that the damage itself picks, and pack it again with the right checksum."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = sorted(members)[zlib.crc32(damage(content)) % len(members)]
    members[chosen] = damage(members[chosen])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return out.getvalue()


def _read_network_inside(folder: Path) -> None:
    model = ib.models.BinaryNetwork.load(folder / "network.npz")
    assert model.predict(np.zeros((1, model.n_features_in_))).shape == (1,)


def _make_draws(folder: Path) -> None:
    posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0).expand([2]), "layers": [dist.Normal(0.0, 1.0)]})
    draws = ib.sample(ib.sgld(posterior), 0.1, 20, num_chains=2, progress=False)
    draws.quantities["sum"] = lambda theta: theta["x"].sum()
    x, one = np.ones(2), np.ones(())
    means = {"x": x, "layers/0": one, "sum": one}
    quantiles = {name: np.ones((*value.shape, 3)) for name, value in means.items()}
    draws.certificate = ib.Certificate(
        True,
        ["none"],
        0.05,
        0.04,
        means,
        means,
        quantiles,
        means,
        means,
        quantiles,
        means,
        {"steps": "long."},
        course=[(1.0, 20, 0.04)],
    )
    draws.save(folder / "draws.npz")


def _read_draws(folder: Path) -> None:
    draws = ib.load(folder / "draws.npz")
    assert draws.theta["x"].shape[2:] == (2,), "zip's checksum was not looked at"
    assert len(draws.summary().rows) == 4


def _read_draws_inside(folder: Path) -> None:
    draws = ib.load(folder / "draws.npz")
    assert len(str(draws.summary()).splitlines()) >= len(draws.variables())
    str(draws.certificate)
    repr(draws)


def _make_factors(folder: Path) -> None:
    model = ib.models.BayesianNMF(
        2, iterations=40, batch_size=10, keep=2, step_size=1e-3, validation=0.2, progress=False
    )
    generator = np.random.default_rng(0)
    pairs = np.stack([np.arange(40) % 8, np.arange(40) // 8], axis=1)
    model.fit(pairs, generator.integers(1, 6, 40)).save(folder / "factors.npz")


def _read_factors(folder: Path) -> None:
    model = ib.models.BayesianNMF.load(folder / "factors.npz")
    assert np.shape(model.predict(model.user_ids_[:1], model.item_ids_[:1])) == (1,)


def _make_topics(folder: Path) -> None:
    model = ib.models.LDA(2, max_iter=4, batch_size=4, draws=2)
    model.fit(np.random.default_rng(0).integers(0, 3, (8, 5))).save(folder / "topics.npz")


def _read_topics(folder: Path) -> None:
    model = ib.models.LDA.load(folder / "topics.npz")
    assert model.components_.shape == model.topics_.shape[1:]


# -- streams ------------------------------------------------------------------------------------------------------


def _table(rows: int = 40) -> Any:
    import pyarrow as pa

    return pa.table({"x": np.linspace(0, 1, rows), "user": np.arange(rows), "flag": np.arange(rows) % 2 == 0})


def _make_parquet(folder: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(_table(), folder / "a.parquet", row_group_size=15, write_page_checksum=True)
    pq.write_table(_table(9), folder / "b.parquet", compression="zstd")


def _make_arrow(folder: Path) -> None:
    import pyarrow as pa

    for name, compression in (("a", None), ("b", "lz4")):
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(folder / f"{name}.arrow", _table().schema, options=options) as writer:
            writer.write_table(_table(), max_chunksize=15)


def _read_tables(folder: Path) -> None:
    _read_stream(ib.data.stream(folder))


def _read_stream(stream: Any) -> None:
    rows = 0
    for batch in stream.slices(16):
        rows += len(batch["x"])
        assert np.isfinite(batch["x"]).all()
        assert len({len(leaf) for leaf in batch.values()}) == 1
    assert rows == stream.num_data


def _make_npy(folder: Path) -> None:
    np.save(folder / "x.npy", np.linspace(0, 1, 30, dtype=np.float32))
    np.save(folder / "user.npy", np.arange(30))


def _read_npy(folder: Path) -> None:
    _read_stream(ib.data.stream({"x": folder / "x.npy", "user": folder / "user.npy"}))


def _make_cache(folder: Path) -> None:
    with _folder(folder) as inner:
        np.save(inner / "x.npy", np.linspace(0, 1, 30, dtype=np.float32))
        ib.data.stream({"x": inner / "x.npy"}, cache=inner / "cache")
        for path in (inner / "cache").iterdir():
            shutil.copy(path, folder / path.name)


@contextlib.contextmanager
def _folder(beside: Path) -> Iterator[Path]:
    inner = beside.with_name(beside.name + "-made")
    inner.mkdir()
    try:
        yield inner
    finally:
        shutil.rmtree(inner)


# -- a run's own files --------------------------------------------------------------------------------------------


class _Run:
    """A short run, and what it gives without interruption."""

    def __init__(self) -> None:
        import numpyro.distributions as dist

        posterior = ib.Posterior(priors={"rate": dist.Gamma(2.0, 1.0)})
        self.kernel = ib.sgld(posterior)
        self.whole = np.asarray(self.sample(None, 4_096).theta["rate"])

    def sample(self, folder: Path | None, num_steps: int, stored: bool = True, **options: Any) -> Any:
        if folder is not None:
            options |= {"checkpoint": ib.Checkpoint(folder / "checkpoint", every_steps=1_024)}
            options |= {"store": str(folder / "run.zarr")} if stored else {}
        return ib.sample(self.kernel, 1e-2, num_steps, thin=64, chunk_steps=1_024, progress=False, **options)


_run: list[_Run] = []


def _begin_run() -> None:
    if not _run:
        _run.append(_Run())


def _make_run(folder: Path) -> None:
    _run[0].sample(folder, 2_048)


def _read_run(folder: Path) -> None:
    """Resume, and get the draws of a run that was never interrupted."""
    draws = _run[0].sample(folder, 4_096, resume=True)
    found = np.asarray(draws.theta["rate"])
    assert found.shape == _run[0].whole.shape


def _make_checkpoint(folder: Path) -> None:
    _run[0].sample(folder, 2_048, stored=False)


def _read_checkpoint(folder: Path) -> None:
    draws = _run[0].sample(folder, 4_096, stored=False, resume=True)
    assert np.array_equal(np.asarray(draws.theta["rate"]), _run[0].whole), "a damaged checkpoint was used"


READERS = {
    reader.name: reader
    for reader in (
        Reader("idx", _make_idx, _read_idx, share=4),
        Reader("idx.gz", _make_idx_gz, _read_idx_gz, share=2),
        Reader("inside idx.gz", _make_idx_gz, _read_idx_inside, share=2, inside=_inside_gzip),
        Reader("bag of words", _make_words, _read_words, share=6),
        Reader("ratings, dat", _make_ratings, _read_ratings, share=6),
        Reader("ratings, csv", _make_csv, _read_ratings, share=6),
        Reader("ratings, zip", _make_ratings_zip, _read_ratings_zip, share=3),
        Reader("ratings, parquet", _make_ratings_parquet, _read_ratings_parquet, share=3),
        Reader("packed networks", _make_packed, _read_packed, ValueError, share=4),
        Reader("inside packed networks", _make_packed, _read_packed_inside, ValueError, share=4, inside=_inside_packed),
        Reader("saved network", _make_network, _read_network, ValueError, share=2),
        Reader("inside saved network", _make_network, _read_network_inside, ValueError, share=2, inside=_inside_zip),
        Reader("saved draws", _make_draws, _read_draws, ValueError, share=2),
        Reader("inside saved draws", _make_draws, _read_draws_inside, ValueError, share=2, inside=_inside_zip),
        Reader("saved factors", _make_factors, _read_factors, ValueError, share=0.5, slow=True),
        Reader("inside saved factors", _make_factors, _read_factors, ValueError, 0.5, _inside_zip, slow=True),
        Reader("saved topics", _make_topics, _read_topics, ValueError, share=0.5, slow=True),
        Reader("inside saved topics", _make_topics, _read_topics, ValueError, 0.5, _inside_zip, slow=True),
        Reader("parquet stream", _make_parquet, _read_tables, share=4),
        Reader("arrow stream", _make_arrow, _read_tables, share=4),
        Reader("npy stream", _make_npy, _read_npy, share=4),
        Reader("shuffled rows", _make_cache, lambda folder: _read_stream(ib.data.stream(folder)), share=2),
        Reader("checkpoint", _make_checkpoint, _read_checkpoint, ValueError, share=0.02, slow=True, begin=_begin_run),
        Reader("store and checkpoint", _make_run, _read_run, ValueError, share=0.02, slow=True, begin=_begin_run),
    )
}
