"""What the tests of `ib.infer` share: draws of a small posterior, made once, and a count of compilations."""

from types import SimpleNamespace

import jax
import pytest

from tests.inference.spending import of_spending


@pytest.fixture(scope="session")
def certified():
    return of_spending(quantities={"spend": lambda theta: 1 / theta["rate"]})


@pytest.fixture
def compilations():
    """Counts what XLA compiles, or takes from its cache on disk, from here on: `compilations.count`."""
    seen = SimpleNamespace(count=0)

    def listen(event, duration, **more):
        seen.count += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)
