"""The reference: a page for every public name, written from `__all__`, so that no name can be missing.

Docstrings are plain text with `code` and $formulas$, which also reads well at a prompt; they become reStructuredText here.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.util import logging

LOG = logging.getLogger(__name__)

# What stands in `inbounds` itself, by task. What is in no group is listed as "More".
GROUPS = {
    "Describe a model": ["Posterior", "from_numpyro", "from_pymc", "from_bambi"],
    "Sample": ["infer", "sample", "Draws", "Certificate", "LeaveOneOut", "Checkpoint", "Layout", "load"],
    "Choose": ["check", "tune"],
    "Kernels": ["sgld", "leimkuhler_matthews", "baoab", "sgnht", "lazy_rows", "Kernel", "Info"],
    "Errors and warnings": ["NonFiniteError", "Interrupted", "LostProcessError", "UntrustworthyWarning"],
}
TITLES = {
    "baselines": "Baselines",
    "collect": "Statistics while it runs",
    "data": "Data",
    "data.catalog": "Public data sets",
    "data.images": "Images",
    "diagnostics": "Diagnostics",
    "diagnostics.distances": "Distances to a known law",
    "diagnostics.weak_error": "Exact stationary laws",
    "display": "Tables and pictures",
    "gradients": "Gradients",
    "hierarchies": "Effects of groups",
    "kernels": "Kernels of your own",
    "metrics": "Metrics",
    "models": "Models",
    "preconditioners": "Preconditioners",
    "schedules": "Step sizes that change",
    "testing": "Tests for your own parts",
    "transforms": "Transforms",
    "tuning": "Tuning",
}


CONSTANTS = {
    "MOVIELENS_SHAPES": "Number of users, items and ratings of each release of MovieLens, by name.",
    "DARK": "The theme for pictures on a dark page.",
    "LIGHT": "The theme for pictures on a light page.",
    "SCHEMES": "The schemes whose stationary law is known exactly, by name.",
    "Schedule": "What a schedule is: a function of the number of the step that returns a step size.",
    "StepSize": "What a kernel takes for a step size: a number, one number per chain, or a schedule.",
}


# What has no example of its own, and the name whose example makes it or takes it.
SHOWN_BY = {
    "Certificate": "infer",
    "collect.Moments": "collect.mean_and_variance",
    "data.MOVIELENS_SHAPES": "data.generate_ratings",
    "data.RatingsSplit": "data.Ratings",
    "data.Stream": "data.stream",
    "diagnostics.Finding": "check",
    "diagnostics.Identities": "diagnostics.identities",
    "diagnostics.Report": "check",
    "diagnostics.StationaryLaw": "diagnostics.stationary",
    "diagnostics.Stein": "diagnostics.stein_discrepancy",
    "diagnostics.StepBias": "diagnostics.bias_of",
    "diagnostics.weak_error.Bias": "diagnostics.stationary",
    "diagnostics.weak_error.StationaryLaw": "diagnostics.stationary",
    "diagnostics.weak_error.SCHEMES": "diagnostics.stationary",
    "diagnostics.weak_error.Target": "diagnostics.stationary",
    "display.DARK": "display.Theme",
    "display.LIGHT": "display.Theme",
    "gradients.Gradient": "gradients.minibatch",
    "hierarchies.Moments": "hierarchies.moments",
    "kernels.ProxyGradient": "kernels.kernel_on_proxy",
    "metrics.Arrow": "metrics.arrow",
    "metrics.Dense": "metrics.laplace",
    "metrics.LowRank": "metrics.low_rank",
    "metrics.PerRow": "metrics.per_row",
    "metrics.Reference": "metrics.laplace",
    "preconditioners.Preconditioner": "preconditioners.rmsprop",
    "preconditioners.RMSprop": "preconditioners.rmsprop",
    "schedules.Schedule": "schedules.cyclical",
    "schedules.StepSize": "sample",
    "tuning.StorageError": "tune",
}


def public_names(module: ModuleType) -> dict[str, Any]:
    """What a namespace lists, modules and what is of other packages left out."""
    names = {name: getattr(module, name) for name in module.__all__ if not name.startswith("_")}
    return {name: value for name, value in names.items() if is_ours(name, value)}


def is_ours(name: str, value: Any) -> bool:
    """Whether the reference has a page of it."""
    return name in CONSTANTS or (
        not inspect.ismodule(value) and getattr(value, "__module__", "inbounds").startswith("inbounds")
    )


def namespaces() -> dict[str, ModuleType]:
    """Every namespace of `inbounds` that lists its names, by the name that users write."""
    top = importlib.import_module("inbounds")
    found = {name: getattr(top, name) for name in top.__all__ if inspect.ismodule(getattr(top, name))}
    inner = {
        f"{name}.{part}": value
        for name, module in found.items()
        for part in getattr(module, "__all__", [])
        if inspect.ismodule(value := getattr(module, part)) and value not in found.values()
    }
    return {name: module for name, module in sorted((found | inner).items()) if hasattr(module, "__all__")}


def write_pages(app: Any) -> None:
    """Write the lists of names, and a page for each name, into a folder that is made anew with every build."""
    folder = Path(app.srcdir) / "reference"
    (folder / "names").mkdir(parents=True, exist_ok=True)
    written = set()
    top = importlib.import_module("inbounds")
    left = public_names(top)
    seen = {id(value) for value in left.values()}
    lines = [
        "Reference",
        "=========",
        "",
        "Every public name, with its arguments, what it returns, and an example that the tests run.",
        "",
    ]
    for title, wanted in GROUPS.items():
        here = {name: left.pop(name) for name in wanted if name in left}
        lines += [title, "-" * len(title), "", *listing("inbounds", here, "names/")] if here else []
        written |= {write_name(folder, "inbounds", *pair) for pair in here.items()}
    lines += ["More", "----", "", *listing("inbounds", left, "names/")] if left else []
    written |= {write_name(folder, "inbounds", *pair) for pair in left.items()}
    others = namespaces()
    lines += ["Namespaces", "----------", "", ".. toctree::", "   :maxdepth: 1", "", *(f"   {name}" for name in others)]
    written.add(put(folder / "index.rst", lines))
    for name, module in others.items():
        title = f"{TITLES.get(name, name)}: ib.{name}"
        about = docstring_lines(inspect.getdoc(module) or "")
        names = {key: value for key, value in public_names(module).items() if id(value) not in seen}
        page = [title, "=" * len(title), "", *about, "", *listing(f"inbounds.{name}", names, "names/")]
        written.add(put(folder / f"{name}.rst", page))
        written |= {write_name(folder, f"inbounds.{name}", *pair) for pair in names.items()}
    for file in {*folder.rglob("*.rst")} - written:
        file.unlink()


def listing(qualified: str, names: dict[str, Any], folder: str) -> list[str]:
    """A table of names with the first sentence about each, and the pages that belong to it."""
    rows = [
        line
        for name, value in names.items()
        for line in (f"   * - :py:obj:`{name} <{qualified}.{name}>`", f"     - {first_sentence(name, value)}")
    ]
    if not rows:
        return []
    table = [".. list-table::", "   :widths: 30 70", "", *rows, ""]
    return [*table, ".. toctree::", "   :hidden:", "", *(f"   {folder}{qualified}.{name}" for name in names), ""]


def is_constant(name: str, value: Any) -> bool:
    """Numbers, tables and types of arguments: what has no docstring of its own."""
    return name in CONSTANTS or not callable(value)


def first_sentence(name: str, value: Any) -> str:
    """What the first paragraph of a docstring says, up to its first full stop."""
    if is_constant(name, value):
        if name not in CONSTANTS:
            LOG.warning("%s has no words in CONSTANTS", name, type="reference", subtype="docstring")
        return CONSTANTS.get(name, "")
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    sentence = re.match(r".*?(?:(?<!et al)\.(?=\s|$)|$)", " ".join(paragraph.split()))
    return " ".join(docstring_lines(sentence[0] if sentence else "")).strip()


def write_name(folder: Path, qualified: str, name: str, value: Any) -> Path:
    """The page of one name."""
    full = f"{qualified}.{name}"
    shown = full.replace("inbounds.", "ib.", 1)
    lines = [shown, "=" * len(shown), "", f".. currentmodule:: {qualified}", ""]
    if inspect.isclass(value):
        lines += [f".. autoclass:: {name}"]
        if not issubclass(value, BaseException):
            lines += ["   :members:", "   :inherited-members:", "   :special-members: __call__"]
    elif is_constant(name, value):
        lines += [f".. py:data:: {name}", "", f"   {CONSTANTS.get(name, '')}"]
    else:
        lines += [f".. autofunction:: {name}"]
    if shown_by := SHOWN_BY.get(full.removeprefix("inbounds.")):
        lines += ["", ".. rubric:: Example", "", f"That of :py:obj:`ib.{shown_by} <inbounds.{shown_by}>`:", ""]
        lines += example_of(shown_by)
    return put(folder / "names" / f"{full}.rst", lines)


def example_of(name: str) -> list[str]:
    """The lines of the example in the docstring of a public name."""
    value: Any = importlib.import_module("inbounds")
    for part in name.split("."):
        value = getattr(value, part)
    example = (inspect.getdoc(value) or "").partition("Example:\n")[2]
    return inspect.cleandoc(example).splitlines()


def put(file: Path, lines: list[str]) -> Path:
    """Write a page where it differs from what is there: Sphinx builds what has changed."""
    text = "\n".join(lines) + "\n"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
    return file


# In this order: displayed formulas, formulas, code, names of links, and what would be markup and is not meant so.
MARKUP = re.compile(
    r"(?P<display>\$\$.+?\$\$)|(?P<formula>(?<!\\)\$[^$`]+?\$)|(?P<code>``.+?``|`[^`]+`)|(?P<sign>[*|]|(?<=\w)_(?!\w))",
    re.DOTALL,
)


def docstring_lines(text: str) -> list[str]:
    """A docstring of the library as reStructuredText; lines of an example stay as they are."""
    parts = re.split(r"((?:^[ ]*(?:>>>|\.\.\. ).*\n(?:^[ ]*(?!>>>)\S.*\n)*)+)", text + "\n", flags=re.MULTILINE)
    marked = [
        part if number % 2 else MARKUP.sub(lambda found, p=part: restructured(p, found), part)
        for number, part in enumerate(parts)
    ]
    return "".join(marked).rstrip("\n").splitlines()


def restructured(text: str, found: re.Match[str]) -> str:
    """One piece of markup."""
    body = " ".join(found[0].split())
    glued = "\\ " if found.end() < len(text) and text[found.end()].isalnum() else ""
    before = "\\ " if found.start() and text[found.start() - 1].isalnum() else ""
    if found["display"]:
        start = text.rfind("\n", 0, found.start()) + 1
        indent = re.match(r" *", text[start:])[0]
        return f"\n\n{indent}.. math::\n\n{indent}   {body.strip('$').strip()}\n\n{indent}"
    if found["formula"]:
        return f"{before}:math:`{body.strip('$').strip()}`{glued}"
    if found["code"]:
        return f"{before}``{body.strip('`')}``{glued}"
    return "\\" + found[0]


def translate(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Docstrings on their way into the site; a public one that is missing is a warning, hence an error."""
    if (
        not any(lines)
        and what in ("function", "class", "exception", "method", "property")
        and not name.endswith("__init__")
    ):
        LOG.warning("%s has no docstring", name, type="reference", subtype="docstring")
    lines[:] = docstring_lines("\n".join(lines))


def leave_out(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Methods that a class has from another library are left to that library's reference."""
    function = value.fget if isinstance(value, property) else getattr(value, "func", value)
    module = getattr(function, "__module__", None)
    return True if what == "class" and module is not None and not module.startswith("inbounds") else None


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before Sphinx looks for them; translate docstrings before napoleon reads their sections."""
    app.connect("builder-inited", write_pages, priority=100)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", translate, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
