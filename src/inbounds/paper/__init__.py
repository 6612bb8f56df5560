"""The experiments of the paper, one module a figure. Nothing in the library imports from here.

A module of `EXPERIMENTS` has

- `SCALES`: names to what the scale means, `smoke` among them;
- `NEEDS_DATA = True` where it cannot run without a download, so that `inbounds paper all` leaves it out;
- `settings(scale, seed, **options) -> dict`: everything that its numbers depend on;
- `run(results, say, **how)`: compute the parts that `results` does not hold yet; `how` changes no number (where data are);
- `report(results) -> Report`: tables, pictures and sentences from the parts that are there, however many.
"""

EXPERIMENTS = {
    "basic": "inbounds.paper.basic",
    "weak-error": "inbounds.paper.weak_error",
    "nmf": "inbounds.paper.nmf",
    "binary-network": "inbounds.paper.binary_network",
    "overhead": "inbounds.paper.overhead",
}
"""The name on the command line, and the module behind it, imported when it is asked for."""
