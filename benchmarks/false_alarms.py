"""How often a run with the right law is noted: 1,000 runs of 20 variables with an ESS of 1,000, for several numbers of chains.

python benchmarks/false_alarms.py
"""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from inbounds.sampling.convergence import Convergence, convergence
from inbounds.sampling.verdict import chains_agree

RUNS, VARIABLES, AT_ONCE = 1_000, 20, 50
SETTINGS = [
    (1, 3_000, 0.5),
    (2, 500, 0.0),
    (4, 1_000, 0.6),
    (4, 5_000, 0.905),
    (8, 125, 0.0),
    (16, 500, 0.777),
    (64, 100, 0.72),
]


def draws(generator: np.random.Generator, chains: int, length: int, numbers: int, correlation: float) -> np.ndarray:
    """Stationary autoregressions with standard normal margins."""
    noise = generator.normal(size=(chains, length, numbers))
    noise[:, 1:] *= np.sqrt(1 - correlation**2)
    return lfilter([1], [1, -correlation], noise, axis=1)


def main() -> None:
    generator = np.random.default_rng(0)
    names = [f"x{i}" for i in range(VARIABLES)]
    for chains, length, correlation in SETTINGS:
        alarms: list[str] = []
        for _ in range(RUNS // AT_ONCE):
            found = convergence(draws(generator, chains, length, AT_ONCE * VARIABLES, correlation))
            for run in range(AT_ONCE):
                own = Convergence(*(x[run * VARIABLES : (run + 1) * VARIABLES] for x in found))
                notes = chains_agree(names, own, chains, length)
                alarms += ["+".join(note.section for note in notes)] * bool(notes)
        kinds = {kind: alarms.count(kind) for kind in sorted(set(alarms))}
        print(f"{chains} chains x {length:,} draws, correlation {correlation}: {len(alarms) / RUNS:.1%} {kinds}")


if __name__ == "__main__":
    main()
