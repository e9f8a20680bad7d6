"""Frames with text, categories, booleans, dates and gaps: estimators learn what their columns are, keep it in
the model, and follow it; served models do the same without the libraries of training.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import zarr
from sklearn.base import clone
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dcpred import DCPredClassifier, DCPredRegressor, import_data, load_model
from dcpred_tasks import input_kinds
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.errors import DataError, SettingsError
from dcpred_tasks.schema import frames
from dcpred_tasks.schema.column import Codes, Number
from dcpred_tasks.schema.frames import frame_cells, is_numeric
from dcpred_tasks.schema.schema import numbers_schema
from support.data import Classes, make_blobs
from support.setting_words import classifier_with
from support.tables import table

COLUMNS = ["age", "colour", "old", "city", "day", "amount"]
FRAME = table(900).fillna({"age": 40.0})
X, Y = FRAME[COLUMNS], FRAME["label"].to_numpy()
TRAIN, TEST = slice(0, 600), slice(600, 900)


def small(**more: Any) -> DCPredClassifier:
    few = {"n_leaves": 2, "landmarks": 12, "products": 0, "scaling": "learned", "calibrate": False}
    return classifier_with(**(few | {"random_state": 0} | more))


@pytest.fixture(scope="module")
def model() -> DCPredClassifier:
    return small().fit(X[TRAIN], Y[TRAIN])


def test_columns_are_learned_and_worth_something(model: DCPredClassifier) -> None:
    assert model.feature_names_in_.tolist() == COLUMNS
    assert model.n_features_in_ == len(COLUMNS)
    kinds = [type(column).__name__ for column in model.schema_.columns]
    assert kinds == ["Number", "Codes", "Boolean", "TargetCodes", "Date", "Number"]
    assert model.settings_["categorical"] == "auto,1"
    numbers = small().fit(X[TRAIN][["age", "amount"]], Y[TRAIN])
    gain = model.score(X[TEST], Y[TEST]) - numbers.score(X[TEST][["age", "amount"]], Y[TEST])
    assert gain > 0.03


def as_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def as_categories(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({"colour": "category", "city": "category", "old": "boolean", "age": "Int64"})


def as_objects(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(object)


def as_arrow_backed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.convert_dtypes(dtype_backend="pyarrow")


def as_zoned(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(day=frame["day"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))


def as_iso(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(day=frame["day"].dt.strftime("%Y-%m-%d"))


def as_polars(frame: pd.DataFrame) -> pl.DataFrame:
    return pl.from_pandas(frame).with_columns(
        pl.col("colour").cast(pl.Categorical), pl.col("age").cast(pl.Int8)
    )


def as_arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


KINDS = [as_pandas, as_categories, as_objects, as_arrow_backed, as_iso, as_polars, as_arrow]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_frame_is_the_same_table(
    model: DCPredClassifier, kind: Callable[[pd.DataFrame], Any]
) -> None:
    other = small().fit(kind(X[TRAIN]), Y[TRAIN])
    assert other.schema_ == model.schema_
    np.testing.assert_array_equal(other.model_.beta, model.model_.beta)
    np.testing.assert_array_equal(
        model.decision_function(kind(X[TEST])), model.decision_function(X[TEST][COLUMNS[::-1]])
    )


def test_a_time_zone_is_gained_and_lost_with_a_refusal(model: DCPredClassifier) -> None:
    """The same local dates east of Greenwich lie on the day before in UTC."""
    zoned = small().fit(as_zoned(X[TRAIN]), Y[TRAIN])
    np.testing.assert_array_equal(zoned.model_.beta, model.model_.beta)
    for kind in (as_pandas, as_objects, as_arrow_backed, as_polars, as_arrow):
        with pytest.raises(DataError, match=r"'day': its times have a time zone, but had none in training"):
            model.predict(kind(as_zoned(X[TEST])))
        np.testing.assert_array_equal(zoned.predict(kind(as_zoned(X[TEST]))), model.predict(X[TEST]))
        with pytest.raises(DataError, match=r"'day': its times have no time zone, but had one in training"):
            zoned.predict(kind(X[TEST]))
    for remedy in (as_zoned(X[TEST]), X[TEST].assign(day=X[TEST]["day"].dt.tz_localize("Asia/Tokyo"))):
        local = remedy["day"].dt.tz_convert("UTC" if remedy["day"].dt.hour.any() else "Asia/Tokyo")
        again = remedy.assign(day=local.dt.tz_localize(None))
        np.testing.assert_array_equal(model.predict(again), model.predict(X[TEST]))


def test_times_of_day_in_place_of_dates_are_refused(model: DCPredClassifier) -> None:
    """Dates that another program converted to UTC have hours."""
    later = X[TEST].assign(day=X[TEST]["day"] - pd.Timedelta(hours=1))
    for rows in (later, later.assign(day=later["day"].astype(str))):
        with pytest.raises(DataError, match=r"'day': its dates had no time of day in training"):
            model.predict(rows)


def test_a_frame_of_dask_is_the_same_table(model: DCPredClassifier) -> None:
    lazy = small().fit(
        dd.from_pandas(X[TRAIN].astype({"colour": "category"}), npartitions=4),
        dd.from_pandas(pd.Series(Y[TRAIN]), npartitions=3),
    )
    assert lazy.schema_ == model.schema_
    np.testing.assert_array_equal(lazy.model_.beta, model.model_.beta)
    assert lazy.feature_names_in_.tolist() == COLUMNS
    assert lazy.n_features_in_ == len(COLUMNS)
    rows = dd.from_pandas(X[TEST][COLUMNS[::-1]].assign(colour="red"), npartitions=2)
    found = lazy.decision_function(rows)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(
        found.compute(scheduler="sync"), model.decision_function(X[TEST].assign(colour="red"))
    )
    assert lazy.score(dd.from_pandas(X[TEST], npartitions=2), Y[TEST]) == model.score(X[TEST], Y[TEST])
    with pytest.raises(DataError, match="X: it lacks the column 'city'"):
        lazy.predict(rows.drop(columns="city"))


def test_frames_of_numbers_are_what_they_were() -> None:
    data = make_blobs(400, n_features=4, n_classes=3, seed=0)
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(data.X, columns=names)
    plain, named = small().fit(data.X, data.y), small().fit(frame, data.y)
    np.testing.assert_array_equal(plain.model_.beta, named.model_.beta)
    assert named.schema_ == numbers_schema(names)
    assert not hasattr(plain, "schema_")
    assert named.settings_ == plain.settings_
    np.testing.assert_array_equal(named.predict(frame[names[::-1]]), plain.predict(data.X))
    again = named.fit(data.X, data.y)
    assert not hasattr(again, "schema_")
    assert not hasattr(again, "feature_names_in_")


def test_a_model_of_numbers_keeps_its_hash_with_names(tmp_path: Path) -> None:
    data = make_blobs(400, n_features=4, n_classes=3, seed=0)
    frame = pd.DataFrame(data.X, columns=list("abcd"))
    hashes = {small().fit(X, data.y).save(tmp_path / name) for name, X in (("a", data.X), ("b", frame))}
    assert len(hashes) == 1
    assert open_artifact(tmp_path / "b").schema == numbers_schema(list("abcd"))
    assert open_artifact(tmp_path / "a").schema is None


def test_numbers_as_objects_are_numbers() -> None:
    data = make_blobs(300, n_features=2, n_classes=2, seed=0)
    frame = pd.DataFrame(data.X, columns=["a", "b"]).astype(object)
    fitted = small().fit(frame, data.y)
    assert fitted.schema_.columns == (Number("a"), Number("b"))
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(fitted.predict(frame), small().fit(data.X, data.y).predict(data.X))


def test_the_schema_is_kept_with_the_model(model: DCPredClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    artifact = open_artifact(tmp_path / "model")
    assert artifact.schema == model.schema_
    assert artifact.feature_names == model.schema_.features
    served = load_model(tmp_path / "model")
    assert served.feature_names_in_.tolist() == COLUMNS
    assert served.n_features_in_ == len(COLUMNS)
    assert served.schema_ == model.schema_
    for kind in KINDS:
        np.testing.assert_array_equal(served.predict(kind(X[TEST])), model.predict(X[TEST]))
    rows = np.column_stack([served.schema_.columns[0].encode(frame_cells(X[TEST], "age"))] * 8)
    assert served.predict(rows).shape == (300,), "an array holds rows that are encoded"


def test_serving_frames_imports_no_library_of_training(model: DCPredClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    pl.from_pandas(X[TEST].assign(day="2020-05-01")).write_json(tmp_path / "rows.json")
    code = (
        "import sys, polars; from dcpred import load_model;"
        f" rows = polars.read_json({str(tmp_path / 'rows.json')!r});"
        f" load_model({str(tmp_path / 'model')!r}).predict(rows);"
        " found = {'sklearn', 'scipy', 'dask', 'pyarrow', 'pandas'} & set(sys.modules);"
        " sys.exit(f'imported {found}' if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda f: f.drop(columns=["city", "age"]),
            "X: it lacks the columns 'age', 'city', which the model was",
        ),
        (
            lambda f: f.assign(extra=1),
            "X: it has the column 'extra' beside the columns that the model was trained",
        ),
        (lambda f: pd.concat([f, f[["city"]]], axis=1), "X: two columns are named 'city'"),
        (lambda f: f.assign(age="old"), r"column 'age': its schema expects numbers, .* \('old'\)"),
        (lambda f: f.assign(day=3), "column 'day': its schema expects dates"),
        (lambda f: f.assign(old=3), "column 'old': its schema expects true and false"),
        (
            lambda f: f.to_numpy(),
            "Cannot score X: it is of type ndarray, and the model encodes the columns of a frame",
        ),
        (lambda f: f.assign(city=[["x"]] * len(f)), r"column 'city' of X: it holds list \("),
        (lambda f: f.assign(age=[1, "x"] * 150), r"column 'age' of X: it holds numbers \('1'\) and text \("),
    ],
)
def test_frames_that_are_not_that_of_training(
    model: DCPredClassifier, change: Callable[[pd.DataFrame], Any], words: str
) -> None:
    for method in (model.predict, model.decision_function):
        with pytest.raises(DataError, match=words):
            method(change(X[TEST]))


def test_what_was_never_seen_and_gaps_have_scores(model: DCPredClassifier) -> None:
    rows = X[TEST].head(3).assign(colour=["never", None, "red"], city=[None, "nowhere", "Ort 001"])
    assert np.isfinite(model.decision_function(rows)).all()
    column = next(c for c in model.schema_.columns if isinstance(c, Codes))
    np.testing.assert_array_equal(
        column.encode(frame_cells(rows, "colour"))[:, 0], [column.other, column.gap, 2]
    )


def test_scikit_learn_works_on_frames(model: DCPredClassifier) -> None:
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(X[TEST]), model.predict(X[TEST]))
    assert not hasattr(clone(model), "schema_")
    piped = make_pipeline(FunctionTransformer(lambda frame: frame[COLUMNS]), small()).fit(
        FRAME[TRAIN], Y[TRAIN]
    )
    np.testing.assert_array_equal(piped.predict(FRAME[TEST]), model.predict(X[TEST]))
    searched = GridSearchCV(small(), {"landmarks": [4, 8]}, cv=2).fit(X[TRAIN], Y[TRAIN])
    assert searched.best_score_ > 0.7
    importance = permutation_importance(model, X[TEST], Y[TEST], n_repeats=2, random_state=0)
    assert importance.importances_mean.argmax() in (COLUMNS.index("city"), COLUMNS.index("amount"))


def test_numbers_are_predicted_from_frames() -> None:
    target = FRAME["amount"] + (FRAME["colour"] == "red") * 2.0
    features = X.drop(columns="amount").assign(amount=FRAME["amount"])
    fitted = DCPredRegressor(random_state=0, scaling="learned", n_leaves=1).fit(
        features[TRAIN], target[TRAIN]
    )
    assert fitted.score(features[TEST], target[TEST]) > 0.9
    assert fitted.model_.scaling.targets.feature.tolist() == [COLUMNS.index("city")]
    assert fitted.model_.scaling.targets.n_means == 1


def test_several_classes_have_means_each() -> None:
    y = np.digitize(FRAME["amount"], [-0.5, 0.5])
    fitted = small().fit(X[TRAIN][["city", "amount"]], y[TRAIN])
    assert fitted.schema_.features == ("city", "amount")
    assert fitted.model_.scaling.targets.n_means == 3
    assert fitted.model_.n_columns == 4
    assert fitted.feature_importances_.shape == (2,)
    assert fitted.score(X[TEST][["city", "amount"]], y[TEST]) > 0.8


@pytest.mark.parametrize(
    ("categorical", "settled"),
    [
        ("auto", "auto,1"),
        ("none", "none"),
        (["age"], "0-1"),
        (["auto", "city"], "auto,1,3"),
        ([0, 3], "0-1,3"),
    ],
)
def test_the_setting_names_columns(categorical: Any, settled: str) -> None:
    frame = X[TRAIN].assign(age=np.arange(600) % 4)
    fitted = small(categorical=categorical).fit(frame, Y[TRAIN])
    assert fitted.settings_["categorical"] if settled != "auto" else settled == "auto"
    assert fitted.settings_.get("categorical", "auto") == settled


@pytest.mark.parametrize(("column", "found"), [("age", [0]), ("day", [4]), (5, [-1])])
def test_no_column_whose_missing_values_are_named_is_left_out(column: int | str, found: list[int]) -> None:
    name = COLUMNS[column] if isinstance(column, int) else column
    frame = X[TRAIN].assign(age=X["age"].astype(float))
    frame.loc[frame.index[::5], name] = None
    asked = small(missing=[column]).fit(frame, Y[TRAIN])
    names = asked.schema_.features
    assert [names[f] for f in asked.model_.scaling.coding.indicated] == [names[f] for f in found] == [name]


@pytest.mark.parametrize("kind", [bool, object, "boolean"])
def test_booleans_that_are_named_are_categories(kind: Any) -> None:
    frame = X[TRAIN].assign(old=X["old"].astype(kind))
    found = small(categorical=["old"]).fit(frame, Y[TRAIN])
    assert found.schema_.columns[2] == Codes("old", ("false", "true"))
    other = frame.assign(old=(~X["old"][TRAIN].astype(bool)).astype(kind))
    assert (found.decision_function(other) != found.decision_function(frame)).any()


@pytest.mark.parametrize(
    "asked", [{"missing": ["amount"]}, {"missing": ["day.weekday"]}, {"categorical": "auto"}]
)
def test_a_model_on_disk_is_fitted_again_by_its_names(asked: Any, tmp_path: Path) -> None:
    """Its settings number the features that columns became, of which there are more."""
    first = small(**asked).fit(X[TRAIN], Y[TRAIN])
    first.save(tmp_path / "m")
    again = load_model(tmp_path / "m", estimator=True)
    assert again.missing == asked.get("missing", "auto")
    settings = dict(first.settings_)
    again.fit(X[TRAIN], Y[TRAIN])
    assert {name: again.settings_.get(name) for name in ("categorical", "missing")} == {
        name: settings.get(name) for name in ("categorical", "missing")
    }


def test_a_column_that_is_not_there_is_told_by_the_setting() -> None:
    with pytest.raises(SettingsError, match=r"feature 'citi' in .*: the data have no .* mean 'city'\?"):
        small(categorical=["citi"]).fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            X[TRAIN].assign(note=[f"note {i}" for i in range(600)]),
            r"note.* 600 different values.*Leave it out of X",
        ),
        (X[TRAIN].assign(age=["1"] * 599 + ["?"]), r"numbers in most rows, but '\?' in row 599"),
        (X[TRAIN].set_axis(range(6), axis=1), "have numbers for names. Name them by strings"),
        (X[TRAIN].rename(columns={"age": "day.weekday"}), "two features are called 'day.weekday'"),
        (X[TRAIN].assign(span=pd.Timedelta("1s")), "column 'span' of X: it holds Timedelta"),
    ],
)
def test_frames_that_cannot_be_learned(frame: pd.DataFrame, words: str) -> None:
    with pytest.raises(DataError, match=words):
        small().fit(frame, Y[TRAIN])


def test_targets_that_do_not_fit_a_frame() -> None:
    with pytest.raises(ValueError, match=r"^Cannot use y: it has 599 values, but X has 600 rows"):
        small().fit(X[TRAIN], Y[1:600])
    with pytest.raises(DataError, match="Cannot use y: it has missing values"):
        small().fit(X[TRAIN], np.where(Y[TRAIN] == "yes", 1.0, np.nan))


def test_an_array_of_a_data_set_brings_its_schema(tmp_path: Path) -> None:
    import_data(FRAME[[*COLUMNS, "label"]], tmp_path / "a.zarr", target="label")
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    fitted = small().fit(group["X"], group["y"])
    assert fitted.settings_["categorical"] == "auto,1"
    assert fitted.feature_names_in_.tolist() == list(fitted.schema_.features)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.schema_.target == "label"
    encoded = fitted.decision_function(group["X"]).compute(scheduler="sync")
    fresh = fitted.decision_function(X)
    np.testing.assert_array_equal(encoded, fresh)
    fitted.save(tmp_path / "model")
    assert open_artifact(tmp_path / "model").schema == fitted.schema_


# -- Sparse rows ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> Classes:
    return make_blobs(300, n_features=5, n_classes=2, seed=1)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_rows_are_as_dense_ones(
    data: Classes, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_kinds, "STRIP_BYTES", 900)
    rows = np.where(data.X > 0, data.X, 0)
    plain, fitted = small().fit(rows, data.y), small().fit(kind(rows), data.y)
    np.testing.assert_array_equal(plain.model_.beta, fitted.model_.beta)
    np.testing.assert_array_equal(fitted.decision_function(kind(rows)), plain.decision_function(rows))
    assert fitted.score(kind(rows), data.y) == plain.score(rows, data.y)
    fitted.save(tmp_path / "model")
    served = load_model(tmp_path / "model")
    np.testing.assert_array_equal(served.predict(kind(rows)), plain.predict(rows))
    with pytest.raises(DataError, match="X has 4 features, but the model was trained with 5"):
        served.predict(kind(rows[:, :4]))


def test_a_frame_of_sparse_columns_is_as_the_dense_one(data: Classes) -> None:
    """scikit-learn takes them, too; its advice to call toarray() is none for a frame."""
    dense = pd.DataFrame(np.where(data.X > 0, data.X, 0).astype(float), columns=list("abcde"))
    sparse = dense.astype(pd.SparseDtype(float, 0))
    fitted = small().fit(sparse, data.y)
    assert fitted.feature_names_in_.tolist() == list("abcde")
    plain = small().fit(dense, data.y).decision_function(dense)
    np.testing.assert_array_equal(fitted.decision_function(sparse[list("edcba")]), plain)


def test_none_in_lists_is_a_gap() -> None:
    """scikit-learn leaves objects in lists as they are, and makes numbers of those in arrays."""
    rows = [[i % 7, None if i % 5 == 0 else i % 3] for i in range(60)]
    labels = ["a" if i % 7 < 3 else "b" for i in range(60)]
    fitted = small().fit(rows, labels)
    plain = small().fit(np.array(rows, float), labels)
    right = plain.decision_function(np.array(rows, float))
    np.testing.assert_array_equal(fitted.decision_function(rows), right)


def test_sparse_rows_that_no_memory_holds_are_refused_before() -> None:
    huge = sp.csr_array((10**6, 10**7))
    for call in (
        lambda: small().fit(huge, np.zeros(10**6)),
        lambda: DCPredRegressor().fit(huge, np.zeros(10**6)),
    ):
        with pytest.raises(DataError, match=r"1,000,000 .*rows of 10,000,000 features take 74,505.8 GiB"):
            call()


def test_what_is_numeric() -> None:
    assert is_numeric(pd.DataFrame({"a": [1], "b": [True], "c": pd.array([1.5], "Float64")}))
    assert is_numeric(pl.DataFrame({"a": [1], "b": [True]}))
    assert is_numeric(
        pa.table({"a": pa.array([1], pa.uint8()), "b": [True], "c": pa.array([1.5], pa.float32())})
    )
    for frame in (pd.DataFrame({"a": ["x"]}), pl.DataFrame({"a": ["x"]}), pa.table({"a": ["x"]})):
        assert not is_numeric(frame)


def test_every_form_of_arrow_predicts_what_pandas_does(model: DCPredClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    served, rows = load_model(tmp_path / "model"), X[TEST]
    of = pa.Table.from_pandas(rows, preserve_index=False)
    coded = of.set_column(1, "colour", of["colour"].dictionary_encode())
    chunks = pa.concat_tables(
        [coded[:7], of.set_column(1, "colour", of["colour"][::-1].dictionary_encode())[:0]]
    )
    batch = of.combine_chunks().to_batches()[0]
    for one in (model, served):
        expected = one.decision_function(rows)
        for form in (of, coded, batch, batch.slice(5), pl.from_pandas(rows)):
            np.testing.assert_array_equal(one.decision_function(form), expected[-len(form) :])
        np.testing.assert_array_equal(one.decision_function(chunks), expected[:7])


def test_arrow_is_not_read_one_by_one(model: DCPredClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "object_cells", None)
    assert len(model.predict(pa.Table.from_pandas(X[TEST], preserve_index=False))) == 300


def test_integers_of_arrow_that_float64_rounds_are_refused(model: DCPredClassifier) -> None:
    of = pa.Table.from_pandas(X[:2], preserve_index=False)
    with pytest.raises(DataError, match="9007199254740993"):
        model.predict(of.set_column(0, "age", pa.array([2**53 + 1, 1])))
