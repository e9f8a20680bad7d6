"""Scoring over Zarr with Dask workers: preflight → plan → blocks → verification → manifest.

A block is read, scored, written and committed by one task (dcpred_tasks.score_block). Running the same plan again does only
what is missing; a finished run writes nothing.
"""

import platform
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcpred.cluster import Failure, Pool, Workers, run_all
from dcpred.ledger import FORMAT, VERSION, Ledger
from dcpred.locking import check_free
from dcpred.plan import BlockPlan, plan_scoring
from dcpred.progress import SILENT, Reporter, Step, counted
from dcpred.version import versions
from dcpred_tasks import store
from dcpred_tasks.artifact import read_model
from dcpred_tasks.dtypes import Status
from dcpred_tasks.errors import DataError, IncompleteError, RefusedError, ResourceError, SchedulerError, SettingsError
from dcpred_tasks.files import digest, digest_json, read_json
from dcpred_tasks.memory import peak_memory_bytes
from dcpred_tasks.predictor import Model, check_matrix, check_rows
from dcpred_tasks.score_block import LISTED_ROWS, OUTPUTS, ScoreRun, create_scores, score_block, verify_block

VERIFY_ROUNDS = 2


@dataclass(frozen=True)
class ScoreReport:
    """What came of a scoring run. `status` counts rows by status code."""

    output: str
    n_rows: int
    n_blocks: int
    scored_blocks: int  # by this call; the others were there
    seconds: float  # of the whole call
    rows_per_second: float  # while scoring, without the start of the workers; 0 where there was nothing to do
    status: dict[str, int]
    bad_rows: list[tuple[int, int]]
    worker_peak_memory_bytes: dict[str, int]  # by process, host:pid
    driver_peak_memory_bytes: int
    manifest: dict[str, Any]


def default_outputs(task: str) -> tuple[str, ...]:
    return OUTPUTS if task == "classification" else ("decision",)


def plan_run(model_path: Path, x: str, output: Path, outputs: tuple[str, ...] | None = None) -> tuple[ScoreRun, BlockPlan, Model]:
    """Check everything that can be checked before anything is written. Raises RefusedErrors."""
    model = read_model(model_path)
    model_hash = read_json(model_path / "model.json")["hash"]
    outputs = _check_outputs(default_outputs(model.task) if outputs is None else outputs, model.task)
    X = store.open_array(x)
    check_matrix(X.shape, np.dtype(X.dtype))
    check_rows(np.empty((0, *X.shape[1:]), X.dtype), model.n_features)
    if X.shape[0] == 0:
        raise DataError(f"X at {x} has no rows, so that there is nothing to score; pass data with rows")
    store.check_complete(x, X)
    plan = plan_scoring(X.shape[0], X.shape[1], np.dtype(X.dtype).itemsize, store.chunk_rows(X), model.n_outputs)
    x, place = store.absolute(x), store.absolute(output)
    identity = {
        "content": store.fingerprint(X),
        "shape": list(X.shape),
        "dtype": str(X.dtype),
        "model_hash": model_hash,
        "outputs": list(outputs),
        "chunk_rows": plan.chunk_rows,
        "block_rows": plan.block_rows,
    }
    run = ScoreRun(
        run=digest_json(identity),
        x=x,
        model=store.absolute(model_path),
        model_hash=model_hash,
        output=place,
        outputs=outputs,
        n_rows=plan.n_rows,
        chunk_rows=plan.chunk_rows,
        block_rows=plan.block_rows,
    )
    return run, plan, model


def score(
    model_path: Path,
    x: str,
    output: Path,
    pool: Pool,
    *,
    outputs: tuple[str, ...] | None = None,
    say: Reporter = SILENT,
) -> ScoreReport:
    """Score every row of X into OUTPUT/scores.zarr; see the module for what a second call does.

    pool  gives the workers, and is asked for them only when there is something to score
    Raises RefusedErrors before anything is written, IncompleteError if blocks failed, RunHeldError, ResourceError.
    """
    begin = time.perf_counter()
    run, plan, model = plan_run(model_path, x, output, outputs)
    ledger = Ledger(run, plan.n_blocks)
    ledger.check()
    finished = ledger.manifest()
    if finished is not None:
        say.say("this run is finished; nothing was written")
        return _report(run, plan, _Done(0, 0.0), time.perf_counter() - begin, finished)
    check_free(output)
    new = not output.exists()
    with pool() as workers:
        workers.check_memory(plan.task_bytes, "write the input with smaller chunks, or start fewer or larger workers")
        with ledger.claimed():
            try:
                workers.check_sees(output.absolute())
            except SchedulerError:
                if new:
                    shutil.rmtree(output, ignore_errors=True)
                raise
            create_scores(run, model)
            say.say(f"scoring {plan}")
            scored = _score_pending(ledger, plan, workers, say)
            again = _verify(ledger, plan, workers, say)
            scored = _Done(scored.blocks + again, scored.seconds)
            manifest = _manifest(ledger, plan, scored.blocks)
            ledger.finish(manifest)
    return _report(run, plan, scored, time.perf_counter() - begin, manifest)


@dataclass(frozen=True)
class _Done:
    """Blocks that were scored, and the seconds that took."""

    blocks: int
    seconds: float


def _score_pending(ledger: Ledger, plan: BlockPlan, workers: Workers, say: Reporter) -> _Done:
    """Score the blocks without a commit record; a block that fails does not stop the others."""
    begin = time.perf_counter()
    pending = ledger.pending()
    failed: dict[int, BaseException] = {}
    rows = [ledger.run.rows(block) for block in pending]
    with say.step("scoring", sum(stop - start for start, stop in rows), "rows") as advance:
        for number, result in workers.each(score_block, [(ledger.run, block) for block in pending]):
            if isinstance(result, Failure):
                if isinstance(result.error, ResourceError):
                    raise result.error
                failed[pending[number]] = result.error
            else:
                advance(result.stop - result.start)
    if failed:
        block, error = min(failed.items())
        start, stop = ledger.run.rows(block)
        others = "; the others are done" if len(failed) < len(pending) else ""
        raise IncompleteError(
            f"{counted(plan.n_blocks, 'block was', 'blocks were')} to be scored, but {len(failed):,} could not be, the first "
            f"being block {block} (rows {start:,} to {stop:,}): {_sentence(error)}{others}; run again to try once more"
        )
    return _Done(len(pending), time.perf_counter() - begin)


def _verify(ledger: Ledger, plan: BlockPlan, workers: Workers, say: Reporter) -> int:
    """Read every block back and compare digests; score again what does not match."""
    again = 0
    for _ in range(VERIFY_ROUNDS):
        wrong: list[int] = []

        with say.step("verifying", plan.n_rows, "rows") as advance:

            def verified(block: int, good: bool, wrong: list[int] = wrong, advance: Step = advance) -> None:
                start, stop = ledger.run.rows(block)
                advance(stop - start)
                if not good:
                    wrong.append(block)

            run_all(workers, verify_block, [(ledger.run, block) for block in range(plan.n_blocks)], verified)
        if not wrong:
            return again
        for block in wrong:
            ledger.retract(block)
        again += _score_pending(ledger, plan, workers, say).blocks
    raise IncompleteError(
        f"{len(wrong):,} blocks did not read back as they were written, the first being block {wrong[0]}; check the storage "
        "and run again"
    )


def _manifest(ledger: Ledger, plan: BlockPlan, scored: int) -> dict[str, Any]:
    receipts = list(ledger.receipts())
    status: dict[str, int] = {}
    bad: list[tuple[int, int]] = []
    peaks: dict[str, int] = {}
    for receipt in receipts:
        peaks[receipt.process] = max(peaks.get(receipt.process, 0), receipt.peak_memory_bytes)
        for code, n in receipt.status.items():
            status[code] = status.get(code, 0) + n
        bad += receipt.bad_rows[: LISTED_ROWS - len(bad)]
    return {
        "format": FORMAT,
        "version": VERSION,
        **asdict(ledger.run),
        "n_blocks": plan.n_blocks,
        "status": status,
        "status_names": {str(int(s)): s.name.lower() for s in Status if str(int(s)) in status},
        "bad_rows": bad,
        "digest": digest("".join(receipt.digest for receipt in receipts).encode()),
        "scored_blocks_last_call": scored,
        "worker_seconds": {
            "read": sum(r.read_seconds for r in receipts),
            "score": sum(r.score_seconds for r in receipts),
            "write": sum(r.write_seconds for r in receipts),
        },
        "worker_peak_memory_bytes": peaks,
        "versions": versions(),
        "machine": platform.machine(),
    }


def _report(run: ScoreRun, plan: BlockPlan, done: _Done, seconds: float, manifest: dict[str, Any]) -> ScoreReport:
    rows = min(done.blocks * plan.block_rows, plan.n_rows)
    return ScoreReport(
        output=run.output,
        n_rows=plan.n_rows,
        n_blocks=plan.n_blocks,
        scored_blocks=done.blocks,
        seconds=seconds,
        rows_per_second=rows / done.seconds if done.blocks else 0.0,
        status=manifest["status"],
        bad_rows=manifest["bad_rows"],
        worker_peak_memory_bytes=manifest["worker_peak_memory_bytes"],
        driver_peak_memory_bytes=peak_memory_bytes(),
        manifest=manifest,
    )


def _check_outputs(outputs: tuple[str, ...], task: str) -> tuple[str, ...]:
    possible = default_outputs(task)
    if not outputs:
        raise SettingsError(f"no outputs were asked for, but a model for {task} gives {' and '.join(possible)}; name some")
    unknown = [name for name in outputs if name not in possible]
    if unknown:
        raise SettingsError(
            f"output {unknown[0]!r} was asked for, but a model for {task} gives {' and '.join(possible)}; ask for those"
        )
    return tuple(name for name in possible if name in outputs)


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}"
