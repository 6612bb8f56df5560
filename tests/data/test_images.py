"""idx files, splits, and the published image sets where they are at hand."""

import gzip
import os
import struct

import numpy as np
import pytest

from inbounds.data import catalog
from inbounds.data.catalog import DataError
from inbounds.data.images import Part, read_idx, read_images, split, write_idx

DIGITS = tuple("0123456789")


def _write_set(place, rows=30, test_rows=10):
    rng = np.random.default_rng(0)
    for which, count in (("train", rows), ("t10k", test_rows)):
        write_idx(place / f"{which}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 4, 5), np.uint8))
        write_idx(place / f"{which}-labels-idx1-ubyte.gz", rng.integers(0, 10, count).astype(np.uint8))


@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_what_is_written_is_read(tmp_path, name, dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    write_idx(tmp_path / name, array)
    got = read_idx(tmp_path / name)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)


def test_packing_is_seen_from_the_bytes_and_not_from_the_name(tmp_path):
    write_idx(tmp_path / "a.gz", np.zeros(3, np.uint8))
    (tmp_path / "a.gz").rename(tmp_path / "a.bin")
    assert read_idx(tmp_path / "a.bin").shape == (3,)


def _bytes(shape, body):
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"\x89PNG\r\n", "not an idx file"),
        (b"\x00\x00\x07\x01\x00\x00\x00\x01", "not an idx file"),
        (b"\x00\x00\x08\x03\x00\x00", "cut off inside its header"),
        (_bytes((5,), b"1234"), "cut off: its header says"),
        (_bytes((3,), b"1234"), "too long"),
        (_bytes((2**31, 4), b""), "header is damaged"),
        (gzip.compress(_bytes((500,), bytes(range(250)) * 2))[:-20], "cut off: its gzip stream"),
        (gzip.compress(_bytes((5,), b"12345"))[:-8] + b"12345678", "damaged"),
    ],
    ids=["empty", "foreign", "type", "header cut", "body cut", "too long", "huge", "gzip cut", "gzip damaged"],
)
def test_a_file_that_is_not_right_says_what_is_wrong(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(tmp_path / "file")


def test_a_set_is_read_with_its_labels(tmp_path):
    _write_set(tmp_path)
    images = read_images(tmp_path, "toy", DIGITS)
    assert images.train.x.shape == (30, 4, 5)
    assert images.test.y.shape == (10,)
    assert images.pooled().x.shape == (40, 20)


def test_images_and_labels_that_do_not_belong_together_are_refused(tmp_path):
    _write_set(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.zeros(29, np.uint8))
    with pytest.raises(DataError, match="do not belong together"):
        read_images(tmp_path, "toy", DIGITS)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.full(30, 11, np.uint8))
    with pytest.raises(DataError, match="labels go from 0 to 9"):
        read_images(tmp_path, "toy", DIGITS)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", np.zeros(30, np.uint8))
    with pytest.raises(DataError, match="swapped"):
        read_images(tmp_path, "toy", DIGITS)


def test_a_split_uses_every_row_once():
    part = Part(np.arange(100)[:, None], np.arange(100))
    pieces = split(part, seed=3)
    assert [len(piece) for piece in pieces] == [80, 10, 10]
    np.testing.assert_array_equal(np.sort(np.concatenate([piece.y for piece in pieces])), np.arange(100))
    np.testing.assert_array_equal(pieces.test.y, split(part, seed=3).test.y)
    assert not np.array_equal(pieces.test.y, split(part, seed=4).test.y)
    with pytest.raises(ValueError, match="sum to 1"):
        split(part, seed=0, shares=(0.5, 0.5, 0.5))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_published_sets_have_their_published_shape(name):
    if not os.environ.get(catalog.ENVIRONMENT):
        pytest.skip(f"{catalog.ENVIRONMENT} does not point to a folder of data sets")
    if catalog.missing(name):
        pytest.skip(f"{name} is not in the folder that {catalog.ENVIRONMENT} points to")
    images = catalog.load(name)
    assert images.train.x.shape == (60_000, 28, 28)
    assert images.test.x.shape == (10_000, 28, 28)
    # Both sets are balanced: Fashion-MNIST exactly, MNIST within a few percent.
    assert np.bincount(images.train.y).min() > 5_000
