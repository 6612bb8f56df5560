"""Start-up: importing the library, the first draw of a small model, and what a second run compiles. Fresh processes, interleaved."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

REPEATS = 9
# Libraries are imported from bytecode, as pip leaves them; this one too, though it may be installed for editing.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

IMPORT = "import time; began = time.perf_counter(); import {name}; print(time.perf_counter() - began)"

# Imports come before the clock: they are measured apart.
FIRST_DRAW = """
import time
import jax
import numpyro
from rows import ROWS
from contestants.{name} import {function} as prepare
row = ROWS["gamma"]
jax.block_until_ready(jax.numpy.zeros(1) + 1)
began = time.perf_counter()
jax.block_until_ready(prepare(row, {{}}, 1_000{options})(0)["x"])
print(time.perf_counter() - began)
"""

SECOND_SAMPLE = """
import jax
import numpy as np
from rows import ROWS
from contestants.inbounds import prepare
import jax.monitoring
row, compiled = ROWS["logistic-1"], []
data = {"x": np.ones((2_000, 50), np.float32), "y": np.ones(2_000, np.float32)}
run = prepare(row, data, 1_000)
run(0)
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: compiled.append(event))
run(1)
print(sum(event == "/jax/core/compile/backend_compile_duration" for event in compiled))
"""


def in_fresh_process(code: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def interleaved(codes: dict[str, str]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(REPEATS):
        for name, code in codes.items():
            seconds[name].append(in_fresh_process(code))
    return seconds


def measure() -> dict[str, Any]:
    """Medians, and the ratios that matter."""
    codes = {name: IMPORT.format(name=name) for name in ("inbounds", "numpyro")}
    for code in codes.values():
        in_fresh_process(code)  # writes bytecode where there is none
    imports = interleaved(codes)
    by_hand = ', generator="threefry2x32", block=1_024, unroll=1'
    draws = interleaved(
        {
            "inbounds": FIRST_DRAW.format(name="inbounds", function="prepare", options=""),
            "limit": FIRST_DRAW.format(name="limit", function="one_dimension", options=by_hand),
        }
    )
    return {
        "import_seconds": {name: statistics.median(values) for name, values in imports.items()},
        "import_ratio": statistics.median(imports["inbounds"]) / statistics.median(imports["numpyro"]),
        "first_draw_seconds": {name: statistics.median(values) for name, values in draws.items()},
        "first_draw_ratio": statistics.median(draws["inbounds"]) / statistics.median(draws["limit"]),
        "compilations_of_a_second_sample": int(in_fresh_process(SECOND_SAMPLE)),
        "repeats": {"import": imports, "first_draw": draws},
    }
