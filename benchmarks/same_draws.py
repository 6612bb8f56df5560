"""Does a change of the house change a draw? Hashes of the draws of a fixed set of runs.

    python -m benchmarks.same_draws record before.json     # on the commit before
    python -m benchmarks.same_draws compare before.json    # on the commit after, on the same machine

The runs are short: kernels x gradients x sizes x chains x ways of making minibatches, a store, a run that is resumed, the three
models. Hashes are those of the bits, so that they compare one machine with itself alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import inbounds as ib

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3)).astype(np.float32)
Y = (X @ np.array([0.5, 1.0, 0.1], np.float32) + RNG.normal(size=240)).astype(np.float32)
WIDE = RNG.normal(size=(240, 160)).astype(np.float32)
USER, ITEM = np.divmod(RNG.choice(90 * 70, 600, replace=False), 70)
RATING = RNG.integers(1, 6, 600).astype(np.float32)


def regression(x=X):
    size = x.shape[1]
    return ib.Posterior(
        {"w": dist.HalfNormal(2.0).expand([size]), "sd": dist.Gamma(2.0, 2.0)},
        lambda theta, batch: dist.Normal(batch["x"] @ theta["w"], theta["sd"]).log_prob(batch["y"]),
        {"x": x, "y": Y},
    )


def scalars():
    return ib.Posterior({"a": dist.Gamma(0.5, 2.0), "b": dist.Beta(2.0, 2.0), "c": dist.Normal(0.0, 1.0).expand([3])})


def vectors():
    return ib.Posterior({"p": dist.Dirichlet(np.full(4, 1.5, np.float32)).expand([3]), "x": dist.HalfCauchy(1.0)})


def table():
    return ib.Posterior({"w": dist.Exponential(2.0).expand([300, 20]), "s": dist.Beta(2.0, 3.0).expand([7])})


def factors():
    def log_likelihood(theta, batch):
        rate = jnp.sum(theta["W"][batch["user"]] * theta["H"][batch["item"]], axis=-1)
        return dist.Poisson(rate).log_prob(batch["rating"])

    priors = {"W": dist.Gamma(2.0, 3.0).expand([90, 50]), "H": dist.Gamma(2.0, 3.0).expand([70, 50])}
    data = {"user": USER, "item": ITEM, "rating": RATING}
    return ib.Posterior(priors, log_likelihood, data)


def noisy():
    return ib.Posterior(
        supports={"x": dist.constraints.positive},
        gradient=lambda theta, z: {"x": 1 / theta["x"] - 2 + 0.5 * z},
        data=ib.data.Generated(lambda key: jax.random.normal(key)),
    )


def of_numpyro():
    def model(x, y):
        w = numpyro.sample("w", dist.HalfNormal(1.0).expand([3]))
        with numpyro.plate("rows", len(y), subsample_size=24) as rows:
            numpyro.sample("y", dist.Normal(x[rows] @ w, 1.0), obs=y[rows])

    return ib.from_numpyro(model, X, Y)


CENTER = {"w": np.array([0.5, 1.0, 0.1], np.float32), "sd": np.float32(1.0)}
GRADIENTS = {
    "minibatch": ib.gradients.minibatch,
    "successive": ib.gradients.minibatch(variance="successive"),
    "per_example": ib.gradients.minibatch(variance="per_example"),
    "control_variate": ib.gradients.control_variate(center=CENTER),
    "taylor": ib.gradients.taylor(center=CENTER),
    "svrg": ib.gradients.svrg(every=16),
}
KERNELS = {"sgld": ib.sgld, "leimkuhler_matthews": ib.leimkuhler_matthews, "baoab": ib.baoab, "sgnht": ib.sgnht}


def run(kernel, step_size=1e-4, num_steps=160, **settings):
    return ib.sample(kernel, step_size, num_steps, progress=False, **settings)


def runs(folder: Path) -> dict:
    """Each run by its name, as a function that returns its draws, or a tree of arrays."""
    found = {}
    for name, kernel in KERNELS.items():
        found[f"{name} scalars"] = lambda kernel=kernel: run(kernel(scalars()), 1e-2, num_chains=3, seed=4)
        found[f"{name} data"] = lambda kernel=kernel: run(kernel(regression()), batch_size=30)
        found[f"{name} table"] = lambda kernel=kernel: run(kernel(table()), num_chains=2, thin=20)
        found[f"{name} factors"] = lambda kernel=kernel: run(kernel(factors()), batch_size=50, thin=16)
    for name, gradient in GRADIENTS.items():
        found[f"gradient {name}"] = lambda gradient=gradient: run(
            ib.sgld(regression(), gradient=gradient), batch_size=30, num_chains=2
        )
        found[f"gradient {name} corrected"] = lambda gradient=gradient: run(
            ib.leimkuhler_matthews(regression(), gradient=gradient, noise_correction=True), batch_size=30
        )
    transforms = ("softplus", "icll", "integrated_probit", "exp")
    for name in transforms:
        found[f"transform {name}"] = lambda name=name: run(ib.sgld(regression(), name), batch_size=30)
        found[f"transform {name} double"] = lambda name=name: in_double(lambda: run(ib.sgld(scalars(), name)))
    for name in ("sigmoid", "probit", "arctan", "softsign"):
        found[f"transform {name}"] = lambda name=name: run(
            ib.sgld(ib.Posterior({"b": dist.Beta(2.0, 2.0).expand([5])}), name), 1e-2
        )
    found["vectors"] = lambda: run(ib.sgld(vectors()), 1e-3, num_chains=2)
    found["numpyro"] = lambda: run(ib.sgld(of_numpyro()))
    found["noisy"] = lambda: run(ib.sgld(noisy()), 1e-2, num_chains=2)
    found["replacement"] = lambda: run(ib.sgld(regression()), batch_size=30, batching="replacement")
    found["all data"] = lambda: run(ib.sgld(regression()))
    found["wide epochs"] = lambda: run(ib.sgld(regression(WIDE)), 1e-6, batch_size=30)
    found["wide replacement"] = lambda: run(ib.sgld(regression(WIDE)), 1e-6, batch_size=30, batching="replacement")
    found["chain step sizes"] = lambda: run(ib.sgld(scalars()), np.array([1e-3, 1e-2]), num_chains=2)
    found["schedule"] = lambda: run(ib.sgld(regression()), ib.schedules.polynomial_decay(1e-4), batch_size=30)
    found["cycles"] = lambda: run(ib.sgld(scalars()), ib.schedules.cyclical(1e-2, 40, 0.5), burn_in=20, thin=2)
    found["cycles large"] = lambda: run(ib.sgld(table()), ib.schedules.cyclical(1e-2, 40, 0.5), burn_in=20, thin=4)
    found["starts"] = lambda: run(ib.sgld(regression()), batch_size=30, num_chains=2, init=lambda key: CENTER)
    found["collect"] = lambda: run(
        ib.sgld(table()), num_steps=80, thin=4, burn_in=20, collect=ib.collect.mean_and_variance()
    )
    found["rmsprop"] = lambda: run(
        ib.sgld(regression(), preconditioner=ib.preconditioners.rmsprop(64)), batch_size=30, burn_in=64
    )
    found["metric"] = lambda: run(
        ib.leimkuhler_matthews(
            model := regression(), metric=ib.metrics.laplace(model, CENTER, batch_size=30), noise_correction=True
        ),
        0.05,
        batch_size=30,
    )
    rows = {"W": "user", "H": "item"}
    found["lazy rows"] = lambda: run(ib.lazy_rows(factors(), rows), batch_size=50, thin=16)
    found["touched rows"] = lambda: run(ib.baselines.touched_rows(factors(), rows, 50), batch_size=50, thin=16)
    for name in ("mirror", "ito", "sgrld", "projected", "scir"):
        prior = ib.Posterior({"x": dist.Gamma(3.0, 2.0).expand([4])})
        found[f"baseline {name}"] = lambda name=name, prior=prior: run(
            getattr(ib.baselines, name)(prior), 0.5 if name == "scir" else 1e-3, num_chains=2
        )
    found["judged"] = lambda: notes(run(ib.sgld(regression()), 1e-3, 2_000, batch_size=30, num_chains=2))
    found["stream"] = lambda: streamed(folder)
    found["store"] = lambda: stored(folder)
    found["resume"] = lambda: resumed(folder)
    found["check"] = checked
    found["nmf"] = fitted
    return found


def in_double(make):
    with jax.enable_x64(True):
        return make()


def notes(draws):
    return [str(draws.notes()), draws.theta]


def streamed(folder):
    for name, array in {"x": X, "y": Y}.items():
        np.save(folder / f"{name}.npy", array)
    model = regression()
    data = ib.data.stream({name: str(folder / f"{name}.npy") for name in ("x", "y")})
    return run(ib.sgld(ib.Posterior(model.priors, model.log_likelihood, data)), batch_size=30, num_chains=2)


def stored(folder):
    return run(ib.sgld(regression()), batch_size=30, num_chains=2, thin=2, store=folder / "store")


def resumed(folder):
    settings = dict(batch_size=30, num_chains=2, checkpoint=folder / "checkpoints", chunk_steps=64)
    model = regression()
    run(ib.sgld(model, noise_correction=True), num_steps=1_024, **settings)
    return run(ib.sgld(model, noise_correction=True), num_steps=2_048, resume=True, **settings)


def checked():
    report = ib.check(regression(), batch_size=30, show=False)
    return [repr(report.to_dict()), report.center]


def fitted():
    model = ib.models.BayesianNMF(rank=3, likelihood="poisson", iterations=200, batch_size=100, keep=5, progress=False)
    return model.fit(np.stack([USER, ITEM], axis=1), RATING).predict(np.stack([USER, ITEM], axis=1))


def digest(result) -> str:
    """A hash of the bits of everything that a run returned."""
    tree = result
    if isinstance(result, ib.Draws):
        tree = (result.stats, result.collected) if result.phi is None else (result.phi, result.theta, result.stats)
    hasher = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        hasher.update(leaf.encode() if isinstance(leaf, str) else np.ascontiguousarray(np.asarray(leaf)).tobytes())
    return hasher.hexdigest()[:16]


def record(only: str) -> dict[str, str]:
    """The hash of every run whose name has `only` in it."""
    hashes = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ib.UntrustworthyWarning)
        for name, make in runs(Path(folder)).items():
            if only in name:
                began = time.perf_counter()
                hashes[name] = digest(make())
                print(f"{name:40} {hashes[name]}  {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return hashes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--only", default="", help="runs with this in their name")
    arguments = parser.parse_args()
    hashes = record(arguments.only)
    if arguments.what == "record":
        arguments.path.write_text(json.dumps(hashes, indent=1))
        return 0
    before = json.loads(arguments.path.read_text())
    others = [name for name in hashes if before.get(name) != hashes[name]]
    print(f"{len(hashes) - len(others)} of {len(hashes)} runs have the draws that they had.")
    for name in others:
        print(f"other draws: {name}" if name in before else f"not known before: {name}")
    return bool(others)


if __name__ == "__main__":
    sys.exit(main())
