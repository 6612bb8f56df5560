"""Tables, columns, tensors and lists are taken as data, and what is not a number is refused with the remedy."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import pytest

import inbounds as ib

COLUMNS = {"x": [1.5, 2.0, 4.0], "treated": [True, False, True], "n": [1, 2, 3]}
FRAME = pd.DataFrame(COLUMNS)


def posterior(data):
    return ib.Posterior({"w": dist.Normal()}, lambda theta, batch: -jnp.square(batch["x"] - theta["w"]), data)


@pytest.mark.parametrize(
    "data",
    [
        COLUMNS,
        {name: tuple(column) for name, column in COLUMNS.items()},
        FRAME,
        FRAME.convert_dtypes(),
        FRAME.astype({"n": object}),
        FRAME.set_index(pd.Index(["a", "b", "c"])),
        FRAME.to_records(index=False),
        pa.table(COLUMNS),
        pa.RecordBatch.from_pydict(COLUMNS),
        dict(FRAME),
        {"x": FRAME["x"], "treated": pa.chunked_array([COLUMNS["treated"]]), "n": pa.array(COLUMNS["n"])},
    ],
    ids=[
        "lists", "tuples", "pandas", "pandas, nullable", "pandas, objects", "pandas, indexed", "records", "PyArrow",
        "a batch of PyArrow", "series", "columns of two libraries",
    ],
)  # fmt: skip
def test_every_column_is_an_array_of_its_name(data):
    found = posterior(data).data
    assert found.keys() == COLUMNS.keys()
    for name, dtype in {"x": np.float32, "treated": bool, "n": np.int32}.items():
        assert found[name].dtype == dtype
        np.testing.assert_array_equal(found[name], COLUMNS[name])


def test_a_table_within_a_tree_is_a_dict_of_its_columns():
    data = {"x": np.arange(3.0), "table": FRAME}
    np.testing.assert_array_equal(posterior(data).data["table"]["n"], COLUMNS["n"])


def test_a_column_may_be_called_like_a_method_of_tables():
    frame = FRAME.rename(columns={"n": "column_names", "treated": "detach"})
    np.testing.assert_array_equal(posterior(frame).data["column_names"], COLUMNS["n"])


def test_a_run_on_a_table_is_that_on_its_arrays():
    arrays = {"x": np.asarray(COLUMNS["x"], np.float32)}
    runs = [
        ib.sample(ib.sgld(posterior(data)), 1e-2, 5, batch_size=2, progress=False) for data in (FRAME[["x"]], arrays)
    ]
    np.testing.assert_array_equal(runs[0].theta["w"], runs[1].theta["w"])


def test_tensors_are_arrays():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensors = {"x": torch.ones(3, 2, requires_grad=True), "half": torch.ones(3).bfloat16(), "n": torch.arange(3)}
    found = posterior(tensors).data
    assert found["x"].shape == (3, 2)
    assert found["half"].dtype == np.float32
    np.testing.assert_array_equal(found["n"], [0, 1, 2])


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pd.Series(["a", "b", "c"]), "Column 'z' is not numeric.*np.unique"),
        (pd.Categorical([1, 2, 1]), "Column 'z' is not numeric: it holds category.*cat.codes"),
        (pd.to_datetime(["2020", "2021", "2022"]), "Column 'z' is not numeric: it holds datetime.*timedelta64"),
        (pd.array([1, None, 3], dtype="Int64"), "Column 'z' has missing values in 1 of 3 rows, .* row 1. Drop"),
        (pd.array([True, False, None], dtype="boolean"), "Column 'z' has missing values in 1 of 3 rows, .* row 2"),
        (np.array([1.0, 2.0, np.nan]), "Column 'z' has missing values in 1 of 3 rows, .* row 2"),
        ([np.ones(2), np.ones(2), np.ones(2)], "Column 'z' is not numeric: it holds values of type ndarray.*np.stack"),
    ],
    ids=["text", "category", "date", "missing", "missing truth", "NaN", "arrays"],
)
def test_a_column_that_is_not_numeric_or_not_whole_is_refused_with_the_remedy(column, said):
    with pytest.raises(ValueError, match=said):
        posterior(FRAME.assign(z=column))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pa.table({"x": pa.array(["a", "b"]).dictionary_encode()}), "Column 'x' is not numeric: it holds dictionary"),
        (pd.concat([FRAME, FRAME], axis=1), "Two columns of the table are called 'n'"),
        (FRAME.rename(columns={"n": 0}), "names of several types.*astype.str."),
        ({"x": FRAME["x"], "y": FRAME["n"].iloc[::-1]}, "rows of 'x' and 'y' have different pandas indexes"),
        ({"x": [1.0, None]}, "Data 'x' has missing values in 1 of 2 rows"),
        ({"x": ["a", "b"]}, "Data 'x' is not numeric.*np.unique"),
        ({"x": [[1.0, 2.0], [3.0, 4.0]]}, "Data 'x' is a list of lists: rows, or columns.*np.asarray"),
        ({"x": object()}, "got object. Make an array of it"),
    ],
    ids=[
        "a dictionary of PyArrow", "one name twice", "mixed names",
        "rows in another order", "None in a list", "text in a list", "a list of lists", "anything",
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused(data, said):
    with pytest.raises(ValueError, match=said):
        posterior(data)


def test_tables_of_polars():
    pl = pytest.importorskip("polars", reason="Polars is not installed")
    for data in (pl.DataFrame(COLUMNS), {name: pl.Series(column) for name, column in COLUMNS.items()}):
        found = posterior(data).data
        for name, column in COLUMNS.items():
            np.testing.assert_array_equal(found[name], column)
    for said, data in {
        "Column 'x' has missing values in 1 of 2 rows": pl.DataFrame({"x": [1.0, None]}),
        "Column 'x' is not numeric: it holds Categorical": pl.DataFrame({"x": ["a"]}, schema={"x": pl.Categorical}),
        "Column 'x' is not numeric: it holds List": pl.DataFrame({"x": [[1.0], [2.0]]}),
        "is a LazyFrame, which has not been read": pl.DataFrame(COLUMNS).lazy(),
    }.items():
        with pytest.raises(ValueError, match=said):
            posterior(data)
