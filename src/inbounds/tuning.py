"""Step sizes by the tree-structured Parzen estimator (TPE; Bergstra, Bardenet, Bengio & Kégl, 2011), through Optuna.

`tune` minimises a loss over one step size, or over several named parameters. It keeps its trials in memory, in a journal
file, or in a database that many machines share; run again with the same name and storage, it goes on where it stopped.

Workers that share a study divide its trials exactly. A trial belongs to the worker that asked for it, and shows a sign of
life while it runs; one that shows none for a while, because its worker was killed, is given up and asked for again. Nobody's clock
is compared with anybody else's: a worker watches whether the signs of the others change.
"""

import contextlib
import dataclasses
import html
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from inbounds.namespaces import namespace
from inbounds.sampling.interrupts import end_like_ctrl_c

__all__ = [
    "Integer",
    "LogUniform",
    "NothingFoundError",
    "StorageError",
    "TuningInterrupted",
    "TuningResult",
    "Uniform",
    "tune",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)


_EDGE = 0.05  # an optimum this close to an end, as a share of the range, is at the edge
SIGN_SECONDS = 10.0  # between two signs of life of a running trial
GRACE_SECONDS = 60.0  # without a sign of life, after which a trial is given up
POLL_SECONDS = 0.5  # between two looks at the others, when they work on all that is left
_SIGN = "sign of life"

Storage = str | os.PathLike[str] | None
"""None for memory, a path for a journal file, or the URL of a database."""


class LogUniform(NamedTuple):
    """A positive number searched on the log scale between `low` and `high`.

    Args:
        low: the smallest, above 0.
        high: the largest.

    Example:
        >>> round(ib.tuning.LogUniform(1e-4, 1.0).place(1e-2), 6)
        0.5
    """

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where in the range a value lies, from 0 to 1.

        Args:
            value: a number in the range.

        Returns:
            A share of the range, on the log scale.
        """
        return math.log(value / self.low) / math.log(self.high / self.low)

    def suggest(self, trial: Any, name: str) -> float:
        """Ask a trial for a value.

        Args:
            trial: an Optuna trial.
            name: of the parameter.

        Returns:
            The value.
        """
        return float(trial.suggest_float(name, self.low, self.high, log=True))


class Uniform(NamedTuple):
    """A number searched on the linear scale between `low` and `high`.

    Args:
        low: the smallest.
        high: the largest.

    Example:
        >>> ib.tuning.Uniform(0.0, 2.0).place(1.0)
        0.5
    """

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where in the range a value lies, from 0 to 1.

        Args:
            value: a number in the range.

        Returns:
            A share of the range.
        """
        return (value - self.low) / (self.high - self.low)

    def suggest(self, trial: Any, name: str) -> float:
        """Ask a trial for a value.

        Args:
            trial: an Optuna trial.
            name: of the parameter.

        Returns:
            The value.
        """
        return float(trial.suggest_float(name, self.low, self.high))


class Integer(NamedTuple):
    """A whole number between `low` and `high`, both included.

    Args:
        low: the smallest.
        high: the largest.

    Example:
        >>> ib.tuning.Integer(1, 5).place(3)
        0.5
    """

    low: int
    high: int

    def place(self, value: int) -> float:
        """Where in the range a value lies, from 0 to 1.

        Args:
            value: a number in the range.

        Returns:
            A share of the range.
        """
        return (value - self.low) / (self.high - self.low)

    def suggest(self, trial: Any, name: str) -> int:
        """Ask a trial for a value.

        Args:
            trial: an Optuna trial.
            name: of the parameter.

        Returns:
            The value.
        """
        return int(trial.suggest_int(name, self.low, self.high))


Parameter = LogUniform | Uniform | Integer


class NothingFoundError(RuntimeError):
    """No trial had a finite loss.

    Example:
        >>> try:
        ...     ib.tune(lambda step_size: np.nan, 1e-4, 1.0, trials=2, progress=False)
        ... except ib.tuning.NothingFoundError:
        ...     print("try smaller step sizes")
        try smaller step sizes
    """


class StorageError(RuntimeError):
    """The database of a study cannot be reached or used. The message shows nothing secret of its URL."""


class TuningInterrupted(KeyboardInterrupt):
    """Ctrl-C during `tune`. Finished trials stay in the storage; `result` holds the best so far, or None.

    It is a KeyboardInterrupt, so that a program that is stopped does stop; catch it by name to go on with `result`.

    Example:
        >>> try:
        ...     found = ib.tune(lambda step_size: (np.log10(step_size) + 2) ** 2, 1e-4, 1.0, trials=3, progress=False)
        ... except ib.tuning.TuningInterrupted as error:
        ...     found = error.result
        >>> len(found.trials)
        3
    """

    def __init__(self, result: "TuningResult | None", finished: int, trials: int):
        super().__init__(f"tuning stopped after {finished} of {trials} trials")
        self.result = result
        end_like_ctrl_c()


@dataclasses.dataclass(frozen=True, repr=False)
class TuningResult:
    """What a search found.

    Args:
        best_value: the best loss.
        best_params: the parameters that gave it.
        trials: every finished trial in order, as `{"number", "state", "value", **parameters}`; a trial that went
            non-finite has the state "pruned" and the value nan.
        parameters: the ranges that were searched.
        direction: "minimize" or "maximize".
        name: of the study.

    Example:
        >>> found = ib.tune(lambda step_size: (np.log10(step_size) + 2) ** 2, 1e-4, 1.0, trials=5, progress=False)
        >>> found.best_params.keys(), len(found.trials)
        (dict_keys(['step_size']), 5)
    """

    best_value: float
    best_params: dict[str, Any]
    trials: list[dict[str, Any]]
    parameters: dict[str, Parameter]
    direction: str
    name: str

    @property
    def step_size(self) -> float:
        """The best step size."""
        if "step_size" not in self.best_params:
            raise AttributeError(f"no 'step_size' was searched, only {', '.join(self.best_params)}; see best_params.")
        return float(self.best_params["step_size"])

    @property
    def edges(self) -> dict[str, str]:
        """The parameters whose optimum is within 5% of an end of their (log) range, and which end: "low" or "high"."""
        places = {name: self.parameters[name].place(value) for name, value in self.best_params.items()}
        ends = {name: "low" if place < 0.5 else "high" for name, place in places.items()}
        return {name: ends[name] for name, place in places.items() if min(place, 1 - place) <= _EDGE}

    @property
    def at_edge(self) -> bool:
        """Whether an optimum sits at an end of its range, so that a wider one may hold a better; `edges` says which."""
        return bool(self.edges)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The trials as columns: number, state, value, and one for each parameter."""
        return {key: np.array([trial[key] for trial in self.trials]) for key in self.trials[0]}

    def __repr__(self) -> str:
        best = ", ".join(f"{name}={value:.4g}" for name, value in self.best_params.items())
        return f"TuningResult({best}: {self.best_value:.4g} in {self._counts()}{self._edge_note()})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{value:.4g}</td>"
            f"<td>{self.parameters[name].low:g} to {self.parameters[name].high:g}</td>"
            f"<td>{'at the ' + self.edges[name] + ' end' if name in self.edges else ''}</td></tr>"
            for name, value in self.best_params.items()
        )
        title = f"{html.escape(self.name)}: best {self.best_value:.4g} in {self._counts()}"
        return f"<table><caption>{title}</caption><tbody>{rows}</tbody></table>"

    def _counts(self) -> str:
        pruned = sum(trial["state"] == "pruned" for trial in self.trials)
        return f"{len(self.trials)} trials" + (f", {pruned} non-finite" if pruned else "")

    def _edge_note(self) -> str:
        return "".join(f"; {name} at the {end} end of its range" for name, end in self.edges.items())


def tune(
    objective: Callable[..., Any],
    low: float = 1e-7,
    high: float = 1.0,
    trials: int = 100,
    seed: int = 0,
    storage: Storage = None,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    name: str = "tune",
    batch: int = 1,
    progress: bool = True,
    direction: str = "minimize",
) -> TuningResult:
    """Search for the step size, or for several parameters, with the smallest loss.

    A trial is pruned, and the search goes on, when its loss is not finite or the objective raises `FloatingPointError`
    or the library's `NonFiniteError`; any other exception propagates, and the finished trials stay in the storage.

    The search is determined by the seed. A study that was interrupted and resumed gives the trials of one that was not,
    provided that one process at a time worked on it and none was killed in the middle of a trial.

    Args:
        objective: `objective(step_size) -> loss`. With `parameters` it gets each as a keyword argument. With `batch`
            above 1 it gets arrays of that length and returns as many losses.
        low, high: the range of the step size, searched on the log scale.
        trials: how many finished trials, pruned ones and those already in the storage included, end the search: exactly
            so many, however many workers share the study and whichever of them are killed.
        seed: of the search.
        storage: None for memory, a path for a journal file, or a database URL such as `postgresql://...`, through which
            several machines can work on one study (`pip install "inbounds[postgres]"`). The URL's password is never shown.
        parameters: what to search instead of one step size: names to `LogUniform`, `Uniform` or `Integer`.
        name: of the study; the same name in the same storage is gone on with.
        batch: trials asked at once, for an objective vectorised on the device. It always sees arrays of this length:
            the last batch is padded by repetition, and the surplus losses are dropped.
        progress: show a bar, when the output is a terminal.
        direction: "minimize" or "maximize".

    Raises:
        TuningInterrupted: on Ctrl-C, with the best so far as `.result`.
        NothingFoundError: when no trial had a finite loss.
        StorageError: when the database cannot be reached.

    Returns:
        The best step size, and every trial.

    Example:
        >>> found = ib.tune(lambda step_size: (np.log10(step_size) + 2) ** 2, 1e-4, 1.0, trials=15, progress=False)
        >>> 1e-3 < found.step_size < 1e-1
        True
    """
    space = _space(low, high, parameters)
    _validate(objective, trials, seed, batch, direction, name)
    search = _Search(_optuna(), storage, name, direction, space, int(seed), shared=batch > 1 or storage is not None)
    with contextlib.closing(search):
        return _search(
            search, objective if parameters is None else _by_keyword(objective, space), trials, batch, progress
        )


def _search(search: "_Search", call: Callable[..., Any], trials: int, batch: int, progress: bool) -> TuningResult:
    """Run trials until there are enough."""
    with _bar(progress, trials, search.finished(), search.name) as bar:
        try:
            while (finished := search.finished()) < trials:
                bar.update(finished - bar.n)
                if not search.run(call, batch, trials):
                    time.sleep(POLL_SECONDS)  # others work on all that is left
            bar.update(search.finished() - bar.n)
        except KeyboardInterrupt:
            raise TuningInterrupted(search.result(), search.finished(), trials) from None
    result = search.result()
    if result is None:
        raise NothingFoundError(
            f"none of the {search.finished()} trials of {search.name!r} had a finite loss in {_describe(search.space)}; "
            "lower the upper end of the range, and check the objective at one small value by hand."
        )
    return result


class _Search:
    """An Optuna study, one batch of trials at a time."""

    def __init__(
        self,
        optuna: Any,
        storage: Storage,
        name: str,
        direction: str,
        space: dict[str, Parameter],
        seed: int,
        shared: bool,
    ):
        self.optuna, self.name, self.direction, self.space, self.seed = optuna, name, direction, space, seed
        self.shared = shared
        self.watches = storage is not None  # nobody else sees a study in memory
        # Running trials: their last sign of life, and when it was new here.
        self.seen: dict[int, tuple[Any, float]] = {}
        self.quiet = _quietly(optuna, storage)
        with self.quiet():
            self.storage = _create(lambda: _open(storage))
            self.study = optuna.create_study(
                storage=self.storage, study_name=name, direction=direction, load_if_exists=True
            )
            stored = self.study.user_attrs.get("parameters")
            found = self.study.direction.name.lower()
            if stored is None:
                self.study.set_user_attr("parameters", _describe(space))
        if found != direction or stored not in (None, _describe(space)):
            self.close()
            raise ValueError(
                f"the storage holds a study {name!r} that is to {found} over {stored}; this one is to {direction} over "
                f"{_describe(space)}. Give another `name`, or the same ranges."
            )

    def close(self) -> None:
        """Leave no connection to a database behind."""
        if hasattr(self.storage, "engine"):
            self.storage.remove_session()
            self.storage.engine.dispose()

    def run(self, call: Callable[..., Any], batch: int, trials: int) -> bool:
        """Ask for up to `batch` trials, evaluate them, and record what came out; False if none is left to ask for."""
        with self.quiet():
            free = trials - self.finished() - self._running()
            asked = [self._ask(trials) for _ in range(min(batch, free))]
        mine = [one for one in asked if one is not None]
        if not mine:
            return False
        pending = [trial for trial, _ in mine]
        try:
            with self._signs_of_life(pending):
                losses = _evaluate(call, [values for _, values in mine], batch, self.space)
            for trial, loss in zip(list(pending), losses, strict=True):
                with self.quiet():
                    self._tell(trial, loss)
                pending.remove(trial)
        finally:
            for trial in pending:
                with self.quiet():
                    self._end(trial, state=self.optuna.trial.TrialState.FAIL)
        return True

    def _ask(self, trials: int) -> tuple[Any, dict[str, float]] | None:
        trial = self.study.ask()
        # Seeded by its place among the trials that count, so that a study resumed after a failure repeats itself.
        failed = self.optuna.trial.TrialState.FAIL
        place = sum(t.number < trial.number and t.state != failed for t in self.study.get_trials(deepcopy=False))
        if place >= trials:  # another worker was faster; numbers are given in one order, so exactly `trials` go on
            self._end(trial, state=failed)
            return None
        seed = int(np.random.SeedSequence([self.seed, place]).generate_state(1)[0])
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed, multivariate=False, constant_liar=self.shared)
        return trial, {name: parameter.suggest(trial, name) for name, parameter in self.space.items()}

    def _tell(self, trial: Any, loss: float) -> None:
        if math.isfinite(loss):
            self._end(trial, loss)
        else:
            self._end(trial, state=self.optuna.trial.TrialState.PRUNED)

    def _end(self, trial: Any, loss: float | None = None, state: Any = None) -> None:
        """Record how a trial ended, unless another worker has given it up: then it is that one's to repeat."""
        with contextlib.suppress(self.optuna.exceptions.UpdateFinishedTrialError):
            self.study.tell(trial, loss, state=state, skip_if_finished=True)

    def _running(self) -> int:
        """How many trials run, here or elsewhere; those without a sign of life are given up."""
        states, now = self.optuna.trial.TrialState, time.monotonic()
        running = self.study.get_trials(deepcopy=False, states=(states.RUNNING,))
        count = 0
        for trial in running if self.watches else ():
            sign = trial.user_attrs.get(_SIGN)
            if trial.number not in self.seen or self.seen[trial.number][0] != sign:
                self.seen[trial.number] = (sign, now)
            if now - self.seen[trial.number][1] > GRACE_SECONDS:
                with contextlib.suppress(ValueError, self.optuna.exceptions.UpdateFinishedTrialError):
                    self.study.tell(trial.number, state=states.FAIL, skip_if_finished=True)
            else:
                count += 1
        return count

    @contextlib.contextmanager
    def _signs_of_life(self, pending: list[Any]) -> Iterator[None]:
        """While an objective runs, let the trials' other watchers know that it does."""
        if not self.watches:
            yield
            return
        ended = threading.Event()

        def show() -> None:
            count = 0
            while not ended.wait(SIGN_SECONDS):
                count += 1
                for trial in pending:
                    with contextlib.suppress(Exception):  # one sign less; the objective goes on
                        trial.set_user_attr(_SIGN, count)

        thread = threading.Thread(target=show, name="inbounds-tune", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _finished(self) -> list[Any]:
        states = self.optuna.trial.TrialState
        with self.quiet():
            return list(self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))

    def finished(self) -> int:
        return len(self._finished())

    def result(self) -> TuningResult | None:
        trials = [
            {
                "number": trial.number,
                "state": trial.state.name.lower(),
                "value": math.nan if trial.value is None else trial.value,
                **trial.params,
            }
            for trial in self._finished()
        ]
        complete = [trial for trial in trials if trial["state"] == "complete"]
        if not complete:
            return None
        best = (min if self.direction == "minimize" else max)(complete, key=lambda trial: trial["value"])
        values = {name: best[name] for name in self.space}
        return TuningResult(best["value"], values, trials, dict(self.space), self.direction, self.name)


def _evaluate(
    call: Callable[..., Any], values: list[dict[str, Any]], batch: int, space: Mapping[str, Any]
) -> list[float]:
    """The losses of the asked trials; nan for those that diverged."""
    try:
        if batch == 1:
            return [_number(call(*values[0].values()))]
        padded = values + [values[-1]] * (batch - len(values))
        losses = np.asarray(call(*(np.array([value[name] for value in padded]) for name in space)), float)
    except _divergences():
        return [math.nan] * len(values)
    if losses.shape != (batch,):
        raise ValueError(f"with batch={batch} the objective must return {batch} losses; got shape {losses.shape}.")
    return [float(loss) for loss in losses[: len(values)]]


def _number(loss: Any) -> float:
    if loss is None or np.size(loss) != 1:
        raise ValueError(f"the objective must return one number, the loss; got {type(loss).__name__} {loss!r}.")
    return float(np.asarray(loss).reshape(()))


def _by_keyword(objective: Callable[..., Any], space: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda *values: objective(**dict(zip(space, values, strict=True)))


def _divergences() -> tuple[type[Exception], ...]:
    """What prunes a trial. The driver's own error is looked up late: tuning does not need the driver."""
    try:
        from inbounds.sampling.health import NonFiniteError
    except ImportError:
        return (FloatingPointError,)
    return (FloatingPointError, NonFiniteError)


# -- storage and Optuna -------------------------------------------------------------------------------------------


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError('tuning needs Optuna: pip install "inbounds[tune]"') from error
    return optuna


def _open(storage: Storage) -> Any:
    """An Optuna storage from None, a path or a URL."""
    if storage is None:
        return None
    if isinstance(storage, str) and "://" in storage:
        return _open_database(storage)
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = Path(storage).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    return JournalStorage(JournalFileBackend(str(path)))


def _open_database(url: str) -> Any:
    """A database; PostgreSQL through psycopg, and given up after ten seconds where it does not answer."""
    from optuna.storages import RDBStorage

    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        return RDBStorage(url)
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise ImportError('a study in PostgreSQL needs psycopg: pip install "inbounds[postgres]"') from error
    options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}
    return RDBStorage(f"postgresql+psycopg://{rest}", engine_kwargs=options)


def _create(opened: Callable[..., Any]) -> Any:
    """Open a storage; again, where another worker made the tables of a new database at the same moment."""
    for pause in (0.2, 0.5, 1.0, 2.0):
        try:
            return opened()
        except Exception as error:
            text = str(error)
            if not any(
                sign in text for sign in ("already exists", "duplicate key", "StorageInternalError", "no such table")
            ):
                raise
            time.sleep(pause * (1 + os.getpid() % 7 / 7))
    return opened()


def _quietly(optuna: Any, storage: Storage) -> Callable[..., Any]:
    """A context in which Optuna neither logs nor warns, and in which no error shows the credentials of a URL."""
    secrets = _secrets(storage)

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
                yield
        except Exception as error:
            if not secrets:
                raise
            message = str(error)
            for secret, shown in secrets:
                message = message.replace(secret, shown)
            if isinstance(error, ImportError):
                raise ImportError(message) from None
            raise StorageError(f"the study's database failed: {type(error).__name__}: {message}") from None
        finally:
            optuna.logging.set_verbosity(verbosity)

    return context


def _secrets(storage: Storage) -> list[tuple[str, str]]:
    """What must not be shown of a database URL, and what to show instead."""
    if not (isinstance(storage, str) and "://" in storage):
        return []
    scheme, _, rest = storage.partition("://")
    shown = f"{scheme}://{'***@' if '@' in rest else ''}{rest.rpartition('@')[2].partition('?')[0]}"
    # The text between :// and the last @, split by hand: a URL that cannot be parsed must be hidden as well.
    password = rest.rpartition("@")[0].partition(":")[2]
    query = rest.partition("?")[2]
    return [(storage, shown), *((piece, "***") for piece in (password, unquote(password), query) if piece)]


@contextlib.contextmanager
def _bar(progress: bool, trials: int, finished: int, name: str) -> Iterator[Any]:
    from tqdm import tqdm

    with tqdm(total=trials, initial=finished, desc=name, disable=None if progress else True) as bar:
        yield bar


# -- what is refused ----------------------------------------------------------------------------------------------


def _space(low: float, high: float, parameters: Mapping[str, Parameter] | None) -> dict[str, Parameter]:
    space: dict[str, Parameter] = {"step_size": LogUniform(low, high)}
    if parameters is not None:
        space = dict(parameters)
    if not space:
        raise ValueError("`parameters` is empty; give at least one, such as {'step_size': LogUniform(1e-5, 1.0)}.")
    for name, parameter in space.items():
        if not isinstance(parameter, LogUniform | Uniform | Integer):
            raise TypeError(
                f"the range of {name!r} must be LogUniform(low, high), Uniform(low, high) or Integer(low, high); "
                f"got {parameter!r}."
            )
        if not (math.isfinite(parameter.low) and math.isfinite(parameter.high) and parameter.low < parameter.high):
            raise ValueError(f"the range of {name!r} needs low < high, both finite; got {parameter!r}.")
        if isinstance(parameter, LogUniform) and parameter.low <= 0:
            raise ValueError(f"{name!r} is searched on the log scale, so low must be above 0; got low={parameter.low}.")
        if isinstance(parameter, Integer) and (int(parameter.low), int(parameter.high)) != parameter:
            raise ValueError(f"the range of {name!r} must have whole ends; got {parameter!r}.")
    return space


def _validate(objective: Any, trials: int, seed: int, batch: int, direction: str, name: str) -> None:
    if not callable(objective):
        raise TypeError(f"`objective` must be a function of the step size; got {type(objective).__name__}.")
    for label, value, least in (("trials", trials, 1), ("batch", batch, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"`{label}` must be a whole number, at least {least}; got {value!r}.")
    if direction not in ("minimize", "maximize"):
        raise ValueError(f"`direction` must be 'minimize' or 'maximize'; got {direction!r}.")
    if not (isinstance(name, str) and name):
        raise ValueError(f"`name` must be a non-empty text; got {name!r}.")


def _describe(space: Mapping[str, Parameter]) -> str:
    return ", ".join(f"{name}: {type(p).__name__}({p.low:g}, {p.high:g})" for name, p in space.items())
