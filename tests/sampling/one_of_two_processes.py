"""One of two processes that run one chain on split data: `python -m tests.sampling.one_of_two_processes PORT NUMBER FOLDER STEPS`.

Prints one line of JSON: a digest of the draws, or the error that ended the run.
"""

import json
import os
import sys
import zlib

import jax
import numpy as np

from tests.sampling import counts_by_group

SETTINGS = dict(step_size=1e-3, num_chains=2, seed=3, progress=False)
EVERY = 1_024


def main(port: str, number: int, folder: str, num_steps: int) -> None:
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_disable_most_optimizations", True)
    # In a step, a process that is gone is noticed by its connections; while a checkpoint is written, by its silence. That may not be
    # short: one that a busy machine keeps waiting is not gone.
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, number, heartbeat_timeout_seconds=60)
    import inbounds as ib

    rows = counts_by_group.data()
    own = {name: column[:300] if number == 0 else column[300:] for name, column in rows.items()}
    kernel = ib.sgld(counts_by_group.posterior(own))
    checkpoint = ib.Checkpoint(folder, every_seconds=None, every_steps=EVERY)
    try:
        draws = ib.sample(
            kernel,
            num_steps=num_steps,
            devices=ib.Layout(data=2),
            checkpoint=checkpoint,
            resume=True,
            thin=8,
            **SETTINGS,
        )
    except ib.LostProcessError as error:
        print(json.dumps({"lost": str(error)}), flush=True)
        os._exit(1)  # JAX would wait for the other one
    rate = np.ascontiguousarray(draws.theta["rate"])
    print(
        json.dumps({"digest": zlib.crc32(rate.data), "last": rate[:, -1].tolist(), "draws": rate.shape[1]}), flush=True
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
