"""The task bodies of verification: a block is decoded and compared with its commit record, or rows are scored
again by the plain definition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, read_record
from dcpred_tasks.dtypes import GIVEN_UP, FloatArray, Status
from dcpred_tasks.errors import DamagedChunkError
from dcpred_tasks.model.compact_model import Model, score_rows, summed_sizes
from dcpred_tasks.scoring.labels import scale_scorer, score_with_leaves
from dcpred_tasks.scoring.outputs import STATUS, OutputColumn, Stored, Values, columns, needed
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.place import stored_digest
from dcpred_tasks.storage.store_requests import Retrying, StoreError
from dcpred_tasks.task_bodies.score_block import digest_values, planned_artifact

# Tolerance of a decision value, relative to the size of its sums. The engine is tested to 1e-6, and other
# processors round differently.
TOLERANCE = 1e-5
# The same share for the intercept of a regression, which is added in double precision.
DOUBLE_TOLERANCE = 1e-9


class Kind(StrEnum):
    """The kinds of findings in an output."""

    MISSING_RECORD = "missing record"
    ALTERED_RECORD = "altered record"
    FOREIGN_RECORD = "foreign record"
    RECORD_OF_NO_BLOCK = "record of no block"
    CONFLICT = "conflicting record"
    MISSING_CHUNK = "missing chunk"
    CHUNK_SIZE = "chunk of another size"
    FOREIGN_FILE = "foreign file"
    METADATA = "altered metadata"
    MANIFEST = "altered manifest"
    DAMAGED_CHUNK = "damaged chunk"
    WRONG_VALUES = "wrong values"
    STATUS = "status and scores disagree"
    WRONG_SCORE = "wrong score"
    ROWS_GIVEN_UP = "rows given up"
    """No damage: stored values are right, but rows have no score because their input was unreadable."""
    MISSING_TABLE = "missing Parquet file"
    TABLE_SIZE = "Parquet file of another size"
    DAMAGED_TABLE = "damaged Parquet file"
    DELTA = "Delta table"
    """The Delta table lacks the run, or a file of it."""
    LEFTOVER = "leftover"
    """No damage: a file of an interrupted attempt."""
    SYSTEM_FILE = "system file"
    """No damage: a file of the operating system or a file manager, which is ignored."""


HARMLESS = (Kind.LEFTOVER, Kind.ROWS_GIVEN_UP, Kind.SYSTEM_FILE)


@dataclass(frozen=True)
class Finding:
    """One finding of a verification.

    Attributes
    ----------
    kind : str
        What is wrong: one of the kinds of `dcpred verify`.
    block : int or None
        The number of the affected block; None for all or none.
    file : str
        The path of the file, relative to the output.
    sentence : str
        The error, as text that follows the name of the file.
    """

    kind: Kind
    block: int | None
    file: str
    sentence: str

    @property
    def is_damage(self) -> bool:
        """Whether something is wrong: a leftover of an interrupted attempt is not."""
        return self.kind not in HARMLESS


def verify_block(run: ScoreRun, block: int) -> list[Finding]:
    """Decode a block and compare it with its commit record. Level fast has found the record to be complete,
    and has reported missing chunks, which are skipped here.
    """
    record = read_record(run, block)
    if record is None:
        return []
    arrays = _arrays(run)
    found: list[Finding] = []
    digests: list[str] = []
    counts = np.zeros(256, np.int64)
    for start, stop in run.chunks(block):
        values, wrong = _stored(run, arrays, block, start, stop)
        found += wrong
        if values is None:
            continue
        found += _disagreements(arrays, block, start, values)
        digests.append(digest_values(run, values))
        counts += np.bincount(values["status"], minlength=256)
    if len(digests) == len(list(run.chunks(block))):
        found += _compared(run, record, digest("".join(digests).encode()), counts)
    return [*found, *_wrong_table(run, record)]


def _wrong_table(run: ScoreRun, record: CommitRecord) -> Iterator[Finding]:
    """A Parquet file that is not the one that was written. Level fast reports a missing one."""
    name = run.table_name(record.block)
    found = Retrying()(partial(stored_digest, run.place, name)) if record.table else None
    if found is not None and found != record.table["digest"]:
        rows = f"rows {record.start:,} to {record.stop:,}"
        yield Finding(Kind.DAMAGED_TABLE, record.block, name, f"its bytes of {rows} are not what was written")


def _compared(
    run: ScoreRun, record: CommitRecord, found: str, counts: NDArray[np.int64]
) -> Iterator[Finding]:
    rows = f"rows {record.start:,} to {record.stop:,}"
    if found != record.digest:
        yield Finding(
            Kind.WRONG_VALUES,
            record.block,
            "scores.zarr",
            f"{rows} can be read, but they are not what was written there",
        )
    elif {str(code): int(n) for code, n in enumerate(counts) if n} != record.status:
        file = run.record_name(record.block)
        yield Finding(
            Kind.ALTERED_RECORD, record.block, file, f"it counts the status of {rows} otherwise than they are"
        )


@lru_cache(maxsize=2)
def _oracle(path: str, model_hash: str) -> Model:
    """The model that a plan was made with, once per process; nothing is compiled for it."""
    return planned_artifact(path, model_hash).model()


def verify_rows(run: ScoreRun, block: int, start: int, stop: int, rows: tuple[int, ...]) -> list[Finding]:
    """Score rows of an output chunk (start to stop) again by the plain definition, and compare. Skips failed
    rows. Raises DamagedChunkError where the input cannot be read.
    """
    values, found = _stored(run, _arrays(run), block, start, stop)
    if values is None:
        return found
    model, source = _oracle(run.model, run.model_hash), zarr_arrays.open_array(run.x)
    at = np.array(rows, np.int64)
    at = at[~np.isin(values["status"][at - start], GIVEN_UP)]
    size = zarr_arrays.chunk_rows(source)
    for first in np.unique(at // size * size):
        mine = at[(at >= first) & (at < first + size)]
        last = min(first + size, run.n_rows)
        X = Retrying()(partial(zarr_arrays.read_rows, source, int(first), int(last)))[mine - first]
        stored = {name: value[mine - start] for name, value in values.items()}
        for row, wrong in _wrong_scores(model, X, run.columns, stored):
            found.append(Finding(Kind.WRONG_SCORE, block, "scores.zarr", f"row {mine[row]:,} {wrong}"))
    return found


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


def _arrays(run: ScoreRun) -> dict[str, Any]:
    return {name: zarr_arrays.open_array(run.array(name)) for name in run.arrays}


def _stored(
    run: ScoreRun, arrays: dict[str, Any], block: int, start: int, stop: int
) -> tuple[Values | None, list[Finding]]:
    """The values of an output chunk by array, None if missing or damaged; findings for damaged ones."""
    values: Values = {}
    found: list[Finding] = []
    for name, array in arrays.items():
        key = array.metadata.encode_chunk_key((start // run.chunk_rows, *(0 for _ in array.shape[1:])))
        if not stored_chunks.is_there(array, key):
            continue
        try:
            values[name] = Retrying()(partial(zarr_arrays.read_rows, array, start, stop))
        except StoreError:
            raise  # A store that does not answer has damaged nothing.
        except (DamagedChunkError, OSError) as error:
            reason = error.__cause__ if isinstance(error, DamagedChunkError) else error
            file = f"scores.zarr/{name}/{key}"
            sentence = f"it holds {name} of rows {start:,} to {stop:,} and cannot be decoded ({reason})"
            found.append(Finding(Kind.DAMAGED_CHUNK, block, file, sentence))
    return (values if len(values) == len(arrays) else None), found


def _disagreements(arrays: dict[str, Any], block: int, start: int, values: Values) -> Iterator[Finding]:
    """Rows whose status and scores do not go together."""
    for column in reversed(columns(values)):  # the status comes first
        fill = arrays[column.name].fill_value
        for sentence, rows in column.check(values[column.name], fill, values[STATUS.name]):
            if rows.any():
                n, first = int(rows.sum()), start + int(rows.argmax())
                more = f", and {n - 1:,} more like it" if n > 1 else ""
                yield Finding(Kind.STATUS, block, "scores.zarr", f"row {first:,} {sentence}{more}")


def input_is_readable(run: ScoreRun, block: int) -> bool:
    """Whether every input chunk of a block is there and can be decoded."""
    source = zarr_arrays.open_array(run.x)
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
