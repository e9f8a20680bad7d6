"""Partition of work into blocks and chunks: frozen arithmetic, without I/O, that prints itself.

The blocks depend on the data and on fixed constants, never on the number of workers: any number can resume a
run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dcpred_tasks.annotations import Count, Positive
from dcpred_tasks.model.compact_model import tile_rows
from dcpred_tasks.scoring.statistics import sample_stride

MIB = 2**20
HELD_BYTES = 64 * MIB  # bytes of raw rows that a task holds at once
MAX_BLOCKS = 100_000  # the work of driver and scheduler grows with the number of blocks
MAX_CHUNK_ROWS = 2**18  # maximum rows of an output chunk: 1 MiB of float32
BLOCKS = 64  # enough for an even load; there are more only if they would be larger than BLOCK_ROWS
BLOCK_ROWS = 2**22
GROWING_SAMPLE_ROWS = 2**9  # rows sampled per block if the input grows: a few blocks suffice
MIN_BLOCK_ROWS = 2**14  # smaller tasks have too much overhead


@dataclass(frozen=True)
class BlockBoundaries:
    """The blocks of a run that keeps those of another: of an earlier run of a refresh, or its own."""

    chunk_rows: Positive
    """Rows of an output chunk."""
    block_rows: Positive
    """Rows of a block, a multiple of chunks."""
    stride: Count = 0
    """Sampling interval of rows for statistics; 0: by the number of rows."""


@dataclass(frozen=True)
class BlockPlan:
    """Rows in blocks, and blocks in chunks."""

    n_rows: int
    chunk_rows: int
    """Rows that are read at once and written as one output chunk."""
    block_rows: int
    """Rows of a block, a multiple of chunks; the last block may have fewer."""
    task_bytes: int
    """Maximum memory of a task besides that of its process."""

    @property
    def n_blocks(self) -> int:
        return -(-self.n_rows // self.block_rows)

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """(block, first row, row after the last)."""
        for block in range(self.n_blocks):
            yield block, block * self.block_rows, min((block + 1) * self.block_rows, self.n_rows)

    def __str__(self) -> str:
        blocks = "1 block" if self.n_blocks == 1 else f"{self.n_blocks:,} blocks of {self.block_rows:,}"
        return f"{self.n_rows:,} rows in {blocks}; about {max(self.task_bytes / MIB, 1):,.0f} MiB per task"


def plan_scoring(
    n_rows: int,
    n_features: int,
    itemsize: int,
    input_rows: int,
    n_numbers: int,
    ahead: int = 0,
    behind: int = 0,
    blocks: BlockBoundaries | None = None,
    unit: tuple[int, int] = (0, 0),
) -> BlockPlan:
    """Blocks of whole output chunks, which are whole input chunks (or shards) of `input_rows` rows.

    n_numbers      maximum of numbers written per row
    ahead, behind  chunks that a task holds besides the current one: prefetched, and still being written
    blocks         those to keep
    unit           rows, whole chunks, that are decoded together, and the memory that they take meanwhile
    """
    row_bytes = n_features * itemsize
    if blocks is None:
        rows = (
            input_rows
            if unit[0] > input_rows
            else _whole_chunks(_fitting_rows(row_bytes), n_rows, input_rows)
        )
        blocks = _boundaries(n_rows, rows, unit[0])
    chunk_rows, block_rows = blocks.chunk_rows, blocks.block_rows
    tile = min(tile_rows(n_features), chunk_rows)
    # The plain definition holds float64 rows of one row block, their copies during the sort by leaf, and
    # float32 rows. The engine takes a few MiB.
    work = tile * n_features * (8 + 8 + 8 + 4)
    outputs = 12 * n_numbers + 16
    held = chunk_rows * ((1 + ahead) * row_bytes + (1 + behind) * outputs)
    held += (1 + ahead) * unit[1]
    return BlockPlan(n_rows, chunk_rows, block_rows, held + work)


def _boundaries(n_rows: int, chunk_rows: int, unit_rows: int = 0) -> BlockBoundaries:
    wanted = max(min(-(-n_rows // BLOCKS), BLOCK_ROWS), -(-n_rows // MAX_BLOCKS), 1)
    step = max(-(-unit_rows // chunk_rows), 1) * chunk_rows
    return BlockBoundaries(chunk_rows, -(-wanted // step) * step)


def _fitting_rows(row_bytes: int) -> int:
    """Maximum rows of an output chunk, if input chunks have no more."""
    return min(max(HELD_BYTES // max(row_bytes, 1), 1), MAX_CHUNK_ROWS)


def is_possible(blocks: BlockBoundaries, row_bytes: int, input_rows: int) -> bool:
    """Whether blocks are whole chunks, which a task can hold, for given blocks."""
    whole = blocks.block_rows % blocks.chunk_rows == 0
    return whole and blocks.chunk_rows <= max(_fitting_rows(row_bytes), input_rows)


def growing_boundaries(n_rows: int, row_bytes: int, input_rows: int) -> BlockBoundaries:
    """The blocks of an input that grows: of whole input chunks, also before the first one is complete, and as
    few blocks as if it had MIN_BLOCK_ROWS for each of them already. Of few rows all are sampled: limits of
    drift need them.
    """
    planned = max(n_rows, BLOCKS * MIN_BLOCK_ROWS, input_rows)
    blocks = _boundaries(n_rows, _whole_chunks(_fitting_rows(row_bytes), planned, input_rows))
    stride = min(blocks.block_rows // GROWING_SAMPLE_ROWS, sample_stride(n_rows, 0))
    return BlockBoundaries(blocks.chunk_rows, blocks.block_rows, max(stride, 1))


def plan_routing(n_rows: int, n_features: int, itemsize: int, input_rows: int) -> BlockPlan:
    """Blocks of whole input chunks that a task can hold: raw, scaled, and sorted."""
    row_bytes = n_features * itemsize
    rows = max(HELD_BYTES // max(n_features * (itemsize + 8), 1), 1)
    block_rows = _whole_chunks(rows, n_rows, input_rows)
    return BlockPlan(n_rows, block_rows, block_rows, block_rows * (2 * row_bytes + n_features * 24 + 64))


def _whole_chunks(most: int, n_rows: int, input_rows: int) -> int:
    """At most `most` rows, fewer if that would leave workers idle: whole input chunks, one or more."""
    even = max(-(-n_rows // BLOCKS), MIN_BLOCK_ROWS)
    return min(max(min(most, even) // input_rows, 1) * input_rows, max(n_rows, 1))
