"""Fuzz every reader: a nightly command.

    python tests/fuzz/run.py --inputs 100000 [--seed 0] [--reader NAME ...] [--out out/fuzz]

Every reader runs in a process of its own, so that one that dies is reported like any other. The input that did harm lies in --out.
"""

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.check import IN_MEMORY, fuzz
from tests.fuzz.readers import READERS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", nargs="*", choices=list(READERS), default=list(READERS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"))
    # For the processes that this one starts: so many inputs of the one reader, in this folder.
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        counts = fuzz(arguments.reader[0], arguments.one, arguments.seed, arguments.place)
        print(f"{counts['refused']:>9,} refused{counts['read']:>9,} read", end="")
        return 0
    total = sum(READERS[name].share for name in arguments.reader)
    failed = []
    for name in arguments.reader:
        inputs = max(20, math.ceil(arguments.inputs * READERS[name].share / total))
        command = [sys.executable, __file__, "--one", str(inputs), "--reader", name, "--seed", str(arguments.seed)]
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="inbounds-fuzz-", dir=IN_MEMORY) as place:
            done = subprocess.run([*command, "--place", place], capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.copytree(place, arguments.out / name.replace(" ", "-"), dirs_exist_ok=True)
        seconds = time.monotonic() - began
        print(f"{name:24}{inputs:>9,} inputs{seconds:>7.0f} s  {done.stdout.strip()}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stderr, flush=True)
    print(f"harm done by: {', '.join(failed)}" if failed else "no harm done")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
