"""A finished output reaches its Delta table once: whatever happens to its input, its files and the table."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

import dcpred
from dcpred.cli import main
from dcpred.runs import delta_rows, delta_tables
from dcpred.runs.ledger import open_ledger
from dcpred.scoring import deliver as delivering
from dcpred.scoring import planning
from dcpred_tasks.artifacts.block_files import Kind
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError
from dcpred_tasks.tables.block_tables import digest_ids
from dcpred_tasks.tables.row_counts import Occurrence, compare_rows
from support.pools import inline

N_ROWS = 300


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Three blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcpred.execution.block_plan.MIN_BLOCK_ROWS", 1)
        patch.setattr("dcpred.execution.block_plan.BLOCKS", 3)
        yield


def orders(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, N_ROWS))
    return pa.table({"a": a, "b": b, "order": np.arange(N_ROWS)})


def write(table: pa.Table, path: Path) -> Path:
    """Without statistics of values, and without compression: other values have the same size and footer."""
    pq.write_table(
        table, path, row_group_size=100, compression="none", use_dictionary=False, write_statistics=["order"]
    )
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    known = orders(0)
    late = pa.array(np.where(known["a"].to_numpy() > known["b"].to_numpy(), "yes", "no"))
    pq.write_table(known.append_column("late", late), folder / "known.parquet")
    settings = {"n_leaves": 1, "landmarks": 4}
    dcpred.train(folder / "known.parquet", folder / "model", y="late", id=["order"], settings=settings)
    return folder / "model"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write(orders(1), tmp_path / "new.parquet")


def score(model: Path, new: Path, output: str, **more: Any) -> Any:
    options = {"delta": new.parent / "table", "id": ["order"]} | more
    return dcpred.score(model, new, new.parent / output, **options)


def n_there(folder: Path, table: str = "table") -> int:
    return DeltaTable(folder / table).to_pyarrow_table().num_rows


def touch(path: Path) -> None:
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 10**9))


def change_a_value(path: Path) -> None:
    """One value in the middle, which leaves size and footer as they are."""
    before = path.read_bytes()
    table = pq.read_table(path)
    values = table["a"].to_numpy().copy()
    values[150] = 0.123
    write(table.set_column(0, "a", pa.array(values)), path)
    after = path.read_bytes()
    length = int.from_bytes(before[-8:-4], "little") + 8
    assert len(before) == len(after)
    assert before != after
    assert before[-length:] == after[-length:]
    touch(path)


# -- The input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["other", "copied/new.parquet"])
def test_rows_with_other_times_are_one_delivery(model: Path, new: Path, tmp_path: Path, place: str) -> None:
    score(model, new, "one")
    touch(new)
    if place != "other":
        (tmp_path / "copied").mkdir()
        shutil.copy(new, tmp_path / place)
    source = new if place == "other" else tmp_path / place
    dcpred.score(model, source, tmp_path / "two", delta=tmp_path / "table", id=["order"])
    assert n_there(tmp_path) == N_ROWS
    assert open_ledger(tmp_path / "one").run.run != open_ledger(tmp_path / "two").run.run
    assert dcpred.verify(tmp_path / "one").ok
    assert dcpred.verify(tmp_path / "two").ok


@pytest.mark.parametrize("options", [{}, {"delta": None, "id": []}], ids=["delta", "alone"])
def test_a_touched_table_resumes(
    model: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    score(model, new, "out", **options)
    for path in (tmp_path / "out/manifest.json", tmp_path / "out/blocks/000001.json"):
        path.unlink()
    touch(new)
    assert score(model, new, "out", **options).scored_blocks == 1
    touch(new)
    assert score(model, new, "out", **options).scored_blocks == 0
    touch(new)
    assert dcpred.verify(tmp_path / "out", "sample").ok


@pytest.mark.parametrize("options", [{}, {"delta": None, "id": []}], ids=["delta", "alone"])
def test_changed_rows_behind_an_equal_footer_are_another_plan(
    model: Path, new: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    score(model, new, "out", **options)
    change_a_value(new)
    with pytest.raises(PlanConflictError, match="it differs in the data"):
        score(model, new, "out", **options)
    with pytest.raises(
        PlanConflictError, match=r"other rows than the scored ones \(rows 100 to 200 differ\)"
    ):
        dcpred.repair(
            model, new, tmp_path / "out", **({"delta": tmp_path / "table", "id": ["order"]} | options)
        )
    if not options:
        score(model, new, "other")
        assert n_there(tmp_path) == 2 * N_ROWS


def test_equal_rows_without_ids_from_another_input_are_asked_about(
    model: Path, new: Path, tmp_path: Path
) -> None:
    bare = pq.read_table(new).select(["a", "b"])
    for name in ("monday", "tuesday"):
        pq.write_table(bare, tmp_path / f"{name}.parquet", row_group_size=100)
    score(model, tmp_path / "monday.parquet", "one", id=[])
    with pytest.raises(PlanConflictError, match="from another input, and without ids they may be the same"):
        score(model, tmp_path / "tuesday.parquet", "two", id=[])
    assert n_there(tmp_path) == N_ROWS
    dcpred.deliver(tmp_path / "two", again=True)
    assert n_there(tmp_path) == 2 * N_ROWS
    assert dcpred.deliver(tmp_path / "two").added_blocks == 0
    assert dcpred.verify(tmp_path / "two").ok


def test_digests_of_ids_tell_them_apart() -> None:
    columns = [
        pa.array(["ab", "c"]),
        pa.array(["a", "bc"]),
        pa.array(["abc", None]),
        pa.array(["abc", ""]),
        pa.array([1, 2]),
        pa.array([1, None]),
        pa.array([1.0, 2.0]),
        pa.array([1, 2], pa.decimal128(3)),
        pa.array([1, 2], pa.timestamp("s")),
    ]
    digests: list[str] = []
    for column in columns:
        digests.append(digest_ids({"id": column}))
        again = pa.concat_arrays([column.slice(1), column]).slice(1)
        assert digest_ids({"id": again}) == digests[-1]
    assert len({*digests}) == len(columns)


# -- Delivered by hand ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


def killed(*args: Any, **more: Any) -> Any:
    raise Killed


def test_a_finished_output_is_delivered_without_input_and_model(
    model: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between the manifest and the commit."""
    copy = shutil.copytree(model, tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr("dcpred.scoring.whole_run.deliver_finished", killed)
        with pytest.raises(Killed):
            score(copy, new, "out")
    new.unlink()
    shutil.rmtree(copy)
    found = dcpred.verify(tmp_path / "out")
    assert (found.ok, found.in_delta) == (False, False)
    assert f"run `dcpred deliver {tmp_path / 'out'}`" in found.findings[0].sentence
    report = dcpred.deliver(tmp_path / "out")
    assert (report.added_blocks, report.replaced_blocks, report.version) == (3, 0, 1)
    assert n_there(tmp_path) == report.n_rows == N_ROWS
    assert dcpred.verify(tmp_path / "out").ok
    assert dcpred.deliver(tmp_path / "out").added_blocks == 0


def removed(table: Path) -> None:
    DeltaTable(table).delete()


def restored(table: Path) -> None:
    DeltaTable(table).restore(0)


def overwritten(table: Path) -> None:
    rows = DeltaTable(table).to_pyarrow_table().slice(0, 2)
    write_deltalake(table, rows.set_column(0, "order", pa.array([901, 902])), mode="overwrite")


def compacted_and_removed(table: Path) -> None:
    DeltaTable(table).optimize.compact()
    DeltaTable(table).delete("order >= 0")


@pytest.mark.parametrize(
    ("lose", "mend"),
    [
        (removed, "deliver"),
        (restored, "repair"),
        (overwritten, "another folder"),
        (compacted_and_removed, "deliver"),
    ],
)
def test_rows_that_others_removed_are_reported_and_delivered_on_request(
    model: Path, new: Path, tmp_path: Path, lose: Any, mend: str
) -> None:
    score(model, new, "out")
    lose(tmp_path / "table")
    left = n_there(tmp_path)
    assert not dcpred.verify(tmp_path / "out").in_delta
    with pytest.raises(IncompleteError, match=r"removed rows of it .* run `dcpred deliver"):
        score(model, new, "out")
    assert n_there(tmp_path) == left
    if mend == "repair":
        dcpred.repair(model, new, tmp_path / "out", delta=tmp_path / "table", id=["order"])
    elif mend == "deliver":
        assert dcpred.deliver(tmp_path / "out").added_blocks == 3
    else:
        with pytest.raises(IncompleteError, match="committed before"):
            score(model, new, "two")
        dcpred.deliver(tmp_path / "two")
    assert n_there(tmp_path) == left + N_ROWS
    assert dcpred.verify(tmp_path / "out").ok


def test_rows_of_which_some_are_there_are_not_doubled(model: Path, new: Path, tmp_path: Path) -> None:
    score(model, new, "out")
    DeltaTable(tmp_path / "table").optimize.compact()
    DeltaTable(tmp_path / "table").delete("order >= 150 and order < 220")
    found = dcpred.verify(tmp_path / "out")
    assert not found.in_delta
    assert "it holds only some rows of 2 blocks (the first is block 1)" in found.findings[0].sentence
    with pytest.raises(PlanConflictError, match="Nothing was committed"):
        dcpred.deliver(tmp_path / "out")
    # The advice works.
    DeltaTable(tmp_path / "table").delete("order >= 100 and order < 300")
    assert dcpred.deliver(tmp_path / "out").added_blocks == 2
    assert sorted(DeltaTable(tmp_path / "table").to_pyarrow_table()["order"].to_pylist()) == list(
        range(N_ROWS)
    )
    assert dcpred.verify(tmp_path / "out").ok


def test_rows_are_added_beside_others_where_that_is_asked_for(
    model: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(model, new, "out")
    DeltaTable(tmp_path / "table").delete("order < 50")
    with monkeypatch.context() as patch:
        patch.setattr(delta_tables, "_added", killed)
        with pytest.raises(Killed):
            dcpred.deliver(tmp_path / "out", again=True)
    for _ in range(2):
        dcpred.deliver(tmp_path / "out", again=DeltaTable(tmp_path / "table").version() < 3)
        assert n_there(tmp_path) == 2 * N_ROWS - 50
    assert dcpred.verify(tmp_path / "out").ok


def test_a_file_with_a_deletion_vector_does_not_count(
    model: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(model, new, "out")
    name = Path(DeltaTable(tmp_path / "table").file_uris()[0]).name
    monkeypatch.setattr(delta_rows, "_cut_files", lambda table: {name})
    assert not dcpred.verify(tmp_path / "out").in_delta
    with pytest.raises(PlanConflictError, match="Nothing was committed"):
        dcpred.deliver(tmp_path / "out")


def clean_log(table: Path) -> None:
    """A checkpoint, without the log before it."""
    version = DeltaTable(table).version()
    DeltaTable(table).create_checkpoint()
    for number in range(version):
        (table / f"_delta_log/{number:020d}.json").unlink(missing_ok=True)


def test_a_cleaned_log_leaves_it_to_the_rows(model: Path, new: Path, tmp_path: Path) -> None:
    score(model, new, "out")
    table = DeltaTable(tmp_path / "table")
    table.optimize.compact()
    clean_log(tmp_path / "table")
    assert dcpred.verify(tmp_path / "out").ok
    changed = DeltaTable(tmp_path / "table").to_pyarrow_table()
    order = pc.if_else(pc.equal(changed["order"], 7), 700, changed["order"])
    write_deltalake(tmp_path / "table", changed.set_column(0, "order", order), mode="overwrite")
    clean_log(tmp_path / "table")
    assert not dcpred.verify(tmp_path / "out").in_delta
    write_deltalake(tmp_path / "table", changed, mode="overwrite")
    clean_log(tmp_path / "table")
    assert dcpred.verify(tmp_path / "out").ok
    write_deltalake(tmp_path / "table", changed.slice(5, 1), mode="append")
    clean_log(tmp_path / "table")
    found = dcpred.verify(tmp_path / "out")  # One row is there twice.
    assert not found.in_delta
    assert "rows that cannot be distinguished from them" in found.findings[0].sentence


@pytest.mark.parametrize("source", ["a table", "an import"])
def test_an_output_without_tables_is_delivered(model: Path, new: Path, tmp_path: Path, source: str) -> None:
    """It holds then what it had held if it was scored into the table."""
    data = new
    if source == "an import":
        data = tmp_path / "new.zarr"
        dcpred.import_data(new, data, like=model, id=["order"], chunk_rows=100)
    dcpred.score(model, data, tmp_path / "plain")
    assert dcpred.verify(tmp_path / "plain").in_delta is None
    report = dcpred.deliver(tmp_path / "plain", tmp_path / "table", id=["order"])
    assert (report.added_blocks, report.n_rows) == (3, N_ROWS)
    assert dcpred.verify(tmp_path / "plain", "full").in_delta
    dcpred.score(model, data, tmp_path / "direct", delta=tmp_path / "table", id=["order"])
    assert n_there(tmp_path) == N_ROWS
    folders = [tmp_path / name / "scores.parquet" for name in ("plain", "direct")]
    assert pq.read_table(folders[0]).equals(pq.read_table(folders[1]))


def test_a_delivery_to_a_folder(model: Path, new: Path, tmp_path: Path) -> None:
    dcpred.score(model, new, tmp_path / "plain")
    report = dcpred.deliver(tmp_path / "plain", id=["order"])
    assert (report.table, report.version) == (str(tmp_path / "plain/scores.parquet"), None)
    assert report.added_blocks == 3
    score(model, new, "with", delta=None, parquet=True)
    tables = [pq.read_table(tmp_path / name / "scores.parquet") for name in ("plain", "with")]
    assert tables[0].equals(tables[1])
    assert dcpred.deliver(tmp_path / "with").added_blocks == 0
    with pytest.raises(PlanConflictError, match="it has some with order"):
        dcpred.deliver(tmp_path / "plain", id=["a"])


def test_ids_come_from_the_input_as_it_was(model: Path, new: Path, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    dcpred.score(model, new, out)
    before = new.read_bytes()
    write(orders(2), new)
    with pytest.raises(DataError, match="changed since its rows were scored"):
        dcpred.deliver(out, tmp_path / "table", id=["order"])
    new.unlink()
    with pytest.raises(DataError, match="Restore it, or deliver without ids"):
        dcpred.deliver(out, tmp_path / "table", id=["order"])
    assert not (out / "scores.parquet").exists()
    assert not (out / "tables.json").exists()
    assert dcpred.deliver(out, tmp_path / "table").added_blocks == 3
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert sorted(rows["row"].to_pylist()) == list(range(N_ROWS))
    assert dcpred.verify(out, "full").in_delta
    new.write_bytes(before)
    assert dcpred.deliver(out).added_blocks == 0


def test_a_delivery_that_was_killed_goes_on(
    model: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real = tmp_path / "plain", delivering.add_tables
    dcpred.score(model, new, out)

    def dying(run: Any, record: Any, reads: bool) -> Any:
        return killed() if record.block == 1 else real(run, record, reads)

    with monkeypatch.context() as patch:
        patch.setattr(delivering, "add_tables", dying)
        patch.setattr("dcpred.scoring.deliver.default_pool", lambda *_, **__: inline)
        with pytest.raises(Killed):
            dcpred.deliver(out, tmp_path / "table", id=["order"])
    report = dcpred.verify(out)
    assert (report.ok, report.in_delta) == (False, False)
    assert [f.block for f in report.findings if f.kind == Kind.MISSING_TABLE] == [1, 2]
    assert dcpred.export(out, tmp_path / "rows.csv").n_written == N_ROWS
    assert dcpred.deliver(out).added_blocks == 3
    assert dcpred.verify(out, "full").in_delta


@pytest.mark.parametrize("left", [3, 2])
def test_outputs_with_tables_by_earlier_versions(
    model: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """The hash of their plan was also that of their tables."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        now = planning.run_hash
        patch.setattr(planning, "run_hash", lambda X, run: now(X, run)[::-1])
        score(model, new, "out")
    earlier = open_ledger(out).run.run
    assert dcpred.verify(out, "full").in_delta
    if left < 3:
        (out / "manifest.json").unlink()
        (out / "blocks/000001.json").unlink()
    assert score(model, new, "out").scored_blocks == 3 - left
    assert score(model, new, "out", delta=None, id=[]).scored_blocks == 0
    (out / "scores.parquet/000002.parquet").unlink()
    report = dcpred.repair(model, new, out, delta=tmp_path / "table", id=["order"])
    assert (report.scored_blocks, report.manifest["input_changed"]) == (1, False)
    assert open_ledger(out).run.run == earlier
    assert dcpred.verify(out, "full").in_delta
    assert n_there(tmp_path) == N_ROWS
    write(orders(2), new)
    with pytest.raises(PlanConflictError, match="it belongs to another plan"):
        score(model, new, "out")


def test_a_delivery_into_a_named_table(model: Path, new: Path, tmp_path: Path) -> None:
    """From then on that is the table of the output."""
    score(model, new, "out", delta=None, parquet=True)
    assert dcpred.verify(tmp_path / "out").in_delta is None
    dcpred.deliver(tmp_path / "out", tmp_path / "other")
    assert n_there(tmp_path, "other") == N_ROWS
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert dcpred.status(tmp_path / "copy").delta == str(tmp_path / "other")
    assert DeltaTable(tmp_path / "other").to_pyarrow_table()["status"].type == pa.int16()
    assert dcpred.verify(tmp_path / "out").ok
    removed(tmp_path / "other")
    assert not dcpred.verify(tmp_path / "out").ok
    dcpred.repair(model, new, tmp_path / "out", parquet=True, id=["order"])
    assert n_there(tmp_path, "other") == N_ROWS


def test_outputs_that_cannot_be_delivered_are_refused(model: Path, new: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanConflictError, match="Cannot find an output"):
        dcpred.deliver(tmp_path / "nothing", tmp_path / "table")
    score(model, new, "out", delta=None, parquet=True)
    with pytest.raises(DataError, match="one is inside the other"):
        dcpred.deliver(tmp_path / "out", tmp_path / "out/table")
    with pytest.raises(DataError, match="only reads from servers"):
        dcpred.deliver(tmp_path / "out", "https://host/t")
    (tmp_path / "out/scores.parquet/000001.parquet").unlink()
    with pytest.raises(IncompleteError, match="is modified or damaged"):
        dcpred.deliver(tmp_path / "out", tmp_path / "table")
    (tmp_path / "out/manifest.json").unlink()
    with pytest.raises(IncompleteError, match="its run is not finished"):
        dcpred.deliver(tmp_path / "out", tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_the_command(model: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcpred.execution.pools.connect", lambda *_, **__: inline())
    score(model, new, "out")
    removed(tmp_path / "table")
    words = ["score", str(model), str(new), str(tmp_path / "out"), "--id", "order"]
    done = CliRunner().invoke(main, [*words, "--delta", str(tmp_path / "table"), "--quiet"])
    assert done.exit_code == 4
    assert "run `dcpred deliver" in done.output
    done = CliRunner().invoke(main, ["deliver", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code == 0, done.output
    assert "300; 3 blocks added" in done.output
    done = CliRunner().invoke(main, ["deliver", str(tmp_path / "out"), str(tmp_path / "table"), "--quiet"])
    assert "the table holds them already" in done.output


# -- Counted rows --------------------------------------------------------------------------------------------


def test_rows_are_counted_as_often_as_they_occur() -> None:
    values = {"i": [1, 1, 2], "t": ["a", "a", None], "f": pa.array([0.5, 0.5, float("nan")], pa.float32())}
    rows = pa.table(values)
    other = pa.table({**values, "i": [3, 4, 5]})

    def compared(*pieces: pa.Table) -> dict[int, Occurrence]:
        return compare_rows([(0, rows, True), (1, other, False)], lambda: iter(pieces))

    elsewhere = Occurrence(as_wanted=True, nowhere=True)
    exact = Occurrence(as_wanted=True, nowhere=False)
    wrong = Occurrence(as_wanted=False, nowhere=False)
    assert compared(rows.slice(1), rows.slice(0, 1)) == {0: exact, 1: elsewhere}
    assert compared(rows.slice(1)) == {0: wrong, 1: elsewhere}
    assert compared(rows, rows.slice(2)) == {0: wrong, 1: elsewhere}
    assert compared(rows, other.slice(2)) == {0: exact, 1: wrong}
    assert compared() == {0: Occurrence(as_wanted=False, nowhere=True), 1: elsewhere}


# -- Earlier versions ----------------------------------------------------------------------------------------


def test_what_an_earlier_version_delivered_is_there(model: Path, new: Path, tmp_path: Path) -> None:
    """It named the run, and the bytes of a file alone, and kept no record of the delivery."""
    with pytest.MonkeyPatch.context() as patch:
        named = property(lambda file: f"{file.delivery}-{file.block:06d}-{file.bytes}.parquet")
        patch.setattr(delta_rows.Delivered, "name", named)
        patch.setattr(delta_rows, "content_of", lambda run, records: run.run)
        patch.setattr(delta_tables, "_record", lambda delivery: None)
        score(model, new, "scores")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_rows, "content_of", lambda run, records: run.run)  # Its records lack the input.
        assert dcpred.verify(tmp_path / "scores").ok
        score(model, new, "scores")
        assert dcpred.deliver(tmp_path / "scores").added_blocks == 0
    assert n_there(tmp_path) == N_ROWS
