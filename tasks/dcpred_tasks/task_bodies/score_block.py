"""Score a block of rows and commit it; the next one is read meanwhile."""

import math
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray

from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun, commit
from dcpred_tasks.artifacts.model_artifact import Artifact, open_artifact
from dcpred_tasks.dtypes import LEAF_DTYPE, NO_LEAF, STATUS_DTYPE, Status
from dcpred_tasks.errors import DamagedChunkError, MissingChunkError, ModelFormatError
from dcpred_tasks.input_kinds import check_exact_rows
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.model.feature_names import feature_names
from dcpred_tasks.process import ReusedBuffer, cpu_name, one_thread, peak_memory_bytes, process_name
from dcpred_tasks.scoring.labels import RawScores, scale_scorer, score_with_leaves, typicality_scorer
from dcpred_tasks.scoring.outputs import OutputColumn, Values, encode_outputs, needed
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
from dcpred_tasks.storage.addresses import path_on_disk
from dcpred_tasks.storage.atomic_files import resource_errors
from dcpred_tasks.storage.computed_arrays import computed
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.store_requests import Retrying

T = TypeVar("T")

AHEAD, BEHIND = 4, 6  # chunks read ahead, and chunks in flight to the store


@lru_cache(maxsize=1)
def _threads(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2 * (AHEAD + BEHIND), thread_name_prefix="dcpred-chunks")


def prefetched(jobs: Iterable[Callable[[], T]], ahead: int) -> Iterator[Callable[[], T]]:
    """For each job, in order, a call that returns its result or raises its error. `ahead` jobs start early in
    other threads; 0: no prefetch.
    """
    if not ahead:
        yield from jobs
        return
    begun: deque[Future[T]] = deque()
    try:
        for job in jobs:
            begun.append(_threads(os.getpid()).submit(job))
            if len(begun) > ahead:
                yield begun.popleft().result
        while begun:
            yield begun.popleft().result
    finally:
        for future in begun:
            future.cancel()


class WriteBehind(Generic[T]):
    """Runs jobs in other threads, at most `behind` at once; immediately, in this thread, where it is 0. No
    job outlives the `with` statement.
    """

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.results: list[T] = []
        """The results of jobs, in the order of `add`; complete after `finish`."""
        self._begun: deque[Future[T]] = deque()

    def add(self, job: Callable[[], T]) -> None:
        """Raises the error of an earlier job."""
        if not self.behind:
            self.results.append(job())
            return
        if len(self._begun) == self.behind:
            self.results.append(self._begun.popleft().result())
        self._begun.append(_threads(os.getpid()).submit(job))

    def finish(self) -> list[T]:
        while self._begun:
            self.results.append(self._begun.popleft().result())
        return self.results

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait(self._begun)


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
    for one in models[1:]:
        warm_up(one)


def models_that_score(model: Model, columns: Iterable[OutputColumn]) -> list[Model]:
    """The model, and further ones that columns of an output need."""
    needs = needed(columns)
    further = [typicality_scorer(model) if needs["typicality"] else None]
    further += [scale_scorer(model) if needs["scale"] else None]
    return [model, *filter(None, further)]


def create_scores(run: ScoreRun, model: Model) -> None:
    """Create the missing empty output arrays.

    Guards against:

    1. A driver writes the metadata of some arrays, and is killed.
    2. The next one, or a shard that began at the same time, creates the missing ones from the same plan, and
    does not touch
       the others, which may already have chunks.
    3. The group comes last. A process that sees it sees all arrays, also in the copy of their metadata.
    """
    planned, place = planned_scores(run, model), run.place
    for name in (*run.arrays, ""):
        file = metadata_name(name)
        if place.read(file) is None:
            place.make_folder(file.removesuffix("/zarr.json"))
            place.create(file, zarr_arrays.metadata_file(planned[name] if name else planned))


def metadata_name(name: str) -> str:
    """The name, in an output, of the metadata of an array, or of the group (name "")."""
    return f"scores.zarr/{name}/zarr.json".replace("//", "/")


def planned_scores(run: ScoreRun, model: Model) -> zarr.Group:
    """The empty output (NaN scores, status 0) in memory."""
    group = zarr_arrays.memory_group({"run": run.run, "model": run.model_hash})
    for column in run.columns:
        shape = (run.n_rows, *column.row_shape(model))
        zarr_arrays.create_array(
            group,
            column.name,
            shape,
            column.dtype(model),
            run.chunk_rows,
            fill_value=column.fill(model),
            attributes=column.attributes(model),
            dimensions=column.dimensions[: len(shape)],
        )
    return zarr_arrays.consolidate(group)


def score_block(run: ScoreRun, block: int, quarantine: bool = False) -> CommitRecord:
    """Score one block and commit it. Raises MissingChunkError, DamagedChunkError, unless `quarantine` skips
    the rows of such chunks: they get a status of their own and no scores.
    """
    model = open_model(run.model, run.model_hash)
    check_arithmetic(run.arithmetic, *models_that_score(model, run.columns))
    source = zarr_arrays.open_array(run.x, of=run.reading)
    if run.input is not None and (store := computed(source)) is not None:
        store.check_identity(run.input)
    retrying = Retrying()
    room = rows_room(run, source)
    lost: list[str] = []
    last = run.rows(block)[1]
    from_store, to_store = path_on_disk(run.x) is None, run.place.many_at_once
    reads = (
        partial(retrying, partial(_read, run, source, start, stop, None if from_store else room))
        for start, stop in run.chunks(block)
    )
    ahead = prefetched(reads, AHEAD if from_store else 0)
    with (
        resource_errors(run.scores),
        _Writer(run, model, block) as writer,
        WriteBehind[_Note](BEHIND if to_store else 0) as written,
    ):
        for (start, stop), read in zip(run.chunks(block), ahead, strict=True):
            clock = time.perf_counter()
            try:
                X, given_up = read(), None
            except (MissingChunkError, DamagedChunkError) as error:
                if not quarantine:
                    raise
                X, given_up = _read_what_is_there(source, start, stop)
                lost.append(str(error))
            writer.read_ids(start, stop, retrying)
            check_exact_rows(X, feature_names(source))
            writer.note_input(X)
            if stop < last:
                zarr_arrays.announce_rows(source, stop, stop + run.chunk_rows)
            clock = writer.lap("read", clock)
            with one_thread():
                scored = _score(model, X, given_up, run.columns)
            clock = writer.lap("score", clock)
            writer.observe(start, scored.status, scored)
            clock = writer.lap("statistics", clock)
            writer.add_to_table(start, scored.values)
            written.add(partial(retrying, partial(writer.write, start, scored.values)))
            clock = writer.lap("write", clock)
        clock = time.perf_counter()
        writer.notes = written.finish()
        writer.write_table(retrying)
        writer.lap("write", clock)
        if lost:
            writer.inputs.clear()
        record = writer.record(retries=retrying.count, quarantined="; ".join(lost[:1]))
        return retrying(partial(commit, run, record))


def give_up_block(run: ScoreRun, block: int, reason: str) -> CommitRecord:
    """Commit a block that nothing can score: without scores, its rows marked as quarantined."""
    model = open_model(run.model, run.model_hash)
    retrying = Retrying()
    with resource_errors(run.scores), _Writer(run, model, block) as writer:
        for start, stop in run.chunks(block):
            writer.read_ids(start, stop, retrying)
            status = np.full(stop - start, Status.QUARANTINED, STATUS_DTYPE)
            decision = np.full((stop - start, model.n_outputs), np.nan, model.score_dtype)
            n = len(status)
            known = scale_scorer(model) is not None
            further = np.full(n, np.nan, np.float32), np.zeros(n if known else 0)
            rows = RawScores(decision, status, np.full(n, NO_LEAF, LEAF_DTYPE), *further)
            values = encode_outputs(model, run.columns, rows)
            writer.observe(start, status)
            writer.add_to_table(start, values)
            writer.notes.append(writer.write(start, values))
        writer.write_table(retrying)
        return commit(run, writer.record(quarantined=reason))


def new_table(run: ScoreRun, block: int, arrays: dict[str, zarr.Array[Any]]) -> Any:
    """The Parquet file of a block, still empty; None in a run without such files, which needs no pyarrow.

    arrays  the output arrays, from which the columns get their types and names of classes
    """
    if run.ids is None:
        return None
    return import_module("dcpred_tasks.tables.block_tables").BlockTable(run, block, arrays)


def rows_room(run: ScoreRun, source: zarr.Array[Any]) -> NDArray[Any]:
    """Memory for the rows of an output chunk, which the next task of this thread takes."""
    shape, dtype = (run.chunk_rows, *source.shape[1:]), np.dtype(source.dtype)
    return _rows_buffer(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


@dataclass(frozen=True)
class _Note:
    """The part of a commit record for an output chunk: its digest, and sizes and tags by array."""

    digest: str
    sizes: dict[str, int]
    tags: dict[str, str]


class _Writer:
    """Writes the output chunks of a block, status last, and collects its commit record."""

    def __init__(self, run: ScoreRun, model: Model, block: int) -> None:
        self.run, self.model, self.block = run, model, block
        self.statistics = Statistics(model, run.outputs)
        self.arrays = {name: zarr_arrays.open_output(run.array(name), of=run.run) for name in run.arrays}
        self.seconds = {"read": 0.0, "score": 0.0, "statistics": 0.0, "write": 0.0}
        self.counts = np.zeros(max(Status) + 1, np.int64)
        self.bad_rows: list[tuple[int, int, int]] = []
        self.notes: list[_Note] = []
        self.table = new_table(run, block, self.arrays)
        self.table_facts: dict[str, Any] = {}
        self.inputs: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the temporary file of an attempt that failed."""
        if self.table is not None:
            self.table.discard()

    def lap(self, phase: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[phase] += now - since
        return now

    def write(self, start: int, values: Values) -> "_Note":
        """Write an output chunk, status last."""
        for name, array in self.arrays.items():
            zarr_arrays.write_rows(array, start, values[name])
        sizes = {name: stored_chunks.stored_size(array, start) for name, array in self.arrays.items()}
        tags = {name: stored_chunks.stored_tag(array, start) for name, array in self.arrays.items()}
        return _Note(digest_values(self.run, values), sizes, tags)

    def read_ids(self, start: int, stop: int, retrying: Retrying) -> None:
        """Read the ids of the rows of a chunk, if the block gets a Parquet file."""
        if self.table is not None:
            retrying(partial(self.table.read_ids, start, stop))

    def note_input(self, X: NDArray[Any]) -> None:
        """Note what was read for a chunk, where another run of it may have to be recognised."""
        if self.table is not None or self.run.input is not None:
            self.inputs.append(digest(X, b"" if self.table is None else self.table.ids_digest().encode()))

    def add_to_table(self, start: int, values: Values) -> None:
        if self.table is not None:
            self.table.add(start, values)

    def write_table(self, retrying: Retrying) -> None:
        """Give the Parquet file of the block its name, after all chunks were written."""
        if self.table is not None:
            self.table_facts = self.table.publish(retrying)

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
        self.bad_rows += [(start + int(i), int(status[i]), int(j)) for i, j in zip(bad, feature, strict=True)]

    def record(self, retries: int = 0, quarantined: str = "") -> CommitRecord:
        first, last = self.run.rows(self.block)
        on_store = self.run.place.has_tags
        return CommitRecord(
            run=self.run.run,
            block=self.block,
            start=first,
            stop=last,
            digest=digest("".join(note.digest for note in self.notes).encode()),
            status={str(code): int(n) for code, n in enumerate(self.counts) if n},
            bad_rows=self.bad_rows,
            read_seconds=self.seconds["read"],
            score_seconds=self.seconds["score"],
            write_seconds=self.seconds["write"],
            process=process_name(),
            peak_memory_bytes=peak_memory_bytes(),
            sizes={name: [note.sizes[name] for note in self.notes] for name in self.arrays},
            retries=retries,
            quarantined=quarantined,
            tags={name: [note.tags[name] for note in self.notes] for name in self.arrays if on_store},
            attempt=secrets.token_hex(8) if on_store else "",
            table=self.table_facts,
            input=digest("".join(self.inputs).encode()) if self.inputs else "",
            statistics={**self.statistics.packed(), "seconds": self.seconds["statistics"], "cpu": cpu_name()},
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


def digest_values(run: ScoreRun, values: Values) -> str:
    """The digest of an output chunk: its arrays in the order in which they are written."""
    return digest(*(values[name] for name in run.arrays))


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


def input_digest(run: ScoreRun, block: int) -> str:
    """What the commit record of a block would state as its input now. Raises DataError."""
    source, parts = zarr_arrays.open_array(run.x, of=run.reading), []
    tables = None if run.ids is None else import_module("dcpred_tasks.tables.block_tables")
    ids = None if tables is None else tables.RowIds(tables.run_ids(run))
    for start, stop in run.chunks(block):
        X = zarr_arrays.read_rows(source, start, stop)
        if ids is not None:
            ids.read(start, stop)
        parts.append(digest(X, b"" if ids is None else ids.digest().encode()))
    return digest("".join(parts).encode())


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
