"""A refresh of a table equals a fresh score of it, whatever happened to its files: every byte of its scores
and of its Parquet files with ids. On disks and on a store; of Zarr, Parquet, Arrow and Delta.
"""

import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from deltalake import DeltaTable, write_deltalake

import dcpred
from dcpred.execution.block_plan import BlockBoundaries
from dcpred.refreshing.refresh import RefreshReport, publish, refresh
from dcpred.runs.ledger import open_ledger
from dcpred_tasks.errors import DataError, IncompleteError
from dcpred_tasks.storage.place import open_place
from support.changing_inputs import (
    INPUTS,
    DeltaInput,
    Input,
    ParquetInput,
    bring,
    outputs_of,
    table,
)
from support.cut_off import at_write
from support.data import make_group
from support.runs import score_in_blocks
from support.serving import read_models_once
from support.stores import StoreServer, used

CHUNK_ROWS = 20
SETTLED = "dcpred_tasks.storage.stored_chunks.SETTLED_SECONDS"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """One for arrays of Zarr, and one for tables."""
    folder, settings = tmp_path_factory.mktemp("models"), {"n_leaves": 1, "landmarks": 6}
    known = table(300, 0)
    pq.write_table(known, folder / "known.parquet")
    dcpred.train(str(folder / "known.parquet"), folder / "table", y="y", id=["order"], settings=settings)
    X = np.stack([known[f"f{i}"] for i in range(3)], axis=1)
    arrays = make_group(folder / "known.zarr", X, np.unique(known["y"], return_inverse=True)[1])
    dcpred.train(str(arrays), folder / "array", settings=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.MAX_CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 64)
        patch.setattr("dcpred_tasks.tables.encoded_rows.MOST_ROWS", CHUNK_ROWS)
        patch.setattr(SETTLED, 0.02)
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr("dcpred.scoring.planning.check_self_test", lambda *a, **k: None)
        read_models_once(patch)
        yield {"zarr": folder / "array"} | dict.fromkeys(("parquet", "arrow", "delta"), folder / "table")


@pytest.fixture
def model(models: dict[str, Path]) -> Path:
    return models["parquet"]


def same_as_fresh(model: Path, data: str, root: str, report: RefreshReport, scratch: Path) -> None:
    """A run of a refresh equals a run of all rows that begins anew."""
    run = open_ledger(f"{root}/runs/{report.run}").run
    cut = BlockBoundaries(run.chunk_rows, run.block_rows, run.stride)
    score_in_blocks(model, data, scratch, cut, parquet=bool(run.tables), id=run.ids)
    place = open_place(run.output)
    stored = [name for folder in ("scores.zarr", "scores.parquet") for name in place.listing(folder)]
    found = {name: place.read(name) for name in stored}
    fresh = {name: data for name, data in outputs_of(scratch).items()}
    assert {name: one.data for name, one in found.items() if one is not None} == fresh


def happen(rng: np.random.Generator, one: Input, step: int) -> str:
    """One change of an input."""
    seed, at, n = int(rng.integers(2**20)), float(rng.random()), int(rng.integers(1, 40))
    what = str(rng.choice(["append", "rewrite", "touch", "truncate", "change", "change", "change"]))
    if what == "truncate":
        one.truncate(min(n, 5))
        one.append(n + 5, seed)  # fewer rows than before are refused
    elif what == "change":
        rows = one.n_rows
        one.change(int(rng.integers(20)), at, n, seed)
        if one.n_rows < rows:
            one.append(rows - one.n_rows, seed + 1)
    else:
        getattr(one, what)(*{"append": (n, seed), "rewrite": (at, seed), "touch": (at,)}[what])
    return what


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("seed", [2, *(pytest.param(n, marks=pytest.mark.long) for n in range(4, 20))])
def test_a_refresh_equals_a_fresh_score(
    kind: str, seed: int, models: dict[str, Path], tmp_path: Path
) -> None:
    rng, model, root = np.random.default_rng(seed), models[kind], str(tmp_path / "root")
    one, reused = INPUTS[kind](tmp_path, 230, CHUNK_ROWS, seed), 0
    for step in range(4):
        report = refresh(model, one.data, root, **one.columns)
        reused += report.taken_blocks
        same_as_fresh(model, one.data, root, report, tmp_path / f"fresh-{step}")
        happen(rng, one, step)
    assert reused


def happen_to_file(rng: np.random.Generator, one: Any, step: int) -> None:
    """One change of a file with several row groups."""
    rows, few = one.rows["m2"], table(int(rng.integers(1, 40)), step)
    others = [[rows, few], [few, rows], [table(len(rows), step)], [rows]]
    one.put("m2", pa.concat_tables(others[step % 4]), group=(2 * CHUNK_ROWS, CHUNK_ROWS)[step // 3 % 2])


@pytest.mark.parametrize(("kind", "name"), [("zarr", ""), ("parquet", "/m2.parquet"), ("delta", "")])
def test_a_refresh_on_a_store_equals_a_fresh_score(
    kind: str, name: str, models: dict[str, Path], tmp_path: Path, s3: StoreServer
) -> None:
    rng, model = np.random.default_rng(7), models[kind]
    one, reused = INPUTS[kind](tmp_path, 130, CHUNK_ROWS, 7), 0
    with used(s3):
        there = s3.address("changing", kind)
        for step in range(3):
            bring(Path(one.data), f"{there}/{Path(one.data).name}")
            data = f"{there}/{Path(one.data).name}{name}"
            report = refresh(model, data, f"{there}/root", **one.columns)
            reused += report.taken_blocks
            same_as_fresh(model, data, f"{there}/root", report, tmp_path / f"fresh-{step}")
            if step == 0 and not name:
                one.append(30, 9)
            else:
                (happen_to_file if name else happen)(rng, one, step)
    assert reused or name  # a file that was written again has no unchanged block


# -- one change at a time ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> ParquetInput:
    return ParquetInput(tmp_path, 130, CHUNK_ROWS)


@pytest.fixture
def checked(model: Path, tmp_path: Path) -> Callable[..., RefreshReport]:
    """A refresh of a table that equals a fresh score."""
    calls: list[Path] = []

    def call(data: str, *ids: str, **more: Any) -> RefreshReport:
        root = str(tmp_path / "root")
        report = refresh(model, data, root, parquet=True, id=ids or ("order", "code"), **more)
        calls.append(tmp_path / f"fresh-{len(calls)}")
        same_as_fresh(model, data, root, report, calls[-1])
        return report

    return call


def test_rows_that_a_late_row_shifted_are_scored_again(
    checked: Callable[..., RefreshReport], folder: ParquetInput
) -> None:
    """The last blocks lie within one row group of an untouched file, before and after."""
    checked(folder.data)
    folder.change(1, 0.0, 0, 5)
    assert checked(folder.data).taken_blocks == 0
    folder.change(0, 0.0, 1, 5)
    assert checked(folder.data).taken_blocks == 0


def change_a_value(path: Path) -> None:
    """Statistics name the least value of a column and its largest: another one leaves the footer as it is."""
    rows = pq.read_table(path)
    options: dict[str, Any] = {
        "row_group_size": 2 * CHUNK_ROWS,
        "use_dictionary": False,
        "compression": "none",
    }
    pq.write_table(rows, path, **options)
    before, footer, middle = path.read_bytes(), pq.read_metadata(path), np.sort(rows["f0"].to_numpy()[:20])[9]
    path.write_bytes(before.replace(middle.tobytes(), np.float32(middle + 1e-3).tobytes(), 1))
    assert (path.read_bytes() != before, pq.read_metadata(path).equals(footer)) == (True, True)


@pytest.mark.parametrize("kind", ["parquet", "zarr"])
def test_other_values_of_the_same_size_footer_and_time_of_writing_are_scored_again(
    kind: str, models: dict[str, Path], tmp_path: Path
) -> None:
    model, one = models[kind], INPUTS[kind](tmp_path, 100, CHUNK_ROWS)
    name = {"parquet": "m2.parquet", "zarr": "X/c/0/0"}[kind]
    path, root = Path(one.data, name), str(tmp_path / "root")
    if kind == "parquet":
        change_a_value(path)
    refresh(model, one.data, root, **one.columns)
    before = path.stat()
    if kind == "parquet":
        change_a_value(path)
    else:
        zarr.open_array(f"{one.data}/X", mode="r+")[0] = 3.0
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    report = refresh(model, one.data, root, **one.columns)
    assert (report.state, report.scored_blocks) == ("published", {"parquet": 3, "zarr": 1}[kind])
    same_as_fresh(model, one.data, root, report, tmp_path / "fresh")


def test_what_other_files_decide_about_the_ids_of_a_block(
    checked: Callable[..., RefreshReport], tmp_path: Path
) -> None:
    """Numbers of folders are text once one of them is not a number; then all files hold text."""
    rows = table(300, 1).drop_columns(["y"])

    def put(part: str, start: int, n: int) -> None:
        (tmp_path / "data" / f"part={part}").mkdir(parents=True)
        path = tmp_path / "data" / f"part={part}" / "a.parquet"
        pq.write_table(rows.slice(start, n), path, row_group_size=CHUNK_ROWS)

    put("1", 0, 60)
    data, ids = str(tmp_path / "data"), ("part", "order")
    checked(data, *ids)
    put("2", 60, 40)
    assert checked(data, *ids).taken_blocks == 3
    put("north", 100, 40)
    assert checked(data, *ids).taken_blocks == 0
    put("south", 140, 40)
    assert checked(data, *ids).taken_blocks == 7


def test_the_types_of_ids_by_other_files(checked: Callable[..., RefreshReport], folder: ParquetInput) -> None:
    def with_key(rows: pa.Table, scale: int) -> pa.Table:
        key = pa.array([Decimal(i) for i in range(len(rows))], pa.decimal128(12, scale))
        return rows.append_column("key", key)

    for name, rows in list(folder.rows.items()):
        folder.put(name, with_key(rows, 1))
    assert checked(folder.data, "key").scored_blocks == 7
    folder.put("z1", with_key(table(20, 3), 1))
    assert checked(folder.data, "key").taken_blocks > 0
    folder.put("z2", with_key(table(20, 4), 3))
    assert checked(folder.data, "key").taken_blocks == 0


def test_attributes_of_ids_of_zarr_decide_their_text(models: dict[str, Path], tmp_path: Path) -> None:
    blobs = table(60, 0)
    X, kind = np.stack([blobs[f"f{i}"] for i in range(3)], axis=1), np.arange(60, dtype="i1") % 2
    data = make_group(tmp_path / "data.zarr", X, chunk_rows=CHUNK_ROWS, kind=kind)
    root, model = str(tmp_path / "root"), models["zarr"]
    for number, names in enumerate((["a", "b"], ["b", "a"])):
        zarr.open_array(f"{data}/kind", mode="r+").attrs["labels"] = names
        report = refresh(model, str(data), root, parquet=True, id=("kind",))
        assert report.scored_blocks == 3
        same_as_fresh(model, str(data), root, report, tmp_path / f"fresh-{number}")


def test_a_delta_table_reuses_its_unchanged_files(
    checked: Callable[..., RefreshReport], tmp_path: Path
) -> None:
    """Also where a version is of other metadata alone, and where files are removed that no version needs."""
    one = DeltaInput(tmp_path, 0, CHUNK_ROWS)
    for seed in range(1, 5):
        one.append(40, seed)
    assert checked(one.data).scored_blocks == 8
    one.append(40, 5)
    assert (report := checked(one.data)).taken_blocks == 8
    assert report.scored_blocks == 2
    one.change(3, 0.0, 0, 1)
    assert checked(one.data).state == "unchanged"
    one.delete(list(range(5_000_000, 5_000_010)))  # of the newest file
    one.append(10, 6)
    DeltaTable(one.data).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert checked(one.data).taken_blocks == 8
    one.opened.optimize.compact()
    assert checked(one.data).taken_blocks == 0
    write_deltalake(one.data, table(30, 7).drop_columns(["y"]), mode="overwrite")
    with pytest.raises(DataError, match=r"it has 30 rows, fewer than the 200 scored ones\. Restore it, or"):
        checked(one.data)
    assert checked(one.data, full=True).n_rows == 30


def test_a_partition_of_a_delta_table_is_stated_by_its_log(
    checked: Callable[..., RefreshReport], tmp_path: Path
) -> None:
    """A column that files lack has the value of the log; one that is new changes no row before it."""
    data = str(tmp_path / "data")
    for seed in (1, 2):
        write_deltalake(data, table(40, seed).drop_columns(["y"]), mode="append", partition_by=["kind"])
    checked(data)
    more = table(40, 3).drop_columns(["y"]).append_column("new", pa.array(range(40)))
    write_deltalake(data, more, mode="append", schema_mode="merge", partition_by=["kind"])
    assert checked(data).taken_blocks > 0


def test_a_table_that_changes_meanwhile_is_scored_again(
    checked: Callable[..., RefreshReport], folder: ParquetInput
) -> None:
    for writes in (25, 60, 90):
        folder.append(25, writes)
        with at_write(writes, lambda: folder.change(1, 0.0, 0, 5), once=True):
            report = checked(folder.data)
        assert (report.state, report.n_rows) == ("published", folder.n_rows)


# -- Precision -----------------------------------------------------------------------------------------------


def test_times_of_an_evening_do_not_stop_a_refresh(
    checked: Callable[..., RefreshReport], tmp_path: Path
) -> None:
    """Seconds of a morning fit in single precision, and those of an evening do not as integers."""
    (tmp_path / "data").mkdir()
    data = str(tmp_path / "data")
    for day, seed in enumerate((2, 4, 1)):
        pq.write_table(table(40, seed).drop_columns(["y"]), f"{data}/{day}.parquet")
        report = checked(data)
        assert (report.state, report.taken_blocks) == ("published", 2 * day)


def test_a_column_of_another_type_does_not_stop_a_refresh(
    checked: Callable[..., RefreshReport], tmp_path: Path
) -> None:
    """All rows are scored again: the types of a table are those that hold the values of all files."""
    (tmp_path / "data").mkdir()
    for day, kind in enumerate((pa.float32(), pa.float64(), pa.float32())):
        rows = table(40, day + 1).drop_columns(["y"])
        path = f"{tmp_path}/data/{day}.parquet"
        pq.write_table(rows.set_column(0, "f0", rows["f0"].cast(kind)), path)
        assert checked(str(tmp_path / "data")).taken_blocks == (0, 0, 4)[day]


# -- Publishing, and other arithmetic ------------------------------------------------------------------------


def damage(label: Path, how: str) -> None:
    if how == "removed":
        label.unlink()
    else:
        label.write_bytes(label.read_bytes()[:-4])


@pytest.mark.parametrize("how", ["removed", "cut"])
def test_a_damaged_run_of_a_part_is_not_published(how: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        pq.write_table(table(40, ord(name)).drop_columns(["y"]), tmp_path / "in" / f"{name}.parquet")
    first = refresh(model, f"{tmp_path}/in/*.parquet", tmp_path / "root")
    pq.write_table(table(40, 3).drop_columns(["y"]), tmp_path / "in" / "b.parquet")
    second = refresh(model, f"{tmp_path}/in/*.parquet", tmp_path / "root")
    label = next((tmp_path / "root/parts/b.parquet/runs").glob("0001-*/scores.zarr/label/c/0"))
    damage(label, how)
    with pytest.raises(IncompleteError, match=r"label/c/0"):
        publish(tmp_path / "root", first.run)
    assert (tmp_path / "root" / "latest").resolve().name == second.run


def test_blocks_of_other_arithmetic_are_not_reused(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, one, root = models["zarr"], INPUTS["zarr"](tmp_path, 100, CHUNK_ROWS), tmp_path / "root"
    here = refresh(model, one.data, root)
    assert refresh(model, one.data, root).state == "unchanged"
    for name in ("dcpred.scoring.planning", "dcpred.refreshing.refresh"):
        monkeypatch.setattr(f"{name}.arithmetic", lambda *_: "numpy")
    monkeypatch.setattr("dcpred_tasks.task_bodies.score_block.check_arithmetic", lambda *_: None)
    report = refresh(model, one.data, root)
    assert (report.state, report.taken_blocks, report.scored_blocks) == ("published", 0, here.n_blocks)
    one.append(CHUNK_ROWS, 3)
    assert refresh(model, one.data, root).taken_blocks == here.n_blocks
    monkeypatch.undo()
