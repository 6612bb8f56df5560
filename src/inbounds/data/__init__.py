"""Where minibatches come from, and public data sets to try things on."""

from typing import TYPE_CHECKING

from inbounds.data.arrays import Generated as Generated
from inbounds.data.source import Source as Source
from inbounds.data.stream import Stream as Stream
from inbounds.data.stream import stream as stream
from inbounds.namespaces import namespace

if TYPE_CHECKING:
    from inbounds.data import catalog as catalog
    from inbounds.data import images as images
    from inbounds.data.digits import synthetic_digits as synthetic_digits
    from inbounds.data.generated_ratings import MOVIELENS_SHAPES as MOVIELENS_SHAPES
    from inbounds.data.generated_ratings import generate_ratings as generate_ratings
    from inbounds.data.ratings import Ratings as Ratings
    from inbounds.data.ratings import RatingsSplit as RatingsSplit
    from inbounds.data.ratings import load_ratings as load_ratings
    from inbounds.data.ratings import write_dat as write_dat
    from inbounds.data.spread import balanced_numbering as balanced_numbering

__all__ = [
    "MOVIELENS_SHAPES",
    "Generated",
    "Ratings",
    "RatingsSplit",
    "Source",
    "Stream",
    "balanced_numbering",
    "catalog",
    "generate_ratings",
    "images",
    "load_ratings",
    "stream",
    "synthetic_digits",
    "write_dat",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(
        __name__,
        {
            "catalog": "inbounds.data.catalog",
            "images": "inbounds.data.images",
            "synthetic_digits": "inbounds.data.digits",
            "MOVIELENS_SHAPES": "inbounds.data.generated_ratings",
            "generate_ratings": "inbounds.data.generated_ratings",
            "Ratings": "inbounds.data.ratings",
            "RatingsSplit": "inbounds.data.ratings",
            "load_ratings": "inbounds.data.ratings",
            "write_dat": "inbounds.data.ratings",
            "balanced_numbering": "inbounds.data.spread",
        },
    )
