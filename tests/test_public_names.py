"""The public contract: the names that users write, and an import that stays light."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpyro.distributions as dist
import pytest

import inbounds as ib

CONTRACT = [
    "transforms.Softplus",
    "transforms.onto",
    "transforms.default",
    "transforms.available",
    "Posterior",
    "from_numpyro",
    "sgld",
    "leimkuhler_matthews",
    "baoab",
    "sgnht",
    "lazy_rows",
    "baselines.mirror",
    "baselines.ito",
    "baselines.sgrld",
    "baselines.projected",
    "baselines.scir",
    "gradients.minibatch",
    "gradients.control_variate",
    "gradients.svrg",
    "preconditioners.rmsprop",
    "schedules.cyclical",
    "sample",
    "collect.mean_and_variance",
    "check",
    "tune",
    "models.BinaryNetwork",
    "models.LDA",
    "diagnostics.bias_of",
    "data.Generated",
    "data.Ratings",
    "data.generate_ratings",
    "data.load_ratings",
    "Draws",
    "Kernel",
    "Info",
    "NonFiniteError",
    "UntrustworthyWarning",
    "Checkpoint",
    "LeaveOneOut",
    "Interrupted",
    "Layout",
    "LostProcessError",
    "data.balanced_numbering",
]
HEAVY = {
    "arviz_base",
    "arviz_stats",
    "matplotlib",
    "optuna",
    "orbax.checkpoint",
    "pandas",
    "sklearn",
    "typer",
    "xarray",
    "zarr",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_every_name_of_the_contract_is_there(name):
    found = ib
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None


NAMESPACES = [
    "inbounds",
    "inbounds.data",
    "inbounds.diagnostics",
    "inbounds.display",
    "inbounds.gradients",
    "inbounds.hierarchies",
    "inbounds.kernels",
    "inbounds.kernels.baselines",
    "inbounds.metrics",
    "inbounds.models",
    "inbounds.preconditioners",
    "inbounds.sampling",
    "inbounds.sampling.collect",
    "inbounds.schedules",
    "inbounds.testing",
    "inbounds.transforms",
    "inbounds.tuning",
]


def test_every_namespace_is_looked_at():
    seen = {value.__name__ for name in ib.__all__ if inspect.ismodule(value := getattr(ib, name))}
    assert {name for name in seen if hasattr(sys.modules[name], "__all__")} - {*NAMESPACES} == set()


@pytest.mark.parametrize("name", NAMESPACES)
def test_completion_lists_public_names_and_no_others(name):
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)
    assert all(getattr(module, listed) is not None for listed in module.__all__)
    assert not [listed for listed in module.__all__ if listed.startswith("_") and listed != "__version__"]


def test_a_name_that_a_package_hands_on_is_listed():
    """`from ... import x as x` in a package says that x is public. What is listed nowhere is not."""
    inner = {"inbounds": {"trees"}, "inbounds.transforms": {"BY_NAME", "is_vector"}}
    for name in NAMESPACES:
        module = importlib.import_module(name)
        if module.__file__.endswith("__init__.py"):
            tree = ast.parse(Path(module.__file__).read_text())
            aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
            handed_on = {alias.name for alias in aliases if alias.asname == alias.name}
            assert handed_on - set(module.__all__) == inner.get(name, set()), name


@pytest.mark.parametrize(
    ("module", "misspelt", "meant"),
    [
        ("inbounds", "leimkuhler_mathews", "leimkuhler_matthews"),
        ("inbounds", "posterior_", "Posterior"),
        ("inbounds.transforms", "SoftPlus", "Softplus"),
        ("inbounds.gradients", "control_variates", "control_variate"),
        ("inbounds.models", "BayesianNmf", "BayesianNMF"),
        ("inbounds.metrics", "laplce", "laplace"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(module, misspelt, meant):
    with pytest.raises(AttributeError, match=rf"has no attribute '{misspelt}'\. Did you mean '{meant}'\?"):
        getattr(importlib.import_module(module), misspelt)


def test_a_misspelt_argument_of_a_kernel_is_answered_with_the_nearest():
    posterior = ib.Posterior({"x": dist.Gamma(2.0, 1.0)})
    with pytest.raises(
        TypeError, match=r"^sgld has no argument 'noise_corection'\. Did you mean 'noise_correction'\?$"
    ):
        ib.sgld(posterior, noise_corection=True)


def test_what_resembles_nothing_is_answered_with_nothing():
    with pytest.raises(AttributeError, match=r"has no attribute 'zzzz'\.$"):
        ib.zzzz  # noqa: B018


def test_importing_the_library_loads_no_extra():
    code = "import inbounds, sys; print(' '.join(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & set(modules)


def test_no_module_asks_which_front_end_a_posterior_comes_from():
    """What differs between them is a method of the posterior. The package alone names them, for users."""
    source = Path(ib.__file__).parent
    doors = source / "frontends"
    names = {
        name for file in doors.glob("*.py") for name in re.findall(r"^class (\w+)\(Posterior\)", file.read_text(), re.M)
    }
    assert names
    asks = re.compile(
        rf"inbounds\.frontends|inbounds import frontends|isinstance\([^)]*\b({'|'.join(sorted(names))})\b"
    )
    found = [
        f"{file.relative_to(source)}: {line.strip()}"
        for file in sorted(source.rglob("*.py"))
        if doors not in file.parents
        for line in file.read_text().splitlines()
        if asks.search(line)
    ]
    assert (
        found
        == [
            *(
                f"__init__.py: from inbounds.frontends import from_{name} as from_{name}"
                for name in ("bambi", "numpyro", "pymc")
            ),
            "inference/_infer.py: from inbounds.frontends import posterior_of",  # which asks what a model is, not a posterior
        ]
    )


def test_numpyro_is_whole_where_arviz_was_imported_first():
    """ArviZ leaves a NumPyro in its place that is loaded when it is first used: it lost its parts, and `numpyro.factor` failed."""
    pytest.importorskip("arviz_base")
    program = "import jax, arviz_base, inbounds, numpyro; print(hasattr(numpyro.distributions, 'distribution'))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert found.stdout.strip() == "True", found.stderr
