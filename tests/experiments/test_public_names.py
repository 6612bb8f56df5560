"""The experiments are a client like any other: they use public names alone, and nothing in the library knows of them."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES_IN_THEIR_PACKAGES = {"inbounds.data.images"}  # `ib.data.images`: its names mean something only behind its own


def imports(file):
    """(module, name) of everything that a file imports; the name is None for `import module`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_public(module, name):
    """Whether the name is one of `inbounds`, or of a part that is an attribute of `inbounds`."""
    if module.count(".") > 1 and module not in MODULES_IN_THEIR_PACKAGES:
        return False
    names = [*module.split("."), *([name] if name else [])]
    if any(part.startswith("_") and part != "__version__" for part in names):
        return False
    listed = getattr(importlib.import_module(module), "__all__", None)
    return name is None or listed is None or name in listed


@pytest.mark.parametrize("file", sorted((ROOT / "experiments").glob("*.py")), ids=lambda file: file.stem)
def test_an_experiment_uses_public_names_alone(file):
    ours = [(module, name) for module, name in imports(file) if module.split(".")[0] == "inbounds"]
    assert not [pair for pair in ours if not is_public(*pair)]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    reached = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert not [name for name in reached if name.startswith("ib.") and "._" in name]


def test_the_library_imports_neither_experiments_nor_benchmarks():
    known = [
        (file.name, module)
        for file in (ROOT / "src").rglob("*.py")
        for module, _ in imports(file)
        if module.split(".")[0] in ("experiments", "benchmarks")
    ]
    assert not known


def test_a_private_name_would_be_seen():
    assert is_public("inbounds.models", "FactorModel")
    assert not is_public("inbounds.models.factors", "FactorModel")
    assert not is_public("inbounds.cli", "_column")
    assert not is_public("inbounds.cli", "load_object")  # not among its `__all__`
