"""Values in one file that holds no code: arrays as NumPy writes them, all else as JSON. Nothing is pickled."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from inbounds.trees import PyTree

__all__ = ["explained", "read", "write"]

WORDS = "words"  # the JSON among the arrays


def write(file: Path, value: Any, like: PyTree = None) -> None:
    """Write a value, in one piece: a reader sees all of it or what was there before.

    Args:
        file: where to; its folder is made.
        value: numbers, texts, arrays, None, and lists, tuples, dicts, dataclasses and named tuples of such.
        like: a tree; those of its structure may be of any kind, since `read` is given it too.

    Raises:
        ValueError: something in it is none of these.
    """
    arrays: list[np.ndarray] = []
    words = np.frombuffer(json.dumps(_encoded(value, arrays, _structure(like))).encode(), np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.partial")
    with unfinished.open("wb") as stream:
        np.savez(stream, **{WORDS: words}, **{str(i): array for i, array in enumerate(arrays)})  # type: ignore[arg-type]
    unfinished.replace(file)


def read(file: Path, *classes: type, what: str, like: PyTree = None) -> Any:
    """The value of a file that `write` made.

    Args:
        file: where it is.
        classes: dataclasses and named tuples that may be in it.
        what: it is, for the error.
        like: as for `write`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is another file, or damaged.
    """
    with explained(file, what):
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        words = json.loads(arrays[WORDS].tobytes())
        return _decoded(words, arrays, {one.__name__: one for one in classes}, _structure(like))


@contextlib.contextmanager
def explained(file: Path, what: str) -> Iterator[None]:
    """Whatever goes wrong inside is a ValueError that names the file.

    One that is damaged, or that is consistent and not ours, raises errors of many kinds.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{file} cannot be read as {what}: {error!r:.300}.") from error


def _structure(like: PyTree) -> Any:
    """Of a tree; None of a single array, which needs none."""
    if like is None:
        return None
    structure: Any = jax.tree.structure(like)
    return None if structure.num_nodes == structure.num_leaves else structure


def _encoded(value: Any, arrays: list[np.ndarray], structure: Any) -> Any:
    """As JSON, in which arrays are numbers of `arrays`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if structure is not None and jax.tree.structure(value) == structure:
        return {"tree": [_encoded(leaf, arrays, None) for leaf in jax.tree.leaves(value)]}
    if hasattr(value, "_asdict"):
        return {"class": type(value).__name__, "fields": _pairs(value._asdict(), arrays, structure)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": _pairs(fields, arrays, structure)}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encoded(one, arrays, structure) for one in value]}
    if isinstance(value, dict):
        return {"dict": _pairs(value, arrays, structure)}
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise ValueError(f"A {type(value).__name__} cannot be written to a file without code: {value!r:.100}.")
    arrays.append(array)
    return {"array": len(arrays) - 1}


def _pairs(named: dict[Any, Any], arrays: list[np.ndarray], structure: Any) -> list[Any]:
    for name in named:
        if not isinstance(name, str | int):
            raise ValueError(f"A name in a file must be a text or a whole number; got {name!r}.")
    return [[name, _encoded(value, arrays, structure)] for name, value in named.items()]


def _decoded(words: Any, arrays: Any, classes: dict[str, type], structure: Any) -> Any:
    if not isinstance(words, dict):
        return words
    if "array" in words:
        return arrays[str(words["array"])]
    if "class" in words or "dict" in words:
        pairs = words["fields" if "class" in words else "dict"]
        named = {name: _decoded(value, arrays, classes, structure) for name, value in pairs}
        return classes[words["class"]](**named) if "class" in words else named
    ((kind, values),) = words.items()
    found = [_decoded(one, arrays, classes, structure) for one in values]
    return jax.tree.unflatten(structure, found) if kind == "tree" else {"list": list, "tuple": tuple}[kind](found)
