"""Positive logistic regression by `ib.infer` and by NumPyro's NUTS, side by side: seconds per effective draw, compilation included.

    python -m benchmarks.infer.logistic [--rows 100000] [--columns 20] [--methods minibatch auto] [--rounds 1] [--out logistic.json]

A third of the coefficients is truly 0. NUTS: 500 steps of warm-up and 500 draws of one chain on the same density, as its documentation
does it. Effective draws are the smaller of bulk and tail, the worst coefficient, by ArviZ. Each run is a process of its own, so that
all compilation counts; the contestants take turns. A shared machine is noisy: look at the ratios. The table also says what the means and
sds of the two differ by, and how many independent draws the stated error of the worst mean is worth (one over its square, bias included).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import inbounds as ib
from benchmarks.infer.judge import table
from benchmarks.infer.reference import effective_draws

WARMUP, DRAWS = 500, 500


def data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    w = generator.uniform(0.1, 1.0, columns) * (np.arange(columns) % 3 > 0)
    return x, (generator.uniform(size=rows) < 1 / (1 + np.exp(-x @ w))).astype(np.float32)


def model(x, y):
    w = numpyro.sample("w", dist.HalfNormal(1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def by_nuts(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    mcmc = MCMC(NUTS(model), num_warmup=WARMUP, num_samples=DRAWS, progress_bar=False)
    mcmc.run(jax.random.key(0), jnp.asarray(x), jnp.asarray(y))
    return np.asarray(mcmc.get_samples(group_by_chain=True)["w"]), {}


def by_infer(x: np.ndarray, y: np.ndarray, method: str) -> tuple[np.ndarray, dict[str, Any]]:
    draws = ib.infer(model, x, y, method=method, progress=False)
    certificate = draws.certificate
    stated = np.abs(np.asarray(certificate.mean_error["w"], float))
    return np.asarray(draws.theta["w"]), {
        "ok": bool(certificate.ok),
        "reasons": list(map(str, certificate.reasons)),
        "choices": str(certificate.choices),
        "stated": float(stated.max()),
        "worth": float(1 / stated.max() ** 2),
        "mean": np.asarray(certificate.mean["w"], float).tolist(),
        "sd": np.asarray(certificate.sd["w"], float).tolist(),
    }


def contestant(name: str, rows: int, columns: int) -> dict[str, Any]:
    """One run in this process: seconds from the arrays to the draws."""
    x, y = data(rows, columns)
    began = time.perf_counter()
    draws, more = by_nuts(x, y) if name == "nuts" else by_infer(x, y, name)
    seconds = time.perf_counter() - began
    ess = {method: float(np.min(effective_draws({"w": draws}, method)["w"])) for method in ("bulk", "tail")}
    moments = {"mean": draws.mean((0, 1)).tolist(), "sd": draws.std((0, 1)).tolist()}
    return {"name": name, "seconds": seconds, **ess, "draws": int(np.prod(draws.shape[:2]))} | moments | more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=["minibatch", "auto"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(contestant(arguments.alone, arguments.rows, arguments.columns)))
        return
    runs = []
    for _ in range(arguments.rounds):
        for name in [*arguments.methods, "nuts"]:
            command = [sys.executable, "-m", "benchmarks.infer.logistic", "--alone", name]
            command += ["--rows", str(arguments.rows), "--columns", str(arguments.columns)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr}")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            print(name, f"{runs[-1]['seconds']:.1f} s", flush=True)
    report(runs)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        settings = {"rows": arguments.rows, "columns": arguments.columns, "warmup": WARMUP, "draws": DRAWS}
        arguments.out.write_text(json.dumps(settings | {"runs": runs}, indent=1) + "\n", encoding="utf-8")


def report(runs: list[dict[str, Any]]) -> None:
    def cost(run: dict[str, Any]) -> float:
        return run["seconds"] / min(run["bulk"], run["tail"])

    reference = [run for run in runs if run["name"] == "nuts"]
    nuts = float(np.median([cost(run) for run in reference]))
    mean, sd = (np.mean([run[key] for run in reference], axis=0) for key in ("mean", "sd"))
    rows = []
    for run in runs:
        off = np.abs((np.array(run["mean"]) - mean) / sd).max(), np.abs(np.array(run["sd"]) / sd - 1).max()
        own = (run.get("ok"), run["seconds"], run["bulk"], run["tail"], 1e3 * cost(run), nuts / cost(run))
        rows.append((run["name"], *own, run.get("stated"), run.get("worth"), *map(float, off)))
    head = ("run", "certified", "seconds", "bulk", "tail", "ms per effective draw", "times NUTS")
    print(table((*head, "stated error", "worth", "mean off NUTS", "sd off NUTS"), rows))


if __name__ == "__main__":
    main()
