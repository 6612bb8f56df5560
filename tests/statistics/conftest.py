"""Every test here runs as users run it."""

import pytest


@pytest.fixture(autouse=True)
def _as_users_run_it(optimised):
    """Rounding and speed are what these tests are about."""
