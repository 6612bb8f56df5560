"""Topic models on UCI KOS: held-out perplexity of our LDA beside scikit-learn's online variational Bayes, SGRLD and SCIR.

    python -m benchmarks.topics --data FOLDER --out docs/topics

Documents are split 8 : 1 : 1. A held-out document's words are put into two halves; its proportions are fitted to one and the
other is scored, by the same code for every method (`completion_perplexity`). Every sampler tries the same number of step sizes
and priors on the validation documents, makes the same number of steps with the same minibatches, local estimates and decay,
and averages over the same number of draws. scikit-learn gets as much processor time as our whole fit took, compilation
included, one thread each; its learning offset, decay, batch size and priors are chosen on the validation documents at that
time. The final numbers are from the test documents, a split and a seed of its own a repetition.

Runs are kept in `runs.json` as they finish, so that an interrupted benchmark goes on where it stopped.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread each: processor time is what is compared
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.decomposition import LatentDirichletAllocation

from inbounds.data import catalog
from inbounds.models.topics import LDA, MEAN_SIZE, completion_perplexity, halved
from inbounds.schedules import polynomial_decay

TOPICS = 20
SAMPLERS = {"leimkuhler_matthews": (1.0, 2.0, 4.0), "sgrld": (0.4, 0.8, 1.6), "scir": (0.4, 1.6, 6.4)}
NAMES = {
    "leimkuhler_matthews": "ours (Leimkuhler-Matthews, softplus, noise-corrected)",
    "sgrld": "SGRLD",
    "scir": "SCIR",
    "sklearn": "scikit-learn, online VB",
}
PRIORS = ((0.05, 0.1), (0.05, 0.2), (0.05, 0.4), (0.05, 0.8))  # of documents, of topics
SCORING_PRIORS = (0.05, 0.1, 0.2)  # of the proportions of held-out documents, whatever the topics come from
VB = (  # doc_topic_prior, topic_word_prior, learning_offset, learning_decay, batch_size
    (0.05, 0.05, 10.0, 0.7, 128),
    (0.5, 0.5, 10.0, 0.7, 128),
    (0.5, 0.1, 1.0, 0.6, 512),
    (0.5, 0.5, 1.0, 0.6, 512),
    (0.5, 0.5, 1.0, 0.5, 1_024),
    (0.1, 0.5, 10.0, 0.7, 512),
    (0.5, 1.0, 1.0, 0.5, 1_024),
    (0.2, 0.5, 1.0, 0.5, 1_024),
    (1.0, 0.5, 1.0, 0.5, 1_024),
    (0.5, 0.5, 1.0, 0.5, 512),
    (0.5, 0.3, 1.0, 0.5, 1_024),
)


def split(counts, seed):
    """Train, validation and test documents, 8 : 1 : 1."""
    order, tenth = np.random.default_rng(seed).permutation(counts.shape[0]), counts.shape[0] // 10
    return counts[order[2 * tenth :]], counts[order[:tenth]], counts[order[tenth : 2 * tenth]]


def scores(topics, documents) -> dict[str, float]:
    """Perplexity under each of the scoring priors."""
    observed, hidden = halved(documents, seed=0)
    return {str(prior): completion_perplexity(topics, observed, hidden, prior) for prior in SCORING_PRIORS}


def run_sampler(kernel, factor, priors, parts, seed, passes, batch_size) -> dict:
    train, validation, test = parts
    steps = -(-train.shape[0] // batch_size)
    size = train.shape[1] * MEAN_SIZE / (train.sum() / TOPICS)
    model = LDA(
        TOPICS, doc_topic_prior=priors[0], topic_word_prior=priors[1], kernel=kernel, max_iter=passes, batch_size=batch_size,
        step_size=polynomial_decay(factor * size, 4.0 * steps, 0.5), random_state=seed, progress=False,
    )  # fmt: skip
    clock, wall = time.process_time(), time.perf_counter()
    model.fit(train)
    seconds, wall = time.process_time() - clock, time.perf_counter() - wall
    last = scores(model.topics_[-1], validation)
    return {
        "seconds": seconds, "wall": wall, "steps": model.n_steps_, "last_draw": last,
        "validation": scores(model.topics_, validation), "test": scores(model.topics_, test),
    }  # fmt: skip


def run_vb(setting, budget, parts, seed) -> dict:
    train, validation, test = parts
    alpha, eta, offset, decay, batch_size = setting
    model = LatentDirichletAllocation(
        TOPICS, doc_topic_prior=alpha, topic_word_prior=eta, learning_method="online", learning_offset=offset,
        learning_decay=decay, total_samples=train.shape[0], random_state=seed,
    )  # fmt: skip
    generator, passes, seconds = np.random.default_rng(seed), 0.0, 0.0
    while seconds < budget:
        rows = train[generator.permutation(train.shape[0])]
        for first in range(0, rows.shape[0], batch_size):
            clock = time.process_time()
            model.partial_fit(rows[first : first + batch_size])
            seconds += time.process_time() - clock
            passes += min(batch_size, rows.shape[0] - first) / rows.shape[0]
            if seconds >= budget:
                break
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    return {
        "seconds": seconds,
        "passes": passes,
        "validation": scores(topics, validation),
        "test": scores(topics, test),
    }


class Kept:
    """Results by name, written after each run."""

    def __init__(self, path: Path):
        self.path = path
        self.runs = json.loads(path.read_text()) if path.exists() else {}

    def __call__(self, name: str, run) -> dict:
        if name not in self.runs:
            self.runs[name] = run()
            self.path.write_text(json.dumps(self.runs, indent=1) + "\n")
            print(name, {k: v for k, v in self.runs[name].items() if k != "test"}, flush=True)
        return self.runs[name]


def best_of(runs: dict) -> tuple:
    """(setting, scoring prior) with the lowest perplexity on the validation documents."""
    return min(((run["validation"][prior], key, prior) for key, run in runs.items() for prior in run["validation"]))[1:]


def tune_sampler(kernel, one) -> tuple:
    """The best of three step sizes and four priors, and one step size more where it is at an edge: setting, scoring prior."""
    factors = list(SAMPLERS[kernel])
    runs = {(factor, prior): one(kernel, factor, prior) for prior in range(len(PRIORS)) for factor in factors}
    best, prior = best_of(runs)[0]
    if best in (factors[0], factors[-1]):
        ratio = factors[1] / factors[0]
        further = best * ratio if best == factors[-1] else best / ratio
        runs[further, prior] = one(kernel, further, prior)
    return best_of(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=None, help="folder of data sets (default: INBOUNDS_DATA or the cache)")
    parser.add_argument("--out", type=Path, default=Path("out/topics"))
    parser.add_argument("--passes", type=int, default=25, help="over the documents")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3, help="repetitions, each with a split of its own")
    parser.add_argument("--methods", default=",".join(NAMES), help="some of them; ours has to be among them")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    counts = catalog.load("kos", options.data).counts
    kept = Kept(options.out / "runs.json")
    parts = {seed: split(counts, seed) for seed in range(options.seeds + 1)}
    tuning = options.seeds  # the split that settings are chosen on is none of those that are reported

    def sampler(kernel, factor, prior, seed=tuning):
        name = f"{kernel} factor {factor:g} prior {PRIORS[prior]} seed {seed} passes {options.passes}"
        return kept(
            name,
            lambda: run_sampler(kernel, factor, PRIORS[prior], parts[seed], seed, options.passes, options.batch_size),
        )

    methods = [name for name in NAMES if name in options.methods.split(",")]
    chosen = {kernel: tune_sampler(kernel, sampler) for kernel in methods if kernel in SAMPLERS}
    factor, prior = chosen["leimkuhler_matthews"][0]
    budget = sampler("leimkuhler_matthews", factor, prior)["seconds"]

    def vb(setting, budget, seed=tuning):
        name = f"sklearn {setting} seed {seed} passes {options.passes}"
        return kept(name, lambda: run_vb(setting, budget, parts[seed], seed))

    if "sklearn" in methods:
        chosen["sklearn"] = best_of({setting: vb(setting, budget) for setting in VB})

    # Repetition by repetition, one method after the other, so that a busy machine is busy for all of them.
    table: dict[str, list] = {name: [] for name in methods}
    for seed in range(options.seeds):
        for name in methods:
            setting, scoring = chosen[name]
            run = vb(setting, budget, seed) if name == "sklearn" else sampler(name, *setting, seed)
            table[name].append((run["test"][scoring], run["seconds"]))
            if name == "leimkuhler_matthews":
                budget = run["seconds"]
    report(table, chosen, kept.runs, options)


def report(table, chosen, runs, options) -> None:
    ours = np.array(table["leimkuhler_matthews"])[:, 0]
    steps = next(run["steps"] for name, run in runs.items() if name.startswith("leimkuhler"))
    lines = ["| method | perplexity | s.e. | minus ours | s.e. | processor s |", "|---|---:|---:|---:|---:|---:|"]
    results = {}
    for name, values in table.items():
        perplexity, seconds = np.array(values).T
        difference = perplexity - ours
        error = [x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else float("nan") for x in (perplexity, difference)]
        results[name] = {
            "perplexity": perplexity.tolist(), "mean": perplexity.mean(), "standard_error": error[0],
            "minus_ours": difference.mean(), "standard_error_of_difference": error[1], "seconds": seconds.mean(),
            "chosen": repr(chosen[name]),
        }  # fmt: skip
        lines.append(
            f"| {NAMES[name]} | {perplexity.mean():.0f} | {error[0]:.1f} | {difference.mean():+.0f} | {error[1]:.1f} | "
            f"{seconds.mean():.1f} |"
        )
    print("\n".join(lines))
    for name, setting in chosen.items():
        print(f"{name}: {setting}")
    settings = {"passes": options.passes, "steps": steps, "batch_size": options.batch_size, "seeds": options.seeds}
    (options.out / "results.json").write_text(json.dumps({"settings": settings, "results": results}, indent=1) + "\n")
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    picture(table, options.out / "perplexity.png")


def picture(table, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    # Splits differ far more than methods do: what is shown is the difference to ours on the same split.
    ours = np.array(table["leimkuhler_matthews"])[:, 0]
    figure, axis = plt.subplots(figsize=(7.0, 2.2), layout="constrained")
    axis.axvline(0, color="#2a6fbb")
    for place, (name, values) in enumerate(reversed(table.items())):
        difference = np.array(values)[:, 0] - ours
        color = "#2a6fbb" if name == "leimkuhler_matthews" else "#666666"
        axis.plot(difference, np.full(len(ours), place), "o", color=color, alpha=0.6)
        axis.plot(difference.mean(), place, "|", markersize=20, color="black")
    axis.set(
        yticks=range(len(table)),
        yticklabels=[NAMES[name].split(" (")[0] for name in reversed(table)],
        xlabel=f"held-out perplexity minus ours (ours: {ours.mean():.0f} on average)",
        ylim=(-0.5, len(table) - 0.5),
    )
    axis.spines[["right", "top"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
