"""Labelled images: MNIST and Fashion-MNIST, and the idx format that they come in.

An idx file is two zero bytes, a type code, the number of dimensions, each dimension as a big-endian 32-bit integer, then the
values in C order (http://yann.lecun.com/exdb/mnist).
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inbounds.data.catalog import DataError, Dataset, File, open_file, read_at_most

__all__ = ["LabelledImages", "Part", "Split", "read_idx", "read_images", "split", "write_idx"]

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_VALUES = 1 << 31  # a header that asks for more is damage, not data
MOST_DIMENSIONS = 32


class Part(NamedTuple):
    """Images and their labels: `x` (rows, features) or (rows, height, width), `y` (rows,).

    Example:
        >>> part = ib.data.images.Part(np.zeros((3, 784)), np.array([7, 2, 1]))
        >>> len(part)
        3
    """

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:  # rows, not fields
        return len(self.y)


class LabelledImages(NamedTuple):
    """A data set as published: grey values 0 to 255, whole-number labels, and what the labels mean.

    Example:
        >>> part = ib.data.images.Part(np.zeros((3, 28, 28)), np.array([0, 1, 1]))
        >>> ib.data.images.LabelledImages("blank", part, part, ("no", "yes")).pooled().x.shape
        (6, 784)
    """

    name: str
    train: Part
    test: Part
    classes: tuple[str, ...]

    def pooled(self) -> Part:
        """Training and test part together, flattened to (rows, pixels)."""
        x = np.concatenate([self.train.x, self.test.x])
        return Part(x.reshape(len(x), -1), np.concatenate([self.train.y, self.test.y]))


class Split(NamedTuple):
    """Rows for fitting, for choosing, and for the final number.

    Example:
        >>> parts = ib.data.images.split(ib.data.synthetic_digits(100), seed=0)
        >>> len(parts.train), len(parts.validation), len(parts.test)
        (80, 10, 10)
    """

    train: Part
    validation: Part
    test: Part


def split(part: Part, seed: int, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> Split:
    """Shuffle the rows and cut them, 8 : 1 : 1 by default.

    Args:
        part: images and labels.
        seed: of the order.
        shares: of training, validation and test; they sum to 1.

    Returns:
        The three parts.

    Raises:
        ValueError: `shares` are not three positive numbers that sum to 1.

    Example:
        >>> parts = ib.data.images.split(ib.data.synthetic_digits(100), seed=0, shares=(0.5, 0.25, 0.25))
        >>> len(parts.train), len(parts.validation), len(parts.test)
        (50, 25, 25)
    """
    if len(shares) != 3 or min(shares) <= 0 or not math.isclose(sum(shares), 1.0):
        raise ValueError(f"`shares` must be three positive numbers that sum to 1; got {shares}.")
    order = np.random.default_rng(seed).permutation(len(part))
    first = round(shares[0] * len(part))
    second = first + round(shares[1] * len(part))
    return Split(*(Part(part.x[rows], part.y[rows]) for rows in np.split(order, [first, second])))


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an idx file, gzip-packed or not; a damaged or foreign file is a DataError that says what is wrong.

    Args:
        path: of the file.

    Returns:
        An array of the shape and type that the file says.

    Raises:
        DataError: the file is damaged, or not of that format.

    Example:
        >>> ib.data.images.write_idx("squares.gz", np.arange(4, dtype=np.int32) ** 2)
        >>> ib.data.images.read_idx("squares.gz").tolist()
        [0, 1, 4, 9]
    """
    path = Path(path)
    try:
        with open_file(path.parent, path.name) as stream:
            header = stream.read(4)
            if (
                len(header) < 4
                or header[:2] != b"\x00\x00"
                or header[2] not in TYPES
                or not 0 < header[3] <= MOST_DIMENSIONS
            ):
                raise DataError(
                    f"{path} is not an idx file: it begins with {header!r}, not with 0, 0, type, dimensions."
                )
            dtype, dimensions = np.dtype(TYPES[header[2]]), header[3]
            sizes = stream.read(4 * dimensions)
            if len(sizes) < 4 * dimensions:
                raise DataError(f"{path} is cut off inside its header.")
            shape = struct.unpack(f">{dimensions}I", sizes)
            count = math.prod(shape)
            if count > MOST_VALUES:
                raise DataError(f"{path} claims a shape of {shape}: {count:,} values. Its header is damaged.")
            body = read_at_most(stream, count * dtype.itemsize + 1)
    except EOFError:
        raise DataError(f"{path} is cut off: its gzip stream ends before its end. Fetch it again.") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged: {error}. Fetch it again.") from error
    if len(body) != count * dtype.itemsize:
        wrong = "cut off" if len(body) < count * dtype.itemsize else "too long"
        raise DataError(
            f"{path} is {wrong}: its header says {shape}, {count * dtype.itemsize:,} bytes of values, and there are "
            f"{'more' if wrong == 'too long' else f'{len(body):,}'}."
        )
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def write_idx(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an array as an idx file, packed when the name ends in .gz.

    Args:
        path: of the file.
        array: numbers of a type that the format has.

    Raises:
        ValueError: the format has no such type.

    Example:
        >>> ib.data.images.write_idx("zeros.gz", np.zeros((2, 3), np.uint8))
        >>> ib.data.images.read_idx("zeros.gz").shape
        (2, 3)
    """
    array = np.asarray(array)
    codes = {np.dtype(code): number for number, code in TYPES.items()}
    dtype = array.dtype.newbyteorder(">")
    if dtype not in codes or array.ndim == 0:
        raise ValueError(f"idx holds arrays of {', '.join(sorted(str(d) for d in codes))}; got {array.dtype}.")
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, codes[dtype], array.ndim, *array.shape)
    content += array.astype(dtype).tobytes()
    Path(path).write_bytes(gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content)


def read_images(place: Path, name: str, classes: tuple[str, ...]) -> LabelledImages:
    """The four files of MNIST or of a data set in its format.

    Args:
        place: the folder.
        name: of the data set.
        classes: what the labels 0, 1, ... stand for.

    Returns:
        Training and test images with their labels.

    Example:
        >>> from pathlib import Path
        >>> for part in ("train", "t10k"):
        ...     ib.data.images.write_idx(f"{part}-images-idx3-ubyte.gz", np.zeros((2, 28, 28), np.uint8))
        ...     ib.data.images.write_idx(f"{part}-labels-idx1-ubyte.gz", np.array([0, 1], np.uint8))
        >>> ib.data.images.read_images(Path(), "blank", ("no", "yes")).test.x.shape
        (2, 28, 28)
    """
    train, test = (
        _part(place, f"{which}-images-idx3-ubyte.gz", f"{which}-labels-idx1-ubyte.gz", classes)
        for which in ("train", "t10k")
    )
    return LabelledImages(name, train, test, classes)


def _part(place: Path, images: str, labels: str, classes: tuple[str, ...]) -> Part:
    x, y = read_idx(place / images), read_idx(place / labels)
    for file, array, dimensions in ((images, x, 3), (labels, y, 1)):
        if array.ndim != dimensions or array.dtype != np.uint8:
            raise DataError(
                f"{place / file} holds {array.dtype} of shape {array.shape}, expected bytes in {dimensions} dimensions. "
                "Are images and labels swapped?"
            )
    if len(x) != len(y):
        raise DataError(
            f"{place / images} has {len(x):,} images and {labels} {len(y):,} labels: they do not belong together."
        )
    if len(y) and int(y.max()) >= len(classes):
        raise DataError(f"{place / labels} holds the label {int(y.max())}; labels go from 0 to {len(classes) - 1}.")
    return Part(x, y.astype(np.int32))


def _files(mirrors: tuple[str, ...], table: tuple[tuple[str, int, str, str], ...]) -> tuple[File, ...]:
    return tuple(
        File(name, size, sha256, tuple(mirror + name for mirror in mirrors), content)
        for name, size, sha256, content in table
    )


def _parse_mnist(place: Path) -> LabelledImages:
    return read_images(place, "mnist", tuple("0123456789"))


def _parse_fashion(place: Path) -> LabelledImages:
    classes = "T-shirt,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"
    return read_images(place, "fashion-mnist", tuple(classes.split(",")))


DATASETS = (
    Dataset(
        name="mnist",
        title="MNIST, 70,000 handwritten digits",
        homepage="http://yann.lecun.com/exdb/mnist",
        licence="free to use, as NIST's special databases 1 and 3",
        files=_files(
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            (
                (
                    "train-images-idx3-ubyte.gz",
                    9_912_422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                ),
                (
                    "train-labels-idx1-ubyte.gz",
                    28_881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                ),
                (
                    "t10k-images-idx3-ubyte.gz",
                    1_648_877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                ),
                (
                    "t10k-labels-idx1-ubyte.gz",
                    4_542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ),
            ),
        ),
        parse=_parse_mnist,
    ),
    Dataset(
        name="fashion-mnist",
        title="Fashion-MNIST, 70,000 pictures of clothing",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT, Zalando SE",
        files=_files(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            (
                (
                    "train-images-idx3-ubyte.gz",
                    26_421_880,
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                ),
                (
                    "train-labels-idx1-ubyte.gz",
                    29_515,
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                ),
                (
                    "t10k-images-idx3-ubyte.gz",
                    4_422_102,
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                ),
                (
                    "t10k-labels-idx1-ubyte.gz",
                    5_148,
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                ),
            ),
        ),
        parse=_parse_fashion,
    ),
)
