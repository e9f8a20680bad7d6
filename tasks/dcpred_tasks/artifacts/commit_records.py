"""Commit records: what a scoring run is, and what each of its blocks left behind.

A record is created once and never written over. Two attempts at a block that agree collapse into one record;
where they do not, the second is kept beside the first as `NNNNNN.conflict-DIGEST.json`, so that the
difference is visible.
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

    run: str  # hash of the plan
    x: str
    model: str
    model_hash: str
    output: str
    outputs: tuple[str, ...]
    n_rows: int
    chunk_rows: int  # rows of an output chunk
    block_rows: int  # a whole number of output chunks

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
        return Path(self.output) / "scores.zarr"

    def record(self, block: int) -> Path:
        return Path(self.output) / "blocks" / f"{block:06d}.json"

    def rows(self, block: int) -> tuple[int, int]:
        return block * self.block_rows, min((block + 1) * self.block_rows, self.n_rows)

    def pieces(self, block: int) -> Iterator[tuple[int, int]]:
        """The output chunks of a block, as spans of rows."""
        start, stop = self.rows(block)
        for at in range(start, stop, self.chunk_rows):
            yield at, min(at + self.chunk_rows, stop)


@dataclass(frozen=True)
class BlockReceipt:
    """A commit record. `status` counts rows by status code; `bad_rows` names the first rows that were not
    scored: row, status code, and the first feature to blame, or -1 where none is.
    """

    run: str
    block: int
    start: int
    stop: int
    digest: str
    status: dict[str, int]
    bad_rows: list[tuple[int, int, int]]
    read_seconds: float
    score_seconds: float
    write_seconds: float
    process: str
    peak_memory_bytes: int
    sizes: dict[str, list[int]]  # stored bytes of the chunks of each array, in their order
    retries: int = 0  # of reads and writes that failed for a while
    quarantined: str = ""  # why rows were given up, where some were
    statistics: dict[str, Any] = field(default_factory=dict)


def commit(run: ScoreRun, receipt: BlockReceipt) -> BlockReceipt:
    """Make this the record of its block, and return the record that stands."""
    path = run.record(receipt.block)
    value = _sealed(receipt)
    if create_json(path, value):
        return receipt
    standing = read_receipt(run, receipt.block)
    if standing is None:  # damaged
        write_json(path, value)
        return receipt
    if standing.digest != receipt.digest:
        write_json(path.with_suffix(f".conflict-{receipt.digest[:8]}.json"), value)
    return standing


def _sealed(receipt: BlockReceipt) -> dict[str, Any]:
    value = asdict(receipt)
    return {**value, "checksum": digest_json(value)}


def read_receipt(run: ScoreRun, block: int) -> BlockReceipt | None:
    """The commit record of a block, or None where there is none of this run that can be read and holds what
    was written.
    """
    try:
        value = read_json(run.record(block))
        if value.pop("checksum") != digest_json(value):
            return None
        bad_rows = [(int(row), int(code), int(feature)) for row, code, feature in value["bad_rows"]]
        receipt = BlockReceipt(**{**value, "bad_rows": bad_rows})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    return receipt if receipt.run == run.run and receipt.block == block else None


def list_records(run: ScoreRun) -> tuple[set[int], list[str]]:
    """Blocks that have a record, and names of other files beside the records, by one listing."""
    blocks: set[int] = set()
    others: list[str] = []
    try:
        names = [entry.name for entry in os.scandir(run.record(0).parent)]
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
        entries = list(os.scandir(run.record(0).parent))
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
    return int(number) if number.isdecimal() and name == run.record(int(number)).name else None
