"""Packed numbers and missing-value markers of Zarr, NetCDF and HDF5: imports decode them as xarray does, and
commands that read arrays directly refuse them.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from scipy.io import netcdf_file

from dcpred import DCPredClassifier, explain, import_data, load_model
from dcpred.datasets.splitting import split
from dcpred.evaluation.evaluate import evaluate
from dcpred.evaluation.explanation import explain_stored
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request
from dcpred.training.fit import check_training_data
from dcpred_tasks.errors import DataError
from dcpred_tasks.model.class_codes import class_labels
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.object_arrays import encoding_of
from dcpred_tasks.training.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")  # written without a marker
RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(40, 3))
MISSING = np.where(np.arange(120).reshape(40, 3) % 7 == 0, np.nan, FLOATS)
# Values, and how they are stored.
ENCODINGS: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "packed": (FLOATS, {"dtype": "i2", "scale_factor": 0.001, "add_offset": 0.5}),
    "packed with a marker": (MISSING, {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -32768}),
    "offset alone": (np.rint(FLOATS * 9), {"dtype": "i4", "add_offset": 7.0, "_FillValue": -1000}),
    "integers": (np.rint(MISSING * 50), {"dtype": "i2", "_FillValue": -9999}),
    "wide integers": (np.rint(MISSING * 1e9), {"dtype": "i8", "_FillValue": -(2**62)}),
    "missing_value": (np.rint(MISSING * 50), {"dtype": "i2", "missing_value": np.int16(-9)}),
    "single": (MISSING, {"dtype": "f4", "_FillValue": np.float32(-999.9)}),
    "double": (MISSING, {"dtype": "f8", "_FillValue": -999.9}),
    "NaN": (MISSING, {"dtype": "f8", "_FillValue": np.nan}),
    "unsigned": (np.rint(abs(MISSING) * 60), {"dtype": "i1", "_Unsigned": "true", "_FillValue": np.int8(-1)}),
}


def as_zarr(form: int) -> Callable[[xr.Dataset, Path, dict[str, Any]], tuple[Path, xr.Dataset]]:
    def write(dataset: xr.Dataset, folder: Path, encoding: dict[str, Any]) -> tuple[Path, xr.Dataset]:
        path = folder / "in.zarr"
        dataset.to_zarr(path, zarr_format=form, encoding=encoding, consolidated=False)
        return path, xr.open_zarr(path, consolidated=False).load()

    return write


def as_netcdf(engine: str) -> Callable[[xr.Dataset, Path, dict[str, Any]], tuple[Path, xr.Dataset]]:
    def write(dataset: xr.Dataset, folder: Path, encoding: dict[str, Any]) -> tuple[Path, xr.Dataset]:
        path = folder / "in.nc"
        dataset.to_netcdf(path, engine=engine, encoding=encoding)
        return path, xr.load_dataset(path, engine=engine)

    return write


WRITERS = {
    "zarr 2": as_zarr(2),
    "zarr 3": as_zarr(3),
    "netcdf 4": as_netcdf("h5netcdf"),
    "netcdf 3": as_netcdf("scipy"),
}

STORED = [
    (writer, kind)
    for writer in WRITERS
    for kind in ENCODINGS
    if writer != "netcdf 3" or kind not in ("wide integers", "unsigned")  # dtypes that it lacks
]


def bring(source: Path, folder: Path, **options: Any) -> zarr.Group:
    import_data(source, folder / "out.zarr", **options)
    return zarr.open_group(folder / "out.zarr", mode="r")


@pytest.mark.parametrize(("writer", "kind"), STORED)
def test_values_are_those_that_xarray_reads(tmp_path: Path, writer: str, kind: str) -> None:
    values, encoding = ENCODINGS[kind]
    y = np.arange(40) % 3
    dataset = xr.Dataset({"X": (("sample", "feature"), values), "y": ("sample", y.astype("i2"))})
    path, read = WRITERS[writer](dataset, tmp_path, {"X": encoding})
    group = bring(path, tmp_path)
    np.testing.assert_allclose(group["X"][:], read["X"].values, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(group["X"][:], values, atol=0.001)
    np.testing.assert_array_equal(group["y"][:], y)


@pytest.mark.parametrize(("writer", "kind"), STORED)
def test_columns_are_those_that_xarray_reads(tmp_path: Path, writer: str, kind: str) -> None:
    values, encoding = ENCODINGS[kind]
    dataset = xr.Dataset({"a": ("sample", values[:, 0]), "b": ("sample", values[:, 1])})
    path, read = WRITERS[writer](dataset, tmp_path, {"a": encoding, "b": encoding})
    X = bring(path, tmp_path)["X"][:]
    np.testing.assert_allclose(X, np.column_stack([read["a"], read["b"]]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("writer", WRITERS)
def test_packed_targets_dates_and_ids(tmp_path: Path, writer: str) -> None:
    y = FLOATS[:, 0]
    dates = np.datetime64("2020-01-01", "ns") + np.arange(40) * np.timedelta64(6, "h")
    dates[3] = np.datetime64("NaT")
    numbers = np.arange(40.0)
    columns = {"x": FLOATS[:, 1], "when": dates, "y": y, "id": numbers}
    packed = {"dtype": "i4", "scale_factor": 0.001, "_FillValue": -1}
    path, read = WRITERS[writer](
        xr.Dataset({name: ("sample", values) for name, values in columns.items()}),
        tmp_path,
        {
            "y": packed,
            "id": {"dtype": "i2", "add_offset": 100.0},
            "when": {"dtype": "i4", "units": "hours since 2020-01-01", "_FillValue": -1},
        },
    )
    group = bring(path, tmp_path, target="y", ids=["id"])
    np.testing.assert_allclose(group["y"][:], read["y"], atol=1e-6)
    np.testing.assert_array_equal(group["id"][:], numbers)
    names = group["X"].attrs["feature_names"]
    days = group["X"][:, next(i for i, name in enumerate(names) if name.startswith("when"))]
    assert np.flatnonzero(np.isnan(days)).tolist() == [3]
    assert days[0] == 18262


def test_packed_times_are_unpacked_first(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "in.zarr")
    attributes = {"units": "days since 2020-01-01", "scale_factor": 0.5, "missing_value": -1}
    group.create_array("when", data=np.array([2, -1], np.int16), attributes=attributes)
    X = bring(tmp_path / "in.zarr", tmp_path)["X"][:]
    np.testing.assert_array_equal(X[:, 0], [18263, np.nan])


@pytest.mark.parametrize("packed", [False, True])
def test_a_target_without_a_value_is_named(tmp_path: Path, packed: bool) -> None:
    group = zarr.create_group(tmp_path / "in.zarr")
    group.create_array("X", data=FLOATS)
    y = np.where(np.arange(40) == 7, -1, np.arange(40) % 2).astype(np.int8)
    attributes = {"_FillValue": -1} | ({"scale_factor": 2.0} if packed else {})
    group.create_array("y", data=y, attributes=attributes)
    with pytest.raises(DataError, match=r"array 'y' of in.zarr as target: it is missing in row 7"):
        bring(tmp_path / "in.zarr", tmp_path)
    group["y"][7] = 1
    found = bring(tmp_path / "in.zarr", tmp_path)["y"]
    np.testing.assert_array_equal(found[:], np.where(y < 0, 1, y) * (2 if packed else 1))
    assert packed or found.dtype == np.int8


def test_a_scale_of_one_changes_nothing(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "in.zarr")
    attributes = {"scale_factor": 1.0, "add_offset": 0.0, "valid_range": [0, 1]}
    for name, values in (("X", np.arange(120).reshape(40, 3)), ("y", np.arange(40) % 2)):
        group.create_array(name, data=values, attributes=attributes)
    assert open_array(tmp_path / "in.zarr" / "y")[:].tolist() == (np.arange(40) % 2).tolist()
    assert bring(tmp_path / "in.zarr", tmp_path)["y"].dtype == np.int64


@pytest.mark.parametrize(
    ("attributes", "dtype", "stored", "values"),
    [
        ({"_FillValue": -999.9}, "f4", [-999.9, 1], [np.nan, 1]),
        ({"missing_value": [-9, -8]}, "i2", [-9, -8, 1], [np.nan, np.nan, 1]),
        ({"missing_value": np.array([-9.0, np.nan])}, "i2", [-9, 1], [np.nan, 1]),
        ({"_FillValue": 1e9}, "i2", [-9, 1], [-9, 1]),
        ({"_FillValue": "-9"}, "i2", [-9, 1], [np.nan, 1]),
        ({"_FillValue": 255, "_Unsigned": "true"}, "i1", [-1, -2], [np.nan, 254]),
        ({"_FillValue": -1, "_Unsigned": "false"}, "u1", [255, 1], [np.nan, 1]),
        ({"_FillValue": -1, "_Unsigned": b"true", "scale_factor": 0.5}, "i1", [-1, -2], [np.nan, 127]),
        ({"scale_factor": [0.5]}, ">i2", [2, 4], [1, 2]),
    ],
)
def test_forms_of_attributes(attributes: dict[str, Any], dtype: str, stored: list[Any], values: Any) -> None:
    raw = np.array(stored, dtype)
    encoding = encoding_of(attributes, raw.dtype, "a")
    found = encoding.filled(raw, "a")
    np.testing.assert_array_equal(found, values)
    assert found.dtype == encoding.filled_dtype


def test_attributes_that_decode_nothing() -> None:
    with pytest.raises(
        DataError, match=r"Cannot decode a: its attribute scale_factor is 'tenths', not a num"
    ):
        encoding_of({"scale_factor": "tenths"}, np.dtype("i2"), "a")
    large = np.array([2**53 + 1, -1])
    with pytest.raises(DataError, match="9007199254740993, which float64 would round"):
        encoding_of({"_FillValue": -1}, large.dtype, "a").filled(large, "a")


def test_defaults_of_netcdf_are_missing_values(tmp_path: Path) -> None:
    """As the netCDF4 package writes a masked array into a variable without an attribute."""
    default = np.float32(9.969209968386869e36)
    with netcdf_file(tmp_path / "a.nc", "w") as file:
        file.createDimension("sample", 2)
        file.createVariable("v", "f4", ("sample",))[:] = [1, default]
        file.createVariable("n", "i2", ("sample",))[:] = [1, -32767]
    np.testing.assert_array_equal(bring(tmp_path / "a.nc", tmp_path)["X"][:], [[1, 1], [np.nan, -32767]])
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["v"] = np.array([1, default])
    import_data(tmp_path / "b.h5", tmp_path / "b.zarr")
    assert zarr.open_group(tmp_path / "b.zarr")["X"][1, 0] == default


def test_text_that_stands_for_a_missing_value(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "in.zarr")
    words = np.array(["a", "none", "b", "a"] * 10, np.dtypes.StringDType())
    group.create_array("word", data=words, attributes={"missing_value": "none"})
    group.create_array("y", data=np.arange(40) % 2)
    import_data(tmp_path / "in.zarr", tmp_path / "out.zarr", target="y", categorical=["word"])
    X = zarr.open_group(tmp_path / "out.zarr")["X"][:, 0]
    assert (X[1] == X[::4]).sum() == (X[1] == X[2::4]).sum() == 0
    group.create_array("X", data=FLOATS)
    group.create_array("t", data=words, attributes={"missing_value": "none"})
    with pytest.raises(DataError, match=r"array 't' of in.zarr as target: it is missing in row 1"):
        import_data(tmp_path / "in.zarr", tmp_path / "other.zarr", y="t")


# -- Arrays that are read directly ---------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    X = np.where(np.arange(40)[:, None] == 5, np.nan, FLOATS)
    encoding = {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -32768}
    dataset = xr.Dataset({"X": (("sample", "feature"), X), "y": ("sample", (FLOATS[:, 0] > 0).astype("i1"))})
    return as_zarr(2)(dataset, tmp_path, {"X": encoding})[0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fitted = DCPredClassifier(n_leaves=1, landmarks=4, random_state=0).fit(FLOATS, FLOATS[:, 0] > 0)
    path = tmp_path_factory.mktemp("packed") / "model"
    fitted.save(path)
    return path


SENTENCE = (
    r"Cannot use .*in.zarr/X directly: .*scale_factor, _FillValue.*`dcpred import .*in.zarr NEW.zarr --x X`"
)


def test_every_direct_reader_refuses_packed_rows(packed: Path, model: Path, tmp_path: Path) -> None:
    x, y = str(packed / "X"), str(packed / "y")
    group = zarr.open_group(packed, mode="r")
    fitted = DCPredClassifier(n_leaves=1, landmarks=4, random_state=0).fit(FLOATS, FLOATS[:, 0] > 0)
    readers: dict[str, Callable[[], Any]] = {
        "train": lambda: check_training_data(x, y, None, Settings()),
        "score": lambda: plan_run(Request(model, x, tmp_path / "o")),
        "score with quarantine": lambda: plan_run(Request(model, x, tmp_path / "o"), repairs=True),
        "evaluate": lambda: evaluate(model, packed),
        "explain": lambda: explain_stored(model, x, [5]),
        "split": lambda: split(str(packed)),
        "fit": lambda: DCPredClassifier(n_leaves=1, landmarks=4).fit(group["X"], group["y"]),
        "predict": lambda: fitted.predict(group["X"]),
        "serve": lambda: load_model(model).predict(group["X"]),
        "explain in memory": lambda: explain(load_model(model), group["X"], [5]),
    }
    before = sorted(tmp_path.rglob("*"))
    for name, read in readers.items():
        with pytest.raises(DataError) as caught:
            read()
        assert re.search(SENTENCE, str(caught.value)), name
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_that_is_named_works(packed: Path, tmp_path: Path) -> None:
    import_data(packed, tmp_path / "new.zarr", x="X")
    X = open_array(tmp_path / "new.zarr" / "X")
    assert np.isnan(X[5]).all()
    np.testing.assert_allclose(np.delete(X[:], 5, 0), np.delete(FLOATS, 5, 0), atol=0.001)


def test_undecoded_arrays_of_xarray(packed: Path) -> None:
    raw = xr.open_zarr(packed, consolidated=False, mask_and_scale=False)
    fitted = DCPredClassifier(n_leaves=1, landmarks=4, random_state=0).fit(FLOATS, FLOATS[:, 0] > 0)
    for X in (raw["X"], raw["X"].load()):
        with pytest.raises(DataError, match="mask_and_scale"):
            fitted.predict(X)
    decoded = xr.open_zarr(packed, consolidated=False)["X"].load()
    assert len(fitted.decision_function(decoded)) == 40


def test_columns_beside_a_split_keep_their_markers(tmp_path: Path) -> None:
    """The parts are of format 3, where a fill value marks nothing."""
    dataset = xr.Dataset(
        {
            "X": (("sample", "feature"), FLOATS),
            "y": ("sample", (FLOATS[:, 0] > 0).astype("i1")),
            "depth": ("sample", np.where(np.arange(40) % 5 == 0, np.nan, np.arange(40.0))),
        }
    )
    path, _ = as_zarr(2)(dataset, tmp_path, {"depth": {"dtype": "i2", "_FillValue": -1}})
    split(str(path), seed=0)
    parts = [zarr.open_group(tmp_path / f"in-{part}.zarr") for part in ("train", "test")]
    assert [part["depth"].attrs["_FillValue"] for part in parts] == [-1, -1]
    with pytest.raises(DataError, match=r"Cannot use .*depth directly"):
        split(str(path), by_time="depth", into=(str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")))


# -- Names of classes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["oak", "elm", "oak"], "gives the name 'oak' to the classes 0 and 2"),
        ([1, "1"], "gives the name '1' to the classes 0 and 1"),
        (np.array([b"oak", b"oak"]), "gives the name 'oak' to the classes 0 and 1"),
        (["oak", None], "gives class 1 the name 'None'"),
        (["oak", ""], "gives class 1 the name ''"),
        ([["oak"], ["elm"]], "gives class 0 the name"),
        ([float("nan")], "gives class 0 the name 'nan'"),
    ],
)
def test_labels_that_name_no_classes(labels: Any, words: str) -> None:
    with pytest.raises(DataError, match=f"The attribute labels of y {words}"):
        class_labels({"labels": labels}, "y")


def test_labels_that_name_classes() -> None:
    assert class_labels({"labels": ["oak", 7, 1.5]}, "y") == ("oak", "7", "1.5")
    assert class_labels({"labels": np.array(["oak", "elm"], object)}, "y") == ("oak", "elm")
    assert class_labels({"labels": "kinds of trees"}, "y") is class_labels({}, "y") is None
