"""The UCI format of bags of words: read in full, or refused with the file and the line."""

import gzip
import os

import numpy as np
import pytest

from inbounds.data import catalog
from inbounds.data.bag_of_words import read_bag_of_words, synthetic_documents
from inbounds.data.catalog import DataError

GOOD = b"3\n4\n5\n1 1 2\n1 4 1\n3 2 7\n3 3 1\n3 4 1\n"
MATRIX = [[2, 0, 0, 1], [0, 0, 0, 0], [0, 7, 1, 1]]


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        gzip.compress(GOOD),
        GOOD.rstrip(b"\n"),
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.replace(b"1 1 2", b"1\t1  2"),
        GOOD + b"\n",
    ],
    ids=["plain", "gzip", "no last newline", "windows", "tabs", "empty last line"],
)
def test_entries_become_a_matrix(tmp_path, content):
    (tmp_path / "docword.txt").write_bytes(content)
    (tmp_path / "vocab.txt").write_text("a\nb\nc\nd\n")
    got = read_bag_of_words(tmp_path / "docword.txt", tmp_path / "vocab.txt")
    np.testing.assert_array_equal(got.counts.toarray(), MATRIX)
    assert got.vocabulary == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"line 1: expected the number of documents, got the end"),
        (b"3\n4\n", r"line 3: expected the number of entries, got the end"),
        (b"3\n-4\n5\n", r"line 2: expected the number of words"),
        (b"\x89PNG\r\n\x1a\n", r"line 1"),
        (b"0\n4\n0\n", r"line 1: 0 documents"),
        (b"3\n4\n99\n1 1 1\n", r"line 3: 99 entries do not fit"),
        (GOOD[:-6], r"ends after line 7: 4 of the 5 entries"),
        (GOOD[:-2], r"line 8: expected 'document word count', got '3 4 '"),
        (GOOD.replace(b"3 2 7", b"3 2"), r"line 6: expected 'document word count'"),
        (GOOD.replace(b"1 4 1\n3 2 7", b"1 4 1 3\n2 7"), r"line 5: expected 'document word count'"),
        (GOOD.replace(b"3 2 7", b"3 two 7"), r"line 6: .*'3 two 7'"),
        (GOOD.replace(b"3 2 7", b"3 2 -7"), r"line 6"),
        (GOOD.replace(b"3 2 7", b"3 5 7"), r"line 6: document 3, word 5"),
        (GOOD.replace(b"3 2 7", b"0 2 7"), r"line 6: document 0"),
        (GOOD.replace(b"3 2 7", b"3 2 0"), r"line 6: .*count 0"),
        (GOOD.replace(b"3 2 7", b"3 2 " + b"9" * 19), r"line 6"),
        (GOOD.replace(b"3 3 1", b"3 2 1"), r"line 7: document 3 has word 2 for the second time"),
        (GOOD + b"2 2 2\n", r"line 9: line 3 promises 5 entries, and there are more"),
        (b"3\n4\n5\n" + b"1" * 5_000, r"after line 3|line 4"),
        (gzip.compress(GOOD)[:-12], r"cut off: its gzip stream"),
    ],
)
def test_a_file_that_is_not_right_is_refused_with_the_line(tmp_path, content, message):
    (tmp_path / "docword.txt").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_bag_of_words(tmp_path / "docword.txt")
    assert "docword.txt" in str(caught.value)


def test_lines_are_counted_across_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("inbounds.data.bag_of_words.PIECE", 7)
    (tmp_path / "docword.txt").write_bytes(GOOD)
    np.testing.assert_array_equal(read_bag_of_words(tmp_path / "docword.txt").counts.toarray(), MATRIX)
    (tmp_path / "docword.txt").write_bytes(GOOD.replace(b"3 3 1", b"3 x 1"))
    with pytest.raises(DataError, match="line 7"):
        read_bag_of_words(tmp_path / "docword.txt")


def test_a_vocabulary_of_another_length_is_refused(tmp_path):
    (tmp_path / "docword.txt").write_bytes(GOOD)
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match=r"vocab.txt ends after line 3: the entries speak of 4 words"):
        read_bag_of_words(tmp_path / "docword.txt", tmp_path / "vocab.txt")


def test_documents_that_are_drawn_follow_their_topics():
    corpus = synthetic_documents(400, topics=3, words=30, length=200, seed=1)
    expected = corpus.proportions @ corpus.topics
    lengths = np.asarray(corpus.counts.sum(axis=1)).reshape(-1, 1)
    # Pooled over many documents the counts are near their means, in units of the Poisson sd.
    wanted = (lengths * expected).sum(axis=0)
    z = (np.asarray(corpus.counts.sum(axis=0)).ravel() - wanted) / np.sqrt(wanted + 1)
    assert np.abs(z).max() < 4
    assert np.allclose(corpus.topics.sum(axis=1), 1)
    assert (corpus.counts != synthetic_documents(400, topics=3, words=30, length=200, seed=1).counts).nnz == 0


def test_kos_has_its_published_size():
    if not os.environ.get(catalog.ENVIRONMENT) or catalog.missing("kos"):
        pytest.skip(f"{catalog.ENVIRONMENT} does not point to a folder that has KOS")
    kos = catalog.load("kos")
    assert kos.counts.shape == (3_430, 6_906)
    assert (kos.counts.nnz, int(kos.counts.sum())) == (353_160, 467_714)
    assert kos.vocabulary is not None
    assert len(kos.vocabulary) == 6_906
