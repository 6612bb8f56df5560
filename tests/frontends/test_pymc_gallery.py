"""The fifty models of docs/results/pymc/README.md: their densities are PyMC's own, and what is said of each in the table is so."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("pymc", reason="PyMC is not installed: it needs Python 3.12 or later")
pytest.importorskip("bambi", reason="bambi is not installed: it needs Python 3.12 or later")

import pymc as pm
from pytensor.compile.mode import Mode

import inbounds as ib
from tests.frontends.gallery import GALLERY

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore:Data in x contains missing values"),
    pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes:Warning"),  # bambi with pandas 3
]

TABLE = Path(__file__).parents[2] / "docs" / "results" / "pymc" / "README.md"
NUMBERS = sorted(GALLERY)


def pymc_model(model):
    """The PyMC model that is sampled."""
    if isinstance(model, pm.Model):
        return model
    model.build()
    return model.backend.model


def by_pymc(model, entry):
    """(the free variables at a point near PyMC's start, the log density there), both computed by PyMC from its transformed values."""
    generator = np.random.default_rng(entry.number)
    start = model.initial_point()
    point = {name: value + entry.width * generator.uniform(-1, 1, np.shape(value)) for name, value in start.items()}
    outputs = [model.logp(jacobian=False), *model.replace_rvs_by_values(model.free_RVs)]
    density, *values = model.compile_fn(
        outputs, inputs=model.value_vars, mode=Mode("py", "fast_compile"), on_unused_input="ignore"
    )(point)
    return {rv.name: value for rv, value in zip(model.free_RVs, values, strict=True)}, float(density)


def named_as_ours(posterior, theta):
    """The same values by the posterior's names: bambi's intercepts are centred."""
    return {name: theta[name.removesuffix("_centered")] for name in posterior.model.supports}


@pytest.mark.parametrize("number", NUMBERS, ids=[GALLERY[number].name for number in NUMBERS])
def test_the_density_of_a_model_is_pymcs_own(number):
    entry = GALLERY[number]
    model = entry.model()
    door = ib.from_pymc if isinstance(model, pm.Model) else ib.from_bambi
    if entry.outcome == "refused":
        with pytest.raises(ValueError, match=entry.why):
            door(model)
        return
    posterior = door(model)
    values, expected = by_pymc(pymc_model(model), entry)
    theta = named_as_ours(posterior, values)
    single = jax.jit(posterior.log_density)(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), theta))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, expected, rtol=1e-5)
    with jax.enable_x64(True):
        parts = jax.jit(lambda theta, data: (posterior.log_prior(theta), terms(posterior, theta, data)))
        prior, rows = parts(theta, posterior.data)
        np.testing.assert_allclose(prior + rows.sum(), expected, rtol=1e-10)
    assert posterior.num_data == (len(rows) if entry.outcome == "rows" else None)
    assert entry.why in (posterior.no_minibatches or "")


def terms(posterior, theta, data):
    return jnp.zeros(0) if posterior.log_likelihood is None else posterior.log_likelihood(theta, data)


def rows_of_the_table():
    """(number, what becomes of the model) of each row of the page."""
    found = re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", TABLE.read_text(), re.MULTILINE)
    return {int(number): outcome for number, outcome in found}


def test_the_page_says_of_each_model_what_the_tests_find():
    words = {"rows": "minibatches", "all": "all the data", "refused": "refused"}
    table = rows_of_the_table()
    assert sorted(table) == NUMBERS == list(range(1, 51))
    assert {n for n in NUMBERS if not table[n].startswith(words[GALLERY[n].outcome])} == set()
    assert sum(GALLERY[n].outcome == "rows" for n in NUMBERS) >= 40
