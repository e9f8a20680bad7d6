"""Every format into Zarr: what is kept exactly, what is refused and in which words, and that nothing is left
behind.
"""

import bz2
import errno
import gzip
import json
import math
import tracemalloc
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file

from dcpred.cli import main
from dcpred.datasets import (
    array_sources,
    table,
    writing,
)
from dcpred.datasets.importing import Imported, import_data
from dcpred.datasets.writing import default_chunk_rows
from dcpred_tasks.errors import DataError, ResourceError, SettingsError
from dcpred_tasks.schema.schema import read_schema
from dcpred_tasks.storage.stored_chunks import missing_chunks
from dcpred_tasks.tables import csv_files, stored_tables

RNG = np.random.default_rng(0)
SMALL = np.arange(12, dtype=np.int16).reshape(6, 2)


def bring(path: Path, **options: Any) -> tuple[Imported, Any, Any]:
    """Import, check what every import must hold, and return (the report, X, y)."""
    dest = path.parent / "out.zarr"
    report = import_data(str(path), str(dest), **options)
    group = zarr.open_group(str(dest), mode="r")
    X, y = group["X"], group.get("y")
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([path.name, "out.zarr"])
    told = {} if report.schema is None else {"dcpred_schema": report.schema}
    told |= {} if report.index_base is None else {"dcpred_index_base": report.index_base}
    assert dict(group.attrs) == {"dcpred_dataset": 1, "source": path.name} | told
    if report.schema is not None:
        assert list(read_schema(report.schema, "").features) == X.attrs["feature_names"]
    assert (report.n_samples, report.n_features, report.dtype) == (*X.shape, str(X.dtype))
    assert X.chunks == (report.chunk_rows, report.n_features)
    assert report.path == str(dest)
    assert report.target == (None if y is None else "y")
    assert report.target_dtype == (None if y is None else str(y.dtype))
    if y is not None:
        assert y.shape == X.shape[:1]
        assert y.chunks == X.chunks[:1]
        assert report.n_classes == (len(y.attrs["labels"]) if "labels" in y.attrs else None)
    assert not [name for array in (X, y) if array is not None for name in missing_chunks(array)]
    return report, X, y


def refused(path: Path, *words: str, **options: Any) -> str:
    """The message holds all these words, and nothing but the source is there afterwards."""
    before = sorted(path.parent.iterdir())
    with pytest.raises(DataError) as caught:
        import_data(str(path), str(path.parent / "out.zarr"), **options)
    message = str(caught.value)
    for word in words:
        assert word in message
    assert sorted(path.parent.iterdir()) == before
    return message


def text(folder: Path, content: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def parquet(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "a.parquet", **options)
    return folder / "a.parquet"


# -- All formats hold the same -------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_rows", [1, 7, 100, 1000])
@pytest.mark.parametrize(
    "ending", ["csv", "csv.gz", "csv.bz2", "svm", "libsvm.gz", "svmlight.bz2", "parquet", "npz"]
)
def test_every_format_in_several_chunks(
    tmp_path: Path, ending: str, chunk_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 300)
    monkeypatch.setattr(csv_files, "HEADER_LENGTHS", 1)
    monkeypatch.setattr(stored_tables, "BATCH_VALUES", 60)
    monkeypatch.setattr(array_sources, "SURVEY_ROWS", 11)
    X, y = RNG.integers(0, 200, (100, 3)).astype(np.uint8), RNG.integers(-1, 2, 100).astype(np.int8)
    path = tmp_path / f"a.{ending}"
    options: dict[str, Any] = {}
    if ending == "npz":
        np.savez(path, X=X, y=y)
    elif ending == "parquet":
        pq.write_table(
            pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "goal": y}), path, row_group_size=30
        )
        options = {"target": "goal"}
    else:
        plain = tmp_path / "plain"
        if "csv" in ending:
            np.savetxt(plain, np.c_[X, y], "%d", ",", header="a,b,c,goal", comments="")
            options = {"target": "goal"}
        else:
            dump_svmlight_file(X.astype(float), y, str(plain), zero_based=False)
        pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
        path.write_bytes(pack(plain.read_bytes()))
        plain.unlink()
    seen: list[tuple[int, int | None]] = []
    report, stored, target = bring(
        path, chunk_rows=chunk_rows, progress=lambda *now: seen.append(now), **options
    )
    assert (stored.dtype, target.dtype) == (np.uint8, np.int8)
    assert np.array_equal(stored[:], X)
    assert np.array_equal(target[:], y)
    assert report.chunk_rows == min(chunk_rows, 100)
    assert seen == [
        (min(n, 100), 100) for n in range(report.chunk_rows, 100 + report.chunk_rows, report.chunk_rows)
    ]


def test_chunks_hold_about_8_mib() -> None:
    assert default_chunk_rows(54, 2) == 75 * 1024
    assert default_chunk_rows(784, 8) == 1024
    assert default_chunk_rows(1025, 8) == 1023
    assert default_chunk_rows(2**24, 4) == 1


@pytest.mark.cases(2)
@pytest.mark.parametrize("ending", ["csv", "svm", "parquet", "npz"])
def test_memory_does_not_grow_with_the_rows(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 2**12)
    monkeypatch.setattr(stored_tables, "BATCH_VALUES", 2**12)
    monkeypatch.setattr(array_sources, "SURVEY_ROWS", 500)
    peaks = []
    few = 2_500 if ending == "svm" else 5_000  # rows of svmlight take their time
    for n_rows in (few, few, 8 * few):  # the first fills caches
        X = RNG.integers(0, 100, (n_rows, 10)).astype(np.uint8)
        path = tmp_path / f"{len(peaks)}.{ending}"
        if ending == "csv":
            np.savetxt(path, X, "%d", ",", header=",".join("abcdefghij"), comments="")
        elif ending == "svm":
            dump_svmlight_file(X.astype(float), np.zeros(n_rows), str(path), zero_based=False)
        elif ending == "parquet":
            pq.write_table(pa.table(dict(zip("abcdefghij", X.T, strict=True))), path, row_group_size=500)
        else:
            np.savez(path, X=np.asfortranarray(X), y=X[:, 0])
        tracemalloc.start()
        import_data(str(path), str(path.with_suffix(".zarr")), chunk_rows=2000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 2 * peaks[1]


def test_a_float_chunk_that_is_lost_does_not_read_as_data(tmp_path: Path) -> None:
    _, X, y = bring(text(tmp_path, "a,b\n0.5,1.5\n"), target="b")
    assert math.isnan(X.fill_value)
    assert math.isnan(y.fill_value)


def test_the_report_is_json_and_the_group_names_no_folder(tmp_path: Path) -> None:
    report, X, _ = bring(text(tmp_path, "a,b\n1,cat\n2,dog\n"), target="b")
    assert json.loads(json.dumps(asdict(report)))["n_classes"] == 2
    for file in Path(str(X.store_path).removeprefix("file://")).parent.rglob("zarr.json"):
        assert str(tmp_path) not in file.read_text()


# -- Dtypes of text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["0", "255"], "uint8"),
        (["0", "256"], "uint16"),
        (["65536", "1"], "uint32"),
        (["4294967296", "1"], "uint64"),
        (["-1", "1"], "int8"),
        (["-1", "128"], "int16"),
        (["-129", "0"], "int16"),
        (["-1", "65535"], "int32"),
        (["-1", "4294967295"], "int64"),
        (["1.0", "2e2"], "uint8"),
        (["0.5", "3"], "float32"),
        (["0.1", "3"], "float64"),
        (["0.5", "16777217"], "float64"),
        (["1e300", "1"], "float64"),
        (["1e30", "0.5"], "float64"),
        (["0.5", "inf"], "float32"),
        ([str(2**60), "1"], "uint64"),
        (["-1", str(2**63)], "float32"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "svm"])
def test_text_gets_the_smallest_exact_dtype(
    tmp_path: Path, values: list[str], dtype: str, ending: str
) -> None:
    if ending == "csv":
        path = text(tmp_path, "a,goal\n" + "".join(f"{v},{v}\n" for v in values))
        _, X, y = bring(path, target="goal")
    else:
        _, X, y = bring(text(tmp_path, "".join(f"{v} 1:{v}\n" for v in values), "a.svm"))
    assert (X.dtype, y.dtype) == (dtype, dtype)
    assert [float(v) for v in X[:, 0]] == [float(v) for v in values]
    assert [float(v) for v in y[:]] == [float(v) for v in values]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**64 - 1, 10**20 + 1])
def test_a_whole_number_that_float64_rounds_is_refused(tmp_path: Path, value: int) -> None:
    where = text(tmp_path, f"a,id\n1,1\n2,{value}\n")
    refused(where, "'id'", str(value), "round")
    refused(where, "'id'", str(value), "round", target="id")
    refused(text(tmp_path, f"1 1:3\n2 1:{value}\n", "a.svm"), str(value), "round")
    refused(text(tmp_path, f"1 1:3\n{value} 1:2\n", "a.svm"), str(value), "round")


def test_a_number_written_as_a_float_may_be_rounded(tmp_path: Path) -> None:
    _, X, _ = bring(text(tmp_path, f"a\n{2**53 + 1}\n0.1\n"))
    assert X[:, 0].tolist() == [2.0**53, 0.1]


def test_a_query_id_and_a_comment_are_no_values(tmp_path: Path) -> None:
    big, odd = 2**60, 2**60 + 1
    _, X, y = bring(text(tmp_path, f"# {odd}\n\n1 qid:{odd} 1:{big} # see {odd}\n\n2 qid:2 1:5\n", "a.svm"))
    assert X[:].tolist() == [[big], [5]]
    assert y[:].tolist() == [1, 2]


def test_missing_features_are_nan(tmp_path: Path) -> None:
    _, X, _ = bring(text(tmp_path, "a,b\n1,\nNA,4\nnan,6\n"))
    assert X.dtype == np.float32
    assert np.array_equal(X[:], [[1, np.nan], [np.nan, 4], [np.nan, 6]], equal_nan=True)


# -- CSV -----------------------------------------------------------------------------------------------------


def test_csv_names_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeff\n width , kind,height\r\n1, dog ,2\r\n\r\n3,cat,4\r\n5,"dog",6'.encode())
    _, X, y = bring(path, target="kind")
    assert X.attrs["feature_names"] == ["width", "height"]
    assert X[:].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert y.attrs["labels"] == ["cat", "dog"]
    assert (y[:].tolist(), y.dtype) == ([1, 0, 1], np.uint8)


def test_a_label_far_down_makes_all_of_them_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 50)
    monkeypatch.setattr(csv_files, "HEADER_LENGTHS", 1)
    _, _, y = bring(text(tmp_path, "a,goal\n" + "1,2\n" * 100 + "1,10\n1,x\n"), target="goal")
    assert y.attrs["labels"] == ["10", "2", "x"]
    assert y[:].tolist() == [1] * 100 + [0, 2]


def test_no_target_without_asking(tmp_path: Path) -> None:
    report, X, y = bring(text(tmp_path, "a,y,target,label\n1,2,3,4\n"))
    assert y is None
    assert report.target is report.target_dtype is report.n_classes is None
    assert X.attrs["feature_names"] == ["a", "y", "target", "label"]


@pytest.mark.parametrize("first", ["1,2.5,-3e1", "1,,3", "nan,NA,3"])
def test_a_first_line_of_numbers_is_a_row(tmp_path: Path, first: str) -> None:
    _, X, y = bring(text(tmp_path, f"{first}\n4,5,6\n"), target="2")
    assert X.attrs["feature_names"] == ["0", "1"]
    assert X[1].tolist() == [4, 5]
    assert y[:].tolist() == [float(first.split(",")[2]), 6]


@pytest.mark.parametrize(
    ("content", "target", "words"),
    [
        ("a,b\n1,2\n3,red\n", None, ["'b'", "most rows", "'red'", "row 1", "--categorical b", "--gap 'red'"]),
        ("a,b\n1,x\nred,y\n", "b", ["'a'", "'red'", "row 1"]),
        ("a,b\n1,2\n3,\n", "b", ["'b'", "missing in row 1"]),
        ("a,b\n1,x\n3, \n", "b", ["'b'", "missing in row 1"]),
        ("Price,size\n1,2\n", "price", ["'price'", "Did you mean 'Price'", "Price, size"]),
        ("a,b\n1,2\n", "zebra", ["'zebra'", "Pass one of a, b"]),
        (",".join(f"c{i}" for i in range(12)) + "\n" + ",".join("1" * 12) + "\n", "zebra", ["c9 and 2 more"]),
        ("a,a\n1,2\n", None, ["'a' occurs twice"]),
        (",a\n0,2\n", None, ["first column has no name", "--id index", "--drop index"]),
        ("a\n1\n", "a", ["no column besides the target"]),
        ("a,b\n1,2\n3\n", None, ["row 1 (counted from 0) has 1 field, but the first line 2", "Correct it"]),
        ("a,b\n", None, ["has no rows"]),
        ("a,b", None, ["has no rows"]),
        ("\n\n", None, ["has no rows"]),
    ],
)
def test_csv_refusals(tmp_path: Path, content: str, target: str | None, words: list[str]) -> None:
    refused(text(tmp_path, content), *words, target=target)


def test_strings_that_are_no_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_LABELS", 3)
    refused(text(tmp_path, "a,b\n1,w\n1,x\n1,y\n1,z\n"), "'b'", "more than 3", target="b")


def test_many_labels_get_a_wider_code(tmp_path: Path) -> None:
    _, _, y = bring(text(tmp_path, "a,b\n" + "".join(f"1,n{i:03d}\n" for i in range(257))), target="b")
    assert y.dtype == np.uint16
    assert y[:].tolist() == list(range(257))


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.bz2", "a.svm.gz"])
def test_damaged_compression(tmp_path: Path, name: str) -> None:
    content = b"a,b\n" if "csv" in name else b""
    content += b"".join(
        b"%d %d:%d\n" % (i, 1, i) if "svm" in name else b"%d,%d\n" % (i, i) for i in range(5000)
    )
    path = tmp_path / name
    path.write_bytes((bz2 if name.endswith("bz2") else gzip).compress(content)[:-200])
    refused(path, "damaged")
    path.write_bytes(content)
    refused(path, "damaged")


def test_a_file_without_lines_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.truncate(2**31)
    tracemalloc.start()
    refused(path, "Cannot read a.csv as CSV: a line has more than 32 MiB. Name a file of lines.")
    assert tracemalloc.get_traced_memory()[1] < 2**29
    tracemalloc.stop()


def test_a_csv_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content in (b"\xff\x00a\n1\n", b"a,b\n1,\xff\n"):
        path.write_bytes(content)
        refused(path, "is not text in UTF-8. Save the file as UTF-8", "iconv -f latin1 -t utf-8")


# -- svmlight ------------------------------------------------------------------------------------------------


def test_indices_count_from_one(tmp_path: Path) -> None:
    _, X, y = bring(text(tmp_path, "-1 2:5\n+1 1:1.5 4:2 # a comment\n", "a.libsvm"))
    assert X[:].tolist() == [[0, 5, 0, 0], [1.5, 0, 0, 2]]
    assert (X.dtype, y.dtype) == (np.float32, np.int8)
    assert "feature_names" not in X.attrs


def test_an_index_0_anywhere_makes_all_count_from_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 8)
    _, X, _ = bring(text(tmp_path, "1 1:1 3:2\n\n# nothing\n2 0:7\n", "a.svm"))
    assert X[:].tolist() == [[0, 1, 0, 2], [7, 0, 0, 0]]


@pytest.mark.parametrize(
    ("values", "dtype"), [("1:1 2:-1", "int8"), ("1:3", "uint8"), ("2:0.5", "float32"), ("1:nan", "float32")]
)
def test_what_is_not_written_is_zero(tmp_path: Path, values: str, dtype: str) -> None:
    _, X, _ = bring(text(tmp_path, f"0 {values}\n0\n", "a.svm"))
    assert X.dtype == dtype
    assert not X[1].any()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x 1:2", ["line 41", "'x 1:2'"]),
        ("1 1:x", ["line 41", "'1 1:x'"]),
        ("1 1", ["line 41"]),
        ("1 2:1 1:1", ["line 41", "sorted"]),
        ("1,2 1:1", ["line 41"]),
        ("1 -1:1", ["line 41"]),
        ("1 99999999999999999999:1", ["line 41"]),
        ("nan 1:1", ["label of a.svm", "missing in row 40"]),
    ],
)
def test_svmlight_refusals(
    tmp_path: Path, line: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 64)
    refused(text(tmp_path, "1 1:1\n" * 40 + line + "\n" + "2 1:1\n" * 9, "a.svm"), *words)


def test_svmlight_without_rows_or_features(tmp_path: Path) -> None:
    refused(text(tmp_path, "# nothing\n\n", "a.svm"), "has no rows")
    refused(text(tmp_path, "1\n2\n", "a.svm"), "index:value")


# -- Parquet -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": pa.array([True, False])}, "bool"),
        ({"a": pa.array([1, 2], pa.int16())}, "int16"),
        ({"a": pa.array([1, 2], pa.int8()), "b": pa.array([1, 2], pa.uint8())}, "int16"),
        ({"a": pa.array([True, False]), "b": pa.array([1, 2], pa.uint8())}, "uint8"),
        ({"a": pa.array([1, 2], pa.int16()), "b": pa.array([0.5, 1], pa.float32())}, "float32"),
        ({"a": pa.array([1, 2], pa.int32()), "b": pa.array([0.5, 1], pa.float32())}, "float64"),
        ({"a": pa.array([2**53, 2], pa.int64()), "b": pa.array([0.5, 1], pa.float32())}, "float64"),
        ({"a": pa.array(np.array([0.5, 1], np.float16))}, "float16"),
        ({"a": pa.array([np.float16(0.5), None], pa.float16())}, "float16"),
        ({"a": pa.array([0.1, None], pa.float64())}, "float64"),
        ({"a": pa.array([1, None], pa.int16())}, "float32"),
        ({"a": pa.array([1, None], pa.int32())}, "float64"),
        ({"a": pa.array([True, None])}, "float32"),
        ({"a": pa.array([2**63 - 1, 2**53 + 1], pa.int64())}, "int64"),
        ({"a": pa.array([2**64 - 1, 1], pa.uint64())}, "uint64"),
        ({"a.b": pa.array([1, 2], pa.int8()), "a": pa.array([3, 4], pa.int8())}, "int8"),
    ],
)
def test_parquet_columns_take_their_common_dtype(tmp_path: Path, columns: dict[str, Any], dtype: str) -> None:
    _, X, _ = bring(parquet(tmp_path, columns))
    assert X.dtype == dtype
    assert X.attrs["feature_names"] == list(columns)
    expected = [[np.nan if v is None else v for v in c.to_pylist()] for c in columns.values()]
    assert np.array_equal(X[:].T, np.array(expected, dtype), equal_nan="float" in dtype)


@pytest.mark.parametrize(
    ("target", "labels", "stored", "dtype"),
    [
        (pa.array(["b", "a", "b"]), ["a", "b"], [1, 0, 1], "uint8"),
        (pa.array(["b", "a", "b"], pa.large_string()), ["a", "b"], [1, 0, 1], "uint8"),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"], [1, 0, 1], "uint8"),
        (pa.array([2, -1, 2], pa.int32()), None, [2, -1, 2], "int32"),
        (pa.array([True, False, True]), None, [True, False, True], "bool"),
        (pa.array([0.5, 1, 2], pa.float32()), None, [0.5, 1, 2], "float32"),
        (pa.array([2**53 + 1, 1, 2]), None, [2**53 + 1, 1, 2], "int64"),
    ],
)
def test_parquet_targets(tmp_path: Path, target: Any, labels: Any, stored: list[Any], dtype: str) -> None:
    _, X, y = bring(parquet(tmp_path, {"goal": target, "a": [1, 2, 3]}, row_group_size=2), target="goal")
    assert y.attrs.get("labels") == labels
    assert (y[:].tolist(), y.dtype) == (stored, dtype)
    assert X[:].tolist() == [[1], [2], [3]]


def test_an_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "__index_level_0__": [7, 8]})
    about = json.dumps({"index_columns": ["__index_level_0__"], "columns": []})
    pq.write_table(table.replace_schema_metadata({"pandas": about}), tmp_path / "a.parquet")
    _, X, _ = bring(tmp_path / "a.parquet")
    assert X.attrs["feature_names"] == ["a"]


@pytest.mark.parametrize(
    ("columns", "target", "words"),
    [
        ({"a": pa.array([b"red", b"blue"])}, None, ["'a'", "binary", "red", "--drop a"]),
        ({"a": [[1.0], [2.0]]}, None, ["'a'", "list", "[1.0]"]),
        ({"a": [1, 2], "b": [1, None]}, "b", ["'b'", "missing in row 1"]),
        ({"a": [1, 2], "b": [1.0, math.nan]}, "b", ["'b'", "missing in row 1"]),
        ({"a": [1, 2], "b": ["x", None]}, "b", ["'b'", "missing in row 1"]),
        ({"a": [1, 2], "b": pa.array([1, 2], pa.timestamp("s"))}, "b", ["'b'", "timestamp"]),
        ({"a": [2**53 + 1, 2], "b": [0.5, 1.0]}, None, ["'a'", str(2**53 + 1), "round"]),
        ({"a": [2**53 + 1, None]}, None, ["'a'", str(2**53 + 1), "round"]),
        ({"Goal": [1, 2], "a": [1, 2]}, "goal", ["Did you mean 'Goal'"]),
        ({"a": pa.array([], pa.int8())}, None, ["has no rows"]),
    ],
)
def test_parquet_refusals(
    tmp_path: Path, columns: dict[str, Any], target: str | None, words: list[str]
) -> None:
    refused(parquet(tmp_path, columns), *words, target=target)


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    refused(text(tmp_path, "nothing of the kind", "a.parquet"), "damaged")


# -- NumPy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint64", "float16", "float32", "float64", ">i4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_arrays_keep_their_dtype(tmp_path: Path, dtype: str, order: Any) -> None:
    X = np.asarray(RNG.integers(0, 100, (50, 3)), dtype, order=order)
    np.save(tmp_path / "a.npy", X)
    report, stored, y = bring(tmp_path / "a.npy", chunk_rows=8)
    assert stored.dtype == X.dtype.newbyteorder("=")
    assert np.array_equal(stored[:], X)
    assert y is None
    assert report.chunk_rows == 8


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_in_any_order_with_names(tmp_path: Path, save: Any) -> None:
    X, goal = np.asfortranarray(RNG.normal(size=(50, 3))), RNG.normal(size=50)
    save(tmp_path / "a.npz", X_train=X, X=X[:2], goal=goal, other=np.array(["no"]))
    _, stored, y = bring(tmp_path / "a.npz", x="X_train", y="goal", chunk_rows=9)
    assert np.array_equal(stored[:], X)
    assert np.array_equal(y[:], goal)


def test_npz_names_default_to_those_of_scikit_learn(tmp_path: Path) -> None:
    _, stored, y = bring(npz(tmp_path, X=SMALL))
    assert np.array_equal(stored[:], SMALL)
    assert y is None


@pytest.mark.parametrize("kind", ["U", "S"])
def test_npz_labels(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_sources, "SURVEY_ROWS", 2)
    _, _, y = bring(npz(tmp_path, X=SMALL, y=np.array(["b", "a", "c", "b", "aa", "b"], kind)), chunk_rows=4)
    assert y.attrs["labels"] == ["a", "aa", "b", "c"]
    assert (y[:].tolist(), y.dtype) == ([2, 0, 3, 2, 1, 2], np.uint8)


@pytest.mark.parametrize(
    ("arrays", "options", "words"),
    [
        ({"X_train": SMALL, "n": SMALL}, {}, ["'X'", "holds X_train, n", "--x"]),
        ({"X": SMALL}, {"y": "goal"}, ["'goal'", "holds X", "--y"]),
        ({"X": SMALL[:, 0]}, {}, ["'X'", "1 dimension,"]),
        ({"X": SMALL[None]}, {}, ["'X'", "3 dimensions"]),
        ({"X": SMALL * 1j}, {}, ["'X'", "complex"]),
        ({"X": SMALL.astype("U")}, {}, ["'X'", "not numbers"]),
        ({"X": SMALL.astype(object)}, {}, ["'X'", "object"]),
        ({"X": np.zeros((2, 2), "i4,f4")}, {}, ["'X'", "not numbers"]),
        ({"X": np.zeros((2, 2), np.longdouble)}, {}, ["'X'", "64 bits"]),
        ({"X": SMALL[:0]}, {}, ["'X'", "(0, 2)", "rows"]),
        ({"X": SMALL[:, :0]}, {}, ["'X'", "(6, 0)", "features"]),
        ({"X": SMALL, "y": np.arange(5)}, {}, ["'y'", "6 rows", "(5,)"]),
        ({"X": SMALL, "y": np.zeros((6, 1))}, {}, ["'y'", "6 rows", "(6, 1)"]),
        ({"X": SMALL, "y": np.float64(1)}, {}, ["'y'", "6 rows", "()"]),
        ({"X": SMALL, "y": np.array([None] * 6)}, {}, ["'y'", "object"]),
        ({"X": SMALL, "y": np.zeros(6, complex)}, {}, ["'y'", "complex"]),
        ({"X": SMALL, "y": np.zeros(6, "M8[s]")}, {}, ["'y'", "datetime64"]),
        ({"X": SMALL, "y": np.array([1, 2, 3, np.nan, 5, 6])}, {}, ["'y'", "missing in row 3"]),
    ],
)
def test_npz_refusals(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, str], words: list[str]
) -> None:
    refused(npz(tmp_path, **arrays), *words, **options)


def test_numpy_files_that_are_none(tmp_path: Path) -> None:
    refused(text(tmp_path, "nothing of the kind", "a.npz"), "damaged")
    (tmp_path / "a.npz").unlink()
    refused(text(tmp_path, "nothing of the kind", "a.npy"), "as a NumPy array: the magic string")
    np.save(tmp_path / "a.npy", SMALL)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-5])
    refused(tmp_path / "a.npy", "damaged")
    whole = npz(tmp_path, X=np.arange(6000).reshape(-1, 2)).read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:900] + b"\1" + whole[901:])
    refused(tmp_path / "a.npz", "damaged")


# -- What is refused before anything is read, and what happens when writing fails ----------------------------


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("a.npy", {"y": "goal"}, ["--y goal", "savez"]),
        ("a.npy", {"target": "b"}, ["--target b", "savez"]),
        ("a.npz", {"target": "b"}, ["--target b", "--x and --y"]),
        ("a.csv", {"y": "b"}, ["--y b", "--target"]),
        ("a.parquet", {"x": "b"}, ["--x b", "--target"]),
        ("a.svm", {"target": "b"}, ["--target b", "label of each line"]),
        ("a.txt", {}, ["a.txt", ".csv", ".npz"]),
        ("a.npz.gz", {}, ["a.npz.gz", "ending"]),
        ("a", {}, ["ending"]),
    ],
)
def test_options_and_names(tmp_path: Path, name: str, options: dict[str, str], words: list[str]) -> None:
    refused(text(tmp_path, "never read", name), *words, **options)


def test_sources_that_are_no_files(tmp_path: Path) -> None:
    refused(tmp_path / "a.csv", "does not exist")
    (tmp_path / "b.parquet").mkdir()
    refused(tmp_path / "b.parquet", "no .parquet file is there")
    refused(text(tmp_path, "", "c.csv"), "empty")


def test_the_place_must_be_free_and_writable(tmp_path: Path) -> None:
    path = text(tmp_path, "a\n1\n")
    (tmp_path / "out.zarr").touch()
    refused(path, "out.zarr", "exists")
    (tmp_path / "out.zarr").unlink()
    (tmp_path / "out.zarr").symlink_to(tmp_path / "nowhere")
    refused(path, "Remove the link")
    with pytest.raises(DataError, match="only reads from servers of files"):
        import_data(str(path), "https://127.0.0.1:9/out.zarr")
    with pytest.raises(SettingsError, match="chunk_rows"):
        import_data(str(path), str(tmp_path / "new.zarr"), chunk_rows=0)


def test_the_place_may_be_in_new_folders(tmp_path: Path) -> None:
    source = text(tmp_path, "a\n1\nred\n")
    with pytest.raises(DataError):
        import_data(str(source), str(tmp_path / "b" / "c" / "d.zarr"))
    assert list(tmp_path.iterdir()) == [source]
    import_data(str(text(tmp_path, "a\n1\n")), str(tmp_path / "b" / "c" / "d.zarr"))
    assert [p.name for p in (tmp_path / "b" / "c").iterdir()] == ["d.zarr"]


def test_another_import_that_is_faster_wins(tmp_path: Path) -> None:
    path, out = text(tmp_path, "a\n1\n"), tmp_path / "out.zarr"
    with pytest.raises(DataError, match="exists"):
        import_data(str(path), str(out), progress=lambda *_: (out / "mine").mkdir(parents=True))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "out.zarr"]


@pytest.mark.parametrize("more", ["3\n", ""])
def test_a_file_that_changes_between_the_passes(
    tmp_path: Path, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = text(tmp_path, "a\n1\n2\n")
    create = writing.create_group

    def change(*args: Any) -> Any:
        path.write_text("a\n1\n" + (f"2\n{more}" if more else ""))
        return create(*args)

    monkeypatch.setattr(writing, "create_group", change)
    refused(path, "it changed after the first pass, which found 2 rows")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_a_full_disk(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(tmp_path, X=SMALL, y=SMALL[:, 0])

    def full(*_args: Any) -> None:
        raise OSError(number, "no room")

    steps = [(np.lib.format, "read_magic"), (zipfile.ZipFile, "extract"), (writing, "create_group")]
    for place, name in steps:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, full)
            with pytest.raises(ResourceError, match="no room"):
                import_data(str(path), str(tmp_path / "out.zarr"))
        assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    path = npz(tmp_path, X=SMALL)

    def interrupt(*_args: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_data(str(path), str(tmp_path / "out.zarr"), chunk_rows=2, progress=interrupt)
    assert list(tmp_path.iterdir()) == [path]


def test_svmlight_with_more_features_than_it_uses(tmp_path: Path) -> None:
    source = tmp_path / "a.svm"
    source.write_text("1 1:2 3:4\n-1 2:1\n")
    import_data(str(source), str(tmp_path / "a.zarr"), features=5)
    X = zarr.open_group(tmp_path / "a.zarr", mode="r")["X"][...]
    np.testing.assert_array_equal(X, [[2, 0, 4, 0, 0], [0, 1, 0, 0, 0]])
    with pytest.raises(DataError, match=r"Cannot import a\.svm with 2 features: it has 3"):
        import_data(str(source), str(tmp_path / "b.zarr"), features=2)
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(DataError, match="Cannot use --features 3 with"):
        import_data(str(tmp_path / "a.npy"), str(tmp_path / "c.zarr"), features=3)


# -- What is not finite --------------------------------------------------------------------------------------


def write_as(folder: Path, ending: str, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, Any]]:
    """A file of this format, and the options to import it with."""
    path = folder / f"a.{ending}"
    if ending == "npy":
        np.save(path, X)
    elif ending == "npz":
        np.savez(path, X=X, y=y)
    elif ending == "parquet":
        pq.write_table(
            pa.table({name: X[:, j] for j, name in enumerate("abc")} | {"goal": y}), path, row_group_size=30
        )
        return path, {"target": "goal"}
    elif ending == "csv":
        np.savetxt(path, np.c_[X, y], "%.17g", ",", header="a,b,c,goal", comments="")
        return path, {"target": "goal"}
    else:
        lines = (
            f"{t!r} " + " ".join(f"{j}:{v!r}" for j, v in enumerate(x, 1))
            for x, t in zip(X.tolist(), y.tolist(), strict=True)
        )
        path.write_text("\n".join(lines) + "\n")
    return path, {}


@pytest.mark.parametrize("chunk_rows", [1, 7, 1000])
@pytest.mark.parametrize("ending", ["csv", "svm", "parquet", "npz", "npy"])
def test_rows_that_are_not_finite_are_counted(
    tmp_path: Path, ending: str, chunk_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 300)
    monkeypatch.setattr(stored_tables, "BATCH_VALUES", 60)
    X, y = RNG.normal(size=(90, 3)), RNG.normal(size=90)
    X[[4, 50, 89], 1], X[[4, 8], 2], y[[0, 89]] = [np.nan, np.inf, -np.inf], np.nan, [np.inf, -np.inf]
    path, options = write_as(tmp_path, ending, X, y)
    report, stored, _ = bring(path, chunk_rows=chunk_rows, **options)
    np.testing.assert_array_equal(stored[:], X)
    found = report.not_finite
    assert (found.n_rows, found.rows) == (4, [4, 8, 50, 89])
    assert found.n_features == 2
    names = {"csv": "abc", "parquet": "abc"}.get(ending, [None] * 3)
    assert [(f.feature, f.name, f.n_rows) for f in found.features] == [(1, names[1], 3), (2, names[2], 2)]
    assert (found.n_targets, found.target_rows) == ((0, []) if ending == "npy" else (2, [0, 89]))


def test_finite_data_say_so(tmp_path: Path) -> None:
    report, _, _ = bring(npz(tmp_path, X=SMALL.astype(np.float32), y=SMALL[:, 0]))
    assert asdict(report.not_finite) == {
        "n_rows": 0,
        "rows": [],
        "n_features": 0,
        "features": [],
        "n_targets": 0,
        "target_rows": [],
    }


def test_integers_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("integers are finite")

    monkeypatch.setattr(writing.np, "isfinite", refuse)
    assert bring(npz(tmp_path, X=SMALL, y=SMALL[:, 0]))[0].not_finite.n_rows == 0
    with pytest.raises(AssertionError, match="integers are finite"):
        import_data(str(npz(tmp_path, X=SMALL / 2)), str(tmp_path / "floats.zarr"))


def test_many_are_not_all_named(tmp_path: Path) -> None:
    X = np.ones((300, 70), np.float32)
    X[100:, 5:] = np.nan
    X[0, 69] = np.inf
    found = bring(npz(tmp_path, X=X), chunk_rows=64)[0].not_finite
    assert (found.n_rows, found.n_features) == (201, 65)
    assert found.rows == [0, *range(100, 119)]
    assert [f.feature for f in found.features] == [69, *range(5, 24)]


FOLLOWS = (
    "NaN is a missing value, which a model may accept (setting missing); training refuses infinity, and"
    " scoring gives it status 2"
)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ([[1.5]], [1], []),
        (
            [[1.5, 2], [np.nan, 2]],
            [1, 2],
            [f"1 row of X holds NaN or infinity (row 1, counted from 0) in feature 0 (1 row); {FOLLOWS}"],
        ),
        (
            np.where(np.eye(1200, 8) + np.eye(1200, 8, -1100) > 0, np.inf, 1.5),
            [np.inf] + [0.5] * 1199,
            [
                (
                    "16 rows of X hold NaN or infinity (rows 0, 1, 2, 3, 4 and 11 more, counted from 0) in"
                    " feature 0 (2 rows), feature 1 (2 rows), feature 2 (2 rows), feature 3 (2 rows), feature"
                    f" 4 (2 rows) and 3 more; {FOLLOWS}"
                ),
                "1 value of y is infinite (row 0, counted from 0); training refuses such rows",
            ],
        ),
    ],
)
def test_import_says_what_is_not_finite(tmp_path: Path, X: Any, y: Any, said: list[str]) -> None:
    path, out = npz(tmp_path, X=np.array(X), y=np.array(y)), tmp_path / "out.zarr"
    shown = CliRunner().invoke(main, ["import", str(path), str(out)])
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()[3:]
    assert [line.removeprefix("not finite").strip() for line in lines] == said
    again = CliRunner().invoke(main, ["import", str(path), f"{out}-2", "--json"])
    assert json.loads(again.stdout)["not_finite"]["n_rows"] == int((~np.isfinite(X)).any(axis=1).sum())


def test_features_are_called_by_name(tmp_path: Path) -> None:
    path = text(tmp_path, "height,age\n1,2\nnan,3\n")
    shown = CliRunner().invoke(main, ["import", str(path), str(tmp_path / "out.zarr")])
    assert "in feature height (1 row); NaN is a missing value" in shown.stdout
