"""Why a row gets what it gets: parts of a decision value and of a distance, beside their definition."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor, explain, load_model
from dcpred.cli import main
from dcpred.cli.explain_command import WIDTH, explained
from dcpred.evaluation.explanation import FEATURES, LANDMARKS, MOST_ROWS, Explanation, explain_rows
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.compact_model import Model, class_numbers, score_rows
from dcpred_tasks.model.kernels import KERNELS
from support.data import make_blobs, make_group
from support.models import SCALINGS, random_model, random_rows
from support.setting_words import classifier_with
from support.sureness import sure

NAMES = ("ash", "oak", "yew")


def total(one: Explanation) -> float:
    """What the parts of a decision value add up to."""
    parts = [part.part for part in one.landmarks]
    return math.fsum([*parts, one.other_landmarks, one.pseudo_landmarks, one.intercept])


def check_sum(model: Model, one: Explanation, decision: np.ndarray) -> None:
    """The parts of a row, largest first, are those of its decision value."""
    assert one.decision is not None
    assert total(one) + one.clipped == one.decision
    number = int(class_numbers(decision[None])[0])
    right = float(decision[number if model.n_outputs > 1 else 0])
    size = sum(abs(part.part) for part in one.landmarks) + abs(one.other_landmarks) + abs(one.intercept)
    off = 1e-12 if model.task == "regression" else 1e-6  # Decision values of classes are single.
    assert abs(one.decision - right) <= off * (size + abs(one.pseudo_landmarks) + abs(right))
    sizes = [abs(part.part) for part in one.landmarks]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == min(LANDMARKS, one.n_landmarks)
    for part in one.landmarks:
        assert one.leaf is not None
        at, beta_at = model.landmark_at[one.leaf], model.beta_at[one.leaf]
        assert 0 <= part.landmark < model.landmark_at[one.leaf + 1] - at
        beta = float(np.asarray(model.beta)[beta_at + part.landmark, number if model.n_outputs > 1 else 0])
        assert part.part == beta * part.kernel


def check_distance(model: Model, one: Explanation, x: np.ndarray) -> None:
    """Shares of features are those of the distance to the landmark whose kernel value is largest."""
    if one.nearest is None:
        assert not one.features
        return
    assert one.leaf is not None
    own = slice(model.landmark_at[one.leaf], model.landmark_at[one.leaf + 1])
    factor = model.leaf_factor[one.leaf] if model.leaf_factor.size else 1.0
    inside = model.scaling.exact(x[None]) * factor
    power = 1 if model.kernel.name == "laplacian" else 2
    gaps = np.abs(inside - model.landmarks[own]) ** power
    values = model.kernel.of_distance(model.kernel.distances(inside, model.landmarks[own]), model.gamma[own])[
        0
    ]
    assert values[one.nearest] == values.max()
    right = np.bincount(model.scaling.source, gaps[one.nearest], model.n_features)
    shares = [part.share for part in one.features]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1 + 1e-12
    assert len(shares) == min(FEATURES, np.count_nonzero(right))
    for part in one.features:
        np.testing.assert_allclose(part.share * right.sum(), right[part.feature], rtol=1e-9)
        assert part.value == (None if np.isnan(x[part.feature]) else x[part.feature])


@example(327, "rbf", "additive coded gaps", 4)  # a map of one feature and two knots
@given(st.integers(0, 10**6), st.sampled_from(KERNELS), st.sampled_from(SCALINGS), st.sampled_from([1, 4]))
def test_parts_are_those_of_the_decision_value(seed: int, kernel: str, scaling: str, n_outputs: int) -> None:
    model = random_model(seed, kernel, scaling=scaling, n_outputs=n_outputs, d=7)
    if seed % 2:
        model = sure(model)
    X = random_rows(model, 6, seed)
    decision, status = score_rows(model, X)
    for i, one in enumerate(explain_rows(model, X, range(6), None, landmarks=True)):
        assert one.row == i
        if status[i] != 1:
            assert one.status != "ok"
            continue
        check_sum(model, one, decision[i])
        check_distance(model, one, X[i])
        assert len(explained([one]).splitlines()) > 2
        assert all(len(line) <= WIDTH for line in explained([one]).splitlines())


@given(st.integers(0, 10**6))
def test_a_number_is_told_with_what_its_bounds_take_away(seed: int) -> None:
    model = random_model(seed, task="regression")
    X = random_rows(model, 20, seed)
    _, status = score_rows(model, X)
    unbounded = explain_rows(sure(model), X, range(20), None, landmarks=True)
    sums = [total(one) for one, code in zip(unbounded, status, strict=True) if code == 1 and one.n_landmarks]
    low, high = np.quantile(sums, [0.3, 0.7]) if sums else (0.0, 1.0)
    model = sure(replace(model, bounds=np.tile([low, high], (model.n_leaves, 1))))
    decision, status = score_rows(model, X)
    found = explain_rows(model, X, range(20), None, landmarks=True)
    clipped = 0
    for one, value, code in zip(found, decision, status, strict=True):
        if code == 1 and one.n_landmarks:
            check_sum(model, one, value)
            assert (one.clipped == 0) == (low <= total(one) <= high)
            clipped += one.clipped != 0
            assert one.predicted == value[0]
    assert clipped or len(set(sums)) < 10


def trained(**more: Any) -> DCPredClassifier:
    data = make_blobs(600, 5, 3, seed=0)
    labels = np.array(NAMES)[data.y]
    own = {} if "leaf_model" in more else {"landmarks": 8}
    return classifier_with(n_leaves=4, random_state=0, **own, **more).fit(data.X, labels)


@pytest.fixture(scope="module")
def classifier() -> DCPredClassifier:
    return trained()


@pytest.fixture(scope="module")
def X() -> np.ndarray:  # noqa: N802 - as estimators call it
    return make_blobs(60, 5, 3, seed=0).X


def test_an_estimator_a_served_model_and_its_path_are_explained_alike(
    classifier: DCPredClassifier, X: np.ndarray, tmp_path: Path
) -> None:
    classifier.save(tmp_path / "model")
    rows = [5, 17, 3]
    found = explain(classifier, X, rows)
    assert (
        found == explain(load_model(tmp_path / "model"), X, rows) == explain(str(tmp_path / "model"), X, rows)
    )
    assert [one.row for one in found] == rows
    assert [one.predicted for one in found] == classifier.predict(X[rows]).tolist()
    np.testing.assert_allclose([one.novelty for one in found], classifier.novelty(X[rows]), atol=1e-5)
    chances = classifier.predict_proba(X[rows])
    for one, chance in zip(found, chances, strict=True):
        assert one.classes[0].name == one.predicted
        told = {part.name: part.probability for part in one.classes}
        np.testing.assert_allclose([told[str(n)] for n in classifier.classes_], chance, atol=1e-5)
    assert explain(classifier, X)[17] == found[1]


def test_of_two_classes_the_decision_value_is_that_of_the_second(X: np.ndarray) -> None:
    data = make_blobs(400, 5, 2, seed=0)
    model = DCPredClassifier(n_leaves=2, random_state=0).fit(data.X, np.array(["no", "yes"])[data.y])
    for one, value in zip(explain(model, X), model.decision_function(X), strict=True):
        assert one.predicted == ("yes" if value > 0 else "no") == one.classes[0].name
        assert {part.name: part.decision is None for part in one.classes} == {"no": True, "yes": False}
        assert sum(part.probability or 0.0 for part in one.classes) == pytest.approx(1)


def test_names_of_columns_are_told(X: np.ndarray) -> None:
    columns = ["height", "width", "a name of many letters, which is cut", "x", "line\nbreak"]
    frame = pd.DataFrame(X, columns=columns)
    model = DCPredRegressor(n_leaves=1, random_state=0).fit(frame, X[:, 0])
    one = explain(model, frame[columns[::-1]], [0], landmarks=True)[0]
    assert {part.name for part in one.features} <= set(columns)
    assert {part.value for part in one.features} <= {float(v) for v in X[0]}
    text = explained([one])
    assert "a name of many le…" in text
    assert "line?break" in text
    assert all(len(line) <= WIDTH for line in text.splitlines())


def test_categories_and_dates_are_told_as_the_table_has_them(X: np.ndarray) -> None:
    days, towns = pd.date_range("2020-01-01", periods=len(X)), np.array(["a", "a", "b", "another town"])
    frame = pd.DataFrame({"town": towns[np.arange(len(X)) % 4], "day": days})
    y = (frame["town"] == "b") * 30.0 + np.arange(len(X)) % 50
    model = DCPredRegressor(n_leaves=1, random_state=0).fit(frame, y)
    one = explain(model, frame, [3], landmarks=True)[0]
    parts = {part.name: part for part in one.features}
    assert parts["town"].said == "another town"
    assert parts["town"].said_of_landmark in {*towns, None}
    assert parts["day"].said == "2020-01-04"
    assert "another town" in explained([one])


def test_a_row_without_a_score_is_told_by_its_status(classifier: DCPredClassifier, X: np.ndarray) -> None:
    bad = X[:3].copy()
    bad[1, 2] = np.nan
    found = explain_rows(classifier.model_, bad, range(3), None, landmarks=True)
    assert [one.status for one in found] == ["ok", "non_finite_feature", "ok"]
    assert found[1] == Explanation(1, "non_finite_feature", 2)
    assert "row 1 has no score (non finite feature 2)" in explained(found)


def test_what_cannot_be_told_is_said_in_a_sentence(X: np.ndarray) -> None:
    said = {
        "its leaf holds another model (exact)": trained(leaf_model="exact"),
        "the polynomial kernel is not a function of a distance": trained(kernel="polynomial"),
        "trained without calibrate=true": trained(calibrate=False),
    }
    for sentence, model in said.items():
        found = [one for one in explain(model, X, landmarks=True) if "constant" not in "".join(one.remarks)]
        assert found
        for one in found:
            assert any(sentence in remark for remark in one.remarks), one.remarks
            assert sentence in " ".join(explained([one]).split())
    other = explain(said["its leaf holds another model (exact)"], X, [0])[0]
    assert (other.decision, other.landmarks) == (other.intercept, [])
    plain = explain(said["trained without calibrate=true"], X, [0])[0]
    assert (plain.novelty, plain.classes[0].probability) == (None, None)


def test_a_constant_leaf_is_told_as_one() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += 30 * y
    found = explain(DCPredClassifier(n_leaves=2, scaling="none", random_state=0).fit(X, y), X, [0])[0]
    assert "constant" in found.remarks[0]
    assert found.decision == found.intercept
    assert found.novelty is not None


def test_a_code_that_has_no_column_is_no_number() -> None:
    """The most frequent value of a coded feature, which is 0 in all of its columns."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.choice(5, 800, p=[0.1, 0.1, 0.6, 0.1, 0.1]), rng.normal(size=800)], axis=1)
    y = np.isin(X[:, 0], (1, 2)).astype(int)
    model = DCPredClassifier(n_leaves=1, categorical=[0], random_state=0).fit(X, y)
    told = [
        part.of_landmark
        for one in explain(model, X, range(200), landmarks=True)
        for part in one.features
        if part.feature == 0
    ]
    assert told
    assert set(told) <= {0.0, 1.0, 3.0, 4.0, None}
    one = explain(model, X, [0], landmarks=True)[0]
    of_none = replace(one, features=[replace(one.features[0], of_landmark=None)])
    assert explained([of_none]).splitlines()[-1].endswith(" other")


def test_rows_that_there_are_not_and_rows_that_are_not_there_yet(
    classifier: DCPredClassifier, X: np.ndarray
) -> None:
    with pytest.raises(DataError, match=r"Cannot explain row 60: X has rows 0 to 59\. Name one"):
        explain(classifier, X, [60])
    assert explain(classifier, X, []) == []
    with pytest.raises(DataError, match=r"Cannot explain 1,020 rows: the maximum is 1,000"):
        explain(classifier, np.tile(X, (17, 1)))
    with pytest.raises(DataError, match=r"Cannot explain X: it is not in memory \(Array\)"):
        explain(classifier, da.from_array(X))
    for rows in (3, [1.5], [True, False], np.array([True] * len(X)), "01", np.array(3)):
        with pytest.raises(DataError, match=r"^Cannot explain row .*: rows are a list of integers"):
            explain(classifier, X, rows)
    assert [one.row for one in explain(classifier, X, np.array([2, 0]))] == [2, 0]
    assert MOST_ROWS == 1_000
    assert dcpred.explain is explain


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, classifier: DCPredClassifier, X: np.ndarray) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    classifier.save(folder / "model")
    bad = X.copy()
    bad[7, 3] = np.inf
    make_group(folder / "data.zarr", bad, chunk_rows=20)
    return folder


def asked(stored: Path, rows: str, *more: str, code: int = 0) -> str:
    result = CliRunner().invoke(
        main, ["explain", str(stored / "model"), str(stored / "data.zarr"), "--rows", rows, *more]
    )
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def test_the_command_tells_what_python_tells(stored: Path, X: np.ndarray) -> None:
    text = asked(stored, "5, 7,55-57", "--landmarks")
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("row ")] == [
        "row 5",
        "row 7 has no score (non finite feature 3)",
        "row 55",
        "row 56",
        "row 57",
    ]
    assert all(len(line) <= WIDTH for line in text.splitlines())
    told = json.loads(asked(stored, "5,7,55-57", "--json", "--landmarks"))["rows"]
    assert [one["row"] for one in told] == [5, 7, 55, 56, 57]
    right = explain(stored / "model", X, [5], landmarks=True)[0]
    assert told[0]["predicted"] == right.predicted
    assert told[0]["landmarks"][0]["part"] == right.landmarks[0].part
    assert told[1]["bad_feature"] == 3


@pytest.mark.parametrize(
    ("rows", "sentence", "code"),
    [
        ("60", "Cannot explain row 60", 3),
        ("5-x", "'5-x' is not a row", 2),
        ("", "'' is not a row", 2),
        ("7-3", "7-3 ends before it begins", 2),
        ("0-2000", "more than 1,000 rows are named", 2),
        ("-4", "'-4' is not a row", 2),
    ],
)
def test_rows_that_are_none_are_refused(stored: Path, rows: str, sentence: str, code: int) -> None:
    assert sentence in asked(stored, rows, code=code)


def test_a_chunk_that_is_missing_is_not_read_as_zeros(stored: Path) -> None:
    chunks = (stored / "data.zarr" / "X" / "c").rglob("*")
    chunk = next(path for path in chunks if path.parts[-2:] == ("2", "0"))
    data = chunk.read_bytes()
    chunk.unlink()
    try:
        assert "--storage-option missing_chunks=fill" in asked(stored, "45", code=3)
        asked(stored, "5")
    finally:
        chunk.write_bytes(data)


def test_a_gap_is_told_as_one() -> None:
    """By a model that knows gaps; its JSON has no NaN."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int)
    X[::3, 0] = np.nan
    fitted = DCPredClassifier(
        n_leaves=1, landmarks=4, random_state=0, missing="impute", settings=dcpred.Settings(products=0)
    ).fit(X, y)
    one = explain(fitted, X, [3], landmarks=True)[0]
    assert [part.value for part in one.features if part.feature == 0] == [None]
    assert "missing" in explained([one])
    json.dumps(asdict(one), allow_nan=False)
