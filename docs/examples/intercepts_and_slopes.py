"""An intercept and a slope per group, with a correlation, for rows that are Gaussian, Bernoulli, Poisson or negative binomial."""

from __future__ import annotations

import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Inferred

ROWS = 12  # of each group, on average
LAWS = {
    "gaussian": lambda linear, spread: dist.Normal(linear, spread),
    "bernoulli": lambda linear, spread: dist.Bernoulli(logits=linear),
    "poisson": lambda linear, spread: dist.Poisson(jnp.exp(linear)),
    "negative_binomial": lambda linear, spread: dist.NegativeBinomial2(jnp.exp(linear), 1 / spread),
}
WITH_SPREAD = ("gaussian", "negative_binomial")


def model_of(law: str):
    """The model, as one writes it."""

    def model(groups, group, x, y):
        mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1).expand([2]).to_event(1))
        factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        numpyro.deterministic("correlation", factor[1, 0])
        spread = numpyro.sample("spread", dist.HalfNormal(1)) if law in WITH_SPREAD else None
        with numpyro.plate("groups", groups):
            unit = numpyro.sample("unit", dist.Normal(0, 1).expand([2]).to_event(1))
        effect = numpyro.deterministic("effect", mean + unit @ (scale[:, None] * factor).T)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", LAWS[law](effect[group, 0] + effect[group, 1] * x, spread), obs=y)

    return model


def data_of(law: str):
    """Groups of unequal size."""

    def data(groups: int) -> tuple:
        generator = np.random.default_rng(3)
        group = np.repeat(np.arange(groups), 2 + generator.poisson(ROWS - 2, groups))
        x = generator.normal(size=len(group)).astype(np.float32)
        effect = generator.multivariate_normal([0.5, 0.4], [[0.36, 0.09], [0.09, 0.16]], groups)
        linear = effect[group, 0] + effect[group, 1] * x
        rate = np.exp(linear)
        y = {
            "gaussian": lambda: generator.normal(linear, 0.8).astype(np.float32),
            "bernoulli": lambda: (generator.random(len(x)) < 1 / (1 + 1 / rate)).astype(np.int32),
            "poisson": lambda: generator.poisson(rate).astype(np.int32),
            "negative_binomial": lambda: generator.poisson(rate * generator.gamma(2.0, 0.5, len(x))).astype(np.int32),
        }[law]()
        return groups, group.astype(np.int32), x, y

    return data


EXAMPLES = {
    law: Inferred(
        name=f"intercepts_and_slopes_{law}",
        model=model_of(law),
        data=data_of(law),
        groups=60,
        small_groups=20,
        panels=[("sd of the intercepts", "scale", 0), ("sd of the slopes", "scale", 1), ("correlation", "correlation")],
        effects=("effect", "unit"),
    )
    for law in LAWS
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("laws", nargs="*", help=f"some of {', '.join(LAWS)}; all of them without")
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes; the numbers mean nothing")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="folder of the pictures and the numbers"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for law in options.laws or LAWS:
        EXAMPLES[law].run(options.small, options.out)


if __name__ == "__main__":
    main()
