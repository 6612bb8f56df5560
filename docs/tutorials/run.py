"""Run the tutorials from their first cell to their last, and keep what they print.

    python docs/tutorials/run.py                      # all of them
    python docs/tutorials/run.py ratings topics       # some
    python docs/tutorials/run.py --check              # keep nothing: does every cell run?

It ends with an error where a cell does. `from_pymc` is left out where PyMC is not installed.
"""

import argparse
import importlib.util
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
PLACES = {file.stem: file for file in [FOLDER.parent / "tutorial.ipynb", *sorted(FOLDER.glob("*.ipynb"))]}
NEEDS = {"from_pymc": "pymc"}


def main() -> None:
    """Run those that are asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(PLACES))
    parser.add_argument("--check", action="store_true", help="keep nothing")
    options = parser.parse_args()
    strange = {*options.names} - {*PLACES}
    if strange:
        parser.error(f"there is no tutorial {', '.join(sorted(strange))}; there are {', '.join(PLACES)}")
    for name in options.names or PLACES:
        needed = NEEDS.get(name)
        if needed and importlib.util.find_spec(needed) is None:
            print(f"{name}: left out, {needed} is not installed", flush=True)
            continue
        begin = time.perf_counter()
        run(PLACES[name], keep=not options.check)
        print(f"{name}: {time.perf_counter() - begin:.0f} seconds", flush=True)


def run(file: Path, keep: bool) -> None:
    """Run one of them in a kernel of this Python; what is kept says nothing of when and where it ran."""
    # PyTensor says of each number that it is a double; in single precision JAX warns of each.
    os.environ["PYTHONWARNINGS"] = "ignore:Explicitly requested dtype:UserWarning"
    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(notebook, timeout=1_200, kernel_name="python3", record_timing=False)
    client.execute(cwd=str(file.parent))
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":  # where a warning came from is a file of this run
                output.text = re.sub(r"^\S*ipykernel_\d+\S* (.*?)\n  \S.*\n?\Z", r"\1", output.text, flags=re.DOTALL)
    if keep:
        nbformat.write(notebook, file)


if __name__ == "__main__":
    sys.exit(main())
