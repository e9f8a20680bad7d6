"""Commit records: what a scoring run is, and what each of its blocks left behind.

A record is created once and never written over. Two attempts at a block that agree collapse into one record;
where they do not, the second is kept beside the first as `NNNNNN.conflict-DIGEST.json`, so that the
difference is visible. The numbered events in `commit` say how.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dcpred_tasks.scoring.outputs import OutputColumn, columns
from dcpred_tasks.storage.atomic_files import create_json, read_json, write_json
from dcpred_tasks.storage.digests import digest_json


@dataclass(frozen=True)
class ScoreRun:
    """What every scoring task is told: addresses and small values."""

    run: str
    """Hash of the plan (`dcpred.runs.identity.run_hash`)."""
    x: str
    """Address of the array of raw rows, as every process finds it."""
    model: str
    """Path of the model's directory."""
    model_hash: str
    """Hash of the model that the plan was made with."""
    output: str
    """Path of the output's directory."""
    outputs: tuple[str, ...]
    """Names of the output columns that were asked for, without the status."""
    n_rows: int
    """Rows of X."""
    chunk_rows: int
    """Rows of an output chunk."""
    block_rows: int
    """Rows of a block, a whole number of output chunks; the last block may have fewer."""

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        """The arrays of the output, in the order in which they are written: `outputs`, then the status."""
        return columns(self.outputs)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of `columns`."""
        return tuple(column.name for column in self.columns)

    @property
    def scores(self) -> Path:
        """The Zarr group of the output arrays."""
        return Path(self.output) / "scores.zarr"

    def record_file(self, block: int) -> Path:
        """The commit record of a block, whether it is there or not."""
        return Path(self.output) / "blocks" / f"{block:06d}.json"

    def rows(self, block: int) -> tuple[int, int]:
        """The first row of a block, and the row after its last."""
        return block * self.block_rows, min((block + 1) * self.block_rows, self.n_rows)

    def chunks(self, block: int) -> Iterator[tuple[int, int]]:
        """The output chunks of a block: of each its first row, and the row after its last."""
        start, stop = self.rows(block)
        for at in range(start, stop, self.chunk_rows):
            yield at, min(at + self.chunk_rows, stop)


@dataclass(frozen=True)
class CommitRecord:
    """What a task says of a block that is done: the fields of its JSON file, which has a checksum besides."""

    run: str
    """Hash of the plan."""
    block: int
    """Number of the block."""
    start: int
    """Its first row."""
    stop: int
    """The row after its last."""
    digest: str
    """Digest of the digests of its output chunks, in their order."""
    status: dict[str, int]
    """Rows by status code; codes that no row has are left out."""
    bad_rows: list[tuple[int, int, int]]
    """The first rows that were not scored: row, status code, and the first feature to blame or -1."""
    read_seconds: float
    """Time spent on reading X."""
    score_seconds: float
    """Time spent on scores."""
    write_seconds: float
    """Time spent on writing and on digests."""
    process: str
    """The worker process, host:pid."""
    peak_memory_bytes: int
    """Most memory of that process so far."""
    sizes: dict[str, list[int]]
    """Bytes on disk of the output chunks of each array, in their order."""
    retries: int = 0
    """Reads and writes that failed for a while and were tried again."""
    quarantined: str = ""
    """Why rows were given up; "" where none were."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """`Statistics.packed` of its rows, the seconds that they took, and the name of the processor."""


def commit(run: ScoreRun, record: CommitRecord) -> CommitRecord:
    """Make this the record of its block, and return the record that stands.

    Guarded against, with two attempts at one block (a task that was given to a second worker, or two drivers
    while a lease changes hands):

    1. Attempts A and B score the block and write its output chunks. The same model gives the same bytes, so
       that nobody can tell who wrote a chunk last.
    2. A commits: `create_json` makes the record, for it is not there yet.
    3. B commits: `create_json` finds A's record, and changes nothing.
    4. B reads it. If the digests agree, B returns A's record, and all is as if B had never been.
    5. If they differ (another processor, damaged memory), the chunks on disk may be of either. B leaves its
       own record beside A's, so that verification finds a conflict and --repair scores the block again.

    If the record that stands cannot be read, was altered or is of another run, it is replaced: nothing rests
    on it.
    """
    path = run.record_file(record.block)
    value = _sealed(record)
    if create_json(path, value):
        return record
    standing = read_record(run, record.block)
    if standing is None:
        write_json(path, value)
        return record
    if standing.digest != record.digest:
        write_json(path.with_suffix(f".conflict-{record.digest[:8]}.json"), value)
    return standing


def _sealed(record: CommitRecord) -> dict[str, Any]:
    value = asdict(record)
    return {**value, "checksum": digest_json(value)}


def read_record(run: ScoreRun, block: int) -> CommitRecord | None:
    """The commit record of a block. None where there is none, it is of another run or block, or it does not
    hold what was written.
    """
    try:
        value = read_json(run.record_file(block))
        if value.pop("checksum") != digest_json(value):
            return None
        bad_rows = [(int(row), int(code), int(feature)) for row, code, feature in value["bad_rows"]]
        record = CommitRecord(**{**value, "bad_rows": bad_rows})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    return record if record.run == run.run and record.block == block else None


def list_records(run: ScoreRun) -> tuple[set[int], list[str]]:
    """Blocks that have a record, and names of other files beside the records, by one listing."""
    blocks: set[int] = set()
    others: list[str] = []
    try:
        names = [entry.name for entry in os.scandir(run.record_file(0).parent)]
    except FileNotFoundError:
        names = []
    for name in names:
        block = _block_of(run, name)
        if block is None:
            others.append(name)
        else:
            blocks.add(block)
    return blocks, others


def record_times(run: ScoreRun) -> dict[int, float]:
    """When each block that has a record was committed, in seconds since 1970, by one listing."""
    times: dict[int, float] = {}
    try:
        entries = list(os.scandir(run.record_file(0).parent))
    except FileNotFoundError:
        return {}
    for entry in entries:
        block = _block_of(run, entry.name)
        if block is not None:
            times[block] = entry.stat().st_mtime
    return times


def _block_of(run: ScoreRun, name: str) -> int | None:
    """The block that a file beside the records is the record of."""
    number = name.removesuffix(".json")
    return int(number) if number.isdecimal() and name == run.record_file(int(number)).name else None
