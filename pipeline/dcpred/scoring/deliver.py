"""Deliver a finished output: write the tables that its blocks lack, and commit them to a Delta table."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dcpred.execution.lease import Lease
from dcpred.execution.pools import default_pool
from dcpred.execution.progress import counted, show_step
from dcpred.execution.workers import Pool, Workers, run_all
from dcpred.public.functions import typed
from dcpred.public.remarks import add_remarks
from dcpred.public.results import PublicResult
from dcpred.runs import delta_tables
from dcpred.runs.bad_rows import has_scores
from dcpred.runs.delta_rows import delta_table
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.runs.manifest import ScoreReport, record_remarks
from dcpred.runs.status import how_to_resume, run_status
from dcpred.scoring.planning import check_tables, with_tables
from dcpred.scoring.request import Columns
from dcpred.verification.fast_check import FastCheck, check_as_written, record_system_files
from dcpred_tasks.artifacts.block_files import PARQUET, TABLE_FORMATS, ZARR
from dcpred_tasks.artifacts.commit_records import CommitRecord
from dcpred_tasks.errors import DataError, IncompleteError, listed
from dcpred_tasks.remarks import remark
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.storage.addresses import absolute, as_arguments, below
from dcpred_tasks.task_bodies.score_block import add_tables
from dcpred_tasks.task_bodies.zarr_chunks import output_arrays


def _rows_text(r: Mapping[str, Any]) -> str:
    done = [
        f"{counted(r[name], 'block', 'blocks')} {what}"
        for name, what in (("added_blocks", "added"), ("replaced_blocks", "replaced"))
        if r[name]
    ]
    return f"{r['n_rows']:,}; {', '.join(done) or 'the table holds them already'}"


@result_class
class DeliverReport(PublicResult):
    """What a delivery committed."""

    output: str = result_field("Path or address of the output.", unit=Unit.TEXT, line="output")
    table: str = result_field(
        "Path or address of the Delta table, or of the folder of Parquet files.", unit=Unit.TEXT, line="table"
    )
    n_rows: int = result_field(
        "Number of rows of the output, all of which the table holds.", line="rows", text=_rows_text
    )
    added_blocks: int = result_field("Number of blocks that this call added; 0 if the table had them.")
    replaced_blocks: int = result_field(
        "Number of blocks whose rows this call replaced, for example after a repair."
    )
    version: int | None = result_field(
        "Version of the Delta table that holds the rows; None for a folder.", unit=Unit.COUNT, line="version"
    )
    seconds: float = result_field("Duration in seconds.")


@typed
def deliver(
    output: str | Path,
    table: str | Path | None = None,
    *,
    id: Sequence[str] = (),
    again: bool = False,
    verbose: bool = False,
) -> DeliverReport:
    """Commit a finished output of `score` to a Delta table, in one transaction, or write its Parquet files.

    Parameters
    ----------
    output : str or Path
        The output. Parquet files that it lacks are written from its scores.
    table : str or Path, optional
        Path or address of the Delta table, which `verify` refers to from then on. By default that of the last
        delivery, or else that of the run, or else only `output/scores.parquet` is written.
    id : sequence of str, optional
        Columns before the scores in files that are not written yet, as for `score`. They are read from the
        data.
    again : bool, default False
        Add the rows although the table holds equal rows of the same model, or some of them.

    Returns
    -------
    DeliverReport
        What was committed; nothing if the table holds the rows.

    Raises
    ------
    PlanConflictError
        If the table holds only some of the rows, or changed ones. Nothing is committed.
    IncompleteError
        If the output is not finished or is damaged, or other writers of the table are always faster.
    DcpredError
        If the table has other columns or cannot be written.

    See Also
    --------
    score : Score, and deliver once the run is finished.
    verify : Check whether the table holds the rows.

    Notes
    -----
    It needs no model, and the data only for ids in files that are not written yet; without the data, rows get
    numbers. It adds rows that others removed from the table, for example by restoring an earlier version, and
    replaces those of blocks that a repair changed.

    Examples
    --------
    >>> dcpred.deliver("scores").added_blocks  # doctest: +SKIP
    3
    """
    begin = time.perf_counter()
    ledger = open_ledger(output)
    fast = FastCheck(ledger)
    if not fast.finished:
        resume = how_to_resume(run_status(output).shards)
        raise IncompleteError(f"Cannot deliver {ledger.address}: its run is not finished; {resume}.")
    check_as_written([f for f in fast.findings if f not in fast.unwritten], ledger.address)
    record_system_files(fast.findings)
    to_delta = table is not None or delta_table(ledger) is not None
    if to_delta:
        _check_scores(ledger, fast)
    ledger, reads = _with_tables(ledger, tuple(id), table, bool(fast.unwritten))
    n_blocks = add_tables_to(ledger, None, reads=reads)
    address = None if table is None else absolute(table)
    done = delta_tables.Commitment(below(ledger.address, TABLE_FORMATS[PARQUET].folder), None, n_blocks)
    if to_delta:
        done = delta_tables.commit_run(ledger, table=address, restores="fast", again=again)
    return DeliverReport(
        output=ledger.address,
        table=done.table,
        n_rows=ledger.run.n_rows,
        added_blocks=done.added,
        replaced_blocks=done.replaced,
        version=done.version,
        seconds=time.perf_counter() - begin,
    )


def _check_scores(ledger: Ledger, fast: FastCheck) -> None:
    """Raise IncompleteError for rows without a score that a repair could not replace."""
    if not has_scores(ledger.manifest() or {"status": {}}):
        raise IncompleteError(
            f"Cannot deliver {ledger.address}: no row has a score. `dcpred errors"
            f" {as_arguments(ledger.address)}` shows why."
        )
    if fast.given_up:
        raise IncompleteError(
            f"Cannot deliver {ledger.address}: rows were skipped, and would stay in the table after a repair."
            " Score again with --repair."
        )


def deliver_finished(
    ledger: Ledger, report: ScoreReport, table: str | Path | None = None, restores: str = ""
) -> None:
    """Deliver a finished, verified run with a score, if it has a table. Raises IncompleteError if others
    removed its rows, unless it `restores` them, and RemarkError.
    """
    manifest = ledger.manifest()
    if (
        (table is not None or delta_table(ledger) is not None)
        and manifest is not None
        and has_scores(manifest)
    ):
        address = None if table is None else absolute(table)
        record_remarks(report)
        delta_tables.commit_run(ledger, table=address, restores=restores)


# -- Tables of blocks that were scored without ---------------------------------------------------------------


def _with_tables(
    ledger: Ledger, ids: tuple[str, ...], table: str | Path | None, unwritten: bool
) -> tuple[Ledger, bool]:
    """The ledger of an output that is to have Parquet files, and whether its input is there for them. Raises
    a RefusedError if they, or a Delta table of them, cannot be written.

    unwritten  whether some are missing that the output was to get before
    """
    run, wanted = ledger.run, Columns(artifacts=(ZARR, PARQUET), ids=ids)
    if PARQUET in run.artifacts and not unwritten:
        return replace(ledger, run=with_tables(run, wanted, table, run)), False
    try:
        same = ledger.has_same_input()
    except DataError:
        if names := ids or run.ids:
            raise DataError(
                f"Cannot write {listed(names)} into tables of {ledger.address}: {run.x}, where they"
                " lie, is not there. Restore it, or deliver without ids."
            ) from None
        what = f"the rows get numbers and no ids: {run.x}, where ids may lie, is not there"
        add_remarks(remark("lost-ids", what, "restore the data before the delivery", file=run.x))
        address, same = None if table is None else absolute(table), False
        run = run if run.tables else replace(run, artifacts=wanted.artifacts, delta=address)
    else:
        run = with_tables(run, wanted, table, run)
    ledger = replace(ledger, run=run)
    if run.ids and (not same or ledger.changed_ids()):
        raise DataError(
            f"Cannot write {listed(run.ids)} into tables of {ledger.address}: {run.x} changed since"
            " its rows were scored. Restore it, or score it into a new directory with --parquet."
        )
    check_tables(run, output_arrays(run), table)
    return ledger, same


def add_tables_to(ledger: Ledger, pool: Pool | None, *, reads: bool = True) -> int:
    """Write the tables that a finished output lacks. Returns for how many blocks.

    reads  whether the input is there
    """
    lacking = _without_tables(ledger)
    if not lacking:
        return 0
    run = ledger.run
    with (pool or default_pool(run.x, run.output, len(lacking), isolated=False))() as workers:
        workers.check_sees(ledger.address)
        with ledger.claimed() as lease:
            return write_tables(ledger, lease, workers, reads=reads)


def write_tables(ledger: Ledger, lease: Lease, workers: Workers, *, reads: bool = True) -> int:
    """Write the tables that blocks lack, which were scored without. Returns for how many blocks."""
    lacking = _without_tables(ledger)
    if not lacking:
        return 0
    n_rows = sum(record.stop - record.start for record in lacking)
    with show_step("writing tables", n_rows, "rows") as advance:

        def written(number: int, record: CommitRecord) -> None:
            if lease.lost:
                lease.check()
            ledger.cache.add(record)
            advance(record.stop - record.start)

        run_all(workers, add_tables, [(ledger.run, record, reads) for record in lacking], written)
    return len(lacking)


def _without_tables(ledger: Ledger) -> list[CommitRecord]:
    tables = ledger.run.tables.keys()
    return [record for record in ledger.records() if not tables <= record.files.keys()] if tables else []
