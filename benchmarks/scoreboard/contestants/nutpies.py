"""nutpie on the same density, by JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import nutpie

from benchmarks.scoreboard.answers import Density, Look, of_chains

__all__ = ["nuts"]


def nuts(model: Any, data: Any, seed: int) -> Look:
    """Its defaults, looked at once."""
    density = Density(model, data, seed, 1)
    size = density.starts.shape[1]
    arrays = {name: jnp.asarray(x) for name, x in data.items()}
    value_and_gradient = jax.jit(jax.value_and_grad(lambda flat, data: density.log_density(flat, data)))

    def make_log_density() -> Any:
        def log_density(flat: Any) -> Any:
            value, gradient = value_and_gradient(jnp.asarray(flat, jnp.float32), arrays)
            return float(value), np.asarray(gradient, np.float64)

        return log_density

    def make_expand(*_: Any) -> Any:
        return lambda flat: {"flat": np.asarray(flat)}

    compiled = nutpie.compiled_pyfunc.from_pyfunc(
        size, make_log_density, make_expand, [np.dtype("float64")], [(size,)], ["flat"]
    )
    found = nutpie.sample(compiled, seed=seed, progress_bar=False)
    yield of_chains(density.theta(jnp.asarray(np.asarray(found.posterior["flat"]), jnp.float32)))
