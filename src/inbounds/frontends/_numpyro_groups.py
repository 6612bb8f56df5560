"""The groups of a NumPyro model: which latents are effects of groups, which rows belong to which group, and the model on some of them.

A plate without data holds the groups, and the latents in it are their effects. Rows look them up by an argument of the model that has the
number of its group for every row; or the data of a group are in its own plate. The model is cut into groups by cutting its arguments: those
with one entry per group, those with one per row, and that argument, which is numbered anew. Whether it may be cut is tried out on all the
data: what the model says of every effect and every row must be what it says of them among all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from inbounds.frontends._numpyro_checks import same_support
from inbounds.frontends._numpyro_model import CalledModel, _Guard, _Handler, base_of, is_latent
from inbounds.frontends._numpyro_rows import close
from inbounds.hierarchies.layout import Bucket, records_of
from inbounds.hierarchies.marginal import as_groups, groups_at
from inbounds.hierarchies.standard import effect_of, is_supported
from inbounds.trees import PyTree

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

__all__ = ["CutModel", "Effect", "NoGroups", "Shape", "cut_of", "shapes_of"]

MOST_EFFECTS = 8  # per group, that are integrated out
ATTEMPTS = 5  # arguments of the length of rows, or of groups, of which one may turn out to be none
MOST_WAYS = 6  # of cutting a model that are tried
LOOKS, MOST_LOOKS = (
    2,
    6,
)  # draws of the latents at which parts are compared to the whole, of those at which that is finite
ROWS_AT_ONCE = 2**19  # in which parts are compared to the whole


class NoGroups(NamedTuple):
    """Why no effects are integrated out; None where there are no plates of latents."""

    reason: str | None


class Shape(NamedTuple):
    """How a model may be cut into groups.

    Attributes:
        plate: of the groups.
        size: how many.
        rows: plates of the rows that look groups up; none where a group's data are in its own plate.
        num_rows: how many; 0 without such plates.
        column: the argument that has the group of each row; None without such plates.
        of_groups: arguments with one entry per group.
        of_rows: arguments with one entry per row.
    """

    plate: str
    size: int
    rows: frozenset[str]
    num_rows: int
    column: str | None
    of_groups: tuple[str, ...]
    of_rows: tuple[str, ...]


class Effect(NamedTuple):
    """A latent of the groups.

    Attributes:
        name: of the site.
        first, last: its numbers among all of the group.
        shape: of the effect of one group.
        axis: of the groups in the site's value, from its end.
    """

    name: str
    first: int
    last: int
    shape: tuple[int, ...]
    axis: int


class Look(NamedTuple):
    """What a model says with some effects.

    Attributes:
        effects: values of the effects by name, first axis = group.
        densities: log densities of the coordinates of the effects by name, of their numbers together, (group,).
        groups: log densities of the sites in the plate of the groups, (group,).
        rows: log densities of the sites in the plates of rows, (row,).
        rest: log densities of all other sites.
        deterministics: values of the deterministic sites.
    """

    effects: dict[str, Any]
    densities: dict[str, Any]
    groups: dict[str, Any]
    rows: dict[str, Any]
    rest: dict[str, Any]
    deterministics: dict[str, Any]


class _Plates(_Handler):
    """Tells plates how many groups or rows there are, and notes how many they say that there are."""

    def __init__(self, fn: Callable[..., Any], widths: dict[str, int]):
        self.widths = widths
        self.sizes: dict[str, int] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate" and msg["name"] in self.widths:
            size, width = msg["args"][0], self.widths[msg["name"]]
            self.sizes[msg["name"]] = size
            msg["value"] = jnp.arange(width)
            msg["args"] = (size, width)


class _Effects(_Handler):
    """Puts effects in, by their coordinates, and notes the log densities of those."""

    def __init__(self, fn: Callable[..., Any], effects: tuple[Effect, ...], z: jax.Array, known: int | None = None):
        self.coordinates = {effect.name: (effect, z[:, effect.first : effect.last]) for effect in effects}
        self.known = known  # the groups with coordinates come first; the effects of the others are drawn
        self.densities: dict[str, jax.Array] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] in self.coordinates:
            effect, z = self.coordinates[msg["name"]]
            place = jnp.moveaxis(z.reshape(-1, *effect.shape), 0, effect.axis)
            value, self.densities[effect.name] = effect_of(msg["fn"], place)
            if self.known is not None:
                is_known = jnp.arange(value.shape[effect.axis]) < self.known
                is_known = is_known.reshape(-1, *[1] * (-1 - effect.axis))
                value = jnp.where(is_known, value, msg["fn"].sample(numpyro.prng_key()))
            msg["value"] = value


class _Hidden(_Handler):
    """Lets observed sites be drawn."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if (
            msg["type"] == "sample"
            and msg["is_observed"]
            and not isinstance(base_of(msg["fn"]), dist.Delta | dist.Unit)
        ):
            msg["is_observed"], msg["value"] = False, None


class CutModel:
    """A NumPyro model of groups, run with some effects on some groups.

    Args:
        called: the model with its arguments.
        shape: how it is cut.
        effects: the latents of the groups.
    """

    def __init__(self, called: CalledModel, shape: Shape, effects: tuple[Effect, ...]):
        self.called, self.shape, self.effects = called, shape, effects
        self.names = frozenset(effect.name for effect in effects)
        self.of_theta: frozenset[str] = frozenset()  # the deterministic sites that depend on no effect and no row,
        self.axes: dict[str, int] = {}  # and those with one value per group: which axis that is, from the end

    @property
    def width(self) -> int:
        """Effects per group."""
        return self.effects[-1].last

    @cached_property
    def records(self) -> tuple[Bucket, ...]:
        """The data by groups."""
        arrays = {name: np.asarray(x) for name, x in self.called.arrays().items()}
        index = None if self.shape.column is None else arrays[self.shape.column]
        of_groups, of_rows = (
            {name: arrays[name] for name in names} for names in (self.shape.of_groups, self.shape.of_rows)
        )
        return records_of(index, self.shape.size, of_groups, of_rows)

    @property
    def row_numbers(self) -> tuple[Bucket, ...]:
        """The same layout with the number of every row."""
        if self.shape.column is None:
            return self.records
        index = np.asarray(self.called.arrays()[self.shape.column])
        return records_of(index, self.shape.size, {}, {"row": np.arange(self.shape.num_rows)})

    def joint(self, theta: PyTree, z: jax.Array, groups: Bucket) -> jax.Array:
        """The log density of effects and rows of each group, (group,)."""
        look = self.look(theta, z, groups)
        total = sum([*look.densities.values(), *look.groups.values()], jnp.zeros(len(groups.count), z.dtype))
        if look.rows:
            of_rows = sum(look.rows.values(), jnp.zeros(())).reshape(len(groups.count), -1)
            held = jnp.arange(of_rows.shape[1]) < groups.count[:, None]
            total = total + jnp.sum(jnp.where(held, of_rows, 0.0), axis=1)
        return total

    def look(self, theta: PyTree, z: jax.Array, groups: Bucket | None) -> Look:
        """What the model says of some groups with these effects; None: of all of them, as it is called."""
        sites, densities, sizes = self._run(partial(handlers.substitute, data=theta), z, groups)
        found = Look({}, densities, {}, {}, {}, {})
        for name, site in sites.items():
            if name in self.names:
                effect = next(effect for effect in self.effects if effect.name == name)
                found.effects[name] = jnp.moveaxis(site["value"], effect.axis, 0)
                found.densities[name] = _of_axis(densities[name], self._frame(site).dim)
            elif site["type"] == "sample":
                density, frame = _density(site, sizes), self._frame(site)
                if frame is None:
                    found.rest[name] = density
                else:
                    part = found.groups if frame.name == self.shape.plate else found.rows
                    part[name] = _of_axis(density, frame.dim)
            elif site["type"] == "deterministic" and site["value"] is not None:
                found.deterministics[name] = jnp.asarray(site["value"])
        return found

    def values(self, theta: PyTree, z: jax.Array, groups: Bucket) -> dict[str, jax.Array]:
        """The effects of some groups, and the deterministic sites with one value per group, by name; first axis = group."""
        look = self.look(theta, z, groups)
        return look.effects | {n: jnp.moveaxis(look.deterministics[n], axis, 0) for n, axis in self.axes.items()}

    def predicted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], np.ndarray]:
        """What draws data for other rows, of theta, of coordinates of effects and of a key; and the numbers of the groups of those rows.

        The groups that were seen come first, with coordinates; the effects of the others are drawn from their law.
        """
        called = CalledModel(self.called.model, *jax.tree.map(_as_jax, (args, kwargs)))
        arrays = called.arrays()
        if self.shape.column is None:
            length = max(
                (arrays[name].shape[0] for name in self.shape.of_groups if name in arrays), default=self.shape.size
            )
            numbers, rows, changed = self.shape.size + np.arange(length), 0, {}
        else:
            if self.shape.column not in arrays:
                raise ValueError(
                    f"The model was called without {self.shape.column!r}, which has the group of every row."
                )
            column = np.asarray(arrays[self.shape.column])
            numbers, inverse = np.unique(column, return_inverse=True)
            rows, changed = len(column), {self.shape.column: jnp.asarray(inverse, column.dtype)}
            if len(numbers) and numbers[0] < 0:
                raise ValueError(f"{self.shape.column!r} must have numbers of groups, from 0 on; got {numbers[0]}.")
            for name in self.shape.of_groups:
                if name in arrays and len(numbers) and len(arrays[name]) <= numbers[-1]:
                    raise ValueError(
                        f"{name!r} has {len(arrays[name]):,} entries, one per group, and there is a group {numbers[-1]:,}: "
                        "give it those of the new groups, too."
                    )
                changed |= {name: arrays[name][numbers]} if name in arrays else {}
        called = called.with_arrays(changed)
        widths = {self.shape.plate: len(numbers)} | dict.fromkeys(self.shape.rows, rows)
        old = int(np.sum(numbers < self.shape.size))

        def run(theta: PyTree, z: jax.Array | None, key: jax.Array) -> dict[str, jax.Array]:
            coordinates = jnp.zeros((len(numbers), self.width)).at[:old].set(0.0 if z is None else z)
            hidden = _Hidden(_Plates(called.model, widths))
            placed = handlers.substitute(_Effects(hidden, self.effects, coordinates, old), data=theta)
            sites = called._call(handlers.trace(handlers.seed(placed, rng_seed=key)))
            drawn = {name: site["value"] for name, site in sites.items() if is_latent(site)}
            return {name: value for name, value in drawn.items() if name not in self.names and name not in theta}

        return run, numbers

    def prior_draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """The latents that are no effects, drawn from their prior."""
        sites, _, _ = self._run(partial(handlers.seed, rng_seed=key), jnp.zeros((1, self.width)), self.one_group)
        return {name: s["value"] for name, s in sites.items() if is_latent(s) and name not in self.names}

    def supports(self) -> dict[str, Any]:
        """The supports of the latents that are no effects."""

        @jax.jit
        def drawn(key: jax.Array) -> dict[str, Any]:
            sites, _, _ = self._run(partial(handlers.seed, rng_seed=key), jnp.zeros((1, self.width)), self.one_group)
            return {n: s["fn"].support for n, s in sites.items() if is_latent(s) and n not in self.names}

        first: dict[str, Any] = drawn(jax.random.key(0))
        other = drawn(jax.random.key(1))
        for name, support in first.items():
            if not same_support(support, other[name]):
                raise ValueError(
                    f"The support of {name!r} changes with another latent. Draw it on a fixed support and move it."
                )
        return first

    @cached_property
    def one_group(self) -> Bucket:
        """For what does not depend on groups."""
        bucket = self.records[0]
        return groups_at(jax.tree.map(lambda leaf: leaf[0], bucket), np.arange(1))

    def _frame(self, site: dict[str, Any]) -> Any:
        """The plate of the groups or of the rows that a site is in."""
        for frame in site["cond_indep_stack"]:
            if frame.name == self.shape.plate or frame.name in self.shape.rows:
                return frame
        return None

    def _run(
        self, latents: Callable[..., Any], z: jax.Array, groups: Bucket | None
    ) -> tuple[dict[str, Any], dict[str, jax.Array], dict[str, int]]:
        called, widths = self.called, {self.shape.plate: self.shape.size}
        widths |= dict.fromkeys(self.shape.rows, self.shape.num_rows)
        if groups is not None:
            count = len(groups.count)
            arrays = dict(groups.groups)
            if self.shape.column is not None:
                per_group = next(iter(groups.rows.values())).shape[1]
                arrays |= {name: leaf.reshape(-1, *leaf.shape[2:]) for name, leaf in groups.rows.items()}
                dtype = self.called.arrays()[self.shape.column].dtype
                arrays[self.shape.column] = jnp.repeat(jnp.arange(count, dtype=dtype), per_group)
                widths |= dict.fromkeys(self.shape.rows, count * per_group)
            called = called.with_arrays({name: jnp.asarray(array) for name, array in arrays.items()})
            widths[self.shape.plate] = count
        fed = _Plates(called.model, widths)
        placed = _Effects(_Guard(fed, set()), self.effects, z)
        sites = called._call(handlers.trace(handlers.seed(latents(placed), rng_seed=0)))
        return sites, placed.densities, fed.sizes


def _as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" else leaf


def _density(site: dict[str, Any], sizes: dict[str, int]) -> Any:
    """Log density of a site, without what NumPyro scales for plates that were told how many there are."""
    log_prob = site["fn"].log_prob(site["value"])
    if site["scale"] is None:
        return log_prob
    scale = site["scale"]
    for frame in site["cond_indep_stack"]:
        scale = scale * (frame.size / sizes.get(frame.name, frame.size))
    return scale * log_prob


def _of_axis(values: jax.Array, axis: int) -> jax.Array:
    """Summed over all axes but one, which is counted from the end."""
    return jnp.sum(values, axis=tuple(other for other in range(-values.ndim, 0) if other != axis))


# -- which shapes a model may have ----------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """What is known of a sample site without computing anything."""

    latent: bool
    frames: dict[str, tuple[int, int]]  # plate: (size, axis)
    law: Distribution
    kind: str


def _seen(called: CalledModel) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}

    def note() -> None:
        plates = _Sizes(called.model)
        sites = called._call(handlers.trace(handlers.seed(_Guard(plates, set()), rng_seed=0)))
        for name, site in sites.items():
            if site["type"] == "sample":
                frames = {f.name: (plates.sizes[f.name], f.dim) for f in site["cond_indep_stack"]}
                found[name] = _Seen(is_latent(site), frames, site["fn"], type(base_of(site["fn"])).__name__)

    jax.eval_shape(note)
    return found


class _Sizes(_Handler):
    """Notes the sizes of plates, and gives all of them all their rows."""

    def __init__(self, fn: Callable[..., Any]):
        self.sizes: dict[str, int] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            size = msg["args"][0]
            self.sizes[msg["name"]] = size
            msg["value"], msg["args"] = jnp.arange(size), (size, size)


def shapes_of(called: CalledModel) -> Iterator[tuple[Shape, tuple[Effect, ...]]] | NoGroups:
    """How a model may be cut into groups, likely ways first."""
    sites = _seen(called)
    data = {name: site for name, site in sites.items() if not site.latent and site.kind != "Delta" and site.frames}
    plates = {name: size for site in sites.values() if site.latent for name, (size, _) in site.frames.items()}
    observed = {name: size for site in data.values() for name, (size, _) in site.frames.items()}
    if not plates:
        return NoGroups(None)
    if not observed:
        return NoGroups("no observed site of the model is in a plate")
    reasons = {name: _unsuited(name, sites) for name in plates}
    suited = sorted((name for name in plates if reasons[name] is None), key=lambda name: -plates[name])
    if not suited:
        return NoGroups(next(iter(reasons.values())) or None)
    arrays = called.arrays()
    ways = [
        (shape, _effects_of(shape.plate, sites))
        for plate in suited
        for shape in _shapes(plate, plates[plate], observed, data, arrays)
    ]
    if not ways:
        return NoGroups(
            f"no argument of the model has the group of {suited[0]!r} for every row: pass it as an argument, whole numbers from 0"
        )
    return iter(ways)


def effects_beside(cut: CutModel) -> int:
    """How many effects groups of other plates have, to which rows belong as well: only one plate is integrated out."""
    ways = shapes_of(cut.called)
    assert not isinstance(ways, NoGroups)
    sizes = {shape.plate: shape.size * max(effect.last for effect in effects) for shape, effects in ways}
    return sum(size for plate, size in sizes.items() if plate != cut.shape.plate)


def _unsuited(plate: str, sites: dict[str, _Seen]) -> str | None:
    """Why the latents of a plate are not integrated out, "" where they are no effects of groups; None where they may be."""
    effects = {name: site for name, site in sites.items() if site.latent and plate in site.frames}
    if len(effects) == sum(site.latent for site in sites.values()):
        return ""  # nothing would be left
    size = next(site.frames[plate][0] for site in effects.values())
    if size < 2:
        return ""
    width = sum(int(np.prod(site.law.shape())) // size for site in effects.values())
    if width > MOST_EFFECTS:
        return (
            f"the plate {plate!r} has {width} effects per group, and up to {MOST_EFFECTS} are integrated out: they are "
            "sampled"
        )
    for name, site in effects.items():
        if not is_supported(site.law):
            return (
                f"{name!r} ({site.kind}) has a support in which its numbers are not free of each other: it is sampled"
            )
        if sum(1 for frame in site.frames if any(frame in s.frames for s in sites.values() if not s.latent)) > 1:
            return f"{name!r} is in two plates that hold data: it is sampled"
    return None


def _effects_of(plate: str, sites: dict[str, _Seen]) -> tuple[Effect, ...]:
    effects, first = [], 0
    for name, site in sites.items():
        if site.latent and plate in site.frames:
            shape = tuple(site.law.shape())
            axis = site.frames[plate][1] - site.law.event_dim
            rest = tuple(size for i, size in enumerate(shape) if i != len(shape) + axis)
            last = first + int(np.prod(rest))
            effects.append(Effect(name, first, last, rest, axis))
            first = last
    return tuple(effects)


def _shapes(
    plate: str, size: int, observed: dict[str, int], data: dict[str, _Seen], arrays: dict[str, Any]
) -> Iterator[Shape]:
    """By a column that says which group a row is of; then by the plate of the groups alone."""
    along = [name for name, x in arrays.items() if x.ndim and x.shape[0] == size]
    lengths = sorted({n for name, n in observed.items() if name != plate}, reverse=True)
    for length in lengths:
        rows = frozenset(name for name, n in observed.items() if n == length and name != plate)
        if any(plate in site.frames and rows & set(site.frames) for site in data.values()):
            continue
        columns = [name for name, x in arrays.items() if x.ndim and x.shape[0] == length]
        for index in (name for name in columns if _is_index(arrays[name], size)):
            others = [name for name in columns if name != index]
            if length == size:
                yield Shape(plate, size, rows, length, index, (), tuple(others))
                continue
            for of_groups in _but_one(along):
                for of_rows in _but_one(others):
                    yield Shape(plate, size, rows, length, index, of_groups, of_rows)
    if plate in observed:
        for of_groups in _but_one(along):
            yield Shape(plate, size, frozenset(), 0, None, of_groups, ())


def _but_one(names: list[str]) -> list[tuple[str, ...]]:
    """All of them; and without each, which may be no data."""
    fewer = list(combinations(names, len(names) - 1))[::-1] if 1 <= len(names) <= ATTEMPTS else []
    return [tuple(names), *fewer]


def _is_index(x: Any, size: int) -> bool:
    if x.ndim != 1 or not jnp.issubdtype(x.dtype, jnp.integer) or not len(x):
        return False
    return bool(jnp.min(x) >= 0) and bool(jnp.max(x) < size)


# -- is what it says of a group the same without the others? ----------------------------------------------------------------


def cut_of(called: CalledModel) -> CutModel | NoGroups:
    """The model cut into groups; or why it is not."""
    try:
        ways = shapes_of(called)
    except Exception as error:
        return NoGroups(f"the model does not run on all its rows at once ({_first_line(error)})")
    if isinstance(ways, NoGroups):
        return ways
    reason: str | None = None
    for shape, effects in islice(ways, MOST_WAYS):
        cut = CutModel(called, shape, effects)
        problem = adds_up(cut)
        if problem is None:
            return cut
        reason = reason or f"the model cannot be cut into the groups of the plate {shape.plate!r}: {problem}"
    return NoGroups(reason)


def adds_up(cut: CutModel) -> str | None:
    """None where the model says the same of every group, and of every row, without the others; otherwise what differs."""
    whole = jax.jit(lambda theta, z: cut.look(theta, z, None))
    part = jax.jit(cut.look)
    looks = 0
    try:
        numbered = cut.row_numbers
        for seed in range(MOST_LOOKS):
            z = np.random.default_rng(seed).normal(size=(cut.shape.size, cut.width)).astype(jnp.result_type(float))
            theta = cut.prior_draw(jax.random.key(seed))
            of_all = jax.tree.map(np.asarray, whole(theta, z))
            if not all(np.isfinite(value).all() for value in (of_all.groups | of_all.rows | of_all.rest).values()):
                continue
            for bucket, numbers in zip(cut.records, numbered, strict=True):
                groups, rows = as_groups(bucket), as_groups(numbers)
                width = rows.rows["row"].shape[1] if "row" in rows.rows else 1
                at_once = max(1, min(len(groups.count) // 2, ROWS_AT_ONCE // width))  # so that some are left out
                for start in range(0, len(groups.count), at_once):
                    places = np.minimum(np.arange(start, start + at_once), len(groups.count) - 1)
                    some = groups_at(groups, places)
                    found = jax.tree.map(np.asarray, part(theta, z[some.group], some))
                    problem = _difference(of_all, found, some, rows.rows["row"][places] if "row" in rows.rows else None)
                    if problem is not None:
                        return problem
            if not of_all.rows and not of_all.groups:
                return "no data belong to its groups"
            _sort_deterministics(cut, of_all.deterministics, found.deterministics, some.group)
            looks += 1
            if looks == LOOKS:
                break
    except Exception as error:
        return f"it does not run on fewer groups ({_first_line(error)})"
    if not looks:
        return "its log density is not finite at draws from the prior"
    return None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _sort_deterministics(cut: CutModel, whole: dict[str, Any], part: dict[str, Any], group: np.ndarray) -> None:
    """Which deterministic sites are functions of theta, and which have one value per group."""
    for name, value in part.items():
        if value.shape == whole[name].shape and close(whole[name], value, "deterministic"):
            cut.of_theta |= {name}
            continue
        for axis in range(-value.ndim, 0):
            fits = value.shape[axis] == len(group) and whole[name].shape[axis] == cut.shape.size
            if fits and close(np.take(whole[name], group, axis), value, "deterministic"):
                cut.axes[name] = axis
                break


def _difference(whole: Look, part: Look, groups: Bucket, rows: np.ndarray | None) -> str | None:
    for name, value in whole.effects.items():
        if not close(value[groups.group], part.effects[name], "effect"):
            return f"the effect {name!r} of a group changes when the other groups are left out"
    for name, value in (whole.densities | whole.groups).items():
        if not close(value[groups.group], (part.densities | part.groups)[name], "log probability"):
            return f"the log probability of {name!r} of a group changes when the other groups are left out"
    for name, value in whole.rows.items():
        assert rows is not None
        held = np.arange(rows.shape[1]) < groups.count[:, None]
        if not close(value[rows][held], part.rows[name].reshape(rows.shape)[held], "log probability"):
            return f"the log probability of {name!r} for a row changes when the rows of other groups are left out"
    for name, value in whole.rest.items():
        if name not in part.rest or not close(value, part.rest[name], "log probability"):
            return (
                f"the log probability of {name!r} depends on the groups or on the rows, but is in the plate of neither"
            )
    return None
