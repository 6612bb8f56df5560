"""The samplers that the paper's toy figures compare, each on one of the targets, and how their chains are run."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from experiments.targets import Target
from inbounds.kernels import Kernel

PROBIT_FAMILY = ("probit", "integrated_probit")
OURS = ("lm", "lm-nc", "lm-nc-estimated")
LABELS = {
    "mirror": "mirror",
    "ito": "Ito",
    "corv": "CoRV",
    "lm": "CoRV-LM",
    "lm-nc": "CoRV-LM-nc",
    "lm-nc-estimated": "CoRV-LM-nc",
}
RANGES = {"mirror": (1e-7, 1.0), "ito": (1e-6, 1.0), "corv": (1e-4, 3.0)}
"""Where step sizes are searched: at least four decades a method, and every optimum known so far well inside."""


def label(family: str, transform: str | None) -> str:
    """How a figure calls a method."""
    name = LABELS[family] + (f" {transform}".replace("_", " ") if transform else "")
    return name + (", estimated" if family == "lm-nc-estimated" else "")


@dataclass(frozen=True)
class Method:
    """A sampler and the transform it uses.

    Args:
        family: "mirror", "ito", "corv" (Euler), "lm" (Leimkuhler-Matthews), "lm-nc" (the same with the noise variance
            known and corrected for) or "lm-nc-estimated" (with the variance estimated from the gradients).
        transform: its name; None for mirror.
        noise_sd: standard deviation of the Gaussian noise on the theta-gradient.
    """

    family: str
    transform: str | None = None
    noise_sd: float = 1.0

    @property
    def name(self) -> str:
        exact = "" if self.noise_sd else "-exact"
        return self.family + (f"-{self.transform}" if self.transform else "") + exact

    @property
    def label(self) -> str:
        return label(self.family, self.transform)

    @property
    def range(self) -> tuple[float, float]:
        return RANGES.get(self.family, RANGES["corv"])

    def kernel(self, target: Target) -> Kernel:
        """The kernel on the target, whose exact gradient gets Gaussian noise, as in the paper."""
        sd = self.noise_sd
        if self.family == "lm-nc-estimated":
            # Two draws per step, so that there is something to estimate a variance from; their mean has the same law.
            posterior = _noisy(target, lambda z: math.sqrt(2) * sd * jnp.mean(z), (2,))
        elif sd:
            posterior = _noisy(target, lambda z: sd * z, ())
        else:
            posterior = ib.Posterior(supports=target.support, gradient=lambda theta, _: target.score(theta))
        if self.family == "mirror":
            return ib.baselines.mirror(posterior)
        if self.family == "ito":
            return ib.baselines.ito(posterior, self.transform)
        if self.family == "corv":
            return ib.sgld(posterior, self.transform)
        correction = {"lm": False, "lm-nc": sd**2 or False, "lm-nc-estimated": True}[self.family]
        return ib.leimkuhler_matthews(posterior, self.transform, noise_correction=correction)


def _noisy(target: Target, noise: Callable[..., Any], shape: tuple[int, ...]) -> ib.Posterior:
    return ib.Posterior(
        supports=target.support,
        gradient=lambda theta, z: target.score(theta) + noise(z),
        data=ib.data.Generated(lambda key: jax.random.normal(key, shape)),
    )


def all_methods(target: Target) -> list[Method]:
    """Everything that Figure 1 compares on a target: the paper's methods with every transform that fits, then ours."""
    names = ib.transforms.available(target.support)
    plain = names[0]
    ours = [name for name in names if name in (plain, "icll", *PROBIT_FAMILY)]
    return [
        Method("mirror"),
        *(Method("ito", name) for name in names),
        *(Method("corv", name) for name in names),
        Method("lm", plain),
        *(Method(family, name) for family in ("lm-nc", "lm-nc-estimated") for name in ours),
    ]


def headline_methods(target: Target, probit: bool = False) -> list[Method]:
    """The paper's three with the default transform, and our best: what a first look needs."""
    names = ib.transforms.available(target.support)
    chosen = [Method("mirror"), Method("ito", names[0]), Method("corv", names[0]), Method("lm-nc", names[0])]
    return chosen + [Method("lm-nc", name) for name in names if probit and name in PROBIT_FAMILY]


class Chains(NamedTuple):
    """Draws of theta (chain, draw), nan where a chain died; the share of steps with a restart or a clamp; the time."""

    theta: np.ndarray
    clamped: np.ndarray
    seconds: float


def run_chains(
    kernel: Kernel,
    target: Target,
    step_sizes: np.ndarray,
    draws: int,
    burn_in: int,
    seed: int,
    check: Callable[[], None] = lambda: None,
    thin: int = 1,
) -> Chains:
    """One chain a step size, from the target's median; a chain that leaves the finite numbers does not stop the others.

    Args:
        kernel: from `Method.kernel`, made once: an equal number of chains then compiles once.
        target: what it samples.
        step_sizes: one per chain.
        draws: kept a chain.
        burn_in: steps before the first of them.
        seed: of the run.
        check: called between chunks; raises when the run is to stop.
        thin: steps between two kept draws.
    """
    start = time.perf_counter()
    run = ib.sample(
        kernel,
        step_size=np.asarray(step_sizes, float),
        num_steps=burn_in + draws * thin,
        burn_in=burn_in,
        thin=thin,
        num_chains=len(step_sizes),
        seed=seed,
        init=float(target.quantile(0.5)),
        progress=False,
        monitor=lambda done, collected: check(),
        on_failure="continue",
    )
    theta = np.asarray(run.theta)
    return Chains(theta, np.mean(run.stats["clamped"], axis=1), time.perf_counter() - start)


def seed_for(seed: int, *names: Any) -> int:
    """A seed of its own for every use, the same in every run."""
    return int(np.random.SeedSequence([seed, zlib.crc32("/".join(map(str, names)).encode())]).generate_state(1)[0] >> 1)
