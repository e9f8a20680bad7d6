"""The Delta table that gets the rows of a finished run, in one transaction, and what it holds of them.

A delivery is known by what was delivered: the model, the settings, and the digests of the input of all
blocks. Not by times or names of files: the same rows again are the same delivery. A file in the table is
known by its delivery, its block, a digest of the values of its rows, and one of its bytes.

Guards against two drivers, and against a crash at any moment:

1. Drivers A and B finish the same run. Each copies the files that the table lacks into its folder. Equal
   names have equal bytes. No reader of the table sees them, because its log does not name them.
2. A commits a transaction that adds them, removes files of blocks that a repair changed, and holds the
   delivery as its application.
3. B commits, too. Its view of the table is older than step 2, and a transaction is written only as the next
   version of the one it was made from, whoever wrote it. B opens the table again, and finds the rows of A.
4. A driver that dies before step 2 leaves files that no reader sees, and the same command copies them again.
   One that dies after step 2 leaves a complete transaction, which the same command finds.
5. `delivery.json` in the output is written before step 2: a repair changes values, and then the table must be
   searched for the files of the delivery as it was.

What is in the table is decided by its rows, not by the transaction: others may have restored an earlier
version, deleted or changed rows (`delta_log`).

The package deltalake is imported lazily: it comes with `pip install "dcpred[delta]"`.
"""

import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dcpred.execution.events import record_event
from dcpred.execution.progress import counted, show, show_step
from dcpred.runs.delta_log import DATA, DELIVERY, Delivered, trace
from dcpred.runs.delta_rows import (
    FILES,
    RECORD,
    TAG,
    Delivery,
    Holding,
    State,
    content_of,
    damaged,
    delivery_of,
    held_rows,
    table_schema,
)
from dcpred.runs.ledger import Ledger
from dcpred.version import __version__
from dcpred_tasks.artifacts.block_files import PARQUET, Finding, Kind
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.errors import DataError, IncompleteError, PlanConflictError, optional_package
from dcpred_tasks.storage.addresses import DELTA_LOG, absolute, check_writable, current_options, delta_options
from dcpred_tasks.storage.atomic_files import is_system_file
from dcpred_tasks.storage.digests import digest, digest_json, file_digest, sealed
from dcpred_tasks.storage.place import (
    local_file,
    open_place,
    read_sealed_document,
    stored_digest,
    write_document,
)
from dcpred_tasks.storage.store_requests import Retrying, each_of

STORE_ATTEMPTS = 3  # at opening a table on a store
ATTEMPTS = 20  # at a transaction, while other writers of the table are faster
WAIT_SECONDS = 0.05  # before another attempt, times its number


@dataclass(frozen=True)
class Commitment:
    """The result of a delivery: blocks that were added and replaced, and the version of a Delta table."""

    table: str
    version: int | None
    added: int = 0
    replaced: int = 0


def check_new(address: str, output: str, schema: Any) -> Any:
    """Raise a RefusedError unless a Delta table can get the files of a run: before anything is written.
    Returns the table, None if there is none.

    schema  the columns of the files, a schema of Arrow
    """
    check_writable(address, "a Delta table")
    _check_apart(address, output)
    table = _opened(address)
    if table is not None:
        _check_columns(address, table, schema)
        return table
    _columns_of(address, schema)
    place = open_place(address)
    other = sorted(name for name in place.names("") if name != DELTA_LOG and not is_system_file(name))
    if other:
        raise DataError(
            f"Cannot make a Delta table of {address}: it holds other files ({other[0]}). Name a Delta"
            " table, or a new folder."
        )
    return None


def commit_run(
    ledger: Ledger, *, table: str | None = None, restores: str = "", again: bool = False
) -> Commitment:
    """Make a Delta table hold the rows of a finished run, each once.

    table     its address; None: that of the last delivery, else that of the plan
    restores  fast or full: rows that others removed since are added again, and lost files copied; if full,
              damaged ones, too, by their digests. "": neither
    again     whether the rows are added although the table holds them

    Raises IncompleteError if rows were removed, another writer is always faster, or a file is damaged;
    PlanConflictError if the table holds some of the rows, or changed ones.
    """
    records = {record.block: replace(record, statistics={}, bad_rows=[]) for record in ledger.records()}
    delivery, schema = delivery_of(ledger, records, table), table_schema(ledger)
    opened = check_new(delivery.table, ledger.address, schema) or _created(delivery.table, schema)
    if again:
        delivery = _another(delivery, opened)
    _record(delivery)
    for attempt in range(ATTEMPTS):
        _check_columns(delivery.table, opened, schema)
        holding = held_rows(delivery, opened)
        _check_holding(delivery, holding, restores=bool(restores))
        if not delivery.recorded and not again:
            _check_other_data(delivery, holding, opened)
        broken = _restored(delivery, holding, full=restores == "full") if restores else set()
        gone, old = holding.blocks(State.GONE), sorted({*holding.blocks(State.OLD), *broken})
        if not gone and not old:
            show(f"the Delta table {delivery.table} holds this run already")
            return Commitment(delivery.table, opened.version())
        added = list(_placed(delivery, sorted({*gone, *old})))
        removed = [file.name for block in old for file in holding.files.get(block, [])]
        names = {action.path for action in added}
        if _added(delivery, opened, added, [name for name in removed if name not in names]):
            n_files = counted(len(added), "file", "files")
            show(f"committed {n_files} to the Delta table {delivery.table}")
            record_event(
                "delta_committed",
                output=ledger.address,
                table=delivery.table,
                run_hash=ledger.run.run,
            )
            return Commitment(delivery.table, opened.version() + 1, len(gone), len(old))
        time.sleep(random.uniform(0, WAIT_SECONDS * attempt))
        opened = _opened(delivery.table) or _created(delivery.table, schema)
    raise IncompleteError(
        f"Cannot commit the run to {delivery.table}: other writers were faster {ATTEMPTS} times. Run the same"
        " command again."
    )


def find_wrong(ledger: Ledger, records: Mapping[int, CommitRecord], *, full: bool) -> list[Finding]:
    """What a Delta table lacks of a finished run.

    full  also compares the digests of the files in the folder of the table
    """
    delivery = delivery_of(ledger, records)
    opened = _opened(delivery.table)
    holding = Holding(dict.fromkeys(records, State.GONE), begun=False)
    if opened is not None:
        holding = held_rows(delivery, opened)
    findings = [Finding(Kind.DELTA, None, delivery.table, why) for why in _reasons(delivery, holding)]
    for name, why in _broken(delivery, holding, full=full):
        findings.append(Finding(Kind.DELTA, name.block, f"{delivery.table}/{name.name}", why))
    return findings


def _reasons(delivery: Delivery, holding: Holding) -> Iterator[str]:
    """What is wrong with the rows in the table."""
    gone, old, doubtful = map(holding.blocks, (State.GONE, State.OLD, State.DOUBTFUL))
    if gone and not holding.begun:
        yield f"it lacks this run; run {delivery.command()}"
    elif gone:
        blocks = counted(len(gone), "block", "blocks")
        why = holding.reason or "they were removed"
        yield f"it lacks {blocks} of {len(holding.states):,}: {why}; {delivery.command()} adds them again"
    if old:
        blocks = counted(len(old), "block", "blocks")
        yield f"it holds {blocks} as before a repair, or twice; {delivery.command()} replaces them"
    if doubtful:
        yield f"{_doubt(holding, doubtful)}; {_remedy(delivery)}"


def _doubt(holding: Holding, blocks: list[int]) -> str:
    more = f": {holding.reason}" if holding.reason else ""
    return (
        f"it holds only some rows of {counted(len(blocks), 'block', 'blocks')} (the first is block"
        f" {blocks[0]}), changed ones, or rows that cannot be distinguished from them{more}"
    )


def _remedy(delivery: Delivery) -> str:
    return (
        f"delete what is left of them from the table, for example by their ids, and run {delivery.command()};"
        f" {delivery.command(' --again')} adds all rows beside them"
    )


def _check_holding(delivery: Delivery, holding: Holding, *, restores: bool) -> None:
    """Raise an error for rows that a commit could double, or that others removed."""
    if doubtful := holding.blocks(State.DOUBTFUL):
        raise PlanConflictError(
            f"Cannot commit {delivery.run.output} to the Delta table {delivery.table}:"
            f" {_doubt(holding, doubtful)}. Nothing was committed. To have them there once,"
            f" {_remedy(delivery)}."
        )
    gone = holding.blocks(State.GONE)
    if gone and holding.begun and not restores:
        raise IncompleteError(
            f"Cannot find all rows of {delivery.run.output} in the Delta table {delivery.table}: they were"
            f" committed before, and {holding.reason or 'removed since'}. If they should be there, run"
            f" {delivery.command()} (dcpred.deliver)."
        )


def _check_other_data(delivery: Delivery, holding: Holding, table: Any) -> None:
    """Raise PlanConflictError for rows without ids that another input delivered: they may be other rows."""
    if delivery.run.ids or not holding.begun:
        return
    before = trace(delivery.place, delivery.id, table.version()).data
    if before and before != _data(delivery.run):
        raise PlanConflictError(
            f"Cannot commit {delivery.run.output} to the Delta table {delivery.table}: it holds equal rows of"
            " the same model, from another input, and without ids they may be the same. If they are others,"
            f" run {delivery.command(' --again')}."
        )


def _another(delivery: Delivery, table: Any) -> Delivery:
    """A delivery of the same rows beside those that the table holds; one that was begun is finished."""
    begun = delivery.id != content_of(delivery.run, delivery.records)
    if begun and table.transaction_version(delivery.id) is None:
        return delivery
    return replace(delivery, id=digest_json({"again": delivery.id, "attempt": secrets.token_hex(8)}))


def _record(delivery: Delivery) -> None:
    """Write `delivery.json` in the output."""
    record = sealed({"delivery": delivery.id, "table": delivery.table})
    if read_sealed_document(delivery.run.place, RECORD) != record:
        write_document(delivery.run.place, RECORD, record)


def _data(run: ScoreRun) -> str:
    """Identifies the address of an input, without naming it in the table."""
    return digest(str(run.x).encode())


# -- Files ---------------------------------------------------------------------------------------------------


def _broken(delivery: Delivery, holding: Holding, *, full: bool) -> Iterator[tuple[Delivered, str]]:
    """Files in the folder of the table that are missing or damaged, with the reason."""
    names = {file.name: file for files in holding.files.values() for file in files}
    there = delivery.place.present(names)
    yield from ((names[name], "it is missing") for name in sorted(names.keys() - there))
    if full:
        for name, now in each_of(delivery.place, partial(stored_digest, delivery.place), sorted(there)):
            if not (now or "").startswith(names[name].bytes):
                yield names[name], "its bytes are not what was written"


def _restored(delivery: Delivery, holding: Holding, *, full: bool) -> set[int]:
    """Copy missing and damaged files into the folder of the table again. Returns the blocks of which the
    output has other bytes now: their files must be replaced.
    """
    others = set()
    for file, _ in list(_broken(delivery, holding, full=full)):
        with _file(delivery, file.block) as (path, name):
            if name == file.name:
                Retrying()(partial(delivery.place.send, name, path))
            else:
                others.add(file.block)
    return others


@contextmanager
def _file(delivery: Delivery, block: int) -> Iterator[tuple[Path, str]]:
    """The file of a block with the types of Delta, and its name in the table. Raises IncompleteError."""
    from dcpred_tasks.tables.block_tables import write_for_delta

    run, record = delivery.run, delivery.records[block]
    with local_file(run.place, FILES.file(block)) as path, TemporaryDirectory() as folder:
        digested = file_digest(path) if path is not None else ""
        if path is None or digested != record.files.get(PARQUET, {}).get("digest"):
            raise damaged(delivery.ledger, FILES.file(block))
        if run.delta is None:
            copy = Path(folder) / "file"
            write_for_delta(path, copy)
            path, digested = copy, file_digest(copy)
        yield path, Delivered(delivery.id, block, delivery.values(block), digested[:TAG]).name


def _placed(delivery: Delivery, blocks: list[int]) -> Iterator[Any]:
    """Copy files into the folder of the table. Yields what a transaction adds."""
    add = _deltalake().transaction.AddAction
    with show_step("copying to the Delta table", len(blocks), "files") as advance:
        for block, (name, size) in each_of(delivery.place, partial(_place, delivery), blocks):
            record = delivery.records[block]
            stats = json.dumps({"numRecords": record.stop - record.start})
            yield add(name, size, {}, int(time.time() * 1000), True, stats)
            advance(1)


def _place(delivery: Delivery, block: int) -> tuple[str, int]:
    """Copy the file of a block. Returns its name and size. Raises IncompleteError if it is damaged."""
    with _file(delivery, block) as (path, name):
        Retrying()(partial(delivery.place.send, name, path))
        return name, path.stat().st_size


# -- The table -----------------------------------------------------------------------------------------------


def _deltalake() -> Any:
    """The package. Raises SettingsError where it is not installed."""
    with optional_package("use a Delta table", "delta"):
        import deltalake.exceptions
        import deltalake.transaction

    return deltalake


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _opened(address: str) -> Any:
    """The table as it is now; None if there is none. Raises DataError for a damaged one, IncompleteError
    where a store does not answer.
    """
    package, errors = _deltalake(), _deltalake().exceptions
    for _ in range(STORE_ATTEMPTS if open_place(address).many_at_once else 1):
        try:
            return package.DeltaTable(address, storage_options=delta_options(address, current_options()))
        except errors.TableNotFoundError:
            return None
        except (errors.DeltaError, OSError) as error:
            doubt = error
    if open_place(address).many_at_once:
        raise _failed("open", address, doubt)
    raise DataError(
        f"Cannot open the Delta table {address}: {_first_line(doubt)}. Restore it, or name another."
    )


def _failed(doing: str, address: str, error: Exception) -> IncompleteError:
    return IncompleteError(
        f"Cannot {doing} the Delta table {address}: {_first_line(error)}. Run the same command again."
    )


def _created(address: str, schema: Any) -> Any:
    """A new table, or the one that another driver made meanwhile."""
    open_place(address).make_folder("")
    try:
        _deltalake().DeltaTable.create(
            address,
            schema=schema,
            mode="ignore",
            storage_options=delta_options(address, current_options()),
            # As the first version, or not at all: a second driver must not create it in the first one's.
            commit_properties=_deltalake().transaction.CommitProperties(max_commit_retries=0),
        )
    except (_deltalake().exceptions.DeltaError, OSError) as error:
        doubt: Exception | None = error
    else:
        doubt = None
    table = _opened(address)
    if table is None:
        raise _failed("create", address, doubt or OSError("it is missing"))
    return table


def _added(delivery: Delivery, table: Any, added: list[Any], removed: list[str]) -> bool:
    """Whether the transaction was committed; False if another writer was faster."""
    package, errors = _deltalake().transaction, _deltalake().exceptions
    run, number = delivery.run, (table.transaction_version(delivery.id) or 0) + 1
    properties = package.CommitProperties(
        app_transactions=[package.Transaction(app_id=delivery.id, version=number)],
        # A later version is refused: deltalake would not compare files that both remove.
        max_commit_retries=0,
        custom_metadata={
            "dcpred_run": run.run,
            "dcpred_model": run.model_hash,
            "dcpred_version": __version__,
            DELIVERY: delivery.id,
            DATA: _data(run),
        },
    )
    now = int(time.time() * 1000)
    taken = [package.RemoveAction(name, True, now, partition_values={}) for name in removed]
    try:
        table.create_write_transaction(
            [*taken, *added], "append", table.schema(), commit_properties=properties
        )
    except errors.CommitFailedError:
        return False
    except (errors.DeltaError, OSError) as error:
        # The next call finds the transaction if this one was written, although the reply was lost.
        raise _failed("commit to", delivery.table, error) from error
    return True


# -- Checks --------------------------------------------------------------------------------------------------


def _check_apart(address: str, output: str) -> None:
    """Raise DataError if the table and the output would lie inside each other."""
    table = absolute(address)
    if f"{table}/".startswith(f"{output}/") or f"{output}/".startswith(f"{table}/"):
        raise DataError(
            f"Cannot commit {output} to the Delta table {table}: one is inside the other. Choose a"
            " path outside."
        )


def _columns_of(address: str, schema: Any) -> dict[str, str]:
    """The columns of a schema with their types in Delta. Raises DataError for a type that Delta lacks."""
    try:
        schema_there = _deltalake().Schema.from_arrow(schema)
    except Exception as error:
        raise DataError(
            f"Cannot write to the Delta table {address}: {_first_line(error)}. Name other ids, or convert"
            " that column."
        ) from None
    return {field.name: getattr(field.type, "type", str(field.type)) for field in schema_there.fields}


def _check_columns(address: str, table: Any, schema: Any) -> None:
    """Raise DataError unless a table has the columns of the files, and takes files without further steps."""
    wanted = _columns_of(address, schema)
    fields = table.schema().fields
    existing = {field.name: getattr(field.type, "type", str(field.type)) for field in fields}
    settings = table.metadata().configuration
    limits = [name for name in settings if name.startswith("delta.constraints.")]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        limits.append("delta.columnMapping.mode")
    differ = [name for name in (*wanted, *existing) if wanted.get(name) != existing.get(name)]
    never_null = [field.name for field in fields if not field.nullable]
    if differ:
        there, here = (kinds.get(differ[0], "missing") for kinds in (existing, wanted))
        so = f"column {differ[0]!r} is {there} there and {here} in the run"
    elif never_null:
        so = f"its column {never_null[0]!r} is NOT NULL"
    elif columns := table.metadata().partition_columns:
        so = f"it is partitioned by {', '.join(columns)}"
    elif limits:
        so = f"it has the property {limits[0]}"
    else:
        return
    raise DataError(
        f"Cannot write to the Delta table {address}: {so}. Name a table with the columns"
        f" {', '.join(f'{column} {kind}' for column, kind in wanted.items())}, or a new folder."
    )
