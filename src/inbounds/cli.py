"""The command line, `inbounds --help`. Commands import what they need when they run, so that help is instant."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    import typer.core
except ImportError as error:  # the console script exists without the extra
    raise SystemExit('the command line needs typer: pip install "inbounds[cli]"') from error


__all__ = ["app", "keep_compiled", "main", "run"]


class _Commands(typer.core.TyperGroup):
    """Commands that Ctrl-C ends with status 130, as it ends other programs; Typer has 1."""

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt as error:
            typer.echo(f"inbounds: {str(error) or 'stopped'}", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="inbounds",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=(
        "Stochastic-gradient MCMC for bounded variables: draws that never leave the bounds, with the bias measured.\n\n"
        "`inbounds check` looks a model of yours over before it is sampled, and `inbounds tune` searches for a step size; "
        "`inbounds nmf` predicts ratings, and `inbounds data` fetches public data sets.\n\n"
        "For example: `inbounds check model.py:posterior`, where model.py says `posterior = ib.Posterior(priors, log_likelihood, data)`; "
        "`inbounds nmf fit ratings.csv --out run`. In Python `ib.infer(posterior)` needs neither a step size nor a kernel."
    ),
)
data = typer.Typer(
    no_args_is_help=True, help="Public data sets: what there is, download, and import of files you have."
)
app.add_typer(data, name="data")
nmf = typer.Typer(
    no_args_is_help=True,
    help="Predict ratings with Bayesian non-negative factors: fit a table of ratings, predict pairs, recommend items.",
)
app.add_typer(nmf, name="nmf")


Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same numbers.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of data sets; the variable INBOUNDS_DATA, or a cache folder, when left out."),
]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        from inbounds import __version__

        typer.echo(f"inbounds {__version__}")
        raise typer.Exit()
    keep_compiled()


def keep_compiled() -> None:
    """What one command compiles the next one reads from the user's cache, unless JAX was told where to keep it, or not to."""
    import jax

    from inbounds.data.catalog import user_cache

    told = jax.config.values
    if told["jax_compilation_cache_dir"] is not None or not told["jax_enable_compilation_cache"]:
        return
    try:
        place = user_cache() / "compiled" / (platform.node() or "here")  # unlike machines may share a home
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@nmf.command("fit")
def nmf_fit(
    ratings: Annotated[
        Path, typer.Argument(help="MovieLens (zip, folder or file), or any CSV or Parquet of user, item, rating.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the model and its page.")] = Path("out/nmf"),
    rank: Annotated[int, typer.Option(min=1, help="Number of factors.")] = 20,
    likelihood: Annotated[str, typer.Option(help="gaussian, poisson or binomial.")] = "gaussian",
    offsets: Annotated[bool, typer.Option(help="An offset for every user and item.")] = True,
    iterations: Annotated[int | None, typer.Option(min=1, help="Steps of the chain; chosen when left out.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Ratings a step; chosen when left out.")] = None,
    step_size: Annotated[
        float | None, typer.Option(help="In units of the inverse curvature; chosen when left out.")
    ] = None,
    hold_out: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=0.9,
            help="Share of the ratings not to fit: half to follow and scale the intervals, half to measure.",
        ),
    ] = 0.1,
    user: Annotated[str | None, typer.Option(help="Name or position of the column of users.")] = None,
    item: Annotated[str | None, typer.Option(help="Name or position of the column of items.")] = None,
    rating: Annotated[str | None, typer.Option(help="Name or position of the column of ratings.")] = None,
    duplicates: Annotated[str, typer.Option(help="Of a pair: error, last or mean.")] = "error",
    seed: Seed = 0,
) -> None:
    """Fit a table of ratings; writes OUT/model.npz and a page with the error, the calibration and the factors."""
    from inbounds.data.ratings import load_ratings
    from inbounds.display import write_page
    from inbounds.models import BayesianNMF
    from inbounds.models.nmf_page import nmf_chapter

    table = load_ratings(ratings, user=_column(user), item=_column(item), rating=_column(rating), duplicates=duplicates)
    out.mkdir(parents=True, exist_ok=True)  # before the work: what cannot be written is not computed
    # The intervals are scaled to some of the ratings; whether they hold is measured on others.
    train, followed, held_out = table.split((1 - hold_out, hold_out / 2, hold_out / 2), seed)
    typer.echo(
        f"{table!r}: {len(train):,} to fit, {len(followed):,} to follow and scale the intervals, {len(held_out):,} to measure"
    )
    model = BayesianNMF(
        rank, likelihood=likelihood, offsets=offsets, iterations=iterations, batch_size=batch_size,
        step_size="auto" if step_size is None else step_size, progress=_say_progress, random_state=seed,
    ).fit(train, eval_set=followed)  # fmt: skip
    saved = model.set_params(progress=True).save(out / "model.npz")
    page = write_page(out / "report.html", [nmf_chapter(model, train, followed, held_out, out / "figures")])
    typer.echo(f"wrote {saved}; RMSE on held-out ratings {-model.score(held_out):.4f}")
    typer.echo(f"\nopen {page}")


@nmf.command("predict")
def nmf_predict(
    run: Annotated[Path, typer.Argument(help="The folder of `inbounds nmf fit`, or its model.npz.")],
    pairs: Annotated[
        list[str], typer.Argument(metavar="USER:ITEM...", help="Pairs of labels, or one CSV file with two columns.")
    ],
    level: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the interval.")] = 0.9,
) -> None:
    """Predicted ratings with their intervals, as CSV on standard output."""
    import csv

    model = _load_nmf(run)
    wanted = _read_pairs(Path(pairs[0])) if len(pairs) == 1 and Path(pairs[0]).is_file() else _split_pairs(pairs)
    users, items = _as_labels(wanted[0], model.user_ids_), _as_labels(wanted[1], model.item_ids_)
    mean, std, known = model.predict(users, items, return_std=True, return_known=True)
    low, high = model.predict_interval(users, items, level)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("user", "item", "rating", "std", "low", "high", "known"))
    for row in zip(*wanted, mean, std, low, high, known, strict=True):
        table.writerow((row[0], row[1], *(f"{value:.4f}" for value in row[2:6]), "yes" if row[6] else "no"))


@nmf.command("recommend")
def nmf_recommend(
    run: Annotated[Path, typer.Argument(help="The folder of `inbounds nmf fit`, or its model.npz.")],
    user: Annotated[str, typer.Argument(help="The user's label.")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many items.")] = 10,
) -> None:
    """The items that a user has not rated yet and would rate highest, with the posterior's uncertainty."""
    model = _load_nmf(run)
    label = _as_labels([user], model.user_ids_)[0]
    known = bool(label in model.user_ids_)
    if not known:
        typer.echo(f"user {user} is not in the model: these items are the prior's choice", err=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said above, in the manner of a command
        best = model.recommend(label, count)
    typer.echo(f"{'item':<24}{'rating':>8}{'std':>8}")
    for item, mean, std in zip(*best, strict=True):
        typer.echo(f"{item!s:<24}{mean:>8.3f}{std:>8.3f}")


def _column(name: str | None) -> str | int | None:
    return int(name) if name is not None and name.isdigit() else name


def _say_progress(row: dict[str, Any]) -> None:
    error = f"  RMSE {row['rmse']:.4f}" if "rmse" in row else ""
    typer.echo(f"  step {row['step']:,}/{row['steps']:,}{error}  ({row['seconds']:.0f} s)")


def _load_nmf(run: Path) -> Any:
    from inbounds.models import BayesianNMF

    file = run / "model.npz" if run.is_dir() else run
    if not file.is_file():
        raise ValueError(f"there is no model at {file}: give the folder that `inbounds nmf fit --out` wrote.")
    return BayesianNMF.load(file)


def _split_pairs(pairs: list[str]) -> tuple[list[str], list[str]]:
    parted = [pair.partition(":") for pair in pairs]
    for pair, (_, colon, item) in zip(pairs, parted, strict=True):
        if not colon or not item:
            raise ValueError(f"expected USER:ITEM, such as 12:345, or a CSV file; got {pair!r}.")
    return [user for user, _, _ in parted], [item for _, _, item in parted]


def _read_pairs(file: Path) -> tuple[list[str], list[str]]:
    import csv

    users, items = [], []
    with file.open(newline="", encoding="utf-8") as stream:
        for number, row in enumerate(csv.reader(stream), 1):
            if not row or (number == 1 and row[0].strip().lower() in ("user", "users", "userid", "user_id")):
                continue
            if len(row) < 2:
                raise ValueError(f"{file}, line {number}: expected user,item; got {','.join(row)!r}.")
            users.append(row[0].strip())
            items.append(row[1].strip())
    return users, items


def _as_labels(texts: list[str], known: Any) -> Any:
    """Labels of the kind that the model was fitted with; text that is no number becomes one that nobody has."""
    import numpy as np

    if known.dtype.kind not in "iu":
        return np.asarray(texts)
    none = int(known.max()) + 1
    return np.asarray([int(text) if text.lstrip("-").isdigit() else none for text in texts])


@data.command("list")
def data_list(data: Data = None) -> None:
    """The data sets of the catalog, their size and licence, and whether they are here."""
    from inbounds.data import catalog

    typer.echo(f"in {catalog.folder(data)}:")
    for entry in catalog.datasets().values():
        here = "here" if not catalog.missing(entry.name, data) else "not here"
        size = "varies" if entry.size is None else f"{entry.size / 1e6:.1f} MB"
        typer.echo(f"  {entry.name:<24}{size:>9}  {here:<10}{entry.title}; {entry.licence}")


@data.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names from `inbounds data list`.")],
    data: Data = None,
) -> None:
    """Download data sets and check them; an interrupted download is continued."""
    from inbounds.data import catalog

    for name in names:
        typer.echo(f"{name} is in {catalog.fetch(name, data)}")
        _say_what_is_unverified(name, data)


@data.command("import")
def data_import(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME] PATH",
            help="A folder with the files, an archive or one of the files, packed or not; before it, a name from "
            "`inbounds data list` where the bytes do not tell.",
        ),
    ],
    data: Data = None,
) -> None:
    """Copy the files of a data set that you already have, after a look at their checksums."""
    from inbounds.data import catalog

    if len(what) > 2:
        raise typer.BadParameter("expected [NAME] PATH")
    source = what[-1]
    name = what[0] if len(what) == 2 else catalog.recognise(source)
    place = catalog.add(name, source, data)
    absent = catalog.missing(name, data)
    typer.echo(f"{name} is in {place}" + (f"; still missing: {', '.join(absent)}" if absent else ""))
    _say_what_is_unverified(name, data)


def _say_what_is_unverified(name: str, data: Path | None) -> None:
    from inbounds.data import catalog

    for file, checksum in catalog.unverified(name, data).items():
        typer.echo(f"No checksum is published for {file}; recorded for later: SHA-256 {checksum}.")


@app.command("tune")
def tune_command(
    objective: Annotated[
        str,
        typer.Argument(metavar="FILE:FUNCTION", help="A function of the step size that returns a loss: loss.py:loss"),
    ],
    low: Annotated[float, typer.Option(help="Smallest step size.")] = 1e-7,
    high: Annotated[float, typer.Option(help="Largest step size.")] = 1.0,
    trials: Annotated[int, typer.Option(min=1, help="How many to try.")] = 100,
    seed: Seed = 0,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="INBOUNDS_STORAGE",
            help="A journal file, or a database URL that several machines share; a study in it is gone on with. A URL with a "
            "password belongs into the variable, where nobody sees it in the list of processes.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Of the study.")] = "tune",
) -> None:
    """Search for the step size with the smallest loss, by TPE.

    The loss is yours: a Python function of the step size. A trial that goes non-finite is pruned.
    """
    from inbounds.tuning import NothingFoundError, StorageError, tune

    try:
        found = tune(load_function(objective), low, high, trials, seed, storage, name=name)
    except (NothingFoundError, StorageError) as error:
        raise ValueError(str(error)) from None
    typer.echo(repr(found))
    if found.at_edge:
        typer.echo("the best step size is at an end of its range: a wider one may hold a better", err=True)


@app.command("check")
def check_command(
    posterior: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:POSTERIOR", help="A posterior or a kernel, or a function that makes one: model.py:posterior"
        ),
    ],
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=1, help="Rows a minibatch.")] = None,
    transform: Annotated[str | None, typer.Option("--transform", help="Instead of the defaults, such as icll.")] = None,
    seed: Seed = 0,
    everything: Annotated[bool, typer.Option("--all", help="Print what is in order, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look a posterior or a kernel over before it runs: supports, transforms, gradients, a centre, noise, and a step size.

    Prints a verdict, and what is wrong with a remedy per line. The exit status is 1 where something is a problem.
    """
    from inbounds.diagnostics._check import check
    from inbounds.kernels import Kernel
    from inbounds.posterior import Posterior

    found = load_object(posterior)
    if callable(found) and not isinstance(found, Posterior | Kernel):
        found = found()
    report = check(found, transform, batch_size=batch_size, seed=seed, show=False)
    report.everything = everything
    typer.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))
    if not report.ok:
        raise typer.Exit(1)


def load_function(where: str) -> Any:
    """The function that FILE:FUNCTION or MODULE:FUNCTION names."""
    function = load_object(where)
    if not callable(function):
        raise ValueError(f"{where} is not a function.")
    return function


def load_object(where: str) -> Any:
    """What FILE:NAME or MODULE:NAME names."""
    source, _, name = where.rpartition(":")
    if not source or not name:
        raise ValueError(f"expected FILE:FUNCTION, such as loss.py:loss; got {where!r}.")
    if source.endswith(".py"):
        if not Path(source).is_file():
            raise ValueError(f"there is no file {source}.")
        spec = importlib.util.spec_from_file_location(Path(source).stem, source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, str(Path.cwd()))  # the console script does not look there
        module = importlib.import_module(source)
    if not hasattr(module, name):
        raise ValueError(f"{source} has no function or object {name!r}.")
    return getattr(module, name)


def run(commands: typer.Typer, name: str) -> None:
    """Run the command that was given: what the user can put right is one line, not a traceback."""
    try:
        commands(prog_name=name)
    except (ValueError, ImportError, FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def main() -> None:
    """Entry point of `inbounds`."""
    run(app, "inbounds")


if __name__ == "__main__":
    main()
