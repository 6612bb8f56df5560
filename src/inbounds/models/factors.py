"""Non-negative factors of a table of ratings, as an ordinary `Posterior`.

The statement of the model, shared by the estimator in `nmf.py` and by the paper's experiment: which variables there are,
their priors, the likelihood of a rating, and a diagonal preconditioner that knows how many ratings each row has and how strong each factor is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from inbounds import transforms as tf
from inbounds.data.ratings import Ratings
from inbounds.engine import here, normal
from inbounds.posterior import Posterior
from inbounds.trees import PyTree

__all__ = ["CENTRE", "INTERACTION", "LIKELIHOODS", "FactorModel", "levels_of", "typical_mean"]

LIKELIHOODS = ("poisson", "gaussian", "binomial")
CENTRE = 3.0  # prior mean of a factor in units of its sd, in the model with offsets
# Prior sd of an offset, in units of the ratings' sd. The coupling makes offsets too, of the factors, and those are better where ratings say
# much; of what a Poisson lets them say the prior of the coupling would leave too little.
OFFSET_SD = {"gaussian": 0.1, "binomial": 0.1, "poisson": 0.5}
INTERACTION = (
    0.15  # share of the ratings' variance that the prior gives to the pairs of factors, in the model with offsets
)
# What one sd of a row's first factor takes from its ratings under the prior, in units of their sd: where nothing is known of it, and at least.
LEVEL, LEAST_LEVEL = 0.3, 0.1
FADING = 0.3  # prior strength of the other factors falls as this power of their number
WEAKEST = (
    0.5  # least square of a factor's coupling, in units of the prior's mean one, for the sizes of its steps and noise
)
PRECISION = 1.5  # where the Gaussian precision starts, in units of the ratings' variance


@dataclass(frozen=True)
class FactorModel:
    r"""Ratings explained by non-negative factors $W$ of users and $H$ of items.

    Without offsets the factors add up, as in the paper:

    $$x_{ui} = \textstyle\sum_r W_{ur} H_{ir}, \qquad W_{ur}, H_{ir} \sim \mathrm{Exp}(\lambda)$$

    and $x$ is the mean rating ("poisson", "gaussian") or the odds of each of its stars ("binomial"). The default rate
    $\lambda$ makes the prior mean of $x$ that of the ratings.

    With offsets it is a generalised linear model in its canonical link, and factors count from their prior mean $c = 3$:

    $$\eta_{ui} = a_u + b_i + \tilde W_u^\top C \tilde H_i, \quad \tilde W_u = (1, W_u - c), \quad \tilde H_i = (1, H_i - c)$$

    $$W_{ur}, H_{ir} \sim N(c, 1) \text{ truncated to } (0, \infty), \quad a_u, b_i \sim N(0, d^2), \quad
      C \sim N(\bar C, \kappa^2 / R)$$

    in units of the ratings' standard deviation $s$, with $d = 0.1$ (0.5 for "poisson") and $\kappa^2 = 0.15 / R$: the mean rating is
    $m + s \eta$ ("gaussian"), $m e^{s \eta / m}$ ("poisson"), or the maximum times $\sigma(\mathrm{logit}(m / \max) + g \eta)$
    ("binomial", $g$ such that the slope at 0 is $s$). Counting from the mean takes the direction in which all factors grow
    together out of the curvature: that direction is $R$ times stiffer than the others, and it is what holds the step size
    of plain NMF down. Factors are white under their prior, and the coupling $C$ says how strong they are, how they mix and
    where they lie: with it the model has the freedom of a normal prior with sampled mean and covariance (Salakhutdinov and
    Mnih 2008), for $(R + 1)^2$ numbers that all the ratings inform. Its prior mean $\bar C$ makes the first factor of a row its level (the
    larger, the lower it is rated: the long tail of bad films lies where factors have room) and couples the others in pairs.

    Args:
        num_users, num_items, rank: sizes of $W$ (users, rank) and $H$ (items, rank).
        likelihood: "poisson", "gaussian" (with a precision that is sampled too) or "binomial" (stars out of the maximum).
        offsets: the second form above.
        mean, spread, maximum: of the ratings: $m$, $s$, and the largest. In the second form $m$ is what a typical user gives to a
            typical item: the mean of the ratings is that of the popular items, which are better.
        prior_rate: $\lambda$, in the first form.
        levels: how far the levels of users and of items lie apart, in the second form: the sds of what is common to the ratings of one of
            them, in units of $s$.

    Example:
        >>> ratings = ib.data.generate_ratings(50, 20, 400)
        >>> ib.models.FactorModel.of(ratings, rank=3, likelihood="gaussian", offsets=True).rank
        3
    """

    num_users: int
    num_items: int
    rank: int
    likelihood: str = "poisson"
    offsets: bool = False
    mean: float = 1.0
    spread: float = 1.0
    maximum: float = 1.0
    prior_rate: float = 1.0
    levels: tuple[float, float] = (LEVEL, LEVEL)

    @classmethod
    def of(
        cls,
        ratings: Ratings,
        rank: int,
        likelihood: str = "poisson",
        offsets: bool = False,
        prior_rate: float | None = None,
    ) -> FactorModel:
        """The model for these ratings; `prior_rate=None` matches their mean.

        Args:
            ratings: what is to be factorised.
            rank: number of factors per user and item.
            likelihood: "poisson", "binomial" or "gaussian".
            offsets: whether users and items have offsets of their own.
            prior_rate: of the factors' priors; None: what makes the expected rating the mean of the ratings.

        Returns:
            The model.

        Raises:
            ValueError: the likelihood is unknown, or has nothing to explain.
        """
        if likelihood not in LIKELIHOODS:
            raise ValueError(f"Unknown likelihood {likelihood!r}. Known: {', '.join(LIKELIHOODS)}.")
        mean = float(ratings.rating.mean(dtype=np.float64))
        spread = float(ratings.rating.std(dtype=np.float64))
        maximum = float(ratings.rating.max())
        if mean <= 0:
            raise ValueError("Every rating is zero: there is nothing to factorise.")
        if likelihood == "binomial" and mean >= maximum:
            raise ValueError("Every rating is the maximum: a binomial has nothing to explain.")
        expected = mean / (maximum - mean) if likelihood == "binomial" else mean
        rate = math.sqrt(rank / expected) if prior_rate is None else float(prior_rate)
        # Ratings that are all alike have no unit of their own; any will do.
        sizes = (ratings.num_users, ratings.num_items, rank)
        if not offsets:
            return cls(*sizes, likelihood, offsets, mean, spread or 1.0, maximum, rate)
        levels = levels_of(ratings)
        typical = min(max(typical_mean(ratings, levels), 0.01 * mean), mean + 0.99 * (maximum - mean))
        return cls(*sizes, likelihood, offsets, typical, spread or 1.0, maximum, rate, levels)

    # -- the mean of a rating --------------------------------------------------------------------------------------

    def predictor(self, theta: PyTree, user: jax.Array, item: jax.Array) -> jax.Array:
        """$x$, or $\\eta$ with offsets, of each pair.

        Args:
            theta: one draw.
            user, item: indices of equal length.

        Returns:
            One number per pair.
        """
        if not self.offsets:
            return here().row_sums(here().table(theta["W"])[user] * here().table(theta["H"])[item])
        # C H of every item first, so that a rating costs no more than without C.
        h = theta["H"] - CENTRE
        coupled = jnp.matmul(h, theta["coupling"][:, 1:].T, precision="highest") + theta["coupling"][:, 0]
        level = theta["item_offset"] + coupled[:, 0]
        interaction = here().row_sums((here().table(theta["W"])[user] - CENTRE) * coupled[:, 1:][item])
        result: jax.Array = theta["user_offset"][user] + level[item] + interaction
        return result

    def expected(self, predictor: jax.Array) -> jax.Array:
        """The mean rating, given `predictor`.

        Args:
            predictor: what `predictor` returns.

        Returns:
            Means of the same shape.
        """
        if self.offsets:
            if self.likelihood == "gaussian":
                return self.mean + self.spread * predictor
            if self.likelihood == "poisson":
                return self.mean * jnp.exp(self.spread / self.mean * predictor)
            return self.maximum * jax.nn.sigmoid(self._log_odds(predictor))
        if self.likelihood == "binomial":
            return self.maximum * predictor / (1 + predictor)
        return predictor

    def predict(self, theta: PyTree, user: jax.Array, item: jax.Array) -> jax.Array:
        """The mean rating of each pair.

        Args:
            theta: one draw.
            user, item: indices of equal length.

        Returns:
            One mean per pair.
        """
        return self.expected(self.predictor(theta, user, item))

    def log_likelihood(self, theta: PyTree, batch: PyTree) -> jax.Array:
        """log p(rating) of each row of {"user", "item", "rating"}, up to a constant.

        Ratings need not be whole: for fractions the Poisson and the binomial are quasi-likelihoods, with the same score.

        Args:
            theta: one draw.
            batch: the three columns by name.

        Returns:
            One number per row.
        """
        x, rating = self.predictor(theta, batch["user"], batch["item"]), batch["rating"]
        if self.likelihood == "gaussian":
            precision = theta["precision"]
            residual = (rating - self.expected(x)) / self.spread
            return jnp.asarray(0.5 * jnp.log(precision) - 0.5 * precision * jnp.square(residual))
        if self.offsets:
            if self.likelihood == "poisson":
                natural = self.spread / self.mean * x
                return jnp.asarray(rating * natural - self.mean * jnp.exp(natural))
            natural = self._log_odds(x)
            return jnp.asarray(rating * natural - self.maximum * jax.nn.softplus(natural))
        x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)  # the product of two tiny factors may round to zero
        normaliser = x if self.likelihood == "poisson" else self.maximum * jnp.log1p(x)
        return jnp.asarray(rating * jnp.log(x) - normaliser)

    def variance(self, expected: np.ndarray, precision: float | np.ndarray = 1.0) -> np.ndarray:
        """Variance of a rating around its mean under the likelihood.

        Args:
            expected: means of ratings.
            precision: of a Gaussian likelihood; of no other.

        Returns:
            Variances of the shape of `expected`.
        """
        if self.likelihood == "gaussian":
            return np.broadcast_to(np.asarray(self.spread**2 / precision), np.shape(expected))
        if self.likelihood == "poisson":
            return expected
        return expected * (1 - expected / self.maximum)

    @property
    def offset_sd(self) -> float:
        """Prior sd of an offset, in units of the ratings' sd."""
        return OFFSET_SD[self.likelihood]

    @property
    def _strength(self) -> float:
        return math.sqrt(INTERACTION / self.rank)

    @property
    def _slope(self) -> float:
        """d mean / d log odds at the mean rating, of the binomial."""
        return self.mean * (1 - self.mean / self.maximum)

    def _log_odds(self, predictor: jax.Array) -> jax.Array:
        return math.log(self.mean / (self.maximum - self.mean)) + self.spread / self._slope * predictor

    # -- priors ----------------------------------------------------------------------------------------------------

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every variable, by name."""
        shapes: dict[str, tuple[int, ...]] = {"W": (self.num_users, self.rank), "H": (self.num_items, self.rank)}
        if self.offsets:
            shapes |= {"user_offset": (self.num_users,), "item_offset": (self.num_items,)}
            shapes["coupling"] = (self.rank + 1, self.rank + 1)
        if self.likelihood == "gaussian":
            shapes["precision"] = ()
        return shapes

    @property
    def rows(self) -> dict[str, str]:
        """Which column of the ratings numbers the rows of which variable; the others belong to no label. For `ib.lazy_rows`."""
        columns = {"W": "user", "H": "item", "user_offset": "user", "item_offset": "item"}
        return {name: column for name, column in columns.items() if name in self.shapes}

    @property
    def supports(self) -> dict[str, constraints.Constraint]:
        """Support of every variable, by name."""
        real = ("user_offset", "item_offset", "coupling")
        return {name: constraints.real if name in real else constraints.positive for name in self.shapes}

    def log_prior(self, theta: PyTree) -> jax.Array:
        """log p(theta) of the variables, up to a constant.

        Args:
            theta: one draw.

        Returns:
            A scalar.
        """
        w, h = theta["W"], theta["H"]
        if self.offsets:
            a, b = theta["user_offset"], theta["item_offset"]
            total = -0.5 * (jnp.sum(jnp.square(w - CENTRE)) + jnp.sum(jnp.square(h - CENTRE)))
            total = total - 0.5 / self.offset_sd**2 * (jnp.sum(jnp.square(a)) + jnp.sum(jnp.square(b)))
            apart = theta["coupling"] - self.prior_mean("coupling")
            total = total - 0.5 * self.rank / self._strength**2 * jnp.sum(jnp.square(apart))
        else:
            total = -self.prior_rate * (jnp.sum(w) + jnp.sum(h))
        if self.likelihood == "gaussian":
            total = total + jnp.log(theta["precision"]) - theta["precision"]  # Gamma(2, 1)
        return total

    @property
    def typical_factor(self) -> float:
        """The prior mean of a factor."""
        return CENTRE if self.offsets else 1 / self.prior_rate

    def prior_mean(self, name: str) -> Any:
        """Of one entry of a variable: what stands in for a user or an item that was never seen. Of the whole coupling.

        Args:
            name: of the variable.

        Returns:
            A number, or the coupling's array.
        """
        if name == "coupling":
            return self._prior_coupling()
        return {"W": self.typical_factor, "H": self.typical_factor, "precision": PRECISION}.get(name, 0.0)

    def _prior_coupling(self) -> np.ndarray:
        """The first factor is the level of a row, the others meet in pairs, the strongest first.

        White factors may be turned about their mean, so that one coupling is as good as another that it can be turned into; along these
        axes a factor of a row has a curvature of its own, and a diagonal preconditioner is enough.
        """
        coupling = np.zeros((self.rank + 1, self.rank + 1), np.float32)
        pairs = np.arange(min(2, self.rank), self.rank + 1)
        strength = np.arange(1, len(pairs) + 1.0) ** -FADING
        coupling[pairs, pairs] = strength * math.sqrt(INTERACTION / np.sum(strength**2))
        if self.rank > 1:  # one factor alone is for what the offsets cannot say
            coupling[1, 0], coupling[0, 1] = (-level for level in self.levels)
        return coupling

    def start(self, key: jax.Array) -> PyTree:
        """Factors spread by a third of their prior mean, or of its sd with offsets, so that predictions start near the mean rating.

        A draw from the prior would do too, and cost hundreds of steps.

        Args:
            key: of the random numbers.

        Returns:
            A tree like theta.
        """
        # Not `jax.random`, which would compile for another second.
        return self._start({name: normal(key, self.shapes[name], stream=k) for k, name in enumerate(("W", "H"))})

    def start_from(self, seed: int) -> PyTree:
        """The same from NumPy's generator: for one chain, nothing is compiled.

        Args:
            seed: of the random numbers.

        Returns:
            A tree like theta.
        """
        random = np.random.default_rng(seed)
        return self._start({name: random.standard_normal(self.shapes[name], np.float32) for name in ("W", "H")})

    def _start(self, spread: dict[str, Any]) -> PyTree:
        start: PyTree = {name: np.full(shape, self.prior_mean(name), np.float32) for name, shape in self.shapes.items()}
        if self.offsets:
            return start | {name: start[name] + np.float32(0.3) * noise for name, noise in spread.items()}
        return start | {name: start[name] * 1.35**noise for name, noise in spread.items()}

    def posterior(self, ratings: Ratings) -> Posterior:
        """The posterior of the model, given ratings.

        Args:
            ratings: the data.

        Returns:
            The posterior, for a kernel.
        """
        return Posterior(
            log_prior=self.log_prior,
            supports=self.supports,
            log_likelihood=self.log_likelihood,
            data={"user": ratings.user, "item": ratings.item, "rating": ratings.rating},
        )

    # -- how it moves ----------------------------------------------------------------------------------------------

    def transforms(self, positive: Any = "softplus") -> dict[str, Any]:
        """A transform for each variable, `positive` for the factors.

        The precision moves on the log scale, where its curvature is half the number of ratings whatever its value; its
        upward drift is bounded there by the step size times that, so this use of exp cannot explode.

        Args:
            positive: the transform of the factors, as `Posterior` takes it.

        Returns:
            Transforms by name.
        """
        special = {"W": positive, "H": positive, "precision": "exp"}
        return {name: special.get(name, "identity") for name in self.shapes}

    def preconditioner(self, ratings: Ratings, transform: Any = "softplus", *, few_rows: bool = False) -> Any:
        r"""One over the curvature that is expected of every coordinate of the proxy: a row with many ratings is stiffer.

        $M = 1 / (f'(\varphi_0)^2 (n_u I_r + \text{prior's curvature}))$, with $n_u$ the ratings of the row, $I_r$ the information of one
        rating on the factor, and $\varphi_0$ the proxy of the prior mean. Without offsets $I$ is that at the scale of the prior, the same
        for every factor, and the scales are arrays. With offsets it is that of the coupling as it stands, and they are a
        function of theta. The scale of a variable does not depend on that variable itself.

        `few_rows` is for kernels that read few of the rows at a step (`ib.lazy_rows`), and changes nothing but the time that it takes.

        Args:
            ratings: the data.
            transform: of the factors.
            few_rows: see above.

        Returns:
            Scales by name, or a function of theta that returns them.
        """
        counts = self._counts(ratings)
        slopes = dict.fromkeys(counts, _slope_at(transform, self.typical_factor))

        def scales(theta: PyTree | None) -> dict[str, Any]:
            prior = self._prior_curvature()
            found = {
                name: 1 / (slopes.get(name, 1.0) ** 2 * (information + prior[name]))
                for name, information in self._information(counts, theta, few_rows).items()
                if name != "precision"
            }
            if self.likelihood == "gaussian":
                found["precision"] = np.float32(2 / len(ratings))  # on the log scale
            return found

        return scales if self.offsets else scales(None)

    def gradient_variance(self, ratings: Ratings, batch_size: int) -> Any:
        """Variance of the gradient of the log posterior from a minibatch, as expected: arrays, or with offsets a function of theta.

        The score of one rating has the information as its variance; a minibatch of the batch size scales a sum of its terms up
        to all the ratings. For `noise_correction`.

        Args:
            ratings: the data.
            batch_size: ratings per minibatch.

        Returns:
            What a kernel's `noise_correction` takes.
        """
        counts, per_rating = self._counts(ratings), len(ratings) / batch_size

        def variances(theta: PyTree | None) -> dict[str, Any]:
            result: dict[str, Any] = jax.tree.map(
                lambda information: per_rating * information, self._information(counts, theta)
            )
            return result

        return variances if self.offsets else variances(None)

    def _counts(self, ratings: Ratings) -> dict[str, np.ndarray]:
        """How many ratings every row of the factors has."""
        return {
            "W": np.bincount(ratings.user, minlength=self.num_users).astype(np.float32)[:, None],
            "H": np.bincount(ratings.item, minlength=self.num_items).astype(np.float32)[:, None],
        }

    def _information(
        self, counts: dict[str, np.ndarray], theta: PyTree | None, few_rows: bool = False
    ) -> dict[str, Any]:
        """What the ratings say about an entry of every variable, given the others: the expected square of the score.

        Without offsets at the scale of the prior. With them given precision and coupling, for factors that are white around their mean.
        """
        total = counts["W"].sum()
        gaussian = self.likelihood == "gaussian"
        information: dict[str, Any] = {"precision": np.float32(0.5 * total / PRECISION**2)} if gaussian else {}
        if not self.offsets:
            at_prior = np.float32(2 / self.prior_rate**2 * self._about_mean())
            return information | {name: at_prior * count for name, count in counts.items()}
        assert theta is not None
        dtype = theta["coupling"].dtype
        about_mean = theta["precision"] if gaussian else self._about_mean()
        squares, least = jnp.square(theta["coupling"]), WEAKEST * self._strength**2
        for name, of_factor, offset in (("W", squares, "user_offset"), ("H", squares.T, "item_offset")):
            # A factor that is hardly coupled would step as far as its prior is wide, and never couple again.
            about_factor = about_mean * jnp.maximum(here().row_sums(of_factor[1:]), least)
            outer = jnp.multiply if few_rows else here().outer
            count = counts[name].astype(dtype)
            information[name] = outer(count, about_factor)
            information[offset] = count[:, 0] * about_mean
        return information | {"coupling": float(total) * about_mean}

    def _about_mean(self) -> float:
        """Information of a rating on its predictor, at the mean rating."""
        if self.offsets:
            return self.spread**2 / (self.mean if self.likelihood == "poisson" else self._slope)
        if self.likelihood == "gaussian":
            return PRECISION / self.spread**2
        if self.likelihood == "poisson":
            return 1 / self.mean
        odds = self.mean / (self.maximum - self.mean)
        return self.maximum / (odds * (1 + odds) ** 2)

    def _prior_curvature(self) -> dict[str, float]:
        if not self.offsets:
            return dict.fromkeys(("W", "H"), self.prior_rate**2)
        offset = 1 / self.offset_sd**2
        return {
            "W": 1.0,
            "H": 1.0,
            "user_offset": offset,
            "item_offset": offset,
            "coupling": self.rank / self._strength**2,
        }


def levels_of(ratings: Ratings) -> tuple[float, float]:
    """How far users and items lie apart: sds of what is common to the ratings of one, in units of the ratings' sd.

    Rating = user + item + rest, all of them random: the sums of squares within users, within items and in all are expected to be
    linear in the three variances, whatever the table's holes (Gao and Owen 2017).
    """
    rating, total = ratings.rating.astype(np.float64), len(ratings)
    centred = rating - rating.mean()

    def within(codes: np.ndarray, count: int) -> tuple[float, float, int]:
        """Sum of squares within the rows, sum of the squared sizes of the rows, number of rows that have ratings."""
        sizes = np.bincount(codes, minlength=count)
        means = np.bincount(codes, centred, count) / np.maximum(sizes, 1)
        return (
            float(np.sum((centred - means[codes]) ** 2)),
            float(np.sum(sizes.astype(np.float64) ** 2)),
            int(np.count_nonzero(sizes)),
        )

    (of_users, users, user_rows), (of_items, items, item_rows) = (
        within(ratings.user, ratings.num_users),
        within(ratings.item, ratings.num_items),
    )
    whole = float(np.sum(centred**2))
    free = np.array([
        [0.0, total - user_rows, total - user_rows],
        [total - item_rows, 0.0, total - item_rows],
        [total - users / total, total - items / total, total - 1.0],
    ])  # fmt: skip
    if whole == 0 or abs(np.linalg.det(free / total)) < 1e-6:
        return LEVEL, LEVEL
    variances = np.linalg.solve(free, [of_users, of_items, whole])[:2] * total / whole
    user, item = np.sqrt(np.clip(variances, LEAST_LEVEL**2, 1.0))
    return float(user), float(item)


def typical_mean(ratings: Ratings, levels: tuple[float, float], sweeps: int = 15) -> float:
    """The rating of a user and an item of which nothing is known: the intercept beside random offsets of those `levels`.

    By turns, each in closed form: offsets shrunk to their prior, and the intercept with the items' offsets integrated out.
    """
    user_share, item_share = (level**2 for level in levels)
    rest = max(1 - user_share - item_share, 0.1)
    rating = ratings.rating.astype(np.float64)
    mean, user = rating.mean(), np.zeros(ratings.num_users)
    counts = (
        np.bincount(ratings.user, minlength=ratings.num_users),
        np.bincount(ratings.item, minlength=ratings.num_items),
    )
    user_weight, item_weight = counts[0] + rest / user_share, counts[1] + rest / item_share
    for _ in range(sweeps):
        of_item = np.bincount(ratings.item, rating - user[ratings.user], ratings.num_items)
        mean = np.sum(of_item / item_weight) / np.sum(counts[1] / item_weight)
        item = (of_item - counts[1] * mean) / item_weight
        user = np.bincount(ratings.user, rating - mean - item[ratings.item], ratings.num_users) / user_weight
    return float(mean)


def _slope_at(transform: Any, theta: float) -> float:
    """f' at the proxy of `theta`, for a transform given by name or as an object."""
    transform = tf.onto(constraints.positive, transform)
    # As one program: its operations one by one would compile for a second.
    slope = jax.jit(lambda theta: transform.derivative(transform.inv(theta)))
    return float(slope(jnp.asarray(theta, jnp.float32)))
