"""What a run is made of, once it has been chosen: everything that decides its draws, so that it can be written down and gone on with."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds import gradients, trees
from inbounds import transforms as tf
from inbounds.exact import flat, flattener
from inbounds.inference.halving import halved
from inbounds.inference.noise import RowNoise, noise_of_rows
from inbounds.inference.nuts import nuts
from inbounds.kernels import Kernel
from inbounds.metrics import Dense
from inbounds.metrics._dense import shrunk_covariance
from inbounds.posterior import Posterior
from inbounds.precision import in_double
from inbounds.sampling import Draws, sample
from inbounds.sampling.conversions import phi_of, theta_of
from inbounds.sampling.driver import Starts
from inbounds.space import Space, is_constraint, is_transform
from inbounds.trees import PyTree

__all__ = ["Setup"]

BLOCK = 256  # draws that are taken to z at once


@dataclass(frozen=True)
class Setup:
    """How a posterior is to be sampled.

    Attributes:
        posterior: what is sampled.
        transforms: one per support.
        method: "minibatch" or "full".
        metric: c and L; one that is not dense for trajectories alone.
        gradient: one of `noise.KINDS`, or "all" where every step takes all the data.
        center: theta of the control variate; None without one.
        batch_size: rows of a fine step; None where every step takes all the data.
        corrects: whether the noise of the minibatches is corrected for.
        step_size: of the coarse chain, or the first of the leapfrogs.
        acceptance: that trajectories are adapted to.
        starts: theta, leading axis = chain.
        num_chains: how many.
        noise: of a minibatch of one row, in z; None where there is none, or where it is not known.
        choices: what was chosen, and why.
        costs: what that took.
    """

    posterior: Posterior
    transforms: PyTree
    method: str
    metric: Any
    gradient: str
    center: PyTree
    batch_size: int | None
    corrects: bool
    step_size: float
    acceptance: float
    starts: PyTree
    num_chains: int
    noise: RowNoise | None = None
    choices: dict[str, str] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every step takes all the data."""
        return self.batch_size is None

    def kernel(self) -> Kernel:
        """The kernel of the run."""
        if self.method == "full":
            acceptance = np.asarray(self.acceptance, jnp.result_type(float))  # an array: another one compiles nothing
            return nuts(self.posterior, self.transforms, metric=self.metric, acceptance=acceptance)
        return halved(
            self.posterior,
            self.transforms,
            metric=self.metric,
            gradient=self._gradient(),
            noise_correction=self.corrects and not self.whole,
            whole=self.whole,
        )

    def _gradient(self) -> Any:
        if self.whole or self.gradient == "minibatch":
            return gradients.minibatch
        make = gradients.taylor if self.gradient == "taylor" else gradients.control_variate
        return make(center=self.center)

    def sample(self, num_steps: int, *, burn_in: int, seed: int, devices: Any = None, **options: Any) -> Draws:
        """`ib.sample` of its kernel."""
        rows = self.posterior.num_data
        own = self.posterior.makes_minibatches
        size = None if own or self.posterior.data is None else (rows if self.whole else 2 * self.batch_size)  # type: ignore[operator]
        usual: dict[str, Any] = {"progress": False, "on_failure": "continue", "init": Starts(self.starts)}
        return sample(
            self.kernel(),
            self.step_size,
            num_steps,
            burn_in=burn_in,
            batch_size=size,
            num_chains=self.num_chains,
            seed=seed,
            devices=devices,
            **(usual | options),
        )

    def from_here(self, draws: Draws) -> Setup:
        """The same, from the last draws of a run."""
        last = jax.tree.map(lambda leaf: np.asarray(leaf[:, -1]), draws.phi)
        theta = theta_of(draws.kernel, jax.tree.map(lambda leaf: leaf[:, None], last))
        return replace(self, starts=jax.tree.map(lambda leaf: leaf[:, 0], theta))

    def of_z(self, draws: Draws) -> np.ndarray:
        """The z of draws, in double precision, axes (chain, draw, number)."""
        return self.z_of(flat_draws(draws.phi))

    def z_of(self, phi: np.ndarray) -> np.ndarray:
        """The z of flat proxies, in double precision."""
        if isinstance(self.metric, Dense):
            return np.asarray((phi - flat(self.metric.center)) @ np.asarray(self.metric.inverse, np.float64).T)
        moved = self.posterior.compiled.of(_z_of)
        with in_double():
            found = [np.asarray(moved(self.metric, some)) for some in _in_blocks(phi.reshape(-1, phi.shape[-1]))]
        return np.concatenate(found)[: phi.size // phi.shape[-1]].reshape(phi.shape)

    def moved(self, center: np.ndarray, turned: np.ndarray) -> Setup:
        """The same moved in z', where z = center + turned z', turned once more so that the noise of minibatches is diagonal."""
        noise = None if self.noise is None else self.noise.after(turned)
        if noise is not None:
            _, rotation = np.linalg.eigh(noise.covariance)
            turned, noise = turned @ rotation, noise.after(rotation)
        factor = np.asarray(self.metric.factor, np.float64)
        _, unravel = flattener(self.metric.center)
        placed = unravel(flat(self.metric.center) + factor @ center)
        inverse = np.linalg.solve(turned, np.asarray(self.metric.inverse, np.float64))
        return replace(self, metric=Dense(placed, factor @ turned, inverse), noise=noise)

    def in_space(self, space: Space, theta: PyTree, seed: int) -> Setup:
        """The same with other transforms, in the metric that draws of theta have there; axes (chain, draw, ...)."""
        proxies = self.posterior.compiled.of_few_calls(_proxies, space)
        with in_double():
            phi = jax.tree.map(np.asarray, proxies(jax.tree.map(lambda x: np.asarray(x, np.float64), theta)))
        one = jax.tree.map(lambda leaf: leaf[0, 0], phi)
        size, _ = flattener(one)
        numbers = flat_draws(phi).reshape(-1, size)
        setup = replace(self, transforms=space.transforms, metric=Dense(one, np.eye(size), np.eye(size)), noise=None)
        values, vectors = np.linalg.eigh(np.atleast_2d(shrunk_covariance(numbers)))
        turned = vectors * np.sqrt(np.maximum(values, 1e-12 * values[-1]))
        setup = setup.moved(numbers.mean(axis=0) - flat(one), turned)
        if self.noise is None:
            return setup
        found = noise_of_rows(self.posterior, space, setup.metric, self.center, seed)[self.gradient]
        return replace(setup, noise=found).moved(np.zeros(size), np.eye(size))

    def noted(self, **choices: str) -> Setup:
        """The same with what was chosen, and why."""
        return replace(self, choices=self.choices | choices)

    def as_written(self) -> dict[str, Any]:
        """What a file holds of it: all but the posterior, and transforms by their names."""
        placed = jax.tree.leaves(self.transforms, is_leaf=is_transform)
        named = [[_name(t), np.asarray(t.scale) if isinstance(t, tf.HalfLine) else None] for t in placed]
        return {part.name: getattr(self, part.name) for part in fields(self)} | {"posterior": None, "transforms": named}

    @classmethod
    def of_written(cls, written: dict[str, Any], posterior: Posterior, space: Space) -> Setup:
        """The one that was written, of the same posterior."""
        return cls(**written | {"posterior": posterior, "transforms": _placed(space, written["transforms"])})


def _z_of(metric: Any, phis: jax.Array) -> jax.Array:
    moved: jax.Array = jax.lax.map(
        lambda phi: metric.from_proxy(trees.cut_like(metric.center, phi)), phis, batch_size=64
    )
    return moved


def _in_blocks(rows: np.ndarray) -> list[np.ndarray]:
    """Blocks of one length, so that one program does for all."""
    filled = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % BLOCK, axis=0)])
    return np.split(filled, len(filled) // BLOCK)


def _proxies(space: Space, theta: PyTree) -> PyTree:
    return jax.vmap(jax.vmap(space.unconstrain))(theta)


def _name(transform: Any) -> str:
    return str(getattr(transform, "name", transform))


def _placed(space: Space, named: list[Any]) -> PyTree:
    """The transforms that a run had: those of the space, or what took their place."""
    supports, treedef = jax.tree.flatten(space.supports, is_leaf=is_constraint)
    placed = []
    for support, now, (name, scale) in zip(supports, space.leaves(), named, strict=True):
        same = name == _name(now) and (scale is None or np.array_equal(scale, np.asarray(now.scale)))
        placed.append(now if same else tf.onto(support, name, scale=scale))
    return jax.tree.unflatten(treedef, placed)


def flat_draws(tree: PyTree) -> np.ndarray:
    """The numbers of draws in double precision, axes (chain, draw, number)."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2)


def coarse_theta(draws: Draws) -> PyTree:
    """Theta of the coarse chains of a run at two step sizes."""
    kernel = draws.kernel
    moving = kernel.moving(jax.tree.map(lambda leaf: np.asarray(leaf)[0], draws.state))
    _, unravel = flattener(moving)
    coarse = np.asarray(draws.stats["coarse"])
    leaves, treedef = jax.tree.flatten(unravel(np.arange(coarse.shape[2])))
    parts = [coarse[:, :, leaf.ravel()].reshape(*coarse.shape[:2], *leaf.shape) for leaf in leaves]
    return theta_of(kernel, phi_of(kernel, jax.tree.unflatten(treedef, parts)))
