"""What the test of devices asks, in one process: prints one line of JSON."""

import json

import jax

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_disable_most_optimizations", True)

import numpy as np  # noqa: E402

from tests.inference.spending import of_spending  # noqa: E402

if __name__ == "__main__":
    many, one = (of_spending(devices=devices) for devices in (2, None))
    apart = float(np.max(np.abs(many.theta["rate"] - one.theta["rate"])))
    devices = len(jax.tree.leaves(many.state)[0].sharding.device_set)
    print(json.dumps({"devices": devices, "ok": many.certificate.ok, "apart": apart}))
