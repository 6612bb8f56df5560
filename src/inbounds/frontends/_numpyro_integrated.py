"""The posterior of a NumPyro model without the effects of its groups, which are integrated out."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.arguments import whole_number
from inbounds.frontends._numpyro_groups import CutModel, NoGroups, cut_of, effects_beside
from inbounds.frontends._numpyro_model import CalledModel, PlateLayout
from inbounds.frontends.numpyro import NumPyroPosterior
from inbounds.hierarchies.afterwards import of_groups
from inbounds.hierarchies.layout import Bucket
from inbounds.hierarchies.marginal import Marginal, rows_per_record
from inbounds.posterior import Posterior
from inbounds.trees import PyTree

__all__ = ["IntegratedPosterior", "integrated"]

FEW_EFFECTS, FEW_ROWS = 256, 5_000  # up to which effects are drawn with every draw


class IntegratedPosterior(NumPyroPosterior):
    """The posterior of what is no effect of a group: a row of its data is a record of groups. Made by `NumPyroPosterior.integrated`.

    Args:
        cut: the model cut into groups.
        supports: of all that is no effect.
        nodes: of the quadrature, per effect.
    """

    def __init__(self, cut: CutModel, supports: dict[str, Any], nodes: int | None = None):
        self.model, self.called, self.cut, self.slices = cut.called.model, cut.called, cut, None
        self.layout = PlateLayout((), shared=True)
        self._names, self.of_minibatches = set(), frozenset()
        self.marginal = Marginal(cut.joint, cut.width, nodes)
        self.records, self.num_groups = cut.records, cut.shape.size
        self.data_per_row = rows_per_record(cut.records)
        Posterior.__init__(
            self, supports=supports, log_prior=self._outside, log_likelihood=self.marginal.terms, data=cut.records
        )

    def log_density(self, theta: PyTree, rows: Any = None) -> jax.Array:
        return Posterior.log_density(self, theta, rows)

    def deterministics(self, theta: PyTree) -> dict[str, jax.Array]:
        """The deterministic sites that depend neither on effects nor on rows."""
        found = self._look_at_one(theta, jnp.zeros((1, self.cut.width))).deterministics
        return {name: value for name, value in found.items() if name in self.cut.of_theta}

    def integrated(self, nodes: int | None = None) -> IntegratedPosterior:
        return IntegratedPosterior(self.cut, self.supports, None if nodes is None else whole_number("nodes", nodes))

    def without_effects(self) -> tuple[Posterior, str | None]:
        return self, self.about_effects()

    def values(self, theta: PyTree, z: jax.Array, groups: Bucket) -> dict[str, jax.Array]:
        return self.cut.values(theta, z, groups)

    def predicted(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[..., dict[str, jax.Array]], np.ndarray]:
        return self.cut.predicted(args, kwargs)

    def draw_effects(self, thetas: PyTree) -> dict[str, np.ndarray] | None:
        rows = sum(int(np.sum(np.maximum(bucket.count, 0))) for bucket in self.records)
        if self.num_groups * self.marginal.effects > FEW_EFFECTS or rows > FEW_ROWS:
            return None
        shape = np.shape(jax.tree.leaves(thetas)[0])[:2]
        flat = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), thetas)
        found = of_groups(self, flat, np.arange(self.num_groups), 0)
        axes = {effect.name: effect.axis for effect in self.cut.effects} | self.cut.axes
        in_place = {name: np.moveaxis(x, 1, axes[name]) for name, x in found.items()}  # where the model has the groups
        return {name: x.reshape(*shape, *x.shape[1:]) for name, x in in_place.items()}

    def density_error(self, thetas: PyTree) -> float | None:
        return self.marginal.error(thetas, self.cut.records)

    def observed(self) -> dict[str, np.ndarray]:
        return {}

    def crossed_effects(self) -> int:
        return effects_beside(self.cut)

    def about_effects(self) -> str:
        """What becomes of the effects, as a sentence."""
        names, shape = ", ".join(map(repr, sorted(self.cut.names))), self.cut.shape
        how = f"{self.marginal.nodes} nodes per effect" if self.marginal.nodes > 1 else "Laplace's method"
        return (
            f"{names} of the {shape.size:,} groups of {shape.plate!r} are integrated out, {self.marginal.effects} per group, by {how}; "
            f"a row is a record of {self._groups_per_record()}."
        )

    def _groups_per_record(self) -> str:
        places = sum(bucket.count.shape[1] for bucket in self.cut.records)
        return "one group" if places == 1 else f"up to {places:,} groups"

    def _outside(self, theta: PyTree, rows: Any = None) -> jax.Array:
        rest = self._look_at_one(theta, jnp.zeros((1, self.cut.width))).rest
        return sum((jnp.sum(value) for value in rest.values()), jnp.zeros(()))

    def _look_at_one(self, theta: PyTree, z: jax.Array) -> Any:
        return self.cut.look(theta, z, self.cut.one_group)

    def _draw(self, key: jax.Array) -> PyTree:
        return self.cut.prior_draw(key)

    def _size(self) -> str:
        return f"{self.cut.shape.size:,} groups in {self.num_data:,} records"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.about_effects())}</p>{Posterior._repr_html_(self)}"


def integrated(joint: NumPyroPosterior, nodes: int | None = None) -> IntegratedPosterior | NoGroups:
    """The posterior without the effects of its groups; or why there is none.

    Args:
        joint: with them.
        nodes: of the quadrature, per effect; None: as many as suit.
    """
    found = cut_of(joint.called)
    if isinstance(found, NoGroups):
        return found
    supports = {name: support for name, support in joint.supports.items() if name not in found.names}
    return IntegratedPosterior(found, supports, None if nodes is None else whole_number("nodes", nodes))


def of_local_latents(called: CalledModel, refusal: ValueError) -> IntegratedPosterior:
    """The posterior of a model with latents in the plate of its data, which are integrated out; or the refusal, where that cannot be."""
    found = cut_of(called)
    if isinstance(found, NoGroups):
        because = f" They were not integrated out because {found.reason}." if found.reason else ""
        raise ValueError(f"{refusal}{because}") from None
    return IntegratedPosterior(found, found.supports())
