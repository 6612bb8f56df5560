"""MovieLens in the catalog: where its releases come from, and the one table of each that is read.

GroupLens publishes an MD5 beside each archive; the SHA-256 below are those of the archives with that MD5, as TensorFlow Datasets
lists them (tensorflow_datasets/url_checksums/movielens.txt; for 10M, which is not in that list, as several public projects
do), and were computed again here for 100K's table and for 1M. The archive `ml-latest` is replaced by its publisher now and
then, so it has no fixed checksum.

F. Maxwell Harper and Joseph A. Konstan (2015), The MovieLens Datasets: History and Context, ACM TiiS 5(4), 19.
"""

from __future__ import annotations

from pathlib import Path

from inbounds.data.catalog import Dataset, File
from inbounds.data.ratings import Ratings, load_ratings

__all__ = ["DATASETS"]

ADDRESS = "https://files.grouplens.org/datasets/movielens/"
HOMEPAGE = "https://grouplens.org/datasets/movielens/"
LICENCE = "research use; not commercial without permission; cite Harper and Konstan 2015"


def _parse(place: Path) -> Ratings:
    return load_ratings(place)


def _entry(
    release: str, title: str, member: str, size: int | None, sha256: str | None, content_sha256: str | None = None
) -> Dataset:
    archive = f"ml-{release}.zip"
    file = File(archive, size, sha256, (ADDRESS + archive,), content_sha256, member)
    return Dataset(f"movielens-{release}", title, HOMEPAGE, LICENCE, (file,), _parse)


DATASETS = (
    _entry(
        "100k", "MovieLens 100K, 100,000 ratings of 1998", "ml-100k/u.data", 4_924_029,
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    ),
    _entry(
        "1m", "MovieLens 1M, 1,000,209 ratings of 2003", "ml-1m/ratings.dat", 5_917_549,
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
    ),
    _entry(
        "10m", "MovieLens 10M, 10,000,054 ratings of 2009", "ml-10M100K/ratings.dat", 65_566_137,
        "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862",
        "4ce3f48dc570268079e4227901bd675f4997e687dafafec16de94170737179ad",
    ),
    _entry(
        "20m", "MovieLens 20M, 20,000,263 ratings of 2016", "ml-20m/ratings.csv", 198_702_078,
        "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
    ),
    _entry(
        "25m", "MovieLens 25M, 25,000,095 ratings of 2019", "ml-25m/ratings.csv", 261_978_986,
        "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
    ),
    _entry(
        "latest-small", "MovieLens latest, small, 100,836 ratings of 2018", "ml-latest-small/ratings.csv", 978_202,
        "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
    ),
    _entry("latest", "MovieLens latest, all ratings up to its release", "ml-latest/ratings.csv", None, None),
)  # fmt: skip
