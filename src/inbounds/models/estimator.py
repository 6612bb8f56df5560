"""What the estimators share: scikit-learn's conventions without scikit-learn, and files without pickle."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from inbounds.models.packed import write_whole

__all__ = ["Estimator", "Transformer", "is_interactive", "is_whole", "scikit_learns", "tuples"]

TABLES = ("default", "pandas", "polars")  # what `transform` may give


class Estimator:
    """Parameters in the constructor, results in attributes that end in an underscore, `fit` returns self."""

    _fitted: str  # the attribute that `fit` sets
    _format: str  # how a saved file calls itself
    _version = 1  # of what such a file means
    n_features_in_: int
    feature_names_in_: np.ndarray
    _renamed: ClassVar[dict[str, str]] = {}  # parameters of older files

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor.

        Args:
            deep: not looked at: no parameter is an estimator.

        Returns:
            Values by name.
        """
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; returns self.

        Args:
            parameters: new values by name.

        Returns:
            The model itself.

        Raises:
            ValueError: a name is none of the constructor's.
        """
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
            error = scikit_learns("NotFittedError", ValueError)
            raise error(f"This {type(self).__name__} instance is not fitted yet: call `fit` first.")

    def _learn_names(self, X: Any) -> None:
        """`feature_names_in_`, where X is a table whose columns have names that are text."""
        self.__dict__.pop("feature_names_in_", None)
        names = _column_names(X)
        if names is not None:
            self.feature_names_in_ = names

    def _check_names(self, X: Any) -> None:
        """Refuse a table whose columns are not those of `fit`: another order would be taken for the one that was fitted."""
        names, known = _column_names(X), getattr(self, "feature_names_in_", None)
        if names is None or known is None or np.array_equal(names, known):
            return
        new, lost = sorted(set(names) - set(known)), sorted(set(known) - set(names))
        why = (
            f"unseen at fit time: {', '.join(new[:5])}; seen at fit time, yet now missing: {', '.join(lost[:5])}"
            if new or lost
            else "must be in the same order as they were in fit"
        )
        raise ValueError(f"Feature names {why}. Give the columns that `fit` had: X[model.feature_names_in_].")

    def _seed(self) -> int:
        """`random_state`, or a fresh one where it is None."""
        state = self.random_state  # type: ignore[attr-defined]
        return int(np.random.default_rng().integers(2**31)) if state is None else int(state)

    def _write(self, path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
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
    def _read(cls, path: str | os.PathLike[str]) -> Iterator[tuple[Self, dict[str, Any], dict[str, np.ndarray]]]:
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
            given = {cls._renamed.get(k, k): tuples(v) for k, v in header.get("parameters", {}).items()}
            parameters = {k: v for k, v in given.items() if k in known}
            yield cls(**parameters), header, arrays
        except FileNotFoundError:
            raise
        except Exception as error:
            raise ValueError(f"{path} is not a saved {cls.__name__}, or is damaged: {error}.") from error


class Transformer(Estimator):
    """An estimator with a `transform`: names for the columns that it makes, and tables for those who want them."""

    components_: np.ndarray  # a row for every column that `transform` makes
    _sklearn_output_config: dict[str, str]  # scikit-learn's name, under which its `clone` looks for it

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`: the class and a number.

        Args:
            input_features: names of the columns of X; looked at only to find a mistake.

        Returns:
            One text per column.

        Raises:
            ValueError: `input_features` are not the columns that `fit` saw.
        """
        self._check_fitted()
        if input_features is not None:
            if len(input_features) != self.n_features_in_:
                raise ValueError(
                    f"input_features should have length equal to number of features ({self.n_features_in_}), got "
                    f"{len(input_features)}."
                )
            if hasattr(self, "feature_names_in_") and not np.array_equal(input_features, self.feature_names_in_):
                raise ValueError("input_features is not equal to feature_names_in_: leave it out.")
        return np.array([f"{type(self).__name__.lower()}{k}" for k in range(len(self.components_))], object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """What `transform` gives: "default" (arrays), "pandas" or "polars" (tables with names); None changes nothing.

        Args:
            transform: one of these three.

        Returns:
            The model itself.

        Raises:
            ValueError: the name is none of them.
        """
        if transform not in (None, *TABLES):
            raise ValueError(f"`transform` must be {', '.join(map(repr, TABLES))} or None; got {transform!r}.")
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _as_asked(self, result: np.ndarray, X: Any) -> Any:
        """A result of `transform` for X in the form that `set_output`, or scikit-learn's configuration, asks for."""
        everywhere = sys.modules["sklearn"].get_config()["transform_output"] if "sklearn" in sys.modules else "default"
        wanted = getattr(self, "_sklearn_output_config", {}).get("transform", everywhere)
        if wanted == "default":
            return result
        columns = self.get_feature_names_out().tolist()
        if wanted == "polars":
            return importlib.import_module("polars").DataFrame(result, schema=columns, orient="row")
        index = X.index if _is_pandas(X) else None
        return importlib.import_module("pandas").DataFrame(result, columns=columns, index=index, copy=False)


def _is_pandas(X: Any) -> bool:
    return "pandas" in sys.modules and isinstance(X, sys.modules["pandas"].DataFrame)


def _column_names(X: Any) -> np.ndarray | None:
    columns = getattr(X, "columns", None)
    names = [] if columns is None else list(columns)
    return np.array(names, object) if names and all(isinstance(name, str) for name in names) else None


def tuples(value: Any) -> Any:
    """JSON has lists only; parameters that were tuples are tuples again."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value


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


def scikit_learns(name: str, otherwise: type) -> Any:
    """An error or a warning of scikit-learn's where it is installed, so that its tools recognise it."""
    try:
        import sklearn.exceptions
    except ImportError:
        return otherwise
    return getattr(sklearn.exceptions, name)
