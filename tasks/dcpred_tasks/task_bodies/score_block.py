"""Score a block of rows and commit it; the next one is read meanwhile."""

import math
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.artifacts.block_files import ZARR, Ids
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, commit, record_bytes
from dcpred_tasks.artifacts.model_artifact import Artifact, open_artifact
from dcpred_tasks.artifacts.repeats import HashSample
from dcpred_tasks.dtypes import LEAF_DTYPE, NO_LEAF, STATUS_DTYPE, Status
from dcpred_tasks.errors import DamagedChunkError, DataError, MissingChunkError, ModelFormatError
from dcpred_tasks.input_kinds import check_exact_rows
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.process import ReusedBuffer, cpu_name, one_thread, peak_memory_bytes, process_name
from dcpred_tasks.result_fields import document_of
from dcpred_tasks.schema.unknown_categories import UnknownCategories, joined
from dcpred_tasks.scoring.labels import RawScores, scale_scorer, score_with_leaves, typicality_scorer
from dcpred_tasks.scoring.outputs import OutputColumn, encode_outputs, needed
from dcpred_tasks.scoring.scorer import check_arithmetic, warm_up
from dcpred_tasks.scoring.self_test import check_self_test
from dcpred_tasks.scoring.statistics import (
    ScoredRows,
    Statistics,
    bad_features,
    sample_stride,
    sampled_positions,
)
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.addresses import path_on_disk
from dcpred_tasks.storage.atomic_files import resource_errors
from dcpred_tasks.storage.computed_arrays import computed
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.store_requests import Retrying
from dcpred_tasks.task_bodies.block_artifacts import BlockWriter, block_artifacts, block_writers, row_ids
from dcpred_tasks.task_bodies.chunk_threads import AHEAD, prefetched
from dcpred_tasks.task_bodies.zarr_chunks import digest_values, output_arrays, read_stored

# In the statistics of commit records: unknown categories, samples of hashes of rows and of ids.
UNKNOWN, ROWS, IDS = "unknown", "rows", "ids"
LISTED_ROWS = 100  # most bad rows that a commit record names

_rows_buffer = ReusedBuffer()


def planned_artifact(path: str, model_hash: str) -> Artifact:
    """The planned model; refused if it changed."""
    artifact = open_artifact(path)
    if artifact.hash != model_hash:
        raise ModelFormatError(
            f"Cannot continue the run: it was planned with model {model_hash}, but {path} now holds"
            f" {artifact.hash}. Restore the model, or score into a new directory."
        )
    return artifact


@lru_cache(maxsize=2)
def open_model(path: str, model_hash: str) -> Model:
    """The planned model, once per process; refused if this process fails its self-test."""
    artifact = planned_artifact(path, model_hash)
    model = artifact.model()
    warm_up(model)
    check_self_test(model, artifact.self_test(), path)
    return model


def load_engine(run: ScoreRun) -> None:
    """Make this process ready to score: compile the engine if necessary, and open the model."""
    model = open_model(run.model, run.model_hash)
    models = models_that_score(model, run.columns)
    check_arithmetic(run.arithmetic, *models)
    for further in models[1:]:
        warm_up(further)


def models_that_score(model: Model, columns: Iterable[OutputColumn]) -> list[Model]:
    """The model, and further ones that columns of an output need."""
    needs = needed(columns)
    further = [typicality_scorer(model) if needs["typicality"] else None]
    further += [scale_scorer(model) if needs["scale"] else None]
    return [model, *filter(None, further)]


def score_block(run: ScoreRun, block: int, quarantine: bool = False) -> CommitRecord:
    """Score one block and commit it. Raises MissingChunkError, DamagedChunkError, unless `quarantine` skips
    the rows of such chunks: they get a status of their own and no scores.
    """
    model = open_model(run.model, run.model_hash)
    check_arithmetic(run.arithmetic, *models_that_score(model, run.columns))
    source = open_array(run.x, of=run.reading)
    store = computed(source)
    if run.input is not None and store is not None:
        store.check_identity(run.input)
    retrying = Retrying()
    room = rows_room(run, source)
    lost: list[str] = []
    last, names = run.rows(block)[1], feature_names(source)
    from_store, ids, draft = path_on_disk(run.x) is None, row_ids(run), RecordDraft(run, model, block)
    reads = (
        partial(retrying, partial(_read, run, source, start, stop, None if from_store else room))
        for start, stop in run.chunks(block)
    )
    ahead = prefetched(reads, AHEAD if from_store else 0)
    with resource_errors(run.scores), block_writers(block_artifacts(run), block, ids, retrying) as writers:
        for (start, stop), read in zip(run.chunks(block), ahead, strict=True):
            clock = time.perf_counter()
            try:
                X, given_up = read(), None
            except (MissingChunkError, DamagedChunkError) as error:
                if not quarantine:
                    raise
                X, given_up = _read_what_is_there(source, start, stop)
                lost.append(str(error))
            if ids is not None:
                retrying(partial(ids.read, start, stop))
                draft.add_ids(ids)
            check_exact_rows(X, names)
            if run.tables or run.input is not None:  # another run of it may have to be recognised
                draft.inputs.append(_rows_digest(X, ids))
            if stop < last:
                zarr_arrays.announce_rows(source, stop, stop + run.chunk_rows)
            clock = draft.lap("read", clock)
            with one_thread():
                scored = _score(model, X, given_up, run.columns)
            clock = draft.lap("score", clock)
            draft.observe(start, scored.status, scored)
            if store is not None and given_up is None:
                draft.unknown += store.unknown_categories(X, start)
            clock = draft.lap("statistics", clock)
            for writer in writers:
                writer.add(start, scored.values)
            clock = draft.lap("write", clock)
        clock = time.perf_counter()
        facts = _finished(writers)
        draft.lap("write", clock)
        if lost:
            draft.inputs.clear()
        record = draft.record(facts, retries=retrying.count, quarantined="; ".join(lost[:1]))
        return retrying(partial(commit, run, record))


def give_up_block(run: ScoreRun, block: int, reason: str) -> CommitRecord:
    """Commit a block that nothing can score: without scores, its rows marked as quarantined."""
    model = open_model(run.model, run.model_hash)
    retrying, ids, draft = Retrying(), row_ids(run), RecordDraft(run, model, block)
    with resource_errors(run.scores), block_writers(block_artifacts(run), block, ids, retrying) as writers:
        for start, stop in run.chunks(block):
            if ids is not None:
                retrying(partial(ids.read, start, stop))
            status = np.full(stop - start, Status.QUARANTINED, STATUS_DTYPE)
            decision = np.full((stop - start, model.n_outputs), np.nan, model.score_dtype)
            n = len(status)
            known = scale_scorer(model) is not None
            further = np.full(n, np.nan, np.float32), np.zeros(n if known else 0)
            rows = RawScores(decision, status, np.full(n, NO_LEAF, LEAF_DTYPE), *further)
            values = encode_outputs(model, run.columns, rows)
            draft.observe(start, status)
            for writer in writers:
                writer.add(start, values)
        return commit(run, draft.record(_finished(writers), quarantined=reason))


def add_tables(run: ScoreRun, record: CommitRecord, reads: bool) -> CommitRecord:
    """Write the tables that a committed block lacks, from its output chunks, and state them in its record.

    reads  whether the rows of X are there, for the digest of the input

    Raises DataError for a block that is not what was scored.
    """
    retrying, ids, block = Retrying(), row_ids(run), record.block
    arrays, digests, inputs = output_arrays(run), list[str](), list[str]()
    source = open_array(run.x, of=run.reading) if reads and not record.quarantined else None
    lacking = [artifact for artifact in block_artifacts(run) if not artifact.fits(record)]
    with resource_errors(run.scores), block_writers(lacking, block, ids, retrying) as writers:
        for start, stop in run.chunks(block):
            values, _ = read_stored(run, arrays, block, start, stop)
            if values is None:
                break
            digests.append(digest_values(run, values))
            if ids is not None:
                retrying(partial(ids.read, start, stop))
            if source is not None:
                inputs.append(
                    _rows_digest(retrying(partial(zarr_arrays.read_rows, source, start, stop)), ids)
                )
            for writer in writers:
                writer.add(start, values)
        if digest("".join(digests).encode()) != record.digest:
            raise DataError(
                f"Cannot write tables of {run.output}: the scores of rows {record.start:,} to"
                f" {record.stop:,} are damaged. Score again with --repair."
            )
        files = {**record.files, **_finished(writers)["files"]}
    record = replace(record, files=files, input=digest("".join(inputs).encode()) if inputs else record.input)
    retrying(partial(run.place.write, run.record_name(block), record_bytes(record)))
    return replace(record, tag=run.place.written_tag(run.record_name(block)))


def _finished(writers: Iterable[BlockWriter]) -> dict[str, Any]:
    """The fields of a commit record on the files of a block, which are complete now."""
    facts: dict[str, Any] = {}
    for writer in writers:
        writer.finish(facts)
    return facts


def rows_room(run: ScoreRun, source: zarr.Array[Any]) -> NDArray[Any]:
    """Memory for the rows of an output chunk, which the next task of this thread takes."""
    shape, dtype = (run.chunk_rows, *source.shape[1:]), np.dtype(source.dtype)
    return _rows_buffer(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


class RecordDraft:
    """Collects the commit record of a block."""

    def __init__(self, run: ScoreRun, model: Model, block: int) -> None:
        self.run, self.model, self.block = run, model, block
        self.statistics = Statistics(model, run.outputs)
        self.seconds = {"read": 0.0, "score": 0.0, "statistics": 0.0, "write": 0.0}
        self.counts = np.zeros(max(Status) + 1, np.int64)
        self.bad_rows: list[tuple[int, int, int]] = []
        self.inputs: list[str] = []
        self.unknown: list[UnknownCategories] = []
        self.samples = {ROWS: HashSample(run.n_rows), **({IDS: HashSample(run.n_rows)} if run.ids else {})}

    def add_ids(self, ids: Ids) -> None:
        """The ids of rows, which were read last."""
        if IDS in self.samples:
            self.samples[IDS].add_hashes(ids.hashes())

    def lap(self, phase: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[phase] += now - since
        return now

    def observe(self, start: int, status: NDArray[np.uint8], scored: ScoredRows | None = None) -> None:
        """Count and describe the rows of a chunk; `scored` is None for unreadable rows."""
        bad = np.flatnonzero(status != Status.OK)
        self.counts[Status.OK] += len(status) - len(bad)
        self.counts += np.bincount(status[bad], minlength=len(self.counts))
        bad = bad[: LISTED_ROWS - len(self.bad_rows)]
        feature = np.full(len(bad), -1)
        if scored is not None:
            looked_at = np.flatnonzero(status[bad] == Status.NON_FINITE_FEATURE)
            if len(looked_at):
                feature[looked_at] = bad_features(self.model.scaling, scored.X[bad[looked_at]])
            stride = self.run.stride or sample_stride(self.run.n_rows, self.run.block_rows)
            rows = sampled_positions(len(status), start, stride, self.run.sampling)
            self.statistics.observe(scored, rows)
            ok = slice(None) if not len(bad) else status == Status.OK
            self.samples[ROWS].add_rows(scored.X[ok], np.ascontiguousarray(scored.decision[ok, 0]))
        self.bad_rows += [(start + int(i), int(status[i]), int(j)) for i, j in zip(bad, feature, strict=True)]

    def _compared(self) -> dict[str, Any]:
        categories = document_of(joined(self.unknown))
        samples = {name: sample.packed() for name, sample in self.samples.items()}
        return samples | ({UNKNOWN: categories} if categories else {})

    def record(self, facts: dict[str, Any], retries: int = 0, quarantined: str = "") -> CommitRecord:
        """The record.

        facts  what it states of the files of the block
        """
        first, last = self.run.rows(self.block)
        return CommitRecord(
            run=self.run.run,
            block=self.block,
            start=first,
            stop=last,
            status={str(code): int(n) for code, n in enumerate(self.counts) if n},
            bad_rows=self.bad_rows,
            read_seconds=self.seconds["read"],
            score_seconds=self.seconds["score"],
            write_seconds=self.seconds["write"],
            process=process_name(),
            peak_memory_bytes=peak_memory_bytes(),
            retries=retries,
            quarantined=quarantined,
            attempt=secrets.token_hex(8) if self.run.place.has_tags else "",
            input=digest("".join(self.inputs).encode()) if self.inputs else "",
            statistics={
                **self.statistics.packed(),
                **self._compared(),
                "seconds": self.seconds["statistics"],
                "cpu": cpu_name(),
            },
            **facts,
        )


def _score(
    model: Model, X: NDArray[Any], given_up: NDArray[np.uint8] | None, asked: Collection[OutputColumn]
) -> ScoredRows:
    """Score rows; skipped ones keep their status and get no scores."""
    rows = score_with_leaves(model, X, **needed(asked))
    if given_up is not None:
        lost = given_up != Status.NOT_SCORED
        rows.status[lost], rows.decision[lost] = given_up[lost], np.nan
        if len(rows.typicality):
            rows.typicality[lost] = np.nan
        if len(rows.contributions):
            rows.contributions[lost] = np.nan
    return ScoredRows(X, rows.decision, rows.status, rows.leaf, encode_outputs(model, asked, rows))


def _read(run: ScoreRun, source: Any, start: int, stop: int, room: NDArray[Any] | None) -> NDArray[Any]:
    missing = None
    if stored_chunks.reads_as_fill(source):
        missing = next(stored_chunks.missing_chunks(source, start, stop), None)
    if missing is not None:
        raise MissingChunkError(
            f"Cannot score rows {start:,} to {stop:,}: chunk {missing} of {run.x} is missing, and would read"
            " as fill values. Restore it and run again."
        )
    return zarr_arrays.read_rows(source, start, stop, room)


def input_digest(run: ScoreRun, record: CommitRecord) -> str:
    """What the commit record of a block would state as its input now. Raises DataError."""
    if not record.files:
        run = replace(run, artifacts=(ZARR,), ids=())
    source, ids, parts = open_array(run.x, of=run.reading), row_ids(run), []
    for start, stop in run.chunks(record.block):
        X = zarr_arrays.read_rows(source, start, stop)
        if ids is not None:
            ids.read(start, stop)
        parts.append(_rows_digest(X, ids))
    return digest("".join(parts).encode())


def _rows_digest(X: NDArray[Any], ids: Ids | None) -> str:
    """A digest of rows, and of their ids, which were read last."""
    return digest(X, b"" if ids is None else ids.digest().encode())


def _read_what_is_there(source: Any, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Rows as far as they can be read, 0 elsewhere; and their status: 0 where a row could be read."""
    X = np.zeros((stop - start, *source.shape[1:]), source.dtype)
    status = np.full(stop - start, Status.NOT_SCORED, STATUS_DTYPE)
    size = zarr_arrays.chunk_rows(source)
    for first in range(start // size * size, stop, size):
        first, last = max(first, start), min(first + size, stop)
        if next(stored_chunks.missing_chunks(source, first, last), None) is not None:
            status[first - start : last - start] = Status.CHUNK_MISSING
            continue
        try:
            X[first - start : last - start] = zarr_arrays.read_rows(source, first, last)
        except DamagedChunkError:
            status[first - start : last - start] = Status.CHUNK_CORRUPT
    return X, status
