"""The Delta table that gets the Parquet files of a finished run, in one transaction.

Guards against two drivers, and against a crash at any moment:

1. Drivers A and B finish the same run. Each copies the files of all blocks into the folder of the table.
   Names are made of the run, the block and the digest: both write the same bytes to the same names. No reader
   of the table sees them, because its log does not name them.
2. A commits a transaction that adds all files, and that holds the hash of the run as its application.
3. B commits, too. Its view of the table is older than step 2, and Delta refuses a second transaction of one
   application. B opens the table again, finds the transaction of A, and writes nothing.
4. A driver that dies before step 2 leaves files that no reader sees, and the same command copies them again.
   One that dies after step 2 leaves a complete transaction, which the same command finds.

The package deltalake is imported lazily: it comes with `pip install "dcpred[delta]"`.
"""

import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from dcpred.execution.events import record_event
from dcpred.execution.progress import Reporter, counted
from dcpred.runs.ledger import Ledger, each_of
from dcpred.version import __version__
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.errors import DataError, IncompleteError, SettingsError
from dcpred_tasks.storage.addresses import DELTA_LOG, absolute, check_writable, current_options, delta_options
from dcpred_tasks.storage.atomic_files import is_system_file
from dcpred_tasks.storage.digests import file_digest
from dcpred_tasks.storage.place import Place, local_file, open_place, stored_digest
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.task_bodies.verify_block import Finding, Kind

STORE_ATTEMPTS = 3  # at opening a table on a store
ATTEMPTS = 20  # at a transaction, while other writers of the table are faster
TRANSACTION_VERSION = 1  # Delta takes a run for an application, which has one transaction


def check_table(run: ScoreRun, schema: Any) -> None:
    """Raise a RefusedError unless the Delta table of a run can get its files: before anything is written.

    schema  the columns of the files, a schema of Arrow
    """
    assert run.delta is not None
    check_writable(run.delta, "a Delta table")
    _check_apart(run)
    table = _opened(run.delta)
    if table is not None:
        _check_columns(run.delta, table, schema)
        return
    _columns_of(run.delta, schema)
    place = open_place(run.delta)
    other = sorted(name for name in place.names("") if name != DELTA_LOG and not is_system_file(name))
    if other:
        raise DataError(
            f"Cannot make a Delta table of {run.delta}: it holds other files ({other[0]}). Name a Delta"
            " table, or a new folder."
        )


def commit_run(ledger: Ledger, schema: Any, say: Reporter) -> None:
    """Commit the files of a finished run to its Delta table, unless the table has them. Raises
    IncompleteError if another writer is always faster, or a file is damaged.
    """
    run = ledger.run
    if run.delta is None:
        return
    table = _opened(run.delta) or _created(run.delta, schema)
    if _is_committed(table, run):
        say.say(f"the Delta table {run.delta} holds this run already")
        return
    added = list(_placed(ledger, say))
    for _ in range(ATTEMPTS):
        _check_columns(run.delta, table, schema)
        if _added(table, run, added):
            n_files = counted(len(added), "file", "files")
            say.say(f"committed {n_files} to the Delta table {run.delta}")
            record_event("delta_committed", output=run.output, table=run.delta, run_hash=run.run)
            return
        table = _opened(run.delta) or _created(run.delta, schema)
        # Of this table as it is read here: Delta compares the next attempt with what came later.
        if _is_committed(table, run):
            return
    raise IncompleteError(
        f"Cannot commit the run to {run.delta}: other writers were faster {ATTEMPTS} times. Run the same"
        " command again."
    )


def find_wrong(ledger: Ledger, records: Mapping[int, CommitRecord], *, full: bool) -> list[Finding]:
    """What a Delta table lacks of a finished run. Files that the table replaced since are not compared, for
    example after it was compacted.

    full  also compares the digests of the files in the folder of the table
    """
    run = ledger.run
    assert run.delta is not None
    table = _opened(run.delta)
    if table is None or not _is_committed(table, run):
        why = "it lacks this run; run the same `dcpred score` again"
        return [Finding(Kind.DELTA, None, run.delta, why)]
    place, active = open_place(run.delta), _active_files(table, run)
    known = {_file_name(run, record): block for block, record in records.items()}
    found = []
    for name in sorted(active - known.keys()):
        why = "it is of a block that was scored again since, with other values; remove its rows by Delta"
        found.append(Finding(Kind.DELTA, None, f"{run.delta}/{name}", why))
    mine = sorted(active & known.keys())
    there = place.present(mine)
    for name in mine:
        if name not in there:
            found.append(Finding(Kind.DELTA, None, f"{run.delta}/{name}", "it is missing"))
    if full:
        for name, now in each_of(place, partial(stored_digest, place), sorted(there)):
            if now != records[known[name]].table["digest"]:
                why = "its bytes are not what was written"
                found.append(Finding(Kind.DELTA, None, f"{run.delta}/{name}", why))
    return found


def restore_files(ledger: Ledger, findings: list[Finding], say: Reporter) -> None:
    """Copy missing and damaged files into the folder of the Delta table again."""
    wrong = {finding.file for finding in findings if finding.kind == Kind.DELTA}
    run, n = ledger.run, 0
    for record in ledger.records() if wrong else ():
        if f"{run.delta}/{_file_name(run, record)}" in wrong:
            _place(ledger, open_place(str(run.delta)), record)
            n += 1
    if n:
        say.say(f"copied {counted(n, 'file', 'files')} to the Delta table {run.delta} again")


# -- Files ---------------------------------------------------------------------------------------------------


def _file_name(run: ScoreRun, record: CommitRecord) -> str:
    """The name of the file of a block in the folder of the table."""
    return f"{run.run}-{record.block:06d}-{record.table.get('digest', '')[:8]}.parquet"


def _placed(ledger: Ledger, say: Reporter) -> Iterator[Any]:
    """Copy all files into the folder of the table. Yields what a transaction adds."""
    run = ledger.run
    place, add = open_place(str(run.delta)), _deltalake("transaction").AddAction
    with say.step("copying to the Delta table", ledger.n_blocks, "files") as advance:
        for record, size in each_of(place, partial(_place, ledger, place), ledger.records()):
            stats = json.dumps({"numRecords": record.stop - record.start})
            yield add(_file_name(run, record), size, {}, int(time.time() * 1000), True, stats)
            advance(1)


def _place(ledger: Ledger, place: Place, record: CommitRecord) -> int:
    """Copy the file of a block. Returns its size. Raises IncompleteError if it is damaged."""
    run, name = ledger.run, ledger.run.table_name(record.block)
    with local_file(run.place, name) as path:
        if not record.table or path is None or file_digest(path) != record.table["digest"]:
            raise IncompleteError(
                f"Cannot copy {name} of {run.output} to {run.delta}: it is missing or damaged. Score again"
                " with --repair."
            )
        Retrying()(partial(place.send, _file_name(run, record), path))
    return int(record.table["size"])


# -- The table -----------------------------------------------------------------------------------------------


def _deltalake(module: str = "") -> Any:
    """A module of the package. Raises SettingsError where it is not installed."""
    try:
        return import_module(f"deltalake.{module}".rstrip("."))
    except ImportError:
        raise SettingsError(
            'Cannot use a Delta table: deltalake is not installed. Run pip install "dcpred[delta]".'
        ) from None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _opened(address: str) -> Any:
    """The table as it is now; None if there is none. Raises DataError for a damaged one, IncompleteError
    where a store does not answer.
    """
    package, errors = _deltalake(), _deltalake("exceptions")
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
            address, schema=schema, mode="ignore", storage_options=delta_options(address, current_options())
        )
    except (_deltalake("exceptions").DeltaError, OSError) as error:
        doubt: Exception | None = error
    else:
        doubt = None
    table = _opened(address)
    if table is None:
        raise _failed("create", address, doubt or OSError("it is missing"))
    return table


def _is_committed(table: Any, run: ScoreRun) -> bool:
    return table.transaction_version(run.run) is not None


def _added(table: Any, run: ScoreRun, added: list[Any]) -> bool:
    """Whether the transaction was committed; False if another writer was faster."""
    package, errors = _deltalake("transaction"), _deltalake("exceptions")
    properties = package.CommitProperties(
        app_transactions=[package.Transaction(app_id=run.run, version=TRANSACTION_VERSION)],
        custom_metadata={
            "dcpred_run": run.run,
            "dcpred_model": run.model_hash,
            "dcpred_version": __version__,
        },
    )
    try:
        table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)
    except errors.CommitFailedError:
        return False
    except (errors.DeltaError, OSError) as error:
        # The next call finds the transaction if this one was written, although the reply was lost.
        raise _failed("commit to", str(run.delta), error) from error
    return True


def _active_files(table: Any, run: ScoreRun) -> set[str]:
    """Files of a run that the table reads."""
    paths = import_module("pyarrow").table(table.get_add_actions())["path"].to_pylist()
    return {path for path in paths if path.startswith(f"{run.run}-")}


# -- Checks --------------------------------------------------------------------------------------------------


def _check_apart(run: ScoreRun) -> None:
    """Raise DataError if the table and the output would lie inside each other."""
    table, output = absolute(str(run.delta)), run.output
    if f"{table}/".startswith(f"{output}/") or f"{output}/".startswith(f"{table}/"):
        raise DataError(
            f"Cannot commit {output} to the Delta table {table}: one is inside the other. Choose a"
            " path outside."
        )


def _columns_of(address: str, schema: Any) -> dict[str, str]:
    """The columns of a schema with their types in Delta. Raises DataError for a type that Delta lacks."""
    try:
        found = _deltalake().Schema.from_arrow(schema)
    except Exception as error:
        raise DataError(
            f"Cannot write to the Delta table {address}: {_first_line(error)}. Name other ids, or convert"
            " that column."
        ) from None
    return {field.name: getattr(field.type, "type", str(field.type)) for field in found.fields}


def _check_columns(address: str, table: Any, schema: Any) -> None:
    """Raise DataError unless a table has the columns of the files, and takes files without further steps."""
    wanted = _columns_of(address, schema)
    fields = table.schema().fields
    found = {field.name: getattr(field.type, "type", str(field.type)) for field in fields}
    settings = table.metadata().configuration
    limits = [name for name in settings if name.startswith("delta.constraints.")]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        limits.append("delta.columnMapping.mode")
    differ = [name for name in (*wanted, *found) if wanted.get(name) != found.get(name)]
    never_null = [field.name for field in fields if not field.nullable]
    if differ:
        there, here = (kinds.get(differ[0], "missing") for kinds in (found, wanted))
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
