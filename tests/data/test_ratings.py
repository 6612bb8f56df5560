"""Reading ratings: every published form, any table, and a clear answer to everything that is wrong."""

import gzip
import os
import zipfile

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from inbounds.data import Ratings, catalog, load_ratings
from inbounds.data import _rating_text as reader
from inbounds.data._rating_files import Table
from inbounds.data.catalog import DataError
from inbounds.data.ratings import write_dat

DATA = catalog.folder(os.environ.get(catalog.ENVIRONMENT, "absent"))
needs_data = pytest.mark.skipif(
    not (DATA / "movielens-1m").is_dir(), reason="INBOUNDS_DATA does not point to a folder with MovieLens 1M"
)

ROWS = [(10, 3, 4.0), (2, 7, 0.5), (10, 7, 3.5), (31, 3, 5.0)]


def _text(separator, rows=ROWS, header="", end="\n", more="97830"):
    lines = [separator.join([str(u), str(i), f"{r:g}", more]) for u, i, r in rows]
    return (header + end.join(lines) + end).encode()


def _triples(ratings):
    return list(
        zip(
            ratings.user_ids[ratings.user].tolist(),
            ratings.item_ids[ratings.item].tolist(),
            ratings.rating.tolist(),
            strict=True,
        )
    )


def _load(tmp_path, content, name="table.csv", **options):
    (tmp_path / name).write_bytes(content)
    return load_ratings(tmp_path / name, **options)


# -- what is read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("u.data", _text("\t")),
        ("ratings.dat", _text("::")),
        ("ratings.csv", _text(",", header="userId,movieId,rating,timestamp\n")),
        ("ratings.dat", _text("::", header="UserID::MovieID::Rating::Timestamp\n")),
        ("plain.csv", _text(",")),
        ("german.csv", _text(";", header='"user";"item";"rating";"when"\n')),
        ("windows.csv", _text(",", header="user_id,item_id,stars,when\r\n", end="\r\n")),
        ("bom.csv", b"\xef\xbb\xbf" + _text(",", header="user,item,rating,x\n")),
        ("recbole.inter", _text("\t", header="user_id:token\titem_id:token\trating:float\ttimestamp:float\n")),
        ("bars.txt", _text("|")),
        ("spaces.txt", _text(" ")),
        ("blank.csv", b"\n\n" + _text(",").replace(b"\n31", b"\n\n  \n31") + b"\n\n"),
        ("no-end.dat", _text("::").rstrip(b"\n")),
        ("packed.csv.gz", gzip.compress(_text(","))),
    ],
)
def test_every_form_of_a_table_gives_the_same_ratings(tmp_path, name, content):
    ratings = _load(tmp_path, content, name)
    assert _triples(ratings) == ROWS
    assert ratings.user_ids.tolist() == [2, 10, 31]
    assert (ratings.user.dtype, ratings.item.dtype, ratings.rating.dtype) == (np.int32, np.int32, np.float32)
    assert (ratings.num_users, ratings.num_items, len(ratings)) == (3, 2, 4)


def test_columns_are_chosen_by_name_or_position(tmp_path):
    content = b"when,stars,book,reader\n1,2.5,b,x\n2,3,a,x\n3,1,b,y\n"
    expected = [("x", "b", 2.5), ("x", "a", 3.0), ("y", "b", 1.0)]
    assert _triples(_load(tmp_path, content)) == expected  # these names are usual
    assert _triples(_load(tmp_path, content, user=3, item=2, rating=1)) == expected
    assert _triples(_load(tmp_path, content, user="reader", item="book", rating="stars")) == expected
    swapped = _load(tmp_path, content, user="book", item="reader")
    assert _triples(swapped) == [(i, u, r) for u, i, r in expected]


def test_labels_are_text_as_soon_as_one_is_not_a_plain_whole_number(tmp_path):
    content = 'u,i,rating\n7,"Amélie, 2001",4\n007,x,3\n99999999999999999999,x,2\n'.encode()
    ratings = _load(tmp_path, content)
    assert _triples(ratings) == [("7", "Amélie, 2001", 4.0), ("007", "x", 3.0), ("99999999999999999999", "x", 2.0)]
    assert _load(tmp_path, b"-5,1,1\n4,2,2\n").user_ids.tolist() == [-5, 4]


def test_thinly_spread_numbers_are_compacted(tmp_path):
    ratings = _load(tmp_path, b"900000000000000000,1,1\n5,1,2\n5,800000000000000000,3\n")
    assert ratings.user_ids.tolist() == [5, 900_000_000_000_000_000]
    assert ratings.user.tolist() == [1, 0, 0]


def test_archives_and_folders_are_searched_for_the_one_table(tmp_path):
    archive = tmp_path / "set" / "ml.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("ml/ratings.csv", _text(",", header="userId,movieId,rating,timestamp\n"))
        out.writestr("ml/movies.csv", "movieId,title\n")
        out.writestr("__MACOSX/ml/._ratings.csv", "\0")
        out.writestr("../../escape.csv", "1,2,3\n")
    assert _triples(load_ratings(archive)) == ROWS
    assert _triples(load_ratings(archive.parent)) == ROWS
    (tmp_path / "set" / "ml").mkdir()
    (tmp_path / "set" / "ml" / "u.data").write_bytes(_text("\t", ROWS[:2]))
    assert _triples(load_ratings(archive.parent)) == ROWS[:2]  # unpacked beside its archive
    assert not (tmp_path.parent / "escape.csv").exists()


def test_parquet_and_data_frames(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(ROWS, columns=["user", "item", "rating"])
    frame.to_parquet(tmp_path / "table.parquet")
    assert _triples(load_ratings(tmp_path / "table.parquet")) == ROWS
    assert _triples(load_ratings(frame)) == ROWS
    frame["user"] = ["a", "b", "a", "c"]
    frame.to_parquet(tmp_path / "text.parquet")
    assert _triples(load_ratings(tmp_path / "text.parquet"))[0] == ("a", 3, 4.0)
    frame.loc[2, "rating"] = None
    with pytest.raises(DataError, match="row 2: a rating must be a finite number"):
        load_ratings(frame)
    frame.to_parquet(tmp_path / "missing.parquet")
    with pytest.raises(DataError, match=r"no rating|finite number"):
        load_ratings(tmp_path / "missing.parquet")
    with pytest.raises(DataError, match="no column 'cats'"):
        load_ratings(tmp_path / "text.parquet", user="cats")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        load_ratings(tmp_path / "broken.parquet")


def test_sparse_matrices_there_and_back():
    matrix = scipy.sparse.random_array((30, 20), density=0.2, rng=np.random.default_rng(0)).tocsr()
    matrix.data[3] = 0.0  # a stored zero is a rating
    ratings = load_ratings(matrix)
    assert (ratings.num_users, ratings.num_items, len(ratings)) == (30, 20, matrix.nnz)
    back = ratings.to_sparse()
    assert back.nnz == matrix.nnz
    np.testing.assert_array_equal(back.toarray(), matrix.astype(np.float32).toarray())
    with pytest.raises(DataError, match="entry 0: a rating must be a finite number that is not negative; got -1"):
        load_ratings(scipy.sparse.coo_array(([-1.0], ([0], [0])), shape=(2, 2)))
    with pytest.raises(DataError, match="no ratings"):
        load_ratings(scipy.sparse.coo_array((3, 3)))
    with pytest.raises(DataError, match="32 bits"):
        load_ratings(scipy.sparse.coo_array(([1.0], ([0], [0])), shape=(2, 2**40)))
    with pytest.raises(DataError, match="entry 1: user 1 has rated item 0 before, in entry 0"):
        load_ratings(scipy.sparse.coo_array(([1.0, 2.0], ([1, 1], [0, 0])), shape=(2, 2)))


def test_what_is_written_is_read(tmp_path):
    generator = np.random.default_rng(0)
    pairs = generator.permutation(40 * 30)[:500]
    ratings = Ratings.from_columns(pairs // 30 + 1, pairs % 30 + 5, generator.integers(1, 11, 500) / 2)
    write_dat(ratings, tmp_path / "ratings.dat")
    assert _triples(load_ratings(tmp_path / "ratings.dat")) == _triples(ratings)


# -- what is wrong -------------------------------------------------------------------------------------------------

GOOD = _text("::")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"table is empty"),
        (b"\n\r\n\n", r"table is empty"),
        (b"user,item,rating\n", "holds a header and no ratings"),
        (b"hello\nworld\n", r"line 1: expected at least three fields"),
        (GOOD + b"1::2\n", r"table, line 5: 2 fields where 4 are expected, separated by '::': '1::2'"),
        (GOOD + b"1::2::3::4::5\n", "line 5: 5 fields"),
        (GOOD + b"\n\n1::2\n", "line 7: 2 fields"),
        (GOOD.replace(b"\n", b"\r\n") + b"1::2\r\n", r"line 5: 2 fields .*'1::2'"),
        (GOOD + b"1::2::x::4\n", "line 5: the rating 'x' is not a number"),
        (GOOD + b"1::2::::4\n", "line 5: no rating"),
        (GOOD + b"1::2::nan::4\n", "line 5: no rating"),
        (GOOD + b"1::2::inf::4\n", "line 5: the rating 'inf' is not a number"),
        (GOOD + b"1::2::1_0::4\n", "line 5: the rating '1_0' is not a number"),
        (GOOD + "1::2::٣::4\n".encode(), "line 5: the rating '٣' is not a number"),
        (GOOD + b"1::2::-1::4\n", "line 5: a rating must be a finite number that is not negative; got -1"),
        (GOOD + b"1::2::1e39::4\n", "line 5: a rating must be a finite number that is not negative; got inf"),
        (GOOD + b"1:::2::3::4\n", "line 5: the item ':2' is not a whole number"),
        (GOOD + b"99999999999999999999::2::3::4\n", "line 5: the user '99999999999999999999' is not a whole number"),
        (GOOD + b"::2::3::4\n", "line 5: no user"),
        (GOOD + b"1:: ::3::4\n", "line 5: no item"),
        (GOOD + b"1::2::3::\xff\n", "line 5 is not UTF-8"),
        (GOOD + b"1::2::3::\0\n", "line 5 holds a zero byte"),
        (GOOD + b"10::7::1::9\n", r"line 5: user 10 has rated item 7 before, in line 3 \(1 such in all\)"),
        (b"a,b,3\n" + b"c" * 300 + b",b,3\n", "line 2: a user of 300 characters"),
        (b'a,b,3\n"a,c,3\n', "line 2: unexpected end of data"),
        (b"\xff\xfe1\x00,\x00", "UTF-16"),
        (b"1,2,3" * 300_000, "line of more than"),
        (b"cats,dogs,birds\n1,2,3\n", r"line 1: which column is the user is not clear. .*'cats', 'dogs', 'birds'"),
        (b"user,userid,item,rating\n1,2,3,4\n", "which column is the user is not clear"),
        (b"user,item,rating\n1,2,3\nuser,item,rating\n", "line 3: the rating 'rating' is not a number"),
    ],
)
def test_a_table_that_is_wrong_says_what_and_where(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        _load(tmp_path, content, "table")


def test_lines_are_counted_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK", 64)
    content = _text("::", [(user, user % 7, 3) for user in range(1, 200)])
    (tmp_path / "good.dat").write_bytes(content)
    assert len(load_ratings(tmp_path / "good.dat")) == 199
    for line in (1, 2, 57, 199):
        lines = content.split(b"\n")
        lines[line - 1] = b"1::2::3"
        lines.insert(line - 1, b"")  # and a blank line before it
        (tmp_path / "bad.dat").write_bytes(b"\n".join(lines))
        wrong = "line 3: 4 fields where 3" if line == 1 else f"line {line + 1}: 3 fields where 4"
        with pytest.raises(DataError, match=wrong):
            load_ratings(tmp_path / "bad.dat")
    repeated = content + b"\n" + content.split(b"\n")[122] + b"\n"
    with pytest.raises(DataError, match="line 201: user 123 has rated item 4 before, in line 123 "):
        _load(tmp_path, repeated, "repeated.dat")


def test_duplicates_are_settled_as_asked(tmp_path):
    content = b"1,1,1\n1,2,5\n1,1,2\n2,1,4\n1,1,4.5\n"
    assert _triples(_load(tmp_path, content, duplicates="last")) == [(1, 2, 5.0), (2, 1, 4.0), (1, 1, 4.5)]
    assert _triples(_load(tmp_path, content, duplicates="mean")) == [(1, 2, 5.0), (2, 1, 4.0), (1, 1, 2.5)]
    with pytest.raises(DataError, match=r"line 3: user 1 has rated item 1 before, in line 1 \(2 such"):
        _load(tmp_path, content)
    with pytest.raises(ValueError, match="Known: error, last, mean"):
        _load(tmp_path, content, duplicates="first")


def test_one_user_only_is_read_with_a_question(tmp_path):
    with pytest.warns(UserWarning, match="All 2 ratings have one user: is `user=` the right column"):
        assert len(_load(tmp_path, b"1,1,1\n1,2,5\n")) == 2


def test_a_place_without_exactly_one_table_says_so(tmp_path):
    with pytest.raises(DataError, match="nothing at"):
        load_ratings(tmp_path / "absent")
    with pytest.raises(DataError, match="No table of ratings"):
        load_ratings(tmp_path)
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as out:
        out.writestr("a.csv", "1,2,3\n")
        out.writestr("b.csv", "1,2,3\n")
    with pytest.raises(DataError, match=r"2 files that may be the ratings: a\.csv, b\.csv"):
        load_ratings(tmp_path / "two.zip")
    with zipfile.ZipFile(tmp_path / "one.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("ratings.csv", _text(",") * 100)
    damaged = bytearray((tmp_path / "one.zip").read_bytes())
    damaged[60] ^= 0xFF
    (tmp_path / "one.zip").write_bytes(damaged)
    with pytest.raises(DataError, match="not a readable zip archive"):
        load_ratings(tmp_path / "one.zip")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(os.urandom(500))[:-50])
    with pytest.raises(DataError, match="damaged or cut off"):
        load_ratings(tmp_path / "cut.csv.gz")
    with pytest.raises(DataError, match="from_columns"):
        load_ratings(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="Unknown format"):
        load_ratings(tmp_path, format="xls")


# -- the fast way and the careful way ------------------------------------------------------------------------------

FIELD = st.one_of(
    st.integers(0, 10**19).map(str),
    st.floats(0, 100).map(lambda x: f"{x:.3f}"),
    st.sampled_from(["", "0", "007", "5.", ".5", ".", "1.2.3", "1e1", " 4", "-1", "x", "\r", "9" * 18, "1" + "0" * 14]),
)
LINE = st.lists(FIELD, min_size=3, max_size=5)
PLAIN = st.tuples(
    st.integers(0, 10**6).map(str), st.integers(0, 10**6).map(str), st.sampled_from(["1", "2.5", "3", "0.5", "10"])
)


@settings(max_examples=150)
@given(
    st.one_of(st.lists(PLAIN, max_size=8), st.lists(LINE, max_size=4)),
    st.sampled_from(["::", "\t", ","]),
    st.booleans(),
)
def test_where_the_fast_way_answers_the_careful_way_agrees(rows, separator, windows):
    piece = "".join(separator.join(row) + ("\r\n" if windows else "\n") for row in rows).encode() or b"\n"
    layout = reader._Layout(separator.encode(), 3, (0, 1, 2), separator != "::", separator == "::")
    fast = reader._fast_block(piece, layout, 11)
    if fast is None:
        return
    careful = reader._careful_block(piece, layout, 11, Table(catalog.Path("x")))
    for name in ("user", "item", "rating"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(careful, name))
        assert getattr(fast, name).dtype == getattr(careful, name).dtype
    assert list(fast.lines) == list(careful.lines)


def test_plain_tables_take_the_fast_way(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("the careful way was taken")

    monkeypatch.setattr(reader, "_careful_block", refuse)
    for separator, header in (("::", ""), ("\t", ""), (",", "userId,movieId,rating,timestamp\r\n")):
        assert _triples(_load(tmp_path, _text(separator, header=header, end="\r\n") + b"\r\n")) == ROWS


# -- splits --------------------------------------------------------------------------------------------------------


def test_a_split_is_a_partition_over_the_same_users_and_items(tmp_path):
    pairs = np.random.default_rng(1).permutation(60 * 50)[:1000]
    ratings = Ratings.from_columns(pairs // 50, pairs % 50, np.full(1000, 3.0))
    parts = ratings.split(seed=4)
    assert [len(part) for part in parts] == [750, 125, 125]
    assert sorted(triple for part in parts for triple in _triples(part)) == sorted(_triples(ratings))
    assert all(part.num_users == ratings.num_users and part.num_items == ratings.num_items for part in parts)
    np.testing.assert_array_equal(parts.test.user, ratings.split(seed=4).test.user)
    assert not np.array_equal(parts.test.user, ratings.split(seed=5).test.user)
    with pytest.raises(ValueError, match="sum to 1"):
        ratings.split((0.5, 0.1, 0.1))
    with pytest.raises(ValueError, match="too few for a validation part"):
        ratings.select(np.arange(3)).split()


# -- the data themselves -------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    ("name", "counts", "histogram"),
    [
        ("movielens-100k", (100_000, 943, 1_682), [6110, 11370, 27145, 34174, 21201]),
        ("movielens-1m", (1_000_209, 6_040, 3_706), [56174, 107557, 261197, 348971, 226310]),
    ],
)
def test_the_published_sets_have_their_published_counts(name, counts, histogram):
    ratings = catalog.load(name, DATA)
    assert (len(ratings), ratings.num_users, ratings.num_items) == counts
    assert np.unique(ratings.rating, return_counts=True)[1].tolist() == histogram
