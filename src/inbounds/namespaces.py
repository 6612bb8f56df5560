"""What users see of a package: its public names, some of them imported when they are first used, and the nearest name to a misspelt one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from inbounds.arguments import nearest

__all__ = ["namespace"]


def namespace(
    package: str, later: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package or module that has `__all__` (PEP 562).

    Completion and `dir` list `__all__` alone. `import inbounds` costs what a run of a chain needs, because what is named in `later`
    is imported when it is first used. Modules call this where type checkers do not look: a `__getattr__` would hide misspelt names
    from them.

    Args:
        package: its `__name__`.
        later: for every name the module that it is in, or the module that it is. A function that has the name of its module
            must not be among them: whoever imports the module first puts it in the function's place.

    Returns:
        The two functions.
    """
    origins = later or {}

    def get(name: str) -> Any:
        if name not in origins:
            near = "" if name.startswith("_") else nearest(name, names())
            raise AttributeError(f"module {package!r} has no attribute {name!r}.{near}")
        module = importlib.import_module(origins[name])
        value = (
            module if origins[name].rpartition(".")[2] == name and not hasattr(module, name) else getattr(module, name)
        )
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return get, names
