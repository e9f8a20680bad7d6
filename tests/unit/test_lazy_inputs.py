"""Dask DataFrames, Series and xarray arrays go the way of Dask arrays; nothing lazy is computed whole without
a word.
"""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
import zarr

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred.estimators import out_of_core
from dcpred_tasks.errors import DataError
from dcpred_tasks.input_kinds import is_lazy
from support.data import Classes, make_blobs
from support.serving import serve
from support.setting_words import classifier_with

NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def data() -> Classes:
    return make_blobs(400, n_features=4, n_classes=3, seed=2)


def small(**more: Any) -> DCPredClassifier:
    few = {"n_leaves": 2, "landmarks": 6, "products": 4, "calibrate": False, "keep_support_vectors": True}
    return classifier_with(**(few | {"random_state": 0} | more))


@pytest.fixture(scope="module")
def model(data: Classes) -> DCPredClassifier:
    return small().fit(data.X, data.y)


@pytest.fixture
def no_compute() -> Iterator[None]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("something was computed")

    with dask.config.set(scheduler=refuse):
        yield


def frames(X: np.ndarray, npartitions: int = 3) -> dd.DataFrame:
    return dd.from_pandas(pd.DataFrame(X), npartitions=npartitions)


LAZY: dict[str, Any] = {
    "dask array": lambda X: da.from_array(X, chunks=(150, *X.shape[1:])),
    "dask frame": lambda X: frames(X) if X.ndim == 2 else dd.from_pandas(pd.Series(X), npartitions=3),
    "xarray": lambda X: xr.DataArray(da.from_array(X, chunks=(150, *X.shape[1:]))),
}


@pytest.mark.parametrize("kind", LAZY)
def test_the_same_model_block_by_block(data: Classes, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[type] = []

    def spy(*arguments: Any, **more: Any) -> Any:
        handed.extend(type(array) for array in arguments[:3])
        return fit(*arguments, **more)

    fit = out_of_core.fit
    monkeypatch.setattr(out_of_core, "fit", spy)
    weight = np.random.default_rng(0).uniform(0.5, 2, 400)
    own = small().fit(data.X, data.y, sample_weight=weight)
    lazy = small().fit(*(LAZY[kind](a) for a in (data.X, data.y)), sample_weight=LAZY[kind](weight))
    np.testing.assert_array_equal(lazy.model_.beta, own.model_.beta)
    assert handed == [da.Array] * 3
    beside = small().fit(LAZY[kind](data.X), data.y, sample_weight=weight)
    np.testing.assert_array_equal(beside.model_.beta, own.model_.beta)


def test_the_regressor(data: Classes) -> None:
    y = data.X[:, 0].astype(np.float64)
    own, lazy = (
        DCPredRegressor(n_leaves=2, random_state=0).fit(X, target)
        for X, target in ((data.X, y), (LAZY["dask frame"](data.X), LAZY["dask frame"](y)))
    )
    values = lazy.predict(frames(data.X))
    assert isinstance(values, dd.Series)
    np.testing.assert_array_equal(values.compute(scheduler="sync"), own.predict(data.X))
    bounds = lazy.predict_interval(frames(data.X)).compute(scheduler="sync")
    assert list(bounds.columns) == ["lower", "upper"]
    np.testing.assert_array_equal(bounds, own.predict_interval(data.X))


@pytest.mark.parametrize("method", ["predict", "predict_early", "decision_function"])
@pytest.mark.parametrize("kind", LAZY)
def test_prediction_is_lazy(
    model: DCPredClassifier, data: Classes, kind: str, method: str, request: Any
) -> None:
    request.getfixturevalue("no_compute")
    found = getattr(model, method)(LAZY[kind](data.X))
    assert isinstance(found, da.Array if kind != "dask frame" else dd.Series | dd.DataFrame)
    with pytest.raises(AssertionError, match="something was computed"):
        found.compute()
    np.testing.assert_array_equal(found.compute(scheduler="sync"), getattr(model, method)(data.X))


@pytest.mark.parametrize("kind", LAZY)
def test_score(model: DCPredClassifier, data: Classes, kind: str) -> None:
    """Lengths of the partitions of a frame need not be known."""
    weight = np.linspace(0.5, 2, 400)
    y = np.where(np.arange(400) % 3 == 0, 0, data.y)
    expected = model.score(data.X, y, sample_weight=weight)
    X, lazy_y, lazy_weight = (LAZY[kind](a) for a in (data.X, y, weight))
    assert model.score(X, lazy_y, sample_weight=lazy_weight) == pytest.approx(expected)
    assert model.score(X, y, sample_weight=weight) == pytest.approx(expected)
    regressor = DCPredRegressor(n_leaves=2, random_state=0).fit(data.X, data.X[:, 0])
    expected = regressor.score(data.X, y.astype(float))
    assert regressor.score(X, LAZY[kind](y.astype(float))) == pytest.approx(expected)


def test_partitions_of_no_rows(data: Classes) -> None:
    X = dd.concat([frames(data.X[:100], 2), frames(data.X[:100], 1).loc[1000:], frames(data.X[100:], 1)])
    y = da.from_array(data.y)
    fitted = small().fit(X, y)
    np.testing.assert_array_equal(fitted.model_.beta, small().fit(data.X, data.y).model_.beta)
    np.testing.assert_array_equal(fitted.predict(X).compute(scheduler="sync"), fitted.predict(data.X))


def test_columns_of_several_dtypes(data: Classes) -> None:
    frame = pd.DataFrame(data.X, columns=NAMES)
    frame["a"] = frame["a"] > 0
    frame["b"] = frame["b"].astype(int).astype("Int64")
    fitted = small().fit(dd.from_pandas(frame, npartitions=2), pd.Series(data.y, dtype="Int64"))
    plain = frame.astype(float).to_numpy()
    np.testing.assert_array_equal(fitted.model_.beta, small().fit(plain, data.y).model_.beta)
    assert fitted.classes_.dtype == np.int64
    frame.loc[3, "b"] = pd.NA
    decision = fitted.decision_function(dd.from_pandas(frame, npartitions=2)).compute(scheduler="sync")
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(decision).any(axis=1)), [3])


def test_columns_that_are_not_numbers(model: DCPredClassifier, data: Classes) -> None:
    frame = dd.from_pandas(pd.DataFrame(data.X, columns=NAMES).assign(b="red"), npartitions=2)
    with pytest.raises(DataError, match=r"column 'b' of X: its dtype str.* is not numeric"):
        model.predict(frame)
    spans = pd.DataFrame(data.X, columns=NAMES).assign(b=pd.Timedelta("1s"))
    with pytest.raises(DataError, match=r"column 'b' of X: it holds Timedelta .*\. Convert it or leave"):
        small().fit(dd.from_pandas(spans, npartitions=2), data.y)
    labels = dd.from_pandas(pd.Series(data.y).map({0: "x", 1: "y", 2: "z"}), npartitions=2)
    with pytest.raises(DataError, match=r"Cannot use y: its dtype str.* is not one of numbers"):
        DCPredRegressor().fit(frames(data.X), labels)


def test_a_lazy_target_of_text(data: Classes) -> None:
    names = np.array(["ash", "oak", "yew"])[data.y]
    fitted = small().fit(frames(data.X), dd.from_pandas(pd.Series(names), npartitions=3))
    inside = small().fit(data.X, names)
    assert fitted.classes_.tolist() == ["ash", "oak", "yew"]
    np.testing.assert_array_equal(fitted.model_.beta, inside.model_.beta)
    with pytest.raises(DataError, match="Cannot use y: it has missing values"):
        small().fit(
            frames(data.X), dd.from_pandas(pd.Series(names.tolist()).mask(names == "oak"), npartitions=3)
        )


def text_in_zarr(y: np.ndarray) -> zarr.Array:
    array = zarr.create_array({}, shape=y.shape, dtype=np.dtypes.StringDType(), chunks=(150,))
    array[...] = y.astype(np.dtypes.StringDType())
    return array


TEXT: dict[str, Any] = {
    "array": lambda y: y,
    "objects": lambda y: y.astype(object),
    "StringDType": lambda y: y.astype(np.dtypes.StringDType()),
    "list": lambda y: y.tolist(),
    "pandas": pd.Series,
    "categories": lambda y: pd.Series(y).astype("category"),
    "Dask array": lambda y: da.from_array(y, chunks=150),
    "Dask objects": lambda y: da.from_array(y.astype(object), chunks=150),
    "xarray": xr.DataArray,
    "xarray of Dask": lambda y: xr.DataArray(da.from_array(y, chunks=150)),
    "zarr": lambda y: text_in_zarr(y),
}


@pytest.mark.parametrize("kind", TEXT)
def test_classes_of_text_beside_lazy_rows(data: Classes, kind: str) -> None:
    names = np.array(["ash", "oak", "yew"])[data.y]
    fitted = small().fit(LAZY["dask array"](data.X), TEXT[kind](names))
    assert fitted.classes_.tolist() == ["ash", "oak", "yew"]
    np.testing.assert_array_equal(fitted.model_.beta, small().fit(data.X, data.y).model_.beta)


@pytest.mark.parametrize("wrap", [lambda y: y, lambda y: da.from_array(y, chunks=150)])
def test_classes_that_are_text_and_numbers(data: Classes, wrap: Any) -> None:
    names = np.array(["ash", "oak", "yew"], object)[data.y]
    names[4] = 1
    for X in (
        (data.X, LAZY["dask array"](data.X))
        if isinstance(wrap(names), np.ndarray)
        else [LAZY["dask array"](data.X)]
    ):
        with pytest.raises(DataError, match=r"y: it holds .*\. Make all classes text with y\.astype\(str\)"):
            small().fit(X, wrap(names))
    names[4] = None
    with pytest.raises(DataError, match="Cannot use y: it has missing values"):
        small().fit(LAZY["dask array"](data.X), wrap(names))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory, data: Classes) -> str:
    """Four files, which Dask reads as one part where few columns are read."""
    path = tmp_path_factory.mktemp("rows")
    rows = pd.DataFrame(data.X, columns=NAMES).assign(y=data.y, town=np.array(["u", "v", "w"])[data.y])
    for part in range(4):
        rows[100 * part : 100 * (part + 1)].to_parquet(path / f"{part}.parquet")
    return str(path)


@pytest.mark.parametrize("columns", [NAMES, [*NAMES, "town"]], ids=["numbers", "text"])
def test_files_of_parquet(data: Classes, parquet: str, columns: list[str]) -> None:
    """Each row gets its own answer beside it, whatever parts Dask makes of the files (dask#12411)."""
    q = dd.read_parquet(parquet)
    rows = pd.read_parquet(parquet)
    fitted = small(calibrate=True).fit(q[columns], q["y"])
    np.testing.assert_array_equal(fitted.model_.beta, small().fit(rows[columns], rows.y).model_.beta)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function", "novelty"):
        found = getattr(fitted, method)(q[columns])
        one = found if found.ndim == 1 else found.iloc[:, 1]
        beside = q.assign(found=one).compute()
        right = np.asarray(getattr(fitted, method)(rows[columns]))
        np.testing.assert_array_equal(beside.found, right if right.ndim == 1 else right[:, 1])
        np.testing.assert_array_equal(beside.a, rows.a)
        assert list(found.compute().index) == list(rows.index)


@pytest.mark.parametrize("kind", ["dask array", "dask frame"])
def test_answers_of_no_rows(data: Classes, kind: str) -> None:
    frame = pd.DataFrame(data.X, columns=NAMES)
    table = frame.assign(town=np.array(["u", "v", "w"])[data.y])
    for X in (frame, table) if kind == "dask frame" else (data.X,):
        fitted = small(calibrate=True).fit(X, data.y)
        lazy = X[:0] if kind == "dask array" else dd.concat([dd.from_pandas(X[:0], 1)] * 2)
        lazy = da.from_array(lazy, chunks=(1, 4)) if kind == "dask array" else lazy
        for method in ("predict", "predict_proba", "decision_function", "novelty", "predict_early"):
            inside = getattr(fitted, method)(X[:0])
            found = getattr(fitted, method)(lazy).compute()
            whole = np.asarray(getattr(fitted, method)(X))
            assert found.shape == inside.shape == (0, *whole.shape[1:])
            assert np.asarray(found).dtype == inside.dtype == whole.dtype


def test_blocks_that_are_masked_or_sparse(model: DCPredClassifier, data: Classes) -> None:
    masked = da.ma.masked_array(LAZY["dask array"](data.X), mask=LAZY["dask array"](data.X > 3))
    gaps = np.where(data.X > 3, np.nan, data.X)
    np.testing.assert_array_equal(
        model.decision_function(masked).compute(scheduler="sync"), model.decision_function(gaps)
    )
    fitted, right = small().fit(masked, data.y), small().fit(gaps, data.y)
    np.testing.assert_array_equal(fitted.model_.beta, right.model_.beta)
    sparse = LAZY["dask array"](data.X).map_blocks(scipy.sparse.csr_matrix)
    np.testing.assert_array_equal(model.predict(sparse).compute(scheduler="sync"), model.predict(data.X))
    whole = da.ma.masked_array(LAZY["dask array"](data.y), mask=np.arange(400) == 7)
    with pytest.raises(DataError, match=r"y: row 7 has the target nan"):
        small().fit(LAZY["dask array"](data.X), whole)


def test_zarr_rows_that_are_not_numbers(model: DCPredClassifier) -> None:
    with pytest.raises(DataError, match=r"X: its dtype StringDType.* is not"):
        model.predict(zarr.create_array({}, shape=(3, 4), dtype=np.dtypes.StringDType()))


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64"])
def test_a_lazy_target_with_missing_values(data: Classes, dtype: str) -> None:
    column = pd.Series(data.y > 0).astype(int).astype(dtype)
    column[7] = pd.NA
    lazy = dd.from_pandas(column, npartitions=3)
    with pytest.raises(DataError, match="Cannot use y: it has missing values"):
        small().fit(frames(data.X), lazy)
    with pytest.raises(DataError, match="Cannot use sample_weight: it has missing values"):
        small().fit(frames(data.X), LAZY["dask frame"](data.y), sample_weight=lazy)


@pytest.mark.parametrize("kind", ["dask array", "dask frame"])
def test_nothing_to_train_on(kind: str) -> None:
    with pytest.raises(
        DataError,
        match=r"^Cannot use X: it has 0 rows and 3 features\. Pass at least one of each\.$",
    ):
        small().fit(frames(np.empty((0, 3))) if kind == "dask frame" else da.zeros((0, 3)), da.zeros(0, int))


@pytest.mark.usefixtures("no_compute")
def test_collections_that_are_no_arrays_are_refused(model: DCPredClassifier, data: Classes) -> None:
    dataset = xr.Dataset({"features": (("row", "feature"), data.X)})
    refused = {
        "X: it is an xarray.Dataset": (dataset, dataset.chunk()),
        "Cannot use X: it is a Dask Bag": (dask.bag.from_sequence(data.X),),
        "Cannot use X: it is a Dask Delayed": (dask.delayed(data.X),),
    }
    for words, collections in refused.items():
        for X in collections:
            for call in (lambda X=X: small().fit(X, data.y), lambda X=X: model.predict(X)):
                with pytest.raises(DataError, match=words):
                    call()
            with pytest.raises(DataError, match=words.replace("X", "y", 1)):
                small().fit(da.from_array(data.X), X)


@pytest.mark.usefixtures("no_compute")
@pytest.mark.parametrize("kind", LAZY)
def test_lazy_targets_of_rows_in_memory_are_refused(data: Classes, kind: str) -> None:
    with pytest.raises(
        DataError, match=r"use y: it is a Dask collection, but X is in memory. .* y.compute\(\)"
    ):
        small().fit(data.X, LAZY[kind](data.y))
    with pytest.raises(DataError, match="Cannot use sample_weight: it is a Dask collection"):
        DCPredRegressor().fit(data.X, data.y, sample_weight=LAZY[kind](data.y))


@pytest.mark.usefixtures("no_compute")
def test_a_served_model_refuses_what_is_lazy(model: DCPredClassifier, data: Classes) -> None:
    served = serve(model)
    lazies = [make(data.X) for make in LAZY.values()]
    for X in (
        *lazies,
        xr.Dataset({"x": (("r", "f"), data.X)}).chunk(),
        dask.delayed(data.X),
        dask.bag.from_sequence(data.X),
    ):
        for method in (served.predict, served.predict_early, served.decision_function):
            with pytest.raises(
                DataError, match=r"X: it is not in memory \(\w+\).*map_blocks\(model.*`dcpred score`"
            ):
                method(X)


def test_a_served_model_refuses_a_dataset(model: DCPredClassifier, data: Classes) -> None:
    with pytest.raises(
        DataError,
        match=r"^Cannot use X: it is an xarray.Dataset, which holds several arrays\. Pass one of them: X\['f",
    ):
        serve(model).predict(xr.Dataset({"features": (("row", "feature"), data.X)}))


class LazyFrame:
    """A query as polars holds it."""

    @property
    def columns(self) -> list[str]:
        warnings.warn("the columns are resolved", stacklevel=1)
        return NAMES


@pytest.mark.filterwarnings("error")
def test_a_query_of_polars_is_refused(
    model: DCPredClassifier, data: Classes, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars = ModuleType("polars")
    monkeypatch.setattr(polars, "LazyFrame", LazyFrame, raising=False)
    monkeypatch.setitem(sys.modules, "polars", polars)
    served = serve(model)
    for call in (
        lambda X: small().fit(X, data.y),
        model.predict,
        model.predict_early,
        served.predict,
        served.decision_function,
    ):
        with pytest.raises(
            DataError, match=r"^Cannot use X: it is a polars LazyFrame, .*\. Pass X.collect\(\)\.$"
        ):
            call(LazyFrame())
    with pytest.raises(DataError, match=r"Cannot use y: it is a polars LazyFrame, .*\. Pass y.collect\(\)"):
        small().fit(data.X, LazyFrame())


def test_the_advice_of_a_served_model_works(model: DCPredClassifier, data: Classes) -> None:
    served, expected = serve(model), model.predict(data.X)
    blocks = da.from_array(data.X, chunks=(150, 4)).map_blocks(
        served.predict, drop_axis=1, dtype=expected.dtype, meta=expected[:0]
    )
    np.testing.assert_array_equal(blocks.compute(scheduler="sync"), expected)
    parts = frames(data.X).map_partitions(
        lambda part: pd.Series(served.predict(part)), meta=(None, expected.dtype)
    )
    np.testing.assert_array_equal(parts.compute(scheduler="sync"), expected)


def test_xarray_in_memory(model: DCPredClassifier, data: Classes) -> None:
    X, y = xr.DataArray(data.X), xr.DataArray(data.y)
    np.testing.assert_array_equal(small().fit(X, y).model_.beta, model.model_.beta)
    for predictor in (model, serve(model)):
        np.testing.assert_array_equal(predictor.predict(X), model.predict(data.X))


def unread(path: Path, array: np.ndarray) -> xr.DataArray:
    """As xarray.open_zarr(path, chunks=None) and open_dataset give it: read when it is asked for, without
    Dask.
    """
    names = ("sample", "feature")[: array.ndim]
    zarr.create_group(path).create_array(
        "values", data=array, chunks=(150, *array.shape[1:]), dimension_names=names
    )
    return xr.open_zarr(path, chunks=None, consolidated=False)["values"]


@pytest.fixture
def no_reading_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    values = xr.Variable.values.fget

    def refuse(variable: xr.Variable) -> np.ndarray:
        assert len(variable) < 400, "read in the client"
        return values(variable)

    monkeypatch.setattr(xr.Variable, "values", property(refuse))


def test_xarray_that_is_not_yet_read(
    tmp_path: Path, model: DCPredClassifier, data: Classes, request: Any
) -> None:
    weight = np.random.default_rng(0).uniform(0.5, 2, 400)
    own = small().fit(data.X, data.y, sample_weight=weight)
    X, y, lazy_weight = (
        unread(tmp_path / n, a) for n, a in (("X", data.X), ("y", data.y), ("weight", weight))
    )
    renamed = X.rename(sample="row")  # what is stored tells chunks of a dimension that is no more
    request.getfixturevalue("no_reading_whole")
    assert [is_lazy(array) for array in (X, X.to_dataset(name="X"), xr.DataArray(data.X))] == [
        True,
        True,
        False,
    ]
    with pytest.raises(AssertionError, match="read in the client"):
        np.asarray(X)
    np.testing.assert_array_equal(small().fit(X, y, sample_weight=lazy_weight).model_.beta, own.model_.beta)
    assert not X.variable._in_memory
    for rows in (X, renamed):
        found = model.predict(rows)
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(found.compute(scheduler="sync"), model.predict(data.X))
    assert found.chunks == ((400,),)
    assert model.predict(X).chunks == ((150, 150, 100),)
    with pytest.raises(
        DataError,
        match=r"y: it is an xarray.DataArray that is not yet read, but X is in memory. .* y.compute\(\)",
    ):
        small().fit(data.X, y)
    for method in (serve(model).predict, serve(model).decision_function):
        with pytest.raises(
            DataError, match=r"X: it is not in memory \(DataArray\), and a served model predicts"
        ):
            method(X)


def test_an_index_of_xarray_is_in_memory(data: Classes) -> None:
    numbers = (
        xr.DataArray(data.X, dims=("row", "feature"))
        .to_dataset(name="X")
        .assign_coords(row=pd.RangeIndex(400))["row"]
    )
    assert not is_lazy(numbers)


def test_dask_dataframe_is_not_imported_until_somebody_has_one() -> None:
    code = "import sys, dcpred.estimators; sys.exit('imported' if 'dask.dataframe' in sys.modules else 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def _wide(kind: str, rows: np.ndarray) -> Any:
    if kind == "Zarr":
        stored = zarr.create_array(zarr.storage.MemoryStore(), shape=rows.shape, dtype=rows.dtype)
        stored[:] = rows
        return stored
    return LAZY[kind](rows)


@pytest.mark.parametrize("kind", [*LAZY, "Zarr"])
def test_whole_numbers_that_float64_rounds_are_refused(
    kind: str, data: Classes, model: DCPredClassifier
) -> None:
    rows = np.zeros((400, 4), np.int64)
    rows[9, 2] = 2**53 + 1
    words = "column 2: it holds the integer 9007199254740993, which float64 would round"
    with pytest.raises(DataError, match=words):
        small().fit(_wide(kind, rows), data.y)
    with pytest.raises(DataError, match=words):
        model.predict(_wide(kind, rows)).compute()
    with pytest.raises(DataError, match=words):
        model.score(_wide(kind, rows), data.y)
