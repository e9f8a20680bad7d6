"""No class for a row without a score: in memory, served, and block by block on workers."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest

from dcpred import DCPredClassifier, DCPredRegressor, Settings
from dcpred_tasks.errors import DataError
from dcpred_tasks.task_bodies.predict_block import label_block
from support.data import Classes, make_blobs
from support.serving import serve

BAD = [3, 47, 48]  # rows of the blocks 0 and 2, of 20 rows each
METHODS = ["predict", "predict_early"]


@pytest.fixture(scope="module")
def data() -> Classes:
    return make_blobs(300, n_features=4, n_classes=3, seed=1)


@pytest.fixture(scope="module")
def model(data: Classes) -> DCPredClassifier:
    return DCPredClassifier(
        n_leaves=2, landmarks=6, random_state=0, settings=Settings(products=4, keep_support_vectors=True)
    ).fit(data.X, data.y)


@pytest.fixture
def holed(data: Classes) -> np.ndarray:
    X = data.X[:60].astype(np.float64)
    X[BAD, [0, 1, 2]] = np.nan, np.inf, 1e300
    return X


def with_classes(model: DCPredClassifier, classes: np.ndarray) -> DCPredClassifier:
    """The same model, trained on labels of another dtype as far as `predict` can tell."""
    other = pickle.loads(pickle.dumps(model))
    other.classes_ = classes
    return other


def lazy(X: np.ndarray) -> da.Array:
    return da.from_array(X, chunks=(20, 4))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("classes", "is_missing"),
    [
        (np.array([0.0, 1.0, 2.0]), np.isnan),
        (np.array([0, 1, 2], np.float32), np.isnan),
        (
            np.array(["ash", "oak", "yew"], object),
            lambda labels: np.array([label is None for label in labels]),
        ),
        (np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "M8[D]"), np.isnat),
        (np.array([1, 2, 3], "m8[s]"), np.isnat),
        (np.array(["ash", "oak", "yew"], np.dtypes.StringDType(na_object=np.nan)), np.isnan),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_a_missing_label_where_the_dtype_has_one(
    model: DCPredClassifier, holed: np.ndarray, classes: np.ndarray, is_missing: Any, method: str
) -> None:
    other = with_classes(model, classes)
    labels = getattr(other, method)(lazy(holed)).compute(scheduler="sync")
    assert labels.dtype == classes.dtype
    np.testing.assert_array_equal(np.flatnonzero(is_missing(labels)), BAD)
    good = np.setdiff1d(np.arange(60), BAD)
    np.testing.assert_array_equal(labels[good], getattr(other, method)(holed[good]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "classes",
    [
        np.arange(3),
        np.arange(3, dtype=np.uint8),
        np.array(["a", "b", "c"]),
        np.array(["a", "b", "c"], np.dtypes.StringDType()),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_an_error_at_compute_where_the_dtype_has_none(
    model: DCPredClassifier, holed: np.ndarray, classes: np.ndarray, method: str
) -> None:
    labels = getattr(with_classes(model, classes), method)(lazy(holed))
    with pytest.raises(DataError, match=r"Cannot predict row 3 of block 0 of X \(row 3\)"):
        labels.blocks[0].compute(scheduler="sync")
    with pytest.raises(
        DataError, match=r"Cannot predict row 7 of block 2 of X \(row 47\).*use decision_function"
    ):
        labels.blocks[2].compute(scheduler="sync")
    assert len(labels.blocks[1].compute(scheduler="sync")) == 20


def test_the_block_alone_is_named_where_its_place_is_unknown(
    model: DCPredClassifier, holed: np.ndarray
) -> None:
    rows = lazy(holed)
    rows = rows[da.from_array(np.arange(60) >= 10, chunks=20)]
    with pytest.raises(DataError, match=r"Cannot predict row 7 of block 2 of X"):
        model.predict(rows).compute(scheduler="sync")


def test_two_classes() -> None:
    decision = np.array([[1.0], [np.nan], [-1.0]], np.float32)
    labels = label_block(decision, np.array([0.5, 1.5]))
    np.testing.assert_array_equal(labels, [1.5, np.nan, 0.5])
    with pytest.raises(DataError, match="row 1 of X"):
        label_block(decision, np.array([False, True]))


def test_one_value_that_is_not_finite_is_enough() -> None:
    """The largest of the others is no answer."""
    labels = label_block(np.array([[0.0, 5.0, np.nan], [0.0, 5.0, np.inf], [0.0, 5.0, 1.0]]), np.arange(3.0))
    np.testing.assert_array_equal(labels, [np.nan, np.nan, 1.0])


@pytest.mark.parametrize("method", METHODS)
def test_in_memory_and_served_the_row_is_named(model: DCPredClassifier, data: Classes, method: str) -> None:
    kinds = {np.nan: "NaN", -np.inf: "infinity", 1e300: r"a value too large \(1e\+300\)"}
    for value, kind in kinds.items():
        X = data.X[:9].astype(np.float64)
        X[5, 1] = value
        for predictor in (model, serve(model)):
            with pytest.raises(DataError, match=rf"row 5 of X: it holds {kind} in column 1\."):
                getattr(predictor, method)(X)
            decision = predictor.decision_function(X)
            np.testing.assert_array_equal(np.isnan(decision).any(axis=1), np.arange(9) == 5)


@pytest.mark.parametrize("method", METHODS)
def test_the_regressor(data: Classes, holed: np.ndarray, method: str) -> None:
    model = DCPredRegressor(
        n_leaves=2, landmarks=6, random_state=0, settings=Settings(keep_support_vectors=True)
    ).fit(data.X, data.X[:, 0])
    values = getattr(model, method)(lazy(holed)).compute(scheduler="sync")
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(values)), BAD)
    for predictor in (model, serve(model)):
        with pytest.raises(DataError, match="Cannot predict row 3 of X"):
            getattr(predictor, method)(holed[:47])
        with pytest.raises(DataError, match="Cannot predict row 0 of X"):
            getattr(predictor, method)(holed[48:])


LABELS = {
    "float": np.array([0.0, 1.0, 2.0]),
    "int": np.arange(3),
    "text": np.array(["ash", "oak", "yew"]),
    "object": np.array(["ash", "oak", "yew"], object),
    "datetime": np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "M8[D]"),
    "timedelta": np.array([1, 2, 3], "m8[s]"),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.filterwarnings("error")
def test_score_names_the_first_row_without_one(
    model: DCPredClassifier, data: Classes, holed: np.ndarray, kind: str
) -> None:
    other = with_classes(model, LABELS[kind])
    y = LABELS[kind][data.y[:60]]
    first, wanted = holed[4:], "Cannot predict row 43 of X"  # the rows of block 2 begin at 40
    for X in (first, lazy(first)):
        with pytest.raises(DataError, match=wanted):
            other.score(X, y[4:])
    good = np.setdiff1d(np.arange(60), BAD)
    if kind not in ("datetime", "timedelta"):
        assert other.score(lazy(holed[good]), y[good]) == other.score(holed[good], y[good]) > 0.5


@pytest.mark.filterwarnings("error")
def test_score_of_the_regressor_names_the_first_row_without_one(data: Classes, holed: np.ndarray) -> None:
    target = data.X[:, 0] + data.X[:, 1]
    model = DCPredRegressor(n_leaves=2, landmarks=6, random_state=0).fit(data.X, target)
    y = target[:60]
    for X in (holed[4:], lazy(holed[4:])):
        with pytest.raises(DataError, match="Cannot predict row 43 of X"):
            model.score(X, y[4:])
    assert model.score(lazy(holed[4:40]), y[4:40]) == pytest.approx(model.score(holed[4:40], y[4:40]))


def test_the_module_imports_little() -> None:
    code = (
        "import sys, dcpred_tasks.task_bodies.predict_block; "
        "found = {'dcpred', 'sklearn', 'dask', 'distributed', 'scipy'} & set(sys.modules); "
        "sys.exit(f'imported {found}' if found else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


WORKER = """
import pickle, sys
import dask
graph, keys = pickle.load(sys.stdin.buffer)
blocks = dask.get(graph, keys)
found = {"dcpred", "sklearn"} & set(sys.modules)
sys.exit(f"imported {found}" if found else 0)
"""


def test_a_worker_that_predicts_imports_neither_the_client_nor_scikit_learn(
    model: DCPredClassifier, data: Classes
) -> None:
    (labels,) = dask.optimize(model.predict(lazy(data.X[:60])))
    work = cloudpickle.dumps((dict(labels.__dask_graph__()), labels.__dask_keys__()))
    result = subprocess.run(
        [sys.executable, "-c", WORKER],
        input=work,
        capture_output=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert result.returncode == 0, result.stderr.decode()


NAMES = ["a", "b", "c", "d"]
EXTENSIONS: dict[str, dict[str, str]] = {
    "Float64": dict.fromkeys(NAMES, "Float64"),
    "pyarrow": dict.fromkeys(NAMES, "float64[pyarrow]"),
    "Int64 among floats": {"b": "Int64"},
    "bool among floats": {"c": "bool"},
    "several kinds": {"a": "Float32", "b": "int64[pyarrow]", "c": "boolean"},
}


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_a_served_model_takes_frames_of_several_kinds_of_numbers(data: Classes, kind: str) -> None:
    frame = pd.DataFrame(data.X, columns=NAMES).astype(np.float64)
    frame["b"], frame["c"] = frame["b"].round(), frame["c"] > 0
    fitted = DCPredClassifier(n_leaves=2, landmarks=6, random_state=0, settings=Settings(products=4)).fit(
        frame.astype(float), data.y
    )
    X = frame.astype(EXTENSIONS[kind])
    served = serve(fitted)
    for given in (X, X[NAMES[::-1]]):
        np.testing.assert_array_equal(served.predict(given), fitted.predict(frame.astype(float)))
        np.testing.assert_array_equal(served.predict(given), fitted.predict(given))
    for name, dtype in EXTENSIONS[kind].items():
        if dtype != "bool":
            X.loc[7, name] = pd.NA
            values, own = served.decision_function(X), fitted.decision_function(X)
            np.testing.assert_array_equal(np.flatnonzero(np.isnan(values).any(axis=1)), [7])
            np.testing.assert_array_equal(values, own)
            with pytest.raises(DataError, match="Cannot predict row 7 of X"):
                served.predict(X)


def test_a_served_model_names_the_column_that_is_not_numbers(model: DCPredClassifier, data: Classes) -> None:
    served = serve(model)
    for values in ("red", pd.Timestamp("2024-01-01")):
        X = pd.DataFrame(data.X, columns=NAMES).assign(c=pd.Series([values] * 300))
        with pytest.raises(
            DataError,
            match=r"^Cannot use column 'c' of X: its dtype .* is not numeric\. Encode it as numbers first\.$",
        ):
            served.predict(X)
    with pytest.raises(DataError, match=r"Cannot use X: it holds text .* in row 0, column 0\. Pass numbers"):
        served.predict(np.array([["a", 1, 2, 3]], object))
