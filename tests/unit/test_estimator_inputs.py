"""What estimators and served models take for missing values, classes and rows, in memory: an answer for the
values that were given, or a sentence that says what to do.
"""

import asyncio
import tempfile
import uuid
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import xarray as xr
import zarr
from distributed import Client

import dcpred
from dcpred import DCPredClassifier, DCPredRegressor, ServedModel, explain, import_data, load_model, report
from dcpred.evaluation.evaluate import evaluate
from dcpred.evaluation.explanation import explain_stored
from dcpred.scoring.score import score
from dcpred.training.train import train
from dcpred_tasks.errors import DataError, DcpredError, SchedulerError, SettingsError
from support.searches import few_candidates
from support.setting_words import classifier_with, regressor_with

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = (X[:, 0] > 0).astype(int)
FRAME = pd.DataFrame(X, columns=list("abc"))
TABLE = FRAME.assign(town=np.where(X[:, 1] > 0, "u", "v"))


def small(**more: Any) -> DCPredClassifier:
    return classifier_with(**({"n_leaves": 1, "landmarks": 6, "calibrate": False, "random_state": 0} | more))


def numbers(**more: Any) -> DCPredRegressor:
    return regressor_with(**({"n_leaves": 1, "landmarks": 6, "calibrate": False, "random_state": 0} | more))


@pytest.fixture(scope="module")
def model() -> DCPredClassifier:
    return small().fit(X, Y)


@pytest.fixture(scope="module")
def served(model: DCPredClassifier, tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    path = tmp_path_factory.mktemp("served") / "m"
    model.save(path)
    return load_model(path)


GAPS = np.where(np.arange(200)[:, None] % 7 == [0, 9, 9], np.nan, X)
UNDER = np.ma.masked_array(np.where(np.isnan(GAPS), -9999.0, GAPS), mask=np.isnan(GAPS))
WITH_GAPS: dict[str, Any] = {
    "masked": UNDER,
    "masked single precision": UNDER.astype(np.float32),
    "objects": np.where(np.isnan(GAPS), None, GAPS),
    "pandas.NA": np.where(np.isnan(GAPS), pd.NA, GAPS.astype(object)),
    "lists": np.where(np.isnan(GAPS), None, GAPS).tolist(),
    "list of masked rows": list(UNDER),
    "lists with masked cells": [[np.ma.masked if v != v else v for v in row] for row in GAPS.tolist()],
    "pandas": pd.DataFrame(GAPS).astype("Float64"),
    "polars": pl.DataFrame(GAPS, schema=list("abc")).fill_nan(None),
    "pyarrow": pa.table({name: pa.array(GAPS[:, i], from_pandas=True) for i, name in enumerate("abc")}),
}


@pytest.mark.parametrize("kind", WITH_GAPS)
def test_cells_without_a_value_are_missing_values(
    kind: str, model: DCPredClassifier, served: ServedModel
) -> None:
    """Not what lies under the mask."""
    given = WITH_GAPS[kind]
    tolerance = 1e-4 if "single" in kind else 0.0
    if kind in ("polars", "pyarrow"):  # their columns have names
        model = small().fit(FRAME, Y)
    for one in (model, served):
        np.testing.assert_allclose(
            one.decision_function(given), served.decision_function(GAPS), atol=tolerance, rtol=0
        )
    fitted, right = small().fit(given, Y), small().fit(GAPS, Y)
    np.testing.assert_allclose(
        np.nan_to_num(fitted.model_.scaling.shift), right.model_.scaling.shift, atol=tolerance, rtol=0
    )
    assert np.isnan(model.decision_function(given)[0])


def test_a_mask_that_masks_nothing_changes_nothing(model: DCPredClassifier) -> None:
    plain = np.ma.masked_array(X, mask=False)
    np.testing.assert_array_equal(small().fit(plain, np.ma.masked_array(Y)).predict(plain), model.predict(X))
    whole = np.ma.masked_array((100 * X).astype(int), mask=np.isnan(GAPS))
    assert np.isnan(small().fit((100 * X).astype(int), Y).decision_function(whole)[0])


TARGET_GAP = np.arange(200) == 5
COLUMNS_WITH_A_GAP: dict[str, Any] = {
    "masked": lambda v: np.ma.masked_array(v, mask=TARGET_GAP),
    "nullable": lambda v: pd.Series(v).astype("Int64").mask(TARGET_GAP),
    "arrow in pandas": lambda v: pd.Series(v).astype("int64[pyarrow]").mask(TARGET_GAP),
    "frame": lambda v: pd.DataFrame({"y": pd.Series(v).astype("Int64").mask(TARGET_GAP)}),
    "polars": lambda v: pl.Series(np.where(TARGET_GAP, None, v).tolist()),
    "pyarrow": lambda v: pa.chunked_array([np.where(TARGET_GAP, None, v).tolist()]),
    "list": lambda v: np.where(TARGET_GAP, None, v).tolist(),
    "list of masked cells": lambda v: [
        np.ma.masked if gap else n for gap, n in zip(TARGET_GAP, v, strict=True)
    ],
    "objects": lambda v: np.where(TARGET_GAP, pd.NA, v.astype(object)),
}


@pytest.mark.parametrize("estimator", [small, numbers])
@pytest.mark.parametrize("kind", COLUMNS_WITH_A_GAP)
def test_targets_and_weights_without_a_value_are_refused(kind: str, estimator: Any) -> None:
    with pytest.raises(DataError, match=r"^Cannot use y: it has missing values"):
        estimator().fit(X, COLUMNS_WITH_A_GAP[kind](Y))
    with pytest.raises(DataError, match=r"^Cannot use sample_weight: it has missing values"):
        estimator().fit(X, Y, sample_weight=COLUMNS_WITH_A_GAP[kind](np.ones(200, int)))


def test_a_fit_that_is_refused_leaves_the_estimator_as_it_was() -> None:
    """It answered by the old model under the names of the new classes."""
    fitted = small(missing="refuse").fit(FRAME, Y)
    before = dict(vars(fitted))
    with pytest.raises(DataError, match="Cannot train on X: it has"):
        fitted.fit(TABLE.assign(a=GAPS[:, 0]), np.where(X[:, 2] > 0, "dog", "cat"))
    assert vars(fitted) == before
    np.testing.assert_array_equal(fitted.predict(FRAME), small().fit(FRAME, Y).predict(FRAME))
    regressor = numbers(missing="refuse")
    with pytest.raises(DataError, match="Cannot train on X: it has"):
        regressor.fit(GAPS, X[:, 0])
    assert vars(regressor) == vars(numbers(missing="refuse")), "it is not fitted"


LARGE = np.array([2**53, 2**53 + 1, 2**53 + 2])[np.digitize(X[:, 0], [-0.5, 0.5])]
LARGE_CLASSES: dict[str, Any] = {
    "NumPy": LARGE,
    "unsigned": LARGE.astype(np.uint64) + np.uint64(2**63),
    "list": LARGE.tolist(),
    "list beyond int64": [1 if v == 2**53 else int(v) + 2**63 for v in LARGE],
    "objects": LARGE.astype(object),
    "Int64": pd.Series(LARGE).astype("Int64"),
    "UInt64": pd.Series(LARGE).astype("UInt64"),
    "arrow in pandas": pd.Series(LARGE).astype("int64[pyarrow]"),
    "polars": pl.Series(LARGE),
    "pyarrow": pa.chunked_array([LARGE]),
    "categories": pd.Series(LARGE).astype("category"),
    "masked": np.ma.masked_array(LARGE),
}


@pytest.mark.parametrize("kind", LARGE_CLASSES)
def test_large_classes_stay_apart(kind: str, tmp_path: Path) -> None:
    y = LARGE_CLASSES[kind]
    right = sorted({int(v) for v in (y.to_pylist() if kind == "pyarrow" else y)})
    fitted = small().fit(X, y)
    assert [int(c) for c in fitted.classes_] == right
    fitted.save(tmp_path / "m")
    served = load_model(tmp_path / "m")
    assert [int(c) for c in served.classes_] == right
    assert {int(c) for c in served.predict(X)} == set(right)


def test_a_frame_of_one_column_is_a_target() -> None:
    with pytest.warns(Warning, match="column-vector"):
        fitted = small().fit(X, pd.DataFrame({"y": pd.Series(LARGE).astype("Int64")}))
    assert fitted.classes_.tolist() == [2**53, 2**53 + 1, 2**53 + 2]


CALLS = ["predict", "predict_proba", "predict_log_proba", "decision_function", "novelty"]


@pytest.mark.parametrize(
    "rows", [X, FRAME, TABLE, scipy.sparse.csr_matrix(X)], ids=["array", "frame", "table", "sparse"]
)
def test_no_rows_give_no_answers_of_the_right_shape(rows: Any, tmp_path: Path) -> None:
    fitted = small(calibrate=True).fit(rows, Y)
    regressor = numbers(calibrate=True).fit(rows, X[:, 0])
    fitted.save(tmp_path / "m")
    regressor.save(tmp_path / "r")
    calls = [(fitted, CALLS), (load_model(tmp_path / "m"), [c for c in CALLS if "log" not in c])]
    of_numbers = ["predict", "predict_interval", "novelty"]
    calls += [(regressor, of_numbers), (load_model(tmp_path / "r"), of_numbers)]
    for one, methods in calls:
        for method in methods:
            whole, none = (np.asarray(getattr(one, method)(part)) for part in (rows, rows[:0]))
            assert (none.shape, none.dtype) == ((0, *whole.shape[1:]), whole.dtype), (one, method)
        if not scipy.sparse.issparse(rows):
            assert explain(one, rows[:0]) == []


SENTENCES: dict[str, tuple[Any, str]] = {
    "text": (
        lambda m: small().fit(X.astype(str), Y),
        r"^Cannot use X: it holds text \('.*'\) in row 0, column 0\. Pass",
    ),
    "text to predict": (
        lambda m: m.predict([["a", 1.0, 2.0]]),
        r"^Cannot use X: it holds text \('a'\) in row 0, column 0",
    ),
    "dates": (
        lambda m: m.predict(np.full((2, 3), "2024", "M8[D]")),
        r"^Cannot use X: it holds dates or times \('2024",
    ),
    "a column of dates": (
        lambda m: small().fit(FRAME, Y).predict(FRAME.assign(b=pd.Timestamp("2024-01-01"))),
        r"^Cannot encode column 'b': its schema expects numbers, but it holds dates",
    ),
    "text and numbers": (
        lambda m: small().fit(X, MIXED),
        r"^Cannot use y: it holds text \('yes'\) and other values \(1\)\. Make all classes text",
    ),
    "periods": (
        lambda m: small().fit(FRAME.assign(b=pd.period_range("2020-01", periods=200, freq="M")), Y),
        r"column 'b' of X: it holds periods \('2020-01'\)\. Convert it with .dt.to_timestamp\(\)",
    ),
}
MIXED = np.where(Y, "yes", "no").astype(object)
MIXED[4] = 1


@pytest.mark.parametrize("name", SENTENCES)
def test_what_cannot_be_taken_is_refused_in_a_sentence(name: str, model: DCPredClassifier) -> None:
    call, words = SENTENCES[name]
    with pytest.raises(DataError, match=words):
        call(model)


def test_an_interval_of_a_model_of_few_rows() -> None:
    fitted = numbers(calibrate=True).fit(X[:20], X[:20, 0])
    with pytest.raises(SettingsError, match=r"too few rows to hold any out. Train it on 40 rows or more"):
        fitted.predict_interval(X)


def test_classes_of_text_of_every_kind() -> None:
    names = np.where(Y, "yes", "no")
    for y in (names.astype(np.dtypes.StringDType()), pa.array(names.tolist()), pl.Series(names.tolist())):
        fitted = small().fit(X, y)
        assert fitted.classes_.tolist() == ["no", "yes"]
        assert fitted.score(X, names) > 0.9


def test_categories_that_are_unknown_in_many_rows_are_reported(tmp_path: Path) -> None:
    """Estimators and served models, in memory and lazily; a few unknown values are what training expects."""
    fitted = small(calibrate=True).fit(TABLE, Y)
    fitted.save(tmp_path / "m")
    served = load_model(tmp_path / "m")
    capitals = TABLE.assign(town=TABLE.town.str.upper())
    words = r"unknown or rare categories of town in 100% of its values.*'[UV]' \(known is '[uv]'\)"
    for one in (fitted, served):
        with pytest.warns(UserWarning, match=words) as told:
            one.predict(capitals)
        assert len(told) == 1, "once a call"
    lazy = dd.from_pandas(capitals, npartitions=2)
    for call in (lambda: fitted.predict_proba(lazy).compute(scheduler="sync"), lambda: fitted.score(lazy, Y)):
        with pytest.warns(UserWarning, match=words):
            call()
    few = TABLE.assign(town=np.where(np.arange(200) < 20, "new", TABLE.town))
    fitted.predict(few)
    served.predict(few.assign(town=None))


def test_a_fit_in_memory_writes_nothing_to_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the search of a fit without settings nor one within a budget."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    for name in (
        "dcpred_tasks.storage.atomic_files.partial_name",
        "dcpred_tasks.storage.atomic_files.write_bytes",
        "dcpred_tasks.storage.atomic_files.replace_bytes",
        "dcpred_tasks.storage.zarr_arrays.create_array",
    ):
        monkeypatch.setattr(name, None)
    with few_candidates():
        assert DCPredClassifier(random_state=0).fit(X, Y).score(X, Y) > 0.9
        fitted = DCPredClassifier(random_state=0, budget="100x").fit(X, np.where(Y, "yes", "no"))
    assert list(tmp_path.iterdir()) == []
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.settings_["scaling"] in ("learned", "sharpened", "standard")


def test_a_model_is_saved_again_and_replaced_only_if_asked(tmp_path: Path, model: DCPredClassifier) -> None:
    other, path = small().fit(X, 1 - Y), tmp_path / "m"
    assert model.save(path) == model.save(path), "a notebook runs its cells again"
    words = r"^Cannot save the model to .*m: another model is there\. Save with overwrite=True to replace it"
    with pytest.raises(DataError, match=words):
        other.save(path)
    with pytest.raises(DataError, match=words):  # equal but for the names of its features
        small().fit(FRAME, Y).save(path)
    np.testing.assert_array_equal(load_model(path).predict(X), model.predict(X))
    for one in (other, model):
        assert one.save(path, overwrite=True) == load_model(path).artifact.hash
        np.testing.assert_array_equal(load_model(path).predict(X), one.predict(X))
        assert len(list(path.iterdir())) == 2, "the arrays of the old model are removed"
    np.testing.assert_array_equal(load_model(path, estimator=True).predict(X), model.predict(X))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").touch()
    with pytest.raises(
        DataError, match=r"^Cannot save the model to .*folder: it already exists and is not a model"
    ):
        model.save(tmp_path / "folder", overwrite=True)
    damaged = next(path.glob("arrays*/**/c/*"), None) or next(
        p for p in path.rglob("*") if p.parent.name == "c"
    )
    damaged.write_bytes(b"")
    with pytest.raises(DataError, match=words):
        model.save(path)
    model.save(path, overwrite=True)
    np.testing.assert_array_equal(load_model(path).predict(X), model.predict(X))


def test_a_replacement_that_is_cut_off_leaves_the_old_model(
    tmp_path: Path, model: DCPredClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "m")

    def cut_off(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dcpred_tasks.storage.place.write_bytes", cut_off)
        with pytest.raises(KeyboardInterrupt):
            small().fit(X, 1 - Y).save(tmp_path / "m", overwrite=True)
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), model.predict(X))


def test_a_report_of_an_estimator_and_of_a_served_model(model: DCPredClassifier, served: ServedModel) -> None:
    assert "<h1>Model DCPredClassifier</h1>" in report(model).html
    assert "<h1>Model m</h1>" in report(served).html
    with pytest.raises(
        DataError, match=r"^Cannot make a report of a value of type ndarray: it is not a model. Pass"
    ):
        report(X)


def test_an_asynchronous_client_is_refused() -> None:
    lazy = da.from_array(X, chunks=(100, 3))

    async def fit() -> None:
        async with Client(processes=False, asynchronous=True, dashboard_address=None, n_workers=1):
            for call in (lambda: small().fit(lazy, Y), lambda: small().fit(X, Y).score(lazy, Y)):
                with pytest.raises(SchedulerError, match="Dask client: it is asynchronous"):
                    call()

    asyncio.run(fit())


OTHERS: dict[str, tuple[Any, str]] = {
    "weights": (
        lambda: small().fit(X, Y, np.full(200, np.inf)),
        "^Cannot use sample_weight: it holds inf in row 0, which is",
    ),
    "words": (
        lambda: small().fit(X, Y, ["heavy"] * 200),
        "^Cannot use sample_weight: it holds values",
    ),
    "fewer": (
        lambda: numbers().fit(X, Y, np.ones(3)),
        r"^Cannot use sample_weight: it has shape",
    ),
    "an infinite class": (
        lambda: small().fit(X, np.where(np.arange(200) < 7, Y, np.inf)),
        "infinite value in row 7",
    ),
    "amounts": (lambda: small().fit(X, X[:, 0]), "^Cannot classify y: .* Train a DCPredRegressor"),
    "text": (lambda: numbers().fit(X, pl.Series(["a"] * 200)), "^Cannot use y for regression: it holds text"),
    "infinity": (
        lambda: numbers().fit(X, np.full(200, np.inf)),
        "y for regression: .* infinite value in row 0",
    ),
    "ragged": (lambda: small().fit([[1, 2], [3]] * 100, Y), "^Cannot use X: its rows have different lengths"),
    "dict": (
        lambda: small().fit({"a": X[:, 0]}, Y),
        r"^Cannot use X: it is a dict of columns\. Pass pandas\.DataFrame\(X\)",
    ),
    "path": (lambda: small().fit("rows.csv", Y), r"^Cannot use X: 'rows\.csv' is a path, not rows\. Read it"),
    "a score": (
        lambda: small().fit(X, Y).score(X, np.ma.masked_array(Y, mask=Y > 0)),
        "^Cannot use y: it has missing values",
    ),
    "dates": (
        lambda: small().fit(X, np.where(Y, "2020", "2021").astype("M8[D]")).save("nowhere"),
        "^Cannot save the model: its class .* is neither text nor a number",
    ),
    "a row of a frame": (
        lambda: (
            small()
            .fit(FRAME, Y)
            .predict(dd.from_pandas(FRAME.assign(a=GAPS[:, 0]), npartitions=2))
            .compute(scheduler="sync")
        ),
        r"^Cannot predict the row of X with index \d+",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_weights_targets_and_rows_of_other_kinds(name: str) -> None:
    call, words = OTHERS[name]
    with pytest.raises(DataError, match=words):
        call()


def test_a_record_batch_is_a_frame() -> None:
    batch = pa.RecordBatch.from_pandas(FRAME)
    fitted = small().fit(batch, Y)
    np.testing.assert_array_equal(fitted.predict(batch), small().fit(FRAME, Y).predict(FRAME))


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a data set with codes of categories, and a data set with other codes."""
    folder = tmp_path_factory.mktemp("towns")
    town = np.repeat(["u", "v", "v"], 20)
    for name, codes in {"one": {"u": "u", "v": "v"}, "other": {"u": "x", "v": "u"}}.items():
        rows = [f"{codes[value]},{i % 7},{value}" for i, value in enumerate(town)]
        (folder / f"{name}.csv").write_text("\n".join(["town,a,y", *rows]))
        import_data(str(folder / f"{name}.csv"), str(folder / f"{name}.zarr"), target="y")
    group = zarr.open_group(folder / "one.zarr", mode="r")
    small(keep_support_vectors=True, calibrate=True).fit(group["X"], group["y"]).save(folder / "m")
    return folder


ANSWERS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        name: lambda model, rows, name=name: getattr(model, name)(rows)
        for name in ("decision_function", "predict", "predict_proba", "novelty", "predict_early")
    },
    "explain": lambda model, rows: explain(model, rows, [0]),
}


@pytest.mark.parametrize("estimator", [False, True])
@pytest.mark.parametrize("name", ANSWERS)
def test_rows_of_another_encoding_are_refused(name: str, estimator: bool, towns: Path) -> None:
    """They gave the answers of other categories."""
    model = load_model(towns / "m", estimator=estimator)
    words = r"^Cannot score \S*X with this model: its features are encoded differently .*--like "
    other = zarr.open_group(towns / "other.zarr", mode="r")["X"]
    copied = zarr.group(
        store=zarr.storage.MemoryStore(), attributes=dict(zarr.open(towns / "other.zarr").attrs)
    )
    copied.create_array("X", data=other[:])
    for rows in (other, zarr.open_array(towns / "other.zarr/X", mode="r"), copied["X"]):
        with pytest.raises(DataError, match=words):
            ANSWERS[name](model, rows)
    if name == "predict":
        rows = zarr.open_group(towns / "one.zarr", mode="r")["X"]
        own = load_model(towns / "m").predict(rows[:])
        np.testing.assert_array_equal(np.asarray(model.predict(rows)), own)


@pytest.mark.parametrize("attribute", [{"scale_factor": 0.1}, {"_FillValue": -9999.0}])
def test_encoded_values_of_hdf5_are_refused(
    attribute: dict[str, float], model: DCPredClassifier, served: ServedModel, tmp_path: Path
) -> None:
    """They were taken as they are stored."""
    path = tmp_path / "packed.h5"
    with h5py.File(path, "w") as file:
        file["rows/X"], file["Y"], file["plain"] = X, Y, X
        for name in ("rows/X", "Y"):
            file[name].attrs.update(attribute)
        for call in (model.predict, served.predict, lambda rows: small().fit(rows, Y)):
            command = f"dcpred import {path} NEW.zarr --x rows/X"
            with pytest.raises(
                DataError, match=f"it stores encoded values .{next(iter(attribute))}.*{command}"
            ):
                call(file["rows/X"])
        with pytest.raises(DataError, match="--y Y`"):
            numbers().fit(X, file["Y"])
        np.testing.assert_array_equal(model.predict(file["plain"]), served.predict(file["plain"]))
    import_data(str(path), str(tmp_path / "new.zarr"), x="rows/X")


@pytest.mark.parametrize("kind", [uuid.UUID, Decimal, int])
def test_classes_of_other_types_become_text_by_the_remedy(kind: Any) -> None:
    values = [kind(int=int(n)) if kind is uuid.UUID else kind(2**70 + int(n)) for n in Y]
    words = (
        rf"^Cannot use y: it holds {kind.__name__} .*\. Make all classes text with \[str\(v\) for v in y\]\.$"
    )
    for y in (values, np.array(values, object), pd.Series(values, dtype=object)):
        with pytest.raises(DataError, match=words):
            small().fit(X, y)
    assert set(small().fit(X, [str(v) for v in values]).classes_) == set(map(str, values))


WHOLE = np.arange(600).reshape(200, 3) % 11
WIDE = WHOLE.copy()
WIDE[7, 1] = 2**53 + 1
WIDE_ROWS: dict[str, Any] = {
    "int64": WIDE,
    "uint64": WIDE.astype(np.uint64),
    "objects": np.where(np.arange(3) == 1, WIDE.astype(object), None),
    "lists": WIDE.tolist(),
    "lists beside fractions": [[a + 0.5, int(b), c] for a, b, c in WIDE.tolist()],
    "pandas": pd.DataFrame(WIDE, columns=list("abc")).assign(a=0.5),
    "Int64": pd.DataFrame(WIDE, columns=list("abc")).astype("Int64"),
    "arrow in pandas": pd.DataFrame(WIDE, columns=list("abc")).astype("int64[pyarrow]"),
    "polars": pl.DataFrame(WIDE, schema=list("abc")),
    "pyarrow": pa.table({name: WIDE[:, i] for i, name in enumerate("abc")}),
    "sparse": scipy.sparse.csr_array(WIDE),
    "xarray": xr.DataArray(WIDE),
}


@pytest.mark.parametrize("kind", WIDE_ROWS)
def test_whole_numbers_that_float64_rounds_are_refused(
    kind: str, model: DCPredClassifier, served: ServedModel
) -> None:
    """They were rounded without a word."""
    given = WIDE_ROWS[kind]
    words = r"^Cannot use column ('b'|1): it holds the integer 9007199254740993, which float64 would round"
    fitted = small().fit(FRAME, Y) if hasattr(given, "columns") else model
    for call in (lambda rows: small().fit(rows, Y), fitted.predict, served.predict):
        with pytest.raises(DataError, match=words):
            call(given)


def test_large_numbers_that_float64_holds_are_taken(served: ServedModel) -> None:
    exact = np.where(WIDE > 2**53, 2**60, WIDE)
    np.testing.assert_array_equal(
        served.decision_function(exact), served.decision_function(exact.astype(np.float64))
    )


def test_what_is_no_path_is_refused_by_every_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written under the text of a value, as a folder `None`."""
    monkeypatch.chdir(tmp_path)
    model = small(calibrate=False).fit(X, Y)
    model.save("m")
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    doors: list[Callable[[Any], Any]] = [
        model.save,
        lambda path: model.save(path, overwrite=True),
        load_model,
        dcpred.open_scores,
        report(model).save,
        lambda path: explain(path, X[:1]),
    ]
    for wrong in (None, b"m", 7, ["m"]):
        for door in doors:
            with pytest.raises(DataError, match=r"Cannot use .* as a path or address\. Pass a str"):
                door(wrong)
        with pytest.raises(SettingsError, match=r"Cannot use dest=.*Pass a str or a Path\."):
            import_data("a.csv", wrong)
    for door in (*doors, lambda path: import_data("a.csv", path)):
        with pytest.raises(DataError, match="Cannot use an empty text as a path"):
            door("")
    with pytest.raises(DataError, match=r"type DCPredClassifier as a path .* Save it with its method save"):
        load_model(model)
    for option in ({"data": 7}, {"data": ""}):
        with pytest.raises(DataError, match="as a path"):
            report("m", **option)
    with pytest.raises(SettingsError, match="Cannot use like="):
        import_data("a.csv", "d.zarr", like=model)
    with pytest.raises(DataError, match="as a path"):
        model.set_params(directory=b"m").fit(da.from_array(X), Y)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "m"]


def _stored(column: np.ndarray) -> zarr.Array[Any]:
    return zarr.create_array({}, data=column, chunks=(50, *column.shape[1:]))


DOORS: dict[str, Callable[[np.ndarray], tuple[Any, Any]]] = {
    "memory": lambda y: (X, y),
    "series": lambda y: (FRAME, pd.Series(y)),
    "dask": lambda y: (da.from_array(X, chunks=(50, 3)), da.from_array(y, chunks=50)),
    "dask beside memory": lambda y: (da.from_array(X, chunks=(50, 3)), y),
    "zarr": lambda y: (_stored(X), _stored(y)),
}
CLASSES = {
    "fractions": np.array([0.5, 1.5])[Y],
    "numbers in objects": np.array([0.0, 1.0], object)[Y],
    "truth in objects": np.array([False, True], object)[Y],
    "dates": np.array(["2020-01-01", "2021-01-01"], "M8[s]")[Y],
    "durations": np.array([1, 2], "m8[s]")[Y],
    "huge": np.array([0, 1e300])[Y],
}
NO_CLASSES = {
    "bytes": (
        np.array([b"a", b"b"])[Y],
        r"^Cannot use y: it holds bytes\. Make them text with y\.astype\(str\)",
    ),
    "bytes in objects": (
        np.array([b"a", b"b"], object)[Y],
        r"^Cannot use y: it holds bytes\. .* \[v\.decode\(\) for v in y\]",
    ),
    "complex": (
        Y + 1j,
        r"^Cannot use y: it has dtype complex128 \(Complex data not supported\)\. Pass real numbers",
    ),
    "decimals": (
        np.array([Decimal(1), Decimal(2)], object)[Y],
        r"^Cannot use y: it holds Decimal \('\d'\).*cannot be a class",
    ),
    "text and numbers": (
        np.array(["a", 1], object)[Y],
        r"^Cannot use y: it holds text \('a'\) and other values \(1\)",
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_the_same_classes(door: str) -> None:
    for name, y in CLASSES.items():
        if door != "zarr" or y.dtype.kind != "O":
            features, target = DOORS[door](y)
            model = small(products=0, calibrate=False).fit(features, target)
            expected = np.unique(y if y.dtype.kind != "O" else np.array(y.tolist()))
            assert model.classes_.dtype == expected.dtype, name
            np.testing.assert_array_equal(model.classes_, expected)
            rows = FRAME if door == "series" else X
            assert set(np.asarray(model.predict(rows)).tolist()) == set(expected.tolist())
            assert model.score(rows, y) > 0.9
    for y, sentence in NO_CLASSES.values():
        if door != "zarr" or y.dtype.kind == "c":
            with pytest.raises(DataError, match=sentence):
                small().fit(*DOORS[door](y))


def test_parts_of_a_target_are_of_one_kind() -> None:
    y = da.from_array(np.array(["a"] * 100 + [1] * 100, object), chunks=50)
    with pytest.raises(DataError, match=r"text \('a'\) and other values \(1\)\. Make all"):
        small().fit(da.from_array(X, chunks=(50, 3)), y)


def test_unknown_categories_of_many_parts_warn_once_a_call() -> None:
    fitted = small(products=0, calibrate=False).fit(TABLE, Y)
    strange = dd.from_pandas(TABLE.assign(town=[f"w{i % 7}" for i in range(200)]), npartitions=8)
    for _ in range(2):
        for lazy in (fitted.predict(strange), fitted._rows_to_explain(strange)[1]):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                lazy.compute(scheduler="threads")
            assert [str(one.message)[:40] for one in caught] == ["unknown-categories: unknown or rare cate"]


ONE_SENTENCE = {
    "one dimension": (lambda m: m.fit(X[:, 0], Y), r"has 1 dimension, shape \(200,\)\. Reshape"),
    "one lazily": (lambda m: m.fit(da.from_array(X[:, 0]), Y), "has 1 dimension, shape"),
    "one to predict": (lambda m: m.fit(X, Y).predict(da.from_array(X[0])), "has 1 dimension, shape"),
    "a series": (lambda m: m.fit(FRAME["a"], Y), "has 1 dimension, shape"),
    "a lazy series": (lambda m: m.fit(dd.from_pandas(FRAME, npartitions=2)["a"], Y), "has 1 dimension"),
    "complex X": (lambda m: m.fit(X + 1j, Y), "^Cannot use X: it.* dtype complex128"),
    "complex X lazily": (lambda m: m.fit(da.from_array(X + 1j), Y), "^Cannot use X: it.* dtype complex128"),
    "complex list": (lambda m: m.fit((X + 1j).tolist(), Y), "^Cannot use X: it.* dtype complex128"),
    "complex targets": (lambda m: m.fit(X, (Y + 1j).tolist()), "^Cannot use y: it has dtype complex128"),
    "infinity": (lambda m: m.fit(np.where(X[7, 1] == X, np.inf, X), Y), "X: it has inf in row 7, column 1"),
    "no weight": (lambda m: m.fit(X, Y, np.zeros(200)), "^Cannot use sample_weight: every weight is zero"),
    "one weight": (lambda m: m.fit(X, Y, 0), "^Cannot use sample_weight: every weight is zero"),
    "a score without weight": (
        lambda m: m.fit(X, Y).score(X, Y, np.zeros(200)),
        "^Cannot use sample_weight: every weight is",
    ),
    "fewer targets": (lambda m: m.fit(X, Y[1:]), "^Cannot use y: it has 199 values, but X has 200 rows"),
    "a score of fewer": (
        lambda m: m.fit(X, Y).score(X, Y[1:]),
        "^Cannot use y: it has 199 values, but X has 200 rows",
    ),
    "an infinite score": (lambda m: m.fit(X, Y).score(X, np.full(200, np.inf)), "infinite value in row 0"),
}


@pytest.mark.parametrize("case", ONE_SENTENCE)
def test_what_cannot_be_used_is_refused_in_our_own_sentence(case: str) -> None:
    use, sentence = ONE_SENTENCE[case]
    for kind in (small, numbers):
        with pytest.raises(DataError, match=sentence):
            use(kind(products=0, calibrate=False))
    with pytest.raises(DataError, match=r"it holds 1e\+300 in row 0, but targets are at most"):
        numbers(products=0, calibrate=False).fit(X, Y).score(X, np.full(200, 1e300))


def test_decimals_that_float64_makes_equal_are_refused() -> None:
    near = [Decimal("0.1"), Decimal("0.10000000000000000001"), Decimal("NaN"), Decimal("0.2")]
    column = np.array(near * 50, object)
    frames = [
        FRAME.assign(d=column),
        FRAME.assign(d=pd.Series(near * 50).astype(pd.ArrowDtype(pa.decimal128(38, 20)))),
        pl.DataFrame(
            {
                "a": X[:, 0],
                "d": pl.Series([None if d != d else d for d in near] * 50, dtype=pl.Decimal(38, 20)),
            }
        ),
        pa.table(
            {"a": X[:, 0], "d": pa.array([None if d != d else d for d in near] * 50, pa.decimal128(38, 20))}
        ),
        np.column_stack([X.astype(object), column]),
    ]
    for frame in frames:
        with pytest.raises(
            DataError, match=r"column .* it holds 0\.10* and 0\.10*1, which float64 makes equal"
        ):
            small(products=0, calibrate=False).fit(frame, Y)
    exact = FRAME.assign(d=np.array([Decimal("0.1"), Decimal("0.10"), Decimal("0.2"), None] * 50, object))
    small(products=0, calibrate=False).fit(exact, Y)


def test_stored_whole_numbers_that_float64_rounds_are_refused(tmp_path: Path) -> None:
    """By every command that reads raw arrays, with the name of the column."""
    rows = np.where(X > 0, 5, 3)
    for name, large in (("exact", 2**60), ("rounded", 2**60 + 1)):
        values = rows.copy()
        values[150, 1] = large
        group = zarr.create_group(tmp_path / f"{name}.zarr")
        group.create_array("X", data=values, chunks=(50, 3)).attrs["feature_names"] = ["a", "amount", "c"]
        group.create_array("y", data=Y)
    model, settings = tmp_path / "model", {"n_leaves": 1, "landmarks": 4, "scaling": "none"}
    train(tmp_path / "exact.zarr", model, settings=settings)
    data = tmp_path / "rounded.zarr"
    x = f"{data}/X"
    doors: list[Callable[[], Any]] = [
        lambda: train(data, tmp_path / "other", settings=settings),
        lambda: score(model, x, tmp_path / "out"),
        lambda: evaluate(model, tmp_path / "rounded.zarr", cost=False),
        lambda: explain_stored(model, x, [150]),
    ]
    for door in doors:
        with pytest.raises(DcpredError, match=rf"column 'amount': it holds the integer {2**60 + 1}, which"):
            door()
    assert score(model, f"{tmp_path}/exact.zarr/X", tmp_path / "new").status == {"1": 200}
