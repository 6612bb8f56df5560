"""Contestants, their processes, and the race: repeat 1 of all, repeat 2 of all, ...; a slow moment of the machine hits all alike."""

from __future__ import annotations

import json
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from environments import UnavailableError, python_of
from rows import Row

HERE = Path(__file__).parent
PATIENCE = 180  # seconds, for one run


@dataclass(frozen=True)
class Contestant:
    """Who races.

    Args:
        title: in the table.
        module, function: of `contestants`; `function(row, data, num_steps)` returns `run(seed)`, which returns theta's kept draws.
        environment: of its own, where it cannot live with the library; see `environments.py`.
        fewer: slow contestants run so many times fewer steps.
        candidates: whether its module can `choose` between several.
    """

    title: str
    module: str
    function: str = "prepare"
    environment: str | None = None
    fewer: int = 1
    candidates: bool = False


CONTESTANTS = {
    "inbounds": Contestant("Inbounds", "inbounds"),
    "limit": Contestant("by hand (the limit)", "limit", candidates=True),
    "blackjax-scan": Contestant("BlackJAX, scan", "blackjax", "prepare_scan"),
    "blackjax-loop": Contestant("BlackJAX, Python loop", "blackjax", "prepare_loop", fewer=50),
    "numpyro-blackjax": Contestant("NumPyro + BlackJAX", "numpyro_blackjax"),
    "sgmcmcjax": Contestant("SGMCMCJax", "sgmcmcjax", environment="sgmcmcjax", fewer=4),
    "jax-sgmc": Contestant("JaxSGMC", "jax_sgmc", environment="jax-sgmc", fewer=10),
    "posteriors": Contestant("posteriors (PyTorch)", "posteriors", environment="posteriors", fewer=50, candidates=True),
}


class Worker:
    """A contestant on a row, in a process of its own."""

    def __init__(self, row: Row, name: str, folder: Path, options: Any = None):
        contestant = CONTESTANTS[name]
        self.steps = max(row.steps // contestant.fewer, row.fewest_steps)
        command = [python_of(contestant.environment), HERE / "worker.py", row.name, name, self.steps, folder]
        if options is not None:
            command.append(json.dumps(options))
        # A terminal of its own, so that progress bars are drawn, and cost what they cost.
        self._terminal, theirs = pty.openpty()
        self._said = bytearray()
        self._process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, text=True
        )
        os.close(theirs)
        threading.Thread(target=self._listen, daemon=True).start()
        self.ready = self._answer()

    def _listen(self) -> None:
        while True:
            try:
                heard = os.read(self._terminal, 65_536)
            except OSError:  # the process has ended
                return
            self._said = (self._said + heard)[-20_000:]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            self._process.kill()
            raise UnavailableError(f"no answer within {PATIENCE} seconds")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            lines = [line.strip() for line in self._said.decode(errors="replace").splitlines() if line.strip()]
            raise UnavailableError(lines[-1] if lines else "the process ended without a word")
        return json.loads(line)

    def run(self, seed: int) -> dict[str, Any]:
        assert self._process.stdin
        print(f"run {seed}", file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        os.close(self._terminal)


def choose(row: Row, name: str, folder: Path) -> dict[str, Any]:
    worker = Worker(row, name, folder, "choose")
    worker.close()
    return worker.ready["options"]


def race(row: Row, names: list[str], repeats: int) -> dict[str, Any]:
    """Microseconds a step of each contestant on one row, the median of the repeats and their spread."""
    print(row.title, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # Made once, outside the workers: what makes the data is not to count as a contestant's memory.
        for name, leaf in row.make_data().items():
            np.save(Path(folder) / f"{name}.npy", leaf)
        workers: dict[str, Worker] = {}
        results: dict[str, dict[str, Any]] = {}
        for name in names:
            try:
                options = choose(row, name, Path(folder)) if CONTESTANTS[name].candidates else None
                worker = Worker(row, name, Path(folder), options)
                if "cannot" in worker.ready:
                    worker.close()
                    raise UnavailableError(worker.ready["cannot"])
                first = worker.run(0)
                if first["wrong"]:
                    worker.close()
                    raise UnavailableError(f"wrong draws: {first['wrong']}")
            except UnavailableError as reason:
                results[name] = {"unavailable": str(reason)}
                print(f"  {CONTESTANTS[name].title}: {reason}", file=sys.stderr, flush=True)
                continue
            workers[name] = worker
            results[name] = {"steps": worker.steps, "options": options, "first_call_seconds": first["seconds"]}
        micro: dict[str, list[float]] = {name: [] for name in workers}
        for repeat in range(1, repeats + 1):
            for name, worker in workers.items():
                last = worker.run(repeat)
                micro[name].append(1e6 * last["seconds"] / worker.steps)
                results[name]["peak_megabytes"] = last["peak"] - worker.ready["before"]
        for name, worker in workers.items():
            worker.close()
            results[name] |= {"microseconds": statistics.median(micro[name]), "repeats": micro[name]}
            print(
                f"  {CONTESTANTS[name].title:24}{results[name]['microseconds']:12.2f} us/step",
                file=sys.stderr,
                flush=True,
            )
    return {"title": row.title, "contestants": results}
