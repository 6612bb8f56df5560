"""References of the twelve problems: NUTS of NumPyro in double precision on all the data, until R-hat is below 1.005.

    python -m benchmarks.scoreboard references [--only customers] [--seconds 3600] [--at-once 12]

One problem by itself, which prints an entry of JSON at each look, the last of which counts:

    python -m benchmarks.scoreboard.references PROBLEM SECONDS TABLES [EVERY]

Up to 300 numbers, chains begin around the mode, twice as wide as the curvature there says, and that curvature is the matrix of masses. The
mode is looked for from several starts. Where there is none, or more numbers, chains warm up as NumPyro's do. A GPU takes minutes for all.

Kept in benchmarks/results/scoreboard_references.json: means, sds and quantiles of every number, and the effective draws of the worst.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.flatten_util import ravel_pytree  # noqa: E402
from numpyro.infer import MCMC, NUTS, init_to_median, init_to_uniform  # noqa: E402
from numpyro.infer.util import initialize_model  # noqa: E402
from scipy.optimize import minimize  # noqa: E402

from benchmarks.infer.reference import effective_draws  # noqa: E402
from benchmarks.infer.references import largest_r_hat, rounded  # noqa: E402
from benchmarks.infer.truth import Truth, of_draws  # noqa: E402
from benchmarks.scoreboard.models import MODELS  # noqa: E402
from benchmarks.scoreboard.tables import table  # noqa: E402

__all__ = ["FILE", "LARGEST_R_HAT", "converged", "make", "references"]

FILE = Path(__file__).parents[1] / "results" / "scoreboard_references.json"
CHAINS, STARTS, FIRST, LARGEST_R_HAT = 16, 4, 500, 1.005
ENOUGH = 200_000  # effective draws of the worst number: its 5% quantile is then known to 0.005 sds
DENSE = 300  # numbers up to which there is a matrix of masses
WARMUP_KNOWN, WARMUP = 300, 1_000
JUDGED = 2_000_000  # numbers of draws that diagnostics look at: those of more are thinned for them

Named = dict[str, np.ndarray]


def references(file: Path = FILE) -> dict[str, Truth]:
    """The truths that have converged, by problem."""
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        name: Truth({variable: np.asarray(margin) for variable, margin in entry["margins"].items()}, entry["error"])
        for name, entry in stored.items()
        if converged(entry)
    }


def converged(entry: dict[str, Any]) -> bool:
    return bool(entry.get("r_hat", np.inf) < LARGEST_R_HAT)


def make(model: Any, data: Named, seconds: float, began: float) -> Any:
    """Entries of a problem, one per look: draws are added until they are enough, or the time is over.

    Args:
        model: of NumPyro.
        data: its arguments; numbers that are not whole are made double.
        seconds: after `began`, on the clock of `time.perf_counter`, by which no more draws are begun.
    """
    with jax.enable_x64(True):
        given = {key: jnp.asarray(x, jnp.float64 if x.dtype.kind == "f" else None) for key, x in data.items()}
        size, options, starts, notes = _start(model, given)
        mcmc = MCMC(
            NUTS(model, init_strategy=init_to_median, **options),
            num_warmup=WARMUP_KNOWN if starts is not None else WARMUP,
            num_samples=FIRST,
            num_chains=CHAINS,
            chain_method="vectorized",
            progress_bar=False,
            jit_model_args=True,
        )
        mcmc.warmup(jax.random.key(0), init_params=starts, **given)
        notes["warm after"] = round(time.perf_counter() - began, 1)
        kept: dict[str, list[np.ndarray]] = {}
        drawn, look = 0, FIRST
        while True:
            before = time.perf_counter()
            mcmc.run(mcmc.post_warmup_state.rng_key, **given)
            mcmc.post_warmup_state = mcmc.last_state
            for variable, x in mcmc.get_samples(group_by_chain=True).items():
                kept.setdefault(variable, []).append(np.asarray(x))
            drawn += FIRST
            now = time.perf_counter()
            last = now + 1.5 * (now - before) - began > seconds
            if drawn >= look or last:
                look = 2 * drawn
                entry = _entry({variable: np.concatenate(parts, axis=1) for variable, parts in kept.items()}, size)
                last = last or (converged(entry) and entry["ess"] > ENOUGH)
                yield {**entry, **notes, "seconds": round(time.perf_counter() - began, 1)}
            if last:
                return


def _entry(draws: Named, size: int) -> dict[str, Any]:
    chains, count = next(iter(draws.values())).shape[:2]
    thin = -(-chains * count * size // JUDGED) if size > DENSE else 1
    judged = {variable: x[:, ::thin] for variable, x in draws.items()}
    ess, tail = (
        min(float(np.nanmin(x)) for x in effective_draws(judged, method).values()) for method in ("bulk", "tail")
    )
    return {
        "error": round(ess**-0.5, 6),
        "ess": round(ess),
        "tail_ess": round(tail),
        "r_hat": round(largest_r_hat(judged), 5),
        "draws": chains * count,
        "numbers": size,
        "margins": {variable: rounded(of_draws(x.reshape(-1, *x.shape[2:]))) for variable, x in draws.items()},
    }


def _start(model: Any, data: Any) -> tuple[int, dict[str, Any], Any, dict[str, Any]]:
    """How many numbers; options of NUTS, and where chains begin; what is to be noted of it."""
    found = initialize_model(
        jax.random.split(jax.random.key(1), STARTS),
        model,
        init_strategy=init_to_uniform,
        dynamic_args=True,
        model_kwargs=data,
    )
    points = jax.vmap(lambda z: ravel_pytree(z)[0])(found.param_info.z)
    size = points.shape[1]
    if size > DENSE:
        return size, {}, None, {}
    tree = ravel_pytree(jax.tree.map(lambda x: x[0], found.param_info.z))[1]

    def potential(flat: Any, data: Any) -> Any:
        return found.potential_fn(**data)(tree(flat))

    @jax.jit
    def hessian(flat: Any, data: Any) -> Any:
        slope = jax.grad(lambda flat: potential(flat, data))
        return jax.lax.map(lambda e: jax.jvp(slope, (flat,), (e,))[1], jnp.eye(size), batch_size=4)

    both = jax.jit(jax.value_and_grad(potential))
    modes = [
        minimize(
            lambda x: tuple(np.asarray(y, float) for y in both(x, data)),
            np.asarray(point),
            jac=True,
            hess=lambda x: np.asarray(hessian(x, data)),
            method="trust-exact",
            options={"gtol": 1e-3, "maxiter": 100},
        )
        for point in points
    ]
    best = min(modes, key=lambda mode: float(mode.fun))
    try:
        covariance = np.linalg.inv(np.asarray(hessian(best.x, data)))
        root = np.linalg.cholesky(0.5 * (covariance + covariance.T))
    except np.linalg.LinAlgError:  # effects of small groups have no mode together with their spread
        return size, {"dense_mass": True}, None, {"mode": "none"}
    off = [float(np.abs((mode.x - best.x) / np.sqrt(np.diag(covariance))).max()) for mode in modes]
    wide = best.x + 2 * np.random.default_rng(0).normal(size=(CHAINS, size)) @ root.T
    return (
        size,
        {"dense_mass": True, "inverse_mass_matrix": jnp.asarray(covariance), "adapt_mass_matrix": False},
        jax.vmap(tree)(jnp.asarray(wide)),
        {"starts at the mode": sum(x < 0.1 for x in off), "starts": STARTS},
    )


def main() -> None:
    """One problem."""
    problem, seconds, tables, *every = sys.argv[1:]
    data = {key: x[:: int(every[0]) if every else 1] for key, x in table(problem, Path(tables)).items()}
    for entry in make(MODELS[problem], data, float(seconds), BEGAN):
        print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    main()
