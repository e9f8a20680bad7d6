"""Files of Arrow and Delta tables are scored as Parquet is: the same bits, one version, one sentence."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import dcpred
from dcpred.runs.shards import Shard
from dcpred.scoring.score import score
from dcpred_tasks.artifacts.data_schema import find_rows
from dcpred_tasks.errors import DamagedChunkError, DataError, PlanConflictError, SettingsError
from dcpred_tasks.storage.addressed_arrays import open_array, open_group
from dcpred_tasks.storage.addresses import stored_text
from dcpred_tasks.storage.place import open_place
from support.setting_words import classifier_with
from support.stores import StoreServer, used
from support.tables import table

FRAME = table(900)
FEATURES = ["age", "colour", "old", "city", "day", "amount"]
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "model"
    few = classifier_with(n_leaves=2, landmarks=12, products=0, random_state=0)
    few.fit(FRAME[FEATURES], FRAME["label"].to_numpy()).save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def expected(model: str, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray[Any, Any]:
    path = tmp_path_factory.mktemp("parquet") / "t.parquet"
    pq.write_table(TABLE, path)
    return np.asarray(open_array(find_rows(path, "X", model))[...])


def rows(address: str | Path, model: str, name: str = "X") -> Any:
    return open_array(find_rows(address, name, model))[...]


# -- Arrow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_files_of_arrow_hold_the_same_rows(
    compression: str, model: str, expected: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t.feather"
    pf.write_feather(TABLE, path, compression=compression, chunksize=128)
    X = open_array(find_rows(path, "X", model))
    assert X.chunks[0] == 128
    np.testing.assert_array_equal(X[...], expected)
    assert rows(path, model, "id").tolist() == FRAME["id"].tolist()
    found = dcpred.evaluate(model, path, y="label", cost=False).as_dict()
    pq.write_table(TABLE, tmp_path / "t.parquet")
    same = dcpred.evaluate(model, tmp_path / "t.parquet", y="label", cost=False).as_dict()
    for result in (found, same):
        result["data"] = ""
        for remark in result["remarks"]:
            remark |= {"what": re.sub(r"\S+/t\.(feather|parquet)", "", remark["what"]), "file": ""}
    assert found == same


def test_folders_and_patterns_of_files_of_arrow(model: str, expected: Any, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    for number, start in enumerate((0, 400)):
        pf.write_feather(TABLE.slice(start, (400, 500)[number]), folder / f"{number}.arrow", chunksize=77)
    np.testing.assert_array_equal(rows(folder, model), expected)
    np.testing.assert_array_equal(rows(f"{folder}/*.arrow", model), expected)
    pq.write_table(TABLE.slice(0, 10), folder / "a.parquet")
    assert len(rows(folder, model)) == 10  # as an import, which reads the Parquet files of a folder


def test_files_of_arrow_on_a_store(model: str, expected: Any, tmp_path: Path, s3: StoreServer) -> None:
    pf.write_feather(TABLE, tmp_path / "t.arrow", chunksize=300)
    with used(s3):
        folder = s3.address("tables", "arrow")
        open_place(folder).write("t.arrow", (tmp_path / "t.arrow").read_bytes())
        np.testing.assert_array_equal(rows(f"{folder}/t.arrow", model), expected)


def test_integers_without_gaps_stay_integers(model: str, tmp_path: Path) -> None:
    with_gap = pa.array([None, *range(899)])
    of = TABLE.append_column("n", pa.array(range(900))).append_column("g", with_gap)
    pf.write_feather(of, tmp_path / "t.arrow")
    assert rows(tmp_path / "t.arrow", model, "n").dtype == np.int64
    assert rows(tmp_path / "t.arrow", model, "g")[:2].tolist() == ["", "0"]


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


def truncated(path: Path) -> None:
    pf.write_feather(TABLE, path)
    path.write_bytes(path.read_bytes()[:-300])


def feather_1(path: Path) -> None:
    path.write_bytes(b"FEA1" + bytes(100))


def too_long(path: Path) -> None:
    pf.write_feather(TABLE, path)
    path.write_bytes(path.read_bytes()[:-10] + b"\xff\xff\xff\x7fARROW1")


WRONG = {
    "stream": (write_stream, r"t\.arrow: it is a stream of Arrow, which has no footer\. Write it as a file"),
    "truncated": (truncated, r"its footer is damaged or of another format \(.*truncated"),
    "version 1": (feather_1, r"t\.arrow: it has Feather version 1\. Write it again"),
    "length": (too_long, r"its footer is damaged or of another format"),
    "text": (lambda path: path.write_text("a,b\n1,2\n"), r"its footer is damaged"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_other_files_of_arrow_are_refused(wrong: str, model: str, tmp_path: Path) -> None:
    write, sentence = WRONG[wrong]
    write(tmp_path / "t.arrow")
    with pytest.raises((DataError, DamagedChunkError), match=sentence) as caught:
        dcpred.score(model, tmp_path / "t.arrow", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# -- Delta ---------------------------------------------------------------------------------------------------


def write_delta(folder: Path | str, of: Any, **more: Any) -> None:
    pytest.importorskip("deltalake").write_deltalake(str(folder), of, **more)


def test_a_delta_table_is_scored_at_the_version_of_the_plan(
    model: str, expected: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    write_delta(folder, TABLE.slice(0, 500))
    first = find_rows(folder, "X", model)
    assert "/_delta_log/00000000000000000000.json/" in stored_text(first)
    write_delta(folder, TABLE.slice(500), mode="append")
    np.testing.assert_array_equal(rows(folder, model), expected)
    np.testing.assert_array_equal(open_array(first)[...], expected[:500])
    report = dcpred.score(model, folder, tmp_path / "out")
    assert report.n_rows == 900
    assert dcpred.verify(tmp_path / "out", "sample").ok
    labels = open_group(tmp_path / "out" / "scores.zarr")["label"][...]
    dcpred.score(model, folder / "_delta_log" / "00000000000000000000.json", tmp_path / "old")
    np.testing.assert_array_equal(open_group(tmp_path / "old" / "scores.zarr")["label"][...], labels[:500])
    dcpred.export(tmp_path / "out", tmp_path / "out.csv", beside=["id"])
    evaluated = dcpred.evaluate(model, folder, y="label", cost=False).as_dict()
    assert evaluated["data"].endswith("/t/_delta_log/00000000000000000001.json")


def test_a_run_goes_on_with_the_version_that_it_began_with(model: str, tmp_path: Path) -> None:
    folder, first, second = tmp_path / "t", Shard(0, 2), Shard(1, 2)
    write_delta(folder, TABLE.slice(0, 500))
    dcpred.score(model, folder, tmp_path / "out", shard=first)
    write_delta(folder, TABLE.slice(500), mode="append")
    dcpred.score(model, folder, tmp_path / "out", shard=second)
    report = dcpred.score(model, folder / "_delta_log" / f"{0:020d}.json", tmp_path / "out")
    assert report.n_rows == 500
    with pytest.raises(PlanConflictError, match=r"it holds the finished scores of .*0000\.json\. Name"):
        dcpred.score(model, folder, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    assert dcpred.score(model, folder, tmp_path / "out").n_rows == 500
    label = tmp_path / "out/scores.zarr/label/c/0"
    label.write_bytes(label.read_bytes()[:-4])
    assert dcpred.repair(model, folder, tmp_path / "out").n_rows == 500
    assert dcpred.verify(tmp_path / "out").ok


def test_deleted_rows_partitions_and_new_columns_of_delta_tables(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    without = TABLE.drop_columns(["amount"])
    write_delta(folder, without.slice(0, 300), partition_by=["old"])
    write_delta(folder, TABLE.slice(300), mode="append", schema_mode="merge")
    X = rows(folder, model)
    ids = rows(folder, model, "id").tolist()
    amount = {key: value for key, value in zip(FRAME["id"], FRAME["amount"], strict=True)}
    for key, row in zip(ids, X, strict=True):
        assert np.isnan(row[-1]) if int(key) < 300 else row[-1] == amount[key]
    assert {key: bool(row[2]) for key, row in zip(ids, X, strict=True)} == dict(
        zip(FRAME["id"], FRAME["old"], strict=True)
    )
    delta = pytest.importorskip("deltalake").DeltaTable(str(folder))
    delta.delete("id >= '00450'")
    assert sorted(rows(folder, model, "id").tolist()) == sorted(FRAME["id"][:450])
    delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(DataError, match=r"version 1 of the Delta table .*its file .* was removed.*VACUUM"):
        rows(f"{folder}/_delta_log/{1:020d}.json", model)


def test_a_refresh_follows_the_versions_of_a_delta_table(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_delta(folder, TABLE.slice(0, 500))
    dcpred.refresh(model, folder, tmp_path / "root")
    write_delta(folder, TABLE.slice(500), mode="append")
    found = dcpred.refresh(model, folder, tmp_path / "root")
    assert (found.state, found.n_rows) == ("published", 900)
    assert dcpred.refresh(model, folder, tmp_path / "root").state == "unchanged"
    assert dcpred.verify(tmp_path / "root" / "latest", "full").ok


def test_delta_tables_on_a_store(model: str, expected: Any, tmp_path: Path, s3: StoreServer) -> None:
    write_delta(tmp_path / "t", TABLE)
    with used(s3):
        folder = s3.address("tables", "delta")
        for path in (tmp_path / "t").rglob("*"):
            if path.is_file():
                open_place(folder).write(path.relative_to(tmp_path / "t").as_posix(), path.read_bytes())
        np.testing.assert_array_equal(rows(folder, model), expected)


def test_delta_tables_that_cannot_be_read(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad" / "_delta_log").mkdir(parents=True)
    (tmp_path / "bad" / "_delta_log" / f"{0:020d}.json").write_text("{}")
    with pytest.raises(DataError, match=r"Cannot read the Delta table .*bad: .*Check its _delta_log"):
        score(model, tmp_path / "bad", tmp_path / "out")
    folder = tmp_path / "t"
    write_delta(folder, TABLE)
    with pytest.raises(DataError, match=r"Cannot read version 7 of the Delta table"):
        rows(f"{folder}/_delta_log/{7:020d}.json", model)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SettingsError, match=r"read the Delta table .*Run pip install .dcpred\[delta\]"):
        rows(folder, model)
    assert not (tmp_path / "out").exists()


def test_the_function_of_the_guide_for_duckdb(model: str, tmp_path: Path) -> None:
    """The page runs such functions on batches; this one runs in DuckDB, where that is installed."""
    duckdb = pytest.importorskip("duckdb")
    served = dcpred.load_model(model)
    numbers = TABLE.select(["age", "amount"])

    def label(age: Any, amount: Any) -> Any:
        others = TABLE.select([name for name in FEATURES if name not in ("age", "amount")]).slice(0, len(age))
        return pa.array(served.predict(others.append_column("age", age).append_column("amount", amount)))

    pq.write_table(numbers, tmp_path / "t.parquet")
    with duckdb.connect() as connection:
        kinds = 2 * ["DOUBLE"]
        connection.create_function("label", label, kinds, "VARCHAR", type="arrow", null_handling="special")
        found = connection.sql(f"select label(age, amount) from '{tmp_path}/t.parquet'").fetchall()
    assert [one for (one,) in found] == served.predict(TABLE.select(FEATURES)).tolist()
