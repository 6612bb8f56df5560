r"""How much do the moments move when the step halves? The bias of a kernel on a posterior whose law nobody knows.

A method of order $p$ has moments $m(\epsilon) = m + C \epsilon^p + \dots$, so two runs, at $\epsilon$ and at $\epsilon / 2$, give its
bias at the first: $\frac{2^p}{2^p - 1} (m(\epsilon) - m(\epsilon / 2))$ (Richardson). Both runs cover the same time, so the second has
twice the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inbounds.diagnostics._identities import standard_error
from inbounds.display import html_table, text_table
from inbounds.kernels._base import Kernel
from inbounds.sampling import sample

__all__ = ["StepBias", "bias_of"]

COLUMNS = ("variable", "bias of the mean / sd", "relative bias of the sd")
SHOWN = 40  # coordinates that are printed


@dataclass(frozen=True)
class StepBias:
    """Estimated bias at `step_size`, one number per coordinate of theta.

    Attributes:
        names: of the coordinates.
        step_size: the larger of the two.
        mean: bias of the posterior mean, in posterior standard deviations.
        mean_error: its Monte Carlo standard error.
        sd: relative bias of the posterior standard deviation.
        sd_error: its Monte Carlo standard error.
        draws: of the run at half the step size, the better of the two.
    """

    names: list[str]
    step_size: float
    mean: np.ndarray
    mean_error: np.ndarray
    sd: np.ndarray
    sd_error: np.ndarray
    draws: Any

    @property
    def worst(self) -> float:
        """The largest bias that is more than twice its standard error; 0 where there is none, NaN where errors are unknown."""
        biases = np.abs(np.concatenate([self.mean, self.sd]))
        errors = np.concatenate([self.mean_error, self.sd_error])
        found = np.where(biases > 2 * errors, biases, 0.0)
        return float(np.max(np.where(np.isnan(errors), np.nan, found)))  # too few draws say nothing, not "no bias"

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, bias of the mean, bias of the sd), as text."""
        return [
            (name, f"{m:+.3f} ± {me:.3f}", f"{s:+.3f} ± {se:.3f}")
            for name, m, me, s, se in zip(self.names, self.mean, self.mean_error, self.sd, self.sd_error, strict=True)
        ]

    def __str__(self) -> str:
        return f"{self._title}\n{text_table([COLUMNS, *self.rows()[:SHOWN]])}"

    def _repr_html_(self) -> str:
        return html_table(COLUMNS, self.rows()[:SHOWN], self._title)

    @property
    def _title(self) -> str:
        return f"bias at step size {self.step_size:.3g}, by halving it"


def bias_of(
    kernel: Kernel,
    step_size: float,
    num_steps: int,
    *,
    burn_in: int | None = None,
    thin: int = 1,
    batch_size: int | None = None,
    num_chains: int = 8,
    order: float = 1.0,
    init: Any = None,
    seed: int = 0,
    progress: bool = False,
) -> StepBias:
    """Run at `step_size` and at half of it, and extrapolate.

    Args:
        kernel: how the chains move.
        step_size: a number.
        num_steps: steps at `step_size`, burn-in included; the other run has twice as many.
        burn_in: None: a tenth of the steps.
        thin, batch_size, num_chains, init, seed, progress: as for `ib.sample`.
        order: of the method in the step size: 1 for `sgld` and wherever gradient noise is not corrected for, 2 for
            `leimkuhler_matthews` with exact gradients or noise correction.

    Returns:
        The bias of each mean and sd, with its Monte Carlo error.

    Raises:
        ValueError: the step size or the order is not a positive number.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> bias = ib.diagnostics.bias_of(ib.sgld(posterior), 0.2, 2_000, num_chains=4)
        >>> bias.names, bias.mean.shape
        (['x'], (1,))
    """
    if not np.ndim(step_size) == 0 or callable(step_size) or not step_size > 0:
        raise ValueError(f"`step_size` must be one positive number; got {step_size!r}.")
    if not order > 0:
        raise ValueError(f"`order` must be positive; got {order}.")
    burn_in = num_steps // 10 if burn_in is None else burn_in
    options = {"batch_size": batch_size, "num_chains": num_chains, "init": init, "progress": progress}
    whole = sample(kernel, step_size, num_steps, burn_in=burn_in, thin=thin, seed=seed, **options)
    half = sample(kernel, step_size / 2, 2 * num_steps, burn_in=2 * burn_in, thin=2 * thin, seed=seed + 1, **options)
    names, first = _coordinates(whole)
    _, second = _coordinates(half)
    factor = 2**order / (2**order - 1)
    sd = np.maximum(second.std(axis=(0, 1)), 1e-30)
    mean, mean_error = _difference(first, second)
    square, square_error = _difference(*(np.square(x - x.mean(axis=(0, 1))) for x in (first, second)))
    return StepBias(
        names=names,
        step_size=float(step_size),
        mean=factor * mean / sd,
        mean_error=factor * mean_error / sd,
        sd=factor * square / (2 * sd**2),
        sd_error=factor * square_error / (2 * sd**2),
        draws=half,
    )


def _difference(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    difference = first.mean(axis=(0, 1)) - second.mean(axis=(0, 1))
    return difference, np.hypot(standard_error(first), standard_error(second))


def _coordinates(draws: Any) -> tuple[list[str], np.ndarray]:
    """Names, and draws as (chain, draw, coordinate) in double precision."""
    names, columns = [], []
    for name, x in draws.variables().items():
        for index in np.ndindex(x.shape[2:]):
            names.append(name + (f"[{', '.join(map(str, index))}]" if index else ""))
            columns.append(np.asarray(x[(slice(None), slice(None), *index)], float))
    return names, np.stack(columns, axis=-1)
