"""The task bodies of verification: a block is decoded and compared with its commit record, or rows are scored
again by the plain definition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.block_files import Finding, Kind
from dcpred_tasks.artifacts.commit_records import ScoreRun, read_record
from dcpred_tasks.dtypes import GIVEN_UP, FloatArray, Status
from dcpred_tasks.errors import DamagedChunkError
from dcpred_tasks.model.compact_model import Model, score_rows, summed_sizes
from dcpred_tasks.scoring.labels import scale_scorer, score_with_leaves
from dcpred_tasks.scoring.outputs import STATUS, OutputColumn, Stored, Values, needed
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.store_requests import Retrying, StoreError
from dcpred_tasks.task_bodies.block_artifacts import block_artifacts
from dcpred_tasks.task_bodies.score_block import planned_artifact
from dcpred_tasks.task_bodies.zarr_chunks import output_arrays, read_stored

# Tolerance of a decision value, relative to the size of its sums. The engine is tested to 1e-6, and other
# processors round differently.
TOLERANCE = 1e-5
# The same share for the intercept of a regression, which is added in double precision.
DOUBLE_TOLERANCE = 1e-9


@lru_cache(maxsize=2)
def _oracle(path: str, model_hash: str) -> Model:
    """The model that a plan was made with, once per process; nothing is compiled for it."""
    return planned_artifact(path, model_hash).model()


def verify_block(run: ScoreRun, block: int) -> list[Finding]:
    """Decode a block and compare it with its commit record, which level fast has found to be complete."""
    record = read_record(run, block)
    if record is None:
        return []
    return [finding for artifact in block_artifacts(run) for finding in artifact.check(record)]


def verify_rows(run: ScoreRun, block: int, start: int, stop: int, rows: tuple[int, ...]) -> list[Finding]:
    """Score rows of an output chunk (start to stop) again by the plain definition, and compare. Skips failed
    rows. Raises DamagedChunkError where the input cannot be read.
    """
    values, findings = read_stored(run, output_arrays(run), block, start, stop)
    if values is None:
        return findings
    model, source = _oracle(run.model, run.model_hash), open_array(run.x)
    at = np.array(rows, np.int64)
    at = at[~np.isin(values["status"][at - start], GIVEN_UP)]
    size = zarr_arrays.chunk_rows(source)
    for first in np.unique(at // size * size):
        mine = at[(at >= first) & (at < first + size)]
        last = min(first + size, run.n_rows)
        X = Retrying()(partial(zarr_arrays.read_rows, source, int(first), int(last)))[mine - first]
        stored = {name: value[mine - start] for name, value in values.items()}
        for row, wrong in _wrong_scores(model, X, run.columns, stored):
            findings.append(Finding(Kind.WRONG_SCORE, block, "scores.zarr", f"row {mine[row]:,} {wrong}"))
    return findings


def _wrong_scores(
    model: Model, X: NDArray[Any], asked: Sequence[OutputColumn], values: Values
) -> Iterator[tuple[int, str]]:
    """(row, what is wrong) by the oracle. X are raw rows, and `values` their stored values."""
    decided, off = score_with_leaves(model, X, **needed(asked), score=score_rows), tolerance(model, X)
    if len(decided.log_scale) and (scale := scale_scorer(model)):
        decided = replace(decided, log_scale_off=tolerance(scale, X))
    good = np.flatnonzero((decided.status == Status.OK) & (values[STATUS.name] == Status.OK))
    for column in reversed(asked):  # the status comes first
        index = np.arange(len(X)) if column is STATUS else good
        rows = decided.take(index)
        stored, right = values[column.name][index], column.encode(model, rows)
        for i in column.differing(model, Stored(stored, right, rows, off[index])):
            has, gives = column.show(stored[i]), column.show(right[i])
            yield int(index[i]), f"has {column.name} {has}, but the model gives {gives}"


def tolerance(model: Model, X: NDArray[Any]) -> FloatArray:
    """Errors of decision values of raw rows by rounding, (n,)."""
    terms, intercept = summed_sizes(model, X)
    return TOLERANCE * terms + (DOUBLE_TOLERANCE if model.task == "regression" else TOLERANCE) * intercept


def input_is_readable(run: ScoreRun, block: int) -> bool:
    """Whether every input chunk of a block is there and can be decoded."""
    source = open_array(run.x)
    for start, stop in run.chunks(block):
        if next(stored_chunks.missing_chunks(source, start, stop), None) is not None:
            return False
        try:
            Retrying()(partial(zarr_arrays.read_rows, source, start, stop))
        except StoreError:
            raise
        except (DamagedChunkError, OSError):
            return False
    return True
