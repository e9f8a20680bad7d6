"""Numbers of an evaluation are those of scikit-learn, or of their plain definition, however rows are cut."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics

from dcpred.cli import main
from dcpred.cli.evaluation_rendering import evaluated
from dcpred.evaluation import class_measures, measures, value_measures
from dcpred.evaluation.class_measures import ClassMeasures
from dcpred.evaluation.counted_values import CountedValues, quantiles
from dcpred.evaluation.curves import POINTS, curves
from dcpred.evaluation.evaluate import evaluate
from dcpred.evaluation.measures import Measures
from dcpred.evaluation.probabilities import BINS, ProbabilityMeasures
from dcpred.evaluation.value_measures import ValueMeasures
from dcpred_tasks.artifacts.model_artifact import write_model
from dcpred_tasks.errors import DataError
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.compact_model import Model, class_numbers
from support.data import make_group
from support.models import random_model, random_rows

SINGLE = st.floats(width=32, allow_nan=False)


def cut(n: int, seed: int, parts: int = 4) -> list[slice]:
    """Pieces of rows."""
    ends = sorted(np.random.default_rng(seed).integers(0, n + 1, parts - 1).tolist())
    return [slice(a, b) for a, b in zip([0, *ends], [*ends, n], strict=True)]


# -- counted values ------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(SINGLE, st.integers(0, 2)), min_size=1, max_size=60), st.integers(0, 99))
def test_values_are_counted_exactly_while_they_are_few(rows: list[tuple[float, int]], seed: int) -> None:
    values, kinds = (np.array(column) for column in zip(*rows, strict=True))
    found = CountedValues(3, 60)
    for piece in cut(len(rows), seed):
        found.add(values[piece], kinds[piece])
    assert found.resolution == 0.0
    limits = np.finfo(np.float32).min, np.finfo(np.float32).max
    bounded = np.clip(values, *limits)
    expected = np.unique(bounded + 0.0)
    np.testing.assert_array_equal(found.values, expected)
    for kind in range(3):
        own = bounded[kinds == kind]
        np.testing.assert_array_equal(found.counts[:, kind], [(own == value).sum() for value in expected])


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([1.0, 1e-40, 1e30]))
def test_many_values_are_counted_in_bins(seed: int, most: int, scale: float) -> None:
    """Nothing is lost, no value is further from that of its bin than is said, and order stays."""
    rng = np.random.default_rng(seed)
    values = (scale * rng.normal(size=200)).astype(np.float32)
    found = CountedValues(1, most)
    for piece in cut(200, seed):
        found.add(values[piece], np.zeros(len(values[piece]), int))
    assert len(found.keys) <= most
    assert found.counts.sum() == 200
    told = found.values
    assert (np.diff(told) >= 0).all()
    again = np.repeat(told, found.counts[:, 0])
    if found.shift < 23:
        off = np.abs(again - np.sort(values))
        assert (off <= found.resolution * np.maximum(np.abs(np.sort(values)), 2.0**-126)).all()


@given(st.lists(SINGLE, min_size=1, max_size=50), st.lists(st.floats(0.001, 1), min_size=1, max_size=5))
def test_quantiles(values: list[float], shares: list[float]) -> None:
    told, counts = np.unique(np.array(values), return_counts=True)
    plain = np.quantile(values, shares, method="inverted_cdf")
    found = quantiles(told, counts, np.array(shares))
    off = np.searchsorted(told, found) - np.searchsorted(told, plain)
    assert (np.abs(off) <= 1).all()  # NumPy rounds the product of share and number otherwise
    assert quantiles(
        np.array([1.0, 2.0, 3.0]), np.array([1, 2, 1]), np.array([0.25, 0.5, 0.75, 1.0])
    ).tolist() == [
        1.0,
        2.0,
        2.0,
        3.0,
    ]


# -- classes -------------------------------------------------------------------------------------------------


def model_of(n_classes: int, names: tuple[Any, ...] | None = None) -> Model:
    found = random_model(3, n_outputs=1 if n_classes == 2 else n_classes)
    return found if names is None else replace(found, classes=names)


def scored(n: int, n_classes: int, seed: int, places: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Decision values that know something of the classes, with ties where there are few places."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, n_classes, n)
    decision = rng.normal(size=(n, n_classes)) + 1.5 * np.eye(n_classes)[target]
    if n_classes == 2:
        decision = decision[:, 1:] - decision[:, :1]
    return np.round(decision, places).astype(np.float32), target


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("places", [1, 7])
def test_classes_are_judged_as_scikit_learn_does(n_classes: int, places: int) -> None:
    decision, target = scored(700, n_classes, n_classes, places)
    found = ClassMeasures(model_of(n_classes))
    for piece in cut(700, 1):
        found.add(decision[piece], target[piece])
    told, taken = found.as_dict(), class_numbers(decision)
    assert told["accuracy"] == metrics.accuracy_score(target, taken)
    assert told["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(target, taken))
    assert told["confusion_matrix"] == metrics.confusion_matrix(target, taken).tolist()
    recall = metrics.recall_score(target, taken, average=None)
    precision = metrics.precision_score(target, taken, average=None)
    assert [one["recall"] for one in told["classes"]] == pytest.approx(list(recall))
    assert [one["precision"] for one in told["classes"]] == pytest.approx(list(precision))
    columns = (
        [(decision[:, 0], target == 1)]
        if n_classes == 2
        else [(c, target == i) for i, c in enumerate(decision.T)]
    )
    areas = [metrics.roc_auc_score(so, score) for score, so in columns]
    assert told["auc"] == pytest.approx(np.mean(areas), abs=1e-12)
    mean = np.mean([metrics.average_precision_score(so, score) for score, so in columns])
    assert told["average_precision"] == pytest.approx(mean, abs=1e-12)
    assert told["auc_resolution"] == 0.0
    worst = told["confusions"][0]
    assert worst["rows"] == (found.confusion - np.diag(np.diag(found.confusion))).max()  # type: ignore[operator]
    assert found.confusion[worst["class"], worst["taken_for"]] == worst["rows"]  # type: ignore[index]
    drawn = told["curves"][0]
    false, true, _ = metrics.roc_curve(columns[0][1], columns[0][0], drop_intermediate=False)
    if n_classes == 2 and places == 1:
        np.testing.assert_allclose(drawn["roc"]["x"], false, atol=1e-5)
        np.testing.assert_allclose(drawn["roc"]["y"], true, atol=1e-5)
    assert len(drawn["roc"]["x"]) <= POINTS + 1


def test_curves_of_many_thresholds_keep_their_shape() -> None:
    """The area under the points that are kept is that under all."""
    decision, target = scored(20_000, 2, 0, 7)
    counted = CountedValues(2, 2**18)
    counted.add(decision[:, 0], target)
    found = curves(counted)
    assert found is not None
    few = found.as_dict()["roc"]
    assert (few["x"][0], few["y"][0], few["x"][-1], few["y"][-1]) == (0, 0, 1, 1)
    assert np.trapezoid(few["y"], few["x"]) == pytest.approx(found.auc, abs=1e-3)
    assert len(few["x"]) <= POINTS


def test_areas_of_many_rows_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a few hundred bins to the third digit."""
    monkeypatch.setattr(class_measures, "COUNTED", 600)
    decision, target = scored(20_000, 2, 1, 7)
    found = ClassMeasures(model_of(2))
    for piece in cut(20_000, 2, 7):
        found.add(decision[piece], target[piece])
    told = found.as_dict()
    assert 0 < told["auc_resolution"] < 0.1
    assert told["auc"] == pytest.approx(metrics.roc_auc_score(target, decision[:, 0]), abs=1e-3)


def test_classes_without_rows() -> None:
    """They have no recall, no area and no part in the means."""
    decision, target = scored(200, 4, 0, 7)
    known = target < 3
    found = ClassMeasures(model_of(4))
    found.add(decision[known], target[known])
    told = found.as_dict()
    assert (told["classes"][3]["rows"], told["classes"][3]["recall"], told["classes"][3]["auc"]) == (
        0,
        None,
        None,
    )
    assert told["balanced_accuracy"] == pytest.approx(np.mean([c["recall"] for c in told["classes"][:3]]))
    one = ClassMeasures(model_of(2))
    one.add(np.array([[1.0], [2.0]], np.float32), np.array([1, 1]))
    assert (one.as_dict()["auc"], one.as_dict()["curves"], one.as_dict()["classes"][0]["precision"]) == (
        None,
        [],
        None,
    )


def test_many_classes_need_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MATRIX_CLASSES", "CURVE_CLASSES", "PAIR_CLASSES"):
        monkeypatch.setattr(class_measures, name, 4)
    decision, target = scored(100, 5, 0, 7)
    found = ClassMeasures(model_of(5))
    found.add(decision, target)
    told = found.as_dict()
    assert [told[name] for name in ("confusion_matrix", "confusions", "auc", "auc_resolution")] == [None] * 4
    assert told["curves"] == []
    assert len(told["classes"]) == 5


# -- probabilities -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    stated = rng.dirichlet(np.ones(n_classes), 600).astype(np.float32)
    target = np.array([rng.choice(n_classes, p=row / row.sum()) for row in stated.astype(float)])
    stated[0] = np.eye(n_classes)[(target[0] + 1) % n_classes]  # surely something else
    found = ProbabilityMeasures()
    for piece in cut(600, 0):
        found.add(stated[piece], target[piece])
    told = found.as_dict()
    loss = metrics.log_loss(target, stated)
    assert told["log_loss"] == pytest.approx(loss, rel=1e-5)
    p, so = (
        (stated[:, 1], target == 1)
        if n_classes == 2
        else (stated.max(axis=1), stated.argmax(axis=1) == target)
    )
    order = np.argsort(p)
    plain = sum(abs(so[own].sum() - p[own].sum()) for own in np.array_split(order, BINS)) / 600
    assert told["calibration_error"] == pytest.approx(plain, abs=1e-6)
    assert [one["rows"] for one in told["reliability"]] == [40] * BINS
    assert sum(one["rows"] * one["share"] for one in told["reliability"]) == pytest.approx(so.sum())


def test_a_model_without_probabilities_is_not_judged_by_them() -> None:
    decision, target = scored(50, 2, 0, 7)
    found = Measures(model_of(2))
    found.add(decision, target)
    assert "log_loss" not in found.as_dict()


def test_a_model_with_probabilities_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def logistic(_: Model, decision: NDArray[np.float32]) -> NDArray[np.float64]:
        second = 1 / (1 + np.exp(-decision[:, 0].astype(float)))
        return np.stack([1 - second, second], axis=1)

    monkeypatch.setattr(measures, "class_probabilities", logistic)
    decision, target = scored(200, 2, 0, 7)
    found = Measures(model_of(2))
    found.add(decision, target)
    told = found.as_dict()
    assert told["log_loss"] == pytest.approx(metrics.log_loss(target, logistic(found.model, decision)))
    assert {"calibration_error", "reliability"} <= {*told}


# -- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounded", [True, False])
def test_numbers_are_judged_as_scikit_learn_does(bounded: bool) -> None:
    rng = np.random.default_rng(0)
    target = 1e6 + 100 * rng.normal(size=900)
    decision = (target + rng.gamma(2.0, 5.0, 900))[:, None]
    model = random_model(0, task="regression")
    bounds = (
        np.array([[decision.min(), decision.max()]] * model.n_leaves)
        if bounded
        else np.empty((model.n_leaves, 0))
    )
    found = ValueMeasures(replace(model, bounds=bounds))
    for piece in cut(900, 0):
        found.add(decision[piece], target[piece])
    told = found.as_dict()
    predicted = decision[:, 0]
    assert told["rmse"] == pytest.approx(metrics.root_mean_squared_error(target, predicted))
    assert told["r2"] == pytest.approx(metrics.r2_score(target, predicted))
    assert told["mae"] == pytest.approx(metrics.mean_absolute_error(target, predicted))
    residual = target - predicted
    for share, value in told["residual_quantiles"].items():
        assert value == pytest.approx(np.quantile(residual, float(share), method="inverted_cdf"), rel=1e-6)
    assert sum(told["residual_histogram"]["rows"]) == 900
    assert len(told["residual_histogram"]["edges"]) == len(told["residual_histogram"]["rows"]) + 1
    ranges = told["residuals_by_prediction"]
    assert sum(one["rows"] for one in ranges) == 900
    assert len(ranges) > 8 or not bounded
    middles = [one["mean_prediction"] for one in ranges]
    assert middles == sorted(middles)
    assert sum(one["rows"] * one["mean_prediction"] for one in ranges) / 900 == pytest.approx(
        predicted.mean()
    )


def test_residuals_of_a_range_of_predictions_are_its_own() -> None:
    """Small predictions are too small, large ones too large."""
    model = random_model(0, task="regression")
    bounds = np.array([[0.0, 1.0]] * model.n_leaves)
    found = ValueMeasures(replace(model, bounds=bounds))
    predicted = np.linspace(0, 1, 640)
    found.add(predicted[:, None], np.where(predicted < 0.5, predicted - 2, predicted + 3))
    ranges = found.as_dict()["residuals_by_prediction"]
    assert [one["residuals"]["0.5"] for one in ranges] == pytest.approx([-2.0] * 6 + [3.0] * 6)
    assert {one["rows"] for one in ranges} <= {50, 60}


def test_numbers_that_are_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_measures, "COUNTED", 4)
    model = random_model(0, task="regression")
    found = ValueMeasures(replace(model, bounds=np.empty((model.n_leaves, 0))))
    found.add(np.ones((3, 1)), np.ones(3))
    told = found.as_dict()
    assert (told["rmse"], told["r2"], told["mae"]) == (0, None, 0)
    assert told["residual_histogram"] == {"edges": [0.0, 0.0], "rows": [3]}
    json.dumps(told, allow_nan=False)


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A model of three classes with hostile names, and data with bad rows."""
    model = replace(random_model(5, n_outputs=3), classes=("<b>", "a" * 60, "two\nlines\x1b[31m"))
    X = random_rows(model, 300, seed=1).astype(np.float64)
    X[7, 0] = np.nan
    write_model(tmp_path / "model", model, {}, {})
    decision, status = compact_model.score_rows(model, X)
    y = np.where(status == 1, class_numbers(np.nan_to_num(decision)), 0)
    y[::5] = (y[::5] + 1) % 3
    make_group(tmp_path / "data.zarr", X, y, labels=[str(c) for c in model.classes])
    return tmp_path


def command(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["evaluate", *map(str, words), "--no-cost"], prog_name="dcpred")
    assert result.exit_code == code, result.output
    return result.stdout or result.stderr


def test_it_is_told_on_80_columns(made: Path) -> None:
    said = command(made / "model", made / "data.zarr")
    assert max(map(len, said.splitlines())) <= 80
    assert "\x1b" not in said
    for word in ("accuracy", "balanced_accuracy", "auc", "<b>", "aaaa…", "two�lines", "taken for"):
        assert word in said


def test_leaves_are_told(made: Path) -> None:
    told = json.loads(command(made / "model", made / "data.zarr", "--json"))
    leaves = told["leaves"]
    assert sum(leaves["rows"]) == told["n_samples"] - told["n_bad"] == 299
    wrong = sum(n * e for n, e in zip(leaves["rows"], leaves["error"], strict=True))
    assert 1 - wrong / 299 == pytest.approx(told["accuracy"])
    assert {len(column) for column in leaves.values()} == {len(leaves["leaf"])}


def test_many_classes_are_told_by_the_worst() -> None:
    decision, target = scored(900, 15, 0, 7)
    found = Measures(model_of(15, tuple(f"class {i}" for i in range(15))))
    found.add(decision, target)
    said = evaluated({"n_samples": 900, "n_bad": 0, **found.as_dict()})
    assert "the 12 of 15 classes with the least recall" in said
    assert max(map(len, said.splitlines())) <= 80


def test_numbers_are_told_with_their_residuals(tmp_path: Path) -> None:
    model = random_model(0, task="regression")
    X = random_rows(model, 100, seed=0)
    write_model(tmp_path / "model", model, {}, {})
    y = compact_model.score_rows(model, X)[0][:, 0] + np.arange(100)
    data = make_group(tmp_path / "data.zarr", X, y)
    said = command(tmp_path / "model", data)
    assert said.splitlines()[-2].split() == ["5", "%", "25", "%", "50", "%", "75", "%", "95", "%"]
    assert [round(float(word)) for word in said.splitlines()[-1].split()] == [4, 24, 49, 74, 94]
    y[3] = np.nan
    odd = make_group(tmp_path / "odd.zarr", X, y)
    with pytest.raises(DataError, match="row 3 has the target nan, which no prediction can be compared with"):
        evaluate(tmp_path / "model", f"{odd}/X", f"{odd}/y", cost=False)
    text = make_group(tmp_path / "text.zarr", X, np.array(["a"] * 100, dtype=np.dtypes.StringDType()))
    assert "name an array of numbers with --y" in command(tmp_path / "model", text, code=3)
