"""What `rating_rivals.py` starts in a rival's own environment: one fit, and its curve as JSON on the last line.

    python benchmarks/rivals/fits.py smurff COLUMNS.npz SEED

Only the rival, NumPy and SciPy are imported: Inbounds is not installed there. Seconds run from the call that fits, and end when
the predictions of the test part are there; what turns columns into the rival's own format comes before, as "setup".
"""

import json
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse

RANK, THREADS = 20, 2
SMURFF = {"burnin": 8, "nsamples": 112}  # the average of few draws gains most from a short burn-in
MYFM = {"n_iter": 150}
MYFM_BURN_IN = 5  # what myFM's own callback leaves out
# Strengths are the best on the validation part of 10, 15 and 20, and of 5, 10 and 15.
CMFREC = {
    "cmfrec-als": {"lambda_": 15.0, "user_bias": True, "item_bias": True},
    "cmfrec-nonnegative": {
        "lambda_": 10.0, "nonneg": True, "user_bias": False, "item_bias": False, "center": False,
    },
}  # fmt: skip
CMFREC_ITERATIONS = (1, 2, 4, 7, 12, 20, 40)

Fit = Callable[[], Iterator[tuple[int, float, float]]]
"""Yields (iteration, seconds, RMSE on the test part), point by point; whoever returns one has done the set-up."""


class Ratings:
    """Train and test columns, and the scales."""

    def __init__(self, path: str):
        with np.load(path) as columns:
            self.shape = tuple(int(size) for size in columns["shape"])
            self.train, self.test = (
                tuple(columns[f"{part}_{name}"] for name in ("user", "item", "rating")) for part in ("train", "test")
            )

    def rmse(self, predicted: np.ndarray) -> float:
        return float(np.sqrt(np.mean(np.square(predicted - self.test[2].astype(np.float64)))))

    def matrix(self, part: tuple, less: float = 0.0) -> sparse.coo_matrix:
        user, item, rating = part
        return sparse.coo_matrix((rating.astype(np.float64) - less, (user, item)), shape=self.shape)


def smurff(ratings: Ratings, seed: int) -> Fit:
    """Bayesian probabilistic matrix factorisation by Gibbs sampling; the noise is adapted, which beats SMURFF's constant."""
    import smurff

    mean = float(ratings.train[2].mean(dtype=np.float64))  # SMURFF has no intercept
    session = smurff.TrainSession(
        priors=["normal", "normal"], num_latent=RANK, seed=seed, num_threads=THREADS, verbose=0, **SMURFF
    )
    matrices = ratings.matrix(ratings.train, mean), ratings.matrix(ratings.test, mean)
    session.addTrainAndTest(*matrices, smurff.AdaptiveNoise(1.0, 10.0))

    def fit():
        began, sweeps = time.perf_counter(), 0
        session.init()
        while (status := session.step()) is not None:
            sweeps += 1
            error = status.rmse_1sample if sweeps <= SMURFF["burnin"] else status.rmse_avg
            yield sweeps, time.perf_counter() - began, float(error)

    return fit


def myfm(ratings: Ratings, seed: int) -> Fit:
    """Bayesian factorisation machine on one-hot users and items: offsets and factors, by Gibbs sampling. One thread: it has no more."""
    import myfm

    users, items = ratings.shape

    def one_hot(part):
        columns = np.stack([part[0], users + part[1]], axis=1).ravel()
        ends = np.arange(0, len(columns) + 1, 2)
        return sparse.csr_matrix((np.ones(len(columns)), columns, ends), shape=(len(part[0]), users + items))

    train, test, target = one_hot(ratings.train), one_hot(ratings.test), ratings.train[2].astype(np.float64)

    def fit():
        total, points, began = np.zeros(test.shape[0]), [], time.perf_counter()

        def follow(sweep, machine, hyper, history):
            nonlocal total
            predicted = machine.predict_score(test, [])
            if sweep >= MYFM_BURN_IN:
                total += predicted
                predicted = total / (sweep + 1 - MYFM_BURN_IN)
            points.append((sweep + 1, time.perf_counter() - began, ratings.rmse(predicted)))
            return False, None

        myfm.MyFMGibbsRegressor(rank=RANK, random_seed=seed).fit(
            train, target, group_shapes=[users, items], n_kept_samples=1, callback=follow, **MYFM
        )
        yield from points

    return fit


def cmfrec(ratings: Ratings, seed: int, options: dict) -> Fit:
    """Alternating least squares: a fresh fit for each number of iterations, since it has no callback."""
    from cmfrec import CMF

    # cmfrec leaves the factors of a row without ratings as they lie in memory: such rows are left out, and predicted by the mean.
    user, item, rating = ratings.train
    users, items = np.unique(user), np.unique(item)
    places = np.searchsorted(users, user), np.searchsorted(items, item)
    train = sparse.coo_matrix((rating.astype(np.float64), places), shape=(len(users), len(items)))
    known = np.isin(ratings.test[0], users) & np.isin(ratings.test[1], items)
    asked = np.searchsorted(users, ratings.test[0][known]), np.searchsorted(items, ratings.test[1][known])
    predicted = np.full(len(known), rating.mean(dtype=np.float64))

    def fit():
        for iterations in CMFREC_ITERATIONS:
            began = time.perf_counter()
            model = CMF(
                k=RANK, niter=iterations, nthreads=THREADS, random_state=seed, verbose=False,
                precompute_for_predictions=False, **options,
            ).fit(train)  # fmt: skip
            predicted[known] = model.predict(*asked)
            yield iterations, time.perf_counter() - began, ratings.rmse(predicted)

    return fit


FITS: dict[str, Callable[..., Fit]] = {
    "smurff": smurff,
    "myfm": myfm,
    **{name: lambda ratings, seed, options=options: cmfrec(ratings, seed, options) for name, options in CMFREC.items()},
}


def main(name: str, columns: str, seed: str) -> None:
    ratings = Ratings(columns)
    began = time.perf_counter()
    fit = FITS[name](ratings, int(seed))
    setup = time.perf_counter() - began
    points = list(fit())
    keys = ("iteration", "seconds", "rmse")
    print(json.dumps({"setup": setup, **dict(zip(keys, map(list, zip(*points, strict=True)), strict=True))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
