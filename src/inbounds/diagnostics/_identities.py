r"""Identities that the draws of a chain must satisfy: tests of convergence and of bias that need no second chain.

With $G$ the gradient of the log density of the proxy $\varphi$, at the temperature of the kernel, and $V$ the variance of its noise:

- $E[G(\varphi)] = 0$ holds in stationarity *at every step size* for `sgld`, `leimkuhler_matthews`, `baoab` and `lazy_rows` (take
  expectations of the update). Where it fails, the chain has not settled, or the gradients are wrong: no step size is to blame.
  For the other kernels, and under a preconditioner that is a function of theta, it holds for the *target* alone, so that a step
  size too large fails it as well.
- $E[-(\varphi - E \varphi) G(\varphi)] = 1$ holds for the *target* (integrate by parts). Under Euler it is
  $1 + \frac{\epsilon}{2} (E[G^2] + V)$ instead, so its excess over 1 is the bias of the step size, coordinate by coordinate.

Both are estimated from fresh minibatches at the kept draws, with standard errors from batch means. Kernels that move theta itself
are looked at through the default proxy: in theta, integration by parts would leave terms at the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from inbounds.arguments import whole_number
from inbounds.data.arrays import at_hand, source_for
from inbounds.display import html_table, text_table
from inbounds.kernels import Kernel
from inbounds.preconditioners import Conditional
from inbounds.sampling import verdict
from inbounds.sampling.convergence import convergence
from inbounds.space import Space
from inbounds.trees import PyTree, variable_name

__all__ = ["Identities", "ProxyScores", "identities", "proxy_scores", "proxy_space", "standard_error"]

COLUMNS = ("variable", "E[G] / sd (is 0)", "bias of the step size")
SHOWN = 40  # coordinates that are printed


class ProxyScores(NamedTuple):
    """Flat proxies and their minibatch gradients at thinned draws: arrays (chain, draw, coordinate), and the names."""

    phi: np.ndarray
    score: np.ndarray
    theta: PyTree
    names: list[str]


@dataclass(frozen=True)
class Identities:
    """Both identities, one number per coordinate of the proxy.

    Attributes:
        names: of the coordinates.
        drift: E[G], which should be 0, in units of the sd of G.
        drift_error: its standard error.
        virial: E[-(phi - mean) G], which is 1 without bias.
        virial_error: its standard error.
        running: E[G] over the draws so far, in standard errors of the whole run: (draw, coordinate), to plot.
        exact: whether E[G] = 0 holds at every step size, and not for the target alone.
        notes: what the chains themselves say against it: they do not agree, or have made too few effective draws.
    """

    names: list[str]
    drift: np.ndarray
    drift_error: np.ndarray
    virial: np.ndarray
    virial_error: np.ndarray
    running: np.ndarray
    exact: bool = True
    notes: tuple[str, ...] = ()

    @property
    def drift_z(self) -> np.ndarray:
        """E[G] in standard errors."""
        result: np.ndarray = self.drift / np.maximum(self.drift_error, 1e-30)
        return result

    @property
    def settled(self) -> bool:
        """Whether the chains agree, with enough effective draws to say so, and E[G] = 0 within what chance explains.

        Over all the coordinates together. Where it is not `exact`, chains that have settled fail it too when their step size is too
        large.
        """
        return not self.notes and self.has_no_drift

    @property
    def has_no_drift(self) -> bool:
        """Whether E[G] = 0 alone: chains that have not met may each have none."""
        return bool(np.max(np.abs(self.drift_z)) < 3.5 + math.sqrt(2 * math.log(len(self.names))))

    @property
    def bias(self) -> np.ndarray:
        """Relative excess of the variance that the step size causes: `virial` - 1."""
        return self.virial - 1

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, E[G] with its error, bias with its error), as text."""
        return [
            (name, f"{d:+.3f} ± {de:.3f}", f"{b:+.3f} ± {be:.3f}")
            for name, d, de, b, be in zip(
                self.names, self.drift, self.drift_error, self.bias, self.virial_error, strict=True
            )
        ]

    def __str__(self) -> str:
        found = "NOT settled: run longer, or look for a gradient that is wrong"
        if not self.exact:
            found = "NOT settled, or biased: run longer, halve the step size, or look for a gradient that is wrong"
        if self.has_no_drift:
            found = "NOT known to have settled" if self.notes else "settled"
        lines = [f"chains {found}", *self.notes, text_table([COLUMNS, *self.rows()[:SHOWN]])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        found = "settled" if self.settled else "not settled: " + " ".join(self.notes) if self.notes else "not settled"
        return html_table(COLUMNS, self.rows()[:SHOWN], f"chains {found}")


def identities(draws: Any, *, batch_size: int | None = None, most: int = 20_000, seed: int = 0) -> Identities:
    """E[G] = 0 and E[-(phi - mean) G] = 1 at the draws of a run.

    Args:
        draws: what `ib.sample` returned.
        batch_size: rows of the fresh minibatches; None takes what the posterior says, or all the data.
        most: draws looked at, evenly thinned over the run.
        seed: of the minibatches.

    Returns:
        Both identities, one number per coordinate of the proxy.

    Raises:
        ValueError: the run stored no draws.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> draws = ib.sample(ib.sgld(posterior), 0.05, 5_000, burn_in=500, num_chains=4, progress=False)
        >>> ib.diagnostics.identities(draws).names
        ['x']
    """
    found = proxy_scores(draws, batch_size=batch_size, most=most, seed=seed)
    spread = np.maximum(found.score.std(axis=(0, 1)), 1e-30)
    score = found.score / spread
    centred = found.phi - found.phi.mean(axis=(0, 1))
    drift_error = standard_error(score)
    products = -centred * found.score
    counts = np.arange(1, score.shape[1] + 1)[:, None]
    running = np.cumsum(score.mean(axis=0), axis=0) / counts / np.maximum(drift_error, 1e-30)
    return Identities(
        names=found.names,
        drift=score.mean(axis=(0, 1)),
        drift_error=drift_error,
        virial=products.mean(axis=(0, 1)),
        virial_error=standard_error(products),
        running=running,
        exact=_is_exact(draws.kernel),
        notes=_against(found),
    )


def _against(found: ProxyScores) -> tuple[str, ...]:
    """What the chains say themselves, before their gradients are asked."""
    chains, length = found.phi.shape[:2]
    if length < verdict.FEWEST_DRAWS:
        return tuple(map(str, verdict.too_short(length)))
    return tuple(map(str, verdict.chains_agree(found.names, convergence(found.phi), chains, length)))


def proxy_scores(draws: Any, *, batch_size: int | None = None, most: int = 2_000, seed: int = 0) -> ProxyScores:
    """The proxy and an unbiased estimate of the gradient of its log density, each draw on a minibatch of its own.

    The density is that of the law that the kernel samples, at its temperature; the proxy is that of `proxy_space`.
    """
    kernel, posterior = draws.kernel, draws.kernel.posterior
    if draws.phi is None:
        raise ValueError("This run stored no draws, only running statistics: leave `collect` out.")
    temperature = _temperature(kernel)
    thin = max(1, math.ceil(draws.num_chains * draws.num_draws / most))
    theta = jax.tree.map(lambda leaf: leaf[:, ::thin], draws.theta)
    space = proxy_space(kernel)
    phi = jax.tree.map(lambda leaf: leaf[:, ::thin], draws.phi) if moves_proxy(kernel) else None
    size = posterior.batch_size if batch_size is None else batch_size
    batching = "epochs" if size in (None, posterior.num_data) else "replacement"  # all the rows, once each
    source = source_for(at_hand(posterior.data, max(200_000, size or 0)), size, batching)
    key = jax.random.key(whole_number("seed", seed, 0))
    arrays = source.prepare(key)
    estimator = kernel.estimator
    center = jax.tree.map(lambda leaf: jnp.asarray(leaf).mean(axis=(0, 1)), theta)
    state = jax.jit(lambda x: estimator.init(x, False))(center)

    def one(inputs: Any) -> Any:
        number, proxy, bounded = inputs
        proxy = space.unconstrain(bounded) if proxy is None else proxy
        plan = jax.tree.map(lambda leaf: leaf[0], source.plan(key, number[None]))
        point = space.evaluation_point(proxy)
        gradient, _ = estimator.estimate(state, point, source.fetch(arrays, plan), False)
        score = ravel_pytree(space.pull_back(proxy, point, gradient.value, temperature))[0] / temperature
        return ravel_pytree(proxy)[0], score

    chains, length = jax.tree.leaves(theta)[0].shape[:2]
    flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(chains * length, *leaf.shape[2:]), (phi, theta))
    values, scores = jax.jit(lambda: jax.lax.map(one, (jnp.arange(chains * length), *flat), batch_size=64))()
    first = jax.eval_shape(space.unconstrain, jax.tree.map(lambda leaf: leaf[0, 0], theta))
    return ProxyScores(
        np.asarray(values, float).reshape(chains, length, -1),
        np.asarray(scores, float).reshape(chains, length, -1),
        theta,
        _names(first),
    )


def proxy_space(kernel: Any) -> Space:
    """The space of the proxy that moves, whatever the metric; of the default transforms, for kernels that move theta itself."""
    return kernel.space.of_proxy if moves_proxy(kernel) else Space.of(kernel.posterior.supports)


def moves_proxy(kernel: Any) -> bool:
    """Whether the kernel moves the proxy, and not theta itself."""
    return bool(kernel.constrain == kernel.space.constrain)


def standard_error(x: np.ndarray) -> np.ndarray:
    """Monte Carlo standard error of the mean of x, shape (chain, draw, ...), by batch means of sqrt(draws)."""
    chains, length = x.shape[:2]
    size = max(1, math.isqrt(length))
    count = length // size
    means = x[:, : count * size].reshape(chains, count, size, *x.shape[2:]).mean(axis=2)
    flat = means.reshape(chains * count, *x.shape[2:])
    if len(flat) < 2:
        return np.full(x.shape[2:], np.nan)
    result: np.ndarray = flat.std(axis=0, ddof=1) / math.sqrt(len(flat))
    return result


def _temperature(kernel: Kernel) -> float:
    temperature = kernel.one_temperature
    if temperature is None:
        raise ValueError(
            f"The chains of {kernel.name} had temperatures of their own, and so no law that all draws could be held against. Look at a run "
            "at one temperature."
        )
    if temperature == 0:
        raise ValueError(
            f"{kernel.name} ran at temperature=0, where the chain climbs to a mode and samples no law that its draws could be "
            "held against. Look at a run at a positive temperature."
        )
    return temperature


def _is_exact(kernel: Any) -> bool:
    return kernel.drift_averages_out and not isinstance(kernel.preconditioner, Conditional)


def _names(tree: PyTree) -> list[str]:
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = variable_name(path)
        names += [name + (f"[{', '.join(map(str, index))}]" if index else "") for index in np.ndindex(leaf.shape)]
    return names
