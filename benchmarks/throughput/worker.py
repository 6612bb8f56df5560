"""One contestant on one row, in a process of its own: commands come in as lines, answers go out as JSON lines.

    python worker.py ROW CONTESTANT STEPS FOLDER [OPTIONS]

"run SEED" runs once and tells the seconds and the peak of memory; the first run compiles, and checks its draws. FOLDER
holds the data as NumPy files. OPTIONS, as JSON, choose between candidates; "choose" answers with those that are fastest here, and ends.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from peak import forget_peak, peak_megabytes
from race import CONTESTANTS
from rows import ROWS


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer

    def answer(**values) -> None:
        print(json.dumps(values), file=answers, flush=True)

    row, contestant, num_steps = ROWS[sys.argv[1]], CONTESTANTS[sys.argv[2]], int(sys.argv[3])
    data = {path.stem: np.load(path) for path in sorted(Path(sys.argv[4]).glob("*.npy"))}
    try:
        module = importlib.import_module(f"contestants.{contestant.module}")
        options = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
        if options == "choose":
            return answer(options=module.choose(row, data, num_steps))
        forget_peak()
        before = peak_megabytes()
        run = getattr(module, contestant.function)(row, data, num_steps, **options)
        answer(ready=True, before=before)
    except NotImplementedError as reason:
        return answer(cannot=str(reason))

    checked = False
    for line in sys.stdin:
        seed = int(line.split()[1])
        began = time.perf_counter()
        draws = {name: np.asarray(leaf) for name, leaf in run(seed).items()}
        seconds = time.perf_counter() - began
        peak = peak_megabytes()
        wrong = "" if checked else row.check(draws, data)
        checked = True
        answer(seconds=seconds, peak=peak, wrong=wrong)


if __name__ == "__main__":
    main()
