"""The doctor looks once, and where `ib.infer` looks."""

import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.diagnostics import _check
from inbounds.inference import mode
from inbounds.inference.choose import look_around
from inbounds.inference.clock import Clock
from inbounds.space import Space
from tests.models_for_tests import poisson_rates


def test_a_second_look_at_the_same_costs_nothing_and_stands_where_infer_begins(monkeypatch):
    posterior = ib.Posterior({"x": dist.Gamma(3.0, 1.0)})
    first = ib.check(posterior, show=False)
    monkeypatch.setattr(_check, "_look_over", lambda patient: pytest.fail("it looks again"))
    again = ib.check(posterior, show="all")
    assert again.findings == first.findings
    assert (again.everything, first.everything) == (True, False)
    monkeypatch.setattr(mode, "_dense", lambda *_: pytest.fail("it searches again"))
    found = look_around(posterior, Space.of(posterior.supports, None), None, 0, Clock(None))
    np.testing.assert_array_equal(found.mode.theta["x"], first.center["x"])


@pytest.mark.parametrize("change", ["data", "center", "init", "batch_size", "transforms"])
def test_another_question_is_looked_at_anew(change, monkeypatch):
    posterior, at = poisson_rates.__wrapped__(), {"rate": np.ones(2, np.float32), "mix": np.float32(0.5)}
    seen = []
    monkeypatch.setattr(_check, "_look_over", lambda patient: seen.append(patient) or _check._report(patient, [], None))

    def look(center=1.0, **changes):
        gradient = ib.gradients.control_variate(center={"rate": center * at["rate"], "mix": at["mix"]})
        ib.check(
            ib.sgld(posterior, changes.pop("transforms", None), gradient=gradient),
            show=False,
            **{"batch_size": 8} | changes,
        )

    look()
    look()
    assert len(seen) == 1
    if change == "data":
        posterior.data = posterior.data
        look()
    else:
        values = {"center": 2.0, "init": at, "batch_size": 4, "transforms": {"rate": "exp", "mix": "sigmoid"}}
        look(**{change: values[change]})
    assert len(seen) == 2
