"""What a newcomer meets first: names, keywords, metrics, and settings that a training could not keep."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor, Settings
from dcpred.execution.progress import closing
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.evaluation.named_scores import SCORERS, SCORES, check_score
from dcpred_tasks.training.changed_settings import changed_settings
from dcpred_tasks.training.settings import make_settings


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"income": rng.normal(size=200), "plan": np.tile(["u", "v"], 100)})


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> Any:
    quick = Settings(refine=False)
    return DCPredClassifier(n_leaves=1, landmarks=2, settings=quick).fit(frame, frame["income"] > 0)


def test_tab_completion_lists_the_public_names() -> None:
    assert set(dir(dcpred)) == set(dcpred.__all__)
    assert {"DCPredClassifier", "DCPredRegressor", "Settings"} <= set(dir(dcpred.estimators))


@pytest.mark.parametrize("function", [dcpred.train, dcpred.tune, dcpred.validate])
def test_a_setting_as_a_keyword_is_answered_by_the_call_that_works(function: Any) -> None:
    with pytest.raises(TypeError) as caught:
        function("data.zarr", n_leaves=1)
    assert (
        str(caught.value)
        == f"Cannot call {function.__name__} with n_leaves: pass settings={{'n_leaves': 1}}."
    )
    with pytest.raises(TypeError, match=r"with overlap: pass settings=\{'n_leaves': 2, 'overlap': 3\}"):
        function("data.zarr", settings={"n_leaves": 2}, overlap=3)
    with pytest.raises(
        TypeError, match=r"with 'n_leafs': it has no such parameter. Did you mean 'n_leaves'\?"
    ):
        function("data.zarr", n_leafs=1)


def test_another_keyword_of_any_function_is_named() -> None:
    with pytest.raises(TypeError, match=r"Cannot call score with 'worker'.* Did you mean 'workers'\?"):
        dcpred.score("model", "data.zarr", "scores", worker=2)  # type: ignore[call-arg]
    assert "settings" in inspect.signature(dcpred.train).parameters


@pytest.mark.parametrize(
    ("name", "task", "meant"),
    [
        ("auc", "classification", "roc_auc"),
        ("AUC", "classification", "roc_auc"),
        ("ROC-AUC", "classification", "roc_auc"),
        ("log_loss", "classification", "neg_log_loss"),
        ("logloss", "classification", "neg_log_loss"),
        ("acuracy", "classification", "accuracy"),
        ("rmse", "regression", "neg_root_mean_squared_error"),
        ("MAE", "regression", "neg_mean_absolute_error"),
        ("r2_score", "regression", "r2"),
    ],
)
def test_a_metric_by_the_name_of_another_library_is_suggested(name: str, task: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=rf"did you mean '{meant}'\?"):
        check_score(name, task)
    assert check_score(meant, task) == meant


def test_every_alias_is_a_score() -> None:
    known = {name for names in SCORERS.values() for name in names}
    aliases = [alias for score in SCORES for alias in score.aliases]
    assert len(set(aliases) - known) == len(aliases), "each stands for one score, and is none itself"


def test_infinity_is_reported_with_its_column_alone(model: Any, frame: pd.DataFrame) -> None:
    rows = frame.assign(income=np.where(np.arange(200) == 7, np.inf, frame["income"]))
    for method in (model.predict, model.predict_proba):
        with pytest.raises(
            DataError, match=r"Cannot predict row 7 of X: it holds infinity in column 'income'\."
        ):
            method(rows)
    huge = frame.assign(income=np.where(np.arange(200) == 3, 1e300, frame["income"]))
    with pytest.raises(
        DataError, match=r"row 3 of X: it holds a value too large \(1e\+300\) in column 'income'"
    ):
        model.predict(huge)


def test_groups_by_the_name_of_a_column(frame: pd.DataFrame) -> None:
    with pytest.raises(
        DataError, match=r"groups='plan': it is a text. Pass the group of each row, .* X\['plan'\]"
    ):
        DCPredClassifier(cv="group").fit(frame, frame["income"] > 0, groups="plan")


@pytest.mark.parametrize(
    ("settings", "landmark_at", "words"),
    [
        ({"n_leaves": 1}, [0, 16], []),
        ({}, [0, 16, 32], []),
        ({"n_leaves": 1}, [0, 16, 32], ["2 leaves instead of n_leaves=1", "max_leaf_rows=8,000"]),
        ({"n_leaves": 1, "overlap": 2}, [0, 16, 32], ["max_leaf_rows=8,000 and overlap"]),
        ({"n_leaves": 3}, [0, 16, 32], ["n_leaves=3: the number is rounded down to a power of two"]),
        ({"n_leaves": 4}, [0, 16], ["one leaf instead of n_leaves=4", "min_leaf_rows=30"]),
        (
            {"landmarks": 50},
            [0, 50, 70],
            ["1 of 2 leaves have fewer landmarks than landmarks=50", "smallest 20"],
        ),
        ({"landmarks": 50}, [0, 50, 50], []),  # a constant leaf needs none
    ],
)
def test_settings_that_were_not_kept_are_reported(
    settings: dict[str, Any], landmark_at: list[int], words: list[str]
) -> None:
    found = changed_settings(make_settings(settings), np.array(landmark_at))
    assert bool(found) == bool(words)
    assert all(word in " ".join(map(str, found)) for word in words), found


def test_a_training_and_an_estimator_report_more_leaves(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)).astype(np.float32)
    settings = {"n_leaves": 1, "landmarks": 2, "max_leaf_rows": 100, "refine": False}
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    report = dcpred.train(X, tmp_path / "model", y=y, settings=settings)
    assert report.n_leaves > 1
    (remark,) = report.as_dict()["remarks"]
    assert "instead of n_leaves=1" in remark["what"]
    again = dcpred.train(X, tmp_path / "model", y=y, settings=settings)
    assert again.already_trained
    assert again.as_dict()["remarks"] == (remark,)
    quick = Settings(refine=False)
    regressor = DCPredRegressor(n_leaves=1, landmarks=2, max_leaf_rows=100, settings=quick)
    with pytest.warns(UserWarning, match="instead of n_leaves=1: a leaf of more rows"):
        regressor.fit(X, X[:, 0])


@pytest.mark.parametrize(("n", "unit", "shown"), [(1, "points", "1 point in"), (2, "rows", "2 rows in")])
def test_one_is_singular(n: int, unit: str, shown: str) -> None:
    assert shown in closing("comparing", 0.0, n, unit)
