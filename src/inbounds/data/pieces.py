"""Data on disk, a contiguous piece at a time: Parquet, Arrow and NumPy files.

A piece is what is read at once: a row group of a Parquet file, a record batch of an Arrow file, a slice of a
memory-mapped array. Every piece is looked over when it is read for the first time, and what is wrong with it is a `DataError` that
names the file and the place. Nothing here is random; the order in which pieces are read is `stream.py`'s.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from inbounds.data.catalog import DataError
from inbounds.trees import PyTree, variable_name

__all__ = [
    "Leaves",
    "Pieces",
    "find_files",
    "map_array",
    "open_pieces",
    "open_shuffled",
    "pyarrow",
    "shuffled_copy",
    "slices",
]

PIECE_BYTES = 1 << 17  # of a slice of a memory-mapped array: what Linux reads ahead
SHUFFLED_PIECE_BYTES = 1 << 22  # the same where rows are in random order already: longer copies
BUCKET_BYTES = 1 << 27  # of memory while rows are put in random order
OPEN_FILES = 64
TABLES = (".parquet", ".arrow", ".feather", ".ipc")
MARK = "inbounds-rows.json"  # in a folder of shuffled rows

Leaves = list[np.ndarray]


class Pieces:
    """Rows on disk, cut into pieces.

    Args:
        names: of the leaves, for messages.
        treedef: how the leaves make a minibatch.
        sizes: rows of each piece.
        load: the leaves of piece `i`, as they are stored.
        where: what piece `i` is called in a message, and the number of its first row there.
        whole: the leaves as one array each, where the data are that: any row can then be had at any time.
        shuffled: whether the rows are in random order on disk.
    """

    def __init__(
        self,
        names: Sequence[str],
        treedef: Any,
        sizes: Any,
        load: Callable[[int], Leaves],
        where: Callable[[int], tuple[str, int]],
        whole: Leaves | None = None,
        shuffled: bool = False,
    ):
        self.names, self.treedef, self.sizes = list(names), treedef, np.asarray(sizes, np.int64)
        self.load, self.where, self.whole, self.shuffled = load, where, whole, shuffled
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self._checked = np.zeros(len(self.sizes), bool)
        first = self.load(0)
        self.shapes = [leaf.shape[1:] for leaf in first]
        self.dtypes = [_jax_dtype(leaf.dtype) for leaf in first]
        self.checksum = zlib.crc32(
            self.sizes.tobytes()
        )  # of the sizes and of some rows: other data are likely to differ
        for leaf in first:
            self.checksum = zlib.crc32(np.ascontiguousarray(leaf[:1_000]).tobytes(), self.checksum)

    @property
    def num_rows(self) -> int:
        return int(self.starts[-1])

    @property
    def row_bytes(self) -> int:
        widths = (dtype.itemsize * int(np.prod(shape)) for shape, dtype in zip(self.shapes, self.dtypes, strict=True))
        return max(1, sum(widths))

    def read(self, piece: int) -> Leaves:
        """The leaves of a piece, looked over the first time."""
        leaves = self.load(piece)
        if not self._checked[piece]:
            self._check(piece, leaves)
            self._checked[piece] = True
        return leaves

    def see(self, piece: int) -> None:
        """Look a piece over, if that has not been done."""
        if not self._checked[piece]:
            self.read(piece)

    def _check(self, piece: int, leaves: Leaves) -> None:
        file, first = self.where(piece)
        for name, leaf, shape, dtype in zip(self.names, leaves, self.shapes, self.dtypes, strict=True):
            if leaf.shape != (self.sizes[piece], *shape) or _jax_dtype(leaf.dtype) != dtype:
                raise DataError(
                    f"{file}: {name!r} has {leaf.dtype} of shape {leaf.shape}, expected {dtype} of shape "
                    f"{(int(self.sizes[piece]), *shape)}. Every file must hold the same columns of the same types."
                )
            bad = _bad_rows(leaf, dtype)
            if bad.any():
                rows = np.flatnonzero(bad)
                kind = "a number too large for" if dtype.kind in "iu" else "NaN or a number too large for"
                raise DataError(
                    f"{file}: {name!r} holds {kind} {dtype} in {rows.size:,} of {len(leaf):,} rows, the first of them row "
                    f"{first + rows[0]:,}. Remove or correct those rows: one of them spoils every gradient."
                )


def open_pieces(where: Any, columns: Any = None, shuffled: bool = False) -> Pieces:
    """Pieces of what `where` names: files, a folder, a glob pattern, or a tree of arrays or of `.npy` files."""
    if isinstance(where, str | os.PathLike) and (Path(where) / MARK).is_file():
        if columns is not None:
            raise ValueError(f"{where} holds shuffled rows with columns of its own: leave `columns` out.")
        return open_shuffled(where)
    if isinstance(where, str | os.PathLike) or _is_list_of_paths(where):
        paths = find_files(where)
        kinds = {path.suffix.lower() for path in paths}
        if kinds == {".npy"}:
            return _open_arrays([paths], jax.tree.structure(0), ["data"], columns, shuffled)
        if not kinds <= set(TABLES):
            raise DataError(
                f"{paths[0]} is not a kind of file that can be streamed. Known: {', '.join(TABLES)} and .npy, one kind at a time."
            )
        return _open_tables(paths, columns, shuffled)
    leaves, treedef = jax.tree.flatten(where, is_leaf=_is_list_of_paths)
    if not leaves:
        raise ValueError("There is nothing to stream: give files, a folder, a pattern, or a tree of arrays.")
    names = [variable_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(where, is_leaf=_is_list_of_paths)]
    shards = [find_files(leaf) if _is_path(leaf) or _is_list_of_paths(leaf) else [leaf] for leaf in leaves]
    return _open_arrays(shards, treedef, names, columns, shuffled)


def find_files(where: Any) -> list[Path]:
    """The files of a path, a folder, a glob pattern or a list of them, in the order of their names."""
    if not _is_path(where):
        return [path for one in where for path in find_files(one)]
    path = Path(where).expanduser()
    if path.is_dir():
        found = sorted(child for child in path.iterdir() if child.suffix.lower() in TABLES)
        if not found:
            raise DataError(f"The folder {path} holds no file with one of the endings {', '.join(TABLES)}.")
        return found
    if path.is_file():
        return [path]
    matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
    if not matches:
        raise DataError(f"There is no file {path}, and nothing matches it as a pattern.")
    return matches


# -- tables: Parquet and Arrow ------------------------------------------------------------------------------------


def pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError('Parquet and Arrow files need pyarrow: pip install "inbounds[stream]"') from error
    return pyarrow


def _open_tables(paths: list[Path], columns: Any, shuffled: bool) -> Pieces:
    pa = pyarrow()
    files = _Files(pa)
    wanted: dict[str, str | list[str]] | None = None
    places: list[tuple[Path, int, int]] = []  # file, piece of the file, its first row there
    sizes: list[int] = []
    reference: tuple[Path, dict[str, Any]] | None = None
    for path in paths:
        table = files.open(path)
        if wanted is None:
            wanted = _wanted(columns, list(table.types), path)
        types = _types_of(wanted, table.types, path)
        if reference is None:
            reference = (path, types)
        for name, kind in types.items():
            if kind != reference[1][name]:
                raise DataError(
                    f"Column {name!r} is {kind} in {path} and {reference[1][name]} in {reference[0]}. "
                    "Every file must hold the same columns of the same types."
                )
        first = 0
        for number, rows in enumerate(table.sizes):
            if rows > 0:  # empty row groups and empty files are allowed; no rows at all are not
                places.append((path, number, first))
                sizes.append(rows)
            first += rows
    if not places:
        raise DataError(
            f"There are no rows in {paths[0]}" + (f" and {len(paths) - 1} more files." * (len(paths) > 1) or ".")
        )
    assert wanted is not None
    tree = {name: 0 for name in wanted}
    names, treedef = list(tree), jax.tree.structure(tree)
    in_order = sorted(names)  # as JAX flattens a dict
    flat = sorted({column for value in wanted.values() for column in ([value] if isinstance(value, str) else value)})

    def where(piece: int) -> tuple[str, int]:
        path, number, first = places[piece]
        return f"{path}, {files.open(path).noun} {number}", first

    def load(piece: int) -> Leaves:
        path, number, first = places[piece]
        table = files.open(path)
        try:
            content = table.load(number, flat)
        except Exception as error:  # Arrow's own, and whatever a damaged name or length makes Python raise
            raise DataError(
                f"{path}, {table.noun} {number} (rows {first:,} to {first + sizes[piece] - 1:,} of the file) cannot be read: "
                f"{_one_line(error)}. The file is damaged there: write it again."
            ) from None
        label = f"{path}, {table.noun} {number}"
        arrays = {name: _to_numpy(pa, content.column(name), name, label, first) for name in flat}
        if any(len(array) != sizes[piece] for array in arrays.values()):
            got = min(len(array) for array in arrays.values())
            raise DataError(f"{label} holds {got:,} rows, and the file says {sizes[piece]:,}: it is damaged.")
        return [_stack(arrays, wanted[name], label) for name in in_order]

    return Pieces(in_order, treedef, sizes, load, where, shuffled=shuffled)


class _Files:
    """Open files, the latest few of them."""

    def __init__(self, pa: Any):
        self.pa = pa
        self.latest: dict[Path, Any] = {}

    def open(self, path: Path) -> Any:
        if path in self.latest:
            self.latest[path] = self.latest.pop(path)
        else:
            kind = _ParquetFile if path.suffix.lower() == ".parquet" else _ArrowFile
            try:
                self.latest[path] = kind(self.pa, path)
            except DataError:
                raise
            except Exception as error:  # Arrow's own, and whatever a damaged name or length makes Python raise
                raise DataError(
                    f"{path} is not a readable {kind.title} file: {_one_line(error)}. Is it cut off, or another format?"
                ) from None
            while len(self.latest) > OPEN_FILES:
                self.latest.pop(next(iter(self.latest)))
        return self.latest[path]


class _ParquetFile:
    title, noun = "Parquet", "row group"

    def __init__(self, pa: Any, path: Path):
        import pyarrow.parquet

        # Checksums of pages are verified where the writer wrote them (pyarrow: write_page_checksum=True).
        self.file = pyarrow.parquet.ParquetFile(
            path, memory_map=True, pre_buffer=False, page_checksum_verification=True
        )
        meta = self.file.metadata
        self.types = _types(self.file.schema_arrow, path)
        self.sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        if min(self.sizes, default=0) < 0 or sum(self.sizes) != meta.num_rows:
            raise DataError(f"{path} is damaged: its row groups do not sum to its {meta.num_rows:,} rows.")

    def load(self, number: int, columns: list[str]) -> Any:
        return self.file.read_row_group(number, columns=columns, use_threads=False)


class _ArrowFile:
    title, noun = "Arrow", "record batch"

    def __init__(self, pa: Any, path: Path):
        self.pa = pa
        self.file = pa.ipc.open_file(pa.memory_map(str(path)))
        self.types = _types(self.file.schema, path)
        self.sizes = [self._batch(number).num_rows for number in range(self.file.num_record_batches)]

    def _batch(self, number: int) -> Any:
        batch = self.file.get_batch(number)
        batch.validate()  # a length that lies would be read beyond the end of its buffer
        return batch

    def load(self, number: int, columns: list[str]) -> Any:
        return self.pa.Table.from_batches([self._batch(number)])


def _types(schema: Any, path: Path) -> dict[str, Any]:
    if not schema.names:
        raise DataError(f"{path} has no columns: there is nothing to read.")
    if len(set(schema.names)) < len(schema.names):
        raise DataError(f"{path} has several columns of one name. Rename them.")
    return {field.name: field.type for field in schema}


def _wanted(columns: Any, known: list[str], path: Path) -> dict[str, str | list[str]]:
    """Name of each leaf, and the column or columns that it is made of."""
    if columns is None:
        return {name: name for name in known}
    if isinstance(columns, Mapping):
        wanted = {name: value if isinstance(value, str) else list(value) for name, value in columns.items()}
    else:
        if isinstance(columns, str):
            raise ValueError(
                f"`columns` must be a list or a dict of column names; got {columns!r}. Write [{columns!r}]."
            )
        wanted = {name: name for name in columns}
    if not wanted or not all(wanted.values()):
        raise ValueError("`columns` names no column. Leave it out for all of them.")
    return wanted


def _types_of(wanted: Mapping[str, str | list[str]], known: Mapping[str, Any], path: Path) -> dict[str, Any]:
    names = [column for value in wanted.values() for column in ([value] if isinstance(value, str) else value)]
    absent = [name for name in names if name not in known]
    if absent:
        raise DataError(f"{path} has no column {', '.join(map(repr, absent))}. It has: {', '.join(map(repr, known))}.")
    return {name: known[name] for name in names}


def _to_numpy(pa: Any, column: Any, name: str, label: str, first: int) -> np.ndarray:
    """A column as an array: numbers, truth values, or lists of one length of them; no copy where Arrow has none to make."""
    kind = column.type
    numbers: Any = kind
    width: tuple[int, ...] = ()
    if pa.types.is_fixed_size_list(kind):
        numbers, width = kind.value_type, (kind.list_size,)
    if not (pa.types.is_integer(numbers) or pa.types.is_floating(numbers) or pa.types.is_boolean(numbers)):
        raise DataError(
            f"{label}: column {name!r} is {kind}; a minibatch holds numbers. Encode categories as integers, give lists one "
            "fixed length, or leave the column out of `columns`."
        )
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise DataError(
            f"{label}: column {name!r} is empty (null) in {column.null_count:,} rows, the first of them row {first + row:,}. "
            "Remove or impute those rows."
        )
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):
        chunk = pa.concat_arrays(chunk.chunks)
    if width:
        rows, chunk = len(chunk), chunk.flatten()
        if chunk.null_count or len(chunk) != rows * width[0]:
            raise DataError(f"{label}: column {name!r} has an empty (null) number inside a list.")
    result: np.ndarray = (
        chunk.to_numpy(zero_copy_only=False).reshape(-1, *width) if width else chunk.to_numpy(zero_copy_only=False)
    )
    return result


def _stack(arrays: Mapping[str, np.ndarray], columns: str | list[str], label: str) -> np.ndarray:
    if isinstance(columns, str):
        return arrays[columns]
    parts = [arrays[name] for name in columns]
    if any(part.ndim != 1 for part in parts):
        raise DataError(
            f"{label}: columns {', '.join(map(repr, columns))} cannot stand side by side: one of them holds lists."
        )
    out = np.empty((len(parts[0]), len(parts)), np.result_type(*parts))
    for number, part in enumerate(parts):
        out[:, number] = part
    return out


# -- arrays: NumPy files and memory maps --------------------------------------------------------------------------


def _open_arrays(
    shards: list[list[Any]], treedef: Any, names: Sequence[str], columns: Any, shuffled: bool = False
) -> Pieces:
    """Slices of memory-mapped arrays; `shards[leaf][shard]` is a path or an array."""
    if columns is not None:
        raise ValueError("`columns` is for Parquet and Arrow files; arrays are named by the tree that holds them.")
    if len({len(leaf) for leaf in shards}) > 1:
        listing = ", ".join(f"{name!r} {len(leaf)}" for name, leaf in zip(names, shards, strict=True))
        raise DataError(f"The arrays have unequal numbers of files: {listing}.")
    arrays = [[map_array(one, name) for one in leaf] for name, leaf in zip(names, shards, strict=True)]
    for shard, parts in enumerate(zip(*arrays, strict=True)):
        if len({len(part) for part in parts}) > 1:
            listing = ", ".join(f"{name!r} {len(part):,}" for name, part in zip(names, parts, strict=True))
            raise DataError(
                f"Arrays of unequal length ({_label(shards[0][shard], names[0])} and its likes): {listing} rows."
            )
    lengths = [len(part) for part in arrays[0]]
    if sum(lengths) == 0:
        raise DataError("The arrays have no rows.")
    row_bytes = max(1, sum(leaf[0].dtype.itemsize * int(np.prod(leaf[0].shape[1:])) for leaf in arrays))
    rows = max(1, (SHUFFLED_PIECE_BYTES if shuffled else PIECE_BYTES) // row_bytes)
    cuts = [(shard, start) for shard, length in enumerate(lengths) for start in range(0, length, rows)]
    sizes = [min(rows, lengths[shard] - start) for shard, start in cuts]

    def load(piece: int) -> Leaves:
        shard, start = cuts[piece]
        return [leaf[shard][start : start + sizes[piece]] for leaf in arrays]

    def where(piece: int) -> tuple[str, int]:
        shard, start = cuts[piece]
        return " and ".join(_label(leaf[shard], name) for leaf, name in zip(shards, names, strict=True)), start

    whole = [leaf[0] for leaf in arrays] if len(lengths) == 1 else None
    return Pieces(names, treedef, sizes, load, where, whole, shuffled)


def map_array(source: Any, name: str) -> np.ndarray:
    """A `.npy` file as a memory-mapped array, never through pickle; an array as it is."""
    if _is_path(source):
        try:
            array = np.load(source, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # a damaged header makes NumPy raise errors of many kinds
            raise DataError(f"{source} is not a readable .npy file of numbers: {_one_line(error)}.") from None
        if not isinstance(array, np.ndarray):
            array.close()
            raise DataError(f"{source} is an archive of arrays (.npz); a stream takes .npy files.")
    else:
        array = source
        if not isinstance(array, np.ndarray):
            raise ValueError(
                f"{name!r} must be an array, a memory map or the path of a .npy file; got {type(array).__name__}."
            )
    label = _label(source, name)
    if array.ndim == 0:
        raise DataError(f"{label} is a scalar: the leading axis of every array must be that of the rows.")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{label} has dtype {array.dtype}; a minibatch holds numbers. Encode categories as integers.")
    return np.asarray(array)


def _label(source: Any, name: str) -> str:
    return str(source) if _is_path(source) else f"array {name!r}"


# -- rows in random order -----------------------------------------------------------------------------------------


def shuffled_copy(pieces: Pieces, folder: str | os.PathLike[str], origin: str, seed: int = 0) -> Pieces:
    """The rows in one uniformly random order, as memory-mapped arrays in `folder`; made there unless it exists.

    Two passes, in bounded memory: every row goes to a bucket at random, then every bucket is shuffled and appended
    (Rao 1961; Sandelius 1962). The folder appears whole or not at all.

    Args:
        pieces: what to copy.
        folder: where to. A folder with rows of the same origin is used as it is; any other is refused.
        origin: what the rows come from; decides whether a folder can be used again.
        seed: of the order.
    """
    folder = Path(folder).expanduser()
    if folder.exists():
        if _describe(folder).get("origin") != origin:
            raise DataError(
                f"{folder} holds rows of other files, or of other columns of them, or the files have changed since. "
                "Remove it, or give another folder."
            )
        return open_shuffled(folder)
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        _write_shuffled(pieces, part, origin, seed)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return open_shuffled(folder)


def open_shuffled(folder: str | os.PathLike[str]) -> Pieces:
    """Rows that `shuffled_copy` wrote."""
    folder = Path(folder).expanduser()
    found = _describe(folder)
    names = found["names"]
    tree: PyTree = 0 if found["bare"] else {name: 0 for name in names}
    shards: list[list[Any]] = [[folder / f"{number}.npy"] for number in range(len(names))]
    return _open_arrays(shards, jax.tree.structure(tree), names, None, shuffled=True)


def _describe(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / MARK).read_text())
        if found.pop("checksum") != _checksum(found):
            raise ValueError("its checksum is wrong")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{folder} does not hold shuffled rows: {MARK} cannot be read ({_one_line(error)}).") from None
    return found


def _write_shuffled(pieces: Pieces, folder: Path, origin: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    buckets = -(-pieces.num_rows * pieces.row_bytes // BUCKET_BYTES)
    counts = np.zeros(buckets, np.int64)
    leaves = range(len(pieces.names))

    def part(leaf: int, bucket: Any) -> Path:
        return folder / f"{leaf}-{bucket}.part"

    for piece in range(len(pieces.sizes)):
        content = pieces.read(piece)
        target = rng.integers(buckets, size=len(content[0]))
        order = np.argsort(target, kind="stable")
        ends = np.searchsorted(target[order], np.arange(buckets + 1))
        counts += np.diff(ends)
        for leaf in leaves:
            rows = content[leaf][order].astype(pieces.dtypes[leaf], copy=False)
            for bucket in np.flatnonzero(np.diff(ends)):
                with part(leaf, bucket).open("ab") as file:
                    file.write(rows[ends[bucket] : ends[bucket + 1]].tobytes())
    outs = [
        np.lib.format.open_memmap(
            folder / f"{leaf}.npy", "w+", pieces.dtypes[leaf], (pieces.num_rows, *pieces.shapes[leaf])
        )
        for leaf in leaves
    ]
    done = 0
    for bucket in np.flatnonzero(counts):
        order = rng.permutation(counts[bucket])
        for leaf in leaves:
            rows = np.fromfile(part(leaf, bucket), pieces.dtypes[leaf]).reshape(-1, *pieces.shapes[leaf])
            outs[leaf][done : done + counts[bucket]] = rows[order]
            part(leaf, bucket).unlink()
        done += counts[bucket]
    for out in outs:
        out.flush()
    bare = pieces.treedef == jax.tree.structure(0)
    if not bare and pieces.treedef != jax.tree.structure({name: 0 for name in pieces.names}):
        raise ValueError("Only one array, or a flat dict of arrays, can be kept in a folder of shuffled rows.")
    found = {"names": pieces.names, "bare": bare, "origin": origin}
    (folder / MARK).write_text(json.dumps(found | {"checksum": _checksum(found)}))


def _checksum(found: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(found, sort_keys=True).encode())


# -- small things -------------------------------------------------------------------------------------------------


def _is_path(x: Any) -> bool:
    return isinstance(x, str | os.PathLike)


def _is_list_of_paths(x: Any) -> bool:
    return isinstance(x, list | tuple) and len(x) > 0 and all(_is_path(one) for one in x)


def _jax_dtype(dtype: Any) -> np.dtype:
    """The type in which JAX computes with such numbers."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.dtype(dtype).newbyteorder("=")))


def _bad_rows(leaf: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rows that hold what `dtype` cannot: NaN, infinity, or a number out of its range."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            good = np.isfinite(leaf.astype(dtype, copy=False))
    elif dtype.kind in "iu" and leaf.dtype.itemsize > dtype.itemsize:
        limits = np.iinfo(dtype)
        good = (leaf >= limits.min) & (leaf <= limits.max)
    else:
        return np.zeros(len(leaf), bool)
    result: np.ndarray = ~good.reshape(len(leaf), -1).all(axis=1)
    return result


def _one_line(error: BaseException) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300].rstrip(".")


def slices(pieces: Pieces, rows: int) -> Iterator[Leaves]:
    """All the rows once, in order, `rows` at a time; the last slice may be shorter."""
    held: list[Leaves] = []
    count = 0
    for piece in range(len(pieces.sizes)):
        held.append(
            [leaf.astype(dtype, copy=False) for leaf, dtype in zip(pieces.read(piece), pieces.dtypes, strict=True)]
        )
        count += len(held[-1][0])
        while count >= rows:
            joined = [np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*held, strict=True)]
            yield [leaf[:rows] for leaf in joined]
            held, count = [[leaf[rows:] for leaf in joined]], count - rows
    if count:
        yield [np.concatenate(parts) for parts in zip(*held, strict=True)]
