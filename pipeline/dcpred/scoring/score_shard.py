"""Score one shard of a run. The last one verifies the whole run and writes its manifest."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from dcpred.execution.block_plan import BlockPlan
from dcpred.execution.interrupts import listening
from dcpred.execution.lease import Lease, acquire_lock
from dcpred.execution.pools import this_process
from dcpred.execution.progress import counted, show
from dcpred.execution.workers import Workers
from dcpred.public.results import PublicResult, speed_text
from dcpred.runs.ledger import Ledger
from dcpred.runs.manifest import Done, ScoreReport, make_manifest, make_report
from dcpred.runs.shards import FOLDER, Shard
from dcpred.scoring.blocks import FailurePolicy
from dcpred.scoring.deliver import deliver_finished, write_tables
from dcpred.scoring.planning import plan_run
from dcpred.scoring.request import Request
from dcpred.scoring.whole_run import (
    at_work,
    check_delta,
    open_run,
    report_finished,
    score_all,
    score_pending,
    show_how,
)
from dcpred_tasks.errors import InterruptedRunError, RunHeldError
from dcpred_tasks.process import peak_memory_bytes
from dcpred_tasks.result_fields import Unit, result_class, result_field
from dcpred_tasks.storage.addresses import below
from dcpred_tasks.storage.place import open_place

# Time to wait for the verification by another shard: a fixed time, and more for each block of the run.
FINISH_SECONDS, BLOCK_SECONDS = 900.0, 0.05
LOOK_SECONDS = 0.5


@result_class
class ShardReport(PublicResult):
    """The result of a shard that ended while others had work left."""

    output: str = result_field("Path or address of the output.", unit=Unit.TEXT, line="output")
    shard: str = result_field(
        "The shard, as i/n.",
        line="shard",
        text="{shard}: {shard_blocks:,} of {n_blocks:,} blocks, all of them done",
    )
    n_rows: int = result_field("Number of rows of the whole run.")
    n_blocks: int = result_field("Number of blocks of the whole run.")
    shard_blocks: int = result_field("Number of blocks of this shard; all of them are done.")
    scored_blocks: int = result_field(
        "Number of blocks that this call scored; the others were done before.",
        line="blocks",
        text="{scored_blocks:,} scored now; {left_blocks:,} remain for other shards",
    )
    left_blocks: int = result_field("Number of blocks of other shards that were not done at the check.")
    seconds: float = result_field("Time of the whole call, in seconds.")
    rows_per_second: float = result_field(
        "Rate of scoring, in rows per second; 0 if there was nothing to do.", line="speed", text=speed_text
    )
    driver_peak_memory_bytes: int = result_field("Peak memory of this process, in bytes.")


def score_shard(request: Request, shard: Shard) -> ScoreReport | ShardReport:
    """Score one shard of a request into OUTPUT/scores.zarr; see the module for the end of a run. A
    ScoreReport is that of the whole, finished run. No worker starts if no block of this shard is left.

    Raises what `score_all_rows` raises, and RunHeldError if another process has this shard.
    """
    begin = time.perf_counter()
    check_delta(request)
    planned = plan_run(request)
    plan = planned[1]
    ledger, begun = open_run(planned, shard)
    run = ledger.run
    if (manifest := ledger.manifest()) is not None:
        return report_finished(replace(ledger, shard=None), plan, manifest, begin, request)
    n_pending = len(ledger.pending()) if begun else len(ledger.shard_blocks)
    pool = request.pool_for(n_pending) if n_pending else this_process
    with at_work(ledger, planned, begun, pool) as (workers, lease):
        show(f"scoring shard {shard} of {plan}: {counted(len(ledger.shard_blocks), 'block', 'blocks')}")
        show_how(run, workers)
        done, left = _score_blocks(ledger, lease, workers, request.tolerance)
        if not left:
            return _finish(ledger, plan, lease, workers, done, request, begin)
    committed = counted(len(ledger.shard_blocks), "block is", "blocks are")
    show(
        f"shard {shard} is done: its {committed} committed; {left:,} of {plan.n_blocks:,} remain for other"
        " shards, the last of which verifies everything"
    )
    n_rows = sum(stop - start for start, stop in map(run.rows, ledger.shard_blocks))
    return ShardReport(
        output=run.output,
        shard=str(shard),
        n_rows=plan.n_rows,
        n_blocks=plan.n_blocks,
        shard_blocks=len(ledger.shard_blocks),
        scored_blocks=done.blocks,
        left_blocks=left,
        seconds=time.perf_counter() - begin,
        rows_per_second=min(done.blocks * plan.block_rows, n_rows) / done.seconds if done.blocks else 0.0,
        driver_peak_memory_bytes=peak_memory_bytes(),
    )


def _score_blocks(
    ledger: Ledger, lease: Lease, workers: Workers, tolerance: FailurePolicy
) -> tuple[Done, int]:
    """Score this shard's blocks. Returns what was done, and how many blocks other shards have left."""
    n_blocks, seconds, blocks = 0, 0.0, frozenset(ledger.shard_blocks)
    while True:
        done = score_pending(ledger, lease, workers, tolerance)
        n_blocks, seconds = n_blocks + done.blocks, seconds + done.seconds
        lease.check()
        missing = ledger.missing()
        # In this order: withdrawn blocks are recorded first, and the record stays until the manifest exists.
        left = set(missing) - ledger.withdrawn()
        if ledger.manifest() is not None:
            left = set()
        if not left & blocks:
            return Done(n_blocks, seconds), len(left)


def _finish(
    ledger: Ledger,
    plan: BlockPlan,
    lease: Lease,
    workers: Workers,
    done: Done,
    request: Request,
    begin: float,
) -> ScoreReport:
    """Verify the whole run and write the manifest, or wait for the shard that does."""
    whole = replace(ledger, shard=None).with_stored_tables()  # another shard may have asked for them
    with _finishing(whole) as finishing:
        manifest = whole.manifest()
        if manifest is None:
            show("every shard is done; verifying the whole run")
            write_tables(whole, finishing, workers)
            more = score_all(whole, finishing, workers, request.tolerance, whole.note_withdrawn)
            done = Done(done.blocks + more.blocks, done.seconds + more.seconds)
            manifest = make_manifest(whole, done.blocks)
            lease.check()
            finishing.check()
            manifest = whole.finish(manifest)
            whole.forget_withdrawn()
        report = make_report(whole.run, plan, done, time.perf_counter() - begin, manifest)
        deliver_finished(whole, report, request.delta)
    return replace(report, seconds=time.perf_counter() - begin)


@contextmanager
def _finishing(ledger: Ledger) -> Iterator[Lease]:
    """Hold the right to finish, once it is free. Raises InterruptedRunError, RunHeldError."""
    place = open_place(below(ledger.address, FOLDER, "finish"))
    place.make_folder("")
    deadline = time.monotonic() + FINISH_SECONDS + BLOCK_SECONDS * ledger.n_blocks
    with ExitStack() as stack, listening() as asked:
        while True:
            try:
                lease = stack.enter_context(acquire_lock(place))
                break
            except RunHeldError:
                if asked.is_set():
                    raise InterruptedRunError(
                        f"interrupted while another shard verifies {ledger.address}; run the same command"
                        " again to resume"
                    ) from None
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)
        yield lease
