"""The examples in the docstrings of public names run, and show what they say."""

import ast
import doctest
import importlib
import inspect
import re
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import inbounds as ib

# The names that every example may use: the reference says so at its top.
NAMES = {"ib": ib, "jax": jax, "jnp": jnp, "np": np, "numpyro": numpyro, "dist": dist}


def namespaces():
    """Every namespace that lists its names, by the name that users write."""
    found = {"ib": ib}
    for space in ("ib", "ib.data", "ib.diagnostics"):  # each after the one that lists it
        for name in found[space].__all__:
            value = getattr(found[space], name)
            if inspect.ismodule(value):
                found.setdefault(f"{space}.{name}", value)
    return {name: module for name, module in found.items() if hasattr(module, "__all__")}


def public():
    """Every public function and class that is ours, once."""
    found = {}
    for space, module in namespaces().items():
        for name in module.__all__:
            value = getattr(module, name)
            ours = getattr(value, "__module__", "").startswith("inbounds")
            if ours and callable(value) and value not in found.values():
                found[f"{space}.{name}"] = value
    return found


PUBLIC = public()


def examples(name):
    """The examples of a function, or of a class and its methods."""
    value = inspect.unwrap(PUBLIC[name])
    module = importlib.import_module(value.__module__)
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(value, name, module=module, globs=dict(NAMES)) if test.examples]


@pytest.mark.parametrize("name", [name for name in PUBLIC if examples(name)])
def test_the_example_of_a_public_name_runs(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = []
    for test in examples(name):
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_every_public_function_has_an_example():
    """A class may be shown by the function that makes it: the pages of the site are looked at in `docs/_site`."""
    assert [name for name in PUBLIC if not inspect.isclass(PUBLIC[name]) and not examples(name)] == []
    assert sum(bool(examples(name)) for name in PUBLIC) > 0.8 * len(PUBLIC)


def raises(function):
    """Whether a function itself has a `raise`; what it calls is described there."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isfunction(PUBLIC[name])])
def test_a_public_function_says_what_it_takes_returns_and_raises(name):
    function = inspect.unwrap(PUBLIC[name])
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    assert [name for name in signature.parameters if not describes(text, name)] == []
    assert "Returns:\n" in text or signature.return_annotation in (None, "None")
    assert "Raises:\n" in text or not raises(function)


def describes(text, parameter):
    """Whether a line of a docstring is about a parameter, alone or with others: `lower, upper: the bounds.`"""
    return re.search(rf"^ +[*\w, ]*\b{parameter}\b[*\w, ]*:", text, re.MULTILINE)


# Made by a function that is public, or by the library alone.
NOT_CALLED = {
    "ib.Draws",
    "ib.Kernel",
    "ib.data.Stream",
    "ib.display.Theme",
    "ib.preconditioners.RMSprop",
    "ib.transforms.Bijection",
}


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(PUBLIC[name])])
def test_a_public_class_says_what_it_takes(name):
    kind = PUBLIC[name]
    if name in NOT_CALLED or issubclass(kind, (BaseException, tuple)) or getattr(kind, "_is_protocol", False):
        return
    parameters = [parameter for parameter in inspect.signature(kind).parameters if not parameter.startswith("_")]
    assert [name for name in parameters if not describes(inspect.getdoc(kind) or "", name)] == []
