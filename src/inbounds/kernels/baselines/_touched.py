"""SGLD for factor models that moves only the rows that a minibatch touches."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import gradients, trees
from inbounds import transforms as tf
from inbounds.kernels._base import Info, Kernel, MakeInfo, check_arguments, kernel_factory
from inbounds.kernels._temperature import Temperature
from inbounds.kernels.baselines._bounded import bounds_of
from inbounds.kernels.baselines._mirror import fold
from inbounds.posterior import Posterior
from inbounds.space import Space, is_constraint
from inbounds.trees import PyTree


class State(NamedTuple):
    theta: PyTree


@kernel_factory
def touched_rows(
    posterior: Posterior,
    rows: dict[str, str],
    batch_size: int,
    *,
    noise: str = "ahn",
    temperature: Temperature = 1.0,
) -> Kernel:
    r"""SGLD, mirrored, that leaves a row alone where no rating of it is in the minibatch (Ahn et al. 2015).

    $$\theta_i' = \left| \theta_i + \epsilon \left( \frac{1}{h_i} \nabla \log p(\theta_i) + \frac{N}{|S|} \sum_{k \in S}
      \nabla \log p(x_k \mid \theta) \right) + \sqrt{2 \epsilon T}\, s_i\, \eta \right| \quad \text{where row } i \text{ is touched}$$

    with $h_i = 1 - (1 - n_i / N)^{|S|}$ the probability of that. As published the noise has $s_i = 1$: a row then gets the
    share $h_i$ of the noise that the dynamics want, and is sampled at about that temperature. `noise="corrected"` takes
    $s_i = h_i^{-1/2}$.

    Args:
        posterior: priors and a likelihood on data in arrays; a dict of variables.
        rows: which column of the data holds the row numbers of which variable, such as `{"W": "user", "H": "item"}`. The
            other variables move at every step.
        batch_size: that `sample` will be given, on which $h$ depends.
        noise: "ahn" or "corrected".
        temperature: 1 samples the posterior, where the noise is corrected.

    Returns:
        The kernel, for `ib.sample`.

    Raises:
        ValueError: `noise` is unknown, the data have no such column, or the posterior is given by a gradient.

    Example:
        >>> table = {"user": np.array([0, 0, 1, 2, 2, 2]), "count": np.array([1, 3, 2, 0, 1, 1])}
        >>> def log_likelihood(theta, batch):
        ...     return dist.Poisson(theta["x"][batch["user"]]).log_prob(batch["count"])
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0).expand([3])}, log_likelihood, table)
        >>> kernel = ib.baselines.touched_rows(posterior, {"x": "user"}, batch_size=2, noise="corrected")
        >>> draws = ib.sample(kernel, 0.01, 150, burn_in=100, batch_size=2, progress=False)
        >>> draws.theta["x"].shape
        (1, 50, 3)
    """
    temperature = check_arguments(posterior, temperature)
    if noise not in ("ahn", "corrected"):
        raise ValueError(f'`noise` must be "ahn" or "corrected"; got {noise!r}.')
    if posterior.gradient is not None or posterior.num_data is None or posterior.log_likelihood is None:
        raise ValueError("touched_rows needs a posterior with a log likelihood and data in arrays.")
    missing = sorted(set(rows.values()) - set(posterior.data))
    if missing:
        raise ValueError(f"The data have no column {missing[0]!r}; they have {', '.join(posterior.data)}.")
    bounds = bounds_of(posterior, "touched_rows")
    identity = jax.tree.map(lambda _: tf.Identity(), posterior.supports, is_leaf=is_constraint)
    likelihood, total = posterior.log_likelihood, posterior.num_data
    counts = {name: np.bincount(np.asarray(posterior.data[column])) for name, column in rows.items()}

    def inclusion(name: str, size: int) -> jax.Array:
        """h of every row; a row without data is never touched, and its h is of no matter."""
        count = np.zeros(size)
        count[: len(counts[name])] = counts[name]
        return jnp.asarray(np.maximum(-np.expm1(batch_size * np.log1p(-count / total)), 1e-12), jnp.float32)

    def update(noise_tree: PyTree, state: State, minibatch: PyTree, step_size: jax.Array) -> tuple[State, MakeInfo]:
        theta = state.theta
        rows_in_batch = jax.tree.leaves(minibatch)[0].shape[0]
        prior = jax.grad(posterior.log_prior)(theta)
        data = jax.grad(lambda t: jnp.sum(likelihood(t, minibatch)))(theta)
        moved, drifts = {}, {}
        for name, x in theta.items():
            drift = total / rows_in_batch * data[name]
            amplitude = jnp.sqrt(2 * step_size * temperature)
            if name in rows:
                shape = (-1, *(1,) * (x.ndim - 1))
                h = inclusion(name, x.shape[0]).reshape(shape).astype(x.dtype)
                touched = jnp.zeros(x.shape[0], bool).at[minibatch[rows[name]]].set(True).reshape(shape)
                drift = jnp.where(touched, drift + prior[name] / h, 0.0)
                amplitude = jnp.where(touched, amplitude / jnp.sqrt(h) if noise == "corrected" else amplitude, 0.0)
            else:
                drift = drift + prior[name]
            drifts[name] = drift
            new = x + step_size * drift + amplitude * noise_tree[name]
            moved[name] = bounds[name].inside(fold(new, bounds[name]))

        def make_info() -> Info:
            return Info(trees.norm(drifts), jnp.full((), jnp.nan), jnp.zeros(()), trees.all_finite(moved))

        return State(moved), make_info

    return Kernel(
        name="touched_rows",
        posterior=posterior,
        space=Space(posterior.supports, identity),
        estimator=gradients.minibatch(posterior),
        temperature=temperature,
        data_version=posterior.version,
        _init=lambda theta: State(theta),
        _update=update,
        _moving=lambda state: state.theta,
        constrain=lambda theta: theta,
    )
