"""Generated ratings beside MovieLens: quantiles, histogram, offsets and baselines as a table, and the tails as a picture.

    python -m benchmarks.rating_tails --data FOLDER [--out docs/ratings-tails.png]

FOLDER is a folder of the catalog with MovieLens 1M and 100K (`inbounds data fetch movielens-1m movielens-100k`).
"""

import argparse

import matplotlib
import numpy as np

import inbounds as ib
from inbounds.data import MOVIELENS_SHAPES
from inbounds.display import LIGHT, new_figure
from inbounds.models import UserItemBias

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def table(name: str, ratings: ib.data.Ratings) -> None:
    print(f"\n{name}: {ratings}, mean {ratings.rating.mean(dtype=float):.3f}, sd {ratings.rating.std(dtype=float):.3f}")
    for column, size in (("user", ratings.num_users), ("item", ratings.num_items)):
        counts = np.bincount(getattr(ratings, column), minlength=size)
        print(f"  ratings per {column}: " + " ".join(f"{q:.0f}" for q in np.quantile(counts, QUANTILES)))
    train, _, test = ratings.split(seed=0)
    bias = UserItemBias.fit(train)
    print(
        f"  offsets, sd over ratings: user {bias.user[ratings.user].std():.3f}, item {bias.item[ratings.item].std():.3f}"
    )
    print(f"  test RMSE: global mean {UserItemBias.global_mean(train).rmse(test):.4f}, offsets {bias.rmse(test):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of the catalog; INBOUNDS_DATA or the cache when left out")
    parser.add_argument("--out", default="docs/ratings-tails.png")
    arguments = parser.parse_args()
    sets = {}
    for release in ("100k", "1m"):
        sets[f"MovieLens {release.upper()}"] = ib.data.catalog.load(f"movielens-{release}", arguments.data)
        sets[f"generated {release.upper()}"] = ib.data.generate_ratings(**MOVIELENS_SHAPES[release])
    sets["generated 10M"] = ib.data.generate_ratings()
    for name, ratings in sets.items():
        table(name, ratings)

    grid = np.linspace(0, 1, 201)  # curves of 201 quantiles: nothing of a single user is in them
    colours = {
        "100K": LIGHT.colour("mirror"),
        "1M": LIGHT.colour("corv"),
        "10M": LIGHT.colour("lm-nc"),
    }
    with matplotlib.rc_context(LIGHT.settings()):
        figure, axes = new_figure(1, 2, height=2.8)
        for axis, column in zip(np.ravel(axes), ("user", "item"), strict=True):
            for name, ratings in sets.items():
                source, release = name.split()
                counts = np.quantile(np.bincount(getattr(ratings, column)), 1 - grid)
                axis.plot(grid, counts, color=colours[release], ls="--" if source == "generated" else "-", label=name)
            axis.set(yscale="log", xlabel=f"share of {column}s that have more", title=f"ratings per {column}")
        np.ravel(axes)[0].legend()
        figure.savefig(arguments.out, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
