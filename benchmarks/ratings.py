"""Seconds and memory to generate, write and read ratings of MovieLens 10M's shape.

    python -m benchmarks.ratings [--shape 10m|1m|100k] [--repeats 3] [--out results.json]

The file is written into a temporary folder by the generator. Every reading runs in a process of its own, so that its peak memory
is its own; pandas, which users would take otherwise, is read beside it when it is installed. What is asked of the reader: at most
15 s and 1.5 GB for 10 million lines on two cores.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MEASURE = """
import json, os, resource, time
{imports}
def peak():  # getrusage would count the parent's memory too, from before exec
    if os.path.exists("/proc/self/status"):
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
base = peak()
began, cpu = time.perf_counter(), time.process_time()
{work}
print(json.dumps({{
    "seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu,
    "peak_gb": peak(), "before_gb": base, "rows": len(result),
}}))
"""
WORK = {
    "generate": ("import inbounds as ib\nfrom inbounds.data import MOVIELENS_SHAPES",
                 "result = ib.data.generate_ratings(**MOVIELENS_SHAPES[{shape!r}])"),
    "read .dat": ("import inbounds as ib", "result = ib.data.load_ratings({path!r})"),
    "read .dat, pandas": ("import pandas", "result = pandas.read_csv({path!r}, sep='::', engine='python', header=None)"),
    "read .csv": ("import inbounds as ib", "result = ib.data.load_ratings({csv!r})"),
    "read .csv, pandas": ("import pandas", "result = pandas.read_csv({csv!r})"),
}  # fmt: skip


def measure(kind: str, **paths: str) -> dict:
    imports, work = WORK[kind]
    code = MEASURE.format(imports=imports, work=work.format(**paths))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="10m", choices=("10m", "1m", "100k"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out")
    arguments = parser.parse_args()

    import inbounds as ib
    from inbounds.data import MOVIELENS_SHAPES, write_dat

    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        dat, csv = Path(folder) / "ratings.dat", Path(folder) / "ratings.csv"
        ratings = ib.data.generate_ratings(**MOVIELENS_SHAPES[arguments.shape])
        began = time.perf_counter()
        write_dat(ratings, dat)
        results["write .dat"] = {"seconds": time.perf_counter() - began, "rows": len(ratings)}
        with dat.open("rb") as source, csv.open("wb") as out:
            out.write(b"userId,movieId,rating,timestamp\n")
            while lines := source.readlines(1 << 24):
                out.write(b"".join(lines).replace(b"::", b","))
        runs: dict[str, list[dict]] = {kind: [] for kind in WORK}
        for repeat in range(arguments.repeats):  # interleaved: what else runs on the machine meets them all
            for kind in WORK:
                # pandas has no fast way through two-character separators: once is enough.
                if repeat == 0 or kind != "read .dat, pandas":
                    runs[kind].append(measure(kind, path=str(dat), csv=str(csv), shape=arguments.shape))
        size = dat.stat().st_size
    for kind, found in runs.items():
        results[kind] = (
            found[0]
            if "failed" in found[0]
            else {key: statistics.median(run[key] for run in found) for key in found[0]}
        )
    print(f"{ratings}, {size / 1e6:.0f} MB as .dat; medians of {arguments.repeats}")
    print(f"{'':22}{'seconds':>9}{'CPU s':>9}{'peak GB':>9}{'before GB':>11}")
    for kind, row in results.items():
        if "failed" in row:
            print(f"{kind:22}  failed: {row['failed']}")
        else:
            cells = (row.get(key) for key in ("seconds", "cpu_seconds", "peak_gb", "before_gb"))
            widths = (9, 9, 9, 11)
            shown = ((f"{c:{w}.2f}" if c is not None else " " * w) for c, w in zip(cells, widths, strict=True))
            print(f"{kind:22}" + "".join(shown))
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"bytes": size, **results}, indent=1))


if __name__ == "__main__":
    main()
