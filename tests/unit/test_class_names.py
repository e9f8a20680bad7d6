"""The names of classes that an attribute `labels` of y lists are what an estimator learns and is
scored by.
"""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from dcpred import DCPredClassifier, DCPredRegressor
from dcpred_tasks.errors import DataError
from support.data import Classes, make_blobs, make_group
from support.setting_words import classifier_with

NAMES = ["ash", "oak", "yew"]


@pytest.fixture(scope="module")
def data() -> Classes:
    return make_blobs(300, n_features=4, n_classes=3, seed=1)


def small(**more: Any) -> DCPredClassifier:
    few = {"n_leaves": 2, "landmarks": 6, "products": 4, "calibrate": False, "random_state": 0}
    return classifier_with(**(few | more))


def with_names(array: Any, names: Any = NAMES) -> xr.DataArray:
    return xr.DataArray(array, attrs={"labels": names})


def zarr_in_memory(y: np.ndarray) -> zarr.Array:
    array = zarr.create_array({}, data=y, chunks=(100,))
    array.attrs["labels"] = NAMES
    return array


TARGETS: dict[str, Any] = {
    "xarray": with_names,
    "xarray of dask": lambda y: with_names(da.from_array(y, chunks=100)),
    "zarr in memory": zarr_in_memory,
}


@pytest.mark.parametrize(  # a lazy target of rows in memory is refused
    ("kind", "lazy"),
    [(kind, lazy) for kind in TARGETS for lazy in (False, True) if lazy or kind != "xarray of dask"],
)
def test_classes_have_names(data: Classes, kind: str, lazy: bool) -> None:
    X, y = da.from_array(data.X, chunks=(100, 4)) if lazy else data.X, TARGETS[kind](data.y)
    names = np.array(NAMES)[data.y]
    fitted, own = small().fit(X, y), small().fit(data.X, names)
    assert fitted.classes_.tolist() == NAMES
    assert list(fitted.model_.classes) == NAMES
    np.testing.assert_array_equal(fitted.predict(data.X), own.predict(data.X))
    assert fitted.score(X, names) == fitted.score(X, y) == own.score(data.X, names) > 0.5


@pytest.mark.parametrize("chunks", [None, {}], ids=["not yet read", "dask"])
def test_a_data_set_of_ours_that_xarray_opens(tmp_path: Path, data: Classes, chunks: Any) -> None:
    group = zarr.create_group(tmp_path / "d.zarr")
    group.create_array("X", data=data.X, chunks=(100, 4), dimension_names=("sample", "feature"))
    group.create_array(
        "y", data=data.y, chunks=(100,), dimension_names=("sample",), attributes={"labels": NAMES}
    )
    opened = xr.open_zarr(tmp_path / "d.zarr", chunks=chunks, consolidated=False)
    fitted = small().fit(opened["X"], opened["y"])
    assert fitted.classes_.tolist() == NAMES
    assert fitted.score(opened["X"], opened["y"]) == fitted.score(data.X, np.array(NAMES)[data.y]) > 0.5


def test_a_zarr_target_of_rows_in_memory(tmp_path: Path, data: Classes) -> None:
    group = zarr.open_group(make_group(tmp_path / "d.zarr", data.X, data.y, labels=NAMES), mode="r")
    assert small().fit(data.X, group["y"]).classes_.tolist() == NAMES
    by_numbers = small().fit(data.X, data.y)
    assert by_numbers.score(data.X, group["y"]) == by_numbers.score(data.X, data.y)


@pytest.mark.parametrize("lazy", [False, True], ids=["in memory", "lazy"])
def test_numbers_without_a_name(data: Classes, lazy: bool) -> None:
    X = da.from_array(data.X, chunks=(100, 4)) if lazy else data.X
    with pytest.raises(
        DataError,
        match=r"y: it has the value 2 in row .* names only the classes 0 to 1",
    ):
        small().fit(X, with_names(data.y, NAMES[:2]))


@pytest.mark.parametrize("lazy", [False, True], ids=["in memory", "lazy"])
def test_whole_numbers_that_are_floats(data: Classes, lazy: bool) -> None:
    """xarray decodes whole numbers with a fill value as floats, NaN where a value is missing."""
    X = da.from_array(data.X, chunks=(100, 4)) if lazy else data.X
    y = data.y.astype(np.float32)
    assert small().fit(X, with_names(y)).classes_.tolist() == NAMES
    y[7] = 0.5
    with pytest.raises(
        DataError,
        match=r"y: it has the value 0.5 in row 7, .* only the classes 0 to 2",
    ):
        small().fit(X, with_names(y))
    y[7] = np.nan
    with pytest.raises(DataError, match="y: it has missing values"):
        small().fit(X, with_names(y))


@pytest.mark.parametrize("lazy", [False, True], ids=["in memory", "lazy"])
def test_regression_refuses_them(data: Classes, lazy: bool) -> None:
    X = da.from_array(data.X, chunks=(100, 4)) if lazy else data.X
    with pytest.raises(DataError, match="Cannot use y for regression: it holds class labels"):
        DCPredRegressor().fit(X, with_names(data.y))


def test_what_is_no_name_of_a_class(data: Classes) -> None:
    """An attribute of another kind, and one beside names in the array itself."""
    assert small().fit(data.X, with_names(data.y, "red or blue")).classes_.tolist() == [0, 1, 2]
    names = np.array(NAMES, object)[data.y]
    assert small().fit(data.X, with_names(names, ["x", "y", "z"])).classes_.tolist() == NAMES
