"""Models of PyMC and bambi from minibatches, with PyMC's own NUTS on all the data beside them. PyMC needs Python 3.12 or later."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
from against_nuts import compare, picture

import inbounds as ib

ROWS = 20_000
GENERATOR = np.random.default_rng(5)


def robust_regression(rows: int) -> pm.Model:
    """Student's t with unknown degrees of freedom: three positive or bounded numbers."""
    x = GENERATOR.normal(size=(rows, 3))
    y = 0.5 + x @ [1.0, -0.5, 0.2] + 0.8 * GENERATOR.standard_t(4, rows)
    with pm.Model(coords={"column": ["a", "b", "c"]}) as model:
        intercept = pm.Normal("intercept", 0, 2)
        slopes = pm.Normal("slopes", 0, 1, dims="column")
        sigma = pm.HalfNormal("sigma", 2)
        nu = pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=intercept + pm.math.dot(x, slopes), sigma=sigma, observed=y)
    return model


def zero_inflated_counts(rows: int) -> pm.Model:
    """A chance in (0, 1) that there is nothing to count, and rates that change with x."""
    x = GENERATOR.normal(size=rows)
    y = GENERATOR.poisson(np.exp(0.8 + 0.4 * x)) * (GENERATOR.uniform(size=rows) < 0.7)
    with pm.Model() as model:
        chance = pm.Beta("chance", 1, 1)
        base, slope = pm.Normal("base", 0, 1), pm.Normal("slope", 0, 1)
        pm.ZeroInflatedPoisson("y", psi=chance, mu=pm.math.exp(base + slope * x), observed=y)
    return model


def varying_shape(rows: int) -> bmb.Model:
    """bambi: Gamma regression whose shape changes with x, too."""
    x = GENERATOR.normal(size=rows)
    mean, shape = np.exp(0.5 + 0.3 * x), np.exp(1.0 + 0.4 * x)
    table = pd.DataFrame({"x": x, "y": GENERATOR.gamma(shape, mean / shape)})
    return bmb.Model(bmb.Formula("y ~ x", "alpha ~ x"), table, family="gamma", link={"mu": "log", "alpha": "log"})


EXAMPLES: dict[str, tuple[Callable[[int], Any], list[tuple]]] = {
    "robust_regression": (
        robust_regression,
        [("degrees of freedom", "nu"), ("scale", "sigma"), ("first slope", "slopes", 0)],
    ),
    "zero_inflated_counts": (
        zero_inflated_counts,
        [("chance of a count", "chance"), ("slope", "slope"), ("base", "base")],
    ),
    "varying_shape": (
        varying_shape,
        [("slope of the mean", "x"), ("slope of the shape", "alpha_x"), ("shape at x = 0", "alpha_Intercept")],
    ),
}


def from_minibatches(model: Any, batch_size: int, steps: int) -> tuple[ib.Draws, float]:
    """The doctor's scales and step size, then draws from minibatches, of the same number of rows each."""
    door = ib.from_pymc if isinstance(model, pm.Model) else ib.from_bambi
    posterior = door(model, batch_size=batch_size)
    report = ib.check(posterior, gradient=ib.gradients.svrg())
    gradient = ib.gradients.control_variate(center=report.center)
    kernel = ib.leimkuhler_matthews(posterior, gradient=gradient, preconditioner=report.preconditioner)
    step_size = report.preconditioned_step_size
    draws = ib.sample(
        kernel, step_size, steps, burn_in=steps // 10, thin=10, num_chains=8, init=report.center, progress=False
    )
    return draws, step_size


def by_pymc(model: Any, draws: int) -> dict[str, np.ndarray]:
    """NUTS on all the data, four chains: name -> (draw, ...)."""
    options: dict[str, Any] = {
        "draws": draws,
        "tune": draws,
        "chains": 4,
        "cores": 2,
        "random_seed": 1,
        "progressbar": False,
    }
    if isinstance(model, pm.Model):
        with model:
            found = pm.sample(**options)
    else:
        found = model.fit(**options)
    return {name: x.values.reshape(-1, *x.shape[2:]) for name, x in found.posterior.data_vars.items()}


def run(name: str, rows: int, batch_size: int, steps: int, nuts_draws: int, out: Path) -> None:
    build, panels = EXAMPLES[name]
    model = build(rows)
    began = time.perf_counter()
    draws, step_size = from_minibatches(model, batch_size, steps)
    ours = time.perf_counter() - began
    print(draws.summary())
    began = time.perf_counter()
    reference = by_pymc(model, nuts_draws)
    theirs = time.perf_counter() - began
    name = f"pymc_{name}"
    picture(name, draws, reference, panels, out)
    result = compare(name, draws, reference, out, step_size)
    result |= {"rows": rows, "batch_size": batch_size, "seconds_in_all": ours, "seconds_of_nuts_in_all": theirs}
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(EXAMPLES)}; all of them without")
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes; the numbers mean nothing")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="folder of the pictures and the numbers"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = (400, 100, 500, 50) if options.small else (ROWS, 500, 20_000, 1_000)
    for name in options.names or EXAMPLES:
        run(name, *sizes, options.out)


if __name__ == "__main__":
    main()
