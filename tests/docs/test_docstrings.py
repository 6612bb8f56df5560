"""The examples in the docstrings of public names run, and show what they say."""

import ast
import doctest
import importlib
import inspect
import re
import textwrap
from functools import cached_property

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
    assert unsaid(function, text) == []
    assert "Returns:\n" in text or not gives(function)


def gives(function):
    """Whether a function returns anything."""
    return inspect.signature(function).return_annotation not in (None, "None")


def unsaid(function, text):
    """The parameters that a docstring says nothing about, and "Raises" where it should say that."""
    missing = [name for name in inspect.signature(function).parameters if not describes(text, name)]
    return [name for name in missing if name not in ("self", "cls")] + ["Raises"] * (
        raises(function) and "Raises:\n" not in text
    )


# What the library itself calls, and a user reads about at most: a line is enough.
INSIDE = {
    "Draws": {"check_data", "functions_of", "notes", "convergence_of"},
    "Kernel": {"with_arrays", "in_metric"},
    "Layout": {"check", "source", "shardings", "put_chains", "put_copies", "make_chains", "over_chains", "everywhere"}
    | {"on_mesh", "normal_like"},
    "Posterior": {"holding", "draw_effects", "density_error", "fingerprint", "starts_on_host", "check_likelihood"},
    "RMSprop": {"init", "update"},
    "Source": {"words", "key", "feed", "example"},
    "Space": {"log_density_beyond", "moved_by"},
    "Elementwise": {"placed"},
}


def members(kind):
    """What a class has by each public name, inherited or its own, but for names that other libraries gave."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("inbounds")]
    others = {name for base in kind.__mro__ if base not in ours for name in vars(base)}
    names = [name for name in dir(kind) if not name.startswith("_") and name not in others]
    return {name: inspect.getattr_static(kind, name) for name in names}


def methods(kind):
    """(name, function, whether a line is enough) of every public method."""
    inside = {name for base in kind.__mro__ for name in INSIDE.get(base.__name__, ())}
    functions = {name: getattr(value, "__func__", value) for name, value in members(kind).items()}
    return [(name, f, name in inside) for name, f in functions.items() if inspect.isfunction(f)]


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(PUBLIC[name])])
def test_a_public_method_says_what_it_takes_returns_and_raises(name):
    """One line says what a method without arguments returns. An override may leave all of it to what it overrides."""
    silent = {}
    for method, function, inside in methods(PUBLIC[name]):
        text = inspect.getdoc(getattr(PUBLIC[name], method)) or ""
        if not text:
            silent[method] = ["a docstring"]
        elif not inside and (missing := unsaid(function, text)):
            silent[method] = missing
        elif not inside and "Args:\n" in text and "Returns:\n" not in text and gives(function):
            silent[method] = ["Returns"]
    assert silent == {}


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(PUBLIC[name])])
def test_a_public_property_has_a_line(name):
    kind = PUBLIC[name]
    properties = [key for key, value in members(kind).items() if isinstance(value, property | cached_property)]
    assert [key for key in properties if not inspect.getdoc(getattr(kind, key))] == []


def test_what_is_inside_is_there():
    """A name that is gone from a class is gone from the list."""
    classes = {base.__name__: base for kind in PUBLIC.values() if inspect.isclass(kind) for base in kind.__mro__}
    for kind, names in INSIDE.items():
        assert [name for name in names if not hasattr(classes[kind], name)] == []


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
