"""Bayesian non-negative matrix factorisation of ratings: an estimator in the manner of scikit-learn.

The model itself is stated in `factors.py`; this file samples it with an ordinary kernel and predicts with the draws.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from inbounds import schedules
from inbounds.data.ratings import Ratings, load_ratings
from inbounds.kernels import leimkuhler_matthews, sgld
from inbounds.kernels._base import Kernel
from inbounds.models.estimator import Estimator, is_interactive, is_whole, scikit_learns, tuples
from inbounds.models.factors import CENTRE, LIKELIHOODS, FactorModel
from inbounds.posterior import Posterior
from inbounds.sampling import sample
from inbounds.trees import PyTree

__all__ = [
    "BayesianNMF",
    "Curve",
    "Factors",
    "Latest",
    "OneDrawWarning",
    "Recommendation",
    "UnknownLabelWarning",
    "as_ratings",
    "auto_step_size",
    "kept_dtype",
]

KERNELS: dict[str, Callable[..., Kernel]] = {"sgld": sgld, "leimkuhler_matthews": leimkuhler_matthews}
EVALUATE_EVERY = (5, 25)  # steps between two draws that enter the averages: at least, at most
PAIRS = 2**15  # predicted at once
ARRIVAL = 150  # steps of large size, at least, but for half of a shorter run
FEW = 20  # ratings per user on average: with fewer none is held out, and the run is longer
SMALL = 10_000  # users and items of a table of which steps and draws cost little


class UnknownLabelWarning(UserWarning):
    """A prediction was asked for a user or an item that `fit` has not seen: the answer is the prior's."""


class OneDrawWarning(UserWarning):
    """`fit` was so short that it kept one draw: there is a mean, and no spread."""


class Recommendation(NamedTuple):
    """Items for one user, the best first."""

    items: np.ndarray
    mean: np.ndarray
    std: np.ndarray


class Factors(NamedTuple):
    """Posterior mean and standard deviation of the factors: users and items by rank."""

    users: np.ndarray
    users_std: np.ndarray
    items: np.ndarray
    items_std: np.ndarray


# -- what is gathered while the chain runs ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curve:
    """Collector: RMSE on held-out ratings at every draw, of the average so far and of the draw alone.

    Draw t weighs t in the average: what came before the chain had arrived is forgotten as the run goes on, at any time and
    without a burn-in (polynomial-decay averaging, Shamir and Zhang 2013). Such an average of T draws is worth one of 3/4 T
    that weigh the same. The result also has the average itself and the variance of the predictions over the draws.
    """

    model: FactorModel
    user: jax.Array
    item: jax.Array
    rating: jax.Array
    draws: int

    def init(self, theta: PyTree) -> Any:
        zeros = jnp.zeros_like(self.rating)
        return jnp.zeros((), jnp.int32), zeros, zeros, jnp.full((self.draws, 2), jnp.nan, self.rating.dtype)

    def update(self, state: Any, theta: PyTree) -> Any:
        count, mean, variance, curve = state
        single = self.model.predict(theta, self.user, self.item)
        share = 2 / (count + 2).astype(mean.dtype)  # of this draw, the (count + 1)-th, in the sum of the weights
        apart = single - mean
        mean = mean + share * apart
        variance = (1 - share) * (variance + share * jnp.square(apart))
        rmse = [jnp.sqrt(jnp.mean(jnp.square(x - self.rating))) for x in (mean, single)]
        return count + 1, mean, variance, curve.at[count].set(jnp.stack(rmse))

    def result(self, state: Any) -> Any:
        _, mean, variance, curve = state
        return {"curve": curve, "mean": mean, "variance": variance}


@dataclass(frozen=True)
class Latest:
    """Collector: the latest draw, in the precision in which it is kept, and how many there were."""

    dtype: str

    def init(self, theta: PyTree) -> Any:
        return jnp.zeros((), jnp.int32), self._rounded(theta)

    def update(self, state: Any, theta: PyTree) -> Any:
        return state[0] + 1, self._rounded(theta)

    def result(self, state: Any) -> Any:
        return state

    def _rounded(self, theta: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf.astype(self.dtype), theta)


def kept_dtype(model: FactorModel) -> str:
    """Of the draws that are kept: half precision, which ends at 65,504, unless factors are large."""
    return "float16" if model.typical_factor < 100 else "float32"


# -- the estimator ------------------------------------------------------------------------------------------------


class BayesianNMF(Estimator):
    """Predicts ratings with non-negative factors of users and items, averaged over their posterior.

    Args:
        rank: number of factors.
        likelihood: "gaussian" (with a precision that is sampled too), "poisson" (for counts: stars are far less spread than counts of
            their mean would be) or "binomial" (ratings as counts out of the largest). The paper's model is
            `likelihood="poisson", offsets=False, prior_rate=1.0`.
        offsets: give every user and item an offset of its own, and let factors explain what is left.
        prior_rate: rate of the exponential priors of the model without offsets; None matches the mean rating.
        transforms: how the factors are kept positive: "softplus", "icll", "integrated_probit" or "exp".
        kernel: "sgld" or "leimkuhler_matthews"; or a function of a posterior that returns a kernel, such as
            `lambda posterior: ib.baselines.mirror(posterior)` (`transforms` is not used then).
        noise_correction: take the noise of the minibatch gradient, as expected from the model (`FactorModel.gradient_variance`),
            out of the noise that is injected. With the kernels by name.
        step_size: a number, a function of the step number, or "auto": see `auto_step_size`. With the kernels by name it is in
            units of the inverse curvature of each row (`FactorModel.preconditioner`).
        iterations: steps of the chain. None for 2,000, or for 10,000 where there are fewer than 20 ratings per user, and fewer than
            10,000 users and items: single draws lie far apart there, many have to be averaged, and they cost little.
        batch_size: ratings per step; None for four times as many as there are users and items: with fewer, the noise of the
            gradient and not the dynamics sets the step size.
        keep: draws kept at most (in half precision) to predict pairs that were not asked for during `fit`. They lie the denser the later:
            draw t of the chain weighs t in every average, so that no burn-in has to be chosen. None for 100, or for 300 where None for
            `iterations` is 10,000.
        validation: share of the ratings held out for the curve in `history_` and the width of the intervals; 0 for none. None for a
            tenth, but for none where there are fewer than 20 per user and the likelihood is Gaussian: each counts there, and the
            precision that is sampled gives the intervals their width.
        progress: print the validation RMSE on a terminal; True, False, or a function that gets a dict.
        random_state: a whole number; the same one gives the same model.

    Attributes:
        model_: the `FactorModel`.
        user_ids_, item_ids_: the labels known, sorted.
        range_: the smallest and the largest rating.
        draws_: kept draws: a dict of arrays, leading axis = draw.
        dispersion_: residual variance on held-out ratings in units of the likelihood's; 1 where there are none.
        history_: a dict of arrays: "step", "seconds", "rmse" (of the average so far), "single_rmse" (of one draw); empty where no
            rating is held out.

    Example:
        >>> ratings = ib.data.generate_ratings(50, 20, 400)
        >>> model = ib.models.BayesianNMF(rank=2, iterations=50, progress=False).fit(ratings)
        >>> mean, std = model.predict([1, 2], [3, 4], return_std=True)
        >>> mean.shape, bool((std > 0).all())
        ((2,), True)
        >>> len(model.recommend(1, n=5).items)
        5
    """

    _fitted = "draws_"
    _format = "inbounds NMF"
    _version = 2  # 1 had factors that count from another mean
    _renamed: ClassVar[dict[str, str]] = {"transform": "transforms"}
    _estimator_type = "regressor"

    def __init__(
        self,
        rank: int = 20,
        *,
        likelihood: str = "gaussian",
        offsets: bool = True,
        prior_rate: float | None = None,
        transforms: str = "softplus",
        kernel: str | Callable[[Posterior], Kernel] = "sgld",
        noise_correction: bool = True,
        step_size: Any = "auto",
        iterations: int | None = None,
        batch_size: int | None = None,
        keep: int | None = None,
        validation: float | None = None,
        progress: Any = True,
        random_state: int | None = 0,
    ):
        self.rank = rank
        self.likelihood = likelihood
        self.offsets = offsets
        self.prior_rate = prior_rate
        self.transforms = transforms
        self.kernel = kernel
        self.noise_correction = noise_correction
        self.step_size = step_size
        self.iterations = iterations
        self.batch_size = batch_size
        self.keep = keep
        self.validation = validation
        self.progress = progress
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Asked for by scikit-learn alone, so it is there when this runs."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(categorical=True),  # X holds labels
        )

    def fit(self, X: Any, y: Any = None, *, eval_set: Any = None) -> BayesianNMF:
        """Sample factors for ratings; returns self.

        Args:
            X: `ib.data.Ratings`, a `scipy.sparse` matrix of users by items, a data frame, a path, an array or a list of rows
                (user, item, rating), an array of two columns with the ratings in `y`, or a tuple of three arrays.
            y: the ratings, where X has the pairs only.
            eval_set: ratings to follow along instead of a held-out share; in any of the forms of X.

        Returns:
            The model itself.
        """
        self._check_parameters()
        ratings = as_ratings(X, y)
        seed = self._seed()
        if eval_set is None:
            train, held_out = _hold_out(ratings, self._share(ratings), seed)
        else:
            train, held_out = ratings, _known(as_ratings(eval_set), ratings)
        self.model_ = model = FactorModel.of(train, int(self.rank), self.likelihood, self.offsets, self.prior_rate)
        self.user_ids_, self.item_ids_ = ratings.user_ids, ratings.item_ids
        self.range_ = (float(ratings.rating.min()), float(ratings.rating.max()))
        self._seen = _rated(ratings) if eval_set is None else _rated(ratings) + _rated(held_out)

        iterations, keep = self._length(ratings)
        # Kept draws are nearest at the end of the run, half as far apart as if they were spread evenly.
        spacing = min(max(EVALUATE_EVERY[0], iterations // (2 * keep)), iterations)
        thin = min(EVALUATE_EVERY[1], spacing)
        draws = iterations // thin
        collectors: dict[str, Any] = {"latest": Latest(kept_dtype(model))}
        if len(held_out):
            user, item, rating = map(jnp.asarray, (held_out.user, held_out.item, held_out.rating))
            collectors["curve"] = Curve(model, user, item, rating, draws)
        watcher = _Watcher(self.progress, model, draws * thin, draws, keep)
        batch_size = min(self.batch_size or 4 * (train.num_users + train.num_items), len(train))
        run = sample(
            replace(self._kernel(model, train, batch_size), reports=()),  # nobody looks at them: less to compile
            self._step_size(len(train), batch_size, draws * thin),
            draws * thin,
            thin=thin,
            batch_size=batch_size,
            # Contiguous slices of shuffled epochs, also where the noise is corrected for, which assumes independent ones: they
            # cost nothing, and their noise cancels within an epoch, so that the correction errs to the narrow side.
            batching="epochs",
            seed=seed,
            init=model.start_from(seed),
            collect=collectors,
            progress=False,
            monitor=watcher,
            chunk_steps=spacing,
        )
        self.draws_ = _with_prior_rows(model, watcher.kept_draws(), seed)
        self.dispersion_, self.history_ = 1.0, {}
        if len(held_out):
            curve = jax.tree.map(lambda leaf: leaf[0], run.collected["curve"])
            steps = thin * np.arange(1, draws + 1)
            self.history_ = {
                "step": steps,
                "seconds": watcher.seconds_at(steps),
                "rmse": curve["curve"][:, 0],
                "single_rmse": curve["curve"][:, 1],
            }
            residual = held_out.rating - curve["mean"]
            claimed = model.variance(curve["mean"], self._precision()) + curve["variance"]
            self.dispersion_ = float(np.mean(np.square(residual) / np.maximum(claimed, 1e-12)))
        return self

    def predict(
        self, users: Any, items: Any = None, *, return_std: bool = False, return_known: bool = False
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        """The posterior mean rating of each pair (users[k], items[k]).

        Args:
            users, items: labels, of equal length; one label serves for all of the others. Or one table of two columns, as
                scikit-learn gives it: the pairs.
            return_std: also the posterior standard deviation of the mean rating; for the spread of ratings themselves see
                `predict_interval`.
            return_known: also whether both labels were seen in `fit`. Of the others the answer is the prior's, and a warning
                says so unless this is asked for.

        Returns:
            Means, one per pair; with `return_std` or `return_known` a tuple of arrays, in the order of these arguments.
        """
        self._check_fitted()
        if items is None:
            users, items = map(_labels, _columns(users, 2).T)
        user, item, known = self._codes(users, items)
        if not return_known and not known.all():
            warnings.warn(
                f"{(~known).sum():,} of {known.size:,} pairs have a user or an item that was not seen in `fit`: the answer "
                "for those is the prior's. `return_known=True` tells which.",
                UnknownLabelWarning,
                stacklevel=2,
            )
        mean, variance = self._moments_of(user, item, prior_spread=False)
        answer = [mean]
        if return_std:
            if len(next(iter(self.draws_.values()))) < 2:
                warnings.warn(
                    "The model kept one draw: its spread is not known. Fit it with more `iterations`, and `keep` more than one.",
                    OneDrawWarning,
                    stacklevel=2,
                )
            if not known.all():
                _, wider = self._moments_of(user[~known], item[~known], prior_spread=True)
                variance[~known] = wider
            answer.append(np.sqrt(variance))
        if return_known:
            answer.append(known)
        return answer[0] if len(answer) == 1 else tuple(answer)

    def predict_interval(self, users: Any, items: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the central predictive interval of each rating: the mean's uncertainty and the noise.

        The noise is the likelihood's, times `dispersion_` where ratings were held out to measure it: ratings are far less
        spread than a Poisson of the same mean. Intervals are cut to the range of the ratings that were seen.

        Args:
            users, items: labels, as `predict` takes them.
            level: the share of ratings that the interval is to hold.

        Returns:
            The lower ends and the upper ends.

        Raises:
            ValueError: `level` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"`level` must lie between 0 and 1; got {level}.")
        mean, std, _ = self.predict(users, items, return_std=True, return_known=True)
        noise = self.model_.variance(mean, self._precision())
        width = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(self.dispersion_ * (noise + np.square(std)))
        return np.clip(mean - width, *self.range_), np.clip(mean + width, *self.range_)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the root mean squared error on ratings in any of the forms of `fit`.

        Args:
            X: ratings, or pairs with the ratings in `y`.
            y: the ratings, where X has the pairs only.

        Returns:
            The score; larger is better.
        """
        self._check_fitted()
        ratings = as_ratings(X, y)
        users, items = ratings.user_ids[ratings.user], ratings.item_ids[ratings.item]
        mean, _ = self.predict(users, items, return_known=True)
        return -float(np.sqrt(np.mean(np.square(mean - ratings.rating))))

    def recommend(self, user: Any, n: int = 10, *, exclude_rated: bool = True) -> Recommendation:
        """The `n` items with the highest posterior mean rating for a user, with their standard deviation.

        Args:
            user: a label.
            n: how many items.
            exclude_rated: whether to leave out what the user rated in `fit`.

        Returns:
            The items with mean and standard deviation, best first.

        Raises:
            ValueError: `n` is no positive whole number.
        """
        self._check_fitted()
        if not is_whole(n) or n < 1:
            raise ValueError(f"`n` must be a positive whole number; got {n!r}.")
        mean, std, known = self.predict(user, self.item_ids_, return_std=True, return_known=True)
        if not known.all():
            warnings.warn(
                f"User {user!r} was not seen in `fit`: these items are the prior's choice.",
                UnknownLabelWarning,
                stacklevel=2,
            )
        candidates = np.arange(len(self.item_ids_))
        if exclude_rated and known.all():
            code = _encode(np.asarray([user]), self.user_ids_)[0]
            candidates = np.setdiff1d(candidates, self._seen[[code]].indices)
        best = candidates[np.argsort(-mean[candidates], kind="stable")[:n]]
        return Recommendation(self.item_ids_[best], mean[best], std[best])

    def factors(self) -> Factors:
        """Posterior mean and standard deviation of the factors, in the order of `user_ids_` and `item_ids_`.

        Of one chain: factors may be permuted between chains, so moments of several would mix them up.

        Returns:
            Means and standard deviations of users' and items' factors, by name.
        """
        self._check_fitted()
        moments = []
        for name, labels in (("W", self.user_ids_), ("H", self.item_ids_)):
            draws = self.draws_[name][:, : len(labels)]
            moments += [draws.mean(axis=0, dtype=np.float32), draws.std(axis=0, dtype=np.float32)]
        return Factors(*moments)

    # -- on disk ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model as an npz file without pickle.

        Args:
            path: the file; one that is there is replaced.

        Returns:
            The file's path.
        """
        self._check_fitted()
        header = {"model": asdict(self.model_), "dispersion": self.dispersion_, "range": self.range_}
        arrays = {"user_ids": self.user_ids_, "item_ids": self.item_ids_}
        arrays |= {"rated_indptr": self._seen.indptr, "rated_indices": self._seen.indices}
        arrays |= {f"draws_{name}": values for name, values in self.draws_.items()}
        arrays |= {f"history_{name}": values for name, values in self.history_.items()}
        return self._write(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BayesianNMF:
        """Read a model that `save` wrote. Nothing in the file is executed.

        Args:
            path: the file.

        Returns:
            The model, ready to be used.

        Raises:
            ValueError: the file holds no such model.
        """
        with cls._read(path) as (model, header, arrays):

            def named(prefix: str) -> dict[str, np.ndarray]:
                return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}

            model.model_ = FactorModel(**{name: tuples(value) for name, value in header["model"].items()})
            model.dispersion_ = float(header["dispersion"])
            model.range_ = (float(header["range"][0]), float(header["range"][1]))
            model.user_ids_, model.item_ids_ = arrays["user_ids"], arrays["item_ids"]
            model.draws_, model.history_ = named("draws_"), named("history_")
            shape = (len(model.user_ids_), len(model.item_ids_))
            ones = np.ones(len(arrays["rated_indices"]), bool)
            model._seen = scipy.sparse.csr_array((ones, arrays["rated_indices"], arrays["rated_indptr"]), shape=shape)
            for name in model.model_.shapes:
                if model.draws_[name].shape[1:] != _with_room(model.model_, name):
                    raise ValueError(f"the draws of {name!r} have the shape {model.draws_[name].shape}")
        return model

    # -- parts -----------------------------------------------------------------------------------------------------

    def _kernel(self, model: FactorModel, ratings: Ratings, batch_size: int) -> Kernel:
        posterior = model.posterior(ratings)
        if callable(self.kernel):
            return self.kernel(posterior)
        scales = model.preconditioner(ratings, self.transforms)
        corrects = self.noise_correction and batch_size < len(ratings)
        noise = model.gradient_variance(ratings, batch_size) if corrects else False
        transforms = model.transforms(self.transforms)
        return KERNELS[self.kernel](posterior, transforms, preconditioner=scales, noise_correction=noise)

    def _step_size(self, rows: int, batch_size: int, iterations: int) -> Any:
        if not isinstance(self.step_size, str):
            return self.step_size
        if callable(self.kernel):
            raise ValueError(
                'step_size="auto" goes with the kernels by name; with a function of your own give a number.'
            )
        return auto_step_size(rows, batch_size, iterations, self.offsets)

    def _share(self, ratings: Ratings) -> float:
        """Of the ratings, to hold out."""
        if self.validation is not None:
            return self.validation
        return 0.0 if _few_per_user(ratings) and self.likelihood == "gaussian" else 0.1

    def _length(self, ratings: Ratings) -> tuple[int, int]:
        """Steps of the chain, and draws kept at most."""
        small = _few_per_user(ratings) and ratings.num_users + ratings.num_items < SMALL
        iterations, keep = (10_000, 300) if small else (2_000, 100)
        return self.iterations or iterations, self.keep or keep

    def _precision(self) -> float:
        return float(np.mean(self.draws_["precision"])) if "precision" in self.draws_ else 1.0

    def _codes(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        users, items = np.atleast_1d(np.asarray(users)), np.atleast_1d(np.asarray(items))
        if users.ndim != 1 or items.ndim != 1 or (len(users) != len(items) and 1 not in (len(users), len(items))):
            raise ValueError(f"`users` and `items` must be of equal length; got {users.shape} and {items.shape}.")
        users, items = np.broadcast_arrays(users, items)
        user, item = _encode(users, self.user_ids_), _encode(items, self.item_ids_)
        return user, item, (user < len(self.user_ids_)) & (item < len(self.item_ids_))

    def _moments_of(self, user: np.ndarray, item: np.ndarray, prior_spread: bool) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance over the kept draws; `prior_spread` lets unknown rows vary as the prior does."""
        if prior_spread:
            user = np.where(user == len(self.user_ids_), user + 1, user)
            item = np.where(item == len(self.item_ids_), item + 1, item)
        mean, variance = np.empty(len(user), np.float32), np.empty(len(user), np.float32)
        for begin in range(0, len(user), PAIRS):
            piece = slice(begin, begin + PAIRS)
            padded = (np.resize(codes[piece], PAIRS) for codes in (user, item))
            both = np.asarray(_over_draws(self.model_, self.draws_, *padded))[:, : len(user[piece])]
            mean[piece], variance[piece] = both
        return mean, variance

    def _check_parameters(self) -> None:
        if self.likelihood not in LIKELIHOODS:
            raise ValueError(f"Unknown likelihood {self.likelihood!r}. Known: {', '.join(LIKELIHOODS)}.")
        if not callable(self.kernel) and self.kernel not in KERNELS:
            raise ValueError(
                f"Unknown kernel {self.kernel!r}. Known: {', '.join(KERNELS)}; or a function of a posterior."
            )
        for name in ("rank", "iterations", "batch_size", "keep"):
            value = getattr(self, name)
            if name != "rank" and value is None:
                continue
            if not is_whole(value) or value < 1:
                raise ValueError(f"`{name}` must be a positive whole number; got {value!r}.")
        share = self.validation
        if share is not None and not (isinstance(share, int | float | np.number) and 0 <= share < 1):
            raise ValueError(f"`validation` is a share, at least 0 and below 1, or None; got {share!r}.")
        if self.prior_rate is not None and not (math.isfinite(self.prior_rate) and self.prior_rate > 0):
            raise ValueError(f"`prior_rate` must be a positive number or None; got {self.prior_rate!r}.")
        if self.prior_rate is not None and self.offsets:
            raise ValueError(
                "`prior_rate` belongs to the exponential priors of the model without offsets: leave it out, or say offsets=False."
            )
        if isinstance(self.step_size, str) and self.step_size != "auto":
            raise ValueError(
                f'`step_size` must be a number, a function of the step, or "auto"; got {self.step_size!r}.'
            )


def auto_step_size(rows: int, batch_size: int, iterations: int, offsets: bool) -> Any:
    """The step sizes that `step_size="auto"` takes, in units of the inverse curvature: large at first, to arrive, and constant
    after a fifth of the run, or after the steps that it takes to arrive.

    A rating of a minibatch stands for rows / batch_size of them. The noise of the gradient then has step size x rows /
    (2 batch_size) of the variance that the dynamics inject. For a run of 10,000 steps that is held at 0.25 (1.1 without offsets,
    which mix more slowly). The error has a part that grows with the step size (bias) and one that falls with step size x
    iterations (what the average has not seen), so the best step size falls as the root of the length of the run. Where
    minibatches are large, the discretisation sets the limit; it is lower without offsets, because of the stiff direction in
    which all factors grow together. The numbers were found on MovieLens 1M.
    """
    share = batch_size / rows
    heat, largest, first = (0.5, 0.06, 0.15) if offsets else (2.25, 0.05, 0.06)
    last = min(heat * share * math.sqrt(10_000 / iterations), largest)
    first = min(4 * share, first)
    return schedules.settling(max(first, last), last, max(iterations // 5, min(ARRIVAL, iterations // 2), 1))


def as_ratings(X: Any, y: Any = None) -> Ratings:
    """Ratings from any of the forms that `BayesianNMF.fit` takes."""
    if isinstance(X, Ratings):
        return X
    if isinstance(X, tuple) and len(X) == 3:
        return Ratings.from_columns(*X)
    if isinstance(X, np.ndarray | list) or y is not None:
        columns = _columns(X, 3 if y is None else 2)
        rating = columns[:, 2] if y is None else _as_vector(y)
        return Ratings.from_columns(_labels(columns[:, 0]), _labels(columns[:, 1]), rating)
    return load_ratings(X)


def _columns(X: Any, width: int) -> np.ndarray:
    """X as an array of so many columns."""
    columns = np.asarray(X)
    if columns.dtype.kind == "c":
        raise ValueError("Complex data not supported: labels are whole numbers or text.")
    if columns.dtype.kind == "f" and not np.all(np.isfinite(columns)):
        raise ValueError("X contains NaN or infinity: every user, item and rating must be known. Drop the rows.")
    if columns.ndim != 2 or columns.shape[1] != width:
        few = columns.ndim == 2 and columns.shape[1] < width
        got = (
            f"{columns.shape[1]} feature(s) (shape={columns.shape}) while a minimum of {width} is required"
            if few
            else columns.shape
        )
        raise ValueError(
            f"An array of ratings has three columns (user, item, rating), or two and the ratings in `y`; got {got}"
            f"{' and y' if width == 2 else ''}. For a matrix of users by items give scipy.sparse, for three arrays a tuple. Reshape "
            "your data."
        )
    return columns


def _as_vector(y: Any) -> np.ndarray:
    """Ratings as one array; a table of one column is one too, with scikit-learn's warning."""
    rating = np.asarray(y)
    if rating.ndim != 2 or rating.shape[1] != 1:
        return rating
    warnings.warn(
        f"A column-vector y was passed when a 1d array was expected: {rating.shape}. Change it to shape (ratings,), by y.ravel() for one.",
        scikit_learns("DataConversionWarning", UserWarning),
        stacklevel=4,
    )
    return rating[:, 0]


def _labels(column: np.ndarray) -> np.ndarray:
    """Labels out of a column of floats, as a table of numbers has them."""
    if column.dtype.kind == "f" and np.all(column == np.round(column)):
        return column.astype(np.int64)
    return column


class _Watcher:
    """Called by the driver between chunks: keeps draws, the time, and tells about the RMSE.

    The draws that are kept lie as dense as they weigh in `Curve`, so that they weigh the same in predictions. They are written
    where they stay, with room for the rows of labels that were not seen.
    """

    def __init__(self, progress: Any, model: FactorModel, iterations: int, draws: int, keep: int):
        self.call = progress if callable(progress) else None
        self.prints = self.call is None and bool(progress) and is_interactive()
        self.iterations = iterations
        self.wanted = np.ceil(draws * np.sqrt(np.arange(1, keep + 1) / keep))  # numbers of draws, from 1
        dtype = kept_dtype(model)
        self.draws = {name: np.empty((keep, *_with_room(model, name)), dtype) for name in model.shapes}
        self.count = self.kept = 0
        self.began = self.told = time.perf_counter()
        self.clock: list[tuple[int, float]] = [(0, 0.0)]

    def __call__(self, done: int, collected: Any) -> None:
        now = time.perf_counter()
        self.clock.append((done, now - self.began))
        before, (self.count, theta) = self.count, (int(collected["latest"][0][0]), collected["latest"][1])
        if np.any((self.wanted > before) & (self.wanted <= self.count)):
            for name, values in theta.items():
                place = self.draws[name][self.kept : self.kept + 1]
                place[tuple(map(slice, values.shape))] = values
            self.kept += 1
        if (self.call is None and not self.prints) or (now - self.told < 1 and done < self.iterations):
            return
        self.told = now
        row: dict[str, Any] = {"step": done, "steps": self.iterations, "seconds": now - self.began}
        if "curve" in collected and self.count:
            rmse, single = collected["curve"]["curve"][0, self.count - 1]
            row |= {"rmse": float(rmse), "single_rmse": float(single)}
        if self.call is not None:
            self.call(row)
        else:
            text = f"  validation RMSE {row['rmse']:.4f}" if "rmse" in row else ""
            print(f"step {done:,}/{self.iterations:,}{text}  {row['seconds']:.0f} s", flush=True)

    def kept_draws(self) -> dict[str, np.ndarray]:
        return {name: values[: self.kept] for name, values in self.draws.items()}

    def seconds_at(self, steps: np.ndarray) -> np.ndarray:
        done, seconds = np.asarray(self.clock).T
        result: np.ndarray = np.interp(steps, done, seconds)
        return result


def _with_room(model: FactorModel, name: str) -> tuple[int, ...]:
    """The shape of a variable, with two more rows for labels that were not seen where its rows are labels."""
    shape = model.shapes[name]
    return (shape[0] + 2, *shape[1:]) if name in model.rows else shape


def _with_prior_rows(model: FactorModel, draws: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Fill the two rows for labels that were not seen: the prior's mean, and a draw from the prior."""
    random = np.random.default_rng(seed)
    for name in model.rows:
        values = draws[name]
        shape = (values.shape[0], *values.shape[2:])
        values[:, -2] = model.prior_mean(name)
        if name.endswith("offset"):
            values[:, -1] = model.offset_sd * random.standard_normal(shape)
        elif model.offsets:
            values[:, -1] = np.abs(CENTRE + random.standard_normal(shape))
        else:
            values[:, -1] = random.exponential(1 / model.prior_rate, shape)
    return draws


@partial(jax.jit, static_argnums=0)
def _over_draws(model: FactorModel, draws: PyTree, user: jax.Array, item: jax.Array) -> jax.Array:
    """(mean, variance) of the mean rating over the draws."""

    def one(total: Any, theta: PyTree) -> tuple[Any, None]:
        theta = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), theta)
        x = model.predict(theta, user, item) - model.mean  # centred, so that squares do not cancel
        return (total[0] + x, total[1] + jnp.square(x)), None

    count = jax.tree.leaves(draws)[0].shape[0]
    zeros = jnp.zeros(user.shape, jnp.float32)
    (first, second), _ = jax.lax.scan(one, (zeros, zeros), draws)
    mean = first / count
    return jnp.stack([mean + model.mean, jnp.maximum(second / count - jnp.square(mean), 0.0)])


def _encode(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Positions in `known`, which is sorted; its length for labels that are not there."""
    if labels.dtype.kind == "O":
        labels = np.asarray(labels.tolist())
    if labels.dtype.kind in "US" and known.dtype.kind in "iu":
        raise ValueError(f"Labels were whole numbers in `fit`; got text such as {labels[0]!r}.")
    if labels.dtype.kind not in "US" and known.dtype.kind in "US":
        labels = labels.astype(str)
    place = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[place] == labels, place, len(known)).astype(np.int32)


def _few_per_user(ratings: Ratings) -> bool:
    return len(ratings) < FEW * ratings.num_users


def _hold_out(ratings: Ratings, share: float, seed: int) -> tuple[Ratings, Ratings]:
    """Ratings to fit, at least one, and to watch; none are held out of fewer than 20."""
    count = min(round(share * len(ratings)), len(ratings) - 1) if len(ratings) >= 20 else 0
    order = np.random.default_rng(seed).permutation(len(ratings))
    return ratings.select(np.sort(order[count:])), ratings.select(np.sort(order[:count]))


def _known(ratings: Ratings, reference: Ratings) -> Ratings:
    """The ratings whose user and item `reference` has, in its numbering."""
    user = _encode(ratings.user_ids[ratings.user], reference.user_ids)
    item = _encode(ratings.item_ids[ratings.item], reference.item_ids)
    rows = (user < reference.num_users) & (item < reference.num_items)
    if not rows.any():
        raise ValueError("No rating of `eval_set` has both a user and an item of X.")
    columns = (user[rows], item[rows], ratings.rating[rows])
    return Ratings(*columns, reference.user_ids, reference.item_ids)


def _rated(ratings: Ratings) -> scipy.sparse.csr_array:
    """Which user has rated which item."""
    entries = (np.ones(len(ratings), bool), (ratings.user, ratings.item))
    return scipy.sparse.csr_array(entries, shape=(ratings.num_users, ratings.num_items))
