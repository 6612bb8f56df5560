"""What a run returns."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.display import escape
from inbounds.kernels.base import Kernel
from inbounds.sampling import verdict
from inbounds.sampling.convergence import Convergence, convergence
from inbounds.sampling.program import Program, Rows
from inbounds.sampling.summary import Summary, labels, summarise
from inbounds.space import is_constraint
from inbounds.transforms.supports import bounds
from inbounds.trees import PyTree, variable_name

AXES = ("chain", "draw")
UNREPORTED = {"gradient_norm": np.nan, "noise_variance": np.nan, "clamped": 0.0}  # where a kernel does not report it
TILE_NUMBERS = 2**16  # turned from phi to theta in one call,
TILE_DRAWS = 16  # or those of so many draws, since a call has a cost of its own,
MOST_TILE_NUMBERS = 2**22  # but no more than these;
QUICK_NUMBERS = 2**19  # of draws that are judged at the end of a run
QUICK_DRAWS = 2_048  # per chain, where there are more numbers
AHEAD = 3  # calls that are under way at most, while others wait to be fetched

# Whole numbers, one a draw: written out, those of a long run of a small model would cost as much as its draws.
Counts = range | np.ndarray


@dataclass
class Draws:
    """Posterior draws, leading axes (chain, draw). Those of a run with a `store` stay there, and are read when used.

    Attributes:
        phi: draws of the unbounded proxy, as the chain has them; `theta` is made from it when asked for.
        stats: one number a draw: `gradient_norm`, `noise_variance` (NaN where unknown), `clamped`, `step_size`.
        collected: what `collect` gathered, leading axis = chain; None without it.
        kernel: the kernel that made them.
        state: the kernel's state after the last step, leading axis = chain.
        num_steps: steps of each chain, burn-in included.
        seconds: wall-clock time of the run, compilation included; of all its parts, where it was interrupted and resumed.
        stored_theta: theta where it is on disk; None otherwise.
        of_steps: what was found at the end of the run about its steps.
        certificate: how far each mean, sd and quantile may be off, where `ib.infer` made the draws; None elsewhere. It has `ok`, `reasons`,
            `mean_error`, `sd_error` and `quantile_error` by variable, and `choices`.
        quantities: functions of theta by name; their values are among `variables()`.
    """

    phi: PyTree
    stats: dict[str, np.ndarray]
    collected: Any
    kernel: Kernel
    state: Any
    num_steps: int
    burn_in: int
    thin: int
    seconds: float
    stored_theta: PyTree = None
    of_steps: list[verdict.Note] = field(default_factory=list, repr=False)
    certificate: Any = field(default=None, repr=False)
    quantities: dict[str, Callable[[PyTree], Any]] = field(default_factory=dict, repr=False)
    _convergence: dict[str, Convergence] = field(default_factory=dict, repr=False)

    @cached_property
    def theta(self) -> PyTree:
        """Draws of theta, strictly inside the support: a tree of arrays (chain, draw, ...)."""
        if self.phi is None:
            raise ValueError("This run collected running statistics and stored no draws: see `draws.collected`.")
        return theta_of(self.kernel, self.phi) if self.stored_theta is None else self.stored_theta

    @property
    def num_chains(self) -> int:
        return self.stats["gradient_norm"].shape[0]

    @property
    def num_draws(self) -> int:
        return self.stats["gradient_norm"].shape[1]

    def log_theta(self) -> PyTree:
        """log(theta - lower end), from phi: right also where theta itself is below the smallest float."""
        return self.kernel.space.of_proxy.log_gap(jax.tree.map(np.asarray, self.phi))

    def variables(self) -> dict[str, np.ndarray]:
        """Draws by name: one array (chain, draw, ...) per leaf of theta, per deterministic site of the model and per quantity of the user's."""
        variables = [*_shapes(self.theta), *self.deterministics().items(), *self._quantities.items()]
        found = dict(variables)
        if len(found) < len(variables):  # "a/b" is what b in a is called
            array_names([name for name, _ in variables])
        return found

    def deterministics(self) -> dict[str, np.ndarray]:
        """Draws of the functions of theta that the posterior names (`numpyro.deterministic`), by name."""
        return self._deterministics

    @cached_property
    def _deterministics(self) -> dict[str, np.ndarray]:
        named = self.kernel.posterior.deterministics
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.theta)
        if not jax.eval_shape(named, one):
            return {}
        return _of_all_draws(named, self.theta)

    @cached_property
    def _quantities(self) -> dict[str, np.ndarray]:
        if not self.quantities:
            return {}
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.theta)
        for name, function in self.quantities.items():
            made: Any = jax.eval_shape(function, one)
            if not isinstance(made, jax.ShapeDtypeStruct):
                raise ValueError(
                    f"The quantity {name!r} must return one array or number; got {type(made).__name__}. Give each part a name of its own."
                )
        functions = dict(self.quantities)
        return _of_all_draws(lambda theta: {name: jnp.asarray(f(theta)) for name, f in functions.items()}, self.theta)

    def flat(self) -> PyTree:
        """Draws of theta with the chains one after the other, as `numpyro.infer.Predictive` takes them."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.theta)

    def to_arviz(self, *, log_likelihood: bool = False, coords: dict | None = None, dims: dict | None = None) -> Any:
        """An xarray DataTree as ArviZ takes it: `posterior`, `sample_stats` and, where there are data, `observed_data`.

        Names there have "." for "/", as in a store: `layers/0/weight` is called `layers.0.weight`.

        Args:
            log_likelihood: add the log likelihood of every datum at every draw, for `arviz_stats.loo`. It has the size
                chains x draws x data: thin first where that is too much.
            coords: names along the dimensions, such as `{"city": ["Oslo", "Bergen"]}`.
            dims: the dimensions of each variable, such as `{"rate": ["city"]}`.
        """
        arviz_base = _arviz("arviz_base")
        groups = {"posterior": _for_arviz(self.variables()), "sample_stats": _read(self.stats)}
        data = self.kernel.posterior.observed()
        observed = dict(zip(array_names(list(data), taken=()), data.values(), strict=True))
        if observed:
            groups["observed_data"] = observed
        if log_likelihood:
            groups["log_likelihood"] = self._log_likelihood(next(iter(observed)) if len(observed) == 1 else "data")
        return arviz_base.from_dict(
            groups,
            coords=coords,
            dims=None if dims is None else {_array_name(name): axes for name, axes in dims.items()},
            attrs={"/": {"kernel": self.kernel.name, "inference_library": "inbounds", "burn_in": self.burn_in}},
        )

    def _log_likelihood(self, name: str) -> dict[str, np.ndarray]:
        """log p(x_i | theta) of every datum at every draw, a slice of the data at a time."""
        posterior = self.kernel.posterior
        if posterior.log_likelihood is None or not posterior.observed():
            raise ValueError(
                "The log likelihood of each datum is not known: the posterior has no `log_likelihood` with `data` in arrays."
            )
        assert posterior.num_data is not None
        likelihood, rows = posterior.log_likelihood, max(1, 2**22 // max(1, self.num_chains * self.num_draws))
        theta = jax.tree.map(np.asarray, self.theta)
        terms = jax.jit(jax.vmap(jax.vmap(likelihood, in_axes=(0, None)), in_axes=(0, None)))
        parts = [
            np.asarray(terms(theta, jax.tree.map(lambda leaf, i=i: leaf[i : i + rows], posterior.data)))
            for i in range(0, posterior.num_data, rows)
        ]
        return {name: np.concatenate(parts, axis=-1)}

    def summary(self) -> Summary:
        """Mean, sd, quantiles, effective sample sizes (bulk and tail) and R-hat of every number, and what `warnings` says."""
        return summarise(self)

    def warnings(self) -> list[str]:
        """What a careful reader should know of these draws: nothing, for a healthy run. Each note names its section of `docs/warnings.md`."""
        return [str(note) for note in self.notes()]

    def notes(self, quick: bool = False) -> list[verdict.Note]:
        """The same, with how grave each is.

        Args:
            quick: for the end of a run. Functions of theta are left out, and of many draws some are looked at.
        """
        if not self.num_draws:
            return [verdict.Note("no-draws", self._why_none(), loud=False)]
        clamped = float(np.mean(self.stats["clamped"]))
        of_noise = (verdict.restarted if self.kernel.name == "ito" else verdict.noise_is_absorbed)(clamped)
        notes = verdict.too_short(self.num_draws)
        if notes or self.phi is None:
            return of_noise + self.of_steps + notes
        numbers = sum(leaf.size for leaf in jax.tree.leaves(self.phi))
        if quick and numbers > QUICK_NUMBERS:
            looked_at = {name: (some, convergence(x)) for name, some, x in _some_numbers(self.phi)}
        else:
            variables = dict(_shapes(self.theta)) if quick else self.variables()
            looked_at = {n: (labels(n, x.shape[2:]), self.convergence_of(n, x)) for n, x in variables.items()}
            notes += self._at_bounds()
        names = [label for some, _ in looked_at.values() for label in some]
        found = Convergence(*map(np.concatenate, zip(*(one for _, one in looked_at.values()), strict=True)))
        return of_noise + self.of_steps + verdict.chains_agree(names, found, self.num_chains, self.num_draws) + notes

    def convergence_of(self, name: str, draws: np.ndarray) -> Convergence:
        """ESS and R-hat of every number of a variable, in the order of `labels`; computed once."""
        if name not in self._convergence:
            self._convergence[name] = convergence(np.asarray(draws).reshape(*draws.shape[:2], -1))
        return self._convergence[name]

    def _at_bounds(self) -> list[verdict.Note]:
        names: list[str] = []
        shares: list[np.ndarray] = []

        def look(path: tuple, support: Any, subtree: PyTree) -> None:
            lower, upper = (np.asarray(end) for end in bounds(support))
            for subpath, leaf in jax.tree_util.tree_leaves_with_path(subtree):
                theta = np.asarray(leaf)
                names.extend(labels(variable_name((*path, *subpath)), theta.shape[2:]))
                shares.append(np.mean(next_to(theta, lower, 1) | next_to(theta, upper, -1), axis=(0, 1)).ravel())

        jax.tree_util.tree_map_with_path(look, self.kernel.space.supports, self.theta, is_leaf=is_constraint)
        return verdict.off_the_bounds(names, np.concatenate(shares))

    def _why_none(self) -> str:
        within = self.num_steps <= self.burn_in
        when = "the run was still in its burn-in" if within else "the run came to no step whose draw is kept"
        return f"no draws yet: {when} (num_steps={self.num_steps:,}, burn_in={self.burn_in:,}, thin={self.thin:,})."

    def __repr__(self) -> str:
        names = [] if self.phi is None else [f"{name}{list(x.shape[2:]) or ''}" for name, x in _shapes(self.phi)]
        what = ", ".join(names) or "running statistics"
        return (
            f"Draws({self.num_chains} chains x {self.num_draws:,} draws of {what}; {self.kernel.name}, "
            f"{self.num_steps:,} steps in {self.seconds:.3g} s)"
        )

    def _repr_html_(self) -> str:
        body = self.summary()._repr_html_() if self.phi is not None else ""
        return f"<p>{escape(repr(self))}</p>{body}"


class Record:
    """Gathers the rows of each chunk, on the host; `store.StoredRecord` does so on disk.

    Args:
        program: what is run.
        burn_in: first steps whose draws are not kept.
        step_size: one number, one a chain, or the schedule.
        num_steps: of the whole run.
    """

    def __init__(self, program: Program, burn_in: int, step_size: Any, num_steps: int):
        self.program = program
        self.burn_in = burn_in
        self.step_size = step_size
        self.num_steps = num_steps
        self.rows: Rows | None = None  # room for all of them, of which the first `num_draws` are there
        self.counts: list[Counts] = []  # steps done at each kept draw
        self.kept = 0

    on_disk = False
    place = "`error.draws`"

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def num_draws(self) -> int:
        """Kept so far, of each chain."""
        return self.kept

    def add(self, rows: Rows, start: int, end: int) -> None:
        """Keep what belongs to the steps from `start` to `end`, burn-in left out."""
        thin = self.program.thin
        first, last = start // thin, end // thin
        skip = max(0, self.burn_in // thin - first)
        counts: Counts = range((first + skip + 1) * thin, last * thin + 1, thin)
        part: Any = slice(skip, last - first)
        if self.program.has_phases:
            sampled = np.asarray(self.program.samples(as_array(counts)))
            if not sampled.all():
                part, counts = np.flatnonzero(sampled) + skip, as_array(counts)[sampled]
        if not len(counts):
            return
        self.keep(jax.tree.map(lambda leaf: np.asarray(leaf)[part], rows), counts)

    def keep(self, rows: Rows, counts: Counts) -> None:
        """Put kept rows, axes (row, chain), where they belong.

        That is into arrays of the size that they will have, so that there is never a second copy of all. The system gives memory to what
        is written to.
        """
        if self.rows is None:
            self.rows = self._room(rows)
        for whole, part in zip(jax.tree.leaves(self.rows), jax.tree.leaves(rows), strict=True):
            whole[self.kept : self.kept + len(counts)] = part
        self.counts.append(counts)
        self.kept += len(counts)

    def _room(self, like: Rows) -> Rows:
        """Arrays for all the draws that the run will keep."""
        thin, at_once = self.program.thin, 2**20  # counts that a schedule is asked about
        counts = range((self.burn_in // thin + 1) * thin, self.num_steps + 1, thin)
        draws = len(counts)
        if self.program.has_phases:
            parts = (as_array(counts[i : i + at_once]) for i in range(0, draws, at_once))
            draws = sum(int(np.count_nonzero(self.program.samples(part))) for part in parts)
        try:
            return jax.tree.map(lambda leaf: np.empty((draws, *leaf.shape[1:]), leaf.dtype), like)
        except MemoryError as error:
            size = draws * sum(leaf[0].nbytes for leaf in jax.tree.leaves(like))
            raise MemoryError(
                f"The {draws:,} draws of this run take {size / 1e9:,.0f} GB of memory, more than there is. Keep fewer (`thin`), "
                "keep them on disk (`store`), or only what you need of them (`collect`)."
            ) from error

    def _kept_rows(self) -> Rows:
        return jax.tree.map(lambda leaf: leaf[: self.kept], self.rows)

    def close(self) -> None:
        """The run is over, well or not: leave everything readable."""

    def snapshot(self) -> list[np.ndarray]:
        """What a checkpoint must hold to go on from here."""
        if not self.counts:
            return []
        counts = np.concatenate([as_array(counts) for counts in self.counts])
        self.counts = [counts]
        return [*jax.tree.leaves(self._kept_rows()), counts]

    def restore(self, snapshot: list[np.ndarray], moving: PyTree) -> None:
        """Go on from a snapshot; `moving` has the structure of what the kernel moves."""
        if snapshot:
            *rows, counts = snapshot
            nothing: Any = dict.fromkeys(self.program.kernel.reports, 0.0)
            like = Rows(moving if self.program.keeps_draws else None, nothing)
            self.keep(jax.tree.unflatten(jax.tree.structure(like), rows), counts)

    def draws(self, num_steps: int, state: Any, collected: Any, seconds: float) -> Draws:
        rows, phi = None, None
        if self.counts:
            rows = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), self._kept_rows())
            phi = None if rows.moving is None else phi_of(self.program.kernel, rows.moving)
        elif self.program.keeps_draws:
            phi = self._no_draws(state)
        return self.as_draws(phi, self._stats(rows), num_steps, state, collected, seconds)

    def _no_draws(self, state: Any) -> PyTree:
        """phi of a run that has not come to its first draw, axes (chain, 0, ...)."""
        last = jax.eval_shape(jax.vmap(self.program.kernel.proxy), state)
        return jax.tree.map(lambda leaf: np.zeros((leaf.shape[0], 0, *leaf.shape[1:]), leaf.dtype), last)

    def as_draws(
        self, phi: PyTree, stats: dict, num_steps: int, state: Any, collected: Any, seconds: float, theta: PyTree = None
    ) -> Draws:
        return Draws(
            phi=phi,
            stats=stats,
            collected=collected,
            kernel=self.program.kernel,
            state=state,
            num_steps=num_steps,
            burn_in=self.burn_in,
            thin=self.program.thin,
            seconds=seconds,
            stored_theta=theta,
        )

    def _stats(self, rows: Rows | None) -> dict[str, np.ndarray]:
        chains = self.program.num_chains
        if rows is None:
            empty = np.zeros((chains, 0))
            return dict.fromkeys((*UNREPORTED, "step_size"), empty)
        return statistics(rows, (chains, self.num_draws)) | {
            "step_size": step_sizes(self.step_size, self.counts, chains)
        }


def _some_numbers(phi: PyTree) -> Iterator[tuple[str, list[str], np.ndarray]]:
    """(name, labels, draws), of all variables, of numbers and draws that lie evenly among the others.

    Of the proxy: ranks are those of theta where each number has a bound of its own.
    """
    leaves = _shapes(phi)
    for name, leaf in leaves:
        thin = max(1, leaf.shape[1] // QUICK_DRAWS)
        kept = np.asarray(leaf[:, ::thin])
        flat = kept.reshape(*kept.shape[:2], -1)
        most = max(1, QUICK_NUMBERS // (len(leaves) * kept.shape[0] * kept.shape[1]))
        places = np.unique(np.linspace(0, flat.shape[2] - 1, min(most, flat.shape[2])).astype(int))
        indices = np.unravel_index(places, kept.shape[2:]) if kept.ndim > 2 else ()
        some = [f"{name}[{', '.join(map(str, index))}]" for index in zip(*indices, strict=True)] or [name]
        yield name, some, flat[:, :, places]


def next_to(theta: np.ndarray, end: np.ndarray, direction: int) -> np.ndarray:
    """Whether theta is the float next to an end of its support, or closer to 0 than a float of full precision."""
    if not np.isfinite(end).all():
        return np.zeros(theta.shape, bool)
    end = np.broadcast_to(end.astype(theta.dtype), theta.shape[2:])
    nearest = np.nextafter(end, np.asarray(direction * np.inf, theta.dtype))
    tiny = np.where(
        end == 0, 4 * direction * np.finfo(theta.dtype).tiny, nearest
    )  # transforms keep off what is flushed to 0
    return theta <= tiny if direction > 0 else theta >= tiny


def array_names(names: Sequence[str], taken: Sequence[str] = AXES) -> list[str]:
    """What variables are called in a store and in ArviZ. Raise a ValueError where a name would stand for two things."""
    found: dict[str, str] = {}
    for name in names:
        array = _array_name(name)
        if _is_no_name(array):
            raise ValueError(
                f"A variable cannot be called {name!r}: in a store every variable is a folder, and there that name means something else "
                "(names of periods alone, those that begin with two underscores, and zarr.json). Rename it in the posterior. "
                "(`draws.theta` holds the draws of a run that has ended.)"
            )
        if array in taken:
            raise ValueError(
                f"A variable cannot be called {name!r}: in a store and in ArviZ that is an axis of the draws. Rename it in the "
                "posterior. (`draws.theta` holds the draws of a run that has ended.)"
            )
        if array in found:
            raise ValueError(
                f"Two variables, {found[array]!r} and {name!r}, would both be called {array!r} in a store and in ArviZ, where "
                '"." stands for "/". Rename one of them in the posterior. (`draws.theta` holds the draws of a run that has ended.)'
            )
        found[array] = name
    return list(found)


def _is_no_name(array: str) -> bool:
    """Whether Zarr has another use for a name, or a file system does."""
    reserved = not array.strip(".") or array.startswith("__") or array.lower() == "zarr.json"
    return reserved or "\\" in array or not array.isprintable()


def _array_name(name: str) -> str:
    return name.replace("/", ".")  # which Zarr and xarray take for a path


def as_array(counts: Counts) -> np.ndarray:
    """Written out after all, where a schedule is asked about them."""
    return np.arange(counts.start, counts.stop, counts.step) if isinstance(counts, range) else counts


def statistics(rows: Rows, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """What is known of each draw by name, axes (chain, draw): what the kernel reports, and `UNREPORTED` for the rest."""
    missing = {name: np.broadcast_to(value, shape) for name, value in UNREPORTED.items()}
    return missing | {name: np.asarray(values) for name, values in rows.info.items()}


def phi_of(kernel: Kernel, moving: PyTree, first: int = 0) -> PyTree:
    """phi of draws of what a kernel moves, axes (chain, draw, ...), the first of which has the number `first`."""
    if kernel.space.of_proxy is kernel.space:
        return moving
    proxies = kernel.posterior.compiled.of(_proxies, kernel)
    return _in_tiles(partial(proxies, kernel.arrays), moving, first)


def theta_of(kernel: Kernel, phi: PyTree, first: int = 0) -> PyTree:
    """theta of draws of phi, axes (chain, draw, ...), the first of which has the number `first`."""
    constrained = kernel.posterior.compiled.of(_constrained, kernel)
    return _in_tiles(partial(constrained, kernel.arrays), phi, first)


def step_sizes(step_size: Callable | np.ndarray, counts: Sequence[Counts], chains: int, first: int = 0) -> np.ndarray:
    """Step sizes, axes (chain, draw), of draws made after so many steps."""
    if callable(step_size):
        steps = np.concatenate([as_array(some) for some in counts]).astype(np.int32)
        sizes = _in_tiles(partial(_scheduled, step_size), steps[None], first)
    else:
        sizes = np.reshape(step_size, (-1, 1))
    return np.broadcast_to(sizes, (chains, sum(map(len, counts))))


def _constrained(kernel: Kernel, of_kernel: tuple, phi: PyTree) -> PyTree:
    return jax.vmap(jax.vmap(kernel.with_arrays(of_kernel).of_proxy))(phi)


def _proxies(kernel: Kernel, of_kernel: tuple, moving: PyTree) -> PyTree:
    return jax.vmap(jax.vmap(kernel.with_arrays(of_kernel).space.proxy))(moving)


@partial(jax.jit, static_argnums=0)
def _scheduled(schedule: Callable, counts: jax.Array) -> jax.Array:
    return jax.vmap(jax.vmap(schedule))(counts - 1)


def _in_tiles(function: Callable, draws: PyTree, first: int) -> PyTree:
    """`function(draws)` in calls of one shape, each draw at the place in its call that its number gives.

    The bits of a vectorised function depend on shape and place. So those of a draw do not depend on how many there are, nor on
    when they are written to disk; and one compilation does for all.
    """
    leaves = jax.tree.leaves(draws)
    total = leaves[0].shape[1]
    if not total:
        shapes = jax.eval_shape(function, draws)
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    width = sum(leaf.size // max(1, total) for leaf in leaves)
    draws_at_once = min(max(TILE_NUMBERS // max(1, width), TILE_DRAWS), MOST_TILE_NUMBERS // max(1, width))
    tile = 2 ** int(math.log2(max(1, draws_at_once)))
    made: list[_Tile] = []
    done = 0
    while done < total:
        place = (first + done) % tile
        count = min(tile - place, total - done)
        some = jax.tree.map(lambda leaf, i=done, n=count: np.asarray(leaf[:, i : i + n]), draws)
        if count < tile:
            some = jax.tree.map(lambda leaf, i=place: _padded(leaf, i, tile), some)
        made.append(_Tile(function(some), place, count))
        if len(made) > AHEAD:
            made[-1 - AHEAD].fetch()
        done += count
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *(one.fetch() for one in made))


class _Tile:
    """A result on its way from the device."""

    def __init__(self, result: PyTree, place: int, count: int):
        self.result = result
        self.part = slice(place, place + count)

    def fetch(self) -> PyTree:
        self.result = jax.tree.map(np.asarray, self.result)
        return jax.tree.map(lambda leaf: leaf[:, self.part], self.result)


def _padded(some: np.ndarray, place: int, tile: int) -> np.ndarray:
    whole = np.zeros((some.shape[0], tile, *some.shape[2:]), some.dtype)
    whole[:, place : place + some.shape[1]] = some
    return whole


def _of_all_draws(function: Callable, phi: PyTree) -> PyTree:
    """`function` of every draw, in slices of the draw axis so that the device never holds twice the store."""
    each = jax.jit(jax.vmap(jax.vmap(function)))
    draws = jax.tree.leaves(phi)[0].shape[1]
    width = max(1, sum(leaf.size // max(1, draws) for leaf in jax.tree.leaves(phi)))
    rows = max(1, 2**24 // width)
    parts = [
        jax.tree.map(np.asarray, each(jax.tree.map(lambda leaf, i=i: leaf[:, i : i + rows], phi)))
        for i in range(0, max(1, draws), rows)
    ]
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


def _arviz(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'{module} is not installed: pip install "inbounds[arviz]"') from error


def _read(arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name, in memory."""
    return {name: np.asarray(x) for name, x in arrays.items()}


def _for_arviz(variables: dict[str, Any]) -> dict[str, np.ndarray]:
    return dict(zip(array_names(list(variables)), map(np.asarray, variables.values()), strict=True))


def _shapes(tree: PyTree) -> list[tuple[str, np.ndarray]]:
    return [(variable_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
