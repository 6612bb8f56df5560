"""Try what `make dist` built before anybody else does.

    python release/check.py dist

Looks at size and contents of the sdist and the wheel, then installs each of them in a fresh environment of the oldest and of the newest
Python that is found here and runs `quick_start.py` there. `--python PATH` names the interpreters instead; `--contents` installs nothing.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

RELEASE = Path(__file__).parent
MOST_BYTES = 1_000_000
NEVER = re.compile(r"\.(png|svg|ipynb|npz|zip)$|(^|/)(tests|docs|benchmarks|experiments|out|shared)/|__pycache__")


def main() -> None:
    """Check every file in the folder; the first thing that is wrong ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", action="append", help="an interpreter to install with; may be given twice")
    parser.add_argument("--contents", action="store_true", help="look at the files, install nothing")
    options = parser.parse_args()
    built = [*options.folder.glob("*.whl"), *options.folder.glob("*.tar.gz")]
    if len(built) != 2:
        sys.exit(f"expected one wheel and one sdist in {options.folder}, found {[file.name for file in built]}")
    for file in built:
        names = contents(file)
        complain(file, names)
        print(f"{file.name}: {file.stat().st_size / 1000:,.0f} kB, {len(names)} files", flush=True)
    if options.contents:
        return
    for python in options.python or oldest_and_newest():
        for file in built:
            install_and_run(python, file)


def contents(file: Path) -> list[str]:
    """The names of what is in it."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return wheel.namelist()
    with tarfile.open(file) as sdist:
        return [member.name for member in sdist.getmembers()]


def complain(file: Path, names: list[str]) -> None:
    """End the program where the file is too large, holds what it must not, or lacks what it must hold."""
    if file.stat().st_size > MOST_BYTES:
        sys.exit(f"{file.name} has {file.stat().st_size:,} bytes; {MOST_BYTES:,} are allowed")
    strange = [name for name in names if NEVER.search(name)]
    if strange:
        sys.exit(f"{file.name} holds what is no part of a release: {', '.join(strange[:5])}")
    for needed in ("inbounds/py.typed", "inbounds/__init__.py", "LICENSE"):
        if not any(name.endswith(needed) for name in names):
            sys.exit(f"{file.name} lacks {needed}")


def oldest_and_newest() -> list[str]:
    """The oldest and the newest Python that is supported and runs here."""
    asked = subprocess.run(["sh", str(RELEASE / "pythons")], stdout=subprocess.PIPE, text=True)
    found = asked.stdout.split("\n")[:-1]
    return list(dict.fromkeys((found[0], found[-1]))) if found else sys.exit(asked.returncode)


def install_and_run(python: str, file: Path) -> None:
    """Install the file with its required dependencies in a new environment, and run the quick start outside of the repository."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    with tempfile.TemporaryDirectory(prefix="inbounds-dist-") as folder:
        environment = Path(folder) / "environment"
        own = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
        for command in (
            [python, "-m", "venv", str(environment)],
            [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(file.resolve())],
            [str(own), "-m", "pip", "check", "--quiet", "--disable-pip-version-check"],
            [str(own), str(RELEASE.resolve() / "quick_start.py")],
        ):
            subprocess.run(command, cwd=folder, env=clean, check=True)
    print(f"{file.name} works with {python}", flush=True)


if __name__ == "__main__":
    main()
