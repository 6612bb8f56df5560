"""Effects of groups after a run: drawn from their law given a draw of everything else, or as moments of all of them.

Given theta, groups know nothing of each other, so that the effects of any group can be had without those of the others. They are drawn by
independent proposals around the group's mode, each taken or left as Metropolis and Hastings say: with proposals as near as these, a few
dozen steps leave no trace of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.arguments import whole_number
from inbounds.engine.compiled import Compiled
from inbounds.hierarchies.layout import Bucket
from inbounds.hierarchies.marginal import Marginal, as_groups, groups_at
from inbounds.hierarchies.quadrature import expectations
from inbounds.trees import PyTree, some_draws

__all__ = ["Grouped", "Moments", "effects", "moments", "of_groups", "predict"]

STEPS = 24  # proposals for each draw
DEGREES = 5  # of freedom of Student's t, by which they are made
NUMBERS_AT_ONCE = 2**20  # rows with padding times draws
RANDOM_AT_ONCE = 2**24  # random numbers
MOMENT_DRAWS = 100


class Grouped(Protocol):
    """A posterior whose effects have been integrated out."""

    marginal: Marginal
    compiled: Compiled
    records: tuple[Bucket, ...]
    num_groups: int

    def values(self, theta: PyTree, z: jax.Array, groups: Bucket) -> dict[str, jax.Array]:
        """Effects by name, at coordinates; first axis = group."""
        ...

    def predicted(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[..., dict[str, jax.Array]], np.ndarray]:
        """What draws data for other rows, of theta, coordinates of effects and a key; and the numbers of their groups."""
        ...


class Moments(NamedTuple):
    """Means and sds of the effects of all groups, by name; first axis = group."""

    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]


def effects(draws: Any, groups: Any, *, thin: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Draws of the effects of some groups: one for each draw of a run that integrated them out.

    Args:
        draws: of `ib.infer`, or of `ib.sample` from a posterior of `integrated()`.
        groups: their numbers.
        thin: effects are drawn for one of so many draws.
        seed: another one gives other draws.

    Returns:
        By name, axes (chain, draw, group, ...): the latents of the groups, and the deterministic sites with one value per group.

    Raises:
        ValueError: no effects were integrated out, or there is no such group.

    Example:
        >>> def model(group, y):
        ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        ...     with numpyro.plate("groups", 3):
        ...         effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)
        >>> posterior = ib.from_numpyro(model, np.array([0, 0, 1, 2, 2]), np.arange(5.0)).integrated()
        >>> draws = ib.sample(ib.sgld(posterior), 0.01, 150, burn_in=100, num_chains=2, progress=False)
        >>> ib.hierarchies.effects(draws, [0, 2])["effect"].shape
        (2, 50, 2)
    """
    posterior = _posterior_of(draws)
    numbers = np.atleast_1d(np.asarray(groups))
    if numbers.dtype.kind not in "iu" or (
        numbers.size and not 0 <= numbers.min() <= numbers.max() < posterior.num_groups
    ):
        raise ValueError(f"`groups` must be numbers of groups, from 0 to {posterior.num_groups - 1:,}; got {groups!r}.")
    thetas, shape = _flat(draws.theta, thin)
    found = of_groups(posterior, thetas, numbers, seed)
    return {name: x.reshape(*shape, *x.shape[1:]) for name, x in found.items()}


def moments(draws: Any, *, most_draws: int = MOMENT_DRAWS) -> Moments:
    """Means and sds of the effects of all groups, by the same quadrature that integrated them out; they are gathered draw by draw.

    Args:
        draws: as for `effects`.
        most_draws: of theta, spread over the run, over which they are averaged.

    Returns:
        `mean` and `sd`, by name, first axis = group.

    Raises:
        ValueError: no effects were integrated out.

    Example:
        >>> def model(group, y):
        ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        ...     with numpyro.plate("groups", 3):
        ...         effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)
        >>> posterior = ib.from_numpyro(model, np.array([0, 0, 1, 2, 2]), np.arange(5.0)).integrated()
        >>> draws = ib.sample(ib.sgld(posterior), 0.01, 150, burn_in=100, num_chains=2, progress=False)
        >>> ib.hierarchies.moments(draws).mean["effect"].shape
        (3,)
    """
    posterior = _posterior_of(draws)
    thetas = some_draws(draws.theta, whole_number("most_draws", most_draws))
    look = posterior.compiled.of(_moments_of_slice, posterior)
    mean: dict[str, np.ndarray] = {}
    sd: dict[str, np.ndarray] = {}
    for bucket in posterior.records:
        for groups in _slices(bucket):
            held = np.asarray(groups.count) >= 0
            first, second = jax.tree.map(np.asarray, look(thetas, groups))
            for name, value in first.items():
                for table, found in ((mean, value), (sd, second[name])):
                    room = table.setdefault(name, np.zeros((posterior.num_groups, *value.shape[1:]), value.dtype))
                    room[np.asarray(groups.group)[held]] = found[held]
    return Moments(mean, sd)


def predict(draws: Any, *args: Any, thin: int = 1, seed: int = 0, **kwargs: Any) -> dict[str, np.ndarray]:
    """Draws of the data that the model predicts for other rows: of groups that were seen, and of new ones.

    The effects of a group that was seen are drawn from their law given its data; those of a group with a number that no group had, from
    their law given everything else, one and the same for all its rows.

    Args:
        draws: as for `effects`.
        *args, **kwargs: what the model is called with for the other rows. The observations may be None, where the model does not need their
            length. Arguments with one entry per group have those of the new groups, too, at the end.
        thin: predictions are made for one of so many draws.
        seed: another one gives other draws.

    Returns:
        By the name of each observed site, axes (chain, draw, row, ...).

    Raises:
        ValueError: no effects were integrated out.

    Example:
        >>> def model(group, y, rows):
        ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        ...     with numpyro.plate("groups", 3):
        ...         effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        ...     with numpyro.plate("rows", rows):
        ...         numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)
        >>> posterior = ib.from_numpyro(model, np.array([0, 0, 1, 2, 2]), np.arange(5.0), 5).integrated()
        >>> draws = ib.sample(ib.sgld(posterior), 0.01, 150, burn_in=100, num_chains=2, progress=False)
        >>> ib.hierarchies.predict(draws, np.array([1, 7, 7]), None, 3)["y"].shape  # of group 1, and of a new one
        (2, 50, 3)
    """
    posterior = _posterior_of(draws)
    thetas, shape = _flat(draws.theta, thin)
    run, numbers = posterior.predicted(args, kwargs)
    old = numbers[numbers < posterior.num_groups]
    z = _coordinates(posterior, thetas, old, seed) if len(old) else None
    keys = jax.random.split(jax.random.key(seed), len(jax.tree.leaves(thetas)[0]))
    found = jax.jit(lambda inputs: jax.lax.map(lambda one: run(*one), inputs))((thetas, z, keys))
    return {name: np.asarray(value).reshape(*shape, *value.shape[1:]) for name, value in found.items()}


def of_groups(posterior: Grouped, thetas: PyTree, numbers: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """`effects` at some thetas, leading axis = draw."""
    z = _coordinates(posterior, thetas, numbers, seed)
    found: dict[str, np.ndarray] = {}
    look = posterior.compiled.of(_values, posterior)
    for groups, places in _asked(posterior, numbers):
        for name, value in look(thetas, jnp.asarray(z[:, places]), groups).items():
            room = found.setdefault(name, np.zeros((len(z), len(numbers), *value.shape[2:]), value.dtype))
            room[:, places] = np.asarray(value)
    return found


def _coordinates(posterior: Grouped, thetas: PyTree, numbers: np.ndarray, seed: int) -> np.ndarray:
    """Draws of the coordinates of the effects of some groups, axes (draw, group, effect)."""
    dtype, width = jnp.result_type(float), posterior.marginal.effects
    count = len(jax.tree.leaves(thetas)[0])
    room = np.zeros((count, len(numbers), width), dtype)
    draw = posterior.compiled.of(_draw, posterior)
    for number, (groups, places) in enumerate(_asked(posterior, numbers)):
        size = min(count, max(1, RANDOM_AT_ONCE // (STEPS * len(places) * (width + DEGREES + 1))))
        for start in [*range(0, count - size, size), count - size]:  # of one length; the last one begins earlier
            some = slice(start, start + size)
            # By NumPy: a generator inside of the program takes longer to compile than all the rest.
            generator = np.random.default_rng([seed, number, start])
            normals = generator.standard_normal((size, STEPS, len(places), width + DEGREES), np.float32)
            scores = -generator.standard_exponential((size, STEPS, len(places)), np.float32)
            thetas_now = jax.tree.map(lambda leaf, s=some: leaf[s], thetas)
            room[some, places] = np.asarray(draw(thetas_now, normals.astype(dtype), scores.astype(dtype), groups))
    return room


def _asked(posterior: Grouped, numbers: np.ndarray) -> list[tuple[Bucket, np.ndarray]]:
    """(groups, which of `numbers` they are) in each bucket that has some of them."""
    found = []
    for bucket in posterior.records:
        flat = as_groups(jax.tree.map(np.asarray, bucket))
        place = np.full(posterior.num_groups, -1)
        held = flat.count >= 0
        place[flat.group[held]] = np.flatnonzero(held)
        mine = np.flatnonzero(place[numbers] >= 0)
        if len(mine):
            found.append((groups_at(flat, place[numbers[mine]]), mine))
    return found


def _draw(posterior: Grouped, thetas: PyTree, normals: jax.Array, scores: jax.Array, groups: Bucket) -> jax.Array:
    def one(inputs: tuple[PyTree, jax.Array, jax.Array]) -> jax.Array:
        return _metropolis(posterior.marginal, *inputs, groups)

    return jnp.asarray(jax.lax.map(one, (thetas, normals, scores), batch_size=_at_once(groups)))


def _metropolis(marginal: Marginal, theta: PyTree, normals: jax.Array, scores: jax.Array, groups: Bucket) -> jax.Array:
    """A draw of the effects of each group given theta.

    Args:
        marginal: of the groups.
        theta: everything else.
        normals: standard, axes (step, group, number).
        scores: logs of uniform numbers, axes (step, group).
        groups: whose effects.
    """
    center = marginal.center(theta, groups)
    count, width = center.mode.shape

    def step(
        state: tuple[jax.Array, jax.Array], random: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        (z, weight), (normal, score) = state, random
        e = normal[:, :width] * jnp.sqrt(DEGREES / jnp.sum(normal[:, width:] ** 2, axis=1))[:, None]  # Student's t
        proposed = center.mode + jnp.einsum("gij,gj->gi", center.factor, e)
        log_proposal = -(DEGREES + width) / 2 * jnp.log1p(jnp.sum(e**2, axis=1) / DEGREES)
        there = marginal.joint(theta, proposed, groups) - log_proposal
        taken = score < there - weight
        return (jnp.where(taken[:, None], proposed, z), jnp.where(taken, there, weight)), None

    begin = center.mode, jnp.full(count, -jnp.inf, center.mode.dtype)
    (z, _), _ = jax.lax.scan(step, begin, (normals, scores))
    return z


def _values(posterior: Grouped, thetas: PyTree, z: jax.Array, groups: Bucket) -> dict[str, jax.Array]:
    def one(inputs: tuple[PyTree, jax.Array]) -> dict[str, jax.Array]:
        return posterior.values(*inputs, groups)

    found: dict[str, jax.Array] = jax.lax.map(one, (thetas, z), batch_size=_at_once(groups))
    return found


def _moments_of_slice(
    posterior: Grouped, thetas: PyTree, groups: Bucket
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """(means, sds) over thetas and over the law of the effects given each."""
    marginal = posterior.marginal

    def add(total: Any, theta: PyTree) -> tuple[Any, None]:
        mean, variance = expectations(
            lambda z: marginal.joint(theta, z, groups),
            lambda z: posterior.values(theta, z, groups),
            marginal.center(theta, groups),
            max(marginal.nodes, 3),
        )
        # Around the first draw's means: squares of what is far from 0 would lose all digits.
        middle, first, second, count = total
        middle = jax.tree.map(lambda m, x: jnp.where(count == 0, x, m), middle, mean)
        away = jax.tree.map(jnp.subtract, mean, middle)
        first = jax.tree.map(jnp.add, first, away)
        second = jax.tree.map(lambda s, a, v: s + a**2 + v, second, away, variance)
        return (middle, first, second, count + 1), None

    shapes = jax.eval_shape(
        lambda t: posterior.values(t, jnp.zeros((len(groups.count), marginal.effects)), groups),
        jax.tree.map(lambda leaf: leaf[0], thetas),
    )
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (middle, first, second, count), _ = jax.lax.scan(add, (zeros, zeros, zeros, jnp.zeros(())), thetas)
    away = jax.tree.map(lambda x: x / count, first)
    sd = jax.tree.map(lambda s, a: jnp.sqrt(jnp.maximum(s / count - a**2, 0.0)), second, away)
    return jax.tree.map(jnp.add, middle, away), sd


def _slices(bucket: Bucket) -> list[Bucket]:
    """The groups of a bucket in slices of one length; the last one begins earlier."""
    flat = as_groups(jax.tree.map(np.asarray, bucket))
    total = len(flat.count)
    size = min(total, max(1, NUMBERS_AT_ONCE // _width(flat)))
    starts = [*range(0, total - size, size), total - size]
    return [groups_at(flat, np.arange(start, start + size)) for start in starts]


def _at_once(groups: Bucket) -> int:
    return max(1, NUMBERS_AT_ONCE // (len(groups.count) * _width(groups)))


def _width(groups: Bucket) -> int:
    return max((leaf.shape[1] for leaf in groups.rows.values()), default=1)


def _flat(theta: PyTree, thin: int = 1) -> tuple[PyTree, tuple[int, int]]:
    """Draws with one axis for chains and draws; and how many of each there are."""
    every = whole_number("thin", thin)
    theta = jax.tree.map(lambda leaf: np.asarray(leaf)[:, ::every], theta)
    shape = np.shape(jax.tree.leaves(theta)[0])[:2]
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), theta), (shape[0], shape[1])


def _posterior_of(draws: Any) -> Any:
    posterior = draws.posterior
    if not isinstance(getattr(posterior, "marginal", None), Marginal):
        raise ValueError(
            "These draws are of a posterior whose effects were not integrated out: what `ib.infer` sampled of the groups is in "
            "`draws.variables()`."
        )
    if isinstance(draws.theta, Mapping) and not draws.theta:
        raise ValueError("There are no draws.")
    return posterior
