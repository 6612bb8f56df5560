"""Tables and columns of other libraries as arrays: pandas, Polars, PyArrow and what else exports Arrow, tensors, lists.

No library of tables is imported: all of them have named columns that become NumPy arrays and say which of their values are
missing. So those that somebody has installed work, and the rest cost nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.arguments import nearest

__all__ = [
    "Columns",
    "check_order",
    "columns_of",
    "is_column",
    "is_lazy",
    "is_listing",
    "is_table",
    "names_of",
    "numbers_of",
]

LABELS = ("category", "Categorical", "Enum", "dictionary")  # how the types of columns of categories begin


def is_table(data: Any) -> bool:
    """Whether it has named columns."""
    kind = type(data)  # of the object itself, a column may be called like a method
    if isinstance(data, np.ndarray):
        return data.dtype.names is not None
    if not hasattr(kind, "columns") and not hasattr(kind, "column_names"):
        return False
    return hasattr(kind, "__getitem__") and (hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__dataframe__"))


def is_column(data: Any) -> bool:
    """Whether it is one column of a table, or a tensor, which NumPy may turn into something else than its numbers."""
    kind = type(data)
    if isinstance(data, np.ndarray | jax.Array):
        return False
    return hasattr(kind, "isna") or hasattr(kind, "is_null") or hasattr(kind, "detach")


def is_listing(data: Any) -> bool:
    """Whether it is a list of numbers, one per datum, and no tree of arrays."""
    return type(data) in (list, tuple) and bool(data) and all(map(_is_single, data))


def _is_single(value: Any) -> bool:
    return value is None or isinstance(value, int | float | complex | str | bytes | np.generic)


def is_lazy(data: Any) -> bool:
    """Whether it is a table that has not been read yet."""
    return any(hasattr(type(data), name) for name in ("collect", "compute")) and not is_table(data)


def columns_of(table: Any) -> dict[Any, np.ndarray]:
    """Every column of a table as an array, by name.

    Raises:
        ValueError: a column holds something else than numbers, values are missing, or two columns have one name.
    """
    names = names_of(table)
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"Two columns of the table are called {repeated[0]!r}. Rename one of them.")
    if len({type(name) for name in names}) > 1:
        raise ValueError(
            f"The columns of the table have names of several types, {names}. Make text of them: "
            "table.columns = table.columns.astype(str)."
        )
    return {name: numbers_of(table[name], f"Column {name!r}") for name in names}


def names_of(table: Any) -> list[Any]:
    """What the columns of a table are called."""
    if isinstance(table, np.ndarray):
        return list(table.dtype.names or ())
    return list(table.column_names if hasattr(type(table), "column_names") else table.columns)


def numbers_of(column: Any, name: str) -> np.ndarray:
    """A column, a list or a tensor as an array of numbers.

    Args:
        column: what is to become an array.
        name: what errors call it.

    Raises:
        ValueError: it holds something else than numbers, or values are missing.
    """
    kind = str(getattr(column, "dtype", getattr(column, "type", "")))
    if kind.startswith(LABELS):
        raise ValueError(_not_numeric(name, kind))
    missing = _missing(column)
    if missing.any():
        raise ValueError(
            f"{name} has missing values in {np.count_nonzero(missing):,} of {missing.size:,} rows, the first of them row "
            f"{np.argmax(missing):,}. Drop those rows (pandas: dropna, Polars: drop_nulls, PyArrow: drop_null) or impute them."
        )
    array = _as_numpy(column)
    if (
        array.dtype == object
        and array.ndim == 1
        and all(isinstance(x, int | float | np.number | np.bool_) for x in array)
    ):
        array = np.array(array.tolist())
    if array.dtype.kind not in "biufc":
        raise ValueError(_not_numeric(name, _types(array) if kind in ("", "object") else kind))
    return array


def check_order(leaves: list[tuple[str, Any]]) -> None:
    """Raise a ValueError where tables of pandas have rows of other names, or in another order: rows are matched by place."""
    indexed = [(name, leaf.index) for name, leaf in leaves if hasattr(type(leaf), "isna") and hasattr(leaf, "index")]
    for name, index in indexed[1:]:
        first, reference = indexed[0]
        if len(index) == len(reference) and not index.equals(reference):
            raise ValueError(
                f"The rows of {first!r} and {name!r} have different pandas indexes, and rows are matched by their place, not by "
                "their index. Put them in one order (`y.loc[x.index]`), or drop the indexes where the order is right already "
                "(`.reset_index(drop=True)`)."
            )


def _missing(column: Any) -> np.ndarray:
    for mask in ("isna", "is_null"):  # pandas; Polars and PyArrow
        if hasattr(type(column), mask):
            return np.atleast_1d(np.asarray(getattr(column, mask)(), bool))
    if type(column) in (list, tuple):
        return np.array([value is None for value in column])
    return np.zeros(1, bool)


def _as_numpy(column: Any) -> np.ndarray:
    if not hasattr(type(column), "detach"):
        return np.asarray(column)
    tensor = column.detach().cpu()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:  # NumPy has no bfloat16
        return np.asarray(tensor.float().numpy())


def _types(array: np.ndarray) -> str:
    if array.dtype != object:
        return str(array.dtype)
    return "values of type " + " and ".join(sorted({type(value).__name__ for value in array.ravel()[:1_000]}))


def _not_numeric(name: str, kind: str) -> str:
    remedy = "Leave it out, or turn it into numbers."
    if kind.startswith(LABELS) or "str" in kind.lower() or kind[:2] in ("<U", "|S", ">U"):
        remedy = (
            "Leave it out, or encode it: as whole numbers from 0 to look a parameter up with (pandas: "
            "column.astype('category').cat.codes; anything: np.unique(column, return_inverse=True)[1]), or as one column of "
            "zeros and ones per category (pandas.get_dummies, Polars to_dummies)."
        )
    elif "date" in kind.lower() or "time" in kind.lower() or kind[:2] in ("<M", "<m"):
        remedy = "Leave it out, or say what it counts: as days, (column - column.min()) / np.timedelta64(1, 'D')."
    elif "decimal" in kind.lower():
        remedy = "Make floats of it: column.astype(float)."
    elif "list" in kind.lower() or "ndarray" in kind:
        remedy = "Make an array of its rows: np.stack(column)."
    return f"{name} is not numeric: it holds {kind}. {remedy}"


@jax.tree_util.register_pytree_with_keys_class
class Columns:
    """A table as a NumPyro model sees it: JAX arrays, by `table["x"]` or `table.x`; `len(table)` is the number of rows.

    Args:
        columns: the arrays by name.
        refused: of the columns that are no numbers, why, for the model that asks for them.
    """

    def __init__(self, columns: dict[Any, Any], refused: dict[Any, str] | None = None):
        self._columns, self._refused = columns, refused or {}

    @classmethod
    def of(cls, table: Any) -> Columns:
        """Every column of a table that can be an array of numbers."""
        columns: dict[Any, Any] = {}
        refused: dict[Any, str] = {}
        for name in names_of(table):
            try:
                columns |= {name: jnp.asarray(numbers_of(table[name], f"Column {name!r}"))}
            except ValueError as error:
                refused[name] = str(error)
        return cls(columns, refused)

    @property
    def columns(self) -> list[Any]:
        return [*self._columns, *self._refused]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    @property
    def values(self) -> jax.Array:
        """All the columns side by side."""
        return jnp.stack([self[name] for name in self.columns], axis=1)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, list):
            return Columns({one: self[one] for one in name})
        if name in self._refused:
            raise ValueError(self._refused[name])
        if name not in self._columns:
            known = ", ".join(map(repr, self.columns))
            raise ValueError(f"The table has no column {name!r}.{nearest(name, self.columns)} Its columns: {known}.")
        return self._columns[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.columns:
            raise AttributeError(f"a table in a model has columns, `columns`, `shape` and `values`, and no {name!r}")
        return self[name]

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        keys = tuple((jax.tree_util.DictKey(name), column) for name, column in self._columns.items())
        return keys, (tuple(self._columns), tuple(self._refused.items()))

    @classmethod
    def tree_unflatten(cls, names: Any, columns: Any) -> Columns:
        return cls(dict(zip(names[0], columns, strict=True)), dict(names[1]))
