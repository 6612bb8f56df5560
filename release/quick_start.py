"""What a new user does first, with the posterior known exactly. Exits with an error where an answer is wrong.

    python release/quick_start.py

Runs on the installed library, with its required dependencies alone.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

import inbounds as ib

SOURCE = Path(__file__).parents[1] / "src"


def main() -> None:
    """Sample a Gamma posterior from minibatches and compare it with the exact one."""
    if SOURCE in Path(ib.__file__).parents:
        sys.exit(f"this is the working tree, not an installed library: {ib.__file__}")
    if version("inbounds") != ib.__version__:
        sys.exit(f"the metadata say {version('inbounds')}, the library says {ib.__version__}")
    spent = np.random.default_rng(0).exponential(2.0, size=20_000).astype(np.float32)
    prior = dist.Gamma(0.5, 0.5)

    def log_likelihood(theta, batch):
        return dist.Exponential(theta["rate"]).log_prob(batch)

    posterior = ib.Posterior({"rate": prior}, log_likelihood, spent)
    kernel = ib.leimkuhler_matthews(posterior, noise_correction=True)
    draws = ib.sample(kernel, 2e-6, 6_000, burn_in=1_000, batch_size=1_000, num_chains=4, seed=0, progress=False)
    exact = dist.Gamma(0.5 + len(spent), 0.5 + float(spent.sum(dtype=np.float64)))
    mean, sd = float(exact.mean), float(exact.variance) ** 0.5
    off = abs(float(draws.theta["rate"].mean()) - mean) / sd
    ratio = float(draws.theta["rate"].std()) / sd
    print(
        f"inbounds {ib.__version__}, Python {sys.version.split()[0]}: mean off by {off:.3f} sd, sd {ratio:.3f} times the exact one"
    )
    if off > 0.25 or not 0.85 < ratio < 1.15:
        sys.exit("the draws are not those of the exact posterior")


if __name__ == "__main__":
    main()
