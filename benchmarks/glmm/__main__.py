"""Chains of mixed models that diverge, or not (docs/results/glmm/README.md).

python -m benchmarks.glmm --only reference       # NUTS: minutes on two cores
python -m benchmarks.glmm --only infer           # `ib.infer`: half an hour on two cores, and best on a GPU with 1,000 chains
python -m benchmarks.glmm --only chains          # a thousand chains of everything: minutes on a GPU, many hours on two cores
python -m benchmarks.glmm --only chains --chains 100 --steps 500
python -m benchmarks.glmm --pages                # nothing is run: the page's tables and its picture
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import inbounds as ib
from benchmarks.glmm.chains import contestants, run
from benchmarks.glmm.models import FAMILIES, GLOBALS, by_nuts, data, model

RESULTS = Path(__file__).parents[1] / "results" / "glmm.json"
KEPT = 500  # draws of the reference in the file of results
MANY = 1_000  # chains of `ib.infer`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("reference", "infer", "chains"), help="a part of it")
    parser.add_argument("--chains", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    parser.add_argument("--pages", action="store_true", help="write the page's tables and its picture")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ib.UntrustworthyWarning)
    if options.pages:
        from benchmarks.glmm.pages import write

        write(json.loads(RESULTS.read_text()))
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.only in (None, "reference"):
        found |= {"reference": {family: reference(family) for family in FAMILIES}}
        _write(options.out, found)
    if options.only in (None, "infer"):
        found["infer"] = []
        for family in FAMILIES:
            for method in METHODS:
                found["infer"].append(by_infer(family, found["reference"][family], method))
                _write(options.out, found)
    if options.only in (None, "chains"):
        rows = []
        for family in FAMILIES:
            exact = {name: np.asarray(found["reference"][family][name]) for name in GLOBALS}
            for contestant in contestants():
                began = time.perf_counter()
                rows += run(contestant, family, exact, options.chains, options.steps)
                took = time.perf_counter() - began
                left = [row["non-finite"] + row["beyond"] for row in rows[-len(contestant.step_sizes) :]]
                print(
                    family,
                    contestant.name,
                    "integrated" if contestant.integrated else "joint",
                    f"{took:.1f} s",
                    left,
                    flush=True,
                )
                _write(options.out, found | {"chains": rows, "device": jax.devices()[0].device_kind})


METHODS = ("auto", "minibatch", "many chains")


def reference(family: str) -> dict[str, Any]:
    """Draws of NUTS, some of them."""
    draws = by_nuts(family)
    every = len(draws["correlation"]) // KEPT
    return {name: np.round(draws[name][::every][:KEPT], 5).tolist() for name in GLOBALS} | {
        "exact": {name: [draws[name].mean(axis=0).tolist(), draws[name].std(axis=0).tolist()] for name in GLOBALS}
    }


def by_infer(family: str, exact: dict[str, Any], method: str) -> dict[str, Any]:
    """The certificate beside NUTS; with many chains, by minibatches, whether all of their draws are finite."""
    options: dict[str, Any] = {"method": "auto"} if method == "auto" else {"method": "minibatch"}
    if method == "many chains":
        options["num_chains"] = MANY
    began = time.perf_counter()
    draws = ib.infer(model(family), *data(family), progress=False, **options)
    took = time.perf_counter() - began
    certificate = draws.certificate
    finite = np.ones(draws.num_chains, bool)
    for leaf in jax.tree.leaves(draws.phi):
        finite &= np.isfinite(np.asarray(leaf)).reshape(draws.num_chains, -1).all(axis=1)
    row: dict[str, Any] = {"family": family, "asked": method, "method": certificate.method, "certified": certificate.ok}
    row |= {"reasons": certificate.reasons, "seconds": round(took, 1), "chains": draws.num_chains}
    row["chains with a draw that is not finite"] = int(np.sum(~finite))
    for name in GLOBALS:
        mean, sd = (np.asarray(x) for x in exact["exact"][name])
        row[f"{name}: mean off by, in sds"] = np.round((certificate.mean[name] - mean) / sd, 4).tolist()
        row[f"{name}: sd over the exact one"] = np.round(certificate.sd[name] / sd, 4).tolist()
    print(json.dumps(row), flush=True)
    return row


def _write(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
