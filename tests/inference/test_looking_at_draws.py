"""Draws that people look at: pictures, and a file that has all that can be read off them."""

import dataclasses
import importlib.util
import sys
from typing import NamedTuple

import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from tests.inference.spending import of_spending, spending

pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")


# Files.


@pytest.fixture
def loaded(certified, tmp_path):
    certified.save(tmp_path / "draws.npz")
    return ib.load(tmp_path / "draws.npz")


def test_draws_come_back_with_all_that_can_be_read_off_them(certified, loaded):
    for name, x in certified.variables().items():
        np.testing.assert_array_equal(loaded.variables()[name], x)
    assert sorted(loaded.variables()) == ["rate", "spend"]
    assert str(loaded.summary()) == str(certified.summary())
    assert loaded.stats.keys() == certified.stats.keys()
    for name in ("num_steps", "burn_in", "thin", "seconds", "num_chains", "num_draws"):
        assert getattr(loaded, name) == getattr(certified, name)
    np.testing.assert_array_equal(loaded.phi["rate"], certified.phi["rate"])
    assert loaded.warnings() == certified.warnings()
    assert "leimkuhler_matthews at two step sizes" in repr(loaded)


def test_the_certificate_comes_back(certified, loaded):
    assert type(loaded.certificate) is ib.Certificate
    for field in dataclasses.fields(ib.Certificate):
        one, two = getattr(certified.certificate, field.name), getattr(loaded.certificate, field.name)
        if isinstance(one, dict):
            assert one.keys() == two.keys()
            assert all(np.array_equal(one[name], two[name]) for name in one), field.name
        else:
            assert one == two, field.name
    assert str(loaded.certificate) == str(certified.certificate)


def test_loaded_draws_predict_and_are_saved_again_and_leave_one_out_with_their_posterior(loaded, tmp_path):
    assert loaded.predict(lambda theta, x: theta["rate"] * x, np.ones(3), progress=False).shape[2:] == (3,)
    loaded.save(tmp_path / "again.npz")
    with pytest.raises(ValueError, match=r"does not hold their posterior: give it, as in ib.load\(path, posterior\)"):
        loaded.loo(progress=False)
    again = ib.load(tmp_path / "again.npz", spending())
    assert again.variables().keys() == {"rate", "spend"}
    assert np.isfinite(again.loo(progress=False).elpd)
    with pytest.raises(ValueError, match="does not hold the kernel that made them: there is no 'space'"):
        again.log_theta()


def test_loaded_draws_go_to_arviz(loaded):
    pytest.importorskip("arviz_base")
    assert set(loaded.to_arviz().posterior.data_vars) == {"rate", "spend"}


class Layer(NamedTuple):
    weight: dist.Distribution
    bias: dist.Distribution


def test_trees_come_back_as_dicts_lists_and_tuples(tmp_path):
    layer = Layer(dist.Normal(0.0, 1.0).expand([2]), dist.Gamma(2.0, 1.0))
    posterior = ib.Posterior({"layers": [layer], "pair": (dist.Normal(0.0, 1.0), dist.Beta(2.0, 2.0))})
    draws = ib.sample(ib.sgld(posterior), 0.05, 120, num_chains=2, progress=False)
    draws.save(tmp_path / "d")
    again = ib.load(tmp_path / "d")
    np.testing.assert_array_equal(again.theta["layers"][0]["weight"], draws.theta["layers"][0].weight)
    assert type(again.theta["pair"]) is tuple
    assert again.variables().keys() == draws.variables().keys()
    assert all(again.summary()[row["variable"]] == row for row in draws.summary().rows)
    assert again.certificate is None


def test_a_file_of_another_kind_or_damaged_says_so(certified, tmp_path):
    with pytest.raises(FileNotFoundError):
        ib.load(tmp_path / "none")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    (tmp_path / "text").write_text("rate 0.5")
    certified.save(tmp_path / "half")
    whole = (tmp_path / "half").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    np.savez(tmp_path / "code.npz", words=np.array([{"a": 1}], dtype=object))
    for name in ("other.npz", "text", "half", "code.npz"):
        with pytest.raises(ValueError, match="cannot be read as draws that were saved"):
            ib.load(tmp_path / name)


# Leaving one out.


def test_rows_of_other_data_are_not_left_out():
    draws, posterior = of_spending(error=0.2), spending()
    assert np.isfinite(draws.loo(progress=False).elpd)
    before, posterior.data = posterior.data, 2 * posterior.data
    with pytest.raises(ValueError, match="have been given anew since these draws were made"):
        draws.loo(progress=False)
    if importlib.util.find_spec("arviz_base"):
        assert "observed_data" not in draws.to_arviz().children
        with pytest.raises(ValueError, match="have been given anew"):
            draws.to_arviz(log_likelihood=True)
    posterior.data = before


# Pictures.


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib")


def titles(figure):
    return [axis.get_title(loc="left") for axis in figure.axes]


def test_a_picture_has_traces_ranks_marginals_and_the_course_of_the_error(certified, matplotlib, tmp_path):
    figure = certified.plot()
    assert len(figure.axes) == 2 * 3 + 1
    assert titles(figure)[:3] == ["trace", "ranks within all the chains", "marginal"]
    assert [axis.get_ylabel() for axis in figure.axes[:6:3]] == ["rate", "spend"]
    assert len(figure.axes[0].lines) == certified.num_chains
    legend = {text.get_text() for text in figure.axes[2].get_legend().get_texts()}
    assert {"mean", "its error, twice"} <= legend
    course = figure.axes[-1]
    np.testing.assert_allclose(course.lines[0].get_ydata()[-1], certified.certificate.reached)
    assert course.get_xlabel() == "seconds"
    figure.savefig(tmp_path / "draws.png")
    assert (tmp_path / "draws.png").stat().st_size > 10_000


def test_the_course_is_that_of_the_run(certified):
    seconds, draws, reached = zip(*certified.certificate.course, strict=True)
    assert list(seconds) == sorted(seconds)
    assert draws[-1] == certified.num_draws
    assert reached[-1] == certified.certificate.reached


def test_a_notebook_shows_the_picture(matplotlib):
    from IPython.core.formatters import DisplayFormatter

    draws = ib.sample(ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)})), 0.1, 99, progress=False)
    shown, _ = DisplayFormatter().format(draws.plot())
    assert shown["image/png"].startswith(b"\x89PNG")


def test_bounds_that_are_near_are_in_the_picture(matplotlib):
    posterior = ib.Posterior({"chance": dist.Beta(0.5, 0.5), "far": dist.Gamma(400.0, 1.0)})
    draws = ib.sample(ib.sgld(posterior), 0.01, 400, num_chains=2, progress=False)
    near, far = (draws.plot(name).axes[2].get_legend() for name in ("chance", "far"))
    assert "bound" in {text.get_text() for text in near.get_texts()}
    assert far is None
    assert len(draws.plot("chance").axes) == 3  # no certificate, no course


def test_many_numbers_are_cut_and_said_to_be(matplotlib):
    posterior = ib.Posterior({"x": dist.Normal(0.0, 1.0).expand([20])})
    draws = ib.sample(ib.sgld(posterior), 0.1, 50, num_chains=2, progress=False)
    figure = draws.plot(most=3)
    assert len(figure.axes) == 9
    assert figure.get_suptitle() == "3 of 20 numbers"


def test_what_cannot_be_plotted_is_refused(certified, matplotlib, monkeypatch):
    with pytest.raises(ValueError, match=r"There is no variable 'rat'. Did you mean 'rate'\?"):
        certified.plot("rat")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "inbounds\[plot\]"'):
        certified.plot()
