"""How the terms of a PyMC model are cut into rows: which of its arrays have the rows, and whether the parts say what the whole says.

Nothing follows from a length alone. An array has the rows where another order of some of them changes the terms of these rows and of no
others. Then the arrays are cut, and the terms of every row must be what they were in the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.frontends._pymc_graphs import Array, JaxFunction, Key, arrays_in, has_scan, with_inputs
from inbounds.frontends._pymc_model import Factor, PyMCModel
from inbounds.precision import in_double

__all__ = ["Cut", "Rows", "rows_of"]

CLOSE = 1e-9  # two doubles are one where they differ by less than this share of the largest
CHUNK = 2**18  # rows of a part of the data at most, where the parts are compared to the whole
SHORT = 1 / 20  # of the rows of the longest factor, up to which another is looked at in whole

Theta = dict[str, Any]


class Cut(NamedTuple):
    """A factor as a function of some of its rows.

    Attributes:
        name: of the factor.
        length: its number of rows.
        places: the arrays that have its rows, and which of their axes that is.
        function: of the free variables and of these arrays, the rows in front.
        columns: what the data of the posterior call the arrays, and the weights of the rows where there are any.
    """

    name: str
    length: int
    places: dict[Key, int]
    function: JaxFunction
    columns: tuple[str, ...] = ()

    def terms(self, theta: Theta, batch: dict[str, Any]) -> jax.Array:
        """One log density per row."""
        arrays = [batch[column] for column in self.columns]
        values = self.values(theta, arrays[: len(self.places)])
        terms = jnp.sum(values, axis=tuple(range(1, values.ndim)))
        return terms * arrays[-1].astype(terms.dtype) if len(arrays) > len(self.places) else terms

    def values(self, theta: Theta, arrays: list[Any]) -> jax.Array:
        """The log density element by element, the rows in front."""
        return self.function(theta | dict(enumerate(arrays)))[self.name]


class Rows(NamedTuple):
    """What has been found: the factors that are cut, the data that they read, and the names of those looked at in whole.

    `reason` says why there are no minibatches; None where there are, and in models without data.
    """

    cuts: list[Cut]
    data: dict[str, np.ndarray]
    whole: list[str]
    reason: str | None


def rows_of(model: PyMCModel, whole: Callable[[Theta], dict[str, jax.Array]], points: list[Theta]) -> Rows:
    """How a model is cut.

    Args:
        model: the model.
        whole: the log densities of its factors by name, element by element.
        points: where to look, in double precision.
    """
    with in_double():
        values = [jax.tree.map(np.asarray, whole(point)) for point in points]
        found = {name: _cut(model, f, points, [v[name] for v in values]) for name, f in model.factors.items()}
    cuts = {name: cut for name, cut in found.items() if isinstance(cut, Cut)}
    longest = max((cut.length for cut in cuts.values()), default=0)
    cuts = {name: cut for name, cut in cuts.items() if cut.length > SHORT * longest}
    for name, factor in model.factors.items():
        if name not in cuts and _reach(factor, values[0][name]) >= max(longest, 2):
            return Rows([], {}, list(found), str(found[name]))
    data, named = _data_of(model, list(cuts.values()), longest)
    return Rows(named, data, [name for name in found if name not in cuts], None)


def _cut(model: PyMCModel, factor: Factor, points: list[Theta], expected: list[np.ndarray]) -> Cut | str:
    """A factor as a function of its rows, or why it is none."""
    if factor.graph.ndim == 0:
        return _one_number(model, factor)
    length = expected[0].shape[0]
    arrays = {key: array for key, array in arrays_in([factor.graph]).items() if length in array.values.shape}
    if length < 2 or not arrays:
        return f"{factor.name!r} has no rows of data"
    # What is the same in all rows needs no column. Row numbers may be data, such as a time, or the way to look something up in each row; then
    # their cut has numbers of its own.
    varying = {key: array for key, array in arrays.items() if not _is_the_same_in_all_rows(array.values, length)}
    data = {key: array for key, array in arrays.items() if not _are_row_numbers(array.values)}
    tries = [some for some in (varying, arrays, data) if some]
    problem = ""
    for some in (some for place, some in enumerate(tries) if some not in tries[:place]):
        try:
            cut = _compiled(model, factor, some, length)
            own = _with_rows_of_their_own(cut, some, points[0])
            if len(own) < len(some):
                cut = _compiled(model, factor, {key: some[key] for key in own}, length)
            if _adds_up(cut, some, points, expected):
                return cut
            problem = problem or "the terms of some rows change when other rows are left out"
        except Exception as error:
            first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            problem = problem or f"it does not run on fewer rows ({first})"
    return _why_not(model, factor, length, points[0], problem)


def _compiled(model: PyMCModel, factor: Factor, arrays: dict[Key, Array], length: int) -> Cut:
    """The factor with inputs in the place of these arrays, the axis of the rows in front."""
    import pytensor.tensor as pt

    places = {key: array.values.shape.index(length) for key, array in arrays.items()}
    inputs: list[Any] = []
    replacements: dict[Any, Any] = {}
    for key, array in arrays.items():
        shape = [length, *(size for axis, size in enumerate(array.values.shape) if axis != places[key])]
        rows = pt.tensor(dtype=_wide(array.values).dtype.name, shape=shape)
        order = list(range(1, len(shape)))
        order.insert(places[key], 0)
        inputs.append(rows)
        replacements |= dict.fromkeys(array.nodes, rows.dimshuffle(order))
    (graph,) = with_inputs([factor.graph], replacements)
    function = JaxFunction(model.inputs | dict(enumerate(inputs)), {factor.name: graph}, rows=range(len(inputs)))
    return Cut(factor.name, length, places, function)


def _in_front(cut: Cut, arrays: dict[Key, Array]) -> list[np.ndarray]:
    """The arrays of a cut with the rows in front."""
    return [np.moveaxis(_wide(arrays[key].values), axis, 0) for key, axis in cut.places.items()]


def _wide(values: np.ndarray) -> np.ndarray:
    """Whole numbers of 64 bits: JAX makes single floats of narrower ones."""
    return values.astype(np.int64) if values.dtype.kind in "iu" else values


def _with_rows_of_their_own(cut: Cut, arrays: dict[Key, Array], theta: Theta) -> list[Key]:
    """The arrays of which another order of some rows changes no terms but those of these rows."""
    function = jax.jit(lambda *rows: cut.values(theta, list(rows)))
    given = _in_front(cut, arrays)
    before = np.asarray(function(*given))
    some = np.random.default_rng(0).permutation(cut.length)[: max(2, cut.length // 2)]
    others = np.setdiff1d(np.arange(cut.length), some)
    found = []
    for place, key in enumerate(cut.places):
        rows = given[place].copy()
        rows[some] = rows[np.roll(some, 1)]
        after = np.asarray(function(*given[:place], rows, *given[place + 1 :]))
        if _close(before[others], after[others]):
            found.append(key)
    return found


def _are_row_numbers(values: np.ndarray) -> bool:
    return values.dtype.kind in "iu" and np.array_equal(values.ravel(), np.arange(values.size))


def _is_the_same_in_all_rows(values: np.ndarray, length: int) -> bool:
    rows = np.moveaxis(values, values.shape.index(length), 0)
    return bool((rows == rows[:1]).all())


def _adds_up(cut: Cut, arrays: dict[Key, Array], points: list[Theta], expected: list[np.ndarray]) -> bool:
    """Whether the terms of all the rows, looked at in parts and in another order, are those of the whole."""
    rows = np.random.default_rng(1).permutation(cut.length)
    width = max(1, min(cut.length // 2, CHUNK))
    given = _in_front(cut, arrays)
    function = jax.jit(lambda theta, some: cut.values(theta, some))
    for theta, whole in zip(points, expected, strict=True):
        for start in [*range(0, cut.length - width, width), cut.length - width]:
            some = rows[start : start + width]
            part = np.asarray(function(theta, [array[some] for array in given]))
            if part.shape != whole[some].shape or not _close(part, whole[some]):
                return False
    return True


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    finite = np.abs(one[np.isfinite(one)])
    return np.allclose(one, other, rtol=CLOSE, atol=CLOSE * finite.max(initial=0.0), equal_nan=True)


def _reach(factor: Factor, values: np.ndarray) -> int:
    """The rows that a factor reads when it is looked at in whole."""
    lengths = [max(array.values.shape) for array in arrays_in([factor.graph]).values()]
    return max([*values.shape[:1], *lengths], default=0)


def _data_of(model: PyMCModel, cuts: list[Cut], longest: int) -> tuple[dict[str, np.ndarray], list[Cut]]:
    """The arrays of all the cuts by name, and the cuts with these names.

    Where a factor has fewer rows than the longest, they are repeated, and count the less.
    """
    arrays = arrays_in([factor.graph for factor in model.factors.values()])
    data: dict[str, np.ndarray] = {}
    names: dict[tuple[Key, int], str] = {}
    named = []
    for cut in cuts:
        columns = []
        for key, axis in cut.places.items():
            if (key, axis) not in names:
                names[key, axis] = _new_name(arrays[key].name or "constant", data)
                rows = np.moveaxis(_wide(arrays[key].values), axis, 0)
                data[names[key, axis]] = rows[np.arange(longest) % cut.length]
            columns.append(names[key, axis])
        if cut.length < longest:
            places = np.arange(longest) % cut.length
            columns.append(_new_name(f"weight of {cut.name}", data))
            data[columns[-1]] = 1 / np.bincount(places)[places]
        named.append(cut._replace(columns=tuple(columns)))
    return data, named


def _new_name(name: str, taken: dict[str, Any]) -> str:
    names = [name, *(f"{name} {number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


# -- why a factor cannot be cut -------------------------------------------------------------------------------------------


def _one_number(model: PyMCModel, factor: Factor) -> str:
    if factor.name not in model.observed:
        return (
            f"the potential {factor.name!r} is one number, in which no row can be left out. Let it have one term per row: leave out the "
            "sum in pm.Potential"
        )
    return (
        f"the log density of {factor.name!r} ({factor.kind}) is one number for all its values, which are not independent given the "
        "parameters. A Gaussian process, a time series or a spatial field has no rows (pm.gp.HSGP gives a process a basis, and rows)"
    )


def _why_not(model: PyMCModel, factor: Factor, length: int, theta: Theta, problem: str) -> str:
    from pytensor.graph.traversal import ancestors

    stem = factor.name.removesuffix("_observed")
    if stem != factor.name and f"{stem}_unobserved" in model.inputs:
        return (
            f"{stem!r} has gaps, in the place of which PyMC puts latents ({stem}_unobserved): leave these rows out of the data, "
            "and predict them from the draws"
        )
    read = set(ancestors([factor.graph]))
    for name in (name for name, node in model.inputs.items() if node in read):
        if np.shape(theta[name])[:1] == (length,):
            return (
                f"the latent {name!r} has one value per row of {factor.name!r}, of which a minibatch would move only its own. Integrate it "
                "out where that can be done"
            )
        if name.endswith("_unobserved"):
            return (
                f"{factor.name!r} depends on {name!r}, the values that are missing in the data: they are latent, and belong to single rows. "
                "Leave these rows out where that can be done"
            )
    if has_scan(factor.graph):
        return f"the log density of {factor.name!r} ({factor.kind}) is a loop (scan) over its rows, which are not independent"
    return f"{factor.name!r} cannot be cut into rows: {problem}"
