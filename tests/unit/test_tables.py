"""Tables of columns into Zarr: what every kind of column becomes, in every format, and how the encoding of a
model or of another data set is followed.
"""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dcpred import import_data
from dcpred.cli import main
from dcpred.datasets import importing
from dcpred.datasets.importing import Imported, find_schema
from dcpred_tasks.errors import DataError, RefusedError
from dcpred_tasks.schema.column import DATE_PARTS, Boolean, Codes, Date, Id, Number, Target
from dcpred_tasks.schema.schema import Schema, read_schema
from dcpred_tasks.tables import csv_files, stored_tables
from support.tables import COLOURS, plain_rows, table, write_csv

FEATURES = (
    *("age", "colour", "old", "day", "day.weekday", "day.dayofyear"),
    *("seen", "seen.weekday", "seen.dayofyear", "seen.second", "amount"),
)
OPTIONS: dict[str, Any] = {"target": "label", "ids": ["id"]}
FRAME = table()
CITY = FEATURES.index("day")  # where the feature of the city is, if it is there


def bring(source: Any, folder: Path, **options: Any) -> tuple[Imported, zarr.Group]:
    dest = folder / f"out-{len(list(folder.iterdir()))}.zarr"
    report = import_data(source, dest, **options)
    return report, zarr.open_group(dest, mode="r")


def refused(source: Any, folder: Path, *words: str, **options: Any) -> None:
    """The message is one sentence with all these words, and nothing is left behind."""
    before = sorted(folder.iterdir())
    with pytest.raises(DataError) as caught:
        import_data(source, folder / "out.zarr", **options)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(folder.iterdir()) == before


def text(folder: Path, content: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def same(found: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found, float), np.asarray(wanted, float))


# -- What columns become -------------------------------------------------------------------------------------


def test_every_kind_of_column_becomes_what_the_guide_says(tmp_path: Path) -> None:
    path = write_csv(FRAME.drop(columns="city"), tmp_path / "a.csv")
    report, group = bring(path, tmp_path, **OPTIONS)
    assert tuple(group["X"].attrs["feature_names"]) == FEATURES
    same(group["X"][:], plain_rows(FRAME))
    assert group["X"].dtype == np.float64, "amounts have decimals"
    assert group["y"].attrs["labels"] == ["no", "yes"]
    same(group["y"][:], FRAME.label == "yes")
    assert group["id"][:].tolist() == FRAME.id.tolist()
    assert group.attrs["dcpred_ids"] == ["id"]
    assert read_schema(group.attrs["dcpred_schema"], "") == Schema(
        (
            *(Id("id"), Number("age"), Codes("colour", tuple(COLOURS)), Boolean("old")),
            *(
                Date("day", DATE_PARTS[:3], False),
                Date("seen", DATE_PARTS, False),
                Number("amount"),
                Target("label"),
            ),
        )
    )
    assert report.schema == group.attrs["dcpred_schema"]
    assert report.ids == ("id",)
    assert (report.ignored, report.unknown) == ((), None)


def as_csv(frame: pd.DataFrame, folder: Path) -> Path:
    return write_csv(frame, folder / "a.csv")


def as_parquet(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_parquet(folder / "a.parquet", row_group_size=70)
    return folder / "a.parquet"


def as_folder(frame: pd.DataFrame, folder: Path) -> Path:
    (folder / "parts").mkdir()
    for i, start in enumerate(range(0, len(frame), 250)):
        frame.iloc[start : start + 250].to_parquet(folder / "parts" / f"{i}.parquet")
    (folder / "parts" / "_SUCCESS").touch()
    (folder / "parts" / "_broken.parquet").write_text("left by a writer")
    return folder / "parts"


def as_feather(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_feather(folder / "a.feather")
    return folder / "a.feather"


def as_stream(frame: pd.DataFrame, folder: Path) -> Path:
    arrow = pa.Table.from_pandas(frame)
    with pa.OSFile(str(folder / "a.arrows"), "wb") as file, pa.ipc.new_stream(file, arrow.schema) as writer:
        writer.write_table(arrow, max_chunksize=99)
    return folder / "a.arrows"


def as_dataset(frame: pd.DataFrame) -> xr.Dataset:
    texts = {name: frame[name].fillna("").astype(object) for name in ("id", "colour", "city", "label")}
    return xr.Dataset.from_dataframe(frame.assign(**texts))


def as_zarr(frame: pd.DataFrame, folder: Path, version: int = 3) -> Path:
    as_dataset(frame).to_zarr(folder / "a.zarr", zarr_format=version, consolidated=False)
    return folder / "a.zarr"


def as_zarr_2(frame: pd.DataFrame, folder: Path) -> Path:
    return as_zarr(frame, folder, 2)


def as_netcdf_4(frame: pd.DataFrame, folder: Path) -> Path:
    as_dataset(frame).to_netcdf(folder / "a.nc", engine="h5netcdf")
    return folder / "a.nc"


def as_netcdf_3(frame: pd.DataFrame, folder: Path) -> Path:
    as_dataset(frame).to_netcdf(folder / "a.nc", engine="scipy", format="NETCDF3_64BIT")
    return folder / "a.nc"


def as_frame(frame: pd.DataFrame, _folder: Path) -> pd.DataFrame:
    return frame


def as_categories(frame: pd.DataFrame, _folder: Path) -> pd.DataFrame:
    return frame.astype({"colour": "category", "old": "boolean", "age": "Float64"})


def as_polars(frame: pd.DataFrame, _folder: Path) -> pl.DataFrame:
    return pl.from_pandas(frame)


def as_arrow(frame: pd.DataFrame, _folder: Path) -> pa.Table:
    return pa.Table.from_pandas(frame)


FORMATS = [as_csv, as_parquet, as_folder, as_feather, as_stream, as_zarr, as_zarr_2, as_netcdf_4, as_netcdf_3]
FRAMES = [as_frame, as_categories, as_polars, as_arrow]


@pytest.mark.parametrize(("separator", "file"), [(";", "a.csv"), ("\t", "a.tsv"), ("\t", "a.csv")])
def test_fields_between_semicolons_and_tabs(tmp_path: Path, separator: str, file: str) -> None:
    """A comma within a field separates nothing."""
    lines = [["size, in m", "town", "y"], *([str(i), f"{'AB'[i % 2]}, north", str(i % 2)] for i in range(40))]
    text(tmp_path, "".join(separator.join(line) + "\n" for line in lines), file)
    report = import_data(tmp_path / file, tmp_path / "a.zarr", target="y")
    group = zarr.open_group(report.path, mode="r")
    np.testing.assert_array_equal(group["X"][:], [[i, i % 2] for i in range(40)])
    assert group["X"].attrs["feature_names"] == ["size, in m", "town"]
    text(tmp_path, separator.join("ay") + "\n" + f"1,5{separator}0\n" * 9, "decimals.csv")
    with pytest.raises(
        DataError,
        match=r"numbers with signs or separators \('1,5'\)\. Write them as 1234\.5, pass --decimal , ",
    ):
        import_data(tmp_path / "decimals.csv", tmp_path / "b.zarr", target="y")


def test_a_first_column_without_a_name_is_no_feature_in_silence(tmp_path: Path) -> None:
    """As `DataFrame.to_csv` writes its index."""
    frame = pd.DataFrame({"a": np.arange(40.0), "y": np.arange(40) % 2}, index=np.arange(40) * 7)
    frame.to_csv(tmp_path / "a.csv")
    with pytest.raises(DataError, match="Keep it by --id index, or omit it by --drop index"):
        import_data(tmp_path / "a.csv", tmp_path / "a.zarr", target="y")
    for name, options in (("kept", {"ids": ["index"]}), ("dropped", {"drop": ["index"]})):
        group = zarr.open_group(import_data(tmp_path / "a.csv", tmp_path / name, target="y", **options).path)
        assert group["X"].attrs["feature_names"] == ["a"]
        assert ("index" in group) == (name == "kept")
        like = import_data(tmp_path / "a.csv", tmp_path / f"{name}-again", like=tmp_path / name)
        again = zarr.open_group(like.path)
        assert sorted(again.array_keys()) == sorted(group.array_keys())
        if name == "kept":
            np.testing.assert_array_equal(again["index"][:], np.arange(40) * 7)


def test_an_index_of_pandas_is_a_column_where_it_is_named(tmp_path: Path) -> None:
    """In memory and in Parquet, and then by the schema that is followed."""
    frame = pd.DataFrame(
        {"a": range(20), "y": [0, 1] * 10}, index=pd.Index([*range(10), *range(40, 50)], name="person")
    )
    frame.to_parquet(tmp_path / "a.parquet")
    for i, source in enumerate((frame, tmp_path / "a.parquet")):
        assert import_data(source, tmp_path / f"{i}.zarr", target="y").ids == ()
        import_data(source, tmp_path / f"ids-{i}.zarr", target="y", ids=["person"])
        import_data(source, tmp_path / f"like-{i}.zarr", like=tmp_path / f"ids-{i}.zarr")
        for name in ("ids", "like"):
            group = zarr.open_group(tmp_path / f"{name}-{i}.zarr", mode="r")
            np.testing.assert_array_equal(group["person"][...], frame.index)
            assert group["X"].shape == (20, 1)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_a_dimension_is_no_target(tmp_path: Path, engine: Any) -> None:
    """Grids have dimensions y and x, with coordinates or without."""
    grid = xr.Dataset({"height": (("y", "x"), np.arange(20.0).reshape(4, 5))})
    for i, dataset in enumerate([grid, grid.assign_coords(y=[3, 4, 5, 6])]):
        dataset.to_netcdf(tmp_path / f"{i}.nc", engine=engine)
        assert import_data(tmp_path / f"{i}.nc", tmp_path / f"{i}.zarr").target is None


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("write", [*FORMATS, *FRAMES], ids=lambda write: write.__name__)
def test_every_format_holds_the_same(
    tmp_path: Path, write: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 4_000)
    monkeypatch.setattr(csv_files, "HEADER_LENGTHS", 4)
    monkeypatch.setattr(stored_tables, "BATCH_VALUES", 700)
    (tmp_path / "source").mkdir()
    report, group = bring(write(FRAME, tmp_path / "source"), tmp_path, chunk_rows=128, **OPTIONS)
    names = list(group["X"].attrs["feature_names"])
    assert sorted(names) == sorted([*FEATURES, "city"])
    X = group["X"][:]
    same(X[:, [names.index(name) for name in FEATURES]], plain_rows(FRAME))
    first = bring(FRAME, tmp_path, **OPTIONS)[1]
    city = list(first["X"].attrs["feature_names"]).index("city")
    same(X[:, names.index("city")], first["X"][:, city])
    assert group["id"][:].tolist() == FRAME.id.tolist()
    same(group["y"][:], FRAME.label == "yes")
    assert report.n_classes == 2


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": ["x", "y"]}, "uint8"),
        ({"a": [True, False]}, "bool"),
        ({"a": [True, None]}, "float32"),
        ({"a": ["x", "y"], "b": [1, 70_000]}, "int64"),
        ({"a": ["x", "y"], "b": pa.array([1.5, 2], pa.float32())}, "float32"),
        ({"a": pa.array([1, 20_000], pa.date32())}, "uint32"),
        ({"a": pa.array([-1, 20_000], pa.date32())}, "int32"),
        ({"a": pa.array([None, 20_000], pa.date32())}, "float32"),
        ({"a": pa.array([1, 1_500], pa.timestamp("ms"))}, "float64"),
        ({"a": [None, None], "b": ["x", "y"]}, "float32"),
        ({"a": pa.array([1, 2], pa.decimal128(5, 2))}, "float64"),
    ],
)
def test_the_dtype_holds_what_columns_become(tmp_path: Path, columns: dict[str, Any], dtype: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    _, group = bring(tmp_path / "a.parquet", tmp_path)
    assert group["X"].dtype == dtype
    followed = bring(tmp_path / "a.parquet", tmp_path, like=tmp_path / "out-1.zarr")[1]
    same(followed["X"][:], group["X"][:])


def test_text_far_down_makes_a_column_one_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 60)
    monkeypatch.setattr(csv_files, "HEADER_LENGTHS", 1)
    rows = ["1,1,1"] * 50 + ["a,1,2"] * 60 + ["b,2,x"] * 180
    path = text(tmp_path, "\n".join(["p,q,r", *rows]))
    _, group = bring(path, tmp_path)
    assert [c["kind"] for c in group.attrs["dcpred_schema"]["columns"]] == ["category", "number", "category"]
    assert group["X"][0].tolist() == [0, 1, 0]
    assert group["X"][-1].tolist() == [2, 2, 2]


def test_what_stands_for_a_gap(tmp_path: Path) -> None:
    rows = [" NA ,x,3", "4,?,?", "5,y,6", "6,N/A,7", "7,,8"]
    path = text(tmp_path, "\n".join(["a,b,c", *rows]))
    refused(path, tmp_path, "numbers in most rows", "'?' in row 1", "--gap '?'")
    report, group = bring(path, tmp_path, gaps=["?"])
    same(group["X"][:], [[np.nan, 0, 3], [4, 3, np.nan], [5, 1, 6], [6, 3, 7], [7, 3, 8]])
    assert report.schema is not None
    assert report.schema["gap_texts"] == ["?"]
    followed = bring(text(tmp_path, "c,a,b\n?,1,?\n", "b.csv"), tmp_path, like=tmp_path / "out-1.zarr")[1]
    same(followed["X"][:], [[1, 3, np.nan]])


def test_quotes_unicode_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [
        '\ufeff"größe, m",art',
        '1.5,"a ""b"", c"',
        "",
        '2,"a ""b"", c"',
        "3, 日本 ",
        '4,"zwei\nZeilen"',
        "",
    ]
    path.write_bytes("\r\n".join(rows).encode())
    report, group = bring(path, tmp_path, categorical=["art"])
    assert group["X"].attrs["feature_names"] == ["größe, m", "art"]
    assert report.schema is not None
    assert report.schema["columns"][1]["categories"] == ['a "b", c']
    assert group["X"][:, 1].tolist() == [0, 0, 1, 1]


def test_columns_that_were_named(tmp_path: Path) -> None:
    path = text(tmp_path, "soil,zip,n,t\n" + "1,007,5,x\n" * 20 + "2,100,6,y\n" * 20 + "7,007,7,x\n")
    _, group = bring(path, tmp_path, categorical=["soil", "zip"], drop=["t"])
    schema = read_schema(group.attrs["dcpred_schema"], "")
    assert schema.columns[:2] == (Codes("soil", (1, 2)), Codes("zip", ("007", "100")))
    assert group["X"][[0, 20, 40]].tolist() == [[0, 0, 5], [1, 1, 6], [2, 0, 7]]
    frame = pd.DataFrame({"soil": [1.0, 2, 9, np.nan], "zip": ["100", "007", "x", None], "n": 1})
    same(
        bring(frame, tmp_path, like=tmp_path / "out-1.zarr")[1]["X"][:, :2], [[0, 1], [1, 0], [2, 2], [3, 3]]
    )


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("a,b\n1,x\n", {"drop": ["c"]}, ["Cannot drop column 'c'", "Pass one of a, b"]),
        ("a,b\n1,x\n", {"ids": ["bb"]}, ["Cannot store column 'bb' as id", "Did you mean 'b'?"]),
        ("a,b\n1,x\n", {"categorical": ["c"]}, ["Cannot encode column 'c' as category"]),
        ("a,b\n1,x\n", {"target": "a", "drop": ["b"]}, ["no column besides the target"]),
        ("a,b\n1,x\n", {"target": "a", "ids": ["a"]}, ["as id and as target"]),
        ("a,y\n1,x\n", {"ids": ["y"]}, ["Cannot store column 'y' next to X", "Rename it"]),
        ("a,b/c\n1,x\n", {"ids": ["b/c"]}, ["'b/c'", "Rename it"]),
        ("a,a.weekday\n2020-01-01,1\n", {}, ["two features are called 'a.weekday'"]),
        ("a,b\n1,x\n2,y\n", {"schema": {"version": 1, "columns": [{"name": "c", "kind": "id"}]}}, ["'c'"]),
    ],
)
def test_what_cannot_be_asked_for(
    tmp_path: Path, content: str, options: dict[str, Any], words: list[str]
) -> None:
    refused(text(tmp_path, content), tmp_path, *words, **options)


def test_all_columns_that_cannot_be_told_are_named(tmp_path: Path) -> None:
    rows = [f"{i},name {i},title {i},{i}/3/2020" for i in range(100)]
    path = text(tmp_path, "\n".join(["a,name,title,when", *rows]))
    refused(
        path, tmp_path, "column 'name'", "100 different values in 100 rows", "(and 'title', 'when' likewise)"
    )


def test_memory_does_not_grow_with_the_rows_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 2**14)
    peaks = []
    for n in (1_200, 1_200, 9_600):  # the first fills caches
        path = write_csv(pd.concat([FRAME] * (n // 600)), tmp_path / f"{len(peaks)}.csv")
        tracemalloc.start()
        import_data(path, path.with_suffix(".zarr"), chunk_rows=500, **OPTIONS)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 4 * peaks[1], "of eight times as many rows"


# -- Ids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "dtype", "values"),
    [
        (pa.array([3, 2**60 + 1]), "int64", [3, 2**60 + 1]),
        (pa.array([3, None]), "text", ["3", ""]),
        (pa.array([3, 4], pa.uint8()), "uint8", [3, 4]),
        (pa.array([0.5, None]), "float64", [0.5, np.nan]),
        (pa.array([True, False]), "bool", [True, False]),
        (pa.array(["a", None]), "text", ["a", ""]),
        (pa.array(["12", "-7"]), "int64", [12, -7]),
        (pa.array(["12", "07"]), "text", ["12", "07"]),
        (pa.array(["12", None]), "text", ["12", ""]),
        (pa.array(["9223372036854775807", "9223372036854775808"]), "text", [str(2**63 - 1), str(2**63)]),
        (pa.array(["a", "b"]).dictionary_encode(), "text", ["a", "b"]),
        (pa.array([1, None], pa.date32()), "text", ["1970-01-02", ""]),
        (
            pa.array([1, 90000], pa.timestamp("s", "Europe/Paris")),
            "text",
            ["1970-01-01T00:00:01Z", "1970-01-02T01:00:00Z"],
        ),
        (pa.array([1, 2], pa.timestamp("s")), "text", ["1970-01-01T00:00:01", "1970-01-01T00:00:02"]),
        (pa.array([1, 2], pa.decimal128(5, 2)), "text", ["1.00", "2.00"]),
    ],
)
def test_ids_are_kept_as_they_are(tmp_path: Path, column: Any, dtype: str, values: list[Any]) -> None:
    pq.write_table(pa.table({"the id": column, "a": [1, 2]}), tmp_path / "a.parquet")
    report, group = bring(tmp_path / "a.parquet", tmp_path, ids=["the id"], chunk_rows=1)
    found = group["the id"]
    assert (found.dtype.kind == "T") if dtype == "text" else (found.dtype == dtype)
    np.testing.assert_array_equal(found[:].tolist(), values)
    assert report.ids == ("the id",)
    with xr.open_zarr(tmp_path / "out-1.zarr", consolidated=False) as opened:
        assert opened["the id"].dims == ("sample",)
        np.testing.assert_array_equal(opened["the id"].values.tolist(), values)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["1", "2"], [1, 2]),
        (["1", "02"], ["1", "02"]),
        (["NA", "null"], ["NA", "null"]),
        (["1", ""], ["1", ""]),
        (["9007199254740993", "1"], [2**53 + 1, 1]),
        (["1.0", "2"], ["1.0", "2"]),
    ],
)
def test_ids_of_text_files_are_never_rounded(tmp_path: Path, values: list[str], found: list[Any]) -> None:
    path = text(tmp_path, "i,a\n" + "".join(f"{value},1\n" for value in values))
    assert bring(path, tmp_path, ids=["i"])[1]["i"][:].tolist() == found


def test_ids_that_cannot_be_kept(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": [[1], [2]], "a": [1, 2]}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", tmp_path, "'i'", "list", "have no form as text", ids=["i"])


# -- Many categories -----------------------------------------------------------------------------------------


def test_many_categories_are_codes_whatever_the_target_is(tmp_path: Path) -> None:
    """Nothing of the target is in X: means are fitted in training."""
    written = [
        bring(FRAME, tmp_path, target=target, drop=["id", *{"label", "amount"} - {target}])[1]
        for target in ("label", "amount")
    ]
    for group in written:
        at = list(group["X"].attrs["feature_names"]).index("city")
        schema = read_schema(group.attrs["dcpred_schema"], "")
        column = schema.sources[at]
        assert schema.target_coded == [at]
        known = {name: place for place, name in enumerate(column.categories)}
        same(group["X"][:, at], FRAME.city.map(known).fillna(column.gap).to_numpy())
        assert column.says(0, 0.0) == column.categories[0]


def test_codes_follow_those_of_another_data_set(tmp_path: Path) -> None:
    _, group = bring(FRAME, tmp_path, **OPTIONS)
    at = list(group["X"].attrs["feature_names"]).index("city")
    column = read_schema(group.attrs["dcpred_schema"], "").sources[at]
    new = table(200, seed=5).assign(label="yes")
    new.loc[0, "city"] = "Atlantis"
    report, followed = bring(new, tmp_path, like=tmp_path / "out-0.zarr")
    assert followed.attrs["dcpred_schema"]["columns"] == [
        *[c for c in group.attrs["dcpred_schema"]["columns"] if c["kind"] not in ("id", "target")],
        *({"name": "label", "kind": "target"}, {"name": "id", "kind": "id"}),
    ]
    known = {name: place for place, name in enumerate(column.categories)}
    wanted = [column.gap if c is None or c != c else known.get(c, column.other) for c in new.city]
    same(followed["X"][:, at], np.array(wanted))
    assert followed["X"][0, at] == column.other
    assert report.unknown == {"city": 1}


def test_rows_without_a_target_have_codes_too(tmp_path: Path) -> None:
    assert bring(FRAME[["city", "amount"]], tmp_path)[1]["X"].shape == (len(FRAME), 2)


# -- Rows encoded like those of another data set -------------------------------------------------------------

values = st.fixed_dictionaries(
    {
        "c": st.sampled_from(["red", "blue", "green", "a, b", 'say "x"', None]),
        "n": st.integers(-99, 99) | st.none(),
        "f": st.floats(-1e6, 1e6, width=32) | st.none(),
        "b": st.booleans() | st.none(),
        "d": st.datetimes(pd.Timestamp("1900-01-01"), pd.Timestamp("2100-01-01")).map(
            lambda d: d.replace(microsecond=0)
        )
        | st.none(),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(st.lists(values, min_size=1, max_size=12), st.permutations(list("cnfbd")))
def test_rows_followed_are_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], order: list[str]
) -> None:
    """By CSV, by Parquet and as frames; with columns in any order."""
    folder = tmp_path_factory.mktemp("like")
    frame = pd.DataFrame(rows, columns=list("cnfbd")).astype({"c": "string", "n": "Int64", "b": "boolean"})
    frame["d"] = pd.to_datetime(frame["d"])
    _, group = bring(frame, folder)
    shuffled = frame[order]
    shuffled.to_parquet(folder / "a.parquet")
    written = shuffled.assign(d=shuffled["d"].dt.strftime("%Y-%m-%dT%H:%M:%S"), extra=1)
    path = write_csv(written, folder / "a.csv")
    for source in (shuffled, pl.from_pandas(shuffled), folder / "a.parquet", path):
        report, followed = bring(source, folder, like=folder / "out-0.zarr")
        assert followed["X"].attrs["feature_names"] == group["X"].attrs["feature_names"]
        np.testing.assert_array_equal(followed["X"][:].astype(float), group["X"][:].astype(float))
        assert set(report.unknown or {}) <= {"c"}, "rare ones are as those that were never seen"
        assert report.ignored == (("extra",) if source is path else ())


def test_what_is_followed_and_what_is_told(tmp_path: Path) -> None:
    first = text(tmp_path, "c,n,y\n" + "red,1,p\n" * 12 + "blue,2,q\n" * 12)
    bring(first, tmp_path, target="y")
    like = tmp_path / "out-1.zarr"
    new = text(tmp_path, "x,n,c\n9,3,red\n9,4,teal\n8,,pink\n9,5,\n", "new.csv")
    report, group = bring(new, tmp_path, like=like)
    same(group["X"][:], [[1, 3], [2, 4], [2, np.nan], [3, 5]])
    assert "y" not in group
    assert (report.ignored, report.unknown) == (("x",), {"c": 2})
    report, group = bring(new, tmp_path, like=like, target="x", ids=["x"][:0])
    assert group["y"][:].tolist() == [9, 9, 8, 9]
    assert report.ignored == ()
    assert bring(new, tmp_path, like=like, ids=["x"])[1]["x"][:].tolist() == [9, 9, 8, 9]
    _, with_ids = bring(new, tmp_path, ids=["x"], drop=["c"])
    group = bring(new, tmp_path, like=str(with_ids.store.root), target="x")[1]
    assert group["y"][:].tolist() == [9, 9, 8, 9], "an id of the schema may be a target, if that is asked for"
    assert "x" not in group


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("n\n1\n", {}, ["lacks the column 'c'", "Add what is missing", "--absent c"]),
        ("x\n1\n", {}, ["lacks the columns 'c', 'n'"]),
        ("c,n\nred,x\n", {}, ["column 'n'", "as numbers", "'x' in row 0"]),
        ("c,n\nred,1\n", {"categorical": ["n"]}, ["Cannot combine --categorical with --like"]),
        ("c,n\nred,1\n", {"ids": ["n"]}, ["store column 'n' as id", "has it as a feature"]),
        ("c,n\nred,1\n", {"target": "c"}, ["use column 'c' as target", "has it as a feature"]),
        ("c,n,q\nred,1,2\n", {"ids": ["q"], "target": "q"}, ["column 'q' both as id and as target"]),
        ("c,n\nred,1\n", {"ids": ["q"]}, ["Cannot store column 'q' as id"]),
    ],
)
def test_what_cannot_be_followed(
    tmp_path: Path, content: str, options: dict[str, Any], words: list[str]
) -> None:
    bring(text(tmp_path, "c,n\n" + "red,1\n" * 12 + "blue,2\n" * 12), tmp_path)
    refused(text(tmp_path, content, "b.csv"), tmp_path, *words, like=tmp_path / "out-1.zarr", **options)


def test_columns_of_another_type_are_refused(tmp_path: Path) -> None:
    bring(FRAME.drop(columns="city"), tmp_path, **OPTIONS)
    like = tmp_path / "out-0.zarr"
    for name, values, words in (
        (
            "age",
            ["x"],
            "its schema expects numbers, but it holds text ('x')",
        ),
        (
            "day",
            [3],
            r"its schema expects dates (ISO 8601), but it holds numbers",
        ),
        ("old", ["perhaps"], "its schema expects true and false"),
        ("colour", pd.to_datetime(["2020-01-01"]), "its schema expects text or numbers"),
    ):
        frame = FRAME.head(1).drop(columns=name)
        frame[name] = values
        refused(frame, tmp_path, f"column {name!r}", words, like=like)


def test_nothing_to_follow(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(2))
    import_data(tmp_path / "a.npy", tmp_path / "a.zarr")
    path = text(tmp_path, "a\n1\n")
    refused(path, tmp_path, "has neither a schema nor names of features", like=tmp_path / "a.zarr")
    with pytest.raises(RefusedError, match="does not exist"):
        import_data(path, tmp_path / "out.zarr", like=tmp_path / "nowhere.zarr")


def test_a_schema_that_is_damaged_is_told(tmp_path: Path) -> None:
    path = text(tmp_path, "a\n1\n")
    bring(path, tmp_path)
    group = zarr.open_group(tmp_path / "out-1.zarr", mode="r+")
    group.attrs["dcpred_schema"] = {"version": 1, "columns": [{"name": "a", "kind": "nonsense"}]}
    refused(
        path, tmp_path, "Cannot use the schema of", "out-1.zarr", "'nonsense'", like=tmp_path / "out-1.zarr"
    )


# -- Schemas by hand -----------------------------------------------------------------------------------------


def test_a_schema_says_what_columns_are(tmp_path: Path) -> None:
    path = as_csv(FRAME, tmp_path)
    columns = [
        *(
            {"name": "id", "kind": "id"},
            {"name": "label", "kind": "target"},
            {"name": "day", "kind": "dropped"},
        ),
        {"name": "city", "kind": "category", "encoding": "codes"},
        {"name": "colour", "kind": "category", "encoding": "codes", "categories": ["red", "blue"]},
        *({"name": "seen", "kind": "date", "parts": ["weekday"]}, {"name": "age", "kind": "category"}),
    ]
    (tmp_path / "s.json").write_text(json.dumps({"version": 1, "columns": columns}))
    for schema in (tmp_path / "s.json", {"version": 1, "columns": columns}):
        _, group = bring(path, tmp_path, schema=schema)
        assert group["X"].attrs["feature_names"] == ["age", "colour", "old", "city", "seen.weekday", "amount"]
        found = {c["name"]: c for c in group.attrs["dcpred_schema"]["columns"]}
        assert found["colour"]["categories"] == ["red", "blue"]
        assert found["city"]["encoding"] == "codes"
        assert found["age"]["encoding"] == "target", "72 ages are too many to be codes by themselves"
        red = (FRAME.colour == "red").to_numpy()
        assert (group["X"][:, 1][red] == 0).all()


def test_a_schema_that_was_shown_gives_the_same_data(tmp_path: Path) -> None:
    path = as_csv(FRAME.drop(columns="city"), tmp_path)
    shown = CliRunner().invoke(
        main, ["import", str(path), "--show-schema", "--target", "label", "--id", "id"]
    )
    assert shown.exit_code == 0
    (tmp_path / "s.json").write_text(shown.stdout)
    _, one = bring(path, tmp_path, schema=tmp_path / "s.json")
    _, other = bring(path, tmp_path, **OPTIONS)
    assert dict(one.attrs) == dict(other.attrs)
    for name in ("X", "y", "id"):
        np.testing.assert_array_equal(one[name][:], other[name][:])
    assert find_schema(path, **OPTIONS) == read_schema(json.loads(shown.stdout), "")


def test_files_that_are_no_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = text(tmp_path, "a\n1\n")
    given = tmp_path / "s.json"
    refused(path, tmp_path, "Cannot read a schema from", "does not exist", schema=given)
    for content, why in (
        ("{", "is not valid JSON"),
        ("[" * 99_999, "is not valid JSON"),
        ("3", "is not a JSON object"),
    ):
        given.write_text(content)
        refused(path, tmp_path, why, schema=given)
    refused(path, tmp_path, "is not a file. Check the path", schema=tmp_path)
    monkeypatch.setattr(importing, "LARGEST_SCHEMA", 5)
    given.write_text("[3, 3, 3]")
    refused(path, tmp_path, "has more than 0 MiB", schema=given)


# -- The command ---------------------------------------------------------------------------------------------


def test_import_shows_what_columns_are(tmp_path: Path) -> None:
    path = as_csv(FRAME.rename(columns={"city": "city, \x1b[31mred"}), tmp_path)
    out = tmp_path / "out.zarr"
    arguments = ["import", str(path), str(out), "--target", "label", "--id", "id", "--drop", "amount, old"]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[-8:] == [
        "columns     1 id, 1 number, 2 categories, 2 omitted, 2 dates, 1 target",
        "            id              stored next to X",
        "            colour          codes blue 0, gréen 1, …, others 3, missing 4",
        "            old             omitted",
        "            city, �[31mred  codes of 90 categories, target-encoded",
        "            day             day, weekday, dayofyear, a missing value NaN",
        "            seen            day, weekday, dayofyear, second, a missing value NaN",
        "            amount          omitted",
    ]
    assert max(map(len, shown.stdout.splitlines()[-8:])) <= 80
    new = write_csv(
        table(50, seed=9).rename(columns={"city": "city, \x1b[31mred", "old": "x"}), tmp_path / "b.csv"
    )
    shown = CliRunner().invoke(main, ["import", str(new), f"{out}-2", "--like", str(out)])
    assert "note  unknown-columns: columns not known: 'x'" in shown.stdout
    told = CliRunner().invoke(main, ["import", str(new), f"{out}-3", "--like", str(out), "--json"])
    assert json.loads(told.stdout)["ignored"] == ["x"]
    assert json.loads(told.stdout)["schema"]["version"] == 1


def test_names_with_commas_stand_in_quotes(tmp_path: Path) -> None:
    path = text(tmp_path, '"a, b",c,d\n1,2,3\n')
    shown = CliRunner().invoke(main, ["import", str(path), "--show-schema", "--drop", '"a, b", c'])
    assert [c["kind"] for c in json.loads(shown.stdout)["columns"]] == ["dropped", "dropped", "number"]


def test_a_place_is_needed_unless_the_schema_is_only_shown(tmp_path: Path) -> None:
    path = text(tmp_path, "a\n1\n")
    refusal = CliRunner().invoke(main, ["import", str(path)])
    assert refusal.exit_code == 2
    assert "no destination is given" in refusal.output
    np.save(tmp_path / "a.npy", np.eye(2))
    refusal = CliRunner().invoke(main, ["import", str(tmp_path / "a.npy"), "--show-schema"])
    assert refusal.exit_code == 3
    assert "holds a matrix, which has no columns" in refusal.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.npy"]


def test_a_table_of_numbers_has_one_line_more(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["import", str(text(tmp_path, "a,b\n1,2\n")), str(tmp_path / "o.zarr")])
    assert shown.stdout.splitlines()[3:] == ["columns  2 numbers"]
