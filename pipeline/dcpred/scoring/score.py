"""Score every row of an array: checks first, then blocks."""

import math
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import zarr

from dcpred.execution.interrupts import listening
from dcpred.execution.lease import Lock, acquire_lock
from dcpred.execution.progress import SILENT, Reporter, counted, say_dashboard
from dcpred.execution.workers import STORE_THREADS, Pool, Workers, connect, this_process
from dcpred.plan import BlockPlan, Cut, is_possible, plan_scoring
from dcpred.runs import delta_tables
from dcpred.runs.bad_rows import NO_LIMIT, has_scores, no_row_scored, without_score
from dcpred.runs.delta_rows import has_table
from dcpred.runs.ledger import Ledger, run_hash, standing_run
from dcpred.runs.manifest import Done, ScoreReport, make_manifest, make_report
from dcpred.runs.shards import FOLDER, Shard
from dcpred.scoring.blocks import BlockRun, FailurePolicy
from dcpred.summary import Summary
from dcpred.verification import FastCheck, check_as_written, damaged_blocks, say_system_files
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.dtypes import GIVEN_UP
from dcpred_tasks.engine.compiler import forget_failures
from dcpred_tasks.errors import (
    DataError,
    IncompleteError,
    InterruptedRunError,
    ResourceError,
    RunHeldError,
    SchedulerError,
    SettingsError,
)
from dcpred_tasks.model.compact_model import Model, check_features, check_matrix
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.model.label_rule import Costs, label_rule
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA, check_alpha
from dcpred_tasks.process import peak_memory_bytes
from dcpred_tasks.scoring.outputs import LABEL, columns, default_outputs, possible_outputs, possible_quantiles
from dcpred_tasks.scoring.scorer import arithmetic
from dcpred_tasks.scoring.self_test import check_self_test
from dcpred_tasks.scoring.statistics import HASHED_ROWS
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addresses import (
    absolute,
    as_arguments,
    below,
    check_writable,
    path_on_disk,
    shown,
    table_address,
)
from dcpred_tasks.storage.atomic_files import check_new_name, partial_name, resource_errors
from dcpred_tasks.storage.computed_arrays import computed
from dcpred_tasks.storage.place import Place, open_place
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.task_bodies.score_block import (
    AHEAD,
    BEHIND,
    create_scores,
    models_that_score,
    planned_scores,
)

RECORD_BYTES = 8 * 2**10  # maximum bytes of a commit record
ID_BYTES = 32  # usual bytes of an id in a Parquet file


def output_bytes(run: ScoreRun, model: Model, n_blocks: int) -> int:
    """Maximum bytes of a run: outputs before compression, and commit records."""
    row = sum(c.dtype(model).itemsize * math.prod(c.row_shape(model)) for c in run.columns)
    if run.ids is not None:
        row = 2 * row + ID_BYTES * len(run.ids)
    return run.n_rows * row + n_blocks * RECORD_BYTES


def check_place(place: Place, needed: int) -> None:
    """Raise ResourceError or DataError unless an output of `needed` bytes can be written there."""
    if place.folder is not None:
        _check_folder(place.folder, needed)
    else:
        check_conditions(place)


def _check_folder(output: Path, needed: int) -> None:
    check_new_name(output)
    folder = output.absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise DataError(f"Cannot write to {output}: {folder} is a file. Choose another path.")
    probe = partial_name(folder / "probe")
    with resource_errors(folder):
        try:
            probe.write_bytes(b"dcpred")
        finally:
            probe.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ResourceError(
            f"Cannot write up to {needed / 2**20:,.2f} MiB of scores: {folder} has {free / 2**20:,.2f}"
            " MiB free. Free some space or choose another path."
        )


def check_conditions(place: Place) -> None:
    """Raise DataError unless a store obeys the conditions of a put: some take the header and overwrite, and
    two attempts at a block could then both take theirs for the record.
    """
    name = f"probe.partial-{secrets.token_hex(6)}"
    first, second, third = (secrets.token_bytes(16) for _ in range(3))
    try:
        created, again = place.create(name, first), place.create(name, second)
        standing = place.read(name)
        tag = place.replace(name, third, standing.tag) if standing is not None else None
        late = place.replace(name, second, standing.tag) if standing is not None else None
        left = place.read(name)
    except BaseException:
        with suppress(OSError, ResourceError):
            place.remove(name)
        raise
    # A temporary refusal is not a rule of the store.
    Retrying()(lambda: place.remove(name))
    heeded = created and not again and standing is not None and standing.data == first
    heeded = heeded and tag is not None and late is None and left is not None and left.data == third
    if not heeded:
        raise DataError(
            f"Cannot write scores to {place.address}: this store ignores the conditions of"
            " writing (If-None-Match, If-Match), and two attempts could overwrite each other. Use"
            " another store for outputs: it may still hold data and models."
        )
    if place.read(name) is not None:
        raise DataError(
            f"Cannot write scores to {place.address}: removed objects stay there (a retention"
            " rule?), and no block could be withdrawn. Name a bucket without that."
        )


def check_apart(x: str, output: str) -> None:
    """Raise DataError if the output would lie inside the input."""
    table = table_address(x)
    source, place = absolute(x if table is None else table.data), absolute(output)
    path = path_on_disk(source)
    there = path is None or path.exists()
    if there and (place == source or place.startswith(f"{source.rstrip('/')}/")):
        raise DataError(
            f"Cannot write scores to {output}: it is inside the input {x}. Choose a path outside."
        )


class Columns(TypedDict, total=False):
    """The columns that a run writes, as `plan_run` takes them."""

    outputs: tuple[str, ...] | None
    alpha: float | None
    costs: Costs | None
    ids: tuple[str, ...] | None


class Written(Columns, total=False):
    """All that a run writes."""

    delta: str | Path | None


VERIFY_ROUNDS = 3
STRICT = FailurePolicy()
Planned = tuple[ScoreRun, BlockPlan, Model]
BLOCK_TABLES = "dcpred_tasks.tables.block_tables"  # by its name: it loads pyarrow


def plan_run(
    model_path: str | Path,
    x: str,
    output: str | Path,
    outputs: tuple[str, ...] | None = None,
    *,
    alpha: float | None = None,
    costs: Costs | None = None,
    may_lack_chunks: bool = False,
    cut: Cut | None = None,
    ids: tuple[str, ...] | None = None,
    delta: str | Path | None = None,
) -> Planned:
    """Check everything possible before anything is written. Raises RefusedErrors.

    alpha  fraction of rows outside of intervals; None: the default
    costs  costs of labels (dcpred_tasks.model.label_rule); None: labels follow decision values
    cut    the blocks of the run. None: those of the run in `output`, if that has as many rows; else by the
           number of rows
    ids    columns before the scores in the Parquet file of each block; empty: the ids that import stored,
           else the numbers of rows; None: no such files
    delta  the Delta table that gets these files
    """
    check_writable(output, "scores")
    artifact = open_artifact(model_path)
    model = artifact.model()
    check_self_test(model, artifact.self_test(), str(model_path), plain=True)
    outputs, alpha = check_outputs(outputs, model.task, alpha)
    if costs is not None and LABEL not in outputs and model.task == "classification":
        raise SettingsError(
            "Cannot use a threshold or costs without the output label, which alone takes them. Add label, or"
            " omit them."
        )
    label_rule(model, costs)
    for column in columns(outputs, alpha, costs):
        column.require(model)
    X = zarr_arrays.open_array(x)
    check_matrix(X.shape, np.dtype(X.dtype))
    check_same_encoding(x, artifact)
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    if X.shape[0] == 0:
        raise DataError(f"Cannot score X at {x}: it has no rows. Pass data with rows.")
    check_same_names(feature_names(X), artifact.feature_names, x)
    check_apart(x, str(output))
    if not may_lack_chunks:
        stored_chunks.check_complete(x, X)
    (cut, sampling), store = _standing_blocks(output, X, cut), computed(X)
    more = [column for column in columns(outputs, alpha) if not column.standard]
    plan = plan_scoring(
        X.shape[0],
        X.shape[1],
        np.dtype(X.dtype).itemsize,
        zarr_arrays.chunk_rows(X),
        model.n_outputs + sum(math.prod(column.row_shape(model)) for column in more),
        ahead=AHEAD if path_on_disk(x) is None else 0,
        behind=BEHIND if open_place(output).many_at_once else 0,
        cut=cut,
        unit=(0, 0) if store is None else (store.unit_rows, store.unit_bytes),
    )
    forget_failures()
    x, place = absolute(x), absolute(output)
    ids, delta = planned_ids(x, ids, X.shape[0]), _planned_delta(x, delta)
    run = ScoreRun(
        run="",
        x=x,
        model=absolute(model_path),
        model_hash=artifact.hash,
        output=place,
        outputs=outputs,
        n_rows=plan.n_rows,
        chunk_rows=plan.chunk_rows,
        block_rows=plan.block_rows,
        stride=0 if cut is None else cut.stride,
        sampling=sampling,
        alpha=alpha,
        costs=costs,
        arithmetic=arithmetic(*models_that_score(model, columns(outputs, alpha))),
        input=None if store is None else store.identity,
        ids=ids,
        delta=delta,
    )
    run = replace(run, run=run_hash(X, run))
    return run, plan if ids is None else _with_tables(plan, run, model), model


def _planned_delta(x: str, delta: str | Path | None) -> str | None:
    """The address of the Delta table. Raises DataError."""
    if delta is None:
        return None
    check_apart(x, str(delta))
    return absolute(delta)


def _with_tables(plan: BlockPlan, run: ScoreRun, model: Model) -> BlockPlan:
    """The plan with the memory of Parquet files. Raises a RefusedError if the run cannot write them."""
    schema = _table_schema(run, model)
    if run.delta is not None:
        delta_tables.check_table(run, schema)
    return replace(plan, task_bytes=plan.task_bytes + _group_bytes(run, model))


def planned_ids(x: str, ids: tuple[str, ...] | None, n_rows: int) -> tuple[str, ...] | None:
    """The columns before the scores in Parquet files, which may be the default (`plan_run`). Raises DataError
    unless the data set has them, with as many rows.
    """
    if ids is None:
        return None
    found: tuple[str, ...] = import_module(BLOCK_TABLES).planned_ids(x, ids, n_rows)
    return found


def _table_schema(run: ScoreRun, model: Model) -> Any:
    """The columns of the Parquet files of a run, a schema of Arrow."""
    arrays = dict(zarr_arrays.arrays_of(planned_scores(run, model)))
    return import_module(BLOCK_TABLES).table_schema(run, arrays)


def _group_bytes(run: ScoreRun, model: Model) -> int:
    """Memory of rows that wait for their row group: as they are, and encoded."""
    rows = min(
        max(run.chunk_rows, import_module("dcpred_tasks.tables.score_columns").GROUP_ROWS), run.block_rows
    )
    return 2 * output_bytes(replace(run, n_rows=rows), model, 0)


def _standing_blocks(
    output: str | Path, X: zarr.Array[Any], cut: Cut | None
) -> tuple[Cut | None, str | None]:
    """The blocks, if none are given, and the rule of sampled rows of the run in `output`, if it has as many
    rows: other versions may have chosen others.
    """
    run = standing_run(output)
    if run is None or run.n_rows != X.shape[0]:
        return cut, HASHED_ROWS
    own, row_bytes = Cut(run.chunk_rows, run.block_rows, run.stride), X.shape[1] * np.dtype(X.dtype).itemsize
    if cut is None and is_possible(own, row_bytes, zarr_arrays.chunk_rows(X)):
        cut = own
    return cut, run.sampling


def score(
    model_path: str | Path,
    x: str,
    output: str | Path,
    pool: Pool | None = None,
    *,
    tolerance: FailurePolicy = STRICT,
    repaired: str | None = None,
    planned: Planned | None = None,
    restores: str = "",
    say: Reporter = SILENT,
    **written: Unpack[Written],
) -> ScoreReport:
    """Score every row of X into OUTPUT/scores.zarr; see the module for the effect of a second call.

    pool      gives the workers, only if there is something to score. None: local processes, or for a single
              block this one (not with quarantine: a block that ends its process is skipped only if that is a
              worker)
    repaired  the run to resume, although input chunks may have been restored since: dcpred.scoring.repair
              checked them
    planned   the result of `plan_run` for these arguments, if known
    restores  whether rows that others removed from the Delta table are added again, and files in it copied:
              by level fast or full of verification; "": neither

    Raises RefusedErrors before anything is written, IncompleteError if blocks failed or too many rows have no
    score, RunHeldError, ResourceError, InterruptedRunError.
    """
    begin = time.perf_counter()
    lacking = tolerance.quarantine or repaired is not None
    check_delta(written.get("delta"), tolerance)
    run, plan, model = planned or plan_run(model_path, x, output, may_lack_chunks=lacking, **written)
    input_run = None if repaired is None else run.run
    ledger = Ledger(run if repaired is None else replace(run, run=repaired), plan.n_blocks).adopted(say)
    run = ledger.run
    begun = ledger.check()
    finished = ledger.manifest()
    if finished is not None:
        return report_finished(ledger, plan, finished, begin, say, restores)
    place = ledger.place
    new = not place.is_there()
    if not new:
        ledger.check_free()
    if not begun:
        check_place(place, output_bytes(run, model, plan.n_blocks))
    if pool is None:
        pool = default_pool(x, output, plan.n_blocks, tolerance)
    with pool() as workers, _claimed(ledger, plan, workers) as lease:
        try:
            workers.check_sees(place.address)
        except SchedulerError:
            if new:
                ledger.abandon()
            raise
        create_scores(run, model)
        say.say(f"scoring {plan}{workers.where}")
        say_how(say, run, workers)
        scored = score_all(ledger, lease, workers, say, tolerance)
        manifest = make_manifest(ledger, plan, scored.blocks, input_run)
        lease.check()
        manifest = ledger.finish(manifest)
        commit_to_delta(ledger, say, restores)
    return make_report(run, plan, scored, time.perf_counter() - begin, manifest)


def _claimed(ledger: Ledger, plan: BlockPlan, workers: Workers) -> AbstractContextManager[Lock]:
    """Hold a run, for whose blocks the workers have memory."""
    workers.check_memory(
        plan.task_bytes, "Write the input with smaller chunks, or start fewer or larger workers"
    )
    return ledger.claimed()


def say_how(say: Reporter, run: ScoreRun, workers: Workers) -> None:
    """Print the address of Dask's dashboard, and with -v details of the run."""
    say_dashboard(say, workers)
    say.detail(f"run {run.run}: {', '.join(run.outputs)} by the model {run.model_hash}")
    say.detail(f"{counted(workers.n_threads(), 'block', 'blocks')} at once; read from {shown(run.x)}")


def check_delta(delta: str | Path | None, tolerance: FailurePolicy) -> None:
    """Raise SettingsError for rows that would be committed without a score, and could not be replaced."""
    if delta is not None and tolerance.quarantine:
        raise SettingsError(
            "Cannot combine a Delta table with quarantine: rows that were skipped would stay in the table"
            " after a repair. Omit one of them."
        )


def commit_to_delta(ledger: Ledger, say: Reporter, restores: str = "") -> None:
    """Commit a finished run with a score to its Delta table, if it has one and that lacks it. Raises
    IncompleteError if others removed its rows, unless it `restores` them.
    """
    manifest = ledger.manifest()
    if has_table(ledger) and manifest is not None and has_scores(manifest):
        delta_tables.commit_run(ledger, say, restores=bool(restores), full=restores == "full")


def report_finished(
    ledger: Ledger,
    plan: BlockPlan,
    manifest: dict[str, Any],
    begin: float,
    say: Reporter,
    restores: str = "",
) -> ScoreReport:
    """The report of a run with a manifest, whose commit to a Delta table may be missing. Raises
    IncompleteError if it is modified or damaged.
    """
    findings = FastCheck(ledger).findings
    check_as_written(findings, ledger.address)
    commit_to_delta(ledger, say, restores)
    say_system_files(findings, say)
    say.say("this run is finished; nothing was written")
    return make_report(ledger.run, plan, Done(0, 0.0), time.perf_counter() - begin, manifest)


def store_threads(x: str, output: str | Path) -> dict[str, int]:
    """The arguments of `connect` besides the number of workers: more threads if either lies on a store."""
    return {} if path_on_disk(x) and path_on_disk(output) else {"threads": STORE_THREADS}


def score_pool(x: str, output: str | Path) -> Pool:
    """The default workers for scoring X into an output."""
    given = store_threads(x, output)
    return partial(connect, threads=given["threads"]) if given else connect


def default_pool(x: str, output: str | Path, n_blocks: int, tolerance: FailurePolicy) -> Pool:
    """The same for so many blocks: a single one is scored here, unless it may end its process."""
    return this_process if n_blocks <= 1 and not tolerance.quarantine else score_pool(x, output)


def score_pending(
    ledger: Ledger, lease: Lock, workers: Workers, say: Reporter, tolerance: FailurePolicy
) -> Done:
    """Score this driver's pending blocks."""
    limited = tolerance.bad_rows != NO_LIMIT
    n_bad = sum(without_score(record.status) for record in ledger.records()) if limited else 0
    return BlockRun(ledger, lease, workers, say, tolerance, n_bad).run(ledger.pending())


def score_all(
    ledger: Ledger,
    lease: Lock,
    workers: Workers,
    say: Reporter,
    tolerance: FailurePolicy,
    note: Callable[[list[int]], None] = lambda blocks: None,
) -> Done:
    """Score pending blocks; then once more those that do not match their commit record.

    note  called with these blocks before their records are withdrawn
    """
    n_blocks, seconds = 0, 0.0
    for _ in range(VERIFY_ROUNDS):
        done = score_pending(ledger, lease, workers, say, tolerance)
        n_blocks, seconds = n_blocks + done.blocks, seconds + done.seconds
        findings = FastCheck(ledger, all_due=True).findings
        wrong = damaged_blocks(findings)
        if not wrong:
            check_as_written(findings, ledger.address)
            say_system_files(findings, say)
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


def check_outputs(
    outputs: tuple[str, ...] | None, task: str, alpha: float | None = None
) -> tuple[tuple[str, ...], float | None]:
    """Output columns in their order, by default those of a model for this task; and the alpha of one of
    them, None if none takes it. Raises SettingsError.
    """
    possible, quantiles = possible_outputs(task), possible_quantiles(task)
    listed = [*possible, *([f"{quantiles[0]} to {quantiles[-1]}"] if quantiles else [])]
    gives = f"a model for {task} gives {', '.join(listed[:-1])} and {listed[-1]}"
    if outputs is not None and not outputs:
        raise SettingsError(f"Cannot score without outputs: {gives}. Name some.")
    unknown = [name for name in outputs or () if name not in (*possible, *quantiles)]
    if unknown:
        raise SettingsError(f"Cannot write output {unknown[0]!r}: {gives}. Name those.")
    asked = default_outputs(task) if outputs is None else outputs
    chosen = tuple(name for name in (*possible, *quantiles) if name in asked)
    taken = [column.name for column in columns(possible) if column.takes_alpha]
    if not set(taken) & set(chosen):
        if alpha is not None:
            takes = f"only {taken[0]} takes it" if taken else f"no output of {task} takes it"
            raise SettingsError(f"Cannot use alpha {alpha:g}: {takes}. Add that output, or omit alpha.")
        return chosen, None
    alpha = DEFAULT_ALPHA if alpha is None else alpha
    check_alpha(alpha)
    return chosen, float(alpha)


# Time to wait for the verification by another shard: a fixed time, and more for each block of the run.
FINISH_SECONDS, BLOCK_SECONDS = 900.0, 0.05
LOOK_SECONDS = 0.5


@dataclass(frozen=True, repr=False)
class ShardReport(Summary):
    """The result of a shard that ended while others had work left.

    Attributes
    ----------
    output : str
        Path or address of the output.
    shard : str
        The shard, as i/n.
    n_rows : int
        Number of rows of the whole run.
    n_blocks : int
        Number of blocks of the whole run.
    shard_blocks : int
        Number of blocks of this shard; all of them are done.
    scored_blocks : int
        Number of blocks that this call scored; the others were done before.
    left_blocks : int
        Number of blocks of other shards that were not done at the check.
    seconds : float
        Time of the whole call, in seconds.
    rows_per_second : float
        Rate of scoring, in rows per second; 0 if there was nothing to do.
    driver_peak_memory_bytes : int
        Peak memory of this process, in bytes.
    """

    output: str
    shard: str
    n_rows: int
    n_blocks: int
    shard_blocks: int
    scored_blocks: int
    left_blocks: int
    seconds: float
    rows_per_second: float
    driver_peak_memory_bytes: int


def score_shard(
    model_path: str | Path,
    x: str,
    output: str | Path,
    shard: Shard,
    pool: Pool | None = None,
    *,
    tolerance: FailurePolicy = STRICT,
    say: Reporter = SILENT,
    **written: Unpack[Written],
) -> ScoreReport | ShardReport:
    """Score one shard of X into OUTPUT/scores.zarr; see the module for the end of a run. A
    ScoreReport is that of the whole, finished run.

    pool  as of `score`; None: local processes, or this one for a single block. Not used if no block of
          this shard is left

    Raises what `score` raises, and RunHeldError if another process has this shard.
    """
    begin = time.perf_counter()
    check_delta(written.get("delta"), tolerance)
    run, plan, model = plan_run(model_path, x, output, may_lack_chunks=tolerance.quarantine, **written)
    ledger = Ledger(run, plan.n_blocks, shard).adopted(say)
    run = ledger.run
    begun = ledger.check()
    finished = ledger.manifest()
    if finished is not None:
        return report_finished(ledger, plan, finished, begin, say)
    ledger.check_free()
    if not begun:
        check_place(ledger.place, output_bytes(run, model, plan.n_blocks))
    n_pending = len(ledger.pending()) if begun else len(ledger.own_blocks)
    if n_pending == 0:
        pool = this_process
    pool = pool or default_pool(x, output, n_pending, tolerance)
    with pool() as workers, _claimed(ledger, plan, workers) as lease:
        workers.check_sees(ledger.address)
        create_scores(run, model)
        say.say(f"scoring shard {shard} of {plan}: {counted(len(ledger.own_blocks), 'block', 'blocks')}")
        say_how(say, run, workers)
        done, left = _score_own(ledger, lease, workers, say, tolerance)
        if not left:
            return _finish(ledger, plan, lease, workers, done, tolerance, begin, say)
    own = counted(len(ledger.own_blocks), "block is", "blocks are")
    say.say(
        f"shard {shard} is done: its {own} committed; {left:,} of {plan.n_blocks:,} remain for other shards,"
        " the last of which verifies everything"
    )
    n_rows = sum(stop - start for start, stop in map(run.rows, ledger.own_blocks))
    return ShardReport(
        output=run.output,
        shard=str(shard),
        n_rows=plan.n_rows,
        n_blocks=plan.n_blocks,
        shard_blocks=len(ledger.own_blocks),
        scored_blocks=done.blocks,
        left_blocks=left,
        seconds=time.perf_counter() - begin,
        rows_per_second=min(done.blocks * plan.block_rows, n_rows) / done.seconds if done.blocks else 0.0,
        driver_peak_memory_bytes=peak_memory_bytes(),
    )


def _score_own(
    ledger: Ledger, lease: Lock, workers: Workers, say: Reporter, tolerance: FailurePolicy
) -> tuple[Done, int]:
    """Score this shard's blocks. Returns what was done, and how many blocks other shards have left."""
    n_blocks, seconds, own = 0, 0.0, frozenset(ledger.own_blocks)
    while True:
        done = score_pending(ledger, lease, workers, say, tolerance)
        n_blocks, seconds = n_blocks + done.blocks, seconds + done.seconds
        lease.check()
        missing = ledger.missing()
        # In this order: withdrawn blocks are recorded first, and the record stays until the manifest exists.
        left = set(missing) - ledger.withdrawn()
        if ledger.manifest() is not None:
            left = set()
        if not left & own:
            return Done(n_blocks, seconds), len(left)


def _finish(
    ledger: Ledger,
    plan: BlockPlan,
    lease: Lock,
    workers: Workers,
    done: Done,
    tolerance: FailurePolicy,
    begin: float,
    say: Reporter,
) -> ScoreReport:
    """Verify the whole run and write the manifest, or wait for the shard that does."""
    whole = replace(ledger, shard=None)
    with _finishing(whole) as finishing:
        manifest = whole.manifest()
        if manifest is None:
            say.say("every shard is done; verifying the whole run")
            more = score_all(whole, finishing, workers, say, tolerance, whole.note_withdrawn)
            done = Done(done.blocks + more.blocks, done.seconds + more.seconds)
            manifest = make_manifest(whole, plan, done.blocks)
            lease.check()
            finishing.check()
            manifest = whole.finish(manifest)
            whole.forget_withdrawn()
        commit_to_delta(whole, say)
    return make_report(whole.run, plan, done, time.perf_counter() - begin, manifest)


@contextmanager
def _finishing(ledger: Ledger) -> Iterator[Lock]:
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
