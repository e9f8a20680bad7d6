"""The plan of a run: its rows, outputs and blocks, checked before anything is written."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dcpred.execution.block_plan import BlockBoundaries, BlockPlan, is_possible, plan_scoring
from dcpred.runs import delta_tables
from dcpred.runs.input_identity import run_hash
from dcpred.runs.ledger import same_settings, stored_run
from dcpred.scoring.place_checks import check_apart
from dcpred.scoring.request import Columns, Request
from dcpred_tasks.artifacts.block_files import ZARR
from dcpred_tasks.artifacts.commit_records import ScoreRun
from dcpred_tasks.artifacts.data_schema import check_same_encoding
from dcpred_tasks.artifacts.model_artifact import open_artifact
from dcpred_tasks.engine.compiler import forget_failures
from dcpred_tasks.errors import DataError, PlanConflictError, SettingsError, listed
from dcpred_tasks.model.compact_model import Model, check_features, check_matrix
from dcpred_tasks.model.feature_names import check_same_names, feature_names
from dcpred_tasks.model.label_rule import label_rule
from dcpred_tasks.model.uncertainty import DEFAULT_ALPHA, check_alpha
from dcpred_tasks.scoring.outputs import LABEL, columns, default_outputs, possible_outputs, possible_quantiles
from dcpred_tasks.scoring.scorer import arithmetic
from dcpred_tasks.scoring.self_test import check_self_test
from dcpred_tasks.scoring.statistics import HASHED_ROWS
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import Address, absolute, check_writable, path_on_disk
from dcpred_tasks.storage.computed_arrays import computed
from dcpred_tasks.storage.place import open_place
from dcpred_tasks.task_bodies.chunk_threads import AHEAD, BEHIND
from dcpred_tasks.task_bodies.score_block import models_that_score
from dcpred_tasks.task_bodies.zarr_chunks import planned_scores

RECORD_BYTES = 8 * 2**10  # maximum bytes of a commit record
ID_BYTES = 32  # usual bytes of an id in a table


def output_bytes(run: ScoreRun, model: Model, n_blocks: int) -> int:
    """Maximum bytes of a run: outputs before compression, and commit records."""
    row = sum(c.dtype(model).itemsize * math.prod(c.row_shape(model)) for c in run.columns)
    row += len(run.tables) * (row + ID_BYTES * len(run.ids))
    return run.n_rows * row + n_blocks * RECORD_BYTES


Planned = tuple[ScoreRun, BlockPlan, Model]


def plan_run(request: Request, *, repairs: bool = False, blocks: BlockBoundaries | None = None) -> Planned:
    """Check everything possible before anything is written. Raises RefusedErrors.

    repairs  whether chunks of the input may be missing, as for a request that skips their rows
    blocks   those of the run. None: those of the run in the output, if that has as many rows; else by the
             number of rows
    """
    x, output, wanted = request.x, request.output, request.columns
    check_writable(output, "scores")
    artifact = open_artifact(request.model)
    model = artifact.model()
    check_self_test(model, artifact.self_test(), str(request.model), plain=True)
    outputs, alpha = _check_columns(wanted, model)
    X = open_array(x)
    check_matrix(X.shape, np.dtype(X.dtype))
    check_same_encoding(x, artifact)
    check_features(X.shape, np.dtype(X.dtype), model.n_features)
    if X.shape[0] == 0:
        raise DataError(f"Cannot score X at {x}: it has no rows. Pass data with rows.")
    check_same_names(feature_names(X), artifact.feature_names, str(x))
    check_apart(x, str(output))
    if not (repairs or request.tolerance.quarantine):
        stored_chunks.check_complete(x, X)
    stored = stored_run(output)
    (blocks, sampling), store = _stored_blocks(stored, X, blocks), computed(X)
    more = [column for column in columns(outputs, alpha) if not column.standard]
    plan = plan_scoring(
        X.shape[0],
        X.shape[1],
        np.dtype(X.dtype).itemsize,
        zarr_arrays.chunk_rows(X),
        model.n_outputs + sum(math.prod(column.row_shape(model)) for column in more),
        ahead=AHEAD if path_on_disk(x) is None else 0,
        behind=BEHIND if open_place(output).many_at_once else 0,
        blocks=blocks,
        unit=(0, 0) if store is None else (store.unit_rows, store.unit_bytes),
    )
    forget_failures()
    x, place = absolute(x), absolute(output)
    run = ScoreRun(
        run="",
        x=x,
        model=absolute(request.model),
        model_hash=artifact.hash,
        output=place,
        outputs=outputs,
        n_rows=plan.n_rows,
        chunk_rows=plan.chunk_rows,
        block_rows=plan.block_rows,
        stride=0 if blocks is None else blocks.stride,
        sampling=sampling,
        alpha=alpha,
        costs=wanted.costs,
        arithmetic=arithmetic(*models_that_score(model, columns(outputs, alpha))),
        input=None if store is None else store.identity,
    )
    run = replace(run, run=run_hash(X, run))
    resumes = stored is not None and same_settings(stored, run) and (stored.run == run.run or stored.x == x)
    run = with_tables(run, wanted, request.delta, stored if resumes else None)
    return run, _with_memory(plan, run, model, request.delta) if run.tables else plan, model


def _check_columns(wanted: Columns, model: Model) -> tuple[tuple[str, ...], float | None]:
    """The outputs and alpha of `check_outputs`. Raises a RefusedError for columns that the model lacks."""
    outputs, alpha = check_outputs(wanted.outputs, model.task, wanted.alpha)
    if wanted.costs is not None and LABEL not in outputs and model.task == "classification":
        raise SettingsError(
            "Cannot use a threshold or costs without the output label, which alone takes them. Add label, or"
            " omit them."
        )
    label_rule(model, wanted.costs)
    for column in columns(outputs, alpha, wanted.costs):
        column.require(model)
    return outputs, alpha


def with_tables(run: ScoreRun, wanted: Columns, delta: str | Path | None, there: ScoreRun | None) -> ScoreRun:
    """A run with tables: those that an output of it has already, and the requested ones. Raises a
    RefusedError for other ids than it has, or that the data set has not.
    """
    there = run if there is None else there
    more = tuple(name for name in wanted.artifacts if name not in there.artifacts)
    if there.tables:
        if wanted.ids not in ((), there.ids):
            raise PlanConflictError(
                f"Cannot write tables of {run.output} with {listed(wanted.ids)}: it has some with"
                f" {listed(there.ids) or 'the numbers of rows'}. Omit the ids, or choose a new directory."
            )
        return replace(run, artifacts=there.artifacts + more, ids=there.ids, delta=there.delta)
    address = None if delta is None else absolute(delta)
    ids = planned_ids(run.x, wanted, run.n_rows)
    return replace(run, artifacts=there.artifacts + more, ids=ids, delta=address)


def check_tables(run: ScoreRun, arrays: dict[str, zarr.Array[Any]], delta: str | Path | None) -> None:
    """Raise a RefusedError if tables of these output arrays, or a Delta table of them, cannot be written."""
    from dcpred_tasks.tables.block_tables import delta_schema, run_ids, score_fields, table_schema

    schema = table_schema(run, score_fields(run, arrays), run_ids(run))
    if delta is not None:
        check_apart(run.x, str(delta))
        delta_tables.check_new(absolute(delta), run.output, delta_schema(schema))


def _with_memory(plan: BlockPlan, run: ScoreRun, model: Model, delta: str | Path | None) -> BlockPlan:
    """The plan with the memory of tables. Raises a RefusedError if they cannot be written."""
    from dcpred_tasks.tables.score_columns import GROUP_ROWS

    check_tables(run, dict(zarr_arrays.arrays_of(planned_scores(run, model))), delta)
    # Rows wait for their row group, as they are, and encoded.
    rows = min(max(run.chunk_rows, GROUP_ROWS), run.block_rows)
    waiting = 2 * output_bytes(replace(run, n_rows=rows), model, 0)
    return replace(plan, task_bytes=plan.task_bytes + waiting)


def planned_ids(x: Address, columns: Columns, n_rows: int) -> tuple[str, ...]:
    """The columns before the scores in tables, which may be the default (`Columns.ids`); none without tables.
    Raises DataError unless the data set has them, with as many rows.
    """
    if columns.artifacts == (ZARR,):
        return ()
    from dcpred_tasks.tables import block_tables

    return block_tables.planned_ids(x, columns.ids, n_rows)


def _stored_blocks(
    run: ScoreRun | None, X: zarr.Array[Any], blocks: BlockBoundaries | None
) -> tuple[BlockBoundaries | None, str | None]:
    """The blocks, if none are given, and the rule of sampled rows of the run in the output, if it has as many
    rows: other versions may have chosen others.
    """
    if run is None or run.n_rows != X.shape[0]:
        return blocks, HASHED_ROWS
    stored, row_bytes = (
        BlockBoundaries(run.chunk_rows, run.block_rows, run.stride),
        X.shape[1] * np.dtype(X.dtype).itemsize,
    )
    if blocks is None and is_possible(stored, row_bytes, zarr_arrays.chunk_rows(X)):
        blocks = stored
    return blocks, run.sampling


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
