"""Missing values: what stands for them, which features get an indicator, and models, reports and estimators
that know them.
"""

import json
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.cli.main import main
from dcpred.training.column_report import describe_gaps, gaps_in_words
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.errors import DataError, ModelFormatError, SettingsError
from dcpred_tasks.model.compact_model import Model, Reference, score_rows
from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.one_hot import Coding, coded_columns
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.scoring import scorer
from dcpred_tasks.scoring.drift import drift, gap_shifts
from dcpred_tasks.training.categories import numbered, with_codes
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.partition import choose_columns, middle_values
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows

N = 900
NAN = np.nan


def chosen(X: NDArray[Any], y: NDArray[Any], **values: Any) -> Coding | None:
    settings = make_settings({"scaling": "learned", **values})
    survey = survey_rows(X, y, None, 0, settings.task, settings.missing)
    return choose_columns(X, np.arange(len(X)) % 2, np.ones(len(X)), survey, settings)


def trained(X: NDArray[Any], y: NDArray[Any], **values: Any) -> Model:
    few = {"n_leaves": 2, "landmarks": 8, "min_leaf_rows": 5, "calibrate": False}
    settings = make_settings(few | values)
    survey = survey_rows(X, y, None, 0, settings.task, settings.missing)
    classes = tuple(survey.classes.tolist())
    return train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, classes)


@pytest.fixture(name="rows")
def rows_whose_gaps_tell(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Gaps of feature 0 are those of one class, mostly; those of feature 1 tell nothing; feature 2 has none,
    and feature 3 nothing else.
    """
    X = rng.normal([0, 5, -3, 0], size=(N, 4))
    y = (X[:, 2] + 3 + rng.normal(size=N) > 0).astype(np.int64)
    X[(rng.random(N) < 0.9) & (y == 1) & (rng.random(N) < 0.6), 0] = NAN
    X[rng.random(N) < 0.3, 1] = NAN
    X[:, 3] = NAN
    return X, y


# -- what stands for a gap -----------------------------------------------------------------------------------


def test_the_mean_of_what_is_there_stands_for_a_gap(rows: Any) -> None:
    X, y = rows
    weight = np.random.default_rng(0).uniform(0.5, 2, N)
    survey = survey_rows(X, y, weight, 0, "classification")
    found = middle_values(X, weight, survey)
    for feature in range(3):
        there = ~np.isnan(X[:, feature])
        assert found[feature] == pytest.approx(np.average(X[there, feature], weights=weight[there]))
    assert found[3] == 0
    assert middle_values(np.asfortranarray(X), weight, survey).tobytes() == found.tobytes()


def test_huge_values_and_constants_have_a_mean() -> None:
    X = np.array([[1.7e308, 0.1, NAN], [1.6e308, 0.1, 2], [NAN, NAN, NAN], [1.7e308, 0.1, 4]])
    survey = survey_rows(X, np.array([0, 1, 0, 1]), None, 0, "classification")
    found = middle_values(X, np.ones(4), survey)
    assert found[0] == pytest.approx(1.7e308 - 0.1e308 / 3)
    assert found[1:].tolist() == [0.1, 3]
    # A sample in which a feature has no value
    assert middle_values(X[[0, 2]], np.ones(2), survey)[2] == 3


def test_the_most_frequent_code_stands_for_a_gap(rng: np.random.Generator) -> None:
    X = np.column_stack([rng.choice([2.0, 5, 9, NAN], N, p=[0.2, 0.4, 0.1, 0.3]), rng.normal(size=N)])
    coding = chosen(X, rng.integers(0, 2, N), categorical="0", missing="indicate")
    assert coding is not None
    assert coding.gap is not None
    assert coding.codes(0) == [2, 9]
    assert coding.gap[0] == 5
    np.testing.assert_array_equal(coding(np.array([[NAN, 1.0], [9, 1]])), [[0, 0, 1, 1], [0, 1, 1, 0]])


# -- the setting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "indicated"),
    [("impute", []), ("indicate", [0, 1]), ("0", [0]), ("1,2,3", [1]), ("auto", [0, 1])],
)
def test_what_has_an_indicator(rows: Any, missing: str, indicated: list[int]) -> None:
    coding = chosen(*rows, missing=missing)
    assert coding is not None
    assert coding.indicated.tolist() == indicated


def test_without_gaps_auto_is_refuse(rows: Any) -> None:
    X, y = rows
    whole = np.nan_to_num(X)
    assert chosen(whole, y) is None
    assert chosen(whole, y, missing="refuse") is None
    coding = chosen(whole, y, missing="impute")
    assert coding is not None
    assert coding.gap is not None
    assert "missing" not in settings_dict(Settings())


@pytest.mark.parametrize(
    ("given", "found"),
    [("b,0", "0-1"), (["b", 2], "1-2"), ('"a"', "0"), ("impute", "impute"), ("1-2", "1-2")],
)
def test_features_of_indicators_are_named(given: object, found: str) -> None:
    settings = numbered(make_settings({"missing": given}), ["a", "b", "c"], 3)
    assert settings.missing == found
    assert numbered(settings, None) == settings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "missing='': it lists no feature. Set it to indicate, to"),
        ("auto,a", "auto concerns all features"),
        ("a,impute", "impute concerns all features"),
        ("3", "feature 3 in .*: the data have features 0 to 2"),
        (
            "imputed",
            r"feature 'imputed' in missing: .* \(did you mean 'impute'\?\)\. Write auto, refuse",
        ),
        ([True, False], "Cannot use a mask of True and False in missing"),
    ],
)
def test_what_the_setting_cannot_be(given: object, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        numbered(make_settings({"missing": given}), ["a", "b", "c"], 3)


def test_columns_of_a_table_are_named_and_features_are_meant() -> None:
    settings = make_settings({"missing": "0,2", "categorical": "auto,2"})
    found = with_codes(settings, [1], {0: 4, 2: 6})
    assert (found.missing, found.categorical) == ("4,6", "auto,1,6")
    with pytest.raises(SettingsError, match=r"feature 1 in .*: it is a column of categories"):
        with_codes(make_settings({"missing": "1"}), [1], {0: 4})


# -- models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", ["standard", "minmax", "learned"])
def test_a_gap_is_scored_as_what_stands_for_it(rows: Any, scaling: str) -> None:
    """To the bit, by the engine and by the definition; infinity beside a gap is a bad value still."""
    X, y = rows
    model = trained(X, y, scaling=scaling, missing="impute")
    coding = model.scaling.coding
    assert coding is not None
    filled = np.where(np.isnan(X), coding.gap, X)
    for score in (score_rows, scorer.score_rows):
        decision, status = score(model, X)
        assert (status == 1).all()
        np.testing.assert_array_equal(decision, score(model, filled)[0])
    X = X[:4].copy()
    X[1, 2], X[2, 2], X[3] = np.inf, NAN, NAN
    for score in (score_rows, scorer.score_rows):
        assert score(model, X)[1].tolist() == [1, 2, 1, 1]
    assert model.scaling.factor[3] == 0


def test_indicators_make_it_right(rows: Any) -> None:
    X, y = rows
    right = {
        missing: float(((scorer.score_rows(trained(X, y, missing=missing), X)[0][:, 0] > 0) == y).mean())
        for missing in ("impute", "auto")
    }
    assert right["auto"] > right["impute"] + 0.03


def test_a_model_that_knows_gaps_on_disk(rows: Any, tmp_path: Path) -> None:
    X, y = rows
    model = trained(X, y)
    write_model(tmp_path / "m", model, settings_dict(make_settings({})), {})
    stored = read_model(tmp_path / "m")
    np.testing.assert_array_equal(stored.scaling.coding.gap, model.scaling.coding.gap)  # type: ignore[union-attr]
    np.testing.assert_array_equal(scorer.score_rows(stored, X)[0], scorer.score_rows(model, X)[0])
    told = json.loads((tmp_path / "m/model.json").read_text())
    assert told["version"] == 5
    assert np.isnan(open_artifact(tmp_path / "m").self_test().rows).any()  # type: ignore[union-attr]
    assert model.reference is not None
    assert model.reference.gaps is not None
    np.testing.assert_allclose(model.reference.gaps, np.isnan(X).mean(axis=0), rtol=1e-6)
    write_model(tmp_path / "whole", trained(np.nan_to_num(X), y), {}, {})
    told = json.loads((tmp_path / "whole/model.json").read_text())
    assert told["version"] == 2
    assert not {"gap", "source", "feature_gaps"} & set(told["model"]["arrays"])


@pytest.mark.parametrize(
    "wrong", [np.array([0.0, 0.0]), np.array([0, 0, np.inf, 0]), np.array([0, NAN, 0, 0])]
)
def test_values_of_gaps_that_are_none_are_refused(rows: Any, tmp_path: Path, wrong: NDArray[Any]) -> None:
    model = trained(*rows, missing="impute")
    write_model(tmp_path / "m", model, {}, {})
    coding = model.scaling.coding
    assert coding is not None
    with pytest.raises(ValueError, match="indicators or values of gaps"):
        Coding(coding.source, coding.code, wrong)
    array = tmp_path / "m/arrays.zarr/gap"
    for chunk in (file for file in array.rglob("*") if file.is_file() and file.name != "zarr.json"):
        chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    with pytest.raises(ModelFormatError, match=r"gap|arrays cannot be read"):
        read_model(tmp_path / "m")


def test_an_indicator_is_of_a_feature_and_after_all_others() -> None:
    gap = np.zeros(2)
    for source, code in (([0, 1, 2], [NAN, NAN, np.inf]), ([0, 0, 1], [NAN, np.inf, NAN])):
        with pytest.raises(ValueError, match=r"indicators or values|columns are not"):
            Coding(np.array(source), np.array(code), gap)
    with pytest.raises(ValueError, match="indicators or values of gaps"):
        coded_columns(1, {0: np.array([3, 4])}, np.array([3.0]))


# -- what is told --------------------------------------------------------------------------------------------


def test_a_reference_is_of_values_that_are_there(rows: Any) -> None:
    X, y = rows
    found = feature_reference(trained(X, y).scaling, X)
    np.testing.assert_allclose(found.mean[:3], np.nanmean(X[:, :3], axis=0), atol=1e-5)
    np.testing.assert_allclose(found.sd[:3], np.nanstd(X[:, :3], axis=0), rtol=1e-5)


def test_more_gaps_are_drift() -> None:
    training = Reference(np.zeros(3), np.ones(3), np.array([0.1, 0.0, 1.0]))
    scored = Reference(np.array([0.0, 0, 9]), np.ones(3), np.array([0.9, 0.0, 0.5]))
    shift = 0.8 / np.sqrt(0.09)
    np.testing.assert_allclose(gap_shifts(training, scored)[:2], [shift, 0])
    rows = np.array([1_000, 1_000])
    told = drift(training, scored, rows, rows)
    assert told.large
    most = {one.feature: one for one in told.features.top}
    assert most[0].gap_shift == pytest.approx(shift)
    assert (most[0].gaps, most[0].training_gaps) == (0.9, 0.1)
    assert most[2].shift == 0
    assert not drift(training, training, rows, rows).large
    plain = Reference(np.zeros(3), np.ones(3))
    assert "gap_shift" not in document_of(drift(plain, plain, rows, rows))["features"]["top"][0]


def test_gaps_in_words(rows: Any) -> None:
    X, y = rows
    survey = survey_rows(X, y, None, 0, "classification")
    told = describe_gaps(trained(X, y, missing="0").scaling, survey, ["a", "b", "c", "d"])
    assert told["indicated"] == [0]
    assert told["without_values"] == [3]
    assert gaps_in_words(told) == (
        "3 features have missing values, feature 'd' in 100 % of rows; they become the mean of the feature,"
        " or its most frequent category; feature 'a' has a missing indicator; feature 'd' has no value at all"
        " and is omitted"
    )
    whole = np.nan_to_num(X)
    known = describe_gaps(
        trained(whole, y, missing="impute").scaling, survey_rows(whole, y, None, 0, "classification"), None
    )
    assert (
        gaps_in_words(known)
        == "no training row has a missing value; in a scored one it becomes the mean of its feature"
    )
    assert gaps_in_words(describe_gaps(trained(whole, y).scaling, survey, None)) is None
    assert "features have missing values, feature 3 in 100 %" in str(gaps_in_words({**told, "names": {}}))


def test_inspect_tells_what_gaps_are(rows: Any, tmp_path: Path) -> None:
    write_model(
        tmp_path / "m", trained(*rows), settings_dict(Settings()), {"feature_names": ["a", "b", "c", "d"]}
    )
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "m")])
    assert shown.exit_code == 0, shown.output
    assert "gaps.d" in shown.output
    assert "with an indicator" in shown.output
    found = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(tmp_path / "m")]).stdout)
    assert [one["name"] for one in found["gaps"]["features"]] == ["a", "b", "d"]
    assert [one["indicator"] for one in found["gaps"]["features"]] == [True, True, False]
    assert found["settings"]["missing"] == "auto"


# -- estimators ----------------------------------------------------------------------------------------------


def test_an_estimator_takes_rows_with_gaps(rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows
    model = DCPredClassifier(n_leaves=2, landmarks=8, scaling="learned", random_state=0, verbose=1).fit(X, y)
    assert "3 features have missing values" in capsys.readouterr().err
    assert model.__sklearn_tags__().input_tags.allow_nan
    assert model.score(X, y) > 0.8
    lazy = model.predict(da.from_array(X, chunks=(400, 4))).compute()
    np.testing.assert_array_equal(lazy, model.predict(X))
    # A feature that had no gap has one.
    some = X[:3].copy()
    some[:, 2] = NAN
    assert model.predict(some).shape == (3,)
    some[1, 2] = np.inf
    with pytest.raises(DataError, match=r"Cannot predict row 1 of X"):
        model.predict(some)


@pytest.mark.filterwarnings("ignore:none of the 900 rows has a score")
def test_an_estimator_that_refuses_gaps(rows: Any) -> None:
    X, y = rows
    refusing = DCPredRegressor(n_leaves=1, landmarks=4, missing="refuse")
    assert not refusing.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(DataError, match=r"X: it has nan in row .*missing is refuse.* set missing to auto"):
        refusing.fit(X, y)
    refusing.fit(np.nan_to_num(X), y)
    with pytest.raises(DataError, match="Cannot predict row 0 of X"):
        refusing.predict(X)


def test_a_frame_with_gaps_beside_categories(rows: Any, tmp_path: Path) -> None:
    """A gap among categories is a code of its own; one among numbers is the mean, or has an indicator."""
    X, y = rows
    frame = pd.DataFrame(
        {"kind": np.where(X[:, 1] > 5, "ash", "oak"), "gone": X[:, 0], "there": X[:, 2], "other": X[:, 1]}
    )
    frame.loc[::7, "kind"] = None
    model = DCPredClassifier(n_leaves=1, landmarks=8, missing=["gone"], random_state=0).fit(frame, y)
    coding = model.model_.scaling.coding
    names = model.schema_.features
    assert [names[f] for f in coding.indicated] == ["gone"]
    assert [names[f] for f in coding.features] == ["kind"]
    assert model.score(frame, y) > 0.8
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(dcpred.load_model(tmp_path / "m").predict(frame), model.predict(frame))
