"""Features on a symmetric logarithmic scale: the scale, which features are on it, and models with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcpred import DCPredClassifier, DCPredRegressor, load_model
from dcpred.cli.main import main
from dcpred.cost.predicted import predict_cost
from dcpred.reports.model_page import model_page
from dcpred.training.column_report import describe_log_scale, log_scale_in_words
from dcpred_tasks.artifacts.model_artifact import open_artifact, read_model, write_model
from dcpred_tasks.errors import ModelFormatError, SettingsError
from dcpred_tasks.model.coding import Coding, coded_columns
from dcpred_tasks.model.compact_model import Model, score_rows
from dcpred_tasks.model.importances import importances, known_importances
from dcpred_tasks.model.moments import feature_reference
from dcpred_tasks.model.scaling import BASES, Scaling, fit_scaling
from dcpred_tasks.model.symlog import TOO_LARGE, Symlog, inverse_symlog, symlog
from dcpred_tasks.scoring import scorer
from dcpred_tasks.scoring.self_test import SelfTest
from dcpred_tasks.training.categories import with_codes
from dcpred_tasks.training.division import learn_scaling
from dcpred_tasks.training.gaps import as_chosen
from dcpred_tasks.training.in_memory import train_rows
from dcpred_tasks.training.settings import Settings, make_settings, settings_dict
from dcpred_tasks.training.survey import survey_rows
from support.models import random_model

N = 900
NAN = np.nan
SCALE = Symlog(np.array([2.0, 0]), np.array([0.5, 0]), np.array([1.0, 0]))


def chosen(X: NDArray[Any], y: NDArray[Any], **values: Any) -> list[int] | None:
    """The features on the scale."""
    coding = columns(X, y, **values)
    return None if coding is None or coding.symlog is None else coding.symlog.features


def columns(X: NDArray[Any], y: NDArray[Any], **values: Any) -> Coding | None:
    settings = make_settings({"scaling": "learned", **values})
    survey = survey_rows(X, y, None, 0, settings.task, settings.missing)
    return learn_scaling(X, y, np.ones(len(X)), survey, settings).coding


def trained(X: NDArray[Any], y: NDArray[Any], **values: Any) -> Model:
    settings = make_settings({"n_leaves": 2, "landmarks": 8, "min_leaf_rows": 5, "symlog": "0,2", **values})
    survey = survey_rows(X, y, None, 0, settings.task, settings.missing)
    classes = tuple(survey.classes.tolist())
    return train_rows(X, y, np.ones(len(X)), np.empty(0), survey, settings, classes)


@pytest.fixture(name="rows")
def rows_of_long_tails(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features 0 and 2 are log-normal, and their logarithms tell the class; feature 1 is normal."""
    Z = rng.normal(size=(N, 3))
    y = (np.sin(2 * Z[:, 0]) + Z[:, 1] + np.cos(2 * Z[:, 2]) + 0.2 * rng.normal(size=N) > 0).astype(np.int64)
    return np.column_stack([1_000 * np.exp(3 * Z[:, 0]), Z[:, 1], -np.exp(3 * Z[:, 2])]), y


# -- the scale -----------------------------------------------------------------------------------------------


def test_it_is_linear_to_one_and_then_one_more_for_each_doubling() -> None:
    u = np.array([0.0, 0.25, 1, 2, 3, 5, 7, 2.0**40 - 1])
    expected = [0, 0.25, 1, 1.5, 2, 2.5, 3, 40]
    np.testing.assert_array_equal(symlog(u), expected)
    np.testing.assert_array_equal(symlog(-u), -np.array(expected))
    assert np.signbit(symlog(np.array([-0.0])))[0]


def test_what_is_too_large_for_single_precision_is_infinite() -> None:
    found = symlog(np.array([NAN, np.inf, -np.inf, -1e300, TOO_LARGE, np.nextafter(TOO_LARGE, 0)]))
    np.testing.assert_array_equal(found[:5], [NAN, np.inf, -np.inf, -np.inf, np.inf])
    assert found[5] == pytest.approx(128)


@given(st.lists(st.floats(-3e38, 3e38), min_size=2, max_size=9))
def test_it_keeps_the_order_and_can_be_taken_back(values: list[float]) -> None:
    u = np.sort(np.array(values))
    s = symlog(u)
    assert (np.diff(s) >= 0).all()
    np.testing.assert_allclose(inverse_symlog(s), u, rtol=1e-13 * 130, atol=1e-15)


@pytest.mark.parametrize(
    "arrays",
    [
        ([0.0], [0.0], [0.0]),
        ([NAN], [1.0], [1.0]),
        ([0.0], [np.inf], [1.0]),
        ([0.0], [-1.0], [1.0]),
        ([0.0], [1.0], [-1.0]),
        ([0.0, 0.0], [1.0], [1.0]),
        ([[0.0]], [[1.0]], [[1.0]]),
    ],
)
def test_what_is_no_scale(arrays: Any) -> None:
    with pytest.raises(ValueError, match="logarithmic scale"):
        Symlog(*map(np.array, arrays))


def test_columns_of_a_scale() -> None:
    coding = coded_columns(2, {}, symlog=SCALE)
    assert coding is not None
    X = np.array([[2.0, 5], [4, 6], [8, 7], [-12, 8]], np.float32)
    np.testing.assert_array_equal(coding(X), [[0, 5], [1, 6], [2, 7], [-3, 8]])
    np.testing.assert_array_equal(coding.raw(coding(X)), X)
    low, high = coding.limits(np.array([-12.0, 5]), np.array([8.0, 8]))
    assert (low.tolist(), high.tolist()) == ([-3, 5], [2, 8])
    for name in BASES:
        scaling = fit_scaling(name, X, np.ones(4), X.min(axis=0), X.max(axis=0), coding)
        np.testing.assert_allclose(scaling.raw(scaling.exact(X)), X, atol=1e-12)
        again = Scaling.of(json.loads(json.dumps(scaling.as_lists())))
        np.testing.assert_array_equal(again.exact(X), scaling.exact(X))
        reference = feature_reference(scaling, X)  # Of raw features
        np.testing.assert_allclose(reference.mean, X.mean(axis=0))
        np.testing.assert_allclose(reference.sd, X.std(axis=0))


def test_a_gap_and_a_code_beside_it() -> None:
    coding = coded_columns(3, {1: np.array([4])}, np.array([6.0, 1, 0]), [0], Symlog(*np.eye(3)[[2, 0, 0]]))
    assert coding is not None
    np.testing.assert_array_equal(
        coding(np.array([[NAN, 4, 1], [-7, NAN, 2]])),
        [[np.log2(8) - 0.125 - 0.0625 * 2, 1, 1, 1], [-3, 0, 2, 0]],
    )
    with pytest.raises(ValueError, match="not its own, or are coded"):
        coded_columns(3, {1: np.array([4])}, symlog=Symlog(*np.eye(3)[[2, 1, 1]]))
    with pytest.raises(ValueError, match="not its own, or are coded"):
        coded_columns(3, {}, symlog=SCALE)


# -- which features are on it --------------------------------------------------------------------------------


def test_features_of_long_tails_are_found(rows: Any) -> None:
    X, y = rows
    assert chosen(X, y) == [0, 2]
    assert chosen(X, y, scaling="standard") is None
    assert chosen(X, y, symlog="none") is None
    assert chosen(np.sign(X) * np.log(np.abs(X)), y) is None
    assert chosen(X[:, [1]], y) is None
    assert "symlog" not in settings_dict(Settings())


def test_tails_whose_values_are_what_tells_are_left_alone(rng: np.random.Generator) -> None:
    X = np.exp(3 * rng.normal(size=(N, 3)))
    assert chosen(X, X[:, 1] + X[:, 2], task="regression") is None


def test_numbers_gaps_and_weights(rows: Any, rng: np.random.Generator) -> None:
    X, y = rows
    target = np.log(X[:, 0]) + X[:, 1]
    assert chosen(X, target, task="regression") == [0, 2]
    X[rng.random(X.shape) < 0.1] = NAN
    X = np.column_stack([X, np.full(N, NAN)])
    coding = columns(X, y)
    assert coding is not None
    assert coding.symlog is not None
    assert coding.symlog.features == [0, 2]
    assert np.isfinite(coding(X)).all()
    assert coding.gap is not None
    middle = coding(coding.gap[None])[0]
    for f in (0, 2):  # A gap is the mean on the scale.
        there = ~np.isnan(X[:, f])
        assert middle[f] == pytest.approx(coding(X[there])[:, f].mean(), abs=1e-9)


def test_values_at_the_end_of_double_precision(rows: Any) -> None:
    """A feature whose rate would be infinite stays as it is; a tail too long for single precision is told."""
    X, y = rows
    X[:, 1] = np.repeat([0.0, 1e-320, 2e-320], N // 3)
    assert chosen(X, y, symlog="1,2", scaling="none") == [2]
    X[:, 1] = np.append(np.arange(N - 1), 1e36)
    assert 1 not in (chosen(X, y) or [])
    with pytest.raises(SettingsError, match=r"the feature 1, but it has values more than 1e\+30"):
        chosen(X, y, symlog="1,2", scaling="none")
    for size in (1e300, 1e-300):
        assert chosen(X[:, :1] * size, y, symlog="0", scaling="standard") == [0]


def test_few_rows_copies_and_a_constant_target_decide_nothing(rows: Any) -> None:
    X, y = rows
    assert chosen(X[:20], y[:20]) is None
    assert chosen(np.repeat(X[:30], 30, axis=0), np.repeat(y[:30], 30)) is None
    assert chosen(X, np.zeros(N), task="regression") is None
    noise = [np.random.default_rng(seed).integers(0, 2, N) for seed in range(3)]
    assert [chosen(X, labels) for labels in noise] == [None] * 3  # Neighbours tell nothing on either scale.


@pytest.mark.parametrize("seed", [2, 4])
def test_of_few_rows_a_gain_by_chance_is_not_enough(seed: int) -> None:
    """The loss of neighbours falls by a fifth here, by tails that tell nothing."""
    rng = np.random.default_rng(seed)
    Z, tails = rng.normal(size=(100, 4)), np.exp(2 * rng.normal(size=(100, 4)))
    y = Z[:, 0] + Z[:, 1] * Z[:, 2] + 0.3 * rng.normal(size=100)
    assert chosen(np.hstack([Z, tails]), y, task="regression") is None


def test_named_features_are_on_it(rows: Any) -> None:
    X, y = rows
    assert chosen(X, y, symlog="1", scaling="standard") == [1]
    assert chosen(X, y, symlog="0-2") == [0, 1, 2]
    constant = np.column_stack([X, np.ones(N)])
    assert chosen(constant, y, symlog="1,3") == [1]
    assert chosen(constant, y, symlog="3") is None
    coding = columns(X, y)
    assert coding is not None
    told = as_chosen(Settings(), coding, coding.n_features)
    assert told.symlog == "0,2"
    again = columns(X, y, symlog="0,2")
    assert again is not None
    assert again.symlog is not None
    np.testing.assert_array_equal(again.symlog.rate, coding.symlog.rate)  # type: ignore[union-attr]


def test_the_middle_is_that_of_most_rows() -> None:
    """Of a feature that mostly has one value, the rate is that of the other rows."""
    X = np.repeat([[0.0], [5], [7], [1_000]], [70, 10, 19, 1], axis=0)
    coding = columns(X, np.arange(100) % 2, symlog="0")
    assert coding is not None
    assert coding.symlog is not None
    assert (coding.symlog.centre[0], coding.symlog.rate[0]) == (0, 1 / 7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"symlog": "5"}, r"symlog names the feature 5, but the data have features 0 to 2"),
        ({"symlog": "auto,1"}, r"symlog was set to 'auto,1', but auto stands alone"),
        ({"symlog": " "}, r"symlog was set to ' ', which lists no feature; set it to none, to auto, or to"),
        ({"symlog": ["none"]}, r"symlog was set to a list with 'none' in it, but the data have no feature"),
        ({"symlog": "1", "categorical": "1"}, r"symlog names the feature 1, but its values are codes"),
    ],
)
def test_features_that_cannot_be_on_it(rows: Any, values: dict[str, Any], message: str) -> None:
    X, y = rows
    X[:, 1] = np.arange(N) % 4
    with pytest.raises(SettingsError, match=message):
        columns(X, y, **values)


def test_a_feature_of_a_table_that_is_coded() -> None:
    assert with_codes(Settings(symlog="0,2"), [1], {0: 0, 2: 3}).symlog == "0,3"
    assert with_codes(Settings(), [1], {0: 0}).symlog == "auto"
    with pytest.raises(SettingsError, match=r"symlog names the feature 1, but it is a column of categories"):
        with_codes(Settings(symlog="1"), [1], {0: 0})


# -- models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_model_is_stored_with_its_scale(rows: Any, tmp_path: Path, task: str) -> None:
    X, y = rows
    model = trained(X, y.astype(float) if task == "regression" else y, task=task)
    write_model(tmp_path / "m", model, settings_dict(make_settings({"symlog": "0,2"})), {})
    assert json.loads((tmp_path / "m" / "model.json").read_text())["version"] == 6
    stored = read_model(tmp_path / "m")
    X[0, 0] = 1e300
    for one, other in zip(score_rows(stored, X), score_rows(model, X), strict=True):
        assert one.tobytes() == other.tobytes()
    assert score_rows(stored, X)[1][0] == 2
    decision = scorer.score_rows(stored, X)[0]
    np.testing.assert_allclose(decision, score_rows(model, X)[0], rtol=1e-4, atol=1e-4)
    assert open_artifact(tmp_path / "m").self_test() is not None
    page = str(model_page(str(tmp_path / "m"), None, []))
    assert "Features 0, 2 are on a symmetric logarithmic scale; means and deviations are raw." in page


def test_an_altered_scale_is_refused(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(*rows)
    coding = model.scaling.coding
    assert coding is not None
    monkeypatch.setattr(Symlog, "__post_init__", lambda self: None)
    bad = Symlog(np.zeros(3), np.array([0.0, -1, 0]), np.zeros(3))
    object.__setattr__(coding, "symlog", bad)
    monkeypatch.setattr("dcpred_tasks.artifacts.model_artifact.make_self_test", _no_test)
    write_model(tmp_path / "m", model, {}, {})
    monkeypatch.undo()
    with pytest.raises(ModelFormatError, match=r"is damaged or was altered: .*logarithmic scale"):
        read_model(tmp_path / "m")


def _no_test(model: Model) -> SelfTest:
    return SelfTest(np.empty((0, model.n_features)), np.empty((0, 1)), np.empty(0))


def test_importances_are_those_of_columns(rows: Any) -> None:
    X, y = rows
    model = trained(X, y, n_leaves=1)
    rng = np.random.default_rng(0)
    one, other = (model.scaling.exact(X[rng.permutation(N)]) for _ in range(2))
    squares = ((one - other) ** 2).mean(axis=0)
    np.testing.assert_allclose(importances(model), squares / squares.sum(), atol=0.03)
    np.testing.assert_array_equal(known_importances(model), importances(model))


def test_a_row_costs_more_with_logarithms() -> None:
    for d in (1, 5, 20):
        scale = Symlog(np.zeros(d), np.ones(d), np.ones(d))
        plain = random_model(1, d=d)
        columns_alone = Coding(np.arange(d), np.full(d, NAN), symlog=scale)
        object.__setattr__(plain.scaling, "coding", None)
        before = predict_cost(plain)
        object.__setattr__(plain.scaling, "coding", columns_alone)
        after = predict_cost(plain)
        assert after.convert > before.convert
        assert (after.descend, after.landmarks, after.outputs) == (
            before.descend,
            before.landmarks,
            before.outputs,
        )


def test_an_estimator_finds_them_or_takes_names(rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows
    frame = pd.DataFrame(X, columns=["bytes", "age", "loss"])
    given_ = {"n_leaves": 1, "random_state": 0, "scaling": "learned"}
    found = DCPredClassifier(**given_, verbose=1).fit(frame, y)
    assert found.model_.scaling.coding.symlog.features == [0, 2]
    assert "features 'bytes', 'loss' are on a symmetric logarithmic scale" in capsys.readouterr().err
    none = DCPredClassifier(**given_, symlog="none").fit(frame, y)
    assert none.model_.scaling.coding is None
    assert found.score(frame, y) > none.score(frame, y)
    named = DCPredRegressor(n_leaves=1, random_state=0, symlog=["loss", 0]).fit(frame, y)
    assert named.model_.scaling.coding.symlog.features == [0, 2]
    assert named.settings_["symlog"] == "0,2"
    frame["kind"] = pd.Categorical(np.where(X[:, 1] > 0, "a", "b"))
    beside = DCPredClassifier(n_leaves=1, random_state=0, symlog="loss").fit(
        frame[["kind", "age", "loss"]], y
    )
    assert beside.model_.scaling.coding.symlog.features == [2]
    with pytest.raises(SettingsError, match=r"symlog names the feature 'los', .* \(did you mean 'loss'"):
        DCPredClassifier(symlog="los").fit(frame, y)


def test_a_search_keeps_the_features_that_it_found(rows: Any, tmp_path: Path) -> None:
    found = DCPredClassifier(random_state=0).fit(*rows)
    assert found.settings_["symlog"] == "0,2"
    assert found.model_.scaling.coding.symlog.features == [0, 2]
    found.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(rows[0]), found.predict(rows[0]))


def test_inspect_tells_where_it_is_linear(rows: Any, tmp_path: Path) -> None:
    write_model(tmp_path / "m", trained(*rows), settings_dict(Settings()), {"feature_names": ["a", "b", "c"]})
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "m")])
    assert shown.exit_code == 0, shown.output
    assert "log_scale.a" in shown.output
    assert "linear within" in shown.output
    found = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(tmp_path / "m")]).stdout)
    assert [one["name"] for one in found["log_scale"]] == ["a", "c"]
    assert found["settings"]["symlog"] == "auto"
    alone = describe_log_scale(trained(*rows, symlog="2").scaling, None)
    assert log_scale_in_words(alone) == "feature 2 is on a symmetric logarithmic scale"
