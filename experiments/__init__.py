"""The experiments of the paper, one module a figure: `python -m experiments --help`. They use the public names of Inbounds alone.

A module of `EXPERIMENTS` has

- `SCALES`: names to what the scale means, `smoke` among them;
- `NEEDS_DATA = True` where it cannot run without a download, so that `python -m experiments all` leaves it out;
- `settings(scale, seed, **options) -> dict`: everything that its numbers depend on;
- `run(results, say, **how)`: compute the parts that `results` does not hold yet; `how` changes no number (where data are);
- `report(results) -> Report`: tables, pictures and sentences from the parts that are there, however many.
"""

EXPERIMENTS = {
    "basic": "experiments.basic",
    "weak-error": "experiments.weak_error",
    "nmf": "experiments.nmf",
    "binary-network": "experiments.binary_network",
    "overhead": "experiments.overhead",
}
"""The name on the command line, and the module behind it, imported when it is asked for."""
