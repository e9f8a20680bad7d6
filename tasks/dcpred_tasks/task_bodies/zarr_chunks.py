"""The output arrays of a run: their metadata, and the chunks that a block leaves."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import zarr

from dcpred_tasks.artifacts.block_files import Finding, Kind
from dcpred_tasks.artifacts.commit_records import CommitRecord, ScoreRun
from dcpred_tasks.errors import DamagedChunkError
from dcpred_tasks.model.compact_model import Model
from dcpred_tasks.scoring.outputs import STATUS, Values, columns
from dcpred_tasks.storage import stored_chunks, zarr_arrays
from dcpred_tasks.storage.addressed_arrays import open_array
from dcpred_tasks.storage.digests import digest
from dcpred_tasks.storage.place import read_document
from dcpred_tasks.storage.place_types import Entry
from dcpred_tasks.storage.store_requests import Retrying, StoreError
from dcpred_tasks.task_bodies.chunk_threads import BEHIND, WriteBehind


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


def output_arrays(run: ScoreRun) -> dict[str, zarr.Array[Any]]:
    """The stored output arrays, by name."""
    return {name: open_array(run.array(name)) for name in run.arrays}


def digest_values(run: ScoreRun, values: Values) -> str:
    """The digest of an output chunk: its arrays in the order in which they are written."""
    return digest(*(values[name] for name in run.arrays))


def read_stored(
    run: ScoreRun, arrays: dict[str, Any], block: int, start: int, stop: int
) -> tuple[Values | None, list[Finding]]:
    """The values of an output chunk by array, None if missing or damaged; findings for damaged ones."""
    values: Values = {}
    damaged: list[Finding] = []
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
            damaged.append(Finding(Kind.DAMAGED_CHUNK, block, file, sentence))
    return (values if len(values) == len(arrays) else None), damaged


def _disagreements(arrays: dict[str, Any], block: int, start: int, values: Values) -> Iterator[Finding]:
    """Rows whose status and scores do not go together."""
    for column in reversed(columns(values)):  # the status comes first
        fill = arrays[column.name].fill_value
        for sentence, rows in column.check(values[column.name], fill, values[STATUS.name]):
            if rows.any():
                n, first = int(rows.sum()), start + int(rows.argmax())
                more = f", and {n - 1:,} more like it" if n > 1 else ""
                yield Finding(Kind.STATUS, block, "scores.zarr", f"row {first:,} {sentence}{more}")


@dataclass(frozen=True)
class _ChunkFacts:
    """The part of a commit record for an output chunk: its digest, and sizes and tags by array."""

    digest: str
    sizes: dict[str, int]
    tags: dict[str, str]


class ChunkWriter:
    """Writes the output chunks of a block, status last; on a store, some at once in other threads."""

    def __init__(self, run: ScoreRun, retrying: Retrying) -> None:
        self.run, self.retrying = run, retrying
        self.arrays = {name: zarr_arrays.open_output(run.array(name), of=run.run) for name in run.arrays}
        self.jobs = WriteBehind[_ChunkFacts](BEHIND if run.place.many_at_once else 0)

    def add(self, start: int, values: Values) -> None:
        self.jobs.add(partial(self.retrying, partial(self._write, start, values)))

    def _write(self, start: int, values: Values) -> _ChunkFacts:
        for name, array in self.arrays.items():
            zarr_arrays.write_rows(array, start, values[name])
        sizes = {name: stored_chunks.stored_size(array, start) for name, array in self.arrays.items()}
        tags = {name: stored_chunks.stored_tag(array, start) for name, array in self.arrays.items()}
        return _ChunkFacts(digest_values(self.run, values), sizes, tags)

    def finish(self, facts: dict[str, Any]) -> None:
        notes, on_store = self.jobs.finish(), self.run.place.has_tags
        facts["digest"] = digest("".join(note.digest for note in notes).encode())
        facts["sizes"] = {name: [note.sizes[name] for note in notes] for name in self.arrays}
        facts["tags"] = {name: [note.tags[name] for note in notes] for name in self.arrays if on_store}

    def discard(self) -> None:
        """Wait for the writes under way."""
        self.jobs.wait()


class ZarrChunks:
    """The chunks of output arrays that a block leaves: an artifact (`block_artifacts`).

    skipped  arrays whose metadata are wrong: nothing is known of their chunks
    """

    folder, noun, absence = "scores.zarr", "chunk", "it is missing, and would read as fill values"
    missing, resized = Kind.MISSING_CHUNK, Kind.CHUNK_SIZE

    def __init__(self, run: ScoreRun, skipped: Set[str] = frozenset()) -> None:
        self.run, self.skipped = run, skipped

    @cached_property
    def arrays(self) -> dict[str, str]:
        """What follows the number of a row's chunk in names of chunks, by array."""
        shapes = {
            name: (read_document(self.run.place, metadata_name(name)) or {})["shape"]
            for name in self.run.arrays
            if name not in self.skipped
        }
        return {name: "/0" * (len(shape) - 1) for name, shape in shapes.items()}

    def belongs(self, name: str) -> bool:
        """Whether a file that is of no block belongs to the artifact."""
        metadata = map(metadata_name, ("", *self.run.arrays))
        return name in metadata or name.startswith(tuple(f"{self.folder}/{a}/c/" for a in self.skipped))

    def files(self, block: int) -> Iterator[str]:
        for name in self.arrays:
            yield from self._chunks(name, block)

    def _chunks(self, name: str, block: int) -> Iterator[str]:
        for start, _ in self.run.chunks(block):
            yield f"{self.folder}/{name}/c/{start // self.run.chunk_rows}{self.arrays[name]}"

    def recorded(self, record: CommitRecord) -> Iterator[tuple[str, int, str]]:
        for name in self.arrays:
            sizes = record.sizes[name]
            tags = record.tags.get(name) or [""] * len(sizes)
            yield from zip(self._chunks(name, record.block), sizes, tags, strict=True)

    def fits(self, record: CommitRecord) -> bool:
        n_chunks = len(list(self.run.chunks(record.block)))
        same = record.sizes.keys() == {*self.run.arrays}
        return same and all(len(sizes) == n_chunks for sizes in record.sizes.values())

    def linked(self, record: CommitRecord, stored: Mapping[str, Entry]) -> CommitRecord:
        names = {name: list(self._chunks(name, record.block)) for name in self.arrays if stored}
        return replace(record, tags={name: [stored[c].tag for c in chunks] for name, chunks in names.items()})

    def writer(self, block: int, ids: Any, retrying: Retrying) -> ChunkWriter:
        return ChunkWriter(self.run, retrying)

    def check(self, record: CommitRecord) -> Iterator[Finding]:
        """Skips missing chunks, which level fast reports."""
        run, block = self.run, record.block
        arrays, digests, counts = output_arrays(run), list[str](), np.zeros(256, np.int64)
        for start, stop in run.chunks(block):
            values, damaged = read_stored(run, arrays, block, start, stop)
            yield from damaged
            if values is None:
                continue
            yield from _disagreements(arrays, block, start, values)
            digests.append(digest_values(run, values))
            counts += np.bincount(values["status"], minlength=256)
        if len(digests) < len(list(run.chunks(block))):
            return
        rows = f"rows {record.start:,} to {record.stop:,}"
        if digest("".join(digests).encode()) != record.digest:
            sentence = f"{rows} can be read, but they are not what was written there"
            yield Finding(Kind.WRONG_VALUES, block, self.folder, sentence)
        elif {str(code): int(n) for code, n in enumerate(counts) if n} != record.status:
            sentence = f"it counts the status of {rows} otherwise than they are"
            yield Finding(Kind.ALTERED_RECORD, block, run.record_name(block), sentence)
