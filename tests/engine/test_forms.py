"""Each form in which devices compute, held to plain XLA; and what a form for CPUs is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.engine import here, on
from inbounds.engine.platform import FORMS, PLAIN
from tests.models_for_tests import on_cpus

pytestmark = pytest.mark.usefixtures("optimised")
FINITE = np.concatenate([np.linspace(-85, 85, 4_001), [0.0, -1e-30, 1e-30, -1e-6, 1e-6]]).astype(np.float32)
POSITIVE = np.geomspace(1e-37, 1e37, 4_001).astype(np.float32)
UNIT = np.linspace(0, 1, 4_001).astype(np.float32)
COEFFICIENTS = (0.5, -0.25, 0.125, 0.75, -0.5, 0.3, -0.1)

# What is computed, where, and how far from plain XLA it may be, relative: a few units in the last place of single precision.
NUMBERS = {
    "polynomial": (lambda form, x: form.polynomial(COEFFICIENTS, x), UNIT, 5e-7),
    "reciprocal": (lambda form, x: form.reciprocal(x), POSITIVE, 4e-7),
    "log": (lambda form, x: form.log(x), POSITIVE, 4e-7),
    "exponential": (lambda form, x: form.exponential(x, 0.01), FINITE, 1e-6),
    "derivative of exponential": (lambda form, x: jax.vmap(jax.grad(form.exponential))(x), FINITE, 1e-6),
    "1 - e^-x": (lambda form, x: form.one_minus_exp(x)[0], np.abs(FINITE), 1e-6),
    "e^-x": (lambda form, x: form.one_minus_exp(x)[1], np.abs(FINITE), 1e-6),
    "derivative of 1 - e^-x": (lambda form, x: jax.vmap(jax.grad(lambda y: form.one_minus_exp(y)[0]))(x), np.abs(FINITE), 1e-6),
    "log1p_over": (lambda form, x: form.log1p_over(x), UNIT, 6e-7),
    "decaying": (lambda form, x: form.decaying(x), np.abs(FINITE), 1e-6),
    "growing": (lambda form, x: form.growing(x), FINITE, 1e-6),
    "logistic": (lambda form, x: form.logistic(x), FINITE, 2e-6),
    "logistic_complement": (lambda form, x: form.logistic_complement(x), FINITE, 2e-6),
}  # fmt: skip


@pytest.mark.parametrize("platform", FORMS)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_those_of_plain_xla(name, platform):
    function, x, rtol = NUMBERS[name]
    made, plain = (np.asarray(jax.jit(lambda x, form=form: function(form, x))(x)) for form in (on(platform), PLAIN))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, plain, rtol=rtol, atol=2e-38 if "log" not in name else 4e-7)


@pytest.mark.parametrize("platform", FORMS)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_in_double_precision_too(name, platform, float64):
    function, x, _ = NUMBERS[name]
    x = x.astype(np.float64)
    made, plain = (np.asarray(jax.jit(lambda x, form=form: function(form, x))(x)) for form in (on(platform), PLAIN))
    assert made.dtype == np.float64
    np.testing.assert_allclose(made, plain, rtol=1e-14)


@pytest.mark.parametrize("platform", FORMS)
@pytest.mark.parametrize("shape", [(7, 5), (6, 8), (3, 40), (4, 1)])
def test_arrays_are_those_of_plain_xla(shape, platform):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    rows, columns = x[:, :1], np.arange(1.0, 6.0, dtype=np.float32)

    def arrays(form):
        index = np.array([0, 2, 2, 1])
        return {
            "elementwise": form.elementwise(lambda a, b: jnp.tanh(a) * b, x, 2 * x),
            "table": form.table(jnp.exp(x))[index],
            "gradient through a table": jax.grad(lambda y: jnp.sum(form.table(y)[index] ** 2))(jnp.asarray(x)),
            "row_sums": form.row_sums(jnp.asarray(x)),
            "outer": form.outer(rows, jnp.asarray(columns)),
            "mapped": jax.vmap(lambda y: form.row_sums(form.table(y)))(jnp.stack([x, 2 * x])),
        }

    made, plain = jax.jit(lambda: arrays(on(platform)))(), jax.jit(lambda: arrays(PLAIN))()
    for name, array in plain.items():
        np.testing.assert_allclose(made[name], array, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("form", [*FORMS.values(), PLAIN], ids=[*FORMS, "plain"])
def test_a_ring_of_rows_has_each_once_and_its_beginning_at_its_end(form):
    key, rows = jax.random.key(3), {"x": np.arange(40.0).reshape(20, 2)}
    ring = form.ring(key, 20, 6)
    assert np.array_equal(np.sort(ring[:20]), np.arange(20))
    assert not np.array_equal(ring[:20], np.arange(20))
    assert np.array_equal(ring[20:], ring[:6])
    np.testing.assert_array_equal(form.looked_up(rows, ring)["x"], rows["x"][np.asarray(ring)])


@on_cpus
def test_what_makes_a_table_is_not_done_at_every_look_up():
    def looked_up(make):
        lowered = jax.jit(lambda phi, index: make(jnp.exp(phi))[index]).lower(jnp.zeros((50, 8)), jnp.arange(400))
        loops = lowered.compile().as_text().split("\n\n")
        return any(" gather(" in loop and " exponential(" in loop for loop in loops)

    assert looked_up(PLAIN.table)  # else XLA has learnt better, and `table` can go
    assert not looked_up(here().table)
