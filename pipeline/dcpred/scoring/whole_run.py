"""Score every row of an array: checks first, then blocks. Shards and repairs go the same steps."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dcpred.execution.block_plan import BlockPlan
from dcpred.execution.lease import Lease
from dcpred.execution.progress import counted, show, show_dashboard, show_detail
from dcpred.execution.workers import Pool, Workers
from dcpred.runs.bad_rows import NO_LIMIT, no_row_scored, without_score
from dcpred.runs.ledger import Ledger
from dcpred.runs.manifest import Done, ScoreReport, make_manifest, make_report
from dcpred.runs.shards import Shard
from dcpred.scoring.blocks import BlockRun, FailurePolicy
from dcpred.scoring.deliver import add_tables_to, deliver_finished, write_tables
from dcpred.scoring.place_checks import check_place
from dcpred.scoring.planning import Planned, output_bytes, plan_run
from dcpred.scoring.request import Request
from dcpred.verification.fast_check import FastCheck, check_as_written, damaged_blocks, record_system_files
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.dtypes import GIVEN_UP
from dcpred_tasks.errors import IncompleteError, SchedulerError, SettingsError
from dcpred_tasks.storage.addresses import as_arguments
from dcpred_tasks.task_bodies.zarr_chunks import create_scores

VERIFY_ROUNDS = 3


def score_all_rows(
    request: Request, planned: Planned | None = None, *, repaired: str = "", restores: str = ""
) -> ScoreReport:
    """Score every row of a request into OUTPUT/scores.zarr. The default workers of a single block are this
    process, unless rows may be skipped: a block that ends its process is skipped only if that is a worker.

    planned   the result of `plan_run` for this request, if known
    repaired  the run to resume, although input chunks may have been restored since: dcpred.scoring.repair
              checked them
    restores  whether rows that others removed from the Delta table are added again, and files in it copied:
              by level fast or full of verification; "": neither

    Raises RefusedErrors before anything is written, IncompleteError if blocks failed or too many rows have no
    score, RunHeldError, ResourceError, InterruptedRunError.
    """
    begin = time.perf_counter()
    check_delta(request)
    is_new_plan = planned is None
    planned = planned or plan_run(request)
    plan = planned[1]
    ledger, begun = open_run(planned, repaired=repaired, checks_ids=is_new_plan)
    if (manifest := ledger.manifest()) is not None:
        return report_finished(ledger, plan, manifest, begin, request, restores)
    with at_work(ledger, planned, begun, request.pool_for(plan.n_blocks)) as (workers, lease):
        show(f"scoring {plan}{workers.where}")
        show_how(ledger.run, workers)
        write_tables(ledger, lease, workers)
        scored = score_all(ledger, lease, workers, request.tolerance)
        manifest = make_manifest(ledger, scored.blocks, planned[0].run if repaired else None)
        lease.check()
        manifest = ledger.finish(manifest)
        report = make_report(ledger.run, plan, scored, time.perf_counter() - begin, manifest)
        deliver_finished(ledger, report, request.delta, restores)
    return replace(report, seconds=time.perf_counter() - begin)


def open_run(
    planned: Planned, shard: Shard | None = None, *, repaired: str = "", checks_ids: bool = True
) -> tuple[Ledger, bool]:
    """The ledger of a planned run, or of the run to repair in its place, and whether that was begun."""
    run, plan, _ = planned
    ledger = Ledger(replace(run, run=repaired or run.run), plan.n_blocks, shard).adopted()
    begun = ledger.check()
    if checks_ids and ledger.run.run == run.run:
        ledger.check_ids()
    return ledger, begun


@contextmanager
def at_work(ledger: Ledger, planned: Planned, begun: bool, pool: Pool) -> Iterator[tuple[Workers, Lease]]:
    """Hold a run, whose arrays are there, for workers that have memory for it and see its place."""
    _, plan, model = planned
    new = not ledger.place.is_there()
    if not new:
        ledger.check_free()
    if not begun:
        check_place(ledger.place, output_bytes(ledger.run, model, plan.n_blocks))
    advice = "Write the input with smaller chunks, or start fewer or larger workers"
    with pool() as workers:
        workers.check_memory(plan.task_bytes, advice)
        with ledger.claimed() as lease:
            try:
                workers.check_sees(ledger.address)
            except SchedulerError:
                if new and ledger.shard is None:
                    ledger.abandon()
                raise
            create_scores(ledger.run, model)
            yield workers, lease


def show_how(run: ScoreRun, workers: Workers) -> None:
    """Print the address of Dask's dashboard, and with -v details of the run."""
    show_dashboard(workers)
    show_detail(f"run {run.run}: {', '.join(run.outputs)} by the model {run.model_hash}")
    show_detail(f"{counted(workers.n_threads(), 'block', 'blocks')} at once; read from {run.x}")


def check_delta(request: Request) -> None:
    """Raise SettingsError for rows that would be committed without a score, and could not be replaced."""
    if request.delta is not None and request.tolerance.quarantine:
        raise SettingsError(
            "Cannot combine a Delta table with quarantine: rows that were skipped would stay in the table"
            " after a repair. Omit one of them."
        )


def report_finished(
    ledger: Ledger,
    plan: BlockPlan,
    manifest: dict[str, Any],
    begin: float,
    request: Request,
    restores: str = "",
) -> ScoreReport:
    """The report of a run with a manifest, whose tables or their commit may be missing. Raises
    IncompleteError if it is modified or damaged.
    """
    n_blocks = add_tables_to(ledger, request.pool)
    findings = FastCheck(ledger).findings
    check_as_written(findings, ledger.address)
    report = make_report(ledger.run, plan, Done(0, 0.0), time.perf_counter() - begin, manifest)
    deliver_finished(ledger, report, request.delta, restores)
    record_system_files(findings)
    if not n_blocks:
        show("this run is finished; nothing was written")
    return replace(report, seconds=time.perf_counter() - begin)


def score_pending(ledger: Ledger, lease: Lease, workers: Workers, tolerance: FailurePolicy) -> Done:
    """Score this driver's pending blocks."""
    limited = tolerance.bad_rows != NO_LIMIT
    n_bad = sum(without_score(record.status) for record in ledger.records()) if limited else 0
    return BlockRun(ledger, lease, workers, tolerance, n_bad).run(ledger.pending())


def score_all(
    ledger: Ledger,
    lease: Lease,
    workers: Workers,
    tolerance: FailurePolicy,
    note: Callable[[list[int]], None] = lambda blocks: None,
) -> Done:
    """Score pending blocks; then once more those that do not match their commit record.

    note  called with these blocks before their records are withdrawn
    """
    n_blocks, seconds = 0, 0.0
    for _ in range(VERIFY_ROUNDS):
        done = score_pending(ledger, lease, workers, tolerance)
        n_blocks, seconds = n_blocks + done.blocks, seconds + done.seconds
        findings = FastCheck(ledger, all_due=True).findings
        wrong = damaged_blocks(findings)
        if not wrong:
            check_as_written(findings, ledger.address)
            record_system_files(findings)
            return Done(n_blocks, seconds)
        note(wrong)
        for block in wrong:
            ledger.retract(block)
    raise IncompleteError(
        f"Cannot finish the run: {len(wrong):,} blocks are modified or damaged, the first is block"
        f" {wrong[0]}. Check the storage and run again."
    )


def check_rows_scored(report: ScoreReport, tolerance: FailurePolicy) -> None:
    """Raise IncompleteError if rows of a finished run were skipped, or too many or all have no score."""
    if why := no_row_scored(report.manifest):
        raise IncompleteError(
            f"Cannot use {report.output}: {why}. See `dcpred errors {as_arguments(report.output)}`, correct"
            " the data, and score into a new directory."
        )
    tolerance.check_bad_rows(without_score(report.status), report.n_rows)
    given_up = sum(report.status.get(str(int(code)), 0) for code in GIVEN_UP)
    if given_up:
        raise IncompleteError(
            f"{counted(given_up, 'row was', 'rows were')} skipped: input is damaged or missing, or no"
            f" worker survived them. See `dcpred errors {as_arguments(report.output)}`, repair the input,"
            " and run again with --repair."
        )
