"""Tables as other programs write them: marks, quotation marks, types and missing values that options state,
and refusals that name the column, the row and a remedy that works.
"""

import decimal
import re
import shlex
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner

from dcpred import DCPredClassifier, import_data
from dcpred.cli import main
from dcpred_tasks.errors import DataError, DcpredError
from dcpred_tasks.schema.frames import encode_frame
from dcpred_tasks.schema.inference import marks_hint
from dcpred_tasks.schema.schema import numbers_schema, read_schema
from dcpred_tasks.tables import csv_files


def text(folder: Path, content: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text(content, newline="")
    return path


def bring(source: Any, folder: Path, **options: Any) -> zarr.Group:
    dest = folder / f"out-{len(list(folder.iterdir()))}.zarr"
    import_data(source, dest, **options)
    return zarr.open_group(dest, mode="r")


def refused(source: Any, folder: Path, **options: Any) -> str:
    """The sentence of a refusal, before which nothing is written."""
    before = sorted(folder.iterdir())
    with pytest.raises(DcpredError) as caught:
        import_data(source, folder / "refused.zarr", **options)
    assert "\n" not in str(caught.value)
    assert "damaged" not in str(caught.value)
    assert sorted(folder.iterdir()) == before
    return str(caught.value)


def rows_of(group: zarr.Group) -> list[list[float]]:
    return np.asarray(group["X"][:]).tolist()  # type: ignore[no-any-return]


# -- Quotation marks and lines -------------------------------------------------------------------------------


def dump(separator: str, last: int = 50, n: int = 90) -> str:
    """Fields without quotation, of which some begin with a quotation mark."""
    notes = ['"big' if i in (10, last) else "plain" for i in range(n)]
    lines = [f"{i}{separator}{note}{separator}{i % 2}" for i, note in enumerate(notes)]
    return "\n".join([separator.join(["a", "note", "y"]), *lines, ""])


@pytest.mark.parametrize("separator", ["\t", ",", ";", "|"])
@pytest.mark.parametrize("last", [11, 50, 10])  # the next row, a later one, and never
def test_a_quotation_mark_that_joins_rows_is_refused(tmp_path: Path, separator: str, last: int) -> None:
    path = text(tmp_path, dump(separator, last))
    for options in ({}, {"drop": "note"}):
        message = refused(path, tmp_path, target="y", **options)
        assert "row 10 (counted from 0)" in message
        assert "--no-quotes" in message
        assert ("encloses 1 line break and" in message) == (last == 11)
    assert len(rows_of(bring(path, tmp_path, target="y", quotes=False))) == 90
    if last != 10:
        assert len(rows_of(bring(path, tmp_path, target="y", quotes=True, drop="note"))) < 90


def test_fields_with_line_breaks_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a batch ends within one."""
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 200)
    lines = [f'{i},"Main Street {i}\nFlat 3, left\n\nUlm",{i % 2}\n' for i in range(60)]
    group = bring(text(tmp_path, "a,address,y\n" + "".join(lines)), tmp_path, target="y", id="address")
    assert [row[0] for row in rows_of(group)] == list(range(60))
    assert group["address"][3] == "Main Street 3\nFlat 3, left\n\nUlm"


def test_rows_longer_than_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 100)
    lines = [f"{i},{'z' * (1500 if i == 70 else 5)},{i % 2}\n" for i in range(200)]
    path = text(tmp_path, "a,note,y\n" + "".join(lines))
    assert [row[0] for row in rows_of(bring(path, tmp_path, target="y", drop="note"))] == list(range(200))
    path = text(tmp_path, "a,note,y\n" + "".join(lines) + f"1,{'z' * 40_000},0\n", "b.csv")
    assert "row 200 (counted from 0) or one soon after it is longer than" in refused(
        path, tmp_path, drop="note"
    )


@pytest.mark.parametrize(
    ("head", "line", "end"),
    [
        ("sep=;\na;b\n", "{0};{1}", "\n"),
        ("\ufeffsep=;\r\na;b\r\n", "{0};{1}", "\r\n"),
        ("a,b\r", "{0},{1}", "\r"),
        ("a|b\n", "{0}|{1}", "\n"),
        ("\ufeff", "{0},{1}", "\n"),
        ("a,b\n", "\u2212{0},{1}.5D+01", "\n"),
        ("a,b\n", " +{0} ,{1}", "\n"),
    ],
)
def test_other_ways_to_write_rows(tmp_path: Path, head: str, line: str, end: str) -> None:
    lines = "".join(line.format(i, i % 7) + end for i in range(40))
    sign, tens = (-1, 10) if "\u2212" in line else (1, 1)
    wanted = [[sign * i, tens * (i % 7 + (0.5 if tens > 1 else 0))] for i in range(40)]
    assert rows_of(bring(text(tmp_path, head + lines), tmp_path)) == wanted


def test_a_separator_that_is_stated(tmp_path: Path) -> None:
    path = text(tmp_path, "a^b\n" + "".join(f"{i}^{i % 2}\n" for i in range(40)))
    assert "--separator" in refused(path, tmp_path, target="b")
    assert len(rows_of(bring(path, tmp_path, target="b", separator="^"))) == 40
    assert "it is not one ASCII character" in refused(path, tmp_path, separator="::")


def test_a_row_with_other_fields_and_bytes_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 60)
    lines = [f"{i},town,{i % 2}\n" for i in range(60)]
    path = text(tmp_path, "a,b,y\n" + "".join([*lines[:40], "1,2\n", *lines]))
    assert "row 40 (counted from 0) has 2 fields, but the first line 3" in refused(path, tmp_path, target="y")
    path.write_bytes(("a,b,y\n" + "".join(lines)).encode() + "1,caf\xe9,0\n".encode("latin-1"))
    message = refused(path, tmp_path, target="y")
    assert "column 'b' in row 60 (counted from 0) is not text in UTF-8" in message


# -- Numbers with other marks --------------------------------------------------------------------------------


def german(thousands: str = "") -> str:
    values = [-1234.5, 0.25, 7, 1234567.75] * 15
    words = [f"{v:,.2f}".translate(str.maketrans(",.", "\0,")).replace("\0", thousands) for v in values]
    return "amount;town;y\n" + "".join(f"{word};{'AB'[i % 2]};{i % 3},5\n" for i, word in enumerate(words))


@pytest.mark.parametrize("mark", ["", ".", "'", "\u202f"])
def test_decimal_commas_are_read_and_followed(tmp_path: Path, mark: str) -> None:
    path = text(tmp_path, german(mark))
    message = refused(path, tmp_path, target="y")
    assert f"--decimal ,{f' --thousands {shlex.quote(mark)}' if mark else ''} where" in message
    options = {"decimal": ","} | ({"thousands": mark} if mark else {})
    known = bring(path, tmp_path, target="y", **options)
    assert [row[0] for row in rows_of(known)] == [-1234.5, 0.25, 7, 1234567.75] * 15
    assert known["y"][:4].tolist() == [0.5, 1.5, 2.5, 0.5]
    followed = bring(path, tmp_path, like=str(known.store_path).removeprefix("file://"))
    assert rows_of(followed) == rows_of(known)


def test_numbers_that_do_not_fit_the_marks_are_refused(tmp_path: Path) -> None:
    path = text(tmp_path, "a;y\n" + "1.5;0\n2,25;1\n" * 20)
    message = refused(path, tmp_path, target="y", decimal=",")
    assert "'1.5' in row 0 (counted from 0), but decimals have a comma" in message
    assert "column 'a'" in refused(path, tmp_path, target="y", decimal=",", thousands=".")
    assert "decimal mark is ';'" in refused(path, tmp_path, decimal=";")
    assert "other than the decimal mark" in refused(path, tmp_path, decimal=",", thousands=",")


def test_large_whole_numbers_with_marks_are_not_rounded(tmp_path: Path) -> None:
    path = text(tmp_path, "a;y\n" + "9.007.199.254.740.993;0\n1;1\n" * 9)
    assert "9007199254740993" in refused(path, tmp_path, target="y", decimal=",", thousands=".")
    path = text(tmp_path, "a;y\n" + "+9007199254740993;0\n1;1\n" * 9)
    assert "9007199254740993" in refused(path, tmp_path, target="y")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("1,5", "--decimal , where"),
        ("1.234,5", "--decimal , --thousands . where"),
        ("1,234", "--decimal , or --thousands , where"),
        ("1,234,567.5", "--thousands , where"),
        ("1 234,5", "--decimal , --thousands ' ' where"),
        ("$5", ""),
    ],
)
def test_which_options_read_a_number(value: str, hint: str) -> None:
    assert hint in marks_hint(value)
    assert bool(marks_hint(value)) == bool(hint)


# -- Missing values ------------------------------------------------------------------------------------------


def test_a_class_that_is_called_na(tmp_path: Path) -> None:
    path = text(tmp_path, "a,b,country\n" + "1,NA,DE\n2,x,NA\n" * 20)
    message = refused(path, tmp_path, target="country")
    assert "holds 'NA', which stands for a missing value, in row 1 (counted from 0)" in message
    group = bring(path, tmp_path, target="country", not_missing="NA")
    assert group["y"].attrs["labels"] == ["DE", "NA"]
    assert read_schema(group.attrs["dcpred_schema"], "").text.not_missing == ("NA",)
    new = text(tmp_path, "a,b,country\n1,NA,NA\n", "new.csv")
    followed = bring(new, tmp_path, like=str(group.store_path).removeprefix("file://"))
    assert followed["y"].attrs["labels"] == ["NA"]
    assert rows_of(followed) == rows_of(group)[:1]
    words = ["import", str(path), str(tmp_path / "rest.zarr"), "--target", "country", "--drop-unlabelled"]
    assert "pass --not-missing NA if it is a class" in CliRunner().invoke(main, words).stdout
    message = refused(path, tmp_path, target="country", gap="NA", not_missing="NA")
    assert "--gap NA and --not-missing NA" in message


@pytest.mark.parametrize("of", ["csv", "parquet", "pandas", "records"])
def test_rows_without_a_target_can_be_left_out(tmp_path: Path, of: str) -> None:
    answers = ["yes", None, "no", "?"] * 10
    frame = pd.DataFrame({"a": range(40), "b": ["x", "y"] * 20, "answer": answers})
    sources: dict[str, Callable[[], Any]] = {
        "csv": lambda: text(tmp_path, frame.to_csv(index=False)),
        "parquet": lambda: frame.to_parquet(tmp_path / "a.parquet") or tmp_path / "a.parquet",
        "pandas": lambda: frame,
        "records": lambda: [{k: v for k, v in r.items() if v is not None} for r in frame.to_dict("records")],
    }
    source = sources[of]()
    assert "--drop-unlabelled" in refused(source, tmp_path, target="answer")
    report = import_data(source, tmp_path / "o.zarr", target="answer", gap="?", drop_unlabelled=True, id="a")
    group = zarr.open_group(tmp_path / "o.zarr", mode="r")
    assert (report.n_samples, report.unlabelled) == (20, 20)
    assert group["a"][:].tolist() == list(range(0, 40, 2))
    assert group["y"].attrs["labels"] == ["no", "yes"]
    assert "--target" in refused(source, tmp_path, drop_unlabelled=True)


def test_a_target_of_numbers_with_a_word(tmp_path: Path) -> None:
    path = text(tmp_path, "a,y\n" + "".join(f"{i},{'ERR' if i == 70 else i}\n" for i in range(200)))
    message = refused(path, tmp_path, target="y")
    assert "'ERR' in row 70 (counted from 0)" in message
    assert "--gap ERR --drop-unlabelled" in message
    assert bring(path, tmp_path, target="y", gap="ERR", drop_unlabelled=True)["y"].shape == (199,)


def test_a_word_or_a_column_that_lacks_on_a_later_night(tmp_path: Path) -> None:
    known = text(tmp_path, "a,town,y\n" + "".join(f"{i},{'AB'[i % 2]},{i % 2}\n" for i in range(60)))
    import_data(known, tmp_path / "known.zarr", target="y")
    new = text(tmp_path, "a,town,y\n1,A,0\nERR,B,1\n", "new.csv")
    message = refused(new, tmp_path, like=tmp_path / "known.zarr")
    assert "'ERR' in row 1 (counted from 0)" in message
    assert "--gap ERR" in message
    assert "--drop" not in message
    np.testing.assert_array_equal(
        bring(new, tmp_path, like=tmp_path / "known.zarr", gap="ERR")["X"][:], [[1, 0], [np.nan, 1]]
    )
    lacks = text(tmp_path, "town,y\nA,0\nB,1\n", "lacks.csv")
    assert "--absent a" in refused(lacks, tmp_path, like=tmp_path / "known.zarr")
    for source in (lacks, pd.DataFrame({"town": ["A", "B"], "y": [0, 1]}), new):
        group = bring(source, tmp_path, like=tmp_path / "known.zarr", absent="a")
        np.testing.assert_array_equal(group["X"][:], [[np.nan, 0], [np.nan, 1]])
    assert import_data(new, tmp_path / "n.zarr", like=tmp_path / "known.zarr", absent="a").absent == ("a",)
    assert import_data(lacks, tmp_path / "l.zarr", like=tmp_path / "known.zarr", absent="a").absent == ()
    assert "Cannot declare column 'b' absent" in refused(
        lacks, tmp_path, like=tmp_path / "known.zarr", absent=["a", "b"]
    )
    assert "neither --like nor --schema" in refused(lacks, tmp_path, absent="town")


# -- Types of Arrow ------------------------------------------------------------------------------------------

N = 12
ODD: dict[str, Any] = {
    "uuid": pa.array([uuid.UUID(int=(255 << 64) + i * 2**100).bytes for i in range(N)], pa.uuid()),
    "binary": pa.array([b"\xff\xfe"] * N),
    "fixed": pa.array([b"\xff\xfe"] * N, pa.binary(2)),
    "duration": pa.array(range(N), pa.duration("s")),
    "time": pa.array(range(N), pa.time32("s")),
    "list": pa.array([[1]] * N),
    "struct": pa.array([{"a": 1}] * N),
    "map": pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"] * N)),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1] * 6, pa.int8())),
    "nested": pa.array([[{"a": [1]}]] * N),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("role", ["feature", "id", "target", "drop"])
@pytest.mark.parametrize("of", ["parquet", "feather", "frame"])
def test_a_type_is_taken_or_named_with_its_column(tmp_path: Path, name: str, role: str, of: str) -> None:
    table = pa.table({"a": pa.array(range(N)), "odd": ODD[name]})
    source: Any = table
    if of == "parquet":
        pq.write_table(table, source := tmp_path / "a.parquet")
    elif of == "feather":
        source = tmp_path / "a.feather"
        with pa.OSFile(str(source), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    options = {} if role == "feature" else {role: "odd"}
    message = ""
    try:
        import_data(source, tmp_path / "o.zarr", **options)
    except DataError as error:
        message = str(error)
    assert not message or (role != "drop" and "column 'odd'" in message and "\n" not in message)
    assert "damaged" not in message
    if role == "id" and name == "uuid":
        ids = zarr.open_group(tmp_path / "o.zarr", mode="r")["odd"][:]
        assert ids.tolist() == [str(uuid.UUID(int=(255 << 64) + i * 2**100)) for i in range(N)]


def test_an_extension_that_only_another_library_knows(tmp_path: Path) -> None:
    field = pa.field("when", pa.int64(), metadata={"ARROW:extension:name": "acme.month"})
    table = pa.table([pa.array(range(N)), pa.array(range(N))], pa.schema([pa.field("a", pa.int64()), field]))
    pq.write_table(table, tmp_path / "a.parquet")
    message = refused(tmp_path / "a.parquet", tmp_path)
    assert "column 'when'" in message
    assert "acme.month" in message
    assert bring(tmp_path / "a.parquet", tmp_path, drop="when")["X"].shape == (N, 1)


def test_periods_are_no_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(N), "when": pd.period_range("2020-01", periods=N, freq="M")})
    for options in ({}, {"id": "when"}, {"target": "when"}):
        assert "column 'when' of the frame" in refused(frame, tmp_path, **options)


BIG = 10**20


@pytest.mark.parametrize(
    "make", [lambda t: t, lambda t: t.to_pandas(), pl.from_arrow], ids=["arrow", "pandas", "polars"]
)
def test_decimals(tmp_path: Path, make: Callable[[Any], Any]) -> None:
    def table(values: list[Any], scale: int) -> Any:
        held = pa.array([decimal.Decimal(v) for v in values], pa.decimal128(38, scale))
        return make(pa.table({"a": pa.array(range(len(values))), "d": held}))

    prices = [i / 4 for i in range(N)]
    assert bring(table(prices, 2), tmp_path, target="d")["y"][:].tolist() == prices
    assert bring(table(list(range(N)), 2), tmp_path, target="d")["y"].dtype == np.uint8
    assert [row[1] for row in rows_of(bring(table(prices, 2), tmp_path))] == prices
    for scale in (0, 2):
        for options in ({}, {"target": "d"}):
            message = refused(table([BIG + 1, *range(9)], scale), tmp_path, **options)
            assert f"column 'd' of the frame: it holds {BIG + 1}" in message


@pytest.mark.parametrize("of", ["frame", "parquet", "csv"])
@pytest.mark.parametrize(
    "values",
    [["1000000000000000.00", "1000000000000000.01"], ["1152921504606846979.0", "1152921504606846976"]],
)
def test_different_numbers_are_not_made_equal(tmp_path: Path, of: str, values: list[str]) -> None:
    table = pa.table({"a": range(40), "d": [decimal.Decimal(v) for v in values] * 20})
    source: Any = table
    if of == "parquet":
        pq.write_table(table, source := tmp_path / "a.parquet")
    elif of == "csv":
        source = text(tmp_path, "a,d\n" + "".join(f"{i},{values[i % 2]}\n" for i in range(40)))
    for options in ({}, {"target": "d"}):
        message = refused(source, tmp_path, **options)
        assert re.search(
            r"column 'd' of .*1152921504606846979|column 'd' of .*0 in row 0 and .*01 in row 1", message
        )
        assert "(counted from 0)" in message
        assert ("--id d, omit it with --drop d" in message) == (not options)
        assert "to text" in message
    assert bring(source, tmp_path, id="d")["d"].shape == (40,)
    words = pa.table({"a": table["a"], "d": table["d"].cast(pa.string())})
    assert bring(words, tmp_path, target="d")["y"].attrs["labels"] == sorted(
        {str(v) for v in words["d"].to_pylist()}
    )


@pytest.mark.parametrize("first", [0, 1])
def test_a_short_and_a_long_number_are_not_made_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Also where they lie in different batches."""
    monkeypatch.setattr(csv_files, "BATCH_BYTES", 60)
    values = ["10000000000000.1", "10000000000000.10000000000000000001"][:: 1 - 2 * first]
    lines = [values[0], *(f"{i}.5" for i in range(60)), values[1]]
    path = text(tmp_path, "a,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(lines)))
    message = refused(path, tmp_path, target="y")
    for value, row in zip(values, (0, 61), strict=True):
        assert f"{value} in row {row}" in message


def test_measured_values_may_be_rounded(tmp_path: Path) -> None:
    rows = [f"{10**15 + i}.{'1234567' * 3},{i}.{'7' * 30},0.1{'0' * (i % 20)}" for i in range(40)]
    group = bring(text(tmp_path, "a,b,y\n" + "\n".join(rows) + "\n"), tmp_path, target="y")
    assert rows_of(group)[7] == [float(f"{10**15 + 7}.1234567"), float("7." + "7" * 30)]
    assert set(group["y"][:]) == {0.1}


def test_integers_of_python_that_are_too_large(tmp_path: Path) -> None:
    for source in (pd.DataFrame({"a": range(9), "k": [BIG + i for i in range(9)]}), [{"a": 1, "k": BIG}]):
        message = refused(source, tmp_path)
        assert f"column 'k' of the frame: it holds {BIG} in row 0" in message
        assert "too large for an integer of 64 bits; convert the column to text" in message
    frame = pd.DataFrame({"a": range(9), "k": [str(BIG + i) for i in range(9)]})
    assert bring(frame, tmp_path, id="k")["k"][3] == str(BIG + 3)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_named(tmp_path: Path, encoding: str) -> None:
    content = "\ufeff" * (encoding != "utf-16") + "a,y\n" + "1,0\n" * 9
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode(encoding))
    assert "`iconv -f utf-16 -t utf-8 OLD.csv > NEW.csv`" in refused(path, tmp_path, target="y")


def test_files_of_one_folder_whose_types_hold_no_common_values(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    pq.write_table(pa.table({"a": [1.5], "b": [1]}), tmp_path / "parts" / "0.parquet")
    pq.write_table(pa.table({"a": [2**53 + 1], "b": [1]}), tmp_path / "parts" / "1.parquet")
    message = refused(tmp_path / "parts", tmp_path)
    assert "column 'a' of 1.parquet: it is int64, but double in other files" in message


def test_whole_numbers_of_a_frame_are_not_rounded_when_it_is_encoded() -> None:
    frame = pl.DataFrame({"a": [2**53 + 1], "b": [decimal.Decimal(2)]})
    with pytest.raises(DataError, match=r"column 'a'.*9007199254740993"):
        encode_frame(numbers_schema(["a", "b"]), frame)
    assert encode_frame(numbers_schema(["a", "b"]), frame.with_columns(a=2**53)).tolist() == [[2.0**53, 2.0]]


def test_large_whole_categories_stay_apart(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([2**53, 2**53 + 1] * 12), "y": pa.array(range(24))})
    group = bring(table, tmp_path, categorical="a", target="y")
    schema = read_schema(group.attrs["dcpred_schema"], "")
    assert rows_of(group) == [[0.0], [1.0]] * 12
    assert schema.columns[0].categories == (2**53, 2**53 + 1)  # type: ignore[attr-defined]
    assert "(beside" not in str(schema.document())


# -- svmlight ------------------------------------------------------------------------------------------------


def test_the_base_of_indices_is_stated_and_followed(tmp_path: Path) -> None:
    known, new = text(tmp_path, "1 0:5 2:7\n0 1:3\n", "known.svm"), text(tmp_path, "1 1:5 2:7\n", "new.svm")
    assert import_data(known, tmp_path / "known.zarr").index_base == 0
    assert rows_of(bring(new, tmp_path)) == [[5.0, 7.0]]
    assert rows_of(bring(new, tmp_path, like=tmp_path / "known.zarr")) == [[0.0, 5.0, 7.0]]
    assert rows_of(bring(new, tmp_path, index_base=0)) == [[0.0, 5.0, 7.0]]
    assert "has the index 0. Pass --zero-based" in refused(known, tmp_path, index_base=1)
    message = refused(new, tmp_path, like=tmp_path / "known.zarr", index_base=1)
    assert "Cannot combine --one-based with --like" in message
    shown = CliRunner().invoke(main, ["import", str(new), str(tmp_path / "n.zarr")])
    assert "counted from 1" in shown.stdout
    shown = CliRunner().invoke(main, ["import", str(new), str(tmp_path / "z.zarr"), "--zero-based"])
    assert "counted from 0" in shown.stdout
    zarr.open_group(tmp_path / "known.zarr", mode="r+").attrs.pop("dcpred_index_base")
    assert "Pass --zero-based or --one-based" in refused(new, tmp_path, like=tmp_path / "known.zarr")


# -- Names ---------------------------------------------------------------------------------------------------


def test_names_of_options_and_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame({"key": range(40), "a": [i % 7 for i in range(40)], "y": [0, 1] * 20})
    for names in ({"id": "key"}, {"ids": ["key"]}, {"id": ["key"], "ids": ["key"]}):
        group = bring(frame, tmp_path, target="y", **names)
        assert group["key"][:].tolist() == list(range(40))
    assert "Cannot use column '0' as target" in refused(frame, tmp_path, target=0)
    assert bring(frame.set_axis(range(3), axis=1), tmp_path, target=2)["y"][:].tolist() == [0, 1] * 20


def test_no_remedy_is_named_that_is_refused(tmp_path: Path) -> None:
    path = text(tmp_path, "X,a,y\n" + "".join(f"name {i},{i},{i % 2}\n" for i in range(120)))
    message = refused(path, tmp_path, target="y")
    assert "--id" not in message
    assert "--drop X" in message
    assert bring(path, tmp_path, target="y", drop="X")["X"].shape == (120, 1)


def test_records_lack_what_is_missing(tmp_path: Path) -> None:
    group = bring([{"a": 1.5}, {"a": 2, "b": 3}], tmp_path)
    np.testing.assert_array_equal(group["X"][:], [[1.5, np.nan], [2, 3]])
    assert "the key 1 is not text" in refused([{1: 2}], tmp_path)
    assert "column 'a'" in refused([{"a": 1}, {"a": "x"}], tmp_path)


# -- A table in place of a data set --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and a table of new rows beside it."""
    folder = tmp_path_factory.mktemp("trained")
    rows = "a,town,y\n" + "".join(f"{i % 9},{['ulm', 'kiel'][i % 2]},{i % 2}\n" for i in range(80))
    import_data(text(folder, rows), folder / "known.zarr", target="y")
    options = ["--workers", "1", "--set", "n_leaves=1", "--set", "landmarks=4"]
    done = CliRunner().invoke(main, ["train", str(folder / "known.zarr"), str(folder / "m"), *options])
    assert done.exit_code == 0, done.output
    text(folder, rows, "new rows.csv")
    return folder


@pytest.mark.parametrize(
    "command",
    ["score M D out", "evaluate M D", "explain M D --rows 0", "refresh M D root", "report M --data D"],
)
def test_a_table_is_imported_as_its_model_needs_it(
    trained: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(trained)
    words = [{"M": "m", "D": "new rows.csv"}.get(word, word) for word in command.split()]
    output = " ".join(CliRunner().invoke(main, words).output.split())
    found = re.search(r"`dcpred (import [^`]+)`", output)
    assert found, output
    told = shlex.split(found[1])
    assert (*told[:2], told[3], Path(told[4]).name) == ("import", "new rows.csv", "--like", "m")
    assert CliRunner().invoke(main, told).exit_code == 0


def test_a_table_to_split_is_imported_with_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text(tmp_path, "a,y\n1,0\n")
    (tmp_path / "a.zarr").mkdir()
    output = CliRunner().invoke(main, ["split", "a.csv", "--test", "0.2", "--seed", "1"]).output
    assert "`dcpred import a.csv a-2.zarr --target COLUMN`" in " ".join(output.split())


@pytest.mark.parametrize(
    "command", ["inspect D", "report D", "verify D", "status D", "errors D", "export D out.csv"]
)
def test_a_table_in_place_of_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    text(tmp_path, "a,y\n1,0\n")
    done = CliRunner().invoke(main, ["a.csv" if w == "D" else w for w in command.split()])
    assert done.exit_code
    assert "it is a table" in " ".join(done.output.lower().split())


@pytest.mark.parametrize("name", ["new.txt", "new.json", "new.xlsx"])
def test_a_file_of_another_format_in_place_of_data(
    trained: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(trained)
    text(trained, "a,y\n1,0\n", name)
    done = CliRunner().invoke(main, ["score", "m", name, "out"])
    assert "save it as .csv or .parquet and import that" in " ".join(done.output.split())


def test_test_rows_are_imported_like_the_training_rows(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    done = CliRunner().invoke(main, ["compare", "known.zarr", "--test", "new rows.csv", "--out", "o"])
    assert "--like known.zarr`" in " ".join(done.output.split())


@pytest.mark.parametrize("command", ["evaluate M D", "report M --data D"])
def test_a_target_is_named_where_the_model_does_not(
    trained: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(trained)
    if not Path("e").exists():
        X = pd.DataFrame({"a": [float(i % 9) for i in range(80)]})
        model = DCPredClassifier(n_leaves=1, landmarks=4).fit(X, [i % 2 for i in range(80)])
        model.save("e")
    words = [{"M": "e", "D": "new rows.csv"}.get(word, word) for word in command.split()]
    found = re.search(r"`dcpred (import [^`]+)`", " ".join(CliRunner().invoke(main, words).output.split()))
    assert found
    assert re.search(r" --like (\S*/)?e --target COLUMN$", found[1])
    stated = shlex.split(found[1].replace("COLUMN", "y"))
    assert CliRunner().invoke(main, stated).exit_code == 0
    done = CliRunner().invoke(main, ["evaluate", "e", stated[2]])
    assert done.exit_code == 0, done.output
