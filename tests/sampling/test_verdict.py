"""What a run says at its end: nothing if it is healthy, and what is wrong, with numbers and a cure, if it is not."""

import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.sampling import verdict
from inbounds.sampling.convergence import convergence
from tests.sampling.test_convergence import autoregression

REAL = {"x": dist.constraints.real}
GAUSS = ib.Posterior({"x": dist.Normal(0.0, 1.0)})


def sections(draws):
    return [note.section for note in draws.notes()]


@pytest.mark.parametrize(
    ("chains", "length", "correlation"), [(1, 3_000, 0.5), (4, 1_000, 0.6), (8, 125, 0.0), (64, 100, 0.72)]
)
def test_a_hundred_healthy_runs_of_twenty_variables_say_nothing_of_their_chains(chains, length, correlation):
    runs, variables = 100, 20  # an ESS of 1,000 each: the plain threshold of 1.01 would speak in up to all of them
    draws = autoregression(np.random.default_rng(5), chains, length, runs * variables, correlation)
    found = convergence(draws)
    alarms = 0
    for run in range(runs):
        own = type(found)(*(x[run * variables : (run + 1) * variables] for x in found))
        alarms += bool(verdict.chains_agree([f"x{i}" for i in range(variables)], own, chains, length))
    assert alarms <= 3  # of a hundred, where one is expected at most


@pytest.mark.parametrize(("shift", "word"), [(0.5, "R-hat is"), (4.0, "THE CHAINS DO NOT AGREE")])
def test_one_chain_of_four_that_lies_elsewhere_is_noted(shift, word):
    draws = autoregression(np.random.default_rng(6), 4, 2_000, 5, 0.3)
    draws[0, :, 3] += shift
    notes = verdict.chains_agree(list("abcde"), convergence(draws), 4, 2_000)
    assert notes[0].section == "r-hat"
    assert word in notes[0].text
    assert "'d'" in notes[0].text
    assert "'a'" not in notes[0].text


def test_halves_that_differ_are_noted_with_their_sign():
    draws = autoregression(np.random.default_rng(7), 4, 4_000, 2, 0.3)
    draws[:, 2_000:, 1] -= 0.4
    (drift,) = [n for n in verdict.chains_agree(["a", "b"], convergence(draws), 4, 4_000) if n.section == "drift"]
    assert "-0.4" in drift.text
    assert "'b'" in drift.text


def test_chains_of_a_mixture_that_never_meet_warn_once_and_can_be_filtered():
    mixture = ib.Posterior(
        log_prior=lambda t: jnp.logaddexp(-((t["x"] - 10) ** 2), -((t["x"] + 10) ** 2)), supports=REAL
    )

    def run():
        either = {"init": lambda key: {"x": 10 * jnp.sign(jax.random.normal(key, ()))}}
        return ib.sample(ib.sgld(mixture), 0.1, 2_000, num_chains=4, progress=False, **either)

    with pytest.warns(ib.UntrustworthyWarning, match="THE CHAINS DO NOT AGREE") as caught:
        draws = run()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert sections(draws)[:2] == ["r-hat", "ess"]
    assert "docs/warnings.md#r-hat" in str(draws.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ib.UntrustworthyWarning)
        run()


def test_an_improper_target_that_drifts_is_noted():
    improper = ib.Posterior(log_prior=lambda t: 0.05 * t["x"], supports=REAL)
    with pytest.warns(ib.UntrustworthyWarning, match="the posterior may be improper"):
        draws = ib.sample(ib.sgld(improper), 0.5, 8_000, num_chains=4, init={"x": 0.0}, progress=False)
    assert draws.theta["x"].mean() > 50
    assert {"ess", "r-hat", "drift"} <= set(sections(draws))


def test_a_chain_that_stands_still_is_noted():
    far = ib.Posterior({"far": dist.Normal(1e6, 1.0), "x": dist.Normal(0.0, 1.0)})
    with pytest.warns(ib.UntrustworthyWarning, match=r"the same number for 'far': they say nothing"):
        draws = ib.sample(ib.sgld(far), 1e-8, 200, init={"far": 1e6, "x": 0.0}, progress=False)
    assert "stands-still" in sections(draws)
    assert verdict.moves(["a", "b"], np.array([False, False])) == []
    at_rest = ib.sample(ib.sgld(far, temperature=0.0), 1e-8, 200, init={"far": 1e6, "x": 0.0}, progress=False)
    assert "stands-still" not in sections(at_rest)


def test_few_effective_draws_of_one_chain_are_noted():
    with pytest.warns(ib.UntrustworthyWarning, match=r"effective sample size is \d+ for 'x' of 3,000 draws"):
        ib.sample(ib.sgld(GAUSS), 1e-3, 3_000, progress=False)


def test_a_short_run_says_that_it_is_not_judged_and_does_not_warn():
    draws = ib.sample(ib.sgld(GAUSS), 1e-3, 99, num_chains=2, progress=False)
    assert sections(draws) == ["too-short"]
    assert "too short to be judged: 99 draws per chain" in str(draws.summary())


def test_runs_of_many_step_sizes_tried_side_by_side_do_not_warn_but_have_their_notes():
    draws = ib.sample(ib.sgld(GAUSS), [1e-4, 1e-3], 500, num_chains=2, on_failure="continue", progress=False)
    assert "ess" in sections(draws)


def test_running_statistics_alone_are_not_judged():
    draws = ib.sample(ib.sgld(GAUSS), 1e-3, 500, collect=ib.collect.mean_and_variance(), progress=False)
    assert sections(draws) == ["not-judged"]


def test_mass_at_a_bound_is_noted_with_its_share():
    posterior = ib.Posterior({"x": dist.Beta(2.0, 2.0), "y": dist.Normal(0.0, 1.0)})
    draws = ib.sample(ib.sgld(posterior), 0.1, 40, num_chains=2, progress=False)
    draws.phi["x"][:, ::4] = 60.0
    (note,) = draws.at_bounds()
    assert "25% for 'x'" in note.text
    below = ib.sample(ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)})), 0.1, 40, progress=False)
    assert below.at_bounds() == []
    below = ib.sample(ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)})), 0.1, 40, progress=False)
    below.phi["x"][:, :10] = -1e3  # before theta is made from it
    assert below.at_bounds()[0].section == "bounds"


@pytest.mark.parametrize(("share", "loud"), [(0.0, None), (0.0099, False), (0.0101, True)])
def test_noise_beyond_correction_is_mentioned_and_warned_of_above_one_percent(share, loud):
    notes = verdict.noise_is_absorbed(share)
    assert [note.loud for note in notes] == ([] if loud is None else [loud])


def test_a_share_that_is_not_zero_is_not_shown_as_zero():
    (note,) = verdict.noise_is_absorbed(1e-5)
    assert "in less than 0.1% of" in note.text


def test_ctrl_c_during_the_judgement_loses_no_draws(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("inbounds.sampling.probe.of_steps", interrupted)
    draws = ib.sample(ib.sgld(GAUSS), 0.1, 2_000, progress=False)
    assert draws.num_draws == 2_000
    assert sections(draws)[0] == "not-judged"


def test_every_note_has_a_section_on_the_page():
    page = (Path(__file__).parents[2] / verdict.PAGE).read_text()
    on_page = set(re.findall(r"^## (\S+)$", page, re.MULTILINE))
    source = "".join(
        (Path(verdict.__file__).parent / name).read_text()
        for name in ("verdict.py", "probe.py", "draws.py", "run.py", "leave_one_out.py")
    )
    assert set(re.findall(r'Note\(\s*"([a-z-]+)"', source)) == on_page


def test_a_healthy_run_says_nothing():
    posterior = ib.Posterior({"rate": dist.Gamma(2.0, 1.0).expand([2]), "mix": dist.Beta(2.0, 2.0)})
    draws = ib.sample(ib.leimkuhler_matthews(posterior), 0.1, 12_000, burn_in=500, num_chains=4, progress=False)
    assert draws.warnings() == []
    assert jax.tree.all(jax.tree.map(lambda x: np.isfinite(x).all(), draws.theta))
