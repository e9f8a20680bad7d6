"""Folders of Parquet, Arrow's files, Zarr, HDF5, NetCDF and sparse matrices: what is read, and what is
refused in which words.
"""

import errno
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr
from scipy.io import netcdf_file

from dcpred import import_data
from dcpred.datasets import array_sources, containers, sparse
from dcpred.datasets.array_sources import read_arrays
from dcpred.datasets.containers import ZarrGroup
from dcpred_tasks.errors import DataError, ResourceError, SettingsError
from dcpred_tasks.storage import zarr_arrays

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(20, 3))


def bring(source: Any, folder: Path, **options: Any) -> zarr.Group:
    dest = folder / f"out-{len(list(folder.iterdir()))}.zarr"
    import_data(source, dest, **options)
    return zarr.open_group(dest, mode="r")


def refused(source: Any, folder: Path, *words: str, **options: Any) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(DataError) as caught:
        import_data(source, folder / "out.zarr", **options)
    for word in words:
        assert word in str(caught.value)
    assert sorted(folder.rglob("*")) == before


def parquet(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


# -- Folders of Parquet --------------------------------------------------------------------------------------


def test_names_of_folders_are_columns(tmp_path: Path) -> None:
    folder = tmp_path / "hive"
    frame = pd.DataFrame({"a": range(40), "year": [2020, 2021] * 20, "who": ["x", "y", "x", None] * 10})
    pq.write_to_dataset(pa.Table.from_pandas(frame), folder, partition_cols=["year", "who"])
    group = bring(folder, tmp_path)
    assert group["X"].attrs["feature_names"] == ["a", "year", "who"]
    rows = {int(a): (year, who) for a, year, who in group["X"][:].tolist()}
    codes = {"x": 0, "y": 1}
    assert rows == {
        i: (frame.year[i], 3 if pd.isna(frame.who[i]) else codes[frame.who[i]]) for i in range(len(frame))
    }
    kinds = [c["kind"] for c in group.attrs["dcpred_schema"]["columns"]]
    assert kinds == ["number", "number", "category"]
    assert group.attrs["source"] == "hive"


def test_files_may_have_other_orders_and_types(tmp_path: Path) -> None:
    parquet(tmp_path / "f/1.parquet", a=pa.array([1, 2], pa.int8()), b=["x", None])
    parquet(tmp_path / "f/0.parquet", b=pa.array(["y", "x"]).dictionary_encode(), a=pa.array([2**40, 3]))
    parquet(tmp_path / "f/.hidden.parquet", q=[1])
    parquet(tmp_path / "f/_temporary/2.parquet", q=[1])
    group = bring(tmp_path / "f", tmp_path)
    assert group["X"].attrs["feature_names"] == ["b", "a"]
    assert group["X"].dtype == np.int64
    assert group["X"][:, 1].tolist() == [2**40, 3, 1, 2]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"0": {"a": [1]}, "1": {"b": [1]}}, ["'b' is in 1.parquet and not in 0.parquet"]),
        ({"0": {"a": [1]}, "1": {"a": [1], "b": [1]}}, ["'b' is in 1.parquet and not in 0.parquet"]),
        ({"0": {"a": [1]}, "1": {"a": ["x"]}}, ["'a' is int64 in 0.parquet and string in 1.parquet"]),
        ({"y=1/0": {"a": [1], "y": [2]}}, ["'y' is in its files and in the names of its folders"]),
        ({"y=1/0": {"a": [1]}, "1": {"a": [1]}}, ["its files lie below folders of different columns"]),
        ({"0": {"a": pa.array([], pa.int8())}}, ["has no rows"]),
    ],
)
def test_folders_that_are_no_table(tmp_path: Path, files: dict[str, Any], words: list[str]) -> None:
    for name, columns in files.items():
        parquet(tmp_path / "f" / f"{name}.parquet", **columns)
    refused(tmp_path / "f", tmp_path, *words)


def test_a_folder_without_parquet(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f/a.csv").write_text("a\n1\n")
    refused(tmp_path / "f", tmp_path, "no .parquet file is there")


# -- Arrow's files -------------------------------------------------------------------------------------------


def test_files_of_arrow_that_are_none(tmp_path: Path) -> None:
    for name, content in (
        ("a.feather", b"nothing"),
        ("b.arrow", b"ARROW1\0\0nothing"),
        ("c.arrows", b"\0" * 9),
    ):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, tmp_path, name)
    (tmp_path / "d.feather").write_bytes(b"FEA1...")
    refused(tmp_path / "d.feather", tmp_path, "Feather version 1. Write it again")
    pyarrow.feather.write_feather(pa.table({"a": pa.array([], pa.int8())}), str(tmp_path / "e.feather"))
    refused(tmp_path / "e.feather", tmp_path, "has no rows")
    pyarrow.feather.write_feather(pa.table({"a": range(9999)}), str(tmp_path / "g.feather"))
    (tmp_path / "g.feather").write_bytes((tmp_path / "g.feather").read_bytes()[:-900])
    refused(tmp_path / "g.feather", tmp_path, "damaged")


# -- Frames --------------------------------------------------------------------------------------------------


def test_an_index_is_no_column_and_numbered_columns_get_their_numbers(tmp_path: Path) -> None:
    group = bring(pd.DataFrame(MATRIX, index=[f"row {i}" for i in range(20)]), tmp_path)
    assert group["X"].attrs["feature_names"] == ["0", "1", "2"]
    np.testing.assert_array_equal(group["X"][:], MATRIX)
    assert group.attrs["source"] == "pandas.DataFrame"


def test_an_index_that_pandas_stored_is_no_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="key"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert bring(tmp_path / "a.parquet", tmp_path)["X"].attrs["feature_names"] == ["a"]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"a": [1, "x"]}), ["column 'a' of the frame: it holds values of several kinds"]),
        (pd.DataFrame({"a": [1 + 2j]}), ["column 'a' of the frame"]),
        (pd.DataFrame({"a": pd.to_timedelta([1], "s")}), ["column 'a' of the frame", "duration"]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ["'a' occurs twice"]),
        (pd.DataFrame([[1, 2]], columns=["a", 3]), ["the column 3 is not named by a string"]),
        (pd.DataFrame({"a": []}), ["has no rows"]),
        (pl.DataFrame({"a": [[1]]}), ["column 'a' of the frame", "list"]),
        (pl.LazyFrame({"a": [1]}), ["LazyFrame", "collect"]),
        ([1, 2], ["import from builtins.list", "pandas, polars, pyarrow"]),
        (MATRIX, ["import from numpy.ndarray"]),
    ],
)
def test_frames_that_are_no_table(tmp_path: Path, frame: Any, words: list[str]) -> None:
    refused(frame, tmp_path, *words)


def test_options_that_are_of_files(tmp_path: Path) -> None:
    refused(pd.DataFrame({"a": [1]}), tmp_path, "x Z with a frame", x="Z")


# -- Zarr ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_groups_and_arrays_of_zarr(tmp_path: Path, version: Any) -> None:
    group = zarr.create_group(tmp_path / "g.zarr", zarr_format=version)
    group.create_array("X", data=MATRIX, chunks=(7, 2), attributes={"feature_names": ["p", "q", "r"]})
    group.create_array("y", data=np.arange(20) % 2, attributes={"labels": ["no", "yes"]})
    group.create_array("Z", data=MATRIX[:, :2])
    found = bring(tmp_path / "g.zarr", tmp_path)
    np.testing.assert_array_equal(found["X"][:], MATRIX)
    np.testing.assert_array_equal(found["y"][:], np.arange(20) % 2)
    assert found["X"].attrs["feature_names"] == ["p", "q", "r"]
    assert found["y"].attrs["labels"] == ["no", "yes"]
    assert found["X"].metadata.zarr_format == 3
    assert "dcpred_schema" not in found.attrs
    group["y"].attrs["labels"] = ["no"]
    with pytest.raises(
        DataError, match=r"y' of g\.zarr: it has the value 1 in row 1, and .* the classes 0 to 0"
    ):
        import_data(str(tmp_path / "g.zarr"), str(tmp_path / "refused.zarr"))
    assert not (tmp_path / "refused.zarr").exists()
    group["y"].attrs["labels"] = ["no", "yes"]
    other = bring(tmp_path / "g.zarr", tmp_path, x="Z", y="y")
    np.testing.assert_array_equal(other["X"][:], MATRIX[:, :2])
    single = bring(tmp_path / "g.zarr" / "Z", tmp_path)
    np.testing.assert_array_equal(single["X"][:], MATRIX[:, :2])


def test_arrays_of_one_column_are_a_table(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("n", data=np.arange(6, dtype=">i2"))
    group.create_array("f", data=np.linspace(0, 1, 6)[:, None])
    group.create_array("b", data=np.array([True, False] * 3))
    group.create_array("none", data=np.float64(3))
    group.create_array("t", data=np.array(["x", "y", "", "x", "y", ""], np.dtypes.StringDType()))
    found = bring(tmp_path / "g.zarr", tmp_path, target="b", chunk_rows=4)
    assert found["X"].attrs["feature_names"] == ["f", "n", "t"]
    np.testing.assert_array_equal(
        found["X"][:], np.column_stack([np.linspace(0, 1, 6), np.arange(6), [0, 1, 3, 0, 1, 3]])
    )
    assert found["y"][:].tolist() == [True, False] * 3


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        ({"a": np.arange(3), "b": np.arange(4)}, {}, ["'a' has 3 values and 'b' 4"]),
        ({"A": MATRIX, "B": MATRIX}, {}, ["holds the matrices A, B", "--x"]),
        ({"A": MATRIX, "g": np.arange(20)}, {"y": "g"}, ["--x"]),
        ({"A": MATRIX}, {"x": "Z"}, ["Cannot use array 'Z' as x", "holds A"]),
        ({"A": MATRIX}, {"target": "a"}, ["Cannot use --target a, an option for columns", "the matrix 'A'"]),
        ({"A": np.zeros((2, 3, 4))}, {}, ["array 'A'", "as a column"]),
        ({"A": np.float64(1)}, {}, ["holds A, but no array of one dimension"]),
        ({}, {}, ["holds no arrays"]),
        ({"X": MATRIX[None]}, {"x": "X"}, ["'X'", "3 dimensions"]),
        ({"X": MATRIX, "y": np.arange(3)}, {}, ["'y'", "20 rows"]),
        ({"a": np.array([1j])}, {}, ["array 'a' of g.zarr", "complex"]),
        ({"a": np.array([], int)}, {}, ["has no rows"]),
    ],
)
def test_zarr_that_is_no_table(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, str], words: list[str]
) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    for name, values in arrays.items():
        group.create_array(name, data=values)
    refused(tmp_path / "g.zarr", tmp_path, *words, **options)


def test_a_chunk_that_is_missing_is_no_row(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("X", shape=(20, 3), chunks=(5, 3), dtype=float)[:5] = MATRIX[:5]
    refused(tmp_path / "g.zarr", tmp_path, "is missing, and would read as fill values")


def test_a_directory_of_zarr_without_zarr(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    refused(tmp_path / "a.zarr", tmp_path, "holds no Zarr group or array")
    (tmp_path / "b.zarr").write_text("x")
    refused(tmp_path / "b.zarr", tmp_path, "is a file")


# -- Values as climate and forecast metadata tell ------------------------------------------------------------

HOURS = {"units": "hours since 2020-01-01 00:00:00", "calendar": "proleptic_gregorian"}


def nan_bytes() -> str:
    return "AAAAAAAA+H8="  # how xarray keeps NaN among attributes of Zarr 3


@pytest.mark.parametrize(
    ("values", "attributes", "rows"),
    [
        (np.array([0, 25]), HOURS, [[18262, 2, 1, 0], [18263, 3, 2, 3600]]),
        (np.array([0, np.iinfo(np.int64).min]), HOURS, [[18262, 2, 1], [np.nan] * 3]),
        (np.array([0.5, np.nan]), {"units": "days since 1970-1-1"}, [[0, 3, 1, 43200], [np.nan] * 4]),
        (np.array([1.5e9]), {"units": "ns since 1970-01-01"}, [[0, 3, 1, 1.5]]),
        (np.array([3, -9]), {"_FillValue": -9}, [[3], [np.nan]]),
        (np.array([3, -9]), {"missing_value": [-9]}, [[3], [np.nan]]),
        (np.array([1.5, np.nan]), {"_FillValue": nan_bytes()}, [[1.5], [np.nan]]),
        (np.array([1, 2], np.int16), {"scale_factor": 0.5, "add_offset": 10}, [[10.5], [11]]),
        (np.array([1, 0], np.int8), {"dtype": "bool"}, [[1], [0]]),
        (np.array([3, 4]), {"units": "metres"}, [[3], [4]]),
    ],
)
def test_values_are_decoded(
    tmp_path: Path, values: np.ndarray, attributes: dict[str, Any], rows: list[list[float]]
) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("v", data=values, attributes=attributes)
    np.testing.assert_array_equal(bring(tmp_path / "g.zarr", tmp_path)["X"][:], rows)


@pytest.mark.parametrize(
    ("values", "attributes", "words"),
    [
        ([1], HOURS | {"calendar": "noleap"}, "of the calendar 'noleap'"),
        ([1], {"units": "fortnights since 2020-01-01"}, "'fortnights since 2020-01-01'"),
        ([1], {"units": "days since 2020-02-31"}, "which are not dates"),
        ([1], {"units": "days since 2020-01-01 noon"}, "which are not dates"),
        ([2**62], {"units": "days since 2020-01-01"}, "too far away for dates"),
    ],
)
def test_times_that_are_no_dates(
    tmp_path: Path, values: list[int], attributes: dict[str, Any], words: str
) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("v", data=np.array(values), attributes=attributes)
    refused(tmp_path / "g.zarr", tmp_path, "array 'v' of g.zarr", words)


# -- Chunks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("batch", [3, 25, 1000])
@pytest.mark.parametrize("kind", ["zarr", "hdf5"])
def test_each_chunk_is_decoded_once_in_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, batch: int, in_memory: bool
) -> None:
    """Whatever the length of chunks: one of 10⁶ rows beside 100 columns would be decoded 48 times."""
    frame = {f"c{i}": np.arange(100) * (i + 1) % 53 for i in range(3)}
    if kind == "zarr":
        group = zarr.create_group(tmp_path / "in.zarr")
        for name, values in frame.items():
            group.create_array(name, data=values, chunks=(40,), config={"write_empty_chunks": True})
    else:
        with h5py.File(tmp_path / "in.h5", "w") as file:
            for name, values in frame.items():
                file.create_dataset(name, data=values, chunks=(40,))
    source = next(tmp_path.glob("in.*"))
    due = bring(source, tmp_path)["X"][:]
    reads: list[tuple[int, int]] = []

    def counted(array: Any, rows: slice, real: Any) -> Any:
        reads.append((rows.start, rows.stop))
        return real(array, rows)

    array_kind = containers._ZarrArray if kind == "zarr" else containers._Hdf5Array
    real = array_kind.__getitem__
    monkeypatch.setattr(array_kind, "__getitem__", lambda array, rows: counted(array, rows, real))
    monkeypatch.setattr(array_sources, "batch_rows", lambda _: batch)
    if not in_memory:
        monkeypatch.setattr(array_sources, "HELD_BYTES", 0)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    rows = read_arrays(
        ZarrGroup("in", str(source)) if kind == "zarr" else containers.container(source), scratch
    )
    reads.clear()
    found = [np.column_stack(list(columns.values())) for columns in rows.batches(list(frame))]
    np.testing.assert_array_equal(np.concatenate(found), due)
    chunks = [chunk for start, stop in reads for chunk in range(start // 40, -(-stop // 40))]
    assert sorted(chunks) == sorted([0, 1, 2] * 3)
    assert not list(scratch.iterdir())


def test_rows_of_a_matrix_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = zarr.create_group(tmp_path / "in.zarr")
    group.create_array("X", data=MATRIX, chunks=(20, 3))
    group.create_array("y", data=np.arange(20) + 1, chunks=(20,))
    spans: list[tuple[str, int, int]] = []
    real = zarr_arrays.read_rows

    def counted(array: Any, start: int, stop: int) -> Any:
        spans.append((array.name, start, stop))
        return real(array, start, stop)

    monkeypatch.setattr(zarr_arrays, "read_rows", counted)
    np.testing.assert_array_equal(bring(tmp_path / "in.zarr", tmp_path, chunk_rows=2)["X"][:], MATRIX)
    assert sorted(spans) == [("/X", 0, 20), ("/y", 0, 20), ("/y", 0, 20)]


def test_no_space_for_chunks_that_memory_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    group = zarr.create_group(tmp_path / "in.zarr")
    group.create_array("a", data=np.arange(20), chunks=(7,), config={"write_empty_chunks": True})
    monkeypatch.setattr(array_sources, "HELD_BYTES", 0)
    monkeypatch.setattr(array_sources.os, "posix_fallocate", full)
    with pytest.raises(ResourceError):
        import_data(tmp_path / "in.zarr", tmp_path / "out.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["in.zarr"]


# -- HDF5 and NetCDF -----------------------------------------------------------------------------------------


def hdf5(path: Path, **arrays: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return path


def test_matrices_and_columns_of_hdf5(tmp_path: Path) -> None:
    path = hdf5(tmp_path / "a.h5", X=MATRIX, y=[b"p", b"q"] * 10, **{"deep/Z": MATRIX[:, :2]})
    group = bring(path, tmp_path, chunk_rows=6)
    np.testing.assert_array_equal(group["X"][:], MATRIX)
    assert group["y"].attrs["labels"] == ["p", "q"]
    np.testing.assert_array_equal(bring(path, tmp_path, x="deep/Z")["X"][:], MATRIX[:, :2])
    path = hdf5(
        tmp_path / "b.hdf5", n=np.arange(5), t=["ä", "b", "", "b", "ä"], f=np.array([b"u", b"v"] * 2 + [b"v"])
    )
    rows = np.column_stack([[1, 0, 1, 0, 0], range(5), [1, 0, 3, 0, 1]])
    np.testing.assert_array_equal(bring(path, tmp_path)["X"][:], rows)


def test_nothing_is_followed_to_other_files(tmp_path: Path) -> None:
    other = hdf5(tmp_path / "other.h5", X=MATRIX)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["linked"] = h5py.ExternalLink("other.h5", "/X")
        file["soft"] = h5py.SoftLink("/loop")
        file["loop"] = h5py.SoftLink("/soft")
    refused(tmp_path / "a.h5", tmp_path, "holds no arrays")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        layout = h5py.VirtualLayout((20, 3), float)
        layout[:] = h5py.VirtualSource(str(other), "X", (20, 3))
        file.create_virtual_dataset("X", layout)
    refused(
        tmp_path / "b.h5",
        tmp_path,
        "array 'X' of b.h5: it lies in other files, and links to them are not followed",
    )
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("X", (2, 2), "u1", external=[("/etc/hostname", 0, 4)])
    refused(tmp_path / "c.h5", tmp_path, "lies in other files")


def test_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hdf5(tmp_path / "a.h5", X=MATRIX)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(SettingsError, match=r'h5py is not installed\. Run pip install "dcpred\[hdf5\]"'):
        import_data(path, tmp_path / "out.zarr")
    assert list(tmp_path.iterdir()) == [path]


def test_matrices_of_netcdf_3_and_its_text(tmp_path: Path) -> None:
    with netcdf_file(tmp_path / "a.nc", "w") as file:
        file.createDimension("sample", 20)
        file.createDimension("feature", 3)
        file.createDimension("letters", 2)
        file.createVariable("X", "f8", ("sample", "feature"))[:] = MATRIX
        file.createVariable("y", "S1", ("sample", "letters"))[:] = np.array(
            [["n", "o"], ["y", ""]] * 10, "S1"
        )
    group = bring(tmp_path / "a.nc", tmp_path, chunk_rows=6)
    np.testing.assert_array_equal(group["X"][:], MATRIX)
    assert group["y"].attrs["labels"] == ["no", "y"]


@pytest.mark.parametrize(
    "content", [b"nothing", b"CDF\1", b"CDF\x02" + b"\xff" * 40, b"\x89HDF\r\n\x1a\n" + b"\0" * 40]
)
def test_containers_that_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.nc").write_bytes(content)
    refused(tmp_path / "a.nc", tmp_path, "a.nc", "damaged or of another format")


def test_links_of_hdf5_to_their_own_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group is visited once: six links, followed eight deep, would be 6⁸ groups."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["deep/below/X"] = MATRIX
        for number in range(6):
            file[f"deep/up{number}"] = file["/"]
            file[f"deep/below/up{number}"] = file["deep"]
        file["alias"] = file["deep/below"]
    visits = []
    monkeypatch.setattr(h5py.Group, "__iter__", lambda group, real=h5py.Group.__iter__: visited(group, real))

    def visited(group: h5py.Group, real: Any) -> Any:
        visits.append(group.name)
        return real(group)

    np.testing.assert_array_equal(bring(tmp_path / "a.h5", tmp_path, x="alias/X")["X"][:], MATRIX)
    assert set(visits) == {"/", "/alias", "/deep"}
    assert len(visits) <= 15, "three for each time that the file is opened"


def test_arrays_that_unpack_to_more_than_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 1000)), y=np.zeros(1000))
    sp.save_npz(tmp_path / "b.npz", sp.csr_array(np.ones((1000, 100))))
    usage = sparse.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(sparse.shutil, "disk_usage", lambda _: usage._replace(free=sparse.LEFT_FREE + 2**20))
    for name, words in (
        ("a", "arrays X, y take 7.6 MiB"),
        ("b", "arrays data, indices, indptr take 1.1 MiB"),
    ):
        with pytest.raises(ResourceError, match=f"Cannot import {name}.npz: its {words} unpacked"):
            import_data(tmp_path / f"{name}.npz", tmp_path / "out.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_arrays_that_are_not_as_long_as_they_declare(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (4, 3)})
    for name, more in (("a", 8 * 11), ("b", 8 * 2**20)):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", header.getvalue() + bytes(more))
        refused(tmp_path / f"{name}.npz", tmp_path, "array X declares 224 bytes and has")
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("format", "shape", "data", "indices", "indptr"):
            archive.writestr(f"{name}.npy", bytes(2**20))
    refused(tmp_path / "c.npz", tmp_path, "its array format has thousands of values")


# -- Sparse matrices -----------------------------------------------------------------------------------------

SPARSE = sp.random_array((40, 300), density=0.05, format="csr", random_state=0)


def test_sparse_matrices_are_read_row_by_row(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", SPARSE)
    np.testing.assert_array_equal(bring(tmp_path / "a.npz", tmp_path, chunk_rows=7)["X"][:], SPARSE.toarray())
    own = {name: getattr(SPARSE, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "b.npz", format="csr", y=np.arange(40) % 3, **own)
    group = bring(tmp_path / "b.npz", tmp_path)
    np.testing.assert_array_equal(group["X"][:], SPARSE.toarray())
    np.testing.assert_array_equal(group["y"][:], np.arange(40) % 3)
    whole = SPARSE.copy()
    whole.data = np.arange(whole.nnz, dtype=np.int16)
    sp.save_npz(tmp_path / "c.npz", whole)
    assert bring(tmp_path / "c.npz", tmp_path)["X"].dtype == np.int16


@pytest.mark.parametrize("kind", ["csc", "coo", "bsr"])
def test_other_sparse_formats_are_refused(tmp_path: Path, kind: str) -> None:
    sp.save_npz(tmp_path / "a.npz", SPARSE.asformat(kind))
    refused(tmp_path / "a.npz", tmp_path, f"of the format {kind}", "X.tocsr()")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("indptr", SPARSE.indptr[:-1]),
        ("indptr", SPARSE.indptr[::-1]),
        ("indptr", SPARSE.indptr + 1),
        ("indices", SPARSE.indices + 300),
        ("indices", SPARSE.indices - 300),
        ("indices", SPARSE.indices[:-1]),
        ("indices", SPARSE.indices * 1.0),
        ("data", SPARSE.data * 1j),
        ("data", SPARSE.data[:, None]),
        ("shape", np.array([40])),
        ("shape", np.array([40, -1])),
        ("shape", np.array([0, 300])),
    ],
)
def test_sparse_matrices_that_are_none(tmp_path: Path, part: str, value: Any) -> None:
    own = {name: getattr(SPARSE, name) for name in ("data", "indices", "indptr", "shape")} | {part: value}
    np.savez(tmp_path / "a.npz", format="csr", **own)
    refused(tmp_path / "a.npz", tmp_path, "a.npz")


def test_what_dense_rows_take_is_told_before(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", SPARSE)
    words = [
        "5 % of its values are stored",
        "40 dense rows of 300 features take 0.1 MiB",
        "--dense-limit",
    ]
    refused(tmp_path / "a.npz", tmp_path, *words, dense_limit=95_999)
    bring(tmp_path / "a.npz", tmp_path, dense_limit=96_000)
    (tmp_path / "a.svm").write_text("1 1:1 50000:1\n" * 100_000)
    refused(
        tmp_path / "a.svm", tmp_path, "100,000 dense rows of 50,000 features take 4.7 GiB", "limit of 1.0 GiB"
    )
    full = sp.csr_array(np.ones((40, 300)))
    sp.save_npz(tmp_path / "full.npz", full)
    bring(tmp_path / "full.npz", tmp_path, dense_limit=1)


# -- Names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "do"),
    [
        ("a.xlsx", "Save it as .csv"),
        ("a.jsonl", ".parquet"),
        ("a.pkl", "Load it"),
        ("a.orc", "Write it as .parquet"),
        ("a.unknown", "Name it .csv, .tsv, .parquet, .pq"),
    ],
)
def test_other_formats_say_what_to_do(tmp_path: Path, name: str, do: str) -> None:
    (tmp_path / name).write_text("x")
    refused(tmp_path / name, tmp_path, "its name has no known ending", do)


def test_metadata_of_zarr_that_are_damaged(tmp_path: Path) -> None:
    group = zarr_arrays.create_group(tmp_path / "g.zarr")
    zarr_arrays.create_array(group, "X", (2, 2), np.dtype(float), 2)[...] = np.eye(2)
    metadata = tmp_path / "g.zarr/X/zarr.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"shape": [2]}))
    with pytest.raises(DataError):
        import_data(tmp_path / "g.zarr", tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_options_that_suit_no_source_are_named_as_they_were_given(tmp_path: Path) -> None:
    """In the unit of the command line; and not what a schema adds to them."""
    table = "a,bb,ccc,d,label\n1,2,3,4,x\n2,3,-,5,y\n"
    (tmp_path / "known.csv").write_text(table)
    like = tmp_path / "known.zarr"
    import_data(tmp_path / "known.csv", like, target="label", gap="-")
    np.savez(tmp_path / "rows.npz", X=np.ones((3, 4)))
    folder = tmp_path / "out"
    folder.mkdir()
    refused(tmp_path / "rows.npz", folder, f"Cannot use --like {like} with rows.npz", like=like)
    refused(tmp_path / "known.csv", folder, "Cannot use --dense-limit 1.5 with", dense_limit=3 * 2**29)
    refused(
        tmp_path / "known.csv", folder, "no such column. Pass one of a, bb, ccc, d.", like=like, absent="xyz"
    )
