"""The examples in the docstrings of public names run, and show what they say."""

import doctest
import importlib
import inspect

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
