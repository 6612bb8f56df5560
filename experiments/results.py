"""A folder of results that fills up part by part, so that a run that was stopped goes on where it was.

    DIR/results.json        which experiment, at what scale and seed, on what machine
    DIR/parts/**/*.json     one file a finished part, written whole or not at all
    DIR/*.csv, summary.json the tidy tables made of the parts
    DIR/figures/            every picture as PNG and SVG
    DIR/report.html         the page

An experiment asks `part(name, compute)`: a part that is on disk is read, any other is computed and then kept. Numbers that
are not finite are written as null, which is what JSON has for them, and come back as None.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

__all__ = ["Results", "StoppedError", "cores", "environment", "find", "number"]

HEADER = "results.json"
T = TypeVar("T")


class StoppedError(Exception):
    """Raised inside a part that is given up because the run was interrupted."""


class Results:
    """The results of one experiment in one folder.

    Args:
        path: the folder.
        header: what `results.json` says: experiment, settings, environment.
    """

    def __init__(self, path: Path, header: dict[str, Any]):
        self.path = Path(path)
        self.header = header

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], experiment: str, settings: Mapping[str, Any], restart: bool = False
    ) -> Results:
        """The folder to run `experiment` in: a new one, or one to go on with.

        Args:
            path: the folder; made when it is not there.
            experiment: its name, as on the command line.
            settings: everything that the numbers depend on; a folder made with other settings is refused.
            restart: throw finished parts away first.
        """
        path = Path(path).expanduser()
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file; results need a folder. Give another one with --out.")
        wanted = {"experiment": experiment, "settings": _plain(dict(settings))}
        if (path / HEADER).exists() and not restart:
            found = _read(path / HEADER) or {}
            if {key: found.get(key) for key in wanted} != wanted:
                raise ValueError(
                    f"{path} holds other results: {_difference(found, wanted)}. Give another folder with --out, or "
                    "--restart to throw those away."
                )
            return cls(path, found)
        if restart:
            shutil.rmtree(path / "parts", ignore_errors=True)
        path.mkdir(parents=True, exist_ok=True)
        header = {**wanted, "environment": environment()}
        _write(path / HEADER, header)
        return cls(path, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Results:
        """Results that are there already."""
        path = Path(path).expanduser()
        header = _read(path / HEADER) if (path / HEADER).exists() else None
        if header is None:
            raise ValueError(f"{path} holds no results: there is no readable {HEADER} in it.")
        return cls(path, header)

    @property
    def experiment(self) -> str:
        return str(self.header["experiment"])

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.header["settings"]
        return settings

    def has(self, part: str) -> bool:
        return self._file(part).exists()

    def get(self, part: str) -> Any:
        """A finished part, or None."""
        file = self._file(part)
        return _read(file) if file.exists() else None

    def save(self, part: str, value: Any) -> Any:
        """Keep a part; returns it as it will be read again."""
        file = self._file(part)
        file.parent.mkdir(parents=True, exist_ok=True)
        value = _plain(value)
        _write(file, value)
        return value

    def part(self, part: str, compute: Callable[[], T], say: Callable[[str], None] = lambda line: None) -> T:
        """The part from disk, or computed now and kept; `say` is then told how long it took."""
        found: T | None = self.get(part)
        if found is None:
            began = time.perf_counter()
            found = self.save(part, compute())
            say(f"{part}: {time.perf_counter() - began:.1f} s")
        return found

    def run(
        self,
        tasks: Mapping[str, Callable[[Callable[[], None]], Any]],
        workers: int = 1,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Compute the parts that are not there yet, several at a time, and keep each as soon as it is done.

        Ctrl-C stops between two looks at the chains; finished parts stay, and the next call goes on from them.

        Args:
            tasks: part name to `task(check)`; a long task calls `check()` now and then, which raises when it is to stop.
            workers: threads; compilation and sampling both leave Python's lock.
            say: called with a line for every finished part.
        """
        missing = {name: task for name, task in tasks.items() if not self.has(name)}
        total, done = len(tasks), len(tasks) - len(missing)
        if done:
            say(f"{done} of {total} parts are there already")
        stop, start = threading.Event(), time.monotonic()

        def check() -> None:
            if stop.is_set():
                raise StoppedError

        def one(name: str) -> str:
            check()
            self.save(name, missing[name](check))
            return name

        with futures.ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
            running = [pool.submit(one, name) for name in missing]
            try:
                for count, future in enumerate(futures.as_completed(running), 1):
                    name = future.result()
                    left = (time.monotonic() - start) / count * (len(running) - count)
                    hint = f", about {left / 60:.0f} min left" if left > 90 and count > 2 else ""
                    say(f"[{done + count}/{total}] {name}{hint}")
            except BaseException:
                stop.set()
                for future in running:
                    future.cancel()
                raise

    def parts(self, under: str = "") -> dict[str, Any]:
        """All finished parts whose name starts with `under`, by name."""
        folder = self.path / "parts"
        names = sorted(file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.json"))
        found = {name: self.get(name) for name in names if name.startswith(under)}
        return {name: value for name, value in found.items() if value is not None}

    def figure(self, name: str) -> Path:
        """Where the picture `name` goes, without the ending."""
        folder = self.path / "figures"
        folder.mkdir(exist_ok=True)
        return folder / name

    def write_csv(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        """A tidy table: one row per observation, one column per variable; a missing number is an empty cell."""
        rows = [_plain(dict(row)) for row in rows]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        file = self.path / f"{name}.csv"
        with open(file, "w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, columns, restval="")
            writer.writeheader()
            writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
        return file

    def write_json(self, name: str, value: Any) -> Path:
        file = self.path / f"{name}.json"
        _write(file, _plain(value))
        return file

    def write_summary(self, rows: Any, claims: Iterable[Any], **more: Any) -> Path:
        """summary.json: where the numbers come from, the rows, and the claims as they were judged."""
        head = {"experiment": self.experiment, "settings": self.settings, "environment": self.header["environment"]}
        return self.write_json("summary", {**head, "rows": rows, "claims": [vars(claim) for claim in claims], **more})

    def facts(self) -> list[tuple[str, str]]:
        """Settings and machine, in pairs, for the end of a page."""
        shown = {**self.settings, **self.header["environment"]}
        return [
            (key.replace("_", " "), ", ".join(map(str, v)) if isinstance(v, list) else str(v))
            for key, v in shown.items()
        ]

    def settings_as(self, kind: type[T]) -> T:
        """The settings as the dataclass that they were made from; what a scale is called is not among its fields."""
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in self.settings.items() if name != "scale"}
        return kind(**values)

    def _file(self, part: str) -> Path:
        return self.path / "parts" / f"{part}.json"


def find(path: str | os.PathLike[str]) -> list[Results]:
    """The results in a folder: its own, or those of its subfolders."""
    path = Path(path).expanduser()
    if not path.is_dir():
        raise ValueError(f"There is no folder {path}.")
    if (path / HEADER).exists():
        return [Results.load(path)]
    found = [Results.load(file.parent) for file in sorted(path.glob(f"*/{HEADER}"))]
    if not found:
        raise ValueError(f"{path} holds no results: neither it nor a subfolder has a {HEADER}.")
    return found


def environment() -> dict[str, Any]:
    """On what the numbers were made."""
    import jax
    import numpyro
    import scipy

    from inbounds import __version__

    return {
        "inbounds": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpyro": numpyro.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores(),
        "device": f"{jax.devices()[0].platform}: {jax.devices()[0].device_kind}",
        "precision": str(jax.numpy.asarray(0.0).dtype),
    }


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number(value: Any) -> float:
    """A number read from a part: None is nan."""
    return math.nan if value is None else float(value)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    if found.get("experiment") != wanted["experiment"]:
        return f"of {found.get('experiment')!r}, not {wanted['experiment']!r}"
    old, new = found.get("settings", {}), wanted["settings"]
    differ = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"made with {key}={old.get(key)!r}, not {new.get(key)!r}" for key in differ)


def _plain(value: Any) -> Any:
    """As JSON can say it: NumPy becomes lists and numbers, what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _write(file: Path, value: Any) -> None:
    """Whole or not at all: to a file beside it, then renamed."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=1, allow_nan=False)
            stream.write("\n")
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(file: Path) -> Any:
    """None where the file is not JSON: such a part counts as not done."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
