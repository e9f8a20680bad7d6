"""Commit a finished output to a Delta table: all that this takes lies in the output."""

import time
from pathlib import Path

from dcpred.public import typed
from dcpred.runs import delta_tables
from dcpred.runs.bad_rows import has_scores
from dcpred.runs.delta_rows import has_table
from dcpred.runs.ledger import Ledger, open_ledger
from dcpred.summary import Summary
from dcpred.verification.fast_check import FastCheck, check_as_written, show_system_files
from dcpred_tasks.artifacts.block_files import PARQUET
from dcpred_tasks.errors import IncompleteError, SettingsError
from dcpred_tasks.result_fields import result_class, result_field
from dcpred_tasks.storage.addresses import absolute, as_arguments


@result_class
class DeliverReport(Summary):
    """What a delivery committed."""

    output: str = result_field("Path or address of the output.")
    table: str = result_field("Path or address of the Delta table.")
    n_rows: int = result_field("Number of rows of the output, all of which the table holds.")
    added_blocks: int = result_field("Number of blocks that this call added; 0 if the table had them.")
    replaced_blocks: int = result_field(
        "Number of blocks whose rows this call replaced, for example after a repair."
    )
    version: int = result_field("Version of the table that holds the rows.")
    seconds: float = result_field("Duration in seconds.")


@typed
def deliver(
    output: str | Path, table: str | Path | None = None, *, again: bool = False, verbose: bool = False
) -> DeliverReport:
    """Commit a finished output of `score` to a Delta table, in one transaction.

    Parameters
    ----------
    output : str or Path
        The output, with Parquet files.
    table : str or Path, optional
        Path or address of the Delta table, which `verify` refers to from then on. By default that of the last
        delivery, or else that of the run.
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
    It needs neither the model nor the data. It adds rows that others removed from the table, for example by
    restoring an earlier version, and replaces those of blocks that a repair changed.

    Examples
    --------
    >>> dcpred.deliver("scores").added_blocks  # doctest: +SKIP
    3
    """
    begin = time.perf_counter()
    ledger = open_ledger(output)
    if PARQUET not in ledger.run.artifacts:
        raise SettingsError(
            f"Cannot deliver {ledger.address}: it has no Parquet files. Score into a new directory with"
            " --parquet or --delta TABLE."
        )
    if table is None and not has_table(ledger):
        raise SettingsError(
            f"Cannot deliver {ledger.address}: it was scored without a Delta table. Name one:"
            f" `dcpred deliver {as_arguments(ledger.address)} TABLE`."
        )
    fast = FastCheck(ledger)
    if not fast.finished:
        raise IncompleteError(
            f"Cannot deliver {ledger.address}: its run is not finished. Run the same `dcpred score` again."
        )
    check_as_written(fast.findings, ledger.address)
    show_system_files(fast.findings)
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
    address = None if table is None else absolute(table)
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


def deliver_finished(ledger: Ledger, *, restores: str = "") -> None:
    """Deliver a finished, verified run with a score, if it has a table. Raises IncompleteError if others
    removed its rows, unless it `restores` them.
    """
    manifest = ledger.manifest()
    if has_table(ledger) and manifest is not None and has_scores(manifest):
        delta_tables.commit_run(ledger, restores=restores)
