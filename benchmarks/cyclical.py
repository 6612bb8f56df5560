"""Cyclical step sizes beside constant ones: the binary network on MNIST, CoRV-LM with noise correction and the probit.

    python -m benchmarks.cyclical --data FOLDER [--epochs 24] [--out results.json]

One chain a row on the 8 : 1 : 1 split of the paper's experiment; the loss is that of the average of the binarised networks, over all
epochs and (cyclical) over those in the sampling phase, the last half of each cycle, alone.
"""

import argparse
import json

import numpy as np

import inbounds as ib
from experiments import binary_network as experiment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    settings = experiment.Settings("mnist", arguments.epochs, arguments.epochs, trials=1, chains=1)
    images = experiment.load_images(settings, arguments.data)
    bench = experiment.NetworkBench(settings, experiment.pooled_split(settings, images), logit_scale=15.0, prior=0.5)
    kernel = ib.leimkuhler_matthews(bench.posterior, "probit", noise_correction=True)
    cycle = arguments.epochs // 4 * bench.steps
    schedules = {"constant 2.3e-3": ib.schedules.constant(2.3e-3)}
    for initial in (2.3e-3, 4.6e-3, 9.2e-3):
        schedules[f"cyclical {initial:.1e}"] = ib.schedules.cyclical(initial, cycle)
        schedules[f"cyclical {initial:.1e}, sampling phase"] = ib.schedules.cyclical(initial, cycle, sampling=0.5)
    rows = []
    for name, schedule in schedules.items():
        draws = ib.sample(
            kernel,
            schedule,
            arguments.epochs * bench.steps,
            thin=bench.steps,
            batch_size=settings.batch_size,
            init=bench.network.start,
            collect=bench.evaluation,
            progress=False,
        )
        curve = np.asarray(draws.collected)[0]
        last = curve[np.isfinite(curve[:, 0, 0])][-1]
        validation, test = (dict(zip(experiment.METRICS, values, strict=True)) for values in last)
        rows.append(
            {"schedule": name, "validation_loss": float(validation["loss"]), "test_loss": float(test["loss"])}
            | {"test_accuracy": float(test["accuracy"]), "seconds": draws.seconds}
        )
        print(
            "{schedule:36} validation {validation_loss:.4f}  test {test_loss:.4f} {test_accuracy:.4f}".format(
                **rows[-1]
            )
        )
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
