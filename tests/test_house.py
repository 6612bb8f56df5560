"""The plan of the house: what may import what, and that every module says which of its names are for others."""

import ast
from pathlib import Path

import pytest

import inbounds

SOURCE = Path(inbounds.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# A part imports those before it, and no other. `inbounds` itself and the command line hand on what there is.
ORDER = (
    "arguments", "trees", "precision", "deadline", "recipe", "namespaces", "display", "schedules", "engine", "transforms", "space", "data",
    "contents", "files", "posterior", "exact", "hierarchies", "frontends", "preconditioners", "gradients", "metrics", "kernels", "sampling",
    "inference", "diagnostics", "models", "tuning", "testing", "", "cli",
)  # fmt: skip


def name_of(file):
    parts = [part for part in file.relative_to(SOURCE).with_suffix("").parts if part != "__init__"]
    return ".".join(parts)


NAMES = {name_of(file) for file in MODULES}


def imports(file):
    """The modules of everything of the library that a file imports, also inside of functions; for types alone, not."""
    own = ["inbounds", *file.relative_to(SOURCE).with_suffix("").parts]

    def walk(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*(own[: -node.level] if node.level else []), *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    for module in walk(ast.parse(file.read_text(encoding="utf-8"))):
        first, _, rest = module.partition(".")
        if first == "inbounds":
            yield rest if rest in NAMES else rest.rpartition(".")[0]


def against_the_direction():
    """(from, to) for what imports a later part."""
    for file in MODULES:
        own = name_of(file)
        for other in imports(file):
            here, there = own.partition(".")[0], other.partition(".")[0]
            if here != there and ORDER.index(here) < ORDER.index(there):
                yield own, other


def test_imports_go_one_way():
    assert not set(against_the_direction())


def test_every_part_has_its_place_in_the_order():
    assert {name.partition(".")[0] for name in NAMES} == set(ORDER)


@pytest.mark.parametrize("file", [file for file in MODULES if not file.stem.startswith("_") or file.stem == "__init__"])
def test_every_module_lists_the_names_that_others_may_use(file):
    assigned = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
    assert "__all__" in {ast.unparse(target) for node in assigned for target in node.targets}


def test_platforms_are_known_to_the_engine_alone():
    """And kernels, transforms and options are asked what they do, not what they are called."""
    words = {"default_backend", "WARP", "threefry2x32"}
    names = {"kernel.name ==", "kernel.name in", "transform.name ==", "transform.name in", "config.get("}
    for file in MODULES:
        text = file.read_text(encoding="utf-8")
        if name_of(file).partition(".")[0] != "engine":
            assert not [word for word in words if word in text], file
        assert not [name for name in names if name in text], file
