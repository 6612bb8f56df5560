"""Which rows a NumPyro model uses: those of its data plates, or, of ordinary plates, those of its arguments.

Both are looked at in numbers before a model is trusted. A model with `subsample_size` must use the rows that it is given: what it
says of a row must not change with the row's place in the minibatch. A model with an ordinary plate is cut into minibatches by
cutting its arguments, and what it says of the parts must be what it says of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from inbounds import trees
from inbounds.frontends._numpyro_model import Site, Slices, base_of

if TYPE_CHECKING:
    from inbounds.frontends.numpyro import NumPyroPosterior

__all__ = [
    "NoSlices",
    "Part",
    "adds_up",
    "candidates",
    "check_rows_used",
    "computed_from",
    "of_single_rows",
    "parts_of",
]

CLOSE = 1e-4  # two numbers are one where they differ by less than this share of the largest
COPIED = 5e-7  # and two observations, which are copied
CHUNK = 2**18  # rows of a part of the data at most, where the parts are compared to the whole
FEW_ROWS = 256  # of which values per row are kept with each draw
ATTEMPTS = 6  # arguments of row length of which each may turn out to be no data


class Part(NamedTuple):
    """What a site in a data plate says of its rows: log probabilities, observations, or a parameter."""

    values: jax.Array
    axes: dict[str, int]  # of the plates' rows, where the part has one row each


def parts_of(posterior: NumPyroPosterior, theta: Any, rows: Any) -> dict[tuple[str, str], Part]:
    """The parts of every site inside the data plates, by site and name."""
    found = {}
    for name, site in posterior.trace(theta, rows).items():
        frames = posterior.frames(site)
        if site["type"] != "sample" or not frames:
            continue
        fn, value = site["fn"], site["value"]
        scale = 1.0 if site["scale"] is None else site["scale"]
        found[name, "log probability"] = _part(scale * fn.log_prob(value), frames, 0)
        if isinstance(base_of(fn), dist.Unit):
            continue
        found[name, "observations"] = _part(value, frames, fn.event_dim)
        base = base_of(fn)
        for parameter, constraint in base.arg_constraints.items():
            events = getattr(constraint, "event_dim", 0) + fn.event_dim - base.event_dim
            if isinstance(getattr(base, parameter, None), np.ndarray | jax.Array):
                found[name, parameter] = _part(getattr(base, parameter), frames, events)
    return found


def _part(values: Any, frames: list[Any], events: int) -> Part:
    values = jnp.asarray(values)
    places = {frame.name: values.ndim + frame.dim - events for frame in frames}
    return Part(
        values,
        {f.name: places[f.name] for f in frames if places[f.name] >= 0 and values.shape[places[f.name]] == f.size},
    )


# -- plates with subsample_size: are their rows used? ------------------------------------------------------------------


def check_rows_used(posterior: NumPyroPosterior, theta: Any) -> None:
    """Raise a ValueError where what a model says of a row depends on the row's place in the minibatch, or not on the row.

    Args:
        posterior: of a model with plates that have `subsample_size`.
        theta: where to look.
    """
    plates = {plate.name: plate for plate in posterior.layout.plates if plate.size > 1}
    if not plates:
        return
    first, mixed = _two_minibatches(posterior, _width(posterior))
    look = jax.jit(lambda rows: {key: part.values for key, part in parts_of(posterior, theta, rows).items()})
    try:
        shapes = _axes(partial(parts_of, posterior, theta), first)
        looks = [jax.tree.map(np.asarray, look(rows)) for rows in (first, mixed)]
    except (ValueError, TypeError):
        if all(plate.batch_size >= plate.size for plate in posterior.layout.plates):
            return  # it runs on all the rows alone, and then it does not matter which is where
        raise
    uses = _depends_on(partial(parts_of, posterior, theta), first)
    for name in plates:
        if not any(used for key, used in uses.items() if key[1] == "log probability" and name in shapes[key]):
            _refuse_unused(posterior, name)
    for key, axes in sorted(shapes.items(), key=lambda item: item[0][1] != "observations"):  # which say most
        if key[1] in ("log probability", "observations") and not _follows(looks, key, axes, plates):
            _refuse_places(posterior, key, next(name for name in axes if name in plates))
    suspects = [key for key, axes in shapes.items() if set(axes) & set(plates) and not uses[key]]
    if any(key[1] != "log probability" for key in suspects):
        _check_reversed(posterior, theta, first, suspects, looks[0])


def _width(posterior: NumPyroPosterior) -> int:
    """How many rows to look at: enough for two places, few enough for two minibatches."""
    own = min(plate.batch_size for plate in posterior.layout.plates)
    least = min(plate.size for plate in posterior.layout.plates if plate.size > 1)
    return min(least, max(2, min(own, least // 2)))


def _two_minibatches(posterior: NumPyroPosterior, width: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first rows of every plate; and half of them in reverse order, with others before them."""
    half = (width + 1) // 2
    first, mixed = {}, {}
    for plate in posterior.layout.plates:
        count = min(width, plate.size)
        kept = min(half, count)
        first[plate.name] = jnp.arange(count)
        mixed[plate.name] = jnp.concatenate([plate.size - 1 - jnp.arange(count - kept), jnp.arange(kept)[::-1]])
    return first, mixed


def _axes(parts: Callable[..., Any], rows: Any) -> dict[tuple[str, str], dict[str, int]]:
    axes: dict[tuple[str, str], dict[str, int]] = {}

    def note(rows: Any) -> Any:
        axes.update({key: part.axes for key, part in parts(rows).items()})

    jax.eval_shape(note, rows)
    return axes


def _follows(
    looks: list[dict[tuple[str, str], Any]], key: tuple[str, str], axes: dict[str, int], plates: dict[str, Any]
) -> bool:
    """Whether the rows that two minibatches share have the same values in both."""
    first, mixed = looks[0][key], looks[1][key]
    for name, axis in axes.items():
        width = first.shape[axis]
        mixed = np.flip(mixed, axis)
        if name in plates:
            first, mixed = (np.take(x, np.arange((width + 1) // 2), axis) for x in (first, mixed))
    return close(first, mixed, key[1])


def close(one: np.ndarray, other: np.ndarray, part: str) -> bool:
    """Whether two arrays are the same, up to the rounding of floats: observations are copied, the rest is computed."""
    one, other = np.asarray(one, float), np.asarray(other, float)
    share = COPIED if part == "observations" else CLOSE
    finite = np.abs(one[np.isfinite(one)])
    return np.allclose(one, other, rtol=share, atol=share * finite.max(initial=0.0), equal_nan=True)


def _depends_on(parts: Callable[..., Any], rows: Any) -> dict[tuple[str, str], bool]:
    """Whether each part is computed from the rows at all."""
    result: dict[tuple[str, str], bool] = computed_from(
        lambda rows: {key: part.values for key, part in parts(rows).items()}, rows
    )
    return result


def computed_from(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Whether each output of a function is computed from the values of its first argument: a tree like the output."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(first, *others)
    tainted = set(closed.jaxpr.invars[: len(jax.tree.leaves(first))])
    for equation in closed.jaxpr.eqns:
        if any(not hasattr(variable, "val") and variable in tainted for variable in equation.invars):
            tainted.update(equation.outvars)
    flags = [not hasattr(variable, "val") and variable in tainted for variable in closed.jaxpr.outvars]
    return jax.tree.unflatten(jax.tree.structure(shapes), flags)


def _check_reversed(
    posterior: NumPyroPosterior, theta: Any, rows: dict[str, Any], suspects: list[Any], before: dict[str, Any]
) -> None:
    """Refuse arrays that run along a minibatch, do not depend on its rows, and change with the order of the data."""
    sizes = {plate.size for plate in posterior.layout.plates}

    def turned(leaf: Any) -> Any:
        return leaf[::-1] if isinstance(leaf, jax.Array) and leaf.ndim and leaf.shape[0] in sizes else leaf

    other = posterior.with_arguments(turned)
    after = jax.jit(lambda: {key: part.values for key, part in parts_of(other, theta, rows).items()})()
    for key in suspects:
        if key[1] != "log probability" and not close(before[key], np.asarray(after[key]), key[1]):
            _refuse_places(posterior, key, posterior.layout.plates[0].name)


def _refuse_unused(posterior: NumPyroPosterior, plate: str) -> None:
    size = next(p.size for p in posterior.layout.plates if p.name == plate)
    raise ValueError(
        f"The rows of the plate {plate!r} are not used: whichever of the {size:,} rows a minibatch has, the likelihood is the "
        f"same. Index the data with them: `with numpyro.plate({plate!r}, {size}, subsample_size=n) as rows:` and, inside, "
        "`y[rows]` for every array of the data (not `y[:n]`)."
    )


def _refuse_places(posterior: NumPyroPosterior, key: tuple[str, str], plate: str) -> None:
    site, part = key
    what = {"log probability": "its log probability", "observations": "its observations"}.get(part, f"its {part!r}")
    raise ValueError(
        f"The site {site!r} does not follow the rows of the plate {plate!r}: {what} of one row of the data changes with the place of that "
        "row in the minibatch, or with the other rows there. Inside the plate, index every array of the data with its rows (`x[rows]`, "
        "not `x[:n]`), and normalise data before the model, not in it."
    )


# -- ordinary plates: arguments of row length -----------------------------------------------------------------------------


class NoSlices(NamedTuple):
    """Why a model cannot be cut into minibatches; None where it has no data."""

    reason: str | None


def candidates(called: Any) -> list[Slices] | NoSlices:
    """How a model without `subsample_size` may be cut into minibatches, likely ones first."""
    sites = called.sites()
    data = {name: site for name, site in sites.items() if not site.latent and _of_data(site)}
    if not data:
        return NoSlices(None)
    observed = {name: site for name, site in data.items() if site.plates}
    latent = frozenset().union(*(site.plates for site in sites.values() if site.latent))
    sizes = {name: called.sizes[name] for site in observed.values() for name in site.plates - latent}
    if not observed:
        return NoSlices(
            "no observed site of the model is in a plate. Put a plate around it, and pass the data as arguments of the model"
        )
    if not sizes:
        return NoSlices(
            f"the plate {sorted(next(iter(observed.values())).plates)[0]!r} of the data holds a latent site too: one value per "
            "datum, of which a minibatch would move only its own"
        )
    arrays = called.arrays()
    lengths = {x.shape[0] for x in arrays.values() if x.ndim}
    fitting = [size for size in sizes.values() if size in lengths and size > 1]
    if not fitting:
        listed = ", ".join(f"{name!r} of size {size:,}" for name, size in sizes.items())
        return NoSlices(f"no argument of the model has the length of a plate of the data ({listed})")
    size = max(fitting)
    plates = frozenset(name for name in sizes if sizes[name] == size)
    if any(len(site.plates & plates) > 1 for site in observed.values()):
        return NoSlices(f"two plates of {size:,} rows are one inside the other")
    named = tuple(name for name, x in arrays.items() if x.ndim and x.shape[0] == size)
    subsets = [named] + [tuple(x for x in named if x != left_out) for left_out in named if 1 < len(named) <= ATTEMPTS]
    return [Slices(plates, size, subset) for subset in subsets]


def _of_data(site: Site) -> bool:
    """Observations, and factors of rows: those outside of plates are of no row."""
    return site.kind != "Delta" and (site.kind != "Unit" or bool(site.plates))


def adds_up(posterior: NumPyroPosterior, slices: Slices) -> str | None:
    """None where the model says the same of every row in parts of the data as in the whole; otherwise, what differs.

    The parts are made of rows in random order and cover all the data, so terms that look at other rows, at their own place or at the
    number of rows are found.
    """
    rows = np.random.default_rng(0).permutation(slices.size)
    width = max(1, min(slices.size // 2, CHUNK))
    starts = [*range(0, slices.size - width, width), slices.size - width]
    part_of = jax.jit(lambda theta, batch: _per_row(posterior, theta, batch))
    try:
        for seed in range(2):
            theta = posterior.start(jax.random.key(seed))
            whole = jax.tree.map(np.asarray, part_of(theta, dict(posterior.data)))
            for start in starts:
                some = rows[start : start + width]
                batch = trees.rows(dict(posterior.data), some)
                part = jax.tree.map(np.asarray, part_of(theta, batch))
                for key, values in whole.items():
                    if key not in part or not close(values[some], part[key], key[1]):
                        return f"the {key[1]} of {key[0]!r} for a row changes when the other rows are left out"
    except Exception as error:
        return f"it does not run on fewer rows ({str(error).splitlines()[0][:200] if str(error) else type(error).__name__})"
    return None


def of_single_rows(posterior: NumPyroPosterior, slices: Slices) -> frozenset[str]:
    """The deterministic sites that have one value for each of many rows: draws of them would be as large as the data, for each draw."""
    if slices.size <= FEW_ROWS:
        return frozenset()
    count = max(1, slices.size // 2)
    half = {name: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype) for name, leaf in posterior.data.items()}
    theta, sites = posterior.start(jax.random.key(0)), posterior._deterministic_sites
    whole, some = (jax.eval_shape(sites, theta, rows) for rows in (dict(posterior.data), half))
    return frozenset(name for name, leaf in whole.items() if leaf.shape != some[name].shape)


def _per_row(posterior: NumPyroPosterior, theta: Any, batch: Any) -> dict[tuple[str, str], jax.Array]:
    """Log probabilities and observations with the rows in front; those without rows as they are."""
    found = {}
    for key, part in parts_of(posterior, theta, batch).items():
        if key[1] == "log probability" or (key[1] == "observations" and part.axes):
            (axis,) = part.axes.values()
            found[key] = jnp.moveaxis(part.values, axis, 0)
    return found
