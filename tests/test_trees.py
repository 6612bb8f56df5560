"""Arithmetic on whole trees, and tables whose rows are looked up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds import trees
from tests.models_for_tests import on_cpus


@pytest.mark.parametrize("rows", [1, 6, 7])
def test_a_computed_table_is_the_table_and_lets_gradients_through(rows):
    table, index = jnp.arange(3.0 * rows).reshape(rows, 3), jnp.array([0, rows - 1, rows - 1])
    assert np.array_equal(jax.jit(trees.computed)(table), table)
    assert np.array_equal(jax.vmap(trees.computed)(table[None])[0], table)
    gradient = jax.grad(lambda x: jnp.sum(trees.computed(x)[index] ** 2))(table)
    assert np.array_equal(gradient, jax.grad(lambda x: jnp.sum(x[index] ** 2))(table))


@on_cpus
def test_what_makes_a_computed_table_is_not_done_at_every_look_up():
    def looked_up(make):
        lowered = jax.jit(lambda phi, index: make(jnp.exp(phi))[index]).lower(jnp.zeros((50, 8)), jnp.arange(400))
        loops = lowered.compile().as_text().split("\n\n")
        return any(" gather(" in loop and " exponential(" in loop for loop in loops)

    assert looked_up(lambda table: table)  # else XLA has learnt better, and `computed` can go
    assert not looked_up(trees.computed)


def test_a_function_of_coordinates_may_see_them_in_one_row():
    seen = []

    def function(x, y):
        seen.append(x.shape)
        return jnp.exp(x) * y

    x, y = jnp.arange(12.0).reshape(3, 2, 2), jnp.ones((3, 2, 2)) / 2
    assert np.array_equal(trees.in_one_row(function, x, y), jnp.exp(x) / 2)
    assert seen == [(12,) if jax.default_backend() == "cpu" else (3, 2, 2)]
