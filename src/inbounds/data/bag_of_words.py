"""Documents as bags of words: the format of the UCI collections, and documents that the library draws.

A `docword` file says the number of documents, of words in the vocabulary, and of entries, one per line; then each entry is a
line `document word count`, numbered from 1 (https://archive.ics.uci.edu/dataset/164/bag+of+words). A `vocab` file has one
word a line.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import scipy.sparse

from inbounds.data.catalog import DataError, Dataset, File, open_file

__all__ = ["BagOfWords", "Corpus", "read_bag_of_words", "synthetic_documents"]

PIECE = 1 << 24  # bytes parsed at a time
MOST = 1 << 31  # documents, words or a count beyond that are damage, not data
LONGEST_LINE = 1_000  # bytes; three numbers need far fewer


class BagOfWords(NamedTuple):
    """Documents by how often each word occurs in them.

    Attributes:
        counts: scipy CSR matrix of whole numbers, (documents, words).
        vocabulary: the words, in the order of the columns; None where they are not known.
    """

    counts: scipy.sparse.csr_matrix
    vocabulary: tuple[str, ...] | None = None


class Corpus(NamedTuple):
    """Documents that were drawn, and what they were drawn from."""

    counts: scipy.sparse.csr_matrix  # (documents, words)
    topics: np.ndarray  # (topics, words), rows sum to 1
    proportions: np.ndarray  # (documents, topics), rows sum to 1


def read_bag_of_words(docword: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None = None) -> BagOfWords:
    """Read a `docword` file and, where given, its `vocab` file; either may be gzip-packed.

    Args:
        docword: the entries.
        vocabulary: the words, one per line, as many as the entries speak of.

    Raises:
        DataError: a file is cut off, malformed or inconsistent; the message names the file and the line.
    """
    path = Path(docword)
    try:
        with open_file(path.parent, path.name) as stream:
            documents, words, entries = _header(stream, path)
            rows = np.concatenate([np.empty((0, 3), np.int64), *_entries(stream, path, documents, words, entries)])
    except EOFError:
        raise DataError(f"{path} is cut off: its gzip stream ends before its end. Fetch it again.") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged: {error}. Fetch it again.") from error
    counts = scipy.sparse.csr_matrix(
        (rows[:, 2].astype(np.int32), (rows[:, 0] - 1, rows[:, 1] - 1)), shape=(documents, words)
    )
    if counts.nnz != entries:  # scipy has added up entries for the same place
        _raise_duplicate(rows, path)
    return BagOfWords(counts, None if vocabulary is None else _read_vocabulary(Path(vocabulary), words))


def _header(stream: IO[bytes], path: Path) -> tuple[int, int, int]:
    """Numbers of documents, words and entries: the first three lines."""
    numbers = []
    for line, what in enumerate(("documents", "words in the vocabulary", "entries"), 1):
        text = stream.readline(LONGEST_LINE)
        value = _whole_numbers(text)
        if value is None or len(value) != 1:
            raise DataError(f"{path}, line {line}: expected the number of {what}, got {_shown(text)}.")
        numbers.append(value[0])
    documents, words, entries = numbers
    for line, what, size in ((1, "documents", documents), (2, "words", words)):
        if not 0 < size < MOST:
            raise DataError(f"{path}, line {line}: {size:,} {what} cannot be; between 1 and {MOST:,} can.")
    if entries > documents * words:
        raise DataError(f"{path}, line 3: {entries:,} entries do not fit {documents:,} documents of {words:,} words.")
    return documents, words, entries


def _entries(stream: IO[bytes], path: Path, documents: int, words: int, entries: int) -> Iterator[np.ndarray]:
    """Blocks of (document, word, count), checked; memory follows what is read, never what the header claims."""
    line, left = 4, b""
    most = np.array([documents, words, MOST - 1])
    while True:
        piece = stream.read(PIECE)
        block = left + piece
        if piece:
            block, _, left = block.rpartition(b"\n")
            if len(left) > LONGEST_LINE:
                raise DataError(f"{path}, after line {line - 1:,}: a line of more than {LONGEST_LINE:,} bytes.")
            if not block:
                continue
        elif not block.strip():
            break
        rows = _parse(block.rstrip(b"\n") + b"\n", path, line)
        wrong = np.flatnonzero(((rows < 1) | (rows > most)).any(axis=1))
        if wrong.size:
            document, word, count = rows[wrong[0]]
            raise DataError(
                f"{path}, line {line + wrong[0]:,}: document {document:,}, word {word:,}, count {count:,}; expected 1 to "
                f"{documents:,}, 1 to {words:,}, and at least 1."
            )
        line += len(rows)
        if line - 4 > entries:
            raise DataError(f"{path}, line {entries + 4:,}: line 3 promises {entries:,} entries, and there are more.")
        yield rows
        if not piece:
            break
    if line - 4 < entries:
        raise DataError(
            f"{path} ends after line {line - 1:,}: {line - 4:,} of the {entries:,} entries that line 3 promises. Cut off?"
        )


def _parse(block: bytes, path: Path, first: int) -> np.ndarray:
    """Whole lines as rows of three numbers: at once where every line is 'number number number', else line by line."""
    raw = np.frombuffer(block, np.uint8)
    breaks = raw[(raw == ord(" ")) | (raw == ord("\n"))]
    plain = len(breaks) + np.count_nonzero((raw >= ord("0")) & (raw <= ord("9"))) == len(raw)
    if plain and len(breaks) % 3 == 0 and np.all(breaks.reshape(-1, 3) == np.frombuffer(b"  \n", np.uint8)):
        values = np.fromstring(block.decode("ascii"), np.int64, sep=" ")
        if len(values) == len(breaks):
            return values.reshape(-1, 3)
    rows = []
    for number, text in enumerate(block[:-1].split(b"\n"), first):
        numbers = _whole_numbers(text)
        if numbers is None or len(numbers) != 3:
            raise DataError(f"{path}, line {number:,}: expected 'document word count', got {_shown(text)}.")
        rows.append([min(value, MOST) for value in numbers])
    return np.asarray(rows, np.int64)


def _whole_numbers(text: bytes) -> list[int] | None:
    parts = text.split()
    return [int(part) for part in parts] if all(part.isdigit() and len(part) < 20 for part in parts) else None


def _shown(text: bytes) -> str:
    return "the end of the file" if not text else repr(text[:60].decode("utf-8", "replace").rstrip("\n"))


def _raise_duplicate(rows: np.ndarray, path: Path) -> None:
    order = np.lexsort((np.arange(len(rows)), rows[:, 1], rows[:, 0]))
    same = np.flatnonzero(np.all(np.diff(rows[order, :2], axis=0) == 0, axis=1))
    again = order[same + 1].min()
    document, word, _ = rows[again]
    raise DataError(f"{path}, line {again + 4:,}: document {document:,} has word {word:,} for the second time.")


def _read_vocabulary(path: Path, words: int) -> tuple[str, ...]:
    try:
        with open_file(path.parent, path.name) as stream:
            text = stream.read(words * LONGEST_LINE + 1).decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}. Fetch it again.") from error
    *lines, rest = text.split("\n")
    if len(lines) < words and rest:  # the last line may lack its end; KOS has a stray piece after its last word
        lines.append(rest)
    if len(lines) != words:
        raise DataError(f"{path} ends after line {len(lines):,}: the entries speak of {words:,} words.")
    return tuple(line.strip() for line in lines)


def synthetic_documents(
    documents: int,
    topics: int = 5,
    words: int = 200,
    length: int = 80,
    *,
    doc_topic_prior: float = 0.1,
    topic_word_prior: float = 0.1,
    seed: int = 0,
) -> Corpus:
    """Documents drawn from latent Dirichlet allocation, with the topics and proportions that they were drawn from.

    Args:
        documents, topics, words: how many.
        length: mean number of words of a document; Poisson, at least 1.
        doc_topic_prior, topic_word_prior: Dirichlet concentrations; small ones make documents of few topics, and topics of
            few words.
        seed: the same seed draws the same documents.
    """
    if min(documents, topics, words, length) < 1 or not min(doc_topic_prior, topic_word_prior) > 0:
        raise ValueError("synthetic_documents needs sizes of at least 1 and positive concentrations.")
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(words, topic_word_prior), topics)
    proportions = rng.dirichlet(np.full(topics, doc_topic_prior), documents)
    lengths = np.maximum(rng.poisson(length, documents), 1)
    mixed = proportions @ beta
    counts = rng.multinomial(lengths, mixed / mixed.sum(axis=1, keepdims=True))
    return Corpus(scipy.sparse.csr_matrix(counts), beta, proportions)


def _parse_kos(place: Path) -> BagOfWords:
    return read_bag_of_words(place / "docword.kos.txt.gz", place / "vocab.kos.txt")


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"

DATASETS = (
    Dataset(
        name="kos",
        title="KOS blog entries, 3,430 documents of 6,906 words (UCI bag of words)",
        homepage="https://archive.ics.uci.edu/dataset/164/bag+of+words",
        licence="CC BY 4.0, D. Newman (2008)",
        files=(
            File(
                "docword.kos.txt.gz",
                1_053_803,
                "6439c39f2fccb4876563e4b4c9628974d8ccbeada43d661292a5024911389e30",
                (_UCI + "docword.kos.txt.gz",),
                "0913cf084375360ce32c497dc2f8eafc4cf24a231f3d39bdbf8c41de29797cb4",
            ),
            File("vocab.kos.txt", None, None, (_UCI + "vocab.kos.txt",)),
        ),
        parse=_parse_kos,
        folders=("uci-kos",),
    ),
)
