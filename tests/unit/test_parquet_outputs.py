"""Parquet files of a run hold what an export of it holds, and a Delta table gets them once."""

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner
from deltalake import DeltaTable

import dcpred
from dcpred.cli import main
from dcpred.refreshing.refresh import refresh
from dcpred.runs import delta_tables
from dcpred.runs.ledger import open_ledger
from dcpred.scoring.repair import repair
from dcpred.scoring.request import Columns, requested_columns
from dcpred.scoring.score import score
from dcpred.verification.verify import VerifyReport
from dcpred_tasks.artifacts.block_files import PARQUET, TABLE_FORMATS, ZARR, Kind
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError, RefusedError, SettingsError
from dcpred_tasks.storage.atomic_files import encoded
from dcpred_tasks.storage.digests import digest_json
from dcpred_tasks.tables import block_tables
from support.data import make_blobs, make_group
from support.pools import inline

N_ROWS, CHUNK_ROWS = 330, 50
BAD = (0, 17, N_ROWS - 1)
SETTINGS = {"n_leaves": 2, "landmarks": 4}
TASKS: dict[str, dict[str, Any]] = {
    "two classes": {"outputs": ("label", "decision", "probability", "novelty")},
    "several classes": {"outputs": ("label", "decision", "probability")},
    "regression": {"outputs": ("decision", "interval", "q05"), "alpha": 0.2},
}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Blocks of several chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 3)
        yield


def make_rows(path: Path, X: Any) -> Path:
    """Rows with ids of several types beside them, in other chunks than X."""
    make_group(path, X, chunk_rows=CHUNK_ROWS)
    group = zarr.open_group(path, mode="r+")
    ids: dict[str, Any] = {
        "id": np.array([f"row {i}, é" for i in range(len(X))], dtype=np.dtypes.StringDType()),
        "number": np.arange(len(X), dtype=np.uint32),
        "hour": np.arange(len(X)).astype("datetime64[h]"),
    }
    for name, values in ids.items():
        group.create_array(name, data=values, chunks=(70,))
    return path


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, small: None) -> Callable[[str], Path]:
    """By the name of a task a folder with `model` and `new.zarr`, of which some rows are bad."""
    made: dict[str, Path] = {}

    def world(name: str) -> Path:
        if name not in made:
            folder = made[name] = tmp_path_factory.mktemp("parquet")
            blobs = make_blobs(N_ROWS, n_features=3, n_classes=2 if name == "two classes" else 3, seed=0)
            y = blobs.X[:, 0] if name == "regression" else blobs.y
            known = make_group(folder / "known.zarr", blobs.X, y, chunk_rows=CHUNK_ROWS)
            task = {"task": "regression"} if name == "regression" else {}
            dcpred.train(known, folder / "model", settings=SETTINGS | task)
            X = blobs.X.copy()
            X[list(BAD), 1] = np.nan
            make_rows(folder / "new.zarr", X)
        return made[name]

    return world


@pytest.fixture
def world(worlds: Callable[[str], Path]) -> Path:
    return worlds("two classes")


def scored(world: Path, output: Path, **more: Any) -> Any:
    return dcpred.score(world / "model", world / "new.zarr", output, **more)


def repaired(world: Path, output: Path, **more: Any) -> Any:
    return dcpred.repair(world / "model", world / "new.zarr", output, **more)


def files(output: Path) -> list[Path]:
    return sorted((output / "scores.parquet").iterdir())


def kinds(report: VerifyReport) -> set[str]:
    return {finding.kind for finding in report.findings}


# -- Parquet files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [(), ("id",), ("number", "id", "hour")], ids=str)
@pytest.mark.parametrize("name", TASKS)
def test_files_hold_what_an_export_holds(
    worlds: Callable[[str], Path], tmp_path: Path, name: str, ids: tuple[str, ...]
) -> None:
    world = worlds(name)
    scored(world, tmp_path / "out", parquet=True, id=ids, **TASKS[name])
    dcpred.export(tmp_path / "out", tmp_path / "out.parquet", beside=ids)
    found, right = pq.read_table(tmp_path / "out/scores.parquet"), pq.read_table(tmp_path / "out.parquet")
    assert found.equals(right)
    assert [len(pq.read_table(file)) for file in files(tmp_path / "out")] == [150, 150, 30]
    assert found["status"].to_pylist() == [2 if row in BAD else 1 for row in range(N_ROWS)]
    assert all(
        found["decision" if name != "several classes" else "decision_0"][row].as_py() is None for row in BAD
    )
    assert found.column_names[: max(len(ids), 1)] == (list(ids) or ["row"])
    assert dcpred.verify(tmp_path / "out").ok


def test_an_export_reads_the_files_of_blocks(world: Path, tmp_path: Path) -> None:
    """It needs the input no more, and equals an export of the arrays."""
    rows, ids, out = tmp_path / "new.zarr", ["id", "number"], tmp_path / "out"
    shutil.copytree(world / "new.zarr", rows)
    dcpred.score(world / "model", rows, out, parquet=True, id=ids)
    dcpred.score(world / "model", rows, tmp_path / "arrays")
    for number, choice in enumerate(({}, {"status": ["ok"]}, {"status": ["non_finite_feature"]})):
        dcpred.export(tmp_path / "arrays", tmp_path / f"a{number}.csv", beside=ids, **choice)
    shutil.rmtree(rows)
    for number, choice in enumerate(({}, {"status": ["ok"]}, {"status": ["non_finite_feature"]})):
        report = dcpred.export(out, tmp_path / f"b{number}.csv", **choice)
        assert (report.columns[:2], report.beside) == (ids, f"{rows}/X")
        assert (tmp_path / f"a{number}.csv").read_text() == (tmp_path / f"b{number}.csv").read_text()
    dcpred.export(out, tmp_path / "c.parquet", columns=["label"])
    labels = pq.read_table(out / "scores.parquet", columns=["label"])
    assert pq.read_table(tmp_path / "c.parquet").equals(labels)
    files(out)[1].write_bytes(files(out)[0].read_bytes())
    with pytest.raises(DataError, match=r"scores\.parquet/000001\.parquet of .* is missing or damaged"):
        dcpred.export(out, tmp_path / "d.csv")
    assert not (tmp_path / "d.csv").exists()


def test_another_format_is_one_entry(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is scored, verified, repaired and reused by a refresh like Parquet."""
    feather = replace(TABLE_FORMATS[PARQUET], label="Feather", ending=".feather", key="feather")
    monkeypatch.setitem(TABLE_FORMATS, "feather", feather)
    rows, model, out, root = tmp_path / "new.zarr", world / "model", tmp_path / "out", tmp_path / "root"
    shutil.copytree(world / "new.zarr", rows)
    columns = Columns(artifacts=(ZARR, PARQUET, "feather"), ids=("id",))
    asked: dict[str, Any] = {"parquet": True, "id": ("id",)}
    for room in ("scoring.score", "scoring.repair", "refreshing.refresh"):
        monkeypatch.setattr(
            f"dcpred.{room}.requested_columns",
            lambda *given: columns if given[4] else requested_columns(*given),
        )
    score(model, rows, out, **asked)
    names = [path.name for path in sorted((out / "scores.feather").iterdir())]
    assert names == [f"{block:06d}.feather" for block in range(3)]
    tables = [pa.feather.read_table(out / "scores.feather" / name) for name in names]
    assert pa.concat_tables(tables).equals(pq.read_table(out / "scores.parquet"))
    assert dcpred.verify(out, level="full").ok
    assert dcpred.score(model, rows, out).scored_blocks == 0
    (out / "scores.feather" / names[0]).unlink()
    (out / "scores.feather" / names[1]).write_bytes((out / "scores.feather" / names[2]).read_bytes())
    assert [finding.block for finding in dcpred.verify(out).findings] == [0, 1]
    assert repair(model, rows, out, **asked).scored_blocks == 2
    assert dcpred.verify(out, level="full").ok
    refresh(model, rows, str(root), **asked)
    for name in ("X", "id"):
        array = zarr.open_array(rows / name, mode="r+")
        array.append(array[:CHUNK_ROWS])
    report = refresh(model, rows, str(root), **asked)
    assert report.taken_blocks > 0
    assert dcpred.verify(root / "latest", level="full").ok
    assert len(list((root / "latest/scores.feather").iterdir())) == report.n_blocks


def test_the_ids_that_import_stored_are_the_default(world: Path, tmp_path: Path) -> None:
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    zarr.open_group(rows, mode="r+").attrs["dcpred_ids"] = ["number", "id"]
    dcpred.score(world / "model", rows, tmp_path / "out", parquet=True)
    dcpred.export(tmp_path / "out", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out/scores.parquet").equals(pq.read_table(tmp_path / "out.parquet"))


def test_ids_come_from_a_table_that_is_scored_in_place(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N_ROWS))
    key = [None if i == 5 else f"k{i}" for i in range(N_ROWS)]
    table = pa.table({"key": key, "a": a, "b": b, "n": np.arange(N_ROWS), "kind": np.where(a > b, "x", "y")})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    dcpred.import_data(tmp_path / "t.parquet", tmp_path / "t.zarr", target="kind", ids=["key", "n"])
    dcpred.train(tmp_path / "t.zarr", tmp_path / "model", settings=SETTINGS)
    dcpred.score(
        tmp_path / "model", tmp_path / "t.parquet", tmp_path / "out", parquet=True, id=["n", "key", "a"]
    )
    dcpred.export(tmp_path / "out", tmp_path / "out.parquet", beside=["n,key,a"])
    found = pq.read_table(tmp_path / "out/scores.parquet")
    assert found.equals(pq.read_table(tmp_path / "out.parquet"))
    assert found["n"].to_pylist() == list(range(N_ROWS))
    assert found["label"].to_pylist()[:3] == found["label"].cast(pa.string()).to_pylist()[:3]


def test_the_same_run_again_writes_the_same_bytes(world: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        scored(world, tmp_path / name, parquet=True, id=["id"])
    one, two = ([file.read_bytes() for file in files(tmp_path / name)] for name in ("one", "two"))
    assert one == two
    before = {file: file.stat().st_mtime_ns for file in files(tmp_path / "one")}
    assert scored(world, tmp_path / "one", parquet=True, id=["id"]).scored_blocks == 0
    assert {file: file.stat().st_mtime_ns for file in files(tmp_path / "one")} == before


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], Any], Kind, str]] = {
    "lost": (Path.unlink, Kind.MISSING_TABLE, "fast"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-9]), Kind.TABLE_SIZE, "fast"),
    "empty": (lambda path: path.write_bytes(b""), Kind.TABLE_SIZE, "fast"),
    "flipped": (flip, Kind.DAMAGED_TABLE, "full"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_repaired(world: Path, tmp_path: Path, name: str) -> None:
    scored(world, tmp_path / "out", parquet=True, id=["id"])
    injure, kind, level = DAMAGE[name]
    victim = files(tmp_path / "out")[1]
    right = victim.read_bytes()
    injure(victim)
    report = dcpred.verify(tmp_path / "out", level)
    assert not report.ok
    assert [(one.kind, one.block, one.file) for one in report.findings] == [
        (kind, 1, "scores.parquet/000001.parquet")
    ]
    assert repaired(world, tmp_path / "out", parquet=True, id=["id"]).scored_blocks == 1
    assert victim.read_bytes() == right
    assert dcpred.verify(tmp_path / "out").ok


def test_files_that_dcpred_did_not_write_are_findings(world: Path, tmp_path: Path) -> None:
    scored(world, tmp_path / "out", parquet=True)
    (tmp_path / "out/scores.parquet/000003.parquet").write_bytes(b"PAR1")
    left = tmp_path / "out/scores.parquet/.000001.parquet.partial-0123456789ab"
    left.write_bytes(b"PAR1")
    report = dcpred.verify(tmp_path / "out", "fast")
    assert {one.kind: one.file for one in report.findings} == {
        Kind.FOREIGN_FILE: "scores.parquet/000003.parquet",
        Kind.LEFTOVER: f"scores.parquet/{left.name}",
    }
    (tmp_path / "out/scores.parquet/000003.parquet").unlink()
    assert len(pq.read_table(tmp_path / "out/scores.parquet")) == N_ROWS  # Readers ignore what is left.


def test_a_record_without_its_file_is_a_finding(world: Path, tmp_path: Path) -> None:
    for name in ("with", "without"):
        scored(world, tmp_path / name, parquet=name == "with")
    records = [tmp_path / name / "blocks/000001.json" for name in ("with", "without")]
    assert '"table"' in records[0].read_text()
    assert '"table"' not in records[1].read_text()
    for path, other in zip(records, ({}, {"table": {"size": 1, "digest": "0", "tag": ""}}), strict=True):
        value = {
            k: v for k, v in json.loads(path.read_text()).items() if k not in ("table", "checksum")
        } | other
        path.write_bytes(encoded({**value, "checksum": digest_json(value)}))
    (finding,) = dcpred.verify(tmp_path / "with").findings
    assert (finding.block, finding.kind) == (1, Kind.MISSING_TABLE)
    assert "`dcpred deliver" in finding.sentence
    assert dcpred.deliver(tmp_path / "with").added_blocks == 1
    assert dcpred.verify(tmp_path / "with", level="full").ok
    assert Kind.ALTERED_RECORD in kinds(dcpred.verify(tmp_path / "without"))


def test_tables_are_part_of_the_output_and_not_of_the_plan(world: Path, tmp_path: Path) -> None:
    with_tables, out = tmp_path / "with", tmp_path / "out"
    scored(world, with_tables, parquet=True, id=["id"])
    scored(world, out)
    assert open_ledger(out).run.run == open_ledger(with_tables).run.run
    manifest = (out / "manifest.json").read_bytes()
    assert scored(world, out, parquet=True, id=["id"]).scored_blocks == 0
    assert (out / "manifest.json").read_bytes() == manifest
    assert [f.read_bytes() for f in files(out)] == [f.read_bytes() for f in files(with_tables)]
    records = [open_ledger(output).records() for output in (out, with_tables)]
    assert [(a.files, a.input) for a in records[0]] == [(b.files, b.input) for b in records[1]]
    for same in ({}, {"parquet": True}, {"id": ["id"], "delta": tmp_path / "table"}):
        assert scored(world, out, **same).scored_blocks == 0
    assert dcpred.verify(out, level="full").in_delta
    with pytest.raises(PlanConflictError, match="it has some with id"):
        scored(world, out, parquet=True, id=["number"])
    with pytest.raises(PlanConflictError, match="it has some with id"):
        dcpred.deliver(out, id=["number"])


@pytest.mark.parametrize("first", [{}, {"parquet": True, "id": ["id"]}], ids=["without", "with"])
@pytest.mark.parametrize("then", [{}, {"parquet": True, "id": ["id"]}], ids=["without", "with"])
def test_a_half_finished_output_gets_tables(
    world: Path, tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    scored(world, out, **first)
    (out / "manifest.json").unlink()
    (out / "blocks/000001.json").unlink()
    assert scored(world, out, **then).scored_blocks == 1
    assert dcpred.verify(out, level="full").ok
    assert (out / "scores.parquet").exists() == bool(first or then)
    for shard in ("0/2", "1/2"):
        scored(world, tmp_path / "parts", shard=shard, **(first if shard == "0/2" else then))
    assert dcpred.verify(tmp_path / "parts", level="full").ok


def test_ids_that_changed_are_of_another_run(world: Path, tmp_path: Path) -> None:
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    dcpred.score(world / "model", rows, tmp_path / "out", parquet=True, id=["id"])
    zarr.open_group(rows, mode="r+")["id"][3] = "another"
    with pytest.raises(PlanConflictError, match="Cannot write scores"):
        dcpred.score(world / "model", rows, tmp_path / "out", parquet=True, id=["id"])


def test_a_missing_chunk_of_ids_is_not_read_as_fill_values(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    (rows / "id/c/2").unlink()
    with pytest.raises(DataError, match="chunk"):
        dcpred.score(world / "model", rows, tmp_path / "out", parquet=True, id=["id"])
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr("dcpred_tasks.storage.stored_chunks.check_complete", lambda *args: None)
    with pytest.raises(IncompleteError, match=r"Cannot read ids of rows 1\d\d to 1\d\d: chunk"):
        dcpred.score(world / "model", rows, tmp_path / "out", parquet=True, id=["id"])


REFUSED: dict[str, tuple[dict[str, Any], type[RefusedError], str]] = {
    "ids alone": ({"id": ["id"]}, SettingsError, "no Parquet files are written. Add --parquet"),
    "unknown": ({"parquet": True, "id": ["ids"]}, DataError, "Did you mean 'id'?"),
    "twice": ({"parquet": True, "id": ["id", "id"]}, SettingsError, "two columns called id"),
    "skipped rows": (
        {"delta": "t", "quarantine": True},
        SettingsError,
        "would stay in the table after a repair",
    ),
    "inside the output": ({"delta": "out/t"}, DataError, "one is inside the other"),
    "a server": ({"delta": "https://host/t"}, DataError, "only reads from servers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_requests_are_refused(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    options, kind, words = REFUSED[name]
    with pytest.raises(kind) as error:
        scored(world, tmp_path / "out", **options)
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_id_with_the_name_of_an_output_is_refused(world: Path, tmp_path: Path) -> None:
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    zarr.open_group(rows, mode="r+").create_array("status", data=np.ones(N_ROWS))
    with pytest.raises(SettingsError, match="two columns called status"):
        dcpred.score(world / "model", rows, tmp_path / "out", parquet=True, id=["status"])


def test_shards_write_their_files(world: Path, tmp_path: Path) -> None:
    scored(world, tmp_path / "whole", delta=tmp_path / "t1", id=["id"])
    for shard in ("0/2", "1/2"):
        scored(world, tmp_path / "parts", delta=tmp_path / "t1", id=["id"], shard=shard)
    one, two = ([file.read_bytes() for file in files(tmp_path / name)] for name in ("whole", "parts"))
    assert one == two
    assert dcpred.verify(tmp_path / "parts").in_delta


def test_a_refresh_reuses_files_of_unchanged_blocks(world: Path, tmp_path: Path) -> None:
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    group, root = zarr.open_group(rows, mode="r+"), tmp_path / "root"

    def refreshed(**more: Any) -> tuple[int, int]:
        report = dcpred.refresh(world / "model", rows, root, **more)
        assert dcpred.verify(root / "latest").ok
        dcpred.export(root / "latest", tmp_path / f"{report.run}.parquet", beside=["id"])
        right = pq.read_table(tmp_path / f"{report.run}.parquet")
        assert pq.read_table(root / "latest/scores.parquet").equals(right)
        return report.taken_blocks, report.scored_blocks

    assert refreshed(parquet=True, id=["id"]) == (0, 3)
    before = {file.name: file.stat().st_ino for file in files(root / "latest")}
    group["X"][320] = 0.5
    assert refreshed() == (2, 1)
    after = {file.name: file.stat().st_ino for file in files(root / "latest")}
    assert [name for name in before if before[name] != after[name]] == ["000002.parquet"]
    group["id"][20] = "another"  # its chunk has rows of the first block alone
    assert refreshed() == (2, 1)
    for other, words in (({"id": ["number"]}, "runs with other ids in Parquet files"),):
        with pytest.raises(PlanConflictError, match=words):
            dcpred.refresh(world / "model", rows, root, parquet=True, **other)
    dcpred.refresh(world / "model", rows, tmp_path / "plain")
    with pytest.raises(PlanConflictError, match="runs without Parquet files"):
        dcpred.refresh(world / "model", rows, tmp_path / "plain", parquet=True)


def test_a_refresh_reuses_blocks_of_a_run_that_was_delivered(world: Path, tmp_path: Path) -> None:
    """Its tables came later, and the next run has none."""
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    root = tmp_path / "root"
    dcpred.refresh(world / "model", rows, root)
    dcpred.deliver(root / "latest", tmp_path / "table", id=["number"])
    assert dcpred.refresh(world / "model", rows, root).state == "unchanged"
    zarr.open_group(rows, mode="r+")["X"][320] = 0.5
    report = dcpred.refresh(world / "model", rows, root)
    assert (report.taken_blocks, report.scored_blocks) == (2, 1)
    assert dcpred.verify(root / "latest", level="full").ok
    assert not (root / "latest/scores.parquet").exists()


def test_a_damaged_file_is_not_reused(world: Path, tmp_path: Path) -> None:
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    dcpred.refresh(world / "model", rows, tmp_path / "root", parquet=True)
    files(tmp_path / "root/latest")[0].unlink()
    zarr.open_group(rows, mode="r+")["X"][320] = 0.5
    report = dcpred.refresh(world / "model", rows, tmp_path / "root")
    assert (report.taken_blocks, report.scored_blocks) == (1, 2)
    assert dcpred.verify(tmp_path / "root/latest").ok


def test_the_commands_take_what_the_functions_take(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_, **__: inline())
    places = [str(world / "model"), str(world / "new.zarr"), str(tmp_path / "out")]
    options = ["--id", "id, number", "--delta", str(tmp_path / "table"), "--quiet"]
    found = CliRunner().invoke(main, ["score", *places, *options])
    assert found.exit_code == 0, found.output
    assert DeltaTable(tmp_path / "table").to_pyarrow_table().column_names[:3] == ["id", "number", "label"]
    shown = CliRunner().invoke(main, ["verify", str(tmp_path / "out"), "--quiet"])
    assert "Delta table  holds the run" in shown.output
    files(tmp_path / "out")[0].unlink()
    assert CliRunner().invoke(main, ["score", *places, *options, "--repair"]).exit_code == 0
    assert dcpred.verify(tmp_path / "out").ok


def test_runs_without_files_need_no_pyarrow(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dcpred_tasks.tables.block_tables", "deltalake"):
        monkeypatch.setitem(sys.modules, name, None)
    scored(world, tmp_path / "out")
    assert dcpred.verify(tmp_path / "out").in_delta is None
    monkeypatch.setitem(sys.modules, "dcpred_tasks.tables.block_tables", block_tables)
    with pytest.raises(SettingsError, match=r'deltalake is not installed. Run pip install "dcpred\[delta\]"'):
        scored(world, tmp_path / "other", delta=tmp_path / "table")


# -- Delta tables --------------------------------------------------------------------------------------------


def rows_of(table: Path, by: str = "number") -> pa.Table:
    return DeltaTable(table).to_pyarrow_table().sort_by(by)


def in_delta(world: Path, output: Path, table: Path, **more: Any) -> Any:
    return scored(world, output, delta=table, id=["number", "hour"], **more)


def test_a_file_in_the_place_of_an_output_is_refused(world: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(PlanConflictError, match=r"out: it holds other files\. Remove them, or name a new"):
        scored(world, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_finished_run_is_one_transaction(world: Path, tmp_path: Path) -> None:
    in_delta(world, tmp_path / "out", tmp_path / "table")
    dcpred.export(tmp_path / "out", tmp_path / "out.parquet", beside=["number,hour"])
    found, right = rows_of(tmp_path / "table"), pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == right.column_names
    for name in right.column_names:
        assert found[name].cast(right[name].type).combine_chunks().equals(right[name].combine_chunks()), name
    table, run = DeltaTable(tmp_path / "table"), open_ledger(tmp_path / "out").run
    last = table.history(1)[0]
    assert (table.version(), table.transaction_version(last["dcpred_delivery"])) == (1, 1)
    assert (last["dcpred_run"], last["dcpred_model"]) == (run.run, run.model_hash)
    assert last["dcpred_version"] == dcpred.__version__
    assert dcpred.verify(tmp_path / "out").in_delta


def test_the_same_run_is_committed_once(world: Path, tmp_path: Path) -> None:
    for name in ("out", "out", "other"):
        in_delta(world, tmp_path / name, tmp_path / "table")
    assert DeltaTable(tmp_path / "table").version() == 1
    assert len(rows_of(tmp_path / "table")) == N_ROWS
    in_delta(world, tmp_path / "more", tmp_path / "table", threshold=0.4)
    assert len(rows_of(tmp_path / "table")) == 2 * N_ROWS


@pytest.mark.filterwarnings("ignore:Consolidated metadata")  # filters are those of a process
def test_two_drivers_at_once_commit_once(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have opened the table, and copied all files, before either commits."""
    both, real, answers, wrong = threading.Barrier(2, timeout=60), delta_tables._added, [], []

    def added(*args: Any) -> bool:
        if len(answers) < 2:
            both.wait()
        answers.append(real(*args))
        return answers[-1]

    def drive(name: str) -> None:
        try:
            in_delta(world, tmp_path / name, tmp_path / "table")
        except BaseException as error:
            wrong.append(error)

    monkeypatch.setattr(delta_tables, "_added", added)
    drivers = [threading.Thread(target=drive, args=(name,)) for name in ("one", "two")]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert wrong == []
    assert sorted(answers) == [False, True]
    assert DeltaTable(tmp_path / "table").version() == 1
    assert len(rows_of(tmp_path / "table")) == N_ROWS
    assert dcpred.verify(tmp_path / "one").ok
    assert dcpred.verify(tmp_path / "two").ok


def test_other_writers_are_waited_for(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, n = delta_tables._added, iter(range(3))
    monkeypatch.setattr(delta_tables, "_added", lambda *args: next(n) == 2 and real(*args))
    in_delta(world, tmp_path / "out", tmp_path / "table")
    assert len(rows_of(tmp_path / "table")) == N_ROWS
    monkeypatch.setattr(delta_tables, "_added", lambda *args: False)
    with pytest.raises(IncompleteError, match="other writers were faster 20 times"):
        in_delta(world, tmp_path / "other", tmp_path / "table", threshold=0.4)
    assert not dcpred.verify(tmp_path / "other").in_delta


CRASHES = {
    "before the table": ("_created", False),
    "after the table": ("_created", True),
    "before a file": ("_place", False),
    "after a file": ("_place", True),
    "before the commit": ("_added", False),
    "after the commit": ("_added", True),
}


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_loses_no_row_and_adds_none_twice(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    function, after = CRASHES[name]
    real = getattr(delta_tables, function)

    def dying(*args: Any) -> Any:
        if after:
            real(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(delta_tables, function, dying)
        with pytest.raises(Killed):
            in_delta(world, tmp_path / "out", tmp_path / "table")
    report = dcpred.verify(tmp_path / "out")
    assert report.finished
    assert report.ok is report.in_delta is (name == "after the commit")
    assert ("Delta table" in report.found) is (name != "after the commit")
    for _ in range(2):
        assert in_delta(world, tmp_path / "out", tmp_path / "table").scored_blocks == 0
        assert DeltaTable(tmp_path / "table").version() == 1
        assert rows_of(tmp_path / "table")["number"].to_pylist() == list(range(N_ROWS))
    assert dcpred.verify(tmp_path / "out").ok


def test_files_of_the_table_are_verified_and_restored(world: Path, tmp_path: Path) -> None:
    in_delta(world, tmp_path / "out", tmp_path / "table")
    right = rows_of(tmp_path / "table")
    lost, flipped, _ = map(Path, sorted(DeltaTable(tmp_path / "table").file_uris()))
    lost.unlink()
    flip(flipped)
    assert kinds(dcpred.verify(tmp_path / "out", "fast")) == {Kind.DELTA}
    report = dcpred.verify(tmp_path / "out")
    assert [(Path(one.file).name, one.sentence) for one in report.findings] == [
        (lost.name, "it is missing"),
        (flipped.name, "its bytes are not what was written"),
    ]
    assert not report.in_delta
    assert not report.ok
    assert (
        repaired(world, tmp_path / "out", delta=tmp_path / "table", id=["number", "hour"]).scored_blocks == 0
    )
    assert rows_of(tmp_path / "table").equals(right)
    assert dcpred.verify(tmp_path / "out").ok


def test_a_table_that_was_compacted_still_holds_the_run(world: Path, tmp_path: Path) -> None:
    in_delta(world, tmp_path / "out", tmp_path / "table")
    table = DeltaTable(tmp_path / "table")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    assert dcpred.verify(tmp_path / "out").ok
    in_delta(world, tmp_path / "out", tmp_path / "table")
    assert len(rows_of(tmp_path / "table")) == N_ROWS


def test_a_table_that_was_removed_gets_the_run_again(world: Path, tmp_path: Path) -> None:
    in_delta(world, tmp_path / "out", tmp_path / "table")
    (tmp_path / "table").rename(tmp_path / "moved")
    assert not dcpred.verify(tmp_path / "out").in_delta
    in_delta(world, tmp_path / "out", tmp_path / "table")
    assert len(rows_of(tmp_path / "table")) == N_ROWS


def test_a_damaged_file_does_not_reach_the_table(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(delta_tables, "_added", lambda *args: False)
        with pytest.raises(IncompleteError):
            in_delta(world, tmp_path / "out", tmp_path / "table")
    flip(files(tmp_path / "out")[1])
    with pytest.raises(IncompleteError, match=r"Cannot copy scores.parquet/000001.parquet .* with --repair"):
        in_delta(world, tmp_path / "out", tmp_path / "table")
    assert len(rows_of(tmp_path / "table")) == 0
    repaired(world, tmp_path / "out", delta=tmp_path / "table", id=["number", "hour"])
    assert len(rows_of(tmp_path / "table")) == N_ROWS


def changed_block(world: Path, folder: Path) -> Path:
    """A delivered run, of whose second block the input was corrected and the scores are damaged."""
    rows = make_rows(folder / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    dcpred.score(world / "model", rows, folder / "out", delta=folder / "table", id=["number"])
    X = zarr.open_group(rows, mode="r+")["X"]
    X[150:300] = -X[150:300]
    flip(folder / "out/scores.zarr/decision/c/3")
    return rows


def test_a_repaired_block_is_replaced_in_one_transaction(world: Path, tmp_path: Path) -> None:
    rows = changed_block(world, tmp_path)
    before, version = rows_of(tmp_path / "table"), DeltaTable(tmp_path / "table").version()
    dcpred.repair(world / "model", rows, tmp_path / "out", delta=tmp_path / "table", id=["number"])
    found = rows_of(tmp_path / "table")
    assert DeltaTable(tmp_path / "table").version() == version + 1
    assert not found.equals(before)
    assert found.slice(0, 150).equals(before.slice(0, 150))
    assert found["number"].to_pylist() == list(range(N_ROWS))
    scores = np.ma.filled(found["decision"].to_pandas().to_numpy(), np.nan)
    stored = zarr.open_array(tmp_path / "out/scores.zarr/decision")[:].reshape(N_ROWS)
    np.testing.assert_array_equal(scores, stored)
    assert dcpred.verify(tmp_path / "out").ok


def test_a_repaired_block_in_a_compacted_file_is_not_doubled(world: Path, tmp_path: Path) -> None:
    rows = changed_block(world, tmp_path)
    DeltaTable(tmp_path / "table").optimize.compact()
    before = rows_of(tmp_path / "table")
    with pytest.raises(PlanConflictError, match="Nothing was committed"):
        dcpred.repair(world / "model", rows, tmp_path / "out", delta=tmp_path / "table", id=["number"])
    assert rows_of(tmp_path / "table").equals(before)
    assert not dcpred.verify(tmp_path / "out").in_delta
    DeltaTable(tmp_path / "table").delete("number >= 150 and number < 300")
    assert dcpred.deliver(tmp_path / "out").added_blocks == 1
    assert rows_of(tmp_path / "table")["number"].to_pylist() == list(range(N_ROWS))
    assert not rows_of(tmp_path / "table").equals(before)
    assert dcpred.verify(tmp_path / "out").ok


def test_another_writer_of_parquet_changes_no_rows(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair by another version of pyarrow writes other bytes of the same rows."""
    in_delta(world, tmp_path / "out", tmp_path / "table")
    right = rows_of(tmp_path / "table")
    files(tmp_path / "out")[1].write_bytes(b"PAR1")
    real = pq.ParquetWriter
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetWriter", lambda *a, **k: real(*a, **{**k, "compression": "snappy"}))
        repaired(world, tmp_path / "out", delta=tmp_path / "table", id=["number", "hour"])
    assert dcpred.verify(tmp_path / "out").ok
    assert DeltaTable(tmp_path / "table").version() == 1
    lost = Path(sorted(DeltaTable(tmp_path / "table").file_uris())[1])
    lost.unlink()
    assert not dcpred.verify(tmp_path / "out").in_delta
    assert dcpred.deliver(tmp_path / "out").replaced_blocks == 1
    assert rows_of(tmp_path / "table").equals(right)
    assert dcpred.verify(tmp_path / "out").ok


def of_columns(*fields: Any, **more: Any) -> Callable[[Path], Any]:
    return lambda path: DeltaTable.create(path, schema=pa.schema(fields), **more)


def holding(name: str) -> Callable[[Path], Any]:
    def make(path: Path) -> None:
        (path / name).parent.mkdir(parents=True)
        (path / name).write_text("mine")

    return make


OWN = [("number", pa.int64()), ("hour", pa.timestamp("us")), ("label", pa.int8()), ("decision", pa.float32())]
OWN += [("probability", pa.float32()), ("novelty", pa.float32()), ("status", pa.int16())]
NEVER_NULL = pa.field("status", pa.int16(), nullable=False)
OTHER: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a type": (
        of_columns(*OWN[:-1], ("status", pa.string())),
        "column 'status' is string there and short",
    ),
    "one less": (of_columns(*OWN[:-1]), "column 'status' is missing there"),
    "one more": (of_columns(*OWN, ("day", pa.date32())), "'day' is date there and missing in the run"),
    "never null": (
        of_columns(*OWN[:-1], pa.field("status", pa.int16(), nullable=False)),
        "'status' is NOT NULL",
    ),
    "partitions": (of_columns(*OWN, partition_by="label"), "it is partitioned by label"),
    "other files": (
        lambda path: (path.mkdir(), (path / "mine.txt").write_text("")),
        "it holds other files (mine.txt)",
    ),
    "damaged": (
        lambda path: (
            (path / "_delta_log").mkdir(parents=True),
            (path / f"_delta_log/{0:020}.json").write_text("x"),
        ),
        "Cannot open the Delta table",
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_tables_are_refused_before_anything_is_written(world: Path, tmp_path: Path, name: str) -> None:
    make, words = OTHER[name]
    make(tmp_path / "table")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError) as error:
        in_delta(world, tmp_path / "out", tmp_path / "table", outputs=TASKS["two classes"]["outputs"])
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_table_with_the_same_columns_in_another_order_is_taken(world: Path, tmp_path: Path) -> None:
    of_columns(*OWN[::-1])(tmp_path / "table")
    in_delta(world, tmp_path / "out", tmp_path / "table", outputs=TASKS["two classes"]["outputs"])
    assert rows_of(tmp_path / "table")["number"].to_pylist() == list(range(N_ROWS))


def test_ids_of_a_type_that_delta_lacks_are_refused(world: Path, tmp_path: Path) -> None:
    rows = make_rows(tmp_path / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    group = zarr.open_group(rows, mode="r+")
    group.create_array("lasts", data=np.arange(N_ROWS).astype("timedelta64[s]"))
    with pytest.raises(DataError, match="Invalid data type for Delta Lake: Duration"):
        dcpred.score(world / "model", rows, tmp_path / "out", delta=tmp_path / "table", id=["lasts"])
    assert not (tmp_path / "table").exists()


def with_array(world: Path, folder: Path, name: str, values: Any) -> Path:
    rows = make_rows(folder / "new.zarr", zarr.open_array(world / "new.zarr/X")[:])
    zarr.open_group(rows, mode="r+").create_array(name, data=values)
    return rows


def test_delta_tables_hold_ids_of_64_bits_without_sign(world: Path, tmp_path: Path) -> None:
    hashes = np.iinfo(np.uint64).max - np.arange(N_ROWS, dtype=np.uint64)
    rows = with_array(world, tmp_path, "hash", hashes)
    dcpred.score(world / "model", rows, tmp_path / "out", delta=tmp_path / "table", id=["hash"])
    written = rows_of(tmp_path / "table", "hash")["hash"].to_pylist()
    assert [int(value) for value in written] == sorted(map(int, hashes))


def test_values_that_delta_lacks_end_the_run_with_a_sentence(world: Path, tmp_path: Path) -> None:
    times = np.arange(N_ROWS).astype("datetime64[ns]")
    rows = with_array(world, tmp_path, "time", times)
    with pytest.raises(IncompleteError, match="Cannot write column 'time' to a Delta table") as error:
        dcpred.score(world / "model", rows, tmp_path / "out", delta=tmp_path / "table", id=["time"])
    assert "try once more" not in str(error.value)
    assert "ArrowInvalid" not in str(error.value)


def test_an_unknown_id_is_not_sought_in_other_data(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order").mkdir()
    with pytest.raises(DataError, match="Name one of"):
        scored(world, tmp_path / "out", parquet=True, id=["order"])


def test_names_are_taken_between_commas_and_one_by_one(world: Path, tmp_path: Path) -> None:
    for number, ids in enumerate((["--id", "number,id"], ["--id", "number", "--id", "id"])):
        words = ["score", str(world / "model"), str(world / "new.zarr"), str(tmp_path / str(number))]
        done = CliRunner().invoke(main, [*words, "--parquet", "--quiet", *ids])
        assert done.exit_code == 0, done.output
        columns = pq.read_table(tmp_path / str(number) / "scores.parquet").column_names
        assert columns[:2] == ["number", "id"]
