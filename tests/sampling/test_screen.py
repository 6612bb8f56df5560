"""One number of thousands that is wrong is found at the end of a run, and little is looked at to find it."""

import dataclasses

import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.sampling import screen, verdict
from tests.sampling.test_convergence import autoregression

CHAINS, LENGTH, NUMBERS = 2, 400, 3_000
PLACE = 1_234


@pytest.fixture(scope="module")
def healthy():
    return np.random.default_rng(0).normal(size=(CHAINS, LENGTH, NUMBERS)).astype(np.float32)


def with_one(healthy, one):
    draws = healthy.copy()
    draws[:, :, PLACE] = one
    return draws


def found_in(draws, num_steps=400):
    """Sections of the notes that name the number, of those that the end of a run would have."""
    looked = screen.look([("x", draws)], num_steps)
    chains, length, _ = looked.draws.shape
    notes = verdict.chains_agree(looked.names, looked.convergence(), chains, length, looked.numbers)
    notes += verdict.moves(looked.names, (looked.draws == looked.draws[:, :1]).all(axis=1).any(axis=0))
    return {note.section for note in notes if f"'x[{PLACE}]'" in note.text}


def moved(one):
    one[:, LENGTH // 2 :] += 0.7
    return one


def one_chain_elsewhere(one):
    one[0] += 1
    return one


def wider(one):
    one[:, LENGTH // 2 :] *= 2
    return one


def in_two_modes(one):
    one[:, : LENGTH // 3] += 10
    return one


def for_a_while_in_the_tail(one):
    one[0, LENGTH // 2 : LENGTH // 2 + LENGTH // 8] -= 5
    return one


def slow(one):
    return autoregression(np.random.default_rng(2), CHAINS, LENGTH, 1, 0.97)[:, :, 0]


def constant(one):
    return np.full_like(one, 0.3)


def constant_in_one_chain(one):
    one[1] = one[1, 0]
    return one


def rounded(one):
    return moved(np.round(moved(one)))


def heavy_tailed(one):
    one = moved(one)
    one[:, ::40] *= 1e6
    return one


@pytest.mark.parametrize(
    ("change", "section"),
    [
        (moved, "drift"), (one_chain_elsewhere, "r-hat"), (wider, "r-hat"), (in_two_modes, "ess"), (for_a_while_in_the_tail, "ess"),
        (slow, "ess"), (constant, "stands-still"), (constant_in_one_chain, "stands-still"), (rounded, "drift"), (heavy_tailed, "drift"),
    ],
)  # fmt: skip
def test_one_number_of_thousands_is_found(healthy, change, section):
    one = np.random.default_rng(1).normal(size=(CHAINS, LENGTH))
    assert section in found_in(with_one(healthy, change(one)))


def test_one_chain_elsewhere_is_found_among_numbers_that_are_slow_but_well():
    draws = autoregression(np.random.default_rng(6), 2, 1_600, 300, 0.75).astype(np.float32)
    draws[:, :, 7] = np.random.default_rng(7).normal(size=(2, 1_600))
    draws[0, :, 7] += 0.3
    assert "x[7]" in screen.look([("x", draws)], 1_600).names


def test_a_shift_of_all_of_many_chains_is_found():
    draws = np.random.default_rng(8).normal(size=(8, 100, 2_000)).astype(np.float32)
    draws[:, 50:, 7] += 0.28
    assert "x[7]" in screen.look([("x", draws)], 100).names


def test_a_shift_is_found_where_no_number_has_a_variance():
    draws = np.random.default_rng(9).standard_cauchy(size=(1, 400, 3_000)).astype(np.float32)
    draws[:, 200:, 7] += 1.5
    assert "x[7]" in screen.look([("x", draws)], 400).names


def test_a_run_whose_numbers_are_all_well_says_nothing(healthy):
    looked = screen.look([("x", healthy)], 400)
    assert verdict.chains_agree(looked.names, looked.convergence(), CHAINS, LENGTH, looked.numbers) == []
    assert not looked.is_all


def test_an_estimate_that_is_small_by_chance_alone_does_not_count():
    """Of ten thousand numbers of 400 independent draws, R-hat's companion estimates an ESS below 100 for one in most runs."""
    draws = np.random.default_rng(4).normal(size=(1, 400, 10_000)).astype(np.float32)
    looked = screen.look([("x", draws)], 20_000)
    by_lags = screen.convergence(looked.draws)
    assert np.fmin(by_lags.ess, by_lags.ess_tail).min() < verdict.LEAST_ESS
    judged = looked.convergence()
    assert np.fmin(judged.ess, judged.ess_tail).min() >= verdict.LEAST_ESS


@pytest.mark.parametrize(
    ("shape", "num_steps"), [((1, 400, 10_000), 400), ((4, 2_000, 50), 2_000), ((1, 100_000, 1), 100_000)]
)
def test_little_is_looked_at_and_that_is_counted_in_numbers(shape, num_steps, monkeypatch):
    glanced = []
    signs = screen._signs
    monkeypatch.setattr(screen, "_signs", lambda draws: glanced.append(draws.size) or signs(draws))
    draws = np.broadcast_to(np.random.default_rng(5).normal(size=shape[:2])[..., None], shape)
    looked = screen.look([("x", draws)], num_steps)
    assert looked.draws.size <= screen.LOOKED + screen.ENOUGH * screen.FEWEST // 2
    assert looked.draws[:, :, 0].size <= screen.ENOUGH
    assert len(looked.names) <= max(screen.MOST + 8, 1)
    assert sum(glanced) <= 2 * max(screen.GLANCED, screen.FEWEST_GLANCED * shape[0] * shape[2])
    assert looked.names == screen.look([("x", draws)], num_steps).names


class OnDisk:
    """An array that counts what is read of it."""

    def __init__(self, array):
        self.array, self.shape, self.read = array, array.shape, 0

    def __getitem__(self, index):
        part = self.array[index]
        self.read += part.size
        return part


def test_numbers_that_a_support_fixes_take_no_room_from_others(healthy):
    """The diagonal of a correlation matrix never moves; a chain that stands still by itself is another thing."""
    draws = with_one(healthy, moved(np.random.default_rng(1).normal(size=(CHAINS, LENGTH))))
    draws[:, :, :200] = 1.0
    draws[1, :, 200] = 1.0
    looked = screen.look([("x", draws)], 400, may_be_fixed=True)
    assert {f"x[{PLACE}]", "x[200]"} <= set(looked.names)
    assert not {f"x[{i}]" for i in range(200)} & set(looked.names)


def test_draws_on_disk_are_read_once(healthy):
    stored = OnDisk(with_one(healthy, moved(np.random.default_rng(1).normal(size=(CHAINS, LENGTH)))))
    looked = screen.look([("x", stored)], 400)
    assert f"x[{PLACE}]" in looked.names
    assert stored.read <= healthy.size
    assert looked.draws.shape[1] == -(-LENGTH // looked.every)


def test_numbers_of_several_variables_keep_their_names(healthy):
    bad = np.linspace(0, 5, LENGTH) + np.zeros((CHAINS, 1))
    table = healthy.reshape(CHAINS, LENGTH, 60, 50).copy()
    table[:, :, 7, 8] = bad
    looked = screen.look([("scalar", bad), ("table", table), ("rest", healthy[:, :, :5])], 400)
    assert {"scalar", "table[7, 8]"} <= set(looked.names)
    place = looked.names.index("table[7, 8]")
    np.testing.assert_array_equal(looked.draws[:, :, place], bad.astype(np.float32)[:, :: looked.every])


def test_the_warning_at_the_end_finds_the_number_and_says_what_was_looked_at(healthy):
    posterior = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([NUMBERS])})
    draws = ib.sample(ib.sgld(posterior), 0.5, LENGTH, num_chains=CHAINS, on_failure="continue", progress=False)
    bad = dataclasses.replace(draws, phi={"x": with_one(healthy, np.linspace(0, 8, LENGTH))})
    notes = {note.section: note.text for note in bad.notes(quick=True)}
    assert f"'x[{PLACE}]'" in notes["r-hat"] + notes["ess"]
    assert f"of {NUMBERS:,} numbers that seemed worst" in notes["looked-at"]
    assert "draws.summary()" in verdict.announcement("sgld", bad.notes(quick=True))
    assert bad._convergence == {}, "nothing was computed of all of them"
