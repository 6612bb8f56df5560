"""Accuracy at equal time: how far draws of bounded variables are from the truth, against the seconds that they took.

    python -m benchmarks.accuracy [--out benchmarks/results/accuracy.json] [--picture docs/results/speed/accuracy] [--only NAME ...]

Cases: the five one-dimensional targets of the paper, whose gradients get Gaussian noise of standard deviation 1 (error: Wasserstein-1
distance to the exact law), and a regression with 50 positive coefficients, 20,000 rows, minibatches of 500 (error: the larger of the
relative error of the posterior sd and the error of the mean in sds, medians over the coefficients, against a long run of NUTS that is kept
in `out/`).

"numpyro + blackjax" is what one writes without this library: NumPyro's bijection (exp for positive variables, sigmoid for intervals) and
its log determinant, BlackJAX's SGLD on the transformed density, in one compiled scan over keys made before it starts. The tables show the
seconds of each method to the least error of this one, and to that of `sgld`, and how many times less that is.

Every method tries the same number of step sizes, factors of two apart, on seeds of their own, at each number of steps; the best one is then
run on fresh seeds, and only that is reported. Replicates run side by side; seconds are those of a whole call alone on the machine (from the
call to theta in hand; all methods in turn, median of the rounds), compilation apart. A tenth of every run is burn-in, which its seconds
include.
"""

import argparse
import json
import math
from functools import partial
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import biject_to, constraints

import inbounds as ib
from experiments.pictures import log_log
from experiments.targets import TARGETS
from experiments.timing import interleaved
from inbounds.diagnostics import distances
from inbounds.display import new_figure, save_picture

BY_HAND = "numpyro + blackjax"
METHODS = ("sgld", "leimkuhler_matthews", "leimkuhler_matthews probit", "baoab", BY_HAND)
REFERENCES = (BY_HAND, "sgld")  # what one would write without this library, and first order
ROUNDS = 5
TUNING_SEED, SEED = 1, 2
CACHE = Path("out/benchmarks")


class Method:
    """`many(step_sizes, num_steps, seed) -> draws (chain, draw, ...)` and `alone(step_size, num_steps)`, which is timed."""

    def __init__(self, many, alone):
        self.many, self.alone = many, alone


def ours(kernel, init, thin, batch_size=None):
    settings = dict(init=init, thin=thin, batch_size=batch_size, progress=False, on_failure="continue")

    def run(step_size, num_steps, num_chains, seed):
        draws = ib.sample(kernel, step_size, num_steps, num_chains=num_chains, seed=seed, **settings)
        return np.asarray(jax.tree.leaves(draws.theta)[0])

    return Method(
        lambda step_sizes, num_steps, seed: run(np.asarray(step_sizes), num_steps, len(step_sizes), seed),
        lambda step_size, num_steps: run(float(step_size), num_steps, 1, SEED),
    )


def by_hand(estimator, transform, minibatch, start, thin):
    """BlackJAX's SGLD in one compiled scan; `estimator(phi, minibatch)` is the gradient of the transformed density."""
    sampler = blackjax.sgld(estimator)

    def chain(key, step_size, num_steps):
        def step(phi, key):
            batch_key, step_key = jax.random.split(key)
            return sampler.step(step_key, phi, minibatch(batch_key), step_size), None

        def window(phi, keys):
            phi = lax.scan(step, phi, keys)[0]
            return phi, transform(phi)

        keys = jax.random.split(key, num_steps)
        if thin == 1:  # no loop of one turn
            return lax.scan(lambda phi, key: (lambda new: (new, transform(new)))(step(phi, key)[0]), start, keys)[1]
        return lax.scan(window, start, keys.reshape(num_steps // thin, thin))[1]

    many = jax.jit(jax.vmap(chain, in_axes=(0, 0, None)), static_argnums=2)
    alone = jax.jit(chain, static_argnums=2)
    return Method(
        lambda step_sizes, num_steps, seed: np.asarray(
            many(
                jax.random.split(jax.random.key(seed), len(step_sizes)), jnp.asarray(step_sizes, jnp.float32), num_steps
            )
        ),
        lambda step_size, num_steps: np.asarray(alone(jax.random.key(SEED), jnp.float32(step_size), num_steps)),
    )


class OneDimensional:
    """A target of the paper."""

    budgets = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
    step_sizes = tuple(2.0 ** np.arange(-8, 6))
    replicates, tuning_replicates, thin = 20, 6, 1

    def __init__(self, target):
        self.target, self.name, self.label = target, target.name, target.label
        self.start = float(target.quantile(0.5))
        self._quantiles = {}

    def methods(self):
        target = self.target
        noisy = ib.Posterior(
            supports=target.support,
            gradient=lambda theta, z: target.score(theta) + z,
            data=ib.data.Generated(lambda key: jax.random.normal(key, ())),
        )
        steep = "integrated_probit" if math.isinf(target.high) else "probit"
        kernels = {
            "sgld": ib.sgld(noisy),
            "leimkuhler_matthews": ib.leimkuhler_matthews(noisy, noise_correction=1.0),
            "leimkuhler_matthews probit": ib.leimkuhler_matthews(noisy, steep, noise_correction=1.0),
            "baoab": ib.baoab(noisy, noise_correction=1.0),
        }
        prior, transform = target.prior, biject_to(target.support)

        def log_density(phi, z):
            theta = transform(phi)
            return prior.log_prob(theta) + z * theta + transform.log_abs_det_jacobian(phi, theta)

        start = transform.inv(jnp.float32(self.start))
        return {name: ours(kernel, self.start, self.thin) for name, kernel in kernels.items()} | {
            BY_HAND: by_hand(jax.grad(log_density), transform, jax.random.normal, start, self.thin)
        }

    def errors(self, draws):
        """Wasserstein-1, one per chain."""
        count = draws.shape[1]
        if count not in self._quantiles:
            self._quantiles[count] = distances.quantiles(self.target, count)
        return {"error": distances.wasserstein1(draws, self._quantiles[count])}

    def floor(self, num_steps):
        return float(np.mean(distances.iid_floor(self.target, num_steps - num_steps // 10, 16).wasserstein1))


class Regression:
    """y = x w + noise of sd 10, w positive: a third of the coefficients are zero in truth, so that the bound is felt."""

    name, label = "regression", "50 positive coefficients"
    budgets = (1_000, 3_000, 10_000, 30_000)
    step_sizes = tuple(2.0 ** np.arange(-18, -8))
    replicates, tuning_replicates, thin = 4, 1, 10
    rows, columns, batch_size, noise = 20_000, 50, 500, 10.0

    def __init__(self):
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(self.rows, self.columns)).astype(np.float32)
        truth = generator.uniform(0.3, 1.5, self.columns) * (np.arange(self.columns) % 3 > 0)
        self.y = (self.x @ truth + self.noise * generator.normal(size=self.rows)).astype(np.float32)
        self.mean, self.sd = self.reference()

    def reference(self):
        """Mean and sd of every coefficient by NUTS, from the sums of squares that the likelihood depends on."""
        file = CACHE / "accuracy-regression.npz"
        if not file.exists():
            x, y = self.x.astype(float), self.y.astype(float)
            gram, moment = (
                jnp.asarray(x.T @ x / self.noise**2, jnp.float32),
                jnp.asarray(x.T @ y / self.noise**2, jnp.float32),
            )

            def model():
                w = numpyro.sample("w", dist.HalfNormal(1.0).expand([self.columns]))
                numpyro.factor("likelihood", moment @ w - 0.5 * w @ gram @ w)

            nuts = numpyro.infer.MCMC(
                numpyro.infer.NUTS(model), num_warmup=1_000, num_samples=20_000, num_chains=2, chain_method="vectorized",
                progress_bar=False,
            )  # fmt: skip
            nuts.run(jax.random.key(0))
            w = np.asarray(nuts.get_samples()["w"], float)
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, mean=w.mean(axis=0), sd=w.std(axis=0))
        stored = np.load(file)
        return stored["mean"], stored["sd"]

    def methods(self):
        noise, columns = self.noise, self.columns
        posterior = ib.Posterior(
            {"w": dist.HalfNormal(1.0).expand([columns])},
            lambda theta, batch: -0.5 * jnp.square((batch["y"] - batch["x"] @ theta["w"]) / noise),
            {"x": self.x, "y": self.y},
        )
        kernels = {
            "sgld": ib.sgld(posterior),
            "leimkuhler_matthews": ib.leimkuhler_matthews(posterior, noise_correction=True),
            "leimkuhler_matthews probit": ib.leimkuhler_matthews(posterior, "integrated_probit", noise_correction=True),
            # Friction must make room for the noise of the gradient: its variance times the step is some tens here.
            "baoab": ib.baoab(posterior, friction=20.0, noise_correction=True),
        }
        start = np.full(columns, 0.5, np.float32)
        transform = biject_to(constraints.positive)
        x, y = jnp.asarray(self.x), jnp.asarray(self.y)

        def log_prior(phi):
            w = transform(phi)
            return jnp.sum(dist.HalfNormal(1.0).log_prob(w) + transform.log_abs_det_jacobian(phi, w))

        def log_likelihood(phi, row):
            return -0.5 * jnp.square((row[1] - row[0] @ transform(phi)) / noise)

        estimator = blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, self.rows)

        def minibatch(key):
            index = jax.random.randint(key, (self.batch_size,), 0, self.rows)
            return x[index], y[index]

        return {name: ours(kernel, {"w": start}, self.thin, self.batch_size) for name, kernel in kernels.items()} | {
            BY_HAND: by_hand(estimator, transform, minibatch, jnp.log(start), self.thin)
        }

    def errors(self, draws):
        draws = np.asarray(draws, float)
        with np.errstate(all="ignore"):
            of_sd = np.median(np.abs(draws.std(axis=1) / self.sd - 1), axis=1)
            of_mean = np.median(np.abs(draws.mean(axis=1) - self.mean) / self.sd, axis=1)
        return {"error": np.maximum(of_sd, of_mean), "sd": of_sd, "mean": of_mean}

    def floor(self, num_steps):
        return None


def without_burn_in(draws, num_steps, thin):
    """The draws of the first `num_steps` steps of longer chains, less a tenth: a run's length only appends."""
    return draws[:, num_steps // thin // 10 : num_steps // thin]


def measure(case, rounds, say):
    """One row a method and number of steps: step size, errors on fresh seeds (mean and standard error), seconds."""
    rows = []
    methods = case.methods()
    longest = max(case.budgets)
    for name in METHODS:
        sizes = np.repeat(case.step_sizes, case.tuning_replicates)
        draws = methods[name].many(sizes, longest, TUNING_SEED)
        chosen = {}
        for budget in case.budgets:
            error = case.errors(without_burn_in(draws, budget, case.thin))["error"]
            error = np.nan_to_num(error.reshape(len(case.step_sizes), -1).mean(axis=1), nan=np.inf)
            chosen[budget] = int(np.argmin(error))
        del draws
        per_size = {}
        for place in sorted(set(chosen.values())):
            last = max(budget for budget, own in chosen.items() if own == place)
            per_size[place] = methods[name].many(np.full(case.replicates, case.step_sizes[place]), last, SEED)
        for budget in case.budgets:
            place = chosen[budget]
            errors = case.errors(without_burn_in(per_size[place], budget, case.thin))
            row = {"case": case.name, "method": name, "steps": budget, "step_size": case.step_sizes[place]}
            row["at_edge"] = place in (0, len(case.step_sizes) - 1)
            row["se"] = float(np.std(errors["error"], ddof=1) / math.sqrt(case.replicates))
            rows.append(row | {key: float(np.mean(value)) for key, value in errors.items()})
        say(f"{case.name}: {name} tuned")
    for budget in case.budgets:
        own = {row["method"]: row for row in rows if row["steps"] == budget}

        def alone(name, own=own, budget=budget):
            methods[name].alone(own[name]["step_size"], budget)

        seconds = interleaved({name: partial(alone, name) for name in METHODS}, rounds)
        for name, row in own.items():
            low, middle, high = np.quantile(seconds[name], (0, 0.5, 1))
            row |= {"seconds": float(middle), "seconds_low": float(low), "seconds_high": float(high)}
            row["floor"] = case.floor(budget) if name == BY_HAND else None
    return rows


def time_to(rows, error):
    """Seconds to an error, between two runs on a straight line in logarithms; (None, "more") where none reached it.

    "less": the shortest run is better already.
    """
    before = None
    for row in sorted(rows, key=lambda row: row["steps"]):
        if row["error"] <= error:
            if before is None:
                return row["seconds"], "less"
            share = math.log(before["error"] / error) / math.log(before["error"] / row["error"])
            return before["seconds"] * (row["seconds"] / before["seconds"]) ** share, ""
        if before is None or row["error"] < before["error"]:
            before = row
    return None, "more"


def times_to_error(rows, reference):
    """One a case: seconds of each method to the least error of the method `reference`, and how many times less they are."""
    table = []
    for case in dict.fromkeys(row["case"] for row in rows):
        by_method = {name: [r for r in rows if r["case"] == case and r["method"] == name] for name in METHODS}
        error = min(row["error"] for row in by_method[reference])
        found = {name: time_to(own, error) for name, own in by_method.items()}
        seconds = found[reference][0]
        table.append(
            {
                "case": case, "error": error, "seconds": {name: value for name, (value, _) in found.items()},
                "bound": {name: bound for name, (_, bound) in found.items()},
                "times_faster": {name: seconds / value if value else None for name, (value, _) in found.items()},
            }
        )  # fmt: skip
    return table


def cell(seconds, bound, faster):
    if seconds is None:
        return "not reached"
    return f"{'<' if bound else ''}{seconds:.3g} s ({'>' if bound else ''}{faster:.1f}x)"


def show(rows):
    head = "".join(f"{name:>28}" for name in METHODS)
    for reference in REFERENCES:
        print(f"\nseconds to the least error of {reference}, and how many times faster\n{'case':24}{'error':>10}{head}")
        for row in times_to_error(rows, reference):
            cells = (cell(row["seconds"][name], row["bound"][name], row["times_faster"][name]) for name in METHODS)
            print(f"{row['case']:24}{row['error']:10.2g}" + "".join(f"{text:>28}" for text in cells))
    print(f"\nerror at the same number of steps, its seconds\n{'case':24}{'steps':>10}{head}")
    for case, budget in dict.fromkeys((row["case"], row["steps"]) for row in rows):
        own = {row["method"]: row for row in rows if (row["case"], row["steps"]) == (case, budget)}
        edge = {name: " EDGE" if row["at_edge"] else "" for name, row in own.items()}
        cells = (f"{own[name]['error']:.4f} ({own[name]['seconds']:.3g} s{edge[name]})" for name in METHODS)
        print(f"{case:24}{budget:10,}" + "".join(f"{text:>28}" for text in cells))


FAMILIES = dict(zip(METHODS, ("corv", "lm-nc", "lm-nc-estimated", "ito", "mirror"), strict=True))


def draw(rows, labels, theme):
    cases = list(dict.fromkeys(row["case"] for row in rows))
    wide = min(3, len(cases))
    figure, axes = new_figure(-(-len(cases) // wide), wide, width=3.3 * wide, height=2.7)
    for axis in axes.flat[len(cases) :]:
        axis.axis("off")
    for axis, case in zip(axes.flat, cases, strict=False):
        for name in METHODS:
            own = [row for row in rows if row["case"] == case and row["method"] == name]
            axis.plot(
                [row["seconds"] for row in own], [row["error"] for row in own], marker="o", ms=3.5,
                color=theme.colour(FAMILIES[name]), label=name.replace("_", "-"), ls="--" if name == BY_HAND else "-",
            )  # fmt: skip
        axis.set_title(labels[case])
        of_moments = case == Regression.name
        log_log(axis, theme, "seconds", "error of mean and sd" if of_moments else "Wasserstein-1 distance")
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def write(arguments, rows, labels):
    """Results and picture, where asked for."""
    if arguments.out:
        result = {
            "device": jax.devices()[0].device_kind, "jax": jax.__version__, "numpyro": numpyro.__version__,
            "blackjax": blackjax.__version__, "rounds": arguments.rounds, "labels": labels, "rows": rows,
            "times_to_error": {name: times_to_error(rows, name) for name in REFERENCES},
        }  # fmt: skip
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if arguments.picture:
        arguments.picture.parent.mkdir(parents=True, exist_ok=True)
        save_picture(arguments.picture, partial(draw, rows, labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cases = {name: partial(OneDimensional, target) for name, target in TARGETS.items()} | {Regression.name: Regression}
    parser.add_argument("--only", nargs="+", choices=cases, default=list(cases))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path, help="path without its ending")
    arguments = parser.parse_args()
    rows, labels = [], {}
    for name in arguments.only:
        case = cases[name]()
        labels[name] = case.label
        rows += measure(case, arguments.rounds, lambda text: print(text, flush=True))
        write(arguments, rows, labels)  # after each case: an end before the last one loses one case
    show(rows)


if __name__ == "__main__":
    main()
