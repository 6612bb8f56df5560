"""`inbounds nmf`: from a table to predictions, recommendations and a page."""

import csv
import io

import numpy as np
import pytest
from typer.testing import CliRunner

from inbounds import cli
from inbounds.data.generated_ratings import generate_ratings
from inbounds.models import BayesianNMF


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("nmf")
    ratings = generate_ratings(50, 40, 1_200, half_stars=False, seed=1)
    lines = [f"reader{u},{i},{r:g}" for u, i, r in zip(ratings.user, ratings.item, ratings.rating, strict=True)]
    (place / "mine.csv").write_text("who,what,stars\n" + "\n".join(lines) + "\n")
    done = invoke(
        "nmf", "fit", place / "mine.csv", "--user", "who", "--item", "what", "--rating", "stars", "--rank", 2,
        "--iterations", 200, "--batch-size", 300, "--hold-out", 0.2, "--out", place / "run",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (
        "1,200 of 50 users on 40 items): 960 to fit, 120 to follow and scale the intervals, 120 to measure"
        in done.output
    )
    return place


def test_the_page_and_the_model_are_there(folder):
    page = (folder / "run" / "report.html").read_text()
    assert all(title in page for title in ("Error", "Calibration of the intervals", "Factors", "user + item"))
    assert BayesianNMF.load(folder / "run" / "model.npz").model_.rank == 2


def test_calibration_is_measured_on_ratings_that_nothing_was_scaled_to(tmp_path, monkeypatch):
    """The ratings of the page's calibration are none of those that were fitted, and none that the width was scaled to."""
    ratings = generate_ratings(50, 40, 1_200, half_stars=False, seed=1)
    lines = [f"{u},{i},{r:g}" for u, i, r in zip(ratings.user, ratings.item, ratings.rating, strict=True)]
    (tmp_path / "mine.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    used = {}

    def fit(self, X, y=None, *, eval_set=None, wrapped=BayesianNMF.fit):
        used["fitted"], used["scaled"] = X, eval_set
        return wrapped(self, X, y, eval_set=eval_set)

    def interval(self, users, items, level=0.9, wrapped=BayesianNMF.predict_interval):
        used["measured"] = set(zip(users.tolist(), items.tolist(), strict=True))
        return wrapped(self, users, items, level)

    monkeypatch.setattr(BayesianNMF, "fit", fit)
    monkeypatch.setattr(BayesianNMF, "predict_interval", interval)
    done = invoke("nmf", "fit", tmp_path / "mine.csv", "--rank", 2, "--iterations", 20, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    others = [
        {(x.user_ids[u], x.item_ids[i]) for u, i in zip(x.user, x.item, strict=True)}
        for x in (used["fitted"], used["scaled"])
    ]
    assert len(used["measured"]) == 60
    assert all(other.isdisjoint(used["measured"]) for other in others)
    assert sum(map(len, others)) == 1_140


def test_predictions_are_csv_and_unknown_labels_are_flagged(folder):
    (folder / "pairs.csv").write_text("user,item\nreader3,5\nnobody,5\n")
    by_file = invoke("nmf", "predict", folder / "run", folder / "pairs.csv")
    by_name = invoke("nmf", "predict", folder / "run", "reader3:5", "nobody:5")
    assert by_file.output == by_name.output
    rows = list(csv.DictReader(io.StringIO(by_file.output)))
    assert [row["known"] for row in rows] == ["yes", "no"]
    model = BayesianNMF.load(folder / "run" / "model.npz")
    assert float(rows[0]["rating"]) == pytest.approx(float(model.predict("reader3", 5)[0]), abs=1e-4)
    assert all(1 <= float(row["low"]) <= float(row["high"]) <= 5 for row in rows)


def test_recommendations_are_the_models(folder):
    lines = invoke("nmf", "recommend", folder / "run", "reader7", "-n", 3).output.splitlines()
    model = BayesianNMF.load(folder / "run" / "model.npz")
    assert [line.split()[0] for line in lines[1:]] == np.char.mod("%d", model.recommend("reader7", 3).items).tolist()
    assert "prior's choice" in invoke("nmf", "recommend", folder / "run", "nobody").output


def test_mistakes_are_one_line(folder, capsys, monkeypatch):
    for arguments, message in (
        (["nmf", "predict", str(folder), "1:2"], "there is no model at"),
        (["nmf", "predict", str(folder / "run"), "reader3"], "expected USER:ITEM"),
        (["nmf", "fit", str(folder / "none.csv")], "none.csv"),
    ):
        monkeypatch.setattr("sys.argv", ["inbounds", *arguments])
        with pytest.raises(SystemExit):
            cli.main()
        assert message in capsys.readouterr().err


def test_labels_with_commas_are_quoted(tmp_path):
    lines = [f'"Doe, {k % 7}",{k % 5},{k % 4 + 1}' for k in range(35)]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    (tmp_path / "pairs.csv").write_text('users,items\n"Doe, 1",2\n')
    invoke("nmf", "fit", tmp_path / "ratings.csv", "--rank", 2, "--iterations", 200, "--out", tmp_path / "run")
    rows = list(csv.DictReader(io.StringIO(invoke("nmf", "predict", tmp_path / "run", tmp_path / "pairs.csv").output)))
    assert [(row["user"], row["item"], row["known"]) for row in rows] == [("Doe, 1", "2", "yes")]
