"""What a run returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.arguments import whole_number
from inbounds.display import escape
from inbounds.kernels._base import Kernel
from inbounds.sampling import verdict
from inbounds.sampling.convergence import Convergence, convergence
from inbounds.sampling.conversions import each_draw, of_all_draws, theta_of
from inbounds.sampling.screen import look
from inbounds.sampling.summary import Summary, labels, summarise
from inbounds.sampling.to_arviz import array_names, data_tree
from inbounds.space import is_constraint
from inbounds.transforms._supports import bounds
from inbounds.trees import PyTree, variable_name

if TYPE_CHECKING:
    from inbounds.posterior import Posterior
    from inbounds.sampling.leave_one_out import LeaveOneOut

__all__ = ["Draws", "next_to"]

MOST_CONVERTED = 2**19  # numbers of all the draws together that are turned into theta at the end of a run


@dataclass
class Draws:
    """Posterior draws, leading axes (chain, draw). Those of a run with a `store` stay there, and are read when used.

    Attributes:
        phi: draws of the unbounded proxy, as the chain has them; `theta` is made from it when asked for.
        stats: one number per draw: `gradient_norm`, `noise_variance` (NaN where unknown), `clamped`, `step_size`.
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
        each_quantity: what makes them, where it has been compiled.
        drawn: what was drawn afterwards, given each draw of theta, by name; it counts among the deterministics.
        data_version: of the posterior's data, how often they had been given; None where nobody knows.
        known: of draws that were loaded, what a file says in the place of their model.

    Example:
        >>> posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
        >>> draws = ib.sample(ib.sgld(posterior), 0.05, 150, burn_in=100, num_chains=2, progress=False)
        >>> draws.num_chains, draws.num_draws, draws.flat()["x"].shape
        (2, 50, (100,))
        >>> print(str(draws.summary()).splitlines()[0].split()[:3])
        ['variable', 'mean', 'sd']
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
    each_quantity: Callable[[PyTree], Any] | None = field(default=None, repr=False)
    drawn: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    data_version: int | None = field(default=None, repr=False)
    known: dict[str, Any] = field(default_factory=dict, repr=False)
    _convergence: dict[str, Convergence] = field(default_factory=dict, repr=False)

    @cached_property
    def theta(self) -> PyTree:
        """Draws of theta, strictly inside the support: a tree of arrays (chain, draw, ...)."""
        if self.phi is None:
            raise ValueError("This run collected running statistics and stored no draws: see `draws.collected`.")
        return theta_of(self.kernel, self.phi) if self.stored_theta is None else self.stored_theta

    @property
    def num_chains(self) -> int:
        """How many chains ran."""
        result: int = self.stats["gradient_norm"].shape[0]
        return result

    @property
    def num_draws(self) -> int:
        """How many draws each chain kept."""
        result: int = self.stats["gradient_norm"].shape[1]
        return result

    @property
    def posterior(self) -> Posterior:
        """What was sampled."""
        if self.kernel.posterior is None:
            raise ValueError("A file of draws does not hold their posterior: give it, as in ib.load(path, posterior).")
        return self.kernel.posterior

    @property
    def has_its_data(self) -> bool:
        """Whether the posterior has the data that the draws were made of: others may have taken their place."""
        return self.data_version in (None, self.posterior.version)

    def check_data(self) -> None:
        """Raise a ValueError where it has not."""
        if not self.has_its_data:
            raise ValueError(
                "The data of the posterior have been given anew since these draws were made, so that its rows may be others. Draw again."
            )

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
        """Draws of the functions of theta that the posterior names (`numpyro.deterministic`), and of what was drawn afterwards, by name."""
        return self._deterministics | self.drawn

    def functions_of(self, theta: PyTree) -> dict[str, np.ndarray]:
        """Deterministics and quantities at other draws of theta, by name."""
        return self._deterministics_of(theta) | self._quantities_of(theta)

    @cached_property
    def _deterministics(self) -> dict[str, np.ndarray]:
        known: dict[str, np.ndarray] = self.known.get("deterministics", {})
        return known if self.known else self._deterministics_of(self.theta)

    @cached_property
    def _quantities(self) -> dict[str, np.ndarray]:
        known: dict[str, np.ndarray] = self.known.get("quantities", {})
        return known | self._quantities_of(self.theta)

    def _deterministics_of(self, theta: PyTree) -> dict[str, np.ndarray]:
        posterior = self.kernel.posterior
        if not jax.eval_shape(posterior.deterministics, _one(theta)):
            return {}
        result: dict[str, np.ndarray] = of_all_draws(posterior.compiled.of(_deterministics_of_each, posterior), theta)
        return result

    def _quantities_of(self, theta: PyTree) -> dict[str, np.ndarray]:
        if not self.quantities:
            return {}
        for name, function in self.quantities.items():
            shape: Any = jax.eval_shape(function, _one(theta))
            if not isinstance(shape, jax.ShapeDtypeStruct):
                raise ValueError(
                    f"The quantity {name!r} must return one array or number; got {type(shape).__name__}. Give each part a name of its own."
                )
        result: dict[str, np.ndarray] = of_all_draws(self.each_quantity or each_quantity(self.quantities), theta)
        return result

    def flat(self) -> PyTree:
        """Draws of theta with the chains one after the other, as `numpyro.infer.Predictive` takes them."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.theta)

    def to_arviz(
        self, *, log_likelihood: bool = False, coords: dict[str, Any] | None = None, dims: dict[str, Any] | None = None
    ) -> Any:
        """An xarray DataTree as ArviZ takes it: `posterior`, `sample_stats` and, where there are data, `observed_data`.

        Names there have "." for "/", as in a store: `layers/0/weight` is called `layers.0.weight`.

        Args:
            log_likelihood: add the log likelihood of every row at every draw, for `arviz_stats.loo`. It has the size
                chains x draws x data: thin first where that is too much.
            coords: names along the dimensions, such as `{"city": ["Oslo", "Bergen"]}`.
            dims: the dimensions of each variable, such as `{"rate": ["city"]}`.

        Returns:
            A tree that ArviZ's functions take.
        """
        return data_tree(self, log_likelihood, coords, dims)

    def summary(self) -> Summary:
        """Mean, sd, quantiles, effective sample sizes (bulk and tail) and R-hat of every number, and what `warnings` says."""
        return summarise(self)

    def loo(self, *, batch_rows: int | None = None, progress: bool = True) -> LeaveOneOut:
        """Leave-one-out cross-validation by Pareto-smoothed importance sampling: how well the model predicts rows that it has not seen.

        The rows are looked at slice by slice, so that memory does not grow with them: about 0.5 GB, and three numbers per row.

        Args:
            batch_rows: rows at once; None: as many as memory is meant for.
            progress: whether to show a bar.

        Returns:
            The expected log density of new rows with its standard error, and what stands behind it.

        Warns:
            UntrustworthyWarning: Pareto k of some rows is too large.
        """
        from inbounds.sampling.leave_one_out import leave_one_out

        return leave_one_out(self, batch_rows, progress)

    def plot(self, names: str | Sequence[str] | None = None, *, most: int = 8) -> Any:
        """A picture: of each number its trace, the ranks of its chains, and its marginal beside the bounds; and how the error fell.

        Chains that agree have ranks that lie level. Where there is a certificate, the marginal has the mean with twice its total error, and
        the last row shows twice the largest total error against time.

        Args:
            names: of the variables, deterministics and quantities; None: all.
            most: numbers that are shown.

        Returns:
            A figure of matplotlib: `figure.savefig("draws.png")`. Notebooks show it.

        Raises:
            ImportError: matplotlib is not installed; the message says how to.
            ValueError: there are no draws, or no variable of that name.

        Example:
            >>> draws = ib.sample(ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)})), 0.1, 99, num_chains=2, progress=False)
            >>> len(draws.plot("x").axes)
            3
        """
        from inbounds.sampling.pictures import picture

        return picture(self, names, whole_number("most", most))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the draws to a file, for `ib.load`: with their certificate and quantities, and without their model.

        The file holds numbers and texts, and no code. For draws that do not fit into memory, or that others are to read while the run goes
        on, there is `store`.

        Args:
            path: the file; one that is there is replaced.

        Raises:
            ValueError: the run stored no draws.

        Example:
            >>> draws = ib.sample(ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)})), 0.1, 99, num_chains=2, progress=False)
            >>> draws.save("draws.npz")
            >>> ib.load("draws.npz").summary()["x"] == draws.summary()["x"]
            True
        """
        from inbounds.sampling.saved import save

        save(self, path)

    def predict(
        self,
        f: Callable[..., Any],
        data: PyTree,
        *,
        batch_size: int | None = None,
        reduce: Callable[[PyTree], PyTree] | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> PyTree:
        """`f` at every draw and every row: what the posterior predicts.

        Rows are looked at in batches, and draws in tiles, so that a device never holds them all.

        Args:
            f: `f(theta, batch)`, one value per row, of any shape, or a tree of them; or `f(theta, batch, key)`, which draws what is random:
                each draw and row has a key of its own, whatever the batches.
            data: rows as those of the posterior: a tree of arrays, a table, or a stream from disk.
            batch_size: rows at once; None: as many as memory is meant for.
            reduce: of values with the axes (draw, row, ...), what is kept of each row: `lambda values: values.mean(axis=0)`. Without it all
                are, and memory grows with rows times draws.
            seed: of the keys.
            progress: whether to show a bar.

        Returns:
            Arrays (chain, draw, row, ...); with `reduce`, what it returns, (row, ...).

        Raises:
            ValueError: `f` does not return one value per row, or needs the other rows of its batch.
            MemoryError: the values do not fit into memory.

        Example:
            >>> draws = ib.sample(ib.sgld(ib.Posterior({"w": dist.Normal(0.0, 1.0)})), 0.1, 99, num_chains=2, progress=False)
            >>> draws.predict(lambda theta, x: theta["w"] * x, np.arange(5.0), progress=False).shape
            (2, 99, 5)
        """
        from inbounds.sampling.predictions import predictions

        return predictions(self, f, data, batch_size, reduce, seed, progress)

    def warnings(self) -> list[str]:
        """What a careful reader should know of these draws: nothing, for a healthy run. Each note names its section of `docs/warnings.md`."""
        return [str(note) for note in self.notes()]

    def notes(self, quick: bool = False) -> list[verdict.Note]:
        """The same, with how grave each is.

        Args:
            quick: for the end of a run. Functions of theta are left out, and of many numbers those are looked at that seem worst.
        """
        if not self.num_draws:
            return [verdict.Note("no-draws", self._why_none(), loud=False)]
        clamped = float(np.mean(self.stats["clamped"]))
        of_noise = (verdict.restarted if self.kernel.restarts else verdict.noise_is_absorbed)(clamped)
        notes = verdict.too_short(self.num_draws)
        if self.kernel.one_temperature is None:
            return of_noise + notes + verdict.of_several_temperatures()
        if notes or self.phi is None:
            return of_noise + self.of_steps + notes
        moves = self.kernel.one_temperature > 0  # at 0 a chain comes to rest
        found = self._quickly_found(moves) if quick else self._found(moves)
        return of_noise + self.of_steps + found

    def _found(self, moves: bool) -> list[verdict.Note]:
        """Notes on all the numbers and their draws."""
        variables = self.variables()
        names = [label for name, x in variables.items() for label in labels(name, x.shape[2:])]
        each = [self.convergence_of(name, x) for name, x in variables.items()]
        notes = verdict.chains_agree(
            names, Convergence(*map(np.concatenate, zip(*each, strict=True))), self.num_chains, self.num_draws
        )
        return notes + self.at_bounds() + (self._standing() if moves else [])

    def _standing(self) -> list[verdict.Note]:
        """Notes on what moves and did not: of theta the support may fix numbers, such as the diagonal of a correlation matrix."""
        moved = _shapes(self.phi)
        still = [_stand_still(np.asarray(x).reshape(*x.shape[:2], -1)) for _, x in moved]
        return verdict.moves([n for name, x in moved for n in labels(name, x.shape[2:])], np.concatenate(still))

    def _quickly_found(self, moves: bool) -> list[verdict.Note]:
        """The same on those that seem worst. Of the proxy: ranks are those of theta where each number has a bound of its own."""
        is_small = sum(leaf.size for leaf in jax.tree.leaves(self.phi)) <= MOST_CONVERTED
        looked = look(_shapes(self.theta if is_small else self.phi), self.num_steps, may_be_fixed=is_small)
        chains, length, _ = looked.draws.shape
        notes = verdict.chains_agree(looked.names, looked.convergence(), chains, length, looked.numbers)
        if moves:
            notes += self._standing() if is_small else verdict.moves(looked.names, _stand_still(looked.draws))
        if notes and not looked.is_all:
            notes.append(verdict.Note("looked-at", str(looked)))
        return notes + (self.at_bounds() if is_small else [])

    def convergence_of(self, name: str, draws: np.ndarray) -> Convergence:
        """ESS and R-hat of every number of a variable, in the order of `labels`; computed once."""
        if name not in self._convergence:
            self._convergence[name] = convergence(np.asarray(draws).reshape(*draws.shape[:2], -1))
        return self._convergence[name]

    def at_bounds(self) -> list[verdict.Note]:
        """Notes on variables whose draws sit at the floats next to a bound."""
        names: list[str] = []
        shares: list[np.ndarray] = []
        ends = self.ends()
        for name, leaf in _shapes(self.theta):
            theta, (lower, upper) = np.asarray(leaf), ends[name]
            names.extend(labels(name, theta.shape[2:]))
            shares.append(np.mean(next_to(theta, lower, 1) | next_to(theta, upper, -1), axis=(0, 1)).ravel())
        return verdict.off_the_bounds(names, np.concatenate(shares))

    def ends(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(lower, upper) end of each variable of theta, by name; infinite where there is none."""
        found: dict[str, tuple[np.ndarray, np.ndarray]] = dict(self.known.get("ends", {}))
        if found:
            return found

        def look(path: tuple[Any, ...], support: Any, subtree: PyTree) -> None:
            lower, upper = (np.asarray(end) for end in bounds(support))
            for subpath, _ in jax.tree_util.tree_leaves_with_path(subtree):
                found[variable_name((*path, *subpath))] = lower, upper

        jax.tree_util.tree_map_with_path(look, self.kernel.space.supports, self.theta, is_leaf=is_constraint)
        return found

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


def each_quantity(quantities: dict[str, Callable[[PyTree], Any]]) -> Callable[[PyTree], Any]:
    """All of them at once, compiled."""
    functions = dict(quantities)
    return each_draw(lambda theta: {name: jnp.asarray(function(theta)) for name, function in functions.items()})


def _deterministics_of_each(posterior: Posterior, theta: PyTree) -> dict[str, jax.Array]:
    result: dict[str, jax.Array] = jax.vmap(jax.vmap(posterior.deterministics))(theta)
    return result


def _one(theta: PyTree) -> PyTree:
    """The shapes of one draw."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), theta)


def _stand_still(draws: np.ndarray) -> np.ndarray:
    """Whether all draws of a chain are the same, axes (chain, draw, number)."""
    same: np.ndarray = (draws == draws[:, :1]).all(axis=1).any(axis=0)
    return same


def next_to(theta: np.ndarray, end: np.ndarray, direction: int) -> np.ndarray:
    """Whether theta is the float next to an end of its support, or closer to 0 than a float of full precision."""
    if not np.isfinite(end).all():
        return np.zeros(theta.shape, bool)
    end = np.broadcast_to(end.astype(theta.dtype), theta.shape[2:])
    nearest = np.nextafter(end, np.asarray(direction * np.inf, theta.dtype))
    tiny = np.where(
        end == 0, 4 * direction * np.finfo(theta.dtype).tiny, nearest
    )  # transforms keep off what is flushed to 0
    result: np.ndarray = theta <= tiny if direction > 0 else theta >= tiny
    return result


def _shapes(tree: PyTree) -> list[tuple[str, np.ndarray]]:
    return [(variable_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
