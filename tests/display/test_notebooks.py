"""What a notebook shows of our objects: names come from users, and are no markup."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.frontends._numpyro_integrated import integrated
from inbounds.tuning import TuningResult, Uniform

# Short or bad on purpose: how it is shown is what counts.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

NAME = "<b>"
COUNTS = np.arange(40) % 4


def model(counts):
    rate = numpyro.sample(NAME, dist.Gamma(2.0, 1.0))
    with numpyro.plate("<i>", len(counts)):
        numpyro.sample("counts", dist.Poisson(rate), obs=counts)


def of_groups(group, counts):
    level = numpyro.sample(NAME, dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", 8):
        effect = numpyro.sample("<i>", dist.Normal(level, 1.0))
    with numpyro.plate("rows", len(counts)):
        numpyro.sample("counts", dist.Poisson(jnp.exp(effect[group])), obs=counts)


@pytest.fixture(scope="module")
def shown():
    posterior = ib.from_numpyro(model, COUNTS)
    kernel = ib.sgld(posterior)
    draws = ib.sample(kernel, 1e-3, 60, burn_in=20, batch_size=20, num_chains=2, progress=False)
    return {
        "posterior": posterior,
        "groups": integrated(ib.from_numpyro(of_groups, np.arange(40) % 8, COUNTS)),
        "kernel": kernel,
        "draws": draws,
        "summary": draws.summary(),
        "identities": ib.diagnostics.identities(draws),
        "tuning": TuningResult(0.1, {NAME: 0.5}, [], {NAME: Uniform(0.0, 1.0)}, "minimize", NAME),
    }


def test_every_object_is_shown_with_names_escaped(shown):
    for what, thing in shown.items():
        page = thing._repr_html_()
        assert page.startswith("<"), what
        assert NAME not in page, what
        assert "<i>" not in page, what
    assert sum("&lt;b&gt;" in thing._repr_html_() for thing in shown.values()) == 7
