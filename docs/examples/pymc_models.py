"""Models of PyMC and bambi, with PyMC's own NUTS on all the data beside them. PyMC needs Python 3.12 or later.

Three are sampled from minibatches with choices by hand, to show them; two with groups by `ib.infer`, which chooses for itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
from against_nuts import compare, differences, picture

import inbounds as ib

GROUPS = 12
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


def levels(rows: int) -> bmb.Model:
    """bambi: a level per group."""
    return bmb.Model("y ~ x + (1 | group)", grouped(rows, 0.0))


def levels_and_slopes(rows: int) -> bmb.Model:
    """bambi: a level and a slope per group."""
    return bmb.Model("y ~ x + (x | group)", grouped(rows, 0.3))


def grouped(rows: int, spread: float) -> pd.DataFrame:
    """A table in which each group has a level of its own, and a slope of its own where they are spread."""
    group, x = GENERATOR.integers(0, GROUPS, rows), GENERATOR.normal(size=rows)
    level, slope = GENERATOR.normal(1.0, 0.5, GROUPS), GENERATOR.normal(0.4, spread, GROUPS)
    y = level[group] + slope[group] * x + 0.8 * GENERATOR.normal(size=rows)
    return pd.DataFrame({"x": x, "group": [f"group {number:02}" for number in group], "y": y})


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
        "tune": min(draws, 1_000),
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


def by_infer(name: str, build: Callable[[int], Any], panels: list[tuple], small: bool, out: Path) -> None:
    """`ib.infer` chooses, and its certificate is compared."""
    rows, error, nuts_draws = (400, 0.5, 50) if small else (2_000, 0.05, 2_000)
    model = build(rows)
    draws = ib.infer(model, error=error, progress=False)
    found = draws.certificate
    print(draws.summary(), found, sep="\n")
    reference = by_pymc(model, nuts_draws)
    picture(name, draws, reference, panels, out, label="ib.infer")
    result = {"example": name, "rows": rows, "certified": found.ok, "method": found.method}
    result |= differences(found, reference) | {"choices": found.choices}
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def by_hand(name: str, build: Callable[[int], Any], panels: list[tuple], small: bool, out: Path) -> None:
    """Minibatches in the doctor's scales, and the draws are compared."""
    rows, batch_size, steps, nuts_draws = (400, 100, 500, 50) if small else (20_000, 500, 20_000, 1_000)
    model = build(rows)
    began = time.perf_counter()
    draws, step_size = from_minibatches(model, batch_size, steps)
    ours = time.perf_counter() - began
    print(draws.summary())
    began = time.perf_counter()
    reference = by_pymc(model, nuts_draws)
    theirs = time.perf_counter() - began
    picture(name, draws, reference, panels, out)
    result = compare(name, draws, reference, out, step_size)
    result |= {"rows": rows, "batch_size": batch_size, "seconds_in_all": ours, "seconds_of_nuts_in_all": theirs}
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


class Example(NamedTuple):
    """A model, how it is sampled, and what the picture shows: (title, variable, index...)."""

    build: Callable[[int], Any]
    run: Callable[[str, Any, list[tuple], bool, Path], None]
    panels: list[tuple]


EXAMPLES = {
    "robust_regression": Example(
        robust_regression, by_hand, [("degrees of freedom", "nu"), ("scale", "sigma"), ("first slope", "slopes", 0)]
    ),
    "zero_inflated_counts": Example(
        zero_inflated_counts, by_hand, [("chance of a count", "chance"), ("slope", "slope"), ("base", "base")]
    ),
    "varying_shape": Example(
        varying_shape,
        by_hand,
        [("slope of the mean", "x"), ("slope of the shape", "alpha_x"), ("shape at x = 0", "alpha_Intercept")],
    ),
    "levels": Example(
        levels,
        by_infer,
        [("sd of the levels", "1|group_sigma"), ("intercept", "Intercept"), ("level of the first group", "1|group", 0)],
    ),
    "levels_and_slopes": Example(
        levels_and_slopes,
        by_infer,
        [("sd of the slopes", "x|group_sigma"), ("mean slope", "x"), ("slope of the first group", "x|group", 0)],
    ),
}


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
    for name in options.names or EXAMPLES:
        build, run, panels = EXAMPLES[name]
        run(f"pymc_{name}", build, panels, options.small, options.out)


if __name__ == "__main__":
    main()
