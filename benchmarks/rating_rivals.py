"""RMSE against seconds on MovieLens 1M: our factors beside SMURFF, myFM and cmfrec, which people would take instead.

    python -m benchmarks.rating_rivals --data FOLDER [--seeds 2] [--only NAME ...] [--again all]
    python -m benchmarks.rating_rivals --memory

Rank 20, the ratings cut 75 : 12.5 : 12.5 by `Ratings.split(seed=0)`: 75% to fit, the last 12.5% to measure; predictions are
not cut to the range of the ratings. Every fit has a process and two cores to itself; a rival runs in an environment of its own under
`.bench/`, made when it is missing from the requirements in `benchmarks/rivals/` (cmfrec is compiled: minutes). Contestants take turns, seed
by seed. Seconds run from the call that fits until the test part is predicted; reading the data and turning it into the rival's format are
not in them. Samplers give the error of their running average sweep by sweep; cmfrec is fitted afresh for each number of iterations. Ours
come with and without the time in which JAX traces and compiles.

Runs are kept in the JSON file as they finish, and a run that is there is not repeated unless --again names its
contestant, or all. A seed takes about six minutes, half of them myFM's.

--memory instead fits generated ratings of MovieLens 10M's shape at rank 50, ten draws kept, and prints the most memory that the process had.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / ".bench"
CORES = 2
LEVELS = (0.860, 0.850)
# Parameters of `BayesianNMF`: a name for each, so that a new one can be put beside the old.
OURS: dict[str, dict[str, Any]] = {
    "gaussian": {"likelihood": "gaussian", "offsets": True},
    "gaussian-short": {"likelihood": "gaussian", "offsets": True, "iterations": 500},
    "gaussian-long": {"likelihood": "gaussian", "offsets": True, "iterations": 6_000},
    "poisson": {"likelihood": "poisson", "offsets": False},
}
RIVALS = {"smurff": "smurff", "myfm": "myfm", "cmfrec-als": "cmfrec", "cmfrec-nonnegative": "cmfrec"}  # to environment
LOOKS = {  # label, family whose colour is used, line style
    "gaussian": ("ours: Gaussian, offsets", "corv", "-"),
    "gaussian-short": ("ours: Gaussian, offsets, 500 steps", "corv", "--"),
    "gaussian-long": ("ours: Gaussian, offsets, 6,000 steps", "corv", ":"),
    "poisson": ("ours: Poisson", "lm-nc", "-"),
    "smurff": ("SMURFF (Gibbs, BPMF)", "mirror", "-"),
    "myfm": ("myFM (Gibbs, factorisation machine)", "ito", "-"),
    "cmfrec-als": ("cmfrec (ALS, offsets)", "lm-nc-estimated", "-"),
    "cmfrec-nonnegative": ("cmfrec (non-negative)", "lm-nc-estimated", "--"),
}


# -- running ------------------------------------------------------------------------------------------------------


def environment(name: str) -> Path:
    """The interpreter that has a rival; its environment is made again when the requirements change."""
    wanted, folder = (HERE / "rivals" / f"{name}.txt").read_text(), ENVIRONMENTS / name
    python, marker = folder / "bin" / "python", folder / "installed.txt"
    if not marker.exists() or marker.read_text() != wanted:
        print(f"installing {name} into {folder} ...", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", HERE / "rivals" / f"{name}.txt"], check=True)
        marker.write_text(wanted)  # last, so that an interrupted install is repeated
    return python


def in_process(command: list[Any]) -> dict[str, Any]:
    """The JSON on the last line of a command; nothing else of ours runs beside it."""
    threads = {name: str(CORES) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    words = [str(word) for word in command]
    done = subprocess.run(words, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr[-2_000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def fit_ours(name: str, data: str | None, seed: int) -> dict[str, Any]:
    """One of ours, in this process: its curve, and how much of the time before each point went into compiling."""
    import jax

    import inbounds as ib

    train, _, test = ib.data.catalog.load("movielens-1m", data).split(seed=0)
    spans: list[tuple[float, float]] = []
    late: list[float] = []  # when the model's own clock began

    def compiled(event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            now = time.perf_counter()
            spans.append((now - seconds, now))

    jax.monitoring.register_event_duration_secs_listener(compiled)
    model = ib.models.BayesianNMF(
        rank=20, random_state=seed, progress=lambda row: late.append(time.perf_counter() - row["seconds"]), **OURS[name]
    )
    began = time.perf_counter()
    model.fit(train, eval_set=test)
    total = time.perf_counter() - began
    history = {key: np.asarray(values, float) for key, values in model.history_.items()}
    seconds = history["seconds"] + (late[0] - began if late else 0.0)
    compiling = _covered([(a - began, b - began) for a, b in spans], seconds)
    return {
        "iteration": history["step"].astype(int).tolist(),
        "seconds": seconds.round(4).tolist(),
        "running": (seconds - compiling).round(4).tolist(),
        "rmse": history["rmse"].round(5).tolist(),
        "fit": total,
    }


def peak_memory() -> dict[str, Any]:
    """Gigabytes at most, of a process that does nothing else: once the ratings are drawn, and after the fit."""
    from resource import RUSAGE_SELF, getrusage

    import inbounds as ib

    def gigabytes() -> float:
        return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e9

    ratings = ib.data.generate_ratings()
    found: dict[str, Any] = {"ratings": gigabytes()}
    model = ib.models.BayesianNMF(50, likelihood="gaussian", offsets=True, iterations=100, keep=10, progress=False)
    began = time.perf_counter()
    model.fit(ratings)
    return found | {"fit": gigabytes(), "seconds": time.perf_counter() - began}


def _covered(spans: list[tuple[float, float]], until: np.ndarray) -> np.ndarray:
    """How much of [0, t] the spans cover, for every t: they nest, since a trace may hold others."""
    merged: list[list[float]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return sum((np.clip(until, low, high) - low for low, high in merged), np.zeros(len(until)))


def run_all(names: list[str], seeds: int, data: str | None, kept: dict[str, Any], save) -> None:
    """What is missing of `kept["runs"]`, seed by seed."""
    import inbounds as ib
    from inbounds.models import UserItemBias

    pythons = {name: environment(RIVALS[name]) for name in names if name in RIVALS}
    ratings = ib.data.catalog.load("movielens-1m", data)
    train, _, test = ratings.split(seed=0)
    kept["baselines"] = {
        "global mean": UserItemBias.global_mean(train).rmse(test),
        "user + item": UserItemBias.fit(train).rmse(test),
    }
    with tempfile.TemporaryDirectory() as folder:
        columns = Path(folder) / "columns.npz"
        parts = {"train": train, "test": test}
        np.savez(
            columns, shape=(ratings.num_users, ratings.num_items),
            **{f"{p}_{c}": getattr(part, c) for p, part in parts.items() for c in ("user", "item", "rating")},
        )  # fmt: skip
        for seed in range(seeds):
            for name in names:
                runs = kept["runs"].setdefault(name, {})
                if str(seed) in runs:
                    continue
                if name in OURS:
                    command = [sys.executable, "-m", __spec__.name, "--ours", name, "--seed", seed]
                    command += ["--data", data] if data else []
                else:
                    command = [pythons[name], HERE / "rivals" / "fits.py", name, columns, seed]
                runs[str(seed)] = run = in_process(command)
                save()
                print(f"{name}, seed {seed}: {min(run['rmse']):.4f} in {run['seconds'][-1]:.1f} s", flush=True)


# -- what comes out -----------------------------------------------------------------------------------------------


def summary(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds of one contestant: the curve, the time to each level, and the best point of the curve."""
    seeds = list(runs.values())
    error = np.array([run["rmse"] for run in seeds])
    clocks = {key: np.array([run.get(key, run["seconds"]) for run in seeds]) for key in ("seconds", "running")}
    mean = error.mean(axis=0)
    best = int(np.nanargmin(mean))

    def first(clock: np.ndarray, level: float) -> float | None:
        reached = [times[errors <= level] for times, errors in zip(clock, error, strict=True)]
        return float(np.mean([times[0] for times in reached])) if all(map(len, reached)) else None

    found: dict[str, Any] = {
        "seeds": len(seeds),
        "rmse": float(mean[best]),
        "standard_error": float(error[:, best].std(ddof=1) / math.sqrt(len(seeds))) if len(seeds) > 1 else None,
        "iteration": seeds[0]["iteration"][best],
        "curve": {"rmse": mean, **{key: clock.mean(axis=0) for key, clock in clocks.items()}},
    }
    for key, clock in clocks.items():
        found[key] = {"best": float(clock.mean(axis=0)[best]), **{f"{x:.3f}": first(clock, x) for x in LEVELS}}
    return found


def table(summaries: dict[str, dict[str, Any]], baselines: dict[str, float]) -> str:
    """As Markdown; seconds of ours are given with compilation, and without it in brackets."""

    def cell(found, key):
        with_compilation, without = found["seconds"][key], found["running"][key]
        if with_compilation is None:
            return "–"
        return f"{with_compilation:.1f}" + (f" ({without:.1f})" if with_compilation - without > 0.05 else "")

    levels = [f"{level:.3f}" for level in LEVELS]
    lines = [
        f"| | best RMSE | s.e. | seconds to it | {' | '.join(f's to {level[1:]}' for level in levels)} |",
        f"|---|---:|---:|---:|{'---:|' * len(levels)}",
    ]
    for name, found in sorted(summaries.items(), key=lambda pair: pair[1]["rmse"]):
        error = "–" if found["standard_error"] is None else f"{found['standard_error']:.4f}"
        times = " | ".join(cell(found, key) for key in ("best", *levels))
        lines.append(f"| {LOOKS[name][0]} | {found['rmse']:.4f} | {error} | {times} |")
    lines += [f"| {name} | {value:.4f} |{' |' * (2 + len(levels))}" for name, value in baselines.items()]
    return "\n".join(lines)


def picture(summaries: dict[str, dict[str, Any]], baselines: dict[str, float], stem: Path) -> None:
    from inbounds.display import new_figure, save_picture

    def draw(theme):
        figure, axes = new_figure(1, 1, width=8.0, height=4.0)
        axis = axes[0, 0]
        for name, found in summaries.items():
            label, family, style = LOOKS[name]
            curve, colour = found["curve"], theme.colour(family)
            axis.plot(curve["seconds"], curve["rmse"], style, color=colour, label=label)
            if name in OURS:
                axis.plot(curve["running"], curve["rmse"], style, color=colour, lw=0.8, alpha=0.5)
        bias = baselines["user + item"]
        said = f"user + item offsets (global mean: {baselines['global mean']:.3f})"
        axis.axhline(bias, color=theme.soft, lw=0.9, ls=(0, (4, 3)), label=said)
        least = min(found["rmse"] for found in summaries.values())
        axis.set(xscale="log", ylim=(least - 0.004, bias + 0.013))
        axis.set(xlabel="seconds on two cores", ylabel="test RMSE of the prediction so far")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.grid(True, lw=0.6)
        figure.legend(loc="outside lower center", ncols=2)
        return figure

    save_picture(stem, draw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the catalog; INBOUNDS_DATA or the cache when left out")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=[*OURS, *RIVALS], default=[*OURS, *RIVALS], metavar="NAME")
    parser.add_argument("--again", nargs="+", choices=["all", *OURS, *RIVALS], default=[], metavar="NAME")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "rating_rivals.json")
    parser.add_argument(
        "--picture", type=Path, default=HERE.parent / "docs" / "rating-rivals", help="without its ending"
    )
    parser.add_argument("--memory", action="store_true", help="peak memory at MovieLens 10M's shape, and nothing else")
    parser.add_argument("--ours", choices=list(OURS), help=argparse.SUPPRESS)  # a fit of ours in a process of its own
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(peak_memory()))
        return
    if options.ours:
        print(json.dumps(fit_ours(options.ours, options.data, options.seed)))
        return

    from experiments.results import environment as machine

    options.json.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(options.json.read_text()) if options.json.exists() else {"runs": {}}
    for name in list(kept["runs"]):
        if {name, "all"} & {*options.again}:
            del kept["runs"][name]
    if hasattr(os, "sched_setaffinity"):  # what is started from here inherits it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    versions = {name: (HERE / "rivals" / f"{name}.txt").read_text().split()[0] for name in sorted({*RIVALS.values()})}
    kept |= {"environment": machine(), "rivals": versions, "ours": OURS}

    def save() -> None:
        options.json.write_text(json.dumps(kept) + "\n")

    run_all(options.only, options.seeds, options.data, kept, save)
    summaries = {name: summary(kept["runs"][name]) for name in LOOKS if kept["runs"].get(name)}
    kept["summary"] = {
        name: {key: value for key, value in found.items() if key != "curve"} for name, found in summaries.items()
    }
    save()
    print(table(summaries, kept["baselines"]))
    picture(summaries, kept["baselines"], options.picture)


if __name__ == "__main__":
    main()
