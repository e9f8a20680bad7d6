"""The floor of a search: default settings take the place of what it chose where they are surely better."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dcpred.cli import tuned_rendering
from dcpred.cost.predicted import predict_cost
from dcpred.estimators import DCPredClassifier, DCPredRegressor
from dcpred.reports.report import report as report_of
from dcpred.tuning.floor import Losses, gained
from dcpred.tuning.points import Budget, Point
from dcpred.tuning.trial_trees import TrialTrees
from dcpred.tuning.tune import TuneReport, tune
from dcpred_tasks.artifacts.model_artifact import read_model
from dcpred_tasks.training.settings import make_settings
from dcpred_tasks.training.trial import Verdict
from support.data import make_group
from support.html_pages import check_page
from support.pools import inline
from support.reporters import Recorder

WIDE = Budget(ratio=1e3)


def quadrants(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes by the quadrant of two features of integers, one with a long tail; a third is noise."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(0, 100, n), 30 * rng.standard_t(3, n), rng.normal(0, 5, n)])
    X = np.round(X).astype(np.int16)
    return X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_group(tmp_path_factory.mktemp("floor") / "d.zarr", *quadrants(400, 0), chunk_rows=100)


def finds_little(trials: TrialTrees, *_: Any) -> list[Point]:
    """A search that ends with a model which is nearly constant, and believes in it."""
    settings = replace(trials.start(0), landmarks=8, overlap=1, gamma=1e-6, head_gamma=1e-6, refine_steps=1)
    return [Point(0, settings, trials.cost(0, settings), Verdict(0.01, 0.01, 1e-6))]


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred.tuning.tune.search", finds_little)


def tuned(data: Path, model: Path, **more: Any) -> TuneReport:
    return tune(f"{data}/X", f"{data}/y", model, inline, **more)


def test_surely_better_defaults_are_taken_and_recorded(data: Path, tmp_path: Path, little: None) -> None:
    """On shuttle a search had 88.8 % of rows right, and the default settings 99.9 %."""
    said = Recorder()
    report = tuned(data, tmp_path / "m", budget=WIDE, say=said)
    [taken] = [one for one in report.floor["defaults"] if one["taken"]]
    assert (report.settings["scaling"], report.settings["landmarks"]) == (taken["scaling"], 16)
    assert taken["gain"] == pytest.approx(report.floor["search"]["error"] - taken["error"])
    assert taken["gain"] > taken["gain_error"] > 0
    assert report.chosen["accuracy"] == 1 - taken["error"] > 0.8
    assert report.chosen in report.frontier
    words = (
        f"default settings with scaling={taken['scaling']}: error {100 * taken['error']:.3g} % against"
        f" {100 * report.floor['search']['error']:.3g} % of the search; taken"
    )
    assert words in said.told
    assert words in tuned_rendering.tuned(asdict(report)).replace("\n", " ")
    assert json.loads((tmp_path / "m.tuned.json").read_text())["found"]["floor"] == report.floor
    assert tuned(data, tmp_path / "m", budget=WIDE).floor == report.floor
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures of reports")
    page = check_page(report_of(tmp_path / "m.tuned.json").html)
    assert any(words[1:] in text for texts in page.texts.values() for text in texts)


def test_the_budget_holds_for_defaults(data: Path, tmp_path: Path, little: None) -> None:
    """They get fewer landmarks or products where the budget asks for it, and are left out below that."""
    costs = {one["scaling"]: one for one in tuned(data, tmp_path / "m", budget=WIDE).floor["defaults"]}
    whole = costs["standard"]
    assert whole["products"] == 64
    limit = Budget(ratio=whole["cost_ratio"] - 0.01)
    report = tuned(data, tmp_path / "less", budget=limit)
    fewer = {one["scaling"]: one for one in report.floor["defaults"]}["standard"]
    assert fewer["products"] == 0
    assert fewer["cost_ratio"] <= limit.ratio
    assert predict_cost(read_model(tmp_path / "less")).cost_ratio <= limit.ratio


def test_defaults_beyond_the_budget_are_no_candidates(
    data: Path, tmp_path: Path, little: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.tuning.floor.SIZES", ((5_000, 0),))
    report = tuned(data, tmp_path / "m", budget=Budget(ratio=100.0))
    assert report.floor == {}
    assert report.settings["landmarks"] == 8


@pytest.mark.parametrize("lazy", [False, True])
def test_estimators_without_settings_have_the_floor(little: None, lazy: bool) -> None:
    X, y = quadrants(400, 0)
    given = (da.from_array(X, chunks=200), da.from_array(y, chunks=200)) if lazy else (X, y)
    model = DCPredClassifier(random_state=0).fit(*given)
    assert model.settings_["products"] == 64
    test, right = quadrants(400, 1)
    assert np.mean(np.asarray(model.predict(test)) == right) > 0.8


def test_a_regression_has_the_floor(little: None) -> None:
    X, _ = quadrants(300, 0)
    y = np.abs(X[:, 0] / 100.0)
    model = DCPredRegressor(random_state=0).fit(X, y)
    assert model.settings_["products"] == 64
    assert model.score(X, y) > 0.8


def test_a_good_choice_stays(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that are the default ones are not better than themselves, and not taken."""

    def finds_default(trials: TrialTrees, *_: Any) -> list[Point]:
        settings = make_settings({"scaling": "learned", "n_leaves": 1, "gamma": 1.0})
        tree = next(i for i, tree in enumerate(trials.trees) if tree.start.n_leaves == 1)
        return [Point(tree, settings, trials.cost(tree, settings), Verdict(0.2, 0.2, 1e-4))]

    monkeypatch.setattr("dcpred.tuning.tune.search", finds_default)
    report = tuned(data, tmp_path / "m", budget=WIDE)
    learned = {one["scaling"]: one for one in report.floor["defaults"]}["learned"]
    assert (learned["gain"], learned["taken"]) == (0.0, False)


@pytest.mark.parametrize(("only_own", "only_other", "surely"), [(1, 0, False), (2, 0, True), (8, 5, False)])
def test_a_single_row_does_not_tell_two_models_apart(only_own: int, only_other: int, surely: bool) -> None:
    own, other = np.zeros((2, 500))
    own[:only_own] = other[only_own : only_own + only_other] = 1.0
    gain, uncertain = gained(Losses(own, np.ones(500)), Losses(other, np.ones(500)), False)
    assert gain == pytest.approx((only_own - only_other) / 500)
    assert (gain > uncertain) == surely
