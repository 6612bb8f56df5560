"""What a rating model has to beat: the global mean, and one offset per user and per item.

baseline = UserItemBias.fit(train)
baseline.rmse(test)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inbounds.data.ratings import Ratings


@dataclass(frozen=True, eq=False)
class UserItemBias:
    r"""Ratings as $\mu + b_u + c_i$.

    Args:
        mean: of the training ratings.
        user, item: offsets; all zero for the global mean.

    Example:
        >>> ratings = ib.data.generate_ratings(50, 20, 400)
        >>> bias = ib.models.UserItemBias.fit(ratings)
        >>> bias.rmse(ratings) < ib.models.UserItemBias.global_mean(ratings).rmse(ratings)
        True
    """

    mean: float
    user: np.ndarray
    item: np.ndarray

    @classmethod
    def fit(
        cls, train: Ratings, user_strength: float = 5.0, item_strength: float = 3.0, sweeps: int = 15
    ) -> UserItemBias:
        r"""Least squares with $\lambda_u \sum b_u^2 + \lambda_i \sum c_i^2$, by turns, each in closed form.

        A strength is the number of ratings at which an offset is shrunk to half of its mean residual.

        Args:
            train: the ratings.
            user_strength, item_strength: how strongly offsets are shrunk; at least 0.
            sweeps: how often the two are solved for by turns.

        Returns:
            The fitted offsets.

        Raises:
            ValueError: a strength is negative, or `sweeps` is below 1.
        """
        if min(user_strength, item_strength) < 0 or sweeps < 1:
            raise ValueError(
                f"Strengths must not be negative and sweeps positive: {user_strength}, {item_strength}, {sweeps}."
            )
        mean = float(train.rating.mean(dtype=np.float64))
        centred = train.rating - mean
        user, item = np.zeros(train.num_users), np.zeros(train.num_items)
        user_weight = np.maximum(np.bincount(train.user, minlength=train.num_users) + user_strength, 1e-9)
        item_weight = np.maximum(np.bincount(train.item, minlength=train.num_items) + item_strength, 1e-9)
        for _ in range(sweeps):
            item = np.bincount(train.item, centred - user[train.user], train.num_items) / item_weight
            user = np.bincount(train.user, centred - item[train.item], train.num_users) / user_weight
        return cls(mean, user, item)

    @classmethod
    def global_mean(cls, train: Ratings) -> UserItemBias:
        """The same with no offsets.

        Args:
            train: the ratings.

        Returns:
            A model that predicts their mean.
        """
        return cls(float(train.rating.mean(dtype=np.float64)), np.zeros(train.num_users), np.zeros(train.num_items))

    def predict(self, user: np.ndarray, item: np.ndarray) -> np.ndarray:
        """The rating that is expected of each pair.

        Args:
            user, item: indices of equal length.

        Returns:
            One number per pair.
        """
        result: np.ndarray = self.mean + self.user[user] + self.item[item]
        return result

    def rmse(self, ratings: Ratings) -> float:
        """Root mean squared error of the predictions.

        Args:
            ratings: what is predicted.

        Returns:
            The error, in the unit of the ratings.
        """
        return float(np.sqrt(np.mean((ratings.rating - self.predict(ratings.user, ratings.item)) ** 2)))


__all__ = ["UserItemBias"]
