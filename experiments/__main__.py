"""The commands of the experiments, `python -m experiments --help`. They import what they need when they run, so that help is instant."""

from __future__ import annotations

import enum
import importlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments import EXPERIMENTS
from inbounds.cli import keep_compiled, run

app = typer.Typer(
    name="experiments",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=(
        "The experiments of the paper, one command a figure.\n\n"
        "Start with `python -m experiments demo`: it samples three distributions in a few minutes and writes a page that "
        "shows what the methods do. The others run at a scale of your choice; `report` makes the page of their results "
        "again. A run that was stopped with Ctrl-C goes on when the same command is given again: finished parts lie in "
        "the folder."
    ),
)


class ScaleName(enum.StrEnum):
    """How much is run."""

    smoke = "smoke"
    laptop = "laptop"
    full = "full"


Scale = Annotated[
    ScaleName, typer.Option("--scale", help="smoke: seconds, numbers mean nothing; laptop: minutes; full: the paper's.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the results; out/NAME-SCALE when left out.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same numbers.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of data sets; the variable INBOUNDS_DATA, or a cache folder, when left out."),
]
Restart = Annotated[bool, typer.Option("--restart", help="Throw finished parts in the folder away and begin again.")]
Methods = Annotated[list[str] | None, typer.Option("--method", help="One of the methods; may be repeated.")]
Trials = Annotated[int | None, typer.Option(min=2, help="Of the search, for every method.")]
Chains = Annotated[int | None, typer.Option(min=1, help="Trials side by side, and seeds of the final runs.")]
Search = Annotated[str | None, typer.Option(help="tpe (needs Optuna) or grid.")]


@app.callback()
def _root() -> None:
    keep_compiled()


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = Path("out/demo"),
    seed: Seed = 0,
    restart: Restart = False,
) -> None:
    """Sample three distributions with mirror, Ito, CoRV and our best kernel, and see who is right.

    About two minutes on two cores; nothing is downloaded. Prints a table and writes pictures and a page.
    """
    results = run_experiment("basic", "demo", out, seed, restart)
    typer.echo(demo_table(results))
    name_the_page(results.path / "report.html")


@app.command()
def basic(
    scale: Scale = ScaleName.laptop,
    out: Out = None,
    seed: Seed = 0,
    restart: Restart = False,
    target: Annotated[
        list[str] | None, typer.Option("--target", help="Only this target, for example half-normal; may be repeated.")
    ] = None,
) -> None:
    """Figure 1: draws from known distributions, every method at its best step size; and the stability theorems."""
    options: dict[str, Any] = {"targets": tuple(target)} if target else {}
    results = run_experiment("basic", scale, out, seed, restart, **options)
    name_the_page(results.path / "report.html")


@app.command("weak-error")
def weak_error(scale: Scale = ScaleName.laptop, out: Out = None, seed: Seed = 0, restart: Restart = False) -> None:
    """Figure 2: the bias of every method against its step size, exact and simulated."""
    results = run_experiment("weak-error", scale, out, seed, restart)
    name_the_page(results.path / "report.html")


@app.command()
def nmf(
    dataset: Annotated[
        str, typer.Option("--dataset", help="movielens-1m, another of the catalog, or generated-10m, -1m, -100k.")
    ] = "movielens-1m",
    scale: Scale = ScaleName.laptop,
    data: Data = None,
    out: Out = None,
    seed: Seed = 0,
    restart: Restart = False,
    method: Methods = None,
    stage: Annotated[
        list[str] | None, typer.Option("--stage", help="main, stability or prior; may be repeated.")
    ] = None,
    rank: Annotated[list[int] | None, typer.Option("--rank", min=1, help="Factors; may be repeated.")] = None,
    iterations: Annotated[
        list[int] | None, typer.Option("--iterations", min=1, help="Of the final runs, one for each --rank.")
    ] = None,
    tuning_iterations: Annotated[int | None, typer.Option(min=1, help="Of each trial of the search.")] = None,
    trials: Trials = None,
    chains: Chains = None,
    search: Search = None,
) -> None:
    """Section 6.1: Bayesian non-negative matrix factorisation of MovieLens ratings, step sizes by TPE.

    Several processes may share --out and divide the methods: every finished part is a file.
    """
    run_comparison(
        "nmf", scale, out, seed, restart, dataset, {"data": data, "methods": method, "stages": stage},
        ranks=tuple(rank) if rank else None, iterations=tuple(iterations) if iterations else None,
        tuning_iterations=tuning_iterations, trials=trials, chains=chains, search=search,
    )  # fmt: skip


@app.command()
def overhead(scale: Scale = ScaleName.laptop, out: Out = None, seed: Seed = 0, restart: Restart = False) -> None:
    """What staying in bounds costs: a step of CoRV against one of mirrored SGLD, interleaved, for every transform."""
    results = run_experiment("overhead", scale, out, seed, restart)
    name_the_page(results.path / "report.html")


@app.command("binary-network")
def binary_network(
    dataset: Annotated[str, typer.Option("--dataset", help="mnist, fashion-mnist or synthetic.")] = "mnist",
    scale: Scale = ScaleName.laptop,
    data: Data = None,
    out: Out = None,
    seed: Seed = 0,
    restart: Restart = False,
    method: Methods = None,
    stage: Annotated[
        list[str] | None, typer.Option("--stage", help="main, prior, ito or standard; may be repeated.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of the final runs.")] = None,
    tuning_epochs: Annotated[int | None, typer.Option(min=1, help="Of each trial of the search.")] = None,
    trials: Trials = None,
    chains: Chains = None,
    search: Search = None,
    logit_scale: Annotated[float | None, typer.Option(help="Take this one instead of choosing it.")] = None,
) -> None:
    """Section 6.2: Bayesian binary networks on MNIST or Fashion-MNIST, step sizes by TPE.

    Several processes may share --out and divide the methods: every finished part is a file.
    """
    run_comparison(
        "binary-network", scale, out, seed, restart, dataset, {"data": data, "methods": method, "stages": stage},
        epochs=epochs, tuning_epochs=tuning_epochs, trials=trials, chains=chains, search=search,
        logit_scales=None if logit_scale is None else (logit_scale,),
    )  # fmt: skip


@app.command("all")
def every(
    scale: Scale = ScaleName.laptop,
    out: Annotated[Path | None, typer.Option("--out", help="Folder with one subfolder an experiment.")] = None,
    seed: Seed = 0,
    restart: Restart = False,
) -> None:
    """Every experiment that needs no download, one after the other, and one page for all of them."""
    folder = out or Path(f"out/all-{scale}")
    without_data = [name for name in EXPERIMENTS if not getattr(experiment(name), "NEEDS_DATA", False)]
    for name in without_data:
        run_experiment(name, scale, folder / name, seed, restart)
    name_the_page(make_page(folder))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder with results, or one whose subfolders have them.")],
    docs: Annotated[
        Path | None, typer.Option("--docs", help="Also write README.md, pictures and summaries into this folder.")
    ] = None,
) -> None:
    """Make tables, pictures and report.html again from results, finished or not."""
    page = make_page(folder)
    if docs is not None:
        typer.echo(f"wrote {make_docs(folder, docs)}")
    name_the_page(page)


def experiment(name: str) -> Any:
    """The module behind an experiment."""
    return importlib.import_module(EXPERIMENTS[name])


def run_experiment(
    name: str,
    scale: str,
    out: Path | None,
    seed: int,
    restart: bool = False,
    how: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Run what is missing of an experiment, then make its page; on Ctrl-C, make the page of what is there.

    Args:
        name: of the experiment, a key of `experiments.EXPERIMENTS`.
        scale: one of its scales.
        out: the folder; `out/NAME-SCALE` when None.
        seed: of everything.
        restart: throw finished parts away first.
        how: passed to the experiment's `run`; changes no number.
        options: passed to the experiment's `settings`.
    """
    from experiments.results import Results

    module = experiment(name)
    scale = str(scale)
    folder = out or Path(f"out/{name}-{scale}")
    results = Results.open(folder, name, module.settings(scale, seed, **options), restart)
    typer.echo(f"{name} at scale {scale}, into {folder}")
    clock = time.perf_counter()
    try:
        module.run(results, lambda line: typer.echo(f"  {line}  ({time.perf_counter() - clock:.0f} s)"), **(how or {}))
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command goes on from here. Making the page of what is finished ...", err=True)
        make_page(folder)
        typer.echo(f"see {folder / 'report.html'}", err=True)
        raise typer.Exit(130) from None
    make_page(folder)
    return results


def run_comparison(
    name: str,
    scale: str,
    out: Path | None,
    seed: int,
    restart: bool,
    dataset: str,
    how: dict[str, Any],
    **options: Any,
) -> None:
    """An experiment that runs on a data set of the user's choice, which is in the name of its folder."""
    folder = out or Path(f"out/{name}-{dataset}-{scale}")
    results = run_experiment(name, scale, folder, seed, restart, how=how, dataset=dataset, **options)
    name_the_page(results.path / "report.html")


def make_page(folder: Path) -> Path:
    """Tables, pictures and page of all the results in a folder."""
    from experiments.reports import write_page
    from experiments.results import find

    reports = [experiment(results.experiment).report(results) for results in find(folder)]
    return write_page(Path(folder) / "report.html", reports)


def make_docs(folder: Path, docs: Path) -> Path:
    """A Markdown page with pictures and summaries, to be committed."""
    from experiments.reports import write_markdown
    from experiments.results import find

    found = find(folder)
    reports = [experiment(results.experiment).report(results) for results in found]
    docs.mkdir(parents=True, exist_ok=True)
    names = [results.experiment for results in found]
    for results in found:
        # One experiment on several data sets: told apart by their folders.
        name = results.experiment if names.count(results.experiment) == 1 else results.path.name
        for kind in ("json", "csv"):
            source = results.path / f"summary.{kind}"
            if source.exists():
                (docs / f"{name}-summary.{kind}").write_bytes(source.read_bytes())
    return write_markdown(docs, reports, " && ".join(command_for(results) for results in found))


def command_for(results: Any) -> str:
    """The command that makes these results again."""
    scale, dataset = results.settings["scale"], results.settings.get("dataset")
    if scale == "demo":
        return "python -m experiments demo"
    return f"python -m experiments {results.experiment}{f' --dataset {dataset}' if dataset else ''} --scale {scale}"


def demo_table(results: Any) -> str:
    """The demo's answer as text: distance to the truth, time, steps per second."""
    module = experiment("basic")
    from experiments.targets import TARGETS

    lines = []
    for name in results.settings["targets"]:
        rows = [row for row in module.summarise(results) if row["target"] == name]
        lines.append(f"\n{TARGETS[name].label}   (independent draws: {rows[0]['floor']:.4f})")
        lines.append(f"  {'method':<32}{'TV to the truth':>18}{'step size':>12}{'seconds':>10}{'steps/s':>10}")
        for row in rows:
            distance = f"{row['total_variation']:.4f} ± {row['total_variation_se']:.4f}"
            speed = f"{row['steps_per_second'] / 1e6:.1f} M"
            lines.append(
                f"  {module.label_of(row):<32}{distance:>18}{row['step_size']:>12.2g}{row['seconds']:>10.1f}{speed:>10}"
            )
    return "\n".join(lines)


def name_the_page(page: Path) -> None:
    typer.echo(f"\nopen {page}")


def main() -> None:
    """Entry point of `python -m experiments`."""
    run(app, "python -m experiments")


if __name__ == "__main__":
    main()
