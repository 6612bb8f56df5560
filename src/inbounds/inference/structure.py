"""Posteriors whose shape says which metric suits them: tables of groups, and those of too many dimensions for a dense one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from inbounds.deadline import OutOfTimeError
from inbounds.inference.clock import Clock
from inbounds.inference.mode import MOST_DENSE, Mode
from inbounds.inference.setup import Setup, flat_draws
from inbounds.inference.stopping import Late
from inbounds.metrics import Arrow, LowRank, Reference, arrow, arrow_from_draws, low_rank
from inbounds.metrics._tables import APART, MOST_GLOBAL, Part, parts_of, probe_of, rows_of, widths
from inbounds.posterior import Posterior
from inbounds.sampling import Draws
from inbounds.space import Space
from inbounds.trees import PyTree, variable_name

__all__ = ["Structure", "settle_structured", "structure_of"]

FEWEST_ROWS = 10  # of a table
WIDEST_ROW = 64
FEWEST_EFFECTS = 100  # numbers in tables from which on an arrow takes the place of a dense metric
MOST_COUPLED = 1_500  # dimensions of the dense part of an arrow
PROBES = 8  # products with the Hessian at once
LOOKS = 4  # points at which the density may turn out not to be finite
DIRECTIONS = 32
AVERAGED, AVERAGED_PRODUCTS = 16, 4_000  # points of an average Hessian, and products that all of them may take
WINDOWS = (75, 100, 150, 200)  # draws per chain
ADAPTATION = 75  # transitions
ROUND = 2.0  # sd in z, and one over it, up to which a metric stays
OFF_CENTER = 1.0


class Table(NamedTuple):
    """Variables that share their rows.

    Args:
        part: their numbers among the leaves of phi, and how many rows they have.
        size: numbers in all.
        beside: leaves of other variables that a row of the data, or the prior, couples them to.
    """

    part: Part
    size: int
    beside: frozenset[int]


@dataclass(frozen=True)
class Structure:
    """What the metric of a posterior is made of.

    Attributes:
        size: dimensions of phi.
        rest: how many of them are in no table.
        tables: names of the variables of each table whose blocks are small; none where no rows are free of each other.
        left_out: names of those tables that are coupled to the first one, which the metric does not know.
        has_scales: whether the prior couples a table to what is global, as the scale of effects does: then the joint mode is useless.
    """

    size: int
    rest: int = 0
    tables: tuple[tuple[str, ...], ...] = ()
    left_out: tuple[str, ...] = ()
    has_scales: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether no dense metric will do."""
        return self.size > MOST_DENSE


def structure_of(posterior: Posterior, space: Space, seed: int) -> Structure | None:
    """The structure of a posterior; None where a dense metric suits.

    Tables are found by what the Hessian does to vectors with a random sign for each row: where rows do not act on each other, the signs
    come back as they went in.
    """
    if posterior.gradient is not None or not posterior.has_density:
        return None
    start = posterior.start(jax.random.key(seed))
    reference = Reference(posterior, space, start)
    size = reference.dimension
    if size < FEWEST_EFFECTS:
        return None
    tables = _tables(reference, seed)
    chosen, left_out = _chosen(tables, size)
    if sum(table.size for table in chosen) < FEWEST_EFFECTS:
        return Structure(size) if size > MOST_DENSE else None
    names = [variable_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(reference.phi)]
    return Structure(
        size,
        size - sum(table.size for table in chosen),
        tuple(tuple(names[i] for i in table.part.leaves) for table in chosen),
        tuple(names[table.part.leaves[0]] for table in left_out),
        any(_prior_couples(reference, table) for table in chosen),
    )


def _tables(reference: Reference, seed: int) -> list[Table]:
    """All the tables, the largest first; variables with the same rows that are coupled are one table."""
    leaves = jax.tree.leaves(reference.phi)
    alone = [
        Part((i,), np.shape(leaf)[0])
        for i, leaf in enumerate(leaves)
        if np.ndim(leaf) and np.shape(leaf)[0] >= FEWEST_ROWS and np.size(leaf) <= WIDEST_ROW * np.shape(leaf)[0]
    ]
    if not alone:
        return []
    for look in range(LOOKS):
        away = _anywhere(reference, seed + look)
        found = _free(away, alone)
        if found is not None:
            break
    else:
        return []
    tables: list[Table] = []
    for table in found:
        for i, other in enumerate(tables):
            if other.part.rows == table.part.rows and set(table.part.leaves) & other.beside:
                both = _free(away, [Part((*other.part.leaves, *table.part.leaves), table.part.rows)])
                if both and sum(widths(reference.phi, both[0].part)) <= WIDEST_ROW:
                    tables[i] = both[0]
                    break
        else:
            tables.append(table)
    return sorted(tables, key=lambda table: -table.size)


def _anywhere(reference: Reference, seed: int) -> Reference:
    """The same at a point where nothing is zero by accident."""
    generator = np.random.default_rng(seed)
    return reference.at(jax.tree.map(lambda leaf: leaf + 0.1 * generator.normal(size=np.shape(leaf)), reference.phi))


def _free(reference: Reference, parts: list[Part]) -> list[Table] | None:
    """Those parts whose rows are free of each other; None where the Hessian is not finite."""
    probes = np.stack([probe_of(reference.phi, part, seed) for part in parts for seed in (0, 1)])
    products = _in_blocks(reference.products, probes)
    if not np.isfinite(products).all():
        return None
    tables = []
    for number, part in enumerate(parts):
        signs = [rows_of(reference.phi, part, probes[2 * number + k][None])[0] for k in (0, 1)]
        first, second = (rows_of(reference.phi, part, products[2 * number + k][None])[0] for k in (0, 1))
        # The same numbers went in, up to the sign of each row.
        turned = np.sign(signs[0][:, :1] * signs[1][:, :1])
        if np.max(np.abs(first - turned * second)) > APART * np.max(np.abs(first)):
            continue
        ends = np.cumsum([np.size(leaf) for leaf in jax.tree.leaves(reference.phi)])[:-1]
        others = np.split(np.abs(products[2 * number]), ends)
        least = APART * float(np.max(np.abs(products[2 * number])))
        beside = {i for i, other in enumerate(others) if i not in part.leaves and np.max(other, initial=0) > least}
        tables.append(Table(part, first.size, frozenset(beside)))
    return tables


def _in_blocks(products: Callable[[np.ndarray], np.ndarray], vectors: np.ndarray) -> np.ndarray:
    """Products with so many vectors at a time, so that one program does for all."""
    filled = np.concatenate([vectors, np.zeros((-len(vectors) % PROBES, vectors.shape[1]))])
    return np.concatenate([products(some) for some in np.split(filled, len(filled) // PROBES)])[: len(vectors)]


def _chosen(tables: list[Table], size: int) -> tuple[list[Table], list[Table]]:
    """(tables whose blocks are small, those of them whose coupling to others of them is left out)."""
    chosen: list[Table] = []
    left_out: list[Table] = []
    rest = size - sum(table.size for table in tables)
    for table in tables:
        taken = {i for other in chosen for i in other.part.leaves}
        coupled = bool(taken & table.beside)
        if coupled and rest + table.size <= MOST_COUPLED:
            rest += table.size
            continue
        chosen.append(table)
        if coupled:
            left_out.append(table)
    return (chosen, left_out) if 0 < rest <= MOST_GLOBAL else ([], [])


def _prior_couples(reference: Reference, table: Table) -> bool:
    probe = probe_of(reference.phi, table.part, 0)
    product = np.abs(_in_blocks(_anywhere(reference, 0).products_of_prior, probe[None])[0])
    own = np.zeros(reference.dimension, bool)
    ends = np.cumsum([0, *(np.size(leaf) for leaf in jax.tree.leaves(reference.phi))])
    for i in table.part.leaves:
        own[ends[i] : ends[i + 1]] = True
    return bool(np.max(product[~own], initial=0) > APART * np.max(product))


def first_metric(posterior: Posterior, space: Space, structure: Structure, mode: Mode | None, start: PyTree) -> Any:
    """(metric, words): of the mode where there is one, or of scales that are positive at any point."""
    if mode is not None and mode.found:
        try:
            if structure.tables:
                return arrow(posterior, mode.theta, structure.tables, transforms=space.transforms), "at the mode"
            rank = min(DIRECTIONS, structure.size // 4)
            return low_rank(posterior, mode.theta, rank=rank, transforms=space.transforms), "at the mode"
        except ValueError:  # not positive definite there
            pass
    reference = Reference(posterior, space, start if mode is None or not mode.found else mode.theta)
    diagonal = reference.diagonal(10)
    usable = np.isfinite(diagonal) & (diagonal > 0)
    scales = np.where(usable, 1 / np.sqrt(np.where(usable, diagonal, 1.0)), 1.0)
    return _diagonal(reference.phi, scales, structure), "with scales at the start"


def in_words(metric: Any, structure: Structure, where: str) -> str:
    """What a metric is, and why, as a sentence."""
    if isinstance(metric, Arrow):
        names = ", ".join(" with ".join(map(repr, table)) for table in structure.tables)
        words = (
            f"an arrow {where}: a block for each row of {names}, a dense one for {structure.rest:,} other numbers, and their coupling, in "
            f"{structure.size:,} dimensions."
        )
        if structure.left_out:
            words += f" What rows of {', '.join(map(repr, structure.left_out))} and of other tables say of each other is left out."
        return words
    directions = np.shape(metric.vectors)[1]
    kind = f"a diagonal and {directions} directions" if directions else "a diagonal"
    return f"{kind} {where}, in {structure.size:,} dimensions."


def settle_structured(
    setup: Setup, structure: Structure, clock: Clock, seed: int, *, devices: Any = None
) -> tuple[Setup, Draws]:
    """(the setup with a metric that suits where the chains are, draws of the last window), when their draws are round in z.

    Args:
        setup: to begin with; its trajectories have exact gradients.
        structure: of the posterior.
        clock: no window begins when half of its time is over, and none goes on when all of it is.
        seed: of the windows.
        devices: as for `ib.sample`.
    """
    for number, count in enumerate(WINDOWS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            draws = setup.sample(
                count + ADAPTATION, burn_in=ADAPTATION, seed=seed + number, devices=devices, until=Late(clock)
            )
        if clock.is_over() or not draws.num_draws:
            break
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws.phi)):
            return setup.noted(steps="the chains left the finite numbers."), draws
        setup, fits = setup.from_here(draws), _is_round(setup, draws)
        if (fits and number > 0) or clock.share() > 0.5:
            break
        try:
            with clock.until(1.0):
                metric = _of_draws(setup, structure, draws)
        except OutOfTimeError:
            break
        where = f"of the average over draws of {number + 1} window{'s' * (number > 0)}"
        setup = replace(setup, metric=metric).noted(metric=in_words(metric, structure, where))
    return setup, draws


def _is_round(setup: Setup, draws: Draws) -> bool:
    z = setup.of_z(draws)
    sds, middle = z.std(axis=(0, 1)), np.abs(z.mean(axis=(0, 1)))
    return bool(sds.max() < ROUND and sds.min() > 1 / ROUND and middle.max() < OFF_CENTER)


def _of_draws(setup: Setup, structure: Structure, draws: Draws) -> Any:
    """The metric that draws say is right."""
    if structure.tables:
        points = int(np.clip(AVERAGED_PRODUCTS // max(1, structure.rest), 2, AVERAGED))
        try:
            return arrow_from_draws(
                setup.posterior, draws.phi, structure.tables, transforms=setup.transforms, points=points
            )
        except ValueError:  # not positive definite on average, which so few points may leave
            pass
    numbers = flat_draws(draws.phi).reshape(-1, structure.size)
    center = jax.tree.map(lambda leaf: np.asarray(np.asarray(leaf, np.float64).mean(axis=(0, 1))), draws.phi)
    return _diagonal(center, np.maximum(numbers.std(axis=0), 1e-12), structure)


def _diagonal(center: PyTree, scales: np.ndarray, structure: Structure) -> Any:
    """A metric of scales alone; for tables an arrow without coupling, so that the one that takes its place compiles nothing."""
    if not structure.tables:
        return LowRank(center, scales, np.zeros((len(scales), 0)), np.zeros(0))
    parts = parts_of(center, structure.tables)
    factors = [
        np.eye(rows.shape[1]) * rows[..., None] for part in parts for rows in rows_of(center, part, scales[None])
    ]
    couplings = [np.zeros((factor.shape[0] * factor.shape[1], structure.rest)) for factor in factors[:-1]]
    return Arrow(center, tuple(factors), tuple(map(np.linalg.inv, factors)), tuple(couplings), parts)
