"""What the estimators share: scikit-learn's conventions without scikit-learn, and files without pickle."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from inbounds.models.packed import write_whole


class Estimator:
    """Parameters in the constructor, results in attributes that end in an underscore, `fit` returns self."""

    _fitted: str  # the attribute that `fit` sets
    _format: str  # how a saved file calls itself
    _version = 1  # of what such a file means

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; returns self."""
        known = self._parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}" for name, value in self.get_params().items() if not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._fitted)

    def _check_fitted(self) -> None:
        if not hasattr(self, self._fitted):
            raise _not_fitted(f"This {type(self).__name__} instance is not fitted yet: call `fit` first.")

    def _seed(self) -> int:
        """`random_state`, or a fresh one where it is None."""
        state = self.random_state  # type: ignore[attr-defined]
        return int(np.random.default_rng().integers(2**31)) if state is None else int(state)

    def _write(self, path: str | os.PathLike, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
        """An npz file: the arrays, and a JSON header with the parameters that JSON can hold."""
        parameters = {name: _plain(value) for name, value in self.get_params().items()}
        kept = {name: value for name, value in parameters.items() if _is_plain(value)}
        header = {"format": self._format, "version": self._version, "parameters": kept} | header
        buffer = io.BytesIO()
        named: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)} | arrays
        np.savez(buffer, **named)
        return write_whole(Path(path), buffer.getvalue())

    @classmethod
    @contextlib.contextmanager
    def _read(cls, path: str | os.PathLike) -> Iterator[tuple[Self, dict[str, Any], dict[str, np.ndarray]]]:
        """An unfitted estimator with the parameters of the file, the header, and the arrays. Nothing is executed.

        Whatever goes wrong while it is open is a ValueError that names the file: a damaged file, or one that is consistent and
        was never saved by us, makes zipfile, NumPy, JSON and the code that takes it apart raise errors of many kinds.
        """
        path = Path(path)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("a part of it is not an array")
            header = json.loads(arrays.pop("header").tobytes())
            form, version = header.get("format"), header.get("version")
            if form != cls._format:
                raise ValueError(f"it holds {form!r} version {version!r}, not {cls._format!r} version {cls._version}")
            if version != cls._version:
                raise ValueError(
                    f"it is of version {version!r} of its format, which is {cls._version} now: fit it again"
                )
            known = cls._parameter_names()
            parameters = {k: _tuples(v) for k, v in header.get("parameters", {}).items() if k in known}
            yield cls(**parameters), header, arrays
        except FileNotFoundError:
            raise
        except Exception as error:
            raise ValueError(f"{path} is not a saved {cls.__name__}, or is damaged: {error}.") from error


def _tuples(value: Any) -> Any:
    """JSON has lists only; parameters that were tuples are tuples again."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_interactive() -> bool:
    """A terminal or a notebook, where progress is worth printing."""
    return "ipykernel" in sys.modules or sys.stdout.isatty()


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, as grids of parameters are made of, as Python's."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold it: a function given as kernel, schedule or progress is not saved."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except ValueError:
        return False


def _not_fitted(message: str) -> Exception:
    """scikit-learn's own error where it is installed, so that its tools recognise it."""
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return ValueError(message)
    return NotFittedError(message)
