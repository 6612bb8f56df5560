"""The page of one fitted factorisation: its error, whether its intervals can be believed, and what the factors look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from inbounds.data.ratings import Ratings
from inbounds.display import Chapter, Section, Table, Theme, new_figure, save_picture
from inbounds.models.nmf import BayesianNMF
from inbounds.models.rating_baselines import UserItemBias

__all__ = ["nmf_chapter"]

LEVELS = (0.5, 0.8, 0.9, 0.95)
SHOWN = 30  # items in the picture of the factors


def nmf_chapter(model: BayesianNMF, train: Ratings, followed: Ratings, held_out: Ratings, folder: Path) -> Chapter:
    """Sections on `held_out`, of which `model` knows nothing; pictures go into `folder`.

    Args:
        model: fitted to `train` with `followed` as its `eval_set`.
        train: what it was fitted to.
        followed: what its curve was measured on, and the width of its intervals scaled to: they say nothing of the calibration.
        held_out: others, to measure the error and the calibration on.
        folder: for the pictures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    users, items = held_out.user_ids[held_out.user], held_out.item_ids[held_out.item]
    mean, _ = model.predict(users, items, return_known=True)
    error = _rmse(mean, held_out.rating)
    sections = [
        _error(model, train, followed, held_out, error, folder),
        _calibration(model, users, items, held_out.rating, folder),
        _factors(model, train, folder),
    ]
    lead = (
        f"{model.model_.rank} non-negative factors for {train.num_users:,} users and {train.num_items:,} items, "
        f"{model.likelihood} likelihood{' with offsets' if model.offsets else ''}, fitted to {len(train):,} ratings; the error on "
        f"{len(held_out):,} others is {error:.4f}."
    )
    facts = [(name.replace("_", " "), str(value)) for name, value in model.get_params().items()]
    return Chapter("Bayesian matrix factorisation", lead, sections, facts)


def _rmse(predicted: np.ndarray, rating: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(predicted - rating))))


def _error(
    model: BayesianNMF, train: Ratings, followed: Ratings, held_out: Ratings, error: float, folder: Path
) -> Section:
    offsets = UserItemBias.fit(train)
    bias, history = offsets.rmse(followed), model.history_

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, 1, width=7.2, height=3.0)
        axis = axes[0, 0]
        axis.plot(history["step"], history["rmse"], color=theme.colour("corv"), lw=1.5, label="average of the draws")
        axis.plot(history["step"], history["single_rmse"], color=theme.colour("mirror"), lw=0.8, label="one draw")
        axis.axhline(bias, color=theme.soft, ls="--", lw=1.0, label="user + item")
        late = history["single_rmse"][len(history["step"]) // 20 :]
        low, high = float(np.nanmin(history["rmse"])), max(float(np.nanmax(late)), bias)
        axis.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
        axis.set_xlabel("iteration")
        axis.set_ylabel(f"RMSE on {len(followed):,} ratings")
        axis.grid(True, lw=0.6)
        axis.legend()
        return figure

    flat = UserItemBias.global_mean(train).rmse(held_out)
    rows = (("this model", error), ("user + item", offsets.rmse(held_out)), ("global mean", flat))
    see = (
        "A draw weighs its number in the average, so that the way there is forgotten; draws scatter around it as the posterior does. "
        f"The curve is measured on {len(followed):,} ratings that were not fitted, the table on {len(held_out):,} others."
    )
    best = min(range(3), key=lambda i: rows[i][1])
    return Section("Error", see, save_picture(folder / "error", draw), Table(("predictor", "RMSE"), rows, (best,)))


def _calibration(model: BayesianNMF, users: Any, items: Any, rating: np.ndarray, folder: Path) -> Section:
    covered = []
    for level in LEVELS:
        low, high = model.predict_interval(users, items, level)
        covered.append(float(np.mean((rating >= low) & (rating <= high))))

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, 1, width=4.2, height=3.4)
        axis = axes[0, 0]
        axis.plot([0.4, 1], [0.4, 1], color=theme.soft, lw=1.0, ls="--")
        axis.plot(LEVELS, covered, "o-", color=theme.colour("corv"))
        axis.set_xlabel("level of the interval")
        axis.set_ylabel("share of ratings inside")
        axis.grid(True, lw=0.6)
        return figure

    rows = [[f"{level:.0%}", f"{share:.1%}"] for level, share in zip(LEVELS, covered, strict=True)]
    see = "On the dashed line an interval holds as many held-out ratings as it claims."
    notes = (
        f"The noise of the likelihood was scaled by {model.dispersion_:.3f} to other ratings than the {len(rating):,} that are counted "
        "here.",
    )
    table = Table(("interval", "holds"), rows)
    return Section("Calibration of the intervals", see, save_picture(folder / "calibration", draw), table, notes)


def _factors(model: BayesianNMF, train: Ratings, folder: Path) -> Section:
    factors = model.factors()
    popular = np.argsort(-np.bincount(train.item, minlength=train.num_items), kind="stable")[:SHOWN]
    weight = factors.items[popular]
    order = np.argsort(-factors.items.mean(axis=0))
    labels = [str(label) for label in model.item_ids_[popular]]

    def draw(theme: Theme) -> Any:
        figure, axes = new_figure(1, 2, width=8.6, height=4.6)
        for axis, values, title in (
            (axes[0, 0], weight, "posterior mean"),
            (axes[0, 1], factors.items_std[popular], "posterior sd"),
        ):
            picture = axis.imshow(values[:, order], aspect="auto", cmap="viridis")
            axis.set_title(title)
            axis.set_xlabel("factor")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.set_yticks(range(len(labels)), labels, fontsize=6)
            figure.colorbar(picture, ax=axis, shrink=0.8)
        axes[0, 0].set_ylabel("item")
        return figure

    see = f"Factors of the {len(popular)} items with the most ratings: how much of each, and how sure the posterior is of it."
    return Section("Factors", see, save_picture(folder / "factors", draw))
