"""Scoring over Zarr with Dask workers: preflight → plan → blocks → verification → manifest.

A block is read, scored, written and committed by one task (dcpred_tasks.score_block). Running the same plan again does only
what is missing; a finished run writes nothing.
"""

import shutil
import time
from pathlib import Path

import numpy as np

from dcpred.cluster import Failure, Pool, Workers
from dcpred.ledger import Ledger
from dcpred.locking import check_free
from dcpred.manifest import Done, ScoreReport, make_manifest, make_report
from dcpred.plan import BlockPlan, plan_scoring
from dcpred.progress import SILENT, Reporter, counted
from dcpred.verification import damaged_fast
from dcpred_tasks import store
from dcpred_tasks.artifact import read_model
from dcpred_tasks.errors import DataError, IncompleteError, RefusedError, ResourceError, SchedulerError, SettingsError
from dcpred_tasks.files import digest_json, read_json
from dcpred_tasks.predictor import Model, check_matrix, check_rows
from dcpred_tasks.records import ScoreRun
from dcpred_tasks.score_block import OUTPUTS, create_scores, score_block

VERIFY_ROUNDS = 2


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
        return make_report(run, plan, Done(0, 0.0), time.perf_counter() - begin, finished)
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
            again = _mend(ledger, plan, workers, say)
            scored = Done(scored.blocks + again, scored.seconds)
            manifest = make_manifest(ledger, plan, scored.blocks)
            ledger.finish(manifest)
    return make_report(run, plan, scored, time.perf_counter() - begin, manifest)


def _mend(ledger: Ledger, plan: BlockPlan, workers: Workers, say: Reporter) -> int:
    """Score again what does not match its commit record, and return how many blocks that were."""
    again = 0
    for _ in range(VERIFY_ROUNDS):
        wrong = damaged_fast(ledger)
        if not wrong:
            return again
        for block in wrong:
            ledger.retract(block)
        again += _score_pending(ledger, plan, workers, say).blocks
    raise IncompleteError(
        f"{len(wrong):,} blocks did not read back as they were written, the first being block {wrong[0]}; check the storage "
        "and run again"
    )


def _score_pending(ledger: Ledger, plan: BlockPlan, workers: Workers, say: Reporter) -> Done:
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
    return Done(len(pending), time.perf_counter() - begin)


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
