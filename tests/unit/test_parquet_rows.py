"""Parquet is scored where it lies: scores are those of an import, bit for bit, and what an import refuses is
refused in one sentence that names the file, before anything is written.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from dcpred import import_data
from dcpred.cli.main import main
from dcpred.evaluation.evaluate import evaluate
from dcpred.evaluation.explanation import explain_stored
from dcpred.results.export import export
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request
from dcpred.scoring.score import score
from dcpred.scoring.whole_run import score_all_rows
from dcpred.verification.verify import verify
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DataError, IncompleteError
from dcpred_tasks.input_kinds import GIB
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.addresses import LIKE, TableAddress, read_address, stored_text
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.storage.zarr_arrays import address_of, array_address, read_rows
from dcpred_tasks.tables import encoded_rows
from support.pools import inline
from support.setting_words import classifier_with
from support.stores import StoreServer, used
from support.tables import table

N, GROUP = 900, 128
FRAME = table(N)
FEATURES = ["age", "colour", "old", "city", "day", "seen", "amount"]
Change = Callable[[pd.DataFrame], Any]


def trained(folder: Path, columns: list[str]) -> str:
    few = classifier_with(n_leaves=2, landmarks=12, products=0, random_state=0)
    few.fit(FRAME[columns], FRAME["label"].to_numpy())
    few.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("models") / "all", FEATURES)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("models") / "single", ["colour", "old", "city", "day", "amount"])


def write(frame: Any, path: Path, **more: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    of = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(of, path, **{"row_group_size": GROUP} | more)
    return str(path)


def scores(output: Path) -> dict[str, Any]:
    return {name: array[...] for name, array in open_group(output / "scores.zarr").arrays()}


def same_as_imported(model: str, data: str, folder: Path) -> None:
    import_data(data, folder / "imported.zarr", like=model)
    X = open_array(folder / "imported.zarr" / "X")
    there = open_array(find_rows(data, "X", model))
    assert X.dtype == there.dtype
    np.testing.assert_array_equal(X[...], there[...])
    for name, source in (("a", folder / "imported.zarr"), ("b", data)):
        with suppress(IncompleteError):  # No row of some has a score.
            score(model, source, folder / name)
    a, b = scores(folder / "a"), scores(folder / "b")
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


@given(st.text(), st.text(), st.sampled_from(["", "X", "y", "a,b"]))
@example(f"t{LIKE}m,float32", f"s3://b/{LIKE}%2F", "X")
def test_an_address_is_read_as_it_was_stored(data: str, model: str, name: str) -> None:
    address = TableAddress(f"/t{data}".rstrip("/"), model, "float32", name)
    assert read_address(stored_text(address)) == address
    assert read_address(stored_text(f"/{model}".replace(LIKE, ""))) == f"/{model}".replace(LIKE, "")


def test_the_same_bits_as_by_an_import(model: str, tmp_path: Path) -> None:
    same_as_imported(model, write(FRAME, tmp_path / "t.parquet"), tmp_path)


def test_the_same_bits_in_single_precision(single: str, tmp_path: Path) -> None:
    data = write(FRAME.astype({"amount": "float32"}), tmp_path / "t.parquet", compression="zstd")
    assert stored_text(find_rows(data, "X", single)).endswith(",float32/X")
    same_as_imported(single, data, tmp_path)


# A column of Parquet with other values, and whether single precision holds all that its type may hold.
PRECISIONS: dict[str, tuple[str, Any, bool]] = {
    "days": ("day", pa.array([20_000] * N, pa.date32()), True),
    "times of days": ("day", FRAME["day"].to_numpy("M8[us]"), True),
    "text of days": ("day", ["2026-01-01"] * N, True),
    "no dates": ("day", pa.nulls(N), True),
    "booleans as text": ("old", ["true"] * N, True),
    "booleans as numbers": ("old", np.ones(N), True),
    "many digits of no use": ("city", np.arange(N) + 0.1, True),
    "small numbers": ("amount", np.zeros(N, "i2"), True),
    "half": ("amount", np.zeros(N, "f2"), True),
    "small numbers in 32 bits": ("amount", np.zeros(N, "i4"), False),
    "small numbers in 64 bits": ("amount", np.zeros(N), False),
    "decimals": ("amount", pa.array([Decimal(1)] * N, pa.decimal128(5, 2)), False),
    "no numbers": ("amount", pa.nulls(N), True),
}


@pytest.mark.parametrize("case", PRECISIONS)
def test_the_precision_follows_from_types(case: str, single: str, tmp_path: Path) -> None:
    """Never from values, which a later row may exceed: an import like the model has the same."""
    name, values, is_single = PRECISIONS[case]
    plain = FRAME.astype({"amount": "float32"})
    data = write(with_column(name, values)(plain), tmp_path / "t.parquet")
    assert stored_text(find_rows(data, "X", single)).endswith(",float32/X" if is_single else ",float64/X")
    same_as_imported(single, data, tmp_path)


def test_times_of_a_day_always_need_double_precision(model: str, tmp_path: Path) -> None:
    """A time of 18 hours or more has no place among whole numbers of 16 bits, and one with a fraction none in
    single precision.
    """
    trained(tmp_path / "model", ["old", "seen"])
    for hour, unit in ((0, "us"), (6, "ms"), (23, "ns")):
        seen = np.full(N, np.datetime64("2026-01-01") + np.timedelta64(hour, "h"), f"M8[{unit}]")
        data = write(with_column("seen", seen)(FRAME), tmp_path / str(hour) / "t.parquet")
        assert stored_text(find_rows(data, "X", tmp_path / "model")).endswith(",float64/X")
    same_as_imported(str(tmp_path / "model"), data, tmp_path)
    import_data(FRAME, tmp_path / "frame.zarr", like=tmp_path / "model")
    FRAME[["old", "seen"]].to_csv(tmp_path / "t.csv", index=False)
    import_data(tmp_path / "t.csv", tmp_path / "csv.zarr", like=tmp_path / "model")
    for name in ("frame", "csv"):
        assert open_array(tmp_path / f"{name}.zarr" / "X").dtype == np.float64


def test_an_import_like_a_model_refuses_integers_that_are_rounded(model: str, tmp_path: Path) -> None:
    """X is of floating-point numbers, also where all columns are integers without a missing value."""
    whole = {"a": [2**53 + 1, 5], "b": [1, 2]}
    import_data(pa.table(whole), tmp_path / "whole.zarr")
    assert open_array(tmp_path / "whole.zarr" / "X").dtype == np.int64
    with pytest.raises(
        DataError, match=r"9007199254740993 in row 0 .* would round\. Round the values before"
    ):
        import_data(pa.table(whole), tmp_path / "again.zarr", like=tmp_path / "whole.zarr")


def test_a_folder_with_partitions_and_groups_of_any_size(model: str, tmp_path: Path) -> None:
    old = FRAME["old"].to_numpy()
    for value in (False, True):
        some, name = FRAME[old == value].drop(columns="old"), str(value).lower()
        write(some[:200], tmp_path / "t" / f"old={name}" / "a.parquet", row_group_size=70)
        write(some[200:], tmp_path / "t" / f"old={name}" / "b.parquet", row_group_size=33)
    write(FRAME[:5], tmp_path / "t" / "_old" / "c.parquet")
    same_as_imported(model, str(tmp_path / "t"), tmp_path)
    both = find_rows(str(tmp_path / "t" / "*" / "?.parquet"), "X", model)
    np.testing.assert_array_equal(
        open_array(both)[...][:, 0], open_array(find_rows(str(tmp_path / "t"), "X", model))[...][:, 0]
    )


def test_every_reader_of_zarr_reads_it(model: str, tmp_path: Path) -> None:
    data = write(FRAME, tmp_path / "t.parquet")
    X = open_array(find_rows(data, "X", model))
    np.testing.assert_array_equal(X[130:400], read_rows(X, 130, 400))
    np.testing.assert_array_equal(X.oindex[np.array([5, 500])], X[...][[5, 500]])
    assert (array_address(X), address_of(X)) == (None, str(find_rows(data, "X", model))) == (None, data)
    assert open_array(find_rows(data, "id", model))[[3, 899]].tolist() == ["00003", "00899"]
    found = evaluate(model, data, y="label", cost=False)
    import_data(data, tmp_path / "t.zarr", like=model, target="label")
    imported = evaluate(model, tmp_path / "t.zarr", cost=False)
    assert {**found, "data": ""} == {**imported, "data": ""}
    assert explain_stored(model, find_rows(data, "X", model), (7,))


def test_a_run_resumes_verifies_and_exports_its_ids(model: str, tmp_path: Path) -> None:
    data = write(FRAME, tmp_path / "t.parquet")
    out = tmp_path / "out"
    score(model, data, out)
    record = next((out / "blocks").glob("*.json"))
    record.unlink()
    (out / "manifest.json").unlink()
    score(model, data, out)
    assert record.exists()
    assert not [one for one in verify(out, "full").findings if one.is_damage]
    export(out, tmp_path / "scored.parquet", beside=["id"])
    assert pq.read_table(tmp_path / "scored.parquet")["id"].to_pylist() == FRAME["id"].tolist()


def test_blocks_are_whole_row_groups(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_rows, "MOST_ROWS", 50)
    X = find_rows(write(FRAME, tmp_path / "t.parquet"), "X", model)
    run, plan, _ = plan_run(Request(model, X, tmp_path / "o"))
    assert (plan.chunk_rows, plan.block_rows) == (32, GROUP)
    assert run.stated()["input"]


# -- Wrong inputs --------------------------------------------------------------------------------------------


def without(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=["age", "city"])


def with_column(name: str, values: Any) -> Change:
    return lambda frame: pa.Table.from_pandas(frame, preserve_index=False).set_column(
        frame.columns.get_loc(name), name, pa.array(values)
    )


def list_of_numbers(frame: pd.DataFrame) -> pa.Table:
    return with_column("amount", [[1.0]] * len(frame))(frame)


def twice(frame: pd.DataFrame) -> pa.Table:
    of = pa.Table.from_pandas(frame, preserve_index=False)
    return of.append_column("age", of["age"])


WRONG: dict[str, tuple[Change, str]] = {
    "lacks": (without, "it lacks the columns 'age', 'city'"),
    "text for numbers": (with_column("amount", ["much"] * N), "'amount': its schema expects numbers"),
    "numbers for dates": (with_column("day", np.arange(N)), "'day': its schema expects dates"),
    "dates for numbers": (lambda f: f.assign(amount=f["day"]), "'amount': its schema expects numbers"),
    "dates for categories": (lambda f: f.assign(colour=f["day"]), "'colour': its schema expects text"),
    "no booleans": (lambda f: f.assign(old=np.full(N, 7)), "'old': its schema expects true and false"),
    "no dates": (with_column("day", ["next week"] * N), "'day': its schema expects dates"),
    "a list": (list_of_numbers, "'amount' of .*its type is list<"),
    "a struct": (with_column("amount", [{"a": 1}] * N), "'amount' of .*its type is struct<"),
    "a time": (with_column("amount", pa.array([1] * N, pa.time32("s"))), "its type is time32"),
    "bytes": (with_column("amount", [b"1"] * N), "its type is binary"),
    "a duration": (with_column("amount", pa.array([1] * N, pa.duration("s"))), "its type is duration"),
    "a map": (with_column("amount", pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64()))), "is map<"),
    "rounded decimals": (
        with_column("amount", pa.array([Decimal(2**60 + 1)] * N, pa.decimal128(25, 0))),
        "'amount': it holds 1152921504606846977",
    ),
    "rounded": (with_column("amount", [2**53 + 1] * N), "'amount': it holds the integer 9007199254740993"),
    "no rows": (lambda f: f[:0], "it has no rows"),
    "twice": (twice, "'age' occurs twice"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_columns_are_refused_before_anything_is_written(wrong: str, model: str, tmp_path: Path) -> None:
    change, sentence = WRONG[wrong]
    data = write(change(FRAME), tmp_path / "t.parquet")
    refused(model, data, tmp_path, sentence)


def refused(model: str, data: str, folder: Path, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        find_rows(data, "X", model)
    assert os.path.basename(data.rstrip("/")) in str(caught.value)
    assert "\n" not in str(caught.value)
    result = CliRunner().invoke(main, ["score", model, data, str(folder / "out")])
    assert result.exit_code == 3
    assert not (folder / "out").exists()


def truncate(path: str) -> None:
    os.truncate(path, os.path.getsize(path) - 7)


def other_end(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(-8, 2)
        file.write(b"\xff\xff\xff\x7fPAR1")


def text_instead(path: str) -> None:
    Path(path).write_text("a,b\n1,2\n")


def nothing(path: str) -> None:
    Path(path).write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, other_end, text_instead, nothing])
def test_damaged_footers_are_refused(damage: Callable[[str], None], model: str, tmp_path: Path) -> None:
    data = write(FRAME, tmp_path / "t.parquet")
    damage(data)
    refused(model, data, tmp_path, "its footer is damaged or of another format")


def test_files_of_other_columns_or_types_are_refused(model: str, tmp_path: Path) -> None:
    write(FRAME, tmp_path / "t" / "a.parquet")
    other = write(FRAME.drop(columns="amount"), tmp_path / "t" / "b.parquet")
    refused(model, str(tmp_path / "t"), tmp_path, "'amount' is in a.parquet and not in b.parquet")
    write(FRAME.assign(amount="x"), Path(other))
    refused(model, str(tmp_path / "t"), tmp_path, "'amount' is double in a.parquet and .*string in b.parquet")


def test_a_row_group_that_exceeds_memory_is_refused(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(FRAME, tmp_path / "t.parquet")
    monkeypatch.setattr(encoded_rows, "memory_bytes", lambda: 4 * 1000)
    refused(model, data, tmp_path, rf"row group 0 of .*{GROUP} rows take about 0.0 GiB decoded")
    assert GIB


def test_nowhere_and_an_empty_folder(model: str, tmp_path: Path) -> None:
    refused(model, str(tmp_path / "none.parquet"), tmp_path, "does not exist")
    (tmp_path / "t").mkdir()
    with pytest.raises(DataError, match=r"no \.parquet file is there"):
        find_rows(str(tmp_path / "t" / "*.parquet"), "X", model)


def test_empty_row_groups_hold_nothing(model: str, tmp_path: Path) -> None:
    of = pa.Table.from_pandas(FRAME, preserve_index=False)
    with pq.ParquetWriter(tmp_path / "t.parquet", of.schema) as writer:
        for part in (of[:0], of[:100], of[:0], of[100:]):
            writer.write_table(part)
    whole = write(FRAME, tmp_path / "u.parquet")
    a, b = (
        open_array(find_rows(str(path), "X", model))
        for path in (tmp_path / "t.parquet", tmp_path / "u.parquet")
    )
    assert whole
    np.testing.assert_array_equal(a[...], b[...])


def test_other_values_in_a_later_row_group_end_the_run(model: str, tmp_path: Path) -> None:
    amount = FRAME["amount"].to_numpy().astype(object)
    amount[:] = None
    amount[-1] = "much"
    data = write(with_column("amount", list(amount))(FRAME), tmp_path / "t.parquet")
    with pytest.raises(
        IncompleteError, match=r"row group 7 of .*t\.parquet: column 'amount': its schema expects"
    ):
        score(model, data, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def overwrite(data: str, column: int, after: int, written: bytes) -> None:
    """Damage a page of row group 5, `after` bytes behind its start, and restore the time of writing."""
    at = pq.ParquetFile(data).metadata.row_group(5).column(column).data_page_offset
    state = os.stat(data)
    with open(data, "r+b") as file:
        file.seek(at + after)
        file.write(written)
    os.utime(data, ns=(state.st_atime_ns, state.st_mtime_ns))
    encoded_rows._store.cache_clear()


def test_a_damaged_row_group_ends_the_run_and_names_the_file(model: str, tmp_path: Path) -> None:
    data = write(FRAME, tmp_path / "t.parquet", compression="zstd")
    overwrite(data, 1, 0, b"\xff" * 64)
    with pytest.raises(IncompleteError, match=r"row group 5 is damaged or of another format"):
        score(model, data, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("checksums", [True, False])
def test_changed_values_are_damage_where_pages_have_checksums(
    model: str, tmp_path: Path, checksums: bool
) -> None:
    """Without checksums nothing shows that a value is another, as the guide states."""
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": checksums}
    data = write(FRAME, tmp_path / "t.parquet", **plain)
    amount = FRAME.columns.get_loc("amount")
    overwrite(data, int(amount), 200, b"\x01")
    if not checksums:
        assert score(model, data, tmp_path / "out").n_rows == N
        return
    with pytest.raises(IncompleteError, match=r"its row group 5 is damaged .*CRC"):
        score(model, data, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_file_that_changes_is_refused_by_name(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(FRAME, tmp_path / "t.parquet")
    X, read = find_rows(data, "X", model), pq.ParquetFile.read_row_group

    def changed(*given: Any, **more: Any) -> Any:
        write(FRAME[::-1], tmp_path / "t.parquet")
        return read(*given, **more)

    encoded_rows._store.cache_clear()
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", changed)
    with pytest.raises(IncompleteError, match=r"t\.parquet: it changed while it was read"):
        score_all_rows(Request(model, X, tmp_path / "out", pool=inline))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_file_that_changed_after_the_plan_is_refused_by_name(model: str, tmp_path: Path) -> None:
    data = write(FRAME, tmp_path / "t.parquet")
    X = find_rows(data, "X", model)
    request = Request(model, X, tmp_path / "out", pool=inline)
    planned = plan_run(request)
    assert isinstance(planned[0], ScoreRun)
    write(FRAME[::-1], tmp_path / "t.parquet")
    with pytest.raises(IncompleteError, match=r"t\.parquet: it changed while it was read"):
        score_all_rows(request, planned)


def test_the_output_does_not_lie_in_the_table(model: str, tmp_path: Path) -> None:
    write(FRAME, tmp_path / "t" / "a.parquet")
    with pytest.raises(DataError, match="inside the input"):
        plan_run(Request(model, find_rows(str(tmp_path / "t"), "X", model), tmp_path / "t" / "out"))


def test_a_missing_target_is_named(model: str, tmp_path: Path) -> None:
    data = write(FRAME.drop(columns="label"), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="lacks a column 'y'"):
        find_rows(data, "y", model)


def test_tables_on_a_store(model: str, tmp_path: Path, s3: StoreServer) -> None:
    with used(s3):
        read_from_store(model, tmp_path, s3)


def read_from_store(model: str, tmp_path: Path, s3: StoreServer) -> None:
    local = write(FRAME, tmp_path / "t.parquet")
    folder = s3.address("tables", "t")
    half = [write(FRAME[:400], tmp_path / "a.parquet"), write(FRAME[400:], tmp_path / "b.parquet")]
    for name, path in zip("ab", half, strict=True):
        open_place(folder).write(f"{name}.parquet", Path(path).read_bytes())
    X = open_array(find_rows(f"{folder}/*.parquet", "X", model))
    np.testing.assert_array_equal(X[...], open_array(find_rows(local, "X", model))[...])
    assert score(model, f"{folder}/a.parquet", s3.address("scores", "t")).n_rows == 400
    one = find_rows(f"{folder}/a.parquet", "X", model)
    request = Request(model, one, tmp_path / "out", pool=inline)
    planned = plan_run(request)
    open_place(folder).write("a.parquet", Path(half[1]).read_bytes())
    with pytest.raises(IncompleteError, match=r"a\.parquet"):
        score_all_rows(request, planned)
