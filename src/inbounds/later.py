"""Parts of a package that are imported when they are first used: `import inbounds` costs what a run of a chain needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def imported_later(package: str, origins: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package (PEP 562).

    Args:
        package: its `__name__`.
        origins: for every name the module that it is in, or the module that it is. A function that has the name of its module
            must not be among them: whoever imports the module first puts it in the function's place.
    """

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(origins[name])
        value = (
            module if origins[name].rpartition(".")[2] == name and not hasattr(module, name) else getattr(module, name)
        )
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *origins})

    return get, names
