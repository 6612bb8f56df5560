"""What the examples share: `ib.infer` or choices by hand, a NUTS run on all the data, the table of differences, and the picture."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro.infer import HMC, MCMC, NUTS, init_to_uniform, init_to_value

import inbounds as ib


@dataclass(frozen=True)
class Example:
    """A model, its data, and how long to sample it.

    Args:
        name: of the files that are written.
        model: a NumPyro model of the data and of `batch_size`; None looks at all of them.
        data: from a number of rows to the arguments of the model.
        rows, small_rows: how many.
        steps: of each chain.
        panels: what the picture shows: (title, variable, index...).
        chains, thin: as for `ib.sample`.
        transforms: as for the kernels.
        start: where the doctor starts looking; None: near the middle of the prior.
        preconditioned: use the doctor's scales and step size for them; else the upper end of its range, which is made for
            kernels of first order.
        double: run NUTS in double precision.
        reference_draws: of each NUTS chain.
    """

    name: str
    model: Callable[..., None]
    data: Callable[[int], tuple]
    rows: int
    small_rows: int
    steps: int
    panels: list[tuple]
    chains: int = 8
    thin: int = 10
    transforms: Any = None
    start: Any = None
    preconditioned: bool = True
    double: bool = False
    reference_draws: int = 2_500

    def sample(self, posterior: Any, step_size: float, small: bool, init: Any, **options: Any) -> Any:
        """Draws from minibatches."""
        kernel = ib.leimkuhler_matthews(posterior, self.transforms, **options)
        steps = 200 if small else self.steps
        return ib.sample(
            kernel,
            step_size,
            steps,
            burn_in=steps // 10,
            thin=self.thin,
            num_chains=2 if small else self.chains,
            init=init,
            progress=False,
        )

    def run(self, small: bool, out: Path) -> dict:
        """The doctor, the sampler, NUTS on all the data, and the differences."""
        data = self.data(self.small_rows if small else self.rows)
        posterior = ib.from_numpyro(self.model, *data)
        report = ib.check(posterior, self.transforms, init=self.start, gradient=ib.gradients.svrg())
        step_size = report.preconditioned_step_size if self.preconditioned else report.step_sizes[1]
        draws = self.sample(
            posterior,
            step_size,
            small,
            report.center,
            gradient=ib.gradients.control_variate(center=report.center),
            preconditioner=report.preconditioner if self.preconditioned else None,
        )
        print(draws.summary())
        with jax.enable_x64(True) if self.double else contextlib.nullcontext():
            reference = nuts(
                self.model, *data, batch_size=None, start=report.center, small=small, draws=self.reference_draws
            )
        picture(self.name, draws, reference, self.panels, out)
        return compare(self.name, draws, reference, out, step_size)

    def quick_look(self, out: Path) -> Any:
        """The sampler and its picture on a few rows, without the doctor and the reference; returns the draws."""
        posterior = ib.from_numpyro(self.model, *self.data(self.small_rows))
        draws = self.sample(posterior, 1e-6, small=True, init=self.start)
        picture(self.name, draws, None, self.panels, out)
        return draws


@dataclass(frozen=True)
class Inferred:
    """A hierarchical model, for which `ib.infer` chooses.

    Args:
        name: of the files that are written.
        model: a NumPyro model of the data.
        data: the arguments of the model; its argument says how many groups they shall have.
        groups, small_groups: how many.
        panels: what the picture shows: (title, variable, index...).
        reference: the same model written for NUTS, such as with effects of unit scale; None takes `model`.
        effects: names of what the groups have, which are compared apart.
    """

    name: str
    model: Callable[..., None]
    data: Callable[[int], tuple]
    groups: int
    small_groups: int
    panels: list[tuple]
    reference: Callable[..., None] | None = None
    effects: tuple[str, ...] = ("effect",)

    def run(self, small: bool, out: Path) -> dict:
        """The answer and its certificate, NUTS on all the variables, and the differences."""
        data = self.data(self.small_groups if small else self.groups)
        began = time.perf_counter()
        draws = ib.infer(self.model, *data, error=0.5 if small else 0.07, progress=False)
        ours, found = time.perf_counter() - began, draws.certificate
        print(draws.summary(), found, sep="\n")
        began = time.perf_counter()
        reference = nuts(self.reference or self.model, *data, small=small, target_accept_prob=0.9)
        result = {"example": self.name, "certified": found.ok, "reasons": list(found.reasons), "method": found.method}
        result |= differences(found, reference, leave_out=self.effects)
        result |= {
            f"{key}_of_effects": value for key, value in differences(found, reference, only=self.effects).items()
        }
        result |= {"seconds": round(ours, 1), "seconds_of_nuts": round(time.perf_counter() - began, 1)}
        result |= {"effects": found.choices.get("effects", "")}
        print(json.dumps(result, indent=2))
        (out / f"{self.name}.json").write_text(json.dumps(result, indent=2) + "\n")
        picture(self.name, draws, reference, self.panels, out, label="ib.infer")
        return result


def differences(
    found: Any, reference: dict[str, np.ndarray], only: tuple[str, ...] = (), leave_out: tuple[str, ...] = ()
) -> dict[str, float]:
    """The largest of the certified means, in posterior sds, and of the sds, relative; empty where there is nothing to compare."""
    means, sds = [], []
    for name in found.mean.keys() & reference.keys():
        if name in leave_out or (only and name not in only):
            continue
        mean, sd = reference[name].mean(axis=0), reference[name].std(axis=0)
        moves = sd > 0  # the last row of a Cholesky factor, say, has zeros in it
        means.append(np.max(np.abs(found.mean[name] - mean)[moves] / sd[moves]))
        sds.append(np.max(np.abs(found.sd[name][moves] / sd[moves] - 1)))
    if not means:
        return {}
    return {
        "largest_error_of_a_mean_in_sds": float(max(means)),
        "largest_relative_error_of_an_sd": float(max(sds)),
    }


def main(example: Example | Inferred, description: str) -> None:
    """The command line of every example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the picture and the table")
    if isinstance(example, Example):
        parser.add_argument("--quick", action="store_true", help="the sampler and the picture only, on a few rows")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with jax.default_matmul_precision("highest"):  # a GPU's shortcuts are visible in a million rows
        if isinstance(example, Example) and options.quick:
            example.quick_look(options.out)
        else:
            example.run(options.small, options.out)


def nuts(
    model, *args, start: dict | None = None, small: bool = False, draws: int = 2_500, target_accept_prob=0.8, **kwargs
) -> dict[str, np.ndarray]:
    """Reference draws from all the data: name -> (draw, ...), deterministic sites included."""
    draws, warmup, chains = (100, 100, 1) if small else (draws, 1_000, 4)
    start = {name: np.asarray(value, float) for name, value in (start or {}).items()}
    strategy = init_to_value(values=start) if start else init_to_uniform
    # At small scale a few leapfrog steps stand in: NUTS alone takes ten seconds to compile.
    kernel = (
        HMC(model, num_steps=5, trajectory_length=None, init_strategy=strategy)
        if small
        else NUTS(model, init_strategy=strategy, target_accept_prob=target_accept_prob)
    )
    mcmc = MCMC(
        kernel, num_warmup=warmup, num_samples=draws, num_chains=chains, chain_method="vectorized", progress_bar=False
    )
    clock = time.perf_counter()
    mcmc.run(jax.random.key(0), *args, **kwargs)
    samples = {name: np.asarray(value) for name, value in mcmc.get_samples().items()}
    print(f"NUTS on all the data: {chains} x {draws:,} draws in {time.perf_counter() - clock:.0f} s")
    return samples


def compare(name: str, draws, reference: dict[str, np.ndarray], out: Path, step_size: float) -> dict:
    """Differences of means (in posterior sds) and of sds (relative), written as a table; a picture beside it."""
    rows = []
    for variable, ours in draws.variables().items():
        if variable not in reference:
            continue
        ours = np.asarray(ours, float).reshape(-1, *ours.shape[2:])
        for index in np.ndindex(ours.shape[1:]):
            a, b = ours[(slice(None), *index)], np.asarray(reference[variable][(slice(None), *index)], float)
            label = variable + (f"[{', '.join(map(str, index))}]" if index else "")
            rows.append((label, a.mean(), b.mean(), (a.mean() - b.mean()) / b.std(), a.std() / b.std() - 1))
    print(f"{'variable':<16}{'ours':>10}{'NUTS':>10}{'mean off by':>14}{'sd off by':>12}")
    for label, ours, theirs, mean, sd in rows[:12]:
        print(f"{label:<16}{ours:>10.4g}{theirs:>10.4g}{mean:>+11.1%} sd{sd:>+12.1%}")
    worst = {"mean": max(abs(row[3]) for row in rows), "sd": max(abs(row[4]) for row in rows)}
    result = {
        "example": name,
        "variables": len(rows),
        "largest_error_of_a_mean_in_sds": worst["mean"],
        "largest_relative_error_of_an_sd": worst["sd"],
        "step_size": float(step_size),
        "kernel": draws.kernel.name,
        "chains": draws.num_chains,
        "steps": draws.num_steps,
        "seconds": draws.seconds,
    }
    print(f"largest over {len(rows)} numbers: mean {worst['mean']:.1%} of an sd, sd {worst['sd']:.1%}")
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    return result


def picture(
    name: str,
    draws,
    reference: dict[str, np.ndarray] | None,
    panels: list[tuple],
    out: Path,
    label: str = "minibatches",
) -> None:
    """Histograms of a few numbers, ours filled and, where it was run, NUTS as a line: panels are (title, variable, index...)."""
    try:
        import matplotlib
    except ImportError:
        print('no picture: matplotlib is not installed (pip install "inbounds[cli]")')
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(3.2 * len(panels), 2.6), layout="constrained")
    for axis, (title, variable, *index) in zip(np.atleast_1d(axes), panels, strict=True):
        ours = draws.variables()[variable]
        ours = ours[(slice(None), slice(None), *index)].ravel()
        theirs = ours if reference is None else reference[variable][(slice(None), *index)]
        edges = np.histogram_bin_edges(np.concatenate([ours, theirs]), 40)
        axis.hist(ours, edges, density=True, alpha=0.5, color="#2a6fbb", label=label)
        if reference is not None:
            axis.hist(theirs, edges, density=True, histtype="step", color="black", label="NUTS, all data")
        axis.set(title=title, yticks=[])
        axis.spines[["left", "right", "top"]].set_visible(False)
    np.atleast_1d(axes)[0].legend(frameon=False, fontsize=8)
    figure.savefig(out / f"{name}.png", dpi=110)
    plt.close(figure)
