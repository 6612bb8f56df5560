r"""How well a model predicts rows that it has not seen, from its draws: leave-one-out by importance sampling.

The density of a row given all the others is $p(y_i \mid y_{-i}) = 1 / E[1 / p(y_i \mid \theta)]$ over the posterior. The largest of the
weights $1 / p(y_i \mid \theta_s)$ are replaced by quantiles of a generalised Pareto distribution that is fitted to them, whose shape k says
whether the average can be trusted:

- Vehtari, Gelman and Gabry, "Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC" (2017);
- Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling" (2024);
- Zhang and Stephens, "A new and efficient estimation method for the generalized Pareto distribution" (2009).
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from inbounds.data.arrays import is_source, is_stream
from inbounds.display import escape
from inbounds.sampling.by_rows import ByRows
from inbounds.sampling.convergence import ess_of_means
from inbounds.sampling.verdict import Note, UntrustworthyWarning

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["LeaveOneOut", "leave_one_out", "pareto_fit", "smoothed"]

FEWEST_DRAWS = 25  # of which the largest fifth has a shape
LARGEST_GOOD_K = 0.7
PRIOR_SHAPE, PRIOR_ROWS = 0.5, 10  # of k: its prior mean, and how many values of a tail it counts as
BLOCK_NUMBERS = 2**20  # that are looked at together: their copies stay in the cache of the processor, or near it
NUMBERS_OF_A_VARIABLE = 1_000  # of which the effective sample size is taken


@dataclass(frozen=True)
class LeaveOneOut:
    """The expected log predictive density of rows that the model has not seen.

    Attributes:
        elpd: the sum of `elpd_i`, an estimate of the expected log density of as many new rows.
        se: its standard error, from how the rows differ.
        p_loo: the effective number of parameters: log density of the rows with themselves in the data, less `elpd`.
        elpd_i: log density of each row given all the others.
        pareto_k: of each row: up to `good_k` its density can be trusted.
        good_k: min(1 - 1 / log10(draws), 0.7).
        num_draws: of all the chains.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=200).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> draws = ib.sample(ib.leimkuhler_matthews(posterior), 0.01, 2_000, burn_in=200, num_chains=4, progress=False)
        >>> draws.loo(progress=False).pareto_k.shape
        (200,)
    """

    elpd: float
    se: float
    p_loo: float
    elpd_i: np.ndarray = field(repr=False)
    pareto_k: np.ndarray = field(repr=False)
    good_k: float
    num_draws: int

    @property
    def bad(self) -> np.ndarray:
        """The numbers of the rows whose k is too large, the worst first."""
        rows = np.flatnonzero(self.pareto_k > self.good_k)
        return rows[np.argsort(-self.pareto_k[rows], kind="stable")]

    def notes(self) -> list[Note]:
        """What a careful reader should know."""
        bad = self.bad
        if not bad.size:
            return []
        worst = ", ".join(f"{row:,} ({self.pareto_k[row]:.2f})" for row in bad[:3].tolist())
        return [
            Note(
                "pareto-k",
                f"Pareto k is above {self.good_k:.2f} in {bad.size:,} of {len(self.pareto_k):,} rows, the worst of them row {worst}: without "
                "such a row the posterior is another one, and `elpd` is not to be trusted. Look at these rows, take a likelihood with "
                "heavier tails, fit again without each of them, or draw more where there are few draws.",
            )
        ]

    def to_arviz(self) -> Any:
        """As `arviz_stats.loo(..., pointwise=True)` returns it: `arviz_stats.compare` takes it.

        Returns:
            ArviZ's `ELPDData`.

        Raises:
            ImportError: `arviz_stats` is not installed.
        """
        try:
            utils = importlib.import_module("arviz_stats.utils")
            array = importlib.import_module("xarray").DataArray
        except ImportError as error:
            raise ImportError('arviz_stats is not installed: pip install "inbounds[arviz]"') from error
        # ArviZ has a class for each kind of estimate, and before it had one that is told the kind.
        elpd_data = getattr(utils, "ELPDDataLOO", None) or partial(utils.ELPDData, kind="loo")
        return elpd_data(
            elpd=self.elpd,
            se=self.se,
            p=self.p_loo,
            n_samples=self.num_draws,
            n_data_points=len(self.elpd_i),
            scale="log",
            warning=bool(self.bad.size),
            good_k=self.good_k,
            elpd_i=array(self.elpd_i, dims=["row"]),
            pareto_k=array(self.pareto_k, dims=["row"]),
        )

    def __str__(self) -> str:
        notes = [f"note: {note}" for note in self.notes()]
        all_good = f"Pareto k is at most {self.good_k:.2f} in all the rows: their densities can be trusted."
        return "\n".join(
            [
                f"elpd   {self.elpd:.1f}, standard error {self.se:.1f}: the log density of {len(self.elpd_i):,} rows, each "
                f"predicted from all the others ({self.num_draws:,} draws).",
                f"p_loo  {self.p_loo:.1f}: the effective number of parameters.",
                *(notes or [all_good]),
            ]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())


def leave_one_out(draws: Draws, batch_rows: int | None, progress: bool) -> LeaveOneOut:
    """`Draws.loo`."""
    posterior = draws.posterior
    likelihood, data = posterior.log_likelihood, posterior.data
    if likelihood is None or data is None or (is_source(data) and not is_stream(data)):
        raise ValueError(
            "The log likelihood of each row is not known: the posterior has no `log_likelihood` with `data` in arrays or on disk. Leaving "
            "one out needs both."
        )
    draws.check_data()
    data = data if is_stream(data) else jax.tree.map(np.asarray, data)
    table = ByRows(likelihood, draws.theta, data, batch_rows, 0, "log_likelihood")
    if table.num_draws < FEWEST_DRAWS:
        raise ValueError(f"Leaving one out takes at least {FEWEST_DRAWS} draws; got {table.num_draws}. Run longer.")
    efficiency = _relative_efficiency(draws)
    elpd, shape, inside = (np.empty(table.num_rows) for _ in range(3))
    for rows, terms in table.slices(progress, "leave one out"):
        at_once = max(1, BLOCK_NUMBERS // table.num_draws)
        for first in range(0, len(terms), at_once):
            log_density = np.asarray(terms[first : first + at_once], np.float64)
            some = slice(rows.start + first, rows.start + first + len(log_density))
            _check_finite(log_density, some.start)
            log_weights, shape[some] = smoothed(-log_density, efficiency)
            elpd[some] = _log_sum_exp(log_weights + log_density)
            inside[some] = _log_sum_exp(log_density) - np.log(table.num_draws)
    result = LeaveOneOut(
        elpd=float(elpd.sum()),
        se=float(np.sqrt(len(elpd) * elpd.var())),
        p_loo=float((inside - elpd).sum()),
        elpd_i=elpd,
        pareto_k=shape,
        good_k=float(min(1 - 1 / np.log10(table.num_draws), LARGEST_GOOD_K)),
        num_draws=table.num_draws,
    )
    for note in result.notes():
        warnings.warn(str(note), UntrustworthyWarning, stacklevel=3)
    return result


def smoothed(log_ratios: np.ndarray, efficiency: float) -> tuple[np.ndarray, np.ndarray]:
    """Log weights with smoothed tails, which sum to one in each row, and the Pareto k of each row.

    Args:
        log_ratios: of the importance weights, axes (row, draw).
        efficiency: effective draws per draw: the fewer there are, the longer is the tail that is fitted.
    """
    count = log_ratios.shape[1]
    length = int(3 * np.sqrt(count / efficiency)) if count * efficiency > 225 else count // 5
    length = min(max(length, 5), count - 1)
    weights = log_ratios - log_ratios.max(axis=1, keepdims=True)
    order = np.argpartition(weights, count - length - 1, axis=1)
    cutoff = np.exp(np.take_along_axis(weights, order[:, count - length - 1 : count - length], axis=1))
    places = order[:, count - length :]
    tail = np.take_along_axis(weights, places, axis=1)
    in_order = np.argsort(tail, axis=1)
    places, tail = np.take_along_axis(places, in_order, axis=1), np.take_along_axis(tail, in_order, axis=1)
    shape = np.full(len(weights), np.inf)
    # Weights that are all the same need no smoothing; a tail of one value that others lie below has no shape.
    shape[np.ptp(weights, axis=1) == 0] = -np.inf
    varies = np.flatnonzero(tail[:, -1] - tail[:, 0] >= np.finfo(float).tiny)
    fitted, scale = pareto_fit(np.exp(tail[varies]) - cutoff[varies])
    chance = (np.arange(length) + 0.5) / length
    with np.errstate(all="ignore"):
        quantiles = cutoff[varies] + scale[:, None] * _standard_quantiles(chance, fitted[:, None])
        known = np.isfinite(fitted) & (scale > 0)
        tail[varies[known]] = np.minimum(np.log(quantiles[known]), 0.0)
    shape[varies] = np.where(np.isfinite(fitted), fitted, np.inf)
    np.put_along_axis(weights, places, tail, axis=1)
    return weights - _log_sum_exp(weights)[:, None], shape


def pareto_fit(tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape k and scale of the generalised Pareto distribution of each row of values above zero, in ascending order.

    The posterior mean of b = -k / scale over a grid, by Zhang and Stephens; k is drawn towards 1/2 as by ten more values.
    """
    rows, count = tail.shape
    grid = 30 + int(np.sqrt(count))
    at_once = max(1, BLOCK_NUMBERS // (grid * count))
    parts = [_fit_block(tail[i : i + at_once], grid) for i in range(0, rows, at_once)]
    if not parts:
        return np.empty(0), np.empty(0)
    shape, scale = (np.concatenate(values) for values in zip(*parts, strict=True))
    return shape, scale


def _fit_block(tail: np.ndarray, grid: int) -> tuple[np.ndarray, np.ndarray]:
    count = tail.shape[1]
    quarter = tail[:, int(count / 4 + 0.5) - 1, None]
    with np.errstate(all="ignore"):  # a quarter of the tail at its beginning: no shape
        b = (1 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (3 * quarter) + 1 / tail[:, -1:]
        k = np.mean(np.log1p(-b[:, :, None] * tail[:, None, :]), axis=2)
        likelihood = count * (np.log(-b / k) - k - 1)
        weight = np.exp(likelihood - _log_sum_exp(likelihood)[:, None])
        weight[weight < 10 * np.finfo(float).eps] = 0.0
        mean = np.sum(b * weight, axis=1) / weight.sum(axis=1)
        shape = np.mean(np.log1p(-mean[:, None] * tail), axis=1)
        scale = -shape / mean
    return (count * shape + PRIOR_ROWS * PRIOR_SHAPE) / (count + PRIOR_ROWS), scale


def _standard_quantiles(chance: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Of a generalised Pareto distribution of scale 1."""
    log_beyond = np.log1p(-chance)
    safe = np.where(shape == 0, 1.0, shape)
    result: np.ndarray = np.where(shape == 0, -log_beyond, np.expm1(-safe * log_beyond) / safe)
    return result


def _log_sum_exp(x: np.ndarray) -> np.ndarray:
    """Of each row, all of whose numbers are finite."""
    largest = x.max(axis=1)
    return np.asarray(largest + np.log(np.exp(x - largest[:, None]).sum(axis=1)))


def _relative_efficiency(draws: Draws) -> float:
    """Effective draws per draw, the mean over all the numbers."""
    found = []
    for x in draws.variables().values():
        numbers = int(np.prod(x.shape[2:], dtype=int))
        places = np.unique(np.linspace(0, numbers - 1, min(NUMBERS_OF_A_VARIABLE, numbers)).astype(int))
        flat = np.asarray(x).reshape(*x.shape[:2], numbers)
        found.append(ess_of_means(flat[:, :, places]))
    efficiency = np.concatenate(found) / (draws.num_chains * draws.num_draws)
    known = efficiency[np.isfinite(efficiency)]
    return float(known.mean()) if known.size else 1.0


def _check_finite(log_density: np.ndarray, first: int) -> None:
    bad = np.flatnonzero(~np.isfinite(log_density).all(axis=1))
    if bad.size:
        raise ValueError(
            f"`log_likelihood` is not finite at {bad.size:,} of the rows from {first:,} to {first + len(log_density) - 1:,}, the first of "
            f"them row {first + bad[0]:,}: a row without a density cannot be predicted from the others. Look at that row: a value outside "
            "the support of the likelihood, or one that is missing."
        )
