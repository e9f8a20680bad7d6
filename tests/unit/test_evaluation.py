"""Numbers of an evaluation are those of scikit-learn, or of their plain definition, however rows are cut."""

import json
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.cli import main, rendering
from dcpred.cli.rendering import shown
from dcpred.evaluation.evaluate import evaluate
from dcpred.evaluation.figures import ClassFigures, classes_of
from dcpred.execution.workers import InlineWorkers
from dcpred.reports.evaluation_page import evaluation_facts
from dcpred.reports.report import report
from dcpred_tasks.artifacts.model_artifact import open_artifact, write_model
from dcpred_tasks.errors import DataError, Failure, IncompleteError
from dcpred_tasks.evaluation import measures
from dcpred_tasks.evaluation.counts import LARGEST, CountedValues, ExactSums, as_float, quantiles
from dcpred_tasks.evaluation.measures import (
    BINS,
    POINTS,
    ClassMeasures,
    Measures,
    ProbabilityMeasures,
    ValueMeasures,
    curves,
)
from dcpred_tasks.evaluation.named_scores import MEAN_COST, PINBALL, SCORERS
from dcpred_tasks.model import compact_model
from dcpred_tasks.model.class_codes import class_codes, class_positions
from dcpred_tasks.model.compact_model import Model, class_numbers
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.storage.addressed_arrays import open_array
from support.data import make_group
from support.models import random_model, random_rows
from support.pools import inline

SINGLE = st.floats(width=32, allow_nan=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


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
    limits = np.finfo(np.float64).min, np.finfo(np.float64).max
    bounded = np.clip(values.astype(np.float64), *limits)
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
    if found.shift < 52:
        off = np.abs(again - np.sort(values))
        assert (off <= found.resolution * np.maximum(np.abs(np.sort(values)), 2.0**-1022)).all()


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
    monkeypatch.setattr(measures, "COUNTED_SCORES", 600)
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
        monkeypatch.setattr(measures, name, 4)
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
    one_hot = np.eye(n_classes)[target]
    brier = ((stated.astype(float) - one_hot) ** 2).sum(axis=1).mean() / (2 if n_classes == 2 else 1)
    assert told["brier_score"] == pytest.approx(brier)
    assert ("thresholds" in told) == (n_classes == 2)
    for one in told.get("thresholds", ()):
        flagged = stated[:, 1] >= np.float32(one["threshold"])
        assert one["rows"] == flagged.sum()
        assert one["precision"] == pytest.approx(target[flagged].mean())
        assert one["recall"] == pytest.approx(target[flagged].sum() / target.sum())
        assert one["gain"] == pytest.approx(target[flagged].mean() / target.mean())
    if n_classes == 2:
        assert [one["rows"] for one in told["thresholds"]] == [1, 2, 3, 6, 12, 30, 60, 120, 300]


def test_the_most_frequent_class_is_named() -> None:
    """Beside the accuracy; the macro F1 is that of scikit-learn."""
    decision, target = scored(300, 3, 0, 1)
    found = Measures(model_of(3))
    found.add(model_of(3), decision, target)
    told = found.as_dict()
    counts = np.bincount(target, minlength=3)
    assert told["most_frequent_class"] == model_of(3).classes[counts.argmax()]
    assert told["most_frequent_share"] == counts.max() / 300
    expected = metrics.f1_score(target, decision.argmax(axis=1), average="macro")
    assert told["f1_macro"] == pytest.approx(expected)


def test_a_model_without_probabilities_is_not_judged_by_them() -> None:
    decision, target = scored(50, 2, 0, 7)
    found = Measures(model_of(2))
    found.add(model_of(2), decision, target)
    assert "log_loss" not in found.as_dict()


def test_a_model_with_probabilities_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def logistic(_: Model, decision: NDArray[np.float32]) -> NDArray[np.float64]:
        second = 1 / (1 + np.exp(-decision[:, 0].astype(float)))
        return np.stack([1 - second, second], axis=1)

    monkeypatch.setattr(measures, "class_probabilities", logistic)
    decision, target = scored(200, 2, 0, 7)
    model = model_of(2)
    found = Measures(model)
    found.add(model, decision, target)
    told = found.as_dict()
    assert told["log_loss"] == pytest.approx(metrics.log_loss(target, logistic(model, decision)))
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
    monkeypatch.setattr(measures, "COUNTED_RESIDUALS", 4)
    model = random_model(0, task="regression")
    found = ValueMeasures(replace(model, bounds=np.empty((model.n_leaves, 0))))
    found.add(np.ones((3, 1)), np.ones(3))
    told = found.as_dict()
    assert (told["rmse"], told["r2"], told["mae"]) == (0, None, 0)
    assert told["residual_histogram"] == {"edges": [0.0, 0.0], "rows": [3]}
    json.dumps(told, allow_nan=False)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(FINITE, st.floats(-1e37, 1e37)),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 99),
)
def test_numbers_of_any_size_are_judged_exactly(rows: list[tuple[float, float]], seed: int) -> None:
    """As fractions, which neither overflow nor round, do it."""
    target, predicted = (np.array(column) for column in zip(*rows, strict=True))
    model = random_model(0, task="regression")
    found = ValueMeasures(replace(model, bounds=np.array([[-1e37, 1e37]] * model.n_leaves)))
    for piece in cut(len(rows), seed):
        found.add(predicted[piece, None], target[piece])
    told, n = found.as_dict(), len(rows)
    exact = [Fraction(t) for t in target.tolist()]
    # Residuals themselves are float64.
    off = [Fraction(r) for r in np.clip(target - predicted, -LARGEST, LARGEST).tolist()]
    squares, spread = sum(r * r for r in off), sum((t - sum(exact) / n) ** 2 for t in exact)
    mean_square = Fraction(told["rmse"]) ** 2
    assert abs(mean_square * n - squares) <= squares / 10**12 + Fraction(2) ** -2140
    assert told["mae"] == pytest.approx(float(sum(map(abs, off)) / n), rel=1e-12, abs=1e-300)
    if max(map(abs, exact)) ** 2 < 10**6 * spread:
        assert told["r2"] == pytest.approx(as_float(1 - squares / spread))
    middle = np.quantile(np.clip(target - predicted, -LARGEST, LARGEST), 0.5, method="inverted_cdf")
    assert told["residual_quantiles"]["0.5"] == middle


@given(st.lists(FINITE, min_size=1, max_size=40), st.integers(0, 99))
def test_sums_do_not_depend_on_the_division(values: list[float], seed: int) -> None:
    """Parts that are one row each are added exactly, in any order."""
    whole, parts = ExactSums(), ExactSums()
    for value in values:
        whole.add(np.array([value]))
    for at in np.random.default_rng(seed).permutation(len(values)):
        part = ExactSums()
        part.add(np.array([values[at]]))
        parts.merge(part)
    assert whole.total == parts.total == sum(map(Fraction, values))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(2, 9))
def test_counts_do_not_depend_on_the_division(seed: int, most: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    values, kinds = rng.normal(size=200) * 10.0 ** rng.integers(-8, 8, 200), rng.integers(0, 3, 200)
    whole, merged = CountedValues(3, most), CountedValues(3, most)
    whole.add(values, kinds)
    pieces = cut(200, seed, parts)
    for i in rng.permutation(len(pieces)):
        part = CountedValues(3, most)
        part.add(values[pieces[i]], kinds[pieces[i]])
        merged.merge(part)
    assert (merged.shift, merged.keys.tolist()) == (whole.shift, whole.keys.tolist())
    np.testing.assert_array_equal(merged.counts, whole.counts)
    assert len(whole.keys) <= most
    if whole.shift:
        finer = CountedValues(3, 200)
        finer.add(values, kinds)
        assert len(np.unique(finer.keys >> np.uint64(whole.shift - 1))) > most, "no wider than they must be"


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


def test_it_is_told_on_80_columns(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "is_terminal", lambda _: True)
    said = command(made / "model", made / "data.zarr")
    assert max(map(len, said.splitlines())) <= 80
    assert "\x1b" not in said
    for word in ("accuracy", "balanced_accuracy", "auc", "<b>", "aaaa…", "two�lines", "predicted as"):
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
    model = model_of(15, tuple(f"class {i}" for i in range(15)))
    found = Measures(model)
    found.add(model, decision, target)
    figures = {"n_samples": 900, "n_bad": 0, **found.as_dict()}
    said = shown(classes_of(figures), figures)
    assert "the 12 of 15 classes with the least recall" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_figure_is_shown_as_its_field_says(monkeypatch: pytest.MonkeyPatch) -> None:
    @result_class
    class More(ClassFigures):
        hits: float = result_field("A share.", unit=Unit.FRACTION, line="hits", headline="share of hits")
        quiet: float = result_field("A number.")

    for module in ("dcpred.evaluation.figures", "dcpred.reports.evaluation_page"):
        monkeypatch.setattr(f"{module}.figures_of", lambda _: More)
    decision, target = scored(90, 3, 0, 7)
    model = model_of(3, ("a", "b", "c"))
    measured = Measures(model)
    measured.add(model, decision, target)
    figures = {"n_samples": 90, "n_bad": 0, **measured.as_dict(), "hits": 0.25, "quiet": 0.5}
    [line] = [line for line in shown(classes_of(figures), figures).splitlines() if line.startswith("hits")]
    assert line.split(maxsplit=1)[1] == "25.00 %"
    assert "quiet" not in shown(classes_of(figures), figures)
    assert dict(evaluation_facts(figures))["share of hits"] == "25.00 %"


def test_numbers_are_told_with_their_residuals(tmp_path: Path) -> None:
    model = random_model(0, task="regression")
    X = random_rows(model, 100, seed=0)
    write_model(tmp_path / "model", model, {}, {})
    y = compact_model.score_rows(model, X)[0][:, 0] + np.arange(100)
    data = make_group(tmp_path / "data.zarr", X, y)
    said = command(tmp_path / "model", data)
    [line] = [line for line in said.splitlines() if line.startswith("residuals")]
    parts = [part.split(" % ") for part in line.split(maxsplit=1)[1].split(", ")]
    assert [share for share, _ in parts] == ["5", "25", "50", "75", "95"]
    assert [round(float(value)) for _, value in parts] == [4, 24, 49, 74, 94]


# -- targets that are none, and other wrong data -------------------------------------------------------------


def labelled(folder: Path, y: NDArray[Any], labels: list[str] | None = None) -> Path:
    """Data of three classes with these targets, beside the model of `made`."""
    X = np.asarray(open_array(f"{folder}/data.zarr/X")[: len(y)])
    X[~np.isfinite(X)] = 0.0
    return make_group(folder / f"{len(list(folder.iterdir()))}.zarr", X, y, labels=labels)


@pytest.mark.parametrize("by", ["evaluate", "report", "train", "tune", "compare", "split"])
def test_no_value_is_made_a_class(made: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside names of classes a target is their position; nothing is cut off, whoever reads it."""
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_: inline())
    y = np.arange(300) % 3.0
    y[211] = 0.7
    data = labelled(made, y, ["a", "b", "c"])
    words = {
        "evaluate": ["evaluate", made / "model", data],
        "report": ["report", made / "model", "--out", made / "r.html", "--data", data],
        "train": ["train", data, made / "m", "--set", "n_leaves=1", "--workers", "1"],
        "tune": ["tune", data, made / "m", "--workers", "1"],
        "compare": ["compare", data, "--out", made / "c"],
        "split": ["split", data],
    }[by]
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 3, result.output
    said = " ".join(result.stderr.split())
    assert "the value 0.7 in row 211, and its attribute `labels` names only the classes 0 to 2" in said


@pytest.mark.parametrize("values", [[0, 0.7], [0, -1], [0, 3], [0.0, -0.5], [1, 2**64 - 1]])
def test_values_that_are_no_position_of_a_name(values: list[float]) -> None:
    given_values = np.array(values, np.uint64 if values[1] > 9 else None)
    with pytest.raises(DataError, match=r"it has the value .* in row 12, and .* the classes 0 to 2"):
        class_codes(given_values, 3, "y", 11)
    with pytest.raises(DataError, match="in row 7,"):
        class_codes(given_values, 3, "y", np.array([3, 7]))
    assert class_codes(np.array([2.0, -0.0, True]), 3, "y").tolist() == [2, 0, 1]


def test_classes_are_compared_exactly() -> None:
    """Large whole numbers that differ in their last digit are two classes; 1.5 is not 1."""
    large = 2**53
    assert class_positions(np.array([large + 1, large, large + 2]), (large, large + 1)).tolist() == [1, 0, -1]
    assert class_positions(np.array([2**63, 2**63 + 1], np.uint64), (2**63 + 1, -1)).tolist() == [-1, 0]
    assert class_positions(np.array([1.0, 1.5, np.nan]), (1, 2)).tolist() == [0, -1, -1]
    assert class_positions(np.array([44, 1], np.int8), (300, 44)).tolist() == [1, -1]
    assert class_positions(np.array(["1", "a"]), (1, 2)).tolist() == [0, -1]


@pytest.mark.parametrize("task", ["classes", "named classes", "numbers"])
def test_rows_without_a_target(made: Path, tmp_path: Path, task: str) -> None:
    """They are refused with their row, or left out where that is asked for."""
    model: Path = made / "model"
    names = [str(one) for one in open_artifact(model).model().classes]
    y = np.arange(300) % 3.0
    labels: list[str] | None = names
    if task == "numbers":
        model, labels = tmp_path / "numbers", None
        write_model(model, random_model(5, task="regression"), {}, {})
        y *= 1e200
    elif task == "classes":
        model, labels = tmp_path / "numbered", None
        write_model(model, replace(random_model(5, n_outputs=3), classes=(0, 1, 2)), {}, {})
    whole = labelled(made, y[:250], labels)
    y[[17, 299]] = np.nan
    y[250:] = np.nan
    data = labelled(made, y, labels)
    said = command(model, data, code=3)
    assert "row 17 of" in " ".join(said.split())
    assert "Traceback" not in said
    found = json.loads(command(model, data, "--drop-unlabelled", "--json"))
    assert (found["n_samples"], found["n_unlabelled"]) == (249, 51)
    plain = json.loads(command(model, whole, "--json"))
    assert plain["n_samples"] == 250
    assert "51 more without a target" in command(model, data, "--drop-unlabelled")
    empty = labelled(made, np.full(300, np.nan), labels)
    assert "none of its 300 rows" in command(model, empty, "--drop-unlabelled", code=3)


@pytest.mark.parametrize("size", [1e200, 1.7e308, 1e-200])
def test_finite_targets_of_any_size(tmp_path: Path, size: float) -> None:
    """A page is drawn of them, too."""
    model = random_model(0, task="regression")
    X = random_rows(model, 100, seed=0)
    write_model(tmp_path / "model", model, {}, {})
    y = np.where(np.arange(100) % 2, size, -size)
    data = make_group(tmp_path / "data.zarr", X, y)
    found = json.loads(command(tmp_path / "model", data, "--json"))
    if size > 1:
        assert found["rmse"] == pytest.approx(size)
        assert found["mae"] == pytest.approx(size)
        assert found["r2"] == pytest.approx(0.0, abs=1e-12)
        assert found["residual_quantiles"]["0.75"] == pytest.approx(size)
        assert found["leaves"]["error"] == pytest.approx([size] * len(found["leaves"]["error"]))
    (tmp_path / "e.json").write_text(json.dumps(found))
    assert "Residuals" in report(tmp_path / "e.json").html


def test_figures_beyond_float64_are_named(tmp_path: Path) -> None:
    """R² of predictions that are off by far more than targets differ."""
    model = random_model(0, task="regression")
    X = random_rows(model, 100, seed=0)
    write_model(tmp_path / "model", model, {}, {})
    y = np.where(np.arange(100) % 2, 1e-200, -1e-200)
    data = make_group(tmp_path / "data.zarr", X, y)
    result = CliRunner().invoke(main, ["evaluate", str(tmp_path / "model"), str(data), "--no-cost", "--json"])
    assert json.loads(result.stdout)["r2"] is None
    (infinite,) = [one for one in json.loads(result.stdout)["remarks"] if one["code"] == "infinite-figure"]
    assert infinite["what"].startswith("r2 of")
    assert "larger in size than any float64" in infinite["what"]


def test_other_wrong_data_is_one_sentence(made: Path) -> None:
    names = [str(one) for one in open_artifact(made / "model").model().classes]
    one = CliRunner().invoke(
        main, ["evaluate", str(made / "model"), str(labelled(made, np.ones(50, int), names)), "--no-cost"]
    )
    assert one.exit_code == 0
    assert "there is no AUC; evaluate rows of all classes" in one.stdout
    unseen = labelled(made, np.arange(50) % 4, [*names, "new"])
    assert "row 3 of" in command(made / "model", unseen, code=3)
    empty = make_group(made / "empty.zarr", np.zeros((0, 3)), np.zeros(0, int), labels=names)
    assert "it has no rows. Pass data with rows" in " ".join(command(made / "model", empty, code=3).split())
    numbers = made / "numbers"
    write_model(numbers, random_model(5, task="regression"), {}, {})
    assert "named in its attribute `labels`" in " ".join(
        command(numbers, labelled(made, np.arange(50) % 3, names), code=3).split()
    )


# -- blocks --------------------------------------------------------------------------------------------------


class Shuffled(InlineWorkers):
    """Results come in another order, as from several workers."""

    def each(self, body: Any, tasks: Any) -> Any:
        yield from reversed(list(super().each(body, tasks)))


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_the_order_of_blocks_changes_no_bit(
    tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does an order in which every value has its own bin no more."""
    for name in ("COUNTED_SCORES", "COUNTED_RESIDUALS"):
        monkeypatch.setattr(measures, name, 50)
    monkeypatch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", 10)
    model = random_model(5, n_outputs=3) if task == "classes" else random_model(5, task="regression")
    X = random_rows(model, 400, seed=1)
    write_model(tmp_path / "model", model, {}, {})
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    if task == "numbers":
        y = rng.normal(size=400) * 10.0 ** rng.integers(-9, 9, 400)
    data = make_group(tmp_path / "data.zarr", X, y, chunk_rows=10)
    asked = (tmp_path / "model", data)
    here = evaluate(*asked, cost=False)
    assert (here["auc_resolution"] if task == "classes" else here["residual_resolution"]) > 0
    assert evaluate(*asked, client=lambda: nullcontext(Shuffled()), cost=False) == here


def test_a_failed_block_ends_an_evaluation(made: Path) -> None:
    class Deadly(InlineWorkers):
        def each(self, body: Any, tasks: Any) -> Any:
            yield 0, Failure(MemoryError("none"), 3)

    asked = (made / "model", made / "data.zarr")
    with pytest.raises(
        IncompleteError, match=r"Cannot evaluate rows 0 to \d+: 3 workers died .*\. Start workers"
    ):
        evaluate(*asked, client=lambda: nullcontext(Deadly()), cost=False)


@pytest.mark.parametrize("task", SCORERS)
def test_a_metric_by_name_is_that_of_scikit_learn(task: str, tmp_path: Path) -> None:
    """From counts of blocks, as the scorer computes it from all rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2))
    if task == "classification":
        y = (X[:, 0] + rng.normal(size=240) > 0.5).astype(int)
        model: Any = DCPredClassifier(n_leaves=1, landmarks=4, random_state=0).fit(X, y)
    else:
        y = np.exp(0.3 * X[:, 0] + 0.1 * rng.normal(size=240)) + 3
        model = DCPredRegressor(n_leaves=1, landmarks=4, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    data = make_group(tmp_path / "data.zarr", X, y, chunk_rows=50)
    for name in SCORERS[task]:
        named = f"{name}=20" if name == MEAN_COST else f"{name}=0.9" if name == PINBALL else name
        words = ["evaluate", str(tmp_path / "model"), str(data), "--no-cost", "--json", "--metric", named]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        predicted = model.predict(X)
        if name == MEAN_COST:
            theirs = -np.mean(20 * ((y == 1) & (predicted == 0)) + ((y == 0) & (predicted == 1)))
        elif name == PINBALL:
            theirs = -metrics.mean_pinball_loss(y, predicted, alpha=0.9)
        else:
            theirs = metrics.get_scorer(name)(model, X, y)
        assert (told["metric"], told["score"]) == (named, pytest.approx(theirs, rel=1e-5)), name
    result = CliRunner().invoke(main, [*words[:4], "--metric", "auc"])
    assert result.exit_code != 0
    near = " (did you mean 'roc_auc'?)" if task == "classification" else ""
    assert f"for {task}{near}. Use one of" in result.stderr
    assert name.partition("=")[0] in CliRunner().invoke(main, [*words[:4], "--metric", named]).stdout
