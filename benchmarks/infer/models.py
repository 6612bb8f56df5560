"""Thirty models by `ib.infer` without any argument, beside references and beside the best of a grid of choices by hand.

    python -m benchmarks.infer.models --out models.jsonl [--only ordinal] [--seconds 120]
    python -m benchmarks.infer.models --out models.jsonl --grid [--only ordinal]

The models are in `model_list.py`, their references by NUTS in `references.py`. The total error of a run is the root mean square of what all
means are off by, in reference sds, and of what all sds are off by, relative; the reference's own error is in it, for everybody alike.

The grid, written down before the first run: every kernel of `KERNELS` with every gradient of `GRADIENTS` at every multiple of `STEPS` of
the step size that `ib.check` suggests, with its scales as a preconditioner, noise correction where the kernel has it, four chains that start
at its centre, minibatches of 100 rows and a tenth of burn-in: the README's recipe with all that one might try. Each runs for as many steps as
fit the seconds that `ib.infer` took in all; what a kernel takes to compile, and `ib.check`, is not counted. The best choice then runs with
three fresh seeds, and the root mean square of their errors is that of the grid: the least of 96 errors is luck. To reach: 28 certified within
120 s; an error within 2 times that of the best of the grid on 27, and within 5 times on the rest.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import inbounds as ib
from benchmarks.infer.judge import Lines, run, table
from benchmarks.infer.model_list import MODELS
from benchmarks.infer.references import references
from benchmarks.infer.truth import Truth

__all__ = ["GRADIENTS", "KERNELS", "STEPS", "beside_the_grid", "total_error"]

KERNELS: dict[str, Callable[..., Any]] = {
    "sgld": partial(ib.sgld, noise_correction=True),
    "leimkuhler_matthews": partial(ib.leimkuhler_matthews, noise_correction=True),
    "baoab": partial(ib.baoab, noise_correction=True),
    "sgnht": ib.sgnht,
}
GRADIENTS = ("minibatch", "control_variate", "taylor")
STEPS = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 16.0)
CHAINS, BATCH, FIRST_STEPS = 4, 100, 2_000
MOST_DRAWS = 10_000  # per chain; longer runs are thinned
MOST_STEPS = 20_000_000
FRESH = (1, 2, 3)  # seeds of the best choice: the least of 96 errors is luck
SECONDS, NEAR, FAR = 120.0, 2.0, 5.0  # to reach


def total_error(off: dict[str, Any]) -> float:
    """The root mean square of all means and sds, in reference sds; infinite where one is not finite."""
    values = np.concatenate([np.asarray(off[kind], float) for kind in ("mean", "sd")])
    return float(np.sqrt(np.mean(values**2))) if np.isfinite(values).all() else np.inf


def by_infer(name: str, truth: Truth | None, seconds: float, **options: Any) -> dict[str, Any]:
    """One model without any choice."""
    try:
        result = run(MODELS[name], truth, seconds=seconds, **options)
    except Exception as error:
        failed = {"ok": False, "reasons": [f"{type(error).__name__}: {error}"], "seconds": None, "error": None}
        return {"model": name, "by": "infer"} | failed
    return {"model": name, "by": "infer"} | result | {"error": total_error(result["off"]) if truth else None}


def by_hand(name: str, truth: Truth, seconds: float, lines: Lines, steps: Iterable[float] = STEPS) -> None:
    """What the file does not have of the grid of a model, each for so many seconds; then its best choice with fresh seeds."""
    posterior = MODELS[name]()
    report = ib.check(posterior, gradient=ib.gradients.svrg(), show=False)

    def runs(kernel: str, gradient: str, multiple: float, seed: int) -> None:
        entry = {"model": name, "by": "hand", "kernel": kernel, "gradient": gradient, "step": multiple, "seed": seed}
        if lines.has(**entry):
            return
        estimator = getattr(ib.gradients, gradient)
        if gradient != "minibatch":
            estimator = estimator(center=report.center)
        made = KERNELS[kernel](posterior, gradient=estimator, preconditioner=report.preconditioner)
        draw = partial(ib.sample, made, multiple * report.preconditioned_step_size, init=report.center)
        lines.add(entry | one_by_hand(draw, truth, seconds, seed))

    for choice in itertools.product(KERNELS, GRADIENTS, steps):
        runs(*choice, seed=0)
    best = best_choice(line for line in lines if line["model"] == name)
    for seed in FRESH if best else ():
        runs(*best, seed=seed)


def best_choice(lines: Iterable[dict[str, Any]]) -> tuple[str, str, float] | None:
    """The kernel, gradient and step with the least error on the first seed; None where no run had any."""
    tried = [line for line in lines if line["by"] == "hand" and line["seed"] == 0 and line["error"] is not None]
    best = min(tried, key=lambda line: line["error"], default=None)
    return best and (best["kernel"], best["gradient"], best["step"])


def one_by_hand(draw: Callable[..., ib.Draws], truth: Truth, seconds: float, seed: int) -> dict[str, Any]:
    """The longest of a few runs, of which the last takes about the time."""
    steps, took, rate = FIRST_STEPS, 0.0, 1.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ib.UntrustworthyWarning)
            while took < seconds / 2 and steps <= MOST_STEPS:
                steps = int(steps * rate)
                thin = -(-steps // MOST_DRAWS)
                kept = {"thin": thin, "burn_in": steps // 10 // thin * thin, "num_chains": CHAINS, "batch_size": BATCH}
                draws = draw(steps // thin * thin, **kept, progress=False, seed=seed)
                took = draws.seconds
                rate = float(np.clip(seconds / max(took, 1e-3), 2, 20))
    except (ib.NonFiniteError, ValueError) as error:
        return {"error": None, "why": f"{type(error).__name__}: {error}"[:200]}
    off: dict[str, list[np.ndarray]] = {"mean": [], "sd": []}
    for variable, sd in truth.sd.items():
        flat = np.asarray(draws.variables()[variable], float)
        flat, free = flat.reshape(-1, *flat.shape[2:]), sd > 0
        off["mean"].append(((flat.mean(0) - truth.mean[variable]) / sd)[free].ravel())
        off["sd"].append((flat.std(0) / sd - 1)[free].ravel())
    error = total_error({kind: np.concatenate(parts) for kind, parts in off.items()})
    return {"error": error if np.isfinite(error) else None, "steps": steps, "seconds": took}


def beside_the_grid(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per model: certified, seconds, its error, the best of the grid, and how many times that it is."""
    lines, rows = list(lines), []
    for name in MODELS:
        own = [line for line in lines if line["model"] == name]
        best, again = best_choice(own), []
        for line in own:
            if best == (line.get("kernel"), line.get("gradient"), line.get("step")) and line["seed"] in FRESH:
                again.append(np.inf if line["error"] is None else line["error"])
        grid = float(np.sqrt(np.mean(np.square(again)))) if again else None
        for line in (line for line in own if line["by"] == "infer"):
            row = {"model": name, "certified": line["ok"], "seconds": line["seconds"], "error": line["error"]}
            row["grid"], row["times"] = grid, grid and line["error"] and line["error"] / grid
            row["best by hand"] = best and f"{best[0]}, {best[1]}, {best[2]:g}"
            row["why not"] = (line["reasons"] or [""])[0][:80]
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="lines of JSON; those that it has are not run again")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--method", choices=("auto", "minibatch", "full"), default="auto")
    parser.add_argument("--grid", action="store_true", help="run the grid for models that `infer` has been through")
    parser.add_argument("--steps", nargs="+", type=float, default=STEPS, help="multiples of the suggested step size")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    arguments = parser.parse_args()
    lines, truths = Lines(arguments.out), references()
    for name in () if arguments.table else arguments.only:
        if not lines.has(model=name, by="infer"):
            line = lines.add(by_infer(name, truths.get(name), arguments.seconds, method=arguments.method))
            took = "raised" if line["seconds"] is None else f"{line['seconds']:.1f} s"
            print(name, "certified" if line["ok"] else line["reasons"], took, flush=True)
        line = next(line for line in lines if line["model"] == name and line["by"] == "infer")
        if arguments.grid and name in truths and line["seconds"] is not None:
            by_hand(name, truths[name], line["seconds"], lines, arguments.steps)
    rows = beside_the_grid(lines)
    print(table(list(rows[0]), [list(row.values()) for row in rows]) if rows else "nothing has been run")
    within = [row["times"] for row in rows if row["times"]]
    print(
        f"{sum(row['certified'] for row in rows)} of {len(rows)} certified; of {len(within)} beside the grid "
        f"{sum(x <= NEAR for x in within)} are within {NEAR:g} times its best, {sum(x <= FAR for x in within)} within {FAR:g}"
    )


if __name__ == "__main__":
    main()
